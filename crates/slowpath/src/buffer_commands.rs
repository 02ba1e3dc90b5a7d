//! Commands to the buffers: of the tables, of threads that have made a packet, of operators.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use compiled::{BufferLimits, PdrId};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tables::{BufferControl, LeftRing};

/// Packets of other threads that may be on their way here.
const PACKETS_MAX: usize = 4096;

/// Buffered packets of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferedSession {
    /// Our SEID.
    pub seid: u64,
    /// PDRs that took them.
    pub pdrs: Vec<u16>,
    /// Number of packets.
    pub packets: u64,
    /// Octets of their frames.
    pub bytes: u64,
    /// Since when the first of them has waited.
    pub age: Duration,
}

/// A command to the buffers.
#[derive(Debug)]
pub(crate) enum BufferCommand {
    /// Release the packets of a session whose rules have changed, as far as these now say so.
    Release(u64),
    /// Drop the packets of a session.
    Discard(u64),
    /// Tell anew of the packets of a session.
    Tell(u64),
    /// Bound the packets of a PDR.
    Limit(u64, PdrId, BufferLimits),
    /// Have packets of a process before this one go where the rules of now have them go.
    Judge,
    /// Likewise those in rings of before, and from then on those of this process' ring.
    Begin(Vec<LeftRing>),
    /// A record of the ring that came by another way.
    Packet(Vec<u8>),
    /// Show sessions.
    List(mpsc::Sender<Vec<BufferedSession>>),
}

/// Queue of commands.
#[derive(Debug)]
pub(crate) struct BufferCommands {
    queue: Mutex<Vec<BufferCommand>>,
    packets: AtomicU64,
    wake: EventFd,
}

impl BufferCommands {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            queue: Mutex::default(),
            packets: AtomicU64::new(0),
            wake: EventFd::from_flags(flags)?,
        })
    }

    pub(crate) fn send(&self, command: BufferCommand) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(command);
        if queue.len() == 1 {
            let _ = self.wake.write(1);
        }
    }

    /// `false`: too many are under way.
    pub(crate) fn send_packet(&self, record: &[u8]) -> bool {
        if self.packets.fetch_add(1, Ordering::Relaxed) >= PACKETS_MAX as u64 {
            self.packets.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.send(BufferCommand::Packet(record.to_vec()));
        true
    }

    pub(crate) fn take(&self) -> Vec<BufferCommand> {
        let _ = self.wake.read();
        std::mem::take(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A packet that was sent is no longer under way.
    pub(crate) fn packet_has_come(&self) {
        self.packets.fetch_sub(1, Ordering::Relaxed);
    }

    /// Readable when there are commands.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Wake the reader of the queue.
    pub(crate) fn wake(&self) {
        let _ = self.wake.write(1);
    }
}

impl BufferControl for BufferCommands {
    fn release(&self, seid: u64) {
        self.send(BufferCommand::Release(seid));
    }

    fn discard(&self, seid: u64) {
        self.send(BufferCommand::Discard(seid));
    }

    fn tell_anew(&self, seid: u64) {
        self.send(BufferCommand::Tell(seid));
    }

    fn limit(&self, seid: u64, pdr: PdrId, limits: BufferLimits) {
        self.send(BufferCommand::Limit(seid, pdr, limits));
    }
}
