//! Requests that the data path serves by templates: two nodes hear the same, of which one has no such path. What they answer, say
//! of their sessions and do with packets is the same, octet by octet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use compiled::{BufferLimits, EndedTunnel, PdrId, Slow, Tables as _};
use nexthop::NextHopTables;
use nix::sched::{CloneFlags, unshare};
use session::config::{Config, NetworkInstance};
use session::{Core, Outbox, Time};
use tables::pipeline::BufferedFate;
use tables::testing::{furnish, hop, ports, resolve_peers};
use tables::{BufferControl, Layout, N4Port, Options, Pins, Tables, TunnelEnds, Verdict};
use testkit::machine::need_root;
use testkit::packets::{N3, N3_6, ethernet, gpdu, ipv4, ipv6, read_gpdu};
use testkit::random::Random;

use crate::wire::{find, group, ie, message};

mod killed;

const SMFS: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 100, 0, 2)), 8805),
    SocketAddr::new(
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 3)),
        8805,
    ),
];
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// Its packets have a flow of their own in some sessions.
const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);
const SESSIONS: usize = 6;
/// Addresses of ours that N4 comes to.
const N4: Ipv4Addr = Ipv4Addr::new(10, 100, 0, 1);
const N4_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 1);
/// Verdicts of XDP.
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

fn n4_port(interface: Option<&str>) -> N4Port {
    N4Port {
        interface: interface.map(str::to_owned),
        addresses: vec![N4.into(), N4_6.into()],
    }
}

/// The sum of 16-bit words in network order (RFC 1071).
fn sum_of(octets: &[u8]) -> u16 {
    let words = octets.chunks(2);
    let words = words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Pseudo header of UDP's checksum.
fn pseudo(from: IpAddr, to: IpAddr, len: u16) -> Vec<u8> {
    let octets = |ip| match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let [high, low] = len.to_be_bytes();
    [octets(from), octets(to), vec![0, 17, high, low]].concat()
}

/// Our end, and octets of an IP header.
fn ours(smf: SocketAddr) -> (IpAddr, usize) {
    match smf.ip() {
        IpAddr::V4(_) => (N4.into(), 20),
        IpAddr::V6(_) => (N4_6.into(), 40),
    }
}

/// A datagram of an SMF as it comes in.
fn frame_to_n4(from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
    let len = 8 + datagram.len() as u16;
    let mut udp = [from.port(), 8805, len, 0].map(u16::to_be_bytes).concat();
    udp.extend(datagram);
    let check = !sum_of(&[pseudo(from.ip(), ours(from).0, len), udp.clone()].concat());
    udp[6..8].copy_from_slice(&check.max(1).to_be_bytes());
    let header = match from.ip() {
        IpAddr::V4(smf) => ipv4(smf, N4, 17, 64, udp.len()),
        IpAddr::V6(smf) => ipv6(smf, N4_6, 17, 64, udp.len()),
    };
    ethernet(&[header, udp].concat())
}

/// The message that answers this SMF, of a frame that is what it should be.
fn answer_in(frame: &[u8], to: SocketAddr) -> Vec<u8> {
    let (n4, header) = ours(to);
    let asked = frame_to_n4(to, &[]);
    let macs = [&asked[6..12], &asked[..6], &asked[12..14]].concat();
    assert_eq!(frame[..14], macs[..]);
    let (ip, udp) = frame[14..].split_at(header);
    let len = udp.len() as u16;
    let addresses = pseudo(n4, to.ip(), 0);
    let addresses = &addresses[..addresses.len() - 4];
    match header {
        20 => {
            assert_eq!((ip[0], ip[8], ip[9]), (0x45, 64, 17));
            assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 20 + len);
            assert_eq!(&ip[12..], addresses);
            assert_eq!(sum_of(ip), 0xffff);
        }
        _ => {
            assert_eq!(ip[..4], [0x60, 0, 0, 0]);
            assert_eq!(u16::from_be_bytes([ip[4], ip[5]]), len);
            assert_eq!((ip[6], ip[7]), (17, 64));
            assert_eq!(&ip[8..], addresses);
        }
    }
    let ports = [8805, to.port(), len].map(u16::to_be_bytes).concat();
    assert_eq!(udp[..6], ports);
    assert_eq!(
        sum_of(&[pseudo(n4, to.ip(), len), udp.to_vec()].concat()),
        0xffff
    );
    udp[8..].to_vec()
}

/// Packets that would wait are not kept: it is enough that they are counted.
#[derive(Debug)]
struct Nobody;

impl BufferControl for Nobody {
    fn release(&self, _: u64) {}
    fn discard(&self, _: u64) {}
    fn limit(&self, _: u64, _: PdrId, _: BufferLimits) {}
    fn tell_anew(&self, _: u64) {}
}

/// Tunnels that were left, for a moment.
#[derive(Clone, Debug, Default)]
struct Ends(Arc<Mutex<Vec<EndedTunnel>>>);

impl TunnelEnds for Ends {
    fn left(&self, tunnel: &EndedTunnel, _: Option<u32>) {
        self.0.lock().unwrap().push(*tunnel);
    }
}

/// Way by which requests are served by templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    None,
    /// In the thread of the core.
    User,
    /// By a program, beside it.
    Data,
}

struct Node {
    ends: Ends,
    core: Core<Tables>,
    out: Outbox,
    now: Time,
    /// Requests that the program has served are heard of with the next one that it leaves to the core.
    is_late: bool,
}

impl Node {
    fn new(way: Way) -> Self {
        Self::with(way, None, None)
    }

    /// pins: where what a program has served outlives it; interface: of N4
    fn with(way: Way, pins: Option<Pins>, interface: Option<&str>) -> Self {
        let named = |name: &str| NetworkInstance {
            name: name.into(),
            ..NetworkInstance::default()
        };
        let config = Config {
            n3: vec![N3.into(), N3_6.into()],
            network_instances: vec![named("internet"), named("ims")],
            heartbeat_interval: Duration::ZERO,
            fast_path: way != Way::None,
            seed: 5,
            ..Config::default()
        };
        let layout = Layout::for_sessions(64, 2, 4);
        let mut options = Options::default();
        let mut ports = ports();
        for port in &mut ports {
            port.has_n4 = interface == Some(port.name.as_str());
        }
        let mut tables = match way {
            Way::Data => {
                options.n4 = Some(n4_port(interface));
                let loaded = match pins {
                    Some(pins) => Tables::pinned(&layout, &ports, &options, pins),
                    None => Tables::xdp(&layout, &ports, &options),
                };
                let mut tables = loaded.unwrap();
                (0..3).for_each(|port| tables.set_redirect(port, 1).unwrap());
                tables
            }
            _ => Tables::host(&layout, &ports, &options).unwrap(),
        };
        furnish(&mut tables);
        tables.set_buffer_control(Arc::new(Nobody));
        let ends = Ends::default();
        tables.tell_of_tunnel_ends(ends.clone());
        tables.pipeline().buffer_up_to(64);
        let core = Core::new(config, 1, tables);
        assert_eq!(core.serves(), way != Way::None);
        assert_eq!(core.serves_beside(), way == Way::Data);
        let (out, now) = (Outbox::new(), Time(1_000_000_000));
        Self {
            ends,
            core,
            out,
            now,
            is_late: false,
        }
    }

    /// Datagrams that it sends.
    fn hear(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        self.out.clear();
        self.now.0 += 1_000_000;
        let mut answers = Vec::new();
        match self.meets(from, datagram) {
            Some(answer) if self.is_late => answers.push((from, answer)),
            Some(answer) => {
                self.core.catch_up(self.now, &mut self.out);
                assert!(self.out.is_empty(), "it is answered");
                answers.push((from, answer));
            }
            None => self.core.receive(self.now, from, datagram, &mut self.out),
        }
        self.resolve();
        let tables = self.core.tables_mut();
        tables.maintain();
        // No message is under way.
        (0..2).for_each(|_| tables.lend_again());
        let sent = self.out.iter();
        answers.extend(sent.map(|(to, octets)| (to, octets.to_vec())));
        answers
    }

    /// The core has a datagram, and answers.
    fn receive(&mut self, smf: usize, datagram: &[u8]) {
        self.out.clear();
        let now = self.now;
        self.core.receive(now, SMFS[smf], datagram, &mut self.out);
        assert_eq!(self.out.len(), 1);
    }

    /// Peers are found.
    fn resolve(&mut self) {
        let tables = self.core.tables_mut();
        let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
        resolve_peers(tables, n3);
        tables.free_nexthop(n3);
    }

    /// The answer of the program that a datagram meets first, if that has one.
    fn meets(&self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let frame = frame_to_n4(from, datagram);
        let runner = self.core.tables().n4_runner()?.unwrap();
        let (verdict, answer) = runner.test_run(&frame).unwrap();
        if verdict == PASS {
            assert_eq!(answer, frame, "untouched");
            return None;
        }
        assert_eq!(verdict, REDIRECT);
        Some(answer_in(&answer, from))
    }

    /// Verdict of XDP, and the frame unless it drops.
    fn run(&mut self, port: usize, frame: &[u8]) -> (u32, Vec<u8>) {
        let tables = self.core.tables_mut();
        let (verdict, frame) = match tables.run(port, frame, self.now.0) {
            None => tables.test_run(port, frame).unwrap().unwrap(),
            Some(run) => match run.verdict {
                Verdict::Drop(_) | Verdict::Slow => (DROP, run.frame),
                Verdict::Pass => (PASS, run.frame),
                _ => (REDIRECT, run.frame),
            },
        };
        (verdict, if verdict == DROP { Vec::new() } else { frame })
    }

    /// Fate of a packet to a UE, and the frame that it left as.
    fn down(&mut self, from: Ipv4Addr, ue: Ipv4Addr) -> (u32, Vec<u8>) {
        let payload = [0; 16];
        let packet = [&ipv4(from, ue, 17, 64, payload.len())[..], &payload].concat();
        self.run(1, &ethernet(&packet))
    }

    /// The same of one that its SMF sends to it.
    fn relayed(&mut self, teid: u32, ue: Ipv4Addr) -> (u32, Vec<u8>) {
        let payload = [0; 16];
        let packet = [&ipv4(SERVER, ue, 17, 64, payload.len())[..], &payload].concat();
        self.run(0, &gpdu(teid, None, &packet))
    }

    /// Nothing is left of sessions that are gone.
    fn is_over(&mut self) {
        self.core.advance(self.now, &mut self.out);
        let is_empty = |tables: &mut Tables| {
            // Nobody has sent what has waited.
            let pipeline = tables.pipeline();
            (0..8192).for_each(|entry| pipeline.lower_buffered(entry, u64::MAX, 0));
            let fill = tables.fill();
            let used: Vec<_> = fill.iter().map(|fill| (fill.table, fill.used)).collect();
            let tables = ["entries", "exts", "meters", "peers", "rules"];
            tables.iter().all(|table| used.contains(&(*table, 0)))
        };
        await_that(self.core.tables_mut(), is_empty);
    }

    /// All that is said of a session, but for what it has counted.
    fn says(&self, seid: u64) -> String {
        format!("{:#?}", self.core.session(seid))
    }

    fn slow(&self, why: Slow) -> u64 {
        self.core.slow().find(|(of, _)| *of == why).unwrap().1
    }

    fn served(&self) -> u64 {
        self.core.stats().served
    }
}

#[derive(Clone, Copy)]
struct Session {
    smf: usize,
    /// Ours.
    seid: u64,
    ue: Ipv4Addr,
    /// TEID of the SMF's own packets to the UE.
    teid: u32,
}

/// Both nodes, and what the SMFs know.
struct World {
    way: Way,
    nodes: [Node; 2],
    sequences: [u32; 2],
    /// By the number of their UE.
    sessions: BTreeMap<usize, Session>,
    /// All requests so far.
    said: Vec<(usize, Vec<u8>)>,
    /// Tunnels that were left.
    ends: usize,
    /// Of each node, where they do not come at once.
    all_ends: Option<[Vec<EndedTunnel>; 2]>,
    /// Packets come for UEs whose packets wait, too.
    has_waiting: bool,
}

fn ue(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 60, 0, 10 + at as u8)
}

fn id(kind: u16, id: u32) -> Vec<u8> {
    ie(kind, &id.to_be_bytes())
}

/// Outer Header Creation.
fn tunnel(teid: u32, gnb: IpAddr) -> Vec<u8> {
    let (kind, address) = match gnb {
        IpAddr::V4(v4) => (1, v4.octets().to_vec()),
        IpAddr::V6(v6) => (2, v6.octets().to_vec()),
    };
    ie(
        84,
        &[&[kind, 0][..], &teid.to_be_bytes(), &address].concat(),
    )
}

fn gnb(random: &mut Random) -> IpAddr {
    match random.below(8) {
        0 => IpAddr::from([0x2001, 0xdb8, 3, 0, 0, 0, 0, 0x11 + random.below(2) as u16]),
        n => IpAddr::from([10, 3, 1, n as u8]),
    }
}

fn cp_f_seid(cp_seid: u64, smf: usize) -> Vec<u8> {
    let address = [10, 100, 0, 2 + smf as u8];
    ie(57, &[&[2][..], &cp_seid.to_be_bytes(), &address].concat())
}

/// PDR 1 up, PDR 2 down, PDR 3 of the SMF's own packets to the UE, which shares the downlink FAR; BAR 1.
/// Every second UE has a flow of its own for one server: PDR 4 and FAR 3.
fn establishment(smf: usize, at: usize, far: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (pdr, far_id, qer) = (56, 108, 109);
    let ue_ip = |flags: u8| ie(93, &[&[flags][..], &ue(at).octets()].concat());
    let network = || ie(22, b"\x08internet");
    let flow = b"permit out ip from 203.0.113.8 to assigned";
    let filter = [&[1, 0, 0, flow.len() as u8][..], flow].concat();
    let own_flow = [
        group(
            1,
            &[
                ie(pdr, &[0, 4]),
                id(29, 50),
                group(2, &[ie(20, &[1]), network(), ue_ip(6), ie(23, &filter)]),
                id(far_id, 3),
                id(qer, 1),
            ],
        ),
        group(
            3,
            &[
                id(far_id, 3),
                ie(44, &[2]),
                group(
                    4,
                    &[
                        ie(42, &[0]),
                        tunnel(0x5000 + at as u32, IpAddr::from([10, 3, 1, 1])),
                    ],
                ),
            ],
        ),
    ];
    let own_flow = own_flow.into_iter().filter(|_| at % 2 == 1);
    let ies = vec![
        ie(60, &[0, 10, 100, 0, 2 + smf as u8]),
        cp_f_seid(100 + at as u64, smf),
        group(
            1,
            &[
                ie(pdr, &[0, 1]),
                id(29, 100),
                group(2, &[ie(20, &[0]), ie(21, &[0x05]), ue_ip(2)]),
                ie(95, &[0]),
                id(far_id, 1),
                id(qer, 1),
            ],
        ),
        group(
            1,
            &[
                ie(pdr, &[0, 2]),
                id(29, 100),
                group(2, &[ie(20, &[1]), network(), ue_ip(6)]),
                id(far_id, 2),
                id(qer, 1),
            ],
        ),
        group(
            1,
            &[
                ie(pdr, &[0, 3]),
                id(29, 90),
                group(2, &[ie(20, &[3]), ie(21, &[0x05])]),
                ie(95, &[0]),
                id(far_id, 2),
                id(qer, 1),
            ],
        ),
        group(
            3,
            &[
                id(far_id, 1),
                ie(44, &[2]),
                group(4, &[ie(42, &[1]), network()]),
            ],
        ),
        group(3, far),
        group(7, &[id(qer, 1), ie(25, &[0]), ie(124, &[9])]),
        group(85, &[ie(88, &[1]), ie(46, &[0])]),
    ];
    ies.into_iter().chain(own_flow).collect()
}

impl World {
    fn new(way: Way) -> Self {
        Self::of(way, Node::new(way))
    }

    fn of(way: Way, node: Node) -> Self {
        let mut world = Self {
            way,
            nodes: [Node::new(Way::None), node],
            sequences: [1000; 2],
            sessions: BTreeMap::new(),
            said: Vec::new(),
            ends: 0,
            all_ends: None,
            has_waiting: false,
        };
        for smf in 0..SMFS.len() {
            let setup = [
                ie(60, &[0, 10, 100, 0, 2 + smf as u8]),
                ie(96, &[1, 2, 3, 4]),
            ];
            world.ask(smf, 5, None, &setup);
        }
        world
    }

    /// The answer of both, which has to be the same; so are their sessions.
    fn hear(&mut self, smf: usize, datagram: &[u8]) -> Vec<u8> {
        let answer = self.answer(smf, datagram);
        self.check();
        answer
    }

    fn answer(&mut self, smf: usize, datagram: &[u8]) -> Vec<u8> {
        let answers = self.nodes.each_mut();
        let answers = answers.map(|node| node.hear(SMFS[smf], datagram));
        assert_eq!(answers[0], answers[1], "to {datagram:02x?}");
        let ends = self.take_ends();
        assert_eq!(ends[0], ends[1], "after {datagram:02x?}");
        answers[0]
            .first()
            .map_or(Vec::new(), |(_, answer)| answer.clone())
    }

    /// Tunnels that were left since; none where they are judged at the end.
    fn take_ends(&mut self) -> [Vec<EndedTunnel>; 2] {
        let ends = self.nodes.each_ref();
        let mut ends = ends.map(|node| std::mem::take(&mut *node.ends.0.lock().unwrap()));
        self.ends += ends[0].len();
        if let Some(all) = &mut self.all_ends {
            all.iter_mut()
                .zip(&mut ends)
                .for_each(|(all, ends)| all.append(ends));
        }
        ends
    }

    /// A modification, numbered.
    fn numbered(&mut self, at: usize, ies: &[Vec<u8>]) -> Vec<u8> {
        let Session { smf, seid, .. } = self.sessions[&at];
        self.sequences[smf] += 1;
        let mut datagram = message(52, Some(seid), ies);
        datagram[12..15].copy_from_slice(&self.sequences[smf].to_be_bytes()[1..]);
        datagram
    }

    fn ask(&mut self, smf: usize, kind: u8, seid: Option<u64>, ies: &[Vec<u8>]) -> Vec<u8> {
        self.sequences[smf] += 1;
        let mut datagram = message(kind, seid, ies);
        let at = if seid.is_some() { 12 } else { 4 };
        datagram[at..at + 3].copy_from_slice(&self.sequences[smf].to_be_bytes()[1..]);
        self.said.push((smf, datagram.clone()));
        self.hear(smf, &datagram)
    }

    fn modify(&mut self, at: usize, ies: &[Vec<u8>]) -> Vec<u8> {
        let Session { smf, seid, .. } = self.sessions[&at];
        self.ask(smf, 52, Some(seid), ies)
    }

    fn establish(&mut self, at: usize, random: &mut Random) {
        let smf = at % SMFS.len();
        let tunnelled = [
            id(108, 2),
            ie(44, &[2]),
            group(4, &[ie(42, &[0]), tunnel(0x5000 + at as u32, gnb(random))]),
        ];
        let waiting = [id(108, 2), ie(44, &[12]), ie(88, &[1])];
        let far: &[Vec<u8>] = match random.below(3) {
            0 => &waiting,
            _ => &tunnelled,
        };
        let answer = self.ask(smf, 50, Some(0), &establishment(smf, at, far));
        assert!(accepted(&answer), "{answer:02x?}");
        let f_seid = find(57, &answer[16..]);
        let seid = u64::from_be_bytes(f_seid[0][1..9].try_into().unwrap());
        let created = find(8, &answer[16..]);
        let of_smf = created.iter().find(|pdr| find(56, pdr) == [[0, 3]]);
        let teid = find(21, of_smf.unwrap())[0][1..5].try_into().unwrap();
        let teid = u32::from_be_bytes(teid);
        let ue = ue(at);
        let session = Session {
            smf,
            seid,
            ue,
            teid,
        };
        self.sessions.insert(at, session);
        self.check();
    }

    /// Sessions are the same in both, and so is what becomes of packets.
    fn check(&mut self) {
        let sessions: Vec<_> = self.sessions.values().copied().collect();
        if self.way == Way::Data {
            // Grace periods take their time.
            let [slow, fast] = &mut self.nodes;
            let waiting = draining(slow.core.tables());
            await_that(fast.core.tables_mut(), |fast| draining(fast) == waiting);
        }
        for Session { seid, ue, teid, .. } in sessions {
            let [slow, fast] = &mut self.nodes;
            let outlives = self.all_ends.is_some();
            let says = |node: &Node| match outlives {
                true => without_counts(&node.says(seid)),
                false => node.says(seid),
            };
            assert_eq!(says(slow), says(fast));
            assert_eq!(slow.core.record(seid), fast.core.record(seid));
            if !self.has_waiting && says(slow).contains("BUFF") {
                continue;
            }
            for server in [SERVER, OTHER_SERVER] {
                assert_eq!(slow.down(server, ue), fast.down(server, ue));
            }
            assert_eq!(slow.relayed(teid, ue), fast.relayed(teid, ue));
            assert_eq!(says(slow), says(fast), "counters");
        }
        let counts = [&self.nodes[0], &self.nodes[1]].map(|node| {
            let mut paths = Vec::new();
            compiled::Tables::gtpu_paths(node.core.tables(), &mut |remote, local| {
                paths.push((remote, local));
            });
            paths.sort_unstable();
            let stats = node.core.stats();
            let messages: Vec<_> = stats.messages().collect();
            let counts = (messages, stats.modified, stats.duplicates);
            (paths, self.all_ends.is_none().then_some(counts))
        });
        assert_eq!(counts[0], counts[1]);
    }
}

impl World {
    /// Without sessions nothing is left of them.
    fn end(&mut self) {
        for Session { smf, seid, .. } in std::mem::take(&mut self.sessions).into_values() {
            assert!(accepted(&self.ask(smf, 54, Some(seid), &[])));
        }
        self.nodes.iter_mut().for_each(Node::is_over);
    }
}

/// The same without counts, which end with the process where no URR wants them.
fn without_counts(says: &str) -> String {
    let counts = [
        "packets: ",
        "bytes: ",
        "drops: ",
        "qos_packets: ",
        "qos_bytes: ",
        "delayed: ",
    ];
    let is_count = |line: &&str| counts.iter().any(|of| line.trim_start().starts_with(of));
    says.lines().filter(|line| !is_count(line)).collect()
}

/// ... some grace periods long.
fn await_that(tables: &mut Tables, is_so: impl Fn(&mut Tables) -> bool) {
    for _ in 0..10_000 {
        tables.maintain();
        if is_so(tables) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("a grace period does not end: {:?}", tables.fill());
}

fn accepted(answer: &[u8]) -> bool {
    find(19, &answer[16..]) == [[1]]
}

/// Path switch as Open5GS asks for it.
fn path_switch(teid: u32, gnb: IpAddr, ends: bool) -> Vec<u8> {
    path_switch_of(2, teid, gnb, ends)
}

fn path_switch_of(far: u32, teid: u32, gnb: IpAddr, ends: bool) -> Vec<u8> {
    let mut to = vec![ie(42, &[0]), ie(22, b"\x06access"), tunnel(teid, gnb)];
    if ends {
        to.push(ie(49, &[2]));
    }
    group(10, &[id(108, far), group(11, &to)])
}

fn idle(notify: bool) -> Vec<u8> {
    let action = if notify { 12 } else { 4 };
    group(10, &[id(108, 2), ie(44, &[action]), ie(88, &[1])])
}

fn active(teid: u32, gnb: IpAddr) -> Vec<u8> {
    let to = group(11, &[ie(42, &[0]), tunnel(teid, gnb)]);
    group(10, &[id(108, 2), ie(44, &[2]), to])
}

fn what_is_asked_for_again_and_again_is_served_by_a_template(way: Way) {
    let mut random = Random(1);
    let mut world = World::new(way);
    world.establish(1, &mut random);
    let gnb = IpAddr::from([10, 3, 1, 1]);
    for teid in 1..=8 {
        assert!(accepted(&world.modify(1, &[path_switch(teid, gnb, true)])));
        assert_eq!(world.nodes[1].served(), 0, "not yet");
    }
    assert_eq!(world.nodes[1].core.templates().count(), 1);
    for teid in 9..=20 {
        assert!(accepted(&world.modify(1, &[path_switch(teid, gnb, true)])));
    }
    assert_eq!(world.nodes[1].served(), 12);
    assert_eq!(world.nodes[0].served(), 0);
    // An address that no tunnel has led to yet.
    let other = IpAddr::from([10, 3, 1, 2]);
    world.modify(1, &[path_switch(21, other, true)]);
    assert_eq!(world.nodes[1].slow(Slow::Tunnel), 1);
    world.modify(1, &[path_switch(22, other, true)]);
    assert_eq!(world.nodes[1].served(), 13);
}

/// Session 1, after `request` was carried out so often that it is a template, and what comes next of it is served.
fn taught(way: Way, requests: &[Vec<u8>]) -> World {
    let mut world = World::new(way);
    world.establish(1, &mut Random(1));
    for _ in 0..10 {
        for request in requests {
            assert!(accepted(&world.modify(1, std::slice::from_ref(request))));
        }
    }
    assert_eq!(world.nodes[1].core.templates().count(), requests.len());
    assert!(requests.is_empty() || world.nodes[1].served() > 0);
    world
}

/// Entries of a node whose packets go behind others that wait.
fn draining(tables: &Tables) -> usize {
    let pipeline = tables.pipeline();
    let drains = |entry: &u32| pipeline.action(*entry) == BufferedFate::ReleasedFirst;
    (0..8192).filter(drains).count()
}

fn a_ue_whose_packets_wait_is_the_cores(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(way, &[idle(true), active(1, gnb)]);
    let before = world.nodes[1].served();
    world.modify(1, &[idle(true)]);
    world.modify(1, &[active(2, gnb)]);
    assert_eq!(world.nodes[1].served(), before + 2);
    world.modify(1, &[idle(true)]);
    for node in &mut world.nodes {
        assert_eq!(node.down(SERVER, ue(1)).0, DROP, "it waits");
    }
    world.modify(1, &[active(3, gnb)]);
    assert_eq!(world.nodes[1].slow(Slow::Waiting), 1);
    assert_eq!(world.nodes[1].served(), before + 3);
}

#[test]
fn who_met_an_idle_ue_is_not_overtaken_when_it_is_back() {
    let way = Way::User;
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(way, &[idle(true), active(1, gnb)]);
    world.modify(1, &[idle(true)]);
    let before = world.nodes[1].served();
    let seid = world.sessions[&1].seid;
    let mut request = message(52, Some(seid), &[active(4, gnb)]);
    request[12..15].copy_from_slice(&[0, 0x20, 0]);
    let [slow, fast] = &mut world.nodes;
    for node in [&mut *slow, &mut *fast] {
        node.out.clear();
        let now = node.now;
        node.core.receive(now, SMFS[1], &request, &mut node.out);
        assert_eq!(
            draining(node.core.tables()),
            2,
            "until a grace period is over"
        );
        node.core.tables_mut().maintain();
        assert_eq!(draining(node.core.tables()), 0);
    }
    assert_eq!(fast.served(), before + 1);
}

fn an_error_indication_brings_a_session_back_to_the_core(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(way, &[active(1, gnb)]);
    let indication = |teid: u32| {
        let mut packet = vec![0x45, 0, 0, 52, 0, 0, 0, 0, 64, 17, 0, 0, 10, 3, 1, 1];
        packet.extend(N3.octets());
        packet.extend([0x08, 0x68, 0x08, 0x68, 0, 32, 0, 0]);
        packet.extend([0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
        packet.extend(teid.to_be_bytes());
        packet.extend([133, 0, 4, 10, 3, 1, 1]);
        packet
    };
    // The first one may be forged: nothing changes for packets.
    for (round, indications) in [(1, 1), (2, 2)] {
        let before = world.nodes[1].served();
        world.modify(1, &[active(7, gnb)]);
        assert_eq!(world.nodes[1].served(), before + 1);
        for _ in 0..indications {
            let reports = [0, 1].map(|at| {
                let node = &mut world.nodes[at];
                node.out.clear();
                let now = node.now;
                node.core.receive_gtpu(now, &indication(7), &mut node.out);
                node.out.len()
            });
            assert_eq!(reports[0], reports[1]);
            world.check();
        }
        world.modify(1, &[active(8, gnb)]);
        assert_eq!(world.nodes[1].slow(Slow::Session), round, "the core's once");
        world.modify(1, &[active(9, gnb)]);
        assert_eq!(world.nodes[1].served(), before + 2, "and then lent again");
    }
}

fn a_tunnel_ends_with_the_last_flow_in_it(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let switch = |far, teid| path_switch_of(far, teid, gnb, true);
    let mut world = taught(way, &[switch(2, 1)]);
    let both = |teid| [switch(2, teid), switch(3, teid)];
    (0..9).for_each(|_| drop(world.modify(1, &both(1))));
    assert_eq!(world.nodes[1].core.templates().count(), 2);
    let before = world.nodes[1].served();
    for (request, ended) in [
        (&both(5)[..], 2),
        (&[switch(2, 6)], 0),
        (&[switch(3, 6)], 1),
        (&[switch(3, 6)], 0),
        (&both(7), 2),
        (&[switch(2, 8)], 0),
        (&[switch(3, 8), switch(2, 7)], 0),
    ] {
        let ends = world.ends;
        assert!(accepted(&world.modify(1, request)));
        assert_eq!(world.ends - ends, ended, "{request:02x?}");
    }
    assert_eq!(world.nodes[1].served(), before + 7);
}

fn two_flows_change_places(way: Way) {
    let [one, other, third] = [1, 2, 3].map(|n| IpAddr::from([10, 3, 1, n]));
    let both = |a, b| {
        [
            path_switch_of(2, 5, a, false),
            path_switch_of(3, 5, b, false),
        ]
    };
    let mut world = World::new(way);
    world.establish(1, &mut Random(1));
    for _ in 0..9 {
        world.modify(1, &both(one, other));
    }
    let before = world.nodes[1].served();
    // Nobody else knows these addresses.
    world.modify(1, &both(other, one));
    world.modify(1, &both(one, other));
    world.modify(1, &both(other, third));
    world.modify(1, &both(one, other));
    // Beside the core, an address that is needed no more is known a little longer.
    let later = u64::from(way == Way::Data);
    assert_eq!(world.nodes[1].served(), before + 2 + later);
    world.end();
}

fn templates_of_equal_octets_are_for_different_fars(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(way, &[path_switch(1, gnb, true)]);
    // FAR 2 has a BAR from now on, FAR 3 has none.
    world.modify(1, &[idle(true)]);
    world.modify(1, &[active(1, gnb)]);
    for far in [2, 3] {
        (0..9).for_each(|_| drop(world.modify(1, &[path_switch_of(far, 1, gnb, true)])));
    }
    let before = world.nodes[1].served();
    for far in [2, 3, 2, 3] {
        world.modify(1, &[path_switch_of(far, 2, gnb, true)]);
    }
    assert_eq!(world.nodes[1].served(), before + 4);
}

fn what_comes_late_does_not_have_others_served_twice(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(way, &[active(1, gnb)]);
    let seid = world.sessions[&1].seid;
    let request = |sequence: u32, teid| {
        let mut request = message(52, Some(seid), &[active(teid, gnb)]);
        request[12..15].copy_from_slice(&sequence.to_be_bytes()[1..]);
        request
    };
    let late = [8, 10, 9, 10, 8, 11, 9].map(|at| (0x3000 + at, at));
    for (sequence, teid) in late {
        world.hear(1, &request(sequence, teid));
    }
    assert_eq!(world.nodes[1].core.stats().duplicates, 3);
    // An SMF that counts twice: numbers run ahead, back, and ahead again.
    for (sequence, teid) in [(0x50_0000, 12), (0x3012, 13), (0x50_0000, 12), (0x3013, 14)] {
        world.hear(1, &request(sequence, teid));
    }
    assert_eq!(world.nodes[1].core.stats().duplicates, 4);
}

fn an_association_teaches_no_more_than_its_part_and_takes_it_along(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = World::new(way);
    world.establish(1, &mut Random(1));
    // Templates of all lengths: by the number of octets of a name that means nothing.
    for octets in 1..60u8 {
        let name = [&[octets][..], &vec![b'a'; octets.into()]].concat();
        let to = [ie(42, &[0]), ie(22, &name), tunnel(octets.into(), gnb)];
        for _ in 0..8 {
            let update = group(10, &[id(108, 2), group(11, &to)]);
            assert!(accepted(&world.modify(1, &[update])));
        }
    }
    assert_eq!(world.nodes[1].core.templates().count(), 16);
    world.ask(1, 9, None, &[ie(60, &[0, 10, 100, 0, 3])]);
    assert_eq!(world.nodes[1].core.templates().count(), 0);
}

/// Verdict of the program over a frame, and the frame thereafter.
fn through(world: &World, frame: &[u8]) -> (u32, Vec<u8>) {
    let tables = world.nodes[1].core.tables();
    let runner = tables.n4_runner().unwrap().unwrap();
    runner.test_run(frame).unwrap()
}

#[test]
fn frames_that_are_no_plain_datagrams_are_the_kernels() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(Way::Data, &[path_switch(1, gnb, true)]);
    world.establish(2, &mut Random(1));
    (0..10).for_each(|_| drop(world.modify(2, &[path_switch(1, gnb, true)])));
    let Session { seid, .. } = world.sessions[&2];
    let request = |sequence: u32| {
        let mut request = message(52, Some(seid), &[path_switch(9, gnb, true)]);
        request[12..15].copy_from_slice(&sequence.to_be_bytes()[1..]);
        request
    };
    let frame = frame_to_n4(SMFS[0], &request(0x2000));
    let says = world.nodes[1].says(seid);
    // IPv6 for another address of ours leaves nothing behind that IPv4 meets.
    let mut other = ethernet(&[&[0x60; 6][..], &[17], &[0xff; 60]].concat());
    other[12..14].copy_from_slice(&[0x86, 0xdd]);
    let with = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] ^= value;
        frame
    };
    let mut no_checksum = frame.clone();
    no_checksum[40..42].fill(0);
    let mut options = frame.clone();
    options[14] = 0x46;
    let strange = [
        other,
        with(25, 1),    // a checksum of IPv4
        with(20, 0x20), // a fragment follows
        with(21, 1),    // it is one
        with(30, 1),    // another address of ours
        with(37, 1),    // another port
        with(39, 1),    // another length
        with(41, 1),    // a checksum of UDP
        with(29, 1),    // a stranger
        with(frame.len() - 1, 1),
        no_checksum,
        options,
        frame[..frame.len() - 1].to_vec(),
        frame[..60].to_vec(),
    ];
    for frame in &strange {
        assert_eq!(through(&world, frame), (PASS, frame.clone()));
        assert_eq!(world.nodes[1].says(seid), says);
    }
    let [checksum, frames] = [Slow::Checksum, Slow::Frame].map(|why| world.nodes[1].slow(why));
    assert!(checksum >= 3 && frames >= 5, "{checksum}, {frames}");
    // Some have passed as messages of the session, and never come: the next one is the core's, and no more.
    let served = world.nodes[1].served();
    for (sequence, more) in [(0x2001, 0), (0x2002, 1)] {
        assert!(accepted(
            &world.nodes[1].hear(SMFS[0], &request(sequence))[0].1
        ));
        assert_eq!(world.nodes[1].served(), served + more);
    }
    let frame = frame_to_n4(SMFS[0], &request(0x2003));
    // Whatever is behind a datagram is no part of it.
    let padded = [&frame[..], &[0xee; 9]].concat();
    let (verdict, answer) = through(&world, &padded);
    assert_eq!(verdict, REDIRECT);
    assert!(accepted(&answer_in(&answer, SMFS[0])));
}

/// Numbers of an SMF begin anywhere, and come round.
fn an_smf_counts_from_anywhere(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    for first in [0x18_0000, 0x90_0000, 0xf8_0000, 0xff_fff8] {
        let mut world = World::new(way);
        world.sequences[1] = first;
        world.establish(1, &mut Random(1));
        for teid in 1..=20 {
            world.sequences[1] &= 0xff_ffff;
            assert!(accepted(&world.modify(1, &[path_switch(teid, gnb, true)])));
        }
        assert!(world.nodes[1].served() >= 11, "{first:x}");
    }
}

/// Requests of an SMF that meet the program, as many as it may send before it hears of any.
const UNHEARD: usize = 4;

/// A pair of interfaces, in the namespace of this thread.
fn plug(name: &str) {
    let far = format!("{name}-far");
    let link = ["link", "add", name, "type", "veth", "peer", "name", &far];
    let status = Command::new("ip").args(link).status().unwrap();
    assert!(status.success());
}

#[test]
fn what_came_before_the_program_was_there_is_not_overtaken() {
    need_root();
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let mut world = World::of(Way::Data, Node::with(Way::Data, None, Some("n4")));
    world.establish(1, &mut Random(1));
    let Session { smf, .. } = world.sessions[&1];
    let mut teid = 0;
    let mut next = |world: &mut World| {
        teid += 1;
        world.numbered(1, &[path_switch(teid, IpAddr::from([10, 3, 1, 1]), true)])
    };
    for _ in 0..10 {
        let datagram = next(&mut world);
        world.hear(smf, &datagram);
    }
    assert!(world.nodes[1].served() > 0);
    for name in ["n4", "again"] {
        if name == "again" {
            let status = Command::new("ip").args(["link", "del", "n4"]).status();
            assert!(status.unwrap().success());
        }
        plug("n4");
        let tables = world.nodes[1].core.tables_mut();
        assert!(tables.attach_n4().unwrap() && !tables.attach_n4().unwrap());
        // The first is in a socket by then.
        let requests = [(); 6].map(|()| next(&mut world));
        let [slow, fast] = &mut world.nodes;
        let passes = |fast: &Node, number: usize| {
            assert_eq!(fast.meets(SMFS[smf], &requests[number]), None, "{number}");
        };
        // Something about all sessions.
        fast.core.advance(fast.now, &mut fast.out);
        passes(fast, 1);
        fast.receive(smf, &requests[0]);
        passes(fast, 2);
        fast.receive(smf, &requests[1]);
        fast.receive(smf, &requests[2]);
        assert_eq!(fast.slow(Slow::Paused), if name == "n4" { 2 } else { 4 });
        // It goes on, and knows nothing of the first.
        fast.core.tables_mut().n4_may_serve();
        (3..5).for_each(|number| passes(fast, number));
        fast.receive(smf, &requests[3]);
        passes(fast, 5);
        fast.receive(smf, &requests[4]);
        fast.receive(smf, &requests[5]);
        for datagram in &requests {
            slow.receive(smf, datagram);
        }
        // Nothing comes.
        (0..2).for_each(|_| fast.core.tables_mut().lend_again());
        world.all_ends = Some(Default::default());
        world.check();
        let before = world.nodes[1].served();
        let datagram = next(&mut world);
        world.hear(smf, &datagram);
        assert_eq!(world.nodes[1].served(), before + 1);
    }
}

/// With N3 and N4 on one interface a request meets first the program of N3.
#[test]
fn an_interface_of_users_packets_may_have_n4_as_well() {
    need_root();
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = World::of(Way::Data, Node::with(Way::Data, None, Some("n3")));
    world.establish(1, &mut Random(1));
    let Session { smf, .. } = world.sessions[&1];
    for teid in 0..10 {
        let datagram = world.numbered(1, &[path_switch(1 + teid, gnb, true)]);
        world.hear(smf, &datagram);
    }
    let mut asked = 0;
    // Whether the program of N4 answers when this port's meets a request, which the core gets otherwise.
    let mut is_served_by = |world: &mut World, port: usize| {
        asked += 1;
        let datagram = world.numbered(1, &[path_switch(100 + asked, gnb, true)]);
        let [slow, fast] = &mut world.nodes;
        slow.receive(smf, &datagram);
        let frame = frame_to_n4(SMFS[smf], &datagram);
        let tables = fast.core.tables();
        match tables.test_run(port, &frame).unwrap().unwrap() {
            (PASS, passed) => {
                assert_eq!(passed, frame, "untouched");
                fast.receive(smf, &datagram);
                false
            }
            (verdict, answer) => {
                assert_eq!(verdict, REDIRECT);
                let [_, kind, ..] = answer_in(&answer, SMFS[smf])[..] else {
                    panic!("no header");
                };
                assert_eq!(kind, 53, "Session Modification Response");
                true
            }
        }
    };
    ["n3", "n6a", "n6b"].iter().for_each(|name| plug(name));
    let tables = world.nodes[1].core.tables_mut();
    assert!(
        tables.attach_n4().is_err(),
        "behind a program that is not there"
    );
    tables.attach().unwrap();
    assert!(!tables.n4_is_attached() && !is_served_by(&mut world, 0));
    for life in 0..2 {
        let tables = world.nodes[1].core.tables_mut();
        assert!(tables.attach_n4().unwrap() && !tables.attach_n4().unwrap());
        assert!(tables.n4_is_attached());
        assert!(!is_served_by(&mut world, 0), "nobody is served yet");
        let serves = |world: &mut World| {
            let tables = world.nodes[1].core.tables_mut();
            tables.n4_may_serve();
            (0..2).for_each(|_| tables.lend_again());
        };
        serves(&mut world);
        assert!(is_served_by(&mut world, 0) && is_served_by(&mut world, 0));
        assert!(!is_served_by(&mut world, 1), "N4 does not come by that one");
        let tables = world.nodes[1].core.tables_mut();
        (0..2).for_each(|_| tables.lend_again());
        assert!(is_served_by(&mut world, 0));
        if life == 0 {
            let status = Command::new("ip").args(["link", "del", "n3"]).status();
            assert!(status.unwrap().success());
            let tables = world.nodes[1].core.tables_mut();
            assert!(!tables.n4_is_attached() && tables.attach_n4().is_err());
            plug("n3");
            let ifindex = nix::net::if_::if_nametoindex("n3").unwrap();
            let tables = world.nodes[1].core.tables_mut();
            tables.attach_port(0, ifindex).unwrap();
            assert!(!tables.n4_is_attached() && !is_served_by(&mut world, 0));
        }
    }
    world.nodes[1].core.tables_mut().detach_n4();
    assert!(!is_served_by(&mut world, 0));
    world.all_ends = Some(Default::default());
    world.check();
}

#[test]
fn sessions_of_requests_that_were_served_are_known_ahead() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(Way::Data, &[path_switch(1, gnb, true)]);
    for at in [3, 5] {
        world.establish(at, &mut Random(1));
        world.modify(at, &[path_switch(1, gnb, true)]);
    }
    let asked = [5, 1, 1, 3];
    for (number, at) in asked.into_iter().enumerate() {
        let datagram = world.numbered(at, &[path_switch(2 + number as u32, gnb, true)]);
        assert!(world.nodes[1].meets(SMFS[1], &datagram).is_some());
        world.nodes[0].hear(SMFS[1], &datagram);
    }
    let seids = asked.map(|at| Some(world.sessions[&at].seid));
    let fast = &mut world.nodes[1];
    let ahead = |tables: &Tables| [0, 1, 2, 3].map(|others| tables.served_ahead(others));
    assert_eq!(ahead(fast.core.tables()), [None; 4], "before a look");
    fast.core.tables_mut().look_at_served();
    assert_eq!(ahead(fast.core.tables()), seids);
    assert_eq!(fast.core.tables().served_ahead(4), None, "behind the last");
    fast.core.catch_up(fast.now, &mut fast.out);
    assert_eq!(ahead(fast.core.tables()), [None; 4], "all are known");
    world.all_ends = Some(Default::default());
    world.check();
}

#[test]
fn a_program_and_the_core_serve_one_session_at_once() {
    let mut world = taught(
        Way::Data,
        &[path_switch(1, IpAddr::from([10, 3, 1, 1]), true)],
    );
    for at in [3, 5] {
        world.establish(at, &mut Random(1));
    }
    let gnbs = [1, 2, 3].map(|n| IpAddr::from([10, 3, 1, n]));
    for (at, gnb) in [1, 3, 5].into_iter().zip(gnbs) {
        world.modify(at, &[path_switch(1, gnb, true)]);
    }
    let (sessions, first) = (world.sessions.clone(), world.sequences[1] + 1);
    let node = &mut world.nodes[1];
    let runner = node.core.tables().n4_runner().unwrap().unwrap();
    let (to_core, socket) = sync_channel::<Vec<u8>>(UNHEARD);
    let before = node.served();
    // No request is between the program and the socket while this is free.
    let under_way = Arc::new(Mutex::new(()));
    let kernel = Arc::clone(&under_way);
    // By the number of their UE: the tunnel that was asked for last.
    let last = thread::spawn(move || {
        let (mut random, mut last, mut whose) = (Random(7), BTreeMap::new(), BTreeMap::new());
        for number in 0..AT_ONCE {
            let at = [1, 3, 5][random.below(3)];
            let (gnb, teid) = (gnbs[random.below(3)], 10 + number);
            // One in eight changes something else, too.
            let mut ies = vec![path_switch(teid, gnb, true)];
            if random.below(8) == 0 {
                ies.push(group(86, &[ie(88, &[1]), ie(46, &[random.below(3) as u8])]));
            }
            let mut request = message(52, Some(sessions[&at].seid), &ies);
            request[12..15].copy_from_slice(&(first + number).to_be_bytes()[1..]);
            let frame = frame_to_n4(SMFS[1], &request);
            let _under_way = kernel.lock().unwrap();
            let (verdict, answer) = runner.test_run(&frame).unwrap();
            match verdict {
                PASS => to_core.send(request).unwrap(),
                _ => assert!(accepted(&answer_in(&answer, SMFS[1]))),
            }
            last.insert(at, (teid, gnb));
            whose.insert(teid, at);
        }
        (last, whose)
    });
    let mut looks = 0;
    loop {
        node.now.0 += 100_000;
        node.out.clear();
        match socket.try_recv() {
            Ok(request) => {
                node.core
                    .receive(node.now, SMFS[1], &request, &mut node.out);
                let answers: Vec<_> = node.out.iter().collect();
                assert!(answers.iter().all(|(_, answer)| accepted(answer)));
                assert_eq!(answers.len(), 1, "{request:02x?}");
            }
            Err(TryRecvError::Empty) => {
                looks += 1;
                node.core.catch_up(node.now, &mut node.out);
                if looks % 64 == 0 {
                    node.core.advance(node.now, &mut node.out);
                    if let Ok(_free) = under_way.try_lock() {
                        node.core.tables_mut().lend_again();
                    }
                }
            }
            Err(TryRecvError::Disconnected) => break,
        }
        let tables = node.core.tables_mut();
        tables.maintain();
        let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
        resolve_peers(tables, n3);
        tables.free_nexthop(n3);
    }
    let (last, whose) = last.join().unwrap();
    node.core.catch_up(node.now, &mut node.out);
    let served = node.served() - before;
    assert!(served > u64::from(AT_ONCE) / 20, "{served}");
    for (at, (teid, gnb)) in last {
        let says = node.says(world.sessions[&at].seid);
        assert!(
            says.contains(&format!("{gnb}")) && says.contains(&format!("{teid}")),
            "{says}"
        );
        let (verdict, frame) = node.down(SERVER, ue(at));
        assert_eq!(verdict, REDIRECT);
        let (to, into, _, _) = read_gpdu(&frame);
        assert_eq!((into, to), (teid, gnb));
    }
    // Each has left a tunnel of its own.
    let mut ends = std::mem::take(&mut *node.ends.0.lock().unwrap());
    assert_eq!(ends.len(), AT_ONCE as usize);
    // ... and in the order in which its session was asked to: none was overtaken.
    for at in [1, 3, 5] {
        let left = ends.iter().map(|end| end.teid);
        let left = left.filter(|teid| whose.get(teid) == Some(&at));
        assert!(left.is_sorted(), "session {at}");
    }
    ends.sort_unstable_by_key(|end| (end.teid, end.peer));
    ends.dedup();
    assert_eq!(ends.len(), AT_ONCE as usize);
    for Session { smf, seid, .. } in world.sessions.values() {
        let answers = node.hear(SMFS[*smf], &message(54, Some(*seid), &[]));
        assert!(accepted(&answers[0].1));
    }
    node.is_over();
}

/// Requests that the program and the core meet in any order.
const AT_ONCE: u32 = 30_000;

/// So many mutated requests, or as many as `MUTATED_REQUESTS` says.
const MUTATED: usize = 10_000;

fn mutated_requests_come_to_the_same(way: Way) {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let requests = [
        vec![path_switch(1, gnb, true)],
        vec![idle(true)],
        vec![active(1, gnb)],
        vec![cp_f_seid(101, 1), path_switch(1, gnb, false)],
        vec![
            path_switch_of(2, 1, gnb, true),
            path_switch_of(3, 1, gnb, true),
        ],
    ];
    let mut world = taught(way, &[]);
    for request in requests.iter().cycle().take(60) {
        assert!(accepted(&world.modify(1, request)));
    }
    assert_eq!(world.nodes[1].core.templates().count(), requests.len());
    let count = std::env::var("MUTATED_REQUESTS").ok();
    let count = count.map_or(MUTATED, |count| count.parse().unwrap());
    let (mut random, before) = (Random(0x9e37_79b9_7f4a_7c15), world.nodes[1].served());
    for step in 0..count {
        if step % 32 == 0 {
            // Enough has changed for the templates to fit no more.
            let Session { smf, seid, .. } = world.sessions[&1];
            world.ask(smf, 54, Some(seid), &[]);
            world.establish(1, &mut Random(1));
            world.modify(1, &requests[1]);
            world.modify(1, &requests[2]);
        }
        let Session { smf, seid, .. } = world.sessions[&1];
        let mut datagram = message(52, Some(seid), &requests[random.below(requests.len())]);
        world.sequences[smf] += 1;
        datagram[12..15].copy_from_slice(&world.sequences[smf].to_be_bytes()[1..]);
        for _ in 0..random.below(4) {
            // It stays a modification of this session.
            let at = match random.below(datagram.len() - 8) {
                0 => 0,
                at @ 1..=2 => at + 1,
                at => at + 8,
            };
            datagram[at] = match random.below(3) {
                0 => datagram[at] ^ 1 << random.below(8),
                1 => random.next() as u8,
                _ => [0, 1, 2, 4, 10, 0xff][random.below(6)],
            };
        }
        world.answer(smf, &datagram);
        if step % 32 == 31 {
            world.check();
        }
    }
    let served = world.nodes[1].served() - before;
    assert!(served > count as u64 / 10, "{served}");
}

fn scripts_of_smfs_come_to_the_same_with_and_without_templates(way: Way) {
    let mut served = 0;
    for seed in 1..=3 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut world = World::new(way);
        for at in 0..SESSIONS {
            world.establish(at, &mut random);
        }
        for step in 0..1500u32 {
            // Nobody sends them: from then on it matters how long grace periods are, which differs.
            world.has_waiting = random.below(64) == 0 && way == Way::User;
            let at = random.below(SESSIONS);
            let Session { smf, seid, .. } = world.sessions[&at];
            let (gnb, teid) = (gnb(&mut random), 1 + random.below(1 << 20) as u32);
            match random.below(40) {
                0..=3 => {
                    // Both flows, one after the other or at once, often into the same tunnel.
                    let teid = 1 + random.below(3) as u32;
                    let other = match random.below(3) {
                        0 => self::gnb(&mut random),
                        _ => gnb,
                    };
                    let both = [(2, gnb), (3, other)];
                    let both = both.map(|(far, gnb)| path_switch_of(far, teid, gnb, true));
                    let some = [&both[..1], &both[1..], &both][random.below(3)];
                    world.modify(at, some);
                }
                4..=11 => drop(world.modify(at, &[path_switch(teid, gnb, random.below(2) == 0)])),
                12..=20 => drop(world.modify(at, &[idle(random.below(4) > 0)])),
                21..=30 => drop(world.modify(at, &[active(teid, gnb)])),
                31 => {
                    let named = cp_f_seid(100 + at as u64 + random.below(2) as u64 * 50, smf);
                    world.modify(at, &[named, path_switch(teid, gnb, false)]);
                }
                32..=33 => {
                    // One of the last requests comes again, or an old one.
                    let back = [1, 2, 3, 4, 5, 50][random.below(6)];
                    let from = world.said.len().saturating_sub(back);
                    if let Some((smf, datagram)) = world.said.get(from).cloned() {
                        world.hear(smf, &datagram);
                    }
                }
                34 => drop(world.ask(1 - smf, 52, Some(seid), &[active(teid, gnb)])),
                35 => {
                    let far = group(10, &[id(108, 2 + random.below(2) as u32), ie(44, &[1])]);
                    world.modify(at, &[far]);
                }
                36 => {
                    // A FAR that is not there, TEID 0, both updates of one FAR.
                    let to = group(11, &[ie(42, &[0]), tunnel(0, gnb)]);
                    let odd = [
                        vec![group(10, &[id(108, 77), ie(44, &[2]), to.clone()])],
                        vec![group(10, &[id(108, 2), ie(44, &[2]), to])],
                        vec![active(teid, gnb), active(teid + 1, gnb)],
                    ];
                    let odd = &odd[random.below(3)];
                    world.modify(at, odd);
                }
                37 => {
                    let gate = group(14, &[id(109, 1), ie(25, &[random.below(2) as u8])]);
                    world.modify(at, &[gate]);
                }
                38 if step % 4 == 0 => {
                    world.ask(smf, 54, Some(seid), &[]);
                    world.sessions.remove(&at);
                    world.establish(at, &mut random);
                }
                _ => {
                    let bar = group(86, &[ie(88, &[1]), ie(46, &[random.below(3) as u8])]);
                    world.modify(at, &[bar]);
                }
            }
        }
        served += world.nodes[1].served();
        world.end();
        assert_eq!(world.nodes[0].served(), 0);
        assert!(world.ends > 20, "{}", world.ends);
    }
    assert!(served > 600, "{served}");
}

/// Each of these, by either way.
macro_rules! both_ways {
    ($($test:ident)*) => {$(
        mod $test {
            #[test]
            fn in_user_space() {
                super::$test(super::Way::User);
            }

            #[test]
            fn by_a_program() {
                super::$test(super::Way::Data);
            }
        }
    )*};
}

both_ways! {
    an_smf_counts_from_anywhere
    what_is_asked_for_again_and_again_is_served_by_a_template
    a_ue_whose_packets_wait_is_the_cores
    an_error_indication_brings_a_session_back_to_the_core
    a_tunnel_ends_with_the_last_flow_in_it
    two_flows_change_places
    templates_of_equal_octets_are_for_different_fars
    what_comes_late_does_not_have_others_served_twice
    an_association_teaches_no_more_than_its_part_and_takes_it_along
    mutated_requests_come_to_the_same
    scripts_of_smfs_come_to_the_same_with_and_without_templates
}
