//! A small site that the tests forward through, and the frames they send.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test helpers"
)]
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use session::compiled::{Marks, NiId};
use session::reference::{Arrival, Packet};
use tables::nexthop::{Family, L2, Mac, NextHop, NextHopTables, Peer, PeerChange};
use tables::{Mode, PortConfig, Roles, Tables};

/// Our N3 address.
pub const N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
/// A gNB.
pub const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 1, 1);

/// Port 0 is N3; ports 1 and 2 are N6 of network instances 0 and 1.
pub fn ports() -> Vec<PortConfig> {
    let port = |name: &str, n3, ni| PortConfig {
        name: name.into(),
        roles: Roles { n3, n6: !n3 },
        ni: NiId(ni),
        mode: Mode::Driver,
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
    tables.set_local(&[N3]).unwrap();
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
    let pool: Ipv4Net = "10.60.0.0/17".parse().unwrap();
    tables.register_pool(NiId(0), pool).unwrap();
}

/// Give new peers their next hop out of port 0, as the mirror of the kernel does. `n3`: its index.
pub fn resolve_peers(tables: &mut Tables, n3: u32) -> Vec<PeerChange> {
    let mut changes = Vec::new();
    tables.take_peer_changes(&mut changes);
    for change in &changes {
        if let PeerChange::Added(Peer { remote, local }) = *change {
            tables.swap_peer_nexthop(Peer { remote, local }, n3);
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
    let sum = !sum16(&header, 0);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
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
            let first = 6 << 28 | u32::from(packet.tos) << 20 | packet.label;
            let mut header = first.to_be_bytes().to_vec();
            header.extend((payload.len() as u16).to_be_bytes());
            header.extend([packet.proto, 64]);
            header.extend(src.octets());
            header.extend(dst.octets());
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
    let mut gtpu = vec![if qfi.is_some() { 0x34 } else { 0x30 }, 0xff];
    let options: &[u8] = match qfi {
        Some(qfi) => &[0, 0, 0, 0x85, 1, 0x10, qfi, 0],
        None => &[],
    };
    gtpu.extend(((options.len() + ip.len()) as u16).to_be_bytes());
    gtpu.extend(teid.to_be_bytes());
    gtpu.extend(options);
    gtpu.extend(ip);
    let mut outer = ipv4(GNB, N3, 17, 64, gtpu.len() + 8);
    outer.extend([0x08, 0x68, 0x08, 0x68]);
    outer.extend(((gtpu.len() + 8) as u16).to_be_bytes());
    outer.extend([0, 0]);
    outer.extend(gtpu);
    ethernet(&outer)
}

/// The port and frame by which a packet arrives.
pub fn arrival(packet: &Packet) -> (usize, Vec<u8>) {
    let ip = inner(packet);
    match packet.arrival {
        Arrival::Tunnel { teid, qfi } => (0, gpdu(teid, qfi.map(|qfi| qfi.get()), &ip)),
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

/// What the tests look at in a downlink G-PDU: remote, TEID, QFI, inner packet.
pub fn read_gpdu(frame: &[u8]) -> (Ipv4Addr, u32, Option<u8>, &[u8]) {
    let (remote, teid, container, user) = read_marked_gpdu(frame);
    (remote, teid, container.map(|(qfi, _)| qfi), user)
}

/// The same, with what else a PDU Session Container says (TS 38.415, 5.5.2.1).
pub fn read_marked_gpdu(frame: &[u8]) -> (Ipv4Addr, u32, Option<(u8, Marks)>, &[u8]) {
    let remote = Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
    assert!(checksum_holds(&frame[14..34]), "outer checksum");
    let teid = u32::from_be_bytes(frame[46..50].try_into().unwrap());
    if frame[42] & 4 == 0 {
        return (remote, teid, None, &frame[50..]);
    }
    assert_eq!(frame[53], 0x85, "PDU Session Container");
    let end = 54 + 4 * usize::from(frame[54]);
    // What is relayed may be UL PDU Session Information, which has no marks.
    assert!([0, 0x10].contains(&frame[55]), "PDU type");
    assert_eq!(frame[end - 1], 0, "no further extension header");
    let ppp = frame[56] & 0x80 != 0;
    assert_eq!(end, if ppp { 62 } else { 58 });
    let marks = Marks {
        rqi: frame[56] & 0x40 != 0,
        ppi: ppp.then(|| frame[57] >> 5),
    };
    let container = (frame[56] & 0x3f, marks);
    (remote, teid, Some(container), &frame[end..])
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
