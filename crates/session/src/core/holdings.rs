//! Who holds how much of what there is for all, for operators.

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::compiled::{CapacityId, Tables};
use crate::core::Core;
use crate::node::peer::PeerView;
use crate::node::slices::Slices;
use crate::room::Resource;

/// An SMF, and what it holds.
#[derive(Clone, Debug)]
pub struct SmfView<'a> {
    /// Which; none: emergency sessions, of whatever SMF.
    pub peer: Option<PeerView<'a>>,
    /// Since its last message.
    pub silent_for: Option<std::time::Duration>,
    /// Of each resource, in the order of [`Resource`].
    pub parts: Vec<Part>,
    /// Applications with PFDs that it, or its set, has provisioned, and of how many it is sure.
    pub applications: (usize, usize),
}

/// Part of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Of what.
    pub of: Resource,
    /// Held.
    pub held: u64,
    /// Sure, for the SMF or the SMFs of its set together.
    pub share: u64,
    /// All that there is.
    pub whole: u64,
}

impl<T: Tables> Core<T> {
    /// What each SMF holds and is sure of, in the order in which they were associated; the last is what emergency sessions have,
    /// where there is a reserve for such.
    pub fn smfs(&self, now: Time) -> Vec<SmfView<'_>> {
        let shares = self.node.shares();
        let most = self.config.limits.pfd_applications as u64;
        let mut all: Vec<SmfView<'_>> = Vec::new();
        for peer in self.node.peers().iter() {
            let view = peer.view(self.slice.sessions_of(peer.id));
            let share = shares.share_for(peer.party(), most) as usize;
            all.push(SmfView {
                silent_for: Some(now.since(view.heard)),
                parts: self.parts_of(peer.id),
                applications: (self.node.applications_of(peer.party()), share),
                peer: Some(view),
            });
        }
        if self.config.limits.emergency_sessions > 0 {
            all.push(SmfView {
                peer: None,
                silent_for: None,
                parts: self.parts_of(PeerId::EMERGENCY),
                applications: (0, 0),
            });
        }
        all
    }

    fn parts_of(&self, peer: PeerId) -> Vec<Part> {
        let ledger = self.slice.ledger();
        let held = ledger.holding(peer);
        let capacities = (1..=u8::MAX).map(|id| Resource::Guaranteed(CapacityId(id)));
        let resources = Resource::COUNTED.into_iter().chain(capacities);
        let whole = |of| match of {
            Resource::Sessions => Some(self.config.limits.sessions.into()),
            of => self.slice.tables().room(of),
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
