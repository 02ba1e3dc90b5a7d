//! The session of each entry: the way back from what the data path says of an entry.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::View;

/// SEIDs by entry. The control thread writes one before packets can reach the entry, and nobody else does; any thread reads. An entry
/// that is free keeps its last owner, so that counts that come late are still that one's. Memory of entries that were never used
/// is not there.
#[derive(Clone, Debug)]
pub(crate) struct EntryOwners(View<AtomicU64>);

impl EntryOwners {
    pub(crate) fn new(entries: usize) -> io::Result<Self> {
        View::anonymous(entries).map(Self)
    }

    pub(crate) fn clear(&self) {
        self.0.clear();
    }

    pub(crate) fn set(&self, index: u32, seid: u64) {
        self.0[index as usize].store(seid, Ordering::Relaxed);
    }

    /// SEID of the session that the entry belongs to, or was the last to.
    pub(crate) fn seid(&self, index: u32) -> Option<u64> {
        let seid = self.0.get(index as usize)?.load(Ordering::Relaxed);
        (seid != 0).then_some(seid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_owners_once_they_are_named() {
        let owners = EntryOwners::new(10).unwrap();
        assert_eq!(owners.seid(3), None);
        owners.set(3, 7);
        assert_eq!((owners.seid(3), owners.seid(2)), (Some(7), None));
        assert_eq!(owners.seid(10), None, "no such entry");
    }
}
