//! Alarms of usage hear of packets that user space has put together.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::Ipv4Addr;

use compiled::{
    Action, Compiled, Counters, Direction, Entry, Key, NiId, PdrId, Select, Tables as _,
    UeAddresses,
};
use slowpath::Setup;
use tables::testing::{furnish, ports};
use tables::{Features, Handle, Layout, Options, Tables, Verdict};
use testkit::{packets, sessions};

const SEID: u64 = 0x1234;
const PDR: PdrId = PdrId(1);
/// Octets of each packet that a user sends here.
const LEN: u64 = 48;

fn ue(teid: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a3c_0000 + teid)
}

fn entry(pdr: u16, teid: u32) -> Entry {
    Entry {
        ue: Some(UeAddresses {
            v4: Some(ue(teid)),
            v6: None,
        }),
        ..sessions::entry(PdrId(pdr), Direction::Uplink, Action::Route { ni: NiId(0) })
    }
}

/// A session with uplink alone.
fn uplink(seid: u64, teid: u32) -> Compiled {
    Compiled {
        seid,
        entries: vec![entry(PDR.0, teid)],
        keys: vec![(Key::direct(teid), Select::One(0))],
        ..Compiled::default()
    }
}

fn frame(teid: u32) -> Vec<u8> {
    let ip = packets::ipv4(ue(teid), Ipv4Addr::new(192, 0, 2, 1), 17, 64, 28);
    packets::gpdu(teid, None, &[&ip[..], &[0; 28]].concat())
}

fn options() -> Options {
    Options {
        features: Some(Features::ALL),
        ..Options::default()
    }
}

fn host() -> Tables {
    let mut tables = Tables::host(&Layout::for_sessions(1024, 2, 2), &ports(), &options()).unwrap();
    furnish(&mut tables);
    tables
}

fn heard(tables: &mut Tables) -> Vec<u64> {
    let mut seids = Vec::new();
    while tables.crossings(1000, &mut seids).unwrap() {}
    seids
}

fn pass(tables: &Tables, packets: u64, teid: u32) {
    for _ in 0..packets {
        let run = tables.run(0, &frame(teid), 1_000_000_000).unwrap();
        assert!(matches!(run.verdict, Verdict::Redirect(_)));
    }
}

fn counted(packets: u64) -> Counters {
    Counters {
        packets,
        bytes: packets * LEN,
        ..Counters::default()
    }
}

/// Bytes that a thread of user space counts aside bring the alarm nearer, too.
#[test]
fn bytes_counted_aside_are_heard_of() {
    let mut tables = host();
    let setup = Setup::new(&mut tables).unwrap();
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    tables.arm(&handle, PDR, Some(4 * LEN));
    pass(&tables, 2, 7);
    // A G-PDU in two fragments, which user space puts together.
    let mut finisher = setup.finisher(&tables);
    let mut out = Vec::new();
    for part in fragments(&frame(7)) {
        let run = tables.run(0, &part, 1_000_000_000).unwrap();
        assert_eq!(run.verdict, Verdict::Slow);
        finisher
            .finish(&run.event, 1_000_000_000, &mut out)
            .unwrap();
    }
    assert_eq!(out.len(), 1, "the packet, put together");
    assert_eq!(tables.counters(&handle, PDR), counted(3));
    assert!(heard(&mut tables).is_empty());
    pass(&tables, 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
    // And where a packet that is counted aside is the one.
    tables.arm(&handle, PDR, Some(5 * LEN));
    for part in fragments(&frame(7)) {
        let run = tables.run(0, &part, 2_000_000_000).unwrap();
        finisher
            .finish(&run.event, 2_000_000_000, &mut out)
            .unwrap();
    }
    assert_eq!(tables.counters(&handle, PDR), counted(5));
    assert_eq!(heard(&mut tables), [SEID]);
}

/// The outer IPv4 packet of a frame in two.
fn fragments(frame: &[u8]) -> [Vec<u8>; 2] {
    let (headers, payload) = frame.split_at(34);
    let (first, second) = payload.split_at(32);
    [(first, 0x2000), (second, 4)].map(|(part, offset)| {
        let ends = [&headers[26..30], &headers[30..34]];
        let [src, dst] = ends.map(|addr| Ipv4Addr::from(<[u8; 4]>::try_from(addr).unwrap()));
        let mut ip = packets::ipv4(src, dst, 17, 64, part.len());
        let bits: u16 = offset;
        ip[6..8].copy_from_slice(&bits.to_be_bytes());
        // The identification's place in the sum goes to the offset.
        let sum = u32::from(u16::from_be_bytes([ip[10], ip[11]])) + u32::from(!bits);
        ip[10..12].copy_from_slice(&((sum & 0xffff) as u16 + (sum >> 16) as u16).to_be_bytes());
        assert!(packets::checksum_holds(&ip));
        packets::ethernet(&[&ip[..], part].concat())
    })
}
