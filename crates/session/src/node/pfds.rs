//! Packet Flow Descriptions, kept as SMFs provision them (PFD Management, TS 29.244, 6.2.5).
//!
//! They are those of the SMF that provisioned them, or of its set: others neither see, replace nor remove them. They
//! go with its association. An SMF has its share of the room for them.

use std::collections::BTreeMap;
use std::mem::size_of;
use std::ops::Bound;

use pfcp::ie::{ApplicationPfds, PfdContents};
use pfcp::message::PfdManagementRequest;
use pfcp::{Cause, IeType};

use crate::base::ids::PartyId;
use crate::base::node_id::NodeId;
pub use crate::base::pfd::{PfdKind, Property};
use crate::base::refusal::Refusal;
use crate::base::shares::Shares;
use crate::rules::config::Limits;

/// All PFDs, by whose they are.
#[derive(Debug, Default)]
pub(crate) struct Pfds {
    pub(crate) of: BTreeMap<PartyId, PartyPfds>,
}

/// PFDs of one party, by Application ID.
#[derive(Debug, Default)]
pub(crate) struct PartyPfds {
    by_application: BTreeMap<Box<str>, Box<[Property]>>,
    bytes: usize,
}

/// A change that was read and checked, and not yet made: the PFDs that each application is to
/// have, none to be removed.
type Change = BTreeMap<Box<str>, Box<[Property]>>;

impl Pfds {
    /// Provision, replace and remove those of a party, all or nothing; the applications whose PFDs are new. A request
    /// without an application removes all that the party has.
    pub(crate) fn manage(
        &mut self,
        party: PartyId,
        request: &PfdManagementRequest<'_>,
        (limits, shares): (&Limits, &Shares),
        allow: impl Fn(&str, &[Property]) -> Result<(), Refusal>,
    ) -> Result<Vec<Box<str>>, Refusal> {
        if request.application_ids_pfds.is_empty() {
            return Ok(self.take(party).into_keys().collect());
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
        self.check_room(party, &change, limits, shares)?;
        let names = change.keys().cloned().collect();
        let own = self.of.entry(party).or_default();
        for (name, properties) in change {
            own.forget(&name);
            if !properties.is_empty() {
                own.keep(name, properties);
            }
        }
        if own.by_application.is_empty() {
            self.of.remove(&party);
        }
        Ok(names)
    }

    /// Whether a change fits into what is left for its party. One that takes no more than it had always does.
    fn check_room(
        &self,
        party: PartyId,
        change: &Change,
        limits: &Limits,
        shares: &Shares,
    ) -> Result<(), Refusal> {
        let had = self.fill_of(party);
        let (mut count, mut bytes) = had;
        for (name, new) in change {
            let old = self.of(party, name);
            if !old.is_empty() {
                count -= 1;
                bytes -= size(name, old);
            }
            if !new.is_empty() {
                count += 1;
                bytes += size(name, new);
            }
        }
        let all = self.fill();
        let left = |whole, used, of: fn((usize, usize)) -> usize| {
            let used_by = |party| of(self.fill_of(party)) as u64;
            shares.left_for(party, whole as u64, used as u64, used_by)
        };
        let more = (count.saturating_sub(had.0), bytes.saturating_sub(had.1));
        let is_too_much = more.0 as u64 > left(limits.pfd_applications, all.0, |fill| fill.0)
            || more.1 as u64 > left(limits.pfd_bytes, all.1, |fill| fill.1);
        match is_too_much && more != (0, 0) {
            true => Err(Refusal::no_room(IeType::APPLICATION_IDS_PFDS)),
            false => Ok(()),
        }
    }

    /// Takes the PFDs of a party away.
    pub(crate) fn take(&mut self, party: PartyId) -> BTreeMap<Box<str>, Box<[Property]>> {
        let all = self.of.remove(&party).unwrap_or_default();
        all.by_application
    }

    /// None: it has none.
    pub(crate) fn of(&self, party: PartyId, name: &str) -> &[Property] {
        let all = self.of.get(&party).map(|all| &all.by_application);
        all.and_then(|all| all.get(name)).map_or(&[], |all| all)
    }

    /// Of whomever, the next in alphabetical order.
    pub(crate) fn name_after(&self, after: Option<&str>) -> Option<&str> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.of.values().filter_map(|all| {
            let mut later = all.by_application.range::<str, _>((from, Bound::Unbounded));
            later.next().map(|(name, _)| &**name)
        });
        next.min()
    }

    /// Parties with an application of this name, and its PFDs.
    pub(crate) fn all_of(&self, name: &str) -> impl Iterator<Item = (PartyId, &[Property])> {
        let all = self.of.iter();
        all.filter_map(move |(party, all)| Some((*party, &**all.by_application.get(name)?)))
    }

    /// Applications of a party, and what they take of memory.
    pub(crate) fn fill_of(&self, party: PartyId) -> (usize, usize) {
        let all = self.of.get(&party);
        all.map_or((0, 0), |all| (all.by_application.len(), all.bytes))
    }

    /// Applications, and what they take of memory.
    pub(crate) fn fill(&self) -> (usize, usize) {
        let all = self.of.keys().map(|party| self.fill_of(*party));
        all.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }
}

impl PartyPfds {
    pub(crate) fn keep(&mut self, name: Box<str>, properties: Box<[Property]>) {
        self.bytes += size(&name, &properties);
        self.by_application.insert(name, properties);
    }

    /// All of them, for a record.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Box<str>, Box<[Property]>)> + '_ {
        let all = self.by_application.iter();
        all.map(|(name, properties)| (name.clone(), properties.clone()))
    }

    fn forget(&mut self, name: &str) {
        if let Some(old) = self.by_application.remove(name) {
            self.bytes -= size(name, &old);
        }
    }
}

/// An application with PFDs, as operators see it.
#[derive(Clone, Debug)]
pub struct ApplicationView<'a> {
    /// Application ID.
    pub name: &'a str,
    /// Node IDs of the SMFs whose it is: one, or those of a set that are there.
    pub smfs: Vec<&'a NodeId>,
    /// Its PFDs.
    pub properties: &'a [Property],
}

/// Octets that an application counts for, overhead included.
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
