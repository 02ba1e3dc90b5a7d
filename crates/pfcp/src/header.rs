//! The message header (TS 29.244, 7.2.2) and the frame around the IEs.

use crate::error::{Error, ErrorKind};
use crate::{Ies, MessageType};

/// The version this crate speaks.
pub const VERSION: u8 = 1;
/// Octets of a header without SEID (7.2.2.2), and of one with (7.2.2.3).
pub const NODE_HEADER: usize = 8;
/// Octets of a header with SEID (7.2.2.3).
pub const SESSION_HEADER: usize = 16;
/// Octets that the Message Length does not count (7.2.2.4.2).
pub(crate) const UNCOUNTED: usize = 4;

pub(crate) const FLAG_SEID: u8 = 0x01;
pub(crate) const FLAG_PRIORITY: u8 = 0x02;
const FLAG_FOLLOW_ON: u8 = 0x04;

/// The header of a message (7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// 1 in everything that [`decode`](crate::decode) accepts.
    pub version: u8,
    /// Type of the request or response.
    pub message_type: MessageType,
    /// Present when the S flag is set; zero is a value (7.2.2.4.2).
    pub seid: Option<u64>,
    /// 24 bits; a response repeats its request's.
    pub sequence: u32,
    /// Message Priority, 0 (highest) to 15, when the MP flag is set.
    pub priority: Option<u8>,
    /// FO flag: another message follows in the same datagram.
    pub follow_on: bool,
    /// Message Length as sent: octets after the first four.
    pub length: u16,
}

impl Header {
    /// Reads a header of any version, and says how many octets it took. Only for version 1 do the
    /// fields after the length have their meaning; [`decode`](crate::decode) refuses others.
    pub fn decode(datagram: &[u8]) -> Result<(Self, usize), Error> {
        let short = |expected| {
            let found = datagram.len();
            Error::header(0, ErrorKind::Header { expected, found })
        };
        let &[flags, message_type, l0, l1, ref rest @ ..] = datagram else {
            return Err(short(NODE_HEADER));
        };
        let (seid, tail, taken) = if flags & FLAG_SEID != 0 {
            let (seid, tail) = rest.split_first_chunk().ok_or(short(SESSION_HEADER))?;
            (Some(u64::from_be_bytes(*seid)), tail, SESSION_HEADER)
        } else {
            (None, rest, NODE_HEADER)
        };
        let &[s0, s1, s2, last, ..] = tail else {
            return Err(short(taken));
        };
        let priority = (seid.is_some() && flags & FLAG_PRIORITY != 0).then_some(last >> 4);
        let header = Self {
            version: flags >> 5,
            message_type: MessageType(message_type),
            seid,
            sequence: u32::from_be_bytes([0, s0, s1, s2]),
            priority,
            follow_on: flags & FLAG_FOLLOW_ON != 0,
            length: u16::from_be_bytes([l0, l1]),
        };
        Ok((header, taken))
    }
}

/// One message: its header and its IEs, still as they lie in the datagram.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// The IEs. Walking them finds what is wrong with them.
    pub ies: Ies<'a>,
    /// Rest of the datagram: with [`Header::follow_on`] another message (7.2.2.4.1).
    pub rest: &'a [u8],
}

/// Splits a datagram into header, IEs and rest.
///
/// Only header and lengths are checked: an error in an IE comes from the view that decodes it, when
/// the header is there to answer with.
pub fn decode(datagram: &[u8]) -> Result<Message<'_>, Error> {
    let (header, taken) = Header::decode(datagram)?;
    if header.version != VERSION {
        return Err(Error::header(
            0,
            ErrorKind::Version {
                found: header.version,
            },
        ));
    }
    let length = usize::from(header.length);
    let wrong = |expected| {
        Error::header(
            2,
            ErrorKind::MessageLength {
                expected,
                found: length,
            },
        )
    };
    let body = (datagram.get(taken..UNCOUNTED + length)).ok_or_else(|| {
        let available = datagram.len() - UNCOUNTED;
        wrong(if length > available {
            available
        } else {
            taken - UNCOUNTED
        })
    })?;
    let rest = datagram.get(UNCOUNTED + length..).unwrap_or_default();
    Ok(Message {
        header,
        ies: Ies::new(body, taken, None),
        rest,
    })
}
