//! The core: datagrams and the time in; datagrams, events, table changes and a deadline out.
//!
//! A [`Core`] is a node, which knows associations, and a shard, which knows sessions. It carries to each what the other says,
//! and keeps nothing itself.

pub(crate) mod changes;
mod expected;
pub(crate) mod holdings;
mod read_ahead;
pub(crate) mod serve;

#[cfg(test)]
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use compiled::{Buffered, Slow, Tables};
use ipnet::IpNet;
use pfcp::message::SessionEstablishmentRequest;
use pfcp::{Message, MessageType};

use crate::base::event::{Ignored, Said};
use crate::base::gtpu::{self, Ends, Received};
use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::between::to_shard::{Request, ToShard};
use crate::core::changes::{Change, Kept};
use crate::core::expected::Expected;
use crate::core::serve::TemplateView;
use crate::exchange::answer_record::{AnswerRecord, holding};
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Given;
use crate::exchange::outbox::Outbox;
use crate::exchange::stats::{Stats, Way};
use crate::node::Node;
use crate::node::paths::PathView;
use crate::node::peer::{Peer, PeerView};
use crate::node::pfds::ApplicationView;
use crate::node::record::{NodeRecord, Unresumed};
use crate::node::requests::cp_seid_of;
use crate::node::untold::LostSession;
use crate::rules::config::Config;
use crate::rules::summary::SessionSummary;
use crate::shard::Shard;
use crate::shard::adopt::Unadopted;
use crate::shard::record::Record;
use crate::shard::resources::ResourceFill;
use crate::shard::view::{SessionCounts, SessionView};
use crate::usage::measured::Uncounted;

/// A UPF's side of N4. It has no socket, no clock and no thread.
///
/// Give it what arrives with [`Core::receive`], call [`Core::advance`] when
/// [`Core::next_deadline`] has come, and after each call send what the [`Outbox`] holds.
#[derive(Debug)]
pub struct Core<T: Tables> {
    config: Arc<Config>,
    node: Node,
    shard: Shard<T>,
    /// Kept for its capacity.
    outputs: Outputs,
    /// Kept for its capacity.
    expected: Expected,
    /// `None`: nobody keeps what changes.
    kept: Option<Kept>,
}

/// Messages of one datagram; an SMF that has more to say sends another one.
const BUNDLE_MAX: u32 = 128;

/// A datagram with more octets may have come in fragments.
const IN_ONE_PART: usize = 1200;

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

impl<T: Tables> Core<T> {
    /// `recovery`: when we were started, in NTP seconds (Recovery Time Stamp, TS 29.244, 8.2.65).
    pub fn new(config: Config, recovery: u32, tables: T) -> Self {
        let config = Arc::new(config);
        let started = Duration::from_secs(recovery.into());
        Self {
            node: Node::new(&config, recovery),
            shard: Shard::new(&config, started, tables),
            outputs: Outputs::default(),
            expected: Expected::default(),
            kept: None,
            config,
        }
    }

    /// The shard hears what the node has to tell it, then this; the node hears what comes of it.
    fn tell(&mut self, now: Time, what: ToShard<'_>, out: &mut Outbox) {
        self.settle(now, out);
        self.shard.handle(now, what, &mut self.outputs);
        self.settle(now, out);
    }

    /// Until neither has anything to tell the other.
    fn settle(&mut self, now: Time, out: &mut Outbox) {
        loop {
            if !self.outputs.is_empty() {
                self.node.hear(now, out, &mut self.outputs);
            }
            // Before the shard hears of an association that is over.
            if self.shard.serves_beside()
                && let Some(sources) = self.node.news_of_sources()
            {
                self.shard.know_sources(sources);
            }
            let Some(order) = self.node.next_order() else {
                return;
            };
            self.shard.handle(now, order, &mut self.outputs);
        }
    }

    /// Handle one datagram. Never fails: what cannot be answered is counted.
    ///
    /// A datagram holds one message, or several bundled ones, each of which but the last says that
    /// another one follows (BUNDL: TS 29.244, 6.5). Each is answered by itself.
    pub fn receive(&mut self, now: Time, from: SocketAddr, datagram: &[u8], out: &mut Outbox) {
        self.catch_up(now, out);
        if !self.config.allows(from.ip()) {
            return self.ignore(out, from, Ignored::NotAllowed);
        }
        if self.shard.serves() && !self.shard.serves_beside() {
            let parts = (&mut self.node, &mut self.shard);
            if serve::serve(now, parts, (from, datagram), &mut self.outputs) {
                return self.settle(now, out);
            }
        }
        let mut left = datagram;
        for number in 0..BUNDLE_MAX {
            match self.receive_message(now, from, (left, number > 0), out) {
                Some(next) => left = next,
                None => return,
            }
        }
        self.ignore(out, from, Ignored::BundleTooLong);
    }

    /// Sessions are brought to what the data path has served by itself since: to be called every few milliseconds where it does
    /// ([`Core::serves_beside`]), and before anything is asked.
    pub fn catch_up(&mut self, now: Time, out: &mut Outbox) {
        self.shard.catch_up(now, &mut self.outputs);
        self.settle(now, out);
    }

    /// Count what no answer can be given to.
    fn ignore(&mut self, out: &mut Outbox, from: SocketAddr, why: Ignored) {
        self.node.n4_mut().ignore(out, from, None, why);
    }

    /// The answer to a datagram that begins with a Heartbeat Request, which nothing else comes of: for while [`Self::receive`]
    /// has to wait. Whether it does.
    pub fn answer_heartbeat(&self, from: SocketAddr, datagram: &[u8], into: &mut Vec<u8>) -> bool {
        self.config.allows(from.ip()) && self.node.answer_heartbeat(datagram, into)
    }

    /// Whether nothing is known of the sender: it is at no address of an association, nor of an SMF that we
    /// ask for one. Those that may not speak with us at all are none: ignoring them costs nothing.
    ///
    /// Strangers may wait until peers are served. A forged source address makes a stranger a peer.
    pub fn is_stranger(&self, from: SocketAddr) -> bool {
        !self.node.peers().knows(from) && self.config.allows(from.ip())
    }

    /// A datagram of a stranger with so many messages is not given to [`Core::receive`], because there are
    /// too many.
    pub fn drop_stranger(&mut self, from: SocketAddr, messages: u32, out: &mut Outbox) {
        self.node.n4_mut().drop_stranger(out, from, messages);
    }

    /// A datagram is not given to [`Core::receive`], because it came in by an interface of the data network.
    pub fn drop_from_data_network(&mut self, from: SocketAddr, out: &mut Outbox) {
        self.ignore(out, from, Ignored::NotN4);
    }

    /// The first message of `datagram`, which may be behind others; what it says that follows.
    fn receive_message<'d>(
        &mut self,
        now: Time,
        from: SocketAddr,
        (datagram, is_behind): (&'d [u8], bool),
        out: &mut Outbox,
    ) -> Option<&'d [u8]> {
        let message = match pfcp::decode(datagram) {
            Ok(message) => message,
            Err(error) => {
                let what = (datagram, error.kind);
                self.node.on_undecodable(now, out, from, what);
                return None;
            }
        };
        let follows = message.header.follow_on && !message.rest.is_empty();
        let octets = match datagram.len().checked_sub(message.rest.len()) {
            Some(length) if follows => datagram.get(..length).unwrap_or(datagram),
            _ => datagram,
        };
        let is_in_parts = datagram.len() > IN_ONE_PART;
        self.shard.is_unmarked(follows || is_behind || is_in_parts);
        let message_type = message.header.message_type;
        let n4 = self.node.n4_mut();
        n4.stats_mut().message(Way::Received, message_type);
        match message_type.is_response() {
            Some(true) => self.on_response(now, from, &message, out),
            Some(false) => self.on_request(now, from, (octets, &message), out),
            None => {
                let said = Some(Said::from(&message.header));
                n4.ignore(out, from, said, Ignored::UnknownType);
            }
        }
        self.settle(now, out);
        follows.then_some(message.rest)
    }

    fn on_request(
        &mut self,
        now: Time,
        from: SocketAddr,
        (octets, message): (&[u8], &Message<'_>),
        out: &mut Outbox,
    ) {
        let incoming = Incoming::new(from, &message.header, octets);
        self.read_ahead_of(&incoming);
        let what = (incoming, message);
        let Some(incoming) = self.node.on_request(now, out, what) else {
            return self.shard.was_answered(now, &incoming, &mut self.outputs);
        };
        let request = match message.header.message_type {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                return self.on_establishment(now, &incoming, message, out);
            }
            MessageType::SESSION_MODIFICATION_REQUEST => Request::Modify,
            _ => Request::Delete,
        };
        let sender = self.node.peers().sender(from);
        let request = request(sender, message);
        self.tell(now, ToShard::Request(&incoming, request), out);
    }

    /// Session Establishment Request (6.3.2.3).
    fn on_establishment(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let request = match SessionEstablishmentRequest::decode(message) {
            Ok(request) => request,
            Err(error) => {
                let to = (incoming, cp_seid_of(message));
                return self.node.refuse_undecodable_of(now, out, to, &error);
            }
        };
        if let Some(peer) = self.node.admit(now, out, incoming, &request) {
            let request = Request::Establish(peer, &request);
            self.tell(now, ToShard::Request(incoming, request), out);
        }
    }

    fn on_response(
        &mut self,
        now: Time,
        from: SocketAddr,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        if let Some((about, response)) = self.node.on_response(now, out, from, message) {
            self.tell(now, ToShard::Answered(about, response.as_ref()), out);
        }
    }

    /// The wall clock says that so much time has passed since the beginning of 1900 (NTP). PDRs with
    /// an Activation or Deactivation Time go by it; until it is told, the clock said at `Time(0)`
    /// what `recovery` is.
    pub fn set_clock(&mut self, now: Time, ntp: Duration) {
        self.hear(now, ToShard::Clock(ntp));
    }

    /// The shard hears something that nothing comes of for the node.
    fn hear(&mut self, now: Time, what: ToShard<'_>) {
        self.shard.handle(now, what, &mut self.outputs);
    }

    /// Do what is due: retransmissions, heartbeats, deletions.
    pub fn advance(&mut self, now: Time, out: &mut Outbox) {
        self.settle(now, out);
        self.node.advance(now, out);
        self.tell(now, ToShard::Time, out);
    }

    /// When [`Core::advance`] has something to do. In the past: at once, but other work may go
    /// first.
    pub fn next_deadline(&self) -> Option<Time> {
        let due = [self.shard.next_deadline(), self.node.next_deadline()];
        due.into_iter().flatten().min()
    }

    /// Associate with an SMF, and again whenever the association is lost.
    pub fn associate(&mut self, now: Time, peer: SocketAddr, out: &mut Outbox) {
        self.node.associate(now, out, peer);
    }

    /// Do without an association with an SMF that was to be associated with: none is asked for any more, and one that stands is the
    /// SMF's affair.
    pub fn disregard(&mut self, peer: SocketAddr) {
        self.node.disregard(peer);
    }

    /// Go on with other settings of N4: `allow`, `heartbeat_interval`, `t1`, `n1`, `retry_at_most`, `path_failure_retention`,
    /// `graceful_release`, `overload_at_percent` and `peer_port` of `config`. Everything else stays as it was made, because sessions
    /// lean on it.
    pub fn reconfigure(&mut self, now: Time, config: &Config) {
        let config = Arc::new(Config {
            allow: config.allow.clone(),
            heartbeat_interval: config.heartbeat_interval,
            t1: config.t1,
            n1: config.n1,
            retry_at_most: config.retry_at_most,
            path_failure_retention: config.path_failure_retention,
            graceful_release: config.graceful_release,
            overload_at_percent: config.overload_at_percent,
            peer_port: config.peer_port,
            ..Config::clone(&self.config)
        });
        self.node.reconfigure(now, &config);
        self.node.note_sources();
        self.shard.reconfigure(&config);
        self.config = config;
    }

    /// How busy the thread is that calls this, in percent of the last while: together with how
    /// full the tables are, this is the load that SMFs hear of (TS 29.244, 6.2.3). Call it about
    /// once a second.
    pub fn set_busy(&mut self, percent: u8) {
        self.node.set_load(percent, self.shard.full_percent());
    }

    /// The addresses that this host has, on all of its interfaces: no session gets packets to them from now on. Sessions
    /// that have one already keep it.
    pub fn set_own_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.hear(Time(0), ToShard::Host(addresses));
    }

    /// The load that SMFs hear of, and by how much they are asked to do less, in percent.
    pub fn load(&self) -> (u8, u8) {
        self.node.load()
    }

    /// A packet waits for a session, and none of its PDR did before it. [`Core::advance`] tells its SMF, unless it has
    /// been given an end of the wait by then.
    pub fn buffered(&mut self, now: Time, what: Buffered) {
        self.hear(now, ToShard::Buffered(what));
    }

    /// Packets of a session have reached what [`Tables::arm`] was told, or may have.
    pub fn crossed(&mut self, now: Time, seid: u64, out: &mut Outbox) {
        self.tell(now, ToShard::Crossed(seid), out);
    }

    /// A GTP-U message beside G-PDUs and Echo Requests, as the data path got it: an IP packet.
    pub fn receive_gtpu(&mut self, now: Time, packet: &[u8], out: &mut Outbox) {
        match gtpu::read_packet(packet) {
            Some(Received { from, message }) => self.on_gtpu(now, from, message, out),
            None => self.node.n4_mut().stats_mut().gtpu_malformed += 1,
        }
    }

    fn on_gtpu(&mut self, now: Time, from: IpAddr, message: gtpu::Message, out: &mut Outbox) {
        let stats = self.node.n4_mut().stats_mut();
        match message {
            gtpu::Message::ErrorIndication { teid, peer } => {
                stats.error_indications += 1;
                if from != peer {
                    stats.error_indications_foreign += 1;
                    return;
                }
                self.tell(now, ToShard::ErrorIndication((teid, peer)), out);
            }
            gtpu::Message::EchoResponse { sequence, recovery } => {
                let answer = (sequence, recovery);
                self.node.on_echo_response(now, out, from, answer);
            }
            gtpu::Message::Other => stats.gtpu_other += 1,
        }
    }

    /// An Echo Response to one of our requests, as it came to the port that it was sent from.
    pub fn receive_echo(&mut self, now: Time, from: IpAddr, octets: &[u8], out: &mut Outbox) {
        match gtpu::read(octets) {
            Some(message @ gtpu::Message::EchoResponse { .. }) => {
                self.on_gtpu(now, from, message, out);
            }
            Some(_) => self.node.n4_mut().stats_mut().gtpu_other += 1,
            None => self.node.n4_mut().stats_mut().gtpu_malformed += 1,
        }
    }

    /// Leave gracefully: ask every SMF to release its association (6.2.8.3: the UP function asks
    /// with an Association Update Request), and take no new work. Packets are forwarded until an
    /// SMF has released. [`Core::is_released`] tells when that is done; it takes a peer that does
    /// not answer N1 x T1, and one that only says that it will the configured graceful release
    /// period, or without one twice N1 x T1.
    ///
    /// An SMF that offers the enhanced release is first told that the release is being prepared, and then what was
    /// measured and it does not know yet (5.18.1).
    pub fn shut_down(&mut self, now: Time, out: &mut Outbox) {
        self.settle(now, out);
        self.node.shut_down(now, out);
        self.settle(now, out);
    }

    /// No SMF is waited for any longer: associations end, and what their sessions have measured is in
    /// [`Outbox::usage`] when [`Core::is_released`] says so; until then call [`Core::advance`].
    pub fn abandon(&mut self, now: Time, out: &mut Outbox) {
        self.settle(now, out);
        self.node.abandon(out);
        self.settle(now, out);
    }

    /// Whether no association is left, nor a session of one that ended.
    pub fn is_released(&self) -> bool {
        self.node.peers().len() == 0 && self.shard.to_delete() == 0
    }

    /// All associations, in the order in which they were set up.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        let peers = self.node.peers().iter();
        peers.map(Peer::view)
    }

    /// The association that requests from there belong to.
    pub fn peer_at(&self, from: SocketAddr) -> Option<PeerView<'_>> {
        let peers = self.node.peers();
        peers.get(peers.by_source(from)?).map(Peer::view)
    }

    /// Associations after this one.
    pub fn peers_after(
        &self,
        after: Option<PeerId>,
    ) -> impl Iterator<Item = (PeerId, PeerView<'_>)> {
        let peers = self.node.peers().iter_after(after);
        peers.map(|peer| (peer.id, peer.view()))
    }

    /// The association that a session belongs to; `None` once the association has ended.
    pub fn peer(&self, id: PeerId) -> Option<PeerView<'_>> {
        self.node.peers().get(id).map(Peer::view)
    }

    /// Sessions in a stable order, those that come after the one with this SEID.
    pub fn sessions(&self, after: Option<u64>) -> impl Iterator<Item = SessionSummary> + '_ {
        self.shard.summaries(after)
    }

    /// One session with its rules and counters, by our SEID.
    pub fn session(&self, seid: u64) -> Option<SessionView> {
        self.shard.view(seid)
    }

    /// Counts of one session's packets, by our SEID.
    pub fn counts(&self, seid: u64) -> Option<SessionCounts> {
        self.shard.counts(seid)
    }

    /// SEIDs of all sessions in a stable order, those that come after this one.
    pub fn seids(&self, after: Option<u64>) -> impl Iterator<Item = u64> + '_ {
        self.shard.seids(after)
    }

    /// All that is known of SMFs, PFDs and GTP-U peers, and what they were told. Its times are those of the caller's clock.
    pub fn node_record(&self) -> NodeRecord {
        NodeRecord::of(&self.node, self.shard.generation(), None)
    }

    /// Go on as the node that this record is of, which SMFs do not notice: to be called before anything else is. Sessions
    /// follow by [`Core::adopt`]. Its times are those of the caller's clock. On an error, nothing has happened.
    pub fn resume(
        &mut self,
        now: Time,
        record: &NodeRecord,
        out: &mut Outbox,
    ) -> Result<(), Unresumed> {
        record.resume(&mut self.node)?;
        self.shard.go_on(record.generation(), record.succession());
        self.settle(now, out);
        Ok(())
    }

    /// Requests that the former node has answered get their answers when they come again, as far as its sessions are as these say: to be
    /// called when they have been taken in. `node`: what was resumed; `answers`: octets of those that were kept. Returns the number of
    /// those that cannot be read.
    pub fn resume_answers<'o>(
        &mut self,
        now: Time,
        node: &NodeRecord,
        answers: impl IntoIterator<Item = &'o [u8]>,
    ) -> usize {
        let (mut all, mut unread) = (Vec::new(), 0);
        for octets in answers {
            match AnswerRecord::read(octets) {
                Ok(answer) => all.push(answer),
                Err(_) => unread += 1,
            }
        }
        let lifetime = self.config.answers.lifetime;
        all.retain(|answer| now.since(answer.at) < lifetime);
        for answer in holding(all, |seid| self.shard.last_answered(seid)) {
            let smf = node.association(answer.association);
            let within = smf.and_then(|smf| self.node.peers().by_node(smf));
            let Some(within) = within else { continue };
            let AnswerRecord {
                request,
                at,
                seid,
                ends,
                octets,
                ..
            } = answer;
            let given = Given {
                within,
                request,
                at,
                seid,
                ends,
            };
            self.node.n4_mut().has_given(given, octets);
        }
        unread
    }

    /// A request that the former node has served and answered beside its core, and that is not in the record of its session
    /// ([`Record::served`]): it is carried out, and nobody is answered. To be called behind [`Self::resume_answers`], in the order of
    /// these requests. `false`: it is not, though its SMF has another answer.
    pub fn carry_out_again(
        &mut self,
        now: Time,
        from: SocketAddr,
        request: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let (modified, place) = (self.stats().modified, out.len());
        self.shard.replays(true);
        self.receive(now, from, request, out);
        self.shard.replays(false);
        out.take_back(place);
        self.stats().modified > modified
    }

    /// From now on [`Core::changes`] knows what has changed. To be called before there are sessions.
    pub fn note_changes(&mut self) {
        self.shard.note_changes();
        self.node.n4_mut().note_answers(true);
        self.kept = Some(Kept::default());
    }

    /// Nobody keeps what changes any more, nor is there a lack of room for it.
    pub fn keep_nothing(&mut self) {
        self.shard.keep_nothing();
        self.node.n4_mut().note_answers(false);
        self.kept = None;
        self.set_full(false);
    }

    /// All that has changed since this was last called, each once: PFDs, the node, if it has changed in more than times, or in any case
    /// (`node`), then sessions, whose associations it has. To be kept before answers are sent, so that whoever has an answer finds what it says after any end.
    pub fn changes(&mut self, node: bool, each: impl FnMut(Change<'_>)) {
        if let Some(kept) = &mut self.kept {
            kept.changes((&mut self.node, &mut self.shard), node, each);
        }
    }

    /// The session in this place could not be kept: it is a change still.
    pub fn note_change(&mut self, place: u32) {
        self.shard.note_change(place);
    }

    /// Nor could PFDs.
    pub fn note_pfds(&mut self) {
        self.node.note_pfds();
    }

    /// Whether there is no room to keep one more session: then none is established (cause 75).
    pub fn set_full(&mut self, is_full: bool) {
        self.node.set_full(is_full);
    }

    /// One session as a [`Record`](crate::Record), by our SEID: all that there is to know of it. Its times are those of
    /// the caller's clock.
    pub fn record(&self, seid: u64) -> Option<Vec<u8>> {
        let smf = self.node.peers().get(self.shard.owner(seid)?)?;
        self.shard.record(seid, &smf.node_id)
    }

    /// Take in a session that was elsewhere, under the SEID that it had there: its SMF notices nothing. Counters of its
    /// PDRs begin anew, its URRs go on, and reports that were not answered are sent again. Its times are those of the
    /// caller's clock. Returns the SEID; on an error, nothing has happened.
    pub fn adopt(&mut self, now: Time, record: Record, out: &mut Outbox) -> Result<u64, Unadopted> {
        self.settle(now, out);
        let peer = self.node.peers().by_node(record.smf());
        let peer = peer.ok_or_else(|| Unadopted::NoAssociation(record.smf().clone()))?;
        let adopted = self.shard.adopt(now, &mut self.outputs, peer, record);
        self.settle(now, out);
        adopted
    }

    /// A session of before is not taken in: its SMF is told that it is gone, if it knows what that means (EPFAR: TS 29.244, 5.18).
    /// Whether it does.
    pub fn tell_lost(&mut self, now: Time, lost: &LostSession, out: &mut Outbox) -> bool {
        self.node.tell_lost(now, out, lost)
    }

    /// All that packets of a session have counted so far, by our SEID, is in its record: nobody will find the tables.
    pub fn look(&mut self, now: Time, seid: u64, out: &mut Outbox) {
        self.shard.look(now, seid);
        self.crossed(now, seid, out);
    }

    /// Packets of a session that was taken in have met other tables than those of its record, too: where this one says. Its meters
    /// go on at the later of both ([`compiled::Tables::follow_meters`]).
    pub fn follow_meters(&mut self, record: &Record) {
        self.shard.follow_meters(record);
    }

    /// Packets of a session that was taken in, by our SEID, were counted elsewhere too. What comes of it is done.
    pub fn count(&mut self, now: Time, seid: u64, uncounted: &Uncounted, out: &mut Outbox) {
        self.shard.count(seid, uncounted);
        self.crossed(now, seid, out);
    }

    /// Let a session go elsewhere, by our SEID: no packet meets it here any more, those that wait for it (BUFF) drop, and
    /// its record has what its packets have counted. `None`: there is none.
    pub fn release(&mut self, now: Time, seid: u64) -> Option<Record> {
        let smf = self.node.peers().get(self.shard.owner(seid)?)?;
        let whose = (seid, smf.node_id.clone());
        self.shard.release(now, &mut self.outputs, whose)
    }

    /// Sessions of peers that are there.
    pub fn session_count(&self) -> usize {
        self.shard.len()
    }

    /// How much of what we give out is given out.
    pub fn fill(&self) -> ResourceFill {
        self.shard.fill()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        self.node.n4().stats()
    }

    /// Whether requests are served by the data path.
    pub fn serves(&self) -> bool {
        self.shard.serves()
    }

    /// Whether it does so by itself, at any time: see [`Core::catch_up`].
    pub fn serves_beside(&self) -> bool {
        self.shard.serves_beside()
    }

    /// Templates of requests that the data path serves.
    pub fn templates(&self) -> impl Iterator<Item = TemplateView<'_>> {
        let view = |(by, template, served)| {
            let smf = &self.node.peers().get(by)?.node_id;
            Some(TemplateView {
                smf,
                template,
                served,
            })
        };
        self.shard.templates().filter_map(view)
    }

    /// Why requests were not served: all reasons, and how often each was one.
    pub fn slow(&self) -> impl Iterator<Item = (Slow, u64)> + '_ {
        let stats = self.node.n4().stats();
        let beside = |why| self.shard.tables().slow(why);
        let all = Slow::ALL.into_iter();
        all.map(move |why| (why, stats.slow_for(why) + beside(why)))
    }

    /// Configuration that it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The tables.
    pub fn tables(&self) -> &T {
        self.shard.tables()
    }

    /// The tables, to change what is not a session's.
    pub fn tables_mut(&mut self) -> &mut T {
        self.shard.tables_mut()
    }

    /// Answers kept for duplicates, and their bytes.
    pub fn answers_kept(&self) -> (usize, usize) {
        self.node.n4().answers_kept()
    }

    /// Requests of ours without an answer yet.
    pub fn outstanding(&self) -> usize {
        self.node.n4().outstanding()
    }

    /// Sessions of peers that are gone and that are not deleted yet.
    pub fn sessions_to_delete(&self) -> usize {
        self.shard.to_delete()
    }

    /// Sessions with usage that waits to be reported, of all SMFs.
    pub fn usage_waiting(&self) -> usize {
        self.shard.usage_waiting()
    }

    /// Applications with PFDs, in alphabetical order, after this name, whether it is there or not: each name with the applications
    /// of it.
    pub fn pfds_after<'a>(
        &'a self,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, Vec<ApplicationView<'a>>)> {
        self.node.pfds_after(after)
    }

    /// Applications with PFDs, and the bytes that they take.
    pub fn pfd_fill(&self) -> (usize, usize) {
        self.node.pfd_fill()
    }

    /// Whether a session has a framed route with addresses of this network, in whatever network instance.
    pub fn has_framed_in(&self, net: IpNet) -> bool {
        self.shard.has_framed_in(net)
    }

    /// GTP-U paths that are asked for, in order of their ends, after these.
    pub fn paths_after(&self, ends: Option<Ends>) -> impl Iterator<Item = PathView> {
        self.node.paths_after(ends)
    }

    /// GTP-U paths that are asked for, and how many of them have failed.
    pub fn path_count(&self) -> (usize, usize) {
        self.node.path_count()
    }
}

#[cfg(test)]
impl<T: Tables> Core<T> {
    /// Tell the SMF of a session about it, as shards do.
    pub(crate) fn report(
        &mut self,
        now: Time,
        seid: u64,
        report: pfcp::ie::ReportType,
        out: &mut Outbox,
        write: impl FnOnce(&mut pfcp::Writer<'_>),
    ) -> bool {
        let sent = self.shard.report(&mut self.outputs, seid, report, write);
        self.settle(now, out);
        sent
    }

    pub(crate) fn check_indexes(&self) {
        self.shard.check_indexes();
        let smfs = self.node.peers().iter().map(|peer| (peer.id, peer.smf()));
        assert_eq!(&smfs.collect::<BTreeMap<_, _>>(), self.shard.smfs());
        for peer in self.node.peers().iter() {
            assert_eq!(peer.sessions, self.shard.sessions_of(peer.id));
        }
    }

    pub(crate) fn tunnel_pause(&self) -> Duration {
        self.shard.tunnel_pause()
    }
}
