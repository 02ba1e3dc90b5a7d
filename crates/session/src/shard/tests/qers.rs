//! QERs beyond gate, MBR and QFI.

use std::time::Duration;

use compiled::{Above, CapacityId, Direction, Limit, Marking, Marks, NiId, PacketRate, QerId, Qfi};
use pfcp::ie::{Gbr, Mbr, PacketRate as PacketRateIe, PacketRateUnit, PacketsPerUnit};
use pfcp::{Cause, IeType, Writer};

use super::cases::{pdr, refusal, refuses, without_room};
use super::*;
use crate::rules::RuleId;
use crate::rules::config::{CapacityUse, FlowClass, Of, QosConfig};

/// QER with an open gate and more.
fn qer_with(w: &mut Writer<'_>, id: u32, more: &[(IeType, &[u8])]) {
    w.grouped(IeType::CREATE_QER, |w| {
        w.put(IeType::QER_ID, id);
        w.put(IeType::GATE_STATUS, 0u8);
        more.iter().for_each(|(ie, value)| w.ie(*ie, value));
    });
}

fn update(w: &mut Writer<'_>, id: u32, more: &[(IeType, &[u8])]) {
    w.grouped(IeType::UPDATE_QER, |w| {
        w.put(IeType::QER_ID, id);
        more.iter().for_each(|(ie, value)| w.ie(*ie, value));
    });
}

/// Uplink and downlink with the same QERs.
fn session(w: &mut Writer<'_>, qers: &[u32]) {
    for pdr in [PdrIe::uplink(), PdrIe::downlink()] {
        PdrIe {
            qers: qers.to_vec(),
            ..pdr
        }
        .create(w);
    }
    far_to_core(w, 1);
    far_to_access(w, 2, 0x5000);
}

#[test]
fn reflective_qos_and_paging_policy_mark_the_downlink() {
    let mut world = World::new();
    let marked: [(IeType, &[u8]); 3] = [
        (IeType::QFI, &[9]),
        (IeType::RQI, &[1]),
        (IeType::PAGING_POLICY_INDICATOR, &[5]),
    ];
    let (seid, _) = world
        .establish(|w| {
            session(w, &[1]);
            qer_with(w, 1, &marked);
        })
        .unwrap();
    let marks = |world: &World| {
        world
            .only()
            .entries
            .iter()
            .map(|e| e.marks)
            .collect::<Vec<_>>()
    };
    let both = Marks {
        rqi: true,
        ppi: Some(5),
    };
    assert_eq!(marks(&world), [Marks::default(), both]);
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!((view.qers[0].rqi, view.qers[0].ppi), (true, Some(5)));
    world
        .modify(seid, |w| update(w, 1, &[(IeType::RQI, &[0])]))
        .unwrap();
    let paging = Marks {
        rqi: false,
        ppi: Some(5),
    };
    assert_eq!(marks(&world)[1], paging, "what is not sent stays");
}

#[test]
fn marks_need_a_qfi_beside_them() {
    let mut world = World::new();
    let missing = refusal(
        Cause::CONDITIONAL_IE_MISSING,
        IeType::QFI,
        RuleId::Qer(QerId(1)),
    );
    for mark in [IeType::RQI, IeType::PAGING_POLICY_INDICATOR] {
        refuses(&mut world, missing, |w| {
            session(w, &[1]);
            qer_with(w, 1, &[(mark, &[1])]);
        });
    }
}

#[test]
fn a_guaranteed_bit_rate_is_kept_and_shown() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            session(w, &[1]);
            w.grouped(IeType::CREATE_QER, |w| {
                w.put(IeType::QER_ID, 1u32);
                w.put(IeType::GATE_STATUS, 0u8);
                let gbr = Gbr {
                    uplink_kbps: 64,
                    downlink_kbps: (1 << 40) - 1,
                };
                w.put(IeType::GBR, gbr);
            });
        })
        .unwrap();
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.qers[0].gbr_kbps, Some((64, (1 << 40) - 1)));
    assert!(world.only().meters.is_empty(), "it limits nothing");
}

/// QFI 5 is voice, and QFI 6 is not; both go out by the routes of network instance 0, of which there is a group of users.
fn with_qos() -> Config {
    let flow = |qfi, weight, dscp, above| FlowClass {
        qfi: Qfi::new(qfi).unwrap(),
        ni: None,
        weight,
        dscp,
        above,
    };
    let group = |direction| Of::Users {
        ni: None,
        ues: vec!["0.0.0.0/0".parse().unwrap()],
        direction,
    };
    let uses = [
        (1, Of::Routes(vec![NiId(0)])),
        (2, Of::Tunnels(config().n3)),
        (3, group(Direction::Downlink)),
    ];
    Config {
        qos: QosConfig {
            above: Above::Shape,
            flows: vec![
                flow(5, 50, Some(46), Some(Above::Police)),
                flow(6, 11, None, None),
            ],
            capacities: uses
                .map(|(id, of)| CapacityUse {
                    id: CapacityId(id),
                    of,
                })
                .into(),
        },
        ..config()
    }
}

/// A QER with QFI, MBR and GBR, in kbit/s.
fn guaranteed(w: &mut Writer<'_>, id: u32, qfi: u8, gbr: u64) {
    w.grouped(IeType::CREATE_QER, |w| {
        w.put(IeType::QER_ID, id);
        w.put(IeType::GATE_STATUS, 0u8);
        w.put(
            IeType::MBR,
            Mbr {
                uplink_kbps: 1000,
                downlink_kbps: 1000,
            },
        );
        w.put(
            IeType::GBR,
            Gbr {
                uplink_kbps: gbr,
                downlink_kbps: 0,
            },
        );
        w.put(IeType::QFI, qfi);
    });
}

#[test]
fn a_flow_has_the_share_and_the_marking_of_its_qfi() {
    let shares = |qfi: u8| {
        let mut world = World::with(&with_qos());
        world
            .establish(|w| {
                session(w, &[1]);
                guaranteed(w, 1, qfi, 64);
            })
            .unwrap();
        let compiled = world.only();
        let of = |pdr: u16| {
            let entry = compiled
                .entries
                .iter()
                .find(|e| e.pdr == PdrId(pdr))
                .unwrap();
            let meter = compiled.meters[entry.share.unwrap()];
            assert_eq!((meter.qer, meter.direction), (QerId(1), entry.direction));
            let Limit::Share(share) = meter.limit else {
                panic!("{meter:?}")
            };
            (share, entry.marking, entry.meter.unwrap().above)
        };
        (of(1), of(2))
    };
    let capacities = |ids: [u8; 4]| ids.map(CapacityId);
    let ((up, up_marking, above), (down, marking, _)) = shares(5);
    assert_eq!((up.weight, up.capacities), (50, capacities([1, 0, 0, 0])));
    assert_eq!(up.guaranteed.map(|rate| rate.bps), Some(64_000));
    assert_eq!((up_marking, above), (None, Above::Police));
    assert_eq!(
        (down.weight, down.capacities),
        (50, capacities([2, 3, 0, 0]))
    );
    assert_eq!(down.guaranteed, None);
    let marked = Marking {
        tos: 46 << 2,
        mask: 0xfc,
    };
    assert_eq!(marking, Some(marked));
    let ((up, _, above), (_, marking, _)) = shares(6);
    assert_eq!((up.weight, marking, above), (11, None, Above::Shape));
    assert_eq!(shares(7).0.0.weight, 11);
}

#[test]
fn more_than_can_be_guaranteed_is_refused_with_its_qer() {
    let mut world = World::with(&with_qos());
    world.tables.guaranteed_at_most = Some(100_000);
    let ask = |gbr| {
        move |w: &mut Writer<'_>| {
            session(w, &[1, 2]);
            qer_with(w, 1, &[]);
            guaranteed(w, 2, 5, gbr);
        }
    };
    let refused = without_room("capacities").in_rule(RuleId::Qer(QerId(2)));
    assert_eq!(refused.offending_ie, Some(IeType::GBR));
    assert_eq!(world.establish(ask(101)).unwrap_err(), refused);
    assert_eq!(world.tables.live.len(), 0);
    world.establish(ask(100)).unwrap();
}

/// As much may pass back to back as the rate lets through in the Averaging Window, where the SMF gives one.
#[test]
fn rates_are_averaged_over_their_window() {
    let most = (1 << 40) - 1;
    let burst = |window: Option<u32>| bursts(window, 8000, 80_000);
    assert_eq!(burst(None), [100_000, 1_000_000]);
    assert_eq!(burst(Some(0)), [100_000, 1_000_000]);
    assert_eq!(burst(Some(2000)), [2_000_000, 20_000_000]);
    assert_eq!(burst(Some(20)), [32_768, 200_000]);
    // The most that an SMF can say.
    assert_eq!(bursts(Some(u32::MAX), most, 1), [u64::MAX, 536_870_911]);
}

/// Octets that may pass back to back, up and down.
fn bursts(window: Option<u32>, uplink_kbps: u64, downlink_kbps: u64) -> Vec<u64> {
    let mbr = Mbr {
        uplink_kbps,
        downlink_kbps,
    };
    let mut world = World::new();
    let established = world.establish(|w| {
        session(w, &[1]);
        w.grouped(IeType::CREATE_QER, |w| {
            w.put(IeType::QER_ID, 1u32);
            w.put(IeType::GATE_STATUS, 0u8);
            w.put(IeType::MBR, mbr);
            (window.iter()).for_each(|ms| w.put(IeType::AVERAGING_WINDOW, *ms));
        });
    });
    established.unwrap();
    let entries = &world.only().entries;
    let bytes = entries.iter().map(|e| e.meter.unwrap().burst_bytes);
    bytes.collect()
}

fn packet_rate(w: &mut Writer<'_>, id: u32) {
    w.grouped(IeType::CREATE_QER, |w| {
        w.put(IeType::QER_ID, id);
        w.put(IeType::GATE_STATUS, 0u8);
        let rate = PacketRateIe {
            uplink: Some(PacketsPerUnit {
                packets: 10,
                unit: PacketRateUnit::SixMinutes,
            }),
            downlink: None,
            additional: false,
        };
        w.put(IeType::PACKET_RATE, rate);
    });
}

#[test]
fn a_packet_rate_has_a_meter_of_its_own() {
    let mut world = World::new();
    let (seid, _) = world
        .establish(|w| {
            session(w, &[1]);
            packet_rate(w, 1);
        })
        .unwrap();
    let compiled = world.only();
    let meters: Vec<_> = compiled.entries.iter().map(|e| e.packet_meter).collect();
    assert_eq!(meters, [Some(0), None], "uplink only");
    let rate = PacketRate {
        packets: 10,
        per: Duration::from_secs(360),
    };
    assert_eq!(compiled.meters[0].limit, Limit::Packets(rate));
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.qers[0].packet_rates, [Some(rate), None]);
}

#[test]
fn a_pdr_has_one_packet_rate() {
    let mut world = World::new();
    let full = refusal(Cause::NO_RESOURCES_AVAILABLE, IeType::PACKET_RATE, pdr(1));
    refuses(&mut world, full, |w| {
        session(w, &[1, 2]);
        packet_rate(w, 1);
        packet_rate(w, 2);
    });
}

#[test]
fn of_sixteen_qers_the_lowest_decides() {
    let mut world = World::new();
    let ids: Vec<u32> = (1..=16).collect();
    world
        .establish(|w| {
            session(w, &ids);
            ids.iter()
                .for_each(|&id| qer(w, id, Some(u64::from(id + 10) * 100)));
        })
        .unwrap();
    for entry in &world.only().entries {
        assert_eq!(entry.meter.unwrap().bps, 1_100_000);
        assert!(entry.shared_meters.is_empty());
    }
    let too_many: Vec<u32> = (1..=17).collect();
    let full = refusal(Cause::NO_RESOURCES_AVAILABLE, IeType::QER_ID, pdr(1));
    refuses(&mut world, full, |w| session(w, &too_many));
}

#[test]
fn four_mbrs_are_shared_with_other_pdrs() {
    let mut world = World::new();
    let with = |n: u32| {
        move |w: &mut Writer<'_>| {
            let ids: Vec<u32> = (1..=n).collect();
            session(w, &ids);
            PdrIe {
                id: 3,
                precedence: Some(7),
                qers: ids.clone(),
                filters: vec![flow("permit out 17 from any to assigned")],
                ..PdrIe::downlink()
            }
            .create(w);
            ids.iter().for_each(|&id| qer(w, id, Some(1000)));
        }
    };
    let full = refusal(Cause::NO_RESOURCES_AVAILABLE, IeType::QER_ID, pdr(2));
    refuses(&mut world, full, with(5));
    world.establish(with(4)).unwrap();
    let shared: Vec<usize> = (world.only().entries.iter())
        .map(|e| e.shared_meters.len())
        .collect();
    assert_eq!(shared, [0, 4, 4], "there is one PDR uplink");
}
