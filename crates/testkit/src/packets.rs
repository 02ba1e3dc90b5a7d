//! Packets as they arrive at the site of the tests, and what left it, read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{Marks, NiId, Qfi};

/// Our N3 address.
pub const N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
/// Our other N3 address.
pub const N3_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, 1);
/// The other address of the gNB.
pub const GNB_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 1, 0, 0, 0, 1);
/// A gNB.
pub const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 1, 1);

/// A packet as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Way by which it comes in.
    pub arrival: Arrival,
    /// Inner source address.
    pub src: IpAddr,
    /// Inner destination address, of the same family.
    pub dst: IpAddr,
    /// Inner protocol.
    pub proto: u8,
    /// Source and destination port; `None`: a protocol, or a fragment, without.
    pub ports: Option<(u16, u16)>,
    /// ToS or Traffic Class.
    pub tos: u8,
    /// Of ESP or AH.
    pub spi: Option<u32>,
    /// IPv6 flow label.
    pub label: u32,
}

/// Way by which a packet comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// GTP-U on N3 or N9.
    Tunnel {
        /// TEID.
        teid: u32,
        /// Of the PDU Session Container, if there is one.
        qfi: Option<Qfi>,
    },
    /// Plain IP on N6.
    Network {
        /// Network instance of the interface.
        ni: NiId,
    },
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
