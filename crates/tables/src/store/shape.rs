//! Rates that shape: packets above them wait, and no change of rules has later ones overtake them.
//!
//! Meters know when a packet leaves: their theoretical arrival time is the departure time of the next one. Where an entry's meters
//! change, the new ones begin where the latest of the session's old ones are.

use smallvec::SmallVec;

use crate::abi::{Ext, METERS_MAX, entry, from_words, meter, rate};
use crate::encode::{Words, rate_here, shaped};
use crate::handle::{MeterKind, Parts};
use crate::store::Store;
use crate::store::plan::{Plan, Want};

/// MBRs and the share that packets of an entry meet: whether one is in its own line, and lines of the others.
type Meters = (bool, SmallVec<[u32; METERS_MAX]>);

fn shared_meters(ext: &Ext) -> SmallVec<[u32; METERS_MAX]> {
    let lines = ext.meters.iter().take(ext.n_meters.into());
    lines.copied().chain(ext.share.checked_sub(1)).collect()
}

impl Store {
    /// Have the words of an entry shape. `was`: the entry that has been this PDR's. The time that its packets must leave
    /// behind, in ticks, if they meet other meters than before; else 0.
    pub(crate) fn shape(&self, words: &mut Words, plan: &Plan, was: Option<u32>) -> u64 {
        words.rate = rate_here(words.rate, self.longest_wait);
        let Some(longest) = self.longest_wait else {
            return 0;
        };
        let is_metered = words.head & entry::METER_BIT != 0;
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
        let entries = entries.map(|held| &self.mem.entries[held.index as usize]);
        let own = entries.filter(|line| waits(line.load(entry::RATE)));
        let meters = (held.meters.iter()).filter(|held| held.kind != MeterKind::Packets);
        let meters = meters.map(|held| &self.mem.meters[held.index as usize]);
        let shared = meters.filter(|line| waits(line.load(meter::RATE)));
        let own = own.map(|line| line.load(entry::TAT));
        let shared = shared.map(|line| line.load(meter::TAT));
        own.chain(shared).max().unwrap_or(0)
    }

    /// Have the meters of an entry begin where others were, before packets come by its new words.
    pub(crate) fn stay_behind(&self, want: &Want) {
        if want.behind > 0 {
            self.raise(want, want.behind);
        }
    }

    /// Packets have met old entries until now: once more. Right before they are led to others, so that few meet the old ones in between,
    /// and right after, for those few.
    pub(crate) fn catch_up(&self, plan: &Plan) {
        if self.longest_wait.is_none() {
            return;
        }
        let latest = self.latest_departure(&plan.held);
        for want in &plan.wants {
            if want.behind > 0 {
                self.raise(want, latest);
            }
            if let Some(was) = want.was.filter(|&was| was != want.at) {
                self.follow_meter(was, want.at);
            }
        }
    }

    /// Have the meter of an entry be where that of its predecessor is, if both shape.
    pub(crate) fn follow_meter(&self, from: u32, to: u32) {
        let [from, to] = [from, to].map(|index| &self.mem.entries[index as usize]);
        if waits(from.load(entry::RATE)) && waits(to.load(entry::RATE)) {
            to.raise(entry::TAT, from.load(entry::TAT));
        }
    }

    fn raise(&self, want: &Want, behind: u64) {
        for line in want.words.ext.iter().flat_map(shared_meters) {
            let line = &self.mem.meters[line as usize];
            if waits(line.load(meter::RATE)) {
                line.raise(meter::TAT, behind);
            }
        }
        if want.words.head & entry::METER_BIT != 0 && waits(want.words.rate) {
            self.mem.entries[want.at as usize].raise(entry::TAT, behind);
        }
    }
}

/// Whether packets above this rate wait, so that it says when they leave.
fn waits(word: u64) -> bool {
    word & rate::SHAPE != 0
}
