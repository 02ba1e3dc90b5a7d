//! GTP-U packets that are made here, from their IP header on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::inet;

pub(crate) const GTPU_PORT: u16 = 2152;
const UDP: u8 = 17;
const TTL: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;

/// Fields of an outer IP header. Of IPv4 addresses the first four octets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outer {
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
    pub(crate) tos: u8,
    /// TEID of the tunnel, which makes the flow label.
    pub(crate) teid: u32,
}

/// A GTP-U message from its IP header on, between addresses of one family.
pub(crate) fn message(from: IpAddr, to: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
    let mut outer = Outer::default();
    let datagram = udp(GTPU_PORT, message)?;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            outer.local[..4].copy_from_slice(&from.octets());
            outer.remote[..4].copy_from_slice(&to.octets());
            outer.over4(&datagram)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            (outer.local, outer.remote) = (from.octets(), to.octets());
            outer.over6(datagram)
        }
        _ => None,
    }
}

pub(crate) fn udp(port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let mut datagram = Vec::with_capacity(8 + payload.len());
    datagram.extend([port.to_be_bytes(), port.to_be_bytes()].concat());
    datagram.extend(u16::try_from(8 + payload.len()).ok()?.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    Some(datagram)
}

impl Outer {
    /// As the pipeline writes it: no identification, no UDP checksum. It must not be fragmented on the way, so that a
    /// duplicate that is too long is refused here.
    pub(crate) fn over4(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        let total = u16::try_from(20 + datagram.len()).ok()?;
        let mut packet = vec![0x45, self.tos];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(DONT_FRAGMENT.to_be_bytes());
        packet.extend([TTL, UDP, 0, 0]);
        for end in [self.local, self.remote] {
            let [a, b, c, d, ..] = end;
            packet.extend(Ipv4Addr::new(a, b, c, d).octets());
        }
        inet::set_header_checksum(&mut packet);
        packet.extend(datagram);
        Some(packet)
    }

    /// With a UDP checksum (RFC 8200, 8.1).
    pub(crate) fn over6(&self, mut datagram: Vec<u8>) -> Option<Vec<u8>> {
        let len = u16::try_from(datagram.len()).ok()?;
        let ends = [self.local, self.remote]
            .map(|end| Ipv6Addr::from(end).octets())
            .concat();
        let pseudo = [
            &ends,
            &u32::from(len).to_be_bytes()[..],
            &[0, 0, 0, UDP],
            &datagram,
        ]
        .concat();
        let sum = match inet::checksum(&pseudo) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        let label = self.teid.wrapping_mul(0x9e37_79b1) >> 12;
        let class = u32::from(self.tos) << 20;
        let mut packet = (6 << 28 | class | label).to_be_bytes().to_vec();
        packet.extend(len.to_be_bytes());
        packet.extend([UDP, TTL]);
        packet.extend(ends);
        packet.extend(datagram);
        Some(packet)
    }
}

/// A G-PDU to ourselves, from its IP header on.
///
/// `qfi`: what its PDU Session Container says, if it has one; `down`: towards access.
pub(crate) fn g_pdu(
    own: IpAddr,
    teid: u32,
    (qfi, down): (Option<u8>, bool),
    user: &[u8],
) -> Option<Vec<u8>> {
    let mut optional = Vec::new();
    if let Some(qfi) = qfi {
        let pdu_type = if down { 0 } else { 0x10 };
        optional.extend([0, 0, 0, 0x85, 1, pdu_type, qfi, 0]);
    }
    let mut message = vec![if qfi.is_some() { 0x34 } else { 0x30 }, 255];
    message.extend(
        u16::try_from(optional.len() + user.len())
            .ok()?
            .to_be_bytes(),
    );
    message.extend(teid.to_be_bytes());
    message.extend(optional);
    message.extend_from_slice(user);
    self::message(own, own, &message)
}

/// A part of a user's packet behind the GTP-U header that the whole one came with.
pub(crate) fn with_header(header: &[u8], part: &[u8]) -> Option<Vec<u8>> {
    const FIXED: usize = 8;
    let length = u16::try_from(header.len().checked_sub(FIXED)? + part.len()).ok()?;
    let mut message = [header, part].concat();
    message
        .get_mut(2..4)?
        .copy_from_slice(&length.to_be_bytes());
    Some(message)
}
