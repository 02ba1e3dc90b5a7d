//! Identifiers, as the rules of a session name things.

use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

/// Network instance, an index into the configured list (TS 29.244, 8.2.4).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct NiId(pub u16);

impl NiId {
    /// Of rules that name none.
    pub const DEFAULT: Self = Self(0);
}

/// PDR ID (TS 29.244, 8.2.36).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PdrId(pub u16);

/// Place of a predefined rule in the configuration, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PredefinedId(NonZeroU16);

impl PredefinedId {
    /// Of the rule in this place, from 0 on. `None`: there are no so many.
    pub fn at(place: usize) -> Option<Self> {
        Self::new(u16::try_from(place).ok()?.checked_add(1)?)
    }

    /// From its number, as [`Self::get`] tells it.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// The place, counted from 1 on.
    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// See [`Self::at`].
    pub fn place(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// Place of a forwarding policy in the configuration, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyId(pub u8);

impl PolicyId {
    /// All that there may be, as policies stand in the configuration.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }

    /// The number under which the tables have the routes of this policy for packets of a network instance: behind those of all
    /// network instances, of which there are so many.
    pub fn routes_for(self, ni: NiId, instances: u16) -> NiId {
        let behind = instances.saturating_mul(u16::from(self.0).saturating_add(1));
        NiId(behind.saturating_add(ni.0))
    }
}

/// QER ID (TS 29.244, 8.2.75).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QerId(pub u32);

/// QoS Flow Identifier, 0..=63 (TS 38.415, 5.5.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub struct Qfi(u8);

impl TryFrom<u8> for Qfi {
    type Error = &'static str;

    fn try_from(value: u8) -> Result<Self, Self::Error> {
        Self::new(value).ok_or("a QFI above 63")
    }
}

impl Qfi {
    /// `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }
    /// The six bits.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Some QFIs: bit n is QFI n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QfiSet(pub u64);

impl QfiSet {
    /// One more.
    pub fn insert(&mut self, qfi: Qfi) {
        self.0 |= 1 << qfi.0;
    }
    /// Whether it is one of them.
    pub const fn contains(self, qfi: Qfi) -> bool {
        self.0 >> qfi.0 & 1 == 1
    }
    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The only one; `None` when there are more, or none.
    pub const fn single(self) -> Option<Qfi> {
        if self.0.is_power_of_two() {
            Some(Qfi(self.0.trailing_zeros() as u8))
        } else {
            None
        }
    }
    /// Each, in rising order.
    pub fn iter(self) -> impl Iterator<Item = Qfi> {
        (0..64).map(Qfi).filter(move |qfi| self.contains(*qfi))
    }
}

/// A capacity: its place in the list that the tables were given, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CapacityId(pub u8);

impl CapacityId {
    /// There is none.
    pub const NONE: Self = Self(0);
}
