//! Framed routes (TS 29.244, 5.16): networks behind a UE.
//!
//! The IEs hold the text of the RADIUS attributes: a prefix, a gateway and metrics (RFC 2865, 5.22; RFC 3162,
//! 2.5). There is one way to the UE, so that gateway and metrics mean nothing here.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::base::prefix_set::overlap;

/// Of a Framed-Route (8.2.109). `None`: there is no prefix, or none that can lie behind a UE.
pub(crate) fn route4(text: &[u8]) -> Option<IpNet> {
    let (addr, plen) = split(text)?;
    let addr: Ipv4Addr = addr.parse().ok()?;
    let net = Ipv4Net::new(addr, plen.map_or(Ok(class_len(addr)), str::parse).ok()?).ok()?;
    is_usable4(net).then(|| net.trunc().into())
}

/// Of a Framed-IPv6-Route (8.2.111). `None`: as above.
pub(crate) fn route6(text: &[u8]) -> Option<IpNet> {
    let (addr, plen) = split(text)?;
    let addr: Ipv6Addr = addr.parse().ok()?;
    let net = Ipv6Net::new(addr, plen.map_or(Ok(128), str::parse).ok()?).ok()?;
    is_usable6(net).then(|| net.trunc().into())
}

/// Whether all of these addresses can be behind a UE.
pub(crate) fn is_usable4(net: Ipv4Net) -> bool {
    let blocks = [
        // "This network" (RFC 1122, 3.2.1.3).
        Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8),
        Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8),
        // Link-local (RFC 3927).
        Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),
        // Multicast, class E and the limited broadcast.
        Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 3),
    ];
    blocks
        .iter()
        .all(|block| !overlap((*block).into(), net.into()))
}

/// Whether a UE, or what is behind it, can have these addresses.
pub(crate) fn is_usable6(net: Ipv6Net) -> bool {
    let blocks = [
        // Unspecified and loopback.
        Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 127),
        // IPv4-mapped (RFC 4291, 2.5.5.2).
        Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
        Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
        Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
    ];
    blocks
        .iter()
        .all(|block| !overlap((*block).into(), net.into()))
}

/// Address and length of the first word.
fn split(text: &[u8]) -> Option<(&str, Option<&str>)> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\0');
    let prefix = text.split_ascii_whitespace().next()?;
    Some(match prefix.split_once('/') {
        Some((addr, plen)) => (addr, Some(plen)),
        None => (prefix, None),
    })
}

/// The length that an IPv4 prefix has where none is given (RFC 2865, 5.22).
fn class_len(addr: Ipv4Addr) -> u8 {
    match addr.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> Option<IpNet> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_route_is_its_prefix() {
        for (text, prefix) in [
            ("192.168.1.0/24 192.168.1.1 1", "192.168.1.0/24"),
            ("192.168.1.0/24 0.0.0.0 1 2 -1 3 400", "192.168.1.0/24"),
            ("203.0.113.7/32", "203.0.113.7/32"),
            ("10.1.2.3/16 0.0.0.0 1\0", "10.1.0.0/16"),
            ("10.1.2.3 0.0.0.0 1", "10.0.0.0/8"),
            ("172.16.1.0 0.0.0.0 1", "172.16.0.0/16"),
            ("192.168.1.0", "192.168.1.0/24"),
        ] {
            assert_eq!(route4(text.as_bytes()), net(prefix), "{text}");
        }
        let text = b"2001:db8:7::/48 2001:db8::1 1";
        assert_eq!(route6(text), net("2001:db8:7::/48"));
        assert_eq!(route6(b"2001:db8:7::1"), net("2001:db8:7::1/128"));
    }

    #[test]
    fn what_is_no_route_is_none() {
        for text in [
            "",
            " ",
            "\0",
            "0.0.0.0/0",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/x",
            "127.0.0.0/8",
            "0.0.0.0/1",
            "126.0.0.0/7",
            "128.0.0.0/1",
            "0.1.2.0/24",
            "169.0.0.0/8",
            "224.0.0.0/4",
            "240.0.0.0/8",
            "2001:db8::/32",
            "10.0.0.0/-1",
        ] {
            assert_eq!(route4(text.as_bytes()), None, "{text}");
        }
        for text in [
            "",
            "::/0",
            "::1/128",
            "::/1",
            "8000::/1",
            "ff00::/8",
            "fe80::/64",
            "2001:db8::/129",
            "10.0.0.0/8",
        ] {
            assert_eq!(route6(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (route4(&text), route6(&text));
        }
    }
}
