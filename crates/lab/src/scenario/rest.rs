//! What operators read while sessions come and go.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways};
use crate::netns::Netns;
use crate::smf::{Smf, Style};
use crate::upf::Upf;
use crate::world::{Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "rest-reads-under-load",
        "REST and metrics are read without pause while sessions come and go, and neither harms the other",
        rest_reads_under_load,
    )]
}

const ROUNDS: usize = 20;
const SESSIONS: usize = 25;

fn rest_reads_under_load(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let plans: Vec<_> = (0..SESSIONS)
        .map(|_| world.plan(Family::Dual, Style::Open5gs))
        .collect();
    let over = AtomicBool::new(false);
    let (upf, upf_ns) = (world.upf.as_ref().context("no UPF")?, &world.upf_ns);
    let smf = world.smf(0)?;
    let reads = std::thread::scope(|scope| -> Result<u64> {
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| read_until(upf, upf_ns, attached.session.up_seid, &over)))
            .collect();
        let load = come_and_go(smf, &plans);
        over.store(true, Relaxed);
        let mut reads = 0;
        for reader in readers {
            reads += reader
                .join()
                .map_err(|_| anyhow::anyhow!("a reader died"))??;
        }
        load.map(|()| reads)
    })?;
    ensure!(reads > 100, "only {reads} answers were read");
    ensure!(world.sessions()? == 1, "sessions are left");
    both_ways(world, &attached)?;
    let sessions = ROUNDS * SESSIONS;
    Ok(format!(
        "{reads} answers beside {sessions} sessions that came and went"
    ))
}

fn come_and_go(smf: &Smf, plans: &[crate::smf::SessionPlan]) -> Result<()> {
    for _ in 0..ROUNDS {
        let sessions = plans.iter().map(|plan| smf.establish(plan));
        let sessions = sessions.collect::<Result<Vec<_>>>()?;
        sessions
            .iter()
            .try_for_each(|session| smf.delete(session))?;
    }
    Ok(())
}

/// Every answer is whole; how many there were.
fn read_until(upf: &Upf, netns: &Netns, seid: u64, over: &AtomicBool) -> Result<u64> {
    let one = format!("/api/v1/sessions/{seid:016x}");
    let mut reads = 0;
    while !over.load(Relaxed) {
        for path in [
            "/api/v1/sessions",
            &one,
            "/api/v1/datapath",
            "/api/v1/status",
        ] {
            upf.get(netns, path)?;
        }
        let metrics = upf.get_text(netns, "/metrics")?;
        ensure!(metrics.ends_with("# EOF\n"), "metrics are cut");
        reads += 5;
    }
    Ok(reads)
}
