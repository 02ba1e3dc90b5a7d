//! IEs that carry addresses and tunnel ends.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{DestinationInterface, NetworkInstance, OuterHeader};
use crate::{Error, FromIe, Ie, ToIe};

fn put_ipv4(address: Option<Ipv4Addr>, out: &mut Vec<u8>) {
    out.extend(address.iter().flat_map(Ipv4Addr::octets));
}

fn put_ipv6(address: Option<Ipv6Addr>, out: &mut Vec<u8>) {
    out.extend(address.iter().flat_map(Ipv6Addr::octets));
}

/// F-TEID (8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FTeid {
    /// A tunnel end that somebody has chosen.
    Given {
        /// As sent: zero is possible here.
        teid: u32,
        /// At least one of the addresses is present.
        ipv4: Option<Ipv4Addr>,
        /// See above.
        ipv6: Option<Ipv6Addr>,
    },
    /// CHOOSE: the UP function chooses one.
    Choose {
        /// With an IPv4 address.
        ipv4: bool,
        /// With an IPv6 address.
        ipv6: bool,
        /// CHOOSE ID: equal ones in a message get the same F-TEID.
        choose_id: Option<u8>,
    },
}

impl FromIe<'_> for FTeid {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        let (v4, v6) = (flags & 1 != 0, flags & 2 != 0);
        let (choose, with_id) = (flags & 4 != 0, flags & 8 != 0);
        if choose {
            let choose_id = with_id.then(|| reader.u8()).transpose()?;
            // One of the flags shall be set (8.2.3), but SD-Core's SMF sets neither: whatever there is, then.
            let any = !(v4 || v6);
            return Ok(Self::Choose {
                ipv4: v4 || any,
                ipv6: v6 || any,
                choose_id,
            });
        }
        if !(v4 || v6) {
            return Err(ie.wrong("F-TEID flag V4 or V6", flags));
        }
        if with_id {
            return Err(ie.wrong("F-TEID flag CHID only with CH", flags));
        }
        let teid = reader.u32()?;
        Ok(Self::Given {
            teid,
            ipv4: reader.ipv4_if(v4)?,
            ipv6: reader.ipv6_if(v6)?,
        })
    }
}

impl ToIe for FTeid {
    fn to_ie(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Given { teid, ipv4, ipv6 } => {
                out.push(u8::from(ipv4.is_some()) | u8::from(ipv6.is_some()) << 1);
                out.extend_from_slice(&teid.to_be_bytes());
                put_ipv4(ipv4, out);
                put_ipv6(ipv6, out);
            }
            Self::Choose {
                ipv4,
                ipv6,
                choose_id,
            } => {
                let flags = u8::from(ipv4) | u8::from(ipv6) << 1 | 4;
                out.push(flags | u8::from(choose_id.is_some()) << 3);
                out.extend(choose_id);
            }
        }
    }
}

/// F-SEID (8.2.37).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FSeid {
    /// The sender's name for the session.
    pub seid: u64,
    /// At least one of the addresses is present.
    pub ipv4: Option<Ipv4Addr>,
    /// See above.
    pub ipv6: Option<Ipv6Addr>,
}

impl FromIe<'_> for FSeid {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        if flags & 3 == 0 {
            return Err(ie.wrong("F-SEID flag V4 or V6", flags));
        }
        let seid = reader.u64()?;
        let ipv4 = reader.ipv4_if(flags & 2 != 0)?;
        Ok(Self {
            seid,
            ipv4,
            ipv6: reader.ipv6_if(flags & 1 != 0)?,
        })
    }
}

impl ToIe for FSeid {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.ipv6.is_some()) | u8::from(self.ipv4.is_some()) << 1);
        out.extend_from_slice(&self.seid.to_be_bytes());
        put_ipv4(self.ipv4, out);
        put_ipv6(self.ipv6, out);
    }
}

/// UE IP Address (8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UeIpAddress {
    /// Given IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Given IPv6 address or prefix.
    pub ipv6: Option<Ipv6Addr>,
    /// S/D flag: the destination address of packets matches, otherwise the source.
    pub destination: bool,
    /// IPv6 Prefix Delegation Bits: how many bits shorter than 64 the delegated prefix is.
    pub delegation_bits: Option<u8>,
    /// CHV4: the UP function chooses the IPv4 address.
    pub choose_ipv4: bool,
    /// CHV6: the UP function chooses the IPv6 prefix.
    pub choose_ipv6: bool,
    /// IPv6 Prefix Length; absent means 64.
    pub prefix_length: Option<u8>,
}

impl FromIe<'_> for UeIpAddress {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        let has = |bit: u8| flags & 1 << bit != 0;
        let (v6, v4, choose_ipv4, choose_ipv6) = (has(0), has(1), has(4), has(5));
        if v4 && choose_ipv4 || v6 && choose_ipv6 {
            return Err(ie.wrong("an address or CHOOSE, not both", flags));
        }
        if has(3) && has(6) {
            return Err(ie.wrong("flag IPv6D or IP6PL, not both", flags));
        }
        if (has(3) || has(6)) && !(v6 || choose_ipv6) {
            return Err(ie.wrong("flag IPv6D or IP6PL only with V6 or CHV6", flags));
        }
        let ipv4 = reader.ipv4_if(v4)?;
        let ipv6 = reader.ipv6_if(v6)?;
        let delegation_bits = has(3).then(|| reader.u8()).transpose()?;
        let prefix_length = has(6).then(|| reader.u8()).transpose()?;
        if let Some(length @ 129..) = prefix_length {
            return Err(ie.wrong("a prefix length of at most 128", length));
        }
        if let Some(bits @ 65..) = delegation_bits {
            return Err(ie.wrong("at most 64 prefix delegation bits", bits));
        }
        Ok(Self {
            ipv4,
            ipv6,
            destination: has(2),
            delegation_bits,
            choose_ipv4,
            choose_ipv6,
            prefix_length,
        })
    }
}

impl ToIe for UeIpAddress {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let flags = [
            self.ipv6.is_some(),
            self.ipv4.is_some(),
            self.destination,
            self.delegation_bits.is_some(),
            self.choose_ipv4,
            self.choose_ipv6,
            self.prefix_length.is_some(),
        ];
        out.push(
            flags
                .iter()
                .rev()
                .fold(0, |octet, flag| octet << 1 | u8::from(*flag)),
        );
        put_ipv4(self.ipv4, out);
        put_ipv6(self.ipv6, out);
        out.extend(self.delegation_bits);
        out.extend(self.prefix_length);
    }
}

/// Outer Header Creation (8.2.56).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterHeaderCreation {
    /// Which headers to create.
    pub description: OuterHeader,
    /// With GTP-U.
    pub teid: Option<u32>,
    /// With IPv4.
    pub ipv4: Option<Ipv4Addr>,
    /// With IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// With UDP and no GTP-U.
    pub port: Option<u16>,
    /// With C-TAG: its three octets (8.2.94).
    pub c_tag: Option<u32>,
    /// With S-TAG: its three octets (8.2.95).
    pub s_tag: Option<u32>,
}

impl OuterHeaderCreation {
    const GTPU: OuterHeader = OuterHeader::GTPU_UDP_IPV4.union(OuterHeader::GTPU_UDP_IPV6);
    const UDP: OuterHeader = OuterHeader::UDP_IPV4.union(OuterHeader::UDP_IPV6);
    const WITH_IPV4: OuterHeader = OuterHeader::GTPU_UDP_IPV4
        .union(OuterHeader::UDP_IPV4)
        .union(OuterHeader::IPV4);
    const WITH_IPV6: OuterHeader = OuterHeader::GTPU_UDP_IPV6
        .union(OuterHeader::UDP_IPV6)
        .union(OuterHeader::IPV6);
    const KNOWN: OuterHeader = OuterHeader::all();
}

impl FromIe<'_> for OuterHeaderCreation {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let description = OuterHeader::from_bits_retain(u16::from_le_bytes(reader.chunk()?));
        let bits = description.bits();
        if bits == 0 || !Self::KNOWN.contains(description) {
            return Err(ie.wrong(
                "a known Outer Header Creation Description",
                bits.swap_bytes(),
            ));
        }
        let with = |any: OuterHeader| description.intersects(any);
        Ok(Self {
            description,
            teid: with(Self::GTPU).then(|| reader.u32()).transpose()?,
            ipv4: reader.ipv4_if(with(Self::WITH_IPV4))?,
            ipv6: reader.ipv6_if(with(Self::WITH_IPV6))?,
            port: with(Self::UDP).then(|| reader.u16()).transpose()?,
            c_tag: with(OuterHeader::C_TAG).then(|| reader.u24()).transpose()?,
            s_tag: with(OuterHeader::S_TAG).then(|| reader.u24()).transpose()?,
        })
    }
}

impl ToIe for OuterHeaderCreation {
    /// `description` says which of the others are sent; one that is absent is sent as zeros.
    fn to_ie(&self, out: &mut Vec<u8>) {
        let with = |any: OuterHeader| self.description.intersects(any);
        let tag = |tag: Option<u32>| {
            let [_, octets @ ..] = tag.unwrap_or_default().to_be_bytes();
            octets
        };
        out.extend_from_slice(&self.description.bits().to_le_bytes());
        if with(Self::GTPU) {
            out.extend_from_slice(&self.teid.unwrap_or_default().to_be_bytes());
        }
        if with(Self::WITH_IPV4) {
            put_ipv4(self.ipv4.or(Some(Ipv4Addr::UNSPECIFIED)), out);
        }
        if with(Self::WITH_IPV6) {
            put_ipv6(self.ipv6.or(Some(Ipv6Addr::UNSPECIFIED)), out);
        }
        if with(Self::UDP) {
            out.extend_from_slice(&self.port.unwrap_or_default().to_be_bytes());
        }
        if with(OuterHeader::C_TAG) {
            out.extend_from_slice(&tag(self.c_tag));
        }
        if with(OuterHeader::S_TAG) {
            out.extend_from_slice(&tag(self.s_tag));
        }
    }
}

/// Outer Header Removal (8.2.64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterHeaderRemoval {
    /// Outer Header Removal Description; the constants are its values.
    pub description: u8,
    /// GTP-U Extension Header Deletion, where it was sent: bit 0 is the PDU Session Container.
    pub extension_header_deletion: Option<u8>,
}

impl OuterHeaderRemoval {
    /// GTP-U/UDP/IPv4.
    pub const GTPU_UDP_IPV4: u8 = 0;
    /// GTP-U/UDP/IPv6.
    pub const GTPU_UDP_IPV6: u8 = 1;
    /// UDP/IPv4.
    pub const UDP_IPV4: u8 = 2;
    /// UDP/IPv6.
    pub const UDP_IPV6: u8 = 3;
    /// IPv4.
    pub const IPV4: u8 = 4;
    /// IPv6.
    pub const IPV6: u8 = 5;
    /// GTP-U/UDP/IP, whichever version.
    pub const GTPU_UDP_IP: u8 = 6;
    /// VLAN S-TAG.
    pub const S_TAG: u8 = 7;
    /// S-TAG and C-TAG.
    pub const S_TAG_AND_C_TAG: u8 = 8;
}

impl FromIe<'_> for OuterHeaderRemoval {
    #[inline]
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let description = ie.reader().u8()?;
        if description > Self::S_TAG_AND_C_TAG {
            return Err(ie.wrong("Outer Header Removal Description 0 to 8", description));
        }
        Ok(Self {
            description,
            extension_header_deletion: ie.value.get(1).copied(),
        })
    }
}

impl ToIe for OuterHeaderRemoval {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(self.description);
        out.extend(self.extension_header_deletion);
    }
}

/// Remote GTP-U Peer (8.2.70).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteGtpUPeer<'a> {
    /// At least one of the addresses is present.
    pub ipv4: Option<Ipv4Addr>,
    /// See above.
    pub ipv6: Option<Ipv6Addr>,
    /// On which side the peer is.
    pub destination_interface: Option<DestinationInterface>,
    /// In which network the peer is.
    pub network_instance: Option<NetworkInstance<'a>>,
}

impl<'a> FromIe<'a> for RemoteGtpUPeer<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        if flags & 3 == 0 {
            return Err(ie.wrong("Remote GTP-U Peer flag V4 or V6", flags));
        }
        let ipv4 = reader.ipv4_if(flags & 2 != 0)?;
        let ipv6 = reader.ipv6_if(flags & 1 != 0)?;
        let mut counted = |present: bool| {
            let length = present.then(|| reader.u16()).transpose()?;
            length.map(|length| reader.take(length.into())).transpose()
        };
        let destination_interface = match counted(flags & 4 != 0)? {
            Some(&[octet, ..]) => Some(DestinationInterface::from_octet(ie, octet)?),
            Some([]) => return Err(ie.wrong("one octet of Destination Interface", 0u8)),
            None => None,
        };
        let network_instance = counted(flags & 8 != 0)?.map(NetworkInstance::new);
        Ok(Self {
            ipv4,
            ipv6,
            destination_interface,
            network_instance,
        })
    }
}

impl ToIe for RemoteGtpUPeer<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(
            u8::from(self.ipv6.is_some())
                | u8::from(self.ipv4.is_some()) << 1
                | u8::from(self.destination_interface.is_some()) << 2
                | u8::from(self.network_instance.is_some()) << 3,
        );
        put_ipv4(self.ipv4, out);
        put_ipv6(self.ipv6, out);
        if let Some(interface) = self.destination_interface {
            out.extend_from_slice(&[0, 1, interface.to_octet()]);
        }
        if let Some(name) = self.network_instance {
            out.extend_from_slice(&(name.as_bytes().len() as u16).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
        }
    }
}
