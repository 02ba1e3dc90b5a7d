//! What REST, metrics and the command line show: owned copies, made by the control thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ipnet::IpNet;
use serde::Serialize;
use utoipa::ToSchema;

use crate::logging;

/// The state of the whole, cheap to make whatever the number of sessions.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
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

/// A forwarding policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PolicyReport {
    /// As SMFs name it.
    pub(crate) identifier: String,
    /// Where its packets go.
    pub(crate) way: String,
    /// Where they go while that leads nowhere: `routes` or `drop`.
    pub(crate) fallback: String,
    /// Meaning in FARs towards access: `tunnel` or `refuse`.
    pub(crate) towards_access: String,
    /// How it stands for packets of each.
    pub(crate) network_instances: Vec<PolicyUse>,
}

/// How a forwarding policy stands for packets of a network instance: `in use`; `in part`: some of its routes lead to nobody;
/// `unreachable`: all; `no route`; `too many routes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PolicyUse {
    pub(crate) network_instance: String,
    pub(crate) ipv4: String,
    pub(crate) ipv6: String,
}

impl PolicyUse {
    pub(crate) const IN_USE: &str = "in use";
}

/// What an interface, a network instance or a group of users has, in one direction: of users' IP packets.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct CapacityReport {
    /// Whose it is.
    pub(crate) name: String,
    /// As configured.
    pub(crate) bps: u64,
    /// Guaranteed to flows (GBR) at present.
    pub(crate) guaranteed_bps: u64,
    /// That may be guaranteed.
    pub(crate) guaranteed_bps_limit: u64,
    /// What the flow of the least weight may have at present; none: nobody is held back.
    pub(crate) share_bps: Option<u64>,
    /// Octets that passed; of each CPU 16 KiB at most are not yet in it.
    pub(crate) bytes: u64,
    /// Packets that were dropped as `capacity`.
    pub(crate) drops: u64,
}

impl From<tables::CapacityReport> for CapacityReport {
    fn from(of: tables::CapacityReport) -> Self {
        Self {
            name: of.name,
            bps: of.bps,
            guaranteed_bps: of.guaranteed_bps,
            guaranteed_bps_limit: of.guaranteed_at_most,
            share_bps: of.share_bps,
            bytes: of.bytes,
            drops: of.drops,
        }
    }
}

/// Packets that wait for idle UEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct BufferTotals {
    /// Sessions for which some do.
    pub(crate) sessions: Fill,
    /// Packets.
    pub(crate) packets: Fill,
    /// Memory.
    pub(crate) bytes: Fill,
    /// Packets that have come to wait, ever.
    pub(crate) taken: u64,
    /// Of these, sent.
    pub(crate) released: u64,
    /// Of these, lost: drop reasons say why.
    pub(crate) lost: u64,
}

/// A session for which packets wait.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct BufferReport {
    /// Ours, hexadecimal.
    pub(crate) seid: String,
    /// PDRs that took them.
    pub(crate) pdrs: Vec<u16>,
    pub(crate) packets: u64,
    /// Octets of their frames.
    pub(crate) bytes: u64,
    /// Since when the first of them has waited.
    pub(crate) age_ms: u64,
}

impl From<&slowpath::HeldSession> for BufferReport {
    fn from(held: &slowpath::HeldSession) -> Self {
        Self {
            seid: format!("{:016x}", held.seid),
            pdrs: held.pdrs.clone(),
            packets: held.packets,
            bytes: held.bytes,
            age_ms: u64::try_from(held.age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// How much of a bounded resource is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Fill {
    pub(crate) used: u64,
    pub(crate) capacity: u64,
}

/// One table.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TableFill {
    pub(crate) table: String,
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    /// Changes of sessions that it had no room for, or only what is kept for other SMFs.
    pub(crate) refused: u64,
}

/// What N4 carried.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct N4Report {
    pub(crate) messages: Vec<MessageCount>,
    /// Other counters of N4 by name: malformed, duplicates, repeats and so on.
    pub(crate) counters: BTreeMap<String, u64>,
}

/// PFCP messages of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct MessageCount {
    /// As TS 29.244, 7.3 names it, in lower case with underscores.
    pub(crate) message: String,
    /// `received` or `sent`.
    pub(crate) direction: String,
    /// Of a response; absent in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    pub(crate) count: u64,
}

/// What carries packets.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct DatapathReport {
    /// `xdp`, `kernel` or `dpdk`.
    pub(crate) kind: String,
    /// `driver` or `generic`; of `xdp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    /// Threads that packets run in; of `kernel` and `dpdk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers: Option<u32>,
    /// Which build of the program is live, narrowest first: `plain` (IPv4 with a PDR each way), `common`, `outer6` (IPv6 on
    /// N3), `relay` (N9) or `general`. Interfaces whose users are spread over CPUs have `spread` where others have `common`.
    pub(crate) build: String,
    /// What the live programs have.
    pub(crate) features: Vec<String>,
    /// Another build is to take over when the need for it has been the same for `datapath.settle_s`.
    pub(crate) settling: bool,
    /// One for each interface, in the order of the configuration.
    pub(crate) programs: Vec<ProgramReport>,
    /// How often programs took over from others since the start.
    pub(crate) replacements: u64,
    /// The last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_replacement: Option<ReplacementReport>,
    /// Time that starting it took, loading, verifying and attaching, in milliseconds.
    pub(crate) start_ms: f64,
}

/// A thread that packets run in; on `xdp` a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct WorkerReport {
    /// `worker-0`; `receiver-0` of receive cores, which hand packets to workers; on `xdp`, `cpu-0` of CPUs, and `shaper`,
    /// which keeps packets above rates that shape.
    pub(crate) worker: String,
    /// Frames that came in; of `shaper`, those that have come to wait.
    pub(crate) in_packets: u64,
    /// Seconds that it had packets, since it began; of a CPU, that it was not idle, for whomever.
    pub(crate) busy_s: f64,
    /// Packets above rates that shape; absent where all are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shaper: Option<ShaperReport>,
}

/// Packets above rates that shape, which wait in a thread of the data path until they leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct ShaperReport {
    /// Packets that wait now.
    pub(crate) waiting: u64,
    /// Packets that have come to wait, ever.
    pub(crate) delayed: u64,
    /// Seconds that all of these have waited so far, together: over `delayed`, the mean delay.
    pub(crate) waited_s: f64,
}

/// CPUs of the machine, and which threads run there.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CoresReport {
    /// Of the data path: `xdp`, `kernel` or `dpdk`.
    pub(crate) kind: String,
    /// `run-to-completion` or `pipeline`; of `dpdk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// CPUs that are online.
    pub(crate) cpus: Vec<CpuReport>,
    /// Threads that run wherever the kernel likes, of the CPUs that are allowed.
    pub(crate) anywhere: Vec<String>,
    /// What makes the plan slower than it need be, in words.
    pub(crate) doubts: Vec<String>,
}

/// A CPU. What the kernel does not tell is absent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CpuReport {
    pub(crate) cpu: u32,
    /// NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<u32>,
    /// Physical core, by its number within the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) core: Option<u32>,
    /// Other CPUs of the same physical core.
    pub(crate) siblings: Vec<u32>,
    /// turnpiked may run there.
    pub(crate) allowed: bool,
    /// Threads that have this CPU: `worker-0`, `receiver-0`, `control`, which is all others; with `spread_cpus`, users of an
    /// interface.
    pub(crate) threads: Vec<String>,
}

/// A program in the kernel.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct ProgramReport {
    pub(crate) interface: String,
    /// Its instructions.
    pub(crate) instructions: u32,
    /// Instructions that the verifier looked at, all paths together.
    pub(crate) verified_instructions: u32,
    /// Time to verify and compile it, in milliseconds.
    pub(crate) load_ms: f64,
}

/// Programs that took over from others.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct ReplacementReport {
    /// When: seconds since 1970.
    pub(crate) at: f64,
    /// From the first interface to the last, in microseconds. Each has one program or the other at any time.
    pub(crate) took_us: f64,
}

/// Frames of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PortReport {
    pub(crate) interface: String,
    /// `n3`, `n9`, `n6`, `n3+n6` or `n9+n6`.
    pub(crate) role: String,
    /// Octets of the longest IP packet, tunnel headers included, as the data path knows it. `None`: there is no such interface.
    pub(crate) mtu: Option<u32>,
    /// Why its packets do not reach the data path. `None`: they do.
    pub(crate) trouble: Option<String>,
    pub(crate) uplink: DirectionReport,
    pub(crate) downlink: DirectionReport,
    /// Frames left to the kernel: not ours.
    pub(crate) passed: u64,
    /// Echo Responses and Error Indications sent in place of the frame.
    pub(crate) answered: u64,
    /// Packets that the kernel forwards while their neighbour is resolved.
    pub(crate) slow: u64,
    /// Of the forwarded frames, those above their rate, which waited (`qos.mode = "shape"`).
    pub(crate) later: u64,
    /// Frames that came in, by the number of the CPU that worked on them; kind dpdk: of the worker, then of the receive core that
    /// lost them.
    pub(crate) in_packets_by_cpu: Vec<u64>,
}

/// Frames that came in on one interface, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DirectionReport {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    /// Of those, forwarded.
    pub(crate) out_packets: u64,
    /// Of those, forwarded.
    pub(crate) out_bytes: u64,
}

/// Packets lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DropReport {
    pub(crate) interface: String,
    /// `uplink` or `downlink`.
    pub(crate) direction: String,
    /// Short name, as in the metrics.
    pub(crate) reason: String,
    pub(crate) packets: u64,
    /// What happened.
    pub(crate) meaning: String,
    /// What to do about it.
    pub(crate) advice: String,
}

/// An SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PeerReport {
    pub(crate) node_id: String,
    #[schema(value_type = String)]
    pub(crate) address: SocketAddr,
    /// `up` or `silent`: its sessions still forward.
    pub(crate) state: String,
    /// The peer's Recovery Time Stamp, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_time_stamp: Option<u32>,
    pub(crate) sessions: u64,
}

/// Holdings of an SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct SmfReport {
    /// Absent: emergency sessions, of whatever SMF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_id: Option<String>,
    /// `up`, or `silent`: it does not answer, its sessions still forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Seconds since its last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) silent_s: Option<u64>,
    /// `sessions`; `entries`, `rules` and `meters` of the tables; `pfd_applications`; `guaranteed_bps`, of each capacity.
    pub(crate) parts: Vec<PartReport>,
}

/// Part of something that there is for all SMFs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PartReport {
    pub(crate) of: String,
    /// With `guaranteed_bps`: of which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<String>,
    pub(crate) held: u64,
    /// Guaranteed share, which others cannot take; the SMFs of a set have it together.
    pub(crate) share: u64,
    /// All that there is.
    pub(crate) whole: u64,
}

/// An application with its Packet Flow Descriptions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ApplicationReport {
    pub(crate) application_id: String,
    /// Node IDs of the SMFs whose it is: the one that provisioned it, or those of its set.
    pub(crate) smfs: Vec<String>,
    pub(crate) properties: Vec<PfdReport>,
}

/// One property of a Packet Flow Description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PfdReport {
    /// Number of the PFD within the application; properties of one number belong together.
    pub(crate) pfd: u32,
    /// `flow`, `url`, `domain` or `custom`.
    pub(crate) kind: String,
    pub(crate) text: String,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct SessionSummary {
    /// Our SEID, hexadecimal.
    pub(crate) seid: String,
    /// The SMF's SEID, hexadecimal.
    pub(crate) cp_seid: String,
    /// Node ID of the SMF.
    pub(crate) peer: String,
    /// Addresses and prefixes of the UE.
    pub(crate) ue: Vec<String>,
    pub(crate) pdrs: usize,
    pub(crate) uplink: TrafficReport,
    pub(crate) downlink: TrafficReport,
}

/// Packets of a session or rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TrafficReport {
    /// Forwarded.
    pub(crate) packets: u64,
    /// Inner IP bytes forwarded.
    pub(crate) bytes: u64,
    /// Matched and dropped.
    pub(crate) drops: u64,
    /// Of these, by QoS enforcement: a gate, a bit rate, a capacity, a packet rate.
    pub(crate) qos_drops: u64,
    /// Of those forwarded, above a rate that shapes: they had to wait first.
    pub(crate) delayed: u64,
}

impl TrafficReport {
    pub(crate) fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.drops = self.drops.saturating_add(other.drops);
        self.qos_drops = self.qos_drops.saturating_add(other.qos_drops);
        self.delayed = self.delayed.saturating_add(other.delayed);
    }
}

/// One page of sessions.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct SessionPage {
    pub(crate) total: u64,
    pub(crate) sessions: Vec<SessionSummary>,
    /// Hand it back as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// One session with its rules.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SessionDetail {
    #[serde(flatten)]
    pub(crate) summary: SessionSummary,
    pub(crate) pdrs_detail: Vec<PdrReport>,
    pub(crate) fars: Vec<FarReport>,
    pub(crate) qers: Vec<QerReport>,
    pub(crate) urrs: Vec<UrrReport>,
    pub(crate) bars: Vec<u32>,
    /// User Plane Inactivity Timer: the SMF is told when no packet came for so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_plane_inactivity_s: Option<u32>,
}

/// A PDR with its counters.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct PdrReport {
    pub(crate) id: u32,
    pub(crate) precedence: u32,
    /// `uplink` or `downlink`.
    pub(crate) direction: String,
    pub(crate) source_interface: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_instance: Option<String>,
    /// `TEID@address`, hexadecimal TEID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) f_teid: Option<String>,
    pub(crate) ue: Vec<String>,
    /// QFIs of which uplink packets carry one; none: not looked at.
    pub(crate) qfis: Vec<u8>,
    /// IPFilterRules, and what else filters ask for.
    pub(crate) sdf_filters: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<u32>,
    pub(crate) qers: Vec<u32>,
    pub(crate) urrs: Vec<u32>,
    /// Predefined rules that it activates, in the order in which they are tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) predefined_rules: Vec<PredefinedReport>,
    /// Its Activation Time is to come, or its Deactivation Time has passed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dormant: bool,
    pub(crate) traffic: TrafficReport,
}

/// A predefined rule that a PDR activates.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct PredefinedReport {
    pub(crate) name: String,
    /// IPFilterRules; none: all packets of the PDR.
    pub(crate) flows: Vec<String>,
    /// DROP or FORW; absent: what the FAR of the PDR says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_instance: Option<String>,
    /// Beside the QERs of the PDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) qer: Option<QerReport>,
    /// A part of that of the PDR.
    pub(crate) traffic: TrafficReport,
}

/// A FAR.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct FarReport {
    pub(crate) id: u32,
    /// FORW, DROP, BUFF, NOCP, joined by `+`.
    pub(crate) action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) network_instance: Option<String>,
    /// Identifier of the way to the data network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forwarding_policy: Option<String>,
    /// `TEID@address` of the outer header, or `udp:port@address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tunnel: Option<String>,
}

/// A QER.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct QerReport {
    pub(crate) id: u32,
    /// `open` or `closed`.
    pub(crate) gate_uplink: String,
    /// `open` or `closed`.
    pub(crate) gate_downlink: String,
    /// Bits per second; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mbr_uplink_bps: Option<u64>,
    /// Bits per second; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mbr_downlink_bps: Option<u64>,
    /// Bits per second; admission and scheduling are not done yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gbr_uplink_bps: Option<u64>,
    /// As `gbr_uplink_bps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gbr_downlink_bps: Option<u64>,
    /// Averaging Window of these rates; absent: `qos.burst_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) averaging_ms: Option<u32>,
    /// Packet Rate, as `10 in 360 s`; absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packets_uplink: Option<String>,
    /// As `packets_uplink`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) packets_downlink: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) qfi: Option<u8>,
    /// Downlink packets ask for Reflective QoS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) rqi: bool,
    /// Paging Policy Indicator of downlink packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ppi: Option<u8>,
}

/// A URR, and what it has measured since its last report.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct UrrReport {
    pub(crate) id: u32,
    /// `VOLUM`, `DURAT`, `EVENT` (TS 29.244, 8.2.40).
    pub(crate) method: Vec<String>,
    /// Reporting Triggers, by their names in 8.2.19.
    pub(crate) triggers: Vec<String>,
    /// Measurement Period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) period_s: Option<u32>,
    /// How many reports there were.
    pub(crate) reports: u32,
    /// Seconds since the last of them.
    pub(crate) for_s: u64,
    pub(crate) uplink: VolumeUsed,
    pub(crate) downlink: VolumeUsed,
    /// Seconds measured, where time is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u64>,
    /// Bytes since the last report at which it reports.
    pub(crate) threshold: VolumeReport,
    /// Bytes since the last report at which nothing passes any more.
    pub(crate) quota: VolumeReport,
    /// What is left of them.
    pub(crate) quota_left: VolumeReport,
    /// Of time, when the present measurement began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_quota_s: Option<u64>,
    /// A quota is exhausted.
    pub(crate) exhausted: bool,
    /// A report is due and waits for its turn.
    pub(crate) pending: bool,
}

/// What was measured in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct VolumeUsed {
    /// Inner IP bytes forwarded.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// Bytes; absent: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct VolumeReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uplink: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) downlink: Option<u64>,
}

/// The URRs of one session.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct SessionUsage {
    /// Our SEID, hexadecimal.
    pub(crate) seid: String,
    pub(crate) ue: Vec<String>,
    pub(crate) urrs: Vec<UrrReport>,
}

/// Sessions that measure, of one page of sessions: there may be none, though more pages follow.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct UsagePage {
    /// Sessions, those without URRs among them.
    pub(crate) total: u64,
    pub(crate) sessions: Vec<SessionUsage>,
    /// Hand it back as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// The busiest users, measured between two readings of all counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct TopReport {
    /// Between the two readings.
    pub(crate) interval_s: f64,
    /// `rate`, `delayed` or `dropped`: what the order goes by.
    pub(crate) by: &'static str,
    /// Sessions.
    pub(crate) total: u64,
    /// Of these, with packets that were forwarded, or lost by QoS enforcement, in the interval.
    pub(crate) active: u64,
    /// The first is the busiest.
    pub(crate) users: Vec<TopUser>,
}

/// A session, and what it did in the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct TopUser {
    /// Ours, hexadecimal.
    pub(crate) seid: String,
    pub(crate) ue: Vec<String>,
    pub(crate) uplink: TopRate,
    pub(crate) downlink: TopRate,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TopRate {
    /// Inner IP bits forwarded, per second.
    pub(crate) rate_bps: u64,
    /// Packets that had to wait for their rate.
    pub(crate) delayed: u64,
    /// Packets dropped by QoS enforcement.
    pub(crate) qos_drops: u64,
}

/// Usage Reports of all sessions.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct UsageTotals {
    /// Sessions whose usage waits to be reported.
    pub(crate) sessions_waiting: u64,
    /// Crossings of thresholds and quotas that packets told of.
    pub(crate) alarms: u64,
    /// Those that had to be looked for.
    pub(crate) alarms_late: u64,
    /// Bytes of packets that were under way when their session went.
    pub(crate) late_bytes: u64,
    /// Reports in the log of usage.
    pub(crate) log_written: u64,
    /// Reports that it could not take.
    pub(crate) log_lost: u64,
    pub(crate) reports: Vec<TriggerCount>,
}

/// Lines of the log on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct LogTotals {
    pub(crate) written: u64,
    /// Lines that could not be written.
    pub(crate) lost: u64,
    /// Lines not made, because their sender had caused too many.
    pub(crate) suppressed: u64,
}

impl LogTotals {
    pub(crate) fn now() -> Self {
        let counts = logging::counts();
        Self {
            written: counts.written(),
            lost: counts.lost(),
            suppressed: counts.suppressed(),
        }
    }
}

/// CPU time of the control thread that REST took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct RestTotals {
    /// Times that it had its turn.
    pub(crate) turns: u64,
    pub(crate) seconds: f64,
    /// The longest turn.
    pub(crate) longest_s: f64,
}

/// Usage Reports that name a trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TriggerCount {
    /// As TS 29.244, 8.2.41 names it, in lower case.
    pub(crate) trigger: String,
    /// Whether the SMF has it.
    pub(crate) acknowledged: bool,
    pub(crate) count: u64,
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
