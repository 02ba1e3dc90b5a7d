//! Networks behind a UE, and UE prefixes that are no /64.

use compiled::{Direction, FRAMED_MAX, NiId, Select, UeAddresses};
use ipnet::IpNet;
use pfcp::{Cause, IeType, Writer};

use super::cases::{failure, pdr, refusal, refuses, refuses_to_modify, without_room};
use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// As an SMF writes them: prefix, gateway, metric.
fn routes(nets: &[&str]) -> Vec<(IeType, Vec<u8>)> {
    let ie = |text: &&str| {
        if text.contains(':') {
            (IeType::FRAMED_IPV6_ROUTE, format!("{text} :: 1").into())
        } else {
            (IeType::FRAMED_ROUTE, format!("{text} 0.0.0.0 1").into())
        }
    };
    nets.iter().map(ie).collect()
}

fn behind(pdr: PdrIe, nets: &[&str]) -> PdrIe {
    PdrIe {
        extra_pdi: routes(nets),
        ..pdr
    }
}

/// A session whose downlink PDR has these; `host` of 10.60.0.0/28 is its UE.
fn session(w: &mut Writer<'_>, host: u8, nets: &[&str]) {
    let ue = Some(ue4(Ipv4Addr::new(10, 60, 0, host)));
    let downlink = behind(PdrIe::downlink(), nets);
    ordinary_with(
        w,
        PdrIe {
            ue,
            ..PdrIe::uplink()
        },
        PdrIe { ue, ..downlink },
    );
}

fn prefix(text: &str) -> Key {
    Key::of_prefix(NiId(0), net(text))
}

/// As Open5GS writes them.
#[test]
fn the_ues_own_address_is_not_foreign_where_the_uplink_names_framed_routes_alone() {
    let mut world = World::new();
    let nets = ["198.51.100.0/24"];
    let ue = Some(ue4(UE));
    let established = world.establish(|w| {
        let uplink = PdrIe {
            ue: None,
            ..PdrIe::uplink()
        };
        let downlink = PdrIe {
            ue,
            ..PdrIe::downlink()
        };
        ordinary_with(w, behind(uplink, &nets), behind(downlink, &nets));
    });
    established.unwrap();
    let entry = &world.only().entries[0];
    let own = UeAddresses {
        v4: Some(UE),
        v6: None,
    };
    assert_eq!((entry.direction, entry.ue), (Direction::Uplink, Some(own)));
    assert!(entry.framed);
}

#[test]
fn a_framed_route_leads_to_the_downlink_and_may_be_a_source() {
    let mut world = World::new();
    let nets = ["198.51.100.0/24", "2001:db8:70::/44"];
    let (seid, _) = world.establish(|w| session(w, 9, &nets)).unwrap();
    let compiled = world.only();
    for text in nets {
        assert!(compiled.keys.contains(&(prefix(text), Select::One(1))));
    }
    assert_eq!(compiled.framed, nets.map(net));
    let ue = Some(UeAddresses {
        v4: Some(UE),
        v6: None,
    });
    assert_eq!(
        (compiled.entries[0].ue, compiled.entries[0].framed),
        (ue, true)
    );
    assert!(
        !compiled.entries[1].framed,
        "the downlink asks for no source"
    );
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.pdrs[1].framed, nets.map(net));
    let has = |world: &World, text: &str| world.sessions.resources.has_framed_in(net(text));
    for text in ["198.51.100.128/25", "198.51.0.0/16", "2001:db8:70::9/128"] {
        assert!(has(&world, text), "{text}");
    }
    assert!(!has(&world, "198.51.101.0/24") && !has(&world, "10.60.0.9/32"));
    world.delete(seid).unwrap();
    assert!(!has(&world, "0.0.0.0/0"));
}

#[test]
fn a_whole_address_or_64_is_found_like_a_ue() {
    let mut world = World::new();
    let nets = ["198.51.100.7/32", "2001:db8:70::/64"];
    world.establish(|w| session(w, 9, &nets)).unwrap();
    let keys = world.tables.keys();
    assert!(keys.contains(&Key::Ue4 {
        ni: NiId(0),
        addr: Ipv4Addr::new(198, 51, 100, 7)
    }));
    assert!(keys.contains(&prefix(nets[1])) && matches!(prefix(nets[1]), Key::Ue6 { .. }));
}

#[test]
fn routes_without_a_ue_address_are_enough() {
    let mut world = World::new();
    let nets = ["198.51.100.0/24"];
    world
        .establish(|w| {
            let bare = |pdr: PdrIe| PdrIe {
                ue: None,
                ..behind(pdr, &nets)
            };
            ordinary_with(w, bare(PdrIe::uplink()), bare(PdrIe::downlink()));
        })
        .unwrap();
    let compiled = world.only();
    assert!(compiled.keys.contains(&(prefix(nets[0]), Select::One(1))));
    let nobody = UeAddresses { v4: None, v6: None };
    assert_eq!(compiled.entries[0].ue, Some(nobody));
}

#[test]
fn the_prefix_of_another_session_is_refused_until_it_is_gone() {
    let mut world = World::new();
    for (host, nets) in [
        (1, ["198.51.100.0/24"]),
        (3, ["2001:db8:70::/44"]),
        (5, ["198.51.100.7/32"]),
    ] {
        let ie = routes(&nets)[0].0;
        let (first, _) = world.establish(|w| session(w, host, &nets)).unwrap();
        let again = |w: &mut Writer<'_>| session(w, host + 1, &nets);
        refuses(&mut world, failure(ie, pdr(2)), again);
        world.delete(first).unwrap();
        let (second, _) = world.establish(again).unwrap();
        world.delete(second).unwrap();
    }
    // One within the other.
    let ie = IeType::FRAMED_ROUTE;
    let wide = ["198.51.0.0/16", "198.51.100.0/25"];
    for net in ["198.51.100.0/24", "198.51.100.200/32", "198.0.0.0/8"] {
        let (first, _) = world.establish(|w| session(w, 9, &[net])).unwrap();
        refuses(&mut world, failure(ie, pdr(2)), |w| session(w, 10, &wide));
        world.delete(first).unwrap();
    }
    world.establish(|w| session(w, 10, &wide)).unwrap();
}

#[test]
fn a_route_that_captures_others_is_refused() {
    let mut config = config();
    config.n4 = vec!["10.100.0.1".parse().unwrap()];
    config.own = vec!["2001:db8:6::fe".parse().unwrap()];
    let mut world = World::with(&config);
    let host = ["10.6.0.1", "2001:db8:6::1"].map(|text| text.parse().unwrap());
    world.sessions.set_host_addresses(host.into());
    let outside = |w: &mut Writer<'_>| {
        let ue = Some(UeIpAddress {
            ipv4: Some(Ipv4Addr::new(192, 0, 2, 9)),
            ..of_prefix("2001:db8:f::/64", false)
        });
        let (up, down) = (PdrIe::uplink(), PdrIe::downlink());
        ordinary_with(w, PdrIe { ue, ..up }, PdrIe { ue, ..down });
    };
    world.establish(ordinary).unwrap();
    world.establish(outside).unwrap();
    world
        .establish(|w| with_ue(w, of_prefix("2001:db8:ee00::/56", false)))
        .unwrap();
    for (net, what) in [
        ("10.0.0.0/8", "pool and addresses of ours"),
        ("0.0.0.0/1", "half of everything"),
        ("10.60.0.0/24", "around a pool"),
        ("10.60.0.3/32", "of a pool"),
        ("10.60.0.9/32", "a UE"),
        ("192.0.2.9/32", "a UE outside the pools"),
        ("192.0.2.8/30", "around it"),
        ("10.3.0.1/32", "N3"),
        ("10.3.0.0/24", "around N3"),
        ("10.100.0.1/32", "N4"),
        ("10.6.0.1/32", "N6"),
        ("2001:db8:60:3::/64", "of a pool"),
        ("2001:db8::/32", "around a pool"),
        ("2001:db8:60::5/128", "one address of a pool"),
        ("2001:db8:f::/64", "a UE outside the pools"),
        ("2001:db8:f::7/128", "one address of it"),
        ("2001:db8:ee00::/40", "around a UE's prefix"),
        ("2001:db8:ee00:1::/64", "of a UE's prefix"),
        ("2001:db8:6::1/128", "N6"),
        ("2001:db8:6::/48", "around N6 and a router"),
    ] {
        let ie = routes(&[net])[0].0;
        let uplink = |w: &mut Writer<'_>| {
            ordinary_with(w, behind(PdrIe::uplink(), &[net]), PdrIe::downlink());
        };
        let before = world.snapshot();
        let refused = world.establish(|w| session(w, 5, &[net]));
        assert_eq!(refused, Err(failure(ie, pdr(2))), "{what}");
        assert_eq!(world.establish(uplink), Err(failure(ie, pdr(1))), "{what}");
        assert_eq!(world.snapshot(), before, "{what}");
    }
    world
        .establish(|w| {
            session(
                w,
                5,
                &["10.61.0.0/16", "192.0.2.128/25", "2001:db8:70::/44"],
            )
        })
        .unwrap();
}

#[test]
fn a_ue_in_a_network_behind_another_is_refused_until_that_is_gone() {
    let at = |text: &str| match text.parse().unwrap() {
        IpAddr::V4(addr) => ue4(addr),
        IpAddr::V6(addr) => ue6(addr),
    };
    for (net, ue) in [
        ("192.0.2.0/24", at("192.0.2.9")),
        ("192.0.2.9/32", at("192.0.2.9")),
        ("2001:db8:70::/44", at("2001:db8:7f::1")),
        ("2001:db8:70::1/128", at("2001:db8:70::1")),
        ("2001:db8:70::/64", of_prefix("2001:db8:70::/48", false)),
        ("2001:db8:70::/44", of_prefix("2001:db8:70::7/128", false)),
    ] {
        let mut world = World::new();
        let (first, _) = world.establish(|w| session(w, 9, &[net])).unwrap();
        let wrong = failure(IeType::UE_IP_ADDRESS, pdr(2));
        refuses(&mut world, wrong, |w| with_ue(w, ue));
        world.delete(first).unwrap();
        // Its own may lie there.
        let own = |pdr: PdrIe| PdrIe {
            ue: Some(ue),
            ..behind(pdr, &[net])
        };
        let both = |w: &mut Writer<'_>| {
            ordinary_with(w, own(PdrIe::uplink()), own(PdrIe::downlink()));
        };
        let (second, _) = world.establish(both).unwrap();
        world.delete(second).unwrap();
        world.establish(|w| with_ue(w, ue)).unwrap();
    }
}

#[test]
fn another_network_instance_is_another_network_unless_they_share_an_interface() {
    let nets = ["198.51.100.0/24"];
    let of_ims = |w: &mut Writer<'_>| {
        let ni = Some("ims");
        let bare = |pdr: PdrIe| PdrIe {
            ue: None,
            ni,
            ..behind(pdr, &["10.60.0.0/24", "198.51.100.7/32"])
        };
        ordinary_with(w, bare(PdrIe::uplink()), bare(PdrIe::downlink()));
    };
    let mut world = World::new();
    world.establish(|w| session(w, 9, &nets)).unwrap();
    world.establish(of_ims).unwrap();

    let mut config = config();
    config.network_instances[1].home = Some(NiId(0));
    let mut world = World::with(&config);
    let wrong = failure(IeType::FRAMED_ROUTE, pdr(1));
    refuses(&mut world, wrong, of_ims);
}

#[test]
fn only_what_is_listed_may_be_named() {
    let mut config = config();
    let listed = &mut config.network_instances[0].framed_routes;
    *listed = Some(vec![net("198.51.100.0/24"), net("2001:db8:70::/44")]);
    let mut world = World::with(&config);
    for net in ["198.51.0.0/16", "203.0.113.7/32", "2001:db8:80::/48"] {
        let wrong = failure(routes(&[net])[0].0, pdr(2));
        refuses(&mut world, wrong, |w| session(w, 9, &[net]));
    }
    let nets = ["198.51.100.0/24", "198.51.100.7/32", "2001:db8:7f::/48"];
    world.establish(|w| session(w, 9, &nets)).unwrap();

    config.network_instances[0].framed_routes = Some(Vec::new());
    let mut world = World::with(&config);
    let wrong = failure(IeType::FRAMED_ROUTE, pdr(2));
    refuses(&mut world, wrong, |w| session(w, 9, &nets[..1]));
}

#[test]
fn what_a_refused_change_wanted_is_free_and_what_it_had_is_not() {
    let mut world = World::new();
    let (first, _) = world
        .establish(|w| session(w, 9, &["198.51.100.0/24"]))
        .unwrap();
    let (second, _) = world
        .establish(|w| session(w, 3, &["203.0.113.0/24"]))
        .unwrap();
    let change = |w: &mut Writer<'_>| {
        behind(PdrIe::downlink(), &["192.0.2.0/24", "203.0.113.7/32"]).update(w, true);
    };
    let wrong = failure(IeType::FRAMED_ROUTE, pdr(2));
    refuses_to_modify(&mut world, first, wrong, change);
    world.tables.room = Some(2);
    refuses_to_modify(&mut world, second, without_room("entries"), |w| {
        let ue = Some(ue4(Ipv4Addr::new(10, 60, 0, 3)));
        let downlink = behind(PdrIe::downlink(), &["192.0.2.0/24"]);
        PdrIe { ue, ..downlink }.update(w, true);
    });
    world.tables.room = None;
    refuses(&mut world, wrong, |w| session(w, 5, &["198.51.0.0/16"]));
    let free = |w: &mut Writer<'_>| session(w, 5, &["192.0.2.0/24"]);
    let (third, _) = world.establish(free).unwrap();
    for seid in [first, second, third] {
        world.delete(seid).unwrap();
    }
    assert_eq!(world.sessions.fill().pools[0][0].held(), 0);
}

#[test]
fn an_update_replaces_the_routes_and_gives_the_former_back() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| session(w, 9, &["198.51.100.0/24"]))
        .unwrap();
    let other = behind(PdrIe::downlink(), &["203.0.113.0/24"]);
    world.modify(seid, |w| other.update(w, true)).unwrap();
    assert!(!world.tables.keys().contains(&prefix("198.51.100.0/24")));
    assert!(world.tables.keys().contains(&prefix("203.0.113.0/24")));
    world
        .establish(|w| session(w, 3, &["198.51.100.0/24"]))
        .unwrap();
}

#[test]
fn a_longer_prefix_of_the_session_leads_to_the_pdrs_of_shorter_ones_too() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| session(w, 9, &["198.51.100.0/24"]))
        .unwrap();
    let narrow = PdrIe {
        id: 3,
        precedence: Some(50),
        filters: vec![flow("permit out 17 from any to assigned")],
        ue: None,
        ..behind(PdrIe::downlink(), &["198.51.100.0/25"])
    };
    world.modify(seid, |w| narrow.create(w)).unwrap();
    let compiled = world.only();
    let entries = |text: &str| {
        let of = |(key, _): &&(Key, Select)| *key == prefix(text);
        match compiled.keys.iter().find(of).unwrap().1 {
            Select::One(entry) => vec![entry],
            Select::List { first, len } => compiled.filters[first..first + len]
                .iter()
                .map(|filter| filter.entry)
                .collect(),
        }
    };
    assert_eq!(entries("198.51.100.0/24"), [1]);
    assert_eq!(entries("198.51.100.0/25"), [2, 1]);
}

/// Each PDR that asks for the UE's packets without naming the UE is found by the networks of all that do.
#[test]
fn networks_within_networks_that_many_pdrs_name_take_no_room_for_each_of_them() {
    let mut world = World::new();
    let nets: Vec<String> = (0..FRAMED_MAX)
        .map(|n| format!("2001:db8:f::/{}", 49 + n))
        .collect();
    let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
    let (seid, _) = world.establish(|w| session(w, 9, &nets)).unwrap();
    let more = |id: u16| {
        let pdr = PdrIe {
            id,
            precedence: Some(u32::from(id)),
            filters: vec![flow("permit out 17 from any to assigned")],
            ue: None,
            ..PdrIe::downlink()
        };
        if id.is_multiple_of(2) {
            behind(pdr, &nets)
        } else {
            pdr
        }
    };
    world
        .modify(seid, |w| (3..9).for_each(|id| more(id).create(w)))
        .unwrap();
    let pdrs = 7;
    let most = nets.len() * nets.len() * pdrs;
    let room = world.sessions.compiler.room();
    assert!(room <= 2 * most, "{room} places, {most} are found at most");
}

#[test]
fn what_is_no_route_is_refused() {
    let mut world = World::new();
    for (ie, value) in [
        (IeType::FRAMED_ROUTE, &b"0.0.0.0/0 0.0.0.0 1"[..]),
        (IeType::FRAMED_ROUTE, b""),
        (IeType::FRAMED_ROUTE, b"2001:db8::/32"),
        (IeType::FRAMED_IPV6_ROUTE, b"ff00::/8 :: 1"),
        // A routing protocol.
        (IeType::FRAMED_ROUTING, &[0, 0, 0, 3]),
    ] {
        for id in [1, 2] {
            let with = |pdr: PdrIe| PdrIe {
                extra_pdi: if pdr.id == id {
                    vec![(ie, value.to_vec())]
                } else {
                    Vec::new()
                },
                ..pdr
            };
            refuses(&mut world, failure(ie, pdr(id)), |w| {
                ordinary_with(w, with(PdrIe::uplink()), with(PdrIe::downlink()));
            });
        }
    }
    let none = vec![(IeType::FRAMED_ROUTING, vec![0; 4])];
    let uplink = PdrIe {
        extra_pdi: none,
        ..PdrIe::uplink()
    };
    world
        .establish(|w| ordinary_with(w, uplink.clone(), PdrIe::downlink()))
        .unwrap();
}

#[test]
fn a_session_has_no_more_routes_than_packets_are_compared_with() {
    let mut world = World::new();
    let nets: Vec<String> = (0..=FRAMED_MAX)
        .map(|n| format!("198.18.{n}.0/24"))
        .collect();
    let nets: Vec<&str> = nets.iter().map(String::as_str).collect();
    let too_many = refusal(
        Cause::NO_RESOURCES_AVAILABLE,
        IeType::FRAMED_ROUTE,
        Some(pdr(2)),
    );
    refuses(&mut world, too_many, |w| session(w, 9, &nets));
    world
        .establish(|w| session(w, 9, &nets[..FRAMED_MAX]))
        .unwrap();
}

/// A UE whose prefix is `text`, said by its length or by the bits for delegation.
fn of_prefix(text: &str, by_bits: bool) -> UeIpAddress {
    let IpNet::V6(net) = net(text) else {
        panic!("{text}")
    };
    let len = net.prefix_len();
    UeIpAddress {
        prefix_length: (!by_bits).then_some(len),
        delegation_bits: by_bits.then(|| 64 - len),
        ..ue6(net.addr())
    }
}

fn with_ue(w: &mut Writer<'_>, ue: UeIpAddress) {
    let ue = Some(ue);
    let (up, down) = (PdrIe::uplink(), PdrIe::downlink());
    ordinary_with(w, PdrIe { ue, ..up }, PdrIe { ue, ..down });
}

#[test]
fn a_ue_has_a_prefix_of_any_length() {
    for (text, by_bits) in [
        ("2001:db8:60::/48", false),
        ("2001:db8:60:10::/60", true),
        ("2001:db8:60::/64", true),
        ("2001:db8:60::8000/113", false),
        ("2001:db8:60::7/128", false),
    ] {
        let mut world = World::new();
        world
            .establish(|w| with_ue(w, of_prefix(text, by_bits)))
            .unwrap();
        let compiled = world.only();
        assert!(compiled.keys.contains(&(prefix(text), Select::One(1))));
        let v6 = compiled.entries[0].ue.and_then(|ue| ue.v6);
        assert_eq!(v6.map(IpNet::V6), Some(net(text)));
        let taken = failure(IeType::UE_IP_ADDRESS, pdr(2));
        refuses(&mut world, taken, |w| with_ue(w, of_prefix(text, false)));
    }
}

#[test]
fn an_address_in_the_prefix_stands_for_all_of_it() {
    let mut world = World::new();
    let ue = UeIpAddress {
        prefix_length: Some(56),
        ..ue6(UE6)
    };
    world.establish(|w| with_ue(w, ue)).unwrap();
    assert!(world.tables.keys().contains(&prefix("2001:db8:60::/56")));
}

#[test]
fn a_prefix_of_the_length_asked_for_is_chosen_and_answered() {
    let mut world = World::new();
    let choose = |prefix_length, delegation_bits| UeIpAddress {
        choose_ipv6: true,
        prefix_length,
        delegation_bits,
        ..UeIpAddress::default()
    };
    // The pool is a /60, of which single ones are taken from the front.
    for (asked, given) in [
        (choose(Some(62), None), "2001:db8:60:c::/62"),
        (choose(None, Some(1)), "2001:db8:60:a::/63"),
        (choose(Some(128), None), "2001:db8:60::1/128"),
        (choose(None, None), "2001:db8:60:1::/64"),
    ] {
        let (_, created) = world.establish(|w| with_ue(w, asked)).unwrap();
        let chosen: Vec<_> = created.iter().filter_map(|pdr| pdr.ue6).collect();
        assert_eq!(
            chosen.iter().map(|n| IpNet::V6(*n)).collect::<Vec<_>>(),
            [net(given); 2]
        );
        assert!(world.tables.keys().contains(&prefix(given)));
    }
    assert_eq!(world.sessions.fill().pools[0][1].held(), 8);
    let none_left = refusal(
        Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED,
        IeType::UE_IP_ADDRESS,
        Some(pdr(1)),
    );
    for len in [59, 61] {
        let asked = choose(Some(len), None);
        refuses(&mut world, none_left, |w| with_ue(w, asked));
    }
    let seids: Vec<u64> = world.sessions.summaries(None).map(|s| s.seid).collect();
    for seid in seids {
        world.delete(seid).unwrap();
    }
    assert_eq!(world.sessions.fill().pools[0][1].held(), 0);
    let all = choose(Some(60), None);
    world.establish(|w| with_ue(w, all)).unwrap();
}
