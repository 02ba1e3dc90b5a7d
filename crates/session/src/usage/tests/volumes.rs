//! Volumes: thresholds, quotas, queries, and rules that come and go.

use compiled::{Action, Counters};
use pfcp::ie::{
    ApplyAction, MeasurementInformation, PfcpSmReqFlags, ReportingTriggers as Asked,
    UsageReportTrigger as Told,
};
use testkit::requests::{far_of, far_to_core, remove};

use super::*;

fn threshold(octets: u64) -> UrrIe {
    UrrIe::volume(1, Asked::VOLTH).limit(IeType::VOLUME_THRESHOLD, total(octets))
}

fn quota(octets: u64) -> UrrIe {
    UrrIe::volume(1, Asked::VOLQU).limit(IeType::VOLUME_QUOTA, total(octets))
}

/// A quota that nobody hears of.
fn nothing() -> UrrIe {
    UrrIe::volume(1, Asked::empty()).limit(IeType::VOLUME_QUOTA, total(0))
}

/// Reached by the uplink alone.
fn uplink(octets: u64) -> UrrIe {
    UrrIe::volume(1, Asked::VOLTH).limit(IeType::VOLUME_THRESHOLD, [None, Some(octets), None])
}

#[test]
fn a_volume_threshold_is_reported_with_what_passed_and_counts_anew() {
    let mut it = Measuring::new(&[threshold(1_000_000)]);
    assert_eq!(it.packets(1, 999, 1000), []);
    let said = it.packets(1, 1, 1000);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].brief(), (1, 0, Told::VOLTH, 1_000_000, 0));
    assert_eq!(said[0].times, Some((it.ntp(), it.ntp())));
    assert_eq!(it.packets(2, 999, 1000), []);
    let said = it.packets(2, 1, 1000);
    assert_eq!(said[0].brief(), (1, 1, Told::VOLTH, 0, 1_000_000));
}

/// The data path counts a packet and its octets one after the other, and is read meanwhile.
#[test]
fn octets_that_are_seen_before_their_packet_are_reported() {
    let mut it = Measuring::new(&[threshold(1_000_000)]);
    let seen = |it: &mut Measuring, packets, bytes| {
        for counted in it.world.core.tables_mut().counted.values_mut() {
            counted.packets += packets;
            counted.bytes += bytes;
        }
        it.query(1).iter().map(|said| said.up).sum::<u64>()
    };
    it.packets(1, 1, 1000);
    let sums =
        [(0, 0), (0, 1456), (1, 0), (0, 0)].map(|(packets, bytes)| seen(&mut it, packets, bytes));
    assert_eq!(sums.iter().sum::<u64>(), 2456, "{sums:?}");
}

#[test]
fn a_threshold_over_both_directions_is_met_to_the_packet() {
    let mut it = Measuring::new(&[threshold(10_000_000)]);
    let mut sent = 0;
    while sent < 10_000_000 {
        for (pdr, bytes) in [(1, 100), (2, 1000)] {
            sent += bytes;
            let said = it.packets(pdr, 1, bytes);
            assert_eq!(said.len(), usize::from(sent >= 10_000_000), "{sent}");
            if let Some(said) = said.first() {
                assert_eq!(said.up + said.down, sent);
                return;
            }
        }
    }
    panic!("never reported");
}

#[test]
fn a_threshold_over_four_pdrs_is_met_to_the_packet() {
    let mut it = Measuring::with_four_pdrs(&[threshold(20_480)]);
    for (pdr, sent) in (1..=4).zip((5000..).step_by(5000)) {
        assert_eq!(it.packets(pdr, 5, 1000), [], "{sent}");
    }
    let said = it.packets(3, 1, 1000);
    assert_eq!((said.len(), said[0].up + said[0].down), (1, 21_000));
}

/// The data path moves an alarm on that nobody sets anew.
#[test]
fn an_alarm_that_has_gone_off_and_is_needed_no_more_is_taken_off() {
    let urr = UrrIe::time(1, Asked::PERIO).with(IeType::MEASUREMENT_PERIOD, 3600);
    let mut it = Measuring::new(&[urr]);
    it.packets(1, 1, 1000);
    it.packets(2, 1, 1000);
    let before = it.alarms();
    for _ in 0..100 {
        it.packets(1, 100, 1000);
    }
    assert_eq!(it.alarms(), before, "it was heard of again");
}

#[test]
fn a_threshold_that_both_directions_just_reach_together_is_met_though_nothing_follows() {
    let mut it = Measuring::new(&[threshold(10_000)]);
    assert_eq!(it.packets(1, 5, 1000), []);
    let said = it.packets(2, 5, 1000);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].brief(), (1, 0, Told::VOLTH, 5000, 5000));
    assert_eq!(it.pass(seconds(60)), []);
}

#[test]
fn a_threshold_of_one_direction_does_not_mind_the_other() {
    let uplink = [None, Some(5000), None];
    let urr = UrrIe::volume(1, Asked::VOLTH).limit(IeType::VOLUME_THRESHOLD, uplink);
    let mut it = Measuring::new(&[urr]);
    assert_eq!(it.packets(2, 100, 1000), []);
    assert_eq!(it.packets(1, 4, 1000), []);
    let said = it.packets(1, 1, 1000);
    assert_eq!(said[0].brief(), (1, 0, Told::VOLTH, 5000, 100_000));
}

#[test]
fn packets_are_reported_where_they_are_asked_for() {
    let mnop = [MeasurementInformation::MNOP.bits()];
    let urrs = [
        uplink(2000).raw(IeType::MEASUREMENT_INFORMATION, &mnop),
        UrrIe {
            id: 2,
            ..uplink(2000)
        },
    ];
    let mut it = Measuring::new(&urrs);
    it.packets(2, 2, 500);
    let said = it.packets(1, 2, 1000);
    let packets = Volume {
        total: Some(4),
        uplink: Some(2),
        downlink: Some(2),
    };
    assert_eq!(said[0].packets, packets);
    assert_eq!((said[1].urr, said[1].packets), (2, Volume::default()));
}

fn actions(it: &Measuring) -> Vec<Action> {
    let session = it.world.core.tables().live.values().next().unwrap();
    session.entries.iter().map(|entry| entry.action).collect()
}

#[test]
fn an_exhausted_quota_closes_its_pdrs_until_another_is_granted() {
    let mut it = Measuring::new(&[quota(10_000)]);
    let open = actions(&it);
    assert_eq!(it.packets(1, 9, 1000), []);
    let said = it.packets(1, 100, 1000);
    assert_eq!(said.len(), 1);
    assert_eq!(
        said[0].brief(),
        (1, 0, Told::VOLQU, 10_000, 0),
        "and not one more"
    );
    assert_eq!(actions(&it), [Action::QuotaExhausted; 2]);
    assert_eq!(it.packets(2, 100, 1000), []);
    let view = it.world.core.session(it.seid).unwrap();
    assert!(view.urrs[0].exhausted);
    assert_eq!(view.urrs[0].quota, [Some(0), None, None]);
    it.update(1, &[(IeType::VOLUME_QUOTA, octets(total(2000)))]);
    assert_eq!(actions(&it), open);
    let said = it.packets(2, 100, 1000);
    assert_eq!(said[0].brief(), (1, 1, Told::VOLQU, 0, 2000));
    assert_eq!(actions(&it), [Action::QuotaExhausted; 2]);
    assert_eq!(it.delete()[0].brief(), (1, 2, Told::TERMR, 0, 0));
}

#[test]
fn a_quota_goes_on_over_reports_and_a_grant_counts_from_the_last_one() {
    let urr = UrrIe::volume(1, Asked::VOLQU | Asked::VOLTH)
        .limit(IeType::VOLUME_THRESHOLD, total(6000))
        .limit(IeType::VOLUME_QUOTA, total(10_000));
    let mut it = Measuring::new(&[urr]);
    assert_eq!(
        it.packets(1, 6, 1000)[0].brief(),
        (1, 0, Told::VOLTH, 6000, 0)
    );
    assert_eq!(it.packets(1, 3, 1000), []);
    // 3000 since the report: of the new quota 7000 are left.
    it.update(1, &[(IeType::VOLUME_QUOTA, octets(total(10_000)))]);
    assert_eq!(
        it.packets(1, 3, 1000)[0].brief(),
        (1, 1, Told::VOLTH, 6000, 0)
    );
    let said = it.packets(1, 100, 1000);
    assert_eq!(said[0].brief(), (1, 2, Told::VOLQU, 4000, 0));
}

#[test]
fn a_quota_of_nothing_closes_at_once_and_its_far_says_what_happens_then() {
    let mut it = Measuring::new(&[nothing()]);
    assert_eq!(actions(&it), [Action::QuotaExhausted; 2]);
    it.modify(|w| {
        far_of(w, 3, ApplyAction::BUFF);
        w.grouped(IeType::UPDATE_URR, |w| {
            w.put(IeType::URR_ID, 1u32);
            w.put(IeType::FAR_ID, 3u32);
        });
    });
    assert_eq!(actions(&it), [Action::Buffer; 2]);
    // Towards the core a downlink packet cannot go.
    it.modify(|w| {
        far_to_core(w, 4);
        w.grouped(IeType::UPDATE_URR, |w| {
            w.put(IeType::URR_ID, 1u32);
            w.put(IeType::FAR_ID, 4u32);
        });
    });
    let actions = actions(&it);
    assert!(matches!(actions[0], Action::Route { .. }), "{actions:?}");
    assert_eq!(actions[1], Action::QuotaExhausted);
}

#[test]
fn a_far_update_leaves_a_closed_pdr_closed() {
    let mut it = Measuring::new(&[nothing()]);
    it.modify(|w| {
        w.grouped(IeType::UPDATE_FAR, |w| {
            w.put(IeType::FAR_ID, 1u32);
            w.put(IeType::APPLY_ACTION, ApplyAction::DROP);
        });
    });
    assert_eq!(actions(&it), [Action::QuotaExhausted; 2]);
    it.modify(|w| remove(w, IeType::REMOVE_URR, IeType::URR_ID, 1));
    let actions = actions(&it);
    assert_eq!(
        actions[0],
        Action::Drop,
        "without its URR it is what its FAR says"
    );
}

#[test]
fn tables_without_room_are_tried_again() {
    let mut it = Measuring::new(&[quota(1000)]);
    it.world.core.tables_mut().room = Some(0);
    assert_eq!(it.packets(1, 1, 1000).len(), 1);
    assert_ne!(actions(&it), [Action::QuotaExhausted; 2]);
    it.world.core.tables_mut().room = None;
    it.pass(seconds(2));
    assert_eq!(actions(&it), [Action::QuotaExhausted; 2]);
}

#[test]
fn one_urr_over_many_pdrs_and_many_urrs_over_one() {
    let urr = |id, octets| UrrIe {
        id,
        ..threshold(octets)
    };
    let mut it = Measuring::new(&[urr(1, 50_000), urr(2, 80_000)]);
    it.modify(|w| {
        let pdr = PdrIe {
            id: 3,
            ue: None,
            filters: vec![flow("permit out 17 from any to assigned")],
            urrs: vec![1],
            ..PdrIe::uplink()
        };
        pdr.create(w);
    });
    assert_eq!(it.packets(3, 20, 1000), []);
    assert_eq!(it.packets(2, 20, 1000), []);
    let said = it.packets(1, 20, 1000);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].urr, 1);
    assert_eq!(said[0].down, 20_000);
    let left = it.query(1);
    assert_eq!(said[0].up + left[0].up, 40_000);
    let said = it.query(2);
    assert_eq!(
        (said[0].up, said[0].down),
        (20_000, 20_000),
        "not those of PDR 3"
    );
}

#[test]
fn a_query_reports_at_once_with_its_reference() {
    let mut it = Measuring::new(&[
        threshold(1 << 40),
        UrrIe {
            id: 2,
            ..threshold(1 << 40)
        },
    ]);
    it.packets(1, 3, 100);
    let said = it.modify(|w| {
        w.grouped(IeType::QUERY_URR, |w| w.put(IeType::URR_ID, 2u32));
        w.put(IeType::QUERY_URR_REFERENCE, 5u32);
    });
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].brief(), (2, 0, Told::IMMER, 300, 0));
    assert_eq!(said[0].query, Some(5));
    it.packets(2, 1, 50);
    let said = it.modify(|w| w.put(IeType::PFCPSMREQ_FLAGS, PfcpSmReqFlags::QAURR));
    let brief: Vec<_> = said.iter().map(Said::brief).collect();
    assert_eq!(
        brief,
        [(1, 0, Told::IMMER, 300, 50), (2, 1, Told::IMMER, 0, 50)]
    );
    let records = it.world.out.usage();
    assert!(records.is_empty(), "the answer was taken away with them");
}

#[test]
fn what_is_removed_says_goodbye() {
    let mut it = Measuring::new(&[
        threshold(1 << 40),
        UrrIe {
            id: 2,
            ..threshold(1 << 40)
        },
    ]);
    it.packets(1, 3, 100);
    it.packets(2, 1, 1000);
    let said = it.modify(|w| remove(w, IeType::REMOVE_URR, IeType::URR_ID, 1));
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].brief(), (1, 0, Told::TERMR, 300, 1000));
    it.packets(1, 1, 7);
    // The other PDR still names URR 2.
    assert_eq!(
        it.modify(|w| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 1)),
        []
    );
    let said = it.modify(|w| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 2));
    assert_eq!(said[0].brief(), (2, 0, Told::TERMR, 307, 1000));
    assert_eq!(it.delete()[0].brief(), (2, 1, Told::TERMR, 0, 0));
}

#[test]
fn an_id_that_is_removed_and_created_in_one_request_begins_anew() {
    let mut it = Measuring::new(&[threshold(10_000)]);
    it.packets(1, 9, 1000);
    let said = it.modify(|w| {
        remove(w, IeType::REMOVE_URR, IeType::URR_ID, 1);
        threshold(5000).create(w);
    });
    assert_eq!(said[0].brief(), (1, 0, Told::TERMR, 9000, 0));
    assert_eq!(it.packets(1, 4, 1000), []);
    assert_eq!(
        it.packets(1, 1, 1000)[0].brief(),
        (1, 0, Told::VOLTH, 5000, 0)
    );
}

#[test]
fn a_pdr_that_joins_or_leaves_brings_nothing_and_takes_nothing() {
    let mut it = Measuring::new(&[
        threshold(1 << 40),
        UrrIe {
            id: 2,
            ..threshold(1 << 40)
        },
    ]);
    it.packets(1, 5, 1000);
    let names = |it: &mut Measuring, urrs: Vec<u32>| {
        it.modify(move |w| {
            let pdr = PdrIe {
                urrs: urrs.clone(),
                ..PdrIe::default()
            };
            PdrIe { id: 1, ..pdr }.update(w, false);
        })
    };
    assert_eq!(names(&mut it, vec![2]), []);
    it.packets(1, 7, 1000);
    assert_eq!(names(&mut it, vec![1]), []);
    it.packets(1, 2, 1000);
    assert_eq!((it.query(1)[0].up, it.query(2)[0].up), (7000, 12_000));
}

#[test]
fn measurement_pauses_while_it_is_inactive() {
    let inam =
        |bits: MeasurementInformation| vec![(IeType::MEASUREMENT_INFORMATION, vec![bits.bits()])];
    let mut it = Measuring::new(&[threshold(10_000)]);
    it.packets(1, 3, 1000);
    it.update(1, &inam(MeasurementInformation::INAM));
    assert_eq!(it.packets(1, 100, 1000), []);
    it.update(1, &inam(MeasurementInformation::empty()));
    assert_eq!(it.packets(1, 6, 1000), []);
    assert_eq!(
        it.packets(1, 1, 1000)[0].brief(),
        (1, 0, Told::VOLTH, 10_000, 0)
    );
}

#[test]
fn linked_urrs_report_together() {
    let linked = UrrIe::volume(2, Asked::LIUSA).with(IeType::LINKED_URR_ID, 1);
    let mut it = Measuring::new(&[uplink(2000), linked]);
    it.packets(2, 3, 1000);
    let said = it.packets(1, 2, 1000);
    let brief: Vec<_> = said.iter().map(Said::brief).collect();
    assert_eq!(
        brief,
        [
            (1, 0, Told::VOLTH, 2000, 3000),
            (2, 0, Told::LIUSA, 2000, 3000)
        ]
    );
}

#[test]
fn after_so_many_reports_there_is_silence() {
    let urr = threshold(1000).raw(IeType::NUMBER_OF_REPORTS, &[0, 2]);
    let mut it = Measuring::new(&[urr]);
    let reports = |it: &mut Measuring| (0..5).map(|_| it.packets(1, 1, 1000).len()).sum::<usize>();
    assert_eq!(reports(&mut it), 2);
    assert_eq!(it.query(1)[0].brief(), (1, 2, Told::IMMER, 3000, 0));
    it.update(1, &[(IeType::NUMBER_OF_REPORTS, vec![0, 1])]);
    assert_eq!(reports(&mut it), 1);
}

#[test]
fn operators_see_what_was_measured_between_reports() {
    let mut it = Measuring::new(&[threshold(10_000)]);
    it.packets(1, 3, 1000);
    it.packets(2, 2, 500);
    let view = it.world.core.session(it.seid).unwrap().urrs.remove(0);
    assert_eq!((view.used.bytes, view.used.packets), ([3000, 1000], [3, 2]));
    assert_eq!((view.seqn, view.threshold), (0, [Some(10_000), None, None]));
    assert_eq!(it.query(1)[0].brief(), (1, 0, Told::IMMER, 3000, 1000));
}

#[test]
fn what_passes_while_a_pdr_goes_is_its_last() {
    let mut it = Measuring::new(&[threshold(1 << 40)]);
    it.packets(1, 3, 1000);
    it.packets(2, 1, 1000);
    it.world.core.tables_mut().late = Counters {
        packets: 1,
        bytes: 70,
        ..Counters::default()
    };
    it.modify(|w| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 1));
    let said = it.delete();
    assert_eq!(said[0].brief(), (1, 0, Told::TERMR, 3070, 1070));
}
