//! A user that sends below and above an MBR that shapes: how many of its packets wait, what that costs, and how much later they
//! arrive.
//!
//! Floors are those of the same packets through an MBR that is never reached.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::socket::{setsockopt, sockopt};

use super::{Figures, median};
use crate::dn;
use crate::flow;
use crate::smf::Style;
use crate::world::{Attached, Family, Wanted, World};

const KBPS: u64 = 50_000;
/// One that is never reached.
const FREE_KBPS: u64 = 10_000_000;
const PAYLOAD: usize = 1200;
const PACKET_BITS: f64 = (PAYLOAD + 28) as f64 * 8.0;
const LASTS: Duration = Duration::from_secs(3);
/// Offered rates, in parts of the MBR.
const OFFERED: [f64; 5] = [0.5, 0.9, 1.1, 1.5, 3.0];
/// Silence after which all has come that comes.
const SILENCE: Duration = Duration::from_millis(600);
/// Threads in which packets of one user may wait: of XDP, and the first of workers.
const THREADS: [&str; 2] = ["shaper", "worker-0"];

/// Results of one run.
#[derive(Default)]
struct Seen {
    /// Of the packets that arrived, those that waited.
    share: f64,
    /// CPU time of the thread that keeps them, of the time that the flow lasted.
    cpu: f64,
    /// Microseconds from sender to receiver: the middle, and the 99th percentile.
    delay: [f64; 2],
}

/// Figures `shaped-*`.
pub(super) fn measure(figures: &mut Figures, runs: usize) -> Result<()> {
    let wanted = Wanted {
        lines: vec![("[qos]", "mode = \"shape\"")],
        ..Wanted::default()
    };
    let mut world = World::build(&wanted)?;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.mbr_kbps = Some((KBPS, KBPS));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    for times in OFFERED {
        let (mut at_rate, mut free) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            for (kbps, seen) in [(KBPS, &mut at_rate), (FREE_KBPS, &mut free)] {
                world.smf(0)?.limit(&attached.session, kbps, kbps)?;
                seen.push(offer(&mut world, &attached, times)?);
            }
        }
        let of = |seen: &[Seen], what: fn(&Seen) -> f64| {
            median(&mut seen.iter().map(what).collect::<Vec<_>>())
        };
        let mut add = |name: &str, unit: &str, what: fn(&Seen) -> f64| {
            let name = format!("shaped-{times}-{name}");
            let floor = of(&free, what);
            figures.add(&name, of(&at_rate, what), unit, Some(floor));
        };
        add("share", "%", |seen| seen.share);
        add("cpu", "%", |seen| seen.cpu);
        add("delay-p50", "us", |seen| seen.delay[0]);
        add("delay-p99", "us", |seen| seen.delay[1]);
    }
    Ok(())
}

/// Send uplink at so many times the MBR.
fn offer(world: &mut World, attached: &Attached, times: f64) -> Result<Seen> {
    let server = SocketAddr::new(dn::SERVER_V4.into(), 0);
    let inbound = world.dn_ns.udp(server)?;
    setsockopt(&inbound, sockopt::RcvBufForce, &(16 << 20))?;
    inbound.set_read_timeout(Some(Duration::from_millis(20)))?;
    let to = inbound.local_addr()?;
    let outbound = flow::send_socket(&attached.ue.netns, flow::any(to), to)?;
    let (over, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let receiver = std::thread::spawn({
        let over = Arc::clone(&over);
        move || receive(&inbound, &over, began)
    });
    let (shaped, cpu) = (world.shaped()?, shaping_cpu(world)?);
    send(&outbound, times, began)?;
    over.store(true, Relaxed);
    let delays = receiver.join();
    let mut delays = delays.map_err(|_| anyhow!("the receiving thread panicked"))?;
    let lasted = began.elapsed();
    let shaped = world.shaped()? - shaped;
    let cpu = shaping_cpu(world)?.saturating_sub(cpu);
    let arrived = delays.len();
    delays.sort_by(f64::total_cmp);
    let part = |part: f64| delays.get((arrived as f64 * part) as usize).copied();
    Ok(Seen {
        share: shaped as f64 / arrived.max(1) as f64 * 100.0,
        cpu: cpu.as_secs_f64() / lasted.as_secs_f64() * 100.0,
        delay: [
            part(0.5).context("nothing arrived")?,
            part(0.99).context("nothing arrived")?,
        ],
    })
}

/// At an even pace; what the sender slept over is made up for.
fn send(socket: &UdpSocket, times: f64, began: Instant) -> Result<()> {
    let per_second = KBPS as f64 * 1000.0 * times / PACKET_BITS;
    let mut packet = [0; PAYLOAD];
    let mut sent = 0u64;
    while began.elapsed() < LASTS {
        while (sent as f64) < began.elapsed().as_secs_f64() * per_second {
            let now_ns = began.elapsed().as_nanos() as u64;
            packet[..8].copy_from_slice(&now_ns.to_be_bytes());
            socket.send(&packet)?;
            sent += 1;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Microseconds that each packet took.
fn receive(socket: &UdpSocket, over: &AtomicBool, began: Instant) -> Vec<f64> {
    let (mut delays, mut buffer) = (Vec::new(), [0; PAYLOAD]);
    let mut last = Instant::now();
    while !over.load(Relaxed) || last.elapsed() < SILENCE {
        let came = socket.recv(&mut buffer);
        if let (Ok(_), Some(sent)) = (came, buffer.first_chunk()) {
            let now_ns = began.elapsed().as_nanos() as u64;
            let took = now_ns.saturating_sub(u64::from_be_bytes(*sent));
            delays.push(took as f64 / 1000.0);
            last = Instant::now();
        }
    }
    delays
}

/// CPU time of the thread that keeps frames, so far.
fn shaping_cpu(world: &mut World) -> Result<Duration> {
    let pid = world.upf()?.pid()?;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        let name = std::fs::read_to_string(path.join("comm"))?;
        if THREADS.contains(&name.trim()) {
            let text = std::fs::read_to_string(path.join("schedstat"))?;
            let first = text.split_whitespace().next().context("schedstat")?;
            return Ok(Duration::from_nanos(first.parse()?));
        }
    }
    Err(anyhow!("turnpiked has no thread that keeps frames"))
}
