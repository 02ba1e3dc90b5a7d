//! Packets handed to the kernel, until they leave.
//!
//! The kernel holds a packet while it looks for the neighbour, and frees it without a word when nobody answers, or when too
//! many wait. It does tell when one goes to a device, by a timestamp (`SOF_TIMESTAMPING_TX_SCHED`) with the packet's number
//! on its socket. A packet without one, of which the kernel has no memory any more, is lost.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use tables::unsent_octets;

use crate::outgoing::Outgoing;
use crate::sockets::{Failure, RawSockets};

/// Packets of one socket that are followed, at most: as many as its send buffer holds of short ones. The oldest is taken
/// for lost beyond that.
const FOLLOWED_MAX: usize = 1 << 17;

/// Room for what the kernel tells when all of them leave at once.
const TOLD_BYTES: usize = 64 << 20;

/// Time after which a packet is lost for sure, where others keep the kernel busy: ten times what it looks for a neighbour.
const LOST_NS: u64 = 30_000_000_000;

/// Raw sockets whose packets are followed until they leave.
#[derive(Debug)]
pub(crate) struct FollowedSockets {
    sockets: RawSockets,
    /// Of IPv4 and IPv6.
    departures: [Departures; 2],
}

impl FollowedSockets {
    /// As [`RawSockets::open`].
    pub(crate) fn open() -> io::Result<Self> {
        let sockets = RawSockets::open()?;
        let departures = sockets.each().map(Departures::new);
        Ok(Self {
            sockets,
            departures,
        })
    }

    /// Hand one packet to the kernel. `counted`: port and direction under which it is counted if it is lost there.
    pub(crate) fn transmit(
        &mut self,
        outgoing: &Outgoing,
        counted: Option<(u32, usize)>,
        now_ns: u64,
    ) -> Result<(), Failure> {
        let outcome = self.sockets.transmit(outgoing);
        let is_v6 = outgoing.packet.first().is_some_and(|first| first >> 4 == 6);
        let departures = &mut self.departures[usize::from(is_v6)];
        match &outcome {
            Ok(()) => departures.push(counted, now_ns),
            Err(Failure::Refused(errno)) => departures.refused(*errno),
            Err(Failure::Malformed) => {}
        }
        outcome
    }

    /// Take in which packets have left, and tell `lose` the port and direction of those that never will.
    pub(crate) fn settle(&mut self, now_ns: u64, mut lose: impl FnMut(u32, usize)) {
        for (departures, socket) in self.departures.iter_mut().zip(self.sockets.each()) {
            departures.settle(socket, now_ns, &mut lose);
        }
    }

    /// Whether packets are followed.
    pub(crate) fn waits(&self) -> bool {
        self.departures.iter().any(Departures::waits)
    }
}

/// A packet that has not left.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    counted: Option<(u32, usize)>,
    since_ns: u64,
}

/// Packets of one socket, by the numbers that the kernel gives them.
#[derive(Debug)]
struct Departures {
    /// `None`: it has left.
    packets: VecDeque<Option<Waiting>>,
    /// Number of the first of `packets`.
    first: u32,
    /// The kernel may have given a number to a packet that it refused then.
    is_uncertain: bool,
    /// Room was short.
    pushed_out: Vec<Waiting>,
    /// The kernel tells of departures.
    is_told: bool,
}

impl Departures {
    fn new(socket: BorrowedFd<'_>) -> Self {
        // Without CAP_NET_ADMIN fewer packets can wait, too.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &TOLD_BYTES);
        let told = number_from_zero(socket);
        if let Err(error) = &told {
            tracing::warn!(%error, "packets lost for want of a neighbour are not counted");
        }
        Self {
            packets: VecDeque::new(),
            first: 0,
            is_uncertain: false,
            pushed_out: Vec::new(),
            is_told: told.is_ok(),
        }
    }

    fn push(&mut self, counted: Option<(u32, usize)>, since_ns: u64) {
        self.put(Some(Waiting { counted, since_ns }));
    }

    fn put(&mut self, packet: Option<Waiting>) {
        if !self.is_told {
            return;
        }
        if self.packets.len() >= FOLLOWED_MAX {
            self.pushed_out.extend(self.packets.pop_front().flatten());
            self.first = self.first.wrapping_add(1);
        }
        self.packets.push_back(packet);
    }

    /// A packet was not taken.
    fn refused(&mut self, errno: Errno) {
        match errno {
            // Before it had a number.
            Errno::EAGAIN | Errno::EMSGSIZE | Errno::ENETUNREACH | Errno::EHOSTUNREACH => return,
            // Behind it: a firewall, a device that is down.
            Errno::EPERM | Errno::ENETDOWN => self.put(None),
            _ => {}
        }
        self.is_uncertain = true;
    }

    fn waits(&self) -> bool {
        !self.packets.is_empty() || !self.pushed_out.is_empty()
    }

    fn settle(&mut self, socket: BorrowedFd<'_>, now_ns: u64, lose: &mut impl FnMut(u32, usize)) {
        if !self.waits() {
            return;
        }
        // In this order: what leaves meanwhile is told of.
        let is_all_gone = unsent_octets(socket).is_ok_and(|octets| octets == 0);
        while let Some(number) = next_departure(socket) {
            let place = number.wrapping_sub(self.first) as usize;
            // A VLAN and the device below it tell of one packet.
            if let Some(packet) = self.packets.get_mut(place) {
                *packet = None;
            }
        }
        let lost = self.pushed_out.drain(..);
        lost.filter_map(|packet| packet.counted)
            .for_each(|(port, direction)| lose(port, direction));
        while let Some(first) = self.packets.front() {
            if let Some(waiting) = first {
                if !is_all_gone && now_ns.saturating_sub(waiting.since_ns) < LOST_NS {
                    break;
                }
                if let Some((port, direction)) = waiting.counted {
                    lose(port, direction);
                }
            }
            self.packets.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        if self.packets.is_empty() && std::mem::take(&mut self.is_uncertain) {
            self.first = 0;
            self.is_told = number_from_zero(socket).is_ok();
        }
    }
}

/// Have the kernel number a socket's packets, from 0 on, and tell when one goes to a device.
fn number_from_zero(socket: BorrowedFd<'_>) -> nix::Result<()> {
    /// Not in nix.
    const SOF_TIMESTAMPING_TX_SCHED: u32 = 1 << 8;
    let told = TimestampingFlag::from_bits_retain(SOF_TIMESTAMPING_TX_SCHED)
        | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
    setsockopt(&socket, sockopt::Timestamping, &TimestampingFlag::empty())?;
    setsockopt(&socket, sockopt::Timestamping, &told)
}

/// Number of a packet that went to a device.
fn next_departure(socket: BorrowedFd<'_>) -> Option<u32> {
    const SO_EE_ORIGIN_TIMESTAMPING: u8 = 4;
    let mut room = nix::cmsg_space!([u8; 128], [u8; 64]);
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    loop {
        let mut nothing = [];
        let told = recvmsg::<()>(socket.as_raw_fd(), &mut nothing, Some(&mut room), flags).ok()?;
        let mut messages = told.cmsgs().ok()?;
        let number = messages.find_map(|message| match message {
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                (error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING).then_some(error.ee_data)
            }
            _ => None,
        });
        if number.is_some() {
            return number;
        }
    }
}
