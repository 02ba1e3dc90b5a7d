//! Messages of SMFs, each brought to the node, the shard, or one after the other.

use std::net::SocketAddr;

use compiled::Tables;
use pfcp::ie::{FSeid, NodeId as NodeIdIe};
use pfcp::message::{
    SessionDeletionRequest, SessionEstablishmentRequest, SessionModificationRequest,
    SessionSetDeletionRequest, SessionSetModificationRequest,
};
use pfcp::{Cause, ErrorKind, FromIe, Header, IeType, Message, MessageType};

use crate::base::event::{Ignored, Said};
use crate::base::node_id::NodeId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::core::Core;
use crate::exchange::answers::Fingerprint;
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Turn;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::{Admission, Node};
use crate::shard::Shard;
use crate::shard::set_requests::{Unread, changes_of, sets_of};

impl<T: Tables> Core<T> {
    pub(super) fn on_request(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let Self {
            n4, node, shard, ..
        } = self;
        let turn = &mut Turn { now, n4, out };
        let header = &message.header;
        if header.message_type == MessageType::HEARTBEAT_REQUEST {
            // Nothing of it is worth remembering, and it may come from anyone (6.2.2.2).
            return node.on_heartbeat_request(turn, shard, from, message);
        }
        let incoming = &Incoming {
            from,
            message_type: header.message_type,
            sequence: header.sequence,
            seid: header.seid,
            priority: header.priority,
            fingerprint: Fingerprint::new(from, datagram),
        };
        let scope = node.peers().by_source(from);
        if turn.repeat(scope, incoming) {
            return;
        }
        if !message.rest.is_empty() && !header.follow_on {
            // The length does not fit the datagram (7.6.3).
            return turn.refuse(scope, incoming, 0, Cause::INVALID_LENGTH.into());
        }
        if has_our_node_id(turn, message) {
            let refusal = Refusal::ie(Cause::MANDATORY_IE_INCORRECT, IeType::NODE_ID);
            return turn.refuse(scope, incoming, cp_seid_of(message), refusal);
        }
        match header.message_type {
            MessageType::ASSOCIATION_SETUP_REQUEST => {
                node.on_setup(turn, shard, incoming, message);
            }
            MessageType::ASSOCIATION_UPDATE_REQUEST => {
                node.on_update(turn, shard, incoming, message);
            }
            MessageType::ASSOCIATION_RELEASE_REQUEST => {
                node.on_release(turn, shard, incoming, message);
            }
            MessageType::PFD_MANAGEMENT_REQUEST => {
                node.on_pfd_management(turn, shard, incoming, message);
            }
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                on_establishment(turn, node, shard, incoming, message);
            }
            MessageType::SESSION_MODIFICATION_REQUEST => {
                on_modification(turn, node, shard, incoming, message);
            }
            MessageType::SESSION_DELETION_REQUEST => {
                on_deletion(turn, node, shard, incoming, message);
            }
            MessageType::SESSION_SET_DELETION_REQUEST => {
                on_set_deletion(turn, node, shard, incoming, message);
            }
            MessageType::SESSION_SET_MODIFICATION_REQUEST => {
                on_set_modification(turn, node, shard, incoming, message);
            }
            // Node Report and Session Report go the other way.
            _ => turn.refuse(scope, incoming, 0, Cause::SERVICE_NOT_SUPPORTED.into()),
        }
        node.follow(turn, shard);
    }

    pub(super) fn on_response(
        &mut self,
        now: Time,
        from: SocketAddr,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let Self {
            n4, node, shard, ..
        } = self;
        let turn = &mut Turn { now, n4, out };
        match turn.n4.answered(from, message) {
            Some(Purpose::Report(about)) => {
                shard.on_report_answer(turn, node.peers(), about, message);
                node.follow(turn, shard);
            }
            Some(purpose) => node.on_answer(turn, shard, from, purpose, message),
            None => {
                let said = Some(Said::from(&message.header));
                turn.ignore(from, said, Ignored::UnmatchedResponse);
            }
        }
    }

    /// TS 29.244, 7.6.2 and 7.6.3.
    pub(super) fn on_undecodable(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        why: ErrorKind,
        out: &mut Outbox,
    ) {
        let Self { n4, node, .. } = self;
        let turn = &mut Turn { now, n4, out };
        let Ok((header, _)) = Header::decode(datagram) else {
            return turn.ignore(from, None, Ignored::Malformed);
        };
        if let ErrorKind::Version { .. } = why {
            turn.stats().other_versions += 1;
            if header.message_type != MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
                turn.version_not_supported(from, header.sequence);
            }
            return;
        }
        turn.stats().message(Way::Received, header.message_type);
        match header.message_type.is_response() {
            Some(false) if header.message_type != MessageType::HEARTBEAT_REQUEST => {
                let incoming = Incoming {
                    from,
                    message_type: header.message_type,
                    sequence: header.sequence,
                    seid: header.seid,
                    priority: header.priority,
                    fingerprint: Fingerprint::new(from, datagram),
                };
                turn.stats().decode_errors += 1;
                let scope = node.peers().by_source(from);
                turn.refuse(scope, &incoming, 0, Cause::INVALID_LENGTH.into());
            }
            _ => turn.ignore(from, Some(Said::from(&header)), Ignored::Malformed),
        }
    }
}

/// Session Establishment Request (6.3.2.3).
fn on_establishment<T: Tables>(
    turn: &mut Turn<'_>,
    node: &mut Node,
    shard: &mut Shard<T>,
    incoming: &Incoming,
    message: &Message<'_>,
) {
    let request = match SessionEstablishmentRequest::decode(message) {
        Ok(request) => request,
        Err(error) => {
            let scope = node.peers().by_source(incoming.from);
            return turn.refuse_undecodable(scope, incoming, cp_seid_of(message), &error);
        }
    };
    let node_id = NodeId::from_wire(&request.node_id);
    let admission = node.admit(turn.now, incoming, &node_id);
    let (cp_seid, peers) = (request.cp_f_seid.seid, node.peers());
    let scope = peers.by_source(incoming.from);
    match admission {
        Admission::Admitted(peer, notice) => {
            shard.on_establishment(turn, peers, incoming, &request, (peer, notice));
        }
        Admission::Refused(cause) => turn.refuse(scope, incoming, cp_seid, cause.into()),
        Admission::Shed(notice) => {
            turn.stats().shed += 1;
            let cause = Cause::PFCP_ENTITY_IN_CONGESTION;
            turn.answer(scope, incoming, cp_seid, cause, |writer, us| {
                writer.node_id(us.to_wire());
                writer.cause(cause);
                notice.write(writer);
            });
        }
    }
}

/// Session Modification Request (6.3.3.3).
fn on_modification<T: Tables>(
    turn: &mut Turn<'_>,
    node: &mut Node,
    shard: &mut Shard<T>,
    incoming: &Incoming,
    message: &Message<'_>,
) {
    let Some(found) = shard.find_session(node.peers(), incoming.from, message) else {
        let scope = node.peers().by_source(incoming.from);
        return turn.refuse(scope, incoming, 0, Cause::SESSION_CONTEXT_NOT_FOUND.into());
    };
    if found.by_owner {
        node.spoke(turn.now, found.owner, incoming.from);
    }
    let scope = node.peers().by_source(incoming.from);
    let request = match SessionModificationRequest::decode(message) {
        Ok(request) => request,
        Err(error) => return turn.refuse_undecodable(scope, incoming, found.cp_seid, &error),
    };
    match shard.modify(turn, node.peers(), incoming, &request, &found) {
        Ok(cp_seid) => {
            let (names, notice) = ((found.seid, cp_seid), node.notice(found.owner));
            shard.answer_modification(turn, node.peers(), incoming, names, &notice);
        }
        Err(refusal) => turn.refuse(scope, incoming, found.cp_seid, refusal),
    }
}

/// Session Deletion Request (6.3.4.3). It has no mandatory IE; some SMFs send an F-SEID.
fn on_deletion<T: Tables>(
    turn: &mut Turn<'_>,
    node: &mut Node,
    shard: &mut Shard<T>,
    incoming: &Incoming,
    message: &Message<'_>,
) {
    let Some(found) = shard.find_session(node.peers(), incoming.from, message) else {
        let scope = node.peers().by_source(incoming.from);
        return turn.refuse(scope, incoming, 0, Cause::SESSION_CONTEXT_NOT_FOUND.into());
    };
    if found.by_owner {
        node.spoke(turn.now, found.owner, incoming.from);
    }
    let scope = node.peers().by_source(incoming.from);
    if let Err(error) = SessionDeletionRequest::decode(message) {
        return turn.refuse_undecodable(scope, incoming, found.cp_seid, &error);
    }
    match shard.delete(turn, &found) {
        Ok(deleted) => {
            let notice = node.notice(found.owner);
            let deleted = (found.seid, deleted);
            shard.answer_deletion(turn, node.peers(), incoming, deleted, &notice);
        }
        Err(refusal) => turn.refuse(scope, incoming, found.cp_seid, refusal),
    }
}

/// Session Set Deletion Request (7.4.6.1).
fn on_set_deletion<T: Tables>(
    turn: &mut Turn<'_>,
    node: &mut Node,
    shard: &mut Shard<T>,
    incoming: &Incoming,
    message: &Message<'_>,
) {
    let scope = node.peers().by_source(incoming.from);
    let request = match SessionSetDeletionRequest::decode(message) {
        Ok(request) => request,
        Err(error) => return turn.refuse_undecodable(scope, incoming, 0, &error),
    };
    let Some(id) = node.peer_for(&request.node_id, incoming.from) else {
        let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
        return turn.refuse(scope, incoming, 0, cause.into());
    };
    let sets = match sets_of(&request) {
        Ok(sets) => sets,
        Err(Unread::Undecodable(error)) => {
            return turn.refuse_undecodable(scope, incoming, 0, &error);
        }
        Err(Unread::Refused(refusal)) => return turn.refuse(scope, incoming, 0, refusal),
    };
    if shard.delete_sets(turn, node.peers(), (id, incoming.from), &sets) {
        node.answer_deferred_setups(turn, shard);
    }
    node.accept_node_request(turn, incoming);
}

/// Session Set Modification Request (7.4.7.1): from now on another address controls these
/// sessions.
fn on_set_modification<T: Tables>(
    turn: &mut Turn<'_>,
    node: &mut Node,
    shard: &mut Shard<T>,
    incoming: &Incoming,
    message: &Message<'_>,
) {
    let scope = node.peers().by_source(incoming.from);
    let request = match SessionSetModificationRequest::decode(message) {
        Ok(request) => request,
        Err(error) => return turn.refuse_undecodable(scope, incoming, 0, &error),
    };
    let Some(id) = node.peer_for(&request.node_id, incoming.from) else {
        let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
        return turn.refuse(scope, incoming, 0, cause.into());
    };
    let changes = match changes_of(&request) {
        Ok(changes) => changes,
        Err(refusal) => return turn.refuse(scope, incoming, 0, refusal),
    };
    for change in &changes {
        shard.hand_over(node.peers(), id, change);
        node.move_to(id, &change.from, change.to);
    }
    node.accept_node_request(turn, incoming);
}

/// Whether a request is under our own Node ID, which is no SMF's: what is at fault is the value of an IE (TS 29.244, 8.2.1:
/// cause 69).
fn has_our_node_id(turn: &Turn<'_>, message: &Message<'_>) -> bool {
    match message.ies.find(IeType::NODE_ID) {
        Ok(Some(ie)) => NodeIdIe::from_ie(&ie).is_ok_and(|id| turn.n4.node_id().is(&id)),
        _ => false,
    }
}

/// Where an answer to a request that could not be decoded goes: its CP F-SEID, if that much is
/// legible.
fn cp_seid_of(message: &Message<'_>) -> u64 {
    match message.ies.find(IeType::F_SEID) {
        Ok(Some(ie)) => FSeid::from_ie(&ie).map_or(0, |f_seid| f_seid.seid),
        _ => 0,
    }
}
