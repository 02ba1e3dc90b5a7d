//! SEIDs: which bits say what, and what a peer can read from one.
//!
//! 12 clear bits, the member of a cluster, and 52 enciphered ones: the place of a session and how many have been there
//! before ([decision](../../../../docs/decisions/0023-a-seid-is-a-place-enciphered.md)).

use compiled::SeidKey;

use crate::base::mix::mix;

/// Bits of a place, and of a generation.
const HALF_BITS: u32 = 26;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;

/// So many places have SEIDs of their own.
pub(crate) const PLACES: u32 = 1 << HALF_BITS;

/// After so many sessions a place begins again with the first.
pub(crate) const GENERATIONS: u32 = 1 << HALF_BITS;

/// Member of the cluster; there is one.
const PARTITION: u64 = 0;

/// A keyed permutation of 52 bits: a Feistel network of four rounds, of which the inner two mix all bits and the outer two
/// multiply and add (M. Naor, O. Reingold, "On the construction of pseudorandom permutations", 1999).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cipher {
    outer: [(u64, u64); 2],
    inner: [u64; 2],
}

impl Cipher {
    pub(crate) fn new(seed: u64) -> Self {
        let mut key = seed;
        let [a, b, c, d, e, f] = [(); 6].map(|()| {
            key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(key)
        });
        Self {
            outer: [(a | 1, b), (c | 1, d)],
            inner: [e, f],
        }
    }

    /// For the data path, which deciphers SEIDs too.
    pub(crate) fn key(self) -> SeidKey {
        SeidKey {
            outer: self.outer,
            inner: self.inner,
        }
    }

    /// The SEID of a session. Zero is none, and the one place and generation that would have it are not used.
    pub(crate) fn seid(self, index: u32, generation: u32) -> u64 {
        let [first, last] = self.outer;
        let [second, third] = self.inner;
        let (a, b) = (
            u64::from(generation) & HALF_MASK,
            u64::from(index) & HALF_MASK,
        );
        let a = a ^ multiplied(b, first);
        let b = b ^ mixed(a, second);
        let a = a ^ mixed(b, third);
        let b = b ^ multiplied(a, last);
        PARTITION << (2 * HALF_BITS) | a << HALF_BITS | b
    }

    /// Index of the place and generation that a SEID is of. `None`: it is another member's.
    pub(crate) fn place(self, seid: u64) -> Option<(u32, u32)> {
        if seid >> (2 * HALF_BITS) != PARTITION {
            return None;
        }
        let [first, last] = self.outer;
        let [second, third] = self.inner;
        let (a, b) = (seid >> HALF_BITS, seid & HALF_MASK);
        let b = b ^ multiplied(a, last);
        let a = a ^ mixed(b, third);
        let b = b ^ mixed(a, second);
        let a = a ^ multiplied(b, first);
        Some((b as u32, a as u32))
    }
}

fn multiplied(half: u64, (by, and): (u64, u64)) -> u64 {
    half.wrapping_mul(by).wrapping_add(and) >> (u64::BITS - HALF_BITS)
}

fn mixed(half: u64, key: u64) -> u64 {
    mix(key ^ half) >> (u64::BITS - HALF_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_seid_leads_back_to_its_place(
            seed: u64,
            index in 0..PLACES,
            generation in 0..GENERATIONS,
        ) {
            let cipher = Cipher::new(seed);
            let seid = cipher.seid(index, generation);
            prop_assert_eq!(seid >> 52, PARTITION);
            prop_assert_eq!(cipher.place(seid), Some((index, generation)));
        }

        #[test]
        fn any_number_is_the_seid_of_one_place_or_anothers(seed: u64, seid: u64) {
            let cipher = Cipher::new(seed);
            match cipher.place(seid) {
                Some((index, generation)) => prop_assert_eq!(cipher.seid(index, generation), seid),
                None => prop_assert!(seid >> 52 != PARTITION),
            }
        }

        /// Places and generations that follow each other differ in about half of the bits of their SEIDs.
        #[test]
        fn neighbours_have_seids_that_are_none(seed: u64, index in 0..PLACES - 64) {
            let cipher = Cipher::new(seed);
            let differ = |step: u32| {
                let (a, b) = (cipher.seid(index, step), cipher.seid(index + 1, step));
                let c = cipher.seid(index, step + 1);
                (a ^ b).count_ones() + (a ^ c).count_ones()
            };
            let all: u32 = (0..64).map(differ).sum();
            // 2 x 64 x 26 are expected, with a deviation of 41.
            prop_assert!((3000..=3656).contains(&all), "{}", all);
        }
    }
}
