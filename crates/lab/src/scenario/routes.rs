//! Neighbours and routes that change under traffic.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways, flow_down, flow_up};
use crate::flow::Shape;
use crate::netns::Netns;
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
        ),
        Scenario::new(
            "route-change",
            "the default route moves to another router",
            route_change,
        ),
    ]
}

fn two_ues(world: &mut World) -> Result<[Attached; 2]> {
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
            world.upf_ns.ip("neigh flush all")?;
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

/// What may be lost while a change is seen: 100 ms, and the announcement's own way.
const TOLERATED_MS: u32 = 150;

fn neighbour_change(world: &mut World) -> Result<String> {
    let ues = two_ues(world)?;
    for attached in &ues {
        both_ways(world, attached)?;
    }
    // The router announces its new address, as a first-hop redundancy protocol would.
    world.dn_ns.sysctl("net/ipv4/conf/n6/arp_notify", "1")?;
    world.dn_ns.sysctl("net/ipv6/conf/n6/ndisc_notify", "1")?;
    let shape = Shape::lasting(1000, 6);
    let flows: Vec<_> = ues
        .iter()
        .map(|attached| flow_up(world, attached, shape))
        .collect::<Result<_>>()?;
    // The kernel believes no second announcement within its lock time of one second.
    std::thread::sleep(Duration::from_millis(1500));
    world.dn_ns.ip("link set n6 address 02:00:00:00:06:fe")?;
    announce(&world.dn_ns)?;
    let mut lost = Vec::new();
    for (attached, flow) in ues.iter().zip(flows) {
        let outcome = flow.finish()?;
        let most = shape.rate * TOLERATED_MS / 1000;
        let name = attached.ue.name();
        ensure!(
            outcome.lost() <= most,
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
        crate::traffic::ping(dn, upf, 1, 100)?;
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
    let shape = Shape::lasting(1000, 3);
    let flows: Vec<_> = ues
        .iter()
        .map(|attached| flow_up(world, attached, shape))
        .collect::<Result<_>>()?;
    std::thread::sleep(Duration::from_secs(1));
    let before = received(dn, "n6b")?;
    world.upf_ns.ip("route replace default via 10.6.0.253")?;
    world.upf_ns.ip("route replace ::/0 via 2001:db8:6::fd")?;
    for (attached, flow) in ues.iter().zip(flows) {
        flow.finish()?.whole(attached.ue.name())?;
    }
    let moved = received(dn, "n6b")? - before;
    let most = u64::from(shape.count) * 2;
    ensure!(
        moved >= most / 2,
        "only {moved} of {most} packets took the new route"
    );

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
    let report = netns.run("ip", &args, Duration::from_secs(5))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    report[0]["stats64"]["rx"]["packets"]
        .as_u64()
        .context("ip link shows no counters")
}
