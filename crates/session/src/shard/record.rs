//! A session as one record of octets, which may outlive this process or go elsewhere.
//!
//! Two octets of version, the length of what follows, then fields in rising order of their tags: tag, length, and the value
//! as postcard has it. A field that is not there is as [`Default`] has it; one that this program does not know is refused by its tag. There is one
//! record of each session: what would be written otherwise is none.
//!
//! Rules name what is configured by its place. What is in those places goes with them, by name, and so a record is taken in
//! under another configuration, too. Times are those of the caller's clock, which goes on.

use std::collections::BTreeSet;
use std::net::IpAddr;

use compiled::{CountedAt, Counters, FRAMED_MAX};
use serde::Serialize;
use smallvec::SmallVec;

use crate::base::node_id::NodeId;
use crate::base::octets::{put_with_length, take_octets};
use crate::base::record_error::{RecordError, behind_version, hold};
use crate::base::tagged::{Fields, Tagged, put_field, value_of};
use crate::exchange::answers::Fingerprint;
use crate::rules::endpoints::{ENDPOINTS_MAX, Endpoint};
use crate::rules::places::{ConfigName, ConfigPlace, Names, Relocation};
use crate::rules::site::Site;
use crate::rules::summary::ue_nets;
use crate::rules::{Conditions, FarId, Pdr, Rule, RuleId, Rules, SdfFilter, Targets};
use crate::shard::context::{Context, Extra, Rare};
use crate::shard::index::sets::Membership;
use crate::shard::kept::Kept;
use crate::usage::measured::{Uncounted, measuring};
use crate::usage::urr_rules::UrrRules;

/// Of the layout. Another encoding of the value of a field is a field of its own; only what no tag can tell raises this.
pub(crate) const VERSION: u16 = 6;

/// A record has at most so many octets: several times what a session takes that uses all limits.
pub(crate) const OCTETS_MAX: usize = 1 << 20;

/// Fields, by their tags. None is ever used again for something else.
mod tag {
    pub(super) const SEID: u8 = 1;
    pub(super) const SMF: u8 = 2;
    pub(super) const CP_SEID: u8 = 3;
    pub(super) const RULES: u8 = 4;
    pub(super) const NAMES: u8 = 5;
    pub(super) const MEMBERSHIP: u8 = 6;
    pub(super) const URR_RULES: u8 = 7;
    pub(super) const USAGE: u8 = 8;
    pub(super) const ENDPOINTS: u8 = 9;
    pub(super) const WATCH: u8 = 10;
    pub(super) const DEFERRAL: u8 = 11;
    pub(super) const WAITING: u8 = 12;
    pub(super) const INDICATED: u8 = 13;
    pub(super) const EMERGENCY: u8 = 14;
    pub(super) const ASSOCIATION: u8 = 15;
    pub(super) const COUNTED: u8 = 16;
    pub(super) const ANSWERED: u8 = 17;
    pub(super) const SERVED: u8 = 18;
}

/// A session, apart from where it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    seid: u64,
    smf: NodeId,
    context: Context,
    /// Contents of the places that its rules name, and maybe of others. `None`: places are those of the configuration of whoever takes it in.
    names: Option<Names>,
    /// Where its packets were counted.
    counted: Vec<CountedAt>,
    /// The request that was carried out last, for whoever has its answer.
    answered: Fingerprint,
    served: u64,
}

/// Parts of a session's record for the next process of its node, which has the tables and the answers of this one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within<'a> {
    /// Number of the association, in the record of the node.
    pub(crate) association: u32,
    /// Entries of tables, which may outlive their process, that count its packets.
    pub(crate) counted: &'a [CountedAt],
    /// The request that was carried out last, whose answer may be kept.
    pub(crate) answered: Fingerprint,
    /// Of requests that are served beside the core, those in front of this are in the record ([`compiled::Tables::served_until`]).
    pub(crate) served: u64,
}

/// By what a record says whose the session is, and what is in the places that it names.
#[derive(Clone, Copy, Debug)]
enum Home<'a> {
    /// By names: anybody can take it in.
    Anywhere(&'a NodeId, Option<&'a Names>),
    /// By the number of the association, and places: who has the record of its node can.
    Node(Within<'a>),
}

/// The record of a session that is here. site: what is in the places that it names.
pub(crate) fn write(seid: u64, smf: &NodeId, context: &Context, site: &Site) -> Vec<u8> {
    let names = names_in(context, |place| site.name_of(place));
    let mut octets = Vec::new();
    put_record(
        seid,
        Home::Anywhere(smf, Some(&names)),
        context,
        &mut octets,
    );
    octets
}

/// The same, appended, for those who have more than this record.
pub(crate) fn put_within(seid: u64, within: Within<'_>, context: &Context, into: &mut Vec<u8>) {
    put_record(seid, Home::Node(within), context, into);
}

fn names_in(context: &Context, name_of: impl Fn(ConfigPlace) -> Option<ConfigName>) -> Names {
    let places = places_of(&mut context.rules(), context.endpoints());
    Names::of(places, name_of)
}

fn put_record(seid: u64, home: Home<'_>, context: &Context, into: &mut Vec<u8>) {
    into.extend_from_slice(&VERSION.to_be_bytes());
    put_with_length(into, |fields| put_fields(seid, home, context, fields));
}

fn put_fields(seid: u64, home: Home<'_>, context: &Context, fields: &mut Vec<u8>) {
    let Context {
        kept,
        cp_seid,
        extra,
    } = context;
    put_field(tag::SEID, &seid, fields);
    if let Home::Anywhere(smf, _) = home {
        put_field(tag::SMF, smf, fields);
    }
    put_field(tag::CP_SEID, cp_seid, fields);
    put_field(tag::RULES, kept, fields);
    if let Home::Anywhere(_, names) = home {
        put_some(tag::NAMES, names, fields);
    }
    if let Some(Extra {
        membership,
        urr_rules,
        usage,
        rare,
    }) = extra.as_deref()
    {
        put_some(tag::MEMBERSHIP, membership.as_ref(), fields);
        if !urr_rules.urrs.is_empty() {
            put_field(tag::URR_RULES, urr_rules, fields);
        }
        put_some(tag::USAGE, usage.as_ref(), fields);
        if let Some(Rare {
            endpoints,
            watch,
            deferral,
            waiting,
            indicated,
            is_emergency,
        }) = rare.as_deref()
        {
            let endpoints = (!endpoints.is_empty()).then_some(endpoints);
            put_some(tag::ENDPOINTS, endpoints, fields);
            put_some(tag::WATCH, watch.as_ref(), fields);
            put_some(tag::DEFERRAL, deferral.as_ref(), fields);
            put_some(tag::WAITING, waiting.as_ref(), fields);
            let indicated = (!indicated.is_empty()).then_some(indicated);
            put_some(tag::INDICATED, indicated, fields);
            put_some(tag::EMERGENCY, is_emergency.then_some(&true), fields);
        }
    }
    if let Home::Node(within) = home {
        let Within {
            association,
            counted,
            answered,
            served,
        } = within;
        put_field(tag::ASSOCIATION, &association, fields);
        let counted = (!counted.is_empty()).then_some(counted);
        put_some(tag::COUNTED, counted.as_ref(), fields);
        let answered = (answered != Fingerprint::default()).then_some(answered);
        put_some(tag::ANSWERED, answered.as_ref(), fields);
        put_some(tag::SERVED, (served > 0).then_some(&served), fields);
    }
}

fn put_some(tag: u8, value: Option<&impl Serialize>, into: &mut Vec<u8>) {
    if let Some(value) = value {
        put_field(tag, value, into);
    }
}

/// The fields of a record.
struct Read {
    seid: u64,
    smf: Option<NodeId>,
    association: Option<u32>,
    context: Context,
    /// Rules of the context.
    rules: Rules,
    names: Option<Names>,
    counted: Vec<CountedAt>,
    answered: Fingerprint,
    served: u64,
}

impl Read {
    fn of(octets: &[u8]) -> Result<Self, RecordError> {
        let mut octets = behind_version(octets, VERSION, OCTETS_MAX)?;
        let mut fields = Fields::of(take_octets(&mut octets)?);
        let (mut seid, mut smf, mut names, mut association) = (0, None, None, None);
        let (mut kept, mut cp_seid, mut counted, mut answered, mut served) = Default::default();
        let (mut extra, mut rare) = (Extra::default(), Rare::default());
        let mut rules = Rules::default();
        while let Some((tag, octets)) = fields.next()? {
            match tag {
                tag::SEID => seid = value_of(octets)?,
                tag::SMF => smf = Some(value_of(octets)?),
                tag::CP_SEID => cp_seid = value_of(octets)?,
                tag::RULES => (kept, rules) = Kept::of(value_of(octets)?)?,
                tag::NAMES => names = Some(value_of(octets)?),
                tag::MEMBERSHIP => extra.membership = Some(value_of(octets)?),
                tag::URR_RULES => extra.urr_rules = value_of(octets)?,
                tag::USAGE => extra.usage = Some(value_of(octets)?),
                tag::ENDPOINTS => rare.endpoints = value_of(octets)?,
                tag::WATCH => rare.watch = Some(value_of(octets)?),
                tag::DEFERRAL => rare.deferral = Some(value_of(octets)?),
                tag::WAITING => rare.waiting = Some(value_of(octets)?),
                tag::INDICATED => rare.indicated = value_of(octets)?,
                tag::ASSOCIATION => association = Some(value_of(octets)?),
                tag::EMERGENCY => rare.is_emergency = value_of(octets)?,
                tag::COUNTED => counted = value_of(octets)?,
                tag::ANSWERED => answered = value_of(octets)?,
                tag::SERVED => served = value_of(octets)?,
                unknown => return Err(RecordError::UnknownField(unknown)),
            }
        }
        extra.rare = (!rare.is_empty()).then(|| Box::new(rare));
        rules.urrs = extra.urr_rules.urrs.clone();
        Ok(Self {
            seid,
            smf,
            association,
            context: Context {
                kept,
                cp_seid,
                extra: (!extra.is_empty()).then(|| Box::new(extra)),
            },
            rules,
            names,
            counted,
            answered,
            served,
        })
    }
}

impl Record {
    /// Of a session that has been here. site: what is in the places that it names.
    pub(crate) fn new(seid: u64, smf: NodeId, context: Context, site: &Site) -> Self {
        let names = Some(names_in(&context, |place| site.name_of(place)));
        Self {
            seid,
            smf,
            context,
            names,
            counted: Vec::new(),
            answered: Fingerprint::default(),
            served: 0,
        }
    }

    /// The record that these octets are.
    pub fn read(octets: &[u8]) -> Result<Self, RecordError> {
        let mut read = Read::of(octets)?;
        let smf = read.smf.filter(|_| read.association.is_none());
        let record = Self {
            seid: read.seid,
            smf: smf.ok_or(RecordError::Malformed)?,
            context: read.context,
            names: read.names,
            counted: Vec::new(),
            answered: Fingerprint::default(),
            served: 0,
        };
        // No field that says nothing, and no number longer than it need be.
        if record.put(record.names.as_ref()) != octets {
            return Err(RecordError::Malformed);
        }
        let record = record.checked(&read.rules)?;
        if let Some(names) = &record.names {
            let named: Vec<ConfigPlace> = names.places().collect();
            let places = places_of(&mut read.rules, record.context.endpoints());
            let is_exact = places.into_iter().eq(named);
            hold(is_exact, "names of what its rules do not name")
                .and_then(|()| hold(names.are_possible(), "a name of something else"))
                .map_err(RecordError::Impossible)?;
        }
        Ok(record)
    }

    /// The record that these octets are, which the node wrote whose associations have these numbers, and whose configuration
    /// had this in its places.
    pub(crate) fn read_within(
        octets: &[u8],
        smf_of: impl Fn(u32) -> Option<NodeId>,
        names: &Names,
    ) -> Result<Self, RecordError> {
        let Read {
            seid,
            context,
            mut rules,
            association,
            counted,
            answered,
            served,
            ..
        } = Read::of(octets)?;
        let association = association.ok_or(RecordError::Malformed)?;
        let mut again = Vec::with_capacity(octets.len());
        let within = Within {
            association,
            counted: &counted,
            answered,
            served,
        };
        put_within(seid, within, &context, &mut again);
        if again != octets {
            return Err(RecordError::Malformed);
        }
        let is_named = |place| names.get(place).map(|_| place);
        let are_named = each_place(&mut rules, context.endpoints(), is_named);
        let nameless = "rules that name what has no name";
        are_named.map_err(|_| RecordError::Impossible(nameless))?;
        let smf = smf_of(association);
        let record = Self {
            seid,
            smf: smf.ok_or(RecordError::Impossible("a session of no association"))?,
            context,
            names: Some(names.clone()),
            counted,
            answered,
            served,
        };
        record.checked(&rules)
    }

    /// rules: its own.
    fn checked(mut self, rules: &Rules) -> Result<Self, RecordError> {
        if let Some(extra) = &mut self.context.extra {
            extra.urr_rules.ue = match &*rules.urrs {
                [] => Box::default(),
                _ => ue_nets(&rules.pdrs).into(),
            };
        }
        match unknown_attribute(rules) {
            Some((rule, tag)) => return Err(RecordError::UnknownAttribute { rule, tag }),
            None => self.is_possible(rules).map_err(RecordError::Impossible)?,
        }
        Ok(self)
    }

    /// Its octets. One that was read of an older version becomes one of this version, without the names that it lacks.
    pub fn write(&self) -> Vec<u8> {
        let names = self.names.as_ref();
        let names = names.map(|all| names_in(&self.context, |place| all.get(place).cloned()));
        self.put(names.as_ref())
    }

    fn put(&self, names: Option<&Names>) -> Vec<u8> {
        let mut octets = Vec::new();
        let home = Home::Anywhere(&self.smf, names);
        put_record(self.seid, home, &self.context, &mut octets);
        octets
    }

    /// The request that was carried out last.
    pub(crate) fn answered(&self) -> Fingerprint {
        self.answered
    }

    /// Of requests that were served beside the core that has written it, those in front of this are in it
    /// ([`compiled::Tables::served_until`]).
    pub fn served(&self) -> u64 {
        self.served
    }

    /// The session, under its SEID, what is in the places that it names, and [`Self::counted_at`].
    pub(crate) fn into_parts(self) -> (u64, Context, Option<Names>, Vec<CountedAt>) {
        (self.seid, self.context, self.names, self.counted)
    }

    /// Whether [`Self::uncounted`] may have something to tell of the record that these octets are, which costs next to nothing.
    pub fn is_counted(octets: &[u8]) -> bool {
        let fields = behind_version(octets, VERSION, OCTETS_MAX);
        let fields = fields.and_then(|mut octets| Ok(take_octets(&mut octets)?));
        let Ok(mut fields) = fields.map(Fields::of) else {
            return false;
        };
        let mut is_asked_for = false;
        while let Ok(Some((tag, _))) = fields.next() {
            is_asked_for |= matches!(tag, tag::USAGE | tag::WATCH);
            if tag == tag::COUNTED {
                return is_asked_for;
            }
        }
        false
    }

    /// Number of the association, the SMF's SEID and the address that controls it, of the record that these octets are, be the other
    /// fields what they are.
    pub(crate) fn owner(octets: &[u8]) -> Option<(u32, u64, Option<IpAddr>)> {
        let mut octets = behind_version(octets, VERSION, OCTETS_MAX).ok()?;
        let mut fields = Fields::of(take_octets(&mut octets).ok()?);
        let (mut association, mut cp_seid, mut membership) = (None, None, None::<Box<Membership>>);
        while let Some((tag, octets)) = fields.next().ok()? {
            match tag {
                tag::CP_SEID => cp_seid = Some(value_of(octets).ok()?),
                tag::MEMBERSHIP => membership = Some(value_of(octets).ok()?),
                tag::ASSOCIATION => association = Some(value_of(octets).ok()?),
                _ => {}
            }
        }
        let controller = membership.and_then(|membership| membership.controller);
        Some((association?, cp_seid?, controller))
    }

    /// Where its packets were counted, and metered.
    pub(crate) fn counted_at(&self) -> &[CountedAt] {
        &self.counted
    }

    /// Counts of its PDRs in tables whose process is gone that nobody has looked at. `counted`: those of an entry there; `None`:
    /// there is none. `all`: nobody has looked at any, whatever it says.
    pub fn uncounted(&self, all: bool, counted: impl Fn(u32) -> Option<Counters>) -> Uncounted {
        let of = |at: &CountedAt| {
            let entries = at.entries.iter().filter_map(|entry| counted(*entry));
            let before = at.before.as_deref().copied();
            before.into_iter().chain(entries).reduce(Counters::plus)
        };
        let usage = self.context.usage();
        let measured = usage.map(|usage| {
            usage.uncounted(all, |pdr| {
                let own = self.counted.iter().filter(|at| at.pdr == pdr);
                own.filter_map(of).reduce(Counters::plus)
            })
        });
        let watch = self.context.rare().and_then(|rare| rare.watch.as_ref());
        let packets = watch.map(|watch| {
            let sum = self.counted.iter().filter_map(of).reduce(Counters::plus)?;
            let seen = if all { 0 } else { watch.packets };
            Some(sum.packets.wrapping_add(sum.drops).wrapping_sub(seen))
        });
        Uncounted {
            measured: measured.unwrap_or_default(),
            packets: packets.flatten().unwrap_or(0),
        }
    }

    /// Our SEID.
    pub fn seid(&self) -> u64 {
        self.seid
    }

    /// SMF that has the session.
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

    fn is_possible(&self, rules: &Rules) -> Result<(), &'static str> {
        hold(self.seid != 0, "SEID 0")?;
        hold(self.smf.is_legal(), "a Node ID that is none")?;
        ids_are_possible(rules)?;
        rules.pdrs.iter().try_for_each(pdr_is_possible)?;
        let far_is_canonical = |targets: &Targets| targets.is_canonical();
        let mut fars = rules.fars.iter().map(|far| &far.targets);
        hold(fars.all(far_is_canonical), "a FAR in another form")?;
        match &self.context.extra {
            Some(extra) => extra_is_possible(extra, rules),
            None => Ok(()),
        }
    }
}

/// Something that a later version knows of a rule, and its tag. To go without it would be to let packets pass by another rule.
fn unknown_attribute(rules: &Rules) -> Option<(RuleId, u8)> {
    fn of<R: Rule>(rules: &[R], unknown: impl Fn(&R) -> Option<u8>) -> Option<(RuleId, u8)> {
        let mut found = rules.iter().filter_map(|rule| {
            let tag = unknown(rule)?;
            Some((R::named(rule.id()), tag))
        });
        found.next()
    }
    let of_pdi = |pdr: &Pdr| {
        let mut filters = pdr.pdi.filters().iter();
        let more = pdr.pdi.more.as_ref().and_then(|more| more.unknown());
        more.or_else(|| filters.find_map(|filter| filter.asks.unknown()))
    };
    of(&rules.pdrs, of_pdi)
        .or_else(|| of(&rules.fars, |far| far.targets.unknown()))
        .or_else(|| of(&rules.qers, |qer| qer.rare.as_ref()?.unknown()))
        .or_else(|| of(&rules.urrs, |urr| urr.asks.rare().unknown()))
}

/// Places in the configuration that the rules of a session name, which stay as they are.
fn places_of(rules: &mut Rules, endpoints: &[Endpoint]) -> BTreeSet<ConfigPlace> {
    let mut places = BTreeSet::new();
    let note = |place| {
        places.insert(place);
        Some(place)
    };
    let all = each_place(rules, endpoints, note);
    debug_assert!(all.is_ok(), "each stays where it is");
    places
}

/// Each place in the configuration that the rules of a session name becomes another one; the first that has none is the error.
fn each_place(
    rules: &mut Rules,
    endpoints: &[Endpoint],
    mut to: impl FnMut(ConfigPlace) -> Option<ConfigPlace>,
) -> Result<(), ConfigPlace> {
    let mut all = Relocation(&mut to);
    let mut endpoints = endpoints.to_vec();
    rules.pdrs.iter_mut().try_for_each(|pdr| all.pdr(pdr))?;
    rules.fars.iter_mut().try_for_each(|far| all.far(far))?;
    (endpoints.iter_mut()).try_for_each(|known| known.relocate(&mut all))
}

/// Sorted, so that one is soon found: a record may have tens of thousands of rules.
fn sorted<T: Ord>(ids: impl Iterator<Item = T>) -> SmallVec<[T; 8]> {
    let mut ids: SmallVec<_> = ids.collect();
    ids.sort_unstable();
    ids
}

fn are_unique<T: PartialEq>(sorted: &[T]) -> bool {
    sorted.windows(2).all(|of| of[0] != of[1])
}

/// No rule has the id of another one, and rules that other rules name are there.
fn ids_are_possible(rules: &Rules) -> Result<(), &'static str> {
    fn of<R: Rule<Id: Ord>>(rules: &[R]) -> SmallVec<[R::Id; 8]> {
        sorted(rules.iter().map(Rule::id))
    }
    let (pdrs, fars, qers) = (of(&rules.pdrs), of(&rules.fars), of(&rules.qers));
    let (urrs, bars) = (of(&rules.urrs), of(&rules.bars));
    let unique = are_unique(&pdrs) && are_unique(&fars) && are_unique(&qers);
    let unique = unique && are_unique(&urrs) && are_unique(&bars);
    hold(unique, "two rules of one id")?;
    let is_far = |id: &FarId| fars.binary_search(id).is_ok();
    for pdr in &rules.pdrs {
        hold(pdr.far.as_ref().is_none_or(is_far), "a PDR without its FAR")?;
        let mut named = pdr.qers.iter();
        let has_qers = named.all(|id| qers.binary_search(id).is_ok());
        hold(has_qers, "a PDR without its QER")?;
        let mut named = pdr.urrs.iter();
        let has_urrs = named.all(|id| urrs.binary_search(id).is_ok());
        hold(has_urrs, "a PDR without its URR")?;
    }
    let mut named = rules.fars.iter().filter_map(|far| far.bar);
    let has_bars = named.all(|id| bars.binary_search(&id).is_ok());
    hold(has_bars, "a FAR without its BAR")?;
    let mut named = (rules.urrs.iter()).filter_map(|urr| urr.asks.rare().quota_far);
    hold(named.all(|id| is_far(&id)), "a URR without its FAR")
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
    let sorted = |membership: &Membership| membership.sets.is_sorted_by(|a, b| a < b);
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
    let unique = are_unique(&sorted(endpoints.iter().map(|endpoint| endpoint.id)));
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
