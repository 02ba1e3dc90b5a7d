//! Neighbours that an operator sets, and neighbours that do not answer.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::routes::two_ues;
use super::{Scenario, both_ways, eventually, expect_drops, flow_down, flow_up, none_of};
use crate::flow::{self, Shape};
use crate::netns::Netns;
use crate::wait::NEVER;
use crate::world::{Attached, LINK_MTU, OverN3, ROUTER, ROUTER_V6, UPF_N3, UPF_N6, World};

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
        Scenario::new(
            "dead-neighbour",
            "each packet to a gateway or gNB that does not answer has a name",
            dead_neighbours,
        )
        .long(),
        Scenario::new(
            "dead-neighbour-v6",
            "each packet to a gateway or gNB that does not answer has a name, N3 over IPv6",
            dead_neighbours,
        )
        .over(OverN3::V6)
        .long(),
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

/// Entry of a kernel.
fn entry(netns: &Netns, (addr, interface): Neighbour) -> Result<String> {
    let addr = addr.to_string();
    let args = ["-d", "neigh", "show", &addr, "dev", interface, "nud", "all"];
    netns.run("ip", &args, NEVER)
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
fn pin(netns: &Netns, neighbour: Neighbour) -> Result<()> {
    let (addr, interface) = neighbour;
    let told = entry(netns, neighbour)?;
    let mut words = told.split_whitespace();
    words.find(|word| *word == "lladdr");
    let mac = words.next().context(told.clone())?;
    netns.ip(&format!(
        "neigh replace {addr} lladdr {mac} dev {interface} nud permanent"
    ))
}

fn make_static(world: &World) -> Result<()> {
    neighbours(world)
        .into_iter()
        .try_for_each(|neighbour| pin(&world.upf_ns, neighbour))?;
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

/// Packets of each flow.
const PACKETS: Shape = Shape {
    rate: 1000,
    count: 300,
    payload: 200,
};

/// The reason of packets to a neighbour that does not answer.
const UNRESOLVED: &str = "neighbour_unresolved";

/// Has nobody at the other end answer for an address, or somebody again.
fn set_silent(
    netns: &Netns,
    interface: &'static str,
    address: IpAddr,
    is_silent: bool,
) -> Result<()> {
    match (address, is_silent) {
        (IpAddr::V4(_), _) => {
            if is_silent {
                // Nor does it ask, from which the UPF would learn its address.
                let near = if interface == "n3" { UPF_N3 } else { UPF_N6 };
                pin(netns, (near.into(), interface))?;
            }
            let key = format!("net/ipv4/conf/{interface}/arp_ignore");
            netns.sysctl(&key, if is_silent { "8" } else { "0" })
        }
        (IpAddr::V6(_), true) => netns.ip(&format!("addr del {address}/64 dev {interface}")),
        (IpAddr::V6(_), false) => netns.ip(&format!("addr add {address}/64 dev {interface} nodad")),
    }
}

/// Not a packet arrives, and each has its name.
fn each_has_a_name(
    world: &World,
    ues: &[Attached],
    flow: fn(&World, &Attached, Shape) -> Result<flow::Running>,
    when: &str,
) -> Result<u64> {
    let before = world.drops(UNRESOLVED)?;
    let flows: Vec<_> = ues
        .iter()
        .map(|attached| flow(world, attached, PACKETS))
        .collect::<Result<_>>()?;
    let mut sent = 0;
    for flow in flows {
        sent += u64::from(none_of(flow, when)?.sent);
    }
    expect_drops(world, UNRESOLVED, before, sent).context(when.to_owned())?;
    Ok(sent)
}

fn dead_neighbours(world: &mut World) -> Result<String> {
    let ues = two_ues(world)?;
    traffic_passes(world, &ues)?;
    are_kept(world)?;
    let [v4, v6, gnb] = neighbours(world);
    let mut lost = 0;
    let gnb_ns = &world.gnb_ns[0];
    for (netns, far, dead, flow) in [
        (
            &world.dn_ns,
            "n6",
            vec![v4, v6],
            flow_up as fn(&_, &_, _) -> _,
        ),
        (gnb_ns, "n3", vec![gnb], flow_down),
    ] {
        for (address, interface) in &dead {
            set_silent(netns, far, *address, true)?;
            world
                .upf_ns
                .ip(&format!("neigh del {address} dev {interface}"))?;
        }
        lost += each_has_a_name(world, &ues, flow, "while the kernel asks")?;
        for neighbour in &dead {
            eventually("the kernel gives up", || {
                Ok(entry(&world.upf_ns, *neighbour)?.contains("FAILED"))
            })?;
        }
        lost += each_has_a_name(world, &ues, flow, "when it has given up")?;
        for (address, _) in &dead {
            set_silent(netns, far, *address, false)?;
        }
        for neighbour in &dead {
            eventually("it answers again", || {
                let told = entry(&world.upf_ns, *neighbour)?;
                Ok(told.contains("managed") && told.contains("lladdr"))
            })?;
        }
        heard(world)?;
        traffic_passes(world, &ues)?;
    }
    Ok(format!(
        "{lost} packets lost to gateways and a gNB, each of them named"
    ))
}
