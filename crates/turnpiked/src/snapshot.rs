//! The state of the whole at one time, for REST and metrics: an owned copy, made by the control thread.

use report::{
    BufferTotals, CapacityReport, DatapathReport, DropReport, Fill, N4Body, PolicyReport,
    PortReport, StateReport, TableFill, UsageTotals, WorkerReport,
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
    pub(crate) n4: N4Body,
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

/// CPU time of the control thread that REST took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RestTotals {
    /// Times that it had its turn.
    pub(crate) turns: u64,
    pub(crate) seconds: f64,
    /// The longest turn.
    pub(crate) longest_s: f64,
}
