//! GTP-U by UDP sockets: many datagrams in one call, several of one flow in one piece (`UDP_GRO`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};

use super::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ethernet, unless_it_would_block};
use crate::ingress::Ingress;

/// TS 29.281, 4.4.2.3
const GTPU_PORT: u16 = 2152;

/// Datagrams, or pieces of several of them, received in one call.
const MESSAGES: usize = 32;

/// Octets of one piece: the kernel makes none larger.
const PIECE: usize = 1 << 16;

/// Octets that may wait in a socket.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Headers in front of what a datagram carries: Ethernet, IP, UDP.
const FRONT_MAX: usize = 14 + 40 + 8;

/// GTP-U to one of our addresses; one socket of several.
#[derive(Debug)]
pub(super) struct TunnelSocket {
    fd: OwnedFd,
    local: IpAddr,
}

impl AsRawFd for TunnelSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl TunnelSocket {
    pub(super) fn bind(local: IpAddr) -> io::Result<Self> {
        let family = match local {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Datagram, flags, None)?;
        setsockopt(&fd, sockopt::ReusePort, &true)?;
        // Without CAP_NET_ADMIN fewer can wait.
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER);
        // A kernel without it hands over datagrams one by one.
        let _ = setsockopt(&fd, sockopt::UdpGroSegment, &true);
        // Before there is an address to receive at: each datagram says which interface it came in by.
        match local {
            IpAddr::V4(_) => setsockopt(&fd, sockopt::Ipv4PacketInfo, &true)?,
            IpAddr::V6(_) => setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?,
        }
        let address = SockaddrStorage::from(SocketAddr::new(local, GTPU_PORT));
        bind(fd.as_raw_fd(), &address).map_err(|errno| in_use(local, errno.into()))?;
        Ok(Self { fd, local })
    }
}

fn in_use(local: IpAddr, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("UDP port {GTPU_PORT} of {local}: {error}"),
    )
}

/// Octets of control messages that come with a datagram: 24 for the length of those that a piece is made of, 40 for the
/// interface and our address (IPv6; 32 of IPv4).
const CONTROL: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// Room for what one call receives.
pub(super) struct Datagrams {
    room: Box<[u8]>,
    messages: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
    from: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
}

// SAFETY: what the messages point at is this value's own.
unsafe impl Send for Datagrams {}

impl std::fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Datagrams")
    }
}

impl Datagrams {
    pub(super) fn new() -> Self {
        // SAFETY: no field of these is a reference; zeroes are an empty message, and an address of no family.
        let (message, from) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let part = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut all = Self {
            room: vec![0; MESSAGES * PIECE].into(),
            messages: vec![message; MESSAGES].into(),
            parts: vec![part; MESSAGES].into(),
            from: vec![from; MESSAGES].into(),
            controls: vec![Control([0; CONTROL]); MESSAGES].into(),
        };
        for (part, piece) in all.parts.iter_mut().zip(all.room.chunks_exact_mut(PIECE)) {
            part.iov_base = piece.as_mut_ptr().cast();
            part.iov_len = PIECE;
        }
        all
    }

    /// Give each datagram that waits, and came in by an interface that is admitted, to `each`, behind headers as it had them
    /// on its way; those of one call. The kernel makes a piece of datagrams of one interface alone.
    pub(super) fn receive(
        &mut self,
        socket: &TunnelSocket,
        ingress: &Ingress,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> io::Result<()> {
        for (at, message) in self.messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut self.from[at]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_iov = &raw mut self.parts[at];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.controls[at]).cast();
            header.msg_controllen = size_of::<Control>();
        }
        // SAFETY: the messages, and all that they point at, are as large as they say and live through the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                MESSAGES as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Some(count) = unless_it_would_block(super::checked(count))? else {
            return Ok(());
        };
        let mut admitted = None;
        for at in 0..count as usize {
            let len = self.messages[at].msg_len as usize;
            let Some(from) = address_of(&self.from[at]) else {
                continue;
            };
            let piece = &self.room[at * PIECE..][..len];
            let control = controls(&self.messages[at].msg_hdr);
            let datagrams = control.segment_len.unwrap_or(len).max(1);
            if admitted != Some(control.ifindex) {
                if !ingress.admits(control.ifindex, len.div_ceil(datagrams) as u64) {
                    continue;
                }
                admitted = Some(control.ifindex);
            }
            for datagram in piece.chunks(datagrams) {
                let mut front = [0; FRONT_MAX];
                let front = headers(&mut front, from, socket.local, datagram.len());
                each(front, datagram);
            }
        }
        Ok(())
    }
}

fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: of this family, the address is one of these; the storage is large enough for either, and aligned.
            let v4 = unsafe { &*at.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*at.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

/// Control messages of a piece.
#[derive(Default)]
struct Controls {
    /// Octets of each datagram but the last one that it is made of; `None`: it is one.
    segment_len: Option<usize>,
    /// Interface that it came in by; 0: the kernel does not know.
    ifindex: u32,
}

fn controls(header: &libc::msghdr) -> Controls {
    let mut found = Controls::default();
    // SAFETY: the kernel has just written the control messages of this header, whose room is still there.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: as above; it is none of the two ends.
        let (level, kind) = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(control) };
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: the data of this kind are an integer, of any alignment.
                let len = unsafe { data.cast::<i32>().read_unaligned() };
                found.segment_len = usize::try_from(len).ok().filter(|&len| len > 0);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the data of this kind are one of these, and the room has a whole one.
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                found.ifindex = info.ipi_ifindex.try_into().unwrap_or(0);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: likewise.
                let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                found.ifindex = info.ipi6_ifindex;
            }
            _ => {}
        }
        // SAFETY: as above.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    found
}

/// The headers that a datagram came behind, as far as the pipeline looks at them.
fn headers(room: &mut [u8; FRONT_MAX], from: SocketAddr, to: IpAddr, len: usize) -> &[u8] {
    let udp_len = 8 + len as u16;
    let l4 = match (from.ip(), to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            room[..14].copy_from_slice(&ethernet(ETHERTYPE_IPV4));
            room[14] = 0x45;
            room[16..18].copy_from_slice(&(20 + udp_len).to_be_bytes());
            room[22..24].copy_from_slice(&[64, 17]);
            room[26..30].copy_from_slice(&from.octets());
            room[30..34].copy_from_slice(&to.octets());
            34
        }
        (from, to) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            room[..14].copy_from_slice(&ethernet(ETHERTYPE_IPV6));
            room[14] = 0x60;
            room[18..20].copy_from_slice(&udp_len.to_be_bytes());
            room[20..22].copy_from_slice(&[17, 64]);
            room[22..38].copy_from_slice(&octets(from));
            room[38..54].copy_from_slice(&octets(to));
            54
        }
    };
    room[l4..l4 + 2].copy_from_slice(&from.port().to_be_bytes());
    room[l4 + 2..l4 + 4].copy_from_slice(&GTPU_PORT.to_be_bytes());
    room[l4 + 4..l4 + 6].copy_from_slice(&udp_len.to_be_bytes());
    &room[..l4 + 8]
}
