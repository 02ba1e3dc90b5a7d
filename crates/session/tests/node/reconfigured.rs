//! Settings of N4 that change while SMFs are there.

use std::time::Duration;

use session::config::Config;
use session::peer::PeerState;
use session::testing::world::{World, config};
use testkit::smf::Smf;

const SMF1: &str = "10.100.0.2:8805";
const SMF2: &str = "10.100.0.3:8805";
const HEARTBEAT: u8 = 1;
const SETUP: u8 = 5;

fn second() -> Duration {
    Duration::from_secs(1)
}

fn reconfigure(world: &mut World, change: impl FnOnce(&mut Config)) {
    let mut config = world.core.config().clone();
    change(&mut config);
    world.core.reconfigure(world.now, &config);
}

fn types(sent: &[(std::net::SocketAddr, Vec<u8>)]) -> Vec<u8> {
    sent.iter().map(|(_, datagram)| datagram[1]).collect()
}

#[test]
fn an_smf_that_may_no_longer_speak_is_not_heard_and_its_sessions_go_on_for_a_while() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    let mut other = Smf::new(SMF2);
    smf.associate(&mut world);
    smf.establish(&mut world);
    other.associate(&mut world);
    reconfigure(&mut world, |config| {
        config.allow = vec!["10.100.0.3/32".parse().unwrap()];
    });
    assert!(smf.heartbeat(&mut world).is_empty());
    assert_eq!(world.ignored("not_allowed"), 1);
    other.establish(&mut world);
    for _ in 0..200 {
        for (to, datagram) in world.pass(second() / 10) {
            let asked = if to == smf.address { &smf } else { &other };
            asked.respond(&mut world, &datagram);
        }
    }
    let states: Vec<_> = world.core.peers().map(|peer| peer.state).collect();
    assert!(matches!(states[..], [PeerState::Down(_), PeerState::Up]));
    assert_eq!(world.live(), 2);
}

#[test]
fn heartbeats_come_at_the_new_interval_and_cease_at_none() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    reconfigure(&mut world, |config| {
        config.heartbeat_interval = 2 * second()
    });
    let mut seen = Vec::new();
    for _ in 0..9 {
        for (_, datagram) in world.pass(second()) {
            seen.push(datagram[1]);
            smf.respond(&mut world, &datagram);
        }
    }
    assert_eq!(seen, [HEARTBEAT; 4]);
    reconfigure(&mut world, |config| {
        config.heartbeat_interval = Duration::ZERO
    });
    assert!(world.pass(60 * second()).is_empty());
    reconfigure(&mut world, |config| config.heartbeat_interval = second());
    assert_eq!(types(&world.pass(second())), [HEARTBEAT]);
}

#[test]
fn requests_are_repeated_as_often_and_as_soon_as_is_said_now() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    reconfigure(&mut world, |config| {
        config.t1 = 2 * second();
        config.n1 = 5;
    });
    world.pass(10 * second());
    let repeated = (0..4).map(|_| world.pass(2 * second()).len());
    assert_eq!(repeated.collect::<Vec<_>>(), [1; 4]);
    world.pass(2 * second());
    let state = world.core.peers().next().unwrap().state;
    assert!(matches!(state, PeerState::Down(_)), "{state:?}");
}

#[test]
fn sessions_of_a_silent_smf_end_when_the_time_that_they_have_is_over_by_now() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    world.pass(120 * second());
    assert_eq!(world.live(), 1);
    reconfigure(&mut world, |config| {
        config.path_failure_retention = 600 * second()
    });
    world.pass(second());
    assert_eq!(world.live(), 1, "not yet");
    reconfigure(&mut world, |config| {
        config.path_failure_retention = 60 * second()
    });
    world.pass(second());
    assert_eq!((world.live(), world.core.peers().count()), (0, 0));
}

#[test]
fn an_smf_that_is_no_longer_configured_is_not_asked() {
    let mut world = World::new(config());
    let address = SMF1.parse().unwrap();
    world.core.associate(world.now, address, &mut world.out);
    assert_eq!(types(&world.sent()), [SETUP]);
    world.core.disregard(address);
    assert!(world.pass(120 * second()).is_empty());
    assert!(world.core.is_stranger(address));
    // And again.
    world.core.associate(world.now, address, &mut world.out);
    assert_eq!(types(&world.sent()), [SETUP]);
    assert!(!world.core.is_stranger(address));
    // Known already.
    world.core.associate(world.now, address, &mut world.out);
    assert!(world.sent().is_empty());
}

#[test]
fn an_association_stays_when_its_smf_is_no_longer_configured() {
    let (mut world, mut smf) = (World::new(config()), Smf::new(SMF1));
    world.core.associate(world.now, smf.address, &mut world.out);
    let sent = world.sent();
    smf.respond(&mut world, &sent[0].1);
    smf.associate(&mut world);
    smf.establish(&mut world);
    world.core.disregard(smf.address);
    assert_eq!((world.live(), world.core.peers().count()), (1, 1));
    world.pass(4000 * second());
    let later = types(&world.pass(600 * second()));
    assert_eq!((world.live(), world.core.peers().count()), (0, 0));
    assert!(later.is_empty(), "asked for an association: {later:?}");
}
