//! Packets of one user, live.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One line of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// Session, TEIDs and addresses that are followed from now on.
    Following(Following),
    /// One of them.
    Packet(Box<Packet>),
    /// So many of them could not be told of.
    Lost {
        /// Since the trace began.
        packets: u64,
    },
    /// No more lines follow.
    Ended {
        /// `count`, `seconds`, `shutdown`, or `data_path` when the kernel refuses programs that know of traces.
        why: Cow<'static, str>,
    },
}

/// Marks that packets are known by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Following {
    /// SEID; absent while no session has this TEID or UE address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// TEIDs, hexadecimal.
    pub teids: Vec<String>,
    /// Addresses, and prefixes of IPv6.
    pub ue: Vec<String>,
    /// TEIDs and addresses that found no room: others are followed, too.
    pub left_out: usize,
}

/// A packet and its fate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Packet {
    /// Seconds since 1970, with nanoseconds.
    pub time: String,
    /// Name of the interface that it came in on.
    pub interface: String,
    /// `uplink` or `downlink`.
    pub direction: Cow<'static, str>,
    /// `forwarded`, `dropped`, `answered`, `slow_path`, `buffered` or `to_kernel`.
    pub outcome: Cow<'static, str>,
    /// Why it was dropped or answered, as in the metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// The reason for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<Cow<'static, str>>,
    /// SEID, where a session has the TEID or UE address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The PDR that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdr: Option<u16>,
    /// The predefined rule that the PDR activates and the packet met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predefined: Option<String>,
    /// Of the PDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<u32>,
    /// Apply Action of the FAR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Of the PDR.
    pub qers: Vec<u32>,
    /// Of its tunnel, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teid: Option<String>,
    /// Of its PDU Session Container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qfi: Option<u8>,
    /// Octets of the frame.
    pub length: u32,
    /// Offset of the user's IP packet in the frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_offset: Option<u16>,
    /// The frame as it came in, hexadecimal, at most 256 octets of it.
    pub frame: String,
}
