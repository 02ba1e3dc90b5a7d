//! Entries of a shard: their words, what is counted beside them, and which lines are free.
//!
//! The control thread writes the words that say what an entry does; packets add to counts, meters and alarms, so that those change
//! by atomic operations alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use compiled::Counters;

use crate::abi::{Config, Line, Side, entry, rate};
use crate::alloc::ExpectedLines;
use crate::buffer_control::BufferControl;
use crate::entry_owners::EntryOwners;
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
    pub(crate) free: ExpectedLines,
    /// Entries below this are the slots of TEIDs.
    pub(crate) direct_end: u32,
    /// `None`: no packet is buffered.
    pub(crate) buffer_control: Option<Arc<dyn BufferControl>>,
}

impl Entries {
    pub(crate) fn new(mem: &Memory, direct_end: u32) -> Self {
        let free = ExpectedLines::new("entries", direct_end, mem.entries.len() as u32);
        let (config, (first, mask)) = (&mem.config[0], free.expected());
        config.ue_first.store(first, Ordering::Relaxed);
        config.ue_mask.store(mask, Ordering::Relaxed);
        Self {
            lines: mem.entries.clone(),
            sides: mem.sides.clone(),
            config: mem.config.clone(),
            owners: mem.owners.clone(),
            successors: mem.successors.clone(),
            free,
            direct_end,
            buffer_control: None,
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
        counted(self.line(index), self.side(index))
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

    /// Whether packets are buffered at all. Else nothing has to stay behind any.
    pub(crate) fn is_buffering(&self) -> bool {
        self.config[0].held_max.load(Ordering::Acquire) > 0
    }

    /// Whether user space keeps frames above their rate for programs.
    pub(crate) fn keeps_frames(&self) -> bool {
        self.config[0].shaper_frames.load(Ordering::Acquire) > 0
    }

    /// Packets that are buffered at an entry, or are on their way there.
    pub(crate) fn buffered(&self, index: u32) -> u64 {
        self.side(index).held.load(Ordering::Acquire).into()
    }

    /// Have the packets that are buffered at an entry released, as far as its FAR says so now.
    pub(crate) fn release_buffered(&self, index: u32) {
        if let (Some(control), Some(seid)) = (&self.buffer_control, self.owners.seid(index))
            && self.buffered(index) > 0
        {
            control.release(seid);
        }
    }

    /// Have the packets that are buffered at these entries, all of one session, dropped.
    pub(crate) fn discard_buffered(&self, entries: &[u32]) {
        let mut buffered = entries.iter().filter(|&&index| self.buffered(index) > 0);
        let seid = buffered.next().and_then(|&index| self.owners.seid(index));
        if let (Some(control), Some(seid)) = (&self.buffer_control, seid) {
            control.discard(seid);
        }
    }
}

/// Counts of an entry.
pub(crate) fn counted(line: &Line, side: &Side) -> Counters {
    Counters {
        packets: line.load(entry::PACKETS) + side.packets.load(Ordering::Relaxed),
        bytes: line.load(entry::BYTES) + side.bytes.load(Ordering::Relaxed),
        drops: side.drops.load(Ordering::Relaxed),
        qos_packets: side.qos_packets.load(Ordering::Relaxed),
        qos_bytes: side.qos_bytes.load(Ordering::Relaxed),
        delayed: side.delayed.load(Ordering::Relaxed),
    }
}

/// Whether packets above this rate wait, so that it says when they leave.
pub(crate) fn waits(word: u64) -> bool {
    word & rate::SHAPE != 0
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use compiled::{Action, Compiled, Entry, Key, NiId, PdrId, Qfi, Select, Tables as _};

    use testkit::sessions::downlink;

    use crate::testing::data_network;
    use crate::{Handle, Layout, Options, Tables};

    fn tunnel(ue: Ipv4Addr, teid: u32, qfi: u8) -> Compiled {
        let action = Action::Tunnel {
            teid,
            peer: Ipv4Addr::new(10, 3, 1, 1).into(),
            local: Ipv4Addr::new(10, 3, 0, 1).into(),
        };
        let entry = Entry {
            qfi: Qfi::new(qfi),
            ..downlink(PdrId(2), action)
        };
        let ni = NiId(0);
        Compiled {
            entries: vec![entry],
            keys: vec![(Key::Ue4 { ni, addr: ue }, Select::One(0))],
            ..Compiled::default()
        }
    }

    #[test]
    fn an_address_leads_to_the_entry_that_is_expected_if_it_is_free() {
        let layout = Layout::for_sessions(64, 1, 1);
        let mut tables = Tables::host(&layout, &[data_network()], &Options::default()).unwrap();
        let pool = "10.60.0.0/18".parse().unwrap();
        tables.register_pool(NiId(0), pool).unwrap();
        let (first, mask) = tables.store.shard.entries.free.expected();
        let pool_starts = u32::from(Ipv4Addr::new(10, 60, 0, 0));
        let [ue, other] = [5, 5 + mask + 1].map(|place| Ipv4Addr::from(pool_starts + place));
        let mut handles = [Handle::default(), Handle::default()];
        let mut publish = |of: usize, ue, teid, qfi| {
            let handle = &mut handles[of];
            tables.publish(handle, &tunnel(ue, teid, qfi)).unwrap();
            tables.maintain();
            handle.entries()[0].index
        };
        assert_eq!(publish(0, ue, 1, 1), first + 5);
        assert_ne!(publish(1, other, 9, 1), first + 5, "another one has it");
        assert_eq!(publish(0, ue, 2, 1), first + 5, "changed in place");
        assert_ne!(publish(0, ue, 3, 2), first + 5, "in use until the change");
        assert_eq!(publish(0, ue, 4, 3), first + 5, "and free by the next one");
    }
}
