//! `[[forwarding_policy]]`: ways that FARs may name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nexthop::TABLE_MAIN;
use serde::{Deserialize, Serialize};
use session::config as core;

use super::{Config, Problem, System};

/// Of all network instances and policies together: `TP_HEAD_NI_MASK` and one more.
const ROUTED_MAX: usize = 256;
/// The kernel's table of local addresses.
const TABLE_LOCAL: u32 = 255;

/// A forwarding policy (TS 29.244, 8.2.23).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardingPolicy {
    pub(crate) identifier: String,
    #[serde(default)]
    next_hops: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    table: Option<u32>,
    #[serde(default)]
    fallback: Fallback,
    #[serde(default)]
    towards_access: TowardsAccess,
}

/// Way of packets while the policy's own leads nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Fallback {
    #[default]
    Routes,
    Drop,
}

/// Meaning in a FAR towards access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum TowardsAccess {
    #[default]
    Tunnel,
    Refuse,
}

impl ForwardingPolicy {
    /// `towards_access` of a policy that FARs of both directions may name.
    pub(super) const LENIENT: &str = "tunnel";

    /// For the core: its name, and where it may stand.
    pub(crate) fn to_core(&self) -> core::ForwardingPolicy {
        core::ForwardingPolicy {
            identifier: self.identifier.clone(),
            towards_access: self.towards_access == TowardsAccess::Tunnel,
        }
    }

    /// For the mirror of the kernel's routes: where it leads. `slot_of`: place of an interface in the file.
    pub(crate) fn to_next_hops(&self, slot_of: impl Fn(&str) -> Option<u32>) -> nexthop::Policy {
        let slot = self.interface.as_deref().and_then(slot_of);
        nexthop::Policy {
            way: match (self.table, slot) {
                (Some(table), _) => nexthop::Way::Table(table),
                (None, Some(slot)) if self.next_hops.is_empty() => nexthop::Way::Interface { slot },
                (None, slot) => nexthop::Way::NextHops {
                    hops: self.next_hops.clone(),
                    slot,
                },
            },
            fallback: match self.fallback {
                Fallback::Routes => nexthop::Fallback::Routes,
                Fallback::Drop => nexthop::Fallback::Drop,
            },
        }
    }

    /// Whether its packets leave by an interface.
    pub(super) fn is_by(&self, interface: &str) -> bool {
        self.interface.as_deref() == Some(interface)
    }

    /// Its way, in words for operators.
    pub(crate) fn way(&self) -> String {
        let hops: Vec<String> = self.next_hops.iter().map(ToString::to_string).collect();
        match (&self.table, &self.interface, hops.as_slice()) {
            (Some(table), ..) => format!("table {table}"),
            (None, Some(interface), []) => format!("routes of {interface}"),
            (None, Some(interface), hops) => format!("{} on {interface}", hops.join(", ")),
            (None, None, hops) => hops.join(", "),
        }
    }

    /// As in the file.
    pub(crate) fn fallback(&self) -> &'static str {
        match self.fallback {
            Fallback::Routes => "routes",
            Fallback::Drop => "drop",
        }
    }

    /// As in the file.
    pub(crate) fn towards_access(&self) -> &'static str {
        match self.towards_access {
            TowardsAccess::Tunnel => "tunnel",
            TowardsAccess::Refuse => "refuse",
        }
    }

    /// A line for whoever checks the file.
    pub(super) fn understood(&self) -> String {
        let otherwise = match self.fallback {
            Fallback::Routes => "as without it",
            Fallback::Drop => "nowhere (forwarding_policy)",
        };
        let towards_access = match self.towards_access {
            TowardsAccess::Tunnel => "keep to their tunnels",
            TowardsAccess::Refuse => "must not name it",
        };
        format!(
            "forwarding policy {}: to {}, while that leads nowhere {otherwise}; FARs towards access {towards_access}",
            self.identifier,
            self.way()
        )
    }
}

/// Mistakes in them.
pub(super) fn check(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    let policies = &config.forwarding_policy;
    let routed = config.network_instance.len() * (policies.len() + 1);
    if !policies.is_empty() && routed > ROUTED_MAX {
        let reason = format!(
            "{} of them for each of {} network instances: with these {routed}, at most {ROUTED_MAX}",
            policies.len(),
            config.network_instance.len()
        );
        problems.push(Problem::missing("forwarding_policy", reason));
    }
    let mut identifiers = BTreeSet::new();
    for (i, policy) in policies.iter().enumerate() {
        let key = |key: &str| format!("forwarding_policy[{i}].{key}");
        let identifier = &policy.identifier;
        if identifier.is_empty() || identifier.len() > 255 {
            let reason = "must have 1 to 255 octets";
            problems.push(Problem::new(key("identifier"), identifier, reason));
        }
        if !identifiers.insert(identifier) {
            problems.push(Problem::new(key("identifier"), identifier, "named twice"));
        }
        way(config, policy, &key, problems);
        next_hops(system, policy, &key, problems);
    }
}

fn way(
    config: &Config,
    policy: &ForwardingPolicy,
    key: &dyn Fn(&str) -> String,
    problems: &mut Vec<Problem>,
) {
    let named = !policy.next_hops.is_empty() || policy.interface.is_some();
    match policy.table {
        Some(table) if named => {
            let reason = "stands alone: without next_hops and interface";
            problems.push(Problem::new(key("table"), table, reason));
        }
        Some(table @ (0 | TABLE_MAIN | TABLE_LOCAL)) => {
            let reason = "must be a table of its own, none of 0, 254 (main) and 255 (local)";
            problems.push(Problem::new(key("table"), table, reason));
        }
        None if !named => {
            let reason = "one of next_hops, interface and table is required";
            problems.push(Problem::missing(key("next_hops"), reason));
        }
        _ => {}
    }
    if let Some(name) = &policy.interface {
        let mut known = config.interface.iter();
        if !known.any(|interface| interface.name == *name && interface.role.has_n6()) {
            let reason = "no [[interface]] with role n6 has this name";
            problems.push(Problem::new(key("interface"), name, reason));
        }
    }
}

fn next_hops(
    system: &System,
    policy: &ForwardingPolicy,
    key: &dyn Fn(&str) -> String,
    problems: &mut Vec<Problem>,
) {
    for (j, hop) in policy.next_hops.iter().enumerate() {
        let reason = match hop {
            _ if policy.next_hops[..j]
                .iter()
                .any(|other| other.is_ipv4() == hop.is_ipv4()) =>
            {
                "there is one of its family already"
            }
            _ if system.has_address(*hop) => "an address of this machine",
            IpAddr::V4(v4) if matches!(v4.octets()[0], 0 | 127 | 224..) => "no neighbour's address",
            IpAddr::V6(v6) if v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() => {
                "no neighbour's address"
            }
            IpAddr::V6(v6) if v6.is_unicast_link_local() && policy.interface.is_none() => {
                "a link-local address, which needs interface beside it"
            }
            _ => continue,
        };
        problems.push(Problem::new(key(&format!("next_hops[{j}]")), hop, reason));
    }
}
