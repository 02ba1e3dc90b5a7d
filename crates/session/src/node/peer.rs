//! The SMFs we are associated with, and those we were told to associate with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;

use pfcp::Repeated;
use pfcp::ie::{CpAddress, CpFunctionFeatures};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;

use crate::base::bits;
pub use crate::base::ids::{PartyId, PeerId};
use crate::base::node_id::NodeId;
use crate::base::tagged::{Later, tagged};
use crate::base::time::Time;
use crate::between::smf::{Sender, Smf};
use crate::exchange::incoming::Incoming;
use crate::node::load::Told;

/// Whether a peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// Associated; answers, or was not asked yet.
    Up,
    /// Associated; N1 heartbeats in a row went unanswered at this time. Its sessions still
    /// forward.
    Down(Time),
}

/// An association.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) node_id: NodeId,
    /// Address that our requests go to.
    pub(crate) address: SocketAddr,
    /// Addresses that its requests came from: at most [`SOURCES_MAX`]. The oldest with another IP address than `address` is
    /// forgotten first.
    sources: Vec<SocketAddr>,
    /// Its Recovery Time Stamp, once it told us.
    pub(crate) recovery: Option<u32>,
    /// A Recovery Time Stamp older than `recovery`, seen in the last heartbeat.
    pub(crate) stale_recovery: Option<u32>,
    pub(crate) state: PeerState,
    pub(crate) since: Time,
    pub(crate) heard: Time,
    /// A Heartbeat Request is outstanding.
    pub(crate) heartbeat_waits: bool,
    /// We asked for the association.
    pub(crate) by_us: bool,
    /// Its Association Setup Request, answered when the sessions of its former life are deleted.
    pub(crate) deferred: Option<Incoming>,
    /// CP Function Features (TS 29.244, 8.2.58).
    pub(crate) cp_features: CpFunctionFeatures,
    /// Its SMF set, whose sessions it may control beside its own.
    smf_set: Option<SmfSet>,
    /// It, with the others of its set.
    party: PartyId,
    /// Other addresses of its set that may control its sessions; at most [`ALTERNATIVES_MAX`].
    pub(crate) alternatives: Vec<IpAddr>,
    /// Load and overload information that it was told.
    pub(crate) told: Told,
    pub(crate) sessions: usize,
}

/// An association as a record has it, beside whom it is with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) sources: Vec<SocketAddr>,
    pub(crate) recovery: Option<u32>,
    pub(crate) stale_recovery: Option<u32>,
    pub(crate) since: Time,
    pub(crate) heard: Time,
    pub(crate) silent_since: Option<Time>,
    pub(crate) by_us: bool,
    pub(crate) features: Features,
    pub(crate) smf_set: Option<SmfSet>,
    pub(crate) alternatives: Vec<IpAddr>,
    pub(crate) told: Told,
    /// When to ask whether it is alive.
    pub(crate) heartbeat_at: Option<Time>,
    /// Its number among all associations that there were, by which records of its sessions name it.
    pub(crate) number: u32,
    later: Later,
}

tagged!(Details {
    1: sources,
    2: recovery,
    3: stale_recovery,
    4: since,
    5: heard,
    6: silent_since,
    7: by_us,
    8: features,
    9: smf_set,
    10: alternatives,
    11: told,
    12: heartbeat_at,
    13: number,
});

/// As it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Features(#[serde(with = "bits")] pub(crate) CpFunctionFeatures);

impl Default for Features {
    fn default() -> Self {
        Self(CpFunctionFeatures::empty())
    }
}

/// SMF Set ID (TS 29.244, 8.2.125), as sent, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SmfSet(Box<[u8]>);

impl SmfSet {
    /// `None` without a name: no set.
    pub(crate) fn new(value: &[u8]) -> Option<Self> {
        let (_spare, name) = value.split_first()?;
        (!name.is_empty()).then(|| Self(name.to_ascii_lowercase().into()))
    }

    /// As [`Self::new`] makes it.
    pub(crate) fn is_canonical(&self) -> bool {
        !self.0.is_empty() && *self.0 == *self.0.to_ascii_lowercase()
    }
}

/// An SMF set is a handful of SMFs.
pub(crate) const ALTERNATIVES_MAX: usize = 16;

/// The addresses of Alternative SMF IP Address IEs; those that cannot be read are none.
pub(crate) fn alternatives(ies: &Repeated<'_, CpAddress>) -> Vec<IpAddr> {
    let addresses = ies.iter().filter_map(Result::ok);
    addresses
        .flat_map(CpAddress::addresses)
        .take(ALTERNATIVES_MAX)
        .collect()
}

/// Several PFCP entities, or a source port per worker; more is no SMF we know of.
pub(crate) const SOURCES_MAX: usize = 16;

/// A configured SMF with which we start the association.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Attempts in a row that failed.
    pub(crate) failures: u32,
    /// Not so: the configuration names it no more. Its place stays, because timers and requests name places.
    pub(crate) is_configured: bool,
}

/// All associations.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    last_id: u32,
    by_id: BTreeMap<PeerId, Peer>,
    by_node: BTreeMap<NodeId, PeerId>,
    by_source: BTreeMap<SocketAddr, PeerId>,
    /// [`Self::sources`] may not be what they were when this was last asked.
    has_news: bool,
    pub(crate) targets: Vec<Target>,
}

impl Peers {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.by_id.values()
    }

    pub(crate) fn iter_after(&self, after: Option<PeerId>) -> impl Iterator<Item = &Peer> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id
            .range((from, Bound::Unbounded))
            .map(|(_, peer)| peer)
    }

    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.by_id.keys().copied().collect()
    }

    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.by_id.get(&id)
    }

    pub(crate) fn party(&self, id: PeerId) -> Option<PartyId> {
        self.get(id).map(Peer::party)
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.by_id.get_mut(&id)
    }

    /// A configured SMF, and its place; `None` when it is known already.
    pub(crate) fn add_target(&mut self, address: SocketAddr) -> Option<usize> {
        let target = Target {
            address,
            failures: 0,
            is_configured: true,
        };
        let known = self.targets.iter().position(|of| of.address == address);
        let Some(place) = known else {
            self.targets.push(target);
            return Some(self.targets.len() - 1);
        };
        let was = std::mem::replace(&mut self.targets[place], target);
        if was.is_configured {
            self.targets[place] = was;
            return None;
        }
        Some(place)
    }

    /// The SMFs that the configuration names, each with its place.
    fn configured(&self) -> impl Iterator<Item = (usize, &Target)> {
        let targets = self.targets.iter().enumerate();
        targets.filter(|(_, target)| target.is_configured)
    }

    pub(crate) fn by_node(&self, node_id: &NodeId) -> Option<PeerId> {
        self.by_node.get(node_id).copied()
    }

    /// The association that a session established under this Node ID belongs to, from whatever address (TS 29.244, 5.8.1).
    /// An SMF of a set may name another one of it (5.22), which has none here.
    pub(crate) fn whose_session(&self, node_id: &NodeId, from: SocketAddr) -> Option<PeerId> {
        let is_of_set = |id: &PeerId| self.get(*id).is_some_and(|peer| peer.smf_set.is_some());
        let of_set = || self.by_source(from).filter(is_of_set);
        self.by_node(node_id).or_else(of_set)
    }

    /// The one association that requests from this address and port belong to, or from this
    /// address where the port is new and no other association shares it.
    pub(crate) fn by_source(&self, from: SocketAddr) -> Option<PeerId> {
        if let Some(id) = self.by_source.get(&from) {
            return Some(*id);
        }
        let mut of_address = self.of_address(from.ip());
        let first = of_address.next()?;
        of_address.all(|other| other == first).then_some(first)
    }

    /// Addresses that requests of one association alone come from, with it; no two are alike.
    pub(crate) fn sources(&self) -> Vec<(IpAddr, PeerId)> {
        let sources = self.by_source.keys().map(SocketAddr::ip);
        let mut sources: Vec<IpAddr> = sources.collect();
        sources.dedup();
        let port = 0; // none that anybody speaks from
        let whose = |ip| Some((ip, self.by_source(SocketAddr::new(ip, port))?));
        sources.into_iter().filter_map(whose).collect()
    }

    /// Whether these may have changed since this was last asked.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// ... or who of them may be served elsewhere.
    pub(crate) fn note_news(&mut self) {
        self.has_news = true;
    }

    fn of_address(&self, ip: IpAddr) -> impl Iterator<Item = PeerId> + '_ {
        let range = SocketAddr::new(ip, 0)..=SocketAddr::new(ip, u16::MAX);
        self.by_source.range(range).map(|(_, id)| *id)
    }

    /// Whether this is an address of any association, or of a configured SMF, whatever the port.
    pub(crate) fn knows(&self, from: SocketAddr) -> bool {
        let ip = from.ip();
        let is_of = |peer: &Peer| peer.is_at(ip) || peer.alternatives.contains(&ip);
        self.by_source.contains_key(&from)
            || self.of_address(ip).next().is_some()
            || self.iter().any(is_of)
            || (self.configured()).any(|(_, target)| target.address.ip() == ip)
    }

    /// Sender of a request from here, with the associations whose sessions it may touch ([`Self::candidates`]).
    pub(crate) fn sender(&self, from: SocketAddr) -> Sender {
        let peers = match self.by_source.get(&from) {
            Some(exact) => smallvec![*exact],
            None => self.of_address(from.ip()).collect(),
        };
        Sender { from, peers }
    }

    /// Associations whose sessions a request from here may touch: the peer that was seen at this
    /// address and port, or else, source ports being free (TS 29.244, 4.2.2), every peer
    /// at this address.
    pub(crate) fn candidates(&self, from: SocketAddr) -> impl Iterator<Item = PeerId> + '_ {
        let exact = self.by_source.get(&from).copied();
        let others = exact.is_none().then(|| self.of_address(from.ip()));
        exact.into_iter().chain(others.into_iter().flatten())
    }

    /// Whether `other` may speak for `owner`: it is the same, or of the same SMF set (TS 29.244, 5.22).
    pub(crate) fn shares(&self, owner: PeerId, other: PeerId) -> bool {
        let set = |id| self.get(id).and_then(|peer| peer.smf_set.as_ref());
        owner == other || set(owner).is_some_and(|of_owner| set(other) == Some(of_owner))
    }

    /// The SMF is of this set from now on. It has what the others of the set have; what it shared with a set that it
    /// leaves is that set's.
    pub(crate) fn set_smf_set(&mut self, id: PeerId, set: Option<SmfSet>) {
        let Some(before) = self.get(id) else { return };
        if before.smf_set == set {
            return;
        }
        let left = before.party;
        let is_alone = self.members(left).all(|member| member.id == id);
        let of_set = |peer: &&Peer| set.is_some() && peer.smf_set == set;
        let joined = self.iter().find(of_set).map(|peer| peer.party);
        let party = match joined {
            Some(party) => party,
            None if is_alone => left,
            None => PartyId(self.new_id()),
        };
        if let Some(peer) = self.get_mut(id) {
            peer.smf_set = set;
            peer.party = party;
        }
    }

    /// Associations of a party, in the order in which they were set up; none: it is no more.
    pub(crate) fn members(&self, party: PartyId) -> impl Iterator<Item = &Peer> {
        self.iter().filter(move |peer| peer.party == party)
    }

    /// Claims to a share of what there is for all: configured SMFs come first, then those that came first. At one address one
    /// that is not configured has a claim, because Node IDs cost nothing.
    pub(crate) fn claims(&self) -> impl Iterator<Item = PartyId> {
        let is_configured = |peer: &&Peer| self.target_at(peer.address).is_some();
        let mut addresses = BTreeSet::new();
        let others = self.iter().filter(move |peer| !is_configured(peer));
        let others = others.filter(move |peer| addresses.insert(peer.address.ip()));
        let configured = self.iter().filter(is_configured);
        configured.chain(others).map(Peer::party)
    }

    fn new_id(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1).max(1);
        self.last_id
    }

    /// Whether who is at `ip` may speak for the whole association, to change it, to end it, or for sets
    /// of its sessions. A Node ID is no secret, so naming it does not do. It is the address that the
    /// association is held with (which may be that of a NAT), that its Node ID is, one of those that the
    /// SMF named as alternatives, or that of another SMF of its set. A message about one session may
    /// also come from other addresses (TS 29.244, 5.8.1), as [`Peers::candidates`] says: it has to name
    /// a SEID, which nobody can guess.
    pub(crate) fn speaks_for(&self, id: PeerId, ip: IpAddr) -> bool {
        let Some(peer) = self.get(id) else {
            return false;
        };
        peer.is_at(ip)
            || peer.alternatives.contains(&ip)
            || (self.iter()).any(|other| self.shares(id, other.id) && other.is_at(ip))
    }

    /// The configured SMF at this address: at this port, or else the only one there.
    pub(crate) fn target_at(&self, from: SocketAddr) -> Option<usize> {
        let is_it = |(_, target): &(usize, &Target)| target.address == from;
        if let Some((exact, _)) = self.configured().find(is_it) {
            return Some(exact);
        }
        let is_here = |(_, target): &(usize, &Target)| target.address.ip() == from.ip();
        let mut here = self.configured().filter(is_here);
        let (first, _) = here.next()?;
        here.next().is_none().then_some(first)
    }

    /// Begin an association.
    pub(crate) fn insert(&mut self, now: Time, node_id: NodeId, address: SocketAddr) -> PeerId {
        let id = PeerId(self.new_id());
        self.by_node.insert(node_id.clone(), id);
        let peer = Peer {
            id,
            node_id,
            address,
            sources: Vec::new(),
            recovery: None,
            stale_recovery: None,
            state: PeerState::Up,
            since: now,
            heard: now,
            heartbeat_waits: false,
            by_us: false,
            deferred: None,
            cp_features: CpFunctionFeatures::empty(),
            smf_set: None,
            party: PartyId(id.0),
            alternatives: Vec::new(),
            told: Told::default(),
            sessions: 0,
        };
        self.by_id.insert(id, peer);
        id
    }

    /// An association goes on that began elsewhere.
    pub(crate) fn go_on(&mut self, node_id: NodeId, address: SocketAddr, is: &Details) -> PeerId {
        let id = self.insert(is.since, node_id, address);
        for source in &is.sources {
            self.learn_source(id, *source);
        }
        if let Some(peer) = self.get_mut(id) {
            peer.recovery = is.recovery;
            peer.stale_recovery = is.stale_recovery;
            peer.state = is.silent_since.map_or(PeerState::Up, PeerState::Down);
            peer.heard = is.heard;
            peer.by_us = is.by_us;
            peer.cp_features = is.features.0;
            peer.alternatives.clone_from(&is.alternatives);
            peer.told = is.told;
        }
        id
    }

    /// An association, for a record.
    pub(crate) fn details(&self, peer: &Peer) -> Details {
        let is_its = |source: &&SocketAddr| self.by_source.get(source) == Some(&peer.id);
        Details {
            sources: peer.sources.iter().filter(is_its).copied().collect(),
            recovery: peer.recovery,
            stale_recovery: peer.stale_recovery,
            since: peer.since,
            heard: peer.heard,
            silent_since: match peer.state {
                PeerState::Up => None,
                PeerState::Down(since) => Some(since),
            },
            by_us: peer.by_us,
            features: Features(peer.cp_features),
            smf_set: peer.smf_set.clone(),
            alternatives: peer.alternatives.clone(),
            told: peer.told,
            ..Details::default()
        }
    }

    /// End an association. The caller sees to its sessions.
    pub(crate) fn remove(&mut self, id: PeerId) -> Option<Peer> {
        let peer = self.by_id.remove(&id)?;
        if self.by_node.get(&peer.node_id) == Some(&id) {
            self.by_node.remove(&peer.node_id);
        }
        for source in &peer.sources {
            if self.by_source.get(source) == Some(&id) {
                self.by_source.remove(source);
            }
        }
        self.has_news = true;
        Some(peer)
    }

    /// Give an association a new identity, so that what it had so far can be deleted at leisure. What it shares with others of
    /// its set stays.
    pub(crate) fn renew(&mut self, id: PeerId) -> Option<PeerId> {
        let mut peer = self.by_id.remove(&id)?;
        let new = PeerId(self.new_id());
        peer.id = new;
        peer.sessions = 0;
        if self.members(peer.party).next().is_none() {
            peer.party = PartyId(new.0);
        }
        self.by_node.insert(peer.node_id.clone(), new);
        for source in &peer.sources {
            self.by_source.insert(*source, new);
        }
        self.by_id.insert(new, peer);
        self.has_news = true;
        Some(new)
    }

    /// Remember that this peer speaks from here. Returns whether it has spoken from no port of this address before: requests from
    /// other ports find it by the address.
    pub(crate) fn learn_source(&mut self, id: PeerId, from: SocketAddr) -> bool {
        if self.by_source.get(&from) == Some(&id) {
            return false;
        }
        let Some(peer) = self.by_id.get_mut(&id) else {
            return false;
        };
        if peer.sources.contains(&from) {
            // Another association may have spoken from here in between.
            self.by_source.insert(from, id);
            self.has_news = true;
            return false;
        }
        let is_new = peer.sources.iter().all(|source| source.ip() != from.ip());
        if peer.sources.len() == SOURCES_MAX {
            // Whoever else says its Node ID does not crowd out the SMF itself.
            let own = peer.address.ip();
            let other = (peer.sources.iter()).position(|source| source.ip() != own);
            let forgotten = peer.sources.remove(other.unwrap_or(0));
            if self.by_source.get(&forgotten) == Some(&id) {
                self.by_source.remove(&forgotten);
            }
        }
        peer.sources.push(from);
        self.by_source.insert(from, id);
        self.has_news = true;
        is_new
    }
}

/// A peer, as shown to operators.
#[derive(Clone, Copy, Debug)]
pub struct PeerView<'a> {
    /// Node ID.
    pub node_id: &'a NodeId,
    /// Address that our requests go to.
    pub address: SocketAddr,
    /// Does it answer?
    pub state: PeerState,
    /// When the association was set up.
    pub since: Time,
    /// When the last message of it came.
    pub heard: Time,
    /// Its Recovery Time Stamp: NTP seconds.
    pub recovery: Option<u32>,
    /// Its sessions.
    pub sessions: usize,
    /// Whether we asked for the association, or the SMF did.
    pub by_us: bool,
}

impl Peer {
    pub(crate) fn party(&self) -> PartyId {
        self.party
    }

    /// Whether the association is held with this address, or its Node ID is this address.
    fn is_at(&self, ip: IpAddr) -> bool {
        self.address.ip() == ip || self.node_id.address() == Some(ip)
    }

    /// The part of it that its sessions go by.
    pub(crate) fn smf(&self) -> Smf {
        let silent_since = match self.state {
            PeerState::Up => None,
            PeerState::Down(_) => Some(self.heard),
        };
        Smf {
            party: self.party,
            silent_since,
            alternatives: self.alternatives.clone(),
        }
    }

    pub(crate) fn view(&self) -> PeerView<'_> {
        PeerView {
            node_id: &self.node_id,
            address: self.address,
            state: self.state,
            since: self.since,
            heard: self.heard,
            recovery: self.recovery,
            sessions: self.sessions,
            by_us: self.by_us,
        }
    }
}
