//! Session Reports of usage from one thread: 100 000 sessions reach their volume threshold at once, and the SMF
//! answers each report. Without socket and tables; memory of that many sessions is in no cache.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::net::Ipv4Addr;
use std::time::Instant;

use pfcp::ie::ReportingTriggers;
use pfcp::{Cause, Header, IeType, MessageType, Writer};
use session::config::{Config, Limits, NetworkInstance};
use session::testing::world::{World, smf};
use testkit::requests::{PdrIe, UrrIe, choose4, far_to_access, far_to_core};
use testkit::tables::FakeTables;

const SESSIONS: u32 = 100_000;
const THRESHOLD: u64 = 1_000_000;

fn config() -> Config {
    Config {
        n3: vec![Ipv4Addr::new(10, 3, 0, 1).into()],
        network_instances: vec![NetworkInstance {
            name: "internet".into(),
            pools4: vec!["10.0.0.0/9".parse().unwrap()],
            pools6: Vec::new(),
            ..NetworkInstance::default()
        }],
        limits: Limits {
            sessions: SESSIONS + 1,
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// Each PDR forwards half a threshold; both of a session name its URR.
fn half_a_threshold_passes(world: &mut World) {
    let traffic = &mut world.core.tables_mut().traffic;
    traffic.bytes += THRESHOLD / 2;
    traffic.packets += THRESHOLD / 2 / 1000;
}

/// Answer what was sent, and what is sent thereupon, until nothing is.
fn answer_all(world: &mut World, answered: &mut u64) {
    let World { core, now, out, .. } = world;
    let mut answers: Vec<Vec<u8>> = Vec::new();
    loop {
        answers.clear();
        for (_, datagram) in out.iter() {
            let (header, _) = Header::decode(datagram).unwrap();
            let mut bytes = Vec::with_capacity(32);
            let kind = MessageType::SESSION_REPORT_RESPONSE;
            let mut writer = Writer::new(&mut bytes, kind, header.seid, header.sequence);
            writer.cause(Cause::REQUEST_ACCEPTED);
            writer.finish();
            answers.push(bytes);
        }
        out.clear();
        if answers.is_empty() {
            return;
        }
        *answered += answers.len() as u64;
        for answer in &answers {
            core.receive(*now, smf(2), answer, out);
        }
    }
}

/// A URR over both PDRs.
fn rules(w: &mut Writer<'_>) {
    let threshold = [Some(THRESHOLD), None, None];
    UrrIe::volume(1, ReportingTriggers::VOLTH)
        .limit(IeType::VOLUME_THRESHOLD, threshold)
        .create(w);
    for (ue, pdr) in [
        (None, PdrIe::uplink()),
        (Some(choose4()), PdrIe::downlink()),
    ] {
        let urrs = vec![1];
        PdrIe { ue, urrs, ..pdr }.create(w);
    }
    far_to_core(w, 1);
    far_to_access(w, 2, 0x5000);
}

fn main() {
    let mut world = World::over(config(), 1, FakeTables::forgetful(1 << 20));
    world.associate(smf(2));
    let seids: Vec<u64> = (1..=u64::from(SESSIONS))
        .map(|cp_seid| world.establish_of(smf(2), cp_seid, rules))
        .collect();
    println!("{} sessions", world.core.session_count());
    for round in 1..=5 {
        half_a_threshold_passes(&mut world);
        world.out.clear();
        let (begin, mut answered) = (Instant::now(), 0);
        // As alarms come: in batches, between which answers are read.
        for batch in seids.chunks(256) {
            for &seid in batch {
                world.core.crossed(world.now, seid, &mut world.out);
            }
            answer_all(&mut world, &mut answered);
        }
        let took = begin.elapsed();
        assert_eq!(answered, u64::from(SESSIONS), "each has reported, once");
        let rate = answered as f64 / took.as_secs_f64();
        println!("round {round}: {answered} reports in {took:.2?}, {rate:.0} a second");
    }
    // All at once, with an SMF that begins to answer only then.
    half_a_threshold_passes(&mut world);
    let begin = Instant::now();
    for &seid in &seids {
        world.core.crossed(world.now, seid, &mut world.out);
    }
    println!(
        "storm: {} wait after {:.2?}",
        world.core.usage_waiting(),
        begin.elapsed()
    );
    let mut answered = 0;
    answer_all(&mut world, &mut answered);
    assert_eq!(answered, u64::from(SESSIONS));
    let rate = answered as f64 / begin.elapsed().as_secs_f64();
    println!(
        "storm: {answered} reports in {:.2?}, {rate:.0} a second",
        begin.elapsed()
    );
}
