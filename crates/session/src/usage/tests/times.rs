//! Effects of time: periods, starts and stops, durations, quotas that end by themselves.

use compiled::Action;
use pfcp::ToIe;
use pfcp::ie::{
    DroppedDlTraffic, MeasurementInformation, ReportingTriggers as Asked, TimePeriods,
    TimeQuotaMechanism, UsageReportTrigger as Told,
};

use super::*;

fn triggers(said: &[Said]) -> Vec<Told> {
    said.iter().map(|said| said.trigger).collect()
}

fn is_closed(it: &Measuring) -> bool {
    let session = it.world.core.tables().live.values().next().unwrap();
    (session.entries.iter()).all(|entry| entry.action == Action::QuotaExhausted)
}

#[test]
fn a_periodic_report_comes_each_period_with_what_passed_in_it() {
    let urr = UrrIe::volume(1, Asked::PERIO).with(IeType::MEASUREMENT_PERIOD, 10);
    let mut it = Measuring::new(&[urr]);
    let begin = it.ntp();
    it.packets(1, 3, 1000);
    let said = it.pass(seconds(10));
    assert_eq!(said[0].brief(), (1, 0, Told::PERIO, 3000, 0));
    assert_eq!(said[0].times, Some((begin, begin + 10)));
    it.packets(2, 1, 500);
    let said = it.pass(seconds(20));
    let brief: Vec<_> = said.iter().map(Said::brief).collect();
    assert_eq!(
        brief,
        [(1, 1, Told::PERIO, 0, 500), (1, 2, Told::PERIO, 0, 0)]
    );
    it.update(
        1,
        &[
            (IeType::REPORTING_TRIGGERS, vec![2, 0]),
            (IeType::VOLUME_THRESHOLD, octets(total(1_000_000))),
        ],
    );
    assert_eq!(it.pass(seconds(100)), []);
    assert_eq!(it.world.core.next_deadline(), None);
}

#[test]
fn starts_and_stops_of_traffic_are_told() {
    let urr =
        UrrIe::volume(1, Asked::START | Asked::STOPT).with(IeType::INACTIVITY_DETECTION_TIME, 4);
    let mut it = Measuring::new(&[urr]);
    it.pass(seconds(100));
    let said = it.packets(2, 1, 700);
    assert_eq!(said[0].brief(), (1, 0, Told::START, 0, 700));
    assert_eq!((said[0].first, said[0].times), (Some(it.ntp()), None));
    assert_eq!(it.packets(2, 5, 100), []);
    let said = it.pass(seconds(6));
    assert_eq!(said[0].brief(), (1, 1, Told::STOPT, 0, 500));
    assert_eq!(triggers(&it.packets(1, 1, 1)), [Told::START], "again");
}

#[test]
fn time_runs_from_the_first_packet_or_at_once() {
    let urr = UrrIe::time(1, Asked::TIMTH).with(IeType::TIME_THRESHOLD, 30);
    let mut it = Measuring::new(&[urr]);
    assert_eq!(it.pass(seconds(100)), []);
    it.packets(1, 1, 100);
    let first = it.ntp();
    assert_eq!(it.pass(seconds(29)), []);
    let said = it.pass(seconds(1));
    assert_eq!((said[0].trigger, said[0].seconds), (Told::TIMTH, Some(30)));
    assert_eq!(said[0].first, Some(first));
    assert_eq!(it.pass(seconds(30))[0].seconds, Some(30), "and goes on");

    let istm = [MeasurementInformation::ISTM.bits()];
    let urr = UrrIe::time(1, Asked::TIMTH)
        .with(IeType::TIME_THRESHOLD, 30)
        .raw(IeType::MEASUREMENT_INFORMATION, &istm);
    assert_eq!(Measuring::new(&[urr]).pass(seconds(30)).len(), 1);
}

#[test]
fn idle_time_is_not_measured() {
    let urr = UrrIe::time(1, Asked::TIMTH)
        .with(IeType::TIME_THRESHOLD, 100)
        .with(IeType::INACTIVITY_DETECTION_TIME, 8);
    let mut it = Measuring::new(&[urr]);
    it.packets(1, 1, 100);
    assert_eq!(it.pass(seconds(1000)), []);
    // It ran until the detection time was over, and runs again from the next packet on.
    it.packets(1, 1, 100);
    it.pass(seconds(1000));
    let said = it.query(1);
    assert_eq!(said[0].seconds, Some(16));
    for _ in 0..24 {
        it.packets(2, 1, 100);
        assert_eq!(it.pass(seconds(4)).len(), 0);
    }
    it.packets(2, 1, 100);
    assert_eq!(triggers(&it.pass(seconds(4))), [Told::TIMTH]);
}

#[test]
fn a_time_quota_closes_and_a_grant_opens() {
    let urr = UrrIe::time(1, Asked::TIMQU).with(IeType::TIME_QUOTA, 60);
    let mut it = Measuring::new(&[urr]);
    it.packets(1, 1, 100);
    assert_eq!(it.pass(seconds(59)), []);
    let said = it.pass(seconds(1));
    assert_eq!((said[0].trigger, said[0].seconds), (Told::TIMQU, Some(60)));
    assert!(is_closed(&it));
    it.update(1, &[(IeType::TIME_QUOTA, 60u32.to_be_bytes().into())]);
    assert!(!is_closed(&it));
    assert_eq!(triggers(&it.pass(seconds(60))), [Told::TIMQU]);
}

#[test]
fn a_quota_is_held_no_longer_than_it_is_used() {
    let urr = UrrIe::volume(1, Asked::QUHTI)
        .limit(IeType::VOLUME_QUOTA, total(1 << 30))
        .with(IeType::QUOTA_HOLDING_TIME, 16);
    let mut it = Measuring::new(&[urr]);
    for _ in 0..10 {
        it.packets(1, 1, 100);
        assert_eq!(it.pass(seconds(13)), []);
    }
    let said = it.pass(seconds(5));
    assert_eq!(said[0].brief(), (1, 0, Told::QUHTI, 1000, 0));
    assert!(is_closed(&it));
    assert_eq!(it.pass(seconds(100)), []);
    it.update(1, &[(IeType::VOLUME_QUOTA, octets(total(1000)))]);
    assert!(!is_closed(&it));
    assert_eq!(triggers(&it.pass(seconds(16))), [Told::QUHTI]);
}

#[test]
fn a_quota_is_valid_for_its_time() {
    let urr = UrrIe::volume(1, Asked::QUVTI)
        .limit(IeType::VOLUME_QUOTA, total(1 << 30))
        .with(IeType::QUOTA_VALIDITY_TIME, 60);
    let mut it = Measuring::new(&[urr]);
    it.packets(1, 1, 100);
    it.pass(seconds(50));
    it.update(1, &[(IeType::VOLUME_QUOTA, octets(total(1 << 30)))]);
    assert_eq!(it.pass(seconds(59)), [], "with the new one the time begins");
    let said = it.pass(seconds(1));
    assert_eq!(said[0].brief(), (1, 0, Told::QUVTI, 100, 0));
    assert!(is_closed(&it));
    it.update(
        1,
        &[(IeType::QUOTA_VALIDITY_TIME, 60u32.to_be_bytes().into())],
    );
    assert!(!is_closed(&it));
}

#[test]
fn usage_before_and_after_a_monitoring_time_is_reported_apart() {
    let mut it = Measuring::new(&[]);
    let at = it.ntp() + 100;
    let subsequent = total(5000);
    it.modify(|w| {
        UrrIe::volume(1, Asked::VOLTH)
            .limit(IeType::VOLUME_THRESHOLD, total(10_000))
            .with(IeType::MONITORING_TIME, at)
            .limit(IeType::SUBSEQUENT_VOLUME_THRESHOLD, subsequent)
            .create(w);
        let pdr = PdrIe {
            urrs: vec![1],
            ..PdrIe::default()
        };
        PdrIe { id: 1, ..pdr }.update(w, false);
    });
    it.packets(1, 7, 1000);
    assert_eq!(
        it.pass(seconds(200)),
        [],
        "a monitoring time alone reports nothing"
    );
    assert_eq!(it.packets(1, 4, 1000), []);
    let said = it.packets(1, 1, 1000);
    assert_eq!(said[0].brief(), (1, 0, Told::MONIT, 7000, 0));
    assert_eq!(said[1].brief(), (1, 1, Told::VOLTH, 5000, 0));
    assert_eq!(said[0].information, UsageInformation::BEF);
    assert_eq!(said[1].information, UsageInformation::AFT);
    assert_eq!(said[0].times.unwrap().1, at);
    assert_eq!(said[1].times.unwrap(), (at, it.ntp()));
    // The subsequent threshold holds from then on.
    assert_eq!(
        it.packets(1, 5, 1000)[0].brief(),
        (1, 2, Told::VOLTH, 5000, 0)
    );
}

#[test]
fn without_another_threshold_what_is_left_goes_on() {
    let mut it = Measuring::new(&[]);
    let at = it.ntp() + 100;
    let more = [
        0, 33, 0, 4, // Monitoring Time
    ];
    let second: Vec<u8> = more.into_iter().chain((at + 100).to_be_bytes()).collect();
    it.modify(|w| {
        UrrIe::volume(1, Asked::VOLTH)
            .limit(IeType::VOLUME_THRESHOLD, total(10_000))
            .with(IeType::MONITORING_TIME, at)
            .raw(IeType::ADDITIONAL_MONITORING_TIME, &second)
            .create(w);
        let pdr = PdrIe {
            urrs: vec![1],
            ..PdrIe::default()
        };
        PdrIe { id: 1, ..pdr }.update(w, false);
    });
    it.packets(1, 6, 1000);
    it.pass(seconds(100));
    it.packets(1, 3, 1000);
    it.pass(seconds(100));
    let said = it.packets(1, 1, 1000);
    let up: Vec<_> = said
        .iter()
        .map(|said| (said.seqn, said.trigger, said.up))
        .collect();
    assert_eq!(
        up,
        [
            (0, Told::MONIT, 6000),
            (1, Told::MONIT, 3000),
            (2, Told::VOLTH, 1000)
        ]
    );
}

fn mechanism(periods: TimePeriods, interval_s: u32) -> Vec<u8> {
    let mut octets = Vec::new();
    TimeQuotaMechanism {
        periods,
        interval_s,
    }
    .to_ie(&mut octets);
    octets
}

#[test]
fn discrete_periods_count_as_wholes() {
    let urr = UrrIe::time(1, Asked::ENVCL).raw(
        IeType::TIME_QUOTA_MECHANISM,
        &mechanism(TimePeriods::Discrete, 60),
    );
    let mut it = Measuring::new(&[urr]);
    it.pass(seconds(100));
    it.packets(1, 1, 100);
    let first = it.ntp();
    assert_eq!(it.pass(seconds(59)), []);
    let said = it.pass(seconds(1));
    assert_eq!((said[0].trigger, said[0].seconds), (Told::ENVCL, Some(60)));
    assert_eq!(said[0].first, Some(first));
    assert_eq!(it.pass(seconds(500)), []);
    it.packets(1, 1, 100);
    assert_eq!(it.pass(seconds(60))[0].seconds, Some(60));
}

#[test]
fn continuous_periods_end_with_one_in_which_nothing_came() {
    let urr = UrrIe::time(1, Asked::ENVCL).raw(
        IeType::TIME_QUOTA_MECHANISM,
        &mechanism(TimePeriods::Continuous, 60),
    );
    let mut it = Measuring::new(&[urr]);
    it.packets(1, 1, 100);
    for _ in 0..3 {
        it.packets(1, 1, 100);
        assert_eq!(it.pass(seconds(60)), []);
    }
    let said = it.pass(seconds(60));
    assert_eq!((said[0].trigger, said[0].seconds), (Told::ENVCL, Some(240)));
    assert_eq!(it.pass(seconds(500)), []);
}

#[test]
fn events_are_starts_of_traffic() {
    let urr = UrrIe {
        method: MeasurementMethod::EVENT,
        ..UrrIe::volume(1, Asked::EVETH | Asked::EVEQU)
    };
    let urr = urr
        .with(IeType::EVENT_THRESHOLD, 2)
        .with(IeType::EVENT_QUOTA, 3)
        .with(IeType::INACTIVITY_DETECTION_TIME, 8);
    let mut it = Measuring::new(&[urr]);
    let mut at = Vec::new();
    assert_eq!(it.packets(1, 10, 100), []);
    at.push(it.ntp());
    it.pass(seconds(20));
    at.push(it.ntp());
    let said = it.packets(1, 10, 100);
    assert_eq!((said[0].trigger, &said[0].events), (Told::EVETH, &at));
    it.pass(seconds(20));
    assert_eq!(triggers(&it.packets(1, 1, 100)), [Told::EVEQU]);
    assert!(is_closed(&it));
}

#[test]
fn dropped_downlink_packets_reach_their_threshold() {
    let mut threshold = Vec::new();
    DroppedDlTraffic {
        packets: Some(3),
        octets: None,
    }
    .to_ie(&mut threshold);
    let urr = UrrIe::volume(1, Asked::DROTH)
        .limit(IeType::VOLUME_QUOTA, total(0))
        .raw(IeType::DROPPED_DL_TRAFFIC_THRESHOLD, &threshold);
    let mut it = Measuring::new(&[urr]);
    it.packets(1, 50, 100);
    it.packets(2, 2, 100);
    assert_eq!(it.pass(seconds(5)), [], "uplink packets do not count");
    it.packets(2, 1, 100);
    assert_eq!(triggers(&it.pass(seconds(1))), [Told::DROTH]);
    assert_eq!(it.pass(seconds(5)), []);
}

#[test]
fn inactivity_is_told_once_until_packets_come() {
    let urr = UrrIe::volume(1, Asked::UPINT).with(IeType::USER_PLANE_INACTIVITY_TIMER, 8);
    let mut it = Measuring::new(&[urr]);
    assert_eq!(triggers(&it.pass(seconds(100))), [Told::UPINT]);
    it.packets(1, 1, 100);
    assert_eq!(triggers(&it.pass(seconds(100))), [Told::UPINT]);
}
