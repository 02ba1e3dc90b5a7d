//! Numbers handed out from a fixed range, each at most once at a time.
//!
//! Every operation is O(1) amortised. Memory is two bits per number, in pages that the system
//! commits when they are touched, so that a pool of sixteen million costs nothing while it is idle.

use std::collections::VecDeque;

use crate::base::time::Time;

/// Free numbers wait in the order in which they became free; a fresh one is preferred to one that
/// has not rested.
#[derive(Debug, Default)]
pub(crate) struct Indices {
    /// The lowest number to choose. Lower ones can only be claimed.
    first: u32,
    size: u32,
    in_use: usize,
    /// Every number from `first` on and below this is in use or in `resting`.
    fresh: u32,
    rest_ns: u64,
    used: Bits,
    /// In `resting`. A number that was claimed while it rested stays there, in use, until it
    /// comes to the front.
    queued: Bits,
    resting: VecDeque<Resting>,
    /// Numbers in use that choices, not settled yet, took from the front of `resting`.
    passed: Vec<Resting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resting {
    since: Coarse,
    index: u32,
}

/// How to take back an [`Indices::choose`] or [`Indices::claim`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    index: u32,
    from: From,
    /// So many of `passed`.
    passed: u32,
}

#[derive(Clone, Copy, Debug)]
enum From {
    Fresh,
    Resting(Coarse),
    Claimed,
}

/// 2^27 ns (0.13 s) steps: what a resting time needs, in four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Coarse(u32);

impl Coarse {
    fn of(time: Time) -> Self {
        // Wraps after 18 years; differences are taken modulo.
        Self((time.0 >> 27) as u32)
    }

    fn elapsed_ns(self, now: Time) -> u64 {
        u64::from(Self::of(now).0.wrapping_sub(self.0)) << 27
    }
}

impl Taken {
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

impl Indices {
    /// Numbers `first..size`, each resting `rest_ns` between two users where others are free.
    pub(crate) fn new(first: u32, size: u32, rest_ns: u64) -> Self {
        Self {
            first,
            size,
            in_use: 0,
            fresh: first,
            rest_ns,
            used: Bits::new(size),
            queued: Bits::new(size),
            resting: VecDeque::new(),
            passed: Vec::new(),
        }
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    pub(crate) fn is_used(&self, index: u32) -> bool {
        self.used.get(index)
    }

    /// Any free number. `None` when all are in use.
    pub(crate) fn choose(&mut self, now: Time) -> Option<Taken> {
        let passed = self.pass_claimed();
        let rested = self
            .resting
            .front()
            .is_some_and(|r| r.since.elapsed_ns(now) >= self.rest_ns);
        let taken = if rested {
            self.take_resting()
        } else {
            // When nothing else is left, one that has not rested is better than a refusal.
            self.take_fresh().or_else(|| self.take_resting())
        };
        let Some((index, from)) = taken else {
            self.put_back(passed);
            return None;
        };
        self.used.set(index);
        self.in_use += 1;
        Some(Taken {
            index,
            from,
            passed,
        })
    }

    /// The first of the last `count` numbers, a power of two, that are all free, if the first is to be a multiple
    /// of `count` and `suits`. They are not taken by this.
    pub(crate) fn last_free(&self, count: u32, suits: impl Fn(u32) -> bool) -> Option<u32> {
        let blocks = (0..self.size / count).rev();
        blocks.map(|block| block * count).find(|&first| {
            let is_free = self.next_used(first, first + count) == first + count;
            first >= self.first && is_free && suits(first)
        })
    }

    /// This very number. `None` when it is in use or out of range.
    pub(crate) fn claim(&mut self, index: u32) -> Option<Taken> {
        if index >= self.size || self.used.get(index) {
            return None;
        }
        self.used.set(index);
        self.in_use += 1;
        Some(Taken {
            index,
            from: From::Claimed,
            passed: 0,
        })
    }

    /// Free from `now` on.
    pub(crate) fn release(&mut self, index: u32, now: Time) {
        if !self.used.get(index) {
            return;
        }
        self.used.clear(index);
        self.in_use -= 1;
        if index >= self.first && !self.queued.get(index) {
            self.queued.set(index);
            self.resting.push_back(Resting {
                since: Coarse::of(now),
                index,
            });
        }
    }

    /// Nothing that was taken so far will be undone.
    pub(crate) fn settle(&mut self) {
        self.passed.clear();
    }

    /// As if it had never been taken. The latest one first, until [`Self::settle`].
    pub(crate) fn undo(&mut self, taken: Taken) {
        let index = taken.index;
        self.used.clear(index);
        self.in_use -= 1;
        match taken.from {
            From::Fresh => self.fresh = index,
            From::Resting(since) => self.rest_first(Resting { since, index }),
            From::Claimed if self.queued.get(index) || index < self.first => {}
            // A choice made meanwhile may have passed it as in use.
            From::Claimed => self.fresh = self.fresh.min(index),
        }
        self.put_back(taken.passed);
    }

    fn rest_first(&mut self, resting: Resting) {
        self.queued.set(resting.index);
        self.resting.push_front(resting);
    }

    fn pass_claimed(&mut self) -> u32 {
        let before = self.passed.len();
        while let Some(&front) = self.resting.front() {
            if !self.used.get(front.index) {
                break;
            }
            self.resting.pop_front();
            self.queued.clear(front.index);
            self.passed.push(front);
        }
        (self.passed.len() - before) as u32
    }

    fn put_back(&mut self, passed: u32) {
        for _ in 0..passed {
            let Some(resting) = self.passed.pop() else {
                return;
            };
            self.rest_first(resting);
        }
    }

    fn take_resting(&mut self) -> Option<(u32, From)> {
        let Resting { since, index } = self.resting.pop_front()?;
        self.queued.clear(index);
        Some((index, From::Resting(since)))
    }

    fn take_fresh(&mut self) -> Option<(u32, From)> {
        while self.fresh < self.size {
            let index = self.fresh;
            if !self.used.get(index) && !self.queued.get(index) {
                self.fresh = index + 1;
                return Some((index, From::Fresh));
            }
            self.fresh = self.next_unused(index + 1);
        }
        None
    }

    /// The first from `from` on that is in use, or `end`; whole words at a time.
    fn next_used(&self, from: u32, end: u32) -> u32 {
        let mut at = from;
        while at < end && !self.used.get(at) {
            let whole = at.is_multiple_of(64) && self.used.word(at) == 0;
            at += if whole { 64 } else { 1 };
        }
        at.min(end)
    }

    /// The first at or after `from` that is not in use, whole words at a time.
    fn next_unused(&self, from: u32) -> u32 {
        let mut at = from;
        while at < self.size {
            if at.is_multiple_of(64) && self.used.word(at) == u64::MAX {
                at = at.saturating_add(64);
            } else if self.used.get(at) {
                at += 1;
            } else {
                break;
            }
        }
        at.min(self.size)
    }
}

#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(size: u32) -> Self {
        Self(vec![0; (size as usize).div_ceil(64)])
    }

    fn word(&self, index: u32) -> u64 {
        self.0.get(index as usize / 64).copied().unwrap_or(0)
    }

    fn get(&self, index: u32) -> bool {
        self.word(index) >> (index % 64) & 1 == 1
    }

    fn set(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut(index as usize / 64) {
            *word |= 1 << (index % 64);
        }
    }

    fn clear(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut(index as usize / 64) {
            *word &= !(1 << (index % 64));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_released_number_rests_while_others_are_fresh() {
        let mut pool = Indices::new(1, 8, 10 * SECOND);
        assert_eq!(pool.choose(Time(0)).map(|t| t.index()), Some(1));
        pool.release(1, Time(0));
        assert_eq!(pool.choose(Time(SECOND)).map(|t| t.index()), Some(2));
        assert_eq!(pool.choose(Time(11 * SECOND)).map(|t| t.index()), Some(1));
    }

    #[test]
    fn the_last_one_is_given_without_rest() {
        let mut pool = Indices::new(0, 2, 10 * SECOND);
        assert!(pool.choose(Time(0)).is_some());
        assert!(pool.choose(Time(0)).is_some());
        assert!(pool.choose(Time(0)).is_none());
        pool.release(1, Time(0));
        assert_eq!(pool.choose(Time(0)).map(|t| t.index()), Some(1));
    }

    #[test]
    fn claims_and_releases_of_one_number_do_not_grow_the_queue() {
        let mut pool = Indices::new(0, 4, 0);
        for _ in 0..100 {
            assert!(pool.claim(3).is_some());
            pool.release(3, Time(0));
        }
        assert_eq!(pool.resting.len(), 1);
    }

    #[test]
    fn a_claim_undone_after_a_choice_passed_it_is_not_lost() {
        let mut pool = Indices::new(0, 2, 0);
        let _ = pool.claim(0);
        let _ = pool.claim(1);
        pool.release(0, Time(0));
        pool.release(1, Time(0));
        let claimed = pool.claim(0).unwrap();
        let chosen = pool.choose(Time(0)).unwrap();
        pool.undo(chosen);
        pool.undo(claimed);
        assert!(pool.choose(Time(0)).is_some());
        assert!(pool.choose(Time(0)).is_some());
    }

    #[test]
    fn a_claim_undone_after_a_choice_passed_it_has_not_rested_any_longer() {
        let mut pool = Indices::new(0, 3, 10 * SECOND);
        let _ = pool.claim(0);
        pool.release(0, Time(100 * SECOND));
        let claimed = pool.claim(0).unwrap();
        let chosen = pool.choose(Time(101 * SECOND)).unwrap();
        pool.undo(chosen);
        pool.undo(claimed);
        assert_eq!(pool.choose(Time(101 * SECOND)).map(|t| t.index()), Some(1));
    }

    #[test]
    fn a_fresh_claim_undone_after_a_choice_passed_it_is_not_lost() {
        let mut pool = Indices::new(0, 2, 0);
        let claimed = pool.claim(0).unwrap();
        let chosen = pool.choose(Time(0)).unwrap();
        pool.undo(chosen);
        pool.undo(claimed);
        assert_eq!(pool.choose(Time(0)).map(|t| t.index()), Some(0));
    }

    #[test]
    fn a_number_below_the_first_is_claimed_but_never_chosen() {
        let mut pool = Indices::new(1, 3, 0);
        let claimed = pool.claim(0).unwrap();
        pool.undo(claimed);
        assert!(pool.claim(0).is_some());
        pool.release(0, Time(0));
        assert_eq!(pool.choose(Time(0)).map(|t| t.index()), Some(1));
        assert_eq!(pool.choose(Time(0)).map(|t| t.index()), Some(2));
        assert!(pool.choose(Time(0)).is_none());
    }

    proptest! {
        /// Requests of several takings each, some of them refused, and a twin that never heard of those.
        #[test]
        fn what_a_refused_request_took_leaves_no_trace(
            requests in prop::collection::vec(
                (prop::collection::vec((any::<bool>(), 0u32..20), 1..6), any::<bool>(), 0u32..20, 0u64..3),
                0..60,
            )
        ) {
            let mut twins = [(); 2].map(|()| Indices::new(1, 17, SECOND));
            let mut now = 0;
            for (takings, is_refused, released, pause) in requests {
                now += pause * SECOND / 2;
                let take = |pool: &mut Indices| -> Vec<Taken> {
                    let each = |&(chosen, index): &(bool, u32)| match chosen {
                        true => pool.choose(Time(now)),
                        false => pool.claim(index),
                    };
                    takings.iter().filter_map(each).collect()
                };
                if is_refused {
                    let taken = take(&mut twins[0]);
                    taken.into_iter().rev().for_each(|taken| twins[0].undo(taken));
                    prop_assert!(twins[0].passed.is_empty());
                } else {
                    let [one, other] = twins.each_mut().map(|pool| {
                        let taken = take(pool);
                        pool.settle();
                        pool.release(released, Time(now));
                        taken.iter().map(Taken::index).collect::<Vec<_>>()
                    });
                    prop_assert_eq!(one, other);
                }
            }
        }

        /// Against a set: never twice, never lost, undone without a trace.
        #[test]
        fn agrees_with_a_set(steps in prop::collection::vec((0u8..5, 0u32..40, 0u64..3), 0..300)) {
            let mut pool = Indices::new(1, 33, SECOND);
            let mut model = BTreeSet::new();
            let mut now = 0;
            for (step, index, pause) in steps {
                now += pause * SECOND / 2;
                match step {
                    0 | 1 => {
                        let taken = pool.choose(Time(now));
                        prop_assert_eq!(taken.is_some(), model.iter().filter(|&&i| i > 0).count() < 32);
                        if let Some(taken) = taken {
                            prop_assert!((1..33).contains(&taken.index()));
                            if step == 0 {
                                prop_assert!(model.insert(taken.index()));
                            } else {
                                pool.undo(taken);
                            }
                        }
                    }
                    2 | 3 => {
                        let free = (1..33).contains(&index) && !model.contains(&index);
                        let index = index.max(1);
                        let free = free || (index == 1 && !model.contains(&1));
                        let taken = pool.claim(index);
                        prop_assert_eq!(taken.is_some(), free);
                        if let Some(taken) = taken {
                            if step == 2 {
                                model.insert(index);
                            } else {
                                pool.undo(taken);
                            }
                        }
                    }
                    _ => {
                        pool.release(index, Time(now));
                        model.remove(&index);
                    }
                }
                prop_assert_eq!(pool.in_use(), model.len());
                prop_assert!((0..40).all(|i| pool.is_used(i) == model.contains(&i)));
            }
        }
    }
}
