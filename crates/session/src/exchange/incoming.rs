//! A request of an SMF, as its answer needs it.

use std::net::SocketAddr;

use pfcp::MessageType;

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
    /// For the log.
    pub(crate) fn said(&self) -> Said {
        Said {
            message: self.message_type,
            sequence: self.sequence,
            seid: self.seid,
        }
    }
}
