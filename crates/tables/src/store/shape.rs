//! Rates that shape: packets above them wait, and no change of rules has later ones overtake them.
//!
//! Meters know when a packet leaves: their theoretical arrival time is the departure time of the next one. Where an entry's meters
//! change, the new ones begin where the latest of the session's old ones are.

use smallvec::SmallVec;

use crate::abi::{Ext, METERS_MAX, entry, from_words, meter};
use crate::encode::{Words, shaped};
use crate::handle::Parts;
use crate::store::Store;
use crate::store::plan::{Plan, Want};

/// MBRs that packets of an entry meet: whether one is in its own line, and lines of those that it shares.
type Meters = (bool, SmallVec<[u32; METERS_MAX]>);

fn shared_meters(ext: &Ext) -> SmallVec<[u32; METERS_MAX]> {
    let lines = ext.meters.iter().take(ext.n_meters.into());
    lines.copied().collect()
}

impl Store {
    /// A rate, as it treats here what is above it.
    pub(crate) fn rate_here(&self, rate: u64) -> u64 {
        self.longest_wait
            .map_or(rate, |longest| shaped(rate, longest))
    }

    /// Have the words of an entry shape. `was`: the entry that has been this PDR's. The time that its packets must leave
    /// behind, in ticks, if they meet other meters than before; else 0.
    pub(crate) fn shape(&self, words: &mut Words, plan: &Plan, was: Option<u32>) -> u64 {
        let Some(longest) = self.longest_wait else {
            return 0;
        };
        let is_metered = words.head & entry::METER_BIT != 0;
        if is_metered {
            words.rate = shaped(words.rate, longest);
        }
        let shared = words.ext.as_ref().map(shared_meters).unwrap_or_default();
        let is_unlimited = !is_metered && shared.is_empty();
        if was.is_some_and(|was| self.meters_of(was) == (is_metered, shared)) {
            return 0;
        }
        let behind = self.latest_departure(&plan.held);
        if behind > 0 && is_unlimited && entry::forwards(words.head) {
            // A rate that costs nothing.
            words.head |= entry::METER_BIT;
            words.rate = shaped(0, longest);
        }
        behind
    }

    fn meters_of(&self, index: u32) -> Meters {
        let is_metered = self.head(index) & entry::METER_BIT != 0;
        let ext = self.ext_of(index).map(|line| {
            let ext: Ext = from_words(self.mem.exts[line as usize].words());
            shared_meters(&ext)
        });
        (is_metered, ext.unwrap_or_default())
    }

    /// When the last of a session's packets leaves that may wait, in ticks; 0: none has met a meter.
    fn latest_departure(&self, held: &Parts) -> u64 {
        let entries = held.entries.iter();
        let own = entries.map(|held| self.mem.entries[held.index as usize].load(entry::TAT));
        let meters = held.meters.iter().filter(|held| !held.is_of_packets);
        let shared = meters.map(|held| self.mem.meters[held.index as usize].load(meter::TAT));
        own.chain(shared).max().unwrap_or(0)
    }

    /// Have the meters of an entry begin where others were, before packets come by its new words.
    pub(crate) fn stay_behind(&self, want: &Want) {
        if want.behind == 0 {
            return;
        }
        for line in want.words.ext.iter().flat_map(shared_meters) {
            self.mem.meters[line as usize].raise(meter::TAT, want.behind);
        }
        if want.words.head & entry::METER_BIT != 0 {
            self.mem.entries[want.at as usize].raise(entry::TAT, want.behind);
        }
    }
}
