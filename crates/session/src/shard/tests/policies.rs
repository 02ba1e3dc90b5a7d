//! Forwarding policies that FARs name.

use compiled::{NiId, PolicyId};
use pfcp::Cause;

use super::cases::{failure, far, refusal, refuses, refuses_to_modify};
use super::*;
use crate::rules::config::ForwardingPolicy;

/// Policies "gold", and "10", which FARs towards access must not name.
fn world() -> World {
    let policy = |identifier: &str, towards_access| ForwardingPolicy {
        identifier: identifier.into(),
        towards_access,
    };
    World::with(&Config {
        forwarding_policies: vec![policy("gold", true), policy("10", false)],
        ..config()
    })
}

fn identifier(name: &[u8]) -> Vec<u8> {
    [&[name.len() as u8], name].concat()
}

/// FAR 1 of an ordinary session: where to, in which tunnel, and by which policy.
fn uplink_far(
    w: &mut Writer<'_>,
    kind: IeType,
    to: u8,
    header: Option<OuterHeaderCreation>,
    policy: Option<&[u8]>,
) {
    let parameters = match kind {
        IeType::CREATE_FAR => IeType::FORWARDING_PARAMETERS,
        _ => IeType::UPDATE_FORWARDING_PARAMETERS,
    };
    w.grouped(kind, |w| {
        w.put(IeType::FAR_ID, 1u32);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(parameters, |w| {
            w.put(IeType::DESTINATION_INTERFACE, to);
            if let Some(header) = header {
                w.put(IeType::OUTER_HEADER_CREATION, header);
            }
            if let Some(policy) = policy {
                w.ie(IeType::FORWARDING_POLICY, policy);
            }
        });
    });
}

const ACCESS: u8 = 0;
const CORE: u8 = 1;
const SGI_LAN: u8 = 2;
const CP_FUNCTION: u8 = 3;

fn with_far(
    to: u8,
    header: Option<OuterHeaderCreation>,
    policy: &[u8],
) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        PdrIe::uplink().create(w);
        PdrIe::downlink().create(w);
        uplink_far(w, IeType::CREATE_FAR, to, header, Some(policy));
        far_to_access(w, 2, 7);
    }
}

fn updated(policy: Option<&[u8]>) -> impl Fn(&mut Writer<'_>) {
    move |w| uplink_far(w, IeType::UPDATE_FAR, CORE, None, policy)
}

fn steered(policy: u8) -> Action {
    Action::Steer {
        ni: NiId(0),
        policy: PolicyId(policy),
    }
}

fn uplink(world: &World) -> Action {
    world.only().entries[0].action
}

#[test]
fn uplink_packets_go_the_way_of_the_policy_that_their_far_names() {
    for to in [CORE, SGI_LAN] {
        for (name, place) in [("gold", 0), ("10", 1)] {
            let mut world = world();
            let name = identifier(name.as_bytes());
            let (seid, _) = world.establish(with_far(to, None, &name)).unwrap();
            assert_eq!(uplink(&world), steered(place));
            world.delete(seid).unwrap();
        }
    }
}

#[test]
fn an_update_replaces_the_policy_and_one_that_says_nothing_keeps_it() {
    let mut world = world();
    let (seid, _) = world.establish(ordinary).unwrap();
    assert_eq!(uplink(&world), Action::Route { ni: NiId(0) });
    let gold = identifier(b"gold");
    world.modify(seid, updated(Some(&gold))).unwrap();
    assert_eq!(uplink(&world), steered(0));
    let ten = identifier(b"10");
    world.modify(seid, updated(Some(&ten))).unwrap();
    assert_eq!(uplink(&world), steered(1));
    world.modify(seid, updated(None)).unwrap();
    assert_eq!(uplink(&world), steered(1));
    let site = world.sessions.view(seid, &world.tables);
    let shown = site.unwrap().fars[0].policy.clone();
    assert_eq!(shown.as_deref(), Some("10"));
}

/// TS 29.244, 8.2.1: cause 70. No policy has an empty identifier, which is no way to remove one either.
#[test]
fn an_unknown_identifier_is_refused_and_named() {
    let names = [&b"golden"[..], b"GOLD", b"", b"1", &[0xff; 255]];
    for name in names {
        let mut world = world();
        let mut unknown = refusal(
            Cause::INVALID_FORWARDING_POLICY,
            IeType::FORWARDING_POLICY,
            far(1),
        );
        unknown = unknown.of_unknown(name);
        let given = identifier(name);
        refuses(&mut world, unknown, with_far(CORE, None, &given));
        let gold = identifier(b"gold");
        let (seid, _) = world.establish(with_far(CORE, None, &gold)).unwrap();
        refuses_to_modify(&mut world, seid, unknown, updated(Some(&given)));
        assert_eq!(uplink(&world), steered(0));
    }
    let refused = world().establish(with_far(CORE, None, &identifier(b"golden")));
    let text = refused.unwrap_err().to_string();
    assert!(text.ends_with("\"golden\" is not configured"), "{text}");
}

#[test]
fn an_identifier_that_is_shorter_than_it_says_is_a_length_error() {
    for short in [&[][..], &[5, b'g', b'o', b'l', b'd']] {
        let wrong = refusal(Cause::INVALID_LENGTH, IeType::FORWARDING_POLICY, None);
        refuses(&mut world(), wrong, with_far(CORE, None, short));
    }
    // Octets behind it, of later releases, are skipped.
    let mut world = world();
    let longer = [&identifier(b"gold")[..], &[1, 2, 3]].concat();
    world.establish(with_far(CORE, None, &longer)).unwrap();
    assert_eq!(uplink(&world), steered(0));
}

/// Not to be steered by a policy: packets into tunnels of the core, and to the SMF.
#[test]
fn a_policy_where_there_is_no_way_to_the_data_network_is_refused() {
    let gold = identifier(b"gold");
    for (to, header) in [
        (CORE, Some(tunnel(9))),
        (CP_FUNCTION, Some(tunnel(9))),
        (CP_FUNCTION, None),
    ] {
        let wrong = failure(IeType::FORWARDING_POLICY, far(1));
        refuses(&mut world(), wrong, with_far(to, header, &gold));
    }
    let mut world = world();
    let (seid, _) = world.establish(with_far(CORE, None, &gold)).unwrap();
    let into_tunnel = |w: &mut Writer<'_>| {
        uplink_far(w, IeType::UPDATE_FAR, CORE, Some(tunnel(9)), None);
    };
    let wrong = failure(IeType::FORWARDING_POLICY, far(1));
    refuses_to_modify(&mut world, seid, wrong, into_tunnel);
}

/// OAI's SMF names the policy in FARs of both directions.
#[test]
fn packets_towards_access_keep_to_their_tunnel_unless_the_policy_forbids_to_be_named() {
    let downlink = |name: &'static [u8]| {
        move |w: &mut Writer<'_>| {
            PdrIe::uplink().create(w);
            PdrIe::downlink().create(w);
            uplink_far(w, IeType::CREATE_FAR, CORE, None, Some(&identifier(name)));
            w.grouped(IeType::CREATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
                w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::DESTINATION_INTERFACE, ACCESS);
                    w.put(IeType::OUTER_HEADER_CREATION, tunnel(7));
                    w.ie(IeType::FORWARDING_POLICY, &identifier(name));
                });
            });
        }
    };
    let mut allowing = world();
    allowing.establish(downlink(b"gold")).unwrap();
    assert_eq!(uplink(&allowing), steered(0));
    let down = allowing.only().entries[1].action;
    assert!(matches!(down, Action::Tunnel { teid: 7, .. }), "{down:?}");
    let wrong = failure(IeType::FORWARDING_POLICY, far(2));
    refuses(&mut world(), wrong, downlink(b"10"));
}
