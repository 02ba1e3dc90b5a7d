//! Any octets as the memory of a ring.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicU64;

use arena::ring::Ring;

/// It has as many records as fit, and the next one is there afterwards; or it is none.
pub(crate) fn run(input: &[u8]) {
    let words = input.chunks_exact(8).map(|octets| {
        let octets = octets.try_into().unwrap();
        AtomicU64::new(u64::from_le_bytes(octets))
    });
    let magic = AtomicU64::new(u64::from_le_bytes(*b"tp-ring1"));
    let words: Vec<AtomicU64> = std::iter::once(magic).chain(words).collect();
    let Ok(mut ring) = Ring::open(&words[..]) else {
        return;
    };
    assert!(ring.records().count() <= words.len());
    if ring.push(b"the next").is_ok() {
        assert_eq!(ring.records().last().unwrap(), b"the next");
        let again = Ring::open(&words[..]).unwrap();
        assert!(again.records().eq(ring.records()));
    }
}
