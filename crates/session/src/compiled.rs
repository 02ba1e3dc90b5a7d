//! What a session looks like to packets: the seam between the rules of an SMF and the tables.
//!
//! The core compiles the PDRs, FARs and QERs of one session into a [`Compiled`] and hands it to
//! [`Tables::publish`]; it never learns where an entry lies. The tables never learn what a FAR is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

pub use crate::room::CapacityId;
use crate::room::{Holding, Resource, Shortage};

/// Network instance, an index into the configured list (TS 29.244, 8.2.4).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct NiId(pub u16);

/// Network instance of rules that name none.
pub(crate) const DEFAULT_NI: NiId = NiId(0);

/// PDR ID (TS 29.244, 8.2.36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PdrId(pub u16);

/// Place of a predefined rule in the configuration, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PredefinedId(NonZeroU16);

impl PredefinedId {
    /// Of the rule in this place, from 0 on. `None`: there are no so many.
    pub fn at(place: usize) -> Option<Self> {
        Self::new(u16::try_from(place).ok()?.checked_add(1)?)
    }

    /// From its number, as [`Self::get`] tells it.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// The place, counted from 1 on.
    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// See [`Self::at`].
    pub fn place(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// Place of a forwarding policy in the configuration, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyId(pub u8);

impl PolicyId {
    /// All that there may be, as policies stand in the configuration.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }

    /// The number under which the tables have the routes of this policy for packets of a network instance: behind those of all
    /// network instances, of which there are so many.
    pub fn routes_for(self, ni: NiId, instances: u16) -> NiId {
        let behind = instances.saturating_mul(u16::from(self.0).saturating_add(1));
        NiId(behind.saturating_add(ni.0))
    }
}

/// QER ID (TS 29.244, 8.2.75).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QerId(pub u32);

/// QoS Flow Identifier, 0..=63 (TS 38.415, 5.5.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub struct Qfi(u8);

impl TryFrom<u8> for Qfi {
    type Error = &'static str;

    fn try_from(value: u8) -> Result<Self, Self::Error> {
        Self::new(value).ok_or("a QFI above 63")
    }
}

impl Qfi {
    /// `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }
    /// The six bits.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Some QFIs: bit n is QFI n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QfiSet(pub u64);

impl QfiSet {
    /// One more.
    pub fn insert(&mut self, qfi: Qfi) {
        self.0 |= 1 << qfi.0;
    }
    /// Whether it is one of them.
    pub const fn contains(self, qfi: Qfi) -> bool {
        self.0 >> qfi.0 & 1 == 1
    }
    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The only one; `None` when there are more, or none.
    pub const fn single(self) -> Option<Qfi> {
        if self.0.is_power_of_two() {
            Some(Qfi(self.0.trailing_zeros() as u8))
        } else {
            None
        }
    }
    /// Each, in rising order.
    pub fn iter(self) -> impl Iterator<Item = Qfi> {
        (0..64).map(Qfi).filter(move |qfi| self.contains(*qfi))
    }
}

/// Everything that packets of one session can meet. Refilled for each change, so that a change
/// costs no allocation once the vectors have grown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Our SEID, if somebody will ask whose an entry is: of sessions that measure or buffer. 0: nobody will.
    pub seid: u64,
    /// Our SEID, whoever asks.
    pub session: u64,
    /// One per PDR, or one for each predefined rule that it activates.
    pub entries: Vec<Entry>,
    /// What a packet's TEID or UE address leads to. Keys are unique across all sessions: the core
    /// has checked.
    pub keys: Vec<(Key, Select)>,
    /// Meters shared by several entries, or one of several on an entry.
    pub meters: Vec<SharedMeter>,
    /// Filters of all [`Select::List`]s, each list back to back.
    pub filters: Vec<Filter>,
    /// Networks behind the UE, at most [`FRAMED_MAX`], no prefix twice.
    pub framed: Vec<IpNet>,
    /// What waits for the session (FARs with BUFF) is dropped before anything of this takes effect (DROBU).
    pub drops_held: bool,
    /// Beyond what it holds, the session may come to hold so much; of what is not named, as much as there is.
    pub more: Vec<(Resource, u64)>,
}

/// Framed routes of one session (`TP_FRAMED_MAX` of the tables).
pub const FRAMED_MAX: usize = 64;

impl Compiled {
    /// Empty, capacity kept.
    pub fn clear(&mut self) {
        self.seid = 0;
        self.session = 0;
        self.entries.clear();
        self.keys.clear();
        self.meters.clear();
        self.filters.clear();
        self.framed.clear();
        self.drops_held = false;
        self.more.clear();
    }
}

/// How packets find a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// GTP-U to one of our addresses. A TEID whose lower 24 bits are its slot is found there; any other by the buckets.
    Teid {
        /// Host order, never zero.
        teid: u32,
        /// Table slot that the core has reserved for this TEID alone. `None`: it has none.
        slot: Option<u32>,
    },
    /// IPv4 destination on N6.
    Ue4 {
        /// Where the address is valid.
        ni: NiId,
        /// The UE's address.
        addr: Ipv4Addr,
    },
    /// IPv6 destination on N6, by its /64.
    Ue6 {
        /// Where the prefix is valid.
        ni: NiId,
        /// Lower 64 bits zero.
        prefix: Ipv6Addr,
    },
    /// Destination on N6 in a prefix that is neither an IPv4 address nor an IPv6 /64. Of several that
    /// cover it the longest decides, an address or /64 among them.
    Prefix {
        /// Where the prefix is valid.
        ni: NiId,
        /// Zeros beyond the prefix; at least one bit.
        net: IpNet,
    },
}

impl Key {
    /// A TEID in its own slot.
    pub const fn direct(teid: u32) -> Self {
        Self::Teid {
            teid,
            slot: Some(teid & 0xff_ffff),
        }
    }

    /// Of what is found by its destination on N6.
    pub fn of_prefix(ni: NiId, net: IpNet) -> Self {
        match net.trunc() {
            IpNet::V4(net) if net.prefix_len() == 32 => Self::Ue4 {
                ni,
                addr: net.addr(),
            },
            IpNet::V6(net) if net.prefix_len() == 64 => Self::Ue6 {
                ni,
                prefix: net.addr(),
            },
            net => Self::Prefix { ni, net },
        }
    }
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The one PDR, without SDF filters: index into [`Compiled::entries`].
    One(usize),
    /// Try `filters[first..first + len]` in order; the first that matches decides.
    /// `len` is 1 to 64.
    List {
        /// Index into [`Compiled::filters`].
        first: usize,
        /// Number of filters.
        len: usize,
    },
}

/// One filter of one PDR, source and destination as in the packet of the PDR's own direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Index into [`Compiled::entries`].
    pub entry: usize,
    /// `None`: the PDR has no SDF filter, every packet matches.
    pub flow: Option<Flow>,
    /// Uplink: the packet must carry one of these. Empty: not looked at.
    pub qfis: QfiSet,
}

/// A five-tuple (IPFilterRule of RFC 6733, 4.3.1, as TS 29.212, 5.4.2 uses it), and what else an SDF
/// Filter may ask for (TS 29.244, 8.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// `None`: any protocol.
    pub proto: Option<u8>,
    /// `None`: any address of either family. When both ends are given they are of one family.
    pub src: Option<IpNet>,
    /// As `src`.
    pub dst: Option<IpNet>,
    /// Inclusive; `None`: any, also packets without ports.
    pub src_ports: Option<(u16, u16)>,
    /// As `src_ports`.
    pub dst_ports: Option<(u16, u16)>,
    /// ToS or Traffic Class, and which of its bits are compared.
    pub tos: Option<(u8, u8)>,
    /// Security Parameter Index of ESP or AH.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub label: Option<u32>,
}

impl Flow {
    /// No packet's: ICMP has no ports.
    pub const NONE: Self = Self {
        proto: Some(1),
        src: None,
        dst: None,
        src_ports: Some((0, u16::MAX)),
        dst_ports: None,
        tos: None,
        spi: None,
        label: None,
    };

    /// What packets of both have; `None`: no packet is of both.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        let both = Self {
            proto: same(self.proto, other.proto)?,
            src: narrower(self.src, other.src)?,
            dst: narrower(self.dst, other.dst)?,
            src_ports: overlap(self.src_ports, other.src_ports)?,
            dst_ports: overlap(self.dst_ports, other.dst_ports)?,
            tos: bits_of_both(self.tos, other.tos)?,
            spi: same(self.spi, other.spi)?,
            label: same(self.label, other.label)?,
        };
        let family = |net: Option<IpNet>| net.map(|net| net.addr().is_ipv4());
        let ends = same(family(both.src), family(both.dst))?;
        // Only IPv6 has a flow label.
        (both.label.is_none() || ends != Some(true)).then_some(both)
    }
}

/// Of two conditions, either of which may be absent: both, if they go together.
fn of_both<C: Copy>(
    a: Option<C>,
    b: Option<C>,
    join: impl Fn(C, C) -> Option<C>,
) -> Option<Option<C>> {
    match (a, b) {
        (Some(a), Some(b)) => join(a, b).map(Some),
        (one, other) => Some(one.or(other)),
    }
}

fn same<C: Copy + PartialEq>(a: Option<C>, b: Option<C>) -> Option<Option<C>> {
    of_both(a, b, |a, b| (a == b).then_some(a))
}

fn narrower(a: Option<IpNet>, b: Option<IpNet>) -> Option<Option<IpNet>> {
    of_both(a, b, |a, b| match (a.contains(&b), b.contains(&a)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    })
}

fn overlap(a: Option<(u16, u16)>, b: Option<(u16, u16)>) -> Option<Option<(u16, u16)>> {
    of_both(a, b, |a, b| {
        let (low, high) = (a.0.max(b.0), a.1.min(b.1));
        (low <= high).then_some((low, high))
    })
}

fn bits_of_both(a: Option<(u8, u8)>, b: Option<(u8, u8)>) -> Option<Option<(u8, u8)>> {
    of_both(a, b, |(a, a_mask), (b, b_mask)| {
        let agree = (a ^ b) & a_mask & b_mask == 0;
        agree.then_some((a & a_mask | b & b_mask, a_mask | b_mask))
    })
}

/// Which way packets of an entry travel, for counters and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// From access.
    Uplink,
    /// To access.
    Downlink,
}

/// One PDR with its FAR and QERs, decided; or one predefined rule that it activates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// For counters and traces.
    pub pdr: PdrId,
    /// Of a PDR that activates predefined rules: which of them it is. With `pdr` it identifies the entry
    /// across changes.
    pub predefined: Option<PredefinedId>,
    /// Side the packets come from.
    pub direction: Direction,
    /// What happens to a packet that matches.
    pub action: Action,
    /// Uplink: the source address must be one of these. `None`: not checked.
    pub ue: Option<UeAddresses>,
    /// An address in one of [`Compiled::framed`] is as good as one of `ue`, here and in `relay`.
    pub framed: bool,
    /// Uplink: the PDU Session Container must carry this QFI. Downlink, and with `relay`: mark with
    /// it; `None`: no PDU Session Container, or the one that the packet came with.
    pub qfi: Option<Qfi>,
    /// Packets come in a tunnel and go on in another one, or come in a tunnel and travel towards
    /// access. `ue` and the asking half of `qfi` are here then.
    pub relay: Option<Relay>,
    /// Transport level marking of packets that leave: of the outer IP header in a tunnel, else of
    /// their own.
    pub marking: Option<Marking>,
    /// Downlink: what the PDU Session Container says beside the QFI; without QFI nothing.
    pub marks: Marks,
    /// MBR of this entry alone.
    pub meter: Option<Rate>,
    /// Indices into [`Compiled::meters`] of bit rates; at most four. All must conform, besides
    /// `meter`.
    pub shared_meters: smallvec::SmallVec<[usize; 4]>,
    /// Index into [`Compiled::meters`] of a packet rate.
    pub packet_meter: Option<usize>,
    /// Index into [`Compiled::meters`] of a share of capacities.
    pub share: Option<usize>,
    /// Where else each packet goes that the FAR applies to; at most [`DUPLICATES_MAX`].
    pub duplicates: Vec<Duplicate>,
}

/// Duplicating Parameters of one FAR (`TP_COPIES_MAX` of the tables).
pub const DUPLICATES_MAX: usize = 4;

/// Where a duplicate of each packet goes (TS 29.244, 5.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// What it is put into.
    pub header: DuplicateHeader,
    /// Remote address.
    pub peer: IpAddr,
    /// Our address, the source of the outer packet; of the same family.
    pub local: IpAddr,
    /// Transport level marking of the outer header.
    pub marking: Option<Marking>,
}

/// What is between the outer IP header of a duplicate and the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateHeader {
    /// UDP and GTP-U.
    GtpU {
        /// Remote TEID, host order.
        teid: u32,
    },
    /// UDP alone.
    Udp {
        /// Both ports.
        port: u16,
    },
}

/// Of the PDU Session Container of downlink packets (TS 38.415, 5.5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Reflective QoS Indicator.
    pub rqi: bool,
    /// Paging Policy Indicator, 0..=7.
    pub ppi: Option<u8>,
}

/// Transport Level Marking (TS 29.244, 8.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marking {
    /// ToS or traffic class.
    pub tos: u8,
    /// Which of its bits are set; the others stay.
    pub mask: u8,
}

/// What only packets from tunnel to tunnel meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relay {
    /// The UE's addresses, and at which end of the packet one of them must be. Neighbour discovery
    /// with link-local addresses is the UE's too.
    pub ue: Option<(UeAddresses, UeEnd)>,
    /// The PDU Session Container must carry this QFI.
    pub qfi: Option<Qfi>,
    /// The PDU Session Container is taken off.
    pub remove_container: bool,
}

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UeEnd {
    /// The UE has sent it.
    Source,
    /// It is for the UE.
    Destination,
}

/// Addresses of the UE in a PDI. At least one is present, or there are framed routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UeAddresses {
    /// IPv4, if it has one.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 prefix, if it has one; 1 to 128 bits.
    pub v6: Option<Ipv6Net>,
}

/// A FAR together with the gates of the QERs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Decapsulated, by the routes of the network instance.
    Route {
        /// Which routes.
        ni: NiId,
    },
    /// Decapsulated, the way of a forwarding policy.
    Steer {
        /// The network instance, whose routes are the policy's fallback.
        ni: NiId,
        /// Which policy.
        policy: PolicyId,
    },
    /// Into a GTP-U tunnel.
    Tunnel {
        /// Remote TEID, host order.
        teid: u32,
        /// Remote address.
        peer: IpAddr,
        /// Our address, the source of the outer packet; of the same family.
        local: IpAddr,
    },
    /// Into UDP without GTP-U.
    Udp {
        /// Both ports.
        port: u16,
        /// Remote address.
        peer: IpAddr,
        /// Our address, the source of the outer packet; of the same family.
        local: IpAddr,
    },
    /// FAR DROP.
    Drop,
    /// FAR FORW towards access, into a tunnel that the SMF has not named yet.
    NoTunnel,
    /// FAR BUFF: they wait for what follows.
    Buffer,
    /// Gate closed by a QER.
    GateClosed,
    /// The tunnel's far end has said that it does not know it.
    TunnelGone,
    /// The quota of a URR is used up.
    QuotaExhausted,
}

/// An MBR shared within the session, a packet rate, or a share of capacities: one direction of one QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMeter {
    /// With `direction` and the kind of `limit`, identifies it across changes, so that its state is
    /// kept.
    pub qer: QerId,
    /// Which half of the QER.
    pub direction: Direction,
    /// The limit.
    pub limit: Limit,
}

/// What a shared meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// MBR.
    Bits(Rate),
    /// Packet Rate.
    Packets(PacketRate),
    /// What the flow has where there is not enough for all.
    Share(Share),
}

/// A flow's part of what interfaces, a network instance or a group of users have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part where all others want more than theirs, against theirs: 1 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// What it has in any case (GBR: TS 29.244, 8.2.9). The tables have so much for all who are guaranteed something, or refuse.
    pub guaranteed: Option<Rate>,
    /// Which capacities; the first are not [`CapacityId::NONE`].
    pub capacities: [CapacityId; CAPACITIES_ON_WAY],
}

/// The greatest weight of a flow.
pub const WEIGHT_MAX: u16 = 1000;

/// Capacities on a packet's way (`TP_SHARE_CAPACITIES` of the tables).
pub const CAPACITIES_ON_WAY: usize = 4;

/// A maximum number of packets in each time unit (TS 29.244, 8.2.63). A time unit begins with the
/// first packet after the one before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketRate {
    /// Packets; zero lets nothing pass.
    pub packets: u32,
    /// The time unit.
    pub per: Duration,
}

/// A maximum bit rate of inner IP packets (TS 29.244, 8.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bits per second; zero lets nothing pass. MBR is a 40-bit number of kbit/s.
    pub bps: u64,
    /// What may pass back to back.
    pub burst_bytes: u64,
    /// What becomes of packets above it.
    pub above: Above,
}

/// What becomes of packets above a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Above {
    /// They are dropped.
    #[default]
    Police,
    /// They wait, where the data path can have them wait.
    Shape,
}

/// A tunnel that a path switch has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedTunnel {
    /// Remote TEID, host order.
    pub teid: u32,
    /// Remote address.
    pub peer: IpAddr,
    /// Our address, the source of the outer packet.
    pub local: IpAddr,
}

/// What the packets of one PDR did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Forwarded.
    pub packets: u64,
    /// Inner IP bytes forwarded.
    pub bytes: u64,
    /// Matched and dropped.
    pub drops: u64,
    /// Of these, by QoS enforcement: a gate, an MBR, a packet rate.
    pub qos_packets: u64,
    /// Inner IP bytes of those.
    pub qos_bytes: u64,
    /// Forwarded, but above a rate that shapes: they had to wait first.
    pub delayed: u64,
}

impl Counters {
    /// Both, e.g. of a PDR's entry and of the one that it took the place of.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            packets: self.packets + more.packets,
            bytes: self.bytes + more.bytes,
            drops: self.drops + more.drops,
            qos_packets: self.qos_packets + more.qos_packets,
            qos_bytes: self.qos_bytes + more.qos_bytes,
            delayed: self.delayed + more.delayed,
        }
    }
}

/// A packet waits for a FAR with BUFF to become another, and none of its PDR did before it; or it should have waited, and
/// there was no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffered {
    /// Our SEID.
    pub seid: u64,
    /// The PDR that took it.
    pub pdr: PdrId,
    /// ToS or Traffic Class.
    pub tos: u8,
    /// There was room for it.
    pub waits: bool,
}

/// Bounds of what waits for one PDR, beside those of the tables themselves. They hold as long as something waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldLimits {
    /// At most so many packets; those that come later are dropped.
    pub packets: Option<u32>,
    /// For so long from now, and then no longer, whatever the tables' own bound of time.
    pub duration: Option<Duration>,
}

/// The tables cannot take a change; nothing of it was applied. Answered with cause 75.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room in the {table} table")]
pub struct NoRoom {
    /// Which one, as the metrics name it; `capacities`: what is guaranteed would be more than there is.
    pub table: &'static str,
    /// With `capacities`: whose guaranteed rate it is that is too much.
    pub qer: Option<QerId>,
    /// With `capacities`: which one is short.
    pub capacity: CapacityId,
    /// There is room, but not for this session: [`Compiled::more`].
    pub is_kept: bool,
}

impl NoRoom {
    /// In this table.
    pub const fn of(table: &'static str) -> Self {
        Self {
            table,
            qer: None,
            capacity: CapacityId::NONE,
            is_kept: false,
        }
    }

    /// In this table, what is left of which is kept for others.
    pub const fn kept(table: &'static str) -> Self {
        Self {
            is_kept: true,
            ..Self::of(table)
        }
    }
}

impl From<NoRoom> for Shortage {
    fn from(full: NoRoom) -> Self {
        let mut counted = Resource::COUNTED.into_iter();
        let resource = match full.capacity {
            CapacityId::NONE => counted.find(|of| of.name() == full.table),
            capacity => Some(Resource::Guaranteed(capacity)),
        };
        Self {
            table: full.table,
            resource,
            is_kept: full.is_kept,
        }
    }
}

/// Where sessions become visible to packets. Implemented by the `tables` crate, and by a recorder
/// in this crate's tests.
pub trait Tables {
    /// Where the parts of one session lie. `Default` is a session that is not in the tables.
    type Handle: Default;

    /// Slots of TEIDs that there are, one less than this: a [`Key::Teid`]'s is from 1 on, and below.
    fn direct_teids(&self) -> u32;

    /// Whether the host has a route to a gNB's address, so that of an IPv4 and an IPv6 address the
    /// better can be taken. Tables that know no routes say that it has.
    fn reaches(&self, peer: IpAddr) -> bool {
        let _ = peer;
        true
    }

    /// Make packets meet `new` instead of what `handle` holds. All of it or, on an error, nothing.
    ///
    /// A packet under way meets the old form or the new one, never a mixture. Entries keep their
    /// counters and meter state across changes (by PDR ID and predefined rule, by QER ID and direction). Afterwards
    /// `handle` holds `new`.
    fn publish(&mut self, handle: &mut Self::Handle, new: &Compiled) -> Result<(), NoRoom>;

    /// How much there is of something, for all sessions together; `None`: it does not run short.
    fn room(&self, _: Resource) -> Option<u64> {
        None
    }

    /// A session's holdings of it, [`Resource::Sessions`] aside.
    fn holds(&self, _: &Self::Handle) -> Holding {
        Holding::default()
    }

    /// Take the session out. Its keys may be reused by another session at once.
    fn withdraw(&mut self, handle: &mut Self::Handle);

    /// No packet of the session goes into this tunnel any more: tell its end by an End Marker (TS 29.281,
    /// 7.3.2), behind the last packet that is still under way. Tables without packets need not.
    fn end_tunnel(&mut self, _tunnel: &EndedTunnel) {}

    /// Read the memory that a change of the session will need first, so that it is at hand then. The
    /// result means nothing: it keeps the reads from being left out.
    fn touch(&self, _handle: &Self::Handle) -> u64 {
        0
    }

    /// How many packets of a PDR wait (FAR with BUFF), or are yet to leave behind those that did.
    fn held(&self, _: &Self::Handle, _: PdrId) -> u64 {
        0
    }

    /// Bound what waits for a PDR of this session, by our SEID.
    fn limit_held(&mut self, _seid: u64, _: PdrId, _: HoldLimits) {}

    /// Drop what waits for this session (DROBU: TS 29.244, 5.2.4).
    fn discard_held(&mut self, _seid: u64) {}

    /// Tell anew of what waits for this session: its SMF wants to hear of it, and did not before.
    fn tell_of_held(&mut self, _seid: u64) {}

    /// Both ends, remote first, of each GTP-U path that sessions send into. Tables without tunnels
    /// have none.
    fn gtpu_paths(&self, _each: &mut dyn FnMut(IpAddr, IpAddr)) {}

    /// Counters of one PDR; zero when the session is not in the tables or has no such PDR.
    fn counters(&self, handle: &Self::Handle, pdr: PdrId) -> Counters;

    /// Be told of the session ([`Compiled::seid`]) when a PDR has forwarded that many bytes, as [`Self::counters`]
    /// counts them; `None`: no more. Told once for each arming, seldom twice or too early, never not at all, and at
    /// once if it already has. Holds across changes of the session, until it is armed anew.
    fn arm(&mut self, _: &Self::Handle, _: PdrId, _alarm: Option<u64>) {}

    /// The same of the bytes that QoS enforcement has dropped ([`Counters::qos_bytes`]).
    fn arm_qos(&mut self, _: &Self::Handle, _: PdrId, _alarm: Option<u64>) {}

    /// What a PDR had counted that the last [`Self::publish`] or [`Self::withdraw`] of a session with a
    /// [`Compiled::seid`] has taken out, when no more packets could find it. What packets under way still add is
    /// counted as late. `None`: it was not there, or these tables do not know.
    fn parted(&self, _: PdrId) -> Option<Counters> {
        None
    }

    /// Entries are this session's, for those who ask whose they are; one that is published later says so itself.
    fn name(&self, _: &Self::Handle, _seid: u64) {}

    /// Those of one of the predefined rules that a PDR activates; zero as above.
    fn counters_of(&self, _: &Self::Handle, _: PdrId, _: PredefinedId) -> Counters {
        Counters::default()
    }
}
