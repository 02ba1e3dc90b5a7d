//! Whose an entry is: the way back from what the data path says of an entry to its session.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::View;

/// SEIDs by entry, of sessions that measure. Memory that no such session touches is not there.
#[derive(Clone, Debug)]
pub(crate) struct Owners(View<AtomicU64>);

impl Owners {
    pub(crate) fn new(entries: usize) -> io::Result<Self> {
        Ok(Self(View::anonymous(entries)?))
    }

    pub(crate) fn set(&self, index: u32, seid: u64) {
        self.0[index as usize].store(seid, Ordering::Relaxed);
    }

    /// Of the session that the entry belongs to, or belonged to before it was taken by one that has none.
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
        let owners = Owners::new(10).unwrap();
        assert_eq!(owners.seid(3), None);
        owners.set(3, 7);
        assert_eq!((owners.seid(3), owners.seid(2)), (Some(7), None));
        assert_eq!(owners.seid(10), None, "no such entry");
    }
}
