//! URRs: what the SMF is told of must be, to the octet, what the UE has sent and received.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::measurement_method::MeasurementMethod;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::usage_report::UsageReport;
use rs_pfcp::ie::usage_report_trigger::{UsageReportTrigger as Trigger, UsageReportTriggerFlag};
use rs_pfcp::message::MsgType;
use serde_json::Value;

use super::{Scenario, eventually, expect_drops, finish_dropped, flow_down, flow_up, none_of};
use crate::dn;
use crate::flow::Shape;
use crate::ping::{ping, start_ping, unanswered};
use crate::smf::{Reports, Style, Urr, Used, is_for, query_urr, quota, update_urr, used};
use crate::traffic::{Iperf, Way, iperf, start_download};
use crate::world::{Attached, Family, World, smf_address};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "usage",
            "the sum of Usage Reports is what the UE sent and received, to the octet",
            sums,
        )
        .iperf(2),
        Scenario::new(
            "usage-quota",
            "nothing passes beyond a quota, until the SMF gives another one",
            quotas,
        ),
        Scenario::new(
            "usage-triggers",
            "each trigger reports what was used when it must",
            triggers,
        )
        .long(),
        Scenario::new(
            "usage-before-qos",
            "usage before QoS enforcement is what was offered, usage after it what passed",
            before_qos,
        ),
        Scenario::new(
            "usage-outage",
            "no usage is lost while the SMF does not answer",
            outage,
        )
        .line("[usage_log]", "path = \"{folder}/usage.jsonl\"")
        .line("[n4]", "t1_ms = 500")
        .long(),
    ]
}

/// Octets and packets that went through the UE's modem.
fn through(attached: &Attached) -> Used {
    use std::sync::atomic::Ordering::Relaxed;
    let modem = &attached.ue.modem;
    let of =
        |traffic: &crate::ue::Traffic| (traffic.bytes.load(Relaxed), traffic.packets.load(Relaxed));
    let (up, down) = (of(&modem.up), of(&modem.down));
    Used {
        octets: [up.0, down.0],
        packets: [up.1, down.1],
    }
}

/// A UE with these URRs on both of its PDRs, whose traffic nothing limits.
fn attach(world: &mut World, name: &str, family: Family, urrs: Vec<Urr>) -> Result<Attached> {
    let mut plan = world.plan(family, Style::Open5gs);
    plan.urrs = urrs;
    plan.mbr_kbps = None;
    world.attach(name, &plan, 0, 0)
}

/// Ends a session without closing its tunnels before; all of its reports.
fn end(world: &World, attached: &Attached) -> Result<Reports> {
    attached.ue.modem.set_uplink(None);
    settled(world, attached)?;
    let reports = world
        .smf(attached.smf)?
        .delete_measured(&attached.session)?;
    world.gnbs[attached.gnb].close(attached.teid);
    Ok(reports)
}

/// Waits until what is under way has arrived: the UPF has counted what the UE has, or nothing moves any more, because
/// something was lost between them.
fn settled(world: &World, attached: &Attached) -> Result<()> {
    const STILL: Duration = Duration::from_secs(1);
    let (mut before, mut moved) = (None, Instant::now());
    eventually("nothing is under way", || {
        let [up, down] = world.counted(attached)?;
        let at_ue = through(attached).packets;
        let now = (at_ue, [up.packets + up.drops, down.packets]);
        if before.replace(now) != Some(now) {
            moved = Instant::now();
        }
        Ok(now.0 == now.1 || moved.elapsed() > STILL)
    })
}

fn sums(world: &mut World) -> Result<String> {
    const THRESHOLD: u64 = 3_000_000;
    let triggers = ReportingTriggers::new()
        .with_volume_threshold(true)
        .with_periodic(true);
    let by_volume = Urr::of_volume(1, triggers.clone()).threshold(THRESHOLD)?;
    let often = Urr::of_volume(2, ReportingTriggers::new().with_periodic(true));
    let urrs = vec![
        by_volume.seconds(IeType::MeasurementPeriod, 3600),
        often.seconds(IeType::MeasurementPeriod, 1),
    ];
    let mut attached = attach(world, "ue1", Family::Dual, urrs)?;
    // Fewer packets are under way than the queue of a veth has room for, so that none is lost behind the UPF's count.
    for memory in ["tcp_rmem", "tcp_wmem"] {
        let path = format!("net/ipv4/{memory}");
        attached.ue.netns.sysctl(&path, "4096 65536 131072")?;
    }
    for (port, way) in [(0, Way::Up), (1, Way::Down)] {
        let plan = Iperf {
            from: attached.address()?,
            port: dn::IPERF_PORT + port,
            way,
            udp_bps: None,
            seconds: 2,
            omitted: 0,
            algorithm: None,
        };
        iperf(&attached.ue.netns, plan)?;
    }
    // Rules change under traffic.
    let [_, v6] = attached.session.addresses.all()[..] else {
        anyhow::bail!("two addresses");
    };
    let download = start_download(&attached.ue.netns, v6, 20 << 20, 20 << 20)?;
    for to in [1, 0, 1] {
        std::thread::sleep(Duration::from_millis(200));
        world.handover(&mut attached, to)?;
    }
    download.finish()?;
    ping(&attached.ue.netns, dn::SERVER_V4.into(), 20, 20)?.whole()?;
    attached.ue.modem.set_uplink(None);
    settled(world, &attached)?;
    let counted = world.counted(&attached)?;
    let reports = end(world, &attached)?;
    let expected = through(&attached);
    let sums = [reports.sum(1)?, reports.sum(2)?];
    ensure!(
        sums == [expected; 2],
        "URRs: {sums:?} instead of {expected:?}; the PDRs have counted {counted:?}"
    );
    let by_volume = reports.of(1)?;
    // So many at least are in 20 MiB alone.
    ensure!(by_volume.len() > 5, "{} reports", by_volume.len());
    let mut worst = 0;
    for report in &by_volume[..by_volume.len() - 1] {
        ensure!(is_for(report, Trigger::VOLTH), "{report:?}");
        let total = used(report)?.total();
        let over = total.checked_sub(THRESHOLD);
        worst = worst.max(over.with_context(|| format!("{total} are below the threshold"))?);
    }
    let last = by_volume.last().context("no report")?;
    ensure!(is_for(last, Trigger::TERMR), "{last:?}");
    each_period(&reports.of(2)?)?;
    Ok(format!(
        "{} octets in {} and {} reports; at most {worst} octets beyond the threshold",
        expected.total(),
        by_volume.len(),
        reports.of(2)?.len()
    ))
}

/// Of a URR with a period of a second, over the four seconds and more that iperf takes.
fn each_period(reports: &[&UsageReport]) -> Result<()> {
    ensure!(reports.len() > 4, "{} reports", reports.len());
    for (at, report) in reports.iter().enumerate() {
        let last = at + 1 == reports.len();
        let trigger = if last { Trigger::TERMR } else { Trigger::PERIO };
        ensure!(is_for(report, trigger), "{report:?}");
        let (start, end) = times(report)?;
        ensure!(end >= start, "{report:?}");
        if let Some(next) = reports.get(at + 1) {
            ensure!(times(next)?.0 == end, "{report:?}, then {next:?}");
        }
    }
    Ok(())
}

/// From when to when a report is, in seconds.
fn times(report: &UsageReport) -> Result<(u32, u32)> {
    let (start, end) = (report.start_time.as_ref(), report.end_time.as_ref());
    let times = start.zip(end).context("no times")?;
    Ok((times.0.timestamp, times.1.timestamp))
}

fn quotas(world: &mut World) -> Result<String> {
    const QUOTA: u64 = 1_000_000;
    let triggers = ReportingTriggers::new().with_volume_quota(true);
    let urr = Urr::of_volume(1, triggers).quota(QUOTA)?;
    let attached = attach(world, "ue1", Family::V4, vec![urr])?;
    let shape = Shape {
        payload: 1100,
        ..Shape::endless(5000)
    };
    let mut worst = 0;
    for given in 1..=3u64 {
        let before = world.drops("quota")?;
        let (up, down) = (
            flow_up(world, &attached, shape)?,
            flow_down(world, &attached, shape)?,
        );
        eventually("the quota is used up", || {
            Ok(world.drops("quota")? - before > 1000)
        })?;
        up.stop();
        down.stop();
        let ended = finish_dropped(world, vec![up, down], "quota", before)?;
        let [(up, _), (down, _)] = &ended[..] else {
            bail!("two flows");
        };
        expect_drops(world, "quota", before, (up.lost() + down.lost()).into())?;
        let reports = || world.smf(0)?.usage(&attached.session);
        eventually("the report of the quota", || {
            Ok(reports()?.of(1)?.len() as u64 >= given)
        })?;
        let reports = reports()?;
        let of_quota = reports.of(1)?;
        ensure!(of_quota.len() as u64 == given, "{of_quota:?}");
        let report = of_quota[of_quota.len() - 1];
        ensure!(is_for(report, Trigger::VOLQU), "{report:?}");
        let passed = u64::from(up.received + down.received) * (shape.payload as u64 + 28);
        let total = used(report)?.total();
        ensure!(total == passed, "{passed} octets passed, {total} reported");
        let over = total.checked_sub(QUOTA);
        worst = worst.max(over.context("stopped before the quota was used up")?);
        if given < 3 {
            let renewed = update_urr(1, vec![quota(QUOTA)?]);
            world.smf(0)?.modify(&attached.session, &[renewed])?;
        }
    }
    let reports = end(world, &attached)?;
    let last = reports.of(1)?[3];
    ensure!(
        used(last)? == Used::default() && is_for(last, Trigger::TERMR),
        "{last:?}"
    );
    Ok(format!("at most {worst} octets beyond a quota of {QUOTA}"))
}

/// Waits for the report number `seqn` of a URR.
fn report(world: &World, attached: &Attached, urr: u32, seqn: usize) -> Result<Used> {
    let mut reports = Reports::default();
    let what = format!("report {seqn} of URR {urr}");
    eventually(&what, || {
        reports = world.smf(0)?.usage(&attached.session)?;
        Ok(reports.of(urr)?.len() > seqn)
    })?;
    used(reports.of(urr)?[seqn])
}

/// The trigger of a report that is there.
fn made_for(
    world: &World,
    attached: &Attached,
    (urr, seqn): (u32, usize),
    trigger: UsageReportTriggerFlag,
) -> Result<()> {
    let reports = world.smf(0)?.usage(&attached.session)?;
    let report = reports.of(urr)?[seqn];
    ensure!(is_for(report, trigger), "{report:?}");
    Ok(())
}

fn triggers(world: &mut World) -> Result<String> {
    start_and_stop(world).context("start_and_stop")?;
    linked(world).context("linked")?;
    asked_for(world).context("asked_for")?;
    over_time(world).context("over_time")?;
    dropped_downlink(world).context("dropped_downlink")?;
    Ok("start and stop of traffic, linked, queried, by time, dropped downlink".to_owned())
}

/// Of `count` pings of 84 octets, each way.
fn pings(attached: &Attached, count: u32) -> Result<Used> {
    ping(&attached.ue.netns, dn::SERVER_V4.into(), count, 20)?.whole()?;
    Ok(pings_of(count.into()))
}

fn pings_of(count: u64) -> Used {
    Used {
        octets: [84 * count; 2],
        packets: [count; 2],
    }
}

fn start_and_stop(world: &mut World) -> Result<()> {
    let triggers = ReportingTriggers::new()
        .with_start_of_traffic(true)
        .with_stop_of_traffic(true);
    let urr = Urr::of_volume(1, triggers).seconds(IeType::InactivityDetectionTime, 1);
    let attached = attach(world, "started", Family::V4, vec![urr])?;
    let expected = pings(&attached, 5)?;
    report(world, &attached, 1, 0)?;
    made_for(world, &attached, (1, 0), Trigger::START)?;
    report(world, &attached, 1, 1)?;
    made_for(world, &attached, (1, 1), Trigger::STOPT)?;
    let reports = end(world, &attached)?;
    ensure!(reports.sum(1)? == expected, "{:?}", reports.sum(1)?);
    Ok(())
}

/// A URR reports when the one reports that it is linked to.
fn linked(world: &mut World) -> Result<()> {
    let leading = Urr::of_volume(1, ReportingTriggers::new().with_volume_threshold(true));
    let led = Urr::of_volume(2, ReportingTriggers::new().with_linked_urr(true));
    let urrs = vec![
        leading.threshold(1680)?,
        led.seconds(IeType::LinkedUrrId, 1),
    ];
    let attached = attach(world, "linked", Family::V4, urrs)?;
    // One direction, so that the last packet reaches the threshold.
    let shape = Shape {
        rate: 100,
        count: 6,
        payload: 252,
    };
    flow_up(world, &attached, shape)?
        .finish()?
        .whole("uplink")?;
    let expected = Used {
        octets: [1680, 0],
        packets: [6, 0],
    };
    for urr in [1, 2] {
        let used = report(world, &attached, urr, 0)?;
        ensure!(used == expected, "URR {urr}: {used:?}");
    }
    made_for(world, &attached, (2, 0), Trigger::LIUSA)?;
    end(world, &attached)?;
    Ok(())
}

/// A report that the SMF asks for comes with the answer.
fn asked_for(world: &mut World) -> Result<()> {
    let urr = Urr::of_volume(1, ReportingTriggers::new());
    let attached = attach(world, "asked", Family::V4, vec![urr])?;
    for _ in 0..2 {
        let expected = pings(&attached, 3)?;
        let smf = world.smf(0)?;
        let answered = smf.modify_measured(&attached.session, &[query_urr(1)])?;
        let [report] = answered.all()[..] else {
            anyhow::bail!("{answered:?}");
        };
        ensure!(is_for(report, Trigger::IMMER), "{report:?}");
        ensure!(used(report)? == expected, "{report:?}");
    }
    ensure!(used(end(world, &attached)?.all()[0])? == Used::default());
    Ok(())
}

/// Seconds count from when the URR is created, and are reported with the volume.
fn over_time(world: &mut World) -> Result<()> {
    let both = MeasurementMethod::new(true, true, false);
    let urr = Urr::new(1, both, ReportingTriggers::new().with_time_threshold(true));
    let quota = Urr::new(2, both, ReportingTriggers::new().with_time_quota(true));
    let urrs = vec![
        urr.seconds(IeType::TimeThreshold, 2),
        quota.seconds(IeType::TimeQuota, 4),
    ];
    // Before the first of the times is over.
    let mut attempts = 0;
    let (attached, expected) = loop {
        attempts += 1;
        let name = format!("timed{attempts}");
        let began = Instant::now();
        let attached = attach(world, &name, Family::V4, urrs.clone())?;
        let pinged = start_ping(&attached.ue.netns, dn::SERVER_V4.into(), 10, 20)?.finish()?;
        if began.elapsed() < Duration::from_secs(2) {
            pinged.whole()?;
            break (attached, pings_of(10));
        }
        ensure!(attempts < 10, "ten pings in two seconds, never");
        end(world, &attached)?;
    };
    let by_threshold = report(world, &attached, 1, 0)?;
    ensure!(by_threshold == expected, "{by_threshold:?}");
    made_for(world, &attached, (1, 0), Trigger::TIMTH)?;
    let by_quota = report(world, &attached, 2, 0)?;
    ensure!(by_quota == expected, "{by_quota:?}");
    made_for(world, &attached, (2, 0), Trigger::TIMQU)?;
    let reports = world.smf(0)?.usage(&attached.session)?;
    for (urr, seconds) in [(1, 2), (2, 4)] {
        let report = reports.of(urr)?[0];
        let measured = report.duration_measurement.as_ref();
        let measured = measured.context("no duration")?.duration_seconds;
        let (start, end) = times(report)?;
        let lasted = end - start;
        ensure!(
            measured >= seconds && measured.abs_diff(lasted) <= 1,
            "URR {urr}: {measured} s of {lasted} s"
        );
    }
    unanswered(&attached.ue.netns, dn::SERVER_V4.into(), 3).context("after the quota")?;
    end(world, &attached)?;
    Ok(())
}

/// Downlink packets that are dropped count for their own threshold.
fn dropped_downlink(world: &mut World) -> Result<()> {
    // DLPA: so many packets.
    let mut threshold = vec![1];
    threshold.extend(100u64.to_be_bytes());
    let triggers = ReportingTriggers::new().with_dropped_dl_traffic(true);
    let threshold = rs_pfcp::ie::Ie::new(IeType::DroppedDlTrafficThreshold, threshold);
    let urr = Urr::of_volume(1, triggers).with(threshold);
    let attached = attach(world, "dropped", Family::V4, vec![urr])?;
    let gates = crate::smf::Gates {
        up: true,
        down: false,
    };
    world.smf(0)?.gate(&attached.session, gates)?;
    none_of(
        flow_down(world, &attached, Shape::lasting(200, 1))?,
        "downlink",
    )?;
    report(world, &attached, 1, 0)?;
    made_for(world, &attached, (1, 0), Trigger::DROTH)?;
    end(world, &attached)?;
    Ok(())
}

/// Of so many packets each way.
fn flows_of(shape: Shape, [up, down]: [u32; 2]) -> Used {
    let packets = [up.into(), down.into()];
    Used {
        octets: packets.map(|packets: u64| packets * (shape.payload as u64 + 28)),
        packets,
    }
}

fn plus(a: Used, b: Used) -> Used {
    let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
    Used {
        octets: sum(a.octets, b.octets),
        packets: sum(a.packets, b.packets),
    }
}

/// A pair of URRs over the same PDRs, one on each side of an MBR and a gate, as free5GC has them, and one whose threshold
/// what is dropped reaches.
fn before_qos(world: &mut World) -> Result<String> {
    const THRESHOLD: u64 = 300_000;
    const MBR_KBPS: u64 = 2_000;
    let by_volume = ReportingTriggers::new().with_volume_threshold(true);
    let urrs = vec![
        Urr::before_qos(1, ReportingTriggers::new()),
        Urr::of_volume(2, ReportingTriggers::new()),
        Urr::before_qos(3, by_volume).threshold(THRESHOLD)?,
    ];
    let mut plan = world.plan(Family::V4, Style::Free5gc);
    plan.urrs = urrs;
    plan.mbr_kbps = Some((MBR_KBPS, MBR_KBPS));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    // Some four times what the MBR allows.
    let shape = Shape {
        payload: 1100,
        ..Shape::lasting(1000, 2)
    };
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    let ended = finish_dropped(world, vec![up, down], "rate", 0)?;
    let [(up, _), (down, _)] = &ended[..] else {
        bail!("two flows");
    };
    let dropped = u64::from(up.lost() + down.lost());
    ensure!(dropped > 0, "the MBR has dropped nothing");
    expect_drops(world, "rate", 0, dropped)?;
    let passed = flows_of(shape, [up.received, down.received]);
    let offered = flows_of(shape, [up.sent, down.sent]);
    let reports = world.smf(0)?.usage(&attached.session)?.of(3)?.len();
    world
        .smf(0)?
        .gate(&attached.session, crate::smf::Gates::CLOSED)?;
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    let (up, down) = (none_of(up, "uplink")?, none_of(down, "downlink")?);
    expect_drops(world, "gate_closed", 0, (up.sent + down.sent).into())?;
    eventually("what the gate drops reaches a threshold", || {
        Ok(world.smf(0)?.usage(&attached.session)?.of(3)?.len() > reports)
    })?;
    made_for(world, &attached, (3, reports), Trigger::VOLTH)?;
    let refused = flows_of(shape, [up.sent, down.sent]);
    let all = end(world, &attached)?;
    let before = plus(offered, refused);
    for (urr, expected) in [(1, before), (2, passed), (3, before)] {
        let sum = all.sum(urr)?;
        ensure!(
            sum == expected,
            "URR {urr}: {sum:?} instead of {expected:?}"
        );
    }
    // Each URR is of one side, and its SMF knows of which.
    let all = all.all();
    let said = all.iter().filter(|said| said.usage_information.is_some());
    ensure!(said.count() == 0, "{all:?}");
    Ok(format!(
        "of {} octets offered {} passed",
        before.total(),
        passed.total()
    ))
}

fn outage(world: &mut World) -> Result<String> {
    let triggers = ReportingTriggers::new().with_volume_threshold(true);
    let urr = Urr::of_volume(1, triggers).threshold(100_000)?;
    let attached = attach(world, "ue1", Family::V4, vec![urr])?;
    let shape = Shape::lasting(2000, 1);
    flow_up(world, &attached, shape)?
        .finish()?
        .whole("before")?;
    world.smf(0)?.mute(true);
    let before = world.pfcp_events("timeout")?;
    flow_up(world, &attached, shape)?
        .finish()?
        .whole("meanwhile")?;
    eventually("a report is given up, again and again", || {
        Ok(world.pfcp_events("timeout")? >= before + 2)
    })?;
    flow_down(world, &attached, shape)?
        .finish()?
        .whole("meanwhile")?;
    world.smf(0)?.mute(false);
    let waits = || Ok(waiting(world)? == 0);
    eventually("what waited is reported", waits)?;
    flow_down(world, &attached, shape)?
        .finish()?
        .whole("afterwards")?;
    let reports = end(world, &attached)?;
    let (sum, expected) = (reports.sum(1)?, through(&attached));
    ensure!(sum == expected, "{sum:?} instead of {expected:?}");
    let requests = world.smf(0)?.requests(MsgType::SessionReportRequest)?;
    let told = reports.of(1)?.len();
    ensure!(requests.len() > told, "nothing was sent again");
    logged(world, &attached, &reports)?;
    Ok(format!(
        "{told} reports of {} octets, in {} requests",
        expected.total(),
        requests.len()
    ))
}

/// The log of usage has each report once, with the names of its session.
fn logged(world: &World, attached: &Attached, reports: &Reports) -> Result<()> {
    let path = world.folder.join("usage.jsonl");
    let mut lines: Vec<Value> = Vec::new();
    let all = reports.all();
    eventually("the log has all reports", || {
        let text = std::fs::read_to_string(&path).context("the log of usage")?;
        let read = text.lines().map(serde_json::from_str);
        lines = read.collect::<serde_json::Result<_>>()?;
        Ok(lines.len() >= all.len())
    })?;
    ensure!(lines.len() == all.len(), "{} lines", lines.len());
    for report in all {
        let (urr, seqn) = (report.urr_id.id, report.ur_seqn.sequence_number());
        let mut own = (lines.iter()).filter(|line| line["urr"] == urr && line["seqn"] == seqn);
        let (Some(line), None) = (own.next(), own.next()) else {
            anyhow::bail!("not one line of URR {urr}, report {seqn}");
        };
        let used = used(report)?;
        let names = [
            ("seid", format!("{:016x}", attached.session.up_seid).into()),
            (
                "cp_seid",
                format!("{:016x}", attached.session.cp_seid).into(),
            ),
            ("smf", smf_address(0).to_string().into()),
            ("ue", Value::from(vec![attached.address()?.to_string()])),
            ("uplink_bytes", used.octets[0].into()),
            ("downlink_bytes", used.octets[1].into()),
            ("uplink_packets", used.packets[0].into()),
            ("downlink_packets", used.packets[1].into()),
            ("acknowledged", true.into()),
        ];
        for (field, expected) in names {
            ensure!(line[field] == expected, "{field} is not {expected}: {line}");
        }
        ensure!(line["start"].as_u64() <= line["end"].as_u64(), "{line}");
    }
    Ok(())
}

/// Sessions whose usage waits to be reported.
fn waiting(world: &World) -> Result<u64> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let status: Value = upf.get(&world.upf_ns, "/api/v1/status")?;
    status["usage"]["sessions_waiting"]
        .as_u64()
        .context("no usage in the status")
}
