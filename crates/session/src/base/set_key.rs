//! Names of sets of sessions: FQ-CSIDs, groups, the CP function that controls them (TS 29.244, 5.22; TS 23.007, 23).

use std::net::IpAddr;

use pfcp::ie::{CpAddress, FqCsid};
use serde::{Deserialize, Serialize};

/// A set, in octets: its kind, then what names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct SetKey(Box<[u8]>);

impl SetKey {
    /// One for each CSID.
    pub(crate) fn fq_csid(set: FqCsid<'_>) -> impl Iterator<Item = Self> {
        let (node_type, node) = (set.node_type, set.node);
        set.csids().map(move |csid| {
            let octets = [&[0, node_type][..], node, &csid].concat();
            Self(octets.into())
        })
    }

    pub(crate) fn group(group_id: &[u8]) -> Self {
        Self([&[1], group_id].concat().into())
    }

    /// Sessions that another address than their association's controls.
    pub(crate) fn cp_address(address: IpAddr) -> Self {
        let octets = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self([&[2][..], &octets].concat().into())
    }
}

/// The keys of a CP IP Address selector.
pub(crate) fn cp_keys(address: CpAddress) -> impl Iterator<Item = SetKey> {
    address.addresses().map(SetKey::cp_address)
}
