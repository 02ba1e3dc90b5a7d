//! A session as one record of octets, which may outlive this process or go elsewhere.
//!
//! Two octets of version, then SEID, Node ID of the SMF and the session's context, each as postcard has it. There is one
//! record of each session: what would be written otherwise is none. What it means is checked as far as it goes without a
//! configuration; whether places in that are there is for who takes the session in.

use std::collections::BTreeSet;

use compiled::FRAMED_MAX;

use crate::base::node_id::NodeId;
use crate::base::octets::{put, take};
use crate::rules::endpoints::ENDPOINTS_MAX;
use crate::rules::summary::ue_nets;
use crate::rules::{Conditions, Pdr, Rule, Rules, SdfFilter, Targets};
use crate::shard::context::{Context, Extra, Rare};
use crate::usage::measured::measuring;
use crate::usage::urr_rules::UrrRules;

/// Of the layout. Whatever changes it in the types that are written raises it.
pub const VERSION: u16 = 4;

/// A record has at most so many octets: several times what a session takes that uses all limits.
pub const OCTETS_MAX: usize = 1 << 20;

/// A session, apart from where it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    seid: u64,
    smf: NodeId,
    context: Context,
}

/// Octets that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Beyond our bound.
    #[error("a record of {0} octets, more than {OCTETS_MAX}")]
    TooLong(usize),
    /// Of another version of this program.
    #[error("a record of version {0}, not {VERSION}")]
    Version(u16),
    /// Cut, torn or of something else.
    #[error("no record, or not the whole of one")]
    Malformed,
    /// Its parts contradict each other.
    #[error("a record of a session that cannot be: {0}")]
    Impossible(&'static str),
}

/// Append the record of a session.
pub(crate) fn write(seid: u64, smf: &NodeId, context: &Context, into: &mut Vec<u8>) {
    into.extend_from_slice(&VERSION.to_be_bytes());
    put(&seid, into);
    put(smf, into);
    put(context, into);
}

impl Record {
    /// The record that these octets are.
    pub fn read(octets: &[u8]) -> Result<Self, RecordError> {
        if octets.len() > OCTETS_MAX {
            return Err(RecordError::TooLong(octets.len()));
        }
        let (version, mut rest) = octets.split_first_chunk().ok_or(RecordError::Malformed)?;
        let version = u16::from_be_bytes(*version);
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let malformed = |_| RecordError::Malformed;
        let mut record = Self {
            seid: take(&mut rest).map_err(malformed)?,
            smf: take(&mut rest).map_err(malformed)?,
            context: take(&mut rest).map_err(malformed)?,
        };
        // Nothing behind it, and no number longer than it need be.
        if record.write() != octets {
            return Err(RecordError::Malformed);
        }
        if let Some(extra) = &mut record.context.extra {
            extra.urr_rules.ue = match &*extra.urr_rules.urrs {
                [] => Box::default(),
                _ => ue_nets(&record.context.kept.pdrs()).into(),
            };
        }
        record.is_possible().map_err(RecordError::Impossible)?;
        Ok(record)
    }

    /// Its octets.
    pub fn write(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        write(self.seid, &self.smf, &self.context, &mut octets);
        octets
    }

    /// Our SEID.
    pub fn seid(&self) -> u64 {
        self.seid
    }

    /// Whose session it is.
    pub fn smf(&self) -> &NodeId {
        &self.smf
    }

    /// The SMF's SEID.
    pub fn cp_seid(&self) -> u64 {
        self.context.cp_seid
    }

    /// All rules.
    pub fn rules(&self) -> Rules {
        self.context.rules()
    }

    #[cfg(test)]
    pub(crate) fn context_mut(&mut self) -> &mut Context {
        &mut self.context
    }

    fn is_possible(&self) -> Result<(), &'static str> {
        let rules = self.context.rules();
        hold(self.seid != 0, "SEID 0")?;
        hold(self.smf.is_legal(), "a Node ID that is none")?;
        ids_are_unique(&rules)?;
        references_are_there(&rules)?;
        rules.pdrs.iter().try_for_each(pdr_is_possible)?;
        let far_is_canonical = |targets: &Targets| targets.is_canonical();
        let mut fars = rules.fars.iter().map(|far| &far.targets);
        hold(fars.all(far_is_canonical), "a FAR in another form")?;
        match &self.context.extra {
            Some(extra) => extra_is_possible(extra, &rules),
            None => Ok(()),
        }
    }
}

fn hold(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

fn are_unique<T: Ord>(ids: impl Iterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    ids.into_iter().all(|id| seen.insert(id))
}

fn ids_are_unique(rules: &Rules) -> Result<(), &'static str> {
    fn of<R: Rule<Id: Ord>>(rules: &[R]) -> bool {
        are_unique(rules.iter().map(Rule::id))
    }
    let unique =
        of(&rules.pdrs) && of(&rules.fars) && of(&rules.qers) && of(&rules.urrs) && of(&rules.bars);
    hold(unique, "two rules of one id")
}

/// What rules name is there.
fn references_are_there(rules: &Rules) -> Result<(), &'static str> {
    fn ids<R: Rule<Id: Ord>>(rules: &[R]) -> BTreeSet<R::Id> {
        rules.iter().map(Rule::id).collect()
    }
    // Sets, as a record may have tens of thousands of rules.
    let (fars, qers) = (ids(&rules.fars), ids(&rules.qers));
    let (urrs, bars) = (ids(&rules.urrs), ids(&rules.bars));
    for pdr in &rules.pdrs {
        let far = pdr.far.is_none_or(|far| fars.contains(&far));
        hold(far, "a PDR without its FAR")?;
        let has_qers = pdr.qers.iter().all(|id| qers.contains(id));
        hold(has_qers, "a PDR without its QER")?;
        let has_urrs = pdr.urrs.iter().all(|id| urrs.contains(id));
        hold(has_urrs, "a PDR without its URR")?;
    }
    let mut named = rules.fars.iter().filter_map(|far| far.bar);
    hold(named.all(|id| bars.contains(&id)), "a FAR without its BAR")?;
    let mut named = (rules.urrs.iter()).filter_map(|urr| urr.asks.rare().quota_far);
    hold(named.all(|id| fars.contains(&id)), "a URR without its FAR")
}

fn pdr_is_possible(pdr: &Pdr) -> Result<(), &'static str> {
    let pdi = &pdr.pdi;
    let has_end = |ends: crate::rules::LocalEnds| ends.v4.is_some() || ends.v6.is_some();
    let ends = pdi.f_teid.is_none_or(|f_teid| has_end(f_teid.ends));
    hold(ends, "an F-TEID without address")?;
    let in_prefix = pdi
        .ue
        .and_then(|ue| ue.v6)
        .is_none_or(|net| net.prefix_len() > 0 && net.trunc() == net);
    hold(
        in_prefix,
        "a UE's prefix of no bits, or with more than it has",
    )?;
    hold(pdi.framed().len() <= FRAMED_MAX, "too many framed routes")?;
    let whole = pdi
        .more
        .as_ref()
        .is_none_or(|more| **more != crate::rules::RarePdi::default());
    hold(whole, "a PDI in another form")?;
    pdi.filters().iter().try_for_each(filter_is_possible)
}

fn filter_is_possible(filter: &SdfFilter) -> Result<(), &'static str> {
    let Conditions { flow, label, .. } = &filter.asks;
    hold(
        label.is_none_or(|label| label < 1 << 20),
        "a flow label of more than 20 bits",
    )?;
    let ends = flow.iter().flat_map(|flow| [&flow.remote, &flow.ue]);
    let mut ports = ends.flat_map(|end| &end.ports);
    hold(
        ports.all(|(first, last)| first <= last),
        "a range of ports that ends before it begins",
    )
}

fn extra_is_possible(extra: &Extra, rules: &Rules) -> Result<(), &'static str> {
    hold(!extra.is_empty(), "something that is kept of nothing")?;
    let possible = rules.urrs.iter().all(|urr| urr.asks.is_possible().is_ok());
    hold(possible, "a URR that asks for what cannot be measured")?;
    let expected = match &*rules.urrs {
        [] => UrrRules::default(),
        urrs => UrrRules::new(urrs, &rules.pdrs),
    };
    hold(extra.urr_rules == expected, "URRs that go by other PDRs")?;
    let Extra {
        membership,
        urr_rules,
        usage,
        rare,
    } = extra;
    hold(
        usage.is_some() != urr_rules.urrs.is_empty(),
        "usage without URR",
    )?;
    if let Some(usage) = usage {
        let measured = usage.urrs.iter().map(|urr| urr.id);
        let same = measured.eq(urr_rules.urrs.iter().map(|urr| urr.id));
        let seen = usage.seen.iter().map(|seen| seen.pdr);
        let same = same && seen.eq(measuring(&urr_rules.pdrs).map(|pdr| pdr.pdr));
        hold(same, "usage of other rules")?;
    }
    let sorted =
        |membership: &crate::shard::sets::Membership| membership.sets.is_sorted_by(|a, b| a < b);
    hold(
        membership.as_ref().is_none_or(|of| sorted(of)),
        "sets out of order",
    )?;
    rare.as_ref()
        .map_or(Ok(()), |rare| rare_is_possible(rare, rules))
}

fn rare_is_possible(rare: &Rare, rules: &Rules) -> Result<(), &'static str> {
    hold(!rare.is_empty(), "something that is kept of nothing")?;
    let endpoints = &rare.endpoints;
    hold(
        endpoints.len() <= ENDPOINTS_MAX,
        "too many Traffic Endpoints",
    )?;
    let unique = are_unique(endpoints.iter().map(|endpoint| endpoint.id));
    hold(unique, "two Traffic Endpoints of one id")?;
    let legible = endpoints.iter().all(|endpoint| endpoint.view().is_ok());
    hold(legible, "a Traffic Endpoint that says nothing")?;
    let mut named = rules.pdrs.iter().filter_map(|pdr| pdr.pdi.endpoint());
    let there = named.all(|id| endpoints.iter().any(|known| known.id == id));
    hold(there, "a PDR without its Traffic Endpoint")?;
    let timed = rare.deferral.as_ref().map(|deferral| deferral.timings());
    let mut timed = timed.into_iter().flatten().map(|(pdr, _)| pdr);
    let pdrs: BTreeSet<_> = rules.pdrs.iter().map(|pdr| pdr.id).collect();
    let there = timed.all(|id| pdrs.contains(&id));
    hold(there, "times of a PDR that is not there")?;
    let ordered = rare.indicated.is_sorted_by(|(a, ..), (b, ..)| a < b);
    hold(ordered, "tunnels out of order")
}
