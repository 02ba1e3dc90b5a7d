//! Reading the rings by which packets hand records to user space.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::queue::Queue;

/// Records that packets hand to user space, each kind by a ring of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    /// PDRs that have forwarded so much (`pipeline/count.h`).
    Alarms,
    /// Duplicates (`pipeline/copy.h`).
    Copies,
    /// Packets that the pipeline cannot finish, and GTP-U messages.
    Events,
    /// Packets that wait (`pipeline/buffer.h`).
    Held,
    /// Packets that somebody follows (`pipeline/trace.h`).
    Traced,
}

/// A ring of records, of the kernel or of this process. The descriptor is readable when there are some.
#[derive(Debug)]
pub struct Ring(Kind);

#[derive(Debug)]
enum Kind {
    /// `BPF_MAP_TYPE_RINGBUF`
    Kernel(MapHandle),
    Process(Arc<Queue>),
}

impl From<MapHandle> for Ring {
    fn from(map: MapHandle) -> Self {
        Self(Kind::Kernel(map))
    }
}

impl From<Arc<Queue>> for Ring {
    fn from(queue: Arc<Queue>) -> Self {
        Self(Kind::Process(queue))
    }
}

impl Ring {
    /// Its writers have ended, perhaps in the midst of a record: see [`Queue::mend`]. The kernel's programs never do so.
    pub(crate) fn mend(&self) {
        if let Kind::Process(queue) = &self.0 {
            queue.mend();
        }
    }

    /// Whether there are records: a ring can be asked before it is mapped.
    pub fn is_readable(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Kernel(map) => map.as_fd(),
            Kind::Process(queue) => queue.as_fd(),
        }
    }
}

/// A ring that is being read; of the kernel's, memory of its own. The descriptor is readable when there are records.
pub struct RingReader<'a>(Reader<'a>);

enum Reader<'a> {
    Kernel(RingBuffer<'a>),
    Process(Arc<Queue>, Mutex<Take<'a>>),
}

type Take<'a> = Box<dyn FnMut(&[u8]) + Send + 'a>;

impl fmt::Debug for RingReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingReader")
    }
}

impl<'a> RingReader<'a> {
    /// `take` is given each record, by [`Self::read`]. A ring has one reader.
    pub fn open(ring: &Ring, mut take: impl FnMut(&[u8]) + Send + 'a) -> io::Result<Self> {
        let map = match &ring.0 {
            Kind::Kernel(map) => map,
            Kind::Process(queue) => {
                let take: Take<'a> = Box::new(take);
                return Ok(Self(Reader::Process(Arc::clone(queue), take.into())));
            }
        };
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |record| {
                take(record);
                0
            })
            .map_err(io::Error::other)?;
        let ring = builder.build().map_err(io::Error::other)?;
        Ok(Self(Reader::Kernel(ring)))
    }

    /// At most so many records. How many there were. Never waits.
    pub fn read(&self, at_most: usize) -> io::Result<usize> {
        match &self.0 {
            Reader::Kernel(ring) => {
                let count = ring.consume_raw_n(at_most);
                usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count))
            }
            Reader::Process(queue, take) => {
                let mut take = take.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(queue.read(at_most, &mut **take))
            }
        }
    }
}

impl AsFd for RingReader<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            // SAFETY: the descriptor belongs to the ring buffer, which the borrow keeps.
            Reader::Kernel(ring) => unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) },
            Reader::Process(queue, _) => queue.as_fd(),
        }
    }
}
