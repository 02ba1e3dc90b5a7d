//! Rules that change again and again under traffic.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;

use super::{Scenario, eventually};
use crate::dn;
use crate::flow::{self, Ledger, Shape};
use crate::gnb::Downlink;
use crate::gtpu::Container;
use crate::ping::ping;
use crate::smf::Style;
use crate::wait::NEVER;
use crate::world::{BY_PROGRAM, BY_SHARED_PROGRAM, Family, GNBS, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "update-under-load",
            "5000 path switches as fast as they are answered: no packet lost or sent to a mixed destination",
            update_under_load,
        )
        .long(),
        Scenario::new(
            "update-under-load-templates",
            "the same where the data path serves them by a template",
            update_by_templates,
        )
        .line("[n4]", "fast_path = \"user\"")
        .long(),
        Scenario::new(
            "update-under-load-program",
            "the same where a program answers the SMF",
            update_by_templates,
        )
        .line("[n4]", BY_PROGRAM)
        .long(),
        Scenario::new(
            "update-under-load-shared-program",
            "and where SMFs come by the interface of N3",
            update_by_templates,
        )
        .line("[n4]", BY_SHARED_PROGRAM)
        .long(),
        Scenario::new(
            "n3-with-n4-replugged",
            "where N3 and N4 have one interface, spread over CPUs, that goes away and comes back, both are there again",
            replug_n3_with_n4,
        )
        .line("[n4]", BY_SHARED_PROGRAM)
        .line("[[interface]]", "spread_cpus = [0, 1]"),
        Scenario::new(
            "update-under-load-replugged",
            "N4's interface goes away and comes back: the program is there again",
            update_and_replug,
        )
        .line("[n4]", BY_PROGRAM)
        .long(),
        Scenario::new(
            "update-under-load-killed",
            "and the UPF is killed right after answers: the next one knows what a program has said for it",
            update_and_kill,
        )
        .line("[n4]", BY_PROGRAM)
        .outlasting()
        .long(),
    ]
}

/// Takes the packets of all tunnels and keeps one ledger of them.
#[derive(Default)]
struct Watch {
    ledger: Mutex<Ledger>,
    /// Packets whose TEID lies in the range of the other gNB.
    mixed: AtomicU64,
    /// Packets at each gNB.
    at: [AtomicU64; 2],
    /// TEID of the last packet.
    last: AtomicU32,
}

impl Watch {
    fn received(&self) -> u32 {
        let ledger = self.ledger.lock();
        ledger.unwrap_or_else(PoisonError::into_inner).received()
    }
}

impl Downlink for Watch {
    fn deliver(&self, gnb: IpAddr, teid: u32, container: Option<Container>, packet: &[u8]) {
        let index = usize::from(gnb == GNBS[1]);
        // World gives TEIDs from 0x1000_0000 to the first gNB and from 0x2000_0000 to the second.
        let right = Some(Container {
            pdu_type: 0,
            qfi: 9,
        });
        if teid >> 28 != index as u32 + 1 || container != right {
            self.mixed.fetch_add(1, Relaxed);
        }
        self.at[index].fetch_add(1, Relaxed);
        self.last.store(teid, Relaxed);
        if let Some(payload) = packet.get(28..) {
            self.ledger
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .note(payload);
        }
    }
}

const UPDATES: u32 = 5000;

fn update_under_load(world: &mut World) -> Result<String> {
    under_updates(world, |_, _, _| Ok(()))
}

/// `then`: is called as soon as an update is answered, with its number and the TEID that packets go to from now on.
fn under_updates(
    world: &mut World,
    mut then: impl FnMut(&mut World, u32, (&Watch, u32)) -> Result<()>,
) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let smf = world.smf(0)?;
    let session = smf.establish(&plan)?;
    let watch = Arc::new(Watch::default());
    let mut ways = Vec::new();
    for _ in 0..4 {
        for gnb in &world.gnbs {
            let teid = gnb.open(Arc::clone(&watch) as Arc<dyn Downlink>);
            ways.push((gnb.address(), teid));
        }
    }
    smf.connect(&session, ways[0].0, ways[0].1)?;
    let ue = session.addresses.v4.context("a UE without IPv4")?;
    let to = SocketAddr::from((ue, 9000));
    let socket = flow::send_socket(&world.dn_ns, flow::any(to), to)?;
    let (sent, over) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (counter, stop, arrived) = (Arc::clone(&sent), Arc::clone(&over), Arc::clone(&watch));
    let sender = std::thread::spawn(move || {
        let arrived = || arrived.received();
        flow::send_until(&socket, Shape::endless(10_000), &counter, &stop, &arrived)
    });

    let began = Instant::now();
    for update in 0..UPDATES {
        let before = watch.received();
        let (gnb, teid) = ways[update as usize % ways.len()];
        world.smf(0)?.connect(&session, gnb, teid)?;
        then(world, update, (&watch, teid))?;
        let deadline = Instant::now() + NEVER;
        while watch.received() == before {
            ensure!(Instant::now() < deadline, "no packet after an update");
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    let rate = f64::from(UPDATES) / began.elapsed().as_secs_f64();
    over.store(true, Relaxed);
    sender
        .join()
        .map_err(|_| anyhow!("the sending thread panicked"))??;
    eventually("the last packet", || {
        Ok(watch.received() >= sent.load(Relaxed))
    })?;
    judge(world, &watch, sent.load(Relaxed), rate)
}

fn update_by_templates(world: &mut World) -> Result<String> {
    with_stays(world)?;
    let seen = update_under_load(world)?;
    let requests = world.fast_path()?;
    let served = requests.get("served").copied().unwrap_or(0);
    // Before that the template is learned, and the second gNB's address.
    let least = u64::from(UPDATES - 40);
    ensure!(served >= least, "{requests:?}");
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let shown = upf.turnpike(&world.upf_ns, &["n4", "--json"])?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let templates = shown["fast_path"]["templates"].as_array();
    let templates = templates.context("no templates are shown")?;
    let theirs = templates.iter().filter_map(|of| of["served"].as_u64());
    ensure!(theirs.sum::<u64>() == served, "{served} served: {shown}");
    let moves = |of: &serde_json::Value| of["updates"][0] == "forward, tunnel, end marker";
    ensure!(templates.iter().any(moves), "no path switch: {shown}");
    Ok(format!("{seen}; {served} by a template"))
}

fn update_and_replug(world: &mut World) -> Result<String> {
    with_stays(world)?;
    let mut before = 0;
    let seen = under_updates(world, |world, update, _| {
        if update == UPDATES / 2 {
            before = world.fast_path()?.get("served").copied().unwrap_or(0);
            world.replug_n4()?;
        }
        // It is looked for each second. Sessions of which requests have come without it are lent when one pauses.
        if update == UPDATES / 2 + 100 {
            std::thread::sleep(Duration::from_millis(1500));
        }
        Ok(())
    })?;
    let requests = world.fast_path()?;
    let served = requests.get("served").copied().unwrap_or(0) - before;
    let least = u64::from(UPDATES / 2 - 150);
    ensure!(before >= least && served >= least, "{before}, {requests:?}");
    let shown = world.get("/api/v1/n4")?;
    let (by, trouble) = (
        &shown["fast_path"]["interface"],
        &shown["fast_path"]["trouble"],
    );
    ensure!(by.is_string() && trouble.is_null(), "{shown:#}");
    Ok(format!("{seen}; {before} by a program, then {served}"))
}

fn replug_n3_with_n4(world: &mut World) -> Result<String> {
    with_stays(world)?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let mut rounds = [0; 2];
    for (turn, round) in rounds.iter_mut().enumerate() {
        if turn == 1 {
            world.replug_n3_with_n4()?;
        }
        let served = |world: &World| -> Result<u64> {
            Ok(world.fast_path()?.get("served").copied().unwrap_or(0))
        };
        let before = served(world)?;
        // Each path switch is answered, by whom ever, while the interface is found, and its program.
        eventually("a path switch that the program serves", || {
            *round += 1;
            world.activate(&attached)?;
            Ok(served(world)? > before)
        })?;
        let pinged = ping(&attached.ue.netns, dn::SERVER_V4.into(), 5, 20)?;
        pinged.whole()?;
    }
    let [first, then] = rounds;
    Ok(format!(
        "{first} path switches until one was served by the program, {then} after"
    ))
}

/// Ends of the UPF: two kills, then a reload that takes over, and so on.
const ENDS: u32 = 9;

fn update_and_kill(world: &mut World) -> Result<String> {
    with_stays(world)?;
    let (mut served, mut found) = (0, 0);
    let seen = under_updates(world, |world, update, (watch, teid)| {
        let to_go = UPDATES / ENDS - 1 - update % (UPDATES / ENDS);
        if to_go == 1 {
            // With a question, the core hears of all that was served.
            served += world.fast_path()?.get("served").copied().unwrap_or(0);
        }
        if to_go != 0 {
            return Ok(());
        }
        if update / (UPDATES / ENDS) % 3 == 2 {
            // The next one takes over, with larger tables, and has nothing to find.
            let limits = format!("[limits]\nsmfs = {}\n", 70 + update / 100);
            let upf = world.upf()?;
            upf.edit(|text| {
                let lines = text.lines().filter(|line| !line.starts_with("smfs = "));
                let text: Vec<_> = lines.collect();
                (text.join("\n") + "\n").replacen("[limits]\n", &limits, 1)
            })?;
            let upf = world.upf.as_ref().context("the UPF is down")?;
            let last = upf.reload(&world.upf_ns)?;
            ensure!(last["outcome"] == "in force", "{last:#}");
        } else {
            let upf = world.upf.take().context("the UPF is down")?;
            upf.stop(Signal::SIGKILL)?;
            world.start_upf()?;
            let log = world.upf()?.log_tail(usize::MAX);
            found = log.matches("is carried out").count();
            ensure!(!log.contains("SMFs have other rules"), "{log}");
        }
        // Packets meet what the SMF was told.
        let before = watch.received();
        eventually("a hundred packets", || Ok(watch.received() >= before + 100))?;
        let last = watch.last.load(Relaxed);
        ensure!(last == teid, "packets go to {last:#x}, not to {teid:#x}");
        // Until nothing from before the program was there can be under way, it serves nobody.
        std::thread::sleep(Duration::from_millis(100));
        Ok(())
    })?;
    // Else the core had just heard of it.
    ensure!(found > 0, "{found} starts had something to do");
    let least = u64::from(UPDATES / 10 * 9);
    ensure!(served >= least, "{served} of {UPDATES} by a program");
    Ok(format!(
        "{seen}; {served} by a program; {found} of {} starts had something to carry out",
        ENDS - ENDS / 3
    ))
}

/// Each gNB has a UE that stays: the data path knows addresses that sessions lead to.
fn with_stays(world: &mut World) -> Result<()> {
    for at in 0..world.gnbs.len() {
        let plan = world.plan(Family::V4, Style::Open5gs);
        let smf = world.smf(0)?;
        let session = smf.establish(&plan)?;
        let gnb = &world.gnbs[at];
        let teid = gnb.open(Arc::new(Watch::default()) as Arc<dyn Downlink>);
        smf.connect(&session, gnb.address(), teid)?;
    }
    Ok(())
}

fn judge(world: &World, watch: &Watch, sent: u32, rate: f64) -> Result<String> {
    let outcome = watch
        .ledger
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .close(sent);
    outcome.whole("downlink under updates")?;
    let mixed = watch.mixed.load(Relaxed);
    ensure!(
        mixed == 0,
        "{mixed} packets had the gNB of one rule and the TEID of another"
    );
    for gnb in &world.gnbs {
        let unknown = gnb.counters().unknown_teid.load(Relaxed);
        ensure!(
            unknown == 0,
            "{unknown} packets came to {} for no tunnel of it",
            gnb.address()
        );
    }
    let at = [watch.at[0].load(Relaxed), watch.at[1].load(Relaxed)];
    ensure!(
        at.iter().all(|n| *n > u64::from(UPDATES) / 4),
        "{at:?}: one gNB got hardly any"
    );
    Ok(format!(
        "{rate:.0} updates/s, {sent} packets, {at:?} at the gNBs"
    ))
}
