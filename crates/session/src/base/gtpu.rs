//! GTP-U messages beside G-PDUs (TS 29.281, 7.2 and 7.3): what gNBs and other UPFs say of tunnels
//! and of themselves, read from packets as the data path hands them up; and our Echo Requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Two ends of a path: theirs, ours.
pub type Ends = (IpAddr, IpAddr);

/// TEID, host order, and address of its end.
pub(crate) type Tunnel = (u32, IpAddr);

/// Types of messages (table 6.1-1).
const ECHO_REQUEST: u8 = 1;
const ECHO_RESPONSE: u8 = 2;
const ERROR_INDICATION: u8 = 26;

/// Types of IEs (table 8.1-1).
const RECOVERY: u8 = 14;
const TEID_DATA_I: u8 = 16;
const PEER_ADDRESS: u8 = 133;
const RECOVERY_TIME_STAMP: u8 = 231;

/// Octets of the header (5.1), and of what E, S and PN add to it.
const HEADER: usize = 8;
const OPTIONAL: usize = 4;
/// Extension headers that are walked.
const EXTENSIONS_MAX: usize = 16;
/// The UDP port of GTP-U.
pub const PORT: u16 = 2152;

/// A message, and who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Source address of the packet.
    pub from: IpAddr,
    /// Its content.
    pub message: Message,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Echo Response (7.2.2).
    EchoResponse {
        /// Sequence number of the request.
        sequence: u16,
        /// Recovery Time Stamp (8.8): when the sender started. The restart counter of the Recovery
        /// IE has no meaning in GTP-U (8.2).
        recovery: Option<u32>,
    },
    /// Error Indication (7.3.1): the sender has no such tunnel.
    ErrorIndication {
        /// TEID of the G-PDU that met nobody.
        teid: u32,
        /// Address that it had been sent to.
        peer: IpAddr,
    },
    /// Anything else.
    Other,
}

/// Reads an IP packet that holds a GTP-U message. `None`: it does not.
pub fn read_packet(packet: &[u8]) -> Option<Received> {
    const UDP: usize = 8;
    let (from, payload) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 0x0f) * 4;
            let from: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            (IpAddr::V4(from.into()), packet.get(header.max(20) + UDP..)?)
        }
        6 => {
            let from: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            (IpAddr::V6(from.into()), packet.get(40 + UDP..)?)
        }
        _ => return None,
    };
    let message = read(payload)?;
    Some(Received { from, message })
}

/// Reads a GTP-U message (5.1). `None`: it is none, or not whole.
pub fn read(octets: &[u8]) -> Option<Message> {
    let (&[flags, kind, l0, l1, ..], rest) = octets.split_first_chunk::<HEADER>()?;
    if flags & 0xf0 != 0x30 {
        return None;
    }
    let body = rest.get(..usize::from(u16::from_be_bytes([l0, l1])))?;
    let (sequence, ies) = optional(flags, body)?;
    match kind {
        ECHO_RESPONSE => Some(Message::EchoResponse {
            sequence,
            recovery: find(ies, RECOVERY_TIME_STAMP)
                .and_then(|value| value.get(..4)?.try_into().ok())
                .map(u32::from_be_bytes),
        }),
        ERROR_INDICATION => {
            let teid = find(ies, TEID_DATA_I)?.try_into().ok()?;
            Some(Message::ErrorIndication {
                teid: u32::from_be_bytes(teid),
                peer: address(find(ies, PEER_ADDRESS)?)?,
            })
        }
        _ => Some(Message::Other),
    }
}

/// The sequence number, and what follows header and extension headers.
fn optional(flags: u8, body: &[u8]) -> Option<(u16, &[u8])> {
    if flags & 0x07 == 0 {
        return Some((0, body));
    }
    let (&[s0, s1, _, next], mut rest) = body.split_first_chunk::<OPTIONAL>()?;
    let sequence = if flags & 0x02 != 0 {
        u16::from_be_bytes([s0, s1])
    } else {
        0
    };
    let mut next = if flags & 0x04 != 0 { next } else { 0 };
    for _ in 0..EXTENSIONS_MAX {
        if next == 0 {
            return Some((sequence, rest));
        }
        let length = usize::from(*rest.first()?) * 4;
        next = *rest.get(length.checked_sub(1)?)?;
        rest = rest.get(length..)?;
    }
    None
}

/// The value of the first IE of this type (8.1): of fixed length below 128, else with a length.
fn find(mut ies: &[u8], wanted: u8) -> Option<&[u8]> {
    while let Some((&kind, rest)) = ies.split_first() {
        let (value, rest) = if kind >= 0x80 {
            let (length, rest) = rest.split_first_chunk()?;
            rest.split_at_checked(u16::from_be_bytes(*length).into())?
        } else {
            rest.split_at_checked(fixed_length(kind)?)?
        };
        if kind == wanted {
            return Some(value);
        }
        ies = rest;
    }
    None
}

/// Octets of the value of an IE without a length; `None`: unknown, and so is where the next begins.
fn fixed_length(kind: u8) -> Option<usize> {
    match kind {
        RECOVERY => Some(1),
        TEID_DATA_I => Some(4),
        _ => None,
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(v4).into());
    }
    let v6: [u8; 16] = value.try_into().ok()?;
    Some(Ipv6Addr::from(v6).into())
}

/// An Echo Request (7.2.1).
pub(crate) fn echo_request(sequence: u16) -> [u8; HEADER + OPTIONAL] {
    let [s0, s1] = sequence.to_be_bytes();
    [0x32, ECHO_REQUEST, 0, 4, 0, 0, 0, 0, s0, s1, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_indication_names_the_tunnel() {
        let ies = [16, 1, 2, 3, 4, 133, 0, 4, 10, 3, 0, 11];
        let plain = [&[0x30, 26, 0, 12, 0, 0, 0, 0][..], &ies].concat();
        let told = Some(Message::ErrorIndication {
            teid: 0x0102_0304,
            peer: Ipv4Addr::new(10, 3, 0, 11).into(),
        });
        assert_eq!(read(&plain), told);
        // With a sequence number, and with a UDP Port extension (5.2.2.1) before the IEs.
        let sequence = [&[0x32, 26, 0, 16, 0, 0, 0, 0, 0, 9, 0, 0][..], &ies].concat();
        assert_eq!(read(&sequence), told);
        let extended = [
            &[0x36, 26, 0, 20, 0, 0, 0, 0, 0, 9, 0, 0x40, 1, 8, 0x68, 0][..],
            &ies,
        ]
        .concat();
        assert_eq!(read(&extended), told);
        let v6 = [
            &[0x30, 26, 0, 24, 0, 0, 0, 0][..],
            &ies[..5],
            &[133, 0, 16],
            &[0xfd; 16],
        ];
        assert!(matches!(
            read(&v6.concat()),
            Some(Message::ErrorIndication {
                peer: IpAddr::V6(_),
                ..
            })
        ));
        for cut in 0..plain.len() {
            assert_eq!(read(&plain[..cut]), None, "{cut} octets");
        }
    }

    #[test]
    fn echo_responses_with_and_without_a_time_stamp() {
        let plain = [0x32, 2, 0, 6, 0, 0, 0, 0, 0, 7, 0, 0, 14, 0];
        let said = |recovery| {
            Some(Message::EchoResponse {
                sequence: 7,
                recovery,
            })
        };
        assert_eq!(read(&plain), said(None));
        let mut stamped = plain.to_vec();
        stamped[3] += 7;
        stamped.extend([231, 0, 4, 0xe9, 0, 0, 1]);
        assert_eq!(read(&stamped), said(Some(0xe900_0001)));
        assert_eq!(read(&[0x30, 254, 0, 0, 0, 0, 0, 1]), Some(Message::Other));
        assert_eq!(read(&[0x20, 2, 0, 0, 0, 0, 0, 0]), None, "GTP prime");
    }

    #[test]
    fn packets_of_both_families_tell_who_speaks() {
        let message = [0x32, 2, 0, 6, 0, 0, 0, 0, 0, 7, 0, 0, 14, 0];
        let mut v4 = vec![0; 28];
        (v4[0], v4[12], v4[15]) = (0x45, 10, 11);
        v4.extend(message);
        let mut v6 = vec![0; 48];
        (v6[0], v6[8], v6[23]) = (0x60, 0xfd, 1);
        v6.extend(message);
        let from = |packet: &[u8]| read_packet(packet).map(|received| received.from.to_string());
        assert_eq!(from(&v4).as_deref(), Some("10.0.0.11"));
        assert_eq!(from(&v6).as_deref(), Some("fd00::1"));
        for packet in [&v4, &v6] {
            for cut in 0..packet.len() {
                assert_eq!(read_packet(&packet[..cut]), None);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_octets_are_read_or_refused(octets: Vec<u8>) {
            let _ = read_packet(&octets);
            let _ = read(&octets);
        }
    }
}
