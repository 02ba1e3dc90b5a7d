//! Measurements of the URRs of a session (TS 29.244, 5.2.2.3).
//!
//! Packets only count themselves, by PDR. A sample adds to each URR what its PDRs have counted since the
//! sample before; rules change between samples only, so that no packet is counted twice or not at all.

use std::time::Duration;

use compiled::{Counters, PdrId};
use pfcp::ie::{
    MeasurementInformation, MeasurementMethod, ReportingTriggers, UsageInformation,
    UsageReportTrigger,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::base::bits;
use crate::base::mix::mix;
use crate::base::time::Time;
use crate::rules::urr::{Asks, Limits, Renewed};
use crate::rules::{FarId, Urr, UrrId};
use crate::usage::amount::{Amount, place};
use crate::usage::moment::Moment;
use crate::usage::quotas::{Cut, Quotas, spent};
use crate::usage::report::{ROOM, Report};
use crate::usage::urr_rules::{NamedBy, UrrRules};

/// Counters of a PDR when they were last looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) bytes: u64,
    packets: u64,
    /// It tells when it has forwarded so many octets; the largest number: it does not.
    pub(crate) armed: u64,
    /// As [`Counters::qos_bytes`].
    pub(crate) qos_bytes: u64,
    qos_packets: u64,
    /// As `armed`, of `qos_bytes`.
    pub(crate) qos_armed: u64,
    /// The lower half is enough to see what was added.
    drops: u32,
    pub(crate) pdr: PdrId,
}

/// Counts of a session's PDRs that nobody has looked at: of tables whose process is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    pub(crate) measured: SmallVec<[(PdrId, Added); 2]>,
    /// Packets that it met, if it is watched for whether there are some.
    pub(crate) packets: u64,
}

impl Uncounted {
    /// No packet was counted.
    pub fn is_nothing(&self) -> bool {
        self.measured.is_empty() && self.packets == 0
    }
}

/// A PDR has counted so much more.
fn add(urrs: &mut [Measured], rules: &[Urr], pdr: &NamedBy, added: Added) {
    if added.is_nothing() {
        return;
    }
    let direction = place(pdr.direction);
    for id in unique(&pdr.urrs) {
        let Some(at) = urrs.iter().position(|urr| urr.id == id) else {
            continue;
        };
        let Some(asks) = rules.get(at).map(|urr| &urr.asks) else {
            continue;
        };
        if asks.is_inactive() {
            continue;
        }
        let (bytes, packets) = added.to(asks);
        let urr = &mut urrs[at];
        urr.moved |= packets > 0;
        urr.add(direction, bytes, packets);
        if let Some(quotas) = urr.quotas.as_mut().filter(|_| direction == 1) {
            quotas.dropped = quotas.dropped.saturating_add(added.drops);
        }
    }
}

/// No alarm.
pub(crate) const UNARMED: u64 = u64::MAX;

/// Increase of the counters of a PDR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    bytes: u64,
    packets: u64,
    drops: u64,
    qos_bytes: u64,
    qos_packets: u64,
}

impl Added {
    /// Not even octets: a packet may be counted between its words being read, and then these come first.
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Octets and packets, as a URR counts them: what was forwarded, or what was offered (MBQE: TS 29.244, 8.2.68).
    fn to(&self, asks: &Asks) -> (u64, u64) {
        if asks.measures_before_qos() {
            (
                self.bytes.saturating_add(self.qos_bytes),
                self.packets.saturating_add(self.qos_packets),
            )
        } else {
            (self.bytes, self.packets)
        }
    }
}

impl Seen {
    fn new(pdr: PdrId, counters: Counters) -> Self {
        Self {
            bytes: counters.bytes,
            packets: counters.packets,
            armed: UNARMED,
            qos_bytes: counters.qos_bytes,
            qos_packets: counters.qos_packets,
            qos_armed: UNARMED,
            drops: counters.drops as u32,
            pdr,
        }
    }

    /// Increase since the last look. Counters that are less than they were have begun anew.
    fn update(&mut self, counters: Counters) -> Added {
        let anew = counters.packets < self.packets || counters.qos_packets < self.qos_packets;
        let added = |now: u64, before: u64| now.saturating_sub(if anew { 0 } else { before });
        let drops = (counters.drops as u32).wrapping_sub(self.drops);
        let added = Added {
            bytes: added(counters.bytes, self.bytes),
            packets: added(counters.packets, self.packets),
            drops: if anew { counters.drops } else { drops.into() },
            qos_bytes: added(counters.qos_bytes, self.qos_bytes),
            qos_packets: added(counters.qos_packets, self.qos_packets),
        };
        self.bytes = counters.bytes;
        self.packets = counters.packets;
        self.drops = counters.drops as u32;
        self.qos_bytes = counters.qos_bytes;
        self.qos_packets = counters.qos_packets;
        added
    }
}

/// Measurement of one URR.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) id: UrrId,
    /// UR-SEQN of the next report.
    pub(crate) seqn: u32,
    /// Since the report before.
    pub(crate) used: Amount,
    /// When that was.
    pub(crate) since: Time,
    /// When the period ends; the end of time: there is none.
    pub(crate) period_due: Time,
    /// Triggers of the next report; empty: none is due.
    #[serde(with = "bits")]
    pub(crate) pending: UsageReportTrigger,
    /// Quotas that are exhausted: see [`spent`].
    pub(crate) spent: u8,
    /// Some PDR names it.
    named: bool,
    /// Packets came since it was judged.
    moved: bool,
    /// State that few URRs need.
    pub(crate) quotas: Option<Box<Quotas>>,
}

impl Measured {
    fn new(urr: &Urr, at: Moment) -> Self {
        let mut new = Self {
            id: urr.id,
            seqn: 0,
            used: Amount::default(),
            since: at.now,
            period_due: Time(u64::MAX),
            pending: UsageReportTrigger::empty(),
            spent: 0,
            named: false,
            moved: false,
            quotas: Quotas::of(&urr.asks, at),
        };
        new.begin_period(&urr.asks, at);
        new
    }

    fn begin_period(&mut self, asks: &Asks, at: Moment) {
        let periodic = asks.triggers.contains(ReportingTriggers::PERIO) && asks.period_s > 0;
        self.period_due = if periodic {
            at.now.after(Duration::from_secs(asks.period_s.into()))
        } else {
            Time(u64::MAX)
        };
    }

    /// An Update URR has changed what it asks for.
    fn update(&mut self, asks: &Asks, renewed: Renewed, at: Moment) {
        let periodic = self.period_due != Time(u64::MAX);
        let wanted = asks.triggers.contains(ReportingTriggers::PERIO);
        if renewed.contains(Renewed::QOS_SIDE) {
            self.change_side(asks, at);
        }
        if renewed.contains(Renewed::PERIOD) || periodic != wanted {
            self.begin_period(asks, at);
        }
        if renewed.contains(Renewed::VOLUME_QUOTA) {
            self.spent &= !spent::VOLUME;
        }
        if renewed.contains(Renewed::TIME_QUOTA) {
            self.spent &= !spent::TIME;
        }
        if renewed.contains(Renewed::EVENT_QUOTA) {
            self.spent &= !spent::EVENTS;
        }
        if renewed.intersects(Renewed::QUOTA | Renewed::VALIDITY) {
            self.spent &= !(spent::HELD | spent::INVALID);
        }
        match &mut self.quotas {
            Some(quotas) => {
                quotas.update(asks, renewed, at);
                quotas.keep_validity(asks, self.spent & spent::INVALID != 0, at);
            }
            None => self.quotas = Quotas::of(asks, at),
        }
    }

    /// Sets apart the usage so far, which was measured on the other side of QoS enforcement.
    fn change_side(&mut self, asks: &Asks, at: Moment) {
        let measured = self.quotas.as_ref().map(|quotas| quotas.measured(at.now));
        if self.used.is_zero() && measured.is_none_or(|time| time.as_secs() == 0) {
            return;
        }
        let quotas = self.quotas.get_or_insert_with(|| Quotas::new(asks, at));
        let before_qos = !asks.measures_before_qos();
        quotas.set_apart(Cut::OtherSide, before_qos, self.since, &mut self.used, at);
    }

    /// Packets have come.
    fn add(&mut self, direction: usize, bytes: u64, packets: u64) {
        self.used.bytes[direction] = self.used.bytes[direction].saturating_add(bytes);
        self.used.packets[direction] = self.used.packets[direction].saturating_add(packets);
    }

    /// The volume at which it reports, in octets since the report before.
    pub(crate) fn threshold(&self, asks: &Asks) -> Limits {
        let wanted = asks.triggers.contains(ReportingTriggers::VOLTH);
        match &self.quotas {
            _ if !wanted => Limits::NONE,
            Some(quotas) => quotas.threshold,
            None => asks.volume_threshold,
        }
    }

    /// The volume at which it stops.
    pub(crate) fn quota(&self) -> Limits {
        self.quotas
            .as_ref()
            .map_or(Limits::NONE, |quotas| quotas.quota)
    }

    /// Volumes left until a threshold or quota is reached.
    pub(crate) fn limits(&self, asks: &Asks) -> impl Iterator<Item = Limits> {
        let pending = self.pending.contains(UsageReportTrigger::VOLTH);
        let threshold = Some(self.threshold(asks)).filter(|_| !pending && self.may_report());
        let quota = Some(self.quota()).filter(|_| self.spent & spent::VOLUME == 0);
        let used = self.used.bytes;
        let limits = [threshold, quota].into_iter().flatten();
        limits
            .filter(|limits| !limits.is_none())
            .map(move |limits| limits.less(used))
    }

    /// Number of Reports: whether there is one left.
    fn may_report(&self) -> bool {
        let left = self.quotas.as_ref().and_then(|quotas| quotas.reports_left);
        left != Some(0)
    }

    /// Triggers that have come about and were not pending. They are from now on.
    fn judge(&mut self, asks: &Asks, at: Moment) -> UsageReportTrigger {
        use UsageReportTrigger as Trigger;
        let moved = std::mem::take(&mut self.moved);
        if asks.is_inactive() {
            return Trigger::empty();
        }
        if let Some(quotas) = &mut self.quotas {
            quotas.monitor(asks, self.since, &mut self.used, at);
        }
        let used = self.used.bytes;
        let mut fired = Trigger::empty();
        if self.threshold(asks).is_reached(used) {
            fired |= Trigger::VOLTH;
        }
        if self.period_due <= at.now {
            fired |= Trigger::PERIO;
            let period = Duration::from_secs(asks.period_s.max(1).into());
            // Periods that were missed are in this one.
            let missed = at.now.since(self.period_due).as_nanos() / period.as_nanos();
            let periods = u32::try_from(missed + 1).unwrap_or(u32::MAX);
            self.period_due = self.period_due.after(period.saturating_mul(periods));
        }
        if let Some(quotas) = &mut self.quotas {
            let before = self.spent;
            fired |= quotas.judge(asks, used, moved, &mut self.spent, at);
            let new = self.spent & !before;
            for (bit, asked, told) in [
                (spent::VOLUME, ReportingTriggers::VOLQU, Trigger::VOLQU),
                (spent::TIME, ReportingTriggers::TIMQU, Trigger::TIMQU),
                (spent::EVENTS, ReportingTriggers::EVEQU, Trigger::EVEQU),
                (spent::HELD, ReportingTriggers::QUHTI, Trigger::QUHTI),
                (spent::INVALID, ReportingTriggers::QUVTI, Trigger::QUVTI),
            ] {
                if new & bit != 0 && asks.triggers.contains(asked) {
                    fired |= told;
                }
            }
        }
        if !self.may_report() {
            return Trigger::empty();
        }
        let new = fired.difference(self.pending);
        self.pending |= fired;
        new
    }

    /// Usage since the report before, as one report or, where some was set apart, several.
    pub(crate) fn report(
        &mut self,
        asks: &Asks,
        trigger: UsageReportTrigger,
        query: Option<u32>,
        at: Moment,
        into: &mut Vec<Report>,
    ) {
        let mut report = Report {
            urr: self.id,
            seqn: self.seqn,
            trigger,
            start: at.ntp(self.since),
            end: at.ntp(at.now),
            used: self.used,
            volume: asks.method.contains(MeasurementMethod::VOLUM),
            packets: asks.information.contains(MeasurementInformation::MNOP),
            duration: asks.measures_time().then_some(0),
            first: None,
            last: None,
            // Which side of QoS enforcement this is of, the URR has said. TS 29.244, table 7.5.8.3-1, has the IE where
            // usage of both sides is reported; two URRs, of which one measures before and one after, are told apart by
            // their ids (and free5GC, which has such a pair over each PDR, loses a whole message with this IE).
            information: UsageInformation::empty(),
            query,
            events: SmallVec::new(),
        };
        if let Some(quotas) = &mut self.quotas {
            quotas.report(asks, &mut report, at, into);
        }
        self.seqn = report.seqn.wrapping_add(1);
        into.push(report);
        self.used = Amount::default();
        self.since = at.now;
        self.pending = UsageReportTrigger::empty();
    }

    /// When something falls due that no packet tells of.
    fn due(&self, asks: &Asks, at: Moment) -> Time {
        if asks.is_inactive() {
            return Time(u64::MAX);
        }
        let quotas = self.quotas.as_ref();
        let quotas = quotas.map_or(Time(u64::MAX), |quotas| quotas.due(asks, self.spent, at));
        self.period_due.min(quotas)
    }

    /// It wants to know of the next packet.
    pub(crate) fn waits_for_a_packet(&self, asks: &Asks) -> bool {
        !asks.is_inactive()
            && self
                .quotas
                .as_ref()
                .is_some_and(|m| m.waits_for_a_packet(asks))
    }

    /// Whether its PDRs let nothing pass.
    pub(crate) fn is_closed(&self) -> bool {
        self.spent != 0
    }
}

/// All URRs of a session.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// In the order of the rules.
    pub(crate) urrs: Vec<Measured>,
    /// Counters of the PDRs that name a URR.
    pub(crate) seen: Vec<Seen>,
    /// Reports that the SMF has not answered.
    pub(crate) unanswered: Vec<Report>,
    /// When it is looked at next; goes with the queue of those.
    pub(crate) due: Option<Time>,
    /// It waits for its turn to report.
    #[serde(skip)]
    pub(crate) queued: bool,
    /// A report of it is on its way.
    #[serde(skip)]
    pub(crate) under_way: bool,
    /// How many have been sent: an answer to any but the latest settles nothing.
    pub(crate) sent: u32,
    /// [`Self::closing`], as packets meet it.
    pub(crate) published: u64,
    /// A change of what quotas close could not be published; tried again then.
    pub(crate) stuck: Option<Time>,
}

/// The PDRs that name a URR: those of [`Usage::seen`], in its order.
pub(crate) fn measuring(pdrs: &[NamedBy]) -> impl Iterator<Item = &NamedBy> {
    pdrs.iter().filter(|pdr| !pdr.urrs.is_empty())
}

/// Changes of a session's URRs by a request.
#[derive(Debug, Default)]
pub(crate) struct UrrChanges {
    /// Removed; one of the same id may be there anew.
    pub(crate) removed: SmallVec<[UrrId; 2]>,
    pub(crate) updated: SmallVec<[(UrrId, Renewed); 2]>,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self {
            urrs: Vec::new(),
            seen: Vec::new(),
            unanswered: Vec::new(),
            due: None,
            queued: false,
            under_way: false,
            sent: 0,
            published: 0,
            stuck: None,
        }
    }

    /// Counters begin with nothing, and no alarm is set.
    pub(crate) fn begin_counting(&mut self) {
        for seen in &mut self.seen {
            *seen = Seen::new(seen.pdr, Counters::default());
        }
    }

    /// Add what was counted since, and see what has come about. Whether there is something to report that
    /// there was not before.
    pub(crate) fn sample(
        &mut self,
        rules: &UrrRules,
        at: Moment,
        counters: impl Fn(PdrId) -> Counters,
    ) -> bool {
        self.count(rules, counters);
        self.judge(rules, at)
    }

    /// Add what was counted since.
    pub(crate) fn count(&mut self, rules: &UrrRules, counters: impl Fn(PdrId) -> Counters) {
        for (seen, pdr) in self.seen.iter_mut().zip(measuring(&rules.pdrs)) {
            let added = seen.update(counters(seen.pdr));
            add(&mut self.urrs, &rules.urrs, pdr, added);
        }
    }

    /// Add what other tables have counted for the session as it was there.
    pub(crate) fn count_uncounted(&mut self, rules: &UrrRules, uncounted: &Uncounted) {
        for &(of, added) in &uncounted.measured {
            if let Some(pdr) = measuring(&rules.pdrs).find(|pdr| pdr.pdr == of) {
                add(&mut self.urrs, &rules.urrs, pdr, added);
            }
        }
    }

    /// Counts of each PDR that were not looked at, or `all`. `counters`: all that it has; `None`: nothing is known.
    pub(crate) fn uncounted(
        &self,
        all: bool,
        counters: impl Fn(PdrId) -> Option<Counters>,
    ) -> SmallVec<[(PdrId, Added); 2]> {
        let seen = self.seen.iter().map(|seen| match all {
            true => Seen::new(seen.pdr, Counters::default()),
            false => *seen,
        });
        let added = seen.filter_map(|mut seen| Some((seen.pdr, seen.update(counters(seen.pdr)?))));
        added.filter(|(_, added)| !added.is_nothing()).collect()
    }

    /// Usage of each URR since the last sample; nothing changes.
    pub(crate) fn unsampled(
        &self,
        rules: &UrrRules,
        counters: impl Fn(PdrId) -> Counters,
    ) -> Vec<Amount> {
        let mut more = vec![Amount::default(); self.urrs.len()];
        for (mut seen, pdr) in self.seen.iter().copied().zip(measuring(&rules.pdrs)) {
            let added = seen.update(counters(seen.pdr));
            let direction = place(pdr.direction);
            for ((amount, urr), rule) in more.iter_mut().zip(&self.urrs).zip(&rules.urrs) {
                if pdr.urrs.contains(&urr.id) && !rule.asks.is_inactive() {
                    let (bytes, packets) = added.to(&rule.asks);
                    amount.bytes[direction] += bytes;
                    amount.packets[direction] += packets;
                }
            }
        }
        more
    }

    fn judge(&mut self, rules: &UrrRules, at: Moment) -> bool {
        let mut new: SmallVec<[UrrId; 4]> = SmallVec::new();
        for (urr, rule) in self.urrs.iter_mut().zip(&rules.urrs) {
            if !urr.judge(&rule.asks, at).is_empty() {
                new.push(urr.id);
            }
        }
        self.link(rules, &new);
        !new.is_empty()
    }

    /// URRs that report when these do (LIUSA).
    fn link(&mut self, rules: &UrrRules, reporting: &[UrrId]) {
        if reporting.is_empty() {
            return;
        }
        for (urr, rule) in self.urrs.iter_mut().zip(&rules.urrs) {
            let asks = &rule.asks;
            let linked = asks.triggers.contains(ReportingTriggers::LIUSA)
                && asks.rare().linked.iter().any(|id| reporting.contains(id));
            if linked && !reporting.contains(&urr.id) && urr.may_report() {
                urr.pending |= UsageReportTrigger::LIUSA;
            }
        }
    }

    /// Whether a report waits for its turn.
    pub(crate) fn is_pending(&self) -> bool {
        self.urrs.iter().any(|urr| !urr.pending.is_empty())
    }

    /// Pending triggers become reports, as far as a message has room for them.
    pub(crate) fn report_pending(&mut self, rules: &UrrRules, at: Moment, into: &mut Vec<Report>) {
        let mut octets = 0;
        for (urr, rule) in self.urrs.iter_mut().zip(&rules.urrs) {
            if urr.pending.is_empty() {
                continue;
            }
            let before = into.len();
            if octets > ROOM {
                break;
            }
            if let Some(left) = urr
                .quotas
                .as_mut()
                .and_then(|quotas| quotas.reports_left.as_mut())
            {
                *left = left.saturating_sub(1);
            }
            let trigger = urr.pending;
            urr.report(&rule.asks, trigger, None, at, into);
            let new = into.get(before..).unwrap_or_default();
            octets += new.iter().map(Report::octets).sum::<usize>();
        }
    }

    /// The association is about to end: what has measured something is to report it.
    pub(crate) fn finish(&mut self, rules: &UrrRules, now: Time) {
        for (urr, rule) in self.urrs.iter_mut().zip(&rules.urrs) {
            let measured = urr.quotas.as_ref().map(|quotas| quotas.measured(now));
            let any = !urr.used.is_zero()
                || measured.is_some_and(|time| time.as_secs() > 0)
                || urr
                    .quotas
                    .as_ref()
                    .is_some_and(|quotas| quotas.has_pieces());
            if any && !rule.asks.is_inactive() {
                urr.pending |= UsageReportTrigger::TEBUR;
            }
        }
    }

    /// Reports of these URRs for `trigger`; `None`: of all. Nobody else reports with them: it is asked who is meant.
    pub(crate) fn report_now(
        &mut self,
        rules: &UrrRules,
        of: Option<&[UrrId]>,
        trigger: UsageReportTrigger,
        query: Option<u32>,
        at: Moment,
        into: &mut Vec<Report>,
    ) {
        for (urr, rule) in self.urrs.iter_mut().zip(&rules.urrs) {
            if of.is_none_or(|ids| ids.contains(&urr.id)) {
                // Triggers that waited for their turn are in it.
                let trigger = trigger | urr.pending;
                urr.report(&rule.asks, trigger, query, at, into);
            }
        }
    }

    /// All PDRs but those that stay are gone; this is what they had counted when no packet could find them any
    /// more. `None`: it is not known beyond what was sampled.
    pub(crate) fn part(
        &mut self,
        before: &UrrRules,
        stay: &[NamedBy],
        parted: impl Fn(PdrId) -> Option<Counters>,
    ) {
        let is_gone = |was: &&NamedBy| stay.iter().all(|pdr| pdr.pdr != was.pdr);
        for was in before.pdrs.iter().filter(is_gone) {
            let seen = self.seen.iter_mut().find(|seen| seen.pdr == was.pdr);
            let Some((seen, counters)) = seen.zip(parted(was.pdr)) else {
                continue;
            };
            let added = seen.update(counters);
            for (urr, rule) in self.urrs.iter_mut().zip(&before.urrs) {
                if was.urrs.contains(&urr.id) && !rule.asks.is_inactive() {
                    let (bytes, packets) = added.to(&rule.asks);
                    urr.add(place(was.direction), bytes, packets);
                    urr.moved |= packets > 0;
                }
            }
        }
    }

    /// The session has other rules now; what the ones before have counted was sampled. Reports of what is no
    /// longer measured go into `into`.
    pub(crate) fn follow(
        &mut self,
        before: &UrrRules,
        rules: &UrrRules,
        changes: &UrrChanges,
        at: Moment,
        counters: impl Fn(PdrId) -> Counters,
        into: &mut Vec<Report>,
    ) {
        self.follow_urrs(&before.urrs, rules, changes, at, into);
        self.follow_names(rules, at, into);
        let mut seen = Vec::with_capacity(self.seen.len());
        for pdr in measuring(&rules.pdrs) {
            let known = self.seen.iter().find(|seen| seen.pdr == pdr.pdr);
            seen.push(match known {
                Some(known) => *known,
                // It was there, but nobody asked; or it begins with nothing.
                None if before.has(pdr.pdr) => Seen::new(pdr.pdr, counters(pdr.pdr)),
                None => Seen::new(pdr.pdr, Counters::default()),
            });
        }
        self.seen = seen;
        // The FAR that applies meanwhile may be another one.
        if self.published != 0 && !changes.updated.is_empty() {
            self.published = !self.closing();
        }
    }

    fn follow_urrs(
        &mut self,
        old: &[Urr],
        rules: &UrrRules,
        changes: &UrrChanges,
        at: Moment,
        into: &mut Vec<Report>,
    ) {
        let mut gone: SmallVec<[UrrId; 2]> = SmallVec::new();
        for (urr, rule) in self.urrs.iter_mut().zip(old) {
            if changes.removed.contains(&urr.id) {
                // Unanswered reports are sent once more, by their numbers, so that they are not taken for those of
                // another URR with this id.
                let unanswered = &mut self.unanswered;
                into.extend(unanswered.extract_if(.., |report| report.urr == urr.id));
                let trigger = UsageReportTrigger::TERMR | urr.pending;
                urr.report(&rule.asks, trigger, None, at, into);
                gone.push(urr.id);
            }
        }
        self.urrs.retain(|urr| !gone.contains(&urr.id));
        let mut urrs = Vec::with_capacity(rules.urrs.len());
        for rule in &rules.urrs {
            let known = self.urrs.iter().position(|urr| urr.id == rule.id);
            let mut urr = match known {
                Some(known) => self.urrs.swap_remove(known),
                None => Measured::new(rule, at),
            };
            let updated = changes.updated.iter().find(|(id, _)| *id == rule.id);
            if let Some((_, renewed)) = updated.filter(|_| known.is_some()) {
                urr.update(&rule.asks, *renewed, at);
            }
            urrs.push(urr);
        }
        self.urrs = urrs;
        self.link(rules, &gone);
    }

    /// A URR that the last PDR has left reports (5.2.2.3.1).
    fn follow_names(&mut self, rules: &UrrRules, at: Moment, into: &mut Vec<Report>) {
        for (urr, rule) in self.urrs.iter_mut().zip(&rules.urrs) {
            let named = rules.pdrs.iter().any(|pdr| pdr.urrs.contains(&urr.id));
            if urr.named && !named {
                let trigger = UsageReportTrigger::TERMR | urr.pending;
                urr.report(&rule.asks, trigger, None, at, into);
            }
            urr.named = named;
        }
    }

    /// PDRs that let nothing pass, or what another FAR says.
    pub(crate) fn closed<'p>(
        &self,
        pdrs: impl Iterator<Item = (PdrId, &'p [UrrId])>,
        urrs: &[Urr],
        into: &mut Vec<(PdrId, Option<FarId>)>,
    ) {
        into.clear();
        if self.urrs.iter().all(|urr| !urr.is_closed()) {
            return;
        }
        for (pdr, named) in pdrs {
            let mut closed = None;
            for id in named {
                let spent = self.urrs.iter().any(|urr| urr.id == *id && urr.is_closed());
                let Some(rule) = urrs.iter().find(|urr| spent && urr.id == *id) else {
                    continue;
                };
                // The strictest decides.
                let far = rule.asks.rare().quota_far;
                closed = Some(closed.map_or(far, |before: Option<FarId>| before.and(far)));
            }
            into.extend(closed.map(|far| (pdr, far)));
        }
    }

    /// Whether quotas close PDRs, or did until just now.
    pub(crate) fn is_closing(&self) -> bool {
        self.published != 0 || self.closing() != 0 || self.stuck.is_some()
    }

    /// A number that differs where other URRs are closed; zero where none is.
    pub(crate) fn closing(&self) -> u64 {
        let closed = self.urrs.iter().filter(|urr| urr.is_closed());
        closed
            .map(|urr| mix(u64::from(urr.id.0) + 1))
            .fold(0, |a, b| a ^ b)
    }

    /// When to look at it next.
    pub(crate) fn next_due(&self, rules: &UrrRules, at: Moment) -> Option<Time> {
        let dues = self.urrs.iter().zip(&rules.urrs);
        let due = dues.map(|(urr, rule)| urr.due(&rule.asks, at)).min();
        let due = due.filter(|due| *due != Time(u64::MAX));
        due.into_iter().chain(self.stuck).min()
    }
}

/// A PDR may name a URR twice; it is one all the same.
pub(crate) fn unique(ids: &[UrrId]) -> impl Iterator<Item = UrrId> + '_ {
    let first = |(at, id): &(usize, &UrrId)| !ids[..*at].contains(id);
    ids.iter().enumerate().filter(first).map(|(_, id)| *id)
}
