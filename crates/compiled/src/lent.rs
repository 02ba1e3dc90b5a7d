//! Sessions lent to the data path: requests that only update FARs are carried out there, by templates
//! (`datapath/n4/serve.h`).

use std::net::{IpAddr, SocketAddr};

use smallvec::SmallVec;

use crate::ids::PdrId;

/// FARs that lead into a tunnel, of one session that is lent; as many as one request may update.
pub const LENT_FARS: usize = 2;

/// PDRs of one of these.
pub const LENT_PDRS: usize = 2;

/// Templates that there may be.
pub const TEMPLATES: usize = 64;

/// ... and those of one length.
pub const TEMPLATES_OF_LENGTH: usize = 8;

/// Octets of the longest request that has one.
pub const TEMPLATE_OCTETS: usize = 256;

/// Apply Action of a FAR that leads into a tunnel (TS 29.244, 8.2.26).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LentAction {
    /// FORW.
    Forward,
    /// BUFF.
    Buffer,
    /// BUFF and NOCP.
    Notify,
}

/// State of a FAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentTarget {
    /// Apply Action.
    pub action: LentAction,
    /// Remote TEID, host order.
    pub teid: u32,
    /// Remote address.
    pub peer: IpAddr,
    /// Our address, the source of the outer packet; of the same family.
    pub local: IpAddr,
}

/// All that a FAR that leads into a tunnel says beside action and tunnel. Numbers mean what the core has them mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LentProfile {
    /// Which of our addresses [`LentTarget::local`] is one of.
    pub through: u8,
    /// Its BAR; 0: none.
    pub bar: u8,
    /// Its network instance; 0: none.
    pub network: u8,
}

/// FAR of a session that is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentFar {
    /// FAR ID.
    pub id: u32,
    /// All else that it says but its target.
    pub profile: LentProfile,
    /// PDRs that name it; at most [`LENT_PDRS`].
    pub pdrs: SmallVec<[PdrId; LENT_PDRS]>,
    /// Where its packets go.
    pub target: LentTarget,
}

/// A session, as it is lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Its SEID names this place.
    pub place: u32,
    /// ... and this generation.
    pub generation: u32,
    /// Number of its SMF's association.
    pub association: u32,
    /// The SMF's SEID.
    pub cp_seid: u64,
    /// Sequence number of the newest request about it.
    pub sequence: u32,
    /// All of its FARs that lead into a tunnel; one at least, at most [`LENT_FARS`].
    pub fars: SmallVec<[LentFar; LENT_FARS]>,
}

/// Key by which a SEID names a place.
#[derive(Clone, Copy, Debug)]
pub struct SeidKey {
    /// Factor and summand of the first and the last round.
    pub outer: [(u64, u64); 2],
    /// Keys of the second and the third.
    pub inner: [u64; 2],
}

/// An Update FAR of a template. Offsets are from the beginning of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateUpdate {
    /// Offset of the FAR ID.
    pub id_at: u16,
    /// Offset of TEID and address of Outer Header Creation, and octets of that address; `None`: the tunnel stays.
    pub tunnel: Option<(u16, u16, u8)>,
    /// Apply Action; `None`: it stays.
    pub action: Option<LentAction>,
    /// Of FARs that it is for, and that they keep.
    pub profile: LentProfile,
    /// SNDEM: the tunnel that the FAR leaves gets End Markers.
    pub ends_tunnel: bool,
}

/// A request, but for what differs from session to session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The message; zero in its header and where `mask` is.
    pub octets: Vec<u8>,
    /// 0xff where `octets` counts.
    pub mask: Vec<u8>,
    /// Offset of the SEID in its CP F-SEID.
    pub cp_seid_at: Option<u16>,
    /// One at least, at most [`LENT_FARS`].
    pub updates: SmallVec<[TemplateUpdate; LENT_FARS]>,
}

/// Changes by a request that was served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Place of the session.
    pub place: u32,
    /// Number of the template.
    pub template: usize,
    /// FARs that the request has named.
    pub changes: SmallVec<[LentChange; LENT_FARS]>,
    /// States of the others that are lent.
    pub others: SmallVec<[LentTarget; LENT_FARS]>,
}

/// An address that requests of one association alone come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Without a port.
    pub address: IpAddr,
    /// Number of the association, below 2^31.
    pub association: u32,
    /// They may be served. Otherwise it is but known that they have passed.
    pub is_served: bool,
}

/// Why a session is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenFor {
    /// Something that has happened.
    Event,
    /// A request about it that has passed the data path, where it was counted.
    Request,
    /// A request that was not counted there, or may not have been.
    Unmarked,
}

/// A request that was served and answered beside the control plane.
#[derive(Clone, Debug)]
pub struct ServedBeside {
    /// Its sender.
    pub from: SocketAddr,
    /// ... whose association has this number.
    pub association: u32,
    /// The message.
    pub octets: Vec<u8>,
    /// Changes by it.
    pub what: Served,
}

impl Default for ServedBeside {
    fn default() -> Self {
        Self {
            from: SocketAddr::from(([0; 4], 0)),
            association: 0,
            octets: Vec::new(),
            what: Served::default(),
        }
    }
}

/// Change of a FAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentChange {
    /// FAR ID.
    pub id: u32,
    /// Its state before.
    pub before: LentTarget,
    /// ... and now.
    pub after: LentTarget,
    /// SNDEM.
    pub ends_tunnel: bool,
}

/// Why a request was not served, and nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slow {
    /// No Session Modification Request, or with another header.
    Other,
    /// No template of a request like this.
    Template,
    /// The session is another SMF's, not there, or not lent.
    Session,
    /// Not newer than the last one about the session: it may be repeated.
    Sequence,
    /// The SMF gives the session another SEID.
    CpSeid,
    /// The session has no such FAR, or one that says something else.
    Far,
    /// No tunnel leads to this address yet, or the TEID is 0.
    Tunnel,
    /// Packets wait for the UE.
    Waiting,
    /// The datagram has options, is a fragment, or is not whole.
    Frame,
    /// A checksum is wrong, missing or not finished yet.
    Checksum,
    /// No association has this address.
    Source,
    /// The control plane was at work on more than one session, or the program was attached a moment ago.
    Paused,
    /// The control plane has not yet heard of so many others.
    Log,
}

impl Slow {
    /// All, in the order of `enum tp_n4_verdict`, which begins with 1.
    pub const ALL: [Self; 13] = [
        Self::Other,
        Self::Template,
        Self::Session,
        Self::Sequence,
        Self::CpSeid,
        Self::Far,
        Self::Tunnel,
        Self::Waiting,
        Self::Frame,
        Self::Checksum,
        Self::Source,
        Self::Paused,
        Self::Log,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Template => "template",
            Self::Session => "session",
            Self::Sequence => "sequence",
            Self::CpSeid => "cp_seid",
            Self::Far => "far",
            Self::Tunnel => "tunnel",
            Self::Waiting => "waiting",
            Self::Frame => "frame",
            Self::Checksum => "checksum",
            Self::Source => "source",
            Self::Paused => "paused",
            Self::Log => "log",
        }
    }

    /// It in words, for operators.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Other => "no Session Modification Request, in a bundle, or with a priority",
            Self::Template => {
                "it does more than update FARs, or nothing like it was asked for often enough so far"
            }
            Self::Session => {
                "the session is not lent: just changed otherwise, not to be lent, another SMF's, or gone"
            }
            Self::Sequence => "not newer than the last one about the session, so perhaps repeated",
            Self::CpSeid => "it gives the session another SEID of the SMF's",
            Self::Far => "the session has no such FAR, or one of another kind",
            Self::Tunnel => "no tunnel leads to that gNB yet, or the TEID is 0",
            Self::Waiting => "packets wait for the UE",
            Self::Frame => "the datagram has options, is a fragment, or is not whole",
            Self::Checksum => "the UDP checksum is wrong, missing or not finished",
            Self::Source => {
                "from no association, or from an address of several, or of an SMF that is to hear of our load"
            }
            Self::Paused => {
                "something about several sessions was under way, or the program had just been attached"
            }
            Self::Log => "the control thread is behind with those that were served",
        }
    }
}
