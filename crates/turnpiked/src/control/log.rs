//! Events of the core as lines of the log: as many as their cause may have (`budget`), the rest as counts.
//!
//! One thing has one name in all of them, by which the journal is asked: `smf` (Node ID), `address` (of a sender on N4), `seid` (ours), `cp_seid`
//! (the SMF's), `cause`, `gtpu_peer`, `sessions` (how many).

mod budget;

use std::fmt::Write;
use std::net::SocketAddr;

use session::Time;
use session::event::{Event, Gone, Ignored, Said};
use session::node_id::NodeId;

use crate::logging;
use crate::text::seid_text;
use budget::{Budget, Source, Summary};

/// Belongs to the control thread.
#[derive(Debug)]
pub(crate) struct Log {
    budget: Budget,
}

impl Log {
    /// `configured`: SMFs that the configuration names.
    pub(crate) fn new(configured: &[SocketAddr]) -> Self {
        let configured = configured.iter().map(|smf| smf.ip().to_canonical());
        Self {
            budget: Budget::new(configured.collect()),
        }
    }

    /// As in [`Self::new`].
    pub(crate) fn configure(&mut self, configured: &[SocketAddr]) {
        let configured = configured.iter().map(|smf| smf.ip().to_canonical());
        self.budget.configure(configured.collect());
    }

    pub(crate) fn event(&mut self, now: Time, event: &Event) {
        if let Event::PeerUp {
            node_id, address, ..
        } = event
        {
            let address = address.ip().to_canonical();
            self.budget.associated(now, node_id, address);
        }
        let once = match event {
            Event::PeerRestarted { node_id, .. } => Some(node_id),
            _ => None,
        };
        let (source, kind) = (source(event), kind(event));
        if self.budget.may_write(now, source, kind, once) {
            write(event, self.smf_of(event).as_ref());
        } else {
            logging::counts().suppress();
        }
        if let Event::PeerGone { node_id, .. } = event {
            self.budget.released(node_id);
        }
    }

    /// When counts are to be told, if there are some.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.budget.next_deadline()
    }

    pub(crate) fn advance(&mut self, now: Time) {
        let summaries = self.budget.advance(now);
        summaries.iter().for_each(|one| self.tell(one));
    }

    /// No event comes any more.
    pub(crate) fn end(&mut self, now: Time) {
        let summaries = self.budget.end_window(now);
        summaries.iter().for_each(|one| self.tell(one));
    }

    /// The SMF that a message came from, where its address is no other one's.
    fn smf_of(&self, event: &Event) -> Option<NodeId> {
        let (Event::Refused { from, .. }
        | Event::Ignored { from, .. }
        | Event::SetDeleted { from, .. }
        | Event::SetupFailed { address: from, .. }) = event
        else {
            return None;
        };
        self.budget.smf_at(from.ip().to_canonical()).cloned()
    }

    fn tell(&self, summary: &Summary) {
        let address = match summary.of {
            Some(Source::Sender(address)) => Some(address),
            _ => None,
        };
        tell(
            summary,
            address.and_then(|address| self.budget.smf_at(address)),
        );
    }
}

fn tell(summary: &Summary, smf: Option<&NodeId>) {
    let left_out: u64 = summary.counts.values().sum();
    let smf = smf.map(tracing::field::display);
    let mut lines = String::new();
    for (kind, count) in &summary.counts {
        let comma = if lines.is_empty() { "" } else { ", " };
        // Never fails.
        let _ = write!(lines, "{comma}{kind}: {count}");
    }
    match summary.of {
        Some(Source::Sender(address)) => {
            tracing::warn!(smf, %address, left_out, %lines, "this sender on N4 caused too many lines; those were not written");
        }
        Some(Source::DataNetwork) => {
            tracing::warn!(left_out, %lines, "PFCP by interfaces of the data network caused too many lines; those were not written");
        }
        Some(Source::Gtpu) => {
            tracing::warn!(left_out, %lines, "GTP-U peers caused too many lines; those were not written");
        }
        Some(Source::Node) => {
            tracing::warn!(left_out, %lines, "too many lines; those were not written")
        }
        None => {
            let last = summary.last;
            let last = last.map(tracing::field::display);
            tracing::warn!(address = last, left_out, %lines, "strangers on N4 caused too many lines; those were not written");
        }
    }
}

fn source(event: &Event) -> Source {
    match event {
        // Its sender may be anybody: an SMF has its lines for itself.
        Event::Ignored {
            why: Ignored::NotN4,
            ..
        } => Source::DataNetwork,
        Event::PeerUp { address, .. }
        | Event::PeerGone { address, .. }
        | Event::PeerSilent { address, .. }
        | Event::PeerBack { address, .. }
        | Event::PeerRestarted { address, .. }
        | Event::StaleRecovery { address, .. }
        | Event::SessionDisplaced { address, .. }
        | Event::SetupFailed { address, .. }
        | Event::SetDeleted { from: address, .. }
        | Event::Refused { from: address, .. }
        | Event::Ignored { from: address, .. } => Source::Sender(address.ip().to_canonical()),
        Event::PathFailed { .. }
        | Event::PathRecovered { .. }
        | Event::GtpuPeerRestarted { .. } => Source::Gtpu,
        Event::SessionsDeleted { .. } | Event::PfdsWithoutRoom { .. } => Source::Node,
    }
}

/// Name under which lines that were not written are counted.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::PeerUp { .. } => "associated",
        Event::PeerGone { .. } => "gone",
        Event::PeerSilent { .. } => "silent",
        Event::PeerBack { .. } => "answers again",
        Event::PeerRestarted { .. } => "restarted",
        Event::SetupFailed { .. } => "association failed",
        Event::SessionDisplaced { .. } => "session displaced",
        Event::SetDeleted { .. } => "set of sessions deleted",
        Event::Refused { .. } => "request refused",
        Event::Ignored { why, .. } => why.name(),
        Event::StaleRecovery { .. } => Ignored::StaleRecovery.name(),
        Event::PathFailed { .. } => "path failed",
        Event::PathRecovered { .. } => "path recovered",
        Event::GtpuPeerRestarted { .. } => "GTP-U peer restarted",
        Event::SessionsDeleted { .. } => "sessions deleted",
        Event::PfdsWithoutRoom { .. } => "applications without room",
    }
}

/// smf: of the sender, where the event does not say it.
fn write(event: &Event, smf: Option<&NodeId>) {
    let smf = smf.map(tracing::field::display);
    match event {
        Event::PeerUp {
            node_id,
            address,
            by_us,
            retained,
        } => {
            tracing::info!(smf = %node_id, %address, by_us, retained, "SMF associated");
        }
        Event::PeerGone {
            node_id,
            address,
            why,
            sessions,
        } => match why {
            Gone::Silent => {
                tracing::warn!(smf = %node_id, %address, sessions, "SMF given up: silent for too long");
            }
            Gone::Displaced => {
                tracing::warn!(smf = %node_id, %address, "silent SMF without sessions made room for another");
            }
            Gone::Released => {
                tracing::info!(smf = %node_id, %address, sessions, "SMF released its association");
            }
            Gone::Replaced => {
                tracing::info!(smf = %node_id, %address, sessions, "SMF associates anew")
            }
            Gone::ShutDown => {
                tracing::warn!(smf = %node_id, %address, sessions, "SMF did not release its association in time");
            }
        },
        Event::PeerSilent {
            node_id,
            address,
            sessions,
        } => {
            tracing::warn!(smf = %node_id, %address, sessions, "SMF does not answer; its sessions keep forwarding");
        }
        Event::PeerBack { node_id, address } => {
            tracing::info!(smf = %node_id, %address, "SMF answers again");
        }
        Event::PeerRestarted {
            node_id,
            address,
            sessions,
        } => {
            tracing::warn!(smf = %node_id, %address, sessions, "SMF has restarted; its sessions are deleted");
        }
        Event::SessionsDeleted { sessions } => {
            tracing::info!(sessions, "sessions without an SMF deleted");
        }
        Event::PfdsWithoutRoom { sessions } => {
            tracing::warn!(
                sessions,
                "an application has more flows than these sessions have room for; they keep the former ones"
            );
        }
        Event::SessionDisplaced {
            node_id,
            address,
            seid,
            cp_seid,
            table,
        } => {
            let (seid, cp_seid) = (seid_text(*seid), seid_text(*cp_seid));
            tracing::warn!(smf = %node_id, %address, %seid, %cp_seid, table, "session of an SMF that does not answer deleted: another one needs the room");
        }
        Event::PathFailed { remote } => {
            tracing::warn!(gtpu_peer = %remote, "GTP-U peer answers Echo Requests no more; SMFs are told");
        }
        Event::PathRecovered { remote } => {
            tracing::info!(gtpu_peer = %remote, "GTP-U peer answers again")
        }
        Event::GtpuPeerRestarted { remote } => {
            tracing::warn!(gtpu_peer = %remote, "GTP-U peer has restarted; SMFs are told");
        }
        Event::SetDeleted { from, sessions } => {
            tracing::info!(smf, address = %from, sessions, "SMF deleted a set of sessions");
        }
        Event::SetupFailed {
            address,
            cause: Some(cause),
        } => {
            tracing::warn!(smf, %address, %cause, "SMF refuses the association; trying again later");
        }
        Event::SetupFailed {
            address,
            cause: None,
        } => {
            tracing::warn!(smf, %address, "SMF does not answer; trying again later");
        }
        Event::Refused {
            from,
            request,
            cause,
            offending_ie,
            failed_rule,
            cp_seid,
            shortage,
            unknown,
        } => {
            let offending_ie = offending_ie.map(|ie| ie.to_string());
            let failed_rule = failed_rule.map(|rule| rule.to_string());
            let Said {
                message, sequence, ..
            } = request;
            let no_room = shortage.map(|shortage| shortage.to_string());
            let unknown = unknown.map(|unknown| unknown.to_string());
            let (seid, cp_seid) = (seid(request), named(*cp_seid));
            let seid = seid.map(tracing::field::display);
            let cp_seid = cp_seid.map(tracing::field::display);
            tracing::warn!(smf, address = %from, request = %message, sequence, seid, cp_seid, %cause, failed_rule, offending_ie, no_room, unknown, "request refused");
        }
        Event::Ignored {
            from,
            message: said,
            why,
        } => {
            let message_type = said.map(|said| tracing::field::display(said.message));
            let sequence = said.map(|said| said.sequence);
            let (seid, why) = (said.as_ref().and_then(seid), why.name());
            let seid = seid.map(tracing::field::display);
            tracing::warn!(smf, address = %from, message_type, sequence, seid, why, "message ignored");
        }
        Event::StaleRecovery {
            node_id,
            address,
            recovery,
            known,
        } => {
            tracing::warn!(
                smf = %node_id, %address, recovery, known,
                "an older Recovery Time Stamp than before: ignored unless it comes again"
            );
        }
    }
}

/// Of whose session a message was, as REST names it.
fn seid(said: &Said) -> Option<String> {
    said.seid.and_then(named)
}

fn named(seid: u64) -> Option<String> {
    (seid != 0).then(|| seid_text(seid))
}
