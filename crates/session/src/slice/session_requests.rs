//! Session requests: who asks, may they, and what is said (TS 29.244, 7.5).

use std::net::{IpAddr, SocketAddr};

use pfcp::ie::{CpFunctionFeatures, FSeid, FTeid, UeIpAddress};
use pfcp::message::{
    SessionDeletionRequest, SessionEstablishmentRequest, SessionModificationRequest,
};
use pfcp::{Cause, FromIe, IeType, Message, Writer};

use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::base::time::Time;
use crate::compiled::Tables;
use crate::core::Core;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::node::load::Notice;
use crate::rules::config::Config;
use crate::slice::resources::CreatedFor;
use crate::slice::sessions::Created;
use crate::usage::report::write_all;

impl<T: Tables> Core<T> {
    /// Session Establishment Request (6.3.2.3).
    pub(crate) fn on_establishment(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let request = match SessionEstablishmentRequest::decode(message) {
            Ok(request) => request,
            Err(error) => {
                let cp_seid = cp_seid_of(message);
                return self.refuse_undecodable(now, incoming, cp_seid, &error, out);
            }
        };
        let cp_seid = request.cp_f_seid.seid;
        let node_id = NodeId::from_wire(&request.node_id);
        let peer = self
            .peers
            .whose_session(&node_id, incoming.from)
            .filter(|id| self.is_ready(*id));
        let Some(peer) = peer else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, incoming, cp_seid, cause.into(), out);
        };
        self.spoke(now, peer, incoming.from);
        if self.closing {
            return self.refuse(now, incoming, cp_seid, Cause::REQUEST_REJECTED.into(), out);
        }
        let notice = self.notice(peer);
        if self.wants_overload_control(peer) && self.load.sheds(incoming.priority) {
            return self.refuse_overloaded(now, incoming, cp_seid, &notice, out);
        }
        match self
            .sessions
            .establish(now, peer, &request, &mut self.tables)
        {
            Ok(established) => {
                let seid = established.seid;
                self.created.clear();
                self.created.extend_from_slice(established.created);
                self.stats.established += 1;
                let created = std::mem::take(&mut self.created);
                let f_seid = up_f_seid(&self.config, seid);
                self.answer(
                    now,
                    incoming,
                    cp_seid,
                    Cause::REQUEST_ACCEPTED,
                    out,
                    |writer, us| {
                        writer.node_id(us.to_wire());
                        writer.cause(Cause::REQUEST_ACCEPTED);
                        writer.f_seid(f_seid);
                        write_created(writer, &created);
                        notice.write(writer);
                    },
                );
                self.created = created;
                self.tell_usage(now, out);
            }
            Err(refusal) => self.refuse(now, incoming, cp_seid, refusal, out),
        }
    }

    /// An SMF without overload control would only repeat what is refused.
    fn wants_overload_control(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|peer| peer.cp_features.contains(CpFunctionFeatures::OVRL))
    }

    /// There is more to do than can be done (6.2.4.4.2). Not a complaint: the SMF is not at fault.
    fn refuse_overloaded(
        &mut self,
        now: Time,
        incoming: &Incoming,
        cp_seid: u64,
        notice: &Notice,
        out: &mut Outbox,
    ) {
        self.stats.shed += 1;
        let cause = Cause::PFCP_ENTITY_IN_CONGESTION;
        self.answer(now, incoming, cp_seid, cause, out, |writer, us| {
            writer.node_id(us.to_wire());
            writer.cause(cause);
            notice.write(writer);
        });
    }

    /// Session Modification Request (6.3.3.3).
    pub(crate) fn on_modification(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let Some(found) = self.find_session(incoming.from, message) else {
            return self.refuse(
                now,
                incoming,
                0,
                Cause::SESSION_CONTEXT_NOT_FOUND.into(),
                out,
            );
        };
        let (peer, seid, cp_seid) = (found.owner, found.seid, found.cp_seid);
        if found.by_owner {
            self.spoke(now, peer, incoming.from);
        }
        let request = match SessionModificationRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, incoming, cp_seid, &error, out),
        };
        match self
            .sessions
            .modify(now, peer, seid, &request, &mut self.tables)
        {
            Ok(modified) => {
                let cp_seid = modified.cp_seid;
                self.created.clear();
                self.created.extend_from_slice(modified.created);
                self.stats.modified += 1;
                let created = std::mem::take(&mut self.created);
                if let Some(f_seid) = request.cp_f_seid {
                    let address = f_seid.ipv4.map(IpAddr::V4);
                    let address = address.or(f_seid.ipv6.map(IpAddr::V6));
                    self.take_over(&found, incoming.from, address);
                }
                let notice = self.notice(peer);
                let usage = self.usage_in_answer(seid, None, out);
                self.answer(
                    now,
                    incoming,
                    cp_seid,
                    Cause::REQUEST_ACCEPTED,
                    out,
                    |writer, _| {
                        writer.cause(Cause::REQUEST_ACCEPTED);
                        write_created(writer, &created);
                        notice.write(writer);
                        let group = IeType::USAGE_REPORT_IN_SESSION_MODIFICATION_RESPONSE;
                        write_all(&usage, writer, group);
                    },
                );
                self.created = created;
                self.tell_usage(now, out);
            }
            Err(refusal) => self.refuse(now, incoming, cp_seid, refusal, out),
        }
    }

    /// Session Deletion Request (6.3.4.3). It has no mandatory IE; some SMFs send an F-SEID.
    pub(crate) fn on_deletion(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let Some(found) = self.find_session(incoming.from, message) else {
            return self.refuse(
                now,
                incoming,
                0,
                Cause::SESSION_CONTEXT_NOT_FOUND.into(),
                out,
            );
        };
        let (peer, seid, cp_seid) = (found.owner, found.seid, found.cp_seid);
        if found.by_owner {
            self.spoke(now, peer, incoming.from);
        }
        if let Err(error) = SessionDeletionRequest::decode(message) {
            return self.refuse_undecodable(now, incoming, cp_seid, &error, out);
        }
        match self.sessions.delete(now, peer, seid, &mut self.tables) {
            Ok(deleted) => {
                self.stats.deleted += 1;
                let (cause, notice) = (Cause::REQUEST_ACCEPTED, self.notice(peer));
                let usage = self.usage_in_answer(seid, deleted.measured, out);
                self.answer(now, incoming, deleted.cp_seid, cause, out, |writer, _| {
                    writer.cause(cause);
                    notice.write(writer);
                    let group = IeType::USAGE_REPORT_IN_SESSION_DELETION_RESPONSE;
                    write_all(&usage, writer, group);
                });
            }
            Err(refusal) => self.refuse(now, incoming, cp_seid, refusal, out),
        }
    }

    /// Associated, and told so.
    fn is_ready(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|peer| peer.deferred.is_none())
    }

    fn spoke(&mut self, now: Time, id: PeerId, from: SocketAddr) {
        self.peers.learn_source(id, from);
        if let Some(peer) = self.peers.get_mut(id) {
            peer.heard = now;
        }
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

/// Our F-SEID: the SEID at our first address of each family (8.2.37).
fn up_f_seid(config: &Config, seid: u64) -> FSeid {
    let ipv4 = config.n4.iter().find_map(|address| match address {
        IpAddr::V4(v4) => Some(*v4),
        IpAddr::V6(_) => None,
    });
    let ipv6 = config.n4.iter().find_map(|address| match address {
        IpAddr::V6(v6) => Some(*v6),
        IpAddr::V4(_) => None,
    });
    FSeid { seid, ipv4, ipv6 }
}

/// Created PDR (table 7.5.3.2-1), Created Traffic Endpoint (table 7.5.3.5-1).
fn write_created(writer: &mut Writer<'_>, created: &[Created]) {
    for pdr in created {
        let f_teid = pdr.f_teid.map(|chosen| FTeid::Given {
            teid: chosen.teid,
            ipv4: chosen.v4,
            ipv6: chosen.v6,
        });
        let (ipv4, ipv6) = (pdr.ue4, pdr.ue6.map(|net| net.addr()));
        let odd = pdr.ue6.map(|net| net.prefix_len()).filter(|&len| len != 64);
        let address = UeIpAddress {
            ipv4,
            ipv6,
            prefix_length: odd,
            ..UeIpAddress::default()
        };
        let chosen = ipv4.is_some() || ipv6.is_some();
        let addresses = if chosen {
            std::slice::from_ref(&address)
        } else {
            &[]
        };
        match pdr.of {
            CreatedFor::Pdr(id) => writer.created_pdr(id.0, f_teid, addresses),
            CreatedFor::Endpoint(id) => writer.created_traffic_endpoint(id, f_teid, addresses),
        }
    }
}
