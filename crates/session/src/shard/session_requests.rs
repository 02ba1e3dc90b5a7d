//! Session requests: what they come to, and what is said (TS 29.244, 7.5).

use std::hint::black_box;
use std::net::IpAddr;

use compiled::{Slow, Tables};
use pfcp::ie::{FSeid, FTeid, UeIpAddress};
use pfcp::message::{
    SessionDeletionRequest, SessionEstablishmentRequest, SessionModificationRequest,
};
use pfcp::{Cause, IeType, Message, Writer};

use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::between::smf::Sender;
use crate::between::to_node::{Answer, Ies, Outputs, ToNode};
use crate::between::to_shard::{Concerns, Request};
use crate::exchange::incoming::Incoming;
use crate::rules::config::Config;
use crate::rules::template;
use crate::shard::Shard;
use crate::shard::displaced::PER_REQUEST;
use crate::shard::lending::{LastRequest, answer_to};
use crate::shard::resources::{Created, CreatedFor};
use crate::shard::set_requests::Found;
use crate::usage::report::write_all;

impl<T: Tables> Shard<T> {
    pub(super) fn on_request(
        &mut self,
        now: Time,
        out: &mut Outputs,
        incoming: &Incoming,
        request: Request<'_>,
    ) {
        match request {
            Request::Establish(peer, request) => {
                self.on_establishment(now, out, incoming, (peer, request));
            }
            Request::Modify(sender, message) => {
                self.on_modification(now, out, incoming, (&sender, message));
            }
            Request::Delete(sender, message) => {
                self.on_deletion(now, out, incoming, (&sender, message));
            }
        }
    }

    /// Session Establishment Request (6.3.2.3) of this peer.
    fn on_establishment(
        &mut self,
        now: Time,
        out: &mut Outputs,
        incoming: &Incoming,
        (peer, request): (PeerId, &SessionEstablishmentRequest<'_>),
    ) {
        let cp_seid = request.cp_f_seid.seid;
        let seid = self.with_room(now, out, peer, |shard| {
            let (sessions, tables) = (&mut shard.sessions, &mut shard.tables);
            sessions.establish(now, peer, request, tables)
        });
        let seid = match seid {
            Ok(seid) => seid,
            Err(refusal) => {
                return out.say(ToNode::Refuse(Box::new((*incoming, cp_seid, refusal))));
            }
        };
        self.sessions.answered(seid, incoming.fingerprint);
        let last = LastRequest {
            sequence: incoming.sequence,
            has_cp_seid: true,
        };
        self.lending
            .lend(&mut self.sessions, seid, &last, &mut self.tables);
        let f_seid = up_f_seid(&self.config, seid);
        let created = self.sessions.created();
        let front = out.ies(|writer| {
            writer.f_seid(f_seid);
            write_created(writer, created);
        });
        out.say(ToNode::Accept(Answer {
            to: *incoming,
            seid,
            cp_seid,
            owner: peer,
            by_owner: true,
            sessions: self.sessions.counted_of(peer),
            front,
            back: Ies::default(),
            usage_reports: 0,
        }));
        self.tell_usage(now, out);
    }

    /// Does what a peer asks for, at the expense of SMFs that do not answer where there is no room else. A request that is refused
    /// leaves no trace, so it can be tried again.
    fn with_room<R>(
        &mut self,
        now: Time,
        out: &mut Outputs,
        peer: PeerId,
        mut ask: impl FnMut(&mut Self) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let mut outcome = ask(self);
        for _ in 0..PER_REQUEST {
            match &outcome {
                Err(refusal) if self.make_room(now, out, peer, refusal) => {
                    outcome = ask(self);
                }
                _ => break,
            }
        }
        outcome
    }

    /// [`Self::displace_one`], with all sessions in hand.
    fn make_room(&mut self, now: Time, out: &mut Outputs, peer: PeerId, refusal: &Refusal) -> bool {
        if refusal.shortage.is_none() {
            return false;
        }
        let held = (&mut self.sessions, &mut self.tables);
        self.lending.take_back(now, held, out, Concerns::Any);
        let displaced = self.displace_one(now, out, peer, refusal);
        self.lending.give_back(&mut self.tables, Concerns::Any);
        displaced
    }

    /// The session that a request is about, if its sender may touch it; else the sender is told that there is none.
    fn find_for(&self, out: &mut Outputs, incoming: &Incoming, sender: &Sender) -> Option<Found> {
        let found = incoming
            .seid
            .and_then(|seid| self.find_session(sender, seid));
        if found.is_none() {
            let cause = Cause::SESSION_CONTEXT_NOT_FOUND;
            out.say(ToNode::Refuse(Box::new((*incoming, 0, cause.into()))));
        }
        found
    }

    /// The request about this session cannot be read.
    fn cannot_read(out: &mut Outputs, incoming: &Incoming, found: &Found, error: pfcp::Error) {
        if found.by_owner {
            out.say(ToNode::Spoke(found.owner, incoming.from));
        }
        out.say(ToNode::Undecodable(Box::new((
            *incoming,
            found.cp_seid,
            error,
        ))));
    }

    /// The request about this session is refused.
    fn refuse(out: &mut Outputs, incoming: &Incoming, found: &Found, refusal: Refusal) {
        if found.by_owner {
            out.say(ToNode::Spoke(found.owner, incoming.from));
        }
        out.say(ToNode::Refuse(Box::new((
            *incoming,
            found.cp_seid,
            refusal,
        ))));
    }

    /// Session Modification Request (6.3.3.3).
    fn on_modification(
        &mut self,
        now: Time,
        out: &mut Outputs,
        incoming: &Incoming,
        (sender, message): (&Sender, &Message<'_>),
    ) {
        let Some(found) = self.find_for(out, incoming, sender) else {
            return;
        };
        let request = match SessionModificationRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return Self::cannot_read(out, incoming, &found, error),
        };
        let place = found.place.index();
        let may_teach = self.lending.serves && found.by_owner;
        let reading = may_teach.then(|| template::read(message)).flatten();
        let session = self
            .sessions
            .slab
            .get(found.place)
            .filter(|_| reading.is_some());
        let before = session.map(|session| session.context.rules().fars);
        if found.by_owner {
            self.tables.heard(place, incoming.sequence);
        }
        let cp_seid = self.with_room(now, out, found.owner, |shard| {
            let (sessions, tables) = (&mut shard.sessions, &mut shard.tables);
            sessions.modify(now, found.place, found.seid, &request, tables)
        });
        let cp_seid = match cp_seid {
            Ok(cp_seid) => cp_seid,
            Err(refusal) => return Self::refuse(out, incoming, &found, refusal),
        };
        if let Some((reading, before)) = reading.zip(before) {
            let fars = (&*before, &*self.sessions.draft.fars.rules);
            self.lending
                .learn(found.owner, reading, fars, &mut self.tables);
        }
        self.sessions.answered(found.seid, incoming.fingerprint);
        let created = self.sessions.created();
        let front = out.ies(|writer| write_created(writer, created));
        if let Some(f_seid) = request.cp_f_seid {
            let address = f_seid.ipv4.map(IpAddr::V4);
            let address = address.or(f_seid.ipv6.map(IpAddr::V6));
            self.take_over(&found, sender, address);
        }
        let last = LastRequest {
            sequence: incoming.sequence,
            has_cp_seid: request.cp_f_seid.is_some(),
        };
        // Others count requests by themselves: what is repeated could not be told from what is new.
        match found.by_owner {
            true => self
                .lending
                .lend(&mut self.sessions, found.seid, &last, &mut self.tables),
            false => self.tables.hold(place),
        }
        let usage = self.usage_in_answer(found.seid, None);
        let group = IeType::USAGE_REPORT_IN_SESSION_MODIFICATION_RESPONSE;
        let back = out.ies(|writer| write_all(&usage, writer, group));
        out.say(ToNode::Accept(Answer {
            to: *incoming,
            seid: found.seid,
            cp_seid,
            owner: found.owner,
            by_owner: found.by_owner,
            sessions: self.sessions.counted_of(found.owner),
            front,
            back,
            usage_reports: usage.len() as u32,
        }));
        self.tell_usage(now, out);
    }

    /// Let the data path serve a request of this peer. `Ok`: it has, and is answered.
    pub(crate) fn serve(
        &mut self,
        now: Time,
        out: &mut Outputs,
        (peer, incoming): (PeerId, &Incoming),
        octets: &[u8],
    ) -> Result<(), Slow> {
        let seid = incoming.seid.ok_or(Slow::Other)?;
        // Neither waits for the other.
        if let Some(place) = self.place_of(seid) {
            black_box(self.touch_session(place) ^ self.tables.touch_place(place.index()));
        }
        // As requests find it: it may be one that its SMF has lost.
        let place = self.sessions.owned(peer, seid).ok_or(Slow::Session)?;
        let held = (&mut self.sessions, &mut self.tables);
        self.lending.serve(now, held, (peer, place), octets)?;
        self.sessions.answered(seid, incoming.fingerprint);
        let answer = answer_to(&mut self.sessions, incoming, peer, place);
        out.say(ToNode::Accept(answer));
        Ok(())
    }

    /// Session Deletion Request (6.3.4.3). It has no mandatory IE; some SMFs send an F-SEID.
    fn on_deletion(
        &mut self,
        now: Time,
        out: &mut Outputs,
        incoming: &Incoming,
        (sender, message): (&Sender, &Message<'_>),
    ) {
        let Some(found) = self.find_for(out, incoming, sender) else {
            return;
        };
        if let Err(error) = SessionDeletionRequest::decode(message) {
            return Self::cannot_read(out, incoming, &found, error);
        }
        let deleted = (self.sessions).delete(now, found.place, found.seid, &mut self.tables);
        let deleted = match deleted {
            Ok(deleted) => deleted,
            Err(refusal) => return Self::refuse(out, incoming, &found, refusal),
        };
        let usage = self.usage_in_answer(found.seid, deleted.measured);
        let group = IeType::USAGE_REPORT_IN_SESSION_DELETION_RESPONSE;
        let back = out.ies(|writer| write_all(&usage, writer, group));
        out.say(ToNode::Accept(Answer {
            to: *incoming,
            seid: found.seid,
            cp_seid: deleted.cp_seid,
            owner: found.owner,
            by_owner: found.by_owner,
            sessions: self.sessions.counted_of(found.owner),
            front: Ies::default(),
            back,
            usage_reports: usage.len() as u32,
        }));
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
