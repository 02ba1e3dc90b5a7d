//! Programs that change with what sessions use.

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::framed_route::FramedRoute;

use super::{Scenario, both_ways, eventually, flow_down, flow_up, more_of};
use crate::flow::Shape;
use crate::smf::Style;
use crate::world::{Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "adapt-under-load",
            "programs are replaced under traffic: no packet lost, doubled or late",
            adapt_under_load,
        )
        .line("[datapath]", "settle_s = 0"),
    ]
}

/// The build that is live, and how often another one took over, as `turnpike datapath` shows it.
fn datapath(world: &World) -> Result<(String, u64)> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let answer = upf.get(&world.upf_ns, "/api/v1/datapath")?;
    let build = answer["build"].as_str().context("no build")?;
    let count = answer["replacements"]
        .as_u64()
        .context("no count of replacements")?;
    Ok((build.to_owned(), count))
}

fn wait_for(world: &World, build: &str) -> Result<()> {
    eventually(build, || Ok(datapath(world)?.0 == build))
}

fn adapt_under_load(world: &mut World) -> Result<String> {
    const ROUNDS: u64 = 8;
    // Without it, uplink may be of IPv6, too.
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.uplink_ue = true;
    let attached = world.attach("ue1", &plan, 0, 0)?;
    both_ways(world, &attached)?;
    let mut framed = world.plan(Family::V4, Style::Open5gs);
    framed.pdi = vec![FramedRoute::new("198.51.100.0/24 0.0.0.0 1").to_ie()];
    wait_for(world, "plain")?;
    let (_, before) = datapath(world)?;
    let shape = Shape::endless(5000);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    more_of(&up, 100)?;
    more_of(&down, 100)?;
    for _ in 0..ROUNDS {
        let session = world.smf(0)?.establish(&framed)?;
        // Before the answer, not after it.
        let live = datapath(world)?.0;
        ensure!(live == "general", "framed routes in a {live} program");
        world.smf(0)?.delete(&session)?;
        wait_for(world, "plain")?;
    }
    let (_, after) = datapath(world)?;
    for flow in [&up, &down] {
        more_of(flow, 100)?;
        flow.stop();
    }
    for (way, running) in [("uplink", up), ("downlink", down)] {
        let outcome = running.finish()?;
        outcome.whole(way)?;
        ensure!(outcome.late == 0, "{way}: {} packets late", outcome.late);
    }
    let times = after - before;
    ensure!(times >= 2 * ROUNDS, "only {times} replacements");
    Ok(format!(
        "{times} replacements, no packet lost, doubled or late"
    ))
}
