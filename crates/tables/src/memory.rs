//! Memory shared with packets: BPF array maps or anonymous pages, seen as slices of atomics.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use nix::unistd::{SysconfVar, sysconf};

use crate::abi::{Config, Cpu, Line, Side};

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// NUMA nodes that a kernel can have, at most.
const NODES_MAX: usize = 1024;
/// Alignment of a table.
const LINE: usize = 64;
const WRITABLE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A mapping, unmapped when the last view of it goes.
#[derive(Debug)]
struct Region {
    /// Beginning of the table.
    base: NonNull<u8>,
    /// Octets of the table.
    bytes: usize,
    mapping: NonNull<u8>,
    mapped: usize,
}

// SAFETY: a region is memory and no more; what is in it is reached through atomics only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn of_map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::map((WRITABLE, libc::MAP_SHARED), (fd.as_raw_fd(), 0), bytes)
    }

    /// Ends where a page begins that nobody may touch, so that no test reads or writes beyond a table unseen.
    fn anonymous(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let usable = bytes.next_multiple_of(PAGE);
        let mut region = Self::map((WRITABLE, flags), (-1, 0), usable + PAGE)?;
        // SAFETY: both places are within the mapping, which nobody has seen yet.
        let (base, guard) = unsafe {
            let mapping = region.mapping;
            (mapping.add(usable - bytes), mapping.add(usable))
        };
        // SAFETY: as above.
        if unsafe { libc::mprotect(guard.as_ptr().cast(), PAGE, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        (region.base, region.bytes) = (base, bytes);
        Ok(region)
    }

    /// As `madvise` has it. Where the kernel does not know it, nothing happens.
    fn advise(&self, what: c_int) {
        // SAFETY: of a mapping of this region's own; what is in it stays as it is.
        unsafe { libc::madvise(self.mapping.as_ptr().cast(), self.mapped, what) };
    }

    /// Memory that is nobody else's is given back, from the first page on that begins behind so many octets: it is zero then.
    fn give_back(&self, from: usize) {
        let begin = (self.base.as_ptr() as usize + from).next_multiple_of(PAGE);
        let end = self.base.as_ptr() as usize + self.bytes;
        if begin < end {
            // SAFETY: within a private mapping of this region's own; what is in it is reached through atomics only, and any bit
            // pattern is an integer.
            unsafe { libc::madvise(begin as *mut _, end - begin, libc::MADV_DONTNEED) };
        }
    }

    /// Have pages that are not there yet come from a NUMA node, while it has some. Where the kernel knows none of this number, or
    /// nothing of nodes, they come from where they like: that is slower, and no error.
    fn prefer(&self, node: u32) {
        let mut nodes = [0u64; NODES_MAX / 64];
        let Some(word) = nodes.get_mut(node as usize / 64) else {
            return;
        };
        *word = 1 << (node % 64);
        // SAFETY: of a mapping of this region's own, from the page that it begins with; what is in it stays as it is. The kernel
        // reads so many bits, the last of which it leaves out.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.mapping.as_ptr(),
                self.mapped,
                libc::MPOL_PREFERRED,
                nodes.as_ptr(),
                NODES_MAX,
                0,
            )
        };
    }

    /// protection, flags; descriptor, and where it begins there
    fn map(
        (protection, flags): (c_int, c_int),
        (fd, from): (c_int, usize),
        bytes: usize,
    ) -> io::Result<Self> {
        let from = from.try_into().map_err(io::Error::other)?;
        // SAFETY: a fresh mapping where the kernel likes; no existing memory is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, from) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            bytes,
            mapping: base,
            mapped: bytes,
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `map` mapped exactly this, and no view outlives the region.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// The line of the cache with this word is used soon. Elsewhere than on x86 nothing happens.
pub(crate) fn expect(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint for an address that may be read.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(word.as_ptr().cast_const().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

/// Octets that one owner has, zeroes at first, which take memory as they are written.
#[derive(Debug)]
pub(crate) struct Octets(Region);

impl Octets {
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Region::anonymous(bytes.max(1)).map(Self)
    }
}

impl Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the region is so long, lives as long as `self`, and nobody else has it.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.bytes) }
    }
}

impl DerefMut for Octets {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.bytes) }
    }
}

/// A type that a table may hold.
///
/// # Safety
///
/// The implementer promises that every field is an atomic integer, so that any bit pattern is
/// valid and others may write at any time, and that the alignment is at most `LINE`.
pub(crate) unsafe trait Shared {}

// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Shared for AtomicU64 {}
// SAFETY: eight atomic integers.
unsafe impl Shared for Line {}
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
        Self::of_region(Region::anonymous(Self::bytes(len)?)?, len)
    }

    /// The same in huge pages, for what packets of users in random order read: with pages of 4 KiB, most would miss the
    /// TLB. Memory is taken by the huge page, and a table that is smaller than one has none.
    pub(crate) fn anonymous_huge(len: usize) -> io::Result<Self> {
        let view = Self::anonymous(len)?;
        if view.region.bytes >= HUGE_PAGE {
            view.region.advise(libc::MADV_HUGEPAGE);
        }
        Ok(view)
    }

    /// The values of an mmapable array map.
    pub(crate) fn of_map(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let bytes = Self::bytes(len)?.next_multiple_of(PAGE);
        Self::of_region(Region::of_map(fd, bytes)?, len)
    }

    /// Have all pages at hand, which are there: packets need not wait for them one by one. A kernel before 5.14 does nothing.
    #[cfg(feature = "dpdk")]
    pub(crate) fn populate(&self) {
        self.region.advise(libc::MADV_POPULATE_WRITE);
    }

    /// Have pages that are touched from now on come from a NUMA node.
    pub(crate) fn prefer(&self, node: u32) {
        self.region.prefer(node);
    }

    /// Octets of a table, in whole lines.
    fn bytes(len: usize) -> io::Result<usize> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0);
        Ok(bytes
            .ok_or(io::ErrorKind::InvalidInput)?
            .next_multiple_of(LINE))
    }

    fn of_region(region: Region, len: usize) -> io::Result<Self> {
        Ok(Self {
            region: Arc::new(region),
            len,
            of: PhantomData,
        })
    }

    /// Zeroes, as it was in the beginning.
    pub(crate) fn clear(&self) {
        let words = self.region.bytes / size_of::<AtomicU64>();
        // SAFETY: the region is `LINE` aligned, whole lines long and lives as long as `self`; any bit pattern
        // is an integer, and others may write at any time.
        let words: &[AtomicU64] =
            unsafe { std::slice::from_raw_parts(self.region.base.as_ptr().cast(), words) };
        words
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Memory of [`Self::anonymous`] is given back, from the first page on that begins behind so many values: these are zero then.
    pub(crate) fn give_back(&self, from: usize) {
        self.region.give_back(from * size_of::<T>());
    }

    /// For the pipeline in this process.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.region.base.as_ptr().cast()
    }
}

impl<T: Shared> Deref for View<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `bytes` made the region large enough, it is `LINE` aligned and lives as long as
        // `self`; `Shared` makes any content valid and concurrent writes sound.
        unsafe { std::slice::from_raw_parts(self.region.base.as_ptr().cast(), self.len) }
    }
}

/// Memory of a ring of the kernel (`BPF_MAP_TYPE_RINGBUF`): how far it has been read, how far written, and its octets.
#[derive(Debug)]
pub(crate) struct RingMemory {
    read: View<AtomicU64>,
    /// One page, and twice the octets, so that no record comes apart. Nobody but the kernel may write there.
    written: View<AtomicU64>,
    /// Words of a page.
    page: usize,
    /// ... of the octets, a power of two.
    words: usize,
}

impl RingMemory {
    /// Of a map of so many octets.
    pub(crate) fn of_map(fd: BorrowedFd<'_>, octets: usize) -> io::Result<Self> {
        let page = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|size| usize::try_from(size).ok());
        let page = page.unwrap_or(PAGE);
        let map = |protection, from, bytes| {
            let region = Region::map(
                (protection, libc::MAP_SHARED),
                (fd.as_raw_fd(), from),
                bytes,
            );
            View::of_region(region?, bytes / size_of::<AtomicU64>())
        };
        Ok(Self {
            read: map(WRITABLE, 0, page)?,
            written: map(libc::PROT_READ, page, page + 2 * octets)?,
            page: page / size_of::<AtomicU64>(),
            words: octets / size_of::<AtomicU64>(),
        })
    }

    /// Octets that have been let go of, of all that there ever were.
    pub(crate) fn read(&self) -> u64 {
        self.read[0].load(Ordering::Relaxed)
    }

    /// The kernel may write over octets in front of this.
    pub(crate) fn let_go(&self, until: u64) {
        self.read[0].store(until, Ordering::Release);
    }

    /// Octets that have been written, likewise.
    pub(crate) fn written(&self) -> u64 {
        let written = self.written[0].load(Ordering::Relaxed);
        // An acquiring load is not promised to do without writing, and nobody may write here.
        fence(Ordering::Acquire);
        written
    }

    /// Words from an octet on that has been written and not let go of.
    pub(crate) fn words(&self, from: u64) -> &[AtomicU64] {
        let word = from as usize / size_of::<AtomicU64>();
        let at = word & (self.words - 1);
        &self.written[self.page + at..]
    }
}
