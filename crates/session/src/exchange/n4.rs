//! N4 as one thread speaks it: requests of ours under way, answers kept, and what is counted.

use std::borrow::Cow;
use std::net::SocketAddr;

use pfcp::ie::{FailedRuleId, RecoveryTimeStamp};
use pfcp::{Cause, Message, MessageType, Writer};

use crate::base::event::{Event, Ignored, Said};
use crate::base::ids::{PeerId, RuleId};
use crate::base::node_id::OwnNodeId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::exchange::answers::{Answers, Fingerprint};
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::{Due, Purpose, Requests};
use crate::exchange::stats::{Stats, Way};
use crate::rules::config::Config;

/// Requests under way, answers kept, counters, and who we say that we are.
#[derive(Debug)]
pub(crate) struct N4 {
    node_id: OwnNodeId,
    recovery: u32,
    /// Processes before this one that had the same Recovery Time Stamp.
    succession: u32,
    requests: Requests,
    answers: Answers,
    /// Answers that were given since they were last kept. `None`: nobody keeps them.
    given: Option<Vec<Given>>,
    stats: Stats,
}

/// An answer of [`Answers`], and what it says was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) within: PeerId,
    pub(crate) request: Fingerprint,
    pub(crate) at: Time,
    /// The session that it is about, by our SEID. 0: it is about none, or several.
    pub(crate) seid: u64,
    /// The session has ended with it.
    pub(crate) ends: bool,
}

impl N4 {
    /// `recovery`: our Recovery Time Stamp.
    pub(crate) fn new(config: &Config, recovery: u32) -> Self {
        Self {
            node_id: OwnNodeId::new(&config.node_id),
            recovery,
            succession: 0,
            requests: Requests::new(config, recovery),
            answers: Answers::new(config.answers),
            given: None,
            stats: Stats::new(),
        }
    }

    pub(crate) fn reconfigure(&mut self, config: &Config) {
        self.requests.reconfigure(config);
    }

    pub(crate) fn node_id(&self) -> &OwnNodeId {
        &self.node_id
    }

    pub(crate) fn recovery(&self) -> u32 {
        self.recovery
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    pub(crate) fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Number of the last request of ours.
    pub(crate) fn sequence(&self) -> u32 {
        self.requests.sequence()
    }

    /// Processes before this one that had the same Recovery Time Stamp.
    pub(crate) fn succession(&self) -> u32 {
        self.succession
    }

    /// There were so many, and numbers of requests go on behind this one.
    pub(crate) fn go_on(&mut self, succession: u32, sequence: u32) {
        self.succession = succession;
        self.requests.go_on(sequence);
    }

    /// Requests without an answer yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_waiting(&self, purpose: Purpose) -> bool {
        self.requests.is_waiting(purpose)
    }

    pub(crate) fn cancel(&mut self, unwanted: impl Fn(Purpose) -> bool) {
        self.requests.cancel(unwanted);
    }

    /// No request and no answer of ours speaks of this association any more.
    pub(crate) fn forget(&mut self, id: PeerId) {
        self.answers.forget(id);
        self.requests.cancel(|purpose| purpose.peer() == Some(id));
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.requests.next_deadline()
    }

    /// Answers kept for duplicates, and their bytes.
    pub(crate) fn answers_kept(&self) -> (usize, usize) {
        self.answers.fill()
    }

    /// Read what [`Self::repeat`] will read. The result means nothing.
    pub(crate) fn touch(&self, scope: Option<PeerId>, fingerprint: Fingerprint) -> u64 {
        self.answers.touch(scope, fingerprint)
    }

    /// The request of ours that this response answers.
    pub(crate) fn answered(&mut self, from: SocketAddr, message: &Message<'_>) -> Option<Purpose> {
        let header = &message.header;
        self.requests
            .answered(from, header.sequence, header.message_type)
    }

    /// Whether a request of this association has been answered before, and is [repeated](Self::repeat).
    pub(crate) fn is_answered(&self, now: Time, of: PeerId, request: Fingerprint) -> bool {
        self.answers.find(now, Some(of), request).is_some()
    }

    /// The answer to a request that has been answered before. `false`: it has not been.
    pub(crate) fn repeat(
        &mut self,
        now: Time,
        out: &mut Outbox,
        scope: Option<PeerId>,
        incoming: &Incoming,
    ) -> bool {
        let found = self.answers.find(now, scope, incoming.fingerprint);
        let Some((front, back)) = found else {
            return false;
        };
        self.stats.duplicates += 1;
        if let Some(response) = incoming.message_type.response() {
            self.stats.message(Way::Sent, response);
        }
        out.repeat(incoming.from, (front, back));
        true
    }

    /// From now on [`Self::take_given`] knows which answers were given; or not any more.
    pub(crate) fn note_answers(&mut self, notes: bool) {
        self.given = notes.then(Vec::new);
    }

    /// Answers that were given since this was last called, in their order. For the sake of its capacity, they come into an empty
    /// list.
    pub(crate) fn take_given(&mut self, into: &mut Vec<Given>) {
        if let Some(given) = &mut self.given {
            std::mem::swap(given, into);
        }
    }

    /// Its octets, if they are still there. They seldom lie in two pieces.
    pub(crate) fn octets_of(&self, given: &Given) -> Option<Cow<'_, [u8]>> {
        let found = (self.answers).find(given.at, Some(given.within), given.request);
        found.map(|(front, back)| match back {
            [] => front.into(),
            _ => [front, back].concat().into(),
        })
    }

    /// An answer that a process before this one has given.
    pub(crate) fn has_given(&mut self, given: Given, octets: &[u8]) {
        self.answers
            .keep(given.at, Some(given.within), given.request, octets);
        if let Some(all) = &mut self.given {
            all.push(given);
        }
    }

    /// Answer a request with `cause` and what else `write` has to say, and keep the answer. `scope`: the association that
    /// requests from there belong to; `cp_seid`: the sender's, of a session; `seid`: ours, of a session that is now as it asks; 0: none
    /// is.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        out: &mut Outbox,
        scope: Option<PeerId>,
        (incoming, cp_seid, seid): (&Incoming, u64, u64),
        cause: Cause,
        write: impl FnOnce(&mut Writer<'_>, &OwnNodeId),
    ) {
        let Some(response) = incoming.message_type.response() else {
            return;
        };
        let cp_seid = response.is_session().then_some(cp_seid);
        let us = &self.node_id;
        let sent = out.send(incoming.from, |bytes| {
            let mut writer = Writer::new(bytes, response, cp_seid, incoming.sequence);
            if let Some(priority) = incoming.priority {
                writer.priority(priority);
            }
            write(&mut writer, us);
            let _ = writer.finish();
        });
        self.stats.message(Way::Sent, response);
        self.stats.cause(Way::Sent, response, cause);
        // A stranger's refused requests cost nothing to refuse again, and must not push out the
        // answers that other strangers may need.
        if scope.is_some() || cause.is_accepted() {
            self.answers.keep(now, scope, incoming.fingerprint, sent);
        }
        // A refused request has changed nothing, and may be refused again.
        if let (Some(given), Some(within), true) = (&mut self.given, scope, cause.is_accepted()) {
            given.push(Given {
                within,
                request: incoming.fingerprint,
                at: now,
                seid,
                ends: incoming.message_type == MessageType::SESSION_DELETION_REQUEST,
            });
        }
    }

    /// Answer a request with an error.
    pub(crate) fn refuse(
        &mut self,
        now: Time,
        out: &mut Outbox,
        scope: Option<PeerId>,
        (incoming, seid): (&Incoming, u64),
        refusal: Refusal,
    ) {
        out.event(Event::Refused {
            from: incoming.from,
            request: incoming.said(),
            cause: refusal.cause,
            offending_ie: refusal.offending_ie,
            failed_rule: refusal.failed_rule,
            cp_seid: seid,
            shortage: refusal.shortage,
            unknown: refusal.unknown,
        });
        let (request, recovery) = (incoming.message_type, self.recovery);
        let (to, cause) = ((incoming, seid, 0), refusal.cause);
        self.answer(now, out, scope, to, cause, |writer, us| {
            write_refusal(writer, us, request, recovery, &refusal);
        });
    }

    /// Answer a request that could not be read.
    pub(crate) fn refuse_undecodable(
        &mut self,
        now: Time,
        out: &mut Outbox,
        scope: Option<PeerId>,
        to: (&Incoming, u64),
        error: &pfcp::Error,
    ) {
        self.stats.decode_errors += 1;
        let refusal = Refusal {
            cause: error.cause(),
            offending_ie: error.offending_ie(),
            failed_rule: None,
            shortage: None,
            unknown: None,
        };
        self.refuse(now, out, scope, to, refusal);
    }

    /// Count what cannot be answered.
    pub(crate) fn ignore(
        &mut self,
        out: &mut Outbox,
        from: SocketAddr,
        message: Option<Said>,
        why: Ignored,
    ) {
        self.stats.ignored(why, 1);
        out.event(Event::Ignored { from, message, why });
    }

    /// Count so many messages of a stranger, who is not listened to.
    pub(crate) fn drop_stranger(&mut self, out: &mut Outbox, from: SocketAddr, messages: u32) {
        let why = Ignored::StrangerDropped;
        self.stats.ignored(why, messages);
        let message = None;
        out.event(Event::Ignored { from, message, why });
    }

    /// The answer to a message of another version of PFCP.
    pub(crate) fn version_not_supported(
        &mut self,
        out: &mut Outbox,
        to: SocketAddr,
        sequence: u32,
    ) {
        let response = MessageType::VERSION_NOT_SUPPORTED_RESPONSE;
        out.send(to, |bytes| {
            let _ = Writer::new(bytes, response, None, sequence).finish();
        });
        self.stats.message(Way::Sent, response);
    }

    /// Send a request of ours. `seid`: of the session that it is about, as the receiver calls it. `false`: too many are
    /// under way.
    pub(crate) fn request(
        &mut self,
        now: Time,
        out: &mut Outbox,
        (to, seid): (SocketAddr, Option<u64>),
        purpose: Purpose,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let message_type = purpose.request();
        let write = |bytes: &mut Vec<u8>, sequence| {
            let mut writer = Writer::new(bytes, message_type, seid, sequence);
            write(&mut writer);
            writer.finish();
        };
        let sent = self.requests.send(now, to, purpose, out, write);
        if sent {
            self.stats.message(Way::Sent, message_type);
        }
        sent
    }

    /// Sends requests again whose T1 has run out. The first that needs more than that; `None`: no more are due.
    pub(crate) fn due(&mut self, now: Time, out: &mut Outbox) -> Option<Due> {
        loop {
            match self.requests.fire(now, out)? {
                Due::Again(purpose) => self.has_sent_again(purpose),
                Due::GivenUp(purpose) => {
                    self.stats.timeouts += 1;
                    return Some(Due::GivenUp(purpose));
                }
                late @ Due::Late(..) => return Some(late),
            }
        }
    }

    /// A request is sent once more.
    pub(crate) fn send_again(&mut self, out: &mut Outbox, sequence: u32) {
        if let Some(purpose) = self.requests.send_again(sequence, out) {
            self.has_sent_again(purpose);
        }
    }

    /// Nobody waits for an answer any more.
    pub(crate) fn drop_request(&mut self, sequence: u32) {
        self.requests.remove(sequence);
    }

    fn has_sent_again(&mut self, purpose: Purpose) {
        self.stats.retransmissions += 1;
        self.stats.message(Way::Sent, purpose.request());
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
