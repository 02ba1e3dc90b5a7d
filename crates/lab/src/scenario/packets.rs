//! Packets that the fast path cannot finish.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};

use super::routes::received;
use super::{Scenario, both_ways, eventually, expect_drops, flow_up, none_of};
use crate::flow::{self, Shape};
use crate::ping::{ping, unanswered};
use crate::smf::Style;
use crate::wait::NEVER;
use crate::world::{Attached, Family, ROUTER, ROUTER_V6, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "outer-fragments",
            "tunnel packets in fragments arrive whole",
            outer_fragments,
        )
        .fragments(),
        Scenario::new(
            "ue-to-ue",
            "UEs reach each other through the UPF alone",
            ue_to_ue,
        ),
        Scenario::new("ue-to-ue-off", "UEs are kept apart", ue_to_ue_off)
            .line("[[network_instance]]", "ue_to_ue = false"),
        Scenario::new(
            "gateway-in-pool",
            "a router on N6 with an address of the UEs' pool is reached by its route",
            gateway_in_pool,
        ),
    ]
}

/// Two dual-stack UEs, each at its own gNB.
fn two_ues(world: &mut World) -> Result<[Attached; 2]> {
    let plans = [(); 2].map(|()| world.plan(Family::Dual, Style::Open5gs));
    Ok([
        world.attach("ue1", &plans[0], 0, 0)?,
        world.attach("ue2", &plans[1], 0, 1)?,
    ])
}

/// A flow from one UE to each address of the other.
fn flows_between(from: &Attached, to: &Attached, shape: Shape) -> Result<Vec<flow::Running>> {
    let addresses = to.ue.addresses().all();
    ensure!(addresses.len() == 2, "{addresses:?}");
    let flow = |address| {
        let to_socket = SocketAddr::new(address, 0);
        flow::start(&from.ue.netns, &to.ue.netns, to_socket, shape)
    };
    addresses.into_iter().map(flow).collect()
}

fn ue_to_ue(world: &mut World) -> Result<String> {
    let [one, other] = two_ues(world)?;
    let shape = Shape::lasting(2000, 1);
    let before = [world.counted(&one)?, world.counted(&other)?];
    let n6 = received(&world.dn_ns, "n6")?;
    for (from, to) in [(&one, &other), (&other, &one)] {
        for flow in flows_between(from, to, shape)? {
            let outcome = flow.finish()?;
            outcome.whole(&format!("{} to {}", from.ue.name(), to.ue.name()))?;
        }
    }
    ping(&one.ue.netns, other.address()?, 5, 100)?;
    let after = [world.counted(&one)?, world.counted(&other)?];
    for (before, after) in before.iter().zip(&after) {
        for (before, after) in before.iter().zip(after) {
            let packets = after.packets - before.packets;
            ensure!(
                packets >= 2 * u64::from(shape.count) + 5 && after.drops == before.drops,
                "{before:?} became {after:?}"
            );
        }
    }
    let leaked = received(&world.dn_ns, "n6")? - n6;
    ensure!(leaked < 100, "{leaked} packets went out on N6");
    Ok("8000 packets both ways, both families, none lost, counted for both".into())
}

fn ue_to_ue_off(world: &mut World) -> Result<String> {
    let [one, other] = two_ues(world)?;
    let shape = Shape::lasting(500, 1);
    for flow in flows_between(&one, &other, shape)? {
        none_of(flow, "UE to UE")?;
    }
    let mut drops = 0;
    eventually("packets dropped as ue_to_ue", || {
        drops = world.drops("ue_to_ue")?;
        Ok(drops >= 1000)
    })?;
    both_ways(world, &one)?;
    Ok(format!("{drops} packets dropped, others pass"))
}

/// As SMFs name the first address of a pool to their UEs as the gateway, and a router on N6 has it.
fn gateway_in_pool(world: &mut World) -> Result<String> {
    let [ue, other] = two_ues(world)?;
    let gateways: [(IpAddr, IpAddr); 2] = [
        ("10.60.255.1".parse()?, ROUTER.into()),
        ("2001:db8:60:ffff::1".parse()?, ROUTER_V6.into()),
    ];
    for (gateway, via) in gateways {
        let nodad = if gateway.is_ipv6() { " nodad" } else { "" };
        world
            .dn_ns
            .ip(&format!("addr add {gateway} dev n6{nodad}"))?;
        let before = world.drops("unknown_ue")?;
        unanswered(&ue.ue.netns, gateway, 3).context("without a route")?;
        expect_drops(world, "unknown_ue", before, 3)?;
        world.upf_ns.ip(&format!("route add {gateway} via {via}"))?;
        eventually("the route is followed", || {
            Ok(unanswered(&ue.ue.netns, gateway, 1).is_err())
        })?;
        ping(&ue.ue.netns, gateway, 20, 20)?.whole()?;
    }
    both_ways(world, &ue)?;
    ping(&ue.ue.netns, other.address()?, 5, 20)?
        .whole()
        .context("UEs come first")?;
    for (gateway, via) in gateways {
        world.upf_ns.ip(&format!("route del {gateway} via {via}"))?;
        let before = world.drops("unknown_ue")?;
        eventually("packets are nobody's again", || {
            unanswered(&ue.ue.netns, gateway, 1)?;
            Ok(world.drops("unknown_ue")? > before)
        })?;
    }
    Ok("both families, while there is a route and no longer".into())
}

/// Octets of UDP payload that fit the UE's link of 1500, but not with tunnel headers the gNB's.
const LARGE: usize = 1460;

fn outer_fragments(world: &mut World) -> Result<String> {
    let ues = [
        world.attach_plain("ue4", Family::V4)?,
        world.attach_plain("ue6", Family::V6)?,
    ];
    for attached in &ues {
        attached.ue.netns.ip("link set tun0 mtu 1500")?;
        fragments_of(world, attached)?;
        both_ways(world, attached)?;
    }
    other_udp(world)?;
    for reason in ["fragment_timeout", "fragment_malformed", "fragment_limit"] {
        let drops = world.drops(reason)?;
        ensure!(drops == 0, "{drops} packets lost as {reason}");
    }
    Ok(
        "2000 packets in two fragments each, none lost; other UDP in fragments reaches the host"
            .into(),
    )
}

fn fragments_of(world: &World, attached: &Attached) -> Result<()> {
    let overhead = match attached.address()? {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    };
    let payload = LARGE + 28 - overhead;
    let [before, _] = world.counted(attached)?;
    let shape = Shape {
        rate: 1000,
        count: 1000,
        payload,
    };
    flow_up(world, attached, shape)?
        .finish()?
        .whole(attached.ue.name())?;
    let [after, _] = world.counted(attached)?;
    let bytes = after.bytes - before.bytes;
    let sent = u64::from(shape.count) * (payload + overhead) as u64;
    ensure!(
        bytes >= sent && after.packets - before.packets >= u64::from(shape.count),
        "{bytes} octets counted of {sent}"
    );
    Ok(())
}

/// A datagram of 4000 octets to our N3 address that is not GTP-U.
fn other_udp(world: &World) -> Result<()> {
    let socket = world.upf_ns.udp((UPF_N3, 5555))?;
    socket.set_read_timeout(Some(NEVER))?;
    let gnb = &world.gnbs[0];
    let sent: Vec<u8> = (0..4000u32).map(|at| (at % 251) as u8).collect();
    gnb.send_to((UPF_N3, 5555).into(), &sent)?;
    let mut received = vec![0; 8000];
    let (length, from) = socket
        .recv_from(&mut received)
        .context("a fragmented datagram to another port of N3")?;
    ensure!(
        received[..length] == sent[..] && from.ip() == gnb.address(),
        "{length} octets from {from}"
    );
    Ok(())
}
