//! Holdings of sessions ([`session::room`]).

use session::compiled::{CapacityId, Compiled, NoRoom};
use session::room::{Holding, Resource};

use crate::abi::{Ext, from_words};
use crate::copies;
use crate::handle::{Handle, HeldEntry, HeldKey, HeldMeter, Parts};
use crate::prefixes;
use crate::store::Store;
use crate::store::plan::Plan;

impl Store {
    /// How much there is for all sessions.
    pub(crate) fn room(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Entries => Some(self.entries.capacity().into()),
            Resource::Rules => Some(self.rules.capacity().into()),
            Resource::Meters => Some(self.meters.capacity().into()),
            Resource::Guaranteed(id) => self.capacities.guaranteed_at_most(id),
            Resource::Sessions => None,
        }
    }

    /// Holdings of a session that is in the tables.
    pub(crate) fn holding(&self, handle: &Handle) -> Holding {
        let mut sum = self.held_by(handle.entries(), handle.keys(), handle.meters());
        if !handle.meters().is_empty() {
            for (id, bps) in self.capacities.held(handle.meters()) {
                if id != CapacityId::NONE {
                    sum.add(Resource::Guaranteed(id), bps);
                }
            }
        }
        sum
    }

    fn held_by(&self, entries: &[HeldEntry], keys: &[HeldKey], meters: &[HeldMeter]) -> Holding {
        let mut sum = Holding::default();
        sum.add(Resource::Meters, meters.len() as u64);
        for HeldEntry { index, .. } in entries {
            sum.add(Resource::Entries, self.is_line(*index));
            sum.add(Resource::Rules, self.places_of_ext(*index));
        }
        for key in keys {
            if let Some(rules) = self.rules_of(key.entry) {
                sum.add(Resource::Entries, self.is_line(key.entry));
                sum.add(Resource::Rules, rules.places() as u64);
            }
        }
        sum
    }

    /// The slot of a TEID is nobody's but that TEID's.
    fn is_line(&self, index: u32) -> u64 {
        u64::from(index >= self.direct_end)
    }

    fn places_of_ext(&self, index: u32) -> u64 {
        let Some(ext) = self.ext_of(index) else {
            return 0;
        };
        places(from_words(self.mem.exts[ext as usize].words()))
    }

    /// Whether what is planned is within what the session may come to hold.
    pub(crate) fn check_bounds(&self, plan: &Plan, new: &Compiled) -> Result<(), NoRoom> {
        if new.more.is_empty() {
            return Ok(());
        }
        let Parts {
            entries,
            keys,
            meters,
            ..
        } = &plan.held;
        let held = self.held_by(entries, keys, meters);
        let planned = self.planned(plan);
        for &(resource, more) in &new.more {
            let is_counted = Resource::COUNTED.contains(&resource);
            if is_counted && planned.of(resource).saturating_sub(held.of(resource)) > more {
                return Err(NoRoom::kept(resource.name()));
            }
        }
        Ok(())
    }

    /// Future holdings of the session, of resources that there are once.
    fn planned(&self, plan: &Plan) -> Holding {
        let mut sum = Holding::default();
        sum.add(Resource::Meters, plan.next.meters.len() as u64);
        for want in &plan.wants {
            sum.add(Resource::Entries, self.is_line(want.at));
            sum.add(Resource::Rules, want.words.ext.map_or(0, places));
        }
        for key in plan.keys.iter().filter(|key| key.listed) {
            sum.add(Resource::Entries, self.is_line(key.at));
            let live = || self.rules_of(key.at).map_or(0, |rules| rules.places());
            let len = key.run.map_or_else(live, |(_, len)| len);
            sum.add(Resource::Rules, len as u64);
        }
        sum
    }
}

/// Framed routes and duplicates of an entry.
fn places(ext: Ext) -> u64 {
    let framed = match ext.n_framed {
        0 => 0,
        count => prefixes::places(count as usize),
    };
    let copies = match ext.n_copies {
        0 => 0,
        count => copies::places(count as usize),
    };
    (framed + copies) as u64
}
