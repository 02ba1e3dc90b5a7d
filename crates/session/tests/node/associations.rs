//! Associations, heartbeats, transactions and limits, seen from the SMF's side of N4.

use std::time::Duration;

use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::config::{Answers, Config};
use session::event::{Event, Gone};
use session::peer::PeerState;
use session::stats::Way;
use session::testing::world::{OUR_RECOVERY, World, config};
use testkit::smf::{Smf, accepted, encode, recovery_ie, sequence};

const SMF1: &str = "10.100.0.2:8805";
const SMF2: &str = "10.100.0.3:8805";

fn world() -> World {
    World::new(config())
}

fn second() -> Duration {
    Duration::from_secs(1)
}

/// Pass the time, the SMF answering everything.
fn pass_answering(world: &mut World, smf: &Smf, seconds: u64) -> Vec<u8> {
    let mut types = Vec::new();
    for _ in 0..seconds * 10 {
        for (to, datagram) in world.pass(Duration::from_millis(100)) {
            assert_eq!(to, smf.address);
            types.push(datagram[1]);
            smf.respond(world, &datagram);
        }
    }
    types
}

#[test]
fn association_set_up_by_the_smf() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let ies = smf.setup_ies();
    let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    let node_id = answer.ie(IeType::NodeId).unwrap();
    assert_eq!(
        node_id.payload, b"\x02\x04upf1\x07example\x03org",
        "labels (RFC 1035, 3.1)"
    );
    let recovery = answer.ie(IeType::RecoveryTimeStamp).unwrap();
    assert_eq!(recovery.as_u32().unwrap(), OUR_RECOVERY);
    let features = answer.ie(IeType::UpFunctionFeatures).unwrap();
    assert_eq!(features.payload[0] & 0x10, 0x10, "FTUP");
    assert_eq!(features.payload[2] & 0x04, 0x04, "UEIP");
    let mut octets = [0; 8];
    octets[..features.payload.len()].copy_from_slice(&features.payload);
    assert_eq!(
        u64::from_le_bytes(octets),
        session::features::CLAIMED.bits()
    );
    assert!(
        !answer.has(IeType::UserPlaneIpResourceInformation),
        "FTUP makes it superfluous"
    );
    let peers: Vec<_> = world.core.peers().collect();
    assert_eq!(peers.len(), 1);
    assert_eq!(peers[0].address, smf.address);
    assert_eq!(peers[0].state, PeerState::Up);
    assert!(matches!(
        world.events[..],
        [Event::PeerUp {
            by_us: false,
            retained: 0,
            ..
        }]
    ));
}

#[test]
fn node_ids_of_all_kinds_are_peers_of_their_own() {
    let mut world = world();
    let mut smfs = [
        Smf::new(SMF1),
        Smf::new("[2001:db8::2]:8805"),
        Smf::new("10.100.0.9:8805"),
    ];
    smfs[2].node_id = NodeId::new_fqdn("smf.example.org");
    for smf in &mut smfs {
        smf.associate(&mut world);
        smf.establish(&mut world);
    }
    let names: Vec<_> = world
        .core
        .peers()
        .map(|peer| peer.node_id.to_string())
        .collect();
    assert_eq!(names, ["10.100.0.2", "2001:db8::2", "smf.example.org"]);
    assert!(world.core.peers().all(|peer| peer.sessions == 1));
    // In other spelling it is the same peer, not a fourth.
    smfs[2].node_id = NodeId::new_fqdn("SMF.Example.ORG");
    smfs[2].associate(&mut world);
    assert_eq!(world.core.peers().count(), 3);
}

/// Node IDs are kept, shown and logged.
#[test]
fn a_node_id_that_can_be_no_name_is_refused() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let long = vec![b'x'; 60_000];
    for name in [&b"\x03a\nb"[..], b"smf one", long.as_slice()] {
        let node_id = Ie::new(IeType::NodeId, [&[2], name].concat());
        let ies = [node_id, recovery_ie(smf.recovery)];
        let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
        assert_eq!(answer.cause(), CauseValue::MandatoryIeIncorrect);
    }
    assert_eq!(world.core.peers().count(), 0);
}

#[test]
fn incomplete_setup_is_refused_and_leaves_nothing() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let ies = [recovery_ie(smf.recovery)];
    let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::MandatoryIeMissing);
    let ies = [smf.node_id.to_ie()];
    let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::MandatoryIeMissing);
    assert_eq!(world.core.peers().count(), 0);
    assert_eq!(world.core.stats().decode_errors, 2);
}

#[test]
fn more_peers_than_configured_are_refused() {
    let mut config = config();
    config.limits.peers = 1;
    let mut world = World::new(config);
    let (mut one, mut two) = (Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    let ies = two.setup_ies();
    let answer = two.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::NoResourcesAvailable);
    one.associate(&mut world);
    assert_eq!(one.release(&mut world).cause(), CauseValue::RequestAccepted);
    two.associate(&mut world);
}

#[test]
fn a_silent_peer_without_sessions_makes_room_for_another() {
    let mut config = config();
    config.limits.peers = 1;
    let mut world = World::new(config);
    let (mut one, mut two) = (Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    let seid = one.establish(&mut world);
    world.pass(20 * second());
    let ies = two.setup_ies();
    let answer = two.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(
        answer.cause(),
        CauseValue::NoResourcesAvailable,
        "it has a session"
    );
    one.delete(&mut world, seid);
    two.associate(&mut world);
    assert_eq!(world.core.peers().count(), 1);
}

#[test]
fn a_node_that_keeps_changing_its_name_crowds_out_only_itself() {
    let mut config = config();
    config.limits.peers = 2;
    let mut world = World::new(config);
    let (mut one, mut changing) = (Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    for name in ["a.example", "b.example", "c.example"] {
        changing.node_id = NodeId::new_fqdn(name);
        changing.associate(&mut world);
    }
    let names = || -> Vec<_> {
        let peers = world.core.peers();
        peers.map(|peer| peer.node_id.to_string()).collect()
    };
    assert_eq!(names(), ["10.100.0.2", "c.example"]);
}

#[test]
fn a_configured_smf_that_released_is_asked_later() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let (now, address) = (world.now, smf.address);
    world.core.associate(now, address, &mut world.out);
    let request = world.sent().pop().unwrap().1;
    smf.respond(&mut world, &request);
    smf.release(&mut world);
    assert!(world.pass(29 * second()).is_empty());
    assert_eq!(world.pass(2 * second())[0].1[1], 5);
}

#[test]
fn sessions_need_an_association() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    assert_eq!(
        answer.seid(),
        smf.next_seid,
        "the answer goes to the CP F-SEID"
    );
    assert_eq!(world.live(), 0);
}

#[test]
fn a_session_from_its_birth_to_its_end() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    assert_ne!(seid, 0);
    assert_eq!(world.live(), 1);
    let answer = smf.modify(&mut world, seid);
    assert_eq!(
        (answer.cause(), answer.seid()),
        (CauseValue::RequestAccepted, smf.next_seid)
    );
    let answer = smf.delete(&mut world, seid);
    assert_eq!(
        (answer.cause(), answer.seid()),
        (CauseValue::RequestAccepted, smf.next_seid)
    );
    assert_eq!(world.live(), 0);
    let answer = smf.delete(&mut world, seid);
    assert_eq!(
        (answer.cause(), answer.seid()),
        (CauseValue::SessionContextNotFound, 0)
    );
}

#[test]
fn an_establishment_tells_what_was_chosen() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert!(answer.has(IeType::NodeId));
    assert_ne!(answer.up_seid(), 0);
    let created: Vec<_> = (answer.ies.iter())
        .filter(|ie| ie.ie_type == IeType::CreatedPdr)
        .map(|ie| ie.parse::<rs_pfcp::ie::created_pdr::CreatedPdr>().unwrap())
        .collect();
    assert_eq!(created.len(), 2, "{created:?}");
}

#[test]
fn a_peer_cannot_touch_the_sessions_of_another() {
    let (mut world, mut one, mut two) = (world(), Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    two.associate(&mut world);
    let seid = one.establish(&mut world);
    assert_eq!(
        two.delete(&mut world, seid).cause(),
        CauseValue::SessionContextNotFound
    );
    assert_eq!(
        two.modify(&mut world, seid).cause(),
        CauseValue::SessionContextNotFound
    );
    // Nor can two SMFs that share an address.
    let mut beside = Smf::new("10.100.0.2:9000");
    beside.node_id = NodeId::new_fqdn("beside");
    beside.associate(&mut world);
    assert_eq!(
        beside.delete(&mut world, seid).cause(),
        CauseValue::SessionContextNotFound
    );
    // But the owner may use a new source port.
    one.address.set_port(40_000);
    assert_eq!(
        one.delete(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
}

#[test]
fn a_retransmitted_request_gets_the_same_answer_and_is_done_once() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let datagram = smf.establishment();
    let first = smf.exchange(&mut world, &datagram);
    for _ in 0..3 {
        world.pass(second());
        assert_eq!(smf.exchange(&mut world, &datagram).raw, first.raw);
    }
    assert_eq!((world.live(), world.core.stats().duplicates), (1, 3));
    // A duplicate deletion is answered with success, too.
    let delete = smf.datagram(MsgType::SessionDeletionRequest, Some(first.up_seid()), &[]);
    let answer = smf.exchange(&mut world, &delete);
    assert_eq!(smf.exchange(&mut world, &delete).raw, answer.raw);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    // After the lifetime of answers it is a new request.
    world.pass(31 * second());
    assert_ne!(smf.exchange(&mut world, &datagram).raw, first.raw);
}

#[test]
fn a_reused_sequence_number_is_not_answered_with_a_stale_answer() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let first = smf.establish(&mut world);
    // The SMF restarts, and begins its numbers anew with the very same establishment.
    let mut reborn = Smf::new(SMF1);
    reborn.recovery = smf.recovery + 60;
    reborn.associate(&mut world);
    assert_eq!(world.live(), 0);
    let second = reborn.establish(&mut world);
    assert_eq!(reborn.sequence, smf.sequence);
    assert_ne!(first, second);
    assert_eq!(world.live(), 1);
    // Same number, other content, same association.
    reborn.sequence -= 1;
    let third = reborn.establish(&mut world);
    assert_ne!(third, second);
    assert_eq!(world.core.stats().duplicates, 0);
}

#[test]
fn the_cache_of_answers_is_bounded() {
    let mut config = config();
    config.answers = Answers {
        count: 16,
        bytes: 2000,
        ..Answers::default()
    };
    let (mut world, mut smf) = (World::new(config), Smf::new(SMF1));
    smf.associate(&mut world);
    for _ in 0..100 {
        smf.modify(&mut world, 1);
        let (count, bytes) = world.core.answers_kept();
        assert!(count <= 16 && bytes <= 2000);
    }
    // Strangers' refused requests are not kept at all.
    let mut stranger = Smf::new(SMF2);
    let before = world.core.answers_kept();
    stranger.modify(&mut world, 1);
    assert_eq!(world.core.answers_kept(), before);
}

#[test]
fn heartbeats_are_answered_for_anyone_and_bad_ones_are_not_fatal() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let sent = smf.heartbeat(&mut world);
    assert_eq!(sent.len(), 1);
    let answer = rs_pfcp::message::parse(&sent[0].1).unwrap();
    assert_eq!(answer.msg_type(), MsgType::HeartbeatResponse);
    let recovery = answer.ies(IeType::RecoveryTimeStamp).next().unwrap();
    assert_eq!(recovery.as_u32().unwrap(), OUR_RECOVERY);
    let bare = smf.datagram(MsgType::HeartbeatRequest, None, &[]);
    assert!(world.receive(smf.address, &bare).is_empty());
    assert_eq!(world.ignored("incomplete"), 1);
    let stray = smf.datagram(
        MsgType::HeartbeatResponse,
        None,
        &[recovery_ie(smf.recovery)],
    );
    assert!(world.receive(smf.address, &stray).is_empty());
    assert_eq!(world.ignored("unmatched_response"), 1);
    smf.associate(&mut world);
}

#[test]
fn our_heartbeats_keep_a_peer_up() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let types = pass_answering(&mut world, &smf, 35);
    assert_eq!(types, [1, 1, 1]);
    assert_eq!(world.core.peers().next().unwrap().state, PeerState::Up);
    assert_eq!(world.core.stats().retransmissions, 0);
    assert_eq!(world.core.outstanding(), 0);
}

#[test]
fn a_heartbeat_response_without_recovery_time_stamp_still_shows_life() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let sent = world.pass(10 * second());
    let response = encode(MsgType::HeartbeatResponse, None, sequence(&sent[0].1), &[]);
    assert!(world.receive(smf.address, &response).is_empty());
    assert!(world.pass(5 * second()).is_empty(), "no retransmission");
    assert_eq!(world.core.peers().next().unwrap().state, PeerState::Up);
}

#[test]
fn a_silent_peer_is_noticed_its_sessions_kept_then_deleted() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    let sent = world.pass(14 * second());
    assert_eq!(
        sent.iter().map(|(_, d)| d[1]).collect::<Vec<_>>(),
        [1, 1, 1],
        "N1 times"
    );
    assert!(
        sent.iter().all(|(_, datagram)| *datagram == sent[0].1),
        "the same request"
    );
    assert!(matches!(
        world.core.peers().next().unwrap().state,
        PeerState::Down(_)
    ));
    assert_eq!(world.live(), 1, "traffic goes on");
    let silent = |world: &World| {
        world
            .events
            .iter()
            .filter(|e| matches!(e, Event::PeerSilent { .. }))
            .count()
    };
    assert_eq!(silent(&world), 1);
    world.pass(600 * second());
    assert_eq!((world.live(), silent(&world)), (1, 1), "said once");
    world.pass(3600 * second());
    assert_eq!((world.live(), world.core.peers().count()), (0, 0));
    assert!(world.events.iter().any(|e| matches!(
        e,
        Event::PeerGone {
            why: Gone::Silent,
            ..
        }
    )));
    assert_eq!(world.core.next_deadline(), None, "nothing is left to do");
}

#[test]
fn a_peer_that_comes_back_finds_its_sessions() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    world.pass(14 * second());
    assert!(matches!(
        world.core.peers().next().unwrap().state,
        PeerState::Down(_)
    ));
    smf.heartbeat(&mut world);
    assert_eq!(world.core.peers().next().unwrap().state, PeerState::Up);
    assert!(matches!(world.events.last(), Some(Event::PeerBack { .. })));
    assert_eq!(
        smf.modify(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
}

#[test]
fn a_changed_recovery_time_stamp_deletes_the_sessions_of_that_peer_alone() {
    let (mut world, mut one, mut two) = (world(), Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    two.associate(&mut world);
    let lost = one.establish(&mut world);
    let kept = two.establish(&mut world);
    one.heartbeat(&mut world);
    assert_eq!(world.live(), 2, "unchanged time stamp");
    one.recovery += 100;
    assert_eq!(one.heartbeat(&mut world).len(), 1);
    assert_eq!(world.live(), 1);
    assert_eq!(
        one.modify(&mut world, lost).cause(),
        CauseValue::SessionContextNotFound
    );
    assert_eq!(
        two.modify(&mut world, kept).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(world.core.stats().restarts, 1);
    one.establish(&mut world);
    // In the answer to a heartbeat of ours, too.
    two.recovery += 1;
    for _ in 0..2 {
        for (to, datagram) in world.pass(5 * second()) {
            let smf = if to == one.address { &one } else { &two };
            smf.respond(&mut world, &datagram);
        }
    }
    assert_eq!(world.core.stats().restarts, 2);
    assert_eq!(world.live(), 1);
}

#[test]
fn an_older_recovery_time_stamp_is_discarded_unless_repeated() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    let now = smf.recovery;
    smf.recovery = now - 50;
    smf.heartbeat(&mut world);
    assert_eq!((world.live(), world.ignored("stale_recovery")), (1, 1));
    smf.recovery = now;
    smf.heartbeat(&mut world);
    smf.recovery = now - 50;
    smf.heartbeat(&mut world);
    assert_eq!(world.live(), 1, "not twice in a row");
    smf.heartbeat(&mut world);
    assert_eq!(world.live(), 0, "its clock went back");
}

#[test]
fn setting_up_again_deletes_sessions_unless_they_are_to_be_retained() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    let mut ies = smf.setup_ies();
    ies.push(Ie::new(IeType::PfcpSessionRetentionInformation, vec![]));
    let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert!(
        answer.raw.windows(5).any(|w| w == [0, 184, 0, 1, 1]),
        "PSREI"
    );
    assert_eq!(
        smf.modify(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    let answer = smf.setup_ies();
    let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &answer);
    assert!(!answer.raw.windows(5).any(|w| w == [0, 184, 0, 1, 1]));
    assert_eq!(world.live(), 0);
    assert_eq!(
        smf.modify(&mut world, seid).cause(),
        CauseValue::SessionContextNotFound
    );
}

#[test]
fn update_and_release_of_an_association() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let ies = [
        smf.node_id.to_ie(),
        Ie::new(IeType::CpFunctionFeatures, vec![0]),
    ];
    let update = MsgType::AssociationUpdateRequest;
    let answer = smf.ask(&mut world, update, None, &ies);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    let answer = smf.release(&mut world);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    smf.associate(&mut world);
    assert_eq!(
        smf.ask(&mut world, update, None, &ies).cause(),
        CauseValue::RequestAccepted
    );
    smf.establish(&mut world);
    // With a wrong Node ID, as some SMFs send.
    smf.node_id = NodeId::new_fqdn("another.name");
    let datagram = smf.datagram(
        MsgType::AssociationReleaseRequest,
        None,
        &[smf.node_id.to_ie()],
    );
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!((world.live(), world.core.peers().count()), (0, 0));
    assert_eq!(
        smf.exchange(&mut world, &datagram).raw,
        answer.raw,
        "a duplicate"
    );
}

#[test]
fn a_configured_smf_is_asked_until_it_answers_and_again_when_it_is_lost() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let (now, address) = (world.now, smf.address);
    world.core.associate(now, address, &mut world.out);
    assert_eq!(world.sent().len(), 1);
    let sent = world.pass(300 * second());
    assert!(
        (20..60).contains(&sent.len()),
        "repeated for ever, not too often: {}",
        sent.len()
    );
    let failures = world
        .events
        .iter()
        .filter(|e| matches!(e, Event::SetupFailed { .. }))
        .count();
    assert_eq!(failures, 1, "said once");
    let request = loop {
        if let Some((_, datagram)) = world.pass(second()).pop() {
            break datagram;
        }
    };
    let parsed = rs_pfcp::message::parse(&request).unwrap();
    assert_eq!(parsed.msg_type(), MsgType::AssociationSetupRequest);
    assert!(parsed.ies(IeType::NodeId).next().is_some());
    smf.respond(&mut world, &request);
    assert!(world.core.peers().next().unwrap().by_us);
    smf.establish(&mut world);
    assert_eq!(
        pass_answering(&mut world, &smf, 25),
        [1, 1],
        "heartbeats, no more setups"
    );
    // It restarts: sessions go, and we ask again.
    smf.recovery += 9;
    assert_eq!(
        smf.heartbeat(&mut world).len(),
        2,
        "an answer and a request"
    );
    assert_eq!(world.live(), 0);
}

#[test]
fn an_smf_that_asks_first_is_not_asked() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let (now, address) = (world.now, smf.address);
    world.core.associate(now, address, &mut world.out);
    let request = world.sent().pop().unwrap().1;
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    // Its answer to our request crossed its own; it must not cost the sessions.
    let mut ies = smf.setup_ies();
    ies.push(accepted());
    let late = encode(
        MsgType::AssociationSetupResponse,
        None,
        sequence(&request),
        &ies,
    );
    assert!(world.receive(smf.address, &late).is_empty());
    assert_eq!(
        smf.modify(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(pass_answering(&mut world, &smf, 15), [1]);
}

#[test]
fn other_versions_lengths_and_types() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let mut version2 = smf.datagram(
        MsgType::HeartbeatRequest,
        None,
        &[recovery_ie(3_800_000_000)],
    );
    version2[0] = 2 << 5;
    let sent = world.receive(smf.address, &version2);
    assert_eq!(sent[0].1[..4], [0x20, 11, 0, 4]);
    assert_eq!(sent[0].1[4..7], version2[4..7], "same sequence number");
    // Never in answer to its like.
    version2[1] = 11;
    assert!(world.receive(smf.address, &version2).is_empty());
    assert_eq!(world.core.stats().other_versions, 2);
    // Lengths that do not fit the datagram.
    for change in [1_u16, 0xffff] {
        let mut wrong = smf.establishment();
        let length = u16::from_be_bytes([wrong[2], wrong[3]]).wrapping_add(change);
        wrong[2..4].copy_from_slice(&length.to_be_bytes());
        let answer = smf.exchange(&mut world, &wrong);
        assert_eq!(answer.cause(), CauseValue::InvalidLength, "{change}");
    }
    assert_eq!(world.live(), 0);
    // Too short for a header.
    assert!(world.receive(smf.address, &[0x20, 50, 0]).is_empty());
    assert_eq!(world.ignored("malformed"), 1);
    assert!(
        world
            .receive(smf.address, &[0x20, 99, 0, 4, 0, 0, 1, 0])
            .is_empty()
    );
    assert_eq!(world.ignored("unknown_type"), 1);
    // A session request without SEID.
    let headless = smf.datagram(MsgType::SessionDeletionRequest, None, &[]);
    let answer = smf.exchange(&mut world, &headless);
    assert_eq!(
        (answer.cause(), answer.seid()),
        (CauseValue::SessionContextNotFound, 0)
    );
}

#[test]
fn services_that_are_not_offered_are_refused_by_name() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let node_id = smf.node_id.to_ie();
    let requests = [
        (MsgType::NodeReportRequest, None),
        (MsgType::SessionReportRequest, Some(1)),
    ];
    for (message_type, seid) in requests {
        let answer = smf.ask(
            &mut world,
            message_type,
            seid,
            std::slice::from_ref(&node_id),
        );
        assert_eq!(
            answer.cause(),
            CauseValue::ServiceNotSupported,
            "{message_type:?}"
        );
    }
}

#[test]
fn refusals_name_the_ie_at_fault() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let ies = [smf.node_id.to_ie()];
    let request = MsgType::SessionEstablishmentRequest;
    let answer = smf.ask(&mut world, request, Some(0), &ies);
    assert_eq!(answer.cause(), CauseValue::MandatoryIeMissing);
    assert_eq!(answer.offending_ie(), Some(IeType::Fseid as u16));
    let refused = |event: &&Event| matches!(event, Event::Refused { .. });
    assert_eq!(world.events.iter().filter(refused).count(), 1);
}

#[test]
fn the_sessions_of_a_restarted_smf_go_in_steps_and_others_are_served_meanwhile() {
    let mut config = Config {
        deletions_per_step: 10,
        ..config()
    };
    config.heartbeat_interval = Duration::ZERO;
    let mut world = World::new(config);
    let (mut one, mut two) = (Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    two.associate(&mut world);
    for _ in 0..55 {
        one.establish(&mut world);
    }
    one.recovery += 1;
    let ies = one.setup_ies();
    let setup = one.datagram(MsgType::AssociationSetupRequest, None, &ies);
    assert!(
        world.receive(one.address, &setup).is_empty(),
        "answered when they are gone"
    );
    assert_eq!(world.live(), 45);
    assert!(world.receive(one.address, &setup).is_empty());
    assert_eq!(
        world.ignored("in_progress"),
        1,
        "the retransmission changes nothing"
    );
    assert!(world.core.next_deadline().unwrap() <= world.now);
    two.establish(&mut world);
    world.core.advance(world.now, &mut world.out);
    assert!(world.sent().is_empty());
    assert_eq!(world.live(), 36);
    let sent = world.pass(Duration::ZERO);
    assert_eq!(sent.len(), 1, "the answer to the setup");
    assert_eq!(sent[0].1[1], 6);
    assert_eq!(world.live(), 1);
    assert!(
        world
            .events
            .contains(&Event::SessionsDeleted { sessions: 55 })
    );
    one.establish(&mut world);
    assert_eq!(
        one.exchange(&mut world, &setup).raw,
        sent[0].1,
        "now a duplicate"
    );
}

#[test]
fn an_smf_that_comes_back_waits_until_the_sessions_of_all_that_went_are_gone() {
    let mut world = World::new(Config {
        deletions_per_step: 1,
        ..config()
    });
    let (mut one, mut two) = (Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    two.associate(&mut world);
    one.establish(&mut world);
    for _ in 0..4 {
        two.establish(&mut world);
    }
    // Both are silent, for as long as their sessions are kept.
    while world.core.peers().count() > 0 {
        world.now = world.now.max(world.core.next_deadline().unwrap());
        world.core.advance(world.now, &mut world.out);
        world.sent();
    }
    assert!(world.live() > 1, "those of the second go step by step");
    let ies = two.setup_ies();
    let setup = two.datagram(MsgType::AssociationSetupRequest, None, &ies);
    assert!(world.receive(two.address, &setup).is_empty());
    let mut sent = Vec::new();
    while sent.is_empty() {
        assert!(world.live() > 0);
        world.core.advance(world.now, &mut world.out);
        sent = world.sent();
    }
    assert_eq!((sent[0].1[1], world.live()), (6, 0));
}

#[test]
fn shutting_down_asks_every_peer_to_release() {
    let (mut world, mut one, mut two) = (world(), Smf::new(SMF1), Smf::new(SMF2));
    one.associate(&mut world);
    two.associate(&mut world);
    one.establish(&mut world);
    two.establish(&mut world);
    world.core.shut_down(world.now, &mut world.out);
    let sent = world.sent();
    assert_eq!(sent.len(), 2);
    for (to, datagram) in &sent {
        let request = rs_pfcp::message::parse(datagram).unwrap();
        assert_eq!(request.msg_type(), MsgType::AssociationUpdateRequest);
        let release = request
            .ies(IeType::PfcpAssociationReleaseRequest)
            .next()
            .unwrap();
        assert_eq!(release.payload, [1]);
        if *to == one.address {
            one.respond(&mut world, datagram);
        }
    }
    let datagram = one.establishment();
    let refused = one.exchange(&mut world, &datagram);
    assert_eq!(refused.cause(), CauseValue::RequestRejected);
    assert_eq!(one.release(&mut world).cause(), CauseValue::RequestAccepted);
    assert!(!world.core.is_released(), "the other one has not answered");
    world.pass(10 * second());
    assert!(world.core.is_released());
    let left = (world.core.session_count(), world.core.peers().count());
    assert_eq!(left, (0, 0));
    assert_eq!(world.core.next_deadline(), None);
}

#[test]
fn messages_and_causes_are_counted() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    smf.modify(&mut world, 1);
    let stats = world.core.stats();
    assert_eq!(
        stats.count(
            Way::Received,
            pfcp::MessageType::SESSION_MODIFICATION_REQUEST
        ),
        1
    );
    assert_eq!(
        stats.count(Way::Sent, pfcp::MessageType::SESSION_MODIFICATION_RESPONSE),
        1
    );
    let causes: Vec<_> = stats
        .causes()
        .map(|(_, t, cause, count)| (t.0, cause.0, count))
        .collect();
    assert_eq!(causes, [(6, 1, 1), (51, 1, 1), (53, 65, 1)]);
    assert_eq!(stats.established, 1);
}
