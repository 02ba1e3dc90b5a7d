//! FARs with DUPL, or into UDP alone, by hand: rs-pfcp 0.5 has one destination and no markings.

use std::net::IpAddr;

use rs_pfcp::ie::{Ie, IeType};

use super::TunnelEnd;

/// Destination Interface (TS 29.244, 8.2.24): LI function.
const LI_FUNCTION: u8 = 4;

fn update_far(id: u32, mut members: Vec<Ie>) -> Ie {
    members.insert(0, Ie::new(IeType::FarId, id.to_be_bytes().to_vec()));
    Ie::new_grouped(IeType::UpdateFar, members)
}

/// An Update FAR: this Apply Action, with DUPL (0x10) or without.
pub fn set_apply_action(id: u32, action: u8) -> Ie {
    update_far(id, vec![Ie::new(IeType::ApplyAction, vec![action, 0])])
}

/// An Update FAR: forward, and duplicate to these ends, the outer headers marked with this ToS and mask.
pub fn duplicate_to(id: u32, ends: &[TunnelEnd], marking: Option<[u8; 2]>) -> Ie {
    let parameters = ends.iter().map(|end| {
        let mut members = vec![
            Ie::new(IeType::DestinationInterface, vec![LI_FUNCTION]),
            end.header().to_ie(),
        ];
        let marking = marking.map(|marking| marking.to_vec());
        members.extend(marking.map(|value| Ie::new(IeType::TransportLevelMarking, value)));
        Ie::new_grouped(IeType::UpdateDuplicatingParameters, members)
    });
    let mut members = vec![Ie::new(IeType::ApplyAction, vec![0x12, 0])];
    members.extend(parameters);
    update_far(id, members)
}

/// An Update FAR: into UDP without GTP-U (TS 29.244, 8.2.56).
pub fn far_into_udp(id: u32, to: IpAddr, port: u16) -> Ie {
    let mut header = match to {
        IpAddr::V4(to) => [&[4, 0][..], &to.octets()].concat(),
        IpAddr::V6(to) => [&[8, 0][..], &to.octets()].concat(),
    };
    header.extend(port.to_be_bytes());
    // FAR 2 leads to access.
    let side = if id == 2 { 0 } else { 1 };
    let parameters = vec![
        Ie::new(IeType::DestinationInterface, vec![side]),
        Ie::new(IeType::OuterHeaderCreation, header),
    ];
    let parameters = Ie::new_grouped(IeType::UpdateForwardingParameters, parameters);
    update_far(id, vec![parameters])
}
