//! Packet Flow Descriptions, kept as SMFs provision them (PFD Management, TS 29.244, 6.2.5).
//!
//! They are those of the SMF that provisioned them, or of its set: others neither see, replace nor remove them. They
//! go with its association. An SMF has its share of the room for them.

use std::collections::BTreeMap;
use std::iter::successors;
use std::mem::size_of;
use std::ops::Bound;

use pfcp::ie::{ApplicationPfds, PfdContents};
use pfcp::message::PfdManagementRequest;
use pfcp::{Cause, IeType, Message};

use crate::base::ids::{PartyId, PeerId};
use crate::base::node_id::NodeId;
use crate::base::pfd::flows_of;
pub use crate::base::pfd::{PfdKind, Property};
use crate::base::refusal::Refusal;
use crate::base::shares::Shares;
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::exchange::incoming::Incoming;
use crate::exchange::outbox::Outbox;
use crate::node::Node;
use crate::node::peer::{Peer, Peers, SmfSet};
use crate::rules::config::Limits;

/// All PFDs, by whose they are.
#[derive(Debug, Default)]
pub(crate) struct Pfds {
    of: BTreeMap<PartyId, PartyPfds>,
}

/// PFDs of one party, by Application ID.
#[derive(Debug, Default)]
struct PartyPfds {
    by_application: BTreeMap<Box<str>, Box<[Property]>>,
    bytes: usize,
}

/// A change that was read and checked, and not yet made: the PFDs that each application is to
/// have, none to be removed.
type Change = BTreeMap<Box<str>, Box<[Property]>>;

impl Pfds {
    /// Provision, replace and remove those of a party, all or nothing; the applications whose PFDs are new. A request
    /// without an application removes all that the party has.
    fn manage(
        &mut self,
        party: PartyId,
        request: &PfdManagementRequest<'_>,
        (limits, shares): (&Limits, &Shares),
        allow: impl Fn(&str, &[Property]) -> Result<(), Refusal>,
    ) -> Result<Vec<Box<str>>, Refusal> {
        if request.application_ids_pfds.is_empty() {
            return Ok(self.take(party).into_keys().collect());
        }
        let mut change = Change::new();
        for application in &request.application_ids_pfds {
            let application = application?;
            let name = text(application.application_id)?;
            let properties = properties(&application)?;
            if !properties.is_empty() {
                allow(&name, &properties)?;
            }
            change.insert(name, properties);
        }
        self.check_room(party, &change, limits, shares)?;
        let names = change.keys().cloned().collect();
        let own = self.of.entry(party).or_default();
        for (name, properties) in change {
            own.forget(&name);
            if !properties.is_empty() {
                own.keep(name, properties);
            }
        }
        if own.by_application.is_empty() {
            self.of.remove(&party);
        }
        Ok(names)
    }

    /// Whether a change fits into what is left for its party. One that takes no more than it had always does.
    fn check_room(
        &self,
        party: PartyId,
        change: &Change,
        limits: &Limits,
        shares: &Shares,
    ) -> Result<(), Refusal> {
        let had = self.fill_of(party);
        let (mut count, mut bytes) = had;
        for (name, new) in change {
            let old = self.of(party, name);
            if !old.is_empty() {
                count -= 1;
                bytes -= size(name, old);
            }
            if !new.is_empty() {
                count += 1;
                bytes += size(name, new);
            }
        }
        let all = self.fill();
        let left = |whole, used, of: fn((usize, usize)) -> usize| {
            let used_by = |party| of(self.fill_of(party)) as u64;
            shares.left_for(party, whole as u64, used as u64, used_by)
        };
        let more = (count.saturating_sub(had.0), bytes.saturating_sub(had.1));
        let is_too_much = more.0 as u64 > left(limits.pfd_applications, all.0, |fill| fill.0)
            || more.1 as u64 > left(limits.pfd_bytes, all.1, |fill| fill.1);
        match is_too_much && more != (0, 0) {
            true => Err(Refusal::no_room(IeType::APPLICATION_IDS_PFDS)),
            false => Ok(()),
        }
    }

    /// Takes the PFDs of a party away.
    fn take(&mut self, party: PartyId) -> BTreeMap<Box<str>, Box<[Property]>> {
        let all = self.of.remove(&party).unwrap_or_default();
        all.by_application
    }

    /// None: it has none.
    fn of(&self, party: PartyId, name: &str) -> &[Property] {
        let all = self.of.get(&party).map(|all| &all.by_application);
        all.and_then(|all| all.get(name)).map_or(&[], |all| all)
    }

    /// Of whomever, the next in alphabetical order.
    fn name_after(&self, after: Option<&str>) -> Option<&str> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.of.values().filter_map(|all| {
            let mut later = all.by_application.range::<str, _>((from, Bound::Unbounded));
            later.next().map(|(name, _)| &**name)
        });
        next.min()
    }

    /// Parties with an application of this name, and its PFDs.
    fn all_of(&self, name: &str) -> impl Iterator<Item = (PartyId, &[Property])> {
        let all = self.of.iter();
        all.filter_map(move |(party, all)| Some((*party, &**all.by_application.get(name)?)))
    }

    /// Applications of a party, and what they take of memory.
    fn fill_of(&self, party: PartyId) -> (usize, usize) {
        let all = self.of.get(&party);
        all.map_or((0, 0), |all| (all.by_application.len(), all.bytes))
    }

    /// Applications, and what they take of memory.
    fn fill(&self) -> (usize, usize) {
        let all = self.of.keys().map(|party| self.fill_of(*party));
        all.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }
}

impl PartyPfds {
    fn keep(&mut self, name: Box<str>, properties: Box<[Property]>) {
        self.bytes += size(&name, &properties);
        self.by_application.insert(name, properties);
    }

    fn forget(&mut self, name: &str) {
        if let Some(old) = self.by_application.remove(name) {
            self.bytes -= size(name, &old);
        }
    }
}

/// An application with PFDs, as operators see it.
#[derive(Clone, Debug)]
pub struct ApplicationView<'a> {
    /// Application ID.
    pub name: &'a str,
    /// Node IDs of the SMFs whose it is: one, or those of a set that are there.
    pub smfs: Vec<&'a NodeId>,
    /// Its PFDs.
    pub properties: &'a [Property],
}

/// What an application counts for, overhead included.
fn size(name: &str, properties: &[Property]) -> usize {
    let one = |property: &Property| size_of::<Property>() + property.text.len();
    64 + name.len() + properties.iter().map(one).sum::<usize>()
}

fn properties(application: &ApplicationPfds<'_>) -> Result<Box<[Property]>, Refusal> {
    let mut properties = Vec::new();
    let mut pfd = 0;
    for context in &application.contexts {
        for contents in &context?.contents {
            read(pfd, &contents?, &mut properties)?;
            pfd += 1;
        }
    }
    Ok(properties.into())
}

fn read(pfd: u32, contents: &PfdContents<'_>, to: &mut Vec<Property>) -> Result<(), Refusal> {
    let flows = contents.flow_descriptions().map(|f| (PfdKind::Flow, f));
    let urls = contents.urls().map(|url| (PfdKind::Url, url));
    let domains = contents.domain_names().map(|d| (PfdKind::Domain, d));
    let custom = contents.custom.into_iter().map(|c| (PfdKind::Custom, c));
    let before = to.len();
    for (kind, octets) in flows.chain(urls).chain(domains).chain(custom) {
        let text = text(octets)?;
        to.push(Property { pfd, kind, text });
    }
    if to.len() == before {
        // Nothing that traffic could be told by.
        return Err(Refusal::ie(
            Cause::MANDATORY_IE_INCORRECT,
            IeType::PFD_CONTENTS,
        ));
    }
    Ok(())
}

fn text(octets: &[u8]) -> Result<Box<str>, Refusal> {
    match std::str::from_utf8(octets) {
        Ok(text) if !text.is_empty() => Ok(text.into()),
        _ => Err(Refusal::ie(
            Cause::MANDATORY_IE_INCORRECT,
            IeType::APPLICATION_IDS_PFDS,
        )),
    }
}

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

    /// Whose the PFDs of a request are: of the association that its Node ID (7.4.3.1) names, or else, where that is but one
    /// party, of those at the sender's address.
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
