//! Names of rules and of associations.

use std::fmt;

use compiled::{PdrId, QerId};
use serde::{Deserialize, Serialize};

/// One association of one SMF. Never used again, so that sessions which an ended association left
/// behind are not taken for those of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(crate) u32);

impl PeerId {
    /// Has what emergency sessions hold, whosever they are; those of associations begin at 1.
    pub(crate) const EMERGENCY: Self = Self(0);
}

/// One SMF, or the SMFs of a set together, which are one to us (TS 29.244, 5.22). As unique as [`PeerId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartyId(pub(crate) u32);

impl PartyId {
    /// The party of [`PeerId::EMERGENCY`].
    pub(crate) const EMERGENCY: Self = Self(0);
}

/// FAR ID (TS 29.244, 8.2.74).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FarId(pub u32);

/// URR ID (TS 29.244, 8.2.54).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UrrId(pub u32);

/// BAR ID (TS 29.244, 8.2.88).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BarId(pub u8);

/// One rule of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleId {
    /// Packet Detection Rule.
    Pdr(PdrId),
    /// Forwarding Action Rule.
    Far(FarId),
    /// QoS Enforcement Rule.
    Qer(QerId),
    /// Usage Reporting Rule.
    Urr(UrrId),
    /// Buffering Action Rule.
    Bar(BarId),
}

impl RuleId {
    /// Rule ID Type and value of a Failed Rule ID (TS 29.244, 8.2.80).
    pub fn kind_and_value(self) -> (u8, u32) {
        match self {
            Self::Pdr(id) => (0, u32::from(id.0)),
            Self::Far(id) => (1, id.0),
            Self::Qer(id) => (2, id.0),
            Self::Urr(id) => (3, id.0),
            Self::Bar(id) => (4, u32::from(id.0)),
        }
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, value) = self.kind_and_value();
        let kind = ["PDR", "FAR", "QER", "URR", "BAR"][usize::from(kind)];
        write!(f, "{kind} {value}")
    }
}
