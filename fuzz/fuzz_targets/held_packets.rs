//! Packets that wait, and any record of the ring that they come by, among changes of rules.
#![no_main]

#[path = "../../crates/slowpath/tests/held/mod.rs"]
mod held;

libfuzzer_sys::fuzz_target!(|input: &[u8]| held::run(input));
