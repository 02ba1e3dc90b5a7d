//! Puts, removals, deaths and damage in an arena, and a ring and a pool of any words.
#![no_main]

#[path = "../../crates/arena/tests/script/octets.rs"]
mod octets;
#[path = "../../crates/arena/tests/script/pool.rs"]
mod pool;
#[path = "../../crates/arena/tests/script/ring.rs"]
mod ring;
#[path = "../../crates/arena/tests/script/mod.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ring::run(input);
    pool::run(input);
    script::run(&octets::steps(input));
});
