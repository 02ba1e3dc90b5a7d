//! A buffered packet, and what is in front of it in memory.

use arena::pool::{self, Stored};

/// Octets in front of a frame: number and time in milliseconds, in 8 octets each, port and worker, in 2 each, ToS, whether it is
/// bare, and two that are 0; all in little-endian order.
pub(super) const FRONT: usize = 24;

/// A buffered packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Index of the entry that took it, which counts it.
    pub(super) entry: u32,
    /// Port where it came in, and worker that took it in.
    pub(super) port: u16,
    pub(super) worker: u16,
    /// A user's packet, made to look as if its data network had sent it.
    pub(super) is_bare: bool,
    /// ToS or Traffic Class.
    pub(super) tos: u8,
    pub(super) came: Came,
    pub(super) stored: Stored,
}

/// When a packet was buffered, and after which others: that stays when it is handed on to another PDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Came {
    pub(super) number: u64,
    pub(super) at_ms: u64,
}

impl Packet {
    /// Of the frame.
    pub(super) fn len(&self) -> usize {
        self.stored.len() - FRONT
    }

    /// Octets of memory.
    pub(super) fn takes(&self) -> usize {
        pool::taken(self.stored.len())
    }
}

/// Octets in front of its frame in memory.
pub(super) fn front_of(packet: &Packet) -> [u8; FRONT] {
    let Came { number, at_ms } = packet.came;
    let mut front = [0; FRONT];
    front[..8].copy_from_slice(&number.to_le_bytes());
    front[8..16].copy_from_slice(&at_ms.to_le_bytes());
    front[16..18].copy_from_slice(&packet.port.to_le_bytes());
    front[18..20].copy_from_slice(&packet.worker.to_le_bytes());
    [front[20], front[21]] = [packet.tos, packet.is_bare.into()];
    front
}

/// A packet of a process before this one: no entry counts it. `None`: the interface that it came by is none of ours any more.
pub(super) fn packet_of(
    front: [u8; FRONT],
    stored: Stored,
    ports: &[Option<u16>],
) -> Option<Packet> {
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
