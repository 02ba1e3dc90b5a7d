//! FARs with DUPL: where duplicates go, as the tables have it, and the packets that are made of what the data path hands
//! over for it (`TP_EVENT_COPY`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use session::compiled::{Duplicate, DuplicateHeader};

use crate::abi::{COPIES_PER_PLACE, COPY_V6, CopyLine, RulePlace, from_words, words_of};
use crate::finish::Outgoing;
use crate::inet;

/// `sizeof(struct tp_copy)`
const LINE_LEN: usize = 64;
const GTPU_PORT: u16 = 2152;
const UDP: u8 = 17;
const TTL: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;

/// Places of `rules[]` that so many duplicates take.
pub(crate) fn places(count: usize) -> usize {
    count.div_ceil(COPIES_PER_PLACE)
}

pub(crate) fn line(duplicate: &Duplicate) -> CopyLine {
    let mut line = CopyLine::default();
    for (addr, to) in [
        (duplicate.peer, &mut line.remote),
        (duplicate.local, &mut line.local),
    ] {
        match addr {
            IpAddr::V4(v4) => to[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => *to = v6.octets(),
        }
    }
    if duplicate.peer.is_ipv6() {
        line.flags |= COPY_V6;
    }
    match duplicate.header {
        DuplicateHeader::GtpU { teid } => line.teid_be = teid.to_be(),
        DuplicateHeader::Udp { port } => line.port_be = port.to_be(),
    }
    if let Some(marking) = duplicate.marking {
        (line.tos, line.tos_mask) = (marking.tos & marking.mask, marking.mask);
    }
    line
}

/// Fill places that no packet can reach yet.
pub(crate) fn fill(to: &[RulePlace], lines: &[CopyLine]) {
    for (place, lines) in to.iter().zip(lines.chunks(COPIES_PER_PLACE)) {
        let mut full = [CopyLine::default(); COPIES_PER_PLACE];
        full[..lines.len()].copy_from_slice(lines);
        place.fill(words_of(&full));
    }
}

/// Whether the places hold these and no others.
pub(crate) fn hold(places: &[RulePlace], count: u32, lines: &[CopyLine]) -> bool {
    let held = places
        .iter()
        .flat_map(|place| from_words::<[CopyLine; COPIES_PER_PLACE], 16>(place.words()));
    count as usize == lines.len() && held.zip(lines).all(|(held, line)| held == *line)
}

/// The user's packet behind a `struct tp_copy`.
pub(crate) fn user(data: &[u8]) -> &[u8] {
    data.get(LINE_LEN..).unwrap_or_default()
}

/// The duplicate: data is a `struct tp_copy` and the user's packet. `None`: it is not, or is too long for an outer header.
pub(crate) fn duplicate(data: &[u8]) -> Option<Outgoing> {
    let (line, user) = data.split_at_checked(LINE_LEN)?;
    let octets = |at: usize| -> Option<[u8; 16]> { line.get(at..at + 16)?.try_into().ok() };
    let to = CopyLine {
        remote: octets(0)?,
        local: octets(16)?,
        teid_be: u32::from_ne_bytes(line.get(32..36)?.try_into().ok()?),
        port_be: u16::from_ne_bytes(line.get(36..38)?.try_into().ok()?),
        flags: line[38],
        tos: line[39],
        tos_mask: line[40],
        ..CopyLine::default()
    };
    let mut payload = Vec::with_capacity(8 + 8 + user.len());
    let port = match u16::from_be(to.port_be) {
        0 => {
            payload.extend([0x30, 255]);
            payload.extend(u16::try_from(user.len()).ok()?.to_be_bytes());
            payload.extend(to.teid_be.to_ne_bytes());
            GTPU_PORT
        }
        port => port,
    };
    payload.extend_from_slice(user);
    let datagram = udp(port, &payload)?;
    let packet = if to.flags & COPY_V6 == 0 {
        over4(&to, &datagram)?
    } else {
        over6(&to, datagram)?
    };
    // As the kernel's routes say.
    Some(Outgoing { ifindex: 0, packet })
}

/// A GTP-U message from its IP header on, between addresses of one family.
pub(crate) fn gtpu_message(from: IpAddr, to: IpAddr, message: &[u8]) -> Option<Vec<u8>> {
    let mut line = CopyLine::default();
    let datagram = udp(GTPU_PORT, message)?;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            line.local[..4].copy_from_slice(&from.octets());
            line.remote[..4].copy_from_slice(&to.octets());
            over4(&line, &datagram)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            (line.local, line.remote) = (from.octets(), to.octets());
            over6(&line, datagram)
        }
        _ => None,
    }
}

fn udp(port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    let mut datagram = Vec::with_capacity(8 + payload.len());
    datagram.extend([port.to_be_bytes(), port.to_be_bytes()].concat());
    datagram.extend(u16::try_from(8 + payload.len()).ok()?.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    Some(datagram)
}

/// As the pipeline writes it: no identification, no UDP checksum. It must not be fragmented on the way, so that a
/// duplicate that is too long is refused here.
fn over4(to: &CopyLine, datagram: &[u8]) -> Option<Vec<u8>> {
    let total = u16::try_from(20 + datagram.len()).ok()?;
    let mut packet = vec![0x45, to.tos & to.tos_mask];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(DONT_FRAGMENT.to_be_bytes());
    packet.extend([TTL, UDP, 0, 0]);
    for end in [to.local, to.remote] {
        let [a, b, c, d, ..] = end;
        packet.extend(Ipv4Addr::new(a, b, c, d).octets());
    }
    inet::set_header_checksum(&mut packet);
    packet.extend(datagram);
    Some(packet)
}

/// With a UDP checksum (RFC 8200, 8.1).
fn over6(to: &CopyLine, mut datagram: Vec<u8>) -> Option<Vec<u8>> {
    let len = u16::try_from(datagram.len()).ok()?;
    let ends = [to.local, to.remote]
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
    let label = (to.teid_be.swap_bytes()).wrapping_mul(0x9e37_79b1) >> 12;
    let class = u32::from(to.tos & to.tos_mask) << 20;
    let mut packet = (6 << 28 | class | label).to_be_bytes().to_vec();
    packet.extend(len.to_be_bytes());
    packet.extend([UDP, TTL]);
    packet.extend(ends);
    packet.extend(datagram);
    Some(packet)
}
