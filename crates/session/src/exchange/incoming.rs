//! A request of an SMF, as its answer needs it.

use std::net::SocketAddr;

use pfcp::{Header, MessageType};

use crate::base::event::Said;
use crate::exchange::answers::Fingerprint;

/// A request, as its answer needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) from: SocketAddr,
    pub(crate) message_type: MessageType,
    pub(crate) sequence: u32,
    /// The SEID that it was sent to.
    pub(crate) seid: Option<u64>,
    /// Message Priority, which its answer repeats.
    pub(crate) priority: Option<u8>,
    pub(crate) fingerprint: Fingerprint,
}

impl Incoming {
    /// `octets`: all of the message.
    pub(crate) fn new(from: SocketAddr, header: &Header, octets: &[u8]) -> Self {
        Self {
            from,
            message_type: header.message_type,
            sequence: header.sequence,
            seid: header.seid,
            priority: header.priority,
            fingerprint: Fingerprint::new(from, octets),
        }
    }

    /// For the log.
    pub(crate) fn said(&self) -> Said {
        Said {
            message: self.message_type,
            sequence: self.sequence,
            seid: self.seid,
        }
    }
}
