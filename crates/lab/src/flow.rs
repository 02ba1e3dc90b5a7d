//! A flow of numbered UDP packets: says of each whether it was lost, doubled or late.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use crate::netns::Netns;

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
    /// `rate` packets a second for `seconds`, of a size that real-time media has.
    pub fn lasting(rate: u32, seconds: u32) -> Self {
        Self {
            rate,
            count: rate * seconds,
            payload: 200,
        }
    }
}

/// What became of a flow.
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
    highest: Option<u32>,
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
        self.outcome.received += 1;
        if self.highest.is_some_and(|highest| number < highest) {
            self.outcome.late += 1;
        }
        self.highest = self.highest.max(Some(number));
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
    sent: Arc<AtomicU32>,
    sender: JoinHandle<Result<()>>,
    receiver: JoinHandle<Ledger>,
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
    let inbound = at.enter(|| Ok(UdpSocket::bind(to)?)).context("receiver")?;
    setsockopt(&inbound, sockopt::RcvBufForce, &(16 << 20))?;
    inbound.set_read_timeout(Some(Duration::from_millis(100)))?;
    let outbound = send_socket(from, source, inbound.local_addr()?)?;
    let sending_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&sending_over);
    let receiver = std::thread::spawn(move || receive(&inbound, &over));
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let sender = std::thread::spawn(move || {
        let result = send(&outbound, shape, &count);
        sending_over.store(true, Relaxed);
        result
    });
    Ok(Running {
        sent,
        sender,
        receiver,
    })
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
    let socket = from
        .enter(|| Ok(UdpSocket::bind(source)?))
        .context("sender")?;
    socket
        .connect(to)
        .with_context(|| format!("connect to {to}"))?;
    setsockopt(&socket, sockopt::SndBufForce, &(8 << 20))?;
    Ok(socket)
}

/// Sends numbered packets at an even pace. What falls due while the thread sleeps is sent at once.
pub fn send(socket: &UdpSocket, shape: Shape, sent: &AtomicU32) -> Result<()> {
    send_until(socket, shape, sent, &AtomicBool::new(false))
}

/// As [`send`], unless it is told before that all is over.
pub fn send_until(
    socket: &UdpSocket,
    shape: Shape,
    sent: &AtomicU32,
    over: &AtomicBool,
) -> Result<()> {
    let mut packet = vec![0; shape.payload.max(4)];
    let began = Instant::now();
    loop {
        let due = (began.elapsed().as_secs_f64() * f64::from(shape.rate)) as u32;
        for number in sent.load(Relaxed)..due.min(shape.count) {
            packet[..4].copy_from_slice(&number.to_be_bytes());
            socket.send(&packet)?;
            sent.store(number + 1, Relaxed);
        }
        if due >= shape.count || over.load(Relaxed) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn receive(socket: &UdpSocket, sending_over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger::default();
    let mut buffer = [0; 2048];
    let mut last = Instant::now();
    // What is still under way after the last packet was sent arrives within this time.
    while !sending_over.load(Relaxed) || last.elapsed() < Duration::from_millis(500) {
        if let Ok(length) = socket.recv(&mut buffer) {
            ledger.note(&buffer[..length]);
            last = Instant::now();
        } else if !sending_over.load(Relaxed) {
            last = Instant::now();
        }
    }
    ledger
}

impl Running {
    /// Waits until all was sent and has had time to arrive.
    pub fn finish(self) -> Result<Outcome> {
        self.sender
            .join()
            .map_err(|_| anyhow!("the sending thread panicked"))??;
        let ledger = self
            .receiver
            .join()
            .map_err(|_| anyhow!("the receiving thread panicked"))?;
        Ok(ledger.close(self.sent.load(Relaxed)))
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
