//! A subscription that has been accepted: what it has seen of sessions, and what it tells.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ipnet::{IpNet, Ipv6Net};
use serde::Serialize;
use serde_json::Value;
use smallvec::SmallVec;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

use super::asked::{Asked, Event, Mode, Whom};
use super::measure::{Amount, Item, Rate, Statistics, Throughput, Usage, Volume};

/// Between two looks at a UE that is named: its last report, when its session has ended, is as old as this.
const LOOK: Duration = Duration::from_secs(1);
/// Looks in a period at UEs whose peaks are asked for.
const LOOKS: u32 = 10;
/// Longest time between looks at all: sessions come and go in it unseen, and a peak is its mean.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// Rates of less time than this are those of single packets.
const RATE_MIN: Duration = Duration::from_millis(100);
/// Items of one notification.
const ITEMS: usize = 200;
/// First pause after a report that was not taken, doubled each time.
const RETRY: Duration = Duration::from_secs(1);
/// Longest of those pauses.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Goes on evenly.
    pub instant: Instant,
    /// Is told.
    pub wall: OffsetDateTime,
}

/// Counts of a session as they are now.
#[derive(Clone, Debug)]
pub struct Counts<'c> {
    /// Its number, which no other one has had or will have.
    pub seid: u64,
    /// The UE's addresses.
    pub ue: &'c [IpNet],
    /// Its DNN.
    pub dnn: Option<&'c str>,
    /// Of each PDR: its ID, 0 for uplink or 1 for downlink, and what it has forwarded.
    pub pdrs: &'c [(u16, usize, Amount)],
}

/// A look at sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look(u64);

/// Fate of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The consumer has taken it.
    Taken,
    /// It knows of no such subscription.
    Unknown,
    /// It has taken so many notifications of it, and no more.
    Not(usize),
}

/// Why a subscription ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// It has had as many reports as it asked for.
    #[error("all reports have been told")]
    Complete,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// The session of its UE has ended.
    #[error("the session of its UE has ended")]
    Bereft,
    /// The consumer does not know it.
    #[error("the consumer does not know it")]
    Unknown,
    /// The consumer has taken no report for too long.
    #[error("the consumer takes no reports")]
    Silent,
}

/// An accepted subscription.
#[derive(Debug)]
pub struct Watch {
    asked: Arc<Asked>,
    ues: HashMap<u64, Ue>,
    /// DNNs of those.
    names: Vec<Arc<str>>,
    /// The look that has begun last, and the last one that is over; 0: none.
    begun: u64,
    looked: u64,
    /// When that one began.
    since: Option<Now>,
    /// Sessions that it found no room for, and those that the one under way has found none for so far.
    left_out: u64,
    leaving_out: u64,
    not_before: Instant,
    next_look: Instant,
    next_report: Instant,
    reports: u32,
    /// Its last report has been made, for this reason.
    ends: Option<Over>,
    telling: Telling,
    /// Since when reports are not taken.
    failing: Option<(Instant, Duration)>,
}

#[derive(Debug)]
enum Telling {
    Nothing,
    /// It is under way.
    Now(Arc<Report>),
    /// It was not taken, and is told again then.
    Again(Instant, Arc<Report>),
}

/// A session as it was last seen.
#[derive(Debug)]
struct Ue {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Net>,
    dnn: Option<Arc<str>>,
    pdrs: SmallVec<[(u16, Amount); 2]>,
    since: Now,
    seen: Now,
    /// The last look that has seen it.
    look: u64,
    passed: [Amount; 2],
    peak: [Rate; 2],
}

/// Of one UE and period.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Net>,
    dnn: Option<Arc<str>>,
    /// `None`: since its session began.
    since: Option<OffsetDateTime>,
    at: OffsetDateTime,
    time: Duration,
    passed: [Amount; 2],
    peak: [Rate; 2],
}

/// Notifications of one period.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    asked: Arc<Asked>,
    rows: Vec<Row>,
    /// So many UEs of a hundred are in it.
    percent: Option<u8>,
    /// Notifications of it that have been taken.
    taken: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Notification<'n> {
    notification_items: Vec<Item<'n>>,
    correlation_id: &'n str,
    #[serde(skip_serializing_if = "Option::is_none")]
    achieved_samp_ratio: Option<u8>,
}

impl Watch {
    /// From now on.
    pub fn new(asked: Asked, now: Now) -> Self {
        Self {
            next_report: now.instant + asked.mode.period,
            not_before: now.instant,
            next_look: now.instant,
            asked: Arc::new(asked),
            ues: HashMap::new(),
            names: Vec::new(),
            begun: 0,
            looked: 0,
            since: None,
            left_out: 0,
            leaving_out: 0,
            reports: 0,
            ends: None,
            telling: Telling::Nothing,
            failing: None,
        }
    }

    /// The subscription as it was accepted.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// It asks for what the `next` one does, from now on. Periods begin anew; UEs that both ask for go on from their counts, and a
    /// report that is under way goes on, to where it is to be told now.
    pub fn change(&mut self, mut next: Self, now: Now) {
        let target = |of: &Asked| (of.whom, of.dnn.clone(), of.slice.clone(), of.mode.percent);
        let knows = |seid: &u64| self.ues.contains_key(seid);
        let is_same = target(&self.asked) == target(&next.asked) && next.ues.keys().all(knows);
        if self.asked.mode.reports == next.asked.mode.reports {
            // A time that is over may be another one now.
            let ends = self.ends.filter(|over| *over != Over::Expired);
            (next.reports, next.ends) = (self.reports, ends);
        }
        let telling = std::mem::replace(&mut self.telling, Telling::Nothing);
        if self.asked.notify == next.asked.notify {
            (next.telling, next.failing) = (telling, self.failing);
        } else if let Telling::Now(report) | Telling::Again(_, report) = telling
            && is_same
        {
            let report = Report {
                asked: Arc::clone(&next.asked),
                ..Report::clone(&report)
            };
            next.telling = Telling::Again(now.instant, Arc::new(report));
        }
        if is_same {
            next.ues = std::mem::take(&mut self.ues);
            next.names = std::mem::take(&mut self.names);
            (next.begun, next.looked) = (self.begun, self.looked);
            (next.since, next.left_out) = (self.since, self.left_out);
            next.leaving_out = self.leaving_out;
        }
        *self = next;
    }

    /// Which UEs it wants has changed: what those have counted that are new to it is not of one period.
    pub fn widen(&mut self) {
        self.since = None;
    }

    /// It had so many reports before.
    pub fn resume(&mut self, reports: u32) {
        self.reports = reports;
        let is_last = |most: u32| reports >= most;
        self.ends = (self.asked.mode.reports.is_some_and(is_last)).then_some(Over::Complete);
    }

    /// Reports that it has had.
    pub fn reports(&self) -> u32 {
        let is_told = matches!(self.telling, Telling::Nothing);
        self.reports.saturating_sub(u32::from(!is_told))
    }

    /// UEs that it has in mind.
    pub fn ue_count(&self) -> usize {
        self.ues.len()
    }

    /// Octets that one of them takes, without the spare room of a table.
    pub const UE_OCTETS: usize = size_of::<(u64, Ue)>();

    /// Sessions of the UE that it names; of a subscription for any, none.
    pub fn named(&self) -> Vec<u64> {
        match self.asked.whom {
            Whom::Ue(_) => self.ues.keys().copied().collect(),
            Whom::Any => Vec::new(),
        }
    }

    /// Sessions for which there was no room when it last looked.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// When there is something to do: a look, a report, the end.
    pub fn next(&self, now: Now) -> Instant {
        let (report, again) = match &self.telling {
            Telling::Nothing => (Some(self.next_report), None),
            Telling::Now(_) => (None, None),
            Telling::Again(at, _) => (None, Some(*at)),
        };
        let expiry = self.asked.mode.expiry;
        let expiry = expiry.filter(|_| matches!(self.telling, Telling::Nothing));
        let expiry = expiry.map(|expiry| {
            let left = (expiry - now.wall).try_into().unwrap_or(Duration::ZERO);
            // Far off, it is looked at again.
            now.instant + Duration::min(left, Duration::from_secs(3600))
        });
        let rest = [report, expiry].into_iter().flatten();
        let look = rest.fold(self.next_look, Instant::min).max(self.not_before);
        again.map_or(look, |again| again.min(look))
    }

    /// Whether it wants to see its sessions now.
    pub fn wants_look(&self, now: Now) -> bool {
        let is_over = self
            .asked
            .mode
            .expiry
            .is_some_and(|expiry| expiry <= now.wall);
        let is_due = is_over || self.next_report <= now.instant;
        let reports = is_due && matches!(self.telling, Telling::Nothing);
        self.not_before <= now.instant && (reports || self.next_look <= now.instant)
    }

    /// A look at its sessions begins. One that has not ended is given up.
    pub fn begin_look(&mut self) -> Look {
        static LOOKS: AtomicU64 = AtomicU64::new(1);
        self.begun = LOOKS.fetch_add(1, Ordering::Relaxed);
        self.leaving_out = 0;
        Look(self.begun)
    }

    /// A session, in the course of that look. False: it would be one more, and there `is_room` for none.
    pub fn see(&mut self, look: Look, now: Now, counts: &Counts<'_>, is_room: bool) -> bool {
        if look.0 != self.begun || !self.wants(counts) {
            return true;
        }
        if let Some(ue) = self.ues.get_mut(&counts.seid) {
            ue.see(now, counts);
            ue.look = look.0;
            return true;
        }
        if !is_room {
            self.leaving_out += 1;
            return false;
        }
        // Sessions that have come since the last look have passed all that they have counted since then, unless there was no room for
        // them.
        let since = match self.since {
            Some(since) if self.asked.whom == Whom::Any && self.left_out == 0 => since,
            _ => now,
        };
        let is_new = since.instant < now.instant;
        let dnn = counts.dnn.map(|dnn| self.name(dnn));
        let mut ue = Ue::new(counts, dnn, since, look.0);
        if is_new {
            ue.see(now, counts);
        } else {
            let pdrs = counts.pdrs.iter();
            ue.pdrs = pdrs.map(|(id, _, amount)| (*id, *amount)).collect();
        }
        self.ues.insert(counts.seid, ue);
        true
    }

    /// There are few of them.
    fn name(&mut self, dnn: &str) -> Arc<str> {
        let known = self.names.iter().find(|known| ***known == *dnn);
        let name = known.map_or_else(|| Arc::from(dnn), Arc::clone);
        if known.is_none() {
            self.names.push(Arc::clone(&name));
        }
        name
    }

    fn wants(&self, counts: &Counts<'_>) -> bool {
        let Asked { dnn, mode, .. } = &*self.asked;
        let is_dnn = |dnn: &String| counts.dnn.is_some_and(|of| of.eq_ignore_ascii_case(dnn));
        let is_chosen = |percent: u8| mixed(counts.seid) % 100 < u64::from(percent);
        // Without an address there is nobody to tell of.
        let is_somebody = !counts.ue.is_empty();
        is_somebody && dnn.as_ref().is_none_or(is_dnn) && mode.percent.is_none_or(is_chosen)
    }

    /// The look has begun then, and has seen all that there is.
    pub fn end_look(&mut self, look: Look, began: Now) {
        if look.0 != self.begun {
            return;
        }
        self.looked = look.0;
        self.since = Some(began);
        self.left_out = self.leaving_out;
        if self.asked.whom == Whom::Any {
            // Of others that have ended there is something to tell.
            let is_there = |ue: &Ue| ue.look == look.0 || ue.passed != [Amount::default(); 2];
            self.ues.retain(|_, ue| is_there(ue));
        }
        let period = self.asked.mode.period;
        let has_trends = self.asked.events.contains(&Event::Trends);
        let pause = match self.asked.whom {
            Whom::Ue(_) => LOOK,
            Whom::Any if has_trends => (period / LOOKS).clamp(LOOK, LOOK_MAX),
            Whom::Any => period.min(LOOK_MAX),
        };
        self.next_look = began.instant + pause;
    }

    /// Sessions cannot be looked at before then, nor is there anything new to tell.
    pub fn put_off(&mut self, until: Instant) {
        self.not_before = until;
    }

    /// All sessions of the UE that it names have ended.
    fn is_bereft(&self) -> bool {
        let ended = |ue: &Ue| ue.look < self.looked;
        let names_one = self.asked.whom != Whom::Any;
        names_one && self.looked > 0 && self.ues.values().all(ended)
    }

    /// The report that is due now, after a look: nothing before its time, and while a report is under way. `Err`: it is over.
    pub fn report(&mut self, now: Now) -> Result<Option<Arc<Report>>, Over> {
        match std::mem::replace(&mut self.telling, Telling::Nothing) {
            Telling::Nothing => {}
            Telling::Again(at, report) if at <= now.instant => {
                self.telling = Telling::Now(Arc::clone(&report));
                return Ok(Some(report));
            }
            waits => {
                self.telling = waits;
                return Ok(None);
            }
        }
        if let Some(over) = self.ends {
            return Err(over);
        }
        if now.instant < self.not_before {
            return Ok(None);
        }
        let Mode {
            period,
            reports,
            expiry,
            ..
        } = self.asked.mode;
        let is_over = expiry.is_some_and(|expiry| expiry <= now.wall);
        let is_bereft = self.is_bereft();
        if self.next_report > now.instant && !is_over && !is_bereft {
            return Ok(None);
        }
        let report = self.take_report();
        while self.next_report <= now.instant {
            self.next_report += period;
        }
        // One that tells nothing is none.
        let is_one = !report.rows.is_empty();
        self.reports = self.reports.saturating_add(u32::from(is_one));
        self.ends = if is_bereft {
            Some(Over::Bereft)
        } else if is_over {
            Some(Over::Expired)
        } else {
            let is_last = reports.is_some_and(|most| self.reports >= most);
            is_last.then_some(Over::Complete)
        };
        if report.rows.is_empty() {
            return self.ends.map_or(Ok(None), Err);
        }
        let report = Arc::new(report);
        self.telling = Telling::Now(Arc::clone(&report));
        Ok(Some(report))
    }

    fn take_report(&mut self) -> Report {
        let names_one = self.asked.whom != Whom::Any;
        let mut rows = Vec::new();
        for ue in self.ues.values_mut() {
            // Nobody wants to be told of all who were silent, and of no time at all there is nothing to tell.
            let is_news = names_one || ue.passed != [Amount::default(); 2];
            if is_news && ue.since.instant < ue.seen.instant {
                rows.push(ue.row());
            }
            ue.begin_period();
        }
        let looked = self.looked;
        self.ues.retain(|_, ue| ue.look >= looked);
        self.ues.shrink_to(2 * self.ues.len());
        Report {
            percent: self.achieved_percent(),
            asked: Arc::clone(&self.asked),
            rows,
            taken: 0,
        }
    }

    fn achieved_percent(&self) -> Option<u8> {
        let asked = self.asked.mode.percent;
        if asked.is_none() && self.left_out == 0 {
            return None;
        }
        let (seen, all) = (self.ues.len() as u64, self.ues.len() as u64 + self.left_out);
        let percent = u64::from(asked.unwrap_or(100)) * seen / all.max(1);
        Some(percent.clamp(1, 100) as u8)
    }

    /// Fate of a report that was under way. `patience`: for so long, a consumer may take none.
    pub fn told(
        &mut self,
        now: Now,
        (report, told): (&Arc<Report>, Told),
        patience: Duration,
    ) -> Result<(), Over> {
        let is_it = |now: &Arc<Report>| Arc::ptr_eq(now, report);
        if !matches!(&self.telling, Telling::Now(now) if is_it(now)) {
            return Ok(());
        }
        self.telling = Telling::Nothing;
        match told {
            Told::Taken => {
                self.failing = None;
                self.ends.map_or(Ok(()), Err)
            }
            Told::Unknown => Err(Over::Unknown),
            Told::Not(taken) => {
                let (since, pause) = match self.failing {
                    Some((since, pause)) if taken == 0 => (since, (2 * pause).min(RETRY_MAX)),
                    _ => (now.instant, RETRY),
                };
                if now.instant.duration_since(since) >= patience {
                    return Err(Over::Silent);
                }
                self.failing = Some((since, pause));
                let mut rest = Report::clone(report);
                rest.taken += taken;
                self.telling = Telling::Again(now.instant + pause, Arc::new(rest));
                Ok(())
            }
        }
    }

    /// Items of what a session has counted since it began, for a subscription that wants to hear at once.
    pub fn so_far(&self, now: Now, counts: &Counts<'_>) -> Vec<Value> {
        let mut asked = Asked::clone(&self.asked);
        asked.events.retain_mut(|event| match event {
            Event::Measures { volume, throughput } => {
                *throughput = false;
                *volume
            }
            Event::Trends => false,
        });
        if !asked.at_once || !self.wants(counts) {
            return Vec::new();
        }
        let mut ue = Ue::new(counts, counts.dnn.map(Arc::from), now, self.begun);
        ue.passed = passed(counts, |_| Amount::default());
        let report = Report {
            rows: vec![Row {
                since: None,
                ..ue.row()
            }],
            asked: Arc::new(asked),
            percent: None,
            taken: 0,
        };
        let items = report.rows.iter().flat_map(|row| report.items(row));
        items
            .filter_map(|item| serde_json::to_value(item).ok())
            .collect()
    }
}

/// Uplink and downlink, since PDRs had counted so much.
fn passed(counts: &Counts<'_>, before: impl Fn(u16) -> Amount) -> [Amount; 2] {
    let mut passed = [Amount::default(); 2];
    for (id, way, amount) in counts.pdrs {
        if let Some(passed) = passed.get_mut(*way) {
            *passed = passed.plus(amount.since(before(*id)));
        }
    }
    passed
}

/// Numbers of sessions that follow each other are far apart.
fn mixed(seid: u64) -> u64 {
    let x = (seid ^ seid >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Ue {
    fn new(counts: &Counts<'_>, dnn: Option<Arc<str>>, since: Now, look: u64) -> Self {
        let v4 = counts.ue.iter().find_map(|net| match net {
            IpNet::V4(net) => Some(net.addr()),
            IpNet::V6(_) => None,
        });
        let v6 = counts.ue.iter().find_map(|net| match net {
            IpNet::V4(_) => None,
            IpNet::V6(net) => Some(*net),
        });
        Self {
            v4,
            v6,
            dnn,
            pdrs: SmallVec::new(),
            since,
            seen: since,
            look,
            passed: Default::default(),
            peak: Default::default(),
        }
    }

    fn see(&mut self, now: Now, counts: &Counts<'_>) {
        let time = now.instant.saturating_duration_since(self.seen.instant);
        if time < RATE_MIN {
            return;
        }
        let before = |id| {
            let before = self.pdrs.iter().find(|(of, _)| *of == id);
            before.map_or(Amount::default(), |(_, before)| *before)
        };
        for (way, passed) in passed(counts, before).into_iter().enumerate() {
            self.passed[way] = self.passed[way].plus(passed);
            self.peak[way] = self.peak[way].max(passed.rate(time));
        }
        self.pdrs.clear();
        let kept = counts.pdrs.iter().map(|(id, _, amount)| (*id, *amount));
        self.pdrs.extend(kept);
        self.seen = now;
    }

    fn row(&self) -> Row {
        Row {
            v4: self.v4,
            v6: self.v6,
            dnn: self.dnn.clone(),
            since: Some(self.since.wall),
            at: self.seen.wall,
            time: self
                .seen
                .instant
                .saturating_duration_since(self.since.instant),
            passed: self.passed,
            peak: self.peak,
        }
    }

    fn begin_period(&mut self) {
        self.since = self.seen;
        self.passed = Default::default();
        self.peak = Default::default();
    }
}

impl Report {
    /// Notifications that have not been taken, in order: bodies of JSON.
    pub fn bodies(&self) -> impl Iterator<Item = Bytes> + '_ {
        let rows_of_one = (ITEMS / self.asked.events.len().max(1)).max(1);
        let parts = self.rows.chunks(rows_of_one).skip(self.taken);
        parts.map(|rows| {
            let told = Notification {
                notification_items: rows.iter().flat_map(|row| self.items(row)).collect(),
                correlation_id: &self.asked.correlation,
                achieved_samp_ratio: self.percent,
            };
            // Texts and numbers always can be written.
            serde_json::to_vec(&told).unwrap_or_default().into()
        })
    }

    /// UEs that it tells of.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it tells of none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The subscription that it is for.
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    fn items<'r>(&'r self, row: &'r Row) -> impl Iterator<Item = Item<'r>> + 'r {
        let asked = &self.asked;
        let mean = row.passed.map(|passed| passed.rate(row.time));
        asked.events.iter().map(move |event| Item {
            event_type: match event {
                Event::Measures { .. } => "USER_DATA_USAGE_MEASURES",
                Event::Trends => "USER_DATA_USAGE_TRENDS",
            },
            ue_ipv4_addr: row.v4,
            ue_ipv6_prefix: row.v6,
            dnn: row.dnn.as_deref(),
            snssai: asked.slice.as_ref(),
            gpsi: asked.names.gpsi.as_deref(),
            supi: asked.names.supi.as_deref(),
            time_stamp: text(row.at),
            start_time: row.since.map(text),
            user_data_usage_measurements: [match event {
                Event::Measures { volume, throughput } => Usage {
                    volume_measurement: volume.then(|| Volume::of(row.passed)),
                    throughput_measurement: throughput.then(|| Throughput::of(mean)),
                    throughput_statistics_measurement: None,
                },
                Event::Trends => Usage {
                    throughput_statistics_measurement: Some(Statistics::of(mean, row.peak)),
                    ..Usage::default()
                },
            }],
        })
    }
}

/// DateTime, to the millisecond.
fn text(at: OffsetDateTime) -> String {
    let millis = at.replace_nanosecond(at.millisecond() as u32 * 1_000_000);
    millis.unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}
