//! Associations: set up from either side, updated, released, kept alive, and cleaned up after.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
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
use crate::between::to_shard::ToShard;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::peer::{Peer, PeerState, SmfSet, alternatives};
use crate::node::{Node, Then, Timer, features};
use crate::rules::config::Config;

/// Associations that one address may have, so that no host takes them all: Node IDs cost nothing. Beyond, cause 75.
const PEERS_PER_ADDRESS: usize = 8;

impl Node {
    /// Association Setup Request of a CP function (TS 29.244, 6.2.6.2.2).
    pub(crate) fn on_setup(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match AssociationSetupRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, out, incoming, &error),
        };
        if self.closing {
            return self.refuse(now, out, incoming, Cause::REQUEST_REJECTED.into());
        }
        let node_id = NodeId::from_wire(&request.node_id);
        if !node_id.is_legal() {
            let refusal = Refusal::ie(Cause::MANDATORY_IE_INCORRECT, IeType::NODE_ID);
            return self.refuse(now, out, incoming, refusal);
        }
        let known = self.peers.by_node(&node_id);
        if known.is_none() && !self.has_room_for_a_peer(out, incoming.from) {
            return self.refuse(now, out, incoming, Cause::NO_RESOURCES_AVAILABLE.into());
        }
        if let Some(id) = known
            && self.is_deferred(id, incoming)
        {
            return self.n4.ignore(
                out,
                incoming.from,
                Some(incoming.said()),
                Ignored::InProgress,
            );
        }
        if let Some(id) = known
            && self.is_elsewhere(id, incoming.from)
        {
            self.ask_whether_alive(now, out, id);
            return self.n4.ignore(
                out,
                incoming.from,
                Some(incoming.said()),
                Ignored::NodeIdTaken,
            );
        }
        let retain = retains_all(&request);
        let id = match known {
            Some(id) if retain => id,
            Some(id) => {
                self.end_association(out, id, Gone::Replaced);
                self.begin_association(now, node_id, incoming.from)
            }
            None => self.begin_association(now, node_id, incoming.from),
        };
        self.stop_asking(incoming.from);
        self.associated(
            now,
            out,
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
        self.join_set(id, set);
        self.tell_smf(id);
        if !self.sweep.is_on {
            self.answer_deferred_setups(now, out);
        }
    }

    /// Whether one more association is within the limits of all and of an address, if need be at the expense of a peer
    /// without sessions that is silent, or has the same address: a node that keeps changing its
    /// Node ID crowds out itself, and nobody else.
    fn has_room_for_a_peer(&mut self, out: &mut Outbox, from: SocketAddr) -> bool {
        let is_here = |peer: &Peer| peer.address.ip() == from.ip();
        let is_crowded =
            self.peers.iter().filter(|peer| is_here(peer)).count() >= PEERS_PER_ADDRESS;
        if !is_crowded && self.peers.len() < self.config.limits.peers {
            return true;
        }
        let is_dispensable = |peer: &&Peer| {
            let may_go = is_here(peer) || !is_crowded && peer.state != PeerState::Up;
            may_go && peer.sessions == 0
        };
        let Some(idle) = self.peers.iter().find(is_dispensable).map(|peer| peer.id) else {
            return false;
        };
        self.end_association(out, idle, Gone::Displaced);
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
    pub(crate) fn answer_deferred_setups(&mut self, now: Time, out: &mut Outbox) {
        for id in self.peers.ids() {
            let Some(incoming) = self.peers.get_mut(id).and_then(|peer| peer.deferred.take())
            else {
                continue;
            };
            let retained = self.peers.get(id).is_some_and(|peer| peer.sessions > 0);
            let recovery = self.n4.recovery();
            self.answer(
                now,
                out,
                &incoming,
                Cause::REQUEST_ACCEPTED,
                |writer, us| {
                    writer.node_id(us.to_wire());
                    writer.cause(Cause::REQUEST_ACCEPTED);
                    writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
                    writer.up_function_features(features::CLAIMED);
                    if retained {
                        writer.put(IeType::PFCPASRSP_FLAGS, PfcpAsRspFlags::PSREI);
                    }
                },
            );
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

    /// Common part of both ways of setting up an association.
    fn associated(
        &mut self,
        now: Time,
        out: &mut Outbox,
        id: PeerId,
        from: SocketAddr,
        recovery: u32,
        by_us: bool,
    ) {
        self.peers.learn_source(id, from);
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
        peer.since = now;
        peer.heard = now;
        peer.by_us = by_us;
        self.n4.stats_mut().associations += 1;
        out.event(Event::PeerUp {
            node_id: peer.node_id.clone(),
            address: peer.address,
            by_us,
            retained: peer.sessions,
        });
        self.tell_smf(id);
        self.share_out();
    }

    /// The configured SMF that this peer is.
    pub(crate) fn target_of(&self, id: PeerId) -> Option<usize> {
        self.peers
            .get(id)
            .and_then(|peer| self.peers.target_at(peer.address))
    }

    pub(crate) fn accept_node_request(&mut self, now: Time, out: &mut Outbox, incoming: &Incoming) {
        self.answer(now, out, incoming, Cause::REQUEST_ACCEPTED, |writer, us| {
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
        now: Time,
        out: &mut Outbox,
        from: SocketAddr,
        message: &Message<'_>,
    ) {
        // Its response has no Cause to say that the Recovery Time Stamp is missing.
        let Ok(request) = HeartbeatRequest::decode(message) else {
            self.n4.stats_mut().decode_errors += 1;
            return self.n4.ignore(
                out,
                from,
                Some(Said::from(&message.header)),
                Ignored::Incomplete,
            );
        };
        out.send(from, |bytes| self.write_heartbeat_response(message, bytes));
        let stats = self.n4.stats_mut();
        stats.message(Way::Sent, MessageType::HEARTBEAT_RESPONSE);
        let peer = (self.peers.by_source(from)).filter(|id| self.peers.speaks_for(*id, from.ip()));
        if let Some(id) = peer {
            self.heard(now, out, id);
            self.compare_recovery(now, out, id, request.recovery_time_stamp.0);
        }
    }

    /// See [`Core::answer_heartbeat`](crate::Core::answer_heartbeat).
    pub(crate) fn answer_heartbeat(&self, datagram: &[u8], into: &mut Vec<u8>) -> bool {
        let message = pfcp::decode(datagram).ok();
        let is_heartbeat = |message: &Message<'_>| {
            message.header.message_type == MessageType::HEARTBEAT_REQUEST
                && HeartbeatRequest::decode(message).is_ok()
        };
        let message = message.filter(is_heartbeat);
        message.inspect(|message| self.write_heartbeat_response(message, into));
        message.is_some()
    }

    fn write_heartbeat_response(&self, request: &Message<'_>, into: &mut Vec<u8>) {
        let (response, sequence) = (MessageType::HEARTBEAT_RESPONSE, request.header.sequence);
        let mut writer = Writer::new(into, response, None, sequence);
        writer.recovery_time_stamp(RecoveryTimeStamp(self.n4.recovery()));
        writer.finish();
    }

    /// A peer lives.
    pub(crate) fn heard(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        peer.heard = now;
        if let PeerState::Down(_) = peer.state {
            peer.state = PeerState::Up;
            out.event(Event::PeerBack {
                node_id: peer.node_id.clone(),
                address: peer.address,
            });
            self.timers
                .retain(|(_, timer)| *timer != Timer::Retention(id));
            self.tell_smf(id);
        }
    }

    /// Has the peer restarted since it last told us its Recovery Time Stamp (TS 23.007, 19A)?
    ///
    /// An older time stamp is a message that was overtaken, and is discarded; but one that is
    /// repeated is that of a peer whose clock went back while it was down.
    fn compare_recovery(&mut self, now: Time, out: &mut Outbox, id: PeerId, recovery: u32) {
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
            return self.on_restart(now, out, id, recovery);
        }
        peer.stale_recovery = Some(recovery);
        self.n4.stats_mut().ignored(Ignored::StaleRecovery, 1);
        out.event(Event::StaleRecovery {
            node_id: peer.node_id.clone(),
            address: peer.address,
            recovery,
            known,
        });
    }

    /// The peer has lost its sessions, so they go here too (TS 23.527, 4.4.2.1). The association
    /// stays, for a peer that does not set it up again; where that was our part, we do.
    fn on_restart(&mut self, now: Time, out: &mut Outbox, id: PeerId, recovery: u32) {
        self.n4.stats_mut().restarts += 1;
        let Some(before) = self.peers.get(id) else {
            return;
        };
        let (party, sessions, node_id) = (before.party(), before.sessions, before.node_id.clone());
        let Some(new) = self.peers.renew(id) else {
            return;
        };
        self.is_gone(id, node_id);
        self.leave_party(party);
        let Some(peer) = self.peers.get_mut(new) else {
            return;
        };
        peer.recovery = Some(recovery);
        peer.stale_recovery = None;
        peer.heartbeat_waits = false;
        let (by_us, address) = (peer.by_us, peer.address);
        out.event(Event::PeerRestarted {
            node_id: peer.node_id.clone(),
            address,
            sessions,
        });
        if !self.config.heartbeat_interval.is_zero() {
            self.set_timer(now, self.config.heartbeat_interval, Timer::Heartbeat(new));
        }
        self.tell_smf(new);
        if by_us && let Some(target) = self.peers.target_at(address) {
            self.try_setup(now, out, target);
        }
    }

    /// Answers to our own requests.
    pub(crate) fn on_answer(
        &mut self,
        now: Time,
        out: &mut Outbox,
        from: SocketAddr,
        purpose: Purpose,
        message: &Message<'_>,
    ) {
        match purpose {
            Purpose::Heartbeat(id) => {
                if let Some(peer) = self.peers.get_mut(id) {
                    peer.heartbeat_waits = false;
                }
                self.heard(now, out, id);
                match HeartbeatResponse::decode(message) {
                    Ok(response) => {
                        self.compare_recovery(now, out, id, response.recovery_time_stamp.0);
                    }
                    Err(_) => {
                        let said = Some(Said::from(&message.header));
                        self.n4.ignore(out, from, said, Ignored::Incomplete);
                    }
                }
            }
            Purpose::Setup(target) => self.on_setup_response(now, out, from, target, message),
            // The peer now has its time to send an Association Release Request.
            Purpose::Release(_) | Purpose::ReportsSent(_) => self.note_cause(message),
            Purpose::Prepare(id) => {
                self.note_cause(message);
                self.finish_usage(id, Then::AskForRelease);
            }
            // A shard takes these answers.
            Purpose::Report(_) => {}
            Purpose::Lost(id, cp_seid) => {
                self.lost_is_told(now, out, (id, cp_seid), Some(message));
            }
            Purpose::NodeReport(_) => self.on_node_report_answer(message),
        }
    }

    fn on_setup_response(
        &mut self,
        now: Time,
        out: &mut Outbox,
        from: SocketAddr,
        target: usize,
        message: &Message<'_>,
    ) {
        let response = match AssociationSetupResponse::decode(message) {
            Ok(response) => response,
            Err(_) => {
                self.n4.ignore(
                    out,
                    from,
                    Some(Said::from(&message.header)),
                    Ignored::Incomplete,
                );
                return self.setup_failed(now, out, target, None);
            }
        };
        self.n4
            .stats_mut()
            .cause(Way::Received, message.header.message_type, response.cause);
        if !response.cause.is_accepted() {
            return self.setup_failed(now, out, target, Some(response.cause));
        }
        if self.n4.node_id().is(&response.node_id) {
            self.n4.ignore(
                out,
                from,
                Some(Said::from(&message.header)),
                Ignored::OwnNodeId,
            );
            return self.setup_failed(now, out, target, None);
        }
        let node_id = NodeId::from_wire(&response.node_id);
        // The SMF has forgotten what it had with us (6.2.6.3).
        match self.peers.by_node(&node_id) {
            Some(id) => self.end_association(out, id, Gone::Replaced),
            None if !self.has_room_for_a_peer(out, from) => {
                let cause = Cause::NO_RESOURCES_AVAILABLE;
                return self.setup_failed(now, out, target, Some(cause));
            }
            None => {}
        }
        let id = self.begin_association(now, node_id, from);
        self.stop_asking(from);
        let recovery = response.recovery_time_stamp.0;
        self.associated(now, out, id, from, recovery, true);
        if let Some(peer) = self.peers.get_mut(id) {
            peer.cp_features =
                (response.cp_function_features).unwrap_or(CpFunctionFeatures::empty());
        }
        self.tell_smf(id);
    }

    /// A request of ours stayed without an answer.
    pub(crate) fn on_no_answer(&mut self, now: Time, out: &mut Outbox, purpose: Purpose) {
        match purpose {
            Purpose::Heartbeat(id) => self.on_silence(now, out, id),
            Purpose::Setup(target) => self.setup_failed(now, out, target, None),
            Purpose::Report(about) => self.tell(ToShard::Unanswered(about)),
            Purpose::Release(id) | Purpose::Prepare(id) => {
                self.end_association(out, id, Gone::ShutDown);
            }
            Purpose::Lost(id, cp_seid) => self.lost_is_told(now, out, (id, cp_seid), None),
            // It asked for the release, and has its own ways to notice that we are gone.
            Purpose::ReportsSent(_) => {}
            // Heartbeats tell whether the SMF is there at all.
            Purpose::NodeReport(_) => {}
        }
    }

    /// The path to a peer failed: its sessions are kept for a while (TS 23.527, 4.5).
    fn on_silence(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let retention = self.config.path_failure_retention;
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        peer.heartbeat_waits = false;
        if let PeerState::Down(_) = peer.state {
            return;
        }
        peer.state = PeerState::Down(now);
        out.event(Event::PeerSilent {
            node_id: peer.node_id.clone(),
            address: peer.address,
            sessions: peer.sessions,
        });
        self.n4.stats_mut().silences += 1;
        self.tell_smf(id);
        self.set_timer(now, retention, Timer::Retention(id));
    }

    fn on_timer(&mut self, now: Time, out: &mut Outbox, timer: Timer) {
        match timer {
            Timer::Heartbeat(id) => self.send_heartbeat(now, out, id),
            Timer::Retention(id) => self.on_retention(now, out, id),
            Timer::ReleaseBy(id) => self.end_association(out, id, Gone::ShutDown),
            Timer::Setup(target) => self.try_setup(now, out, target),
            Timer::Paths => self.refresh_paths(now),
        }
    }

    fn send_heartbeat(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        if self.peers.get(id).is_some() {
            self.ask_whether_alive(now, out, id);
            self.set_timer(now, self.config.heartbeat_interval, Timer::Heartbeat(id));
        }
    }

    /// Send a Heartbeat Request, unless one is outstanding.
    fn ask_whether_alive(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let Some(peer) = self.peers.get(id).filter(|peer| !peer.heartbeat_waits) else {
            return;
        };
        let (to, recovery) = (peer.address, self.n4.recovery());
        let sent = self
            .n4
            .request(now, out, (to, None), Purpose::Heartbeat(id), |writer| {
                writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
            });
        if let Some(peer) = self.peers.get_mut(id) {
            peer.heartbeat_waits = sent;
        }
    }

    fn on_retention(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let retention = self.config.path_failure_retention;
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        if !matches!(peer.state, PeerState::Down(_)) {
            return;
        }
        // A peer that answers no heartbeat may still send requests.
        let silent_for = now.since(peer.heard);
        if silent_for < retention {
            return self.set_timer(now, retention - silent_for, Timer::Retention(id));
        }
        let target = self.target_of(id);
        self.end_association(out, id, Gone::Silent);
        if let Some(target) = target {
            self.try_setup(now, out, target);
        }
    }

    /// Ask a configured SMF for an association, unless one stands or was asked for
    /// (6.2.6.3: set up by the UP function).
    pub(crate) fn try_setup(&mut self, now: Time, out: &mut Outbox, target: usize) {
        let Some(address) = self.peers.targets.get(target).map(|target| target.address) else {
            return;
        };
        let purpose = Purpose::Setup(target);
        if self.closing || self.n4.is_waiting(purpose) {
            return;
        }
        let (node_id, recovery) = (self.n4.node_id().clone(), self.n4.recovery());
        let sent = self
            .n4
            .request(now, out, (address, None), purpose, |writer| {
                writer.node_id(node_id.to_wire());
                writer.recovery_time_stamp(RecoveryTimeStamp(recovery));
                writer.up_function_features(features::CLAIMED);
            });
        if !sent {
            self.set_timer(now, self.config.retry_at_most, Timer::Setup(target));
        }
    }

    fn setup_failed(&mut self, now: Time, out: &mut Outbox, target: usize, cause: Option<Cause>) {
        let (t1, most) = (self.config.t1, self.config.retry_at_most);
        let Some(target_state) = self.peers.targets.get_mut(target) else {
            return;
        };
        let delay = backoff(t1, target_state.failures, most);
        target_state.failures = target_state.failures.saturating_add(1);
        if target_state.failures == 1 {
            out.event(Event::SetupFailed {
                address: target_state.address,
                cause,
            });
        }
        self.set_timer(now, delay, Timer::Setup(target));
    }

    /// The SMF at this address is associated: no need to ask it any more.
    fn stop_asking(&mut self, from: SocketAddr) {
        let Some(target) = self.peers.target_at(from) else {
            return;
        };
        self.peers.targets[target].failures = 0;
        self.n4.cancel(|purpose| purpose == Purpose::Setup(target));
        self.timers
            .retain(|(_, timer)| *timer != Timer::Setup(target));
    }

    /// End an association.
    pub(crate) fn end_association(&mut self, out: &mut Outbox, id: PeerId, why: Gone) {
        let Some(peer) = self.peers.remove(id) else {
            return;
        };
        self.is_gone(id, peer.node_id.clone());
        self.leave_party(peer.party());
        out.event(Event::PeerGone {
            node_id: peer.node_id,
            address: peer.address,
            why,
            sessions: peer.sessions,
        });
    }

    /// No timer, no request, no report and no answer of ours speaks of this association any more, and its sessions are deleted.
    /// `node_id`: whose the log of usage says that they were.
    fn is_gone(&mut self, id: PeerId, node_id: NodeId) {
        self.n4.forget(id);
        self.timers.retain(|(_, timer)| timer.peer() != Some(id));
        self.finishing.remove(&id);
        self.sweep.untold.remove(&id);
        self.names.retain(|(peer, _)| *peer != id);
        self.sweep.is_on = true;
        self.sweep.last_gone = Some(id);
        self.sweep.gone.insert(id, node_id);
        self.tell(ToShard::Gone(id));
    }

    /// Does what is due.
    pub(crate) fn keep_timers(&mut self, now: Time, out: &mut Outbox) {
        while let Some(timer) = self.next_timer(now) {
            self.on_timer(now, out, timer);
        }
    }

    /// Associate with an SMF, and again whenever the association is lost.
    pub(crate) fn associate(&mut self, now: Time, out: &mut Outbox, peer: SocketAddr) {
        let Some(target) = self.peers.add_target(peer) else {
            return;
        };
        // One that goes on from a process before this one stands, also while its SMF is silent, and from whatever port.
        let is_there = |peer: &Peer| self.peers.target_at(peer.address) == Some(target);
        if !self.peers.iter().any(is_there) {
            self.try_setup(now, out, target);
        }
    }
}

impl Node {
    /// Go on with another configuration, which has the same sessions' rules, limits and addresses. An association with an SMF that is
    /// no longer asked for one stays.
    pub(crate) fn reconfigure(&mut self, now: Time, config: &Arc<Config>) {
        let before = mem::replace(&mut self.config, Arc::clone(config));
        self.n4.reconfigure(config);
        self.load.set_overload_at(config.overload_at_percent);
        let heartbeat = config.heartbeat_interval;
        if heartbeat != before.heartbeat_interval {
            self.timers
                .retain(|(_, timer)| !matches!(timer, Timer::Heartbeat(_)));
            for id in self.peers.ids() {
                if !heartbeat.is_zero() {
                    self.set_timer(now, heartbeat, Timer::Heartbeat(id));
                }
            }
        }
        // A peer that has been silent for long enough by now is ended; others wait on.
        for id in self.peers.ids() {
            self.set_timer(now, Duration::ZERO, Timer::Retention(id));
        }
    }

    /// Ask this SMF for no association from now on; one that stands is left to it.
    pub(crate) fn disregard(&mut self, peer: SocketAddr) {
        let mut targets = self.peers.targets.iter();
        let Some(target) = targets.position(|of| of.address == peer) else {
            return;
        };
        self.peers.targets[target].is_configured = false;
        self.n4.cancel(|purpose| purpose == Purpose::Setup(target));
        self.timers
            .retain(|(_, timer)| *timer != Timer::Setup(target));
        self.share_out();
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
