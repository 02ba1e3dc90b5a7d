//! Associations that end, and messages that are full.

use pfcp::ie::{
    AssociationReleaseFlags, CpFunctionFeatures, NodeId, PfcpAuReqFlags,
    ReportingTriggers as Asked, UsageReportTrigger as Told,
};

use super::*;
use crate::testing::world::id_of;

fn counting() -> UrrIe {
    UrrIe::volume(1, Asked::VOLTH).limit(IeType::VOLUME_THRESHOLD, total(5000))
}

/// Three sessions: one whose report is on its way, one that has measured something, and one that has not.
fn three() -> (World, Sent) {
    let mut world = world(20);
    let seids = [1, 2, 3].map(|cp_seid| establish(&mut world, cp_seid, &[counting()]));
    packets(&mut world, seids[0], 1, 5, 1000);
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    packets(&mut world, seids[1], 2, 3, 500);
    assert!(world.sent().is_empty());
    (world, sent)
}

fn kind_of(datagram: &[u8]) -> MessageType {
    pfcp::decode(datagram).unwrap().header.message_type
}

/// PFCP Association Release Request in an Association Update Request.
fn flags_of(datagram: &[u8]) -> AssociationReleaseFlags {
    let message = pfcp::decode(datagram).unwrap();
    assert_eq!(kind_of(datagram), MessageType::ASSOCIATION_UPDATE_REQUEST);
    let ie = message.ies.find(IeType::PFCP_ASSOCIATION_RELEASE_REQUEST);
    let ie = ie.unwrap().unwrap();
    AssociationReleaseFlags::from_bits_retain(ie.value[0])
}

fn update(world: &mut World, write: impl FnOnce(&mut Writer<'_>)) -> Sent {
    let mut bytes = Vec::new();
    let kind = MessageType::ASSOCIATION_UPDATE_REQUEST;
    let mut writer = Writer::new(&mut bytes, kind, None, 1234);
    writer.node_id(NodeId::Ipv4(id_of(smf(2))));
    write(&mut writer);
    writer.finish();
    let mut sent = world.receive(smf(2), &bytes);
    let answer = sent.remove(0);
    assert_eq!(kind_of(&answer.1), MessageType::ASSOCIATION_UPDATE_RESPONSE);
    sent
}

fn accept_update(world: &mut World, request: &[u8]) -> Sent {
    let sequence = pfcp::decode(request).unwrap().header.sequence;
    let mut bytes = Vec::new();
    let kind = MessageType::ASSOCIATION_UPDATE_RESPONSE;
    let mut writer = Writer::new(&mut bytes, kind, None, sequence);
    writer.node_id(NodeId::Ipv4(id_of(smf(2))));
    writer.cause(Cause::REQUEST_ACCEPTED);
    writer.finish();
    world.receive(smf(2), &bytes)
}

fn accept_report(world: &mut World, report: &[u8]) -> Sent {
    world.answer(smf(2), report, Cause::REQUEST_ACCEPTED, None)
}

#[test]
fn an_smf_that_prepares_the_release_has_all_usage_before_it_hears_so() {
    let (mut world, under_way) = three();
    let sent = update(&mut world, |w| {
        w.put(IeType::PFCPAUREQ_FLAGS, PfcpAuReqFlags::PARPS);
    });
    assert_eq!(sent.len(), 1);
    let said = said_in(&sent[0].1);
    assert_eq!(said[0].brief(), (1, 0, Told::TEBUR, 0, 1500));
    assert_eq!(accept_report(&mut world, &sent[0].1), []);
    let last = accept_report(&mut world, &under_way[0].1);
    assert_eq!(last.len(), 1);
    assert_eq!(flags_of(&last[0].1), AssociationReleaseFlags::URSS);
}

#[test]
fn we_say_that_all_usage_is_reported_when_it_is() {
    let (mut world, under_way) = three();
    let sent = update(&mut world, |w| {
        w.put(IeType::CP_FUNCTION_FEATURES, CpFunctionFeatures::EPFAR);
    });
    assert_eq!(sent, []);
    world.core.shut_down(world.now, &mut world.out);
    let preparation = world.sent().remove(0).1;
    let mut reports = accept_update(&mut world, &preparation);
    reports.sort_by_key(|(_, report)| pfcp::decode(report).unwrap().header.seid);
    assert_eq!(reports.len(), 2, "the one that was on its way goes again");
    let said = said_in(&reports[0].1);
    assert_eq!(said, said_in(&under_way[0].1));
    let said = said_in(&reports[1].1);
    assert_eq!(said[0].brief(), (1, 0, Told::TEBUR, 0, 1500));
    assert_eq!(accept_report(&mut world, &reports[0].1), []);
    let last = accept_report(&mut world, &reports[1].1);
    assert_eq!(last.len(), 1);
    let all = AssociationReleaseFlags::SARR | AssociationReleaseFlags::URSS;
    assert_eq!(flags_of(&last[0].1), all);
}

#[test]
fn what_a_silent_smf_never_heard_is_in_the_log_when_we_give_it_up() {
    let (mut world, _) = three();
    world.core.shut_down(world.now, &mut world.out);
    world.out.clear();
    world.core.abandon(world.now, &mut world.out);
    while !world.core.is_released() {
        world.core.advance(world.now, &mut world.out);
    }
    let records = world.out.usage().iter().map(|record| {
        assert!(!record.acknowledged);
        (record.cp_seid, record.used.bytes)
    });
    let mut records: Vec<_> = records.collect();
    records.sort_unstable();
    assert_eq!(records, [(1, [5000, 0]), (2, [0, 1500])]);
}

#[test]
fn the_log_names_each_smf_that_we_give_up() {
    let smfs = [smf(2), smf(3), smf(4)];
    let mut world = World::with_smfs(config(), &smfs);
    world.core.tables_mut().exact = true;
    for (&by, cp_seid) in smfs.iter().zip(1..) {
        let seid = establish_by(&mut world, by, (cp_seid, &[counting()]), |_| {});
        packets(&mut world, seid, 1, 1, 1000);
    }
    world.out.clear();
    world.core.abandon(world.now, &mut world.out);
    while !world.core.is_released() {
        world.core.advance(world.now, &mut world.out);
    }
    let records = world.out.usage().iter();
    let mut records: Vec<_> = records
        .map(|record| (record.cp_seid, record.smf.as_ref().unwrap().address()))
        .collect();
    records.sort_unstable();
    let expected = smfs.iter().zip(1..);
    let expected: Vec<_> = expected
        .map(|(smf, cp_seid)| (cp_seid, Some(smf.ip())))
        .collect();
    assert_eq!(records, expected);
}

/// An answer that comes late is not taken for that of the report which followed.
#[test]
fn an_answer_settles_the_report_that_it_answers() {
    let mut it = Measuring::new(&[counting()]);
    packets(&mut it.world, it.seid, 1, 5, 1000);
    let first = it.world.sent();
    let sent = it.world.pass(seconds(30));
    let (_, second) = sent.last().unwrap();
    assert_ne!(
        pfcp::decode(&first[0].1).unwrap().header.sequence,
        pfcp::decode(second).unwrap().header.sequence
    );
    assert_eq!(accept_report(&mut it.world, &first[0].1), []);
    assert_eq!(it.world.core.outstanding(), 1);
    accept_report(&mut it.world, second);
    assert_eq!(it.delete()[0].brief(), (1, 1, Told::TERMR, 0, 0));
}

/// PDRs name the last 16.
fn many(count: u32) -> Measuring {
    let mut config = config();
    config.limits.urrs_per_session = count as usize;
    let mut world = World::with_smfs(config, &[smf(2)]);
    world.core.tables_mut().exact = true;
    let urr = |id| UrrIe {
        id,
        ..UrrIe::volume(id, Asked::PERIO).with(IeType::MEASUREMENT_PERIOD, 60)
    };
    let urrs: Vec<UrrIe> = (1..=count).map(urr).collect();
    let seid = establish(&mut world, 77, &urrs);
    Measuring { world, seid }
}

#[test]
fn what_has_no_room_in_a_message_is_in_the_next() {
    let mut it = many(800);
    packets(&mut it.world, it.seid, 1, 3, 1000);
    let mut sent = it.world.pass(seconds(60));
    let mut said = Vec::new();
    while let Some((_, report)) = sent.pop() {
        assert!(said_in(&report).len() < 800);
        said.extend(said_in(&report));
        sent.extend(accept_report(&mut it.world, &report));
    }
    said.sort_by_key(|said| said.urr);
    let ids: Vec<u32> = said.iter().map(|said| said.urr).collect();
    assert_eq!(ids, (1..=800).collect::<Vec<_>>());
    for said in said {
        let up = if said.urr > 800 - 16 { 3000 } else { 0 };
        assert_eq!(said.brief(), (said.urr, 0, Told::PERIO, up, 0));
    }
}

#[test]
fn what_has_no_room_in_an_answer_is_in_the_log() {
    let mut it = many(800);
    packets(&mut it.world, it.seid, 1, 3, 1000);
    let kind = MessageType::SESSION_DELETION_REQUEST;
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, kind, Some(it.seid), 99).finish();
    it.world
        .core
        .receive(it.world.now, smf(2), &bytes, &mut it.world.out);
    let records = it.world.out.usage().to_vec();
    let answer = it.world.sent().remove(0).1;
    let told = said_in_answer(&answer).len();
    assert!((200..800).contains(&told), "{told}");
    let (acknowledged, lost): (Vec<_>, Vec<_>) = records.iter().partition(|r| r.acknowledged);
    assert_eq!(acknowledged.len(), told);
    // Of the others, those that have measured something.
    assert_eq!(lost.len(), 16);
    assert!(lost.iter().all(|record| record.used.bytes == [3000, 0]));
}
