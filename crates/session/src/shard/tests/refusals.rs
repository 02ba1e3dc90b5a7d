//! Requests that cannot be honoured are refused, and the refusal points at the fault.

use std::net::Ipv6Addr;

use compiled::{Action, QerId};
use pfcp::Cause;
use pfcp::ie::{Gbr, PdnType, PfcpSmReqFlags};

use super::cases::{failure, far, pdr, refusal, refuses, refuses_to_modify};
use super::*;
use crate::rules::{FarId, RuleId};

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
            prefix_length: Some(0),
            ..ue6(UE6)
        },
        UeIpAddress {
            delegation_bits: Some(64),
            ..ue6(UE6)
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
    for bits in [0, 3, 6, 8, 10, 0x10, 0x13, 0x22, 0x82, 0x102, 0x204] {
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
    // To the SMF there are tunnels only.
    let request = far_with(ApplyAction::FORW, 3, vec![]);
    let wrong = failure(IeType::OUTER_HEADER_CREATION, far(1));
    refuses(&mut world, wrong, request);
    for ie in [
        IeType::REDIRECT_INFORMATION,
        IeType::HEADER_ENRICHMENT,
        IeType::PROXYING,
    ] {
        refuses(
            &mut world,
            failure(ie, far(1)),
            far_with(ApplyAction::FORW, 1, vec![(ie, vec![0; 8])]),
        );
    }
    // IPv4, GTP-U/UDP/IPv6 without an address of ours, TEID zero.
    for header in [
        vec![0x10, 0, 10, 3, 1, 1],
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
}

/// The downlink of an ordinary session: what its FAR does, and Outer Header Creation.
fn downlink_far(w: &mut Writer<'_>, kind: IeType, action: ApplyAction, header: Option<&[u8]>) {
    let parameters = match kind {
        IeType::CREATE_FAR => IeType::FORWARDING_PARAMETERS,
        _ => IeType::UPDATE_FORWARDING_PARAMETERS,
    };
    w.grouped(kind, |w| {
        w.put(IeType::FAR_ID, 2u32);
        w.put(IeType::APPLY_ACTION, action);
        w.grouped(parameters, |w| {
            w.put(IeType::DESTINATION_INTERFACE, 0u8);
            if let Some(header) = header {
                w.ie(IeType::OUTER_HEADER_CREATION, header);
            }
        });
    });
}

/// Establishes a session whose downlink FAR is like this.
fn with_downlink_far(
    world: &mut World,
    action: ApplyAction,
    header: Option<&[u8]>,
) -> Result<u64, Refusal> {
    let established = world.establish(|w| {
        PdrIe::uplink().create(w);
        PdrIe::downlink().create(w);
        far_to_core(w, 1);
        downlink_far(w, IeType::CREATE_FAR, action, header);
    });
    established.map(|(seid, _)| seid)
}

fn downlink_action(world: &World) -> Action {
    world.only().entries[1].action
}

/// IPv4, TEID 9.
const GNB_TUNNEL: [u8; 10] = [1, 0, 0, 0, 0, 9, 10, 3, 1, 1];

/// free5GC does not know the gNB's tunnel when it establishes a session, and says FORW all the same.
#[test]
fn downlink_is_forwarded_before_there_is_a_tunnel_and_waits_for_one() {
    let mut world = World::new();
    let seid = with_downlink_far(&mut world, ApplyAction::FORW, None).unwrap();
    assert_eq!(downlink_action(&world), Action::NoTunnel);
    let found = Some(&GNB_TUNNEL[..]);
    let update = |w: &mut Writer<'_>| {
        downlink_far(w, IeType::UPDATE_FAR, ApplyAction::FORW, found);
    };
    world.modify(seid, update).unwrap();
    assert!(matches!(
        downlink_action(&world),
        Action::Tunnel { teid: 9, .. }
    ));
}

/// Addresses that no UE can have: an SMF that is hostile, or in error, would draw our own packets, or our neighbours'.
#[test]
fn addresses_that_no_ue_can_have_are_refused() {
    let wrong = failure(IeType::UE_IP_ADDRESS, pdr(2));
    let with = |ue: UeIpAddress| {
        move |w: &mut Writer<'_>| {
            let down = PdrIe {
                ue: Some(UeIpAddress {
                    destination: true,
                    ..ue
                }),
                ..PdrIe::downlink()
            };
            ordinary_with(
                w,
                PdrIe {
                    ue: None,
                    ..PdrIe::uplink()
                },
                down,
            );
        }
    };
    let v4 = [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "169.254.1.1",
        "224.0.0.5",
        "240.0.0.1",
        "255.255.255.255",
    ];
    for addr in v4 {
        refuses(&mut World::new(), wrong, with(ue4(addr.parse().unwrap())));
    }
    refuses(&mut World::new(), wrong, with(ue4(N3)));
    let mut config = config();
    config.n4 = vec!["10.100.0.1".parse().unwrap()];
    config.own = vec!["10.6.0.254".parse().unwrap()];
    let mut world = World::with(&config);
    let host = ["10.6.0.1", "2001:db8:6::1"].map(|text| text.parse().unwrap());
    world.sessions.set_host_addresses(host.into());
    for addr in ["10.100.0.1", "10.6.0.254", "10.6.0.1"] {
        refuses(&mut world, wrong, with(ue4(addr.parse().unwrap())));
    }
    let around = ue6("2001:db8:6::".parse().unwrap());
    refuses(&mut world, wrong, with(around));
    world.sessions.set_host_addresses(Vec::new());
    world.establish(with(around)).unwrap();
    for addr in ["::", "::1", "fe80::1", "ff02::1", "::ffff:10.60.0.1"] {
        refuses(&mut World::new(), wrong, with(ue6(addr.parse().unwrap())));
    }
}

/// pfcpsim's FARs that drop or buffer name TEID 0 at 0.0.0.0.
#[test]
fn a_tunnel_that_cannot_be_is_refused_when_its_far_forwards() {
    let impossible = [
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 9, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 10, 3, 1, 1],
    ];
    let refused = |answer: Result<_, Refusal>| {
        let refusal: Refusal = answer.map(|_: ()| ()).unwrap_err();
        assert_eq!(refusal.offending_ie, Some(IeType::OUTER_HEADER_CREATION));
        assert_eq!(refusal.failed_rule, Some(RuleId::Far(FarId(2))));
    };
    for header in impossible {
        let header = Some(&header[..]);
        let at_once = with_downlink_far(&mut World::new(), ApplyAction::FORW, header);
        refused(at_once.map(drop));
        for (action, meanwhile) in [
            (ApplyAction::DROP, Action::Drop),
            (ApplyAction::BUFF, Action::Buffer),
        ] {
            let mut world = World::new();
            let seid = with_downlink_far(&mut world, action, header).unwrap();
            assert_eq!(downlink_action(&world), meanwhile);
            let forward = |w: &mut Writer<'_>| {
                downlink_far(w, IeType::UPDATE_FAR, ApplyAction::FORW, None);
            };
            refused(world.modify(seid, forward).map(drop));
            assert_eq!(downlink_action(&world), meanwhile);
            let named = |w: &mut Writer<'_>| {
                downlink_far(w, IeType::UPDATE_FAR, ApplyAction::FORW, Some(&GNB_TUNNEL));
            };
            world.modify(seid, named).unwrap();
            assert!(matches!(
                downlink_action(&world),
                Action::Tunnel { teid: 9, .. }
            ));
        }
    }
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
    refuses(&mut world, not_served(IeType::CREATE_MAR), |w| {
        ordinary(w);
        w.ie(IeType::CREATE_MAR, &[]);
    });
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
