//! Session Report Requests (TS 29.244, 6.3.5 and 7.5.8): what an SMF is told without having asked.
//!
//! [`Shard::report`] is all that those who have something to report need. Retransmission is that of
//! all our requests; here is seen to it that an SMF which does not answer costs the others nothing.

use compiled::Tables;
use pfcp::Writer;
use pfcp::ie::ReportType;
use pfcp::message::SessionReportResponse;

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::between::to_node::{Outputs, Report, ToNode};
use crate::exchange::requests::{About, reports_max};
use crate::shard::Shard;
use crate::shard::index::reports::Waiting;
use crate::usage::report::USAGE;

/// Reports to one SMF that may be on their way at a time; to a silent one, a single one.
const WINDOW: usize = 256;

impl<T: Tables> Shard<T> {
    /// Tell the SMF of a session about it: `report` and the IEs that `write` adds to it.
    ///
    /// `seid` is ours. `false`: there is no such session, or its SMF has left so many reports
    /// unanswered that this one was not sent and will not be.
    pub(crate) fn report(
        &mut self,
        out: &mut Outputs,
        seid: u64,
        report: ReportType,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let Some((peer, _)) = self.sessions.owner(seid) else {
            return false;
        };
        if self.reports.has_waiting(peer) || !self.may_report(peer) {
            let ies = only_ies(write);
            return self.reports.wait(peer, Waiting { seid, report, ies });
        }
        self.send_report(out, seid, report, (0, write))
    }

    /// One SMF that is slow does not take the room of the others, each of which may have a report under way.
    fn may_report(&mut self, peer: PeerId) -> bool {
        let most = reports_max(&self.config);
        if self.reports.under_way >= most {
            self.reports.is_stalled = true;
            return false;
        }
        let is_up = (self.smfs.get(&peer)).is_some_and(|smf| smf.silent_since.is_none());
        let is_crowded = self.reports.under_way >= most / 3 * 2;
        let window = if is_up && !is_crowded { WINDOW } else { 1 };
        self.reports.has_room(peer, window)
    }

    /// There is room again: what waits for SMFs with nothing under way may go.
    pub(super) fn wake_reports(&mut self, now: Time, out: &mut Outputs) {
        if !self.reports.is_stalled || self.reports.under_way >= reports_max(&self.config) {
            return;
        }
        self.reports.is_stalled = false;
        for peer in self.reports.stalled() {
            self.send_what_waits(now, out, peer);
        }
    }

    /// `usage_reports`: so many are in it. `false`: the session is gone.
    pub(super) fn send_report(
        &mut self,
        out: &mut Outputs,
        seid: u64,
        report: ReportType,
        (usage_reports, write): (usize, impl FnOnce(&mut Writer<'_>)),
    ) -> bool {
        let owner = self.sessions.owner(seid);
        let Some((peer, cp_seid)) = owner.filter(|(peer, _)| self.smfs.contains_key(peer)) else {
            return false;
        };
        let usage = if report.contains(USAGE) {
            self.sessions.usage_is_numbered(seid)
        } else {
            0
        };
        let ies = out.ies(write);
        out.say(ToNode::Report(Report {
            about: About {
                peer,
                seid,
                report,
                usage,
            },
            cp_seid,
            controller: self.sessions.controller(seid),
            ies,
            usage_reports: usage_reports as u32,
        }));
        self.reports.sent(peer);
        true
    }

    /// Session Report Response (7.5.9); `None`: it cannot be read. A refusal changes nothing here: an SMF that does not want
    /// the session any more deletes it.
    pub(super) fn on_report_answer(
        &mut self,
        now: Time,
        out: &mut Outputs,
        about: About,
        response: Option<&SessionReportResponse<'_>>,
    ) {
        let accepted = response.is_some_and(|response| response.cause.is_accepted());
        if let Some(response) = response {
            if let (Some(f_seid), true) = (response.cp_f_seid, accepted) {
                self.sessions.hold(about.seid, &mut self.tables);
                self.sessions
                    .set_cp_seid(about.peer, about.seid, f_seid.seid);
            }
            if about.report.contains(ReportType::DLDR) {
                self.on_paging_answer(now, about.seid, response);
            }
        }
        if about.report.contains(USAGE) {
            (self.sessions).usage_is_answered(about.seid, about.usage, accepted);
        }
        self.report_is_done(now, out, about);
    }

    /// A report stays without an answer.
    pub(super) fn on_report_unanswered(&mut self, now: Time, out: &mut Outputs, about: About) {
        self.report_is_lost(now, about.seid, about.report);
        if about.report.contains(USAGE) {
            self.sessions.usage_is_unanswered(about.seid, about.usage);
        }
        self.report_is_done(now, out, about);
    }

    /// The answer to a report is late: it is sent again while its session is there.
    pub(super) fn on_late_report(
        &mut self,
        now: Time,
        out: &mut Outputs,
        (about, sequence): (About, u32),
    ) {
        if self.sessions.owner(about.seid).is_some() {
            return out.say(ToNode::Again(sequence));
        }
        out.say(ToNode::Moot(sequence));
        self.on_report_unanswered(now, out, about);
    }

    /// A report was answered or given up, or its session is gone: the next may go.
    fn report_is_done(&mut self, now: Time, out: &mut Outputs, about: About) {
        self.reports.done(about.peer);
        self.tell_usage(now, out);
        self.send_what_waits(now, out, about.peer);
        self.wake_reports(now, out);
    }

    /// Sends reports that wait, as far as it may: usage after all else, as it waits without loss.
    pub(super) fn send_what_waits(&mut self, now: Time, out: &mut Outputs, peer: PeerId) {
        while self.may_report(peer) {
            if let Some(mut next) = self.reports.next(peer) {
                let gone = self.sessions.owner(next.seid).is_none();
                if next.report.contains(ReportType::DLDR) {
                    let told = self.sessions.still_to_tell(next.seid, &self.tables);
                    if told.is_empty() {
                        continue;
                    }
                    next.ies = only_ies(|writer| writer.downlink_data_report(&told));
                }
                let write = |writer: &mut Writer<'_>| writer.ies(&next.ies);
                if !self.send_report(out, next.seid, next.report, (0, write)) && !gone {
                    self.reports.put_back(peer, next);
                    break;
                }
            } else if let Some(seid) = self.reports.next_usage(peer) {
                if !self.send_usage_of(now, out, peer, seid) {
                    self.reports.put_usage_back(peer, seid);
                    break;
                }
            } else {
                break;
            }
        }
        self.reports.tidy(peer);
        self.may_be_finished(out, peer);
    }
}

/// IEs that `write` writes, without a message around them.
fn only_ies(write: impl FnOnce(&mut Writer<'_>)) -> Box<[u8]> {
    let mut octets = Vec::new();
    Writer::ies_alone(&mut octets, write);
    octets.into()
}
