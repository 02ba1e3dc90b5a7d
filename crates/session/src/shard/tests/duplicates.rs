//! FARs with DUPL and Duplicating Parameters, in octets as SMFs send them.

use compiled::{Action, Duplicate, DuplicateHeader, Marking};
use pfcp::Cause;

use super::*;
use crate::rules::{FarId, RuleId};

const LI_FUNCTION: u8 = 4;
const DROP: u8 = 1;
const FORW: u8 = 2;
const BUFF: u8 = 4;
const DUPL: u8 = 16;
const SINK: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);

/// Outer Header Creation: GTP-U over IPv4 (description 0x0100).
fn gtpu(teid: u8) -> Vec<u8> {
    [vec![1, 0, 0, 0, 0, teid], SINK.octets().to_vec()].concat()
}

/// UDP over IPv4 (0x0400).
fn udp(port: u16) -> Vec<u8> {
    let mut ie = vec![4, 0];
    ie.extend(SINK.octets());
    ie.extend(port.to_be_bytes());
    ie
}

type Parameters = (Option<u8>, Option<Vec<u8>>, Option<u16>);

fn to(header: Vec<u8>) -> Parameters {
    (Some(LI_FUNCTION), Some(header), None)
}

fn parameters(w: &mut Writer<'_>, group: IeType, (to, header, marking): &Parameters) {
    w.grouped(group, |w| {
        if let Some(to) = to {
            w.put(IeType::DESTINATION_INTERFACE, *to);
        }
        if let Some(header) = header {
            w.ie(IeType::OUTER_HEADER_CREATION, header);
        }
        if let Some(marking) = marking {
            w.put(IeType::TRANSPORT_LEVEL_MARKING, *marking);
        }
    });
}

/// The ordinary uplink, whose FAR does this and duplicates there.
fn uplink(action: u8, duplicates: Vec<Parameters>) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        PdrIe::uplink().create(w);
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, 1u32);
            w.ie(IeType::APPLY_ACTION, &[action, 0]);
            w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, 1u8);
                w.network_instance("internet");
            });
            for one in &duplicates {
                parameters(w, IeType::DUPLICATING_PARAMETERS, one);
            }
        });
    }
}

fn update(action: Option<u8>, duplicates: Vec<Parameters>) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        w.grouped(IeType::UPDATE_FAR, |w| {
            w.put(IeType::FAR_ID, 1u32);
            if let Some(action) = action {
                w.ie(IeType::APPLY_ACTION, &[action, 0]);
            }
            for one in &duplicates {
                parameters(w, IeType::UPDATE_DUPLICATING_PARAMETERS, one);
            }
        });
    }
}

fn duplicate(header: DuplicateHeader) -> Duplicate {
    Duplicate {
        header,
        peer: SINK.into(),
        local: N3.into(),
        marking: None,
    }
}

fn into_tunnel(teid: u32) -> Duplicate {
    duplicate(DuplicateHeader::GtpU { teid })
}

fn duplicates(world: &World) -> &[Duplicate] {
    &world.only().entries[0].duplicates
}

#[test]
fn duplicates_go_with_each_action() {
    for (action, expected) in [
        (
            FORW,
            Action::Route {
                ni: compiled::NiId(0),
            },
        ),
        (DROP, Action::Drop),
        (BUFF, Action::Buffer),
        (BUFF | 8, Action::Buffer),
    ] {
        let mut world = World::new();
        world
            .establish(uplink(action | DUPL, vec![to(gtpu(7))]))
            .unwrap();
        assert_eq!(world.only().entries[0].action, expected);
        assert_eq!(duplicates(&world), [into_tunnel(7)]);
    }
}

#[test]
fn several_destinations_each_with_header_and_marking() {
    let mut world = World::new();
    let marked = (Some(1), Some(gtpu(8)), Some(0xb8fc));
    let all = vec![
        to(gtpu(7)),
        marked,
        to(udp(4000)),
        (Some(0), Some(gtpu(9)), None),
    ];
    world.establish(uplink(FORW | DUPL, all)).unwrap();
    let with_marking = Duplicate {
        marking: Some(Marking {
            tos: 0xb8,
            mask: 0xfc,
        }),
        ..into_tunnel(8)
    };
    let by_udp = duplicate(DuplicateHeader::Udp { port: 4000 });
    let expected = [into_tunnel(7), with_marking, by_udp, into_tunnel(9)];
    assert_eq!(duplicates(&world), expected);
}

#[test]
fn parameters_without_the_action_are_kept_until_it_comes() {
    let mut world = World::new();
    let (seid, _) = world.establish(uplink(FORW, vec![to(gtpu(7))])).unwrap();
    assert_eq!(duplicates(&world), []);
    world
        .modify(seid, update(Some(FORW | DUPL), vec![]))
        .unwrap();
    assert_eq!(duplicates(&world), [into_tunnel(7)]);
    world.modify(seid, update(Some(DROP), vec![])).unwrap();
    assert_eq!(duplicates(&world), []);
}

#[test]
fn as_many_updates_as_there_are_change_each_and_others_replace_all() {
    let mut world = World::new();
    let two = vec![to(gtpu(7)), to(gtpu(8))];
    let (seid, _) = world.establish(uplink(FORW | DUPL, two)).unwrap();
    let moved = vec![(None, None, Some(0x2020)), (None, Some(gtpu(9)), None)];
    world.modify(seid, update(None, moved)).unwrap();
    let marked = Duplicate {
        marking: Some(Marking {
            tos: 0x20,
            mask: 0x20,
        }),
        ..into_tunnel(7)
    };
    assert_eq!(duplicates(&world), [marked, into_tunnel(9)]);
    world.modify(seid, update(None, vec![to(gtpu(3))])).unwrap();
    assert_eq!(duplicates(&world), [into_tunnel(3)]);
}

#[test]
fn a_closed_gate_duplicates_nothing() {
    let mut world = World::new();
    world
        .establish(|w| {
            let pdr = PdrIe {
                qers: vec![1],
                ..PdrIe::uplink()
            };
            pdr.create(w);
            w.grouped(IeType::CREATE_QER, |w| {
                w.put(IeType::QER_ID, 1u32);
                w.ie(IeType::GATE_STATUS, &[5]);
            });
            w.grouped(IeType::CREATE_FAR, |w| {
                w.put(IeType::FAR_ID, 1u32);
                w.ie(IeType::APPLY_ACTION, &[DROP | DUPL, 0]);
                parameters(w, IeType::DUPLICATING_PARAMETERS, &to(gtpu(7)));
            });
        })
        .unwrap();
    assert_eq!(world.only().entries[0].action, Action::GateClosed);
    assert_eq!(duplicates(&world), []);
}

#[test]
fn what_cannot_be_duplicated_is_refused() {
    let header = IeType::OUTER_HEADER_CREATION;
    let missing = Cause::CONDITIONAL_IE_MISSING;
    let failed = Cause::RULE_CREATION_MODIFICATION_FAILURE;
    let five = vec![
        to(gtpu(1)),
        to(gtpu(2)),
        to(gtpu(3)),
        to(gtpu(4)),
        to(gtpu(5)),
    ];
    let plain_ip = [vec![0x10, 0], SINK.octets().to_vec()].concat();
    let [mut no_teid, mut nowhere] = [gtpu(7), gtpu(7)];
    no_teid[5] = 0;
    nowhere[6..].fill(0);
    for (action, duplicates, cause, ie) in [
        (FORW | DUPL, vec![], missing, IeType::DUPLICATING_PARAMETERS),
        (DUPL, vec![to(gtpu(7))], failed, IeType::APPLY_ACTION),
        (
            FORW | DROP | DUPL,
            vec![to(gtpu(7))],
            failed,
            IeType::APPLY_ACTION,
        ),
        (
            FORW | DUPL,
            five,
            Cause::NO_RESOURCES_AVAILABLE,
            IeType::DUPLICATING_PARAMETERS,
        ),
        (
            FORW | DUPL,
            vec![(Some(LI_FUNCTION), None, None)],
            missing,
            header,
        ),
        (
            FORW | DUPL,
            vec![(Some(5), Some(gtpu(7)), None)],
            failed,
            IeType::DESTINATION_INTERFACE,
        ),
        (FORW | DUPL, vec![to(plain_ip)], failed, header),
        (FORW | DUPL, vec![to(udp(0))], failed, header),
        (FORW | DUPL, vec![to(no_teid)], failed, header),
        (FORW | DUPL, vec![to(nowhere)], failed, header),
    ] {
        let mut world = World::new();
        let before = world.snapshot();
        let refusal = world
            .establish(uplink(action, duplicates.clone()))
            .unwrap_err();
        assert_eq!(
            (refusal.cause, refusal.offending_ie),
            (cause, Some(ie)),
            "{action} {duplicates:x?}"
        );
        assert_eq!(
            refusal.failed_rule,
            Some(RuleId::Far(FarId(1))),
            "{action} {duplicates:x?}"
        );
        assert_eq!(world.snapshot(), before);
    }
    // A forwarding policy for duplicates.
    let mut world = World::new();
    let refusal = world.establish(|w| {
        PdrIe::uplink().create(w);
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, 1u32);
            w.ie(IeType::APPLY_ACTION, &[DROP | DUPL, 0]);
            w.grouped(IeType::DUPLICATING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, LI_FUNCTION);
                w.ie(IeType::OUTER_HEADER_CREATION, &gtpu(7));
                w.ie(IeType::FORWARDING_POLICY, &[1, b'x']);
            });
        });
    });
    assert_eq!(
        refusal.unwrap_err().offending_ie,
        Some(IeType::FORWARDING_POLICY)
    );
}
