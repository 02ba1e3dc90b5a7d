//! Requests of SMFs, and answers to ours: what the node does with them before, or without, a shard.

use std::net::SocketAddr;

use pfcp::ie::{FSeid, NodeId as NodeIdIe};
use pfcp::message::{
    SessionReportResponse, SessionSetDeletionRequest, SessionSetModificationRequest,
};
use pfcp::{Cause, ErrorKind, FromIe, Header, IeType, Message, MessageType, Writer};

use crate::base::event::{Ignored, Said};
use crate::base::ids::PeerId;
use crate::base::node_id::OwnNodeId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::{About, Purpose};
use crate::exchange::stats::Way;
use crate::node::Node;
use crate::node::sets::{Unread, changes_of, sets_of};

impl Node {
    /// A request of an SMF. It is answered, or comes back to be answered by a shard, if it is about one session.
    pub(crate) fn on_request(
        &mut self,
        now: Time,
        out: &mut Outbox,
        (incoming, message): (Incoming, &Message<'_>),
    ) -> Option<Incoming> {
        let header = &message.header;
        if header.message_type == MessageType::HEARTBEAT_REQUEST {
            // Nothing of it is worth remembering, and it may come from anyone (6.2.2.2).
            self.on_heartbeat_request(now, out, incoming.from, message);
            return None;
        }
        if self.n4.repeat(now, out, self.scope(&incoming), &incoming) {
            return None;
        }
        if !message.rest.is_empty() && !header.follow_on {
            // The length does not fit the datagram (7.6.3).
            self.refuse(now, out, &incoming, Cause::INVALID_LENGTH.into());
            return None;
        }
        if self.is_under_our_node_id(message) {
            let refusal = Refusal::ie(Cause::MANDATORY_IE_INCORRECT, IeType::NODE_ID);
            self.refuse_of(now, out, (&incoming, cp_seid_of(message)), refusal);
            return None;
        }
        match header.message_type {
            MessageType::ASSOCIATION_SETUP_REQUEST => {
                self.on_setup(now, out, &incoming, message);
            }
            MessageType::ASSOCIATION_UPDATE_REQUEST => {
                self.on_update(now, out, &incoming, message);
            }
            MessageType::ASSOCIATION_RELEASE_REQUEST => {
                self.on_release(now, out, &incoming, message);
            }
            MessageType::PFD_MANAGEMENT_REQUEST => {
                self.on_pfd_management(now, out, &incoming, message);
            }
            MessageType::SESSION_SET_DELETION_REQUEST => {
                self.on_set_deletion(now, out, &incoming, message);
            }
            MessageType::SESSION_SET_MODIFICATION_REQUEST => {
                self.on_set_modification(now, out, &incoming, message);
            }
            MessageType::SESSION_ESTABLISHMENT_REQUEST
            | MessageType::SESSION_MODIFICATION_REQUEST
            | MessageType::SESSION_DELETION_REQUEST => return Some(incoming),
            // Node Report and Session Report go the other way.
            _ => self.refuse(now, out, &incoming, Cause::SERVICE_NOT_SUPPORTED.into()),
        }
        None
    }

    /// An answer to a request of ours. The report that it answers comes back, with what is said of it, as far as that can be
    /// read.
    pub(crate) fn on_response<'m>(
        &mut self,
        now: Time,
        out: &mut Outbox,
        from: SocketAddr,
        message: &Message<'m>,
    ) -> Option<(About, Option<SessionReportResponse<'m>>)> {
        let said = Some(Said::from(&message.header));
        match self.n4.answered(from, message) {
            Some(Purpose::Report(about)) => match SessionReportResponse::decode(message) {
                Ok(response) => {
                    let answer = message.header.message_type;
                    let stats = self.n4.stats_mut();
                    stats.cause(Way::Received, answer, response.cause);
                    return Some((about, Some(response)));
                }
                Err(_) => {
                    self.n4.ignore(out, from, said, Ignored::Incomplete);
                    return Some((about, None));
                }
            },
            Some(purpose) => self.on_answer(now, out, from, purpose, message),
            None => self.n4.ignore(out, from, said, Ignored::UnmatchedResponse),
        }
        None
    }

    /// TS 29.244, 7.6.2 and 7.6.3.
    pub(crate) fn on_undecodable(
        &mut self,
        now: Time,
        out: &mut Outbox,
        from: SocketAddr,
        (datagram, why): (&[u8], ErrorKind),
    ) {
        let Ok((header, _)) = Header::decode(datagram) else {
            return self.n4.ignore(out, from, None, Ignored::Malformed);
        };
        if let ErrorKind::Version { .. } = why {
            self.n4.stats_mut().other_versions += 1;
            if header.message_type != MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
                self.n4.version_not_supported(out, from, header.sequence);
            }
            return;
        }
        let stats = self.n4.stats_mut();
        stats.message(Way::Received, header.message_type);
        match header.message_type.is_response() {
            Some(false) if header.message_type != MessageType::HEARTBEAT_REQUEST => {
                let incoming = Incoming::new(from, &header, datagram);
                stats.decode_errors += 1;
                self.refuse(now, out, &incoming, Cause::INVALID_LENGTH.into());
            }
            _ => {
                let said = Some(Said::from(&header));
                self.n4.ignore(out, from, said, Ignored::Malformed);
            }
        }
    }

    /// Session Set Deletion Request (7.4.6.1).
    fn on_set_deletion(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match SessionSetDeletionRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, out, incoming, &error),
        };
        let id = self.peer_for(&request.node_id, incoming.from);
        let Some(party) = id.and_then(|id| self.peers.party(id)) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, out, incoming, cause.into());
        };
        let sets = match sets_of(&request) {
            Ok(sets) => sets,
            Err(Unread::Undecodable(error)) => {
                return self.refuse_undecodable(now, out, incoming, &error);
            }
            Err(Unread::Refused(refusal)) => return self.refuse(now, out, incoming, refusal),
        };
        self.tell(ToShard::Delete(party, sets, incoming.from));
        self.accept_node_request(now, out, incoming);
    }

    /// Session Set Modification Request (7.4.7.1): from now on another address controls these
    /// sessions.
    fn on_set_modification(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match SessionSetModificationRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, out, incoming, &error),
        };
        let id = self.peer_for(&request.node_id, incoming.from);
        let Some((id, party)) = id.and_then(|id| Some((id, self.peers.party(id)?))) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, out, incoming, cause.into());
        };
        let changes = match changes_of(&request) {
            Ok(changes) => changes,
            Err(refusal) => return self.refuse(now, out, incoming, refusal),
        };
        for change in changes {
            self.move_to(id, &change.from, change.to);
            let order = ToShard::HandOver(party, change.sets, change.to);
            self.tell(order);
        }
        self.accept_node_request(now, out, incoming);
    }

    /// Whether a request is under our own Node ID, which is no SMF's: what is at fault is the value of an IE (TS 29.244,
    /// 8.2.1: cause 69).
    fn is_under_our_node_id(&self, message: &Message<'_>) -> bool {
        match message.ies.find(IeType::NODE_ID) {
            Ok(Some(ie)) => NodeIdIe::from_ie(&ie).is_ok_and(|id| self.n4.node_id().is(&id)),
            _ => false,
        }
    }

    /// The association that requests from there belong to.
    pub(super) fn scope(&self, incoming: &Incoming) -> Option<PeerId> {
        self.peers.by_source(incoming.from)
    }

    pub(super) fn answer(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        cause: Cause,
        write: impl FnOnce(&mut Writer<'_>, &OwnNodeId),
    ) {
        let scope = self.scope(incoming);
        self.n4
            .answer(now, out, scope, (incoming, 0, 0), cause, write);
    }

    pub(super) fn refuse(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        refusal: Refusal,
    ) {
        self.refuse_of(now, out, (incoming, 0), refusal);
    }

    /// The same of a request about a session, by the SMF's SEID.
    pub(super) fn refuse_of(
        &mut self,
        now: Time,
        out: &mut Outbox,
        to: (&Incoming, u64),
        refusal: Refusal,
    ) {
        self.n4.refuse(now, out, self.scope(to.0), to, refusal);
    }

    pub(super) fn refuse_undecodable(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        error: &pfcp::Error,
    ) {
        self.refuse_undecodable_of(now, out, (incoming, 0), error);
    }

    /// The same of a request about a session, by the SMF's SEID.
    pub(crate) fn refuse_undecodable_of(
        &mut self,
        now: Time,
        out: &mut Outbox,
        to: (&Incoming, u64),
        error: &pfcp::Error,
    ) {
        let scope = self.scope(to.0);
        self.n4.refuse_undecodable(now, out, scope, to, error);
    }
}

/// SEID for the answer to a request that is refused before its session is known: that of its CP F-SEID; 0: none is legible.
pub(crate) fn cp_seid_of(message: &Message<'_>) -> u64 {
    match message.ies.find(IeType::F_SEID) {
        Ok(Some(ie)) => FSeid::from_ie(&ie).map_or(0, |f_seid| f_seid.seid),
        _ => 0,
    }
}
