//! Measured usage of sessions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Sessions that measure, of one page of sessions: there may be none, though more pages follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UsagePage {
    /// Sessions, those without URRs among them.
    pub total: u64,
    /// Sessions of the page that measure.
    pub sessions: Vec<SessionUsage>,
    /// Hand it back as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The URRs of one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SessionUsage {
    /// Our SEID, hexadecimal.
    pub seid: String,
    /// Addresses and prefixes of the UE.
    pub ue: Vec<String>,
    /// URRs.
    pub urrs: Vec<UrrReport>,
}

/// A URR, and what it has measured since its last report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UrrReport {
    /// URR ID.
    pub id: u32,
    /// `VOLUM`, `DURAT`, `EVENT` (TS 29.244, 8.2.40).
    pub method: Vec<String>,
    /// Reporting Triggers, by their names in 8.2.19.
    pub triggers: Vec<String>,
    /// Measurement Period in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_s: Option<u32>,
    /// How many reports there were.
    pub reports: u32,
    /// Seconds since the last of them.
    pub for_s: u64,
    /// Measured from the UE since the last report.
    pub uplink: VolumeUsed,
    /// Measured to the UE since the last report.
    pub downlink: VolumeUsed,
    /// Seconds measured, where time is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Bytes since the last report at which it reports.
    pub threshold: VolumeReport,
    /// Bytes since the last report at which nothing passes any more.
    pub quota: VolumeReport,
    /// Bytes left of the quotas.
    pub quota_left: VolumeReport,
    /// Seconds of time, when the present measurement began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_quota_s: Option<u64>,
    /// A quota is exhausted.
    pub exhausted: bool,
    /// A report is due and waits for its turn.
    pub pending: bool,
}

/// Volume measured in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct VolumeUsed {
    /// Inner IP bytes forwarded.
    pub bytes: u64,
    /// Packets forwarded.
    pub packets: u64,
}

/// Bytes; absent: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct VolumeReport {
    /// Both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// From the UE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<u64>,
    /// To the UE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downlink: Option<u64>,
}

/// Usage Reports of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UsageTotals {
    /// Sessions whose usage waits to be reported.
    pub sessions_waiting: u64,
    /// Crossings of thresholds and quotas that packets told of.
    pub alarms: u64,
    /// Crossings that had to be looked for.
    pub alarms_late: u64,
    /// Bytes of packets that were under way when their session went.
    pub late_bytes: u64,
    /// Reports in the log of usage.
    pub log_written: u64,
    /// Reports that it could not take.
    pub log_lost: u64,
    /// Reports by trigger.
    pub reports: Vec<TriggerCount>,
}

/// Usage Reports that name a trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TriggerCount {
    /// As TS 29.244, 8.2.41 names it, in lower case.
    pub trigger: String,
    /// Whether the SMF has it.
    pub acknowledged: bool,
    /// Reports.
    pub count: u64,
}
