//! Associations updated and released in good order (TS 29.244, 5.18, 6.2.7, 6.2.8).

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::Config;
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf, accepted, encode, sequence};

const EPFAR: u8 = 1 << 2;
const SARR: u8 = 1;
const URSS: u8 = 2;

pub(crate) fn associate(world: &mut World, smf: &mut Smf, features: u8) {
    let mut ies = smf.setup_ies();
    ies.push(Ie::new(IeType::CpFunctionFeatures, vec![features]));
    let answer = smf.ask(world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
}

fn graceful(seconds: u64) -> Config {
    Config {
        graceful_release: Duration::from_secs(seconds),
        ..config()
    }
}

/// The one request that the core sent to this SMF.
fn asked(smf: &Smf, mut sent: Vec<(std::net::SocketAddr, Vec<u8>)>) -> Answer {
    assert_eq!(sent.len(), 1, "{sent:02x?}");
    let (to, raw) = sent.pop().unwrap();
    assert_eq!(to, smf.address);
    rs_pfcp::message::parse(&raw).unwrap();
    Answer::from(raw)
}

fn payload(message: &Answer, ie_type: IeType) -> Vec<u8> {
    message
        .ie(ie_type)
        .map(|ie| ie.payload.clone())
        .unwrap_or_default()
}

fn shut_down(world: &mut World) -> Vec<(std::net::SocketAddr, Vec<u8>)> {
    world.out.clear();
    world.core.shut_down(world.now, &mut world.out);
    world.sent()
}

fn respond(world: &mut World, smf: &Smf, request: &Answer) -> Vec<(std::net::SocketAddr, Vec<u8>)> {
    let ies = [smf.node_id.to_ie(), accepted()];
    let sequence = sequence(&request.raw);
    let response = encode(MsgType::AssociationUpdateResponse, None, sequence, &ies);
    world.receive(smf.address, &response)
}

#[test]
fn enhanced_release_from_our_side() {
    let (mut world, mut smf) = (World::new(graceful(20)), Smf::new("10.100.0.2:8805"));
    associate(&mut world, &mut smf, EPFAR);
    let seid = smf.establish(&mut world);

    let sent = shut_down(&mut world);
    let preparation = asked(&smf, sent);
    assert_eq!(preparation.raw[1], MsgType::AssociationUpdateRequest as u8);
    assert_eq!(payload(&preparation, IeType::PfcpauReqFlags), [1], "PARPS");
    assert!(!preparation.has(IeType::PfcpAssociationReleaseRequest));

    let sent = respond(&mut world, &smf, &preparation);
    let release = asked(&smf, sent);
    assert_eq!(
        payload(&release, IeType::PfcpAssociationReleaseRequest),
        [SARR | URSS]
    );
    assert_eq!(
        payload(&release, IeType::GracefulReleasePeriod),
        [10],
        "10 times 2 s"
    );
    assert!(respond(&mut world, &smf, &release).is_empty());

    // It takes its time, and what it has goes on.
    world.pass(Duration::from_secs(15));
    assert!(!world.core.is_released());
    assert_eq!(
        smf.modify(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    let refused = smf.establishment();
    assert_eq!(
        smf.exchange(&mut world, &refused).cause(),
        CauseValue::RequestRejected
    );
    assert_eq!(
        smf.delete(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    smf.release(&mut world);
    assert!(world.core.is_released());
}

#[test]
fn an_smf_without_the_feature_is_asked_at_once() {
    let (mut world, mut smf) = (World::new(graceful(0)), Smf::new("10.100.0.2:8805"));
    associate(&mut world, &mut smf, 0);
    let sent = shut_down(&mut world);
    let release = asked(&smf, sent);
    assert_eq!(
        payload(&release, IeType::PfcpAssociationReleaseRequest),
        [SARR]
    );
    assert!(!release.has(IeType::GracefulReleasePeriod));
}

#[test]
fn the_graceful_period_ends() {
    let (mut world, mut smf) = (World::new(graceful(20)), Smf::new("10.100.0.2:8805"));
    associate(&mut world, &mut smf, 0);
    smf.establish(&mut world);
    let sent = shut_down(&mut world);
    let release = asked(&smf, sent);
    respond(&mut world, &smf, &release);
    world.pass(Duration::from_secs(19));
    assert!(!world.core.is_released() && world.live() == 1);
    world.pass(Duration::from_secs(2));
    assert!(world.core.is_released() && world.core.session_count() == 0);
}

/// What it measured is in the log of usage by then, see `what_a_silent_smf_never_heard_is_in_the_log_when_we_give_it_up`.
#[test]
fn users_of_a_upf_that_stops_wait_until_a_million_sessions_are_deleted() {
    let (mut world, mut smf) = (World::new(graceful(0)), Smf::new("10.100.0.2:8805"));
    let mut other = Smf::new("10.100.0.3:8805");
    associate(&mut world, &mut smf, 0);
    associate(&mut world, &mut other, 0);
    for _ in 0..3 {
        smf.establish(&mut world);
        other.establish(&mut world);
    }
    shut_down(&mut world);
    smf.release(&mut world);
    assert_eq!(world.live(), 3, "somebody else goes on");
    other.release(&mut world);
    assert!(world.core.is_released() && world.core.session_count() == 0);
    assert_eq!(world.live(), 3, "nobody waits for their deletion");
}

#[test]
fn a_stop_waits_for_an_smf_that_is_gone() {
    let (mut world, mut smf) = (World::new(graceful(20)), Smf::new("10.100.0.2:8805"));
    associate(&mut world, &mut smf, 0);
    smf.establish(&mut world);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.core.session_count(), 1, "silent, and kept");
    let sent = shut_down(&mut world);
    assert_eq!(
        payload(&asked(&smf, sent), IeType::PfcpAssociationReleaseRequest),
        [SARR],
        "it may hear"
    );
    assert!(world.core.is_released() && world.core.session_count() == 0);
}

#[test]
fn enhanced_release_from_the_smf() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    associate(&mut world, &mut smf, EPFAR);
    smf.establish(&mut world);
    let ies = [
        smf.node_id.to_ie(),
        Ie::new(IeType::PfcpauReqFlags, vec![1]),
    ];
    let datagram = smf.datagram(MsgType::AssociationUpdateRequest, None, &ies);
    let sent = world.receive(smf.address, &datagram);
    assert_eq!(
        sent.len(),
        2,
        "the answer, then that there is nothing left to report"
    );
    assert_eq!(
        Answer::from(sent[0].1.clone()).cause(),
        CauseValue::RequestAccepted
    );
    let done = Answer::from(sent[1].1.clone());
    assert_eq!(done.raw[1], MsgType::AssociationUpdateRequest as u8);
    assert_eq!(
        payload(&done, IeType::PfcpAssociationReleaseRequest),
        [URSS]
    );
    assert!(respond(&mut world, &smf, &done).is_empty());
    smf.release(&mut world);
    assert_eq!(world.core.peers().count(), 0);
}

#[test]
fn an_update_changes_what_it_names() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    associate(&mut world, &mut smf, 0);
    let ies = [
        smf.node_id.to_ie(),
        Ie::new(IeType::CpFunctionFeatures, vec![EPFAR]),
    ];
    let answer = smf.ask(&mut world, MsgType::AssociationUpdateRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    // An update that says nothing of features leaves them.
    let ies = [smf.node_id.to_ie()];
    smf.ask(&mut world, MsgType::AssociationUpdateRequest, None, &ies);
    let sent = shut_down(&mut world);
    let preparation = asked(&smf, sent);
    assert!(preparation.has(IeType::PfcpauReqFlags));
    let mut stranger = Smf::new("10.100.0.7:8805");
    let ies = [stranger.node_id.to_ie()];
    let answer = stranger.ask(&mut world, MsgType::AssociationUpdateRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
}
