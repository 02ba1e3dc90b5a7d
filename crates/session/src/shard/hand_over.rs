//! Sessions taken from one list and put into another: deleted by set, or given to another SMF.

use std::net::IpAddr;

use compiled::Tables;

use crate::base::ids::PeerId;
use crate::base::set_key::SetKey;
use crate::base::slab::Place;
use crate::shard::session::List;
use crate::shard::sessions::Sessions;

impl<T: Tables> Sessions<T> {
    /// The list of this peer, a new one if it has none.
    pub(crate) fn list_of(&mut self, peer: PeerId) -> List {
        let Self { peers, epoch, .. } = self;
        *peers.entry(peer).or_insert_with(|| {
            *epoch = epoch.wrapping_add(1);
            List::empty(*epoch)
        })
    }

    /// Puts `at`, whose neighbours are set, in front of `next` in the list of this peer.
    pub(crate) fn head(&mut self, peer: PeerId, at: Option<Place>, next: Option<Place>) {
        self.count(peer);
        if let Some(list) = self.peers.get_mut(&peer) {
            list.first = at;
            list.last = list.last.or(at);
            list.len += 1;
        }
        if let Some(next) = next.and_then(|place| self.slab.unnoted_mut(place)) {
            next.previous = at;
        }
    }

    /// The number of sessions of this peer changes.
    pub(super) fn count(&mut self, peer: PeerId) {
        if !self.counted.contains(&peer) {
            self.counted.push(peer);
        }
    }

    /// Sessions of this peer; the node is told.
    pub(super) fn counted_of(&mut self, peer: PeerId) -> usize {
        self.counted.retain(|counted| *counted != peer);
        self.len_of(peer)
    }

    /// Takes a live session out of the list of its peer; it keeps its place.
    fn detach(&mut self, place: Place) -> Option<()> {
        let session = self.slab.get(place)?;
        let (peer, previous, next) = (session.peer, session.previous, session.next);
        self.count(peer);
        let mut list = self.peers.remove(&peer)?;
        self.bridge(previous, next, &mut list);
        if list.len > 0 {
            self.peers.insert(peer, list);
        }
        Some(())
    }

    /// Live sessions in one of the sets, of peers that `may` be touched.
    fn in_sets(&self, sets: &[SetKey], may: impl Fn(PeerId) -> bool) -> Vec<Place> {
        let mut found: Vec<Place> = self.sets.find(sets).into_iter().collect();
        found.retain(|place| {
            let session = self.slab.get(*place);
            session.is_some_and(|session| self.is_live(session) && may(session.peer))
        });
        found
    }

    /// Disown all sessions in these sets: they are found no more, and go with [`Self::reap`]. How
    /// many.
    pub(crate) fn delete_sets(
        &mut self,
        sets: &[SetKey],
        may: impl Fn(PeerId) -> bool,
        tables: &mut T,
    ) -> usize {
        let places = self.in_sets(sets, may);
        if places.is_empty() {
            return 0;
        }
        self.epoch = self.epoch.wrapping_add(1);
        let mut doomed = List::empty(self.epoch);
        for place in places {
            tables.hold(place.index());
            self.doom(place, &mut doomed);
        }
        self.doomed.push(doomed);
        doomed.len
    }

    /// Disown one session.
    pub(crate) fn delete_one(&mut self, place: Place) {
        self.epoch = self.epoch.wrapping_add(1);
        let mut doomed = List::empty(self.epoch);
        self.doom(place, &mut doomed);
        self.doomed.push(doomed);
    }

    fn doom(&mut self, place: Place, doomed: &mut List) {
        if self.detach(place).is_none() {
            return;
        }
        if let Some(session) = self.slab.get_mut(place) {
            session.epoch = doomed.epoch;
            session.previous = None;
            session.next = doomed.first;
        }
        if let Some(next) = doomed.first.and_then(|next| self.slab.unnoted_mut(next)) {
            next.previous = Some(place);
        }
        doomed.first = Some(place);
        doomed.last = doomed.last.or(Some(place));
        doomed.len += 1;
    }

    /// From now on `to` controls the sessions in these sets.
    pub(crate) fn hand_over(
        &mut self,
        sets: &[SetKey],
        to: IpAddr,
        may: impl Fn(PeerId) -> bool,
    ) -> usize {
        let places = self.in_sets(sets, may);
        for place in &places {
            self.set_controller(*place, Some(to));
        }
        places.len()
    }

    /// From now on `address` controls this session.
    pub(crate) fn control_from(&mut self, seid: u64, address: IpAddr) {
        if let Some(place) = self.slab.find(seid) {
            self.set_controller(place, Some(address));
        }
    }

    fn set_controller(&mut self, place: Place, address: Option<IpAddr>) {
        let Some(session) = self.slab.get_mut(place) else {
            return;
        };
        if address.is_none() && session.context.membership().is_none() {
            return;
        }
        let extra = session.context.extra.get_or_insert_default();
        let membership = extra.membership.get_or_insert_default();
        self.sets.remove(place, membership);
        membership.controller = address;
        self.sets.insert(place, membership);
    }

    /// This session is that of another peer from now on.
    pub(crate) fn change_hands(&mut self, seid: u64, new: PeerId, tables: &T) {
        let Some(place) = self.slab.find(seid) else {
            return;
        };
        if self.detach(place).is_none() {
            return;
        }
        let list = self.list_of(new);
        if let Some(session) = self.slab.get_mut(place) {
            let (old, pdrs) = (session.peer, session.context.kept.pdrs());
            self.applications.keep(new, &[], &pdrs);
            self.applications.keep(old, &pdrs, &[]);
            self.ledger
                .move_to(new, place, old, tables.holds(&session.handle));
            session.peer = new;
            session.epoch = list.epoch;
            session.previous = None;
            session.next = list.first;
        }
        self.head(new, Some(place), list.first);
        self.set_controller(place, None);
        self.usage_changes_hands(place, seid);
    }

    /// Address for requests about this session, if not that of its association.
    pub(crate) fn controller(&self, seid: u64) -> Option<IpAddr> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        session.context.membership()?.controller
    }
}
