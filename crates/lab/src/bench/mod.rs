//! The figures: what a packet, a session and a PFCP request cost, measured on a live `turnpiked`.
//!
//! Printed as lines `figure NAME VALUE UNIT floor VALUE` and written as JSON with the conditions.

mod builds;
mod change;
mod cost;
mod density;
mod feed;
mod frames;
mod keeping;
mod load;
mod mixes;
pub mod rates;
mod readers;
mod requests;
mod shapes;
mod shaping;
mod sockets;
mod spread;
mod succession;
mod sut;
mod svg;
mod switch;
mod tcp;
mod usage;
mod whole;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use cost::{Cost, Direction, Harness, Order};
use frames::Family;
use load::{Client, Outcome};
use requests::{Addresses, Field, Shape};
use sut::Sut;

use crate::upf::Datapath;
use crate::world::BY_PROGRAM;

/// Options of `lab bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Largest number of sessions; smaller steps are 1, 1000 and 100000.
    #[arg(long, default_value_t = 1_000_000)]
    pub sessions: u32,
    /// Runs whose median is quoted.
    #[arg(long, default_value_t = 9)]
    pub runs: usize,
    /// Only what features of sessions cost.
    #[arg(long)]
    pub shapes_only: bool,
    /// Only what spreading over CPUs gains.
    #[arg(long)]
    pub spread_only: bool,
    /// Only what shaping costs, on the chosen data path.
    #[arg(long)]
    pub shaping_only: bool,
    /// Only what readers of REST cost an SMF.
    #[arg(long)]
    pub readers_only: bool,
    /// Only what is lost while a UPF is killed `runs` times, and how soon its successors answer, with so many sessions.
    #[arg(long)]
    pub succession_only: bool,
    /// Of users that are spread over CPUs.
    #[arg(long, requires = "succession_only")]
    pub spread: bool,
    /// Only what path switches cost with and without `n4.fast_path`, with so many sessions.
    #[arg(long)]
    pub n4_only: bool,
    /// Only what PFCP among users' packets takes, with so many sessions: AccelUPF's evaluation.
    #[arg(long)]
    pub mixes_only: bool,
    /// Only what packets of few of so many users cost, these users side by side in the tables or anywhere.
    #[arg(long)]
    pub density_only: bool,
    /// Only what it costs that so many sessions outlive their process, and their host.
    #[arg(long)]
    pub kept_only: bool,
    /// Only what TCP gets of maximum bit rates, on the chosen data path.
    #[arg(long)]
    pub tcp_only: bool,
    /// Only what a user and an SMF get end to end, on the chosen data path.
    #[arg(long)]
    pub whole_only: bool,
    /// File to write the results to, as JSON.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Requests that one signalling figure is taken over.
const SAMPLE: u32 = 20_000;

/// The kernel counts how often and how long programs run, while this lives.
struct Counting {
    before: String,
}

impl Counting {
    const SWITCH: &'static str = "/proc/sys/kernel/bpf_stats_enabled";

    fn begin() -> Result<Self> {
        let before = std::fs::read_to_string(Self::SWITCH)?;
        std::fs::write(Self::SWITCH, "1")?;
        Ok(Self { before })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        // It only costs what it counts.
        let _ = std::fs::write(Self::SWITCH, &self.before);
    }
}

/// Path switches that are measured together: so many that they meet the page tables and caches as they are in
/// the long run.
const ROTATION: u32 = 400_000;
/// Requests before the first signalling figure: the answers that are kept for repeated requests have
/// then taken all the memory they will.
const WARM_UP: u32 = 150_000;
/// Outstanding requests while loading.
const WINDOW: u32 = 256;
/// Likewise, of single datagrams to an XDP program: the ring of a veth has 256 places, some of which are given back late. When the client
/// has the CPU for a while, all that is outstanding lies there.
const RING_WINDOW: u32 = 192;

const ADDRESSES: Addresses = Addresses {
    smf: Ipv4Addr::new(10, 4, 0, 2),
    n3: Ipv4Addr::new(10, 3, 0, 1),
    gnb: Ipv4Addr::new(10, 3, 0, 2),
    first_ue: Ipv4Addr::new(10, 64, 0, 1),
};

/// Uplink TEID of user `index`.
fn teid(index: u32) -> u32 {
    index + 1
}

/// The middle value.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Collects what is printed.
#[derive(Default)]
struct Figures(Vec<Value>);

impl Figures {
    /// `floor`: the same measurement of doing nothing, where there is such a thing.
    fn add(&mut self, name: &str, value: f64, unit: &str, floor: Option<f64>) {
        match floor {
            Some(floor) => println!("figure {name} {value:.2} {unit} floor {floor:.2}"),
            None => println!("figure {name} {value:.2} {unit} floor -"),
        }
        self.0
            .push(json!({ "name": name, "value": value, "unit": unit, "floor": floor }));
    }
}

struct Bench {
    sut: Sut,
    client: Client,
    harness: Harness,
    /// The UPF's SEID of each user.
    seids: Vec<u64>,
    figures: Figures,
    runs: usize,
    /// Sessions at the last step.
    most: u32,
}

/// Run everything.
pub fn run(options: &Options) -> Result<()> {
    let mut figures = Figures::default();
    if options.shaping_only {
        if Datapath::chosen() == Datapath::Xdp {
            builds::shaped(&mut figures, options.runs)?;
        }
        shaping::measure(&mut figures, options.runs)?;
        return report(&figures, options);
    }
    if options.readers_only {
        readers::measure(&mut figures)?;
        return report(&figures, options);
    }
    if options.succession_only {
        succession::measure(&mut figures, options)?;
        return report(&figures, options);
    }
    if options.n4_only {
        return report(&Bench::fast_path(figures, options)?, options);
    }
    if options.mixes_only {
        mixes::measure(&mut figures, options)?;
        return report(&figures, options);
    }
    if options.density_only {
        return report(&density::measure(figures, options)?, options);
    }
    if options.kept_only {
        keeping::measure(&mut figures, options)?;
        return report(&figures, options);
    }
    if options.tcp_only {
        tcp::measure(&mut figures)?;
        return report(&figures, options);
    }
    if options.whole_only {
        whole::measure(&mut figures)?;
        return report(&figures, options);
    }
    if Datapath::chosen() == Datapath::Kernel {
        sockets::measure(&mut figures, options.runs)?;
        return report(&figures, options);
    }
    if !options.shapes_only {
        spread::measure(&mut figures, options.runs)?;
    }
    if options.spread_only {
        return report(&figures, options);
    }
    let sut = Sut::start(options.sessions + SAMPLE)?;
    figures.add(
        "start_to_ready",
        sut.start_to_ready.as_secs_f64() * 1e3,
        "ms",
        None,
    );
    let idle = sut.memory()?;
    figures.add("idle_memory", idle as f64 / 1e6, "MB", None);

    let mut bench = Bench::new(sut, options.sessions, options.runs)?;
    bench.figures = figures;

    if options.sessions >= shapes::SESSIONS {
        bench.tracing()?;
        bench.shapes()?;
        bench.builds()?;
        bench.replacements()?;
        bench.overshoot()?;
        bench.report_storm()?;
    }
    if options.shapes_only {
        return report(&bench.figures, options);
    }
    for size in [1, 1_000, 100_000, 1_000_000] {
        if size <= options.sessions {
            bench.at(size)?;
        }
    }
    bench.memory_per_session(idle)?;
    bench.burst()?;
    bench.far_update()?;
    report(&bench.figures, options)
}

impl Bench {
    /// Of a UPF with room for so many sessions, of which there are none yet.
    fn new(sut: Sut, sessions: u32, runs: usize) -> Result<Self> {
        let mut client = Client::new(sut.smf_socket(ADDRESSES.smf)?, sut.n4())?;
        client.associate(|sequence| requests::association(&ADDRESSES, sequence))?;
        Ok(Self {
            sut,
            client,
            harness: Harness::load(sessions)?,
            seids: Vec::new(),
            figures: Figures::default(),
            runs,
            most: sessions,
        })
    }

    /// Path switches of `options.sessions` sessions, served by the core and by templates.
    fn fast_path(mut figures: Figures, options: &Options) -> Result<Figures> {
        for (name, line) in [
            ("off", "fast_path = \"off\""),
            ("user", "fast_path = \"user\""),
            ("data", BY_PROGRAM),
        ] {
            let window = if line == BY_PROGRAM {
                RING_WINDOW
            } else {
                WINDOW
            };
            let size = options.sessions;
            let sut = Sut::start_with(size + SAMPLE, 1, vec![("[n4]", line)])?;
            let mut bench = Self::new(sut, size, options.runs)?;
            bench.seids = bench.establish(0, size, Shape::Plain)?.1;
            // Templates are learned, and all sessions lent.
            bench.path_switches(WARM_UP.max(size), window)?;
            // All runs together: what the kernel has counted of a thread that runs is some milliseconds old.
            let before = bench.sut.cpu()?;
            for _ in 0..options.runs {
                bench.path_switches(ROTATION, window)?;
            }
            let spent = (bench.sut.cpu()? - before).as_secs_f64() * 1e6;
            let each = spent / f64::from(ROTATION) / options.runs as f64;
            let figure = format!("path_switch_cpu_{name}_{size}");
            figures.add(&figure, each, "us/request", None);
            if line == BY_PROGRAM {
                let each = bench.of_program(options.runs)?;
                let figure = format!("path_switch_program_{size}");
                figures.add(&figure, each, "ns/request", None);
            }
            let outcome = bench.path_switches(SAMPLE, 1)?;
            for (quantile, at) in [("p50", 0.5), ("p99", 0.99)] {
                let us = outcome.latency.value_at_quantile(at) as f64 / 1e3;
                let figure = format!("path_switch_{quantile}_window1_{name}_{size}");
                figures.add(&figure, us, "us", None);
            }
        }
        Ok(figures)
    }

    /// All figures with `size` sessions.
    fn at(&mut self, size: u32) -> Result<()> {
        let missing = size - self.seids.len() as u32;
        let seids = self
            .establish(self.seids.len() as u32, missing, Shape::Plain)?
            .1;
        self.seids.extend(seids);
        if size == 1_000 {
            self.path_switches(WARM_UP, WINDOW)?;
        }
        if size > 1 {
            self.signalling(size)?;
        }
        for (name, direction) in [
            ("uplink", Direction::Uplink),
            ("downlink", Direction::Downlink),
        ] {
            for (order, suffix) in [(Order::Random, ""), (Order::Ascending, "_ascending")] {
                self.sut.settle()?;
                let users = order.of(size);
                let cost = self.cost_of(&users, direction, Family::V4, self.runs)?;
                let name = format!("xdp_{name}_64B_{size}{suffix}");
                self.figures
                    .add(&name, cost.above_floor, "ns/packet", Some(cost.floor));
            }
        }
        Ok(())
    }

    /// Of a packet of each of the first `size` users, in random order; all are forwarded.
    fn cost(&mut self, direction: Direction, size: u32, family: Family) -> Result<Cost> {
        self.sut.settle()?;
        self.cost_as_is(direction, size, family)
    }

    /// The same, of the programs that are live now.
    fn cost_as_is(&mut self, direction: Direction, size: u32, family: Family) -> Result<Cost> {
        self.cost_of(&Order::Random.of(size), direction, family, self.runs)
    }

    /// Of a packet of each of these users, one after the other.
    fn cost_of(
        &mut self,
        users: &[u32],
        direction: Direction,
        family: Family,
        runs: usize,
    ) -> Result<Cost> {
        let id = self.sut.program_id(direction)?;
        let forwarded = self.sut.forwarded(direction)?;
        let cost = self
            .harness
            .measure(id, direction, family, &ADDRESSES, users, runs)?;
        let now = self.sut.forwarded(direction)?;
        let runs = Harness::PASSES * runs as u64;
        let packets = u64::from(Harness::packets(users.len() as u32)) * runs;
        ensure!(
            now - forwarded == packets,
            "{direction:?}: {} packets forwarded instead of {packets}",
            now - forwarded
        );
        Ok(cost)
    }

    /// Sessions beside the `size` that there are: established, and deleted again; path switches of
    /// those that stay.
    fn signalling(&mut self, size: u32) -> Result<()> {
        let before = self.sut.cpu()?;
        let (outcome, seids) = self.establish(self.most, SAMPLE, Shape::Plain)?;
        self.cpu_figure(&format!("establish_cpu_{size}"), before, SAMPLE)?;
        let rate = f64::from(SAMPLE) / outcome.took.as_secs_f64();
        self.figures
            .add(&format!("establish_rate_{size}"), rate, "1/s", None);
        let before = self.sut.cpu()?;
        self.delete(&seids)?;
        self.cpu_figure(&format!("delete_cpu_{size}"), before, SAMPLE)?;
        self.modify(size)
    }

    fn cpu_figure(&mut self, name: &str, before: Duration, requests: u32) -> Result<()> {
        let spent = self.sut.cpu()? - before;
        let each = spent.as_secs_f64() * 1e6 / f64::from(requests);
        self.figures.add(name, each, "us/request", None);
        Ok(())
    }

    /// Users `base` to `base + count`. Their SEIDs.
    fn establish(&mut self, base: u32, count: u32, shape: Shape) -> Result<(Outcome, Vec<u64>)> {
        establish(&mut self.client, (base, count), shape, WINDOW)
    }

    /// Path switches, spread over the sessions: CPU at the loading window, latency at window 1.
    fn modify(&mut self, size: u32) -> Result<()> {
        let before = self.sut.cpu()?;
        self.path_switches(ROTATION, WINDOW)?;
        self.cpu_figure(&format!("modify_cpu_{size}"), before, ROTATION)?;
        let outcome = self.path_switches(SAMPLE, 1)?;
        for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let micros = outcome.latency.value_at_quantile(quantile) as f64 / 1e3;
            self.figures
                .add(&format!("modify_{name}_window1_{size}"), micros, "us", None);
        }
        Ok(())
    }

    /// Nanoseconds of the program that answers SMFs for a path switch, some 20 of them to measure that.
    fn of_program(&mut self, runs: usize) -> Result<f64> {
        let counting = Counting::begin()?;
        let before = self.sut.n4_runs()?;
        for _ in 0..runs {
            self.path_switches(ROTATION, RING_WINDOW)?;
        }
        let (count, took) = self.sut.n4_runs()?;
        drop(counting);
        let count = count - before.0;
        ensure!(
            count >= u64::from(ROTATION),
            "{count} requests met a program"
        );
        Ok((took - before.1).as_nanos() as f64 / count as f64)
    }

    fn path_switches(&mut self, count: u32, window: u32) -> Result<Outcome> {
        let template = requests::path_switch(&ADDRESSES)?;
        let seids = &self.seids;
        let order = Order::Random.of(seids.len() as u32);
        let user = |i: u32| order[i as usize % order.len()] as usize;
        let outcome = self.client.run(
            &template,
            count,
            window,
            |i, field| match field {
                Field::Seid => seids[user(i)],
                Field::GnbTeid => u64::from(i) + 0x8000_0000,
                _ => 0,
            },
            |_, _| {},
        )?;
        all_accepted("Session Modification", &outcome, count)?;
        Ok(outcome)
    }

    fn memory_per_session(&mut self, idle: u64) -> Result<()> {
        let sessions = self.seids.len() as f64;
        let all = self.sut.memory()?;
        self.figures
            .add("memory_per_session", all as f64 / sessions, "B", None);
        let grown = all.saturating_sub(idle) as f64 / sessions;
        self.figures
            .add("memory_per_session_above_idle", grown, "B", None);
        Ok(())
    }

    /// 4096 requests at once, none may be lost.
    fn burst(&mut self) -> Result<()> {
        let outcome = self.path_switches(4096, 4096)?;
        self.figures
            .add("burst_4096_lost", f64::from(outcome.lost), "requests", None);
        Ok(())
    }

    fn far_update(&mut self) -> Result<()> {
        let seid = self.seids.first().copied().context("no session")?;
        let acts = switch::measure(&self.sut, &mut self.client, &ADDRESSES, seid)?;
        self.figures
            .add("far_update_acts_p50", acts.p50_us, "us", None);
        self.figures
            .add("far_update_acts_max", acts.max_us, "us", None);
        self.figures
            .add("far_update_packets_lost", acts.lost as f64, "packets", None);
        Ok(())
    }

    fn delete(&mut self, seids: &[u64]) -> Result<()> {
        delete(&mut self.client, seids)
    }
}

/// Users `base` to `base + count`, `window` requests outstanding. Their SEIDs.
fn establish(
    client: &mut Client,
    (base, count): (u32, u32),
    shape: Shape,
    window: u32,
) -> Result<(Outcome, Vec<u64>)> {
    let template = requests::establishment(&ADDRESSES, shape)?;
    let mut seids = vec![0; count as usize];
    let outcome = client.run(
        &template,
        count,
        window,
        |i, field| match field {
            Field::CpSeid => u64::from(base + i + 1),
            Field::UplinkTeid => u64::from(teid(base + i)),
            Field::GnbTeid => u64::from(base + i) + 0x100,
            Field::UeAddress => u64::from(u32::from(ADDRESSES.ue(base + i))),
            _ => 0,
        },
        |i, answer| seids[i as usize] = answer.up_seid.unwrap_or(0),
    )?;
    all_accepted("Session Establishment", &outcome, count)?;
    Ok((outcome, seids))
}

fn delete(client: &mut Client, seids: &[u64]) -> Result<()> {
    let template = requests::deletion()?;
    let count = seids.len() as u32;
    let outcome = client.run(
        &template,
        count,
        WINDOW,
        |i, field| {
            if field == Field::Seid {
                seids[i as usize]
            } else {
                0
            }
        },
        |_, _| {},
    )?;
    all_accepted("Session Deletion", &outcome, count)
}

fn report(figures: &Figures, options: &Options) -> Result<()> {
    let Some(path) = &options.out else {
        return Ok(());
    };
    let report = json!({
        "conditions": sut::conditions(options)?,
        "figures": figures.0,
    });
    std::fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| format!("writing {}", path.display()))
}

fn all_accepted(what: &str, outcome: &Outcome, count: u32) -> Result<()> {
    ensure!(
        outcome.lost == 0,
        "{what}: {} of {count} requests were not answered",
        outcome.lost
    );
    ensure!(
        outcome.accepted == count,
        "{what}: {} of {count} requests were refused",
        count - outcome.accepted
    );
    Ok(())
}
