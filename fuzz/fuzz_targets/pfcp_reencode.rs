//! What decodes, encoded again, decodes to the same value.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/pfcp/tests/common/walk.rs"]
mod walk;

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| walk::reencode(datagram));
