//! Octets of a record that cannot be read, and the front that all records have.

use crate::base::ids::RuleId;
use crate::base::octets::Malformed;

/// Octets that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Beyond our bound.
    #[error("a record of {octets} octets, more than {most}")]
    TooLong {
        /// Its octets.
        octets: usize,
        /// Our bound.
        most: usize,
    },
    /// Of another version of this program.
    #[error("a record of version {version}, not {ours}")]
    Version {
        /// As it says.
        version: u16,
        /// As we write it.
        ours: u16,
    },
    /// Of a later version of this program.
    #[error("a record with a field of tag {0}, which is not known")]
    UnknownField(u8),
    /// Of a later version of this program.
    #[error("a record with a rule that has what is not known: {rule}, tag {tag}")]
    UnknownAttribute {
        /// The rule.
        rule: RuleId,
        /// Among those of a rule of this kind, or of its SDF filters.
        tag: u8,
    },
    /// Cut, torn or of something else.
    #[error("no record, or not the whole of one")]
    Malformed,
    /// Its parts contradict each other.
    #[error("a record of something that cannot be: {0}")]
    Impossible(&'static str),
}

impl From<Malformed> for RecordError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The octets behind the version, if it is ours, of a record that is not too long.
pub(crate) fn behind_version(octets: &[u8], ours: u16, most: usize) -> Result<&[u8], RecordError> {
    if octets.len() > most {
        let octets = octets.len();
        return Err(RecordError::TooLong { octets, most });
    }
    let (version, rest) = octets.split_first_chunk().ok_or(RecordError::Malformed)?;
    match u16::from_be_bytes(*version) {
        version if version == ours => Ok(rest),
        version => Err(RecordError::Version { version, ours }),
    }
}

/// Refuses what cannot be.
pub(crate) fn hold(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}
