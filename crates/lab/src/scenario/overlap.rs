//! Two data networks that know nothing of each other, and use the same addresses.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::{Scenario, none_of};
use crate::dn;
use crate::flow::{self, Shape};
use crate::netns::Netns;
use crate::smf::Style;
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "overlapping-ues",
            "two UEs have the same addresses in two network instances, and never meet",
            overlapping_ues,
        )
        .second_dn(),
    ]
}

const NETWORKS: [&str; 2] = ["internet", "corporate"];

fn overlapping_ues(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::Dual, Style::Open5gs);
    let mut ues = Vec::new();
    for (index, network) in NETWORKS.into_iter().enumerate() {
        let mut plan = plan.clone();
        plan.network_instance = network.to_owned();
        ues.push(world.attach(&format!("ue{index}"), &plan, 0, index)?);
    }
    let shape = Shape::lasting(500, 1);
    let second = world.second_dn_ns.as_ref().context("one data network")?;
    let networks = [&world.dn_ns, second];
    // All at once: a packet that took the wrong way would be missing here and doubled there.
    for family in 0..2 {
        let mut running = Vec::new();
        for (ue, network) in ues.iter().zip(networks) {
            running.push(("uplink", up(ue, network, family, shape)?));
            running.push(("downlink", down(ue, network, family, shape)?));
        }
        for (what, flow) in running {
            flow.finish()?.whole(what)?;
        }
    }
    // Without its session a UE is not reached, whoever else has its address.
    world.detach(&ues[0])?;
    none_of(down(&ues[0], networks[0], 0, shape)?, "to the UE that left")?;
    down(&ues[1], networks[1], 0, shape)?
        .finish()?
        .whole("to the UE that stayed")?;
    Ok("both families both ways at once, and one alone after the other left".to_owned())
}

fn up(ue: &Attached, network: &Netns, family: usize, shape: Shape) -> Result<flow::Running> {
    let to = SocketAddr::new(dn::server_for(ue.session.addresses.all()[family]), 0);
    flow::start(&ue.ue.netns, network, to, shape).context("uplink flow")
}

fn down(ue: &Attached, network: &Netns, family: usize, shape: Shape) -> Result<flow::Running> {
    let to = SocketAddr::new(ue.session.addresses.all()[family], 0);
    flow::start(network, &ue.ue.netns, to, shape).context("downlink flow")
}
