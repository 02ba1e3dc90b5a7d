//! Cost of a path switch to the control thread, without sockets: by the core alone, and where the data path serves it by a template
//! (`n4.fast_path = "user"`). Sessions in random order; grace periods are over at once here, and what follows from that is part of the
//! figures. Floor: a Heartbeat Request, which is read and answered.
//!
//! Prints `figure NAME VALUE UNIT floor FLOOR`; the least of all runs, as what else runs on the machine only adds to it.
//!
//! usage: `cargo bench -p tables --bench serve -- [RUNS] [SESSIONS]`

#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use session::config::{Config, Limits, NetworkInstance};
use session::{Core, Outbox, Time};
use tables::testing::{furnish, ports, resolve_peers};
use tables::{Layout, Options, Tables};
use testkit::packets::N3;
use testkit::random::Random;
use testkit::requests::{number, path_switch};
use testkit::smf::Smf;

/// Requests between two looks at what has had its grace period.
const PER_LOOK: usize = 64;

struct Node {
    core: Core<Tables>,
    out: Outbox,
    from: SocketAddr,
    now: Time,
    recovery: u32,
    sequence: u32,
    seids: Vec<u64>,
}

impl Node {
    fn new(sessions: u32, fast_path: bool) -> Self {
        let config = Config {
            n3: vec![N3.into()],
            network_instances: vec![NetworkInstance {
                name: "internet".into(),
                pools4: vec!["20.0.0.0/11".parse().unwrap()],
                ..NetworkInstance::default()
            }],
            limits: Limits {
                sessions,
                ..Limits::default()
            },
            heartbeat_interval: Duration::ZERO,
            fast_path,
            seed: 7,
            ..Config::default()
        };
        let layout = Layout::for_sessions(sessions, 2, 1 << 13);
        let mut tables = Tables::host(&layout, &ports(), &Options::default()).unwrap();
        furnish(&mut tables);
        let pool = "20.0.0.0/11".parse().unwrap();
        tables.register_pool(compiled::NiId(0), pool).unwrap();
        let mut smf = Smf::new("10.100.0.2:8805");
        let mut node = Self {
            core: Core::new(config, 1, tables),
            out: Outbox::new(),
            from: smf.address,
            now: Time(1_000_000_000),
            recovery: smf.recovery,
            sequence: 1000,
            seids: Vec::new(),
        };
        let setup = smf.setup_ies();
        let setup = smf.datagram(
            rs_pfcp::message::MsgType::AssociationSetupRequest,
            None,
            &setup,
        );
        node.ask(&setup);
        let mut establishment = smf.establishment();
        for _ in 0..sessions {
            node.sequence += 1;
            number(&mut establishment, node.sequence);
            node.ask(&establishment);
            node.look();
        }
        node.seids = node.core.sessions(None).map(|one| one.seid).collect();
        assert_eq!(node.seids.len(), sessions as usize);
        let mut random = Random(0x9e37_79b9);
        for at in (1..node.seids.len()).rev() {
            node.seids.swap(at, random.below(at + 1));
        }
        node
    }

    fn ask(&mut self, datagram: &[u8]) {
        self.out.clear();
        self.now.0 += 10_000;
        self.core
            .receive(self.now, self.from, datagram, &mut self.out);
        assert_eq!(self.out.len(), 1);
        let (_, answer) = self.out.iter().next().unwrap();
        let is_accepted = answer.get(16..21) == Some(&[0, 19, 0, 1, 1]);
        assert!(is_accepted || answer[1] != 53, "{answer:02x?}");
    }

    fn look(&mut self) {
        self.core.tables_mut().maintain();
    }

    /// Time of one path switch: all sessions go to this gNB.
    fn switch_all(&mut self, gnb: u8, batch: usize) -> Duration {
        let mut requests = vec![path_switch(gnb); batch];
        let mut took = Duration::ZERO;
        for part in 0..self.seids.len() / batch {
            for (request, seid) in requests.iter_mut().zip(&self.seids[part * batch..]) {
                self.sequence += 1;
                request[4..12].copy_from_slice(&seid.to_be_bytes());
                number(request, self.sequence);
            }
            let from = self.from;
            let begin = Instant::now();
            if batch > 1 {
                let all = requests.iter().map(|request| (from, &request[..]));
                self.core.expect(all);
            }
            requests.iter().for_each(|request| self.ask(request));
            if part % (PER_LOOK / batch).max(1) == 0 {
                self.look();
            }
            took += begin.elapsed();
            if part % 16 == 0 {
                resolve_peers(self.core.tables_mut(), 1);
            }
        }
        took / self.seids.len() as u32
    }

    fn floor(&mut self) -> Duration {
        let mut request = [0x20, 1, 0, 12, 0, 0, 1, 0, 0, 96, 0, 4, 0, 0, 0, 0];
        request[12..].copy_from_slice(&self.recovery.to_be_bytes());
        let begin = Instant::now();
        (0..10_000).for_each(|_| self.ask(&request));
        begin.elapsed() / 10_000
    }
}

fn main() {
    // Cargo says `--bench`.
    let numbers = std::env::args().skip(1);
    let mut numbers = numbers.filter_map(|word| word.parse().ok());
    let runs: u32 = numbers.next().unwrap_or(5);
    let sessions: u32 = numbers.next().unwrap_or(50_000);
    for (name, fast_path) in [("off", false), ("user", true)] {
        let mut node = Node::new(sessions, fast_path);
        // Sessions come to both gNBs before it counts: templates are learned, and all is lent.
        for gnb in [1, 2, 1] {
            node.switch_all(gnb, 64);
        }
        let before = node.core.stats().served;
        for (how, batch) in [("single", 1), ("burst", 64)] {
            let floor = node.floor();
            let took = (0..runs).map(|run| node.switch_all(2 - (run % 2) as u8, batch));
            let least = took.min().unwrap();
            println!(
                "figure n4_path_switch_{name}_{how} {} ns floor {}",
                least.as_nanos(),
                floor.as_nanos()
            );
        }
        let served = node.core.stats().served - before;
        println!("figure n4_path_switch_{name}_served {served} - floor -");
    }
}
