//! The N4 socket: PFCP datagrams in batches.

mod strangers;

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage,
    getsockopt, setsockopt, sockopt,
};
use session::messages_in;
use socket2::{Domain, Type};

use crate::packet_info;

pub(crate) use strangers::Strangers;

/// Datagrams handled at a time, and buffers per system call. The kernel cuts no more than so many
/// from one buffer.
const BATCH: usize = 64;
/// More than UDP can carry (65 507 bytes), so that no datagram is ever cut.
const DATAGRAM_MAX: usize = 1 << 16;
/// So many and more of one size to one peer leave as one send.
const RUN_MIN: usize = 4;
/// Octets of the kernel's that a datagram takes of a socket's buffer, at least.
const BUFFER_MIN: usize = 256;
/// Longest datagram of a run: it fits any link, and a whole batch fits what UDP can carry.
const SEGMENT_MAX: usize = 1000;
/// A send buffer that stays full this long drops the answers; the SMF asks again.
const SEND_WAIT_MS: u16 = 50;

/// The bound socket.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    is_ipv4: bool,
}

impl Socket {
    /// Bind without blocking mode. `receive_buffer` in bytes is what may wait in a burst; less is
    /// granted, with a warning, to a process without `CAP_NET_ADMIN`.
    pub(crate) fn bind(listen: SocketAddr, receive_buffer: usize) -> std::io::Result<Self> {
        let socket = socket2::Socket::new(Domain::for_address(listen), Type::DGRAM, None)?;
        packet_info::ask(&socket, listen.is_ipv4())?;
        socket.bind(&listen.into())?;
        Self::prepare(socket.into(), receive_buffer)
    }

    /// One that somebody else has bound, and that datagrams may wait in.
    pub(crate) fn inherit(socket: UdpSocket, receive_buffer: usize) -> std::io::Result<Self> {
        packet_info::ask(&socket, socket.local_addr()?.is_ipv4())?;
        Self::prepare(socket, receive_buffer)
    }

    fn prepare(socket: UdpSocket, receive_buffer: usize) -> std::io::Result<Self> {
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
        if let Err(error) = setsockopt(&socket, sockopt::UdpGroSegment, &true) {
            tracing::debug!(%error, "N4: requests are received one by one");
        }
        let is_ipv4 = socket.local_addr()?.is_ipv4();
        Ok(Self { socket, is_ipv4 })
    }
}

impl Socket {
    /// One more handle of it.
    pub(crate) fn try_clone(&self) -> std::io::Result<UdpSocket> {
        self.socket.try_clone()
    }

    /// Whether nothing waits in it.
    pub(crate) fn is_empty(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, PollTimeout::ZERO), Ok(0))
    }

    /// More datagrams than can wait in it.
    pub(crate) fn room(&self) -> usize {
        let octets = getsockopt(&self.socket, sockopt::RcvBuf);
        octets.map_or(usize::MAX, |octets| octets / BUFFER_MIN + BATCH)
    }

    /// Whether this is the socket for that peer.
    pub(crate) fn reaches(&self, to: SocketAddr) -> bool {
        self.is_ipv4 == to.is_ipv4()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Buffers of received datagrams. Memory is taken as datagrams touch it.
pub(crate) struct Receiver {
    headers: MultiHeaders<SockaddrStorage>,
    buffers: Vec<u8>,
    received: Vec<Received>,
    /// Messages of each sender, as far as they are counted. Kept for its capacity.
    counted: Vec<(IpAddr, u32)>,
}

/// One datagram: who sent it, and where in the buffers it lies.
#[derive(Clone, Copy, Debug)]
struct Received {
    from: SocketAddr,
    start: usize,
    len: usize,
    /// Interface that it came in by; 0: the kernel does not know.
    ifindex: u32,
    /// Messages of the same sender before it, where that matters.
    before: u32,
}

impl Received {
    fn octets(self, buffers: &[u8]) -> &[u8] {
        buffers
            .get(self.start..self.start + self.len)
            .unwrap_or_default()
    }
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            headers: headers(),
            buffers: vec![0; BATCH * DATAGRAM_MAX],
            received: Vec::with_capacity(BATCH),
            counted: Vec::new(),
        }
    }

    /// Take what waits, at most one batch, of which each may be several datagrams that the kernel
    /// has put together. The number of datagrams; 0: nothing waits.
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
        for (message, start) in results.zip((0..).step_by(DATAGRAM_MAX)) {
            // A sender that is not an IP address cannot be on an IP socket; keep the places right.
            let from = message.address.as_ref().and_then(socket_address);
            let Said { segment, ifindex } = said(&message);
            let whole = Received {
                from: from.unwrap_or(UNKNOWN),
                start,
                len: message.bytes,
                ifindex,
                before: 0,
            };
            self.received.extend(segments(whole, segment));
        }
        // The call has cut the room for control messages down to what it used of it.
        self.headers = headers();
        Ok(self.received.len())
    }

    /// Take out what came in by interfaces that are not admitted, each sender told to `refused`.
    pub(crate) fn keep(
        &mut self,
        admits: impl Fn(u32) -> bool,
        mut refused: impl FnMut(SocketAddr),
    ) {
        // Datagrams of one call came by one or two interfaces.
        let mut last = None;
        self.received.retain(|datagram| {
            let (ifindex, admitted) = match last {
                Some((ifindex, admitted)) if ifindex == datagram.ifindex => (ifindex, admitted),
                _ => (datagram.ifindex, admits(datagram.ifindex)),
            };
            last = Some((ifindex, admitted));
            if !admitted {
                refused(datagram.from);
            }
            admitted
        });
    }

    /// Take strangers' datagrams out of what was received, each handed to `stranger`. The number of those
    /// that stay.
    pub(crate) fn part(
        &mut self,
        is_stranger: impl Fn(SocketAddr) -> bool,
        mut stranger: impl FnMut(SocketAddr, &[u8]),
    ) -> usize {
        let Self {
            received, buffers, ..
        } = self;
        received.retain(|datagram| {
            let is_stranger = is_stranger(datagram.from);
            if is_stranger {
                stranger(datagram.from, datagram.octets(buffers));
            }
            !is_stranger
        });
        received.len()
    }

    /// Put what was received in such an order that each sender has its turn: a datagram comes before those
    /// whose sender has more messages in front of them. What one sends stays in its order.
    pub(crate) fn take_turns(&mut self) {
        let mut senders = self.received.iter().map(|datagram| datagram.from.ip());
        let first = senders.next();
        if senders.all(|sender| Some(sender) == first) {
            return;
        }
        self.counted.clear();
        for datagram in &mut self.received {
            let sender = datagram.from.ip();
            let place = self.counted.iter().position(|(other, _)| *other == sender);
            let place = place.unwrap_or_else(|| {
                self.counted.push((sender, 0));
                self.counted.len() - 1
            });
            let (_, messages) = &mut self.counted[place];
            datagram.before = *messages;
            *messages += messages_in(datagram.octets(&self.buffers));
        }
        self.received.sort_by_key(|datagram| datagram.before);
    }

    /// Datagrams of the last [`Self::receive`], in order of arrival or as [`Self::take_turns`] left them, a batch
    /// at a time.
    pub(crate) fn batches(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = (SocketAddr, &[u8])> + Clone> {
        let datagram = |at: &Received| (at.from, at.octets(&self.buffers));
        let batches = self.received.chunks(BATCH);
        batches.map(move |batch| batch.iter().map(datagram))
    }
}

/// With room for what the kernel says beside each message.
fn headers() -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(i32, packet_info::Room)))
}

/// Control messages of the kernel beside a message.
#[derive(Default)]
struct Said {
    /// How long each datagram but the last is, where it has put several together.
    segment: Option<usize>,
    ifindex: u32,
}

fn said(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Said {
    let mut said = Said::default();
    for control in message.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::UdpGroSegments(size) = control {
            said.segment = usize::try_from(size).ok();
        } else if let Some(ifindex) = packet_info::ifindex_in(&control) {
            said.ifindex = ifindex;
        }
    }
    said
}

/// The datagrams in `whole`: at least one, as a datagram may be empty.
fn segments(whole: Received, size: Option<usize>) -> impl Iterator<Item = Received> {
    let size = size.unwrap_or(whole.len).max(1);
    (0..whole.len.max(1)).step_by(size).map(move |at| Received {
        start: whole.start + at,
        len: size.min(whole.len - at),
        ..whole
    })
}

const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddr::new(v4.ip().into(), v4.port()));
    }
    let v6 = address.as_sockaddr_in6()?;
    // With its scope, for link-local addresses.
    Some(SocketAddr::V6(std::net::SocketAddrV6::from(*v6)))
}

/// A datagram and where it goes.
type Datagram<'d> = (SocketAddr, &'d [u8]);

/// Sends batches and counts what could not be sent.
pub(crate) struct Sender {
    headers: MultiHeaders<SockaddrStorage>,
    /// Whether the kernel cuts one buffer into datagrams, as far as we know.
    segments: bool,
    /// Datagrams that the kernel would not take.
    pub(crate) failed: u64,
}

impl Sender {
    pub(crate) fn new() -> Self {
        Self {
            headers: MultiHeaders::preallocate(BATCH, None),
            segments: true,
            failed: 0,
        }
    }

    /// Send all, in order; what the kernel refuses is counted and left out.
    pub(crate) fn send<'d>(
        &mut self,
        socket: &Socket,
        mut datagrams: impl Iterator<Item = Datagram<'d>>,
    ) {
        loop {
            let mut batch: [Datagram<'_>; BATCH] = [(UNKNOWN, &[]); BATCH];
            let mut len = 0;
            for (place, datagram) in batch.iter_mut().zip(&mut datagrams) {
                *place = datagram;
                len += 1;
            }
            if len == 0 {
                return;
            }
            self.send_batch(socket, &batch[..len]);
        }
    }

    /// Runs of datagrams as one each, what lies between them one by one.
    fn send_batch(&mut self, socket: &Socket, mut batch: &[Datagram<'_>]) {
        while !batch.is_empty() {
            let mut single = 0;
            let mut run = 0;
            while single < batch.len() {
                run = run_length(&batch[single..]);
                if run >= RUN_MIN && self.segments {
                    break;
                }
                single += std::mem::take(&mut run);
            }
            let (singles, rest) = batch.split_at(single);
            self.send_each(socket, singles);
            let (run, rest) = rest.split_at(run);
            self.send_run(socket, run);
            batch = rest;
        }
    }

    /// One send, which the kernel or the device cuts into datagrams (UDP_SEGMENT).
    fn send_run(&mut self, socket: &Socket, run: &[Datagram<'_>]) {
        let Some(&(to, first)) = run.first() else {
            return;
        };
        let mut slices = [IoSlice::new(&[]); BATCH];
        for (slice, (_, bytes)) in slices.iter_mut().zip(run) {
            *slice = IoSlice::new(bytes);
        }
        let size = first.len() as u16;
        let sent = when_writable(socket, || {
            let fd = socket.socket.as_raw_fd();
            let cut = [ControlMessage::UdpGsoSegments(&size)];
            let to = SockaddrStorage::from(to);
            socket::sendmsg(
                fd,
                &slices[..run.len()],
                &cut,
                MsgFlags::MSG_DONTWAIT,
                Some(&to),
            )
        });
        match sent {
            Ok(_) => {}
            Err(Errno::EAGAIN) => self.failed += run.len() as u64,
            Err(error) => {
                let failed = self.failed;
                self.send_each(socket, run);
                // The device may lack what it takes; a path with a small MTU is no reason to think so.
                if self.failed == failed && error != Errno::EMSGSIZE {
                    tracing::debug!(%error, "N4: answers are sent one by one");
                    self.segments = false;
                }
            }
        }
    }

    fn send_each(&mut self, socket: &Socket, datagrams: &[Datagram<'_>]) {
        let mut slices = [[IoSlice::new(&[])]; BATCH];
        let mut addresses = [None; BATCH];
        for ((to, bytes), place) in datagrams.iter().zip(slices.iter_mut().zip(&mut addresses)) {
            *place.0 = [IoSlice::new(bytes)];
            *place.1 = Some(SockaddrStorage::from(*to));
        }
        let len = datagrams.len().min(BATCH);
        let mut at = 0;
        while at < len {
            let (slices, addresses) = (&slices[at..len], &addresses[at..len]);
            let headers = &mut self.headers;
            match when_writable(socket, || send_some(socket, headers, slices, addresses)) {
                Ok(sent) => at += sent,
                Err(Errno::EAGAIN) => {
                    self.failed += (len - at) as u64;
                    return;
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

/// How many datagrams from the first on can leave as one: to the same peer and of the same size,
/// though the last may be shorter.
fn run_length(batch: &[Datagram<'_>]) -> usize {
    let Some(&(to, first)) = batch.first() else {
        return 0;
    };
    if first.is_empty() || first.len() > SEGMENT_MAX {
        return 1;
    }
    let like_first = |(other, bytes): &&Datagram<'_>| *other == to && bytes.len() == first.len();
    let same = batch.iter().take_while(like_first).count();
    let shorter = batch.get(same).is_some_and(|&(other, bytes)| {
        other == to && !bytes.is_empty() && bytes.len() < first.len()
    });
    same + usize::from(shorter)
}

/// Again when interrupted, and once there is room to send; `EAGAIN`: there was none for too long.
fn when_writable<T>(socket: &Socket, mut send: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match send() {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                if !matches!(poll(&mut fds, PollTimeout::from(SEND_WAIT_MS)), Ok(1..)) {
                    return Err(Errno::EAGAIN);
                }
            }
            outcome => return outcome,
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
mod tests;
