//! Packets that the fast path cannot finish.

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways, flow_up};
use crate::flow::Shape;
use crate::world::{Attached, Family, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "outer-fragments",
        "tunnel packets in fragments arrive whole",
        outer_fragments,
    )]
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
        std::net::IpAddr::V4(_) => 28,
        std::net::IpAddr::V6(_) => 48,
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
    let socket = world
        .upf_ns
        .enter(|| Ok(UdpSocket::bind((UPF_N3, 5555))?))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
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
