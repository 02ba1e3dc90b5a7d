//! From kernel state and peers in use to table changes and requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use compiled::{NiId, NoRoom, PolicyId};
use ipnet::IpNet;

use crate::policy::{Fallback, Steered, leads_somewhere};
use crate::view::default_route;
use crate::{
    Config, Family, Kernel, KernelChange, L2, Link, NetworkInstance, NextHop, NextHopTables,
    ONLINK_KEPT_MAX, Peer, PeerChange, Policy, PolicyState, Port, Request, RouteView, TABLE_MAIN,
    Target, Vlan,
};

/// An oddity of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Foreign {
    /// Routes of the main table lead through it, and users may not use them.
    Restricted,
    /// Packets leave by it, and it is none of ours.
    NoPort,
}

/// A neighbour, as the kernel keys it.
type NeighbourKey = (u32, IpAddr);

/// Next hops by content, with the number of places that name each.
#[derive(Debug, Default)]
struct Pool {
    hops: HashMap<NextHop, (u32, u32)>,
}

impl Pool {
    fn acquire(&mut self, tables: &mut impl NextHopTables, hop: NextHop) -> Result<u32, NoRoom> {
        if let Some((index, uses)) = self.hops.get_mut(&hop) {
            *uses += 1;
            return Ok(*index);
        }
        let index = tables.alloc_nexthop(&hop)?;
        self.hops.insert(hop, (index, 1));
        Ok(index)
    }

    fn release(&mut self, tables: &mut impl NextHopTables, hop: NextHop) {
        let Some((index, uses)) = self.hops.get_mut(&hop) else {
            return;
        };
        *uses -= 1;
        if *uses == 0 {
            tables.free_nexthop(*index);
            self.hops.remove(&hop);
        }
    }
}

/// State of the tables for one network instance, or for a policy and the packets of one.
#[derive(Debug)]
struct NiState {
    config: NetworkInstance,
    policy: Option<PolicyRoutes>,
    view: RouteView,
    /// Routes by `Family as usize`: compressed and cut to size.
    lists: [Listed; 2],
    applied: [Vec<(IpNet, NextHop)>; 2],
    neighbours: BTreeMap<IpAddr, NextHop>,
}

/// Routes of a policy beside those of a network instance.
#[derive(Debug)]
struct PolicyRoutes {
    of: Policy,
    /// As if there were no policy.
    own: RouteView,
    steered: Steered,
    /// Which of the targets lead somewhere, as [`NiState::view`] has it.
    usable: Vec<bool>,
    /// Its routes do not fit, by `Family as usize`.
    too_many: [bool; 2],
}

impl PolicyRoutes {
    fn new(of: &Policy) -> Self {
        Self {
            of: of.clone(),
            own: RouteView::default(),
            steered: Steered::default(),
            usable: Vec::new(),
            too_many: [false; 2],
        }
    }
}

/// Routes of one family as the tables hold them, longest prefix first.
type Listed = Vec<(IpNet, Option<Target>)>;

#[derive(Debug, Default)]
struct PeerState {
    target: Option<Target>,
    applied: Option<NextHop>,
}

/// The model: kernel state, peers in use, and what has been put into the tables.
#[derive(Debug)]
pub struct NextHops {
    config: Config,
    kernel: Kernel,
    n3_view: Arc<RouteView>,
    nis: Vec<NiState>,
    peers: BTreeMap<Peer, PeerState>,
    pool: Pool,
    /// Neighbours that the kernel was asked to keep.
    kept: BTreeSet<NeighbourKey>,
    /// Interfaces whose oddity has been logged.
    warned: BTreeSet<(Foreign, String)>,
    peer_changes: Vec<PeerChange>,
    topology_changed: bool,
    hops_changed: bool,
    /// Whether the lack of room has been logged since it last sufficed.
    starved: bool,
}

impl NextHops {
    /// Knows nothing of the kernel yet.
    pub fn new(config: Config) -> Self {
        let state = |config: NetworkInstance, policy: Option<&Policy>| NiState {
            config,
            policy: policy.map(PolicyRoutes::new),
            view: RouteView::default(),
            lists: Default::default(),
            applied: Default::default(),
            neighbours: BTreeMap::new(),
        };
        let instances = &config.network_instances;
        let own = instances.iter().map(|&ni| state(ni, None));
        let count = u16::try_from(instances.len()).unwrap_or(u16::MAX);
        let of_policies = PolicyId::all().zip(&config.policies);
        let of_policies = of_policies.flat_map(|(id, policy)| {
            instances.iter().map(move |ni| {
                let id = id.routes_for(ni.id, count);
                state(NetworkInstance { id, ..*ni }, Some(policy))
            })
        });
        let nis = own.chain(of_policies).collect();
        Self {
            config,
            kernel: Kernel::default(),
            n3_view: Arc::default(),
            nis,
            peers: BTreeMap::new(),
            pool: Pool::default(),
            kept: BTreeSet::new(),
            warned: BTreeSet::new(),
            peer_changes: Vec::new(),
            topology_changed: true,
            hops_changed: true,
            starved: false,
        }
    }

    /// Data interfaces, with their numbers as last heard.
    pub fn ports(&self) -> &[Port] {
        &self.config.ports
    }

    fn ifindex(&self, slot: u32) -> u32 {
        let port = self.config.ports.iter().find(|port| port.slot == slot);
        port.map_or(0, |port| port.ifindex)
    }

    /// Find interfaces that were made anew. One that has got another name stays what it is.
    fn find_ports(&mut self) {
        for port in &mut self.config.ports {
            if self.kernel.link(port.ifindex).is_none() {
                let found = self.kernel.links().find(|link| link.name == port.name);
                port.ifindex = found.map_or(0, |link| link.ifindex);
            }
        }
    }

    /// Take in what the kernel said. Nothing reaches the tables before [`reconcile`](Self::reconcile).
    pub fn apply(&mut self, change: KernelChange) {
        // A neighbour that the kernel dropped is asked for again, if it is still needed.
        match &change {
            KernelChange::NeighbourGone { ifindex, addr } => {
                self.kept.remove(&(*ifindex, *addr));
            }
            KernelChange::Link(link) if !link.usable() => {
                self.kept.retain(|(ifindex, _)| *ifindex != link.ifindex);
            }
            KernelChange::LinkGone(gone) => self.kept.retain(|(ifindex, _)| ifindex != gone),
            KernelChange::All(_) => self.kept.clear(),
            _ => {}
        }
        let links = matches!(
            change,
            KernelChange::All(_) | KernelChange::Link(_) | KernelChange::LinkGone(_)
        );
        let effect = self.kernel.apply(change);
        if links {
            self.find_ports();
        }
        self.topology_changed |= effect.topology;
        self.hops_changed |= effect.topology || effect.neighbours;
    }

    /// Bring the tables to what the kernel says now; only differences are written. Requests to the
    /// kernel are appended to `requests`.
    pub fn reconcile(&mut self, tables: &mut impl NextHopTables, requests: &mut Vec<Request>) {
        if self.kernel.take_uncertain() {
            requests.push(Request::DumpRoutes);
        }
        self.take_peers(tables);
        if self.topology_changed {
            self.rebuild_views(tables);
            tables.set_n3_routes(&self.n3_view);
            self.set_addresses(tables);
            self.topology_changed = false;
        }
        if !self.hops_changed {
            return;
        }
        self.choose_ways(tables);
        // Next hops that failed for lack of room are tried again next time.
        self.hops_changed = false;
        let outcome = self.fill(tables);
        self.hops_changed |= outcome.is_err();
        match outcome {
            Err(no_room) if !self.starved => {
                tracing::error!(
                    table = no_room.table,
                    "next hops do not fit; raise the limit"
                );
            }
            _ => {}
        }
        self.starved = outcome.is_err();
        self.keep_resolved(requests);
    }

    /// The kernel state as it is known.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Peers in use and where their packets go.
    pub fn peers(&self) -> impl Iterator<Item = (Peer, Option<NextHop>)> {
        self.peers
            .iter()
            .map(|(peer, state)| (*peer, state.applied))
    }

    /// Whether each peer in use and each gateway has a next hop in the tables, or has none because it does not answer.
    pub fn is_resolved(&self) -> bool {
        let is_open = |hop: &NextHop| matches!(hop, NextHop::Unresolved { .. });
        let mut peers = self.peers.values().map(|state| state.applied);
        let routes = self.nis.iter().flat_map(|ni| ni.applied.iter().flatten());
        !peers.any(|hop| hop.is_none_or(|hop| is_open(&hop)))
            && !routes.into_iter().any(|(_, hop)| is_open(hop))
    }

    /// The routes in the tables.
    pub fn routes(&self, ni: NiId, family: Family) -> &[(IpNet, NextHop)] {
        let found = self.nis.iter().find(|state| state.config.id == ni);
        found.map_or(&[], |state| &state.applied[family as usize])
    }

    /// How a policy stands for packets of a network instance, by `Family as usize`. `None`: there is no such policy.
    pub fn policy_state(&self, policy: PolicyId, ni: NiId) -> Option<[PolicyState; 2]> {
        let count = u16::try_from(self.config.network_instances.len()).ok()?;
        let id = policy.routes_for(ni, count);
        let found = self.nis.iter().find(|state| state.config.id == id)?;
        let routes = found.policy.as_ref()?;
        Some([Family::V4, Family::V6].map(|family| {
            match routes.too_many[family as usize] {
                true => PolicyState::TooMany,
                false => routes
                    .steered
                    .state(family, |target| self.hop(Some(target), None)),
            }
        }))
    }

    /// The first address of each network instance's interface that others can reach, of each family.
    fn set_addresses(&self, tables: &mut impl NextHopTables) {
        for ni in self.nis.iter().map(|state| &state.config) {
            let ifindex = self.ifindex(ni.slot);
            let addresses = || {
                let all = self.kernel.addresses();
                let here = all.filter(|address| address.ifindex == ifindex);
                here.map(|address| address.net.addr())
            };
            let v4 = addresses().find_map(|addr| match addr {
                IpAddr::V4(addr) => Some(addr),
                IpAddr::V6(_) => None,
            });
            let v6 = addresses().find_map(|addr| match addr {
                IpAddr::V6(addr) if !addr.is_unicast_link_local() => Some(addr),
                _ => None,
            });
            tables.set_ni_addresses(ni.id, v4, v6);
        }
    }

    /// Give peers that have come since the last call their next hop, as far as the kernel's state is known. Costs what is
    /// new; [`reconcile`](Self::reconcile) does the rest.
    pub fn take_peers(&mut self, tables: &mut impl NextHopTables) {
        let mut changes = std::mem::take(&mut self.peer_changes);
        tables.take_peer_changes(&mut changes);
        let mut fresh = Vec::new();
        for change in changes.drain(..) {
            self.hops_changed = true;
            match change {
                PeerChange::Added(peer) => {
                    let target = self.n3_view.lookup(peer.remote).cloned();
                    let state = self.peers.entry(peer).or_default();
                    // A peer that came back is a fresh one to the tables.
                    if let Some(hop) = state.applied.take() {
                        self.pool.release(tables, hop);
                    }
                    state.target = target;
                    fresh.push(peer);
                }
                PeerChange::Removed(peer) => {
                    let state = self.peers.remove(&peer);
                    if let Some(hop) = state.and_then(|state| state.applied) {
                        self.pool.release(tables, hop);
                    }
                }
            }
        }
        self.peer_changes = changes;
        // Peers that have not gone meanwhile. One that there is no room for is tried again, and told, when all is filled.
        for peer in fresh {
            let _ = self.fill_peer(tables, peer);
        }
    }

    fn rebuild_views(&mut self, tables: &impl NextHopTables) {
        self.n3_view = Arc::new(RouteView::of(&self.kernel, self.config.n3_table));
        for (peer, state) in &mut self.peers {
            state.target = self.n3_view.lookup(peer.remote).cloned();
        }
        for index in 0..self.nis.len() {
            let config = self.nis[index].config;
            let mut view = RouteView::of(&self.kernel, config.table);
            let policy = self.nis[index].policy.as_ref();
            let steered = policy.map(|policy| {
                let on = |slot, ifindex| self.is_on(slot, ifindex);
                let from = (&self.kernel, &view, config.table);
                Steered::of(&policy.of.way, from, on, |slot| self.ifindex(slot))
            });
            view.restrict(|target| self.for_users(&config, target));
            let ni = &mut self.nis[index];
            match (&mut ni.policy, steered) {
                (Some(policy), Some(steered)) => {
                    policy.own = view;
                    policy.steered = steered;
                    self.choose_way(tables, index);
                }
                _ => {
                    let in_pool = |net| tables.says_more_than_pool(config.id, net);
                    let list = |family| view.list(family, in_pool, |_| false).unwrap_or_default();
                    ni.lists = [Family::V4, Family::V6].map(list);
                    ni.view = view;
                }
            }
        }
        self.warn_of_foreign_links();
    }

    /// Have packets go another way where the neighbours that policies lead to have come or gone.
    fn choose_ways(&mut self, tables: &impl NextHopTables) {
        for index in 0..self.nis.len() {
            if let Some(policy) = &self.nis[index].policy
                && policy.usable != self.usable(&policy.steered)
            {
                self.choose_way(tables, index);
            }
        }
    }

    fn is_usable(&self, target: &Target) -> bool {
        leads_somewhere(&self.hop(Some(target), None))
    }

    fn usable(&self, steered: &Steered) -> Vec<bool> {
        steered
            .targets()
            .map(|target| self.is_usable(target))
            .collect()
    }

    /// The routes that packets of a policy meet: its own before those of its network instance, as far as they lead somewhere.
    fn choose_way(&mut self, tables: &impl NextHopTables, index: usize) {
        let id = self.nis[index].config.id;
        let Some(policy) = &self.nis[index].policy else {
            return;
        };
        let in_pool = |net| tables.says_more_than_pool(id, net);
        let usable = self.usable(&policy.steered);
        let before = |steered: &Steered| {
            let fallback = policy.of.fallback;
            steered.before(&policy.own, fallback, |to| self.is_usable(to), in_pool)
        };
        let mut view = before(&policy.steered);
        let is_own =
            |net: &IpNet| policy.steered.names(net) || policy.of.fallback == Fallback::Drop;
        let mut lists = [Family::V4, Family::V6].map(|family| view.list(family, in_pool, is_own));
        let too_many = [lists[0].is_none(), lists[1].is_none()];
        if too_many.contains(&true) {
            view = before(&Steered::default());
            lists = [Family::V4, Family::V6].map(|family| match policy.of.fallback {
                Fallback::Routes => view.list(family, in_pool, |_| false),
                // The FIB would lead them somewhere.
                Fallback::Drop => Some(vec![(default_route(family), Some(Target::Closed))]),
            });
        }
        let ni = &mut self.nis[index];
        ni.view = view;
        ni.lists = lists.map(Option::unwrap_or_default);
        if let Some(policy) = &mut ni.policy {
            (policy.usable, policy.too_many) = (usable, too_many);
        }
    }

    /// Whether a device is the interface of a slot, or a VLAN device on it.
    fn is_on(&self, slot: u32, ifindex: u32) -> bool {
        let port = self.ifindex(slot);
        ifindex == port || self.parent(ifindex) == Some(port)
    }

    /// See the module's description: the main table is shared with networks that are not for users.
    fn for_users(&self, ni: &NetworkInstance, target: &Target) -> bool {
        let Target::Via { ifindex, .. } = target else {
            return true;
        };
        ni.table != TABLE_MAIN || self.is_on(ni.slot, *ifindex)
    }

    fn parent(&self, ifindex: u32) -> Option<u32> {
        Some(self.kernel.link(ifindex)?.vlan?.parent)
    }

    /// Port and tag by which a device is reached; `None` if only the kernel can send there.
    fn egress(&self, link: &Link) -> Option<(u32, Option<Vlan>)> {
        let slot = |ifindex| {
            self.config
                .ports
                .iter()
                .find(|p| p.ifindex == ifindex)
                .map(|p| p.slot)
        };
        match slot(link.ifindex) {
            Some(port) => Some((port, None)),
            None => Some((slot(link.vlan?.parent)?, link.vlan)),
        }
    }

    /// Once for each interface, by its name: it may be made anew.
    fn warn_of_foreign_links(&mut self) {
        let mut found = BTreeSet::new();
        for ni in &self.nis {
            let restricted = ni.view.restricted_links();
            // Users are not expected to reach the host's other networks.
            let data = restricted.filter(|&ifindex| self.is_for_data(ifindex));
            found.extend(data.map(|ifindex| (Foreign::Restricted, ifindex)));
            let targets = ni.lists.iter().flatten();
            let targets = targets.filter_map(|(_, target)| self.without_port(target.as_ref()?));
            found.extend(targets.map(|ifindex| (Foreign::NoPort, ifindex)));
        }
        for state in self.peers.values() {
            let target = state.target.as_ref();
            let ifindex = target.and_then(|target| self.without_port(target));
            found.extend(ifindex.map(|ifindex| (Foreign::NoPort, ifindex)));
        }
        for (why, ifindex) in found {
            let Some(Link { name, .. }) = self.kernel.link(ifindex) else {
                continue;
            };
            if !self.warned.insert((why, name.clone())) {
                continue;
            }
            match why {
                Foreign::Restricted => tracing::info!(
                    interface = name,
                    "routes of the main table through this interface are not for users of other interfaces"
                ),
                Foreign::NoPort => tracing::warn!(
                    interface = name,
                    "packets are routed through an interface that is no data port: they take the slow path"
                ),
            }
        }
    }

    /// It is a port, or a VLAN on one.
    fn is_for_data(&self, ifindex: u32) -> bool {
        let link = self.kernel.link(ifindex);
        link.is_some_and(|link| self.egress(link).is_some())
    }

    fn without_port(&self, target: &Target) -> Option<u32> {
        let Target::Via { ifindex, .. } = target else {
            return None;
        };
        let link = self.kernel.link(*ifindex)?;
        self.egress(link).is_none().then_some(*ifindex)
    }

    /// The next hop of packets that follow `target`; `onlink` is the destination where it is known
    /// beforehand, as it is for peers.
    fn hop(&self, target: Option<&Target>, onlink: Option<IpAddr>) -> NextHop {
        let (ifindex, gateway, route_mtu) = match target {
            None | Some(Target::Unreachable) => return NextHop::None,
            Some(Target::Local) => return NextHop::Local,
            Some(Target::Prohibit) => return NextHop::Prohibit,
            Some(Target::Closed) => return NextHop::Closed,
            Some(Target::Overflow) => return NextHop::Fib,
            Some(Target::Via {
                ifindex,
                gateway,
                mtu,
            }) => (*ifindex, *gateway, *mtu),
        };
        let Some(link) = self.kernel.link(ifindex).filter(|link| link.usable()) else {
            return NextHop::None;
        };
        let mtu = link
            .mtu
            .min(route_mtu.unwrap_or(u32::MAX))
            .min(u32::from(u16::MAX)) as u16;
        let Some((port, vlan)) = self.egress(link) else {
            return NextHop::Unresolved { ifindex, mtu };
        };
        let Some(addr) = gateway.or(onlink) else {
            return NextHop::OnLink { port, ifindex, mtu };
        };
        match (self.kernel.mac_of(ifindex, addr), link.mac) {
            (Some(to), Some(from)) => NextHop::Resolved {
                port,
                ifindex,
                mtu,
                l2: L2::new(to, from, vlan),
                addr,
            },
            // Without a packet that asks: only what is kept is asked for again.
            _ if self.kernel.is_failed(ifindex, addr) && self.kept.contains(&(ifindex, addr)) => {
                NextHop::Failed
            }
            _ => NextHop::Unresolved { ifindex, mtu },
        }
    }

    /// Write all differences; the first lack of room is reported, the rest goes on.
    fn fill(&mut self, tables: &mut impl NextHopTables) -> Result<(), NoRoom> {
        let mut outcome = Ok(());
        for index in 0..self.nis.len() {
            for family in [Family::V4, Family::V6] {
                outcome = outcome.and(self.fill_routes(tables, index, family));
            }
            outcome = outcome.and(self.fill_neighbours(tables, index));
        }
        outcome.and(self.fill_peers(tables))
    }

    fn fill_routes(
        &mut self,
        tables: &mut impl NextHopTables,
        index: usize,
        family: Family,
    ) -> Result<(), NoRoom> {
        let list = &self.nis[index].lists[family as usize];
        let wanted: Vec<(IpNet, NextHop)> = list
            .iter()
            .map(|(net, target)| (*net, self.hop(target.as_ref(), None)))
            .collect();
        if wanted == self.nis[index].applied[family as usize] {
            return Ok(());
        }
        let mut indices = Vec::with_capacity(wanted.len());
        let mut outcome = Ok(());
        for (net, hop) in &wanted {
            match self.pool.acquire(tables, *hop) {
                Ok(index) => indices.push((*net, index)),
                Err(no_room) => {
                    outcome = Err(no_room);
                    break;
                }
            }
        }
        if outcome.is_ok() {
            outcome = tables.set_ni_routes(self.nis[index].config.id, family, &indices);
        }
        let superseded = if outcome.is_ok() {
            std::mem::replace(&mut self.nis[index].applied[family as usize], wanted)
        } else {
            wanted.into_iter().take(indices.len()).collect()
        };
        for (_, hop) in superseded {
            self.pool.release(tables, hop);
        }
        outcome
    }

    /// Resolved neighbours that a connected route of the network instance leads to.
    fn wanted_neighbours(&self, ni: &NiState) -> BTreeMap<IpAddr, NextHop> {
        let mut wanted = BTreeMap::new();
        for neighbour in self.kernel.neighbours().filter(|n| n.mac.is_some()) {
            let target = ni.view.lookup(neighbour.addr);
            let Some(Target::Via { gateway: None, .. }) = target else {
                continue;
            };
            let hop = self.hop(target, Some(neighbour.addr));
            if matches!(hop, NextHop::Resolved { .. }) {
                wanted.insert(neighbour.addr, hop);
            }
        }
        wanted
    }

    fn fill_neighbours(
        &mut self,
        tables: &mut impl NextHopTables,
        index: usize,
    ) -> Result<(), NoRoom> {
        let wanted = self.wanted_neighbours(&self.nis[index]);
        let Self { nis, pool, .. } = self;
        let (ni, applied) = (nis[index].config.id, &mut nis[index].neighbours);
        let mut outcome = Ok(());
        let gone: Vec<IpAddr> = applied
            .keys()
            .filter(|addr| !wanted.contains_key(addr))
            .copied()
            .collect();
        for addr in gone {
            outcome = outcome.and(tables.set_neighbour(ni, addr, None));
            if let Some(hop) = applied.remove(&addr) {
                pool.release(tables, hop);
            }
        }
        for (addr, hop) in wanted {
            if applied.get(&addr) == Some(&hop) {
                continue;
            }
            let set = pool
                .acquire(tables, hop)
                .map(|index| tables.set_neighbour(ni, addr, Some(index)));
            let superseded = match set {
                Ok(Ok(())) => applied.insert(addr, hop),
                Ok(Err(no_room)) => {
                    outcome = outcome.and(Err(no_room));
                    Some(hop)
                }
                Err(no_room) => {
                    outcome = outcome.and(Err(no_room));
                    None
                }
            };
            if let Some(hop) = superseded {
                pool.release(tables, hop);
            }
        }
        outcome
    }

    fn fill_peers(&mut self, tables: &mut impl NextHopTables) -> Result<(), NoRoom> {
        let peers: Vec<Peer> = self.peers.keys().copied().collect();
        peers
            .into_iter()
            .try_for_each(|peer| self.fill_peer(tables, peer))
    }

    fn fill_peer(&mut self, tables: &mut impl NextHopTables, peer: Peer) -> Result<(), NoRoom> {
        let Some(state) = self.peers.get(&peer) else {
            return Ok(());
        };
        let hop = self.hop(state.target.as_ref(), Some(peer.remote));
        if state.applied == Some(hop) {
            return Ok(());
        }
        let index = self.pool.acquire(tables, hop)?;
        tables.swap_peer_nexthop(peer, index);
        let old = self
            .peers
            .get_mut(&peer)
            .and_then(|state| state.applied.replace(hop));
        if let Some(old) = old {
            self.pool.release(tables, old);
        }
        Ok(())
    }

    /// Ask the kernel to keep what the tables lead to, and no longer what they do not.
    fn keep_resolved(&mut self, requests: &mut Vec<Request>) {
        let mut wanted = BTreeSet::new();
        for ni in &self.nis {
            for (_, target) in ni.lists.iter().flatten() {
                wanted.extend(
                    target
                        .as_ref()
                        .and_then(|target| self.neighbour_of(target, None)),
                );
            }
        }
        // Also those that do not answer, so that it is seen when they do.
        let policies = self.nis.iter().filter_map(|ni| ni.policy.as_ref());
        for target in policies.flat_map(|policy| policy.steered.targets()) {
            wanted.extend(self.neighbour_of(target, None));
        }
        for (peer, state) in &self.peers {
            let target = state.target.as_ref();
            wanted.extend(target.and_then(|t| self.neighbour_of(t, Some(peer.remote))));
        }
        let on_link = self.nis.iter().flat_map(|ni| ni.neighbours.iter());
        for (addr, hop) in on_link.take(ONLINK_KEPT_MAX) {
            if let NextHop::Resolved { ifindex, .. } = hop {
                wanted.insert((*ifindex, *addr));
            }
        }
        // The kernel would turn a static neighbour into an ordinary one.
        wanted.retain(|(ifindex, addr)| !self.kernel.is_static(*ifindex, *addr));

        for &(ifindex, addr) in self.kept.difference(&wanted) {
            requests.push(Request::Release { ifindex, addr });
        }
        for &(ifindex, addr) in wanted.difference(&self.kept) {
            requests.push(Request::Keep { ifindex, addr });
        }
        self.kept = wanted;
    }

    /// The neighbour whose address the tables need for `target`, if one of our ports leads there.
    fn neighbour_of(&self, target: &Target, onlink: Option<IpAddr>) -> Option<NeighbourKey> {
        let Target::Via {
            ifindex, gateway, ..
        } = target
        else {
            return None;
        };
        let link = self.kernel.link(*ifindex).filter(|link| link.usable())?;
        self.egress(link)?;
        Some((*ifindex, gateway.or(onlink)?))
    }
}
