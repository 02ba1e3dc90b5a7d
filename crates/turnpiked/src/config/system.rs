//! What the machine has, as far as the configuration speaks of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

/// Interfaces with their addresses, and readable token files.
#[derive(Clone, Debug, Default)]
pub(crate) struct System {
    /// Addresses by interface name; an interface without addresses is there too.
    pub(crate) interfaces: BTreeMap<String, Vec<IpAddr>>,
    /// CPUs that are online.
    pub(crate) cpus: BTreeSet<u32>,
}

impl System {
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
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online");
        Ok(Self {
            interfaces,
            cpus: cpus_of(&cpus.unwrap_or_default()),
        })
    }

    /// True when some interface has the address.
    pub(crate) fn has_address(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.interfaces.values().flatten().any(|&own| own == ip)
    }
}

/// `0-2,4`
fn cpus_of(list: &str) -> BTreeSet<u32> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
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
    fn lists_of_cpus() {
        assert_eq!(cpus_of("0-2,4\n"), [0, 1, 2, 4].into());
        assert_eq!(cpus_of("7"), [7].into());
        assert_eq!(cpus_of(""), [].into());
    }
}
