//! Reports to SMFs that answer, refuse, or are silent.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use compiled::Buffered;
use pfcp::ie::{FSeid, NodeId, RecoveryTimeStamp, ReportType};
use pfcp::message::SessionReportRequest;
use pfcp::{Cause, IeType, MessageType, Writer};

use crate::base::time::Time;
use crate::core::Core;
use crate::exchange::outbox::Outbox;
use crate::exchange::stats::Way;
use crate::rules::config::Config;
use crate::shard::record::Record;
use crate::shard::tests::{PdrIe, Recorder, choose4, config, ordinary_with};

pub(crate) type Sent = Vec<(SocketAddr, Vec<u8>)>;

pub(crate) struct World {
    pub(crate) core: Core<Recorder>,
    pub(crate) now: Time,
    pub(crate) out: Outbox,
    sequence: u32,
}

pub(crate) fn smf(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 100, 0, last], 8805))
}

pub(crate) fn id_of(smf: SocketAddr) -> Ipv4Addr {
    match smf.ip() {
        std::net::IpAddr::V4(v4) => v4,
        std::net::IpAddr::V6(_) => unreachable!("SMFs of these tests have IPv4"),
    }
}

impl World {
    pub(crate) fn new(smfs: &[SocketAddr]) -> Self {
        Self::with(config(), smfs)
    }

    pub(crate) fn with(config: Config, smfs: &[SocketAddr]) -> Self {
        let config = Config {
            heartbeat_interval: Duration::ZERO,
            ..config
        };
        let tables = Recorder {
            teids: Some(64.max(config.limits.sessions * 2)),
            ..Recorder::default()
        };
        let mut world = Self {
            core: Core::new(config, 1, tables),
            now: Time(1_000_000_000),
            out: Outbox::new(),
            sequence: 0,
        };
        for &smf in smfs {
            world.ask(smf, MessageType::ASSOCIATION_SETUP_REQUEST, None, |w| {
                w.node_id(NodeId::Ipv4(id_of(smf)));
                w.recovery_time_stamp(RecoveryTimeStamp(7));
            });
        }
        world
    }

    pub(crate) fn receive(&mut self, from: SocketAddr, datagram: &[u8]) -> Sent {
        self.out.clear();
        self.core.receive(self.now, from, datagram, &mut self.out);
        self.sent()
    }

    pub(crate) fn sent(&mut self) -> Sent {
        let sent = self.out.iter().map(|(to, bytes)| (to, bytes.to_vec()));
        let sent = sent.collect();
        self.out.clear();
        sent
    }

    /// A request of an SMF; its accepted answer.
    pub(crate) fn ask(
        &mut self,
        from: SocketAddr,
        kind: MessageType,
        seid: Option<u64>,
        write: impl Fn(&mut Writer<'_>),
    ) -> Vec<u8> {
        self.sequence += 1;
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, kind, seid, self.sequence);
        write(&mut writer);
        writer.finish();
        let mut sent = self.receive(from, &bytes);
        assert_eq!(sent.len(), 1);
        let (_, answer) = sent.remove(0);
        let message = pfcp::decode(&answer).unwrap();
        let cause = message.ies.find(IeType::CAUSE).unwrap().unwrap();
        assert_eq!(cause.value, [1], "{kind:?}: {:?}", message.ies);
        self.check_indexes();
        answer
    }

    /// Our SEID.
    fn establish(&mut self, from: SocketAddr, cp_seid: u64) -> u64 {
        self.establish_with(from, cp_seid, |_| {})
    }

    pub(crate) fn establish_with(
        &mut self,
        from: SocketAddr,
        cp_seid: u64,
        more: impl Fn(&mut Writer<'_>),
    ) -> u64 {
        let kind = MessageType::SESSION_ESTABLISHMENT_REQUEST;
        let answer = self.ask(from, kind, Some(0), |w| {
            w.node_id(NodeId::Ipv4(id_of(from)));
            w.f_seid(FSeid {
                seid: cp_seid,
                ipv4: Some(id_of(from)),
                ipv6: None,
            });
            let (mut uplink, mut downlink) = (PdrIe::uplink(), PdrIe::downlink());
            (uplink.ue, downlink.ue) = (None, Some(choose4()));
            ordinary_with(w, uplink, downlink);
            more(w);
        });
        let message = pfcp::decode(&answer).unwrap();
        let f_seid = message.ies.find(IeType::F_SEID).unwrap().unwrap();
        u64::from_be_bytes(f_seid.value[1..9].try_into().unwrap())
    }

    /// A session goes elsewhere, and returns.
    pub(crate) fn move_session(&mut self, seid: u64) -> Sent {
        let record = self.core.release(self.now, seid).unwrap();
        assert!(self.core.session(seid).is_none());
        let record = Record::read(&record.write()).unwrap();
        let adopted = self.core.adopt(self.now, record, &mut self.out);
        assert_eq!(adopted, Ok(seid));
        self.check_indexes();
        self.sent()
    }

    /// Report an inactivity; whether the report was taken.
    pub(crate) fn report(&mut self, seid: u64) -> bool {
        self.core
            .report(self.now, seid, ReportType::UPIR, &mut self.out, |_| {})
    }

    pub(crate) fn pass(&mut self, time: Duration) -> Sent {
        let end = self.now.after(time);
        let mut sent = Vec::new();
        while let Some(due) = self.core.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.core.advance(self.now, &mut self.out);
            sent.extend(self.sent());
        }
        self.now = end;
        self.check_indexes();
        sent
    }

    /// Of many sessions it would take too long after each step.
    fn check_indexes(&self) {
        if self.core.session_count() <= 64 {
            self.core.check_indexes();
        }
    }

    /// A GTP-U message; what is sent thereupon.
    pub(crate) fn hear(&mut self, packet: &[u8]) -> Sent {
        self.out.clear();
        self.core.receive_gtpu(self.now, packet, &mut self.out);
        self.sent()
    }

    pub(crate) fn delete(&mut self, from: SocketAddr, seid: u64) {
        let kind = MessageType::SESSION_DELETION_REQUEST;
        self.ask(from, kind, Some(seid), |_| {});
    }

    pub(crate) fn buffered(&mut self, what: Buffered) -> Sent {
        self.core.buffered(self.now, what);
        self.core.advance(self.now, &mut self.out);
        self.sent()
    }

    fn packets_come(&mut self) {
        self.core.tables_mut().traffic += 1;
    }

    pub(crate) fn modify(&mut self, from: SocketAddr, seid: u64, write: impl Fn(&mut Writer<'_>)) {
        self.ask(
            from,
            MessageType::SESSION_MODIFICATION_REQUEST,
            Some(seid),
            write,
        );
    }

    /// Answer a report; what is sent thereupon.
    pub(crate) fn answer(
        &mut self,
        from: SocketAddr,
        report: &[u8],
        cause: Cause,
        new: Option<u64>,
    ) -> Sent {
        self.answer_with(from, report, cause, |writer| {
            if let Some(seid) = new {
                writer.f_seid(FSeid {
                    seid,
                    ipv4: Some(id_of(from)),
                    ipv6: None,
                });
            }
        })
    }

    pub(crate) fn answer_with(
        &mut self,
        from: SocketAddr,
        report: &[u8],
        cause: Cause,
        more: impl Fn(&mut Writer<'_>),
    ) -> Sent {
        let header = pfcp::decode(report).unwrap().header;
        let mut bytes = Vec::new();
        let kind = MessageType::SESSION_REPORT_RESPONSE;
        let mut writer = Writer::new(&mut bytes, kind, header.seid, header.sequence);
        writer.cause(cause);
        more(&mut writer);
        writer.finish();
        self.receive(from, &bytes)
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
    let mut world = World::new(&[one, two]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[]);
    world.core = World::with(limited, &smfs).core;
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
    let mut world = World::new(&[silent, other]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    world.packets_come();
    world.pass(seconds(9));
    world.modify(smf(2), seid, |w| {
        let filters = vec![crate::shard::tests::flow(
            "permit out 17 from any to assigned",
        )];
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
        crate::shard::tests::remove(w, IeType::REMOVE_PDR, IeType::PDR_ID, 3);
    });
    assert!(world.pass(seconds(100)).is_empty());
}

#[test]
fn an_unanswered_inactivity_is_reported_anew() {
    let mut world = World::new(&[smf(2)]);
    world.establish_with(smf(2), 77, |w| w.put(TIMER, 10u32));
    let sent = world.pass(seconds(13)).len();
    assert_eq!(sent, 3, "N1 times");
    let sent = world.pass(seconds(10)).len();
    assert!(sent >= 3, "{sent}: it is still quiet");
}

#[test]
fn the_timer_goes_with_its_session_and_with_its_smf() {
    let mut world = World::new(&[smf(2)]);
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
    let mut world = World::new(&[smf(2)]);
    for cp_seid in 0..12 {
        world.establish_with(smf(2), cp_seid, |w| w.put(TIMER, 10u32));
    }
    let sent = world.pass(seconds(10));
    let mut seids: Vec<u64> = sent.iter().map(|(_, report)| seid_of(report)).collect();
    seids.sort_unstable();
    assert_eq!(seids, (0..12).collect::<Vec<_>>());
}
