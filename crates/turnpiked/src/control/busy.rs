//! How much of its time the control thread works.

use std::time::{Duration, Instant};

/// Time that a figure is taken over.
const PERIOD: Duration = Duration::from_secs(1);

/// Time at work and at rest, by the clock: what other programs take of the CPU while there is work
/// counts as work.
pub(super) struct Busy {
    since: Instant,
    rested: Duration,
    resting_since: Instant,
}

impl Busy {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            since: now,
            rested: Duration::ZERO,
            resting_since: now,
        }
    }

    pub(super) fn rests(&mut self) {
        self.resting_since = Instant::now();
    }

    /// So much of the time at work counts as rest.
    pub(super) fn excuse(&mut self, time: Duration) {
        self.rested += time;
    }

    /// Percent of the last period at work, once a period is over.
    pub(super) fn works(&mut self) -> Option<u8> {
        let now = Instant::now();
        self.rested += now - self.resting_since;
        let period = now - self.since;
        if period < PERIOD {
            return None;
        }
        let worked = period.saturating_sub(self.rested);
        self.since = now;
        self.rested = Duration::ZERO;
        Some((worked.as_secs_f64() / period.as_secs_f64() * 100.0) as u8)
    }
}
