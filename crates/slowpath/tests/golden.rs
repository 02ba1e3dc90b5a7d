//! Every golden case (tests/golden/README.md) on the host pipeline and in the kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test helpers"
)]

#[cfg(feature = "dpdk")]
#[path = "golden/over_dpdk.rs"]
mod over_dpdk;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use compiled::{
    Above, Action, Compiled, Counters, Direction, Duplicate, DuplicateHeader, Entry, Filter, Flow,
    Key, Limit, Marking, Marks, NiId, PacketRate, PdrId, PolicyId, QerId, Qfi, QfiSet, Rate, Relay,
    Select, SharedMeter, Tables as _, UeAddresses, UeEnd,
};
use ipnet::{IpNet, Ipv6Net};
use nexthop::{Family, L2, Mac, NextHop, NextHopTables, PeerChange, Vlan};
use serde::Deserialize;
use slowpath::advertise::Advertised;
use slowpath::{BufferBounds, Outgoing, Released, Setup};
use tables::{
    DropReason, Features, Handle, Layout, Options, PortConfig, PortTotals, Ring, RingReader, Roles,
    Tables, Traffic, Verdict,
};
use testkit::machine::need_root;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    n3: Vec<IpAddr>,
    /// `gtpu.udp6_checksum`
    udp6_checksum: Option<bool>,
    #[serde(default = "allowed")]
    ue_to_ue: bool,
    /// So many packets of an entry may wait; not given: none, and nobody keeps any.
    hold: Option<u32>,
    port: Vec<Port>,
    router: Option<Router>,
    #[serde(default)]
    pool: Vec<Pool>,
    #[serde(default)]
    nexthop: Vec<Hop>,
    #[serde(default)]
    neighbour: Vec<Neighbour>,
    #[serde(default)]
    route: Vec<Route>,
    /// Of the forwarding policy.
    #[serde(default)]
    policy_route: Vec<Route>,
    #[serde(default)]
    session: Vec<Session>,
}

/// Content of Router Advertisements.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Router {
    lifetime_s: u16,
    mtu: Option<u32>,
    #[serde(default)]
    dns: Vec<Ipv6Addr>,
}

fn allowed() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pool {
    prefix: IpNet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hop {
    name: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    port: u32,
    #[serde(default)]
    ifindex: u32,
    #[serde(default)]
    dst: String,
    #[serde(default)]
    src: String,
    vlan: Option<u16>,
}

/// Of a next hop that is on-link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Neighbour {
    addr: IpAddr,
    nexthop: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Route {
    prefix: IpNet,
    nexthop: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    /// Replaces the session in front of this packet.
    before: Option<usize>,
    entry: Vec<SessionEntry>,
    key: Vec<SessionKey>,
    #[serde(default)]
    meter: Vec<Meter>,
    /// Networks behind the UE.
    #[serde(default)]
    framed: Vec<IpNet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionEntry {
    pdr: u16,
    direction: String,
    action: String,
    ue4: Option<Ipv4Addr>,
    ue6: Option<Ipv6Net>,
    qfi: Option<u8>,
    teid: Option<u32>,
    peer: Option<IpAddr>,
    /// Of UDP alone.
    port: Option<u16>,
    local: Option<IpAddr>,
    mbr_bps: Option<u64>,
    burst_bytes: Option<u64>,
    #[serde(default)]
    shared: Vec<usize>,
    #[serde(default)]
    rqi: bool,
    ppi: Option<u8>,
    packet_meter: Option<usize>,
    relay: Option<SessionRelay>,
    #[serde(default)]
    framed: bool,
    /// ToS and mask.
    marking: Option<(u8, u8)>,
    #[serde(default)]
    duplicates: Vec<SessionDuplicate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionDuplicate {
    teid: Option<u32>,
    /// Of UDP alone.
    port: Option<u16>,
    peer: IpAddr,
    local: IpAddr,
    /// ToS and mask.
    marking: Option<(u8, u8)>,
}

impl SessionDuplicate {
    fn compile(&self) -> Duplicate {
        Duplicate {
            header: match (self.teid, self.port) {
                (Some(teid), None) => DuplicateHeader::GtpU { teid },
                (None, Some(port)) => DuplicateHeader::Udp { port },
                other => panic!("duplicate {other:?}"),
            },
            peer: self.peer,
            local: self.local,
            marking: self.marking.map(|(tos, mask)| Marking { tos, mask }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionRelay {
    src4: Option<Ipv4Addr>,
    src6: Option<Ipv6Net>,
    dst4: Option<Ipv4Addr>,
    dst6: Option<Ipv6Net>,
    qfi: Option<u8>,
    #[serde(default)]
    remove_container: bool,
}

impl SessionRelay {
    fn compile_ue(&self) -> Option<(UeAddresses, UeEnd)> {
        let end = |v4: Option<Ipv4Addr>, v6: Option<Ipv6Net>, end| {
            (v4.is_some() || v6.is_some()).then_some((UeAddresses { v4, v6 }, end))
        };
        end(self.src4, self.src6, UeEnd::Source)
            .or_else(|| end(self.dst4, self.dst6, UeEnd::Destination))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionKey {
    teid: Option<u32>,
    ue4: Option<Ipv4Addr>,
    ue6: Option<Ipv6Addr>,
    prefix: Option<IpNet>,
    one: Option<usize>,
    #[serde(default)]
    list: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    entry: usize,
    proto: Option<u8>,
    src: Option<IpNet>,
    dst: Option<IpNet>,
    src_ports: Option<(u16, u16)>,
    dst_ports: Option<(u16, u16)>,
    tos: Option<(u8, u8)>,
    spi: Option<u32>,
    label: Option<u32>,
    #[serde(default)]
    qfis: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meter {
    qer: u32,
    direction: String,
    bps: Option<u64>,
    burst_bytes: Option<u64>,
    /// A packet rate: so many in so many seconds.
    packets: Option<u32>,
    seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    packet: Vec<ExpectPacket>,
    #[serde(default)]
    counters: Vec<ExpectCounters>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectPacket {
    port: usize,
    verdict: String,
    /// The reason that user space counts it under.
    lost: Option<String>,
    /// In out.pcap for this packet; not given: one if the verdict lets it leave.
    frames: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectCounters {
    pdr: u16,
    packets: u64,
    bytes: u64,
    drops: u64,
    /// Of these, packets and octets that QoS enforcement dropped; not given: any.
    qos: Option<[u64; 2]>,
}

fn direction(name: &str) -> Direction {
    if name == "uplink" {
        Direction::Uplink
    } else {
        Direction::Downlink
    }
}

fn mac(text: &str) -> Mac {
    let octets: Vec<u8> = text
        .split(':')
        .map(|octet| u8::from_str_radix(octet, 16).unwrap())
        .collect();
    Mac(octets.try_into().unwrap())
}

fn compile_entry(entry: &SessionEntry) -> Entry {
    let action = match entry.action.as_str() {
        "route" => Action::Route { ni: NiId(0) },
        "steer" => Action::Steer {
            ni: NiId(0),
            policy: PolicyId(0),
        },
        "tunnel" => Action::Tunnel {
            teid: entry.teid.unwrap(),
            peer: entry.peer.unwrap(),
            local: entry.local.unwrap(),
        },
        "udp" => Action::Udp {
            port: entry.port.unwrap(),
            peer: entry.peer.unwrap(),
            local: entry.local.unwrap(),
        },
        "drop" => Action::Drop,
        "buffer" => Action::Buffer,
        "gate" => Action::GateClosed,
        "quota" => Action::QuotaExhausted,
        "tunnel-gone" => Action::TunnelGone,
        "no-tunnel" => Action::NoTunnel,
        other => panic!("action {other}"),
    };
    let ue = entry.ue4.is_some() || entry.ue6.is_some();
    let meter = entry.mbr_bps.map(|bps| Rate {
        bps,
        burst_bytes: entry.burst_bytes.unwrap(),
        above: Above::Police,
    });
    Entry {
        pdr: PdrId(entry.pdr),
        direction: direction(&entry.direction),
        action,
        ue: ue.then_some(UeAddresses {
            v4: entry.ue4,
            v6: entry.ue6,
        }),
        framed: entry.framed,
        qfi: entry.qfi.and_then(Qfi::new),
        marks: Marks {
            rqi: entry.rqi,
            ppi: entry.ppi,
        },
        meter,
        marking: entry.marking.map(|(tos, mask)| Marking { tos, mask }),
        relay: entry.relay.as_ref().map(|relay| Relay {
            ue: relay.compile_ue(),
            qfi: relay.qfi.and_then(Qfi::new),
            remove_container: relay.remove_container,
        }),
        shared_meters: entry.shared.iter().copied().collect(),
        packet_meter: entry.packet_meter,
        share: None,
        predefined: None,
        duplicates: (entry.duplicates.iter())
            .map(SessionDuplicate::compile)
            .collect(),
    }
}

impl Meter {
    fn limit(&self) -> Limit {
        match self.packets {
            Some(packets) => Limit::Packets(PacketRate {
                packets,
                per: Duration::from_secs(self.seconds.unwrap()),
            }),
            None => Limit::Bits(Rate {
                bps: self.bps.unwrap(),
                burst_bytes: self.burst_bytes.unwrap(),
                above: Above::Police,
            }),
        }
    }
}

impl Session {
    fn compile(&self) -> Compiled {
        let mut compiled = Compiled {
            seid: 1,
            ..Compiled::default()
        };
        compiled.framed.extend(&self.framed);
        compiled
            .entries
            .extend(self.entry.iter().map(compile_entry));
        compiled
            .meters
            .extend(self.meter.iter().map(|meter| SharedMeter {
                qer: QerId(meter.qer),
                direction: direction(&meter.direction),
                limit: meter.limit(),
            }));
        for key in &self.key {
            let select = match key.one {
                Some(one) => Select::One(one),
                None => Select::List {
                    first: compiled.filters.len(),
                    len: key.list.len(),
                },
            };
            compiled.filters.extend(key.list.iter().map(|rule| {
                let mut qfis = QfiSet::default();
                rule.qfis
                    .iter()
                    .filter_map(|&qfi| Qfi::new(qfi))
                    .for_each(|qfi| qfis.insert(qfi));
                let flow = Flow {
                    proto: rule.proto,
                    src: rule.src,
                    dst: rule.dst,
                    src_ports: rule.src_ports,
                    dst_ports: rule.dst_ports,
                    tos: rule.tos,
                    spi: rule.spi,
                    label: rule.label,
                };
                Filter {
                    entry: rule.entry,
                    flow: (flow != Flow::default()).then_some(flow),
                    qfis,
                }
            }));
            let key = match (key.teid, key.ue4, key.ue6) {
                _ if key.prefix.is_some() => Key::of_prefix(NiId(0), key.prefix.unwrap()),
                (Some(teid), ..) if teid & 0xff_ffff < 1024 => Key::direct(teid),
                (Some(teid), ..) => Key::Teid { teid, slot: None },
                (_, Some(addr), _) => Key::Ue4 { ni: NiId(0), addr },
                (_, _, Some(prefix)) => Key::Ue6 {
                    ni: NiId(0),
                    prefix,
                },
                _ => panic!("a key of nothing"),
            };
            compiled.keys.push((key, select));
        }
        compiled
    }
}

/// The tables of a case: what is common, and in its place what the case says itself.
fn read_case(folder: &Path) -> Result<Case, toml::de::Error> {
    let read = |path: &Path| -> Result<toml::Table, _> {
        toml::from_str(&std::fs::read_to_string(path).unwrap())
    };
    let mut tables = read(&folder.with_file_name("common.toml"))?;
    tables.extend(read(&folder.join("tables.toml"))?);
    tables.try_into()
}

/// Frames of a capture in the classic format.
fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1], "{}", path.display());
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}

fn layout() -> Layout {
    Layout {
        policies: 1,
        ..Layout::for_sessions(1024, 1, 5)
    }
}

fn port_configs(n: usize, role: &dyn Fn(usize) -> String) -> Vec<PortConfig> {
    let config = |port: usize| PortConfig {
        name: format!("port{port}"),
        roles: Roles {
            n3: role(port) != "n6",
            n6: role(port) != "n3",
        },
        ni: NiId(0),
        ..PortConfig::default()
    };
    (0..n).map(config).collect()
}

/// Outcome of one frame.
struct Outcome {
    /// A drop reason, or forward, answer, slow, held, pass.
    verdict: String,
    /// As the pipeline left it, unless it is lost or the slow path's.
    frame: Vec<u8>,
    /// For the slow path.
    event: Option<Vec<u8>>,
    /// For those who keep packets.
    held: Option<Vec<u8>>,
    /// Duplicates for it.
    copies: Vec<Vec<u8>>,
}

/// Records that lie one behind the other.
fn split(mut records: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(len) = records.get(8..12) {
        let len = 16 + u32::from_ne_bytes(len.try_into().unwrap()) as usize;
        all.push(records[..len].to_vec());
        records = &records[len..];
    }
    all
}

/// Where a case runs.
trait Platform {
    fn tables(&mut self) -> &mut Tables;
    fn run(&mut self, port: usize, frame: &[u8]) -> Outcome;
}

/// Which programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Programs {
    /// The general build, always.
    General,
    /// The narrowest build with what is in use, found out as sessions come.
    Narrowest,
}

/// The programs are of the narrowest build that does, when this returns.
fn adapt(tables: &mut Tables) {
    for _ in 0..10_000 {
        tables.maintain();
        if !tables.needs_maintenance() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("programs did not settle");
}

struct Host {
    tables: Tables,
}

/// An IP packet behind an empty Ethernet header, as out.pcap holds those for the slow path.
fn slow_frame(outgoing: &Outgoing) -> Vec<u8> {
    let ip = &outgoing.packet;
    let mut frame = vec![0; 12];
    frame.extend(if ip[0] >> 4 == 4 {
        [0x08, 0]
    } else {
        [0x86, 0xdd]
    });
    frame.extend(ip);
    frame
}

/// The same of one that has waited.
fn released_frame(released: Released) -> Vec<u8> {
    match released {
        Released::Frame(frame) => frame,
        Released::Packet(outgoing) => slow_frame(&outgoing),
    }
}

/// `TP_EVENT_HELD`
const EVENT_HELD: u32 = 6;

/// The clock of packets on the host, and of what finishes them.
const NOW_NS: u64 = 1_000_000_000;

impl Platform for Host {
    fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    fn run(&mut self, port: usize, frame: &[u8]) -> Outcome {
        let run = self.tables.run(port, frame, NOW_NS).unwrap();
        let verdict = match run.verdict {
            Verdict::Drop(reason) => reason.name(),
            Verdict::Pass => "pass",
            Verdict::Answer => "answer",
            Verdict::Redirect(_) | Verdict::Later { .. } => "forward",
            Verdict::Slow => "slow",
        };
        let event = Some(run.event).filter(|event| !event.is_empty());
        let is_held = |event: &Vec<u8>| event[..4] == EVENT_HELD.to_ne_bytes();
        let (held, event) = match event {
            Some(event) if is_held(&event) => (Some(event), None),
            other => (None, other),
        };
        Outcome {
            verdict: if held.is_some() { "held" } else { verdict }.into(),
            frame: run.frame,
            event,
            held,
            copies: split(&run.copies),
        }
    }
}

/// Of packets for the slow path, of those that wait, and of duplicates.
fn rings(tables: &Tables) -> [Ring; 3] {
    [tables.events(), tables.buffered_packets(), tables.copies()].map(|ring| ring.unwrap().unwrap())
}

/// Records that packets have put into a ring.
fn records(ring: &Ring) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let reader = RingReader::open(ring, |event| records.push(event.to_vec())).unwrap();
    while reader.read(64).unwrap() > 0 {}
    drop(reader);
    records
}

struct Xdp {
    /// Gone while this is dropped.
    tables: Option<Tables>,
}

impl Drop for Xdp {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // What a case that failed has left in the rings is not the next one's.
        rings(self.get()).iter().for_each(|ring| {
            records(ring);
        });
        IDLE.lock().unwrap().extend(self.tables.take());
    }
}

impl Xdp {
    fn get(&self) -> &Tables {
        self.tables.as_ref().unwrap()
    }
}

/// What the ports count of a frame: once that it came in, once what became of it, and its octets each time.
fn counted_once(
    before: &[PortTotals],
    after: &[PortTotals],
    outcome: &Outcome,
    len: usize,
) -> bool {
    let packets = |all: &[Traffic; 2]| -> u64 { all.iter().map(|traffic| traffic.packets).sum() };
    let bytes = |all: &[Traffic; 2]| -> u64 { all.iter().map(|traffic| traffic.bytes).sum() };
    let more = |of: &dyn Fn(&PortTotals) -> u64| -> u64 {
        after.iter().map(of).sum::<u64>() - before.iter().map(of).sum::<u64>()
    };
    let left = match outcome.verdict.as_str() {
        "forward" => outcome.frame.len(),
        _ => 0,
    };
    let fates = |port: &PortTotals| {
        let drops: u64 = port.drops.iter().flatten().sum();
        packets(&port.forwarded) + port.passed + port.answered + port.slow + drops
    };
    more(&|port| packets(&port.received)) == 1
        && more(&fates) == 1
        && more(&|port| bytes(&port.received)) == len as u64
        && more(&|port| bytes(&port.forwarded)) == left as u64
}

fn new_drop(before: &[PortTotals], after: &[PortTotals]) -> Option<&'static str> {
    let all = |totals: &[PortTotals], reason: DropReason| -> u64 {
        let ports = totals.iter();
        ports
            .map(|port| port.dropped(0, reason) + port.dropped(1, reason))
            .sum()
    };
    let mut reasons = DropReason::ALL.iter().copied();
    let new = reasons.find(|&reason| all(after, reason) > all(before, reason));
    new.map(DropReason::name)
}

fn answers(totals: &[PortTotals]) -> u64 {
    totals.iter().map(|port| port.answered).sum()
}

impl Platform for Xdp {
    fn tables(&mut self) -> &mut Tables {
        self.tables.as_mut().unwrap()
    }

    fn run(&mut self, port: usize, frame: &[u8]) -> Outcome {
        let before = self.get().totals();
        let (verdict, frame) = self.get().test_run(port, frame).unwrap().unwrap();
        let after = self.get().totals();
        let [mut events, held, copies] = rings(self.get()).map(|ring| records(&ring));
        let verdict = match verdict {
            1 if !held.is_empty() => "held",
            1 => new_drop(&before, &after).unwrap_or("slow"),
            2 => "pass",
            4 if answers(&after) > answers(&before) => "answer",
            4 => "forward",
            other => panic!("XDP verdict {other}"),
        };
        Outcome {
            verdict: verdict.into(),
            frame,
            event: events.pop(),
            held: held.into_iter().next(),
            copies,
        }
    }
}

fn nexthop(hop: &Hop) -> NextHop {
    match hop.state.as_str() {
        "" => NextHop::Resolved {
            port: hop.port,
            ifindex: 1,
            mtu: 1500,
            l2: L2::new(
                mac(&hop.dst),
                mac(&hop.src),
                hop.vlan.map(|id| Vlan {
                    parent: 1,
                    id,
                    tpid: 0x8100,
                }),
            ),
            addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        },
        "unresolved" => NextHop::Unresolved {
            ifindex: hop.ifindex,
            mtu: 1500,
        },
        "onlink" => NextHop::OnLink {
            port: hop.port,
            ifindex: hop.ifindex,
            mtu: 1500,
        },
        "none" => NextHop::None,
        "local" => NextHop::Local,
        "prohibit" => NextHop::Prohibit,
        "failed" => NextHop::Failed,
        "closed" => NextHop::Closed,
        other => panic!("next hop state {other}"),
    }
}

/// Fill tables as the case says, but for sessions. The next hop of peers that are resolved.
fn furnish(case: &Case, tables: &mut Tables, setup: &Setup) -> u32 {
    tables.set_local(&case.n3).unwrap();
    tables.set_ue_to_ue(NiId(0), case.ue_to_ue);
    if let Some(Router {
        lifetime_s,
        mtu,
        dns,
    }) = &case.router
    {
        let (lifetime_s, mtu, dns) = (*lifetime_s, *mtu, dns.clone());
        setup.routers().advertise(
            NiId(0),
            Advertised {
                lifetime_s,
                mtu,
                dns,
            },
        );
    }
    let of_policy = PolicyId(0).routes_for(NiId(0), 1);
    for ni in [NiId(0), of_policy] {
        let v4 = Ipv4Addr::new(10, 6, 0, 1);
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 1);
        setup.routers().set_address(ni, v4.into());
        setup.routers().set_address(ni, v6.into());
    }
    for pool in &case.pool {
        tables.register_pool(NiId(0), pool.prefix).unwrap();
    }
    let hops: HashMap<&str, u32> = case
        .nexthop
        .iter()
        .map(|hop| {
            (
                hop.name.as_str(),
                tables.alloc_nexthop(&nexthop(hop)).unwrap(),
            )
        })
        .collect();
    for Neighbour { addr, nexthop } in &case.neighbour {
        let index = Some(hops[nexthop.as_str()]);
        tables.set_neighbour(NiId(0), *addr, index).unwrap();
    }
    for family in [Family::V4, Family::V6] {
        for (ni, routes) in [(NiId(0), &case.route), (of_policy, &case.policy_route)] {
            let routes: Vec<(IpNet, u32)> = routes
                .iter()
                .filter(|route| Family::of(route.prefix.addr()) == family)
                .map(|route| (route.prefix, hops[route.nexthop.as_str()]))
                .collect();
            tables.set_ni_routes(ni, family, &routes).unwrap();
        }
    }
    hops["n3"]
}

fn is_near(gnb: IpAddr) -> bool {
    match gnb {
        IpAddr::V4(gnb) => gnb.octets()[2] == 1,
        IpAddr::V6(gnb) => gnb.segments()[3] == 1,
    }
}

/// Peers on the gNBs' network are resolved; others stay as they begin.
fn resolve(tables: &mut Tables, n3: u32) {
    let mut changes = Vec::new();
    tables.take_peer_changes(&mut changes);
    for change in changes {
        match change {
            PeerChange::Added(peer) if is_near(peer.remote) => {
                tables.swap_peer_nexthop(peer, n3);
            }
            _ => {}
        }
    }
}

type Make<'a> = &'a (dyn Fn(Vec<PortConfig>, &Options) -> Box<dyn Platform> + Sync);

fn check(folder: &Path, programs: Programs, make: Make<'_>) -> Result<(), String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let case = read_case(folder).map_err(|error| error.to_string())?;
    let expect: Expect = toml::from_str(&read("expect.toml")).map_err(|error| error.to_string())?;
    let frames = read_pcap(&folder.join("in.pcap"));
    let mut out = read_pcap(&folder.join("out.pcap")).into_iter();
    assert_eq!(frames.len(), expect.packet.len(), "{}", folder.display());
    let ports = port_configs(case.port.len(), &|port| case.port[port].role.clone());
    let mut options = Options {
        udp6_checksum: case.udp6_checksum.unwrap_or(true),
        ..Options::default()
    };
    match programs {
        Programs::General => options.features = Some(Features::ALL),
        Programs::Narrowest => {
            options.settle = Duration::ZERO;
            options.outer6 = case.n3.iter().any(IpAddr::is_ipv6);
        }
    }
    let mut platform = make(ports, &options);
    let setup = Setup::new(platform.tables()).unwrap();
    let n3 = furnish(&case, platform.tables(), &setup);
    let mut finisher = setup.finisher(platform.tables());
    let bounds = |max| BufferBounds {
        bytes: 1 << 20,
        packets: 100,
        packets_per_session: max,
        age: Duration::from_secs(60),
    };
    let mut holding = case.hold.map(|max| {
        setup
            .buffer_by_hand(platform.tables(), bounds(max))
            .unwrap()
    });
    let mut handle = Handle::default();
    for (index, (frame, wanted)) in frames.iter().zip(&expect.packet).enumerate() {
        let changes = case
            .session
            .iter()
            .filter(|session| session.before.unwrap_or(0) == index);
        for session in changes {
            platform
                .tables()
                .publish(&mut handle, &session.compile())
                .map_err(|e| e.to_string())?;
            resolve(platform.tables(), n3);
            // While packets wait, an entry that forwards has not settled.
            if programs == Programs::Narrowest && case.hold.is_none() {
                adapt(platform.tables());
            }
        }
        let before = platform.tables().totals();
        let outcome = platform.run(wanted.port, frame);
        if outcome.verdict != wanted.verdict {
            return Err(format!(
                "packet {index}: {}, not {}",
                outcome.verdict, wanted.verdict
            ));
        }
        let after = platform.tables().totals();
        if !counted_once(&before, &after, &outcome, frame.len()) {
            return Err(format!(
                "packet {index}: counted {after:?} after {before:?}"
            ));
        }
        let mut left: Vec<Vec<u8>> = Vec::new();
        match outcome.verdict.as_str() {
            "pass" if outcome.frame == *frame => {}
            "pass" => return Err(format!("packet {index}: passed, but changed")),
            "forward" | "answer" => left.push(outcome.frame),
            _ => {}
        }
        if let Some(event) = outcome.event {
            let mut finished = Vec::new();
            finisher
                .finish(&event, NOW_NS, &mut finished)
                .map_err(|_| format!("packet {index}: an event of no kind"))?;
            left.extend(finished.iter().map(slow_frame));
            let messages = finisher
                .messages()
                .map(|packet| Outgoing::by_kernel(0, packet));
            left.extend(messages.collect::<Vec<_>>().iter().map(slow_frame));
        }
        for record in outcome.copies {
            let mut finished = Vec::new();
            finisher
                .finish(&record, NOW_NS, &mut finished)
                .map_err(|_| format!("packet {index}: a duplicate of no kind"))?;
            left.extend(finished.iter().map(slow_frame));
        }
        if let Some(holding) = &mut holding {
            if let Some(record) = outcome.held {
                holding.take(&record);
            }
            left.extend(holding.release().into_iter().map(released_frame));
        }
        let lost = new_drop(&after, &platform.tables().totals());
        if wanted.lost.is_some() && wanted.lost.as_deref() != lost {
            return Err(format!("packet {index}: lost as {lost:?}"));
        }
        let leaves = ["forward", "answer", "slow"].contains(&wanted.verdict.as_str());
        let frames = wanted.frames.unwrap_or(usize::from(leaves));
        let should: Vec<Vec<u8>> = out.by_ref().take(frames).collect();
        if should != left {
            return Err(format!(
                "packet {index}:\n     is {left:02x?}\n should {should:02x?}"
            ));
        }
    }
    if out.next().is_some() {
        return Err("out.pcap has more frames than came out".into());
    }
    for wanted in &expect.counters {
        let is = platform.tables().counters(&handle, PdrId(wanted.pdr));
        let should = Counters {
            packets: wanted.packets,
            bytes: wanted.bytes,
            drops: wanted.drops,
            qos_packets: wanted.qos.map_or(is.qos_packets, |qos| qos[0]),
            qos_bytes: wanted.qos.map_or(is.qos_bytes, |qos| qos[1]),
            delayed: 0,
        };
        if is != should {
            return Err(format!("PDR {}: {is:?}, not {should:?}", wanted.pdr));
        }
    }
    Ok(())
}

fn check_all(programs: Programs, make: Make<'_>) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .map(|folder| folder.unwrap().path())
        .filter(|path| path.join("tables.toml").exists())
        .collect();
    folders.sort();
    assert!(folders.len() >= 45, "{} cases are not all", folders.len());
    // Cases share the cores.
    let next = AtomicUsize::new(0);
    let some = || {
        let mut failed = Vec::new();
        while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = folder.file_name().unwrap().to_string_lossy();
            if let Err(error) = check(folder, programs, make) {
                failed.push(format!("{name}: {error}"));
            }
        }
        failed
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(some)).collect();
        let failed = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        failed.collect()
    });
    println!("{} cases", folders.len());
    assert!(
        failed.is_empty(),
        "{} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

fn host(ports: Vec<PortConfig>, options: &Options) -> Box<dyn Platform> {
    let tables = Tables::host(&layout(), &ports, options).unwrap();
    Box::new(Host { tables })
}

fn workers(ports: Vec<PortConfig>, options: &Options) -> Box<dyn Platform> {
    let tables = Tables::by_hand(&layout(), &ports, options).unwrap();
    Box::new(Host { tables })
}

/// Tables whose case is over: their programs are loaded.
static IDLE: Mutex<Vec<Tables>> = Mutex::new(Vec::new());

fn kernel(ports: Vec<PortConfig>, options: &Options) -> Box<dyn Platform> {
    need_root();
    let mut idle = IDLE.lock().unwrap();
    let again = idle
        .iter()
        .position(|tables| tables.ports() == ports)
        .map(|at| idle.swap_remove(at));
    drop(idle);
    let mut tables = match again {
        Some(tables) => tables.emptied(&layout(), options),
        None => Tables::xdp(&layout(), &ports, options),
    }
    .unwrap();
    for port in 0..ports.len() as u32 {
        // Loopback: a test run redirects nowhere, but wants to know where to.
        tables.set_redirect(port, 1).unwrap();
    }
    Box::new(Xdp {
        tables: Some(tables),
    })
}

#[test]
fn on_the_host() {
    check_all(Programs::General, &host);
}

#[test]
fn on_the_host_with_the_narrowest_build() {
    check_all(Programs::Narrowest, &host);
}

#[test]
fn in_workers() {
    check_all(Programs::General, &workers);
}

#[test]
fn in_workers_with_the_narrowest_build() {
    check_all(Programs::Narrowest, &workers);
}

#[test]
fn in_the_kernel() {
    check_all(Programs::General, &kernel);
}

#[test]
fn in_the_kernel_with_the_narrowest_build() {
    check_all(Programs::Narrowest, &kernel);
}
