//! The state of the whole at one time, for REST and metrics: an owned copy, made by the control thread.

use std::collections::BTreeMap;

use report::{
    BufferTotals, CapacityReport, DatapathReport, DropReport, Fill, PolicyReport, PortReport,
    StateReport, TableFill, UsageTotals, WorkerReport,
};

/// The state of the whole, cheap to make whatever the number of sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Our Recovery Time Stamp: seconds since 1900 (TS 29.244, 8.2.65).
    pub(crate) recovery_time_stamp: u32,
    /// GTP-U peers that are asked whether they are there, and how many that were no longer answer.
    pub(crate) gtpu_paths: u64,
    pub(crate) gtpu_paths_failed: u64,
    /// Load that SMFs hear of (TS 29.244, 6.2.3): the busier of control thread and sessions.
    pub(crate) load_percent: u8,
    /// By how much SMFs are asked to do less (6.2.4); 0: no overload.
    pub(crate) overload_reduction_percent: u8,
    /// Associations are being released.
    pub(crate) stopping: bool,
    pub(crate) sessions: Fill,
    pub(crate) peers: Fill,
    /// Fill of each table that packets meet.
    pub(crate) tables: Vec<TableFill>,
    pub(crate) n4: N4Report,
    pub(crate) rest: RestTotals,
    pub(crate) usage: UsageTotals,
    pub(crate) buffers: BufferTotals,
    pub(crate) datapath: DatapathReport,
    /// Of `kernel` and `dpdk`.
    pub(crate) workers: Vec<WorkerReport>,
    pub(crate) ports: Vec<PortReport>,
    pub(crate) drops: Vec<DropReport>,
    pub(crate) capacities: Vec<CapacityReport>,
    pub(crate) policies: Vec<PolicyReport>,
    /// `None`: sessions end with the process.
    pub(crate) state: Option<StateReport>,
}

/// Messages and events of N4.
#[derive(Clone, Debug, Default)]
pub(crate) struct N4Report {
    pub(crate) messages: Vec<MessageCount>,
    /// Other counters of N4 by name: malformed, duplicates, repeats and so on.
    pub(crate) counters: BTreeMap<String, u64>,
    /// `n4.fast_path`; `None`: it is off.
    pub(crate) fast_path: Option<FastPathTotals>,
}

/// Requests that the data path has served, or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FastPathTotals {
    /// By outcome: `served`, or why not.
    pub(crate) requests: Vec<(&'static str, u64)>,
    pub(crate) templates: u64,
}

/// PFCP messages of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageCount {
    /// As TS 29.244, 7.3 names it, in lower case with underscores.
    pub(crate) message: String,
    /// `received` or `sent`.
    pub(crate) direction: String,
    /// Of a response; absent in requests.
    pub(crate) cause: Option<String>,
    pub(crate) count: u64,
}

/// CPU time of the control thread that REST took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RestTotals {
    /// Times that it had its turn.
    pub(crate) turns: u64,
    pub(crate) seconds: f64,
    /// The longest turn.
    pub(crate) longest_s: f64,
}
