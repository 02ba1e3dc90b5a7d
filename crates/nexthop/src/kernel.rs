//! The kernel's links, addresses, routes and neighbours, as last heard.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;

/// Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

/// Tag that a VLAN device adds to frames of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vlan {
    /// The device below.
    pub parent: u32,
    /// VLAN ID.
    pub id: u16,
    /// 0x8100 or 0x88a8, host order.
    pub tpid: u16,
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number.
    pub ifindex: u32,
    /// Name, for logs.
    pub name: String,
    /// `None` where the device has no Ethernet address.
    pub mac: Option<Mac>,
    /// Largest IP packet.
    pub mtu: u32,
    /// Administratively up. The kernel ignores routes over a link that is down.
    pub up: bool,
    /// The cable is in. Without it routes stay, and packets are lost.
    pub carrier: bool,
    /// Tag of a VLAN device.
    pub vlan: Option<Vlan>,
}

impl Link {
    /// Packets can leave.
    pub fn usable(&self) -> bool {
        self.up && self.carrier
    }
}

/// An address of this host with the prefix it was configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Device.
    pub ifindex: u32,
    /// Not truncated.
    pub net: IpNet,
}

/// Type of a route (`rtm_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Forward.
    Unicast,
    /// To this host, anycast addresses included.
    Local,
    /// Broadcast and multicast: never forwarded.
    Broadcast,
    /// Blackhole, unreachable, prohibit.
    Prohibit,
    /// End the search in this table: as if there were no route.
    Throw,
}

/// One way of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteHop {
    /// Device.
    pub ifindex: u32,
    /// `None` for a connected network. May be IPv6 for an IPv4 route.
    pub gateway: Option<IpAddr>,
}

/// A route with a TOS of zero; others are not mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Routing table.
    pub table: u32,
    /// Truncated.
    pub prefix: IpNet,
    /// Its type.
    pub kind: RouteKind,
    /// The lowest wins.
    pub metric: u32,
    /// `RTAX_MTU`.
    pub mtu: Option<u32>,
    /// Empty for kinds that need none.
    pub hops: Vec<RouteHop>,
}

/// Way in which a route arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowAdded {
    /// Beside others of its prefix and metric.
    Beside,
    /// In place of the one with its prefix and metric.
    Replacing,
}

/// Someone on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Device.
    pub ifindex: u32,
    /// Its address.
    pub addr: IpAddr,
    /// While the kernel holds it valid, stale included.
    pub mac: Option<Mac>,
    /// Set by the operator (`NUD_PERMANENT`, `NUD_NOARP`); never probed.
    pub is_static: bool,
    /// The kernel has asked for it in vain.
    pub is_failed: bool,
}

/// State of the kernel at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All devices.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Routes of all tables.
    pub routes: Vec<Route>,
    /// All neighbours.
    pub neighbours: Vec<Neighbour>,
}

/// One thing that the kernel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelChange {
    /// Forget what you know: this is all. Sent at the start and after messages were lost.
    All(Box<Snapshot>),
    /// These are all routes.
    Routes(Vec<Route>),
    /// A link appeared or changed.
    Link(Link),
    /// A link is gone, and with it what hangs on it.
    LinkGone(u32),
    /// An address appeared.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A route appeared.
    Route(Route, HowAdded),
    /// A route is gone.
    RouteGone(Route),
    /// Something changed that may have changed routes (next hop objects).
    RoutesUncertain,
    /// A neighbour appeared or changed.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone {
        /// Device.
        ifindex: u32,
        /// Its address.
        addr: IpAddr,
    },
}

/// Which conclusions a change puts in question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    pub(super) topology: bool,
    pub(super) neighbours: bool,
}

/// The mirror.
#[derive(Debug, Default)]
pub struct Kernel {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<Address>,
    /// By table and prefix; lowest metric first, then as they came.
    routes: BTreeMap<u32, HashMap<IpNet, Vec<Route>>>,
    neighbours: BTreeMap<(u32, IpAddr), Neighbour>,
    /// The routes may differ from the kernel's.
    uncertain: bool,
}

impl Kernel {
    /// A device.
    pub fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.get(&ifindex)
    }

    /// All devices.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// All neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.values()
    }

    /// All addresses of this host.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> + Clone {
        self.addresses.iter()
    }

    /// Routes of one table, those of one prefix together.
    pub fn routes(&self, table: u32) -> impl Iterator<Item = (&IpNet, &[Route])> {
        let table = self.routes.get(&table).into_iter().flatten();
        table.map(|(prefix, routes)| (prefix, routes.as_slice()))
    }

    /// Routes of all tables.
    pub fn all_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes
            .values()
            .flat_map(|table| table.values())
            .flatten()
    }

    /// The address of a neighbour, if it is resolved.
    pub(super) fn mac_of(&self, ifindex: u32, addr: IpAddr) -> Option<Mac> {
        self.neighbours.get(&(ifindex, addr))?.mac
    }

    pub(super) fn is_static(&self, ifindex: u32, addr: IpAddr) -> bool {
        self.neighbours
            .get(&(ifindex, addr))
            .is_some_and(|neighbour| neighbour.is_static)
    }

    pub(super) fn is_failed(&self, ifindex: u32, addr: IpAddr) -> bool {
        self.neighbours
            .get(&(ifindex, addr))
            .is_some_and(|neighbour| neighbour.is_failed)
    }

    /// Whether the routes should be dumped again; asked once per doubt.
    pub(super) fn take_uncertain(&mut self) -> bool {
        std::mem::take(&mut self.uncertain)
    }

    pub(super) fn apply(&mut self, change: KernelChange) -> Effect {
        let topology = |topology| Effect {
            topology,
            neighbours: false,
        };
        let neighbours = |neighbours| Effect {
            topology: false,
            neighbours,
        };
        match change {
            KernelChange::All(snapshot) => {
                self.replace(*snapshot);
                Effect {
                    topology: true,
                    neighbours: true,
                }
            }
            KernelChange::Routes(routes) => topology(self.replace_routes(routes)),
            KernelChange::Link(link) => topology(self.set_link(link)),
            KernelChange::LinkGone(ifindex) => topology(self.remove_link(ifindex)),
            KernelChange::Address(address) => topology(self.addresses.insert(address)),
            KernelChange::AddressGone(address) => {
                // Routes that prefer this source address go with it, unannounced.
                self.uncertain = true;
                topology(self.addresses.remove(&address))
            }
            KernelChange::Route(route, how) => topology(self.add_route(route, how)),
            KernelChange::RouteGone(route) => topology(self.remove_route(&route)),
            KernelChange::RoutesUncertain => {
                self.uncertain = true;
                topology(false)
            }
            KernelChange::Neighbour(neighbour) => {
                let key = (neighbour.ifindex, neighbour.addr);
                neighbours(self.neighbours.insert(key, neighbour) != Some(neighbour))
            }
            KernelChange::NeighbourGone { ifindex, addr } => {
                neighbours(self.neighbours.remove(&(ifindex, addr)).is_some())
            }
        }
    }

    fn replace(&mut self, all: Snapshot) {
        self.links = all
            .links
            .into_iter()
            .map(|link| (link.ifindex, link))
            .collect();
        self.addresses = all.addresses.into_iter().collect();
        self.replace_routes(all.routes);
        self.neighbours = all
            .neighbours
            .into_iter()
            .map(|n| ((n.ifindex, n.addr), n))
            .collect();
        self.uncertain = false;
    }

    fn replace_routes(&mut self, routes: Vec<Route>) -> bool {
        let old = std::mem::take(&mut self.routes);
        for route in routes {
            self.insert_route(route);
        }
        old != self.routes
    }

    fn set_link(&mut self, link: Link) -> bool {
        let old = self.links.get(&link.ifindex);
        if old == Some(&link) {
            return false;
        }
        // A link that goes down takes routes with it; of IPv4 routes the kernel does not say so.
        if old.is_some_and(|old| old.up) && !link.up {
            self.uncertain = true;
        }
        self.links.insert(link.ifindex, link);
        true
    }

    fn remove_link(&mut self, ifindex: u32) -> bool {
        self.uncertain = true;
        self.addresses.retain(|address| address.ifindex != ifindex);
        self.neighbours.retain(|key, _| key.0 != ifindex);
        self.links.remove(&ifindex).is_some()
    }

    /// As the kernel lists them: by metric, a newcomer behind its equals.
    fn insert_route(&mut self, route: Route) {
        let routes = self
            .routes
            .entry(route.table)
            .or_default()
            .entry(route.prefix)
            .or_default();
        let at = routes.partition_point(|other| other.metric <= route.metric);
        routes.insert(at, route);
    }

    fn add_route(&mut self, route: Route, how: HowAdded) -> bool {
        let routes = self
            .routes
            .entry(route.table)
            .or_default()
            .entry(route.prefix)
            .or_default();
        if routes.contains(&route) && how == HowAdded::Beside {
            return false;
        }
        let metric = route.metric;
        let mut equals = routes.iter_mut().filter(|other| other.metric == metric);
        match (equals.next(), how) {
            (Some(old), HowAdded::Replacing) => {
                // Which one of several was meant, the message does not say.
                self.uncertain |= equals.next().is_some();
                *old = route;
            }
            (Some(_), HowAdded::Beside) => {
                // Before or behind its equals, or (IPv6) merged with them.
                self.uncertain = true;
                self.insert_route(route);
            }
            (None, _) => self.insert_route(route),
        }
        true
    }

    fn remove_route(&mut self, route: &Route) -> bool {
        let Some(table) = self.routes.get_mut(&route.table) else {
            return false;
        };
        let Some(routes) = table.get_mut(&route.prefix) else {
            return false;
        };
        let exact = routes.iter().position(|other| other == route);
        let similar = || routes.iter().position(|other| other.metric == route.metric);
        let Some(at) = exact.or_else(similar) else {
            return false;
        };
        // One of several ways of a route, perhaps.
        self.uncertain |= exact.is_none();
        routes.remove(at);
        if routes.is_empty() {
            table.remove(&route.prefix);
        }
        true
    }
}
