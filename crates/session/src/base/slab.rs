//! Sessions in their places, and the SEIDs that lead to them.
//!
//! A SEID is the place and a generation, enciphered: to find a session takes no search, and a peer
//! cannot work out the SEIDs of others from its own. A session keeps its SEID wherever it goes.

use std::num::NonZeroU32;

use compiled::SeidKey;

use crate::base::seid::{Cipher, GENERATIONS, PLACES};

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

    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }
}

#[derive(Debug)]
pub(crate) struct Slab<S> {
    chunks: Vec<Vec<Slot<S>>>,
    /// The free place that is taken next.
    free: Option<Place>,
    len: usize,
    places_max: u32,
    cipher: Cipher,
    /// Of the first session in a place.
    first: u32,
    /// Later than those of all sessions.
    latest: u32,
    /// `None`: nobody wants to know.
    changed: Option<Box<Changed>>,
}

/// Places whose sessions may have changed, each once.
#[derive(Debug, Default)]
struct Changed {
    /// A bit for each place.
    is: Vec<u64>,
    places: Vec<Place>,
}

impl Changed {
    fn note(&mut self, place: Place) {
        let (word, bit) = (place.index() as usize / 64, 1 << (place.index() % 64));
        if self.is.len() <= word {
            self.is.resize(word + 1, 0);
        }
        if let Some(word) = self.is.get_mut(word).filter(|word| **word & bit == 0) {
            *word |= bit;
            self.places.push(place);
        }
    }

    fn take(&mut self) -> Option<Place> {
        let place = self.places.pop()?;
        if let Some(word) = self.is.get_mut(place.index() as usize / 64) {
            *word &= !(1 << (place.index() % 64));
        }
        Some(place)
    }
}

#[derive(Debug)]
struct Slot<S> {
    /// Of the session that is here.
    generation: u32,
    /// Of the session that comes next: later than all that were here.
    next_generation: u32,
    content: Content<S>,
}

#[derive(Debug)]
enum Content<S> {
    Session(S),
    /// Its neighbours in the list of free places, which is taken from and added to in front.
    Free {
        previous: Option<Place>,
        next: Option<Place>,
    },
}

impl<S> Content<S> {
    fn session(&self) -> Option<&S> {
        match self {
            Self::Session(session) => Some(session),
            Self::Free { .. } => None,
        }
    }
}

/// Why no session can be put where its SEID leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// It is of another key, another cluster member, or of a process with more sessions.
    #[error("its SEID leads beyond the {0} places for sessions")]
    Beyond(u32),
    /// A session is there, or this one.
    #[error("its SEID leads to a place that another session has")]
    Taken,
}

impl<S> Slab<S> {
    /// Places for so many sessions, as far as SEIDs have bits for them.
    pub(crate) fn new(seed: u64, places_max: u32) -> Self {
        Self {
            chunks: Vec::new(),
            free: None,
            len: 0,
            places_max: places_max.min(PLACES),
            cipher: Cipher::new(seed),
            first: 0,
            latest: 0,
            changed: None,
        }
    }

    /// As many places as there may be.
    pub(crate) fn places_max(&self) -> u32 {
        self.places_max
    }

    /// Key by which SEIDs name places.
    pub(crate) fn key(&self) -> SeidKey {
        self.cipher.key()
    }

    /// Place and generation that a SEID names.
    pub(crate) fn named(&self, seid: u64) -> Option<(u32, u32)> {
        self.cipher.place(seid)
    }

    /// Places whose sessions may have changed are noted from now on.
    pub(crate) fn note_changes(&mut self) {
        self.changed = Some(Box::default());
    }

    /// They are not.
    pub(crate) fn note_nothing(&mut self) {
        self.changed = None;
    }

    /// Whether they are.
    pub(crate) fn notes_changes(&self) -> bool {
        self.changed.is_some()
    }

    /// One of them.
    pub(crate) fn next_changed(&mut self) -> Option<Place> {
        self.changed.as_mut()?.take()
    }

    /// The session in this place may have changed.
    pub(crate) fn note(&mut self, place: Place) {
        if let Some(changed) = &mut self.changed {
            changed.note(place);
        }
    }

    /// A generation that no session has had, nor one elsewhere of which this is known.
    pub(crate) fn latest(&self) -> u32 {
        self.latest
    }

    /// Sessions that begin here have this generation or later ones, lest they have SEIDs of sessions that are no more. Before the
    /// first one is here.
    pub(crate) fn go_on(&mut self, generation: u32) {
        self.first = generation % GENERATIONS;
        self.latest = self.first;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// SEID of the session that comes next, unless it brings its own. `None`: all places are taken.
    pub(crate) fn next_seid(&self) -> Option<u64> {
        let (index, generation) = match self.free {
            Some(place) => (place.index(), self.slot(place)?.next_generation),
            None => {
                let index = self.next_index()?;
                (index, self.first_generation(index))
            }
        };
        Some(self.cipher.seid(index, generation))
    }

    /// Whether a session with this SEID may be put where it leads.
    pub(crate) fn check(&self, seid: u64) -> Result<(), NoPlace> {
        self.free_place(seid).map(|_| ())
    }

    fn free_place(&self, seid: u64) -> Result<(Place, u32), NoPlace> {
        let beyond = NoPlace::Beyond(self.places_max);
        let (index, generation) = self.cipher.place(seid).ok_or(beyond)?;
        let place = Place::new(index).filter(|_| index < self.places_max);
        let place = place.ok_or(beyond)?;
        match self.get(place) {
            Some(_) => Err(NoPlace::Taken),
            None => Ok((place, generation)),
        }
    }

    /// Puts a session where its SEID leads.
    pub(crate) fn insert(&mut self, seid: u64, session: S) -> Result<Place, NoPlace> {
        let (place, generation) = self.free_place(seid)?;
        while self.slot(place).is_none() {
            self.grow().ok_or(NoPlace::Beyond(self.places_max))?;
        }
        self.note(place);
        self.unlink(place);
        let cipher = self.cipher;
        if let Some(slot) = self.slot_mut(place) {
            slot.content = Content::Session(session);
            slot.generation = generation;
            // A session that comes back later brings a generation of its own.
            if is_not_before(generation, slot.next_generation) {
                slot.next_generation = after(cipher, place.index(), generation);
            }
            let next = slot.next_generation;
            if is_not_before(next, self.latest) {
                self.latest = next;
            }
            self.len += 1;
        }
        Ok(place)
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<S> {
        let next = self.free;
        let slot = self.slot_mut(place)?;
        slot.content.session()?;
        let free = Content::Free {
            previous: None,
            next,
        };
        let Content::Session(session) = std::mem::replace(&mut slot.content, free) else {
            return None;
        };
        self.note(place);
        self.head(place, next);
        self.len -= 1;
        Some(session)
    }

    /// A place that says so itself becomes the first of the list of free places.
    fn head(&mut self, place: Place, next: Option<Place>) {
        if let Some(Content::Free { previous, .. }) = self.content_mut(next) {
            *previous = Some(place);
        }
        self.free = Some(place);
    }

    /// Takes a place out of the list of free ones.
    fn unlink(&mut self, place: Place) {
        let Some(&mut Content::Free { previous, next }) = self.content_mut(Some(place)) else {
            return;
        };
        if let Some(Content::Free { previous: of, .. }) = self.content_mut(next) {
            *of = previous;
        }
        match self.content_mut(previous) {
            Some(Content::Free { next: of, .. }) => *of = next,
            _ => self.free = next,
        }
    }

    fn content_mut(&mut self, place: Option<Place>) -> Option<&mut Content<S>> {
        Some(&mut self.slot_mut(place?)?.content)
    }

    /// Place that a SEID leads to, if it is one of ours; what is there is not read.
    pub(crate) fn place_of(&self, seid: u64) -> Option<Place> {
        let (index, _) = self.cipher.place(seid)?;
        let chunk = self.chunks.get(index as usize / CHUNK)?;
        let there = (index as usize % CHUNK) < chunk.len();
        Place::new(index).filter(|_| there)
    }

    pub(crate) fn find(&self, seid: u64) -> Option<Place> {
        let (index, generation) = self.cipher.place(seid)?;
        let place = Place::new(index)?;
        let slot = self.slot(place)?;
        let is_there = slot.content.session().is_some();
        (is_there && slot.generation == generation).then_some(place)
    }

    pub(crate) fn find_mut(&mut self, seid: u64) -> Option<&mut S> {
        self.find(seid).and_then(|place| self.get_mut(place))
    }

    /// The SEID of the session that is here.
    pub(crate) fn seid(&self, place: Place) -> Option<u64> {
        let slot = self.slot(place)?;
        slot.content.session()?;
        Some(self.cipher.seid(place.index(), slot.generation))
    }

    pub(crate) fn get(&self, place: Place) -> Option<&S> {
        self.slot(place)?.content.session()
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut S> {
        self.note(place);
        self.unnoted_mut(place)
    }

    /// To change what is no part of the session by itself.
    pub(crate) fn unnoted_mut(&mut self, place: Place) -> Option<&mut S> {
        match &mut self.slot_mut(place)?.content {
            Content::Session(session) => Some(session),
            Content::Free { .. } => None,
        }
    }

    /// The place behind this one, whether or not a session is there.
    pub(crate) fn after(&self, place: Place) -> Option<Place> {
        let next = Place::new(place.index().wrapping_add(1))?;
        self.slot(next).map(|_| next)
    }

    /// All sessions with their SEIDs, in order of their places, from after the place of `seid` on.
    /// A place keeps its number when its session goes, so a listing in pages goes on undisturbed.
    pub(crate) fn iter_after(&self, seid: Option<u64>) -> impl Iterator<Item = (u64, &S)> {
        let place = seid.map(|seid| self.cipher.place(seid));
        // One of another cluster member comes after all of ours.
        let first = place.map_or(0, |place| {
            place.map_or(PLACES, |(index, _)| index + 1) as usize
        });
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
                        slot.content.session()?,
                    ))
                })
        })
    }

    /// One more place, which is the first of the free ones.
    fn grow(&mut self) -> Option<()> {
        let index = self.next_index()?;
        let place = Place::new(index)?;
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
        if full {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let generation = self.first_generation(index);
        let next = self.free;
        self.chunks.last_mut()?.push(Slot {
            generation,
            next_generation: generation,
            content: Content::Free {
                previous: None,
                next,
            },
        });
        self.head(place, next);
        Some(())
    }

    /// Of the place behind all others. `None`: there are no more.
    fn next_index(&self) -> Option<u32> {
        let places = match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK + last.len(),
            None => 0,
        };
        let index = u32::try_from(places).ok()?;
        (index < self.places_max).then_some(index)
    }

    /// No SEID is zero.
    fn first_generation(&self, index: u32) -> u32 {
        match self.cipher.seid(index, self.first) {
            0 => after(self.cipher, index, self.first),
            _ => self.first,
        }
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

/// Generations come round: those of one half are before the others.
pub(crate) fn is_not_before(generation: u32, other: u32) -> bool {
    generation.wrapping_sub(other) % GENERATIONS < GENERATIONS / 2
}

/// The generation behind one, with which this place has a SEID.
fn after(cipher: Cipher, index: u32, generation: u32) -> u32 {
    let next = generation.wrapping_add(1) % GENERATIONS;
    match cipher.seid(index, next) {
        0 => (next + 1) % GENERATIONS,
        _ => next,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    impl<S> Slab<S> {
        pub(crate) const SLOT_OCTETS: usize = size_of::<Slot<S>>();

        fn add(&mut self, session: S) -> u64 {
            let seid = self.next_seid().unwrap();
            let place = self.insert(seid, session).unwrap();
            assert_eq!(self.find(seid), Some(place));
            seid
        }

        /// Every place is in the list of free ones or has a session, and no generation is used again.
        fn check_places(&self) {
            let (mut free, mut previous, mut next) = (0, None, self.free);
            while let Some(place) = next {
                let slot = self.slot(place).unwrap();
                let Content::Free {
                    previous: before,
                    next: after,
                } = slot.content
                else {
                    panic!("a session at a free place");
                };
                assert_eq!(before, previous);
                (free, previous, next) = (free + 1, Some(place), after);
            }
            let places: usize = self.chunks.iter().map(Vec::len).sum();
            assert_eq!(free + self.len, places);
            let taken = self.iter_after(None).count();
            assert_eq!(taken, self.len);
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Come,
        Go(usize),
        Return(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => Just(Step::Come),
            2 => any::<usize>().prop_map(Step::Go),
            1 => any::<usize>().prop_map(Step::Return),
        ]
    }

    proptest! {
        /// Sessions come, go, and come back under the SEIDs that they had, or do not.
        #[test]
        fn a_session_has_its_seid_alone_and_wherever_it_goes(
            seed: u64,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut slab = Slab::new(seed, 40);
            let (mut here, mut away, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
            for step in steps {
                match step {
                    Step::Come if here.len() < 40 => {
                        let seid = slab.add(seen.len());
                        prop_assert!(seen.insert(seid), "a SEID that another session had");
                        here.push((seid, seen.len() - 1));
                    }
                    Step::Go(which) if !here.is_empty() => {
                        let (seid, session) = here.swap_remove(which % here.len());
                        let place = slab.find(seid).unwrap();
                        prop_assert_eq!(slab.remove(place), Some(session));
                        prop_assert_eq!(slab.find(seid), None);
                        prop_assert_eq!(slab.remove(place), None);
                        away.push((seid, session));
                    }
                    Step::Return(which) if !away.is_empty() => {
                        let at = which % away.len();
                        let (seid, session) = away[at];
                        let is_free = slab.check(seid);
                        prop_assert_eq!(slab.insert(seid, session).map(|_| ()), is_free);
                        if is_free.is_ok() {
                            here.push(away.swap_remove(at));
                        }
                    }
                    _ => {}
                }
                slab.check_places();
                for (seid, session) in &here {
                    prop_assert_eq!(slab.get(slab.find(*seid).unwrap()), Some(session));
                }
            }
            let full = here.len() == 40;
            prop_assert_eq!(slab.next_seid().is_none(), full);
        }
    }

    #[test]
    fn a_seid_that_leads_nowhere_takes_no_memory() {
        let mut slab = Slab::new(7, 2000);
        let cipher = Cipher::new(7);
        let last = cipher.seid(1999, 5);
        assert_eq!(
            slab.insert(cipher.seid(2000, 5), ()),
            Err(NoPlace::Beyond(2000))
        );
        assert_eq!(slab.insert(last | 1 << 52, ()), Err(NoPlace::Beyond(2000)));
        assert!(slab.chunks.is_empty());
        let place = slab.insert(last, ()).unwrap();
        assert_eq!((slab.find(last), slab.len()), (Some(place), 1));
        assert_eq!(slab.insert(last, ()), Err(NoPlace::Taken));
        slab.check_places();
        for _ in 0..1999 {
            slab.add(());
        }
        assert_eq!(slab.next_seid(), None);
    }

    #[test]
    fn a_seid_is_not_used_again_with_its_place() {
        let mut slab = Slab::new(1, 5000);
        let mut seen = HashSet::new();
        for i in 0..5000 {
            let seid = slab.add(i);
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
        let mut slab = Slab::new(9, 3000);
        let seids: Vec<u64> = (0..3000).map(|i| slab.add(i)).collect();
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
