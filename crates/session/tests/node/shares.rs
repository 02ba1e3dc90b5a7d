//! Shares of what there is for all SMFs, and the reserve of emergency sessions.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use compiled::Resource;
use proptest::prelude::*;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::config::{Config, NetworkInstance};
use session::event::Event;
use session::testing::world::{World, config};
use testkit::smf::Smf;

/// So many sessions, of which 4 shares are an eighth each.
fn config_of(sessions: u32) -> Config {
    let mut config = config();
    (config.limits.sessions, config.limits.shares) = (sessions, 4);
    config.heartbeat_interval = Duration::ZERO;
    config
}

fn smfs(world: &mut World, addresses: &[&str]) -> Vec<Smf> {
    let mut all: Vec<Smf> = addresses.iter().map(|address| Smf::new(address)).collect();
    all.iter_mut().for_each(|smf| smf.associate(world));
    all
}

const THREE: [&str; 3] = ["10.100.0.2:8805", "10.100.0.3:8805", "10.100.0.4:8805"];

fn try_one(world: &mut World, smf: &mut Smf, network: &str) -> Option<u64> {
    let datagram = smf.establishment_in(network);
    let answer = smf.exchange(world, &datagram);
    match answer.cause() {
        CauseValue::RequestAccepted => Some(answer.up_seid()),
        cause => {
            assert_eq!(cause, CauseValue::NoResourcesAvailable);
            None
        }
    }
}

/// Sessions until one is refused.
fn take_all(world: &mut World, smf: &mut Smf) -> Vec<u64> {
    std::iter::from_fn(|| try_one(world, smf, "internet")).collect()
}

/// What the last refusal was for want of, and whether some is left for others.
fn shortage(world: &World) -> Option<(&'static str, bool)> {
    let mut refusals = world.events.iter().rev();
    refusals.find_map(|event| match event {
        Event::Refused { shortage, .. } => Some(shortage.map(|of| (of.table, of.is_kept))),
        _ => None,
    })?
}

fn held(world: &World, of: Resource) -> Vec<u64> {
    let all = world.core.smfs_after(world.now, None).map(|(_, smf)| smf);
    all.map(|smf| smf.parts.iter().find(|part| part.of == of).unwrap().held)
        .collect()
}

#[test]
fn an_smf_that_takes_all_leaves_others_their_share() {
    let mut world = World::new(config_of(80));
    let mut all = smfs(&mut world, &THREE);
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 60);
    assert_eq!(shortage(&world), Some(("sessions", true)));
    assert_eq!(take_all(&mut world, &mut all[1]).len(), 10);
    assert_eq!(take_all(&mut world, &mut all[2]).len(), 10);
    assert_eq!(shortage(&world), Some(("sessions", false)));
    assert_eq!(held(&world, Resource::Sessions), [60, 10, 10]);
}

#[test]
fn the_tables_are_shared_as_sessions_are() {
    let mut world = World::new(config_of(80));
    world.core.tables_mut().room = Some(80);
    let mut all = smfs(&mut world, &THREE[..2]);
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 35);
    assert_eq!(shortage(&world), Some(("entries", true)));
    assert_eq!(take_all(&mut world, &mut all[1]).len(), 5);
    assert_eq!(held(&world, Resource::Entries), [70, 10]);
}

#[test]
fn one_smf_alone_may_have_everything() {
    let mut world = World::new(config_of(80));
    let mut all = smfs(&mut world, &THREE[..1]);
    let seids = take_all(&mut world, &mut all[0]);
    assert_eq!(seids.len(), 80);
    // One that comes takes nothing from it, and has its share before others once there is room.
    let mut late = smfs(&mut world, &THREE[1..2]).remove(0);
    assert_eq!(take_all(&mut world, &mut late).len(), 0);
    for seid in &seids[..12] {
        all[0].delete(&mut world, *seid);
    }
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 2);
    assert_eq!(take_all(&mut world, &mut late).len(), 10);
}

#[test]
fn a_stranger_with_many_node_ids_has_one_share_and_those_configured_come_first() {
    let mut config = config_of(80);
    config.limits.shares = 2;
    let mut world = World::new(config);
    let configured: std::net::SocketAddr = THREE[2].parse().unwrap();
    world.core.associate(world.now, configured, &mut world.out);
    let mut stranger: Vec<Smf> = (0..4)
        .map(|n| {
            let mut smf = Smf::new(&format!("10.100.0.2:{}", 9000 + n));
            smf.node_id = rs_pfcp::ie::node_id::NodeId::new_fqdn(&format!("smf{n}.example"));
            smf.associate(&mut world);
            smf
        })
        .collect();
    smfs(&mut world, &THREE[1..2]);
    let mut known = smfs(&mut world, &THREE[2..]).remove(0);
    // One share of two is the configured SMF's, the other one the stranger's; the SMF between them has none.
    assert_eq!(take_all(&mut world, &mut stranger[1]).len(), 40);
    assert_eq!(take_all(&mut world, &mut stranger[0]).len(), 20);
    assert_eq!(take_all(&mut world, &mut known).len(), 20);
}

#[test]
fn emergency_sessions_find_room_when_all_else_is_taken() {
    let mut config = config_of(80);
    config.limits.emergency_sessions = 8;
    config.network_instances.push(NetworkInstance {
        name: "sos".into(),
        pools4: vec!["10.61.0.0/16".parse().unwrap()],
        emergency: true,
        ..NetworkInstance::default()
    });
    let mut world = World::new(config);
    let mut all = smfs(&mut world, &THREE[..1]);
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 72);
    let calls = std::iter::from_fn(|| try_one(&mut world, &mut all[0], "sos"));
    let calls: Vec<u64> = calls.collect();
    assert_eq!(calls.len(), 8);
    assert_eq!(held(&world, Resource::Sessions), [72, 8]);
    // The reserve stays what it is, whoever leaves.
    all[0].delete(&mut world, calls[0]);
    assert_eq!(try_one(&mut world, &mut all[0], "internet"), None);
    assert!(try_one(&mut world, &mut all[0], "sos").is_some());
    all[0].release(&mut world);
    world.pass(Duration::from_millis(10));
    assert_eq!(held(&world, Resource::Sessions), [0]);
}

#[test]
fn a_restarted_smf_has_its_share_while_its_former_sessions_go() {
    let mut config = config_of(80);
    config.deletions_per_step = 1;
    let mut world = World::new(config);
    let mut all = smfs(&mut world, &THREE[..2]);
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 70);
    all[0].recovery += 1;
    all[0].heartbeat(&mut world);
    assert!(world.core.sessions_to_delete() > 60);
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 70);
    assert_eq!(take_all(&mut world, &mut all[1]).len(), 10);
}

/// Time goes by. The first SMF is silent, the other ones answer.
fn silence(world: &mut World, all: &[Smf], time: Duration) {
    let end = world.now.after(time);
    while world.now < end {
        let sent = world.pass(Duration::from_secs(1));
        for (to, datagram) in sent {
            let smf = all[1..].iter().find(|smf| smf.address == to);
            if let Some(smf) = smf.filter(|_| datagram[1] == 1) {
                smf.respond(world, &datagram);
            }
        }
    }
}

fn displaced(world: &World) -> Vec<u64> {
    let events = world.events.iter().filter_map(|event| match event {
        Event::SessionDisplaced { seid, .. } => Some(*seid),
        _ => None,
    });
    events.collect()
}

/// Its UE is idle: downlink packets wait.
fn make_idle(world: &mut World, smf: &mut Smf, seid: u64) {
    let mut far = Vec::new();
    Ie::new(IeType::FarId, vec![0, 0, 0, 2]).marshal_into(&mut far);
    Ie::new(IeType::ApplyAction, vec![0x0c, 0]).marshal_into(&mut far);
    let update = Ie::new(IeType::UpdateFar, far);
    let kind = MsgType::SessionModificationRequest;
    let answer = smf.ask(world, kind, Some(seid), &[update]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
}

#[test]
fn an_smf_that_is_gone_loses_what_is_above_its_share_when_another_needs_it() {
    let mut config = config_of(80);
    config.heartbeat_interval = Duration::from_secs(5);
    let mut world = World::new(config);
    let mut all = smfs(&mut world, &THREE[..2]);
    let seids = take_all(&mut world, &mut all[0]);
    assert_eq!(seids.len(), 70);
    for seid in &seids[20..25] {
        make_idle(&mut world, &mut all[0], *seid);
    }
    // It is silent, but not for long enough.
    silence(&mut world, &all, Duration::from_secs(55));
    assert_eq!(take_all(&mut world, &mut all[1]).len(), 10);
    assert!(displaced(&world).is_empty());
    silence(&mut world, &all, Duration::from_secs(10));
    assert!(displaced(&world).is_empty(), "nobody needs it");
    assert_eq!(take_all(&mut world, &mut all[1]).len(), 60);
    assert_eq!(held(&world, Resource::Sessions), [10, 70]);
    // Idle ones first, then the oldest.
    let order = [&seids[20..25], &seids[..20], &seids[25..60]].concat();
    assert_eq!(displaced(&world), order);
    assert_eq!(world.core.stats().displaced, 60);
    assert_eq!(world.live(), 80);
    // It is back, and finds what it has left.
    all[0].heartbeat(&mut world);
    assert!(try_one(&mut world, &mut all[0], "internet").is_none());
    assert_eq!(
        all[0].modify(&mut world, seids[0]).cause(),
        CauseValue::SessionContextNotFound
    );
    assert_eq!(
        all[0].modify(&mut world, seids[69]).cause(),
        CauseValue::RequestAccepted
    );
}

#[test]
fn an_smf_that_answers_loses_nothing() {
    let mut config = config_of(80);
    config.heartbeat_interval = Duration::from_secs(5);
    let mut world = World::new(config);
    let mut all = smfs(&mut world, &THREE);
    let hoarded = take_all(&mut world, &mut all[1]);
    assert_eq!(hoarded.len(), 60);
    silence(&mut world, &all, Duration::from_secs(100));
    assert_eq!(take_all(&mut world, &mut all[2]).len(), 10);
    assert!(displaced(&world).is_empty());
}

#[test]
fn for_entries_as_many_sessions_go_as_are_needed() {
    let mut config = config_of(80);
    config.heartbeat_interval = Duration::from_secs(5);
    let mut world = World::new(config);
    world.core.tables_mut().room = Some(80);
    let mut all = smfs(&mut world, &THREE[..2]);
    assert_eq!(take_all(&mut world, &mut all[0]).len(), 35);
    silence(&mut world, &all, Duration::from_secs(65));
    assert_eq!(take_all(&mut world, &mut all[1]).len(), 35);
    assert_eq!(held(&world, Resource::Entries), [10, 70]);
    assert_eq!(displaced(&world).len(), 30);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever SMFs do, each that was there from the beginning gets its share, and nothing is left in the end.
    #[test]
    fn whatever_smfs_do_each_gets_its_share(
        steps in prop::collection::vec((0usize..3, 0usize..30, 0u8..10), 0..40),
    ) {
        let mut world = World::new(config_of(40));
        world.core.tables_mut().room = Some(64);
        let mut all = smfs(&mut world, &THREE);
        let mut seids: [Vec<u64>; 3] = Default::default();
        for (who, count, what) in steps {
            let (smf, own) = (&mut all[who], &mut seids[who]);
            match what {
                0..6 => {
                    for _ in 0..count {
                        own.extend(try_one(&mut world, smf, "internet"));
                    }
                }
                6..9 => {
                    for seid in own.drain(..count.min(own.len())) {
                        smf.delete(&mut world, seid);
                    }
                }
                _ => {
                    own.clear();
                    smf.associate(&mut world);
                    world.pass(Duration::from_millis(10));
                }
            }
            let counted = seids.iter().map(|own| own.len() as u64);
            // Those set up anew come last in the list.
            let mut listed = held(&world, Resource::Sessions);
            listed.sort_unstable();
            let mut counted: Vec<u64> = counted.collect();
            counted.sort_unstable();
            prop_assert_eq!(listed, counted);
        }
        // Of 64 entries each has 8, which are 4 sessions.
        for (smf, own) in all.iter_mut().zip(&mut seids) {
            while own.len() < 4 {
                let one = try_one(&mut world, smf, "internet");
                prop_assert!(one.is_some(), "{} sessions only", own.len());
                own.extend(one);
            }
        }
        for (smf, own) in all.iter_mut().zip(&mut seids) {
            for seid in own.drain(..) {
                smf.delete(&mut world, seid);
            }
        }
        for of in [Resource::Sessions, Resource::Entries] {
            prop_assert_eq!(held(&world, of), [0, 0, 0]);
        }
    }
}
