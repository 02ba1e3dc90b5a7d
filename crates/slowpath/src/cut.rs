//! IPv4 packets in fragments (RFC 791, 3.2), as a router makes them.

use crate::inet;

const MIN_HEADER: usize = 20;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Fragments of a packet, each of at most `max` octets, in order. `None`: it is no IPv4 packet, must not be
/// cut, or cannot be so small.
///
/// fresh: identification of a whole packet whose own is 0.
pub fn cut(packet: &[u8], max: usize, fresh: u16) -> Option<Vec<Vec<u8>>> {
    let header_len = usize::from(packet.first()? & 15) * 4;
    if packet[0] >> 4 != 4 || header_len < MIN_HEADER {
        return None;
    }
    let mut header = packet.get(..header_len)?.to_vec();
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let payload = packet.get(header_len..total)?;
    let word = u16::from_be_bytes([header[6], header[7]]);
    let room = max.checked_sub(header_len)? & !7;
    if word & DONT_FRAGMENT != 0 || room == 0 || payload.is_empty() {
        return None;
    }
    if header[4..6] == [0, 0] && word & (MORE | OFFSET) == 0 {
        header[4..6].copy_from_slice(&fresh.to_be_bytes());
    }
    let later = later_header(&header);
    let mut fragments = Vec::new();
    for (index, part) in payload.chunks(room).enumerate() {
        let offset = index * room / 8 + usize::from(word & OFFSET);
        let last = (index + 1) * room >= payload.len();
        let more = if last { word & MORE } else { MORE };
        let header = if index == 0 { &header } else { &later };
        fragments.push(fragment(header, part, u16::try_from(offset).ok()?, more)?);
    }
    Some(fragments)
}

fn fragment(header: &[u8], payload: &[u8], offset: u16, more: u16) -> Option<Vec<u8>> {
    if offset > OFFSET {
        return None;
    }
    let mut packet = header.to_vec();
    let total = u16::try_from(header.len() + payload.len()).ok()?;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&(more | offset).to_be_bytes());
    inet::set_header_checksum(&mut packet);
    packet.extend(payload);
    Some(packet)
}

/// The header of all fragments but the first: options that are not copied are gone, with NOPs in their place,
/// so that all headers are equally long.
fn later_header(header: &[u8]) -> Vec<u8> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut later = header.to_vec();
    let mut at = MIN_HEADER;
    while let Some(&kind) = later.get(at) {
        let len = match kind {
            END => break,
            NOP => 1,
            _ => usize::from(later.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let end = (at + len).min(later.len());
        if kind & COPIED == 0 {
            later[at..end].fill(NOP);
        }
        at = end;
    }
    later
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reassembly::{Bounds, Fragment, Key, Losses, Reassembler};

    fn packet(header_words: u8, payload: usize, word: u16) -> Vec<u8> {
        let header_len = usize::from(header_words) * 4;
        let mut packet = vec![0; header_len];
        packet[0] = 0x40 | header_words;
        packet[2..4].copy_from_slice(&((header_len + payload) as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        packet[header_len - 4..].fill(1);
        inet::set_header_checksum(&mut packet);
        packet.extend((0..payload).map(|at| (at % 251) as u8));
        packet
    }

    #[test]
    fn what_must_not_or_cannot_be_cut_is_not() {
        assert_eq!(cut(&packet(5, 100, DONT_FRAGMENT), 60, 7), None);
        assert_eq!(cut(&packet(5, 100, 0), 27, 7), None);
        assert_eq!(cut(&[0x60; 100], 60, 7), None);
        assert_eq!(cut(&[], 60, 7), None);
        // A part of a packet that ends beyond 64 KiB.
        assert_eq!(cut(&packet(5, 100, OFFSET), 60, 7), None);
    }

    #[test]
    fn options_go_along_when_they_are_to_be_copied() {
        let mut header = packet(8, 0, 0);
        // Record route (not copied), router alert (copied), end.
        header[20..32].copy_from_slice(&[7, 7, 4, 1, 2, 3, 4, 0x94, 4, 0, 0, 0]);
        let later = later_header(&header);
        assert_eq!(later[20..32], [1, 1, 1, 1, 1, 1, 1, 0x94, 4, 0, 0, 0]);
        // An option without a length, or with one beyond the header.
        header[20..22].copy_from_slice(&[7, 0]);
        header[30..32].copy_from_slice(&[7, 200]);
        assert_eq!(later_header(&header).len(), 32);
    }

    proptest! {
        /// Fragments fit, and are the packet again when they are put together.
        #[test]
        fn fragments_are_the_packet(payload in 1usize..6000, max in 68usize..1600, words in 6u8..16, more in any::<bool>()) {
            let word = if more { MORE | 100 } else { 0 };
            let whole = packet(words, payload, word);
            let header_len = usize::from(words) * 4;
            let fragments = cut(&whole, max, 7).unwrap();
            let mut all = Reassembler::new(Bounds { fragments: 1000, ..Bounds::default() });
            let mut losses = Losses::new();
            let mut together = None;
            for fragment in &fragments {
                prop_assert!(fragment.len() <= max);
                prop_assert_eq!(inet::checksum(&fragment[..header_len]), 0);
                prop_assert_eq!(&fragment[4..6], [0, if more { 0 } else { 7 }]);
                let bits = u16::from_be_bytes([fragment[6], fragment[7]]);
                let key = Key { port: 0, source: [1, 1, 1, 1].into(), destination: [2, 2, 2, 2].into(), id: 1, proto: 1 };
                let part = Fragment {
                    header: &fragment[..header_len],
                    payload: &fragment[header_len..],
                    offset: usize::from(bits & OFFSET) * 8 - usize::from(word & OFFSET) * 8,
                    more: bits & MORE != 0 && (!more || fragment != fragments.last().unwrap()),
                };
                prop_assert_eq!(bits & MORE != 0, more || fragment != fragments.last().unwrap());
                together = all.add(key, part, 0, &mut losses);
            }
            match (together, fragments.len()) {
                (Some(together), _) => prop_assert_eq!(&together.payload[..], &whole[header_len..]),
                (None, n) => prop_assert_eq!(n, 1),
            }
        }
    }
}
