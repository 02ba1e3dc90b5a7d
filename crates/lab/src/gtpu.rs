//! GTP-U version 1 (TS 29.281) as a gNB speaks it: the lab's own builder and parser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The UDP port of GTP-U.
pub const PORT: u16 = 2152;

/// Message types (TS 29.281, 6.1).
pub mod message {
    /// Echo Request.
    pub const ECHO_REQUEST: u8 = 1;
    /// Echo Response.
    pub const ECHO_RESPONSE: u8 = 2;
    /// Error Indication.
    pub const ERROR_INDICATION: u8 = 26;
    /// End Marker.
    pub const END_MARKER: u8 = 254;
    /// G-PDU.
    pub const G_PDU: u8 = 255;
}

const PDU_SESSION_CONTAINER: u8 = 0x85;
const FLAG_PN: u8 = 1;
const FLAG_S: u8 = 2;
const FLAG_E: u8 = 4;
const VERSION_1_GTP: u8 = 0x30;

/// A PDU Session Container (TS 38.415).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// 0: downlink, 1: uplink.
    pub pdu_type: u8,
    /// QoS Flow Identifier.
    pub qfi: u8,
}

impl Container {
    /// As a gNB sends it.
    pub fn uplink(qfi: u8) -> Self {
        Self { pdu_type: 1, qfi }
    }
}

/// A message whose lengths fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// See [`message`].
    pub message_type: u8,
    /// Tunnel, 0 in path messages.
    pub teid: u32,
    /// Present when the S flag is set.
    pub sequence: Option<u16>,
    /// From the first PDU Session Container.
    pub container: Option<Container>,
    /// The tunnelled packet, or the information elements.
    pub body: &'a [u8],
}

/// Appends a message to `out`. The length fields are worked out from `body`.
pub fn write(
    out: &mut Vec<u8>,
    message_type: u8,
    teid: u32,
    sequence: Option<u16>,
    container: Option<Container>,
    body: &[u8],
) {
    let optional = if sequence.is_some() || container.is_some() {
        4
    } else {
        0
    };
    let extension = if container.is_some() { 4 } else { 0 };
    let length = (optional + extension + body.len()) as u16;
    let s = sequence.map_or(0, |_| FLAG_S);
    let e = container.map_or(0, |_| FLAG_E);
    out.push(VERSION_1_GTP | s | e);
    out.push(message_type);
    out.extend(length.to_be_bytes());
    out.extend(teid.to_be_bytes());
    if optional > 0 {
        out.extend(sequence.unwrap_or(0).to_be_bytes());
        out.push(0);
        out.push(if container.is_some() {
            PDU_SESSION_CONTAINER
        } else {
            0
        });
    }
    if let Some(Container { pdu_type, qfi }) = container {
        out.extend([1, pdu_type << 4, qfi & 0x3f, 0]);
    }
    out.extend_from_slice(body);
}

/// A G-PDU.
pub fn g_pdu(out: &mut Vec<u8>, teid: u32, container: Option<Container>, packet: &[u8]) {
    write(out, message::G_PDU, teid, None, container, packet);
}

/// An Echo Request without Recovery, as gNBs send it.
pub fn echo_request(sequence: u16) -> Vec<u8> {
    let mut out = Vec::new();
    write(
        &mut out,
        message::ECHO_REQUEST,
        0,
        Some(sequence),
        None,
        &[],
    );
    out
}

/// The answer to an Echo Request: the Recovery IE is always 0 (TS 29.281, 7.2.2).
pub fn echo_response(sequence: u16) -> Vec<u8> {
    let mut out = Vec::new();
    write(
        &mut out,
        message::ECHO_RESPONSE,
        0,
        Some(sequence),
        None,
        &[14, 0],
    );
    out
}

/// An Error Indication for `teid` of the sender at `address`.
pub fn error_indication(teid: u32, address: impl Into<IpAddr>) -> Vec<u8> {
    let mut body = vec![16];
    body.extend(teid.to_be_bytes());
    match address.into() {
        IpAddr::V4(v4) => body.extend([&[133, 0, 4][..], &v4.octets()].concat()),
        IpAddr::V6(v6) => body.extend([&[133, 0, 16][..], &v6.octets()].concat()),
    }
    let mut out = Vec::new();
    write(&mut out, message::ERROR_INDICATION, 0, Some(0), None, &body);
    out
}

/// Parses a datagram; `None` when it is not GTP-U version 1 or a length does not fit.
pub fn parse(datagram: &[u8]) -> Option<Message<'_>> {
    let [flags, message_type, l0, l1, t0, t1, t2, t3, rest @ ..] = datagram else {
        return None;
    };
    if flags & 0xf0 != VERSION_1_GTP {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([*l0, *l1]));
    let mut body = rest.get(..length)?;
    if rest.len() != length {
        return None;
    }
    let mut sequence = None;
    let mut container = None;
    if flags & (FLAG_E | FLAG_S | FLAG_PN) != 0 {
        let [s0, s1, _n_pdu, next, after @ ..] = body else {
            return None;
        };
        sequence = (flags & FLAG_S != 0).then(|| u16::from_be_bytes([*s0, *s1]));
        let first = if flags & FLAG_E != 0 { *next } else { 0 };
        (container, body) = extensions(first, after)?;
    }
    let teid = u32::from_be_bytes([*t0, *t1, *t2, *t3]);
    Some(Message {
        message_type: *message_type,
        teid,
        sequence,
        container,
        body,
    })
}

fn extensions(mut next: u8, mut rest: &[u8]) -> Option<(Option<Container>, &[u8])> {
    let mut container = None;
    while next != 0 {
        let bytes = usize::from(*rest.first()?) * 4;
        let header = rest.get(..bytes).filter(|h| !h.is_empty())?;
        if next == PDU_SESSION_CONTAINER && container.is_none() {
            container = Some(Container {
                pdu_type: header[1] >> 4,
                qfi: header[2] & 0x3f,
            });
        }
        next = header[bytes - 1];
        rest = &rest[bytes..];
    }
    Some((container, rest))
}

/// Tunnel that an Error Indication complains about: TEID Data I and GTP-U Peer Address (7.3.1).
pub fn parse_error_indication(mut ies: &[u8]) -> Option<(u32, IpAddr)> {
    let (mut teid, mut address) = (None, None);
    while let [ie_type, rest @ ..] = ies {
        // Types below 128 are TV with a fixed length, the others TLV.
        let (value, after) = match ie_type {
            14 => rest.split_at_checked(1)?,
            16 => rest.split_at_checked(4)?,
            128.. => {
                let (length, rest) = rest.split_first_chunk::<2>()?;
                rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?
            }
            _ => return None,
        };
        match (ie_type, value.len()) {
            (16, _) => teid = value.try_into().ok().map(u32::from_be_bytes),
            (133, 4) => {
                address = <[u8; 4]>::try_from(value)
                    .ok()
                    .map(|a| Ipv4Addr::from(a).into())
            }
            (133, 16) => {
                address = <[u8; 16]>::try_from(value)
                    .ok()
                    .map(|a| Ipv6Addr::from(a).into());
            }
            _ => {}
        }
        ies = after;
    }
    Some((teid?, address?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_g_pdu_with_a_session_container_has_the_octets_of_the_specification() {
        let mut out = Vec::new();
        g_pdu(
            &mut out,
            0x0102_0304,
            Some(Container::uplink(9)),
            &[0x45, 0x00],
        );
        let expected = [
            0x34, 255, 0, 10, 1, 2, 3, 4, // flags E, G-PDU, length, TEID
            0, 0, 0, 0x85, // sequence and N-PDU unused, next: PDU Session Container
            1, 0x10, 9, 0, // one unit of four octets, uplink, QFI, no more
            0x45, 0x00,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for sequence in [None, Some(7)] {
            for container in [
                None,
                Some(Container {
                    pdu_type: 0,
                    qfi: 63,
                }),
            ] {
                let mut out = Vec::new();
                write(&mut out, message::G_PDU, 5, sequence, container, b"body");
                let read = parse(&out).unwrap();
                assert_eq!(
                    (read.sequence, read.container, read.body),
                    (sequence, container, &b"body"[..])
                );
            }
        }
    }

    #[test]
    fn an_extension_that_is_not_known_is_walked_over() {
        let datagram = [
            0x34, 255, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0x20, // next: service class indicator
            1, 0, 0, 0x85, 2, 0, 5, 0, 0, 0, 0, 0, 0x60,
        ];
        let read = parse(&datagram).unwrap();
        assert_eq!(
            read.container,
            Some(Container {
                pdu_type: 0,
                qfi: 5
            })
        );
        assert_eq!(read.body, [0x60]);
    }

    #[test]
    fn every_truncation_and_a_wrong_version_are_refused() {
        let mut whole = Vec::new();
        write(
            &mut whole,
            message::G_PDU,
            1,
            Some(1),
            Some(Container::uplink(1)),
            b"x",
        );
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "{end} octets");
        }
        whole[0] = 0x48;
        assert_eq!(parse(&whole), None);
    }

    #[test]
    fn a_zero_length_extension_ends_the_walk() {
        let datagram = [0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 0, 0, 0, 0x85];
        assert_eq!(parse(&datagram), None);
    }

    #[test]
    fn error_indications_are_read() {
        let datagram = error_indication(77, Ipv4Addr::new(10, 3, 0, 1));
        let read = parse(&datagram).unwrap();
        let told = parse_error_indication(read.body).unwrap();
        assert_eq!(told, (77, Ipv4Addr::new(10, 3, 0, 1).into()));
        assert_eq!(parse_error_indication(&read.body[..8]), None);
    }
}
