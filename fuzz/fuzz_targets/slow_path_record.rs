//! Any record of the event ring, as the data path hands them up.
#![no_main]

#[path = "../../crates/slowpath/tests/records/mod.rs"]
mod records;

libfuzzer_sys::fuzz_target!(|input: &[u8]| records::run(input));
