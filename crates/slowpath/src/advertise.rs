//! Router Advertisements to UEs that ask for their router (RFC 4861, 4.2 and 6.2; TS 23.501, 5.8.2.2.3).

use std::net::Ipv6Addr;

use crate::icmp::packet6;
use crate::inet;

/// This end of every UE's link.
pub(crate) const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const IP6_LEN: usize = 40;
const ICMP6: u8 = 58;
/// Hop limit of a packet that has crossed no router (RFC 4861, 6.1.1).
const HOP_LIMIT: u8 = 255;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;
const RECURSIVE_DNS: u8 = 25;
/// A: addresses may be made of it. Not L: nobody else is on the UE's link.
const AUTONOMOUS: u8 = 0x40;
/// Hop limit that UEs put into their packets.
const CUR_HOP_LIMIT: u8 = 64;
const FOREVER: u32 = u32::MAX;

/// Content of Router Advertisements beside the UE's prefix, which is its own as long as the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// Seconds for which this is their router.
    pub lifetime_s: u16,
    /// MTU of the UEs' link, at least 1280.
    pub mtu: Option<u32>,
    /// Name servers (RFC 8106), as long as the router; at most 127.
    pub dns: Vec<Ipv6Addr>,
}

/// Source of a valid Router Solicitation (RFC 4861, 6.1.1).
pub fn solicitor(packet: &[u8]) -> Option<Ipv6Addr> {
    let header = packet.get(..IP6_LEN)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let message = packet.get(IP6_LEN..IP6_LEN + length)?;
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?);
    let pseudo = [0, 0, header[4], header[5], 0, 0, 0, ICMP6];
    let sum = inet::checksum(&[&header[8..], &pseudo, message].concat());
    let is_solicitation = matches!(message, [ROUTER_SOLICITATION, 0, ..]) && message.len() >= 8;
    let from_link = source.is_unspecified() || source.is_unicast_link_local();
    if header[6] != ICMP6 || header[7] != HOP_LIMIT || sum != 0 || !is_solicitation || !from_link {
        return None;
    }
    let mut options = &message[8..];
    while let [kind, units, ..] = *options {
        let nameless = source.is_unspecified() && kind == SOURCE_LINK_LAYER_ADDRESS;
        if units == 0 || nameless {
            return None;
        }
        options = options.get(usize::from(units) * 8..)?;
    }
    options.is_empty().then_some(source)
}

/// The advertisement for a UE that asked from this address (unspecified: it has none yet). `prefix` is the /64
/// that it makes its addresses of.
pub fn advertisement(what: &Advertised, prefix: Ipv6Addr, asked: Ipv6Addr) -> Option<Vec<u8>> {
    let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, CUR_HOP_LIMIT, 0];
    message.extend(what.lifetime_s.to_be_bytes());
    // Reachable and retransmission time: unspecified.
    message.extend([0; 8]);
    message.extend([PREFIX_INFORMATION, 4, 64, AUTONOMOUS]);
    message.extend(FOREVER.to_be_bytes());
    message.extend(FOREVER.to_be_bytes());
    message.extend([0; 4]);
    message.extend(prefix.octets());
    if let Some(mtu) = what.mtu {
        message.extend([MTU, 1, 0, 0]);
        message.extend(mtu.to_be_bytes());
    }
    if !what.dns.is_empty() {
        let units = u8::try_from(1 + 2 * what.dns.len()).ok()?;
        message.extend([RECURSIVE_DNS, units, 0, 0]);
        message.extend(u32::from(what.lifetime_s).to_be_bytes());
        what.dns.iter().for_each(|dns| message.extend(dns.octets()));
    }
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let to = if asked.is_unspecified() {
        all_nodes
    } else {
        asked
    };
    packet6(own_address(asked), to, HOP_LIMIT, message)
}

/// A link-local address that the UE does not have.
fn own_address(ue: Ipv6Addr) -> Ipv6Addr {
    if ue == LINK_LOCAL {
        Ipv6Addr::from(u128::from(LINK_LOCAL) + 1)
    } else {
        LINK_LOCAL
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

    fn solicitation(source: Ipv6Addr, hop_limit: u8, rest: &[u8]) -> Vec<u8> {
        let mut message = vec![133, 0, 0, 0, 0, 0, 0, 0];
        message.extend(rest);
        packet6(source, ALL_ROUTERS, hop_limit, message).unwrap_or_default()
    }

    #[test]
    fn solicitations_that_rfc_4861_calls_invalid_are_not_answered() {
        let address = [1, 1, 2, 0, 0, 0, 0, 1];
        assert_eq!(solicitor(&solicitation(UE, 255, &[])), Some(UE));
        assert_eq!(solicitor(&solicitation(UE, 255, &address)), Some(UE));
        let nobody = Ipv6Addr::UNSPECIFIED;
        assert_eq!(solicitor(&solicitation(nobody, 255, &[])), Some(nobody));
        assert_eq!(solicitor(&solicitation(nobody, 255, &address)), None);
        assert_eq!(solicitor(&solicitation(UE, 254, &[])), None);
        assert_eq!(
            solicitor(&solicitation(UE, 255, &[14, 0, 0, 0, 0, 0, 0, 0])),
            None
        );
        assert_eq!(
            solicitor(&solicitation(UE, 255, &[14, 2, 0, 0, 0, 0, 0, 0])),
            None
        );
        assert_eq!(solicitor(&solicitation(UE, 255, &[14])), None);
        let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        assert_eq!(solicitor(&solicitation(global, 255, &[])), None);
        let mut corrupt = solicitation(UE, 255, &[]);
        corrupt[44] = 1;
        assert_eq!(solicitor(&corrupt), None);
        assert_eq!(solicitor(&solicitation(UE, 255, &[])[..47]), None);
    }

    #[test]
    fn the_router_is_never_the_ue() {
        let what = Advertised {
            lifetime_s: 1,
            mtu: None,
            dns: Vec::new(),
        };
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);
        let from = |asked| {
            let packet = advertisement(&what, prefix, asked).unwrap_or_default();
            (packet[23], packet[39])
        };
        assert_eq!(from(UE), (1, 0x77));
        assert_eq!(from(LINK_LOCAL), (2, 1));
        assert_eq!(from(Ipv6Addr::UNSPECIFIED), (1, 1));
    }

    proptest! {
        #[test]
        fn any_octets_are_an_answer_or_none(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(solicitor(&octets), None);
        }
    }
}
