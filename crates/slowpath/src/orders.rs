//! Orders to those who keep packets: of the tables, of threads that have made a packet, of operators.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use compiled::{HoldLimits, PdrId};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tables::Keeper;

/// Packets of other threads that may be on their way here.
const GIVEN_MAX: usize = 4096;

/// Packets of one session that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Our SEID.
    pub seid: u64,
    /// PDRs whose packets wait.
    pub pdrs: Vec<u16>,
    /// Number of these packets.
    pub packets: u64,
    /// Octets of their frames.
    pub bytes: u64,
    /// Since when the first of them has waited.
    pub age: Duration,
}

/// An order to those who keep packets.
#[derive(Debug)]
pub(crate) enum Order {
    /// Look at a session whose rules have changed: its packets may go, or be lost.
    Look(u64),
    /// Drop the packets of a session.
    Discard(u64),
    /// Tell anew that packets of a session wait.
    Tell(u64),
    /// Bound the packets of a PDR.
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

    pub(crate) fn take(&self) -> Vec<Order> {
        let _ = self.wake.read();
        std::mem::take(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A packet that was given is no longer under way.
    pub(crate) fn packet_has_come(&self) {
        self.given.fetch_sub(1, Ordering::Relaxed);
    }

    /// Readable when there are orders.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Have those who wait for orders look up.
    pub(crate) fn wake(&self) {
        let _ = self.wake.write(1);
    }
}

impl Keeper for Orders {
    fn look(&self, seid: u64) {
        self.give(Order::Look(seid));
    }

    fn discard(&self, seid: u64) {
        self.give(Order::Discard(seid));
    }

    fn tell_anew(&self, seid: u64) {
        self.give(Order::Tell(seid));
    }

    fn limit(&self, seid: u64, pdr: PdrId, limits: HoldLimits) {
        self.give(Order::Limit(seid, pdr, limits));
    }
}
