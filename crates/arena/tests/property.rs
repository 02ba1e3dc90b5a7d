//! Random scripts beside a plain map.

#![allow(missing_docs)]

mod script;

use proptest::prelude::*;
use script::Step;

fn steps(damage: u32) -> impl Strategy<Value = Vec<Step>> {
    let octets = prop_oneof![
        8 => 0..500_u16,
        2 => 0..9000_u16,
        1 => any::<u16>(),
    ];
    let put = (any::<u8>(), octets, any::<u8>()).prop_map(|(place, octets, seed)| Step::Put {
        place,
        octets,
        seed,
    });
    // Directory, number of backed pages, and the first pages of the heap.
    let word = prop_oneof![5..6_u32, 512..536_u32, 8192..40_000_u32];
    let bits = prop_oneof![(0..64_u32).prop_map(|bit| 1 << bit), any::<u64>()];
    let step = prop_oneof![
        60 => put,
        20 => any::<u8>().prop_map(|place| Step::Remove { place }),
        5 => Just(Step::Reopen),
        damage => (word, bits).prop_map(|(word, bits)| Step::Damage { word, bits }),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_arena_is_a_map(steps in steps(0)) {
        script::run(&steps);
    }

    #[test]
    fn a_damaged_arena_is_a_map_with_gaps(steps in steps(15)) {
        script::run(&steps);
    }
}
