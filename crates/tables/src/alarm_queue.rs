//! Alarms that threads of this process tell of, rather than programs of the kernel by a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Entries that wait for a look; beyond, all are looked through.
pub(crate) const WAITING_MAX: usize = 1 << 16;

/// Entries with alarms that threads of this process tell of: the host pipeline, and those that finish packets.
#[derive(Debug)]
pub(crate) struct AlarmQueue {
    entries: Mutex<Vec<u32>>,
    overflow: AtomicBool,
    wake: EventFd,
}

impl AlarmQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            entries: Mutex::default(),
            overflow: AtomicBool::new(false),
            wake: EventFd::from_flags(flags)?,
        })
    }

    pub(crate) fn tell(&self, entry: u32) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() < WAITING_MAX {
            entries.push(entry);
        } else {
            self.overflow.store(true, Ordering::Relaxed);
        }
        drop(entries);
        // Its counter cannot overflow.
        let _ = self.wake.write(1);
    }

    /// Readable when there is something to take.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// At most so many. Whether there are more.
    pub(crate) fn take(&self, at_most: usize, into: &mut Vec<u32>) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let count = entries.len().min(at_most);
        into.extend(entries.drain(..count));
        if entries.is_empty() {
            // An error means that nothing was to be taken back.
            let _ = self.wake.read();
        }
        !entries.is_empty()
    }

    /// Whether entries found no room since this was asked last.
    pub(crate) fn take_overflow(&self) -> bool {
        self.overflow.swap(false, Ordering::Relaxed)
    }
}
