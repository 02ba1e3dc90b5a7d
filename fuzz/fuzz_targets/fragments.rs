//! Fragments of several senders into the reassembler.
#![no_main]

#[path = "../../crates/slowpath/tests/fragments/mod.rs"]
mod fragments;

libfuzzer_sys::fuzz_target!(|input: &[u8]| fragments::run(input));
