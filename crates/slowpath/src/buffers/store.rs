//! Memory of buffered packets: of this process, or one that outlives it. It is taken as it is needed, and given back when none has
//! been buffered for a while.

use std::io;

use arena::pool::{self, Pool, Stored};
use tables::{KeptFile, Words};

use super::queues::{Came, Packet};

/// Octets in front of a frame: number and time in milliseconds, in 8 octets each, port and worker, in 2 each, ToS, whether it is
/// bare, and two that are 0; all in little-endian order.
pub(super) const FRONT: usize = 24;

/// The largest memory: blocks of 128 octets have numbers of 32 bits.
const OCTETS_MAX: usize = 128 * (u32::MAX as usize - (1 << 10));

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

/// Octets of a memory for packets that take so many.
pub fn octets_for(bytes: usize) -> usize {
    pool::octets_for(bytes.min(OCTETS_MAX))
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
        let file = KeptFile::anonymous(octets_for(bytes))?;
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

fn front_of(packet: &Packet) -> [u8; FRONT] {
    let Came { number, at_ms } = packet.came;
    let mut front = [0; FRONT];
    front[..8].copy_from_slice(&number.to_le_bytes());
    front[8..16].copy_from_slice(&at_ms.to_le_bytes());
    front[16..18].copy_from_slice(&packet.port.to_le_bytes());
    front[18..20].copy_from_slice(&packet.worker.to_le_bytes());
    [front[20], front[21]] = [packet.tos, packet.is_bare.into()];
    front
}

/// No entry counts it. `None`: the interface that it came by is none of ours any more.
fn packet_of(front: [u8; FRONT], stored: Stored, ports: &[Option<u16>]) -> Option<Packet> {
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|octet| front[at + octet]));
    let short = |at: usize| u16::from_le_bytes([front[at], front[at + 1]]);
    let is_whole = stored.len() >= FRONT;
    let port = ports.get(usize::from(short(16))).copied().flatten();
    port.filter(|_| is_whole).map(|port| Packet {
        entry: u32::MAX,
        port,
        worker: short(18),
        is_bare: front[21] != 0,
        tos: front[20],
        came: Came {
            number: long(0),
            at_ms: long(8),
        },
        stored,
    })
}
