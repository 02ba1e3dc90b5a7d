//! Associations whose usage is reported to the end before they are released (TS 29.244, 5.18), and how far that is.

use std::collections::BTreeMap;

use crate::base::ids::PeerId;
use crate::base::slab::Place;

/// The associations whose usage is being reported to the end.
#[derive(Debug, Default)]
pub(crate) struct Finishing {
    /// Sessions in places before this one have been asked; `None`: all have.
    pub(crate) under_way: BTreeMap<PeerId, Option<Place>>,
    /// We are leaving.
    pub(crate) closing: bool,
}

impl Finishing {
    /// Begin; an SMF that asks again while it goes on changes nothing.
    pub(crate) fn begin(&mut self, peer: PeerId) {
        let first = Some(Place::FIRST);
        self.under_way.entry(peer).or_insert(first);
    }

    /// None is waited for any longer.
    pub(crate) fn give_up(&mut self) {
        self.under_way.clear();
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
    pub(crate) fn end(&mut self, peer: PeerId) -> bool {
        let is_over = self.under_way.get(&peer) == Some(&None);
        if is_over {
            self.under_way.remove(&peer);
        }
        is_over
    }
}
