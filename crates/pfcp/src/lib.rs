//! PFCP wire format (TS 29.244 Release 16): decoding without copying or allocating, encoding into a
//! buffer. No I/O, no clock, no unsafe.
//!
//! [`decode`] splits a datagram into header and IEs. A view of [`message`] then decodes what the
//! message holds in one pass, whatever the order; grouped IEs that repeat are decoded as they are
//! walked. An [`Error`] names the IE, where it lies, what was expected and what was found.
//!
//! ```
//! use pfcp::message::HeartbeatRequest;
//!
//! let datagram = [0x20, 1, 0, 12, 0, 0, 9, 0, 0, 96, 0, 4, 0xe9, 0xaf, 0x12, 0x34];
//! let message = pfcp::decode(&datagram)?;
//! let request = HeartbeatRequest::decode(&message)?;
//! assert_eq!(message.header.sequence, 9);
//! assert_eq!(request.recovery_time_stamp.0, 0xe9af1234);
//! # Ok::<(), pfcp::Error>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod header;
pub mod ie;
mod ie_type;
mod ies;
pub mod message;
mod types;
mod writer;

pub use error::{Error, ErrorKind};
pub use header::{Header, Message, NODE_HEADER, SESSION_HEADER, VERSION, decode};
pub use ie_type::IeType;
pub use ies::{FromIe, Ie, Ies, IesIter, Repeated, RepeatedIter};
pub use types::{Cause, MessageType};
pub use writer::{ToIe, Writer};
