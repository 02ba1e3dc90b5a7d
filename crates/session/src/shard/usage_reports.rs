//! Usage told to SMFs, in Session Reports and answers, and to the log of usage.

use compiled::Tables;
use pfcp::{IeType, Writer};

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::between::to_node::Outputs;
use crate::between::to_shard::Concerns;
use crate::shard::Shard;
use crate::usage::report::{ROOM, Report, Subject, USAGE, write_all};

/// Sessions looked at before other work may go first.
const LOOKS_PER_STEP: usize = 512;

impl<T: Tables> Shard<T> {
    /// Packets of a session have reached what [`Tables::arm`] was told, or may have.
    pub(super) fn on_crossed(&mut self, now: Time, out: &mut Outputs, seid: u64) {
        if self.sessions.owner(seid).is_some() {
            self.sessions.usage_crossed(now, seid, &mut self.tables);
            self.tell_usage(now, out);
        }
    }

    /// Sessions with usage that waits to be reported, of all SMFs.
    pub(crate) fn usage_waiting(&self) -> usize {
        self.reports.usage_waiting()
    }

    /// Look at the sessions whose time it is.
    pub(super) fn keep_usage(&mut self, now: Time, out: &mut Outputs) {
        for _ in 0..LOOKS_PER_STEP {
            let Some(seid) = self.sessions.usage.next_due(now) else {
                break;
            };
            match self.sessions.place_if_live(seid) {
                Some(place) => self.sessions.usage_step(now, place, seid, &mut self.tables),
                None => self.sessions.usage.drop_due(),
            }
        }
        self.tell_usage(now, out);
    }

    /// Sessions with something to report take places in the queues of their SMFs, which move on.
    pub(super) fn tell_usage(&mut self, now: Time, out: &mut Outputs) {
        let mut ready = std::mem::take(&mut self.sessions.usage.ready);
        for seid in ready.drain(..) {
            let Some((peer, _)) = self.sessions.owner(seid) else {
                continue;
            };
            self.reports.wait_for_usage(peer, seid);
            if !self.finishing.closing || self.finishing.contains(peer) {
                self.send_what_waits(now, out, peer);
            }
        }
        if self.sessions.usage.ready.is_empty() {
            self.sessions.usage.ready = ready;
        }
    }

    /// The usage of one session goes to its SMF. `false`: not now.
    pub(super) fn send_usage_of(
        &mut self,
        now: Time,
        out: &mut Outputs,
        peer: PeerId,
        seid: u64,
    ) -> bool {
        match self.sessions.owner(seid) {
            Some((owner, _)) if owner == peer => {}
            // It has gone, or gone over to another SMF, where it has a place of its own.
            _ => return true,
        }
        // It may be another session than what led here was about.
        let held = (&mut self.sessions, &mut self.tables);
        self.lending.take_back(now, held, out, Concerns::One(seid));
        let reports = (self.sessions).usage_to_report(now, seid, &mut self.tables);
        self.lending
            .give_back(&mut self.tables, Concerns::One(seid));
        let Some(reports) = reports else {
            return true;
        };
        let group = IeType::USAGE_REPORT_IN_SESSION_REPORT_REQUEST;
        let write = |writer: &mut Writer<'_>| write_all(&reports, writer, group);
        let sent = self.send_report(out, seid, USAGE, (reports.len(), write));
        self.sessions.usage_is_sent(seid, reports, sent);
        sent
    }

    /// Reports that go with the answer to the present request, logged as told. What it has no room for is in the log
    /// alone, as not told. gone: the session, if it is not there any more.
    pub(super) fn usage_in_answer(&mut self, seid: u64, gone: Option<Subject>) -> Vec<Report> {
        let mut reports = std::mem::take(&mut self.sessions.usage.reports);
        let mut octets = 0;
        let fits = |report: &&Report| {
            octets += report.octets();
            octets <= ROOM
        };
        let told = reports.iter().take_while(fits).count();
        let of = || gone.or_else(|| self.sessions.subject(seid));
        if let Some(of) = (!reports.is_empty()).then(of).flatten() {
            let records = reports.iter().enumerate();
            let records = records.filter(|(at, report)| *at < told || report.says_something());
            let records = records.map(|(at, report)| report.record(&of, at < told));
            self.sessions.usage.records.extend(records);
        }
        reports.truncate(told);
        reports
    }
}
