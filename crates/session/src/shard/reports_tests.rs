//! Reports to SMFs that answer, refuse, or are silent.

use std::net::SocketAddr;
use std::time::Duration;

use pfcp::ie::{NodeId, ReportType};
use pfcp::message::SessionReportRequest;
use pfcp::{Cause, IeType, MessageType};
use testkit::requests::{PdrIe, flow, remove};

use crate::exchange::stats::Way;
use crate::shard::tests::config;
use crate::testing::world::{World, id_of, smf};

/// A world that sees the inside of the core: few sessions, addresses and TEIDs.
pub(crate) fn world(smfs: &[SocketAddr]) -> World {
    World::with_smfs(config(), smfs)
}

impl World {
    /// Report an inactivity; whether the report was taken.
    pub(crate) fn report(&mut self, seid: u64) -> bool {
        self.core
            .report(self.now, seid, ReportType::UPIR, &mut self.out, |_| {})
    }

    fn packets_come(&mut self) {
        self.core.tables_mut().traffic.packets += 1;
    }
}

fn seid_of(report: &[u8]) -> u64 {
    let message = pfcp::decode(report).unwrap();
    let request = SessionReportRequest::decode(&message).unwrap();
    assert_eq!(request.report_type, ReportType::UPIR);
    message.header.seid.unwrap()
}

#[test]
fn a_report_goes_to_the_sessions_smf_until_it_is_answered() {
    let (one, two) = (smf(2), smf(3));
    let mut world = world(&[one, two]);
    let seid = world.establish(two, 77);
    assert!(world.report(seid));
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0, seid_of(&sent[0].1)), (two, 77));
    let again = world.pass(Duration::from_millis(1500));
    assert_eq!(again, sent, "the same octets after T1");
    let from_another = world.answer(one, &sent[0].1, Cause::REQUEST_ACCEPTED, None);
    assert!(from_another.is_empty());
    assert_eq!(world.core.outstanding(), 1, "only its SMF can answer it");
    world.answer(two, &sent[0].1, Cause::REQUEST_ACCEPTED, Some(78));
    assert_eq!(world.core.outstanding(), 0);
    assert!(world.pass(Duration::from_secs(10)).is_empty());
    assert!(world.report(seid));
    assert_eq!(seid_of(&world.sent()[0].1), 78, "the SMF's new SEID");
}

#[test]
fn an_unanswered_report_is_given_up_after_n1_times() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish(smf(2), 77);
    assert!(world.report(seid));
    assert_eq!(world.sent().len(), 1);
    assert_eq!(world.pass(Duration::from_secs(20)).len(), 2, "N1 is 3");
    assert_eq!(
        (world.core.outstanding(), world.core.stats().timeouts),
        (0, 1)
    );
}

#[test]
fn a_refusal_leaves_the_session_to_its_smf() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish(smf(2), 77);
    world.report(seid);
    let sent = world.sent();
    let cause = Cause::SESSION_CONTEXT_NOT_FOUND;
    world.answer(smf(2), &sent[0].1, cause, Some(99));
    let counted = (world.core.stats().causes())
        .any(|(way, _, seen, count)| (way, seen, count) == (Way::Received, cause, 1));
    assert!(counted);
    world.report(seid);
    assert_eq!(seid_of(&world.sent()[0].1), 77, "still there, as it was");
}

#[test]
fn a_deleted_session_is_spoken_of_no_more() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish(smf(2), 77);
    assert!(world.report(seid));
    world.sent();
    let kind = MessageType::SESSION_DELETION_REQUEST;
    world.ask(smf(2), kind, Some(seid), |_| {});
    assert!(world.pass(Duration::from_secs(10)).is_empty());
    assert_eq!(
        (world.core.outstanding(), world.core.stats().timeouts),
        (0, 0)
    );
    assert!(!world.report(seid));
}

#[test]
fn reports_leave_room_for_other_requests_and_each_smf_has_its_turn() {
    let smfs: Vec<SocketAddr> = (2..7).map(smf).collect();
    let mut limited = config();
    limited.limits.outstanding = 12;
    let mut world = world(&[]);
    world.core = World::with_smfs(limited, &smfs).core;
    let mut seids = Vec::new();
    for &smf in &smfs {
        seids.push(world.establish(smf, 77));
    }
    let sent_to = |world: &mut World, smf: usize| {
        assert!(world.report(seids[smf]));
        world.sent().len()
    };
    // Six of twelve: then one to each SMF, and nine in all.
    let to_one: usize = (0..20).map(|_| sent_to(&mut world, 0)).sum();
    assert_eq!(to_one, 6);
    let to_others: Vec<usize> = (1..5).map(|smf| sent_to(&mut world, smf)).collect();
    assert_eq!(to_others, [1, 1, 1, 0]);
    assert_eq!(world.core.outstanding(), 9);
    // The last one does not wait for its own SMF, which knows of nothing.
    let late = world.pass(Duration::from_secs(1));
    let of_another = late.iter().find(|(to, _)| *to == smfs[3]).unwrap();
    let next = world.answer(smfs[3], &of_another.1, Cause::REQUEST_ACCEPTED, None);
    let next: Vec<SocketAddr> = next.iter().map(|(to, _)| *to).collect();
    assert_eq!(next, [smfs[4]]);
}

#[test]
fn a_silent_smf_holds_up_only_its_own() {
    let (silent, other) = (smf(2), smf(3));
    let mut world = world(&[silent, other]);
    let seid = world.establish(silent, 77);
    let healthy = world.establish(other, 88);
    let taken = (0..10_000).take_while(|_| world.report(seid)).count();
    assert_eq!(taken, 256 + 4096, "under way and waiting");
    assert_eq!(world.sent().len(), 256);
    assert!(world.report(healthy));
    assert_eq!(world.sent().len(), 1);
    // Reports that wait go out as answers come, each once and in its turn.
    let mut left = taken - 256;
    assert!(!world.report(seid));
    let mut last = world.pass(Duration::from_secs(1));
    last.retain(|(to, _)| *to == silent);
    last.dedup();
    while let Some((_, report)) = last.pop() {
        let next = world.answer(silent, &report, Cause::REQUEST_ACCEPTED, None);
        left -= next.len();
        last.extend(next);
    }
    assert_eq!(left, 0);
    assert!(world.report(seid));
}

#[test]
fn with_the_association_go_its_reports() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish(smf(2), 77);
    for _ in 0..300 {
        assert!(world.report(seid));
    }
    world.sent();
    let kind = MessageType::ASSOCIATION_RELEASE_REQUEST;
    world.ask(smf(2), kind, None, |w| {
        w.node_id(NodeId::Ipv4(id_of(smf(2))))
    });
    assert_eq!(world.core.outstanding(), 0);
    assert!(world.pass(Duration::from_secs(10)).is_empty());
}

const TIMER: IeType = IeType::USER_PLANE_INACTIVITY_TIMER;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn a_quiet_session_is_reported_once() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    assert_eq!(world.core.session(seid).unwrap().inactivity_s, Some(10));
    assert!(world.pass(Duration::from_millis(9999)).is_empty());
    let sent = world.pass(Duration::from_millis(1));
    assert_eq!(sent.len(), 1, "when the timer runs out");
    assert_eq!(seid_of(&sent[0].1), 77);
    world.answer(smf(2), &sent[0].1, Cause::REQUEST_ACCEPTED, None);
    assert!(world.pass(seconds(3600)).is_empty(), "and not again");
    // Until packets have come, and stayed away.
    world.packets_come();
    assert!(world.pass(seconds(10)).is_empty());
    assert_eq!(world.pass(Duration::from_millis(1251)).len(), 1);
}

#[test]
fn packets_put_the_report_off() {
    let mut world = world(&[smf(2)]);
    world.establish_with(smf(2), 77, |w| w.put(TIMER, 8u32));
    for _ in 0..20 {
        world.packets_come();
        assert!(world.pass(seconds(7)).is_empty());
    }
    let mut sent = world.pass(seconds(2));
    sent.dedup();
    assert_eq!(sent.len(), 1, "the timer and at most an eighth of it later");
}

#[test]
fn a_modification_changes_or_stops_the_timer() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    world.modify(smf(2), seid, |w| w.put(TIMER, 20u32));
    assert!(world.pass(seconds(19)).is_empty());
    world.modify(smf(2), seid, |w| w.put(TIMER, 0u32));
    assert!(world.pass(seconds(3600)).is_empty());
    assert_eq!(world.core.next_deadline(), None, "nothing is left to do");
    world.modify(smf(2), seid, |w| w.put(TIMER, 5u32));
    assert_eq!(world.pass(seconds(5)).len(), 1);
}

#[test]
fn a_pdr_that_comes_or_goes_is_no_packet() {
    let mut world = world(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    world.packets_come();
    world.pass(seconds(9));
    world.modify(smf(2), seid, |w| {
        let filters = vec![flow("permit out 17 from any to assigned")];
        let pdr = PdrIe {
            id: 3,
            filters,
            ..PdrIe::uplink()
        };
        PdrIe { ue: None, ..pdr }.create(w);
    });
    let sent = world.pass(seconds(3));
    assert_eq!(sent.len(), 1);
    world.answer(smf(2), &sent[0].1, Cause::REQUEST_ACCEPTED, None);
    world.modify(smf(2), seid, |w| {
        remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 3);
    });
    assert!(world.pass(seconds(100)).is_empty());
}

#[test]
fn an_unanswered_inactivity_is_reported_anew() {
    let mut world = world(&[smf(2)]);
    world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    let sent = world.pass(seconds(13)).len();
    assert_eq!(sent, 3, "N1 times");
    let sent = world.pass(seconds(10)).len();
    assert!(sent >= 3, "{sent}: it is still quiet");
}

#[test]
fn the_timer_goes_with_its_session_and_with_its_smf() {
    let mut world = world(&[smf(2)]);
    let deleted = world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    world.establish_with(smf(2), 78, |w| w.put(TIMER, 10u32));
    world.ask(
        smf(2),
        MessageType::SESSION_DELETION_REQUEST,
        Some(deleted),
        |_| {},
    );
    let kind = MessageType::ASSOCIATION_RELEASE_REQUEST;
    world.ask(smf(2), kind, None, |w| {
        w.node_id(NodeId::Ipv4(id_of(smf(2))))
    });
    assert!(world.pass(seconds(100)).is_empty());
    assert_eq!(world.core.next_deadline(), None);
}

/// As many as fall due at once: none is lost, and nobody waits for all of them.
#[test]
fn many_sessions_fall_silent_together() {
    let mut world = world(&[smf(2)]);
    for cp_seid in 0..12 {
        world.establish_with(smf(2), cp_seid, |w| w.put(TIMER, 10u32));
    }
    let sent = world.pass(seconds(10));
    let mut seids: Vec<u64> = sent.iter().map(|(_, report)| seid_of(report)).collect();
    seids.sort_unstable();
    assert_eq!(seids, (0..12).collect::<Vec<_>>());
}
