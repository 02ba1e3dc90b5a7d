//! The slow path: packets that the pipeline could not finish (`tp_event`), finished by [`crate::Finisher`] and
//! sent: by packet sockets where the next hop is known, else through the kernel.
//!
//! The kernel resolves the neighbour by ARP or ND, holds the packets meanwhile
//! (`net.ipv4.neigh.DEV.unres_qlen_bytes`) and sends them when the answer comes. Its notification of
//! the neighbour then lets the packets that follow take the fast path.
//!
//! Records from the ring wait until it is their turn (`fair.rs`), so that no kind of work, and within it no user,
//! takes the time of the others. What there is no room for is counted as `slow_path_full`, what the kernel does not
//! take as `kernel_refused`, what it gives up without a word as `neighbour_unresolved` (`departures.rs`).
//!
//! Raw sockets with the packet's own header: the source stays the UE's, neither `ip_forward` nor
//! `rp_filter` has a say. Each packet is bound to the device that the next hop names; the kernel's
//! route lookup is then one with `oif DEV`, which the main table or a VRF answers. A network instance
//! with a table of its own and no VRF needs `ip rule add oif DEV lookup TABLE` for its first packets.

use std::fmt;
use std::io;
use std::iter::once;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tables::task::Event;
use tables::{DropReason, LeftRecords, LeftRing, Ring, RingReader, monotonic_ns};

use crate::departures::FollowedSockets;
use crate::fair::{Fair, Kind};
use crate::finish::{Finished, Finisher};
use crate::frame_sockets::FrameSockets;
use crate::locked::locked;
use crate::outgoing::Outgoing;
use crate::sockets::Failure;

/// The reason of packets that there is no room for.
const FULL: DropReason = DropReason::SlowPathFull;

/// The reason of packets that the kernel gave up.
const UNRESOLVED: DropReason = DropReason::NeighbourUnresolved;

/// Records taken from the ring at a time: many, because it is the ring's room that all share alike.
const BATCH: usize = 2048;

/// Records served before the ring is looked at again.
const SERVED: usize = 64;

/// Interval at which packets that wait for others are looked at when nothing else happens.
const EXPIRE_MS: u8 = 200;

/// Linux error numbers end at 133.
const ERRNOS: usize = 134;

/// Counters of packets.
#[derive(Debug)]
pub struct SlowPathCounters {
    sent: AtomicU64,
    malformed: AtomicU64,
    failed: [AtomicU64; ERRNOS],
}

impl Default for SlowPathCounters {
    fn default() -> Self {
        let failed = std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            sent: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            failed,
        }
    }
}

impl SlowPathCounters {
    /// Handed to the kernel.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Records that are no IP packet: a fault of ours.
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// Refused by the kernel, by error; only those that happened.
    ///
    /// `EMSGSIZE`: larger than the MTU. `EAGAIN`, `ENOBUFS`: too many packets wait for neighbours.
    /// `ENETUNREACH`, `EHOSTUNREACH`: no route on that device. `ENETDOWN`, `ENODEV`: the device is
    /// down or gone. `EPERM`: a firewall rule of this host.
    pub fn failed(&self) -> impl Iterator<Item = (Errno, u64)> {
        self.failed.iter().enumerate().filter_map(|(errno, count)| {
            let count = count.load(Ordering::Relaxed);
            (count > 0).then(|| (Errno::from_raw(errno as i32), count))
        })
    }

    fn count(&self, outcome: Result<(), Failure>) {
        let counter = match &outcome {
            Ok(()) => &self.sent,
            Err(Failure::Malformed) => &self.malformed,
            Err(Failure::Refused(errno)) => {
                &self.failed[usize::try_from(*errno as i32).unwrap_or(0).min(ERRNOS - 1)]
            }
        };
        let before = counter.fetch_add(1, Ordering::Relaxed);
        if let (0, Err(Failure::Refused(errno))) = (before, outcome) {
            tracing::warn!(%errno, "the kernel refuses a packet of the slow path; further ones of this kind are counted alone");
        }
    }
}

/// The sockets, and what goes through them.
#[derive(Debug)]
pub struct SlowPath {
    /// Sockets for packets whose neighbours are not known: those that wait take the room of no others.
    unresolved: FollowedSockets,
    sockets: FollowedSockets,
    /// For those whose next hop is known.
    frames: FrameSockets,
    fair: Fair,
    finisher: Finisher,
    out: Vec<Outgoing>,
    listener: Listener,
    counters: Arc<SlowPathCounters>,
}

/// Function that is given GTP-U messages.
struct Listener(Box<dyn FnMut(Vec<u8>) + Send>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl SlowPath {
    /// Sockets in the network namespace of the calling thread; needs `CAP_NET_RAW`.
    ///
    /// `listener` is given GTP-U messages for the control plane, each from its IP header on. It must
    /// not wait.
    pub fn open(
        finisher: Finisher,
        listener: impl FnMut(Vec<u8>) + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            unresolved: FollowedSockets::open()?,
            sockets: FollowedSockets::open()?,
            frames: FrameSockets::new(finisher.egress(), Duration::ZERO),
            fair: Fair::new(),
            finisher,
            out: Vec::new(),
            listener: Listener(Box::new(listener)),
            counters: Arc::default(),
        })
    }

    /// Counters, shared with those who show them.
    pub fn counters(&self) -> Arc<SlowPathCounters> {
        self.counters.clone()
    }

    /// One record of the event ring, which waits for its turn.
    pub fn put(&mut self, record: &[u8]) {
        let Some(event) = Event::parse(record) else {
            self.counters.count(Err(Failure::Malformed));
            return;
        };
        let from_users = self.finisher.is_access(event.port);
        let finisher = &self.finisher;
        self.fair.put((&event, record), from_users, |lost| {
            if let Some(event) = Event::parse(lost) {
                finisher.give_up(&event, FULL);
            }
        });
    }

    /// Serve so many of those that wait, at most. How many there were. Never blocks.
    pub fn serve(&mut self, at_most: usize) -> usize {
        let mut served = 0;
        while served < at_most
            && let Some(record) = self.fair.take()
        {
            self.handle(&record);
            served += 1;
        }
        self.settle(monotonic_ns());
        served
    }

    /// Whether packets wait: for others, or to leave.
    pub fn waits(&self) -> bool {
        self.finisher.waits() || self.unresolved.waits() || self.sockets.waits()
    }

    /// Give up what has waited too long. Call it now and then while [`Self::waits`].
    pub fn expire(&mut self, now_ns: u64) {
        self.finisher.expire(now_ns);
        self.settle(now_ns);
    }

    /// Count packets that the kernel gave up.
    fn settle(&mut self, now_ns: u64) {
        for sockets in [&mut self.unresolved, &mut self.sockets] {
            sockets.settle(now_ns, |port, direction| {
                self.finisher.lose(port, direction, UNRESOLVED);
            });
        }
    }

    fn handle(&mut self, record: &[u8]) {
        let mut out = std::mem::take(&mut self.out);
        let now_ns = monotonic_ns();
        if self.finisher.finish(record, now_ns, &mut out).is_err() {
            self.counters.count(Err(Failure::Malformed));
        }
        for outgoing in out.drain(..) {
            self.send(record, &outgoing, now_ns);
        }
        self.out = out;
        self.finisher.messages().for_each(&mut self.listener.0);
    }

    /// Send what became of a record.
    fn send(&mut self, record: &[u8], outgoing: &Outgoing, now_ns: u64) {
        let Some(event) = Event::parse(record) else {
            return;
        };
        let kind = Kind::of(&event);
        if !outgoing.link.is_empty() {
            return self.send_frame(&event, kind, outgoing);
        }
        let sockets = match kind {
            Kind::Send => &mut self.unresolved,
            _ => &mut self.sockets,
        };
        let is_counted = kind.is_counted();
        let counted = is_counted.then(|| (event.port, self.finisher.direction_of(&event)));
        let outcome = sockets.transmit(outgoing, counted, now_ns);
        if is_counted {
            match &outcome {
                Ok(()) => {}
                Err(Failure::Refused(Errno::EAGAIN | Errno::ENOBUFS)) => {
                    self.finisher.give_up(&event, FULL);
                }
                Err(_) => self.finisher.give_up(&event, DropReason::KernelRefused),
            }
        }
        self.counters.count(outcome);
    }

    /// By its next hop, as the fast path would: the kernel has no say, and changes nothing.
    fn send_frame(&mut self, event: &Event<'_>, kind: Kind, outgoing: &Outgoing) {
        let frame = outgoing.frame();
        let by = (outgoing.ifindex, event.worker);
        if self.frames.send(by, once(&frame[..])) == 0 {
            return self.counters.count(Ok(()));
        }
        if kind.is_counted() {
            self.finisher.give_up(event, DropReason::Redirect);
        }
        self.counters.count(Err(Failure::Refused(Errno::ENOBUFS)));
    }
}

/// A thread that empties the event ring. Dropping it stops the thread.
#[derive(Debug)]
pub struct SlowPathThread {
    stop: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<SlowPathCounters>,
    finished: Arc<Finished>,
    left: Arc<Left>,
}

/// Rings of programs of before.
#[derive(Debug, Default)]
struct Left {
    rings: Mutex<Vec<LeftRing>>,
    /// Number of rings that are not empty yet.
    waiting: AtomicUsize,
}

impl SlowPathThread {
    /// `rings` have `tp_event`s: what is not duplicates, which comes first, and
    /// duplicates.
    pub fn start(slow_path: SlowPath, rings: [Ring; 2]) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let counters = slow_path.counters();
        let finished = slow_path.finisher.finished();
        let left = Arc::<Left>::default();
        let thread = std::thread::Builder::new().name("slow-path".into()).spawn({
            let (stop, wake, left) = (stop.clone(), wake.clone(), left.clone());
            move || {
                if let Err(error) = drain(slow_path, (&rings, &left), &stop, &wake) {
                    tracing::error!(%error, "slow path ended; unresolved next hops lose packets");
                }
            }
        })?;
        Ok(Self {
            stop,
            wake,
            thread: Some(thread),
            counters,
            finished,
            left,
        })
    }

    /// Have what is in rings of programs of before taken as if it came now.
    pub fn take_left(&self, rings: impl IntoIterator<Item = LeftRing>) {
        let rings: Vec<LeftRing> = rings.into_iter().collect();
        self.left.waiting.fetch_add(rings.len(), Ordering::AcqRel);
        locked(&self.left.rings).extend(rings);
        let _ = self.wake.write(1);
    }

    /// Whether there is something in these still.
    pub fn has_left(&self) -> bool {
        let thread = self.thread.as_ref();
        let ended = thread.is_none_or(JoinHandle::is_finished);
        !ended && self.left.waiting.load(Ordering::Acquire) > 0
    }

    /// Counters of packets.
    pub fn counters(&self) -> &SlowPathCounters {
        &self.counters
    }

    /// Counters of tasks.
    pub fn finished(&self) -> &Finished {
        &self.finished
    }
}

impl Drop for SlowPathThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn drain(
    slow_path: SlowPath,
    (rings, left): (&[Ring; 2], &Left),
    stop: &AtomicBool,
    wake: &EventFd,
) -> io::Result<()> {
    let slow_path = Mutex::new(slow_path);
    let [events, copies] = rings;
    let events = open(events, &slow_path)?;
    // Memory of its own, which a UPF without FARs with DUPL does not need.
    let mut opened: Option<RingReader<'_>> = None;
    let mut expired_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        if left.waiting.load(Ordering::Acquire) > 0 {
            for ring in std::mem::take(&mut *locked(&left.rings)) {
                take_left(&ring, &slow_path);
                left.waiting.fetch_sub(1, Ordering::AcqRel);
            }
        }
        let read = |ring: &RingReader<'_>| ring.read(BATCH);
        let taken = read(&events)? + opened.as_ref().map_or(Ok(0), read)?;
        let served = locked(&slow_path).serve(SERVED);
        let is_idle = taken + served == 0;
        let now_ns = monotonic_ns();
        if !is_idle && now_ns - expired_ns < u64::from(EXPIRE_MS) * 1_000_000 {
            continue;
        }
        let timeout = match is_idle {
            false => PollTimeout::ZERO,
            true if locked(&slow_path).waits() => PollTimeout::from(EXPIRE_MS),
            true => PollTimeout::NONE,
        };
        let duplicates_wait = wait(&events, copies, wake, timeout)?;
        if duplicates_wait && opened.is_none() {
            opened = Some(open(copies, &slow_path)?);
        }
        expired_ns = monotonic_ns();
        locked(&slow_path).expire(expired_ns);
    }
    Ok(())
}

/// Served meanwhile, lest they find no room.
fn take_left(ring: &LeftRing, slow_path: &Mutex<SlowPath>) {
    let mut taken = 0;
    let read = ring.read_all(|record| {
        let mut slow_path = locked(slow_path);
        slow_path.put(record);
        taken += 1;
        if taken % SERVED == 0 {
            slow_path.serve(SERVED);
        }
    });
    match read {
        Ok(LeftRecords { lost: 0, .. }) => {}
        Ok(LeftRecords { lost, .. }) => {
            tracing::warn!(lost, "packets of before this start lead nowhere any more")
        }
        Err(error) => tracing::error!(%error, "packets of before this start are lost"),
    }
}

fn open<'a>(ring: &Ring, slow_path: &'a Mutex<SlowPath>) -> io::Result<RingReader<'a>> {
    RingReader::open(ring, |record| locked(slow_path).put(record))
}

/// Wait until there is something to do. Whether there are duplicates: a ring can be asked before it is mapped.
fn wait(
    events: &RingReader<'_>,
    copies: &Ring,
    wake: &EventFd,
    timeout: PollTimeout,
) -> io::Result<bool> {
    let mut fds = [
        PollFd::new(events.as_fd(), PollFlags::POLLIN),
        PollFd::new(wake.as_fd(), PollFlags::POLLIN),
        PollFd::new(copies.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut fds, timeout) {
        Ok(_) => {
            let _ = wake.read();
            Ok(fds[2].any().unwrap_or_default())
        }
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
