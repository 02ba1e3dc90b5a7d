//! Tables of a shard: what its sessions have in them.
//!
//! The thread of the shard writes them, and nobody else does, beside what packets count. Today there is one shard, in the control
//! thread, and it has all places of each table. With several, each has blocks of them: the allocators here (`free` of the entries,
//! `exts`, `meters`, `rules`, `framed`, and the slots of `index`) are all that says which. A block changes hands while nothing in it
//! is in use or in its grace period.

use std::sync::atomic::Ordering;
use std::time::Duration;

use compiled::{CountedAt, Counters, PdrId};
use smallvec::SmallVec;

use crate::abi::{Ext, entry, from_words};
use crate::alloc::{Lines, Runs};
use crate::copies;
use crate::filters::RuleList;
use crate::grace::Grace;
use crate::handle::{Handle, HeldEntry};
use crate::index::{Buckets, Index, UePages};
use crate::layout::{Layout, Memory};
use crate::prefixes;
use crate::store::alarms::{self, Alarms};
use crate::store::entries::Entries;
use crate::store::retired::Retired;
use crate::store::transitions::{Earlier, Late, Transitions};

/// Entries, extensions, meters and rules, and the keys that lead there.
#[derive(Debug)]
pub(crate) struct ShardTables {
    pub(crate) mem: Memory,
    pub(crate) entries: Entries,
    pub(crate) transitions: Transitions,
    pub(crate) exts: Lines,
    pub(crate) meters: Lines,
    /// Places of filters.
    pub(crate) rules: Lines,
    /// Places of framed routes, IPv6 pools and duplicates, behind those of filters.
    pub(crate) framed: Runs,
    pub(crate) index: Index,
    pub(crate) alarms: Alarms,
    pub(crate) departed: Departed,
    /// Of packets above their rates; `None`: they are dropped.
    pub(crate) longest_wait: Option<Duration>,
    /// `None`: nobody asks when this process is gone.
    pub(crate) recounted: Option<Recounted>,
}

/// Changes of what counts for sessions, that come with the end of grace periods.
#[derive(Debug, Default)]
pub(crate) struct Recounted {
    /// SEIDs of sessions that the end of an entry's grace period has changed.
    pub(crate) seids: Vec<u64>,
    /// Entries that are free once these changes are known elsewhere.
    free: Vec<u32>,
}

/// Counts of PDRs that are gone.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// PDRs that the last change took out.
    parted: Vec<(PdrId, Counters)>,
    /// Bytes that came too late for [`Self::parted`], of all changes.
    pub(crate) late_bytes: u64,
}

impl Departed {
    /// A change begins.
    pub(crate) fn forget(&mut self) {
        self.parted.clear();
    }

    /// [`compiled::Tables::parted`]
    pub(crate) fn parted(&self, pdr: PdrId) -> Option<Counters> {
        let entries = self.parted.iter().filter(|(of, _)| *of == pdr);
        entries
            .map(|(_, counters)| *counters)
            .reduce(Counters::plus)
    }
}

impl ShardTables {
    pub(crate) fn new(
        mem: &Memory,
        layout: &Layout,
        alarms: Alarms,
        salt: u64,
        longest_wait: Option<Duration>,
    ) -> Self {
        let buckets = Buckets::new(mem.buckets.clone(), mem.config.clone(), salt);
        let pages = UePages::new(mem.ue_dir.clone(), mem.ue_pages.clone());
        Self {
            entries: Entries::new(mem, layout.teids + 1),
            transitions: Transitions::default(),
            exts: Lines::new("exts", 0, layout.exts),
            meters: Lines::new("meters", 0, layout.meters),
            rules: Lines::new("rules", 0, layout.rule_places()),
            framed: Runs::new("framed", layout.rule_places(), mem.rules.len() as u32),
            index: Index { buckets, pages },
            alarms,
            departed: Departed::default(),
            longest_wait,
            recounted: None,
            mem: mem.clone(),
        }
    }

    /// Read the entries of a session. The result means nothing.
    pub(crate) fn touch(&self, handle: &Handle) -> u64 {
        let entries = handle.entries().iter();
        let heads = entries.map(|held| self.entries.head(held.index));
        heads.fold(0, |a, b| a ^ b)
    }

    /// The live rules behind a line, if it is a list.
    pub(crate) fn rules_of(&self, index: u32) -> Option<RuleList> {
        let first = self.entries.first_rule_of(index)?;
        Some(RuleList::read(&self.mem.rules, first))
    }

    /// Words of the extension line that a live entry names.
    pub(crate) fn ext(&self, line: u32) -> Ext {
        from_words(self.mem.exts[line as usize].words())
    }

    /// The words of an entry lost their meaning; with `free`, nothing leads to it any more.
    pub(crate) fn retire_entry(&mut self, index: u32, free: bool, grace: &mut Grace<Retired>) {
        self.transitions.retire(index, free);
        grace.retire(Retired::Entry(index));
    }

    /// Entry `to` goes on counting where `from` stops. `from` must be retired thereafter.
    pub(crate) fn carry(&mut self, from: u32, to: u32) {
        // Before the alarm: what is counted between is taken off it twice rather than not at all.
        self.transitions.carry(self.earlier(from, false), to);
        alarms::hand_on(&self.entries, from, to);
    }

    /// As [`Self::carry`], to an entry of another predefined rule of the PDR, which counts for itself too.
    pub(crate) fn bequeath(&mut self, from: u32, to: u32) {
        self.transitions.carry(self.earlier(from, true), to);
    }

    fn earlier(&self, index: u32, is_others: bool) -> Earlier {
        let counted = self.entries.counted(index);
        Earlier {
            index,
            seen: counted.bytes,
            qos_seen: counted.qos_bytes,
            is_others,
        }
    }

    /// The PDR of an entry that nothing leads to any more is gone. `measured`: its final counts will be asked for.
    pub(crate) fn forget(&mut self, index: u32, pdr: PdrId, measured: bool) {
        if measured {
            let counters = self.counters(index);
            self.departed.parted.push((pdr, counters));
        }
        let entries = &self.entries;
        let counted = |index| entries.counted(index).bytes;
        self.transitions.forget(index, measured.then_some(counted));
    }

    /// Bytes that a PDR had counted before it came to this entry; they are taken off its alarm.
    fn counted_before(&mut self, index: u32) -> u64 {
        let mut before = self.transitions.before(index).bytes;
        for of in self.transitions.earlier(index) {
            let counted = self.entries.counted(of.index);
            (of.seen, of.qos_seen) = (counted.bytes, counted.qos_bytes);
            before += of.seen;
        }
        before
    }

    /// Bytes that QoS enforcement had dropped by then.
    fn qos_dropped_before(&mut self, index: u32) -> u64 {
        let mut before = self.transitions.before(index).qos_bytes;
        for of in self.transitions.earlier(index) {
            of.qos_seen = self.entries.counted(of.index).qos_bytes;
            before += of.qos_seen;
        }
        before
    }

    /// Counters of a live entry and those that it replaced.
    pub(crate) fn counters(&self, index: u32) -> Counters {
        let counted = |index| self.entries.counted(index);
        self.transitions.counters(index, false, counted)
    }

    /// Share of these counters that its own predefined rule has counted.
    pub(crate) fn own_counters(&self, index: u32) -> Counters {
        let counted = |index| self.entries.counted(index);
        self.transitions.counters(index, true, counted)
    }

    /// [`compiled::Tables::arm`]
    pub(crate) fn arm(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>, atomic: bool) {
        let indices: SmallVec<[u32; 4]> = handle.entries_of(pdr).map(|held| held.index).collect();
        match (alarm, indices.as_slice()) {
            (None, indices) => {
                for &index in indices {
                    let line = self.entries.line(index);
                    line.publish(entry::ALARM, entry::ALARM_NONE);
                }
            }
            (Some(alarm), &[index]) => {
                let limit = alarm.saturating_sub(self.counted_before(index));
                self.alarms.arm(&self.entries, index, limit, atomic);
            }
            // Of several, each is told of its share; who hears of one shares out again what is left then.
            (Some(alarm), indices) => {
                let counted = indices.iter().map(|&index| self.counters(index).bytes);
                let left = alarm.saturating_sub(counted.sum());
                let share = left.div_ceil(indices.len().max(1) as u64);
                for &index in indices {
                    let side = self.entries.side(index).bytes.load(Ordering::SeqCst);
                    let own = self.entries.line(index).load(entry::BYTES);
                    let limit = own.saturating_add(side).saturating_add(share);
                    self.alarms.arm(&self.entries, index, limit, atomic);
                }
            }
        }
    }

    /// [`compiled::Tables::arm_qos`]
    pub(crate) fn arm_qos(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        let indices: SmallVec<[u32; 4]> = handle.entries_of(pdr).map(|held| held.index).collect();
        match (alarm, indices.as_slice()) {
            (None, indices) => {
                for &index in indices {
                    alarms::disarm_qos(&self.entries, index);
                }
            }
            (Some(alarm), &[index]) => {
                let limit = alarm.saturating_sub(self.qos_dropped_before(index));
                self.alarms.arm_qos(&self.entries, index, limit);
            }
            // As with what they have forwarded.
            (Some(alarm), indices) => {
                let counted = indices.iter().map(|&index| self.counters(index).qos_bytes);
                let left = alarm.saturating_sub(counted.sum());
                let share = left.div_ceil(indices.len().max(1) as u64);
                for &index in indices {
                    let own = self.entries.side(index).qos_bytes.load(Ordering::SeqCst);
                    let limit = own.saturating_add(share);
                    self.alarms.arm_qos(&self.entries, index, limit);
                }
            }
        }
    }

    /// Entry `to` replaces `from`, at which packets may wait: those that meet it stay behind them.
    pub(crate) fn wait_behind(&mut self, from: u32, to: u32) {
        if !self.entries.is_buffering() {
            return;
        }
        let held = &self.entries.side(to).held;
        held.fetch_add(1, Ordering::AcqRel);
        self.transitions.wait_behind(from, to);
        self.entries.successors.replace(from, Some(to));
    }

    /// Entry `to` replaces `from`, of which frames above their rate may be on their way by user space: those that meet it go the
    /// same way, behind them.
    pub(crate) fn leave_behind(&mut self, from: u32, to: u32) {
        if self.entries.keeps_frames() {
            let shaped = &self.entries.side(to).shaped;
            shaped.fetch_add(1, Ordering::AcqRel);
            self.transitions.leave_behind(from, to);
        }
    }

    /// Head of an entry while packets may wait at it. It becomes what it shall be once none does.
    pub(crate) fn behind_buffered(
        &mut self,
        index: u32,
        head: u64,
        grace: &mut Grace<Retired>,
    ) -> u64 {
        if !self.entries.is_buffering() || !entry::forwards(head) {
            return head;
        }
        self.transitions.drain(index);
        grace.retire(Retired::Drain(index));
        entry::draining(head)
    }

    /// The end of a grace period: whoever met the entry before it forwarded has handed its packet over, so that `held`
    /// counts it.
    pub(crate) fn drained(&mut self, index: u32, grace: &mut Grace<Retired>) {
        if !self.transitions.last_drain(index) {
            return;
        }
        let head = self.entries.head(index);
        if entry::is_draining(head) {
            if self.entries.is_buffering() && self.entries.buffered(index) > 0 {
                self.entries.release_buffered(index);
                return grace.retire(Retired::Drain(index));
            }
            // Unless its FAR says otherwise since: requests may be served beside this thread.
            let line = self.entries.line(index);
            line.exchange(entry::HEAD, head, entry::settled(head));
        }
        self.transitions.is_drained(index);
    }

    /// The end of one of an entry's grace periods.
    pub(crate) fn settle(&mut self, index: u32, grace: &mut Grace<Retired>) {
        let Some(last) = self.transitions.last_grace(index) else {
            return;
        };
        if self.is_awaited(index, last.free || last.is_awaited)
            || (last.is_followed && self.precedes(index))
        {
            return grace.retire(Retired::Entry(index));
        }
        let Some(settled) = self.transitions.settle(index) else {
            return;
        };
        if let Some(to) = settled.awaited_by {
            // All that waited here has left: the entry that has taken this one's place need not wait for it.
            self.entries.successors.replace(index, None);
            let held = &self.entries.side(to).held;
            held.fetch_sub(1, Ordering::AcqRel);
        }
        for to in settled.followed_by {
            let shaped = &self.entries.side(to).shaped;
            shaped.fetch_sub(1, Ordering::AcqRel);
        }
        match settled.late {
            Late::Unasked => {}
            Late::Lost { seen } => {
                let last = self.entries.counted(index).bytes;
                self.departed.late_bytes += last.saturating_sub(seen);
            }
            Late::Heir(heir) => self.hand_over(index, heir),
        }
        if let (Late::Heir(_), Some(recounted)) = (settled.late, &mut self.recounted) {
            recounted.seids.extend(self.entries.owners.seid(index));
            if settled.free {
                recounted.free.push(index);
            }
        } else if settled.free {
            self.entries.free.give(index);
        }
    }

    /// [`compiled::Tables::keep_counts`]
    pub(crate) fn keep_counts(&mut self, kept: bool) {
        self.counts_are_kept();
        self.recounted = kept.then(Recounted::default);
    }

    /// [`compiled::Tables::counts_are_kept`]
    pub(crate) fn counts_are_kept(&mut self) {
        let Some(recounted) = &mut self.recounted else {
            return;
        };
        for index in recounted.free.drain(..) {
            self.entries.free.give(index);
        }
    }

    /// [`compiled::Tables::counted_at`]
    pub(crate) fn counted_at(&self, held: &HeldEntry) -> CountedAt {
        let (entries, before) = self.transitions.counted_at(held.index);
        CountedAt {
            pdr: held.pdr,
            entries: entries.collect(),
            before: before.map(Box::new),
        }
    }

    /// Counts of an entry are complete, and go over to its heir for good.
    fn hand_over(&mut self, index: u32, heir: u32) {
        let last = self.entries.counted(index);
        self.entries.follow_meter(index, heir);
        if let Some(own) = self.transitions.hand_over(index, heir, last) {
            let late = last.bytes.saturating_sub(own.seen);
            let qos_late = last.qos_bytes.saturating_sub(own.qos_seen);
            self.alarms.near(&self.entries, heir, late);
            self.alarms.near_qos(&self.entries, heir, qos_late);
        }
    }

    /// Whether packets still wait at an entry that is gone, so that it cannot be used again.
    fn is_awaited(&self, index: u32, asked: bool) -> bool {
        let awaited = asked && self.entries.is_buffering() && self.entries.buffered(index) > 0;
        if awaited {
            self.entries.release_buffered(index);
        }
        awaited
    }

    /// Whether frames of an entry that is gone still are in user space.
    fn precedes(&self, index: u32) -> bool {
        let shaped = &self.entries.side(index).shaped;
        self.entries.keeps_frames() && shaped.load(Ordering::Acquire) > 0
    }

    /// The line, its framed routes and its duplicates.
    pub(crate) fn free_ext(&mut self, index: u32) {
        let ext = self.ext(index);
        if let Some(first) = ext.framed.checked_sub(1) {
            self.framed
                .give(first, prefixes::places(ext.n_framed as usize));
        }
        if let Some(first) = ext.copy.checked_sub(1) {
            self.framed
                .give(first, copies::places(ext.n_copies as usize));
        }
        self.exts.give(index);
    }

    /// All places of the filters from this one on.
    pub(crate) fn free_rules(&mut self, first: u32) {
        let places = RuleList::places_at(&self.mem.rules, first);
        places.into_iter().for_each(|place| self.rules.give(place));
    }
}
