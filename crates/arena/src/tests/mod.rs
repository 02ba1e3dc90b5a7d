//! Tests that know the layout or end the process between two stores.

mod damage;
pub(crate) mod death;
mod pool;
mod ring;
mod room;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Memory;
use crate::layout::{PAGE, WORD};

/// Records as they should be.
type Model = BTreeMap<u32, Vec<u8>>;

/// Memory of so many pages, as a new file has it.
fn memory(pages: usize) -> Vec<AtomicU64> {
    (0..pages * PAGE / WORD)
        .map(|_| AtomicU64::new(0))
        .collect()
}

fn word(words: &[AtomicU64], at: usize) -> u64 {
    words[at].load(Ordering::Relaxed)
}

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn record(&mut self, octets: usize) -> Vec<u8> {
        (0..octets).map(|_| self.next() as u8).collect()
    }
}

/// Memory of a file system that has room for so many octets.
struct Scarce<'w>(&'w [AtomicU64], usize);

impl Memory for Scarce<'_> {
    fn words(&self) -> &[AtomicU64] {
        self.0
    }

    fn back(&mut self, octets: usize) -> io::Result<()> {
        match octets <= self.1 {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn give_back(&mut self, from: usize) {
        for word in &self.0[from / WORD..] {
            word.store(0, Ordering::Relaxed);
        }
    }
}
