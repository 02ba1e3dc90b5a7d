//! A small site that the tests forward through, and the frames they send.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test helpers"
)]
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use compiled::{Marks, NiId, PolicyId};
use ipnet::IpNet;
use nexthop::{Family, L2, Mac, NextHop, NextHopTables, PeerChange};
use nix::fcntl::{Flock, FlockArg};
use session::config::{Config, NetworkInstance};
use session::testing::reference::{Arrival, Packet};
use tables::trace::TraceKey;
use tables::{PortConfig, Roles, Tables};

/// Our N3 address.
pub const N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
/// Our other N3 address.
pub const N3_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);
/// A gNB, and its other address.
pub const GNB_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 1, 0, 0, 0, 1);
/// A gNB.
pub const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 1, 1);

/// Port 0 is N3; ports 1 and 2 are N6 of network instances 0 and 1.
pub fn ports() -> Vec<PortConfig> {
    let port = |name: &str, n3, ni| PortConfig {
        name: name.into(),
        roles: Roles { n3, n6: !n3 },
        ni: NiId(ni),
        ..PortConfig::default()
    };
    vec![
        port("n3", true, 0),
        port("n6a", false, 0),
        port("n6b", false, 1),
    ]
}

/// MAC address of what stands behind a port.
pub fn mac(port: u32) -> Mac {
    Mac([2, 0, 0, 0, 1, port as u8])
}

/// A resolved next hop out of a port.
pub fn hop(port: u32) -> NextHop {
    NextHop::Resolved {
        port,
        ifindex: 10 + port,
        mtu: 1500,
        l2: L2::new(mac(port), Mac([2, 0, 0, 0, 0, port as u8]), None),
        addr: IpAddr::V4(Ipv4Addr::new(192, 0, 2, port as u8)),
    }
}

/// Default routes for both network instances, pools, our address.
pub fn furnish(tables: &mut Tables) {
    tables.set_local(&[N3.into(), N3_6.into()]).unwrap();
    for ni in 0..2u16 {
        let out = tables.alloc_nexthop(&hop(u32::from(ni) + 1)).unwrap();
        let v4: IpNet = "0.0.0.0/0".parse().unwrap();
        let v6: IpNet = "::/0".parse().unwrap();
        tables
            .set_ni_routes(NiId(ni), Family::V4, &[(v4, out)])
            .unwrap();
        tables
            .set_ni_routes(NiId(ni), Family::V6, &[(v6, out)])
            .unwrap();
    }
    // Addresses of network instance 1 are found in the buckets.
    for pool in ["10.60.0.0/17", "2001:db8:60::/48"] {
        let pool: IpNet = pool.parse().unwrap();
        tables.register_pool(NiId(0), pool).unwrap();
    }
}

/// The first forwarding policy leads packets of either network instance where the other one's routes lead.
pub fn furnish_policy(tables: &mut Tables) {
    for ni in 0..2u16 {
        let out = tables.alloc_nexthop(&hop(2 - u32::from(ni))).unwrap();
        let routes = PolicyId(0).routes_for(NiId(ni), 2);
        for (family, net) in [(Family::V4, "0.0.0.0/0"), (Family::V6, "::/0")] {
            let net: IpNet = net.parse().unwrap();
            tables.set_ni_routes(routes, family, &[(net, out)]).unwrap();
        }
    }
}

/// Give new peers their next hop out of port 0, as the mirror of the kernel does. `n3`: its index.
pub fn resolve_peers(tables: &mut Tables, n3: u32) -> Vec<PeerChange> {
    let mut changes = Vec::new();
    tables.take_peer_changes(&mut changes);
    for change in &changes {
        if let PeerChange::Added(peer) = *change {
            tables.swap_peer_nexthop(peer, n3);
        }
    }
    changes
}

fn sum16(bytes: &[u8], start: u32) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An IPv4 header with its checksum.
pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, proto: u8, ttl: u8, payload: usize) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(((payload + 20) as u16).to_be_bytes());
    header.extend([0, 7, 0, 0, ttl, proto, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    sum(&mut header);
    header
}

/// Make the checksum of an IPv4 header right.
pub fn sum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = !sum16(header, 0);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv6 header.
pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, next: u8, hop_limit: u8, payload: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload as u16).to_be_bytes());
    header.extend([next, hop_limit]);
    header.extend(src.octets());
    header.extend(dst.octets());
    header
}

/// Is the checksum of this header right?
pub fn checksum_holds(header: &[u8]) -> bool {
    sum16(header, 0) == 0xffff
}

/// The IP packet of a [`Packet`], TTL 64 and eight octets of payload or more.
pub fn inner(packet: &Packet) -> Vec<u8> {
    let mut payload = vec![0u8; 24];
    if let Some((src, dst)) = packet.ports {
        payload[..2].copy_from_slice(&src.to_be_bytes());
        payload[2..4].copy_from_slice(&dst.to_be_bytes());
    }
    if let Some(spi) = packet.spi {
        payload[..4].copy_from_slice(&spi.to_be_bytes());
    }
    let mut ip = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = ipv4(src, dst, packet.proto, 64, payload.len());
            header[1] = packet.tos;
            header[10..12].fill(0);
            let sum = !sum16(&header, 0);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = ipv6(src, dst, packet.proto, 64, payload.len());
            let first = 6 << 28 | u32::from(packet.tos) << 20 | packet.label;
            header[..4].copy_from_slice(&first.to_be_bytes());
            header
        }
        _ => panic!("mixed families"),
    };
    ip.extend(payload);
    ip
}

/// Ethernet around an IP packet, from the outside to us.
pub fn ethernet(ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 1, 9];
    frame.extend(if ip[0] >> 4 == 4 {
        [0x08, 0x00]
    } else {
        [0x86, 0xdd]
    });
    frame.extend(ip);
    frame
}

/// A G-PDU from the gNB, with a PDU Session Container if there is a QFI.
pub fn gpdu(teid: u32, qfi: Option<u8>, ip: &[u8]) -> Vec<u8> {
    gpdu_over(teid, qfi, ip, false)
}

fn gpdu_over(teid: u32, qfi: Option<u8>, ip: &[u8], over6: bool) -> Vec<u8> {
    let mut gtpu = vec![if qfi.is_some() { 0x34 } else { 0x30 }, 0xff];
    let options: &[u8] = match qfi {
        Some(qfi) => &[0, 0, 0, 0x85, 1, 0x10, qfi, 0],
        None => &[],
    };
    gtpu.extend(((options.len() + ip.len()) as u16).to_be_bytes());
    gtpu.extend(teid.to_be_bytes());
    gtpu.extend(options);
    gtpu.extend(ip);
    let mut outer = if over6 {
        ipv6(GNB_6, N3_6, 17, 64, gtpu.len() + 8)
    } else {
        ipv4(GNB, N3, 17, 64, gtpu.len() + 8)
    };
    outer.extend([0x08, 0x68, 0x08, 0x68]);
    outer.extend(((gtpu.len() + 8) as u16).to_be_bytes());
    outer.extend([0, 0]);
    outer.extend(gtpu);
    ethernet(&outer)
}

/// The port and frame by which a packet arrives. Of tunnels every other one is over IPv6.
pub fn arrival(packet: &Packet) -> (usize, Vec<u8>) {
    let ip = inner(packet);
    match packet.arrival {
        Arrival::Tunnel { teid, qfi } => {
            let over6 = packet.ports.map_or(teid, |(src, _)| u32::from(src)) & 1 == 1;
            (0, gpdu_over(teid, qfi.map(|qfi| qfi.get()), &ip, over6))
        }
        Arrival::Network { ni } => (1 + usize::from(ni.0), ethernet(&ip)),
    }
}

/// The packet a router has forwarded: TTL one less, checksum right.
pub fn forwarded(ip: &[u8]) -> Vec<u8> {
    let mut ip = ip.to_vec();
    if ip[0] >> 4 == 6 {
        ip[7] -= 1;
    } else {
        ip[8] -= 1;
        ip[10..12].fill(0);
        let sum = !sum16(&ip[..20], 0);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    ip
}

/// Fields of a downlink G-PDU that tests look at: remote, TEID, QFI, inner packet.
pub fn read_gpdu(frame: &[u8]) -> (IpAddr, u32, Option<u8>, &[u8]) {
    let (remote, teid, container, user) = read_marked_gpdu(frame);
    (remote, teid, container.map(|(qfi, _)| qfi), user)
}

/// The same, with what else a PDU Session Container says (TS 38.415, 5.5.2.1).
pub fn read_marked_gpdu(frame: &[u8]) -> (IpAddr, u32, Option<(u8, Marks)>, &[u8]) {
    let (remote, gtpu) = read_outer(frame);
    let teid = u32::from_be_bytes(gtpu[4..8].try_into().unwrap());
    if gtpu[0] & 4 == 0 {
        return (remote, teid, None, &gtpu[8..]);
    }
    assert_eq!(gtpu[11], 0x85, "PDU Session Container");
    let end = 12 + 4 * usize::from(gtpu[12]);
    // What is relayed may be UL PDU Session Information, which has no marks.
    assert!([0, 0x10].contains(&gtpu[13]), "PDU type");
    assert_eq!(gtpu[end - 1], 0, "no further extension header");
    let ppp = gtpu[14] & 0x80 != 0;
    assert_eq!(end, if ppp { 20 } else { 16 });
    let marks = Marks {
        rqi: gtpu[14] & 0x40 != 0,
        ppi: ppp.then(|| gtpu[15] >> 5),
    };
    let container = (gtpu[14] & 0x3f, marks);
    (remote, teid, Some(container), &gtpu[end..])
}

/// Of UDP without GTP-U: remote, both ports, which are the same, and what it carries.
pub fn read_udp(frame: &[u8]) -> (IpAddr, u16, &[u8]) {
    let (remote, payload) = read_outer(frame);
    let at = frame.len() - payload.len() - 8;
    assert_eq!(frame[at..at + 2], frame[at + 2..at + 4], "ports");
    let port = u16::from_be_bytes(frame[at..at + 2].try_into().unwrap());
    (remote, port, payload)
}

fn read_outer(frame: &[u8]) -> (IpAddr, &[u8]) {
    match frame[12..14] {
        [0x08, 0x00] => read_outer4(&frame[14..]),
        [0x86, 0xdd] => read_outer6(&frame[14..]),
        _ => panic!("EtherType {:02x?}", &frame[12..14]),
    }
}

fn read_outer4(ip: &[u8]) -> (IpAddr, &[u8]) {
    assert!(checksum_holds(&ip[..20]), "outer checksum");
    let remote: [u8; 4] = ip[16..20].try_into().unwrap();
    (remote.into(), &ip[28..])
}

fn read_outer6(ip: &[u8]) -> (IpAddr, &[u8]) {
    let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    assert_eq!((ip[0] >> 4, ip[6], len), (6, 17, ip.len() - 40));
    assert_eq!(ip[4..6], ip[44..46], "length of UDP");
    // RFC 8200, 8.1: addresses, length and protocol, then UDP and all that it carries.
    let pseudo = u32::from(sum16(&ip[8..40], 0)) + len as u32 + 17;
    assert_ne!(ip[46..48], [0, 0], "a checksum was asked for");
    assert_eq!(sum16(&ip[40..], pseudo), 0xffff, "UDP checksum");
    let remote: [u8; 16] = ip[24..40].try_into().unwrap();
    (remote.into(), &ip[48..])
}

/// Follow packets with these keys from now on.
pub fn follow(tables: &mut Tables, keys: &[(TraceKey, u32)]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !tables.follow(keys).unwrap() {
        assert!(Instant::now() < deadline, "programs never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Loading programs needs it; a test that did not run must not look as if it had passed.
pub fn need_root() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let uid = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .unwrap();
    assert_eq!(
        uid.split_whitespace().nth(2),
        Some("0"),
        "loading XDP programs needs root"
    );
}

/// One random number after another.
pub struct Random(pub u64);

impl Random {
    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Flip, set, cut or grow; some octets, or lengths and types that matter.
    pub fn mutate(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let at = self.below(frame.len().min(90));
            match self.below(6) {
                0 => frame[at] ^= 1 << self.below(8),
                1 => frame[at] = self.next() as u8,
                2 => frame[at] = [0, 1, 4, 6, 0x7f, 0x80, 0x85, 0xff][self.below(8)],
                3 => frame.truncate(14.max(at)),
                4 => frame.extend(vec![self.next() as u8; self.below(32)]),
                _ => frame[at] = frame[at].wrapping_add(1),
            }
        }
        // The kernel takes no test frame shorter than an Ethernet header.
        frame.resize(frame.len().max(14), 0);
    }
}

/// Two network instances.
pub fn session_config() -> Config {
    let ni = |name: &str| NetworkInstance {
        name: name.into(),
        ..NetworkInstance::default()
    };
    Config {
        n3: vec![N3.into(), N3_6.into()],
        network_instances: vec![ni("a"), ni("b")],
        ..Config::default()
    }
}

/// Pages of 2 MiB, reserved until this is dropped. Others may reserve some meanwhile.
pub struct HugePages(u64);

const RESERVED: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl HugePages {
    fn change(by: i64) -> u64 {
        let file = std::fs::File::open(RESERVED).unwrap();
        let _lock = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        let number = || -> i64 {
            std::fs::read_to_string(RESERVED)
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        let before = number();
        std::fs::write(RESERVED, (before + by).max(0).to_string()).unwrap();
        number().abs_diff(before)
    }

    /// So many more than there are.
    pub fn reserve(pages: i64) -> Self {
        let reserved = Self(Self::change(pages));
        assert_eq!(reserved.0, pages as u64, "pages that the kernel has");
        reserved
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        Self::change(-(self.0 as i64));
    }
}

/// Have the kernel say nothing of itself on interfaces of this thread's namespace.
pub fn quiet_kernel() {
    for which in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        std::fs::write(file, "1").unwrap();
    }
}
