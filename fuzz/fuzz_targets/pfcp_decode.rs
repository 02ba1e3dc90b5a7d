//! Any datagram, decoded as deep as the types go.
#![no_main]

use testkit::walk;

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| {
    let _ = walk::datagram(datagram);
});
