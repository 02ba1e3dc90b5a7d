//! Associations updated, and released in good order from either side (TS 29.244, 5.18, 6.2.7, 6.2.8).

use pfcp::ie::{AssociationReleaseFlags, CpFunctionFeatures, PfcpAuReqFlags, Timer as Duration8};
use pfcp::message::{
    AssociationReleaseRequest, AssociationUpdateRequest, AssociationUpdateResponse,
};
use pfcp::{Cause, IeType, Message, Writer};

use crate::base::event::Gone;
use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::compiled::Tables;
use crate::core::{Core, Timer};
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Purpose;
use crate::exchange::stats::Way;
use crate::node::peer::{SmfSet, alternatives};
use crate::slice::finishing::{Finishing, Then};

impl<T: Tables> Core<T> {
    /// Association Update Request of a CP function (6.2.7.2.2). What it leaves out stays as it was.
    pub(crate) fn on_update(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let request = match AssociationUpdateRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, incoming, 0, &error, out),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, incoming, 0, cause.into(), out);
        };
        self.peers.learn_source(id, incoming.from);
        self.heard(now, id, out);
        if let Some(peer) = self.peers.get_mut(id) {
            if let Some(features) = request.cp_function_features {
                peer.cp_features = features;
            }
            if let Some(set) = request.smf_set_id {
                peer.smf_set = SmfSet::new(set);
            }
            if !request.alternatives.is_empty() {
                peer.alternatives = alternatives(&request.alternatives);
            }
        }
        self.accept_node_request(now, incoming, out);
        let preparation = request
            .pfcpaureq_flags
            .is_some_and(|flags| flags.contains(PfcpAuReqFlags::PARPS));
        if preparation {
            self.finish_usage(now, id, Then::Tell, out);
        }
    }

    /// The SMF prepares the release and waits until it has all usage reports (5.18.2): it has.
    pub(crate) fn say_reports_are_sent(&mut self, now: Time, id: PeerId, out: &mut Outbox) {
        let purpose = Purpose::ReportsSent(id);
        if self.requests.is_waiting(purpose) {
            return;
        }
        self.send_update(now, id, purpose, out, |writer| {
            let ie_type = IeType::PFCP_ASSOCIATION_RELEASE_REQUEST;
            writer.put(ie_type, AssociationReleaseFlags::URSS);
        });
    }

    /// Association Release Request (6.2.8.2.2): the sessions go, then the answer.
    pub(crate) fn on_release(
        &mut self,
        now: Time,
        incoming: &Incoming,
        message: &Message<'_>,
        out: &mut Outbox,
    ) {
        let request = match AssociationReleaseRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse_undecodable(now, incoming, 0, &error, out),
        };
        let Some(id) = self.peer_for(&request.node_id, incoming.from) else {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(now, incoming, 0, cause.into(), out);
        };
        let target = self.target_of(id);
        self.end_association(now, id, Gone::Released, out);
        self.accept_node_request(now, incoming, out);
        if let Some(target) = target.filter(|_| !self.closing) {
            // Not at once: it had its reason.
            self.set_timer(now, self.config.retry_at_most, Timer::Setup(target));
        }
    }

    /// Leave gracefully: ask every SMF to release its association (6.2.8.3: the UP function asks
    /// with an Association Update Request), and take no new work. Packets are forwarded until an
    /// SMF has released. [`Core::is_released`] tells when that is done; it takes a peer that does
    /// not answer N1 x T1, and one that only says that it will the configured graceful release
    /// period, or without one twice N1 x T1.
    ///
    /// An SMF that offers the enhanced release is first told that the release is being prepared, and then what was
    /// measured and it does not know yet (5.18.1).
    pub fn shut_down(&mut self, now: Time, out: &mut Outbox) {
        self.closing = true;
        self.requests.cancel(|_| true);
        self.reports.clear();
        self.finishing = Finishing::default();
        self.timers.clear();
        let least = self.config.t1 * self.config.n1.max(1) * 2;
        let patience = least.max(self.config.graceful_release);
        for id in self.peers.ids() {
            let enhanced = self
                .peers
                .get(id)
                .is_some_and(|peer| peer.cp_features.contains(CpFunctionFeatures::EPFAR));
            if enhanced {
                self.send_update(now, id, Purpose::Prepare(id), out, |writer| {
                    writer.put(IeType::PFCPAUREQ_FLAGS, PfcpAuReqFlags::PARPS);
                });
            } else {
                self.ask_for_release(now, id, out);
            }
            self.set_timer(now, patience, Timer::ReleaseBy(id));
        }
    }

    /// PFCP Association Release Request IE, with the time that the SMF may take.
    pub(crate) fn ask_for_release(&mut self, now: Time, id: PeerId, out: &mut Outbox) {
        let period = self.config.graceful_release;
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let mut flags = AssociationReleaseFlags::SARR;
        if peer.cp_features.contains(CpFunctionFeatures::EPFAR) {
            flags |= AssociationReleaseFlags::URSS;
        }
        self.send_update(now, id, Purpose::Release(id), out, |writer| {
            writer.put(IeType::PFCP_ASSOCIATION_RELEASE_REQUEST, flags);
            if !period.is_zero() {
                let timer = Duration8::at_least(period.as_secs());
                writer.put(IeType::GRACEFUL_RELEASE_PERIOD, timer);
            }
        });
    }

    fn send_update(
        &mut self,
        now: Time,
        id: PeerId,
        purpose: Purpose,
        out: &mut Outbox,
        write: impl FnOnce(&mut Writer<'_>),
    ) {
        let node_id = self.node_id.clone();
        let Some(to) = self.peers.get(id).map(|peer| peer.address) else {
            return;
        };
        self.send_request(now, to, purpose, out, |writer| {
            writer.node_id(node_id.to_wire());
            write(writer);
        });
    }

    /// The cause of an answer to an Association Update Request of ours; nothing hangs on it.
    pub(crate) fn note_cause(&mut self, message: &Message<'_>) {
        if let Ok(response) = AssociationUpdateResponse::decode(message) {
            self.stats
                .cause(Way::Received, message.header.message_type, response.cause);
        }
    }

    /// No SMF is waited for any longer: associations end, and what their sessions have measured is in
    /// [`Outbox::usage`] when [`Core::is_released`] says so; until then call [`Core::advance`].
    pub fn abandon(&mut self, now: Time, out: &mut Outbox) {
        self.closing = true;
        for id in self.peers.ids() {
            self.end_association(now, id, Gone::ShutDown, out);
        }
    }

    /// Whether no association is left, nor a session of one that ended.
    pub fn is_released(&self) -> bool {
        self.peers.len() == 0 && self.sweep.left == 0
    }
}
