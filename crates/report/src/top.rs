//! The busiest users.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The busiest users, measured between two readings of all counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopReport {
    /// Seconds between the two readings.
    pub interval_s: f64,
    /// `rate`, `delayed` or `dropped`: what the order goes by.
    pub by: String,
    /// Sessions.
    pub total: u64,
    /// Of these, with packets that were forwarded, or lost by QoS enforcement, in the interval.
    pub active: u64,
    /// The first is the busiest.
    pub users: Vec<TopUser>,
}

/// A session, and what it did in the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopUser {
    /// Ours, hexadecimal.
    pub seid: String,
    /// Addresses and prefixes of the UE.
    pub ue: Vec<String>,
    /// Packets from the UE.
    pub uplink: TopRate,
    /// Packets to the UE.
    pub downlink: TopRate,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopRate {
    /// Inner IP bits forwarded, per second.
    pub rate_bps: u64,
    /// Packets that had to wait for their rate.
    pub delayed: u64,
    /// Packets dropped by QoS enforcement.
    pub qos_drops: u64,
}
