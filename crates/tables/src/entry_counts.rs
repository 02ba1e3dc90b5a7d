//! Counts of all entries, and their owners, for the search for the busiest users: from any thread, without a word to the
//! control thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::{Line, Side, entry};
use crate::entry_owners::EntryOwners;
use crate::layout::Memory;
use crate::memory::View;

/// Counts of an entry. The latter two begin anew beyond 32 bits: they are for differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCount {
    /// Inner IP bytes forwarded.
    pub bytes: u64,
    /// Packets that had to wait for their rate.
    pub delayed: u32,
    /// Packets dropped by QoS enforcement.
    pub qos_drops: u32,
}

impl EntryCount {
    /// Difference to an earlier count. An entry that has become another's counts from 0.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let Some(bytes) = self.bytes.checked_sub(before.bytes) else {
            return self;
        };
        let difference = |is: u32, was: u32| {
            let difference = is.wrapping_sub(was);
            if difference > u32::MAX / 2 {
                is
            } else {
                difference
            }
        };
        Self {
            bytes,
            delayed: difference(self.delayed, before.delayed),
            qos_drops: difference(self.qos_drops, before.qos_drops),
        }
    }
}

/// Sees the counts of entries. Clones see the same.
#[derive(Clone, Debug)]
pub struct EntryCounts {
    entries: View<Line>,
    sides: View<Side>,
    owners: EntryOwners,
}

impl EntryCounts {
    pub(crate) fn new(mem: &Memory) -> Self {
        Self {
            entries: mem.entries.clone(),
            sides: mem.sides.clone(),
            owners: mem.owners.clone(),
        }
    }

    /// Entries there are, in use or not.
    pub fn places(&self) -> usize {
        self.entries.len()
    }

    /// Counts of an entry; zeros for one that is not there.
    pub fn of(&self, place: usize) -> EntryCount {
        let (Some(line), Some(side)) = (self.entries.get(place), self.sides.get(place)) else {
            return EntryCount::default();
        };
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        EntryCount {
            bytes: line.load(entry::BYTES).wrapping_add(read(&side.bytes)),
            delayed: read(&side.delayed) as u32,
            qos_drops: read(&side.qos_packets) as u32,
        }
    }

    /// SEID and PDR of an entry; of a free one, those that it had last.
    pub fn owner(&self, place: usize) -> Option<(u64, u16)> {
        let seid = self.owners.seid(u32::try_from(place).ok()?)?;
        let pdr = (self.entries.get(place)?.load(entry::EXT) >> entry::PDR_SHIFT) as u16;
        Some((seid, pdr))
    }
}

/// Have the calling thread give way to others of this machine from now on.
pub fn give_way() {
    const NICE: libc::c_int = 10;
    // SAFETY: no pointer is given. Who may not do so stays as it was.
    unsafe {
        let thread = libc::gettid().cast_unsigned();
        libc::setpriority(libc::PRIO_PROCESS, thread, NICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_survive_the_end_of_a_word_and_a_new_owner() {
        let count = |bytes, delayed, qos_drops| EntryCount {
            bytes,
            delayed,
            qos_drops,
        };
        let before = count(1000, u32::MAX - 1, 7);
        assert_eq!(count(1500, 3, 9).since(before), count(500, 5, 2));
        assert_eq!(count(900, 3, 9).since(before), count(900, 3, 9));
        assert_eq!(count(1000, u32::MAX - 1, 2).since(before), count(0, 0, 2));
    }
}
