//! Lack of room, for which a request was refused.

use std::fmt;

use compiled::{CapacityId, NoRoom, Resource};

/// Lack of room, for which a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The table, as the metrics name it.
    pub table: &'static str,
    /// The shared resource, if it is one.
    pub resource: Option<Resource>,
    /// There is some left, which others are sure of.
    pub is_kept: bool,
}

impl Shortage {
    pub(crate) fn of(resource: Resource, is_kept: bool) -> Self {
        Self {
            table: resource.name(),
            resource: Some(resource),
            is_kept,
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_kept {
            true => write!(f, "{}: what is left is of others' shares", self.table),
            false => write!(f, "{}: full", self.table),
        }
    }
}

impl From<NoRoom> for Shortage {
    fn from(full: NoRoom) -> Self {
        let mut counted = Resource::COUNTED.into_iter();
        let resource = match full.capacity {
            CapacityId::NONE => counted.find(|of| of.name() == full.table),
            capacity => Some(Resource::Guaranteed(capacity)),
        };
        Self {
            table: full.table,
            resource,
            is_kept: full.is_kept,
        }
    }
}
