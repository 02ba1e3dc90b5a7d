//! GTP-U peers: gNBs, and UPFs on N9.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A GTP-U peer that sessions send to, which is asked by Echo Requests whether it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GtpuPeerReport {
    /// Its address.
    pub address: String,
    /// Ours, that it is asked from.
    pub local: String,
    /// `up`, `silent`, or `unknown`: it has never answered, as some do not at all.
    pub state: String,
    /// Recovery Time Stamp, where it sends one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_time_stamp: Option<u32>,
}
