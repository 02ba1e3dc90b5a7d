//! What one Session Establishment Request costs the core (2 PDR, 2 FAR, 1 QER), and a path switch of such a session,
//! without socket and tables; the same with all changes kept where they outlive the process, and what a session costs whoever takes
//! over. Floor: decoding the establishment alone.

#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use arena::Arena;
use arena::ring::{self, Ring};
use criterion::{Criterion, criterion_group, criterion_main};
use pfcp::message::SessionEstablishmentRequest;
use rs_pfcp::ie::cause::CauseValue;
use session::testing::world::{World, config};
use session::{Change, Core, NodeRecord, Outbox};
use testkit::requests::{number, path_switch};
use testkit::smf::Smf;
use testkit::tables::FakeTables;

fn establish(c: &mut Criterion) {
    let mut smf = Smf::new("10.100.0.2:8805");
    let mut world = World::new(config());
    smf.associate(&mut world);
    let mut datagram = smf.establishment();
    let answer = smf.exchange(&mut world, &datagram);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);

    c.bench_function("decode (floor)", |b| {
        b.iter(|| {
            let message = pfcp::decode(black_box(&datagram)).unwrap();
            let request = SessionEstablishmentRequest::decode(&message).unwrap();
            for pdr in &request.create_pdrs {
                black_box(pdr.unwrap());
            }
            for far in &request.create_fars {
                black_box(far.unwrap());
            }
            for qer in &request.create_qers {
                black_box(qer.unwrap());
            }
        });
    });

    let mut node = Node::new(&mut smf);
    c.bench_function("establish", |b| {
        b.iter_custom(|n| node.time(n, &mut datagram).0)
    });
    let (seids, mut switched) = (node.establish_some(&mut datagram), 0);
    c.bench_function("modify", |b| {
        b.iter_custom(|n| node.time_path_switches(n, &seids, &mut switched))
    });
    node.delete(&seids);
    c.bench_function("delete", |b| {
        b.iter_custom(|n| node.time(n, &mut datagram).1)
    });
    c.bench_function("duplicate", |b| {
        number(&mut datagram, 1);
        node.receive(&datagram);
        b.iter(|| node.receive(black_box(&datagram)));
    });

    let mut node = Node::new(&mut smf).keeping();
    c.bench_function("establish, kept", |b| {
        b.iter_custom(|n| node.time(n, &mut datagram).0)
    });
    let (seids, mut switched) = (node.establish_some(&mut datagram), 0);
    c.bench_function("modify, kept", |b| {
        b.iter_custom(|n| node.time_path_switches(n, &seids, &mut switched))
    });
    c.bench_function("take over", |b| {
        b.iter_custom(|n| node.time_succession().mul_f64(n as f64 / ALIVE as f64));
    });
    node.delete(&seids);
    c.bench_function("delete, kept", |b| {
        b.iter_custom(|n| node.time(n, &mut datagram).1)
    });
}

type Words = &'static [AtomicU64];

struct Node {
    world: World,
    from: std::net::SocketAddr,
    sequence: u32,
    /// `None`: nothing is kept.
    kept: Option<(Arena<Words>, Ring<Words>)>,
}

/// Place of the node's record, behind those of sessions; PFDs follow.
const NODE: u32 = 1 << 17;

/// Sessions alive at once: enough to leave the first caches.
const ALIVE: u64 = 50_000;

impl Node {
    /// Over tables that cost nothing.
    fn new(smf: &mut Smf) -> Self {
        let mut node = Self {
            world: World::over(config(), 1, FakeTables::forgetful(1 << 20)),
            from: smf.address,
            sequence: 1000,
            kept: None,
        };
        let setup = smf.setup_ies();
        let setup = smf.datagram(
            rs_pfcp::message::MsgType::AssociationSetupRequest,
            None,
            &setup,
        );
        node.receive(&setup);
        node
    }

    /// All changes are kept.
    fn keeping(mut self) -> Self {
        let places = NODE + 2;
        let words = |octets: usize| -> Words {
            let count = octets / size_of::<AtomicU64>();
            Vec::leak((0..count).map(|_| AtomicU64::new(0)).collect())
        };
        let sessions = Arena::create(words(arena::octets_for(places, 256)), places, &[]);
        let answers = Ring::create(words(ring::octets_for(1 << 17, 128)));
        self.kept = Some((sessions.unwrap(), answers.unwrap()));
        self.world.core.note_changes();
        self
    }

    /// Without a copy of what is sent.
    fn receive(&mut self, datagram: &[u8]) {
        let World { core, now, out, .. } = &mut self.world;
        out.clear();
        now.0 += 10_000;
        core.receive(*now, self.from, datagram, out);
        assert_eq!(out.len(), 1);
        if let Some((kept, answers)) = &mut self.kept {
            core.changes(false, |change| match change {
                Change::Session(place, octets) => kept.put(place, octets).unwrap(),
                Change::Gone(place) => kept.remove(place),
                Change::Node(octets) => kept.put(NODE, octets).unwrap(),
                Change::Pfds(octets) => kept.put(NODE + 1, octets).unwrap(),
                Change::Answer(octets) => answers.push(octets).unwrap(),
            });
        }
    }

    /// How long another process takes to go on with all sessions.
    fn time_succession(&self) -> Duration {
        let (kept, _) = self.kept.as_ref().unwrap();
        let begin = Instant::now();
        let node = NodeRecord::read(&kept.get(NODE).unwrap()).unwrap();
        let (mut out, now) = (Outbox::new(), self.world.now);
        let mut core = Core::new(config(), node.recovery(), FakeTables::forgetful(1 << 20));
        core.resume(now, &node, &mut out).unwrap();
        for (_, octets) in kept.records().filter(|(place, _)| *place < NODE) {
            let record = node.session(&octets).unwrap();
            core.adopt(now, record, &mut out).unwrap();
        }
        assert_eq!(core.session_count() as u64, ALIVE);
        begin.elapsed()
    }

    /// Sessions for [`Self::time_path_switches`], in random order.
    fn establish_some(&mut self, establishment: &mut [u8]) -> Vec<u64> {
        for _ in 0..ALIVE {
            self.sequence += 1;
            number(establishment, self.sequence);
            self.receive(establishment);
        }
        let mut seids: Vec<u64> = self.world.core.sessions(None).map(|s| s.seid).collect();
        // A SEID is a place, enciphered.
        seids.sort_unstable();
        seids
    }

    /// Switch paths of these sessions `n` times, going on where the last call ended; how long it took.
    fn time_path_switches(&mut self, n: u64, seids: &[u64], switched: &mut u64) -> Duration {
        let mut switches = [1, 2].map(path_switch);
        let begin = Instant::now();
        for _ in 0..n {
            // To another gNB each time that its turn comes.
            let switch = &mut switches[(*switched / ALIVE % 2) as usize];
            let seid = seids[(*switched % ALIVE) as usize];
            *switched += 1;
            self.sequence += 1;
            switch[4..12].copy_from_slice(&seid.to_be_bytes());
            number(switch, self.sequence);
            self.receive(switch);
        }
        begin.elapsed()
    }

    fn delete(&mut self, seids: &[u64]) {
        let mut deletion = vec![0x21, 54, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for seid in seids {
            self.sequence += 1;
            deletion[4..12].copy_from_slice(&seid.to_be_bytes());
            number(&mut deletion, self.sequence);
            self.receive(&deletion);
        }
    }

    /// Establish `n` sessions and delete them again; how long each took.
    fn time(&mut self, n: u64, establishment: &mut [u8]) -> (Duration, Duration) {
        let (mut establishing, mut deleting) = (Duration::ZERO, Duration::ZERO);
        let mut left = n;
        while left > 0 {
            let count = left.min(ALIVE);
            left -= count;
            let begin = Instant::now();
            for _ in 0..count {
                self.sequence += 1;
                number(establishment, self.sequence);
                self.receive(establishment);
            }
            establishing += begin.elapsed();
            let seids: Vec<u64> = self
                .world
                .core
                .sessions(None)
                .map(|session| session.seid)
                .collect();
            assert_eq!(seids.len() as u64, count);
            let begin = Instant::now();
            self.delete(&seids);
            deleting += begin.elapsed();
        }
        (establishing, deleting)
    }
}

criterion_group!(benches, establish);
criterion_main!(benches);
