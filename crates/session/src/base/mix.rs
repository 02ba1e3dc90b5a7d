//! A permutation of 64 bits.

/// A bijection that spreads each bit over all (the finaliser of SplitMix64).
pub(crate) fn mix(value: u64) -> u64 {
    let mut x = value;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
