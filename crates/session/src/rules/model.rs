//! The rules of a session as they are kept: what the SMF said, checked, and small.
//!
//! A rule that is here is one that we honour.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use compiled::{
    Direction, Flow, Marking, Marks, NiId, PacketRate, PdrId, PredefinedId, QerId, Qfi, QfiSet,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub use crate::alloc::teid::LocalTeid;
use crate::base::flow::FlowDescription;
pub use crate::base::ids::{BarId, FarId, RuleId, UrrId};
pub use crate::base::tagged::Later;
use crate::base::tagged::tagged;
pub use crate::rules::flows::Flows;
use crate::rules::flows::NO_FLOWS;
use crate::rules::predefined::{self, EffectivePdr, PredefinedRule};
pub use crate::rules::targets::{Duplicates, Duplicating, Targets};
pub use crate::rules::urr::{Asks, Limits, RareAsks, Renewed};

/// All rules of one session. No two of a kind have the same id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// In order of creation.
    pub pdrs: Box<[Pdr]>,
    /// In order of creation.
    pub fars: Box<[Far]>,
    /// In order of creation.
    pub qers: Box<[Qer]>,
    /// In order of creation.
    pub urrs: Box<[Urr]>,
    /// In order of creation.
    pub bars: Box<[Bar]>,
}

/// The part of [`Rules`] that packets meet, and what it refers to.
#[derive(Clone, Copy, Debug)]
pub struct PacketRules<'a> {
    /// See [`Rules::pdrs`].
    pub pdrs: &'a [Pdr],
    /// See [`Rules::fars`].
    pub fars: &'a [Far],
    /// See [`Rules::qers`].
    pub qers: &'a [Qer],
    /// PDRs that do not hold at present: their Activation Time is to come, or their Deactivation
    /// Time has passed.
    pub dormant: &'a [PdrId],
    /// PDRs whose packets a URR without quota left stops, and the FAR that applies to them meanwhile, if
    /// there is one.
    pub closed: &'a [(PdrId, Option<FarId>)],
    /// Configured rules that PDRs may activate.
    pub predefined: &'a [PredefinedRule],
    /// Flows of applications, by which their packets are told.
    pub applications: &'a Flows,
    /// Tunnels that nothing is sent into: TEID, host order, and address of the far end.
    pub stopped: &'a [(u32, IpAddr)],
}

impl Rules {
    /// How many PDRs, FARs, QERs, URRs and BARs there are.
    pub(crate) fn counts(&self) -> [usize; 5] {
        let Self {
            pdrs,
            fars,
            qers,
            urrs,
            bars,
        } = self;
        [pdrs.len(), fars.len(), qers.len(), urrs.len(), bars.len()]
    }

    /// The part that packets meet.
    pub fn for_packets(&self) -> PacketRules<'_> {
        PacketRules {
            pdrs: &self.pdrs,
            fars: &self.fars,
            qers: &self.qers,
            dormant: &[],
            closed: &[],
            predefined: &[],
            applications: &NO_FLOWS,
            stopped: &[],
        }
    }
}

impl<'a> PacketRules<'a> {
    /// The FAR with this id.
    pub fn far(&self, id: FarId) -> Option<&'a Far> {
        self.fars.iter().find(|far| far.id == id)
    }

    /// Which way the packets of a PDR travel, for gates, bit rates and counters: those that go to
    /// access travel downlink, also if they come from there (TS 23.502, 4.9.1.3: indirect forwarding).
    pub fn travel(&self, pdr: &Pdr) -> Direction {
        let to = pdr.far.and_then(|far| self.far(far)?.forwarding());
        match to {
            Some(to) if to.destination == Interface::Access => Direction::Downlink,
            _ => pdr.direction(),
        }
    }

    /// The PDR in the forms that packets meet, in the order in which they are tried.
    pub(crate) fn effective(&self, pdr: &'a Pdr) -> impl Iterator<Item = EffectivePdr<'a>> {
        predefined::effective(pdr, self.predefined)
    }

    /// As [`Self::travel`]: what goes to a network instance of a predefined rule does not go where the FAR
    /// of the PDR leads.
    pub(crate) fn travel_of(&self, form: EffectivePdr<'_>) -> Direction {
        let route = form.rule().and_then(|rule| rule.route(form.pdr));
        route.map_or_else(|| self.travel(form.pdr), |_| Direction::Uplink)
    }

    /// The QER with this id.
    pub fn qer(&self, id: QerId) -> Option<&'a Qer> {
        self.qers.iter().find(|qer| qer.id == id)
    }
}

/// Packet Detection Rule (TS 29.244, 5.2.1A).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pdr {
    /// Unique within the session.
    pub id: PdrId,
    /// The lowest value is tried first (8.2.11).
    pub precedence: u32,
    /// Packets that it is for.
    pub pdi: Pdi,
    /// The outer GTP-U, UDP and IP headers are taken off.
    pub outer_header_removal: Option<Removal>,
    /// With it, the PDU Session Container goes too where the packet goes on in a tunnel.
    pub container_removal: bool,
    /// FAR for them. `None` where predefined rules have one.
    pub far: Option<FarId>,
    /// QERs that limit and mark them.
    pub qers: SmallVec<[QerId; 4]>,
    /// URRs that measure them.
    pub urrs: SmallVec<[UrrId; 4]>,
}

impl Pdr {
    /// One that is in no session: for a Traffic Endpoint that no PDR names.
    pub(crate) fn lone(pdi: Pdi) -> Self {
        Self {
            id: PdrId(0),
            precedence: 0,
            pdi,
            outer_header_removal: None,
            container_removal: false,
            far: None,
            qers: SmallVec::new(),
            urrs: SmallVec::new(),
        }
    }

    /// Which way its packets come from: uplink ones have the UE as their source, downlink ones as
    /// their destination. For where they go see [`PacketRules::travel`].
    pub fn direction(&self) -> Direction {
        match self.pdi.source {
            Interface::Access => Direction::Uplink,
            Interface::Core | Interface::SgiLan | Interface::CpFunction => Direction::Downlink,
        }
    }

    /// Predefined rules that it activates, in the order in which they are tried.
    pub fn predefined(&self) -> &[PredefinedId] {
        self.pdi.more.as_ref().map_or(&[], |more| &more.predefined)
    }

    pub(crate) fn set_predefined(&mut self, ids: &[PredefinedId]) {
        let mut more = self
            .pdi
            .more
            .take()
            .map_or_else(RarePdi::default, |more| *more);
        more.predefined = ids.into();
        self.pdi.more = more.boxed();
    }

    /// Its packets are found by the UE's address, not by a tunnel.
    pub fn is_found_by_ue(&self) -> bool {
        self.pdi.f_teid.is_none() && self.direction() == Direction::Downlink
    }
}

/// Packet Detection Information (TS 29.244, 5.2.1A.2). All of it must match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pdi {
    /// Source Interface: the side that packets come from.
    pub source: Interface,
    /// Network instance, if the SMF names one that is configured. On the access side, any other
    /// name too is accepted and leads here to `None`: there is one access network.
    pub ni: Option<NiId>,
    /// The tunnel they come in by: on the access side, from the CP function, and from the core where
    /// that is N9. `None` on the access side: any that the session has there.
    pub f_teid: Option<LocalFTeid>,
    /// The UE's address: their source on the access side, else their destination. `None` on the other
    /// side: any that the session has there.
    pub ue: Option<UeIp>,
    /// In a tunnel: they carry one of these. Empty: any, or none.
    pub qfis: QfiSet,
    /// Conditions that few PDIs have.
    pub more: Option<Box<RarePdi>>,
}

/// The part of a [`Pdi`] that most do without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RarePdi {
    /// Any one of these must match. Empty: all packets do.
    pub filters: Box<[SdfFilter]>,
    /// Networks behind the UE (5.16): an address in them is as good as the UE's own.
    pub framed: Box<[IpNet]>,
    /// Predefined rules that are active for it; they stay when the PDI is replaced.
    pub predefined: Box<[PredefinedId]>,
    /// Traffic Endpoint ID: the endpoint that tunnel, addresses and networks are of.
    pub endpoint: Option<u8>,
    /// Application ID: packets must be of a flow of its PFDs. Then there are no filters.
    pub application: Option<Box<str>>,
    /// Conditions that this version does not know.
    pub later: Later,
}

tagged!(RarePdi {
    1: filters,
    2: framed,
    3: predefined,
    4: endpoint,
    5: application,
});

impl Pdi {
    /// Its SDF filters.
    pub fn filters(&self) -> &[SdfFilter] {
        self.more.as_ref().map_or(&[], |more| &more.filters)
    }

    /// The application that it is for.
    pub fn application(&self) -> Option<&str> {
        self.more.as_ref()?.application.as_deref()
    }

    /// Networks behind the UE.
    pub fn framed(&self) -> &[IpNet] {
        self.more.as_ref().map_or(&[], |more| &more.framed)
    }

    /// The Traffic Endpoint that it names.
    pub fn endpoint(&self) -> Option<u8> {
        self.more.as_ref().and_then(|more| more.endpoint)
    }

    /// Whether it says which addresses are the UE's.
    pub fn names_ue(&self) -> bool {
        self.ue.is_some() || !self.framed().is_empty()
    }

    /// Network instance in which the UE's addresses, and the networks behind it, are valid.
    pub fn ni_of_ue(&self) -> NiId {
        self.ue.map(|ue| ue.ni).or(self.ni).unwrap_or(NiId::DEFAULT)
    }

    /// The UE's own addresses.
    pub fn own_nets(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.ue.into_iter().flat_map(UeIp::nets)
    }

    /// All that are, and where they are valid.
    pub fn ue_nets(&self) -> impl Iterator<Item = (NiId, IpNet)> + '_ {
        let ni = self.ni_of_ue();
        self.own_nets()
            .chain(self.framed().iter().copied())
            .map(move |net| (ni, net))
    }

    pub(crate) fn filters_mut(&mut self) -> &mut [SdfFilter] {
        self.more.as_mut().map_or(&mut [], |more| &mut more.filters)
    }
}

impl RarePdi {
    /// `None` when there is nothing in it.
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// Source or Destination Interface (TS 29.244, 8.2.2, 8.2.24), as far as we serve them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Interface {
    /// N3.
    Access,
    /// N6, and N9 where there is a tunnel.
    Core,
    /// N6.
    SgiLan,
    /// A tunnel to the SMF, for router solicitations and the like.
    CpFunction,
}

/// Outer Header Removal (TS 29.244, 8.2.64) of GTP-U, UDP and IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// IPv4; the F-TEID has an IPv4 address.
    Ipv4,
    /// IPv6; the F-TEID has an IPv6 address.
    Ipv6,
    /// Whichever there is.
    Either,
}

/// Our end of a tunnel (TS 29.244, 8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFTeid {
    /// The TEID, which holds for all of our addresses.
    pub teid: LocalTeid,
    /// The addresses that the SMF knows.
    pub ends: LocalEnds,
    /// CHOOSE ID: for which the TEID was chosen.
    pub choose_id: Option<u8>,
}

/// Addresses of an F-TEID, by their places in the configured N3 addresses; one is there at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalEnds {
    /// IPv4.
    pub v4: Option<u8>,
    /// IPv6.
    pub v6: Option<u8>,
}

/// UE IP Address (TS 29.244, 8.2.62).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeIp {
    /// Network instance in which the address is valid.
    pub ni: NiId,
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 prefix, of 1 to 128 bits, zeros beyond.
    pub v6: Option<Ipv6Net>,
    /// We allocated `v4`.
    pub chosen4: bool,
    /// We allocated `v6`.
    pub chosen6: bool,
}

impl UeIp {
    /// As prefixes.
    pub fn nets(self) -> impl Iterator<Item = IpNet> {
        let v4 = self.v4.map(|addr| IpNet::V4(Ipv4Net::from(addr)));
        v4.into_iter().chain(self.v6.map(IpNet::V6))
    }
}

/// SDF Filter (TS 29.244, 8.2.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdfFilter {
    /// SDF Filter ID, by which other PDRs of the session may refer to the same filter: it is
    /// bidirectional then.
    pub id: Option<u32>,
    /// All that it asks for.
    pub asks: Conditions,
}

/// Conditions of an SDF filter on packets. None at all: every packet meets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Flow Description.
    pub flow: Option<FlowDescription>,
    /// ToS or Traffic Class, and which of its bits are compared.
    pub tos: Option<(u8, u8)>,
    /// Security Parameter Index of ESP or AH.
    pub spi: Option<u32>,
    /// IPv6 Flow Label, 20 bits.
    pub label: Option<u32>,
    /// Conditions that this version does not know.
    pub later: Later,
}

tagged!(Conditions {
    1: flow,
    2: tos,
    3: spi,
    4: label,
});

impl SdfFilter {
    /// It says nothing but the id of the filter that is meant.
    pub(crate) fn is_reference(&self) -> bool {
        self.id.is_some() && self.asks.is_empty()
    }
}

impl Conditions {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many table filters they take.
    pub fn flow_count(&self) -> usize {
        self.flow.as_ref().map_or(1, FlowDescription::flow_count)
    }

    /// As packets of `direction` show them. Nothing for conditions that every packet meets.
    pub(crate) fn flows(&self, direction: Direction) -> impl Iterator<Item = Flow> + '_ {
        let described = self.flow.iter().flat_map(move |flow| flow.flows(direction));
        let bare = (self.flow.is_none() && !self.is_empty()).then(Flow::default);
        described.chain(bare).map(|flow| Flow {
            tos: self.tos,
            spi: self.spi,
            label: self.label,
            ..flow
        })
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            write!(f, "{}{text}", std::mem::replace(&mut separator, ", "))
        };
        if let Some(flow) = &self.flow {
            part(f, format_args!("{flow}"))?;
        }
        if let Some((tos, mask)) = self.tos {
            part(f, format_args!("ToS {tos:#04x}/{mask:#04x}"))?;
        }
        if let Some(spi) = self.spi {
            part(f, format_args!("SPI {spi:#010x}"))?;
        }
        if let Some(label) = self.label {
            part(f, format_args!("flow label {label:#07x}"))?;
        }
        if self.is_empty() {
            f.write_str("any")?;
        }
        Ok(())
    }
}

/// Forwarding Action Rule (TS 29.244, 5.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// Unique within the session.
    pub id: FarId,
    /// Apply Action.
    pub apply: Apply,
    /// Destinations; kept while the action is another.
    pub targets: Targets,
    /// How to buffer.
    pub bar: Option<BarId>,
    /// Which of our addresses packets into a tunnel come from.
    pub through: TunnelNetworkId,
}

/// A tunnel that a FAR has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftTunnel {
    pub(crate) tunnel: RemoteFTeid,
    /// As [`Far::through`].
    pub(crate) through: TunnelNetworkId,
}

/// Apply Action (TS 29.244, 8.2.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Apply {
    /// DROP.
    Drop,
    /// FORW.
    Forward,
    /// BUFF.
    Buffer {
        /// NOCP.
        notify: bool,
    },
}

/// Forwarding Parameters (TS 29.244, table 7.5.2.3-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    /// Which side.
    pub destination: Interface,
    /// Towards the core: whose routes. Towards access: any name leads to `None`, see [`Pdi::ni`].
    pub ni: Option<NiId>,
    /// Outer Header Creation.
    pub tunnel: Option<RemoteFTeid>,
    /// Outer Header Creation names what can be no tunnel: TEID 0, no host's address, or a family that we lack there. SMFs
    /// send that in FARs that do not forward; it is refused when one does.
    pub is_unusable: bool,
    /// Transport Level Marking; `None` too where its mask has no bit.
    pub marking: Option<Marking>,
}

/// The other end of a tunnel (TS 29.244, 8.2.56). One address is there at least; of two we choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "RemoteParts", from = "RemoteParts")]
pub struct RemoteFTeid {
    teid: NonZeroU32,
    /// Unspecified: none.
    v4: Ipv4Addr,
    /// Unspecified: none.
    v6: Ipv6Addr,
}

/// Place of a [`TunnelNetwork`](crate::rules::config::TunnelNetwork); beyond the last one: all of our addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TunnelNetworkId(pub u8);

/// TEID and addresses as they are written: an address that is not there takes an octet.
type RemoteParts = (NonZeroU32, Option<Ipv4Addr>, Option<Ipv6Addr>);

impl From<RemoteFTeid> for RemoteParts {
    fn from(end: RemoteFTeid) -> Self {
        (end.teid, end.v4(), end.v6())
    }
}

impl From<RemoteParts> for RemoteFTeid {
    fn from((teid, v4, v6): RemoteParts) -> Self {
        Self::new(teid, v4, v6)
    }
}

impl RemoteFTeid {
    /// An unspecified address is none.
    pub fn new(teid: NonZeroU32, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Self {
        Self {
            teid,
            v4: v4.unwrap_or(Ipv4Addr::UNSPECIFIED),
            v6: v6.unwrap_or(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// TEID, host order.
    pub fn teid(self) -> u32 {
        self.teid.get()
    }

    /// IPv4 address.
    pub fn v4(self) -> Option<Ipv4Addr> {
        Some(self.v4).filter(|addr| !addr.is_unspecified())
    }

    /// IPv6 address.
    pub fn v6(self) -> Option<Ipv6Addr> {
        Some(self.v6).filter(|addr| !addr.is_unspecified())
    }

    /// The addresses that there are, IPv4 first.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let v6 = self.v6().map(IpAddr::V6);
        self.v4().map(IpAddr::V4).into_iter().chain(v6)
    }
}

/// QoS Enforcement Rule (TS 29.244, 5.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qer {
    /// Unique within the session.
    pub id: QerId,
    /// Gate Status (8.2.7).
    pub gate: Gate,
    /// Maximum bit rate (8.2.8). `None`: unlimited.
    pub mbr: Option<Mbr>,
    /// QFI that downlink packets are marked with.
    pub qfi: Option<Qfi>,
    /// IEs that few QERs have.
    pub rare: Option<Box<RareQer>>,
}

/// IEs that few QERs have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareQer {
    /// RQI (8.2.88) and Paging Policy Indicator (8.2.116): what downlink packets carry.
    pub marks: Marks,
    /// Guaranteed bit rate (8.2.9). It takes effect where capacities are configured.
    pub gbr: Option<Mbr>,
    /// Averaging Window (8.2.115) of both rates, in milliseconds: what may pass back to back. `None`: as configured.
    pub averaging_ms: Option<NonZeroU32>,
    /// Packet Rate (8.2.63), uplink. `None`: unlimited.
    pub uplink_packets: Option<PacketRate>,
    /// Downlink.
    pub downlink_packets: Option<PacketRate>,
    /// IEs that this version does not know.
    pub later: Later,
}

tagged!(RareQer {
    1: marks,
    2: gbr,
    3: averaging_ms,
    4: uplink_packets,
    5: downlink_packets,
});

/// Gate Status (TS 29.244, 8.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Uplink packets may pass.
    pub uplink_open: bool,
    /// Downlink packets may pass.
    pub downlink_open: bool,
}

/// MBR or GBR (TS 29.244, 8.2.8, 8.2.9), in kbit/s as sent: 40 bits for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mbr([[u8; 5]; 2]);

impl Mbr {
    /// A rate of more than 40 bits becomes the largest.
    pub fn new(uplink_kbps: u64, downlink_kbps: u64) -> Self {
        Self([uplink_kbps, downlink_kbps].map(|kbps| {
            let [_, _, _, octets @ ..] = kbps.min((1 << 40) - 1).to_be_bytes();
            octets
        }))
    }

    /// Of one direction.
    pub fn kbps(self, direction: Direction) -> u64 {
        let [uplink, downlink] = self.0;
        let [a, b, c, d, e] = match direction {
            Direction::Uplink => uplink,
            Direction::Downlink => downlink,
        };
        u64::from_be_bytes([0, 0, 0, a, b, c, d, e])
    }
}

impl Qer {
    /// Whether packets of `direction` may pass.
    pub fn is_open(&self, direction: Direction) -> bool {
        match direction {
            Direction::Uplink => self.gate.uplink_open,
            Direction::Downlink => self.gate.downlink_open,
        }
    }

    /// Marks that downlink packets carry beside the QFI.
    pub fn marks(&self) -> Marks {
        self.rare.as_ref().map_or_else(Marks::default, |r| r.marks)
    }

    /// The packet rate of `direction`.
    pub fn packet_rate(&self, direction: Direction) -> Option<PacketRate> {
        let rare = self.rare.as_deref()?;
        match direction {
            Direction::Uplink => rare.uplink_packets,
            Direction::Downlink => rare.downlink_packets,
        }
    }

    /// Averaging Window of its rates, where the SMF gives one.
    pub fn averaging_ms(&self) -> Option<NonZeroU32> {
        self.rare.as_ref()?.averaging_ms
    }

    /// Guaranteed rate of `direction`; not 0.
    pub fn gbr_kbps(&self, direction: Direction) -> Option<u64> {
        let gbr = self.rare.as_ref()?.gbr?.kbps(direction);
        (gbr > 0).then_some(gbr)
    }

    /// The limit of `direction`.
    pub fn mbr_kbps(&self, direction: Direction) -> Option<u64> {
        self.mbr.map(|mbr| mbr.kbps(direction))
    }
}

/// Usage Reporting Rule (TS 29.244, 5.2.2). What was measured is not here, but in the session's `Usage`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Urr {
    /// Unique within the session.
    pub id: UrrId,
    /// Its content; shared, because each request works on a copy of a session's rules.
    pub asks: Arc<Asks>,
}

/// Buffering Action Rule (TS 29.244, 5.2.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// Unique within the session.
    pub id: BarId,
    /// Downlink Data Notification Delay (8.2.28), in units of 50 ms.
    pub delay: u8,
    /// Suggested Buffering Packets Count (8.2.100): what arrives beyond it is dropped.
    pub packets: Option<u16>,
}

/// Common part of all kinds of rules.
pub(crate) trait Rule {
    type Id: Copy + Eq;
    fn id(&self) -> Self::Id;
    fn named(id: Self::Id) -> RuleId;
}

macro_rules! rule {
    ($($rule:ident $id:ident,)*) => {
        $(
            impl Rule for $rule {
                type Id = $id;
                fn id(&self) -> $id {
                    self.id
                }
                fn named(id: $id) -> RuleId {
                    RuleId::$rule(id)
                }
            }
        )*
    };
}

rule! { Pdr PdrId, Far FarId, Qer QerId, Urr UrrId, Bar BarId, }
