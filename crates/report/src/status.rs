//! The UPF as a whole.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::datapath::PortReport;
use crate::fill::{Fill, TableFill};
use crate::reload::ConfigState;
use crate::usage::UsageTotals;

/// The UPF as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Status {
    /// Release of turnpiked.
    pub version: String,
    /// Commit that was built; absent where nobody said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Data paths that were built: names that `datapath.kind` may have.
    pub datapaths: Vec<String>,
    /// Our Node ID.
    pub node_id: String,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Seconds since 1900 (TS 29.244, 8.2.65).
    pub recovery_time_stamp: u32,
    /// GTP-U peers that are asked whether they are there.
    pub gtpu_paths: u64,
    /// Of these, peers that no longer answer.
    pub gtpu_paths_failed: u64,
    /// Load that SMFs hear of.
    pub load_percent: u8,
    /// By how much SMFs are asked to do less; 0: no overload.
    pub overload_reduction_percent: u8,
    /// Sessions, and how many there may be.
    pub sessions: Fill,
    /// SMFs, and how many there may be.
    pub peers: Fill,
    /// Fill of each table that packets meet.
    pub tables: Vec<TableFill>,
    /// Data interfaces, in the order of the configuration.
    pub ports: Vec<PortReport>,
    /// Packets lost, for whatever reason.
    pub drops: u64,
    /// Usage Reports of all sessions.
    pub usage: UsageTotals,
    /// Lines of the log.
    pub log: LogTotals,
    /// Octets of memory of the process, without the tables in the kernel.
    pub memory_bytes: u64,
    /// Huge pages in the memory of the process.
    pub huge_pages: HugePages,
    /// The configuration; absent: of an earlier release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigState>,
    /// Sessions that outlive the process; absent: they end with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StateReport>,
    /// Registration with an NRF; absent: none is configured, or of an earlier release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nrf: Option<NrfReport>,
    /// Event exposure; absent: none is configured, or of an earlier release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nupf: Option<NupfReport>,
}

/// Event exposure (TS 29.564).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NupfReport {
    /// Root of the API, as consumers are told.
    pub api_root: String,
    /// Why it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Subscriptions that there are.
    pub subscriptions: u64,
    /// UEs that they have in mind, each as often as subscriptions do.
    pub ues: u64,
    /// UEs that there is no room for, likewise (`nupf.max_ues`).
    pub left_out: u64,
    /// Notifications that consumers have taken.
    pub delivered: u64,
    /// Attempts at reports that they have not taken.
    pub failed: u64,
    /// Subscriptions that were dropped, because their consumers took no reports or did not know them.
    pub dropped: u64,
    /// The last of the failed attempts: where, and why. Consumers write it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Registration with an NRF (TS 29.510).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NrfReport {
    /// `registering`, `registered`.
    pub state: String,
    /// Our NF Instance ID.
    pub instance_id: String,
    /// NRF that knows us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Seconds between heartbeats, as it wants them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_s: Option<u64>,
    /// Requests that were granted, of all NRFs.
    pub granted: u64,
    /// Requests that were refused, or got no answer.
    pub refused: u64,
    /// The last of these: which NRF, and why. NRFs write it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl NrfReport {
    /// No NRF knows us.
    pub const REGISTERING: &'static str = "registering";
    /// One does.
    pub const REGISTERED: &'static str = "registered";
}

/// Sessions that outlive the process, and those that it found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StateReport {
    /// Packets go on when the process has ended.
    pub packets_go_on: bool,
    /// Sessions of the process before this one that are this one's.
    pub taken_over: u64,
    /// Sessions of the process before this one that could not be taken in: the log says why.
    pub lost: u64,
    /// Milliseconds that this took.
    pub took_ms: u64,
    /// The copy that outlives the host; absent without `state.disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
}

/// A copy of all sessions on a disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DiskReport {
    /// Its folder.
    pub path: String,
    /// Whether there is one.
    pub state: DiskState,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Bytes of its files.
    pub bytes: u64,
    /// Times that the disk has failed since the start.
    pub failures: u64,
    /// Seconds that the oldest change has waited that is not in it.
    pub behind_s: f64,
    /// Seconds from a change to its commit, at most, since the start.
    pub longest_commit_s: f64,
}

/// Whether sessions outlive the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    /// They are being copied for the first time since the start.
    #[default]
    Beginning,
    /// Their copy is some milliseconds old.
    Current,
    /// There is no copy.
    Failed,
}

/// Huge pages in the memory of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct HugePages {
    /// The heap asks the kernel for them.
    pub asked_for: bool,
    /// Octets that lie in them; absent where the kernel does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Octets of files in `state.dir` that lie in them, when that is a tmpfs; absent likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

/// Lines of the log, on standard error or in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LogTotals {
    /// Lines that it took.
    pub written: u64,
    /// Lines that could not be written.
    pub lost: u64,
    /// Lines not made, because their sender had caused too many.
    pub suppressed: u64,
}
