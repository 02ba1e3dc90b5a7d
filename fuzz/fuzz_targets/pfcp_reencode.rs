//! What decodes, encoded again, decodes to the same value.
#![no_main]

use testkit::walk;

libfuzzer_sys::fuzz_target!(|datagram: &[u8]| walk::reencode(datagram));
