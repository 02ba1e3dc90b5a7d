//! Fragments of tunnel packets in their frames, and the frame that would have come without fragmentation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::gtpu;
use crate::inet;
use crate::reassembly::{Fragment, Key, Whole};

/// Offset of the IP header, behind Ethernet and its tags.
pub(crate) fn l3_of(frame: &[u8]) -> usize {
    let mut at = 14;
    for _ in 0..2 {
        match frame.get(at - 2..at) {
            Some([0x81, 0x00] | [0x88, 0xa8]) => at += 4,
            _ => break,
        }
    }
    at
}

/// Extension headers that are understood where a tunnel ends (TS 29.281, 5.2.2): PDU Session Container, and of those that say
/// nothing there, PDCP PDU Number and its long form.
const UNDERSTOOD: [u8; 3] = [0x85, 0xc0, 0x82];

/// A Supported Extension Headers Notification (TS 29.281, 7.2.3) to whoever sent this IP header.
pub(crate) fn notification(ip: &[u8]) -> Option<Vec<u8>> {
    let (source, destination): (IpAddr, IpAddr) = match ip.first()? >> 4 {
        4 => {
            let ends: [u8; 8] = ip.get(12..20)?.try_into().ok()?;
            let [a, b, c, d, e, f, g, h] = ends;
            (
                Ipv4Addr::new(a, b, c, d).into(),
                Ipv4Addr::new(e, f, g, h).into(),
            )
        }
        _ => {
            let end = |at: usize| -> Option<[u8; 16]> { ip.get(at..at + 16)?.try_into().ok() };
            (
                Ipv6Addr::from(end(8)?).into(),
                Ipv6Addr::from(end(24)?).into(),
            )
        }
    };
    // With a sequence number, which nobody looks at (5.1); then the list (8.5).
    let mut message = vec![
        0x32,
        31,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        141,
        UNDERSTOOD.len() as u8,
    ];
    message.extend(UNDERSTOOD);
    message[3] = (message.len() - 8) as u8;
    gtpu::message(destination, source, &message)
}

/// A fragment in its frame.
pub(crate) fn read_fragment(port: u32, frame: &[u8]) -> Option<(Key, Fragment<'_>)> {
    let l3 = l3_of(frame);
    match frame.get(l3)? >> 4 {
        4 => read_fragment4(port, frame, l3),
        6 => read_fragment6(port, frame, l3),
        _ => None,
    }
}

fn read_fragment4(port: u32, frame: &[u8], l3: usize) -> Option<(Key, Fragment<'_>)> {
    let ip = frame.get(l3..)?;
    let header_len = usize::from(ip.first()? & 15) * 4;
    let header = ip.get(..header_len.max(20))?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let bits = u16::from_be_bytes([header[6], header[7]]);
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let key = Key {
        port,
        source: address(12).into(),
        destination: address(16).into(),
        id: u16::from_be_bytes([header[4], header[5]]).into(),
        proto: header[9],
    };
    let fragment = Fragment {
        header: &frame[..l3 + header.len()],
        payload: ip.get(header.len()..total)?,
        offset: usize::from(bits & 0x1fff) * 8,
        more: bits & 0x2000 != 0,
    };
    Some((key, fragment))
}

const IP6_LEN: usize = 40;
const IP6_FRAGMENT: u8 = 44;
/// Hop-by-hop options, routing and destination options: what may stand in front of a fragment header.
const IP6_IN_FRONT: [u8; 3] = [0, 43, 60];
/// `TP_IP6_HEADERS_MAX`
const IP6_HEADERS_MAX: usize = 8;

/// Offsets of the fragment header of an IPv6 packet, and of the octet that names it.
fn find_fragment6(ip: &[u8]) -> Option<(usize, usize)> {
    let (mut at, mut named) = (IP6_LEN, 6);
    for _ in 0..IP6_HEADERS_MAX {
        match *ip.get(named)? {
            IP6_FRAGMENT => return Some((at, named)),
            next if IP6_IN_FRONT.contains(&next) => {
                named = at;
                at += (usize::from(*ip.get(at + 1)?) + 1) * 8;
            }
            _ => return None,
        }
    }
    None
}

fn read_fragment6(port: u32, frame: &[u8], l3: usize) -> Option<(Key, Fragment<'_>)> {
    let ip = frame.get(l3..)?;
    let header = ip.get(..IP6_LEN)?;
    let total = IP6_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let (at, _) = find_fragment6(ip)?;
    let own = ip.get(at..at + 8)?;
    let address = |at: usize| -> Option<Ipv6Addr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(octets.into())
    };
    let bits = u16::from_be_bytes([own[2], own[3]]);
    let key = Key {
        port,
        source: address(8)?.into(),
        destination: address(24)?.into(),
        id: u32::from_be_bytes([own[4], own[5], own[6], own[7]]),
        // Fragments of one packet may differ in it (RFC 8200, 4.5); the first one's counts.
        proto: IP6_FRAGMENT,
    };
    let fragment = Fragment {
        header: &frame[..l3 + at + 8],
        payload: ip.get(at + 8..total)?,
        offset: usize::from(bits & 0xfff8),
        more: bits & 1 != 0,
    };
    Some((key, fragment))
}

/// The frame that would have come without fragmentation.
pub(crate) fn frame_of(whole: Whole) -> Option<Vec<u8>> {
    let l3 = l3_of(&whole.header);
    match whole.header.get(l3)? >> 4 {
        4 => frame_of4(whole, l3),
        _ => frame_of6(whole, l3),
    }
}

fn frame_of6(whole: Whole, l3: usize) -> Option<Vec<u8>> {
    let mut frame = whole.header;
    let (at, named) = find_fragment6(frame.get(l3..)?)?;
    let next = *frame.get(l3 + at)?;
    *frame.get_mut(l3 + named)? = next;
    frame.truncate(l3 + at);
    let payload_len = u16::try_from(at - IP6_LEN + whole.payload.len()).ok()?;
    frame
        .get_mut(l3 + 4..l3 + 6)?
        .copy_from_slice(&payload_len.to_be_bytes());
    frame.extend(whole.payload);
    Some(frame)
}

fn frame_of4(whole: Whole, l3: usize) -> Option<Vec<u8>> {
    let mut frame = whole.header;
    let total = u16::try_from(frame.len() - l3 + whole.payload.len()).ok()?;
    let ip = frame.get_mut(l3..)?;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[6..8].fill(0);
    inet::set_header_checksum(ip);
    frame.extend(whole.payload);
    Some(frame)
}
