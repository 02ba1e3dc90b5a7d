//! Frames above their rate that were finished beside programs or workers, on their way to whoever keeps such frames
//! (`datapath/pipeline/shape.h`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::abi::raw;
#[cfg(feature = "dpdk")]
use crate::dpdk::FrameQueues;
use crate::shaping::Departure;
use crate::task::{EVENT_LATER, Event};

/// Octets in front of a frame (`struct tp_later`).
pub(crate) const LATER_LEN: usize = size_of::<raw::tp_later>();

/// A record of a frame that leaves later (`struct tp_later`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later<'a> {
    pub(crate) leaves_ns: u64,
    /// Entry whose `shaped` counts it, if there is one.
    pub(crate) entry: u32,
    pub(crate) departure: Departure<'a>,
}

impl<'a> Later<'a> {
    pub(crate) fn parse(record: &'a [u8]) -> Option<Self> {
        let event = Event::parse(record).filter(|event| event.kind == EVENT_LATER)?;
        Self::read(event.port as usize, event.data)
    }

    /// Without the header of its record.
    pub(crate) fn read(came_by: usize, data: &'a [u8]) -> Option<Self> {
        let (words, frame) = data.split_first_chunk::<LATER_LEN>()?;
        let word = |at: usize| {
            u32::from_ne_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let to = word(12);
        Some(Self {
            leaves_ns: u64::from(word(0)) | u64::from(word(4)) << 32,
            entry: word(8),
            departure: Departure { came_by, to, frame },
        })
    }
}

/// Frames for one that keeps them, in the order of their departures. The descriptor is readable while there are some.
#[derive(Debug)]
pub(crate) struct Inbox {
    records: Mutex<Records>,
    count: AtomicUsize,
    most: usize,
    wake: EventFd,
}

/// By departure, then as they came.
type ByDeparture = BTreeMap<(u64, u64), Vec<u8>>;

#[derive(Debug, Default)]
struct Records {
    by_departure: ByDeparture,
    came: u64,
}

impl Inbox {
    /// Room for so many frames.
    pub(crate) fn new(most: usize) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            records: Mutex::default(),
            count: AtomicUsize::new(0),
            most,
            wake: EventFd::from_flags(flags)?,
        })
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was room.
    fn give(&self, leaves_ns: u64, record: &[u8]) -> bool {
        let mut records = self.records();
        let count = records.by_departure.len();
        if count >= self.most {
            return false;
        }
        let came = records.came;
        records.came += 1;
        let by_departure = &mut records.by_departure;
        by_departure.insert((leaves_ns, came), record.to_vec());
        self.count.store(count + 1, Ordering::Release);
        if count == 0 {
            let _ = self.wake.write(1);
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Frames that have come so far, ever.
    pub(crate) fn came(&self) -> u64 {
        self.records().came
    }

    /// All frames.
    pub(crate) fn take_all(&self) -> Vec<Vec<u8>> {
        self.take(|all| std::mem::take(all).into_values().collect())
    }

    /// Frames that leave by then.
    pub(crate) fn take_until(&self, leaves_ns: u64) -> Vec<Vec<u8>> {
        self.take(|all| {
            let next = || {
                let first = all.first_entry()?;
                (first.key().0 <= leaves_ns).then(|| first.remove())
            };
            std::iter::from_fn(next).collect()
        })
    }

    /// Frames of the first so many that have come, ever.
    pub(crate) fn take_first(&self, came: u64) -> Vec<Vec<u8>> {
        self.take(|all| {
            let (first, later) = std::mem::take(all)
                .into_iter()
                .partition::<BTreeMap<_, _>, _>(|((_, before), _)| *before < came);
            *all = later;
            first.into_values().collect()
        })
    }

    fn take(&self, wanted: impl FnOnce(&mut ByDeparture) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut records = self.records();
        let taken = wanted(&mut records.by_departure);
        let count = records.by_departure.len();
        self.count.store(count, Ordering::Release);
        if count == 0 {
            let _ = self.wake.read();
        }
        taken
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// The way to whoever keeps frames above their rate. Clones are the same way.
#[derive(Clone, Debug)]
pub(crate) enum Handover {
    /// They leave at once.
    Nobody,
    /// A thread, for programs of the kernel.
    Thread(Arc<Inbox>),
    /// Workers, by their numbers.
    Workers(Arc<[Inbox]>),
    /// Likewise, in queues of DPDK's workers.
    #[cfg(feature = "dpdk")]
    Queues(FrameQueues),
}

impl Handover {
    /// Whether workers keep the frames of all flows, in wheels of their own.
    pub(crate) fn is_to_workers(&self) -> bool {
        !matches!(self, Self::Nobody | Self::Thread(_))
    }

    /// Hand over a frame, to the worker that took it in. Whether there was room.
    pub(crate) fn give(&self, record: &[u8], worker: u16) -> bool {
        let Some(later) = Later::parse(record) else {
            return false;
        };
        let inbox = match self {
            Self::Nobody => return false,
            Self::Thread(inbox) => inbox,
            // One that there is not: another one.
            Self::Workers(all) => &all[usize::from(worker) % all.len()],
            #[cfg(feature = "dpdk")]
            Self::Queues(queues) => {
                return queues.send_later(worker.into(), later.leaves_ns, later.departure);
            }
        };
        inbox.give(later.leaves_ns, record)
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(inbox: &Inbox) -> bool {
        let mut fds = [PollFd::new(inbox.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn frames_are_taken_in_the_order_of_their_departures() {
        let inbox = Inbox::new(4).unwrap();
        assert!(inbox.is_empty() && !is_readable(&inbox));
        for (leaves_ns, record) in [(30, b"d"), (10, b"a"), (10, b"b"), (20, b"c")] {
            assert!(inbox.give(leaves_ns, record));
        }
        assert!(!inbox.give(5, b"e"), "no room");
        assert_eq!(inbox.came(), 4);
        assert!(inbox.take_until(9).is_empty());
        assert_eq!(inbox.take_until(10), [b"a", b"b"]);
        assert!(inbox.give(5, b"e"));
        assert_eq!(inbox.take_first(4), [b"c", b"d"]);
        assert!(!inbox.is_empty() && is_readable(&inbox));
        assert_eq!(inbox.take_all(), [b"e"]);
        assert!(inbox.is_empty() && !is_readable(&inbox));
    }
}
