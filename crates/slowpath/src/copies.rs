//! Duplicates of packets (FARs with DUPL), made of what the data path hands over for them.

use tables::copies::Destination;

use crate::gtpu::{self, GTPU_PORT, Outer};
use crate::outgoing::Outgoing;

/// The user's packet behind its destination.
pub(crate) fn user(data: &[u8]) -> &[u8] {
    Destination::parse(data).map_or(&[], |(_, user)| user)
}

/// Data is a [`Destination`] and the user's packet. `None`: it is not, or is too long for an outer header.
pub(crate) fn duplicate(data: &[u8]) -> Option<Outgoing> {
    let (to, user) = Destination::parse(data)?;
    let mut payload = Vec::with_capacity(8 + 8 + user.len());
    if to.udp_port.is_none() {
        payload.extend([0x30, 255]);
        payload.extend(u16::try_from(user.len()).ok()?.to_be_bytes());
        payload.extend(to.teid.to_be_bytes());
    }
    payload.extend_from_slice(user);
    let outer = Outer {
        local: to.local,
        remote: to.remote,
        tos: to.tos,
        teid: to.teid,
    };
    let datagram = gtpu::udp(to.udp_port.unwrap_or(GTPU_PORT), &payload)?;
    let packet = match to.is_ipv6 {
        false => outer.over4(&datagram)?,
        true => outer.over6(datagram)?,
    };
    // As the kernel's routes say.
    Some(Outgoing::by_kernel(0, packet))
}
