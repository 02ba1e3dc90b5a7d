//! What broke others, and what the specifications ask.

use std::net::Ipv6Addr;

use pfcp::Cause;
use pfcp::ie::{GateStatus, Gbr, Mbr, PdnType, PfcpSmReqFlags};

use super::*;
use crate::compiled::{Action, Direction, NiId, QerId, Select};
use crate::resources::ChosenFTeid;
use crate::rules::{BarId, FarId, RuleId, UrrId};

pub(super) fn pdr(id: u16) -> RuleId {
    RuleId::Pdr(PdrId(id))
}

fn far(id: u32) -> RuleId {
    RuleId::Far(FarId(id))
}

pub(super) fn refusal(cause: Cause, ie: IeType, rule: impl Into<Option<RuleId>>) -> Refusal {
    Refusal {
        cause,
        offending_ie: Some(ie),
        failed_rule: rule.into(),
    }
}

pub(crate) fn failure(ie: IeType, rule: impl Into<Option<RuleId>>) -> Refusal {
    refusal(Cause::RULE_CREATION_MODIFICATION_FAILURE, ie, rule)
}

/// Refused, as told, and without a trace.
#[track_caller]
pub(super) fn refuses(world: &mut World, expected: Refusal, write: impl Fn(&mut Writer<'_>)) {
    let before = world.snapshot();
    assert_eq!(world.establish(write), Err(expected));
    assert_eq!(world.snapshot(), before);
}

#[track_caller]
fn refuses_to_modify(
    world: &mut World,
    seid: u64,
    expected: Refusal,
    write: impl Fn(&mut Writer<'_>),
) {
    let before = world.snapshot();
    assert_eq!(world.modify(seid, write), Err(expected));
    assert_eq!(world.snapshot(), before);
}

#[test]
fn the_ordinary_session_becomes_two_entries() {
    let mut world = World::new();
    let (seid, created) = world.establish(ordinary).unwrap();
    assert_ne!(seid, 0);
    let [
        CreatedPdr {
            id: PdrId(1),
            f_teid:
                Some(ChosenFTeid {
                    teid,
                    v4: Some(N3),
                    v6: None,
                }),
            ue4: None,
            ue6: None,
        },
    ] = created[..]
    else {
        panic!("{created:?}")
    };
    let compiled = world.only();
    assert_eq!(
        compiled.keys,
        [
            (Key::Teid { teid, direct: true }, Select::One(0)),
            (
                Key::Ue4 {
                    ni: NiId(0),
                    addr: UE
                },
                Select::One(1)
            ),
        ]
    );
    assert_eq!(compiled.entries[0].action, Action::Route { ni: NiId(0) });
    assert_eq!(compiled.entries[0].ue.unwrap().v4, Some(UE));
    assert_eq!(
        compiled.entries[1].action,
        Action::Tunnel {
            teid: 0x5000,
            peer: GNB.into(),
            local: N3.into()
        }
    );
    // One QER, two directions: each entry has its own half of it.
    assert!(compiled.meters.is_empty());
    assert_eq!(compiled.entries[0].meter.unwrap().bps, 1_000_000);
    assert_eq!(compiled.entries[1].meter.unwrap().bps, 1_000_000);
    assert_eq!(
        world.sessions.view(seid, &world.tables).unwrap().pdrs[0]
            .counters
            .packets,
        1
    );
}

#[test]
fn a_pdr_without_qer_is_not_policed_by_anothers() {
    let mut world = World::new();
    world.establish(ordinary).unwrap();
    let other = Ipv4Addr::new(10, 60, 0, 10);
    world
        .establish(|w| {
            PdrIe {
                ue: Some(ue4(other)),
                ..PdrIe::uplink()
            }
            .create(w);
            PdrIe {
                ue: Some(ue4(other)),
                ..PdrIe::downlink()
            }
            .create(w);
            far_to_core(w, 1);
            far_to_access(w, 2, 0x6000);
            qer(w, 1, Some(1));
        })
        .unwrap();
    let compiled = world.tables.live.values().nth(1).unwrap();
    assert!(
        compiled
            .entries
            .iter()
            .all(|e| e.meter.is_none() && e.shared_meters.is_empty())
    );
}

#[test]
fn a_pdr_naming_a_far_that_is_not_there_is_refused() {
    let mut world = World::new();
    refuses(&mut world, failure(IeType::FAR_ID, pdr(1)), |w| {
        PdrIe {
            far: Some(9),
            ..PdrIe::uplink()
        }
        .create(w);
        far_to_core(w, 1);
    });
    refuses(
        &mut world,
        refusal(Cause::CONDITIONAL_IE_MISSING, IeType::FAR_ID, pdr(1)),
        |w| {
            PdrIe {
                far: None,
                ..PdrIe::uplink()
            }
            .create(w);
            far_to_core(w, 1);
        },
    );
}

#[test]
fn a_pdr_naming_a_qer_or_urr_that_is_not_there_is_refused() {
    let mut world = World::new();
    refuses(&mut world, failure(IeType::QER_ID, pdr(1)), |w| {
        PdrIe {
            qers: vec![5],
            ..PdrIe::uplink()
        }
        .create(w);
        far_to_core(w, 1);
    });
    refuses(&mut world, failure(IeType::URR_ID, pdr(1)), |w| {
        PdrIe {
            urrs: vec![5],
            ..PdrIe::uplink()
        }
        .create(w);
        far_to_core(w, 1);
    });
}

#[test]
fn a_pdr_with_an_empty_pdi_is_refused() {
    let mut world = World::new();
    refuses(
        &mut world,
        refusal(Cause::MANDATORY_IE_MISSING, IeType::SOURCE_INTERFACE, None),
        |w| {
            w.grouped(IeType::CREATE_PDR, |w| {
                w.pdr_id(1);
                w.put(IeType::PRECEDENCE, 1u32);
                w.grouped(IeType::PDI, |_| {});
                w.put(IeType::FAR_ID, 1u32);
            });
            far_to_core(w, 1);
        },
    );
}

#[test]
fn addresses_and_teids_do_not_leak_on_deletion() {
    let mut world = World::new();
    for _ in 0..200 {
        let (seid, created) = world
            .establish(|w| {
                let uplink = PdrIe {
                    ue: Some(choose4()),
                    ..PdrIe::uplink()
                };
                ordinary_with(
                    w,
                    uplink,
                    PdrIe {
                        ue: Some(choose4()),
                        ..PdrIe::downlink()
                    },
                );
            })
            .unwrap();
        assert_eq!(created[0].ue4, created[1].ue4, "one UE, one address");
        world.delete(seid).unwrap();
        let fill = world.sessions.fill();
        assert_eq!(
            (fill.teids, fill.pools[0].used4, world.tables.live.len()),
            (0, 0, 0)
        );
    }
}

#[test]
fn nothing_leaks_from_refused_establishments() {
    let mut world = World::new();
    for _ in 0..200 {
        refuses(&mut world, failure(IeType::FAR_ID, pdr(7)), |w| {
            ordinary_with(
                w,
                PdrIe {
                    ue: Some(choose4()),
                    ..PdrIe::uplink()
                },
                PdrIe::downlink(),
            );
            PdrIe {
                id: 7,
                far: Some(99),
                ..PdrIe::uplink()
            }
            .create(w);
        });
    }
    world.tables.room = Some(1);
    let no_room = Refusal::from(Cause::NO_RESOURCES_AVAILABLE);
    for _ in 0..200 {
        refuses(&mut world, no_room, ordinary);
    }
    world.tables.room = None;
    assert!(world.establish(ordinary).is_ok());
}

#[test]
fn a_teid_or_ue_address_of_another_session_is_refused() {
    let mut world = World::new();
    let uplink = PdrIe {
        f_teid: Some(given(0x1234_5678)),
        ..PdrIe::uplink()
    };
    world
        .establish(|w| ordinary_with(w, uplink.clone(), PdrIe::downlink()))
        .unwrap();
    let other = PdrIe {
        ue: Some(ue4(Ipv4Addr::new(10, 60, 0, 10))),
        ..PdrIe::downlink()
    };
    refuses(&mut world, failure(IeType::F_TEID, pdr(1)), |w| {
        ordinary_with(w, uplink.clone(), other.clone());
    });
    refuses(&mut world, failure(IeType::UE_IP_ADDRESS, pdr(2)), ordinary);
    // In another network instance the same address is another UE's.
    let ims = PdrIe {
        ni: Some("ims"),
        ..PdrIe::downlink()
    };
    assert!(
        world
            .establish(|w| ordinary_with(w, PdrIe::uplink(), ims.clone()))
            .is_ok()
    );
}

#[test]
fn a_peer_reaches_its_own_sessions_only() {
    let mut world = World::new();
    let (seid, _) = world.establish_from(PeerId(2), ordinary).unwrap();
    let not_found = Refusal::from(Cause::SESSION_CONTEXT_NOT_FOUND);
    assert_eq!(world.delete(seid), Err(not_found));
    assert_eq!(world.modify(seid, |_| {}), Err(not_found));
    assert_eq!(world.sessions.cp_seid(PeerId(1), seid), None);
    assert_eq!(world.sessions.cp_seid(PeerId(2), seid), Some(77));
    assert_eq!(world.delete(seid ^ 1), Err(not_found));
}

#[test]
fn sessions_of_a_restarted_peer_make_way_for_its_new_ones() {
    let mut world = World::new();
    let uplink = PdrIe {
        f_teid: Some(given(5)),
        ..PdrIe::uplink()
    };
    let request = |w: &mut Writer<'_>| ordinary_with(w, uplink.clone(), PdrIe::downlink());
    let (old, _) = world.establish(request).unwrap();
    let (other, _) = world
        .establish_from(PeerId(2), |w| {
            let downlink = PdrIe {
                ue: Some(ue4(Ipv4Addr::new(10, 60, 0, 10))),
                ..PdrIe::downlink()
            };
            ordinary_with(w, PdrIe::uplink(), downlink);
        })
        .unwrap();
    world.sessions.delete_peer(PeerId(1));
    assert_eq!(
        (world.sessions.len(), world.sessions.len_of(PeerId(1))),
        (1, 0)
    );
    assert_eq!(
        world.delete(old),
        Err(Cause::SESSION_CONTEXT_NOT_FOUND.into())
    );
    let (new, _) = world.establish(request).unwrap();
    assert_ne!(new, old);
    assert_eq!(world.sessions.reap(Time(2), 10, &mut world.tables), 0);
    assert!(world.sessions.cp_seid(PeerId(1), new).is_some());
    assert!(world.sessions.cp_seid(PeerId(2), other).is_some());
    assert_eq!(world.tables.live.len(), 2);
}

#[test]
fn a_departed_peers_sessions_go_in_slices() {
    let mut world = World::new();
    for host in 1..=10 {
        let ue = Some(ue4(Ipv4Addr::new(10, 60, 0, host)));
        let request = |w: &mut Writer<'_>| {
            ordinary_with(
                w,
                PdrIe::uplink(),
                PdrIe {
                    ue,
                    ..PdrIe::downlink()
                },
            );
        };
        world
            .establish_from(PeerId(u32::from(host % 3)), request)
            .unwrap();
    }
    world.sessions.delete_peer(PeerId(0));
    world.sessions.delete_peer(PeerId(1));
    assert_eq!(world.sessions.len(), 3);
    assert_eq!(world.sessions.summaries(None).count(), 3);
    assert_eq!(world.sessions.reap(Time(2), 4, &mut world.tables), 3);
    assert_eq!(world.sessions.reap(Time(2), 4, &mut world.tables), 0);
    assert_eq!(world.tables.live.len(), 3);
}

#[test]
fn limits_are_answered_with_cause_75() {
    let limits = Limits {
        sessions: 2,
        pdrs_per_session: 2,
        fars_per_session: 2,
        qers_per_session: 1,
        urrs_per_session: 1,
        bars_per_session: 1,
        filters_per_session: 2,
        qers_per_pdr: 2,
        ..Limits::default()
    };
    let mut world = World::with(&Config { limits, ..config() });
    let full = |ie, rule| refusal(Cause::NO_RESOURCES_AVAILABLE, ie, rule);
    refuses(&mut world, full(IeType::CREATE_PDR, pdr(3)), |w| {
        ordinary(w);
        PdrIe {
            id: 3,
            ..PdrIe::uplink()
        }
        .create(w);
    });
    refuses(&mut world, full(IeType::CREATE_FAR, far(3)), |w| {
        ordinary(w);
        far_to_core(w, 3);
    });
    refuses(
        &mut world,
        full(IeType::CREATE_QER, RuleId::Qer(QerId(2))),
        |w| {
            ordinary(w);
            qer(w, 2, None);
        },
    );
    refuses(&mut world, full(IeType::QER_ID, pdr(1)), |w| {
        PdrIe {
            qers: vec![1, 2, 3],
            ..PdrIe::uplink()
        }
        .create(w);
        far_to_core(w, 1);
    });
    refuses(&mut world, full(IeType::SDF_FILTER, pdr(1)), |w| {
        let filters = vec![flow("permit out 6 from any 1,2,3 to any")];
        ordinary_with(
            w,
            PdrIe {
                filters,
                ..PdrIe::uplink()
            },
            PdrIe::downlink(),
        );
    });
    for host in 1..=2 {
        let ue = Some(ue4(Ipv4Addr::new(10, 60, 0, host)));
        world
            .establish(|w| {
                ordinary_with(
                    w,
                    PdrIe::uplink(),
                    PdrIe {
                        ue,
                        ..PdrIe::downlink()
                    },
                )
            })
            .unwrap();
    }
    refuses(&mut world, Cause::NO_RESOURCES_AVAILABLE.into(), ordinary);
}

#[test]
fn an_empty_pool_is_answered_with_cause_79() {
    let mut world = World::new();
    let request = |w: &mut Writer<'_>| {
        ordinary_with(
            w,
            PdrIe::uplink(),
            PdrIe {
                ue: Some(choose4()),
                ..PdrIe::downlink()
            },
        );
    };
    for _ in 0..14 {
        world.establish(request).unwrap();
    }
    let full = refusal(
        Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED,
        IeType::UE_IP_ADDRESS,
        pdr(2),
    );
    refuses(&mut world, full, request);
}

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
        (IeType::REMOVE_PDR, IeType::PDR_ID, pdr(9)),
        (IeType::REMOVE_FAR, IeType::FAR_ID, far(9)),
        (IeType::REMOVE_QER, IeType::QER_ID, RuleId::Qer(QerId(9))),
        (IeType::REMOVE_URR, IeType::URR_ID, RuleId::Urr(UrrId(9))),
        (IeType::REMOVE_BAR, IeType::BAR_ID, RuleId::Bar(BarId(9))),
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
    // What this request itself says must be right.
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
fn qers_gate_and_share() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            let qers = vec![1, 2];
            PdrIe {
                qers: qers.clone(),
                ..PdrIe::uplink()
            }
            .create(w);
            PdrIe {
                qers: vec![2],
                ..PdrIe::downlink()
            }
            .create(w);
            let filters = vec![flow("permit out 17 from any 53 to assigned")];
            PdrIe {
                id: 3,
                precedence: Some(1),
                qers,
                filters,
                ..PdrIe::downlink()
            }
            .create(w);
            far_to_core(w, 1);
            far_to_access(w, 2, 0x5000);
            qer(w, 1, Some(100));
            qer(w, 2, Some(200));
        })
        .unwrap();
    let compiled = world.only();
    let of = |pdr: usize| -> Vec<(QerId, Direction)> {
        compiled.entries[pdr]
            .shared_meters
            .iter()
            .map(|&m| (compiled.meters[m].qer, compiled.meters[m].direction))
            .collect()
    };
    let down = Direction::Downlink;
    assert_eq!(of(1), [(QerId(2), down)]);
    assert_eq!(of(2), [(QerId(2), down)]);
    // Uplink there is one PDR, which the lower of the two limits; QER 1 is PDR 3's alone.
    assert_eq!(of(0), []);
    let own = |pdr: usize| compiled.entries[pdr].meter.map(|rate| rate.bps);
    assert_eq!(
        [own(0), own(1), own(2)],
        [Some(100_000), None, Some(100_000)]
    );
    world
        .modify(seid, |w| {
            w.grouped(IeType::UPDATE_QER, |w| {
                w.put(IeType::QER_ID, 1u32);
                w.put(
                    IeType::GATE_STATUS,
                    GateStatus {
                        uplink: Gate::Open,
                        downlink: Gate::Closed,
                    },
                );
            });
        })
        .unwrap();
    let actions: Vec<_> = world
        .only()
        .entries
        .iter()
        .map(|e| e.action == Action::GateClosed)
        .collect();
    assert_eq!(actions, [false, false, true]);
}

#[test]
fn an_mbr_of_nothing_lets_nothing_pass_and_a_large_one_is_exact() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            PdrIe {
                qers: vec![1],
                ..PdrIe::uplink()
            }
            .create(w);
            far_to_core(w, 1);
            qer(w, 1, Some(0));
        })
        .unwrap();
    assert_eq!(world.only().entries[0].meter.unwrap().bps, 0);
    for kbps in [400_000, 600_000, 1_200_000, 5_000_000, (1 << 40) - 1] {
        world
            .modify(seid, |w| {
                w.grouped(IeType::UPDATE_QER, |w| {
                    w.put(IeType::QER_ID, 1u32);
                    w.put(
                        IeType::MBR,
                        Mbr {
                            uplink_kbps: kbps,
                            downlink_kbps: 0,
                        },
                    );
                });
            })
            .unwrap();
        assert_eq!(world.only().entries[0].meter.unwrap().bps, kbps * 1000);
    }
}

#[test]
fn pdrs_are_tried_by_precedence_then_id() {
    let mut world = World::new();
    world
        .establish(|w| {
            for (id, precedence) in [(4, 9), (3, 1), (2, 9), (5, 1)] {
                PdrIe {
                    id,
                    precedence: Some(precedence),
                    ..PdrIe::downlink()
                }
                .create(w);
            }
            far_to_access(w, 2, 1);
        })
        .unwrap();
    let compiled = world.only();
    let order: Vec<u16> = compiled
        .filters
        .iter()
        .map(|f| compiled.entries[f.entry].pdr.0)
        .collect();
    assert_eq!(order, [3, 5, 2, 4]);
    assert_eq!(compiled.keys[0].1, Select::List { first: 0, len: 4 });
}

#[test]
fn equal_choose_ids_share_a_teid_within_a_request() {
    let mut world = World::new();
    let choose = |id| {
        Some(FTeid::Choose {
            ipv4: true,
            ipv6: true,
            choose_id: Some(id),
        })
    };
    let uplink = |id, choose_id| PdrIe {
        id,
        f_teid: choose(choose_id),
        ..PdrIe::uplink()
    };
    let (seid, created) = world
        .establish(|w| {
            uplink(1, 5).create(w);
            uplink(2, 5).create(w);
            uplink(3, 6).create(w);
            far_to_core(w, 1);
        })
        .unwrap();
    assert_eq!(created[0].f_teid, created[1].f_teid);
    assert_ne!(created[0].f_teid, created[2].f_teid);
    assert_eq!(world.sessions.fill().teids, 2);
    let (_, more) = world.modify(seid, |w| uplink(4, 5).create(w)).unwrap();
    assert_ne!(more[0].f_teid, created[0].f_teid);
    // One of two users of a TEID goes: the TEID stays.
    world
        .modify(seid, |w| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 1))
        .unwrap();
    assert_eq!(world.sessions.fill().teids, 3);
    world.delete(seid).unwrap();
    assert_eq!(world.sessions.fill().teids, 0);
}

#[test]
fn a_dual_stack_ue_is_found_by_both_addresses() {
    let mut world = World::new();
    let addr: Ipv6Addr = "2001:db8:60:3::99".parse().unwrap();
    let ue = Some(UeIpAddress {
        ipv4: Some(UE),
        ..ue6(addr)
    });
    world
        .establish(|w| {
            ordinary_with(
                w,
                PdrIe {
                    ue,
                    ..PdrIe::uplink()
                },
                PdrIe {
                    ue,
                    ..PdrIe::downlink()
                },
            )
        })
        .unwrap();
    let prefix: Ipv6Addr = "2001:db8:60:3::".parse().unwrap();
    let keys = world.tables.keys();
    assert!(keys.contains(&Key::Ue4 {
        ni: NiId(0),
        addr: UE
    }));
    assert!(keys.contains(&Key::Ue6 {
        ni: NiId(0),
        prefix
    }));
    assert_eq!(
        world.only().entries[0].ue.unwrap().v6.unwrap().to_string(),
        "2001:db8:60:3::/64"
    );
}

#[test]
fn the_first_qfi_that_is_not_zero_marks_the_downlink() {
    let mut world = World::new();
    let with_qfi = |w: &mut Writer<'_>, id: u32, qfi: u8| {
        w.grouped(IeType::CREATE_QER, |w| {
            w.put(IeType::QER_ID, id);
            w.put(
                IeType::GATE_STATUS,
                GateStatus {
                    uplink: Gate::Open,
                    downlink: Gate::Open,
                },
            );
            w.put(IeType::QFI, qfi);
        });
    };
    world
        .establish(|w| {
            PdrIe {
                qers: vec![1, 2],
                ..PdrIe::downlink()
            }
            .create(w);
            PdrIe {
                qfi: Some(9),
                ..PdrIe::uplink()
            }
            .create(w);
            far_to_core(w, 1);
            far_to_access(w, 2, 1);
            with_qfi(w, 1, 0);
            with_qfi(w, 2, 7);
        })
        .unwrap();
    let qfis: Vec<_> = world
        .only()
        .entries
        .iter()
        .map(|e| e.qfi.unwrap().get())
        .collect();
    assert_eq!(qfis, [7, 9]);
}

#[test]
fn a_filter_id_alone_means_the_flow_that_has_it() {
    let mut world = World::new();
    let by_id = SdfFilter {
        filter_id: Some(3),
        ..SdfFilter::default()
    };
    let whole = SdfFilter {
        filter_id: Some(3),
        ..flow("permit out 17 from 192.0.2.1 53 to assigned")
    };
    world
        .establish(|w| {
            let uplink = PdrIe {
                filters: vec![by_id],
                ..PdrIe::uplink()
            };
            ordinary_with(
                w,
                uplink,
                PdrIe {
                    filters: vec![whole],
                    ..PdrIe::downlink()
                },
            );
        })
        .unwrap();
    let flows: Vec<_> = world
        .only()
        .filters
        .iter()
        .map(|f| f.flow.unwrap())
        .collect();
    assert_eq!(
        (flows[0].dst, flows[0].dst_ports),
        (flows[1].src, flows[1].src_ports)
    );
    refuses(
        &mut World::new(),
        failure(IeType::SDF_FILTER, pdr(1)),
        |w| {
            ordinary_with(
                w,
                PdrIe {
                    filters: vec![by_id],
                    ..PdrIe::uplink()
                },
                PdrIe::downlink(),
            );
        },
    );
}

/// One line per thing that would change what packets meet: IE, where the refusal points.
#[test]
fn what_is_not_done_is_refused_not_ignored() {
    let up =
        |pdr: PdrIe| move |w: &mut Writer<'_>| ordinary_with(w, pdr.clone(), PdrIe::downlink());
    let down =
        |pdr: PdrIe| move |w: &mut Writer<'_>| ordinary_with(w, PdrIe::uplink(), pdr.clone());
    let mut world = World::new();
    for ie in [
        IeType::MAR_ID,
        IeType::UE_IP_ADDRESS_POOL_IDENTITY,
        IeType::IP_MULTICAST_ADDRESSING_INFO,
    ] {
        let extra = vec![(ie, vec![0; 8])];
        refuses(
            &mut world,
            failure(ie, pdr(1)),
            up(PdrIe {
                extra,
                ..PdrIe::uplink()
            }),
        );
    }
    for ie in [
        IeType::APPLICATION_ID,
        IeType::TRAFFIC_ENDPOINT_ID,
        IeType::ETHERNET_PACKET_FILTER,
        IeType::REDUNDANT_TRANSMISSION_PARAMETERS,
    ] {
        let extra_pdi = vec![(ie, vec![0; 8])];
        refuses(
            &mut world,
            failure(ie, pdr(1)),
            up(PdrIe {
                extra_pdi,
                ..PdrIe::uplink()
            }),
        );
    }
    for removal in [1, 2, 3, 4, 5, 7, 8] {
        let removal = Some(removal);
        refuses(
            &mut world,
            failure(IeType::OUTER_HEADER_REMOVAL, pdr(1)),
            up(PdrIe {
                removal,
                ..PdrIe::uplink()
            }),
        );
    }
    refuses(
        &mut world,
        failure(IeType::OUTER_HEADER_REMOVAL, pdr(1)),
        up(PdrIe {
            removal: None,
            ..PdrIe::uplink()
        }),
    );
    refuses(
        &mut world,
        failure(IeType::OUTER_HEADER_REMOVAL, pdr(2)),
        down(PdrIe {
            removal: Some(0),
            ..PdrIe::downlink()
        }),
    );
    refuses(
        &mut world,
        failure(IeType::SOURCE_INTERFACE, pdr(1)),
        up(PdrIe {
            source: 4,
            ..PdrIe::uplink()
        }),
    );
    for f_teid in [
        FTeid::Choose {
            ipv4: false,
            ipv6: true,
            choose_id: None,
        },
        FTeid::Given {
            teid: 5,
            ipv4: None,
            ipv6: Some(Ipv6Addr::LOCALHOST),
        },
        FTeid::Given {
            teid: 5,
            ipv4: Some(GNB),
            ipv6: None,
        },
        given(0),
    ] {
        let f_teid = Some(f_teid);
        refuses(
            &mut world,
            failure(IeType::F_TEID, pdr(1)),
            up(PdrIe {
                f_teid,
                ..PdrIe::uplink()
            }),
        );
    }
    refuses(
        &mut world,
        failure(IeType::F_TEID, pdr(2)),
        down(PdrIe {
            source: 2,
            f_teid: Some(CHOOSE),
            ..PdrIe::downlink()
        }),
    );
    let missing = |ie, rule| refusal(Cause::CONDITIONAL_IE_MISSING, ie, rule);
    refuses(
        &mut world,
        missing(IeType::F_TEID, pdr(1)),
        up(PdrIe {
            f_teid: None,
            ..PdrIe::uplink()
        }),
    );
    refuses(&mut world, missing(IeType::UE_IP_ADDRESS, pdr(2)), |w| {
        let without = |pdr: PdrIe| PdrIe { ue: None, ..pdr };
        ordinary_with(w, without(PdrIe::uplink()), without(PdrIe::downlink()));
    });
    refuses(
        &mut world,
        failure(IeType::NETWORK_INSTANCE, pdr(2)),
        down(PdrIe {
            ni: Some("nowhere"),
            ..PdrIe::downlink()
        }),
    );
    refuses(
        &mut world,
        failure(IeType::QFI, pdr(2)),
        down(PdrIe {
            qfi: Some(1),
            ..PdrIe::downlink()
        }),
    );
    for ue in [
        UeIpAddress {
            destination: true,
            ..ue4(UE)
        },
        UeIpAddress {
            prefix_length: Some(56),
            ..ue6(Ipv6Addr::LOCALHOST)
        },
        UeIpAddress {
            delegation_bits: Some(8),
            ..ue6(Ipv6Addr::LOCALHOST)
        },
    ] {
        let ue = Some(ue);
        refuses(
            &mut world,
            failure(IeType::UE_IP_ADDRESS, pdr(1)),
            up(PdrIe {
                ue,
                ..PdrIe::uplink()
            }),
        );
    }
    for filter in [
        flow("permit in ip from any to assigned"),
        flow("deny out ip from any to assigned"),
        flow("permit out ip from !192.0.2.1 to assigned"),
        SdfFilter {
            flow_label: Some(1),
            ..flow("permit out ip from 192.0.2.1 to assigned")
        },
    ] {
        let filters = vec![filter];
        refuses(
            &mut world,
            failure(IeType::SDF_FILTER, pdr(1)),
            up(PdrIe {
                filters,
                ..PdrIe::uplink()
            }),
        );
    }
    // An access network may have any name.
    assert!(
        world
            .establish(up(PdrIe {
                ni: Some("access.oai.org"),
                ..PdrIe::uplink()
            }))
            .is_ok()
    );
}

#[test]
fn fars_that_cannot_be_honoured_are_refused() {
    let mut world = World::new();
    let far_with = |action: ApplyAction, destination: u8, extra: Vec<(IeType, Vec<u8>)>| {
        move |w: &mut Writer<'_>| {
            PdrIe::uplink().create(w);
            w.grouped(IeType::CREATE_FAR, |w| {
                w.put(IeType::FAR_ID, 1u32);
                w.put(IeType::APPLY_ACTION, action);
                w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::DESTINATION_INTERFACE, destination);
                    extra.iter().for_each(|(ie, value)| w.ie(*ie, value));
                });
            });
        }
    };
    for bits in [0, 3, 6, 8, 10, 0x12, 0x22, 0x82, 0x102, 0x204] {
        let action = ApplyAction::from_bits_retain(bits);
        refuses(
            &mut world,
            failure(IeType::APPLY_ACTION, far(1)),
            far_with(action, 1, vec![]),
        );
    }
    for destination in [4, 5] {
        let request = far_with(ApplyAction::FORW, destination, vec![]);
        refuses(
            &mut world,
            failure(IeType::DESTINATION_INTERFACE, far(1)),
            request,
        );
    }
    // To access and to the SMF there are tunnels only.
    for destination in [0, 3] {
        let request = far_with(ApplyAction::FORW, destination, vec![]);
        refuses(
            &mut world,
            failure(IeType::OUTER_HEADER_CREATION, far(1)),
            request,
        );
    }
    for ie in [
        IeType::REDIRECT_INFORMATION,
        IeType::FORWARDING_POLICY,
        IeType::HEADER_ENRICHMENT,
        IeType::PROXYING,
    ] {
        refuses(
            &mut world,
            failure(ie, far(1)),
            far_with(ApplyAction::FORW, 1, vec![(ie, vec![0; 8])]),
        );
    }
    // UDP/IPv4, GTP-U/UDP/IPv6 without an address of ours, TEID zero.
    for header in [
        vec![4, 0, 10, 3, 1, 1, 0, 9],
        [vec![2, 0, 0, 0, 0, 9], vec![1; 16]].concat(),
        vec![1, 0, 0, 0, 0, 0, 10, 3, 1, 1],
    ] {
        let extra = vec![(IeType::OUTER_HEADER_CREATION, header)];
        let request = far_with(ApplyAction::FORW, 1, extra);
        refuses(
            &mut world,
            failure(IeType::OUTER_HEADER_CREATION, far(1)),
            request,
        );
    }
    for header in [vec![], vec![1], vec![1, 0, 0, 0, 0, 9]] {
        let wrong = refusal(Cause::INVALID_LENGTH, IeType::OUTER_HEADER_CREATION, None);
        let extra = vec![(IeType::OUTER_HEADER_CREATION, header)];
        refuses(&mut world, wrong, far_with(ApplyAction::FORW, 1, extra));
    }
    let no_tunnel = |w: &mut Writer<'_>| {
        PdrIe {
            far: Some(1),
            ..PdrIe::downlink()
        }
        .create(w);
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, 1u32);
            w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
            w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, 0u8)
            });
        });
    };
    refuses(
        &mut world,
        failure(IeType::OUTER_HEADER_CREATION, far(1)),
        no_tunnel,
    );
}

#[test]
fn a_tunnel_offered_over_both_families_goes_over_ipv4() {
    let mut world = World::new();
    let both = OuterHeaderCreation {
        description: OuterHeader::GTPU_UDP_IPV4 | OuterHeader::GTPU_UDP_IPV6,
        ipv6: Some(Ipv6Addr::LOCALHOST),
        ..tunnel(5)
    };
    world
        .establish(|w| {
            PdrIe::downlink().create(w);
            w.grouped(IeType::CREATE_FAR, |w| {
                w.put(IeType::FAR_ID, 2u32);
                w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
                w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::DESTINATION_INTERFACE, 0u8);
                    w.put(IeType::OUTER_HEADER_CREATION, both);
                });
            });
        })
        .unwrap();
    assert_eq!(
        world.only().entries[0].action,
        Action::Tunnel {
            teid: 5,
            peer: GNB.into(),
            local: N3.into()
        }
    );
}

#[test]
fn qers_that_cannot_be_honoured_are_refused() {
    let mut world = World::new();
    let with = |ie: IeType, value: Vec<u8>| {
        move |w: &mut Writer<'_>| {
            PdrIe {
                qers: vec![1],
                ..PdrIe::uplink()
            }
            .create(w);
            far_to_core(w, 1);
            w.grouped(IeType::CREATE_QER, |w| {
                w.put(IeType::QER_ID, 1u32);
                w.put(IeType::GATE_STATUS, 0u8);
                w.ie(ie, &value);
            });
        }
    };
    for (ie, value) in [
        (IeType::QER_CORRELATION_ID, vec![0; 4]),
        // APRC.
        (IeType::PACKET_RATE, vec![5, 0, 0, 10, 0, 5]),
        (IeType::PACKET_RATE_STATUS, vec![0]),
        (IeType::DL_FLOW_LEVEL_MARKING, vec![1, 0xb8, 0xfc]),
        (IeType::QER_CONTROL_INDICATIONS, vec![1]),
        (IeType::QER_INDICATIONS, vec![1]),
    ] {
        refuses(
            &mut world,
            failure(ie, RuleId::Qer(QerId(1))),
            with(ie, value),
        );
    }
    let nothing = Gbr {
        uplink_kbps: 0,
        downlink_kbps: 0,
    };
    assert!(
        world
            .establish(|w| {
                PdrIe {
                    qers: vec![1],
                    ..PdrIe::uplink()
                }
                .create(w);
                far_to_core(w, 1);
                w.grouped(IeType::CREATE_QER, |w| {
                    w.put(IeType::QER_ID, 1u32);
                    w.put(IeType::GATE_STATUS, 0u8);
                    w.put(IeType::GBR, nothing);
                    w.put(IeType::AVERAGING_WINDOW, 2000u32);
                    w.put(IeType::RQI, 0u8);
                });
            })
            .is_ok()
    );
}

#[test]
fn requests_for_other_services_are_refused() {
    let mut world = World::new();
    let not_served = |ie| refusal(Cause::SERVICE_NOT_SUPPORTED, ie, None);
    for pdn in [PdnType::Ethernet, PdnType::NonIp] {
        refuses(&mut world, not_served(IeType::PDN_TYPE), |w| {
            ordinary(w);
            w.put(IeType::PDN_TYPE, pdn);
        });
    }
    refuses(
        &mut world,
        not_served(IeType::CREATE_TRAFFIC_ENDPOINT),
        |w| {
            ordinary(w);
            w.ie(IeType::CREATE_TRAFFIC_ENDPOINT, &[]);
        },
    );
    let missing = |ie| refusal(Cause::MANDATORY_IE_MISSING, ie, None);
    refuses(&mut world, missing(IeType::CREATE_PDR), |w| {
        far_to_core(w, 1)
    });
    refuses(&mut world, missing(IeType::CREATE_FAR), |w| {
        PdrIe::uplink().create(w)
    });
    let (seid, _) = world
        .establish(|w| {
            ordinary(w);
            w.put(IeType::PDN_TYPE, PdnType::Ipv4v6);
            w.ie(IeType::USER_ID, &[0; 9]);
            w.ie(IeType::S_NSSAI, &[1, 0, 0, 0]);
            w.ie(IeType(0x8001), &[0, 9, 1]);
            w.ie(IeType(999), &[1, 2]);
        })
        .unwrap();
    let flags =
        |flags: PfcpSmReqFlags| move |w: &mut Writer<'_>| w.put(IeType::PFCPSMREQ_FLAGS, flags);
    refuses_to_modify(
        &mut world,
        seid,
        not_served(IeType::PFCPSMREQ_FLAGS),
        flags(PfcpSmReqFlags::SNDEM),
    );
    assert!(
        world
            .modify(seid, flags(PfcpSmReqFlags::DROBU | PfcpSmReqFlags::QAURR))
            .is_ok()
    );
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
    assert_eq!(
        (view.urrs, view.bars, view.pdrs[0].urrs.clone()),
        (vec![1], vec![], vec![1])
    );
    assert_eq!(view.fars[1].bar, None);
    let kept = &world.sessions.rules(seid).unwrap().urrs[0].ies;
    assert_eq!(kept.windows(4).filter(|w| *w == [0, 64, 0, 4]).count(), 1);
    assert!(kept.ends_with(&[0, 64, 0, 4, 0, 0, 0, 60]));
    let large = refusal(Cause::NO_RESOURCES_AVAILABLE, IeType::CREATE_URR, None);
    refuses_to_modify(&mut world, seid, large, |w| {
        w.grouped(IeType::UPDATE_URR, |w| {
            w.put(IeType::URR_ID, 1u32);
            w.ie(IeType(40000), &[0; 600]);
        });
    });
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
    assert!(
        world
            .tables
            .keys()
            .contains(&Key::Teid { teid, direct: true })
    );
    assert_eq!(world.only().entries[0].ue, None);
}
