//! Forwarding policies (TS 29.244, 8.2.23): ways that packets of some FARs go, rather than that of their network instance.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::kernel::Kernel;
use crate::view::{RouteView, Target, default_route};
use crate::{Family, NextHop};

/// A forwarding policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Way of its packets.
    pub way: Way,
    /// Way of its packets while that leads nowhere.
    pub fallback: Fallback,
}

/// Way that packets of a policy go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// All to one of these neighbours, that of their family.
    NextHops {
        /// At most one of each family.
        hops: Vec<IpAddr>,
        /// Slot of the interface behind which they are. `None`: where the network instance's table has the network.
        slot: Option<u32>,
    },
    /// By those routes of the network instance's table that lead out of this interface, or of a VLAN device on it.
    Interface {
        /// Its slot.
        slot: u32,
    },
    /// By the routes of this table.
    Table(u32),
}

/// Way of packets that a policy has none for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// By the routes of their network instance.
    Routes,
    /// Nowhere.
    Drop,
}

/// How a policy stands, for one network instance and family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// All of its routes lead to somebody who is there.
    InUse,
    /// Some of them do.
    InPart,
    /// None does: packets go the fallback.
    Unreachable,
    /// It has no route of this family: packets go the fallback.
    NoRoute,
    /// Together with those of the network instance its routes are more than the tables hold: packets go the fallback.
    TooMany,
}

/// The routes of a policy for a network instance, whether they lead anywhere or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steered {
    routes: Vec<(IpNet, Target)>,
}

impl Steered {
    /// `own`: the network instance's routes, those among them that are not for users. `table`: where they come from.
    /// `leads_by`: whether a device is the interface of a slot, or on it. `of_slot`: the interface itself.
    pub(crate) fn of(
        way: &Way,
        (kernel, own, table): (&Kernel, &RouteView, u32),
        leads_by: impl Fn(u32, u32) -> bool,
        of_slot: impl Fn(u32) -> u32,
    ) -> Self {
        let routes = match way {
            Way::NextHops { hops, slot } => {
                let hops = hops.iter().filter_map(|&hop| {
                    let target = match slot {
                        Some(slot) => Target::Via {
                            ifindex: of_slot(*slot),
                            gateway: Some(hop),
                            mtu: None,
                        },
                        None => on_link(own, hop)?,
                    };
                    Some((default_route(Family::of(hop)), target))
                });
                hops.collect()
            }
            Way::Interface { slot } => {
                own.routes_of(kernel, table, |ifindex| leads_by(*slot, ifindex))
            }
            Way::Table(table) => own.routes_of(kernel, *table, |_| true),
        };
        Self { routes }
    }

    /// Targets that its packets may go to.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.routes.iter().map(|(_, target)| target)
    }

    /// Routes that packets meet: these, as far as they are `usable`, and the network instance's `own`, or nothing, where none
    /// of them counts. `in_pool`: as [`crate::NextHopTables::says_more_than_pool`].
    pub(crate) fn before(
        &self,
        own: &RouteView,
        fallback: Fallback,
        usable: impl Fn(&Target) -> bool,
        in_pool: impl Fn(IpNet) -> bool,
    ) -> RouteView {
        let counts = |target: &Target| *target == Target::Unreachable || usable(target);
        let counting = self.routes.iter().filter(|(_, target)| counts(target));
        let steered_alone = RouteView::new(counting.cloned());
        let counting = steered_alone.routes();
        let mut steered: HashMap<IpNet, Target> = counting
            .map(|(net, target)| (*net, target.clone()))
            .collect();
        // A route of type throw leaves its destinations to the fallback.
        for (net, target) in &mut steered {
            if *target == Target::Unreachable {
                *target = match fallback {
                    Fallback::Routes => own.around(*net).cloned().unwrap_or(Target::Unreachable),
                    Fallback::Drop => Target::Closed,
                };
            }
        }
        let mut routes = HashMap::new();
        if fallback == Fallback::Drop {
            routes.extend([Family::V4, Family::V6].map(|f| (default_route(f), Target::Closed)));
        }
        for (net, target) in own.routes() {
            let is_left = || match steered_alone.around(*net) {
                None | Some(Target::Unreachable) => fallback == Fallback::Routes,
                Some(_) => false,
            };
            if own.is_fixed(net) || in_pool(*net) || is_left() {
                routes.insert(*net, target.clone());
            }
        }
        for (net, target) in steered {
            if !own.is_fixed(&net) {
                routes.insert(net, target);
            }
        }
        RouteView::new(routes).with_fixed_of(own)
    }

    /// Whether it says something of this prefix.
    pub(crate) fn names(&self, net: &IpNet) -> bool {
        self.routes.iter().any(|(of, _)| of == net)
    }

    /// How it stands. `hop`: where packets to a target go.
    pub(crate) fn state(&self, family: Family, hop: impl Fn(&Target) -> NextHop) -> PolicyState {
        let of_family = self
            .routes
            .iter()
            .filter(|(net, _)| Family::of(net.addr()) == family);
        let targets = of_family.filter(|(_, target)| matches!(target, Target::Via { .. }));
        let (there, all) = targets.fold((0usize, 0usize), |(there, all), (_, target)| {
            (there + usize::from(leads_somewhere(&hop(target))), all + 1)
        });
        match (there, all) {
            (_, 0) => PolicyState::NoRoute,
            (0, _) => PolicyState::Unreachable,
            _ if there == all => PolicyState::InUse,
            _ => PolicyState::InPart,
        }
    }
}

/// Whether a policy's packets may go there: out of a port of ours, to a neighbour who is there as far as it is known, or to be
/// refused, where the operator's table says so.
pub(crate) fn leads_somewhere(hop: &NextHop) -> bool {
    matches!(
        hop,
        NextHop::Resolved { .. } | NextHop::OnLink { .. } | NextHop::Prohibit
    )
}

/// The neighbour, if the routes say on which link it is.
fn on_link(own: &RouteView, hop: IpAddr) -> Option<Target> {
    match own.lookup(hop)? {
        Target::Via {
            ifindex,
            gateway: None,
            mtu,
        } => Some(Target::Via {
            ifindex: *ifindex,
            gateway: Some(hop),
            mtu: *mtu,
        }),
        _ => None,
    }
}
