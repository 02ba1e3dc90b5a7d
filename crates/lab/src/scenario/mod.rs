//! Scenarios as code: each builds a world of its own, does one thing to the UPF and judges it.

mod adapt;
mod applications;
mod bad_input;
mod buffer;
mod capture;
mod duplicates;
mod framed;
mod gtpu;
mod icmp;
mod ingress;
mod narrow;
mod neighbours;
mod node;
mod overlap;
mod packets;
mod paths;
mod policies;
mod predefined;
mod qos;
mod rates;
mod relay;
mod reload;
mod rest;
mod restart;
mod routes;
mod rules;
mod sessions;
mod spread;
mod styles;
mod trace;
mod transport;
mod udp;
mod update;
mod usage;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::cleanup;
use crate::dn;
use crate::flow::{self, Outcome, Shape};
use crate::netns::Prefix;
use crate::smf::Style;
use crate::upf::Datapath;
use crate::wait::{NEVER, eventually};
use crate::world::{Attached, OverN3, Wanted, World};

/// Seconds after which a scenario is ended, whatever the machine: four limits of a single event.
const LIMIT_S: u64 = 240;

/// Packets above their rate wait.
const SHAPE: (&str, &str) = ("[qos]", "mode = \"shape\"");

/// DPDK has tables in huge pages alone.
const IN_HUGE_PAGES: &str = "dir = \"{folder}/huge-pages\"";

/// One scenario.
pub struct Scenario {
    /// As on the command line.
    pub name: &'static str,
    /// Claim that must hold.
    pub about: &'static str,
    /// World that it needs.
    wanted: Wanted,
    /// Does it; what it saw, or why it fails.
    run: fn(&mut World) -> Result<String>,
    /// Seconds after which it is ended.
    limit_s: u64,
    /// Takes longer than most: begins early.
    long: bool,
    /// Runs while no other one does.
    alone: bool,
    /// Fragments come to the UPF.
    fragments: bool,
    /// It does something to the other end of memifs.
    memif: bool,
    /// It does something to workers in a process of their own.
    apart: bool,
}

impl Scenario {
    fn new(name: &'static str, about: &'static str, run: fn(&mut World) -> Result<String>) -> Self {
        Self {
            name,
            about,
            wanted: Wanted::default(),
            run,
            limit_s: LIMIT_S,
            long: false,
            alone: false,
            fragments: false,
            memif: false,
            apart: false,
        }
    }

    fn smfs(mut self, smfs: usize) -> Self {
        self.wanted.smfs = smfs;
        self
    }

    fn iperf(mut self, servers: u16) -> Self {
        self.wanted.iperf = servers;
        self
    }

    /// A further line in a section of the UPF's configuration.
    fn line(mut self, section: &'static str, line: &'static str) -> Self {
        self.wanted.lines.push((section, line));
        self
    }

    /// Packets above their rate wait.
    fn shaping(mut self) -> Self {
        self.wanted
            .lines
            .extend([SHAPE, ("[qos]", "frames = 2048")]);
        self
    }

    /// It takes longer than most.
    fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// It compares rates, counts what CPUs do, or needs most of them: no other one runs meanwhile.
    fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Fragments come to the UPF.
    fn fragments(mut self) -> Self {
        self.fragments = true;
        self
    }

    /// It does something to workers in a process of their own.
    fn apart(mut self) -> Self {
        self.apart = true;
        self.line("[state]", IN_HUGE_PAGES)
    }

    /// It does something to the other end of memifs.
    fn memif(mut self) -> Self {
        self.memif = true;
        self
    }

    fn second_dn(mut self) -> Self {
        self.wanted.second_dn = true;
        self
    }

    fn upf_calls(mut self) -> Self {
        self.wanted.upf_calls = true;
        self.wanted.heartbeat_s = 1;
        self
    }

    /// N4 over both address families.
    fn n4_v6(mut self) -> Self {
        self.wanted.n4_v6 = true;
        self
    }

    /// The address families of N3.
    fn over(mut self, over: OverN3) -> Self {
        self.wanted.over = over;
        self
    }

    /// N9 is a network of its own.
    fn n9(mut self) -> Self {
        self.wanted.n9 = true;
        self
    }

    /// gNBs may be on N6, too.
    fn several_roles(mut self) -> Self {
        self.wanted.several_roles = true;
        self
    }

    /// N3 and N6 are VLANs.
    fn vlan(mut self) -> Self {
        self.wanted.vlan = true;
        self
    }

    /// SMFs that do not answer are soon forgotten.
    fn forgetful(mut self) -> Self {
        self.wanted.heartbeat_s = 1;
        self.wanted.retention_s = 1;
        self
    }

    /// Packets go on without turnpiked.
    fn outlasting(self) -> Self {
        self.line("[state]", IN_HUGE_PAGES)
            .line("[state]", "bpffs = \"{folder}/bpffs\"")
    }

    fn outlasts(&self) -> bool {
        let mut lines = self.wanted.lines.iter();
        lines.any(|(_, line)| line.starts_with("bpffs ="))
    }

    /// What packets have counted stays without turnpiked, though they do not go on.
    fn leaving_counts(self) -> Self {
        self.line("[state]", IN_HUGE_PAGES)
    }

    /// Feature that the machine, or the data path, lacks, so that it cannot be run here.
    fn lacks(&self) -> Option<&'static str> {
        let vlan_devices = || Path::new("/proc/net/vlan").exists();
        let mut lines = self.wanted.lines.iter();
        if self.wanted.vlan && !vlan_devices() {
            Some("no VLAN devices: modprobe 8021q")
        } else if lines.any(|(_, line)| line.contains("spread_cpus"))
            && Datapath::chosen() != Datapath::Xdp
        {
            Some("xdp alone spreads users over CPUs")
        } else if self.outlasts() && Datapath::chosen() == Datapath::Kernel {
            Some("packets end with turnpiked")
        } else if self.outlasts() && Datapath::chosen() == Datapath::DpdkMemif {
            Some("the other end of memifs ends with turnpiked")
        } else if self.wanted.lines.contains(&("[state]", IN_HUGE_PAGES))
            && !self.outlasts()
            && !self.apart
            && Datapath::chosen() != Datapath::Kernel
        {
            Some("packets go on without turnpiked")
        } else if self.apart && !Datapath::chosen().is_dpdk() {
            Some("dpdk alone has workers in a process of their own")
        } else if self.apart && Datapath::chosen() == Datapath::DpdkMemif {
            Some("the other end of memifs ends with turnpiked")
        } else if self.memif && Datapath::chosen() != Datapath::DpdkMemif {
            Some("dpdk-memif alone has memifs")
        } else if self.fragments && Datapath::chosen().is_dpdk() {
            Some("net_af_packet has the kernel put fragments together, and cuts what comes of it")
        } else {
            None
        }
    }

    /// Runs it to its end, or to its limit. With `hold` a world that failed stays up for a look.
    pub fn run(&self, hold: bool) -> Result<String> {
        let (sender, receiver) = channel();
        let (wanted, run) = (self.wanted.clone(), self.run);
        let prefix = Prefix::unique();
        let name = prefix.name("world");
        std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || {
                let _ = sender.send(in_a_world(prefix, &wanted, run, hold));
            })?;
        let limit = if hold {
            Duration::MAX
        } else {
            Duration::from_secs(self.limit_s)
        };
        match receiver.recv_timeout(limit) {
            Ok(result) => result,
            Err(_) => {
                // Its thread cannot be stopped, but what it waits for can be taken away.
                cleanup::sweep_world(&name);
                let last_words = receiver.recv_timeout(NEVER);
                cleanup::sweep_world(&name);
                let waited_for = last_words.ok().and_then(Result::err);
                let waited_for = waited_for.map_or(String::new(), |error| format!(": {error:#}"));
                bail!("not over after {} s{waited_for}", self.limit_s)
            }
        }
    }
}

fn in_a_world(
    prefix: Prefix,
    wanted: &Wanted,
    run: fn(&mut World) -> Result<String>,
    hold: bool,
) -> Result<String> {
    let attempt = std::panic::catch_unwind(|| {
        let mut world = World::build_as(prefix, wanted).context("building the network")?;
        let result = run(&mut world);
        let result = result.and_then(|seen| {
            world.upf.as_mut().map_or(Ok(()), |upf| upf.alive())?;
            Ok(seen)
        });
        if let (Err(error), true) = (&result, hold) {
            println!(
                "{error:#}\n{}* stays up until Ctrl-C",
                world.prefix().name("")
            );
            loop {
                std::thread::park();
            }
        }
        result.map_err(|error| match &mut world.upf {
            Some(upf) => {
                // First, for a thread that hung may go on while others are asked.
                let threads = upf.threads().unwrap_or_default();
                let drops = upf.get(&world.upf_ns, "/api/v1/drops").unwrap_or_default();
                let log = upf.log_tail(15);
                anyhow!("{error:#}\n  its threads:\n{threads}\n  drops: {drops}\n  turnpiked logged:\n{log}")
            }
            None => error,
        })
    });
    attempt.unwrap_or_else(|_| bail!("the scenario panicked"))
}

/// All scenarios, in the order of `--all`.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for group in [
        sessions::scenarios(),
        buffer::scenarios(),
        restart::scenarios(),
        reload::scenarios(),
        node::scenarios(),
        paths::scenarios(),
        rules::scenarios(),
        predefined::scenarios(),
        policies::scenarios(),
        applications::scenarios(),
        qos::scenarios(),
        rates::scenarios(),
        usage::scenarios(),
        gtpu::scenarios(),
        relay::scenarios(),
        narrow::scenarios(),
        udp::scenarios(),
        transport::scenarios(),
        duplicates::scenarios(),
        routes::scenarios(),
        neighbours::scenarios(),
        rest::scenarios(),
        framed::scenarios(),
        overlap::scenarios(),
        packets::scenarios(),
        icmp::scenarios(),
        ingress::scenarios(),
        capture::scenarios(),
        trace::scenarios(),
        spread::scenarios(),
        styles::scenarios(),
        update::scenarios(),
        adapt::scenarios(),
        bad_input::scenarios(),
    ] {
        all.extend(group);
    }
    all
}

/// How scenarios ended.
#[derive(Default)]
struct Report {
    passed: usize,
    failed: usize,
    /// Seconds of each.
    took: Vec<(f64, &'static str)>,
}

impl Report {
    fn note(&mut self, name: &'static str, seconds: f64, result: Result<String>) {
        let (word, text) = match result {
            Ok(seen) => ("PASS", seen),
            Err(error) => ("FAIL", format!("{error:#}")),
        };
        println!("{word} {name:<28} {seconds:5.1} s  {text}");
        self.passed += usize::from(word == "PASS");
        self.failed += usize::from(word == "FAIL");
        self.took.push((seconds, name));
    }

    fn close(mut self) -> usize {
        const SLOWEST: usize = 10;
        self.took.sort_by(|one, other| other.0.total_cmp(&one.0));
        if self.took.len() > SLOWEST {
            println!("the slowest:");
            for (seconds, name) in &self.took[..SLOWEST] {
                println!("  {seconds:5.1} s  {name}");
            }
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the scenarios called `names`, or all, so many at a time, with SMFs of this style where a scenario leaves it
/// open; how many failed. With `hold` they run one after the
/// other, and the first that fails keeps its world up until a signal comes.
pub fn run(names: &[String], hold: bool, jobs: usize, style: Option<Style>) -> Result<usize> {
    let mut all = all();
    for scenario in &mut all {
        scenario.wanted.style = style;
    }
    for name in names {
        ensure!(
            all.iter().any(|s| s.name == name),
            "no scenario {name}; see lab scenario --list"
        );
    }
    let wanted = |s: &Scenario| names.is_empty() || names.iter().any(|n| n == s.name);
    let chosen = all.into_iter().filter(wanted);
    let (chosen, lacking): (Vec<_>, Vec<_>) = chosen.partition(|s| s.lacks().is_none());
    for scenario in lacking {
        let lack = scenario.lacks().unwrap_or_default();
        println!("SKIP {:<28} {lack}", scenario.name);
    }
    let report = Mutex::new(Report::default());
    if hold || jobs <= 1 {
        work_off(chosen, hold, &report);
    } else {
        let (alone, mut together): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|s| s.alone);
        together.sort_by_key(|s| !s.long);
        side_by_side(together, jobs, &report);
        work_off(alone, hold, &report);
    }
    let report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report.close())
}

fn work_off(queue: Vec<Scenario>, hold: bool, report: &Mutex<Report>) {
    for scenario in queue {
        let began = Instant::now();
        let result = scenario.run(hold);
        locked(report).note(scenario.name, began.elapsed().as_secs_f64(), result);
    }
}

fn side_by_side(queue: Vec<Scenario>, jobs: usize, report: &Mutex<Report>) {
    let queue = Mutex::new(VecDeque::from(queue));
    let next = || locked(&queue).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(scenario) = next() {
                    work_off(vec![scenario], false, report);
                }
            });
        }
    });
}

/// A flow from the UE to a server.
fn flow_up(world: &World, attached: &Attached, shape: Shape) -> Result<flow::Running> {
    let to = SocketAddr::new(dn::server_for(attached.address()?), 0);
    flow::start(&attached.ue.netns, &world.dn_ns, to, shape).context("uplink flow")
}

/// A flow from a server to the UE.
fn flow_down(world: &World, attached: &Attached, shape: Shape) -> Result<flow::Running> {
    let to = SocketAddr::new(attached.address()?, 0);
    flow::start(&world.dn_ns, &attached.ue.netns, to, shape).context("downlink flow")
}

/// Waits until so many more packets of a flow have arrived.
fn more_of(flow: &flow::Running, packets: u32) -> Result<()> {
    let enough = flow.arrived() + packets;
    eventually("more packets of the flow", || {
        ensure!(!flow.is_sent(), "the flow is over before its time");
        Ok(flow.arrived() >= enough)
    })
}

/// The UPF's report of packets that wait.
fn buffers(world: &World) -> Result<serde_json::Value> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    upf.get(&world.upf_ns, "/api/v1/buffers")
}

/// Packets that wait.
fn waiting(world: &World) -> Result<u64> {
    let answer = buffers(world)?;
    answer["packets"]["used"].as_u64().context("packets.used")
}

/// Until so many wait.
fn wait_for_waiting(world: &World, packets: u64) -> Result<()> {
    eventually("packets wait", || Ok(waiting(world)? >= packets))
}

/// A short flow in each direction must arrive whole.
fn both_ways(world: &World, attached: &Attached) -> Result<()> {
    let shape = Shape {
        rate: 2000,
        count: 500,
        payload: 200,
    };
    let (up, down) = (
        flow_up(world, attached, shape)?,
        flow_down(world, attached, shape)?,
    );
    up.finish()?.whole("uplink")?;
    down.finish()?.whole("downlink")
}

/// So many packets, no more and no fewer, come to be dropped for `reason`.
fn expect_drops(world: &World, reason: &str, before: u64, expected: u64) -> Result<()> {
    let mut dropped = 0;
    let all = eventually(reason, || {
        dropped = world.drops(reason)? - before;
        Ok(dropped >= expected)
    });
    ensure!(
        all.is_ok() && dropped == expected,
        "{dropped} packets dropped as {reason} instead of {expected}"
    );
    Ok(())
}

/// Ends flows of which the UPF drops a part for `reason`: they are over when what has not arrived is dropped, as counters
/// say that were at `before`; or, where a link has lost something, after a while of silence.
fn finish_dropped(
    world: &World,
    flows: Vec<flow::Running>,
    reason: &str,
    before: u64,
) -> Result<Vec<(Outcome, flow::Sent)>> {
    let sum = |of: fn(&flow::Running) -> u32| flows.iter().map(|f| u64::from(of(f))).sum::<u64>();
    eventually("all is sent", || {
        Ok(flows.iter().all(flow::Running::is_sent))
    })?;
    let (mut last, mut moved) = (None, Instant::now());
    eventually("what does not arrive is dropped", || {
        let now = (sum(flow::Running::arrived), world.drops(reason)? - before);
        if last.replace(now) != Some(now) {
            moved = Instant::now();
        }
        Ok(now.0 + now.1 >= sum(flow::Running::sent) || moved.elapsed() > flow::LOSSY)
    })?;
    let ended = flows.into_iter().map(flow::Running::finish_dropped);
    ended.collect()
}

/// Nothing of a flow may arrive.
fn none_of(flow: flow::Running, what: &str) -> Result<Outcome> {
    let outcome = flow.finish_blocked()?;
    nothing_of(&outcome, what)?;
    Ok(outcome)
}

/// Nothing of a flow may have arrived.
fn nothing_of(outcome: &Outcome, what: &str) -> Result<()> {
    ensure!(outcome.sent > 0, "{what}: nothing was sent");
    let Outcome { sent, received, .. } = outcome;
    ensure!(
        *received == 0,
        "{what}: {received} of {sent} packets passed"
    );
    Ok(())
}
