//! PFD Management (TS 29.244, 6.2.5 and 7.4.3).

#![allow(clippy::unwrap_used)]

mod node_support;

use node_support::*;
use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

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

#[test]
fn pfds_in_use_are_not_made_such_that_packets_cannot_be_told() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    manage(
        &mut world,
        &mut smf,
        &[application("web", &[flow_alone(WEB)])],
    );
    let seid = smf.establish(&mut world);
    let name = ApplicationId::new("web").marshal().to_vec();
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
    let answer = smf.ask(&mut world, kind, Some(seid), &[create]);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);

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
