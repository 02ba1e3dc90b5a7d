//! Cases that broke others, and cases from the specifications.

use compiled::{Action, NiId, NoRoom, QerId, Select};
use pfcp::Cause;

use super::*;
use crate::rules::{FarId, RuleId};
use crate::shard::resources::{ChosenFTeid, CreatedFor};

pub(super) fn pdr(id: u16) -> RuleId {
    RuleId::Pdr(PdrId(id))
}

pub(super) fn far(id: u32) -> RuleId {
    RuleId::Far(FarId(id))
}

pub(super) fn refusal(cause: Cause, ie: IeType, rule: impl Into<Option<RuleId>>) -> Refusal {
    Refusal {
        cause,
        offending_ie: Some(ie),
        failed_rule: rule.into(),
        shortage: None,
        unknown: None,
    }
}

/// For want of room in this table.
pub(super) fn without_room(table: &'static str) -> Refusal {
    Refusal::short_of(NoRoom::of(table).into())
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
pub(super) fn refuses_to_modify(
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
fn counts_say_whose_packets_they_are_of() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    let counts = world.sessions.counts(seid, &world.tables).unwrap();
    assert_eq!((counts.seid, &counts.ue), (seid, &view.summary.ue));
    assert!(!counts.ue.is_empty());
    let instances = view.pdrs.iter().map(|pdr| pdr.network_instance.clone());
    let routes = view.fars.iter().map(|far| far.network_instance.clone());
    let named = instances.chain(routes).flatten().next();
    assert_eq!(counts.network_instance, named);
    assert!(named.is_some());
    let pdrs = view
        .pdrs
        .iter()
        .map(|pdr| (pdr.id, pdr.direction, pdr.counters));
    assert_eq!(counts.pdrs, Vec::from_iter(pdrs));
    assert_eq!(Vec::from_iter(world.sessions.seids(None)), [seid]);
    assert_eq!(world.sessions.seids(Some(seid)).count(), 0);
    world.delete(seid).unwrap();
    assert_eq!(world.sessions.counts(seid, &world.tables), None);
    assert_eq!(world.sessions.seids(None).count(), 0);
}

#[test]
fn the_ordinary_session_becomes_two_entries() {
    let mut world = World::new();
    let (seid, created) = world.establish(ordinary).unwrap();
    assert_ne!(seid, 0);
    let [
        Created {
            of: CreatedFor::Pdr(PdrId(1)),
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
            (Key::direct(teid), Select::One(0)),
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
            (fill.teids, fill.pools[0][0].held(), world.tables.live.len()),
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
    let no_room = without_room("entries");
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

/// Restoration Indication (TS 29.244, 8.2.128): gNBs go on sending where they sent before the UPF was started anew.
#[test]
fn a_session_that_is_restored_has_its_former_f_teids() {
    let restores = |w: &mut Writer<'_>| w.ie(IeType::PFCPSEREQ_FLAGS, &[1]);
    let chosen = |world: &mut World| {
        let (_, created) = world.establish(ordinary).unwrap();
        created[0].f_teid.unwrap().teid
    };
    let former = chosen(&mut World::new());
    let mut world = World::new();
    let uplink = PdrIe {
        f_teid: Some(given(former)),
        ..PdrIe::uplink()
    };
    let (seid, created) = world
        .establish(|w| {
            ordinary_with(w, uplink.clone(), PdrIe::downlink());
            restores(w);
        })
        .unwrap();
    assert!(created.is_empty(), "nothing is left to choose");
    assert_eq!(world.sessions.fill().teids, 1);
    // Not a second time, nor does anybody else get them.
    let other = PdrIe {
        ue: Some(ue4(Ipv4Addr::new(10, 60, 0, 10))),
        ..PdrIe::downlink()
    };
    refuses(&mut world, failure(IeType::F_TEID, pdr(1)), |w| {
        ordinary_with(w, uplink.clone(), other.clone());
        restores(w);
    });
    world.delete(seid).unwrap();
    assert_ne!(chosen(&mut world), former);
}

#[test]
fn a_peer_reaches_its_own_sessions_only() {
    let mut world = World::new();
    let (seid, _) = world.establish_from(PeerId(2), ordinary).unwrap();
    let not_found = Refusal::from(Cause::SESSION_CONTEXT_NOT_FOUND);
    assert_eq!(world.delete(seid), Err(not_found));
    assert_eq!(world.modify(seid, |_| {}), Err(not_found));
    assert!(world.sessions.owned(PeerId(1), seid).is_none());
    let place = world.sessions.owned(PeerId(2), seid).unwrap();
    assert_eq!(world.sessions.cp_seid(place), 77);
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
    assert!(world.sessions.owned(PeerId(1), new).is_some());
    assert!(world.sessions.owned(PeerId(2), other).is_some());
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
    refuses(&mut world, without_room("sessions"), ordinary);
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
