//! What REST, metrics and the command line show: owned copies, made by the control thread.

use std::collections::BTreeMap;

use ipnet::IpNet;
use report::{
    BufferTotals, CapacityReport, DatapathReport, DropReport, Fill, PolicyReport, PortReport,
    TableFill, UsageTotals, WorkerReport,
};

/// The state of the whole, cheap to make whatever the number of sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
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
}

/// What N4 carried.
#[derive(Clone, Debug, Default)]
pub(crate) struct N4Report {
    pub(crate) messages: Vec<MessageCount>,
    /// Other counters of N4 by name: malformed, duplicates, repeats and so on.
    pub(crate) counters: BTreeMap<String, u64>,
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

/// NTP time of 1970.
const UNIX_EPOCH_NTP_S: u64 = 2_208_988_800;

/// Seconds since 1970 of NTP seconds of which only 32 bits are known, within 68 years of now.
pub(crate) fn unix_near(ntp_s: u32, now_ntp_s: u64) -> u64 {
    let ahead = ntp_s.wrapping_sub(now_ntp_s as u32).cast_signed();
    let whole = now_ntp_s.saturating_add_signed(ahead.into());
    whole.saturating_sub(UNIX_EPOCH_NTP_S)
}

/// An address of a UE: IPv4 alone, IPv6 as a prefix.
pub(crate) fn address_text(net: &IpNet) -> String {
    match net {
        IpNet::V4(net) => net.addr().to_string(),
        IpNet::V6(net) => net.to_string(),
    }
}

/// A SEID as it is written: 16 hexadecimal digits.
pub(crate) fn seid_text(seid: u64) -> String {
    format!("{seid:016x}")
}

/// The reverse, with or without `0x` and leading zeros.
pub(crate) fn parse_seid(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| !digits.starts_with('+'))
}
