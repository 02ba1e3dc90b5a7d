//! Requests that the data path serves by templates: two nodes hear the same, of which one has no such path. What they answer, say
//! of their sessions and do with packets is the same, octet by octet.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use compiled::{BufferLimits, EndedTunnel, PdrId, Slow};
use nexthop::NextHopTables;
use session::config::{Config, NetworkInstance};
use session::{Core, Outbox, Time};
use tables::pipeline::BufferedFate;
use tables::testing::{furnish, hop, ports, resolve_peers};
use tables::{BufferControl, Layout, Options, Tables, TunnelEnds, Verdict};
use testkit::packets::{N3, N3_6, ethernet, gpdu, ipv4};
use testkit::random::Random;

use crate::wire::{find, group, ie, message};

const SMFS: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 100, 0, 2)), 8805),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 100, 0, 3)), 8805),
];
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// Its packets have a flow of their own in some sessions.
const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 8);
const SESSIONS: usize = 6;

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

struct Node {
    ends: Ends,
    core: Core<Tables>,
    out: Outbox,
    now: Time,
}

impl Node {
    fn new(fast_path: bool) -> Self {
        let named = |name: &str| NetworkInstance {
            name: name.into(),
            ..NetworkInstance::default()
        };
        let config = Config {
            n3: vec![N3.into(), N3_6.into()],
            network_instances: vec![named("internet"), named("ims")],
            heartbeat_interval: Duration::ZERO,
            fast_path,
            seed: 5,
            ..Config::default()
        };
        let layout = Layout::for_sessions(64, 2, 4);
        let mut tables = Tables::host(&layout, &ports(), &Options::default()).unwrap();
        furnish(&mut tables);
        tables.set_buffer_control(Arc::new(Nobody));
        let ends = Ends::default();
        tables.tell_of_tunnel_ends(ends.clone());
        tables.pipeline().buffer_up_to(64);
        let core = Core::new(config, 1, tables);
        assert_eq!(core.serves(), fast_path);
        let (out, now) = (Outbox::new(), Time(1_000_000_000));
        Self {
            ends,
            core,
            out,
            now,
        }
    }

    /// Datagrams that it sends.
    fn hear(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        self.out.clear();
        self.now.0 += 1_000_000;
        self.core.receive(self.now, from, datagram, &mut self.out);
        let tables = self.core.tables_mut();
        let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
        resolve_peers(tables, n3);
        tables.free_nexthop(n3);
        tables.maintain();
        self.out
            .iter()
            .map(|(to, octets)| (to, octets.to_vec()))
            .collect()
    }

    /// Fate of a packet to a UE, and the frame that it left as.
    fn down(&mut self, from: Ipv4Addr, ue: Ipv4Addr) -> (Verdict, Vec<u8>) {
        let payload = [0; 16];
        let packet = [&ipv4(from, ue, 17, 64, payload.len())[..], &payload].concat();
        let tables = self.core.tables_mut();
        let run = tables.run(1, &ethernet(&packet), self.now.0).unwrap();
        (run.verdict, run.frame)
    }

    /// The same of one that its SMF sends to it.
    fn relayed(&mut self, teid: u32, ue: Ipv4Addr) -> (Verdict, Vec<u8>) {
        let payload = [0; 16];
        let packet = [&ipv4(SERVER, ue, 17, 64, payload.len())[..], &payload].concat();
        let tables = self.core.tables_mut();
        let run = tables.run(0, &gpdu(teid, None, &packet), self.now.0);
        let run = run.unwrap();
        (run.verdict, run.frame)
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
    nodes: [Node; 2],
    sequences: [u32; 2],
    /// By the number of their UE.
    sessions: BTreeMap<usize, Session>,
    /// All requests so far.
    said: Vec<(usize, Vec<u8>)>,
    /// Tunnels that were left.
    ends: usize,
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
    let address = match SMFS[smf].ip() {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => unreachable!(),
    };
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
    fn new() -> Self {
        let mut world = Self {
            nodes: [false, true].map(Node::new),
            sequences: [1000; 2],
            sessions: BTreeMap::new(),
            said: Vec::new(),
            ends: 0,
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
        let ends = self.nodes.each_ref();
        let ends = ends.map(|node| std::mem::take(&mut *node.ends.0.lock().unwrap()));
        assert_eq!(ends[0], ends[1], "after {datagram:02x?}");
        self.ends += ends[0].len();
        answers[0]
            .first()
            .map_or(Vec::new(), |(_, answer)| answer.clone())
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
        for Session { seid, ue, teid, .. } in sessions {
            let [slow, fast] = &mut self.nodes;
            let says = slow.says(seid);
            assert_eq!(says, fast.says(seid));
            assert_eq!(slow.core.record(seid), fast.core.record(seid));
            if !self.has_waiting && says.contains("BUFF") {
                continue;
            }
            for server in [SERVER, OTHER_SERVER] {
                assert_eq!(slow.down(server, ue), fast.down(server, ue));
            }
            assert_eq!(slow.relayed(teid, ue), fast.relayed(teid, ue));
            assert_eq!(slow.says(seid), fast.says(seid), "counters");
        }
        let counts = [&self.nodes[0], &self.nodes[1]].map(|node| {
            let mut paths = Vec::new();
            compiled::Tables::gtpu_paths(node.core.tables(), &mut |remote, local| {
                paths.push((remote, local));
            });
            paths.sort_unstable();
            let stats = node.core.stats();
            let messages: Vec<_> = stats.messages().collect();
            (paths, messages, stats.modified, stats.duplicates)
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
        for node in &mut self.nodes {
            let tables = node.core.tables_mut();
            // Nobody has sent what has waited.
            for _ in 0..8 {
                let pipeline = tables.pipeline();
                (0..8192).for_each(|entry| pipeline.lower_buffered(entry, u64::MAX, 0));
                tables.maintain();
            }
            let fill = tables.fill();
            let used: Vec<_> = fill.iter().map(|fill| (fill.table, fill.used)).collect();
            for table in ["entries", "exts", "meters", "peers", "rules"] {
                assert!(used.contains(&(table, 0)), "{used:?}");
            }
        }
    }
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

#[test]
fn what_is_asked_for_again_and_again_is_served_by_a_template() {
    let mut random = Random(1);
    let mut world = World::new();
    world.establish(1, &mut random);
    let gnb = IpAddr::from([10, 3, 1, 1]);
    for teid in 1..=8 {
        assert!(accepted(&world.modify(1, &[path_switch(teid, gnb, true)])));
        assert_eq!(world.nodes[1].served(), 0, "not yet");
    }
    assert_eq!(world.nodes[1].core.templates(), 1);
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
fn taught(requests: &[Vec<u8>]) -> World {
    let mut world = World::new();
    world.establish(1, &mut Random(1));
    for _ in 0..10 {
        for request in requests {
            assert!(accepted(&world.modify(1, std::slice::from_ref(request))));
        }
    }
    assert_eq!(world.nodes[1].core.templates(), requests.len());
    assert!(requests.is_empty() || world.nodes[1].served() > 0);
    world
}

/// Entries of a node whose packets go behind others that wait.
fn draining(node: &Node) -> usize {
    let pipeline = node.core.tables().pipeline();
    let drains = |entry: &u32| pipeline.action(*entry) == BufferedFate::ReleasedFirst;
    (0..8192).filter(drains).count()
}

#[test]
fn a_ue_whose_packets_wait_is_the_cores() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(&[idle(true), active(1, gnb)]);
    let before = world.nodes[1].served();
    world.modify(1, &[idle(true)]);
    world.modify(1, &[active(2, gnb)]);
    assert_eq!(world.nodes[1].served(), before + 2);
    world.modify(1, &[idle(true)]);
    for node in &mut world.nodes {
        assert_eq!(node.down(SERVER, ue(1)).0, Verdict::Slow, "it waits");
    }
    world.modify(1, &[active(3, gnb)]);
    assert_eq!(world.nodes[1].slow(Slow::Waiting), 1);
    assert_eq!(world.nodes[1].served(), before + 3);
}

#[test]
fn who_met_an_idle_ue_is_not_overtaken_when_it_is_back() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(&[idle(true), active(1, gnb)]);
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
        assert_eq!(draining(node), 2, "until a grace period is over");
        node.core.tables_mut().maintain();
        assert_eq!(draining(node), 0);
    }
    assert_eq!(fast.served(), before + 1);
}

#[test]
fn an_error_indication_brings_a_session_back_to_the_core() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(&[active(1, gnb)]);
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

#[test]
fn a_tunnel_ends_with_the_last_flow_in_it() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let switch = |far, teid| path_switch_of(far, teid, gnb, true);
    let mut world = taught(&[switch(2, 1)]);
    let both = |teid| [switch(2, teid), switch(3, teid)];
    (0..9).for_each(|_| drop(world.modify(1, &both(1))));
    assert_eq!(world.nodes[1].core.templates(), 2);
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

#[test]
fn two_flows_change_places() {
    let [one, other, third] = [1, 2, 3].map(|n| IpAddr::from([10, 3, 1, n]));
    let both = |a, b| {
        [
            path_switch_of(2, 5, a, false),
            path_switch_of(3, 5, b, false),
        ]
    };
    let mut world = World::new();
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
    assert_eq!(world.nodes[1].served(), before + 2);
    world.end();
}

#[test]
fn templates_of_equal_octets_are_for_different_fars() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(&[path_switch(1, gnb, true)]);
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

#[test]
fn what_comes_late_does_not_have_others_served_twice() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = taught(&[active(1, gnb)]);
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

#[test]
fn an_association_teaches_no_more_than_its_part_and_takes_it_along() {
    let gnb = IpAddr::from([10, 3, 1, 1]);
    let mut world = World::new();
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
    assert_eq!(world.nodes[1].core.templates(), 16);
    world.ask(1, 9, None, &[ie(60, &[0, 10, 100, 0, 3])]);
    assert_eq!(world.nodes[1].core.templates(), 0);
}

/// So many mutated requests, or as many as `MUTATED_REQUESTS` says.
const MUTATED: usize = 10_000;

#[test]
fn mutated_requests_come_to_the_same() {
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
    let mut world = taught(&[]);
    for request in requests.iter().cycle().take(60) {
        assert!(accepted(&world.modify(1, request)));
    }
    assert_eq!(world.nodes[1].core.templates(), requests.len());
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

#[test]
fn scripts_of_smfs_come_to_the_same_with_and_without_templates() {
    let mut served = 0;
    for seed in 1..=3 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut world = World::new();
        for at in 0..SESSIONS {
            world.establish(at, &mut random);
        }
        for step in 0..1500u32 {
            world.has_waiting = random.below(64) == 0;
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
