//! Session requests: what they come to, and what is said (TS 29.244, 7.5).

use std::net::IpAddr;

use compiled::Tables;
use pfcp::ie::{FSeid, FTeid, UeIpAddress};
use pfcp::message::{SessionEstablishmentRequest, SessionModificationRequest};
use pfcp::{Cause, IeType, Writer};

use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Turn;
use crate::node::load::Notice;
use crate::node::peer::Peers;
use crate::rules::config::Config;
use crate::shard::Shard;
use crate::shard::displaced::PER_REQUEST;
use crate::shard::resources::{Created, CreatedFor};
use crate::shard::sessions::Deleted;
use crate::shard::set_requests::Found;
use crate::usage::report::write_all;

impl<T: Tables> Shard<T> {
    /// Session Establishment Request (6.3.2.3) of this peer.
    pub(crate) fn on_establishment(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        incoming: &Incoming,
        request: &SessionEstablishmentRequest<'_>,
        (peer, notice): (PeerId, Notice),
    ) {
        let (cp_seid, scope) = (request.cp_f_seid.seid, peers.by_source(incoming.from));
        let seid = self.with_room(turn, peers, peer, |shard, now| {
            let (sessions, tables) = (&mut shard.sessions, &mut shard.tables);
            sessions.establish(now, peer, request, tables)
        });
        let seid = match seid {
            Ok(seid) => seid,
            Err(refusal) => return turn.refuse(scope, incoming, cp_seid, refusal),
        };
        self.created.clear();
        self.created.extend_from_slice(self.sessions.created());
        turn.stats().established += 1;
        let f_seid = up_f_seid(&self.config, seid);
        let (cause, created) = (Cause::REQUEST_ACCEPTED, &self.created);
        turn.answer(scope, incoming, cp_seid, cause, |writer, us| {
            writer.node_id(us.to_wire());
            writer.cause(cause);
            writer.f_seid(f_seid);
            write_created(writer, created);
            notice.write(writer);
        });
        self.tell_usage(turn, peers);
    }

    /// Does what a peer asks for, at the expense of SMFs that do not answer where there is no room else. A request that is refused
    /// leaves no trace, so it can be tried again.
    fn with_room<R>(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        peer: PeerId,
        mut ask: impl FnMut(&mut Self, Time) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let mut outcome = ask(self, turn.now);
        for _ in 0..PER_REQUEST {
            match &outcome {
                Err(refusal) if self.displace_one(turn, peers, peer, refusal) => {
                    outcome = ask(self, turn.now);
                }
                _ => break,
            }
        }
        outcome
    }

    /// Session Modification Request (6.3.3.3), not answered yet. The CP's SEID from now on.
    pub(crate) fn modify(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        incoming: &Incoming,
        request: &SessionModificationRequest<'_>,
        found: &Found,
    ) -> Result<u64, Refusal> {
        let cp_seid = self.with_room(turn, peers, found.owner, |shard, now| {
            let (sessions, tables) = (&mut shard.sessions, &mut shard.tables);
            sessions.modify(now, found.owner, found.seid, request, tables)
        })?;
        self.created.clear();
        self.created.extend_from_slice(self.sessions.created());
        turn.stats().modified += 1;
        if let Some(f_seid) = request.cp_f_seid {
            let address = f_seid.ipv4.map(IpAddr::V4);
            let address = address.or(f_seid.ipv6.map(IpAddr::V6));
            self.take_over(peers, found, incoming.from, address);
        }
        Ok(cp_seid)
    }

    /// The answer to the modification that [`Self::modify`] has made.
    pub(crate) fn answer_modification(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        incoming: &Incoming,
        (seid, cp_seid): (u64, u64),
        notice: &Notice,
    ) {
        let usage = self.usage_in_answer(turn, peers, seid, None);
        let scope = peers.by_source(incoming.from);
        let (cause, created) = (Cause::REQUEST_ACCEPTED, &self.created);
        turn.answer(scope, incoming, cp_seid, cause, |writer, _| {
            writer.cause(cause);
            write_created(writer, created);
            notice.write(writer);
            let group = IeType::USAGE_REPORT_IN_SESSION_MODIFICATION_RESPONSE;
            write_all(&usage, writer, group);
        });
        self.tell_usage(turn, peers);
    }

    /// Session Deletion Request (6.3.4.3), not answered yet.
    pub(crate) fn delete(
        &mut self,
        turn: &mut Turn<'_>,
        found: &Found,
    ) -> Result<Deleted, Refusal> {
        let (now, tables) = (turn.now, &mut self.tables);
        let deleted = (self.sessions).delete(now, found.owner, found.seid, tables)?;
        turn.stats().deleted += 1;
        Ok(deleted)
    }

    /// The answer to the deletion that [`Self::delete`] has made.
    pub(crate) fn answer_deletion(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        incoming: &Incoming,
        (seid, deleted): (u64, Deleted),
        notice: &Notice,
    ) {
        let usage = self.usage_in_answer(turn, peers, seid, deleted.measured);
        let (cause, scope) = (Cause::REQUEST_ACCEPTED, peers.by_source(incoming.from));
        turn.answer(scope, incoming, deleted.cp_seid, cause, |writer, _| {
            writer.cause(cause);
            notice.write(writer);
            let group = IeType::USAGE_REPORT_IN_SESSION_DELETION_RESPONSE;
            write_all(&usage, writer, group);
        });
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
