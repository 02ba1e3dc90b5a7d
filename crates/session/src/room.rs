//! Resources that all sessions share, and how much of them each holds.

use std::fmt;

use smallvec::SmallVec;

/// A capacity: its place in the list that the tables were given, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CapacityId(pub u8);

impl CapacityId {
    /// There is none.
    pub const NONE: Self = Self(0);
}

/// Something that all sessions share, and that may run short. One more is one line here, in [`Self::COUNTED`] and in
/// [`Self::name`], and what [`Tables`](crate::compiled::Tables) say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// PFCP sessions.
    Sessions,
    /// Lines of PDRs that are not the slot of a TEID.
    Entries,
    /// Places of SDF filters.
    Rules,
    /// Places of framed routes and duplicates.
    Framed,
    /// Meters that several PDRs share.
    Meters,
    /// Bits per second that are guaranteed of a capacity (GBR).
    Guaranteed(CapacityId),
}

impl Resource {
    /// Resources that there are once.
    pub const COUNTED: [Self; 5] = [
        Self::Sessions,
        Self::Entries,
        Self::Rules,
        Self::Framed,
        Self::Meters,
    ];

    /// Lines and places of tables.
    pub const OF_TABLES: [Self; 4] = [Self::Entries, Self::Rules, Self::Framed, Self::Meters];

    /// As metrics, logs and configuration name the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Entries => "entries",
            Self::Rules => "rules",
            Self::Framed => "framed",
            Self::Meters => "meters",
            Self::Guaranteed(_) => "capacities",
        }
    }

    fn place(self) -> usize {
        match self {
            Self::Sessions => 0,
            Self::Entries => 1,
            Self::Rules => 2,
            Self::Framed => 3,
            Self::Meters => 4,
            Self::Guaranteed(CapacityId(id)) => Self::COUNTED.len() + usize::from(id),
        }
    }
}

/// So much of each [`Resource`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding(SmallVec<[u64; 7]>);

impl Holding {
    /// So much of this one.
    pub fn of(&self, resource: Resource) -> u64 {
        self.0.get(resource.place()).copied().unwrap_or(0)
    }

    /// So much more.
    pub fn add(&mut self, resource: Resource, amount: u64) {
        let at = resource.place();
        if amount > 0 && self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        if let Some(held) = self.0.get_mut(at) {
            *held = held.saturating_add(amount);
        }
    }

    /// What was held as `before` is held as `after`.
    pub(crate) fn change(&mut self, before: &Self, after: &Self) {
        for (held, less) in self.0.iter_mut().zip(&before.0) {
            *held = held.saturating_sub(*less);
        }
        if self.0.len() < after.0.len() {
            self.0.resize(after.0.len(), 0);
        }
        for (held, more) in self.0.iter_mut().zip(&after.0) {
            *held = held.saturating_add(*more);
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.0.iter().all(|held| *held == 0)
    }
}

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
