//! The pipeline over bursts, stage after stage, against the pipeline over one packet after the other.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use compiled::Tables as _;
use nexthop::NextHopTables;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use session::testing;
use tables::testing::{furnish, hop, ports, resolve_peers};
use tables::{Features, Handle, Layout, Options, Tables, Verdict};
use testkit::packets;
use testkit::random::Random;

const SESSIONS: usize = 200;
const BURSTS: usize = 80;
const BURST: usize = 64;

/// Tables, and the next hop of N3.
fn site(make: fn(&Layout, &[tables::PortConfig], &Options) -> Tables) -> (Tables, u32) {
    let options = Options {
        features: Some(Features::ALL),
        ..Options::default()
    };
    let mut tables = make(&Layout::for_sessions(1024, 2, 2), &ports(), &options);
    furnish(&mut tables);
    let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
    (tables, n3)
}

/// Whatever comes together, in bursts of every length: verdicts, octets, what is handed over, and counters are as if each
/// packet had come alone.
#[test]
fn a_burst_is_as_its_packets_one_by_one() {
    let config = testing::config();
    let mut runner = TestRunner::deterministic();
    let mut random = Random(0x9e37_79b9);
    let (mut one, one_n3) = site(|l, p, o| Tables::host(l, p, o).unwrap());
    let (mut together, together_n3) = site(|l, p, o| Tables::by_hand(l, p, o).unwrap());
    let (mut one_handle, mut together_handle) = (Handle::default(), Handle::default());
    let mut now_ns = 1_000_000_000;
    let mut fates = [0usize; 5];
    for _ in 0..SESSIONS {
        let rules = testing::rules().new_tree(&mut runner).unwrap().current();
        let compiled = testing::compile(rules.for_packets(), &config).unwrap();
        // As in tests/xdp.rs: what is still in its grace period would differ.
        while together.needs_maintenance() {
            together.maintain();
        }
        one.maintain();
        one.publish(&mut one_handle, &compiled).unwrap();
        resolve_peers(&mut one, one_n3);
        together.publish(&mut together_handle, &compiled).unwrap();
        resolve_peers(&mut together, together_n3);
        while together.needs_maintenance() {
            together.maintain();
        }
        one.maintain();
        let packets: Vec<_> = (0..BURST)
            .map(|_| packets::arrival(&testing::packet().new_tree(&mut runner).unwrap().current()))
            .collect();
        for _ in 0..BURSTS {
            now_ns += random.below(2_000_000) as u64;
            let port = random.below(3);
            let from_there: Vec<_> = packets.iter().filter(|(at, _)| *at == port).collect();
            if from_there.is_empty() {
                continue;
            }
            let mut frame = |_| {
                let mut frame = from_there[random.below(from_there.len())].1.clone();
                random.mutate(&mut frame);
                frame
            };
            let frames: Vec<Vec<u8>> = (0..1 + now_ns as usize % BURST).map(&mut frame).collect();
            let burst = together.run_together(port, &frames, now_ns).unwrap();
            assert_eq!(burst.outcomes.len(), frames.len());
            let mut handed = Vec::new();
            for (frame, (verdict, out)) in frames.iter().zip(burst.outcomes) {
                let run = one.run(port, frame, now_ns).unwrap();
                assert_eq!(verdict, run.verdict, "{frame:02x?}");
                if !matches!(verdict, Verdict::Drop(_) | Verdict::Slow) {
                    assert_eq!(out, run.frame, "{frame:02x?}");
                }
                handed.extend(Some(run.event).filter(|event| !event.is_empty()));
                fates[match verdict {
                    Verdict::Drop(_) => 0,
                    Verdict::Pass => 1,
                    Verdict::Answer => 2,
                    Verdict::Redirect(_) | Verdict::Later { .. } => 3,
                    Verdict::Slow => 4,
                }] += 1;
            }
            // A packet that leaves the journey early overtakes others there.
            handed.sort();
            // It names who ran the packet, which is not the same one.
            let mut events = burst.events;
            for (_, worker) in events
                .iter_mut()
                .filter_map(|event| event.split_at_mut_checked(14))
            {
                worker[..2].fill(0);
            }
            events.sort();
            assert_eq!(events, handed);
        }
        assert_eq!(one.totals(), together.totals());
        for entry in &compiled.entries {
            assert_eq!(
                one.counters(&one_handle, entry.pdr),
                together.counters(&together_handle, entry.pdr)
            );
        }
    }
    println!("drop, pass, answer, forward, slow: {fates:?}");
    assert!(fates.iter().all(|&fate| fate > 100), "{fates:?}");
}
