//! Several datagrams of two peers, one of them associated, into the core: it stands, and what it
//! says can be decoded. Shared by the fuzz target and the test that replays its corpus.

use session::config::{Config, NetworkInstance};
use session::{Core, Outbox, Time};
use testkit::tables::FakeTables;

/// Association Setup Request of Node ID 10.0.0.2.
const SETUP: &[u8] =
    b"\x20\x05\x00\x15\x00\x00\x01\x00\x00\x3c\x00\x05\x00\x0a\x00\x00\x02\x00\x60\x00\x04\xe9\x00\x00\x00";

fn config() -> Config {
    let mut config = Config {
        n3: vec![[10, 3, 0, 1].into()],
        network_instances: vec![NetworkInstance {
            name: "internet".into(),
            pools4: "10.60.0.0/24".parse().into_iter().collect(),
            pools6: "2001:db8::/56".parse().into_iter().collect(),
            ..NetworkInstance::default()
        }],
        ..Config::default()
    };
    config.limits.sessions = 64;
    config.answers.count = 64;
    config
}

/// Each record of the input: a control octet (bit 0 the peer, the others tenths of a second that pass),
/// two octets of length, a datagram.
pub(crate) fn receive(input: &[u8]) {
    let mut core = Core::new(config(), 1, FakeTables::forgetful(1 << 16));
    let mut out = Outbox::new();
    let mut now = Time(1);
    let peers = [([10, 0, 0, 2], 8805).into(), ([10, 0, 0, 3], 8805).into()];
    core.receive(now, peers[0], SETUP, &mut out);
    let mut left = input;
    while let Some((&[control, l0, l1], rest)) = left.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([l0, l1])).min(rest.len());
        let (datagram, rest) = rest.split_at(length);
        left = rest;
        now.0 += u64::from(control >> 1) * 100_000_000;
        out.clear();
        core.advance(now, &mut out);
        let from = peers[usize::from(control & 1)];
        core.expect([(from, datagram), (from, left)].into_iter());
        core.receive(now, from, datagram, &mut out);
        for (_, sent) in out.iter() {
            assert!(pfcp::decode(sent).is_ok());
        }
        assert!(core.session_count() <= 64 && core.answers_kept().0 <= 64);
    }
}
