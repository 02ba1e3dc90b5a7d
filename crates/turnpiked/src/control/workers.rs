//! Workers in a process of their own that have ended, or hang, and others in their place.

use std::io;
use std::time::{Duration, Instant};

use tables::Tables;

/// Replacements within a while, at most: more are no accident, and whoever supervises this process is to know.
const MOST: usize = 5;
const WHILE: Duration = Duration::from_secs(600);

/// When workers were replaced, as far as it matters.
#[derive(Debug, Default)]
pub(super) struct Replacements(Vec<Instant>);

impl Replacements {
    /// Other workers run packets when this returns. `why`: those before do not. An error: nobody does.
    pub(super) fn replace(&mut self, why: &io::Error, tables: &mut Tables) -> io::Result<()> {
        let began = Instant::now();
        if !self.may(began) {
            let again = format!("{why}, and so it was {MOST} times within {WHILE:?}");
            return Err(io::Error::other(again));
        }
        tracing::error!(error = %why, "packets stop until other workers have started");
        let failed = |error| io::Error::other(format!("{why}; others do not start: {error}"));
        tables.replace_workers().map_err(failed)?;
        let after_ms = began.elapsed().as_millis() as u64;
        tracing::warn!(after_ms, "packets go on with other workers");
        Ok(())
    }

    /// Whether there is to be one at this time.
    fn may(&mut self, now: Instant) -> bool {
        self.0.retain(|at| now.duration_since(*at) < WHILE);
        let may = self.0.len() < MOST;
        if may {
            self.0.push(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_end_again_and_again_are_replaced_a_few_times() {
        let mut replacements = Replacements::default();
        let began = Instant::now();
        let mut may = |after_s| replacements.may(began + Duration::from_secs(after_s));
        for after_s in [0, 100, 200, 300, 400] {
            assert!(may(after_s));
        }
        assert!(!may(599));
        assert!(may(600), "the first is long ago");
        assert!(!may(699) && may(700));
    }
}
