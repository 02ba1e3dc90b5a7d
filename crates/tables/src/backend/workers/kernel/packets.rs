//! Whole IP packets out of an interface, many in one call: what they are sent to, the kernel finds out.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, setsockopt, socket, sockopt,
};

use super::super::BURST;

/// Octets that may be under way: the kernel counts what an interface holds against the socket.
const SEND_BUFFER: usize = 64 << 20;

/// Raw sockets of one interface.
#[derive(Debug)]
pub(super) struct PacketSockets {
    v4: OwnedFd,
    v6: OwnedFd,
    /// Frames with a VLAN tag are for a device on the interface, which the kernel's routes name.
    tagged4: OwnedFd,
    tagged6: OwnedFd,
}

fn raw_socket(family: AddressFamily, interface: Option<&str>) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    // Without CAP_NET_ADMIN fewer packets can be under way.
    let _ = setsockopt(&fd, sockopt::SndBufForce, &SEND_BUFFER);
    if let Some(interface) = interface {
        setsockopt(&fd, sockopt::BindToDevice, &interface.into())?;
    }
    Ok(fd)
}

/// Where a packet is sent, as the kernel takes it.
#[derive(Clone, Copy)]
union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// A kind of packet, each with a socket of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    is_v6: bool,
    is_tagged: bool,
}

/// The packet in a frame, its kind and its destination. `None`: it is not IP, or cut short.
fn packet_of(frame: &[u8]) -> Option<(&[u8], Kind, Address)> {
    let is_tagged = frame.get(12..14)? == [0x81, 0x00] || frame.get(12..14)? == [0x88, 0xa8];
    let packet = frame.get(if is_tagged { 18 } else { 14 }..)?;
    let is_v6 = packet.first()? >> 4 == 6;
    let kind = Kind { is_v6, is_tagged };
    if is_v6 {
        let len = 40 + usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
        let addr = packet.get(24..40)?.try_into().ok()?;
        let v6 = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as u16,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: addr },
            sin6_scope_id: 0,
        };
        return Some((packet.get(..len)?, kind, Address { v6 }));
    }
    let len = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    let addr: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    let v4 = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(addr),
        },
        sin_zero: [0; 8],
    };
    Some((packet.get(..len)?, kind, Address { v4 }))
}

impl PacketSockets {
    /// In the network namespace of the calling thread; needs `CAP_NET_RAW`.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        Ok(Self {
            v4: raw_socket(AddressFamily::Inet, Some(interface))?,
            v6: raw_socket(AddressFamily::Inet6, Some(interface))?,
            tagged4: raw_socket(AddressFamily::Inet, None)?,
            tagged6: raw_socket(AddressFamily::Inet6, None)?,
        })
    }

    fn of(&self, kind: Kind) -> &OwnedFd {
        match (kind.is_v6, kind.is_tagged) {
            (false, false) => &self.v4,
            (true, false) => &self.v6,
            (false, true) => &self.tagged4,
            (true, true) => &self.tagged6,
        }
    }

    /// Send the packets of frames, in their order; how many were lost. Never waits.
    pub(super) fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        let mut batch = Batch::new();
        let mut lost = 0;
        let mut last = None;
        for frame in frames {
            let Some((packet, kind, to)) = packet_of(frame) else {
                lost += 1;
                continue;
            };
            if let Some(other) = last.filter(|&last| last != kind) {
                lost += batch.send(self.of(other));
            }
            last = Some(kind);
            batch.push(packet, to, kind.is_v6);
        }
        match last {
            Some(kind) => lost + batch.send(self.of(kind)),
            None => lost,
        }
    }
}

/// Packets that one call sends.
struct Batch<'a> {
    packets: [(&'a [u8], Address, u32); BURST],
    len: usize,
}

impl<'a> Batch<'a> {
    fn new() -> Self {
        // SAFETY: zeroes are an address of no family.
        let nowhere: Address = unsafe { std::mem::zeroed() };
        Self {
            packets: [(&[], nowhere, 0); BURST],
            len: 0,
        }
    }

    /// There is room: a burst has no more.
    fn push(&mut self, packet: &'a [u8], to: Address, is_v6: bool) {
        let len = if is_v6 {
            size_of::<libc::sockaddr_in6>()
        } else {
            size_of::<libc::sockaddr_in>()
        };
        self.packets[self.len] = (packet, to, len as u32);
        self.len += 1;
    }

    /// How many the kernel would not take. Empty afterwards.
    fn send(&mut self, socket: &OwnedFd) -> u64 {
        // SAFETY: zeroes are an empty message.
        let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
        let mut parts = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BURST];
        let packets = &mut self.packets[..self.len];
        for ((message, part), (packet, to, to_len)) in
            messages.iter_mut().zip(&mut parts).zip(packets)
        {
            part.iov_base = packet.as_ptr().cast_mut().cast();
            part.iov_len = packet.len();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = (&raw mut *to).cast();
            message.msg_hdr.msg_namelen = *to_len;
        }
        let mut left = &mut messages[..std::mem::take(&mut self.len)];
        let mut lost = 0;
        while !left.is_empty() {
            // SAFETY: the messages, and all that they point at, are as large as they say and live through the call; the
            // kernel only reads what is to be sent.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    left.as_mut_ptr(),
                    left.len() as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            // An error is about the first one; the others have theirs still to come.
            let done = usize::try_from(sent).unwrap_or_else(|_| {
                lost += 1;
                1
            });
            left = &mut left[done..];
        }
        lost
    }
}
