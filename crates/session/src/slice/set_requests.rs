//! Requests about many sessions at once, and who else than its own SMF may control a session
//! (TS 29.244, 5.22, 7.4.6 and 7.4.7).

use std::net::{IpAddr, SocketAddr};

use pfcp::ie::SessionChangeInfo;
use pfcp::message::{SessionSetDeletionRequest, SessionSetModificationRequest};
use pfcp::{Cause, IeType, Message};

use crate::base::event::Event;
use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::compiled::Tables;
use crate::core::Core;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::slice::sets::{SetKey, cp_keys};

/// Sets named in one message; more is not what the parts of one node are.
const SETS_MAX: usize = 256;

/// A session, found for a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) owner: PeerId,
    pub(crate) seid: u64,
    pub(crate) cp_seid: u64,
    /// The sender is the owner, and not another SMF of its set.
    pub(crate) by_owner: bool,
}

impl<T: Tables> Core<T> {
    /// Session Set Deletion Request (7.4.6.1): a part of the SMF, or of a node behind it, has lost
    /// its sessions (TS 23.007, 23). The sender reaches the sessions that it may control.
    pub(crate) fn on_set_deletion(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let request = match SessionSetDeletionRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, incoming, 0, &error, out),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, incoming, 0, cause.into(), out);
        };
        let mut sets = Vec::new();
        for set in &request.fq_csids {
            match set {
                Ok(set) => sets.extend(SetKey::fq_csid(set)),
                Err(error) => return self.refuse_undecodable(now, incoming, 0, &error, out),
            }
            if sets.len() > SETS_MAX {
                return self.refuse(now, incoming, 0, Refusal::no_room(IeType::FQ_CSID), out);
            }
        }
        if sets.is_empty() {
            let refusal = Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FQ_CSID);
            return self.refuse(now, incoming, 0, refusal, out);
        }
        let peers = &self.peers;
        let sessions = (self.sessions).delete_sets(&sets, |owner| peers.shares(owner, id));
        if sessions > 0 {
            self.sweep.left += sessions;
            out.event(Event::SetDeleted {
                from: incoming.from,
                sessions,
            });
            self.sweep_step(now, out);
        }
        self.accept_node_request(now, incoming, out);
    }

    /// Session Set Modification Request (7.4.7.1): from now on another address controls these
    /// sessions.
    pub(crate) fn on_set_modification(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let request = match SessionSetModificationRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, incoming, 0, &error, out),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, incoming, 0, cause.into(), out);
        };
        let mut changes = Vec::new();
        for info in &request.changes {
            match info
                .map_err(Refusal::from)
                .and_then(|info| Change::new(&info))
            {
                Ok(change) => changes.push(change),
                Err(refusal) => return self.refuse(now, incoming, 0, refusal, out),
            }
        }
        if changes.is_empty() {
            let ie = IeType::PFCP_SESSION_CHANGE_INFO;
            let refusal = Refusal::ie(Cause::MANDATORY_IE_MISSING, ie);
            return self.refuse(now, incoming, 0, refusal, out);
        }
        for change in &changes {
            self.change_controller(id, change);
        }
        self.accept_node_request(now, incoming, out);
    }

    fn change_controller(&mut self, id: PeerId, change: &Change) {
        let peers = &self.peers;
        (self.sessions).hand_over(&change.sets, change.to, |owner| peers.shares(owner, id));
        for owner in self.peers.ids() {
            let shared = self.peers.shares(owner, id);
            if let Some(peer) = self.peers.get_mut(owner).filter(|_| shared)
                && change.from.contains(&peer.address.ip())
            {
                peer.address.set_ip(change.to);
            }
        }
    }

    /// The session that the header's SEID names, if the sender may touch it.
    pub(crate) fn find_session(&self, from: SocketAddr, message: &Message<'_>) -> Option<Found> {
        let seid = message.header.seid?;
        let own = self.peers.candidates(from).find_map(|owner| {
            Some(Found {
                owner,
                seid,
                cp_seid: self.sessions.cp_seid(owner, seid)?,
                by_owner: true,
            })
        });
        own.or_else(|| self.find_session_of_set(from, seid))
    }

    /// A session of another SMF of the sender's set, or one that was handed over to the sender's
    /// address.
    fn find_session_of_set(&self, from: SocketAddr, seid: u64) -> Option<Found> {
        let (owner, cp_seid) = self.sessions.owner(seid)?;
        let controller = self.sessions.controller(seid);
        let of_set = |peer| self.peers.shares(owner, peer);
        let allowed = controller == Some(from.ip())
            || self.peers.has_alternative(owner, from.ip())
            || self.peers.candidates(from).any(of_set);
        allowed.then_some(Found {
            owner,
            seid,
            cp_seid,
            by_owner: false,
        })
    }

    /// A session that another SMF of the set than its own has modified is that one's from now on,
    /// when the request says so by a new CP F-SEID (5.22.2, 5.22.3).
    pub(crate) fn take_over(
        &mut self,
        found: &Found,
        from: SocketAddr,
        controller: Option<IpAddr>,
    ) {
        if found.by_owner {
            return;
        }
        let own = self.peers.by_source(from);
        match own.filter(|own| *own != found.owner && self.peers.shares(found.owner, *own)) {
            Some(new) => self.sessions.adopt(found.seid, new),
            None => self
                .sessions
                .control_from(found.seid, controller.unwrap_or(from.ip())),
        }
    }
}

/// One PFCP Session Change Info, read.
struct Change {
    to: IpAddr,
    sets: Vec<SetKey>,
    /// Sessions of whole associations: those at these addresses.
    from: Vec<IpAddr>,
}

impl Change {
    fn new(info: &SessionChangeInfo<'_>) -> Result<Self, Refusal> {
        let alternative = IeType::ALTERNATIVE_SMF_IP_ADDRESS;
        let to = info.alternative.addresses().next();
        let to = to.ok_or(Refusal::ie(Cause::MANDATORY_IE_INCORRECT, alternative))?;
        let (mut sets, mut from) = (Vec::new(), Vec::new());
        for set in &info.fq_csids {
            sets.extend(SetKey::fq_csid(set?));
        }
        for group in &info.group_ids {
            sets.push(SetKey::group(group?));
        }
        for address in &info.cp_addresses {
            let address = address?;
            sets.extend(cp_keys(address));
            from.extend(address.addresses());
        }
        if sets.is_empty() {
            return Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FQ_CSID));
        }
        if sets.len() > SETS_MAX {
            return Err(Refusal::no_room(IeType::PFCP_SESSION_CHANGE_INFO));
        }
        Ok(Self { to, sets, from })
    }
}
