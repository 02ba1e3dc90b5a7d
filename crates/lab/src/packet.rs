//! Packets of UEs, built by hand where no program would send them so.

use std::net::Ipv4Addr;

/// The Internet checksum (RFC 1071).
pub fn checksum(octets: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 packet without options.
pub fn ipv4(source: Ipv4Addr, to: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let length = (20 + body.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(to.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

/// A UDP packet, its checksum left out as IPv4 allows.
pub fn udp4(source: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut body = Vec::new();
    for field in [source.1, to.1, length, 0] {
        body.extend(field.to_be_bytes());
    }
    body.extend(payload);
    ipv4(source.0, to.0, 17, &body)
}

/// An IPv4 packet without options, in fragments with so many octets of it, a multiple of 8, and an identification of 0.
pub fn unidentified(packet: &[u8], octets: usize) -> Vec<Vec<u8>> {
    let (header, body) = packet.split_at(20);
    let parts = body.chunks(octets).enumerate().map(|(number, part)| {
        let mut header = header.to_vec();
        let offset = number * octets;
        let more = u16::from(offset + part.len() < body.len()) << 13;
        header[2..4].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
        header[4..6].fill(0);
        header[6..8].copy_from_slice(&(more | (offset / 8) as u16).to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&header, part].concat()
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_checksum_that_others_compute() {
        // The example of RFC 1071's method in wide use: 4500 0073 0000 4000 4011 .. c0a8 0001 c0a8 00c7.
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
        let packet = udp4((Ipv4Addr::LOCALHOST, 1), (Ipv4Addr::LOCALHOST, 2), b"odd");
        assert_eq!(checksum(&packet[..20]), 0);
        assert_eq!(packet.len(), 31);
    }
}
