//! From rules to what packets meet: who finds which PDR, and what it decides.

use std::mem::discriminant;
use std::net::IpAddr;
use std::num::NonZeroU32;

use compiled::{
    Above, Action, Compiled, Direction, Duplicate, DuplicateHeader, Entry, Filter, Flow, Key,
    Limit, Marks, NiId, PdrId, PredefinedId, QerId, Qfi, QfiSet, Rate, Relay, Select, Share,
    SharedMeter, UeAddresses, UeEnd,
};
use ipnet::{IpNet, Ipv6Net};
use pfcp::{Cause, IeType};
use smallvec::SmallVec;

use crate::base::flow::FlowDescription;
use crate::base::refusal::Refusal;
use crate::compile::both::both;
use crate::rules::config::{Burst, PredefinedFar};
use crate::rules::flows::Flows;
use crate::rules::predefined::{self, EffectivePdr};
use crate::rules::site::Site;
use crate::rules::{
    Apply, Duplicates, Duplicating, Far, Forwarding, Interface, LocalFTeid, PacketRules, Pdi, Pdr,
    Qer, RuleId, Targets, TunnelNetworkId, UeIp,
};

/// Filters that are tried for one key (`TP_RULES_MAX` of the tables).
const FILTERS_PER_KEY: usize = 64;

/// QERs with an MBR on one PDR that others name too (`TP_METERS_MAX` of the tables).
const SHARED_PER_PDR: usize = 4;

/// (key, dormant, precedence, PDR, index of its entry)
type FoundBy = (Key, bool, u32, PdrId, usize);

/// Turns rules into a [`Compiled`]; keeps its working memory.
#[derive(Debug, Default)]
pub(crate) struct Compiler {
    /// Sorted, these are the lists.
    found_by: Vec<FoundBy>,
    /// Of each entry: the place of its PDR, and which of its predefined rules it is.
    forms: Vec<(usize, Option<PredefinedId>)>,
}

impl Compiler {
    /// `out` is refilled. On an error it holds nothing of use. `reaches`: [`Tables::reaches`].
    ///
    /// [`Tables::reaches`]: compiled::Tables::reaches
    pub(crate) fn compile(
        &mut self,
        rules: PacketRules<'_>,
        site: &Site,
        reaches: &dyn Fn(IpAddr) -> bool,
        out: &mut Compiled,
    ) -> Result<(), Refusal> {
        out.clear();
        self.found_by.clear();
        self.forms.clear();
        for (place, pdr) in rules.pdrs.iter().enumerate() {
            out.framed.extend_from_slice(pdr.pdi.framed());
            let application = pdr.pdi.application();
            if application.is_some_and(|name| !rules.applications.contains_key(name)) {
                // It has no PFDs, or some by which packets cannot be told.
                return Err(Refusal::rule(IeType::APPLICATION_ID).in_rule(RuleId::Pdr(pdr.id)));
            }
            let holds = !rules.dormant.contains(&pdr.id);
            for form in rules.effective(pdr) {
                let entry = entry(rules, form, site, reaches, &mut out.meters)
                    .map_err(|r| r.in_rule(RuleId::Pdr(pdr.id)))?;
                let index = out.entries.len();
                out.entries.push(entry);
                self.forms.push((place, form.id()));
                let found_by = &mut self.found_by;
                let before = found_by.len();
                keys(rules.pdrs, pdr, |key| {
                    found_by.push((key, !holds, pdr.precedence, pdr.id, index))
                });
                if found_by.len() == before {
                    return Err(without_key(pdr));
                }
            }
        }
        if !out.framed.is_empty() {
            frame(out);
        }
        self.put_in_order();
        let is_prefix = |&(key, ..): &(Key, _, _, _, _)| matches!(key, Key::Prefix { .. });
        if self.found_by.iter().any(is_prefix) {
            self.cover();
        }
        self.step_aside(rules, &out.entries);
        for group in self.found_by.chunk_by(|a, b| a.0 == b.0) {
            let (key, none_holds, _, _, first) = group[0];
            let holding = group.partition_point(|&(_, dormant, ..)| !dormant);
            let select = if none_holds {
                nothing(first, &mut out.filters)
            } else {
                let forms = group[..holding].iter().map(|&(.., entry)| {
                    let (place, predefined) = self.forms[entry];
                    let rule = predefined.map(|id| (id, &rules.predefined[id.place()]));
                    let pdr = &rules.pdrs[place];
                    (entry, EffectivePdr { pdr, rule })
                });
                select(forms, rules.applications, &mut out.filters)?
            };
            out.keys.push((key, select));
        }
        Ok(())
    }
}

/// Name the session in what is compiled of it, and say whether its URRs count.
pub(crate) fn name(compiled: &mut Compiled, seid: u64, pdrs: &[Pdr]) {
    compiled.seid = seid;
    compiled.measured = pdrs.iter().any(|pdr| !pdr.urrs.is_empty());
}

impl Compiler {
    /// Flows that await their tunnel leave their packets to the rule that takes all others (against TS 29.244, 5.2.1, where
    /// precedence alone decides).
    fn step_aside(&mut self, rules: PacketRules<'_>, entries: &[Entry]) {
        if !rules.fars.iter().any(awaits_tunnel) {
            return;
        }
        let of = |entry: usize| {
            let (place, _) = self.forms[entry];
            &rules.pdrs[place]
        };
        for group in self.found_by.chunk_by_mut(|a, b| a.0 == b.0) {
            let has_rest = |&&(_, dormant, .., entry): &&FoundBy| {
                !dormant
                    && has_the_rest(rules, of(entry))
                    && entries[entry].action != Action::GateClosed
            };
            let Some(&rest) = group.iter().rfind(has_rest) else {
                continue;
            };
            for found in group.iter_mut().take_while(|found| **found < rest) {
                let pdr = of(found.4);
                let far = pdr.far.and_then(|id| rules.far(id));
                found.1 |= pdr.predefined().is_empty() && far.is_some_and(awaits_tunnel);
            }
            group.sort_unstable();
        }
    }

    /// Places that the working memory has had.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.found_by.capacity()
    }

    /// By key and precedence, each once: PDRs that name the same networks find them again and again.
    fn put_in_order(&mut self) {
        self.found_by.sort_unstable();
        self.found_by.dedup();
    }

    /// The longest prefix leads to what packets meet: all PDRs of the session whose prefixes cover it.
    fn cover(&mut self) {
        let own = self.found_by.len();
        for at in 0..own {
            let narrow = self.found_by[at].0;
            let is_first = at == 0 || self.found_by[at - 1].0 != narrow;
            let Some(net) = net_of(narrow).filter(|_| is_first) else {
                continue;
            };
            for by in 0..own {
                let (key, dormant, precedence, pdr, entry) = self.found_by[by];
                let covers = |wide: (NiId, IpNet)| wide.0 == net.0 && wide.1.contains(&net.1);
                if key != narrow && net_of(key).is_some_and(covers) {
                    self.found_by
                        .push((narrow, dormant, precedence, pdr, entry));
                }
            }
        }
        self.put_in_order();
    }
}

/// Lets packets that must have the UE's address have one of a network behind it instead. A session's framed routes
/// hold for all of its PDRs.
fn frame(out: &mut Compiled) {
    out.framed.sort_unstable();
    out.framed.dedup();
    for entry in &mut out.entries {
        entry.framed = entry.ue.is_some() || entry.relay.is_some_and(|relay| relay.ue.is_some());
    }
}

fn net_of(key: Key) -> Option<(NiId, IpNet)> {
    match key {
        Key::Teid { .. } => None,
        Key::Ue4 { ni, addr } => Some((ni, IpNet::from(IpAddr::V4(addr)))),
        Key::Ue6 { ni, prefix } => Ipv6Net::new(prefix, 64).ok().map(|net| (ni, net.into())),
        Key::Prefix { ni, net } => Some((ni, net)),
    }
}

/// How packets find a PDR: by its tunnel, else by its UE. One that names neither, as SMFs add them for a
/// service data flow, is found by all tunnels or UE addresses of the session.
pub(crate) fn keys(pdrs: &[Pdr], pdr: &Pdr, mut found_by: impl FnMut(Key)) {
    match (pdr.pdi.f_teid, pdr.direction(), pdr.pdi.names_ue()) {
        (Some(f_teid), ..) => found_by(tunnel_key(f_teid)),
        (None, Direction::Uplink, _) => {
            let uplinks = pdrs.iter().filter(|p| p.direction() == Direction::Uplink);
            let tunnels = uplinks.filter_map(|other| other.pdi.f_teid);
            tunnels.map(tunnel_key).for_each(found_by);
        }
        (None, Direction::Downlink, true) => ue_keys(&pdr.pdi).for_each(found_by),
        (None, Direction::Downlink, false) => {
            let of_others = pdrs.iter().flat_map(|other| other.pdi.ue_nets());
            of_others
                .filter(|&(ni, _)| pdr.pdi.ni.is_none_or(|own| own == ni))
                .for_each(|(ni, net)| found_by(Key::of_prefix(ni, net)));
        }
    }
}

fn tunnel_key(f_teid: LocalFTeid) -> Key {
    Key::Teid {
        teid: f_teid.teid.teid.get(),
        slot: f_teid.teid.slot,
    }
}

fn ue_keys(pdi: &Pdi) -> impl Iterator<Item = Key> + '_ {
    pdi.ue_nets().map(|(ni, net)| Key::of_prefix(ni, net))
}

/// No packet could find it.
fn without_key(pdr: &Pdr) -> Refusal {
    let ie = match pdr.direction() {
        Direction::Uplink => IeType::F_TEID,
        Direction::Downlink => IeType::UE_IP_ADDRESS,
    };
    Refusal::ie(Cause::CONDITIONAL_IE_MISSING, ie).in_rule(RuleId::Pdr(pdr.id))
}

/// BUFF without Forwarding Parameters: the gNB has yet to accept the QoS flow. Open5GS creates flows so, and leaves them so if
/// the gNB refuses: their packets would wait for good, while the UE can be reached.
fn awaits_tunnel(far: &Far) -> bool {
    matches!(far.apply, Apply::Buffer { .. }) && far.forwarding().is_none()
}

/// Takes all packets that come for the UE, into a tunnel or until the SMF, which hears of them, has found the UE.
fn has_the_rest(rules: PacketRules<'_>, pdr: &Pdr) -> bool {
    let far = pdr.far.and_then(|id| rules.far(id));
    let goes_on = |far: &Far| match far.apply {
        Apply::Forward => far.forwarding().is_some_and(|to| to.tunnel.is_some()),
        Apply::Buffer { notify } => notify,
        Apply::Drop => false,
    };
    pdr.is_found_by_ue()
        && pdr.pdi.filters().is_empty()
        && pdr.pdi.application().is_none()
        && pdr.predefined().is_empty()
        && far.is_some_and(goes_on)
        && rules.closed.iter().all(|(of, _)| *of != pdr.id)
}

/// The PDR leaves it to the rest of the session where its packets go to.
pub(crate) fn is_found_by_others(pdr: &Pdr) -> bool {
    pdr.is_found_by_ue() && !pdr.pdi.names_ue()
}

/// For a key none of whose PDRs holds at present: packets find the session, but no PDR.
fn nothing(entry: usize, filters: &mut Vec<Filter>) -> Select {
    let first = filters.len();
    filters.push(Filter {
        entry,
        flow: Some(Flow::NONE),
        qfis: QfiSet::default(),
    });
    Select::List { first, len: 1 }
}

/// The PDRs of one key, in order.
fn select<'a>(
    mut entries: impl ExactSizeIterator<Item = (usize, EffectivePdr<'a>)> + Clone,
    applications: &Flows,
    filters: &mut Vec<Filter>,
) -> Result<Select, Refusal> {
    let only = entries.clone().next().filter(|_| entries.len() == 1);
    if let Some((entry, form)) = only
        && form.pdr.pdi.filters().is_empty()
        && form.pdr.pdi.application().is_none()
        && form.rule().is_none_or(|rule| rule.flows.is_empty())
        && qfis_to_filter(form.pdr).is_empty()
    {
        return Ok(Select::One(entry));
    }
    let first = filters.len();
    entries.clone().try_for_each(|(entry, form)| {
        let room = FILTERS_PER_KEY - (filters.len() - first);
        if push_filters(form, applications, entry, room, filters) {
            return Ok(());
        }
        let ie = if form.pdr.pdi.application().is_some() {
            IeType::APPLICATION_ID
        } else {
            IeType::SDF_FILTER
        };
        Err(Refusal::no_room(ie).in_rule(RuleId::Pdr(form.pdr.id)))
    })?;
    match (filters.len() - first, entries.next()) {
        // Nothing is what its PDR and a predefined rule both ask for, or of an application without PFDs.
        (0, Some((entry, _))) => Ok(nothing(entry, filters)),
        (len, _) => Ok(Select::List { first, len }),
    }
}

/// A single QFI is a condition of the entry itself.
fn qfis_to_filter(pdr: &Pdr) -> QfiSet {
    match pdr.pdi.qfis.single() {
        Some(_) => QfiSet::default(),
        None => pdr.pdi.qfis,
    }
}

/// Up to `room` more; whether that is enough.
fn push_filters(
    form: EffectivePdr<'_>,
    applications: &Flows,
    entry: usize,
    room: usize,
    filters: &mut Vec<Filter>,
) -> bool {
    let EffectivePdr { pdr, .. } = form;
    let own = pdr.pdi.filters().iter().map(|f| f.asks.flow_count());
    let of_application = pdr
        .pdi
        .application()
        .and_then(|name| applications.get(name));
    let of_application = of_application
        .into_iter()
        .flatten()
        .map(FlowDescription::flow_count);
    if own.chain(of_application).sum::<usize>().max(1) > room {
        return false;
    }
    let qfis = qfis_to_filter(pdr);
    let direction = pdr.direction();
    let before = filters.len();
    let mut push = |flow| {
        // One too many is enough to know.
        if filters.len() - before <= room {
            filters.push(Filter { entry, flow, qfis });
        }
    };
    let described = form.rule().map_or(&[][..], |rule| &rule.flows);
    let of_rule = || described.iter().flat_map(|flow| flow.flows(direction));
    let mut with_rule = |own: Option<Flow>| match own {
        _ if described.is_empty() => push(own),
        None => of_rule().for_each(|flow| push(Some(flow))),
        Some(own) => of_rule()
            .filter_map(|flow| both(flow, own))
            .for_each(|flow| push(Some(flow))),
    };
    if let Some(name) = pdr.pdi.application() {
        let flows = applications.get(name).into_iter().flatten();
        flows
            .flat_map(|flow| flow.flows(direction))
            .for_each(|flow| with_rule(Some(flow)));
    } else if pdr.pdi.filters().is_empty() {
        with_rule(None);
    }
    for filter in pdr.pdi.filters() {
        let mut flows = filter.asks.flows(direction).peekable();
        if flows.peek().is_none() {
            with_rule(None);
        }
        flows.for_each(|flow| with_rule(Some(flow)));
    }
    filters.len() - before <= room
}

/// The FAR of a PDR, or of a predefined rule that it activates: dropping, or routing.
fn far_of(rules: PacketRules<'_>, form: EffectivePdr<'_>) -> Result<Far, Refusal> {
    let EffectivePdr { pdr, .. } = form;
    let own = pdr.far.and_then(|id| rules.far(id)).cloned();
    let missing = Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FAR_ID);
    let Some((id, rule)) = form.rule else {
        return own.ok_or(missing);
    };
    let (apply, forwarding) = match (rule.far, rule.route(pdr)) {
        (_, Some(ni)) => {
            let to = Forwarding {
                destination: Interface::Core,
                ni: Some(ni),
                tunnel: None,
                is_unusable: false,
                marking: None,
            };
            (Apply::Forward, Some(to))
        }
        (PredefinedFar::Drop, _) => (Apply::Drop, None),
        _ => return own.ok_or(missing),
    };
    Ok(Far {
        id: predefined::far_of(id),
        apply,
        targets: Targets::new(forwarding, Duplicates::default()),
        bar: None,
        // There is no tunnel.
        through: TunnelNetworkId(u8::MAX),
    })
}

fn entry(
    rules: PacketRules<'_>,
    form: EffectivePdr<'_>,
    site: &Site,
    reaches: &dyn Fn(IpAddr) -> bool,
    meters: &mut Vec<SharedMeter>,
) -> Result<Entry, Refusal> {
    let EffectivePdr { pdr, .. } = form;
    let direction = rules.travel_of(form);
    let closed = rules.closed.iter().find(|(of, _)| *of == pdr.id);
    // A FAR for quota exhaustion that cannot be applied to packets of this PDR is left out: nothing passes.
    let instead = closed
        .and_then(|(_, far)| rules.far((*far)?))
        .filter(|far| action(pdr, far, site, reaches).is_ok());
    let far = match instead {
        Some(far) => far.clone(),
        None => far_of(rules, form)?,
    };
    let mut qers: SmallVec<[&Qer; 4]> = SmallVec::new();
    // The predefined QER comes first: its marks have precedence.
    qers.extend(form.qer());
    for &id in &pdr.qers {
        qers.push(rules.qer(id).ok_or(Refusal::rule(IeType::QER_ID))?);
    }
    let mut action = action(pdr, &far, site, reaches)?;
    if let Action::Tunnel { teid, peer, .. } = action
        && rules.stopped.contains(&(teid, peer))
    {
        action = Action::TunnelGone;
    }
    if qers.iter().any(|qer| !qer.is_open(direction)) {
        action = Action::GateClosed;
    } else if closed.is_some() && instead.is_none() {
        action = Action::QuotaExhausted;
    }
    let mut entry = Entry {
        pdr: pdr.id,
        predefined: form.id(),
        direction,
        action,
        ue: None,
        framed: false,
        qfi: None,
        relay: None,
        marking: far.forwarding().and_then(|to| to.marking),
        marks: Marks::default(),
        meter: None,
        shared_meters: SmallVec::new(),
        packet_meter: None,
        share: None,
        duplicates: Vec::new(),
    };
    let is_tunnel = matches!(action, Action::Tunnel { .. });
    let is_udp = matches!(action, Action::Udp { .. });
    match direction {
        _ if pdr.is_found_by_ue() => entry.qfi = mark(&qers).filter(|_| !is_udp),
        Direction::Uplink if !is_tunnel && !is_udp => {
            entry.ue = ue_addresses(rules.pdrs, pdr);
            entry.qfi = pdr.pdi.qfis.single();
        }
        _ => {
            entry.relay = Some(relay(rules.pdrs, pdr));
            // Packets that wait go into the tunnel some time.
            let into_tunnel = is_tunnel || action == Action::Buffer;
            entry.qfi = mark(&qers).filter(|_| into_tunnel);
        }
    }
    // TS 29.281, 5.2.2.7: a PDU Session Container is for N3, N9 and Xn; SMFs drop what has one.
    let to = far.forwarding().map(|to| to.destination);
    if let Some(relay) = entry.relay.as_mut()
        && to == Some(Interface::CpFunction)
    {
        relay.remove_container = true;
        entry.qfi = None;
    }
    if direction == Direction::Downlink {
        mark_further(&mut entry, &qers)?;
    }
    if !matches!(action, Action::GateClosed | Action::QuotaExhausted) {
        entry.duplicates = duplicates(&far, site, reaches)?;
    }
    meter(rules, pdr, &qers, site, meters, &mut entry)?;
    share(rules, pdr, &qers, site, meters, &mut entry);
    Ok(entry)
}

/// Duplicates of the packets of a FAR.
fn duplicates(
    far: &Far,
    site: &Site,
    reaches: &dyn Fn(IpAddr) -> bool,
) -> Result<Vec<Duplicate>, Refusal> {
    let wrong = Refusal::rule(IeType::OUTER_HEADER_CREATION).in_rule(RuleId::Far(far.id));
    let duplicates = far.duplicates().iter();
    let place = |duplicate: &Duplicating| {
        let (peer, local) = site
            .path_to(duplicate.to, duplicate.through, reaches)
            .ok_or(wrong)?;
        let number = duplicate.to.teid();
        let header = match u16::try_from(number) {
            Ok(port) if duplicate.udp => DuplicateHeader::Udp { port },
            _ => DuplicateHeader::GtpU { teid: number },
        };
        Ok(Duplicate {
            header,
            peer,
            local,
            marking: duplicate.marking,
        })
    };
    duplicates.map(place).collect()
}

/// Which addresses its packets must have, beside those of networks behind the UE. Open5GS names these networks in uplink PDIs
/// and no UE address: the UE's own is not foreign there.
fn ue_addresses(pdrs: &[Pdr], pdr: &Pdr) -> Option<UeAddresses> {
    let ue = match pdr.direction() {
        Direction::Uplink => ue_of(pdrs, pdr),
        Direction::Downlink => pdr.pdi.ue,
    };
    pdr.pdi.names_ue().then(|| UeAddresses {
        v4: ue.and_then(|ue| ue.v4),
        v6: ue.and_then(|ue| ue.v6),
    })
}

/// Conditions of the PDI on packets from tunnel to tunnel, and whether they lose their container.
fn relay(pdrs: &[Pdr], pdr: &Pdr) -> Relay {
    let end = match pdr.direction() {
        Direction::Uplink => UeEnd::Source,
        Direction::Downlink => UeEnd::Destination,
    };
    Relay {
        ue: ue_addresses(pdrs, pdr).map(|ue| (ue, end)),
        qfi: pdr.pdi.qfis.single(),
        remove_container: pdr.container_removal,
    }
}

/// QFI of packets into a tunnel. The QER of the flow and that of the session may both
/// have one; SMFs put 0 into one that has no flow of its own.
pub(crate) fn mark(qers: &[&Qer]) -> Option<Qfi> {
    let mut qfis = qers.iter().filter_map(|qer| qer.qfi);
    let first = qfis.clone().next();
    qfis.find(|qfi| qfi.get() != 0).or(first)
}

/// RQI and Paging Policy Indicator of the PDU Session Container. It must be one of ours: packets from tunnel to tunnel
/// keep the container that they have.
fn mark_further(entry: &mut Entry, qers: &[&Qer]) -> Result<(), Refusal> {
    entry.marks = Marks {
        rqi: qers.iter().any(|qer| qer.marks().rqi),
        ppi: qers.iter().find_map(|qer| qer.marks().ppi),
    };
    let Some(marking) = qers.iter().find(|qer| qer.marks() != Marks::default()) else {
        return Ok(());
    };
    let refusal = if mark(qers).is_none() {
        Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::QFI)
    } else if entry.relay.is_none() {
        return Ok(());
    } else if marking.marks().rqi {
        Refusal::rule(IeType::RQI)
    } else {
        Refusal::rule(IeType::PAGING_POLICY_INDICATOR)
    };
    Err(refusal.in_rule(RuleId::Qer(marking.id)))
}

fn action(
    pdr: &Pdr,
    far: &Far,
    site: &Site,
    reaches: &dyn Fn(IpAddr) -> bool,
) -> Result<Action, Refusal> {
    let in_far = |ie| Refusal::rule(ie).in_rule(RuleId::Far(far.id));
    match (far.apply, far.forwarding()) {
        (Apply::Drop, _) => Ok(Action::Drop),
        (Apply::Buffer { .. }, _) => Ok(Action::Buffer),
        (Apply::Forward, None) => Err(in_far(IeType::FORWARDING_PARAMETERS)),
        (Apply::Forward, Some(to)) => match (to.destination, to.tunnel) {
            // From N6 into the core would be a way round the UE, and so would what comes from the
            // core or the SMF without being for the UE.
            (Interface::Core | Interface::SgiLan | Interface::CpFunction, _)
                if pdr.is_found_by_ue() =>
            {
                Err(in_far(IeType::DESTINATION_INTERFACE))
            }
            _ if to.is_unusable => Err(in_far(IeType::OUTER_HEADER_CREATION)),
            _ if far.udp().is_some() => udp(pdr, far, site, reaches),
            (_, Some(tunnel)) => {
                let (peer, local) = site
                    .path_to(tunnel, far.through, reaches)
                    .ok_or(in_far(IeType::OUTER_HEADER_CREATION))?;
                Ok(Action::Tunnel {
                    teid: tunnel.teid(),
                    peer,
                    local,
                })
            }
            (Interface::Core | Interface::SgiLan, None)
                if pdr.direction() == Direction::Downlink =>
            {
                Err(in_far(IeType::DESTINATION_INTERFACE))
            }
            (Interface::Core | Interface::SgiLan, None) => {
                if pdr.outer_header_removal.is_none() {
                    return Err(Refusal::rule(IeType::OUTER_HEADER_REMOVAL));
                }
                let ni = to.ni.or(pdr.pdi.ni).unwrap_or(NiId::DEFAULT);
                Ok(match far.policy() {
                    Some(policy) => Action::Steer { ni, policy },
                    None => Action::Route { ni },
                })
            }
            // SMFs establish sessions before they know the gNB's tunnel.
            (Interface::Access, None) => Ok(Action::NoTunnel),
            // Towards the SMF there are tunnels only.
            (Interface::CpFunction, None) => Err(in_far(IeType::OUTER_HEADER_CREATION)),
        },
    }
}

/// In UDP alone. What came in a tunnel is out of it then, or the other end would find GTP-U in UDP.
fn udp(
    pdr: &Pdr,
    far: &Far,
    site: &Site,
    reaches: &dyn Fn(IpAddr) -> bool,
) -> Result<Action, Refusal> {
    if !pdr.is_found_by_ue() && pdr.outer_header_removal.is_none() {
        return Err(Refusal::rule(IeType::OUTER_HEADER_REMOVAL));
    }
    let wrong = Refusal::rule(IeType::OUTER_HEADER_CREATION).in_rule(RuleId::Far(far.id));
    let to = far.udp().ok_or(wrong)?;
    let (peer, local) = site.path_to(to, far.through, reaches).ok_or(wrong)?;
    let port = u16::try_from(to.teid()).map_err(|_| wrong)?;
    Ok(Action::Udp { port, peer, local })
}

/// Meters for the packets of an entry.
///
/// Of the QERs that are this PDR's alone only the lowest MBR can ever decide, so that one meter in
/// the entry itself does for all of them; QERs that others name too have a meter of their own.
fn meter(
    rules: PacketRules<'_>,
    pdr: &Pdr,
    qers: &[&Qer],
    site: &Site,
    meters: &mut Vec<SharedMeter>,
    entry: &mut Entry,
) -> Result<(), Refusal> {
    let direction = entry.direction;
    let ni = ue_of(rules.pdrs, pdr).map(|ue| ue.ni);
    let too_many = |ie| Refusal::no_room(ie).in_rule(RuleId::Pdr(pdr.id));
    let mut own: Option<Rate> = None;
    for qer in qers {
        if let Some(kbps) = qer.mbr_kbps(direction) {
            let rate = Rate {
                above: site.qos.above(ni, qer.qfi),
                ..rate(kbps, burst_of(qer, site.burst))
            };
            if is_used_once(rules, qer.id, direction) {
                own = own.filter(|lowest| lowest.bps <= rate.bps).or(Some(rate));
            } else {
                let limit = Limit::Bits(rate);
                let index = shared(meters, qer.id, direction, limit);
                entry.shared_meters.push(index);
            }
        }
        if let Some(limit) = qer.packet_rate(direction) {
            let index = shared(meters, qer.id, direction, Limit::Packets(limit));
            if entry.packet_meter.replace(index).is_some() {
                return Err(too_many(IeType::PACKET_RATE));
            }
        }
    }
    entry.meter = own;
    if entry.shared_meters.len() > SHARED_PER_PDR {
        return Err(too_many(IeType::QER_ID));
    }
    Ok(())
}

/// Address of the UE of a session, as this PDR has it, or another one.
fn ue_of(pdrs: &[Pdr], pdr: &Pdr) -> Option<UeIp> {
    pdr.pdi
        .ue
        .or_else(|| pdrs.iter().find_map(|pdr| pdr.pdi.ue))
}

/// Configured share of a flow in capacities, and its configured marking where the SMF has none.
fn share(
    rules: PacketRules<'_>,
    pdr: &Pdr,
    qers: &[&Qer],
    site: &Site,
    meters: &mut Vec<SharedMeter>,
    entry: &mut Entry,
) {
    if site.qos.flows.is_empty() && site.qos.capacities.is_empty() {
        return;
    }
    let ue = ue_of(rules.pdrs, pdr);
    let ni = ue.map(|ue| ue.ni);
    let qfi = mark(qers).or(pdr.pdi.qfis.single());
    if matches!(entry.action, Action::Tunnel { .. } | Action::Udp { .. }) {
        entry.marking = entry.marking.or(site.qos.marking(ni, qfi));
    }
    let direction = entry.direction;
    let Some(capacities) = site.qos.capacities(direction, entry.action, ue) else {
        return;
    };
    let of_flow = qers.iter().find(|qer| qer.qfi.is_some() && qer.qfi == qfi);
    let qer = of_flow.or(qers.first());
    let guaranteed = of_flow.and_then(|qer| {
        let kbps = qer.gbr_kbps(direction)?;
        Some(rate(kbps, burst_of(qer, site.burst)))
    });
    let share = Share {
        weight: site.qos.weight(ni, qfi),
        guaranteed,
        capacities,
    };
    let id = qer.map_or(NO_QER, |qer| qer.id);
    entry.share = Some(shared(meters, id, direction, Limit::Share(share)));
}

/// Of the share of packets without QER.
const NO_QER: QerId = QerId(u32::MAX);

/// Place of the meter of a QER.
fn shared(meters: &mut Vec<SharedMeter>, qer: QerId, direction: Direction, limit: Limit) -> usize {
    let same_kind = |m: &SharedMeter| match (&m.limit, &limit) {
        // Packets of one QER may take several ways.
        (Limit::Share(one), Limit::Share(other)) => one.capacities == other.capacities,
        (one, other) => discriminant(one) == discriminant(other),
    };
    let known = meters
        .iter()
        .position(|m| m.qer == qer && m.direction == direction && same_kind(m));
    known.unwrap_or_else(|| {
        meters.push(SharedMeter {
            qer,
            direction,
            limit,
        });
        meters.len() - 1
    })
}

fn is_used_once(rules: PacketRules<'_>, qer: QerId, direction: Direction) -> bool {
    let forms = rules.pdrs.iter().flat_map(|pdr| rules.effective(pdr));
    let users = forms.filter(|form| form.has_qer(qer) && rules.travel_of(*form) == direction);
    users.take(2).count() == 1
}

/// Bucket depth of a QER's meters: over its Averaging Window, or else as configured.
fn burst_of(qer: &Qer, configured: Burst) -> Burst {
    Burst {
        ms: qer.averaging_ms().map_or(configured.ms, NonZeroU32::get),
        ..configured
    }
}

/// MBR counts kbit of 1000 bit (TS 29.244, 8.2.8).
pub(crate) fn rate(kbps: u64, burst: Burst) -> Rate {
    let bps = kbps.saturating_mul(1000);
    // Both may be as an SMF likes: 40 bits of kbit/s, over 32 bits of milliseconds.
    let bytes = u128::from(bps / 8) * u128::from(burst.ms) / 1000;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Rate {
        bps,
        burst_bytes: bytes.max(u64::from(burst.min_bytes)),
        above: Above::Police,
    }
}
