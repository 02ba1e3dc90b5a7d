//! Reading the rings by which programs hand records to user space.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

/// A ring (`BPF_MAP_TYPE_RINGBUF`) that is mapped: memory of its own. The descriptor is readable when there are records.
pub struct RingReader<'a>(RingBuffer<'a>);

impl fmt::Debug for RingReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingReader")
    }
}

impl<'a> RingReader<'a> {
    /// `take` is given each record, by [`Self::read`].
    pub fn open(ring: &MapHandle, mut take: impl FnMut(&[u8]) + 'a) -> io::Result<Self> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(ring, move |record| {
                take(record);
                0
            })
            .map_err(io::Error::other)?;
        builder.build().map(Self).map_err(io::Error::other)
    }

    /// At most so many records. How many there were. Never waits.
    pub fn read(&self, at_most: usize) -> io::Result<usize> {
        let count = self.0.consume_raw_n(at_most);
        usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count))
    }
}

impl AsFd for RingReader<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring buffer, which the borrow keeps.
        unsafe { BorrowedFd::borrow_raw(self.0.epoll_fd()) }
    }
}
