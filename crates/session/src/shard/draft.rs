//! A session as it would be after a request: worked out beside the session itself, so that a
//! refusal leaves nothing to undo.

use std::sync::Arc;

use compiled::{FRAMED_MAX, NiId, PdrId, QerId};
use ipnet::IpNet;
use pfcp::ie::PfcpSmReqFlags;
use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use pfcp::{Cause, IeType, Repeated};
use smallvec::SmallVec;

use crate::base::refusal::Refusal;
use crate::compile::compiler::is_found_by_others;
use crate::rules::endpoints::{ENDPOINTS_MAX, Endpoint};
use crate::rules::flows::NO_FLOWS;
use crate::rules::intake::{self, Wants};
use crate::rules::places::{ConfigPlace, Relocation};
use crate::rules::predefined;
use crate::rules::site::Site;
use crate::rules::{
    Apply, Asks, Bar, BarId, Conditions, Far, FarId, LeftTunnel, PacketRules, Pdr, Qer, Rule,
    RuleId, Urr, UrrId,
};
use crate::shard::context::Context;
use crate::shard::holders::Holders;
use crate::shard::index::deferred::{self, Deferral, Timing, Timings};
use crate::shard::kept::{Ends, Kept, Part, Places, ToKeep};
use crate::usage::measured::UrrChanges;
use crate::usage::urr_rules::UrrRules;

/// Rules of one kind.
#[derive(Debug)]
pub(crate) struct Table<R> {
    pub(crate) rules: Vec<R>,
    /// Created or updated by this request; goes with `rules`.
    touched: Vec<bool>,
    /// Differs from what was loaded.
    pub(crate) changed: bool,
}

/// All of a session that a request may change. Its memory is used again for each request.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) pdrs: Table<Pdr>,
    pub(crate) fars: Table<Far>,
    pub(crate) qers: Table<Qer>,
    pub(crate) urrs: Table<Urr>,
    pub(crate) bars: Table<Bar>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Of `endpoints`: created, updated or removed.
    pub(crate) endpoints_changed: bool,
    /// Traffic Endpoints that are new or have changed.
    pub(crate) new_endpoints: Vec<u8>,
    /// Linked Traffic Endpoint IDs of FARs of this request.
    links: Vec<(FarId, u8)>,
    /// PDRs with a new PDI, by their place in `pdrs`, and what it leaves to us.
    pub(crate) new_pdis: Vec<(usize, Wants)>,
    /// Tunnels that FARs have left with SNDEM, once for each FAR.
    left_tunnels: Vec<LeftTunnel>,
    /// Times of PDRs that hold for some time only.
    pub(crate) timings: Timings,
    dormant: Vec<PdrId>,
    /// Changes of URRs by the request.
    pub(crate) usage: UrrChanges,
    /// See [`PacketRules::closed`].
    pub(crate) closed: Vec<(PdrId, Option<FarId>)>,
    /// Packets that wait for the session are to be dropped (DROBU).
    pub(crate) drops_buffered: bool,
    /// It has TEIDs and addresses already, which are to be those that it holds.
    pub(crate) is_adopted: bool,
    /// PDRs whose packets waited without a word to the SMF before the request.
    pub(crate) silent: SmallVec<[PdrId; 2]>,
    /// Ends of the kept rules that were loaded.
    ends: Ends,
    /// Buffer for rules that are written to be kept.
    octets: Vec<u8>,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            touched: Vec::new(),
            changed: false,
        }
    }
}

impl<R: Rule> Table<R> {
    /// None any more.
    fn clear(&mut self) {
        self.rules.clear();
        self.loaded();
    }

    /// The rules were put in, and none is changed so far.
    fn loaded(&mut self) {
        self.touched.clear();
        self.touched.resize(self.rules.len(), false);
        self.changed = false;
    }

    fn part(&self) -> Part<'_, R> {
        Part {
            rules: &self.rules,
            changed: self.changed,
        }
    }

    fn place(&self, id: R::Id) -> Option<usize> {
        self.rules.iter().position(|rule| rule.id() == id)
    }

    fn has(&self, id: R::Id) -> bool {
        self.place(id).is_some()
    }

    /// Whether it was there. What is gone may be removed again: Open5GS does so now and then with indirect forwarding.
    fn remove(&mut self, id: R::Id) -> bool {
        let Some(at) = self.place(id) else {
            return false;
        };
        self.rules.remove(at);
        self.touched.remove(at);
        self.changed = true;
        true
    }

    fn create(&mut self, rule: R, limit: usize, kind: &Kind) -> Result<(), Refusal> {
        let name = R::named(rule.id());
        if self.has(rule.id()) {
            return Err(Refusal::rule(kind.id).in_rule(name));
        }
        if self.rules.len() >= limit {
            return Err(Refusal::no_room(kind.create).in_rule(name));
        }
        self.rules.push(rule);
        self.touched.push(true);
        self.changed = true;
        Ok(())
    }

    /// For an update; only one of the same rule in one request.
    fn update(&mut self, id: R::Id, id_ie: IeType) -> Result<(usize, &mut R), Refusal> {
        let refusal = Refusal::rule(id_ie).in_rule(R::named(id));
        let at = self.place(id).ok_or(refusal)?;
        if std::mem::replace(&mut self.touched[at], true) {
            return Err(refusal);
        }
        self.changed = true;
        Ok((at, &mut self.rules[at]))
    }
}

/// The IEs of one kind of rule.
struct Kind {
    create: IeType,
    id: IeType,
}

const PDR: Kind = Kind {
    create: IeType::CREATE_PDR,
    id: IeType::PDR_ID,
};
const FAR: Kind = Kind {
    create: IeType::CREATE_FAR,
    id: IeType::FAR_ID,
};
const QER: Kind = Kind {
    create: IeType::CREATE_QER,
    id: IeType::QER_ID,
};
const URR: Kind = Kind {
    create: IeType::CREATE_URR,
    id: IeType::URR_ID,
};
const BAR: Kind = Kind {
    create: IeType::CREATE_BAR,
    id: IeType::BAR_ID,
};

/// The rules that a request creates.
struct Creations<'r, 'a> {
    pdrs: &'r Repeated<'a, pfcp::ie::CreatePdr<'a>>,
    fars: &'r Repeated<'a, pfcp::ie::CreateFar<'a>>,
    qers: &'r Repeated<'a, pfcp::ie::CreateQer<'a>>,
    urrs: &'r Repeated<'a, pfcp::ie::CreateUrr<'a>>,
    bars: &'r Repeated<'a, pfcp::ie::CreateBar<'a>>,
    endpoints: &'r Repeated<'a, pfcp::ie::CreateTrafficEndpoint<'a>>,
}

impl Draft {
    /// A new session.
    pub(crate) fn establish(
        &mut self,
        request: &SessionEstablishmentRequest<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        self.clear();
        for ie in [
            (request.create_pdrs.is_empty(), IeType::CREATE_PDR),
            (request.create_fars.is_empty(), IeType::CREATE_FAR),
        ] {
            if let (true, ie) = ie {
                return Err(Refusal::ie(Cause::MANDATORY_IE_MISSING, ie));
            }
        }
        let creations = Creations {
            pdrs: &request.create_pdrs,
            fars: &request.create_fars,
            qers: &request.create_qers,
            urrs: &request.create_urrs,
            bars: &request.create_bars,
            endpoints: &request.create_traffic_endpoints,
        };
        self.create(&creations, site)?;
        self.settle(site)
    }

    /// A change of `before`. Removals come first, so that an id can be removed and created again.
    pub(crate) fn modify(
        &mut self,
        before: &Context,
        request: &SessionModificationRequest<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        self.load(before);
        let flags = request.pfcpsmreq_flags;
        self.drops_buffered = flags.is_some_and(|flags| flags.contains(PfcpSmReqFlags::DROBU));
        self.remove(request)?;
        let creations = Creations {
            pdrs: &request.create_pdrs,
            fars: &request.create_fars,
            qers: &request.create_qers,
            urrs: &request.create_urrs,
            bars: &request.create_bars,
            endpoints: &request.create_traffic_endpoints,
        };
        self.create(&creations, site)?;
        self.update(request, site)?;
        self.settle(site)
    }

    /// A session that comes from elsewhere, as it is; what is configured has other places here.
    pub(crate) fn adopt(
        &mut self,
        context: &Context,
        to: &mut Relocation<'_>,
    ) -> Result<(), ConfigPlace> {
        self.load(context);
        let (pdrs, fars) = (&mut self.pdrs.rules, &mut self.fars.rules);
        pdrs.iter_mut().try_for_each(|pdr| to.pdr(pdr))?;
        fars.iter_mut().try_for_each(|far| to.far(far))?;
        (self.endpoints.iter_mut()).try_for_each(|known| known.relocate(to))?;
        self.is_adopted = true;
        self.silent.clear();
        self.pdrs.changed = true;
        self.fars.changed = true;
        self.qers.changed = true;
        self.endpoints_changed = !self.endpoints.is_empty();
        context.closed(&mut self.closed);
        Ok(())
    }

    /// Each FAR of a session that this has landed in, and where its octets begin.
    pub(crate) fn fars_at<'k>(&self, kept: &'k Kept) -> impl Iterator<Item = (FarId, usize)> + 'k {
        kept.fars_at(self.ends)
    }

    /// The time is this, in NTP seconds.
    pub(crate) fn set_time(&mut self, now_s: u64) {
        deferred::dormant(&self.timings, now_s, &mut self.dormant);
    }

    /// A PDR is given times; those that are not sent stay.
    fn set_timing(&mut self, id: PdrId, activation: Option<u32>, deactivation: Option<u32>) {
        if activation.is_none() && deactivation.is_none() {
            return;
        }
        let known = self.timings.iter().position(|(pdr, _)| *pdr == id);
        let at = known.unwrap_or(self.timings.len());
        if known.is_none() {
            self.timings.push((id, Timing::default()));
        }
        let (_, timing) = &mut self.timings[at];
        timing.set(activation, deactivation);
    }

    /// PDRs and Traffic Endpoints that would hold TEIDs and addresses.
    pub(crate) fn holders(&self) -> Holders<'_> {
        Holders {
            pdrs: &self.pdrs.rules,
            endpoints: &self.endpoints,
        }
    }

    pub(crate) fn for_packets(&self) -> PacketRules<'_> {
        PacketRules {
            pdrs: &self.pdrs.rules,
            fars: &self.fars.rules,
            qers: &self.qers.rules,
            dormant: &self.dormant,
            closed: &self.closed,
            predefined: &[],
            applications: &NO_FLOWS,
            stopped: &[],
        }
    }

    /// Network instances that the rules name.
    pub(crate) fn networks(&self) -> impl Iterator<Item = NiId> + '_ {
        let of_pdrs = self.pdrs.rules.iter().filter_map(|pdr| pdr.pdi.ni);
        let of_fars = self.fars.rules.iter().filter_map(Far::forwarding);
        of_pdrs.chain(of_fars.filter_map(|to| to.ni))
    }

    /// Tunnels whose ends shall hear that no packet follows, once for each FAR that leaves (TS 23.501, 5.8.2.9: one or more
    /// End Markers). One that another FAR still leads to has not ended.
    pub(crate) fn ended_tunnels(&self) -> impl Iterator<Item = LeftTunnel> + '_ {
        let leads_to =
            |far: &Far, tunnel| far.forwarding().is_some_and(|to| to.tunnel == Some(tunnel));
        let left = self.left_tunnels.iter().copied();
        left.filter(move |left| !(self.fars.rules.iter()).any(|far| leads_to(far, left.tunnel)))
    }

    /// Whether packets may meet something else than before.
    pub(crate) fn packets_may_notice(&self) -> bool {
        self.pdrs.changed || self.fars.changed || self.qers.changed
    }

    /// Whether TEIDs and addresses may be taken, or given back.
    pub(crate) fn may_move_keys(&self) -> bool {
        self.pdrs.changed
            || self.endpoints_changed
            || self.pdrs.rules.iter().any(is_found_by_others)
    }

    /// Writes its changes into the session.
    pub(crate) fn land(&mut self, into: &mut Context) {
        let (pdrs, fars) = (&self.pdrs, &self.fars);
        if pdrs.changed || fars.changed || self.qers.changed || self.bars.changed {
            let rules = ToKeep {
                pdrs: pdrs.part(),
                fars: fars.part(),
                qers: self.qers.part(),
                bars: self.bars.part(),
            };
            into.kept.write(rules, &mut self.ends, &mut self.octets);
        }
        if self.urrs.changed || pdrs.changed && !self.urrs.rules.is_empty() {
            into.set_urr_rules(UrrRules::new(&self.urrs.rules, &pdrs.rules));
        }
        if self.endpoints_changed {
            let endpoints = self.endpoints.drain(..).collect();
            into.change_rare(|rare| rare.endpoints = endpoints);
        }
    }

    fn clear(&mut self) {
        self.pdrs.clear();
        self.fars.clear();
        self.qers.clear();
        self.urrs.clear();
        self.bars.clear();
        self.endpoints.clear();
        self.endpoints_changed = false;
        self.new_endpoints.clear();
        self.links.clear();
        self.new_pdis.clear();
        self.left_tunnels.clear();
        self.timings.clear();
        self.usage.removed.clear();
        self.usage.updated.clear();
        self.closed.clear();
        self.silent.clear();
        self.ends = Ends::default();
        self.drops_buffered = false;
        self.is_adopted = false;
    }

    fn load(&mut self, before: &Context) {
        self.clear();
        self.ends = before.kept.read(Places {
            pdrs: &mut self.pdrs.rules,
            fars: &mut self.fars.rules,
            qers: &mut self.qers.rules,
            bars: &mut self.bars.rules,
        });
        self.urrs.rules.extend_from_slice(before.urrs());
        self.pdrs.loaded();
        self.fars.loaded();
        self.qers.loaded();
        self.urrs.loaded();
        self.bars.loaded();
        self.endpoints.extend_from_slice(before.endpoints());
        let timings = before.deferral().map(Deferral::timings);
        self.timings = timings.unwrap_or_default();
        self.note_silent();
    }

    /// See [`Self::silent`].
    fn note_silent(&mut self) {
        let is_silent = |far: &&Far| far.apply == Apply::Buffer { notify: false };
        for far in self.fars.rules.iter().filter(is_silent) {
            let led = self.pdrs.rules.iter().filter(|pdr| pdr.far == Some(far.id));
            self.silent.extend(led.map(|pdr| pdr.id));
        }
    }

    fn remove(&mut self, request: &SessionModificationRequest<'_>) -> Result<(), Refusal> {
        for ie in &request.remove_pdrs {
            self.remove_pdr(PdrId(ie?.pdr_id));
        }
        for ie in &request.remove_traffic_endpoints {
            self.remove_endpoint(ie?.traffic_endpoint_id)?;
        }
        for ie in &request.remove_fars {
            self.fars.remove(FarId(ie?.far_id));
        }
        for ie in &request.remove_qers {
            self.qers.remove(QerId(ie?.qer_id));
        }
        for ie in &request.remove_urrs {
            let id = UrrId(ie?.urr_id);
            if self.urrs.remove(id) {
                self.usage.removed.push(id);
            }
        }
        for ie in &request.remove_bars {
            self.bars.remove(BarId(ie?.bar_id));
        }
        Ok(())
    }

    fn create(&mut self, creations: &Creations<'_, '_>, site: &Site) -> Result<(), Refusal> {
        let limits = &site.limits;
        for ie in creations.bars {
            let ie = ie?;
            let bar = Bar {
                id: BarId(ie.bar_id),
                delay: ie.notification_delay.unwrap_or(0),
                packets: ie.packets.map(|count| count.0),
            };
            self.bars.create(bar, limits.bars_per_session, &BAR)?;
        }
        for ie in creations.urrs {
            let ie = ie?;
            let asks = Asks::new(&ie).map_err(in_rule::<Urr>(UrrId(ie.urr_id)))?;
            let urr = Urr {
                id: UrrId(ie.urr_id),
                asks: Arc::new(asks),
            };
            self.urrs.create(urr, limits.urrs_per_session, &URR)?;
        }
        for ie in creations.qers {
            let ie = ie?;
            let qer = intake::qer(&ie).map_err(in_rule::<Qer>(QerId(ie.qer_id)))?;
            self.qers.create(qer, limits.qers_per_session, &QER)?;
        }
        for ie in creations.fars {
            let ie = ie?;
            let far = intake::far(&ie, site).map_err(in_rule::<Far>(FarId(ie.far_id)))?;
            self.fars.create(far, limits.fars_per_session, &FAR)?;
            let to = ie.forwarding_parameters;
            self.link(ie.far_id, to.and_then(|to| to.linked_traffic_endpoint_id));
        }
        for ie in creations.endpoints {
            self.create_endpoint(&ie?, site)?;
        }
        for ie in creations.pdrs {
            let ie = ie?;
            let (pdr, wants) = intake::pdr(&ie, &self.endpoints, site)
                .map_err(in_rule::<Pdr>(PdrId(ie.pdr_id)))?;
            self.pdrs.create(pdr, limits.pdrs_per_session, &PDR)?;
            self.new_pdis.push((self.pdrs.rules.len() - 1, wants));
            self.set_timing(PdrId(ie.pdr_id), ie.activation_time, ie.deactivation_time);
        }
        Ok(())
    }

    fn update(
        &mut self,
        request: &SessionModificationRequest<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        for ie in &request.update_bars {
            let ie = ie?;
            let (_, bar) = self.bars.update(BarId(ie.bar_id), BAR.id)?;
            bar.update(&ie);
        }
        for ie in &request.update_urrs {
            let ie = ie?;
            let (_, urr) = self.urrs.update(UrrId(ie.urr_id), URR.id)?;
            let (asks, renewed) = (urr.asks.update(&ie)).map_err(in_rule::<Urr>(urr.id))?;
            urr.asks = Arc::new(asks);
            self.usage.updated.push((urr.id, renewed));
        }
        for ie in &request.update_qers {
            let ie = ie?;
            let (_, qer) = self.qers.update(QerId(ie.qer_id), QER.id)?;
            intake::update_qer(qer, &ie).map_err(in_rule::<Qer>(qer.id))?;
        }
        for ie in &request.update_fars {
            let ie = ie?;
            let (_, far) = self.fars.update(FarId(ie.far_id), FAR.id)?;
            let left = intake::update_far(far, &ie, site).map_err(in_rule::<Far>(far.id))?;
            self.left_tunnels.extend(left);
            let to = ie.update_forwarding_parameters;
            self.link(ie.far_id, to.and_then(|to| to.linked_traffic_endpoint_id));
        }
        for ie in &request.update_traffic_endpoints {
            self.update_endpoint(&ie?, site)?;
        }
        for ie in &request.update_pdrs {
            let ie = ie?;
            let (at, pdr) = self.pdrs.update(PdrId(ie.pdr_id), PDR.id)?;
            let wants =
                intake::update_pdr(pdr, &ie, &self.endpoints, site)
                    .map_err(in_rule::<Pdr>(pdr.id))?;
            if let Some(wants) = wants {
                self.renew(at, wants);
            }
            self.set_timing(PdrId(ie.pdr_id), ie.activation_time, ie.deactivation_time);
        }
        Ok(())
    }

    /// Checks, and completes, all that depends on several rules.
    fn settle(&mut self, site: &Site) -> Result<(), Refusal> {
        if self.bars.changed || self.fars.changed {
            self.settle_fars()?;
        }
        if self.urrs.changed || self.fars.changed {
            self.settle_quota_fars()?;
        }
        self.settle_predefined()?;
        self.settle_references()?;
        self.settle_filters(site)?;
        self.settle_framed()?;
        self.settle_links()
    }

    /// A Linked Traffic Endpoint of a FAR must be there. It says where packets of the other direction come in, and changes
    /// nothing for those of the FAR.
    fn settle_links(&self) -> Result<(), Refusal> {
        let lost = |&&(_, id): &&(FarId, u8)| self.endpoints.iter().all(|known| known.id != id);
        match self.links.iter().find(lost) {
            Some(&(far, _)) => {
                Err(Refusal::rule(IeType::TRAFFIC_ENDPOINT_ID).in_rule(RuleId::Far(far)))
            }
            None => Ok(()),
        }
    }

    fn link(&mut self, far: u32, endpoint: Option<u8>) {
        self.links.extend(endpoint.map(|id| (FarId(far), id)));
    }

    /// The PDR in this place has a new PDI.
    fn renew(&mut self, at: usize, wants: Wants) {
        self.new_pdis.retain(|&(known, _)| known != at);
        self.new_pdis.push((at, wants));
    }

    fn create_endpoint(
        &mut self,
        ie: &pfcp::ie::CreateTrafficEndpoint<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        let id = ie.traffic_endpoint_id;
        if self.endpoints.iter().any(|known| known.id == id) {
            return Err(Refusal::rule(IeType::TRAFFIC_ENDPOINT_ID));
        }
        if self.endpoints.len() >= ENDPOINTS_MAX {
            return Err(Refusal::no_room(IeType::CREATE_TRAFFIC_ENDPOINT));
        }
        let endpoint = Endpoint::new(ie)?;
        intake::lone_endpoint(&endpoint, site)?;
        self.endpoints.push(endpoint);
        self.endpoints_changed = true;
        self.new_endpoints.push(id);
        Ok(())
    }

    /// All PDRs that name it change with it.
    fn update_endpoint(
        &mut self,
        ie: &pfcp::ie::UpdateTrafficEndpoint<'_>,
        site: &Site,
    ) -> Result<(), Refusal> {
        let id = ie.traffic_endpoint_id;
        let unknown = Refusal::rule(IeType::TRAFFIC_ENDPOINT_ID);
        let place = self.endpoints.iter().position(|known| known.id == id);
        let place = place.filter(|_| !self.new_endpoints.contains(&id));
        let endpoint = &mut self.endpoints[place.ok_or(unknown)?];
        let before = endpoint.clone();
        endpoint.update(ie.ies)?;
        let endpoint = endpoint.clone();
        intake::lone_endpoint(&endpoint, site)?;
        self.endpoints_changed = true;
        self.new_endpoints.push(id);
        for at in 0..self.pdrs.rules.len() {
            let pdr = &mut self.pdrs.rules[at];
            if pdr.pdi.endpoint() == Some(id) {
                let wants = intake::follow_endpoint(pdr, &endpoint, &before, site)
                    .map_err(in_rule::<Pdr>(pdr.id))?;
                self.pdrs.changed = true;
                self.renew(at, wants);
            }
        }
        Ok(())
    }

    /// PDRs that name it go with it.
    fn remove_endpoint(&mut self, id: u8) -> Result<(), Refusal> {
        let at = self.endpoints.iter().position(|known| known.id == id);
        self.endpoints
            .remove(at.ok_or(Refusal::rule(IeType::TRAFFIC_ENDPOINT_ID))?);
        self.endpoints_changed = true;
        let names_it = |pdr: &&Pdr| pdr.pdi.endpoint() == Some(id);
        let pdrs: Vec<PdrId> = (self.pdrs.rules.iter())
            .filter(names_it)
            .map(|pdr| pdr.id)
            .collect();
        for pdr in pdrs {
            self.remove_pdr(pdr);
        }
        Ok(())
    }

    fn remove_pdr(&mut self, id: PdrId) {
        self.pdrs.remove(id);
        self.timings.retain(|(pdr, _)| *pdr != id);
    }

    /// QERs are not called as those of predefined rules are, and there are not too many of those.
    fn settle_predefined(&self) -> Result<(), Refusal> {
        let mut count = 0;
        for pdr in self.pdrs.rules.iter() {
            count += pdr.predefined().len();
            if count > predefined::RULES_PER_SESSION {
                let no_room = Refusal::no_room(IeType::ACTIVATE_PREDEFINED_RULES);
                return Err(no_room.in_rule(RuleId::Pdr(pdr.id)));
            }
        }
        let mut qers = self.qers.rules.iter();
        match qers.find(|qer| count > 0 && predefined::is_predefined(qer.id)) {
            Some(qer) => Err(Refusal::rule(QER.id).in_rule(RuleId::Qer(qer.id))),
            None => Ok(()),
        }
    }

    fn settle_fars(&mut self) -> Result<(), Refusal> {
        for (far, touched) in self.fars.rules.iter_mut().zip(&self.fars.touched) {
            let Some(bar) = far.bar else { continue };
            match (self.bars.has(bar), touched) {
                (true, _) => {}
                (false, true) => return Err(Refusal::rule(BAR.id).in_rule(RuleId::Far(far.id))),
                // Its BAR was removed; so is the reference.
                (false, false) => {
                    far.bar = None;
                    self.fars.changed = true;
                }
            }
        }
        Ok(())
    }

    /// The FAR for a quota's end must be there, as long as it is named.
    fn settle_quota_fars(&self) -> Result<(), Refusal> {
        let lost = |urr: &&Urr| {
            urr.asks
                .rare()
                .quota_far
                .is_some_and(|far| !self.fars.has(far))
        };
        match self.urrs.rules.iter().find(lost) {
            Some(urr) => Err(Refusal::rule(FAR.id).in_rule(RuleId::Urr(urr.id))),
            None => Ok(()),
        }
    }

    /// A PDR needs its FAR. QERs and URRs that are removed vanish from the PDRs that named them; a
    /// PDR of this very request may not name what is not there.
    fn settle_references(&mut self) -> Result<(), Refusal> {
        let Self {
            pdrs,
            fars,
            qers,
            urrs,
            ..
        } = self;
        for (pdr, &touched) in pdrs.rules.iter_mut().zip(&pdrs.touched) {
            let missing = |ie| Refusal::rule(ie).in_rule(RuleId::Pdr(pdr.id));
            if pdr.far.is_some_and(|far| !fars.has(far)) {
                return Err(missing(FAR.id));
            }
            if pdr.qers.iter().any(|&id| !qers.has(id)) {
                if touched {
                    return Err(missing(QER.id));
                }
                pdr.qers.retain(|id| qers.has(*id));
                pdrs.changed = true;
            }
            if pdr.urrs.iter().any(|&id| !urrs.has(id)) {
                if touched {
                    return Err(missing(URR.id));
                }
                pdr.urrs.retain(|id| urrs.has(*id));
                pdrs.changed = true;
            }
        }
        Ok(())
    }

    /// Filters with the same SDF Filter ID are one filter (TS 29.244, 5.2.1A.2A): an ID alone means the
    /// filter that has it elsewhere in the session, and one that is sent anew is new in all PDRs. It lives
    /// until the last PDR that has it is gone.
    fn settle_filters(&mut self, site: &Site) -> Result<(), Refusal> {
        let mut count = 0;
        for at in 0..self.pdrs.rules.len() {
            let name = RuleId::Pdr(self.pdrs.rules[at].id);
            for filter in 0..self.pdrs.rules[at].pdi.filters().len() {
                if let Some(id) = self.pdrs.rules[at].pdi.filters()[filter].id {
                    let asks = self.filter_named(id).map_err(|r| r.in_rule(name))?;
                    self.pdrs.rules[at].pdi.filters_mut()[filter].asks = asks;
                }
                count += self.pdrs.rules[at].pdi.filters()[filter].asks.flow_count();
                if count > site.limits.filters_per_session {
                    return Err(Refusal::no_room(IeType::SDF_FILTER).in_rule(name));
                }
            }
        }
        Ok(())
    }

    /// Packets look for the networks behind a UE one after the other.
    fn settle_framed(&self) -> Result<(), Refusal> {
        let mut known: Vec<IpNet> = Vec::new();
        for pdr in &self.pdrs.rules {
            let name = RuleId::Pdr(pdr.id);
            for net in pdr.pdi.framed() {
                if !known.contains(net) {
                    known.push(*net);
                }
                if known.len() > FRAMED_MAX {
                    return Err(Refusal::no_room(IeType::FRAMED_ROUTE).in_rule(name));
                }
            }
        }
        Ok(())
    }

    /// Conditions of the SDF filter with this id: as this request gives them, else as they were.
    fn filter_named(&self, id: u32) -> Result<Conditions, Refusal> {
        let wrong = Refusal::rule(IeType::SDF_FILTER);
        let said = |now: bool| {
            let is_new = |at: usize| self.new_pdis.iter().any(|&(new, _)| new == at);
            let pdrs = self.pdrs.rules.iter().enumerate();
            pdrs.filter(move |&(at, _)| is_new(at) == now)
                .flat_map(|(_, pdr)| pdr.pdi.filters())
                .filter(move |filter| filter.id == Some(id) && !filter.is_reference())
                .map(|filter| &filter.asks)
        };
        let mut new = said(true);
        let asks = new.next();
        if new.any(|other| Some(other) != asks) {
            return Err(wrong);
        }
        asks.or_else(|| said(false).next()).cloned().ok_or(wrong)
    }
}

fn in_rule<R: Rule>(id: R::Id) -> impl Fn(Refusal) -> Refusal {
    move |refusal| refusal.in_rule(R::named(id))
}
