//! PDIs that name an application, whose packets are told by the flows of its PFDs.

use compiled::{QfiSet, Select};
use pfcp::Cause;

use super::cases::{failure, pdr, refusal, refuses};
use super::*;
use crate::base::ids::PartyId;
use crate::base::pfd::flows_of;
use crate::base::pfd::{PfdKind, Property};

const WEB: &str = "permit out 6 from 192.0.2.1 443 to assigned";
const MAIL: &str = "permit out 6 from 192.0.2.9 993,995 to assigned";

const PARTY: PartyId = PartyId(1);

fn property(pfd: u32, kind: PfdKind, text: &str) -> Property {
    let text = text.into();
    Property { pfd, kind, text }
}

fn of_flows(flows: &[&str]) -> Vec<Property> {
    let flows = flows.iter().zip(0..);
    flows
        .map(|(flow, pfd)| property(pfd, PfdKind::Flow, flow))
        .collect()
}

/// Applications with these PFDs, none: taken away. How many sessions keep the former ones for want of room.
fn provision(world: &mut World, changed: &[(&str, Vec<Property>)]) -> usize {
    world.sessions.applications.join(PeerId(1), PARTY);
    for (name, properties) in changed {
        world
            .sessions
            .applications
            .provision(PARTY, name, properties);
    }
    let mut failed = 0;
    while world.sessions.applications.is_behind() {
        failed += world.sessions.refit(&mut world.tables).unwrap_or(0);
    }
    failed
}

/// PDRs 3 and 4 for an application, before the session's others.
fn with_application(w: &mut Writer<'_>, name: &str) {
    ordinary(w);
    for (id, base) in [(3, PdrIe::uplink()), (4, PdrIe::downlink())] {
        PdrIe {
            id,
            precedence: Some(10),
            f_teid: None,
            ue: None,
            extra_pdi: vec![(IeType::APPLICATION_ID, name.into())],
            ..base
        }
        .create(w);
    }
}

/// Of what the first key leads to: PDR, and protocol and remote ports of each filter.
fn uplink(world: &World) -> Vec<(u16, Option<(u16, u16)>)> {
    let compiled = world.only();
    let (_, Select::List { first, len }) = compiled.keys[0] else {
        panic!("no list");
    };
    let filters = compiled.filters[first..first + len].iter();
    let ports = |f: &compiled::Filter| f.flow.and_then(|flow| flow.dst_ports);
    filters
        .map(|f| (compiled.entries[f.entry].pdr.0, ports(f)))
        .collect()
}

#[test]
fn an_application_is_told_by_the_flows_of_its_pfds() {
    let mut world = World::new();
    provision(&mut world, &[("web", of_flows(&[WEB, MAIL]))]);
    let (seid, _) = world.establish(|w| with_application(w, "web")).unwrap();
    let both = [
        (3, Some((443, 443))),
        (3, Some((993, 993))),
        (3, Some((995, 995))),
        (1, None),
    ];
    assert_eq!(uplink(&world), both);
    let flow = world.only().filters[0].flow.unwrap();
    assert_eq!(flow.dst, Some("192.0.2.1/32".parse().unwrap()));
    let view = world.sessions.view(seid, &world.tables).unwrap();
    assert_eq!(view.pdrs[2].filters, ["application web"]);

    // Sessions go with what the PFDs say.
    provision(&mut world, &[("web", of_flows(&[WEB]))]);
    assert_eq!(uplink(&world), [both[0], both[3]]);
    // Without PFDs no packet is of it.
    provision(&mut world, &[("web", Vec::new())]);
    assert_eq!(uplink(&world), [both[3]]);
    assert_eq!(world.only().filters[0].qfis, QfiSet::default());
    provision(&mut world, &[("web", of_flows(&[MAIL]))]);
    assert_eq!(uplink(&world), both[1..]);
    world.delete(seid).unwrap();
    assert!(world.tables.live.is_empty());
}

#[test]
fn an_application_without_pfds_or_with_domains_is_refused() {
    let mut world = World::new();
    let mixed = vec![
        property(0, PfdKind::Flow, WEB),
        property(1, PfdKind::Domain, "example.net"),
    ];
    let wrong = of_flows(&["permit out of the house"]);
    provision(&mut world, &[("mixed", mixed), ("wrong", wrong)]);
    for name in ["mixed", "wrong", "unheard-of"] {
        let why = failure(IeType::APPLICATION_ID, pdr(3));
        refuses(&mut world, why, |w| with_application(w, name));
    }
    assert_eq!(flows_of(&[]), Some(Box::default()));
}

#[test]
fn the_node_hears_which_applications_pdrs_name() {
    let mut world = World::new();
    provision(&mut world, &[("web", of_flows(&[WEB]))]);
    let mut is_named = None;
    let mut hear = |world: &mut World| {
        for ((peer, name), now) in world.sessions.applications.take_news() {
            assert_eq!((peer, &*name), (PeerId(1), "web"));
            is_named = Some(now);
        }
        is_named
    };
    assert_eq!(hear(&mut world), None);
    let (seid, _) = world.establish(|w| with_application(w, "web")).unwrap();
    assert_eq!(hear(&mut world), Some(true));
    let gone =
        |id: u32| move |w: &mut Writer<'_>| remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, id);
    world.modify(seid, gone(3)).unwrap();
    assert_eq!(hear(&mut world), Some(true), "another one names it");
    world.modify(seid, gone(4)).unwrap();
    assert_eq!(hear(&mut world), Some(false));
}

#[test]
fn an_application_and_a_filter_do_not_go_together() {
    let mut world = World::new();
    provision(&mut world, &[("web", of_flows(&[WEB]))]);
    let ie = IeType::APPLICATION_ID;
    let why = refusal(Cause::MANDATORY_IE_INCORRECT, ie, pdr(1));
    refuses(&mut world, why, |w| {
        let uplink = PdrIe {
            filters: vec![flow(MAIL)],
            extra_pdi: vec![(ie, b"web".to_vec())],
            ..PdrIe::uplink()
        };
        ordinary_with(w, uplink, PdrIe::downlink());
    });
}

#[test]
fn pfds_that_are_too_many_for_a_session_leave_it_the_former_ones() {
    let mut world = World::new();
    provision(&mut world, &[("web", of_flows(&[WEB]))]);
    world.establish(|w| with_application(w, "web")).unwrap();
    let before = uplink(&world);
    let many: Vec<Property> = (0..64).flat_map(|_| of_flows(&[WEB])).collect();
    assert_eq!(provision(&mut world, &[("web", many.clone())]), 1);
    assert_eq!(uplink(&world), before);
    // 64 filters are tried for one key, and the session has another one there.
    assert_eq!(provision(&mut world, &[("web", many[1..].to_vec())]), 0);
    assert_eq!(uplink(&world).len(), 64);
}
