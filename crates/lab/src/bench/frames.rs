//! Frames for the cost measurement, built by hand.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::requests::{Addresses, prefix};

/// Of the users' packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A frame and where the user's words stand in it; 0: nowhere.
pub(super) struct Frame {
    /// The whole frame.
    pub(super) bytes: Vec<u8>,
    /// TEID.
    pub(super) teid_at: usize,
    /// The user's inner IPv4 address, or what differs in the prefixes of users.
    pub(super) address_at: usize,
    /// The inner header checksum.
    pub(super) checksum_at: usize,
    inner_at: usize,
}

/// Server that users send to.
pub(super) const REMOTE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// The same.
pub(super) const REMOTE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 7);

impl Frame {
    /// Inner header checksum when the user's address is `ue`.
    pub(super) fn checksum_for(&self, ue: Ipv4Addr) -> [u8; 2] {
        if self.checksum_at == 0 {
            return [0; 2];
        }
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

fn ethernet(family: Family) -> [u8; 14] {
    let mut header = [2; 14];
    let ethertype: u16 = match family {
        Family::V4 => 0x0800,
        Family::V6 => 0x86dd,
    };
    header[12..14].copy_from_slice(&ethertype.to_be_bytes());
    header
}

fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, payload: usize) -> [u8; 40] {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    header[6] = 17;
    header[7] = 64;
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&destination.octets());
    header
}

/// Between the first user and [`REMOTE`] or its counterpart.
fn inner(addresses: &Addresses, family: Family, from_user: bool, len: usize) -> Vec<u8> {
    let user = addresses.first_ue;
    let mut packet = match (family, from_user) {
        (Family::V4, true) => ipv4(user, REMOTE, 17, len - 20).to_vec(),
        (Family::V4, false) => ipv4(REMOTE, user, 17, len - 20).to_vec(),
        (Family::V6, true) => ipv6(prefix(user), REMOTE6, len - 40).to_vec(),
        (Family::V6, false) => ipv6(REMOTE6, prefix(user), len - 40).to_vec(),
    };
    packet.extend_from_slice(&udp(40000, 40001, len - packet.len() - 8));
    packet.resize(len, 0);
    packet
}

/// Offsets in an inner header: what differs between users, and the checksum.
fn places(family: Family, from_user: bool) -> (usize, Option<usize>) {
    match (family, from_user) {
        (Family::V4, true) => (12, Some(10)),
        (Family::V4, false) => (16, Some(10)),
        (Family::V6, true) => (12, None),
        (Family::V6, false) => (28, None),
    }
}

/// G-PDU with a PDU Session Container around an inner packet of `len` bytes.
pub(super) fn uplink(addresses: &Addresses, family: Family, len: usize) -> Frame {
    let gtp = 16;
    let mut bytes = ethernet(Family::V4).to_vec();
    bytes.extend_from_slice(&ipv4(addresses.gnb, addresses.n3, 17, 8 + gtp + len));
    bytes.extend_from_slice(&udp(2152, 2152, gtp + len));
    let teid_at = bytes.len() + 4;
    bytes.extend_from_slice(&[0x34, 0xff]);
    bytes.extend_from_slice(&((gtp - 8 + len) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x85]);
    bytes.extend_from_slice(&[1, 0x10, 9, 0]);
    let inner_at = bytes.len();
    bytes.extend_from_slice(&inner(addresses, family, true, len));
    let (address, checksum) = places(family, true);
    Frame {
        bytes,
        teid_at,
        address_at: inner_at + address,
        checksum_at: checksum.map_or(0, |at| inner_at + at),
        inner_at,
    }
}

/// Plain IP from the data network to a user.
pub(super) fn downlink(addresses: &Addresses, family: Family, len: usize) -> Frame {
    let mut bytes = ethernet(family).to_vec();
    let inner_at = bytes.len();
    bytes.extend_from_slice(&inner(addresses, family, false, len));
    let (address, checksum) = places(family, false);
    Frame {
        bytes,
        teid_at: 0,
        address_at: inner_at + address,
        checksum_at: checksum.map_or(0, |at| inner_at + at),
        inner_at,
    }
}
