//! Associations: set up from either side, updated, released, kept alive, and cleaned up after.

use std::net::SocketAddr;
use std::time::Duration;

use pfcp::ie::{self, CpFunctionFeatures, PfcpAsRspFlags, RecoveryTimeStamp};
use pfcp::message::{
    AssociationSetupRequest, AssociationSetupResponse, HeartbeatRequest, HeartbeatResponse,
};
use pfcp::{Cause, IeType, Message, MessageType, Writer};

use crate::base::event::{Event, Gone, Ignored, Said};
use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Turn;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::paths::on_node_report_answer;
use crate::node::peer::{Peer, PeerState, SmfSet, alternatives};
use crate::node::release::note_cause;
use crate::node::shards::{Shards, Then};
use crate::node::{Node, Timer, features};

/// Associations that one address may have, so that no host takes them all: Node IDs cost nothing. Beyond, cause 75.
const PEERS_PER_ADDRESS: usize = 8;

impl Node {
    /// Association Setup Request of a CP function (TS 29.244, 6.2.6.2.2).
    pub(crate) fn on_setup(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match AssociationSetupRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(turn, incoming, &error),
        };
        if self.closing {
            return self.refuse(turn, incoming, Cause::REQUEST_REJECTED.into());
        }
        let node_id = NodeId::from_wire(&request.node_id);
        if !node_id.is_legal() {
            let refusal = Refusal::ie(Cause::MANDATORY_IE_INCORRECT, IeType::NODE_ID);
            return self.refuse(turn, incoming, refusal);
        }
        let known = self.peers.by_node(&node_id);
        if known.is_none() && !self.has_room_for_a_peer(turn, shards, incoming.from) {
            return self.refuse(turn, incoming, Cause::NO_RESOURCES_AVAILABLE.into());
        }
        if let Some(id) = known
            && self.is_deferred(id, incoming)
        {
            return turn.ignore(incoming.from, Some(incoming.said()), Ignored::InProgress);
        }
        if let Some(id) = known
            && self.is_elsewhere(id, incoming.from)
        {
            self.ask_whether_alive(turn, id);
            return turn.ignore(incoming.from, Some(incoming.said()), Ignored::NodeIdTaken);
        }
        let retain = retains_all(&request);
        let id = match known {
            Some(id) if retain => id,
            Some(id) => {
                self.end_association(turn, shards, id, Gone::Replaced);
                self.begin_association(turn.now, node_id, incoming.from)
            }
            None => self.begin_association(turn.now, node_id, incoming.from),
        };
        self.stop_asking(turn, incoming.from);
        self.associated(
            turn,
            shards,
            id,
            incoming.from,
            request.recovery_time_stamp.0,
            false,
        );
        if let Some(peer) = self.peers.get_mut(id) {
            peer.deferred = Some(*incoming);
            peer.cp_features = request
                .cp_function_features
                .unwrap_or(CpFunctionFeatures::empty());
            peer.alternatives = alternatives(&request.alternatives);
        }
        let set = request.smf_set_id.and_then(SmfSet::new);
        self.join_set(turn, shards, id, set);
        if shards.is_swept() {
            self.answer_deferred_setups(turn, shards);
        }
    }

    /// Whether one more association is within the limits of all and of an address, if need be at the expense of a peer
    /// without sessions that is silent, or has the same address: a node that keeps changing its
    /// Node ID crowds out itself, and nobody else.
    fn has_room_for_a_peer(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        from: SocketAddr,
    ) -> bool {
        let is_here = |peer: &Peer| peer.address.ip() == from.ip();
        let is_crowded =
            self.peers.iter().filter(|peer| is_here(peer)).count() >= PEERS_PER_ADDRESS;
        if !is_crowded && self.peers.len() < self.config.limits.peers {
            return true;
        }
        let is_dispensable = |peer: &&Peer| {
            let may_go = is_here(peer) || !is_crowded && peer.state != PeerState::Up;
            may_go && shards.sessions_of(peer.id) == 0
        };
        let Some(idle) = self.peers.iter().find(is_dispensable).map(|peer| peer.id) else {
            return false;
        };
        self.end_association(turn, shards, idle, Gone::Displaced);
        true
    }

    /// Whether the SMF that we know under this Node ID is not the sender, and alive as far as we know. An SMF that has
    /// moved sends its request again, and is believed when its old address has not answered; one that is configured is at
    /// once, lest who took its name first keeps it out.
    fn is_elsewhere(&self, id: PeerId, from: SocketAddr) -> bool {
        let is_up = |peer: &Peer| peer.state == PeerState::Up;
        let may = self.peers.speaks_for(id, from.ip()) || self.peers.target_at(from).is_some();
        self.peers.get(id).is_some_and(is_up) && !may
    }

    /// Whether this very request waits for its answer.
    fn is_deferred(&self, id: PeerId, incoming: &Incoming) -> bool {
        self.peers
            .get(id)
            .is_some_and(|peer| peer.deferred.as_ref() == Some(incoming))
    }

    /// Accept the associations that waited until no session of an earlier life was in their way:
    /// a restarted SMF gives out the same addresses and TEIDs again.
    pub(crate) fn answer_deferred_setups(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards) {
        for id in self.peers.ids() {
            let Some(incoming) = self.peers.get_mut(id).and_then(|peer| peer.deferred.take())
            else {
                continue;
            };
            let retained = shards.sessions_of(id) > 0;
            let recovery = turn.n4.recovery();
            self.answer(turn, &incoming, Cause::REQUEST_ACCEPTED, |writer, us| {
                writer.node_id(us.to_wire());
                writer.cause(Cause::REQUEST_ACCEPTED);
                writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
                writer.up_function_features(features::CLAIMED);
                if retained {
                    writer.put(IeType::PFCPASRSP_FLAGS, PfcpAsRspFlags::PSREI);
                }
            });
        }
    }

    fn begin_association(&mut self, now: Time, node_id: NodeId, from: SocketAddr) -> PeerId {
        let port = self.config.peer_port.unwrap_or(from.port());
        let id = self
            .peers
            .insert(now, node_id, SocketAddr::new(from.ip(), port));
        if !self.config.heartbeat_interval.is_zero() {
            self.set_timer(now, self.config.heartbeat_interval, Timer::Heartbeat(id));
        }
        id
    }

    /// What both ways of setting up an association have in common.
    fn associated(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        id: PeerId,
        from: SocketAddr,
        recovery: u32,
        by_us: bool,
    ) {
        self.peers.learn_source(id, from);
        let retained = shards.sessions_of(id);
        let port = if by_us {
            from.port()
        } else {
            self.config.peer_port.unwrap_or(from.port())
        };
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        peer.address = SocketAddr::new(from.ip(), port);
        peer.recovery = Some(recovery);
        peer.stale_recovery = None;
        peer.state = PeerState::Up;
        peer.since = turn.now;
        peer.heard = turn.now;
        peer.by_us = by_us;
        shards.join(id, peer.party());
        turn.stats().associations += 1;
        turn.out.event(Event::PeerUp {
            node_id: peer.node_id.clone(),
            address: peer.address,
            by_us,
            retained,
        });
        self.share_out(shards);
    }

    /// The configured SMF that this peer is.
    pub(crate) fn target_of(&self, id: PeerId) -> Option<usize> {
        self.peers
            .get(id)
            .and_then(|peer| self.peers.target_at(peer.address))
    }

    pub(crate) fn accept_node_request(&mut self, turn: &mut Turn<'_>, incoming: &Incoming) {
        self.answer(turn, incoming, Cause::REQUEST_ACCEPTED, |writer, us| {
            writer.node_id(us.to_wire());
            writer.cause(Cause::REQUEST_ACCEPTED);
        });
    }

    /// The association of this Node ID, or where there is none (some SMFs send another one, or one
    /// in another form, than they set the association up with) that of the sender's address.
    fn peer_of(&self, node_id: &NodeId, from: SocketAddr) -> Option<PeerId> {
        self.peers
            .by_node(node_id)
            .or_else(|| self.peers.by_source(from))
    }

    /// As [`Self::peer_of`], for a request about the association as a whole: only of one that the
    /// sender may speak for. To others it is as if there were none.
    pub(crate) fn peer_for(&self, node_id: &ie::NodeId<'_>, from: SocketAddr) -> Option<PeerId> {
        self.peer_of(&NodeId::from_wire(node_id), from)
            .filter(|id| self.peers.speaks_for(*id, from.ip()))
    }

    /// Heartbeat Request, of anyone at any time (6.2.2.2).
    pub(crate) fn on_heartbeat_request(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        from: SocketAddr,
        message: &Message<'_>,
    ) {
        // Its response has no Cause to say that the Recovery Time Stamp is missing.
        let Ok(request) = HeartbeatRequest::decode(message) else {
            turn.stats().decode_errors += 1;
            return turn.ignore(from, Some(Said::from(&message.header)), Ignored::Incomplete);
        };
        let (response, recovery) = (MessageType::HEARTBEAT_RESPONSE, turn.n4.recovery());
        turn.out.send(from, |bytes| {
            let mut writer = Writer::new(bytes, response, None, message.header.sequence);
            writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
            writer.finish();
        });
        turn.stats().message(Way::Sent, response);
        let peer = (self.peers.by_source(from)).filter(|id| self.peers.speaks_for(*id, from.ip()));
        if let Some(id) = peer {
            self.heard(turn, shards, id);
            self.compare_recovery(turn, shards, id, request.recovery_time_stamp.0);
        }
    }

    /// A peer lives.
    pub(crate) fn heard(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        peer.heard = turn.now;
        if let PeerState::Down(_) = peer.state {
            peer.state = PeerState::Up;
            turn.out.event(Event::PeerBack {
                node_id: peer.node_id.clone(),
                address: peer.address,
            });
            self.timers
                .retain(|(_, timer)| *timer != Timer::Retention(id));
            shards.send_waiting(turn, &self.peers, id);
            self.follow(turn, shards);
        }
    }

    /// Has the peer restarted since it last told us its Recovery Time Stamp (TS 23.007, 19A)?
    ///
    /// An older time stamp is a message that was overtaken, and is discarded; but one that is
    /// repeated is that of a peer whose clock went back while it was down.
    fn compare_recovery(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        id: PeerId,
        recovery: u32,
    ) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let known = *peer.recovery.get_or_insert(recovery);
        if known == recovery {
            peer.stale_recovery = None;
            return;
        }
        // NTP seconds wrap in 2036.
        let is_newer = recovery.wrapping_sub(known) < 1 << 31;
        if is_newer || peer.stale_recovery == Some(recovery) {
            return self.on_restart(turn, shards, id, recovery);
        }
        peer.stale_recovery = Some(recovery);
        turn.stats().ignored(Ignored::StaleRecovery, 1);
        turn.out.event(Event::StaleRecovery {
            node_id: peer.node_id.clone(),
            address: peer.address,
            recovery,
            known,
        });
    }

    /// The peer has lost its sessions, so they go here too (TS 23.527, 4.4.2.1). The association
    /// stays, for a peer that does not set it up again; where that was our part, we do.
    fn on_restart(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        id: PeerId,
        recovery: u32,
    ) {
        turn.stats().restarts += 1;
        let sessions = shards.sessions_of(id);
        let party = self.peers.get(id).map(Peer::party);
        let Some(new) = self.peers.renew(id) else {
            return;
        };
        self.forget(turn, shards, id);
        if let Some(party) = party {
            self.leave_party(shards, party);
        }
        let Some(peer) = self.peers.get_mut(new) else {
            return;
        };
        shards.join(new, peer.party());
        peer.recovery = Some(recovery);
        peer.stale_recovery = None;
        peer.heartbeat_waits = false;
        let (by_us, address) = (peer.by_us, peer.address);
        turn.out.event(Event::PeerRestarted {
            node_id: peer.node_id.clone(),
            address,
            sessions,
        });
        if !self.config.heartbeat_interval.is_zero() {
            self.set_timer(
                turn.now,
                self.config.heartbeat_interval,
                Timer::Heartbeat(new),
            );
        }
        self.disown(turn, shards, id, None);
        if by_us && let Some(target) = self.peers.target_at(address) {
            self.try_setup(turn, target);
        }
    }

    /// Answers to our own requests.
    pub(crate) fn on_answer(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        from: SocketAddr,
        purpose: Purpose,
        message: &Message<'_>,
    ) {
        match purpose {
            Purpose::Heartbeat(id) => {
                if let Some(peer) = self.peers.get_mut(id) {
                    peer.heartbeat_waits = false;
                }
                self.heard(turn, shards, id);
                match HeartbeatResponse::decode(message) {
                    Ok(response) => {
                        self.compare_recovery(turn, shards, id, response.recovery_time_stamp.0);
                    }
                    Err(_) => {
                        let said = Some(Said::from(&message.header));
                        turn.ignore(from, said, Ignored::Incomplete);
                    }
                }
            }
            Purpose::Setup(target) => self.on_setup_response(turn, shards, from, target, message),
            // The peer now has its time to send an Association Release Request.
            Purpose::Release(_) | Purpose::ReportsSent(_) => note_cause(turn, message),
            Purpose::Prepare(id) => {
                note_cause(turn, message);
                self.finish_usage(turn, shards, id, Then::AskForRelease);
            }
            // The shard has it.
            Purpose::Report(_) => {}
            Purpose::NodeReport(_) => on_node_report_answer(turn, message),
        }
    }

    fn on_setup_response(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        from: SocketAddr,
        target: usize,
        message: &Message<'_>,
    ) {
        let response = match AssociationSetupResponse::decode(message) {
            Ok(response) => response,
            Err(_) => {
                turn.ignore(from, Some(Said::from(&message.header)), Ignored::Incomplete);
                return self.setup_failed(turn, target, None);
            }
        };
        turn.stats()
            .cause(Way::Received, message.header.message_type, response.cause);
        if !response.cause.is_accepted() {
            return self.setup_failed(turn, target, Some(response.cause));
        }
        if turn.n4.node_id().is(&response.node_id) {
            turn.ignore(from, Some(Said::from(&message.header)), Ignored::OwnNodeId);
            return self.setup_failed(turn, target, None);
        }
        let node_id = NodeId::from_wire(&response.node_id);
        // The SMF has forgotten what it had with us (6.2.6.3).
        match self.peers.by_node(&node_id) {
            Some(id) => self.end_association(turn, shards, id, Gone::Replaced),
            None if !self.has_room_for_a_peer(turn, shards, from) => {
                let cause = Cause::NO_RESOURCES_AVAILABLE;
                return self.setup_failed(turn, target, Some(cause));
            }
            None => {}
        }
        let id = self.begin_association(turn.now, node_id, from);
        self.stop_asking(turn, from);
        let recovery = response.recovery_time_stamp.0;
        self.associated(turn, shards, id, from, recovery, true);
        if let Some(peer) = self.peers.get_mut(id) {
            peer.cp_features =
                (response.cp_function_features).unwrap_or(CpFunctionFeatures::empty());
        }
    }

    /// A request of ours stayed without an answer.
    pub(crate) fn on_no_answer(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        purpose: Purpose,
    ) {
        match purpose {
            Purpose::Heartbeat(id) => self.on_silence(turn, shards, id),
            Purpose::Setup(target) => self.setup_failed(turn, target, None),
            // The shard has it.
            Purpose::Report(_) => {}
            Purpose::Release(id) | Purpose::Prepare(id) => {
                self.end_association(turn, shards, id, Gone::ShutDown);
            }
            // It asked for the release, and has its own ways to notice that we are gone.
            Purpose::ReportsSent(_) => {}
            // Heartbeats tell whether the SMF is there at all.
            Purpose::NodeReport(_) => {}
        }
    }

    /// The path to a peer failed: its sessions are kept for a while (TS 23.527, 4.5).
    fn on_silence(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards, id: PeerId) {
        let retention = self.config.path_failure_retention;
        let sessions = shards.sessions_of(id);
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        peer.heartbeat_waits = false;
        if let PeerState::Down(_) = peer.state {
            return;
        }
        peer.state = PeerState::Down(turn.now);
        turn.out.event(Event::PeerSilent {
            node_id: peer.node_id.clone(),
            address: peer.address,
            sessions,
        });
        turn.stats().silences += 1;
        self.set_timer(turn.now, retention, Timer::Retention(id));
    }

    fn on_timer(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards, timer: Timer) {
        match timer {
            Timer::Heartbeat(id) => self.send_heartbeat(turn, id),
            Timer::Retention(id) => self.on_retention(turn, shards, id),
            Timer::ReleaseBy(id) => self.end_association(turn, shards, id, Gone::ShutDown),
            Timer::Setup(target) => self.try_setup(turn, target),
            Timer::Paths => self.refresh_paths(turn.now, shards),
        }
    }

    fn send_heartbeat(&mut self, turn: &mut Turn<'_>, id: PeerId) {
        if self.peers.get(id).is_some() {
            self.ask_whether_alive(turn, id);
            self.set_timer(
                turn.now,
                self.config.heartbeat_interval,
                Timer::Heartbeat(id),
            );
        }
    }

    /// Send a Heartbeat Request, unless one is outstanding.
    fn ask_whether_alive(&mut self, turn: &mut Turn<'_>, id: PeerId) {
        let Some(peer) = self.peers.get(id).filter(|peer| !peer.heartbeat_waits) else {
            return;
        };
        let (to, recovery) = (peer.address, turn.n4.recovery());
        let sent = turn.request(to, Purpose::Heartbeat(id), None, |writer| {
            writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
        });
        if let Some(peer) = self.peers.get_mut(id) {
            peer.heartbeat_waits = sent;
        }
    }

    fn on_retention(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards, id: PeerId) {
        let retention = self.config.path_failure_retention;
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        if !matches!(peer.state, PeerState::Down(_)) {
            return;
        }
        // A peer that answers no heartbeat may still send requests.
        let silent_for = turn.now.since(peer.heard);
        if silent_for < retention {
            return self.set_timer(turn.now, retention - silent_for, Timer::Retention(id));
        }
        let target = self.target_of(id);
        self.end_association(turn, shards, id, Gone::Silent);
        if let Some(target) = target {
            self.try_setup(turn, target);
        }
    }

    /// Ask a configured SMF for an association, unless one stands or was asked for
    /// (6.2.6.3: set up by the UP function).
    pub(crate) fn try_setup(&mut self, turn: &mut Turn<'_>, target: usize) {
        let Some(address) = self.peers.targets.get(target).map(|target| target.address) else {
            return;
        };
        let purpose = Purpose::Setup(target);
        if self.closing || turn.n4.is_waiting(purpose) {
            return;
        }
        let (node_id, recovery) = (turn.n4.node_id().clone(), turn.n4.recovery());
        let sent = turn.request(address, purpose, None, |writer| {
            writer.node_id(node_id.to_wire());
            writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
            writer.up_function_features(features::CLAIMED);
        });
        if !sent {
            self.set_timer(turn.now, self.config.retry_at_most, Timer::Setup(target));
        }
    }

    fn setup_failed(&mut self, turn: &mut Turn<'_>, target: usize, cause: Option<Cause>) {
        let (t1, most) = (self.config.t1, self.config.retry_at_most);
        let Some(target_state) = self.peers.targets.get_mut(target) else {
            return;
        };
        let delay = backoff(t1, target_state.failures, most);
        target_state.failures = target_state.failures.saturating_add(1);
        if target_state.failures == 1 {
            turn.out.event(Event::SetupFailed {
                address: target_state.address,
                cause,
            });
        }
        self.set_timer(turn.now, delay, Timer::Setup(target));
    }

    /// The SMF at this address is associated: no need to ask it any more.
    fn stop_asking(&mut self, turn: &mut Turn<'_>, from: SocketAddr) {
        let Some(target) = self.peers.target_at(from) else {
            return;
        };
        self.peers.targets[target].failures = 0;
        turn.n4.cancel(|purpose| purpose == Purpose::Setup(target));
        self.timers
            .retain(|(_, timer)| *timer != Timer::Setup(target));
    }

    /// End an association.
    pub(crate) fn end_association(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        id: PeerId,
        why: Gone,
    ) {
        let Some(peer) = self.peers.remove(id) else {
            return;
        };
        self.forget(turn, shards, id);
        self.leave_party(shards, peer.party());
        turn.out.event(Event::PeerGone {
            node_id: peer.node_id.clone(),
            address: peer.address,
            why,
            sessions: shards.sessions_of(id),
        });
        self.disown(turn, shards, id, Some(peer.node_id));
    }

    /// The sessions of a peer are no more; a first step of deleting them is done at once.
    fn disown(
        &mut self,
        turn: &mut Turn<'_>,
        shards: &mut impl Shards,
        id: PeerId,
        node_id: Option<NodeId>,
    ) {
        if shards.disown(turn, &self.peers, id, node_id) {
            self.answer_deferred_setups(turn, shards);
        }
    }

    /// No timer, no request, no report and no answer of ours speaks of this association any more.
    fn forget(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards, id: PeerId) {
        turn.n4.forget(id);
        shards.forget(id);
        self.timers.retain(|(_, timer)| timer.peer() != Some(id));
    }

    /// Does what is due.
    pub(crate) fn keep_timers(&mut self, turn: &mut Turn<'_>, shards: &mut impl Shards) {
        while let Some(timer) = self.next_timer(turn.now) {
            self.on_timer(turn, shards, timer);
        }
    }

    /// Associate with an SMF, and again whenever the association is lost.
    pub(crate) fn associate(&mut self, turn: &mut Turn<'_>, peer: SocketAddr) {
        if self.peers.add_target(peer) {
            self.try_setup(turn, self.peers.targets.len() - 1);
        }
    }
}

/// Twice as long after each failure.
fn backoff(t1: Duration, failures: u32, most: Duration) -> Duration {
    t1.saturating_mul(1 << failures.min(16))
        .clamp(Duration::from_millis(1), most.max(t1))
}

/// Whether a Setup Request asks for all sessions to be kept (Session Retention Information,
/// TS 29.244, 7.4.4.1.2). Keeping those of some PFCP entities of the CP function alone is not
/// offered; then none are kept, and the response says so by the absence of PSREI.
fn retains_all(request: &AssociationSetupRequest<'_>) -> bool {
    let of_some = IeType::CP_PFCP_ENTITY_IP_ADDRESS;
    (request.session_retention_information)
        .is_some_and(|information| matches!(information.find(of_some), Ok(None)))
}
