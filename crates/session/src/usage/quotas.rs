//! State that few URRs need beside their volume: quotas, time, events, and the times at which something happens
//! though no packet comes.

use std::time::Duration;

use pfcp::ie::{
    MeasurementInformation, MeasurementMethod, ReportingTriggers, UsageInformation,
    UsageReportTrigger,
};
use serde::{Deserialize, Serialize};

use crate::base::time::Time;
use crate::rules::urr::{Asks, Limits, MONITORING_TIMES, Monitoring, Renewed};
use crate::usage::amount::Amount;
use crate::usage::moment::Moment;
use crate::usage::report::Report;

/// Why a URR lets no more packets pass.
pub(crate) mod spent {
    pub(crate) const VOLUME: u8 = 1;
    pub(crate) const TIME: u8 = 1 << 1;
    pub(crate) const EVENTS: u8 = 1 << 2;
    /// No packet came during the Quota Holding Time.
    pub(crate) const HELD: u8 = 1 << 3;
    /// The Quota Validity Time is over.
    pub(crate) const INVALID: u8 = 1 << 4;
}

/// Traffic has stopped when no packet came for so long, where the SMF names no time (Inactivity Detection
/// Time).
const STOPPED: Duration = Duration::from_secs(10);

/// Poll interval of the inactivity timer: this part of it ...
const LOOKS: u32 = 8;
/// ... at least this ...
const LEAST: Duration = Duration::from_secs(1);
/// ... and at most this.
const MOST: Duration = Duration::from_secs(30);

/// Poll interval of dropped packets.
const DROPS: Duration = Duration::from_secs(1);

/// Event time stamps of one report; further events are counted.
const STAMPS: usize = 64;

/// No limit of time.
const NEVER: Duration = Duration::MAX;

/// Quotas of a URR, the time and the events that it measures, and what is due for it without a packet.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Quotas {
    /// Volume at which it reports.
    pub(crate) threshold: Limits,
    /// Volume at which it stops, counted like the threshold from the last report on.
    pub(crate) quota: Limits,
    time_threshold: Duration,
    time_quota: Duration,
    event_threshold: u32,
    event_quota: u32,
    /// Time measured since the last report, without the present run.
    ran: Duration,
    /// Since when time is measured.
    running: Option<Time>,
    /// No packet came after this.
    active: Time,
    /// Traffic goes on.
    flowing: bool,
    /// It was told that no packet came for the User Plane Inactivity Timer.
    told_inactive: bool,
    first: Option<Time>,
    last: Option<Time>,
    /// NTP seconds.
    stamps: Vec<u32>,
    events: u32,
    valid_until: Option<Time>,
    /// Number of Reports.
    pub(crate) reports_left: Option<u16>,
    /// Downlink packets dropped since the last report.
    pub(crate) dropped: u64,
    /// The end of the present base time interval, and whether a packet came in it.
    interval: Option<(Time, bool)>,
    /// Monitoring Times that have passed.
    passed: usize,
    /// Usage before them, or on the other side of QoS enforcement, since the last report.
    pieces: Vec<Piece>,
}

/// Reason why usage after a piece is reported apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cut {
    /// A Monitoring Time came.
    Monitoring,
    /// From then on the URR measures on the other side of QoS enforcement.
    OtherSide,
}

/// Usage that is reported apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    from: u32,
    to: u32,
    used: Amount,
    ran: Duration,
    /// Measured before QoS enforcement.
    before_qos: bool,
    end: Cut,
}

impl Piece {
    fn append(&mut self, more: Self) {
        self.to = more.to;
        self.used = self.used.plus(more.used);
        self.ran += more.ran;
        self.end = more.end;
    }
}

/// Usage Information (8.2.59), as far as it is about QoS enforcement.
fn side(before_qos: bool) -> UsageInformation {
    if before_qos {
        UsageInformation::UBE
    } else {
        UsageInformation::UAE
    }
}

fn seconds(value: Option<u32>) -> Duration {
    value.map_or(NEVER, |s| Duration::from_secs(s.into()))
}

impl Quotas {
    /// `None`: the URR does without.
    pub(crate) fn of(asks: &Asks, at: Moment) -> Option<Box<Self>> {
        let plain = MeasurementMethod::VOLUM;
        let watches = ReportingTriggers::START | ReportingTriggers::STOPT;
        let needed = asks.method != plain
            || asks.rare.is_some()
            || !asks.volume_quota.is_none()
            || asks.triggers.intersects(watches);
        if !needed {
            return None;
        }
        Some(Self::new(asks, at))
    }

    /// Whether or not the URR asks for any of it.
    pub(crate) fn new(asks: &Asks, at: Moment) -> Box<Self> {
        let rare = asks.rare();
        let mut more = Self {
            threshold: asks.volume_threshold,
            quota: asks.volume_quota,
            time_threshold: seconds(rare.time_threshold),
            time_quota: seconds(rare.time_quota),
            event_threshold: rare.event_threshold.unwrap_or(u32::MAX),
            event_quota: rare.event_quota.unwrap_or(u32::MAX),
            ran: Duration::ZERO,
            running: None,
            active: at.now,
            flowing: false,
            told_inactive: false,
            first: None,
            last: None,
            stamps: Vec::new(),
            events: 0,
            valid_until: Self::validity(asks, at),
            reports_left: rare.reports,
            dropped: 0,
            interval: None,
            passed: 0,
            pieces: Vec::new(),
        };
        more.passed = more.monitored(asks, at);
        if asks.information.contains(MeasurementInformation::ISTM) && asks.measures_time() {
            more.start_clock(asks, at.now);
        }
        Box::new(more)
    }

    /// An Update URR. A quota that is sent anew counts, like the one before, from the last report on.
    pub(crate) fn update(&mut self, asks: &Asks, renewed: Renewed, at: Moment) {
        let rare = asks.rare();
        if renewed.contains(Renewed::THRESHOLD) {
            self.threshold = asks.volume_threshold;
            self.time_threshold = seconds(rare.time_threshold);
            self.event_threshold = rare.event_threshold.unwrap_or(u32::MAX);
        }
        if renewed.contains(Renewed::VOLUME_QUOTA) {
            self.quota = asks.volume_quota;
        }
        if renewed.contains(Renewed::TIME_QUOTA) {
            self.time_quota = seconds(rare.time_quota);
        }
        if renewed.contains(Renewed::EVENT_QUOTA) {
            self.event_quota = rare.event_quota.unwrap_or(u32::MAX);
        }
        if renewed.intersects(Renewed::QUOTA | Renewed::VALIDITY) {
            self.valid_until = Self::validity(asks, at);
            // The Quota Holding Time of a new quota begins with it.
            self.active = self.active.max(at.now);
        }
        if renewed.contains(Renewed::REPORTS) {
            self.reports_left = rare.reports;
        }
        if renewed.contains(Renewed::MONITORING) {
            self.passed = 0;
            self.passed = self.monitored(asks, at);
        }
        if asks.is_inactive() || !asks.measures_time() {
            self.stop_clock(at.now);
        } else if asks.information.contains(MeasurementInformation::ISTM) && self.running.is_none()
        {
            self.start_clock(asks, at.now);
        }
    }

    /// Triggers may have changed. `over`: the quota's validity is, and it waits for a new one.
    pub(crate) fn keep_validity(&mut self, asks: &Asks, over: bool, at: Moment) {
        if !asks.triggers.contains(ReportingTriggers::QUVTI) {
            self.valid_until = None;
        } else if self.valid_until.is_none() && !over {
            self.valid_until = Self::validity(asks, at);
        }
    }

    /// Until when a quota that is given now is valid.
    fn validity(asks: &Asks, at: Moment) -> Option<Time> {
        let wanted = asks.triggers.contains(ReportingTriggers::QUVTI);
        let validity = asks.rare().validity.filter(|_| wanted)?;
        Some(at.now.after(validity))
    }

    /// Monitoring Times that lie in the past. One that has passed has, though 68 years later it would lie ahead.
    fn monitored(&self, asks: &Asks, at: Moment) -> usize {
        let now = at.ntp(at.now);
        let times = asks.rare().monitoring.iter().skip(self.passed);
        let passed = times.take_while(|time| time.at.wrapping_sub(now) as i32 <= 0);
        self.passed + passed.count()
    }

    fn start_clock(&mut self, asks: &Asks, now: Time) {
        self.running = Some(now);
        if let Some(mechanism) = asks.rare().mechanism {
            let interval = Duration::from_secs(mechanism.interval_s.into());
            self.interval = Some((now.after(interval), false));
        }
    }

    fn stop_clock(&mut self, at: Time) {
        if let Some(since) = self.running.take() {
            self.ran += at.since(since);
        }
        self.interval = None;
    }

    /// Whether anything was set apart since the last report.
    pub(crate) fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Time measured since the last report.
    pub(crate) fn measured(&self, now: Time) -> Duration {
        let run = self
            .running
            .map_or(Duration::ZERO, |since| now.since(since));
        self.ran + run
    }

    /// Triggers that have come about. `moved`: packets came since it was judged last.
    pub(crate) fn judge(
        &mut self,
        asks: &Asks,
        used: [u64; 2],
        moved: bool,
        spent: &mut u8,
        at: Moment,
    ) -> UsageReportTrigger {
        // Packets that came until an interval ended are in that one.
        let (mut fired, ended) = self.intervals(asks, moved, at.now);
        if moved {
            fired |= self.packets_came(asks, ended, at);
        }
        fired |= self.quiet(asks, at.now, spent);
        fired |= self.limits(asks, used, spent, at.now);
        fired
    }

    fn packets_came(&mut self, asks: &Asks, ended: bool, at: Moment) -> UsageReportTrigger {
        let mut fired = UsageReportTrigger::empty();
        self.active = at.now;
        self.last = Some(at.now);
        self.first.get_or_insert(at.now);
        self.told_inactive = false;
        if !std::mem::replace(&mut self.flowing, true) {
            if asks.triggers.contains(ReportingTriggers::START) {
                fired |= UsageReportTrigger::START;
            }
            if asks.method.contains(MeasurementMethod::EVENT) {
                self.events = self.events.saturating_add(1);
                if self.stamps.len() < STAMPS {
                    self.stamps.push(at.ntp(at.now));
                }
            }
        }
        if ended {
            return fired;
        }
        if asks.measures_time() && self.running.is_none() {
            self.start_clock(asks, at.now);
        }
        if let Some((_, any)) = &mut self.interval {
            *any = true;
        }
        fired
    }

    /// Base time intervals (Time Quota Mechanism); whether one has ended.
    fn intervals(&mut self, asks: &Asks, moved: bool, now: Time) -> (UsageReportTrigger, bool) {
        let nothing = UsageReportTrigger::empty();
        let Some(mechanism) = asks.rare().mechanism else {
            return (nothing, false);
        };
        let Some((end, any)) = self.interval.filter(|(end, _)| *end <= now) else {
            return (nothing, false);
        };
        let interval = Duration::from_secs(mechanism.interval_s.into());
        // Continuous ones end with an interval in which nothing came; that one counts.
        let goes_on = !mechanism.is_discrete && (any || moved);
        let next = end.after(interval);
        if goes_on && next > now {
            self.interval = Some((next, false));
            return (nothing, true);
        }
        self.stop_clock(end);
        let told = asks.triggers.contains(ReportingTriggers::ENVCL);
        let fired = if told {
            UsageReportTrigger::ENVCL
        } else {
            nothing
        };
        (fired, true)
    }

    /// When traffic has stopped.
    fn stop_after(&self, asks: &Asks) -> Option<Duration> {
        let watched = asks.triggers.contains(ReportingTriggers::STOPT)
            || asks.method.contains(MeasurementMethod::EVENT);
        asks.rare()
            .idle
            .or(watched.then_some(STOPPED))
            .filter(|_| self.flowing)
    }

    /// Its clock stops when no packet came for so long.
    fn pause_after(&self, asks: &Asks) -> Option<Duration> {
        let runs = self.running.is_some() && asks.rare().mechanism.is_none();
        asks.rare().idle.filter(|_| runs)
    }

    /// Its quota is given back when no packet came for so long.
    fn hold_for(&self, asks: &Asks, spent: u8) -> Option<Duration> {
        let has_quota =
            !self.quota.is_none() || self.time_quota != NEVER || self.event_quota != u32::MAX;
        let wanted = asks.triggers.contains(ReportingTriggers::QUHTI);
        asks.rare()
            .holding
            .filter(|_| wanted && has_quota && spent == 0)
    }

    fn inactive_after(&self, asks: &Asks) -> Option<Duration> {
        let wanted = asks.triggers.contains(ReportingTriggers::UPINT) && !self.told_inactive;
        asks.rare().inactivity.filter(|_| wanted)
    }

    /// Triggers that come about because no packet came.
    fn quiet(&mut self, asks: &Asks, now: Time, spent: &mut u8) -> UsageReportTrigger {
        let quiet = now.since(self.active);
        let is_over = |limit: Option<Duration>| limit.filter(|limit| quiet >= *limit);
        let mut fired = UsageReportTrigger::empty();
        if let Some(limit) = is_over(self.pause_after(asks)) {
            self.stop_clock(self.active.after(limit));
        }
        if is_over(self.stop_after(asks)).is_some() {
            self.flowing = false;
            if asks.triggers.contains(ReportingTriggers::STOPT) {
                fired |= UsageReportTrigger::STOPT;
            }
        }
        if is_over(self.inactive_after(asks)).is_some() {
            self.told_inactive = true;
            fired |= UsageReportTrigger::UPINT;
        }
        if is_over(self.hold_for(asks, *spent)).is_some() {
            *spent |= spent::HELD;
        }
        fired
    }

    /// Thresholds and quotas that are reached.
    fn limits(
        &mut self,
        asks: &Asks,
        used: [u64; 2],
        spent: &mut u8,
        now: Time,
    ) -> UsageReportTrigger {
        use UsageReportTrigger as Trigger;
        let measured = self.measured(now);
        for (is_spent, bit) in [
            (self.quota.is_reached(used), spent::VOLUME),
            (measured >= self.time_quota, spent::TIME),
            (self.events >= self.event_quota, spent::EVENTS),
        ] {
            if is_spent {
                *spent |= bit;
            }
        }
        if self.valid_until.is_some_and(|until| until <= now) {
            self.valid_until = None;
            *spent |= spent::INVALID;
        }
        let dropped = asks.rare().dropped.unwrap_or(u64::MAX);
        let mut fired = Trigger::empty();
        for (is_reached, asked, told) in [
            (
                measured >= self.time_threshold,
                ReportingTriggers::TIMTH,
                Trigger::TIMTH,
            ),
            (
                self.events >= self.event_threshold,
                ReportingTriggers::EVETH,
                Trigger::EVETH,
            ),
            (
                self.dropped >= dropped,
                ReportingTriggers::DROTH,
                Trigger::DROTH,
            ),
        ] {
            if is_reached && asks.triggers.contains(asked) {
                fired |= told;
            }
        }
        fired
    }

    /// A Monitoring Time that has come: what was measured so far is kept apart.
    pub(crate) fn monitor(&mut self, asks: &Asks, since: Time, used: &mut Amount, at: Moment) {
        if asks.rare().monitoring.len() == self.passed {
            return;
        }
        let due = self.monitored(asks, at);
        let times = asks.rare().monitoring.get(self.passed..due);
        let Some(times) = times.filter(|times| !times.is_empty()) else {
            return;
        };
        let before_qos = asks.measures_before_qos();
        self.set_apart(Cut::Monitoring, before_qos, since, used, at);
        for time in times {
            self.renew(time);
        }
        self.passed = due;
    }

    /// Sets apart the usage so far. `before_qos`: the side of QoS enforcement on which it was measured.
    pub(crate) fn set_apart(
        &mut self,
        end: Cut,
        before_qos: bool,
        since: Time,
        used: &mut Amount,
        at: Moment,
    ) {
        let from = self.pieces.last().map_or(at.ntp(since), |piece| piece.to);
        let ran = self.measured(at.now);
        let ran = Duration::from_secs(ran.as_secs());
        let piece = Piece {
            from,
            to: at.ntp(at.now),
            used: *used,
            ran,
            before_qos,
            end,
        };
        // Beyond that an SMF sends ever new times, or changes sides, and hears of none.
        let full = self.pieces.len() >= MONITORING_TIMES;
        let of_its_side = |piece: &&mut Piece| full && piece.before_qos == before_qos;
        match self.pieces.iter_mut().rev().find(of_its_side) {
            Some(last) => last.append(piece),
            None => self.pieces.push(piece),
        }
        self.lessen(used.bytes, ran);
        *used = Amount::default();
    }

    /// So much is no longer counted towards thresholds and quotas, as it is behind us.
    fn lessen(&mut self, used: [u64; 2], ran: Duration) {
        self.threshold = self.threshold.less(used);
        self.quota = self.quota.less(used);
        for limit in [&mut self.time_threshold, &mut self.time_quota] {
            if *limit != NEVER {
                *limit = limit.saturating_sub(ran);
            }
        }
        self.forget_time(ran);
    }

    fn forget_time(&mut self, ran: Duration) {
        match ran.checked_sub(self.ran) {
            // Into the present run.
            Some(more) => {
                self.ran = Duration::ZERO;
                self.running = self.running.map(|since| since.after(more));
            }
            None => self.ran -= ran,
        }
    }

    /// Limits from a Monitoring Time on; one that it does not give goes on with what is left of it.
    fn renew(&mut self, time: &Monitoring) {
        self.threshold = time.volume_threshold.unwrap_or(self.threshold);
        self.quota = time.volume_quota.unwrap_or(self.quota);
        if time.time_threshold.is_some() {
            self.time_threshold = seconds(time.time_threshold);
        }
        if time.time_quota.is_some() {
            self.time_quota = seconds(time.time_quota);
        }
        if let Some(threshold) = time.event_threshold {
            self.event_threshold = self.events.saturating_add(threshold);
        }
        if let Some(quota) = time.event_quota {
            self.event_quota = self.events.saturating_add(quota);
        }
    }

    /// Completes a report, and begins anew. Usage that was set apart is in reports of its own, in front.
    pub(crate) fn report(
        &mut self,
        asks: &Asks,
        report: &mut Report,
        at: Moment,
        into: &mut Vec<Report>,
    ) {
        let pieces = std::mem::take(&mut self.pieces);
        let before_qos = asks.measures_before_qos();
        let both_sides = pieces.iter().any(|piece| piece.before_qos != before_qos);
        let monitored = (pieces.iter()).rposition(|piece| piece.end == Cut::Monitoring);
        let information = |at: usize, before_qos: bool| {
            let of_time = match monitored {
                Some(last) if at <= last => UsageInformation::BEF,
                Some(_) => UsageInformation::AFT,
                None => UsageInformation::empty(),
            };
            let of_side = Some(side(before_qos)).filter(|_| both_sides);
            of_time | of_side.unwrap_or(UsageInformation::empty())
        };
        report.information = information(pieces.len(), before_qos);
        for (at, piece) in pieces.into_iter().enumerate() {
            into.push(Report {
                seqn: report.seqn,
                trigger: match piece.end {
                    Cut::Monitoring => UsageReportTrigger::MONIT,
                    Cut::OtherSide => report.trigger,
                },
                start: piece.from,
                end: piece.to,
                used: piece.used,
                duration: report.duration.map(|_| piece.ran.as_secs() as u32),
                information: information(at, piece.before_qos),
                ..report.clone()
            });
            report.seqn = report.seqn.wrapping_add(1);
            report.start = piece.to;
        }
        let ran = Duration::from_secs(self.measured(at.now).as_secs());
        report.duration = report.duration.map(|_| ran.as_secs() as u32);
        report.first = self.first.take().map(|time| at.ntp(time));
        report.last = self.last.take().map(|time| at.ntp(time));
        report.events = std::mem::take(&mut self.stamps).into();
        self.lessen(report.used.bytes, ran);
        if self.event_quota != u32::MAX {
            self.event_quota = self.event_quota.saturating_sub(self.events);
        }
        self.events = 0;
        self.dropped = 0;
        self.restore_thresholds(asks);
    }

    /// After a report a threshold is what it was when it was given.
    fn restore_thresholds(&mut self, asks: &Asks) {
        let rare = asks.rare();
        let passed = rare.monitoring.get(..self.passed).unwrap_or_default();
        let latest = || passed.iter().rev();
        let volume = latest().find_map(|time| time.volume_threshold);
        self.threshold = volume.unwrap_or(asks.volume_threshold);
        let time = latest().find_map(|time| time.time_threshold);
        self.time_threshold = seconds(time.or(rare.time_threshold));
        let events = latest().find_map(|time| time.event_threshold);
        self.event_threshold = events.or(rare.event_threshold).unwrap_or(u32::MAX);
    }

    /// It wants to know of the next packet.
    pub(crate) fn waits_for_a_packet(&self, asks: &Asks) -> bool {
        let flows = asks.watches_starts() || asks.triggers.contains(ReportingTriggers::STOPT);
        (asks.measures_time() && self.running.is_none())
            || (flows && !self.flowing)
            || self.told_inactive
    }

    /// When to look at it.
    pub(crate) fn due(&self, asks: &Asks, spent: u8, at: Moment) -> Time {
        let now = at.now;
        let mut due = Time(u64::MAX);
        let watched = [
            self.pause_after(asks),
            self.stop_after(asks),
            self.inactive_after(asks),
            self.hold_for(asks, spent),
        ];
        for limit in watched.into_iter().flatten() {
            let look = now.after((limit / LOOKS).clamp(LEAST, MOST));
            let end = self.active.after(limit);
            due = due.min(if end > now { look.min(end) } else { look });
        }
        if let Some(since) = self.running {
            let threshold = asks.triggers.contains(ReportingTriggers::TIMTH);
            let threshold = Some(self.time_threshold).filter(|_| threshold);
            let quota = Some(self.time_quota).filter(|_| spent & spent::TIME == 0);
            for limit in [threshold, quota].into_iter().flatten() {
                if limit != NEVER {
                    let end = since.after(limit.saturating_sub(self.ran));
                    // A limit that is reached already waits for its report.
                    due = due.min(if end > now { end } else { due });
                }
            }
        }
        if asks.rare().dropped.is_some() {
            due = due.min(now.after(DROPS));
        }
        let interval = self.interval.map(|(end, _)| end);
        let monitoring = self.next_monitoring(asks, at);
        [interval, self.valid_until, monitoring]
            .into_iter()
            .flatten()
            .fold(due, Time::min)
    }

    fn next_monitoring(&self, asks: &Asks, at: Moment) -> Option<Time> {
        let next = asks.rare().monitoring.get(self.passed)?;
        let ahead = next.at.wrapping_sub(at.ntp(at.now)) as i32;
        let ahead = Duration::from_secs(u64::try_from(ahead).unwrap_or(0));
        // To the second by the wall clock, which may be put right meanwhile.
        Some(at.wall.whole_second(at.now).after(ahead).max(at.now))
    }

    /// Time measured since the last report without the present run, and since when that is.
    pub(crate) fn clock(&self) -> (Duration, Option<Time>) {
        (self.ran, self.running)
    }

    /// Time Quota that [`Self::clock`] counts against; `None`: none.
    pub(crate) fn time_quota(&self) -> Option<Duration> {
        Some(self.time_quota).filter(|quota| *quota != NEVER)
    }
}
