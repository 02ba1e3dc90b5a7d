//! From tunnel to tunnel: N9, indirect forwarding, the CP function.

use std::net::Ipv6Addr;

use compiled::{Action, Direction, EndedTunnel, Entry, Marking, Qfi, Relay, UeAddresses, UeEnd};
use pfcp::Cause;
use pfcp::ie::PfcpSmReqFlags;

use super::*;
use crate::rules::{FarId, RuleId};

const ACCESS: u8 = 0;
const CORE: u8 = 1;
const CP_FUNCTION: u8 = 3;

/// A PDR found by a TEID of our choice, whatever the side.
fn by_teid(id: u16, source: u8, far: u32) -> PdrIe {
    PdrIe {
        id,
        source,
        ue: None,
        far: Some(far),
        ..PdrIe::uplink()
    }
}

/// FAR into a tunnel.
fn far_to(w: &mut Writer<'_>, id: u32, destination: u8, teid: u32) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, destination);
            w.network_instance("n9.example");
            w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
        });
    });
}

fn into_tunnel(teid: u32) -> Action {
    Action::Tunnel {
        teid,
        peer: GNB.into(),
        local: N3.into(),
    }
}

fn only_entry(write: impl Fn(&mut Writer<'_>)) -> Entry {
    let mut world = World::new();
    world.establish(write).unwrap();
    assert_eq!(world.only().entries.len(), 1);
    world.only().entries[0].clone()
}

#[test]
fn an_intermediate_upf_relays_both_ways() {
    let mut world = World::new();
    let (_, created) = world
        .establish(|w| {
            by_teid(1, ACCESS, 1).create(w);
            by_teid(2, CORE, 2).create(w);
            far_to(w, 1, CORE, 0x71);
            far_to(w, 2, ACCESS, 0x72);
        })
        .unwrap();
    assert_eq!(created.len(), 2);
    assert!(created.iter().all(|pdr| pdr.f_teid.is_some()));
    let compiled = world.only();
    assert!(
        compiled
            .keys
            .iter()
            .all(|(key, _)| matches!(key, Key::Teid { .. }))
    );
    let [up, down] = &compiled.entries[..] else {
        panic!("{compiled:?}")
    };
    assert_eq!(
        (up.direction, up.action),
        (Direction::Uplink, into_tunnel(0x71))
    );
    assert_eq!(
        (down.direction, down.action),
        (Direction::Downlink, into_tunnel(0x72))
    );
    assert_eq!(
        (up.relay, down.relay),
        (Some(Relay::default()), Some(Relay::default()))
    );
}

#[test]
fn what_the_pdi_asks_is_asked_of_the_right_end() {
    let mut up = by_teid(1, ACCESS, 1);
    (up.ue, up.qfi) = (Some(ue4(UE)), Some(9));
    let addresses = UeAddresses {
        v4: Some(UE),
        v6: None,
    };
    let relay = only_entry(|w| {
        up.create(w);
        far_to(w, 1, CORE, 5);
    })
    .relay
    .unwrap();
    assert_eq!(relay.ue, Some((addresses, UeEnd::Source)));
    assert_eq!(relay.qfi, Qfi::new(9));
    let mut down = by_teid(1, CORE, 1);
    down.ue = Some(UeIpAddress {
        destination: true,
        ..ue4(UE)
    });
    let entry = only_entry(|w| {
        down.create(w);
        far_to(w, 1, ACCESS, 5);
    });
    assert_eq!(
        entry.relay.unwrap().ue,
        Some((addresses, UeEnd::Destination))
    );
}

/// The UE address of a PDR that is found by its TEID is a condition, not a key: another session may
/// have the address.
#[test]
fn an_address_that_is_no_key_is_held_by_nobody() {
    let mut world = World::new();
    for _ in 0..2 {
        world
            .establish(|w| {
                let mut down = by_teid(1, CORE, 1);
                down.ue = Some(ue4(UE));
                down.create(w);
                far_to(w, 1, ACCESS, 5);
            })
            .unwrap();
    }
    world.establish(ordinary).unwrap();
    assert_eq!(world.sessions.fill().pools[0][0].held(), 1);
}

#[test]
fn the_container_is_removed_where_asked_for() {
    for (octets, expected) in [
        (vec![0, 1], true),
        (vec![6, 1], true),
        (vec![0, 0], false),
        (vec![0], false),
    ] {
        let mut pdr = by_teid(1, ACCESS, 1);
        pdr.removal = None;
        pdr.extra = vec![(IeType::OUTER_HEADER_REMOVAL, octets)];
        let entry = only_entry(|w| {
            pdr.create(w);
            far_to(w, 1, CORE, 5);
        });
        assert_eq!(entry.relay.unwrap().remove_container, expected);
    }
}

/// TS 23.502, 4.9.1.3: what the source gNB sends back goes to the target gNB.
#[test]
fn indirect_forwarding_travels_downlink() {
    let entry = only_entry(|w| {
        let mut pdr = by_teid(1, ACCESS, 1);
        pdr.qers = vec![1];
        pdr.create(w);
        far_to(w, 1, ACCESS, 5);
        w.grouped(IeType::CREATE_QER, |w| {
            w.put(IeType::QER_ID, 1u32);
            w.put(
                IeType::GATE_STATUS,
                GateStatus {
                    uplink: Gate::Closed,
                    downlink: Gate::Open,
                },
            );
        });
    });
    assert_eq!(
        (entry.direction, entry.action),
        (Direction::Downlink, into_tunnel(5))
    );
}

/// As Open5GS asks for IPv6 sessions: router solicitations to the SMF, advertisements from it.
#[test]
fn router_solicitations_have_a_way_to_the_smf() {
    let mut world = World::new();
    world
        .establish(|w| {
            let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0, 0, 0, 0, 1);
            let shared = FTeid::Choose {
                ipv4: true,
                ipv6: false,
                choose_id: Some(5),
            };
            let to_smf = PdrIe {
                id: 3,
                precedence: Some(1),
                f_teid: Some(shared),
                ue: Some(ue6(prefix)),
                far: Some(3),
                filters: vec![flow("permit out 58 from ff02::2/128 to assigned")],
                ..PdrIe::uplink()
            };
            PdrIe {
                precedence: Some(65535),
                f_teid: Some(shared),
                ue: Some(ue6(prefix)),
                ..PdrIe::uplink()
            }
            .create(w);
            to_smf.create(w);
            by_teid(4, CP_FUNCTION, 2).create(w);
            far_to_core(w, 1);
            far_to(w, 2, ACCESS, 0x72);
            far_to(w, 3, CP_FUNCTION, 0x73);
        })
        .unwrap();
    let compiled = world.only();
    assert_eq!(compiled.keys.len(), 2);
    assert_eq!(compiled.filters[0].entry, 1, "the solicitation comes first");
    assert_eq!(compiled.entries[1].action, into_tunnel(0x73));
    assert_eq!(compiled.entries[2].direction, Direction::Downlink);
}

#[test]
fn what_leads_nowhere_is_refused() {
    let failure = |ie, rule| Refusal {
        cause: Cause::RULE_CREATION_MODIFICATION_FAILURE,
        offending_ie: Some(ie),
        failed_rule: Some(rule),
        shortage: None,
        unknown: None,
    };
    let mut world = World::new();
    // From N9 to N6 there is no way back, and from N6 to N9 none either.
    let wrong = failure(IeType::DESTINATION_INTERFACE, RuleId::Far(FarId(1)));
    assert_eq!(
        world.establish(|w| {
            by_teid(1, CORE, 1).create(w);
            far_to_core(w, 1);
        }),
        Err(wrong)
    );
    assert_eq!(
        world.establish(|w| {
            PdrIe {
                id: 1,
                far: Some(1),
                ..PdrIe::downlink()
            }
            .create(w);
            far_to(w, 1, CORE, 5);
        }),
        Err(wrong)
    );
    let missing = world.establish(|w| {
        PdrIe {
            f_teid: None,
            ..by_teid(1, CP_FUNCTION, 1)
        }
        .create(w);
        far_to(w, 1, ACCESS, 5);
    });
    assert_eq!(missing.unwrap_err().offending_ie, Some(IeType::F_TEID));
}

/// Update FAR: another tunnel, with or without SNDEM.
fn switch(w: &mut Writer<'_>, id: u32, teid: u32, flags: PfcpSmReqFlags) {
    w.grouped(IeType::UPDATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
            w.put(IeType::DESTINATION_INTERFACE, ACCESS);
            w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
            if !flags.is_empty() {
                w.put(IeType::PFCPSMREQ_FLAGS, flags);
            }
        });
    });
}

fn end_of(teid: u32) -> EndedTunnel {
    EndedTunnel {
        teid,
        peer: GNB.into(),
        local: N3.into(),
    }
}

#[test]
fn a_tunnel_hears_of_its_end_from_each_far_that_leaves_it() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            by_teid(1, CORE, 1).create(w);
            by_teid(2, CORE, 1).create(w);
            by_teid(3, CORE, 2).create(w);
            far_to(w, 1, ACCESS, 0x71);
            far_to(w, 2, ACCESS, 0x71);
        })
        .unwrap();
    // FAR 2 leads there still.
    world
        .modify(seid, |w| switch(w, 1, 0x72, PfcpSmReqFlags::SNDEM))
        .unwrap();
    assert_eq!(world.tables.ended, []);
    world
        .modify(seid, |w| switch(w, 2, 0x72, PfcpSmReqFlags::SNDEM))
        .unwrap();
    assert_eq!(world.tables.ended, [end_of(0x71)]);
    // Two FARs leave one tunnel together. Open5GS' emulated gNBs wait for an End Marker from each.
    world
        .modify(seid, |w| {
            switch(w, 1, 0x73, PfcpSmReqFlags::SNDEM);
            switch(w, 2, 0x74, PfcpSmReqFlags::SNDEM);
        })
        .unwrap();
    let both = [end_of(0x72), end_of(0x72)];
    assert_eq!(world.tables.ended, [&[end_of(0x71)], &both[..]].concat());
}

#[test]
fn no_end_marker_without_an_end() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    world
        .modify(seid, |w| switch(w, 2, 0x5000, PfcpSmReqFlags::SNDEM))
        .unwrap();
    world
        .modify(seid, |w| switch(w, 2, 0x5001, PfcpSmReqFlags::empty()))
        .unwrap();
    world.tables.room = Some(0);
    assert!(
        world
            .modify(seid, |w| switch(w, 2, 0x5002, PfcpSmReqFlags::SNDEM))
            .is_err()
    );
    assert_eq!(world.tables.ended, []);
}

/// TS 29.244, 8.2.12: value and mask; an Update FAR may bring another one.
#[test]
fn a_far_marks_what_it_sends() {
    let mut world = World::new();
    let marking = |w: &mut Writer<'_>, value: u16| {
        w.put(IeType::DESTINATION_INTERFACE, ACCESS);
        w.put(IeType::OUTER_HEADER_CREATION, tunnel(5));
        w.put(IeType::TRANSPORT_LEVEL_MARKING, value);
    };
    let (seid, _) = world
        .establish(|w| {
            by_teid(1, CORE, 1).create(w);
            w.grouped(IeType::CREATE_FAR, |w| {
                w.put(IeType::FAR_ID, 1u32);
                w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
                w.grouped(IeType::FORWARDING_PARAMETERS, |w| marking(w, 0xb8fc));
            });
        })
        .unwrap();
    let expedited = Marking {
        tos: 0xb8,
        mask: 0xfc,
    };
    assert_eq!(world.only().entries[0].marking, Some(expedited));
    let update = |value: u16| {
        move |w: &mut Writer<'_>| {
            w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, 1u32);
                w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| marking(w, value));
            });
        }
    };
    world
        .modify(seid, |w| switch(w, 1, 6, PfcpSmReqFlags::empty()))
        .unwrap();
    assert_eq!(
        world.only().entries[0].marking,
        Some(expedited),
        "not sent, not changed"
    );
    world.modify(seid, update(0xb800)).unwrap();
    assert_eq!(world.only().entries[0].marking, None, "no bit is to be set");
}
