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
mod narrow;
mod node;
mod overlap;
mod packets;
mod paths;
mod predefined;
mod qos;
mod relay;
mod rest;
mod restart;
mod routes;
mod rules;
mod sessions;
mod spread;
mod trace;
mod transport;
mod udp;
mod update;
mod usage;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::cleanup;
use crate::dn;
use crate::flow::{self, Outcome, Shape};
use crate::world::{Attached, OverN3, Wanted, World};

/// One scenario.
pub struct Scenario {
    /// As on the command line.
    pub name: &'static str,
    /// What must hold.
    pub about: &'static str,
    /// What the world must have.
    wanted: Wanted,
    /// Does it; what it saw, or why it fails.
    run: fn(&mut World) -> Result<String>,
    /// Seconds it may take.
    limit_s: u64,
}

impl Scenario {
    fn new(name: &'static str, about: &'static str, run: fn(&mut World) -> Result<String>) -> Self {
        Self {
            name,
            about,
            wanted: Wanted::default(),
            run,
            limit_s: 60,
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

    fn limit(mut self, seconds: u64) -> Self {
        self.limit_s = seconds;
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

    /// What the machine lacks, so that it cannot be run here.
    fn lacks(&self) -> Option<&'static str> {
        let vlan_devices = || Path::new("/proc/net/vlan").exists();
        (self.wanted.vlan && !vlan_devices()).then_some("no VLAN devices: modprobe 8021q")
    }

    /// Runs it to its end, or to its limit. With `hold` a world that failed stays up for a look.
    pub fn run(&self, hold: bool) -> Result<String> {
        let (sender, receiver) = channel();
        let (wanted, run) = (self.wanted.clone(), self.run);
        std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || {
                let _ = sender.send(in_a_world(&wanted, run, hold));
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
                cleanup::sweep();
                bail!("not over after {} s", self.limit_s)
            }
        }
    }
}

fn in_a_world(
    wanted: &Wanted,
    run: fn(&mut World) -> Result<String>,
    hold: bool,
) -> Result<String> {
    let attempt = std::panic::catch_unwind(|| {
        let mut world = World::build(wanted).context("building the network")?;
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
        result.map_err(|error| match &world.upf {
            Some(upf) => anyhow!("{error:#}\n  turnpiked logged:\n{}", upf.log_tail(15)),
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
        node::scenarios(),
        paths::scenarios(),
        rules::scenarios(),
        predefined::scenarios(),
        applications::scenarios(),
        qos::scenarios(),
        usage::scenarios(),
        gtpu::scenarios(),
        relay::scenarios(),
        narrow::scenarios(),
        udp::scenarios(),
        transport::scenarios(),
        duplicates::scenarios(),
        routes::scenarios(),
        rest::scenarios(),
        framed::scenarios(),
        overlap::scenarios(),
        packets::scenarios(),
        icmp::scenarios(),
        capture::scenarios(),
        trace::scenarios(),
        spread::scenarios(),
        update::scenarios(),
        adapt::scenarios(),
        bad_input::scenarios(),
    ] {
        all.extend(group);
    }
    all
}

/// Runs the scenarios called `names`, or all; how many failed. With `hold` the first that fails
/// keeps its world up until a signal comes.
pub fn run(names: &[String], hold: bool) -> Result<usize> {
    let all = all();
    for name in names {
        ensure!(
            all.iter().any(|s| s.name == name),
            "no scenario {name}; see lab scenario --list"
        );
    }
    let chosen = all
        .iter()
        .filter(|s| names.is_empty() || names.iter().any(|n| n == s.name));
    let (mut passed, mut failed) = (0, 0);
    for scenario in chosen {
        if let Some(lack) = scenario.lacks() {
            println!("SKIP {:<28} {lack}", scenario.name);
            continue;
        }
        let began = Instant::now();
        let result = scenario.run(hold);
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(seen) => {
                passed += 1;
                println!("PASS {:<28} {seconds:5.1} s  {seen}", scenario.name);
            }
            Err(error) => {
                failed += 1;
                println!("FAIL {:<28} {seconds:5.1} s  {error:#}", scenario.name);
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed)
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

/// A short flow in each direction must arrive whole.
fn both_ways(world: &World, attached: &Attached) -> Result<()> {
    let shape = Shape::lasting(500, 1);
    let (up, down) = (
        flow_up(world, attached, shape)?,
        flow_down(world, attached, shape)?,
    );
    up.finish()?.whole("uplink")?;
    down.finish()?.whole("downlink")
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

/// Waits until `holds`, which is asked again and again.
fn eventually(what: &str, limit: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !holds()? {
        ensure!(Instant::now() < deadline, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
