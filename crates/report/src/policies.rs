//! Forwarding policies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A forwarding policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PolicyReport {
    /// As SMFs name it.
    pub identifier: String,
    /// Next hop of its packets.
    pub way: String,
    /// Way while that one leads nowhere: `routes` or `drop`.
    pub fallback: String,
    /// Meaning in FARs towards access: `tunnel` or `refuse`.
    pub towards_access: String,
    /// How it stands for packets of each.
    pub network_instances: Vec<PolicyUse>,
}

/// How a forwarding policy stands for packets of a network instance: `in use`; `in part`: some of its routes lead to nobody;
/// `unreachable`: all; `no route`; `too many routes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PolicyUse {
    /// Name.
    pub network_instance: String,
    /// For IPv4 packets.
    pub ipv4: String,
    /// For IPv6 packets.
    pub ipv6: String,
}

impl PolicyUse {
    /// All its routes lead somewhere.
    pub const IN_USE: &str = "in use";
}
