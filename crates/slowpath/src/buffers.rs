//! Buffered packets (FARs with BUFF: TS 29.244, 5.2.4; `datapath/pipeline/buffer.h`): a thread takes them from a ring
//! of their own, keeps them within bounds, and releases them, by the same pipeline, when their FAR forwards again.
//!
//! Order is kept so: who hands a packet over raises `held` of its entry before, and this thread lowers it when the
//! packet has left. While it is not zero, an entry that forwards again does so behind what waits (`TP_HEAD_DRAIN`).
//! The pipeline is asked each time what becomes of a packet, so that it is always what the rules of now say.

mod by_hand;
#[cfg(test)]
mod follow_tests;
mod packet;
mod packet_buffer;
mod queues;
mod sender;
mod store;

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use arena::pool::Pool;
use compiled::Buffered;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tables::pipeline::Pipeline;
use tables::{Bystander, LeftRing, Ring, RingReader, Words};

use crate::buffer_commands::{BufferCommand, BufferCommands, BufferedSession};
use crate::finish::Finisher;
use crate::locked::locked;

pub use by_hand::{BufferByHand, Released};
use packet_buffer::{EXPIRE_MS, PacketBuffer};
pub use queues::BufferBounds;
use sender::Sockets;
pub use store::FormerPackets;
use store::Store;

/// Records taken from the ring before commands are heard.
const RING_BATCH: usize = 256;

/// Counters of buffered packets, and how many there are.
#[derive(Debug, Default)]
pub struct BufferCounters {
    sessions: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    taken: AtomicU64,
    released: AtomicU64,
    lost: AtomicU64,
}

/// [`BufferCounters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferCounts {
    /// Sessions with buffered packets.
    pub sessions: u64,
    /// Buffered packets.
    pub packets: u64,
    /// Octets of memory in use.
    pub bytes: u64,
    /// Packets that were buffered, ever.
    pub taken: u64,
    /// Packets that were released.
    pub released: u64,
    /// Packets that were lost; drop reasons say why.
    pub lost: u64,
}

impl BufferCounters {
    /// As they are now.
    pub fn counts(&self) -> BufferCounts {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        BufferCounts {
            sessions: load(&self.sessions),
            packets: load(&self.packets),
            bytes: load(&self.bytes),
            taken: load(&self.taken),
            released: load(&self.released),
            lost: load(&self.lost),
        }
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Parts that the thread is made of.
pub(crate) struct BufferParts {
    pub(crate) pipeline: Pipeline,
    pub(crate) bystander: Bystander,
    pub(crate) finisher: Finisher,
    pub(crate) commands: Arc<BufferCommands>,
}

/// Function that is called once.
pub type Taken = Box<dyn FnOnce() + Send>;

/// Packets that outlive the process.
#[derive(Default)]
pub struct KeptPackets {
    /// Memory with room for as many octets as [`arena::pool::octets_for`] says. `None`: they end with the process.
    pub pool: Option<Pool<Words>>,
    /// Left by the process before this one.
    pub former: Option<FormerPackets>,
    /// Is called once the memory has all that there is: what the process before this one has left is not needed any more.
    pub taken: Option<Taken>,
    /// There was a process before. What it has left comes first ([`BufferThread::judge_former`], [`BufferThread::begin`]), and packets
    /// are taken from the ring then.
    pub waits: bool,
}

impl fmt::Debug for KeptPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPackets")
            .field("pool", &self.pool)
            .field("former", &self.former)
            .finish_non_exhaustive()
    }
}

/// How far a thread has come with what there was before.
#[derive(Debug, Default)]
struct Progress {
    has_judged: AtomicBool,
    has_begun: AtomicBool,
}

/// The thread that buffers packets. Dropping it stops the thread; what is buffered is lost, unless its memory outlives it.
#[derive(Debug)]
pub struct BufferThread {
    stop: Arc<AtomicBool>,
    commands: Arc<BufferCommands>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<BufferCounters>,
    progress: Arc<Progress>,
}

impl BufferThread {
    /// `ring` has `tp_event`s. `listener` hears of the first packet of a PDR; it must not
    /// wait. Needs `CAP_NET_RAW`.
    pub(crate) fn start(
        parts: BufferParts,
        (bounds, kept): (BufferBounds, KeptPackets),
        ring: Ring,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::<BufferCounters>::default();
        let commands = Arc::clone(&parts.commands);
        let sockets = Sockets::open(parts.pipeline.egress())?;
        let store = match kept.pool {
            Some(pool) => Store::new(pool),
            None => Store::anonymous(bounds.bytes)?,
        };
        let shared = counters.clone();
        let mut buffer = PacketBuffer::new(parts, (bounds, store), sockets, shared, listener);
        let progress = buffer.progress.clone();
        buffer.former = (kept.former, kept.taken);
        if !kept.waits {
            buffer.judge_former();
            buffer.begin(&[]);
        }
        let thread = std::thread::Builder::new().name("buffers".into());
        let thread = thread.spawn({
            let (stop, commands) = (stop.clone(), commands.clone());
            move || {
                let buffer = Mutex::new(buffer);
                if let Err(error) = run(&buffer, &ring, &commands, &stop) {
                    tracing::error!(%error, "packets for idle UEs can no longer wait");
                    locked(&buffer).refuse();
                }
            }
        })?;
        Ok(Self {
            stop,
            commands,
            thread: Some(thread),
            counters,
            progress,
        })
    }

    /// Counters of buffered packets, and how many there are.
    pub fn counters(&self) -> Arc<BufferCounters> {
        self.counters.clone()
    }

    /// Have packets of a process before this one go where the rules of now have them go.
    pub fn judge_former(&self) {
        self.commands.send(BufferCommand::Judge);
    }

    /// Whether they have.
    pub fn has_judged(&self) -> bool {
        self.has_ended() || self.progress.has_judged.load(Ordering::Acquire)
    }

    /// Have packets that came before those of this process' ring go likewise, then take those.
    pub fn begin(&self, left: Vec<LeftRing>) {
        self.commands.send(BufferCommand::Begin(left));
    }

    /// Whether they have.
    pub fn has_begun(&self) -> bool {
        self.has_ended() || self.progress.has_begun.load(Ordering::Acquire)
    }

    /// It has said why.
    fn has_ended(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_none_or(JoinHandle::is_finished)
    }

    /// Have sessions with buffered packets shown, those first that have waited longest.
    pub fn list(&self, reply: mpsc::Sender<Vec<BufferedSession>>) {
        self.commands.send(BufferCommand::List(reply));
    }
}

impl Drop for BufferThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.commands.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    buffer: &Mutex<PacketBuffer<Sockets>>,
    ring: &Ring,
    commands: &BufferCommands,
    stop: &AtomicBool,
) -> io::Result<()> {
    // Memory of its own, which a UPF whose UEs are never idle does not need.
    let mut opened: Option<RingReader<'_>> = None;
    while !stop.load(Ordering::Relaxed) {
        let read = |ring: &RingReader<'_>| ring.read(RING_BATCH);
        let taken = opened.as_ref().map_or(Ok(0), read)?;
        let given = commands.take();
        let idle = taken == 0 && given.is_empty();
        {
            let mut buffer = locked(buffer);
            for command in given {
                buffer.execute(command, commands);
            }
            buffer.release();
            buffer.expire();
            buffer.show();
        }
        let (waits, ready, has_begun) = {
            let buffer = locked(buffer);
            let has_begun = buffer.progress.has_begun.load(Ordering::Relaxed);
            (buffer.waits(), buffer.has_ready(), has_begun)
        };
        let ring = has_begun.then_some(ring);
        if idle
            && !ready
            && wait(&opened, ring, commands, waits)?
            && let Some(ring) = ring
            && opened.is_none()
        {
            let take = |record: &[u8]| locked(buffer).take(record);
            opened = Some(RingReader::open(ring, take)?);
        }
    }
    Ok(())
}

/// Wait until there is something to do. Whether packets have come: a ring can be asked before it is mapped.
fn wait(
    opened: &Option<RingReader<'_>>,
    ring: Option<&Ring>,
    commands: &BufferCommands,
    packets_wait: bool,
) -> io::Result<bool> {
    let records = match opened {
        Some(opened) => opened.as_fd(),
        // Nothing else is to be heard of.
        None => ring.map_or(commands.fd(), AsFd::as_fd),
    };
    let mut fds = [
        PollFd::new(records, PollFlags::POLLIN),
        PollFd::new(commands.fd(), PollFlags::POLLIN),
    ];
    let timeout = if packets_wait {
        PollTimeout::from(EXPIRE_MS as u8)
    } else {
        PollTimeout::NONE
    };
    match poll(&mut fds, timeout) {
        Ok(_) => Ok(fds[0].any().unwrap_or_default()),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
