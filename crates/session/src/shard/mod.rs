//! A set of sessions: requests about them, what they hold, and what falls due for them.
//!
//! A [`Shard`] knows of SMFs what its node tells it ([`ToShard`]), and says what comes of what it hears ([`ToNode`]). It sends
//! nothing itself.

pub(crate) mod adopt;
pub(crate) mod applications;
pub(crate) mod context;
pub(crate) mod deferred;
#[cfg(test)]
pub(crate) mod deferred_tests;
pub(crate) mod displaced;
pub(crate) mod draft;
pub(crate) mod due;
pub(crate) mod error_indication;
pub(crate) mod finishing;
pub(crate) mod hand_over;
pub(crate) mod holders;
pub(crate) mod inactivity;
pub(crate) mod index;
pub(crate) mod kept;
pub(crate) mod ledger;
pub(crate) mod lending;
pub(crate) mod paging;
#[cfg(test)]
pub(crate) mod paging_tests;
pub(crate) mod record;
pub(crate) mod reports;
#[cfg(test)]
pub(crate) mod reports_tests;
pub(crate) mod resources;
pub(crate) mod session;
pub(crate) mod session_requests;
pub(crate) mod sessions;
pub(crate) mod set_requests;
pub(crate) mod stopped;
pub(crate) mod templates;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod usage;
pub(crate) mod usage_before;
pub(crate) mod usage_reports;
pub(crate) mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use compiled::{Source, Tables, Template};
use pfcp::MessageType;

use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::smf::Smf;
use crate::between::to_node::{Outputs, ToNode};
use crate::between::to_shard::{Concerns, ToShard};
use crate::exchange::answers::Fingerprint;
use crate::exchange::incoming::Incoming;
use crate::rules::config::Config;
use crate::rules::places::Names;
use crate::rules::summary::SessionSummary;
use crate::shard::index::finishing::Finishing;
use crate::shard::index::reports::Reports;
use crate::shard::ledger::Ledger;
use crate::shard::lending::Lending;
use crate::shard::record::Within;
use crate::shard::resources::ResourceFill;
use crate::shard::sessions::Sessions;
use crate::shard::view::{SessionCounts, SessionView};

/// Sessions, the tables that their packets meet, reports about them, and what falls due for them.
#[derive(Debug)]
pub(crate) struct Shard<T: Tables> {
    config: Arc<Config>,
    tables: T,
    sessions: Sessions<T>,
    /// Associations that there are.
    smfs: BTreeMap<PeerId, Smf>,
    reports: Reports,
    sweep: Sweep,
    finishing: Finishing,
    lending: Lending,
}

/// Sessions that have lost their SMF, and are deleted step by step.
#[derive(Debug, Default)]
struct Sweep {
    left: usize,
    /// Association that was the last to end.
    last_gone: Option<PeerId>,
}

impl<T: Tables> Shard<T> {
    /// `started`: when we were, by the wall clock, which says so at `Time(0)`.
    pub(crate) fn new(config: &Arc<Config>, started: Duration, mut tables: T) -> Self {
        let mut sessions = Sessions::new(config, config.seed, tables.direct_teids());
        sessions.deferred.set_clock(Time(0), started);
        let serves = config.fast_path && !config.qos.treats_what_leaves() && {
            let places = sessions.slab.places_max();
            tables.borrow_sessions(places, sessions.slab.key())
        };
        let beside = serves && tables.serves_beside();
        Self {
            config: Arc::clone(config),
            tables,
            sessions,
            smfs: BTreeMap::new(),
            reports: Reports::default(),
            sweep: Sweep::default(),
            finishing: Finishing::default(),
            lending: Lending::new(serves, beside),
        }
    }

    /// See [`Core::has_framed_in`](crate::Core::has_framed_in).
    pub(crate) fn has_framed_in(&self, net: ipnet::IpNet) -> bool {
        self.sessions.resources.has_framed_in(net)
    }

    /// Whether the data path serves requests.
    pub(crate) fn serves(&self) -> bool {
        self.lending.serves
    }

    /// Whether it serves them beside us.
    pub(crate) fn serves_beside(&self) -> bool {
        self.lending.beside
    }

    /// Sessions are brought to what it has served by itself.
    pub(crate) fn catch_up(&mut self, now: Time, out: &mut Outputs) {
        let held = (&mut self.sessions, &mut self.tables);
        self.lending.look(now, held, out);
    }

    /// Requests from these addresses are served elsewhere.
    pub(crate) fn know_sources(&mut self, sources: Vec<Source>) {
        self.lending.know_sources(sources, &mut self.tables);
    }

    /// Whether the data path cannot know the message that comes next.
    pub(crate) fn is_unmarked(&mut self, is_unmarked: bool) {
        self.lending.is_unmarked = is_unmarked;
    }

    /// Whether the message that comes next has come to a process before this one.
    pub(crate) fn replays(&mut self, replays: bool) {
        self.lending.replays = replays;
    }

    /// A request about a session was answered, and nothing has come of it for that.
    pub(crate) fn was_answered(&mut self, now: Time, incoming: &Incoming, out: &mut Outputs) {
        let changes = [
            MessageType::SESSION_MODIFICATION_REQUEST,
            MessageType::SESSION_DELETION_REQUEST,
        ];
        if let Some(seid) = incoming.seid
            && self.lending.beside
            && changes.contains(&incoming.message_type)
        {
            let concerns = Concerns::Requested(seid, incoming.from.ip());
            let held = (&mut self.sessions, &mut self.tables);
            self.lending.take_back(now, held, out, concerns);
            self.lending.give_back(&mut self.tables, concerns);
        }
    }

    /// See [`Templates::all`].
    pub(crate) fn templates(&self) -> impl Iterator<Item = (PeerId, &Template, u64)> {
        self.lending.templates.all()
    }

    /// See [`Core::reconfigure`](crate::Core::reconfigure).
    pub(crate) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.config = Arc::clone(config);
    }

    /// Everything that a shard does, it does for something that it hears.
    pub(crate) fn handle(&mut self, now: Time, what: ToShard<'_>, out: &mut Outputs) {
        let concerns = what.concerns();
        let held = (&mut self.sessions, &mut self.tables);
        self.lending.take_back(now, held, out, concerns);
        self.heard(now, what, out);
        self.lending.give_back(&mut self.tables, concerns);
        self.tell_counts(out);
    }

    fn heard(&mut self, now: Time, what: ToShard<'_>, out: &mut Outputs) {
        match what {
            ToShard::Request(incoming, request) => self.on_request(now, out, incoming, request),
            ToShard::Answered(about, response) => self.on_report_answer(now, out, about, response),
            ToShard::Unanswered(about) => self.on_report_unanswered(now, out, about),
            ToShard::Late(about, sequence) => self.on_late_report(now, out, (about, sequence)),
            ToShard::Smf(peer, smf) => self.on_smf(now, out, peer, smf),
            ToShard::Gone(peer) => self.on_gone(now, out, peer),
            ToShard::PartyGone(party) => self.sessions.applications.forget_party(party),
            ToShard::Shares(shares) => self.sessions.ledger.set_shares(shares),
            ToShard::Pfds(party, application, pfds) => {
                let applications = &mut self.sessions.applications;
                applications.provision(party, &application, &pfds);
            }
            ToShard::Fit => self.fit_to_pfds(out),
            ToShard::Finish(peer) => {
                self.finishing.begin(peer);
                self.keep_finishing(now, out);
            }
            ToShard::Close => self.finishing.closing = true,
            ToShard::DropReports => {
                self.reports.clear();
                self.finishing.give_up();
            }
            ToShard::Delete(party, sets, from) => {
                self.delete_sets(now, out, (party, from), &sets);
            }
            ToShard::HandOver(party, sets, to) => self.hand_over(party, &sets, to),
            ToShard::ErrorIndication(tunnel) => self.on_error_indication(now, out, tunnel),
            ToShard::Buffered(what) => self.on_buffered(now, what),
            ToShard::Crossed(seid) => self.on_crossed(now, out, seid),
            ToShard::Paths => {
                let mut in_use = Vec::new();
                self.tables
                    .gtpu_paths(&mut |remote, local| in_use.push((remote, local)));
                out.say(ToNode::Paths(in_use));
            }
            ToShard::Clock(ntp) => self.sessions.deferred.set_clock(now, ntp),
            ToShard::Host(addresses) => self.sessions.set_host_addresses(addresses),
            ToShard::Time => self.advance(now, out),
        }
    }

    /// For the node's counts, and for the log of usage.
    fn tell_counts(&mut self, out: &mut Outputs) {
        out.usage.append(&mut self.sessions.usage.records);
        while let Some(peer) = self.sessions.counted.pop() {
            out.say(ToNode::Sessions(peer, self.sessions.len_of(peer)));
        }
        if !self.sessions.applications.has_news() {
            return;
        }
        for ((peer, application), is_named) in self.sessions.applications.take_news() {
            out.say(ToNode::Names(peer, application, is_named));
        }
    }

    /// An association begins, or is like this now.
    fn on_smf(&mut self, now: Time, out: &mut Outputs, peer: PeerId, smf: Smf) {
        let (party, answers) = (smf.party, smf.silent_since.is_none());
        let before = self.smfs.insert(peer, smf);
        if before.as_ref().is_none_or(|before| before.party != party) {
            self.sessions.applications.join(peer, party);
            self.sessions.ledger.join(peer, party);
        }
        if answers && before.is_some_and(|before| before.silent_since.is_some()) {
            self.send_what_waits(now, out, peer);
        }
    }

    /// An association is over, and with it its sessions, which are deleted step by step.
    fn on_gone(&mut self, now: Time, out: &mut Outputs, peer: PeerId) {
        self.sweep.last_gone = Some(peer);
        self.smfs.remove(&peer);
        self.reports.forget(peer);
        self.finishing.forget(peer);
        self.sessions.applications.forget(peer);
        self.sessions.ledger.forget(peer);
        self.lending.templates.forget(peer, &mut self.tables);
        self.sweep.left += self.sessions.len_of(peer);
        self.sessions.delete_peer(peer);
        match self.sweep.left {
            0 => out.say(ToNode::Swept(self.sweep.last_gone)),
            _ => self.sweep_step(now, out),
        }
        self.wake_reports(now, out);
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

    /// Sessions in a stable order, those that come after the one with this SEID.
    pub(crate) fn summaries(
        &self,
        after: Option<u64>,
    ) -> impl Iterator<Item = SessionSummary> + '_ {
        self.sessions.summaries(after)
    }

    /// One session with its rules and counters, by our SEID.
    pub(crate) fn view(&self, seid: u64) -> Option<SessionView> {
        self.sessions.view(seid, &self.tables)
    }

    /// Counts of one session, by our SEID.
    pub(crate) fn counts(&self, seid: u64) -> Option<SessionCounts> {
        self.sessions.counts(seid, &self.tables)
    }

    /// SEIDs of all sessions in an order that stays, those after `seid` if given.
    pub(crate) fn seids(&self, after: Option<u64>) -> impl Iterator<Item = u64> + '_ {
        self.sessions.seids(after)
    }

    /// Peer that owns the session with this SEID of ours.
    pub(crate) fn owner(&self, seid: u64) -> Option<PeerId> {
        self.sessions.owner(seid).map(|(peer, _)| peer)
    }

    /// See [`Core::record`](crate::Core::record); its SMF is of this Node ID.
    pub(crate) fn record(&self, seid: u64, smf: &NodeId) -> Option<Vec<u8>> {
        let context = self.sessions.context(seid)?;
        Some(record::write(seid, smf, context, &self.sessions.site))
    }

    /// Sessions that change are noted from now on.
    pub(crate) fn note_changes(&mut self) {
        self.sessions.slab.note_changes();
        self.tables.keep_counts(true);
    }

    /// They are not.
    pub(crate) fn keep_nothing(&mut self) {
        self.sessions.slab.note_nothing();
        self.tables.keep_counts(false);
    }

    /// Sessions whose packets are counted elsewhere than when that was last asked have changed.
    pub(crate) fn note_recounted(&mut self) {
        while let Some(seid) = self.tables.next_recounted() {
            if let Some(place) = self.sessions.slab.find(seid) {
                self.sessions.slab.note(place);
            }
        }
    }

    /// The session in this place may have changed.
    pub(crate) fn note_change(&mut self, place: u32) {
        if let Some(place) = Place::new(place) {
            self.sessions.slab.note(place);
        }
    }

    /// Place of a session that has changed or gone, and whether one is there now: then its record is behind `into`, for who has that of
    /// its node. `None`: no more have.
    pub(crate) fn next_change(&mut self, into: &mut Vec<u8>) -> Option<(Place, bool)> {
        let place = self.sessions.slab.next_changed()?;
        let session = self.sessions.slab.get(place);
        let live = session.filter(|session| self.sessions.is_live(session));
        if let Some((session, seid)) = live.zip(self.sessions.slab.seid(place)) {
            let mut counted = Vec::new();
            let context = &session.context;
            let is_watched = context.rare().is_some_and(|rare| rare.watch.is_some());
            let is_counted = context.usage().is_some() || is_watched;
            if is_counted || self.tables.is_metered(&session.handle) {
                self.tables.counted_at(&session.handle, &mut counted);
            }
            let within = Within {
                association: session.peer.0,
                counted: &counted,
                answered: session.answered,
                served: self.tables.served_until(),
            };
            record::put_within(seid, within, &session.context, into);
        }
        Some((place, live.is_some()))
    }

    /// The request that was carried out last for a session. `None`: there is no such session.
    pub(crate) fn last_answered(&self, seid: u64) -> Option<Fingerprint> {
        let session = self.sessions.slab.get(self.sessions.slab.find(seid)?)?;
        Some(session.answered)
    }

    /// Contents of all places of the configuration, by name.
    pub(crate) fn names(&self) -> Names {
        self.sessions.site.all_names()
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

    /// Place that a SEID leads to, if it is one of ours; what is there is not read.
    pub(crate) fn place_of(&self, seid: u64) -> Option<Place> {
        self.sessions.place_of(seid)
    }

    /// Read the session in this place itself. The result means nothing.
    pub(crate) fn touch_session(&self, place: Place) -> u64 {
        self.sessions.touch(place)
    }

    /// Read what requests about the sessions in these places will read. The result means nothing. Each loop is over what the
    /// one before has made reachable: a processor looks ahead some hundred instructions.
    pub(crate) fn touch(&self, places: &[Place]) -> u64 {
        let mut read = 0;
        for &place in places {
            read ^= self.sessions.touch(place);
            read ^= self.tables.touch_place(place.index());
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

    pub(crate) fn smfs(&self) -> &BTreeMap<PeerId, Smf> {
        &self.smfs
    }

    pub(crate) fn sessions_of(&self, peer: PeerId) -> usize {
        self.sessions.len_of(peer)
    }
}
