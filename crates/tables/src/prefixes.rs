//! UE addresses that are prefixes of any length: how packets to them find their session, and how packets
//! from them are told.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::abi::{
    FRAMED_PER_PLACE, Framed, KIND_PLEN_SHIFT, KIND_PREFIX4, KIND_PREFIX6, Line, from_words, ni,
    words_of,
};
use crate::filters::left_aligned;
use crate::index::{SlotKey, hash};
use crate::memory::View;

/// Key by which `tp_prefix4_find` and `tp_prefix6_find` look for a prefix in the directory of `home`.
pub(crate) fn slot_key(home: u16, net: IpNet, salt: u64) -> SlotKey {
    let plen = net.prefix_len();
    let [hi, lo] = left_aligned(net.network());
    let (kind, key) = match net {
        IpNet::V4(_) => (KIND_PREFIX4, hi >> 32),
        IpNet::V6(_) if plen <= 64 => (KIND_PREFIX6, hi),
        // `tp_prefix6_key`
        IpNet::V6(_) => (
            KIND_PREFIX6,
            hash(SlotKey::new(0, KIND_PREFIX6 as u16, hi), salt) ^ lo,
        ),
    };
    SlotKey::new(kind | u64::from(plen) << KIND_PLEN_SHIFT, home, key)
}

/// The word of `tp_ni` and the bit in it that say whether there are prefixes of this length. `None`: not the
/// key of a prefix.
fn length_bit(key: SlotKey) -> Option<(usize, u64)> {
    let plen = (key.kind() >> KIND_PLEN_SHIFT) as usize;
    match key.kind() & ((1 << KIND_PLEN_SHIFT) - 1) {
        KIND_PREFIX4 => Some((ni::LENS4, 1 << plen)),
        KIND_PREFIX6 => Some((ni::LENS6 + (plen - 1) / 64, 1 << ((plen - 1) % 64))),
        _ => None,
    }
}

/// Whether this is the key of a prefix.
pub(crate) fn is_prefix(key: SlotKey) -> bool {
    length_bit(key).is_some()
}

/// Numbers of prefixes in the buckets, by length. Packets look for lengths in use only.
#[derive(Debug)]
pub(crate) struct Lengths {
    nis: View<Line>,
    /// Numbers by directory and kind of key, which has the length.
    counts: HashMap<(u16, u64), u32>,
}

impl Lengths {
    pub(crate) fn new(nis: View<Line>) -> Self {
        Self {
            nis,
            counts: HashMap::new(),
        }
    }

    /// A key is about to be seen.
    pub(crate) fn join(&mut self, key: SlotKey) {
        let (Some((word, bit)), Some(line)) =
            (length_bit(key), self.nis.get(usize::from(key.ni())))
        else {
            return;
        };
        *self.counts.entry((key.ni(), key.kind())).or_default() += 1;
        line.publish(word, line.load(word) | bit);
    }

    /// A key is seen no more.
    pub(crate) fn leave(&mut self, key: SlotKey) {
        let (Some((word, bit)), Some(line)) =
            (length_bit(key), self.nis.get(usize::from(key.ni())))
        else {
            return;
        };
        let count = self.counts.entry((key.ni(), key.kind())).or_default();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.counts.remove(&(key.ni(), key.kind()));
            line.publish(word, line.load(word) & !bit);
        }
    }
}

/// Places of `rules[]` that so many framed routes take.
pub(crate) fn places(count: usize) -> usize {
    count.div_ceil(FRAMED_PER_PLACE)
}

fn framed(net: &IpNet) -> Framed {
    Framed {
        prefix: left_aligned(net.network()),
        plen: net.prefix_len(),
        family: if net.addr().is_ipv4() { 4 } else { 6 },
        ..Framed::default()
    }
}

/// Fill places that no packet can reach yet.
pub(crate) fn fill(to: &[Line], nets: &[IpNet]) {
    for (place, nets) in to.iter().zip(nets.chunks(FRAMED_PER_PLACE)) {
        let mut full = [Framed::default(); FRAMED_PER_PLACE];
        for (to, net) in full.iter_mut().zip(nets) {
            *to = framed(net);
        }
        place.fill(words_of(&full));
    }
}

/// Whether the places hold these and no others.
pub(crate) fn hold(places: &[Line], count: u32, nets: &[IpNet]) -> bool {
    let held = places
        .iter()
        .flat_map(|place| from_words::<[Framed; FRAMED_PER_PLACE], 8>(place.words()));
    count as usize == nets.len() && held.zip(nets).all(|(held, net)| held == framed(net))
}

/// An address in each part of a prefix that `tp_ni.ue4` and `ue6` tell apart: 256 for IPv4, as many as there
/// are bits for IPv6.
pub(crate) fn samples(net: IpNet) -> impl Iterator<Item = IpAddr> {
    let [hi, _] = left_aligned(net.network());
    let told_by = if net.addr().is_ipv4() { 8 } else { 32 };
    let free = told_by - u32::from(net.prefix_len()).min(told_by);
    // More than so many have all bits anyway.
    let count = 1u64 << free.min(12);
    (0..count).map(move |n| {
        let hi = hi + (n << (64 - told_by));
        match net {
            IpNet::V4(_) => IpAddr::V4(((hi >> 32) as u32).into()),
            IpNet::V6(_) => IpAddr::V6((u128::from(hi) << 64).into()),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_of_different_lengths_have_different_keys() {
        let nets = [
            "10.0.0.0/8",
            "10.0.0.0/9",
            "2001:db8::/32",
            "2001:db8::/33",
            "2001:db8::/65",
            "2001:db8::/128",
            "2001:db8::1/128",
            "2001:db8:0:1::/128",
        ];
        let keys: HashSet<_> = nets.iter().map(|n| slot_key(1, net(n), 42)).collect();
        assert_eq!(keys.len(), nets.len());
        assert!(keys.iter().all(|key| key.ni() == 1 && is_prefix(*key)));
        assert!(!is_prefix(SlotKey::new(crate::abi::KIND_UE6, 1, 7)));
    }

    #[test]
    fn a_length_is_looked_for_as_long_as_a_prefix_has_it() {
        let nis: View<Line> = View::anonymous(2).unwrap();
        let mut lengths = Lengths::new(nis.clone());
        let [a, b] = ["10.1.0.0/16", "10.2.0.0/16"].map(|n| slot_key(1, net(n), 0));
        lengths.join(a);
        lengths.join(b);
        lengths.leave(a);
        assert_eq!(nis[1].load(ni::LENS4), 1 << 16);
        lengths.leave(b);
        assert_eq!(nis[1].load(ni::LENS4), 0);
        for plen in [1, 63, 65, 128] {
            let key = slot_key(1, IpNet::new(net("::/0").addr(), plen).unwrap(), 0);
            lengths.join(key);
            let word = nis[1].load(ni::LENS6 + usize::from(plen > 64));
            assert_eq!(word, 1 << ((plen - 1) % 64), "{plen}");
            lengths.leave(key);
        }
        assert_eq!(nis[0].words(), [0; 8]);
    }

    #[test]
    fn every_part_of_a_prefix_is_sampled() {
        let octets = |text| {
            let octet = |addr: IpAddr| match addr {
                IpAddr::V4(addr) => addr.octets()[0],
                IpAddr::V6(addr) => addr.octets()[3],
            };
            samples(net(text)).map(octet).collect::<Vec<_>>()
        };
        assert_eq!(octets("10.60.0.0/16"), [10]);
        assert_eq!(octets("192.0.0.0/6"), [192, 193, 194, 195]);
        assert_eq!(octets("2001:db8::/31"), [0xb8, 0xb9]);
        assert_eq!(octets("2001:db8:60::/56"), [0xb8]);
        let bits: HashSet<u64> = samples(net("2000::/3"))
            .map(|addr| match addr {
                IpAddr::V6(addr) => ni::ue6_bit((u128::from(addr) >> 64) as u64),
                IpAddr::V4(_) => 0,
            })
            .collect();
        assert_eq!(bits.len(), 64);
    }
}
