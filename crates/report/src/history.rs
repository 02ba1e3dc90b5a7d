//! The last minutes, in samples.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::datapath::DirectionReport;

/// Samples of the last 15 minutes, and what changed in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HistoryReport {
    /// Start of turnpiked, seconds since 1970: with another one, numbers of samples have begun anew.
    pub started_at: f64,
    /// Time of this answer, seconds since 1970.
    pub now: f64,
    /// Seconds between two samples.
    pub interval_s: u64,
    /// Samples that are kept, at most.
    pub capacity: u64,
    /// Names of data interfaces: `ports` of a sample are in this order.
    pub interfaces: Vec<String>,
    /// Oldest first.
    pub samples: Vec<HistorySample>,
    /// Oldest first, all that are kept, whatever the query asks for.
    pub events: Vec<HistoryEvent>,
}

/// Counts of one interval, and the state at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HistorySample {
    /// Each sample has the next one: hand the last back as `after`.
    pub number: u64,
    /// End of the interval, seconds since 1970.
    pub at: f64,
    /// Length of the interval.
    pub seconds: f64,
    /// Sessions.
    pub sessions: u64,
    /// SMFs.
    pub smfs: u64,
    /// GTP-U peers that are asked whether they are there.
    pub gtpu_paths: u64,
    /// Of these, peers that no longer answer.
    pub gtpu_paths_failed: u64,
    /// Load that SMFs hear of.
    pub load_percent: u8,
    /// CPU time of the process over the interval, in percent of one CPU.
    pub cpu_percent: f64,
    /// One for each of `interfaces`.
    pub ports: Vec<HistoryPort>,
    /// Lost packets of the interval, by reason; at most 64 rows.
    pub drops: Vec<HistoryDrop>,
    /// Lost packets that found no row.
    pub drops_left_out: u64,
}

/// Frames of one interface in one interval. Absent: its counters began anew, or it was not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HistoryPort {
    /// Its packets reach the data path.
    pub attached: bool,
    /// Frames from users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<DirectionReport>,
    /// Frames to users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downlink: Option<DirectionReport>,
    /// Lost packets that came in there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
}

/// Packets lost for one reason in one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HistoryDrop {
    /// Place of the interface that they came in on, in `interfaces`.
    pub port: u64,
    /// `uplink` or `downlink`.
    pub direction: String,
    /// Short name, as in the metrics.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// Change between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HistoryEvent {
    /// Sample that it is first seen in.
    pub sample: u64,
    /// End of that sample, seconds since 1970.
    pub at: f64,
    /// `started`, `sessions` (a fifth more or less), `smfs`, `smf_silent`, `smf_restarted`, `path_failed`, `path_recovered`,
    /// `gnb_restarted`, `interface_down`, `interface_up`, `drops` (none in the minute before), `program`, `overload`.
    pub kind: String,
    /// Name of the interface, or drop reason; absent with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Value before.
    pub from: u64,
    /// Value after; of counted events, how many there were.
    pub to: u64,
}
