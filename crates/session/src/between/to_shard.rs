//! Messages from the node to a shard.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use compiled::Buffered;
use pfcp::Message;
use pfcp::message::{SessionEstablishmentRequest, SessionReportResponse};

use crate::base::gtpu::Tunnel;
use crate::base::ids::{PartyId, PeerId};
use crate::base::pfd::Property;
use crate::base::set_key::SetKey;
use crate::base::shares::Shares;
use crate::between::smf::{Sender, Smf};
use crate::exchange::incoming::Incoming;
use crate::exchange::requests::About;

/// Message to a shard.
#[derive(Debug)]
pub(crate) enum ToShard<'a> {
    /// A request about a session, to be answered.
    Request(&'a Incoming, Request<'a>),
    /// An SMF has answered a report; `None`: with something that cannot be read.
    Answered(About, Option<&'a SessionReportResponse<'a>>),
    /// A report was given up.
    Unanswered(About),
    /// The answer to a report is late. Is it to be sent again, as the request of this number?
    Late(About, u32),
    /// An association is like this from now on.
    Smf(PeerId, Smf),
    /// An association is over, and with it all of its sessions.
    Gone(PeerId),
    /// A party has neither associations nor PFDs any more.
    PartyGone(PartyId),
    /// Shares of what there is for all.
    Shares(Shares),
    /// PFDs of an application of a party; none: they were taken away.
    Pfds(PartyId, Box<str>, Box<[Property]>),
    /// Sessions go by the PFDs as they are now: a first step is due.
    Fit,
    /// All usage of an association is to be reported.
    Finish(PeerId),
    /// We are leaving.
    Close,
    /// No report is under way any more, nor waits.
    DropReports,
    /// Sessions in these sets, of SMFs of this party, are lost (TS 23.007, 23). Who says so is there.
    Delete(PartyId, Vec<SetKey>, SocketAddr),
    /// Sessions in these sets, of SMFs of this party, are controlled by another address (TS 29.244, 7.4.7.1).
    HandOver(PartyId, Vec<SetKey>, IpAddr),
    /// An Error Indication of the far end of this tunnel.
    ErrorIndication(Tunnel),
    /// A packet waits, and none of its PDR did before it.
    Buffered(Buffered),
    /// Packets of this session have reached an alarm, or may have.
    Crossed(u64),
    /// Which GTP-U paths are in use?
    Paths,
    /// By the wall clock so much time has passed since the beginning of 1900 (NTP).
    Clock(Duration),
    /// All addresses of this host.
    Host(Vec<IpAddr>),
    /// Time has passed: something may be due.
    Time,
}

/// Sessions that a message to a shard may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    Nobody,
    /// One, by our SEID.
    One(u64),
    /// The same, by a request about it from there.
    Requested(u64, IpAddr),
    Any,
}

impl ToShard<'_> {
    /// Sessions that there are before, and that it may change.
    pub(crate) fn concerns(&self) -> Concerns {
        match self {
            Self::Request(_, Request::Establish(..))
            | Self::PartyGone(_)
            | Self::Shares(_)
            | Self::Pfds(..)
            | Self::Close
            | Self::DropReports
            | Self::Paths
            | Self::Clock(_)
            | Self::Host(_) => Concerns::Nobody,
            Self::Request(incoming, _) => match incoming.seid {
                Some(seid) => Concerns::Requested(seid, incoming.from.ip()),
                None => Concerns::Nobody,
            },
            Self::Buffered(what) => Concerns::One(what.seid),
            Self::Crossed(seid) => Concerns::One(*seid),
            _ => Concerns::Any,
        }
    }
}

/// A request about a session.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    /// The SMF of the new session.
    Establish(PeerId, &'a SessionEstablishmentRequest<'a>),
    Modify(Sender, &'a Message<'a>),
    Delete(Sender, &'a Message<'a>),
}
