//! Packets that wait (FARs with BUFF: TS 29.244, 5.2.4; `datapath/pipeline/buffer.h`): a thread takes them from a ring
//! of their own, keeps them within bounds, and lets them go, by the same pipeline, when their FAR forwards again.
//!
//! Order is kept so: who hands a packet over raises `held` of its entry before, and this thread lowers it when the
//! packet has left. While it is not zero, an entry that forwards again does so behind what waits (`TP_HEAD_DRAIN`).
//! The pipeline is asked each time what becomes of a packet, so that it is always what the rules of now say.

mod arena;
mod by_hand;
#[cfg(test)]
mod follow_tests;
mod keeper;
mod queues;
mod sender;

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use compiled::Buffered;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tables::pipeline::Pipeline;
use tables::{Bystander, Ring, RingReader};

use crate::finish::Finisher;
use crate::locked::locked;
use crate::orders::{HeldSession, Order, Orders};

pub use by_hand::{HeldByHand, Released};
use keeper::{Buffers, EXPIRE_MS};
pub use queues::HoldBounds;
use sender::Sockets;

/// Records taken from the ring before orders are heard.
const RING_BATCH: usize = 256;

/// Counters of packets that waited, and how many do.
#[derive(Debug, Default)]
pub struct HoldCounters {
    sessions: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    taken: AtomicU64,
    released: AtomicU64,
    lost: AtomicU64,
}

/// [`HoldCounters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldTotals {
    /// Sessions for which packets wait.
    pub sessions: u64,
    /// Packets that wait.
    pub packets: u64,
    /// Octets of memory in use.
    pub bytes: u64,
    /// Packets that have come to wait.
    pub taken: u64,
    /// Packets that were let go.
    pub released: u64,
    /// Packets that were lost; drop reasons say why.
    pub lost: u64,
}

impl HoldCounters {
    /// As they are now.
    pub fn totals(&self) -> HoldTotals {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        HoldTotals {
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
pub(crate) struct Holder {
    pub(crate) pipeline: Pipeline,
    pub(crate) bystander: Bystander,
    pub(crate) finisher: Finisher,
    pub(crate) orders: Arc<Orders>,
}

/// The thread that keeps packets. Dropping it stops the thread; what it keeps is lost.
#[derive(Debug)]
pub struct BufferThread {
    stop: Arc<AtomicBool>,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<HoldCounters>,
}

impl BufferThread {
    /// `ring` has `tp_event`s. `listener` hears of the first packet that waits for a PDR; it
    /// must not wait. Needs `CAP_NET_RAW`.
    pub(crate) fn start(
        holder: Holder,
        bounds: HoldBounds,
        ring: Ring,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::<HoldCounters>::default();
        let orders = Arc::clone(&holder.orders);
        let sockets = Sockets::open(holder.pipeline.egress())?;
        let thread = std::thread::Builder::new().name("buffers".into());
        let thread = thread.spawn({
            let (stop, orders, counters) = (stop.clone(), orders.clone(), counters.clone());
            move || {
                let buffers = Buffers::new(holder, bounds, sockets, counters, listener);
                let buffers = Mutex::new(buffers);
                if let Err(error) = run(&buffers, &ring, &orders, &stop) {
                    tracing::error!(%error, "packets for idle UEs can no longer wait");
                    locked(&buffers).refuse();
                }
            }
        })?;
        Ok(Self {
            stop,
            orders,
            thread: Some(thread),
            counters,
        })
    }

    /// Counters of packets that waited, and how many do.
    pub fn counters(&self) -> Arc<HoldCounters> {
        self.counters.clone()
    }

    /// Have sessions shown for which packets wait, those first that have waited longest.
    pub fn list(&self, reply: mpsc::Sender<Vec<HeldSession>>) {
        self.orders.give(Order::List(reply));
    }
}

impl Drop for BufferThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    buffers: &Mutex<Buffers<Sockets>>,
    ring: &Ring,
    orders: &Orders,
    stop: &AtomicBool,
) -> io::Result<()> {
    // Memory of its own, which a UPF whose UEs are never idle does not need.
    let mut opened: Option<RingReader<'_>> = None;
    while !stop.load(Ordering::Relaxed) {
        let read = |ring: &RingReader<'_>| ring.read(RING_BATCH);
        let taken = opened.as_ref().map_or(Ok(0), read)?;
        let given = orders.take();
        let idle = taken == 0 && given.is_empty();
        {
            let mut buffers = locked(buffers);
            for order in given {
                buffers.obey(order, orders);
            }
            buffers.release();
            buffers.expire();
            buffers.show();
        }
        let (waits, ready) = {
            let buffers = locked(buffers);
            (buffers.waits(), buffers.has_ready())
        };
        if idle && !ready && wait(&opened, ring, orders, waits)? && opened.is_none() {
            let take = |record: &[u8]| locked(buffers).take(record);
            opened = Some(RingReader::open(ring, take)?);
        }
    }
    Ok(())
}

/// Wait until there is something to do. Whether packets have come: a ring can be asked before it is mapped.
fn wait(
    opened: &Option<RingReader<'_>>,
    ring: &Ring,
    orders: &Orders,
    packets_wait: bool,
) -> io::Result<bool> {
    let records = match opened {
        Some(opened) => opened.as_fd(),
        None => ring.as_fd(),
    };
    let mut fds = [
        PollFd::new(records, PollFlags::POLLIN),
        PollFd::new(orders.fd(), PollFlags::POLLIN),
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
