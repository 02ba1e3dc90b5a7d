//! A session as operators see it, in plain values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use compiled::{Counters, Direction, PacketRate, PdrId, PredefinedId};
use ipnet::{IpNet, Ipv6Net};
use pfcp::ie::{MeasurementMethod, ReportingTriggers};

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::rules::config::PredefinedFar;
use crate::rules::predefined::{self, PredefinedRule};
use crate::rules::site::Site;
use crate::rules::summary::{SessionSummary, ue_nets};
use crate::rules::{Apply, Asks, Far, Interface, Mbr, Pdr, Qer, Rules};
use crate::usage::amount::Amount;
use crate::usage::measured::Measured;

/// One session with its rules and counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The session in a line, as lists show it.
    pub summary: SessionSummary,
    /// In order of creation.
    pub pdrs: Vec<PdrView>,
    /// In order of creation.
    pub fars: Vec<FarView>,
    /// In order of creation.
    pub qers: Vec<QerView>,
    /// In order of creation.
    pub urrs: Vec<UrrView>,
    /// BAR IDs. Not yet used.
    pub bars: Vec<u8>,
    /// User Plane Inactivity Timer, in seconds.
    pub inactivity_s: Option<u32>,
}

/// Counts of a session's packets, for whoever reads those of many sessions again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCounts {
    /// Our SEID.
    pub seid: u64,
    /// The UE's addresses, as prefixes; without what is behind it.
    pub ue: Vec<IpNet>,
    /// Network instance in which packets find the UE; else the one that its packets go to.
    pub network_instance: Option<String>,
    /// Of each PDR.
    pub pdrs: Vec<(PdrId, Direction, Counters)>,
}

/// A PDR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdrView {
    /// PDR ID.
    pub id: PdrId,
    /// The lowest value is tried first.
    pub precedence: u32,
    /// Which way its packets go.
    pub direction: Direction,
    /// Source Interface.
    pub source: &'static str,
    /// Network instance, where it is one of ours.
    pub network_instance: Option<String>,
    /// Our end of the tunnel, with the addresses that the SMF knows.
    pub f_teid: Option<(u32, Vec<IpAddr>)>,
    /// UE IPv4 address.
    pub ue4: Option<Ipv4Addr>,
    /// UE IPv6 prefix.
    pub ue6: Option<Ipv6Net>,
    /// Networks behind the UE.
    pub framed: Vec<IpNet>,
    /// Uplink: the QFIs of which packets carry one.
    pub qfis: Vec<u8>,
    /// Conditions of each SDF filter; `any` for one without.
    pub filters: Vec<String>,
    /// The tunnel header is taken off.
    pub outer_header_removal: bool,
    /// FAR ID; `None` where predefined rules say what happens.
    pub far: Option<u32>,
    /// QER IDs.
    pub qers: Vec<u32>,
    /// URR IDs.
    pub urrs: Vec<u32>,
    /// Predefined rules that it activates, in the order in which they are tried.
    pub predefined: Vec<PredefinedView>,
    /// Its Activation Time is to come, or its Deactivation Time has passed: packets do not meet it.
    pub dormant: bool,
    /// Counts of its packets.
    pub counters: Counters,
}

/// A predefined rule that a PDR activates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredefinedView {
    /// Which it is, as traces name it.
    pub id: PredefinedId,
    /// As it is activated.
    pub name: String,
    /// Any of these must match, beside what the PDR asks for; none: all packets do.
    pub flows: Vec<String>,
    /// Of its FAR, if it has one.
    pub action: Option<&'static str>,
    /// Network instance of its FAR, by name.
    pub network_instance: Option<String>,
    /// Its QER, if it has one; the ID is ours.
    pub qer: Option<QerView>,
    /// Counts of its packets: a part of those of the PDR.
    pub counters: Counters,
}

/// A FAR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarView {
    /// FAR ID.
    pub id: u32,
    /// Apply Action.
    pub action: &'static str,
    /// Destination Interface.
    pub destination: Option<&'static str>,
    /// Network instance, where it is one of ours.
    pub network_instance: Option<String>,
    /// The other end of the tunnel, with the addresses that the SMF gave.
    pub tunnel: Option<(u32, Vec<IpAddr>)>,
    /// The same of UDP without GTP-U: port in place of the TEID.
    pub udp: Option<(u32, Vec<IpAddr>)>,
    /// Transport Level Marking: value and mask.
    pub marking: Option<(u8, u8)>,
    /// Forwarding Policy.
    pub policy: Option<String>,
    /// BAR ID.
    pub bar: Option<u8>,
}

/// A QER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QerView {
    /// QER ID.
    pub id: u32,
    /// Gate, uplink.
    pub uplink_open: bool,
    /// Gate, downlink.
    pub downlink_open: bool,
    /// MBR, uplink and downlink, in kbit/s.
    pub mbr_kbps: Option<(u64, u64)>,
    /// GBR, uplink and downlink, in kbit/s.
    pub gbr_kbps: Option<(u64, u64)>,
    /// Averaging Window, in milliseconds.
    pub averaging_ms: Option<u32>,
    /// Packet Rate, uplink and downlink.
    pub packet_rates: [Option<PacketRate>; 2],
    /// QoS Flow Identifier.
    pub qfi: Option<u8>,
    /// Downlink packets ask for Reflective QoS.
    pub rqi: bool,
    /// Paging Policy Indicator of downlink packets.
    pub ppi: Option<u8>,
}

/// A URR and what it has measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrrView {
    /// URR ID.
    pub id: u32,
    /// Measurement Method (TS 29.244, 8.2.40).
    pub method: MeasurementMethod,
    /// When it reports (8.2.19).
    pub triggers: ReportingTriggers,
    /// Measurement Period, in seconds.
    pub period_s: Option<u32>,
    /// UR-SEQN of the next report: how many there were.
    pub seqn: u32,
    /// When the present measurement began: with the last report.
    pub since: Time,
    /// Octets and packets since then.
    pub used: Amount,
    /// Octets since then at which it reports: total, uplink, downlink.
    pub threshold: [Option<u64>; 3],
    /// Octets since then at which nothing passes any more.
    pub quota: [Option<u64>; 3],
    /// Seconds measured since then, without the present run; and since when that is.
    pub time: Option<(Duration, Option<Time>)>,
    /// Left of the time quota when the present measurement began.
    pub time_quota: Option<Duration>,
    /// A quota is exhausted: its PDRs let nothing pass, or what its own FAR says.
    pub exhausted: bool,
    /// A report is due, and waits for its turn.
    pub pending: bool,
}

impl UrrView {
    pub(crate) fn new(urr: &Measured, asks: &Asks, more: Amount) -> Self {
        let mut used = urr.used;
        for direction in [0, 1] {
            used.bytes[direction] += more.bytes[direction];
            used.packets[direction] += more.packets[direction];
        }
        let clock = urr.quotas.as_ref().filter(|_| asks.measures_time());
        Self {
            id: urr.id.0,
            method: asks.method,
            triggers: asks.triggers,
            period_s: (asks.period_s > 0).then_some(asks.period_s),
            seqn: urr.seqn,
            since: urr.since,
            used,
            threshold: urr.threshold(asks).shown(),
            quota: urr.quota().shown(),
            time: clock.map(|more| more.clock()),
            time_quota: clock.and_then(|more| more.time_quota()),
            exhausted: urr.is_closed(),
            pending: !urr.pending.is_empty(),
        }
    }

    /// Seconds measured since the last report.
    pub fn seconds(&self, now: Time) -> Option<u64> {
        let (ran, running) = self.time?;
        let run = running.map_or(Duration::ZERO, |since| now.since(since));
        Some((ran + run).as_secs())
    }
}

impl SessionView {
    pub(crate) fn new(
        seid: u64,
        cp_seid: u64,
        peer: PeerId,
        rules: &Rules,
        site: &Site,
        counters: impl Fn(PdrId, Option<PredefinedId>) -> Counters,
    ) -> Self {
        Self {
            summary: SessionSummary::new(seid, cp_seid, peer, &rules.pdrs, rules.counts()),
            pdrs: rules
                .pdrs
                .iter()
                .map(|pdr| PdrView::new(rules, pdr, site, &|rule| counters(pdr.id, rule)))
                .collect(),
            fars: rules
                .fars
                .iter()
                .map(|far| FarView::new(far, site))
                .collect(),
            qers: rules.qers.iter().map(QerView::new).collect(),
            urrs: Vec::new(),
            bars: rules.bars.iter().map(|bar| bar.id.0).collect(),
            inactivity_s: None,
        }
    }
}

impl SessionCounts {
    pub(crate) fn new(
        seid: u64,
        rules: &Rules,
        site: &Site,
        counters: impl Fn(PdrId) -> Counters,
    ) -> Self {
        let packet_rules = rules.for_packets();
        let by_ue = rules.pdrs.iter().filter(|pdr| pdr.is_found_by_ue());
        let routes = rules.fars.iter().filter_map(Far::forwarding);
        let outwards = routes.filter(|to| to.tunnel.is_none());
        let ni = by_ue
            .filter_map(|pdr| pdr.pdi.ni)
            .chain(outwards.filter_map(|to| to.ni))
            .next();
        Self {
            seid,
            ue: ue_nets(&rules.pdrs),
            network_instance: ni.and_then(|ni| site.name(ni)).map(str::to_owned),
            pdrs: (rules.pdrs.iter())
                .map(|pdr| (pdr.id, packet_rules.travel(pdr), counters(pdr.id)))
                .collect(),
        }
    }
}

impl PdrView {
    fn new(
        rules: &Rules,
        pdr: &Pdr,
        site: &Site,
        counters: &dyn Fn(Option<PredefinedId>) -> Counters,
    ) -> Self {
        let forms = predefined::effective(pdr, &site.predefined);
        let pdi = &pdr.pdi;
        let own = |f: crate::rules::LocalFTeid| {
            let (v4, v6) = site.addresses(f.ends);
            (f.teid.teid.get(), ends(v4, v6))
        };
        Self {
            id: pdr.id,
            precedence: pdr.precedence,
            direction: rules.for_packets().travel(pdr),
            source: name(pdi.source),
            network_instance: pdi.ni.and_then(|ni| site.name(ni)).map(str::to_owned),
            f_teid: pdi.f_teid.map(own),
            ue4: pdi.ue.and_then(|ue| ue.v4),
            ue6: pdi.ue.and_then(|ue| ue.v6),
            framed: pdi.framed().to_vec(),
            qfis: pdi.qfis.iter().map(|qfi| qfi.get()).collect(),
            filters: (pdi.filters().iter().map(|f| f.asks.to_string()))
                .chain(pdi.application().map(|name| format!("application {name}")))
                .collect(),
            outer_header_removal: pdr.outer_header_removal.is_some(),
            far: pdr.far.map(|far| far.0),
            qers: pdr.qers.iter().map(|id| id.0).collect(),
            urrs: pdr.urrs.iter().map(|id| id.0).collect(),
            predefined: forms
                .filter_map(|form| form.rule)
                .map(|(id, rule)| PredefinedView::new((id, rule), pdr, site, counters(Some(id))))
                .collect(),
            dormant: false,
            counters: counters(None),
        }
    }
}

impl PredefinedView {
    fn new(
        (id, rule): (PredefinedId, &PredefinedRule),
        pdr: &Pdr,
        site: &Site,
        counters: Counters,
    ) -> Self {
        let route = rule.route(pdr);
        Self {
            id,
            name: rule.name.clone(),
            flows: rule.flows.iter().map(ToString::to_string).collect(),
            action: match rule.far {
                PredefinedFar::Drop => Some("DROP"),
                _ => route.map(|_| "FORW"),
            },
            network_instance: route.and_then(|ni| site.name(ni)).map(str::to_owned),
            qer: rule.qer.as_ref().map(QerView::new),
            counters,
        }
    }
}

impl FarView {
    fn new(far: &Far, site: &Site) -> Self {
        let to = far.forwarding();
        Self {
            id: far.id.0,
            action: match far.apply {
                Apply::Drop => "DROP",
                Apply::Forward => "FORW",
                Apply::Buffer { notify: false } => "BUFF",
                Apply::Buffer { notify: true } => "BUFF NOCP",
            },
            destination: to.map(|to| name(to.destination)),
            network_instance: to
                .and_then(|to| to.ni)
                .and_then(|ni| site.name(ni))
                .map(str::to_owned),
            tunnel: to
                .and_then(|to| to.tunnel)
                .map(|tunnel| (tunnel.teid(), ends(tunnel.v4(), tunnel.v6()))),
            udp: (far.udp()).map(|udp| (udp.teid(), ends(udp.v4(), udp.v6()))),
            marking: to
                .and_then(|to| to.marking)
                .map(|marking| (marking.tos, marking.mask)),
            policy: far
                .policy()
                .and_then(|id| site.policy(id))
                .map(|policy| policy.identifier.clone()),
            bar: far.bar.map(|bar| bar.0),
        }
    }
}

impl QerView {
    fn new(qer: &Qer) -> Self {
        let gbr = qer.rare.as_ref().and_then(|rare| rare.gbr);
        Self {
            id: qer.id.0,
            uplink_open: qer.gate.uplink_open,
            downlink_open: qer.gate.downlink_open,
            mbr_kbps: qer.mbr.map(both),
            gbr_kbps: gbr.map(both),
            averaging_ms: qer.averaging_ms().map(NonZeroU32::get),
            packet_rates: [Direction::Uplink, Direction::Downlink]
                .map(|direction| qer.packet_rate(direction)),
            qfi: qer.qfi.map(|qfi| qfi.get()),
            rqi: qer.marks().rqi,
            ppi: qer.marks().ppi,
        }
    }
}

fn both(rate: Mbr) -> (u64, u64) {
    (rate.kbps(Direction::Uplink), rate.kbps(Direction::Downlink))
}

fn ends(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Vec<IpAddr> {
    let v6 = v6.map(IpAddr::V6);
    v4.map(IpAddr::V4).into_iter().chain(v6).collect()
}

fn name(interface: Interface) -> &'static str {
    match interface {
        Interface::Access => "Access",
        Interface::Core => "Core",
        Interface::SgiLan => "SGi-LAN",
        Interface::CpFunction => "CP-function",
    }
}
