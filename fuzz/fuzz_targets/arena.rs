//! Puts, removals, deaths and damage in an arena.
#![no_main]

#[path = "../../crates/arena/tests/script/octets.rs"]
mod octets;
#[path = "../../crates/arena/tests/script/mod.rs"]
mod script;

libfuzzer_sys::fuzz_target!(|input: &[u8]| script::run(&octets::steps(input)));
