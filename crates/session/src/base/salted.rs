//! Hashing for sets whose keys a peer may choose: fast, the same on every run with the same seed,
//! and not to be aimed at without knowing the seed.

use std::hash::{BuildHasher, Hasher};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Salted(u64);

impl Salted {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }
}

impl BuildHasher for Salted {
    type Hasher = SaltedHasher;

    fn build_hasher(&self) -> SaltedHasher {
        SaltedHasher(self.0)
    }
}

pub(crate) struct SaltedHasher(u64);

impl Hasher for SaltedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = mix(self.0 ^ value);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A bijection that spreads each bit over all (the finaliser of SplitMix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut x = value;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
