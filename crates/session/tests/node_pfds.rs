//! PFD Management (TS 29.244, 6.2.5 and 7.4.3).

#![allow(clippy::unwrap_used)]

mod node_support;

use node_support::*;
use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::Time;
use session::event::Event;

/// PFD Contents by hand: octets as figure 8.2.39-1 draws them.
fn contents(flow: &str, domain: &str) -> Ie {
    let mut value = vec![0x01 | 0x04, 0];
    for member in [flow, domain] {
        value.extend((member.len() as u16).to_be_bytes());
        value.extend(member.as_bytes());
    }
    Ie::new(IeType::PfdContents, value)
}

/// Application ID's PFDs with so many PFDs, each in a context of its own.
fn application(name: &str, pfds: &[Ie]) -> Ie {
    let mut value = Vec::new();
    let id = ApplicationId::new(name);
    Ie::new(IeType::ApplicationId, id.marshal().to_vec()).marshal_into(&mut value);
    for pfd in pfds {
        let mut context = Vec::new();
        pfd.marshal_into(&mut context);
        Ie::new(IeType::PfdContext, context).marshal_into(&mut value);
    }
    Ie::new(IeType::ApplicationIdsPfds, value)
}

fn manage(world: &mut World, smf: &mut Smf, ies: &[Ie]) -> Answer {
    smf.ask(world, MsgType::PfdManagementRequest, None, ies)
}

fn listed(world: &World) -> Vec<(String, Vec<String>)> {
    world
        .core
        .pfds()
        .map(|(name, properties)| {
            let text =
                |p: &session::pfds::Property| format!("{} {} {}", p.pfd, p.kind.name(), p.text);
            (name.to_owned(), properties.iter().map(text).collect())
        })
        .collect()
}

const WEB: &str = "permit out 6 from 192.0.2.1 443 to assigned";

#[test]
fn pfds_are_provisioned_replaced_and_removed() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let video = application(
        "video",
        &[contents(WEB, "video.example"), contents(WEB, "v.example")],
    );
    let chat = application("chat", &[contents(WEB, "chat.example")]);
    let answer = manage(&mut world, &mut smf, &[video, chat]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    rs_pfcp::message::parse(&answer.raw).unwrap();
    assert_eq!(
        listed(&world),
        [
            (
                "chat".to_owned(),
                vec![format!("0 flow {WEB}"), "0 domain chat.example".to_owned()]
            ),
            (
                "video".to_owned(),
                vec![
                    format!("0 flow {WEB}"),
                    "0 domain video.example".to_owned(),
                    format!("1 flow {WEB}"),
                    "1 domain v.example".to_owned()
                ]
            ),
        ]
    );
    // Those of an application are replaced as a whole, others stay.
    let less = application("video", &[contents(WEB, "new.example")]);
    manage(&mut world, &mut smf, &[less]);
    let now = listed(&world);
    assert_eq!((now.len(), now[1].1.len()), (2, 2));
    // An application without PFDs is removed, and a request without one removes all.
    manage(&mut world, &mut smf, &[application("chat", &[])]);
    assert_eq!(listed(&world).len(), 1);
    manage(&mut world, &mut smf, &[]);
    assert_eq!(listed(&world), []);
    assert_eq!(world.core.pfd_fill(), (0, 0));
}

#[test]
fn a_request_is_done_as_a_whole_or_not_at_all() {
    let mut config = config();
    config.limits.pfd_applications = 2;
    let (mut world, mut smf) = (World::new(config), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    manage(
        &mut world,
        &mut smf,
        &[application("a", &[contents(WEB, "a")])],
    );
    let before = listed(&world);

    let nothing = Ie::new(IeType::PfdContents, vec![0, 0]);
    let wrong = [application("a", &[]), application("b", &[nothing])];
    let answer = manage(&mut world, &mut smf, &wrong);
    assert_eq!(answer.cause(), CauseValue::MandatoryIeIncorrect);
    assert_eq!(answer.offending_ie(), Some(IeType::PfdContents as u16));

    let nameless = Ie::new(IeType::ApplicationIdsPfds, Vec::new());
    let answer = manage(&mut world, &mut smf, &[application("a", &[]), nameless]);
    assert_eq!(answer.cause(), CauseValue::MandatoryIeMissing);

    let many = ["b", "c"].map(|name| application(name, &[contents(WEB, "x")]));
    assert_eq!(
        manage(&mut world, &mut smf, &many).cause(),
        CauseValue::NoResourcesAvailable
    );
    assert_eq!(listed(&world), before);
    // What is removed by the same request makes room.
    let [b, c] = many;
    let answer = manage(&mut world, &mut smf, &[application("a", &[]), b, c]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
}

#[test]
fn pfds_are_bounded_in_bytes() {
    let mut config = config();
    config.limits.pfd_bytes = 10_000;
    let (mut world, mut smf) = (World::new(config), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let long = "x".repeat(3000);
    let mut accepted = 0;
    for name in 0..10 {
        let ie = application(&name.to_string(), &[contents(&long, &long)]);
        accepted +=
            u32::from(manage(&mut world, &mut smf, &[ie]).cause() == CauseValue::RequestAccepted);
    }
    assert_eq!(accepted, 1);
    assert!(world.core.pfd_fill().1 <= 10_000);
}

/// PFD Contents with a flow alone.
fn flow_alone(flow: &str) -> Ie {
    let mut value = vec![0x01, 0];
    value.extend((flow.len() as u16).to_be_bytes());
    value.extend(flow.as_bytes());
    Ie::new(IeType::PfdContents, value)
}

/// A session with a PDR for an application.
fn establish_with(world: &mut World, smf: &mut Smf, application: &str) -> u64 {
    let seid = smf.establish(world);
    let name = ApplicationId::new(application).marshal().to_vec();
    let mut pdi = vec![0, 20, 0, 1, 0];
    Ie::new(IeType::ApplicationId, name).marshal_into(&mut pdi);
    let mut pdr = Vec::new();
    for (kind, value) in [
        (IeType::PdrId, vec![0, 9]),
        (IeType::Precedence, vec![0, 0, 0, 1]),
        (IeType::Pdi, pdi),
        (IeType::OuterHeaderRemoval, vec![0]),
        (IeType::FarId, vec![0, 0, 0, 1]),
    ] {
        Ie::new(kind, value).marshal_into(&mut pdr);
    }
    let create = Ie::new(IeType::CreatePdr, pdr);
    let kind = MsgType::SessionModificationRequest;
    let answer = smf.ask(world, kind, Some(seid), &[create]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    seid
}

/// So many flows that differ.
fn flows(count: usize) -> Vec<Ie> {
    let flow = |port: usize| format!("permit out 6 from 192.0.2.1 {port} to assigned");
    (1..=count).map(|port| flow_alone(&flow(port))).collect()
}

fn publications(world: &World) -> usize {
    world.core.tables().publications.values().sum()
}

fn step(world: &mut World) {
    world.core.advance(world.now, &mut world.out);
    world.take();
}

/// Until all sessions go by the PFDs.
fn settle(world: &mut World) {
    while world.core.next_deadline() == Some(Time(0)) {
        step(world);
    }
}

#[test]
fn only_sessions_that_name_a_changed_application_are_compiled_anew() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let both = ["web", "mail"].map(|name| application(name, &flows(1)));
    manage(&mut world, &mut smf, &both);
    for name in ["web", "web", "mail"] {
        establish_with(&mut world, &mut smf, name);
    }
    smf.establish(&mut world);
    let mut compiled = |world: &mut World, ies: &[Ie]| {
        let before = publications(world);
        manage(world, &mut smf, ies);
        settle(world);
        publications(world) - before
    };
    assert_eq!(compiled(&mut world, &both), 0);
    let mail = application("mail", &flows(2));
    assert_eq!(compiled(&mut world, &[mail]), 1);
    let other = application("other", &flows(2));
    assert_eq!(compiled(&mut world, &[other]), 0);
    // Everything is removed.
    assert_eq!(compiled(&mut world, &[]), 3);
    assert_eq!(compiled(&mut world, &both), 3);
}

/// Sessions that no step reaches the end of.
const MANY: usize = 1100;

#[test]
fn changes_of_pfds_do_not_keep_others_from_their_sessions() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let both = ["web", "mail"].map(|name| application(name, &flows(1)));
    manage(&mut world, &mut smf, &both);
    for _ in 0..MANY {
        establish_with(&mut world, &mut smf, "web");
    }
    establish_with(&mut world, &mut smf, "mail");
    let last = MANY as u64 + 1;
    let before = world.core.tables().publications[&last];
    let mail = application("mail", &flows(2));
    let mut rounds = 0;
    while world.core.tables().publications[&last] == before {
        rounds += 1;
        assert!(rounds < 100, "the last session still has its former flows");
        let so_far = publications(&world);
        // SMFs keep changing something else.
        let web = application("web", &flows(2 - rounds % 2));
        manage(&mut world, &mut smf, &[web]);
        if rounds == 2 {
            manage(&mut world, &mut smf, std::slice::from_ref(&mail));
        }
        step(&mut world);
        let compiled = publications(&world) - so_far;
        assert!(compiled <= 3 * 64, "{compiled} at once");
    }
    settle(&mut world);
    assert_eq!(world.core.tables().publications[&last], before + 1);
}

#[test]
fn sessions_without_room_for_pfds_are_told_of_together() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    manage(
        &mut world,
        &mut smf,
        &[
            application("web", &flows(1)),
            application("mail", &flows(1)),
        ],
    );
    for _ in 0..MANY {
        establish_with(&mut world, &mut smf, "web");
    }
    establish_with(&mut world, &mut smf, "mail");
    let too_many = application("web", &flows(64));
    manage(&mut world, &mut smf, &[too_many]);
    settle(&mut world);
    let told = world.events.iter().filter_map(|event| match event {
        Event::PfdsWithoutRoom { sessions } => Some(*sessions),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [MANY]);
    assert_eq!(world.core.stats().pfds_without_room, MANY as u64);
}

#[test]
fn pfds_in_use_are_not_made_such_that_packets_cannot_be_told() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    manage(
        &mut world,
        &mut smf,
        &[application("web", &[flow_alone(WEB)])],
    );
    let seid = establish_with(&mut world, &mut smf, "web");

    let before = listed(&world);
    let domain = application("web", &[contents(WEB, "web.example")]);
    let answer = manage(&mut world, &mut smf, std::slice::from_ref(&domain));
    assert_eq!(answer.cause(), CauseValue::ServiceNotSupported);
    assert_eq!(
        answer.offending_ie(),
        Some(IeType::ApplicationIdsPfds as u16)
    );
    assert_eq!(listed(&world), before);
    smf.delete(&mut world, seid);
    let answer = manage(&mut world, &mut smf, &[domain]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
}

#[test]
fn strangers_provision_nothing() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    let answer = manage(&mut world, &mut smf, &[]);
    assert_eq!(answer.cause(), CauseValue::NoEstablishedPfcpAssociation);
}
