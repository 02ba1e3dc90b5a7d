//! A flow of numbered UDP packets: says of each whether it was lost, doubled or late.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use crate::netns::Netns;
use crate::wait::NEVER;

/// Packets under way at most: half of the ring of a veth, which loses what comes beyond.
const WINDOW: u32 = 128;
/// Packets sent one behind the other at most, however many are due.
const BURST: u32 = 32;
/// Silence after which packets under way are taken for lost, and so many more are sent.
const STALL: Duration = Duration::from_millis(20);
const AFTER_STALL: u32 = 32;
/// How long packets that come twice are listened for, when all have come once.
const TWICE: Duration = Duration::from_millis(50);
/// Silence that ends a flow of which nothing, or not all, is to arrive.
const BLOCKED: Duration = Duration::from_millis(400);
/// The same, where links lose some.
pub const LOSSY: Duration = Duration::from_secs(3);
/// Gaps between packets that are noted.
const GAP: Duration = Duration::from_millis(50);
/// Slots of time in which the sender counts.
pub const SLOT: Duration = Duration::from_millis(100);

/// How a flow is sent.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Packets per second.
    pub rate: u32,
    /// Packets in all.
    pub count: u32,
    /// Bytes of UDP payload, at least 4.
    pub payload: usize,
}

impl Shape {
    /// `rate` packets a second for `seconds` and longer where the sender has no time, of a size that real-time media has.
    pub fn lasting(rate: u32, seconds: u32) -> Self {
        Self {
            rate,
            count: rate * seconds,
            payload: 200,
        }
    }

    /// `rate` packets a second until the flow is stopped.
    pub fn endless(rate: u32) -> Self {
        Self {
            rate,
            count: Ledger::LIMIT,
            payload: 200,
        }
    }
}

/// Fate of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Packets sent.
    pub sent: u32,
    /// Different packets received.
    pub received: u32,
    /// Packets received again.
    pub duplicates: u32,
    /// Packets received after one that was sent later.
    pub late: u32,
    /// Numbers of the first packets that are missing.
    pub missing: Vec<u32>,
    /// Lowest and highest number received.
    pub numbers: Option<(u32, u32)>,
    /// When the first and the last packet came.
    pub came: Option<(Instant, Instant)>,
    /// Long gaps between packets that came.
    pub gaps: Vec<Duration>,
}

impl Outcome {
    /// Packets that did not arrive.
    pub fn lost(&self) -> u32 {
        self.sent - self.received
    }

    /// An error unless each packet arrived exactly once.
    pub fn whole(&self, what: &str) -> Result<()> {
        ensure!(self.sent > 0, "{what}: nothing was sent");
        let lost = self.lost();
        ensure!(
            lost == 0 && self.duplicates == 0,
            "{what}: of {} packets {lost} lost (first {:?}), {} doubled",
            self.sent,
            self.missing,
            self.duplicates
        );
        Ok(())
    }
}

/// Which packets have been seen.
#[derive(Debug, Default)]
pub struct Ledger {
    seen: Vec<bool>,
    outcome: Outcome,
}

impl Ledger {
    /// Beyond this number a packet is not ours: the sender never counts so far.
    const LIMIT: u32 = 1 << 26;

    /// Notes the payload of one packet.
    pub fn note(&mut self, payload: &[u8]) {
        let Some(number) = payload.first_chunk().map(|b| u32::from_be_bytes(*b)) else {
            return;
        };
        if number >= Self::LIMIT {
            return;
        }
        let index = number as usize;
        if self.seen.len() <= index {
            self.seen.resize(index + 1, false);
        }
        if std::mem::replace(&mut self.seen[index], true) {
            self.outcome.duplicates += 1;
            return;
        }
        let outcome = &mut self.outcome;
        outcome.received += 1;
        let (lowest, highest) = outcome.numbers.unwrap_or((number, number));
        outcome.late += u32::from(number < highest);
        outcome.numbers = Some((lowest.min(number), highest.max(number)));
        let now = Instant::now();
        let (first, last) = outcome.came.unwrap_or((now, now));
        if now - last > GAP {
            outcome.gaps.push(now - last);
        }
        outcome.came = Some((first, now));
    }

    /// Different packets received so far.
    pub fn received(&self) -> u32 {
        self.outcome.received
    }

    /// Closes the books on `sent` packets.
    pub fn close(&self, sent: u32) -> Outcome {
        let seen = |n: &u32| self.seen.get(*n as usize).copied().unwrap_or(false);
        let missing = (0..sent).filter(|n| !seen(n)).take(5).collect();
        Outcome {
            sent,
            missing,
            ..self.outcome.clone()
        }
    }
}

/// A flow on its way.
pub struct Running {
    way: Arc<Way>,
    sender: JoinHandle<Result<Sent>>,
    receiver: JoinHandle<Ledger>,
}

/// State that sender and receiver of a flow share.
#[derive(Default)]
struct Way {
    sent: AtomicU32,
    arrived: AtomicU32,
    stop: AtomicBool,
    sending_over: AtomicBool,
    /// Silence that ends the flow.
    patience_ms: AtomicU64,
}

/// Starts a flow from one namespace to `to`, an address of the other; port 0 takes any free port.
pub fn start(from: &Netns, at: &Netns, to: SocketAddr, shape: Shape) -> Result<Running> {
    start_from(from, any(to), at, to, shape)
}

/// As [`start`], with a source address and port of choice.
pub fn start_from(
    from: &Netns,
    source: SocketAddr,
    at: &Netns,
    to: SocketAddr,
    shape: Shape,
) -> Result<Running> {
    begin((from, source), (at, to), shape, WINDOW)
}

/// As [`start_from`], for what a UPF is to lose a part of: packets are sent whatever arrives.
pub fn start_regardless(
    from: &Netns,
    source: SocketAddr,
    at: &Netns,
    to: SocketAddr,
    shape: Shape,
) -> Result<Running> {
    begin((from, source), (at, to), shape, u32::MAX)
}

fn begin(
    (from, source): (&Netns, SocketAddr),
    (at, to): (&Netns, SocketAddr),
    shape: Shape,
    window: u32,
) -> Result<Running> {
    let inbound = at.udp(to).context("receiver")?;
    setsockopt(&inbound, sockopt::RcvBufForce, &(16 << 20))?;
    inbound.set_read_timeout(Some(Duration::from_millis(20)))?;
    let outbound = send_socket(from, source, inbound.local_addr()?)?;
    let way = Arc::new(Way::default());
    way.patience_ms.store(NEVER.as_millis() as u64, Relaxed);
    let receiving = Arc::clone(&way);
    let receiver = std::thread::spawn(move || receive(&inbound, &receiving));
    let sending = Arc::clone(&way);
    let sender = std::thread::spawn(move || {
        let arrived = || sending.arrived.load(Relaxed);
        let result = pace(
            &outbound,
            (shape, window),
            &sending.sent,
            &sending.stop,
            &arrived,
        );
        sending.sending_over.store(true, Relaxed);
        result
    });
    Ok(Running {
        way,
        sender,
        receiver,
    })
}

/// A flow that is sent in bursts, by whoever calls.
pub struct Bursts {
    socket: UdpSocket,
    way: Arc<Way>,
    receiver: JoinHandle<Ledger>,
}

impl Bursts {
    /// From one namespace to `to`, an address of the other; port 0 takes any free port.
    pub fn start(from: &Netns, at: &Netns, to: SocketAddr) -> Result<Self> {
        let inbound = at.udp(to).context("receiver")?;
        setsockopt(&inbound, sockopt::RcvBufForce, &(16 << 20))?;
        inbound.set_read_timeout(Some(Duration::from_millis(20)))?;
        let socket = send_socket(from, any(to), inbound.local_addr()?)?;
        let way = Arc::new(Way::default());
        way.patience_ms.store(NEVER.as_millis() as u64, Relaxed);
        let receiving = Arc::clone(&way);
        let receiver = std::thread::spawn(move || receive(&inbound, &receiving));
        Ok(Self {
            socket,
            way,
            receiver,
        })
    }

    /// So many packets back to back, then a pause.
    pub fn burst(&self, packets: u32, pause: Duration) -> Result<()> {
        let mut packet = [0; 1200];
        for _ in 0..packets {
            let number = self.way.sent.load(Relaxed);
            packet[..4].copy_from_slice(&number.to_be_bytes());
            self.socket.send(&packet).context("send")?;
            self.way.sent.store(number + 1, Relaxed);
        }
        std::thread::sleep(pause);
        Ok(())
    }

    /// Ends when all packets have come, or for a long time none has.
    pub fn finish(self) -> Result<Outcome> {
        self.way.sending_over.store(true, Relaxed);
        let ledger = self.receiver.join();
        let ledger = ledger.map_err(|_| anyhow!("the receiving thread panicked"))?;
        Ok(ledger.close(self.way.sent.load(Relaxed)))
    }
}

/// Any address and port of the family of `to`.
pub fn any(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    }
}

/// A socket in `from` that sends to `to`.
pub fn send_socket(from: &Netns, source: SocketAddr, to: SocketAddr) -> Result<UdpSocket> {
    let socket = from.udp(source).context("sender")?;
    socket
        .connect(to)
        .with_context(|| format!("connect to {to}"))?;
    setsockopt(&socket, sockopt::SndBufForce, &(8 << 20))?;
    Ok(socket)
}

/// Facts that a sender knows of its own packets.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it began, and when it ended.
    pub from: Instant,
    /// The same.
    pub until: Instant,
    /// Packets in each [`SLOT`] of time.
    pub slots: Vec<u32>,
}

/// Sends numbered packets at an even pace, until it is told that all is over. No more than a window is under way, as
/// `arrived` tells; what the sender slept over is not made up for.
pub fn send_until(
    socket: &UdpSocket,
    shape: Shape,
    sent: &AtomicU32,
    over: &AtomicBool,
    arrived: &dyn Fn() -> u32,
) -> Result<Sent> {
    pace(socket, (shape, WINDOW), sent, over, arrived)
}

fn pace(
    socket: &UdpSocket,
    (shape, window): (Shape, u32),
    sent: &AtomicU32,
    over: &AtomicBool,
    arrived: &dyn Fn() -> u32,
) -> Result<Sent> {
    let mut packet = vec![0; shape.payload.max(4)];
    let from = Instant::now();
    let mut slots = Vec::new();
    // Time that was slept over, in packets.
    let mut slept = 0u64;
    let mut air = Air::new(window);
    loop {
        let number = sent.load(Relaxed);
        if number >= shape.count || over.load(Relaxed) {
            let until = Instant::now();
            return Ok(Sent { from, until, slots });
        }
        let elapsed = from.elapsed();
        let due = (elapsed.as_secs_f64() * f64::from(shape.rate)) as u64;
        let due = due.saturating_sub(slept);
        let behind = due.saturating_sub(number.into());
        let burst = behind.min(BURST.into()) as u32;
        slept += behind - u64::from(burst);
        let room = air.room(number, arrived());
        let step = burst.min(room).min(shape.count - number);
        // Packets that have no room are not sent later at once, either.
        slept += u64::from(burst.saturating_sub(step.max(1)));
        for number in number..number + step {
            packet[..4].copy_from_slice(&number.to_be_bytes());
            socket.send(&packet)?;
            sent.store(number + 1, Relaxed);
        }
        let slot = (elapsed.as_millis() / SLOT.as_millis()) as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, 0);
        }
        slots[slot] += step;
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Packets under way.
struct Air {
    window: u32,
    /// Packets that are taken for lost.
    lost: u32,
    arrived: u32,
    moved: Instant,
}

impl Air {
    fn new(window: u32) -> Self {
        Self {
            window,
            lost: 0,
            arrived: 0,
            moved: Instant::now(),
        }
    }

    /// How many may follow.
    fn room(&mut self, sent: u32, arrived: u32) -> u32 {
        if arrived != self.arrived {
            (self.arrived, self.moved) = (arrived, Instant::now());
            // Some that were taken for lost had only waited.
            self.lost = self.lost.min(sent.saturating_sub(arrived));
        }
        let under_way = sent.saturating_sub(arrived).saturating_sub(self.lost);
        if under_way >= self.window && self.moved.elapsed() > STALL {
            self.lost += AFTER_STALL;
            self.moved = Instant::now();
        }
        self.window.saturating_sub(under_way)
    }
}

fn receive(socket: &UdpSocket, way: &Way) -> Ledger {
    let mut ledger = Ledger::default();
    let mut buffer = [0; 4096];
    let mut silent_since = Instant::now();
    loop {
        if let Ok(length) = socket.recv(&mut buffer) {
            ledger.note(&buffer[..length]);
            way.arrived.fetch_add(1, Relaxed);
            silent_since = Instant::now();
            continue;
        }
        if !way.sending_over.load(Relaxed) {
            silent_since = Instant::now();
            continue;
        }
        let patience = if ledger.received() >= way.sent.load(Relaxed) {
            TWICE
        } else {
            Duration::from_millis(way.patience_ms.load(Relaxed))
        };
        if silent_since.elapsed() >= patience {
            return ledger;
        }
    }
}

impl Running {
    /// Packets sent so far.
    pub fn sent(&self) -> u32 {
        self.way.sent.load(Relaxed)
    }

    /// Packets that have arrived so far.
    pub fn arrived(&self) -> u32 {
        self.way.arrived.load(Relaxed)
    }

    /// Whether the sender is done.
    pub fn is_sent(&self) -> bool {
        self.way.sending_over.load(Relaxed)
    }

    /// Sends no more.
    pub fn stop(&self) {
        self.way.stop.store(true, Relaxed);
    }

    /// Waits until all has been sent and has arrived; for what is missing, until it never comes.
    pub fn finish(self) -> Result<Outcome> {
        Ok(self.finish_timed()?.0)
    }

    /// As [`Self::finish`], for a flow of which a part is to be lost.
    pub fn finish_lossy(self) -> Result<(Outcome, Sent)> {
        self.listen_for(LOSSY);
        self.finish_timed()
    }

    /// As [`Self::finish_lossy`], once all that is lost is known to be.
    pub fn finish_dropped(self) -> Result<(Outcome, Sent)> {
        self.listen_for(BLOCKED);
        self.finish_timed()
    }

    /// Waits until all has been sent, and no longer than it takes to believe that nothing of it comes.
    pub fn finish_blocked(self) -> Result<Outcome> {
        self.listen_for(BLOCKED);
        self.finish()
    }

    fn listen_for(&self, silence: Duration) {
        let ms = silence.as_millis() as u64;
        self.way.patience_ms.store(ms, Relaxed);
    }

    /// As [`Self::finish`], with what the sender knows.
    pub fn finish_timed(self) -> Result<(Outcome, Sent)> {
        let sent = self
            .sender
            .join()
            .map_err(|_| anyhow!("the sending thread panicked"))??;
        let ledger = self
            .receiver
            .join()
            .map_err(|_| anyhow!("the receiving thread panicked"))?;
        Ok((ledger.close(self.way.sent.load(Relaxed)), sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Prefix;

    #[test]
    fn loss_doubling_and_lateness_are_told_apart() {
        let mut ledger = Ledger::default();
        for number in [0u32, 1, 3, 2, 2, 6] {
            ledger.note(&number.to_be_bytes());
        }
        ledger.note(b"x");
        let outcome = ledger.close(8);
        assert_eq!(
            (outcome.received, outcome.lost(), outcome.duplicates),
            (5, 3, 1)
        );
        assert_eq!((outcome.late, &outcome.missing[..]), (1, &[4, 5, 7][..]));
        assert!(outcome.whole("flow").is_err());
    }

    #[test]
    fn a_window_opens_by_what_arrives_and_by_silence() {
        let mut air = Air::new(100);
        assert_eq!(air.room(40, 0), 60);
        assert_eq!(air.room(100, 0), 0);
        assert_eq!(air.room(100, 30), 30);
        assert_eq!(air.room(130, 30), 0);
        std::thread::sleep(STALL * 2);
        assert_eq!(air.room(130, 30), 0);
        assert_eq!(air.room(130, 30), AFTER_STALL);
        // They come after all.
        assert_eq!(air.room(130, 130), 100);
    }

    #[test]
    fn a_flow_that_nobody_hears_ends() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "f")?;
        netns.ip(
            "link add v0 type veth peer name v1\nlink set v0 arp off up\n\
             addr add 10.9.8.1/24 dev v0\nroute add 10.9.9.0/24 dev v0",
        )?;
        let elsewhere = Netns::create(&Prefix::unique(), "g")?;
        elsewhere.ip("addr add 10.9.9.9/32 dev lo")?;
        let to = SocketAddr::from(([10, 9, 9, 9], 0));
        let shape = Shape {
            rate: 20_000,
            count: 1000,
            payload: 100,
        };
        let outcome = start(&netns, &elsewhere, to, shape)?.finish_blocked()?;
        assert_eq!((outcome.sent, outcome.received), (1000, 0));
        Ok(())
    }

    #[test]
    fn a_flow_over_loopback_arrives_whole() -> Result<()> {
        let netns = Netns::create(&Prefix::unique(), "f")?;
        let to = SocketAddr::from(([127, 0, 0, 1], 0));
        let shape = Shape {
            rate: 5000,
            count: 1000,
            payload: 100,
        };
        let outcome = start(&netns, &netns, to, shape)?.finish()?;
        assert_eq!(outcome.sent, 1000);
        outcome.whole("loopback")
    }
}
