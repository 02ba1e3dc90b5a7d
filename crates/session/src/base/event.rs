//! Events that operators read of in the log, in terms of peers and sessions. How many lines anybody may cause there is not the
//! core's affair.

use std::net::{IpAddr, SocketAddr};

use pfcp::{Cause, Header, IeType, MessageType};

use crate::base::ids::RuleId;
use crate::base::node_id::NodeId;
use crate::base::refusal::GivenName;
use crate::base::shortage::Shortage;

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An association stands.
    PeerUp {
        /// Node ID of the SMF.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
        /// Whether we asked for it.
        by_us: bool,
        /// Sessions of an earlier association that were kept.
        retained: usize,
    },
    /// An association is over, its sessions are being deleted.
    PeerGone {
        /// Node ID of the SMF.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
        /// How it ended.
        why: Gone,
        /// Sessions that go with it.
        sessions: usize,
    },
    /// N1 heartbeats in a row went unanswered. Sessions keep forwarding for now.
    PeerSilent {
        /// Node ID of the SMF.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
        /// Its sessions.
        sessions: usize,
    },
    /// A silent peer answers again; its sessions are as they were.
    PeerBack {
        /// Node ID of the SMF.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
    },
    /// A Recovery Time Stamp changed: the peer lost its sessions, so they are being deleted here.
    PeerRestarted {
        /// Node ID of the SMF.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
        /// Sessions that are deleted.
        sessions: usize,
    },
    /// All sessions that a peer left behind are deleted.
    SessionsDeleted {
        /// How many since there was last nothing to delete.
        sessions: usize,
    },
    /// An SMF deleted sessions by what they have in common.
    SetDeleted {
        /// Source address of the request.
        from: SocketAddr,
        /// How many sessions.
        sessions: usize,
    },
    /// An SMF that does not answer has lost a session beyond its share, because another one needed the room.
    SessionDisplaced {
        /// Node ID of that SMF.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
        /// Our SEID.
        seid: u64,
        /// The SMF's.
        cp_seid: u64,
        /// Table without room, as the metrics name it.
        table: &'static str,
    },
    /// PFDs of applications have changed, and are too many for these sessions, whose PDRs keep the former ones. Once for
    /// all sessions.
    PfdsWithoutRoom {
        /// How many sessions.
        sessions: usize,
    },
    /// A GTP-U peer that answered before answers Echo Requests no more.
    PathFailed {
        /// Its address.
        remote: IpAddr,
    },
    /// It answers again.
    PathRecovered {
        /// Its address.
        remote: IpAddr,
    },
    /// Its Recovery Time Stamp has changed.
    GtpuPeerRestarted {
        /// Its address.
        remote: IpAddr,
    },
    /// A configured SMF did not answer, or refused; asked again later.
    SetupFailed {
        /// Address of that SMF.
        address: SocketAddr,
        /// Its cause; `None`: no answer.
        cause: Option<Cause>,
    },
    /// A request was answered with an error.
    Refused {
        /// Its source address.
        from: SocketAddr,
        /// The request.
        request: Said,
        /// Our cause (TS 29.244, 8.2.1).
        cause: Cause,
        /// The IE at fault.
        offending_ie: Option<IeType>,
        /// The rule at fault.
        failed_rule: Option<RuleId>,
        /// The SMF's SEID of the session, as in the answer; 0: not known, or no session's.
        cp_seid: u64,
        /// The table or share without room.
        shortage: Option<Shortage>,
        /// Name in the request that the configuration lacks.
        unknown: Option<GivenName>,
    },
    /// Something that could not be answered was ignored.
    Ignored {
        /// Its source address.
        from: SocketAddr,
        /// Its header, where it is a message that we know.
        message: Option<Said>,
        /// Why.
        why: Ignored,
    },
    /// A Recovery Time Stamp older than the one that we know was ignored: [`Ignored::StaleRecovery`].
    StaleRecovery {
        /// Node ID of its sender.
        node_id: NodeId,
        /// Address that our requests go to.
        address: SocketAddr,
        /// The stamp in its message.
        recovery: u32,
        /// The stamp that we know.
        known: u32,
    },
}

/// A message, as its header has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its type.
    pub message: MessageType,
    /// Its sequence number.
    pub sequence: u32,
    /// The SEID that it was sent to, which is one of ours if there is such a session; 0 or `None`: to none.
    pub seid: Option<u64>,
}

impl From<&Header> for Said {
    fn from(header: &Header) -> Self {
        Self {
            message: header.message_type,
            sequence: header.sequence,
            seid: header.seid,
        }
    }
}

/// How an association ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// The SMF released it.
    Released,
    /// The SMF set it up anew, without asking for its sessions to be kept.
    Replaced,
    /// Silent for longer than its sessions are kept.
    Silent,
    /// Silent and without sessions, when another SMF needed its place.
    Displaced,
    /// We are shutting down and it did not release the association in time.
    ShutDown,
}

/// Why a datagram was ignored. Each has its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ignored {
    /// Shorter than a PFCP header, or a response with a wrong length.
    Malformed,
    /// A message type that we do not know.
    UnknownType,
    /// A response to a request that is not, or no longer, outstanding.
    UnmatchedResponse,
    /// A message without an answer that could carry a cause lacks what it must have.
    Incomplete,
    /// A Recovery Time Stamp older than the one we know: a message overtaken on its way
    /// (TS 23.007, 19A).
    StaleRecovery,
    /// A request that is being worked on.
    InProgress,
    /// Messages beyond the 128th of one datagram.
    BundleTooLong,
    /// Its sender may not speak PFCP with us.
    NotAllowed,
    /// An Association Setup Request under the Node ID of an SMF that is elsewhere, and not known to be gone.
    NodeIdTaken,
    /// More messages of senders without association than their share of N4.
    StrangerDropped,
    /// It came in by an interface of the data network.
    NotN4,
    /// An Association Setup Response under our own Node ID.
    OwnNodeId,
}

impl Ignored {
    /// All, in order.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::UnknownType,
        Self::UnmatchedResponse,
        Self::Incomplete,
        Self::StaleRecovery,
        Self::InProgress,
        Self::BundleTooLong,
        Self::NotAllowed,
        Self::NodeIdTaken,
        Self::StrangerDropped,
        Self::NotN4,
        Self::OwnNodeId,
    ];

    /// As metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownType => "unknown_type",
            Self::UnmatchedResponse => "unmatched_response",
            Self::Incomplete => "incomplete",
            Self::StaleRecovery => "stale_recovery",
            Self::InProgress => "in_progress",
            Self::BundleTooLong => "bundle_too_long",
            Self::NotAllowed => "not_allowed",
            Self::NodeIdTaken => "node_id_taken",
            Self::StrangerDropped => "stranger_dropped",
            Self::NotN4 => "not_n4",
            Self::OwnNodeId => "own_node_id",
        }
    }
}
