//! Sessions in their places, and the SEIDs that lead to them.
//!
//! A SEID is the place and a generation, enciphered: to find a session takes no search, and a peer
//! cannot work out the SEIDs of others from its own.

use std::num::NonZeroU32;

use crate::base::salted::mix;

/// Places are allocated so many at a time, so that growing never moves what is there.
const CHUNK: usize = 1024;

/// A session's place: its index plus one, so that `Option<Place>` is no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place(NonZeroU32);

impl Place {
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);

    pub(crate) fn new(index: u32) -> Option<Self> {
        NonZeroU32::new(index.wrapping_add(1)).map(Self)
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

#[derive(Debug)]
pub(crate) struct Slab<S> {
    chunks: Vec<Vec<Slot<S>>>,
    free: Vec<u32>,
    len: usize,
    cipher: Cipher,
}

#[derive(Debug)]
struct Slot<S> {
    /// Of the session that is here, or that comes next.
    generation: u32,
    session: Option<S>,
}

impl<S> Slab<S> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            len: 0,
            cipher: Cipher::new(seed),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Puts a session in, told its place and SEID. `None`: 2^32 places are taken.
    pub(crate) fn insert(&mut self, session: impl FnOnce(Place) -> S) -> Option<u64> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let place = Place::new(index)?;
        let session = session(place);
        let slot = self.slot_mut(place)?;
        slot.session = Some(session);
        let generation = slot.generation;
        self.len += 1;
        Some(self.cipher.seid(index, generation))
    }

    /// What [`Self::insert`] will say next.
    pub(crate) fn next_seid(&self) -> Option<u64> {
        let index = match self.free.last() {
            Some(&index) => index,
            None => self.next_index()?,
        };
        let generation = match self.slot(Place::new(index)?) {
            Some(slot) => slot.generation,
            None => self.first_generation(index),
        };
        Some(self.cipher.seid(index, generation))
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<S> {
        let cipher = self.cipher;
        let slot = self.slot_mut(place)?;
        let session = slot.session.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        if cipher.seid(place.index(), slot.generation) == 0 {
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.free.push(place.index());
        self.len -= 1;
        Some(session)
    }

    /// Where a SEID leads, if it is one of ours, without looking.
    pub(crate) fn place_of(&self, seid: u64) -> Option<Place> {
        let (index, _) = self.cipher.place(seid);
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        let there = (index as usize % CHUNK) < chunk.len();
        Place::new(index).filter(|_| there)
    }

    pub(crate) fn find(&self, seid: u64) -> Option<Place> {
        let (index, generation) = self.cipher.place(seid);
        let place = Place::new(index)?;
        let slot = self.slot(place)?;
        (slot.generation == generation && slot.session.is_some()).then_some(place)
    }

    pub(crate) fn find_mut(&mut self, seid: u64) -> Option<&mut S> {
        self.find(seid).and_then(|place| self.get_mut(place))
    }

    /// The SEID of the session that is here.
    pub(crate) fn seid(&self, place: Place) -> Option<u64> {
        let slot = self.slot(place)?;
        slot.session.as_ref()?;
        Some(self.cipher.seid(place.index(), slot.generation))
    }

    pub(crate) fn get(&self, place: Place) -> Option<&S> {
        self.slot(place)?.session.as_ref()
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut S> {
        self.slot_mut(place)?.session.as_mut()
    }

    /// The place behind this one, whether or not a session is there.
    pub(crate) fn after(&self, place: Place) -> Option<Place> {
        let next = Place::new(place.index().wrapping_add(1))?;
        self.slot(next).map(|_| next)
    }

    /// All sessions with their SEIDs, in order of their places, from after the place of `seid` on.
    /// A place keeps its number when its session goes, so a listing in pages goes on undisturbed.
    pub(crate) fn iter_after(&self, seid: Option<u64>) -> impl Iterator<Item = (u64, &S)> {
        let first = seid.map_or(0, |seid| self.cipher.place(seid).0 as usize + 1);
        let (chunk, within) = (first / CHUNK, first % CHUNK);
        let chunks = self.chunks.iter().enumerate().skip(chunk);
        chunks.flat_map(move |(c, slots)| {
            let skip = if c == chunk { within } else { 0 };
            slots
                .iter()
                .enumerate()
                .skip(skip)
                .filter_map(move |(i, slot)| {
                    let index = (c * CHUNK + i) as u32;
                    Some((
                        self.cipher.seid(index, slot.generation),
                        slot.session.as_ref()?,
                    ))
                })
        })
    }

    fn grow(&mut self) -> Option<u32> {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
        if full {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let index = self.next_index()?;
        let generation = self.first_generation(index);
        self.chunks.last_mut()?.push(Slot {
            generation,
            session: None,
        });
        Some(index)
    }

    /// Of the place behind all others.
    fn next_index(&self) -> Option<u32> {
        let places = match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK + last.len(),
            None => 0,
        };
        u32::try_from(places).ok()
    }

    /// No SEID is zero.
    fn first_generation(&self, index: u32) -> u32 {
        u32::from(self.cipher.seid(index, 0) == 0)
    }

    fn slot(&self, place: Place) -> Option<&Slot<S>> {
        let index = place.index() as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    fn slot_mut(&mut self, place: Place) -> Option<&mut Slot<S>> {
        let index = place.index() as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }
}

/// A keyed permutation of 64-bit numbers: a Feistel network of four rounds. It keeps a peer from
/// guessing; that a peer reaches its own sessions only is checked besides.
#[derive(Clone, Copy, Debug)]
struct Cipher {
    keys: [u64; 4],
}

impl Cipher {
    fn new(seed: u64) -> Self {
        let mut key = seed;
        let keys = [(); 4].map(|()| {
            key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(key)
        });
        Self { keys }
    }

    fn seid(&self, index: u32, generation: u32) -> u64 {
        let (mut left, mut right) = (generation, index);
        for key in self.keys {
            (left, right) = (right, left ^ round(right, key));
        }
        u64::from(left) << 32 | u64::from(right)
    }

    fn place(&self, seid: u64) -> (u32, u32) {
        let (mut left, mut right) = ((seid >> 32) as u32, seid as u32);
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ round(left, *key), left);
        }
        (right, left)
    }
}

fn round(half: u32, key: u64) -> u32 {
    (mix(key ^ u64::from(half)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_seid_leads_back_to_its_place(seed: u64, index: u32, generation: u32) {
            let cipher = Cipher::new(seed);
            prop_assert_eq!(cipher.place(cipher.seid(index, generation)), (index, generation));
        }
    }

    #[test]
    fn a_seid_is_not_used_again_with_its_place() {
        let mut slab = Slab::new(1);
        let mut seen = HashSet::new();
        for i in 0..5000 {
            let next = slab.next_seid();
            let seid = slab.insert(|_| i).unwrap();
            assert_eq!(next, Some(seid));
            assert!(seid != 0 && seen.insert(seid));
            let place = slab.find(seid).unwrap();
            assert_eq!(slab.get(place), Some(&i));
            if i % 3 == 0 {
                assert_eq!(slab.remove(place), Some(i));
                assert_eq!(slab.find(seid), None);
            }
        }
        assert_eq!(slab.len(), 5000 - 1667);
    }

    #[test]
    fn pages_of_a_listing_join_though_sessions_go_between_them() {
        let mut slab = Slab::new(9);
        let seids: Vec<u64> = (0..3000).map(|i| slab.insert(|_| i).unwrap()).collect();
        let first: Vec<u64> = slab
            .iter_after(None)
            .take(1500)
            .map(|(seid, _)| seid)
            .collect();
        let place = slab.find(first[1499]).unwrap();
        slab.remove(place);
        let rest: Vec<u64> = slab
            .iter_after(Some(first[1499]))
            .map(|(seid, _)| seid)
            .collect();
        assert_eq!(first, seids[..1500]);
        assert_eq!(rest, seids[1500..]);
    }
}
