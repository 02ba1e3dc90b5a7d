//! Local tunnel endpoints (TS 29.281, 5.1).
//!
//! A TEID is a slot of the entry table in its lower 24 bits and a generation above, so that packets
//! find their entry without a search, and late packets of a tunnel that is gone do not meet the next
//! user of its slot. An SMF may also choose TEIDs itself; those take their slot when it is free, like ours.
//! Otherwise they are found by search, and lie in any other slot that is free: as many TEIDs fit whoever
//! chooses them.

use std::collections::HashSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::alloc::indices::{Indices, Taken};
use crate::base::time::Time;
use foldhash::quality::FixedState;

/// How long a slot rests before it gets its next generation, where others are free.
const REST_NS: u64 = 2_000_000_000;

const SLOT_BITS: u32 = 24;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// A TEID in use, and its slot of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct LocalTeid {
    /// Never zero, which marks path messages.
    pub teid: NonZeroU32,
    /// The slot is this TEID's alone; one of our own has `teid & 0xff_ffff`. `None`: more TEIDs are in use than there
    /// are slots.
    pub slot: Option<u32>,
}

/// As records have it, in few octets: 0 for no slot, 1 for the TEID's own, else the slot plus one.
type Written = (NonZeroU32, u32);

impl From<LocalTeid> for Written {
    fn from(local: LocalTeid) -> Self {
        let own = local.teid.get() & SLOT_MASK;
        let slot = local
            .slot
            .map_or(0, |slot| if slot == own { 1 } else { slot + 1 });
        (local.teid, slot)
    }
}

impl TryFrom<Written> for LocalTeid {
    type Error = &'static str;

    fn try_from((teid, slot): Written) -> Result<Self, Self::Error> {
        let own = teid.get() & SLOT_MASK;
        let slot = match slot {
            0 => None,
            1 if own > 0 => Some(own),
            slot if (2..=SLOT_MASK + 1).contains(&slot) && slot - 1 != own => Some(slot - 1),
            _ => return Err("a slot that no TEID has"),
        };
        Ok(Self { teid, slot })
    }
}

/// How to take back what [`Teids::choose`] or [`Teids::claim`] did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Grant {
    Slot { taken: Taken, former: u8 },
    Guest { taken: Taken, teid: NonZeroU32 },
    Elsewhere(NonZeroU32),
}

#[derive(Debug)]
pub(crate) struct Teids {
    slots: Indices,
    /// Generation of the present or last TEID of each slot, relative to `base`.
    generations: Vec<u8>,
    /// First generation: differs from start to start, so that a gNB which missed a restart, or is late,
    /// does not hit a new user.
    base: u8,
    /// TEIDs chosen by SMFs whose own slot was taken or lies beyond the table.
    elsewhere: HashSet<NonZeroU32, FixedState>,
    /// Slots that such a TEID has.
    guests: HashSet<u32, FixedState>,
    /// At most so many TEIDs without a slot.
    homeless_max: usize,
    homeless: usize,
}

impl Teids {
    /// Slots `1..slots`; at most as many TEIDs again that have no slot.
    pub(crate) fn new(slots: u32, seed: u64) -> Self {
        let slots = slots.min(SLOT_MASK + 1);
        Self {
            slots: Indices::new(1, slots, REST_NS),
            generations: vec![0; slots as usize],
            base: (seed >> 32) as u8,
            elsewhere: HashSet::with_hasher(FixedState::with_seed(seed)),
            guests: HashSet::with_hasher(FixedState::with_seed(seed)),
            homeless_max: slots as usize,
            homeless: 0,
        }
    }

    /// This is the so many-th process that goes on with TEIDs of the first one. None is in use yet.
    pub(crate) fn go_on(&mut self, succession: u32) {
        // Odd, so that it comes round after all of them.
        let step = (succession as u8).wrapping_mul(37);
        self.base = self.base.wrapping_add(step);
    }

    pub(crate) fn in_use(&self) -> usize {
        self.slots.in_use() + self.homeless
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
                let slot = Some(taken.index());
                return Some((LocalTeid { teid, slot }, Grant::Slot { taken, former }));
            }
        }
        self.slots.undo(taken);
        None
    }

    /// One that an SMF chose. `None`: it is in use, or there is no room for it.
    pub(crate) fn claim(&mut self, now: Time, teid: NonZeroU32) -> Option<(LocalTeid, Grant)> {
        if self.is_used(teid) {
            return None;
        }
        let slot = teid.get() & SLOT_MASK;
        if slot > 0
            && let Some(taken) = self.slots.claim(slot)
        {
            let former = self.generation(slot);
            self.set_generation(slot, self.generation_of(teid));
            let slot = Some(slot);
            return Some((LocalTeid { teid, slot }, Grant::Slot { taken, former }));
        }
        if let Some(taken) = self.slots.choose(now) {
            let slot = Some(taken.index());
            self.elsewhere.insert(teid);
            self.guests.insert(taken.index());
            return Some((LocalTeid { teid, slot }, Grant::Guest { taken, teid }));
        }
        if self.homeless >= self.homeless_max {
            return None;
        }
        self.elsewhere.insert(teid);
        self.homeless += 1;
        let slot = None;
        Some((LocalTeid { teid, slot }, Grant::Elsewhere(teid)))
    }

    pub(crate) fn is_used(&self, teid: NonZeroU32) -> bool {
        let slot = teid.get() & SLOT_MASK;
        let own = self.slots.is_used(slot) && !self.guests.contains(&slot);
        (own && self.teid(slot, self.generation(slot)) == Some(teid))
            || self.elsewhere.contains(&teid)
    }

    pub(crate) fn release(&mut self, local: LocalTeid, now: Time) {
        if let Some(slot) = local.slot {
            self.slots.release(slot, now);
        }
        if local.slot != Some(local.teid.get() & SLOT_MASK) {
            self.leave(local.teid, local.slot);
        }
    }

    /// A TEID that is not in its own slot goes.
    fn leave(&mut self, teid: NonZeroU32, slot: Option<u32>) {
        let was = self.elsewhere.remove(&teid);
        match slot {
            Some(slot) => drop(self.guests.remove(&slot)),
            None => self.homeless -= usize::from(was),
        }
    }

    /// Nothing that was granted so far will be undone.
    pub(crate) fn settle(&mut self) {
        self.slots.settle();
    }

    pub(crate) fn undo(&mut self, grant: Grant) {
        match grant {
            Grant::Slot { taken, former } => {
                self.set_generation(taken.index(), former);
                self.slots.undo(taken);
            }
            Grant::Guest { taken, teid } => {
                self.leave(teid, Some(taken.index()));
                self.slots.undo(taken);
            }
            Grant::Elsewhere(teid) => self.leave(teid, None),
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
        let mut claim = |value| teids.claim(Time(0), teid(value));
        let slot = |claimed: Option<(LocalTeid, Grant)>| claimed.unwrap().0.slot.unwrap();
        assert_eq!(slot(claim(5)), 5);
        assert!(claim(5).is_none());
        let other = slot(claim(0x0900_0005));
        assert!(claim(0x0900_0005).is_none());
        let far = slot(claim(0x00ff_0000));
        assert!(other != 5 && far != 5 && other != far && other.max(far) < 16);
        assert_eq!(teids.in_use(), 3);
    }

    #[test]
    fn an_smf_fills_all_slots_and_as_much_again_whatever_it_chooses() {
        for stride in [1, 16, 1 << SLOT_BITS, 0x0101_0101, 0x9e37_79b9] {
            let mut teids = Teids::new(16, 7 << 32);
            let mut wanted = (1u32..).map(|n| n.wrapping_mul(stride));
            let mut slots: Vec<u32> = Vec::new();
            for _ in 0..15 {
                let claimed = teids.claim(Time(0), teid(wanted.next().unwrap()));
                slots.extend(claimed.unwrap().0.slot);
            }
            slots.sort_unstable();
            assert_eq!(slots, (1..16).collect::<Vec<_>>(), "{stride}");
            assert!(teids.choose(Time(0)).is_none());
            for _ in 0..16 {
                let claimed = teids.claim(Time(0), teid(wanted.next().unwrap()));
                assert_eq!(claimed.unwrap().0.slot, None);
            }
            assert!(teids.claim(Time(0), teid(0x7777_7777)).is_none());
        }
    }

    #[test]
    fn the_last_teid_of_a_slot_is_free_while_another_ones_is_a_guest_there() {
        let mut teids = Teids::new(2, 0);
        let (former, _) = teids.choose(Time(0)).unwrap();
        teids.release(former, Time(0));
        let (guest, _) = teids.claim(Time(0), teid(0x0077_0000)).unwrap();
        assert_eq!(guest.slot, Some(1));
        assert!(!teids.is_used(former.teid));
        let (again, _) = teids.claim(Time(0), former.teid).unwrap();
        assert_eq!(again.slot, None);
    }

    #[test]
    fn a_choice_steps_over_a_teid_that_an_smf_holds_elsewhere() {
        let mut teids = Teids::new(2, 0);
        let (own, _) = teids.choose(Time(0)).unwrap();
        let next = teid(own.teid.get() + (1 << SLOT_BITS));
        let (held, _) = teids.claim(Time(0), next).unwrap();
        assert_eq!(held.slot, None);
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
                        if let Some((local, _)) = teids.claim(Time(0), wanted) {
                            prop_assert!(held.insert(wanted, local).is_none());
                        }
                    }
                    (3, Some(wanted)) => {
                        if let Some((_, grant)) = teids.claim(Time(0), wanted) {
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
                let mut slots: Vec<u32> = held.values().filter_map(|l| l.slot).collect();
                let all = slots.len();
                slots.sort_unstable();
                slots.dedup();
                prop_assert_eq!(slots.len(), all);
            }
        }
    }
}
