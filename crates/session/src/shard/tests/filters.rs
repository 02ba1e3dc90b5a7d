//! SDF filters and PDRs that leave it to the session where their packets are found.

use compiled::{Filter, Flow, NiId, QfiSet, Select};
use pfcp::Cause;

use super::cases::{failure, pdr, refusal, refuses};
use super::*;

const WITHOUT: PdrIe = PdrIe {
    id: 0,
    precedence: Some(10),
    source: 0,
    f_teid: None,
    ni: None,
    ue: None,
    qfi: None,
    filters: Vec::new(),
    removal: None,
    far: None,
    qers: Vec::new(),
    urrs: Vec::new(),
    extra: Vec::new(),
    extra_pdi: Vec::new(),
};

/// Uplink PDR 3 and downlink PDR 4 with nothing in the PDI but a filter.
fn bare_pair(w: &mut Writer<'_>, filter: SdfFilter<'static>) {
    PdrIe {
        id: 3,
        filters: vec![filter],
        removal: Some(0),
        far: Some(1),
        ..WITHOUT
    }
    .create(w);
    PdrIe {
        id: 4,
        source: 1,
        filters: vec![filter],
        far: Some(2),
        ..WITHOUT
    }
    .create(w);
}

/// PDR IDs that packets of each key meet, first to last.
fn order(world: &World) -> Vec<(Key, Vec<u16>)> {
    let compiled = world.only();
    let pdr = |entry: usize| compiled.entries[entry].pdr.0;
    let keys = compiled.keys.iter().map(|&(key, select)| match select {
        Select::One(entry) => (key, vec![pdr(entry)]),
        Select::List { first, len } => {
            let list = compiled.filters[first..first + len].iter();
            (key, list.map(|f| pdr(f.entry)).collect())
        }
    });
    keys.collect()
}

const TEID: Key = Key::direct(0x0100_0001);
const ADDRESS: Key = Key::Ue4 {
    ni: NiId(0),
    addr: UE,
};

#[test]
fn a_flow_added_without_f_teid_or_ue_address_is_found_by_those_of_the_session() {
    let mut world = World::new();
    let (seid, _) = world.establish(ordinary).unwrap();
    world
        .modify(seid, |w| {
            bare_pair(w, flow("permit out 17 from 172.23.0.23 5201 to assigned"));
        })
        .unwrap();
    assert_eq!(order(&world), [(TEID, vec![3, 1]), (ADDRESS, vec![4, 2])]);
    let up = world.only().filters[0].flow.unwrap();
    assert_eq!((up.src_ports, up.dst_ports), (None, Some((5201, 5201))));
    world
        .modify(seid, |w| {
            remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 3);
            remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 4);
        })
        .unwrap();
    assert_eq!(order(&world), [(TEID, vec![1]), (ADDRESS, vec![2])]);
}

#[test]
fn a_session_without_any_f_teid_or_ue_address_is_refused() {
    let missing = |ie, id| refusal(Cause::CONDITIONAL_IE_MISSING, ie, pdr(id));
    let any = flow("permit out ip from any to assigned");
    refuses(&mut World::new(), missing(IeType::F_TEID, 3), |w| {
        bare_pair(w, any);
        PdrIe::downlink().create(w);
        far_to_core(w, 1);
        far_to_access(w, 2, 1);
    });
    refuses(&mut World::new(), missing(IeType::UE_IP_ADDRESS, 4), |w| {
        bare_pair(w, any);
        PdrIe {
            ue: None,
            ..PdrIe::uplink()
        }
        .create(w);
        far_to_core(w, 1);
        far_to_access(w, 2, 1);
    });
}

/// An address that only the uplink checks is nobody's; one by which packets come is of one session.
#[test]
fn the_ue_address_of_the_uplink_may_lead_the_downlink_and_is_taken_then() {
    let mut world = World::new();
    let bare = |w: &mut Writer<'_>| {
        ordinary_with(
            w,
            PdrIe::uplink(),
            PdrIe {
                ue: None,
                ..PdrIe::downlink()
            },
        );
    };
    let (seid, _) = world.establish(bare).unwrap();
    assert_eq!(order(&world)[1], (ADDRESS, vec![2]));
    let twice = failure(IeType::UE_IP_ADDRESS, pdr(2));
    refuses(&mut world, twice, ordinary);
    refuses(&mut world, failure(IeType::UE_IP_ADDRESS, pdr(1)), bare);
    world.delete(seid).unwrap();
    assert_eq!(world.sessions.fill().pools[0][0].held(), 0);
    world.establish(ordinary).unwrap();
}

#[test]
fn an_empty_sdf_filter_matches_everything() {
    for empty in [SdfFilter::default(), flow(""), flow("\0")] {
        let mut world = World::new();
        let with = |pdr: PdrIe| PdrIe {
            filters: vec![empty],
            ..pdr
        };
        world
            .establish(|w| ordinary_with(w, with(PdrIe::uplink()), with(PdrIe::downlink())))
            .unwrap();
        let filters = &world.only().filters;
        assert!(filters.iter().all(|f| f.flow.is_none()) && filters.len() == 2);
    }
}

#[test]
fn a_filter_asks_for_tos_spi_and_flow_label_too() {
    let mut world = World::new();
    let filter = SdfFilter {
        tos_traffic_class: Some(0xb8fc),
        security_parameter_index: Some(7),
        flow_label: Some(0xf_abcde),
        ..flow("permit out 50 from 2001:db8:f::/64 to assigned")
    };
    let uplink = PdrIe {
        filters: vec![filter],
        ..PdrIe::uplink()
    };
    world
        .establish(|w| ordinary_with(w, uplink.clone(), PdrIe::downlink()))
        .unwrap();
    let asked = world.only().filters[0].flow.unwrap();
    assert_eq!(
        (asked.tos, asked.spi, asked.label),
        (Some((0xb8, 0xfc)), Some(7), Some(0xf_abcde & 0xf_ffff))
    );
    let tos_alone = SdfFilter {
        tos_traffic_class: Some(0xb8ff),
        ..SdfFilter::default()
    };
    let mut world = World::new();
    let uplink = PdrIe {
        filters: vec![tos_alone],
        ..PdrIe::uplink()
    };
    world
        .establish(|w| ordinary_with(w, uplink.clone(), PdrIe::downlink()))
        .unwrap();
    let asked = Flow {
        tos: Some((0xb8, 0xff)),
        ..Flow::default()
    };
    assert_eq!(world.only().filters[0].flow, Some(asked));
}

#[test]
fn a_pdi_may_take_several_qfis() {
    let mut world = World::new();
    let extra_pdi = vec![(IeType::QFI, vec![9]), (IeType::QFI, vec![63])];
    world
        .establish(|w| {
            let uplink = PdrIe {
                qfi: Some(1),
                extra_pdi: extra_pdi.clone(),
                ..PdrIe::uplink()
            };
            ordinary_with(w, uplink, PdrIe::downlink());
        })
        .unwrap();
    let qfis = QfiSet(1 << 1 | 1 << 9 | 1 << 63);
    assert_eq!(
        world.only().filters,
        [Filter {
            entry: 0,
            flow: None,
            qfis
        }]
    );
    assert_eq!(world.only().entries[0].qfi, None);
}

const fn by_id() -> SdfFilter<'static> {
    SdfFilter {
        flow_description: None,
        tos_traffic_class: None,
        security_parameter_index: None,
        flow_label: None,
        filter_id: Some(3),
    }
}

fn named(text: &'static str) -> SdfFilter<'static> {
    SdfFilter {
        filter_id: Some(3),
        ..flow(text)
    }
}

fn filtered(pdr: PdrIe, filter: SdfFilter<'static>) -> PdrIe {
    PdrIe {
        filters: vec![filter],
        ..pdr
    }
}

/// The ports in the data network, of the uplink and of the downlink filter.
fn remote_ports(world: &World) -> Vec<Option<(u16, u16)>> {
    let compiled = world.only();
    let port = |f: &Filter| {
        let flow = f.flow?;
        flow.src_ports.or(flow.dst_ports)
    };
    compiled.filters.iter().map(port).collect()
}

#[test]
fn a_bidirectional_filter_outlives_the_pdr_that_brought_it() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            PdrIe {
                id: 5,
                ..filtered(PdrIe::uplink(), by_id())
            }
            .create(w);
            ordinary_with(
                w,
                PdrIe::uplink(),
                filtered(
                    PdrIe::downlink(),
                    named("permit out 17 from any 53 to assigned"),
                ),
            );
        })
        .unwrap();
    world
        .modify(seid, |w| {
            remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 2);
        })
        .unwrap();
    assert_eq!(remote_ports(&world), [Some((53, 53))]);
    // It is still there to be referred to.
    world
        .modify(seid, |w| filtered(PdrIe::downlink(), by_id()).create(w))
        .unwrap();
    assert_eq!(remote_ports(&world), [Some((53, 53)); 2]);
    // With the last PDR that has it, it is gone.
    world
        .modify(seid, |w| {
            remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 2);
            remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 5);
        })
        .unwrap();
    let unknown = world.modify(seid, |w| filtered(PdrIe::downlink(), by_id()).create(w));
    assert_eq!(unknown, Err(failure(IeType::SDF_FILTER, pdr(2))));
}

#[test]
fn a_bidirectional_filter_changes_in_all_pdrs_at_once() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            ordinary_with(
                w,
                filtered(PdrIe::uplink(), named("permit out 17 from any 53 to any")),
                filtered(PdrIe::downlink(), by_id()),
            );
        })
        .unwrap();
    world
        .modify(seid, |w| {
            filtered(PdrIe::downlink(), named("permit out 17 from any 54 to any")).update(w, true);
        })
        .unwrap();
    assert_eq!(remote_ports(&world), [Some((54, 54)); 2]);
    // Another update that has nothing to do with it leaves it alone.
    world
        .modify(seid, |w| {
            PdrIe {
                precedence: Some(7),
                ..PdrIe::uplink()
            }
            .update(w, false)
        })
        .unwrap();
    assert_eq!(remote_ports(&world), [Some((54, 54)); 2]);
    let twice = world.modify(seid, |w| {
        filtered(PdrIe::downlink(), named("permit out 17 from any 55 to any")).update(w, true);
        filtered(given_uplink(), named("permit out 17 from any 56 to any")).update(w, true);
    });
    assert!(twice.is_err_and(|r| r.offending_ie == Some(IeType::SDF_FILTER)));
    assert_eq!(remote_ports(&world), [Some((54, 54)); 2]);
}

fn given_uplink() -> PdrIe {
    PdrIe {
        f_teid: Some(given(0x0100_0001)),
        ..PdrIe::uplink()
    }
}
