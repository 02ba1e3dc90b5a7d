//! Holdings and shares of SMFs, for operators.

use compiled::{CapacityId, Resource, Tables};

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::core::Core;
use crate::node::peer::{Peer, PeerView};

/// An SMF, and what it holds.
#[derive(Clone, Debug)]
pub struct SmfView<'a> {
    /// Which; none: emergency sessions, of whatever SMF.
    pub peer: Option<PeerView<'a>>,
    /// Since its last message.
    pub silent_for: Option<std::time::Duration>,
    /// Its part of each resource, in the order of [`Resource`].
    pub parts: Vec<Part>,
    /// Applications with PFDs that it, or its set, has provisioned, and of how many it is sure.
    pub applications: (usize, usize),
}

/// Part of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The resource.
    pub of: Resource,
    /// Held.
    pub held: u64,
    /// Sure, for the SMF or the SMFs of its set together.
    pub share: u64,
    /// All that there is.
    pub whole: u64,
}

impl<T: Tables> Core<T> {
    /// Each SMF's holdings and shares, in the order in which they were associated, after this one; the last is of emergency
    /// sessions, where there is a reserve for such.
    pub fn smfs_after(
        &self,
        now: Time,
        after: Option<PeerId>,
    ) -> impl Iterator<Item = (PeerId, SmfView<'_>)> {
        let shares = self.node.shares();
        let most = self.config.limits.pfd_applications as u64;
        let smfs = self.peers_after(after).map(move |(id, peer)| {
            let party = self.node.peers().get(id).map(Peer::party);
            let applications = |party| {
                let share = shares.share_for(party, most) as usize;
                (self.node.applications_of(party), share)
            };
            let view = SmfView {
                silent_for: Some(now.since(peer.heard)),
                parts: self.parts_of(id),
                applications: party.map(applications).unwrap_or_default(),
                peer: Some(peer),
            };
            (id, view)
        });
        let has_reserve = self.config.limits.emergency_sessions > 0;
        let emergency = has_reserve.then(|| {
            let view = SmfView {
                peer: None,
                silent_for: None,
                parts: self.parts_of(PeerId::EMERGENCY),
                applications: (0, 0),
            };
            (PeerId::EMERGENCY, view)
        });
        smfs.chain(emergency)
    }

    fn parts_of(&self, peer: PeerId) -> Vec<Part> {
        let ledger = self.shard.ledger();
        let held = ledger.holding(peer);
        let capacities = (1..=u8::MAX).map(|id| Resource::Guaranteed(CapacityId(id)));
        let resources = Resource::COUNTED.into_iter().chain(capacities);
        let whole = |of| match of {
            Resource::Sessions => Some(self.config.limits.sessions.into()),
            of => self.shard.tables().room(of),
        };
        let parts = resources.filter_map(|of| {
            let whole = whole(of)?;
            Some(Part {
                of,
                held: held.of(of),
                share: ledger.share(peer, whole),
                whole,
            })
        });
        parts.collect()
    }
}
