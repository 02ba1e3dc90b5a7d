//! Queues of records between workers and other threads (`datapath/platform/worker/tp_queue.h`).

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::abi::host::{
    tp_queue, tp_queue_commit, tp_queue_mend, tp_queue_peek, tp_queue_release, tp_queue_reserve,
    tp_queue_rest, tp_queue_state, tp_queue_wake,
};
use crate::memory::View;

/// One queue: workers write, one thread at a time reads. The descriptor is readable when there are records.
pub(crate) struct Queue {
    queue: Box<UnsafeCell<tp_queue>>,
    /// Held by whoever reads.
    reading: Mutex<()>,
    wake: OwnedFd,
    /// Memory that the queue points at.
    _memory: View<AtomicU64>,
}

/// Words of a queue's memory that say how far it is; its records lie behind them.
const STATE: usize = size_of::<tp_queue_state>() / size_of::<u64>();

// SAFETY: workers change the queue by atomic operations; what belongs to the reader alone is behind `reading`.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

/// A power of two of whole pages.
fn room(octets: usize) -> usize {
    octets.max(4096).next_power_of_two()
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Queue {
    /// Room for so many octets, rounded up to a power of two of whole pages. Memory is taken as it is used.
    #[cfg(any(test, feature = "dpdk"))]
    pub(crate) fn new(octets: usize) -> io::Result<Self> {
        let octets = room(octets);
        let memory = View::anonymous(Self::words(octets))?;
        Self::over(memory, octets, Self::wake()?)
    }

    /// Words of memory of a queue with room for so many octets.
    pub(crate) fn words(octets: usize) -> usize {
        STATE + room(octets) / size_of::<AtomicU64>()
    }

    /// Descriptor by which its reader is woken.
    pub(crate) fn wake() -> io::Result<OwnedFd> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(wake.into())
    }

    /// In memory of a queue of before, which has room for a power of two of octets.
    pub(crate) fn of_words(memory: View<AtomicU64>, wake: OwnedFd) -> io::Result<Self> {
        let octets = memory.len().saturating_sub(STATE) * size_of::<AtomicU64>();
        match octets == room(octets) {
            true => Self::over(memory, octets, wake),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// In memory that others may have as well, for so many octets as they say, too.
    pub(crate) fn over(memory: View<AtomicU64>, octets: usize, wake: OwnedFd) -> io::Result<Self> {
        let octets = room(octets);
        if memory.len() < Self::words(octets) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let queue = tp_queue {
            state: memory.as_ptr().cast(),
            data: memory[STATE..].as_ptr().cast_mut().cast(),
            size: octets as u64,
            fd: wake.as_raw_fd(),
        };
        Ok(Self {
            queue: Box::new(UnsafeCell::new(queue)),
            reading: Mutex::new(()),
            wake,
            _memory: memory,
        })
    }

    /// Its writers wake whoever reads it by its descriptor, which this reader shares with another queue and leaves to that.
    #[cfg(feature = "dpdk")]
    pub(crate) fn beside_another(mut self) -> Self {
        self.queue.get_mut().fd = -1;
        self
    }

    /// For workers, as long as this lives.
    pub(crate) fn as_ptr(&self) -> *mut tp_queue {
        self.queue.get()
    }

    /// Write a record, of parts one behind the other. Whether there was room.
    pub(crate) fn write(&self, parts: [&[u8]; 2]) -> bool {
        let len = parts[0].len() + parts[1].len();
        let Ok(octets) = u32::try_from(len) else {
            return false;
        };
        // SAFETY: any thread may write.
        let room = unsafe { tp_queue_reserve(self.as_ptr(), octets) };
        if room.is_null() {
            return false;
        }
        // SAFETY: so many octets are this writer's alone until they are committed below.
        let to = unsafe { std::slice::from_raw_parts_mut(room, len) };
        let (front, rest) = to.split_at_mut(parts[0].len());
        front.copy_from_slice(parts[0]);
        rest.copy_from_slice(parts[1]);
        // SAFETY: the room that was just reserved, for as many octets.
        unsafe { tp_queue_commit(self.as_ptr(), room, octets) };
        true
    }

    /// Its writers, or its reader, have ended in another process, perhaps in the midst of a record, and nobody writes at present: what is
    /// complete is read, and nothing else.
    pub(crate) fn mend(&self) {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: this is the reader, which `_reading` makes the only one.
        unsafe { tp_queue_mend(self.as_ptr()) };
    }

    /// Have the descriptor readable: its reader may have missed something.
    #[cfg(feature = "dpdk")]
    pub(crate) fn wake_reader(&self) {
        // SAFETY: any thread may.
        unsafe { tp_queue_wake(self.as_ptr()) };
    }

    /// Give at most so many records to `take`. How many there were. Never waits for a writer.
    pub(crate) fn read(&self, at_most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = 0;
        let mut is_empty = false;
        while taken < at_most {
            let mut len = 0;
            // SAFETY: this is the reader, which `_reading` makes the only one.
            let record = unsafe { tp_queue_peek(self.as_ptr(), &raw mut len) };
            if record.is_null() {
                if is_empty {
                    return taken;
                }
                is_empty = true;
                // SAFETY: as above.
                unsafe { tp_queue_rest(self.as_ptr()) };
                continue;
            }
            // SAFETY: a complete record of so many octets, which no writer touches before it is released below.
            take(unsafe { std::slice::from_raw_parts(record, len as usize) });
            // SAFETY: the record that was just given.
            unsafe { tp_queue_release(self.as_ptr(), len) };
            taken += 1;
        }
        // SAFETY: as above.
        unsafe { tp_queue_wake(self.as_ptr()) };
        at_most
    }
}
