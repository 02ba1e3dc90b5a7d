//! Associations updated, and released in good order from either side (TS 29.244, 5.18, 6.2.7, 6.2.8).

use pfcp::ie::{AssociationReleaseFlags, CpFunctionFeatures, PfcpAuReqFlags, Timer as Duration8};
use pfcp::message::{
    AssociationReleaseRequest, AssociationUpdateRequest, AssociationUpdateResponse,
};
use pfcp::{Cause, IeType, Message, Writer};

use crate::base::event::Gone;
use crate::base::ids::PeerId;
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Turn;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::peer::{Peer, PeerState, SmfSet, alternatives};
use crate::node::shards::{Shards, Then};
use crate::node::{Node, Timer};

impl Node {
    /// Association Update Request of a CP function (6.2.7.2.2). What it leaves out stays as it was.
    pub(crate) fn on_update(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match AssociationUpdateRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(turn, incoming, &error),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(turn, incoming, cause.into());
        };
        self.peers.learn_source(id, incoming.from);
        self.heard(turn, shards, id);
        if let Some(peer) = self.peers.get_mut(id) {
            if let Some(features) = request.cp_function_features {
                peer.cp_features = features;
            }
            if !request.alternatives.is_empty() {
                peer.alternatives = alternatives(&request.alternatives);
            }
        }
        if let Some(set) = request.smf_set_id {
            self.join_set(turn, shards, id, SmfSet::new(set));
        }
        self.accept_node_request(turn, incoming);
        let preparation = request
            .pfcpaureq_flags
            .is_some_and(|flags| flags.contains(PfcpAuReqFlags::PARPS));
        if preparation {
            self.finish_usage(turn, shards, id, Then::Tell);
        }
    }

    /// All usage of a peer is to be reported, and then this is to follow.
    pub(crate) fn finish_usage(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        peer: PeerId,
        then: Then,
    ) {
        shards.begin_finishing(peer, then);
        self.keep_finishing(turn, shards);
    }

    /// A step.
    pub(crate) fn keep_finishing(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards) {
        for peer in shards.unfinished() {
            shards.finish_some(turn, &self.peers, peer);
            self.follow(turn, shards);
        }
    }

    /// Does what follows where all usage of an association is reported.
    pub(crate) fn follow(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards) {
        while let Some((peer, then)) = shards.finished() {
            match then {
                Then::Tell => self.say_reports_are_sent(turn, peer),
                Then::AskForRelease => self.ask_for_release(turn, peer),
            }
        }
    }

    /// The SMF prepares the release and waits until it has all usage reports (5.18.2): it has.
    pub(crate) fn say_reports_are_sent(&mut self, turn: &mut Turn<'_>, id: PeerId) {
        let purpose = Purpose::ReportsSent(id);
        if turn.n4.is_waiting(purpose) {
            return;
        }
        self.send_update(turn, id, purpose, |writer| {
            let ie_type = IeType::PFCP_ASSOCIATION_RELEASE_REQUEST;
            writer.put(ie_type, AssociationReleaseFlags::URSS);
        });
    }

    /// Association Release Request (6.2.8.2.2): the sessions go, then the answer.
    pub(crate) fn on_release(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match AssociationReleaseRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(turn, incoming, &error),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(turn, incoming, cause.into());
        };
        let target = self.target_of(id);
        self.end_association(turn, shards, id, Gone::Released);
        self.accept_node_request(turn, incoming);
        if let Some(target) = target.filter(|_| !self.closing) {
            // Not at once: it had its reason.
            self.set_timer(turn.now, self.config.retry_at_most, Timer::Setup(target));
        }
    }

    /// See [`Core::shut_down`](crate::Core::shut_down).
    pub(crate) fn shut_down(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards) {
        self.closing = true;
        shards.close();
        turn.n4.cancel(|_| true);
        shards.drop_reports();
        self.timers.clear();
        let least = self.config.t1 * self.config.n1.max(1) * 2;
        let patience = least.max(self.config.graceful_release);
        for id in self.peers.ids() {
            let enhanced = self
                .peers
                .get(id)
                .is_some_and(|peer| peer.cp_features.contains(CpFunctionFeatures::EPFAR));
            if enhanced {
                self.send_update(turn, id, Purpose::Prepare(id), |writer| {
                    writer.put(IeType::PFCPAUREQ_FLAGS, PfcpAuReqFlags::PARPS);
                });
            } else {
                self.ask_for_release(turn, id);
            }
            let answers = |peer: &Peer| peer.state == PeerState::Up;
            if self.peers.get(id).is_some_and(answers) {
                self.set_timer(turn.now, patience, Timer::ReleaseBy(id));
            } else {
                // It is told, in case that it hears us.
                self.end_association(turn, shards, id, Gone::ShutDown);
            }
        }
    }

    /// PFCP Association Release Request IE, with the time that the SMF may take.
    pub(crate) fn ask_for_release(&mut self, turn: &mut Turn<'_>, id: PeerId) {
        let period = self.config.graceful_release;
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mut flags = AssociationReleaseFlags::SARR;
        if peer.cp_features.contains(CpFunctionFeatures::EPFAR) {
            flags |= AssociationReleaseFlags::URSS;
        }
        self.send_update(turn, id, Purpose::Release(id), |writer| {
            writer.put(IeType::PFCP_ASSOCIATION_RELEASE_REQUEST, flags);
            if !period.is_zero() {
                let timer = Duration8::at_least(period.as_secs());
                writer.put(IeType::GRACEFUL_RELEASE_PERIOD, timer);
            }
        });
    }

    fn send_update(
        &mut self,
        turn: &mut Turn<'_>,
        id: PeerId,
        purpose: Purpose,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        let node_id = turn.n4.node_id().clone();
        let Some(to) = self.peers.get(id).map(|peer| peer.address) else {
            return;
        };
        turn.request(to, purpose, None, |writer| {
            writer.node_id(node_id.to_wire());
            write(writer);
        });
    }

    /// See [`Core::abandon`](crate::Core::abandon).
    pub(crate) fn abandon(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards) {
        self.closing = true;
        shards.close();
        for id in self.peers.ids() {
            self.end_association(turn, shards, id, Gone::ShutDown);
        }
    }
}

/// The cause of an answer to an Association Update Request of ours; nothing hangs on it.
pub(super) fn note_cause(turn: &mut Turn<'_>, message: &Message<'_>) {
    if let Ok(response) = AssociationUpdateResponse::decode(message) {
        turn.stats()
            .cause(Way::Received, message.header.message_type, response.cause);
    }
}
