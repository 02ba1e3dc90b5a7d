//! Moments at which usage is looked at.

use crate::base::time::Time;
use crate::base::wall_clock::WallClock;

/// Now, by our clock and by that of the wall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Time,
    pub(crate) wall: WallClock,
}

impl Moment {
    /// NTP seconds, modulo 2^32 as IEs have them.
    pub(crate) fn ntp(self, at: Time) -> u32 {
        self.wall.ntp_s(at) as u32
    }
}
