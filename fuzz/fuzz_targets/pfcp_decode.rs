//! Any datagram, decoded as deep as the types go.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/pfcp/tests/common/walk.rs"]
mod walk;

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| {
    let _ = walk::datagram(datagram);
});
