//! What GTP-U peers say and do: Error Indications and paths (TS 29.281; TS 23.527, 5.3 and 5.4;
//! TS 29.244, 6.2.9 and 7.5.8).

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use rs_pfcp::ie::remote_gtpu_peer::RemoteGtpuPeer;
use rs_pfcp::ie::report_type::ReportType;
use rs_pfcp::ie::{Ie, IeIterator, IeType};
use rs_pfcp::message::MsgType;
use session::Config;
use session::testing::world::{World, config};
use testkit::smf::{Answer, Smf, accepted, encode};

/// Where the sessions of these tests send their downlink.
const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
const TEID: u32 = 0x0a0b_0c0d;

/// An IPv4 packet with a UDP header, by hand.
fn packet(from: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let total = (28 + message.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.octets());
    packet.extend([10, 3, 0, 1]);
    packet.extend([0x08, 0x68, 0x08, 0x68]);
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(message);
    packet
}

fn error_indication(teid: u32, peer: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![0x32, 26, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 16];
    message.extend(teid.to_be_bytes());
    message.extend([133, 0, 4]);
    message.extend(peer.octets());
    packet(peer, &message)
}

fn response(kind: MsgType, seid: Option<u64>, request: &[u8], ies: &[Ie]) -> Vec<u8> {
    let at = if seid.is_some() { 12 } else { 4 };
    let sequence = u32::from_be_bytes([0, request[at], request[at + 1], request[at + 2]]);
    encode(kind, seid, sequence, ies)
}

#[test]
fn an_error_indication_is_reported_to_the_smf_of_the_session() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    let mut other = Smf::new("10.100.0.3:8805");
    other.associate(&mut world);
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    let sent = world.hear(&error_indication(TEID, GNB));
    assert_eq!(sent.len(), 1, "{sent:02x?}");
    let (to, raw) = &sent[0];
    assert_eq!(*to, smf.address);
    rs_pfcp::message::parse(raw).unwrap();
    let report = Answer::from(raw.clone());
    assert_eq!(report.raw[1], MsgType::SessionReportRequest as u8);
    assert_eq!(report.seid(), smf.next_seid, "the SMF's SEID");
    let kind: ReportType = report.ie(IeType::ReportType).unwrap().parse().unwrap();
    assert_eq!(kind.marshal()[0], 4, "ERIR");
    let told = report.ie(IeType::ErrorIndicationReport).unwrap();
    let member = IeIterator::new(&told.payload).next().unwrap().unwrap();
    assert_eq!(member.ie_type, IeType::Fteid, "Remote F-TEID");
    let mut octets = vec![1];
    octets.extend(TEID.to_be_bytes());
    octets.extend(GNB.octets());
    assert_eq!(member.payload, octets);

    // The gNB repeats itself with each packet; the SMF hears of it again only by T1.
    assert!(world.hear(&error_indication(TEID, GNB)).is_empty());
    let again = world.pass(Duration::from_millis(1100));
    assert_eq!(again, sent, "T1");
    let answer = response(
        MsgType::SessionReportResponse,
        Some(seid),
        raw,
        &[accepted()],
    );
    assert!(world.receive(smf.address, &answer).is_empty());
    assert!(world.pass(Duration::from_millis(1500)).is_empty());
    // Nothing was done about it: once more, after the time that the SMF had.
    world.pass(Duration::from_secs(3));
    assert_eq!(world.hear(&error_indication(TEID, GNB)).len(), 1);
    assert_eq!(world.core.stats().error_indications, 3);
    assert_eq!(world.core.stats().error_reports, 2);
}

#[test]
fn indications_about_nothing_of_ours_are_counted_and_no_more() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    assert!(world.hear(&error_indication(TEID + 1, GNB)).is_empty());
    assert!(
        world
            .hear(&error_indication(TEID, [10, 3, 0, 9].into()))
            .is_empty()
    );
    assert!(world.hear(b"nonsense").is_empty());
    smf.delete(&mut world, seid);
    assert!(world.hear(&error_indication(TEID, GNB)).is_empty());
    assert_eq!(world.core.stats().error_reports, 0);
    assert_eq!(world.core.stats().gtpu_malformed, 1);
}

/// The gNB says it again, so that the tunnel pauses, until it is tried once more.
fn pause(world: &mut World) {
    assert!(world.hear(&error_indication(TEID, GNB)).is_empty());
    world.pass(Duration::from_secs(4));
}

#[test]
fn every_session_with_the_tunnel_is_reported() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let seids = [0; 3].map(|_| smf.establish(&mut world));
    assert_eq!(world.hear(&error_indication(TEID, GNB)).len(), 3);
    pause(&mut world);
    smf.delete(&mut world, seids[1]);
    assert_eq!(world.hear(&error_indication(TEID, GNB)).len(), 2);
}

#[test]
fn with_many_sessions_an_error_indication_is_answered_a_while_later() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    // More than are looked at in one step; places of deleted ones are taken first.
    let seids: Vec<u64> = (0..2500).map(|_| smf.establish(&mut world)).collect();
    for seid in &seids[..2499] {
        smf.delete(&mut world, *seid);
    }
    assert!(world.hear(&error_indication(TEID, GNB)).is_empty());
    // One that goes meanwhile is not looked for, one that comes is found.
    smf.establish(&mut world);
    let sent = world.pass(Duration::ZERO);
    assert_eq!(sent.len(), 2, "{sent:02x?}");
    assert_eq!(world.core.stats().error_reports, 2);
    smf.delete(&mut world, seids[2499]);
    pause(&mut world);
    assert_eq!(world.hear(&error_indication(TEID, GNB)).len(), 1);
}

fn watching() -> World {
    World::new(Config {
        echo_interval: Duration::from_secs(60),
        echo_t3: Duration::from_secs(2),
        echo_n3: 3,
        ..config()
    })
}

/// Pass the time; Echo Requests are answered as long as `answering`, heartbeats always. Node Reports
/// that were sent.
fn watch(world: &mut World, smf: &Smf, seconds: u64, answering: Option<&[u8]>) -> Vec<Vec<u8>> {
    let mut reports = Vec::new();
    let end = world.now.after(Duration::from_secs(seconds));
    while let Some(due) = world.core.next_deadline().filter(|due| *due <= end) {
        world.now = world.now.max(due);
        world.out.clear();
        world.core.advance(world.now, &mut world.out);
        let echoes: Vec<_> = (world.out.echoes())
            .map(|((remote, local), octets)| (remote, local, octets.to_vec()))
            .collect();
        let mut sent = world.sent();
        for (remote, local, octets) in echoes {
            assert_eq!((remote, local), (GNB.into(), IpAddr::from([10, 3, 0, 1])));
            assert_eq!(octets[..8], [0x32, 1, 0, 4, 0, 0, 0, 0], "Echo Request");
            if let Some(extra) = answering {
                let mut echo = vec![0x32, 2, 0, 6 + extra.len() as u8, 0, 0, 0, 0];
                echo.extend([octets[8], octets[9], 0, 0, 14, 0]);
                echo.extend(extra);
                world.out.clear();
                world
                    .core
                    .receive_echo(world.now, remote, &echo, &mut world.out);
                sent.extend(world.sent());
            }
        }
        for (to, raw) in sent {
            assert_eq!(to, smf.address);
            if raw[1] == MsgType::NodeReportRequest as u8 {
                let ies = [smf.node_id.to_ie(), accepted()];
                let answer = response(MsgType::NodeReportResponse, None, &raw, &ies);
                world.receive(smf.address, &answer);
                reports.push(raw);
            } else {
                smf.respond(world, &raw);
            }
        }
    }
    world.now = end;
    reports
}

/// Type and peers of a Node Report.
fn read(report: &[u8]) -> (u8, Vec<Ipv4Addr>) {
    let message = Answer::from(report.to_vec());
    let kind = message.ie(IeType::NodeReportType).unwrap().payload[0];
    let groups = [
        IeType::UserPlanePathFailureReport,
        IeType::UserPlanePathRecoveryReport,
        IeType::PeerUpRestartReport,
    ];
    let group = groups.iter().find_map(|group| message.ie(*group)).unwrap();
    let peers = IeIterator::new(&group.payload).map(|ie| {
        let peer = RemoteGtpuPeer::unmarshal(&ie.unwrap().payload).unwrap();
        peer.ipv4.unwrap()
    });
    (kind, peers.collect())
}

#[test]
fn a_failed_path_and_its_recovery_are_reported() {
    let (mut world, mut smf) = (watching(), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    let seid = smf.establish(&mut world);
    assert_eq!(watch(&mut world, &smf, 150, Some(&[])), [] as [Vec<u8>; 0]);
    assert_eq!(world.core.path_count(), (1, 0));
    let answers = |world: &World| -> Vec<_> {
        let paths = world.core.paths_after(None);
        paths.map(|path| (path.ends.0, path.answers)).collect()
    };
    assert_eq!(answers(&world), [(GNB.into(), Some(true))]);
    let reports = watch(&mut world, &smf, 300, None);
    assert_eq!(reports.len(), 1, "told once");
    rs_pfcp::message::parse(&reports[0]).unwrap();
    assert_eq!(read(&reports[0]), (1, vec![GNB]), "UPFR");
    assert_eq!(world.core.path_count(), (1, 1));
    assert_eq!(answers(&world), [(GNB.into(), Some(false))]);
    let first = world.core.paths_after(None).next().unwrap().ends;
    assert_eq!(world.core.paths_after(Some(first)).next(), None);
    let reports = watch(&mut world, &smf, 120, Some(&[]));
    assert_eq!(reports.len(), 1);
    assert_eq!(read(&reports[0]), (2, vec![GNB]), "UPRR");
    let stats = world.core.stats();
    assert_eq!((stats.path_failures, stats.path_recoveries), (1, 1));
    // With its last session the path is forgotten.
    smf.delete(&mut world, seid);
    watch(&mut world, &smf, 20, None);
    assert_eq!(world.core.path_count(), (0, 0));
}

#[test]
fn a_peer_that_never_answers_is_left_in_peace() {
    let (mut world, mut smf) = (watching(), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    smf.establish(&mut world);
    assert!(watch(&mut world, &smf, 600, None).is_empty());
    assert!(world.core.stats().echo_requests >= 20);
}

#[test]
fn a_restarted_peer_is_reported() {
    let (mut world, mut smf) = (watching(), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    smf.establish(&mut world);
    let before = [231, 0, 4, 0xe9, 0, 0, 1];
    let after = [231, 0, 4, 0xe9, 0, 0, 2];
    assert!(watch(&mut world, &smf, 130, Some(&before)).is_empty());
    let reports = watch(&mut world, &smf, 130, Some(&after));
    assert_eq!(reports.len(), 1);
    assert_eq!(read(&reports[0]), (16, vec![GNB]), "PURR");
}

#[test]
fn without_an_interval_nothing_is_sent() {
    let (mut world, mut smf) = (World::new(config()), Smf::new("10.100.0.2:8805"));
    smf.associate(&mut world);
    smf.establish(&mut world);
    assert!(watch(&mut world, &smf, 300, None).is_empty());
    assert_eq!(world.core.stats().echo_requests, 0);
}
