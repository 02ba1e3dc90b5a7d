//! Holdings of SMFs, and how much more each may come to hold ([`crate::base::shares`]).
//!
//! An emergency session is nobody's but that of the reserve for such, which is a share like that of an SMF.

use std::collections::{BTreeMap, HashSet};

use compiled::{CapacityId, Compiled, Holding, Limit, NoRoom, Resource, Tables};

use crate::base::ids::{PartyId, PeerId};
use crate::base::shares::Shares;
use crate::base::slab::Place;

/// More lines than any session takes at once.
const PLENTY: u64 = 4096;

/// Holdings of all peers, and their shares.
#[derive(Debug)]
pub(crate) struct Ledger {
    sessions_at_most: u64,
    shares: Shares,
    /// Party of each peer that is there.
    parties: BTreeMap<PeerId, PartyId>,
    members: BTreeMap<PartyId, Vec<PeerId>>,
    /// Holding of each peer that has one, also of those that are gone and whose sessions are yet to be deleted.
    held: BTreeMap<PeerId, Holding>,
    all: Holding,
    emergency: HashSet<Place>,
    /// A session is being taken in that was admitted elsewhere: shares bound those that come, and are not taken from those that are there.
    takes_in: bool,
}

impl Ledger {
    /// So many sessions there may be.
    pub(crate) fn new(sessions_at_most: u32, shares: Shares) -> Self {
        Self {
            sessions_at_most: sessions_at_most.into(),
            shares,
            parties: BTreeMap::new(),
            members: BTreeMap::new(),
            held: BTreeMap::new(),
            all: Holding::default(),
            emergency: HashSet::new(),
            takes_in: false,
        }
    }

    /// Whether what comes now was admitted elsewhere.
    pub(crate) fn take_in(&mut self, takes_in: bool) {
        self.takes_in = takes_in;
    }

    /// Shares are these from now on.
    pub(crate) fn set_shares(&mut self, shares: Shares) {
        self.shares = shares;
    }

    /// A peer is of this party from now on.
    pub(crate) fn join(&mut self, peer: PeerId, party: PartyId) {
        self.forget(peer);
        self.parties.insert(peer, party);
        self.members.entry(party).or_default().push(peer);
    }

    /// A peer is no more. What its sessions hold until they are deleted is nobody's.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        let Some(party) = self.parties.remove(&peer) else {
            return;
        };
        if let Some(members) = self.members.get_mut(&party) {
            members.retain(|member| *member != peer);
            if members.is_empty() {
                self.members.remove(&party);
            }
        }
    }

    /// A session of this peer holds `after` instead of `before`.
    pub(crate) fn change(&mut self, peer: PeerId, before: &Holding, after: &Holding) {
        if before == after {
            return;
        }
        self.all.change(before, after);
        let held = self.held.entry(peer).or_default();
        held.change(before, after);
        if held.is_nothing() {
            self.held.remove(&peer);
        }
    }

    /// A session comes.
    pub(crate) fn begin(&mut self, peer: PeerId, place: Place, is_emergency: bool) {
        if is_emergency {
            self.emergency.insert(place);
        }
        self.change(peer, &Holding::default(), &one_session());
    }

    /// The session in this place goes.
    pub(crate) fn end(&mut self, peer: PeerId, place: Place) {
        self.change(self.payer(peer, place), &one_session(), &Holding::default());
        self.emergency.remove(&place);
    }

    /// The session in this place, which holds so much, is another peer's from now on.
    pub(crate) fn move_to(&mut self, new: PeerId, place: Place, old: PeerId, mut holds: Holding) {
        if self.emergency.contains(&place) {
            return;
        }
        holds.add(Resource::Sessions, 1);
        self.change(old, &holds, &Holding::default());
        self.change(new, &Holding::default(), &holds);
    }

    /// Account of the session in this place, whose SMF is `peer`.
    pub(crate) fn payer(&self, peer: PeerId, place: Place) -> PeerId {
        match self.emergency.contains(&place) {
            true => PeerId::EMERGENCY,
            false => peer,
        }
    }

    fn party(&self, peer: PeerId) -> PartyId {
        match peer {
            PeerId::EMERGENCY => PartyId::EMERGENCY,
            peer => *self.parties.get(&peer).unwrap_or(&PartyId(peer.0)),
        }
    }

    fn held_by(&self, party: PartyId, resource: Resource) -> u64 {
        let of = |peer| {
            let held: Option<&Holding> = self.held.get(peer);
            held.map_or(0, |held| held.of(resource))
        };
        if party == PartyId::EMERGENCY {
            return of(&PeerId::EMERGENCY);
        }
        let members = self.members.get(&party).into_iter().flatten();
        members.map(of).sum()
    }

    /// Holdings of a peer.
    pub(crate) fn holding(&self, peer: PeerId) -> Holding {
        self.held.get(&peer).cloned().unwrap_or_default()
    }

    /// Guaranteed share of a peer's party.
    pub(crate) fn share(&self, peer: PeerId, whole: u64) -> u64 {
        self.shares.share_for(self.party(peer), whole)
    }

    /// How much more than its share the party of a peer has.
    pub(crate) fn beyond(&self, peer: PeerId, resource: Resource, whole: u64) -> u64 {
        let held = self.held_by(self.party(peer), resource);
        held.saturating_sub(self.share(peer, whole))
    }

    pub(crate) fn is_emergency(&self, place: Place) -> bool {
        self.emergency.contains(&place)
    }

    fn left(&self, peer: PeerId, resource: Resource, whole: u64) -> u64 {
        let used = |party| self.held_by(party, resource);
        let of_all = self.all.of(resource);
        let party = self.party(peer);
        self.shares.left_for(party, whole, of_all, used)
    }

    /// Whether there is room for one more session of a peer; else whether what is left is others'.
    pub(crate) fn check_session(&self, peer: PeerId) -> Result<(), bool> {
        let (most, all) = (self.sessions_at_most, self.all.of(Resource::Sessions));
        if all + self.shares.kept_at_most(most) < most || self.takes_in && all < most {
            return Ok(());
        }
        match self.left(peer, Resource::Sessions, most) {
            0 => Err(all < most),
            _ => Ok(()),
        }
    }

    /// Packets meet a session as it is now.
    pub(crate) fn publish<T: Tables>(
        &mut self,
        payer: PeerId,
        handle: &mut T::Handle,
        new: &mut Compiled,
        tables: &mut T,
    ) -> Result<(), NoRoom> {
        self.bound(payer, tables, new);
        let before = tables.holds(handle);
        tables.publish(handle, new)?;
        self.change(payer, &before, &tables.holds(handle));
        Ok(())
    }

    /// Packets meet a session no more.
    pub(crate) fn withdraw<T: Tables>(
        &mut self,
        payer: PeerId,
        handle: &mut T::Handle,
        tables: &mut T,
    ) {
        self.change(payer, &tables.holds(handle), &Holding::default());
        tables.withdraw(handle);
    }

    /// Bounds what a session of a peer may come to hold beyond what it holds, where others might lack it.
    fn bound(&self, peer: PeerId, tables: &impl Tables, new: &mut Compiled) {
        new.more.clear();
        if self.takes_in {
            return;
        }
        for resource in Resource::OF_TABLES {
            let Some(whole) = tables.room(resource) else {
                continue;
            };
            let free = whole.saturating_sub(self.all.of(resource));
            if free < self.shares.kept_at_most(whole) + PLENTY {
                new.more.push((resource, self.left(peer, resource, whole)));
            }
        }
        for capacity in guaranteed_of(new) {
            let resource = Resource::Guaranteed(capacity);
            if let Some(whole) = tables.room(resource) {
                new.more.push((resource, self.left(peer, resource, whole)));
            }
        }
    }

    /// Holdings add up.
    #[cfg(test)]
    pub(crate) fn check(&self, sessions: usize) {
        let mut sum = Holding::default();
        for held in self.held.values() {
            sum.change(&Holding::default(), held);
        }
        for resource in Resource::COUNTED {
            assert_eq!(sum.of(resource), self.all.of(resource), "{resource:?}");
        }
        assert_eq!(self.all.of(Resource::Sessions), sessions as u64);
        assert!(sessions > 0 || self.held.is_empty() && self.emergency.is_empty());
    }
}

fn one_session() -> Holding {
    let mut one = Holding::default();
    one.add(Resource::Sessions, 1);
    one
}

/// Capacities of which a session wants something guaranteed, each once.
fn guaranteed_of(new: &Compiled) -> Vec<CapacityId> {
    let mut all = Vec::new();
    for meter in &new.meters {
        if let Limit::Share(share) = &meter.limit
            && share.guaranteed.is_some()
        {
            all.extend(
                share
                    .capacities
                    .iter()
                    .filter(|id| **id != CapacityId::NONE),
            );
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}
