//! Any octets as an answer that a former node has kept.
#![no_main]

#[path = "../../crates/session/tests/record/mod.rs"]
#[allow(dead_code, reason = "of sessions")]
mod record;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    record::run_answer(octets);
});
