//! The other end of net_memif: DPDK's own `dpdk-testpmd`, which forwards between each of a UPF's ports and its cable.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::netns::{Netns, Process};
use crate::wait::{NEVER, eventually};

/// One port of the UPF.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Interface with the port's addresses, whose carrier is the link of the memif.
    pub face: String,
    /// The memif's socket, where the UPF listens.
    pub socket: String,
    /// Interface at the end of the cable.
    pub cable: String,
}

/// A `dpdk-testpmd` that runs. It ends when this is dropped.
pub struct Testpmd {
    process: Process,
}

impl Testpmd {
    /// Starts it in the UPF's namespace, with its log in `folder`, and waits until all links are up.
    pub fn start(netns: &Netns, wires: &[Wire], folder: &Path) -> Result<Self> {
        let own = folder.join("testpmd");
        fs::create_dir_all(&own)?;
        let log = folder.join("testpmd.log");
        let output = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new("ip");
        // It polls as long as it runs: others on the same CPUs go first.
        command.args(["netns", "exec", netns.name(), "nice", "-n", "5"]);
        command.arg("dpdk-testpmd");
        command.args(["--no-huge", "-m", "64", "--no-pci", "--no-telemetry"]);
        command.args(["--lcores", &any_cpu()?]);
        // Ports are paired in the order in which they are named.
        for (number, wire) in wires.iter().enumerate() {
            let Wire { socket, cable, .. } = wire;
            command.arg(format!(
                "--vdev=net_memif{number},role=client,socket={socket},socket-abstract=no"
            ));
            command.arg(format!(
                "--vdev=net_af_packet{number},iface={cable},framecnt=8192"
            ));
        }
        command.args(["--", "--forward-mode=io", "--port-topology=paired"]);
        command.args(["--total-num-mbufs=8192", "--disable-link-check"]);
        // It runs until it reads something, or nobody can write any more.
        command.stdin(Stdio::piped());
        command.stdout(output.try_clone()?).stderr(output);
        command.env("RUNTIME_DIRECTORY", own);
        let mut process = Process::spawn_in(netns.name(), &mut command)
            .context("dpdk-testpmd, of Debian's dpdk-dev")?;
        let up = eventually("links of memifs are up", || {
            if let Some(status) = process.ended()? {
                bail!("dpdk-testpmd ended at its start: {status}");
            }
            links(netns, wires, true)
        });
        up.with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        Ok(Self { process })
    }

    /// Ends it without a word to the UPF, and waits until that has seen it.
    pub fn kill(mut self, netns: &Netns, wires: &[Wire]) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(NEVER)?;
        eventually("links of memifs are down", || links(netns, wires, false))
    }
}

/// A main thread, which sleeps, and one that forwards, each on any CPU of this process.
fn any_cpu() -> Result<String> {
    let own = sched_getaffinity(Pid::from_raw(0))?;
    let cpus = (0..CpuSet::count()).filter(|&cpu| own.is_set(cpu) == Ok(true));
    let cpus = cpus.map(|cpu| cpu.to_string()).collect::<Vec<_>>();
    Ok(format!("(0,1)@({})", cpus.join(",")))
}

/// Whether all links are up, or all are down.
fn links(netns: &Netns, wires: &[Wire], up: bool) -> Result<bool> {
    let report = netns.run("ip", &["-j", "link", "show"], NEVER)?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let all = report.as_array().context("ip link shows no list")?;
    let is_up = |face: &str| {
        let link = all.iter().find(|link| link["ifname"] == face);
        let flags = link.and_then(|link| link["flags"].as_array());
        flags.is_some_and(|flags| flags.iter().any(|flag| flag == "LOWER_UP"))
    };
    Ok(wires.iter().all(|wire| is_up(&wire.face) == up))
}
