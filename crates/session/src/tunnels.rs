//! Which session sends into which tunnel: found when the tunnel's end says that it has no such
//! tunnel (Error Indication, TS 23.527, 5.3).

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::rules::Far;
use crate::salted::{Salted, mix};
use crate::slab::Place;

/// A tunnel, folded; sessions found by it are asked whether it is theirs.
pub(crate) type TunnelKey = u32;

/// Tunnels of one session, most have one or two.
pub(crate) type TunnelKeys = SmallVec<[TunnelKey; 4]>;

pub(crate) fn key(teid: u32, peer: IpAddr) -> TunnelKey {
    let peer = match peer {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            mix(bits as u64) ^ (bits >> 64) as u64
        }
    };
    mix(mix(peer) ^ u64::from(teid)) as u32
}

/// The tunnels that these FARs send into, sorted, each once.
pub(crate) fn keys(fars: &[Far]) -> TunnelKeys {
    let tunnels = fars.iter().filter_map(|far| far.forwarding()?.tunnel);
    let mut keys: TunnelKeys = tunnels
        .flat_map(|tunnel| tunnel.addresses().map(move |peer| key(tunnel.teid(), peer)))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The index. Two sessions rarely have one key: the second and further ones lie apart.
///
/// It is written with each path switch, read with an Error Indication alone, and each key lies somewhere
/// else in memory. So changes wait until there are many, whose waits for memory overlap, or until somebody
/// asks.
#[derive(Debug)]
pub(crate) struct TunnelIndex {
    first: HashMap<TunnelKey, Place, Salted>,
    more: BTreeSet<(TunnelKey, Place)>,
    /// What is still to be done, in order.
    pending: Vec<(Change, TunnelKey, Place)>,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert,
    Remove,
}

/// Changes that wait at most.
const PENDING_MAX: usize = 256;

impl TunnelIndex {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            first: HashMap::with_hasher(Salted::new(seed)),
            more: BTreeSet::new(),
            pending: Vec::with_capacity(PENDING_MAX),
        }
    }

    /// The session at `place` has other tunnels than before.
    pub(crate) fn change(&mut self, place: Place, before: &[TunnelKey], after: &[TunnelKey]) {
        if before == after {
            return;
        }
        for key in before {
            self.defer(Change::Remove, *key, place);
        }
        for key in after {
            self.defer(Change::Insert, *key, place);
        }
    }

    fn defer(&mut self, change: Change, key: TunnelKey, place: Place) {
        self.pending.push((change, key, place));
        if self.pending.len() == PENDING_MAX {
            self.catch_up();
        }
    }

    fn catch_up(&mut self) {
        let there = self.pending.iter();
        let there = there.filter(|(_, key, _)| self.first.contains_key(key));
        black_box(there.count());
        let mut pending = std::mem::take(&mut self.pending);
        for (change, key, place) in pending.drain(..) {
            match change {
                Change::Insert => self.insert(key, place),
                Change::Remove => self.remove(key, place),
            }
        }
        self.pending = pending;
    }

    fn insert(&mut self, key: TunnelKey, place: Place) {
        let first = *self.first.entry(key).or_insert(place);
        if first != place {
            self.more.insert((key, place));
        }
    }

    fn remove(&mut self, key: TunnelKey, place: Place) {
        if self.first.get(&key) != Some(&place) {
            self.more.remove(&(key, place));
            return;
        }
        let next = self.more.range((key, Place::FIRST)..).next().copied();
        match next.filter(|(of, _)| *of == key) {
            Some(next) => {
                self.more.remove(&next);
                self.first.insert(key, next.1);
            }
            None => {
                self.first.remove(&key);
            }
        }
    }

    /// Sessions that may have this tunnel, at most 16: TEIDs are unique at each peer.
    pub(crate) fn find(&mut self, key: TunnelKey) -> SmallVec<[Place; 2]> {
        self.catch_up();
        let more = self.more.range((key, Place::FIRST)..);
        let more = more
            .take_while(|(of, _)| *of == key)
            .map(|(_, place)| *place);
        let first = self.first.get(&key).copied();
        first.into_iter().chain(more).take(16).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken_out() {
        let mut index = TunnelIndex::new(1);
        let places: Vec<Place> = (0..6).filter_map(Place::new).collect();
        // Two of three sessions share each key.
        for (i, place) in places.iter().enumerate() {
            index.change(*place, &[], &[i as u32 / 2, 77]);
        }
        assert_eq!(index.find(1).as_slice(), &places[2..4]);
        assert_eq!(index.find(77).len(), 6);
        index.change(places[0], &[0, 77], &[0, 99]);
        assert_eq!(index.find(77).len(), 5);
        assert_eq!(index.find(99).as_slice(), &places[..1]);
        for (i, place) in places.iter().enumerate() {
            index.change(*place, &[i as u32 / 2, 77, 99], &[]);
        }
        assert!(index.find(77).is_empty());
        assert!(index.first.is_empty() && index.more.is_empty());
    }
}
