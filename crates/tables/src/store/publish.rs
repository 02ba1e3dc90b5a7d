//! Carrying a change out. What a word points at goes in before it; what is no longer pointed at is
//! retired after it.

use compiled::Compiled;

use crate::abi::{Line, entry, meter, words_of};
use crate::copies;
use crate::encode::meaningful;
use crate::filters::{Places, RuleList};
use crate::grace::Grace;
use crate::handle::{HeldEntry, HeldKey};
use crate::prefixes;
use crate::store::alarms;
use crate::store::node::NodeTables;
use crate::store::plan::{How, MeterWords, Plan, Want, WantKey, teid_of};
use crate::store::retired::Retired;
use crate::store::shard::ShardTables;

/// Parts of a session's former rules, noted before anything changes.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    peers: Vec<u32>,
    exts: Vec<u32>,
    /// Old lists: the line that leads there, and their first place.
    runs: Vec<(u32, u32)>,
    /// Entries that packets may be buffered at.
    buffered: Vec<u32>,
}

/// Carries a change out, in a shard and in the node.
pub(crate) struct Publisher<'a> {
    pub(crate) node: &'a mut NodeTables,
    pub(crate) shard: &'a mut ShardTables,
    pub(crate) grace: &'a mut Grace<Retired>,
    /// Kept between changes for its memory.
    pub(crate) former: &'a mut Superseded,
}

impl Publisher<'_> {
    /// Packets meet what is planned from now on.
    pub(crate) fn apply(&mut self, plan: &mut Plan, new: &Compiled) {
        self.shard.departed.forget();
        let mut former = std::mem::take(self.former);
        self.note_former(plan, &mut former);
        if new.drops_buffered {
            self.shard.entries.discard_buffered(&former.buffered);
        }
        self.fill_meters_and_exts(plan);
        for want in plan.wants.iter().filter(|want| want.behind > 0) {
            self.shard.raise(&want.words, want.at, want.behind);
        }
        self.fill_entries(plan, new.seid);
        self.fill_rules(plan);
        for &(index, words) in &plan.live_meters {
            self.change_meter(&self.shard.mem.meters[index as usize], words);
        }
        for index in 0..plan.wants.len() {
            if plan.wants[index].how == How::Store {
                self.store_in_place(&plan.wants[index]);
            }
        }
        self.catch_up(plan);
        // Keys that leave a line go before what the line says is changed for those that stay.
        for moves in [true, false] {
            for index in 0..plan.keys.len() {
                let key = plan.keys[index];
                if moves == (key.was != Some(key.at)) {
                    self.lead(plan, key);
                }
            }
        }
        self.catch_up(plan);
        self.unlead(plan);
        self.retire_former(plan, &mut former);
        if plan.next.entries.is_empty() {
            self.shard.entries.discard_buffered(&former.buffered);
        } else {
            (former.buffered.iter()).for_each(|&index| self.shard.entries.release_buffered(index));
        }
        *self.former = former;
    }

    /// Packets have met old entries until now: once more their meters begin where those are. Right before they are led to others, so
    /// that few meet the old ones in between, and right after, for those few.
    fn catch_up(&self, plan: &Plan) {
        if self.shard.longest_wait.is_none() {
            return;
        }
        let latest = self.shard.latest_departure(&plan.held);
        for want in &plan.wants {
            if want.behind > 0 {
                self.shard.raise(&want.words, want.at, latest);
            }
            if let Some(was) = want.was.filter(|&was| was != want.at) {
                self.shard.entries.follow_meter(was, want.at);
            }
        }
    }

    fn note_former(&self, plan: &Plan, former: &mut Superseded) {
        former.peers.clear();
        former.exts.clear();
        former.runs.clear();
        former.buffered.clear();
        for held in &plan.held.entries {
            let line = self.shard.entries.line(held.index);
            if entry::has_peer(line.load(entry::HEAD)) {
                former.peers.push((line.load(entry::OUT) >> 32) as u32);
            }
            former.exts.extend(self.shard.entries.ext_of(held.index));
            if entry::may_buffer(line.load(entry::HEAD)) {
                former.buffered.push(held.index);
            }
        }
        for key in &plan.held.keys {
            if let Some(first) = self.shard.entries.first_rule_of(key.entry) {
                former.runs.push((key.entry, first));
            }
        }
    }

    fn change_meter(&self, line: &Line, words: MeterWords) {
        for (word, value) in [
            (meter::NAME, words.name),
            (meter::RATE, words.rate),
            (meter::SHARE, words.share.share),
            (meter::GUARANTEED, words.share.guaranteed),
        ] {
            if line.load(word) != value {
                line.publish(word, value);
            }
        }
    }

    fn fill_meters_and_exts(&self, plan: &Plan) {
        for &(index, words) in &plan.fresh_meters {
            let line = &self.shard.mem.meters[index as usize];
            line.fill([0; 8]);
            self.change_meter(line, words);
        }
        for want in plan.wants.iter().filter(|want| want.ext_is_fresh) {
            if let Some(ext) = &want.words.ext {
                if let Some(first) = ext.framed.checked_sub(1) {
                    prefixes::fill(&self.shard.mem.rules[first as usize..], &plan.framed);
                }
                if let Some(first) = ext.copy.checked_sub(1) {
                    copies::fill(&self.shard.mem.rules[first as usize..], &want.copies);
                }
                self.shard.mem.exts[want.ext as usize].fill(words_of(ext));
            }
        }
    }

    /// Entries in lines that nothing leads to yet. A TEID's own line is led to by its head, which
    /// goes in last.
    fn fill_entries(&mut self, plan: &Plan, seid: u64) {
        for (want, held) in plan.wants.iter().zip(&plan.next.entries) {
            if want.how != How::Fresh {
                continue;
            }
            let tat = want
                .was
                .map_or(0, |was| self.shard.entries.line(was).load(entry::TAT));
            let line = self.shard.entries.line(want.at);
            for (word, value) in [
                (entry::OUT, want.words.out),
                (entry::RATE, want.words.rate),
                (entry::EXT, want.ext_word(*held)),
                (entry::TAT, tat.max(want.behind)),
                (entry::BYTES, 0),
                (entry::PACKETS, 0),
                (
                    entry::ALARM,
                    alarms::first(&self.shard.entries, *held, &plan.held.entries),
                ),
            ] {
                line.publish(word, value);
            }
            self.shard.entries.owners.set(want.at, seid);
            self.shard.entries.clear_side(want.at);
            alarms::first_qos(&self.shard.entries, *held, &plan.held.entries);
            if let Some(was) = want.was {
                self.shard.carry(was, want.at);
                self.shard.leave_behind(was, want.at);
            }
            let buffers = want
                .was
                .filter(|&was| entry::may_buffer(self.shard.entries.head(was)));
            let head = match buffers {
                Some(_) => self.shard.behind_buffered(want.at, want.head(), self.grace),
                None => want.head(),
            };
            self.shard.entries.line(want.at).publish(entry::HEAD, head);
            // Buffered packets go by this line from now on: by what it says, not by what lay there before.
            if let Some(was) = buffers {
                self.shard.wait_behind(was, want.at);
            }
        }
    }

    fn fill_rules(&self, plan: &Plan) {
        let new = |list: &&(u32, RuleList, Places)| !list.2.is_empty();
        for (_, list, places) in plan.lists.iter().filter(new) {
            list.fill(&self.shard.mem.rules, places);
        }
    }

    /// Change a live entry. The plan has made sure that at most one word matters to packets that
    /// have begun.
    fn store_in_place(&mut self, want: &Want) {
        let line = self.shard.entries.line(want.at);
        let live = line.load(entry::HEAD);
        let (old, new) = (entry::settled(live), want.head());
        let pdr = line.load(entry::EXT) & !0xffff_ffff;
        let words = [
            (entry::OUT, want.words.out),
            (entry::RATE, want.words.rate),
            (entry::EXT, u64::from(want.ext) | pdr),
        ];
        let (read, needed) = (meaningful(old), meaningful(new));
        for (index, (word, value)) in words.into_iter().enumerate() {
            if needed[index] && line.load(word) != value {
                line.publish(word, value);
            }
        }
        if old != new {
            let head = if entry::may_buffer(live) {
                self.shard.behind_buffered(want.at, new, self.grace)
            } else {
                new
            };
            self.shard.entries.line(want.at).publish(entry::HEAD, head);
            if (0..3).any(|word| read[word] && !needed[word]) {
                self.shard.retire_entry(want.at, false, self.grace);
            }
        }
    }

    /// Make a key lead where it shall: one store.
    fn lead(&mut self, plan: &Plan, key: WantKey) {
        if let Some(first) = key.first.filter(|_| key.leads_anew) {
            let head = entry::list_head(teid_of(key.key) as u32, first);
            let was_an_entry = plan.held.entries.iter().any(|held| held.index == key.at);
            self.shard.entries.line(key.at).publish(entry::HEAD, head);
            if was_an_entry {
                self.shard.retire_entry(key.at, false, self.grace);
            }
        }
        if key.by_itself {
            return;
        }
        match key.standing {
            Some(standing) => {
                self.node.lengths.join(key.key);
                self.shard.index.commit(key.key, standing, key.at);
            }
            None if key.was != Some(key.at) => self.shard.index.repoint(key.key, key.at),
            None => {}
        }
    }

    fn is_direct(&self, key: &HeldKey) -> bool {
        key.entry < self.shard.entries.direct_end
    }

    /// Take out the keys that the new form lacks.
    fn unlead(&mut self, plan: &Plan) {
        for held in &plan.held.keys {
            if plan.keys.iter().any(|key| key.key == held.key()) {
                continue;
            }
            if self.is_direct(held) {
                self.shard.entries.line(held.entry).publish(entry::HEAD, 0);
                self.shard.retire_entry(held.entry, false, self.grace);
                if held.key().leads_itself_to(held.entry) {
                    continue;
                }
            }
            if let Some(place) = self.shard.index.remove(held.key()) {
                self.node.lengths.leave(held.key());
                self.grace.retire(Retired::Slot(place));
            }
        }
    }

    fn retire_former(&mut self, plan: &Plan, former: &mut Superseded) {
        for held in &plan.held.entries {
            self.retire_held(plan, *held);
        }
        for key in &plan.held.keys {
            if self.is_direct(key) {
                continue;
            }
            let was_a_list = former.runs.iter().any(|run| run.0 == key.entry);
            // Packets that have been led there already are still to find its rules.
            if was_a_list && plan.keys.iter().all(|now| now.at != key.entry) {
                self.shard.retire_entry(key.entry, true, self.grace);
            }
        }
        for (index, &(_, first)) in former.runs.iter().enumerate() {
            let known = former.runs[..index].iter().any(|run| run.1 == first);
            if !known && plan.keys.iter().all(|key| key.first != Some(first)) {
                self.grace.retire(Retired::Rules(first));
            }
        }
        for &ext in &former.exts {
            let named = |want: &Want| want.words.ext.is_some() && want.ext == ext;
            if !plan.wants.iter().any(named) {
                self.grace.retire(Retired::Ext(ext));
            }
        }
        for held in &plan.held.meters {
            if plan.next.meters.iter().all(|next| next.index != held.index) {
                self.grace.retire(Retired::Meter(held.index));
            }
        }
        former
            .peers
            .drain(..)
            .for_each(|peer| self.node.release_peer(peer, self.grace));
    }

    /// An entry of the old form whose PDR is gone or lies elsewhere now. A TEID's own line has been
    /// retired with its key or list already.
    fn retire_held(&mut self, plan: &Plan, held: HeldEntry) {
        if plan
            .next
            .entries
            .iter()
            .any(|next| next.index == held.index)
        {
            return;
        }
        let own = (held.pdr, held.predefined);
        let moved = plan.next.entries.iter().any(|next| next.is_of(own));
        if !moved {
            let mut next = plan.next.entries.iter();
            match next.find(|next| next.pdr == held.pdr) {
                Some(other) => self.shard.bequeath(held.index, other.index),
                None => self.shard.forget(held.index, held.pdr, plan.held.measured),
            }
        }
        if held.index >= self.shard.entries.direct_end {
            if !moved {
                self.shard.entries.line(held.index).publish(entry::HEAD, 0);
            }
            self.shard.retire_entry(held.index, true, self.grace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use compiled::{
        Action, Compiled, Entry, Filter, Key, NiId, PdrId, QfiSet, Select, Tables as _,
    };

    use testkit::sessions;

    use super::entry;
    use crate::testing::data_network;
    use crate::{Handle, Layout, Options, Tables};

    fn downlink(pdr: u16) -> Entry {
        sessions::downlink(PdrId(pdr), Action::Drop)
    }

    fn session(entries: Vec<Entry>, select: Select) -> Compiled {
        let key = Key::Ue4 {
            ni: NiId(0),
            addr: Ipv4Addr::new(10, 60, 0, 1),
        };
        Compiled {
            entries,
            keys: vec![(key, select)],
            ..Compiled::default()
        }
    }

    fn any_packet(entry: usize) -> Filter {
        Filter {
            entry,
            flow: None,
            qfis: QfiSet::default(),
        }
    }

    #[test]
    fn packets_that_were_led_to_a_list_find_it_when_one_pdr_is_left() {
        let port = data_network();
        let layout = Layout::for_sessions(64, 1, 1);
        let mut tables = Tables::by_hand(&layout, &[port], &Options::default()).unwrap();
        let bystander = tables.bystander();
        let mut handle = Handle::default();
        let both = Select::List { first: 0, len: 2 };
        let mut list = session(vec![downlink(1), downlink(2)], both);
        list.filters = [0, 1].map(any_packet).to_vec();
        tables.publish(&mut handle, &list).unwrap();
        let action = |tables: &Tables, line: usize| {
            entry::action(tables.store.mem.entries[line].load(entry::HEAD))
        };
        let lines = tables.store.mem.entries.len();
        let is_list = |&line: &usize| action(&tables, line) == entry::ACT_LIST;
        let line = (0..lines).find(is_list).unwrap();

        let looking = bystander.look();
        let one = session(vec![downlink(2)], Select::One(0));
        tables.publish(&mut handle, &one).unwrap();
        tables.maintain();
        assert_eq!(action(&tables, line), entry::ACT_LIST);
        drop(looking);
    }
}
