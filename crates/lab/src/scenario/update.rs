//! Rules that change a thousand times a second under traffic.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::Scenario;
use crate::flow::{self, Ledger, Shape};
use crate::gnb::Downlink;
use crate::gtpu::Container;
use crate::smf::Style;
use crate::world::{Family, GNBS, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "update-under-load",
            "1000 path switches a second: no packet lost or sent to a mixed destination",
            update_under_load,
        )
        .limit(90),
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
        if let Some(payload) = packet.get(28..) {
            self.ledger
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .note(payload);
        }
    }
}

const SECONDS: u32 = 10;

fn update_under_load(world: &mut World) -> Result<String> {
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
    let shape = Shape::lasting(10_000, SECONDS);
    let sent = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&sent);
    let sender = std::thread::spawn(move || flow::send(&socket, shape, &counter));

    let began = Instant::now();
    let mut updates = 0u32;
    while !sender.is_finished() {
        let (gnb, teid) = ways[updates as usize % ways.len()];
        smf.connect(&session, gnb, teid)?;
        updates += 1;
        let due = began + Duration::from_millis(u64::from(updates));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let rate = f64::from(updates) / began.elapsed().as_secs_f64();
    sender
        .join()
        .map_err(|_| anyhow!("the sending thread panicked"))??;
    std::thread::sleep(Duration::from_millis(500));
    judge(world, &watch, sent.load(Relaxed), rate)
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
        at.iter().all(|n| *n > u64::from(sent) / 10),
        "{at:?}: one gNB got hardly any"
    );
    // A machine shared with others may not keep the pace; far below it the test says nothing.
    ensure!(
        rate > 300.0,
        "only {rate:.0} updates a second were answered"
    );
    Ok(format!(
        "{rate:.0} updates/s, {sent} packets, {at:?} at the gNBs"
    ))
}
