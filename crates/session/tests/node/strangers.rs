//! Who may speak for an association: a Node ID is no secret (TS 29.244, 5.8.1, 6.2.7, 6.2.8).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::time::Duration;

use rs_pfcp::ie::alternative_smf_ip_address::AlternativeSmfIpAddress;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use rs_pfcp::message::header::Header;
use session::config::{Answers, Config, NodeIdConfig};
use session::event::Event;
use session::testing::world::{World, config};
use testkit::smf::{Smf, encode};

/// TS 29.244, 8.1.2
const NODE_ID: u16 = 60;
const SMF1: &str = "10.100.0.2:8805";
const SMF2: &str = "10.100.0.3:8805";
const STRANGER: &str = "10.100.0.9:8805";

/// An SMF at `address` that calls itself as `other` does.
fn posing(address: &str, other: &Smf) -> Smf {
    let mut smf = Smf::new(address);
    smf.node_id = other.node_id.clone();
    smf
}

/// FQ-CSID of the first SMF by hand (figure 8.2.45-1).
fn fq_csid() -> Ie {
    Ie::new(IeType::FqCsid, vec![0x01, 10, 100, 0, 2, 0, 7, 3])
}

/// Everything that concerns more than one session, asked by `smf`; what was said to each.
fn ask_for_all(world: &mut World, smf: &mut Smf) -> Vec<CauseValue> {
    let node_id = smf.node_id.to_ie();
    let set = [node_id.clone(), Ie::new(IeType::SmfSetId, b"\0s".to_vec())];
    let mut change = Vec::new();
    fq_csid().marshal_into(&mut change);
    let address = AlternativeSmfIpAddress::new_ipv4([10, 100, 0, 2].into());
    address.to_ie().marshal_into(&mut change);
    let change = Ie::new(IeType::PfcpSessionChangeInfo, change);
    let requests = [
        (MsgType::AssociationUpdateRequest, set.to_vec()),
        (
            MsgType::SessionSetModificationRequest,
            vec![node_id.clone(), change],
        ),
        (
            MsgType::SessionSetDeletionRequest,
            vec![node_id.clone(), fq_csid()],
        ),
        (MsgType::PfdManagementRequest, Vec::new()),
        (MsgType::AssociationReleaseRequest, vec![node_id]),
    ];
    let mut causes = Vec::new();
    for (kind, ies) in requests {
        causes.push(smf.ask(world, kind, None, &ies).cause());
    }
    causes
}

const REFUSED: [CauseValue; 5] = [CauseValue::NoEstablishedPfcpAssociation; 5];
const ACCEPTED: [CauseValue; 5] = [CauseValue::RequestAccepted; 5];

#[test]
fn a_stranger_cannot_end_an_association_by_its_node_id() {
    for name in [None, Some("smf1.example.org")] {
        let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
        if let Some(name) = name {
            smf.node_id = NodeId::new_fqdn(name);
        }
        smf.associate(&mut world);
        smf.establish(&mut world);
        let mut stranger = posing(STRANGER, &smf);
        assert_eq!(ask_for_all(&mut world, &mut stranger), REFUSED, "{name:?}");
        // Nor when it has an association of its own.
        let mut other = Smf::new(SMF2);
        other.associate(&mut world);
        other.node_id = smf.node_id.clone();
        let answer = other.release(&mut world);
        assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
        assert_eq!((world.live(), world.core.peers().count()), (1, 2));
        assert_eq!(ask_for_all(&mut world, &mut smf), ACCEPTED, "{name:?}");
        assert_eq!((world.live(), world.core.peers().count()), (0, 1));
    }
}

/// An SMF may establish sessions from several addresses, so anybody may who knows its Node ID; that
/// does not make it the SMF.
#[test]
fn who_establishes_a_session_under_a_node_id_does_not_speak_for_it() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    let mut stranger = posing(STRANGER, &smf);
    let own = stranger.establish(&mut world);
    assert_eq!(ask_for_all(&mut world, &mut stranger), REFUSED);
    // As if the SMF had restarted.
    stranger.recovery += 1;
    stranger.heartbeat(&mut world);
    assert_eq!(world.live(), 2);
    // Nor does it push the SMF out of our memory, however often it comes.
    for port in 20_000..20_100 {
        stranger.address.set_port(port);
        let seid = stranger.establish(&mut world);
        stranger.delete(&mut world, seid);
    }
    let answer = smf.modify(&mut world, seid);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    let answer = stranger.delete(&mut world, own);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    smf.recovery += 1;
    smf.heartbeat(&mut world);
    assert_eq!(world.live(), 0, "the SMF itself has restarted");
}

/// What is sent when `smf` asks for an association.
fn set_up(world: &mut World, smf: &mut Smf) -> Vec<(SocketAddr, Vec<u8>)> {
    let ies = smf.setup_ies();
    let datagram = smf.datagram(MsgType::AssociationSetupRequest, None, &ies);
    world.receive(smf.address, &datagram)
}

#[test]
fn a_setup_under_anothers_node_id_is_not_believed_while_that_smf_answers() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    let mut stranger = posing(STRANGER, &smf);
    stranger.recovery += 1;
    for asked in 1..=3 {
        let sent = set_up(&mut world, &mut stranger);
        let [(to, heartbeat)] = sent.as_slice() else {
            panic!("{sent:?}");
        };
        assert_eq!((*to, heartbeat[1]), (smf.address, 1));
        assert!(set_up(&mut world, &mut stranger).is_empty(), "it is asked");
        smf.respond(&mut world, heartbeat);
        assert_eq!(world.ignored("node_id_taken"), 2 * asked);
    }
    assert_eq!((world.live(), world.core.peers().count()), (1, 1));
    // The SMF itself is believed at once.
    smf.recovery += 1;
    smf.associate(&mut world);
    assert_eq!(world.live(), 0);
}

#[test]
fn an_smf_that_has_moved_gets_in_when_its_old_address_is_silent() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.node_id = NodeId::new_fqdn("smf1.example.org");
    smf.associate(&mut world);
    smf.establish(&mut world);
    let mut moved = posing(SMF2, &smf);
    set_up(&mut world, &mut moved);
    let silence = config().t1 * config().n1;
    world.pass(silence - Duration::from_millis(1));
    set_up(&mut world, &mut moved);
    assert_eq!((world.live(), world.ignored("node_id_taken")), (1, 2));
    world.pass(Duration::from_millis(1));
    moved.associate(&mut world);
    assert_eq!((world.live(), world.core.peers().count()), (0, 1));
    moved.establish(&mut world);
}

#[test]
fn a_configured_smf_gets_its_name_back_from_who_took_it() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.node_id = NodeId::new_fqdn("smf1.example.org");
    world.core.associate(world.now, smf.address, &mut world.out);
    posing(STRANGER, &smf).associate(&mut world);
    smf.associate(&mut world);
    assert_eq!(
        (world.core.peers().count(), world.ignored("node_id_taken")),
        (1, 0)
    );
    smf.establish(&mut world);
}

#[test]
fn only_who_is_allowed_speaks_pfcp() {
    let allow = vec!["10.100.0.0/29".parse().unwrap()];
    let mut world = World::new(Config { allow, ..config() });
    let mut stranger = Smf::new(STRANGER);
    assert!(set_up(&mut world, &mut stranger).is_empty());
    assert!(stranger.heartbeat(&mut world).is_empty());
    assert_eq!(world.ignored("not_allowed"), 2);
    Smf::new(SMF1).associate(&mut world);
    Smf::new("[::ffff:10.100.0.3]:8805").associate(&mut world);
    assert_eq!(world.core.peers().count(), 2);
}

/// With a session in each, no association is idle.
#[test]
fn one_address_takes_no_more_than_its_share_of_associations() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    let mut stranger = Smf::new(STRANGER);
    let mut associate = |world: &mut World, number: u8| {
        stranger.node_id = NodeId::new_fqdn(&format!("smf{number}.example"));
        let ies = stranger.setup_ies();
        let answer = stranger.ask(world, MsgType::AssociationSetupRequest, None, &ies);
        if answer.cause() == CauseValue::RequestAccepted {
            stranger.establish(world);
        }
        answer.cause()
    };
    for number in 0..8 {
        let answer = associate(&mut world, number);
        assert_eq!(answer, CauseValue::RequestAccepted, "{number}");
    }
    for number in 8..12 {
        let answer = associate(&mut world, number);
        assert_eq!(answer, CauseValue::NoResourcesAvailable, "{number}");
    }
    assert_eq!(world.core.peers().count(), 9);
    Smf::new("10.100.0.7:8805").associate(&mut world);
    smf.establish(&mut world);
}

#[test]
fn a_session_under_a_node_id_without_association_is_refused() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    let own = std::mem::replace(&mut smf.node_id, NodeId::new_ipv4([10, 100, 0, 9].into()));
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    assert_eq!(world.live(), 0);
    smf.node_id = own;
    smf.establish(&mut world);
    assert_eq!(world.live(), 1);
}

#[test]
fn our_own_node_id_is_no_smfs() {
    for (ours, theirs) in [
        (
            NodeIdConfig::Fqdn("upf1.example.org".into()),
            NodeId::new_fqdn("UPF1.example.org"),
        ),
        (
            NodeIdConfig::Ip([10, 100, 0, 1].into()),
            NodeId::new_ipv4([10, 100, 0, 1].into()),
        ),
        (
            NodeIdConfig::Ip([10, 100, 0, 1].into()),
            NodeId::new_ipv6("::ffff:10.100.0.1".parse().unwrap()),
        ),
        (
            NodeIdConfig::Ip("2001:db8::1".parse().unwrap()),
            NodeId::new_ipv6("2001:db8::1".parse().unwrap()),
        ),
    ] {
        let node_id = ours.clone();
        let mut world = World::new(Config {
            node_id,
            ..config()
        });
        let mut smf = Smf::new(SMF1);
        let right = std::mem::replace(&mut smf.node_id, theirs);
        let setup = smf.setup_ies();
        let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &setup);
        let incorrect = (CauseValue::MandatoryIeIncorrect, Some(NODE_ID));
        // Its response has no Offending IE (table 7.4.4.2-1).
        assert_eq!(answer.cause(), incorrect.0, "{ours:?}");
        assert_eq!(world.core.peers().count(), 0, "{ours:?}");
        let own = std::mem::replace(&mut smf.node_id, right);
        smf.associate(&mut world);
        smf.establish(&mut world);
        let right = std::mem::replace(&mut smf.node_id, own);
        let datagram = smf.establishment();
        let answer = smf.exchange(&mut world, &datagram);
        assert_eq!(
            (answer.cause(), answer.offending_ie()),
            incorrect,
            "{ours:?}"
        );
        assert!(
            answer.seid() != 0,
            "the session that was asked for is named"
        );
        let causes = ask_for_all(&mut world, &mut smf);
        let others = [0, 1, 2, 4].map(|place| causes[place]);
        assert_eq!(others, [CauseValue::MandatoryIeIncorrect; 4], "{ours:?}");
        assert_eq!((world.live(), world.core.peers().count()), (1, 1));
        assert!(
            world
                .events
                .iter()
                .any(|event| matches!(event, Event::Refused { .. }))
        );
        smf.node_id = right;
        smf.establish(&mut world);
    }
}

#[test]
fn an_smf_that_answers_with_our_own_node_id_is_not_associated() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    world.core.associate(world.now, smf.address, &mut world.out);
    let asked = world.sent();
    let sequence = Header::unmarshal(&asked[0].1).unwrap().sequence_number;
    smf.node_id = NodeId::new_fqdn("upf1.example.org");
    let answer = |smf: &Smf, sequence: u32| {
        let mut ies = smf.setup_ies();
        ies.insert(1, Ie::new(IeType::Cause, vec![1]));
        encode(MsgType::AssociationSetupResponse, None, sequence, &ies)
    };
    world.receive(smf.address, &answer(&smf, *sequence));
    assert_eq!(world.core.peers().count(), 0);
    assert_eq!(world.ignored("own_node_id"), 1);
    // It is asked again, and has a name of its own now.
    let asked = world.pass(config().t1);
    let sequence = Header::unmarshal(&asked[0].1).unwrap().sequence_number;
    smf.node_id = NodeId::new_fqdn("smf1.example.org");
    world.receive(smf.address, &answer(&smf, *sequence));
    assert_eq!(world.core.peers().count(), 1);
}

#[test]
fn an_smf_speaks_for_itself_from_its_other_addresses() {
    // Behind a NAT, which gives each request another port.
    let (mut world, mut smf) = (World::new(config()), Smf::new("192.0.2.1:40000"));
    smf.node_id = NodeId::new_ipv4([10, 100, 0, 2].into());
    smf.associate(&mut world);
    smf.address.set_port(40_001);
    assert_eq!(ask_for_all(&mut world, &mut smf), ACCEPTED);
    // At the address that its Node ID is, while the association is held with another one.
    let mut outside = posing("192.0.2.1:8805", &smf);
    outside.associate(&mut world);
    let mut inside = posing(SMF1, &smf);
    assert_eq!(
        ask_for_all(&mut world, &mut inside)[4],
        CauseValue::RequestAccepted
    );
    assert_eq!(world.core.peers().count(), 0);
}

#[test]
fn a_standby_speaks_for_the_smf_that_named_it() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    let mut ies = smf.setup_ies();
    ies.push(AlternativeSmfIpAddress::new_ipv4([10, 100, 0, 3].into()).to_ie());
    smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    let answer = posing(STRANGER, &smf).release(&mut world);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    let answer = posing(SMF2, &smf).release(&mut world);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
}

#[test]
fn an_smf_of_the_set_speaks_for_another() {
    let (mut world, mut smf1, mut smf2) = (World::new(config()), Smf::new(SMF1), Smf::new(SMF2));
    for (smf, set) in [(&mut smf1, b"\0set-a"), (&mut smf2, b"\0set-b")] {
        let mut ies = smf.setup_ies();
        ies.push(Ie::new(IeType::SmfSetId, set.to_vec()));
        smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    }
    let mut heir = posing(SMF2, &smf1);
    let answer = heir.release(&mut world);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    let ies = [
        smf2.node_id.to_ie(),
        Ie::new(IeType::SmfSetId, b"\0set-a".to_vec()),
    ];
    smf2.ask(&mut world, MsgType::AssociationUpdateRequest, None, &ies);
    let answer = heir.release(&mut world);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(world.core.peers().count(), 1);
}

#[test]
fn neither_strangers_nor_other_smfs_push_out_the_answers_to_a_peer() {
    let answers = Answers {
        count: 64,
        ..Answers::default()
    };
    let mut world = World::new(Config {
        answers,
        ..config()
    });
    let mut smf = Smf::new(SMF1);
    smf.associate(&mut world);
    let establishment = smf.establishment();
    let first = smf.exchange(&mut world, &establishment);
    let (mut stranger, mut other) = (Smf::new(STRANGER), Smf::new(SMF2));
    other.associate(&mut world);
    for _ in 0..100 {
        stranger.modify(&mut world, 1);
        stranger.associate(&mut world);
        stranger.release(&mut world);
        other.modify(&mut world, 1);
    }
    let again = smf.exchange(&mut world, &establishment);
    assert_eq!(again.raw, first.raw);
    assert_eq!((world.live(), world.core.stats().established), (1, 1));
    // What nobody can ask for again is not kept.
    let (before, _) = world.core.answers_kept();
    other.release(&mut world);
    let (after, _) = world.core.answers_kept();
    assert!(before > 50 && after < 10, "{before} {after}");
}

#[test]
fn a_stranger_is_at_no_address_of_an_association_or_of_a_configured_smf() {
    let allow = vec!["10.100.0.0/24".parse().unwrap()];
    let mut world = World::new(Config { allow, ..config() });
    let is_stranger =
        |world: &World, address: &str| world.core.is_stranger(address.parse().unwrap());
    let mut smf = Smf::new(SMF1);
    assert!(is_stranger(&world, SMF1));
    let mut ies = smf.setup_ies();
    ies.push(AlternativeSmfIpAddress::new_ipv4([10, 100, 0, 3].into()).to_ie());
    smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    for known in [SMF1, "10.100.0.2:40000", SMF2] {
        assert!(!is_stranger(&world, known), "{known}");
    }
    assert!(is_stranger(&world, STRANGER));
    // To be ignored at once.
    assert!(!is_stranger(&world, "192.0.2.1:8805"));
    // One that is yet to answer.
    let asked = STRANGER.parse().unwrap();
    world.core.associate(world.now, asked, &mut world.out);
    assert!(!is_stranger(&world, STRANGER));
    smf.release(&mut world);
    assert!(is_stranger(&world, SMF1) && is_stranger(&world, SMF2));
}

#[test]
fn what_is_dropped_of_strangers_is_counted_by_messages() {
    let mut world = World::new(config());
    let from = STRANGER.parse().unwrap();
    for datagram in 0..1000 {
        world.now = world.now.after(Duration::from_millis(2));
        let out = &mut world.out;
        world.core.drop_stranger(from, 1 + datagram % 2, out);
    }
    assert!(world.sent().is_empty());
    assert_eq!(world.ignored("stranger_dropped"), 1500);
}
