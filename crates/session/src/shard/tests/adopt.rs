//! Sessions that go elsewhere, and come from there.

use std::time::Duration;

use proptest::prelude::*;

use super::records::SMF;
use super::*;
use crate::base::slab::NoPlace;
use crate::rules::Rules;
use crate::rules::config::{ForwardingPolicy, PredefinedFar, PredefinedRule, TunnelNetwork};
use crate::rules::places::{ConfigPlace, Relocation};
use crate::rules::site::Site;
use crate::shard::adopt::Unadopted;
use crate::shard::context::Context;
use crate::testing;

/// All that random rules name, by place.
pub(super) fn named(predefined_rules: Vec<PredefinedRule>) -> Config {
    let named = |name: &str| NetworkInstance {
        name: name.into(),
        ..NetworkInstance::default()
    };
    Config {
        n3: vec![N3.into(), "2001:db8:3::1".parse().unwrap()],
        network_instances: vec![named("internet"), named("ims")],
        tunnel_networks: vec![TunnelNetwork::default()],
        forwarding_policies: vec![ForwardingPolicy {
            identifier: "video".into(),
            towards_access: true,
        }],
        predefined_rules,
        ..config()
    }
}

/// The same in another order, and other things before and among it.
pub(super) fn reordered(config: &Config) -> Config {
    let mut other = config.clone();
    other.n3.insert(0, "10.9.9.9".parse().unwrap());
    other.n3.reverse();
    // The first is that of rules that name none.
    other.network_instances[1..].reverse();
    other.network_instances.insert(
        1,
        NetworkInstance {
            name: "iot".into(),
            ..NetworkInstance::default()
        },
    );
    other.tunnel_networks.insert(
        0,
        TunnelNetwork {
            core: true,
            ..TunnelNetwork::default()
        },
    );
    other.forwarding_policies.insert(
        0,
        ForwardingPolicy {
            identifier: "audio".into(),
            towards_access: false,
        },
    );
    for rule in &mut other.predefined_rules {
        if let PredefinedFar::Route(ni) = &mut rule.far {
            let name = &config.network_instances[usize::from(ni.0)].name;
            let mut there = other.network_instances.iter();
            ni.0 = there.position(|other| other.name == *name).unwrap() as u16;
        }
    }
    // Of several rules of a name, each is another one: their order stays.
    let (names, rules) = (other.predefined_rules.clone(), &mut other.predefined_rules);
    rules.sort_by_key(|rule| {
        let first = names.iter().position(|other| other.name == rule.name);
        std::cmp::Reverse(first)
    });
    other
}

fn relocate(rules: &mut Rules, mut to: impl FnMut(ConfigPlace) -> Option<ConfigPlace>) {
    let mut to = Relocation(&mut to);
    let pdrs = rules.pdrs.iter_mut().try_for_each(|pdr| to.pdr(pdr));
    let fars = rules.fars.iter_mut().try_for_each(|far| to.far(far));
    assert_eq!((pdrs, fars), (Ok(()), Ok(())));
}

proptest! {
    /// Names lead to the same things in another order, and from there back to the rules as they were.
    #[test]
    fn what_rules_name_is_found_wherever_it_is_configured(
        (rules, predefined, _) in testing::naming(),
    ) {
        let here = named(predefined);
        let (here, there) = (Site::new(&here), Site::new(&reordered(&here)));
        let mut context = Context::of(77, None);
        context.keep(&rules);
        let record = Record::read(&record::write(1, &SMF, &context, &here)).unwrap();
        let (_, _, names, _) = record.into_parts();
        let names = names.unwrap();
        let mut moved = rules.clone();
        relocate(&mut moved, |place| {
            prop_assert_eq_name(names.get(place), here.name_of(place).as_ref());
            there.place_of(names.get(place)?)
        });
        let policies = moved.fars.iter().filter_map(|far| far.policy());
        prop_assert!(policies.into_iter().all(|policy| policy.0 == 1), "behind another one");
        relocate(&mut moved, |place| here.place_of(&there.name_of(place)?));
        prop_assert_eq!(moved, rules);
    }
}

fn prop_assert_eq_name<N: PartialEq + std::fmt::Debug>(a: Option<N>, b: Option<N>) {
    assert!(a.is_some());
    assert_eq!(a, b);
}

/// The world as it was, after a session could not be taken in for this reason.
fn refused(world: &mut World, record: Record, why: &Unadopted) {
    let before = world.snapshot();
    let now = world.now;
    let adopted = (world.sessions).adopt(now, PeerId(1), record, &mut world.tables);
    assert_eq!(adopted.as_ref(), Err(why), "{why}");
    assert_eq!(world.snapshot(), before, "{why}");
    world.sessions.check_indexes();
}

/// A session that an SMF had elsewhere, and of which there is a record.
fn from_elsewhere(config: &Config, write: impl Fn(&mut Writer<'_>)) -> Record {
    let mut world = World::with(config);
    let (seid, _) = world.establish(write).unwrap();
    world.release(seid)
}

#[test]
fn a_session_that_cannot_be_taken_in_leaves_no_trace() {
    let record = |write: fn(&mut Writer<'_>)| from_elsewhere(&config(), write);
    let refusal = |ie| Unadopted::Refused(Refusal::rule(ie));
    let mut world = World::new();
    let ordinary_record = || record(ordinary);
    let taken = Unadopted::NoPlace(NoPlace::Taken);

    // The key is another one, and so are the places that SEIDs lead to.
    let mut foreign = World::with(&config());
    foreign.sessions = Sessions::new(&config(), 43, 64);
    let now = foreign.now;
    let adopted = (foreign.sessions).adopt(now, PeerId(1), ordinary_record(), &mut foreign.tables);
    assert_eq!(adopted, Err(Unadopted::NoPlace(NoPlace::Beyond(20))));

    let adopted =
        (world.sessions).adopt(world.now, PeerId(1), ordinary_record(), &mut world.tables);
    assert!(adopted.is_ok());
    refused(&mut world, ordinary_record(), &taken);

    // A session with another SEID holds the same.
    world.sessions.delete_peer(PeerId(1));
    world.sessions.reap(world.now, 1, &mut world.tables);
    let with = |uplink: PdrIe, downlink: PdrIe| {
        move |w: &mut Writer<'_>| ordinary_with(w, uplink.clone(), downlink.clone())
    };
    let own = |teid| PdrIe {
        f_teid: Some(given(teid)),
        ..PdrIe::uplink()
    };
    let first = from_elsewhere(&config(), with(own(5), PdrIe::downlink()));
    let second = {
        let mut elsewhere = World::new();
        elsewhere
            .establish(with(own(5), PdrIe::downlink()))
            .unwrap();
        let other = PdrIe {
            ue: Some(ue4(Ipv4Addr::new(10, 60, 0, 10))),
            ..PdrIe::downlink()
        };
        let (seid, _) = elsewhere.establish(with(own(6), other)).unwrap();
        elsewhere.release(seid)
    };
    let (teid_of_second, ue_of_second) = (own(6), PdrIe::downlink());
    world.establish(with(teid_of_second, ue_of_second)).unwrap();
    refused(&mut world, second, &refusal(IeType::F_TEID));
    // It is at the place of the first one.
    refused(&mut world, first, &taken);

    // There is no room, or its SMF has no session left.
    let mut full = World::new();
    full.tables.room = Some(1);
    let no_room = Refusal::short_of(NoRoom::of("entries").into());
    refused(&mut full, ordinary_record(), &Unadopted::Refused(no_room));

    // It names what is not configured.
    let ims = || {
        from_elsewhere(&config(), |w| {
            let mut downlink = PdrIe::downlink();
            downlink.ni = Some("ims");
            ordinary_with(w, PdrIe::uplink(), downlink);
        })
    };
    let mut other = config();
    other.network_instances.truncate(1);
    let not_configured = Unadopted::NotConfigured("network instance \"ims\"".into());
    refused(&mut World::with(&other), ims(), &not_configured);
    let mut other = config();
    other.n3 = vec!["10.3.0.77".parse().unwrap()];
    let not_configured = Unadopted::NotConfigured(format!("N3 address {N3}"));
    refused(&mut World::with(&other), ordinary_record(), &not_configured);
}

#[test]
fn a_udp_flow_of_framed_routes_and_a_chosen_prefix_goes_elsewhere_whole() {
    let mut world = World::new();
    let choose = UeIpAddress {
        choose_ipv4: true,
        choose_ipv6: true,
        prefix_length: Some(62),
        ..UeIpAddress::default()
    };
    let mut downlink = PdrIe {
        ue: Some(choose),
        ..PdrIe::downlink()
    };
    let framed = (IeType::FRAMED_ROUTE, b"10.70.0.0/24".to_vec());
    downlink.extra_pdi.push(framed);
    let mut uplink = PdrIe::uplink();
    uplink.ue = None;
    world.moves = false;
    let (seid, created) = world
        .establish(|w| ordinary_with(w, uplink.clone(), downlink.clone()))
        .unwrap();
    let before = world.snapshot();
    world.go_and_return(seid, PeerId(1));
    let renumbered = |text: String| text.replace("{2: Compiled", "{1: Compiled");
    assert_eq!(renumbered(world.snapshot()), before);
    let prefix = created.iter().find_map(|created| created.ue6).unwrap();
    assert_eq!(prefix.prefix_len(), 62);
    // All four /64s are taken again, and each is free when the session is gone.
    let used = |world: &World| world.sessions.fill().pools[0][1].used;
    assert_eq!(used(&world), 4);
    world.delete(seid).unwrap();
    assert_eq!((used(&world), world.sessions.fill().teids), (0, 0));
    assert_eq!(world.sessions.fill().pools[0][0].held(), 0);
}

/// An emergency session is paid by the reserve wherever it goes, whatever networks its rules name meanwhile.
#[test]
fn an_emergency_session_is_one_elsewhere_too() {
    let mut config = config();
    config.network_instances[1].emergency = true;
    config.limits.emergency_sessions = 2;
    let mut world = World::with(&config);
    world.moves = false;
    let (seid, _) = world
        .establish(|w| {
            let mut downlink = PdrIe::downlink();
            downlink.ni = Some("ims");
            ordinary_with(w, PdrIe::uplink(), downlink);
        })
        .unwrap();
    let of_reserve = |world: &World| {
        let held = world.sessions.ledger.holding(PeerId::EMERGENCY);
        held.of(Resource::Sessions)
    };
    assert_eq!(of_reserve(&world), 1);
    world
        .modify(seid, |w| PdrIe::downlink().update(w, true))
        .unwrap();
    world.go_and_return(seid, PeerId(1));
    assert_eq!(of_reserve(&world), 1);
    world.sessions.check_indexes();
}

/// The inactivity timer runs on, from the last packet before the session moved.
#[test]
fn a_session_that_moves_is_quiet_since_its_last_packet() {
    let mut world = World::new();
    world.moves = false;
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
            w.put(IeType::USER_PLANE_INACTIVITY_TIMER, 40u32);
        })
        .unwrap();
    let start = world.now;
    let at = |s: u64| start.after(Duration::from_secs(s));
    let due = |world: &World| world.sessions.inactivity.next_deadline().unwrap();
    assert_eq!(due(&world), at(5));
    world.tables.exact = true;
    for _ in 0..3 {
        world.tables.packet(seid, 1, 100);
    }
    world.now = at(7);
    world.go_and_return(seid, PeerId(1));
    // It was active until it left, and is looked at as before.
    assert_eq!(due(&world), at(5));
    let watch = |world: &World| {
        let rare = world.sessions.context(seid).unwrap().rare().unwrap();
        format!("{:?}", rare.watch.as_ref().unwrap())
    };
    assert!(
        watch(&world).contains(&format!("active_by: {:?}", at(7))),
        "{}",
        watch(&world)
    );
    assert!(watch(&world).contains("limit_s: 40"), "{}", watch(&world));
    // Counters begin anew here, which is no packet.
    assert!(watch(&world).contains("packets: 0"), "{}", watch(&world));
}
