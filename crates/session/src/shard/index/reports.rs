//! Session Reports under way and in waiting, by SMF.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pfcp::ie::ReportType;

use crate::base::ids::PeerId;

/// Reports to one SMF that wait until earlier ones are answered.
const WAITING_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) seid: u64,
    pub(crate) report: ReportType,
    pub(crate) ies: Box<[u8]>,
}

#[derive(Debug, Default)]
struct OfPeer {
    unanswered: usize,
    waiting: VecDeque<Waiting>,
    /// Sessions, by our SEID, whose usage waits for its turn; what it says is worked out when that comes.
    usage: VecDeque<u64>,
    /// The same, so that each is there once: a session may go to another SMF and come back.
    has_usage: BTreeSet<u64>,
}

impl OfPeer {
    fn is_idle(&self) -> bool {
        self.unanswered == 0 && self.waiting.is_empty() && self.usage.is_empty()
    }
}

/// Reports under way and in waiting, by SMF. An SMF that has neither has no place here.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    peers: BTreeMap<PeerId, OfPeer>,
    /// To all peers.
    pub(crate) under_way: usize,
    /// One had to wait because as many as may be were under way.
    pub(crate) is_stalled: bool,
}

impl Reports {
    /// The association is over.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        let forgotten = self.peers.remove(&peer);
        self.under_way -= forgotten.map_or(0, |of_peer| of_peer.unanswered);
    }

    /// We are leaving.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn sent(&mut self, peer: PeerId) {
        self.peers.entry(peer).or_default().unanswered += 1;
        self.under_way += 1;
    }

    /// The usage of a session takes its place in the queue.
    pub(crate) fn wait_for_usage(&mut self, peer: PeerId, seid: u64) {
        let of_peer = self.peers.entry(peer).or_default();
        if of_peer.has_usage.insert(seid) {
            of_peer.usage.push_back(seid);
        }
    }

    pub(crate) fn next_usage(&mut self, peer: PeerId) -> Option<u64> {
        let of_peer = self.peers.get_mut(&peer)?;
        let seid = of_peer.usage.pop_front()?;
        of_peer.has_usage.remove(&seid);
        Some(seid)
    }

    pub(crate) fn put_usage_back(&mut self, peer: PeerId, seid: u64) {
        let of_peer = self.peers.entry(peer).or_default();
        if of_peer.has_usage.insert(seid) {
            of_peer.usage.push_front(seid);
        }
    }

    /// Peers for whom something waits, and who have nothing under way whose answer would bring it on.
    pub(crate) fn stalled(&self) -> Vec<PeerId> {
        let stalled = self.peers.iter();
        let stalled = stalled.filter(|(_, of_peer)| of_peer.unanswered == 0 && !of_peer.is_idle());
        stalled.map(|(peer, _)| *peer).collect()
    }

    /// Whether nothing is under way nor waits.
    pub(crate) fn is_idle(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_none_or(OfPeer::is_idle)
    }

    /// Sessions whose usage waits.
    pub(crate) fn usage_waiting(&self) -> usize {
        self.peers.values().map(|of_peer| of_peer.usage.len()).sum()
    }

    pub(crate) fn has_waiting(&self, peer: PeerId) -> bool {
        (self.peers.get(&peer)).is_some_and(|of_peer| !of_peer.waiting.is_empty())
    }

    /// Whether one more may be under way.
    pub(crate) fn has_room(&self, peer: PeerId, window: usize) -> bool {
        self.peers
            .get(&peer)
            .is_none_or(|of_peer| of_peer.unanswered < window)
    }

    /// `false`: too many wait already.
    pub(crate) fn wait(&mut self, peer: PeerId, report: Waiting) -> bool {
        let waiting = &mut self.peers.entry(peer).or_default().waiting;
        let room = waiting.len() < WAITING_MAX;
        if room {
            waiting.push_back(report);
        }
        room
    }

    pub(crate) fn next(&mut self, peer: PeerId) -> Option<Waiting> {
        self.peers.get_mut(&peer)?.waiting.pop_front()
    }

    pub(crate) fn put_back(&mut self, peer: PeerId, report: Waiting) {
        (self.peers.entry(peer).or_default().waiting).push_front(report);
    }

    /// One is no longer under way.
    pub(crate) fn done(&mut self, peer: PeerId) {
        let Some(of_peer) = self.peers.get_mut(&peer) else {
            return;
        };
        if of_peer.unanswered > 0 {
            of_peer.unanswered -= 1;
            self.under_way -= 1;
        }
    }

    pub(crate) fn tidy(&mut self, peer: PeerId) {
        if self.peers.get(&peer).is_some_and(OfPeer::is_idle) {
            self.peers.remove(&peer);
        }
    }
}
