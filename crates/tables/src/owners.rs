//! Whose an entry is, and which one has taken its place: the way back from what the data path says of an entry to its
//! session.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::memory::View;

/// SEIDs by entry, of sessions that measure. Memory that no such session touches is not there.
#[derive(Clone, Debug)]
pub struct Owners {
    seids: View<AtomicU64>,
    /// Index + 1 of the entry that replaces one at which packets wait; 0: none does.
    heirs: View<AtomicU32>,
}

impl Owners {
    pub(crate) fn new(entries: usize) -> io::Result<Self> {
        Ok(Self {
            seids: View::anonymous(entries)?,
            heirs: View::anonymous(entries)?,
        })
    }

    pub(crate) fn set(&self, index: u32, seid: u64) {
        self.seids[index as usize].store(seid, Ordering::Relaxed);
    }

    /// SEID of the session that the entry belongs to, or belonged to before it was taken by one that has none.
    pub fn seid(&self, index: u32) -> Option<u64> {
        let seid = self.seids.get(index as usize)?.load(Ordering::Relaxed);
        (seid != 0).then_some(seid)
    }

    /// Entry `to` is the PDR's from now on, though packets wait at `from`; `None`: no more do.
    pub(crate) fn replace(&self, from: u32, to: Option<u32>) {
        let to = to.map_or(0, |index| index + 1);
        self.heirs[from as usize].store(to, Ordering::Release);
    }

    /// The entry that decides about packets which wait at this one. Each on the way counts packets as held until then, so
    /// that none is used again meanwhile, and the way ends.
    pub fn present(&self, mut index: u32) -> u32 {
        while let Some(heir) = self.heirs.get(index as usize)
            && let Some(to) = heir.load(Ordering::Acquire).checked_sub(1)
        {
            index = to;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_owners_once_they_are_named() {
        let owners = Owners::new(10).unwrap();
        assert_eq!(owners.seid(3), None);
        owners.set(3, 7);
        assert_eq!((owners.seid(3), owners.seid(2)), (Some(7), None));
        assert_eq!(owners.seid(10), None, "no such entry");
        owners.replace(3, Some(4));
        owners.replace(4, Some(9));
        assert_eq!(
            [2, 3, 4, 9, 10].map(|n| owners.present(n)),
            [2, 9, 9, 9, 10]
        );
        owners.replace(3, None);
        assert_eq!(owners.present(3), 3);
    }
}
