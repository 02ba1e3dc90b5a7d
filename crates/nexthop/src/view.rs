//! One routing table as packets of users, or to gNBs, see it.

use std::collections::{BTreeSet, HashMap};
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
        // The kernel looks here first, so the longer prefixes of `table` do not count inside.
        let wide: Vec<IpNet> = first
            .iter()
            .map(|(net, _)| *net)
            .filter(|net| net.prefix_len() < net.max_prefix_len())
            .collect();
        let mut routes = HashMap::new();
        for (prefix, same) in kernel.routes(table) {
            let hidden = wide.iter().any(|block| block.contains(prefix));
            if let Some(target) = best(kernel, same).filter(|_| !hidden) {
                routes.insert(*prefix, target);
            }
        }
        // Local counts more than broadcast for one address.
        first.sort_by_key(|(_, target)| *target == Target::Local);
        routes.extend(first);
        let lens = [Family::V4, Family::V6].map(|family| {
            let lens: BTreeSet<u8> = routes
                .keys()
                .filter(|net| is(net, family))
                .map(IpNet::prefix_len)
                .collect();
            lens.into_iter().rev().collect()
        });
        Self {
            routes,
            lens,
            restricted: BTreeSet::new(),
        }
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
        let family = if addr.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        };
        self.lens[family as usize].iter().find_map(|&len| {
            let net = IpNet::new(addr, len).ok()?;
            self.routes.get(&net.trunc())
        })
    }

    /// Longest prefix first, without routes that say what the next shorter one says, unless they are in a pool of UE
    /// addresses, where shorter ones do not count. Beyond
    /// [`ROUTES_MAX`] the longest stay and the rest becomes a default route to the FIB, so that
    /// whatever is found here is the longest match.
    pub(super) fn list(
        &self,
        family: Family,
        in_pool: impl Fn(IpNet) -> bool,
    ) -> Vec<(IpNet, Option<Target>)> {
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
            list.truncate(ROUTES_MAX - 1);
            list.push((default_route(family), Some(Target::Overflow)));
        }
        list
    }
}

/// The route of one prefix that the kernel would take, if any is usable.
fn best(kernel: &Kernel, same: &[Route]) -> Option<Target> {
    same.iter().find_map(|route| match route.kind {
        // Are in `first` already, whatever their table.
        RouteKind::Local | RouteKind::Broadcast => None,
        RouteKind::Prohibit => Some(Target::Prohibit),
        RouteKind::Throw => Some(Target::Unreachable),
        RouteKind::Unicast => {
            let up = |ifindex| kernel.link(ifindex).is_some_and(|link| link.up);
            let usable = |ifindex| kernel.link(ifindex).is_some_and(|link| link.usable());
            let hops = || route.hops.iter();
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

fn default_route(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}
