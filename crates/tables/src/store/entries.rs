//! Entries of a shard: their words, what is counted beside them, and which lines are free.
//!
//! The control thread writes the words that say what an entry does; packets add to counts, meters and alarms, so that those change
//! by atomic operations alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use compiled::Counters;

use crate::abi::{Config, Line, Side, entry, rate};
use crate::alloc::Lines;
use crate::entry_owners::EntryOwners;
use crate::keeper::Keeper;
use crate::layout::Memory;
use crate::memory::View;
use crate::successors::Successors;

/// The entries, and who keeps packets that wait at them.
#[derive(Debug)]
pub(crate) struct Entries {
    lines: View<Line>,
    sides: View<Side>,
    config: View<Config>,
    pub(crate) owners: EntryOwners,
    pub(crate) successors: Successors,
    /// Free entries above the slots of TEIDs.
    pub(crate) free: Lines,
    /// Entries below this are the slots of TEIDs.
    pub(crate) direct_end: u32,
    /// `None`: no packet waits.
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
}

impl Entries {
    pub(crate) fn new(mem: &Memory, direct_end: u32) -> Self {
        Self {
            lines: mem.entries.clone(),
            sides: mem.sides.clone(),
            config: mem.config.clone(),
            owners: mem.owners.clone(),
            successors: mem.successors.clone(),
            free: Lines::new("entries", direct_end, mem.entries.len() as u32),
            direct_end,
            keeper: None,
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.lines.len() as u32
    }

    pub(crate) fn line(&self, index: u32) -> &Line {
        &self.lines[index as usize]
    }

    pub(crate) fn side(&self, index: u32) -> &Side {
        &self.sides[index as usize]
    }

    pub(crate) fn head(&self, index: u32) -> u64 {
        self.line(index).load(entry::HEAD)
    }

    /// The extension line that a live entry names.
    pub(crate) fn ext_of(&self, index: u32) -> Option<u32> {
        let line = self.line(index);
        let head = line.load(entry::HEAD);
        let named = head & entry::EXT_BIT != 0 && entry::action(head) != entry::ACT_LIST;
        named.then(|| line.load(entry::EXT) as u32)
    }

    /// First of the live rules behind a line, if it is a list.
    pub(crate) fn first_rule_of(&self, index: u32) -> Option<u32> {
        let head = self.head(index);
        (entry::action(head) == entry::ACT_LIST).then_some((head >> entry::RULE_SHIFT) as u32)
    }

    /// Counts of an entry alone, without those that it has taken over.
    pub(crate) fn counted(&self, index: u32) -> Counters {
        let (line, side) = (self.line(index), self.side(index));
        Counters {
            packets: line.load(entry::PACKETS) + side.packets.load(Ordering::Relaxed),
            bytes: line.load(entry::BYTES) + side.bytes.load(Ordering::Relaxed),
            drops: side.drops.load(Ordering::Relaxed),
            qos_packets: side.qos_packets.load(Ordering::Relaxed),
            qos_bytes: side.qos_bytes.load(Ordering::Relaxed),
            delayed: side.delayed.load(Ordering::Relaxed),
        }
    }

    /// Counts begin at zero in a line that nothing leads to.
    pub(crate) fn clear_side(&self, index: u32) {
        let side = self.side(index);
        for count in [
            &side.packets,
            &side.bytes,
            &side.drops,
            &side.qos_packets,
            &side.qos_bytes,
            &side.qos_alarm,
            &side.delayed,
        ] {
            // Most are zero, in pages that were never touched: reading takes no memory.
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Have the meter of an entry be where that of its predecessor is, if both shape.
    pub(crate) fn follow_meter(&self, from: u32, to: u32) {
        let [from, to] = [from, to].map(|index| self.line(index));
        if waits(from.load(entry::RATE)) && waits(to.load(entry::RATE)) {
            to.raise(entry::TAT, from.load(entry::TAT));
        }
    }

    /// Whether somebody keeps packets. Else none waits, and nothing has to stay behind any.
    pub(crate) fn holds(&self) -> bool {
        self.config[0].held_max.load(Ordering::Acquire) > 0
    }

    /// Whether user space keeps frames above their rate for programs.
    pub(crate) fn keeps_frames(&self) -> bool {
        self.config[0].shaper_frames.load(Ordering::Acquire) > 0
    }

    /// Packets that wait at an entry, or are on their way there.
    pub(crate) fn held(&self, index: u32) -> u64 {
        self.side(index).held.load(Ordering::Acquire).into()
    }

    /// Have what waits at an entry looked at: its FAR may have changed.
    pub(crate) fn look_at_held(&self, index: u32) {
        if let (Some(keeper), Some(seid)) = (&self.keeper, self.owners.seid(index))
            && self.held(index) > 0
        {
            keeper.look(seid);
        }
    }

    /// Have what waits at these entries, all of one session, dropped.
    pub(crate) fn discard_held(&self, entries: &[u32]) {
        let mut waiting = entries.iter().filter(|&&index| self.held(index) > 0);
        let seid = waiting.next().and_then(|&index| self.owners.seid(index));
        if let (Some(keeper), Some(seid)) = (&self.keeper, seid) {
            keeper.discard(seid);
        }
    }
}

/// Whether packets above this rate wait, so that it says when they leave.
pub(crate) fn waits(word: u64) -> bool {
    word & rate::SHAPE != 0
}
