//! Records of the event ring (`struct tp_event`), and the tasks in them (`struct tp_task`), as the data path writes them.

use std::mem::offset_of;

use crate::abi::raw;

/// `TP_EVENT_SEND`
pub const EVENT_SEND: u32 = raw::TP_EVENT_SEND;
/// `TP_EVENT_PACKET`
pub const EVENT_PACKET: u32 = raw::TP_EVENT_PACKET;
/// `TP_EVENT_GTPU`
pub const EVENT_GTPU: u32 = raw::TP_EVENT_GTPU;
/// `TP_EVENT_COPY`
pub const EVENT_COPY: u32 = raw::TP_EVENT_COPY;
/// `TP_EVENT_HELD`
pub const EVENT_HELD: u32 = raw::TP_EVENT_HELD;
/// `TP_EVENT_LATER`
pub const EVENT_LATER: u32 = raw::TP_EVENT_LATER;
/// `sizeof(struct tp_event)`
pub(crate) const EVENT_HEADER_LEN: usize = size_of::<raw::tp_event>();

/// Octets in front of a packet that waits (`struct tp_held`).
pub const HELD_LEN: usize = size_of::<raw::tp_held>();
/// `TP_HELD_BARE`
pub const HELD_BARE: u16 = raw::TP_HELD_BARE as u16;

/// Kinds of tasks.
pub mod what {
    use crate::abi::raw;

    /// `TP_TASK_OUTER_FRAGMENT`
    pub const OUTER_FRAGMENT: u8 = raw::TP_TASK_OUTER_FRAGMENT as u8;
    /// `TP_TASK_EXPIRED`
    pub const EXPIRED: u8 = raw::TP_TASK_EXPIRED as u8;
    /// `TP_TASK_TOO_LONG`
    pub const TOO_LONG: u8 = raw::TP_TASK_TOO_LONG as u8;
    /// `TP_TASK_CUT`
    pub const CUT: u8 = raw::TP_TASK_CUT as u8;
    /// `TP_TASK_SOLICITATION`
    pub const SOLICITATION: u8 = raw::TP_TASK_SOLICITATION as u8;
    /// `TP_TASK_INNER_FRAGMENT`
    pub const INNER_FRAGMENT: u8 = raw::TP_TASK_INNER_FRAGMENT as u8;
    /// `TP_TASK_EXTENSION`
    pub const EXTENSION: u8 = raw::TP_TASK_EXTENSION as u8;
}

/// Place of what UEs send in arrays of two.
pub const UPLINK: usize = raw::TP_UPLINK as usize;
/// Place of what goes to UEs.
pub const DOWNLINK: usize = raw::TP_DOWNLINK as usize;

/// `struct tp_task`: what is to be done with the octets behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// One of [`what`].
    pub what: u8,
    /// Octets of the headers of the tunnel that it leaves through.
    pub tunnel_len: u8,
    /// Largest IP packet there; of a fragment of a user's packet, the offset where that begins.
    pub mtu: u16,
    /// Network instance.
    pub ni: u16,
    /// `TP_TASK_*`
    pub flags: u16,
    /// The tunnel: as an entry has it, or the TEID that it came with.
    pub out: u64,
    /// Octets of the GTP-U header that goes along, of what is relayed.
    pub marks: u16,
    /// Marking of the outer header.
    pub mark: u16,
    /// Interface where it leaves.
    pub ifindex: u32,
}

const _: () = {
    assert!(size_of::<Task>() == size_of::<raw::tp_task>());
    assert!(offset_of!(Task, tunnel_len) == offset_of!(raw::tp_task, tunnel_len));
    assert!(offset_of!(Task, mtu) == offset_of!(raw::tp_task, mtu));
    assert!(offset_of!(Task, ni) == offset_of!(raw::tp_task, ni));
    assert!(offset_of!(Task, flags) == offset_of!(raw::tp_task, flags));
    assert!(offset_of!(Task, out) == offset_of!(raw::tp_task, out));
    assert!(offset_of!(Task, marks) == offset_of!(raw::tp_task, marks));
    assert!(offset_of!(Task, mark) == offset_of!(raw::tp_task, mark));
    assert!(offset_of!(Task, ifindex) == offset_of!(raw::tp_task, ifindex));
};

impl Task {
    /// `TP_TASK_FROM_UE`
    const FROM_UE: u16 = raw::TP_TASK_FROM_UE as u16;
    /// `TP_TASK_RELAYED`
    const RELAYED: u16 = raw::TP_TASK_RELAYED as u16;
    /// `TP_TASK_DOWN`
    const DOWN: u16 = raw::TP_TASK_DOWN as u16;

    /// The task in front of what it is about.
    pub fn parse(data: &[u8]) -> Option<(Self, &[u8])> {
        let (words, about) = data.split_first_chunk::<{ size_of::<Self>() }>()?;
        let short = |at: usize| u16::from_ne_bytes([words[at], words[at + 1]]);
        let task = Self {
            what: words[0],
            tunnel_len: words[1],
            mtu: short(2),
            ni: short(4),
            flags: short(6),
            out: u64::from_ne_bytes(words[8..16].try_into().ok()?),
            marks: short(16),
            mark: short(18),
            ifindex: u32::from_ne_bytes(words[20..].try_into().ok()?),
        };
        Some((task, about))
    }

    /// Largest length of a user's packet on its way out.
    pub fn room(&self) -> u16 {
        let headers = u16::from(self.tunnel_len).saturating_add(self.header_len());
        self.mtu.saturating_sub(headers)
    }

    /// Whether it goes from tunnel to tunnel.
    pub fn is_relayed(&self) -> bool {
        self.flags & Self::RELAYED != 0
    }

    /// Whether it goes from tunnel to tunnel, towards access.
    pub fn is_down(&self) -> bool {
        self.flags & Self::DOWN != 0
    }

    /// Octets of the GTP-U header that goes along with a packet that is relayed.
    pub fn header_len(&self) -> u16 {
        if self.is_relayed() { self.marks } else { 0 }
    }

    /// TEID and QFI that a relayed packet came with which is too long.
    pub fn came_with(&self) -> (u32, Option<u8>) {
        let qfi = (self.out >> 32) as u8;
        (self.out as u32, Some(qfi).filter(|qfi| *qfi < 64))
    }

    /// Whether a UE has sent it.
    pub fn is_from_ue(&self) -> bool {
        self.flags & Self::FROM_UE != 0
    }

    /// Place in arrays of two.
    pub fn direction(&self) -> usize {
        if self.is_from_ue() && !self.is_down() {
            UPLINK
        } else {
            DOWNLINK
        }
    }
}

/// A record of the event ring.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// `EVENT_*`
    pub kind: u32,
    /// Interface where it leaves, of what is to be sent.
    pub ifindex: u32,
    /// Port where it came in.
    pub port: u32,
    /// Worker that took it in; of XDP: 0.
    pub worker: u16,
    /// The packet or message that it is about.
    pub data: &'a [u8],
}

impl<'a> Event<'a> {
    /// The first of records that lie one behind the other.
    pub fn split(records: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let first = Self::parse(records)?;
        records.split_at_checked(EVENT_HEADER_LEN + first.data.len())
    }

    /// With its header; what stands behind it is left out.
    pub fn parse(record: &'a [u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?))
        };
        let short = |at: usize| -> Option<u16> {
            Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?))
        };
        Some(Self {
            kind: word(0)?,
            ifindex: word(4)?,
            port: short(12)?.into(),
            worker: short(14)?,
            data: record.get(EVENT_HEADER_LEN..)?.get(..word(8)? as usize)?,
        })
    }
}
