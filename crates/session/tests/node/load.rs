//! Load control and overload control (TS 29.244, 6.2.3 and 6.2.4).

#![allow(clippy::unwrap_used)]

use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::load_control_information::LoadControlInformation;
use rs_pfcp::ie::{Ie, IeIterator, IeType};
use rs_pfcp::message::MsgType;
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf};

const LOAD: u8 = 1;
const OVRL: u8 = 2;

fn associated(features: u8) -> (World, Smf) {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    let mut ies = smf.setup_ies();
    ies.push(Ie::new(IeType::CpFunctionFeatures, vec![features]));
    let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    (world, smf)
}

fn load(answer: &Answer) -> Option<(u32, u8)> {
    let ie = answer.ie(IeType::LoadControlInformation)?;
    let load = LoadControlInformation::unmarshal(&ie.payload).unwrap();
    Some((load.sequence_number.value, load.metric.value))
}

fn reduction(answer: &Answer) -> Option<u8> {
    let ie = answer.ie(IeType::OverloadControlInformation)?;
    // By hand: the Timer is one octet (8.2.35), which `rs-pfcp` does not know.
    let members: Vec<Ie> = IeIterator::new(&ie.payload).map(Result::unwrap).collect();
    let of_type = |wanted| {
        let mut found = members.iter().filter(|ie| ie.ie_type == wanted);
        found.next().map(|ie| ie.payload.clone())
    };
    assert_eq!(of_type(IeType::Timer), Some(vec![15]), "15 times 2 s");
    assert_eq!(
        of_type(IeType::OciFlags),
        Some(vec![1]),
        "of the whole node"
    );
    assert_eq!(of_type(IeType::SequenceNumber).map(|v| v.len()), Some(4));
    of_type(IeType::Metric).map(|value| value[0])
}

#[test]
fn an_smf_that_wants_to_know_is_told_of_changes() {
    let (mut world, mut smf) = associated(LOAD);
    world.core.set_busy(40);
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    let (sequence, metric) = load(&answer).unwrap();
    assert_eq!(metric, 40);
    let seid = answer.up_seid();
    let datagram = smf.establishment();
    assert_eq!(load(&smf.exchange(&mut world, &datagram)), None, "known");
    world.core.set_busy(70);
    assert_eq!(
        load(&smf.modify(&mut world, seid)),
        Some((sequence + 1, 70))
    );
    world.core.set_busy(10);
    assert_eq!(
        load(&smf.delete(&mut world, seid)),
        Some((sequence + 2, 10))
    );
}

#[test]
fn the_fullest_table_is_load_too() {
    let mut config = config();
    config.limits.sessions = 4;
    let mut world = World::new(config);
    let mut smf = Smf::new("10.100.0.2:8805");
    let mut ies = smf.setup_ies();
    ies.push(Ie::new(IeType::CpFunctionFeatures, vec![LOAD]));
    smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    for _ in 0..3 {
        smf.establish(&mut world);
    }
    world.core.set_busy(5);
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!(load(&answer).map(|(_, metric)| metric), Some(75));
}

#[test]
fn an_smf_that_did_not_ask_hears_nothing() {
    let (mut world, mut smf) = associated(0);
    world.core.set_busy(85);
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!((load(&answer), reduction(&answer)), (None, None));
}

#[test]
fn overload_refuses_a_share_of_establishments_and_says_so() {
    let (mut world, mut smf) = associated(OVRL);
    let seid = smf.establish(&mut world);
    world.core.set_busy(100);
    let (_, share) = world.core.load();
    assert!(share > 0);
    let mut refused = 0;
    for _ in 0..100 {
        let datagram = smf.establishment();
        let answer = smf.exchange(&mut world, &datagram);
        assert_eq!(reduction(&answer), Some(share));
        match answer.cause() {
            CauseValue::RequestAccepted => {}
            CauseValue::PfcpEntityInCongestion => refused += 1,
            other => assert_eq!(other, CauseValue::RequestAccepted),
        }
    }
    assert_eq!(refused, u32::from(share));
    assert_eq!(world.core.stats().shed, u64::from(share));
    // What is there is served.
    assert_eq!(
        smf.modify(&mut world, seid).cause(),
        CauseValue::RequestAccepted
    );
    world.core.set_busy(20);
    assert_eq!(
        reduction(&smf.modify(&mut world, seid)),
        Some(0),
        "it is over"
    );
    assert_eq!(reduction(&smf.delete(&mut world, seid)), None);
}

/// The MP flag and the priority in the last octet of the header (7.2.2.3).
fn with_priority(mut datagram: Vec<u8>, priority: u8) -> Vec<u8> {
    datagram[0] |= 2;
    datagram[15] = priority << 4;
    datagram
}

#[test]
fn an_emergency_is_served_in_overload_and_answers_have_the_priority_of_their_requests() {
    let (mut world, mut smf) = associated(OVRL);
    world.core.set_busy(92);
    let mut refused = 0;
    for _ in 0..50 {
        for priority in [2, 15] {
            let datagram = with_priority(smf.establishment(), priority);
            let answer = smf.exchange(&mut world, &datagram);
            assert_eq!((answer.raw[0] & 2, answer.raw[15]), (2, priority << 4));
            let is_refused = answer.cause() == CauseValue::PfcpEntityInCongestion;
            assert!(!is_refused || priority == 15);
            refused += u32::from(is_refused);
        }
    }
    let (_, share) = world.core.load();
    assert!(
        share < 50 && refused == u32::from(share),
        "{refused} of {share}"
    );
    let datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!(
        (answer.raw[0] & 2, answer.raw[15]),
        (0, 0),
        "there was none"
    );
}
