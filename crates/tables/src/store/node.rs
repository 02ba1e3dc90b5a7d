//! Tables of the node: what there is once, whatever sessions there are.
//!
//! The control thread writes them, and nobody else does, beside counts and the rates of capacities ([`Governor`](crate::Governor)).
//! With several shards they stay with the node: a shard has peers counted, and reads the rest.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::Config;
use crate::capacity::Capacities;
use crate::encode::be;
use crate::grace::Grace;
use crate::layout::{Layout, Memory};
use crate::memory::View;
use crate::peers::Peers;
use crate::prefixes::Lengths;
use crate::routing::Routing;
use crate::store::feature_users::FeatureUsers;
use crate::store::network_instances::NetworkInstances;
use crate::store::retired::Retired;
use nexthop::{Peer, RouteView, Target};

/// Next hops, routes, peers, network instances, capacities, and features of programs that all of these need.
#[derive(Debug)]
pub(crate) struct NodeTables {
    config: View<Config>,
    pub(crate) instances: NetworkInstances,
    /// Of prefixes behind UEs, by network instance.
    pub(crate) lengths: Lengths,
    pub(crate) routing: Routing,
    pub(crate) peers: Peers,
    pub(crate) capacities: Capacities,
    /// Sessions and next hops, by the features of programs that they need.
    pub(crate) users: FeatureUsers,
    /// Routes towards gNBs; `None`: they are not known.
    pub(crate) n3_routes: Option<Arc<RouteView>>,
}

impl NodeTables {
    pub(crate) fn new(mem: &Memory, layout: &Layout, longest_wait: Option<Duration>) -> Self {
        let (count, routed) = (layout.nis as u16, layout.routed() as u16);
        Self {
            config: mem.config.clone(),
            instances: NetworkInstances::new(mem.nis.clone(), count, routed),
            lengths: Lengths::new(mem.nis.clone()),
            routing: Routing::new(mem, layout),
            peers: Peers::new(mem.peers.clone()),
            capacities: Capacities::new(
                (&mem.capacities, &mem.meters),
                &layout.capacities,
                longest_wait,
            ),
            users: FeatureUsers::default(),
            n3_routes: None,
        }
    }

    pub(crate) fn set_local(&self, n3: &[IpAddr]) {
        let config = &self.config[0];
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

    /// The interface towards a peer, as far as it is known.
    pub(crate) fn way_to(&self, local: IpAddr, remote: IpAddr) -> Option<u32> {
        let nexthop = self.peers.nexthop(Peer {
            remote,
            local,
            udp: false,
        })?;
        Some(self.routing.ifindex(nexthop))
    }

    /// An entry sends to a peer no more.
    pub(crate) fn release_peer(&mut self, peer: u32, grace: &mut Grace<Retired>) {
        if self.peers.release(peer) {
            grace.retire(Retired::Peer(peer));
        }
    }

    /// A peer that was kept is known no more.
    pub(crate) fn let_go_of_peer(&mut self, peer: u32, grace: &mut Grace<Retired>) {
        if self.peers.let_go(peer) {
            grace.retire(Retired::Peer(peer));
        }
    }
}
