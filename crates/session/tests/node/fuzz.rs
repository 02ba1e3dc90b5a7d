//! Whatever arrives, in whatever order and as often as it likes: the core stands, its memory is
//! bounded, and an SMF that behaves is served throughout.

use std::net::SocketAddr;
use std::time::Duration;

use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::config::{Answers, Config, Limits};
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf, accepted, recovery_ie};

const DATAGRAMS: u32 = 100_000;

/// SplitMix64: the same datagrams in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

fn bounded() -> Config {
    Config {
        limits: Limits {
            sessions: 500,
            peers: 8,
            outstanding: 64,
            ..Limits::default()
        },
        answers: Answers {
            count: 256,
            bytes: 32_768,
            ..Answers::default()
        },
        ..config()
    }
}

/// One of every message an SMF may send, and some that it may not.
fn samples(smf: &mut Smf) -> Vec<Vec<u8>> {
    let node_id = smf.node_id.to_ie();
    let recovery = recovery_ie(smf.recovery);
    let setup = smf.setup_ies();
    let mut retaining = setup.clone();
    retaining.push(Ie::new(IeType::PfcpSessionRetentionInformation, vec![]));
    let mut accepting = setup.clone();
    accepting.push(accepted());
    let mut samples = vec![
        smf.establishment(),
        smf.establishment(),
        smf.establishment(),
    ];
    let node: [(MsgType, &[Ie]); 10] = [
        (MsgType::AssociationSetupRequest, &setup),
        (MsgType::AssociationSetupRequest, &retaining),
        (
            MsgType::AssociationUpdateRequest,
            std::slice::from_ref(&node_id),
        ),
        (
            MsgType::AssociationReleaseRequest,
            std::slice::from_ref(&node_id),
        ),
        (MsgType::HeartbeatRequest, std::slice::from_ref(&recovery)),
        (MsgType::HeartbeatResponse, std::slice::from_ref(&recovery)),
        (MsgType::AssociationSetupResponse, &accepting),
        (MsgType::PfdManagementRequest, &[]),
        (
            MsgType::SessionSetDeletionRequest,
            std::slice::from_ref(&node_id),
        ),
        (MsgType::VersionNotSupportedResponse, &[]),
    ];
    samples.extend(node.map(|(message_type, ies)| smf.datagram(message_type, None, ies)));
    for message_type in [
        MsgType::SessionModificationRequest,
        MsgType::SessionDeletionRequest,
        MsgType::SessionReportResponse,
    ] {
        samples.push(smf.datagram(message_type, Some(1), &[]));
    }
    samples
}

fn mutate(dice: &mut Dice, sample: &[u8]) -> Vec<u8> {
    let mut datagram = sample.to_vec();
    match dice.below(8) {
        0 => datagram.truncate(dice.below(sample.len())),
        1 => datagram.extend((0..dice.below(64)).map(|_| dice.next() as u8)),
        2 => datagram = (0..dice.below(300)).map(|_| dice.next() as u8).collect(),
        3 => {
            let (from, to) = (dice.below(sample.len()), dice.below(sample.len()));
            datagram.copy_within(from.min(to)..from.max(to), 0);
        }
        // A new sequence number, otherwise as it is.
        4 | 5 => {
            let place = if sample[0] & 1 == 1 { 12 } else { 4 };
            datagram[place..place + 3].copy_from_slice(&dice.next().to_be_bytes()[..3]);
        }
        6 => {}
        _ => {
            for _ in 0..1 + dice.below(4) {
                let place = dice.below(datagram.len());
                datagram[place] ^= 1 << dice.below(8);
            }
        }
    }
    datagram
}

#[test]
fn nonsense_harms_nobody() {
    let mut world = World::new(bounded());
    let mut good = Smf::new("192.0.2.77:8805");
    good.node_id = NodeId::new_fqdn("smf-that-behaves.example.org");
    good.associate(&mut world);
    let mut dice = Dice(1);
    let mut bad: Vec<Smf> = (1..=5)
        .map(|n| Smf::new(&format!("10.100.{n}.2:8805")))
        .collect();
    let samples: Vec<Vec<Vec<u8>>> = bad.iter_mut().map(samples).collect();
    let mut seids = vec![1];
    for round in 0..DATAGRAMS {
        let who = dice.below(bad.len());
        let which = dice.below(samples[who].len());
        let mut datagram = mutate(&mut dice, &samples[who][which]);
        if dice.below(2) == 0 && datagram.len() > 12 && matches!(datagram[1], 52..=56) {
            let seid: u64 = seids[dice.below(seids.len())];
            datagram[4..12].copy_from_slice(&seid.to_be_bytes());
        }
        let port = 8805 + dice.below(3) as u16;
        let from = SocketAddr::new(bad[who].address.ip(), port);
        for (to, answer) in world.receive(from, &datagram) {
            // An SMF under whose Node ID another one comes is asked whether it is alive.
            assert!(to.ip() == from.ip() || answer[1] == MsgType::HeartbeatRequest as u8);
            if answer[1] == 51 && answer.len() > 60 {
                seids.push(Answer::from(answer).up_seid());
                seids.truncate(1000);
            }
        }
        for (to, request) in world.pass(Duration::from_millis(dice.below(20) as u64)) {
            if to == good.address {
                good.respond(&mut world, &request);
            }
        }
        check_bounds(&world);
        if round % 500 == 0 {
            good.sequence += 1;
            serve(&mut world, &mut good);
        }
        world.events.clear();
    }
    let stats = world.core.stats();
    assert!(
        stats.established > 1000,
        "the samples reach the rules: {}",
        stats.established
    );
    assert!(stats.deleted > 100, "and the sessions: {}", stats.deleted);
    assert!(
        stats.duplicates > 100,
        "and the cache: {}",
        stats.duplicates
    );
    assert!(stats.decode_errors > 1000);
}

fn check_bounds(world: &World) {
    assert!(world.core.peers().count() <= 8);
    assert!(world.core.outstanding() <= 64);
    let (count, bytes) = world.core.answers_kept();
    assert!(count <= 256 && bytes <= 32_768);
    assert!(world.live() <= 500);
    assert_eq!(
        world.live(),
        world.core.session_count() + world.core.sessions_to_delete()
    );
    assert!(world.events.len() <= 100);
}

/// The SMF that behaves: alive, and gets what it asks for. The others may hold all sessions there
/// are; then it is told so.
fn serve(world: &mut World, good: &mut Smf) {
    let sent = good.heartbeat(world);
    assert!(sent.iter().any(|(_, datagram)| datagram[1] == 2));
    let datagram = good.establishment();
    let answer = good.exchange(world, &datagram);
    if answer.cause() == CauseValue::NoResourcesAvailable {
        assert!(world.live() >= 500);
        return;
    }
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    let deleted = good.delete(world, answer.up_seid());
    assert_eq!(deleted.cause(), CauseValue::RequestAccepted);
}
