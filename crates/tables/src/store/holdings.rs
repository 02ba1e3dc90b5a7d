//! Holdings of sessions ([`compiled`]).

use compiled::{Compiled, Holding, NoRoom, Resource};
use smallvec::SmallVec;

use crate::abi::Ext;
use crate::copies;
use crate::filters::RuleList;
use crate::handle::{Handle, HeldEntry, HeldKey, HeldMeter, Parts};
use crate::prefixes;
use crate::store::plan::Plan;
use crate::store::shard::ShardTables;

impl ShardTables {
    /// How much there is for all sessions of the shard; of what the node has, none.
    pub(crate) fn room(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Entries => Some(self.entries.free.capacity().into()),
            Resource::Rules => Some(self.rules.capacity().into()),
            Resource::Framed => Some(self.framed.capacity().into()),
            Resource::Meters => Some(self.meters.capacity().into()),
            Resource::Guaranteed(_) | Resource::Sessions => None,
        }
    }

    /// Holdings of a session that is in the tables, of these.
    pub(crate) fn holding(&self, handle: &Handle) -> Holding {
        self.held_by(handle.entries(), handle.keys(), handle.meters())
    }

    fn held_by(&self, entries: &[HeldEntry], keys: &[HeldKey], meters: &[HeldMeter]) -> Holding {
        let mut sum = Holding::default();
        sum.add(Resource::Meters, meters.len() as u64);
        for HeldEntry { index, .. } in entries {
            sum.add(Resource::Entries, self.is_line(*index));
            sum.add(Resource::Framed, self.places_of_ext(*index));
        }
        let mut seen = Seen::default();
        for key in keys {
            if let Some(first) = self.entries.first_rule_of(key.entry) {
                if seen.lines.is_new(key.entry) {
                    sum.add(Resource::Entries, self.is_line(key.entry));
                }
                if seen.lists.is_new(first) {
                    let places = RuleList::places_at(&self.mem.rules, first);
                    sum.add(Resource::Rules, places.len() as u64);
                }
            }
        }
        sum
    }

    /// The slot of a TEID is nobody's but that TEID's.
    fn is_line(&self, index: u32) -> u64 {
        u64::from(index >= self.entries.direct_end)
    }

    fn places_of_ext(&self, index: u32) -> u64 {
        let Some(ext) = self.entries.ext_of(index) else {
            return 0;
        };
        places(self.ext(ext))
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
            sum.add(Resource::Framed, want.words.ext.map_or(0, places));
        }
        let mut seen = Seen::default();
        for key in plan.keys.iter().filter(|key| key.listed) {
            if seen.lines.is_new(key.at) {
                sum.add(Resource::Entries, self.is_line(key.at));
            }
        }
        for (first, list, _) in &plan.lists {
            if seen.lists.is_new(*first) {
                sum.add(Resource::Rules, list.places() as u64);
            }
        }
        sum
    }
}

/// Lines and lists that several keys of a session lead to, which count once.
#[derive(Default)]
struct Seen {
    lines: Numbers,
    lists: Numbers,
}

#[derive(Default)]
struct Numbers(SmallVec<[u32; 4]>);

impl Numbers {
    fn is_new(&mut self, number: u32) -> bool {
        let is_new = !self.0.contains(&number);
        if is_new {
            self.0.push(number);
        }
        is_new
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
