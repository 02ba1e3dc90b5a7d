//! FARs with an outer header of UDP without GTP-U, in octets as SMFs send them (TS 29.244, 8.2.56).

use compiled::{Action, EndedTunnel, UeEnd};

use super::cases::failure;
use super::*;
use crate::rules::{FarId, RuleId};

const SINK: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const INTO_SINK: Action = Action::Udp {
    port: 4000,
    peer: IpAddr::V4(SINK),
    local: IpAddr::V4(N3),
};
const SNDEM: u8 = 2;
const GNB6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 3, 1, 0, 0, 0, 1);

/// UDP over IPv4 (0x0400).
fn udp(port: u16) -> Vec<u8> {
    let mut ie = vec![4, 0];
    ie.extend(SINK.octets());
    ie.extend(port.to_be_bytes());
    ie
}

fn gtpu(teid: u8) -> Vec<u8> {
    [vec![1, 0, 0, 0, 0, teid], GNB.octets().to_vec()].concat()
}

/// Create FAR or Update FAR, whose packets go to this side in this header.
fn far(w: &mut Writer<'_>, create: bool, (id, side): (u32, u8), header: &[u8], flags: Option<u8>) {
    let (far, parameters) = match create {
        true => (IeType::CREATE_FAR, IeType::FORWARDING_PARAMETERS),
        false => (IeType::UPDATE_FAR, IeType::UPDATE_FORWARDING_PARAMETERS),
    };
    w.grouped(far, |w| {
        w.put(IeType::FAR_ID, id);
        if create {
            w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        }
        w.grouped(parameters, |w| {
            w.put(IeType::DESTINATION_INTERFACE, side);
            if !header.is_empty() {
                w.ie(IeType::OUTER_HEADER_CREATION, header);
            }
            if let Some(flags) = flags {
                w.ie(IeType::PFCPSMREQ_FLAGS, &[flags]);
            }
        });
    });
}

fn up(header: Vec<u8>) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        PdrIe::uplink().create(w);
        far(w, true, (1, 1), &header, None);
    }
}

fn down(header: Vec<u8>) -> impl Fn(&mut Writer<'_>) {
    move |w| {
        PdrIe::downlink().create(w);
        far(w, true, (2, 0), &header, None);
    }
}

#[test]
fn a_far_leads_into_udp_alone() {
    let mut world = World::new();
    let (seid, _) = world.establish(up(udp(4000))).unwrap();
    let entry = world.only().entries[0].clone();
    assert_eq!(entry.action, INTO_SINK);
    // The UE address of the PDI is checked, as it is from tunnel to tunnel.
    let asked = entry.relay.and_then(|relay| relay.ue);
    assert_eq!(asked.map(|(_, end)| end), Some(UeEnd::Source));
    assert_eq!((entry.ue, entry.qfi), (None, None));
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.fars[0].tunnel, None);
    assert_eq!(view.fars[0].udp, Some((4000, vec![SINK.into()])));

    let mut world = World::new();
    world.establish(down(udp(4000))).unwrap();
    assert_eq!(world.only().entries[0].action, INTO_SINK);
}

#[test]
fn what_is_in_udp_alone_has_come_out_of_its_tunnel() {
    let mut world = World::new();
    let wrong = failure(IeType::OUTER_HEADER_REMOVAL, RuleId::Pdr(PdrId(1)));
    let result = world.establish(|w| {
        PdrIe {
            removal: None,
            ..PdrIe::uplink()
        }
        .create(w);
        far(w, true, (1, 1), &udp(4000), None);
    });
    assert_eq!(result.unwrap_err(), wrong);
    let wrong = failure(IeType::OUTER_HEADER_CREATION, RuleId::Far(FarId(1)));
    for header in [udp(0), [vec![4, 0], vec![0; 4], vec![1, 2]].concat()] {
        assert_eq!(world.establish(up(header)).unwrap_err(), wrong);
    }
    // UDP/IPv6, of which we have no address here.
    let six = [vec![8, 0], GNB6.octets().to_vec(), vec![1, 2]].concat();
    assert_eq!(world.establish(up(six)).unwrap_err(), wrong);
}

#[test]
fn a_far_changes_between_gtpu_and_udp() {
    let mut world = World::new();
    let (seid, _) = world.establish(down(gtpu(7))).unwrap();
    let into_tunnel = world.only().entries[0].action;
    let change =
        |header: Vec<u8>| move |w: &mut Writer<'_>| far(w, false, (2, 0), &header, Some(SNDEM));
    world.modify(seid, change(udp(4000))).unwrap();
    assert_eq!(world.only().entries[0].action, INTO_SINK);
    let left = EndedTunnel {
        teid: 7,
        peer: GNB.into(),
        local: N3.into(),
    };
    assert_eq!(world.tables.ended, [left]);
    // Nothing said of headers: they stay.
    world.modify(seid, change(Vec::new())).unwrap();
    assert_eq!(world.only().entries[0].action, INTO_SINK);
    world.modify(seid, change(gtpu(7))).unwrap();
    assert_eq!(world.only().entries[0].action, into_tunnel);
    assert_eq!(world.tables.ended, [left], "UDP has no End Marker");
}

/// An Error Indication names a TEID; the port of UDP, which is kept in its place, is none.
#[test]
fn a_port_is_no_teid() {
    let mut world = World::new();
    let (seid, _) = world.establish(down(udp(4000))).unwrap();
    let tunnel = (4000, SINK.into());
    world.sessions.tunnels.ask(world.now, tunnel);
    world.sessions.index_tunnels(16);
    assert!(world.sessions.with_tunnel(tunnel).is_empty());
    let header = [vec![1, 0, 0, 0, 15, 160], SINK.octets().to_vec()].concat();
    world
        .modify(seid, |w| far(w, false, (2, 0), &header, None))
        .unwrap();
    assert_eq!(world.sessions.with_tunnel(tunnel), [seid]);
}
