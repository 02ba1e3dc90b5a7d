//! The rules, taken at their word: slow, obvious, and the judge of everything that is fast.
//!
//! It knows nothing of keys, lists, entries or meters' places. It goes through the PDRs in the order
//! of their precedence and asks each whether the packet is its own.

use std::net::IpAddr;

use compiled::{Direction, Marks, NiId, PacketRate, PdrId, PolicyId, Qfi};
use testkit::packets::{Arrival, Packet};

use crate::base::flow::{Address, End, FlowDescription};
use crate::rules::predefined::{PredefinedFar, PredefinedRule};
use crate::rules::{Apply, Far, Interface, PacketRules, Pdi, Pdr, Qer, SdfFilter, UeIp};

/// Outcome for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No PDR of this session wants it.
    NoPdr,
    /// This one does.
    Pdr {
        /// The PDR.
        id: PdrId,
        /// Its treatment by FAR and QERs.
        fate: Fate,
        /// Maximum bit rates that it must conform to, in kbit/s, sorted. Of those that hold for
        /// this PDR alone only the lowest: it is the one that decides.
        limits_kbps: Vec<u64>,
        /// Packet Rate.
        packet_rate: Option<PacketRate>,
        /// Ends of its duplicates, unless a gate or a rate keeps it from its FAR: TEID, or port of UDP alone, and
        /// address.
        duplicates: Vec<(u32, IpAddr)>,
    },
}

/// Treatment of a packet by a PDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// FAR DROP.
    Dropped,
    /// FORW towards access, without a tunnel.
    NoTunnel,
    /// FAR BUFF.
    Buffered,
    /// A closed gate.
    GateClosed,
    /// Plain IP into a network instance.
    Routed(NiId),
    /// Plain IP, the way of a forwarding policy for packets of a network instance.
    Steered(NiId, PolicyId),
    /// GTP-U: TEID, gNB, and what the PDU Session Container says. Of two addresses of a gNB the IPv4
    /// one, as both have a route here.
    Tunnelled(u32, IpAddr, Option<(Qfi, Marks)>),
    /// UDP without GTP-U: port, and address as above.
    InUdp(u32, IpAddr),
    /// The rules contradict themselves; such rules are refused.
    Absurd,
}

/// Verdict of the rules of one session on a packet.
pub fn judge(rules: PacketRules<'_>, packet: &Packet) -> Verdict {
    let mut by_precedence: Vec<&Pdr> = rules.pdrs.iter().collect();
    by_precedence.sort_by_key(|pdr| (pdr.precedence, pdr.id));
    let candidates: Vec<Candidate<'_>> = by_precedence
        .into_iter()
        .flat_map(|pdr| candidates(rules, pdr))
        .collect();
    let detects = |(pdr, predefined): &&Candidate<'_>| {
        !rules.dormant.contains(&pdr.id)
            && detects(rules.pdrs, &pdr.pdi, packet)
            && is_of_application(rules, pdr, packet)
            && predefined.is_none_or(|rule| asks_for(rule, pdr, packet))
    };
    let detecting: Vec<Candidate<'_>> = candidates.iter().filter(detects).copied().collect();
    let steps_aside = |at: usize| {
        let of_network = matches!(packet.arrival, Arrival::Network { .. });
        let mut later = detecting[at + 1..].iter();
        of_network
            && awaits_tunnel(rules, detecting[at])
            && later.any(|&of| has_the_rest(rules, of))
    };
    let first = (0..detecting.len()).find(|&at| !steps_aside(at));
    let Some((pdr, predefined)) = first.map(|at| detecting[at]) else {
        return Verdict::NoPdr;
    };
    let direction = travel(rules, (pdr, predefined));
    let mut qers: Vec<&Qer> = predefined.iter().filter_map(|r| r.qer.as_ref()).collect();
    qers.extend(pdr.qers.iter().filter_map(|&id| rules.qer(id)));
    let also_of_others = |id| {
        let alike = candidates
            .iter()
            .filter(|&&c| travel(rules, c) == direction);
        let with_it = alike.filter(|(pdr, predefined)| {
            let own = predefined.and_then(|rule| rule.qer.as_ref());
            pdr.qers.contains(&id) || own.is_some_and(|qer| qer.id == id)
        });
        with_it.count() > 1
    };
    let (shared, own): (Vec<&Qer>, Vec<&Qer>) = qers.iter().partition(|q| also_of_others(q.id));
    let kbps = |qer: &&Qer| qer.mbr_kbps(direction);
    let mut limits_kbps: Vec<u64> = shared.iter().filter_map(kbps).collect();
    limits_kbps.extend(own.iter().filter_map(kbps).min());
    limits_kbps.sort_unstable();
    let gate_open = qers.iter().all(|qer| qer.is_open(direction));
    let fate = if gate_open {
        fate(rules, pdr, predefined, &qers, packet.arrival)
    } else {
        Fate::GateClosed
    };
    Verdict::Pdr {
        id: pdr.id,
        fate,
        limits_kbps,
        packet_rate: qers.iter().find_map(|qer| qer.packet_rate(direction)),
        // A predefined rule that says what to do takes the FAR's place.
        duplicates: if gate_open
            && routed_by(predefined, pdr).is_none()
            && predefined.is_none_or(|rule| rule.far != PredefinedFar::Drop)
        {
            duplicates(rules, pdr)
        } else {
            Vec::new()
        },
    }
}

fn duplicates(rules: PacketRules<'_>, pdr: &Pdr) -> Vec<(u32, IpAddr)> {
    let mut all = Vec::new();
    for duplicate in pdr
        .far
        .and_then(|id| rules.far(id))
        .map_or(&[][..], Far::duplicates)
    {
        let address = match (duplicate.to.v4(), duplicate.to.v6()) {
            (Some(v4), _) => v4.into(),
            (None, Some(v6)) => v6.into(),
            (None, None) => continue,
        };
        all.push((duplicate.to.teid(), address));
    }
    all
}

/// A PDR, or what it is with one of its predefined rules.
type Candidate<'a> = (&'a Pdr, Option<&'a PredefinedRule>);

fn candidates<'a>(rules: PacketRules<'a>, pdr: &'a Pdr) -> Vec<Candidate<'a>> {
    let active = pdr.predefined();
    if active.is_empty() {
        return vec![(pdr, None)];
    }
    let all = rules.predefined.iter().enumerate();
    let named = all.filter(|(place, _)| active.iter().any(|id| id.place() == *place));
    let mut own: Vec<_> = named
        .filter(|(_, rule)| match rule.direction {
            None => true,
            Some(Direction::Uplink) => pdr.pdi.source == Interface::Access,
            Some(Direction::Downlink) => pdr.pdi.source != Interface::Access,
        })
        .map(|(_, rule)| rule)
        .collect();
    own.sort_by_key(|rule| rule.precedence);
    own.into_iter().map(|rule| (pdr, Some(rule))).collect()
}

/// BUFF, and nothing says where to.
fn awaits_tunnel(rules: PacketRules<'_>, (pdr, _): Candidate<'_>) -> bool {
    let far = pdr.far.and_then(|id| rules.far(id));
    let buffers = |far: &Far| matches!(far.apply, Apply::Buffer { .. });
    pdr.predefined().is_empty() && far.is_some_and(|far| buffers(far) && far.forwarding().is_none())
}

/// FORW into a tunnel, or BUFF and NOCP, of whatever comes.
fn has_the_rest(rules: PacketRules<'_>, (pdr, _): Candidate<'_>) -> bool {
    let any = pdr.pdi.filters().is_empty() && pdr.pdi.application().is_none();
    let is_open = |&id| {
        rules
            .qer(id)
            .is_none_or(|qer| qer.is_open(Direction::Downlink))
    };
    let passes = pdr.qers.iter().all(is_open) && !rules.closed.iter().any(|(of, _)| *of == pdr.id);
    let far = pdr.far.and_then(|id| rules.far(id));
    let tells = far.is_some_and(|far| far.apply == Apply::Buffer { notify: true });
    let to = far
        .filter(|far| far.apply == Apply::Forward)
        .and_then(Far::forwarding);
    let goes_on = tells || to.is_some_and(|to| to.tunnel.is_some());
    any && pdr.predefined().is_empty() && goes_on && passes
}

/// Whether one of its application's flows is the packet's, if it names one.
fn is_of_application(rules: PacketRules<'_>, pdr: &Pdr, packet: &Packet) -> bool {
    let Some(name) = pdr.pdi.application() else {
        return true;
    };
    let flows = rules.applications.get(name);
    flows.is_some_and(|flows| {
        let meets = |flow| flow_matches(flow, pdr.direction(), packet);
        flows.iter().any(meets)
    })
}

fn asks_for(rule: &PredefinedRule, pdr: &Pdr, packet: &Packet) -> bool {
    let meets = |flow| flow_matches(flow, pdr.direction(), packet);
    rule.flows.is_empty() || rule.flows.iter().any(meets)
}

/// The network instance that a predefined rule sends packets of the PDR to.
fn routed_by(predefined: Option<&PredefinedRule>, pdr: &Pdr) -> Option<NiId> {
    match predefined?.far {
        PredefinedFar::Route(ni) if pdr.pdi.source == Interface::Access => Some(ni),
        _ => None,
    }
}

fn travel(rules: PacketRules<'_>, (pdr, predefined): Candidate<'_>) -> Direction {
    if routed_by(predefined, pdr).is_none() && leads_to_access(rules, pdr) {
        Direction::Downlink
    } else {
        pdr.direction()
    }
}

fn leads_to_access(rules: PacketRules<'_>, pdr: &Pdr) -> bool {
    let far = rules.fars.iter().find(|far| Some(far.id) == pdr.far);
    far.and_then(Far::forwarding)
        .is_some_and(|to| to.destination == Interface::Access)
}

fn fate(
    rules: PacketRules<'_>,
    pdr: &Pdr,
    predefined: Option<&PredefinedRule>,
    qers: &[&Qer],
    arrival: Arrival,
) -> Fate {
    if let Some(ni) = routed_by(predefined, pdr) {
        return Fate::Routed(ni);
    }
    if predefined.is_some_and(|rule| rule.far == PredefinedFar::Drop) {
        return Fate::Dropped;
    }
    let Some(far) = pdr.far.and_then(|id| rules.far(id)) else {
        return Fate::Absurd;
    };
    let Some(forwarding) = far.forwarding().filter(|_| far.apply == Apply::Forward) else {
        return match far.apply {
            Apply::Drop => Fate::Dropped,
            Apply::Buffer { .. } => Fate::Buffered,
            Apply::Forward => Fate::Absurd,
        };
    };
    if let Some(udp) = far.udp() {
        let of_tunnel = matches!(arrival, Arrival::Tunnel { .. });
        return match (udp.v4(), udp.v6()) {
            _ if of_tunnel && pdr.outer_header_removal.is_none() => Fate::Absurd,
            (Some(v4), _) => Fate::InUdp(udp.teid(), v4.into()),
            (None, Some(v6)) => Fate::InUdp(udp.teid(), v6.into()),
            (None, None) => Fate::Absurd,
        };
    }
    match forwarding.tunnel {
        None if forwarding.is_unusable => Fate::Absurd,
        Some(tunnel) => {
            let mut qfis: Vec<Qfi> = qers.iter().filter_map(|qer| qer.qfi).collect();
            // Stable: the first that is not zero, else the first.
            qfis.sort_by_key(|qfi| qfi.get() == 0);
            let marks = match arrival {
                Arrival::Network { .. } => Marks {
                    rqi: qers.iter().any(|qer| qer.marks().rqi),
                    ppi: qers.iter().find_map(|qer| qer.marks().ppi),
                },
                Arrival::Tunnel { .. } => Marks::default(),
            };
            // From tunnel to tunnel the container goes along, unless it is to be taken off.
            let brought = match arrival {
                Arrival::Tunnel { qfi, .. } if !pdr.container_removal => qfi,
                _ => None,
            };
            let to_smf = forwarding.destination == Interface::CpFunction;
            let qfi = qfis.first().copied().or(brought).filter(|_| !to_smf);
            let peer = match (tunnel.v4(), tunnel.v6()) {
                (Some(v4), _) => v4.into(),
                (None, Some(v6)) => v6.into(),
                (None, None) => return Fate::Absurd,
            };
            Fate::Tunnelled(tunnel.teid(), peer, qfi.map(|qfi| (qfi, marks)))
        }
        None if forwarding.destination == Interface::Access => Fate::NoTunnel,
        None => {
            let ni = forwarding.ni.or(pdr.pdi.ni).unwrap_or(NiId(0));
            match far.policy() {
                Some(policy) => Fate::Steered(ni, policy),
                None => Fate::Routed(ni),
            }
        }
    }
}

fn detects(pdrs: &[Pdr], pdi: &Pdi, packet: &Packet) -> bool {
    let of_session = |own: &dyn Fn(&Pdi) -> bool| pdrs.iter().any(|pdr| own(&pdr.pdi));
    let filtered = |direction| {
        pdi.filters().is_empty()
            || pdi
                .filters()
                .iter()
                .any(|f| filter_matches(f, direction, packet))
    };
    let (ue, direction) = match pdi.source {
        Interface::Access => (packet.src, Direction::Uplink),
        Interface::Core | Interface::SgiLan | Interface::CpFunction => {
            (packet.dst, Direction::Downlink)
        }
    };
    // With networks behind the UE and no address of its own, an uplink PDI means that of the session too.
    let named = |pdi: &Pdi| match pdrs.iter().find(|pdr| pdr.pdi.ue.is_some()) {
        Some(other) if pdi.ue.is_none() && direction == Direction::Uplink => other.pdi.ue,
        _ => pdi.ue,
    };
    let arrives = match packet.arrival {
        Arrival::Tunnel { teid, qfi } => {
            let is_tunnel = |pdi: &Pdi| pdi.f_teid.is_some_and(|own| own.teid.teid.get() == teid);
            let is_access = |pdi: &Pdi| pdi.source == Interface::Access;
            let left_open = pdi.f_teid.is_none() && is_access(pdi);
            (is_tunnel(pdi) || left_open && of_session(&|pdi| is_access(pdi) && is_tunnel(pdi)))
                && (pdi.qfis.is_empty() || qfi.is_some_and(|qfi| pdi.qfis.contains(qfi)))
                && (!pdi.names_ue()
                    || is_ue(named(pdi), ue)
                    || of_session(&|pdi| is_behind(pdi, ue)))
        }
        Arrival::Network { ni } => {
            let valid_in = |pdi: &Pdi| pdi.ue.map(|own| own.ni).or(pdi.ni).unwrap_or(NiId(0));
            let is_address =
                |pdi: &Pdi| valid_in(pdi) == ni && (is_ue(pdi.ue, ue) || is_behind(pdi, ue));
            let left_open = !pdi.names_ue() && pdi.ni.is_none_or(|own| own == ni);
            direction == Direction::Downlink
                && pdi.f_teid.is_none()
                && (is_address(pdi) || left_open && of_session(&is_address))
        }
    };
    arrives && filtered(direction)
}

fn is_behind(pdi: &Pdi, addr: IpAddr) -> bool {
    pdi.framed().iter().any(|net| net.contains(&addr))
}

fn is_ue(ue: Option<UeIp>, addr: IpAddr) -> bool {
    let Some(ue) = ue else { return false };
    match addr {
        IpAddr::V4(addr) => ue.v4 == Some(addr),
        IpAddr::V6(addr) => ue.v6.is_some_and(|prefix| prefix.contains(&addr)),
    }
}

fn filter_matches(filter: &SdfFilter, direction: Direction, packet: &Packet) -> bool {
    let asks = &filter.asks;
    asks.flow
        .as_ref()
        .is_none_or(|flow| flow_matches(flow, direction, packet))
        && asks
            .tos
            .is_none_or(|(tos, mask)| (packet.tos ^ tos) & mask == 0)
        && (asks.spi.is_none() || asks.spi == packet.spi)
        && (asks.label.is_none() || packet.src.is_ipv6() && asks.label == Some(packet.label))
}

fn flow_matches(flow: &FlowDescription, direction: Direction, packet: &Packet) -> bool {
    let (src_port, dst_port) = packet.ports.unzip();
    let (remote, ue) = match direction {
        Direction::Downlink => ((packet.src, src_port), (packet.dst, dst_port)),
        Direction::Uplink => ((packet.dst, dst_port), (packet.src, src_port)),
    };
    flow.proto.is_none_or(|proto| proto == packet.proto)
        && end_matches(&flow.remote, remote)
        && end_matches(&flow.ue, ue)
}

fn end_matches(end: &End, (addr, port): (IpAddr, Option<u16>)) -> bool {
    let address = match end.address {
        Address::Any | Address::Assigned => true,
        Address::Net(net) => net.contains(&addr),
    };
    let port_fits = |port| {
        end.ports
            .iter()
            .any(|&(low, high)| low <= port && port <= high)
    };
    address && (end.ports.is_empty() || port.is_some_and(port_fits))
}
