//! PFD Management Requests (TS 29.244, 6.2.5), and whose PFDs they are as associations come and go.

use std::iter::successors;

use pfcp::message::PfdManagementRequest;
use pfcp::{Cause, IeType, Message};

use crate::base::ids::{PartyId, PeerId};
use crate::base::node_id::NodeId;
use crate::base::pfd::Property;
use crate::base::pfd::flows_of;
use crate::base::refusal::Refusal;
use crate::base::shares::Shares;
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::node::Node;
use crate::node::peer::{Peer, Peers, SmfSet};
use crate::node::pfds::ApplicationView;

impl Node {
    /// PFD Management Request (6.2.5.2).
    pub(crate) fn on_pfd_management(
        &mut self,
        now: Time,
        out: &mut Outbox,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let request = match PfdManagementRequest::decode(message) {
            Ok(request) => request,
            Err(error) => return self.refuse(now, out, incoming, error.into()),
        };
        let party = match self.provider(&request, incoming) {
            Ok(party) => party,
            Err(refusal) => return self.refuse(now, out, incoming, refusal),
        };
        let (peers, names) = (&self.peers, &self.names);
        let is_named = |name: &str| {
            let mut members = peers.members(party);
            members.any(|peer| names.contains(&(peer.id, name.into())))
        };
        // Packets of an application that PDRs name must be told; one that none names is nobody's.
        let allow =
            |name: &str, pfds: &[Property]| match flows_of(pfds).is_some() || !is_named(name) {
                true => Ok(()),
                false => Err(Refusal::ie(
                    Cause::SERVICE_NOT_SUPPORTED,
                    IeType::APPLICATION_IDS_PFDS,
                )),
            };
        let limits = (&self.config.limits, &self.shares());
        match self.pfds.manage(party, &request, limits, allow) {
            Ok(names) => {
                for name in names {
                    let properties = self.pfds.of(party, &name).into();
                    self.tell(ToShard::Pfds(party, name, properties));
                }
                self.tell(ToShard::Fit);
                let cause = Cause::REQUEST_ACCEPTED;
                self.answer(now, out, incoming, cause, |writer, us| {
                    writer.cause(cause);
                    writer.node_id(us.to_wire());
                });
            }
            Err(refusal) => self.refuse(now, out, incoming, refusal),
        }
    }

    /// Party whose PFDs a request sets: that of the association that its Node ID (7.4.3.1) names, or else the only one at the
    /// sender's address.
    fn provider(
        &self,
        request: &PfdManagementRequest<'_>,
        incoming: &Incoming,
    ) -> Result<PartyId, Refusal> {
        let (peers, from) = (&self.peers, incoming.from);
        let may = |id: &PeerId| peers.speaks_for(*id, from.ip());
        let named = request.node_id.as_ref().map(NodeId::from_wire);
        let named = named.and_then(|node_id| peers.by_node(&node_id));
        let party = |id: PeerId| peers.get(id).map(Peer::party);
        if let Some(party) = named.filter(may).and_then(party) {
            return Ok(party);
        }
        let mut here = peers.candidates(from).filter(may).filter_map(party);
        let first = here.next().ok_or(Cause::NO_ESTABLISHED_PFCP_ASSOCIATION)?;
        match here.all(|other| other == first) {
            true => Ok(first),
            false => Err(Refusal::ie(Cause::CONDITIONAL_IE_MISSING, IeType::NODE_ID)),
        }
    }

    /// Shares of the SMFs that are associated.
    pub(crate) fn shares(&self) -> Shares {
        Shares::new(self.config.limits.shares, self.peers.claims())
    }

    /// The SMF is of this set from now on. PFDs that it had alone are the set's, where that has none of the same application.
    pub(crate) fn join_set(&mut self, id: PeerId, set: Option<SmfSet>) {
        let party_of = |peers: &Peers| peers.get(id).map(Peer::party);
        let before = party_of(&self.peers);
        self.peers.set_smf_set(id, set);
        let after = party_of(&self.peers);
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        self.tell_smf(id);
        self.share_out();
        let have_some = |party| self.pfds.fill_of(party).0 > 0;
        self.orders.news.pfds |= before != after && (have_some(before) || have_some(after));
        if self.peers.members(before).next().is_none() {
            for (name, properties) in self.pfds.take(before) {
                if self.pfds.of(after, &name).is_empty() {
                    let told = ToShard::Pfds(after, name.clone(), properties.clone());
                    self.tell(told);
                    self.pfds
                        .of
                        .entry(after)
                        .or_default()
                        .keep(name, properties);
                }
            }
            self.tell(ToShard::PartyGone(before));
        }
        self.tell(ToShard::Fit);
    }

    /// An association is no more: nor is its party, nor are its PFDs, where it was the last one.
    pub(crate) fn leave_party(&mut self, party: PartyId) {
        // It may be that they are known by the SMF that is gone.
        self.orders.news.pfds |= self.pfds.fill_of(party).0 > 0;
        if self.peers.members(party).next().is_none() {
            self.pfds.take(party);
            self.tell(ToShard::PartyGone(party));
        }
        self.share_out();
    }

    /// Associations have changed: who has a share of what there is for all.
    pub(crate) fn share_out(&mut self) {
        let limits = &self.config.limits;
        let (reserve, of) = (limits.emergency_sessions, limits.sessions);
        let shares = self.shares().with_reserve(reserve, of);
        self.tell(ToShard::Shares(shares));
    }

    /// Applications with PFDs of a party.
    pub(crate) fn applications_of(&self, party: PartyId) -> usize {
        self.pfds.fill_of(party).0
    }

    /// Applications with PFDs, in alphabetical order, those after one of this name: with each name, who has an application of it.
    pub(crate) fn pfds_after<'a>(
        &'a self,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, Vec<ApplicationView<'a>>)> {
        let first = self.pfds.name_after(after);
        let names = successors(first, |name| self.pfds.name_after(Some(name)));
        names.map(|name| {
            let all = self.pfds.all_of(name).map(|(party, properties)| {
                let smfs = self.peers.members(party).map(|peer| &peer.node_id);
                let smfs = smfs.collect();
                ApplicationView {
                    name,
                    smfs,
                    properties,
                }
            });
            (name, all.collect())
        })
    }

    /// Applications with PFDs, and the bytes that they take.
    pub(crate) fn pfd_fill(&self) -> (usize, usize) {
        self.pfds.fill()
    }
}
