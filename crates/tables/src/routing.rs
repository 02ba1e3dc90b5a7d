//! Next hops, routes and neighbours in the tables: what [`nexthop`] decides becomes visible.

use std::net::IpAddr;

use compiled::{NiId, NoRoom};
use ipnet::IpNet;

use crate::abi::{
    KIND_NEIGH4, KIND_NEIGH6, Line, NextHopLine, ROUTE_IN_POOL, ROUTE_LAST, ROUTE_NONE, RouteLine,
    RouteMap, from_words, words_of,
};
use crate::alloc::{Lines, Runs};
use crate::index::SlotKey;
use crate::layout::{Layout, Memory};
use crate::memory::View;
use nexthop::{Family, NextHop, ROUTES_MAX};

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
pub(crate) fn neighbour_key(ni: NiId, addr: IpAddr) -> SlotKey {
    match addr {
        IpAddr::V4(addr) => SlotKey::new(KIND_NEIGH4, ni.0, u32::from(addr).into()),
        IpAddr::V6(addr) => {
            let bits = u128::from(addr);
            let folded = ((bits >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bits as u64;
            SlotKey::new(KIND_NEIGH6, ni.0, folded)
        }
    }
}

/// Next hops, and the routes of network instances and policies that lead to them. The control thread writes their lines, and nobody
/// else does.
#[derive(Debug)]
pub(crate) struct Routing {
    hops: View<Line>,
    lines: View<Line>,
    nis: View<Line>,
    pub(crate) nexthops: Lines,
    pub(crate) routes: Runs,
}

/// Places of a list of routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRun {
    pub(crate) first: u32,
    pub(crate) len: usize,
}

impl Routing {
    pub(crate) fn new(mem: &Memory, layout: &Layout) -> Self {
        let hop = NextHop::Unresolved {
            ifindex: 0,
            mtu: u16::MAX,
        };
        // Line 0, for peers that nobody has looked at: the kernel's own routes decide.
        mem.nexthops[0].fill(words_of(&nexthop_line(&hop)));
        Self {
            hops: mem.nexthops.clone(),
            lines: mem.routes.clone(),
            nis: mem.nis.clone(),
            nexthops: Lines::new("nexthops", 1, layout.nexthops),
            routes: Runs::new("routes", 1, layout.routes),
        }
    }

    /// `None`: there is no line for it.
    pub(crate) fn alloc_nexthop(&mut self, hop: &NextHop) -> Option<u32> {
        let index = self.nexthops.take()?;
        self.hops[index as usize].fill(words_of(&nexthop_line(hop)));
        Some(index)
    }

    /// Whether the kernel's own routes decide for each packet of a next hop.
    pub(crate) fn is_fib(&self, index: u32) -> bool {
        self.hops[index as usize].load(0) as u32 == state::FIB
    }

    /// The interface that a next hop leads to.
    pub(crate) fn ifindex(&self, index: u32) -> u32 {
        let line: NextHopLine = from_words(self.hops[index as usize].words());
        line.ifindex
    }

    fn routes_word(&self, ni: NiId) -> Result<u64, NoRoom> {
        let line = self.nis.get(usize::from(ni.0));
        Ok(line.ok_or(NoRoom::of("nis"))?.load(0))
    }

    /// Places of the list at `first`: its map and the routes.
    fn route_run(&self, first: u32) -> usize {
        let map: RouteMap = from_words(self.lines[first as usize].words());
        if map.flags & ROUTE_LAST != 0 {
            return 1;
        }
        let routes = self.lines[first as usize + 1..].iter().take(ROUTES_MAX);
        let is_last = |line: &Line| {
            let route: RouteLine = from_words(line.words());
            route.flags & ROUTE_LAST != 0
        };
        routes.take_while(|line| !is_last(line)).count() + 2
    }

    /// Whether lists should come back before another one is taken.
    pub(crate) fn is_half_full(&self) -> bool {
        self.routes.used() * 2 > self.routes.capacity()
    }

    /// Packets go by these routes from now on. The list that is reached no more; `in_pool`: a route leads to part of a pool.
    pub(crate) fn set_ni_routes(
        &mut self,
        ni: NiId,
        family: Family,
        routes: &[(IpNet, u32)],
        in_pool: impl Fn(IpNet) -> bool,
    ) -> Result<Option<RouteRun>, NoRoom> {
        let word = self.routes_word(ni)?;
        let mut first = 0;
        if !routes.is_empty() {
            let lines = route_lines(routes, in_pool);
            first = self.routes.take(lines.len()).ok_or(NoRoom::of("routes"))?;
            for (to, words) in self.lines[first as usize..].iter().zip(lines) {
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
        self.nis[usize::from(ni.0)].publish(0, new);
        let former = (old != 0).then(|| RouteRun {
            first: old,
            len: self.route_run(old),
        });
        Ok(former)
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
