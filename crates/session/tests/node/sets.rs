//! Sets of sessions and sets of SMFs (TS 29.244, 5.22, 7.4.6, 7.4.7).

#![allow(clippy::unwrap_used)]

use std::net::IpAddr;
use std::time::Duration;

use rs_pfcp::ie::alternative_smf_ip_address::AlternativeSmfIpAddress;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf};

const SMF1: &str = "10.100.0.2:8805";
const SMF2: &str = "10.100.0.3:8805";

/// FQ-CSID by hand (figure 8.2.45-1): Node-ID Type 0 and one CSID, its node, the CSID, Node Type.
fn fq_csid(node: [u8; 4], csid: u16) -> Ie {
    let mut value = vec![0x01];
    value.extend(node);
    value.extend(csid.to_be_bytes());
    value.push(3);
    Ie::new(IeType::FqCsid, value)
}

const NODE: [u8; 4] = [10, 100, 0, 2];

/// Establishes a session that is in these sets; its SEID.
fn establish_in(world: &mut World, smf: &mut Smf, sets: &[Ie]) -> u64 {
    let mut datagram = smf.establishment();
    for set in sets {
        set.marshal_into(&mut datagram);
    }
    let length = (datagram.len() - 4) as u16;
    datagram[2..4].copy_from_slice(&length.to_be_bytes());
    let answer = smf.exchange(world, &datagram);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    answer.up_seid()
}

fn delete_sets(world: &mut World, smf: &mut Smf, sets: &[Ie]) -> Answer {
    let mut ies = vec![smf.node_id.to_ie()];
    ies.extend_from_slice(sets);
    let answer = smf.ask(world, MsgType::SessionSetDeletionRequest, None, &ies);
    world.pass(Duration::from_millis(10));
    answer
}

fn associate_in_set(world: &mut World, smf: &mut Smf, set: &str) {
    let mut ies = smf.setup_ies();
    let value = [&[0], set.as_bytes()].concat();
    ies.push(Ie::new(IeType::SmfSetId, value));
    let answer = smf.ask(world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
}

#[test]
fn an_smf_of_a_set_may_establish_under_the_node_id_of_another() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    associate_in_set(&mut world, &mut smf, "set1.smfset.5gc.mnc001.mcc001");
    smf.node_id = NodeId::new_ipv4([10, 100, 0, 9].into());
    smf.establish(&mut world);
    assert_eq!(world.live(), 1);
}

fn f_seid(smf: &Smf, seid: u64) -> Ie {
    let v4 = match smf.address.ip() {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    };
    Ie::new(IeType::Fseid, Fseid::new(seid, v4, None).marshal())
}

#[test]
fn a_set_is_deleted_and_nothing_else() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    let in_7 = [0; 3].map(|_| establish_in(&mut world, &mut smf, &[fq_csid(NODE, 7)]));
    let in_8 = establish_in(
        &mut world,
        &mut smf,
        &[fq_csid(NODE, 8), fq_csid([9, 9, 9, 9], 7)],
    );
    let in_none = smf.establish(&mut world);
    let answer = delete_sets(&mut world, &mut smf, &[fq_csid(NODE, 7)]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    rs_pfcp::message::parse(&answer.raw).unwrap();
    assert_eq!((world.core.session_count(), world.live()), (2, 2));
    for seid in in_7 {
        assert_eq!(
            smf.modify(&mut world, seid).cause(),
            CauseValue::SessionContextNotFound
        );
    }
    for seid in [in_8, in_none] {
        assert_eq!(
            smf.modify(&mut world, seid).cause(),
            CauseValue::RequestAccepted
        );
    }
    // Several sets, one of them unknown; a session that is in two is deleted once.
    let sets = [
        fq_csid(NODE, 8),
        fq_csid([9, 9, 9, 9], 7),
        fq_csid(NODE, 99),
    ];
    delete_sets(&mut world, &mut smf, &sets);
    assert_eq!((world.core.session_count(), world.live()), (1, 1));
    assert_eq!(
        smf.delete(&mut world, in_none).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(world.core.session_count(), 0);
}

#[test]
fn sets_of_other_smfs_are_left_alone() {
    let (mut world, mut smf1, mut smf2) = (World::new(config()), Smf::new(SMF1), Smf::new(SMF2));
    smf1.associate(&mut world);
    smf2.associate(&mut world);
    establish_in(&mut world, &mut smf1, &[fq_csid(NODE, 7)]);
    let answer = delete_sets(&mut world, &mut smf2, &[fq_csid(NODE, 7)]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(world.core.session_count(), 1);
    let mut stranger = Smf::new("10.100.0.9:8805");
    let answer = delete_sets(&mut world, &mut stranger, &[fq_csid(NODE, 7)]);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
    let answer = delete_sets(&mut world, &mut smf1, &[]);
    assert_eq!(answer.cause(), CauseValue::ConditionalIeMissing);
    assert_eq!(world.core.session_count(), 1);
}

#[test]
fn sets_and_single_deletions_do_not_disturb_each_other() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    let sessions: Vec<u64> = (0..40)
        .map(|i| establish_in(&mut world, &mut smf, &[fq_csid(NODE, i % 5)]))
        .collect();
    for (i, seid) in sessions.iter().enumerate().filter(|(i, _)| i % 3 == 0) {
        assert_eq!(
            smf.delete(&mut world, *seid).cause(),
            CauseValue::RequestAccepted,
            "{i}"
        );
    }
    let left = |csid| (0..40).filter(|i| i % 3 != 0 && i % 5 == csid).count();
    for csid in 0..5 {
        let before = world.core.session_count();
        delete_sets(&mut world, &mut smf, &[fq_csid(NODE, csid as u16)]);
        assert_eq!(
            before - world.core.session_count(),
            left(csid),
            "CSID {csid}"
        );
    }
    assert_eq!((world.core.session_count(), world.live()), (0, 0));
    smf.establish(&mut world);
    smf.release(&mut world);
    assert_eq!(world.live(), 0);
}

#[test]
fn an_smf_of_the_same_set_takes_a_session_over() {
    let (mut world, mut smf1, mut smf2) = (World::new(config()), Smf::new(SMF1), Smf::new(SMF2));
    let mut other = Smf::new("10.100.0.4:8805");
    associate_in_set(&mut world, &mut smf1, "set1.smf.example");
    associate_in_set(&mut world, &mut smf2, "SET1.smf.example");
    associate_in_set(&mut world, &mut other, "set2.smf.example");
    let seid = smf1.establish(&mut world);
    assert_eq!(
        other.modify(&mut world, seid).cause(),
        CauseValue::SessionContextNotFound
    );
    let ies = [f_seid(&smf2, 0x2222), smf2.node_id.to_ie()];
    let answer = smf2.ask(
        &mut world,
        MsgType::SessionModificationRequest,
        Some(seid),
        &ies,
    );
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(answer.seid(), 0x2222);
    let sessions: Vec<_> = world.core.peers().map(|peer| peer.sessions).collect();
    assert_eq!(sessions, [0, 1, 0], "it is the second SMF's now");
    // What befalls the first no longer concerns it.
    smf1.release(&mut world);
    assert_eq!(world.core.session_count(), 1);
    assert_eq!(
        smf2.delete(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(world.live(), 0);
}

#[test]
fn an_alternative_address_of_the_association_takes_a_session_over() {
    let (mut world, mut smf1, mut smf2) = (World::new(config()), Smf::new(SMF1), Smf::new(SMF2));
    let mut ies = smf1.setup_ies();
    let alternative = AlternativeSmfIpAddress::new_ipv4([10, 100, 0, 3].into());
    ies.push(alternative.to_ie());
    smf1.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    let seid = smf1.establish(&mut world);
    let ies = [f_seid(&smf2, 0x2222)];
    let answer = smf2.ask(
        &mut world,
        MsgType::SessionModificationRequest,
        Some(seid),
        &ies,
    );
    assert_eq!(
        (answer.cause(), answer.seid()),
        (CauseValue::RequestAccepted, 0x2222)
    );
    let mut other = Smf::new("10.100.0.4:8805");
    assert_eq!(
        other.modify(&mut world, seid).cause(),
        CauseValue::SessionContextNotFound
    );
    // The association is one, and both go on.
    assert_eq!(
        smf1.modify(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(
        smf2.delete(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
}

/// PFCP Session Change Info by hand.
fn change(to: [u8; 4], selectors: &[Ie]) -> Ie {
    let mut value = Vec::new();
    for selector in selectors {
        selector.marshal_into(&mut value);
    }
    AlternativeSmfIpAddress::new_ipv4(to.into())
        .to_ie()
        .marshal_into(&mut value);
    Ie::new(IeType::PfcpSessionChangeInfo, value)
}

#[test]
fn a_set_is_handed_over() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    let mut heir = Smf::new(SMF2);
    smf.associate(&mut world);
    let group = Ie::new(IeType::GroupId, b"group-1".to_vec());
    let by_csid = establish_in(&mut world, &mut smf, &[fq_csid(NODE, 7)]);
    let by_group = establish_in(&mut world, &mut smf, std::slice::from_ref(&group));
    let other = establish_in(&mut world, &mut smf, &[fq_csid(NODE, 8)]);
    let info = change([10, 100, 0, 3], &[fq_csid(NODE, 7), group]);
    let ies = [smf.node_id.to_ie(), info];
    let answer = smf.ask(
        &mut world,
        MsgType::SessionSetModificationRequest,
        None,
        &ies,
    );
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    rs_pfcp::message::parse(&answer.raw).unwrap();
    for seid in [by_csid, by_group] {
        assert_eq!(
            heir.modify(&mut world, seid).cause(),
            CauseValue::RequestAccepted
        );
    }
    assert_eq!(
        heir.modify(&mut world, other).cause(),
        CauseValue::SessionContextNotFound
    );
    // Handed over once more, by the address that controls them now.
    let by_address = Ie::new(IeType::CpIpAddress, vec![2, 10, 100, 0, 3]);
    let ies = [smf.node_id.to_ie(), change([10, 100, 0, 5], &[by_address])];
    smf.ask(
        &mut world,
        MsgType::SessionSetModificationRequest,
        None,
        &ies,
    );
    let mut third = Smf::new("10.100.0.5:8805");
    assert_eq!(
        third.delete(&mut world, by_csid).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(
        heir.modify(&mut world, by_group).cause(),
        CauseValue::SessionContextNotFound
    );
    assert_eq!(
        third.delete(&mut world, by_group).cause(),
        CauseValue::RequestAccepted
    );
}

#[test]
fn incomplete_changes_are_refused() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    let node_id = smf.node_id.to_ie();
    for (info, cause) in [
        (None, CauseValue::MandatoryIeMissing),
        (
            Some(change([1, 2, 3, 4], &[])),
            CauseValue::ConditionalIeMissing,
        ),
        (
            Some(Ie::new(IeType::PfcpSessionChangeInfo, Vec::new())),
            CauseValue::MandatoryIeMissing,
        ),
    ] {
        let ies: Vec<Ie> = std::iter::once(node_id.clone()).chain(info).collect();
        let answer = smf.ask(
            &mut world,
            MsgType::SessionSetModificationRequest,
            None,
            &ies,
        );
        assert_eq!(answer.cause(), cause);
    }
}
