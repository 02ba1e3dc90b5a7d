//! The UPF as its SMFs see it: N4, associations, heartbeats, PFDs, GTP-U paths, load.
//!
//! A [`Node`] knows of sessions only what its shards tell it ([`ToNode`]), and shards know of associations what it tells them
//! ([`ToShard`]).

pub(crate) mod association;
pub mod features;
pub(crate) mod load;
pub(crate) mod path_reports;
pub mod paths;
pub mod peer;
pub(crate) mod pfd_management;
pub mod pfds;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod requests;
pub(crate) mod sessions;
mod sets;
pub(crate) mod untold;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use compiled::Source;
use pfcp::ie::CpFunctionFeatures;

use crate::base::ids::PeerId;
use crate::base::node_id::NodeId;
use crate::base::time::Time;
use crate::between::to_shard::ToShard;
use crate::exchange::n4::N4;
use crate::exchange::outbox::Outbox;
use crate::exchange::requests::Due;
use crate::node::load::{Load, Notice};
use crate::node::paths::Paths;
use crate::node::peer::{Peer, PeerState, Peers};
use crate::node::pfds::Pfds;
use crate::node::untold::Untold;
use crate::rules::config::Config;

/// N4, associations, heartbeats, PFDs, GTP-U paths and load.
#[derive(Debug)]
pub(crate) struct Node {
    config: Arc<Config>,
    n4: N4,
    peers: Peers,
    timers: BTreeSet<(Time, Timer)>,
    load: Load,
    pfds: Pfds,
    paths: Paths,
    closing: bool,
    /// Associations whose usage is being reported to the end.
    finishing: BTreeMap<PeerId, Then>,
    sweep: Sweep,
    /// Applications that PDRs of an association's sessions name.
    names: BTreeSet<(PeerId, Box<str>)>,
    orders: Orders,
}

/// Messages that shards have not heard yet.
#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<ToShard<'static>>,
    news: News,
}

/// Parts of a node that have changed since this was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    pub(crate) associations: bool,
    /// PFDs, or whose they are.
    pub(crate) pfds: bool,
}

impl Orders {
    fn put(&mut self, what: ToShard<'static>) {
        use ToShard::{Gone, HandOver, Pfds, Shares, Smf};
        match what {
            Smf(..) | Gone(_) | HandOver(..) | Shares(_) => self.news.associations = true,
            Pfds(..) => self.news.pfds = true,
            _ => {}
        }
        self.waiting.push_back(what);
    }
}

/// Next step when all usage of an association is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The SMF hears of it, and releases.
    Tell,
    /// The SMF hears of it, and is asked to release.
    AskForRelease,
}

/// Sessions that end without their peers: those of peers that are gone, which shards delete step by step, and those lost.
#[derive(Debug, Default)]
struct Sweep {
    /// Some may be left.
    is_on: bool,
    deleted: usize,
    /// Association that was the last to end.
    last_gone: Option<PeerId>,
    /// Node IDs of these peers, for the log of usage.
    gone: BTreeMap<PeerId, NodeId>,
    /// Sessions that could not be taken in, of peers that are to hear of it.
    untold: BTreeMap<PeerId, Untold>,
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

impl Node {
    /// `recovery`: our Recovery Time Stamp.
    pub(crate) fn new(config: &Arc<Config>, recovery: u32) -> Self {
        Self {
            n4: N4::new(config, recovery),
            peers: Peers::default(),
            timers: first_timers(config),
            load: Load::new(config.overload_at_percent, recovery),
            pfds: Pfds::default(),
            paths: Paths::new(config),
            closing: false,
            finishing: BTreeMap::new(),
            sweep: Sweep::default(),
            names: BTreeSet::new(),
            orders: Orders::default(),
            config: Arc::clone(config),
        }
    }

    /// The associations, to look at.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// N4, to look at.
    pub(crate) fn n4(&self) -> &N4 {
        &self.n4
    }

    /// N4, to count what never becomes a message.
    pub(crate) fn n4_mut(&mut self) -> &mut N4 {
        &mut self.n4
    }

    /// Something that shards have not heard yet.
    pub(crate) fn next_order(&mut self) -> Option<ToShard<'static>> {
        self.orders.waiting.pop_front()
    }

    /// Parts that have changed since this was last asked.
    pub(crate) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.orders.news)
    }

    /// PFDs are to be kept, though they are as they were.
    pub(crate) fn note_pfds(&mut self) {
        self.orders.news.pfds = true;
    }

    /// When something falls due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let due = [timer, self.next_echo(), self.n4.next_deadline()];
        due.into_iter().flatten().min()
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
        let before = self.load.announced();
        self.load.measured(busy, full);
        if self.load.announced() != before {
            self.peers.note_news();
        }
    }

    /// Other addresses may speak with us than before.
    pub(crate) fn note_sources(&mut self) {
        self.peers.note_news();
    }

    /// Associations whose requests may be answered elsewhere, by their addresses, if that may have changed since this was last asked.
    /// An SMF that is to hear of our load is served here.
    pub(crate) fn news_of_sources(&mut self) -> Option<Vec<Source>> {
        if !self.peers.take_news() {
            return None;
        }
        let allowed = self.peers.sources().into_iter();
        let allowed = allowed.filter(|(address, _)| self.config.allows(*address));
        let source = |(address, id): (IpAddr, PeerId)| {
            let peer = self.peers.get(id);
            let is_due = |peer: &Peer| self.load.has_news(peer.cp_features, &peer.told);
            Source {
                address,
                association: id.0,
                is_served: !peer.is_some_and(is_due),
            }
        };
        Some(allowed.map(source).collect())
    }

    /// Whether there is no room to keep one more session.
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.load.is_full = is_full;
    }

    /// The load that SMFs hear of, and by how much they are asked to do less, in percent.
    pub(crate) fn load(&self) -> (u8, u8) {
        (self.load.percent(), self.load.reduction())
    }

    /// Load and overload information for the next answer to this peer.
    pub(crate) fn notice(&mut self, id: PeerId) -> Notice {
        let load = &self.load;
        let notice = self.peers.get_mut(id).map_or(Notice::default(), |peer| {
            load.notice(peer.cp_features, &mut peer.told)
        });
        if notice != Notice::default() {
            self.peers.note_news();
        }
        notice
    }

    /// Does what is due: requests sent again or given up, timers, Echo Requests.
    pub(crate) fn advance(&mut self, now: Time, out: &mut Outbox) {
        while let Some(due) = self.n4.due(now, out) {
            match due {
                Due::Late(about, sequence) => self.tell(ToShard::Late(about, sequence)),
                Due::GivenUp(purpose) => self.on_no_answer(now, out, purpose),
                Due::Again(_) => {}
            }
        }
        self.keep_timers(now, out);
        self.advance_paths(now, out);
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
        self.orders.news.associations |= self.peers.learn_source(id, from);
        if let Some(peer) = self.peers.get_mut(id) {
            peer.heard = now;
            if peer.state != PeerState::Up {
                self.tell_smf(id);
            }
        }
    }

    /// Shards hear of this, when the present message has been dealt with.
    fn tell(&mut self, what: ToShard<'static>) {
        self.orders.put(what);
    }

    /// Sessions go by an association as it is now.
    fn tell_smf(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get(id) {
            self.tell(ToShard::Smf(id, peer.smf()));
        }
    }

    /// Associations of the set of `id` that are held with one of these addresses are held with another one from now on.
    pub(crate) fn move_to(&mut self, id: PeerId, from: &[IpAddr], to: IpAddr) {
        for owner in self.peers.ids() {
            let shared = self.peers.shares(owner, id);
            if let Some(peer) = self.peers.get_mut(owner).filter(|_| shared)
                && from.contains(&peer.address.ip())
            {
                peer.address.set_ip(to);
            }
        }
    }

    fn set_timer(&mut self, now: Time, delay: Duration, timer: Timer) {
        self.timers.insert((now.after(delay), timer));
    }
}

/// Timers that are set from the beginning.
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
