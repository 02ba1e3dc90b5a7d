//! Frames above their rate, which wait in a timing wheel until they leave (`datapath/platform/worker/tp_wheel.h`).

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::abi::host::{
    TP_WHEEL_FULL, TP_WHEEL_NEVER, TP_WHEEL_WAITS, tp_wheel, tp_wheel_count_in, tp_wheel_free,
    tp_wheel_left_ns, tp_wheel_new, tp_wheel_next_ns, tp_wheel_put, tp_wheel_take,
};
use crate::abi::shared::tp_shaper_stats;
use crate::drop_reason::DropReason;
use crate::memory::Octets;

/// Sizes of the wheel that each worker has, or the thread that keeps frames for programs of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shaping {
    /// Time that one slot stands for: a packet leaves late by less than that.
    pub granularity: Duration,
    /// Slots, rounded up to a power of two.
    pub slots: u32,
    /// Packets that may wait.
    pub frames: u32,
}

impl Shaping {
    /// The longest that a packet may wait. One slot less than there are, because time does not begin with a slot.
    pub fn longest_wait(&self) -> Duration {
        self.granularity * (self.slots.next_power_of_two() - 1)
    }

    /// Time within which a packet that may wait has left: it may be on its way to the wheel for some time, and leaves when its slot has
    /// ended.
    pub(crate) fn leave_within(&self) -> Duration {
        self.longest_wait() + self.granularity + Duration::from_millis(1)
    }

    pub(crate) fn longest_wait_ns(&self) -> u64 {
        u64::try_from(self.longest_wait().as_nanos()).unwrap_or(u64::MAX)
    }

    fn granularity_ns(&self) -> u64 {
        u64::try_from(self.granularity.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A timing wheel, empty at first. What it holds are words of the caller's.
#[derive(Debug)]
pub(crate) struct Wheel(NonNull<tp_wheel>);

// SAFETY: a wheel is memory of its own, and whoever changes it has it alone.
unsafe impl Send for Wheel {}

impl Wheel {
    pub(crate) fn new(shaping: Shaping) -> io::Result<Self> {
        // SAFETY: no pointer is given.
        let wheel =
            unsafe { tp_wheel_new(shaping.granularity_ns(), shaping.slots, shaping.frames) };
        let wheel = NonNull::new(wheel).map(Self);
        wheel.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    pub(crate) fn as_ptr(&self) -> *mut tp_wheel {
        self.0.as_ptr()
    }

    /// Whether it waits; else the drop reason.
    fn put(&mut self, leaves_ns: u64, word: u64) -> Result<(), DropReason> {
        // SAFETY: the wheel is there as long as `self`, and nobody else's.
        match unsafe { tp_wheel_put(self.as_ptr(), leaves_ns, word) } {
            TP_WHEEL_WAITS => Ok(()),
            TP_WHEEL_FULL => Err(DropReason::ShaperFull),
            _ => Err(DropReason::ShaperHorizon),
        }
    }

    fn take(&mut self, now_ns: u64, words: &mut [u64]) -> usize {
        let (to, n) = (words.as_mut_ptr(), words.len() as u32);
        // SAFETY: as above; there is room for so many words.
        unsafe { tp_wheel_take(self.as_ptr(), now_ns, to, n) as usize }
    }

    /// Count in these words from now on.
    ///
    /// # Safety
    ///
    /// They live as long as the wheel, and nobody else writes them.
    pub(crate) unsafe fn count_in(&mut self, stats: &tp_shaper_stats) {
        let stats = std::ptr::from_ref(stats).cast_mut();
        // SAFETY: the wheel is there as long as `self`; for the words, the caller vouches. They are atomics, which may change
        // behind a shared reference.
        unsafe { tp_wheel_count_in(self.as_ptr(), stats) };
    }

    /// Departure times up to which all frames have left.
    pub(crate) fn left_ns(&self) -> u64 {
        // SAFETY: as above.
        unsafe { tp_wheel_left_ns(self.as_ptr()) }
    }

    /// When the next one is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        // SAFETY: as above.
        let next = unsafe { tp_wheel_next_ns(self.as_ptr()) };
        (next != TP_WHEEL_NEVER).then_some(next)
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        // SAFETY: it was made by `tp_wheel_new`, and nobody has it any more.
        unsafe { tp_wheel_free(self.as_ptr()) };
    }
}

/// A frame whose time has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure<'a> {
    pub(crate) came_by: usize,
    pub(crate) to: u32,
    pub(crate) frame: &'a [u8],
}

/// Frames that are taken out at once.
const BATCH: usize = 64;

/// A wheel, and memory for the frames in it: copies, as they will leave.
#[derive(Debug)]
pub(crate) struct Waiting {
    wheel: Wheel,
    memory: Octets,
    /// Octets of one place.
    stride: usize,
    free: Vec<u32>,
    /// Words of frames whose time has come.
    due: [u64; BATCH],
    n_due: usize,
}

/// A frame as one word: place, length, and the ports that it came by and leaves by.
mod word {
    const LEN: u32 = 24;
    const TO: u32 = 48;
    const CAME_BY: u32 = 56;

    pub(super) fn of(place: u32, len: usize, came_by: usize, to: u32) -> u64 {
        u64::from(place) | (len as u64) << LEN | u64::from(to) << TO | (came_by as u64) << CAME_BY
    }

    pub(super) fn place(word: u64) -> u32 {
        word as u32 & ((1 << LEN) - 1)
    }

    pub(super) fn len(word: u64) -> usize {
        (word >> LEN) as usize & ((1 << (TO - LEN)) - 1)
    }

    pub(super) fn came_by(word: u64) -> usize {
        (word >> CAME_BY) as usize
    }

    pub(super) fn to(word: u64) -> u32 {
        (word >> TO) as u32 & 0xff
    }
}

impl Waiting {
    /// For frames of so many octets at most. Memory is taken as frames first wait in it.
    pub(crate) fn new(shaping: Shaping, longest: usize) -> io::Result<Self> {
        let stride = longest.next_multiple_of(64);
        Ok(Self {
            wheel: Wheel::new(shaping)?,
            memory: Octets::new(stride * shaping.frames as usize)?,
            stride,
            // The lowest is used first, and anew, so that little memory is touched while few wait.
            free: (0..shaping.frames).rev().collect(),
            due: [0; BATCH],
            n_due: 0,
        })
    }

    pub(crate) fn wheel(&self) -> &Wheel {
        &self.wheel
    }

    pub(crate) fn wheel_mut(&mut self) -> &mut Wheel {
        &mut self.wheel
    }

    /// Keep a frame until its time. Whether it waits; else the drop reason.
    pub(crate) fn keep(
        &mut self,
        leaves_ns: u64,
        departure: Departure<'_>,
    ) -> Result<(), DropReason> {
        let Departure { came_by, to, frame } = departure;
        let place = *self.free.last().ok_or(DropReason::ShaperFull)?;
        let start = place as usize * self.stride;
        let room = &mut self.memory[start..start + self.stride];
        let room = room
            .get_mut(..frame.len())
            .ok_or(DropReason::FrameTooLong)?;
        let word = word::of(place, frame.len(), came_by, to);
        self.wheel.put(leaves_ns, word)?;
        room.copy_from_slice(frame);
        self.free.pop();
        Ok(())
    }

    /// Done with the frames that were due before; look for more. Whether there are some.
    pub(crate) fn release(&mut self, now_ns: u64) -> bool {
        let gone = self.due[..self.n_due].iter();
        self.free.extend(gone.rev().map(|&word| word::place(word)));
        self.n_due = self.wheel.take(now_ns, &mut self.due);
        self.n_due > 0
    }

    /// Frames that are due, in the order of their times.
    pub(crate) fn released(&self) -> impl Iterator<Item = Departure<'_>> + Clone {
        self.due[..self.n_due].iter().map(|&word| {
            let start = word::place(word) as usize * self.stride;
            Departure {
                came_by: word::came_by(word),
                to: word::to(word),
                frame: &self.memory[start..start + word::len(word)],
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPING: Shaping = Shaping {
        granularity: Duration::from_micros(10),
        slots: 64,
        frames: 3,
    };

    fn departure(came_by: usize, to: u32, frame: &[u8]) -> Departure<'_> {
        Departure { came_by, to, frame }
    }

    #[test]
    fn frames_wait_as_they_are_and_their_places_come_back() {
        let mut waiting = Waiting::new(SHAPING, 2000).unwrap();
        for round in 0..100u64 {
            let now = 1_000_000 + round * 1_000_000;
            assert!(!waiting.release(now));
            for n in 0..3u8 {
                let frame = vec![n; 1000 + usize::from(n)];
                let at = now + 15_000 - u64::from(n / 2) * 10_000;
                let kept = waiting.keep(at, departure(usize::from(n), 15 - u32::from(n), &frame));
                assert_eq!(kept, Ok(()));
            }
            let late = departure(0, 0, &[0; 60]);
            assert_eq!(waiting.keep(now, late), Err(DropReason::ShaperFull));
            assert_eq!(waiting.wheel().next_ns(), Some(now + 10_000));
            assert!(!waiting.release(now + 9_999));
            for (at, numbers) in [(10_000, &[2u8][..]), (29_999, &[0, 1])] {
                assert!(waiting.release(now + at));
                let left: Vec<_> = waiting
                    .released()
                    .map(|d| (d.came_by, d.to, d.frame.to_vec()))
                    .collect();
                let should: Vec<_> = numbers
                    .iter()
                    .map(|&n| {
                        let frame = vec![n; 1000 + usize::from(n)];
                        (usize::from(n), 15 - u32::from(n), frame)
                    })
                    .collect();
                assert_eq!(left, should);
            }
            assert!(!waiting.release(now + 30_000));
            assert_eq!(waiting.wheel().next_ns(), None);
        }
    }

    #[test]
    fn what_cannot_wait_is_refused_under_its_name() {
        let mut waiting = Waiting::new(SHAPING, 2000).unwrap();
        let now = 5_000_000;
        assert!(!waiting.release(now));
        let beyond = now + 65 * 10_000;
        let frame = [1; 60];
        assert_eq!(
            waiting.keep(beyond, departure(0, 0, &frame)),
            Err(DropReason::ShaperHorizon)
        );
        let longest = now + u64::try_from(SHAPING.longest_wait().as_nanos()).unwrap();
        assert_eq!(waiting.keep(longest, departure(0, 0, &frame)), Ok(()));
        let too_long = departure(0, 0, &[0; 2049]);
        assert_eq!(waiting.keep(now, too_long), Err(DropReason::FrameTooLong));
        assert!(waiting.release(longest + 10_000));
    }
}
