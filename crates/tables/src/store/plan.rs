//! Working out a change: what will lie where, and whether it fits. Nothing here is visible to
//! packets; what is taken is given back if the whole does not fit.

use compiled::{Action, Compiled, Entry, Key, Limit, NiId, NoRoom, PredefinedId, Select};
use ipnet::IpNet;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::ops::Range;

use crate::abi::{
    self, COPIES_MAX, CopyLine, Ext, FRAMED_MAX, KIND_TEID, KIND_UE4, KIND_UE6, METERS_MAX, entry,
};
use crate::capacity::ShareWords;
use crate::copies;
use crate::encode::{self, Meters, Words, meaningful};
use crate::filters::{Places, RuleList};
use crate::grace::Grace;
use crate::handle::{HeldEntry, HeldKey, HeldMeter, MeterKind, Parts, meter_name};
use crate::index::{SlotKey, Standing};
use crate::prefixes;
use crate::store::node::NodeTables;
use crate::store::retired::Retired;
use crate::store::shard::ShardTables;
use nexthop::Peer;

/// Way in which an entry comes to say what it shall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Nothing is to be done.
    Keep,
    /// In place: words that no packet reads now, then one that decides.
    Store,
    /// In a line that no packet reads, before a key leads there.
    Fresh,
}

/// One entry of the new form.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) words: Words,
    /// Line of `words.ext`.
    pub(crate) ext: u32,
    pub(crate) ext_is_fresh: bool,
    /// Duplicates that `words.ext` names.
    pub(crate) copies: Vec<CopyLine>,
    /// TEID, if a TEID alone leads here without a list.
    pub(crate) teid: u32,
    /// Departure time that the first packet must leave behind, in ticks of its meters.
    pub(crate) behind: u64,
    /// The entry that has been this PDR's.
    pub(crate) was: Option<u32>,
    pub(crate) at: u32,
    pub(crate) how: How,
    /// One key and no filter leads here.
    sole: bool,
}

impl Want {
    pub(crate) fn head(&self) -> u64 {
        self.words.head | u64::from(self.teid)
    }

    pub(crate) fn ext_word(&self, of: HeldEntry) -> u64 {
        let predefined = of.predefined.map_or(0, PredefinedId::get);
        u64::from(self.ext)
            | u64::from(of.pdr.0) << entry::PDR_SHIFT
            | u64::from(predefined) << entry::PREDEFINED_SHIFT
    }
}

/// One key of the new form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantKey {
    pub(crate) key: SlotKey,
    /// The line that is the TEID's alone.
    pub(crate) direct: Option<u32>,
    /// Packets know that line by the TEID itself.
    pub(crate) by_itself: bool,
    /// Entry that it leads to now.
    pub(crate) was: Option<u32>,
    pub(crate) at: u32,
    /// First of the rules that `at` leads to, if it leads to rules.
    pub(crate) first: Option<u32>,
    /// It does not do so yet.
    pub(crate) leads_anew: bool,
    /// It leads to rules, be it to a single entry that cannot lie in the key's own line as yet.
    pub(crate) listed: bool,
    pub(crate) standing: Option<Standing>,
}

/// Allocations to give back when a change does not fit.
#[derive(Debug)]
enum Taken {
    Entry(u32),
    Ext(u32),
    Meter(u32),
    Rules(Places),
    Framed(u32, usize),
    Slot(Standing),
    Peer(u32),
}

/// A change, worked out. Kept between changes for its memory.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) held: Parts,
    pub(crate) next: Parts,
    pub(crate) wants: Vec<Want>,
    pub(crate) keys: Vec<WantKey>,
    /// Lists behind the keys: where they begin, and the places of those that are new.
    pub(crate) lists: Vec<(u32, RuleList, Places)>,
    /// Meter lines and what they say: not yet reachable ones.
    pub(crate) fresh_meters: Vec<(u32, MeterWords)>,
    pub(crate) live_meters: Vec<(u32, MeterWords)>,
    /// Framed routes of the session, for all extension lines that name them.
    pub(crate) framed: Vec<IpNet>,
    meters: Vec<u32>,
    taken: Vec<Taken>,
    run: RuleList,
}

impl Plan {
    pub(crate) fn start(&mut self) {
        self.next.clear();
        self.wants.clear();
        self.keys.clear();
        self.lists.clear();
        self.fresh_meters.clear();
        self.live_meters.clear();
        self.framed.clear();
        self.meters.clear();
        self.taken.clear();
    }

    /// The list that begins at a place, if a key planned so far leads there.
    fn list_at(&self, first: u32) -> Option<&RuleList> {
        let mut lists = self.lists.iter();
        lists.find(|list| list.0 == first).map(|list| &list.1)
    }

    /// First place of such a list, if a key planned so far leads to one.
    fn first_of(&self, run: &RuleList) -> Option<u32> {
        let mut lists = self.lists.iter();
        lists.find(|list| list.1 == *run).map(|list| list.0)
    }
}

/// Control words of a shared meter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeterWords {
    pub(crate) name: u64,
    pub(crate) rate: u64,
    pub(crate) share: ShareWords,
}

/// A word of a table as the error names it.
fn no_room<T>(table: &'static str) -> impl FnOnce() -> Result<T, NoRoom> {
    move || Err(NoRoom::of(table))
}

/// Peer of an action that sends in UDP.
fn peer_of(action: Action) -> Option<Peer> {
    let (remote, local, udp) = match action {
        Action::Tunnel { peer, local, .. } => (peer, local, false),
        Action::Udp { peer, local, .. } => (peer, local, true),
        _ => return None,
    };
    debug_assert_eq!(remote.is_ipv4(), local.is_ipv4());
    Some(Peer { remote, local, udp })
}

/// Network instance of the UE's addresses; a session has them in one.
fn ni_of_ue(new: &Compiled) -> NiId {
    let mut of_keys = new.keys.iter().filter_map(|(key, _)| match *key {
        Key::Ue4 { ni, .. } | Key::Ue6 { ni, .. } | Key::Prefix { ni, .. } => Some(ni),
        Key::Teid { .. } => None,
    });
    of_keys.next().unwrap_or(NiId(0))
}

/// Works out a change: takes what it needs, of a shard and of the node.
pub(crate) struct Planner<'a> {
    pub(crate) node: &'a mut NodeTables,
    pub(crate) shard: &'a mut ShardTables,
    pub(crate) grace: &'a mut Grace<Retired>,
}

impl Planner<'_> {
    /// Work out how the session in `plan.held` becomes `new`.
    pub(crate) fn prepare(&mut self, plan: &mut Plan, new: &Compiled) -> Result<(), NoRoom> {
        plan.start();
        if new.framed.len() > FRAMED_MAX {
            return Err(NoRoom::of("framed"));
        }
        plan.framed.extend_from_slice(&new.framed);
        self.plan_meters(plan, new)?;
        self.plan_keys(plan, new);
        let ni = ni_of_ue(new);
        for rule in &new.entries {
            let want = self.plan_words(plan, rule, ni)?;
            plan.wants.push(want);
        }
        count_references(plan, new);
        for index in 0..plan.wants.len() {
            self.choose_home(plan, new, index);
        }
        self.keep_packets_whole(plan, new);
        self.take_entries(plan, new)?;
        for index in 0..plan.keys.len() {
            self.plan_way(plan, new, index)?;
        }
        self.plan_next(plan, new);
        Ok(())
    }

    /// Give back everything that [`Self::prepare`] took.
    pub(crate) fn undo(&mut self, plan: &mut Plan) {
        for taken in plan.taken.drain(..) {
            match taken {
                Taken::Entry(line) => self.shard.entries.free.give(line),
                Taken::Ext(line) => self.shard.exts.give(line),
                Taken::Meter(line) => self.shard.meters.give(line),
                Taken::Rules(places) => places
                    .into_iter()
                    .for_each(|place| self.shard.rules.give(place)),
                Taken::Framed(first, len) => self.shard.framed.give(first, len),
                Taken::Slot(Standing::Slot(reserved)) => self.shard.index.buckets.cancel(reserved),
                Taken::Slot(Standing::Page) => {}
                Taken::Peer(line) => self.node.release_peer(line, self.grace),
            }
        }
    }

    fn plan_meters(&mut self, plan: &mut Plan, new: &Compiled) -> Result<(), NoRoom> {
        for of in &new.meters {
            let kind = MeterKind::of(&of.limit);
            let words = MeterWords {
                name: meter_name(of.qer, of.direction, kind),
                ..self.meter_words(&of.limit)
            };
            let is_it = |held: &&HeldMeter| {
                (held.qer, held.direction, held.kind) == (of.qer, of.direction, kind)
                    && self.goes_the_same_way(held, words)
            };
            let index = if let Some(held) = plan.held.meters.iter().find(is_it) {
                plan.live_meters.push((held.index, words));
                held.index
            } else {
                let index = self
                    .shard
                    .meters
                    .take()
                    .map_or_else(no_room(self.shard.meters.name()), Ok)?;
                plan.taken.push(Taken::Meter(index));
                plan.fresh_meters.push((index, words));
                index
            };
            plan.next.meters.push(HeldMeter {
                index,
                qer: of.qer,
                direction: of.direction,
                kind,
            });
            plan.meters.push(index);
        }
        Ok(())
    }

    /// Packets of one flow may have several ways, with capacities of their own.
    fn goes_the_same_way(&self, held: &HeldMeter, words: MeterWords) -> bool {
        let line = &self.shard.mem.meters[held.index as usize];
        let share = line.load(abi::meter::SHARE);
        held.kind != MeterKind::Share || words.share.has_capacities_of(share)
    }

    fn meter_words(&self, limit: &Limit) -> MeterWords {
        let of = |rate| MeterWords {
            rate,
            ..MeterWords::default()
        };
        match limit {
            Limit::Bits(rate) => of(encode::rate_here(
                encode::rate_word(*rate),
                self.shard.longest_wait,
            )),
            Limit::Packets(rate) => of(encode::packets_word(*rate)),
            Limit::Share(share) => MeterWords {
                rate: self.node.capacities.rate_of(share),
                share: ShareWords::of(share),
                ..MeterWords::default()
            },
        }
    }

    fn plan_keys(&self, plan: &mut Plan, new: &Compiled) {
        for (key, _) in &new.keys {
            let mut direct = None;
            let key = match *key {
                Key::Teid { teid, slot } => {
                    direct = slot.filter(|&slot| slot < self.shard.entries.direct_end);
                    SlotKey::new(KIND_TEID, 0, teid.into())
                }
                Key::Ue4 { ni, addr } => {
                    self.node.instances.expect_ue(ni, addr.into());
                    ue_key(self.node.instances.home(ni), addr.into())
                }
                Key::Ue6 { ni, prefix } => {
                    self.node.instances.expect_ue(ni, prefix.into());
                    ue_key(self.node.instances.home(ni), prefix.into())
                }
                Key::Prefix { ni, net } => {
                    self.node.instances.expect_ues(ni, net);
                    prefixes::slot_key(
                        self.node.instances.home(ni),
                        net,
                        self.shard.index.buckets.salt(),
                    )
                }
            };
            let was = plan
                .held
                .keys
                .iter()
                .find(|held| held.key() == key)
                .map(|held| held.entry);
            plan.keys.push(WantKey {
                key,
                direct,
                by_itself: direct.is_some_and(|slot| key.leads_itself_to(slot)),
                was,
                at: 0,
                first: None,
                leads_anew: false,
                listed: false,
                standing: None,
            });
        }
    }

    /// Peer, meters and words of one entry.
    fn plan_words(&mut self, plan: &mut Plan, rule: &Entry, ni: NiId) -> Result<Want, NoRoom> {
        let mut peer = 0;
        if let Some(end) = peer_of(rule.action) {
            let taken = self.node.peers.acquire(end);
            peer = taken.map_or_else(no_room(self.node.peers.lines().name()), Ok)?;
            plan.taken.push(Taken::Peer(peer));
        }
        let line = |&meter: &usize| plan.meters[meter];
        let meters = Meters {
            rates: rule.shared_meters.iter().map(line).collect(),
            packets: rule.packet_meter.as_ref().map(line),
            share: rule.share.as_ref().map(line),
        };
        if meters.rates.len() > METERS_MAX {
            return Err(NoRoom::of("meters"));
        }
        let mut words = encode::words(
            rule,
            (ni, self.node.instances.count),
            peer,
            &meters,
            plan.framed.len(),
        );
        let was = plan
            .held
            .entries
            .iter()
            .find(|held| held.is_of((rule.pdr, rule.predefined)))
            .map(|held| held.index);
        let behind = self.shard.shape(&mut words, &plan.held, was);
        let copies: Vec<CopyLine> = rule.duplicates.iter().map(copies::line).collect();
        if copies.len() > COPIES_MAX {
            return Err(NoRoom::of("framed"));
        }
        let (ext, ext_is_fresh) = match &mut words.ext {
            Some(ext) => self.plan_ext(plan, was, ext, &copies)?,
            None => (0, false),
        };
        Ok(Want {
            words,
            ext,
            ext_is_fresh,
            copies,
            teid: 0,
            behind,
            was,
            at: 0,
            how: How::Fresh,
            sole: false,
        })
    }

    /// The live extension line if it says the same, else a fresh one. Leaves in `ext` where its framed
    /// routes are.
    fn plan_ext(
        &mut self,
        plan: &mut Plan,
        was: Option<u32>,
        ext: &mut Ext,
        copies: &[CopyLine],
    ) -> Result<(u32, bool), NoRoom> {
        let live = was.and_then(|was| self.shard.entries.ext_of(was));
        if let Some(live) = live.filter(|&live| self.ext_is(live, *ext, &plan.framed, copies)) {
            return Ok((live, false));
        }
        if ext.n_framed > 0 {
            let len = prefixes::places(ext.n_framed as usize);
            ext.framed = self.take_framed(plan, len)? + 1;
        }
        if ext.n_copies > 0 {
            let len = copies::places(ext.n_copies as usize);
            ext.copy = self.take_framed(plan, len)? + 1;
        }
        let line = self
            .shard
            .exts
            .take()
            .map_or_else(no_room(self.shard.exts.name()), Ok)?;
        plan.taken.push(Taken::Ext(line));
        Ok((line, true))
    }

    fn take_framed(&mut self, plan: &mut Plan, len: usize) -> Result<u32, NoRoom> {
        let first = self.shard.framed.take(len);
        let first = first.map_or_else(no_room(self.shard.framed.name()), Ok)?;
        plan.taken.push(Taken::Framed(first, len));
        Ok(first)
    }

    fn take_rules(&mut self, plan: &mut Plan, count: usize) -> Result<Places, NoRoom> {
        let mut places = Places::new();
        places.extend((0..count).map_while(|_| self.shard.rules.take()));
        let complete = places.len() == count;
        plan.taken.push(Taken::Rules(places.clone()));
        if complete {
            Ok(places)
        } else {
            Err(NoRoom::of(self.shard.rules.name()))
        }
    }

    /// Whether an extension line says this, with these framed routes and duplicates if it has any.
    fn ext_is(&self, line: u32, ext: Ext, framed: &[IpNet], copies: &[CopyLine]) -> bool {
        let live = self.shard.ext(line);
        let rules = &self.shard.mem.rules;
        let places = |first: u32| rules.get(first as usize..).unwrap_or_default();
        let same_routes = live
            .framed
            .checked_sub(1)
            .is_none_or(|first| prefixes::hold(places(first), live.n_framed.into(), framed));
        let same_copies = live
            .copy
            .checked_sub(1)
            .is_none_or(|first| copies::hold(places(first), live.n_copies.into(), copies));
        let (framed, copy) = (live.framed, live.copy);
        same_routes
            && same_copies
            && live
                == Ext {
                    framed,
                    copy,
                    ..ext
                }
    }

    /// Place of an entry, as far as it needs no new line.
    fn choose_home(&self, plan: &mut Plan, new: &Compiled, index: usize) {
        let slot = plan.wants[index].sole.then(|| {
            let of = |(_, select): &(Key, Select)| *select == Select::One(index);
            new.keys
                .iter()
                .position(of)
                .and_then(|key| plan.keys[key].direct)
        });
        let want = &plan.wants[index];
        let (at, how) = match (slot.flatten(), want.was) {
            (Some(slot), Some(was)) if was == slot => (slot, self.compare(want, was)),
            (Some(slot), _) if self.is_vacant(plan, slot) => (slot, How::Fresh),
            (_, Some(was)) if was >= self.shard.entries.direct_end => {
                (was, self.compare(want, was))
            }
            _ => (0, How::Fresh),
        };
        let want = &mut plan.wants[index];
        want.how = how;
        want.at = if how == How::Fresh && Some(at) == want.was {
            0
        } else {
            at
        };
    }

    /// No entry lies in the slot and no packet reads what lay there.
    fn is_vacant(&self, plan: &Plan, slot: u32) -> bool {
        !self.shard.transitions.is_settling(slot)
            && self.shard.entries.buffered(slot) == 0
            && plan.held.entries.iter().all(|held| held.index != slot)
    }

    /// Can a live entry become `want` so that each packet sees the old words or the new ones?
    fn compare(&self, want: &Want, was: u32) -> How {
        let line = self.shard.entries.line(was);
        let live = line.words();
        let (old, new) = (entry::settled(live[entry::HEAD]), want.head());
        let (read, needed) = (meaningful(old), meaningful(new));
        let differs = [
            needed[0] && live[entry::OUT] != want.words.out,
            needed[1] && live[entry::RATE] != want.words.rate,
            needed[2] && (live[entry::EXT] as u32) != want.ext,
        ];
        let under_traffic = (0..3).filter(|&word| differs[word] && read[word]).count();
        let quietly = (0..3).any(|word| differs[word] && !read[word]);
        match (old == new, under_traffic) {
            (true, 0) => How::Keep,
            (true, 1) => How::Store,
            (false, 0) if !quietly || !self.shard.transitions.is_settling(was) => How::Store,
            _ => How::Fresh,
        }
    }

    /// A packet must not meet an old list with a new entry, or half of several new entries: where
    /// a list, or the way to it, changes together with an entry, that entry gets a fresh line, so
    /// that one store switches all.
    fn keep_packets_whole(&self, plan: &mut Plan, new: &Compiled) {
        loop {
            let mut forced = false;
            for key in 0..plan.keys.len() {
                if plan.keys[key].was.is_none() {
                    continue;
                }
                let (changed, way_changes) = self.changes_behind(plan, new, key);
                if changed.len() > 1 || way_changes {
                    for want in changed {
                        plan.wants[want].how = How::Fresh;
                        plan.wants[want].at = 0;
                        forced = true;
                    }
                }
            }
            if !forced {
                return;
            }
        }
    }

    /// Entries behind a key that would change in place, and whether its way changes as well.
    fn changes_behind(
        &self,
        plan: &Plan,
        new: &Compiled,
        key: usize,
    ) -> (SmallVec<[usize; 4]>, bool) {
        let Some(was) = plan.keys[key].was else {
            return (SmallVec::new(), false);
        };
        let live = self.shard.rules_of(was);
        let way_changes = match new.keys[key].1 {
            Select::One(entry) => live.is_some() || plan.wants[entry].at != was,
            Select::List { first, len } => {
                live.as_ref() != Some(&list_of(new, key, first..first + len, &plan.wants))
            }
        };
        let before = |want: &Want| {
            want.was.is_some_and(|index| match &live {
                Some(rules) => rules.entries().any(|entry| entry == index),
                None => index == was,
            })
        };
        let after = |index: usize| match new.keys[key].1 {
            Select::One(entry) => entry == index,
            Select::List { first, len } => new.filters[first..first + len]
                .iter()
                .any(|filter| filter.entry == index),
        };
        let changed = plan.wants.iter().enumerate();
        let changed = changed.filter(|(_, want)| want.how == How::Store);
        let changed = changed.filter(|(index, want)| before(want) || after(*index));
        (changed.map(|(index, _)| index).collect(), way_changes)
    }

    fn take_entries(&mut self, plan: &mut Plan, new: &Compiled) -> Result<(), NoRoom> {
        for index in 0..plan.wants.len() {
            let want = &plan.wants[index];
            if want.how == How::Fresh && want.at == 0 {
                let keys = plan.keys.iter().zip(&new.keys);
                let mut of_it = keys.filter(|(_, (_, select))| *select == Select::One(index));
                let place = of_it.find_map(|(key, _)| self.shard.index.page_place(key.key));
                plan.wants[index].at = self.take_entry(plan, place)?;
            }
        }
        Ok(())
    }

    /// A line for an entry: the one that this place in the pages expects, if it is free.
    fn take_entry(&mut self, plan: &mut Plan, place: Option<u32>) -> Result<u32, NoRoom> {
        let free = &mut self.shard.entries.free;
        let line = free.take_for(place);
        let line = line.map_or_else(no_room(free.name()), Ok)?;
        plan.taken.push(Taken::Entry(line));
        Ok(line)
    }

    /// Plan of a key: how it will lead to its entries.
    fn plan_way(&mut self, plan: &mut Plan, new: &Compiled, index: usize) -> Result<(), NoRoom> {
        let key = plan.keys[index];
        let mut run = std::mem::take(&mut plan.run);
        run.clear();
        let straight = match new.keys[index].1 {
            Select::One(entry) => {
                let want = &plan.wants[entry];
                run.push_all(want.at);
                let own_line = key.direct.is_none_or(|slot| slot == want.at);
                let same_key = u64::from(want.teid) == teid_of(key.key);
                (own_line && same_key).then_some(want.at)
            }
            Select::List { first, len } => {
                run = list_of(new, index, first..first + len, &plan.wants);
                None
            }
        };
        plan.keys[index].listed = straight.is_none();
        let planned = match straight {
            Some(at) => {
                plan.keys[index].at = at;
                Ok(())
            }
            None => self.plan_list(plan, index, &run),
        };
        plan.run = run;
        planned?;
        self.plan_standing(plan, index)
    }

    /// A line that leads to the rules in `run`, and the rules unless they are there already. Keys of one session that lead to
    /// equal rules share them, and all but TEIDs the line too.
    fn plan_list(&mut self, plan: &mut Plan, index: usize, run: &RuleList) -> Result<(), NoRoom> {
        let key = plan.keys[index];
        let before = &plan.keys[..index];
        let shares = |other: &WantKey| {
            let first = other.first.filter(|_| key.direct.is_none());
            let is_line = other.direct.is_none() && teid_of(other.key) == teid_of(key.key);
            // No packet may come by this key to what another one's line says until it is changed.
            let changes = other.leads_anew && other.was == Some(other.at) && other.was != key.was;
            is_line && !changes && first.is_some_and(|first| plan.list_at(first) == Some(run))
        };
        if let Some(other) = before.iter().find(|other| shares(other)) {
            let (at, first) = (other.at, other.first);
            let key = &mut plan.keys[index];
            (key.at, key.first) = (at, first);
            return Ok(());
        }
        let is_free = |&was: &u32| before.iter().all(|other| other.at != was);
        let own = (key.was.filter(is_free)).filter(|&was| self.shard.rules_of(was).is_some());
        let live = own.and_then(|own| self.shard.entries.first_rule_of(own));
        let kept = live.filter(|&first| RuleList::read(&self.shard.mem.rules, first) == *run);
        let shared = plan.first_of(run);
        let at = match key.direct.or(own) {
            Some(at) => at,
            None => self.take_entry(plan, self.shard.index.page_place(key.key))?,
        };
        let (first, places) = match kept.or(shared) {
            Some(first) => (first, Places::new()),
            None => {
                let places = self.take_rules(plan, run.places())?;
                (places[0], places)
            }
        };
        plan.lists.push((first, run.clone(), places));
        let key = &mut plan.keys[index];
        (key.at, key.first, key.leads_anew) = (at, Some(first), kept.is_none());
        Ok(())
    }

    /// A place for a key that is new and is no index itself.
    fn plan_standing(&mut self, plan: &mut Plan, index: usize) -> Result<(), NoRoom> {
        let key = plan.keys[index];
        if key.was.is_some() || key.by_itself {
            return Ok(());
        }
        // The core knows network instances, not which of them share a directory.
        if prefixes::is_prefix(key.key) && self.shard.index.buckets.has(key.key) {
            return Err(NoRoom::of("buckets"));
        }
        let standing = match self.shard.index.reserve(key.key) {
            Some(standing) => standing,
            None => self
                .move_others(key.key)
                .map_or_else(no_room("buckets"), Ok)?,
        };
        plan.taken.push(Taken::Slot(standing));
        plan.keys[index].standing = Some(standing);
        Ok(())
    }

    fn move_others(&mut self, key: SlotKey) -> Option<Standing> {
        let Self { shard, grace, .. } = self;
        let buckets = &mut shard.index.buckets;
        buckets.make_room(key, || grace.pass()).map(Standing::Slot)
    }

    fn plan_next(&self, plan: &mut Plan, new: &Compiled) {
        let held = plan.wants.iter().zip(&new.entries);
        let held = held.map(|(want, rule)| HeldEntry::new(want.at, rule));
        plan.next.entries.extend(held);
        plan.next
            .keys
            .extend(plan.keys.iter().map(|key| HeldKey::new(key.key, key.at)));
    }
}

/// Key of a UE's address, IPv6 by its /64, in this directory.
pub(crate) fn ue_key(home: u16, addr: IpAddr) -> SlotKey {
    match addr {
        IpAddr::V4(addr) => SlotKey::new(KIND_UE4, home, u32::from(addr).into()),
        IpAddr::V6(addr) => SlotKey::new(KIND_UE6, home, (u128::from(addr) >> 64) as u64),
    }
}

/// Which entries a single TEID leads to, and nothing else: they carry it for the re-check.
fn count_references(plan: &mut Plan, new: &Compiled) {
    for (index, want) in plan.wants.iter_mut().enumerate() {
        let mut keys = new
            .keys
            .iter()
            .filter(|(_, select)| *select == Select::One(index));
        let in_a_list = new.filters.iter().any(|filter| filter.entry == index);
        if let (Some((Key::Teid { teid, .. }, _)), None, false) =
            (keys.next(), keys.next(), in_a_list)
        {
            want.teid = *teid;
            want.sole = true;
        }
    }
}

/// The list behind a key, to entries where `wants` has them so far.
fn list_of(new: &Compiled, key: usize, filters: Range<usize>, wants: &[Want]) -> RuleList {
    let in_tunnel = matches!(new.keys[key].0, Key::Teid { .. });
    let mut list = RuleList::default();
    for filter in &new.filters[filters] {
        list.push(filter, in_tunnel, wants[filter.entry].at);
    }
    list
}

/// The TEID of a key, 0 for any other.
pub(crate) fn teid_of(key: SlotKey) -> u64 {
    if key.kind() == KIND_TEID { key.key } else { 0 }
}
