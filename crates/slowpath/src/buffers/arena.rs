//! Memory for buffered packets: small blocks, chained, so that a short packet takes little and a long one is no
//! exception. Taken from the system as it is needed, and given back when none is buffered any more.

/// Octets of a block that hold a packet's.
const PAYLOAD: usize = 124;
/// Blocks taken from the system at a time, if so many may ever be in use.
const CHUNK: usize = 8192;
/// No block.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Next block of the same packet, or the next free one.
    next: u32,
    octets: [u8; PAYLOAD],
}

const EMPTY: Block = Block {
    next: NONE,
    octets: [0; PAYLOAD],
};

/// Octets that a block takes.
const BLOCK_LEN: usize = size_of::<Block>();

/// Place of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    first: u32,
    len: u16,
}

impl Stored {
    pub(super) fn len(self) -> usize {
        self.len.into()
    }
}

#[derive(Debug)]
pub(super) struct Arena {
    chunks: Vec<Box<[Block]>>,
    free: u32,
    /// Never used so far.
    fresh: u32,
    used: usize,
    max: usize,
}

impl Arena {
    /// At most so many octets, block headers included.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
            fresh: 0,
            used: 0,
            max: (max_bytes / BLOCK_LEN).min(NONE as usize),
        }
    }

    /// Octets of memory for so many of a packet.
    pub(super) fn taken(len: usize) -> usize {
        len.div_ceil(PAYLOAD).max(1) * BLOCK_LEN
    }

    /// Octets in use.
    pub(super) fn used(&self) -> usize {
        self.used * BLOCK_LEN
    }

    /// `None`: no room.
    pub(super) fn put(&mut self, octets: &[u8]) -> Option<Stored> {
        let len = u16::try_from(octets.len()).ok()?;
        let blocks = octets.len().div_ceil(PAYLOAD).max(1);
        if self.used + blocks > self.max {
            return None;
        }
        self.used += blocks;
        // From the end, so that each block knows the one behind it.
        let mut next = NONE;
        let chunks = octets.chunks(PAYLOAD).rev();
        for part in chunks.chain(octets.is_empty().then_some(&[][..])) {
            let at = self.take();
            let block = self.block_mut(at);
            block.next = next;
            block.octets[..part.len()].copy_from_slice(part);
            next = at;
        }
        Some(Stored { first: next, len })
    }

    /// Copies them to `into`, which is as long as they are.
    pub(super) fn copy(&self, from: Stored, into: &mut [u8]) {
        let mut at = from.first;
        for part in into.chunks_mut(PAYLOAD) {
            let block = self.block(at);
            part.copy_from_slice(&block.octets[..part.len()]);
            at = block.next;
        }
    }

    pub(super) fn give(&mut self, stored: Stored) {
        let mut at = stored.first;
        while at != NONE {
            let free = self.free;
            let block = self.block_mut(at);
            let next = std::mem::replace(&mut block.next, free);
            (self.free, at) = (at, next);
            self.used -= 1;
        }
        if self.used == 0 {
            *self = Self {
                max: self.max,
                ..Self::new(0)
            };
        }
    }

    /// One that is there, or is made. There is room.
    fn take(&mut self) -> u32 {
        if self.free != NONE {
            let at = self.free;
            self.free = self.block(at).next;
            return at;
        }
        if self.fresh as usize == self.chunks.len() * CHUNK {
            let blocks = CHUNK.min(self.max);
            self.chunks.push(vec![EMPTY; blocks].into_boxed_slice());
        }
        self.fresh += 1;
        self.fresh - 1
    }

    fn block(&self, at: u32) -> &Block {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    fn block_mut(&mut self, at: u32) -> &mut Block {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_refused_until_there_is_room() {
        let mut arena = Arena::new(2 * BLOCK_LEN);
        let first = arena.put(&[1; PAYLOAD]).unwrap();
        assert_eq!(arena.put(&[2; PAYLOAD + 1]), None);
        let second = arena.put(&[3]).unwrap();
        assert_eq!((arena.put(&[]), arena.used()), (None, 2 * BLOCK_LEN));
        arena.give(first);
        assert!(arena.put(&[4; 60]).is_some());
        let mut back = [0];
        arena.copy(second, &mut back);
        assert_eq!(back, [3]);
    }

    proptest! {
        #[test]
        fn octets_come_back_as_they_went_in(
            packets in prop::collection::vec((0usize..2000, any::<u8>(), any::<bool>()), 1..60),
        ) {
            let mut arena = Arena::new(1 << 20);
            let mut kept: Vec<(Stored, Vec<u8>)> = Vec::new();
            for (len, fill, gives) in packets {
                let octets: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
                let stored = arena.put(&octets).unwrap();
                prop_assert_eq!(stored.len(), len);
                kept.push((stored, octets));
                if gives {
                    let (stored, _) = kept.swap_remove(kept.len() / 2);
                    arena.give(stored);
                }
                for (stored, octets) in &kept {
                    let mut back = vec![0; octets.len()];
                    arena.copy(*stored, &mut back);
                    prop_assert_eq!(&back, octets);
                }
                let taken: usize = kept.iter().map(|(stored, _)| Arena::taken(stored.len())).sum();
                prop_assert_eq!(arena.used(), taken);
            }
            kept.drain(..).for_each(|(stored, _)| arena.give(stored));
            prop_assert_eq!((arena.used(), arena.chunks.len()), (0, 0));
        }
    }
}
