//! IEs that describe a node.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{DnsName, NetworkInstance, SourceInterface};
use crate::{Error, FromIe, Ie, ToIe};

/// Node ID (8.2.38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeId<'a> {
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// A name, in labels.
    Fqdn(DnsName<'a>),
}

impl From<IpAddr> for NodeId<'_> {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::Ipv4(address),
            IpAddr::V6(address) => Self::Ipv6(address),
        }
    }
}

impl fmt::Display for NodeId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(address) => address.fmt(f),
            Self::Ipv6(address) => address.fmt(f),
            Self::Fqdn(name) => name.fmt(f),
        }
    }
}

impl<'a> FromIe<'a> for NodeId<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        match reader.u8()? & 0x0f {
            0 => Ok(Self::Ipv4(reader.chunk::<4>()?.into())),
            1 => Ok(Self::Ipv6(reader.chunk::<16>()?.into())),
            2 => match reader.rest() {
                [] => Err(ie.too_short(1)),
                name => Ok(Self::Fqdn(DnsName(name))),
            },
            other => Err(ie.wrong("Node ID Type 0, 1 or 2", other)),
        }
    }
}

impl ToIe for NodeId<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ipv4(address) => {
                out.push(0);
                out.extend_from_slice(&address.octets());
            }
            Self::Ipv6(address) => {
                out.push(1);
                out.extend_from_slice(&address.octets());
            }
            Self::Fqdn(name) => {
                out.push(2);
                out.extend_from_slice(name.0);
            }
        }
    }
}

/// User Plane IP Resource Information (8.2.82).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserPlaneIpResourceInformation<'a> {
    /// How many leading bits of a TEID are fixed (0 to 7), and, in the uppermost bits of an octet,
    /// what they are.
    pub teid_range: Option<(u8, u8)>,
    /// GTP-U address.
    pub ipv4: Option<Ipv4Addr>,
    /// GTP-U address.
    pub ipv6: Option<Ipv6Addr>,
    /// Network in which the addresses are valid.
    pub network_instance: Option<NetworkInstance<'a>>,
    /// Interface that they are for.
    pub source_interface: Option<SourceInterface>,
}

impl<'a> FromIe<'a> for UserPlaneIpResourceInformation<'a> {
    #[inline]
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        let range_bits = flags >> 2 & 7;
        let teid_range = match range_bits {
            0 => None,
            bits => Some((bits, reader.u8()?)),
        };
        let ipv4 = reader.ipv4_if(flags & 1 != 0)?;
        let ipv6 = reader.ipv6_if(flags & 2 != 0)?;
        let mut rest = reader.rest();
        let mut source_interface = None;
        if flags & 0x40 != 0 {
            let Some((&interface, before)) = rest.split_last() else {
                return Err(ie.too_short(1));
            };
            source_interface = Some(SourceInterface::from_octet(ie, interface)?);
            rest = before;
        }
        let network_instance = (flags & 0x20 != 0).then(|| NetworkInstance::new(rest));
        Ok(Self {
            teid_range,
            ipv4,
            ipv6,
            network_instance,
            source_interface,
        })
    }
}

impl ToIe for UserPlaneIpResourceInformation<'_> {
    fn to_ie(&self, out: &mut Vec<u8>) {
        let range_bits = self.teid_range.map_or(0, |(bits, _)| bits & 7);
        out.push(
            u8::from(self.ipv4.is_some())
                | u8::from(self.ipv6.is_some()) << 1
                | range_bits << 2
                | u8::from(self.network_instance.is_some()) << 5
                | u8::from(self.source_interface.is_some()) << 6,
        );
        if range_bits > 0 {
            out.extend(self.teid_range.map(|(_, range)| range));
        }
        out.extend(self.ipv4.iter().flat_map(Ipv4Addr::octets));
        out.extend(self.ipv6.iter().flat_map(Ipv6Addr::octets));
        out.extend(
            self.network_instance
                .iter()
                .flat_map(NetworkInstance::as_bytes),
        );
        out.extend(self.source_interface.map(SourceInterface::to_octet));
    }
}
