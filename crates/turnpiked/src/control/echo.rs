//! Echo Requests to GTP-U peers, and what comes back to the ports that they were sent from
//! (TS 29.281, 4.4.2): a socket at each of our N3 addresses. The port of GTP-U itself belongs to the
//! data path.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use session::gtpu;
use socket2::{Domain, Socket, Type};

/// Messages taken from one socket before everything else has its turn again.
const BATCH: usize = 64;
/// Echo Responses have 14 octets and what extensions there are.
const MESSAGE_MAX: usize = 1500;

/// One socket for each N3 address.
pub(crate) struct EchoSockets {
    sockets: Vec<(IpAddr, UdpSocket)>,
}

impl EchoSockets {
    pub(crate) fn bind(addresses: impl Iterator<Item = IpAddr>) -> io::Result<Self> {
        let bind = |address: IpAddr| {
            let socket = Socket::new(Domain::for_address((address, 0).into()), Type::DGRAM, None)?;
            // An interface that the data path makes gets its addresses later.
            match address {
                IpAddr::V4(_) => socket.set_freebind_v4(true)?,
                IpAddr::V6(_) => socket.set_freebind_v6(true)?,
            }
            socket.bind(&SocketAddr::from((address, 0)).into())?;
            let socket = UdpSocket::from(socket);
            socket.set_nonblocking(true)?;
            Ok((address, socket))
        };
        let sockets = addresses.map(bind).collect::<io::Result<_>>()?;
        Ok(Self { sockets })
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, socket)| socket.as_fd())
    }

    /// Lost is lost: it is sent again.
    pub(super) fn send(&self, remote: IpAddr, local: IpAddr, octets: &[u8]) {
        if let Some((_, socket)) = self.sockets.iter().find(|(address, _)| *address == local)
            && let Err(error) = socket.send_to(octets, SocketAddr::new(remote, gtpu::PORT))
        {
            tracing::debug!(%remote, %error, "Echo Request not sent");
        }
    }

    /// What waits at socket number `index`.
    pub(super) fn receive(&self, index: usize, mut each: impl FnMut(IpAddr, &[u8])) {
        let Some((_, socket)) = self.sockets.get(index) else {
            return;
        };
        let mut buffer = [0; MESSAGE_MAX];
        for _ in 0..BATCH {
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => each(from.ip(), buffer.get(..length).unwrap_or_default()),
                // An ICMP error of an earlier request is an error here, and the next may be whole.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn answers_come_back_to_where_the_request_left() {
        let ours: IpAddr = [127, 0, 0, 1].into();
        let sockets = EchoSockets::bind([ours, [127, 0, 0, 2].into()].into_iter()).unwrap();
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
