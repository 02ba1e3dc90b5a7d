//! One routing table as packets of users, or to gNBs, see it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::kernel::{Kernel, Route, RouteKind};
use crate::{Family, ROUTES_MAX};

/// Target of a route, neighbours aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This host.
    Local,
    /// Refused.
    Prohibit,
    /// As if there were no route.
    Unreachable,
    /// Nowhere, as a forwarding policy without fallback has no way.
    Closed,
    /// More routes than the table holds: the FIB knows.
    Overflow,
    /// Out of a device.
    Via {
        /// Device.
        ifindex: u32,
        /// `None`: the destination is the neighbour.
        gateway: Option<IpAddr>,
        /// `RTAX_MTU`
        mtu: Option<u32>,
    },
}

/// Blocks that no route leads out of, and what a packet to them meets.
fn reserved() -> [(IpNet, Target); 6] {
    let v4 = |addr, len| IpNet::V4(Ipv4Net::new_assert(addr, len));
    let v6 = |addr, len| IpNet::V6(Ipv6Net::new_assert(addr, len));
    [
        // "This network" (RFC 1122, 3.2.1.3).
        (v4(Ipv4Addr::UNSPECIFIED, 8), Target::Prohibit),
        (v4(Ipv4Addr::new(127, 0, 0, 0), 8), Target::Local),
        // Multicast, class E and the limited broadcast.
        (v4(Ipv4Addr::new(224, 0, 0, 0), 3), Target::Prohibit),
        // Unspecified and loopback.
        (v6(Ipv6Addr::UNSPECIFIED, 127), Target::Local),
        // Link-local packets are not forwarded (RFC 4291, 2.5.6).
        (
            v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
            Target::Prohibit,
        ),
        (
            v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
            Target::Prohibit,
        ),
    ]
}

/// Longest-prefix match over a routing table and the local addresses.
#[derive(Debug, Default)]
pub struct RouteView {
    routes: HashMap<IpNet, Target>,
    /// Reserved blocks and what is local: whatever a table says.
    fixed: HashSet<IpNet>,
    /// Prefix lengths that occur, longest first, by `Family as usize`.
    lens: [Vec<u8>; 2],
    restricted: BTreeSet<u32>,
}

impl RouteView {
    /// `table`, behind the reserved blocks and what is local.
    pub(super) fn of(kernel: &Kernel, table: u32) -> Self {
        let reserved = reserved();
        let is_reserved = |net: &IpNet| reserved.iter().any(|(block, _)| block.contains(net));
        let mut first: Vec<(IpNet, Target)> = reserved.to_vec();
        for route in kernel.all_routes() {
            let target = match route.kind {
                RouteKind::Local => Target::Local,
                RouteKind::Broadcast => Target::Prohibit,
                _ => continue,
            };
            if !is_reserved(&route.prefix) {
                first.push((route.prefix, target));
            }
        }
        for address in kernel.addresses() {
            let host = IpNet::from(address.net.addr());
            if !is_reserved(&host) {
                first.push((host, Target::Local));
            }
        }
        // Local counts more than broadcast for one address.
        first.sort_by_key(|(_, target)| *target == Target::Local);
        let mut view = Self {
            fixed: first.iter().map(|(net, _)| *net).collect(),
            ..Self::default()
        };
        let routes = view.routes_of(kernel, table, |_| true);
        view.set(routes.into_iter().chain(first));
        view
    }

    /// Of these routes alone.
    pub(super) fn new(routes: impl IntoIterator<Item = (IpNet, Target)>) -> Self {
        let mut view = Self::default();
        view.set(routes);
        view
    }

    fn set(&mut self, routes: impl IntoIterator<Item = (IpNet, Target)>) {
        self.routes = routes.into_iter().collect();
        self.lens = [Family::V4, Family::V6].map(|family| {
            let of_family = self.routes.keys().filter(|net| is(net, family));
            let lens: BTreeSet<u8> = of_family.map(IpNet::prefix_len).collect();
            lens.into_iter().rev().collect()
        });
    }

    /// These routes, where what is reserved or local is as in another view.
    pub(super) fn with_fixed_of(mut self, other: &Self) -> Self {
        self.fixed.clone_from(&other.fixed);
        self
    }

    /// Routes of a table `through` some devices, without those for reserved and local addresses, which the kernel does not look up
    /// there.
    pub(super) fn routes_of(
        &self,
        kernel: &Kernel,
        table: u32,
        through: impl Fn(u32) -> bool,
    ) -> Vec<(IpNet, Target)> {
        // The kernel looks there first, so that longer prefixes of the table do not count inside.
        let wide = self
            .fixed
            .iter()
            .filter(|net| net.prefix_len() < net.max_prefix_len());
        let wide: Vec<IpNet> = wide.copied().collect();
        let routes = kernel.routes(table).filter_map(|(prefix, same)| {
            let hidden = wide.iter().any(|block| block.contains(prefix));
            let target = best(kernel, same, &through).filter(|_| !hidden)?;
            Some((*prefix, target))
        });
        routes.collect()
    }

    /// All of them.
    pub(super) fn routes(&self) -> impl Iterator<Item = (&IpNet, &Target)> {
        self.routes.iter()
    }

    /// Whether it is reserved or local.
    pub(super) fn is_fixed(&self, net: &IpNet) -> bool {
        self.fixed.contains(net)
    }

    /// Refuse what leads to targets that are not `allowed`.
    pub(super) fn restrict(&mut self, allowed: impl Fn(&Target) -> bool) {
        for target in self.routes.values_mut().filter(|target| !allowed(target)) {
            if let Target::Via { ifindex, .. } = target {
                self.restricted.insert(*ifindex);
            }
            *target = Target::Prohibit;
        }
    }

    /// Devices that [`restrict`](Self::restrict) refused.
    pub(super) fn restricted_links(&self) -> impl Iterator<Item = u32> {
        self.restricted.iter().copied()
    }

    /// The longest match.
    pub fn lookup(&self, addr: IpAddr) -> Option<&Target> {
        self.lens[Family::of(addr) as usize]
            .iter()
            .find_map(|&len| {
                let net = IpNet::new(addr, len).ok()?;
                self.routes.get(&net.trunc())
            })
    }

    /// Target of a whole prefix, unless longer ones say otherwise.
    pub(super) fn around(&self, net: IpNet) -> Option<&Target> {
        let lens = &self.lens[Family::of(net.addr()) as usize];
        let mut wider = lens.iter().filter(|&&len| len <= net.prefix_len());
        wider.find_map(|&len| self.routes.get(&IpNet::new(net.addr(), len).ok()?.trunc()))
    }

    /// Longest prefix first, without routes that say what the next shorter one says, unless they are in a pool of UE
    /// addresses, where shorter ones do not count. Beyond
    /// [`ROUTES_MAX`] the longest stay and the rest becomes a default route to the FIB, so that
    /// whatever is found here is the longest match. `None`: the rest has one that the FIB does not know.
    pub(super) fn list(
        &self,
        family: Family,
        in_pool: impl Fn(IpNet) -> bool,
        unknown_to_fib: impl Fn(&IpNet) -> bool,
    ) -> Option<Vec<(IpNet, Option<Target>)>> {
        let mut all: Vec<(&IpNet, &Target)> = self
            .routes
            .iter()
            .filter(|(net, _)| is(net, family))
            .collect();
        // A prefix comes before what it contains.
        all.sort_unstable_by_key(|(net, _)| (bits(net), net.prefix_len()));
        let mut around: Vec<(&IpNet, &Target)> = Vec::new();
        let mut list = Vec::new();
        for (net, target) in all {
            while around.last().is_some_and(|(outer, _)| !outer.contains(net)) {
                around.pop();
            }
            let said = around
                .last()
                .map_or(&Target::Unreachable, |(_, outer)| outer);
            if said != target || in_pool(*net) {
                list.push((*net, Some(target.clone())));
                around.push((net, target));
            }
        }
        list.sort_unstable_by_key(|(net, _)| (u8::MAX - net.prefix_len(), bits(net)));
        if list.len() > ROUTES_MAX {
            let mut rest = list.drain(ROUTES_MAX - 1..);
            if rest.any(|(net, _)| unknown_to_fib(&net)) {
                return None;
            }
            drop(rest);
            list.push((default_route(family), Some(Target::Overflow)));
        }
        Some(list)
    }
}

/// The route of one prefix that the kernel would take, if any is usable, of those `through` some devices.
fn best(kernel: &Kernel, same: &[Route], through: impl Fn(u32) -> bool) -> Option<Target> {
    same.iter().find_map(|route| match route.kind {
        // Are in `first` already, whatever their table.
        RouteKind::Local | RouteKind::Broadcast => None,
        RouteKind::Prohibit => Some(Target::Prohibit),
        RouteKind::Throw => Some(Target::Unreachable),
        RouteKind::Unicast => {
            let up = |ifindex| kernel.link(ifindex).is_some_and(|link| link.up);
            let usable = |ifindex| kernel.link(ifindex).is_some_and(|link| link.usable());
            let hops = || route.hops.iter().filter(|hop| through(hop.ifindex));
            let hop = hops()
                .find(|hop| usable(hop.ifindex))
                .or_else(|| hops().find(|hop| up(hop.ifindex)))?;
            Some(Target::Via {
                ifindex: hop.ifindex,
                gateway: hop.gateway,
                mtu: route.mtu,
            })
        }
    })
}

/// Sort key, within one family.
fn bits(net: &IpNet) -> u128 {
    match net {
        IpNet::V4(net) => u32::from(net.network()).into(),
        IpNet::V6(net) => net.network().into(),
    }
}

fn is(net: &IpNet, family: Family) -> bool {
    matches!(
        (net, family),
        (IpNet::V4(_), Family::V4) | (IpNet::V6(_), Family::V6)
    )
}

pub(super) fn default_route(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}
