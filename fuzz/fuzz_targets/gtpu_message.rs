//! Any packet, as the data path hands up GTP-U messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| {
    let _ = session::gtpu::read_packet(packet);
    let _ = session::gtpu::read(packet);
});
