//! Answers that operators read while sessions come and go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways};
use crate::netns::Netns;
use crate::smf::{Smf, Style};
use crate::upf::Upf;
use crate::world::{Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "rest-reads-under-load",
            "REST and metrics are read without pause while sessions come and go, and neither harms the other",
            rest_reads_under_load,
        ),
        Scenario::new(
            "pages-under-load",
            "pages of a thousand sessions take several turns beside requests, and each is whole",
            pages_under_load,
        )
        .long(),
    ]
}

/// Of sessions that come and go, at least.
const ROUNDS: usize = 20;
/// Answers that are read meanwhile, at least.
const READS: u64 = 100;
const SESSIONS: usize = 25;

fn rest_reads_under_load(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let plans: Vec<_> = (0..SESSIONS)
        .map(|_| world.plan(Family::Dual, Style::Open5gs))
        .collect();
    let (over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let (upf, upf_ns) = (world.upf.as_ref().context("no UPF")?, &world.upf_ns);
    let smf = world.smf(0)?;
    let mut rounds = 0;
    std::thread::scope(|scope| -> Result<()> {
        let read = || {
            let read = read_until(upf, upf_ns, attached.session.up_seid, (&over, &reads));
            // Without readers there is nothing to wait for.
            over.store(true, Relaxed);
            read
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        let mut load = Ok(());
        let enough = |rounds| rounds >= ROUNDS && reads.load(Relaxed) > READS;
        while load.is_ok() && !enough(rounds) && !over.load(Relaxed) {
            load = come_and_go(smf, &plans);
            rounds += 1;
        }
        over.store(true, Relaxed);
        for reader in readers {
            let read = reader.join();
            read.map_err(|_| anyhow::anyhow!("a reader died"))??;
        }
        load
    })?;
    ensure!(world.sessions()? == 1, "sessions are left");
    both_ways(world, &attached)?;
    let (sessions, reads) = (rounds * SESSIONS, reads.load(Relaxed));
    Ok(format!(
        "{reads} answers beside {sessions} sessions that came and went"
    ))
}

fn come_and_go(smf: &Smf, plans: &[crate::smf::SessionPlan]) -> Result<()> {
    let sessions = plans.iter().map(|plan| smf.establish(plan));
    let sessions = sessions.collect::<Result<Vec<_>>>()?;
    sessions.iter().try_for_each(|session| smf.delete(session))
}

/// Sessions that stay, of which a page takes several turns.
const STANDING: usize = 1000;
/// Pages that are read beside requests.
const PAGES: u64 = 20;

fn pages_under_load(world: &mut World) -> Result<String> {
    let plans: Vec<_> = (0..STANDING + SESSIONS)
        .map(|_| world.plan(Family::V4, Style::Open5gs))
        .collect();
    let smf = world.smf(0)?;
    let (standing, passing) = plans.split_at(STANDING);
    let standing = standing.iter().map(|plan| smf.establish(plan));
    let standing = standing.collect::<Result<Vec<_>>>()?;
    let mut standing: Vec<u64> = standing.iter().map(|session| session.up_seid).collect();
    standing.sort_unstable();
    let over = AtomicBool::new(false);
    let before = turns(world)?;
    let all = |world: &World| -> Result<Vec<u64>> {
        let (mut seids, mut after) = (Vec::new(), String::new());
        loop {
            let page = world.get(&format!("/api/v1/sessions?limit=1000{after}"))?;
            for session in page["sessions"].as_array().context("no sessions")? {
                let seid = session["seid"].as_str().context("no SEID")?;
                seids.push(u64::from_str_radix(seid, 16)?);
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(seids),
            }
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let load = scope.spawn(|| -> Result<()> {
            while !over.load(Relaxed) {
                come_and_go(smf, passing)?;
            }
            Ok(())
        });
        let read = (0..PAGES).try_for_each(|_| {
            let mut seids = all(world)?;
            let read = seids.len();
            seids.sort_unstable();
            seids.dedup();
            ensure!(seids.len() == read, "{} sessions twice", read - seids.len());
            seids.retain(|seid| standing.binary_search(seid).is_ok());
            ensure!(seids == standing, "{} of {STANDING}", seids.len());
            Ok(())
        });
        over.store(true, Relaxed);
        let load = load.join().map_err(|_| anyhow::anyhow!("the load died"))?;
        read.and(load)
    })?;
    let turns = turns(world)? - before;
    ensure!(turns > 2 * PAGES, "{turns} turns for {PAGES} pages");
    Ok(format!("{PAGES} pages in {turns} turns, each whole"))
}

/// Turns that REST has had on the control thread.
fn turns(world: &World) -> Result<u64> {
    let upf = world.upf.as_ref().context("no UPF")?;
    let metrics = upf.get_text(&world.upf_ns, "/metrics")?;
    let line = "turnpike_rest_turns_total{of=\"control\"} ";
    let turns = metrics.lines().find_map(|l| l.strip_prefix(line));
    Ok(turns.context("no count of turns")?.trim().parse()?)
}

/// Every answer is whole; each adds to `reads`.
fn read_until(
    upf: &Upf,
    netns: &Netns,
    seid: u64,
    (over, reads): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    let one = format!("/api/v1/sessions/{seid:016x}");
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
        reads.fetch_add(5, Relaxed);
    }
    Ok(())
}
