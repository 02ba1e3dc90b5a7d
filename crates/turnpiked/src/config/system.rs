//! The machine, as far as the configuration speaks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use topology::Topology;

use super::Memory;

/// Interfaces with their addresses, and readable token files.
#[derive(Clone, Debug, Default)]
pub(crate) struct System {
    /// Addresses by interface name; an interface without addresses is there too.
    pub(crate) interfaces: BTreeMap<String, Vec<IpAddr>>,
    /// VLAN devices, and the interface that each is on.
    pub(crate) vlans: BTreeMap<String, String>,
    /// Interfaces that the kernel forwards IPv4 from.
    pub(crate) forwarding4: BTreeSet<String>,
    /// Whether it forwards IPv6, for which all interfaces have one switch.
    pub(crate) forwarding6: bool,
    /// For each interface, what would have to be set so that the kernel leaves alone what comes in there.
    pub(crate) meddling: BTreeMap<String, Vec<String>>,
    /// CPUs.
    pub(crate) topology: Topology,
    /// At most.
    pub(crate) memory: Memory,
}

impl System {
    /// All addresses, of whatever interface.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.interfaces.values().flatten().copied().collect()
    }

    /// Of the network namespace that the caller is in.
    pub(crate) fn read() -> nix::Result<Self> {
        let mut interfaces: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for interface in nix::net::if_::if_nameindex()?.iter() {
            interfaces
                .entry(interface.name().to_string_lossy().into_owned())
                .or_default();
        }
        for item in nix::ifaddrs::getifaddrs()? {
            let Some(address) = item.address else {
                continue;
            };
            let ip: Option<IpAddr> = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(v4.ip().into()),
                (_, Some(v6)) => Some(v6.ip().into()),
                _ => None,
            };
            if let Some(ip) = ip {
                interfaces.entry(item.interface_name).or_default().push(ip);
            }
        }
        // Missing where the kernel has no VLAN devices.
        let vlans = std::fs::read_to_string("/proc/net/vlan/config");
        let forwards = |family: &str, name: &str| {
            let file = format!("/proc/sys/net/{family}/conf/{name}/forwarding");
            std::fs::read_to_string(file).is_ok_and(|value| value.trim() == "1")
        };
        let names = interfaces.keys().filter(|name| forwards("ipv4", name));
        Ok(Self {
            forwarding4: names.cloned().collect(),
            forwarding6: forwards("ipv6", "all"),
            meddling: (interfaces.keys())
                .map(|name| (name.clone(), meddles(name)))
                .collect(),
            interfaces,
            vlans: vlans_of(&vlans.unwrap_or_default()),
            topology: Topology::read(),
            memory: Memory::read(),
        })
    }

    /// VLAN devices, each with the interface below, by the kernel's numbers.
    pub(crate) fn numbered_vlans(&self) -> Vec<(u32, u32)> {
        let number = |name: &String| nix::net::if_::if_nametoindex(name.as_str()).ok();
        let pairs = self.vlans.iter();
        pairs
            .filter_map(|(device, below)| number(device).zip(number(below)))
            .collect()
    }

    /// All addresses, each with the kernel's number of its interface.
    pub(crate) fn numbered(&self) -> Vec<(u32, IpAddr)> {
        let mut numbered = Vec::new();
        for (name, addresses) in &self.interfaces {
            // Without one it has gone since.
            let ifindex = nix::net::if_::if_nametoindex(name.as_str()).unwrap_or(0);
            numbered.extend(addresses.iter().map(|&address| (ifindex, address)));
        }
        numbered
    }

    /// True when the interface, or a VLAN device on it, has the address.
    pub(crate) fn reaches(&self, interface: &str, ip: IpAddr) -> bool {
        let on_it = |device: &str| {
            device == interface || self.vlans.get(device).is_some_and(|on| on == interface)
        };
        let mut devices = self.interfaces.iter().filter(|(device, _)| on_it(device));
        devices.any(|(_, addresses)| addresses.contains(&ip))
    }

    /// True when some interface has the address.
    pub(crate) fn has_address(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.interfaces.values().flatten().any(|&own| own == ip)
    }
}

/// Settings that sysctl has yet to make, so that the kernel neither forwards nor answers what comes in by an interface: the
/// addresses that this is sent to are another interface's.
fn meddles(interface: &str) -> Vec<String> {
    let value = |key: &str, of: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/{}", key.replace("{}", of)));
        text.ok().and_then(|text| text.trim().parse::<u32>().ok())
    };
    // Of these two the kernel takes the greater one of the interface and of all.
    let greater = |key: &str| value(key, interface).max(value(key, "all"));
    let (forwarding, filter) = ("net/ipv4/conf/{}/forwarding", "net/ipv4/conf/{}/rp_filter");
    let (ignore, ipv6) = (
        "net/ipv4/conf/{}/arp_ignore",
        "net/ipv6/conf/{}/disable_ipv6",
    );
    let all = [
        (forwarding, "0", value(forwarding, interface) != Some(0)),
        (filter, "1", greater(filter) != Some(1)),
        (ignore, "8", greater(ignore).is_none_or(|value| value == 0)),
        // None: there is no IPv6.
        (ipv6, "1", value(ipv6, interface) == Some(0)),
    ];
    let lacking = all.into_iter().filter(|(.., lacks)| *lacks);
    lacking
        .map(|(key, value, _)| format!("{}={value}", key.replace("{}", interface)))
        .collect()
}

/// `n3.30          | 30  | n3`, below two lines of headings.
fn vlans_of(list: &str) -> BTreeMap<String, String> {
    let vlan = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        let (device, _, parent) = (fields.next()?, fields.next()?, fields.next()?);
        Some((device.to_owned(), parent.to_owned()))
    };
    list.lines().filter_map(vlan).collect()
}

/// The token of the REST interface: the file's text without surrounding space.
pub(crate) fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let token = text.trim();
    if token.len() < 16 {
        return Err("holds fewer than 16 characters; try: openssl rand -hex 32".to_owned());
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("holds characters that an HTTP header cannot carry".to_owned());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_vlan_devices() {
        let list = "VLAN Dev name    | VLAN ID\n\
                    Name-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n\
                    n3.30          | 30  | n3\nradio          | 31  | n3\n";
        let vlan = |device: &str| (device.to_owned(), "n3".to_owned());
        assert_eq!(vlans_of(list), [vlan("n3.30"), vlan("radio")].into());
        assert_eq!(vlans_of(""), [].into());
    }
}
