//! Sessions that are changed.

use compiled::{Action, QerId};
use pfcp::Cause;

use super::cases::{failure, far, pdr, refusal, refuses, refuses_to_modify};
use super::*;
use crate::rules::{BarId, RuleId, UrrId};

#[test]
fn a_path_switch_changes_one_entry() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    let before = world.only().clone();
    world
        .modify(seid, |w| {
            w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::OUTER_HEADER_CREATION, tunnel(0x7777));
                });
            });
        })
        .unwrap();
    let after = world.only();
    assert_eq!(after.entries[0], before.entries[0]);
    assert_eq!(
        after.entries[1].action,
        Action::Tunnel {
            teid: 0x7777,
            peer: GNB.into(),
            local: N3.into()
        }
    );
}

#[test]
fn an_idle_ue_is_buffered_and_comes_back_where_it_was() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    let before = world.only().clone();
    let set = |action: ApplyAction| {
        move |w: &mut Writer<'_>| {
            w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.put(IeType::APPLY_ACTION, action);
            });
        }
    };
    world
        .modify(seid, set(ApplyAction::BUFF | ApplyAction::NOCP))
        .unwrap();
    assert_eq!(world.only().entries[1].action, Action::Buffer);
    world.modify(seid, set(ApplyAction::FORW)).unwrap();
    assert_eq!(*world.only(), before);
}

#[test]
fn a_downlink_far_may_begin_as_buffering_without_parameters() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            PdrIe::uplink().create(w);
            PdrIe::downlink().create(w);
            far_to_core(w, 1);
            far_of(w, 2, ApplyAction::BUFF | ApplyAction::NOCP);
        })
        .unwrap();
    assert_eq!(world.only().entries[1].action, Action::Buffer);
    // Without parameters it cannot forward, and without a destination it does not get any.
    let missing = |ie| refusal(Cause::CONDITIONAL_IE_MISSING, ie, far(2));
    refuses_to_modify(
        &mut world,
        seid,
        missing(IeType::FORWARDING_PARAMETERS),
        |w| {
            w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
            });
        },
    );
    refuses_to_modify(
        &mut world,
        seid,
        missing(IeType::DESTINATION_INTERFACE),
        |w| {
            w.grouped(IeType::UPDATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::OUTER_HEADER_CREATION, tunnel(1));
                });
            });
        },
    );
}

#[test]
fn a_rule_can_be_removed_and_created_in_one_request() {
    let mut world = World::new();
    let uplink = PdrIe {
        f_teid: Some(given(9)),
        ..PdrIe::uplink()
    };
    let (seid, _) = world
        .establish(|w| ordinary_with(w, uplink.clone(), PdrIe::downlink()))
        .unwrap();
    let again = PdrIe {
        precedence: Some(5),
        ..uplink.clone()
    };
    world
        .modify(seid, |w| {
            remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 1);
            remove(w, IeType::REMOVE_FAR, IeType::FAR_ID, 1);
            far_to_core(w, 1);
            again.create(w);
        })
        .unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.pdrs[1].precedence, 5);
    assert_eq!(view.pdrs[1].f_teid, Some((9, vec![N3.into()])));
    assert_eq!(world.sessions.fill().teids, 1);
}

#[test]
fn ids_that_exist_twice_or_not_at_all_are_refused() {
    let mut world = World::new();
    refuses(&mut world, failure(IeType::PDR_ID, pdr(1)), |w| {
        ordinary(w);
        PdrIe::uplink().create(w);
    });
    refuses(&mut world, failure(IeType::FAR_ID, far(1)), |w| {
        ordinary(w);
        far_to_core(w, 1);
    });
    let (seid, _) = world.establish(ordinary).unwrap();
    for (kind, ie, rule) in [
        (IeType::UPDATE_PDR, IeType::PDR_ID, pdr(9)),
        (IeType::UPDATE_FAR, IeType::FAR_ID, far(9)),
        (IeType::UPDATE_QER, IeType::QER_ID, RuleId::Qer(QerId(9))),
        (IeType::UPDATE_URR, IeType::URR_ID, RuleId::Urr(UrrId(9))),
        (IeType::UPDATE_BAR, IeType::BAR_ID, RuleId::Bar(BarId(9))),
    ] {
        refuses_to_modify(&mut world, seid, failure(ie, rule), |w| {
            remove(w, kind, ie, 9)
        });
    }
    refuses_to_modify(&mut world, seid, failure(IeType::FAR_ID, far(1)), |w| {
        remove(w, IeType::UPDATE_FAR, IeType::FAR_ID, 1);
        remove(w, IeType::UPDATE_FAR, IeType::FAR_ID, 1);
    });
}

#[test]
fn rules_that_are_gone_can_be_removed_again() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    let kinds = [
        (IeType::REMOVE_PDR, IeType::PDR_ID),
        (IeType::REMOVE_FAR, IeType::FAR_ID),
        (IeType::REMOVE_QER, IeType::QER_ID),
        (IeType::REMOVE_URR, IeType::URR_ID),
        (IeType::REMOVE_BAR, IeType::BAR_ID),
    ];
    let before = world.only().clone();
    for (kind, ie) in kinds {
        world.modify(seid, |w| remove(w, kind, ie, 9)).unwrap();
    }
    assert_eq!(*world.only(), before);
    // Rules that were there: twice in one request, and in a later one.
    for times in [2, 1] {
        world
            .modify(seid, |w| {
                for _ in 0..times {
                    remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 2);
                    remove(w, IeType::REMOVE_FAR, IeType::FAR_ID, 2);
                    remove(w, IeType::REMOVE_QER, IeType::QER_ID, 1);
                }
            })
            .unwrap();
        let left = world.sessions.rules(seid).unwrap();
        assert_eq!(
            [left.pdrs.len(), left.fars.len(), left.qers.len()],
            [1, 1, 0]
        );
    }
}

#[test]
fn a_removed_qer_vanishes_from_its_pdrs_but_a_removed_far_does_not() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    refuses_to_modify(&mut world, seid, failure(IeType::FAR_ID, pdr(1)), |w| {
        remove(w, IeType::REMOVE_FAR, IeType::FAR_ID, 1);
    });
    world
        .modify(seid, |w| remove(w, IeType::REMOVE_QER, IeType::QER_ID, 1))
        .unwrap();
    assert!(
        world
            .only()
            .entries
            .iter()
            .all(|entry| entry.meter.is_none())
    );
    // A QER that the request itself names must be there.
    refuses_to_modify(&mut world, seid, failure(IeType::QER_ID, pdr(1)), |w| {
        PdrIe {
            id: 1,
            qers: vec![1],
            ..PdrIe::default()
        }
        .update(w, false);
    });
}

#[test]
fn the_smf_may_change_its_f_seid() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    let new = FSeid {
        seid: 99,
        ipv4: Some(GNB),
        ipv6: None,
    };
    assert_eq!(world.modify(seid, |w| w.f_seid(new)).unwrap().0, 99);
    assert_eq!(world.delete(seid), Ok(99));
}

#[test]
fn urrs_and_bars_are_kept_and_changed_by_ie() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            PdrIe {
                urrs: vec![1, 2],
                ..PdrIe::uplink()
            }
            .create(w);
            far_to_core(w, 1);
            w.grouped(IeType::CREATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.put(IeType::APPLY_ACTION, ApplyAction::BUFF);
                w.put(IeType::BAR_ID, 1u8);
            });
            for id in [1u32, 2] {
                w.grouped(IeType::CREATE_URR, |w| {
                    w.put(IeType::URR_ID, id);
                    w.put(IeType::MEASUREMENT_METHOD, 2u8);
                    w.ie(IeType::REPORTING_TRIGGERS, &[1, 0]);
                    w.put(IeType::MEASUREMENT_PERIOD, 10u32);
                });
            }
            w.grouped(IeType::CREATE_BAR, |w| w.put(IeType::BAR_ID, 1u8));
        })
        .unwrap();
    world
        .modify(seid, |w| {
            remove(w, IeType::REMOVE_URR, IeType::URR_ID, 2);
            remove(w, IeType::REMOVE_BAR, IeType::BAR_ID, 1);
            w.grouped(IeType::UPDATE_URR, |w| {
                w.put(IeType::URR_ID, 1u32);
                w.put(IeType::MEASUREMENT_PERIOD, 60u32);
            });
        })
        .unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    let urrs: Vec<u32> = view.urrs.iter().map(|urr| urr.id).collect();
    assert_eq!(
        (urrs, view.bars, view.pdrs[0].urrs.clone()),
        (vec![1], vec![], vec![1])
    );
    assert_eq!(view.fars[1].bar, None);
    assert_eq!(
        world.sessions.rules(seid).unwrap().urrs[0].asks.period_s,
        60
    );
    world
        .modify(seid, |w| {
            w.grouped(IeType::CREATE_BAR, |w| {
                w.put(IeType::BAR_ID, 1u8);
                w.put(IeType::SUGGESTED_BUFFERING_PACKETS_COUNT, 9u8);
                w.ie(IeType(40000), &[0; 600]);
            });
        })
        .unwrap();
    world
        .modify(seid, |w| {
            w.grouped(IeType::UPDATE_BAR, |w| {
                w.put(IeType::BAR_ID, 1u8);
                w.put(IeType::DOWNLINK_DATA_NOTIFICATION_DELAY, 2u8);
            });
        })
        .unwrap();
    let bar = &world.sessions.rules(seid).unwrap().bars[0];
    assert_eq!((bar.delay, bar.packets), (2, Some(9)));
}

#[test]
fn an_update_of_the_pdi_replaces_it() {
    let mut world = World::new();
    let uplink = PdrIe {
        f_teid: Some(given(7)),
        ..PdrIe::uplink()
    };
    let (seid, _) = world
        .establish(|w| ordinary_with(w, uplink.clone(), PdrIe::downlink()))
        .unwrap();
    let (_, created) = world
        .modify(seid, |w| {
            PdrIe {
                id: 1,
                f_teid: Some(CHOOSE),
                ..PdrIe::default()
            }
            .update(w, true)
        })
        .unwrap();
    let teid = created[0].f_teid.unwrap().teid;
    assert_ne!(teid, 7);
    let fill = world.sessions.fill();
    assert_eq!(fill.teids, 1);
    assert!(world.tables.keys().contains(&Key::direct(teid)));
    assert_eq!(world.only().entries[0].ue, None);
}
