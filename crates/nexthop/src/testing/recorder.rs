//! Tables that only remember, and that complain about misuse.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use compiled::{NiId, NoRoom};
use ipnet::IpNet;

use crate::{Family, NextHop, NextHopTables, Peer, PeerChange, RouteView};

/// The one fake of [`NextHopTables`].
#[derive(Debug, Default)]
pub struct Recorder {
    hops: BTreeMap<u32, NextHop>,
    next: u32,
    routes: BTreeMap<(u16, bool), Vec<(IpNet, u32)>>,
    neighbours: BTreeMap<(u16, IpAddr), u32>,
    peers: BTreeMap<Peer, u32>,
    /// To be taken.
    pub peer_changes: Vec<PeerChange>,
    /// Calls that changed something that packets see.
    pub stores: usize,
    /// As last told.
    pub n3_routes: Arc<RouteView>,
    /// Of interfaces of network instances.
    pub addresses: BTreeMap<u16, (Option<Ipv4Addr>, Option<Ipv6Addr>)>,
    /// Pools of every network instance.
    pub pools: Vec<IpNet>,
    /// Refuse what needs room.
    pub full: bool,
}

impl Recorder {
    /// Where a packet of a network instance goes, found as the pipeline finds it.
    pub fn resolve(&self, ni: u16, to: IpAddr) -> NextHop {
        let list = self.routes.get(&(ni, to.is_ipv4()));
        let found = list.and_then(|list| list.iter().find(|(net, _)| net.contains(&to)));
        let hop = found.map_or(NextHop::None, |(_, index)| self.hops[index]);
        match (hop, self.neighbours.get(&(ni, to))) {
            (NextHop::OnLink { .. }, Some(index)) => self.hops[index],
            (hop, _) => hop,
        }
    }

    /// The next hop of packets to a gNB.
    pub fn peer(&self, peer: Peer) -> Option<NextHop> {
        self.peers.get(&peer).map(|index| self.hops[index])
    }

    /// Number of routes.
    pub fn routes(&self, ni: u16, family: Family) -> usize {
        self.routes
            .get(&(ni, family == Family::V4))
            .map_or(0, Vec::len)
    }

    /// A session sends to this gNB.
    pub fn add_peer(&mut self, peer: Peer) {
        self.peer_changes.push(PeerChange::Added(peer));
    }

    /// None does any more.
    pub fn remove_peer(&mut self, peer: Peer) {
        self.peers.remove(&peer);
        self.peer_changes.push(PeerChange::Removed(peer));
    }

    fn named(&self) -> BTreeSet<u32> {
        let routes = self.routes.values().flatten().map(|(_, index)| *index);
        routes
            .chain(self.neighbours.values().copied())
            .chain(self.peers.values().copied())
            .collect()
    }

    /// Everything allocated is named somewhere, and the other way round.
    pub fn assert_no_leak(&self) {
        assert_eq!(self.named(), self.hops.keys().copied().collect());
    }

    fn room(&self) -> Result<(), NoRoom> {
        if self.full {
            Err(NoRoom::of("nexthops"))
        } else {
            Ok(())
        }
    }

    fn assert_allocated(&self, index: u32) {
        assert!(
            self.hops.contains_key(&index),
            "index {index} is not allocated"
        );
    }
}

impl NextHopTables for Recorder {
    fn alloc_nexthop(&mut self, hop: &NextHop) -> Result<u32, NoRoom> {
        self.room()?;
        self.next += 1;
        assert!(
            !self.hops.values().any(|other| other == hop),
            "{hop:?} exists already"
        );
        self.hops.insert(self.next, *hop);
        Ok(self.next)
    }

    fn free_nexthop(&mut self, index: u32) {
        assert!(
            !self.named().contains(&index),
            "index {index} freed while packets can meet it"
        );
        assert!(
            self.hops.remove(&index).is_some(),
            "index {index} freed twice"
        );
    }

    fn swap_peer_nexthop(&mut self, peer: Peer, index: u32) {
        self.assert_allocated(index);
        self.stores += 1;
        self.peers.insert(peer, index);
    }

    fn set_ni_routes(
        &mut self,
        ni: NiId,
        family: Family,
        routes: &[(IpNet, u32)],
    ) -> Result<(), NoRoom> {
        self.room()?;
        assert!(routes.len() <= 32);
        assert!(
            routes
                .windows(2)
                .all(|pair| pair[0].0.prefix_len() >= pair[1].0.prefix_len())
        );
        routes
            .iter()
            .for_each(|(_, index)| self.assert_allocated(*index));
        self.stores += 1;
        self.routes
            .insert((ni.0, family == Family::V4), routes.to_vec());
        Ok(())
    }

    fn says_more_than_pool(&self, _: NiId, route: IpNet) -> bool {
        let within = |pool: &IpNet| pool.contains(&route) && *pool != route;
        self.pools.iter().any(within)
    }

    fn set_ni_addresses(&mut self, ni: NiId, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>) {
        self.addresses.insert(ni.0, (v4, v6));
    }

    fn set_neighbour(&mut self, ni: NiId, addr: IpAddr, index: Option<u32>) -> Result<(), NoRoom> {
        self.stores += 1;
        match index {
            Some(index) => {
                self.room()?;
                self.assert_allocated(index);
                self.neighbours.insert((ni.0, addr), index);
            }
            None => {
                self.neighbours.remove(&(ni.0, addr));
            }
        }
        Ok(())
    }

    fn set_n3_routes(&mut self, routes: &Arc<RouteView>) {
        self.n3_routes = Arc::clone(routes);
    }

    fn take_peer_changes(&mut self, into: &mut Vec<PeerChange>) {
        into.append(&mut self.peer_changes);
    }
}
