//! Carrying a change out. What a word points at goes in before it; what is no longer pointed at is
//! retired after it.

use compiled::{Compiled, NoRoom};

use crate::abi::{Features, Line, entry, meter, words_of};
use crate::copies;
use crate::encode::meaningful;
use crate::filters::{Places, RuleList};
use crate::handle::{Handle, HeldEntry, HeldKey};
use crate::prefixes;
use crate::store::needs;
use crate::store::plan::{How, MeterWords, Plan, Want, WantKey, teid_of};
use crate::store::{Retired, Store};

/// Parts of a session's former rules, noted before anything changes.
#[derive(Debug, Default)]
pub(crate) struct Superseded {
    peers: Vec<u32>,
    exts: Vec<u32>,
    /// Old lists: the line that leads there, and their first place.
    runs: Vec<(u32, u32)>,
    /// Entries that packets may wait at.
    waiting: Vec<u32>,
}

impl Store {
    /// serve: makes sure that programs have these features, before packets need them.
    pub(crate) fn publish(
        &mut self,
        handle: &mut Handle,
        new: &Compiled,
        serve: impl FnOnce(Features) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let mut plan = std::mem::take(&mut self.plan);
        handle.read(&mut plan.held);
        if let Err(full) = self.capacities.check(&plan.held.meters, new) {
            self.plan = plan;
            return Err(full);
        }
        let mut planned = self.prepare(&mut plan, new);
        if planned.is_err() && !self.grace.is_empty() {
            // The room may be in its grace period: wait for it rather than refuse.
            self.undo(&mut plan);
            self.wait();
            planned = self.prepare(&mut plan, new);
        }
        let planned = planned.and_then(|()| self.check_bounds(&plan, new));
        let needs = needs::of_session(&plan, new);
        match planned.and_then(|()| serve(needs)) {
            Ok(()) => {
                // How many keys the buckets hold is known without counting their users.
                plan.next.needs = needs.without(Features::BUCKETS);
                plan.next.measured = new.measured;
                self.users.join(plan.next.needs);
                self.users.leave(plan.held.needs);
                self.capacities.take(&plan.held.meters, new);
                self.apply(&mut plan, new);
                self.note_ways_back(&plan, new);
                handle.write(&plan.next);
            }
            Err(error) => {
                self.undo(&mut plan);
                self.plan = plan;
                return Err(error);
            }
        }
        self.plan = plan;
        Ok(())
    }

    fn apply(&mut self, plan: &mut Plan, new: &Compiled) {
        self.forget_parted();
        let mut former = std::mem::take(&mut plan.former);
        self.note_former(plan, &mut former);
        if new.drops_held {
            self.discard_held(&former.waiting);
        }
        self.fill_meters_and_exts(plan);
        plan.wants.iter().for_each(|want| self.stay_behind(want));
        self.fill_entries(plan, new.seid);
        self.fill_rules(plan);
        for &(index, words) in &plan.live_meters {
            self.change_meter(&self.mem.meters[index as usize], words);
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
            self.discard_held(&former.waiting);
        } else {
            (former.waiting.iter()).for_each(|&index| self.look_at_held(index));
        }
        plan.former = former;
    }

    fn note_former(&self, plan: &Plan, former: &mut Superseded) {
        former.peers.clear();
        former.exts.clear();
        former.runs.clear();
        former.waiting.clear();
        for held in &plan.held.entries {
            let line = &self.mem.entries[held.index as usize];
            if entry::has_peer(line.load(entry::HEAD)) {
                former.peers.push((line.load(entry::OUT) >> 32) as u32);
            }
            former.exts.extend(self.ext_of(held.index));
            if entry::may_hold(line.load(entry::HEAD)) {
                former.waiting.push(held.index);
            }
        }
        for key in &plan.held.keys {
            if let Some(first) = self.first_rule_of(key.entry) {
                former.runs.push((key.entry, first));
            }
        }
    }

    fn change_meter(&self, line: &Line, words: MeterWords) {
        for (word, value) in [
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
            let line = &self.mem.meters[index as usize];
            line.fill([0; 8]);
            self.change_meter(line, words);
        }
        for want in plan.wants.iter().filter(|want| want.ext_is_fresh) {
            if let Some(ext) = &want.words.ext {
                if let Some(first) = ext.framed.checked_sub(1) {
                    prefixes::fill(&self.mem.rules[first as usize..], &plan.framed);
                }
                if let Some(first) = ext.copy.checked_sub(1) {
                    copies::fill(&self.mem.rules[first as usize..], &want.copies);
                }
                self.mem.exts[want.ext as usize].fill(words_of(ext));
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
                .map_or(0, |was| self.mem.entries[was as usize].load(entry::TAT));
            let line = &self.mem.entries[want.at as usize];
            for (word, value) in [
                (entry::OUT, want.words.out),
                (entry::RATE, want.words.rate),
                (entry::EXT, want.ext_word(*held)),
                (entry::TAT, tat.max(want.behind)),
                (entry::BYTES, 0),
                (entry::PACKETS, 0),
                (entry::ALARM, self.first_alarm(*held, &plan.held.entries)),
            ] {
                line.publish(word, value);
            }
            self.mem.owners.set(want.at, seid);
            self.clear_side(want.at);
            self.first_qos_alarm(*held, &plan.held.entries);
            if let Some(was) = want.was {
                self.carry(was, want.at);
                self.leave_behind(was, want.at);
            }
            let holds = want.was.filter(|&was| entry::may_hold(self.head(was)));
            let head = match holds {
                Some(_) => self.behind_waiting(want.at, want.head()),
                None => want.head(),
            };
            self.mem.entries[want.at as usize].publish(entry::HEAD, head);
            // Whoever keeps what waits goes by this line from now on: by what it says, not by what lay there before.
            if let Some(was) = holds {
                self.wait_behind(was, want.at);
            }
        }
    }

    fn fill_rules(&self, plan: &Plan) {
        let new = |list: &&(u32, RuleList, Places)| !list.2.is_empty();
        for (_, list, places) in plan.lists.iter().filter(new) {
            list.fill(&self.mem.rules, places);
        }
    }

    /// Change a live entry. The plan has made sure that at most one word matters to packets that
    /// have begun.
    fn store_in_place(&mut self, want: &Want) {
        let line = &self.mem.entries[want.at as usize];
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
            let head = if entry::may_hold(live) {
                self.behind_waiting(want.at, new)
            } else {
                new
            };
            self.mem.entries[want.at as usize].publish(entry::HEAD, head);
            if (0..3).any(|word| read[word] && !needed[word]) {
                self.retire_entry(want.at, false);
            }
        }
    }

    /// Make a key lead where it shall: one store.
    fn lead(&mut self, plan: &Plan, key: WantKey) {
        if let Some(first) = key.first.filter(|_| key.leads_anew) {
            let head = entry::list_head(teid_of(key.key) as u32, first);
            let was_an_entry = plan.held.entries.iter().any(|held| held.index == key.at);
            self.mem.entries[key.at as usize].publish(entry::HEAD, head);
            if was_an_entry {
                self.retire_entry(key.at, false);
            }
        }
        if key.by_itself {
            return;
        }
        match key.standing {
            Some(standing) => {
                self.lengths.join(key.key);
                self.index.commit(key.key, standing, key.at);
            }
            None if key.was != Some(key.at) => self.index.repoint(key.key, key.at),
            None => {}
        }
    }

    fn is_direct(&self, key: &HeldKey) -> bool {
        key.entry < self.direct_end
    }

    /// Take out the keys that the new form lacks.
    fn unlead(&mut self, plan: &Plan) {
        for held in &plan.held.keys {
            if plan.keys.iter().any(|key| key.key == held.key()) {
                continue;
            }
            if self.is_direct(held) {
                self.mem.entries[held.entry as usize].publish(entry::HEAD, 0);
                self.retire_entry(held.entry, false);
                if held.key().leads_itself_to(held.entry) {
                    continue;
                }
            }
            if let Some(place) = self.index.remove(held.key()) {
                self.lengths.leave(held.key());
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
                self.retire_entry(key.entry, true);
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
            .for_each(|peer| self.release_peer(peer));
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
                Some(other) => self.bequeath(held.index, other.index),
                None => self.forget(held.index, held.pdr, plan.held.measured),
            }
        }
        if held.index >= self.direct_end {
            if !moved {
                self.mem.entries[held.index as usize].publish(entry::HEAD, 0);
            }
            self.retire_entry(held.index, true);
        }
    }

    pub(crate) fn release_peer(&mut self, peer: u32) {
        if self.peers.release(peer) {
            self.grace.retire(Retired::Peer(peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use compiled::{
        Action, Compiled, Entry, Filter, Key, NiId, PdrId, QfiSet, Select, Tables as _,
    };

    use super::entry;
    use crate::{Handle, Layout, Options, Tables, waiting_tests};

    fn downlink(pdr: u16) -> Entry {
        waiting_tests::downlink(PdrId(pdr), Action::Drop)
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
        let port = waiting_tests::data_network();
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
