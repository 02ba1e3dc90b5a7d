//! Names that REST is asked by.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::values::is_fqdn;
use super::{Config, Problem};

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (i, host) in config.api.hosts.iter().enumerate() {
        let why = if host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost") {
            "addresses and localhost need not be listed"
        } else if !is_fqdn(host) {
            "not a host name, such as upf1.example.org, without port"
        } else if !seen.insert(host.to_ascii_lowercase()) {
            "named twice"
        } else {
            continue;
        };
        problems.push(Problem::new(format!("api.hosts[{i}]"), host, why));
    }
}
