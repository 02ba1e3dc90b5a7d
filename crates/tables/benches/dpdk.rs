//! What a worker over devices of DPDK costs and carries. Plain sessions in random order: one PDR a direction, an MBR in each,
//! the UE's address checked, a PDU Session Container. The floor is the same with frames of which one line is read.
//!
//! - In one thread: a frame comes in by a ring, runs, leaves by a ring, and its buffer is given back. Before that, and not
//!   measured, 8192 of them are written, each into a buffer of its own, and put out of the caches of the CPU alone, as a NIC
//!   leaves them. In the pipeline core model, the thread is receive core and worker in turn.
//! - With a worker's thread on CPU 1 and all else on CPU 0: packets in a second, and what they take from ring to ring at nine
//!   tenths of that; a worker without traffic, and what the first packet waits for it.
//!
//! Prints `figure NAME VALUE UNIT floor VALUE`; in one thread, the value is what the pipeline adds to the floor.
//!
//! usage: `cargo bench -p tables --features dpdk --bench dpdk -- [--no-huge] [--one-thread] [--density] [RUNS] [SESSIONS...]`. It
//! reserves huge pages for its buffers, and needs root for that. With `--no-huge` these lie in pages of 4 KiB. With that, or with
//! `--one-thread`, what one thread costs is all that is measured. With `--density`, what packets of few of these users cost in one
//! thread is, with tables in huge pages and in those of 4 KiB: users side by side in the tables, and anywhere. With `TABLES_IN=FOLDER` in the
//! environment tables that count lie in files there, as they do in `state.dir`.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use compiled::{
    Above, Action, CAPACITIES_ON_WAY, CapacityId, Compiled, Direction, Entry, Key, Limit, NiId,
    PdrId, QerId, Qfi, Rate, Select, Share, SharedMeter, Tables as _, UeAddresses,
};
use ipnet::IpNet;
use nexthop::NextHopTables as _;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::sys::prctl;
use nix::unistd::Pid;
use tables::dpdk::{Pattern, Pipeline, PortId, RingPort, Settings, User, pass_on};
use tables::testing::{furnish, hop, resolve_peers};
use tables::{
    CapacityConfig, FrameSocket, Handle, Layout, Options, PortConfig, Roles, TableFiles, Tables,
    monotonic_ns,
};
use testkit::machine::{HugePages, quiet_kernel};
use testkit::packets::{GNB, N3, ethernet, gpdu, ipv4};
use testkit::sessions;

/// Huge pages of buffers.
const PAGES: i64 = 80;
/// Packets of one measurement in one thread, and those that wait at a time.
const PACKETS: usize = 2_000_000;
const IN_TURN: u32 = 8192;
/// Frames that a ring has room for in front of a worker's thread.
const RING: u32 = 1024;
/// Sessions above which only the plain case is measured, of run to completion.
const MOST_FOR_ALL: u32 = 1_000_000;
/// Octets of a user's packet, its header included.
const SMALL: usize = 64;
const LARGE: usize = 1400;
/// Time for which a worker's thread is watched.
const WATCH: Duration = Duration::from_secs(1);
/// Packets that find a worker without traffic.
const FIRST_PACKETS: usize = 500;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Nobody reaches it.
const MBR: Rate = Rate {
    bps: 100_000_000_000,
    burst_bytes: 1 << 20,
    above: Above::Police,
};

fn ue(user: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 0, 0, 0)) + user + 1)
}

/// What packets meet of rates.
#[derive(Clone, Copy, PartialEq)]
enum Qos {
    Off,
    /// An MBR.
    Mbr,
    /// And the share of a capacity of which there is enough.
    Share,
}

impl Qos {
    fn suffix(self) -> &'static str {
        match self {
            Self::Off => "-no-qos",
            Self::Mbr => "",
            Self::Share => "-share",
        }
    }
}

fn entry(pdr: u16, direction: Direction, action: Action, qos: Qos) -> Entry {
    Entry {
        meter: (qos != Qos::Off).then_some(MBR),
        ..sessions::entry(PdrId(pdr), direction, action)
    }
}

fn capacity() -> CapacityConfig {
    CapacityConfig {
        name: "link".to_owned(),
        bps: MBR.bps,
        guaranteed_at_most: MBR.bps,
        least_weight: 1,
        above: Above::Police,
    }
}

/// Each entry is a flow that has part of the capacity.
fn shares(entries: &mut [Entry]) -> Vec<SharedMeter> {
    let mut capacities = [CapacityId::NONE; CAPACITIES_ON_WAY];
    capacities[0] = CapacityId(1);
    let share = Share {
        weight: 1,
        guaranteed: None,
        capacities,
    };
    let of_entry = |(at, entry): (usize, &mut Entry)| {
        entry.share = Some(at);
        SharedMeter {
            qer: QerId(1),
            direction: entry.direction,
            limit: Limit::Share(share),
        }
    };
    entries.iter_mut().enumerate().map(of_entry).collect()
}

fn session(user: u32, qos: Qos) -> Compiled {
    let teid = user + 1;
    let uplink = Entry {
        ue: Some(UeAddresses {
            v4: Some(ue(user)),
            v6: None,
        }),
        ..entry(1, Direction::Uplink, Action::Route { ni: NiId(0) }, qos)
    };
    let tunnel = Action::Tunnel {
        teid,
        peer: GNB.into(),
        local: N3.into(),
    };
    let downlink = Entry {
        qfi: Qfi::new(9),
        ..entry(2, Direction::Downlink, tunnel, qos)
    };
    let address = Key::Ue4 {
        ni: NiId(0),
        addr: ue(user),
    };
    let mut entries = vec![uplink, downlink];
    let meters = match qos {
        Qos::Share => shares(&mut entries),
        Qos::Off | Qos::Mbr => Vec::new(),
    };
    Compiled {
        seid: u64::from(teid),
        meters,
        entries,
        keys: vec![
            (Key::direct(teid), Select::One(0)),
            (address, Select::One(1)),
        ],
        ..Compiled::default()
    }
}

/// A way through: what comes in at one end, and leaves by the other.
struct Way {
    name: &'static str,
    pattern: Pattern,
    users: Vec<User>,
    is_uplink: bool,
}

/// Each of the users once, none beside its neighbour; as many as make a burst, if there are not as many.
fn in_random_order(sessions: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..sessions).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    let len = order.len().max(RingPort::BURST);
    order.into_iter().cycle().take(len).collect()
}

fn way(is_uplink: bool, order: &[u32], octets: usize) -> Way {
    let packet = |user: u32| {
        let (from, to) = match is_uplink {
            true => (ue(user), SERVER),
            false => (SERVER, ue(user)),
        };
        let mut packet = ipv4(from, to, 17, 64, octets - 20);
        packet.resize(octets, 0);
        packet
    };
    let (frame, teid_at) = match is_uplink {
        true => (gpdu(1, Some(9), &packet(0)), Some(14 + 20 + 8 + 4)),
        false => (ethernet(&packet(0)), None),
    };
    let inner_at = frame.len() - octets;
    let user = |&user: &u32| {
        let header = packet(user);
        let checksum = u16::from_be_bytes([header[10], header[11]]);
        User::new(user + 1, ue(user), checksum)
    };
    Way {
        name: if is_uplink { "up" } else { "down" },
        pattern: Pattern {
            teid_at,
            address_at: inner_at + if is_uplink { 12 } else { 16 },
            checksum_at: inner_at + 10,
            frame,
        },
        users: order.iter().map(user).collect(),
        is_uplink,
    }
}

/// Packets that a worker's thread has carried.
struct Carried {
    per_s: f64,
    /// Of a packet of each burst, from ring to ring, in nanoseconds; sorted.
    took: Vec<u64>,
}

impl Carried {
    fn quantile(&self, of: f64) -> f64 {
        let at = (self.took.len() as f64 * of) as usize;
        self.took.get(at).map_or(f64::NAN, |&ns| ns as f64)
    }
}

struct Bench {
    tables: Tables,
    access: RingPort,
    network: RingPort,
    _sessions: Vec<Handle>,
}

impl Bench {
    /// Over ports of that name, with so many threads of workers, and room for so many frames in a ring.
    fn new(
        settings: &Settings,
        (name, frames): (&str, u32),
        workers: u32,
        sessions: u32,
        qos: Qos,
    ) -> Self {
        let names = ["n3", "n6"].map(|end| format!("{end}{name}"));
        let [access, network] = names
            .each_ref()
            .map(|name| RingPort::new(settings, name, frames).unwrap());
        let port = |name: &String, n3: bool| PortConfig {
            name: name.clone(),
            roles: Roles { n3, n6: !n3 },
            ni: NiId(0),
            device: RingPort::device(name),
            ..PortConfig::default()
        };
        let room = sessions.max(Signalling::USERS.end);
        let addresses = (room + 2).next_power_of_two();
        let pool = IpNet::new(ue(0).into(), addresses.leading_zeros() as u8 + 1).unwrap();
        let layout = Layout {
            workers,
            ..Layout::for_sessions(room, 2, addresses / 16384 + 3)
        };
        let layout = match qos {
            Qos::Share => layout.sharing(vec![capacity()]),
            Qos::Off | Qos::Mbr => layout,
        };
        let ports = [port(&names[0], true), port(&names[1], false)];
        let options = Options {
            outer6: false,
            ..Options::default()
        };
        let files = std::env::var_os("TABLES_IN").map(|folder| {
            let front = Path::new(&folder).join("bench");
            TableFiles::new(&front, 0).unwrap()
        });
        let mut tables = Tables::dpdk_in(&layout, &ports, &options, settings, files).unwrap();
        furnish(&mut tables);
        tables.register_pool(NiId(0), pool.trunc()).unwrap();
        tables.attach().unwrap();
        let publish = |user| {
            let mut handle = Handle::default();
            tables.publish(&mut handle, &session(user, qos)).unwrap();
            handle
        };
        let sessions = (0..sessions).map(publish).collect();
        let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
        resolve_peers(&mut tables, n3);
        tables.maintain();
        Self {
            tables,
            access,
            network,
            _sessions: sessions,
        }
    }

    fn ends(&mut self, way: &Way) -> (&mut Tables, &mut RingPort, &mut RingPort) {
        let Self {
            tables,
            access,
            network,
            ..
        } = self;
        match way.is_uplink {
            true => (tables, access, network),
            false => (tables, network, access),
        }
    }

    /// Nanoseconds for each packet, from ring to buffer given back, in this thread.
    fn time(&mut self, way: &Way, with_pipeline: bool) -> f64 {
        let (tables, from, to) = self.ends(way);
        let ids = (from.id(), to.id());
        let mut bursts = way.users.chunks(RingPort::BURST).cycle();
        let (mut sent, mut left, mut took) = (0, 0, Duration::ZERO);
        while sent < PACKETS {
            let before = sent;
            while sent - before < IN_TURN as usize {
                let users = bursts.next().unwrap();
                let there_is_room = from.load(&way.pattern, users, 0);
                assert!(there_is_room, "a ring or the pool is full");
                sent += users.len();
            }
            let start = Instant::now();
            while left < sent {
                match with_pipeline {
                    true => tables.run_once().unwrap(),
                    false => pass_on(ids.0, ids.1),
                };
                let now = to.unload(None);
                assert!(now > 0, "every packet leaves where it shall");
                left += now;
            }
            took += start.elapsed();
        }
        took.as_nanos() as f64 / sent as f64
    }

    /// What another thread carries of packets that this one sends: so many in a second, or as many as there is room for; while
    /// so many sessions in a second are established, and end.
    fn carry(&mut self, way: &Way, per_s: Option<f64>, signalled_per_s: u64) -> Carried {
        let (tables, from, to) = self.ends(way);
        let mut signalling = Signalling::new(signalled_per_s);
        let interval = per_s.map_or(0.0, |per_s| RingPort::BURST as f64 * 1e9 / per_s);
        let (start, mut took, mut stamps) = (monotonic_ns(), Vec::new(), Vec::new());
        let (mut due, mut left) = (start as f64, 0);
        let mut bursts = way.users.chunks_exact(RingPort::BURST).cycle();
        loop {
            let now = monotonic_ns();
            if now - start > WATCH.as_nanos() as u64 {
                break;
            }
            signalling.go_on(tables, now);
            // What is late is sent late: its time on the way begins when it should have come.
            if now as f64 >= due
                && from.load(&way.pattern, bursts.next().unwrap(), (due as u64).max(1))
            {
                due = if interval > 0.0 {
                    due + interval
                } else {
                    now as f64
                };
            }
            left += to.unload(Some(&mut stamps));
            let now = monotonic_ns();
            took.extend(stamps.drain(..).map(|stamp| now.saturating_sub(stamp)));
        }
        let per_s = left as f64 / WATCH.as_secs_f64();
        signalling.end(tables);
        while to.unload(None) > 0 {
            sleep(Duration::from_millis(1));
        }
        took.sort_unstable();
        Carried { per_s, took }
    }

    /// What single packets wait for a worker that has slept.
    fn first_packets(&mut self, way: &Way) -> Carried {
        let (_, from, to) = self.ends(way);
        let mut took = Vec::new();
        for user in way.users.chunks(1).cycle().take(FIRST_PACKETS) {
            sleep(Duration::from_millis(5));
            let stamp = monotonic_ns();
            assert!(from.load(&way.pattern, user, stamp));
            while to.unload(None) == 0 {
                std::hint::spin_loop();
            }
            took.push(monotonic_ns() - stamp);
        }
        took.sort_unstable();
        Carried { per_s: 0.0, took }
    }

    fn forwarded(&self, way: &Way) -> u64 {
        let total = &self.tables.totals()[usize::from(!way.is_uplink)];
        total.forwarded.iter().map(|traffic| traffic.packets).sum()
    }
}

/// Sessions that come and go beside those that packets are of.
struct Signalling {
    pause_ns: u64,
    due_ns: u64,
    /// Of the next one.
    number: u32,
    there: VecDeque<Handle>,
}

impl Signalling {
    /// Sessions that are there at a time.
    const THERE: usize = 1000;
    /// Numbers of their users: a thousand others send packets.
    const USERS: Range<u32> = 1000..3000;

    fn new(per_s: u64) -> Self {
        Self {
            pause_ns: 1_000_000_000u64.checked_div(per_s).unwrap_or(u64::MAX),
            due_ns: 0,
            number: 0,
            there: VecDeque::new(),
        }
    }

    /// One at a time, so that packets are sent between.
    fn go_on(&mut self, tables: &mut Tables, now: u64) {
        if self.pause_ns == u64::MAX || now < self.due_ns {
            return;
        }
        self.due_ns = if self.due_ns == 0 { now } else { self.due_ns } + self.pause_ns;
        if self.there.len() == Self::THERE
            && let Some(mut oldest) = self.there.pop_front()
        {
            tables.withdraw(&mut oldest);
        }
        let mut handle = Handle::default();
        let user = Self::USERS.start + self.number % Self::USERS.len() as u32;
        self.number += 1;
        tables
            .publish(&mut handle, &session(user, Qos::Mbr))
            .unwrap();
        self.there.push_back(handle);
        if self.number.is_multiple_of(64) {
            tables.maintain();
        }
    }

    fn end(mut self, tables: &mut Tables) {
        self.there
            .iter_mut()
            .for_each(|handle| tables.withdraw(handle));
        tables.maintain();
    }
}

/// A thread that passes on what comes in by either port, until it is dropped.
struct Floor {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Floor {
    fn start(ends: [PortId; 2], cpu: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = spawn(move || {
            stay_on(cpu);
            while !is_over.load(Ordering::Relaxed) {
                pass_on(ends[0], ends[1]);
                pass_on(ends[1], ends[0]);
            }
        });
        Self {
            over,
            thread: Some(thread),
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &only).unwrap();
}

/// CPU time of a thread.
fn cpu_of(thread: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let paths = tasks.map(|task| task.unwrap().path());
    let is_it = |name: String| name.trim() == thread;
    let mut all = paths.filter(|path| std::fs::read_to_string(path.join("comm")).is_ok_and(is_it));
    let text = std::fs::read_to_string(all.next().unwrap().join("schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn figure(name: &str, value: f64, unit: &str, floor: Option<f64>) {
    let floor = floor.map_or("-".to_owned(), |floor| format!("{floor:.2}"));
    println!("figure {name} {value:.2} {unit} floor {floor}");
}

/// All in one thread.
fn single(settings: &Settings, model: &str, sessions: u32, runs: u32, qos: Qos) {
    let model = format!("{model}{}", qos.suffix());
    let name = format!("{}-{sessions}", model.len());
    let mut bench = Bench::new(settings, (&name, 2 * IN_TURN), 0, sessions, qos);
    let order = in_random_order(sessions);
    for way in [way(true, &order, SMALL), way(false, &order, SMALL)] {
        let before = bench.forwarded(&way);
        bench.time(&way, true);
        let forwarded = bench.forwarded(&way) - before;
        assert!(forwarded >= PACKETS as u64, "the pipeline forwards them");
        let both = (0..runs).map(|_| (bench.time(&way, false), bench.time(&way, true)));
        let (floors, all): (Vec<f64>, Vec<f64>) = both.unzip();
        let (floor, all) = (median(floors), median(all));
        let name = format!("dpdk{model}-{}-{sessions}", way.name);
        figure(&name, all - floor, "ns/packet", Some(floor));
    }
}

/// Few users who send, side by side in the tables and anywhere, by turns.
fn density(settings: &Settings, sessions: u32, runs: u32) {
    for (pages, is_huge) in [("", true), ("-small-pages", false)] {
        prctl::set_thp_disable(!is_huge).unwrap();
        let name = format!("density-{}", pages.len());
        let mut bench = Bench::new(settings, (&name, 2 * IN_TURN), 0, sessions, Qos::Mbr);
        for active in [1_000, 10_000, 100_000]
            .into_iter()
            .filter(|&n| n < sessions)
        {
            let mut anywhere = in_random_order(sessions);
            anywhere.truncate(active as usize);
            let places = [in_random_order(active), anywhere];
            for is_uplink in [true, false] {
                let ways = places.each_ref().map(|users| way(is_uplink, users, SMALL));
                let (mut floors, mut all) = (Vec::new(), [const { Vec::new() }; 2]);
                ways.iter().for_each(|way| {
                    bench.time(way, true);
                });
                for _ in 0..runs {
                    for (way, all) in ways.iter().zip(&mut all) {
                        floors.push(bench.time(way, false));
                        all.push(bench.time(way, true));
                    }
                }
                let floor = median(floors);
                for ((way, all), place) in ways.iter().zip(all).zip(["dense", "scattered"]) {
                    let name = format!("dpdk{pages}-{}-{place}-{active}-of-{sessions}", way.name);
                    figure(&name, median(all) - floor, "ns/packet", Some(floor));
                }
            }
        }
    }
}

/// Rate and latency of a worker's thread, and of one that passes frames on.
fn threaded(settings: &Settings, sessions: u32, runs: u32) {
    let order = in_random_order(sessions);
    for octets in [SMALL, LARGE] {
        let ways = [way(true, &order, octets), way(false, &order, octets)];
        let carried = |name: &str, workers: u32| {
            let name = format!("{name}{octets}");
            let mut bench = Bench::new(settings, (&name, RING), workers, sessions, Qos::Mbr);
            let ends = [bench.access.id(), bench.network.id()];
            let _floor = (workers == 0).then(|| Floor::start(ends, 1));
            ways.each_ref().map(|way| {
                let most = (0..runs).map(|_| bench.carry(way, None, 0).per_s);
                let most = median(most.collect());
                let loaded = (0..runs).map(|_| bench.carry(way, Some(0.9 * most), 0));
                (most, loaded.collect::<Vec<_>>())
            })
        };
        let (worker, floor) = (carried("work", 1), carried("pass", 0));
        for ((way, worker), floor) in ways.iter().zip(&worker).zip(&floor) {
            let name = format!("dpdk-worker-{}-{octets}B", way.name);
            figure(
                &format!("{name}-rate"),
                worker.0,
                "packets/s",
                Some(floor.0),
            );
            for (what, of) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
                let [worker, floor] = [worker, floor].map(|(_, loaded)| {
                    median(loaded.iter().map(|carried| carried.quantile(of)).collect())
                });
                let name = format!("{name}-latency-{what}");
                figure(&name, worker / 1e3, "us", Some(floor / 1e3));
            }
        }
    }
}

/// What is left of a worker's rate while sessions come and go, as many a second as PEPC has.
fn signalled(settings: &Settings, runs: u32) {
    const PER_S: u64 = 10_000;
    let sessions = Signalling::USERS.start;
    let order = in_random_order(sessions);
    let mut bench = Bench::new(settings, ("signalled", RING), 1, sessions, Qos::Mbr);
    for way in [way(true, &order, SMALL), way(false, &order, SMALL)] {
        let both = (0..runs).map(|_| [0, PER_S].map(|per_s| bench.carry(&way, None, per_s).per_s));
        let left = both.map(|[quiet, busy]| busy / quiet * 100.0);
        let name = format!("dpdk-signalled-{}-rate", way.name);
        figure(&name, median(left.collect()), "%", None);
    }
}

/// Threads that may sleep, in both core models, and over devices that wake them.
fn idle(settings: &Settings) {
    let settings = Settings {
        busy_poll: false,
        ..settings.clone()
    };
    let pipeline = Settings {
        pipeline: Some(Pipeline {
            cpus: vec![1],
            ..Pipeline::default()
        }),
        ..settings.clone()
    };
    let way = way(true, &in_random_order(1), SMALL);
    for (model, settings) in [("", &settings), ("-pipeline", &pipeline)] {
        let mut bench = Bench::new(settings, (&format!("idle{model}"), RING), 1, 1, Qos::Mbr);
        rests(&format!("dpdk-idle{model}-cpu"), "worker-0");
        if settings.pipeline.is_some() {
            rests(&format!("dpdk-idle{model}-receiver-cpu"), "receiver-0");
        }
        waits(&format!("dpdk-idle{model}"), &bench.first_packets(&way));
    }
    woken(&settings, &way.pattern.frame);
}

/// What first packets have waited.
fn waits(name: &str, first: &Carried) {
    for (what, of) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("{name}-first-packet-{what}");
        figure(&name, first.quantile(of) / 1e3, "us", None);
    }
}

/// TAP interfaces in a namespace of their own, whose kernel says nothing.
fn woken(settings: &Settings, frame: &[u8]) {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    quiet_kernel();
    let port = |name: &str, n3: bool| PortConfig {
        name: name.to_owned(),
        roles: Roles { n3, n6: !n3 },
        ni: NiId(0),
        device: format!("net_tap_{name},iface=far{name}"),
        ..PortConfig::default()
    };
    let ports = [port("n3", true), port("n6", false)];
    let layout = Layout {
        workers: 1,
        ..Layout::for_sessions(1, 2, 3)
    };
    let mut tables = Tables::dpdk(&layout, &ports, &Options::default(), settings).unwrap();
    furnish(&mut tables);
    tables.attach().unwrap();
    let mut handle = Handle::default();
    tables.publish(&mut handle, &session(0, Qos::Mbr)).unwrap();
    for port in &ports {
        let up = Command::new("ip")
            .args(["link", "set", &format!("far{}", port.name), "up"])
            .status();
        assert!(up.unwrap().success());
    }
    rests("dpdk-idle-woken-cpu", "worker-0");
    let access = FrameSocket::open(if_nametoindex("farn3").unwrap(), WATCH).unwrap();
    let mut took = Vec::new();
    for _ in 0..FIRST_PACKETS / 10 {
        sleep(Duration::from_millis(50));
        let (before, since) = (received("farn6"), monotonic_ns());
        assert_eq!(access.send([frame].into_iter()), 0);
        while received("farn6") == before {
            std::hint::spin_loop();
        }
        took.push(monotonic_ns() - since);
    }
    took.sort_unstable();
    waits("dpdk-idle-woken", &Carried { per_s: 0.0, took });
}

/// Frames that the kernel has taken from an interface of this thread's namespace.
fn received(name: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let fields = all
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut of_it = fields.filter(|fields| fields[0].strip_suffix(':') == Some(name));
    of_it.next().unwrap()[2].parse().unwrap()
}

/// CPU time of a thread without traffic.
fn rests(name: &str, thread: &str) {
    sleep(WATCH / 4);
    let before = cpu_of(thread);
    sleep(WATCH);
    let share = (cpu_of(thread) - before).as_secs_f64() / WATCH.as_secs_f64();
    figure(name, share * 100.0, "%", None);
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let is_huge = !has("--no-huge");
    let _reserved = is_huge.then(|| HugePages::reserve(PAGES));
    let mut numbers = arguments
        .iter()
        .filter_map(|argument| argument.parse().ok());
    let runs = numbers.next().unwrap_or(9);
    let mut steps: Vec<u32> = numbers.collect();
    if steps.is_empty() && has("--density") {
        steps = vec![1_000_000];
    } else if steps.is_empty() {
        steps = vec![1, 1_000, 100_000, 1_000_000, 10_000_000];
    }
    let eal = ["--no-pci", "--no-telemetry", "-m", "128"];
    let no_huge = (!is_huge).then_some("--no-huge");
    let settings = Settings {
        eal: eal.into_iter().chain(no_huge).map(str::to_owned).collect(),
        taps: false,
        busy_poll: true,
        cpus: vec![1],
        ..Settings::default()
    };
    let pages = if is_huge { "" } else { "-no-huge" };
    let pipeline = Settings {
        pipeline: Some(Pipeline::default()),
        ..settings.clone()
    };
    for sessions in steps {
        if has("--density") {
            density(&settings, sessions, runs);
            continue;
        }
        single(&settings, pages, sessions, runs, Qos::Mbr);
        if sessions > MOST_FOR_ALL {
            continue;
        }
        if is_huge {
            single(&settings, pages, sessions, runs, Qos::Off);
            single(&settings, pages, sessions, runs, Qos::Share);
        }
        single(
            &pipeline,
            &format!("-pipeline{pages}"),
            sessions,
            runs,
            Qos::Mbr,
        );
    }
    if !is_huge || has("--one-thread") || has("--density") {
        return;
    }
    // The one worker that had no thread has taken this one to its CPU.
    stay_on(0);
    threaded(&settings, 1_000, runs);
    signalled(&settings, runs);
    idle(&settings);
}
