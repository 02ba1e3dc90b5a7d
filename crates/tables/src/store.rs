//! The tables in memory, who owns each line, and what waits for its grace period.

pub(crate) mod alarms;
mod holdings;
pub(crate) mod needs;
pub(crate) mod plan;
pub(crate) mod publish;
mod shape;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use compiled::{Counters, NiId, NoRoom, PdrId, PolicyId};
use ipnet::IpNet;
use smallvec::SmallVec;

use crate::abi::{Ext, FRAMED_MAX, Features, NextHopLine, entry, from_words, ni};
use crate::alloc::{Lines, Runs};
use crate::capacity::Capacities;
use crate::copies;
use crate::encode::be;
use crate::filters::RuleList;
use crate::grace::Grace;
use crate::handle::Handle;
use crate::index::{Buckets, Index, Place, UePages};
use crate::keeper::Keeper;
use crate::layout::{Layout, Memory};
use crate::peers::Peers;
use crate::prefixes::{self, Lengths};
use crate::store::alarms::Alarms;
use crate::store::needs::FeatureUsers;
use crate::store::plan::Plan;
use nexthop::{Peer, RouteView, Target};

/// Out of reach for new packets, but one under way may still look at it.
#[derive(Debug)]
pub(crate) enum Retired {
    /// Words of an entry, and perhaps the line itself: see [`Settling`].
    Entry(u32),
    Ext(u32),
    Meter(u32),
    /// Filters from this place on.
    Rules(u32),
    Framed {
        first: u32,
        len: usize,
    },
    Slot(Place),
    Peer(u32),
    NextHop(u32),
    /// An entry forwards behind what waits at it.
    Drain(u32),
    Routes {
        first: u32,
        len: usize,
    },
}

/// Grace periods of an entry's words. What ends with them does so with the last one alone: before, packets may still be on
/// their way to it that met it later.
#[derive(Debug, Default)]
struct Settling {
    graces: u32,
    /// Nothing leads to the entry any more, so that its line is free thereafter.
    free: bool,
}

/// Counts of earlier entries of a PDR.
#[derive(Debug, Default)]
struct Carried {
    base: Counters,
    /// Entries whose grace period is not over.
    from: Vec<Earlier>,
    /// Share of `base` and `from` that other predefined rules of the PDR have counted.
    others: Option<Box<Others>>,
}

#[derive(Clone, Copy, Debug)]
struct Earlier {
    index: u32,
    /// Bytes that it had counted when the alarm of its heir was set.
    seen: u64,
    /// Bytes that QoS enforcement had dropped then.
    qos_seen: u64,
}

#[derive(Debug, Default)]
struct Others {
    base: Counters,
    from: Vec<u32>,
}

/// Hashing of places in tables, which are our choice: no peer can aim at it.
type Indices = BuildHasherDefault<IndexHasher>;

#[derive(Debug, Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, index: u32) {
        self.0 = (self.0 ^ u64::from(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // The map looks at the uppermost bits and at the lowest.
        self.0 ^ self.0 >> 32
    }
}

/// State of the tables: all that is behind [`crate::Tables`] but the programs.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) mem: Memory,
    /// Entries below this are the slots of TEIDs.
    pub(crate) direct_end: u32,
    pub(crate) entries: Lines,
    pub(crate) exts: Lines,
    pub(crate) meters: Lines,
    pub(crate) nexthops: Lines,
    /// Places of filters.
    pub(crate) rules: Lines,
    /// Places of framed routes, IPv6 pools and duplicates, behind those of filters.
    pub(crate) framed: Runs,
    pub(crate) routes: Runs,
    pub(crate) index: Index,
    pub(crate) lengths: Lengths,
    /// IPv6 pools of each directory.
    pools6: HashMap<u16, Vec<IpNet>>,
    pub(crate) salt: u64,
    pub(crate) peers: Peers,
    /// Directory of the UE addresses of each network instance.
    homes: Vec<u16>,
    /// Network instances; numbers behind them are of policies' routes ([`PolicyId::routes_for`]).
    instances: u16,
    /// Entries whose words need grace periods.
    settling: HashMap<u32, Settling, Indices>,
    /// Number of grace periods after which an entry may no longer have to forward behind what waits at it. The last counts.
    draining: HashMap<u32, u32, Indices>,
    carried: HashMap<u32, Carried, Indices>,
    /// Entry that takes over the counts of one in its grace period.
    heirs: HashMap<u32, u32, Indices>,
    /// Entries that count one packet more as held until all that waits at another one, which they replace, has left.
    waits_for: HashMap<u32, u32, Indices>,
    /// Entries that count one frame more as shaped until those of another one, which they replace, have left.
    leaves_behind: HashMap<u32, Vec<u32>, Indices>,
    /// `None`: no packet waits.
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
    pub(crate) grace: Grace<Retired>,
    pub(crate) alarms: Alarms,
    /// Entries of sessions that measure, whose PDRs are gone: what they had counted then.
    leaving: HashMap<u32, u64, Indices>,
    /// PDRs that the last change took out.
    parted: Vec<(PdrId, Counters)>,
    pub(crate) late_bytes: u64,
    /// Changes of sessions that did not fit, by the table that was full.
    pub(crate) refused: HashMap<&'static str, u64>,
    /// Sessions and next hops, by the features of programs that they need.
    pub(crate) users: FeatureUsers,
    done: Vec<Retired>,
    pub(crate) plan: Plan,
    /// Of packets above their rates; `None`: they are dropped.
    pub(crate) longest_wait: Option<Duration>,
    pub(crate) capacities: Capacities,
    /// Time within which they have left; zero: none waits.
    pub(crate) leave_within: Duration,
    pub(crate) n3_routes: Option<Arc<RouteView>>,
}

impl Store {
    pub(crate) fn new(
        mem: Memory,
        layout: &Layout,
        grace: Grace<Retired>,
        alarms: Alarms,
        salt: u64,
    ) -> Self {
        let direct_end = layout.teids + 1;
        let longest_wait = layout.shaping.map(|shaping| shaping.longest_wait());
        let config = &mem.config[0];
        config.salt.store(salt, Ordering::Relaxed);
        config
            .bucket_mask
            .store(mem.buckets.len() as u32 - 1, Ordering::Relaxed);
        config
            .n_entries
            .store(mem.entries.len() as u32, Ordering::Relaxed);
        config.n_nis.store(layout.routed(), Ordering::Relaxed);
        let buckets = Buckets::new(mem.buckets.clone(), mem.config.clone(), salt);
        let pages = UePages::new(mem.ue_dir.clone(), mem.ue_pages.clone());
        let mut store = Self {
            direct_end,
            entries: Lines::new("entries", direct_end, mem.entries.len() as u32),
            exts: Lines::new("exts", 0, layout.exts),
            meters: Lines::new("meters", 0, layout.meters),
            nexthops: Lines::new("nexthops", 1, layout.nexthops),
            rules: Lines::new("rules", 0, layout.rule_places()),
            framed: Runs::new("framed", layout.rule_places(), mem.rules.len() as u32),
            routes: Runs::new("routes", 1, layout.routes),
            index: Index { buckets, pages },
            lengths: Lengths::new(mem.nis.clone()),
            pools6: HashMap::new(),
            salt,
            peers: Peers::new(mem.peers.clone()),
            homes: (0..layout.routed() as u16).collect(),
            instances: layout.nis as u16,
            settling: HashMap::default(),
            draining: HashMap::default(),
            carried: HashMap::default(),
            heirs: HashMap::default(),
            waits_for: HashMap::default(),
            leaves_behind: HashMap::default(),
            keeper: None,
            grace,
            alarms,
            leaving: HashMap::default(),
            parted: Vec::new(),
            late_bytes: 0,
            refused: HashMap::new(),
            users: FeatureUsers::default(),
            done: Vec::new(),
            plan: Plan::default(),
            longest_wait,
            capacities: Capacities::new(
                (&mem.capacities, &mem.meters),
                &layout.capacities,
                longest_wait,
            ),
            leave_within: layout
                .shaping
                .map_or(Duration::ZERO, |shaping| shaping.leave_within()),
            n3_routes: None,
            mem,
        };
        for ni in 0..layout.routed() as u16 {
            store.fill_home(NiId(ni), ni);
        }
        for (ni, line) in (0..store.instances).zip(store.mem.nis.iter()) {
            line.publish(
                ni::HOME,
                line.load(ni::HOME) | u64::from(ni) << ni::SELF_SHIFT,
            );
        }
        (0..store.instances).for_each(|ni| store.match_policies(NiId(ni)));
        store
    }

    /// Numbers of the routes of all policies for a network instance.
    fn policies_of(&self, ni: NiId) -> impl Iterator<Item = NiId> + use<> {
        let instances = self.instances;
        PolicyId::all()
            .map(move |policy| policy.routes_for(ni, instances))
            .take((self.homes.len() / usize::from(instances.max(1))).saturating_sub(1))
    }

    /// Packets of a network instance that go the way of a policy find its UEs, and are told from those of others, as if they
    /// went by its own routes.
    fn match_policies(&mut self, ni: NiId) {
        let (Some(of), home) = (self.mem.nis.get(usize::from(ni.0)), self.home(ni)) else {
            return;
        };
        for policy in self.policies_of(ni) {
            let place = usize::from(policy.0);
            if let (Some(slot), Some(line)) = (self.homes.get_mut(place), self.mem.nis.get(place)) {
                *slot = home;
                for word in [ni::HOME, ni::UE4, ni::UE6] {
                    line.publish(word, of.load(word));
                }
            }
        }
    }

    /// Network instances on one port share the directory of the lowest.
    pub(crate) fn set_home(&mut self, ni: NiId, home: NiId) {
        if let Some(slot) = self.homes.get_mut(usize::from(ni.0)) {
            *slot = home.0;
        }
        self.fill_home(ni, home.0);
        for sharer in [ni, home].into_iter().filter(|_| ni != home) {
            if let Some(line) = self.mem.nis.get(usize::from(sharer.0)) {
                line.publish(ni::HOME, line.load(ni::HOME) | ni::SHARED);
            }
            self.match_policies(sharer);
        }
    }

    fn fill_home(&self, ni: NiId, home: u16) {
        if let Some(line) = self.mem.nis.get(usize::from(ni.0)) {
            let flags = line.load(ni::HOME) >> 32 << 32;
            line.publish(ni::HOME, flags | u64::from(home));
        }
    }

    /// Whether UEs of a network instance reach each other within this UPF.
    pub(crate) fn set_ue_to_ue(&mut self, ni: NiId, allowed: bool) {
        if let Some(line) = self.mem.nis.get(usize::from(ni.0)) {
            let home = line.load(ni::HOME) & !ni::NO_UE_TO_UE;
            let flag = if allowed { 0 } else { ni::NO_UE_TO_UE };
            line.publish(ni::HOME, home | flag);
        }
        self.match_policies(ni);
    }

    /// From now on packets from UEs of the network instance are looked at more closely when their
    /// destination resembles this one. Never taken back: too close a look costs only time.
    pub(crate) fn expect_ue(&self, ni: NiId, addr: IpAddr) {
        let (word, bit) = match addr {
            IpAddr::V4(addr) => (ni::UE4, ni::ue4_bit(addr)),
            IpAddr::V6(addr) => (ni::UE6, ni::ue6_bit((u128::from(addr) >> 64) as u64)),
        };
        if let Some(line) = self.mem.nis.get(usize::from(ni.0))
            && line.load(word) & bit == 0
        {
            line.publish(word, line.load(word) | bit);
            for policy in self.policies_of(ni) {
                self.mem.nis[usize::from(policy.0)].publish(word, line.load(word));
            }
        }
    }

    /// Expect UEs at all addresses of a prefix.
    pub(crate) fn expect_ues(&self, ni: NiId, net: IpNet) {
        prefixes::samples(net).for_each(|addr| self.expect_ue(ni, addr));
    }

    pub(crate) fn home(&self, ni: NiId) -> u16 {
        self.homes.get(usize::from(ni.0)).copied().unwrap_or(ni.0)
    }

    pub(crate) fn register_pool(&mut self, ni: NiId, pool: IpNet) -> Result<(), NoRoom> {
        let home = self.home(ni);
        self.expect_ues(ni, pool);
        match pool {
            IpNet::V4(pool) => self.index.pages.register(home, pool),
            IpNet::V6(_) => self.register_pool6(home, pool),
        }
    }

    /// Whether a route leads to a part of a pool: to its addresses that no session has.
    pub(crate) fn says_more_than_pool(&self, ni: NiId, route: IpNet) -> bool {
        let home = self.home(ni);
        let within = |pool: IpNet| pool.contains(&route) && pool.prefix_len() < route.prefix_len();
        let pools6 = self.pools6.get(&home).into_iter().flatten();
        self.index.pages.pools(home).map(IpNet::V4).any(within) || pools6.copied().any(within)
    }

    fn register_pool6(&mut self, home: u16, pool: IpNet) -> Result<(), NoRoom> {
        let no_room = NoRoom::of("framed");
        let line = self.mem.nis.get(usize::from(home)).ok_or(no_room)?;
        let pools = self.pools6.entry(home).or_default();
        if pools.len() >= FRAMED_MAX {
            return Err(no_room);
        }
        let (len, former) = (
            prefixes::places(pools.len() + 1),
            prefixes::places(pools.len()),
        );
        let first = self.framed.take(len).ok_or(no_room)?;
        pools.push(pool);
        prefixes::fill(&self.mem.rules[first as usize..], pools);
        let before = line.load(ni::POOLS6) as u32;
        line.publish(
            ni::POOLS6,
            u64::from(first + 1) | (pools.len() as u64) << 32,
        );
        if let Some(first) = before.checked_sub(1) {
            self.grace.retire(Retired::Framed { first, len: former });
        }
        Ok(())
    }

    pub(crate) fn set_local(&mut self, n3: &[IpAddr]) {
        let config = &self.mem.config[0];
        let mut v4 = n3.iter().filter_map(|addr| match addr {
            IpAddr::V4(addr) => Some(be(*addr)),
            IpAddr::V6(_) => None,
        });
        let mut v6 = n3.iter().filter_map(|addr| match addr {
            IpAddr::V4(_) => None,
            IpAddr::V6(addr) => Some(u128::from_ne_bytes(addr.octets())),
        });
        for slot in &config.n3_be {
            slot.store(v4.next().unwrap_or(0), Ordering::Release);
        }
        for [first, second] in &config.n3_6 {
            let addr = v6.next().unwrap_or(0);
            let store = |word: &AtomicU64, value| word.store(value, Ordering::Release);
            store(first, addr as u64);
            store(second, (addr >> 64) as u64);
        }
    }

    /// Whether a route towards gNBs leads to `addr`. As long as the routes are not known, one may.
    pub(crate) fn reaches(&self, addr: IpAddr) -> bool {
        let Some(routes) = &self.n3_routes else {
            return true;
        };
        matches!(
            routes.lookup(addr),
            Some(Target::Via { .. } | Target::Overflow)
        )
    }

    pub(crate) fn head(&self, index: u32) -> u64 {
        self.mem.entries[index as usize].load(entry::HEAD)
    }

    /// Read the entries of a session. The result means nothing.
    pub(crate) fn touch(&self, handle: &Handle) -> u64 {
        let entries = handle.entries().iter();
        let heads = entries.map(|held| self.head(held.index));
        heads.fold(0, |a, b| a ^ b)
    }

    /// Whether packets may still be reading what the words of an entry said before.
    pub(crate) fn is_settling(&self, index: u32) -> bool {
        self.settling.contains_key(&index)
    }

    /// The words of an entry lost their meaning; with `free`, nothing leads to it any more.
    pub(crate) fn retire_entry(&mut self, index: u32, free: bool) {
        let settling = self.settling.entry(index).or_default();
        settling.graces += 1;
        settling.free |= free;
        self.grace.retire(Retired::Entry(index));
    }

    /// Entry `to` goes on counting where `from` stops. `from` must be retired thereafter.
    pub(crate) fn carry(&mut self, from: u32, to: u32) {
        let mut carried = self.carried.remove(&from).unwrap_or_default();
        // Before the alarm: what is counted between is taken off it twice rather than not at all.
        carried.from.push(self.earlier(from));
        for earlier in &carried.from {
            self.heirs.insert(earlier.index, to);
        }
        self.carried.insert(to, carried);
        self.hand_alarm_on(from, to);
    }

    fn earlier(&self, index: u32) -> Earlier {
        let counted = self.line_counters(index);
        Earlier {
            index,
            seen: counted.bytes,
            qos_seen: counted.qos_bytes,
        }
    }

    /// As [`Self::carry`], to an entry of another predefined rule of the PDR, which counts for itself too.
    pub(crate) fn bequeath(&mut self, from: u32, to: u32) {
        let mut left = self.carried.remove(&from).unwrap_or_default();
        left.from.push(self.earlier(from));
        for earlier in &left.from {
            self.heirs.insert(earlier.index, to);
        }
        let carried = self.carried.entry(to).or_default();
        carried.base = carried.base.plus(left.base);
        carried.from.extend_from_slice(&left.from);
        let others = carried.others.get_or_insert_default();
        others.base = others.base.plus(left.base);
        others
            .from
            .extend(left.from.iter().map(|earlier| earlier.index));
    }

    /// The PDR of an entry that nothing leads to any more is gone.
    pub(crate) fn forget(&mut self, index: u32, pdr: PdrId, measured: bool) {
        if measured {
            self.parted.push((pdr, self.counters(index)));
            self.leaving.insert(index, self.line_counters(index).bytes);
        }
        if self.carried.is_empty() {
            return;
        }
        for earlier in self.carried.remove(&index).unwrap_or_default().from {
            self.heirs.remove(&earlier.index);
            if measured {
                let counted = self.line_counters(earlier.index).bytes;
                self.leaving.insert(earlier.index, counted);
            }
        }
    }

    /// A change begins.
    pub(crate) fn forget_parted(&mut self) {
        self.parted.clear();
    }

    /// [`compiled::Tables::parted`]
    pub(crate) fn parted(&self, pdr: PdrId) -> Option<Counters> {
        let entries = self.parted.iter().filter(|(of, _)| *of == pdr);
        entries
            .map(|(_, counters)| *counters)
            .reduce(Counters::plus)
    }

    /// Bytes that a PDR had counted before it came to this entry; they are taken off its alarm.
    pub(crate) fn counted_before(&mut self, index: u32) -> u64 {
        let Some(carried) = self.carried.get(&index) else {
            return 0;
        };
        let from: SmallVec<[u32; 4]> = carried.from.iter().map(|from| from.index).collect();
        let now: SmallVec<[Earlier; 4]> = from.iter().map(|&index| self.earlier(index)).collect();
        let before = carried.base.bytes + now.iter().map(|from| from.seen).sum::<u64>();
        if let Some(carried) = self.carried.get_mut(&index) {
            carried.from.clear();
            carried.from.extend_from_slice(&now);
        }
        before
    }

    /// Bytes that QoS enforcement had dropped by then.
    pub(crate) fn qos_dropped_before(&mut self, index: u32) -> u64 {
        let Some(mut carried) = self.carried.remove(&index) else {
            return 0;
        };
        for from in &mut carried.from {
            from.qos_seen = self.line_counters(from.index).qos_bytes;
        }
        let from = carried.from.iter().map(|from| from.qos_seen);
        let before = carried.base.qos_bytes + from.sum::<u64>();
        self.carried.insert(index, carried);
        before
    }

    fn line_counters(&self, index: u32) -> Counters {
        let line = &self.mem.entries[index as usize];
        let side = &self.mem.sides[index as usize];
        Counters {
            packets: line.load(entry::PACKETS) + side.packets.load(Ordering::Relaxed),
            bytes: line.load(entry::BYTES) + side.bytes.load(Ordering::Relaxed),
            drops: side.drops.load(Ordering::Relaxed),
            qos_packets: side.qos_packets.load(Ordering::Relaxed),
            qos_bytes: side.qos_bytes.load(Ordering::Relaxed),
            delayed: side.delayed.load(Ordering::Relaxed),
        }
    }

    /// Counts begin at zero in a line that nothing leads to.
    pub(crate) fn clear_side(&self, index: u32) {
        let side = &self.mem.sides[index as usize];
        for count in [
            &side.packets,
            &side.bytes,
            &side.drops,
            &side.qos_packets,
            &side.qos_bytes,
            &side.qos_alarm,
            &side.delayed,
        ] {
            // Most are zero, in pages that were never touched: reading takes no memory.
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Counters of a live entry and those that it replaced.
    pub(crate) fn counters(&self, index: u32) -> Counters {
        let live = self.line_counters(index);
        let Some(carried) = self.carried.get(&index) else {
            return live;
        };
        let earlier = carried.from.iter();
        let earlier = earlier.map(|from| self.line_counters(from.index));
        earlier.fold(live.plus(carried.base), Counters::plus)
    }

    /// Share of these counters that its own predefined rule has counted.
    pub(crate) fn own_counters(&self, index: u32) -> Counters {
        let all = self.counters(index);
        let Some(others) = self.carried.get(&index).and_then(|c| c.others.as_ref()) else {
            return all;
        };
        let from = others.from.iter().map(|&from| self.line_counters(from));
        let others = from.fold(others.base, Counters::plus);
        Counters {
            packets: all.packets.saturating_sub(others.packets),
            bytes: all.bytes.saturating_sub(others.bytes),
            drops: all.drops.saturating_sub(others.drops),
            qos_packets: all.qos_packets.saturating_sub(others.qos_packets),
            qos_bytes: all.qos_bytes.saturating_sub(others.qos_bytes),
            delayed: all.delayed.saturating_sub(others.delayed),
        }
    }

    /// The end of one of an entry's grace periods.
    fn settle(&mut self, index: u32) {
        let free = match self.settling.get_mut(&index) {
            Some(settling) if settling.graces > 1 => return settling.graces -= 1,
            Some(settling) => settling.free,
            None => return,
        };
        if self.is_awaited(index, free) || self.precedes(index) {
            return self.grace.retire(Retired::Entry(index));
        }
        self.settling.remove(&index);
        self.no_longer_behind(index);
        self.no_longer_precedes(index);
        self.settle_counts(index);
        if free {
            self.entries.give(index);
        }
    }

    fn settle_counts(&mut self, index: u32) {
        let last = self.line_counters(index);
        if let Some(seen) = self.leaving.remove(&index) {
            self.late_bytes += last.bytes.saturating_sub(seen);
        }
        let Some(heir) = self.heirs.remove(&index) else {
            return;
        };
        self.follow_meter(index, heir);
        if let Some(carried) = self.carried.get_mut(&heir) {
            let own = carried.from.iter().find(|from| from.index == index);
            let late = own.map_or(0, |own| last.bytes.saturating_sub(own.seen));
            let qos_late = own.map_or(0, |own| last.qos_bytes.saturating_sub(own.qos_seen));
            carried.from.retain(|from| from.index != index);
            carried.base = carried.base.plus(last);
            if let Some(others) = &mut carried.others
                && others.from.contains(&index)
            {
                others.from.retain(|&from| from != index);
                others.base = others.base.plus(last);
            }
            self.near_alarm(heir, late);
            self.near_qos_alarm(heir, qos_late);
        }
    }

    /// The line, its framed routes and its duplicates.
    fn free_ext(&mut self, index: u32) {
        let ext: Ext = from_words(self.mem.exts[index as usize].words());
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
    fn free_rules(&mut self, first: u32) {
        let places = RuleList::places_at(&self.mem.rules, first);
        places.into_iter().for_each(|place| self.rules.give(place));
    }

    /// Whether somebody keeps packets. Else none waits, and nothing has to stay behind any.
    fn holds(&self) -> bool {
        self.mem.config[0].held_max.load(Ordering::Acquire) > 0
    }

    /// Packets that wait at an entry, or are on their way there.
    pub(crate) fn held(&self, index: u32) -> u64 {
        self.mem.sides[index as usize]
            .held
            .load(Ordering::Acquire)
            .into()
    }

    /// Have what waits at an entry looked at: its FAR may have changed.
    pub(crate) fn look_at_held(&self, index: u32) {
        if let (Some(keeper), Some(seid)) = (&self.keeper, self.mem.owners.seid(index))
            && self.held(index) > 0
        {
            keeper.look(seid);
        }
    }

    /// Have what waits at these entries, all of one session, dropped.
    pub(crate) fn discard_held(&self, entries: &[u32]) {
        let mut waiting = entries.iter().filter(|&&index| self.held(index) > 0);
        let seid = waiting
            .next()
            .and_then(|&index| self.mem.owners.seid(index));
        if let (Some(keeper), Some(seid)) = (&self.keeper, seid) {
            keeper.discard(seid);
        }
    }

    /// Entry `to` replaces `from`, at which packets may wait: those that meet it stay behind them.
    pub(crate) fn wait_behind(&mut self, from: u32, to: u32) {
        if !self.holds() {
            return;
        }
        let held = &self.mem.sides[to as usize].held;
        held.fetch_add(1, Ordering::AcqRel);
        self.waits_for.insert(from, to);
        self.mem.successors.replace(from, Some(to));
    }

    /// Entry `to` replaces `from`, of which frames above their rate may be on their way by user space: those that meet it go the
    /// same way, behind them.
    pub(crate) fn leave_behind(&mut self, from: u32, to: u32) {
        if self.keeps_frames() {
            self.mem.sides[to as usize]
                .shaped
                .fetch_add(1, Ordering::AcqRel);
            self.leaves_behind.entry(from).or_default().push(to);
        }
    }

    /// Whether user space keeps frames above their rate for programs.
    fn keeps_frames(&self) -> bool {
        self.mem.config[0].shaper_frames.load(Ordering::Acquire) > 0
    }

    /// Whether frames of an entry that is gone still are in user space, which others stay behind.
    fn precedes(&self, index: u32) -> bool {
        let shaped = &self.mem.sides[index as usize].shaped;
        self.keeps_frames()
            && self.leaves_behind.contains_key(&index)
            && shaped.load(Ordering::Acquire) > 0
    }

    /// All frames of an entry have left: what has taken its place is free to go.
    fn no_longer_precedes(&mut self, index: u32) {
        for to in self.leaves_behind.remove(&index).into_iter().flatten() {
            self.mem.sides[to as usize]
                .shaped
                .fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Head of an entry while packets may wait at it. It becomes what it shall be once none does.
    pub(crate) fn behind_waiting(&mut self, index: u32, head: u64) -> u64 {
        if !self.holds() || !entry::forwards(head) {
            return head;
        }
        *self.draining.entry(index).or_default() += 1;
        self.grace.retire(Retired::Drain(index));
        entry::draining(head)
    }

    /// The end of a grace period: whoever met the entry before it forwarded has handed its packet over, so that `held`
    /// counts it.
    fn drained(&mut self, index: u32) {
        if let Some(more @ 2..) = self.draining.get_mut(&index) {
            return *more -= 1;
        }
        let head = self.head(index);
        if entry::is_draining(head) {
            if self.holds() && self.held(index) > 0 {
                self.look_at_held(index);
                return self.grace.retire(Retired::Drain(index));
            }
            self.mem.entries[index as usize].publish(entry::HEAD, entry::settled(head));
        }
        self.draining.remove(&index);
    }

    /// Whether packets still wait at an entry that is gone, so that it cannot be used again.
    fn is_awaited(&self, index: u32, free: bool) -> bool {
        let awaited =
            self.holds() && (free || self.waits_for.contains_key(&index)) && self.held(index) > 0;
        if awaited {
            self.look_at_held(index);
        }
        awaited
    }

    /// All that waited at an entry has left: what has taken its place need not wait for that.
    fn no_longer_behind(&mut self, index: u32) {
        if let Some(to) = self.waits_for.remove(&index) {
            self.mem.successors.replace(index, None);
            let held = &self.mem.sides[to as usize].held;
            held.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn finish(&mut self, item: Retired) {
        match item {
            Retired::Entry(index) => self.settle(index),
            Retired::Drain(index) => self.drained(index),
            Retired::Ext(index) => self.free_ext(index),
            Retired::Meter(index) => self.meters.give(index),
            Retired::Rules(first) => self.free_rules(first),
            Retired::Framed { first, len } => self.framed.give(first, len),
            Retired::Slot(place) => self.index.buckets.free(place),
            Retired::Peer(index) => self.peers.settle(index),
            Retired::NextHop(index) => self.nexthops.give(index),
            Retired::Routes { first, len } => self.routes.give(first, len),
        }
    }

    /// Features that programs must have for everything that is in the tables.
    pub(crate) fn needs(&self) -> Features {
        let needs = self.users.needs();
        if self.index.buckets.used() > 0 {
            needs.with(Features::BUCKETS)
        } else {
            needs
        }
    }

    /// Reuse what has had its grace period. Never waits.
    pub(crate) fn maintain(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.grace.poll(&mut done);
        done.drain(..).for_each(|item| self.finish(item));
        self.done = done;
    }

    /// The interface towards a peer, as far as it is known.
    pub(crate) fn way_to(&self, local: IpAddr, remote: IpAddr) -> Option<u32> {
        let nexthop = self.peers.nexthop(Peer {
            remote,
            local,
            udp: false,
        })?;
        let line: NextHopLine = from_words(self.mem.nexthops[nexthop as usize].words());
        Some(line.ifindex)
    }

    /// Wait until everything retired can be reused.
    pub(crate) fn wait(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.grace.wait(&mut done);
        done.drain(..).for_each(|item| self.finish(item));
        self.done = done;
    }
}
