//! Capacities that flows share.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Capacity of an interface, a network instance or a group of users, in one direction: of users' IP packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CapacityReport {
    /// Name of the interface, network instance or group.
    pub name: String,
    /// Bits per second, as configured.
    pub bps: u64,
    /// Bits per second guaranteed to flows (GBR) at present.
    pub guaranteed_bps: u64,
    /// Bits per second that may be guaranteed.
    pub guaranteed_bps_limit: u64,
    /// Bits per second that the flow of the least weight may have at present; none: nobody is held back.
    pub share_bps: Option<u64>,
    /// Octets that passed; of each CPU 16 KiB at most are not yet in it.
    pub bytes: u64,
    /// Packets that were dropped as `capacity`.
    pub drops: u64,
}
