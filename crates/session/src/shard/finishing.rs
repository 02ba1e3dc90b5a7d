//! Before an association is released the SMF hears of all usage (TS 29.244, 5.18): each URR that has measured something
//! reports it (TEBUR), and when all reports are answered the SMF is told that there are no more (URSS).

use std::collections::{BTreeMap, VecDeque};

use compiled::Tables;

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::node::shards::Then;
use crate::shard::Shard;

/// Places looked at before other work may go first.
const PLACES_PER_STEP: usize = 1024;

/// How far it is.
#[derive(Debug)]
struct Progress {
    /// Sessions in places before this one have been asked; `None`: all have.
    next: Option<Place>,
    then: Then,
}

/// The associations whose usage is being reported to the end.
#[derive(Debug, Default)]
pub(crate) struct Finishing {
    under_way: BTreeMap<PeerId, Progress>,
    /// What their node has not been told yet.
    finished: VecDeque<(PeerId, Then)>,
}

impl Finishing {
    /// Begin; an SMF that asks again while it goes on changes nothing.
    pub(crate) fn begin(&mut self, peer: PeerId, then: Then) {
        let next = Some(Place::FIRST);
        let progress = Progress { next, then };
        self.under_way.entry(peer).or_insert(progress);
    }

    /// The association is over.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.under_way.remove(&peer);
        self.finished.retain(|(finished, _)| *finished != peer);
    }

    pub(crate) fn contains(&self, peer: PeerId) -> bool {
        self.under_way.contains_key(&peer)
    }

    /// Associations with sessions to ask.
    pub(crate) fn unfinished(&self) -> Vec<PeerId> {
        let behind = self.under_way.iter();
        let behind = behind.filter(|(_, progress)| progress.next.is_some());
        behind.map(|(peer, _)| *peer).collect()
    }

    /// Whether there are sessions to ask.
    pub(crate) fn is_behind(&self) -> bool {
        self.under_way
            .values()
            .any(|progress| progress.next.is_some())
    }

    /// All is reported, if all sessions have been asked.
    fn end(&mut self, peer: PeerId) {
        if let Some(Progress { next: None, then }) = self.under_way.get(&peer) {
            self.finished.push_back((peer, *then));
            self.under_way.remove(&peer);
        }
    }

    /// An association that has come to its end, once.
    pub(crate) fn next_finished(&mut self) -> Option<(PeerId, Then)> {
        self.finished.pop_front()
    }
}

impl<T: Tables> Shard<T> {
    /// Some more sessions of a peer have their usage reported.
    pub(crate) fn ask_for_usage(&mut self, now: Time, peer: PeerId) {
        let Some(progress) = self.finishing.under_way.get_mut(&peer) else {
            return;
        };
        for _ in 0..PLACES_PER_STEP {
            let Some(place) = progress.next else { break };
            if self.sessions.is_of(place, peer) {
                let anew = self.closing;
                (self.sessions).usage_finishes(now, place, anew, &mut self.tables);
            }
            progress.next = self.sessions.slab.after(place);
        }
    }

    /// Whether it was the last report that was answered.
    pub(crate) fn may_be_finished(&mut self, peer: PeerId) {
        if self.reports.is_idle(peer) {
            self.finishing.end(peer);
        }
    }
}
