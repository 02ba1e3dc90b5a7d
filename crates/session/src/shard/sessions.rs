//! All sessions: found by SEID, owned by one peer each, changed as a whole or not at all.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use compiled::{Compiled, EndedTunnel, NoRoom, PdrId, Tables};
use pfcp::ie::{PdnType, PfcpSmReqFlags};
use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use pfcp::{Cause, IeType};

use crate::base::gtpu::Tunnel;
use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::base::shares::Shares;
use crate::base::slab::{Place, Slab};
use crate::base::time::Time;
use crate::compile::compiler::{self, Compiler};
use crate::rules::config::Config;
use crate::rules::endpoints::Endpoint;
use crate::rules::site::Site;
use crate::rules::summary::SessionSummary;
use crate::rules::unsupported::IN_SESSION;
use crate::rules::{Far, FarId, PacketRules, Pdr, RuleId};
use crate::shard::context::Context;
use crate::shard::draft::Draft;
use crate::shard::holders::Holders;
use crate::shard::index::applications::Applications;
use crate::shard::index::deferred::Deferred;
use crate::shard::index::inactivity::{Inactivity, Watch};
use crate::shard::index::paging::Paging;
use crate::shard::index::sets::{Membership, SetIndex};
use crate::shard::index::stopped::Stopped;
use crate::shard::index::tunnels::{self, TunnelIndex};
use crate::shard::index::usage::UsageWork;
use crate::shard::ledger::Ledger;
use crate::shard::resources::{ResourceFill, Resources};
use crate::shard::session::{List, Session};
use crate::shard::usage_before::{Before, usage_before};
use crate::shard::view::{SessionCounts, SessionView};
use crate::usage::report::Subject;
use foldhash::quality::FixedState;

pub(crate) use crate::shard::resources::Created;

/// Every session of every peer.
pub(crate) struct Sessions<T: Tables> {
    pub(super) site: Site,
    pub(super) slab: Slab<Session<T::Handle>>,
    pub(super) resources: Resources,
    pub(super) peers: HashMap<PeerId, List, FixedState>,
    /// Of deleted peers, not yet taken out.
    pub(super) doomed: Vec<List>,
    /// Of deleted peers, and to go with the tables: see [`Self::let_be`].
    left: usize,
    /// For the next list.
    pub(super) epoch: u32,
    pub(super) sets: SetIndex,
    pub(super) tunnels: TunnelIndex,
    pub(super) draft: Draft,
    pub(super) compiler: Compiler,
    pub(super) compiled: Compiled,
    pub(super) inactivity: Inactivity,
    pub(super) deferred: Deferred,
    pub(super) usage: UsageWork,
    /// See [`PacketRules::closed`]; kept for its capacity.
    pub(super) closed: Vec<(PdrId, Option<FarId>)>,
    /// PDRs before a request; kept for its capacity.
    pub(super) before: Vec<Pdr>,
    pub(super) applications: Applications,
    pub(super) stopped: Stopped,
    /// See [`PacketRules::stopped`]; kept for its capacity.
    pub(super) stopped_now: Vec<Tunnel>,
    pub(super) paging: Paging,
    pub(super) ledger: Ledger,
    /// Peers whose number of sessions has changed since the node was told, each once.
    pub(super) counted: Vec<PeerId>,
}

/// Content of the answer to an accepted deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deleted {
    /// The CP's SEID, for the header of the answer.
    pub(crate) cp_seid: u64,
    /// The session, if it has something to report.
    pub(crate) measured: Option<Subject>,
}

/// Sessions taken out at a time when their places, TEIDs or addresses are needed at once.
const REAPED_ON_DEMAND: usize = 1024;

impl<T: Tables> Sessions<T> {
    /// `seed` makes SEIDs hard to guess and hashing hard to aim at; `direct_teids` as
    /// [`Tables::direct_teids`] says.
    pub(crate) fn new(config: &Config, seed: u64, direct_teids: u32) -> Self {
        let limits = &config.limits;
        let shares = Shares::new(limits.shares, []);
        let shares = shares.with_reserve(limits.emergency_sessions, limits.sessions);
        Self {
            site: Site::new(config),
            slab: Slab::new(seed, limits.sessions),
            resources: Resources::new(config, seed, direct_teids),
            peers: HashMap::with_hasher(FixedState::with_seed(seed)),
            doomed: Vec::new(),
            left: 0,
            epoch: 0,
            sets: SetIndex::new(seed),
            tunnels: TunnelIndex::new(seed),
            draft: Draft::default(),
            compiler: Compiler::default(),
            compiled: Compiled::default(),
            inactivity: Inactivity::default(),
            deferred: Deferred::default(),
            usage: UsageWork::default(),
            closed: Vec::new(),
            before: Vec::new(),
            applications: Applications::default(),
            stopped: Stopped::default(),
            stopped_now: Vec::new(),
            paging: Paging::default(),
            ledger: Ledger::new(config.limits.sessions, shares),
            counted: Vec::new(),
        }
    }

    /// Session Establishment (TS 29.244, 6.3.2): our SEID. [`Self::created`] says what we chose.
    pub(crate) fn establish(
        &mut self,
        now: Time,
        peer: PeerId,
        request: &SessionEstablishmentRequest<'_>,
        tables: &mut T,
    ) -> Result<u64, Refusal> {
        let seid = loop {
            match self.try_establish(now, peer, request, tables) {
                Ok(seid) => break seid,
                // A peer that has restarted may want what its former self still holds.
                Err(refusal) if refusal.is_for_want() && !self.doomed.is_empty() => {
                    self.reap(now, REAPED_ON_DEMAND, tables);
                }
                Err(refusal) => return Err(refusal),
            }
        };
        self.watch(now, seid, request.user_plane_inactivity_timer, tables);
        self.defer(now, seid);
        self.usage_begins(now, seid, tables);
        Ok(seid)
    }

    fn try_establish(
        &mut self,
        now: Time,
        peer: PeerId,
        request: &SessionEstablishmentRequest<'_>,
        tables: &mut T,
    ) -> Result<u64, Refusal> {
        establishment_is_supported(request)?;
        let membership = Membership::of(request)?;
        self.draft.establish(request, &self.site)?;
        let mut context = Context::of(request.cp_f_seid.seid, membership);
        if self.site.is_emergency(self.draft.networks()) {
            context.change_rare(|rare| rare.is_emergency = true);
        }
        self.enter(now, peer, None, context, tables)
    }

    /// Session Modification (TS 29.244, 6.3.3): the CP's SEID, for the header of the answer; the request may have changed it.
    /// [`Self::created`] says what we chose.
    pub(crate) fn modify(
        &mut self,
        now: Time,
        place: Place,
        seid: u64,
        request: &SessionModificationRequest<'_>,
        tables: &mut T,
    ) -> Result<u64, Refusal> {
        let before = self.packets_if_watched(seid, tables);
        let measured = loop {
            match self.try_modify(now, place, seid, request, tables) {
                Ok(measured) => break measured,
                Err(refusal) if refusal.is_for_want() && !self.doomed.is_empty() => {
                    self.reap(now, REAPED_ON_DEMAND, tables);
                }
                Err(refusal) => return Err(refusal),
            }
        };
        if let (Some(before), Some(after)) = (before, self.packets_if_watched(seid, tables)) {
            self.carry(now, place, before, after);
        }
        self.watch(now, seid, request.user_plane_inactivity_timer, tables);
        self.defer(now, seid);
        if let Some(before) = measured {
            self.usage_follows(now, place, seid, &before, request, tables);
        }
        self.end_paging(seid);
        self.notice(seid, tables);
        let session = self.slab.get(place);
        Ok(session.map_or(0, |session| session.context.cp_seid))
    }

    fn try_modify(
        &mut self,
        now: Time,
        place: Place,
        seid: u64,
        request: &SessionModificationRequest<'_>,
        tables: &mut T,
    ) -> Result<Option<Before>, Refusal> {
        modification_is_supported(request)?;
        let session = self
            .slab
            .get_mut(place)
            .ok_or(Cause::SESSION_CONTEXT_NOT_FOUND)?;
        self.draft.modify(&session.context, request, &self.site)?;
        let measured = usage_before(session, &mut self.draft, request, tables)?;
        if self.draft.may_move_keys() {
            session.context.kept.read_pdrs(&mut self.before);
        } else {
            self.before.clear();
        }
        self.stopped_now.clear();
        if !self.draft.fars.changed {
            self.stopped_now.extend(session.context.paused());
        }
        // Out of its place meanwhile, which is put right on both ways out.
        let peer = session.peer;
        let payer = self.ledger.payer(peer, place);
        let handle = std::mem::take(&mut session.handle);
        let (handle, outcome) = match self.publish(now, (peer, payer), seid, handle, tables) {
            Ok(handle) => {
                self.keep(now, peer, seid);
                if self.draft.fars.changed {
                    self.forget_indicated(seid);
                }
                self.end_tunnels(tables);
                self.tunnels.tire(now);
                self.land(place, request);
                (handle, Ok(()))
            }
            Err((handle, refusal)) => (handle, Err(refusal)),
        };
        if let Some(session) = self.slab.unnoted_mut(place) {
            session.handle = handle;
        }
        outcome.map(|()| measured)
    }

    /// Keeps the resources that the draft names; releases the rest.
    fn keep(&mut self, now: Time, peer: PeerId, seid: u64) {
        if !self.draft.pdrs.changed && !self.draft.endpoints_changed {
            return;
        }
        let before = Holders {
            pdrs: &self.before,
            endpoints: endpoints_of(&self.slab, seid),
        };
        self.resources.keep(now, before, self.draft.holders());
        self.applications
            .keep(peer, &self.before, &self.draft.pdrs.rules);
    }

    /// The session is what the draft says.
    fn land(&mut self, place: Place, request: &SessionModificationRequest<'_>) {
        let indexed = self.tunnels.covers(place);
        let Some(session) = self.slab.get_mut(place) else {
            return;
        };
        let context = &mut session.context;
        let before = indexed.then(|| tunnels::keys(&context.rules().fars));
        let after = indexed.then(|| tunnels::keys(&self.draft.fars.rules));
        self.draft.land(context);
        if let Some(f_seid) = request.cp_f_seid {
            context.cp_seid = f_seid.seid;
        }
        if let Some((before, after)) = before.zip(after) {
            self.tunnels.change(place, &before, &after);
        }
    }

    /// Takes what the draft needs, and makes packets meet it, but in tunnels that pause ([`Self::stopped_now`]). On a
    /// refusal, nothing has happened.
    pub(super) fn publish(
        &mut self,
        now: Time,
        (peer, payer): (PeerId, PeerId),
        seid: u64,
        mut handle: T::Handle,
        tables: &mut T,
    ) -> Result<T::Handle, (T::Handle, Refusal)> {
        if self.draft.packets_may_notice() {
            self.hold(seid, tables);
        }
        let held = Holders {
            pdrs: &self.before,
            endpoints: endpoints_of(&self.slab, seid),
        };
        let outcome = self
            .resources
            .take(now, &mut self.draft, held, &self.site)
            .and_then(|()| {
                if !self.draft.packets_may_notice() {
                    if self.draft.drops_buffered {
                        tables.discard_buffered(seid);
                    }
                    return Ok(());
                }
                self.draft.set_time(self.deferred.now_s(now));
                let rules = PacketRules {
                    predefined: &self.site.predefined,
                    applications: self.applications.flows(peer),
                    stopped: &self.stopped_now,
                    ..self.draft.for_packets()
                };
                let reaches = |peer| tables.reaches(peer);
                self.compiler
                    .compile(rules, &self.site, &reaches, &mut self.compiled)?;
                compiler::name(&mut self.compiled, seid, rules.pdrs);
                self.compiled.drops_buffered = self.draft.drops_buffered;
                let new = &mut self.compiled;
                let published = self.ledger.publish(payer, &mut handle, new, tables);
                published.map_err(no_room)
            });
        match outcome {
            Ok(()) => Ok(handle),
            Err(refusal) => {
                self.resources.undo();
                Err((handle, refusal))
            }
        }
    }

    /// The session is about to change otherwise than by the data path.
    pub(super) fn hold(&self, seid: u64, tables: &mut T) {
        if let Some(place) = self.slab.place_of(seid) {
            tables.hold(place.index());
        }
    }

    fn end_tunnels(&self, tables: &mut T) {
        for left in self.draft.ended_tunnels() {
            // Over the family that its packets went.
            let reaches = |peer| tables.reaches(peer);
            let path = self.site.path_to(left.tunnel, left.through, &reaches);
            let Some((peer, local)) = path else { continue };
            tables.end_tunnel(&EndedTunnel {
                teid: left.tunnel.teid(),
                peer,
                local,
            });
        }
    }

    /// Session Deletion (TS 29.244, 6.3.4).
    pub(crate) fn delete(
        &mut self,
        now: Time,
        place: Place,
        seid: u64,
        tables: &mut T,
    ) -> Result<Deleted, Refusal> {
        self.usage.reports.clear();
        self.usage_ends(now, place, tables);
        let reports = !self.usage.reports.is_empty();
        let measured = reports.then(|| self.subject(seid)).flatten();
        let out = self
            .leave(now, place, tables)
            .ok_or(Cause::SESSION_CONTEXT_NOT_FOUND)?;
        Ok(Deleted {
            cp_seid: out.cp_seid,
            measured,
        })
    }

    /// TEIDs and addresses chosen for the last accepted request.
    pub(crate) fn created(&self) -> &[Created] {
        self.resources.created()
    }

    /// Disown all sessions of a peer, at once however many: they are found no more, and go with
    /// [`Self::reap`].
    pub(crate) fn delete_peer(&mut self, peer: PeerId) {
        self.doomed.extend(self.peers.remove(&peer));
    }

    /// Delete up to `at_most` of the sessions of deleted peers. How many are left.
    pub(crate) fn reap(&mut self, now: Time, at_most: usize, tables: &mut T) -> usize {
        for _ in 0..at_most {
            let Some(mut list) = self.doomed.pop() else {
                break;
            };
            if let Some(place) = list.first {
                self.usage_is_left(now, place, tables);
            }
            let place = list.first;
            let out = place.and_then(|place| self.take_out(place));
            if let Some((place, out)) = place.zip(out) {
                self.bridge(out.previous, out.next, &mut list);
                self.dissolve(now, place, out, tables);
                if list.len > 0 {
                    self.doomed.push(list);
                }
            }
        }
        self.doomed_len()
    }

    /// As [`Self::reap`], where the tables go next: a session that measures nothing is not deleted. It forwards until
    /// then, and nobody waits for its deletion.
    pub(crate) fn let_be(&mut self, now: Time, at_most: usize, tables: &mut T) -> usize {
        for _ in 0..at_most {
            let Some(mut list) = self.doomed.pop() else {
                break;
            };
            let first = list.first.and_then(|place| self.slab.get(place));
            let unmeasured = first.filter(|session| session.context.usage().is_none());
            let Some(next) = unmeasured.map(|session| session.next) else {
                self.doomed.push(list);
                self.reap(now, 1, tables);
                continue;
            };
            self.bridge(None, next, &mut list);
            self.left += 1;
            if list.len > 0 {
                self.doomed.push(list);
            }
        }
        self.doomed_len()
    }

    fn doomed_len(&self) -> usize {
        self.doomed.iter().map(|list| list.len).sum()
    }

    /// Joins the neighbours of one that leaves the list.
    pub(crate) fn bridge(&mut self, previous: Option<Place>, next: Option<Place>, list: &mut List) {
        match previous.and_then(|place| self.slab.unnoted_mut(place)) {
            Some(neighbour) => neighbour.next = next,
            None => list.first = next,
        }
        match next.and_then(|place| self.slab.unnoted_mut(place)) {
            Some(neighbour) => neighbour.previous = previous,
            None => list.last = previous,
        }
        list.len -= 1;
    }

    /// Place that a SEID leads to, if it is one of ours; what is there is not read.
    pub(crate) fn place_of(&self, seid: u64) -> Option<Place> {
        self.slab.place_of(seid)
    }

    /// Read what is in this place. Like that of the next ones, the result means nothing.
    pub(crate) fn touch(&self, place: Place) -> u64 {
        self.slab.get(place).map_or(0, |session| {
            // A session is longer than a line of the cache.
            session.context.cp_seid ^ u64::from(session.epoch)
        })
    }

    pub(crate) fn touch_rules(&self, place: Place) -> u64 {
        let Some(session) = self.slab.get(place) else {
            return 0;
        };
        session.context.kept.touch()
    }

    pub(crate) fn touch_entries(&self, place: Place, tables: &T) -> u64 {
        let session = self.slab.get(place);
        session.map_or(0, |session| tables.touch(&session.handle))
    }

    /// A peer reaches its own sessions only.
    pub(super) fn owned(&self, peer: PeerId, seid: u64) -> Option<Place> {
        let place = self.slab.find(seid)?;
        let session = self.slab.get(place)?;
        (session.peer == peer && self.is_live(session)).then_some(place)
    }

    /// Whether a session of this peer is there.
    pub(crate) fn is_of(&self, place: Place, peer: PeerId) -> bool {
        let session = self.slab.get(place);
        session.is_some_and(|session| session.peer == peer && self.is_live(session))
    }

    pub(crate) fn is_live(&self, session: &Session<T::Handle>) -> bool {
        self.peers
            .get(&session.peer)
            .is_some_and(|list| list.epoch == session.epoch)
    }

    /// The CP's SEID of the session in this place; 0: there is none.
    pub(super) fn cp_seid(&self, place: Place) -> u64 {
        let session = self.slab.get(place);
        session.map_or(0, |session| session.context.cp_seid)
    }

    /// Place of a session, unless its peer has left it.
    pub(crate) fn place_if_live(&self, seid: u64) -> Option<Place> {
        let place = self.slab.find(seid)?;
        self.is_live(self.slab.get(place)?).then_some(place)
    }

    /// Peer that owns the session with this SEID of ours, and the peer's SEID.
    pub(crate) fn owner(&self, seid: u64) -> Option<(PeerId, u64)> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        self.is_live(session)
            .then_some((session.peer, session.context.cp_seid))
    }

    /// The peer calls its session something else from now on.
    pub(crate) fn set_cp_seid(&mut self, peer: PeerId, seid: u64, cp_seid: u64) {
        let session = self.owned(peer, seid).and_then(|at| self.slab.get_mut(at));
        if let Some(session) = session {
            session.context.cp_seid = cp_seid;
        }
    }

    /// Sessions that are there; those waiting for [`Self::reap`] are not counted.
    pub(crate) fn len(&self) -> usize {
        self.slab.len() - self.doomed_len() - self.left
    }

    /// Sessions of this peer.
    pub(crate) fn len_of(&self, peer: PeerId) -> usize {
        self.peers.get(&peer).map_or(0, |list| list.len)
    }

    /// Indexes have what follows from the sessions, and nothing else.
    #[cfg(test)]
    pub(crate) fn check_indexes(&self) {
        crate::shard::tests::records::check(&self.slab, &self.site);
        self.ledger.check(self.slab.len());
        let (mut inactivity, mut deferred) = (self.inactivity.clone(), self.deferred.clone());
        let (mut paging, mut stopped) = (self.paging.clone(), self.stopped.clone());
        for (seid, session) in self.slab.iter_after(None) {
            if let Some(rare) = session.context.rare() {
                assert!(!rare.is_empty(), "{seid:#x} keeps something of nothing");
                assert!(inactivity.unindex(seid, rare.watch.as_ref()));
                assert!(deferred.unindex(seid, rare.deferral.as_ref()));
                assert!(paging.unindex(seid, rare.waiting.as_ref()));
                assert!(stopped.unindex(seid, &rare.indicated));
            }
        }
        assert_eq!(inactivity.next_deadline(), None);
        assert_eq!(deferred.next_deadline(), None);
        assert_eq!(paging.next_deadline(), None);
        assert_eq!(stopped.next_deadline(), None);
    }

    #[cfg(test)]
    pub(crate) fn endpoints(&self, seid: u64) -> &[Endpoint] {
        endpoints_of(&self.slab, seid)
    }

    /// A session by itself.
    pub(crate) fn context(&self, seid: u64) -> Option<&Context> {
        Some(&self.slab.get(self.slab.find(seid)?)?.context)
    }

    #[cfg(test)]
    pub(crate) fn rules(&self, seid: u64) -> Option<crate::rules::Rules> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        Some(session.context.rules())
    }

    /// Put the tunnels of sessions in up to `at_most` more places into the index.
    pub(crate) fn index_tunnels(&mut self, at_most: usize) {
        if let Some(from) = self.tunnels.next() {
            if from == Place::FIRST {
                self.tunnels.expect(self.slab.len());
            }
            let mut next = Some(from);
            for _ in 0..at_most {
                let Some(place) = next else { break };
                if let Some(session) = self.slab.get(place) {
                    let keys = tunnels::keys(&session.context.rules().fars);
                    self.tunnels.change(place, &[], &keys);
                }
                next = self.slab.after(place);
            }
            self.tunnels.reached(next);
        }
    }

    /// Our SEIDs of the sessions that send into this tunnel, once the index is whole.
    pub(crate) fn with_tunnel(&self, (teid, peer): Tunnel) -> Vec<u64> {
        let sends = |far: &Far| {
            let tunnel = far.forwarding().and_then(|f| f.tunnel);
            tunnel.is_some_and(|t| t.teid() == teid && t.addresses().any(|a| a == peer))
        };
        let found = self.tunnels.find(tunnels::key(teid, peer));
        let theirs = found.into_iter().filter(|place| {
            let session = self.slab.get(*place);
            session.is_some_and(|s| self.is_live(s) && s.context.rules().fars.iter().any(sends))
        });
        theirs.filter_map(|place| self.slab.seid(place)).collect()
    }

    /// One session as operators see it.
    pub(crate) fn view(&self, seid: u64, tables: &T) -> Option<SessionView> {
        let session = self
            .slab
            .get(self.slab.find(seid)?)
            .filter(|s| self.is_live(s))?;
        let counters = |pdr, predefined| match predefined {
            None => tables.counters(&session.handle, pdr),
            Some(rule) => tables.counters_of(&session.handle, pdr, rule),
        };
        let mut view = SessionView::new(
            seid,
            session.context.cp_seid,
            session.peer,
            &session.context.rules(),
            &self.site,
            counters,
        );
        let watch = session.context.rare().and_then(|rare| rare.watch.as_ref());
        view.inactivity_s = watch.map(Watch::limit_s);
        view.urrs = session.usage_view(&counters);
        let dormant = session.context.dormant();
        for pdr in &mut view.pdrs {
            pdr.dormant = dormant.contains(&pdr.id);
        }
        Some(view)
    }

    /// Counts of one session.
    pub(crate) fn counts(&self, seid: u64, tables: &T) -> Option<SessionCounts> {
        let session = self.slab.get(self.slab.find(seid)?);
        let session = session.filter(|session| self.is_live(session))?;
        let counters = |pdr| tables.counters(&session.handle, pdr);
        let rules = session.context.rules();
        Some(SessionCounts::new(seid, &rules, &self.site, counters))
    }

    /// Sessions in an order that stays, those after `seid` if given.
    pub(crate) fn summaries(
        &self,
        after: Option<u64>,
    ) -> impl Iterator<Item = SessionSummary> + '_ {
        let live = self
            .slab
            .iter_after(after)
            .filter(|(_, session)| self.is_live(session));
        live.map(|(seid, session)| session.summary(seid))
    }

    /// SEIDs of those.
    pub(crate) fn seids(&self, after: Option<u64>) -> impl Iterator<Item = u64> + '_ {
        let live = self.slab.iter_after(after);
        live.filter(|(_, session)| self.is_live(session))
            .map(|(seid, _)| seid)
    }

    /// See [`Core::set_own_addresses`](crate::Core::set_own_addresses).
    pub(crate) fn set_host_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.site.set_host(addresses);
    }

    /// How full the allocators are.
    pub(crate) fn fill(&self) -> ResourceFill {
        self.resources.fill()
    }
}

impl<T: Tables> fmt::Debug for Sessions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("len", &self.len())
            .field("doomed", &self.doomed_len())
            .finish_non_exhaustive()
    }
}

/// Traffic Endpoints of a session; most have none.
fn endpoints_of<H>(sessions: &Slab<Session<H>>, seid: u64) -> &[Endpoint] {
    let session = sessions.find(seid).and_then(|place| sessions.get(place));
    session.map_or(&[], |session| session.context.endpoints())
}

fn establishment_is_supported(request: &SessionEstablishmentRequest<'_>) -> Result<(), Refusal> {
    let refuse = |ie| Err(Refusal::ie(Cause::SERVICE_NOT_SUPPORTED, ie));
    if let Some(ie) = IN_SESSION.find(request.ies) {
        return refuse(ie);
    }
    if request
        .pdn_type
        .is_some_and(|t| matches!(t, PdnType::Ethernet | PdnType::NonIp))
    {
        return refuse(IeType::PDN_TYPE);
    }
    // RESTI: with the F-TEIDs that it had in a former life. They are taken as those that an SMF chooses.
    Ok(())
}

fn modification_is_supported(request: &SessionModificationRequest<'_>) -> Result<(), Refusal> {
    let refuse = |ie| Err(Refusal::ie(Cause::SERVICE_NOT_SUPPORTED, ie));
    if let Some(ie) = IN_SESSION.find(request.ies) {
        return refuse(ie);
    }
    // Nothing is buffered that DROBU could drop.
    // Nothing is measured that QAURR could report.
    if request
        .pfcpsmreq_flags
        .is_some_and(|flags| flags.contains(PfcpSmReqFlags::SNDEM))
    {
        return refuse(IeType::PFCPSMREQ_FLAGS);
    }
    Ok(())
}

/// Refusal for want of room in the tables.
fn no_room(full: NoRoom) -> Refusal {
    let refusal = Refusal::short_of(full.into());
    match full.qer {
        Some(qer) => refusal.in_rule(RuleId::Qer(qer)),
        None => refusal,
    }
}
