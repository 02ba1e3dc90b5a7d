//! GTP-U peers that lose tunnels, go silent, and come back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::remote_gtpu_peer::RemoteGtpuPeer;
use rs_pfcp::ie::{IeIterator, IeType};
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{Scenario, eventually, expect_drops, none_of};
use crate::dn;
use crate::flow::{self, Shape};
use crate::gtpu;
use crate::ping::unanswered;
use crate::smf::{Answer, Style};
use crate::world::{Family, GNBS, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "error-indication-report",
            "a gNB without the tunnel: the SMF of the session is told, once",
            error_indication_report,
        )
        // N1 times this is how long a tunnel pauses.
        .line("[n4]", "t1_ms = 20000")
        .smfs(2)
        // It has 10 s for an answer, and so do tunnels.
        .line("[n4]", "n1 = 10"),
        Scenario::new(
            "path-failure",
            "a gNB that goes silent and comes back is reported",
            path_failure,
        )
        .smfs(2)
        .line(
            "[gtpu]",
            "echo_interval_s = 1\necho_t3_ms = 1000\necho_n3 = 3",
        ),
    ]
}

/// The F-TEIDs in Error Indication Reports, by hand (figures 8.2.3-1 and 7.5.8.4-1).
fn reported(report: &Answer) -> Result<Vec<(u32, Ipv4Addr)>> {
    ensure!(
        report.ie(IeType::ReportType)?.payload == [4],
        "Report Type is not ERIR"
    );
    let group = report.ie(IeType::ErrorIndicationReport)?;
    IeIterator::new(&group.payload)
        .map(|ie| {
            let ie = ie?;
            let octets: [u8; 9] = (ie.payload.as_slice().try_into()).context("F-TEID")?;
            let [1, t0, t1, t2, t3, a, b, c, d] = octets else {
                anyhow::bail!("F-TEID {octets:?}");
            };
            Ok((
                u32::from_be_bytes([t0, t1, t2, t3]),
                Ipv4Addr::new(a, b, c, d),
            ))
        })
        .collect()
}

fn error_indication_report(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for smf in 0..2 {
        let plan = world.plan(Family::V4, Style::Open5gs);
        attached.push(world.attach(&format!("ue{smf}"), &plan, smf, 0)?);
        ping_all(&attached[smf])?;
    }
    // The gNB has lost the tunnel of the first UE and says so for each packet, as TS 29.281 wants.
    let (gnb, teid) = (&world.gnbs[0], attached[0].teid);
    gnb.close(teid);
    let indication = gtpu::error_indication(teid, gnb.address());
    for _ in 0..50 {
        gnb.send_raw(UPF_N3, &indication)?;
    }
    // One about a tunnel that no session has.
    gnb.send_raw(UPF_N3, &gtpu::error_indication(0x7777_7777, gnb.address()))?;
    let smf = world.smf(0)?;
    let reports = || smf.requests(MsgType::SessionReportRequest);
    eventually("the report", || Ok(!reports()?.is_empty()))?;
    std::thread::sleep(Duration::from_millis(500));
    let reports = reports()?;
    ensure!(
        reports.len() == 1,
        "{} reports of one tunnel",
        reports.len()
    );
    ensure!(
        reports[0].seid()? == attached[0].session.cp_seid,
        "a report about another session"
    );
    let told = reported(&reports[0])?;
    ensure!(told == [(teid, GNBS[0])], "told of {told:x?}");
    let other = world.smf(1)?.requests(MsgType::SessionReportRequest)?;
    ensure!(other.is_empty(), "the other SMF was told of {other:?}");
    // Until the SMF says something, nothing is sent to where nobody knows it; the other UE goes on.
    let before = world.drops("tunnel_gone")?;
    let to = SocketAddr::new(attached[0].address()?, 7000);
    let shape = Shape {
        rate: 200,
        count: 20,
        payload: 100,
    };
    let server = SocketAddr::new(dn::SERVER_V4.into(), 7000);
    let (dn, ue) = (&world.dn_ns, &attached[0].ue.netns);
    none_of(
        flow::start_from(dn, server, ue, to, shape)?,
        "a gone tunnel",
    )?;
    expect_drops(world, "tunnel_gone", before, 20)?;
    ping_all(&attached[1])?;
    // The SMF makes the UE active at the other gNB.
    let mut moved = attached.remove(0);
    world.handover(&mut moved, 1)?;
    ping_all(&moved)?;
    ping_all(&attached[0])?;
    Ok("50 indications of one tunnel, 1 report; the UE moved to another gNB".to_owned())
}

/// The peers that a Node Report names.
pub(super) fn peers(report: &Answer, group: IeType) -> Result<Vec<IpAddr>> {
    let group = report.ie(group)?;
    IeIterator::new(&group.payload)
        .map(|ie| {
            let peer = RemoteGtpuPeer::unmarshal(&ie?.payload)?;
            peer.ipv4.map(IpAddr::V4).context("a peer without IPv4")
        })
        .collect()
}

/// Whether an Echo Request of the UPF has been answered.
pub(super) fn answered(world: &World) -> Result<bool> {
    Ok(world.pfcp_events("echo_response")? > 0)
}

fn path_failure(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    ping_all(&attached)?;
    eventually("the gNB answers", || answered(world))?;
    world.ran_ns.ip("link set gnb1 down")?;
    let smf = world.smf(0)?;
    let reports = || smf.requests(MsgType::NodeReportRequest);
    eventually("the failure is told", || Ok(reports()?.len() == 1))?;
    let failure = &reports()?[0];
    ensure!(
        failure.ie(IeType::NodeReportType)?.payload == [1],
        "not UPFR"
    );
    let told = peers(failure, IeType::UserPlanePathFailureReport)?;
    ensure!(told == [GNBS[0]], "told of {told:?}");
    let server = dn::server_for(attached.address()?);
    unanswered(&attached.ue.netns, server, 1).context("past a link that is down")?;

    world.ran_ns.ip("link set gnb1 up")?;
    eventually("the recovery is told", || Ok(reports()?.len() == 2))?;
    let recovery = &reports()?[1];
    ensure!(
        recovery.ie(IeType::NodeReportType)?.payload == [2],
        "not UPRR"
    );
    let told = peers(recovery, IeType::UserPlanePathRecoveryReport)?;
    ensure!(told == [GNBS[0]], "told of {told:?}");
    let others = world.smf(1)?.requests(MsgType::NodeReportRequest)?;
    ensure!(others.is_empty(), "an SMF without sessions was told");
    ping_all(&attached)?;
    Ok("failure and recovery told to the SMF that has sessions".to_owned())
}
