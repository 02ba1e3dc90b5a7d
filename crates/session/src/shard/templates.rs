//! Templates of requests: learned from what SMFs ask for again and again, each within what its association may teach.

use std::collections::BTreeMap;

use compiled::{TEMPLATES, TEMPLATES_OF_LENGTH, Tables, Template};

use crate::base::ids::PeerId;

/// A request becomes a template when so many like it were carried out.
pub(crate) const ACCEPTED: u32 = 8;

/// Templates of one association.
pub(crate) const OF_ASSOCIATION: usize = TEMPLATES / 4;

/// Requests of one association that may become templates.
const CANDIDATES: usize = 16;

#[derive(Debug)]
struct Known {
    template: Template,
    by: PeerId,
    /// As [`Templates::served`] was when it served last.
    last: u64,
    /// Requests that it has served.
    served: u64,
}

#[derive(Debug)]
struct Candidate {
    template: Template,
    accepted: u32,
}

/// All templates, by number.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    known: Vec<Option<Known>>,
    /// The oldest first.
    candidates: BTreeMap<PeerId, Vec<Candidate>>,
    /// Requests that templates have served.
    served: u64,
}

impl Templates {
    /// Each, by whom it was taught, and how many requests it has served.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PeerId, &Template, u64)> {
        let all = self.known.iter().flatten();
        all.map(|known| (known.by, &known.template, known.served))
    }

    /// A request was served by this one.
    pub(crate) fn has_served(&mut self, number: usize) {
        self.served += 1;
        if let Some(Some(known)) = self.known.get_mut(number) {
            known.last = self.served;
            known.served += 1;
        }
    }

    /// A request like this was carried out for an association.
    pub(crate) fn accepted(&mut self, by: PeerId, template: Template, tables: &mut impl Tables) {
        let mut known = self.known.iter().flatten();
        if known.any(|known| known.template == template) {
            return;
        }
        let candidates = self.candidates.entry(by).or_default();
        let place = (candidates.iter()).position(|candidate| candidate.template == template);
        let Some(place) = place else {
            if candidates.len() >= CANDIDATES {
                candidates.remove(0);
            }
            let accepted = 1;
            return candidates.push(Candidate { template, accepted });
        };
        candidates[place].accepted += 1;
        if candidates[place].accepted >= ACCEPTED {
            candidates.remove(place);
            self.teach(by, template, tables);
        }
    }

    /// A template takes a free place; where there is none, for it or for its length, that of another one.
    fn teach(&mut self, by: PeerId, template: Template, tables: &mut impl Tables) {
        self.known.resize_with(TEMPLATES, || None);
        let length = template.octets.len();
        let is_as_long = |known: &Known| known.template.octets.len() == length;
        let as_long = self
            .known
            .iter()
            .flatten()
            .filter(|known| is_as_long(known));
        let own = self.known.iter().flatten().filter(|known| known.by == by);
        let free = self.known.iter().position(Option::is_none);
        let number = if as_long.count() >= TEMPLATES_OF_LENGTH {
            self.gives_way(by, is_as_long)
        } else if own.count() >= OF_ASSOCIATION {
            self.gives_way(by, |known| known.by == by)
        } else {
            free.or_else(|| self.gives_way(by, |_| true))
        };
        let Some(number) = number else { return };
        let last = self.served;
        let is_taught = tables.teach(number, Some(&template));
        self.known[number] = is_taught.then_some(Known {
            template,
            by,
            last,
            served: 0,
        });
    }

    /// Of these templates, the one that has served the longest ago of the association that has the most; of `by`, for whom it is
    /// asked, where nobody has more. `None`: it has none then.
    fn gives_way(&self, by: PeerId, of: impl Fn(&Known) -> bool) -> Option<usize> {
        let these = || self.known.iter().flatten().filter(|known| of(known));
        let mut counts: BTreeMap<PeerId, usize> = BTreeMap::new();
        these().for_each(|known| *counts.entry(known.by).or_default() += 1);
        let own = counts.get(&by).copied().unwrap_or(0);
        let (&most, &count) = counts.iter().max_by_key(|(_, count)| **count)?;
        let of_whom = if count > own + 1 { most } else { by };
        let all = self.known.iter().enumerate();
        let all = all.filter_map(|(number, known)| Some((number, known.as_ref()?)));
        let theirs = all.filter(|(_, known)| known.by == of_whom && of(known));
        let oldest = theirs.min_by_key(|(_, known)| known.last);
        oldest.map(|(number, _)| number)
    }

    /// An association has ended.
    pub(crate) fn forget(&mut self, by: PeerId, tables: &mut impl Tables) {
        self.candidates.remove(&by);
        for (number, known) in self.known.iter_mut().enumerate() {
            if known.as_ref().is_some_and(|known| known.by == by) {
                *known = None;
                tables.teach(number, None);
            }
        }
    }
}
