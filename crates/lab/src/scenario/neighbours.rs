//! Neighbours that an operator sets, and neighbours that do not answer.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::routes::two_ues;
use super::{Scenario, both_ways, eventually};
use crate::netns::Netns;
use crate::wait::NEVER;
use crate::world::{Attached, LINK_MTU, OverN3, ROUTER, ROUTER_V6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "static-neighbour-erased",
            "an operator's permanent neighbours stay",
            static_neighbours,
        ),
        Scenario::new(
            "static-neighbour-erased-v6",
            "an operator's permanent neighbours stay, N3 over IPv6",
            static_neighbours,
        )
        .over(OverN3::V6),
    ]
}

/// Address and interface of a neighbour of the UPF.
type Neighbour = (IpAddr, &'static str);

/// The gateways of both families, and the gNB that serves the UEs.
fn neighbours(world: &World) -> [Neighbour; 3] {
    [
        (ROUTER.into(), "n6"),
        (ROUTER_V6.into(), "n6"),
        (world.gnbs[0].address(), "n3"),
    ]
}

/// Entry of the UPF's kernel.
fn entry(upf: &Netns, (addr, interface): Neighbour) -> Result<String> {
    let addr = addr.to_string();
    let args = ["-d", "neigh", "show", &addr, "dev", interface, "nud", "all"];
    upf.run("ip", &args, NEVER)
}

fn are_kept(world: &World) -> Result<()> {
    for neighbour in neighbours(world) {
        eventually("the neighbour is kept", || {
            Ok(entry(&world.upf_ns, neighbour)?.contains("managed"))
        })?;
    }
    Ok(())
}

/// As an operator would, with the address that the neighbour has.
fn make_static(world: &World) -> Result<()> {
    for neighbour in neighbours(world) {
        let (addr, interface) = neighbour;
        let told = entry(&world.upf_ns, neighbour)?;
        let mut words = told.split_whitespace();
        words.find(|word| *word == "lladdr");
        let mac = words.next().context(told.clone())?;
        let set = format!("neigh replace {addr} lladdr {mac} dev {interface} nud permanent");
        world.upf_ns.ip(&set)?;
    }
    heard(world)
}

/// The UPF has heard of what was changed before, and has told the kernel what follows.
fn heard(world: &World) -> Result<()> {
    // It tells the kernel of the first before it hears of the third.
    for mtu in [LINK_MTU - 1, LINK_MTU, LINK_MTU - 1, LINK_MTU] {
        world.set_mtu("n6", mtu)?;
    }
    Ok(())
}

fn are_static(world: &World, when: &str) -> Result<()> {
    for neighbour in neighbours(world) {
        let told = entry(&world.upf_ns, neighbour)?;
        ensure!(
            told.contains("PERMANENT") && !told.contains("managed"),
            "{when}: {told}"
        );
    }
    Ok(())
}

fn traffic_passes(world: &World, ues: &[Attached]) -> Result<()> {
    ues.iter()
        .try_for_each(|attached| both_ways(world, attached))
}

fn static_neighbours(world: &mut World) -> Result<String> {
    let ues = two_ues(world)?;
    traffic_passes(world, &ues)?;
    are_kept(world)?;
    make_static(world)?;
    are_static(world, "after the UPF has heard of it")?;
    traffic_passes(world, &ues)?;
    are_static(world, "under traffic")?;
    for (addr, interface) in neighbours(world) {
        let delete = format!("neigh del {addr} dev {interface}");
        world.upf_ns.ip(&delete)?;
    }
    are_kept(world).context("after the operator has deleted them")?;
    traffic_passes(world, &ues)?;
    make_static(world)?;
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGTERM)?;
    are_static(world, "after the UPF has ended")?;
    Ok("gateways and gNB stay permanent, and are kept again when they are not".to_owned())
}
