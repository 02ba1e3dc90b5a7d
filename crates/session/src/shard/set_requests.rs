//! Sessions lost or handed over set by set, and who else than its own SMF may control a session
//! (TS 29.244, 5.22, 7.4.6 and 7.4.7).

use std::net::{IpAddr, SocketAddr};

use compiled::Tables;

use crate::base::event::Event;
use crate::base::ids::{PartyId, PeerId};
use crate::base::set_key::SetKey;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::smf::Sender;
use crate::between::to_node::{Outputs, ToNode};
use crate::shard::Shard;

/// A session, found for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) owner: PeerId,
    pub(super) seid: u64,
    pub(super) place: Place,
    pub(super) cp_seid: u64,
    /// The sender is the owner, and not another SMF of its set.
    pub(super) by_owner: bool,
}

impl<T: Tables> Shard<T> {
    /// A part of an SMF, or of a node behind it, has lost its sessions (TS 23.007, 23), as `from` says: those of this party's SMFs
    /// are deleted.
    pub(super) fn delete_sets(
        &mut self,
        now: Time,
        out: &mut Outputs,
        (party, from): (PartyId, SocketAddr),
        sets: &[SetKey],
    ) {
        let smfs = &self.smfs;
        let may = |owner| smfs.get(&owner).is_some_and(|smf| smf.party == party);
        let sessions = self.sessions.delete_sets(sets, may, &mut self.tables);
        if sessions == 0 {
            return;
        }
        out.say(ToNode::Sweeping);
        let event = Event::SetDeleted { from, sessions };
        out.say(ToNode::Event(Box::new(event)));
        self.sweep.left += sessions;
        self.sweep_step(now, out);
    }

    /// From now on another address controls the sessions in these sets, as far as they are of this party's SMFs.
    pub(super) fn hand_over(&mut self, party: PartyId, sets: &[SetKey], to: IpAddr) {
        let smfs = &self.smfs;
        let may = |owner| smfs.get(&owner).is_some_and(|smf| smf.party == party);
        self.sessions.hand_over(sets, to, may);
    }

    /// Whether two peers are the same, or of the same SMF set.
    fn are_one(&self, one: PeerId, other: PeerId) -> bool {
        let party = |peer| self.smfs.get(&peer).map(|smf| smf.party);
        one == other || party(one).is_some_and(|party_of_one| party(other) == Some(party_of_one))
    }

    /// The session of this SEID, if the sender may touch it.
    pub(super) fn find_session(&self, sender: &Sender, seid: u64) -> Option<Found> {
        let own = sender.peers.iter().find_map(|&owner| {
            let place = self.sessions.owned(owner, seid)?;
            Some(Found {
                owner,
                seid,
                place,
                cp_seid: self.sessions.cp_seid(place),
                by_owner: true,
            })
        });
        own.or_else(|| self.find_session_of_set(sender, seid))
    }

    /// A session of another SMF of the sender's set, or one that was handed over to the sender's
    /// address.
    fn find_session_of_set(&self, sender: &Sender, seid: u64) -> Option<Found> {
        let (owner, cp_seid) = self.sessions.owner(seid)?;
        let from = sender.from.ip();
        let has_alternative = |owner| {
            let smf = self.smfs.get(&owner);
            smf.is_some_and(|smf| smf.alternatives.contains(&from))
        };
        let allowed = self.sessions.controller(seid) == Some(from)
            || has_alternative(owner)
            || (sender.peers.iter()).any(|&peer| self.are_one(owner, peer));
        let place = self.sessions.owned(owner, seid)?;
        allowed.then_some(Found {
            owner,
            seid,
            place,
            cp_seid,
            by_owner: false,
        })
    }

    /// A session that another SMF of the set than its own has modified is that one's from now on,
    /// when the request says so by a new CP F-SEID (5.22.2, 5.22.3).
    pub(super) fn take_over(&mut self, found: &Found, sender: &Sender, controller: Option<IpAddr>) {
        if found.by_owner {
            return;
        }
        let is_other = |own: &PeerId| *own != found.owner && self.are_one(found.owner, *own);
        match sender.peer().filter(is_other) {
            Some(new) => self.sessions.change_hands(found.seid, new, &self.tables),
            None => {
                let controller = controller.unwrap_or(sender.from.ip());
                self.sessions.control_from(found.seid, controller);
            }
        }
    }
}
