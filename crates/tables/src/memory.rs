//! Memory shared with packets: BPF array maps or anonymous pages, seen as slices of atomics.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::abi::{Config, Cpu, Line, RulePlace, Side};

/// A mapping, unmapped when the last view of it goes.
#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is memory and no more; what is in it is reached through atomics only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn map(fd: Option<BorrowedFd<'_>>, bytes: usize) -> io::Result<Self> {
        let (flags, fd) = match fd {
            Some(fd) => (libc::MAP_SHARED, fd.as_raw_fd()),
            None => (
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
            ),
        };
        // SAFETY: a fresh mapping where the kernel likes; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this, and no view outlives the region.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A type that a table may hold.
///
/// # Safety
///
/// The implementer promises that every field is an atomic integer, so that any bit pattern is
/// valid and others may write at any time, and that the alignment is at most a page.
pub(crate) unsafe trait Shared {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU64 {}
// SAFETY: eight atomic integers.
unsafe impl Shared for Line {}
// SAFETY: sixteen atomic integers.
unsafe impl Shared for RulePlace {}
// SAFETY: atomic integers only.
unsafe impl Shared for Side {}
// SAFETY: atomic integers only.
unsafe impl Shared for Config {}
// SAFETY: atomic integers only.
unsafe impl Shared for Cpu {}

/// A table: a slice in shared memory. Clones see the same memory.
pub(crate) struct View<T> {
    region: Arc<Region>,
    len: usize,
    of: PhantomData<[T]>,
}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View of {}", self.len)
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self {
            region: Arc::clone(&self.region),
            len: self.len,
            of: PhantomData,
        }
    }
}

impl<T: Shared> View<T> {
    /// Anonymous zeroed memory.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(None, len)
    }

    /// The values of an mmapable array map.
    pub(crate) fn of_map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map(Some(fd), len)
    }

    fn map(fd: Option<BorrowedFd<'_>>, len: usize) -> io::Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0);
        let bytes = bytes
            .ok_or(io::ErrorKind::InvalidInput)?
            .next_multiple_of(4096);
        Ok(Self {
            region: Arc::new(Region::map(fd, bytes)?),
            len,
            of: PhantomData,
        })
    }

    /// Zeroes, as it was in the beginning.
    pub(crate) fn clear(&self) {
        let words = self.region.bytes / size_of::<AtomicU64>();
        // SAFETY: the region is page aligned, a multiple of a page long and lives as long as `self`; any bit pattern
        // is an integer, and others may write at any time.
        let words: &[AtomicU64] =
            unsafe { std::slice::from_raw_parts(self.region.base.as_ptr().cast(), words) };
        words
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// For the pipeline in this process.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.region.base.as_ptr().cast()
    }
}

impl<T: Shared> Deref for View<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `map` made the region large enough, it is page aligned and lives as long as
        // `self`; `Shared` makes any content valid and concurrent writes sound.
        unsafe { std::slice::from_raw_parts(self.region.base.as_ptr().cast(), self.len) }
    }
}
