//! The time that the caller hands in.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds on a monotonic clock of the caller's choice. The core has no clock of its own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub u64);

impl Time {
    /// `self + delay`; the end of time when that is further than 584 years.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(delay_ns))
    }

    /// Time from `earlier` to `self`; zero when the caller's clock went back.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_both_ends() {
        assert_eq!(Time(u64::MAX).after(Duration::MAX), Time(u64::MAX));
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
        assert_eq!(Time(9).since(Time(5)), Duration::from_nanos(4));
    }
}
