//! The tables as Rust sees them: numbers and structs from `datapath/include/tp_abi.h`, which the build reads
//! ([`raw`], [`shared`]), and here what they mean.
//!
//! Tables are seen as lines of atomic words, because packets read and write them at the same time.
//! The plain structs are only ever encoded into words and stored.

use std::mem::{align_of, size_of};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use raw::{
    tp_alarm as AlarmRecord, tp_copy as CopyLine, tp_ext as Ext, tp_framed as Framed,
    tp_nexthop as NextHopLine, tp_peer as PeerLine, tp_route as RouteLine,
    tp_route_map as RouteMap, tp_rule as Rule, tp_rule_more as RuleMore,
};
pub(crate) use shared::{
    tp_config as Config, tp_cpu as Cpu, tp_side as Side, tp_traffic as TrafficWords,
};

/// The header's constants, and its structs as plain numbers.
#[allow(
    non_camel_case_types,
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod raw {
    type __u8 = u8;
    type __u16 = u16;
    type __u32 = u32;
    type __u64 = u64;
    include!(concat!(env!("OUT_DIR"), "/abi_plain.rs"));
}

/// The header's structs whose words both sides change.
#[allow(
    non_camel_case_types,
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod shared {
    type __u8 = std::sync::atomic::AtomicU8;
    type __u16 = std::sync::atomic::AtomicU16;
    type __u32 = std::sync::atomic::AtomicU32;
    type __u64 = std::sync::atomic::AtomicU64;
    include!(concat!(env!("OUT_DIR"), "/abi_shared.rs"));
}

/// The pipeline in this process (`datapath/platform/host/tp_host.h`).
#[allow(
    non_camel_case_types,
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod host {
    use super::raw::*;
    use super::shared::{tp_config, tp_cpu, tp_shaper_stats, tp_side};

    type __u8 = u8;
    type __u16 = u16;
    type __u32 = u32;
    type __u64 = u64;
    include!(concat!(env!("OUT_DIR"), "/abi_host.rs"));
}

/// Workers over devices of DPDK (`datapath/platform/dpdk/tp_dpdk.h`).
#[cfg(feature = "dpdk")]
#[allow(
    non_camel_case_types,
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks
)]
pub(crate) mod dpdk {
    use super::host::{tp_queue, tp_worker};

    type __u8 = u8;
    type __u16 = u16;
    type __u32 = u32;
    type __u64 = u64;
    include!(concat!(env!("OUT_DIR"), "/abi_dpdk.rs"));
}

pub(crate) const PORTS_MAX: usize = raw::TP_PORTS_MAX as usize;
pub(crate) const N3_ADDRS_MAX: usize = raw::TP_N3_ADDRS_MAX as usize;
pub(crate) const RULES_MAX: usize = raw::TP_RULES_MAX as usize;
pub(crate) const CAPACITIES_MAX: usize = raw::TP_CAPACITIES_MAX as usize;
pub(crate) const SHARE_SHIFT: u32 = raw::TP_SHARE_SHIFT;
pub(crate) const METERS_MAX: usize = raw::TP_METERS_MAX as usize;
pub(crate) const BUCKET_SLOTS: usize = raw::TP_BUCKET_SLOTS as usize;
pub(crate) const UE_PAGE_BITS: u32 = raw::TP_UE_PAGE_BITS;
pub(crate) const UE_DIR_BITS: u32 = raw::TP_UE_DIR_BITS;
pub(crate) const DROP_MAX: usize = raw::TP_DROP_MAX as usize;
pub(crate) const DIRS: usize = raw::TP_DIRS as usize;

/// One cache line of a table.
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; 8]);

impl Line {
    pub(crate) fn load(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    /// Everything stored before is visible to whoever sees this word.
    pub(crate) fn publish(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Release);
    }

    /// Fill a line that no packet can reach yet.
    pub(crate) fn fill(&self, words: [u64; 8]) {
        for (to, word) in self.0.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Store `new` if the word still is `old`. Whether it was.
    pub(crate) fn exchange(&self, word: usize, old: u64, new: u64) -> bool {
        let order = Ordering::SeqCst;
        self.0[word]
            .compare_exchange(old, new, order, order)
            .is_ok()
    }

    /// A word that packets change, too, becomes so much at least.
    pub(crate) fn raise(&self, word: usize, to: u64) {
        self.0[word].fetch_max(to, Ordering::SeqCst);
    }

    pub(crate) fn words(&self) -> [u64; 8] {
        std::array::from_fn(|word| self.load(word))
    }
}

/// Words of `tp_entry`.
pub(crate) mod entry {
    use std::mem::offset_of;

    use super::raw::{self, tp_entry};

    pub(crate) const HEAD: usize = offset_of!(tp_entry, head) / 8;
    pub(crate) const OUT: usize = offset_of!(tp_entry, out) / 8;
    pub(crate) const RATE: usize = offset_of!(tp_entry, rate) / 8;
    pub(crate) const EXT: usize = offset_of!(tp_entry, ext) / 8;
    pub(crate) const TAT: usize = offset_of!(tp_entry, tat) / 8;
    pub(crate) const BYTES: usize = offset_of!(tp_entry, bytes) / 8;
    pub(crate) const PACKETS: usize = offset_of!(tp_entry, packets) / 8;
    pub(crate) const ALARM: usize = offset_of!(tp_entry, alarm) / 8;

    pub(crate) const ALARM_NONE: u64 = raw::TP_ALARM_NONE;

    pub(crate) const ACT_NONE: u64 = raw::TP_ACT_NONE as u64;
    pub(crate) const ACT_ROUTE: u64 = raw::TP_ACT_ROUTE as u64;
    pub(crate) const ACT_TUNNEL: u64 = raw::TP_ACT_TUNNEL as u64;
    pub(crate) const ACT_DROP: u64 = raw::TP_ACT_DROP as u64;
    pub(crate) const ACT_BUFFER: u64 = raw::TP_ACT_BUFFER as u64;
    pub(crate) const ACT_GATE: u64 = raw::TP_ACT_GATE as u64;
    pub(crate) const ACT_LIST: u64 = raw::TP_ACT_LIST as u64;
    pub(crate) const ACT_UDP: u64 = raw::TP_ACT_UDP as u64;
    pub(crate) const ACT_TUNNEL_GONE: u64 = raw::TP_ACT_TUNNEL_GONE as u64;
    pub(crate) const ACT_NO_TUNNEL: u64 = raw::TP_ACT_NO_TUNNEL as u64;
    pub(crate) const ACT_QUOTA: u64 = raw::TP_ACT_QUOTA as u64;

    pub(crate) const METER_BIT: u64 = raw::TP_HEAD_METER;
    pub(crate) const EXT_BIT: u64 = raw::TP_HEAD_EXT;
    pub(crate) const QFI_BIT: u64 = raw::TP_HEAD_QFI;
    pub(crate) const UE_BIT: u64 = raw::TP_HEAD_UE;
    pub(crate) const MARK_BIT: u64 = raw::TP_HEAD_MARK;
    pub(crate) const DOWN_BIT: u64 = raw::TP_HEAD_DOWN;
    const ACTION_MASK: u64 = raw::TP_HEAD_ACTION_MASK as u64;
    pub(crate) const ACTION_SHIFT: u32 = raw::TP_HEAD_ACTION_SHIFT;
    pub(crate) const COPY_BIT: u64 = raw::TP_HEAD_COPY;
    const DRAIN_BIT: u64 = raw::TP_HEAD_DRAIN;
    pub(crate) const QFI_SHIFT: u32 = raw::TP_HEAD_QFI_SHIFT;
    pub(crate) const NI_SHIFT: u32 = raw::TP_HEAD_NI_SHIFT;
    pub(crate) const RULE_SHIFT: u32 = raw::TP_HEAD_RULE_SHIFT;
    pub(crate) const PDR_SHIFT: u32 = raw::TP_EXT_PDR_SHIFT;
    pub(crate) const PREDEFINED_SHIFT: u32 = raw::TP_EXT_PREDEFINED_SHIFT;

    /// The action in a head.
    pub(crate) const fn action(head: u64) -> u64 {
        (head >> ACTION_SHIFT) & ACTION_MASK
    }

    /// Its network instance.
    pub(crate) const fn ni(head: u64) -> u16 {
        (head >> NI_SHIFT & raw::TP_HEAD_NI_MASK as u64) as u16
    }

    /// Whether it is of a tunnel, or of UDP alone: `out` names a peer.
    pub(crate) const fn has_peer(head: u64) -> bool {
        matches!(action(head), ACT_TUNNEL | ACT_UDP)
    }

    /// Whether it forwards.
    pub(crate) const fn forwards(head: u64) -> bool {
        matches!(action(head), ACT_ROUTE | ACT_TUNNEL | ACT_UDP)
    }

    /// The head once all that waited has left.
    pub(crate) const fn settled(head: u64) -> u64 {
        if is_draining(head) {
            head & !DRAIN_BIT
        } else {
            head
        }
    }

    /// A head that forwards, behind all that waits.
    pub(crate) const fn draining(head: u64) -> u64 {
        head | DRAIN_BIT
    }

    /// Whether packets go behind others that wait.
    pub(crate) const fn is_draining(head: u64) -> bool {
        action(head) != ACT_LIST && head & DRAIN_BIT != 0
    }

    /// Whether packets may wait.
    pub(crate) const fn may_buffer(head: u64) -> bool {
        action(head) == ACT_BUFFER || is_draining(head)
    }

    /// Head of a line that leads to the rules from `first` on.
    pub(crate) const fn list_head(key: u32, first: u32) -> u64 {
        key as u64 | ACT_LIST << ACTION_SHIFT | (first as u64) << RULE_SHIFT
    }
}

/// Words of `tp_ni`.
pub(crate) mod ni {
    use std::mem::offset_of;
    use std::net::Ipv4Addr;

    use super::raw::{self, tp_ni};

    pub(crate) const LENS6: usize = offset_of!(tp_ni, lens6) / 8;
    pub(crate) const LENS4: usize = offset_of!(tp_ni, lens4) / 8;
    pub(crate) const POOLS6: usize = offset_of!(tp_ni, pools6) / 8;
    pub(crate) const UE4: usize = offset_of!(tp_ni, ue4) / 8;
    pub(crate) const UE6: usize = offset_of!(tp_ni, ue6) / 8;
    pub(crate) const HOME: usize = offset_of!(tp_ni, home) / 8;
    pub(crate) const NO_UE_TO_UE: u64 = (raw::TP_NI_NO_UE_TO_UE as u64) << 32;
    pub(crate) const SHARED: u64 = (raw::TP_NI_SHARED as u64) << 32;
    pub(crate) const SELF_SHIFT: u32 = raw::TP_NI_SELF_SHIFT + 32;

    /// The bit of `UE4` that an address has.
    pub(crate) const fn ue4_bit(addr: Ipv4Addr) -> u64 {
        1 << (addr.octets()[0] & 63)
    }

    /// The bit of `UE6` that an address has, by its upper 64 bits (`tp_ue6_bit`).
    pub(crate) const fn ue6_bit(hi: u64) -> u64 {
        1 << (((hi >> 32) as u32).wrapping_mul(0x9e37_79b1) >> 26)
    }
}

/// Bytes after which an alarm that was not set anew comes again.
pub(crate) const ALARM_STEP: u64 = raw::TP_ALARM_STEP as u64;

/// `tp_side.qos_alarm`: nobody wants to hear.
pub(crate) const QOS_ALARM_NONE: u64 = raw::TP_QOS_ALARM_NONE as u64;

/// `tp_rate` bits.
pub(crate) mod rate {
    use super::raw;

    pub(crate) const SHIFT_SHIFT: u32 = raw::TP_RATE_SHIFT_SHIFT;
    pub(crate) const BLOCK: u64 = raw::TP_RATE_BLOCK;
    pub(crate) const SHAPE: u64 = raw::TP_RATE_SHAPE;
    pub(crate) const BURST_SHIFT: u32 = raw::TP_RATE_BURST_SHIFT;
    pub(crate) const BURST_UNIT_NS: u128 = raw::TP_RATE_BURST_UNIT_NS as u128;
    pub(crate) const BURST_MAX: u128 = (1 << (64 - BURST_SHIFT)) - 1;
    pub(crate) const TICKS_SHIFT: u32 = raw::TP_TICKS_PER_NS_SHIFT;
    pub(crate) const TICKS_PER_SECOND: u128 = 1_000_000_000 << raw::TP_TICKS_PER_NS_SHIFT;
}

/// Duplicates in one place of `rules[]`.
pub(crate) const COPIES_PER_PLACE: usize = raw::TP_COPIES_PER_PLACE as usize;
pub(crate) const COPIES_MAX: usize = raw::TP_COPIES_MAX as usize;
pub(crate) const COPY_V6: u8 = raw::TP_COPY_V6 as u8;

/// Framed routes in one place of `rules[]`.
pub(crate) const FRAMED_PER_PLACE: usize = raw::TP_FRAMED_PER_PLACE as usize;
pub(crate) const FRAMED_MAX: usize = raw::TP_FRAMED_MAX as usize;

/// `tp_ext.psc`.
pub(crate) mod psc {
    use super::raw;

    pub(crate) const RQI: u8 = raw::TP_PSC_RQI as u8;
    pub(crate) const PPI: u8 = raw::TP_PSC_PPI as u8;
    pub(crate) const PPI_SHIFT: u32 = raw::TP_PSC_PPI_MASK.trailing_zeros();
}

/// A packet limit.
pub(crate) mod packets {
    use super::raw;

    pub(crate) const MAX: u64 = raw::TP_PACKETS_MASK as u64;
    pub(crate) const SHIFT: u32 = raw::TP_PACKETS_SHIFT;
    pub(crate) const TIME_UNIT_NS: u64 = 1 << raw::TP_PACKETS_TIME_SHIFT;
}

pub(crate) const ASKS_UE: u8 = raw::TP_ASKS_UE as u8;
pub(crate) const ASKS_UE_DST: u8 = raw::TP_ASKS_UE_DST as u8;
pub(crate) const ASKS_QFI: u8 = raw::TP_ASKS_QFI as u8;
/// In `removal`.
pub(crate) const REMOVE_CONTAINER: u8 = raw::TP_REMOVE_CONTAINER as u8;

/// Words of `tp_meter`.
pub(crate) mod meter {
    pub(crate) const RATE: usize = std::mem::offset_of!(super::raw::tp_meter, rate) / 8;
    pub(crate) const TAT: usize = std::mem::offset_of!(super::raw::tp_meter, tat) / 8;
    /// `slower` and `capacities`.
    pub(crate) const SHARE: usize = std::mem::offset_of!(super::raw::tp_meter, slower) / 8;
    pub(crate) const GUARANTEED: usize = std::mem::offset_of!(super::raw::tp_meter, guaranteed) / 8;
    pub(crate) const NAME: usize = std::mem::offset_of!(super::raw::tp_meter, name) / 8;
}

/// Words of `tp_capacity`.
pub(crate) mod capacity {
    use std::mem::offset_of;

    use super::raw::tp_capacity;

    pub(crate) const SHARE: usize = offset_of!(tp_capacity, share) / 8;
    pub(crate) const TAT: usize = offset_of!(tp_capacity, tat) / 8;
    pub(crate) const BYTES: usize = offset_of!(tp_capacity, bytes) / 8;
    pub(crate) const OVER: usize = offset_of!(tp_capacity, over) / 8;
    pub(crate) const DROPS: usize = offset_of!(tp_capacity, drops) / 8;
}

/// Rules in one place of `rules[]`.
pub(crate) const RULES_PER_PLACE: usize = raw::TP_RULES_PER_PLACE as usize;
/// Places of rules that can be told apart.
pub(crate) const RULES_ROOM: u32 = raw::TP_RULES_ROOM;
pub(crate) const RULE_LAST: u32 = raw::TP_RULE_LAST;

/// Bits of `tp_rule.value` and `mask`.
pub(crate) mod flow {
    use super::raw;

    pub(crate) const PROTO_SHIFT: u32 = raw::TP_FLOW_PROTO_SHIFT;
    pub(crate) const TOS_SHIFT: u32 = raw::TP_FLOW_TOS_SHIFT;
    pub(crate) const V6: u64 = raw::TP_FLOW_V6;
    pub(crate) const PORTS: u64 = raw::TP_FLOW_PORTS;
    pub(crate) const NEVER: u64 = raw::TP_FLOW_NEVER;
    pub(crate) const NEXT_SHIFT: u32 = raw::TP_FLOW_NEXT_SHIFT;
    pub(crate) const NEXT_BITS: u32 = raw::TP_FLOW_NEXT_BITS;
}

pub(crate) const MORE_LABEL: u16 = raw::TP_MORE_LABEL as u16;
pub(crate) const MORE_SPI: u16 = raw::TP_MORE_SPI as u16;
pub(crate) const MORE_QFIS: u16 = raw::TP_MORE_QFIS as u16;

/// In a UE page: the address is in a pool, but no session has it.
pub(crate) const UE_NOBODY: u32 = raw::TP_UE_NOBODY;

pub(crate) const KIND_TEID: u64 = raw::TP_KIND_TEID as u64;
pub(crate) const KIND_UE4: u64 = raw::TP_KIND_UE4 as u64;
pub(crate) const KIND_UE6: u64 = raw::TP_KIND_UE6 as u64;
pub(crate) const KIND_NEIGH4: u64 = raw::TP_KIND_NEIGH4 as u64;
pub(crate) const KIND_NEIGH6: u64 = raw::TP_KIND_NEIGH6 as u64;
pub(crate) const KIND_PREFIX4: u64 = raw::TP_KIND_PREFIX4 as u64;
pub(crate) const KIND_PREFIX6: u64 = raw::TP_KIND_PREFIX6 as u64;
pub(crate) const KIND_PLEN_SHIFT: u32 = raw::TP_KIND_PLEN_SHIFT;

pub(crate) const PEER_V6: u32 = raw::TP_PEER_V6;
pub(crate) const PEER_UDP: u32 = raw::TP_PEER_UDP;
pub(crate) const PEER_ZERO_SUM: u32 = raw::TP_PEER_ZERO_SUM;

pub(crate) const ROUTE_LAST: u8 = raw::TP_ROUTE_LAST as u8;
pub(crate) const ROUTE_NONE: u8 = raw::TP_ROUTE_NONE as u8;
pub(crate) const ROUTE_IN_POOL: u8 = raw::TP_ROUTE_IN_POOL as u8;

/// Features of a program; which sets there are is a matter of its builds (`TP_BUILD_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub(crate) u32);

impl Features {
    /// MBR enforcement.
    pub const METER: Self = Self(raw::TP_FEAT_METER);
    /// IPv6 source check and shared meters.
    pub const EXT: Self = Self(raw::TP_FEAT_EXT);
    /// Several PDRs behind one key, SDF filters.
    pub const LIST: Self = Self(raw::TP_FEAT_LIST);
    /// Inner IPv6.
    pub const IPV6: Self = Self(raw::TP_FEAT_IPV6);
    /// Tagged frames.
    pub const VLAN: Self = Self(raw::TP_FEAT_VLAN);
    /// Keys outside the direct tables.
    pub const BUCKETS: Self = Self(raw::TP_FEAT_BUCKETS);
    /// The kernel's FIB where the next-hop table has no answer.
    pub const FIB: Self = Self(raw::TP_FEAT_FIB);
    /// Several CPUs may meet one entry.
    pub const ATOMIC: Self = Self(raw::TP_FEAT_ATOMIC);
    /// IPv6 between gNB and UPF.
    pub const OUTER6: Self = Self(raw::TP_FEAT_OUTER6);
    /// From tunnel to tunnel.
    pub const RELAY: Self = Self(raw::TP_FEAT_RELAY);
    /// Users are spread over CPUs.
    pub const SPREAD: Self = Self(raw::TP_FEAT_SPREAD);
    /// Somebody follows a user's packets.
    pub const TRACE: Self = Self(raw::TP_FEAT_TRACE);
    /// Framed routes, and UE prefixes that are no /64.
    pub const PREFIX: Self = Self(raw::TP_FEAT_PREFIX);
    /// FARs with DUPL.
    pub const COPY: Self = Self(raw::TP_FEAT_COPY);
    /// Outer headers of UDP without GTP-U.
    pub const UDP: Self = Self(raw::TP_FEAT_UDP);
    /// FARs with BUFF.
    pub const BUFFER: Self = Self(raw::TP_FEAT_BUFFER);
    /// Packets above their rate wait in user space.
    pub const SHAPE: Self = Self(raw::TP_FEAT_SHAPE);
    /// Everything that packets may need; [`Self::TRACE`], [`Self::SPREAD`] and [`Self::SHAPE`] are not part of it.
    pub const ALL: Self = Self(raw::TP_FEAT_ALL);

    /// `TP_BUILD_PLAIN`: a PDR each way for IPv4, with or without MBR, and nothing reported.
    pub(crate) const BUILD_PLAIN: Self = Self(raw::TP_BUILD_PLAIN);
    /// `TP_BUILD_COMMON`: most networks.
    pub(crate) const BUILD_COMMON: Self = Self(raw::TP_BUILD_COMMON);
    /// `TP_BUILD_OUTER6`: IPv6 between gNB and UPF.
    pub(crate) const BUILD_OUTER6: Self = Self(raw::TP_BUILD_OUTER6);
    /// `TP_BUILD_RELAY`: a UPF between UPFs.
    pub(crate) const BUILD_RELAY: Self = Self(raw::TP_BUILD_RELAY);
    /// `TP_BUILD_SPREAD`: users spread over CPUs.
    pub(crate) const BUILD_SPREAD: Self = Self(raw::TP_BUILD_SPREAD);
    /// `TP_BUILD_SHAPE`: packets above their rate wait in user space.
    pub(crate) const BUILD_SHAPE: Self = Self(raw::TP_BUILD_SHAPE);
    /// `TP_BUILD_GENERAL`: everything.
    pub(crate) const BUILD_GENERAL: Self = Self(raw::TP_BUILD_GENERAL);

    /// The builds, narrowest first.
    pub(crate) const BUILDS: [(&str, Self); 7] = [
        ("plain", Self::BUILD_PLAIN),
        ("common", Self::BUILD_COMMON),
        ("outer6", Self::BUILD_OUTER6),
        ("relay", Self::BUILD_RELAY),
        ("spread", Self::BUILD_SPREAD),
        ("shape", Self::BUILD_SHAPE),
        ("general", Self::BUILD_GENERAL),
    ];

    /// Name of the narrowest build that has all of these.
    pub fn build(self) -> &'static str {
        let build = Self::BUILDS.iter().find(|(_, built)| built.contains(self));
        build.map_or("general", |(name, _)| name)
    }

    const NAMES: [&str; 17] = [
        "meter", "ext", "list", "ipv6", "vlan", "buckets", "fib", "atomic", "outer6", "relay",
        "trace", "spread", "prefix", "copy", "udp", "buffer", "shape",
    ];

    /// As the C side sees them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// None.
    pub const NONE: Self = Self(0);

    /// Highest bit that may be set, plus one.
    pub(crate) const COUNT: usize = (32 - Self::ALL.0.leading_zeros()) as usize;

    pub(crate) const fn bit(index: usize) -> Self {
        Self(1 << index)
    }

    /// Numbers of the bits that are set.
    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        (0..Self::COUNT).filter(move |bit| self.0 >> bit & 1 == 1)
    }

    /// And those of `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Names of those that are set, for people.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| name)
    }
}

/// A struct that may be seen as words: no padding, every bit pattern valid, size a multiple of 8.
///
/// # Safety
///
/// The implementer promises just that.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers and arrays of them; the generated structs have a field where C has padding.
unsafe impl Plain for Ext {}
// SAFETY: as above.
unsafe impl Plain for [Rule; RULES_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for [Framed; FRAMED_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for [CopyLine; COPIES_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for RuleMore {}
// SAFETY: as above.
unsafe impl Plain for NextHopLine {}
// SAFETY: as above.
unsafe impl Plain for PeerLine {}
// SAFETY: as above.
unsafe impl Plain for RouteLine {}
// SAFETY: as above.
unsafe impl Plain for RouteMap {}
// SAFETY: as above.
unsafe impl Plain for raw::tp_trace {}
// SAFETY: as above; it has no padding, as its size says.
unsafe impl Plain for host::tp_n4_line {}
// SAFETY: as above.
unsafe impl Plain for host::tp_n4_config {}
// SAFETY: as above.
unsafe impl Plain for host::tp_n4_here {}
// SAFETY: as above.
unsafe impl Plain for host::tp_n4_template {}
// SAFETY: as above.
unsafe impl Plain for host::tp_n4_alias {}
// SAFETY: as above.
unsafe impl Plain for host::tp_n4_record {}

/// The words of a struct, as memory holds them.
pub(crate) fn words_of<T: Plain, const N: usize>(value: &T) -> [u64; N] {
    const { assert!(size_of::<T>() == N * 8) };
    // SAFETY: the sizes agree (above) and a `Plain` value has no uninitialised byte.
    unsafe { std::mem::transmute_copy(value) }
}

/// A struct from its words.
pub(crate) fn from_words<T: Plain, const N: usize>(words: [u64; N]) -> T {
    const { assert!(size_of::<T>() == N * 8 && align_of::<T>() <= 8) };
    // SAFETY: the sizes agree (above) and every bit pattern is a `Plain` value.
    unsafe { std::mem::transmute_copy(&words) }
}

const _: () = {
    assert!(size_of::<Line>() == size_of::<raw::tp_entry>() && align_of::<Line>() == 64);
    assert!(size_of::<Line>() == size_of::<raw::tp_ni>());
    assert!(size_of::<Line>() == size_of::<raw::tp_meter>());
    assert!(size_of::<Line>() == size_of::<raw::tp_capacity>());
    assert!(size_of::<Line>() == size_of::<raw::tp_trace_key>());
    assert!(size_of::<Line>() == size_of::<raw::tp_rules>());
    assert!(
        cfg!(target_endian = "little"),
        "a rule's bytes and an entry's words assume it"
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_structs_convert() {
        let rules = [Rule {
            value: 7,
            entry: 0x0102_0304,
            more: 9,
            ..Rule::default()
        }; RULES_PER_PLACE];
        let words: [u64; 8] = words_of(&rules);
        assert_eq!(from_words::<[Rule; RULES_PER_PLACE], 8>(words), rules);
        assert_eq!(words[7], 0x9_0102_0304);
    }
}
