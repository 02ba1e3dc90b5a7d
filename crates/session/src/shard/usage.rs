//! URRs of sessions as requests, packets and time go by.

use std::time::Duration;

use compiled::Tables;
use pfcp::ie::UsageReportTrigger;
use pfcp::message::SessionModificationRequest;

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::rules::summary::ue_nets;
use crate::shard::context::Extra;
use crate::shard::session::Session;
use crate::shard::sessions::Sessions;
use crate::shard::usage_before::{Before, Queries};
use crate::usage::alarms::Armed;
use crate::usage::measured::Usage;
use crate::usage::moment::Moment;
use crate::usage::report::{Report, Subject};
use crate::usage::urr_rules::UrrRules;

/// A publish that failed is tried again after so long.
const RETRY: Duration = Duration::from_secs(1);

/// A session is not looked at again before so long.
const LEAST: Duration = Duration::from_millis(1);

impl<T: Tables> Sessions<T> {
    pub(crate) fn moment(&self, now: Time) -> Moment {
        Moment {
            now,
            wall: self.deferred.wall(),
        }
    }

    /// A session was established.
    pub(crate) fn usage_begins(&mut self, now: Time, seid: u64, tables: &mut T) {
        let Some(place) = self.slab.find(seid) else {
            return;
        };
        let session = self.slab.get(place);
        if session.is_none_or(|session| session.context.urrs().is_empty()) {
            return;
        }
        self.follow(now, place, None, tables);
        self.usage_step(now, place, seid, tables);
    }

    /// A session has come from elsewhere: its counters begin with nothing here, no alarm is set, and what its SMF has not
    /// answered is told once more.
    pub(crate) fn usage_goes_on(&mut self, now: Time, seid: u64, tables: &mut T) {
        let Some(place) = self.slab.find(seid) else {
            return;
        };
        let session = self.slab.get_mut(place);
        let Some(usage) = session.and_then(|session| session.context.usage_mut()) else {
            return;
        };
        usage.begin_counting();
        self.usage_step(now, place, seid, tables);
        self.usage_goes_again(seid);
    }

    /// A session was modified, and its URRs notice. Reports for the answer are in [`UsageWork::reports`].
    pub(crate) fn usage_follows(
        &mut self,
        now: Time,
        place: Place,
        seid: u64,
        before: &Before,
        request: &SessionModificationRequest<'_>,
        tables: &mut T,
    ) {
        let at = self.moment(now);
        if !before.rules_stay {
            self.follow(now, place, Some(before), tables);
        }
        let reports = &mut self.usage.reports;
        let measuring = self.slab.get_mut(place).and_then(Session::measuring);
        if let Some((rules, _, usage)) = measuring {
            let of = match &before.queries {
                Queries::All => None,
                Queries::Some(ids) => Some(ids.as_slice()),
            };
            let trigger = UsageReportTrigger::IMMER;
            let reference = request.query_urr_reference;
            usage.report_now(rules, of, trigger, reference, at, reports);
        }
        self.usage_step(now, place, seid, tables);
        let session = self.slab.get_mut(place);
        if let Some(session) = session.filter(|session| session.context.urrs().is_empty()) {
            self.usage.forget(seid, session.context.usage());
            session.context.end_usage();
        }
    }

    /// The rules have changed to what they are.
    fn follow(&mut self, now: Time, place: Place, before: Option<&Before>, tables: &T) {
        let at = self.moment(now);
        let Some(session) = self.slab.get_mut(place) else {
            return;
        };
        let Session {
            context, handle, ..
        } = session;
        let Extra {
            urr_rules, usage, ..
        } = &mut **context.extra.get_or_insert_default();
        let usage = usage.get_or_insert_with(Usage::new);
        let nothing = UrrRules::default();
        let before = before.map_or(&nothing, |before| &before.rules);
        usage.part(before, &urr_rules.pdrs, |pdr| tables.parted(pdr));
        let reports = &mut self.usage.reports;
        let counters = |pdr| tables.counters(handle, pdr);
        let changes = &self.draft.usage;
        usage.follow(before, urr_rules, changes, at, counters, reports);
    }

    /// See what has come about; what follows from it is done.
    pub(crate) fn usage_step(&mut self, now: Time, place: Place, seid: u64, tables: &mut T) {
        let at = self.moment(now);
        let measuring = self.slab.get_mut(place).and_then(Session::measuring);
        let Some((rules, handle, usage)) = measuring else {
            return;
        };
        usage.sample(rules, at, |pdr| tables.counters(handle, pdr));
        let closing = usage.closing();
        if closing != usage.published {
            let done = self.publish_anew(place, seid, tables);
            if let Some(usage) = self
                .slab
                .get_mut(place)
                .and_then(|session| session.context.usage_mut())
            {
                usage.stuck = (!done).then(|| now.after(RETRY));
                if done {
                    usage.published = closing;
                }
            }
        } else {
            usage.stuck = None;
        }
        self.usage_settles(now, place, seid, tables);
    }

    /// Alarms, the next look, and the turn to report.
    fn usage_settles(&mut self, now: Time, place: Place, seid: u64, tables: &mut T) {
        let at = self.moment(now);
        let measuring = self.slab.get_mut(place).and_then(Session::measuring);
        let Some((rules, handle, usage)) = measuring else {
            return;
        };
        usage.rearm(rules, |pdr, what, alarm| match what {
            Armed::Forwarded => tables.arm(handle, pdr, alarm),
            Armed::QosDrops => tables.arm_qos(handle, pdr, alarm),
        });
        // Not at once, whatever it is, so that others have their turn.
        let soon = now.after(LEAST);
        let due = usage.next_due(rules, at).map(|due| due.max(soon));
        self.usage.schedule(seid, usage, due);
        if !usage.queued && !usage.under_way && usage.is_pending() {
            usage.queued = true;
            self.usage.ready.push(seid);
        }
    }

    /// Packets of a session have reached what its alarms were set to.
    pub(crate) fn usage_crossed(&mut self, now: Time, seid: u64, tables: &mut T) {
        let Some(place) = self.slab.find(seid) else {
            return;
        };
        if let Some(usage) = self
            .slab
            .get_mut(place)
            .and_then(|session| session.context.usage_mut())
        {
            usage.forget_alarms();
            self.usage_step(now, place, seid, tables);
        }
    }

    /// Reports to send now: those that the SMF has not answered, else new ones. `None`: none, or some are on their way.
    pub(crate) fn usage_to_report(
        &mut self,
        now: Time,
        seid: u64,
        tables: &mut T,
    ) -> Option<Vec<Report>> {
        let place = self.slab.find(seid)?;
        let at = self.moment(now);
        let (rules, handle, usage) = self.slab.get_mut(place)?.measuring()?;
        usage.queued = false;
        if usage.under_way {
            return None;
        }
        if usage.unanswered.is_empty() {
            usage.sample(rules, at, |pdr| tables.counters(handle, pdr));
            let mut reports = Vec::new();
            usage.report_pending(rules, at, &mut reports);
            usage.unanswered = reports;
        }
        usage.under_way = !usage.unanswered.is_empty();
        let reports = std::mem::take(&mut usage.unanswered);
        self.usage_step(now, place, seid, tables);
        (!reports.is_empty()).then_some(reports)
    }

    /// They were sent; or, if not, wait for their turn again.
    pub(crate) fn usage_is_sent(&mut self, seid: u64, reports: Vec<Report>, sent: bool) {
        let place = self.slab.find(seid);
        let usage = place.and_then(|place| self.slab.get_mut(place)?.context.usage_mut());
        if let Some(usage) = usage {
            usage.unanswered = reports;
            usage.under_way = sent;
            usage.queued = !sent;
        }
    }

    /// The number of the report that is sent now, for those that wait for the answer; zero: it has none.
    pub(crate) fn usage_is_numbered(&mut self, seid: u64) -> u32 {
        let place = self.slab.find(seid);
        let usage = place.and_then(|place| self.slab.get_mut(place)?.context.usage_mut());
        usage.map_or(0, |usage| {
            usage.sent = usage.sent.wrapping_add(1);
            usage.sent
        })
    }

    /// Whether a report of this number is the one that is on its way.
    fn awaits(&self, seid: u64, number: u32) -> bool {
        let session = self.slab.find(seid).and_then(|place| self.slab.get(place));
        let usage = session.and_then(|session| session.context.usage());
        usage.is_some_and(|usage| usage.under_way && usage.sent == number)
    }

    /// The association of its SMF is about to end: what it has measured is to be told. `anew`: what was on its way
    /// or had a place in the queue is not any more.
    pub(crate) fn usage_finishes(&mut self, now: Time, place: Place, anew: bool, tables: &mut T) {
        let at = self.moment(now);
        let seid = self.slab.seid(place);
        let measuring = self.slab.get_mut(place).and_then(Session::measuring);
        let Some(((rules, handle, usage), seid)) = measuring.zip(seid) else {
            return;
        };
        usage.sample(rules, at, |pdr| tables.counters(handle, pdr));
        usage.finish(rules, now);
        if anew {
            usage.under_way = false;
            usage.queued = false;
        }
        let waits = !usage.unanswered.is_empty() || usage.is_pending();
        if waits && !usage.queued && !usage.under_way {
            usage.queued = true;
            self.usage.ready.push(seid);
        }
    }

    /// The SMF has answered the report of this number.
    pub(crate) fn usage_is_answered(&mut self, seid: u64, number: u32, accepted: bool) {
        if !self.awaits(seid, number) {
            return;
        }
        let (place, of) = (self.slab.find(seid), self.subject(seid));
        let usage = place.and_then(|place| self.slab.get_mut(place)?.context.usage_mut());
        let Some((usage, of)) = usage.zip(of) else {
            return;
        };
        usage.under_way = false;
        let reports = std::mem::take(&mut usage.unanswered);
        let records = reports.iter().map(|report| report.record(&of, accepted));
        self.usage.records.extend(records);
        if usage.is_pending() && !usage.queued {
            usage.queued = true;
            self.usage.ready.push(seid);
        }
    }

    /// No answer came to the report of this number.
    pub(crate) fn usage_is_unanswered(&mut self, seid: u64, number: u32) {
        if self.awaits(seid, number) {
            self.usage_goes_again(seid);
        }
    }

    /// The same reports are sent again, as the SMF may have them already.
    fn usage_goes_again(&mut self, seid: u64) {
        let place = self.slab.find(seid);
        let usage = place.and_then(|place| self.slab.get_mut(place)?.context.usage_mut());
        if let Some(usage) = usage {
            usage.under_way = false;
            if !usage.queued && (!usage.unanswered.is_empty() || usage.is_pending()) {
                usage.queued = true;
                self.usage.ready.push(seid);
            }
        }
    }

    /// Another SMF hears of it from now on.
    pub(crate) fn usage_changes_hands(&mut self, place: Place, seid: u64) {
        if let Some(usage) = self
            .slab
            .get_mut(place)
            .and_then(|session| session.context.usage_mut())
        {
            usage.queued = false;
        } else {
            return;
        }
        self.usage_goes_again(seid);
    }

    /// The SMF deletes a session: all that it does not know yet goes into [`UsageWork::reports`], also what may be
    /// on its way; by URR ID and UR-SEQN it can tell.
    pub(crate) fn usage_ends(&mut self, now: Time, place: Place, tables: &mut T) {
        let at = self.moment(now);
        self.count_to_the_end(place, tables);
        let measuring = self.slab.get_mut(place).and_then(Session::measuring);
        let Some((rules, _, usage)) = measuring else {
            return;
        };
        let reports = &mut self.usage.reports;
        reports.append(&mut usage.unanswered);
        usage.report_now(rules, None, UsageReportTrigger::TERMR, None, at, reports);
    }

    /// Packets meet a session that measures no more, and all of them are counted.
    fn count_to_the_end(&mut self, place: Place, tables: &mut T) {
        let session = self.slab.get_mut(place);
        let payer = session.as_ref().map_or(PeerId::EMERGENCY, |session| {
            self.ledger.payer(session.peer, place)
        });
        if let Some((rules, handle, usage)) = session.and_then(Session::measuring) {
            usage.count(rules, |pdr| tables.counters(handle, pdr));
            self.ledger.withdraw(payer, handle, tables);
            usage.part(rules, &[], |pdr| tables.parted(pdr));
        }
    }

    /// A session goes elsewhere, with all that its packets have counted here. What is on its way to its SMF, or has its
    /// turn to be, is told again from there.
    pub(crate) fn usage_goes(&mut self, place: Place, tables: &mut T) {
        self.count_to_the_end(place, tables);
        let session = self.slab.get_mut(place);
        if let Some(usage) = session.and_then(|session| session.context.usage_mut()) {
            (usage.queued, usage.under_way) = (false, false);
        }
    }

    /// The SMF of a session has left: the log of usage has the last word.
    pub(crate) fn usage_is_left(&mut self, now: Time, place: Place, tables: &mut T) {
        let session = self.slab.get(place);
        if session.is_none_or(|session| session.context.usage().is_none()) {
            return;
        }
        // The answer to another request may be under construction.
        let answer = std::mem::take(&mut self.usage.reports);
        self.usage_ends(now, place, tables);
        let reports = std::mem::replace(&mut self.usage.reports, answer);
        let seid = self.slab.seid(place);
        if let Some(of) = seid.and_then(|seid| self.subject(seid)) {
            let says_something = reports.iter().filter(|report| report.says_something());
            let records = says_something.map(|report| report.record(&of, false));
            self.usage.records.extend(records);
        }
    }

    /// A session as the log of usage names it.
    pub(crate) fn subject(&self, seid: u64) -> Option<Subject> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        let Session { context, peer, .. } = session;
        let ue = match context.urr_rules() {
            Some(rules) if !rules.urrs.is_empty() => rules.ue.to_vec(),
            // Its URRs are gone, and this is about their last reports.
            _ => ue_nets(&context.kept.pdrs()),
        };
        Some(Subject {
            seid,
            cp_seid: context.cp_seid,
            peer: *peer,
            ue,
        })
    }
}
