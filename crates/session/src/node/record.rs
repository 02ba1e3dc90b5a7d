//! A node as one record of octets: all that is known of its SMFs, PFDs and GTP-U peers, and of what they were told.
//!
//! Two octets of version, then fields by their tags ([`tagged!`]). Sessions are records of their own
//! ([`shard::record`](crate::shard::record)) and find their SMF by its Node ID; so are PFDs, of which there may be much, where changes are
//! kept one by one: two octets of version, and the value of the field. Times are those of the caller's clock, which goes on.
//!
//! Not in it: requests under way, which SMFs or we repeat, answers kept for repeated requests, releases that are being prepared,
//! and sessions that are being deleted because their association is over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::base::node_id::NodeId;
use crate::base::octets::{put, take};
use crate::base::pfd::Property;
use crate::base::record_error::{RecordError, behind_version, hold};
use crate::base::tagged::{Later, Tagged, tagged};
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::node::load::Announced;
use crate::node::paths::PathRecord;
use crate::node::peer::{ALTERNATIVES_MAX, Details, SOURCES_MAX, SmfSet};
use crate::node::untold::LostSession;
use crate::node::{Node, Timer};
use crate::rules::places::Names;
use crate::shard::record::Record;

/// Of the layout; what a tag can tell does not raise it.
const VERSION: u16 = 1;

/// A record has at most so many octets: several times what a node takes that uses all limits.
const OCTETS_MAX: usize = 1 << 26;

/// More than any configuration allows.
const ASSOCIATIONS_MAX: usize = 1 << 16;

/// A node, apart from where it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// Our Node ID.
    us: Option<NodeId>,
    /// Our Recovery Time Stamp.
    recovery: u32,
    /// Number of the last request of ours.
    sequence: u32,
    load: Announced,
    reduction: Announced,
    /// In the order in which they were set up.
    associations: Box<[Association]>,
    /// Of parties that have some.
    pfds: Box<[PartyPfds]>,
    paths: Box<[PathRecord]>,
    /// Generation of SEIDs that no session has had.
    generation: u32,
    /// Contents of all places of the configuration.
    names: Names,
    /// Processes before the one that wrote it that had the same Recovery Time Stamp.
    succession: u32,
    later: Later,
}

tagged!(NodeRecord {
    1: us,
    2: recovery,
    3: sequence,
    4: load,
    5: reduction,
    6: associations,
    7: pfds,
    8: paths,
    9: generation,
    10: names,
    11: succession,
});

/// An association, and whom it is with.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Association {
    node_id: NodeId,
    /// Address that our requests go to.
    address: SocketAddr,
    is: Details,
}

/// Application ID and PFDs.
type Application = (Box<str>, Box<[Property]>);

/// PFDs of an SMF, or of its set.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartyPfds {
    /// Any SMF of the set.
    smf: NodeId,
    /// In alphabetical order.
    applications: Box<[Application]>,
}

/// Requests of ours between two records of a node, at most.
pub(crate) const REQUESTS_AHEAD: u32 = 1 << 16;
/// Generations of SEIDs, likewise.
pub(crate) const GENERATIONS_AHEAD: u32 = 1 << 10;
/// Requests, and sessions, that the end of a host takes with it, at most.
const UNSEEN: u32 = 1 << 20;
/// Changes of the load that SMFs hear of: one a second, and a record is not much older.
const LOADS_AHEAD: u32 = 16;

/// Why a node cannot go on as a record says. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresumed {
    /// Its Node ID was another one.
    #[error("its Node ID was {0}")]
    NodeId(NodeId),
    /// SMFs know another Recovery Time Stamp than this one was started with.
    #[error("its Recovery Time Stamp was {0}")]
    Recovery(u32),
    /// There are associations here already.
    #[error("there are associations already")]
    InUse,
}

impl NodeRecord {
    /// The record that these octets are.
    pub fn read(octets: &[u8]) -> Result<Self, RecordError> {
        let mut rest = behind_version(octets, VERSION, OCTETS_MAX)?;
        let record: Self = take(&mut rest)?;
        let mut unknown = record.associations.iter().map(|of| of.is.unknown());
        if let Some(tag) = record.unknown().or_else(|| unknown.find_map(|tag| tag)) {
            return Err(RecordError::UnknownField(tag));
        }
        // No field that says nothing, and no number longer than it need be.
        if record.write() != octets {
            return Err(RecordError::Malformed);
        }
        record.is_possible().map_err(RecordError::Impossible)?;
        Ok(record)
    }

    /// Its PFDs are those that these octets are, a record of their own. On an error, nothing has changed.
    pub fn read_pfds(&mut self, octets: &[u8]) -> Result<(), RecordError> {
        let mut rest = behind_version(octets, VERSION, OCTETS_MAX)?;
        let pfds: Box<[PartyPfds]> = take(&mut rest)?;
        if write_pfds(&pfds) != octets {
            return Err(RecordError::Malformed);
        }
        // One of the two records may be older than the other: then SMFs may be gone since, or have joined a set that has its own.
        let mut owners = BTreeSet::new();
        let smfs = self.associations.iter();
        let smfs = smfs.map(|of| (&of.node_id, of.is.smf_set.as_ref()));
        let smfs: BTreeMap<_, _> = smfs.collect();
        let is_of_one = |of: &PartyPfds| {
            let set = smfs.get(&of.smf);
            set.is_some_and(|set| {
                let alone = set.is_none().then(|| of.smf.clone());
                owners.insert((*set, alone))
            })
        };
        let pfds = pfds.into_iter().filter(is_of_one).collect();
        let before = std::mem::replace(&mut self.pfds, pfds);
        self.is_possible().map_err(|why| {
            self.pfds = before;
            RecordError::Impossible(why)
        })
    }

    /// Its octets.
    pub fn write(&self) -> Vec<u8> {
        let mut octets = VERSION.to_be_bytes().to_vec();
        put(self, &mut octets);
        octets
    }

    /// See [`Core::node_record`](crate::Core::node_record).
    ///
    /// generation: of SEIDs, which no session has had. names: contents of all places of the configuration,
    /// if records of sessions go by those, and by numbers of associations; PFDs are a record of their own then, and not in this one.
    pub(crate) fn of(node: &Node, generation: u32, names: Option<Names>) -> Self {
        let [load, reduction] = node.load.announced();
        let heartbeats = node.timers.iter().filter_map(|(at, timer)| match timer {
            Timer::Heartbeat(id) => Some((*id, *at)),
            _ => None,
        });
        let heartbeats: BTreeMap<_, _> = heartbeats.collect();
        let associations = node.peers.iter().map(|peer| {
            let at = heartbeats.get(&peer.id);
            // A request that waits for its answer is sent anew.
            let at = at.map(|at| if peer.heartbeat_waits { Time(0) } else { *at });
            let mut is = node.peers.details(peer);
            is.heartbeat_at = at;
            is.number = names.as_ref().map_or(0, |_| peer.id.0);
            Association {
                node_id: peer.node_id.clone(),
                address: peer.address,
                is,
            }
        });
        let pfds = match names {
            Some(_) => Box::default(),
            None => pfds_of(node),
        };
        Self {
            us: Some(node.n4.node_id().to_node_id()),
            recovery: node.n4.recovery(),
            sequence: node.n4.sequence(),
            load,
            reduction,
            associations: associations.collect(),
            pfds,
            paths: node.paths.records(),
            generation,
            succession: names.as_ref().map_or(0, |_| node.n4.succession()),
            names: names.unwrap_or_default(),
            later: Later::default(),
        }
    }

    /// See [`Core::resume`](crate::Core::resume).
    pub(crate) fn resume(&self, node: &mut Node) -> Result<(), Unresumed> {
        match &self.us {
            Some(us) if *us != node.n4.node_id().to_node_id() => {
                return Err(Unresumed::NodeId(us.clone()));
            }
            _ if self.recovery != node.n4.recovery() => {
                return Err(Unresumed::Recovery(self.recovery));
            }
            _ if node.peers.len() > 0 => return Err(Unresumed::InUse),
            _ => {}
        }
        node.n4.go_on(self.succession(), self.sequence);
        node.load.go_on([self.load, self.reduction]);
        for Association {
            node_id,
            address,
            is,
        } in &self.associations
        {
            let id = node.peers.go_on(node_id.clone(), *address, is);
            if let Some(since) = is.silent_since {
                let retention = node.config.path_failure_retention;
                node.set_timer(since, retention, Timer::Retention(id));
            }
            if !node.config.heartbeat_interval.is_zero() {
                let at = is.heartbeat_at.unwrap_or_default();
                node.timers.insert((at, Timer::Heartbeat(id)));
            }
            node.join_set(id, is.smf_set.clone());
        }
        for PartyPfds { smf, applications } in &self.pfds {
            let party = node.peers.by_node(smf).and_then(|id| node.peers.party(id));
            let Some(party) = party else { continue };
            for (name, properties) in applications {
                node.tell(ToShard::Pfds(party, name.clone(), properties.clone()));
                let all = node.pfds.of.entry(party).or_default();
                all.keep(name.clone(), properties.clone());
            }
        }
        node.tell(ToShard::Fit);
        node.paths.go_on(&self.paths);
        Ok(())
    }

    /// Of a node that goes on for a while before it is written again: numbers that it will give out are not given out anew.
    #[must_use]
    pub(crate) fn ahead(mut self) -> Self {
        self.sequence = self.sequence.wrapping_add(REQUESTS_AHEAD);
        self.generation = self.generation.wrapping_add(GENERATIONS_AHEAD);
        self.load.skip(LOADS_AHEAD);
        self.reduction.skip(LOADS_AHEAD);
        self
    }

    /// Of a node that has gone on, for a while that nobody has seen, behind this record: none of its numbers are given out anew, nor are those
    /// of another one that goes on with the same record, as a rule. `random`: another one each time.
    #[must_use]
    pub fn behind_unseen_changes(mut self, random: u64) -> Self {
        let unseen = UNSEEN + random as u32 % UNSEEN;
        self.sequence = self.sequence.wrapping_add(unseen);
        self.generation = self.generation.wrapping_add(unseen);
        self.succession = self.succession.wrapping_add((random >> 32) as u32 % 255);
        self.load.skip(UNSEEN);
        self.reduction.skip(UNSEEN);
        self
    }

    /// A session of this node, as it wrote it for itself.
    pub fn session(&self, octets: &[u8]) -> Result<Record, RecordError> {
        let smf_of = |number| self.association(number).cloned();
        Record::read_within(octets, smf_of, &self.names)
    }

    /// The session that these octets are the record of, whole as they were written, as far as its SMF has to be told of it: also where
    /// it cannot be taken in, or has fields of a later version.
    pub fn lost_session(&self, octets: &[u8]) -> Option<LostSession> {
        let (association, cp_seid, controller) = Record::owner(octets)?;
        Some(LostSession {
            smf: self.association(association)?.clone(),
            cp_seid,
            controller,
        })
    }

    /// SMF of the association of this number.
    pub(crate) fn association(&self, number: u32) -> Option<&NodeId> {
        let all = &self.associations;
        let at = all.binary_search_by_key(&number, |of| of.is.number).ok()?;
        Some(&all.get(at)?.node_id)
    }

    /// Processes before the one that goes on with it.
    pub(crate) fn succession(&self) -> u32 {
        self.succession.wrapping_add(1)
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Our Recovery Time Stamp, as SMFs know it.
    pub fn recovery(&self) -> u32 {
        self.recovery
    }

    fn is_possible(&self) -> Result<(), &'static str> {
        hold(
            self.us.as_ref().is_some_and(NodeId::is_legal),
            "no Node ID of ours",
        )?;
        let few = self.associations.len() <= ASSOCIATIONS_MAX;
        hold(few, "more associations than there can be")?;
        let mut smfs = BTreeMap::new();
        for Association { node_id, is, .. } in &self.associations {
            hold(node_id.is_legal(), "a Node ID that is none")?;
            let set = is.smf_set.as_ref();
            let is_new = smfs.insert(node_id, set).is_none();
            hold(is_new, "two associations of one SMF")?;
            let few = is.sources.len() <= SOURCES_MAX && is.alternatives.len() <= ALTERNATIVES_MAX;
            hold(few, "an SMF of too many addresses")?;
            hold(
                set.is_none_or(SmfSet::is_canonical),
                "an SMF set in another form",
            )?;
        }
        let ordered = (self.associations).is_sorted_by_key(|of| of.is.number);
        hold(ordered, "associations out of order")?;
        let mut owners = BTreeSet::new();
        for PartyPfds { smf, applications } in &self.pfds {
            let set = smfs.get(smf).ok_or("PFDs of an SMF that is not there")?;
            let owner = (*set, set.is_none().then_some(smf));
            hold(owners.insert(owner), "PFDs of an SMF in two places")?;
            let sorted = applications.is_sorted_by(|(a, _), (b, _)| a < b);
            hold(sorted, "applications out of order")?;
            let whole = |(name, pfds): &Application| {
                let has_text = pfds.iter().all(|pfd| !pfd.text.is_empty());
                !name.is_empty() && !pfds.is_empty() && has_text
            };
            hold(applications.iter().all(whole), "an application of nothing")?;
        }
        hold(self.names.are_possible(), "a name of something else")?;
        let paths = self.paths.is_sorted_by(|a, b| a.ends < b.ends);
        hold(paths, "paths out of order")
    }
}

/// See [`NodeRecord::read_pfds`].
pub(crate) fn pfds_record(node: &Node) -> Vec<u8> {
    write_pfds(&pfds_of(node))
}

fn write_pfds(pfds: &[PartyPfds]) -> Vec<u8> {
    let mut octets = VERSION.to_be_bytes().to_vec();
    put(&pfds, &mut octets);
    octets
}

fn pfds_of(node: &Node) -> Box<[PartyPfds]> {
    let parties = node.pfds.of.iter();
    let parties = parties.filter_map(|(party, pfds)| {
        Some(PartyPfds {
            smf: node.peers.members(*party).next()?.node_id.clone(),
            applications: pfds.all().collect(),
        })
    });
    parties.collect()
}
