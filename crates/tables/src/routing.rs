//! Next hops, routes and neighbours in the tables: what [`nexthop`] decides becomes visible.

use std::net::IpAddr;

use compiled::{NiId, NoRoom};
use ipnet::IpNet;

use crate::abi::{
    Features, KIND_NEIGH4, KIND_NEIGH6, Line, NextHopLine, ROUTE_IN_POOL, ROUTE_LAST, ROUTE_NONE,
    RouteLine, RouteMap, from_words, words_of,
};
use crate::index::SlotKey;
use crate::store::{Retired, Store};
use nexthop::{Family, NextHop, Peer, ROUTES_MAX};

/// `enum tp_nh_state`
mod state {
    pub(super) const NONE: u32 = 0;
    pub(super) const RESOLVED: u32 = 1;
    pub(super) const UNRESOLVED: u32 = 2;
    pub(super) const ONLINK: u32 = 3;
    pub(super) const FIB: u32 = 4;
    pub(super) const LOCAL: u32 = 5;
    pub(super) const PROHIBIT: u32 = 6;
    pub(super) const FAILED: u32 = 7;
    pub(super) const POLICY: u32 = 8;
}

fn octets(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&addr.octets());
            octets
        }
        IpAddr::V6(addr) => addr.octets(),
    }
}

fn nexthop_line(hop: &NextHop) -> NextHopLine {
    let line = |state| NextHopLine {
        state,
        ..NextHopLine::default()
    };
    match *hop {
        NextHop::None => line(state::NONE),
        NextHop::Resolved {
            port,
            ifindex,
            mtu,
            l2,
            addr,
        } => {
            let mut bytes = [0; 24];
            let header = l2.as_bytes();
            bytes[..header.len()].copy_from_slice(header);
            NextHopLine {
                port,
                ifindex,
                mtu,
                l2_len: header.len() as u8,
                l2: bytes,
                addr: octets(addr),
                ..line(state::RESOLVED)
            }
        }
        NextHop::Unresolved { ifindex, mtu } => NextHopLine {
            ifindex,
            mtu,
            ..line(state::UNRESOLVED)
        },
        NextHop::OnLink { port, ifindex, mtu } => NextHopLine {
            port,
            ifindex,
            mtu,
            ..line(state::ONLINK)
        },
        NextHop::Fib => line(state::FIB),
        NextHop::Local => line(state::LOCAL),
        NextHop::Prohibit => line(state::PROHIBIT),
        NextHop::Failed => line(state::FAILED),
        NextHop::Closed => line(state::POLICY),
    }
}

/// Key of an on-link neighbour. IPv6 addresses are folded (`tp_fold6`); the next hop has the whole.
fn neighbour_key(ni: NiId, addr: IpAddr) -> SlotKey {
    match addr {
        IpAddr::V4(addr) => SlotKey::new(KIND_NEIGH4, ni.0, u32::from(addr).into()),
        IpAddr::V6(addr) => {
            let bits = u128::from(addr);
            let folded = ((bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bits as u64;
            SlotKey::new(KIND_NEIGH6, ni.0, folded)
        }
    }
}

impl Store {
    /// Line 0, for peers that nobody has looked at: the kernel's own routes decide.
    pub(crate) fn fill_first_nexthop(&self) {
        let hop = NextHop::Unresolved {
            ifindex: 0,
            mtu: u16::MAX,
        };
        self.mem.nexthops[0].fill(words_of(&nexthop_line(&hop)));
    }

    pub(crate) fn alloc_nexthop(&mut self, hop: &NextHop) -> Result<u32, NoRoom> {
        let mut index = self.nexthops.take();
        if index.is_none() {
            self.wait();
            index = self.nexthops.take();
        }
        let index = index.ok_or(NoRoom::of("nexthops"))?;
        self.mem.nexthops[index as usize].fill(words_of(&nexthop_line(hop)));
        if *hop == NextHop::Fib {
            self.users.join(Features::FIB);
        }
        Ok(index)
    }

    pub(crate) fn free_nexthop(&mut self, index: u32) {
        let state = self.mem.nexthops[index as usize].load(0) as u32;
        if state == state::FIB {
            self.users.leave(Features::FIB);
        }
        self.grace.retire(Retired::NextHop(index));
    }

    pub(crate) fn swap_peer_nexthop(&mut self, peer: Peer, index: u32) {
        self.peers.set_nexthop(peer, index);
    }

    fn routes_word(&self, ni: NiId) -> Result<u64, NoRoom> {
        let line = self
            .mem
            .nis
            .get(usize::from(ni.0))
            .ok_or(NoRoom::of("nis"))?;
        Ok(line.load(0))
    }

    /// Places of the list at `first`: its map and the routes.
    fn route_run(&self, first: u32) -> usize {
        let map: RouteMap = from_words(self.mem.routes[first as usize].words());
        if map.flags & ROUTE_LAST != 0 {
            return 1;
        }
        let routes = self.mem.routes[first as usize + 1..]
            .iter()
            .take(ROUTES_MAX);
        let is_last = |line: &Line| {
            let route: RouteLine = from_words(line.words());
            route.flags & ROUTE_LAST != 0
        };
        routes.take_while(|line| !is_last(line)).count() + 2
    }

    pub(crate) fn set_ni_routes(
        &mut self,
        ni: NiId,
        family: Family,
        routes: &[(IpNet, u32)],
    ) -> Result<(), NoRoom> {
        let word = self.routes_word(ni)?;
        let mut first = 0;
        if !routes.is_empty() {
            if !self.grace.is_empty() && self.routes.used() * 2 > self.routes.capacity() {
                self.wait();
            }
            let lines = route_lines(routes, |net| self.says_more_than_pool(ni, net));
            first = self.routes.take(lines.len()).ok_or(NoRoom::of("routes"))?;
            for (to, words) in self.mem.routes[first as usize..].iter().zip(lines) {
                to.fill(words);
            }
        }
        let (old, new) = match family {
            Family::V4 => (word as u32, word & !0xffff_ffff | u64::from(first)),
            Family::V6 => (
                (word >> 32) as u32,
                word & 0xffff_ffff | u64::from(first) << 32,
            ),
        };
        self.mem.nis[usize::from(ni.0)].publish(0, new);
        if old != 0 {
            let len = self.route_run(old);
            self.grace.retire(Retired::Routes { first: old, len });
        }
        Ok(())
    }

    pub(crate) fn set_neighbour(
        &mut self,
        ni: NiId,
        addr: IpAddr,
        index: Option<u32>,
    ) -> Result<(), NoRoom> {
        let key = neighbour_key(ni, addr);
        let buckets = &mut self.index.buckets;
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
}

/// The list of `struct tp_ni`: the map with the default route, then the others in the order given.
fn route_lines(routes: &[(IpNet, u32)], in_pool: impl Fn(IpNet) -> bool) -> Vec<[u64; 8]> {
    let mut map = RouteMap {
        flags: ROUTE_NONE,
        ..RouteMap::default()
    };
    let mut lines = Vec::with_capacity(routes.len());
    for (net, nexthop) in routes {
        if net.prefix_len() == 0 {
            map.nexthop = *nexthop;
            map.flags &= !ROUTE_NONE;
            continue;
        }
        let line = RouteLine {
            addr: octets(net.network()),
            plen: net.prefix_len(),
            nexthop: *nexthop,
            flags: if in_pool(*net) { ROUTE_IN_POOL } else { 0 },
            ..RouteLine::default()
        };
        let first = usize::from(line.addr[0]);
        let beyond = first + (256 >> line.plen.min(8));
        for octet in first..beyond {
            map.covered[octet / 64] |= 1 << (octet % 64);
        }
        lines.push(line);
    }
    match lines.last_mut() {
        Some(last) => last.flags |= ROUTE_LAST,
        None => map.flags |= ROUTE_LAST,
    }
    std::iter::once(words_of(&map))
        .chain(lines.iter().map(words_of))
        .collect()
}
