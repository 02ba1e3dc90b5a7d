//! Resources that all sessions share, and how much of them each holds.

use smallvec::SmallVec;

use crate::ids::{CapacityId, QerId};

/// Something that all sessions share, and that may run short. One more is one line here, in [`Self::COUNTED`] and in
/// [`Self::name`], and what [`Tables`](crate::Tables) say of it.
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

    /// Replace the part that is held as `before` by `after`.
    pub fn change(&mut self, before: &Self, after: &Self) {
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

    /// Nothing of any of them.
    pub fn is_nothing(&self) -> bool {
        self.0.iter().all(|held| *held == 0)
    }
}

/// The tables cannot take a change; nothing of it was applied. Answered with cause 75.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room in the {table} table")]
pub struct NoRoom {
    /// Which one, as the metrics name it; `capacities`: what is guaranteed would be more than there is.
    pub table: &'static str,
    /// With `capacities`: whose guaranteed rate it is that is too much.
    pub qer: Option<QerId>,
    /// With `capacities`: which one is short.
    pub capacity: CapacityId,
    /// There is room, but not for this session: [`Compiled::more`](crate::Compiled::more).
    pub is_kept: bool,
}

impl NoRoom {
    /// In this table.
    pub const fn of(table: &'static str) -> Self {
        Self {
            table,
            qer: None,
            capacity: CapacityId::NONE,
            is_kept: false,
        }
    }

    /// In this table, what is left of which is kept for others.
    pub const fn kept(table: &'static str) -> Self {
        Self {
            is_kept: true,
            ..Self::of(table)
        }
    }
}
