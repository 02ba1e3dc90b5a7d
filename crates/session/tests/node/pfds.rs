//! PFD Management (TS 29.244, 6.2.5 and 7.4.3).

#![allow(clippy::unwrap_used)]

use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::Time;
use session::event::Event;
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf};

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
    let all = world.core.pfds_after(None).flat_map(|(_, of)| of);
    all.map(|of| {
        let text = |p: &session::pfds::Property| format!("{} {} {}", p.pfd, p.kind.name(), p.text);
        (of.name.to_owned(), of.properties.iter().map(text).collect())
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
    let answer = ask_for(world, smf, seid, application);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    seid
}

/// Give a session a PDR for an application.
fn ask_for(world: &mut World, smf: &mut Smf, seid: u64, application: &str) -> Answer {
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
    smf.ask(world, kind, Some(seid), &[create])
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
    world.sent();
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

/// Application IDs, and how many SMFs each is of.
fn owned(world: &World) -> Vec<(String, Vec<String>)> {
    let all = world.core.pfds_after(None).flat_map(|(_, of)| of);
    all.map(|of| {
        let smfs = of.smfs.iter().map(ToString::to_string);
        (of.name.to_owned(), smfs.collect())
    })
    .collect()
}

fn two_smfs(world: &mut World) -> (Smf, Smf) {
    let (mut one, mut two) = (Smf::new("10.100.0.2:8805"), Smf::new("10.100.0.3:8805"));
    one.associate(world);
    two.associate(world);
    (one, two)
}

fn of(name: &str, smf: &str) -> (String, Vec<String>) {
    (name.to_owned(), vec![smf.to_owned()])
}

#[test]
fn another_smf_cannot_wipe_or_replace_somebodys_applications() {
    let mut world = World::new(config());
    let (mut one, mut two) = two_smfs(&mut world);
    let web = |count| application("web", &flows(count));
    manage(&mut world, &mut one, &[web(1)]);
    establish_with(&mut world, &mut one, "web");
    let mut compiled = |world: &mut World, ies: &[Ie]| {
        let before = publications(world);
        let answer = manage(world, &mut two, ies);
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
        settle(world);
        publications(world) - before
    };
    assert_eq!(compiled(&mut world, &[]), 0);
    assert_eq!(compiled(&mut world, &[application("web", &[])]), 0);
    assert_eq!(owned(&world), [of("web", "10.100.0.2")]);
    assert_eq!(compiled(&mut world, &[web(3)]), 0);
    // What nobody could tell packets by in its own sessions does not concern others.
    let domain = application("web", &[contents(WEB, "web.example")]);
    assert_eq!(compiled(&mut world, &[domain]), 0);
    let both = [of("web", "10.100.0.2"), of("web", "10.100.0.3")];
    assert_eq!(owned(&world), both);
    assert_eq!(compiled(&mut world, &[]), 0);
    assert_eq!(owned(&world), both[..1]);
}

#[test]
fn an_application_of_another_smf_is_none_of_ones_own() {
    let mut world = World::new(config());
    let (mut one, mut two) = two_smfs(&mut world);
    manage(&mut world, &mut one, &[application("web", &flows(1))]);
    let seid = two.establish(&mut world);
    let answer = ask_for(&mut world, &mut two, seid, "web");
    assert_eq!(
        answer.cause(),
        CauseValue::RuleCreationModificationFailure,
        "as if it had no PFDs"
    );
}

#[test]
fn applications_go_with_the_association_of_who_provided_them() {
    for end in ["released", "restarted", "set up anew"] {
        let mut world = World::new(config());
        let (mut one, mut two) = two_smfs(&mut world);
        for smf in [&mut one, &mut two] {
            manage(&mut world, smf, &[application("web", &flows(1))]);
            establish_with(&mut world, smf, "web");
        }
        one.recovery += 1;
        match end {
            "released" => drop(one.release(&mut world)),
            "restarted" => drop(one.heartbeat(&mut world)),
            _ => one.associate(&mut world),
        }
        settle(&mut world);
        assert_eq!(owned(&world), [of("web", "10.100.0.3")], "{end}");
        assert_eq!(world.live(), 1, "{end}");
        two.release(&mut world);
        settle(&mut world);
        assert_eq!(world.core.pfd_fill(), (0, 0), "{end}");
    }
}

/// An SMF that says of which set it is.
fn in_set(world: &mut World, smf: &mut Smf, message: MsgType, set: &[u8]) {
    let mut ies = match message {
        MsgType::AssociationSetupRequest => smf.setup_ies(),
        _ => vec![smf.node_id.to_ie()],
    };
    ies.push(Ie::new(IeType::SmfSetId, [b"\0", set].concat()));
    let answer = smf.ask(world, message, None, &ies);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    settle(world);
}

#[test]
fn the_smfs_of_a_set_have_their_applications_together() {
    const SETUP: MsgType = MsgType::AssociationSetupRequest;
    const UPDATE: MsgType = MsgType::AssociationUpdateRequest;
    let mut world = World::new(config());
    let (mut one, mut two) = (Smf::new("10.100.0.2:8805"), Smf::new("10.100.0.3:8805"));
    in_set(&mut world, &mut one, SETUP, b"set1");
    in_set(&mut world, &mut two, SETUP, b"set1");
    manage(&mut world, &mut one, &[application("web", &flows(1))]);
    establish_with(&mut world, &mut two, "web");
    let smfs = vec!["10.100.0.2".to_owned(), "10.100.0.3".to_owned()];
    assert_eq!(owned(&world), [("web".to_owned(), smfs)]);
    // They are there as long as one of the set is.
    one.release(&mut world);
    assert_eq!(owned(&world), [of("web", "10.100.0.3")]);
    // One that joins brings its own; where both have some those of the set stay.
    one.associate(&mut world);
    let both = [("web", 2), ("mail", 1)].map(|(name, n)| application(name, &flows(n)));
    manage(&mut world, &mut one, &both);
    for name in ["web", "mail"] {
        establish_with(&mut world, &mut one, name);
    }
    let before = publications(&world);
    in_set(&mut world, &mut one, UPDATE, b"set1");
    // Its two sessions, and the one of the set that names what it brought, or might have.
    assert_eq!(publications(&world) - before, 3);
    let listed = listed(&world);
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1].1.len(), 1, "{listed:?}");
    // One that leaves has none.
    let before = publications(&world);
    in_set(&mut world, &mut one, UPDATE, b"set2");
    assert_eq!(publications(&world) - before, 2);
    let of_set = [of("mail", "10.100.0.3"), of("web", "10.100.0.3")];
    assert_eq!(owned(&world), of_set);
    two.release(&mut world);
    assert_eq!(world.core.pfd_fill(), (0, 0));
}

/// Applications that one SMF may have, of those that it asks for one by one.
fn fill_up(world: &mut World, smf: &mut Smf, name: &str) -> usize {
    let mut accepted = 0;
    for n in 0..64 {
        let ie = application(&format!("{name}-{n}"), &flows(1));
        let cause = manage(world, smf, &[ie]).cause();
        if cause != CauseValue::RequestAccepted {
            assert_eq!(cause, CauseValue::NoResourcesAvailable);
            break;
        }
        accepted += 1;
    }
    accepted
}

#[test]
fn an_smf_cannot_use_up_the_applications_of_others() {
    let mut config = config();
    (config.limits.pfd_applications, config.limits.shares) = (16, 4);
    let mut world = World::new(config);
    let (mut one, mut two) = two_smfs(&mut world);
    assert_eq!(fill_up(&mut world, &mut one, "one"), 14);
    assert_eq!(fill_up(&mut world, &mut two, "two"), 2);
    // Alone it may have all.
    two.release(&mut world);
    assert_eq!(fill_up(&mut world, &mut one, "more"), 2);
    // Who comes later has its share when there is room again, and before others.
    two.associate(&mut world);
    assert_eq!(fill_up(&mut world, &mut two, "two"), 0);
    for n in 0..3 {
        let ie = application(&format!("one-{n}"), &[]);
        manage(&mut world, &mut one, &[ie]);
    }
    assert_eq!(fill_up(&mut world, &mut one, "again"), 1);
    assert_eq!(fill_up(&mut world, &mut two, "two"), 2);
}

#[test]
fn whose_pfds_are_meant_is_said_where_two_smfs_have_one_address() {
    let mut world = World::new(config());
    let mut one = Smf::new("10.100.0.2:8805");
    let mut two = Smf::new("10.100.0.2:8806");
    two.node_id = rs_pfcp::ie::node_id::NodeId::new_fqdn("smf2.example");
    one.associate(&mut world);
    two.associate(&mut world);
    let mut other_port = Smf::new("10.100.0.2:50000");
    let web = application("web", &flows(1));
    let answer = manage(&mut world, &mut other_port, std::slice::from_ref(&web));
    assert_eq!(answer.cause(), CauseValue::ConditionalIeMissing);
    assert_eq!(answer.offending_ie(), Some(IeType::NodeId as u16));
    let named = [web, two.node_id.to_ie()];
    let answer = manage(&mut world, &mut other_port, &named);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    assert_eq!(owned(&world), [of("web", "smf2.example")]);
}
