//! The Internet checksum (RFC 1071).

/// The sum of 16-bit words, not yet complemented, on top of `start`.
fn sum(octets: &[u8], start: u32) -> u32 {
    octets.chunks(2).fold(start, |sum, pair| {
        let word = u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

/// The checksum of octets whose own checksum field is zero.
pub(crate) fn checksum(octets: &[u8]) -> u16 {
    !(sum(octets, 0) as u16)
}

/// Put the right checksum into an IPv4 header; `ip` is that header, no more and no less.
pub(crate) fn set_header_checksum(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_checksum_that_others_compute() {
        // The example of RFC 1071's method in wide use.
        let mut header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xff, 0xff, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        set_header_checksum(&mut header);
        assert_eq!(header[10..12], [0xb8, 0x61]);
        assert_eq!(checksum(&header), 0);
        assert_eq!(checksum(&[1]), !0x0100);
    }
}
