//! Requests about many sessions at once, and who else than its own SMF may control a session
//! (TS 29.244, 5.22, 7.4.6 and 7.4.7).

use std::net::{IpAddr, SocketAddr};

use compiled::Tables;
use pfcp::ie::SessionChangeInfo;
use pfcp::message::{SessionSetDeletionRequest, SessionSetModificationRequest};
use pfcp::{Cause, IeType, Message};

use crate::base::event::Event;
use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::exchange::n4::Turn;
use crate::node::peer::Peers;
use crate::shard::Shard;
use crate::shard::sets::{SetKey, cp_keys};

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

/// The sets that a Session Set Deletion Request names (7.4.6.1).
pub(crate) fn sets_of(request: &SessionSetDeletionRequest<'_>) -> Result<Vec<SetKey>, Unread> {
    let mut sets = Vec::new();
    for set in &request.fq_csids {
        sets.extend(SetKey::fq_csid(set.map_err(Unread::Undecodable)?));
        if sets.len() > SETS_MAX {
            return Err(Unread::Refused(Refusal::no_room(IeType::FQ_CSID)));
        }
    }
    if sets.is_empty() {
        let refusal = Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::FQ_CSID);
        return Err(Unread::Refused(refusal));
    }
    Ok(sets)
}

/// Why a request names no sets.
#[derive(Debug)]
pub(crate) enum Unread {
    Undecodable(pfcp::Error),
    Refused(Refusal),
}

/// The changes that a Session Set Modification Request asks for (7.4.7.1).
pub(crate) fn changes_of(
    request: &SessionSetModificationRequest<'_>,
) -> Result<Vec<Change>, Refusal> {
    let mut changes = Vec::new();
    for info in &request.changes {
        changes.push(Change::new(&info?)?);
    }
    if changes.is_empty() {
        let ie = IeType::PFCP_SESSION_CHANGE_INFO;
        return Err(Refusal::ie(Cause::MANDATORY_IE_MISSING, ie));
    }
    Ok(changes)
}

impl<T: Tables> Shard<T> {
    /// A part of an SMF, or of a node behind it, has lost its sessions (TS 23.007, 23). The sender, `id`, reaches the sessions
    /// that it may control. `true`: they were deleted, and no other session of a peer that is gone is left.
    pub(crate) fn delete_sets(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        (id, from): (PeerId, SocketAddr),
        sets: &[SetKey],
    ) -> bool {
        let may = |owner| peers.shares(owner, id);
        let sessions = self.sessions.delete_sets(sets, may);
        if sessions == 0 {
            return false;
        }
        self.sweep.left += sessions;
        turn.out.event(Event::SetDeleted { from, sessions });
        self.sweep_step(turn, peers)
    }

    /// From now on another address controls the sessions in these sets, as far as `id` may control them.
    pub(crate) fn hand_over(&mut self, peers: &Peers, id: PeerId, change: &Change) {
        let may = |owner| peers.shares(owner, id);
        self.sessions.hand_over(&change.sets, change.to, may);
    }

    /// The session that the header's SEID names, if the sender may touch it.
    pub(crate) fn find_session(
        &self,
        peers: &Peers,
        from: SocketAddr,
        message: &Message<'_>,
    ) -> Option<Found> {
        let seid = message.header.seid?;
        let own = peers.candidates(from).find_map(|owner| {
            Some(Found {
                owner,
                seid,
                cp_seid: self.sessions.cp_seid(owner, seid)?,
                by_owner: true,
            })
        });
        own.or_else(|| self.find_session_of_set(peers, from, seid))
    }

    /// A session of another SMF of the sender's set, or one that was handed over to the sender's
    /// address.
    fn find_session_of_set(&self, peers: &Peers, from: SocketAddr, seid: u64) -> Option<Found> {
        let (owner, cp_seid) = self.sessions.owner(seid)?;
        let controller = self.sessions.controller(seid);
        let of_set = |peer| peers.shares(owner, peer);
        let allowed = controller == Some(from.ip())
            || peers.has_alternative(owner, from.ip())
            || peers.candidates(from).any(of_set);
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
        peers: &Peers,
        found: &Found,
        from: SocketAddr,
        controller: Option<IpAddr>,
    ) {
        if found.by_owner {
            return;
        }
        let own = peers.by_source(from);
        match own.filter(|own| *own != found.owner && peers.shares(found.owner, *own)) {
            Some(new) => self.sessions.change_hands(found.seid, new, &self.tables),
            None => self
                .sessions
                .control_from(found.seid, controller.unwrap_or(from.ip())),
        }
    }
}

/// One PFCP Session Change Info, read.
pub(crate) struct Change {
    pub(crate) to: IpAddr,
    sets: Vec<SetKey>,
    /// Sessions of whole associations: those at these addresses.
    pub(crate) from: Vec<IpAddr>,
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
