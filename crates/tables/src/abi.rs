//! Rust's side of `datapath/include/tp_abi.h`. Both sides assert sizes; a test compares offsets.
//!
//! Tables are seen as lines of atomic words, because packets read and write them at the same time.
//! The plain structs here are only ever encoded into words and stored.

use std::mem::{align_of, offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(test)]
use crate::task::Task;

pub(crate) const PORTS_MAX: usize = 16;
pub(crate) const N3_ADDRS_MAX: usize = 8;
const SENDERS: usize = 64;
pub(crate) const RULES_MAX: usize = 64;
pub(crate) const METERS_MAX: usize = 4;
pub(crate) const BUCKET_SLOTS: usize = 4;
pub(crate) const UE_PAGE_BITS: u32 = 14;
pub(crate) const UE_DIR_BITS: u32 = 32 - UE_PAGE_BITS;
pub(crate) const DROP_MAX: usize = 64;
pub(crate) const DIRS: usize = 2;

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

    pub(crate) fn words(&self) -> [u64; 8] {
        std::array::from_fn(|word| self.load(word))
    }
}

/// Words of `tp_entry`.
pub(crate) mod entry {
    pub(crate) const HEAD: usize = 0;
    pub(crate) const OUT: usize = 1;
    pub(crate) const RATE: usize = 2;
    pub(crate) const EXT: usize = 3;
    pub(crate) const TAT: usize = 4;
    pub(crate) const BYTES: usize = 5;
    pub(crate) const PACKETS: usize = 6;
    pub(crate) const ALARM: usize = 7;

    pub(crate) const ALARM_NONE: u64 = u64::MAX;

    pub(crate) const ACT_NONE: u64 = 0;
    pub(crate) const ACT_ROUTE: u64 = 1;
    pub(crate) const ACT_TUNNEL: u64 = 2;
    pub(crate) const ACT_DROP: u64 = 3;
    pub(crate) const ACT_BUFFER: u64 = 4;
    pub(crate) const ACT_GATE: u64 = 5;
    pub(crate) const ACT_LIST: u64 = 6;
    pub(crate) const ACT_DRAIN: u64 = 7;

    pub(crate) const METER_BIT: u64 = 1 << 35;
    pub(crate) const EXT_BIT: u64 = 1 << 36;
    pub(crate) const QFI_BIT: u64 = 1 << 37;
    pub(crate) const UE_BIT: u64 = 1 << 38;
    /// `TP_HEAD_UDP`, of a tunnel.
    pub(crate) const UDP_BIT: u64 = UE_BIT;
    pub(crate) const DOWN_BIT: u64 = 1 << 39;
    pub(crate) const ACTION_SHIFT: u32 = 32;
    pub(crate) const ROUTE_BIT: u64 = 1 << 46;
    pub(crate) const QFI_SHIFT: u32 = 40;
    pub(crate) const NI_SHIFT: u32 = 48;
    pub(crate) const RULE_SHIFT: u32 = 40;
    pub(crate) const PDR_SHIFT: u32 = 32;
    pub(crate) const PREDEFINED_SHIFT: u32 = 48;

    /// The action in a head.
    pub(crate) const fn action(head: u64) -> u64 {
        (head >> ACTION_SHIFT) & 7
    }

    const fn with_action(head: u64, action: u64) -> u64 {
        head & !(7 << ACTION_SHIFT | ROUTE_BIT) | action << ACTION_SHIFT
    }

    /// What a head says once all that waited has left.
    pub(crate) const fn settled(head: u64) -> u64 {
        match (action(head), head & ROUTE_BIT) {
            (ACT_DRAIN, 0) => with_action(head, ACT_TUNNEL),
            (ACT_DRAIN, _) => with_action(head, ACT_ROUTE),
            _ => head,
        }
    }

    /// A head that forwards, behind all that waits.
    pub(crate) const fn draining(head: u64) -> u64 {
        let route = match action(head) {
            ACT_ROUTE => ROUTE_BIT,
            _ => 0,
        };
        with_action(head, ACT_DRAIN) | route
    }

    /// Whether packets may wait.
    pub(crate) const fn may_hold(head: u64) -> bool {
        matches!(action(head), ACT_BUFFER | ACT_DRAIN)
    }

    /// Head of a line that leads to the rules from `first` on.
    pub(crate) const fn list_head(key: u32, first: u32) -> u64 {
        key as u64 | ACT_LIST << ACTION_SHIFT | (first as u64) << RULE_SHIFT
    }
}

/// Words of `tp_ni`.
pub(crate) mod ni {
    use std::net::Ipv4Addr;

    pub(crate) const LENS6: usize = 1;
    pub(crate) const LENS4: usize = 3;
    pub(crate) const POOLS6: usize = 4;
    pub(crate) const UE4: usize = 5;
    pub(crate) const UE6: usize = 6;
    pub(crate) const HOME: usize = 7;
    pub(crate) const NO_UE_TO_UE: u64 = 1 << 32;
    pub(crate) const SHARED: u64 = 1 << 33;

    /// The bit of `UE4` that an address has.
    pub(crate) const fn ue4_bit(addr: Ipv4Addr) -> u64 {
        1 << (addr.octets()[0] & 63)
    }

    /// The bit of `UE6` that an address has, by its upper 64 bits (`tp_ue6_bit`).
    pub(crate) const fn ue6_bit(hi: u64) -> u64 {
        1 << (((hi >> 32) as u32).wrapping_mul(0x9e37_79b1) >> 26)
    }
}

/// `tp_alarm`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AlarmRecord {
    pub(crate) entry: u32,
    pub(crate) reserved: u32,
}

/// Bytes after which an alarm that was not set anew comes again.
pub(crate) const ALARM_STEP: u64 = 65536;

/// `tp_side.qos_alarm`: nobody wants to hear.
pub(crate) const QOS_ALARM_NONE: u64 = 0;

/// `tp_side`: drops of an entry, those of QoS enforcement with their octets and alarm, and counts of its packets beside those in its own words.
#[repr(C)]
pub(crate) struct Side {
    pub(crate) bytes: AtomicU64,
    pub(crate) packets: AtomicU64,
    pub(crate) drops: AtomicU64,
    pub(crate) held: AtomicU64,
    pub(crate) qos_packets: AtomicU64,
    pub(crate) qos_bytes: AtomicU64,
    pub(crate) qos_alarm: AtomicU64,
}

/// `tp_rate` bits.
pub(crate) mod rate {
    pub(crate) const SHIFT_SHIFT: u32 = 32;
    pub(crate) const BLOCK: u64 = 1 << 38;
    pub(crate) const BURST_SHIFT: u32 = 40;
    pub(crate) const BURST_UNIT_NS: u128 = 4096;
    pub(crate) const BURST_MAX: u128 = (1 << 24) - 1;
    pub(crate) const TICKS_PER_SECOND: u128 = 64_000_000_000;
}

/// `tp_ext`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ext {
    pub(crate) ue6: [u8; 16],
    pub(crate) ue6_plen: u8,
    pub(crate) n_meters: u8,
    /// `ASKS_*`.
    pub(crate) asks: u8,
    pub(crate) qfi: u8,
    pub(crate) ue4_be: u32,
    pub(crate) meters: [u32; METERS_MAX],
    pub(crate) tos: u8,
    pub(crate) tos_mask: u8,
    pub(crate) psc: u8,
    pub(crate) removal: u8,
    pub(crate) packet_meter: u32,
    pub(crate) copy: u32,
    pub(crate) framed: u32,
    pub(crate) n_framed: u32,
    pub(crate) n_copies: u32,
}

/// Duplicates in one place of `rules[]`.
pub(crate) const COPIES_PER_PLACE: usize = 2;
pub(crate) const COPIES_MAX: usize = 4;
pub(crate) const COPY_V6: u8 = 1;

/// `tp_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyLine {
    pub(crate) remote: [u8; 16],
    pub(crate) local: [u8; 16],
    pub(crate) teid_be: u32,
    pub(crate) port_be: u16,
    pub(crate) flags: u8,
    pub(crate) tos: u8,
    pub(crate) tos_mask: u8,
    pub(crate) pad1: u8,
    pub(crate) pad2: u16,
    pub(crate) pad4: u32,
    pub(crate) reserved: [u64; 2],
}

/// Framed routes in one place of `rules[]`.
pub(crate) const FRAMED_PER_PLACE: usize = 4;
pub(crate) const FRAMED_MAX: usize = 64;

/// `tp_framed`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Framed {
    pub(crate) prefix: [u64; 2],
    pub(crate) plen: u8,
    pub(crate) family: u8,
    pub(crate) pad2: u16,
    pub(crate) pad4: u32,
    pub(crate) reserved: u64,
}

/// `tp_ext.psc`.
pub(crate) mod psc {
    pub(crate) const RQI: u8 = 1;
    pub(crate) const PPI: u8 = 2;
    pub(crate) const PPI_SHIFT: u32 = 5;
}

/// A packet limit.
pub(crate) mod packets {
    pub(crate) const MAX: u64 = (1 << 20) - 1;
    pub(crate) const SHIFT: u32 = 20;
    pub(crate) const TIME_UNIT_NS: u64 = 1 << 20;
}

pub(crate) const ASKS_UE: u8 = 1;
pub(crate) const ASKS_UE_DST: u8 = 2;
pub(crate) const ASKS_QFI: u8 = 4;
/// In `removal`.
pub(crate) const REMOVE_CONTAINER: u8 = 1;

/// Words of `tp_meter`.
pub(crate) mod meter {
    pub(crate) const RATE: usize = 0;
}

/// Rules in one place of `rules[]`.
pub(crate) const RULES_PER_PLACE: usize = 4;
pub(crate) const RULE_MORES_PER_PLACE: usize = 2;
pub(crate) const RULE_LAST: u32 = 1 << 31;

/// Bits of `tp_rule.value` and `mask`.
pub(crate) mod flow {
    pub(crate) const PROTO_SHIFT: u32 = 32;
    pub(crate) const TOS_SHIFT: u32 = 40;
    pub(crate) const V6: u64 = 1 << 48;
    pub(crate) const PORTS: u64 = 1 << 49;
    pub(crate) const NEVER: u64 = 1 << 63;
}

/// `tp_rule`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) value: u64,
    pub(crate) mask: u64,
    pub(crate) remote_port: u16,
    pub(crate) remote_span: u16,
    pub(crate) ue_port: u16,
    pub(crate) ue_span: u16,
    pub(crate) entry: u32,
    pub(crate) more: u32,
}

pub(crate) const MORE_LABEL: u16 = 1;
pub(crate) const MORE_SPI: u16 = 2;
pub(crate) const MORE_QFIS: u16 = 4;

/// `tp_rule_more`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleMore {
    pub(crate) remote: [u64; 2],
    pub(crate) ue: [u64; 2],
    pub(crate) remote_plen: u8,
    pub(crate) ue_plen: u8,
    pub(crate) flags: u16,
    pub(crate) label: u32,
    pub(crate) spi: u32,
    pub(crate) pad: u32,
    pub(crate) qfis: u64,
    pub(crate) reserved: u64,
}

/// `tp_rules`, or `tp_rule_mores`.
#[repr(C, align(64))]
pub(crate) struct RulePlace(pub(crate) [AtomicU64; 16]);

impl RulePlace {
    /// Fill a place that no packet can reach yet.
    pub(crate) fn fill(&self, words: [u64; 16]) {
        for (to, word) in self.0.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    pub(crate) fn words(&self) -> [u64; 16] {
        std::array::from_fn(|word| self.0[word].load(Ordering::Relaxed))
    }
}

/// In a UE page: the address is in a pool, but no session has it.
pub(crate) const UE_NOBODY: u32 = u32::MAX;

pub(crate) const KIND_TEID: u64 = 1;
pub(crate) const KIND_UE4: u64 = 2;
pub(crate) const KIND_UE6: u64 = 3;
pub(crate) const KIND_NEIGH4: u64 = 4;
pub(crate) const KIND_NEIGH6: u64 = 5;
pub(crate) const KIND_PREFIX4: u64 = 6;
pub(crate) const KIND_PREFIX6: u64 = 7;
pub(crate) const KIND_PLEN_SHIFT: u32 = 8;

/// `tp_nexthop`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NextHopLine {
    pub(crate) state: u32,
    pub(crate) port: u32,
    pub(crate) ifindex: u32,
    pub(crate) mtu: u16,
    pub(crate) l2_len: u8,
    pub(crate) pad: u8,
    pub(crate) l2: [u8; 24],
    pub(crate) addr: [u8; 16],
    pub(crate) reserved: u64,
}

/// `tp_peer`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerLine {
    pub(crate) nexthop: u32,
    pub(crate) remote_be: u32,
    pub(crate) local_be: u32,
    pub(crate) flags: u32,
    pub(crate) remote6: [u8; 16],
    pub(crate) local6: [u8; 16],
    pub(crate) reserved: [u64; 2],
}

pub(crate) const PEER_V6: u32 = 1;
pub(crate) const PEER_UDP: u32 = 2;
pub(crate) const PEER_ZERO_SUM: u32 = 4;

pub(crate) const ROUTE_LAST: u8 = 1;
pub(crate) const ROUTE_NONE: u8 = 2;
pub(crate) const ROUTE_IN_POOL: u8 = 4;

/// `tp_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteLine {
    pub(crate) addr: [u8; 16],
    pub(crate) plen: u8,
    pub(crate) flags: u8,
    pub(crate) pad: u16,
    pub(crate) nexthop: u32,
    pub(crate) reserved: [u64; 5],
}

/// `tp_route_map`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteMap {
    pub(crate) covered: [u64; 4],
    pub(crate) nexthop: u32,
    pub(crate) flags: u8,
    pub(crate) pad: [u8; 3],
    pub(crate) reserved: [u64; 3],
}

/// `tp_config`.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) n3_be: [AtomicU32; N3_ADDRS_MAX],
    pub(crate) salt: AtomicU64,
    pub(crate) bucket_mask: AtomicU32,
    pub(crate) n_entries: AtomicU32,
    pub(crate) error_indication_ns: AtomicU32,
    pub(crate) echo_ns: AtomicU32,
    pub(crate) moves: AtomicU32,
    pub(crate) n_nis: AtomicU32,
    pub(crate) port_ifindex: [AtomicU32; PORTS_MAX],
    pub(crate) icmp_ns: AtomicU32,
    pub(crate) held_max: AtomicU32,
    pub(crate) n3_6: [[AtomicU64; 2]; N3_ADDRS_MAX],
}

/// `tp_traffic`.
#[repr(C)]
pub(crate) struct TrafficWords {
    pub(crate) packets: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// `tp_port_stats`.
#[repr(C)]
pub(crate) struct PortStats {
    pub(crate) taken: [TrafficWords; DIRS],
    pub(crate) forwarded: [TrafficWords; DIRS],
    pub(crate) passed: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) slow: AtomicU64,
    pub(crate) reserved: AtomicU64,
}

/// `tp_cpu`.
#[repr(C)]
pub(crate) struct Cpu {
    pub(crate) clock_ns: AtomicU64,
    pub(crate) clock_uses: AtomicU64,
    pub(crate) error_indication_tat: AtomicU64,
    pub(crate) echo_tat: AtomicU64,
    pub(crate) clock_tick: AtomicU64,
    pub(crate) trace_tat: AtomicU64,
    pub(crate) trace_lost: AtomicU64,
    pub(crate) message_tat: AtomicU64,
    pub(crate) expired_tat: AtomicU64,
    pub(crate) too_long_tat: AtomicU64,
    pub(crate) solicitation_tat: AtomicU64,
    pub(crate) copies: AtomicU64,
    pub(crate) copies_lost: AtomicU64,
    pub(crate) alarms: AtomicU64,
    pub(crate) alarms_lost: AtomicU64,
    pub(crate) extension_tat: AtomicU64,
    pub(crate) expired_tats: [AtomicU64; SENDERS],
    pub(crate) too_long_tats: [AtomicU64; SENDERS],
    pub(crate) ports: [PortStats; PORTS_MAX],
    pub(crate) drops: [[[AtomicU64; DROP_MAX]; DIRS]; PORTS_MAX],
}

/// What a program knows; which sets there are is a matter of its builds (`TP_BUILD_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub(crate) u32);

impl Features {
    /// MBR enforcement.
    pub const METER: Self = Self(1 << 0);
    /// IPv6 source check and shared meters.
    pub const EXT: Self = Self(1 << 1);
    /// Several PDRs behind one key, SDF filters.
    pub const LIST: Self = Self(1 << 2);
    /// Inner IPv6.
    pub const IPV6: Self = Self(1 << 3);
    /// Tagged frames.
    pub const VLAN: Self = Self(1 << 4);
    /// Keys outside the direct tables.
    pub const BUCKETS: Self = Self(1 << 5);
    /// The kernel's FIB where the next-hop table has no answer.
    pub const FIB: Self = Self(1 << 6);
    /// Several CPUs may meet one entry.
    pub const ATOMIC: Self = Self(1 << 7);
    /// IPv6 between gNB and UPF.
    pub const OUTER6: Self = Self(1 << 8);
    /// From tunnel to tunnel.
    pub const RELAY: Self = Self(1 << 9);
    /// Users are spread over CPUs.
    pub const SPREAD: Self = Self(1 << 11);
    /// Somebody follows a user's packets.
    pub const TRACE: Self = Self(1 << 10);
    /// Framed routes, and UE prefixes that are no /64.
    pub const PREFIX: Self = Self(1 << 12);
    /// FARs with DUPL.
    pub const COPY: Self = Self(1 << 13);
    /// Outer headers of UDP without GTP-U.
    pub const UDP: Self = Self(1 << 14);
    /// FARs with BUFF.
    pub const BUFFER: Self = Self(1 << 15);
    /// Everything that packets may need; [`Self::TRACE`] and [`Self::SPREAD`] are not part of it.
    pub const ALL: Self = Self(
        0xff | Self::OUTER6.0
            | Self::RELAY.0
            | Self::PREFIX.0
            | Self::COPY.0
            | Self::BUFFER.0
            | Self::UDP.0,
    );

    /// `TP_BUILD_PLAIN`: a PDR each way for IPv4, with or without MBR, and nothing reported.
    pub(crate) const BUILD_PLAIN: Self =
        Self(Self::METER.0 | Self::VLAN.0 | Self::BUCKETS.0 | Self::ATOMIC.0 | Self::BUFFER.0);
    /// `TP_BUILD_COMMON`: most networks.
    pub(crate) const BUILD_COMMON: Self =
        Self(Self::BUILD_PLAIN.0 | Self::EXT.0 | Self::LIST.0 | Self::IPV6.0);
    /// `TP_BUILD_OUTER6`: IPv6 between gNB and UPF.
    pub(crate) const BUILD_OUTER6: Self = Self::BUILD_COMMON.with(Self::OUTER6);
    /// `TP_BUILD_RELAY`: a UPF between UPFs.
    pub(crate) const BUILD_RELAY: Self = Self::BUILD_COMMON.with(Self::RELAY);
    /// `TP_BUILD_SPREAD`: users spread over CPUs.
    pub(crate) const BUILD_SPREAD: Self = Self::BUILD_COMMON.with(Self::SPREAD);
    /// `TP_BUILD_GENERAL`: everything.
    pub(crate) const BUILD_GENERAL: Self = Self::ALL.with(Self::TRACE).with(Self::SPREAD);

    /// The builds, narrowest first.
    pub(crate) const BUILDS: [(&str, Self); 6] = [
        ("plain", Self::BUILD_PLAIN),
        ("common", Self::BUILD_COMMON),
        ("outer6", Self::BUILD_OUTER6),
        ("relay", Self::BUILD_RELAY),
        ("spread", Self::BUILD_SPREAD),
        ("general", Self::BUILD_GENERAL),
    ];

    /// Name of the narrowest build that has all of these.
    pub fn build(self) -> &'static str {
        let build = Self::BUILDS.iter().find(|(_, built)| built.contains(self));
        build.map_or("general", |(name, _)| name)
    }

    const NAMES: [&str; 16] = [
        "meter", "ext", "list", "ipv6", "vlan", "buckets", "fib", "atomic", "outer6", "relay",
        "trace", "spread", "prefix", "copy", "udp", "buffer",
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

// SAFETY: integers and byte arrays without padding between them (asserted below).
unsafe impl Plain for Ext {}
// SAFETY: as above.
unsafe impl Plain for [Rule; RULES_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for [Framed; FRAMED_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for [CopyLine; COPIES_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for [RuleMore; RULE_MORES_PER_PLACE] {}
// SAFETY: as above.
unsafe impl Plain for NextHopLine {}
// SAFETY: as above.
unsafe impl Plain for PeerLine {}
// SAFETY: as above.
unsafe impl Plain for RouteLine {}
// SAFETY: as above.
unsafe impl Plain for RouteMap {}

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
    assert!(size_of::<Line>() == 64 && align_of::<Line>() == 64);
    assert!(size_of::<Ext>() == 64 && offset_of!(Ext, meters) == 24);
    assert!(size_of::<Rule>() == 32 && offset_of!(Rule, entry) == 24);
    assert!(size_of::<RuleMore>() == 64 && offset_of!(RuleMore, qfis) == 48);
    assert!(size_of::<RulePlace>() == 128 && align_of::<RulePlace>() == 64);
    assert!(size_of::<NextHopLine>() == 64 && offset_of!(NextHopLine, addr) == 40);
    assert!(size_of::<PeerLine>() == 64 && offset_of!(PeerLine, remote6) == 16);
    assert!(size_of::<RouteLine>() == 64 && offset_of!(RouteLine, nexthop) == 20);
    assert!(size_of::<RouteMap>() == 64 && offset_of!(RouteMap, nexthop) == 32);
    assert!(size_of::<Side>() == 56);
    assert!(size_of::<Config>() == 264 && offset_of!(Config, moves) == 56);
    assert!(size_of::<PortStats>() == 96);
    assert!(
        size_of::<Cpu>()
            == 128 + 2 * SENDERS * 8 + PORTS_MAX * 96 + PORTS_MAX * DIRS * DROP_MAX * 8
    );
    assert!(
        cfg!(target_endian = "little"),
        "a rule's bytes and an entry's words assume it"
    );
};

/// What both sides must agree on: (what, Rust's value), in the order of `abi_check.c`.
#[cfg(test)]
fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tp_entry", size_of::<Line>()),
        ("tp_entry.out", entry::OUT * 8),
        ("tp_entry.rate", entry::RATE * 8),
        ("tp_entry.ext", entry::EXT * 8),
        ("tp_entry.tat", entry::TAT * 8),
        ("tp_entry.bytes", entry::BYTES * 8),
        ("tp_entry.packets", entry::PACKETS * 8),
        ("tp_entry.alarm", entry::ALARM * 8),
        ("tp_alarm", size_of::<AlarmRecord>()),
        ("TP_ALARM_STEP", ALARM_STEP as usize),
        ("tp_side", size_of::<Side>()),
        ("tp_side.packets", offset_of!(Side, packets)),
        ("tp_side.drops", offset_of!(Side, drops)),
        ("tp_side.held", offset_of!(Side, held)),
        ("tp_side.qos_packets", offset_of!(Side, qos_packets)),
        ("tp_side.qos_bytes", offset_of!(Side, qos_bytes)),
        ("tp_side.qos_alarm", offset_of!(Side, qos_alarm)),
        ("tp_ext", size_of::<Ext>()),
        ("tp_ext.ue6_plen", offset_of!(Ext, ue6_plen)),
        ("tp_ext.n_meters", offset_of!(Ext, n_meters)),
        ("tp_ext.meters", offset_of!(Ext, meters)),
        ("tp_ext.asks", offset_of!(Ext, asks)),
        ("tp_ext.ue4_be", offset_of!(Ext, ue4_be)),
        ("tp_ext.tos", offset_of!(Ext, tos)),
        ("tp_ext.removal", offset_of!(Ext, removal)),
        ("tp_ext.copy", offset_of!(Ext, copy)),
        ("tp_ext.psc", offset_of!(Ext, psc)),
        ("tp_ext.framed", offset_of!(Ext, framed)),
        ("tp_ext.n_framed", offset_of!(Ext, n_framed)),
        ("tp_ext.n_copies", offset_of!(Ext, n_copies)),
        ("tp_copies", size_of::<[CopyLine; COPIES_PER_PLACE]>()),
        ("tp_copy.local", offset_of!(CopyLine, local)),
        ("tp_copy.teid_be", offset_of!(CopyLine, teid_be)),
        ("tp_copy.port_be", offset_of!(CopyLine, port_be)),
        ("tp_copy.flags", offset_of!(CopyLine, flags)),
        ("tp_copy.tos_mask", offset_of!(CopyLine, tos_mask)),
        ("TP_COPIES_MAX", COPIES_MAX),
        ("tp_framed_routes", size_of::<[Framed; FRAMED_PER_PLACE]>()),
        ("tp_framed.plen", offset_of!(Framed, plen)),
        ("tp_framed.family", offset_of!(Framed, family)),
        ("tp_ext.packet_meter", offset_of!(Ext, packet_meter)),
        ("tp_meter.rate", meter::RATE * 8),
        ("tp_rule", size_of::<Rule>()),
        ("tp_rule.remote_port", offset_of!(Rule, remote_port)),
        ("tp_rule.ue_span", offset_of!(Rule, ue_span)),
        ("tp_rule.entry", offset_of!(Rule, entry)),
        ("tp_rule.more", offset_of!(Rule, more)),
        ("tp_rules", size_of::<RulePlace>()),
        ("tp_rule_more", size_of::<RuleMore>()),
        ("tp_rule_more.ue", offset_of!(RuleMore, ue)),
        ("tp_rule_more.flags", offset_of!(RuleMore, flags)),
        ("tp_rule_more.spi", offset_of!(RuleMore, spi)),
        ("tp_rule_more.qfis", offset_of!(RuleMore, qfis)),
        ("TP_RULES_PER_PLACE", RULES_PER_PLACE),
        ("TP_RULE_MORES_PER_PLACE", RULE_MORES_PER_PLACE),
        ("TP_FLOW_TOS_SHIFT", flow::TOS_SHIFT as usize),
        ("TP_FLOW_PORTS", flow::PORTS as usize),
        ("tp_nexthop", size_of::<NextHopLine>()),
        ("tp_nexthop.mtu", offset_of!(NextHopLine, mtu)),
        ("tp_nexthop.l2_len", offset_of!(NextHopLine, l2_len)),
        ("tp_nexthop.l2", offset_of!(NextHopLine, l2)),
        ("tp_nexthop.addr", offset_of!(NextHopLine, addr)),
        ("tp_peer", size_of::<PeerLine>()),
        ("tp_peer.remote_be", offset_of!(PeerLine, remote_be)),
        ("tp_peer.local_be", offset_of!(PeerLine, local_be)),
        ("tp_peer.flags", offset_of!(PeerLine, flags)),
        ("tp_peer.remote6", offset_of!(PeerLine, remote6)),
        ("tp_peer.local6", offset_of!(PeerLine, local6)),
        ("tp_route", size_of::<RouteLine>()),
        ("tp_route.plen", offset_of!(RouteLine, plen)),
        ("tp_route.flags", offset_of!(RouteLine, flags)),
        ("tp_route.nexthop", offset_of!(RouteLine, nexthop)),
        ("tp_route_map", size_of::<RouteMap>()),
        ("tp_route_map.nexthop", offset_of!(RouteMap, nexthop)),
        ("tp_route_map.flags", offset_of!(RouteMap, flags)),
        ("tp_ni", size_of::<Line>()),
        ("tp_ni.lens6", ni::LENS6 * 8),
        ("tp_ni.lens4", ni::LENS4 * 8),
        ("tp_ni.pools6", ni::POOLS6 * 8),
        ("tp_ni.ue4", ni::UE4 * 8),
        ("tp_ni.ue6", ni::UE6 * 8),
        ("tp_ni.home", ni::HOME * 8),
        ("tp_ni.flags", ni::HOME * 8 + 4),
        ("tp_config", size_of::<Config>()),
        ("tp_config.salt", offset_of!(Config, salt)),
        ("tp_config.bucket_mask", offset_of!(Config, bucket_mask)),
        ("tp_config.n_entries", offset_of!(Config, n_entries)),
        ("tp_config.moves", offset_of!(Config, moves)),
        ("tp_config.n_nis", offset_of!(Config, n_nis)),
        ("tp_config.port_ifindex", offset_of!(Config, port_ifindex)),
        ("tp_config.icmp_ns", offset_of!(Config, icmp_ns)),
        ("tp_config.held_max", offset_of!(Config, held_max)),
        ("tp_config.n3_6", offset_of!(Config, n3_6)),
        ("tp_port_stats", size_of::<PortStats>()),
        ("tp_port_stats.out", offset_of!(PortStats, forwarded)),
        ("tp_port_stats.passed", offset_of!(PortStats, passed)),
        ("tp_port_stats.slow", offset_of!(PortStats, slow)),
        ("tp_cpu", size_of::<Cpu>()),
        ("tp_cpu.ports", offset_of!(Cpu, ports)),
        ("tp_cpu.drops", offset_of!(Cpu, drops)),
        ("tp_cpu.trace_lost", offset_of!(Cpu, trace_lost)),
        ("tp_cpu.too_long_tat", offset_of!(Cpu, too_long_tat)),
        ("tp_cpu.too_long_tats", offset_of!(Cpu, too_long_tats)),
        ("tp_cpu.copies_lost", offset_of!(Cpu, copies_lost)),
        ("tp_cpu.alarms_lost", offset_of!(Cpu, alarms_lost)),
        ("tp_task", size_of::<Task>()),
        ("tp_task.mtu", offset_of!(Task, mtu)),
        ("tp_task.flags", offset_of!(Task, flags)),
        ("tp_task.out", offset_of!(Task, out)),
        ("tp_task.ifindex", offset_of!(Task, ifindex)),
        ("tp_trace", crate::trace::RECORD_LEN),
        ("tp_trace.data", crate::trace::HEADER_LEN),
        ("tp_trace.pdr", 24),
        ("tp_trace.predefined", 36),
        ("tp_trace.user", 34),
        ("tp_trace_key.kind", 32),
        ("TP_FEAT_TRACE", Features::TRACE.0 as usize),
        ("TP_TRACE_KEYS_MAX", crate::trace::TRACE_KEYS_MAX),
        ("TP_FEAT_PREFIX", Features::PREFIX.0 as usize),
        ("TP_FRAMED_MAX", FRAMED_MAX),
        ("TP_KIND_PREFIX6", KIND_PREFIX6 as usize),
        ("TP_KIND_PLEN_SHIFT", KIND_PLEN_SHIFT as usize),
        ("TP_HEAD_UDP", entry::UDP_BIT as usize),
        ("TP_PEER_UDP", PEER_UDP as usize),
        ("TP_FEAT_UDP", Features::UDP.0 as usize),
        ("TP_FEAT_ALL", Features::ALL.0 as usize),
        ("TP_BUILD_PLAIN", Features::BUILD_PLAIN.0 as usize),
        ("TP_BUILD_COMMON", Features::BUILD_COMMON.0 as usize),
        ("TP_BUILD_OUTER6", Features::BUILD_OUTER6.0 as usize),
        ("TP_BUILD_RELAY", Features::BUILD_RELAY.0 as usize),
        ("TP_BUILD_SPREAD", Features::BUILD_SPREAD.0 as usize),
        ("TP_BUILD_GENERAL", Features::BUILD_GENERAL.0 as usize),
        ("TP_UE_PAGE_BITS", UE_PAGE_BITS as usize),
        ("TP_RULES_MAX", RULES_MAX),
        ("TP_ROUTES_MAX", nexthop::ROUTES_MAX),
        ("TP_BUCKET_SLOTS", BUCKET_SLOTS),
        ("TP_HEAD_RULE_SHIFT", entry::RULE_SHIFT as usize),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        static tp_abi_layout: [u64; 160];
    }

    #[test]
    fn both_sides_agree() {
        // SAFETY: abi_check.c defines an array of this type and never writes it.
        let c = unsafe { &tp_abi_layout };
        for (index, (what, rust)) in layout().into_iter().enumerate() {
            assert_eq!(c[index] as usize, rust, "{what}");
        }
        assert_eq!(
            c[layout().len()],
            u64::MAX,
            "a line of abi_check.c has no counterpart"
        );
    }

    #[test]
    fn words_and_structs_convert() {
        let rules = [Rule {
            value: 7,
            entry: 0x0102_0304,
            more: 9,
            ..Rule::default()
        }; RULES_PER_PLACE];
        let words: [u64; 16] = words_of(&rules);
        assert_eq!(from_words::<[Rule; RULES_PER_PLACE], 16>(words), rules);
        assert_eq!(words[7], 0x9_0102_0304);
    }
}
