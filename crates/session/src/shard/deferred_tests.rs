//! PDRs that hold for some time only, seen in the tables. In these tests the wall clock is one NTP
//! second ahead of ours.

use std::time::Duration;

use compiled::{Flow, Key, PdrId, Select};
use pfcp::{IeType, MessageType, Writer};
use testkit::requests::{PdrIe, flow, remove};

use crate::base::time::Time;
use crate::shard::reports_tests::world;
use crate::testing::world::{World, smf};

/// NTP seconds from the beginning of a test on.
fn ntp(seconds: u32) -> Vec<u8> {
    (2 + seconds).to_be_bytes().to_vec()
}

fn timed(pdr: PdrIe, activation: Option<u32>, deactivation: Option<u32>) -> PdrIe {
    let on = activation.map(|at| (IeType::ACTIVATION_TIME, ntp(at)));
    let off = deactivation.map(|at| (IeType::DEACTIVATION_TIME, ntp(at)));
    PdrIe {
        extra: on.into_iter().chain(off).collect(),
        ..pdr
    }
}

/// A further downlink flow for the UE that has the first address of the pool.
fn further(world: &World) -> PdrIe {
    let key = world.core.tables().keys().into_iter();
    let mut addresses = key.filter_map(|key| match key {
        Key::Ue4 { addr, .. } => Some(addr),
        _ => None,
    });
    PdrIe {
        id: 3,
        precedence: Some(1),
        filters: vec![flow("permit out 17 from any to assigned")],
        ue: Some(pfcp::ie::UeIpAddress {
            destination: true,
            ..testkit::requests::ue4(addresses.next().unwrap())
        }),
        ..PdrIe::downlink()
    }
}

/// PDRs of the downlink key that packets can meet, in order.
fn downlink(world: &World) -> Vec<PdrId> {
    let compiled = world.core.tables().live.values().next().unwrap();
    let (_, select) = (compiled.keys.iter())
        .find(|(key, _)| matches!(key, Key::Ue4 { .. }))
        .expect("the key stays, so that nobody gets an Error Indication");
    match *select {
        Select::One(entry) => vec![compiled.entries[entry].pdr],
        Select::List { first, len } => (compiled.filters[first..first + len].iter())
            .filter(|filter| filter.flow != Some(Flow::NONE))
            .map(|filter| compiled.entries[filter.entry].pdr)
            .collect(),
    }
}

fn pass(world: &mut World, ms: u64) {
    let sent = world.pass(Duration::from_millis(ms));
    assert!(sent.is_empty());
}

fn with_further(pdr: impl Fn(PdrIe) -> PdrIe) -> (World, u64) {
    let mut world = world(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |_| {});
    let pdr = pdr(further(&world));
    world.modify(smf(2), seid, |w| pdr.create(w));
    (world, seid)
}

const BOTH: [PdrId; 2] = [PdrId(3), PdrId(2)];
const FIRST: [PdrId; 1] = [PdrId(2)];

#[test]
fn a_pdr_begins_to_hold_at_its_activation_time() {
    let (mut world, _) = with_further(|pdr| timed(pdr, Some(100), None));
    assert_eq!(downlink(&world), FIRST);
    pass(&mut world, 99_999);
    assert_eq!(downlink(&world), FIRST);
    pass(&mut world, 1);
    assert_eq!(downlink(&world), BOTH);
    assert_eq!(world.core.next_deadline(), None);
}

#[test]
fn a_pdr_ceases_to_hold_at_its_deactivation_time() {
    let (mut world, _) = with_further(|pdr| timed(pdr, Some(10), Some(20)));
    for (until, expected) in [(9, &FIRST[..]), (19, &BOTH[..]), (30, &FIRST[..])] {
        let ahead = Time(1_000_000_000 * (1 + until))
            .since(world.now)
            .as_millis();
        pass(&mut world, ahead as u64);
        assert_eq!(downlink(&world), expected, "at {until}");
    }
}

#[test]
fn an_update_brings_new_times() {
    let (mut world, seid) = with_further(|pdr| timed(pdr, Some(100), None));
    let update = |times: &[(IeType, u32)]| {
        let times: Vec<_> = times.iter().map(|&(ie, at)| (ie, ntp(at))).collect();
        move |w: &mut Writer<'_>| {
            w.grouped(IeType::UPDATE_PDR, |w| {
                w.put(IeType::PDR_ID, 3u16);
                times.iter().for_each(|(ie, at)| w.ie(*ie, at));
            });
        }
    };
    world.modify(smf(2), seid, update(&[(IeType::ACTIVATION_TIME, 5)]));
    pass(&mut world, 5000);
    assert_eq!(downlink(&world), BOTH);
    world.modify(smf(2), seid, update(&[(IeType::DEACTIVATION_TIME, 8)]));
    assert_eq!(downlink(&world), BOTH, "its activation time is as it was");
    pass(&mut world, 3000);
    assert_eq!(downlink(&world), FIRST);
    // One that has passed holds at once.
    world.modify(smf(2), seid, update(&[(IeType::DEACTIVATION_TIME, 3)]));
    assert_eq!(
        downlink(&world),
        BOTH,
        "the activation is the later one now"
    );
}

#[test]
fn where_no_pdr_holds_packets_find_none() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |_| {});
    world.modify(smf(2), seid, |w| {
        w.grouped(IeType::UPDATE_PDR, |w| {
            w.put(IeType::PDR_ID, 2u16);
            w.ie(IeType::DEACTIVATION_TIME, &ntp(4));
        });
    });
    assert_eq!(downlink(&world), FIRST);
    pass(&mut world, 4000);
    assert_eq!(downlink(&world), []);
}

#[test]
fn what_is_removed_is_awaited_no_more() {
    let (mut world, seid) = with_further(|pdr| timed(pdr, Some(100), Some(200)));
    world.modify(smf(2), seid, |w| {
        remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 3);
    });
    assert_eq!(world.core.next_deadline(), None);
    let (mut world, seid) = with_further(|pdr| timed(pdr, Some(100), None));
    let kind = MessageType::SESSION_DELETION_REQUEST;
    world.ask(smf(2), kind, Some(seid), |_| {});
    assert_eq!(world.core.next_deadline(), None);
}

#[test]
fn without_room_it_is_tried_again() {
    let (mut world, _) = with_further(|pdr| timed(pdr, Some(10), None));
    world.core.tables_mut().room = Some(0);
    pass(&mut world, 12_500);
    assert_eq!(downlink(&world), FIRST);
    world.core.tables_mut().room = None;
    pass(&mut world, 1000);
    assert_eq!(downlink(&world), BOTH);
}

#[test]
fn a_clock_that_is_put_back_brings_back_a_deactivated_pdr() {
    let (mut world, seid) = with_further(|pdr| timed(pdr, Some(10), Some(20)));
    pass(&mut world, 21_000);
    assert_eq!(downlink(&world), FIRST);
    // It says 15 s, when the PDR held.
    world.core.set_clock(world.now, Duration::from_secs(17));
    let change = |w: &mut Writer<'_>| {
        w.grouped(IeType::UPDATE_PDR, |w| {
            w.put(IeType::PDR_ID, 3u16);
            w.put(IeType::PRECEDENCE, 2u32);
        });
    };
    world.modify(smf(2), seid, change);
    assert_eq!(downlink(&world), FIRST);
    pass(&mut world, 10_000);
    world.modify(smf(2), seid, change);
    assert_eq!(downlink(&world), FIRST);
    // Until the SMF says so.
    world.modify(smf(2), seid, |w| {
        w.grouped(IeType::UPDATE_PDR, |w| {
            w.put(IeType::PDR_ID, 3u16);
            w.ie(IeType::ACTIVATION_TIME, &ntp(22));
        });
    });
    assert_eq!(downlink(&world), BOTH);
}
