//! Ends of tunnels, as Outer Header Creation and F-TEIDs name them.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::outer_header_creation::{OuterHeaderCreation, OuterHeaderCreationFlags};
use rs_pfcp::types::Teid;

use crate::ue::Addresses;

/// An end of a tunnel with an address of one family or of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelEnd {
    /// Where.
    pub addresses: Addresses,
    /// TEID.
    pub teid: u32,
}

impl TunnelEnd {
    /// An end with one address.
    pub fn at(address: impl Into<IpAddr>, teid: u32) -> Self {
        Self::with([address.into()], teid)
    }

    /// An end with these addresses, at most one of each family.
    pub fn with(addresses: impl IntoIterator<Item = IpAddr>, teid: u32) -> Self {
        let mut end = Self {
            addresses: Addresses::default(),
            teid,
        };
        for address in addresses {
            match address {
                IpAddr::V4(v4) => end.addresses.v4 = Some(v4),
                IpAddr::V6(v6) => end.addresses.v6 = Some(v6),
            }
        }
        end
    }

    /// Addresses and TEID of an F-TEID.
    pub(super) fn of(f_teid: &Fteid) -> Self {
        Self {
            addresses: Addresses {
                v4: f_teid.ipv4_address,
                v6: f_teid.ipv6_address,
            },
            teid: f_teid.teid.0,
        }
    }

    /// Its IPv4 address, if it has one, and TEID.
    pub fn preferred(&self) -> Result<(IpAddr, u32)> {
        let first = self.addresses.all().first().copied();
        Ok((first.context("an F-TEID without an address")?, self.teid))
    }

    /// Outer Header Creation: description 0x0100, 0x0200 or 0x0300.
    pub fn header(&self) -> OuterHeaderCreation {
        let Addresses { v4, v6 } = self.addresses;
        OuterHeaderCreation {
            teid: Some(Teid(self.teid)),
            ipv4_address: v4,
            ipv6_address: v6,
            ..OuterHeaderCreation::new(OuterHeaderCreationFlags {
                gtpu_udp_ipv4: v4.is_some(),
                gtpu_udp_ipv6: v6.is_some(),
                ..OuterHeaderCreationFlags::new()
            })
        }
    }
}

impl From<(IpAddr, u32)> for TunnelEnd {
    fn from((address, teid): (IpAddr, u32)) -> Self {
        Self::at(address, teid)
    }
}

impl From<(Ipv4Addr, u32)> for TunnelEnd {
    fn from((address, teid): (Ipv4Addr, u32)) -> Self {
        Self::at(address, teid)
    }
}
