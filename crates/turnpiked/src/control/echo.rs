//! Echo Requests to GTP-U peers, and what comes back to the ports that they were sent from
//! (TS 29.281, 4.4.2): a socket at each of our N3 addresses. The port of GTP-U itself belongs to the
//! data path.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvmsg};
use session::gtpu;
use socket2::{Domain, Socket, Type};
use tables::Ingress;

use crate::packet_info;

/// Messages taken from one socket before everything else has its turn again.
const BATCH: usize = 64;
/// Echo Responses have 14 octets and what extensions there are.
const MESSAGE_MAX: usize = 1500;

/// One socket for each N3 address.
pub(crate) struct EchoSockets {
    sockets: Vec<(IpAddr, UdpSocket)>,
    /// A host of the data network must not keep a dead path alive.
    ingress: Ingress,
}

impl EchoSockets {
    pub(crate) fn bind(
        addresses: impl Iterator<Item = IpAddr>,
        ingress: Ingress,
    ) -> io::Result<Self> {
        let bind = |address: IpAddr| {
            let socket = Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, None)?;
            // An interface that the data path makes gets its addresses later.
            match address {
                IpAddr::V4(_) => socket.set_freebind_v4(true)?,
                IpAddr::V6(_) => socket.set_freebind_v6(true)?,
            }
            packet_info::ask(&socket, address.is_ipv4())?;
            socket.bind(&SocketAddr::from((address, 0)).into())?;
            let socket = UdpSocket::from(socket);
            socket.set_nonblocking(true)?;
            Ok((address, socket))
        };
        let sockets = addresses.map(bind).collect::<io::Result<_>>()?;
        Ok(Self { sockets, ingress })
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, socket)| socket.as_fd())
    }

    /// Lost is lost: it is sent again.
    pub(super) fn send(&self, remote: IpAddr, local: IpAddr, octets: &[u8]) {
        if let Some((_, socket)) = self.sockets.iter().find(|(address, _)| *address == local)
            && let Err(error) = socket.send_to(octets, SocketAddr::new(remote, gtpu::PORT))
        {
            tracing::debug!(gtpu_peer = %remote, %error, "Echo Request not sent");
        }
    }

    /// Give `each` the messages that wait at socket number `index` and came in by an interface that is admitted.
    pub(super) fn receive(&self, index: usize, mut each: impl FnMut(IpAddr, &[u8])) {
        let Some((_, socket)) = self.sockets.get(index) else {
            return;
        };
        let mut buffer = [0; MESSAGE_MAX];
        let mut room = nix::cmsg_space!(packet_info::Room);
        for _ in 0..BATCH {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let fd = socket.as_raw_fd();
            let (length, from) = match recvmsg(fd, &mut parts, Some(&mut room), MsgFlags::empty()) {
                Ok(message) if self.ingress.admits(packet_info::ifindex_of(&message), 1) => {
                    (message.bytes, message.address.and_then(ip_of))
                }
                Ok(_) => continue,
                // An ICMP error of an earlier request is an error here, and the next may be whole.
                Err(Errno::ECONNREFUSED) => continue,
                Err(_) => return,
            };
            if let Some(from) = from {
                each(from, buffer.get(..length).unwrap_or_default());
            }
        }
    }
}

fn ip_of(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tables::{Layout, Options, PortConfig, Tables};

    use super::*;

    #[test]
    fn answers_come_back_to_where_the_request_left() {
        let ours: IpAddr = [127, 0, 0, 1].into();
        let layout = Layout::for_sessions(16, 1, 1);
        let ports = [PortConfig::default()];
        let tables = Tables::host(&layout, &ports, &Options::default()).unwrap();
        let both = [ours, [127, 0, 0, 2].into()].into_iter();
        let sockets = EchoSockets::bind(both, tables.ingress()).unwrap();
        assert_eq!(sockets.fds().count(), 2);
        let peer = UdpSocket::bind("127.0.0.3:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (_, socket) = &sockets.sockets[0];
        socket
            .send_to(b"request", peer.local_addr().unwrap())
            .unwrap();
        let mut buffer = [0; 64];
        let (_, from) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!(from.ip(), ours);
        peer.send_to(b"response", from).unwrap();
        let mut seen = Vec::new();
        for _ in 0..100 {
            sockets.receive(0, |from, octets| seen.push((from, octets.to_vec())));
            if !seen.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(seen, [([127, 0, 0, 3].into(), b"response".to_vec())]);
        sockets.receive(7, |_, _| unreachable!());
        // To nowhere, and from an address that is not ours: nothing happens.
        sockets.send([127, 0, 0, 3].into(), [10, 9, 9, 9].into(), b"x");
    }
}
