//! Entries that have taken the place of others at which packets still wait.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::View;

/// Successors by entry. The control thread writes them, and nobody else does; whoever keeps packets reads. Memory of entries that
/// never had one is not there.
#[derive(Clone, Debug)]
pub(crate) struct Successors(
    /// Index + 1; 0: there is none.
    View<AtomicU32>,
);

impl Successors {
    pub(crate) fn new(entries: usize) -> io::Result<Self> {
        View::anonymous(entries).map(Self)
    }

    pub(crate) fn clear(&self) {
        self.0.clear();
    }

    /// Entry `to` is the PDR's from now on, though packets wait at `from`; `None`: no more do.
    pub(crate) fn replace(&self, from: u32, to: Option<u32>) {
        let to = to.map_or(0, |index| index + 1);
        self.0[from as usize].store(to, Ordering::Release);
    }

    /// The entry that decides about packets which wait at this one. Each on the way counts packets as held until then, so
    /// that none is used again meanwhile, and the way ends.
    pub(crate) fn present(&self, mut index: u32) -> u32 {
        while let Some(successor) = self.0.get(index as usize)
            && let Some(to) = successor.load(Ordering::Acquire).checked_sub(1)
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
    fn the_last_successor_is_present() {
        let successors = Successors::new(10).unwrap();
        successors.replace(3, Some(4));
        successors.replace(4, Some(9));
        assert_eq!(
            [2, 3, 4, 9, 10].map(|n| successors.present(n)),
            [2, 9, 9, 9, 10]
        );
        successors.replace(3, None);
        assert_eq!(successors.present(3), 3);
    }
}
