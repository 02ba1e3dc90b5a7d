//! Local tunnel endpoints (TS 29.281, 5.1).
//!
//! A TEID is a slot of the entry table in its lower 24 bits and a generation above, so that packets
//! find their entry without a search, and late packets of a tunnel that is gone do not meet the next
//! user of its slot. An SMF may also choose TEIDs itself; those take their slot when it is free and
//! are `direct` like ours, or else are found by search.

use std::collections::HashSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::alloc::indices::{Indices, Taken};
use crate::base::salted::Salted;
use crate::base::time::Time;

/// How long a slot rests before it gets its next generation, where others are free.
const REST_NS: u64 = 2_000_000_000;

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// A TEID in use, and whether its table slot is its alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LocalTeid {
    /// Never zero, which marks path messages.
    pub teid: NonZeroU32,
    /// The table slot `teid & 0xff_ffff` is this TEID's.
    pub direct: bool,
}

/// How to take back what [`Teids::choose`] or [`Teids::claim`] did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grant {
    Slot { taken: Taken, former: u8 },
    Elsewhere(NonZeroU32),
}

#[derive(Debug)]
pub(crate) struct Teids {
    slots: Indices,
    /// Of the present or last TEID of a slot, relative to `base`.
    generations: Vec<u8>,
    /// Where generations begin: differs from start to start, so that a gNB which missed a restart
    /// does not hit a new user.
    base: u8,
    /// TEIDs chosen by SMFs whose slot was taken or lies beyond the table.
    elsewhere: HashSet<NonZeroU32, Salted>,
    elsewhere_max: usize,
}

impl Teids {
    /// Slots `1..slots`; at most as many TEIDs again that have no slot.
    pub(crate) fn new(slots: u32, seed: u64) -> Self {
        let slots = slots.min(SLOT_MASK + 1);
        Self {
            slots: Indices::new(1, slots, REST_NS),
            generations: vec![0; slots as usize],
            base: (seed >> 32) as u8,
            elsewhere: HashSet::with_hasher(Salted::new(seed)),
            elsewhere_max: slots as usize,
        }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.slots.in_use() + self.elsewhere.len()
    }

    /// TEIDs that can have a slot.
    pub(crate) fn capacity(&self) -> usize {
        self.generations.len().saturating_sub(1)
    }

    /// One of our own choice. `None`: all are in use.
    pub(crate) fn choose(&mut self, now: Time) -> Option<(LocalTeid, Grant)> {
        let taken = self.slots.choose(now)?;
        let former = self.generation(taken.index());
        let mut generation = former;
        // An SMF may hold this slot's next TEID without its slot; a few steps always suffice,
        // because it would have to hold all 256.
        for _ in 0..=u8::MAX {
            generation = generation.wrapping_add(1);
            let Some(teid) = self.teid(taken.index(), generation) else {
                continue;
            };
            if !self.elsewhere.contains(&teid) {
                self.set_generation(taken.index(), generation);
                return Some((
                    LocalTeid { teid, direct: true },
                    Grant::Slot { taken, former },
                ));
            }
        }
        self.slots.undo(taken);
        None
    }

    /// One that an SMF chose. `None`: it is in use, or there is no room for it.
    pub(crate) fn claim(&mut self, teid: NonZeroU32) -> Option<(LocalTeid, Grant)> {
        if self.is_used(teid) {
            return None;
        }
        let slot = teid.get() & SLOT_MASK;
        if slot > 0
            && let Some(taken) = self.slots.claim(slot)
        {
            let former = self.generation(slot);
            self.set_generation(slot, self.generation_of(teid));
            return Some((
                LocalTeid { teid, direct: true },
                Grant::Slot { taken, former },
            ));
        }
        if self.elsewhere.len() >= self.elsewhere_max {
            return None;
        }
        self.elsewhere.insert(teid);
        Some((
            LocalTeid {
                teid,
                direct: false,
            },
            Grant::Elsewhere(teid),
        ))
    }

    pub(crate) fn is_used(&self, teid: NonZeroU32) -> bool {
        let slot = teid.get() & SLOT_MASK;
        (self.slots.is_used(slot) && self.teid(slot, self.generation(slot)) == Some(teid))
            || self.elsewhere.contains(&teid)
    }

    pub(crate) fn release(&mut self, local: LocalTeid, now: Time) {
        if local.direct {
            self.slots.release(local.teid.get() & SLOT_MASK, now);
        } else {
            self.elsewhere.remove(&local.teid);
        }
    }

    pub(crate) fn undo(&mut self, grant: Grant) {
        match grant {
            Grant::Slot { taken, former } => {
                self.set_generation(taken.index(), former);
                self.slots.undo(taken);
            }
            Grant::Elsewhere(teid) => {
                self.elsewhere.remove(&teid);
            }
        }
    }

    fn teid(&self, slot: u32, generation: u8) -> Option<NonZeroU32> {
        NonZeroU32::new(u32::from(generation.wrapping_add(self.base)) << SLOT_BITS | slot)
    }

    fn generation_of(&self, teid: NonZeroU32) -> u8 {
        ((teid.get() >> SLOT_BITS) as u8).wrapping_sub(self.base)
    }

    fn generation(&self, slot: u32) -> u8 {
        self.generations.get(slot as usize).copied().unwrap_or(0)
    }

    fn set_generation(&mut self, slot: u32, generation: u8) {
        if let Some(kept) = self.generations.get_mut(slot as usize) {
            *kept = generation;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn teid(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).unwrap()
    }

    #[test]
    fn a_slot_comes_back_under_a_new_generation() {
        let mut teids = Teids::new(2, 0);
        let (first, _) = teids.choose(Time(0)).unwrap();
        teids.release(first, Time(0));
        let (second, _) = teids.choose(Time(0)).unwrap();
        assert_eq!(first.teid.get() & SLOT_MASK, second.teid.get() & SLOT_MASK);
        assert_ne!(first.teid, second.teid);
    }

    #[test]
    fn an_smf_gets_the_slot_it_asks_for_and_nobody_gets_it_twice() {
        let mut teids = Teids::new(16, 7 << 32);
        let (claimed, _) = teids.claim(teid(5)).unwrap();
        assert!(claimed.direct);
        assert!(teids.claim(teid(5)).is_none());
        let (other, _) = teids.claim(teid(0x0900_0005)).unwrap();
        assert!(!other.direct);
        assert!(teids.claim(teid(0x0900_0005)).is_none());
        let (far, _) = teids.claim(teid(0x00ff_0000)).unwrap();
        assert!(!far.direct);
        assert_eq!(teids.in_use(), 3);
    }

    #[test]
    fn a_choice_steps_over_a_teid_that_an_smf_holds_elsewhere() {
        let mut teids = Teids::new(2, 0);
        let (own, _) = teids.choose(Time(0)).unwrap();
        let next = teid(own.teid.get() + (1 << SLOT_BITS));
        let (held, _) = teids.claim(next).unwrap();
        assert!(!held.direct);
        teids.release(own, Time(0));
        let (chosen, _) = teids.choose(Time(0)).unwrap();
        assert_ne!(chosen.teid, next);
    }

    proptest! {
        #[test]
        fn no_teid_is_held_twice(steps in prop::collection::vec((0u8..5, any::<u8>(), 0u32..12), 0..200)) {
            let mut teids = Teids::new(8, 0x2300_0000_0000);
            let mut held: HashMap<NonZeroU32, LocalTeid> = HashMap::new();
            for (step, high, low) in steps {
                let wanted = NonZeroU32::new(u32::from(high % 4) << SLOT_BITS | low);
                match (step, wanted) {
                    (0, _) => {
                        if let Some((local, _)) = teids.choose(Time(0)) {
                            prop_assert!(held.insert(local.teid, local).is_none());
                        }
                    }
                    (1, _) => {
                        if let Some((_, grant)) = teids.choose(Time(0)) {
                            teids.undo(grant);
                        }
                    }
                    (2, Some(wanted)) => {
                        if let Some((local, _)) = teids.claim(wanted) {
                            prop_assert!(held.insert(wanted, local).is_none());
                        }
                    }
                    (3, Some(wanted)) => {
                        if let Some((_, grant)) = teids.claim(wanted) {
                            teids.undo(grant);
                        }
                    }
                    _ => {
                        if let Some(&local) = held.values().nth(low as usize) {
                            teids.release(local, Time(0));
                            held.remove(&local.teid);
                        }
                    }
                }
                prop_assert_eq!(teids.in_use(), held.len());
                prop_assert!(held.keys().all(|&t| teids.is_used(t)));
                let mut slots: Vec<u32> = held.values().filter(|l| l.direct).map(|l| l.teid.get() & SLOT_MASK).collect();
                slots.sort_unstable();
                slots.dedup();
                prop_assert_eq!(slots.len(), held.values().filter(|l| l.direct).count());
            }
        }
    }
}
