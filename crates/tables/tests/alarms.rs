//! Hearing of PDRs that have forwarded so much: in this process and, as root, from programs in the kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use compiled::{
    Action, Compiled, Counters, Direction, Entry, Filter, Flow, Key, NiId, PdrId, Select,
    Tables as _, UeAddresses,
};
use tables::testing::{follow, furnish, ports};
use tables::{Features, Handle, Layout, Options, Tables};
use testkit::machine::need_root;
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
        measured: true,
        entries: vec![entry(PDR.0, teid)],
        keys: vec![(Key::direct(teid), Select::One(0))],
        ..Compiled::default()
    }
}

/// The same with a second PDR for TCP, so that packets meet a list, and the first PDR another entry.
fn uplink_of_two(seid: u64, teid: u32) -> Compiled {
    let filter = |entry, proto| Filter {
        entry,
        flow: Some(Flow {
            proto: Some(proto),
            ..Flow::default()
        }),
        qfis: Default::default(),
    };
    Compiled {
        seid,
        measured: true,
        entries: vec![entry(PDR.0, teid), entry(2, teid)],
        keys: vec![(Key::direct(teid), Select::List { first: 0, len: 2 })],
        filters: vec![filter(1, 6), filter(0, 17)],
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

fn kernel(sessions: u32) -> Tables {
    need_root();
    let layout = Layout::for_sessions(sessions, 2, 2);
    let mut tables = Tables::xdp(&layout, &ports(), &options()).unwrap();
    (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
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
        match tables.run(0, &frame(teid), 1_000_000_000) {
            Some(run) => assert!(matches!(run.verdict, tables::Verdict::Redirect(_))),
            None => assert_eq!(tables.test_run(0, &frame(teid)).unwrap().unwrap().0, 4),
        }
    }
}

fn counted(packets: u64) -> Counters {
    Counters {
        packets,
        bytes: packets * LEN,
        ..Counters::default()
    }
}

fn is_told_at_the_crossing(mut tables: Tables) {
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    pass(&tables, 5, 7);
    tables.arm(&handle, PDR, Some(8 * LEN));
    pass(&tables, 2, 7);
    assert!(heard(&mut tables).is_empty(), "one is missing");
    pass(&tables, 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
    pass(&tables, 100, 7);
    assert!(heard(&mut tables).is_empty(), "once is enough");
    tables.arm(&handle, PDR, Some(100 * LEN));
    assert_eq!(heard(&mut tables), [SEID], "it has been reached");
    tables.arm(&handle, PDR, Some(110 * LEN));
    tables.arm(&handle, PDR, None);
    pass(&tables, 100, 7);
    assert!(heard(&mut tables).is_empty(), "nobody waits for it");
    assert_eq!(tables.counters(&handle, PDR), counted(208));
}

#[test]
fn a_crossing_is_told_once() {
    is_told_at_the_crossing(host());
}

#[test]
fn a_crossing_is_told_once_by_programs() {
    is_told_at_the_crossing(kernel(1024));
}

/// A crossing that nobody answers is told again, so that none is lost.
#[test]
fn a_crossing_is_told_again_after_a_while() {
    let mut tables = host();
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    tables.arm(&handle, PDR, Some(LEN));
    pass(&tables, 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
    pass(&tables, 65536 / LEN + 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
}

fn survives_changes(mut tables: Tables) {
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    pass(&tables, 5, 7);
    tables.arm(&handle, PDR, Some(20 * LEN));
    for round in 0..7 {
        // Before and after the grace period of the entry that was left.
        let form = [uplink(SEID, 7), uplink_of_two(SEID, 7)][round % 2].clone();
        tables.publish(&mut handle, &form).unwrap();
        pass(&tables, 1, 7);
        if round % 3 == 0 {
            while tables.needs_maintenance() {
                tables.maintain();
            }
        }
        pass(&tables, 1, 7);
        assert!(heard(&mut tables).is_empty(), "round {round}");
    }
    assert_eq!(tables.counters(&handle, PDR), counted(19));
    pass(&tables, 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
    assert_eq!(tables.counters(&handle, PDR), counted(20));
}

#[test]
fn an_alarm_outlasts_changes_of_rules() {
    survives_changes(host());
}

#[test]
fn an_alarm_outlasts_changes_of_rules_in_programs() {
    survives_changes(kernel(1024));
}

/// The same session, with its gate closed.
fn closed(mut session: Compiled) -> Compiled {
    for entry in &mut session.entries {
        entry.action = Action::GateClosed;
    }
    session
}

fn is_dropped(tables: &Tables, packets: u64, teid: u32) {
    for _ in 0..packets {
        match tables.run(0, &frame(teid), 1_000_000_000) {
            Some(run) => assert!(matches!(run.verdict, tables::Verdict::Drop(_))),
            None => assert_eq!(tables.test_run(0, &frame(teid)).unwrap().unwrap().0, 1),
        }
    }
}

fn dropped_by_qos(packets: u64) -> Counters {
    Counters {
        drops: packets,
        qos_packets: packets,
        qos_bytes: packets * LEN,
        ..Counters::default()
    }
}

fn drops_are_told_at_the_crossing(mut tables: Tables) {
    let mut handle = Handle::default();
    tables
        .publish(&mut handle, &closed(uplink(SEID, 7)))
        .unwrap();
    is_dropped(&tables, 5, 7);
    tables.arm(&handle, PDR, Some(LEN));
    is_dropped(&tables, 1, 7);
    assert!(heard(&mut tables).is_empty(), "none was forwarded");
    tables.arm_qos(&handle, PDR, Some(8 * LEN));
    is_dropped(&tables, 1, 7);
    assert!(heard(&mut tables).is_empty(), "one is missing");
    is_dropped(&tables, 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
    is_dropped(&tables, 100, 7);
    assert!(heard(&mut tables).is_empty(), "once is enough");
    is_dropped(&tables, 65536 / LEN, 7);
    assert_eq!(heard(&mut tables), [SEID], "nobody has answered");
    tables.arm_qos(&handle, PDR, Some(100 * LEN));
    assert_eq!(heard(&mut tables), [SEID], "it has been reached");
    tables.arm_qos(&handle, PDR, None);
    is_dropped(&tables, 2 * 65536 / LEN, 7);
    assert!(heard(&mut tables).is_empty(), "nobody waits for it");
    let all = 108 + 65536 / LEN + 2 * 65536 / LEN;
    assert_eq!(tables.counters(&handle, PDR), dropped_by_qos(all));
}

#[test]
fn a_crossing_by_drops_is_told_once() {
    drops_are_told_at_the_crossing(host());
}

#[test]
fn a_crossing_by_drops_is_told_once_by_programs() {
    drops_are_told_at_the_crossing(kernel(1024));
}

fn drops_survive_changes(mut tables: Tables) {
    let mut handle = Handle::default();
    tables
        .publish(&mut handle, &closed(uplink(SEID, 7)))
        .unwrap();
    is_dropped(&tables, 5, 7);
    tables.arm_qos(&handle, PDR, Some(20 * LEN));
    for round in 0..7 {
        let form = [uplink(SEID, 7), uplink_of_two(SEID, 7)][round % 2].clone();
        tables.publish(&mut handle, &closed(form)).unwrap();
        is_dropped(&tables, 1, 7);
        if round % 3 == 0 {
            while tables.needs_maintenance() {
                tables.maintain();
            }
        }
        is_dropped(&tables, 1, 7);
        assert!(heard(&mut tables).is_empty(), "round {round}");
    }
    assert_eq!(tables.counters(&handle, PDR), dropped_by_qos(19));
    is_dropped(&tables, 1, 7);
    assert_eq!(heard(&mut tables), [SEID]);
    // The gate opens: what was dropped stays counted.
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    pass(&tables, 1, 7);
    let all = dropped_by_qos(20).plus(counted(1));
    assert_eq!(tables.counters(&handle, PDR), all);
    tables.withdraw(&mut handle);
    assert_eq!(tables.parted(PDR), Some(all));
    while tables.needs_maintenance() {
        tables.maintain();
    }
    // Another session in the same lines begins with nothing.
    tables
        .publish(&mut handle, &closed(uplink(SEID, 7)))
        .unwrap();
    assert_eq!(tables.counters(&handle, PDR), Counters::default());
    is_dropped(&tables, 1, 7);
    assert!(heard(&mut tables).is_empty(), "nobody has armed it");
}

#[test]
fn drops_of_qos_and_their_alarm_outlast_changes_of_rules() {
    drops_survive_changes(host());
}

#[test]
fn drops_of_qos_and_their_alarm_outlast_changes_of_rules_in_programs() {
    drops_survive_changes(kernel(1024));
}

/// Counts of a PDR that a change took out are known when nothing finds it any more.
#[test]
fn a_pdr_that_goes_leaves_its_counts() {
    let mut tables = host();
    let mut handle = Handle::default();
    tables
        .publish(&mut handle, &uplink_of_two(SEID, 7))
        .unwrap();
    pass(&tables, 3, 7);
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    assert_eq!(tables.parted(PdrId(2)), Some(counted(0)));
    assert_eq!(tables.parted(PDR), None, "it is still there");
    pass(&tables, 2, 7);
    tables.withdraw(&mut handle);
    assert_eq!(tables.parted(PDR), Some(counted(5)));
    assert_eq!(tables.parted(PdrId(2)), None, "an earlier change's");
    let unmeasured = Compiled {
        measured: false,
        ..uplink(SEID, 7)
    };
    tables.publish(&mut handle, &unmeasured).unwrap();
    tables.withdraw(&mut handle);
    assert_eq!(tables.parted(PDR), None, "nobody asks");
    assert_eq!(tables.late_bytes(), 0);
}

/// As many sessions as reach their alarms within a moment, more than the ring has room for: each is heard of.
#[test]
fn a_storm_of_crossings_is_heard_of_as_a_whole() {
    const SESSIONS: u32 = 150_000;
    let mut tables = kernel(SESSIONS);
    let mut handles = Vec::new();
    for teid in 1..=SESSIONS {
        let mut handle = Handle::default();
        tables
            .publish(&mut handle, &uplink(teid.into(), teid))
            .unwrap();
        tables.arm(&handle, PDR, Some(LEN));
        handles.push(handle);
    }
    for teid in 1..=SESSIONS {
        pass(&tables, 1, teid);
    }
    let [told, lost] = tables.counting().alarms();
    assert_eq!(told + lost, u64::from(SESSIONS));
    assert!(lost > 0, "the ring had room for all: this test is none");
    let mut seen = vec![false; SESSIONS as usize];
    let mut turns = 0;
    loop {
        let mut seids = Vec::new();
        let more = tables.crossings(1024, &mut seids).unwrap();
        assert!(seids.len() <= 1024 + (1 << 14), "a turn is bounded");
        turns += 1;
        seids
            .iter()
            .for_each(|&seid| seen[seid as usize - 1] = true);
        if !more {
            break;
        }
    }
    assert!(turns > 10);
    assert!(seen.iter().all(|&seen| seen), "one was forgotten");
}

/// Several CPUs send for one PDR while its session changes and programs are replaced: each packet is counted once, and
/// no alarm is forgotten, though one may be heard before its time. How late it comes nothing here says.
#[test]
fn counts_are_exact_while_everything_changes() {
    const THREADS: usize = 4;
    let mut tables = kernel(1024);
    let mut handle = Handle::default();
    tables.publish(&mut handle, &uplink(SEID, 7)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut sent = 0;
    let mut alarms = 0;
    for round in 0..6 {
        // Programs with tracing and those without.
        let key = [(tables::trace::TraceKey::Teid(99), 1)];
        let keys = if round % 2 == 0 { &key[..] } else { &[] };
        stop.store(false, Ordering::Relaxed);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (runner, stop) = (tables.runner(0).unwrap().unwrap(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let frame = frame(7);
                    let mut sent = 0;
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(runner.test_run(&frame).unwrap().0, 4);
                        sent += 1;
                    }
                    sent
                })
            })
            .collect();
        follow(&mut tables, keys);
        let since = Instant::now();
        let mut at = 0;
        let mut alarm = 0;
        while since.elapsed() < Duration::from_millis(500) {
            let forms = [uplink(SEID, 7), uplink_of_two(SEID, 7)];
            tables.publish(&mut handle, &forms[at % 2]).unwrap();
            at += 1;
            if alarm == 0 {
                alarm = tables.counters(&handle, PDR).bytes + 50 * LEN;
                tables.arm(&handle, PDR, Some(alarm));
            }
            tables.maintain();
            if heard(&mut tables) == [SEID] {
                alarms += u64::from(tables.counters(&handle, PDR).bytes >= alarm);
                alarm = 0;
            }
        }
        stop.store(true, Ordering::Relaxed);
        sent += threads.into_iter().map(|t| t.join().unwrap()).sum::<u64>();
        if alarm != 0 {
            // Whatever is missing, these are more.
            pass(&tables, 51, 7);
            sent += 51;
            while tables.needs_maintenance() {
                tables.maintain();
            }
            assert_eq!(heard(&mut tables), [SEID], "round {round}");
        }
    }
    assert_eq!(tables.counters(&handle, PDR), counted(sent));
    assert!(alarms > 0);
    while tables.needs_maintenance() {
        tables.maintain();
    }
    assert_eq!(tables.counters(&handle, PDR), counted(sent), "settled");
}
