//! SMFs, their holdings, and applications that they provisioned.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An SMF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PeerReport {
    /// Node ID (TS 29.244, 8.2.38).
    pub node_id: String,
    /// IP address and UDP port of N4.
    pub address: String,
    /// `up` or `silent`: its sessions still forward.
    pub state: String,
    /// The peer's Recovery Time Stamp, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_time_stamp: Option<u32>,
    /// Sessions that it established.
    pub sessions: u64,
}

/// Holdings of an SMF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SmfReport {
    /// Absent: emergency sessions, of whatever SMF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// `up`, or `silent`: it does not answer, its sessions still forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Seconds since its last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<u64>,
    /// `sessions`; `entries`, `rules`, `framed` and `meters` of the tables; `pfd_applications`; `guaranteed_bps`, of each capacity.
    pub parts: Vec<PartReport>,
}

/// Part of something that there is for all SMFs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PartReport {
    /// Name of the resource.
    pub of: String,
    /// With `guaranteed_bps`: of which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<String>,
    /// In use by this SMF.
    pub held: u64,
    /// Guaranteed share, which others cannot take; the SMFs of a set have it together.
    pub share: u64,
    /// All that there is.
    pub whole: u64,
}

/// An application with its Packet Flow Descriptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ApplicationReport {
    /// Application ID (TS 29.244, 8.2.6).
    pub application_id: String,
    /// Node IDs of the SMFs whose it is: the one that provisioned it, or those of its set.
    pub smfs: Vec<String>,
    /// Properties of all its PFDs.
    pub properties: Vec<PfdReport>,
}

/// One property of a Packet Flow Description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct PfdReport {
    /// Number of the PFD within the application; properties of one number belong together.
    pub pfd: u32,
    /// `flow`, `url`, `domain` or `custom`.
    pub kind: String,
    /// Flow description, URL, domain name or custom content (TS 29.244, 8.2.39).
    pub text: String,
}
