//! DUPL and Duplicating Parameters of a FAR: from IEs to rules.

use std::num::NonZeroU32;

use compiled::DUPLICATES_MAX;
use pfcp::ie::{CreateFar, DestinationInterface, OuterHeader, OuterHeaderCreation, UpdateFar};
use pfcp::{Cause, IeType};

use crate::base::refusal::Refusal;
use crate::rules::site::Site;
use crate::rules::unsupported::{IN_DUPLICATING, refuse};
use crate::rules::values::{apply, destination, is_host4, is_host6, marking, tunnel};
use crate::rules::{Duplicates, Duplicating, Far, Interface, RemoteFTeid, TunnelNetworkId};

/// Duplicates of a new FAR. `on`: DUPL.
pub(crate) fn create(
    far: &mut Far,
    on: bool,
    ie: &CreateFar<'_>,
    site: &Site,
) -> Result<(), Refusal> {
    let mut to = Vec::new();
    for ie in &ie.duplicating_parameters {
        let ie = ie?;
        refuse(&IN_DUPLICATING, ie.ies)?;
        let given = (Some(ie.destination_interface), ie.outer_header_creation);
        to.push(duplicating(None, given, ie.transport_level_marking, site)?);
    }
    set(far, on, to)
}

/// Apply Action and Update Duplicating Parameters. Where as many come as there are, each changes one of them; else they
/// take the place of all.
pub(crate) fn update(far: &mut Far, ie: &UpdateFar<'_>, site: &Site) -> Result<(), Refusal> {
    let before = far.kept_duplicates();
    let mut duplicate = before.on;
    if let Some(action) = ie.apply_action {
        (far.apply, duplicate) = apply(action)?;
    }
    let updates = &ie.update_duplicating_parameters;
    if updates.is_empty() {
        return set(far, duplicate, before.to);
    }
    let one_by_one = updates.len() == before.to.len();
    let mut duplicates = Vec::new();
    for (index, ie) in updates.iter().enumerate() {
        let ie = ie?;
        refuse(&IN_DUPLICATING, ie.ies)?;
        let changed = before.to.get(index).filter(|_| one_by_one);
        let given = (ie.destination_interface, ie.outer_header_creation);
        let marking = ie.transport_level_marking;
        duplicates.push(duplicating(changed, given, marking, site)?);
    }
    set(far, duplicate, duplicates)
}

fn set(far: &mut Far, on: bool, to: Vec<Duplicating>) -> Result<(), Refusal> {
    if to.len() > DUPLICATES_MAX {
        return Err(Refusal::no_room(IeType::DUPLICATING_PARAMETERS));
    }
    if on && to.is_empty() {
        return Err(Refusal::ie(
            Cause::CONDITIONAL_IE_MISSING,
            IeType::DUPLICATING_PARAMETERS,
        ));
    }
    if on || !to.is_empty() || !far.duplicates().is_empty() {
        far.set_duplicates(Duplicates { on, to });
    }
    Ok(())
}

/// Destination of duplicates: Destination Interface, among them a lawful interception function, and Outer Header Creation,
/// without which there is no way there.
fn duplicating(
    before: Option<&Duplicating>,
    (to, header): (Option<DestinationInterface>, Option<OuterHeaderCreation>),
    transport_level_marking: Option<u16>,
    site: &Site,
) -> Result<Duplicating, Refusal> {
    let missing = |ie| Refusal::ie(Cause::CONDITIONAL_IE_MISSING, ie);
    let through = match (to, before) {
        (Some(DestinationInterface::LiFunction), _) => {
            site.tunnel_network(Interface::CpFunction, None, None)
        }
        (Some(to), _) => site.tunnel_network(destination(to)?, None, None),
        (None, Some(before)) => before.through,
        (None, None) => return Err(missing(IeType::DESTINATION_INTERFACE)),
    };
    let (to, udp) = match (header, before) {
        (Some(header), _) if is_plain_udp(&header) => (udp_end(&header, through, site)?, true),
        (Some(header), _) => {
            let to = tunnel(header, through, site)?;
            let wrong = Refusal::rule(IeType::OUTER_HEADER_CREATION);
            (to.ok_or(wrong)?, false)
        }
        (None, Some(before)) => (before.to, before.udp),
        (None, None) => return Err(missing(IeType::OUTER_HEADER_CREATION)),
    };
    let marking = match transport_level_marking {
        None => before.and_then(|before| before.marking),
        Some(given) => marking(given),
    };
    Ok(Duplicating {
        to,
        udp,
        through,
        marking,
    })
}

/// Over IPv4, IPv6, or either, where the choice is ours.
pub(crate) fn is_plain_udp(ie: &OuterHeaderCreation) -> bool {
    const UDP: OuterHeader = OuterHeader::UDP_IPV4.union(OuterHeader::UDP_IPV6);
    !ie.description.is_empty() && UDP.contains(ie.description)
}

/// UDP without GTP-U (8.2.56). The port takes the TEID's place.
pub(crate) fn udp_end(
    ie: &OuterHeaderCreation,
    through: TunnelNetworkId,
    site: &Site,
) -> Result<RemoteFTeid, Refusal> {
    let wrong = Refusal::rule(IeType::OUTER_HEADER_CREATION);
    let port = ie.port.map(u32::from).and_then(NonZeroU32::new);
    let to = RemoteFTeid::new(
        port.ok_or(wrong)?,
        ie.ipv4.filter(|&addr| is_host4(addr)),
        ie.ipv6.filter(|&addr| is_host6(addr)),
    );
    site.path_to(to, through, &|_| true).ok_or(wrong)?;
    Ok(to)
}
