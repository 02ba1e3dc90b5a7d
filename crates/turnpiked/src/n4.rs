//! The N4 socket: PFCP datagrams in batches.

use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, MsgFlags, MultiHeaders, SockaddrStorage, setsockopt, sockopt};

/// Datagrams per system call.
const BATCH: usize = 64;
/// More than UDP can carry (65 507 bytes), so that no datagram is ever cut.
const DATAGRAM_MAX: usize = 1 << 16;
/// A send buffer that stays full this long drops the answers; the SMF asks again.
const SEND_WAIT_MS: u16 = 50;

/// The bound socket.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
}

impl Socket {
    /// Bind without blocking mode. `receive_buffer` in bytes is what may wait in a burst; less is
    /// granted, with a warning, to a process without `CAP_NET_ADMIN`.
    pub(crate) fn bind(listen: SocketAddr, receive_buffer: usize) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        for (forced, name) in [
            (
                setsockopt(&socket, sockopt::RcvBufForce, &receive_buffer),
                "receive",
            ),
            (
                setsockopt(&socket, sockopt::SndBufForce, &(receive_buffer / 4)),
                "send",
            ),
        ] {
            if let Err(error) = forced {
                tracing::warn!(%error, "N4 {name} buffer: the system's default stays; bursts of \
                     requests may be lost. Run with CAP_NET_ADMIN.");
            }
        }
        Ok(Self { socket })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Where received datagrams lie. Memory is taken as datagrams touch it.
pub(crate) struct Receiver {
    headers: MultiHeaders<SockaddrStorage>,
    buffers: Vec<u8>,
    received: Vec<(SocketAddr, usize)>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            headers: MultiHeaders::preallocate(BATCH, None),
            buffers: vec![0; BATCH * DATAGRAM_MAX],
            received: Vec::with_capacity(BATCH),
        }
    }

    /// Take what waits, at most one batch. The number of datagrams; 0: nothing waits.
    pub(crate) fn receive(&mut self, socket: &Socket) -> nix::Result<usize> {
        self.received.clear();
        let mut chunks = self.buffers.chunks_exact_mut(DATAGRAM_MAX);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(chunks.next().unwrap_or_default())]);
        let results = socket::recvmmsg(
            socket.socket.as_raw_fd(),
            &mut self.headers,
            slices.iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        );
        let results = match results {
            Ok(results) => results,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(0),
            Err(error) => return Err(error),
        };
        for message in results {
            // A sender that is not an IP address cannot be on an IP socket; keep the places right.
            let from = message.address.as_ref().and_then(socket_address);
            self.received.push((from.unwrap_or(UNKNOWN), message.bytes));
        }
        Ok(self.received.len())
    }

    /// What the last [`Self::receive`] took, in order of arrival.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.received
            .iter()
            .zip(self.buffers.chunks_exact(DATAGRAM_MAX))
            .map(|(&(from, len), buffer)| (from, buffer.get(..len).unwrap_or_default()))
    }
}

const UNKNOWN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    // With its scope, for link-local addresses.
    Some(SocketAddr::V6(std::net::SocketAddrV6::from(*v6)))
}

/// Sends batches and counts what could not be sent.
pub(crate) struct Sender {
    headers: MultiHeaders<SockaddrStorage>,
    /// Datagrams that the kernel would not take.
    pub(crate) failed: u64,
}

impl Sender {
    pub(crate) fn new() -> Self {
        Self {
            headers: MultiHeaders::preallocate(BATCH, None),
            failed: 0,
        }
    }

    /// Send all, in order; what the kernel refuses is counted and left out.
    pub(crate) fn send<'d>(
        &mut self,
        socket: &Socket,
        datagrams: impl Iterator<Item = (SocketAddr, &'d [u8])>,
    ) {
        let mut datagrams = datagrams.peekable();
        while datagrams.peek().is_some() {
            let mut addresses = [None; BATCH];
            let mut len = 0;
            let slices: [[IoSlice<'_>; 1]; BATCH] = std::array::from_fn(|i| {
                let (to, bytes) = match datagrams.next() {
                    Some((to, bytes)) => (Some(SockaddrStorage::from(to)), bytes),
                    None => (None, Default::default()),
                };
                len += usize::from(to.is_some());
                if let Some(place) = addresses.get_mut(i) {
                    *place = to;
                }
                [IoSlice::new(bytes)]
            });
            self.send_batch(socket, &slices, &addresses, len);
        }
    }

    fn send_batch(
        &mut self,
        socket: &Socket,
        slices: &[[IoSlice<'_>; 1]],
        addresses: &[Option<SockaddrStorage>],
        len: usize,
    ) {
        let mut at = 0;
        while let (Some(slices), Some(addresses)) = (slices.get(at..len), addresses.get(at..len)) {
            if slices.is_empty() {
                return;
            }
            match send_some(socket, &mut self.headers, slices, addresses) {
                Ok(sent) => at += sent,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                    if !matches!(poll(&mut fds, PollTimeout::from(SEND_WAIT_MS)), Ok(1..)) {
                        self.failed += (len - at) as u64;
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "N4: one datagram not sent");
                    self.failed += 1;
                    at += 1;
                }
            }
        }
    }
}

fn send_some(
    socket: &Socket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    slices: &[[IoSlice<'_>; 1]],
    addresses: &[Option<SockaddrStorage>],
) -> nix::Result<usize> {
    let fd = socket.socket.as_raw_fd();
    let flags = MsgFlags::MSG_DONTWAIT;
    Ok(socket::sendmmsg(fd, headers, slices.iter(), addresses, [], flags)?.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pair(local: &str) -> (Socket, UdpSocket) {
        let socket = Socket::bind(local.parse().unwrap(), 1 << 22).unwrap();
        let peer = UdpSocket::bind(local).unwrap();
        peer.connect(socket.socket.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (socket, peer)
    }

    #[test]
    fn datagrams_come_whole_in_order_and_with_their_sender() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            whole_in_order_and_with_their_sender(local);
        }
    }

    fn whole_in_order_and_with_their_sender(local: &str) {
        let (socket, peer) = pair(local);
        let mut receiver = Receiver::new();
        assert_eq!(receiver.receive(&socket), Ok(0));
        let sizes = [0, 1, 1500, 65_507, 8];
        for (i, size) in sizes.into_iter().enumerate() {
            peer.send(&vec![i as u8; size]).unwrap();
        }
        assert_eq!(receiver.receive(&socket), Ok(sizes.len()));
        for (i, (from, bytes)) in receiver.datagrams().enumerate() {
            assert_eq!(from, peer.local_addr().unwrap());
            assert_eq!(bytes, vec![i as u8; sizes[i]]);
        }
        assert_eq!(receiver.receive(&socket), Ok(0));
        let mut sender = Sender::new();
        sender.send(
            &socket,
            std::iter::once((peer.local_addr().unwrap(), b"answer".as_slice())),
        );
        let mut buffer = [0; 8];
        assert_eq!(peer.recv(&mut buffer).unwrap(), 6);
    }

    #[test]
    fn more_than_a_batch_is_sent_and_received() {
        let (socket, peer) = pair("127.0.0.1:0");
        let mut receiver = Receiver::new();
        let mut sender = Sender::new();
        for i in 0..150u32 {
            peer.send(&i.to_be_bytes()).unwrap();
        }
        let mut total = 0;
        while let Ok(1..) = receiver.receive(&socket) {
            total += receiver.datagrams().count();
            sender.send(&socket, receiver.datagrams());
        }
        assert_eq!((total, sender.failed), (150, 0));
        for i in 0..150u32 {
            let mut buffer = [0; 8];
            assert_eq!(peer.recv(&mut buffer).unwrap(), 4);
            assert_eq!(buffer[..4], i.to_be_bytes());
        }
    }

    #[test]
    fn an_impossible_receiver_does_not_stop_the_others() {
        let (socket, peer) = pair("127.0.0.1:0");
        let mut sender = Sender::new();
        let to = peer.local_addr().unwrap();
        let nowhere = "127.0.0.1:0".parse().unwrap();
        let all = [(to, b"a".as_slice()), (nowhere, b"b"), (to, b"c")];
        sender.send(&socket, all.into_iter());
        assert_eq!(sender.failed, 1);
        let mut buffer = [0; 8];
        for expected in [b"a", b"c"] {
            let len = peer.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], expected);
        }
    }
}
