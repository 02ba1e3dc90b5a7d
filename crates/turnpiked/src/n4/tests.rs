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
