//! Frames for the cost measurement, built by hand.

use std::net::Ipv4Addr;

use super::requests::Addresses;

/// A frame and where the user's words stand in it; 0: nowhere.
pub(super) struct Frame {
    /// The whole frame.
    pub(super) bytes: Vec<u8>,
    /// TEID.
    pub(super) teid_at: usize,
    /// The user's inner IPv4 address.
    pub(super) address_at: usize,
    /// The inner header checksum.
    pub(super) checksum_at: usize,
    inner_at: usize,
}

/// Where users send to.
pub(super) const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

impl Frame {
    /// Inner header checksum when the user's address is `ue`.
    pub(super) fn checksum_for(&self, ue: Ipv4Addr) -> [u8; 2] {
        let mut header = [0; 20];
        header.copy_from_slice(&self.bytes[self.inner_at..self.inner_at + 20]);
        let at = self.address_at - self.inner_at;
        header[at..at + 4].copy_from_slice(&ue.octets());
        header[10..12].fill(0);
        checksum(&header).to_be_bytes()
    }
}

fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: usize) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((20 + payload) as u16).to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    header
}

fn udp(source: u16, destination: u16, payload: usize) -> [u8; 8] {
    let mut header = [0; 8];
    header[0..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[4..6].copy_from_slice(&((8 + payload) as u16).to_be_bytes());
    header
}

fn ethernet() -> [u8; 14] {
    let mut header = [2; 14];
    header[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    header
}

fn inner(source: Ipv4Addr, destination: Ipv4Addr, len: usize) -> Vec<u8> {
    let mut packet = ipv4(source, destination, 17, len - 20).to_vec();
    packet.extend_from_slice(&udp(40000, 40001, len - 28));
    packet.resize(len, 0);
    packet
}

/// G-PDU with a PDU Session Container around an inner packet of `len` bytes.
pub(super) fn uplink(addresses: &Addresses, len: usize) -> Frame {
    let gtp = 16;
    let mut bytes = ethernet().to_vec();
    bytes.extend_from_slice(&ipv4(addresses.gnb, addresses.n3, 17, 8 + gtp + len));
    bytes.extend_from_slice(&udp(2152, 2152, gtp + len));
    let teid_at = bytes.len() + 4;
    bytes.extend_from_slice(&[0x34, 0xff]);
    bytes.extend_from_slice(&((gtp - 8 + len) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x85]);
    bytes.extend_from_slice(&[1, 0x10, 9, 0]);
    let inner_at = bytes.len();
    bytes.extend_from_slice(&inner(addresses.first_ue, REMOTE, len));
    Frame {
        bytes,
        teid_at,
        address_at: inner_at + 12,
        checksum_at: inner_at + 10,
        inner_at,
    }
}

/// Plain IP from the data network to a user.
pub(super) fn downlink(addresses: &Addresses, len: usize) -> Frame {
    let mut bytes = ethernet().to_vec();
    let inner_at = bytes.len();
    bytes.extend_from_slice(&inner(REMOTE, addresses.first_ue, len));
    Frame {
        bytes,
        teid_at: 0,
        address_at: inner_at + 16,
        checksum_at: inner_at + 10,
        inner_at,
    }
}
