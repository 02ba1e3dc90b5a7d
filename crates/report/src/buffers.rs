//! Packets that wait for idle UEs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fill::Fill;

/// Packets that wait for idle UEs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BuffersBody {
    /// All sessions together.
    #[serde(flatten)]
    pub totals: BufferTotals,
    /// Sessions for which packets wait, those first that have waited longest; at most 10000.
    pub waiting: Vec<BufferReport>,
}

/// Packets that wait for idle UEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BufferTotals {
    /// Sessions for which some do.
    pub sessions: Fill,
    /// Packets.
    pub packets: Fill,
    /// Octets of memory.
    pub bytes: Fill,
    /// Packets that have come to wait, ever.
    pub taken: u64,
    /// Of these, sent.
    pub released: u64,
    /// Of these, lost: drop reasons say why.
    pub lost: u64,
}

/// A session for which packets wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BufferReport {
    /// Ours, hexadecimal.
    pub seid: String,
    /// PDRs that took them.
    pub pdrs: Vec<u16>,
    /// Packets that wait.
    pub packets: u64,
    /// Octets of their frames.
    pub bytes: u64,
    /// Milliseconds that the first of them has waited.
    pub age_ms: u64,
}
