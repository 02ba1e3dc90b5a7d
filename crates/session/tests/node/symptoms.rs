//! What brought other UPFs down, or their users to a standstill, each test named after what they saw.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::testing::world::{World, config};
use testkit::smf::{Smf, recovery_ie};

const SMF1: &str = "10.100.0.2:8805";

fn world() -> (World, Smf) {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    (world, smf)
}

fn far_id(id: u32) -> Ie {
    Ie::new(IeType::FarId, id.to_be_bytes().into())
}

fn pdr_id(id: u16) -> Ie {
    Ie::new(IeType::PdrId, id.to_be_bytes().into())
}

/// The session is as it was, and others come and go.
fn lives_on(world: &mut World, smf: &mut Smf, seid: u64) {
    assert_eq!(smf.modify(world, seid).cause(), CauseValue::RequestAccepted);
    let other = smf.establish(world);
    assert_eq!(world.live(), 2);
    assert_eq!(
        smf.delete(world, other).cause(),
        CauseValue::RequestAccepted
    );
    assert_eq!(world.live(), 1);
}

/// Each is refused and names the IE.
fn one_datagram_does_not_kill(kind: MsgType, broken: &[(Ie, IeType)]) {
    let (mut world, mut smf) = world();
    let seid = smf.establish(&mut world);
    for (ie, at_fault) in broken {
        let answer = smf.ask(&mut world, kind, Some(seid), std::slice::from_ref(ie));
        assert_ne!(answer.cause(), CauseValue::RequestAccepted, "{ie:?}");
        assert_eq!(answer.offending_ie(), Some(*at_fault as u16), "{ie:?}");
        lives_on(&mut world, &mut smf, seid);
    }
}

#[test]
fn killed_by_an_outer_header_creation_of_0_1_or_6_octets() {
    let of_length = |length: usize| {
        let mut value = vec![1, 0, 0, 0, 0, 9, 10, 3, 0, 2];
        value.truncate(length);
        let creation = Ie::new(IeType::OuterHeaderCreation, value);
        let parameters = Ie::new_grouped(IeType::UpdateForwardingParameters, vec![creation]);
        let far = Ie::new_grouped(IeType::UpdateFar, vec![far_id(2), parameters]);
        (far, IeType::OuterHeaderCreation)
    };
    let broken: Vec<_> = (0..10).map(of_length).collect();
    one_datagram_does_not_kill(MsgType::SessionModificationRequest, &broken);
}

#[test]
fn killed_by_a_pdr_with_an_empty_pdi() {
    let pdr = |kind| {
        let pdi = Ie::new_grouped(IeType::Pdi, vec![]);
        let precedence = Ie::new(IeType::Precedence, vec![0, 0, 0, 9]);
        let members = vec![
            pdr_id(if kind == IeType::CreatePdr { 7 } else { 1 }),
            precedence,
            pdi,
            far_id(1),
        ];
        (Ie::new_grouped(kind, members), IeType::SourceInterface)
    };
    let broken = [pdr(IeType::CreatePdr), pdr(IeType::UpdatePdr)];
    one_datagram_does_not_kill(MsgType::SessionModificationRequest, &broken);
}

#[test]
fn killed_by_an_sdf_filter_whose_inner_length_exceeds_the_ie() {
    let filter = |inner: u16| {
        let mut value = vec![1, 0];
        value.extend(inner.to_be_bytes());
        value.extend(b"permit out ip from any to any");
        let filter = Ie::new(IeType::SdfFilter, value);
        let source = Ie::new(IeType::SourceInterface, vec![0]);
        let pdi = Ie::new_grouped(IeType::Pdi, vec![source, filter]);
        let precedence = Ie::new(IeType::Precedence, vec![0, 0, 0, 9]);
        let members = vec![pdr_id(7), precedence, pdi, far_id(1)];
        (
            Ie::new_grouped(IeType::CreatePdr, members),
            IeType::SdfFilter,
        )
    };
    let broken = [30, 255, 0x8000, 0xffff].map(filter);
    one_datagram_does_not_kill(MsgType::SessionModificationRequest, &broken);
}

#[test]
fn killed_by_a_heartbeat_without_recovery_time_stamp() {
    let (mut world, mut smf) = world();
    let seid = smf.establish(&mut world);
    for kind in [MsgType::HeartbeatRequest, MsgType::HeartbeatResponse] {
        let bare = smf.datagram(kind, None, &[]);
        assert!(world.receive(smf.address, &bare).is_empty());
        lives_on(&mut world, &mut smf, seid);
    }
}

#[test]
fn stalled_for_seconds_by_a_stray_heartbeat_response() {
    let (mut world, mut smf) = world();
    let seid = smf.establish(&mut world);
    for _ in 0..100 {
        let stamp = recovery_ie(smf.recovery);
        let stray = smf.datagram(MsgType::HeartbeatResponse, None, &[stamp]);
        assert!(world.receive(smf.address, &stray).is_empty());
    }
    assert_eq!(world.ignored("unmatched_response"), 100);
    // Not a moment later.
    lives_on(&mut world, &mut smf, seid);
    assert_eq!(world.core.outstanding(), 0);
}

#[test]
fn a_second_session_after_a_retransmitted_establishment_that_cannot_be_deleted() {
    let (mut world, mut smf) = world();
    let datagram = smf.establishment();
    let first = smf.exchange(&mut world, &datagram);
    let again = smf.exchange(&mut world, &datagram);
    assert_eq!((world.live(), first.raw == again.raw), (1, true));
    let answer = smf.delete(&mut world, first.up_seid());
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(world.live(), 0);
}

#[test]
fn a_session_deletion_with_an_f_seid_is_not_understood() {
    let (mut world, mut smf) = world();
    let seid = smf.establish(&mut world);
    let f_seid = Ie::new(
        IeType::Fseid,
        vec![2, 0, 0, 0, 0, 0, 0, 1, 1, 10, 100, 0, 2],
    );
    let kind = MsgType::SessionDeletionRequest;
    let answer = smf.ask(&mut world, kind, Some(seid), &[f_seid]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(world.live(), 0);
}

/// Some SMFs release under another Node ID, or another form of it, than they set up under.
#[test]
fn a_release_with_a_wrong_node_id_is_not_understood() {
    let (mut world, mut smf) = world();
    let mut other = Smf::new("10.100.0.3:8805");
    other.associate(&mut world);
    let seid = smf.establish(&mut world);
    let kind = MsgType::AssociationReleaseRequest;
    let wrong = NodeId::new_fqdn("smf9.example.org").to_ie();
    let answer = other.ask(&mut world, kind, None, &[wrong]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(world.core.peers().count(), 1);
    lives_on(&mut world, &mut smf, seid);
}

#[test]
fn lost_because_the_smf_never_answers_heartbeats() {
    let (mut world, mut smf) = world();
    smf.establish(&mut world);
    world.pass(Duration::from_secs(600));
    assert_eq!(world.live(), 1, "sessions go on within the retention time");
}
