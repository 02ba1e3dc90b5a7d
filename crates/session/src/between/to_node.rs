//! Messages from shards to their node.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use pfcp::Writer;

use crate::base::event::Event;
use crate::base::gtpu::Ends;
use crate::base::ids::PeerId;
use crate::base::refusal::Refusal;
use crate::exchange::incoming::Incoming;
use crate::exchange::requests::About;
use crate::usage::report::UsageRecord;

/// Message to the node.
#[derive(Debug)]
pub(crate) enum ToNode {
    /// This peer has sent a request about a session of its own from there, which is not accepted.
    Spoke(PeerId, SocketAddr),
    /// A request is accepted.
    Accept(Answer),
    /// The same of one that was served, and answered, elsewhere. It says nothing but that.
    Served(Answer),
    /// A request is refused. The session is this one by the SMF's SEID; 0: none.
    Refuse(Box<(Incoming, u64, Refusal)>),
    /// The same of one that cannot be read.
    Undecodable(Box<(Incoming, u64, pfcp::Error)>),
    /// An SMF is to be told.
    Report(Report),
    /// The request of this number, a report, is to be sent again.
    Again(u32),
    /// Nobody waits for the answer to the request of this number any more.
    Moot(u32),
    /// A peer has so many sessions, for another reason than that its request is accepted.
    Sessions(PeerId, usize),
    /// PDRs of a peer name an application of PFDs now, or do not any more.
    Names(PeerId, Box<str>, bool),
    /// All usage of an association is reported.
    Finished(PeerId),
    /// Sessions of sets are lost, and are being deleted.
    Sweeping,
    /// So many sessions that were lost, or of associations that are over, were deleted.
    Deleted(usize),
    /// No other such session is left, nor any of associations up to this one, the last that the shard has heard the end of.
    Swept(Option<PeerId>),
    /// A peer that does not answer has lost a session.
    Displaced(Displaced),
    /// So many sessions keep former flows of an application, for want of room for its new PFDs.
    PfdsWithoutRoom(usize),
    Event(Box<Event>),
    /// GTP-U paths in use.
    Paths(Vec<Ends>),
}

/// The answer to a request that was accepted. A notice of our load may stand between its IEs.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) to: Incoming,
    /// Our SEID.
    pub(crate) seid: u64,
    /// The SMF's SEID.
    pub(crate) cp_seid: u64,
    /// Peer that owns the session, or did.
    pub(crate) owner: PeerId,
    /// The sender is the owner, and not another SMF of its set.
    pub(crate) by_owner: bool,
    /// The owner has so many now.
    pub(crate) sessions: usize,
    /// Behind the cause.
    pub(crate) front: Ies,
    pub(crate) back: Ies,
    /// Usage reports in it.
    pub(crate) usage_reports: u32,
}

/// A Session Report Request.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) about: About,
    /// The SMF's SEID.
    pub(crate) cp_seid: u64,
    /// Address that it goes to, if not that of the association.
    pub(crate) controller: Option<IpAddr>,
    pub(crate) ies: Ies,
    /// Usage reports in it.
    pub(crate) usage_reports: u32,
}

/// [`Event::SessionDisplaced`]
#[derive(Debug)]
pub(crate) struct Displaced {
    pub(crate) peer: PeerId,
    pub(crate) seid: u64,
    pub(crate) cp_seid: u64,
    pub(crate) table: &'static str,
}

/// IEs, as octets of [`Outputs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ies(Range<u32>);

impl Ies {
    pub(crate) fn of<'o>(&self, octets: &'o [u8]) -> &'o [u8] {
        let range = self.0.start as usize..self.0.end as usize;
        octets.get(range).unwrap_or_default()
    }
}

/// All that shards have said since the node heard them last. Kept for its capacity.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) said: Vec<ToNode>,
    /// For the log of usage.
    pub(crate) usage: Vec<UsageRecord>,
    /// Octets of all [`Ies`].
    pub(crate) octets: Vec<u8>,
}

impl Outputs {
    pub(crate) fn is_empty(&self) -> bool {
        self.said.is_empty() && self.usage.is_empty()
    }

    pub(crate) fn say(&mut self, what: ToNode) {
        self.said.push(what);
    }

    /// IEs for what is said next.
    pub(crate) fn ies(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Ies {
        let begin = self.octets.len() as u32;
        Writer::ies_alone(&mut self.octets, write);
        Ies(begin..self.octets.len() as u32)
    }
}
