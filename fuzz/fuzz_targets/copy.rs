//! Any files as the copy of an arena on a disk: they are read, and gone on with.
#![no_main]

#[path = "../../crates/arena/tests/script/copy.rs"]
mod copy;

libfuzzer_sys::fuzz_target!(|input: &[u8]| copy::run(input));
