//! Refusals.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ErrorBody {
    /// Reason for people.
    pub error: String,
}
