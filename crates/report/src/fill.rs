//! Bounded resources, and how much of them is in use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much of a bounded resource is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Fill {
    /// In use.
    pub used: u64,
    /// There may be so many.
    pub capacity: u64,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TableFill {
    /// Name, as in the metrics.
    pub table: String,
    /// Places in use.
    pub used: u64,
    /// Places.
    pub capacity: u64,
    /// Changes of sessions that it had no room for, or only what is kept for other SMFs.
    pub refused: u64,
}
