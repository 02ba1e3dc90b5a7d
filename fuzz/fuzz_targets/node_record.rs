//! Any octets as the record of a node, and as that of its PFDs.
#![no_main]

#[path = "../../crates/session/tests/record/mod.rs"]
#[allow(dead_code, reason = "of sessions")]
mod record;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    record::run_node(octets);
    record::run_pfds(octets);
});
