//! The core: datagrams and the time in; datagrams, events, table changes and a deadline out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pfcp::ie::{FailedRuleId, RecoveryTimeStamp};
use pfcp::{Cause, ErrorKind, Header, Message, MessageType, Writer};

use crate::base::event::{Event, Gone, Ignored};
use crate::base::ids::PeerId;
use crate::base::node_id::{NodeId, OwnNodeId};
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::compiled::Tables;
use crate::exchange::answers::{Answers, Fingerprint};
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::{About, Due, Purpose, Requests};
use crate::exchange::stats::{Stats, Way};
use crate::node::load::{Load, Notice};
use crate::node::paths::Paths;
use crate::node::peer::{PeerView, Peers};
use crate::node::pfds::Pfds;
use crate::rules::RuleId;
use crate::rules::config::Config;
use crate::rules::summary::SessionSummary;
use crate::slice::finishing::Finishing;
use crate::slice::read_ahead::Expected;
use crate::slice::reports::Reports;
use crate::slice::resources::ResourceFill;
use crate::slice::sessions::{Created, Sessions};
use crate::slice::view::SessionView;

/// A UPF's side of N4. It has no socket, no clock and no thread.
///
/// Give it what arrives with [`Core::receive`], call [`Core::advance`] when
/// [`Core::next_deadline`] has come, and after each call send what the [`Outbox`] holds.
#[derive(Debug)]
pub struct Core<T: Tables> {
    pub(crate) config: Config,
    pub(crate) node_id: OwnNodeId,
    pub(crate) recovery: u32,
    pub(crate) tables: T,
    pub(crate) sessions: Sessions<T>,
    pub(crate) peers: Peers,
    pub(crate) requests: Requests,
    pub(crate) reports: Reports,
    pub(crate) answers: Answers,
    pub(crate) stats: Stats,
    pub(crate) timers: BTreeSet<(Time, Timer)>,
    pub(crate) sweep: Sweep,
    pub(crate) load: Load,
    pub(crate) pfds: Pfds,
    pub(crate) paths: Paths,
    pub(crate) finishing: Finishing,
    pub(crate) closing: bool,
    /// Kept for its capacity.
    pub(crate) created: Vec<Created>,
    pub(crate) expected: Expected,
    complaints: Complaints,
    floods: Complaints,
}

/// Messages of one datagram; an SMF that has more to say sends another one.
const BUNDLE_MAX: u32 = 128;

/// Messages that [`Core::receive`] looks at in a datagram: one at least, as nonsense costs a look, too.
pub fn messages_in(datagram: &[u8]) -> u32 {
    let (mut count, mut left) = (1, datagram);
    while count < BUNDLE_MAX
        && let Ok(message) = pfcp::decode(left)
        && message.header.follow_on
        && !message.rest.is_empty()
    {
        left = message.rest;
        count += 1;
    }
    count
}

/// A flood says the same each time, and must not take the place of other complaints.
const FLOODS_PER_S: u32 = 1;

/// What falls due. A timer whose peer is gone does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Send a Heartbeat Request, and set this timer again.
    Heartbeat(PeerId),
    /// A silent peer's sessions are no longer kept.
    Retention(PeerId),
    /// A peer had its time to release the association.
    ReleaseBy(PeerId),
    /// Try to associate with a configured SMF.
    Setup(usize),
    /// See which GTP-U paths are in use.
    Paths,
}

/// Sessions of peers that are gone, deleted step by step.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) left: usize,
    pub(crate) deleted: usize,
    /// Whose sessions they were.
    pub(crate) gone: BTreeMap<PeerId, NodeId>,
}

/// Sessions whose PDRs come or go before other work may go first.
const SESSIONS_PER_STEP: usize = 256;

impl<T: Tables> Core<T> {
    /// `recovery`: when we were started, in NTP seconds (Recovery Time Stamp, TS 29.244, 8.2.65).
    pub fn new(config: Config, recovery: u32, tables: T) -> Self {
        let mut sessions = Sessions::new(&config, config.seed, tables.direct_teids());
        let started = Duration::from_secs(recovery.into());
        sessions.deferred.set_clock(Time(0), started);
        Self {
            recovery,
            sessions,
            peers: Peers::default(),
            requests: Requests::new(&config, recovery),
            reports: Reports::default(),
            answers: Answers::new(config.answers),
            stats: Stats::new(),
            timers: first_timers(&config),
            sweep: Sweep::default(),
            load: Load::new(config.overload_at_percent, recovery),
            pfds: Pfds::default(),
            paths: Paths::new(&config),
            finishing: Finishing::default(),
            closing: false,
            created: Vec::new(),
            expected: Expected::default(),
            node_id: OwnNodeId::new(&config.node_id),
            complaints: Complaints::new(config.complaints_per_s),
            floods: Complaints::new(config.complaints_per_s.min(FLOODS_PER_S)),
            tables,
            config,
        }
    }

    /// Handle one datagram. Never fails: what cannot be answered is counted.
    ///
    /// A datagram holds one message, or several bundled ones, each of which but the last says that
    /// another one follows (BUNDL: TS 29.244, 6.5). Each is answered by itself.
    pub fn receive(&mut self, now: Time, from: SocketAddr, datagram: &[u8], out: &mut Outbox) {
        if !self.config.allows(from.ip()) {
            return self.ignore(now, from, Ignored::NotAllowed, out);
        }
        let mut left = datagram;
        for _ in 0..BUNDLE_MAX {
            match self.receive_message(now, from, left, out) {
                Some(next) => left = next,
                None => return,
            }
        }
        self.ignore(now, from, Ignored::BundleTooLong, out);
    }

    /// Whether nothing is known of the sender: it is at no address of an association, nor of an SMF that we
    /// ask for one. Those that may not speak with us at all are none: ignoring them costs nothing.
    ///
    /// Strangers may wait until peers are served. A forged source address makes a stranger a peer.
    pub fn is_stranger(&self, from: SocketAddr) -> bool {
        !self.peers.knows(from) && self.config.allows(from.ip())
    }

    /// A datagram of a stranger with so many messages is not given to [`Core::receive`], because there are
    /// too many.
    pub fn drop_stranger(&mut self, now: Time, from: SocketAddr, messages: u32, out: &mut Outbox) {
        let why = Ignored::StrangerDropped;
        self.stats.ignored(why, messages);
        if let Some(suppressed) = self.floods.may_log(now) {
            out.event(Event::Ignored {
                from,
                why,
                suppressed,
            });
        }
    }

    /// The first message of `datagram`; what it says that follows.
    fn receive_message<'d>(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &'d [u8],
        out: &mut Outbox,
    ) -> Option<&'d [u8]> {
        let message = match pfcp::decode(datagram) {
            Ok(message) => message,
            Err(error) => {
                self.on_undecodable(now, from, datagram, error.kind, out);
                return None;
            }
        };
        let follows = message.header.follow_on && !message.rest.is_empty();
        let octets = match datagram.len().checked_sub(message.rest.len()) {
            Some(length) if follows => datagram.get(..length).unwrap_or(datagram),
            _ => datagram,
        };
        self.stats
            .message(Way::Received, message.header.message_type);
        match message.header.message_type.is_response() {
            Some(true) => self.on_response(now, from, &message, out),
            Some(false) => self.on_request(now, from, octets, &message, out),
            None => self.ignore(now, from, Ignored::UnknownType, out),
        }
        follows.then_some(message.rest)
    }

    /// The wall clock says that so much time has passed since the beginning of 1900 (NTP). PDRs with
    /// an Activation or Deactivation Time go by it; until it is told, the clock said at `Time(0)`
    /// what `recovery` is.
    pub fn set_clock(&mut self, now: Time, ntp: Duration) {
        self.sessions.deferred.set_clock(now, ntp);
    }

    /// Do what is due: retransmissions, heartbeats, deletions.
    pub fn advance(&mut self, now: Time, out: &mut Outbox) {
        while let Some(due) = self.fire(now, out) {
            match due {
                Due::Again(purpose) => {
                    self.stats.retransmissions += 1;
                    self.stats.message(Way::Sent, purpose.request());
                }
                Due::GivenUp(purpose) => {
                    self.stats.timeouts += 1;
                    self.on_no_answer(now, purpose, out);
                }
                Due::Moot(purpose) => self.on_no_answer(now, purpose, out),
            }
        }
        while let Some(&(due, timer)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            self.on_timer(now, timer, out);
        }
        if !self.closing {
            self.look_for_inactivity(now, out);
            self.keep_usage(now, out);
            self.page(now, out);
            self.sessions
                .keep_times(now, SESSIONS_PER_STEP, &mut self.tables);
            self.sessions
                .resume(now, SESSIONS_PER_STEP, &mut self.tables);
        }
        self.advance_paths(now, out);
        self.keep_finishing(now, out);
        if self.sessions.tunnels.is_behind() {
            self.look_up_tunnels(now, out);
        }
        if self.sessions.applications.is_behind() {
            self.refit(out);
        }
        self.sweep_step(now, out);
    }

    /// A request whose T1 has run out. One about a session that is gone is not sent again.
    fn fire(&mut self, now: Time, out: &mut Outbox) -> Option<Due> {
        let sessions = &self.sessions;
        self.requests.fire(now, out, |purpose| match purpose {
            Purpose::Report(About { seid, .. }) => sessions.owner(seid).is_some(),
            _ => true,
        })
    }

    /// When [`Core::advance`] has something to do. In the past: at once, but other work may go
    /// first.
    pub fn next_deadline(&self) -> Option<Time> {
        let sessions = &self.sessions;
        let indexing = sessions.tunnels.is_behind() || sessions.applications.is_behind();
        if self.sweep.left > 0 || indexing || self.finishing.is_behind() {
            return Some(Time(0));
        }
        let timer = self.timers.first().map(|(due, _)| *due);
        let sessions = (!self.closing).then_some(&self.sessions);
        let look = sessions.and_then(|s| s.inactivity.next_deadline());
        let deferred = sessions.and_then(|s| s.deferred.next_deadline());
        let usage = sessions.and_then(|s| s.usage.next_deadline());
        let resume = sessions.and_then(|s| s.stopped.next_deadline());
        let paging = sessions.and_then(|s| s.paging.next_deadline());
        let requests = self.requests.next_deadline();
        let of_sessions = [look, deferred, usage, resume, paging];
        [timer, requests, self.next_echo()]
            .into_iter()
            .chain(of_sessions)
            .flatten()
            .min()
    }

    /// Associate with an SMF, and again whenever the association is lost.
    pub fn associate(&mut self, now: Time, peer: SocketAddr, out: &mut Outbox) {
        if self.peers.add_target(peer) {
            self.try_setup(now, self.peers.targets.len() - 1, out);
        }
    }

    /// How busy the thread is that calls this, in percent of the last while: together with how
    /// full the tables are, this is the load that SMFs hear of (TS 29.244, 6.2.3). Call it about
    /// once a second.
    pub fn set_busy(&mut self, percent: u8) {
        let limit = self.config.limits.sessions.max(1) as usize;
        let full = (self.sessions.len().min(limit) * 100 / limit) as u8;
        self.load.measured(percent, full);
    }

    /// The addresses that this host has, on all of its interfaces: no session gets packets to them from now on. Sessions
    /// that have one already keep it.
    pub fn set_own_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.sessions.set_host_addresses(addresses);
    }

    /// The load that SMFs hear of, and by how much they are asked to do less, in percent.
    pub fn load(&self) -> (u8, u8) {
        (self.load.percent(), self.load.reduction())
    }

    /// What the next answer to this peer says of our load.
    pub(crate) fn notice(&mut self, id: PeerId) -> Notice {
        let load = &self.load;
        self.peers.get_mut(id).map_or(Notice::default(), |peer| {
            load.notice(peer.cp_features, &mut peer.told)
        })
    }

    /// All associations, in the order in which they were set up.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.peers
            .iter()
            .map(|peer| peer.view(self.sessions.len_of(peer.id)))
    }

    /// Who a session belongs to; `None` once the association has ended.
    pub fn peer(&self, id: PeerId) -> Option<PeerView<'_>> {
        self.peers
            .get(id)
            .map(|peer| peer.view(self.sessions.len_of(id)))
    }

    /// Sessions in a stable order, those that come after the one with this SEID.
    pub fn sessions(&self, after: Option<u64>) -> impl Iterator<Item = SessionSummary> + '_ {
        self.sessions.summaries(after)
    }

    /// One session with its rules and counters, by our SEID.
    pub fn session(&self, seid: u64) -> Option<SessionView> {
        self.sessions.view(seid, &self.tables)
    }

    /// Sessions of peers that are there.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// How much of what we give out is given out.
    pub fn fill(&self) -> ResourceFill {
        self.sessions.fill()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tables.
    pub fn tables(&self) -> &T {
        &self.tables
    }

    /// The tables, to change what is not a session's.
    pub fn tables_mut(&mut self) -> &mut T {
        &mut self.tables
    }

    /// Answers kept for duplicates, and their bytes.
    pub fn answers_kept(&self) -> (usize, usize) {
        self.answers.fill()
    }

    /// Requests of ours without an answer yet.
    pub fn outstanding(&self) -> usize {
        self.requests.len()
    }

    /// Sessions of peers that are gone and that are not deleted yet.
    pub fn sessions_to_delete(&self) -> usize {
        self.sweep.left
    }

    fn on_request(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let header = &message.header;
        if header.message_type == MessageType::HEARTBEAT_REQUEST {
            // Nothing of it is worth remembering, and it may come from anyone (6.2.2.2).
            return self.on_heartbeat_request(now, from, message, out);
        }
        let fingerprint = Fingerprint::new(from, datagram);
        let scope = self.scope(from);
        if let Some((front, back)) = self.answers.find(now, scope, fingerprint) {
            self.stats.duplicates += 1;
            if let Some(response) = header.message_type.response() {
                self.stats.message(Way::Sent, response);
            }
            out.send(from, |bytes| {
                bytes.extend_from_slice(front);
                bytes.extend_from_slice(back);
            });
            return;
        }
        let incoming = Incoming {
            from,
            message_type: header.message_type,
            sequence: header.sequence,
            priority: header.priority,
            fingerprint,
        };
        if !message.rest.is_empty() && !header.follow_on {
            // The length does not fit the datagram (7.6.3).
            return self.refuse(now, &incoming, 0, Cause::INVALID_LENGTH.into(), out);
        }
        match header.message_type {
            MessageType::ASSOCIATION_SETUP_REQUEST => self.on_setup(now, &incoming, message, out),
            MessageType::ASSOCIATION_UPDATE_REQUEST => self.on_update(now, &incoming, message, out),
            MessageType::ASSOCIATION_RELEASE_REQUEST => {
                self.on_release(now, &incoming, message, out);
            }
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                self.on_establishment(now, &incoming, message, out);
            }
            MessageType::SESSION_MODIFICATION_REQUEST => {
                self.on_modification(now, &incoming, message, out);
            }
            MessageType::SESSION_DELETION_REQUEST => {
                self.on_deletion(now, &incoming, message, out);
            }
            MessageType::PFD_MANAGEMENT_REQUEST => {
                self.on_pfd_management(now, &incoming, message, out);
            }
            MessageType::SESSION_SET_DELETION_REQUEST => {
                self.on_set_deletion(now, &incoming, message, out);
            }
            MessageType::SESSION_SET_MODIFICATION_REQUEST => {
                self.on_set_modification(now, &incoming, message, out);
            }
            // Node Report and Session Report go the other way.
            _ => self.refuse(now, &incoming, 0, Cause::SERVICE_NOT_SUPPORTED.into(), out),
        }
    }

    fn on_response(
        &mut self,
        now: Time,
        from: SocketAddr,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let header = &message.header;
        match self
            .requests
            .answered(from, header.sequence, header.message_type)
        {
            Some(purpose) => self.on_answer(now, from, purpose, message, out),
            None => self.ignore(now, from, Ignored::UnmatchedResponse, out),
        }
    }

    /// TS 29.244, 7.6.2 and 7.6.3.
    fn on_undecodable(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        why: ErrorKind,
        out: &mut Outbox,
    ) {
        let Ok((header, _)) = Header::decode(datagram) else {
            return self.ignore(now, from, Ignored::Malformed, out);
        };
        if let ErrorKind::Version { .. } = why {
            self.stats.other_versions += 1;
            if header.message_type != MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
                self.send_version_not_supported(from, header.sequence, out);
            }
            return;
        }
        self.stats.message(Way::Received, header.message_type);
        match header.message_type.is_response() {
            Some(false) if header.message_type != MessageType::HEARTBEAT_REQUEST => {
                let incoming = Incoming {
                    from,
                    message_type: header.message_type,
                    sequence: header.sequence,
                    priority: header.priority,
                    fingerprint: Fingerprint::new(from, datagram),
                };
                self.stats.decode_errors += 1;
                self.refuse(now, &incoming, 0, Cause::INVALID_LENGTH.into(), out);
            }
            _ => self.ignore(now, from, Ignored::Malformed, out),
        }
    }

    fn send_version_not_supported(&mut self, to: SocketAddr, sequence: u32, out: &mut Outbox) {
        let response = MessageType::VERSION_NOT_SUPPORTED_RESPONSE;
        out.send(to, |bytes| {
            let _ = Writer::new(bytes, response, None, sequence).finish();
        });
        self.stats.message(Way::Sent, response);
    }

    /// Association that requests from here belong to, for the answer cache.
    pub(crate) fn scope(&self, from: SocketAddr) -> Option<PeerId> {
        self.peers.by_source(from)
    }

    /// Answer a request with `cause` and what else `write` has to say, and keep the answer.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        incoming: &Incoming,
        seid: u64,
        cause: Cause,
        out: &mut Outbox,
        write: impl FnOnce(&mut Writer<'_>, &OwnNodeId),
    ) {
        let Some(response) = incoming.message_type.response() else {
            return;
        };
        let seid = response.is_session().then_some(seid);
        let us = &self.node_id;
        let sent = out.send(incoming.from, |bytes| {
            let mut writer = Writer::new(bytes, response, seid, incoming.sequence);
            if let Some(priority) = incoming.priority {
                writer.priority(priority);
            }
            write(&mut writer, us);
            let _ = writer.finish();
        });
        self.stats.message(Way::Sent, response);
        self.stats.cause(Way::Sent, response, cause);
        let scope = self.scope(incoming.from);
        // A stranger's refused requests cost nothing to refuse again, and must not push out the
        // answers that other strangers may need.
        if scope.is_some() || cause.is_accepted() {
            self.answers.keep(now, scope, incoming.fingerprint, sent);
        }
    }

    /// Answer a request with an error.
    pub(crate) fn refuse(
        &mut self,
        now: Time,
        incoming: &Incoming,
        seid: u64,
        refusal: Refusal,
        out: &mut Outbox,
    ) {
        if let Some(suppressed) = self.complaints.may_log(now) {
            out.event(Event::Refused {
                from: incoming.from,
                request: incoming.message_type,
                cause: refusal.cause,
                offending_ie: refusal.offending_ie,
                failed_rule: refusal.failed_rule,
                cp_seid: seid,
                suppressed,
            });
        }
        let (request, recovery) = (incoming.message_type, self.recovery);
        self.answer(now, incoming, seid, refusal.cause, out, |writer, us| {
            write_refusal(writer, us, request, recovery, &refusal);
        });
    }

    pub(crate) fn refuse_undecodable(
        &mut self,
        now: Time,
        incoming: &Incoming,
        seid: u64,
        error: &pfcp::Error,
        out: &mut Outbox,
    ) {
        self.stats.decode_errors += 1;
        let refusal = Refusal {
            cause: error.cause(),
            offending_ie: error.offending_ie(),
            failed_rule: None,
        };
        self.refuse(now, incoming, seid, refusal, out);
    }

    pub(crate) fn ignore(&mut self, now: Time, from: SocketAddr, why: Ignored, out: &mut Outbox) {
        self.stats.ignored(why, 1);
        if let Some(suppressed) = self.complaints.may_log(now) {
            out.event(Event::Ignored {
                from,
                why,
                suppressed,
            });
        }
    }

    pub(crate) fn set_timer(&mut self, now: Time, delay: Duration, timer: Timer) {
        self.timers.insert((now.after(delay), timer));
    }

    /// Delete what gone peers left, a step at a time, then answer those who waited for it.
    pub(crate) fn sweep_step(&mut self, now: Time, out: &mut Outbox) {
        if self.sweep.left == 0 {
            return;
        }
        let before = self.sweep.left;
        let at_most = self.config.deletions_per_step.max(1);
        self.sweep.left = self.sessions.reap(now, at_most, &mut self.tables);
        self.log_usage(out);
        let deleted = before.saturating_sub(self.sweep.left);
        self.sweep.deleted += deleted;
        self.stats.swept += deleted as u64;
        if self.sweep.left == 0 {
            self.sweep.gone.clear();
            let sessions = std::mem::take(&mut self.sweep.deleted);
            out.event(Event::SessionsDeleted { sessions });
            self.answer_deferred_setups(now, out);
        }
    }

    /// The peer's sessions are no more; a first step of deleting them is done at once.
    pub(crate) fn delete_sessions_of(&mut self, now: Time, id: PeerId, out: &mut Outbox) -> usize {
        let sessions = self.sessions.len_of(id);
        self.sessions.delete_peer(id);
        self.sweep.left += sessions;
        self.sweep_step(now, out);
        sessions
    }

    /// No timer, no request and no answer of ours speaks of this association any more.
    pub(crate) fn forget_timers(&mut self, id: PeerId) {
        self.answers.forget(id);
        self.requests.cancel(|purpose| purpose.peer() == Some(id));
        self.reports.forget(id);
        self.finishing.forget(id);
        self.timers.retain(|(_, timer)| timer.peer() != Some(id));
    }

    /// End an association.
    pub(crate) fn end_association(&mut self, now: Time, id: PeerId, why: Gone, out: &mut Outbox) {
        let Some(peer) = self.peers.remove(id) else {
            return;
        };
        self.forget_timers(id);
        let sessions = self.sessions.len_of(id);
        if sessions > 0 {
            self.sweep.gone.insert(id, peer.node_id.clone());
        }
        out.event(Event::PeerGone {
            node_id: peer.node_id,
            why,
            sessions,
        });
        self.delete_sessions_of(now, id, out);
    }
}

/// What is due from the beginning.
fn first_timers(config: &Config) -> BTreeSet<(Time, Timer)> {
    let paths = !config.echo_interval.is_zero();
    paths
        .then_some((Time(0), Timer::Paths))
        .into_iter()
        .collect()
}

impl Timer {
    fn peer(self) -> Option<PeerId> {
        match self {
            Self::Heartbeat(id) | Self::Retention(id) | Self::ReleaseBy(id) => Some(id),
            Self::Setup(_) | Self::Paths => None,
        }
    }
}

/// The IEs of a refusal that the table of its message has (TS 29.244, 7.4 and 7.5).
fn write_refusal(
    writer: &mut Writer<'_>,
    us: &OwnNodeId,
    request: MessageType,
    recovery: u32,
    refusal: &Refusal,
) {
    let has_node_id = !matches!(
        request,
        MessageType::PFD_MANAGEMENT_REQUEST
            | MessageType::SESSION_MODIFICATION_REQUEST
            | MessageType::SESSION_DELETION_REQUEST
            | MessageType::SESSION_REPORT_REQUEST
    );
    if has_node_id {
        writer.node_id(us.to_wire());
    }
    writer.cause(refusal.cause);
    if request == MessageType::ASSOCIATION_SETUP_REQUEST {
        writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
    }
    let is_association = matches!(
        request,
        MessageType::ASSOCIATION_SETUP_REQUEST
            | MessageType::ASSOCIATION_UPDATE_REQUEST
            | MessageType::ASSOCIATION_RELEASE_REQUEST
    );
    if let (Some(ie), false) = (refusal.offending_ie, is_association) {
        writer.offending_ie(ie);
    }
    if let Some(rule) = refusal.failed_rule {
        writer.failed_rule_id(on_wire(rule));
    }
}

fn on_wire(rule: RuleId) -> FailedRuleId {
    match rule {
        RuleId::Pdr(id) => FailedRuleId::Pdr(id.0),
        RuleId::Far(id) => FailedRuleId::Far(id.0),
        RuleId::Qer(id) => FailedRuleId::Qer(id.0),
        RuleId::Urr(id) => FailedRuleId::Urr(id.0),
        RuleId::Bar(id) => FailedRuleId::Bar(id.0),
    }
}

/// Lets through so many complaints a second, so that a peer that sends nonsense does not fill the
/// disk. All are counted in [`Stats`].
#[derive(Debug)]
struct Complaints {
    per_second: u32,
    second: u64,
    logged: u32,
    suppressed: u64,
}

impl Complaints {
    fn new(per_second: u32) -> Self {
        Self {
            per_second,
            second: 0,
            logged: 0,
            suppressed: 0,
        }
    }

    /// `Some`: log it, and say that so many were not.
    fn may_log(&mut self, now: Time) -> Option<u64> {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.logged = 0;
        }
        if self.logged >= self.per_second {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}
