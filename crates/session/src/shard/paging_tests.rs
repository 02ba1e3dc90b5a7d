//! Packets that wait for their UE, and SMFs that hear of it.

use std::time::Duration;

use compiled::{BufferLimits, Buffered, PdrId};
use pfcp::ie::{
    ApplyAction, DownlinkDataServiceInformation, PacketCount, PfcpSmReqFlags, PfcpSrRspFlags,
    ReportType, Timer, TimerUnit,
};
use pfcp::message::SessionReportRequest;
use pfcp::{Cause, IeType, MessageType, Writer};
use testkit::requests::tunnel;
use testkit::upf::Sent;

use crate::shard::reports_tests::world;
use crate::testing::world::{World, smf};

const IDLE: ApplyAction = ApplyAction::BUFF.union(ApplyAction::NOCP);
const DOWNLINK: PdrId = PdrId(2);
/// Expedited Forwarding.
const TOS: u8 = 46 << 2;

fn update_far(w: &mut Writer<'_>, action: ApplyAction, bar: Option<u8>) {
    w.grouped(IeType::UPDATE_FAR, |w| {
        w.put(IeType::FAR_ID, 2u32);
        w.put(IeType::APPLY_ACTION, action);
        if action == ApplyAction::FORW {
            w.grouped(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                w.put(IeType::OUTER_HEADER_CREATION, tunnel(0x5001));
            });
        }
        if let Some(bar) = bar {
            w.put(IeType::BAR_ID, bar);
        }
    });
}

fn create_bar(w: &mut Writer<'_>, more: impl FnOnce(&mut Writer<'_>)) {
    w.grouped(IeType::CREATE_BAR, |w| {
        w.put(IeType::BAR_ID, 1u8);
        more(w);
    });
}

/// A session whose UE is idle, and which has a BAR.
fn idle(action: ApplyAction, bar: impl Fn(&mut Writer<'_>)) -> (World, u64) {
    let mut world = world(&[smf(2)]);
    let seid = world.establish_with(smf(2), 77, |w| create_bar(w, &bar));
    world.modify(smf(2), seid, |w| update_far(w, action, Some(1)));
    (world, seid)
}

fn packet_comes(world: &mut World, seid: u64) -> Sent {
    world.core.tables_mut().held += 1;
    let what = Buffered {
        seid,
        pdr: DOWNLINK,
        tos: TOS,
        waits: true,
    };
    world.buffered(what)
}

#[test]
fn an_smf_hears_of_a_packet_for_which_there_was_no_room() {
    let (mut world, seid) = idle(ApplyAction::BUFF | ApplyAction::NOCP, |_| {});
    let what = Buffered {
        seid,
        pdr: DOWNLINK,
        tos: TOS,
        waits: false,
    };
    let sent = world.buffered(what);
    report_of(&sent);
    assert!(world.buffered(what).is_empty(), "it is known");
}

/// The only report of these, which is about the downlink.
fn report_of(sent: &Sent) -> &[u8] {
    let [(to, report)] = &sent[..] else {
        panic!("{} datagrams", sent.len());
    };
    assert_eq!(*to, smf(2));
    let message = pfcp::decode(report).unwrap();
    let request = SessionReportRequest::decode(&message).unwrap();
    assert_eq!(request.report_type, ReportType::DLDR);
    let about = request.downlink_data_report.unwrap();
    let pdrs: Vec<u16> = about.pdr_ids.iter().map(Result::unwrap).collect();
    let services: Vec<_> = about.services.iter().map(Result::unwrap).collect();
    let service = DownlinkDataServiceInformation {
        ppi: Some(46),
        qfi: None,
    };
    assert_eq!((pdrs, services), (vec![DOWNLINK.0], vec![service]));
    report
}

fn accept(world: &mut World, report: &[u8], more: impl Fn(&mut Writer<'_>)) {
    let sent = world.answer_with(smf(2), report, Cause::REQUEST_ACCEPTED, more);
    assert!(sent.is_empty());
}

#[test]
fn the_first_packet_of_an_idle_period_is_reported() {
    let (mut world, seid) = idle(IDLE, |_| {});
    let sent = packet_comes(&mut world, seid);
    accept(&mut world, report_of(&sent), |_| {});
    assert!(world.pass(Duration::from_secs(60)).is_empty(), "once");
    world.modify(smf(2), seid, |w| update_far(w, ApplyAction::FORW, None));
    world.core.tables_mut().held = 0;
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    let sent = packet_comes(&mut world, seid);
    report_of(&sent);
    assert_eq!(world.core.stats().downlink_data_reports, 2);
}

#[test]
fn buffering_without_nocp_is_not_reported() {
    let (mut world, seid) = idle(ApplyAction::BUFF, |_| {});
    assert!(packet_comes(&mut world, seid).is_empty());
    assert!(world.pass(Duration::from_secs(60)).is_empty());
}

#[test]
fn an_smf_that_wants_to_hear_later_hears_of_what_waits() {
    let (mut world, seid) = idle(ApplyAction::BUFF, |_| {});
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    assert!(world.core.tables().told_of.is_empty(), "nothing waits");
    world.modify(smf(2), seid, |w| update_far(w, ApplyAction::BUFF, None));
    assert!(packet_comes(&mut world, seid).is_empty());
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    assert_eq!(world.core.tables().told_of, [seid]);
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    assert_eq!(world.core.tables().told_of, [seid], "it wanted to before");
}

#[test]
fn what_no_longer_waits_is_not_reported() {
    let (mut world, seid) = idle(IDLE, |w| {
        w.put(IeType::DOWNLINK_DATA_NOTIFICATION_DELAY, 2u8)
    });
    packet_comes(&mut world, seid);
    world.core.tables_mut().held = 0;
    assert!(world.pass(Duration::from_secs(60)).is_empty());
    packet_comes(&mut world, seid);
    world.modify(smf(2), seid, |w| update_far(w, ApplyAction::FORW, None));
    assert!(world.pass(Duration::from_secs(60)).is_empty());
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    packet_comes(&mut world, seid);
    let kind = MessageType::SESSION_DELETION_REQUEST;
    world.ask(smf(2), kind, Some(seid), |_| {});
    assert!(world.pass(Duration::from_secs(60)).is_empty());
}

#[test]
fn the_report_waits_for_the_notification_delay() {
    let (mut world, seid) = idle(IDLE, |w| {
        w.put(IeType::DOWNLINK_DATA_NOTIFICATION_DELAY, 4u8)
    });
    assert!(packet_comes(&mut world, seid).is_empty());
    assert!(world.pass(Duration::from_millis(199)).is_empty());
    let sent = world.pass(Duration::from_millis(1));
    accept(&mut world, report_of(&sent), |_| {});
    world.modify(smf(2), seid, |w| {
        update_far(w, ApplyAction::FORW, None);
        w.grouped(IeType::UPDATE_BAR, |w| {
            w.put(IeType::BAR_ID, 1u8);
            w.put(IeType::DOWNLINK_DATA_NOTIFICATION_DELAY, 0u8);
        });
    });
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    report_of(&packet_comes(&mut world, seid));
}

#[test]
fn an_unanswered_report_is_sent_anew_while_packets_wait() {
    let (mut world, seid) = idle(IDLE, |_| {});
    let first = packet_comes(&mut world, seid);
    report_of(&first);
    let sent = world.pass(Duration::from_secs(9));
    let others: Vec<_> = sent.iter().filter(|again| **again != first[0]).collect();
    assert!(!others.is_empty(), "another request after N1 of the first");
    world.core.tables_mut().held = 0;
    world.pass(Duration::from_secs(10));
    assert!(world.pass(Duration::from_secs(60)).is_empty());
    assert_eq!(world.core.outstanding(), 0);
}

#[test]
fn a_bar_bounds_what_waits() {
    let (mut world, seid) = idle(IDLE, |w| {
        w.put(IeType::SUGGESTED_BUFFERING_PACKETS_COUNT, PacketCount(20));
    });
    packet_comes(&mut world, seid);
    let limits = BufferLimits {
        packets: Some(20),
        duration: None,
    };
    let limited = &world.core.tables().limited;
    assert_eq!(limited.as_slice(), [(seid, DOWNLINK, limits)]);
}

#[test]
fn the_answer_to_a_report_extends_buffering() {
    let (mut world, seid) = idle(IDLE, |_| {});
    let sent = packet_comes(&mut world, seid);
    accept(&mut world, report_of(&sent), |w| {
        w.grouped(IeType::UPDATE_BAR_IN_SESSION_REPORT_RESPONSE, |w| {
            w.put(IeType::BAR_ID, 1u8);
            let (unit, value) = (TimerUnit::Minute, 2);
            w.put(IeType::DL_BUFFERING_DURATION, Timer { unit, value });
            let count = PacketCount(1000);
            w.put(IeType::DL_BUFFERING_SUGGESTED_PACKET_COUNT, count);
        });
    });
    let limits = BufferLimits {
        packets: Some(1000),
        duration: Some(Duration::from_secs(120)),
    };
    let limited = &world.core.tables().limited;
    assert_eq!(limited.as_slice(), [(seid, DOWNLINK, limits)]);
    world.pass(Duration::from_secs(119));
    assert!(packet_comes(&mut world, seid).is_empty(), "it is expected");
    world.pass(Duration::from_secs(1));
    report_of(&packet_comes(&mut world, seid));
}

#[test]
fn a_bar_that_is_not_there_is_not_updated() {
    let (mut world, seid) = idle(IDLE, |_| {});
    let sent = packet_comes(&mut world, seid);
    accept(&mut world, report_of(&sent), |w| {
        w.grouped(IeType::UPDATE_BAR_IN_SESSION_REPORT_RESPONSE, |w| {
            w.put(IeType::BAR_ID, 9u8);
            w.put(IeType::DL_BUFFERING_DURATION, 0xe0u8);
        });
    });
    assert!(world.core.tables().limited.is_empty());
    world.core.tables_mut().held = 0;
    report_of(&packet_comes(&mut world, seid));
}

#[test]
fn drobu_discards_what_waits() {
    let (mut world, seid) = idle(IDLE, |_| {});
    let sent = packet_comes(&mut world, seid);
    accept(&mut world, report_of(&sent), |w| {
        w.put(IeType::PFCPSRRSP_FLAGS, PfcpSrRspFlags::DROBU);
    });
    assert_eq!(world.core.tables().discarded, [seid], "by the answer");
    world.modify(smf(2), seid, |w| {
        w.put(IeType::PFCPSMREQ_FLAGS, PfcpSmReqFlags::DROBU);
    });
    assert_eq!(world.core.tables().discarded, [seid; 2], "by itself");
    world.modify(smf(2), seid, |w| {
        w.put(IeType::PFCPSMREQ_FLAGS, PfcpSmReqFlags::DROBU);
        update_far(w, ApplyAction::FORW, None);
    });
    let live = world.core.tables().live.values().next().unwrap();
    assert!(live.drops_buffered, "before it forwards");
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    let live = world.core.tables().live.values().next().unwrap();
    assert!(!live.drops_buffered);
}

#[test]
fn paged_though_the_smf_has_just_said_that_the_ue_is_there() {
    let (mut world, seid) = idle(IDLE, |_| {});
    world.core.tables_mut().held += 1;
    let what = Buffered {
        seid,
        pdr: DOWNLINK,
        tos: TOS,
        waits: true,
    };
    // Both come in one turn; what waits has not left yet.
    world.core.buffered(world.now, what);
    world.modify(smf(2), seid, |w| update_far(w, ApplyAction::FORW, None));
    assert!(world.pass(Duration::from_secs(60)).is_empty());
    // Without that request it is paged.
    world.modify(smf(2), seid, |w| update_far(w, IDLE, None));
    report_of(&packet_comes(&mut world, seid));
}

#[test]
fn paged_by_a_report_that_waited_until_the_ue_was_there() {
    let (mut world, idle_one) = idle(IDLE, |_| {});
    let connected = world.establish_with(smf(2), 78, |_| {});
    world.modify(smf(2), connected, |w| update_far(w, IDLE, None));
    // As many as may be under way to one SMF.
    (0..256).for_each(|_| assert!(world.report(connected)));
    let sent = world.sent();
    assert_eq!(sent.len(), 256);
    for seid in [connected, idle_one] {
        assert!(packet_comes(&mut world, seid).is_empty());
    }
    world.modify(smf(2), connected, |w| {
        update_far(w, ApplyAction::FORW, None);
    });
    let next = world.answer_with(smf(2), &sent[0].1, Cause::REQUEST_ACCEPTED, |_| {});
    let about = pfcp::decode(report_of(&next)).unwrap().header.seid;
    assert_eq!(about, Some(77), "the one that still waits");
    let next = world.answer_with(smf(2), &sent[1].1, Cause::REQUEST_ACCEPTED, |_| {});
    assert!(next.is_empty());
    assert_eq!(world.core.stats().downlink_data_reports, 1);
}
