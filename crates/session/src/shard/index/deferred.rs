//! PDRs that begin to hold, or cease to, at a time that the SMF names (Activation Time and
//! Deactivation Time, TS 29.244, 8.2.121 and 8.2.122).
//!
//! Such times are those of the wall clock, in NTP seconds; our own time is monotonic. The caller
//! tells what the wall clock says, as often as it likes, so that a clock that is put right moves
//! what is due.

use std::collections::BTreeSet;
use std::time::Duration;

use compiled::PdrId;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::time::Time;
use crate::base::wall_clock::WallClock;

/// A time that an SMF has named: NTP seconds, modulo 2^32 and so within 68 years of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Moment {
    at: u32,
    /// It has, and what comes of it has been done: a wall clock that is put back does not undo it.
    has_come: bool,
}

impl Moment {
    fn new(at: u32) -> Self {
        let has_come = false;
        Self { at, has_come }
    }

    fn ahead_s(self, now_s: u64) -> i64 {
        i64::from(self.at.wrapping_sub(now_s as u32) as i32)
    }

    fn has_come(self, now_s: u64) -> bool {
        self.has_come || self.ahead_s(now_s) <= 0
    }
}

/// When a PDR holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timing {
    activation: Option<Moment>,
    deactivation: Option<Moment>,
}

impl Timing {
    /// These from now on; those that are not named stay.
    pub(crate) fn set(&mut self, activation: Option<u32>, deactivation: Option<u32>) {
        self.activation = activation.map(Moment::new).or(self.activation);
        self.deactivation = deactivation.map(Moment::new).or(self.deactivation);
    }

    fn moments(&mut self) -> impl Iterator<Item = &mut Moment> {
        [&mut self.activation, &mut self.deactivation]
            .into_iter()
            .flatten()
    }

    /// Whether the PDR holds. The latest of the two times that has come decides, or before
    /// either the one that comes first.
    fn is_active(self, now_s: u64) -> bool {
        match (self.activation, self.deactivation) {
            (None, None) => true,
            (Some(on), None) => on.has_come(now_s),
            (None, Some(off)) => !off.has_come(now_s),
            (Some(on), Some(off)) => {
                let (on_s, off_s) = (on.ahead_s(now_s), off.ahead_s(now_s));
                match (on.has_come(now_s), off.has_come(now_s)) {
                    (true, true) => on_s > off_s,
                    (on_has_come, false) if on_s < off_s => on_has_come,
                    (_, off_has_come) => !off_has_come,
                }
            }
        }
    }

    /// Takes down which of its times have come; those that are still to come.
    pub(crate) fn pass(&mut self, now_s: u64) -> impl Iterator<Item = u64> {
        self.moments().filter_map(move |moment| {
            moment.has_come = moment.has_come(now_s);
            let ahead = u64::try_from(moment.ahead_s(now_s)).ok()?;
            (!moment.has_come).then_some(now_s + ahead)
        })
    }
}

/// Timings of the PDRs of one session that have any.
pub(crate) type Timings = SmallVec<[(PdrId, Timing); 0]>;

/// PDRs that do not hold at this time.
pub(crate) fn dormant(timings: &Timings, now_s: u64, into: &mut Vec<PdrId>) {
    into.clear();
    let asleep = timings.iter().filter(|(_, t)| !t.is_active(now_s));
    into.extend(asleep.map(|(pdr, _)| *pdr));
}

/// The PDRs of a session that hold for some time only.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deferral {
    timings: Timings,
    /// When the next of them comes, in NTP seconds.
    next: Option<u64>,
    /// PDRs that do not hold at present.
    dormant: Vec<PdrId>,
}

impl Deferral {
    pub(crate) fn dormant(&self) -> &[PdrId] {
        &self.dormant
    }

    pub(crate) fn timings(&self) -> Timings {
        self.timings.clone()
    }
}

/// When sessions with such PDRs are due, by our SEID.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub(crate) struct Deferred {
    wall: WallClock,
    due: BTreeSet<(u64, u64)>,
}

impl Default for Deferred {
    fn default() -> Self {
        Self {
            wall: WallClock::new(Time(0), Duration::ZERO),
            due: BTreeSet::new(),
        }
    }
}

impl Deferred {
    /// The wall clock says that it is `ntp` after the beginning of 1900.
    pub(crate) fn set_clock(&mut self, now: Time, ntp: Duration) {
        self.wall = WallClock::new(now, ntp);
    }

    /// NTP seconds.
    pub(crate) fn now_s(&self, now: Time) -> u64 {
        self.wall.ntp_s(now)
    }

    pub(crate) fn wall(&self) -> WallClock {
        self.wall
    }

    /// A session's PDRs have these from now on; what is kept of it.
    pub(crate) fn set(
        &mut self,
        now: Time,
        seid: u64,
        before: Option<&Deferral>,
        timings: Timings,
    ) -> Option<Deferral> {
        self.unindex(seid, before);
        if timings.is_empty() {
            return None;
        }
        let mut deferral = Deferral {
            timings,
            next: None,
            dormant: Vec::new(),
        };
        self.schedule(seid, &mut deferral, self.now_s(now));
        Some(deferral)
    }

    /// The session is gone, or has other times. Whether the index had what follows from it.
    pub(crate) fn unindex(&mut self, seid: u64, deferral: Option<&Deferral>) -> bool {
        let next = deferral.and_then(|deferral| deferral.next);
        next.is_none_or(|at| self.due.remove(&(at, seid)))
    }

    /// The session has come with these times.
    pub(crate) fn index(&mut self, seid: u64, deferral: Option<&Deferral>) {
        let next = deferral.and_then(|deferral| deferral.next);
        self.due.extend(next.map(|at| (at, seid)));
    }

    pub(crate) fn schedule(&mut self, seid: u64, deferral: &mut Deferral, after_s: u64) {
        let ahead = deferral.timings.iter_mut();
        deferral.next = ahead.flat_map(|(_, t)| t.pass(after_s)).min();
        dormant(&deferral.timings, after_s, &mut deferral.dormant);
        self.index(seid, Some(deferral));
    }

    /// A session some of whose PDRs come or go now; it is to be scheduled anew.
    pub(crate) fn next_due(&mut self, now: Time) -> Option<u64> {
        let &(at, seid) = self.due.first()?;
        (at <= self.now_s(now)).then(|| {
            self.due.pop_first();
            seid
        })
    }

    /// It could not be done; try again in a second.
    pub(crate) fn retry(&mut self, now: Time, seid: u64, deferral: &mut Deferral) {
        let soon = self.now_s(now) + 1;
        if deferral.next.is_none_or(|next| next > soon) {
            if let Some(next) = deferral.next.replace(soon) {
                self.due.remove(&(next, seid));
            }
            self.due.insert((soon, seid));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| self.wall.when(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later than 2036, when 32 bits begin anew.
    const NOW: u64 = (1 << 32) + 5;

    fn timing(activation: Option<i32>, deactivation: Option<i32>) -> Timing {
        let at = |ahead: i32| (NOW as u32).wrapping_add_signed(ahead);
        times(activation.map(at), deactivation.map(at))
    }

    fn times(activation: Option<u32>, deactivation: Option<u32>) -> Timing {
        let mut timing = Timing::default();
        timing.set(activation, deactivation);
        timing
    }

    #[test]
    fn the_latest_time_that_has_passed_decides() {
        for (on, off, active) in [
            (None, None, true),
            (Some(-10), None, true),
            (Some(0), None, true),
            (Some(1), None, false),
            (None, Some(10), true),
            (None, Some(0), false),
            (None, Some(-10), false),
            (Some(-10), Some(10), true),
            (Some(10), Some(20), false),
            (Some(-20), Some(-10), false),
            (Some(10), Some(-10), false),
            (Some(-10), Some(-20), true),
            (Some(20), Some(10), true),
            (Some(-10), Some(-10), false),
        ] {
            assert_eq!(timing(on, off).is_active(NOW), active, "{on:?} {off:?}");
        }
    }

    #[test]
    fn what_is_ahead_is_so_across_the_end_of_an_era() {
        let before = (1u64 << 32) - 10;
        let mut timing = times(Some(5), Some((before - 1) as u32));
        assert_eq!(timing.pass(before).collect::<Vec<_>>(), [(1 << 32) + 5]);
        assert!(!timing.is_active(before) && timing.is_active((1 << 32) + 5));
    }

    #[test]
    fn a_clock_that_is_put_right_moves_what_is_due() {
        let mut deferred = Deferred::default();
        deferred.set_clock(Time(0), Duration::from_secs(1000));
        let in_an_hour = times(Some(4600), None);
        let timings = Timings::from_slice(&[(PdrId(1), in_an_hour)]);
        let mut kept = deferred.set(Time(0), 7, None, timings).unwrap();
        let second = |s: u64| Time(s * 1_000_000_000);
        assert_eq!(deferred.next_deadline(), Some(second(3600)));
        deferred.set_clock(second(10), Duration::from_secs(4590));
        assert_eq!(deferred.next_deadline(), Some(second(20)));
        assert_eq!(deferred.next_due(second(19)), None);
        assert_eq!(deferred.next_due(second(20)), Some(7));
        deferred.schedule(7, &mut kept, deferred.now_s(second(20)));
        assert_eq!(deferred.next_deadline(), None);
        deferred.retry(second(20), 7, &mut kept);
        assert_eq!(deferred.next_deadline(), Some(second(21)));
    }
}
