//! Sessions as the node hears of them: requests admitted, answers and reports sent, counts.

use pfcp::ie::{CpFunctionFeatures, PfcpSrReqFlags, ReportType};
use pfcp::message::{SessionEstablishmentRequest, SessionReportResponse};
use pfcp::{Cause, IeType, Message, MessageType};

use crate::base::event::Event;
use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::base::time::Time;
use crate::between::to_node::{Answer, Displaced, Outputs, Report, ToNode};
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::Node;
use crate::node::untold::{LostSession, TELLING_MAX, UNDER_WAY_MAX, Untold};
use crate::usage::report::UsageRecord;

impl Node {
    /// The SMF that asks for a session, if it is associated and may have one now. Else it is told so.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        request: &SessionEstablishmentRequest<'_>,
    ) -> Option<PeerId> {
        let to = (incoming, request.cp_f_seid.seid);
        let node_id = NodeId::from_wire(&request.node_id);
        let peer = self.peers.whose_session(&node_id, incoming.from);
        let Some(peer) = peer.filter(|id| self.is_ready(*id)) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            self.refuse_of(now, out, to, cause.into());
            return None;
        };
        self.spoke(now, peer, incoming.from);
        if self.closing {
            self.refuse_of(now, out, to, Cause::REQUEST_REJECTED.into());
            return None;
        }
        if self.load.is_full {
            self.refuse_of(now, out, to, Cause::NO_RESOURCES_AVAILABLE.into());
            return None;
        }
        if self.wants_overload_control(peer) && self.load.sheds(incoming.priority) {
            self.shed(now, out, to, peer);
            return None;
        }
        self.has_again(now, out, peer, request.cp_f_seid.seid);
        Some(peer)
    }

    /// There is more to do than can be done (TS 29.244, 6.2.4.4.2). Not a complaint: the SMF is not at fault.
    fn shed(&mut self, now: Time, out: &mut Outbox, to: (&Incoming, u64), peer: PeerId) {
        self.n4.stats_mut().shed += 1;
        let (notice, scope) = (self.notice(peer), self.scope(to.0));
        let to = (to.0, to.1, 0);
        let cause = Cause::PFCP_ENTITY_IN_CONGESTION;
        self.n4.answer(now, out, scope, to, cause, |writer, us| {
            writer.node_id(us.to_wire());
            writer.cause(cause);
            notice.write(writer);
        });
    }

    /// All that shards have said.
    pub(crate) fn hear(&mut self, now: Time, out: &mut Outbox, outputs: &mut Outputs) {
        let Outputs {
            said,
            usage,
            octets,
        } = outputs;
        self.log_usage(out, usage);
        for what in said.drain(..) {
            self.hear_one(now, out, what, octets);
        }
        octets.clear();
    }

    fn hear_one(&mut self, now: Time, out: &mut Outbox, what: ToNode, octets: &[u8]) {
        match what {
            ToNode::Spoke(peer, from) => self.spoke(now, peer, from),
            ToNode::Accept(answer) => self.accept(now, out, &answer, octets),
            ToNode::Served(answer) => self.served(now, out, &answer),
            ToNode::Refuse(what) => {
                let (incoming, cp_seid, refusal) = *what;
                self.refuse_of(now, out, (&incoming, cp_seid), refusal);
            }
            ToNode::Undecodable(what) => {
                let (incoming, cp_seid, error) = *what;
                self.refuse_undecodable_of(now, out, (&incoming, cp_seid), &error);
            }
            ToNode::Report(report) => self.send_report(now, out, &report, octets),
            ToNode::Again(sequence) => self.n4.send_again(out, sequence),
            ToNode::Moot(sequence) => self.n4.drop_request(sequence),
            ToNode::Sessions(peer, sessions) => {
                if let Some(peer) = self.peers.get_mut(peer) {
                    peer.sessions = sessions;
                }
            }
            ToNode::Names(peer, application, true) => {
                self.names.insert((peer, application));
            }
            ToNode::Names(peer, application, false) => {
                self.names.remove(&(peer, application));
            }
            ToNode::Finished(peer) => self.on_finished(now, out, peer),
            ToNode::Sweeping => self.sweep.is_on = true,
            ToNode::Deleted(sessions) => {
                self.sweep.deleted += sessions;
                self.n4.stats_mut().swept += sessions as u64;
            }
            ToNode::Swept(last) => self.on_swept(now, out, last),
            ToNode::Displaced(displaced) => self.on_displaced(out, &displaced),
            ToNode::PfdsWithoutRoom(sessions) => {
                self.n4.stats_mut().pfds_without_room += sessions as u64;
                out.event(Event::PfdsWithoutRoom { sessions });
            }
            ToNode::Event(event) => out.event(*event),
            ToNode::Paths(in_use) => self.on_paths(now, in_use),
        }
    }

    fn accept(&mut self, now: Time, out: &mut Outbox, answer: &Answer, octets: &[u8]) {
        let (owner, from) = (answer.owner, answer.to.from);
        if answer.by_owner {
            self.spoke(now, owner, from);
        }
        if let Some(peer) = self.peers.get_mut(owner) {
            peer.sessions = answer.sessions;
        }
        let notice = self.notice(owner);
        let scope = match answer.by_owner {
            true => Some(owner),
            false => self.scope(&answer.to),
        };
        let request = answer.to.message_type;
        let stats = self.n4.stats_mut();
        stats.usage_reports += u64::from(answer.usage_reports);
        match request {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => stats.established += 1,
            MessageType::SESSION_MODIFICATION_REQUEST => stats.modified += 1,
            _ => stats.deleted += 1,
        }
        let to = (&answer.to, answer.cp_seid, answer.seid);
        let cause = Cause::REQUEST_ACCEPTED;
        self.n4.answer(now, out, scope, to, cause, |writer, us| {
            if request == MessageType::SESSION_ESTABLISHMENT_REQUEST {
                writer.node_id(us.to_wire());
            }
            writer.cause(cause);
            writer.ies(answer.front.of(octets));
            notice.write(writer);
            writer.ies(answer.back.of(octets));
        });
    }

    /// A request was carried out and answered elsewhere. It is answered likewise when it comes again.
    fn served(&mut self, now: Time, out: &mut Outbox, answer: &Answer) {
        let Some(peer) = self.peers.get_mut(answer.owner) else {
            return;
        };
        peer.sessions = answer.sessions;
        self.spoke(now, answer.owner, answer.to.from);
        let stats = self.n4.stats_mut();
        stats.message(Way::Received, answer.to.message_type);
        stats.served += 1;
        stats.modified += 1;
        let (cause, scope) = (Cause::REQUEST_ACCEPTED, Some(answer.owner));
        let (to, place) = ((&answer.to, answer.cp_seid, answer.seid), out.len());
        self.n4.answer(now, out, scope, to, cause, |writer, _| {
            writer.cause(cause);
        });
        out.take_back(place);
    }

    fn send_report(&mut self, now: Time, out: &mut Outbox, report: &Report, octets: &[u8]) {
        let about = report.about;
        let Some(mut to) = self.peers.get(about.peer).map(|peer| peer.address) else {
            return;
        };
        // Another SMF of the set may have taken the session over (5.22).
        if let Some(controller) = report.controller {
            to.set_ip(controller);
        }
        let (to, purpose) = ((to, Some(report.cp_seid)), Purpose::Report(about));
        self.n4.request(now, out, to, purpose, |writer| {
            writer.report_type(about.report);
            writer.ies(report.ies.of(octets));
        });
        let stats = self.n4.stats_mut();
        stats.usage_reports += u64::from(report.usage_reports);
        stats.downlink_data_reports += u64::from(about.report.contains(ReportType::DLDR));
        stats.error_reports += u64::from(about.report.contains(ReportType::ERIR));
    }

    /// No session of a peer that is gone is left, of those up to this one.
    fn on_swept(&mut self, now: Time, out: &mut Outbox, last: Option<PeerId>) {
        if last != self.sweep.last_gone {
            return;
        }
        self.sweep.is_on = false;
        self.sweep.gone.clear();
        let sessions = std::mem::take(&mut self.sweep.deleted);
        if sessions > 0 {
            out.event(Event::SessionsDeleted { sessions });
        }
        self.answer_deferred_setups(now, out);
    }

    fn on_displaced(&mut self, out: &mut Outbox, displaced: &Displaced) {
        self.n4.stats_mut().displaced += 1;
        if let Some(peer) = self.peers.get(displaced.peer) {
            out.event(Event::SessionDisplaced {
                node_id: peer.node_id.clone(),
                address: peer.address,
                seid: displaced.seid,
                cp_seid: displaced.cp_seid,
                table: displaced.table,
            });
        }
    }

    /// For the log of usage: whose sessions they were.
    fn log_usage(&self, out: &mut Outbox, records: &mut Vec<UsageRecord>) {
        for record in records.iter_mut() {
            let Some(id) = record.peer else { continue };
            let peer = self.peers.get(id).map(|peer| &peer.node_id);
            record.smf = peer.or_else(|| self.sweep.gone.get(&id)).cloned();
        }
        out.take_usage(records);
    }

    /// See [`Core::tell_lost`](crate::Core::tell_lost).
    pub(crate) fn tell_lost(&mut self, now: Time, out: &mut Outbox, lost: &LostSession) -> bool {
        let id = self.peers.by_node(&lost.smf);
        let peer = id.and_then(|id| Some((id, self.peers.get(id)?)));
        let Some((id, _)) = peer.filter(|(_, peer)| {
            lost.cp_seid != 0 && peer.cp_features.contains(CpFunctionFeatures::EPFAR)
        }) else {
            return false;
        };
        self.sweep.untold.entry(id).or_default().add(lost);
        self.tell_next_lost(now, out, id);
        true
    }

    /// As many reports as may be under way.
    fn tell_next_lost(&mut self, now: Time, out: &mut Outbox, id: PeerId) {
        let Some(address) = self.peers.get(id).map(|peer| peer.address) else {
            return;
        };
        let next = |node: &mut Self| {
            let own = node.sweep.untold.get(&id)?.under_way();
            let all = || node.sweep.untold.values().map(Untold::under_way);
            // Of most sessions that are lost there is no more to tell yet: that costs no look at all SMFs.
            let is_busy = (1..UNDER_WAY_MAX).contains(&own) && all().sum::<usize>() >= TELLING_MAX;
            node.sweep.untold.get_mut(&id)?.next(is_busy)
        };
        while let Some((cp_seid, controller)) = next(self) {
            let mut to = address;
            if let Some(controller) = controller {
                to.set_ip(controller);
            }
            let to = (to, Some(cp_seid));
            self.n4
                .request(now, out, to, Purpose::Lost(id, cp_seid), |writer| {
                    writer.report_type(ReportType::UISR);
                    writer.put(IeType::PFCPSRREQ_FLAGS, PfcpSrReqFlags::PSDBU);
                });
        }
    }

    /// An SMF asks for a session under a SEID, and would take what is said of a lost one for that.
    fn has_again(&mut self, now: Time, out: &mut Outbox, id: PeerId, cp_seid: u64) {
        let untold = self.sweep.untold.get_mut(&id);
        if untold.is_some_and(|untold| untold.has_again(cp_seid)) {
            self.n4
                .cancel(|purpose| purpose == Purpose::Lost(id, cp_seid));
            self.tell_next_lost(now, out, id);
        }
    }

    /// An SMF has answered, whatever it said, or has not.
    pub(crate) fn lost_is_told(
        &mut self,
        now: Time,
        out: &mut Outbox,
        (id, cp_seid): (PeerId, u64),
        answer: Option<&Message<'_>>,
    ) {
        if let Some(message) = answer
            && let Ok(response) = SessionReportResponse::decode(message)
        {
            let stats = self.n4.stats_mut();
            let answer = message.header.message_type;
            stats.cause(Way::Received, answer, response.cause);
        }
        if let Some(untold) = self.sweep.untold.get_mut(&id) {
            untold.is_over(cp_seid);
            self.tell_next_lost(now, out, id);
        }
    }
}
