//! The programs in the kernel. Needs root; without it these tests fail and say so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use compiled::{
    Action, Compiled, Direction, Entry, Key, NiId, PdrId, Qfi, Select, Tables as _, UeAddresses,
};
use nexthop::{Family, NextHopTables};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use session::testing;
use tables::testing::{furnish, hop, ports, resolve_peers};
use tables::{Features, Handle, Layout, Options, RingReader, Tables, Verdict};
use testkit::machine::need_root;
use testkit::random::Random;
use testkit::{packets, sessions};

const UE: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);

fn small() -> Layout {
    Layout::for_sessions(1024, 2, 2)
}

fn tunnel(teid: u32, peer: Ipv4Addr, qfi: u8) -> Compiled {
    let entry = Entry {
        qfi: Qfi::new(qfi),
        ..sessions::entry(
            PdrId(2),
            Direction::Downlink,
            Action::Tunnel {
                teid,
                peer: peer.into(),
                local: packets::N3.into(),
            },
        )
    };
    let key = Key::Ue4 {
        ni: NiId(0),
        addr: UE,
    };
    Compiled {
        entries: vec![entry],
        keys: vec![(key, Select::One(0))],
        ..Compiled::default()
    }
}

fn xdp_site(features: Option<Features>) -> (Tables, u32) {
    let options = Options {
        features,
        ..Options::default()
    };
    let mut tables = Tables::xdp(&Layout::for_sessions(1024, 2, 2), &ports(), &options).unwrap();
    for port in 0..3 {
        // Loopback: a test run redirects nowhere, but wants to know where to.
        tables.set_redirect(port, 1).unwrap();
    }
    furnish(&mut tables);
    let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
    (tables, n3)
}

fn uplink(teid: u32) -> Compiled {
    let entry = Entry {
        direction: Direction::Uplink,
        action: Action::Route { ni: NiId(0) },
        ue: Some(UeAddresses {
            v4: Some(UE),
            v6: None,
        }),
        qfi: None,
        ..tunnel(0, UE, 1).entries[0].clone()
    };
    Compiled {
        entries: vec![entry],
        keys: vec![(Key::direct(teid), Select::One(0))],
        ..Compiled::default()
    }
}

/// A TEID that another session has just given back leads through a list at first, because packets may still be
/// reading its own line.
#[test]
fn a_session_that_takes_a_teid_over_at_once_is_reached() {
    need_root();
    let options = Options {
        settle: Duration::ZERO,
        outer6: false,
        ..Options::default()
    };
    let mut tables = Tables::xdp(&small(), &ports(), &options).unwrap();
    (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
    // No IPv6 on N3: with it all common features stay.
    tables.set_local(&[packets::N3.into()]).unwrap();
    let out = tables.alloc_nexthop(&hop(1)).unwrap();
    tables
        .set_ni_routes(NiId(0), Family::V4, &[("0.0.0.0/0".parse().unwrap(), out)])
        .unwrap();
    let frame = packets::gpdu(
        7,
        None,
        &[
            &packets::ipv4(UE, Ipv4Addr::new(192, 0, 2, 1), 17, 64, 24)[..],
            &[0; 24],
        ]
        .concat(),
    );
    let (mut first, mut second) = (Handle::default(), Handle::default());
    tables.publish(&mut first, &uplink(7)).unwrap();
    settle(&mut tables);
    assert_eq!(tables.test_run(0, &frame).unwrap().unwrap().0, 4);
    tables.withdraw(&mut first);
    tables.publish(&mut second, &uplink(7)).unwrap();
    settle(&mut tables);
    assert_eq!(tables.test_run(0, &frame).unwrap().unwrap().0, 4);
}

/// The programs are of the narrowest build that does, when this returns.
fn settle(tables: &mut Tables) {
    for _ in 0..60_000 {
        tables.maintain();
        if !tables.needs_maintenance() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("programs did not settle");
}

/// Where users are spread over CPUs, the general programs take over, too, when the common ones do not do, and go
/// again; the lanes stay what they are.
#[test]
fn programs_of_a_spread_port_adapt() {
    need_root();
    let options = Options {
        settle: Duration::ZERO,
        outer6: false,
        ..Options::default()
    };
    let mut ports = ports();
    ports[0].spread = vec![0];
    let mut tables = Tables::xdp(&small(), &ports, &options).unwrap();
    (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
    tables.set_local(&[packets::N3.into()]).unwrap();
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink(7)).unwrap();
    let redirected = |tables: &Tables| {
        let user = packets::ipv4(UE, Ipv4Addr::new(192, 0, 2, 1), 17, 64, 0);
        let frame = packets::gpdu(7, None, &user);
        tables.test_run(0, &frame).unwrap().unwrap().0 == 4
    };
    assert!(!tables.features().contains(Features::PREFIX) && redirected(&tables));
    let mut framed = uplink(8);
    framed.entries[0].framed = true;
    framed.framed = vec!["198.51.100.0/24".parse().unwrap()];
    let mut other = Handle::default();
    tables.publish(&mut other, &framed).unwrap();
    assert!(tables.features().contains(Features::PREFIX) && redirected(&tables));
    tables.withdraw(&mut other);
    settle(&mut tables);
    assert!(!tables.features().contains(Features::PREFIX) && redirected(&tables));
}

/// A session changes TEID, gNB and QFI together, thousands of times, while packets flow on another thread: each goes
/// wholly to the old place or wholly to the new, and none is lost.
#[test]
fn packets_during_updates_are_whole() {
    const CHANGES: u64 = 4000;
    const OF_EACH: u64 = 1000;
    need_root();
    let (mut tables, n3) = xdp_site(Some(Features::ALL));
    let forms = [
        (0x1111_1111, Ipv4Addr::new(10, 3, 1, 1), 1),
        (0x2222_2222, Ipv4Addr::new(10, 3, 1, 2), 2),
    ];
    let compiled = forms.map(|(teid, peer, qfi)| tunnel(teid, peer, qfi));
    let mut handle = Handle::default();
    for form in &compiled {
        tables.publish(&mut handle, form).unwrap();
        resolve_peers(&mut tables, n3);
    }
    let runner = tables.runner(1).unwrap().unwrap();
    let ip = [
        &packets::ipv4(Ipv4Addr::new(192, 0, 2, 1), UE, 17, 64, 24)[..],
        &[0; 24],
    ]
    .concat();
    let frame = packets::ethernet(&ip);
    let stop = AtomicBool::new(false);
    let seen = [AtomicU64::new(0), AtomicU64::new(0)];
    let traffic = || {
        while !stop.load(Ordering::Relaxed) {
            let (verdict, out) = runner.test_run(&frame).unwrap();
            assert_eq!(verdict, 4, "redirected");
            let (peer, teid, qfi, inner) = packets::read_gpdu(&out);
            let form = forms
                .iter()
                .position(|form| (form.0, form.1.into(), Some(form.2)) == (teid, peer, qfi))
                .unwrap_or_else(|| panic!("a mixture: {teid:x} {peer} {qfi:?}"));
            assert_eq!(inner, packets::forwarded(&ip));
            seen[form].fetch_add(1, Ordering::Relaxed);
        }
    };
    let count = || {
        seen.each_ref()
            .map(|packets| packets.load(Ordering::Relaxed))
    };
    let mut changes = 0;
    std::thread::scope(|scope| {
        let traffic = scope.spawn(traffic);
        while !traffic.is_finished()
            && (changes < CHANGES || count().iter().any(|&packets| packets < OF_EACH))
        {
            let form = &compiled[changes as usize % 2];
            tables.publish(&mut handle, form).unwrap();
            resolve_peers(&mut tables, n3);
            tables.maintain();
            changes += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("{changes} changes; packets {:?}", count());
    let counted = tables.counters(&handle, PdrId(2));
    assert_eq!(
        counted.packets,
        count().iter().sum::<u64>(),
        "no packet is forgotten"
    );
}

/// Mutated packets over random sessions: the two builds of the pipeline agree on verdict, octets and
/// counters.
#[test]
fn both_builds_agree_on_mutated_packets() {
    const FRAMES: usize = 100_000;
    const PER_SESSION: usize = 1000;
    need_root();
    let config = testing::config();
    let features = Some(Features::ALL.without(Features::METER));
    let mut runner = TestRunner::deterministic();
    let mut random = Random(0x9e37_79b9);
    let options = Options {
        features,
        // Nor are the two builds' clocks one.
        error_indications_per_s: 0,
        icmp_errors_per_s: 0,
        echo_per_s: 0,
        ..Options::default()
    };
    let layout = Layout::for_sessions(1024, 2, 2);
    let mut host = Tables::host(&layout, &ports(), &options).unwrap();
    furnish(&mut host);
    let host_n3 = host.alloc_nexthop(&hop(0)).unwrap();
    let mut kernel = Tables::xdp(&layout, &ports(), &options).unwrap();
    (0..3).for_each(|port| kernel.set_redirect(port, 1).unwrap());
    furnish(&mut kernel);
    let kernel_n3 = kernel.alloc_nexthop(&hop(0)).unwrap();
    let (mut host_handle, mut kernel_handle) = (Handle::default(), Handle::default());
    // What user space would take, so that the rings are never full.
    let handed = [
        kernel.events().unwrap().unwrap(),
        kernel.copies().unwrap().unwrap(),
    ];
    let rings = handed.map(|ring| RingReader::open(&ring, |_| ()).unwrap());
    let mut fates = [0usize; 5];
    for session in 0..FRAMES / PER_SESSION {
        let rules = testing::rules().new_tree(&mut runner).unwrap().current();
        let mut compiled = testing::compile(rules.for_packets(), &config).unwrap();
        // Clocks differ, so rates are another test's matter.
        compiled.entries.iter_mut().for_each(|entry| {
            entry.shared_meters.clear();
            entry.packet_meter = None;
        });
        compiled.meters.clear();
        // Whether a key leads to its entry or to a list of it depends on what is still in its grace period, and that on
        // which buckets are full, which differs between any two tables. A list's drops are nobody's, or those of the PDR
        // that was there a grace period ago.
        settle(&mut host);
        settle(&mut kernel);
        host.publish(&mut host_handle, &compiled).unwrap();
        resolve_peers(&mut host, host_n3);
        kernel.publish(&mut kernel_handle, &compiled).unwrap();
        resolve_peers(&mut kernel, kernel_n3);
        settle(&mut host);
        settle(&mut kernel);
        for nth in 0..PER_SESSION {
            let packet = testing::packet().new_tree(&mut runner).unwrap().current();
            let (port, mut frame) = packets::arrival(&packet);
            random.mutate(&mut frame);
            let (verdict, out) = kernel.test_run(port, &frame).unwrap().unwrap();
            for ring in &rings {
                while ring.read(64).unwrap() > 0 {}
            }
            let now_ms = 1 + session * PER_SESSION + nth;
            let run = host.run(port, &frame, now_ms as u64 * 1_000_000).unwrap();
            let expected = match run.verdict {
                Verdict::Drop(_) | Verdict::Slow => 1,
                Verdict::Pass => 2,
                // An answer is redirected too; counters know it.
                Verdict::Answer | Verdict::Redirect(_) | Verdict::Later { .. } => 4,
            };
            assert_eq!(verdict, expected, "{:?} {frame:02x?}", run.verdict);
            if verdict != 1 {
                assert_eq!(out, run.frame, "{frame:02x?}");
            }
            let is_answer = run.verdict == Verdict::Answer;
            fates[if is_answer { 3 } else { verdict as usize }] += 1;
        }
        assert_eq!(host.totals(), kernel.totals());
        for entry in &compiled.entries {
            assert_eq!(
                host.counters(&host_handle, entry.pdr),
                kernel.counters(&kernel_handle, entry.pdr)
            );
        }
    }
    println!(
        "drop {}, pass {}, answer {}, forward {}",
        fates[1], fates[2], fates[3], fates[4]
    );
    assert!(
        fates[1] > 1000 && fates[2] > 100 && fates[4] > 1000,
        "{fates:?}"
    );
}
