use std::time::Duration;

use ipnet::IpNet;
use proptest::prelude::*;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn bounds() -> Bounds {
    let period = Duration::from_secs(5);
    Bounds { period }
}

fn subscription() -> Value {
    json!({
        "eventList": [{"type": "USER_DATA_USAGE_MEASURES", "immediateFlag": true, "measurementTypes": ["VOLUME_MEASUREMENT"]}],
        "eventNotifyUri": "http://10.0.0.9:9000/told",
        "notifyCorrelationId": "one",
        "eventReportingMode": {"trigger": "PERIODIC", "repPeriod": 10},
        "nfId": "3f1c7a52-0c52-4f0e-9a39-3a0f6a3f5d11",
        "ueIpAddress": {"ipv4Addr": "10.60.0.1"},
        "of a later release": {"is": ["passed", "over"]},
    })
}

/// With `value` at this pointer; `null`: without what is there.
fn with(pointer: &str, value: Value) -> Value {
    let mut all = subscription();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = all.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => parent.remove(name),
        value => parent.insert(name.to_owned(), value),
    };
    all
}

fn read(subscription: &Value) -> Result<Asked, Problem> {
    Asked::read(subscription, bounds(), OffsetDateTime::UNIX_EPOCH)
}

/// Status, cause, and pointer of a refusal.
fn refusal(subscription: &Value) -> (u16, String, String) {
    let problem = read(subscription).unwrap_err();
    let body: Value = serde_json::from_slice(&problem.body()).unwrap();
    assert_eq!(body["status"], problem.status().as_u16());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let param = &body["invalidParams"][0];
    assert!(!text(&param["reason"]).is_empty());
    (
        problem.status().as_u16(),
        text(&body["cause"]),
        text(&param["param"]),
    )
}

#[test]
fn what_can_be_honoured_is_accepted() {
    let asked = read(&subscription()).unwrap();
    assert_eq!(asked.whom, Whom::Ue("10.60.0.1".parse().unwrap()));
    assert_eq!(asked.mode.period, Duration::from_secs(10));
    let (volume, throughput) = (true, false);
    assert_eq!(asked.events, [Event::Measures { volume, throughput }]);
    assert!(asked.at_once);
    let v6 = |value| read(&with("/ueIpAddress", value)).unwrap().whom;
    let prefix = json!({"ipv6Prefix": "2001:db8:1:2::/64"});
    assert_eq!(v6(prefix), Whom::Ue("2001:db8:1:2::".parse().unwrap()));
    assert_eq!(
        v6(json!({"ipv6Addr": "2001:db8::7"})),
        Whom::Ue("2001:db8::7".parse().unwrap())
    );
    // Of a DNN alone, of any UE, once.
    let mut of_dnn = with("/ueIpAddress", Value::Null);
    of_dnn["dnn"] = json!("internet");
    assert_eq!(read(&of_dnn).unwrap().whom, Whom::Any);
    of_dnn["anyUe"] = json!(true);
    of_dnn["eventReportingMode"] = json!({"trigger": "ONE_TIME"});
    let mode = read(&of_dnn).unwrap().mode;
    assert_eq!((mode.reports, mode.period), (Some(1), bounds().period));
    let ends = with(
        "/eventReportingMode/expiry",
        json!("2026-11-29T10:00:00.5+01:00"),
    );
    assert_eq!(
        read(&ends).unwrap().mode.expiry.unwrap().unix_timestamp(),
        1_795_942_800
    );
}

#[test]
fn others_are_refused_by_cause_and_attribute() {
    let missing = "MANDATORY_IE_MISSING";
    for pointer in [
        "/eventList",
        "/eventNotifyUri",
        "/notifyCorrelationId",
        "/eventReportingMode",
        "/nfId",
        "/ueIpAddress",
        "/eventReportingMode/trigger",
        "/eventReportingMode/repPeriod",
    ] {
        let refused = refusal(&with(pointer, Value::Null));
        assert_eq!(refused, (400, missing.into(), pointer.into()), "{pointer}");
    }
    for (pointer, value) in [
        ("/eventList", json!([])),
        (
            "/eventList",
            json!(vec![json!({"type": "USER_DATA_USAGE_TRENDS"}); 9]),
        ),
        ("/eventList", json!("all")),
        ("/eventNotifyUri", json!("told")),
        ("/eventNotifyUri", json!("ftp://10.0.0.9/")),
        ("/notifyCorrelationId", json!("x".repeat(257))),
        ("/notifyCorrelationId", json!(7)),
        ("/nfId", json!("upf")),
        ("/eventReportingMode/trigger", json!("THRESHOLD")),
        ("/eventReportingMode/repPeriod", json!("soon")),
    ] {
        let (_, cause, param) = refusal(&with(pointer, value.clone()));
        assert_eq!(
            (cause.as_str(), param.as_str()),
            ("MANDATORY_IE_INCORRECT", pointer),
            "{value}"
        );
    }
    for (pointer, value) in [
        ("/eventReportingMode/repPeriod", json!(4)),
        ("/eventReportingMode/repPeriod", json!(u64::MAX)),
        ("/eventReportingMode/maxReports", json!(0)),
        ("/eventReportingMode/sampRatio", json!(0)),
        ("/eventReportingMode/sampRatio", json!(101)),
        ("/eventReportingMode/expiry", json!("1969-12-31T23:59:59Z")),
        ("/eventReportingMode/expiry", json!("tomorrow")),
        ("/eventReportingMode/partitioningCriteria", json!(["TAC"])),
        ("/eventReportingMode/notifFlag", json!("DEACTIVATE")),
        ("/anyUe", json!(true)),
        ("/ueIpAddress", json!({})),
        (
            "/ueIpAddress",
            json!({"ipv4Addr": "10.60.0.1", "ipv6Addr": "::1"}),
        ),
        ("/ueIpAddress/ipv6Prefix", json!("2001:db8::/56")),
        ("/dnn", json!("x".repeat(257))),
        ("/snssai", json!({"sst": 1, "sd": "12345g"})),
    ] {
        let (status, cause, param) = refusal(&with(pointer, value.clone()));
        assert_eq!(
            (status, cause.as_str()),
            (400, "OPTIONAL_IE_INCORRECT"),
            "{pointer} {value}"
        );
        assert!(param.starts_with(pointer), "{pointer} {value}: {param}");
    }
    for event in [
        json!({"type": "QOS_MONITORING"}),
        json!({"type": "TSC_MNGT_INFO"}),
        json!({}),
        json!({"type": "USER_DATA_USAGE_MEASURES", "appIds": ["web"]}),
        json!({"type": "USER_DATA_USAGE_MEASURES", "trafficFilters": [{}]}),
        json!({"type": "USER_DATA_USAGE_MEASURES", "granularityOfMeasurement": "PER_FLOW"}),
        json!({"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": []}),
        json!({"type": "USER_DATA_USAGE_MEASURES", "measurementTypes": ["APPLICATION_RELATED_INFO"]}),
        json!({"type": "USER_DATA_USAGE_TRENDS", "measurementTypes": ["VOLUME_MEASUREMENT"]}),
    ] {
        let (_, _, param) = refusal(&with("/eventList", json!([event])));
        assert!(param.starts_with("/eventList/0/"), "{event}: {param}");
    }
    let mut by_name = with("/ueIpAddress", Value::Null);
    by_name["supi"] = json!("imsi-001010000000001");
    assert_eq!(refusal(&by_name).2, "/supi");
}

/// Time that goes on when it is told to.
struct Clock {
    began: Instant,
    since: Duration,
}

impl Clock {
    fn new() -> Self {
        let (began, since) = (Instant::now(), Duration::ZERO);
        Self { began, since }
    }

    fn now(&self) -> Now {
        Now {
            instant: self.began + self.since,
            wall: OffsetDateTime::UNIX_EPOCH + self.since,
        }
    }

    fn sleep(&mut self, time: Duration) -> Now {
        self.since += time;
        self.now()
    }
}

const UE: [&str; 2] = ["10.60.0.1/32", "2001:db8:1:2::/64"];

type Pdrs = Vec<(u16, usize, Amount)>;

fn amount(octets: u64, packets: u64) -> Amount {
    Amount { octets, packets }
}

fn look(watch: &mut Watch, now: Now, sessions: &[(u64, Pdrs)]) {
    let ue: Vec<IpNet> = UE.iter().map(|net| net.parse().unwrap()).collect();
    let look = watch.begin_look();
    for (seid, pdrs) in sessions {
        let counts = Counts {
            seid: *seid,
            ue: &ue,
            dnn: Some("internet"),
            pdrs,
        };
        watch.see(look, now, &counts, true);
    }
    watch.end_look(look, now);
}

fn any_ue(events: Value) -> Asked {
    let mut any = with("/ueIpAddress", Value::Null);
    any["anyUe"] = json!(true);
    any["eventList"] = events;
    read(&any).unwrap()
}

fn volumes() -> Value {
    json!([{"type": "USER_DATA_USAGE_MEASURES"}])
}

fn told(report: &Report) -> Vec<Value> {
    let bodies = report.bodies();
    bodies
        .map(|body| serde_json::from_slice(&body).unwrap())
        .collect()
}

#[test]
fn a_period_is_told_with_its_times_volumes_and_rates() {
    let mut clock = Clock::new();
    let mut asked = read(&subscription()).unwrap();
    let throughput = true;
    asked.events = vec![
        Event::Measures {
            volume: true,
            throughput,
        },
        Event::Trends,
    ];
    asked.names.supi = Some("imsi-1".into());
    let mut watch = Watch::new(asked, clock.now());
    look(
        &mut watch,
        clock.now(),
        &[(7, vec![(1, 0, amount(500, 5)), (2, 1, amount(900, 9))])],
    );
    assert_eq!(watch.named(), [7]);
    assert_eq!(watch.report(clock.now()), Ok(None));
    let now = clock.sleep(Duration::from_secs(1));
    assert!(watch.wants_look(now));
    // A burst in one second, and nothing in nine.
    let then = vec![(1, 0, amount(1500, 15)), (2, 1, amount(900, 9))];
    look(&mut watch, now, &[(7, then.clone())]);
    let now = clock.sleep(Duration::from_secs(9));
    look(&mut watch, now, &[(7, then)]);
    let report = watch.report(now).unwrap().unwrap();
    assert_eq!(watch.report(now), Ok(None), "it is under way");
    let bodies = told(&report);
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0]["correlationId"], "one");
    let common = json!({
        "ueIpv4Addr": "10.60.0.1", "ueIpv6Prefix": "2001:db8:1:2::/64", "dnn": "internet", "supi": "imsi-1",
        "startTime": "1970-01-01T00:00:00Z", "timeStamp": "1970-01-01T00:00:10Z",
    });
    let of = |kind: &str, usage: Value| {
        let mut item = common.clone();
        item["eventType"] = json!(kind);
        item["userDataUsageMeasurements"] = json!([usage]);
        item
    };
    let measures = of(
        "USER_DATA_USAGE_MEASURES",
        json!({
            "volumeMeasurement": {"totalVolume": "1000 B", "ulVolume": "1000 B", "dlVolume": "0 B",
                "totalNbOfPackets": 10, "ulNbOfPackets": 10, "dlNbOfPackets": 0},
            "throughputMeasurement": {"ulThroughput": "800 bps", "dlThroughput": "0 bps",
                "ulPacketThroughput": "1.000 pps", "dlPacketThroughput": "0.000 pps"},
        }),
    );
    let trends = of(
        "USER_DATA_USAGE_TRENDS",
        json!({
            "throughputStatisticsMeasurement": {
                "ulAverageThroughput": "800 bps", "dlAverageThroughput": "0 bps",
                "ulPeakThroughput": "8000 bps", "dlPeakThroughPut": "0 bps",
                "ulAveragePacketThroughput": "1.000 pps", "dlAveragePacketThroughput": "0.000 pps",
                "ulPeakPacketThroughput": "10.000 pps", "dlPeakPacketThroughput": "0.000 pps"},
        }),
    );
    assert_eq!(bodies[0]["notificationItems"], json!([measures, trends]));
    watch.told(now, (&report, Told::Taken), PATIENCE).unwrap();
    // It was silent in the next one, which a named UE's consumer hears, too.
    let now = clock.sleep(Duration::from_secs(10));
    look(
        &mut watch,
        now,
        &[(7, vec![(1, 0, amount(1500, 15)), (2, 1, amount(900, 9))])],
    );
    let report = watch.report(now).unwrap().unwrap();
    let item = &told(&report)[0]["notificationItems"][0];
    assert_eq!(item["startTime"], "1970-01-01T00:00:10Z");
    assert_eq!(
        item["userDataUsageMeasurements"][0]["volumeMeasurement"]["totalVolume"],
        "0 B"
    );
}

#[test]
fn what_was_counted_so_far_is_told_at_once() {
    let clock = Clock::new();
    let asked = read(&subscription()).unwrap();
    let watch = Watch::new(asked, clock.now());
    let ue = ["10.60.0.1/32".parse().unwrap()];
    let pdrs = [
        (1, 0, amount(500, 5)),
        (2, 1, amount(900, 9)),
        (3, 0, amount(1, 1)),
    ];
    let counts = Counts {
        seid: 7,
        ue: &ue,
        dnn: None,
        pdrs: &pdrs,
    };
    let items = watch.so_far(clock.now(), &counts);
    assert_eq!(items.len(), 1);
    assert_eq!(
        items[0]["userDataUsageMeasurements"][0]["volumeMeasurement"]["totalVolume"],
        "1401 B"
    );
    assert_eq!(items[0].get("startTime"), None);
    let asked = any_ue(volumes());
    assert!(
        Watch::new(asked, clock.now())
            .so_far(clock.now(), &counts)
            .is_empty()
    );
}

#[test]
fn the_end_of_its_session_is_the_last_report_of_a_named_ue() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(read(&subscription()).unwrap(), clock.now());
    look(&mut watch, clock.now(), &[(7, vec![(1, 0, amount(0, 0))])]);
    let now = clock.sleep(Duration::from_secs(1));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(100, 1))])]);
    assert_eq!(watch.report(now), Ok(None));
    let now = clock.sleep(Duration::from_secs(1));
    look(&mut watch, now, &[]);
    let report = watch.report(now).unwrap().unwrap();
    let item = &told(&report)[0]["notificationItems"][0];
    assert_eq!(
        item["timeStamp"], "1970-01-01T00:00:01Z",
        "when it was last seen"
    );
    assert_eq!(
        watch.told(now, (&report, Told::Taken), PATIENCE),
        Err(Over::Bereft)
    );
    // Of a period that has been told until then, nothing is left.
    let mut watch = Watch::new(read(&subscription()).unwrap(), clock.now());
    look(&mut watch, clock.now(), &[(7, vec![(1, 0, amount(0, 0))])]);
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(100, 1))])]);
    let report = watch.report(now).unwrap().unwrap();
    watch.told(now, (&report, Told::Taken), PATIENCE).unwrap();
    let now = clock.sleep(Duration::from_secs(1));
    look(&mut watch, now, &[]);
    assert_eq!(watch.report(now), Err(Over::Bereft));
}

#[test]
fn it_ends_after_its_reports_and_at_its_time() {
    let mut clock = Clock::new();
    let mut asked = any_ue(volumes());
    asked.mode.reports = Some(2);
    let mut watch = Watch::new(asked, clock.now());
    look(&mut watch, clock.now(), &[(7, vec![(1, 0, amount(0, 0))])]);
    for count in 1..=2 {
        let now = clock.sleep(Duration::from_secs(10));
        look(&mut watch, now, &[(7, vec![(1, 0, amount(count, count))])]);
        let report = watch.report(now).unwrap().unwrap();
        let told = watch.told(now, (&report, Told::Taken), PATIENCE);
        assert_eq!(
            told,
            if count == 2 {
                Err(Over::Complete)
            } else {
                Ok(())
            }
        );
    }
    let mut asked = any_ue(volumes());
    asked.mode.expiry = Some(clock.now().wall + Duration::from_secs(4));
    let mut watch = Watch::new(asked, clock.now());
    look(&mut watch, clock.now(), &[(7, vec![(1, 0, amount(0, 0))])]);
    assert_eq!(
        watch.next(clock.now()),
        clock.now().instant + Duration::from_secs(4)
    );
    let now = clock.sleep(Duration::from_secs(4));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(3, 3))])]);
    let report = watch.report(now).unwrap();
    let report = report.expect("what passed until then");
    assert_eq!(
        watch.told(now, (&report, Told::Taken), PATIENCE),
        Err(Over::Expired)
    );
}

#[test]
fn a_report_that_is_not_taken_is_told_again_and_later_ones_wait() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(any_ue(volumes()), clock.now());
    let many = |octets| {
        (1..=450)
            .map(|seid| (seid, vec![(1, 0, amount(octets, 1))]))
            .collect::<Vec<_>>()
    };
    look(&mut watch, clock.now(), &many(0));
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &many(100));
    let report = watch.report(now).unwrap().unwrap();
    assert_eq!((report.len(), told(&report).len()), (450, 3));
    watch.told(now, (&report, Told::Not(1)), PATIENCE).unwrap();
    assert_eq!(watch.report(now), Ok(None));
    let now = clock.sleep(Duration::from_secs(1));
    let again = watch.report(now).unwrap().unwrap();
    assert_eq!(
        told(&again),
        told(&report)[1..],
        "the one that was taken is not told again"
    );
    // The next period is over meanwhile, and is told with the one after.
    let now = clock.sleep(Duration::from_secs(15));
    look(&mut watch, now, &many(300));
    assert_eq!(watch.report(now), Ok(None));
    watch.told(now, (&again, Told::Taken), PATIENCE).unwrap();
    let now = clock.sleep(Duration::from_secs(4));
    look(&mut watch, now, &many(300));
    let mut next = watch.report(now).unwrap().unwrap();
    let item = &told(&next)[0]["notificationItems"][0];
    assert_eq!(item["startTime"], "1970-01-01T00:00:10Z");
    assert_eq!(
        item["userDataUsageMeasurements"][0]["volumeMeasurement"]["ulVolume"],
        "200 B"
    );
    // Nothing is taken for longer than it may be.
    let mut pauses = Vec::new();
    let over = loop {
        if let Err(over) = watch.told(clock.now(), (&next, Told::Not(0)), PATIENCE) {
            break over;
        }
        let now = clock.now();
        let at = watch.next(now).duration_since(now.instant);
        pauses.push(at.as_secs());
        let now = clock.sleep(at);
        watch.put_off(now.instant + Duration::from_secs(3600));
        next = watch.report(now).unwrap().unwrap();
    };
    assert_eq!((over, pauses), (Over::Silent, vec![1, 2, 4, 8, 16, 30]));
}

#[test]
fn of_any_ue_those_that_were_silent_are_left_out() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(any_ue(volumes()), clock.now());
    look(
        &mut watch,
        clock.now(),
        &[
            (1, vec![(1, 0, amount(5, 1))]),
            (2, vec![(1, 0, amount(5, 1))]),
        ],
    );
    let now = clock.sleep(Duration::from_secs(10));
    // One that has come since then, and one that has had another PDR in place of the one it had.
    let then = [
        (1, vec![(1, 0, amount(5, 1))]),
        (2, vec![(2, 1, amount(7, 1))]),
        (3, vec![(1, 0, amount(11, 1))]),
    ];
    look(&mut watch, now, &then);
    let report = watch.report(now).unwrap().unwrap();
    let mut volumes: Vec<String> = told(&report)[0]["notificationItems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            item["userDataUsageMeasurements"][0]["volumeMeasurement"]["totalVolume"].to_string()
        })
        .collect();
    volumes.sort();
    assert_eq!(volumes, ["\"11 B\"", "\"7 B\""]);
    watch.told(now, (&report, Told::Taken), PATIENCE).unwrap();
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &then);
    assert_eq!(watch.report(now), Ok(None), "nobody to tell of");
}

#[test]
fn one_that_there_was_no_room_for_begins_where_there_is() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(any_ue(volumes()), clock.now());
    let ue = ["10.60.0.1/32".parse().unwrap()];
    let see = |watch: &mut Watch, (look, now), seid, octets, is_room| {
        let pdrs = [(1, 0, amount(octets, 1))];
        let counts = Counts {
            seid,
            ue: &ue,
            dnn: None,
            pdrs: &pdrs,
        };
        watch.see(look, now, &counts, is_room)
    };
    let (first, now) = (watch.begin_look(), clock.now());
    assert!(see(&mut watch, (first, now), 1, 0, true));
    assert!(!see(&mut watch, (first, now), 2, 1000, false));
    watch.end_look(first, now);
    assert_eq!((watch.ue_count(), watch.left_out()), (1, 1));
    let now = clock.sleep(Duration::from_secs(5));
    // A look that is given up changes nothing of that.
    let given_up = watch.begin_look();
    assert!(see(&mut watch, (given_up, now), 1, 5, true));
    let now = clock.sleep(Duration::from_secs(5));
    let second = watch.begin_look();
    assert!(
        see(&mut watch, (given_up, now), 3, 1000, true),
        "passed over"
    );
    assert!(see(&mut watch, (second, now), 1, 10, true));
    assert!(see(&mut watch, (second, now), 2, 1500, true));
    watch.end_look(given_up, now);
    assert_eq!((watch.ue_count(), watch.left_out()), (2, 1));
    watch.end_look(second, now);
    assert_eq!(watch.left_out(), 0);
    let report = watch.report(now).unwrap().unwrap();
    assert_eq!(report.len(), 1, "what it had before is not of this period");
    assert_eq!(
        told(&report)[0].get("achievedSampRatio"),
        None,
        "all are there"
    );
}

#[test]
fn so_many_of_a_hundred_are_chosen_and_told_so() {
    let mut clock = Clock::new();
    let mut asked = any_ue(volumes());
    asked.mode.percent = Some(10);
    let mut watch = Watch::new(asked, clock.now());
    let all = |octets| {
        (0..10_000)
            .map(|seid| (seid << 32 | 5, vec![(1, 0, amount(octets, 1))]))
            .collect::<Vec<_>>()
    };
    look(&mut watch, clock.now(), &all(0));
    assert!(
        (900..=1100).contains(&watch.ue_count()),
        "{}",
        watch.ue_count()
    );
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &all(1));
    let report = watch.report(now).unwrap().unwrap();
    assert_eq!(report.len(), watch.ue_count());
    assert_eq!(told(&report)[0]["achievedSampRatio"], 10);
}

#[derive(Clone, Debug)]
enum Step {
    Sleep(u64),
    Count(u16, u64),
    Look,
    Report(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u64..20_000).prop_map(Step::Sleep),
        (1u16..4, 1u64..1000).prop_map(|(pdr, octets)| Step::Count(pdr, octets)),
        Just(Step::Look),
        any::<bool>().prop_map(Step::Report),
    ]
}

proptest! {
    /// Whatever is taken and when, what reports say is what was counted, once.
    #[test]
    fn reports_add_up(steps in prop::collection::vec(step(), 0..80)) {
        let mut clock = Clock::new();
        let mut watch = Watch::new(any_ue(volumes()), clock.now());
        let mut pdrs: Pdrs = (1..4).map(|id| (id, usize::from(id % 2), Amount::default())).collect();
        look(&mut watch, clock.now(), &[(1, pdrs.clone())]);
        let mut sum = 0;
        let mut last_until = 0;
        let end = [Step::Sleep(60_000), Step::Report(true), Step::Sleep(60_000), Step::Report(true)];
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Sleep(millis) => drop(clock.sleep(Duration::from_millis(millis))),
                Step::Count(id, octets) => {
                    let counted = &mut pdrs[usize::from(id) - 1].2;
                    counted.octets += octets;
                    counted.packets += 1;
                }
                Step::Look => look(&mut watch, clock.now(), &[(1, pdrs.clone())]),
                Step::Report(taken) => {
                    let now = clock.now();
                    if watch.wants_look(now) {
                        look(&mut watch, now, &[(1, pdrs.clone())]);
                    }
                    let Some(report) = watch.report(now).unwrap() else { continue };
                    let item = &told(&report)[0]["notificationItems"][0];
                    let volume = &item["userDataUsageMeasurements"][0]["volumeMeasurement"];
                    if taken {
                        let text = volume["totalVolume"].as_str().unwrap();
                        sum += text.strip_suffix(" B").unwrap().parse::<u64>().unwrap();
                        let parse = |name: &str| OffsetDateTime::parse(item[name].as_str().unwrap(), &time::format_description::well_known::Rfc3339).unwrap().unix_timestamp_nanos();
                        prop_assert!(parse("startTime") >= last_until && parse("timeStamp") > parse("startTime"));
                        last_until = parse("timeStamp");
                    }
                    let fate = if taken { Told::Taken } else { Told::Not(0) };
                    watch.told(now, (&report, fate), Duration::MAX).unwrap();
                }
            }
        }
        let counted: u64 = pdrs.iter().map(|(_, _, amount)| amount.octets).sum();
        prop_assert_eq!(sum, counted);
    }

    #[test]
    fn any_json_is_read_or_refused(text in r#"[\[\]{}:,"a-z0-9 ]{0,60}"#, pointer in prop::sample::select(vec!["/eventList", "/eventReportingMode", "/ueIpAddress", "/snssai", "/dnn", "/nfId", "/eventNotifyUri"])) {
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if !value.is_null() {
            let _ = read(&with(pointer, value.clone()));
            let _ = read(&value);
        }
    }
}

/// Replays what the fuzz target `event_subscription` starts from and has found.
#[test]
fn the_corpus_is_read_or_refused() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/event_subscription"
    );
    let (mut accepted, mut refused) = (0, 0);
    for file in std::fs::read_dir(folder).unwrap() {
        let octets = std::fs::read(file.unwrap().path()).unwrap();
        let mut parts = octets.splitn(2, |&octet| octet == 0);
        let Ok(subscription) = serde_json::from_slice(parts.next().unwrap()) else {
            continue;
        };
        let later = parts
            .next()
            .map(|operations| changed(&subscription, operations));
        for subscription in [Some(subscription), later.and_then(Result::ok)]
            .into_iter()
            .flatten()
        {
            match read(&subscription) {
                Ok(_) => accepted += 1,
                Err(problem) => {
                    refused += 1;
                    assert!(problem.status().is_client_error() && problem.body().len() < 4096);
                }
            }
        }
    }
    assert!(accepted >= 4 && refused >= 3, "{accepted} {refused}");
}

#[test]
fn a_look_that_is_given_up_ends_nobody() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(read(&subscription()).unwrap(), clock.now());
    look(&mut watch, clock.now(), &[(7, vec![(1, 0, amount(0, 0))])]);
    let now = clock.sleep(Duration::from_secs(1));
    watch.begin_look();
    watch.put_off(now.instant + Duration::from_secs(1));
    assert_eq!(
        watch.report(now),
        Ok(None),
        "nobody has looked whether it is there"
    );
    let now = clock.sleep(Duration::from_secs(9));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(100, 1))])]);
    assert_eq!(watch.report(now).unwrap().unwrap().len(), 1);
}

#[test]
fn a_change_goes_on_from_counts_of_the_same_ues_and_begins_anew_with_others() {
    let mut clock = Clock::new();
    let named = |correlation: &str| {
        let mut asked = read(&subscription()).unwrap();
        asked.correlation = correlation.to_owned();
        asked
    };
    let at = |octets| vec![(7, vec![(1, 0, amount(octets, 1))])];
    let begun = |asked, now, octets| {
        let mut watch = Watch::new(asked, now);
        look(&mut watch, now, &at(octets));
        watch
    };
    let mut watch = begun(named("one"), clock.now(), 0);
    let now = clock.sleep(Duration::from_secs(5));
    watch.change(begun(named("two"), now, 100), now);
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &at(300));
    let report = watch.report(now).unwrap().unwrap();
    let body = &told(&report)[0];
    assert_eq!(body["correlationId"], "two");
    let item = &body["notificationItems"][0];
    assert_eq!(item["startTime"], "1970-01-01T00:00:00Z");
    let volume = &item["userDataUsageMeasurements"][0]["volumeMeasurement"];
    assert_eq!(volume["totalVolume"], "300 B");
    // While that is under way it becomes one for any UE, to be told elsewhere, and a look at the one UE is under way, too.
    let of_before = watch.begin_look();
    let mut asked = any_ue(volumes());
    asked.notify = crate::Callback::try_from("http://10.0.0.8/".to_owned()).unwrap();
    watch.change(Watch::new(asked, now), now);
    watch.end_look(of_before, now);
    let late = watch.told(now, (&report, Told::Unknown), PATIENCE);
    assert_eq!(late, Ok(()), "of who was told before");
    let now = clock.sleep(Duration::from_secs(1));
    look(&mut watch, now, &at(1000));
    let now = clock.sleep(Duration::from_secs(9));
    look(&mut watch, now, &at(1001));
    let report = watch.report(now).unwrap().unwrap();
    let item = &told(&report)[0]["notificationItems"][0];
    let volume = &item["userDataUsageMeasurements"][0]["volumeMeasurement"];
    assert_eq!(volume["totalVolume"], "1 B", "and not what was before");
}

#[test]
fn a_report_under_way_goes_where_it_is_to_be_told_now() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(any_ue(volumes()), clock.now());
    look(&mut watch, clock.now(), &[(7, vec![(1, 0, amount(0, 0))])]);
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(9, 1))])]);
    let report = watch.report(now).unwrap().unwrap();
    let mut asked = any_ue(volumes());
    asked.notify = crate::Callback::try_from("http://10.0.0.8/".to_owned()).unwrap();
    watch.change(Watch::new(asked.clone(), now), now);
    let late = watch.told(now, (&report, Told::Unknown), PATIENCE);
    assert_eq!(late, Ok(()));
    let again = watch.report(now).unwrap().unwrap();
    assert_eq!(again.asked().notify, asked.notify);
    assert_eq!(told(&again), told(&report));
}

#[test]
fn a_time_that_is_over_wants_a_last_look() {
    let mut clock = Clock::new();
    let mut asked = any_ue(volumes());
    asked.mode.expiry = Some(clock.now().wall + Duration::from_secs(15));
    let mut watch = Watch::new(asked, clock.now());
    for seconds in [0, 10] {
        let now = clock.sleep(Duration::from_secs(seconds));
        look(&mut watch, now, &[(7, vec![(1, 0, amount(seconds, 1))])]);
        if let Some(report) = watch.report(now).unwrap() {
            watch.told(now, (&report, Told::Taken), PATIENCE).unwrap();
        }
    }
    let now = clock.sleep(Duration::from_secs(4));
    assert!(!watch.wants_look(now));
    let now = clock.sleep(Duration::from_secs(1));
    assert!(watch.wants_look(now));
    // While none can be had, it waits for it.
    let later = now.instant + Duration::from_secs(2);
    watch.put_off(later);
    assert_eq!((watch.wants_look(now), watch.next(now)), (false, later));
    assert_eq!(watch.report(now), Ok(None));
    let now = clock.sleep(Duration::from_secs(2));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(20, 1))])]);
    assert_eq!(watch.report(now).unwrap().unwrap().len(), 1);
}

#[test]
fn a_period_without_traffic_is_no_report_and_sessions_without_address_are_nobody() {
    let mut clock = Clock::new();
    let mut asked = any_ue(volumes());
    asked.mode.reports = Some(1);
    let mut watch = Watch::new(asked, clock.now());
    let silent = [(7, vec![(1, 0, amount(0, 0))])];
    look(&mut watch, clock.now(), &silent);
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &silent);
    assert_eq!(watch.report(now), Ok(None), "and it goes on");
    let seen = watch.begin_look();
    let pdrs = [(1, 0, amount(5, 1))];
    let counts = Counts {
        seid: 8,
        ue: &[],
        dnn: None,
        pdrs: &pdrs,
    };
    watch.see(seen, now, &counts, true);
    assert_eq!(watch.ue_count(), 1);
    let now = clock.sleep(Duration::from_secs(10));
    look(&mut watch, now, &[(7, vec![(1, 0, amount(3, 1))])]);
    assert_eq!(watch.report(now).unwrap().unwrap().len(), 1);
    assert_eq!(watch.reports(), 0, "until it is told");
}

#[test]
fn a_change_during_a_look_forgets_nobody_that_is_left_out() {
    let mut clock = Clock::new();
    let mut watch = Watch::new(any_ue(volumes()), clock.now());
    let ue = ["10.60.0.1/32".parse().unwrap()];
    let pdrs = [(1, 0, amount(1000, 1))];
    let counts = |seid| Counts {
        seid,
        ue: &ue,
        dnn: None,
        pdrs: &pdrs,
    };
    let (look, now) = (watch.begin_look(), clock.now());
    assert!(!watch.see(look, now, &counts(1), false));
    watch.change(Watch::new(any_ue(volumes()), now), now);
    watch.end_look(look, now);
    assert_eq!(watch.left_out(), 1);
    let now = clock.sleep(Duration::from_secs(10));
    let look = watch.begin_look();
    assert!(watch.see(look, now, &counts(1), true));
    watch.end_look(look, now);
    assert_eq!(watch.report(now), Ok(None), "it had counted that before");
}
