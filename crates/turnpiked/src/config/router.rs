//! The router between UEs and the data network, as both see it: its addresses and advertisements.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Config, Problem};

/// Of one network instance.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Router {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) advertise: bool,
    pub(crate) lifetime_s: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
    pub(crate) dns: Vec<Ipv6Addr>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            advertise: true,
            lifetime_s: u16::MAX,
            mtu: None,
            dns: Vec::new(),
        }
    }
}

/// RFC 8106, 5.1: the option counts its length in one octet.
const DNS_MAX: usize = 127;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    for (i, ni) in config.network_instance.iter().enumerate() {
        let key = format!("network_instance[{i}].router");
        addresses(&ni.router, &key, problems);
        advertisement(&ni.router, &key, problems);
    }
}

fn advertisement(router: &Router, key: &str, problems: &mut Vec<Problem>) {
    if let Some(mtu) = router.mtu.filter(|mtu| !(1280..=65_535).contains(mtu)) {
        let reason = "must be 1280 to 65535";
        problems.push(Problem::new(format!("{key}.mtu"), mtu, reason));
    }
    if router.dns.len() > DNS_MAX {
        let reason = format!("{} addresses given, at most {DNS_MAX}", router.dns.len());
        problems.push(Problem::missing(format!("{key}.dns"), reason));
    }
}

fn addresses(router: &Router, key: &str, problems: &mut Vec<Problem>) {
    for (j, address) in router.addresses.iter().enumerate() {
        let same = |other: &IpAddr| other.is_ipv4() == address.is_ipv4();
        let reason = if router.addresses.iter().take(j).any(same) {
            "one of each family at most"
        } else if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
            "must be an address that others can see"
        } else {
            continue;
        };
        problems.push(Problem::new(
            format!("{key}.addresses[{j}]"),
            address,
            reason,
        ));
    }
}
