//! User plane inactivity (TS 29.244, 5.11.3): an SMF is told once when a session has been quiet for
//! as long as it asked.
//!
//! Packets only count themselves. Each watched session is looked at now and then, more often than
//! its timer runs out, and what its counters say then tells whether it was quiet since.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use pfcp::ie::ReportType;

use crate::base::salted::Salted;
use crate::base::time::Time;
use crate::compiled::Tables;
use crate::exchange::n4::Turn;
use crate::node::peer::Peers;
use crate::rules::Pdr;
use crate::slice::Slice;
use crate::slice::sessions::Sessions;

/// Poll interval of a session: this part of its timer ...
const LOOKS: u32 = 8;
/// ... at least this ...
const LEAST: Duration = Duration::from_secs(1);
/// ... and at most this, so that those of sessions that are gone do not pile up.
const MOST: Duration = Duration::from_secs(30);

/// Sessions looked at before other work may go first.
const LOOKS_PER_STEP: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Watch {
    limit_s: u32,
    /// What the counters said.
    packets: u64,
    /// No packet came after this.
    active_by: Time,
    due: Time,
    reported: bool,
}

/// Sessions with a User Plane Inactivity Timer, by our SEID.
#[derive(Debug)]
pub(crate) struct Inactivity {
    watched: HashMap<u64, Watch, Salted>,
    due: BTreeSet<(Time, u64)>,
}

impl Inactivity {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            watched: HashMap::with_hasher(Salted::new(seed)),
            due: BTreeSet::new(),
        }
    }

    /// Start the timer of a session, whose packets so far are these; or stop it, if it is zero.
    pub(crate) fn watch(&mut self, now: Time, seid: u64, limit_s: u32, packets: u64) {
        self.forget(seid);
        if limit_s == 0 {
            return;
        }
        let mut watch = Watch {
            limit_s,
            packets,
            active_by: now,
            due: now,
            reported: false,
        };
        watch.due = watch.next(now);
        self.due.insert((watch.due, seid));
        self.watched.insert(seid, watch);
    }

    pub(crate) fn forget(&mut self, seid: u64) {
        if let Some(watch) = self.watched.remove(&seid) {
            self.due.remove(&(watch.due, seid));
        }
    }

    /// Its counters change from one number to the other, because its PDRs do and not for a packet.
    pub(crate) fn carry(&mut self, now: Time, seid: u64, before: u64, after: u64) {
        let Some(watch) = self.watched.get_mut(&seid) else {
            return;
        };
        if watch.packets != before {
            (watch.active_by, watch.reported) = (now, false);
        }
        watch.packets = after;
    }

    /// The timer of a session, in seconds.
    pub(crate) fn limit_s(&self, seid: u64) -> Option<u32> {
        self.watched.get(&seid).map(|watch| watch.limit_s)
    }

    /// Its SMF did not hear of it.
    fn unreported(&mut self, seid: u64) {
        if let Some(watch) = self.watched.get_mut(&seid) {
            watch.reported = false;
        }
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
    fn look(&mut self, now: Time, seid: u64, packets: u64) -> bool {
        let Some(watch) = self.watched.get_mut(&seid) else {
            return false;
        };
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
    fn next(&self, now: Time) -> Time {
        let limit = Duration::from_secs(self.limit_s.into());
        let look = now.after((limit / LOOKS).clamp(LEAST, MOST));
        let end = self.active_by.after(limit);
        if end > now { look.min(end) } else { look }
    }
}

impl<T: Tables> Sessions<T> {
    /// A timer that is sent starts anew.
    pub(crate) fn watch(&mut self, now: Time, seid: u64, limit_s: Option<u32>, tables: &T) {
        if let Some(limit_s) = limit_s {
            let packets = self.packets(seid, tables).unwrap_or(0);
            self.inactivity.watch(now, seid, limit_s, packets);
        }
    }

    pub(crate) fn packets_if_watched(&self, seid: u64, tables: &T) -> Option<u64> {
        self.inactivity.limit_s(seid)?;
        self.packets(seid, tables)
    }

    /// All packets that a session met, in either direction, whatever became of them.
    pub(crate) fn packets(&self, seid: u64, tables: &T) -> Option<u64> {
        let session = self.slab.get(self.slab.find(seid)?)?;
        let of_pdr = |pdr: &Pdr| {
            let counters = tables.counters(&session.handle, pdr.id);
            counters.packets.wrapping_add(counters.drops)
        };
        let pdrs = session.rules.view().pdrs.iter().map(of_pdr);
        let packets = pdrs.fold(0u64, u64::wrapping_add);
        self.is_live(session).then_some(packets)
    }
}

impl<T: Tables> Slice<T> {
    /// Look at the sessions whose time it is.
    pub(crate) fn look_for_inactivity(&mut self, turn: &mut Turn<'_>, peers: &Peers) {
        for _ in 0..LOOKS_PER_STEP {
            let Some(seid) = self.sessions.inactivity.next_due(turn.now) else {
                return;
            };
            let Some(packets) = self.sessions.packets(seid, &self.tables) else {
                self.sessions.inactivity.forget(seid);
                continue;
            };
            if self.sessions.inactivity.look(turn.now, seid, packets)
                && !self.report(turn, peers, seid, ReportType::UPIR, |_| {})
            {
                self.sessions.inactivity.unreported(seid);
            }
        }
    }

    /// A report stayed without an answer: it is sent anew while it is still true.
    pub(crate) fn report_is_lost(&mut self, now: Time, seid: u64, report: ReportType) {
        if report.contains(ReportType::UPIR) {
            self.sessions.inactivity.unreported(seid);
        }
        if report.contains(ReportType::DLDR) {
            self.sessions.paging.unreported(now, seid);
        }
    }
}
