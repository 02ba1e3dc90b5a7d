//! Nodes that go and come back.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use rs_pfcp::ie::framed_route::FramedRoute;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{
    Scenario, both_ways, eventually, expect_drops, finish_dropped, flow_down, flow_up, more_of,
    wait_for_waiting,
};
use crate::dn;
use crate::flow::{self, Outcome, Shape};
use crate::ping::unanswered;
use crate::smf::{Event, SessionPlan, Style, Urr, Used, query_urr, used};
use crate::upf::{self, Datapath, Upf};
use crate::wait::NEVER;
use crate::world::{Attached, Family, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "smf-restart",
            "a restarted SMF's sessions go, others stay",
            smf_restart,
        )
        .smfs(2),
        Scenario::new("smf-lost", "an SMF that answers no more", smf_lost)
            .smfs(2)
            .forgetful(),
        Scenario::new(
            "upf-restart",
            "the SMF notices and restores traffic",
            upf_restart,
        ),
        Scenario::new(
            "upf-killed",
            "the next start goes on with its sessions, and SMFs notice nothing",
            upf_killed,
        )
        .line("[state]", "dir = \"{folder}\"")
        .smfs(2)
        .long(),
        Scenario::new(
            "upf-killed-unnoticed",
            "no packet is lost with the UPF, and none is missing in its usage",
            upf_killed_unnoticed,
        )
        .outlasting()
        .long(),
        Scenario::new(
            "upf-killed-spread",
            "nor where users are spread over CPUs, by programs that do all",
            upf_killed_spread,
        )
        .outlasting()
        .line("[[interface]]", "spread_cpus = [0, 1]")
        // Fifteen starts have the kernel look through the largest programs, a second or more each.
        .alone(),
        Scenario::new(
            "upf-killed-metered",
            "users who have used up the burst of their rates get no other one with the next start",
            upf_killed_metered,
        )
        .outlasting()
        .line("[qos]", "burst_ms = 10000"),
        Scenario::new(
            "upf-killed-counted",
            "what packets have counted is in the usage and the counters of the next start, where they end with the UPF",
            upf_killed_counted,
        )
        .leaving_counts(),
        Scenario::new(
            "upf-killed-metered-at-once",
            "nor get users another burst where packets meet the next start before all sessions do",
            |world| Ok(metered_over_kills(world)?.0),
        )
        .leaving_counts()
        .line("[qos]", "burst_ms = 10000"),
        Scenario::new(
            "upf-unmanaged",
            "packets go on without the UPF for as long as it is told, and no longer",
            upf_unmanaged,
        )
        .outlasting()
        .line("[state]", "unmanaged_s = 5"),
        Scenario::new(
            "upf-restart-kept",
            "SIGTERM leaves sessions to the next start, with all that they have counted",
            upf_restart_kept,
        )
        .line("[state]", "dir = \"{folder}\"")
        .line("[state]", "on_stop = \"keep\""),
        Scenario::new(
            "upf-shutdown",
            "SIGTERM tells the SMFs and ends with 0",
            upf_shutdown,
        )
        .smfs(2),
        Scenario::new(
            "workers-killed",
            "the process of workers ends, or hangs, under traffic, and turnpiked or the next one has others go on",
            workers_killed,
        )
        .apart(),
        Scenario::new(
            "tap-removed",
            "somebody deletes the TAP interface of a port, and it is there again",
            tap_removed,
        )
        .apart(),
        Scenario::new(
            "upf-upgraded",
            "another program takes over: packets go on by the former workers until its own start",
            upf_upgraded,
        )
        .apart(),
        Scenario::new(
            "memif-peer-restart",
            "what is at the other end of memifs is killed under traffic, and comes back",
            memif_peer_restart,
        )
        .memif(),
    ]
}

fn smf_restart(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for smf in 0..2 {
        let plan = world.plan(Family::Dual, Style::Free5gc);
        attached.push(world.attach(&format!("ue{smf}"), &plan, smf, 0)?);
        ping_all(&attached[smf])?;
    }
    world.smfs[0] = None;
    let later = SystemTime::now() + Duration::from_secs(60);
    let smf = world.start_smf(0, later)?;
    smf.associate().context("association after the restart")?;
    world.smfs[0] = Some(smf);

    let gone = || Ok(world.sessions()? == 1);
    eventually("the sessions of the restarted SMF go", gone)?;
    let server = dn::server_for(attached[0].address()?);
    unanswered(&attached[0].ue.netns, server, 2).context("a UE of the restarted SMF")?;
    ping_all(&attached[1]).context("a UE of the other SMF")?;

    // The same UE again, with the same addresses: nothing of the old session is in the way.
    let plan = attached[0].session.plan.clone();
    let again = world.attach("again", &plan, 0, 0)?;
    ping_all(&again)?;
    Ok("1 of 2 sessions went, and was established anew".to_owned())
}

fn upf_restart(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    ping_all(&attached)?;
    let before = world.smf(0)?.heartbeat()?;

    // Recovery Time Stamps count seconds.
    std::thread::sleep(Duration::from_millis(1100));
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGKILL)?;
    world.start_upf()?;
    let smf = world.smf(0)?;
    let after = smf.heartbeat()?;
    ensure!(
        after > before,
        "Recovery Time Stamp {before} before and {after} after"
    );
    smf.wait_for(&Event::UpfRestarted)?;

    smf.associate().context("association after the restart")?;
    ensure!(
        world.sessions()? == 0,
        "sessions survived without their SMF's word"
    );
    let again = world.attach("again", &attached.session.plan, 0, 0)?;
    ping_all(&again)?;
    Ok("noticed by Recovery Time Stamp; traffic flows again".to_owned())
}

fn upf_killed(world: &mut World) -> Result<String> {
    const TIMES: usize = 5;
    let recovery = world.smf(0)?.heartbeat()?;
    let mut attached = Vec::new();
    for time in 0..TIMES {
        let style = [Style::Open5gs, Style::Free5gc][time % 2];
        let plan = world.plan(Family::Dual, style);
        attached.push(world.attach(&format!("ue{time}"), &plan, time % 2, 0)?);
        ping_all(&attached[time])?;
        let upf = world.upf.take().context("the UPF is down")?;
        upf.stop(Signal::SIGKILL)?;
        world.start_upf()?;
        for smf in world.smfs.iter().flatten() {
            let now = smf.heartbeat()?;
            ensure!(
                now == recovery,
                "Recovery Time Stamp {recovery}, then {now}"
            );
        }
        ensure!(world.sessions()? == attached.len() as u64);
        for attached in &attached {
            ping_all(attached).context("a UE from before")?;
        }
        world.handover(&mut attached[time], 1)?;
        ping_all(&attached[time]).context("after the path switch")?;
    }
    for attached in attached.drain(1..) {
        world.smf(attached.smf)?.delete(&attached.session)?;
    }
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGKILL)?;
    world.start_upf()?;
    ensure!(
        world.sessions()? == 1,
        "sessions that were deleted are back"
    );
    ping_all(&attached[0])?;
    Ok(format!(
        "{TIMES} times; sessions, path switches and deletions are as answered"
    ))
}

fn upf_killed_unnoticed(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    killed_under_traffic(world, plan, None)
}

fn upf_killed_spread(world: &mut World) -> Result<String> {
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    // The common programs do not know whose these addresses are.
    plan.pdi = vec![FramedRoute::new("198.51.100.0/24 0.0.0.0 1").to_ie()];
    killed_under_traffic(world, plan, Some([198, 51, 100, 5].into()))
}

/// Names of unsettled files of a UPF: one for each start that ended when packets may have met its tables.
fn unsettled(folder: &Path) -> BTreeSet<OsString> {
    let state = folder.join("huge-pages");
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().contains(".tables-"))
        .collect()
}

/// A start ends so long after packets may have met its tables. Whether they may, and it had not taken over yet.
fn end_early(world: &World, after: Duration) -> Result<bool> {
    let (before, met) = (OnceCell::new(), OnceCell::new());
    let was_early = Cell::new(false);
    world.start_and_kill_upf(|folder, elapsed| {
        let before = before.get_or_init(|| unsettled(folder));
        let own = || unsettled(folder).difference(before).next().cloned();
        if met.get().is_none()
            && let Some(name) = own()
        {
            let _ = met.set((name, elapsed));
        }
        let Some((name, at)) = met.get() else {
            return false;
        };
        was_early.set(folder.join("huge-pages").join(name).exists());
        elapsed - *at >= after
    })?;
    Ok(was_early.get())
}

/// `source`: what the UE sends comes from there.
fn killed_under_traffic(
    world: &mut World,
    mut plan: SessionPlan,
    source: Option<Ipv4Addr>,
) -> Result<String> {
    const TIMES: u32 = 5;
    plan.urrs = vec![Urr::of_volume(1, ReportingTriggers::new())];
    let mut attached = world.attach("ue1", &plan, 0, 0)?;
    let before = taken_in_hand(world)?;
    let shape = Shape::endless(1000);
    let up = match source {
        None => flow_up(world, &attached, shape)?,
        Some(source) => {
            let (ue, to) = (&attached.ue.netns, dn::server_for(attached.address()?));
            ue.ip(&format!("addr add {source}/32 dev lo"))?;
            let (from, to) = ((source, 0).into(), SocketAddr::new(to, 0));
            flow::start_from(ue, from, &world.dn_ns, to, shape)?
        }
    };
    let flows = [up, flow_down(world, &attached, shape)?];
    let mut met = 0;
    let mut measured = Used::default();
    for time in 0..TIMES {
        flows.iter().try_for_each(|flow| more_of(flow, 300))?;
        let upf = world.upf.take().context("the UPF is down")?;
        upf.stop(Signal::SIGKILL)?;
        // Nobody is there.
        flows.iter().try_for_each(|flow| more_of(flow, 300))?;
        for after in [60, 130] {
            let after = Duration::from_millis(after + u64::from(10 * time));
            world.start_and_kill_upf(|_, elapsed| elapsed >= after)?;
        }
        // At once when packets may meet new tables, and when some links, or all, have changed over.
        for after in [0, 12] {
            met += u32::from(end_early(world, Duration::from_millis(after))?);
        }
        world.start_upf()?;
        flows.iter().try_for_each(|flow| more_of(flow, 300))?;
        if time % 2 == 0 {
            measured.add(usage_so_far(world, &attached)?);
        }
    }
    ensure!(met > 0, "no start has ended while it took over");
    let sent = whole(flows, shape)?;
    measured.add(usage_so_far(world, &attached)?);
    ensure!(
        measured == sent,
        "{measured:?} are reported, {sent:?} were sent"
    );
    let (counted, all): (_, u64) = (taken_in_hand(world)? - before, sent.packets.iter().sum());
    ensure!(
        counted == all,
        "ports have counted {counted} packets of {all}"
    );
    world.handover(&mut attached, 1)?;
    ping_all(&attached)?;
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGTERM)?;
    let server = dn::server_for(attached.address()?);
    unanswered(&attached.ue.netns, server, 2).context("after an ordinary end")?;
    ensure!(
        Upf::workers(&world.upf_ns).is_err(),
        "workers outlive an ordinary end"
    );
    Ok(format!(
        "{TIMES} times, and {met} starts while they took over; {} packets up and {} down, each counted once",
        sent.packets[0], sent.packets[1]
    ))
}

/// Packets and octets of a flow up and one down, of which none is lost.
pub(super) fn whole(flows: [flow::Running; 2], shape: Shape) -> Result<Used> {
    let mut sent = Used::default();
    for (direction, flow) in flows.into_iter().enumerate() {
        flow.stop();
        let outcome = flow.finish()?;
        outcome.whole("a flow")?;
        sent.packets[direction] = outcome.sent.into();
        sent.octets[direction] = u64::from(outcome.sent) * (shape.payload as u64 + 28);
    }
    Ok(sent)
}

/// Right after a report, and again and again without one.
fn upf_killed_counted(world: &mut World) -> Result<String> {
    const TIMES: u32 = 4;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.urrs = vec![Urr::of_volume(1, ReportingTriggers::new())];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    ping_all(&attached)?;
    let each = usage_so_far(world, &attached)?;
    ensure!(each.total() > 0, "nothing is measured");
    for time in 0..TIMES {
        // Of several lives there are packets in one report.
        let mut expected = Used::default();
        for _ in 0..=time {
            ping_all(&attached)?;
            expected.add(each);
            let counted = taken_in_hand(world)?;
            let upf = world.upf.take().context("the UPF is down")?;
            upf.stop(Signal::SIGKILL)?;
            for after in [40, 90] {
                let after = Duration::from_millis(after + u64::from(10 * time));
                world.start_and_kill_upf(|_, elapsed| elapsed >= after)?;
            }
            world.start_upf()?;
            let still = taken_in_hand(world)?;
            ensure!(
                still == counted,
                "ports say {still} packets, {counted} before"
            );
        }
        let after = usage_so_far(world, &attached)?;
        ensure!(
            after == expected,
            "{after:?} in the report over {} kills, {expected:?} were sent",
            time + 1
        );
    }
    Ok(format!(
        "reports over 1 to {TIMES} kills, and starts that were killed between"
    ))
}

fn upf_killed_metered(world: &mut World) -> Result<String> {
    let (seen, lost) = metered_over_kills(world)?;
    expect_drops(world, "rate", 0, lost)?;
    Ok(seen)
}

/// Meters of an entry's own, and such as several QERs of a PDR have. What was seen, and how many packets were lost.
fn metered_over_kills(world: &mut World) -> Result<(String, u64)> {
    const TIMES: usize = 2;
    const OCTETS_PER_S: u32 = 25_000;
    const KBPS: u64 = OCTETS_PER_S as u64 * 8 / 1000;
    const BURST_S: u32 = 10;
    let shape = Shape {
        payload: 1000,
        ..Shape::endless(500)
    };
    let packets = f64::from(OCTETS_PER_S) / (shape.payload + 28) as f64;
    let burst = packets * f64::from(BURST_S);
    let (mut flows, mut users) = (Vec::new(), Vec::new());
    for (number, style) in [Style::Open5gs, Style::Pfcpsim].into_iter().enumerate() {
        let mut plan = world.plan(Family::V4, style);
        plan.mbr_kbps = Some((KBPS, KBPS));
        let attached = world.attach(&format!("ue{number}"), &plan, 0, 0)?;
        let ue = SocketAddr::new(attached.address()?, 0);
        let server = SocketAddr::new(dn::server_for(ue.ip()), 0);
        for (from, (at, to)) in [
            (&attached.ue.netns, (&world.dn_ns, server)),
            (&world.dn_ns, (&attached.ue.netns, ue)),
        ] {
            flows.push(flow::start_regardless(from, flow::any(to), at, to, shape)?);
        }
        users.push(attached);
    }
    eventually("bursts are used up", || {
        let is_used_up = |flow: &flow::Running| {
            let lost = f64::from(flow.sent()) - f64::from(flow.arrived());
            f64::from(flow.arrived()) >= burst && lost >= burst
        };
        Ok(flows.iter().all(is_used_up))
    })?;
    let mut starting = Duration::ZERO;
    for _ in 0..TIMES {
        let upf = world.upf.take().context("the UPF is down")?;
        upf.stop(Signal::SIGKILL)?;
        let began = Instant::now();
        world.start_upf()?;
        starting += began.elapsed();
        let enough: Vec<f64> = (flows.iter())
            .map(|flow| f64::from(flow.sent()) + 2.0 * burst)
            .collect();
        eventually("users ask for more than another burst", || {
            let mut all = flows.iter().zip(&enough);
            Ok(all.all(|(flow, enough)| f64::from(flow.sent()) >= *enough))
        })?;
    }
    flows.iter().for_each(flow::Running::stop);
    let ended = finish_dropped(world, flows, "rate", 0)?;
    let mut most = 0.0f64;
    for (outcome, _) in &ended {
        let (first, last) = outcome.came.context("nothing came")?;
        // A flow's link runs another program at one moment, but its meter was looked at before that.
        let lasted = (last - first + starting).as_secs_f64();
        let allowed = burst + packets * lasted + 2.0;
        let received = f64::from(outcome.received);
        ensure!(
            received <= allowed,
            "{received} packets in {lasted:.3} s, of which {allowed:.0} may pass"
        );
        most = most.max((received - packets * lasted) / burst);
    }
    let lost = ended.iter().map(|(flow, _)| u64::from(flow.lost())).sum();
    let seen = format!(
        "{TIMES} times, {} flows with {:.0} % of a burst each at most",
        ended.len(),
        most * 100.0
    );
    Ok((seen, lost))
}

fn upf_unmanaged(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    ping_all(&attached)?;
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGKILL)?;
    ping_all(&attached).context("right after it")?;
    std::thread::sleep(Duration::from_secs(5));
    let server = dn::server_for(attached.address()?);
    unanswered(&attached.ue.netns, server, 2).context("later")?;
    world.start_upf()?;
    ping_all(&attached).context("with the next one")?;
    Ok("5 s".to_owned())
}

/// Packets of users that ports have forwarded, or left to the kernel to be forwarded, in the lives of all processes.
fn taken_in_hand(world: &World) -> Result<u64> {
    let status = world.get("/api/v1/status")?;
    let ports = status["ports"].as_array().context("no ports")?;
    let of_port = |port: &serde_json::Value| {
        let counts = [
            &port["uplink"]["out_packets"],
            &port["downlink"]["out_packets"],
            &port["slow"],
        ];
        counts
            .iter()
            .filter_map(|count| count.as_u64())
            .sum::<u64>()
    };
    Ok(ports.iter().map(of_port).sum())
}

/// Usage of URR 1 since this was last asked.
pub(super) fn usage_so_far(world: &World, attached: &Attached) -> Result<Used> {
    let smf = world.smf(0)?;
    let reports = smf.modify_measured(&attached.session, &[query_urr(1)])?;
    match reports.all()[..] {
        [report] => used(report),
        _ => bail!("{reports:?}"),
    }
}

fn upf_restart_kept(world: &mut World) -> Result<String> {
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.urrs = vec![Urr::of_volume(1, ReportingTriggers::new())];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    ping_all(&attached)?;
    let before = usage_so_far(world, &attached)?;
    ensure!(before.total() > 0, "nothing is measured");
    ping_all(&attached)?;
    let counted = taken_in_hand(world)?;
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGTERM)?;
    world.start_upf()?;
    let still = taken_in_hand(world)?;
    ensure!(
        still == counted,
        "ports say {still} packets, {counted} before"
    );
    let after = usage_so_far(world, &attached)?;
    ensure!(
        after == before,
        "{after:?} in the report over the restart, {before:?} before"
    );
    ping_all(&attached)?;
    let again = usage_so_far(world, &attached)?;
    ensure!(again == before, "{again:?} after it");
    Ok("usage is exact over it, and nobody was told anything".to_owned())
}

fn upf_shutdown(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    ping_all(&attached)?;
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGTERM)?;
    for smf in world.smfs.iter().flatten() {
        let told = [
            MsgType::AssociationReleaseRequest,
            MsgType::AssociationUpdateRequest,
        ];
        match smf.next_event() {
            Some(Event::Request(request)) if told.contains(&request) => {}
            other => bail!("an SMF was not told; it saw {other:?}"),
        }
    }
    world.start_upf()?;
    world.smf(0)?.associate()?;
    let again = world.attach("again", &attached.session.plan, 0, 0)?;
    ping_all(&again)?;
    Ok("both SMFs were told; a new start works".to_owned())
}

/// How often other workers took the place of those that had ended.
fn replaced(world: &World) -> Result<u64> {
    let datapath = world.get("/api/v1/datapath")?;
    let times = datapath["workers_replaced"].as_u64();
    times.context("workers_replaced")
}

/// Sends the process of workers a signal that has them run no packets any more. Others do when this returns.
pub(super) fn until_others(world: &World, signal: Signal) -> Result<()> {
    let before = replaced(world)?;
    kill(Upf::workers(&world.upf_ns)?, signal)?;
    eventually("other workers start", || Ok(replaced(world)? > before))
}

/// An error if workers that were replaced have overtaken packets, or sent some twice.
pub(super) fn in_order(outcome: &Outcome) -> Result<()> {
    let Outcome {
        late, duplicates, ..
    } = outcome;
    // A device of several sockets receives some frames by two of them until all are open.
    ensure!(
        late + duplicates == 0 || Datapath::chosen() == Datapath::DpdkPipeline,
        "{late} packets were overtaken, {duplicates} came twice"
    );
    Ok(())
}

fn workers_killed(world: &mut World) -> Result<String> {
    const RATE: u32 = 1000;
    let attached = world.attach_plain("ue1", Family::Dual)?;
    ping_all(&attached)?;
    let recovery = world.smf(0)?.heartbeat()?;
    let mut stopped = Vec::new();
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGSTOP] {
        let flows = [
            flow_up(world, &attached, Shape::endless(RATE))?,
            flow_down(world, &attached, Shape::endless(RATE))?,
        ];
        flows.iter().try_for_each(|flow| more_of(flow, 100))?;
        until_others(world, signal)?;
        flows.iter().try_for_each(|flow| more_of(flow, 100))?;
        for flow in flows {
            flow.stop();
            let (outcome, _) = flow.finish_dropped()?;
            // Neighbours that have not answered for so long are resolved anew, and packets overtake those that wait for it.
            if signal != Signal::SIGSTOP {
                in_order(&outcome).with_context(|| format!("after {signal}"))?;
            }
            stopped.extend(outcome.gaps.into_iter().max());
        }
        world.upf()?.alive()?;
        ensure!(world.sessions()? == 1, "after {signal}");
        ping_all(&attached).with_context(|| format!("after {signal}"))?;
    }
    ensure!(replaced(world)? == 3, "replaced another number of times");
    ensure!(world.smf(0)?.heartbeat()? == recovery, "it is another one");
    both_ways(world, &attached)?;

    let workers = Upf::workers(&world.upf_ns)?;
    let upf = world.upf.take().context("the UPF is down")?;
    // The end of its parent would have one go on that was stopped before.
    upf.stop(Signal::SIGKILL)?;
    kill(workers, Signal::SIGSTOP)?;
    world.start_upf()?;
    ensure!(
        Upf::workers(&world.upf_ns)? != workers,
        "they hang, and are still there"
    );
    ensure!(world.sessions()? == 1);
    ensure!(world.smf(0)?.heartbeat()? == recovery);
    ping_all(&attached).context("after a start that ended them")?;

    let upf = world.upf.take().context("the UPF is down")?;
    let folder = upf.folder().to_owned();
    upf.stop(Signal::SIGKILL)?;
    ping_all(&attached).context("without it")?;
    let removed = upf::detach(&folder)?;
    ensure!(removed.contains("workers of DPDK"), "{removed}");
    ensure!(Upf::workers(&world.upf_ns).is_err(), "after detach");
    Ok(format!(
        "killed, terminated, stopped, each way: no packets for {stopped:.1?}"
    ))
}

fn tap_removed(world: &mut World) -> Result<String> {
    const TIMES: u32 = 3;
    let attached = world.attach_plain("ue1", Family::Dual)?;
    both_ways(world, &attached)?;
    let number = || -> Result<String> {
        let shown = world
            .upf_ns
            .run("ip", &["-o", "link", "show", "n3"], NEVER)?;
        let (number, rest) = shown.split_once(": ").context("no number")?;
        ensure!(rest.contains("UP"), "{shown}");
        Ok(number.to_owned())
    };
    for _ in 0..TIMES {
        let before = number()?;
        world.upf_ns.ip("link del n3")?;
        eventually("it is there again", || {
            Ok(number().is_ok_and(|now| now != before))
        })?;
        (world.upf_ns).ip(&format!("addr add {UPF_N3}/24 dev n3"))?;
        eventually("packets pass", || Ok(ping_all(&attached).is_ok()))?;
        both_ways(world, &attached)?;
    }
    let last = number()?;
    let served = || -> Result<bool> {
        let status = world.get("/api/v1/status")?;
        let ports = status["ports"].as_array().context("ports")?;
        Ok(ports.iter().all(|port| port["trouble"].is_null()))
    };
    ensure!(served()?, "not served");
    until_others(world, Signal::SIGKILL)?;
    ensure!(number()? == last, "it went with the workers");
    both_ways(world, &attached)?;
    // Another one of this name is none of theirs.
    world.upf_ns.ip(
        "link add other type veth peer name far\nlink set n3 down\nlink set n3 name gone\n\
         link set other name n3\nlink del gone",
    )?;
    eventually("it is not served", || Ok(!served()?))?;
    world.upf_ns.ip("link del n3")?;
    eventually("it is there again", || Ok(number().is_ok() && served()?))?;
    (world.upf_ns).ip(&format!("addr add {UPF_N3}/24 dev n3"))?;
    eventually("packets pass", || Ok(ping_all(&attached).is_ok()))?;

    // The next start goes on with it.
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGKILL)?;
    world.start_upf()?;
    both_ways(world, &attached)?;
    world.smf(0)?.idle(&attached.session)?;
    let waits = flow_down(world, &attached, Shape::lasting(200, 1))?;
    eventually("all are sent", || Ok(waits.is_sent()))?;
    wait_for_waiting(world, waits.sent().into())?;
    world.activate(&attached)?;
    waits.finish()?.whole("what waited")?;
    Ok(format!("{} times, and served again each time", TIMES + 1))
}

fn upf_upgraded(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    let idle = world.attach_plain("ue2", Family::V4)?;
    ping_all(&attached)?;
    let recovery = world.smf(0)?.heartbeat()?;
    world.smf(0)?.idle(&idle.session)?;
    let waits = flow_down(world, &idle, Shape::lasting(500, 1))?;
    eventually("all are sent", || Ok(waits.is_sent()))?;
    wait_for_waiting(world, waits.sent().into())?;
    let shape = Shape::endless(1000);
    let flows = [
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    ];
    let former = Upf::workers(&world.upf_ns)?;
    let upf = world.upf.take().context("the UPF is down")?;
    let folder = upf.folder().to_owned();
    upf.stop(Signal::SIGKILL)?;
    upf::install_another(&folder)?;
    let found = || {
        let log = fs::read_to_string(folder.join("turnpiked.log"));
        log.unwrap_or_default()
            .matches("are another program's")
            .count()
    };
    let mut early = 0;
    for start in 1..=3 {
        world.start_and_kill_upf(|_, _| found() == start)?;
        // It may have come further before it was killed.
        if !matches!(Upf::workers(&world.upf_ns), Ok(of) if of == former) {
            break;
        }
        early += 1;
        flows.iter().try_for_each(|flow| more_of(flow, 100))?;
    }
    ensure!(early > 0, "no start has left them as they were");
    world.start_upf()?;
    ensure!(Upf::workers(&world.upf_ns)? != former, "they are the same");
    ensure!(world.sessions()? == 2);
    ensure!(world.smf(0)?.heartbeat()? == recovery, "it is another one");
    flows.iter().try_for_each(|flow| more_of(flow, 100))?;
    let mut stopped = Vec::new();
    for flow in flows {
        flow.stop();
        let (outcome, _) = flow.finish_dropped()?;
        in_order(&outcome)?;
        stopped.extend(outcome.gaps.into_iter().max());
    }
    world.activate(&idle)?;
    waits.finish()?.whole("what waited")?;
    both_ways(world, &attached)?;
    Ok(format!(
        "{early} starts before it were none that users noticed; each way, no packets for {stopped:.1?}"
    ))
}

fn smf_lost(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for smf in 0..2 {
        let plan = world.plan(Family::V4, Style::Open5gs);
        attached.push(world.attach(&format!("ue{smf}"), &plan, smf, 0)?);
    }
    world.smfs[0] = None;
    let gone = || Ok(world.sessions()? == 1);
    eventually("the sessions of the lost SMF go", gone)?;
    ping_all(&attached[1]).context("a UE of the other SMF")?;
    Ok("its session went after the retention time, the other's stayed".to_owned())
}

fn memif_peer_restart(world: &mut World) -> Result<String> {
    const TIMES: u32 = 3;
    let attached = world.attach_plain("ue1", Family::Dual)?;
    both_ways(world, &attached)?;
    let flows = [
        flow_up(world, &attached, Shape::endless(1000))?,
        flow_down(world, &attached, Shape::endless(1000))?,
    ];
    for _ in 0..TIMES {
        flows.iter().try_for_each(|flow| more_of(flow, 300))?;
        let upf = world.upf.as_mut().context("the UPF is down")?;
        upf.without_peer(&world.upf_ns, || Ok(()))?;
    }
    flows.iter().try_for_each(|flow| more_of(flow, 300))?;
    for flow in flows {
        flow.stop();
        flow.finish_lossy()?;
    }
    both_ways(world, &attached)?;
    Ok(format!("{TIMES} times; both ways after each"))
}
