//! The rules of a session between requests, but for its URRs: octets in one block of memory.
//!
//! With many sessions none of them is in a cache when a request comes for it, so what counts is how many lines its rules
//! lie in. Written like this, those of an ordinary session lie in two or three; as values, in eight.

use serde::{Serialize, Serializer};

use crate::base::octets::{Malformed, put, take, take_many};
use crate::rules::{Bar, Far, FarId, Pdr, Qer, Rules};

/// How many PDRs, FARs, QERs and BARs there are, then those, in this order: most readers want PDRs alone. No octets at
/// all: no rules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(Box<[u8]>);

/// Numbers of PDRs, FARs, QERs and BARs.
type Counts = [usize; 4];

/// Offsets at which rules of each kind end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    begin: usize,
    pdrs: usize,
    fars: usize,
    qers: usize,
    bars: usize,
}

/// Rules to write.
#[derive(Debug)]
pub(crate) struct ToKeep<'a> {
    pub(crate) pdrs: Part<'a, Pdr>,
    pub(crate) fars: Part<'a, Far>,
    pub(crate) qers: Part<'a, Qer>,
    pub(crate) bars: Part<'a, Bar>,
}

/// Rules of one kind, to write.
#[derive(Debug)]
pub(crate) struct Part<'a, R> {
    pub(crate) rules: &'a [R],
    /// They differ from what is kept.
    pub(crate) changed: bool,
}

impl<'a, R> Part<'a, R> {
    fn new(rules: &'a [R]) -> Self {
        let changed = true;
        Self { rules, changed }
    }
}

impl<R: Serialize> Part<'_, R> {
    fn put(&self, kept: Option<&[u8]>, into: &mut Vec<u8>) {
        match kept.filter(|_| !self.changed) {
            Some(kept) => into.extend_from_slice(kept),
            None => self.rules.iter().for_each(|rule| put(rule, into)),
        }
    }
}

/// Places for rules that are read; their capacity is used again.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    pub(crate) pdrs: &'a mut Vec<Pdr>,
    pub(crate) fars: &'a mut Vec<Far>,
    pub(crate) qers: &'a mut Vec<Qer>,
    pub(crate) bars: &'a mut Vec<Bar>,
}

impl<'a> ToKeep<'a> {
    /// All of these, but for URRs.
    pub(crate) fn of(rules: &'a Rules) -> Self {
        Self {
            pdrs: Part::new(&rules.pdrs),
            fars: Part::new(&rules.fars),
            qers: Part::new(&rules.qers),
            bars: Part::new(&rules.bars),
        }
    }

    /// Appends them; what has not changed, as it is in `before`, which ends there.
    fn put(&self, before: &[u8], ends: Ends, into: &mut Vec<u8>) -> Ends {
        let Self {
            pdrs,
            fars,
            qers,
            bars,
        } = self;
        let (pdr_count, far_count) = (pdrs.rules.len(), fars.rules.len());
        let counts = [pdr_count, far_count, qers.rules.len(), bars.rules.len()];
        put(&counts.map(|count| count as u16), into);
        let mut now = Ends {
            begin: into.len(),
            ..Ends::default()
        };
        pdrs.put(before.get(ends.begin..ends.pdrs), into);
        now.pdrs = into.len();
        fars.put(before.get(ends.pdrs..ends.fars), into);
        now.fars = into.len();
        qers.put(before.get(ends.fars..ends.qers), into);
        now.qers = into.len();
        bars.put(before.get(ends.qers..ends.bars), into);
        now.bars = into.len();
        now
    }
}

impl Kept {
    /// Octets from elsewhere, if they are rules as [`Self::write`] writes them, and nothing else. And those rules, of which URRs are none.
    pub(crate) fn of(octets: &[u8]) -> Result<(Self, Rules), Malformed> {
        let kept = Self(octets.into());
        let rules = kept.try_rules()?;
        let mut again = Vec::with_capacity(octets.len());
        ToKeep::of(&rules).put(&[], Ends::default(), &mut again);
        (again == octets).then_some((kept, rules)).ok_or(Malformed)
    }

    /// All rules, of which URRs are none.
    pub(crate) fn rules(&self) -> Rules {
        let rules = self.try_rules();
        debug_assert!(rules.is_ok(), "we wrote it");
        rules.unwrap_or_default()
    }

    fn try_rules(&self) -> Result<Rules, Malformed> {
        let (mut pdrs, mut fars, mut qers, mut bars) = Default::default();
        self.try_read(Places {
            pdrs: &mut pdrs,
            fars: &mut fars,
            qers: &mut qers,
            bars: &mut bars,
        })?;
        Ok(Rules {
            pdrs: pdrs.into(),
            fars: fars.into(),
            qers: qers.into(),
            urrs: Box::default(),
            bars: bars.into(),
        })
    }

    /// Become these rules. `ends`: what [`Self::read`] has said, and would say afterwards. `scratch`: any octets, kept for their
    /// capacity. Where the length stays, so does the place in memory.
    pub(crate) fn write(&mut self, rules: ToKeep<'_>, ends: &mut Ends, scratch: &mut Vec<u8>) {
        scratch.clear();
        *ends = rules.put(&self.0, *ends, scratch);
        if self.0.len() == scratch.len() {
            self.0.copy_from_slice(scratch);
        } else {
            self.0 = scratch.as_slice().into();
        }
    }

    /// Each FAR, and the offset where it begins.
    pub(crate) fn fars_at(&self, ends: Ends) -> impl Iterator<Item = (FarId, usize)> + '_ {
        let mut at = ends.pdrs;
        let end = ends.fars;
        std::iter::from_fn(move || {
            let fars = self.0.get(at..end).filter(|fars| !fars.is_empty())?;
            let (begin, mut from) = (at, fars);
            let far = take::<Far>(&mut from).ok()?;
            at = end - from.len();
            Some((far.id, begin))
        })
    }

    /// Change the FAR that begins at this offset. By how many octets those behind it move; `None`: it is another one, and nothing has
    /// happened. `scratch`: any octets, kept for their capacity.
    pub(crate) fn change_far(
        &mut self,
        (id, at): (FarId, usize),
        scratch: &mut Vec<u8>,
        change: impl FnOnce(&mut Far),
    ) -> Option<isize> {
        let mut from = self.0.get(at..)?;
        let mut far: Far = take(&mut from).ok().filter(|far: &Far| far.id == id)?;
        let end = self.0.len() - from.len();
        change(&mut far);
        scratch.clear();
        put(&far, scratch);
        if scratch.len() == end - at {
            self.0[at..end].copy_from_slice(scratch);
        } else {
            self.0 = [&self.0[..at], scratch, &self.0[end..]].concat().into();
        }
        Some(scratch.len() as isize - (end - at) as isize)
    }

    /// How many PDRs, FARs, QERs and BARs there are.
    pub(crate) fn counts(&self) -> [usize; 4] {
        counts(&mut &*self.0).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn octets(&self) -> usize {
        self.0.len()
    }

    /// All PDRs, in place of what is in `into`.
    pub(crate) fn read_pdrs(&self, into: &mut Vec<Pdr>) {
        let mut from = &*self.0;
        let counts = counts(&mut from);
        let done = counts.and_then(|[pdrs, ..]| take_many(pdrs, into, &mut from));
        debug_assert_eq!(done, Ok(()), "we wrote it");
    }

    pub(crate) fn pdrs(&self) -> Vec<Pdr> {
        let mut pdrs = Vec::new();
        self.read_pdrs(&mut pdrs);
        pdrs
    }

    /// All rules, in place of what is in `into`.
    pub(crate) fn read(&self, into: Places<'_>) -> Ends {
        let done = self.try_read(into);
        debug_assert!(done.is_ok(), "we wrote it");
        done.unwrap_or_default()
    }

    fn try_read(&self, into: Places<'_>) -> Result<Ends, Malformed> {
        let mut from = &*self.0;
        let [pdrs, fars, qers, bars] = counts(&mut from)?;
        let mut ends = Ends {
            begin: self.0.len() - from.len(),
            ..Ends::default()
        };
        take_many(pdrs, into.pdrs, &mut from)?;
        ends.pdrs = self.0.len() - from.len();
        take_many(fars, into.fars, &mut from)?;
        ends.fars = self.0.len() - from.len();
        take_many(qers, into.qers, &mut from)?;
        ends.qers = self.0.len() - from.len();
        take_many(bars, into.bars, &mut from)?;
        ends.bars = self.0.len() - from.len();
        Ok(ends)
    }

    /// Read each line of the cache. The result means nothing.
    pub(crate) fn touch(&self) -> u64 {
        const LINE: usize = 64;
        let first = self.0.iter().step_by(LINE);
        first.chain(self.0.last()).fold(0, |a, b| a ^ u64::from(*b))
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

fn counts(from: &mut &[u8]) -> Result<Counts, Malformed> {
    if from.is_empty() {
        return Ok(Counts::default());
    }
    Ok(take::<[u16; 4]>(from)?.map(usize::from))
}
