//! N3 and N9 on interfaces of their own: which of our addresses F-TEIDs and packets have.

use compiled::Action;

use super::*;
use crate::rules::config::TunnelNetwork;

const ACCESS: u8 = 0;
const CORE: u8 = 1;
const N9: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const N9_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
const ROAMING: Ipv4Addr = Ipv4Addr::new(10, 19, 0, 1);

/// N3, N9 over both families, and another N9 by name.
fn world() -> World {
    let network = |addresses: &[IpAddr], core, names: &[&str]| TunnelNetwork {
        addresses: addresses.to_vec(),
        core,
        network_instances: names.iter().map(|&name| name.to_owned()).collect(),
    };
    World::with(&Config {
        n3: vec![N3.into(), ROAMING.into(), N9.into(), N9_6.into()],
        tunnel_networks: vec![
            network(&[N3.into()], false, &[]),
            network(&[ROAMING.into()], true, &["ipx", "ipx.other"]),
            network(&[N9.into(), N9_6.into()], true, &[]),
        ],
        ..config()
    })
}

fn pdr(id: u16, source: u8, ni: Option<&'static str>, families: u8) -> PdrIe {
    PdrIe {
        id,
        source,
        ni,
        f_teid: None,
        ue: None,
        removal: Some(6),
        far: Some(id.into()),
        extra_pdi: vec![(IeType::F_TEID, vec![4 | families])],
        ..PdrIe::uplink()
    }
}

fn parameters(w: &mut Writer<'_>, to: Option<u8>, ni: Option<&'static str>, teid: Option<u32>) {
    if let Some(to) = to {
        w.put(IeType::DESTINATION_INTERFACE, to);
    }
    if let Some(ni) = ni {
        w.network_instance(ni);
    }
    if let Some(teid) = teid {
        w.put(IeType::OUTER_HEADER_CREATION, tunnel(teid));
    }
}

fn far(w: &mut Writer<'_>, id: u32, to: u8, ni: Option<&'static str>, teid: Option<u32>) {
    w.grouped(IeType::CREATE_FAR, |w| {
        w.put(IeType::FAR_ID, id);
        w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
        w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
            parameters(w, Some(to), ni, teid);
        });
    });
}

/// Addresses of our end that is chosen for this PDI.
#[track_caller]
fn chosen(source: u8, ni: Option<&'static str>, families: u8) -> Vec<IpAddr> {
    let (_, created) = world()
        .establish(|w| {
            pdr(1, source, ni, families).create(w);
            far(w, 1, ACCESS, None, Some(5));
        })
        .unwrap();
    let f_teid = created[0].f_teid.unwrap();
    let v6 = f_teid.v6.map(IpAddr::V6);
    f_teid.v4.map(IpAddr::V4).into_iter().chain(v6).collect()
}

#[test]
fn an_f_teid_is_in_the_network_of_its_side_or_name() {
    assert_eq!(chosen(ACCESS, None, 1), [N3]);
    assert_eq!(chosen(CORE, None, 1), [N9]);
    assert_eq!(chosen(CORE, Some("nobody"), 1), [N9]);
    assert_eq!(chosen(CORE, Some("IPX.other"), 1), [ROAMING]);
    assert_eq!(chosen(ACCESS, Some("ipx"), 1), [ROAMING]);
    assert_eq!(chosen(CORE, None, 3), [IpAddr::from(N9), N9_6.into()]);
    // A family that the network lacks is one of another network's.
    assert_eq!(chosen(ACCESS, None, 3), [IpAddr::from(N3), N9_6.into()]);
    assert_eq!(chosen(CORE, Some("ipx"), 2), [N9_6]);
}

#[test]
fn an_anchor_has_access_behind_n9() {
    let interface_type = |kind: u8| (IeType::TGPP_INTERFACE_TYPE, vec![kind]);
    for (source, kind, wanted) in [
        (ACCESS, 15, N9),
        (CORE, 15, N9),
        (CORE, 11, N3),
        (CORE, 17, N9),
    ] {
        let mut world = world();
        let mut pdr = pdr(1, source, None, 1);
        pdr.extra_pdi.push(interface_type(kind));
        let (_, created) = world
            .establish(|w| {
                pdr.create(w);
                w.grouped(IeType::CREATE_FAR, |w| {
                    w.put(IeType::FAR_ID, 1u32);
                    w.put(IeType::APPLY_ACTION, ApplyAction::FORW);
                    w.grouped(IeType::FORWARDING_PARAMETERS, |w| {
                        parameters(w, Some(source), None, Some(5));
                        w.ie(IeType::TGPP_INTERFACE_TYPE, &[kind]);
                    });
                });
            })
            .unwrap();
        assert_eq!(
            created[0].f_teid.unwrap().v4,
            Some(wanted),
            "{source} {kind}"
        );
        assert_eq!(source_of(&world, 5), wanted, "{source} {kind}");
    }
}

/// Source address of packets into the tunnel of this TEID.
#[track_caller]
fn source_of(world: &World, wanted: u32) -> IpAddr {
    let local = |action| match action {
        Action::Tunnel { teid, local, .. } if teid == wanted => Some(local),
        _ => None,
    };
    let mut entries = world.only().entries.iter();
    entries.find_map(|entry| local(entry.action)).unwrap()
}

#[test]
fn packets_come_from_the_network_that_they_leave_by() {
    let mut world = world();
    world
        .establish(|w| {
            pdr(1, ACCESS, None, 1).create(w);
            pdr(2, CORE, None, 1).create(w);
            pdr(3, CORE, Some("ipx"), 1).create(w);
            far(w, 1, CORE, None, Some(0x71));
            far(w, 2, ACCESS, Some("internet"), Some(0x72));
            far(w, 3, CORE, Some("ipx"), Some(0x73));
        })
        .unwrap();
    assert_eq!(source_of(&world, 0x71), N9);
    assert_eq!(source_of(&world, 0x72), N3);
    assert_eq!(source_of(&world, 0x73), ROAMING);
}

fn update(
    world: &mut World,
    seid: u64,
    to: Option<u8>,
    ni: Option<&'static str>,
    teid: Option<u32>,
) {
    let written = world.modify(seid, |w| {
        w.grouped(IeType::UPDATE_FAR, |w| {
            w.put(IeType::FAR_ID, 1u32);
            w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                parameters(w, to, ni, teid);
            });
        });
    });
    written.unwrap();
}

#[test]
fn an_update_keeps_the_network_until_it_names_another() {
    let mut world = world();
    let (seid, _) = world
        .establish(|w| {
            pdr(1, ACCESS, None, 1).create(w);
            far(w, 1, CORE, Some("ipx"), Some(5));
        })
        .unwrap();
    assert_eq!(source_of(&world, 5), ROAMING);
    update(&mut world, seid, None, None, Some(6));
    assert_eq!(source_of(&world, 6), ROAMING);
    update(&mut world, seid, Some(CORE), None, None);
    assert_eq!(source_of(&world, 6), ROAMING);
    update(&mut world, seid, None, Some("n9"), None);
    assert_eq!(source_of(&world, 6), N9);
    update(&mut world, seid, Some(ACCESS), None, None);
    assert_eq!(source_of(&world, 6), N3);
}
