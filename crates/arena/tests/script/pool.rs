//! Any octets as the blocks of a pool.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};

use arena::pool::{Pool, taken};

const PAGE: usize = 64 << 10;
const BLOCK: usize = 128;
const FIRST: usize = 4096 / BLOCK;

/// Records that it has are whole and apart from each other, and all other blocks are free.
pub(crate) fn run(input: &[u8]) {
    let words: Vec<AtomicU64> = (0..PAGE / 8).map(|_| AtomicU64::new(0)).collect();
    assert!(Pool::create(&words[..], b"whose").is_ok());
    for (word, octets) in words[4096 / 8..].iter().zip(input.chunks_exact(8)) {
        let octets = octets.try_into().unwrap();
        word.store(u64::from_le_bytes(octets), Ordering::Relaxed);
    }
    let (mut pool, records, _) = Pool::open(&words[..]).unwrap();
    assert_eq!(pool.header(), b"whose");
    let mut found = Vec::new();
    for record in records {
        let mut octets = vec![0; record.len()];
        pool.copy(record, &mut octets);
        found.push((record, octets));
    }
    let of_records: usize = found.iter().map(|(_, octets)| taken(octets.len())).sum();
    assert_eq!(pool.used(), of_records);
    while pool.put(b"more").is_ok() {}
    assert_eq!(pool.used() / BLOCK, PAGE / BLOCK - FIRST);
    for (record, octets) in found {
        let mut now = vec![0; record.len()];
        pool.copy(record, &mut now);
        assert_eq!(now, octets, "somebody else has its blocks");
        pool.give(record);
    }
}
