//! The UPF as its SMFs see it: associations, heartbeats, PFDs, GTP-U paths, load.
//!
//! A [`Node`] knows of sessions only what its [`Shards`] tell it: how many there are of a peer.

pub(crate) mod association;
pub mod features;
pub(crate) mod load;
pub mod paths;
pub mod peer;
pub mod pfds;
pub(crate) mod release;
pub(crate) mod shards;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pfcp::ie::CpFunctionFeatures;
use pfcp::{Cause, Writer};

use crate::base::ids::PeerId;
use crate::base::node_id::{NodeId, OwnNodeId};
use crate::base::refusal::Refusal;
use crate::base::time::Time;
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Turn;
use crate::node::load::{Load, Notice};
use crate::node::paths::Paths;
use crate::node::peer::{PeerView, Peers};
use crate::node::pfds::Pfds;
use crate::rules::config::Config;

/// Associations, heartbeats, PFDs, GTP-U paths and load.
#[derive(Debug)]
pub(crate) struct Node {
    config: Arc<Config>,
    peers: Peers,
    timers: BTreeSet<(Time, Timer)>,
    load: Load,
    pfds: Pfds,
    paths: Paths,
    closing: bool,
}

/// Something that falls due. A timer whose peer is gone does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Send a Heartbeat Request, and set this timer again.
    Heartbeat(PeerId),
    /// A silent peer's sessions are no longer kept.
    Retention(PeerId),
    /// A peer had its time to release the association.
    ReleaseBy(PeerId),
    /// Try to associate with a configured SMF.
    Setup(usize),
    /// See which GTP-U paths are in use.
    Paths,
}

/// What becomes of a request about a session, before its session is looked at.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is a request of this peer, whose answer says this of our load.
    Admitted(PeerId, Notice),
    /// There is more to do than can be done (TS 29.244, 6.2.4.4.2). Not a complaint: the SMF is not at fault.
    Shed(Notice),
    Refused(Cause),
}

impl Node {
    /// `recovery`: our Recovery Time Stamp.
    pub(crate) fn new(config: &Arc<Config>, recovery: u32) -> Self {
        Self {
            peers: Peers::default(),
            timers: first_timers(config),
            load: Load::new(config.overload_at_percent, recovery),
            pfds: Pfds::default(),
            paths: Paths::new(config),
            closing: false,
            config: Arc::clone(config),
        }
    }

    /// The associations, to look at.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// One association as operators see it, and so many sessions of it.
    pub(crate) fn view(&self, id: PeerId, sessions: usize) -> Option<PeerView<'_>> {
        self.peers.get(id).map(|peer| peer.view(sessions))
    }

    /// When something falls due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(due, _)| *due);
        timer.into_iter().chain(self.next_echo()).min()
    }

    /// A timer that has run out is no more.
    fn next_timer(&mut self, now: Time) -> Option<Timer> {
        let &(due, timer) = self.timers.first()?;
        (due <= now).then(|| {
            self.timers.pop_first();
            timer
        })
    }

    /// How busy the node is, and how full its fullest table, in percent.
    pub(crate) fn set_load(&mut self, busy: u8, full: u8) {
        self.load.measured(busy, full);
    }

    /// The load that SMFs hear of, and by how much they are asked to do less, in percent.
    pub(crate) fn load(&self) -> (u8, u8) {
        (self.load.percent(), self.load.reduction())
    }

    /// What the next answer to this peer says of our load.
    pub(crate) fn notice(&mut self, id: PeerId) -> Notice {
        let load = &self.load;
        self.peers.get_mut(id).map_or(Notice::default(), |peer| {
            load.notice(peer.cp_features, &mut peer.told)
        })
    }

    /// Whether the one who sends an establishment under this Node ID is associated, and may have a session now.
    pub(crate) fn admit(&mut self, now: Time, incoming: &Incoming, node_id: &NodeId) -> Admission {
        let peer = self
            .peers
            .whose_session(node_id, incoming.from)
            .filter(|id| self.is_ready(*id));
        let Some(peer) = peer else {
            return Admission::Refused(Cause::NO_ESTABLISHED_PFCP_ASSOCIATION);
        };
        self.spoke(now, peer, incoming.from);
        if self.closing {
            return Admission::Refused(Cause::REQUEST_REJECTED);
        }
        let notice = self.notice(peer);
        if self.wants_overload_control(peer) && self.load.sheds(incoming.priority) {
            return Admission::Shed(notice);
        }
        Admission::Admitted(peer, notice)
    }

    /// An SMF without overload control would only repeat what is refused.
    fn wants_overload_control(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|peer| peer.cp_features.contains(CpFunctionFeatures::OVRL))
    }

    /// Associated, and told so.
    fn is_ready(&self, id: PeerId) -> bool {
        self.peers
            .get(id)
            .is_some_and(|peer| peer.deferred.is_none())
    }

    /// A peer has sent something from here.
    pub(crate) fn spoke(&mut self, now: Time, id: PeerId, from: SocketAddr) {
        self.peers.learn_source(id, from);
        if let Some(peer) = self.peers.get_mut(id) {
            peer.heard = now;
        }
    }

    /// Associations of the set of `id` that are held with one of these addresses are held with another one from now on.
    pub(crate) fn move_to(&mut self, id: PeerId, from: &[std::net::IpAddr], to: std::net::IpAddr) {
        for owner in self.peers.ids() {
            let shared = self.peers.shares(owner, id);
            if let Some(peer) = self.peers.get_mut(owner).filter(|_| shared)
                && from.contains(&peer.address.ip())
            {
                peer.address.set_ip(to);
            }
        }
    }

    fn answer(
        &self,
        turn: &mut Turn<'_>,
        incoming: &Incoming,
        cause: Cause,
        write: impl FnOnce(&mut Writer<'_>, &OwnNodeId),
    ) {
        turn.answer(
            self.peers.by_source(incoming.from),
            incoming,
            0,
            cause,
            write,
        );
    }

    fn refuse(&self, turn: &mut Turn<'_>, incoming: &Incoming, refusal: Refusal) {
        turn.refuse(self.peers.by_source(incoming.from), incoming, 0, refusal);
    }

    fn refuse_undecodable(&self, turn: &mut Turn<'_>, incoming: &Incoming, error: &pfcp::Error) {
        turn.refuse_undecodable(self.peers.by_source(incoming.from), incoming, 0, error);
    }

    fn set_timer(&mut self, now: Time, delay: Duration, timer: Timer) {
        self.timers.insert((now.after(delay), timer));
    }
}

/// What is due from the beginning.
fn first_timers(config: &Config) -> BTreeSet<(Time, Timer)> {
    let paths = !config.echo_interval.is_zero();
    paths
        .then_some((Time(0), Timer::Paths))
        .into_iter()
        .collect()
}

impl Timer {
    fn peer(self) -> Option<PeerId> {
        match self {
            Self::Heartbeat(id) | Self::Retention(id) | Self::ReleaseBy(id) => Some(id),
            Self::Setup(_) | Self::Paths => None,
        }
    }
}
