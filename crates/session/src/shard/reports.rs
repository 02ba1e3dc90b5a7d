//! Session Report Requests (TS 29.244, 6.3.5 and 7.5.8): what an SMF is told without having asked.
//!
//! [`Shard::report`] is all that those who have something to report need. Retransmission is that of
//! all our requests; here is seen to it that an SMF which does not answer costs the others nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use compiled::Tables;
use pfcp::ie::ReportType;
use pfcp::message::SessionReportResponse;
use pfcp::{Message, MessageType, Writer};

use crate::base::event::{Ignored, Said};
use crate::base::ids::PeerId;
use crate::exchange::n4::Turn;
use crate::exchange::requests::{About, Purpose};
use crate::exchange::stats::Way;
use crate::node::peer::{PeerState, Peers};
use crate::shard::Shard;
use crate::usage::report::USAGE;

/// Reports to one SMF that may be on their way at a time; to a silent one, a single one.
const WINDOW: usize = 256;

/// Reports to one SMF that wait until earlier ones are answered.
const WAITING_MAX: usize = 4096;

#[derive(Debug)]
struct Waiting {
    seid: u64,
    report: ReportType,
    ies: Box<[u8]>,
}

#[derive(Debug, Default)]
struct OfPeer {
    unanswered: usize,
    waiting: VecDeque<Waiting>,
    /// Sessions, by our SEID, whose usage waits for its turn; what it says is worked out when that comes.
    usage: VecDeque<u64>,
    /// The same, so that each is there once: a session may go to another SMF and come back.
    has_usage: BTreeSet<u64>,
}

impl OfPeer {
    fn is_idle(&self) -> bool {
        self.unanswered == 0 && self.waiting.is_empty() && self.usage.is_empty()
    }
}

/// Reports under way and in waiting, by SMF. An SMF that has neither has no place here.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    peers: BTreeMap<PeerId, OfPeer>,
}

impl Reports {
    /// The association is over.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }

    /// We are leaving.
    pub(crate) fn clear(&mut self) {
        self.peers.clear();
    }

    fn sent(&mut self, peer: PeerId) {
        self.peers.entry(peer).or_default().unanswered += 1;
    }

    /// The usage of a session takes its place in the queue.
    pub(crate) fn wait_for_usage(&mut self, peer: PeerId, seid: u64) {
        let of_peer = self.peers.entry(peer).or_default();
        if of_peer.has_usage.insert(seid) {
            of_peer.usage.push_back(seid);
        }
    }

    fn next_usage(&mut self, peer: PeerId) -> Option<u64> {
        let of_peer = self.peers.get_mut(&peer)?;
        let seid = of_peer.usage.pop_front()?;
        of_peer.has_usage.remove(&seid);
        Some(seid)
    }

    fn put_usage_back(&mut self, peer: PeerId, seid: u64) {
        let of_peer = self.peers.entry(peer).or_default();
        if of_peer.has_usage.insert(seid) {
            of_peer.usage.push_front(seid);
        }
    }

    /// Whether nothing is under way nor waits.
    pub(crate) fn is_idle(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_none_or(OfPeer::is_idle)
    }

    /// Sessions whose usage waits.
    pub(crate) fn usage_waiting(&self) -> usize {
        self.peers.values().map(|of_peer| of_peer.usage.len()).sum()
    }

    fn has_waiting(&self, peer: PeerId) -> bool {
        (self.peers.get(&peer)).is_some_and(|of_peer| !of_peer.waiting.is_empty())
    }

    /// Whether one more may be under way.
    fn has_room(&self, peer: PeerId, window: usize) -> bool {
        self.peers
            .get(&peer)
            .is_none_or(|of_peer| of_peer.unanswered < window)
    }

    /// `false`: too many wait already.
    fn wait(&mut self, peer: PeerId, report: Waiting) -> bool {
        let waiting = &mut self.peers.entry(peer).or_default().waiting;
        let room = waiting.len() < WAITING_MAX;
        if room {
            waiting.push_back(report);
        }
        room
    }

    fn next(&mut self, peer: PeerId) -> Option<Waiting> {
        self.peers.get_mut(&peer)?.waiting.pop_front()
    }

    fn put_back(&mut self, peer: PeerId, report: Waiting) {
        (self.peers.entry(peer).or_default().waiting).push_front(report);
    }

    /// One is no longer under way.
    fn done(&mut self, peer: PeerId) {
        let Some(of_peer) = self.peers.get_mut(&peer) else {
            return;
        };
        of_peer.unanswered = of_peer.unanswered.saturating_sub(1);
    }

    fn tidy(&mut self, peer: PeerId) {
        if self.peers.get(&peer).is_some_and(OfPeer::is_idle) {
            self.peers.remove(&peer);
        }
    }
}

impl<T: Tables> Shard<T> {
    /// Tell the SMF of a session about it: `report` and the IEs that `write` adds to it.
    ///
    /// `seid` is ours. `false`: there is no such session, or its SMF has left so many reports
    /// unanswered that this one was not sent and will not be.
    pub(crate) fn report(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        seid: u64,
        report: ReportType,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let Some((peer, _)) = self.sessions.owner(seid) else {
            return false;
        };
        if self.reports.has_waiting(peer) || !self.may_report(turn, peers, peer) {
            let ies = only_ies(write);
            return self.reports.wait(peer, Waiting { seid, report, ies });
        }
        self.send_report(turn, peers, seid, report, write)
    }

    /// Reports leave room for the other requests, but each SMF may have one under way.
    fn may_report(&self, turn: &Turn<'_>, peers: &Peers, peer: PeerId) -> bool {
        let is_up = (peers.get(peer)).is_some_and(|peer| peer.state == PeerState::Up);
        let crowded = turn.n4.is_crowded();
        let window = if is_up && !crowded { WINDOW } else { 1 };
        self.reports.has_room(peer, window)
    }

    pub(crate) fn send_report(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        seid: u64,
        report: ReportType,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let Some((peer, cp_seid)) = self.sessions.owner(seid) else {
            return false;
        };
        let Some(mut to) = peers.get(peer).map(|peer| peer.address) else {
            return false;
        };
        // Another SMF of the set may have taken the session over (5.22).
        if let Some(controller) = self.sessions.controller(seid) {
            to.set_ip(controller);
        }
        let usage = if report.contains(USAGE) {
            self.sessions.usage_is_numbered(seid)
        } else {
            0
        };
        let purpose = Purpose::Report(About {
            peer,
            seid,
            report,
            usage,
        });
        let write = |writer: &mut Writer<'_>| {
            writer.report_type(report);
            write(writer);
        };
        let sent = turn.request(to, purpose, Some(cp_seid), write);
        if sent {
            self.reports.sent(peer);
            turn.stats().downlink_data_reports += u64::from(report.contains(ReportType::DLDR));
        }
        sent
    }

    /// Session Report Response (7.5.9). A refusal changes nothing here: an SMF that does not want
    /// the session any more deletes it.
    pub(crate) fn on_report_answer(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        about: About,
        message: &Message<'_>,
    ) {
        let mut accepted = false;
        match SessionReportResponse::decode(message) {
            Ok(response) => {
                accepted = response.cause.is_accepted();
                turn.stats()
                    .cause(Way::Received, message.header.message_type, response.cause);
                if let (Some(f_seid), true) = (response.cp_f_seid, response.cause.is_accepted()) {
                    self.sessions
                        .set_cp_seid(about.peer, about.seid, f_seid.seid);
                }
                if about.report.contains(ReportType::DLDR) {
                    self.on_paging_answer(turn.now, about.seid, &response);
                }
            }
            Err(_) => {
                let from = peers.get(about.peer).map(|peer| peer.address);
                if let Some(from) = from {
                    turn.ignore(from, Some(Said::from(&message.header)), Ignored::Incomplete);
                }
            }
        }
        if about.report.contains(USAGE) {
            (self.sessions).usage_is_answered(about.seid, about.usage, accepted);
        }
        self.report_is_done(turn, peers, about);
    }

    /// A report stays without an answer.
    pub(crate) fn on_report_unanswered(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        about: About,
    ) {
        self.report_is_lost(turn.now, about.seid, about.report);
        if about.report.contains(USAGE) {
            self.sessions.usage_is_unanswered(about.seid, about.usage);
        }
        self.report_is_done(turn, peers, about);
    }

    /// A report was answered or given up, or its session is gone: the next may go.
    pub(crate) fn report_is_done(&mut self, turn: &mut Turn<'_>, peers: &Peers, about: About) {
        self.reports.done(about.peer);
        self.tell_usage(turn, peers);
        self.send_what_waits(turn, peers, about.peer);
    }

    /// What waits goes, as far as it may: usage after all else, as it waits without loss.
    pub(crate) fn send_what_waits(&mut self, turn: &mut Turn<'_>, peers: &Peers, peer: PeerId) {
        while self.may_report(turn, peers, peer) {
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
                if !self.send_report(turn, peers, next.seid, next.report, write) && !gone {
                    self.reports.put_back(peer, next);
                    break;
                }
            } else if let Some(seid) = self.reports.next_usage(peer) {
                if !self.send_usage_of(turn, peers, peer, seid) {
                    self.reports.put_usage_back(peer, seid);
                    break;
                }
            } else {
                break;
            }
        }
        self.reports.tidy(peer);
        self.may_be_finished(peer);
    }
}

/// What `write` writes, by itself.
fn only_ies(write: impl FnOnce(&mut Writer<'_>)) -> Box<[u8]> {
    let mut bytes = Vec::new();
    let request = MessageType::SESSION_REPORT_REQUEST;
    let mut writer = Writer::new(&mut bytes, request, None, 0);
    let header = writer.len();
    write(&mut writer);
    writer.finish();
    bytes.split_off(header.min(bytes.len())).into()
}
