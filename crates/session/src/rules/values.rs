//! Values of single IEs that several rules have, as rules have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use compiled::Marking;
use pfcp::IeType;
use pfcp::ie::{ApplyAction, DestinationInterface, OuterHeader, OuterHeaderCreation};

use crate::base::refusal::Refusal;
use crate::rules::site::Site;
use crate::rules::{Apply, Interface, RemoteFTeid, TunnelNetworkId};

/// One of DROP, FORW and BUFF; NOCP goes with BUFF, DUPL with each (TS 29.244, 8.2.26).
pub(crate) fn apply(action: ApplyAction) -> Result<(Apply, bool), Refusal> {
    const BUFF_AND_NOCP: ApplyAction = ApplyAction::BUFF.union(ApplyAction::NOCP);
    let apply = match action.difference(ApplyAction::DUPL) {
        ApplyAction::DROP => Apply::Drop,
        ApplyAction::FORW => Apply::Forward,
        ApplyAction::BUFF => Apply::Buffer { notify: false },
        BUFF_AND_NOCP => Apply::Buffer { notify: true },
        _ => return Err(Refusal::rule(IeType::APPLY_ACTION)),
    };
    Ok((apply, action.contains(ApplyAction::DUPL)))
}

/// Value and mask, an octet each (8.2.12).
pub(crate) fn marking(ie: u16) -> Option<Marking> {
    let [tos, mask] = ie.to_be_bytes();
    (mask != 0).then_some(Marking { tos, mask })
}

/// One of the sides that we serve (8.2.24).
pub(crate) fn destination(ie: DestinationInterface) -> Result<Interface, Refusal> {
    match ie {
        DestinationInterface::Access => Ok(Interface::Access),
        DestinationInterface::Core => Ok(Interface::Core),
        DestinationInterface::SgiLan => Ok(Interface::SgiLan),
        DestinationInterface::CpFunction => Ok(Interface::CpFunction),
        _ => Err(Refusal::rule(IeType::DESTINATION_INTERFACE)),
    }
}

/// GTP-U over IPv4, IPv6, or either, where the choice is ours (8.2.56) among the addresses that can be
/// a gNB's. We need one of our own of the same family. `None`: there can be no such tunnel.
pub(crate) fn tunnel(
    ie: OuterHeaderCreation,
    through: TunnelNetworkId,
    site: &Site,
) -> Result<Option<RemoteFTeid>, Refusal> {
    const BOTH: OuterHeader = OuterHeader::GTPU_UDP_IPV4.union(OuterHeader::GTPU_UDP_IPV6);
    let wrong = Refusal::rule(IeType::OUTER_HEADER_CREATION);
    let gtpu = matches!(
        ie.description,
        OuterHeader::GTPU_UDP_IPV4 | OuterHeader::GTPU_UDP_IPV6 | BOTH
    );
    let teid = ie.teid.filter(|_| gtpu).ok_or(wrong)?;
    let is_other = |addr: IpAddr| !site.has_own_in(addr.into());
    let v4 = (ie.ipv4).filter(|&addr| is_host4(addr) && is_other(addr.into()));
    let v6 = (ie.ipv6).filter(|&addr| is_host6(addr) && is_other(addr.into()));
    let to = NonZeroU32::new(teid).map(|teid| RemoteFTeid::new(teid, v4, v6));
    Ok(to.filter(|to| site.path_to(*to, through, &|_| true).is_some()))
}

/// Whether a UE or a node of the transport network can have it: not of "this network", loopback, link-local, multicast
/// or reserved (RFC 6890).
pub(crate) fn is_host4(addr: Ipv4Addr) -> bool {
    !matches!(addr.octets()[0], 0 | 127 | 224..) && !addr.is_link_local()
}

/// A link-local address says nothing without the link; a mapped one is no address on the wire.
pub(crate) fn is_host6(addr: Ipv6Addr) -> bool {
    let unusable = addr.is_unspecified()
        || addr.is_loopback()
        || addr.is_multicast()
        || addr.is_unicast_link_local()
        || addr.to_ipv4_mapped().is_some();
    !unusable
}
