//! Usage before QoS enforcement (MBQE): what was offered, beside what passed.

use compiled::Counters;
use pfcp::ie::{MeasurementMethod, ReportingTriggers as Asked, UsageReportTrigger as Told};
use pfcp::ie::{UsageInformation, Volume};
use pfcp::{IeType, Writer};
use testkit::requests::{MBQE, PdrIe, UrrIe};

use super::{Measuring, seconds, total};

const NO_TRIGGER: Asked = Asked::empty();

fn threshold(octets: u64) -> UrrIe {
    UrrIe::volume(1, Asked::VOLTH).limit(IeType::VOLUME_THRESHOLD, total(octets))
}

/// The sides of QoS enforcement, over both PDRs.
fn pair() -> [UrrIe; 2] {
    [1, 2].map(|id| {
        let urr = UrrIe::volume(id, NO_TRIGGER);
        if id == 1 {
            urr.before_qos()
        } else {
            urr.after_qos()
        }
    })
}

fn packets(of: [u64; 2]) -> Volume {
    let [uplink, downlink] = of;
    Volume {
        total: Some(uplink + downlink),
        uplink: Some(uplink),
        downlink: Some(downlink),
    }
}

fn set_gates(w: &mut Writer<'_>, closed: bool) {
    w.grouped(IeType::UPDATE_QER, |w| {
        w.put(IeType::QER_ID, 1u32);
        // 8.2.7: uplink and downlink, 0: open, 1: closed.
        w.ie(IeType::GATE_STATUS, &[if closed { 0b0101 } else { 0 }]);
    });
}

#[test]
fn what_an_mbr_drops_is_usage_before_qos_alone() {
    let mut it = Measuring::new(&pair());
    it.packets(1, 3, 1000);
    it.packets(2, 1, 500);
    it.dropped(1, 2, 1000);
    it.dropped(2, 4, 500);
    let said = it.delete();
    let brief: Vec<_> = said.iter().map(|said| said.brief()).collect();
    assert_eq!(
        brief,
        [
            (1, 0, Told::TERMR, 5000, 2500),
            (2, 0, Told::TERMR, 3000, 500)
        ]
    );
    assert_eq!(said[0].packets, packets([5, 5]));
    assert_eq!(said[1].packets, packets([3, 1]));
}

#[test]
fn what_a_closed_gate_drops_is_usage_before_qos_alone() {
    let mut it = Measuring::new(&pair());
    it.packets(1, 3, 1000);
    it.modify(|w| set_gates(w, true));
    it.packets(1, 2, 1000);
    it.packets(2, 1, 70);
    it.modify(|w| set_gates(w, false));
    it.packets(1, 1, 1000);
    let brief: Vec<_> = it.delete().iter().map(|said| said.brief()).collect();
    assert_eq!(
        brief,
        [(1, 0, Told::TERMR, 6000, 70), (2, 0, Told::TERMR, 4000, 0)]
    );
}

#[test]
fn operators_see_what_was_offered() {
    let mut it = Measuring::new(&pair());
    it.packets(1, 3, 1000);
    it.dropped(1, 2, 1000);
    let view = it.world.core.session(it.seid).unwrap().urrs;
    assert_eq!(view[0].used.bytes, [5000, 0]);
    assert_eq!(view[1].used.bytes, [3000, 0]);
}

#[test]
fn what_is_dropped_while_a_pdr_goes_is_its_last() {
    let mut it = Measuring::new(&pair());
    it.packets(1, 3, 1000);
    it.world.core.tables_mut().late = Counters {
        drops: 1,
        qos_packets: 1,
        qos_bytes: 70,
        ..Counters::default()
    };
    let brief: Vec<_> = it.delete().iter().map(|said| said.brief()).collect();
    assert_eq!(
        brief,
        [(1, 0, Told::TERMR, 3070, 0), (2, 0, Told::TERMR, 3000, 0)]
    );
}

/// As the reader of counters meets them: a packet is counted in several words.
#[test]
fn octets_that_are_seen_before_their_drop_are_usage() {
    let mut it = Measuring::new(&pair());
    it.packets(1, 1, 1000);
    it.query(1);
    let counted = &mut it.world.core.tables_mut().counted;
    counted.values_mut().next().unwrap().qos_bytes += 700;
    assert_eq!(it.query(1)[0].brief(), (1, 1, Told::IMMER, 700, 0));
    let counted = &mut it.world.core.tables_mut().counted;
    let counted = counted.values_mut().next().unwrap();
    (counted.drops, counted.qos_packets) = (1, 1);
    assert_eq!(it.query(1)[0].packets, packets([1, 0]));
}

/// However it is split between what passes and what is dropped, it is met within a packet.
#[test]
fn a_threshold_before_qos_is_met_by_what_is_dropped() {
    for dropped_of_ten in 0..=10 {
        let mut it = Measuring::new(&[threshold(100_000).before_qos()]);
        let said: Vec<_> = (0..100)
            .flat_map(|at| {
                if at % 10 < dropped_of_ten {
                    it.dropped(1, 1, 1000)
                } else {
                    it.packets(1, 1, 1000)
                }
            })
            .collect();
        let brief: Vec<_> = said.iter().map(|said| said.brief()).collect();
        assert_eq!(brief, [(1, 0, Told::VOLTH, 100_000, 0)], "{dropped_of_ten}");
    }
}

#[test]
fn a_threshold_after_qos_is_not_met_by_what_is_dropped() {
    let mut it = Measuring::new(&[threshold(100_000).after_qos()]);
    it.packets(1, 99, 1000);
    let alarms = it.alarms();
    assert!(it.dropped(1, 10_000, 1000).is_empty());
    assert_eq!(it.alarms(), alarms, "it is not told of drops either");
    assert_eq!(it.packets(1, 1, 1000)[0].up, 100_000);
}

#[test]
fn a_quota_before_qos_is_spent_by_what_is_dropped() {
    let quota = UrrIe::volume(1, Asked::VOLQU).limit(IeType::VOLUME_QUOTA, total(10_000));
    let mut it = Measuring::new(&[quota.before_qos()]);
    assert!(it.packets(1, 4, 1000).is_empty());
    let said = it.dropped(2, 6, 1000);
    assert_eq!(said[0].brief(), (1, 0, Told::VOLQU, 4000, 6000));
    // Beyond it nothing passes, and what comes is no longer offered.
    assert!(it.packets(1, 3, 1000).is_empty());
    assert_eq!(it.delete()[0].brief(), (1, 1, Told::TERMR, 0, 0));
}

#[test]
fn time_before_qos_runs_from_a_packet_that_is_dropped() {
    let time = |id| UrrIe {
        method: MeasurementMethod::DURAT,
        ..UrrIe::volume(id, NO_TRIGGER)
    };
    let mut it = Measuring::new(&[time(1).before_qos(), time(2).after_qos()]);
    it.dropped(1, 1, 1000);
    it.pass(seconds(7));
    let said = it.delete();
    assert_eq!([said[0].seconds, said[1].seconds], [Some(7), Some(0)]);
}

/// free5GC has such a pair over each PDR, and its decoder loses the whole message with this IE.
#[test]
fn a_urr_of_one_side_says_no_usage_information() {
    let mut it = Measuring::new(&pair());
    it.packets(1, 3, 1000);
    it.dropped(1, 3, 1000);
    let mut said = it.query(1);
    said.extend(it.query(2));
    said.extend(it.delete());
    assert_eq!(said.len(), 4);
    for said in said {
        assert_eq!(said.information, UsageInformation::empty(), "{said:?}");
    }
}

#[test]
fn a_urr_that_changes_sides_reports_each_apart() {
    let mut it = Measuring::new(&[UrrIe::volume(1, NO_TRIGGER).before_qos()]);
    it.packets(1, 3, 1000);
    it.dropped(1, 2, 1000);
    it.pass(seconds(5));
    let turned = it.ntp();
    it.update(1, &[(IeType::MEASUREMENT_INFORMATION, vec![0])]);
    it.packets(1, 1, 1000);
    it.dropped(1, 4, 1000);
    it.pass(seconds(5));
    let said = it.query(1);
    let brief: Vec<_> = said.iter().map(|said| said.brief()).collect();
    assert_eq!(
        brief,
        [(1, 0, Told::IMMER, 5000, 0), (1, 1, Told::IMMER, 1000, 0)]
    );
    let sides = [UsageInformation::UBE, UsageInformation::UAE];
    assert_eq!([said[0].information, said[1].information], sides);
    let times = [said[0].times, said[1].times].map(Option::unwrap);
    assert_eq!([times[0].1, times[1].0], [turned; 2]);
    // And then it is of one side again.
    it.packets(1, 1, 1000);
    assert_eq!(it.query(1)[0].information, UsageInformation::empty());
}

#[test]
fn a_urr_that_changes_sides_before_anything_came_is_of_one() {
    let mut it = Measuring::new(&[UrrIe::volume(1, NO_TRIGGER).after_qos()]);
    it.update(1, &[(IeType::MEASUREMENT_INFORMATION, vec![MBQE])]);
    it.dropped(1, 4, 1000);
    let said = it.query(1);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].brief(), (1, 0, Told::IMMER, 4000, 0));
    assert_eq!(said[0].information, UsageInformation::empty());
}

/// Also beyond what is kept apart.
#[test]
fn sides_are_not_mixed_however_often_a_urr_changes() {
    let mut it = Measuring::new(&[UrrIe::volume(1, NO_TRIGGER).before_qos()]);
    for round in 0..20 {
        it.packets(1, 1, 1000);
        it.dropped(1, 1, 1);
        let next = if round % 2 == 0 { 0 } else { MBQE };
        it.update(1, &[(IeType::MEASUREMENT_INFORMATION, vec![next])]);
    }
    let said = it.query(1);
    let sum = |side: UsageInformation| -> u64 {
        let of_it = said.iter().filter(|said| said.information == side);
        of_it.map(|said| said.up).sum()
    };
    let sides = [UsageInformation::UBE, UsageInformation::UAE];
    assert_eq!(sides.map(sum), [10_010, 10_000]);
    let numbers: Vec<_> = said.iter().map(|said| said.seqn).collect();
    assert_eq!(numbers, (0..said.len() as u32).collect::<Vec<_>>());
}

/// Both of what Usage Information is about.
#[test]
fn sides_are_told_apart_before_and_after_a_monitoring_time() {
    let mut it = Measuring::new(&[]);
    let at = it.ntp() + 100;
    it.modify(|w| {
        let urr = UrrIe::volume(1, NO_TRIGGER).before_qos();
        urr.with(IeType::MONITORING_TIME, at).create(w);
        let pdr = PdrIe {
            urrs: vec![1],
            ..PdrIe::default()
        };
        PdrIe { id: 1, ..pdr }.update(w, false);
    });
    it.dropped(1, 3, 1000);
    it.update(1, &[(IeType::MEASUREMENT_INFORMATION, vec![0])]);
    it.packets(1, 2, 1000);
    it.pass(seconds(200));
    it.packets(1, 1, 1000);
    let said = it.query(1);
    let brief: Vec<_> = said.iter().map(|said| said.brief()).collect();
    assert_eq!(
        brief,
        [
            (1, 0, Told::IMMER, 3000, 0),
            (1, 1, Told::MONIT, 2000, 0),
            (1, 2, Told::IMMER, 1000, 0)
        ]
    );
    let information: Vec<_> = said.iter().map(|said| said.information).collect();
    assert_eq!(
        information,
        [
            UsageInformation::BEF | UsageInformation::UBE,
            UsageInformation::BEF | UsageInformation::UAE,
            UsageInformation::AFT | UsageInformation::UAE,
        ]
    );
}
