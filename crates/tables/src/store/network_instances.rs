//! Network instances in the tables: where their UEs are found, and which destinations may be one.

use std::collections::HashMap;
use std::net::IpAddr;

use compiled::{NiId, NoRoom, PolicyId};
use ipnet::{IpNet, Ipv6Net};

use crate::abi::{FRAMED_MAX, Line, ni};
use crate::memory::View;
use crate::prefixes;

/// The network instances of the node. The control thread writes their lines, and nobody else does.
#[derive(Debug)]
pub(crate) struct NetworkInstances {
    nis: View<Line>,
    /// Directory of the UE addresses of each network instance.
    homes: Vec<u16>,
    /// Network instances; numbers behind them are of policies' routes ([`PolicyId::routes_for`]).
    pub(crate) count: u16,
    /// IPv6 pools of each directory.
    pools6: HashMap<u16, Vec<IpNet>>,
}

/// IPv6 pools of a directory, to be written.
pub(crate) struct Pools6<'a> {
    pub(crate) all: &'a [IpNet],
    /// Places that they had before: the first, and how many.
    pub(crate) former: Option<(u32, usize)>,
}

impl NetworkInstances {
    /// `routed`: network instances and those of policies' routes.
    pub(crate) fn new(nis: View<Line>, count: u16, routed: u16) -> Self {
        let mut all = Self {
            nis,
            homes: (0..routed).collect(),
            count,
            pools6: HashMap::new(),
        };
        (0..routed).for_each(|ni| all.fill_home(NiId(ni), ni));
        for (ni, line) in (0..count).zip(all.nis.iter()) {
            line.publish(
                ni::HOME,
                line.load(ni::HOME) | u64::from(ni) << ni::SELF_SHIFT,
            );
        }
        (0..count).for_each(|ni| all.match_policies(NiId(ni)));
        all
    }

    fn line(&self, ni: NiId) -> Option<&Line> {
        self.nis.get(usize::from(ni.0))
    }

    /// Numbers of the routes of all policies for a network instance.
    fn policies_of(&self, ni: NiId) -> impl Iterator<Item = NiId> + use<> {
        let count = self.count;
        PolicyId::all()
            .map(move |policy| policy.routes_for(ni, count))
            .take((self.homes.len() / usize::from(count.max(1))).saturating_sub(1))
    }

    /// Packets of a network instance that go the way of a policy find its UEs, and are told from those of others, as if they
    /// went by its own routes.
    fn match_policies(&mut self, ni: NiId) {
        let (Some(of), home) = (self.nis.get(usize::from(ni.0)), self.home(ni)) else {
            return;
        };
        for policy in self.policies_of(ni) {
            let place = usize::from(policy.0);
            if let (Some(slot), Some(line)) = (self.homes.get_mut(place), self.nis.get(place)) {
                *slot = home;
                for word in [ni::HOME, ni::UE4, ni::UE6] {
                    line.publish(word, of.load(word));
                }
            }
        }
    }

    /// Network instances on one port share the directory of the lowest.
    pub(crate) fn set_home(&mut self, ni: NiId, home: NiId) {
        if let Some(slot) = self.homes.get_mut(usize::from(ni.0)) {
            *slot = home.0;
        }
        self.fill_home(ni, home.0);
        for sharer in [ni, home].into_iter().filter(|_| ni != home) {
            if let Some(line) = self.line(sharer) {
                line.publish(ni::HOME, line.load(ni::HOME) | ni::SHARED);
            }
            self.match_policies(sharer);
        }
    }

    fn fill_home(&self, ni: NiId, home: u16) {
        if let Some(line) = self.line(ni) {
            let flags = line.load(ni::HOME) >> 32 << 32;
            line.publish(ni::HOME, flags | u64::from(home));
        }
    }

    /// Whether UEs of a network instance reach each other within this UPF.
    pub(crate) fn set_ue_to_ue(&mut self, ni: NiId, allowed: bool) {
        if let Some(line) = self.line(ni) {
            let home = line.load(ni::HOME) & !ni::NO_UE_TO_UE;
            let flag = if allowed { 0 } else { ni::NO_UE_TO_UE };
            line.publish(ni::HOME, home | flag);
        }
        self.match_policies(ni);
    }

    /// From now on packets from UEs of the network instance are looked at more closely when their
    /// destination resembles this one. Never taken back: too close a look costs only time.
    pub(crate) fn expect_ue(&self, ni: NiId, addr: IpAddr) {
        let (word, bit) = match addr {
            IpAddr::V4(addr) => (ni::UE4, ni::ue4_bit(addr)),
            IpAddr::V6(addr) => (ni::UE6, ni::ue6_bit((u128::from(addr) >> 64) as u64)),
        };
        if let Some(line) = self.line(ni)
            && line.load(word) & bit == 0
        {
            line.publish(word, line.load(word) | bit);
            for policy in self.policies_of(ni) {
                self.nis[usize::from(policy.0)].publish(word, line.load(word));
            }
        }
    }

    /// Expect UEs at all addresses of a prefix.
    pub(crate) fn expect_ues(&self, ni: NiId, net: IpNet) {
        prefixes::samples(net).for_each(|addr| self.expect_ue(ni, addr));
    }

    /// The directory of a network instance's UE addresses.
    pub(crate) fn home(&self, ni: NiId) -> u16 {
        self.homes.get(usize::from(ni.0)).copied().unwrap_or(ni.0)
    }

    pub(crate) fn pools6(&self, home: u16) -> &[IpNet] {
        self.pools6.get(&home).map_or(&[], Vec::as_slice)
    }

    /// Places for one IPv6 pool more in a directory.
    pub(crate) fn places_for_pool6(&self, home: u16) -> Result<usize, NoRoom> {
        let pools = self.pools6(home).len();
        if pools >= FRAMED_MAX || self.line(NiId(home)).is_none() {
            return Err(NoRoom::of("framed"));
        }
        Ok(prefixes::places(pools + 1))
    }

    /// One IPv6 pool more in a directory.
    pub(crate) fn add_pool6(&mut self, home: u16, pool: Ipv6Net) -> Pools6<'_> {
        let before = (self.line(NiId(home))).map_or(0, |line| line.load(ni::POOLS6) as u32);
        let pools = self.pools6.entry(home).or_default();
        let len = prefixes::places(pools.len());
        pools.push(IpNet::V6(pool));
        Pools6 {
            all: pools,
            former: before.checked_sub(1).map(|first| (first, len)),
        }
    }

    /// The pools of a directory have been written from this place on.
    pub(crate) fn lead_to_pools6(&self, home: u16, first: u32) {
        if let Some(line) = self.line(NiId(home)) {
            let count = self.pools6(home).len() as u64;
            line.publish(ni::POOLS6, u64::from(first + 1) | count << 32);
        }
    }
}
