//! Rates that shape: packets above them wait, and no change of rules has later ones overtake them.
//!
//! Meters know when a packet leaves: their theoretical arrival time is the departure time of the next one. Where an entry's meters
//! change, the new ones begin where the latest of the session's old ones are.

use smallvec::SmallVec;

use crate::abi::{Ext, METERS_MAX, entry, meter};
use crate::encode::{Words, rate_here, shaped};
use crate::handle::{MeterKind, Parts};
use crate::store::entries::waits;
use crate::store::shard::ShardTables;

/// MBRs and the share that packets of an entry meet: whether one is in its own line, and lines of the others.
type Meters = (bool, SmallVec<[u32; METERS_MAX]>);

fn shared_meters(ext: &Ext) -> SmallVec<[u32; METERS_MAX]> {
    let lines = ext.meters.iter().take(ext.n_meters.into());
    lines.copied().chain(ext.share.checked_sub(1)).collect()
}

impl ShardTables {
    /// Have the words of an entry shape. `was`: the entry that has been this PDR's. The time that its packets must leave
    /// behind, in ticks, if they meet other meters than before; else 0.
    pub(crate) fn shape(&self, words: &mut Words, held: &Parts, was: Option<u32>) -> u64 {
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
        let behind = self.latest_departure(held);
        if behind > 0 && is_unlimited && entry::forwards(words.head) {
            // A rate that costs nothing.
            words.head |= entry::METER_BIT;
            words.rate = shaped(0, longest);
        }
        behind
    }

    fn meters_of(&self, index: u32) -> Meters {
        let is_metered = self.entries.head(index) & entry::METER_BIT != 0;
        let ext = self
            .entries
            .ext_of(index)
            .map(|line| shared_meters(&self.ext(line)));
        (is_metered, ext.unwrap_or_default())
    }

    /// When the last of a session's packets leaves that may wait, in ticks; 0: none has met a meter.
    pub(crate) fn latest_departure(&self, held: &Parts) -> u64 {
        let entries = held.entries.iter();
        let entries = entries.map(|held| self.entries.line(held.index));
        let own = entries.filter(|line| waits(line.load(entry::RATE)));
        let meters = (held.meters.iter()).filter(|held| held.kind != MeterKind::Packets);
        let meters = meters.map(|held| &self.mem.meters[held.index as usize]);
        let shared = meters.filter(|line| waits(line.load(meter::RATE)));
        let own = own.map(|line| line.load(entry::TAT));
        let shared = shared.map(|line| line.load(meter::TAT));
        own.chain(shared).max().unwrap_or(0)
    }

    /// Have the meters of an entry begin where others were, so many ticks ahead.
    pub(crate) fn raise(&self, words: &Words, at: u32, behind: u64) {
        for line in words.ext.iter().flat_map(shared_meters) {
            let line = &self.mem.meters[line as usize];
            if waits(line.load(meter::RATE)) {
                line.raise(meter::TAT, behind);
            }
        }
        if words.head & entry::METER_BIT != 0 && waits(words.rate) {
            self.entries.line(at).raise(entry::TAT, behind);
        }
    }
}
