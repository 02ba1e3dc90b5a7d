//! Uplink and downlink.

use serde::{Deserialize, Serialize};

/// Which way packets of an entry travel, for counters and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// From access.
    Uplink,
    /// To access.
    Downlink,
}
