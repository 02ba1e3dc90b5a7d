//! Before an association is released the SMF hears of all usage (TS 29.244, 5.18): each URR that has measured something
//! reports it (TEBUR), and when all reports are answered the SMF is told that there are no more (URSS).

use std::collections::BTreeMap;

use compiled::Tables;

use crate::base::ids::PeerId;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::to_node::{Outputs, ToNode};
use crate::shard::Shard;

/// Places looked at before other work may go first.
const PLACES_PER_STEP: usize = 1024;

/// The associations whose usage is being reported to the end.
#[derive(Debug, Default)]
pub(crate) struct Finishing {
    /// Sessions in places before this one have been asked; `None`: all have.
    under_way: BTreeMap<PeerId, Option<Place>>,
}

impl Finishing {
    /// Begin; an SMF that asks again while it goes on changes nothing.
    pub(crate) fn begin(&mut self, peer: PeerId) {
        let first = Some(Place::FIRST);
        self.under_way.entry(peer).or_insert(first);
    }

    /// The association is over.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.under_way.remove(&peer);
    }

    pub(crate) fn contains(&self, peer: PeerId) -> bool {
        self.under_way.contains_key(&peer)
    }

    /// Associations with sessions to ask.
    pub(crate) fn unfinished(&self) -> Vec<PeerId> {
        let behind = self.under_way.iter();
        let behind = behind.filter(|(_, next)| next.is_some());
        behind.map(|(peer, _)| *peer).collect()
    }

    /// Whether there are sessions to ask.
    pub(crate) fn is_behind(&self) -> bool {
        self.under_way.values().any(Option::is_some)
    }

    /// All is reported, if all sessions have been asked. Whether that is so, once.
    fn end(&mut self, peer: PeerId) -> bool {
        let is_over = self.under_way.get(&peer) == Some(&None);
        if is_over {
            self.under_way.remove(&peer);
        }
        is_over
    }
}

impl<T: Tables> Shard<T> {
    /// Some more sessions of a peer have their usage reported.
    fn ask_for_usage(&mut self, now: Time, peer: PeerId) {
        let Some(next) = self.finishing.under_way.get_mut(&peer) else {
            return;
        };
        for _ in 0..PLACES_PER_STEP {
            let Some(place) = *next else { break };
            if self.sessions.is_of(place, peer) {
                let anew = self.closing;
                (self.sessions).usage_finishes(now, place, anew, &mut self.tables);
            }
            *next = self.sessions.slab.after(place);
        }
    }

    /// A step towards the end.
    pub(super) fn keep_finishing(&mut self, now: Time, out: &mut Outputs) {
        for peer in self.finishing.unfinished() {
            self.ask_for_usage(now, peer);
            self.tell_usage(now, out);
            self.may_be_finished(out, peer);
        }
    }

    /// It may have been the last report that was answered: then the node hears of it.
    pub(super) fn may_be_finished(&mut self, out: &mut Outputs, peer: PeerId) {
        if self.reports.is_idle(peer) && self.finishing.end(peer) {
            out.say(ToNode::Finished(peer));
        }
    }
}
