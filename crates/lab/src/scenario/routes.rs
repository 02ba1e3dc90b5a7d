//! Neighbours and routes that change under traffic.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways, eventually, flow_down, flow_up, more_of};
use crate::flow::Shape;
use crate::netns::Netns;
use crate::wait::NEVER;
use crate::world::{Attached, Family, ROUTER, ROUTER_V6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "unresolved-neighbour",
            "first packets are not lost",
            unresolved_neighbour,
        ),
        Scenario::new(
            "neighbour-change",
            "the router's MAC changes",
            neighbour_change,
        )
        .long(),
        Scenario::new(
            "route-change",
            "the default route moves to another router",
            route_change,
        ),
    ]
}

/// One of each family.
pub(super) fn two_ues(world: &mut World) -> Result<[Attached; 2]> {
    Ok([
        world.attach_plain("ue4", Family::V4)?,
        world.attach_plain("ue6", Family::V6)?,
    ])
}

fn unresolved_neighbour(world: &mut World) -> Result<String> {
    let ues = two_ues(world)?;
    for attached in &ues {
        both_ways(world, attached)?;
        for round in 0..3 {
            // ip gives up when others change what it flushes.
            eventually("neighbours are flushed", || {
                Ok(world.upf_ns.ip("neigh flush all").is_ok())
            })?;
            // Without traffic the kernel's neighbours stay unknown: the first packets meet that.
            let shape = Shape {
                rate: 1000,
                count: 300,
                payload: 200,
            };
            let (up, down) = (
                flow_up(world, attached, shape)?,
                flow_down(world, attached, shape)?,
            );
            let what = |way| format!("{} {way}, round {round}", attached.ue.name());
            up.finish()?.whole(&what("uplink"))?;
            down.finish()?.whole(&what("downlink"))?;
        }
    }
    Ok("3 times 300 packets each way and family, none lost".to_owned())
}

fn neighbour_change(world: &mut World) -> Result<String> {
    let ues = two_ues(world)?;
    for attached in &ues {
        both_ways(world, attached)?;
    }
    // The router announces its new address, as a first-hop redundancy protocol would.
    world.dn_ns.sysctl("net/ipv4/conf/n6/arp_notify", "1")?;
    world.dn_ns.sysctl("net/ipv6/conf/n6/ndisc_notify", "1")?;
    let shape = Shape::endless(1000);
    let flows: Vec<_> = ues
        .iter()
        .map(|attached| flow_up(world, attached, shape))
        .collect::<Result<_>>()?;
    // The kernel believes no second announcement within its lock time of one second.
    std::thread::sleep(Duration::from_millis(1500));
    let changed = Instant::now();
    world.dn_ns.ip("link set n6 address 02:00:00:00:06:fe")?;
    announce(&world.dn_ns)?;
    // More than are under way at a time: those after the change arrive again.
    flows.iter().try_for_each(|flow| more_of(flow, 300))?;
    let most = changed.elapsed().as_secs_f64() * f64::from(shape.rate) + 300.0;
    flows.iter().try_for_each(|flow| more_of(flow, 1000))?;
    let mut lost = Vec::new();
    for (attached, flow) in ues.iter().zip(flows) {
        flow.stop();
        let (outcome, _) = flow.finish_lossy()?;
        let name = attached.ue.name();
        ensure!(
            f64::from(outcome.lost()) <= most,
            "{name}: {} packets lost, {outcome:?}",
            outcome.lost()
        );
        ensure!(
            outcome.duplicates == 0,
            "{name}: {} doubled",
            outcome.duplicates
        );
        lost.push(outcome.lost());
        both_ways(world, attached)?;
    }
    Ok(format!("{lost:?} packets lost at 1000/s, IPv4 and IPv6"))
}

/// Sends one packet of each family to the UPF, after the announcements that the change of address
/// set off: it makes sure that the kernel there has seen the new address.
fn announce(dn: &Netns) -> Result<()> {
    for upf in [crate::world::UPF_N6.into(), crate::world::UPF_N6_V6.into()] {
        crate::ping::ping(dn, upf, 1, 100)?;
    }
    Ok(())
}

fn route_change(world: &mut World) -> Result<String> {
    let ues = two_ues(world)?;
    for attached in &ues {
        both_ways(world, attached)?;
    }
    let dn = &world.dn_ns;
    // Each address is answered for by its own interface alone.
    dn.sysctl("net/ipv4/conf/all/arp_ignore", "1")?;
    dn.ip("link add n6b link n6 type macvlan mode bridge\nlink set n6b up")?;
    dn.ip("addr add 10.6.0.253/24 dev n6b\naddr add 2001:db8:6::fd/64 dev n6b nodad")?;
    let shape = Shape::endless(1000);
    let flows: Vec<_> = ues
        .iter()
        .map(|attached| flow_up(world, attached, shape))
        .collect::<Result<_>>()?;
    flows.iter().try_for_each(|flow| more_of(flow, 300))?;
    let before = received(dn, "n6b")?;
    world.upf_ns.ip("route replace default via 10.6.0.253")?;
    world.upf_ns.ip("route replace ::/0 via 2001:db8:6::fd")?;
    eventually("packets take the new route", || {
        Ok(received(dn, "n6b")? - before >= 2000)
    })?;
    for (attached, flow) in ues.iter().zip(flows) {
        flow.stop();
        flow.finish()?.whole(attached.ue.name())?;
    }
    let moved = received(dn, "n6b")? - before;

    world
        .upf_ns
        .ip(&format!("route replace default via {ROUTER}"))?;
    world
        .upf_ns
        .ip(&format!("route replace ::/0 via {ROUTER_V6}"))?;
    for attached in &ues {
        both_ways(world, attached)?;
    }
    Ok(format!("{moved} packets took the new route, none was lost"))
}

/// Packets that an interface received.
pub(super) fn received(netns: &Netns, interface: &str) -> Result<u64> {
    let args = ["-j", "-s", "link", "show", interface];
    let report = netns.run("ip", &args, NEVER)?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    report[0]["stats64"]["rx"]["packets"]
        .as_u64()
        .context("ip link shows no counters")
}
