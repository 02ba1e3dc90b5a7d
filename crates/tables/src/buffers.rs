//! Packets that wait (FARs with BUFF: TS 29.244, 5.2.4; `datapath/pipeline/buffer.h`): a thread takes them from a ring
//! of their own, keeps them within bounds, and lets them go, by the same pipeline, when their FAR forwards again.
//!
//! Order is kept so: who hands a packet over raises `held` of its entry before, and this thread lowers it when the
//! packet has left. While it is not zero, an entry that forwards again does so behind what waits (`TP_ACT_DRAIN`).
//! What becomes of a packet is asked of the pipeline each time, so that it is always what the rules of now say.

mod arena;
mod queues;
mod sender;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use session::compiled::{Buffered, HoldLimits, PdrId};

use crate::abi::entry;
use crate::finish::{EVENT_HELD, Event, Finisher, Outgoing, framed};
use crate::grace::Bystander;
use crate::host::{HEADROOM, Host, Placed, Scratch, TAILROOM};
use crate::owners::Owners;
use crate::slowpath::{RawSockets, monotonic_ns};
use crate::stats::DROP_REASONS;
use crate::verdict::Verdict;

use queues::{Arrival, Packet, Queues, Why};
pub use queues::{HeldSession, HoldBounds};
use sender::FrameSocket;

/// Records taken from the ring before orders are heard.
const RING_BATCH: usize = 256;
/// Packets let go before they are sent.
const RELEASE_BATCH: usize = 256;
/// Packets of one PDR let go before another one has its turn.
const TURN: usize = 64;
/// How often packets that have waited too long are looked for.
const EXPIRE_MS: u64 = 250;
/// Packets of other threads that may be on their way here.
const GIVEN_MAX: usize = 4096;
/// Sessions that are shown.
const LISTED_MAX: usize = 10_000;

/// `sizeof(struct tp_held)`
const HELD_LEN: usize = 8;
/// `TP_HELD_BARE`
const HELD_BARE: u16 = 1;
const UPLINK: usize = 0;
const DOWNLINK: usize = 1;

/// What other threads want of this one.
#[derive(Debug)]
pub(crate) enum Order {
    /// The rules of a session have changed: what waits for it may go, or be lost.
    Look(u64),
    /// What waits for a session is lost.
    Discard(u64),
    /// What waits for a PDR is bounded.
    Limit(u64, PdrId, HoldLimits),
    /// A record of the ring that came by another way.
    Packet(Vec<u8>),
    /// Show sessions.
    List(mpsc::Sender<Vec<HeldSession>>),
}

/// The way to give orders.
#[derive(Debug)]
pub(crate) struct Orders {
    queue: Mutex<Vec<Order>>,
    given: AtomicU64,
    wake: EventFd,
}

impl Orders {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            queue: Mutex::default(),
            given: AtomicU64::new(0),
            wake: EventFd::from_flags(flags)?,
        })
    }

    pub(crate) fn give(&self, order: Order) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(order);
        if queue.len() == 1 {
            let _ = self.wake.write(1);
        }
    }

    /// `false`: too many are under way.
    pub(crate) fn give_packet(&self, record: &[u8]) -> bool {
        if self.given.fetch_add(1, Ordering::Relaxed) >= GIVEN_MAX as u64 {
            self.given.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.give(Order::Packet(record.to_vec()));
        true
    }

    fn take(&self) -> Vec<Order> {
        let _ = self.wake.read();
        std::mem::take(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What became of packets that waited, and how many do.
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
    /// For which packets wait.
    pub sessions: u64,
    /// Waiting.
    pub packets: u64,
    /// Octets of memory in use.
    pub bytes: u64,
    /// Packets that have come to wait.
    pub taken: u64,
    /// Of these, let go.
    pub released: u64,
    /// Of these, lost; drop reasons say why.
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

/// `struct tp_held`, in front of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record<'a> {
    entry: u32,
    user: u16,
    flags: u16,
    frame: &'a [u8],
}

impl<'a> Record<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let (words, frame) = data.split_first_chunk::<HELD_LEN>()?;
        let [a, b, c, d, u0, u1, f0, f1] = *words;
        Some(Self {
            entry: u32::from_ne_bytes([a, b, c, d]),
            user: u16::from_ne_bytes([u0, u1]),
            flags: u16::from_ne_bytes([f0, f1]),
            frame,
        })
    }

    fn is_bare(&self) -> bool {
        self.flags & HELD_BARE != 0
    }

    /// ToS or Traffic Class of the user's packet.
    fn tos(&self) -> u8 {
        let at = if self.is_bare() { 0 } else { self.user.into() };
        match self.frame.get(at..at + 2) {
            Some([first, second]) if first >> 4 == 4 => *second,
            Some([first, second]) => first << 4 | second >> 4,
            _ => 0,
        }
    }
}

/// The entry of a record, so that what cannot be kept is counted off.
pub(crate) fn entry_of(record: &[u8]) -> Option<u32> {
    let data = Event::parse(record)?.data;
    Record::parse(data).map(|record| record.entry)
}

/// An address of the UE that a packet behind an Ethernet header is for, as the pipeline has it.
fn own_of(frame: &[u8]) -> Option<[u64; 2]> {
    let ip = frame.get(14..)?;
    if ip.first()? >> 4 == 4 {
        let addr: [u8; 4] = ip.get(16..20)?.try_into().ok()?;
        return Some([u64::from(u32::from_be_bytes(addr)) << 32, 0]);
    }
    let addr: [u8; 16] = ip.get(24..40)?.try_into().ok()?;
    let addr = u128::from_be_bytes(addr);
    Some([(addr >> 64) as u64, addr as u64])
}

/// Everything that the thread owns.
pub(crate) struct Holder {
    pub(crate) host: Host,
    pub(crate) bystander: Bystander,
    pub(crate) owners: Owners,
    pub(crate) finisher: Finisher,
    pub(crate) orders: Arc<Orders>,
}

struct Buffers {
    host: Host,
    bystander: Bystander,
    owners: Owners,
    finisher: Finisher,
    raw: RawSockets,
    queues: Queues,
    sockets: HashMap<u32, Option<FrameSocket>>,
    counters: Arc<HoldCounters>,
    listener: Box<dyn FnMut(Buffered) + Send>,
    expired_ms: u64,
    batch: Batch,
    scratch: Scratch,
    out: Vec<Outgoing>,
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers")
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

/// Packets that are about to leave.
#[derive(Debug, Default)]
struct Batch {
    octets: Vec<u8>,
    /// Port, and where the frame lies in `octets`.
    frames: Vec<(u32, usize, usize)>,
    /// Entries whose packets these are, or were handed on otherwise.
    entries: Vec<u32>,
}

fn reason_number(name: &str) -> usize {
    let place = DROP_REASONS.iter().position(|reason| reason.name == name);
    place.map_or(0, |place| place + 1)
}

impl Why {
    fn reason(self) -> &'static str {
        match self {
            Self::Full => "buffer_full",
            Self::Expired => "buffer_expired",
            Self::Discarded => "buffer_discarded",
        }
    }
}

/// A packet that has come to wait does so no more.
fn lose(host: &Host, counters: &HoldCounters, packet: Packet, why: Why) {
    lose_at(host, counters, packet.port, packet.entry, why);
}

fn lose_at(host: &Host, counters: &HoldCounters, port: u16, entry: u32, why: Why) {
    let direction = if host.is_access(port.into()) {
        UPLINK
    } else {
        DOWNLINK
    };
    host.count_drops(port.into(), direction, reason_number(why.reason()), 1);
    host.lower_held(entry, 1, 1);
    count(&counters.lost, 1);
}

impl Buffers {
    fn now_ms() -> u64 {
        monotonic_ns() / 1_000_000
    }

    /// A record of the ring.
    fn take(&mut self, record: &[u8]) {
        let event = Event::parse(record).filter(|event| event.kind == EVENT_HELD);
        let Some((port, held)) = event.and_then(|e| Some((e.port, Record::parse(e.data)?))) else {
            tracing::error!("a record of the ring of packets that wait is malformed");
            return;
        };
        count(&self.counters.taken, 1);
        let head = self.host.head(held.entry);
        let seid = self.owners.seid(held.entry);
        // Its session, or its PDR, went meanwhile.
        let gone = entry::action(head) == entry::ACT_NONE;
        let Some(seid) = seid.filter(|_| !gone) else {
            let why = Why::Discarded;
            return lose_at(&self.host, &self.counters, port as u16, held.entry, why);
        };
        let made;
        let (port, frame) = if held.is_bare() {
            made = framed(held.frame);
            let port = self.host.port_of_entry(held.entry);
            (port.unwrap_or(port_none()), &made[..])
        } else {
            (port as usize, held.frame)
        };
        let arrival = Arrival {
            seid,
            pdr: self.host.pdr_of(held.entry),
            entry: held.entry,
            port: port as u16,
            is_bare: held.is_bare(),
            tos: held.tos(),
            follows: entry::action(head) == entry::ACT_DRAIN,
            frame,
        };
        match self.queues.put(Self::now_ms(), &arrival) {
            Ok(is_news) => {
                if is_news {
                    (self.listener)(Buffered {
                        seid,
                        pdr: arrival.pdr,
                        tos: arrival.tos,
                    });
                }
                if entry::action(head) != entry::ACT_BUFFER {
                    self.queues.look(seid);
                }
            }
            Err(why) => lose_at(&self.host, &self.counters, arrival.port, held.entry, why),
        }
    }

    fn obey(&mut self, order: Order, orders: &Orders) {
        let (host, counters) = (&self.host, &self.counters);
        let lose = |packet, why| lose(host, counters, packet, why);
        match order {
            Order::Look(seid) => self.queues.look(seid),
            Order::Discard(seid) => self.queues.discard(seid, lose),
            Order::Limit(seid, pdr, limits) => {
                self.queues.limit(Self::now_ms(), seid, pdr, limits, lose);
            }
            Order::Packet(record) => {
                orders.given.fetch_sub(1, Ordering::Relaxed);
                self.take(&record);
            }
            Order::List(reply) => {
                let _ = reply.send(self.queues.list(Self::now_ms(), LISTED_MAX));
            }
        }
    }

    /// Let go what may go, a turn for each PDR of each session that is to be looked at.
    fn release(&mut self) {
        let mut sessions = self.queues.fill()[0].max(1);
        while sessions > 0
            && let Some((seid, lanes)) = self.queues.next_ready()
        {
            sessions -= 1;
            let mut more = false;
            for lane in 0..lanes {
                more |= self.release_lane(seid, lane);
            }
            self.queues.tidy(seid);
            if more {
                self.queues.look(seid);
            }
            if self.batch.entries.len() >= RELEASE_BATCH {
                self.flush();
            }
        }
        self.flush();
    }

    /// Whether more may go.
    fn release_lane(&mut self, seid: u64, lane: usize) -> bool {
        let now_ns = monotonic_ns();
        for _ in 0..TURN {
            let Some(packet) = self.queues.front(seid, lane) else {
                return false;
            };
            if !self.try_release(packet, now_ns) {
                if let Some(pdr) = self.queues.tell(seid, lane) {
                    let tos = packet.tos;
                    (self.listener)(Buffered { seid, pdr, tos });
                }
                return false;
            }
            self.queues.pop(seid, lane);
        }
        true
    }

    /// `false`: its FAR still says BUFF.
    fn try_release(&mut self, packet: Packet, now_ns: u64) -> bool {
        let start = self.batch.octets.len();
        let room = HEADROOM + packet.len() + TAILROOM;
        self.batch.octets.resize(start + room, 0);
        let buf = &mut self.batch.octets[start..];
        self.queues
            .copy(packet, &mut buf[HEADROOM..HEADROOM + packet.len()]);
        let own = if packet.is_bare {
            own_of(&buf[HEADROOM..HEADROOM + packet.len()])
        } else {
            None
        };
        let mut frame = Placed {
            buf,
            offset: HEADROOM as u32,
            len: packet.len() as u32,
        };
        let verdict = {
            let _looking = self.bystander.look();
            let port = packet.port.into();
            self.host
                .release(port, own, &mut frame, now_ns, &mut self.scratch)
        };
        let (at, len) = (start + frame.offset as usize, frame.len as usize);
        match verdict {
            Verdict::Redirect(port) => self.batch.frames.push((port, at, len)),
            // Nothing was handed over: it still waits.
            Verdict::Slow if self.scratch.event().is_empty() => {
                self.batch.octets.truncate(start);
                return false;
            }
            Verdict::Slow => self.send_otherwise(now_ns),
            // Nobody's any more.
            Verdict::Pass | Verdict::Answer => {
                self.batch.octets.truncate(start);
                lose(&self.host, &self.counters, packet, Why::Discarded);
                return true;
            }
            Verdict::Drop(_) => {
                self.batch.octets.truncate(start);
                count(&self.counters.lost, 1);
                self.host.lower_held(packet.entry, 1, 0);
                return true;
            }
        }
        self.batch.entries.push(packet.entry);
        true
    }

    /// What the pipeline alone cannot finish goes as it would have gone; behind what has been let go before.
    fn send_otherwise(&mut self, now_ns: u64) {
        self.send_frames();
        let event = self.scratch.event();
        if self.finisher.finish(event, now_ns, &mut self.out).is_err() {
            tracing::error!("a packet that has waited cannot be finished");
        }
        for outgoing in self.out.drain(..) {
            if let Err(error) = self.raw.send(&outgoing) {
                tracing::debug!(%error, "a packet that has waited is not sent");
            }
        }
    }

    fn send_frames(&mut self) {
        let Batch { octets, frames, .. } = &mut self.batch;
        for run in frames.chunk_by(|a, b| a.0 == b.0) {
            let port = run[0].0;
            let ifindex = self.host.ifindex(port);
            let socket = self.sockets.entry(ifindex).or_insert_with(|| {
                let socket = FrameSocket::open(ifindex);
                if let Err(error) = &socket {
                    tracing::error!(%error, ifindex, "packets that have waited cannot be sent");
                }
                socket.ok()
            });
            let parts = run.iter().map(|&(_, at, len)| &octets[at..at + len]);
            let lost = match socket {
                Some(socket) => socket.send(parts),
                None => run.len() as u64,
            };
            if lost > 0 {
                let reason = reason_number("redirect");
                self.host.count_drops(port, DOWNLINK, reason, lost);
            }
        }
        frames.clear();
    }

    /// Send what was let go, and only then say that it no longer waits.
    fn flush(&mut self) {
        self.send_frames();
        let Batch {
            octets, entries, ..
        } = &mut self.batch;
        octets.clear();
        count(&self.counters.released, entries.len() as u64);
        for run in entries.chunk_by(|a, b| a == b) {
            self.host.lower_held(run[0], run.len() as u64, 0);
        }
        entries.clear();
    }

    fn expire(&mut self) {
        let now_ms = Self::now_ms();
        if now_ms.saturating_sub(self.expired_ms) < EXPIRE_MS {
            return;
        }
        self.expired_ms = now_ms;
        let (host, counters) = (&self.host, &self.counters);
        self.queues
            .expire(now_ms, |packet, why| lose(host, counters, packet, why));
        self.finisher.expire(monotonic_ns());
    }

    fn show(&self) {
        let [sessions, packets, bytes] = self.queues.fill();
        for (shown, now) in [
            (&self.counters.sessions, sessions),
            (&self.counters.packets, packets),
            (&self.counters.bytes, bytes),
        ] {
            shown.store(now as u64, Ordering::Relaxed);
        }
    }
}

/// A port that is none: its packets are nobody's.
fn port_none() -> usize {
    usize::from(u16::MAX)
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
    /// `ring` is `BPF_MAP_TYPE_RINGBUF` of `tp_event`s. `listener` hears of the first packet that waits for a PDR; it
    /// must not wait. Needs `CAP_NET_RAW`.
    pub(crate) fn start(
        holder: Holder,
        bounds: HoldBounds,
        ring: MapHandle,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::<HoldCounters>::default();
        let orders = holder.orders;
        let raw = RawSockets::open()?;
        let memory = holder.host.memory();
        let thread = std::thread::Builder::new().name("buffers".into());
        let thread = thread.spawn({
            let (stop, orders, counters) = (stop.clone(), orders.clone(), counters.clone());
            move || {
                let buffers = Buffers {
                    host: holder.host,
                    bystander: holder.bystander,
                    owners: holder.owners,
                    finisher: holder.finisher,
                    raw,
                    queues: Queues::new(bounds),
                    sockets: HashMap::new(),
                    counters,
                    listener: Box::new(listener),
                    expired_ms: 0,
                    batch: Batch::default(),
                    scratch: Scratch::new(),
                    out: Vec::new(),
                };
                if let Err(error) = run(buffers, &ring, &orders, &stop) {
                    tracing::error!(%error, "packets for idle UEs can no longer wait");
                    memory.config[0].held_max.store(0, Ordering::Release);
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

    /// What became of packets, and how many wait.
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
        let _ = self.orders.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(buffers: Buffers, ring: &MapHandle, orders: &Orders, stop: &AtomicBool) -> io::Result<()> {
    let buffers = RefCell::new(buffers);
    // Memory of its own, which a UPF whose UEs are never idle does not need.
    let mut opened: Option<RingBuffer<'_>> = None;
    while !stop.load(Ordering::Relaxed) {
        let mut taken = 0;
        if let Some(ring) = &opened {
            taken = ring.consume_raw_n(RING_BATCH);
            if taken < 0 {
                return Err(io::Error::from_raw_os_error(-taken));
            }
        }
        let given = orders.take();
        let idle = taken == 0 && given.is_empty();
        {
            let mut buffers = buffers.borrow_mut();
            for order in given {
                buffers.obey(order, orders);
            }
            buffers.release();
            buffers.expire();
            buffers.show();
        }
        let (waits, ready) = {
            let buffers = buffers.borrow();
            let waits = !buffers.queues.is_empty() || buffers.finisher.waits();
            (waits, buffers.queues.has_ready())
        };
        if idle && !ready && wait(&opened, ring, orders, waits)? && opened.is_none() {
            opened = Some(open(ring, &buffers)?);
        }
    }
    Ok(())
}

fn open<'a>(ring: &MapHandle, buffers: &'a RefCell<Buffers>) -> io::Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    builder
        .add(ring, |record| {
            buffers.borrow_mut().take(record);
            0
        })
        .map_err(io::Error::other)?;
    builder.build().map_err(io::Error::other)
}

/// Until there is something to do. Whether packets have come: a ring can be asked before it is mapped.
fn wait(
    opened: &Option<RingBuffer<'_>>,
    ring: &MapHandle,
    orders: &Orders,
    packets_wait: bool,
) -> io::Result<bool> {
    let records = match opened {
        // SAFETY: the descriptor belongs to the ring buffer, which outlives this function.
        Some(opened) => unsafe { BorrowedFd::borrow_raw(opened.epoll_fd()) },
        None => ring.as_fd(),
    };
    let mut fds = [
        PollFd::new(records, PollFlags::POLLIN),
        PollFd::new(orders.wake.as_fd(), PollFlags::POLLIN),
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
