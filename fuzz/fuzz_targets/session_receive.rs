//! Several datagrams of two peers into the core.
#![no_main]

#[path = "../../crates/session/tests/receive/mod.rs"]
mod receive;

libfuzzer_sys::fuzz_target!(|input: &[u8]| receive::receive(input));
