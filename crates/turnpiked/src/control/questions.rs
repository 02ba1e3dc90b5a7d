//! Time of the control thread for what REST asks: short turns between looks at N4, so that no request of an SMF waits for a
//! reader longer than one of them takes.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::snapshot::RestTotals;

/// Of a turn; its last item may end some microseconds later. With N4 idle, turns follow each other.
const QUANTUM: Duration = Duration::from_micros(200);
/// While requests come: about what serving one takes.
const QUANTUM_BESIDE_N4: Duration = Duration::from_micros(50);
/// N4 is idle when no request has come for so long.
const IDLE: Duration = Duration::from_millis(10);

/// Time of one turn, beyond which the rest of an answer waits for the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantum {
    until: Instant,
}

impl Quantum {
    pub(super) fn until(until: Instant) -> Self {
        Self { until }
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.until
    }

    /// Each of `items` is looked at, at most so many, one at least, until the time is over; `each` says after which one to go
    /// on. How many there were, and after which one there is more.
    pub(super) fn look<I, K>(
        self,
        mut items: impl Iterator<Item = I>,
        limit: usize,
        mut each: impl FnMut(I) -> K,
    ) -> (usize, Option<K>) {
        let (mut looked, mut last) = (0, None);
        while looked < limit
            && (looked == 0 || !self.is_over())
            && let Some(item) = items.next()
        {
            last = Some(each(item));
            looked += 1;
        }
        let more = items.next().is_some();
        (looked, last.filter(|_| more))
    }
}

/// Belongs to the control thread.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// There may be some.
    waiting: bool,
    served_n4: Option<Instant>,
    /// CPU time of the thread when the turn began.
    begun: Duration,
    totals: RestTotals,
}

impl Questions {
    /// The control thread has been woken: there may be some.
    pub(super) fn may_wait(&mut self) {
        self.waiting = true;
    }

    pub(super) fn none_waits(&mut self) {
        self.waiting = false;
    }

    /// Whether there may be some, so that the thread does not sleep.
    pub(super) fn wait(&self) -> bool {
        self.waiting
    }

    pub(super) fn n4_is_served(&mut self) {
        self.served_n4 = Some(Instant::now());
    }

    /// The next turn; `None`: nobody asks.
    pub(super) fn begin(&mut self) -> Option<Quantum> {
        if !self.waiting {
            return None;
        }
        let now = Instant::now();
        self.begun = cpu_time();
        Some(Quantum::until(now + self.length(now)))
    }

    fn length(&self, now: Instant) -> Duration {
        let is_recent = |served: Instant| now.duration_since(served) < IDLE;
        if self.served_n4.is_some_and(is_recent) {
            QUANTUM_BESIDE_N4
        } else {
            QUANTUM
        }
    }

    /// The turn is over. CPU time that it took: what other programs took meanwhile is not of its making.
    pub(super) fn end(&mut self) -> Duration {
        let took = cpu_time().saturating_sub(self.begun);
        self.totals.turns += 1;
        self.totals.seconds += took.as_secs_f64();
        self.totals.longest_s = self.totals.longest_s.max(took.as_secs_f64());
        took
    }

    pub(super) fn totals(&self) -> RestTotals {
        self.totals
    }
}

/// Of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_is_over_has_one_item_and_the_next_goes_on() {
        let over = Quantum::until(Instant::now());
        let (mut all, mut after, mut turns) = (Vec::new(), None, 0);
        loop {
            let items = after.map_or(0, |last: u32| last + 1)..5;
            let (looked, next) = over.look(items, 100, |item| {
                all.push(item);
                item
            });
            (after, turns) = (next, turns + 1);
            assert_eq!(looked, 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!((all, turns), (vec![0, 1, 2, 3, 4], 5));
        let long = Quantum::until(Instant::now() + Duration::from_secs(3600));
        assert_eq!(long.look(0..5, 3, |item| item), (3, Some(2)));
        assert_eq!(long.look(0..5, 5, |item| item), (5, None));
        assert_eq!(long.look(0..0, 5, |item: u32| item), (0, None));
    }

    #[test]
    fn turns_are_short_while_requests_come() {
        let mut questions = Questions::default();
        let now = Instant::now();
        assert!(questions.begin().is_none(), "nobody has asked");
        assert_eq!(questions.length(now), QUANTUM);
        questions.served_n4 = Some(now);
        assert_eq!(questions.length(now + IDLE / 2), QUANTUM_BESIDE_N4);
        assert_eq!(questions.length(now + IDLE), QUANTUM);
        questions.may_wait();
        assert!(questions.wait() && questions.begin().is_some());
        questions.end();
        questions.none_waits();
        assert!(!questions.wait() && questions.begin().is_none());
        assert_eq!(questions.totals().turns, 1);
    }
}
