//! IEs that name sets of sessions, and the CP functions that take them over.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Error, FromIe, Ie, ToIe};

/// FQ-CSID: sessions that share the fate of some component of a node (TS 29.244, 8.2.45; TS 23.007,
/// 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FqCsid<'a> {
    /// Node-ID Type: 0 IPv4 address, 1 IPv6 address, 2 MCC, MNC and a number of the operator's.
    pub node_type: u8,
    /// Node that gives out the CSIDs: 4 octets, or 16 for type 1.
    pub node: &'a [u8],
    /// Each two octets.
    csids: &'a [u8],
}

impl<'a> FqCsid<'a> {
    /// The CSIDs, in network order as sent.
    pub fn csids(self) -> impl Iterator<Item = [u8; 2]> + use<'a> {
        self.csids
            .chunks_exact(2)
            .filter_map(|csid| csid.try_into().ok())
    }
}

impl<'a> FromIe<'a> for FqCsid<'a> {
    fn from_ie(ie: &Ie<'a>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let octet = reader.u8()?;
        let node_type = octet >> 4;
        let node = match node_type {
            0 | 2 => reader.take(4)?,
            1 => reader.take(16)?,
            other => return Err(ie.wrong("FQ-CSID Node-ID Type 0, 1 or 2", other)),
        };
        let csids = reader.take(2 * usize::from(octet & 0x0f))?;
        Ok(Self {
            node_type,
            node,
            csids,
        })
    }
}

/// One or two addresses of a CP function: CP IP Address (8.2.199), or Alternative SMF IP Address
/// (8.2.124).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpAddress {
    /// At least one of the addresses is present.
    pub ipv4: Option<Ipv4Addr>,
    /// See above.
    pub ipv6: Option<Ipv6Addr>,
}

impl CpAddress {
    /// The addresses, IPv4 first.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.ipv4.map(IpAddr::V4);
        v4.into_iter().chain(self.ipv6.map(IpAddr::V6))
    }
}

impl FromIe<'_> for CpAddress {
    fn from_ie(ie: &Ie<'_>) -> Result<Self, Error> {
        let mut reader = ie.reader();
        let flags = reader.u8()?;
        if flags & 3 == 0 {
            return Err(ie.wrong("flag V4 or V6", flags));
        }
        let ipv4 = reader.ipv4_if(flags & 2 != 0)?;
        let ipv6 = reader.ipv6_if(flags & 1 != 0)?;
        Ok(Self { ipv4, ipv6 })
    }
}

impl ToIe for CpAddress {
    fn to_ie(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.ipv6.is_some()) | u8::from(self.ipv4.is_some()) << 1);
        out.extend(self.ipv4.iter().flat_map(Ipv4Addr::octets));
        out.extend(self.ipv6.iter().flat_map(Ipv6Addr::octets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IeType;

    fn ie(ie_type: IeType, value: &[u8]) -> Ie<'_> {
        Ie {
            ie_type,
            enterprise: None,
            value,
            offset: 0,
        }
    }

    #[test]
    fn fq_csids_of_each_node_id_type() {
        let octets = [0x02, 10, 100, 0, 2, 0x12, 0x34, 0, 7, 0xff];
        let set = FqCsid::from_ie(&ie(IeType::FQ_CSID, &octets)).unwrap();
        assert_eq!((set.node_type, set.node), (0, &[10, 100, 0, 2][..]));
        assert_eq!(
            set.csids().collect::<Vec<_>>(),
            [[0x12, 0x34], [0, 7]],
            "the Node Type behind them is not a CSID"
        );
        let mut v6 = vec![0x11];
        v6.extend([0x20; 16]);
        assert!(
            FqCsid::from_ie(&ie(IeType::FQ_CSID, &v6)).is_err(),
            "a CSID is missing"
        );
        v6.extend([1, 1]);
        assert_eq!(
            FqCsid::from_ie(&ie(IeType::FQ_CSID, &v6)).unwrap().node,
            [0x20; 16]
        );
        assert!(FqCsid::from_ie(&ie(IeType::FQ_CSID, &[0x31, 0, 0, 0, 0, 0, 0])).is_err());
        assert!(FqCsid::from_ie(&ie(IeType::FQ_CSID, &[])).is_err());
    }

    #[test]
    fn addresses_of_a_cp_function() {
        let both = [&[3, 10, 0, 0, 1][..], &[0xfd; 16]].concat();
        let address = CpAddress::from_ie(&ie(IeType::CP_IP_ADDRESS, &both)).unwrap();
        assert_eq!(address.addresses().count(), 2);
        let mut out = Vec::new();
        address.to_ie(&mut out);
        assert_eq!(out, both);
        assert!(CpAddress::from_ie(&ie(IeType::CP_IP_ADDRESS, &[0, 1, 2, 3, 4])).is_err());
        assert!(CpAddress::from_ie(&ie(IeType::CP_IP_ADDRESS, &[1, 1, 2, 3, 4])).is_err());
    }
}
