//! Figures 6.7 to 6.9 of the thesis whose UPF we take up: rates over time, as JSON and as SVG.
//!
//! Its 1 Gbit/s is here a quarter of what this machine carries from a UE through the whole lab, which is measured first.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::sut;
use super::svg::{self, Line, Panel};
use crate::course::{self, Course, Fates, Series, Slot, Step};
use crate::smf::Style;
use crate::upf::Datapath;
use crate::world::{Attached, Family, Wanted, World};

/// Options of `lab rates`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Seconds of each rate that is offered; the thesis has 30.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    step_s: u64,
    /// Packets above their rates wait, in place of being dropped.
    #[arg(long)]
    shape: bool,
    /// Workers, of kinds kernel and dpdk.
    #[arg(long)]
    workers: Option<u32>,
    /// The folder that files are written to.
    #[arg(long, default_value = "benches/results/rates")]
    out: PathBuf,
}

const SLOT: Duration = Duration::from_millis(500);
/// As in the thesis.
const PAYLOAD: usize = 1024;
/// 1 Gbit/s of the thesis is this share of the capacity.
const SHARE: u64 = 4;
const UP: usize = 0;
const DOWN: usize = 1;

/// A flow, and where the UPF counts it.
struct Flow {
    name: String,
    user: usize,
    way: usize,
    bps: u64,
    steps: Vec<Step>,
}

/// Measure all, and write it.
pub fn run(options: &Options) -> Result<()> {
    let mut bench = Bench::start(options)?;
    let unit = bench.capacity_bps / SHARE;
    let names = ["6.7", "6.8", "6.9"];
    let figures = [
        bench.alternating(unit)?,
        bench.both_ways(unit)?,
        bench.four_users(unit)?,
    ];
    let conditions = bench.conditions(unit)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("folder {}", options.out.display()))?;
    let stem = bench.stem();
    for (name, figure) in names.iter().zip(&figures) {
        let title = format!(
            "Figure {name}: {}. {}, {}; 1 Gbit/s is {:.1} Mbit/s here, {SHARE} of them what the lab carries",
            figure.about,
            Datapath::chosen().label(),
            if options.shape { "shaped" } else { "policed" },
            unit as f64 / 1e6,
        );
        let path = options.out.join(format!("{stem}-{name}.svg"));
        let picture = svg::draw(&title, SLOT.as_secs_f64(), &figure.panels());
        fs::write(&path, picture).with_context(|| format!("writing {}", path.display()))?;
        figure.print(name);
    }
    let figures: Vec<Value> = names
        .iter()
        .zip(&figures)
        .map(|(name, f)| f.json(name))
        .collect();
    let report = json!({"conditions": conditions, "figures": figures});
    let path = options.out.join(format!("{stem}.json"));
    fs::write(&path, serde_json::to_string(&report)? + "\n")
        .with_context(|| format!("writing {}", path.display()))
}

struct Bench {
    world: World,
    options: Options,
    users: Vec<Attached>,
    capacity_bps: u64,
}

impl Bench {
    fn start(options: &Options) -> Result<Self> {
        let mut wanted = Wanted::default();
        if options.shape {
            wanted.lines.push(("[qos]", "mode = \"shape\""));
        }
        let lines: &[&'static str] = &["workers = 1", "workers = 2", "workers = 3", "workers = 4"];
        if let Some(workers) = options.workers {
            let line = lines.get(workers.wrapping_sub(1) as usize);
            let line = line.context("--workers: 1 to 4")?;
            wanted.lines.push(("[datapath]", line));
        }
        let mut bench = Self {
            world: World::build(&wanted)?,
            options: options.clone(),
            users: Vec::new(),
            capacity_bps: 0,
        };
        for number in 0..4 {
            let plan = bench.world.plan(Family::V4, Style::Open5gs);
            let user = bench
                .world
                .attach(&format!("ue{number}"), &plan, 0, number % 2)?;
            bench.users.push(user);
        }
        bench.capacity_bps = bench.capacity()?;
        Ok(bench)
    }

    /// Bits per second of one user, from the IP header on, that arrive when it sends as fast as it can: the second slowest slot,
    /// of those that are whole.
    fn capacity(&self) -> Result<u64> {
        let lasts = Duration::from_secs(4);
        let steps = vec![Step { lasts, bps: 0 }];
        let course = Course::up(&self.world, &self.users[0], steps, PAYLOAD)?;
        let series = course::run(vec![course], SLOT, |_| Ok(()))?;
        let series = series.first().context("no series")?;
        let whole = series.slots.iter().skip(1).take(6);
        let mut arrived: Vec<u64> = whole.map(|slot| slot.arrived).collect();
        arrived.sort_unstable();
        let packets = *arrived.get(1).context("nothing arrived")? as f64;
        ensure!(packets > 0.0, "nothing arrived");
        Ok((packets * series.packet_bits / SLOT.as_secs_f64()) as u64)
    }

    fn steps(&self, bps: u64, percents: &[u64]) -> Vec<Step> {
        let step = |percent: &u64| Step {
            lasts: Duration::from_secs(self.options.step_s),
            bps: bps * percent / 100,
        };
        percents.iter().map(step).collect()
    }

    fn alternating(&mut self, unit: u64) -> Result<Figure> {
        self.limit(0, unit, unit)?;
        let flow = self.flow("uplink", (0, UP), unit, &[80, 120, 80, 120]);
        self.measure("80 and 120 % of a rate in turns", vec![flow])
    }

    fn both_ways(&mut self, unit: u64) -> Result<Figure> {
        self.limit(0, unit, unit / 2)?;
        let up = self.flow("uplink", (0, UP), unit, &[150, 150]);
        let down = self.flow("downlink", (0, DOWN), unit / 2, &[200, 200]);
        self.measure("up 1 Gbit/s and down 500 Mbit/s at once", vec![up, down])
    }

    fn four_users(&mut self, unit: u64) -> Result<Figure> {
        let share = unit / 4;
        for user in 0..4 {
            self.limit(user, share, share)?;
        }
        let flows = (0..4).map(|user| {
            let name = format!("UE {}", user + 1);
            self.flow(&name, (user, UP), share, &[130, 130])
        });
        let flows = flows.collect();
        self.measure("four users with 250 Mbit/s each", flows)
    }

    fn limit(&self, user: usize, up_bps: u64, down_bps: u64) -> Result<()> {
        let smf = self.world.smf(0)?;
        smf.limit(&self.users[user].session, up_bps / 1000, down_bps / 1000)
    }

    fn flow(&self, name: &str, (user, way): (usize, usize), bps: u64, percents: &[u64]) -> Flow {
        Flow {
            name: name.to_owned(),
            user,
            way,
            bps,
            steps: self.steps(bps, percents),
        }
    }

    fn measure(&self, about: &'static str, flows: Vec<Flow>) -> Result<Figure> {
        let (world, users) = (&self.world, &self.users);
        let courses = flows.iter().map(|flow| match flow.way {
            UP => Course::up(world, &users[flow.user], flow.steps.clone(), PAYLOAD),
            _ => Course::down(world, &users[flow.user], flow.steps.clone(), PAYLOAD),
        });
        let courses = courses.collect::<Result<Vec<_>>>()?;
        let read = || {
            let fates = flows
                .iter()
                .map(|flow| Ok(Fates::of(world, &users[flow.user])?[flow.way]));
            fates.collect::<Result<Vec<Fates>>>()
        };
        let workers_before = self.workers()?;
        let mut readings = vec![read()?];
        let series = course::run(courses, SLOT, |_| {
            readings.push(read()?);
            Ok(())
        })?;
        readings.push(read()?);
        let workers = self.workers()?;
        let shares = workers
            .iter()
            .zip(&workers_before)
            .map(|(is, was)| (is.0.clone(), is.1 - was.1));
        let dropped = |place: usize| -> Vec<u64> {
            let drops = readings.windows(2);
            drops
                .map(|two| two[1][place].qos_drops - two[0][place].qos_drops)
                .collect()
        };
        let streams = flows.into_iter().zip(series).enumerate();
        let streams = streams.map(|(place, (flow, series))| Stream {
            fates: readings.last().map(|last| last[place]).unwrap_or_default(),
            before: readings[0][place],
            dropped: dropped(place),
            flow,
            series,
        });
        Ok(Figure {
            about,
            streams: streams.collect(),
            workers: shares.collect(),
        })
    }

    /// Packets of each worker or CPU so far.
    fn workers(&self) -> Result<Vec<(String, u64)>> {
        let upf = self.world.upf.as_ref().context("no UPF")?;
        let workers = upf.get(&self.world.upf_ns, "/api/v1/workers")?;
        let workers = workers.as_array().context("no workers")?.iter();
        let of = |worker: &Value| {
            let name = worker["worker"].as_str()?.to_owned();
            Some((name, worker["in_packets"].as_u64()?))
        };
        Ok(workers.filter_map(of).collect())
    }

    fn stem(&self) -> String {
        let how = if self.options.shape {
            "shaped"
        } else {
            "policed"
        };
        format!("{}-{how}", Datapath::chosen().label())
    }

    fn conditions(&self, unit: u64) -> Result<Value> {
        let mut conditions = sut::machine()?;
        conditions["datapath"] = Datapath::chosen().label().into();
        conditions["mode"] = if self.options.shape {
            "shape"
        } else {
            "police"
        }
        .into();
        conditions["workers"] = self.options.workers.into();
        conditions["capacity_bps"] = self.capacity_bps.into();
        conditions["bps_of_1_gbps"] = unit.into();
        conditions["payload_octets"] = PAYLOAD.into();
        conditions["slot_s"] = SLOT.as_secs_f64().into();
        conditions["step_s"] = self.options.step_s.into();
        conditions["path"] =
            "UE socket, TUN, emulated gNB, veth, UPF, veth, socket of the data network, and back; all on this machine"
                .into();
        Ok(conditions)
    }
}

/// A flow and what became of it.
struct Stream {
    flow: Flow,
    series: Series,
    /// Packets that QoS enforcement dropped in each slot.
    dropped: Vec<u64>,
    before: Fates,
    fates: Fates,
}

impl Stream {
    /// Slots in which something was sent: what follows is the wait for the last packets.
    fn slots(&self) -> &[Slot] {
        let slots = &self.series.slots;
        let last = slots.iter().rposition(|slot| slot.offered > 0);
        &slots[..last.map_or(0, |last| last + 1)]
    }

    fn mbps(&self, packets: u64) -> f64 {
        packets as f64 * self.series.packet_bits / SLOT.as_secs_f64() / 1e6
    }

    fn dropped(&self) -> Vec<f64> {
        let slots = self.dropped.iter().take(self.slots().len());
        slots.map(|&packets| self.mbps(packets)).collect()
    }

    fn of(&self, value: impl Fn(&Slot) -> f64) -> Vec<f64> {
        self.slots().iter().map(value).collect()
    }

    fn offered(&self) -> Vec<f64> {
        self.of(|slot| self.mbps(slot.offered))
    }

    fn delivered(&self) -> Vec<f64> {
        self.of(|slot| self.mbps(slot.arrived))
    }

    fn delay_ms(&self) -> Vec<f64> {
        self.of(|slot| slot.delay_us as f64 / 1e3 / slot.arrived.max(1) as f64)
    }

    fn json(&self) -> Value {
        let rounded = |values: Vec<f64>| -> Vec<f64> {
            values
                .iter()
                .map(|value| (value * 1e3).round() / 1e3)
                .collect()
        };
        let (is, was) = (self.fates, self.before);
        json!({
            "name": self.flow.name,
            "rate_mbps": self.flow.bps as f64 / 1e6,
            "offered_mbps": rounded(self.offered()),
            "delivered_mbps": rounded(self.delivered()),
            "dropped_mbps": rounded(self.dropped()),
            "delay_ms": rounded(self.delay_ms()),
            "longest_delay_ms": rounded(self.of(|slot| slot.longest_us as f64 / 1e3)),
            "packets": {
                "offered": self.series.offered(),
                "forwarded": is.packets - was.packets,
                "delayed": is.delayed - was.delayed,
                "dropped": is.qos_drops - was.qos_drops,
                "arrived": self.series.arrived(),
                "overtaken": self.series.overtaken,
            },
        })
    }
}

struct Figure {
    about: &'static str,
    streams: Vec<Stream>,
    /// Packets that each worker or CPU took in.
    workers: Vec<(String, u64)>,
}

impl Figure {
    fn panels(&self) -> Vec<Panel> {
        let line = |stream: &Stream, what: &str, values: Vec<f64>| Line {
            name: format!("{} {what}", stream.flow.name),
            values,
        };
        let rates = self.streams.iter().flat_map(|stream| {
            let rates = [
                ("offered", stream.offered()),
                ("delivered", stream.delivered()),
            ];
            rates.map(|(what, values)| line(stream, what, values))
        });
        let dropped = self.streams.iter().map(|s| line(s, "dropped", s.dropped()));
        let delays = self.streams.iter().map(|s| line(s, "delay", s.delay_ms()));
        vec![
            Panel {
                unit: "Mbit/s",
                lines: rates.collect(),
            },
            Panel {
                unit: "Mbit/s",
                lines: dropped.collect(),
            },
            Panel {
                unit: "ms",
                lines: delays.collect(),
            },
        ]
    }

    fn json(&self, name: &str) -> Value {
        let workers: serde_json::Map<String, Value> = self
            .workers
            .iter()
            .map(|(name, packets)| (name.clone(), (*packets).into()))
            .collect();
        json!({
            "figure": name,
            "about": self.about,
            "streams": self.streams.iter().map(Stream::json).collect::<Vec<_>>(),
            "packets_by_worker": workers,
        })
    }

    /// Over the slots after the first two, in which buckets are full and queues empty.
    fn print(&self, name: &str) {
        for stream in &self.streams {
            let delivered = stream.delivered();
            let late = delivered.get(2..).unwrap_or_default();
            let mean = late.iter().sum::<f64>() / late.len().max(1) as f64;
            let most = late.iter().copied().fold(0.0, f64::max);
            let rate = stream.flow.bps as f64 / 1e6;
            println!(
                "figure {name}, {}: rate {rate:.2} Mbit/s, delivered {mean:.2} on average, {most:.2} at most",
                stream.flow.name
            );
        }
    }
}
