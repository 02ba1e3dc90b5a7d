//! What the tables cost the control thread, of ordinary sessions in random order: establishment, path switch, a change that moves
//! the downlink to another line (tunnel and MBR at once), deletion. Grace periods are over at once here, and what follows from
//! that is part of the figures. Beside them the memory that a session takes, all that is written for it.
//!
//! Prints `figure NAME VALUE UNIT floor -`; the least of all runs, as what else runs on the machine only adds to it.
//!
//! usage: `cargo bench -p tables --bench publish -- [RUNS] [SESSIONS]`

#![allow(missing_docs, clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use compiled::{
    Above, Action, Compiled, Direction, Entry, Key, NiId, PdrId, Qfi, Rate, Select, Tables as _,
    UeAddresses,
};
use tables::testing::{furnish, ports, resolve_peers};
use tables::{Handle, Layout, Options, Tables};
use testkit::packets::{GNB, N3};
use testkit::sessions;

/// Changes between two looks at what has had its grace period.
const PER_LOOK: usize = 64;
/// Of the pool below, with 256 addresses each.
const UE_PAGES: u32 = 1 << 12;
const OTHER_GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 1, 2);
const MBRS: [u64; 2] = [100_000_000, 200_000_000];

/// Downlink of a session: where to, and how fast.
#[derive(Clone, Copy)]
struct Down {
    gnb: Ipv4Addr,
    bps: u64,
}

const BEFORE: Down = Down {
    gnb: GNB,
    bps: MBRS[0],
};

fn session(user: u32, down: Down) -> Compiled {
    let teid = user + 1;
    let ue = Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + user + 1);
    let entry = |pdr, direction, action, bps| Entry {
        meter: Some(Rate {
            bps,
            burst_bytes: 1 << 16,
            above: Above::Police,
        }),
        ..sessions::entry(PdrId(pdr), direction, action)
    };
    let route = Action::Route { ni: NiId(0) };
    let tunnel = Action::Tunnel {
        teid,
        peer: down.gnb.into(),
        local: N3.into(),
    };
    let uplink = Entry {
        ue: Some(UeAddresses {
            v4: Some(ue),
            v6: None,
        }),
        ..entry(1, Direction::Uplink, route, MBRS[0])
    };
    let downlink = Entry {
        qfi: Qfi::new(9),
        ..entry(2, Direction::Downlink, tunnel, down.bps)
    };
    let address = Key::Ue4 {
        ni: NiId(0),
        addr: ue,
    };
    Compiled {
        seid: u64::from(teid),
        entries: vec![uplink, downlink],
        keys: vec![
            (Key::direct(teid), Select::One(0)),
            (address, Select::One(1)),
        ],
        ..Compiled::default()
    }
}

struct World {
    tables: Tables,
    handles: Vec<Handle>,
    order: Vec<u32>,
}

impl World {
    fn new(sessions: u32) -> Self {
        let layout = Layout::for_sessions(sessions, 2, UE_PAGES);
        let mut tables = Tables::host(&layout, &ports(), &Options::default()).unwrap();
        furnish(&mut tables);
        tables
            .register_pool(NiId(0), "20.0.0.0/12".parse().unwrap())
            .unwrap();
        Self {
            tables,
            handles: (0..sessions).map(|_| Handle::default()).collect(),
            order: in_random_order(sessions),
        }
    }

    /// Time of one change of a session; all of them undergo it.
    fn each(&mut self, mut change: impl FnMut(&mut Tables, &mut Handle, u32)) -> Duration {
        let mut took = Duration::ZERO;
        for part in self.order.chunks(PER_LOOK) {
            let begin = Instant::now();
            for &user in part {
                change(&mut self.tables, &mut self.handles[user as usize], user);
            }
            self.tables.maintain();
            took += begin.elapsed();
            resolve_peers(&mut self.tables, 1);
        }
        took / self.order.len() as u32
    }

    /// All of them have this downlink from now on.
    fn publish(&mut self, down: Down) -> Duration {
        let mut compiled = session(0, down);
        self.each(|tables, handle, user| {
            become_user(&mut compiled, user);
            tables.publish(handle, &compiled).unwrap();
        })
    }

    fn withdraw(&mut self) -> Duration {
        self.each(|tables, handle, _| tables.withdraw(handle))
    }
}

/// The same session of another user, without an allocation.
fn become_user(compiled: &mut Compiled, user: u32) {
    let teid = user + 1;
    let ue = Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + user + 1);
    compiled.seid = u64::from(teid);
    if let Some(of) = &mut compiled.entries[0].ue {
        of.v4 = Some(ue);
    }
    if let Action::Tunnel { teid: out, .. } = &mut compiled.entries[1].action {
        *out = teid;
    }
    compiled.keys[0].0 = Key::direct(teid);
    compiled.keys[1].0 = Key::Ue4 {
        ni: NiId(0),
        addr: ue,
    };
}

/// Each of the users once, none beside its neighbour.
fn in_random_order(sessions: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..sessions).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    order
}

/// Octets of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn main() {
    // Cargo says `--bench`.
    let numbers = std::env::args().skip(1);
    let mut numbers = numbers.filter_map(|word| word.parse().ok());
    let runs: u32 = numbers.next().unwrap_or(9);
    let sessions: u32 = numbers.next().unwrap_or(50_000);
    let mut world = World::new(sessions);
    let before = resident();
    let mut least = [Duration::MAX; 4];
    let mut octets = 0;
    for run in 0..runs {
        let switched = Down {
            gnb: OTHER_GNB,
            ..BEFORE
        };
        let moved = Down {
            gnb: GNB,
            bps: MBRS[1],
        };
        let established = world.publish(BEFORE);
        if run == 0 {
            octets = (resident() - before) / u64::from(sessions);
        }
        let took = [
            established,
            world.publish(switched),
            world.publish(moved),
            world.withdraw(),
        ];
        for (least, took) in least.iter_mut().zip(took) {
            *least = took.min(*least);
        }
    }
    let names = ["establish", "path_switch", "move", "delete"];
    for (name, took) in names.into_iter().zip(least) {
        println!("figure tables_{name} {} ns floor -", took.as_nanos());
    }
    println!("figure tables_octets_per_session {octets} B floor -");
}
