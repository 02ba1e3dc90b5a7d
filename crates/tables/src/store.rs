//! The tables as the control thread writes them: those of the node, those of its shard, and what of both is in its grace period.
//!
//! Grace periods are the node's, for programs look at all tables. What spans both is here; a change of a session is worked out in
//! [`plan`] and carried out in [`publish`].

pub(crate) mod alarms;
pub(crate) mod entries;
mod feature_users;
mod holdings;
pub(crate) mod left_meters;
mod lending;
mod needs;
mod network_instances;
mod node;
pub(crate) mod plan;
mod publish;
pub(crate) mod retired;
mod shape;
mod shard;
mod transitions;
mod ways_back;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use compiled::{
    CapacityId, Compiled, CountedAt, Holding, Lent, NiId, NoRoom, Resource, SeidKey, Served,
    ServedBeside, Slow, TakenFor, Template,
};
use ipnet::{IpNet, Ipv6Net};

use crate::abi::{Cpu, Features};
use crate::engine::Engine;
use crate::grace::Grace;
use crate::handle::Handle;
use crate::index::Index;
use crate::layout::{Layout, Memory};
use crate::prefixes;
use crate::routing::{RouteRun, neighbour_key};
use crate::store::alarms::Alarms;
use crate::store::left_meters::LeftMeters;
pub(crate) use crate::store::lending::ALIASES;
use crate::store::lending::{Beside, Lending, name_of};
use crate::store::network_instances::NetworkInstances;
use crate::store::node::NodeTables;
use crate::store::plan::{Plan, Planner};
use crate::store::publish::{Publisher, Superseded};
use crate::store::retired::Retired;
use crate::store::shard::ShardTables;
use nexthop::{Family, NextHop};

/// State of the tables: all that is behind [`crate::Tables`] but the programs.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) mem: Memory,
    pub(crate) node: NodeTables,
    /// Of all sessions: there is one.
    pub(crate) shard: ShardTables,
    pub(crate) grace: Grace<Retired>,
    /// Changes of sessions that did not fit, by the table that was full.
    pub(crate) refused: HashMap<&'static str, u64>,
    done: Vec<Retired>,
    plan: Plan,
    former: Superseded,
    /// `None`: no session is lent.
    lending: Option<Box<Lending>>,
    /// Of processes before, until their programs meet no packet; sessions that come follow the last.
    pub(crate) left_meters: Vec<LeftMeters>,
    salt: u64,
}

impl Store {
    pub(crate) fn new(
        mem: Memory,
        layout: &Layout,
        grace: Grace<Retired>,
        alarms: Alarms,
        salt: u64,
    ) -> Self {
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
        Self {
            node: NodeTables::new(&mem, layout, longest_wait),
            shard: ShardTables::new(&mem, layout, alarms, salt, longest_wait),
            grace,
            refused: HashMap::new(),
            done: Vec::new(),
            plan: Plan::default(),
            former: Superseded::default(),
            lending: None,
            left_meters: Vec::new(),
            salt,
            mem,
        }
    }

    /// [`compiled::Tables::borrow_sessions`], of this engine beside this thread if there is one.
    pub(crate) fn borrow_sessions(
        &mut self,
        places: u32,
        key: SeidKey,
        engine: Option<Engine>,
    ) -> bool {
        // A rate depends on the entry before it, where packets wait for theirs.
        if self.shard.longest_wait.is_some() {
            return false;
        }
        self.lending = Lending::new(places, key, self.salt, engine)
            .ok()
            .map(Box::new);
        self.lending.is_some()
    }

    /// The engine that serves PFCP beside this thread.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.lending.as_ref()?.engine()
    }

    /// [`crate::Tables::attach_n4`]
    pub(crate) fn begin_n4_anew(&mut self) {
        if let Some(lending) = &mut self.lending {
            lending.begin_anew();
        }
    }

    /// [`crate::Tables::n4_may_serve`]
    pub(crate) fn n4_may_serve(&mut self) {
        if let Some(lending) = &mut self.lending {
            lending.may_serve();
        }
    }

    /// [`compiled::Tables::follow_meters`]
    pub(crate) fn follow_meters(&mut self, handle: &Handle, at: &[CountedAt]) {
        if let Some(left) = self.left_meters.last_mut() {
            left.follow(&self.shard, handle, at);
        }
    }

    /// [`crate::Tables::raise_meters`]
    pub(crate) fn raise_meters(&self, now_ns: u64) {
        let left = self.left_meters.iter();
        left.for_each(|left| left.raise(&self.shard, now_ns));
    }

    /// [`crate::Tables::lend_again`]
    pub(crate) fn lend_again(&mut self) {
        if let Some(lending) = &mut self.lending {
            lending.lend_again();
        }
    }

    /// [`compiled::Tables::know_place`]
    pub(crate) fn know_place(
        &mut self,
        place: u32,
        (generation, association): (u32, u32),
        sequence: Option<u32>,
    ) {
        let name = name_of(generation, association);
        self.beside_lending(|lending, beside| lending.know_place(place, name, sequence, beside));
    }

    /// [`compiled::Tables::take_back`]
    pub(crate) fn take_back(&mut self, place: u32, taken_for: TakenFor) {
        if let Some(lending) = &mut self.lending {
            lending.take_back(place, taken_for);
        }
    }

    /// [`compiled::Tables::give_back`]
    pub(crate) fn give_back(&mut self) {
        if let Some(lending) = &mut self.lending {
            lending.give_back();
        }
    }

    /// [`compiled::Tables::pause`]
    pub(crate) fn pause(&mut self) {
        if let Some(lending) = &mut self.lending {
            lending.pause();
        }
    }

    /// [`compiled::Tables::go_on`]
    pub(crate) fn go_on(&mut self) {
        self.beside_lending(Lending::go_on);
    }

    /// [`compiled::Tables::look_at_served`]
    pub(crate) fn look_at_served(&mut self) {
        if let Some(lending) = &mut self.lending {
            lending.look_at_served();
        }
    }

    /// [`compiled::Tables::served_is_kept`]
    pub(crate) fn served_is_kept(&self) {
        if let Some(lending) = &self.lending {
            lending.served_is_kept();
        }
    }

    /// [`compiled::Tables::next_served`]
    pub(crate) fn next_served(&mut self, served: &mut ServedBeside) -> bool {
        self.beside_lending(|lending, beside| lending.next_served(served, beside))
            .unwrap_or(false)
    }

    fn beside_lending<R>(
        &mut self,
        act: impl FnOnce(&mut Lending, &mut Beside<'_>) -> R,
    ) -> Option<R> {
        let Self {
            mem,
            node,
            shard,
            grace,
            lending,
            ..
        } = self;
        let mut beside = Beside {
            mem,
            node,
            shard,
            grace,
        };
        Some(act(lending.as_mut()?, &mut beside))
    }

    /// [`compiled::Tables::lend`]
    pub(crate) fn lend(&mut self, handle: &Handle, lent: &Lent) {
        self.beside_lending(|lending, beside| lending.lend(handle, lent, beside));
    }

    /// [`compiled::Tables::hold`]
    pub(crate) fn hold(&mut self, place: u32) {
        if let Some(lending) = &mut self.lending {
            lending.hold(place);
        }
    }

    /// [`compiled::Tables::touch_place`]
    pub(crate) fn touch_place(&self, place: u32) -> u64 {
        let lending = self.lending.as_ref();
        lending.map_or(0, |lending| lending.touch(place))
    }

    /// [`compiled::Tables::return_place`]
    pub(crate) fn return_place(&mut self, place: u32) {
        self.beside_lending(|lending, beside| lending.return_place(place, beside));
    }

    /// [`compiled::Tables::heard`]
    pub(crate) fn heard(&self, place: u32, sequence: u32) {
        if let Some(lending) = &self.lending {
            lending.heard(place, sequence);
        }
    }

    /// [`compiled::Tables::teach`]
    pub(crate) fn teach(&mut self, number: usize, template: Option<&Template>) -> bool {
        let lending = self.lending.as_mut();
        lending.is_some_and(|lending| lending.teach(number, template))
    }

    /// [`compiled::Tables::serve`]
    pub(crate) fn serve(
        &mut self,
        octets: &[u8],
        association: u32,
        served: &mut Served,
    ) -> Result<(), Slow> {
        self.beside_lending(|lending, beside| lending.serve(octets, association, served, beside))
            .unwrap_or(Err(Slow::Other))
    }

    pub(crate) fn register_pool(&mut self, ni: NiId, pool: IpNet) -> Result<(), NoRoom> {
        let home = self.node.instances.home(ni);
        self.node.instances.expect_ues(ni, pool);
        match pool {
            IpNet::V4(pool) => self.shard.index.pages.register(home, pool),
            IpNet::V6(pool) => self.register_pool6(home, pool),
        }
    }

    fn register_pool6(&mut self, home: u16, pool: Ipv6Net) -> Result<(), NoRoom> {
        let instances = &mut self.node.instances;
        let len = instances.places_for_pool6(home)?;
        let first = self.shard.framed.take(len).ok_or(NoRoom::of("framed"))?;
        let pools = instances.add_pool6(home, pool);
        prefixes::fill(&self.mem.rules[first as usize..], pools.all);
        let former = pools.former;
        instances.lead_to_pools6(home, first);
        if let Some((first, len)) = former {
            self.grace.retire(Retired::Framed { first, len });
        }
        Ok(())
    }

    /// Whether a route leads to a part of a pool: to its addresses that no session has.
    pub(crate) fn says_more_than_pool(&self, ni: NiId, route: IpNet) -> bool {
        is_in_pool(&self.node.instances, &self.shard.index, ni, route)
    }

    /// Sessions that packets to this address find, in any network instance.
    pub(crate) fn owners_of_ue(&self, addr: IpAddr) -> Vec<u64> {
        let instances = &self.node.instances;
        let mut homes: Vec<u16> = (0..instances.count)
            .map(|ni| instances.home(NiId(ni)))
            .collect();
        homes.sort_unstable();
        homes.dedup();
        let keys = homes.into_iter().map(|home| plan::ue_key(home, addr));
        let first = keys.filter_map(|key| self.shard.index.get(key));
        // A line that leads to rules has none, or that of who had it before.
        let of_rules = first.map(|first| match self.shard.rules_of(first) {
            Some(rules) => rules.entries().next().unwrap_or(first),
            None => first,
        });
        let mut seids: Vec<u64> = of_rules
            .filter_map(|entry| self.mem.owners.seid(entry))
            .collect();
        seids.sort_unstable();
        seids.dedup();
        seids
    }

    pub(crate) fn alloc_nexthop(&mut self, hop: &NextHop) -> Result<u32, NoRoom> {
        let mut index = self.node.routing.alloc_nexthop(hop);
        if index.is_none() {
            self.wait();
            index = self.node.routing.alloc_nexthop(hop);
        }
        let index = index.ok_or(NoRoom::of("nexthops"))?;
        if *hop == NextHop::Fib {
            self.node.users.join(Features::FIB);
        }
        Ok(index)
    }

    pub(crate) fn free_nexthop(&mut self, index: u32) {
        if self.node.routing.is_fib(index) {
            self.node.users.leave(Features::FIB);
        }
        self.grace.retire(Retired::NextHop(index));
    }

    pub(crate) fn set_ni_routes(
        &mut self,
        ni: NiId,
        family: Family,
        routes: &[(IpNet, u32)],
    ) -> Result<(), NoRoom> {
        if !routes.is_empty() && !self.grace.is_empty() && self.node.routing.is_half_full() {
            self.wait();
        }
        let NodeTables {
            instances, routing, ..
        } = &mut self.node;
        let in_pool = |net| is_in_pool(instances, &self.shard.index, ni, net);
        let former = routing.set_ni_routes(ni, family, routes, in_pool)?;
        if let Some(RouteRun { first, len }) = former {
            self.grace.retire(Retired::Routes { first, len });
        }
        Ok(())
    }

    /// Neighbours are found by the slots of the shard's keys.
    pub(crate) fn set_neighbour(
        &mut self,
        ni: NiId,
        addr: IpAddr,
        index: Option<u32>,
    ) -> Result<(), NoRoom> {
        let key = neighbour_key(ni, addr);
        let buckets = &mut self.shard.index.buckets;
        match index {
            None => {
                if let Some(place) = buckets.remove(key) {
                    self.grace.retire(Retired::Slot(place));
                }
            }
            Some(index) if buckets.set(key, index) => {}
            Some(index) => {
                let grace = &self.grace;
                let reserved = buckets
                    .reserve(key)
                    .or_else(|| buckets.make_room(key, || grace.pass()));
                buckets.commit(reserved.ok_or(NoRoom::of("buckets"))?, index);
            }
        }
        Ok(())
    }

    /// serve: makes sure that programs have these features, before packets need them.
    pub(crate) fn publish(
        &mut self,
        handle: &mut Handle,
        new: &Compiled,
        serve: impl FnOnce(Features) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let mut plan = std::mem::take(&mut self.plan);
        handle.read(&mut plan.held);
        let published = self.plan_and_publish(&mut plan, new, serve);
        if published.is_ok() {
            handle.write(&plan.next);
        }
        self.plan = plan;
        published
    }

    fn plan_and_publish(
        &mut self,
        plan: &mut Plan,
        new: &Compiled,
        serve: impl FnOnce(Features) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        self.node.capacities.check(&plan.held.meters, new)?;
        let mut planned = self.planner().prepare(plan, new);
        if planned.is_err() && !self.grace.is_empty() {
            // The room may be in its grace period: wait for it rather than refuse.
            self.planner().undo(plan);
            self.wait();
            planned = self.planner().prepare(plan, new);
        }
        let planned = planned.and_then(|()| self.shard.check_bounds(plan, new));
        let needs = needs::of_session(plan, new);
        if let Err(error) = planned.and_then(|()| serve(needs)) {
            self.planner().undo(plan);
            return Err(error);
        }
        // How many keys the buckets hold is known without counting their users.
        plan.next.needs = needs.without(Features::BUCKETS);
        plan.next.measured = new.measured;
        self.node.users.join(plan.next.needs);
        self.node.users.leave(plan.held.needs);
        self.node.capacities.take(&plan.held.meters, new);
        let mut publisher = Publisher {
            node: &mut self.node,
            shard: &mut self.shard,
            grace: &mut self.grace,
            former: &mut self.former,
        };
        publisher.apply(plan, new);
        ways_back::note(&self.mem.backs, plan, new);
        Ok(())
    }

    fn planner(&mut self) -> Planner<'_> {
        Planner {
            node: &mut self.node,
            shard: &mut self.shard,
            grace: &mut self.grace,
        }
    }

    /// How much there is for all sessions.
    pub(crate) fn room(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Guaranteed(id) => self.node.capacities.guaranteed_at_most(id),
            resource => self.shard.room(resource),
        }
    }

    /// Holdings of a session that is in the tables.
    pub(crate) fn holding(&self, handle: &Handle) -> Holding {
        let mut sum = self.shard.holding(handle);
        if !handle.meters().is_empty() {
            for (id, bps) in self.node.capacities.held(handle.meters()) {
                if id != CapacityId::NONE {
                    sum.add(Resource::Guaranteed(id), bps);
                }
            }
        }
        sum
    }

    /// Sessions whose PDRs have reached their alarms: at most so many records are taken. Whether there are more.
    pub(crate) fn crossings(&mut self, at_most: usize, seids: &mut Vec<u64>) -> io::Result<bool> {
        let lost = || {
            let lost = |cpu: &Cpu| cpu.alarms_lost.load(Ordering::Relaxed);
            let cpus = self.mem.cpus.iter().chain(self.mem.slow.iter());
            cpus.map(lost).sum()
        };
        let ShardTables {
            alarms, entries, ..
        } = &mut self.shard;
        alarms.crossings(entries, lost, at_most, seids)
    }

    /// Look again at entries that were armed while a packet may have been counted unseen.
    pub(crate) fn look_again(&mut self) {
        let ShardTables {
            alarms, entries, ..
        } = &mut self.shard;
        alarms.look_again(entries);
    }

    /// Features that programs must have for everything that is in the tables.
    pub(crate) fn needs(&self) -> Features {
        let needs = self.node.users.needs();
        if self.shard.index.buckets.used() > 0 {
            needs.with(Features::BUCKETS)
        } else {
            needs
        }
    }

    fn finish(&mut self, item: Retired) {
        let Self {
            node, shard, grace, ..
        } = self;
        match item {
            Retired::Entry(index) => shard.settle(index, grace),
            Retired::Drain(index) => shard.drained(index, grace),
            Retired::Ext(index) => shard.free_ext(index),
            Retired::Meter(index) => shard.meters.give(index),
            Retired::Rules(first) => shard.free_rules(first),
            Retired::Framed { first, len } => shard.framed.give(first, len),
            Retired::Slot(place) => shard.index.buckets.free(place),
            Retired::Peer(index) => node.peers.settle(index),
            Retired::NextHop(index) => node.routing.nexthops.give(index),
            Retired::Routes { first, len } => node.routing.routes.give(first, len),
        }
    }

    /// Reuse what has had its grace period. Never waits.
    pub(crate) fn maintain(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.grace.poll(&mut done);
        done.drain(..).for_each(|item| self.finish(item));
        self.done = done;
    }

    /// Wait until everything retired can be reused.
    pub(crate) fn wait(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.grace.wait(&mut done);
        done.drain(..).for_each(|item| self.finish(item));
        self.done = done;
    }
}

fn is_in_pool(instances: &NetworkInstances, index: &Index, ni: NiId, route: IpNet) -> bool {
    let home = instances.home(ni);
    let within = |pool: IpNet| pool.contains(&route) && pool.prefix_len() < route.prefix_len();
    let mut pools4 = index.pages.pools(home).map(IpNet::V4);
    pools4.any(within) || instances.pools6(home).iter().copied().any(within)
}
