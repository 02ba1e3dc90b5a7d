//! What UEs and the data network see as the router between them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Config, Problem};

/// Of one network instance.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Router {
    pub(crate) addresses: Vec<IpAddr>,
}

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    for (i, ni) in config.network_instance.iter().enumerate() {
        addresses(
            &ni.router,
            &format!("network_instance[{i}].router"),
            problems,
        );
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
