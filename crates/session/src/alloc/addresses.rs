//! UE addresses of a network instance: given by us from its pools, or by the SMF from wherever it
//! likes. No two sessions of one network instance have the same.
//!
//! Prefixes of any length are kept beside the addresses: one may lie within another, because packets meet the
//! longest, but no two sessions have the same. Framed routes overlap neither the pools nor anything of another session,
//! whose packets they would capture.

use std::collections::{BTreeSet, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use compiled::FRAMED_MAX;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::alloc::indices::{Indices, Taken};
use crate::base::prefix_set::{PrefixSet, family, overlap};
use crate::base::time::Time;
use foldhash::quality::FixedState;

/// How long an address rests before it is given to another session, where others are free.
const REST_NS: u64 = 10_000_000_000;

/// Of a pool larger than this (IPv4 /8, IPv6 /40) the first so many are given out.
const ADDRESSES_MAX: u64 = 1 << 24;

/// /64s of one prefix that we choose, at most: a /48.
const ALIGNED_MAX: u32 = 1 << 16;

/// An address, or prefix, as a number.
trait Number: Copy + Ord {
    fn offset(self, base: Self) -> Option<u32>;
    fn at(base: Self, offset: u32) -> Self;
}

impl Number for u32 {
    fn offset(self, base: Self) -> Option<u32> {
        self.checked_sub(base)
    }
    fn at(base: Self, offset: u32) -> Self {
        base + offset
    }
}

/// The upper half of an IPv6 address.
impl Number for u64 {
    fn offset(self, base: Self) -> Option<u32> {
        self.checked_sub(base).and_then(|o| u32::try_from(o).ok())
    }
    fn at(base: Self, offset: u32) -> Self {
        base + u64::from(offset)
    }
}

/// All addresses of one family in one network instance.
#[derive(Debug)]
struct Family<N> {
    pools: Vec<Pool<N>>,
    /// In order, for framed routes are looked for here.
    outside: BTreeSet<N>,
    outside_max: usize,
}

#[derive(Debug)]
struct Pool<N> {
    base: N,
    size: u32,
    indices: Indices,
}

/// How to take an address back; see [`NiPools::undo`].
#[derive(Clone, Copy, Debug)]
enum Grant<N> {
    Pool { pool: u16, taken: Taken },
    Outside(N),
}

impl<N: Number> Family<N> {
    fn new(outside_max: usize) -> Self {
        Self {
            pools: Vec::new(),
            outside: BTreeSet::new(),
            outside_max,
        }
    }

    /// Offsets `first..end` are given out. An SMF may claim those below `first` too; those from
    /// `end` on count as outside.
    fn add(&mut self, base: N, first: u32, end: u32) {
        self.pools.push(Pool {
            base,
            size: end,
            indices: Indices::new(first, end, REST_NS),
        });
    }

    fn pool_of(&self, number: N) -> Option<(usize, u32)> {
        self.pools.iter().enumerate().find_map(|(i, pool)| {
            number
                .offset(pool.base)
                .filter(|&o| o < pool.size)
                .map(|o| (i, o))
        })
    }

    fn choose(&mut self, now: Time) -> Option<(N, Grant<N>)> {
        self.pools.iter_mut().enumerate().find_map(|(i, pool)| {
            let taken = pool.indices.choose(now)?;
            Some((
                N::at(pool.base, taken.index()),
                Grant::Pool {
                    pool: i as u16,
                    taken,
                },
            ))
        })
    }

    /// The last 2^bits numbers of a pool that nobody has, the first of them a multiple of as many: single numbers
    /// are taken from the front. `suits`: whether they may begin with this one.
    fn choose_aligned(
        &mut self,
        bits: u32,
        suits: impl Fn(N) -> bool,
    ) -> Option<(N, Vec<Grant<N>>)> {
        let count = 1u32
            .checked_shl(bits)
            .filter(|&count| count <= ALIGNED_MAX)?;
        let (at, first) = (self.pools.iter().enumerate()).find_map(|(at, pool)| {
            let suits = |index| suits(N::at(pool.base, index));
            Some((at, pool.indices.last_free(count, suits)?))
        })?;
        let pool = &mut self.pools[at];
        let grants = (first..first + count).filter_map(|index| {
            let taken = pool.indices.claim(index)?;
            let pool = at as u16;
            Some(Grant::Pool { pool, taken })
        });
        let grants = grants.collect();
        Some((N::at(pool.base, first), grants))
    }

    fn claim(&mut self, number: N) -> Option<Grant<N>> {
        if let Some((i, offset)) = self.pool_of(number) {
            let taken = self.pools[i].indices.claim(offset)?;
            return Some(Grant::Pool {
                pool: i as u16,
                taken,
            });
        }
        let room = self.outside.len() < self.outside_max;
        (room && self.outside.insert(number)).then_some(Grant::Outside(number))
    }

    fn release(&mut self, number: N, now: Time) {
        match self.pool_of(number) {
            Some((i, offset)) => self.pools[i].indices.release(offset, now),
            None => {
                self.outside.remove(&number);
            }
        }
    }

    fn settle(&mut self) {
        (self.pools.iter_mut()).for_each(|pool| pool.indices.settle());
    }

    fn undo(&mut self, grant: Grant<N>) {
        match grant {
            Grant::Pool { pool, taken } => {
                if let Some(pool) = self.pools.get_mut(usize::from(pool)) {
                    pool.indices.undo(taken);
                }
            }
            Grant::Outside(number) => {
                self.outside.remove(&number);
            }
        }
    }

    /// Numbers in no pool that somebody has.
    fn outside_in(&self, numbers: RangeInclusive<N>) -> impl Iterator<Item = N> + '_ {
        self.outside.range(numbers).copied()
    }

    /// Numbers of the pools.
    fn in_use(&self) -> usize {
        self.pools.iter().map(|p| p.indices.in_use()).sum()
    }

    fn capacity(&self) -> u64 {
        self.pools.iter().map(|p| u64::from(p.size)).sum()
    }
}

/// Kind of address to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// An IPv4 address.
    V4,
    /// An IPv6 prefix of so many bits.
    V6(u8),
}

impl Choice {
    /// Choice that yields such a prefix.
    pub(crate) fn of(net: IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(net) => Self::V6(net.prefix_len()),
        }
    }
}

/// How to take back what [`NiPools`] gave.
#[derive(Debug)]
pub(crate) struct AddressGrant(Kind);

#[derive(Debug)]
enum Kind {
    V4(Grant<u32>),
    V6(Grant<u64>),
    Prefix(IpNet),
    Framed(IpNet),
    /// Chosen, neither of 32 nor of 64 bits.
    Carved(Ipv6Net, Vec<Grant<u64>>),
}

/// The UE addresses of one network instance.
#[derive(Debug)]
pub(crate) struct NiPools {
    v4: Family<u32>,
    v6: Family<u64>,
    /// The pools, whole.
    pools: Vec<IpNet>,
    /// Prefixes of UEs that are neither an IPv4 address nor an IPv6 /64.
    prefixes: PrefixSet,
    framed: PrefixSet,
    /// Of either kind and family.
    prefixes_max: usize,
    /// Members of `prefixes` that took /64s of the pools.
    carved: HashSet<Ipv6Net, FixedState>,
}

impl NiPools {
    /// `outside_max` bounds what SMFs may claim that lies in no pool.
    pub(crate) fn new(
        pools4: &[Ipv4Net],
        pools6: &[Ipv6Net],
        outside_max: usize,
        seed: u64,
    ) -> Self {
        let mut v4 = Family::new(outside_max);
        for net in pools4 {
            let size = (1u64 << (32 - net.prefix_len())).min(ADDRESSES_MAX) as u32;
            // We give nobody the network or broadcast address, except in the smallest nets.
            let (first, end) = if net.prefix_len() <= 30 {
                (1, size - 1)
            } else {
                (0, size)
            };
            v4.add(u32::from(net.network()), first, end);
        }
        let mut v6 = Family::new(outside_max);
        for net in pools6.iter().filter(|net| net.prefix_len() <= 64) {
            let size = 1u64
                .checked_shl(u32::from(64 - net.prefix_len()))
                .unwrap_or(u64::MAX);
            v6.add(upper(net.network()), 0, size.min(ADDRESSES_MAX) as u32);
        }
        Self {
            v4,
            v6,
            pools: (pools4.iter().copied().map(IpNet::V4))
                .chain(pools6.iter().copied().map(IpNet::V6))
                .collect(),
            prefixes: PrefixSet::default(),
            framed: PrefixSet::default(),
            // One session may have that many.
            prefixes_max: outside_max.max(FRAMED_MAX),
            carved: HashSet::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// One that nobody has. IPv6 prefixes take whole /64s of the pools: the shorter ones as many as they cover,
    /// the longer ones one.
    pub(crate) fn choose(&mut self, now: Time, choice: Choice) -> Option<(IpNet, AddressGrant)> {
        match choice {
            Choice::V4 => {
                let (number, grant) = self.v4.choose(now)?;
                let net = Ipv4Net::from(Ipv4Addr::from(number));
                Some((net.into(), AddressGrant(Kind::V4(grant))))
            }
            Choice::V6(64) => {
                let (number, grant) = self.v6.choose(now)?;
                let net = Ipv6Net::new(prefix(number), 64).ok()?;
                Some((net.into(), AddressGrant(Kind::V6(grant))))
            }
            Choice::V6(len) => {
                let (net, grants) = self.carve(now, len)?;
                Some((net.into(), AddressGrant(Kind::Carved(net, grants))))
            }
        }
    }

    fn carve(&mut self, now: Time, len: u8) -> Option<(Ipv6Net, Vec<Grant<u64>>)> {
        if self.prefixes.counts()[1] >= self.prefixes_max {
            return None;
        }
        // An address of its own is not that of the routers (RFC 4291, 2.6.1).
        let net_at = |number| {
            let addr = u128::from(prefix(number)) | u128::from(len == 128);
            Ipv6Net::new(addr.into(), len).ok()
        };
        // An SMF may have claimed it, which takes no /64.
        let held = &self.prefixes;
        let is_nobodys = |number| net_at(number).is_some_and(|net| !held.contains(net.into()));
        let front = (len > 64).then(|| self.v6.choose(now)).flatten();
        let (number, grants) = match front {
            Some((number, grant)) if is_nobodys(number) => (number, vec![grant]),
            front => {
                if let Some((_, grant)) = front {
                    self.v6.undo(grant);
                }
                let bits = 64u32.saturating_sub(len.into());
                self.v6.choose_aligned(bits, is_nobodys)?
            }
        };
        let net = net_at(number)?;
        self.prefixes.insert(net.into());
        self.carved.insert(net);
        Some((net, grants))
    }

    /// The /64s of a prefix that was chosen are free again, and it is nobody's.
    fn uncarve(&mut self, net: Ipv6Net, now: Time) {
        self.prefixes.remove(net.into());
        let first = upper(net.network());
        let count = 1u64 << (64 - u32::from(net.prefix_len()).min(64));
        (first..first + count).for_each(|number| self.v6.release(number, now));
    }

    /// This very address or prefix for a UE. `None`: somebody has it, or there is no room for more.
    pub(crate) fn claim(&mut self, net: IpNet) -> Option<AddressGrant> {
        let kind = match net {
            IpNet::V4(net) if net.prefix_len() == 32 => {
                Kind::V4(self.v4.claim(u32::from(net.addr()))?)
            }
            IpNet::V6(net) if net.prefix_len() == 64 => Kind::V6(self.v6.claim(upper(net.addr()))?),
            net => {
                let room = self.prefixes.counts()[family(net)] < self.prefixes_max;
                if !room || !self.prefixes.insert(net) {
                    return None;
                }
                Kind::Prefix(net)
            }
        };
        Some(AddressGrant(kind))
    }

    /// This very one, which [`Self::choose`] has chosen elsewhere, from pools like these or others.
    pub(crate) fn claim_chosen(&mut self, net: IpNet) -> Option<AddressGrant> {
        match net {
            IpNet::V6(v6) if v6.prefix_len() != 64 && self.has(net) => self.carve_out(v6),
            net => self.claim(net),
        }
    }

    /// All or none of the /64s of a prefix.
    fn carve_out(&mut self, net: Ipv6Net) -> Option<AddressGrant> {
        let room = self.prefixes.counts()[1] < self.prefixes_max;
        let bits = 64u32.saturating_sub(net.prefix_len().into());
        let count = 1u32
            .checked_shl(bits)
            .filter(|&count| count <= ALIGNED_MAX)?;
        if !room || self.prefixes.contains(net.into()) {
            return None;
        }
        let first = upper(net.network());
        let mut grants = Vec::new();
        for number in first..first + u64::from(count) {
            match self.v6.claim(number) {
                Some(grant) => grants.push(grant),
                None => {
                    while let Some(grant) = grants.pop() {
                        self.v6.undo(grant);
                    }
                    return None;
                }
            }
        }
        self.prefixes.insert(net.into());
        self.carved.insert(net);
        Some(AddressGrant(Kind::Carved(net, grants)))
    }

    pub(crate) fn release(&mut self, net: IpNet, now: Time) {
        match net {
            IpNet::V4(net) if net.prefix_len() == 32 => {
                self.v4.release(u32::from(net.addr()), now);
            }
            IpNet::V6(net) if net.prefix_len() == 64 => self.v6.release(upper(net.addr()), now),
            IpNet::V6(net) if self.carved.remove(&net) => self.uncarve(net, now),
            net => {
                self.prefixes.remove(net);
            }
        }
    }

    /// A network behind a UE. `None`: there is no room for more, or it is there already.
    pub(crate) fn claim_framed(&mut self, net: IpNet) -> Option<AddressGrant> {
        let room = self.framed.counts()[family(net)] < self.prefixes_max;
        (room && self.framed.insert(net)).then_some(AddressGrant(Kind::Framed(net)))
    }

    pub(crate) fn release_framed(&mut self, net: IpNet) {
        self.framed.remove(net);
    }

    /// Whether all of it is of one pool.
    pub(crate) fn has(&self, net: IpNet) -> bool {
        self.pools.iter().any(|pool| pool.contains(&net))
    }

    /// Whether one of the pools has an address in common with it.
    pub(crate) fn pool_overlaps(&self, net: IpNet) -> bool {
        self.pools.iter().any(|pool| overlap(*pool, net))
    }

    /// Whether it lies, in part at least, behind the UE of another session than that of the routes that are `own`.
    pub(crate) fn is_behind_another(&self, net: IpNet, own: impl Fn(IpNet) -> bool) -> bool {
        self.framed.overlapping(net).any(|net| !own(net))
    }

    /// Whether a UE outside the pools, of another session than that of the addresses and prefixes that are `own`, has one
    /// of these addresses.
    pub(crate) fn another_has_some_of(&self, net: IpNet, own: impl Fn(IpNet) -> bool) -> bool {
        let is_anothers = |net: IpNet| !own(net);
        let single = match net {
            IpNet::V4(net) => {
                let numbers = u32::from(net.network())..=u32::from(net.broadcast());
                let net_of = |number| Ipv4Net::from(Ipv4Addr::from(number)).into();
                self.v4.outside_in(numbers).map(net_of).any(is_anothers)
            }
            IpNet::V6(net) => {
                let numbers = upper(net.network())..=upper(net.broadcast());
                let nets = self.v6.outside_in(numbers).map(prefix);
                let net_of = |first| Ipv6Net::new(first, 64).ok().map(IpNet::V6);
                nets.filter_map(net_of).any(is_anothers)
            }
        };
        single || self.prefixes.overlapping(net).any(is_anothers)
    }

    /// Nothing that was granted so far will be undone.
    pub(crate) fn settle(&mut self) {
        self.v4.settle();
        self.v6.settle();
    }

    pub(crate) fn undo(&mut self, grant: AddressGrant) {
        match grant.0 {
            Kind::V4(grant) => self.v4.undo(grant),
            Kind::V6(grant) => self.v6.undo(grant),
            Kind::Prefix(net) => {
                self.prefixes.remove(net);
            }
            Kind::Framed(net) => self.release_framed(net),
            Kind::Carved(net, mut grants) => {
                self.prefixes.remove(net.into());
                self.carved.remove(&net);
                while let Some(grant) = grants.pop() {
                    self.v6.undo(grant);
                }
            }
        }
    }

    /// Of IPv4 and of IPv6.
    pub(crate) fn fill(&self) -> [PoolFill; 2] {
        let (prefixes, framed) = (self.prefixes.counts(), self.framed.counts());
        let others = [0, 1].map(|family| prefixes[family] + framed[family]);
        let at_most = self.v4.outside_max + 2 * self.prefixes_max;
        let fill = |used, capacity, outside| PoolFill {
            used,
            capacity,
            outside,
            outside_at_most: at_most,
        };
        let (v4, v6) = (&self.v4, &self.v6);
        [
            fill(v4.in_use(), v4.capacity(), v4.outside.len() + others[0]),
            fill(
                v6.in_use(),
                v6.capacity(),
                // Chosen prefixes took /64s of the pools.
                v6.outside.len() + others[1] - self.carved.len(),
            ),
        ]
    }
}

/// UE addresses of one family in one network instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFill {
    /// IPv4 addresses of the pools that are in use, or IPv6 /64s.
    pub used: usize,
    /// As many as the pools have.
    pub capacity: u64,
    /// Addresses, prefixes and framed routes that SMFs brought of their own.
    pub outside: usize,
    /// So many at most.
    pub outside_at_most: usize,
}

impl PoolFill {
    /// All that sessions hold.
    pub fn held(&self) -> usize {
        self.used + self.outside
    }
}

fn upper(addr: Ipv6Addr) -> u64 {
    (u128::from(addr) >> 64) as u64
}

fn prefix(upper: u64) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(upper) << 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools() -> NiPools {
        NiPools::new(
            &["10.60.0.0/30".parse().unwrap()],
            &["2001:db8:60::/63".parse().unwrap()],
            2,
            1,
        )
    }

    fn addr(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn choose(p: &mut NiPools, choice: Choice) -> Option<IpNet> {
        p.choose(Time(0), choice).map(|(addr, _)| addr)
    }

    #[test]
    fn network_and_broadcast_addresses_are_not_given_out() {
        let mut p = pools();
        assert_eq!(choose(&mut p, Choice::V4), Some(addr("10.60.0.1/32")));
        assert_eq!(choose(&mut p, Choice::V4), Some(addr("10.60.0.2/32")));
        assert_eq!(choose(&mut p, Choice::V4), None);
    }

    #[test]
    fn prefixes_are_given_by_64() {
        let mut p = pools();
        assert_eq!(
            choose(&mut p, Choice::V6(64)),
            Some(addr("2001:db8:60::/64"))
        );
        assert_eq!(
            choose(&mut p, Choice::V6(64)),
            Some(addr("2001:db8:60:1::/64"))
        );
        assert_eq!(choose(&mut p, Choice::V6(64)), None);
        p.release(addr("2001:db8:60:1::7/64"), Time(0));
        assert!(choose(&mut p, Choice::V6(64)).is_some());
    }

    #[test]
    fn an_address_is_claimed_once_inside_and_outside_the_pools() {
        let mut p = pools();
        for given in ["10.60.0.1/32", "10.60.0.3/32", "192.0.2.9/32"] {
            let grant = p.claim(addr(given)).unwrap();
            assert!(p.claim(addr(given)).is_none());
            p.undo(grant);
            assert!(p.claim(addr(given)).is_some());
        }
        assert_eq!(choose(&mut p, Choice::V4), Some(addr("10.60.0.2/32")));
        assert!(
            p.claim(addr("192.0.2.10/32")).is_none(),
            "two outside at most"
        );
    }

    #[test]
    fn the_largest_pools_are_cut_not_refused() {
        let mut p = NiPools::new(
            &["0.0.0.0/0".parse().unwrap()],
            &["::/0".parse().unwrap()],
            1,
            1,
        );
        assert!(choose(&mut p, Choice::V4).is_some());
        assert!(choose(&mut p, Choice::V6(64)).is_some());
        assert!(p.claim(addr("255.255.255.255/32")).is_some());
    }

    #[test]
    fn a_prefix_is_claimed_once_beside_the_addresses_in_it() {
        let mut p = pools();
        for given in ["10.60.0.0/24", "2001:db8:60::/56", "2001:db8:60::/96"] {
            let grant = p.claim(addr(given)).unwrap();
            assert!(p.claim(addr(given)).is_none(), "{given}");
            p.undo(grant);
            assert!(p.claim(addr(given)).is_some());
            p.release(addr(given), Time(0));
            assert!(p.claim(addr(given)).is_some());
        }
        assert!(p.claim(addr("10.60.0.1/32")).is_some());
        assert_eq!((p.fill()[0].used, p.fill()[0].outside), (1, 1));
        let mut more = (0..=255).map(|n| Ipv4Net::new([10, 61, n, 0].into(), 24).unwrap());
        let room = more
            .by_ref()
            .take_while(|net| p.claim((*net).into()).is_some());
        assert_eq!(room.count(), FRAMED_MAX - 1);
    }

    #[test]
    fn more_addresses_of_a_pool_are_in_use_than_it_has() {
        let mut p = pools();
        let all = p.fill()[0].capacity;
        while choose(&mut p, Choice::V4).is_some() {}
        assert!(p.claim(addr("10.60.0.0/32")).is_some(), "an SMF may");
        for own in ["10.60.0.3/32", "172.16.0.1/32"] {
            assert!(p.claim(addr(own)).is_some());
        }
        assert!(p.claim(addr("172.16.0.2/32")).is_none());
        assert!(p.claim_framed(addr("192.168.0.0/24")).is_some());
        let fill = p.fill()[0];
        assert_eq!((fill.used as u64, fill.outside), (all, 3));
    }

    #[test]
    fn what_an_smf_has_claimed_is_not_chosen() {
        for (claimed, len) in [("2001:db8:60::1/128", 128), ("2001:db8:60::/65", 65)] {
            let mut p = pools();
            assert!(p.claim(addr(claimed)).is_some());
            let before = p.fill();
            let (net, grant) = p.choose(Time(0), Choice::V6(len)).unwrap();
            assert_ne!(net, addr(claimed));
            p.undo(grant);
            assert_eq!(p.fill(), before);
            assert!(p.claim(addr(claimed)).is_none());
        }
    }

    #[test]
    fn prefixes_of_other_lengths_take_whole_64s() {
        let nets = ["2001:db8:60::/56".parse().unwrap()];
        let mut p = NiPools::new(&[], &nets, 2, 1);
        let single = choose(&mut p, Choice::V6(64));
        assert_eq!(single, Some(addr("2001:db8:60::/64")));
        let delegated = addr("2001:db8:60:f0::/60");
        assert_eq!(choose(&mut p, Choice::V6(60)), Some(delegated));
        assert!(p.claim(addr("2001:db8:60:f7::/64")).is_none());
        let one = addr("2001:db8:60:1::1/128");
        assert_eq!(choose(&mut p, Choice::V6(128)), Some(one));
        assert_eq!(choose(&mut p, Choice::V6(56)), None, "some are in use");
        assert_eq!(choose(&mut p, Choice::V6(47)), None, "the pool is smaller");
        assert_eq!((p.fill()[1].used, p.fill()[1].outside), (18, 0));
        for net in [delegated, one] {
            p.release(net, Time(0));
            assert!(p.claim(net).is_some(), "{net}");
            p.release(net, Time(0));
        }
        p.release(addr("2001:db8:60::/64"), Time(0));
        let (all, grant) = p.choose(Time(0), Choice::V6(56)).unwrap();
        assert_eq!(all, addr("2001:db8:60::/56"));
        assert_eq!(choose(&mut p, Choice::V6(64)), None);
        p.undo(grant);
        assert_eq!(p.fill()[1].held(), 0);
        assert!(choose(&mut p, Choice::V6(64)).is_some());
    }
}
