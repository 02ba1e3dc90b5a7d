//! The N4 socket: PFCP datagrams in batches.

mod strangers;

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self, ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage,
    setsockopt, sockopt,
};
use session::messages_in;

pub(crate) use strangers::Strangers;

/// Datagrams handled at a time, and buffers per system call. The kernel cuts no more than so many
/// from one buffer.
const BATCH: usize = 64;
/// More than UDP can carry (65 507 bytes), so that no datagram is ever cut.
const DATAGRAM_MAX: usize = 1 << 16;
/// So many and more of one size to one peer leave as one send.
const RUN_MIN: usize = 4;
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
        if let Err(error) = setsockopt(&socket, sockopt::UdpGroSegment, &true) {
            tracing::debug!(%error, "N4: requests are received one by one");
        }
        let is_ipv4 = listen.is_ipv4();
        Ok(Self { socket, is_ipv4 })
    }
}

impl Socket {
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

/// Where received datagrams lie. Memory is taken as datagrams touch it.
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
            headers: headers_for_segments(),
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
            let whole = Received {
                from: from.unwrap_or(UNKNOWN),
                start,
                len: message.bytes,
                before: 0,
            };
            self.received
                .extend(segments(whole, segment_size(&message)));
        }
        // The call has cut the room for control messages down to what it used of it.
        self.headers = headers_for_segments();
        Ok(self.received.len())
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

    /// What the last [`Self::receive`] took, in order of arrival or as [`Self::take_turns`] left it, a batch
    /// at a time.
    pub(crate) fn batches(
        &self,
    ) -> impl Iterator<Item = impl Iterator<Item = (SocketAddr, &[u8])> + Clone> {
        let datagram = |at: &Received| (at.from, at.octets(&self.buffers));
        let batches = self.received.chunks(BATCH);
        batches.map(move |batch| batch.iter().map(datagram))
    }
}

fn headers_for_segments() -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(i32)))
}

/// How long each datagram but the last is, where the kernel has put several together.
fn segment_size(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<usize> {
    let size = message.cmsgs().ok()?.find_map(|cmsg| match cmsg {
        ControlMessageOwned::UdpGroSegments(size) => Some(size),
        _ => None,
    })?;
    usize::try_from(size).ok()
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
mod tests {
    use std::time::Duration;

    use lab::netns::{Netns, Prefix};

    use super::*;

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
        for (i, (from, bytes)) in receiver.batches().flatten().enumerate() {
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

    /// Sockets of several loopback addresses, and a receiver that has taken what each sent, in this order: who
    /// it was, and how many bundled messages without content.
    fn received(sent: &[(u8, usize)]) -> Receiver {
        let (socket, _) = pair("127.0.0.1:0");
        let to = socket.socket.local_addr().unwrap();
        let senders: Vec<_> = (0..4)
            .map(|host| UdpSocket::bind((std::net::Ipv4Addr::new(127, 0, 0, 10 + host), 0)))
            .collect();
        for &(host, messages) in sent {
            let bundle = [0x24, 1, 0, 4, 0, 0, 0, 0].repeat(messages);
            let sender = senders[usize::from(host)].as_ref().unwrap();
            sender.send_to(&bundle, to).unwrap();
        }
        let mut receiver = Receiver::new();
        assert_eq!(receiver.receive(&socket), Ok(sent.len()));
        receiver
    }

    fn order(receiver: &Receiver) -> Vec<(u8, usize)> {
        let datagrams = receiver.batches().flatten();
        let short = datagrams.map(|(from, octets)| match from.ip() {
            IpAddr::V4(v4) => (v4.octets()[3] - 10, octets.len() / 8),
            IpAddr::V6(_) => unreachable!(),
        });
        short.collect()
    }

    #[test]
    fn strangers_are_taken_out_and_peers_stay_in_their_order() {
        let mut receiver = received(&[(1, 127), (0, 1), (1, 2), (2, 3), (0, 4)]);
        let mut strangers = Vec::new();
        receiver.part(
            |from| from.ip() == IpAddr::from([127, 0, 0, 11]),
            |from, octets| strangers.push((from.ip(), octets.len() / 8)),
        );
        let stranger = |messages| (IpAddr::from([127, 0, 0, 11]), messages);
        assert_eq!(strangers, [stranger(127), stranger(2)]);
        assert_eq!(order(&receiver), [(0, 1), (2, 3), (0, 4)]);
    }

    #[test]
    fn a_peer_with_bundles_does_not_go_before_others_with_few_messages() {
        let sent = [
            (0, 100),
            (0, 100),
            (0, 1),
            (1, 60),
            (2, 1),
            (1, 60),
            (1, 1),
            (2, 2),
        ];
        let mut receiver = received(&sent);
        receiver.take_turns();
        let turns = [
            (0, 100),
            (1, 60),
            (2, 1),
            (2, 2),
            (1, 60),
            (0, 100),
            (1, 1),
            (0, 1),
        ];
        assert_eq!(order(&receiver), turns);
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
            total += receiver.batches().flatten().count();
            sender.send(&socket, receiver.batches().flatten());
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

    /// Eight bytes each, the last three; numbered.
    fn answers(count: u8) -> Vec<Vec<u8>> {
        let len = |i| if i + 1 == count { 3 } else { 8 };
        (0..count).map(|i| vec![i; len(i)]).collect()
    }

    #[test]
    fn answers_sent_as_one_arrive_as_datagrams_of_their_own() {
        let (socket, peer) = pair("127.0.0.1:0");
        let to = peer.local_addr().unwrap();
        let mut sender = Sender::new();
        let (answers, large) = (answers(100), vec![7; 1400]);
        let short = answers.iter().map(Vec::as_slice);
        let all = short.clone().chain([large.as_slice(), b""]).chain(short);
        sender.send(&socket, all.clone().map(|bytes| (to, bytes)));
        assert_eq!((sender.failed, sender.segments), (0, true));
        let mut buffer = [0; 2000];
        for expected in all {
            let len = peer.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], expected);
        }
    }

    #[test]
    fn datagrams_put_together_by_the_kernel_come_apart_again() {
        let (socket, _) = pair("[::1]:0");
        let (other, _) = pair("[::1]:0");
        let to = socket.socket.local_addr().unwrap();
        let answers = answers(60);
        let all = answers.iter().map(|bytes| (to, bytes.as_slice()));
        Sender::new().send(&other, all);
        let mut receiver = Receiver::new();
        assert_eq!(receiver.receive(&socket), Ok(60));
        let from = other.socket.local_addr().unwrap();
        let expected = answers.iter().map(|bytes| (from, bytes.as_slice()));
        assert!(receiver.batches().flatten().eq(expected));
        let last = receiver.received.last().unwrap();
        assert!(last.start < DATAGRAM_MAX, "they came in one buffer");
    }

    #[test]
    fn runs_are_of_one_peer_and_size() {
        let [a, b] = ["127.0.0.1:1", "127.0.0.2:1"].map(|a| a.parse::<SocketAddr>().unwrap());
        let (long, short) = ([0; 9].as_slice(), [0; 4].as_slice());
        assert_eq!(
            run_length(&[(a, long), (a, long), (a, short), (a, short)]),
            3
        );
        assert_eq!(run_length(&[(a, long), (a, long), (b, long)]), 2);
        assert_eq!(run_length(&[(a, short), (a, long)]), 1);
        assert_eq!(run_length(&[(a, long), (a, &[])]), 1);
        assert_eq!(run_length(&[(a, &[]), (a, &[])]), 1);
        let too_long = [0; SEGMENT_MAX + 1].as_slice();
        assert_eq!(run_length(&[(a, too_long), (a, too_long)]), 1);
    }

    #[test]
    fn a_run_that_goes_nowhere_is_no_reason_to_send_one_by_one() {
        let (socket, _) = pair("127.0.0.1:0");
        let mut sender = Sender::new();
        let nowhere = "127.0.0.1:0".parse().unwrap();
        sender.send(&socket, [(nowhere, b"a".as_slice()); 5].into_iter());
        assert_eq!((sender.failed, sender.segments), (5, true));
    }

    #[test]
    fn a_run_beyond_the_mtu_is_sent_in_fragments() {
        let netns = Netns::create(&Prefix::unique(), "n4").unwrap();
        netns.ip("link set lo mtu 600").unwrap();
        let pairs = netns.enter(|| Ok(pair("127.0.0.1:0")));
        let (socket, peer) = pairs.unwrap();
        let mut sender = Sender::new();
        let answer = [5; 900];
        let to = peer.local_addr().unwrap();
        sender.send(&socket, [(to, answer.as_slice()); 5].into_iter());
        assert_eq!((sender.failed, sender.segments), (0, true));
        let mut buffer = [0; 2000];
        for _ in 0..5 {
            let len = peer.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], answer);
        }
    }
}
