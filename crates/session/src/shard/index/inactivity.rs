//! User plane inactivity (TS 29.244, 5.11.3): an SMF is told once when a session has been quiet for
//! as long as it asked.
//!
//! Packets only count themselves. Each watched session is looked at now and then, more often than
//! its timer runs out, and what its counters say then tells whether it was quiet since.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::time::Time;

/// Poll interval of a session: this part of its timer ...
const LOOKS: u32 = 8;
/// ... at least this ...
const LEAST: Duration = Duration::from_secs(1);
/// ... and at most this, so that those of sessions that are gone do not pile up.
const MOST: Duration = Duration::from_secs(30);

/// The User Plane Inactivity Timer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    limit_s: u32,
    /// Count of packets at the last look.
    pub(crate) packets: u64,
    /// No packet came after this.
    pub(crate) active_by: Time,
    pub(crate) due: Time,
    pub(crate) reported: bool,
}

/// When sessions with such a timer are looked at, by our SEID.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Inactivity {
    pub(crate) due: BTreeSet<(Time, u64)>,
}

impl Inactivity {
    /// The timer of a session, whose packets so far are these, starts; or stops, if it is zero.
    pub(crate) fn watch(
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
    pub(crate) fn next_due(&mut self, now: Time) -> Option<u64> {
        let &(due, seid) = self.due.first()?;
        (due <= now).then_some(seid)
    }

    /// Its packets are these now. Whether its SMF is to hear that it is quiet.
    pub(crate) fn look(&mut self, now: Time, seid: u64, watch: &mut Watch, packets: u64) -> bool {
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

    pub(crate) fn next(&self, now: Time) -> Time {
        let limit = Duration::from_secs(self.limit_s.into());
        let look = now.after((limit / LOOKS).clamp(LEAST, MOST));
        let end = self.active_by.after(limit);
        if end > now { look.min(end) } else { look }
    }

    /// Its counters change from one number to the other, because its PDRs do and not for a packet.
    pub(crate) fn carry(&mut self, now: Time, before: u64, after: u64) {
        if self.packets != before {
            (self.active_by, self.reported) = (now, false);
        }
        self.packets = after;
    }
}
