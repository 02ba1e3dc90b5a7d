//! Memory of buffered packets: of this process, or one that outlives it. It is taken as it is needed, and given back when none has
//! been buffered for a while.

use std::io;

use arena::pool::{self, Pool, Stored};
use tables::{KeptFile, Words};

use super::packet::{FRONT, Packet, front_of, packet_of};

/// Packets that a process before this one has buffered.
#[derive(Debug)]
pub struct FormerPackets {
    /// In this memory.
    pub pool: Pool<Words>,
    /// Not in their order.
    pub packets: Vec<Stored>,
    /// Port of this process for each of its ports, where there is one.
    pub ports: Vec<Option<u16>>,
}

/// Memory for packets.
#[derive(Debug)]
pub(super) struct Store {
    pool: Pool<Words>,
    record: Vec<u8>,
    /// None has been put since it was asked for memory that is spare.
    rests: bool,
}

impl Store {
    pub(super) fn new(pool: Pool<Words>) -> Self {
        Self {
            pool,
            record: Vec::new(),
            rests: false,
        }
    }

    /// Of this process, for packets that take so many octets.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        let file = KeptFile::anonymous(pool::octets_for(bytes))?;
        let pool = Pool::create(Words::all(file), &[]);
        Ok(Self::new(pool.map_err(io::Error::other)?))
    }

    /// Octets of memory that a frame of so many takes.
    pub(super) fn taken(len: usize) -> usize {
        pool::taken(FRONT + len)
    }

    /// Octets in use.
    pub(super) fn used(&self) -> usize {
        self.pool.used()
    }

    /// `None`: no room.
    pub(super) fn put(&mut self, front: &Packet, frame: &[u8]) -> Option<Stored> {
        self.rests = false;
        self.record.clear();
        self.record.extend(front_of(front));
        self.record.extend(frame);
        self.pool.put(&self.record).ok()
    }

    /// Copies a frame behind what is in front of it: [`FRONT`] octets.
    pub(super) fn copy(&self, from: Stored, into: &mut [u8]) {
        self.pool.copy(from, into);
    }

    pub(super) fn give(&mut self, stored: Stored) {
        self.pool.give(stored);
    }

    /// Memory is kept that no packet takes.
    pub(super) fn is_spare(&self) -> bool {
        self.pool.is_spare()
    }

    /// It is given back, if no packet has come since this was asked last.
    pub(super) fn give_back(&mut self) {
        if std::mem::replace(&mut self.rests, true) {
            self.pool.give_back();
        }
    }

    /// Takes packets of a process before this one, in their order, each to be given its place among the queues. The number of those that
    /// there is no room or no port for.
    pub(super) fn take_over(&mut self, former: FormerPackets) -> (Vec<Packet>, usize) {
        let FormerPackets {
            pool,
            packets,
            ports,
        } = former;
        let all = packets.len();
        let mut read = Vec::with_capacity(all);
        for stored in packets {
            let mut front = [0; FRONT];
            pool.copy(stored, &mut front);
            read.extend(packet_of(front, stored, &ports));
        }
        read.sort_unstable_by_key(|packet: &Packet| packet.came);
        read.retain_mut(|packet| {
            let mut record = vec![0; packet.stored.len()];
            pool.copy(packet.stored, &mut record);
            let stored = self.put(packet, &record[FRONT..]);
            stored.inspect(|stored| packet.stored = *stored).is_some()
        });
        let lost = all - read.len();
        (read, lost)
    }
}
