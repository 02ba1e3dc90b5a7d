//! A set of sessions: requests about them, what they hold, and what falls due for them.
//!
//! A [`Shard`] knows of SMFs only what the associations say that it is shown, and tells its node by [`Shards`].

pub(crate) mod adopt;
pub(crate) mod applications;
pub(crate) mod context;
pub(crate) mod deferred;
#[cfg(test)]
pub(crate) mod deferred_tests;
pub(crate) mod displaced;
pub(crate) mod draft;
pub(crate) mod error_indication;
pub(crate) mod finishing;
pub(crate) mod hand_over;
pub(crate) mod inactivity;
pub(crate) mod kept;
pub(crate) mod ledger;
pub(crate) mod paging;
#[cfg(test)]
pub(crate) mod paging_tests;
pub mod record;
pub(crate) mod reports;
#[cfg(test)]
pub(crate) mod reports_tests;
pub(crate) mod resources;
pub(crate) mod session_requests;
pub(crate) mod sessions;
pub(crate) mod set_requests;
pub(crate) mod sets;
pub(crate) mod stopped;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tunnels;
pub(crate) mod usage;
pub(crate) mod usage_reports;
pub(crate) mod view;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use compiled::Tables;

use crate::base::event::Event;
use crate::base::ids::{PartyId, PeerId};
use crate::base::node_id::NodeId;
use crate::base::pfd::Property;
use crate::base::refusal::Refusal;
use crate::base::shares::Shares;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::exchange::n4::Turn;
use crate::exchange::requests::{About, Purpose};
use crate::node::peer::Peers;
use crate::node::shards::{Shards, Then};
use crate::rules::config::Config;
use crate::rules::summary::SessionSummary;
use crate::shard::finishing::Finishing;
use crate::shard::ledger::Ledger;
use crate::shard::reports::Reports;
use crate::shard::resources::{Created, ResourceFill};
use crate::shard::sessions::Sessions;
use crate::shard::view::SessionView;

/// Sessions, the tables that their packets meet, reports about them, and what falls due for them.
#[derive(Debug)]
pub(crate) struct Shard<T: Tables> {
    config: Arc<Config>,
    tables: T,
    sessions: Sessions<T>,
    reports: Reports,
    sweep: Sweep,
    finishing: Finishing,
    closing: bool,
    /// Kept for its capacity.
    created: Vec<Created>,
}

/// Sessions of peers that are gone, deleted step by step.
#[derive(Debug, Default)]
struct Sweep {
    left: usize,
    deleted: usize,
    /// Whose sessions they were.
    gone: BTreeMap<PeerId, NodeId>,
}

/// Sessions whose PDRs come or go before other work may go first.
const SESSIONS_PER_STEP: usize = 256;

impl<T: Tables> Shard<T> {
    /// `started`: when we were, by the wall clock, which says so at `Time(0)`.
    pub(crate) fn new(config: &Arc<Config>, started: Duration, tables: T) -> Self {
        let mut sessions = Sessions::new(config, config.seed, tables.direct_teids());
        sessions.deferred.set_clock(Time(0), started);
        Self {
            config: Arc::clone(config),
            tables,
            sessions,
            reports: Reports::default(),
            sweep: Sweep::default(),
            finishing: Finishing::default(),
            closing: false,
            created: Vec::new(),
        }
    }

    /// See [`Core::set_clock`](crate::Core::set_clock).
    pub(crate) fn set_clock(&mut self, now: Time, ntp: Duration) {
        self.sessions.deferred.set_clock(now, ntp);
    }

    /// Tells SMFs of sessions that are quiet, and of what was measured, where it is time.
    pub(crate) fn measure(&mut self, turn: &mut Turn<'_>, peers: &Peers) {
        if !self.closing {
            self.look_for_inactivity(turn, peers);
            self.keep_usage(turn, peers);
        }
    }

    /// Pages, has PDRs begin or cease to hold, and tries tunnels again, where it is time.
    pub(crate) fn keep_times(&mut self, turn: &mut Turn<'_>, peers: &Peers) {
        if !self.closing {
            self.page(turn, peers);
            let (now, tables) = (turn.now, &mut self.tables);
            self.sessions.keep_times(now, SESSIONS_PER_STEP, tables);
            self.sessions.resume(now, SESSIONS_PER_STEP, tables);
        }
    }

    /// A step towards indexes that are whole, and sessions that go by the PFDs as they are now.
    pub(crate) fn catch_up(&mut self, turn: &mut Turn<'_>, peers: &Peers) {
        if self.sessions.tunnels.is_behind() {
            self.look_up_tunnels(turn, peers);
        }
        if self.sessions.applications.is_behind() {
            self.fit_to_pfds(turn);
        }
    }

    /// When something falls due; in the past: at once, but other work may go first.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let sessions = &self.sessions;
        let indexing = sessions.tunnels.is_behind() || sessions.applications.is_behind();
        if self.sweep.left > 0 || indexing || self.finishing.is_behind() {
            return Some(Time(0));
        }
        let sessions = (!self.closing).then_some(sessions)?;
        let due = [
            sessions.inactivity.next_deadline(),
            sessions.deferred.next_deadline(),
            sessions.usage.next_deadline(),
            sessions.stopped.next_deadline(),
            sessions.paging.next_deadline(),
        ];
        due.into_iter().flatten().min()
    }

    /// Whether a request is still worth sending: the session that it is about is there.
    pub(crate) fn wants(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Report(About { seid, .. }) => self.sessions.owner(seid).is_some(),
            _ => true,
        }
    }

    /// Deletes some more sessions of peers that are gone. `true`: that was the last one.
    pub(crate) fn sweep_step(&mut self, turn: &mut Turn<'_>, peers: &Peers) -> bool {
        if self.sweep.left == 0 {
            return false;
        }
        let before = self.sweep.left;
        let at_most = self.config.deletions_per_step.max(1);
        let (now, tables) = (turn.now, &mut self.tables);
        self.sweep.left = if self.closing && peers.len() == 0 {
            self.sessions.let_be(now, at_most, tables)
        } else {
            self.sessions.reap(now, at_most, tables)
        };
        self.log_usage(turn, peers);
        let deleted = before.saturating_sub(self.sweep.left);
        self.sweep.deleted += deleted;
        turn.stats().swept += deleted as u64;
        if self.sweep.left > 0 {
            return false;
        }
        self.sweep.gone.clear();
        let sessions = std::mem::take(&mut self.sweep.deleted);
        turn.out.event(Event::SessionsDeleted { sessions });
        true
    }

    /// Sessions of peers that are gone and that are not deleted yet.
    pub(crate) fn to_delete(&self) -> usize {
        self.sweep.left
    }

    /// Sessions of peers that are there.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// How many of the sessions that there may be there are, in percent.
    pub(crate) fn full_percent(&self) -> u8 {
        let limit = self.config.limits.sessions.max(1) as usize;
        (self.sessions.len().min(limit) * 100 / limit) as u8
    }

    /// See [`Core::set_own_addresses`](crate::Core::set_own_addresses).
    pub(crate) fn set_own_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.sessions.set_host_addresses(addresses);
    }

    /// Sessions in a stable order, those that come after the one with this SEID.
    pub(crate) fn summaries(
        &self,
        after: Option<u64>,
    ) -> impl Iterator<Item = SessionSummary> + '_ {
        self.sessions.summaries(after)
    }

    /// See [`Core::name_sessions`](crate::Core::name_sessions).
    pub(crate) fn name_sessions(&self, after: Option<u64>, limit: usize) -> Option<u64> {
        self.sessions.name_some(after, limit, &self.tables)
    }

    /// One session with its rules and counters, by our SEID.
    pub(crate) fn view(&self, seid: u64) -> Option<SessionView> {
        self.sessions.view(seid, &self.tables)
    }

    /// See [`Core::record`](crate::Core::record).
    pub(crate) fn record(&self, seid: u64, peers: &Peers) -> Option<Vec<u8>> {
        let (peer, _) = self.sessions.owner(seid)?;
        let smf = &peers.get(peer)?.node_id;
        let context = self.sessions.context(seid)?;
        Some(record::write(seid, smf, context, &self.sessions.site))
    }

    /// How much of what we give out is given out.
    pub(crate) fn fill(&self) -> ResourceFill {
        self.sessions.fill()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.sessions.ledger
    }

    pub(crate) fn tables(&self) -> &T {
        &self.tables
    }

    pub(crate) fn tables_mut(&mut self) -> &mut T {
        &mut self.tables
    }

    /// Where a SEID leads, if it is one of ours, without looking.
    pub(crate) fn place_of(&self, seid: u64) -> Option<Place> {
        self.sessions.place_of(seid)
    }

    /// Read what requests about the sessions in these places will read. The result means nothing. Each loop is over what the
    /// one before has made reachable: a processor looks ahead some hundred instructions.
    pub(crate) fn touch(&self, places: &[Place]) -> u64 {
        let mut read = 0;
        for &place in places {
            read ^= self.sessions.touch(place);
        }
        for &place in places {
            read ^= self.sessions.touch_rules(place);
        }
        for &place in places {
            read ^= self.sessions.touch_entries(place, &self.tables);
        }
        read
    }
}

#[cfg(test)]
impl<T: Tables> Shard<T> {
    pub(crate) fn check_indexes(&self) {
        self.sessions.check_indexes();
    }
}

impl<T: Tables> Shards for Shard<T> {
    fn sessions_of(&self, peer: PeerId) -> usize {
        self.sessions.len_of(peer)
    }

    fn forget(&mut self, peer: PeerId) {
        self.reports.forget(peer);
        self.finishing.forget(peer);
        self.sessions.applications.forget(peer);
        self.sessions.ledger.forget(peer);
    }

    fn disown(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        peer: PeerId,
        node_id: Option<NodeId>,
    ) -> bool {
        let sessions = self.sessions.len_of(peer);
        if let Some(node_id) = node_id.filter(|_| sessions > 0) {
            self.sweep.gone.insert(peer, node_id);
        }
        self.sessions.delete_peer(peer);
        self.sweep.left += sessions;
        self.sweep_step(turn, peers)
    }

    fn is_swept(&self) -> bool {
        self.sweep.left == 0
    }

    fn send_waiting(&mut self, turn: &mut Turn<'_>, peers: &Peers, peer: PeerId) {
        self.send_what_waits(turn, peers, peer);
    }

    fn begin_finishing(&mut self, peer: PeerId, then: Then) {
        self.finishing.begin(peer, then);
    }

    fn unfinished(&self) -> Vec<PeerId> {
        self.finishing.unfinished()
    }

    fn finish_some(&mut self, turn: &mut Turn<'_>, peers: &Peers, peer: PeerId) {
        self.ask_for_usage(turn.now, peer);
        self.tell_usage(turn, peers);
        self.may_be_finished(peer);
    }

    fn finished(&mut self) -> Option<(PeerId, Then)> {
        self.finishing.next_finished()
    }

    fn close(&mut self) {
        self.closing = true;
    }

    fn drop_reports(&mut self) {
        self.reports.clear();
        self.finishing = Finishing::default();
    }

    fn join(&mut self, peer: PeerId, party: PartyId) {
        self.sessions.applications.join(peer, party);
        self.sessions.ledger.join(peer, party);
    }

    fn set_shares(&mut self, shares: Shares) {
        self.sessions.ledger.set_shares(shares);
    }

    fn forget_party(&mut self, party: PartyId) {
        self.sessions.applications.forget_party(party);
    }

    fn allow(&self, party: PartyId, application: &str, pfds: &[Property]) -> Result<(), Refusal> {
        self.sessions.applications.allow(party, application, pfds)
    }

    fn provision(&mut self, party: PartyId, application: &str, pfds: &[Property]) {
        let applications = &mut self.sessions.applications;
        applications.provision(party, application, pfds);
    }

    fn refit(&mut self, turn: &mut Turn<'_>) {
        self.fit_to_pfds(turn);
    }

    fn gtpu_paths(&self, each: &mut dyn FnMut(IpAddr, IpAddr)) {
        self.tables.gtpu_paths(each);
    }
}
