//! N3 over IPv4, IPv6 and both: F-TEIDs, Outer Header Creation and Removal, in octets as SMFs send them.

use compiled::Action;
use pfcp::{Cause, ToIe};

use super::*;
use crate::rules::{FarId, RuleId};
use crate::shard::resources::ChosenFTeid;

const N3_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);
const SECOND4: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
const SECOND6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 2);
const GNB6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 1, 0, 0, 0, 1);

/// A UPF with these N3 addresses.
fn world(n3: &[IpAddr]) -> World {
    World::with(&Config {
        n3: n3.to_vec(),
        ..config()
    })
}

fn dual() -> World {
    world(&[N3.into(), N3_6.into(), SECOND4.into(), SECOND6.into()])
}

fn only6() -> World {
    world(&[N3_6.into()])
}

fn failure(ie: IeType, rule: RuleId) -> Refusal {
    Refusal {
        cause: Cause::RULE_CREATION_MODIFICATION_FAILURE,
        offending_ie: Some(ie),
        failed_rule: Some(rule),
        shortage: None,
        unknown: None,
    }
}

fn raw(f_teid: Vec<u8>, removal: u8) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        PdrIe {
            f_teid: None,
            removal: Some(removal),
            extra_pdi: vec![(IeType::F_TEID, f_teid.clone())],
            ..PdrIe::uplink()
        }
        .create(w);
        far_to_core(w, 1);
    }
}

#[track_caller]
fn refuses(world: &mut World, expected: Refusal, write: impl Fn(&mut Writer<'_>)) {
    let before = world.snapshot();
    assert_eq!(world.establish(write), Err(expected));
    assert_eq!(world.snapshot(), before);
}

/// Addresses in the answer to an F-TEID with CHOOSE.
#[track_caller]
fn chosen(world: &mut World, f_teid: Vec<u8>) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let (seid, created) = world.establish(raw(f_teid, 6)).unwrap();
    let ChosenFTeid { teid, v4, v6 } = created[0].f_teid.unwrap();
    assert!(
        world
            .only()
            .keys
            .iter()
            .any(|(key, _)| *key == Key::direct(teid))
    );
    assert_eq!(world.sessions.fill().teids, 1);
    world.delete(seid).unwrap();
    (v4, v6)
}

#[test]
fn a_choice_has_the_families_that_were_asked_for_and_are_there() {
    // CH with V4, V6, both.
    let asked = [vec![5], vec![6], vec![7]];
    let answers = asked.clone().map(|ie| chosen(&mut dual(), ie));
    assert_eq!(
        answers,
        [(Some(N3), None), (None, Some(N3_6)), (Some(N3), Some(N3_6))]
    );
    assert_eq!(chosen(&mut only6(), vec![6]), (None, Some(N3_6)));
    assert_eq!(chosen(&mut only6(), vec![7]), (None, Some(N3_6)));
    assert_eq!(chosen(&mut World::new(), vec![7]), (Some(N3), None));
}

#[test]
fn a_family_that_no_interface_has_is_refused() {
    let wrong = failure(IeType::F_TEID, RuleId::Pdr(PdrId(1)));
    refuses(&mut only6(), wrong, raw(vec![5], 6));
    refuses(&mut World::new(), wrong, raw(vec![6], 6));
}

#[test]
fn one_choose_id_is_one_teid_whatever_the_families() {
    let mut world = dual();
    let (_, created) = world
        .establish(|w| {
            for (id, flags, precedence) in [(1, 13, 10), (3, 14, 20), (4, 15, 30)] {
                PdrIe {
                    id,
                    precedence: Some(precedence),
                    f_teid: None,
                    removal: Some(6),
                    filters: vec![flow("permit out 17 from any to assigned")],
                    extra_pdi: vec![(IeType::F_TEID, vec![flags, 9])],
                    ..PdrIe::uplink()
                }
                .create(w);
            }
            far_to_core(w, 1);
        })
        .unwrap();
    let f_teids: Vec<ChosenFTeid> = created.iter().filter_map(|pdr| pdr.f_teid).collect();
    assert!(f_teids.iter().all(|f| f.teid == f_teids[0].teid));
    let ends: Vec<_> = f_teids.iter().map(|f| (f.v4, f.v6)).collect();
    assert_eq!(
        ends,
        [(Some(N3), None), (None, Some(N3_6)), (Some(N3), Some(N3_6))]
    );
    assert_eq!(world.sessions.fill().teids, 1);
}

fn given_at(v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Vec<u8> {
    let flags = u8::from(v4.is_some()) | u8::from(v6.is_some()) << 1;
    let mut ie = vec![flags, 0, 0, 0, 9];
    ie.extend(v4.iter().flat_map(Ipv4Addr::octets));
    ie.extend(v6.iter().flat_map(Ipv6Addr::octets));
    ie
}

#[test]
fn an_smf_may_choose_on_any_of_our_addresses() {
    for (v4, v6) in [
        (Some(N3), None),
        (Some(SECOND4), None),
        (None, Some(N3_6)),
        (None, Some(SECOND6)),
        (Some(SECOND4), Some(N3_6)),
    ] {
        let mut world = dual();
        let (seid, created) = world.establish(raw(given_at(v4, v6), 6)).unwrap();
        assert!(created.is_empty(), "there was nothing to choose");
        let view = world.sessions.view(seid, &world.tables).unwrap();
        let v4 = v4.map(IpAddr::V4);
        let wanted = v4.into_iter().chain(v6.map(IpAddr::V6)).collect();
        assert_eq!(view.pdrs[0].f_teid, Some((9, wanted)));
    }
    let wrong = failure(IeType::F_TEID, RuleId::Pdr(PdrId(1)));
    for (v4, v6) in [
        (Some(GNB), None),
        (None, Some(GNB6)),
        (Some(GNB), Some(N3_6)),
        (Some(N3), Some(GNB6)),
    ] {
        refuses(&mut dual(), wrong, raw(given_at(v4, v6), 6));
    }
    refuses(
        &mut World::new(),
        wrong,
        raw(given_at(Some(N3), Some(N3_6)), 6),
    );
}

#[test]
fn what_is_taken_off_is_of_a_family_of_the_f_teid() {
    let wrong = failure(IeType::OUTER_HEADER_REMOVAL, RuleId::Pdr(PdrId(1)));
    // F-TEID, and whether removal of IPv4, IPv6 and either fits it.
    let cases = [
        (vec![5], [true, false, true]),
        (vec![6], [false, true, true]),
        (vec![7], [true, true, true]),
        (given_at(Some(N3), None), [true, false, true]),
        (given_at(None, Some(N3_6)), [false, true, true]),
        (given_at(Some(N3), Some(N3_6)), [true, true, true]),
    ];
    for (f_teid, fits) in cases {
        for (removal, fits) in [0, 1, 6].into_iter().zip(fits) {
            let request = raw(f_teid.clone(), removal);
            if fits {
                dual().establish(request).unwrap();
            } else {
                refuses(&mut dual(), wrong, request);
            }
        }
    }
    // Both families are asked for, and we have IPv4 alone: there is no IPv6 header to remove.
    refuses(&mut World::new(), wrong, raw(vec![7], 1));
}

#[test]
fn an_update_that_moves_the_tunnel_to_the_other_family_moves_the_removal_too() {
    let mut world = dual();
    let (seid, _) = world.establish(raw(vec![5], 0)).unwrap();
    let update = |removal| {
        move |w: &mut Writer<'_>| {
            PdrIe {
                id: 1,
                removal,
                extra_pdi: vec![(IeType::F_TEID, vec![6])],
                ..PdrIe::default()
            }
            .update(w, true);
        }
    };
    let before = world.snapshot();
    let wrong = failure(IeType::OUTER_HEADER_REMOVAL, RuleId::Pdr(PdrId(1)));
    assert_eq!(world.modify(seid, update(None)), Err(wrong));
    assert_eq!(world.snapshot(), before);
    let (_, created) = world.modify(seid, update(Some(1))).unwrap();
    let f_teid = created[0].f_teid.unwrap();
    assert_eq!((f_teid.v4, f_teid.v6), (None, Some(N3_6)));
}

/// A downlink PDR, and FAR 2 with these octets as Outer Header Creation.
fn to_gnb(header: Vec<u8>) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        PdrIe::downlink().create(w);
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, 2u32);
            w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
            w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, 0u8);
                w.ie(IeType::OUTER_HEADER_CREATION, &header);
            });
        });
    }
}

fn header(description: u8, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) -> Vec<u8> {
    let mut ie = vec![description, 0, 0, 0, 0, 5];
    ie.extend(v4.iter().flat_map(Ipv4Addr::octets));
    ie.extend(v6.iter().flat_map(Ipv6Addr::octets));
    ie
}

/// Source and destination of packets into the tunnel.
fn path(world: &World) -> (IpAddr, IpAddr) {
    let Action::Tunnel { teid, peer, local } = world.only().entries[0].action else {
        panic!("{:?}", world.only().entries[0]);
    };
    assert_eq!(teid, 5);
    (local, peer)
}

#[test]
fn a_tunnel_leads_over_a_family_that_both_ends_have() {
    let over4 = (N3.into(), GNB.into());
    let over6 = (N3_6.into(), GNB6.into());
    let (four, six) = (header(1, Some(GNB), None), header(2, None, Some(GNB6)));
    let both = header(3, Some(GNB), Some(GNB6));
    for (mut world, header, wanted) in [
        (dual(), &four, over4),
        (dual(), &six, over6),
        (dual(), &both, over4),
        (only6(), &six, over6),
        (only6(), &both, over6),
        (World::new(), &both, over4),
        // Of an address that is none, only the other is left.
        (
            dual(),
            &header(3, Some(Ipv4Addr::UNSPECIFIED), Some(GNB6)),
            over6,
        ),
        (
            dual(),
            &header(3, Some(GNB), Some(Ipv6Addr::UNSPECIFIED)),
            over4,
        ),
    ] {
        world.establish(to_gnb(header.clone())).unwrap();
        assert_eq!(path(&world), wanted);
    }
    let wrong = failure(IeType::OUTER_HEADER_CREATION, RuleId::Far(FarId(2)));
    refuses(&mut World::new(), wrong, to_gnb(six));
    refuses(&mut only6(), wrong, to_gnb(four));
    for addr in ["::", "::1", "ff02::1", "fe80::1", "::ffff:10.3.1.1"] {
        let addr = addr.parse().unwrap();
        refuses(&mut dual(), wrong, to_gnb(header(2, None, Some(addr))));
    }
    // IPv6 alone; TEID zero.
    let no_gtpu = [vec![0x20, 0], GNB6.octets().to_vec()].concat();
    refuses(&mut dual(), wrong, to_gnb(no_gtpu));
    let mut zero = header(2, None, Some(GNB6));
    zero[5] = 0;
    refuses(&mut dual(), wrong, to_gnb(zero));
}

#[test]
fn of_two_addresses_the_one_with_a_route_is_taken() {
    let (four, six) = (IpAddr::V4(GNB), IpAddr::V6(GNB6));
    for (unreachable, wanted) in [
        (vec![four], six),
        (vec![six], four),
        (vec![four, six], four),
    ] {
        let mut world = dual();
        world.tables.unreachable = unreachable;
        let both = header(3, Some(GNB), Some(GNB6));
        let (seid, _) = world.establish(to_gnb(both)).unwrap();
        assert_eq!(path(&world).1, wanted);
        let view = world.sessions.view(seid, &world.tables).unwrap();
        assert_eq!(view.fars[0].tunnel, Some((5, vec![four, six])));
    }
}

#[test]
fn outer_headers_without_udp_are_refused() {
    let mut world = dual();
    let removal = failure(IeType::OUTER_HEADER_REMOVAL, RuleId::Pdr(PdrId(1)));
    for description in [2, 3, 4, 5, 7, 8] {
        refuses(&mut world, removal, raw(vec![7], description));
    }
    let creation = failure(IeType::OUTER_HEADER_CREATION, RuleId::Far(FarId(2)));
    let gtpu = OuterHeader::GTPU_UDP_IPV4 | OuterHeader::GTPU_UDP_IPV6;
    let whole = OuterHeaderCreation {
        description: gtpu,
        teid: Some(5),
        ipv4: Some(GNB),
        ipv6: Some(GNB6),
        port: Some(2152),
        c_tag: Some(0x10_0200),
        s_tag: Some(0x10_0300),
    };
    let udp = OuterHeader::UDP_IPV4 | OuterHeader::UDP_IPV6;
    // Every description that TS 29.244, 8.2.56 knows: without UDP, and with something besides.
    for description in (1..=OuterHeader::all().bits()).map(OuterHeader::from_bits_retain) {
        let mut header = Vec::new();
        OuterHeaderCreation {
            description,
            ..whole
        }
        .to_ie(&mut header);
        if gtpu.contains(description) || udp.contains(description) {
            let (seid, _) = world.establish(to_gnb(header)).unwrap();
            world.delete(seid).unwrap();
        } else {
            refuses(&mut world, creation, to_gnb(header));
        }
    }
}
