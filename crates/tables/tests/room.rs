//! How many sessions fit: as many as there is to be room for, whatever TEIDs, addresses and filters their SMFs choose.
#![allow(clippy::unwrap_used, reason = "test helpers")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{
    Action, Compiled, Direction, Filter, Flow, Key, NiId, NoRoom, PdrId, QfiSet, Select,
    Tables as _,
};
use tables::testing::{furnish, ports};
use tables::{Handle, Layout, Options, Tables, Verdict};
use testkit::packets::{gpdu, ipv4};
use testkit::sessions::entry;

fn site(layout: &Layout) -> Tables {
    let mut tables = Tables::host(layout, &ports(), &Options::default()).unwrap();
    furnish(&mut tables);
    tables
}

fn ue4(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a3c_0000 + n)
}

/// TEIDs as the core gives them slots: its own where the TEID has one, or any other.
fn teid(n: u32, chosen: impl Fn(u32) -> u32) -> Key {
    Key::Teid {
        teid: chosen(n),
        slot: Some(n + 1),
    }
}

/// One PDR each way, which any packet of the UE meets; both address families.
fn plain(teid: Key, n: u32) -> Compiled {
    let ni = NiId(0);
    let prefix = Ipv6Addr::from(0x2001_0db8_0060u128 << 80 | u128::from(n) << 64);
    Compiled {
        entries: vec![
            entry(PdrId(1), Direction::Uplink, Action::Route { ni }),
            entry(PdrId(2), Direction::Downlink, Action::Drop),
        ],
        keys: vec![
            (teid, Select::One(0)),
            (Key::Ue4 { ni, addr: ue4(n) }, Select::One(1)),
            (Key::Ue6 { ni, prefix }, Select::One(1)),
        ],
        ..Compiled::default()
    }
}

fn filter(of: usize, server: u32, port: u16) -> Filter {
    let server = IpAddr::V4(Ipv4Addr::from(0xc600_0000 + server)).into();
    let (src, dst) = if of == 0 {
        (None, Some(server))
    } else {
        (Some(server), None)
    };
    Filter {
        entry: of,
        qfis: QfiSet::default(),
        flow: Some(Flow {
            src,
            dst,
            proto: Some(17),
            dst_ports: Some((port, port)),
            ..Flow::default()
        }),
    }
}

/// The same behind so many filters of each direction, which no other session has.
fn filtered(teid: Key, n: u32, filters: u16) -> Compiled {
    let mut session = plain(teid, n);
    let len = usize::from(filters);
    for of in [0, 1] {
        session
            .filters
            .extend((0..filters).map(|port| filter(of, n, port)));
    }
    session.keys[0].1 = Select::List { first: 0, len };
    for key in &mut session.keys[1..] {
        key.1 = Select::List { first: len, len };
    }
    session
}

fn fill(tables: &Tables, table: &str) -> tables::Fill {
    *tables
        .fill()
        .iter()
        .find(|fill| fill.table == table)
        .unwrap()
}

#[test]
fn every_session_with_one_filter_fits_up_to_the_limit() {
    for sessions in [1024, 20_000] {
        let mut tables = site(&Layout::for_sessions(sessions, 2, 4));
        for n in 0..sessions {
            let session = filtered(teid(n, |n| n + 1), n, 1);
            let published = tables.publish(&mut Handle::default(), &session);
            assert_eq!(published, Ok(()), "session {n} of {sessions}");
        }
        // The keys of both address families lead to the same rules.
        assert_eq!(fill(&tables, "rules").used, u64::from(sessions) * 2);
    }
}

#[test]
fn filters_fit_whichever_sessions_have_them_and_whatever_went_before() {
    let filters = 4096;
    let mut tables = site(&Layout::with_filters(4096, filters, 2, 4));
    let mut handles: Vec<Handle> = Vec::new();
    handles.resize_with(4096, Handle::default);
    let all = |n: u32, each: u16| filtered(teid(n, |n| n + 1), n, each);
    for (n, handle) in (0..).zip(&mut handles) {
        tables.publish(handle, &all(n, 1)).unwrap();
    }
    // Sessions that go leave holes of one place each, and the lists that come are long.
    for (_, handle) in handles.iter_mut().enumerate().filter(|(n, _)| n % 64 != 0) {
        tables.withdraw(handle);
    }
    let left = filters - 64;
    for n in (0..4096).filter(|n| n % 64 == 1).take(left as usize / 63) {
        let published = tables.publish(&mut handles[n as usize], &all(n, 63));
        assert_eq!(published, Ok(()), "session {n}");
    }
    for handle in &mut handles {
        tables.withdraw(handle);
    }
    tables.maintain();
    assert_eq!(fill(&tables, "rules").used, 0);
}

#[test]
fn a_full_table_of_filters_is_named_and_its_refusals_are_counted() {
    let mut layout = Layout::with_filters(1024, 0, 2, 4);
    layout.rules = 8;
    let mut tables = site(&layout);
    let one = |n: u32| filtered(teid(n, |n| n + 1), n, 2);
    let mut handles: Vec<Handle> = Vec::new();
    handles.resize_with(5, Handle::default);
    for n in 0..4 {
        tables.publish(&mut handles[n as usize], &one(n)).unwrap();
    }
    for _ in 0..3 {
        let refused = tables.publish(&mut handles[4], &one(4));
        assert_eq!(refused, Err(NoRoom::of("rules")));
    }
    let rules = fill(&tables, "rules");
    assert_eq!((rules.used, rules.capacity, rules.refused), (8, 8, 3));
    assert_eq!(fill(&tables, "entries").refused, 0);
    tables.withdraw(&mut handles[0]);
    tables.publish(&mut handles[4], &one(4)).unwrap();
}

#[test]
fn random_teids_take_no_sessions_room() {
    let chosen: [fn(u32) -> u32; 5] = [
        |n| n + 1,
        // Odd, so that none is zero, and a bijection.
        |n| (n * 2 + 1).wrapping_mul(0x9e37_79b1),
        // All of one slot's.
        |n| 5 + (n << 24) + (n >> 8 << 10),
        |n| (n + 1) << 15,
        |n| !n,
    ];
    for sessions in [1000, 12_000] {
        for (pattern, chosen) in chosen.into_iter().enumerate() {
            let mut tables = site(&Layout::for_sessions(sessions, 2, 4));
            let mut handles: Vec<Handle> = Vec::new();
            for n in 0..sessions {
                let mut handle = Handle::default();
                let published = tables.publish(&mut handle, &plain(teid(n, chosen), n));
                assert_eq!(
                    published,
                    Ok(()),
                    "session {n} of {sessions}, pattern {pattern}"
                );
                handles.push(handle);
            }
            for n in (0..sessions).step_by(97) {
                let mut ip = ipv4(ue4(n), Ipv4Addr::new(198, 51, 100, 1), 17, 64, 20);
                ip.resize(40, 0);
                let run = tables.run(0, &gpdu(chosen(n), None, &ip), 0).unwrap();
                assert_eq!(run.verdict, Verdict::Redirect(1), "session {n}");
                let counted = tables.counters(&handles[n as usize], PdrId(1));
                assert_eq!(counted.packets, 1, "session {n}");
            }
            for handle in &mut handles {
                tables.withdraw(handle);
            }
            tables.maintain();
            let empty = tables
                .fill()
                .into_iter()
                .filter(|f| ["entries", "buckets"].contains(&f.table));
            assert!(
                empty.map(|fill| fill.used).all(|used| used == 0),
                "pattern {pattern}"
            );
        }
    }
}
