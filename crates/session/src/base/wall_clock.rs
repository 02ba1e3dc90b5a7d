//! The wall clock, which SMFs name times by.

use std::time::Duration;

use crate::base::time::Time;

/// Reading of the wall clock at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    at: Time,
    ntp: Duration,
}

impl WallClock {
    /// At `at` it said that it was `ntp` after the beginning of 1900.
    pub(crate) fn new(at: Time, ntp: Duration) -> Self {
        Self { at, ntp }
    }

    /// Its reading at another time, in NTP seconds.
    pub(crate) fn ntp_s(self, at: Time) -> u64 {
        self.ntp(at).as_secs()
    }

    fn ntp(self, at: Time) -> Duration {
        (self.ntp + at.since(self.at)).saturating_sub(self.at.since(at))
    }

    /// When it says so many NTP seconds; when it was told, where that is past.
    pub(crate) fn when(self, ntp_s: u64) -> Time {
        self.at
            .after(Duration::from_secs(ntp_s).saturating_sub(self.ntp))
    }

    /// When its present second began.
    pub(crate) fn whole_second(self, at: Time) -> Time {
        Time(at.0.saturating_sub(self.ntp(at).subsec_nanos().into()))
    }
}
