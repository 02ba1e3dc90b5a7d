//! Arbitrary fragments into the reassembler: what a fuzz target and the replay of its corpus share.

use std::net::Ipv4Addr;

use slowpath::reassembly::{Bounds, Fragment, Key, Losses, Reassembler};

/// Octet that every packet holds at a place, so that what comes out can be judged.
fn octet(at: usize) -> u8 {
    (at ^ at >> 8) as u8
}

/// Eight octets of input are one fragment: sender, identification, offset, length, flags, time.
pub(crate) fn run(input: &[u8]) {
    let bounds = Bounds {
        packets: 16,
        bytes: 4096,
        packets_per_source: 6,
        bytes_per_source: 2048,
        fragments: 8,
        whole: 1024,
        age_ns: 1000,
    };
    let mut all = Reassembler::new(bounds);
    let (mut losses, mut now, mut given, mut made) = (Losses::new(), 0, 0u64, 0u64);
    for step in input.chunks_exact(8) {
        let key = Key {
            port: u32::from(step[0] & 1),
            source: Ipv4Addr::new(10, 0, 0, step[0] >> 5).into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            id: u32::from(step[1] & 15),
            proto: 17,
        };
        let offset = usize::from(u16::from_be_bytes([step[2], step[3]]) & 0xff) * 8;
        let len = usize::from(u16::from_be_bytes([step[4], step[5]]) & 0x3ff);
        let payload: Vec<u8> = (offset..offset + len).map(octet).collect();
        let fragment = Fragment {
            header: &[7; 20],
            payload: &payload,
            offset,
            more: step[6] & 1 == 1,
        };
        now += u64::from(step[7]);
        given += 1;
        let lost_before: u64 = losses.iter().map(|loss| loss.2).sum();
        if let Some(whole) = all.add(key, fragment, now, &mut losses) {
            made += 1;
            assert!(whole.payload.len() <= bounds.whole);
            assert_eq!(whole.header, [7; 20]);
            let right = |(at, &is): (usize, &u8)| is == octet(at);
            assert!(whole.payload.iter().enumerate().all(right));
        }
        assert!(all.bytes() <= bounds.bytes, "{} octets wait", all.bytes());
        let lost: u64 = losses.iter().map(|loss| loss.2).sum();
        assert!(lost >= lost_before && lost <= given);
    }
    all.expire(now + bounds.age_ns, &mut losses);
    assert!(all.is_empty() && all.bytes() == 0);
    let lost: u64 = losses.iter().map(|loss| loss.2).sum();
    assert!(lost + made <= given, "a fragment is lost once");
}
