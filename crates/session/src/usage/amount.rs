//! Amounts of traffic.

use compiled::Direction;
use serde::{Deserialize, Serialize};

/// Octets and packets, uplink and downlink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Octets of inner IP packets.
    pub bytes: [u64; 2],
    /// Packets.
    pub packets: [u64; 2],
}

impl Amount {
    /// Both.
    pub(crate) fn plus(self, more: Self) -> Self {
        let sum = |a: [u64; 2], b: [u64; 2]| [0, 1].map(|way| a[way].saturating_add(b[way]));
        Self {
            bytes: sum(self.bytes, more.bytes),
            packets: sum(self.packets, more.packets),
        }
    }

    /// Whether nothing came.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// The place of a direction in an [`Amount`].
pub(crate) fn place(direction: Direction) -> usize {
    match direction {
        Direction::Uplink => 0,
        Direction::Downlink => 1,
    }
}
