//! What QERs say beyond gate, MBR and QFI.

use std::time::Duration;

use pfcp::ie::{Gbr, PacketRate as PacketRateIe, PacketRateUnit, PacketsPerUnit};
use pfcp::{Cause, IeType, Writer};

use super::cases::{pdr, refusal, refuses};
use super::*;
use crate::compiled::{Limit, Marks, PacketRate, QerId};
use crate::rules::RuleId;

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
