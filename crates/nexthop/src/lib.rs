//! Next hops: what the kernel knows of links, addresses, routes and neighbours, turned into the
//! `tp_nexthop`, `tp_route` and neighbour tables that packets meet.
//!
//! Begin with [`NextHops`], which has no socket and no clock: [`KernelChange`]s go in, calls of [`NextHopTables`] and
//! [`Request`]s to the kernel come out. [`netlink`] supplies the changes and carries out the requests. What the model knows
//! of the kernel is in `kernel`, what one routing table says of a destination in `view`.
//!
//! Decisions that are not the kernel's:
//!
//! * Of the next hops of a multipath route the first that is usable takes all packets.
//! * Users reach neither this host (every local address is a `LOCAL` route of every network
//!   instance) nor link-local, multicast, loopback or class E destinations.
//! * A network instance that uses the main routing table only sends through its own interface
//!   (or a VLAN on it): routes of that table which lead elsewhere, to the management or radio
//!   network say, are not for users and become `PROHIBIT`. A network instance with a table of its
//!   own may send anywhere its table says.
//! * Policy rules are not followed: a network instance uses one table, local addresses come first.
//! * What a forwarding policy says counts for all destinations but local ones and addresses in pools, where its routes lead to
//!   a neighbour that is there. Elsewhere packets go its fallback ([`policy`]).
#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use compiled::{NiId, NoRoom};
use ipnet::IpNet;

mod kernel;
mod model;
pub mod netlink;
pub mod policy;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use kernel::{
    Address, HowAdded, Kernel, KernelChange, Link, Mac, Neighbour, Route, RouteHop, RouteKind,
    Snapshot, Vlan,
};
pub use model::NextHops;
pub use policy::{Fallback, Policy, PolicyState, Way};
pub use view::{RouteView, Target};

/// Routes of one family of one network instance; `TP_ROUTES_MAX`.
pub const ROUTES_MAX: usize = 32;

/// The main routing table, `RT_TABLE_MAIN`.
pub const TABLE_MAIN: u32 = 254;

/// Destinations on a connected network that are kept resolved although nothing but traffic asks for
/// them. Beyond it they are still forwarded, but the kernel may forget them when they fall silent,
/// and the first packet after that takes the slow path.
pub const ONLINK_KEPT_MAX: usize = 4096;

/// Ethernet header of a resolved next hop, EtherType of IPv4 (the pipeline rewrites it per family).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct L2 {
    len: u8,
    bytes: [u8; 18],
}

impl L2 {
    /// Header from the device's own address to the neighbour's; with a tag, 18 bytes.
    pub fn new(to: Mac, from: Mac, vlan: Option<Vlan>) -> Self {
        let mut bytes = [0; 18];
        bytes[..6].copy_from_slice(&to.0);
        bytes[6..12].copy_from_slice(&from.0);
        let mut len = 12;
        if let Some(vlan) = vlan {
            bytes[12..14].copy_from_slice(&vlan.tpid.to_be_bytes());
            bytes[14..16].copy_from_slice(&vlan.id.to_be_bytes());
            len = 16;
        }
        bytes[len..len + 2].copy_from_slice(&[0x08, 0x00]);
        Self {
            len: len as u8 + 2,
            bytes,
        }
    }

    /// 14 or 18 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Content of one `tp_nexthop`. Equal next hops share one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHop {
    /// No route, or one whose link has no carrier.
    None,
    /// The header is known.
    Resolved {
        /// Devmap slot.
        port: u32,
        /// Number of the device that IP sees (the VLAN's, where there is one).
        ifindex: u32,
        /// Largest IP packet.
        mtu: u16,
        /// Header.
        l2: L2,
        /// The neighbour: `tp_nexthop.addr`.
        addr: IpAddr,
    },
    /// The kernel sends, through the slow path: the neighbour is not resolved yet, or the device
    /// is none of the data ports.
    Unresolved {
        /// Interface by which the slow path sends.
        ifindex: u32,
        /// Largest IP packet.
        mtu: u16,
    },
    /// The neighbour does not answer. The kernel is asked to look for it again and again.
    Failed,
    /// The way of a forwarding policy is not there at present, and it has no fallback.
    Closed,
    /// The destination itself is the neighbour.
    OnLink {
        /// Devmap slot.
        port: u32,
        /// Interface by which the slow path sends if the neighbour is not in the table.
        ifindex: u32,
        /// Largest IP packet.
        mtu: u16,
    },
    /// Ask the kernel's FIB.
    Fib,
    /// This host.
    Local,
    /// Blackhole, prohibit, unreachable, or not for users.
    Prohibit,
}

/// A remote tunnel end seen from one of our addresses: a `tp_peer`. Both are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// The gNB.
    pub remote: IpAddr,
    /// Our N3 address.
    pub local: IpAddr,
    /// It gets UDP without GTP-U.
    pub udp: bool,
}

/// A peer came into use or went out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerChange {
    /// The first entry uses it.
    Added(Peer),
    /// No entry uses it any more, and no packet can be looking at it.
    Removed(Peer),
}

/// Address family of a route list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// `tp_ni.routes4`
    V4,
    /// `tp_ni.routes6`
    V6,
}

impl Family {
    /// Of an address.
    pub fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// The tables that this crate fills; implemented by `tables::Tables`.
///
/// Every call makes one change visible to packets by one store. Indices come from
/// [`alloc_nexthop`](Self::alloc_nexthop) only; a next hop is never changed in place.
pub trait NextHopTables {
    /// Write a fresh `tp_nexthop`, not yet reachable, and give its index.
    fn alloc_nexthop(&mut self, hop: &NextHop) -> Result<u32, NoRoom>;

    /// Nothing names this index any more. The implementation reuses it after a grace period.
    fn free_nexthop(&mut self, index: u32);

    /// Store a peer's next hop. A peer that is not in use (any more) is ignored.
    ///
    /// Until this is called for a new peer, its next hop is one that the tables keep for the
    /// purpose: state `UNRESOLVED`, `ifindex` 0, so that the kernel's routes decide.
    fn swap_peer_nexthop(&mut self, peer: Peer, index: u32);

    /// Replace the routes of one family of a network instance: longest prefix first, at most
    /// [`ROUTES_MAX`]; empty for none. On an error the old routes stay.
    fn set_ni_routes(
        &mut self,
        ni: NiId,
        family: Family,
        routes: &[(IpNet, u32)],
    ) -> Result<(), NoRoom>;

    /// Whether a route lies within a pool of UE addresses of the network instance's interface, and is longer: it leads to
    /// addresses there that no session has, and is listed whatever the routes around it say.
    fn says_more_than_pool(&self, ni: NiId, route: IpNet) -> bool;

    /// Let the buckets lead from an on-link address to a next hop (`TP_KIND_NEIGH4`, `_NEIGH6`), or
    /// with `None` no longer. On an error nothing changed.
    fn set_neighbour(&mut self, ni: NiId, addr: IpAddr, index: Option<u32>) -> Result<(), NoRoom>;

    /// Set the addresses of a network instance's interface, by which its router can be reached.
    fn set_ni_addresses(&mut self, ni: NiId, v4: Option<Ipv4Addr>, v6: Option<Ipv6Addr>);

    /// The routes towards gNBs changed: these decide from now on over which family one is reached.
    fn set_n3_routes(&mut self, routes: &Arc<RouteView>);

    /// Append the peers that came and went since the last call, in that order.
    fn take_peer_changes(&mut self, into: &mut Vec<PeerChange>);
}

/// A data interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Devmap slot.
    pub slot: u32,
    /// Name by which it is found again when it is made anew.
    pub name: String,
    /// The kernel's number; 0 while there is no such interface.
    pub ifindex: u32,
}

/// A network instance's way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkInstance {
    /// Its number in the tables.
    pub id: NiId,
    /// Slot of its N6 interface.
    pub slot: u32,
    /// Its routing table.
    pub table: u32,
}

/// Configuration, which stays while the process runs, but for numbers of interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Data ports; a VLAN device on one of them is reached through it.
    pub ports: Vec<Port>,
    /// Network instances.
    pub network_instances: Vec<NetworkInstance>,
    /// Forwarding policies, each of which has routes for each network instance.
    pub policies: Vec<Policy>,
    /// Routing table towards gNBs.
    pub n3_table: u32,
}

/// Something to ask of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// Resolve this neighbour and keep it resolved.
    Keep {
        /// Device.
        ifindex: u32,
        /// Neighbour.
        addr: IpAddr,
    },
    /// It need not be kept any longer.
    Release {
        /// Device.
        ifindex: u32,
        /// Neighbour.
        addr: IpAddr,
    },
    /// Dump the routes again: the kernel removes some without saying so.
    DumpRoutes,
}
