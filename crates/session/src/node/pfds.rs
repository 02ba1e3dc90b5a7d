//! Packet Flow Descriptions, kept as SMFs provision them (PFD Management, TS 29.244, 6.2.5).
//!
//! They are those of the node, not of one SMF: what one SMF provisions another one replaces.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::ops::Bound;

use pfcp::ie::{ApplicationPfds, PfdContents};
use pfcp::message::PfdManagementRequest;
use pfcp::{Cause, IeType, Message};

pub use crate::base::pfd::{PfdKind, Property};
use crate::base::refusal::Refusal;
use crate::exchange::incoming::Incoming;
use crate::exchange::n4::Turn;
use crate::node::Node;
use crate::node::slices::Slices;
use crate::rules::config::Limits;

/// All PFDs, by Application ID.
#[derive(Debug, Default)]
pub(crate) struct Pfds {
    by_application: BTreeMap<Box<str>, Box<[Property]>>,
    bytes: usize,
}

/// A change that was read and checked, and not yet made: the PFDs that each application is to
/// have, none to be removed.
type Change = BTreeMap<Box<str>, Box<[Property]>>;

impl Pfds {
    /// Provision, replace and remove, all or nothing; the applications whose PFDs are new. A request without an
    /// application removes everything.
    fn manage(
        &mut self,
        request: &PfdManagementRequest<'_>,
        limits: &Limits,
        allow: impl Fn(&str, &[Property]) -> Result<(), Refusal>,
    ) -> Result<Vec<Box<str>>, Refusal> {
        if request.application_ids_pfds.is_empty() {
            let all = std::mem::take(self);
            return Ok(all.by_application.into_keys().collect());
        }
        let mut change = Change::new();
        for application in &request.application_ids_pfds {
            let application = application?;
            let name = text(application.application_id)?;
            let properties = properties(&application)?;
            if !properties.is_empty() {
                allow(&name, &properties)?;
            }
            change.insert(name, properties);
        }
        self.check_room(&change, limits)?;
        let names = change.keys().cloned().collect();
        for (name, properties) in change {
            self.forget(&name);
            if !properties.is_empty() {
                self.bytes += size(&name, &properties);
                self.by_application.insert(name, properties);
            }
        }
        Ok(names)
    }

    fn check_room(&self, change: &Change, limits: &Limits) -> Result<(), Refusal> {
        let (mut count, mut bytes) = (self.by_application.len(), self.bytes);
        for name in change.keys() {
            if let Some(old) = self.by_application.get(name) {
                count -= 1;
                bytes -= size(name, old);
            }
        }
        for (name, properties) in change.iter().filter(|(_, new)| !new.is_empty()) {
            count += 1;
            bytes += size(name, properties);
        }
        if count > limits.pfd_applications || bytes > limits.pfd_bytes {
            return Err(Refusal::no_room(IeType::APPLICATION_IDS_PFDS));
        }
        Ok(())
    }

    fn forget(&mut self, name: &str) {
        if let Some(old) = self.by_application.remove(name) {
            self.bytes -= size(name, &old);
        }
    }

    /// None: it has none.
    fn of(&self, name: &str) -> &[Property] {
        self.by_application.get(name).map_or(&[], |all| all)
    }

    pub(crate) fn iter_after(
        &self,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&str, &[Property])> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self
            .by_application
            .range::<str, _>((from, Bound::Unbounded));
        all.map(|(name, properties)| (&**name, &**properties))
    }

    /// Applications, and what they take of memory.
    pub(crate) fn fill(&self) -> (usize, usize) {
        (self.by_application.len(), self.bytes)
    }
}

/// What an application counts for, overhead included.
fn size(name: &str, properties: &[Property]) -> usize {
    let one = |property: &Property| size_of::<Property>() + property.text.len();
    64 + name.len() + properties.iter().map(one).sum::<usize>()
}

fn properties(application: &ApplicationPfds<'_>) -> Result<Box<[Property]>, Refusal> {
    let mut properties = Vec::new();
    let mut pfd = 0;
    for context in &application.contexts {
        for contents in &context?.contents {
            read(pfd, &contents?, &mut properties)?;
            pfd += 1;
        }
    }
    Ok(properties.into())
}

fn read(pfd: u32, contents: &PfdContents<'_>, to: &mut Vec<Property>) -> Result<(), Refusal> {
    let flows = contents.flow_descriptions().map(|f| (PfdKind::Flow, f));
    let urls = contents.urls().map(|url| (PfdKind::Url, url));
    let domains = contents.domain_names().map(|d| (PfdKind::Domain, d));
    let custom = contents.custom.into_iter().map(|c| (PfdKind::Custom, c));
    let before = to.len();
    for (kind, octets) in flows.chain(urls).chain(domains).chain(custom) {
        let text = text(octets)?;
        to.push(Property { pfd, kind, text });
    }
    if to.len() == before {
        // Nothing that traffic could be told by.
        return Err(Refusal::ie(
            Cause::MANDATORY_IE_INCORRECT,
            IeType::PFD_CONTENTS,
        ));
    }
    Ok(())
}

fn text(octets: &[u8]) -> Result<Box<str>, Refusal> {
    match std::str::from_utf8(octets) {
        Ok(text) if !text.is_empty() => Ok(text.into()),
        _ => Err(Refusal::ie(
            Cause::MANDATORY_IE_INCORRECT,
            IeType::APPLICATION_IDS_PFDS,
        )),
    }
}

impl Node {
    /// PFD Management Request (6.2.5.2).
    pub(crate) fn on_pfd_management(
        &mut self,
        turn: &mut Turn<'_>,
        slices: &mut impl Slices,
        incoming: &Incoming,
        message: &Message<'_>,
    ) {
        let (peers, from) = (&self.peers, incoming.from);
        if !peers
            .candidates(from)
            .any(|id| peers.speaks_for(id, from.ip()))
        {
            let cause = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
            return self.refuse(turn, incoming, cause.into());
        }
        let managed = PfdManagementRequest::decode(message)
            .map_err(Refusal::from)
            .and_then(|request| {
                let allow = |name: &str, pfds: &[Property]| slices.allow(name, pfds);
                self.pfds.manage(&request, &self.config.limits, allow)
            });
        match managed {
            Ok(names) => {
                for name in names {
                    let properties = self.pfds.of(&name);
                    slices.provision(&name, properties);
                }
                slices.refit(turn);
                let cause = Cause::REQUEST_ACCEPTED;
                self.answer(turn, incoming, cause, |writer, us| {
                    writer.cause(cause);
                    writer.node_id(us.to_wire());
                });
            }
            Err(refusal) => self.refuse(turn, incoming, refusal),
        }
    }

    /// Applications with PFDs, in alphabetical order, those after one of this name.
    pub(crate) fn pfds_after(
        &self,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&str, &[Property])> {
        self.pfds.iter_after(after)
    }

    /// Applications with PFDs, and the bytes that they take.
    pub(crate) fn pfd_fill(&self) -> (usize, usize) {
        self.pfds.fill()
    }
}
