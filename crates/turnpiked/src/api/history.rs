//! The last 15 minutes: a sample of the counters each 5 s, and what changed between two. All of it is as large as its bounds say,
//! whatever is configured and whatever happens: below 2 MB.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use report::{
    DirectionReport, DropReport, ErrorBody, HistoryDrop, HistoryEvent, HistoryPort, HistoryQuery,
    HistoryReport, HistorySample, PortReport,
};
use tables::DropReason;
use tokio::time::{MissedTickBehavior, interval};

use super::{Api, Failure, metrics};
use crate::command::NoAnswer;
use crate::snapshot::Snapshot;

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(5);
/// Samples that are kept: 15 minutes.
const SAMPLES: usize = 180;
/// Interfaces that a history knows: `TP_PORTS_MAX`. Where others take their places, it begins anew.
const INTERFACES: usize = 16;
/// Rows of lost packets in a sample.
const DROPS: usize = 64;
/// Events that are kept.
const EVENTS: usize = 256;
/// Packets that are lost for a reason after so many samples without are an event.
const QUIET: usize = 12;
/// Sessions that are no event, however many parts of all they are.
const FEW_SESSIONS: u64 = 10;

/// Kinds of events, with the counters of N4 that tell of them.
const COUNTED: [(&str, &str); 5] = [
    ("smf_silent", "peer_silent"),
    ("smf_restarted", "peer_restart"),
    ("path_failed", "path_failed"),
    ("path_recovered", "path_recovered"),
    ("gnb_restarted", "gtpu_peer_restart"),
];

/// Samples of the last 15 minutes, at most so many.
#[utoipa::path(get, path = report::HISTORY.path(), params(HistoryQuery), responses(
    (status = 200, body = HistoryReport), (status = 400, body = ErrorBody)))]
pub(super) async fn history(
    State(api): State<Api>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Json<HistoryReport>, Failure> {
    let Query(HistoryQuery { after }) = query?;
    let mut report = api.history.locked(|history| history.report(after));
    report.started_at = unix(api.began);
    report.now = unix(SystemTime::now());
    Ok(Json(report))
}

/// Shared by whoever samples and whoever reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<History>>);

impl Shared {
    /// Never across a wait.
    fn locked<T>(&self, work: impl FnOnce(&mut History) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Api {
    /// Sample until the control thread has ended.
    pub(crate) async fn keep_history(self) {
        let mut due = interval(INTERVAL);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            let reading = match self.control.snapshot().await {
                Ok(snapshot) => Reading::new(&snapshot),
                // The next sample is of a longer interval.
                Err(NoAnswer::Busy) => continue,
                Err(NoAnswer::Gone) => return,
            };
            self.history.locked(|history| history.add(reading));
        }
    }
}

/// Seconds since 1970, to the millisecond.
fn unix(at: SystemTime) -> f64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    rounded(since.as_secs_f64())
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Counters at one time.
#[derive(Clone, Debug)]
struct Reading {
    at: Instant,
    unix: f64,
    cpu_s: f64,
    sessions: u64,
    smfs: u64,
    gtpu_paths: [u64; 2],
    load_percent: u8,
    overload_percent: u64,
    programs: u64,
    taken_over: u64,
    counted: [u64; COUNTED.len()],
    ports: Vec<PortReport>,
    drops: BTreeMap<Losing, u64>,
}

/// Place of the interface in the reading, whether uplink, and the reason.
type Losing = (usize, bool, &'static str);

impl Reading {
    fn new(snapshot: &Snapshot) -> Self {
        let counter = |name: &str| snapshot.n4.events_named(name);
        let mut ports = snapshot.ports.clone();
        ports.truncate(INTERFACES);
        Self {
            at: Instant::now(),
            unix: unix(SystemTime::now()),
            cpu_s: metrics::cpu_s(),
            sessions: snapshot.sessions.used,
            smfs: snapshot.peers.used,
            gtpu_paths: [snapshot.gtpu_paths, snapshot.gtpu_paths_failed],
            load_percent: snapshot.load_percent,
            overload_percent: snapshot.overload_reduction_percent.into(),
            programs: snapshot.datapath.replacements,
            taken_over: snapshot.state.as_ref().map_or(0, |state| state.taken_over),
            counted: COUNTED.map(|(_, name)| counter(name)),
            drops: (snapshot.drops.iter())
                .filter_map(|row| Some((losing(&ports, row)?, row.packets)))
                .collect(),
            ports,
        }
    }

    fn place(&self, interface: &str) -> Option<usize> {
        let mut ports = self.ports.iter();
        ports.position(|port| port.interface == interface)
    }

    /// Lost packets of an interface.
    fn lost(&self, place: usize) -> u64 {
        let rows = self.drops.range((place, false, "")..(place + 1, false, ""));
        rows.map(|(_, packets)| packets).sum()
    }
}

/// `None`: of a later release, or beyond the interfaces that are kept.
fn losing(ports: &[PortReport], row: &DropReport) -> Option<Losing> {
    let mut places = ports.iter();
    let place = places.position(|port| port.interface == row.interface)?;
    let mut reasons = DropReason::ALL.iter().map(|reason| reason.name());
    let reason = reasons.find(|name| *name == row.reason)?;
    Some((place, row.direction == "uplink", reason))
}

/// Samples and events, with the reading that the next one is compared with.
#[derive(Debug, Default)]
struct History {
    interfaces: Vec<String>,
    samples: VecDeque<Sample>,
    events: VecDeque<Event>,
    last: Option<Reading>,
    /// Of the newest sample; 0: there was none yet.
    number: u64,
}

/// As [`HistorySample`], in less memory.
#[derive(Clone, Debug)]
struct Sample {
    number: u64,
    unix: f64,
    seconds: f64,
    sessions: u64,
    smfs: u64,
    gtpu_paths: [u64; 2],
    load_percent: u8,
    cpu_percent: f64,
    ports: Box<[HistoryPort]>,
    drops: Box<[Lost]>,
    drops_left_out: u64,
}

/// As [`HistoryDrop`].
#[derive(Clone, Copy, Debug)]
struct Lost {
    port: u8,
    uplink: bool,
    reason: &'static str,
    packets: u64,
}

#[derive(Clone, Debug)]
struct Event {
    sample: u64,
    unix: f64,
    kind: &'static str,
    /// Of bounded length: an interface or a reason.
    subject: Option<Box<str>>,
    from: u64,
    to: u64,
}

impl History {
    /// The first reading is what the others are compared with: what was counted before, by whichever process, is in no sample.
    fn add(&mut self, now: Reading) {
        self.learn_interfaces(&now.ports);
        match self.last.take() {
            Some(before) => self.compare(&before, &now),
            None => self.event(now.unix, "started", None, (0, now.taken_over)),
        }
        self.last = Some(now);
    }

    fn learn_interfaces(&mut self, ports: &[PortReport]) {
        let is_new = |port: &&PortReport| !self.interfaces.contains(&port.interface);
        let new: Vec<String> = (ports.iter().filter(is_new))
            .map(|port| port.interface.clone())
            .collect();
        if self.interfaces.len() + new.len() > INTERFACES {
            self.samples.clear();
            self.interfaces = ports.iter().map(|port| port.interface.clone()).collect();
        } else {
            self.interfaces.extend(new);
        }
    }

    fn compare(&mut self, before: &Reading, now: &Reading) {
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        let (drops, drops_left_out) = self.drops(before, now);
        let sample = Sample {
            number: self.number + 1,
            unix: now.unix,
            seconds: rounded(seconds),
            sessions: now.sessions,
            smfs: now.smfs,
            gtpu_paths: now.gtpu_paths,
            load_percent: now.load_percent,
            cpu_percent: rounded(100.0 * (now.cpu_s - before.cpu_s) / seconds.max(1e-3)),
            ports: (self.interfaces.iter())
                .map(|name| port(name, before, now))
                .collect(),
            drops,
            drops_left_out,
        };
        self.number = sample.number;
        self.note(before, now, &sample);
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        let oldest = self.samples.front().map_or(0, |sample| sample.number);
        while self.events.front().is_some_and(|it| it.sample + 1 < oldest) {
            self.events.pop_front();
        }
    }

    /// Packets lost since, most first.
    fn drops(&self, before: &Reading, now: &Reading) -> (Box<[Lost]>, u64) {
        let row = |(&(place, uplink, reason), &packets): (&Losing, &u64)| {
            let interface = &now.ports.get(place)?.interface;
            let port = self.interfaces.iter().position(|it| it == interface)?;
            let was = before
                .drops
                .get(&(before.place(interface)?, uplink, reason));
            // Nothing is known of what counters that began anew had lost.
            let packets = packets.checked_sub(was.copied().unwrap_or_default())?;
            let port = u8::try_from(port).ok()?;
            (packets > 0).then_some(Lost {
                port,
                uplink,
                reason,
                packets,
            })
        };
        let mut rows: Vec<Lost> = now.drops.iter().filter_map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
        let left_out = rows.iter().skip(DROPS).map(|row| row.packets).sum();
        rows.truncate(DROPS);
        (rows.into(), left_out)
    }

    /// Changes from one reading to the next.
    fn note(&mut self, before: &Reading, now: &Reading, sample: &Sample) {
        let at = sample.unix;
        let (was, is) = (before.sessions, now.sessions);
        if was.abs_diff(is) >= FEW_SESSIONS.max(was / 5) {
            self.event(at, "sessions", None, (was, is));
        }
        if before.smfs != now.smfs {
            self.event(at, "smfs", None, (before.smfs, now.smfs));
        }
        for (place, (kind, _)) in COUNTED.into_iter().enumerate() {
            let count = now.counted[place].saturating_sub(before.counted[place]);
            if count > 0 {
                self.event(at, kind, None, (0, count));
            }
        }
        for port in &now.ports {
            let was = before
                .place(&port.interface)
                .map(|place| &before.ports[place]);
            let was = was.is_none_or(|was| was.trouble.is_none());
            let is = port.trouble.is_none();
            if was != is {
                let kind = if is { "interface_up" } else { "interface_down" };
                let change = (u64::from(was), u64::from(is));
                self.event(at, kind, Some(&port.interface), change);
            }
        }
        if before.programs != now.programs {
            self.event(at, "program", None, (before.programs, now.programs));
        }
        let (was, is) = (before.overload_percent, now.overload_percent);
        if (was > 0) != (is > 0) {
            self.event(at, "overload", None, (was, is));
        }
        for (place, row) in sample.drops.iter().enumerate() {
            let is_first = |rows: &[Lost]| rows.iter().all(|other| other.reason != row.reason);
            let mut recent = self.samples.iter().rev().take(QUIET);
            if is_first(&sample.drops[..place]) && recent.all(|sample| is_first(&sample.drops)) {
                let rows = sample.drops.iter().filter(|it| it.reason == row.reason);
                let packets = rows.map(|it| it.packets).sum();
                self.event(at, "drops", Some(row.reason), (0, packets));
            }
        }
    }

    fn event(&mut self, unix: f64, kind: &'static str, subject: Option<&str>, change: (u64, u64)) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event {
            sample: self.number,
            unix,
            kind,
            subject: subject.map(Box::from),
            from: change.0,
            to: change.1,
        });
    }

    fn report(&self, after: Option<u64>) -> HistoryReport {
        let newer = |sample: &&Sample| after.is_none_or(|after| sample.number > after);
        HistoryReport {
            interval_s: INTERVAL.as_secs(),
            capacity: SAMPLES as u64,
            interfaces: self.interfaces.clone(),
            samples: self.samples.iter().filter(newer).map(shown).collect(),
            events: self.events.iter().map(told).collect(),
            ..HistoryReport::default()
        }
    }
}

/// Counts of an interface between two readings. A counter that is lower than it was has begun anew: nothing is known of the interval.
fn port(name: &str, before: &Reading, now: &Reading) -> HistoryPort {
    let (Some(was), Some(is)) = (before.place(name), now.place(name)) else {
        return HistoryPort::default();
    };
    let drops = now.lost(is).checked_sub(before.lost(was));
    let (was, is) = (&before.ports[was], &now.ports[is]);
    HistoryPort {
        attached: is.trouble.is_none(),
        uplink: since(is.uplink, was.uplink),
        downlink: since(is.downlink, was.downlink),
        drops,
    }
}

fn since(now: DirectionReport, before: DirectionReport) -> Option<DirectionReport> {
    Some(DirectionReport {
        in_packets: now.in_packets.checked_sub(before.in_packets)?,
        in_bytes: now.in_bytes.checked_sub(before.in_bytes)?,
        out_packets: now.out_packets.checked_sub(before.out_packets)?,
        out_bytes: now.out_bytes.checked_sub(before.out_bytes)?,
    })
}

fn shown(sample: &Sample) -> HistorySample {
    let drop = |row: &Lost| HistoryDrop {
        port: row.port.into(),
        direction: if row.uplink { "uplink" } else { "downlink" }.to_owned(),
        reason: row.reason.to_owned(),
        packets: row.packets,
    };
    let [gtpu_paths, gtpu_paths_failed] = sample.gtpu_paths;
    HistorySample {
        number: sample.number,
        at: sample.unix,
        seconds: sample.seconds,
        sessions: sample.sessions,
        smfs: sample.smfs,
        gtpu_paths,
        gtpu_paths_failed,
        load_percent: sample.load_percent,
        cpu_percent: sample.cpu_percent,
        ports: sample.ports.to_vec(),
        drops: sample.drops.iter().map(drop).collect(),
        drops_left_out: sample.drops_left_out,
    }
}

fn told(event: &Event) -> HistoryEvent {
    HistoryEvent {
        sample: event.sample,
        at: event.unix,
        kind: event.kind.to_owned(),
        subject: event.subject.as_deref().map(str::to_owned),
        from: event.from,
        to: event.to,
    }
}

#[cfg(test)]
mod tests {
    use report::Fill;

    use super::*;

    /// So many seconds after the first, with these packets and losses of each interface.
    fn reading(base: Instant, second: u64, names: &[String], packets: u64, lost: u64) -> Reading {
        let mut snapshot = Snapshot {
            sessions: Fill {
                used: 100,
                capacity: 1000,
            },
            ..Snapshot::default()
        };
        for name in names {
            snapshot.ports.push(PortReport {
                interface: name.clone(),
                uplink: DirectionReport {
                    in_packets: packets,
                    in_bytes: packets * 100,
                    out_packets: packets,
                    out_bytes: packets * 60,
                },
                ..PortReport::default()
            });
            for direction in ["uplink", "downlink"] {
                for reason in DropReason::ALL {
                    snapshot.drops.push(DropReport {
                        interface: name.clone(),
                        direction: direction.into(),
                        reason: reason.name().into(),
                        packets: lost,
                        ..DropReport::default()
                    });
                }
            }
        }
        Reading {
            at: base + Duration::from_secs(second),
            unix: second as f64,
            ..Reading::new(&snapshot)
        }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("interface{n:06}")).collect()
    }

    fn octets(history: &History) -> usize {
        let sample = |sample: &Sample| {
            size_of_val(sample) + size_of_val(&*sample.ports) + size_of_val(&*sample.drops)
        };
        let reading = |reading: &Reading| {
            size_of_val(&*reading.ports) + reading.drops.len() * 2 * size_of::<(Losing, u64)>()
        };
        let event =
            |event: &Event| size_of_val(event) + event.subject.as_ref().map_or(0, |s| s.len());
        history.samples.iter().map(sample).sum::<usize>()
            + history.last.iter().map(reading).sum::<usize>()
            + history.events.iter().map(event).sum::<usize>()
    }

    #[test]
    fn an_hour_of_everything_going_wrong_stays_within_its_memory() {
        let (mut history, base, names) = (History::default(), Instant::now(), names(40));
        for round in 0..1000 {
            // Of 40 interfaces 16 at a time, others each time; losses come and go.
            let names = &names[round as usize / 200 % 24..][..16];
            let lost = if round / 20 % 2 == 0 {
                round
            } else {
                round / 40 * 40
            };
            let mut now = reading(base, round * 5, names, round * 1000, lost);
            now.smfs = round % 3;
            now.counted = [round; COUNTED.len()];
            history.add(now);
            assert!(history.samples.len() <= SAMPLES && history.events.len() <= EVENTS);
            assert!(history.interfaces.len() <= INTERFACES);
        }
        let octets = octets(&history);
        assert!(
            history.samples.len() > 100 && octets < 2_000_000,
            "{octets}"
        );
    }

    #[test]
    fn samples_are_what_was_counted_between_them() {
        let (mut history, base, names) = (History::default(), Instant::now(), names(2));
        // Counts of a process before this one are no traffic of the first interval.
        history.add(reading(base, 0, &names, 1 << 40, 7));
        assert!(history.report(None).samples.is_empty());
        for round in 1..=200 {
            history.add(reading(
                base,
                round * 5,
                &names,
                (1 << 40) + round * 50,
                7 + round,
            ));
        }
        let report = history.report(None);
        assert_eq!(report.samples.len(), SAMPLES);
        for (number, sample) in (21..).zip(&report.samples) {
            assert_eq!((sample.number, sample.seconds), (number, 5.0));
            assert_eq!(sample.at, number as f64 * 5.0);
            let uplink = sample.ports[1].uplink.unwrap();
            assert_eq!((uplink.in_packets, uplink.out_bytes), (50, 3000));
            let all = DropReason::ALL.len() as u64;
            assert_eq!(sample.ports[1].drops, Some(2 * all));
            let rows: u64 = sample.drops.iter().map(|row| row.packets).sum();
            assert_eq!(rows + sample.drops_left_out, 4 * all);
            assert!(sample.drops.len() <= DROPS);
        }
        let newer = history.report(Some(198)).samples;
        let numbers: Vec<u64> = newer.iter().map(|sample| sample.number).collect();
        assert_eq!(numbers, [199, 200]);
    }

    #[test]
    fn counters_that_begin_anew_are_neither_negative_nor_a_peak() {
        let (mut history, base, names) = (History::default(), Instant::now(), names(1));
        history.add(reading(base, 0, &names, 1_000_000, 500));
        history.add(reading(base, 5, &names, 40, 3));
        history.add(reading(base, 10, &names, 90, 3));
        // The interface is gone, then there again.
        history.add(reading(base, 15, &[], 0, 0));
        history.add(reading(base, 20, &names, 1 << 40, 3));
        history.add(reading(base, 25, &names, (1 << 40) + 5, 3));
        let packets = |sample: &HistorySample| sample.ports[0].uplink.map(|it| it.in_packets);
        let report = history.report(None);
        let seen: Vec<_> = report.samples.iter().map(packets).collect();
        assert_eq!(seen, [None, Some(50), None, None, Some(5)]);
        assert_eq!(report.samples[0].ports[0].drops, None);
        assert!(report.samples[0].drops.is_empty());
    }

    #[test]
    fn what_changes_is_an_event_once() {
        let (mut history, base, names) = (History::default(), Instant::now(), names(1));
        let mut lost = 0;
        for round in 0..100 {
            // Losses begin, pause for less than a minute, go on, and come again after more than that.
            lost += u64::from(matches!(round, 10..=15 | 20 | 60));
            let mut now = reading(base, round * 5, &names, 0, 0);
            now.drops = [((0, true, DropReason::ALL[0].name()), lost)].into();
            now.smfs = u64::from(round >= 5);
            now.counted[1] = u64::from(round >= 70);
            if (30..40).contains(&round) {
                now.ports[0].trouble = Some("gone".into());
            }
            now.sessions = if round < 50 { 100 } else { 79 };
            history.add(now);
        }
        let events = history.report(None).events;
        let seen: Vec<_> = events
            .iter()
            .map(|it| (it.kind.as_str(), it.sample))
            .collect();
        assert_eq!(
            seen,
            [
                ("started", 0),
                ("smfs", 5),
                ("drops", 10),
                ("interface_down", 30),
                ("interface_up", 40),
                ("sessions", 50),
                ("drops", 60),
                ("smf_restarted", 70),
            ]
        );
        assert_eq!(
            events[2].subject.as_deref(),
            Some(DropReason::ALL[0].name())
        );
        assert_eq!((events[5].from, events[5].to), (100, 79));
    }
}
