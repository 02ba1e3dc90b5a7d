//! Questions and orders of a node to its shards.

use std::net::IpAddr;

use crate::base::ids::{PartyId, PeerId};
use crate::base::node_id::NodeId;
use crate::base::pfd::Property;
use crate::base::refusal::Refusal;
use crate::base::shares::Shares;
use crate::exchange::n4::Turn;
use crate::node::peer::Peers;

/// What follows when all usage of an association is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The SMF hears of it, and releases.
    Tell,
    /// The SMF hears of it, and is asked to release.
    AskForRelease,
}

/// The shards of a node, as the node sees them. `peers` is how its associations stand.
pub(crate) trait Shards {
    /// Sessions of this peer.
    fn sessions_of(&self, peer: PeerId) -> usize;

    /// No report to this peer is under way any more, nor waits.
    fn forget(&mut self, peer: PeerId);

    /// The sessions of this peer are no more, and are deleted step by step; `node_id`: whose the log says that they were.
    /// `true`: no session of any peer that is gone is left.
    fn disown(
        &mut self,
        turn: &mut Turn<'_>,
        peers: &Peers,
        peer: PeerId,
        node_id: Option<NodeId>,
    ) -> bool;

    /// Whether no session of a peer that is gone is left.
    fn is_swept(&self) -> bool;

    /// A peer that was silent answers again: what waits for it may go.
    fn send_waiting(&mut self, turn: &mut Turn<'_>, peers: &Peers, peer: PeerId);

    /// All usage of a peer is to be reported, and then this is to follow.
    fn begin_finishing(&mut self, peer: PeerId, then: Then);

    /// Peers some of whose sessions have not been asked for their usage yet.
    fn unfinished(&self) -> Vec<PeerId>;

    /// Some more sessions of a peer are asked for their usage.
    fn finish_some(&mut self, turn: &mut Turn<'_>, peers: &Peers, peer: PeerId);

    /// A peer all of whose usage is reported, once.
    fn finished(&mut self) -> Option<(PeerId, Then)>;

    /// We are leaving.
    fn close(&mut self);

    /// No report is under way any more, nor waits.
    fn drop_reports(&mut self);

    /// The sessions of this peer go by the PFDs of this party from now on.
    fn join(&mut self, peer: PeerId, party: PartyId);

    /// Shares are these from now on.
    fn set_shares(&mut self, shares: Shares);

    /// This party has neither associations nor PFDs any more.
    fn forget_party(&mut self, party: PartyId);

    /// Whether the PFDs of an application may become these.
    fn allow(&self, party: PartyId, application: &str, pfds: &[Property]) -> Result<(), Refusal>;

    /// They are these from now on.
    fn provision(&mut self, party: PartyId, application: &str, pfds: &[Property]);

    /// A step towards sessions that go by the PFDs as they are now.
    fn refit(&mut self, turn: &mut Turn<'_>);

    /// Each GTP-U path in use: their end, ours.
    fn gtpu_paths(&self, each: &mut dyn FnMut(IpAddr, IpAddr));
}
