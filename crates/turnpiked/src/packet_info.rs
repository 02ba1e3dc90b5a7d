//! Interfaces that datagrams come in by, as the kernel says it (`IP_PKTINFO`, `IPV6_PKTINFO`). A socket that is bound to a
//! device would be deaf once that is made anew.

use std::io;
use std::os::fd::AsFd;

use nix::libc::in6_pktinfo;
use nix::sys::socket::{ControlMessageOwned, RecvMsg, SockaddrStorage, setsockopt, sockopt};

/// Control message beside a datagram; of IPv6, which is the longer.
pub(crate) type Room = in6_pktinfo;

/// Have the kernel say it, of all datagrams from now on: to be called before there is an address to receive at.
pub(crate) fn ask(socket: &impl AsFd, is_ipv4: bool) -> io::Result<()> {
    if is_ipv4 {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    }
    Ok(())
}

/// The interface that a message came in by; 0: the kernel does not know.
pub(crate) fn ifindex_of(message: &RecvMsg<'_, '_, SockaddrStorage>) -> u32 {
    let mut controls = message.cmsgs().into_iter().flatten();
    controls
        .find_map(|control| ifindex_in(&control))
        .unwrap_or(0)
}

/// The same, of one control message of it.
pub(crate) fn ifindex_in(control: &ControlMessageOwned) -> Option<u32> {
    match control {
        ControlMessageOwned::Ipv4PacketInfo(info) => info.ipi_ifindex.try_into().ok(),
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(info.ipi6_ifindex),
        _ => None,
    }
}
