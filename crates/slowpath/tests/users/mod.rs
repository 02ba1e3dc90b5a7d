//! Any octets as a user's packet, and fragments of users' packets in any order: what fuzz targets and the replay of their
//! corpora share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slowpath::advertise::{Advertised, advertisement, solicitor};
use slowpath::cut;
use slowpath::followers::{self, Followers, Key};
use slowpath::icmp::{self, Cause};
use slowpath::reassembly::Losses;

const ROUTERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 6, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];

/// Two octets are an MTU, the rest a packet.
pub(crate) fn packet(input: &[u8]) {
    let Some((mtu, packet)) = input.split_first_chunk() else {
        return;
    };
    let mtu = u16::from_be_bytes(*mtu);
    for source in ROUTERS {
        for hop_spent in [false, true] {
            check_error(packet, Cause::TooLong { mtu, hop_spent }, source);
        }
        check_error(packet, Cause::Expired, source);
    }
    check_cut(packet, mtu.into());
    if let Some(asked) = solicitor(packet) {
        let what = Advertised {
            lifetime_s: 1800,
            mtu: Some(1400),
            dns: Vec::new(),
        };
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
        let answer = advertisement(&what, prefix, asked).expect("it may be answered");
        // A UE that has no address yet does not hear of one that it has.
        assert!(asked.is_unspecified() || answer[24..40] == asked.octets());
    }
    if let Some((key, _)) = followers::read(0, 7, packet) {
        assert_eq!(key.source.is_ipv4(), packet[0] >> 4 == 4);
    }
}

/// An error is short, of the family of the packet, goes to its sender, and says what it says.
fn check_error(packet: &[u8], cause: Cause, source: IpAddr) {
    let Some(error) = icmp::error(packet, cause, source) else {
        return;
    };
    assert_eq!(error[0] >> 4, packet[0] >> 4);
    let length = |at: usize| usize::from(u16::from_be_bytes([error[at], error[at + 1]]));
    if source.is_ipv4() {
        assert!(error.len() <= 576 && length(2) == error.len());
        assert_eq!(error[16..20], packet[12..16]);
        assert!([3, 11].contains(&error[20]));
    } else {
        assert!(error.len() <= 1280 && length(4) + 40 == error.len());
        assert_eq!(error[24..40], packet[8..24]);
        assert!([2, 3].contains(&error[40]));
    }
}

/// Fragments are as short as was asked for, and their payloads one behind the other are the packet's.
fn check_cut(packet: &[u8], max: usize) {
    let Some(fragments) = cut::cut(packet, max, 7) else {
        return;
    };
    let header_len = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let mut together: Vec<u8> = Vec::new();
    for fragment in &fragments {
        assert!(fragment.len() <= max && fragment.len() > header_len);
        assert_eq!(fragment[4..6], fragments[0][4..6]);
        together.extend(&fragment[header_len..]);
    }
    assert_eq!(together, packet[header_len..total]);
}

/// Eight octets of input are one fragment: whose, which packet, whether it is the first, length, time.
pub(crate) fn fragments(input: &[u8]) {
    let bounds = followers::Bounds {
        packets: 12,
        packets_per_user: 5,
        bytes: 4096,
        frames: 6,
        age_ns: 1000,
    };
    let mut all = Followers::new(bounds);
    let (mut losses, mut now, mut given, mut gone) = (Losses::new(), 0, 0u64, 0u64);
    for step in input.chunks_exact(8) {
        let key = Key {
            port: u32::from(step[0] & 1),
            teid: u32::from(step[0] >> 1 & 3),
            source: Ipv4Addr::new(10, 0, 0, step[0] >> 5).into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            id: u32::from(step[1] & 15),
            proto: 17,
        };
        let first = (step[2] & 1 == 1).then(|| u64::from(step[3]));
        let frame = vec![step[1] & 15; usize::from(u16::from_be_bytes([step[4], step[5]]) & 0x7ff)];
        now += u64::from(u16::from_be_bytes([step[6], step[7]]) & 0xff);
        given += 1;
        for ready in all.add(key, first, &frame, now, &mut losses) {
            assert!(
                ready.frame.iter().all(|octet| *octet == step[1] & 15),
                "of another packet"
            );
            gone += 1;
        }
        assert!(all.bytes() <= bounds.bytes, "{} octets wait", all.bytes());
    }
    all.expire(now + bounds.age_ns, &mut losses);
    assert!(all.is_empty() && all.bytes() == 0);
    let lost: u64 = losses.iter().map(|loss| loss.2).sum();
    assert_eq!(lost + gone, given, "each frame goes on or is lost, once");
}
