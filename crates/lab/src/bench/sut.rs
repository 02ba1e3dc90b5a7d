//! The system under test: `turnpiked` between two namespaces, started for the measurement alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cleanup;
use crate::netns::{End, Netns, Prefix, cable, take_redirected};
use crate::ue::Addresses;
use crate::upf::{self, Settings, Upf};
use crate::world::BY_PROGRAM;

use super::cost::Direction;
use super::{ADDRESSES, Options};

const N4_PORT: u16 = 8805;
const UPF_N4: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 1);
const UPF_N6: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 2);
const UPF_N6_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 1);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 2);

/// A running UPF and the namespace opposite to it.
pub(super) struct Sut {
    daemon: Option<Upf>,
    /// gNB, SMF and data network in one.
    pub(super) peer: Netns,
    pub(super) upf: Netns,
    pub(super) pid: u32,
    /// From `exec` to the first answer over REST.
    pub(super) start_to_ready: Duration,
    folder: PathBuf,
    settings: Settings,
}

impl Drop for Sut {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.stop(Signal::SIGTERM);
        }
        cleanup::remove_folder(&self.folder);
        cleanup::forget_folder(&self.folder);
    }
}

impl Sut {
    /// Lay the cables, start the daemon with room for `sessions` and wait until it is ready.
    pub(super) fn start(sessions: u32) -> Result<Self> {
        Self::start_with(sessions, 1, Vec::new())
    }

    /// The same with so many queues on N6, and further lines of its configuration.
    pub(super) fn start_with(
        sessions: u32,
        queues: u32,
        lines: Vec<(&'static str, &'static str)>,
    ) -> Result<Self> {
        let prefix = Prefix::unique();
        let upf = Netns::create(&prefix, "upf")?;
        upf::prepare(&upf)?;
        let peer = Netns::create(&prefix, "peer")?;
        for name in ["n3", "n4", "n6"] {
            let a = End { netns: &upf, name };
            let b = End { netns: &peer, name };
            cable(a, b, 1500)?;
            take_redirected(b)?;
        }
        if queues > 1 {
            let queues = queues.to_string();
            let channels = ["-L", "n6", "rx", &queues, "tx", &queues];
            for netns in [&upf, &peer] {
                netns.run("ethtool", &channels, Duration::from_secs(5))?;
            }
        }
        // As network cards do. A program that answers SMFs needs finished checksums.
        let by_program = lines.iter().any(|(_, line)| *line == BY_PROGRAM);
        for netns in [&upf, &peer].into_iter().filter(|_| !by_program) {
            netns.run("ethtool", &["-K", "n4", "tx", "on"], Duration::from_secs(5))?;
        }
        upf.ip(&format!(
            "addr add {}/24 dev n3\naddr add {UPF_N4}/24 dev n4\naddr add {UPF_N6}/24 dev n6\n\
             addr add {UPF_N6_V6}/64 dev n6 nodad\nroute add default via {GATEWAY}\n\
             route add ::/0 via {GATEWAY_V6}",
            ADDRESSES.n3
        ))?;
        peer.ip(&format!(
            "addr add {}/24 dev n3\naddr add {}/24 dev n4\naddr add {GATEWAY}/24 dev n6\n\
             addr add {GATEWAY_V6}/64 dev n6 nodad\naddr add {}/32 dev lo\nroute add 10.64.0.0/10 via {UPF_N6} src {}",
            ADDRESSES.gnb,
            ADDRESSES.smf,
            super::frames::REMOTE,
            super::frames::REMOTE,
        ))?;

        let folder = std::env::temp_dir().join(prefix.name("bench"));
        std::fs::create_dir_all(&folder)?;
        cleanup::add_folder(&folder);
        let settings = Settings {
            n4: UPF_N4,
            n4_also: None,
            n3: Addresses {
                v4: Some(ADDRESSES.n3),
                v6: None,
            },
            n6: None,
            smfs: Vec::new(),
            pools: Vec::new(),
            // Nobody answers them, and no session is to go for that.
            heartbeat_s: 3600,
            retention_s: 60,
            sessions,
            sections: String::new(),
            // The narrowest build that does is what is measured.
            lines: [vec![("[datapath]", "settle_s = 0")], lines].concat(),
        };
        let start = Instant::now();
        let mut daemon = Upf::start(&upf, &settings, &folder)?;
        let start_to_ready = start.elapsed();
        let sut = Self {
            pid: daemon.pid()?,
            daemon: Some(daemon),
            peer,
            upf,
            start_to_ready,
            folder,
            settings,
        };
        sut.resolve_neighbours()?;
        Ok(sut)
    }

    /// The daemon keeps next hops resolved by itself; a packet each way makes sure that the
    /// measurement does not begin before.
    fn resolve_neighbours(&self) -> Result<()> {
        for address in [ADDRESSES.gnb.into(), GATEWAY.into(), IpAddr::V6(GATEWAY_V6)] {
            self.upf.run(
                "ping",
                &["-c1", "-W2", &address.to_string()],
                Duration::from_secs(5),
            )?;
        }
        Ok(())
    }

    /// Address at which the UPF listens for PFCP.
    pub(super) fn n4(&self) -> SocketAddr {
        SocketAddr::from((UPF_N4, N4_PORT))
    }

    /// A socket of the SMF.
    pub(super) fn smf_socket(&self, address: Ipv4Addr) -> Result<UdpSocket> {
        self.peer.udp((address, N4_PORT))
    }

    /// CPU time of all threads of the daemon.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let first = text.split_whitespace().next().context("schedstat")?;
            nanos += first.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// CPU time of the control thread.
    pub(super) fn control_time(&self) -> Result<Duration> {
        let task = self.thread("control")?;
        let text = std::fs::read_to_string(format!("/proc/{}/task/{task}/schedstat", self.pid))?;
        let first = text.split_whitespace().next().context("schedstat")?;
        Ok(Duration::from_nanos(first.parse()?))
    }

    /// Seconds of the longest turn that REST has had there; `None`: it does not say.
    pub(super) fn longest_turn(&self) -> Result<Option<f64>> {
        let daemon = self.daemon.as_ref().context("the UPF is down")?;
        let metrics = daemon.get_text(&self.upf, "/metrics")?;
        let line = "turnpike_rest_turn_longest_seconds ";
        let value = metrics.lines().find_map(|l| l.strip_prefix(line));
        Ok(value.map(str::parse).transpose()?)
    }

    /// A thread of the daemon, by its name.
    pub(super) fn thread(&self, name: &str) -> Result<Pid> {
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let task = task?;
            if std::fs::read_to_string(task.path().join("comm"))?.trim() == name {
                let id = task.file_name().to_string_lossy().parse()?;
                return Ok(Pid::from_raw(id));
            }
        }
        bail!("turnpiked has no thread {name}")
    }

    /// The daemon is gone, at once.
    pub(super) fn kill(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("the UPF is down")?;
        daemon.stop(Signal::SIGKILL)
    }

    /// The next one is there.
    pub(super) fn start_again(&mut self) -> Result<()> {
        let mut daemon = Upf::start(&self.upf, &self.settings, &self.folder)?;
        self.pid = daemon.pid()?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Take the daemon down.
    pub(super) fn stop(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("the UPF is down")?;
        daemon.stop(Signal::SIGTERM).map(drop)
    }

    /// Bytes that the daemon holds: its own memory, files of a tmpfs included, and the kernel's for its BPF maps.
    pub(super) fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let kib = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next());
            Ok(kib.with_context(|| name.to_owned())?.parse()?)
        };
        let own = kib("RssAnon:")? + kib("RssShmem:")?;
        Ok(own * 1024 + self.binary_pages(kib("RssFile:")?)? + self.map_bytes()?)
    }

    /// Mapped files without the BPF maps, which [`Self::map_bytes`] counts whole.
    fn binary_pages(&self, file_kib: u64) -> Result<u64> {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.pid))?;
        let mut of_map = false;
        let mut maps_kib = 0;
        for line in smaps.lines() {
            if line
                .as_bytes()
                .first()
                .is_some_and(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase())
            {
                of_map = line.contains("anon_inode:bpf-map");
            } else if of_map && line.starts_with("Rss:") {
                maps_kib += line
                    .split_whitespace()
                    .nth(1)
                    .context("Rss")?
                    .parse::<u64>()?;
            }
        }
        Ok(file_kib.saturating_sub(maps_kib) * 1024)
    }

    fn map_bytes(&self) -> Result<u64> {
        let mut seen = std::collections::BTreeMap::new();
        for entry in std::fs::read_dir(format!("/proc/{}/fdinfo", self.pid))? {
            let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
            let field = |name: &str| -> Option<u64> {
                text.lines()
                    .find(|l| l.starts_with(name))?
                    .split_whitespace()
                    .nth(1)?
                    .parse()
                    .ok()
            };
            if let (Some(id), Some(bytes)) = (field("map_id:"), field("memlock:")) {
                seen.insert(id, bytes);
            }
        }
        ensure!(!seen.is_empty(), "the daemon holds no BPF map");
        Ok(seen.values().sum())
    }

    fn interface(direction: Direction) -> &'static str {
        match direction {
            Direction::Uplink => "n3",
            Direction::Downlink => "n6",
        }
    }

    /// Waits until the narrowest build that does is live: a wider one stands in until then.
    pub(super) fn settle(&self) -> Result<()> {
        for _ in 0..600 {
            if self.datapath()?["settling"] == false {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("programs that are wider than need be stay live")
    }

    /// Answer behind `turnpike datapath`.
    pub(super) fn datapath(&self) -> Result<Value> {
        let daemon = self.daemon.as_ref().context("the UPF is down")?;
        daemon.get(&self.upf, "/api/v1/datapath")
    }

    /// Id of the program attached to the interface where packets of `direction` arrive.
    pub(super) fn program_id(&self, direction: Direction) -> Result<u32> {
        let program = self.program_on(Self::interface(direction))?;
        program.context("no XDP program is attached")
    }

    fn program_on(&self, interface: &str) -> Result<Option<u32>> {
        let asked = ["-j", "link", "show", "dev", interface];
        let text = self.upf.run("ip", &asked, Duration::from_secs(5))?;
        let links: Value = serde_json::from_str(&text)?;
        let id = links[0]["xdp"]["prog"]["id"].as_u64();
        Ok(id.map(u32::try_from).transpose()?)
    }

    /// Runs of the program that answers SMFs, and the time that they took. Only what `kernel.bpf_stats_enabled` has counted.
    pub(super) fn n4_runs(&self) -> Result<(u64, Duration)> {
        let id = self.program_on("n4")?.context("no program answers SMFs")?;
        let own = libbpf_rs::query::ProgInfoIter::default().find(|program| program.id == id);
        let own = own.context("the program is gone")?;
        Ok((own.run_cnt, Duration::from_nanos(own.run_time_ns)))
    }

    /// Time that its programs took: those of both directions, and the one that answers SMFs, if there is one. Only what
    /// `kernel.bpf_stats_enabled` has counted.
    pub(super) fn program_time(&self) -> Result<Duration> {
        let ids = ["n3", "n6", "n4"].map(|interface| self.program_on(interface));
        let ids: Vec<_> = ids.into_iter().collect::<Result<_>>()?;
        let mut took = Duration::ZERO;
        for program in libbpf_rs::query::ProgInfoIter::default() {
            if ids.contains(&Some(program.id)) {
                took += Duration::from_nanos(program.run_time_ns);
            }
        }
        Ok(took)
    }

    /// Packets forwarded in `direction` so far, from the metrics.
    pub(super) fn forwarded(&self, direction: Direction) -> Result<u64> {
        let wanted = match direction {
            Direction::Uplink => "uplink",
            Direction::Downlink => "downlink",
        };
        let daemon = self.daemon.as_ref().context("turnpiked was stopped")?;
        let text = daemon.get_text(&self.upf, "/metrics")?;
        let mut sum = 0.0;
        for line in text
            .lines()
            .filter(|l| l.starts_with("turnpike_out_packets"))
        {
            if line.contains(&format!("direction=\"{wanted}\"")) {
                sum += line.rsplit(' ').next().unwrap_or("0").parse::<f64>()?;
            }
        }
        Ok(sum as u64)
    }
}

/// Conditions that a figure must travel with.
pub(super) fn conditions(options: &Options) -> Result<Value> {
    let mut conditions = machine()?;
    conditions["sessions"] = options.sessions.into();
    conditions["runs"] = options.runs.into();
    if options.mixes_only {
        conditions["data path"] =
            "xdp, driver mode on veth; packets and requests by sockets".into();
        conditions["program"] = "common, which sessions that come and go want".into();
        return Ok(conditions);
    }
    for (what, how) in [
        (
            "data path",
            "xdp, driver mode on veth; BPF_PROG_TEST_RUN of the attached programs over their live tables",
        ),
        ("packet", "64-byte inner IPv4, PDU Session Container"),
        (
            "order of users",
            "random (a permutation); figures with _ascending: one after the other",
        ),
        (
            "program",
            "the narrowest build that does, plain counters: one receive queue for each interface",
        ),
        (
            "rules",
            "2 PDRs, 2 FARs, 1 QER with MBR and QFI, UE source address checked",
        ),
    ] {
        conditions[what] = how.into();
    }
    Ok(conditions)
}

/// The machine, and what was built on it.
pub(super) fn machine() -> Result<Value> {
    let command = |program: &str, args: &[&str]| {
        Command::new(program)
            .args(args)
            .output()
            .ok()
            .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
    };
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find(|l| l.starts_with("model name"))
        .unwrap_or_default();
    Ok(json!({
        "commit": command("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        "kernel": command("uname", &["-r"]),
        "clang": command("clang-19", &["--version"]).or_else(|| command("clang", &["--version"])).and_then(|v| v.lines().next().map(str::to_owned)),
        "cpu": model.split(':').nth(1).map(str::trim),
        "cores": std::thread::available_parallelism()?.get(),
        "shared cache": std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size")
            .ok()
            .map(|size| size.trim().to_owned()),
    }))
}
