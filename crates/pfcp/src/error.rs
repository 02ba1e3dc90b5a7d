//! Errors of messages, and the one place that says how a peer is told (TS 29.244, 7.6).

use std::fmt;

use crate::{Cause, IeType, MessageType};

/// Why a message could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The innermost IE at fault; for a missing IE, the IE that is missing. `None`: the header.
    pub ie: Option<IeType>,
    /// Beginning of the IE, in octets from the start of the datagram. For a missing IE, beginning of the
    /// IEs that it should have been among.
    pub offset: usize,
    /// Kind of error, with what was expected and found.
    pub kind: ErrorKind,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another version of PFCP (7.6.2); the answer is a Version Not Supported Response.
    Version {
        /// Version of the peer; this side speaks 1.
        found: u8,
    },
    /// The datagram ends inside the header (7.6.3): there is nothing to answer.
    Header {
        /// Octets that the header takes.
        expected: usize,
        /// Octets that there are.
        found: usize,
    },
    /// The Message Length does not fit the datagram (7.6.3).
    MessageLength {
        /// Octets after the first four that the datagram has, or that the header needs.
        expected: usize,
        /// Value of the Message Length field.
        found: usize,
    },
    /// A message was given to the view of another.
    MessageType {
        /// Message that the view decodes.
        expected: MessageType,
        /// Message that the header names.
        found: MessageType,
    },
    /// An IE runs past the end of what encloses it (7.6.7).
    Truncated {
        /// Octets that the IE needs, its header included.
        expected: usize,
        /// Octets that are left.
        found: usize,
    },
    /// The value of an IE is too short for what its flags announce (7.6.7).
    Length {
        /// Octets needed.
        expected: usize,
        /// Octets in the value.
        found: usize,
    },
    /// A mandatory IE is absent (7.6.6).
    MandatoryMissing,
    /// A value that is reserved or contradicts itself (7.6.8).
    Value {
        /// Description of a right value.
        expected: &'static str,
        /// The octets or flags at fault, as a number.
        found: u64,
    },
}

impl Error {
    /// The cause that tells the peer (8.2.1). The only mapping from decoding errors to causes.
    pub fn cause(&self) -> Cause {
        match self.kind {
            ErrorKind::MandatoryMissing => Cause::MANDATORY_IE_MISSING,
            ErrorKind::Header { .. }
            | ErrorKind::MessageLength { .. }
            | ErrorKind::Truncated { .. }
            | ErrorKind::Length { .. } => Cause::INVALID_LENGTH,
            ErrorKind::Value { .. } => Cause::MANDATORY_IE_INCORRECT,
            ErrorKind::Version { .. } | ErrorKind::MessageType { .. } => Cause::REQUEST_REJECTED,
        }
    }

    /// The Offending IE that goes with the cause (8.2.22).
    pub fn offending_ie(&self) -> Option<IeType> {
        self.ie
    }

    /// The same error, of a datagram in which this message begins `octets` further on.
    pub fn shifted(mut self, octets: usize) -> Self {
        self.offset = self.offset.saturating_add(octets);
        self
    }

    pub(crate) fn header(offset: usize, kind: ErrorKind) -> Self {
        Self {
            ie: None,
            offset,
            kind,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ie {
            Some(ie) => write!(
                f,
                "{ie} (IE {}) at octet {}: {}",
                ie.0, self.offset, self.kind
            ),
            None => write!(f, "header at octet {}: {}", self.offset, self.kind),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => write!(f, "expected version 1, found {found}"),
            Self::Header { expected, found } => {
                write!(f, "expected a header of {expected} octets, found {found}")
            }
            Self::MessageLength { expected, found } => {
                write!(f, "expected message length {expected}, found {found}")
            }
            Self::MessageType { expected, found } => {
                write!(f, "expected {expected}, found {found}")
            }
            Self::Truncated { expected, found } => {
                write!(
                    f,
                    "expected {expected} octets with the IE header, found {found}"
                )
            }
            Self::Length { expected, found } => {
                write!(
                    f,
                    "expected a value of at least {expected} octets, found {found}"
                )
            }
            Self::MandatoryMissing => write!(f, "expected this mandatory IE, found none"),
            Self::Value { expected, found } => write!(f, "expected {expected}, found {found:#x}"),
        }
    }
}

impl std::error::Error for Error {}
