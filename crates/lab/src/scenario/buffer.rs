//! Packets that wait for idle UEs: the SMF hears of the first one, none is lost or overtaken, and there are bounds.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use rs_pfcp::ie::bar_id::BarId;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::restart::{in_order, until_others, usage_so_far};
use super::sessions::ping_all;
use super::{
    Scenario, both_ways, buffers, eventually, expect_drops, flow_down, more_of, none_of,
    wait_for_waiting, waiting,
};
use crate::course::Fates;
use crate::flow::{self, Ledger, Shape};
use crate::gnb::Downlink;
use crate::gtpu::Container;
use crate::ping::unanswered;
use crate::smf::{Style, Urr, forward_downlink};
use crate::wait::NEVER;
use crate::world::{Attached, Family, GNBS, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "paging",
            "the first packet for an idle UE is reported; when the UE is back it gets all of them, in order",
            paging,
        ),
        Scenario::new(
            "paging-killed",
            "no packet for an idle UE is lost with the UPF, nor one that comes while there is none",
            paging_killed,
        )
        .outlasting()
        .line("[buffering]", "max_age_s = 3600")
        .line("[buffering]", "max_packets_per_session = 100000"),
        Scenario::new(
            "paging-killed-leaving",
            "the UPF ends while packets leave that have waited: none is lost, and few come twice",
            paging_killed_leaving,
        )
        .outlasting()
        .line("[buffering]", "max_age_s = 3600")
        .line("[buffering]", "max_packets_per_session = 100000"),
        Scenario::new(
            "paging-workers-killed",
            "the process of workers ends while packets for an idle UE come, and while they leave: those that wait are kept, in order",
            paging_workers_killed,
        )
        .apart()
        .line("[buffering]", "max_age_s = 3600")
        .line("[buffering]", "max_packets_per_session = 100000"),
        Scenario::new(
            "paging-restart",
            "packets for idle UEs are there again when the UPF is",
            paging_restart,
        )
        .line("[buffering]", "max_age_s = 3600")
        .line("[state]", "dir = \"{folder}\"")
        .line("[state]", "on_stop = \"keep\""),
        Scenario::new(
            "paging-without-room",
            "an idle UE is paged also where its packets find no room",
            paging_without_room,
        )
        .line("[buffering]", "max_mib = 0"),
        Scenario::new(
            "buffer-order",
            "1000 wake-ups under traffic: no packet for the UE is lost, doubled or overtaken",
            buffer_order,
        )
        .line("[buffering]", "max_packets_per_session = 100000")
        .long(),
        Scenario::new(
            "buffer-order-shaped",
            "what has waited for an idle UE stays behind what waits for its rate",
            buffer_order_shaped,
        )
        // Nothing is lost where the SMF or the UPF has no CPU for a second.
        .line("[buffering]", "max_packets_per_session = 100000")
        .shaping()
        .line("[qos]", "granularity_us = 50")
        .line("[qos]", "slots = 65536"),
        Scenario::new(
            "buffer-limits",
            "packets that wait are bounded in number, and dropped when the SMF says so",
            buffer_limits,
        )
        .line("[buffering]", "max_packets_per_session = 50"),
        Scenario::new(
            "buffer-age",
            "packets that wait are bounded in age",
            buffer_age,
        )
        .line("[buffering]", "max_age_s = 2"),
    ]
}

/// Session Report Requests so far whose type is Downlink Data Report.
fn reports(world: &World) -> Result<usize> {
    let requests = world.smf(0)?.requests(MsgType::SessionReportRequest)?;
    let is_of_data = |report: &&crate::smf::Answer| {
        let kind = report.ie(IeType::ReportType);
        kind.is_ok_and(|ie| ie.payload.first() == Some(&1))
    };
    Ok(requests.iter().filter(is_of_data).count())
}

/// The report names the downlink PDR, and the DSCP and QFI of the packet (8.2.27).
fn check_report(world: &World) -> Result<()> {
    let requests = world.smf(0)?.requests(MsgType::SessionReportRequest)?;
    let report = requests.last().context("no report")?;
    let data = &report.ie(IeType::DownlinkDataReport)?.payload;
    let expected = [0, 56, 0, 2, 0, 2, 0, 45, 0, 3, 3, 0, 9];
    ensure!(data[..] == expected, "Downlink Data Report {data:?}");
    Ok(())
}

/// UEs that use both gNBs, so that their next hops are known and stay so: a packet for one that is not goes through the
/// kernel, where later ones may overtake it (docs/limits.md).
fn in_use(world: &mut World) -> Result<Vec<Attached>> {
    let mut others = Vec::new();
    for gnb in 0..2 {
        let plan = world.plan(Family::V4, Style::Open5gs);
        let other = world.attach(&format!("other{gnb}"), &plan, 0, gnb)?;
        ping_all(&other)?;
        others.push(other);
    }
    Ok(others)
}

fn paging(world: &mut World) -> Result<String> {
    let _others = in_use(world)?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;
    world.smf(0)?.idle(&attached.session)?;
    let before = world.counted(&attached)?[1].packets;
    let flow = flow_down(world, &attached, Shape::lasting(500, 2))?;
    eventually("a report", || Ok(reports(world)? > 0))?;
    check_report(world)?;
    let mut held = 0;
    eventually("200 packets wait", || {
        held = waiting(world)?;
        Ok(held > 200)
    })?;
    world.activate(&attached)?;
    let down = flow.finish()?;
    down.whole("downlink through paging")?;
    ensure!(down.late == 0, "{} packets were overtaken", down.late);
    let reported = reports(world)?;
    ensure!(reported == 1, "{reported} reports in one idle period");
    let counted = world.counted(&attached)?[1].packets - before;
    ensure!(
        counted == u64::from(down.sent),
        "{} sent, {counted} counted",
        down.sent
    );
    eventually("nothing waits", || Ok(waiting(world)? == 0))?;
    both_ways(world, &attached)?;
    // The next idle period is reported anew.
    world.smf(0)?.idle(&attached.session)?;
    let again = flow_down(world, &attached, Shape::lasting(100, 1))?;
    eventually("a second report", || Ok(reports(world)? == 2))?;
    world.activate(&attached)?;
    again
        .finish()?
        .whole("downlink of the second idle period")?;
    Ok(format!(
        "{held} of {} packets waited, one report each time",
        down.sent
    ))
}

fn paging_killed(world: &mut World) -> Result<String> {
    const TIMES: u32 = 3;
    let _others = in_use(world)?;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.urrs = vec![Urr::of_volume(1, ReportingTriggers::new())];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let other = world.attach_plain("ue2", Family::V4)?;
    both_ways(world, &attached)?;
    usage_so_far(world, &attached)?;
    let flow = flow_down(world, &attached, Shape::endless(1000))?;
    let mut from_ue = 0;
    for time in 0..TIMES {
        let before = reports(world)?;
        world.smf(0)?.idle(&attached.session)?;
        wait_for_waiting(world, 300)?;
        eventually("a report", || Ok(reports(world)? > before))?;
        let before = reports(world)?;
        let upf = world.upf.take().context("the UPF is down")?;
        upf.stop(Signal::SIGKILL)?;
        // From another UE of this UPF, too, while nobody is there.
        let to = attached.address()?;
        unanswered(&other.ue.netns, to, 2)?;
        from_ue += 2;
        std::thread::sleep(Duration::from_millis(300));
        let early = Duration::from_millis(100 + 70 * u64::from(time));
        world.start_and_kill_upf(|_, elapsed| elapsed >= early)?;
        world.start_upf()?;
        eventually("another report", || Ok(reports(world)? > before))?;
        let count = u64::from(flow.sent());
        wait_for_waiting(world, 600)?;
        world.activate(&attached)?;
        eventually("they leave", || Ok(u64::from(flow.arrived()) > count))?;
    }
    flow.stop();
    let down = flow.finish()?;
    down.whole("downlink over deaths")?;
    ensure!(down.late == 0, "{} packets were overtaken", down.late);
    let used = usage_so_far(world, &attached)?.packets[1];
    let sent = u64::from(down.sent) + from_ue;
    ensure!(
        used == sent,
        "{used} packets in the usage, {sent} were sent"
    );
    Ok(format!(
        "{TIMES} times; {} packets, each once, in order",
        down.sent
    ))
}

fn paging_killed_leaving(world: &mut World) -> Result<String> {
    const TIMES_MAX: u32 = 12;
    const WAITING: u32 = 5_000;
    /// Packets that are sent together, and a PDR's of one turn.
    const TWICE_MAX: u32 = 256 + 64;
    let _others = in_use(world)?;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.urrs = vec![Urr::of_volume(1, ReportingTriggers::new())];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    both_ways(world, &attached)?;
    usage_so_far(world, &attached)?;
    let (mut twice, mut sent) = (0, 0);
    let mut after = Vec::new();
    // Which of the two gets the CPU first, the UPF's next burst or the signal, nobody knows: as often as it takes.
    while (after.len() < 3 || !after.iter().any(|left| (1..WAITING).contains(left)))
        && (after.len() as u32) < TIMES_MAX
    {
        world.smf(0)?.idle(&attached.session)?;
        let flow = flow_down(world, &attached, Shape::lasting(WAITING, 1))?;
        eventually("all are sent", || Ok(flow.is_sent()))?;
        wait_for_waiting(world, flow.sent().into())?;
        world.activate(&attached)?;
        if after.last() == Some(&WAITING) {
            eventually("the first leaves", || Ok(flow.arrived() > 0))?;
        }
        let upf = world.upf.take().context("the UPF is down")?;
        upf.stop(Signal::SIGKILL)?;
        world.start_upf()?;
        let left = buffers(world)?["taken"].as_u64().context("taken")?;
        after.push(left as u32);
        let down = flow.finish()?;
        ensure!(
            down.lost() == 0 && down.duplicates <= TWICE_MAX && down.late == 0,
            "of {} packets {} lost, {} twice, {} overtaken",
            down.sent,
            down.lost(),
            down.duplicates,
            down.late
        );
        twice += down.duplicates;
        sent += down.sent;
    }
    ensure!(
        after.iter().any(|left| (1..WAITING).contains(left)),
        "{after:?} packets were left to the next one: never did the UPF end while packets left"
    );
    let used = usage_so_far(world, &attached)?.packets[1];
    let twice_max = after.len() as u32 * TWICE_MAX;
    ensure!(
        (sent.into()..=u64::from(sent + twice_max)).contains(&used),
        "{used} packets in the usage, {sent} were sent"
    );
    Ok(format!(
        "{} times; {after:?} packets were left to the next one, {twice} came twice",
        after.len()
    ))
}

fn paging_workers_killed(world: &mut World) -> Result<String> {
    /// Twice as often they are replaced: the fifth time would end the UPF.
    const TIMES: u32 = 2;
    let _others = in_use(world)?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;
    let taken = || {
        let taken = buffers(world)?["taken"].as_u64();
        taken.context("taken")
    };
    let flow = flow_down(world, &attached, Shape::endless(4000))?;
    for _ in 0..TIMES {
        world.smf(0)?.idle(&attached.session)?;
        wait_for_waiting(world, 500)?;
        until_others(world, Signal::SIGKILL)?;
        let kept = waiting(world)?;
        wait_for_waiting(world, kept + 1000)?;
        world.activate(&attached)?;
        until_others(world, Signal::SIGKILL)?;
        eventually("all leave", || Ok(waiting(world)? == 0))?;
        eventually("none is sent behind others any more", || {
            let before = taken()?;
            more_of(&flow, 100)?;
            Ok(taken()? == before)
        })?;
    }
    flow.stop();
    let (down, _) = flow.finish_dropped()?;
    in_order(&down)?;
    let totals = buffers(world)?;
    ensure!(
        totals["lost"] == 0 && totals["released"] == totals["taken"],
        "{totals}"
    );
    Ok(format!(
        "{TIMES} times each; {} packets waited, and left in order",
        totals["taken"]
    ))
}

fn paging_restart(world: &mut World) -> Result<String> {
    let _others = in_use(world)?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;
    world.smf(0)?.idle(&attached.session)?;
    let flow = flow_down(world, &attached, Shape::lasting(1000, 1))?;
    eventually("all are sent", || Ok(flow.is_sent()))?;
    wait_for_waiting(world, flow.sent().into())?;
    let before = buffers(world)?["waiting"].clone();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let upf = world.upf.take().context("the UPF is down")?;
        upf.stop(signal)?;
        world.start_upf()?;
    }
    let mut after = buffers(world)?["waiting"].clone();
    ensure!(before.as_array().is_some_and(|all| all.len() == 1));
    ensure!(after[0]["age_ms"].as_u64() > before[0]["age_ms"].as_u64());
    after[0]["age_ms"] = before[0]["age_ms"].clone();
    ensure!(after == before, "{before} waited, then {after}");
    world.activate(&attached)?;
    let down = flow.finish()?;
    down.whole("downlink over a death and a restart")?;
    ensure!(down.late == 0, "{} packets were overtaken", down.late);
    eventually("nothing waits", || Ok(waiting(world)? == 0))?;
    Ok(format!("{} packets, in order", down.sent))
}

fn paging_without_room(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;
    world.smf(0)?.idle(&attached.session)?;
    let (before, began) = (world.drops("buffer_full")?, Instant::now());
    let shape = Shape {
        rate: 500,
        count: 100,
        payload: 100,
    };
    let lost = none_of(flow_down(world, &attached, shape)?, "an idle UE")?;
    expect_drops(world, "buffer_full", before, lost.sent.into())?;
    eventually("a report", || Ok(reports(world)? > 0))?;
    check_report(world)?;
    let (reported, took) = (reports(world)?, began.elapsed());
    ensure!(
        reported as u64 <= 1 + took.as_secs() / 10,
        "{reported} reports of {} packets within {took:?}",
        lost.sent
    );
    world.activate(&attached)?;
    both_ways(world, &attached)?;
    Ok(format!("{} packets lost, {reported} report", lost.sent))
}

/// Takes the packets of all tunnels and keeps one ledger of them; at one gNB, where one thread receives, none may be
/// overtaken.
#[derive(Default)]
struct Watch {
    ledger: Mutex<Ledger>,
    /// The highest number at each gNB, and packets that came after it.
    order: Mutex<[(u32, u64); 2]>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Downlink for Watch {
    fn deliver(&self, gnb: IpAddr, _: u32, _: Option<Container>, packet: &[u8]) {
        let Some(payload) = packet.get(28..) else {
            return;
        };
        locked(&self.ledger).note(payload);
        let Some(number) = payload.first_chunk().map(|b| u32::from_be_bytes(*b)) else {
            return;
        };
        let (highest, late) = &mut locked(&self.order)[usize::from(gnb == GNBS[1])];
        *late += u64::from(number < *highest);
        *highest = number.max(*highest);
    }
}

/// As configured.
const MAX_AGE: Duration = Duration::from_secs(2);

const WAKE_UPS: u32 = 1000;
const RATE: u32 = 20_000;

fn buffer_order(world: &mut World) -> Result<String> {
    let _others = in_use(world)?;
    let plan = world.plan(Family::V4, Style::Open5gs);
    let smf = world.smf(0)?;
    let session = smf.establish(&plan)?;
    let watch = Arc::new(Watch::default());
    let ways: Vec<_> = (world.gnbs.iter())
        .map(|gnb| {
            let teid = gnb.open(Arc::clone(&watch) as Arc<dyn Downlink>);
            (gnb.address(), teid)
        })
        .collect();
    let ue = session.addresses.v4.context("a UE without IPv4")?;
    let to = SocketAddr::from((ue, 9000));
    let socket = flow::send_socket(&world.dn_ns, flow::any(to), to)?;
    let sent = Arc::new(AtomicU32::new(0));
    let shape = Shape {
        rate: RATE,
        count: u32::MAX,
        payload: 60,
    };
    let (counter, over) = (
        Arc::clone(&sent),
        Arc::new(std::sync::atomic::AtomicBool::new(false)),
    );
    let (stop, arrived) = (Arc::clone(&over), Arc::clone(&watch));
    let sender = std::thread::spawn(move || {
        let arrived = || locked(&arrived.ledger).received();
        flow::send_until(&socket, shape, &counter, &stop, &arrived)
    });
    // So many packets more have been sent.
    let sent_more = |packets: u32| {
        let enough = sent.load(Relaxed) + packets;
        let deadline = Instant::now() + NEVER;
        while sent.load(Relaxed) < enough {
            ensure!(Instant::now() < deadline, "the sender is stuck");
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    };
    let mut woken = 0;
    let began = Instant::now();
    for wake_up in 0..WAKE_UPS {
        smf.idle(&session)?;
        sent_more(30)?;
        // Every now and then the UE is back elsewhere, and idle again before all that waited has left.
        let (gnb, teid) = ways[usize::from(wake_up % 10 == 9)];
        smf.modify(&session, &[forward_downlink(gnb, teid)])?;
        if wake_up % 3 != 0 {
            sent_more(20)?;
        }
        woken += 1;
    }
    let took = began.elapsed();
    over.store(true, Relaxed);
    sender
        .join()
        .map_err(|_| anyhow!("the sending thread panicked"))??;
    eventually("nothing waits", || Ok(waiting(world)? == 0))?;
    for gnb in 0..2 {
        world.drain(gnb)?;
    }
    let outcome = locked(&watch.ledger).close(sent.load(Relaxed));
    let drops = ["buffer_full", "redirect", "slow_path_full"].map(|reason| world.drops(reason));
    let of_upf = || format!("the UPF: {drops:?}, {:?}", buffers(world));
    let whole = outcome.whole("downlink through wake-ups");
    whole.with_context(of_upf)?;
    let late: u64 = locked(&watch.order).iter().map(|(_, late)| late).sum();
    ensure!(late == 0, "{late} packets were overtaken");
    let totals = buffers(world)?;
    let (taken, lost) = (&totals["taken"], &totals["lost"]);
    ensure!(lost == 0, "{lost} of {taken} that waited are lost");
    let waited = taken.as_u64().context("taken")?;
    ensure!(waited > u64::from(WAKE_UPS), "only {waited} packets waited");
    Ok(format!(
        "{woken} wake-ups in {:.1} s, {} packets, {waited} waited",
        took.as_secs_f64(),
        outcome.sent
    ))
}

/// A flow at nine tenths of its rate. A long idle period leaves packets in the shaper, short ones find them there.
fn buffer_order_shaped(world: &mut World) -> Result<String> {
    const CYCLES: u32 = 150;
    let _others = in_use(world)?;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.mbr_kbps = Some((2_000, 2_000));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    both_ways(world, &attached)?;
    let before = Fates::of(world, &attached)?[1];
    let flow = flow_down(world, &attached, Shape::endless(1000))?;
    let sent_more = |packets: u32| {
        let enough = flow.sent() + packets;
        eventually("more is sent", || Ok(flow.sent() >= enough))
    };
    for cycle in 0..CYCLES {
        world.smf(0)?.idle(&attached.session)?;
        sent_more(if cycle % 5 == 0 { 40 } else { 3 })?;
        world.activate(&attached)?;
        sent_more(10)?;
    }
    flow.stop();
    let (down, sent) = flow.finish_timed()?;
    down.whole("downlink through wake-ups")?;
    ensure!(down.late == 0, "{} packets were overtaken", down.late);
    let waited = buffers(world)?["taken"].as_u64().context("taken")?;
    let after = Fates::of(world, &attached)?[1];
    let delayed = after.delayed - before.delayed;
    let seconds = (sent.until - sent.from).as_secs_f64();
    let report = format!(
        "{} packets in {seconds:.1} s, {waited} waited for the UE, {delayed} for the rate",
        down.sent
    );
    ensure!(
        waited > u64::from(CYCLES) && delayed > u64::from(down.sent) / 4,
        "{report}"
    );
    Ok(report)
}

/// So many packets for the UE, of which those that wait and those that are dropped for `reason` are all there are; and
/// what arrives of them when `wake` has been done.
fn buffered_flow(
    world: &World,
    attached: &Attached,
    (count, reason): (u32, &str),
    wake: impl FnOnce() -> Result<()>,
) -> Result<u32> {
    let shape = Shape {
        rate: 1000,
        count,
        payload: 200,
    };
    let before = world.drops(reason)?;
    let to = SocketAddr::new(attached.address()?, 0);
    let flow = flow::start(&world.dn_ns, &attached.ue.netns, to, shape)?;
    eventually("all packets wait, or are dropped", || {
        Ok(waiting(world)? + world.drops(reason)? - before >= count.into())
    })?;
    wake()?;
    eventually("nothing waits", || Ok(waiting(world)? == 0))?;
    world.drain(attached.gnb)?;
    Ok(flow.finish_blocked()?.received)
}

fn update_bar(members: Vec<Ie>) -> Ie {
    let mut all = vec![BarId::new(1).to_ie()];
    all.extend(members);
    Ie::new_grouped(IeType::UpdateBar, all)
}

/// The downlink FAR names BAR 1.
fn with_bar() -> Ie {
    let members = vec![FarId::new(2).to_ie(), BarId::new(1).to_ie()];
    Ie::new_grouped(IeType::UpdateFar, members)
}

fn buffer_limits(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let (smf, session) = (world.smf(0)?, &attached.session);
    // No more than the configuration allows.
    let full = world.drops("buffer_full")?;
    smf.idle(session)?;
    let wake = || world.activate(&attached);
    let got = buffered_flow(world, &attached, (80, "buffer_full"), wake)?;
    ensure!(got == 50, "{got} of 50 packets that may wait arrived");
    expect_drops(world, "buffer_full", full, 30)?;

    // Not beyond DROBU.
    let discarded = world.drops("buffer_discarded")?;
    smf.idle(session)?;
    let drobu = || {
        let flags = Ie::new(IeType::PfcpsmReqFlags, vec![1]);
        smf.modify(session, &[flags])
    };
    let got = buffered_flow(world, &attached, (20, "buffer_full"), drobu)?;
    ensure!(got == 0, "{got} packets arrived after DROBU");
    expect_drops(world, "buffer_discarded", discarded, 20)?;

    // No more than the BAR says.
    world.activate(&attached)?;
    let count = Ie::new(IeType::SuggestedBufferingPacketsCount, vec![5]);
    smf.modify(session, &[update_bar(vec![count]), with_bar()])?;
    smf.idle(session)?;
    let got = buffered_flow(world, &attached, (20, "buffer_full"), wake)?;
    ensure!(got == 5, "{got} of 5 packets that the BAR allows arrived");

    // And not beyond the session.
    let discarded = world.drops("buffer_discarded")?;
    smf.idle(session)?;
    let detach = || {
        let held = waiting(world)?;
        ensure!(held == 5, "{held} packets wait");
        world.detach(&attached)
    };
    let got = buffered_flow(world, &attached, (20, "buffer_full"), detach)?;
    ensure!(got == 0, "{got} packets arrived after the session");
    expect_drops(world, "buffer_discarded", discarded, 5)?;
    let late = flow_down(world, &attached, Shape::lasting(100, 1))?;
    none_of(late, "downlink after the session")?;
    Ok("50 of 80, none after DROBU, 5 by the BAR".to_owned())
}

/// Packets that wait are dropped when their time is over, whether or not that is before the last one has come.
fn buffer_age(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let expired = world.drops("buffer_expired")?;
    world.smf(0)?.idle(&attached.session)?;
    let began = Instant::now();
    let none = buffered_flow(world, &attached, (20, "buffer_expired"), || {
        eventually("they are too old", || Ok(waiting(world)? == 0))
    })?;
    let took = began.elapsed();
    ensure!(none == 0, "{none} packets arrived");
    ensure!(
        took >= MAX_AGE,
        "gone after {took:?}, they may wait for {MAX_AGE:?}"
    );
    expect_drops(world, "buffer_expired", expired, 20)?;
    Ok("20 packets, dropped after 2 s and not before".to_owned())
}
