//! The core's clock, which goes on from process to process and, where a copy on a disk does, from host to host.

use session::Time;

/// `CLOCK_MONOTONIC` of the host, and how far the core's is ahead of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    ahead_ns: i64,
}

impl Clock {
    pub(crate) fn ahead_by(ahead_ns: i64) -> Self {
        Self { ahead_ns }
    }

    /// A clock that says this now.
    pub(crate) fn saying(now: Time) -> Self {
        Self::ahead_by(now.0.wrapping_sub(tables::monotonic_ns()).cast_signed())
    }

    pub(crate) fn ahead_ns(self) -> i64 {
        self.ahead_ns
    }

    pub(crate) fn now(self) -> Time {
        Time(tables::monotonic_ns().wrapping_add_signed(self.ahead_ns))
    }

    /// Reading of the host's clock at a time, for whoever does not know the core's.
    pub(crate) fn of_host(self, time: Time) -> Time {
        Time(time.0.wrapping_sub(self.ahead_ns.cast_unsigned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_on_where_another_one_stopped() {
        for stopped_ns in [0, 1_000_000, u64::MAX / 2] {
            let clock = Clock::saying(Time(stopped_ns));
            let now = clock.now();
            assert!((stopped_ns..stopped_ns + 1_000_000_000).contains(&now.0));
            let host = clock.of_host(now).0;
            assert!(host.abs_diff(tables::monotonic_ns()) < 1_000_000_000);
            assert!(Clock::ahead_by(clock.ahead_ns()).now() >= now);
        }
    }
}
