//! Programs that change with what sessions use.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways, flow_down, flow_up};
use crate::flow::Shape;
use crate::smf::{Flow, Gates, SessionPlan, Style};
use crate::world::{Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "adapt-under-load",
            "programs are replaced under traffic: no packet lost, doubled or late",
            adapt_under_load,
        )
        .line("[datapath]", "settle_s = 0")
        .limit(90),
    ]
}

/// How long one set of programs may take to come: loading it takes tens of milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// What `turnpike datapath` shows.
fn datapath(world: &World) -> Result<(BTreeSet<String>, u64)> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let answer = upf.get(&world.upf_ns, "/api/v1/datapath")?;
    let features = answer["features"].as_array().context("no features")?;
    let features = features.iter().filter_map(|name| name.as_str());
    let count = answer["replacements"]
        .as_u64()
        .context("no count of replacements")?;
    Ok((features.map(str::to_owned).collect(), count))
}

/// Waits until the programs have or have not a feature.
fn wait_for(world: &World, feature: &str, there: bool) -> Result<()> {
    let began = Instant::now();
    loop {
        let (features, _) = datapath(world)?;
        // The general programs, which stand in between, have all features.
        let settled = !features.contains("relay");
        if settled && features.contains(feature) == there {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{feature} is not {there} after {PATIENCE:?}: {features:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sessions that need a feature which the one under traffic does not.
fn demanding(world: &mut World) -> [(&'static str, SessionPlan); 3] {
    let mut plain = |family| {
        let mut plan = world.plan(family, Style::Open5gs);
        plan.mbr_kbps = None;
        plan
    };
    let v6 = plain(Family::V6);
    let mut metered = plain(Family::V4);
    metered.mbr_kbps = Some((1000, 1000));
    let mut filtered = plain(Family::V4);
    filtered.flows = vec![Flow {
        filter: "permit out 17 from 10.200.0.1 7000 to assigned".to_owned(),
        precedence: 10,
        gates: Gates::OPEN,
    }];
    [("ipv6", v6), ("meter", metered), ("list", filtered)]
}

fn adapt_under_load(world: &mut World) -> Result<String> {
    const ROUNDS: usize = 3;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.mbr_kbps = None;
    let attached = world.attach("ue1", &plan, 0, 0)?;
    both_ways(world, &attached)?;
    let demanding = demanding(world);
    for (feature, _) in &demanding {
        wait_for(world, feature, false)?;
    }
    let (_, before) = datapath(world)?;
    let shape = Shape::lasting(5000, 8);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    let began = Instant::now();
    for _ in 0..ROUNDS {
        for (feature, plan) in &demanding {
            let session = world.smf(0)?.establish(plan)?;
            wait_for(world, feature, true)?;
            world.smf(0)?.delete(&session)?;
            wait_for(world, feature, false)?;
        }
    }
    let took = began.elapsed();
    let (_, after) = datapath(world)?;
    for (way, running) in [("uplink", up), ("downlink", down)] {
        let outcome = running.finish()?;
        outcome.whole(way)?;
        ensure!(outcome.late == 0, "{way}: {} packets late", outcome.late);
    }
    let times = after - before;
    // To the general programs, to those with the feature, and to those without it again.
    let expected = (ROUNDS * demanding.len() * 3) as u64;
    ensure!(times >= expected, "only {times} replacements");
    Ok(format!(
        "{times} replacements in {:.1} s, no packet lost, doubled or late",
        took.as_secs_f64()
    ))
}
