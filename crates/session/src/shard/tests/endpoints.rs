//! Traffic Endpoints.

use compiled::NiId;
use pfcp::{Cause, IeType, Writer};

use super::cases::refuses_to_modify;
use super::cases::{failure, pdr, refusal, refuses};
use super::*;
use crate::rules::{FarId, RuleId};
use crate::shard::resources::CreatedFor;

/// An endpoint under construction; what is not set is left out.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointIe {
    pub(super) id: u8,
    pub(super) f_teid: Option<FTeid>,
    pub(super) ni: Option<&'static str>,
    pub(super) ue: Option<UeIpAddress>,
    pub(super) qfi: Option<u8>,
    pub(super) framed: Option<&'static str>,
}

impl EndpointIe {
    pub(super) fn write(&self, w: &mut Writer<'_>, kind: IeType) {
        w.grouped(kind, |w| {
            w.put(IeType::TRAFFIC_ENDPOINT_ID, self.id);
            if let Some(f_teid) = self.f_teid {
                w.f_teid(f_teid);
            }
            if let Some(ni) = self.ni {
                w.network_instance(ni);
            }
            if let Some(ue) = self.ue {
                w.ue_ip_address(ue);
            }
            if let Some(qfi) = self.qfi {
                w.put(IeType::QFI, qfi);
            }
            if let Some(framed) = self.framed {
                w.ie(IeType::FRAMED_ROUTE, framed.as_bytes());
            }
        });
    }

    fn create(&self, w: &mut Writer<'_>) {
        self.write(w, IeType::CREATE_TRAFFIC_ENDPOINT);
    }

    fn update(&self, w: &mut Writer<'_>) {
        self.write(w, IeType::UPDATE_TRAFFIC_ENDPOINT);
    }
}

/// Towards access: a tunnel of our choice and the UE.
fn access() -> EndpointIe {
    EndpointIe {
        id: 1,
        f_teid: Some(CHOOSE),
        ue: Some(ue4(UE)),
        ..EndpointIe::default()
    }
}

/// Towards the data network: the UE.
fn core() -> EndpointIe {
    EndpointIe {
        id: 2,
        ni: Some("internet"),
        ue: Some(ue4(UE)),
        ..EndpointIe::default()
    }
}

/// A PDR whose tunnel and addresses are an endpoint's.
fn at(pdr: PdrIe, id: u8) -> PdrIe {
    PdrIe {
        f_teid: None,
        ue: None,
        ni: None,
        extra_pdi: vec![(IeType::TRAFFIC_ENDPOINT_ID, vec![id])],
        ..pdr
    }
}

/// Two PDRs for each direction.
fn pdrs() -> [PdrIe; 4] {
    let flow = |pdr: PdrIe, id: u16| PdrIe {
        id,
        precedence: Some(50),
        filters: vec![flow("permit out 17 from any to assigned")],
        ..pdr
    };
    let (up, down) = (at(PdrIe::uplink(), 1), at(PdrIe::downlink(), 2));
    [up.clone(), down.clone(), flow(up, 3), flow(down, 4)]
}

fn session_with(w: &mut Writer<'_>, access: &EndpointIe, core: &EndpointIe, pdrs: &[PdrIe]) {
    pdrs.iter().for_each(|pdr| pdr.create(w));
    access.create(w);
    core.create(w);
    far_to_core(w, 1);
    far_to_access(w, 2, 0x5000);
}

fn session(w: &mut Writer<'_>) {
    session_with(w, &access(), &core(), &pdrs());
}

fn ue_key(addr: Ipv4Addr) -> Key {
    Key::Ue4 { ni: NiId(0), addr }
}

#[test]
fn pdrs_have_what_their_endpoint_says() {
    let mut world = World::new();
    let (seid, created) = world.establish(session).unwrap();
    assert_eq!(created.len(), 1, "told once: {created:?}");
    assert_eq!(created[0].of, CreatedFor::Endpoint(1));
    let teid = created[0].f_teid.unwrap().teid;
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.summary.teids, [teid]);
    for pdr in &view.pdrs {
        assert_eq!(pdr.ue4, Some(UE));
        let is_uplink = pdr.id.0 % 2 == 1;
        assert_eq!(pdr.f_teid.as_ref().map(|f| f.0), is_uplink.then_some(teid));
    }
    assert_eq!(world.tables.keys().len(), 2);
    assert_eq!(world.sessions.fill().teids, 1);
    world.delete(seid).unwrap();
    assert_eq!(world.sessions.fill().teids, 0);
    assert_eq!(world.sessions.fill().pools[0][0].held(), 0);
}

/// An SMF that is hostile, or in error, would take a pool's addresses for ever.
#[test]
fn an_endpoint_that_no_pdr_names_leaks_no_address() {
    let mut world = World::new();
    let unused = EndpointIe {
        id: 3,
        ue: Some(UeIpAddress {
            destination: true,
            ..ue4(Ipv4Addr::new(10, 60, 0, 77))
        }),
        framed: Some("10.60.0.80/32"),
        ..EndpointIe::default()
    };
    for _ in 0..3 {
        let (seid, _) = world
            .establish(|w| {
                session_with(w, &access(), &core(), &pdrs());
                unused.create(w);
            })
            .unwrap();
        assert_eq!(world.sessions.fill().pools[0][0].held(), 1);
        world.delete(seid).unwrap();
        assert_eq!(world.sessions.fill().pools[0][0].held(), 0);
    }
}

#[test]
fn addresses_of_an_endpoint_are_chosen_once() {
    let mut world = World::new();
    let chosen = |endpoint: EndpointIe| EndpointIe {
        ue: Some(choose4()),
        ..endpoint
    };
    let (seid, created) = world
        .establish(|w| session_with(w, &chosen(access()), &chosen(core()), &pdrs()))
        .unwrap();
    let addresses: Vec<_> = created.iter().map(|c| (c.of, c.ue4)).collect();
    let first = Some(Ipv4Addr::new(10, 60, 0, 1));
    let both = [1, 2].map(|id| (CreatedFor::Endpoint(id), first));
    assert_eq!(addresses, both);
    let again = at(
        PdrIe {
            id: 7,
            ..PdrIe::downlink()
        },
        2,
    );
    let (_, created) = world.modify(seid, |w| again.create(w)).unwrap();
    assert!(created.is_empty());
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert!(view.pdrs.iter().all(|pdr| pdr.ue4 == first));
    assert_eq!(world.sessions.fill().pools[0][0].held(), 1);
}

#[test]
fn an_update_changes_all_pdrs_of_the_endpoint() {
    let mut world = World::new();
    let (seid, created) = world.establish(session).unwrap();
    let before = created[0].f_teid.unwrap().teid;
    let other = Ipv4Addr::new(10, 60, 0, 3);
    let (_, created) = world
        .modify(seid, |w| {
            for id in [1, 2] {
                EndpointIe {
                    id,
                    ue: Some(ue4(other)),
                    ..EndpointIe::default()
                }
                .update(w);
            }
        })
        .unwrap();
    assert!(created.is_empty(), "the tunnel stays");
    assert!(world.tables.keys().contains(&ue_key(other)));
    assert!(!world.tables.keys().contains(&ue_key(UE)));
    let (_, created) = world
        .modify(seid, |w| {
            EndpointIe {
                ue: None,
                ..access()
            }
            .update(w);
        })
        .unwrap();
    let after = created[0].f_teid.unwrap().teid;
    assert_ne!(before, after);
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.summary.teids, [after]);
    let addresses: Vec<_> = view.pdrs.iter().map(|pdr| pdr.ue4).collect();
    assert_eq!(addresses, [Some(other); 4]);
    assert_eq!(world.sessions.fill().teids, 1);
}

#[test]
fn an_update_is_refused_as_a_whole() {
    let mut world = World::new();
    let (seid, _) = world.establish(session).unwrap();
    world
        .establish(|w| {
            let ue = Some(ue4(Ipv4Addr::new(10, 60, 0, 5)));
            let up = PdrIe {
                ue,
                f_teid: Some(given(0x77)),
                ..PdrIe::uplink()
            };
            ordinary_with(
                w,
                up,
                PdrIe {
                    ue,
                    ..PdrIe::downlink()
                },
            );
        })
        .unwrap();
    let of_other = [
        (1, Some(given(0x77)), None, IeType::F_TEID, 1),
        (
            2,
            None,
            Some(ue4(Ipv4Addr::new(10, 60, 0, 5))),
            IeType::UE_IP_ADDRESS,
            2,
        ),
    ];
    for (id, f_teid, ue, ie, failed) in of_other {
        let update = EndpointIe {
            id,
            f_teid,
            ue,
            ..EndpointIe::default()
        };
        refuses_to_modify(&mut world, seid, failure(ie, pdr(failed)), |w| {
            update.update(w);
        });
    }
    let unknown = failure(IeType::TRAFFIC_ENDPOINT_ID, None);
    refuses_to_modify(&mut world, seid, unknown, |w| {
        EndpointIe {
            id: 9,
            ..EndpointIe::default()
        }
        .update(w);
    });
}

#[test]
fn with_an_endpoint_its_pdrs_go() {
    let mut world = World::new();
    let (seid, _) = world.establish(session).unwrap();
    world
        .modify(seid, |w| {
            w.grouped(IeType::REMOVE_TRAFFIC_ENDPOINT, |w| {
                w.put(IeType::TRAFFIC_ENDPOINT_ID, 1u8);
            });
        })
        .unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    let left: Vec<u16> = view.pdrs.iter().map(|pdr| pdr.id.0).collect();
    assert_eq!(left, [2, 4]);
    assert_eq!(world.sessions.fill().teids, 0);
    let gone = failure(IeType::TRAFFIC_ENDPOINT_ID, pdr(1));
    refuses_to_modify(&mut world, seid, gone, |w| pdrs()[0].create(w));
}

#[test]
fn an_endpoint_without_pdrs_has_its_tunnel_already() {
    let mut world = World::new();
    let lone = EndpointIe {
        id: 3,
        ue: None,
        ..access()
    };
    let (seid, created) = world
        .establish(|w| {
            session(w);
            lone.create(w);
        })
        .unwrap();
    assert_eq!(world.sessions.fill().teids, 2);
    let of_lone = created.iter().find(|c| c.of == CreatedFor::Endpoint(3));
    let teid = of_lone.unwrap().f_teid.unwrap().teid;
    let late = at(
        PdrIe {
            id: 7,
            ..PdrIe::uplink()
        },
        3,
    );
    let (_, created) = world.modify(seid, |w| late.create(w)).unwrap();
    assert!(created.is_empty());
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert!(view.summary.teids.contains(&teid));
    assert_eq!(world.sessions.fill().teids, 2);
    world
        .modify(seid, |w| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 7))
        .unwrap();
    assert_eq!(
        world.sessions.fill().teids,
        2,
        "the endpoint is still there"
    );
    world.delete(seid).unwrap();
    assert_eq!(world.sessions.fill().teids, 0);
}

#[test]
fn networks_and_qfis_may_be_the_endpoint_s() {
    let mut world = World::new();
    let (access, core) = (
        EndpointIe {
            qfi: Some(9),
            ..access()
        },
        EndpointIe {
            framed: Some("198.51.100.0/24"),
            ..core()
        },
    );
    let (seid, _) = world
        .establish(|w| session_with(w, &access, &core, &pdrs()))
        .unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.pdrs[0].qfis, [9]);
    assert_eq!(view.pdrs[1].framed.len(), 1);
    let update = EndpointIe {
        id: 1,
        qfi: Some(5),
        ..EndpointIe::default()
    };
    world.modify(seid, |w| update.update(w)).unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.pdrs[2].qfis, [5]);
}

#[test]
fn a_pdi_says_nothing_beside_its_endpoint() {
    let mut world = World::new();
    let incorrect = |ie| refusal(Cause::MANDATORY_IE_INCORRECT, ie, Some(pdr(1)));
    let [first, rest @ ..] = pdrs();
    for (ie, wrong) in [
        (
            IeType::F_TEID,
            PdrIe {
                f_teid: Some(CHOOSE),
                ..first.clone()
            },
        ),
        (
            IeType::UE_IP_ADDRESS,
            PdrIe {
                ue: Some(ue4(UE)),
                ..first.clone()
            },
        ),
    ] {
        refuses(&mut world, incorrect(ie), |w| {
            session_with(w, &access(), &core(), std::slice::from_ref(&wrong));
            rest.iter().for_each(|pdr| pdr.create(w));
        });
    }
    let unknown = failure(IeType::TRAFFIC_ENDPOINT_ID, pdr(1));
    let two = PdrIe {
        extra_pdi: vec![
            (IeType::TRAFFIC_ENDPOINT_ID, vec![1]),
            (IeType::TRAFFIC_ENDPOINT_ID, vec![2]),
        ],
        ..first.clone()
    };
    for wrong in [at(first.clone(), 9), two] {
        refuses(&mut world, unknown, |w| {
            session_with(w, &access(), &core(), std::slice::from_ref(&wrong));
        });
    }
    let with_qfi = EndpointIe {
        qfi: Some(9),
        ..access()
    };
    let wrong = PdrIe {
        qfi: Some(9),
        ..first
    };
    refuses(&mut world, incorrect(IeType::QFI), |w| {
        session_with(w, &with_qfi, &core(), std::slice::from_ref(&wrong));
    });
}

#[test]
fn an_endpoint_comes_once_and_there_are_not_many() {
    let mut world = World::new();
    let again = failure(IeType::TRAFFIC_ENDPOINT_ID, None);
    refuses(&mut world, again, |w| {
        session(w);
        access().create(w);
    });
    let no_room = refusal(
        Cause::NO_RESOURCES_AVAILABLE,
        IeType::CREATE_TRAFFIC_ENDPOINT,
        None,
    );
    refuses(&mut world, no_room, |w| {
        session(w);
        (3..40).for_each(|id| EndpointIe { id, ..core() }.create(w));
    });
}

#[test]
fn a_far_is_linked_to_an_endpoint_that_is_there() {
    let mut world = World::new();
    let linked = |w: &mut Writer<'_>, id: u8| {
        session(w);
        w.grouped(IeType::CREATE_FAR, |w| {
            w.put(IeType::FAR_ID, 9u32);
            w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
            w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(IeType::DESTINATION_INTERFACE, 1u8);
                w.put(IeType::TRAFFIC_ENDPOINT_ID, id);
            });
        });
    };
    let lost = failure(IeType::TRAFFIC_ENDPOINT_ID, RuleId::Far(FarId(9)));
    refuses(&mut world, lost, |w| linked(w, 9));
    world.establish(|w| linked(w, 1)).unwrap();
}
