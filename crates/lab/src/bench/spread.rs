//! One gNB's users over two CPUs: what a lane costs when there is one, and when there are two.
//!
//! CPU 0 brings the frames, and never more than fit the queues; they are counted at the far end of N6. What brings them
//! keeps CPU 0 busy beside a lane there, so it is not the clock that says what a lane can carry but its CPU time.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libbpf_rs::Program;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::cost::{Direction, Harness, Order, Restore};
use super::frames::{self, Family, Frame};
use super::shapes::{self, SESSIONS};
use super::sut::Sut;
use super::{ADDRESSES, Figures, median};
use crate::sys;

const PACKETS: u64 = 1 << 20;
/// At most under way; the queue of a lane has 4096 places.
const WINDOW: u64 = 2048;
const PATIENCE: Duration = Duration::from_secs(60);
/// Of all packets; what a queue at the far end has no room for, when its CPU was taken away.
const LOST_MAX: f64 = 0.01;

/// Cost of one run, in nanoseconds for each packet, and packets lost.
#[derive(Default)]
struct Poured {
    all: f64,
    /// CPU time of the lane that took most.
    lane: f64,
    lost: f64,
}

/// A UPF that is spread so, and what brings frames to it.
struct Rig {
    name: &'static str,
    sut: Sut,
    harness: Harness,
    frame: Frame,
    live: OwnedFd,
    sink: OwnedFd,
    /// The sink at the far end of N6.
    _attached: OwnedFd,
    floors: Vec<f64>,
    runs: Vec<Poured>,
}

/// Figures `spread-*`.
pub(super) fn measure(figures: &mut Figures, runs: usize) -> Result<()> {
    if std::thread::available_parallelism()?.get() < 2 {
        return Ok(());
    }
    let mut rigs = vec![
        Rig::build("none", None)?,
        Rig::build("one", Some("spread_cpus = [1]"))?,
        Rig::build("two", Some("spread_cpus = [0, 1]"))?,
    ];
    // In turn, so that a change of the machine's pace meets them alike.
    for _ in 0..runs {
        for rig in &mut rigs {
            rig.run()?;
        }
    }
    for rig in &rigs {
        let floor = median(&mut rig.floors.clone());
        let name = format!("spread-{}-ns", rig.name);
        let above = rig.median(|run| run.all) - floor;
        figures.add(&name, above, "ns/packet", Some(floor));
        let lost = rig.median(|run| run.lost);
        figures.add(&format!("spread-{}-lost", rig.name), lost, "packets", None);
    }
    let [one, two] = [1, 2].map(|rig: usize| rigs[rig].median(|run| run.lane));
    figures.add("spread-lane-cpu-one", one, "ns/packet", None);
    figures.add("spread-lane-cpu-two-busier", two, "ns/packet", None);
    figures.add("spread-gain", one / two, "times", Some(1.0));
    Ok(())
}

fn ifindex(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name).with_context(|| name.to_owned())
}

impl Rig {
    fn build(name: &'static str, line: Option<&'static str>) -> Result<Self> {
        let lines = line.map(|line| ("[[interface]]", line));
        let sut = Sut::start_with(2 * SESSIONS, 2, lines.into_iter().collect())?;
        let (sut, harness) = shapes::plain(sut)?;
        let sink = harness.program("sink")?;
        let far = || sys::attach_xdp(ifindex("n6")?, sink.as_fd());
        let attached = sut.peer.enter(far)?;
        let frame = frames::uplink(&ADDRESSES, Family::V4, 64);
        harness.set_users(&ADDRESSES, &Order::Random.of(SESSIONS), &frame)?;
        Ok(Self {
            name,
            live: Program::fd_from_id(sut.program_id(Direction::Uplink)?)?,
            sut,
            harness,
            frame,
            sink,
            _attached: attached,
            floors: Vec::new(),
            runs: Vec::new(),
        })
    }

    fn median(&self, of: impl Fn(&Poured) -> f64) -> f64 {
        median(&mut self.runs.iter().map(of).collect::<Vec<_>>())
    }

    /// Bring all frames to a sink at once, and then through the UPF.
    fn run(&mut self) -> Result<()> {
        let Self { sut, harness, .. } = self;
        let (sink, live, frame) = (&self.sink, &self.live, &self.frame);
        let (floor, poured) = sut.upf.enter(|| {
            let mut first = CpuSet::new();
            first.set(0)?;
            sched_setaffinity(Pid::from_raw(0), &first).context("CPU 0")?;
            harness.arm(sink, frame, SESSIONS, Restore::Fields)?;
            let floor = pour(harness, frame)?;
            harness.arm(live, frame, SESSIONS, Restore::Fields)?;
            Ok((floor, pour(harness, frame)?))
        })?;
        let at_most = PACKETS as f64 * LOST_MAX;
        ensure!(
            poured.lost <= at_most,
            "{}: {} lost",
            self.name,
            poured.lost
        );
        self.floors.push(floor.all);
        self.runs.push(poured);
        Ok(())
    }
}

fn pour(harness: &mut Harness, frame: &Frame) -> Result<Poured> {
    let n3 = ifindex("n3")?;
    let (before, sunk) = (lane_time()?, harness.sunk()?);
    harness.prepare(PACKETS, WINDOW)?;
    let start = Instant::now();
    while harness.feed(frame, n3)? < PACKETS {
        ensure!(start.elapsed() < PATIENCE, "packets are lost");
    }
    let (arrived, took) = rest(harness, sunk, start)?;
    let after = lane_time()?;
    let each = |(cpu, time): (&u32, &u64)| time - before.get(cpu).copied().unwrap_or(0);
    let busiest = after.iter().map(each).max().unwrap_or(0);
    Ok(Poured {
        all: took.as_nanos() as f64 / arrived as f64,
        lane: busiest as f64 / arrived as f64,
        lost: (PACKETS - arrived) as f64,
    })
}

/// Wait for packets that are under way: how many have arrived, and when the last one did.
fn rest(harness: &Harness, sunk: u64, start: Instant) -> Result<(u64, Duration)> {
    let (mut arrived, mut at) = (0, Instant::now());
    while arrived < PACKETS && at.elapsed() < Duration::from_millis(200) {
        let now = harness.sunk()? - sunk;
        if now > arrived {
            (arrived, at) = (now, Instant::now());
        }
        std::thread::yield_now();
    }
    ensure!(
        arrived > 0 && arrived <= PACKETS,
        "{arrived} packets arrived"
    );
    Ok((arrived, at - start))
}

/// CPU time of the kernel's threads for lanes, in nanoseconds, by CPU.
fn lane_time() -> Result<BTreeMap<u32, u64>> {
    let mut times = BTreeMap::new();
    for process in std::fs::read_dir("/proc")? {
        let folder = process?.path();
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let cpu = name.strip_prefix("cpumap/");
        let Some(cpu) = cpu.and_then(|rest| rest.split('/').next()) else {
            continue;
        };
        let text = std::fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        let spent = text.split_whitespace().next();
        let spent: u64 = spent.and_then(|word| word.parse().ok()).unwrap_or(0);
        *times.entry(cpu.parse()?).or_default() += spent;
    }
    Ok(times)
}
