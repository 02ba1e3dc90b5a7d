//! One gNB's users over several CPUs.

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rs_pfcp::ie::framed_route::FramedRoute;

use super::sessions::ping_all;
use super::{Scenario, both_ways, eventually, flow_up, more_of};
use crate::dn;
use crate::flow::Shape;
use crate::gnb::Event;
use crate::packet;
use crate::smf::Style;
use crate::upf::Datapath;
use crate::world::{Attached, Family, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "spread",
            "one gNB's users are worked on by two CPUs, each in order",
            spread,
        )
        .alone()
        .line("[[interface]]", "spread_cpus = [0, 1]")
        .line("[datapath]", "settle_s = 0"),
        Scenario::new(
            "spread-off",
            "without spread_cpus one CPU works on what one CPU brings; receive cores of DPDK spread it over workers",
            spread_off,
        )
        .alone(),
    ]
}

const UES: usize = 8;
const PACKETS: u64 = 500;

/// Frames that came in on N3, by CPU.
fn by_cpu(world: &World) -> Result<Vec<u64>> {
    let upf = world.upf.as_ref().context("no UPF")?;
    let status = upf.get(&world.upf_ns, "/api/v1/status")?;
    let counts = status["ports"][0]["in_packets_by_cpu"].as_array();
    let counts = counts.context("no in_packets_by_cpu")?.iter();
    counts
        .map(|count| count.as_u64().context("a count"))
        .collect()
}

/// Packets that each CPU worked on, of those that CPU 0 sends for several UEs through one gNB.
fn shares(world: &World, ues: &[Attached]) -> Result<Vec<u64>> {
    let before = by_cpu(world)?;
    std::thread::scope(|scope| scope.spawn(|| send(world, ues)).join())
        .map_err(|_| anyhow::anyhow!("the sender panicked"))??;
    let sent = UES as u64 * PACKETS;
    let gone = || -> Result<Vec<u64>> {
        let now = by_cpu(world)?;
        Ok(now
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect())
    };
    eventually("all packets are counted", || {
        Ok(gone()?.iter().sum::<u64>() >= sent)
    })?;
    gone()
}

fn send(world: &World, ues: &[Attached]) -> Result<()> {
    let mut first = CpuSet::new();
    first.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &first).context("CPU 0")?;
    let mut scratch = Vec::new();
    let taken = || Ok::<u64, anyhow::Error>(by_cpu(world)?.iter().sum());
    let before = taken()?;
    for round in 0..PACKETS {
        if round % 8 == 0 {
            // No more at a time than the ring of a link holds.
            let sent = round * UES as u64;
            eventually("packets are taken in", || Ok(taken()? - before >= sent))?;
        }
        for attached in ues {
            let ue = attached.session.addresses.v4.context("a UE without IPv4")?;
            let packet = packet::udp4((ue, 1), (dn::SERVER_V4, 9), b"spread");
            let teid = attached.session.uplink.1;
            let uplink = world.gnbs[0].uplink(UPF_N3, teid, Some(9));
            uplink.send(&packet, &mut scratch)?;
        }
    }
    Ok(())
}

fn attach_all(world: &mut World) -> Result<Vec<Attached>> {
    (0..UES)
        .map(|number| world.attach_plain(&format!("ue{number}"), Family::V4))
        .collect()
}

/// At worst seven of eight UEs share a CPU.
fn are_spread(shares: &[u64]) -> bool {
    let total: u64 = shares.iter().sum();
    let is_fair = |share: &&u64| **share >= total / UES as u64 - 20;
    shares.iter().filter(is_fair).count() >= 2
}

fn spread(world: &mut World) -> Result<String> {
    let ues = attach_all(world)?;
    let shares = shares(world, &ues)?;
    ensure!(are_spread(&shares), "packets by CPU: {shares:?}");
    for attached in &ues {
        ping_all(attached)?;
    }
    // Whole means in order, too.
    both_ways(world, &ues[0])?;
    answers(world)?;
    let times = replaced_under_load(world, &ues[0])?;
    Ok(format!(
        "packets by CPU: {shares:?}; in order, also while programs are replaced {times} times; Echo and Error Indication answered"
    ))
}

/// Exchange the lanes' programs while packets wait for them: a session with a framed route comes and goes.
fn replaced_under_load(world: &mut World, attached: &Attached) -> Result<u64> {
    const ROUNDS: u64 = 4;
    let replacements = |world: &World| -> Result<(u64, bool)> {
        let upf = world.upf.as_ref().context("no UPF")?;
        let datapath = upf.get(&world.upf_ns, "/api/v1/datapath")?;
        let features = datapath["features"].as_array().context("features")?;
        let count = datapath["replacements"].as_u64().context("replacements")?;
        Ok((count, features.iter().any(|name| name == "prefix")))
    };
    let settled = |world: &World| eventually("the common programs", || Ok(!replacements(world)?.1));
    settled(world)?;
    let before = replacements(world)?.0;
    let flow = flow_up(world, attached, Shape::endless(5000))?;
    more_of(&flow, 100)?;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.pdi = vec![FramedRoute::new("198.51.100.0/24 0.0.0.0 1").to_ie()];
    for _ in 0..ROUNDS {
        let session = world.smf(0)?.establish(&plan)?;
        ensure!(replacements(world)?.1, "no program with everything");
        world.smf(0)?.delete(&session)?;
        settled(world)?;
    }
    more_of(&flow, 100)?;
    flow.stop();
    let outcome = flow.finish()?;
    outcome.whole("uplink")?;
    ensure!(outcome.late == 0, "{} packets late", outcome.late);
    let times = replacements(world)?.0 - before;
    ensure!(times >= 2 * ROUNDS, "only {times} replacements");
    Ok(times)
}

fn spread_off(world: &mut World) -> Result<String> {
    let ues = attach_all(world)?;
    let shares = shares(world, &ues)?;
    let total: u64 = shares.iter().sum();
    let most = shares.iter().max().copied().unwrap_or(0);
    let holds = match Datapath::chosen() {
        Datapath::DpdkPipeline => are_spread(&shares),
        _ => most > total * 9 / 10,
    };
    ensure!(holds, "packets by CPU: {shares:?}");
    Ok(format!("packets by CPU: {shares:?}"))
}

/// Messages that are answered in place where nothing is spread.
fn answers(world: &World) -> Result<()> {
    let gnb = &world.gnbs[0];
    let sequence = gnb.echo(UPF_N3)?;
    let seen = gnb.next_event();
    ensure!(
        matches!(seen, Some(Event::EchoResponse { sequence: answered }) if answered == sequence),
        "Echo Request {sequence} was followed by {seen:?}"
    );
    let packet = packet::udp4(([10, 60, 99, 99].into(), 1), (dn::SERVER_V4, 9), b"stray");
    for teid in 0xdead_0000..0xdead_0004 {
        gnb.uplink(UPF_N3, teid, Some(9))
            .send(&packet, &mut Vec::new())?;
        let expected = Event::ErrorIndication {
            teid,
            address: UPF_N3.into(),
        };
        let seen = gnb.next_event();
        ensure!(
            seen.as_ref() == Some(&expected),
            "instead of an Error Indication: {seen:?}"
        );
    }
    Ok(())
}
