//! Sessions and their rules.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::usage::UrrReport;

/// One page of sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SessionPage {
    /// Sessions of all pages.
    pub total: u64,
    /// In a stable order.
    pub sessions: Vec<SessionSummary>,
    /// Hand it back as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SessionSummary {
    /// Our SEID, hexadecimal.
    pub seid: String,
    /// The SMF's SEID, hexadecimal.
    pub cp_seid: String,
    /// Node ID of the SMF.
    pub peer: String,
    /// Addresses and prefixes of the UE.
    pub ue: Vec<String>,
    /// Number of PDRs.
    pub pdrs: usize,
    /// Packets from the UE.
    pub uplink: TrafficReport,
    /// Packets to the UE.
    pub downlink: TrafficReport,
}

/// One session with its rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SessionDetail {
    /// As in a list.
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// PDRs with their conditions and counters.
    pub pdrs_detail: Vec<PdrReport>,
    /// FARs.
    pub fars: Vec<FarReport>,
    /// QERs.
    pub qers: Vec<QerReport>,
    /// URRs.
    pub urrs: Vec<UrrReport>,
    /// BAR IDs.
    pub bars: Vec<u32>,
    /// User Plane Inactivity Timer: the SMF is told when no packet came for so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_plane_inactivity_s: Option<u32>,
}

/// Packets of a session or rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TrafficReport {
    /// Forwarded.
    pub packets: u64,
    /// Inner IP bytes forwarded.
    pub bytes: u64,
    /// Matched and dropped.
    pub drops: u64,
    /// Of these, by QoS enforcement: a gate, a bit rate, a capacity, a packet rate.
    pub qos_drops: u64,
    /// Of those forwarded, above a rate that shapes: they had to wait first.
    pub delayed: u64,
}

impl TrafficReport {
    /// Counts of both together.
    pub const fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.drops = self.drops.saturating_add(other.drops);
        self.qos_drops = self.qos_drops.saturating_add(other.qos_drops);
        self.delayed = self.delayed.saturating_add(other.delayed);
    }
}

/// A PDR with its counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PdrReport {
    /// PDR ID.
    pub id: u32,
    /// Precedence: the lowest is tried first (TS 29.244, 8.2.11).
    pub precedence: u32,
    /// `uplink` or `downlink`.
    pub direction: String,
    /// Source Interface (TS 29.244, 8.2.2).
    pub source_interface: String,
    /// Name; absent: of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_instance: Option<String>,
    /// `TEID@address`, hexadecimal TEID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub f_teid: Option<String>,
    /// UE addresses, prefixes and framed routes that its packets have.
    pub ue: Vec<String>,
    /// QFIs of which uplink packets carry one; none: not looked at.
    pub qfis: Vec<u8>,
    /// IPFilterRules, and what else filters ask for.
    pub sdf_filters: Vec<String>,
    /// FAR ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<u32>,
    /// QER IDs.
    pub qers: Vec<u32>,
    /// URR IDs.
    pub urrs: Vec<u32>,
    /// Predefined rules that it activates, in the order in which they are tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predefined_rules: Vec<PredefinedReport>,
    /// Its Activation Time is to come, or its Deactivation Time has passed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dormant: bool,
    /// Packets that it took.
    pub traffic: TrafficReport,
}

/// A predefined rule that a PDR activates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PredefinedReport {
    /// As configured.
    pub name: String,
    /// IPFilterRules; none: all packets of the PDR.
    pub flows: Vec<String>,
    /// DROP or FORW; absent: what the FAR of the PDR says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Network instance of its FAR, by name; absent: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_instance: Option<String>,
    /// Beside the QERs of the PDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qer: Option<QerReport>,
    /// A part of that of the PDR.
    pub traffic: TrafficReport,
}

/// A FAR.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FarReport {
    /// FAR ID.
    pub id: u32,
    /// FORW, DROP, BUFF, NOCP, joined by `+`.
    pub action: String,
    /// Destination Interface (TS 29.244, 8.2.24).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Name; absent: the SMF named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_instance: Option<String>,
    /// Identifier of the way to the data network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding_policy: Option<String>,
    /// `TEID@address` of the outer header, or `udp:port@address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<String>,
}

/// A QER.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct QerReport {
    /// QER ID.
    pub id: u32,
    /// `open` or `closed`.
    pub gate_uplink: String,
    /// `open` or `closed`.
    pub gate_downlink: String,
    /// Bits per second; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbr_uplink_bps: Option<u64>,
    /// Bits per second; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbr_downlink_bps: Option<u64>,
    /// Bits per second; admission and scheduling are not done yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbr_uplink_bps: Option<u64>,
    /// As `gbr_uplink_bps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gbr_downlink_bps: Option<u64>,
    /// Averaging Window of these rates in milliseconds; absent: `qos.burst_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub averaging_ms: Option<u32>,
    /// Packet Rate, as `10 in 360 s`; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_uplink: Option<String>,
    /// As `packets_uplink`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_downlink: Option<String>,
    /// QoS Flow Identifier (TS 29.244, 8.2.89).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qfi: Option<u8>,
    /// Downlink packets ask for Reflective QoS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rqi: bool,
    /// Paging Policy Indicator of downlink packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppi: Option<u8>,
}
