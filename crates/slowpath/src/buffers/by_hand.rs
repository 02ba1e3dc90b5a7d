//! Buffering without a thread and without sockets.

use std::io;
use std::sync::{Arc, mpsc};

use compiled::Buffered;

use super::packet_buffer::{Exit, PacketBuffer};
use super::store::Store;
use super::{BufferBounds, BufferCounters, BufferCounts, BufferParts};
use crate::buffer_commands::BufferCommands;
use crate::outgoing::Outgoing;

/// Buffered packets, moved by the caller: for a pipeline that runs in the caller's own process, which sends what
/// leaves itself.
#[derive(Debug)]
pub struct BufferByHand {
    buffer: PacketBuffer<Left>,
    commands: Arc<BufferCommands>,
    counters: Arc<BufferCounters>,
    news: mpsc::Receiver<Buffered>,
}

/// A packet that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// A frame out of a port, from its Ethernet header on.
    Frame(Vec<u8>),
    /// A packet for the kernel to send.
    Packet(Outgoing),
}

#[derive(Debug, Default)]
struct Left(Vec<Released>);

impl Exit for Left {
    fn frames<'a>(&mut self, _: (u32, u16), frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        self.0
            .extend(frames.map(|frame| Released::Frame(frame.to_vec())));
        0
    }

    fn packet(&mut self, outgoing: Outgoing, _: u16) {
        self.0.push(Released::Packet(outgoing));
    }
}

impl BufferByHand {
    pub(crate) fn new(parts: BufferParts, bounds: BufferBounds) -> io::Result<Self> {
        let (listener, news) = mpsc::channel();
        let counters = Arc::<BufferCounters>::default();
        let commands = Arc::clone(&parts.commands);
        // Nobody who could miss it is left if this fails.
        let tell = move |what| listener.send(what).unwrap_or_default();
        let shared = Arc::clone(&counters);
        let memory = (bounds, Store::anonymous(bounds.bytes)?);
        Ok(Self {
            buffer: PacketBuffer::new(parts, memory, Left::default(), shared, tell),
            commands,
            counters,
            news,
        })
    }

    /// Buffer the packet of a record that the data path has made ([`tables::Run::event`], or of the ring).
    pub fn take(&mut self, record: &[u8]) {
        self.buffer.take(record);
    }

    /// Hear of changes to rules, and release what may leave.
    pub fn release(&mut self) -> Vec<Released> {
        for command in self.commands.take() {
            self.buffer.execute(command, &self.commands);
        }
        while self.buffer.has_ready() {
            self.buffer.release();
        }
        self.buffer.show();
        std::mem::take(&mut self.buffer.exit.0)
    }

    /// First buffered packets of PDRs, since this was asked last.
    pub fn news(&mut self) -> Vec<Buffered> {
        self.news.try_iter().collect()
    }

    /// Counters of packets, and how many were buffered at the last [`Self::release`].
    pub fn counts(&self) -> BufferCounts {
        self.counters.counts()
    }
}
