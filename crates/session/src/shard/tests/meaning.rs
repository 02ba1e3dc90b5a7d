//! Meaning of rules to packets.

use std::net::Ipv6Addr;

use compiled::{Action, Compiled, Direction, Key, NiId, QerId, Select};
use pfcp::ie::{GateStatus, Mbr};

use super::cases::{failure, pdr, refuses};
use super::*;

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

/// The PDRs that packets to the UE are tried against.
fn tried_for_ue(compiled: &Compiled) -> Vec<u16> {
    let is_ue = |(key, _): &&(Key, Select)| matches!(key, Key::Ue4 { .. });
    let pdr = |entry: usize| compiled.entries[entry].pdr.0;
    match compiled.keys.iter().find(is_ue).unwrap().1 {
        Select::One(entry) => vec![pdr(entry)],
        Select::List { first, len } => {
            let list = &compiled.filters[first..first + len];
            list.iter().map(|filter| pdr(filter.entry)).collect()
        }
    }
}

/// Open5GS' own UPF sends packets of a QoS flow by the default flow until the gNB has accepted it.
#[test]
fn a_flow_that_the_gnb_has_not_accepted_leaves_its_packets_to_the_default_flow() {
    const IDLE: ApplyAction = ApplyAction::BUFF.union(ApplyAction::NOCP);
    let update_far = |w: &mut Writer<'_>, id: u32, action, teid: Option<u32>| {
        w.grouped(IeType::UPDATE_FAR, |w| {
            w.put(IeType::FAR_ID, id);
            w.put(IeType::APPLY_ACTION, action);
            if let Some(teid) = teid {
                w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                    w.put(IeType::DESTINATION_INTERFACE, 0u8);
                    w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
                });
            }
        });
    };
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    world
        .modify(seid, |w| {
            PdrIe {
                id: 5,
                precedence: Some(1),
                ue: None,
                far: Some(4),
                filters: vec![flow("permit out icmp from any to assigned")],
                ..PdrIe::downlink()
            }
            .create(w);
            far_of(w, 4, IDLE);
        })
        .unwrap();
    assert_eq!(tried_for_ue(world.only()), [2]);
    // Also while that flow waits itself: what waits with it leaves with it.
    world
        .modify(seid, |w| update_far(w, 2, IDLE, None))
        .unwrap();
    assert_eq!(tried_for_ue(world.only()), [2]);
    // Nobody is told of what waits there, or it is lost.
    for action in [ApplyAction::BUFF, ApplyAction::DROP] {
        world
            .modify(seid, |w| update_far(w, 2, action, None))
            .unwrap();
        assert_eq!(tried_for_ue(world.only()), [5, 2]);
    }
    world
        .modify(seid, |w| update_far(w, 2, ApplyAction::FORW, None))
        .unwrap();
    assert_eq!(tried_for_ue(world.only()), [2]);
    // Packets that a closed gate would drop there wait instead.
    let gate = |w: &mut Writer<'_>, closed: u8| {
        w.grouped(IeType::UPDATE_QER, |w| {
            w.put(IeType::QER_ID, 1u32);
            w.put(IeType::GATE_STATUS, closed);
        });
    };
    world.modify(seid, |w| gate(w, 1)).unwrap();
    assert_eq!(tried_for_ue(world.only()), [5, 2]);
    world.modify(seid, |w| gate(w, 0)).unwrap();
    assert_eq!(tried_for_ue(world.only()), [2]);
    // The gNB accepts; from now on the flow has its packets, also those that wait.
    world
        .modify(seid, |w| update_far(w, 4, ApplyAction::FORW, Some(0x5000)))
        .unwrap();
    assert_eq!(tried_for_ue(world.only()), [5, 2]);
    world
        .modify(seid, |w| update_far(w, 4, IDLE, None))
        .unwrap();
    assert_eq!(tried_for_ue(world.only()), [5, 2]);
}

#[test]
fn equal_choose_ids_share_a_teid_for_the_life_of_the_session() {
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
    // A dedicated QoS flow: the gNB sends it into the tunnel that it knows.
    let (_, more) = world.modify(seid, |w| uplink(4, 5).create(w)).unwrap();
    assert_eq!(more[0].f_teid, created[0].f_teid);
    let (_, more) = world.modify(seid, |w| uplink(5, 7).create(w)).unwrap();
    assert!(created.iter().all(|c| c.f_teid != more[0].f_teid));
    // Some of its users go: the TEID stays, also for one that takes the place of the last.
    let gone = |w: &mut Writer<'_>, id| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, id);
    world
        .modify(seid, |w| [1, 2].into_iter().for_each(|id| gone(w, id)))
        .unwrap();
    let (_, more) = world
        .modify(seid, |w| {
            gone(w, 4);
            uplink(6, 5).create(w);
        })
        .unwrap();
    assert_eq!(more[0].f_teid, created[0].f_teid);
    assert_eq!(world.sessions.fill().teids, 3);
    // Of another session it is another one.
    let (other, others) = world
        .establish(|w| {
            uplink(1, 5).create(w);
            far_to_core(w, 1);
        })
        .unwrap();
    assert_ne!(others[0].f_teid, created[0].f_teid);
    world.delete(other).unwrap();
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
