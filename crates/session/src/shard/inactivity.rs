//! User plane inactivity (TS 29.244, 5.11.3): an SMF is told once when a session has been quiet for
//! as long as it asked.
//!
//! Packets only count themselves. Each watched session is looked at now and then, more often than
//! its timer runs out, and what its counters say then tells whether it was quiet since.

use std::collections::BTreeSet;
use std::time::Duration;

use compiled::Tables;
use pfcp::ie::ReportType;
use serde::{Deserialize, Serialize};

use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::rules::Pdr;
use crate::shard::Shard;
use crate::shard::context::Context;
use crate::shard::sessions::{Session, Sessions};

/// Poll interval of a session: this part of its timer ...
const LOOKS: u32 = 8;
/// ... at least this ...
const LEAST: Duration = Duration::from_secs(1);
/// ... and at most this, so that those of sessions that are gone do not pile up.
const MOST: Duration = Duration::from_secs(30);

/// Sessions looked at before other work may go first.
const LOOKS_PER_STEP: usize = 512;

/// The User Plane Inactivity Timer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    limit_s: u32,
    /// What the counters said.
    packets: u64,
    /// No packet came after this.
    active_by: Time,
    due: Time,
    reported: bool,
}

/// When sessions with such a timer are looked at, by our SEID.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Inactivity {
    due: BTreeSet<(Time, u64)>,
}

impl Inactivity {
    /// The timer of a session, whose packets so far are these, starts; or stops, if it is zero.
    fn watch(
        &mut self,
        now: Time,
        seid: u64,
        before: Option<&Watch>,
        (limit_s, packets): (u32, u64),
    ) -> Option<Watch> {
        self.unindex(seid, before);
        if limit_s == 0 {
            return None;
        }
        let mut watch = Watch {
            limit_s,
            packets,
            active_by: now,
            due: now,
            reported: false,
        };
        watch.due = watch.next(now);
        self.index(seid, Some(&watch));
        Some(watch)
    }

    /// The session has come with this timer.
    pub(crate) fn index(&mut self, seid: u64, watch: Option<&Watch>) {
        self.due.extend(watch.map(|watch| (watch.due, seid)));
    }

    /// The session is gone, or has another timer. Whether the index had what follows from it.
    pub(crate) fn unindex(&mut self, seid: u64, watch: Option<&Watch>) -> bool {
        watch.is_none_or(|watch| self.due.remove(&(watch.due, seid)))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A session to look at.
    fn next_due(&mut self, now: Time) -> Option<u64> {
        let &(due, seid) = self.due.first()?;
        (due <= now).then_some(seid)
    }

    /// Its packets are these now. Whether its SMF is to hear that it is quiet.
    fn look(&mut self, now: Time, seid: u64, watch: &mut Watch, packets: u64) -> bool {
        self.due.remove(&(watch.due, seid));
        if watch.packets != packets {
            (watch.packets, watch.active_by, watch.reported) = (packets, now, false);
        }
        let quiet = now.since(watch.active_by) >= Duration::from_secs(watch.limit_s.into());
        let report = quiet && !watch.reported;
        watch.reported |= report;
        watch.due = watch.next(now);
        self.due.insert((watch.due, seid));
        report
    }
}

impl Watch {
    /// Seconds.
    pub(crate) fn limit_s(&self) -> u32 {
        self.limit_s
    }

    fn next(&self, now: Time) -> Time {
        let limit = Duration::from_secs(self.limit_s.into());
        let look = now.after((limit / LOOKS).clamp(LEAST, MOST));
        let end = self.active_by.after(limit);
        if end > now { look.min(end) } else { look }
    }

    /// Its counters change from one number to the other, because its PDRs do and not for a packet.
    fn carry(&mut self, now: Time, before: u64, after: u64) {
        if self.packets != before {
            (self.active_by, self.reported) = (now, false);
        }
        self.packets = after;
    }
}

impl Context {
    fn watch_mut(&mut self) -> Option<&mut Watch> {
        self.extra.as_mut()?.rare.as_mut()?.watch.as_mut()
    }
}

impl<T: Tables> Sessions<T> {
    /// A timer that is sent starts anew.
    pub(crate) fn watch(&mut self, now: Time, seid: u64, limit_s: Option<u32>, tables: &T) {
        let Some(limit_s) = limit_s else { return };
        let packets = self.packets(seid, tables).unwrap_or(0);
        let inactivity = &mut self.inactivity;
        if let Some(session) = self.slab.find_mut(seid) {
            session.context.change_rare(|rare| {
                let before = rare.watch.as_ref();
                rare.watch = inactivity.watch(now, seid, before, (limit_s, packets));
            });
        }
    }

    pub(crate) fn packets_if_watched(&self, seid: u64, tables: &T) -> Option<u64> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        session.context.rare()?.watch.as_ref()?;
        self.packets(seid, tables)
    }

    /// The counters of a session change, because its PDRs do and not for a packet.
    pub(crate) fn carry(&mut self, now: Time, place: Place, before: u64, after: u64) {
        if let Some(watch) = self
            .slab
            .get_mut(place)
            .and_then(|session| session.context.watch_mut())
        {
            watch.carry(now, before, after);
        }
    }

    /// The counters of a session that has come go on from what they say here.
    pub(crate) fn activity_goes_on(&mut self, seid: u64, tables: &T) {
        let packets = self.packets_if_watched(seid, tables);
        let session = self.slab.find_mut(seid);
        let watch = session.and_then(|session| session.context.watch_mut());
        if let Some((watch, packets)) = watch.zip(packets) {
            watch.packets = packets;
        }
    }

    /// The SMF of a session did not hear that it is quiet.
    fn quiet_is_unreported(&mut self, seid: u64) {
        if let Some(watch) = self
            .slab
            .find_mut(seid)
            .and_then(|session| session.context.watch_mut())
        {
            watch.reported = false;
        }
    }

    /// See what a watched session has done; `packets`: none if its peer has left it, then it is watched no more. Whether its
    /// SMF is to hear that it is quiet.
    fn look_at(&mut self, now: Time, seid: u64, packets: Option<u64>) -> bool {
        let (inactivity, session) = (&mut self.inactivity, self.slab.find_mut(seid));
        let is_watched =
            |s: &&mut Session<T::Handle>| s.context.rare().is_some_and(|rare| rare.watch.is_some());
        let Some(session) = session.filter(is_watched) else {
            inactivity.due.pop_first();
            return false;
        };
        session
            .context
            .change_rare(|rare| match (&mut rare.watch, packets) {
                (Some(watch), Some(packets)) => inactivity.look(now, seid, watch, packets),
                (watch, _) => {
                    inactivity.unindex(seid, watch.take().as_ref());
                    false
                }
            })
    }

    /// All packets that a session met, in either direction, whatever became of them.
    pub(crate) fn packets(&self, seid: u64, tables: &T) -> Option<u64> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        let of_pdr = |pdr: &Pdr| {
            let counters = tables.counters(&session.handle, pdr.id);
            counters.packets.wrapping_add(counters.drops)
        };
        let pdrs = session.context.kept.pdrs();
        let pdrs = pdrs.iter().map(of_pdr);
        let packets = pdrs.fold(0u64, u64::wrapping_add);
        self.is_live(session).then_some(packets)
    }
}

impl<T: Tables> Shard<T> {
    /// Look at the sessions whose time it is.
    pub(super) fn look_for_inactivity(&mut self, now: Time, out: &mut Outputs) {
        for _ in 0..LOOKS_PER_STEP {
            let Some(seid) = self.sessions.inactivity.next_due(now) else {
                return;
            };
            let packets = self.sessions.packets(seid, &self.tables);
            if self.sessions.look_at(now, seid, packets)
                && !self.report(out, seid, ReportType::UPIR, |_| {})
            {
                self.sessions.quiet_is_unreported(seid);
            }
        }
    }

    /// A report stayed without an answer: it is sent anew while it is still true.
    pub(crate) fn report_is_lost(&mut self, now: Time, seid: u64, report: ReportType) {
        if report.contains(ReportType::UPIR) {
            self.sessions.quiet_is_unreported(seid);
        }
        if report.contains(ReportType::DLDR) {
            self.sessions.page_again(now, seid);
        }
    }
}
