//! Following a user: both pipelines report the same packets with the same words. Needs root.
#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use compiled::{Action, Compiled, Direction, Entry, Key, NiId, PdrId, Qfi, Select, Tables as _};
use tables::testing::{follow, furnish, ports};
use tables::trace::{TraceKey, TraceOutcome, TraceRecord, TraceThread};
use tables::{Features, Handle, Layout, Options, Tables};
use testkit::machine::need_root;
use testkit::packets::{self, ethernet, gpdu, ipv4};
use testkit::sessions;

const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const TEID: u32 = 0x101;

/// The session of a UE: PDR 7 uplink by route, with a QFI.
fn uplink() -> Compiled {
    let entry = Entry {
        ue: Some(compiled::UeAddresses {
            v4: Some(UE),
            v6: None,
        }),
        qfi: Qfi::new(9),
        ..sessions::entry(PdrId(7), Direction::Uplink, Action::Route { ni: NiId(0) })
    };
    Compiled {
        entries: vec![entry],
        keys: vec![(Key::direct(TEID), Select::One(0))],
        ..Compiled::default()
    }
}

fn user(src: Ipv4Addr, dst: Ipv4Addr, payload: usize) -> Vec<u8> {
    let mut ip = ipv4(src, dst, 17, 64, payload);
    ip.extend(vec![0; payload]);
    ip
}

/// Port, frame, and whether it is of the followed user.
fn frames() -> Vec<(usize, Vec<u8>, bool)> {
    let up = |src, teid, qfi| (0, gpdu(teid, qfi, &user(src, SERVER, 20)));
    let of = |(port, frame), followed| (port, frame, followed);
    vec![
        of(up(UE, TEID, Some(9)), true),
        of((0, gpdu(TEID, Some(9), &user(UE, SERVER, 1200))), true),
        // Another QFI, another source, none: by the tunnel.
        of(up(UE, TEID, Some(5)), true),
        of(up(OTHER, TEID, Some(9)), true),
        of((0, gpdu(TEID, Some(9), &[])), true),
        // A tunnel that nobody knows: by the source.
        of(up(UE, 0x999, Some(9)), true),
        of(up(OTHER, 0x999, Some(9)), false),
        // A UE without a downlink PDR, and another.
        of((1, ethernet(&user(SERVER, UE, 20))), true),
        of((1, ethernet(&user(SERVER, OTHER, 20))), false),
        of((1, ethernet(&user(UE, OTHER, 20))), false),
    ]
}

fn furnished(mut tables: Tables) -> Tables {
    for port in 0..3 {
        tables.set_redirect(port, 1).unwrap();
    }
    furnish(&mut tables);
    tables.publish(&mut Handle::default(), &uplink()).unwrap();
    tables
}

/// Reports of the kernel on one frame after the other.
fn from_kernel(
    tables: &Tables,
    reports: &Receiver<TraceRecord>,
    expected: bool,
) -> Vec<Option<TraceRecord>> {
    let run = |(port, frame, followed): (usize, Vec<u8>, bool)| {
        tables
            .runner(port)
            .unwrap()
            .unwrap()
            .test_run(&frame)
            .unwrap();
        let patience = Duration::from_millis(if followed && expected { 5000 } else { 50 });
        reports.recv_timeout(patience).ok()
    };
    frames().into_iter().map(run).collect()
}

fn without_time(record: Option<TraceRecord>) -> Option<TraceRecord> {
    record.map(|record| TraceRecord {
        time_ns: 0,
        ..record
    })
}

#[test]
fn both_pipelines_report_who_is_followed_and_nobody_else() {
    need_root();
    let layout = Layout::for_sessions(1024, 2, 2);
    let options = Options::default();
    let mut kernel = furnished(Tables::xdp(&layout, &ports(), &options).unwrap());
    let mut host = furnished(Tables::host(&layout, &ports(), &options).unwrap());
    let (sender, reports) = channel();
    let ring = kernel.traced().unwrap().unwrap();
    let thread = TraceThread::start(ring, move |record| {
        let _ = sender.send(record);
    });
    let _thread = thread.unwrap();

    assert!(
        from_kernel(&kernel, &reports, false)
            .iter()
            .all(Option::is_none)
    );
    let keys = [
        (TraceKey::Teid(TEID), 1),
        (TraceKey::Ue(IpAddr::V4(UE).into()), 2),
    ];
    follow(&mut kernel, &keys);
    assert!(host.follow(&keys).unwrap());
    assert!(kernel.features().contains(Features::TRACE));

    let by_kernel = from_kernel(&kernel, &reports, true);
    for ((port, frame, followed), record) in frames().into_iter().zip(&by_kernel) {
        assert_eq!(record.is_some(), followed);
        let by_host = host.run(port, &frame, 0).unwrap().trace;
        assert_eq!(without_time(record.clone()), without_time(by_host));
    }
    let reason = |index: usize| match by_kernel[index].as_ref().unwrap().outcome {
        TraceOutcome::Dropped(reason) => reason.name(),
        TraceOutcome::Forwarded => "forwarded",
        TraceOutcome::Answered => "answered",
        _ => "else",
    };
    let seen = [0, 1, 2, 3, 4, 5, 7].map(reason);
    let expected = [
        "forwarded",
        "forwarded",
        "qfi_mismatch",
        "ue_spoofed",
        "gtpu_inner",
        "answered",
        "unknown_ue",
    ];
    assert_eq!(seen, expected);
    let first = by_kernel[0].clone().unwrap();
    assert_eq!(
        (first.pdr, first.teid, first.qfi, first.traces),
        (Some(7), Some(TEID), Some(9), 3)
    );
    assert_eq!(first.frame, frames()[0].1);
    let long = by_kernel[1].clone().unwrap();
    assert_eq!(
        (long.frame.len(), long.frame_len as usize),
        (256, frames()[1].1.len())
    );

    follow(&mut kernel, &[]);
    assert!(!kernel.features().contains(Features::TRACE));
    assert!(
        from_kernel(&kernel, &reports, false)
            .iter()
            .all(Option::is_none)
    );
}

/// A /64 stands for all its addresses.
#[test]
fn ipv6_is_followed_by_prefix() {
    let layout = Layout::for_sessions(1024, 2, 2);
    let host = Tables::host(&layout, &ports(), &Options::default());
    let mut host = furnished(host.unwrap());
    let key = TraceKey::Ue("2001:db8:60::1/64".parse().unwrap());
    assert!(host.follow(&[(key, 1)]).unwrap());
    for (dst, followed) in [("2001:db8:60::77", true), ("2001:db8:61::1", false)] {
        let dst: IpAddr = dst.parse().unwrap();
        let packet = packets::Packet {
            src: "2001:db8::9".parse().unwrap(),
            dst,
            proto: 17,
            ports: Some((1, 2)),
            tos: 0,
            spi: None,
            label: 0,
            arrival: packets::Arrival::Network { ni: NiId(0) },
        };
        let (port, frame) = packets::arrival(&packet);
        let record = host.run(port, &frame, 0).unwrap().trace;
        assert_eq!(record.is_some(), followed);
    }
}
