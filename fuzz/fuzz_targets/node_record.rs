//! Any octets as the record of a node.
#![no_main]

#[path = "../../crates/session/tests/nowhere/mod.rs"]
mod nowhere;
#[path = "../../crates/session/tests/record/mod.rs"]
mod record;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    record::run_node(octets);
});
