//! Raw sockets: whole IP packets through the kernel, which finds the neighbours.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
    SockaddrIn6, SockaddrLike, sendmsg, setsockopt, socket, sockopt,
};

use crate::outgoing::Outgoing;

/// Packets that wait for neighbours count against the socket: this is the most of all of them together. The kernel bounds
/// those of one neighbour (`net.ipv4.neigh.DEV.unres_qlen_bytes`, by itself 208 KiB), so that some 300 of them have room.
const SEND_BUFFER_BYTES: usize = 64 << 20;

/// Why a packet is not sent.
pub(crate) enum Failure {
    Malformed,
    Refused(Errno),
}

impl Failure {
    fn errno(&self) -> Errno {
        match self {
            Self::Malformed => Errno::EINVAL,
            Self::Refused(errno) => *errno,
        }
    }
}

/// Sends whole IP packets through the kernel, which finds the neighbours.
#[derive(Debug)]
pub(crate) struct RawSockets {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl RawSockets {
    /// Open them in the network namespace of the calling thread; needs `CAP_NET_RAW`.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            v4: raw_socket(AddressFamily::Inet)?,
            v6: raw_socket(AddressFamily::Inet6)?,
        })
    }

    /// The sockets of IPv4 and IPv6.
    pub(crate) fn each(&self) -> [BorrowedFd<'_>; 2] {
        [self.v4.as_fd(), self.v6.as_fd()]
    }

    /// Hand one packet to the kernel. Never blocks.
    pub(crate) fn send(&self, outgoing: &Outgoing) -> Result<(), Errno> {
        self.transmit(outgoing).map_err(|failure| failure.errno())
    }

    /// Hand one packet to the kernel, and say whose fault it is if that fails.
    pub(crate) fn transmit(&self, send: &Outgoing) -> Result<(), Failure> {
        match send.packet.first().map(|byte| byte >> 4) {
            Some(4) => self.send4(send),
            Some(6) => self.send6(send),
            _ => Err(Failure::Malformed),
        }
    }

    fn send4(&self, send: &Outgoing) -> Result<(), Failure> {
        // The kernel would take trailing bytes for a part of the packet.
        let total = usize::from(u16_be(&send.packet, 2)?);
        let packet = send.packet.get(..total.max(20)).ok_or(Failure::Malformed)?;
        let to: [u8; 4] = array(packet, 16)?;
        let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(to), 0));
        let device = libc::in_pktinfo {
            ipi_ifindex: send.ifindex as i32,
            ipi_spec_dst: libc::in_addr { s_addr: 0 },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        transmit(
            &self.v4,
            packet,
            &to,
            ControlMessage::Ipv4PacketInfo(&device),
        )
    }

    fn send6(&self, send: &Outgoing) -> Result<(), Failure> {
        let total = 40 + usize::from(u16_be(&send.packet, 4)?);
        let packet = send.packet.get(..total).ok_or(Failure::Malformed)?;
        let to: [u8; 16] = array(packet, 24)?;
        let to = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::from(to), 0, 0, 0));
        let device = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: [0; 16] },
            ipi6_ifindex: send.ifindex,
        };
        transmit(
            &self.v6,
            packet,
            &to,
            ControlMessage::Ipv6PacketInfo(&device),
        )
    }
}

fn array<const N: usize>(packet: &[u8], at: usize) -> Result<[u8; N], Failure> {
    let bytes = packet
        .get(at..at + N)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or(Failure::Malformed)
}

fn u16_be(packet: &[u8], at: usize) -> Result<u16, Failure> {
    array(packet, at).map(u16::from_be_bytes)
}

/// `IPPROTO_RAW`: what is sent begins with its IP header, and nothing is received.
fn raw_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
    // Without CAP_NET_ADMIN fewer packets can wait.
    let _ = setsockopt(&fd, sockopt::SndBufForce, &SEND_BUFFER_BYTES);
    Ok(fd)
}

fn transmit(
    fd: &OwnedFd,
    packet: &[u8],
    to: &impl SockaddrLike,
    device: ControlMessage<'_>,
) -> Result<(), Failure> {
    let packet = [IoSlice::new(packet)];
    match sendmsg(
        fd.as_raw_fd(),
        &packet,
        &[device],
        MsgFlags::MSG_DONTWAIT,
        Some(to),
    ) {
        Ok(_) => Ok(()),
        Err(errno) => Err(Failure::Refused(errno)),
    }
}
