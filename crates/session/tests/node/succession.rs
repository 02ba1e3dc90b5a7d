//! A node goes on in another process by its record and those of its sessions, and its SMFs notice nothing.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use session::config::{Config, NetworkInstance, NodeIdConfig};
use session::event::Event;
use session::peer::PeerState;
use session::testing::world::{OUR_RECOVERY, World, config};
use session::{Change, Core, NodeRecord, Outbox, Record, RecordError, Time, Unresumed};
use testkit::smf::{Answer, Smf, accepted, encode, recovery_ie, sequence};
use testkit::tables::FakeTables;

const SMF1: &str = "10.100.0.2:8805";
const SMF2: &str = "10.100.0.3:8805";
const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);

/// Two network instances, in this order or the other one.
fn config_in_order(reversed: bool) -> Config {
    let mut config = Config {
        echo_interval: Duration::from_secs(60),
        ..config()
    };
    config.network_instances.push(NetworkInstance {
        name: "ims".into(),
        pools4: vec!["10.61.0.0/16".parse().unwrap()],
        ..NetworkInstance::default()
    });
    if reversed {
        config.network_instances.reverse();
    }
    config
}

fn world() -> World {
    World::new(config_in_order(false))
}

/// Another core of this configuration takes the place of the one that is there. All passes as octets.
fn succeed_with(world: &mut World, config: Config) {
    let octets = world.core.node_record().write();
    let record = NodeRecord::read(&octets).unwrap();
    let mut core = Core::new(config, record.recovery(), exact_tables());
    let mut out = Outbox::new();
    core.resume(world.now, &record, &mut out).unwrap();
    let seids: Vec<u64> = world.core.sessions(None).map(|of| of.seid).collect();
    for seid in &seids {
        // Nobody finds these tables thereafter.
        world.core.look(world.now, *seid, &mut out);
        let record = Record::read(&world.core.record(*seid).unwrap()).unwrap();
        assert_eq!(core.adopt(world.now, record, &mut out), Ok(*seid));
    }
    assert!(out.iter().next().is_none() && out.events().is_empty());
    assert_eq!(core.node_record().write(), octets);
    assert_eq!(core.session_count(), seids.len());
    let sessions = |core: &Core<FakeTables>| -> Vec<_> {
        let all = core
            .peers()
            .map(|peer| (peer.node_id.clone(), peer.sessions));
        all.collect()
    };
    assert_eq!(sessions(&core), sessions(&world.core));
    world.core = core;
}

fn succeed(world: &mut World) {
    let first = &world.core.config().network_instances[0].name;
    let reversed = *first == *"internet";
    succeed_with(world, config_in_order(reversed));
}

/// Nothing is under way that a record does not have.
fn is_at_rest(world: &World) -> bool {
    world.core.outstanding() == 0 && world.core.sessions_to_delete() == 0
}

#[test]
fn sessions_are_modified_and_deleted_as_if_nothing_had_been() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    succeed(&mut world);
    assert_eq!(world.live(), 1);
    let answer = smf.modify(&mut world, seid);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    succeed(&mut world);
    let other = smf.establish(&mut world);
    assert_ne!(other, seid);
    for seid in [seid, other] {
        let answer = smf.delete(&mut world, seid);
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    }
    assert_eq!((world.live(), world.core.fill().teids), (0, 0));
    assert!(
        world
            .events
            .iter()
            .all(|event| matches!(event, Event::PeerUp { .. }))
    );
}

#[test]
fn heartbeats_go_on_at_their_times_and_numbers_of_requests_where_they_were() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let interval = world.core.config().heartbeat_interval;
    let first = world.pass(interval);
    smf.respond(&mut world, &first[0].1);
    world.pass(interval / 2);
    succeed(&mut world);
    let half = interval / 2;
    assert!(world.pass(half - Duration::from_millis(1)).is_empty());
    let sent = world.pass(Duration::from_millis(2));
    assert_eq!((sent.len(), sent[0].0), (1, smf.address));
    assert_eq!(sequence(&sent[0].1), sequence(&first[0].1) + 1);
    assert_eq!(
        Answer::from(sent[0].1.clone())
            .ie(IeType::RecoveryTimeStamp)
            .unwrap(),
        &recovery_ie(OUR_RECOVERY)
    );
}

/// A heartbeat whose answer the former process would have got is sent anew at once.
#[test]
fn a_heartbeat_without_answer_is_repeated_under_a_new_number() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let sent = world.pass(world.core.config().heartbeat_interval);
    succeed_without_comparison(&mut world);
    let again = world.pass(Duration::ZERO);
    assert_eq!((again.len(), again[0].0), (1, smf.address));
    assert_eq!(sequence(&again[0].1), sequence(&sent[0].1) + 1);
    smf.respond(&mut world, &again[0].1);
    assert_eq!(world.core.outstanding(), 0);
}

fn succeed_without_comparison(world: &mut World) {
    let record = NodeRecord::read(&world.core.node_record().write()).unwrap();
    let config = world.core.config().clone();
    let mut core = Core::new(config, record.recovery(), FakeTables::default());
    core.resume(world.now, &record, &mut world.out).unwrap();
    world.core = core;
}

#[test]
fn a_restart_of_an_smf_is_noticed_by_the_successor() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    succeed(&mut world);
    smf.heartbeat(&mut world);
    assert_eq!(world.live(), 1, "the same time stamp");
    smf.recovery += 1;
    smf.heartbeat(&mut world);
    world.pass(Duration::from_millis(1));
    assert_eq!((world.live(), world.core.peers().count()), (0, 1));
}

#[test]
fn a_silent_smf_is_kept_as_long_as_it_would_have_been() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    let silent = |world: &World| {
        let mut peers = world.core.peers();
        matches!(peers.next().unwrap().state, PeerState::Down(_))
    };
    while !silent(&world) {
        world.pass(Duration::from_secs(1));
    }
    let kept = world.core.config().path_failure_retention;
    world.pass(kept / 2);
    while !is_at_rest(&world) {
        world.pass(Duration::from_millis(100));
    }
    succeed(&mut world);
    assert!(silent(&world));
    let now = world.now;
    world.core.associate(now, smf.address, &mut world.out);
    assert!(world.sent().is_empty(), "its sessions would go");
    world.pass(kept / 4);
    assert_eq!(world.live(), 1);
    world.pass(kept / 4 + Duration::from_secs(1));
    assert_eq!((world.live(), world.core.peers().count()), (0, 0));
}

#[test]
fn an_smf_of_the_set_takes_over_and_uses_its_pfds() {
    let (mut world, mut smf1, mut smf2) = (world(), Smf::new(SMF1), Smf::new(SMF2));
    for smf in [&mut smf1, &mut smf2] {
        let mut ies = smf.setup_ies();
        ies.push(Ie::new(IeType::SmfSetId, b"\0set1.example".to_vec()));
        let answer = smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    }
    let seid = smf1.establish(&mut world);
    let flow = "permit out ip from 192.0.2.7 to assigned";
    let pfds = [pfds("video", flow)];
    let answer = smf1.ask(&mut world, MsgType::PfdManagementRequest, None, &pfds);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    succeed(&mut world);
    assert_eq!(world.core.pfd_fill().0, 1);
    let (name, of) = world.core.pfds_after(None).next().unwrap();
    assert_eq!((name, of[0].smfs.len()), ("video", 2));
    assert_eq!(&*of[0].properties[0].text, flow);
    let answer = smf2.modify(&mut world, seid);
    assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    smf1.release(&mut world);
    assert_eq!(
        world.core.pfd_fill().0,
        1,
        "the other one of the set is there"
    );
    smf2.release(&mut world);
    assert_eq!(world.core.pfd_fill().0, 0);
}

/// Application ID's PFDs with one flow, by hand (TS 29.244, 8.2.39).
fn pfds(name: &str, flow: &str) -> Ie {
    let mut contents = vec![1, 0];
    contents.extend((flow.len() as u16).to_be_bytes());
    contents.extend(flow.as_bytes());
    let (mut context, mut value) = (Vec::new(), Vec::new());
    Ie::new(IeType::PfdContents, contents).marshal_into(&mut context);
    Ie::new(IeType::ApplicationId, name.as_bytes().to_vec()).marshal_into(&mut value);
    Ie::new(IeType::PfdContext, context).marshal_into(&mut value);
    Ie::new(IeType::ApplicationIdsPfds, value)
}

#[test]
fn a_gnb_that_restarts_meanwhile_is_noticed() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    smf.establish(&mut world);
    let number = next_echo(&mut world, &smf);
    answer_echo(&mut world, number, 7);
    while !is_at_rest(&world) {
        answer_smf(&mut world, &smf);
    }
    succeed(&mut world);
    assert_eq!(world.core.path_count(), (1, 0));
    for (recovery, restarts) in [(7, 0), (8, 1)] {
        let number = next_echo(&mut world, &smf);
        answer_echo(&mut world, number, recovery);
        let is = |event: &&Event| matches!(event, Event::GtpuPeerRestarted { .. });
        assert_eq!(world.events.iter().filter(is).count(), restarts);
    }
}

/// Time passes until something is due; the SMF answers what it is asked.
fn answer_smf(world: &mut World, smf: &Smf) {
    world.now = world.core.next_deadline().unwrap().max(world.now);
    world.out.clear();
    world.core.advance(world.now, &mut world.out);
    for (_, request) in world.sent() {
        smf.respond(world, &request);
    }
}

/// Time passes until the gNB is asked; the number of that Echo Request.
fn next_echo(world: &mut World, smf: &Smf) -> u16 {
    for _ in 0..1000 {
        world.now = world.core.next_deadline().unwrap().max(world.now);
        world.out.clear();
        world.core.advance(world.now, &mut world.out);
        let echo = world.out.echoes().next();
        let number = echo.map(|(_, echo)| u16::from_be_bytes([echo[8], echo[9]]));
        for (_, request) in world.sent() {
            smf.respond(world, &request);
        }
        if let Some(number) = number {
            return number;
        }
    }
    panic!("nobody is asked");
}

fn answer_echo(world: &mut World, sequence: u16, recovery: u8) {
    let mut echo = vec![0x32, 2, 0, 13, 0, 0, 0, 0];
    echo.extend(sequence.to_be_bytes());
    // Recovery, which says nothing, and Recovery Time Stamp (TS 29.281, 8.2 and 8.8).
    echo.extend([0, 0, 14, 0, 231, 0, 4, 0, 0, 0, recovery]);
    world.out.clear();
    (world.core).receive_echo(world.now, IpAddr::V4(GNB), &echo, &mut world.out);
    world.sent();
}

#[test]
fn what_smfs_know_of_the_load_goes_on() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    let mut ies = smf.setup_ies();
    // LOAD and OVRL (TS 29.244, 8.2.58).
    ies.push(Ie::new(IeType::CpFunctionFeatures, vec![3]));
    smf.ask(&mut world, MsgType::AssociationSetupRequest, None, &ies);
    world.core.set_busy(50);
    let seid = smf.establish(&mut world);
    succeed(&mut world);
    let told = |answer: &Answer| {
        answer
            .ie(IeType::LoadControlInformation)
            .map(|ie| ie.payload.clone())
    };
    assert_eq!(
        told(&smf.modify(&mut world, seid)),
        None,
        "it has been told"
    );
    world.core.set_busy(80);
    let answer = smf.modify(&mut world, seid);
    let sequence = told(&answer).unwrap();
    let number = u32::from_be_bytes([sequence[4], sequence[5], sequence[6], sequence[7]]);
    assert_eq!(number, OUR_RECOVERY + 2, "numbers grow");
}

/// Kept before the answer, whatever else has changed: nothing of it is to be asked for again.
#[test]
fn news_of_an_association_are_kept_with_the_message_that_brings_them() {
    let mut side = Side::new(usize::MAX);
    side.make(Move::Establish {
        smf: 0,
        network: "ims",
    });
    let (_, seid, _) = side.sessions[0];
    // From a second address: the SMF may say more about its sessions from there.
    let elsewhere: SocketAddr = "10.100.0.9:8805".parse().unwrap();
    let datagram = side.smfs[0].establishment_in("internet");
    let sent = side.world.receive(elsewhere, &datagram);
    let second = Answer::from(sent[0].1.clone()).up_seid();
    side.kept.keep(&mut side.world.core, false);
    side.die(config_in_order(true));
    for (from, seid) in [(side.smfs[0].address, seid), (elsewhere, second)] {
        let kind = MsgType::SessionModificationRequest;
        let datagram = side.smfs[0].datagram(kind, Some(seid), &[]);
        let sent = side.world.receive(from, &datagram);
        let answer = Answer::from(sent[0].1.clone());
        assert_eq!(answer.cause(), CauseValue::RequestAccepted, "{from}");
    }
}

/// There may be 4 MiB of them, and an SMF may say what it likes as often as it likes.
#[test]
fn pfds_are_written_when_they_change_and_not_with_their_association() {
    let mut side = Side::new(usize::MAX);
    let what_changes = |side: &mut Side, smf: usize, kind, ies: &[Ie]| {
        let datagram = side.smfs[smf].datagram(kind, None, ies);
        side.world.receive(side.smfs[smf].address, &datagram);
        let (mut node, mut pfds) = (false, false);
        side.world.core.changes(false, |change| {
            node |= matches!(change, Change::Node(_));
            pfds |= matches!(change, Change::Pfds(_));
            side.kept.store(change);
        });
        (node, pfds)
    };
    let provision = [pfds("video", "permit out ip from 192.0.2.1 to assigned")];
    let management = MsgType::PfdManagementRequest;
    assert_eq!(
        what_changes(&mut side, 0, management, &provision),
        (false, true)
    );
    let update = [side.smfs[0].node_id.to_ie()];
    let kind = MsgType::AssociationUpdateRequest;
    assert_eq!(what_changes(&mut side, 0, kind, &update), (true, false));
    let set = Ie::new(IeType::SmfSetId, b"\0set1.example".to_vec());
    let joins = [side.smfs[0].node_id.to_ie(), set.clone()];
    assert_eq!(what_changes(&mut side, 0, kind, &joins), (true, false));
    // Their owner changes from here on.
    let joins = [side.smfs[1].node_id.to_ie(), set];
    assert!(what_changes(&mut side, 1, kind, &joins).1);
    let release = [side.smfs[0].node_id.to_ie()];
    let kind = MsgType::AssociationReleaseRequest;
    assert!(what_changes(&mut side, 0, kind, &release).1);
    side.die(config_in_order(true));
    assert_eq!(
        side.world.core.pfd_fill().0,
        1,
        "the other one of the set has them"
    );
    // An SMF without any comes anew.
    side.smfs[0].recovery += 1;
    let setup = side.smfs[0].setup_ies();
    let kind = MsgType::AssociationSetupRequest;
    assert_eq!(what_changes(&mut side, 0, kind, &setup), (true, false));
    // As they are found beside an older record of the node, which does not know whose they are.
    let older = world().core.node_record().write();
    let mut node = NodeRecord::read(&older).unwrap();
    node.read_pfds(&side.kept.pfds).unwrap();
    assert_eq!(node.write(), older);
}

/// A gNB may be late with packets of tunnels that are no more.
#[test]
fn tunnels_of_former_sessions_are_not_those_of_new_ones() {
    let mut side = Side::new(1);
    let mut teids = BTreeSet::new();
    for _ in 0..20 {
        side.make(Move::Establish {
            smf: 0,
            network: "ims",
        });
        let session = side.world.core.sessions(None).next().unwrap();
        assert!(teids.insert(session.teids[0]), "{teids:x?}");
        side.make(Move::Delete { session: 0 });
        side.die(config_in_order(false));
    }
}

/// An SMF with which we are to associate, and are.
#[test]
fn no_association_is_asked_for_that_stands() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    succeed(&mut world);
    let now = world.now;
    world.core.associate(now, smf.address, &mut world.out);
    assert!(world.sent().is_empty());
    let elsewhere: SocketAddr = SMF2.parse().unwrap();
    world.core.associate(now, elsewhere, &mut world.out);
    assert_eq!(world.sent()[0].1[1], MsgType::AssociationSetupRequest as u8);
}

#[test]
fn nor_one_that_is_held_from_another_port() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    succeed(&mut world);
    let (now, its) = (world.now, SocketAddr::new(smf.address.ip(), 9000));
    world.core.associate(now, its, &mut world.out);
    assert!(world.sent().is_empty());
}

#[test]
fn a_session_that_names_what_its_node_has_no_name_for_is_none_of_its() {
    let (mut world, mut smf, mut kept) = (world(), Smf::new(SMF1), Memory::default());
    world.core.note_changes();
    smf.associate(&mut world);
    smf.establish(&mut world);
    kept.keep(&mut world.core, true);
    let session = kept.sessions.values().next().unwrap();
    let read = |node: &[u8]| NodeRecord::read(node).unwrap().session(session);
    assert!(read(&kept.node).is_ok());
    // Not one that keeps sessions by places: it has no names.
    let nameless = RecordError::Impossible("rules that name what has no name");
    let other = world.core.node_record().write();
    assert_eq!(read(&other), Err(nameless));
}

#[test]
fn a_record_of_another_node_or_start_is_refused_and_nothing_has_changed() {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    smf.associate(&mut world);
    let octets = world.core.node_record().write();
    let record = || NodeRecord::read(&octets).unwrap();
    let (now, mut out) = (world.now, Outbox::new());
    let renamed = Config {
        node_id: NodeIdConfig::Ip(IpAddr::V4(Ipv4Addr::new(10, 100, 0, 1))),
        ..config()
    };
    let mut other = Core::new(renamed, OUR_RECOVERY, FakeTables::default());
    let refused = other.resume(now, &record(), &mut out).unwrap_err();
    assert_eq!(refused.to_string(), "its Node ID was upf1.example.org");
    let mut later = Core::new(config(), OUR_RECOVERY + 1, FakeTables::default());
    let refused = later.resume(now, &record(), &mut out).unwrap_err();
    assert_eq!(refused, Unresumed::Recovery(OUR_RECOVERY));
    for core in [&other, &later] {
        assert_eq!(core.peers().count(), 0);
    }
    let refused = world.core.resume(now, &record(), &mut out).unwrap_err();
    assert_eq!(refused, Unresumed::InUse);
}

/// Cut, of a later version, or with any octet changed.
#[test]
fn octets_are_the_record_of_a_node_or_none() {
    let (mut world, mut smf1, mut smf2) = (world(), Smf::new(SMF1), Smf::new(SMF2));
    smf1.associate(&mut world);
    smf2.associate(&mut world);
    let flow = "permit out ip from any to assigned";
    smf1.ask(
        &mut world,
        MsgType::PfdManagementRequest,
        None,
        &[pfds("video", flow)],
    );
    smf1.establish(&mut world);
    next_echo(&mut world, &smf1);
    let octets = world.core.node_record().write();
    assert!(NodeRecord::read(&octets).is_ok());
    for length in 0..octets.len() {
        assert_eq!(
            NodeRecord::read(&octets[..length]),
            Err(RecordError::Malformed)
        );
    }
    let mut read = 0;
    for at in 0..octets.len() {
        for value in 0..=u8::MAX {
            let mut other = octets.clone();
            other[at] = value;
            let Ok(record) = NodeRecord::read(&other) else {
                continue;
            };
            assert_eq!(record.write(), other);
            let mut core = Core::new(config(), record.recovery(), FakeTables::default());
            let mut out = Outbox::new();
            if core.resume(world.now, &record, &mut out).is_ok() {
                for _ in 0..20 {
                    let now = core.next_deadline().unwrap_or(world.now).max(world.now);
                    core.advance(now, &mut out);
                }
                read += 1;
            }
        }
    }
    assert!(read > octets.len(), "{read} of {} octets", octets.len());
    let mut later = octets.clone();
    later[1] += 1;
    let version = RecordError::Version {
        version: 2,
        ours: 1,
    };
    assert_eq!(NodeRecord::read(&later), Err(version));
}

/// One of two nodes that hear the same.
struct Side {
    world: World,
    smfs: [Smf; 2],
    /// SEIDs, ours, of sessions that were established, with their tunnels, in that order.
    sessions: Vec<(usize, u64, u32)>,
    /// Sessions that have had an inactivity timer.
    watched: BTreeSet<u64>,
    kept: Memory,
    /// Requests that were accepted and may come again: when, and of which SMF.
    accepted: Vec<(Time, usize, Vec<u8>)>,
    /// It goes on by records that have no answers.
    forgets_answers: bool,
    /// The node's times are kept with each so many-th message.
    period: usize,
    made: usize,
}

/// The file that outlives the process.
#[derive(Clone, Default)]
struct Memory {
    node: Vec<u8>,
    pfds: Vec<u8>,
    sessions: BTreeMap<u32, Vec<u8>>,
    answers: Vec<Vec<u8>>,
}

impl Memory {
    /// `node`: with its times.
    fn keep(&mut self, core: &mut Core<FakeTables>, node: bool) {
        core.changes(node, |change| self.store(change));
    }

    fn store(&mut self, change: Change<'_>) {
        match change {
            Change::Session(place, octets) => {
                self.sessions.insert(place, octets.to_vec());
            }
            Change::Gone(place) => {
                self.sessions.remove(&place);
            }
            Change::Node(octets) => self.node = octets.to_vec(),
            Change::Pfds(octets) => self.pfds = octets.to_vec(),
            Change::Answer(octets) => self.answers.push(octets.to_vec()),
        }
    }

    /// A core that goes on from here; the process before it had these tables.
    fn successor(&self, now: Time, config: Config, before: &FakeTables) -> Core<FakeTables> {
        let mut node = NodeRecord::read(&self.node).unwrap();
        node.read_pfds(&self.pfds).unwrap();
        let (mut core, mut out) = (
            Core::new(config, node.recovery(), exact_tables()),
            Outbox::new(),
        );
        core.note_changes();
        core.resume(now, &node, &mut out).unwrap();
        for octets in self.sessions.values() {
            let record = node
                .session(octets)
                .unwrap_or_else(|e| panic!("{e}: {octets:02x?}"));
            let uncounted = record.uncounted(false, |entry| before.counted(entry));
            let seid = core.adopt(now, record, &mut out).unwrap();
            core.count(now, seid, &uncounted, &mut out);
        }
        let answers = self.answers.iter().map(Vec::as_slice);
        assert_eq!(core.resume_answers(now, &node, answers), 0);
        assert!(out.iter().next().is_none());
        core
    }
}

/// Tables that count what they are told, and nothing else.
fn exact_tables() -> FakeTables {
    let mut tables = FakeTables::default();
    tables.exact = true;
    tables
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % end.max(1) as u64) as usize
    }
}

/// The next event. Sessions are meant by their place in the list.
#[derive(Clone, Copy, Debug)]
enum Move {
    Establish { smf: usize, network: &'static str },
    Switch { session: usize, teid: u32 },
    Measure { session: usize, period_s: u8 },
    Watch { session: usize, idle_s: u8 },
    Delete { session: usize },
    Heartbeat { smf: usize, restarted: bool },
    Provision { smf: usize, flow: u8 },
    Associate { smf: usize },
    Release { smf: usize },
    LostTunnel { session: usize },
    Packets { session: usize, octets: u64 },
    Repeat { back: usize },
    Pass { ms: u64 },
}

fn draw(dice: &mut Dice, sessions: usize) -> Move {
    let (smf, session) = (dice.below(2), dice.below(sessions));
    match dice.below(29) {
        0..=5 => Move::Establish {
            smf,
            network: ["internet", "ims"][dice.below(2)],
        },
        6..=9 => Move::Switch {
            session,
            teid: 1 + dice.below(1 << 23) as u32,
        },
        10..=11 => Move::Measure {
            session,
            period_s: 10 + dice.below(60) as u8,
        },
        12 => Move::Watch {
            session,
            idle_s: 10 + dice.below(60) as u8,
        },
        13..=14 => Move::Delete { session },
        15 => Move::Heartbeat {
            smf,
            restarted: dice.below(8) == 0,
        },
        16 => Move::Provision {
            smf,
            flow: dice.below(200) as u8,
        },
        17 if dice.below(4) == 0 => Move::Associate { smf },
        18 if dice.below(4) == 0 => Move::Release { smf },
        17..=18 => Move::LostTunnel { session },
        19..=20 => Move::Packets {
            session,
            octets: 1 + dice.below(1 << 20) as u64,
        },
        21..=23 => Move::Repeat {
            back: dice.below(6),
        },
        _ => Move::Pass {
            ms: dice.below(30_000) as u64,
        },
    }
}

fn group(kind: IeType, ies: &[Ie]) -> Ie {
    Ie::new(kind, rs_pfcp::ie::marshal_ies(ies))
}

fn number(kind: IeType, value: u32) -> Ie {
    Ie::new(kind, value.to_be_bytes().to_vec())
}

/// FAR 2 leads into this tunnel to the gNB from now on.
fn path_switch(teid: u32) -> Ie {
    let mut header = vec![1, 0];
    header.extend(teid.to_be_bytes());
    header.extend(GNB.octets());
    let header = Ie::new(IeType::OuterHeaderCreation, header);
    let forwarding = group(IeType::UpdateForwardingParameters, &[header]);
    group(IeType::UpdateFar, &[number(IeType::FarId, 2), forwarding])
}

/// URR 1 measures PDR 1, and reports each period.
fn measurement(period_s: u8) -> [Ie; 2] {
    let create = [
        number(IeType::UrrId, 1),
        Ie::new(IeType::MeasurementMethod, vec![2]),
        Ie::new(IeType::ReportingTriggers, vec![1, 0, 0]),
        number(IeType::MeasurementPeriod, period_s.into()),
    ];
    let pdr = Ie::new(IeType::PdrId, vec![0, 1]);
    [
        group(IeType::CreateUrr, &create),
        group(IeType::UpdatePdr, &[pdr, number(IeType::UrrId, 1)]),
    ]
}

impl Side {
    fn new(period: usize) -> Self {
        let mut side = Self {
            world: world(),
            smfs: [Smf::new(SMF1), Smf::new(SMF2)],
            sessions: Vec::new(),
            watched: BTreeSet::new(),
            kept: Memory::default(),
            accepted: Vec::new(),
            forgets_answers: false,
            period,
            made: 0,
        };
        side.world.core.tables_mut().exact = true;
        side.world.core.note_changes();
        for smf in &mut side.smfs {
            smf.associate(&mut side.world);
        }
        side.kept.keep(&mut side.world.core, true);
        side
    }

    /// All that is sent because of it, identifiers aside. Of several sessions that are reported at once none comes first.
    fn make(&mut self, what: Move) -> Vec<(SocketAddr, Vec<u8>)> {
        let session = |session: usize| self.sessions.get(session).copied();
        let modification = MsgType::SessionModificationRequest;
        let sent = match what {
            Move::Establish { smf, network } => {
                let datagram = self.smfs[smf].establishment_in(network);
                let sent = self.ask(smf, datagram);
                let answer = Answer::from(sent[0].1.clone());
                if answer.cause() == CauseValue::RequestAccepted {
                    // A tunnel of its own, as of several sessions of one a few are reported, whichever.
                    let (seid, teid) = (answer.up_seid(), 0x100_0000 + self.smfs[smf].sequence);
                    self.sessions.push((smf, seid, teid));
                    self.say(smf, modification, Some(seid), &[path_switch(teid)]);
                }
                sent
            }
            Move::Switch {
                session: place,
                teid,
            } => match session(place) {
                Some((smf, seid, _)) => {
                    self.sessions[place].2 = teid;
                    self.say(smf, modification, Some(seid), &[path_switch(teid)])
                }
                None => Vec::new(),
            },
            Move::Measure {
                session: place,
                period_s,
            } => match session(place) {
                Some((smf, seid, _)) => {
                    self.say(smf, modification, Some(seid), &measurement(period_s))
                }
                None => Vec::new(),
            },
            Move::Watch {
                session: place,
                idle_s,
            } => match session(place) {
                Some((smf, seid, _)) => {
                    self.watched.insert(seid);
                    let timer = number(IeType::UserPlaneInactivityTimer, idle_s.into());
                    self.say(smf, modification, Some(seid), &[timer])
                }
                None => Vec::new(),
            },
            Move::Delete { session: place } => match session(place) {
                Some((smf, seid, _)) => {
                    self.sessions.remove(place);
                    self.say(smf, MsgType::SessionDeletionRequest, Some(seid), &[])
                }
                None => Vec::new(),
            },
            Move::Heartbeat { smf, restarted } => {
                self.smfs[smf].recovery += u32::from(restarted);
                self.accepted.retain(|(_, of, _)| *of != smf || !restarted);
                let recovery = [recovery_ie(self.smfs[smf].recovery)];
                self.say(smf, MsgType::HeartbeatRequest, None, &recovery)
            }
            Move::Provision { smf, flow } => {
                let flow = format!("permit out ip from 192.0.2.{flow} to assigned");
                let ies = [pfds("video", &flow)];
                self.say(smf, MsgType::PfdManagementRequest, None, &ies)
            }
            Move::Associate { smf } => {
                let ies = self.smfs[smf].setup_ies();
                self.say(smf, MsgType::AssociationSetupRequest, None, &ies)
            }
            Move::Release { smf } => {
                let ies = [self.smfs[smf].node_id.to_ie()];
                self.say(smf, MsgType::AssociationReleaseRequest, None, &ies)
            }
            Move::LostTunnel { session: place } => match session(place) {
                Some((.., teid)) => self.lose(teid),
                None => Vec::new(),
            },
            Move::Packets {
                session: place,
                octets,
            } => {
                // When a watched one is looked at is not in the record that the second node goes on from.
                let unwatched = |(_, seid, _): &_| {
                    self.world.core.session(*seid).is_some() && !self.watched.contains(seid)
                };
                if let Some((_, seid, _)) = session(place).filter(unwatched) {
                    let tables = self.world.core.tables_mut();
                    tables.packet(seid, 1, octets);
                }
                // Nobody looks.
                return Vec::new();
            }
            Move::Pass { ms } => self.pass(ms),
            Move::Repeat { .. } if self.forgets_answers => Vec::new(),
            Move::Repeat { back } => self.repeat(back),
        };
        self.made += 1;
        let node = self.made.is_multiple_of(self.period);
        self.kept.keep(&mut self.world.core, node);
        let mut sent: Vec<_> = sent
            .into_iter()
            .map(|(to, raw)| (to, masked(raw)))
            .collect();
        sent.sort();
        sent
    }

    /// The process dies, and another one finds what it has kept, and tables that have counted all packets.
    fn die(&mut self, config: Config) {
        let world = &mut self.world;
        let pfds = world.core.pfd_fill();
        let (count, live) = (world.core.session_count(), world.live());
        world.core = self.kept.successor(world.now, config, world.core.tables());
        assert_eq!((world.core.session_count(), world.live()), (count, live));
        assert_eq!(world.core.pfd_fill(), pfds);
        self.kept.sessions.clear();
        self.kept.answers.clear();
        self.kept.keep(&mut self.world.core, false);
    }

    fn say(
        &mut self,
        smf: usize,
        kind: MsgType,
        seid: Option<u64>,
        ies: &[Ie],
    ) -> Vec<(SocketAddr, Vec<u8>)> {
        let datagram = self.smfs[smf].datagram(kind, seid, ies);
        self.ask(smf, datagram)
    }

    fn ask(&mut self, smf: usize, datagram: Vec<u8>) -> Vec<(SocketAddr, Vec<u8>)> {
        let (now, kind) = (self.world.now, datagram[1]);
        let sent = self.world.receive(self.smfs[smf].address, &datagram);
        let is_accepted = || Answer::from(sent[0].1.clone()).cause() == CauseValue::RequestAccepted;
        // Of sessions, and PFDs.
        if matches!(kind, 50..=55 | 3) && is_accepted() {
            self.accepted.push((now, smf, datagram));
        } else {
            self.accepted.retain(|(_, of, _)| *of != smf || kind == 1);
        }
        sent
    }

    /// A request comes again, as its answer may have been lost: it was accepted, and so it is now. Associations that begin anew, or end,
    /// know no former answers.
    fn repeat(&mut self, back: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let (now, lifetime) = (self.world.now, self.world.core.config().answers.lifetime);
        self.accepted.retain(|(at, ..)| now.since(*at) < lifetime);
        let Some((_, smf, datagram)) = self.accepted.iter().rev().nth(back).cloned() else {
            return Vec::new();
        };
        let (count, live) = (self.world.core.session_count(), self.world.live());
        let sent = self.world.receive(self.smfs[smf].address, &datagram);
        let answer = Answer::from(sent[0].1.clone());
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
        assert_eq!(
            (self.world.core.session_count(), self.world.live()),
            (count, live)
        );
        sent
    }

    /// The gNB says that it does not know this tunnel (TS 29.281, 7.3.1).
    fn lose(&mut self, teid: u32) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(GNB.octets());
        packet.extend([10, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend([0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 16]);
        packet.extend(teid.to_be_bytes());
        packet.extend([133, 0, 4]);
        packet.extend(GNB.octets());
        let now = self.world.now;
        self.world.out.clear();
        self.world
            .core
            .receive_gtpu(now, &packet, &mut self.world.out);
        let sent = self.world.sent();
        self.answer(sent)
    }

    /// Time passes, and SMFs answer what they are asked, at once.
    fn pass(&mut self, ms: u64) -> Vec<(SocketAddr, Vec<u8>)> {
        let (mut all, end) = (Vec::new(), self.world.now.after(Duration::from_millis(ms)));
        while let Some(due) = self.world.core.next_deadline().filter(|due| *due <= end) {
            self.world.now = self.world.now.max(due);
            self.world.out.clear();
            self.world.core.advance(self.world.now, &mut self.world.out);
            let sent = self.world.sent();
            all.extend(self.answer(sent));
        }
        self.world.now = end;
        all
    }

    fn answer(&mut self, sent: Vec<(SocketAddr, Vec<u8>)>) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut all = sent.clone();
        for (to, raw) in sent {
            let smf = self.smfs.iter().find(|smf| smf.address == to).unwrap();
            let node_id = smf.node_id.to_ie();
            let (response, seid, ies) = match raw[1] {
                1 => (
                    MsgType::HeartbeatResponse,
                    None,
                    vec![recovery_ie(smf.recovery)],
                ),
                12 => (MsgType::NodeReportResponse, None, vec![node_id, accepted()]),
                56 => (MsgType::SessionReportResponse, Some(0), vec![accepted()]),
                other => panic!("unexpected request {other}"),
            };
            let number = Answer::from(raw).header.sequence_number.0;
            let datagram = encode(response, seid, number, &ies);
            all.extend(self.world.receive(to, &datagram));
        }
        all
    }
}

/// Without what we chose: SEIDs, TEIDs, addresses, and numbers of requests.
fn masked(mut raw: Vec<u8>) -> Vec<u8> {
    fn mask(ies: &mut [u8]) {
        let mut at = 0;
        while at + 4 <= ies.len() {
            let kind = u16::from_be_bytes([ies[at], ies[at + 1]]);
            let length = usize::from(u16::from_be_bytes([ies[at + 2], ies[at + 3]]));
            let value = &mut ies[at + 4..at + 4 + length];
            match kind {
                // Created PDR.
                8 => mask(value),
                // F-TEID, F-SEID, UE IP Address.
                21 | 57 | 93 => value.fill(0),
                _ => {}
            }
            at += 4 + length;
        }
    }
    let header = if raw[0] & 1 == 1 { 16 } else { 8 };
    if matches!(raw[1], 1 | 5 | 7 | 12 | 56) {
        raw[header - 4..header - 1].fill(0);
    }
    mask(&mut raw[header..]);
    raw
}

/// A session without packets for 71 s, whose SMF is to hear of 80.
fn nearly_idle() -> (Side, u64) {
    let mut side = Side::new(1);
    side.make(Move::Establish {
        smf: 0,
        network: "internet",
    });
    let seid = side.sessions[0].1;
    side.make(Move::Watch {
        session: 0,
        idle_s: 80,
    });
    side.make(Move::Pass { ms: 71_000 });
    (side, seid)
}

/// Wherever among the stores that a request comes to the process dies: the request, which comes again, is carried out once, and gets
/// its answer.
#[test]
fn a_request_is_carried_out_once_wherever_its_process_dies() {
    let mut side = Side::new(1);
    let establishment = side.smfs[0].establishment_in("internet");
    let seid = dies_at_each_store(&mut side, &establishment);
    let modification = MsgType::SessionModificationRequest;
    let switch = [path_switch(77)];
    for ies in [&switch[..], &measurement(60)] {
        let datagram = side.smfs[0].datagram(modification, Some(seid), ies);
        dies_at_each_store(&mut side, &datagram);
    }
    side.world.core.tables_mut().packet(seid, 1, 1000);
    let deletion = MsgType::SessionDeletionRequest;
    let datagram = side.smfs[0].datagram(deletion, Some(seid), &[]);
    dies_at_each_store(&mut side, &datagram);
    assert_eq!(side.world.core.session_count(), 0);
    let provision = [pfds("video", "permit out ip from 192.0.2.1 to assigned")];
    let datagram = side.smfs[0].datagram(MsgType::PfdManagementRequest, None, &provision);
    dies_at_each_store(&mut side, &datagram);
}

/// SEID of the session, if it is a new one.
fn dies_at_each_store(side: &mut Side, datagram: &[u8]) -> u64 {
    let (from, now, before) = (side.smfs[0].address, side.world.now, side.kept.clone());
    let answer = side.world.receive(from, datagram);
    let accepted = |sent: &[(SocketAddr, Vec<u8>)]| {
        assert_eq!(sent.len(), 1);
        let answer = Answer::from(sent[0].1.clone());
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
        answer
    };
    let is_new = datagram[1] == MsgType::SessionEstablishmentRequest as u8;
    let answered = accepted(&answer);
    let seid = if is_new { answered.up_seid() } else { 0 };
    // How much of what it comes to is kept, step by step.
    let (mut steps, mut states) = (vec![before.clone()], before);
    side.world.core.changes(false, |change| {
        states.store(change);
        steps.push(states.clone());
    });
    side.kept = states;
    let count = side.world.core.session_count();
    let sessions = |core: &Core<FakeTables>| -> Vec<Option<Vec<u8>>> {
        let seids: Vec<u64> = core.sessions(None).map(|of| of.seid).collect();
        seids.into_iter().map(|seid| core.record(seid)).collect()
    };
    let expected = sessions(&side.world.core);
    let last = steps.len() - 1;
    assert!(last >= 2, "an answer, and what it says");
    for (step, kept) in steps.iter().enumerate() {
        let config = config_in_order(false);
        let core = kept.successor(now, config, side.world.core.tables());
        let mut world = world();
        (world.core, world.now) = (core, now);
        for _ in 0..2 {
            let again = world.receive(from, datagram);
            accepted(&again);
            if step == last {
                assert_eq!(again, answer);
            }
            assert_eq!(world.core.session_count(), count, "{step} of {last}");
        }
        // Identifiers of a new session are chosen anew.
        if !is_new || step == last {
            assert_eq!(sessions(&world.core), expected, "{step} of {last}");
        }
    }
    seid
}

/// With tables that end with the process, which does what is to be done before.
#[test]
fn packets_that_are_looked_at_in_the_end_count_as_activity() {
    for active in [false, true] {
        let (mut side, seid) = nearly_idle();
        let world = &mut side.world;
        if active {
            world.core.tables_mut().packet(seid, 1, 100);
        }
        world.core.look(world.now, seid, &mut world.out);
        succeed(world);
        let reported = of_sessions(&side.make(Move::Pass { ms: 20_000 }));
        assert_eq!(reported.is_empty(), active);
    }
}

/// A process that takes over and dies before it has added what tables of before have counted: the next one adds what both have.
#[test]
fn what_several_tables_have_counted_is_added_up() {
    let mut side = Side::new(1);
    side.make(Move::Establish {
        smf: 0,
        network: "internet",
    });
    side.make(Move::Measure {
        session: 0,
        period_s: 60,
    });
    let seid = side.sessions[0].1;
    let mut world = side.world;
    let met = |core: &mut Core<FakeTables>, octets| {
        core.tables_mut().packet(seid, 1, octets);
    };
    met(&mut world.core, 1000);
    world.core.look(world.now, seid, &mut world.out);
    side.kept.keep(&mut world.core, true);
    met(&mut world.core, 200);

    let node = NodeRecord::read(&side.kept.node).unwrap();
    let adopt = |kept: &Memory, out: &mut Outbox| {
        let mut core = Core::new(config_in_order(false), node.recovery(), exact_tables());
        core.note_changes();
        core.resume(world.now, &node, out).unwrap();
        for octets in kept.sessions.values() {
            let record = node.session(octets).unwrap();
            core.adopt(world.now, record, out).unwrap();
        }
        core
    };
    let mut second = adopt(&side.kept, &mut world.out);
    let mut unsettled = Memory::default();
    unsettled.keep(&mut second, true);
    met(&mut second, 30);
    // It has looked at these, in a record that nobody goes on from.
    second.look(world.now, seid, &mut world.out);
    unsettled.keep(&mut second, true);
    met(&mut second, 4);

    let mut third = adopt(&side.kept, &mut world.out);
    for (kept, tables, all) in [
        (&side.kept, world.core.tables(), false),
        (&unsettled, second.tables(), true),
    ] {
        for octets in kept.sessions.values() {
            let record = node.session(octets).unwrap();
            let uncounted = record.uncounted(all, |entry| tables.counted(entry));
            third.count(world.now, seid, &uncounted, &mut world.out);
        }
    }
    met(&mut third, 50_000);
    let view = third.session(seid).unwrap();
    let used: u64 = view
        .urrs
        .iter()
        .map(|urr| urr.used.bytes.iter().sum::<u64>())
        .sum();
    assert_eq!(used, 51_234);
}

/// A user who was active until its UPF died is not taken for idle.
#[test]
fn packets_that_nobody_has_looked_at_count_as_activity() {
    for active in [false, true] {
        let (mut side, seid) = nearly_idle();
        if active {
            side.world.core.tables_mut().packet(seid, 1, 100);
        }
        side.die(config_in_order(false));
        let reported = of_sessions(&side.make(Move::Pass { ms: 20_000 }));
        assert_eq!(reported.is_empty(), active);
        // Once, in any case.
        let reported = of_sessions(&side.make(Move::Pass { ms: 90_000 }));
        assert_eq!(reported.is_empty(), !active);
    }
}

/// Which SMFs hear of which sessions, and what kind of request that is; how often it is repeated depends on when others are.
fn of_sessions(sent: &[(SocketAddr, Vec<u8>)]) -> BTreeSet<(SocketAddr, Vec<u8>)> {
    let about = sent.iter().filter(|(_, raw)| raw[0] & 1 == 1);
    let named = about.map(|(to, raw)| (*to, [&raw[1..2], &raw[4..12]].concat()));
    named.collect()
}

/// Half of the time the second node has a successor between two messages. The third one dies between any two, and its successor
/// knows what it had kept before it answered; so does that of the fourth one, which keeps times now and then, so that its successor
/// may ask SMFs earlier whether they are there.
#[test]
fn a_node_and_its_successors_say_the_same() {
    let mut successions = 0;
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let [mut first, mut second, mut mortal, mut forgetful] = [1, 1, 1, 7].map(Side::new);
        second.forgets_answers = true;
        for step in 0..400 {
            if dice.below(2) == 0 && is_at_rest(&second.world) {
                succeed(&mut second.world);
                successions += 1;
            }
            for side in [&mut mortal, &mut forgetful] {
                if is_at_rest(&side.world) {
                    side.die(config_in_order(dice.below(2) == 0));
                }
            }
            let what = draw(&mut dice, first.sessions.len());
            let sides = [&mut first, &mut second, &mut mortal, &mut forgetful];
            let mut said: Vec<_> = sides.into_iter().map(|side| side.make(what)).collect();
            if let Move::Repeat { .. } = what {
                // Records that anybody can take in have no answers.
                said[1] = said[0].clone();
            }
            let others = said.split_off(1);
            let said = &said[0];
            if let Move::Pass { .. } = what {
                assert_eq!(
                    of_sessions(said),
                    of_sessions(&others[2]),
                    "{seed}, {step}: {what:?}"
                );
            } else {
                assert_eq!(*said, others[2], "seed {seed}, step {step}: {what:?}");
            }
            for other in &others[..2] {
                assert_eq!(said, other, "seed {seed}, step {step}: {what:?}");
            }
            let count = |side: &Side| (side.world.core.session_count(), side.world.live());
            let counts = [&first, &second, &mortal, &forgetful].map(count);
            assert_eq!(counts, [counts[0]; 4], "seed {seed}, step {step}");
        }
    }
    assert!(successions > 2000, "{successions}");
}

/// One SMF has all, and another came later: shares bound those that come, and are taken from nobody.
#[test]
fn a_share_that_nobody_had_room_for_costs_no_session() {
    let config = |shares: u32, emergency: bool| {
        let mut config = config_in_order(false);
        (config.limits.sessions, config.limits.shares) = (40, shares);
        config.limits.emergency_sessions = if emergency { 4 } else { 0 };
        config.network_instances[1].emergency = emergency;
        config
    };
    let mut world = World::new(config(8, false));
    let (mut smf, mut late) = (Smf::new(SMF1), Smf::new(SMF2));
    smf.associate(&mut world);
    for _ in 0..40 {
        smf.establish(&mut world);
    }
    late.associate(&mut world);
    for (shares, emergency) in [(8, false), (1, false), (0, false), (8, true)] {
        succeed_with(&mut world, config(shares, emergency));
        assert_eq!(world.core.session_count(), 40, "{shares} {emergency}");
    }
    // It has not become more than it was.
    let datagram = smf.establishment();
    let cause = smf.exchange(&mut world, &datagram).cause();
    assert_eq!(cause, CauseValue::NoResourcesAvailable);
}

/// Also of sessions whose packets nobody measures, which is not to have their tables looked through.
#[test]
fn meters_go_on_where_tables_of_before_have_them() {
    let mut side = Side::new(1);
    side.make(Move::Establish {
        smf: 0,
        network: "internet",
    });
    let seid = side.sessions[0].1;
    side.kept.keep(&mut side.world.core, true);
    let entries = |core: &Core<FakeTables>| -> Vec<Vec<u32>> {
        let followed = &core.tables().followed;
        let of_seid = followed.iter().filter(|(of, _)| *of == seid);
        let at = of_seid.flat_map(|(_, at)| at);
        at.map(|at| at.entries.to_vec()).collect()
    };
    let (world, kept) = (&side.world, &side.kept);
    let config = || config_in_order(false);
    let mut next = kept.successor(world.now, config(), world.core.tables());
    let numbers = |core: &Core<FakeTables>| *core.tables().live.keys().next().unwrap() as u32;
    let first = numbers(&world.core) << 8;
    assert_eq!(entries(&next), [[first | 1], [first | 2]]);
    // Tables of a start that has ended while it took over.
    let node = NodeRecord::read(&kept.node).unwrap();
    for octets in kept.sessions.values() {
        assert!(!Record::is_counted(octets));
        next.follow_meters(&node.session(octets).unwrap());
    }
    assert_eq!(entries(&next).len(), 4);
}

/// An SMF, with these features, that has so many sessions in "ims", and how the process before left them; and one in "internet".
fn in_ims(features: u8, sessions: usize) -> (World, Smf, Memory) {
    let (mut world, mut smf) = (world(), Smf::new(SMF1));
    world.core.note_changes();
    crate::release::associate(&mut world, &mut smf, features);
    for number in 0..=sessions {
        let network = ["ims", "internet"][usize::from(number == sessions)];
        let datagram = smf.establishment_in(network);
        let answer = smf.exchange(&mut world, &datagram);
        assert_eq!(answer.cause(), CauseValue::RequestAccepted);
    }
    let mut kept = Memory::default();
    kept.keep(&mut world.core, true);
    (world, smf, kept)
}

/// A core without "ims" goes on. Sessions that it cannot take in, by the SMF's SEIDs, and of how many of these that is told.
fn without_ims(world: &mut World, kept: &Memory) -> (BTreeSet<u64>, usize) {
    let node = NodeRecord::read(&kept.node).unwrap();
    world.core = Core::new(config(), node.recovery(), exact_tables());
    world.out.clear();
    world.core.resume(world.now, &node, &mut world.out).unwrap();
    let (mut lost, mut told) = (BTreeSet::new(), 0);
    for octets in kept.sessions.values() {
        let record = node.session(octets).unwrap();
        let cp_seid = record.cp_seid();
        if world.core.adopt(world.now, record, &mut world.out).is_err() {
            let session = node.lost_session(octets).unwrap();
            lost.insert(cp_seid);
            let is_told = world.core.tell_lost(world.now, &session, &mut world.out);
            told += usize::from(is_told);
        }
    }
    (lost, told)
}

const EPFAR: u8 = 1 << 2;

/// TS 29.244, 5.18, 7.5.8, 8.2.21, 8.2.119. Some at a time, as there may be as many as there were sessions.
#[test]
fn an_smf_hears_of_sessions_whose_configuration_is_gone() {
    const SESSIONS: usize = 40;
    let (mut world, smf, kept) = in_ims(EPFAR, SESSIONS);
    let (lost, of) = without_ims(&mut world, &kept);
    assert_eq!((lost.len(), of), (SESSIONS, SESSIONS));
    let mut waiting = world.sent();
    assert!(waiting.len() < SESSIONS, "{}", waiting.len());
    let mut told = BTreeSet::new();
    while let Some((to, report)) = waiting.pop() {
        assert_eq!(to, smf.address);
        assert_eq!(report[1], MsgType::SessionReportRequest as u8);
        let sequence = u32::from_be_bytes([0, report[12], report[13], report[14]]);
        let report = Answer::from(report);
        let payload = |ie_type| report.ie(ie_type).unwrap().payload.clone();
        assert_eq!(payload(IeType::ReportType), [1 << 6], "UISR");
        assert_eq!(payload(IeType::PfcpsrReqFlags), [1], "PSDBU");
        assert!(told.insert(report.seid()));
        let response = encode(
            MsgType::SessionReportResponse,
            Some(0),
            sequence,
            &[accepted()],
        );
        waiting.extend(world.receive(smf.address, &response));
    }
    assert_eq!(told, lost);
    assert_eq!((world.core.outstanding(), world.live()), (0, 1));
}

#[test]
fn an_smf_that_does_not_know_such_reports_hears_by_its_next_request() {
    let (mut world, mut smf, kept) = in_ims(0, 1);
    assert_eq!(without_ims(&mut world, &kept).1, 0);
    assert!(world.sent().is_empty());
    let lost = kept.sessions.values().find_map(|octets| {
        let node = NodeRecord::read(&kept.node).unwrap();
        let seid = node.session(octets).unwrap().seid();
        world.core.session(seid).is_none().then_some(seid)
    });
    let answer = smf.modify(&mut world, lost.unwrap());
    assert_eq!(answer.cause(), CauseValue::SessionContextNotFound);
}

/// Sessions that reports among these datagrams are about, by the SMF's SEIDs.
fn reported(sent: Vec<(SocketAddr, Vec<u8>)>) -> BTreeSet<u64> {
    let is_report = |octets: &[u8]| octets[1] == MsgType::SessionReportRequest as u8;
    let reports = sent.into_iter().filter(|(_, octets)| is_report(octets));
    reports
        .map(|(_, report)| Answer::from(report).seid())
        .collect()
}

/// They end where no answer comes, and with the association.
#[test]
fn lost_sessions_that_an_smf_does_not_answer_for_are_let_go() {
    let (mut world, mut smf, kept) = in_ims(EPFAR, 40);
    let (lost, of) = without_ims(&mut world, &kept);
    assert_eq!(of, 40);
    let mut told = reported(world.sent());
    let (t1, n1) = (world.core.config().t1, world.core.config().n1);
    for _ in 0..2 * n1 {
        told.extend(reported(world.pass(t1)));
    }
    assert_eq!((told, world.core.outstanding()), (lost, 0));
    let (mut world, _, kept) = in_ims(EPFAR, 40);
    without_ims(&mut world, &kept);
    smf.release(&mut world);
    assert_eq!(world.core.outstanding(), 0);
    assert!(reported(world.pass(t1)).is_empty());
}

/// An SMF that is told so ends what it has under that SEID, be it another session.
#[test]
fn a_session_that_is_there_again_is_not_said_to_be_gone() {
    let (mut world, mut smf, kept) = in_ims(EPFAR, 40);
    let (lost, _) = without_ims(&mut world, &kept);
    let mut told = reported(world.sent());
    // One that is told of, one that is not yet.
    let again = [told.first(), lost.difference(&told).next()].map(|seid| *seid.unwrap());
    for seid in again {
        smf.next_seid = seid - 1;
        let datagram = smf.establishment_in("internet");
        let sent = world.receive(smf.address, &datagram);
        let accepted = |(_, octets): &(_, Vec<u8>)| octets[1] == 51 && octets.len() > 40;
        assert!(sent.iter().any(accepted));
        told.extend(reported(sent));
    }
    let (t1, n1) = (world.core.config().t1, world.core.config().n1);
    let mut later = BTreeSet::new();
    for _ in 0..2 * n1 {
        later.extend(reported(world.pass(t1)));
    }
    assert!(again.iter().all(|seid| !later.contains(seid)));
    told.extend(later);
    told.insert(again[1]);
    assert_eq!((told, world.core.outstanding()), (lost, 0));
}
