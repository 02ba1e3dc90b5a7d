//! Several messages in one datagram (BUNDL: TS 29.244, 6.5 and 7.2.1A).

#![allow(clippy::unwrap_used)]

use rs_pfcp::ie::IeType;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::message::MsgType;
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf, recovery_ie};

/// FO: another message follows.
const FOLLOW_ON: u8 = 0x04;

/// Bundles as the specification draws them, by hand: the flag is set in all but the last.
fn bundle(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let start = datagram.len();
        datagram.extend_from_slice(message);
        if index + 1 < messages.len() {
            datagram[start] |= FOLLOW_ON;
        }
    }
    datagram
}

#[test]
fn each_message_of_a_bundle_is_answered() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let messages: Vec<_> = (0..5).map(|_| smf.establishment()).collect();
    let sent = world.receive(smf.address, &bundle(&messages));
    assert_eq!(sent.len(), 5);
    for (message, (to, raw)) in messages.iter().zip(&sent) {
        assert_eq!((*to, raw[1]), (smf.address, 51));
        assert_eq!(
            raw[12..15],
            message[12..15],
            "each with its sequence number"
        );
        let answer = Answer::from(raw.clone());
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
        assert!(answer.has(IeType::Fseid));
    }
    assert_eq!(world.core.session_count(), 5);
    // One of them repeated alone, and all of them again in another bundle: nothing is done twice.
    assert_eq!(smf.exchange(&mut world, &messages[0]).raw, sent[0].1);
    let turned: Vec<_> = messages.iter().rev().cloned().collect();
    let again = world.receive(smf.address, &bundle(&turned));
    assert!(again.iter().rev().eq(sent.iter()));
    assert_eq!(world.core.session_count(), 5);
}

#[test]
fn a_bad_message_does_not_spoil_those_before_it() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let good = smf.establishment();
    let unknown = smf.datagram(MsgType::SessionDeletionRequest, Some(99), &[]);
    let mut cut = smf.establishment();
    cut.truncate(40);
    let sent = world.receive(smf.address, &bundle(&[good, unknown, cut]));
    let causes: Vec<_> = sent
        .into_iter()
        .map(|(_, raw)| Answer::from(raw).cause())
        .collect();
    assert_eq!(
        causes,
        [
            CauseValue::RequestAccepted,
            CauseValue::SessionContextNotFound,
            CauseValue::InvalidLength
        ]
    );
}

#[test]
fn what_follows_without_the_flag_is_no_bundle() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let datagram = [smf.establishment(), smf.establishment()].concat();
    let sent = world.receive(smf.address, &datagram);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        Answer::from(sent[0].1.clone()).cause(),
        CauseValue::InvalidLength
    );
    assert_eq!(world.core.session_count(), 0);
    // The flag, and nothing behind it: the one message counts.
    let mut alone = smf.establishment();
    alone[0] |= FOLLOW_ON;
    assert_eq!(
        smf.exchange(&mut world, &alone).cause(),
        CauseValue::RequestAccepted
    );
}

#[test]
fn a_bundle_has_an_end() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let heartbeat = smf.datagram(
        MsgType::HeartbeatRequest,
        None,
        &[recovery_ie(smf.recovery)],
    );
    let messages = vec![heartbeat; 4000];
    let sent = world.receive(smf.address, &bundle(&messages));
    assert_eq!(sent.len(), 128);
    assert_eq!(world.ignored("bundle_too_long"), 1);
}
