//! Prefixes in order: those that overlap another one are found without a look at all the rest.

use std::collections::BTreeSet;

use ipnet::IpNet;

/// Prefixes of both families, each of them once.
#[derive(Debug)]
pub(crate) struct PrefixSet {
    /// Without bits beyond their lengths. What lies within a prefix comes right behind it.
    nets: BTreeSet<IpNet>,
    /// How many there are of each length, of IPv4 and of IPv6.
    lens: [[usize; 129]; 2],
    /// How many there are, of IPv4 and of IPv6.
    counts: [usize; 2],
}

impl Default for PrefixSet {
    fn default() -> Self {
        Self {
            nets: BTreeSet::new(),
            lens: [[0; 129]; 2],
            counts: [0; 2],
        }
    }
}

impl PrefixSet {
    /// Whether it was not there.
    pub(crate) fn insert(&mut self, net: IpNet) -> bool {
        let is_new = self.nets.insert(net.trunc());
        self.lens[family(net)][usize::from(net.prefix_len())] += usize::from(is_new);
        self.counts[family(net)] += usize::from(is_new);
        is_new
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, net: IpNet) -> bool {
        let was_there = self.nets.remove(&net.trunc());
        self.lens[family(net)][usize::from(net.prefix_len())] -= usize::from(was_there);
        self.counts[family(net)] -= usize::from(was_there);
        was_there
    }

    pub(crate) fn contains(&self, net: IpNet) -> bool {
        self.nets.contains(&net.trunc())
    }

    /// Of IPv4, and of IPv6.
    pub(crate) fn counts(&self) -> [usize; 2] {
        self.counts
    }

    /// Prefixes around `net`, of which there is one of each length at most, then itself and those within.
    pub(crate) fn overlapping(&self, net: IpNet) -> impl Iterator<Item = IpNet> + '_ {
        let net = net.trunc();
        let shorter = (0..net.prefix_len()).filter(move |&len| {
            let known = self.lens[family(net)][usize::from(len)];
            known > 0
        });
        let around = shorter.filter_map(move |len| IpNet::new(net.addr(), len).ok());
        let around = around.map(|net| net.trunc());
        let last = IpNet::new(net.broadcast(), net.max_prefix_len()).unwrap_or(net);
        let within = self.nets.range(net..=last).copied();
        around.filter(|net| self.nets.contains(net)).chain(within)
    }
}

/// 0 of IPv4, 1 of IPv6.
pub(crate) fn family(net: IpNet) -> usize {
    usize::from(net.addr().is_ipv6())
}

/// Whether two prefixes have an address in common.
pub(crate) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;

    use super::*;

    /// Few bits that differ, so that many overlap.
    fn net() -> impl Strategy<Value = IpNet> {
        let v4 = (0u32..16, 0u8..=32)
            .prop_map(|(bits, len)| (Ipv4Addr::from(bits << 28 | bits), len))
            .prop_map(|(addr, len)| Ipv4Net::new(addr, len).unwrap().into());
        let v6 = (0u128..16, 0u8..=128)
            .prop_map(|(bits, len)| (Ipv6Addr::from(bits << 124 | bits), len))
            .prop_map(|(addr, len)| Ipv6Net::new(addr, len).unwrap().into());
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn all_that_overlap_are_found_and_no_others(
            steps in prop::collection::vec((net(), any::<bool>()), 0..60),
            asked in net(),
        ) {
            let (mut set, mut plain) = (PrefixSet::default(), BTreeSet::new());
            for (net, comes) in steps {
                let (net, changed) = (net.trunc(), plain.contains(&net.trunc()) != comes);
                if comes {
                    plain.insert(net);
                    prop_assert_eq!(set.insert(net), changed);
                } else {
                    plain.remove(&net);
                    prop_assert_eq!(set.remove(net), changed);
                }
            }
            let found: BTreeSet<IpNet> = set.overlapping(asked).collect();
            let wanted = plain.iter().copied().filter(|net| overlap(*net, asked));
            prop_assert_eq!(found, wanted.collect());
            let ipv6 = plain.iter().filter(|net| family(**net) == 1).count();
            prop_assert_eq!(set.counts(), [plain.len() - ipv6, ipv6]);
        }
    }
}
