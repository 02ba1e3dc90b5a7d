//! Associations updated, and released in good order from either side (TS 29.244, 5.18, 6.2.7, 6.2.8).

use pfcp::ie::{AssociationReleaseFlags, CpFunctionFeatures, PfcpAuReqFlags, Timer as Duration8};
use pfcp::message::{
    AssociationReleaseRequest, AssociationUpdateRequest, AssociationUpdateResponse,
};
use pfcp::{Cause, IeType, Message, Writer};

use crate::base::event::Gone;
use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::peer::{Peer, PeerState, SmfSet, alternatives};
use crate::node::{Node, Then, Timer};

impl Node {
    /// Association Update Request of a CP function (6.2.7.2.2). What it leaves out stays as it was.
    pub(crate) fn on_update(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match AssociationUpdateRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, out, incoming, &error),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, out, incoming, cause.into());
        };
        self.peers.learn_source(id, incoming.from);
        self.heard(now, out, id);
        if let Some(peer) = self.peers.get_mut(id) {
            if let Some(features) = request.cp_function_features {
                peer.cp_features = features;
            }
            if !request.alternatives.is_empty() {
                peer.alternatives = alternatives(&request.alternatives);
            }
        }
        if let Some(set) = request.smf_set_id {
            self.join_set(id, SmfSet::new(set));
        }
        self.tell_smf(id);
        self.accept_node_request(now, out, incoming);
        let preparation = request
            .pfcpaureq_flags
            .is_some_and(|flags| flags.contains(PfcpAuReqFlags::PARPS));
        if preparation {
            self.finish_usage(id, Then::Tell);
        }
    }

    /// All usage of a peer is to be reported, and then this is to follow. An SMF that asks again while it goes on changes nothing.
    pub(super) fn finish_usage(&mut self, peer: PeerId, then: Then) {
        self.finishing.entry(peer).or_insert(then);
        self.tell(ToShard::Finish(peer));
    }

    /// All usage of a peer is reported: the next step follows.
    pub(super) fn on_finished(&mut self, now: Time, out: &mut Outbox, peer: PeerId) {
        match self.finishing.remove(&peer) {
            Some(Then::Tell) => self.say_reports_are_sent(now, out, peer),
            Some(Then::AskForRelease) => self.ask_for_release(now, out, peer),
            None => {}
        }
    }

    /// The SMF prepares the release and waits until it has all usage reports (5.18.2): it has.
    pub(crate) fn say_reports_are_sent(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let purpose = Purpose::ReportsSent(id);
        if self.n4.is_waiting(purpose) {
            return;
        }
        self.send_update(now, out, id, purpose, |writer| {
            let ie_type = IeType::PFCP_ASSOCIATION_RELEASE_REQUEST;
            writer.put(ie_type, AssociationReleaseFlags::URSS);
        });
    }

    /// Association Release Request (6.2.8.2.2): the sessions go, then the answer.
    pub(crate) fn on_release(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match AssociationReleaseRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, out, incoming, &error),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, out, incoming, cause.into());
        };
        let target = self.target_of(id);
        self.end_association(out, id, Gone::Released);
        self.accept_node_request(now, out, incoming);
        if let Some(target) = target.filter(|_| !self.closing) {
            // Not at once: it had its reason.
            self.set_timer(now, self.config.retry_at_most, Timer::Setup(target));
        }
    }

    /// See [`Core::shut_down`](crate::Core::shut_down).
    pub(crate) fn shut_down(&mut self, now: Time, out: &mut Outbox) {
        self.closing = true;
        self.n4.cancel(|_| true);
        self.finishing.clear();
        self.sweep.untold.clear();
        self.tell(ToShard::Close);
        self.tell(ToShard::DropReports);
        self.timers.clear();
        let least = self.config.t1 * self.config.n1.max(1) * 2;
        let patience = least.max(self.config.graceful_release);
        for id in self.peers.ids() {
            let enhanced = self
                .peers
                .get(id)
                .is_some_and(|peer| peer.cp_features.contains(CpFunctionFeatures::EPFAR));
            if enhanced {
                self.send_update(now, out, id, Purpose::Prepare(id), |writer| {
                    writer.put(IeType::PFCPAUREQ_FLAGS, PfcpAuReqFlags::PARPS);
                });
            } else {
                self.ask_for_release(now, out, id);
            }
            let answers = |peer: &Peer| peer.state == PeerState::Up;
            if self.peers.get(id).is_some_and(answers) {
                self.set_timer(now, patience, Timer::ReleaseBy(id));
            } else {
                // It is told, in case that it hears us.
                self.end_association(out, id, Gone::ShutDown);
            }
        }
    }

    /// PFCP Association Release Request IE, with the time that the SMF may take.
    pub(crate) fn ask_for_release(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let period = self.config.graceful_release;
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mut flags = AssociationReleaseFlags::SARR;
        if peer.cp_features.contains(CpFunctionFeatures::EPFAR) {
            flags |= AssociationReleaseFlags::URSS;
        }
        self.send_update(now, out, id, Purpose::Release(id), |writer| {
            writer.put(IeType::PFCP_ASSOCIATION_RELEASE_REQUEST, flags);
            if !period.is_zero() {
                let timer = Duration8::at_least(period.as_secs());
                writer.put(IeType::GRACEFUL_RELEASE_PERIOD, timer);
            }
        });
    }

    fn send_update(
        &mut self,
        now: Time,
        out: &mut Outbox,
        id: PeerId,
        purpose: Purpose,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        let node_id = self.n4.node_id().clone();
        let Some(to) = self.peers.get(id).map(|peer| peer.address) else {
            return;
        };
        self.n4.request(now, out, (to, None), purpose, |writer| {
            writer.node_id(node_id.to_wire());
            write(writer);
        });
    }

    /// See [`Core::abandon`](crate::Core::abandon).
    pub(crate) fn abandon(&mut self, out: &mut Outbox) {
        self.closing = true;
        self.tell(ToShard::Close);
        for id in self.peers.ids() {
            self.end_association(out, id, Gone::ShutDown);
        }
    }

    /// The cause of an answer to an Association Update Request of ours; nothing hangs on it.
    pub(super) fn note_cause(&mut self, message: &Message<'_>) {
        if let Ok(response) = AssociationUpdateResponse::decode(message) {
            let answer = message.header.message_type;
            let stats = self.n4.stats_mut();
            stats.cause(Way::Received, answer, response.cause);
        }
    }
}
