//! The data path: programs, threads, interfaces, losses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fill::TableFill;

/// The data path and its interfaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DatapathBody {
    /// Program or threads.
    #[serde(flatten)]
    pub datapath: DatapathReport,
    /// Data interfaces, in the order of the configuration.
    pub ports: Vec<PortReport>,
    /// Fill of each table that packets meet.
    pub tables: Vec<TableFill>,
}

/// The data path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DatapathReport {
    /// `xdp`, `kernel` or `dpdk`.
    pub kind: String,
    /// `driver` or `generic`; of `xdp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Threads that packets run in; of `kernel` and `dpdk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// How often others took the place of workers whose process had ended, or hung; of `dpdk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers_replaced: Option<u64>,
    /// Which build of the program is live, narrowest first: `plain` (IPv4 with a PDR each way), `common`, `outer6` (IPv6 on
    /// N3), `relay` (N9) or `general`. Interfaces whose users are spread over CPUs have `spread` where others have `common`.
    pub build: String,
    /// Features of the live programs.
    pub features: Vec<String>,
    /// Another build is to take over when the need for it has been the same for `datapath.settle_s`.
    pub settling: bool,
    /// One for each interface, in the order of the configuration.
    pub programs: Vec<ProgramReport>,
    /// How often programs took over from others since the start.
    pub replacements: u64,
    /// The last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_replacement: Option<ReplacementReport>,
    /// Time that starting it took, loading, verifying and attaching, in milliseconds.
    pub start_ms: f64,
}

/// A program in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ProgramReport {
    /// Name of the interface that it is attached to.
    pub interface: String,
    /// Its instructions.
    pub instructions: u32,
    /// Instructions that the verifier looked at, all paths together.
    pub verified_instructions: u32,
    /// Time to verify and compile it, in milliseconds.
    pub load_ms: f64,
}

/// Programs that took over from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReplacementReport {
    /// When: seconds since 1970.
    pub at: f64,
    /// From the first interface to the last, in microseconds. Each has one program or the other at any time.
    pub took_us: f64,
}

/// Frames of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PortReport {
    /// Name.
    pub interface: String,
    /// `n3`, `n9`, `n6`, `n3+n6` or `n9+n6`.
    pub role: String,
    /// Octets of the longest IP packet, tunnel headers included, as the data path knows it. `None`: there is no such interface.
    pub mtu: Option<u32>,
    /// Why its packets do not reach the data path. `None`: they do.
    pub trouble: Option<String>,
    /// Frames from users.
    pub uplink: DirectionReport,
    /// Frames to users.
    pub downlink: DirectionReport,
    /// Frames left to the kernel: not ours.
    pub passed: u64,
    /// Echo Responses and Error Indications sent in place of the frame.
    pub answered: u64,
    /// Packets that the kernel forwards while their neighbour is resolved.
    pub slow: u64,
    /// Of the forwarded frames, those above their rate, which waited (`qos.mode = "shape"`).
    pub later: u64,
    /// Frames that came in, by the number of the CPU that worked on them; kind dpdk: of the worker, then of the receive core that
    /// lost them.
    pub in_packets_by_cpu: Vec<u64>,
}

/// Frames that came in on one interface, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DirectionReport {
    /// Frames that came in.
    pub in_packets: u64,
    /// Octets of these frames.
    pub in_bytes: u64,
    /// Of those, forwarded.
    pub out_packets: u64,
    /// Of those, forwarded.
    pub out_bytes: u64,
}

/// Packets lost for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DropReport {
    /// Name of the interface that they came in on.
    pub interface: String,
    /// `uplink` or `downlink`.
    pub direction: String,
    /// Short name, as in the metrics.
    pub reason: String,
    /// Packets lost so far.
    pub packets: u64,
    /// The reason for people.
    pub meaning: String,
    /// Remedy.
    pub advice: String,
}

/// A thread that packets run in; on `xdp` a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct WorkerReport {
    /// `worker-0`; `receiver-0` of receive cores, which hand packets to workers; on `xdp`, `cpu-0` of CPUs, and `shaper`,
    /// which keeps packets above rates that shape.
    pub worker: String,
    /// Frames that came in; of `shaper`, those that have come to wait.
    pub in_packets: u64,
    /// Seconds that it had packets, since it began; of a CPU, that it was not idle, for whomever.
    pub busy_s: f64,
    /// Packets above rates that shape; absent where all are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shaper: Option<ShaperReport>,
}

/// Packets above rates that shape, which wait in a thread of the data path until they leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ShaperReport {
    /// Packets that wait now.
    pub waiting: u64,
    /// Packets that have come to wait, ever.
    pub delayed: u64,
    /// Seconds that all of these have waited so far, together: over `delayed`, the mean delay.
    pub waited_s: f64,
}
