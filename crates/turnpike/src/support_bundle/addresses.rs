//! Which addresses are users'.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use serde_json::Value;

/// Keys of network instances with users' addresses.
const USERS: [&str; 2] = ["pools", "framed_routes"];

/// Sets of addresses, as ranges of numbers that do not overlap.
#[derive(Debug, Default)]
struct Ranges {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
    sorted: bool,
}

impl Ranges {
    fn of(&mut self, address: IpAddr) -> &mut Vec<(u128, u128)> {
        match address {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        }
    }

    fn add(&mut self, net: IpNet) {
        self.of(net.addr())
            .push((number(net.network()), number(net.broadcast())));
        self.sorted = false;
    }

    fn sort(&mut self) {
        for ranges in [&mut self.v4, &mut self.v6] {
            ranges.sort_unstable();
            ranges.dedup_by(|next, one| {
                let overlaps = next.0 <= one.1;
                if overlaps {
                    one.1 = one.1.max(next.1);
                }
                overlaps
            });
        }
        self.sorted = true;
    }

    /// All of the prefix.
    fn contains(&self, net: IpNet) -> bool {
        debug_assert!(self.sorted);
        let ranges = match net {
            IpNet::V4(_) => &self.v4,
            IpNet::V6(_) => &self.v6,
        };
        let (first, last) = (number(net.network()), number(net.broadcast()));
        let behind = ranges.partition_point(|range| range.0 <= first);
        behind > 0 && last <= ranges[behind - 1].1
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Owner of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A user's, as far as one can know.
    User,
    /// The network's: hosts that the configuration or turnpiked names, and those on links of this machine.
    Network,
    /// Nobody knows.
    Unknown,
}

/// Addresses of users and of the network.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Of the configuration; they are no identities, but their addresses are.
    pools: Vec<IpNet>,
    sessions: Ranges,
    network: Ranges,
}

impl Addresses {
    /// From a configuration: pools and framed routes are users', and all other addresses in it the network's.
    pub(super) fn add_config(&mut self, config: &Value) {
        let instances = config.get("network_instance").and_then(Value::as_array);
        for instance in instances.into_iter().flatten() {
            for key in USERS {
                self.add_pools(instance.get(key));
            }
        }
        self.add_network(config);
    }

    /// From the status: our own Node ID, and pools of before the last reload, whose users the log may name.
    pub(super) fn add_status(&mut self, status: &Value) {
        if let Some(id) = status.get("node_id") {
            self.add_network(id);
        }
        let changes = status.pointer("/config/last/changes");
        for change in changes.and_then(Value::as_array).into_iter().flatten() {
            let key = change.get("key").and_then(Value::as_str);
            let values = [change.get("before"), change.get("after")];
            let of_users = |key: &str| USERS.iter().any(|users| key.ends_with(users));
            for value in values.into_iter().filter(|_| key.is_some_and(of_users)) {
                self.add_pools(value);
            }
            // Network instances that came or went have theirs below.
            for (value, key) in values
                .into_iter()
                .flatten()
                .flat_map(|value| USERS.map(|key| (value, key)))
            {
                self.add_pools(value.get(key));
            }
        }
    }

    fn add_pools(&mut self, listed: Option<&Value>) {
        let listed = listed.and_then(Value::as_array).into_iter().flatten();
        let nets = listed.filter_map(Value::as_str).filter_map(net);
        self.pools.extend(nets.map(|net| net.trunc()));
    }

    /// All addresses in the value, and prefixes that are no larger than a network of hosts.
    pub(super) fn add_network(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                if let Some(net) = net(text).filter(|net| is_small(*net)) {
                    self.network.add(net);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_network(item)),
            Value::Object(members) => members
                .iter()
                .filter(|(key, _)| !USERS.contains(&key.as_str()))
                .for_each(|(_, member)| self.add_network(member)),
            _ => {}
        }
    }

    /// An address or a prefix that a session has.
    pub(super) fn add_user(&mut self, text: &str) {
        let Some(net) = net(text) else { return };
        if !self.in_pool(net) {
            self.sessions.add(net);
        }
    }

    /// Once all are added.
    pub(super) fn sort(&mut self) {
        self.sessions.sort();
        self.network.sort();
    }

    fn in_pool(&self, net: IpNet) -> bool {
        self.pools.iter().any(|pool| pool.contains(&net))
    }

    pub(super) fn whose(&self, address: IpAddr) -> Whose {
        let net = IpNet::from(address);
        if self.in_pool(net) || self.sessions.contains(net) {
            return Whose::User;
        }
        match self.network.contains(net) || is_of_nobody(address) {
            true => Whose::Network,
            false => Whose::Unknown,
        }
    }

    /// Whether a prefix names a network rather than a user: pools, what they are parts of, and what is no host's.
    pub(super) fn is_network(&self, net: IpNet) -> bool {
        if net != net.trunc() || self.sessions.contains(net) {
            return false;
        }
        if self.pools.contains(&net) {
            return true;
        }
        let is_host = match net {
            IpNet::V4(net) => net.prefix_len() == 32,
            IpNet::V6(net) => net.prefix_len() >= 64,
        };
        !self.in_pool(net) && (!is_host || self.network.contains(net))
    }
}

/// `address`, `address/length`, `address:port`, `[address]:port`, and these in the root of a server's API.
fn net(text: &str) -> Option<IpNet> {
    let root = text.split_once("://").map(|(_, rest)| rest);
    let host = root.and_then(|rest| rest.split('/').next());
    let text = host.unwrap_or(text).trim_matches(['[', ']']);
    let address = |text: &str| text.parse::<IpAddr>().ok();
    let net = text.parse().ok();
    let net = net.or_else(|| address(text).map(IpNet::from));
    net.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip().into()))
}

fn is_small(net: IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.prefix_len() >= 16,
        IpNet::V6(net) => net.prefix_len() >= 48,
    }
}

/// Loopback, multicast, of a link, and others that are not one host's in the world.
fn is_of_nobody(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_unspecified()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_multicast()
                || address.is_broadcast()
                // Masks of networks.
                || u32::from(address).leading_ones() + u32::from(address).trailing_zeros() == 32
        }
        // 2000::/3 and fc00::/7 are hosts'.
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            first & 0xe000 != 0x2000 && first & 0xfe00 != 0xfc00
        }
    }
}

/// The address that means the same host, and is written otherwise: IPv4 within IPv6 (RFC 4291, 6052, 7915, 3056).
pub(super) fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let (high, low) = match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if high != 0 => (high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => (high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (high, low),
        [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn addresses() -> Addresses {
        let mut addresses = Addresses::default();
        addresses.add_config(&json!({
            "node": {"id": "10.100.0.1"},
            "n4": {"listen": "10.100.0.1:8805", "allow": ["10.100.0.0/24", "0.0.0.0/0"]},
            "network_instance": [{"pools": ["10.60.0.0/16", "2001:db8:60::/48"], "framed_routes": ["198.51.100.0/24"]}],
        }));
        addresses.add_user("10.60.0.7");
        addresses.add_user("172.20.0.9");
        addresses.add_user("2001:db8:99:1::/64");
        addresses.sort();
        addresses
    }

    #[test]
    fn users_are_told_from_the_network() {
        let addresses = addresses();
        for (address, whose) in [
            ("10.60.255.1", Whose::User),
            ("198.51.100.3", Whose::User),
            ("172.20.0.9", Whose::User),
            ("2001:db8:60:5::1", Whose::User),
            ("2001:db8:99:1::5", Whose::User),
            ("10.100.0.9", Whose::Network),
            ("127.0.0.1", Whose::Network),
            ("255.255.240.0", Whose::Network),
            ("fe80::1", Whose::Network),
            ("172.20.0.8", Whose::Unknown),
            ("203.0.113.1", Whose::Unknown),
            ("2001:db8:99:2::5", Whose::Unknown),
        ] {
            assert_eq!(
                addresses.whose(address.parse().unwrap()),
                whose,
                "{address}"
            );
        }
    }

    #[test]
    fn networks_are_told_from_users() {
        let addresses = addresses();
        for (net, is_network) in [
            ("10.60.0.0/16", true),
            ("10.0.0.0/8", true),
            ("192.0.2.0/24", true),
            ("10.100.0.1/32", true),
            ("10.60.0.0/24", false),
            ("10.60.0.1/16", false),
            ("172.20.0.9/32", false),
            ("172.20.0.8/32", false),
            ("2001:db8:60::/48", true),
            ("2001:db8:60:1::/64", false),
            ("2001:db8:99:1::/64", false),
        ] {
            assert_eq!(
                addresses.is_network(net.parse().unwrap()),
                is_network,
                "{net}"
            );
        }
    }

    #[test]
    fn users_of_a_pool_that_was_given_up_are_users() {
        let change =
            |key: &str, before: Value| json!({"key": key, "before": before, "takes": "nothing"});
        let mut addresses = addresses();
        addresses.add_status(&json!({"node_id": "10.100.9.1", "config": {"last": {"changes": [
            change("network_instance[internet].pools", json!(["10.61.0.0/16", "2001:db8:61::/48"])),
            change("network_instance[ims]", json!({"name": "ims", "pools": ["10.62.0.0/16"]})),
            change("n4.allow", json!(["10.101.0.0/16"])),
        ]}}}));
        addresses.sort();
        for (address, whose) in [
            ("10.61.0.5", Whose::User),
            ("10.62.0.5", Whose::User),
            ("2001:db8:61::5", Whose::User),
            ("10.100.9.1", Whose::Network),
            ("10.101.0.1", Whose::Unknown),
        ] {
            assert_eq!(
                addresses.whose(address.parse().unwrap()),
                whose,
                "{address}"
            );
        }
    }
}
