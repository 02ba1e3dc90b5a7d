//! QERs beyond gate and bit rate, and what the UPF reports of quiet users.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::gbr::Gbr;
use rs_pfcp::ie::packet_rate::{PacketRate, TimeUnit};
use rs_pfcp::ie::user_plane_inactivity_timer::UserPlaneInactivityTimer;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::capture::{Capture, counts};
use super::sessions::refused;
use super::{Scenario, both_ways, expect_drops, finish_dropped, flow_down, flow_up};
use crate::dn;
use crate::flow::{self, Shape};
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "reflective-qos",
            "RQI and PPI in the PDU Session Container of the downlink, as tshark reads it",
            reflective_qos,
        ),
        Scenario::new(
            "packet-rate",
            "so many packets in a time unit, and no more",
            packet_rate,
        ),
        Scenario::new(
            "guaranteed-rate",
            "where there is not enough for all, a guaranteed flow loses nothing, others share equally, and no more is guaranteed",
            guaranteed_rate,
        )
        .line("[[network_instance]]", "capacity_uplink_kbps = 8000")
        .line("[qos]", "guaranteed_percent = 50")
        .alone(),
        Scenario::new(
            "user-plane-inactivity",
            "a quiet user is reported once, a busy one is not",
            user_plane_inactivity,
        )
        .long(),
        Scenario::new(
            "deferred-activation",
            "a PDR holds from its Activation Time to its Deactivation Time",
            deferred_activation,
        ),
    ]
}

fn reflective_qos(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let rqi = |on: u8| Ie::new(IeType::Rqi, vec![on]);
    let ppi = Ie::new(IeType::PagingPolicyIndicator, vec![5]);
    let marked = [
        (vec![rqi(1)], "rqi == 1", "ppp == 0"),
        (vec![ppi], "rqi == 1", "ppi == 5"),
        (vec![rqi(0)], "rqi == 0", "ppi == 5"),
    ];
    let mut seen = 0;
    for (number, (ies, rqi, paging)) in marked.into_iter().enumerate() {
        world.smf(0)?.update_qer(&attached.session, ies)?;
        let file = format!("n3-{number}.pcapng");
        let capture = Capture::start(world, &world.ran_ns, "upf", &file)?;
        both_ways(world, &attached)?;
        seen += containers(&capture.stop()?, rqi, paging)?;
    }
    Ok(format!("{seen} downlink packets marked as asked"))
}

/// All downlink packets have the marks, and the uplink is as ever.
fn containers(n3: &Path, rqi: &str, paging: &str) -> Result<usize> {
    let downlink = "gtp.message == 255 && ip.src == 10.3.0.1";
    let marked = format!(
        "{downlink} && gtp.ext_hdr.pdu_ses_cont.{rqi} && gtp.ext_hdr.pdu_ses_cont.{paging} \
         && gtp.ext_hdr.pdu_ses_con.qos_flow_id == 9 && !_ws.malformed && udp.port == 2152 \
         && ip.dst == 10.60.0.0/16"
    );
    let uplink = "gtp.message == 255 && ip.dst == 10.3.0.1";
    let plain = format!("{uplink} && gtp.ext_hdr.pdu_ses_con.pdu_type == 1");
    let [all, right, uplinks, plain] = counts(n3, &[downlink, &marked, uplink, &plain])?[..] else {
        bail!("four counts");
    };
    ensure!(
        all > 100 && all == right,
        "{right} of {all} downlink packets have {rqi} and {paging}"
    );
    ensure!(
        uplinks > 100 && uplinks == plain,
        "uplink: {plain} of {uplinks}"
    );
    Ok(all)
}

fn packet_rate(world: &mut World) -> Result<String> {
    const ALLOWED: u16 = 30;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let rate = PacketRate::new_uplink(TimeUnit::Hour, ALLOWED).marshal();
    let qer = vec![Ie::new(IeType::PacketRate, rate)];
    world.smf(0)?.update_qer(&attached.session, qer)?;
    let shape = Shape::lasting(100, 2);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    let up = &finish_dropped(world, vec![up], "packet_rate", 0)?[0].0;
    down.finish()?.whole("downlink, which has no packet rate")?;
    ensure!(
        up.received == u32::from(ALLOWED),
        "{} of {} packets passed, {ALLOWED} may",
        up.received,
        up.sent
    );
    expect_drops(world, "packet_rate", 0, up.lost().into())?;
    // A higher limit holds at once, for the same time unit.
    let rate = PacketRate::new_uplink(TimeUnit::Hour, 2 * ALLOWED).marshal();
    let qer = vec![Ie::new(IeType::PacketRate, rate)];
    world.smf(0)?.update_qer(&attached.session, qer)?;
    let more = vec![flow_up(world, &attached, shape)?];
    let dropped = up.lost().into();
    let more = &finish_dropped(world, more, "packet_rate", dropped)?[0].0;
    ensure!(
        more.received == u32::from(ALLOWED),
        "{} packets more passed, {ALLOWED} may",
        more.received
    );
    Ok(format!(
        "{ALLOWED} of {} packets, then as many again",
        up.sent
    ))
}

/// Of 8 Mbit/s one flow is guaranteed 3 and sends 2.5, two others send 8 each.
fn guaranteed_rate(world: &mut World) -> Result<String> {
    const PAYLOAD: usize = 1000;
    const BITS: f64 = (PAYLOAD + 28) as f64 * 8.0;
    const SECONDS: u32 = 6;
    let gbr = |kbps| {
        let gbr = Gbr::new(kbps, 0).marshal().to_vec();
        vec![Ie::new(IeType::Gbr, gbr)]
    };
    let (loyal, greedy) = (
        world.attach_plain("ue1", Family::V4)?,
        [
            world.attach_plain("ue2", Family::V4)?,
            world.attach_plain("ue3", Family::V4)?,
        ],
    );
    let smf = world.smf(0)?;
    smf.update_qer(&loyal.session, gbr(3000))?;
    let refusal = smf.update_qer(&greedy[0].session, gbr(1001));
    refused(refusal, CauseValue::NoResourcesAvailable)?;
    let send = |attached: &Attached, bps: f64| {
        let rate = (bps / BITS) as u32;
        let shape = Shape {
            rate,
            count: rate * SECONDS,
            payload: PAYLOAD,
        };
        let server = SocketAddr::new(dn::SERVER_V4.into(), 0);
        flow::start_regardless(
            &attached.ue.netns,
            flow::any(server),
            &world.dn_ns,
            server,
            shape,
        )
    };
    let greedy = [send(&greedy[0], 8e6)?, send(&greedy[1], 8e6)?];
    // Shares have settled.
    super::more_of(&greedy[0], 200)?;
    let (kept, sent) = send(&loyal, 2.5e6)?.finish_lossy()?;
    kept.whole("the guaranteed flow")?;
    let mut shares = Vec::new();
    for (outcome, sent) in finish_dropped(world, greedy.into(), "capacity", 0)? {
        ensure!(outcome.late == 0, "{} packets out of order", outcome.late);
        shares.push(f64::from(outcome.received) / (sent.until - sent.from).as_secs_f64());
    }
    let (one, other) = (shares[0] * BITS / 1e6, shares[1] * BITS / 1e6);
    let ratio = one / other;
    let report = format!(
        "{} of {} packets at a guaranteed rate in {:.1} s, beside {one:.2} and {other:.2} Mbit/s",
        kept.received,
        kept.sent,
        (sent.until - sent.from).as_secs_f64()
    );
    ensure!((0.8..1.25).contains(&ratio), "{report}: unequal");
    // A second of theirs had nobody beside it.
    ensure!((2.2..4.1).contains(&one), "{report}: not what there is");
    ensure!(
        world.drops("capacity")? > 0,
        "{report}: nothing was dropped"
    );
    Ok(report)
}

fn user_plane_inactivity(world: &mut World) -> Result<String> {
    const TIMER: Duration = Duration::from_secs(1);
    let attached = world.attach_plain("ue1", Family::V4)?;
    let timer = UserPlaneInactivityTimer::new(TIMER);
    let timer = Ie::new(IeType::UserPlaneInactivityTimer, timer.marshal().to_vec());
    let asked = Instant::now();
    world.smf(0)?.modify(&attached.session, &[timer])?;
    let (mut waited, mut told) = (Vec::new(), 0);
    while waited.len() < 2 {
        // Downlink alone keeps it busy.
        let busy = flow_down(world, &attached, Shape::lasting(10, 3))?;
        let (busy, sent) = busy.finish_timed()?;
        busy.whole("downlink")?;
        let so_far = reports(world, &attached)?;
        let mut gaps = busy.gaps.clone();
        if told == 0 {
            // It counts from the request on.
            gaps.extend(busy.came.map(|(first, _)| first - asked));
        }
        if so_far > told && gaps.iter().any(|gap| *gap > TIMER / 2) {
            // It was quiet: the sender had no time.
            told = so_far;
            continue;
        }
        expect_reports(world, &attached, told)?;
        told += 1;
        super::eventually("the report", || Ok(reports(world, &attached)? >= told))?;
        let quiet = sent.until.elapsed();
        waited.push(format!("{:.1} s", quiet.as_secs_f64()));
        ensure!(quiet > TIMER / 2, "reported after {quiet:?}");
        std::thread::sleep(TIMER * 2);
        expect_reports(world, &attached, told)?;
    }
    Ok(format!(
        "reported once each time, {} after the flow was drained",
        waited.join(" and ")
    ))
}

/// The downlink PDR is given its times: packets pass in between, and only then.
fn deferred_activation(world: &mut World) -> Result<String> {
    /// From the Unix epoch back to that of NTP.
    const NTP_EPOCH_S: u64 = 2_208_988_800;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let now =
        || Ok::<_, anyhow::Error>(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64());
    let begin = now()? as u64;
    let (on, off) = (begin + 4, begin + 8);
    let ntp = |unix_s: u64| ((unix_s + NTP_EPOCH_S) as u32).to_be_bytes().to_vec();
    let times = vec![
        Ie::new(IeType::ActivationTime, ntp(on)),
        Ie::new(IeType::DeactivationTime, ntp(off)),
    ];
    world
        .smf(0)?
        .update_downlink_pdr(&attached.session, times)?;
    let shape = Shape::endless(100);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    let lost = || world.drops("no_pdr");
    super::eventually("packets meet no PDR before", || Ok(lost()? >= 100))?;
    super::eventually("the PDR holds", || Ok(down.arrived() > 0))?;
    let held = now()?;
    ensure!(held >= on as f64, "it held at {held}, {on} is its time");
    super::more_of(&down, 100)?;
    let before = lost()?;
    super::eventually("the PDR holds no longer", || Ok(lost()? > before))?;
    let over = now()?;
    ensure!(
        over >= off as f64,
        "it was over at {over}, {off} is its time"
    );
    super::eventually("packets meet no PDR afterwards", || {
        Ok(lost()? >= before + 100)
    })?;
    up.stop();
    down.stop();
    up.finish()?.whole("uplink, whose PDR always holds")?;
    let down = down.finish_blocked()?;
    let (first, last) = down.numbers.context("nothing passed")?;
    ensure!(
        down.received == last - first + 1 && down.duplicates == 0,
        "while the PDR held {} packets passed of {first} to {last}",
        down.received
    );
    expect_drops(world, "no_pdr", 0, down.lost().into())?;
    Ok(format!(
        "of {} packets those from {first} to {last} passed",
        down.sent
    ))
}

fn expect_reports(world: &World, attached: &Attached, expected: usize) -> Result<()> {
    let found = reports(world, attached)?;
    ensure!(found == expected, "{found} reports instead of {expected}");
    Ok(())
}

/// Session Report Requests about the session; each must report its inactivity (TS 29.244, 8.2.21:
/// UPIR is bit 4) and nothing else.
fn reports(world: &World, attached: &Attached) -> Result<usize> {
    let requests = world.smf(0)?.requests(MsgType::SessionReportRequest)?;
    for request in &requests {
        let kind = request.ie(IeType::ReportType)?.payload.clone();
        ensure!(kind == [8], "Report Type {kind:02x?}");
        let seid = request.seid()?;
        ensure!(seid == attached.session.cp_seid, "a report about {seid:#x}");
    }
    Ok(requests.len())
}
