//! Entries in transition: from a change of their words, or of their place in a session, until no packet can be affected any more.
//!
//! Most entries are in none. Of one that is, all there is to know is here, and nothing of tables: reading and writing words is left
//! to those who ask.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::iter;

use compiled::Counters;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

/// State of an entry in transition.
#[derive(Debug, Default)]
struct Transition {
    /// Grace periods of its words. What ends with them does so with the last one alone: before, packets may still be on
    /// their way to it that met it later.
    graces: u32,
    /// Nothing leads to the entry any more, so that its line is free thereafter.
    free: bool,
    /// Number of grace periods after which it may no longer have to forward behind what waits at it. The last counts.
    drains: u32,
    late: Late,
    /// Entry that has taken its place, and counts one packet more as held until all that waits here has left.
    awaited_by: Option<u32>,
    /// Entries that have taken its place, and count one frame more as shaped until those of this one have left.
    followed_by: Vec<u32>,
    /// Entries whose counts it has taken over, and whose grace period is not over.
    earlier: SmallVec<[Earlier; 1]>,
}

impl Transition {
    fn is_over(&self) -> bool {
        self.graces == 0
            && self.drains == 0
            && self.late == Late::Unasked
            && self.awaited_by.is_none()
            && self.followed_by.is_empty()
            && self.earlier.is_empty()
    }
}

/// Fate of counts that are added while grace periods are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Late {
    /// Nobody asks for them.
    #[default]
    Unasked,
    /// This entry takes them over.
    Heir(u32),
    /// Its PDR is gone, and had counted so many bytes then: those beyond are in no report.
    Lost { seen: u64 },
}

/// An entry whose counts another one has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) index: u32,
    /// Bytes that it had counted when the alarm of its heir was set.
    pub(crate) seen: u64,
    /// Bytes that QoS enforcement had dropped then.
    pub(crate) qos_seen: u64,
    /// It counted for another predefined rule of the PDR than its heir does.
    pub(crate) is_others: bool,
}

/// Counts of entries before, beyond their grace period: of a PDR, for as long as it is there.
#[derive(Debug, Default)]
struct Before {
    counters: Counters,
    /// Share of these that other predefined rules of the PDR have counted.
    others: Option<Box<Counters>>,
}

impl Before {
    fn add(&mut self, counters: Counters, is_others: bool) {
        self.counters = self.counters.plus(counters);
        if is_others {
            let others = self.others.get_or_insert_default();
            **others = others.plus(counters);
        }
    }
}

/// Grace periods of an entry's words that are about to be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastGrace {
    pub(crate) free: bool,
    /// Another entry stays behind packets that wait at this one.
    pub(crate) is_awaited: bool,
    /// Another entry stays behind frames of this one.
    pub(crate) is_followed: bool,
}

/// Outcome of a transition.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) free: bool,
    pub(crate) late: Late,
    pub(crate) awaited_by: Option<u32>,
    pub(crate) followed_by: Vec<u32>,
}

/// The states of all entries in transition.
#[derive(Debug, Default)]
pub(crate) struct Transitions {
    states: HashMap<u32, Transition, FixedState>,
    before: HashMap<u32, Before, FixedState>,
}

impl Transitions {
    /// Whether packets may still be reading what the words of an entry said before.
    pub(crate) fn is_settling(&self, index: u32) -> bool {
        self.states
            .get(&index)
            .is_some_and(|state| state.graces > 0)
    }

    /// A grace period begins for the words of an entry; with `free`, nothing leads to it any more.
    pub(crate) fn retire(&mut self, index: u32, free: bool) {
        let state = self.states.entry(index).or_default();
        state.graces += 1;
        state.free |= free;
    }

    /// A grace period of an entry's words is over. `Some`: the last; it goes on until [`Self::settle`].
    pub(crate) fn last_grace(&mut self, index: u32) -> Option<LastGrace> {
        let state = self.states.get_mut(&index)?;
        if state.graces > 1 {
            state.graces -= 1;
            return None;
        }
        Some(LastGrace {
            free: state.free,
            is_awaited: state.awaited_by.is_some(),
            is_followed: !state.followed_by.is_empty(),
        })
    }

    /// No packet can meet what an entry said before. It stays in transition if it waits to drain, or if entries before it have not
    /// settled yet.
    pub(crate) fn settle(&mut self, index: u32) -> Option<Settled> {
        self.change(index, |state| {
            state.graces = 0;
            Settled {
                free: std::mem::take(&mut state.free),
                late: std::mem::take(&mut state.late),
                awaited_by: state.awaited_by.take(),
                followed_by: std::mem::take(&mut state.followed_by),
            }
        })
    }

    /// Change a state that there is; with that, the transition may be over.
    fn change<T>(&mut self, index: u32, change: impl FnOnce(&mut Transition) -> T) -> Option<T> {
        let Entry::Occupied(mut state) = self.states.entry(index) else {
            return None;
        };
        let result = change(state.get_mut());
        if state.get().is_over() {
            state.remove();
        }
        Some(result)
    }

    /// An entry forwards behind what waits at it for one grace period more.
    pub(crate) fn drain(&mut self, index: u32) {
        self.states.entry(index).or_default().drains += 1;
    }

    /// One of these grace periods is over. Whether it was the last, which goes on until [`Self::is_drained`].
    pub(crate) fn last_drain(&mut self, index: u32) -> bool {
        match self.states.get_mut(&index) {
            Some(state) if state.drains > 1 => {
                state.drains -= 1;
                false
            }
            _ => true,
        }
    }

    /// Nothing waits at an entry any more.
    pub(crate) fn is_drained(&mut self, index: u32) {
        self.change(index, |state| state.drains = 0);
    }

    /// Entry `to` counts one packet more as held until what waits at `from` has left.
    pub(crate) fn wait_behind(&mut self, from: u32, to: u32) {
        self.states.entry(from).or_default().awaited_by = Some(to);
    }

    /// Entry `to` counts one frame more as shaped until those of `from` have left.
    pub(crate) fn leave_behind(&mut self, from: u32, to: u32) {
        let state = self.states.entry(from).or_default();
        state.followed_by.push(to);
    }

    /// Entry `to` goes on counting where `own` stops, and where those stopped that it had taken over from. `own.is_others`: for
    /// another predefined rule, so that what all of these counted is not `to`'s own.
    pub(crate) fn carry(&mut self, own: Earlier, to: u32) {
        let from = self.states.entry(own.index).or_default();
        from.late = Late::Heir(to);
        let mut earlier = std::mem::take(&mut from.earlier);
        for of in &mut earlier {
            of.is_others |= own.is_others;
            if let Some(state) = self.states.get_mut(&of.index) {
                state.late = Late::Heir(to);
            }
        }
        earlier.push(own);
        let heir = self.states.entry(to).or_default();
        heir.earlier.append(&mut earlier);
        if self.before.is_empty() {
            return;
        }
        if let Some(mut before) = self.before.remove(&own.index) {
            if own.is_others {
                before.others = Some(Box::new(before.counters));
            }
            match self.before.get_mut(&to) {
                Some(heir) => {
                    heir.counters = heir.counters.plus(before.counters);
                    if let Some(others) = before.others {
                        let own = heir.others.get_or_insert_default();
                        **own = own.plus(*others);
                    }
                }
                None => drop(self.before.insert(to, before)),
            }
        }
    }

    /// The PDR of an entry is gone, and with it what it had taken over. `counted`: bytes of an entry, if its late ones are asked
    /// for.
    pub(crate) fn forget(&mut self, index: u32, counted: Option<impl Fn(u32) -> u64>) {
        if let Some(counted) = &counted {
            let seen = counted(index);
            self.states.entry(index).or_default().late = Late::Lost { seen };
        }
        if !self.before.is_empty() {
            self.before.remove(&index);
        }
        let earlier = self.change(index, |state| std::mem::take(&mut state.earlier));
        for earlier in earlier.into_iter().flatten() {
            let late = counted.as_ref().map_or(Late::Unasked, |counted| {
                let seen = counted(earlier.index);
                Late::Lost { seen }
            });
            if let Some(state) = self.states.get_mut(&earlier.index) {
                state.late = late;
            }
        }
    }

    /// The last counts of an entry go over to its heir for good. `None`: it had not taken them over.
    pub(crate) fn hand_over(&mut self, index: u32, heir: u32, last: Counters) -> Option<Earlier> {
        let own = self.change(heir, |state| {
            let place = state.earlier.iter().position(|of| of.index == index)?;
            Some(state.earlier.remove(place))
        })??;
        let before = self.before.entry(heir).or_default();
        before.add(last, own.is_others);
        Some(own)
    }

    /// Entries whose counts an entry has taken over, and whose grace period is not over.
    pub(crate) fn earlier(&mut self, index: u32) -> &mut [Earlier] {
        let state = self.states.get_mut(&index);
        state.map_or(&mut [], |state| &mut state.earlier)
    }

    /// Counts of an entry together with those that it has taken over. `own`: only those of its own predefined rule.
    pub(crate) fn counters(
        &self,
        index: u32,
        own: bool,
        counted: impl Fn(u32) -> Counters,
    ) -> Counters {
        let mut sum = counted(index);
        if let Some(before) = self.before.get(&index) {
            sum = sum.plus(before.counters);
            if let Some(others) = before.others.as_ref().filter(|_| own) {
                sum = less(sum, **others);
            }
        }
        let earlier = self.states.get(&index).map(|state| &state.earlier);
        for of in earlier.into_iter().flatten() {
            if !(own && of.is_others) {
                sum = sum.plus(counted(of.index));
            }
        }
        sum
    }

    /// Entries that [`Self::counters`] adds up for one, and the counts beside them.
    pub(crate) fn counted_at(&self, index: u32) -> (impl Iterator<Item = u32>, Option<Counters>) {
        let earlier = self.states.get(&index).map(|state| &state.earlier);
        let earlier = earlier.into_iter().flatten().map(|of| of.index);
        let before = self.before.get(&index).map(|before| before.counters);
        (iter::once(index).chain(earlier), before)
    }

    /// Counts that an entry has taken over from those that have settled.
    pub(crate) fn before(&self, index: u32) -> Counters {
        let before = self.before.get(&index);
        before.map_or(Counters::default(), |before| before.counters)
    }
}

fn less(all: Counters, others: Counters) -> Counters {
    Counters {
        packets: all.packets.saturating_sub(others.packets),
        bytes: all.bytes.saturating_sub(others.bytes),
        drops: all.drops.saturating_sub(others.drops),
        qos_packets: all.qos_packets.saturating_sub(others.qos_packets),
        qos_bytes: all.qos_bytes.saturating_sub(others.qos_bytes),
        delayed: all.delayed.saturating_sub(others.delayed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> Counters {
        Counters {
            bytes,
            ..Counters::default()
        }
    }

    fn own(index: u32, is_others: bool) -> Earlier {
        Earlier {
            index,
            seen: 0,
            qos_seen: 0,
            is_others,
        }
    }

    #[test]
    fn an_entry_is_in_transition_until_its_last_grace_period() {
        let mut all = Transitions::default();
        all.retire(7, false);
        all.retire(7, true);
        all.drain(7);
        assert!(all.last_grace(7).is_none(), "one more is under way");
        let last = all.last_grace(7).unwrap();
        assert!(last.free && !last.is_awaited && !last.is_followed);
        assert!(all.is_settling(7), "until it is said to be over");
        assert!(all.settle(7).unwrap().free);
        assert!(!all.is_settling(7) && all.states.len() == 1, "it drains");
        assert!(all.last_drain(7));
        all.is_drained(7);
        assert!(all.states.is_empty());
        assert!(all.last_grace(7).is_none() && all.settle(7).is_none());
    }

    /// 1 is replaced by 2, and that by 3 while packets may still be under way to 1. Then another predefined rule's entry has it all.
    #[test]
    fn counts_follow_a_pdr_from_entry_to_entry() {
        let counted = |index: u32| bytes(10u64.pow(index));
        let mut all = Transitions::default();
        for (from, to) in [(1, 2), (2, 3)] {
            all.carry(own(from, false), to);
            all.retire(from, true);
        }
        assert_eq!(all.counters(3, false, counted), bytes(1110));
        for index in [1, 2] {
            let settled = all.settle(index).unwrap();
            assert_eq!(settled.late, Late::Heir(3));
            assert!(all.hand_over(index, 3, counted(index)).is_some());
            assert_eq!(all.counters(3, false, counted), bytes(1110));
        }
        assert!(all.states.is_empty());
        all.carry(own(3, true), 4);
        all.retire(3, true);
        let sums = |all: &Transitions| [false, true].map(|own| all.counters(4, own, counted));
        assert_eq!(sums(&all), [11_110, 10_000].map(bytes));
        all.settle(3);
        all.hand_over(3, 4, counted(3));
        assert_eq!(sums(&all), [11_110, 10_000].map(bytes));
        all.forget(4, Some(|index| counted(index).bytes));
        assert_eq!(all.settle(4).unwrap().late, Late::Lost { seen: 10_000 });
        assert!(all.states.is_empty() && all.before.is_empty());
    }

    #[test]
    fn late_counts_of_a_pdr_that_is_gone_are_known_as_such() {
        let mut all = Transitions::default();
        all.carry(own(1, false), 2);
        all.retire(1, true);
        all.forget(2, Some(|index| u64::from(index) * 5));
        assert_eq!(all.settle(1).unwrap().late, Late::Lost { seen: 5 });
        let mut all = Transitions::default();
        all.carry(own(1, false), 2);
        all.retire(1, true);
        all.forget(2, None::<fn(u32) -> u64>);
        assert_eq!(all.settle(1).unwrap().late, Late::Unasked);
        assert!(all.states.is_empty());
    }
}
