//! SMFs, as far as a shard goes by them.

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::base::ids::{PartyId, PeerId};
use crate::base::time::Time;

/// An association, as far as its sessions go by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Smf {
    /// By whose PFDs and shares its sessions go; the others of its set, which may control them (TS 29.244, 5.22), are of the
    /// same.
    pub(crate) party: PartyId,
    /// It answers no heartbeat, and was heard last at this time.
    pub(crate) silent_since: Option<Time>,
    /// Other addresses that may control its sessions.
    pub(crate) alternatives: Vec<IpAddr>,
}

/// Source of a request about a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) from: SocketAddr,
    /// Associations whose requests come from there.
    pub(crate) peers: SmallVec<[PeerId; 2]>,
}

impl Sender {
    /// The association, if it can be only one.
    pub(crate) fn peer(&self) -> Option<PeerId> {
        let (first, others) = self.peers.split_first()?;
        others.iter().all(|other| other == first).then_some(*first)
    }
}
