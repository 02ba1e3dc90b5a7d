//! FARs with DUPL: where duplicates go, as the tables have it, and as the data path tells it with a packet that is to be
//! duplicated (`TP_EVENT_COPY`).

use std::mem::offset_of;

use std::net::IpAddr;

use compiled::{Duplicate, DuplicateHeader};

use crate::abi::{COPIES_PER_PLACE, COPY_V6, CopyLine, Line, from_words, words_of};

/// `sizeof(struct tp_copy)`
const LINE_LEN: usize = size_of::<CopyLine>();

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
pub(crate) fn fill(to: &[Line], lines: &[CopyLine]) {
    for (place, lines) in to.iter().zip(lines.chunks(COPIES_PER_PLACE)) {
        let mut full = [CopyLine::default(); COPIES_PER_PLACE];
        full[..lines.len()].copy_from_slice(lines);
        place.fill(words_of(&full));
    }
}

/// Whether the places hold these and no others.
pub(crate) fn hold(places: &[Line], count: u32, lines: &[CopyLine]) -> bool {
    let held = places
        .iter()
        .flat_map(|place| from_words::<[CopyLine; COPIES_PER_PLACE], 8>(place.words()));
    count as usize == lines.len() && held.zip(lines).all(|(held, line)| held == *line)
}

/// Destination of a duplicate: a `struct tp_copy` in front of a user's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Destination address, of the family that [`Self::is_ipv6`] says: of IPv4 the first four octets.
    pub remote: [u8; 16],
    /// Source address, one of ours.
    pub local: [u8; 16],
    /// TEID of the GTP-U header, where there is one.
    pub teid: u32,
    /// `None`: GTP-U; else plain UDP to this port.
    pub udp_port: Option<u16>,
    /// The family of both addresses.
    pub is_ipv6: bool,
    /// ToS or Traffic Class of the outer header.
    pub tos: u8,
}

impl Destination {
    /// And the user's packet behind it.
    pub fn parse(data: &[u8]) -> Option<(Self, &[u8])> {
        let (line, user) = data.split_at_checked(LINE_LEN)?;
        let octets = |at: usize| -> Option<[u8; 16]> { line.get(at..at + 16)?.try_into().ok() };
        let [port_at, teid_at] = [offset_of!(CopyLine, port_be), offset_of!(CopyLine, teid_be)];
        let port = u16::from_be_bytes(line.get(port_at..port_at + 2)?.try_into().ok()?);
        let to = Self {
            remote: octets(offset_of!(CopyLine, remote))?,
            local: octets(offset_of!(CopyLine, local))?,
            teid: u32::from_be_bytes(line.get(teid_at..teid_at + 4)?.try_into().ok()?),
            udp_port: Some(port).filter(|port| *port != 0),
            is_ipv6: line[offset_of!(CopyLine, flags)] & COPY_V6 != 0,
            tos: line[offset_of!(CopyLine, tos)] & line[offset_of!(CopyLine, tos_mask)],
        };
        Some((to, user))
    }
}
