//! The UPF under test: `turnpiked`, started in its namespace and seen only from outside.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use crate::cleanup;
use crate::netns::{End, Netns, Process};
use crate::testpmd::{Testpmd, Wire};
use crate::ue::Addresses;
use crate::wait::{LOOK, NEVER, eventually};

const API: ([u8; 4], u16) = ([127, 0, 0, 1], 8806);

/// The data paths of turnpiked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Datapath {
    /// Programs in the kernel.
    #[default]
    Xdp,
    /// Sockets of the kernel.
    Kernel,
    /// Devices of DPDK, run to completion; of a turnpiked that was built with it.
    Dpdk,
    /// The same, with a receive core in front of two workers.
    DpdkPipeline,
    /// Shared memory between the UPF and DPDK's `dpdk-testpmd`, which has the cables.
    DpdkMemif,
}

static DATAPATH: OnceLock<Datapath> = OnceLock::new();

impl Datapath {
    /// The one that every UPF of this process has from now on; before, it is the default.
    pub fn choose(self) {
        let _ = DATAPATH.set(self);
    }

    /// The one that was chosen.
    pub fn chosen() -> Self {
        DATAPATH.get().copied().unwrap_or_default()
    }

    /// As the configuration says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Kernel => "kernel",
            Self::Dpdk | Self::DpdkPipeline | Self::DpdkMemif => "dpdk",
        }
    }

    /// As on the command line.
    pub fn label(self) -> &'static str {
        match self {
            Self::DpdkPipeline => "dpdk-pipeline",
            Self::DpdkMemif => "dpdk-memif",
            other => other.name(),
        }
    }

    /// Whether it goes by devices of DPDK.
    pub fn is_dpdk(self) -> bool {
        self.name() == "dpdk"
    }
}

/// Settings of the kernel that a UPF in a namespace needs, before there are interfaces.
pub fn prepare(netns: &Netns) -> Result<()> {
    if Datapath::chosen() == Datapath::Kernel {
        // It brings packets to UEs.
        netns.sysctl("net/ipv4/conf/default/forwarding", "1")?;
        netns.sysctl("net/ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// Has the UPF's end of a cable carry packets of DPDK, where that is the data path: the end gets another name, and the
/// kernel leaves it alone; a TAP interface has its name.
pub fn give_face(end: End<'_>) -> Result<()> {
    if !Datapath::chosen().is_dpdk() {
        return Ok(());
    }
    let (netns, name) = (end.netns, end.name);
    let wire = wire(name);
    netns.ip(&format!(
        "link set {name} down\nlink set {name} name {wire}"
    ))?;
    // The TAP interface alone answers, and takes packets to its addresses.
    for (key, value) in [
        ("ipv4/conf/W/forwarding", "0"),
        ("ipv4/conf/W/rp_filter", "1"),
        ("ipv4/conf/W/arp_ignore", "8"),
        ("ipv6/conf/W/disable_ipv6", "1"),
    ] {
        netns.sysctl(&format!("net/{}", key.replace('W', &wire)), value)?;
    }
    netns.ip(&format!(
        "link set {wire} up\ntuntap add {name} mode tap\nlink set {name} up"
    ))
}

/// The name of a cable's end that DPDK has.
fn wire(name: &str) -> String {
    format!("{name}w")
}

/// Interfaces that packets of UEs use, where a UPF has them.
const FACES: [&str; 4] = ["n3", "n6", "n6b", "n9"];

/// The start of an interface's section in a configuration.
fn header(face: &str) -> String {
    format!("name = \"{face}\"\nrole")
}

/// The socket of a port's memif. Folders are those of one UPF.
fn socket(face: &str, folder: &str) -> String {
    format!("{folder}/{face}.memif")
}

/// Links of the memifs of a configuration.
fn wires(toml: &str, folder: &Path) -> Vec<Wire> {
    let faces = FACES.iter().filter(|face| toml.contains(&header(face)));
    let wires = faces.map(|face| Wire {
        face: (*face).to_owned(),
        socket: socket(face, &folder.to_string_lossy()),
        cable: wire(face),
    });
    wires.collect()
}

/// Adds devices to the interfaces of a configuration, and the environment that they need.
fn with_devices(mut toml: String, n4: Ipv4Addr) -> String {
    for (number, name) in FACES.iter().enumerate() {
        let packets = format!("net_af_packet_{name},iface={},framecnt=8192", wire(name));
        let device = match Datapath::chosen() {
            Datapath::DpdkPipeline => format!("{packets},qpairs=2"),
            Datapath::DpdkMemif => {
                // The address that neighbours have learned outlasts a restart of the UPF.
                let [_, a, b, c] = n4.octets();
                let socket = socket(name, "{folder}");
                format!(
                    "net_memif_{name},role=server,socket={socket},socket-abstract=no,\
                     mac=02:{a:02x}:{b:02x}:{c:02x}:00:{number:02x}"
                )
            }
            _ => packets,
        };
        let header = header(name);
        let with = format!("device = \"{device}\"\n{header}");
        toml = toml.replace(&header, &with);
    }
    // More than what rings to two workers hold, and packets that wait for their rates.
    let mbufs = match Datapath::chosen() {
        Datapath::DpdkPipeline => 16_384,
        _ => 8192,
    };
    // Without huge pages each has a page of its own.
    let mib = mbufs / 256 + 32;
    let eal = format!(
        r#"["--no-huge", "-m", "{mib}", "--no-pci", "--no-telemetry", "--log-level=lib.eal:error"]"#
    );
    toml += &format!("\n[datapath.dpdk]\neal = {eal}\nmbufs = {mbufs}\n");
    if Datapath::chosen() == Datapath::DpdkPipeline {
        toml += "model = \"pipeline\"\n";
        toml = toml.replacen("[datapath]\n", "[datapath]\nworkers = 2\n", 1);
    }
    toml
}

/// Settings that a scenario asks of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// N4 address of the UPF.
    pub n4: Ipv4Addr,
    /// A second N4 address, of the other family.
    pub n4_also: Option<IpAddr>,
    /// N3 addresses of the UPF.
    pub n3: Addresses,
    /// Its GTP-U address on N6, where gNBs are, too.
    pub n6: Option<Ipv4Addr>,
    /// SMFs that the UPF is to call first.
    pub smfs: Vec<SocketAddr>,
    /// UE prefixes.
    pub pools: Vec<String>,
    /// Seconds between heartbeats.
    pub heartbeat_s: u32,
    /// Seconds that the sessions of an SMF that does not answer are kept.
    pub retention_s: u32,
    /// Sessions at most.
    pub sessions: u32,
    /// Further sections.
    pub sections: String,
    /// Further lines, each with the section that it belongs to. `{folder}` is that of the configuration.
    pub lines: Vec<(&'static str, &'static str)>,
}

impl Settings {
    fn toml(&self) -> String {
        let Self {
            n4,
            heartbeat_s,
            retention_s,
            sessions,
            sections,
            ..
        } = self;
        let kind = Datapath::chosen().name();
        let list = |items: Vec<String>| {
            items
                .iter()
                .map(|item| format!("\"{item}\""))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let also = self.n4_also.map_or(String::new(), |address| {
            format!("listen_also = \"{}\"", SocketAddr::new(address, 8805))
        });
        let smfs = list(self.smfs.iter().map(SocketAddr::to_string).collect());
        let pools = list(self.pools.clone());
        let n3 = list(self.n3.all().iter().map(IpAddr::to_string).collect());
        let n6 = self.n6.map_or("role = \"n6\"".to_owned(), |address| {
            format!("role = \"n3+n6\"\naddresses = [\"{address}\"]")
        });
        let own = self
            .lines
            .iter()
            .any(|(_, line)| line.starts_with("sessions ="));
        let sessions = match own {
            true => String::new(),
            false => format!("sessions = {sessions}"),
        };
        let mut toml = format!(
            r#"[node]
id = "{n4}"

[n4]
listen = "{n4}:8805"
{also}
smf = [{smfs}]
heartbeat_s = {heartbeat_s}
path_failure_retention_s = {retention_s}

[datapath]
kind = "{kind}"

[[interface]]
name = "n3"
role = "n3"
addresses = [{n3}]

[[interface]]
name = "n6"
{n6}

[[network_instance]]
name = "internet"
interface = "n6"
pools = [{pools}]

{sections}

[limits]
{sessions}

[api]
listen = "127.0.0.1:8806"
"#
        );
        // Else all that is sent to unknown TEIDs early in a scenario stays without an answer.
        if !self
            .lines
            .iter()
            .any(|(_, line)| line.contains("restart_grace_s"))
        {
            toml += "\n[gtpu]\nrestart_grace_s = 0\n";
        }
        let mut lines = self.lines.clone();
        if Datapath::chosen().is_dpdk() {
            toml = with_devices(toml, *n4);
            // Frames that wait are buffers, of which half are for others.
            if !lines.iter().any(|(_, line)| line.starts_with("frames =")) {
                lines.push(("[qos]", "frames = 2048"));
            }
        }
        // Programs of the kernel alone are pinned.
        lines.retain(|(_, line)| {
            Datapath::chosen() == Datapath::Xdp || !line.starts_with("bpffs =")
        });
        for (section, line) in &lines {
            let header = format!("{section}\n");
            if !toml.contains(&header) {
                toml += &format!("\n{header}");
            }
            toml = toml.replacen(&header, &format!("{header}{line}\n"), 1);
        }
        toml
    }
}

/// Path of `turnpiked`: `$TURNPIKED`, or beside this program, or where cargo puts it.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TURNPIKED") {
        return Ok(path.into());
    }
    let beside = std::env::current_exe()?.with_file_name("turnpiked");
    let target = ["target/release/turnpiked", "target/debug/turnpiked"].map(PathBuf::from);
    let found = std::iter::once(beside)
        .chain(target)
        .find(|path| path.is_file());
    found.context("turnpiked was not found: build it, or set TURNPIKED to its path")
}

/// The one that UPFs of this folder are: that of [`install_another`], if there is one.
fn installed(folder: &Path) -> Result<PathBuf> {
    let own = folder.join("turnpiked");
    if own.is_file() {
        return Ok(own);
    }
    binary()
}

/// From the next start on, UPFs of this folder are another program, which does the same.
pub fn install_another(folder: &Path) -> Result<()> {
    let unfinished = folder.join("turnpiked.new");
    fs::copy(binary()?, &unfinished)?;
    Ok(fs::rename(unfinished, folder.join("turnpiked"))?)
}

/// Removes what a UPF has left that was started in this folder, and does not run. Its words.
pub fn detach(folder: &Path) -> Result<String> {
    let mut command = Command::new(installed(folder)?);
    command.arg("detach").arg(folder.join("turnpiked.toml"));
    let output = command.output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Status and body of an answer of REST.
fn ask(netns: &Netns, request: &str) -> Result<(u16, String)> {
    let response = netns.enter(|| {
        let mut stream = TcpStream::connect_timeout(&API.into(), NEVER)?;
        stream.set_read_timeout(Some(NEVER))?;
        stream.write_all(request.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    })?;
    let (head, body) = response
        .split_once("\r\n\r\n")
        .context("an answer without a body")?;
    let status = head.split_ascii_whitespace().nth(1);
    let status = status.context("an answer without a status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// One direction of a session, as the UPF counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Packets forwarded.
    pub packets: u64,
    /// Bytes of IP forwarded.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
}

/// A running `turnpiked`.
pub struct Upf {
    process: Process,
    log: PathBuf,
    folder: PathBuf,
    wires: Vec<Wire>,
    /// At the other end of its memifs, where it has such.
    peer: Option<Testpmd>,
}

impl Upf {
    /// Starts it and waits until it is ready. Its configuration and log are kept in `folder`.
    pub fn start(netns: &Netns, settings: &Settings, folder: &Path) -> Result<Self> {
        let mut upf = Self::spawn(netns, settings, folder)?;
        upf.wait_until_ready(netns)?;
        upf.start_peer(netns)?;
        Ok(upf)
    }

    /// Starts it, and kills it when `now` says so, ready or not. It is told the time since the start.
    pub fn start_and_kill(
        netns: &Netns,
        settings: &Settings,
        folder: &Path,
        now: impl Fn(Duration) -> bool,
    ) -> Result<()> {
        let start = Instant::now();
        let mut upf = Self::spawn(netns, settings, folder)?;
        while !now(start.elapsed()) && start.elapsed() < NEVER {
            upf.alive()?;
            std::thread::sleep(Duration::from_micros(200));
        }
        upf.stop(Signal::SIGKILL)
    }

    fn spawn(netns: &Netns, settings: &Settings, folder: &Path) -> Result<Self> {
        let config = folder.join("turnpiked.toml");
        let toml = settings.toml();
        cleanup::mount_wanted(folder, &toml)?;
        fs::write(&config, toml.replace("{folder}", &folder.to_string_lossy()))?;
        let log = folder.join("turnpiked.log");
        let output = File::options().create(true).append(true).open(&log)?;
        // `ip netns exec` also gives it the /sys of its namespace.
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", netns.name()])
            .arg(installed(folder)?)
            .arg("--config")
            .arg(&config)
            .env("RUNTIME_DIRECTORY", folder);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let wires = match Datapath::chosen() {
            Datapath::DpdkMemif => wires(&toml, folder),
            _ => Vec::new(),
        };
        Ok(Self {
            process: Process::spawn_in(netns.name(), &mut command)?,
            log,
            folder: folder.to_owned(),
            wires,
            peer: None,
        })
    }

    fn start_peer(&mut self, netns: &Netns) -> Result<()> {
        if self.wires.is_empty() {
            return Ok(());
        }
        self.peer = Some(Testpmd::start(netns, &self.wires, &self.folder)?);
        for Wire { face, .. } in &self.wires {
            // The kernel tells of a carrier up to a second after it is there; of another MTU at once, and of both then.
            let mtu = self.mtu(netns, face)?;
            self.set_mtu(netns, face, mtu - 1)?;
            self.set_mtu(netns, face, mtu)?;
            // Neighbours that were looked for meanwhile are looked for again at once, rather than within a second.
            eventually("neighbours are flushed", || {
                Ok(netns.ip(&format!("neigh flush dev {face}")).is_ok())
            })?;
        }
        Ok(())
    }

    /// An interface's MTU, as it knows it.
    fn mtu(&self, netns: &Netns, interface: &str) -> Result<u32> {
        let status = self.get(netns, "/api/v1/status")?;
        let mut ports = status["ports"].as_array().into_iter().flatten();
        let port = ports.find(|port| port["interface"] == interface);
        let mtu = port.and_then(|port| port["mtu"].as_u64());
        let mtu = mtu.with_context(|| format!("{interface} without MTU: {status}"))?;
        Ok(u32::try_from(mtu)?)
    }

    /// Kills what is at the other end of its memifs, does something, and starts it again.
    pub fn without_peer<T>(
        &mut self,
        netns: &Netns,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let peer = self.peer.take().context("no memif, and no peer")?;
        peer.kill(netns, &self.wires)?;
        let result = work()?;
        self.start_peer(netns)?;
        Ok(result)
    }

    fn wait_until_ready(&mut self, netns: &Netns) -> Result<()> {
        let deadline = Instant::now() + NEVER;
        while Instant::now() < deadline {
            if let Some(status) = self.process.ended()? {
                bail!(
                    "turnpiked ended at its start: {status}\n{}",
                    self.log_tail(20)
                );
            }
            if self.get(netns, "/api/v1/status").is_ok() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        bail!(
            "turnpiked was not ready within {NEVER:?}\n{}",
            self.log_tail(20)
        )
    }

    /// Changes an interface of it; when this returns it knows.
    pub fn set_mtu(&self, netns: &Netns, interface: &str, mtu: u32) -> Result<()> {
        netns.ip(&format!("link set {interface} mtu {mtu}"))?;
        eventually("the UPF knows the MTU", || {
            let status = self.get(netns, "/api/v1/status")?;
            let mut ports = status["ports"].as_array().into_iter().flatten();
            Ok(ports.any(|port| port["interface"] == interface && port["mtu"] == mtu))
        })
    }

    /// Asks its REST interface.
    pub fn get(&self, netns: &Netns, path: &str) -> Result<Value> {
        let body = self.get_text(netns, path)?;
        serde_json::from_str(&body).with_context(|| format!("{path}: {body}"))
    }

    /// Asks its REST interface for text, such as the metrics.
    pub fn get_text(&self, netns: &Netns, path: &str) -> Result<String> {
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        // A machine on which others load programs, too, may take longer than REST waits for the control thread.
        let mut answer = String::new();
        eventually(path, || {
            let (status, body) = ask(netns, &request)?;
            ensure!([200, 504].contains(&status), "{path}: {status}");
            answer = body;
            Ok(status == 200)
        })?;
        Ok(answer)
    }

    /// Changes the text of its configuration's file.
    pub fn edit(&self, change: impl FnOnce(String) -> String) -> Result<()> {
        let file = self.folder.join("turnpiked.toml");
        let text = fs::read_to_string(&file)?;
        let changed = change(text.clone());
        ensure!(changed != text, "no change in {file:?}");
        Ok(fs::write(file, changed)?)
    }

    /// Has it read its file again, and waits for what comes of it: the last reload of its status.
    pub fn reload(&self, netns: &Netns) -> Result<Value> {
        let (status, body) = self.post(netns, "/api/v1/reload", "")?;
        ensure!([200, 409].contains(&status), "{status} {body}");
        self.last_reload(netns)
    }

    /// Outcome of the last reload, once it is known.
    pub fn last_reload(&self, netns: &Netns) -> Result<Value> {
        let mut last = Value::Null;
        eventually("a reload is over", || {
            // It may be starting.
            let Ok(status) = self.get(netns, "/api/v1/status") else {
                return Ok(false);
            };
            last = status["config"]["last"].clone();
            Ok(last["outcome"] != "taking over")
        })
        .with_context(|| self.log_tail(20))?;
        Ok(last)
    }

    /// Output of `turnpike`, which finds it by itself.
    pub fn turnpike(&self, netns: &Netns, arguments: &[&str]) -> Result<String> {
        let program = binary()?.with_file_name("turnpike");
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", netns.name()])
            .arg(program)
            .args(arguments)
            .env("RUNTIME_DIRECTORY", &self.folder)
            .env_remove("TURNPIKE_API")
            .env_remove("TURNPIKE_TOKEN_FILE");
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "turnpike {arguments:?}: {error}");
        Ok(said)
    }

    /// Status and body of an answer to a request that takes its token.
    pub fn post(&self, netns: &Netns, path: &str, body: &str) -> Result<(u16, String)> {
        let access = fs::read_to_string(self.folder.join("api.json")).context("api.json")?;
        let access: Value = serde_json::from_str(&access)?;
        let token = access["token"].as_str().context("no token")?;
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        ask(netns, &request)
    }

    /// How many sessions it holds.
    pub fn sessions(&self, netns: &Netns) -> Result<u64> {
        let status = self.get(netns, "/api/v1/status")?;
        status["sessions"]["used"]
            .as_u64()
            .context("status without sessions.used")
    }

    /// Counts for the session of the UE with this address, up and down.
    pub fn counted(&self, netns: &Netns, ue: IpAddr) -> Result<[Counted; 2]> {
        let page = self.get(netns, "/api/v1/sessions?limit=1000")?;
        let sessions = page["sessions"].as_array().context("sessions is no list")?;
        // IPv6 UEs are shown by their prefix, whose first address the lab gives to the UE.
        let shown = match ue {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => {
                format!("{}/64", Ipv6Addr::from(u128::from(v6) >> 64 << 64))
            }
        };
        let has = |session: &&Value| {
            session["ue"]
                .as_array()
                .is_some_and(|ue| ue.iter().any(|a| *a == shown.as_str()))
        };
        let session = sessions
            .iter()
            .find(has)
            .with_context(|| format!("no session of {shown}"))?;
        let read = |way: &str| {
            let field = |name: &str| {
                let value = session[way][name].as_u64();
                value.with_context(|| format!("session without {way}.{name}"))
            };
            Ok::<_, anyhow::Error>(Counted {
                packets: field("packets")?,
                bytes: field("bytes")?,
                drops: field("drops")?,
            })
        };
        Ok([read("uplink")?, read("downlink")?])
    }

    /// How many packets it dropped for `reason`, on all interfaces.
    pub fn drops(&self, netns: &Netns, reason: &str) -> Result<u64> {
        let drops = self.get(netns, "/api/v1/drops")?;
        let list = drops.as_array().or_else(|| drops["drops"].as_array());
        let list = list.context("drops is no list")?;
        let of_reason = list.iter().filter(|drop| drop["reason"] == reason);
        Ok(of_reason.filter_map(|drop| drop["packets"].as_u64()).sum())
    }

    /// Folder of its configuration.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process id.
    pub fn pid(&mut self) -> Result<u32> {
        self.process.id()
    }

    /// The process that its workers are in.
    pub fn workers(netns: &Netns) -> Result<Pid> {
        let mut ip = Command::new("ip");
        let inside = ip.args(["netns", "pids", netns.name()]).output()?;
        let pids = String::from_utf8_lossy(&inside.stdout).into_owned();
        let is_it = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|octet| *octet == 0).nth(1) == Some(b"workers")
        };
        let mut pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
        let pid = pids.find(is_it).context("no process of workers")?;
        Ok(Pid::from_raw(pid))
    }

    /// Resident memory in KiB.
    pub fn rss_kib(&mut self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()?))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        number.context("no VmRSS")
    }

    /// An error unless it runs.
    pub fn alive(&mut self) -> Result<()> {
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => bail!("turnpiked is gone: {status}\n{}", self.log_tail(30)),
        }
    }

    /// Sends a signal and does not wait.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Waits until it has ended by itself, without an error.
    pub fn ended(&mut self) -> Result<()> {
        let status = self.process.wait(NEVER).context("turnpiked")?;
        ensure!(status.success(), "turnpiked ended with {status}");
        Ok(())
    }

    /// Ends it: gracefully by SIGTERM, or without a chance to say so by SIGKILL.
    pub fn stop(mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)?;
        let status = self.process.wait(NEVER).context("turnpiked")?;
        let graceful = signal == Signal::SIGTERM;
        ensure!(
            !graceful || status.success(),
            "turnpiked ended with {status}"
        );
        Ok(())
    }

    /// The last lines that it logged.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<_> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// What each of its threads waits for: its name, state, time on a CPU, and where it is in the kernel.
    pub fn threads(&mut self) -> Result<String> {
        let mut said = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.process.id()?))? {
            let task = task?.path();
            let read = |what| fs::read_to_string(task.join(what)).unwrap_or_default();
            let (name, status, ran) = (read("comm"), read("status"), read("schedstat"));
            let state = status.lines().find_map(|line| line.strip_prefix("State:"));
            let ran_ns = ran.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            let stack = read("stack");
            let calls = stack.lines().map(|line| line.trim_start_matches("[<0>] "));
            said.push(format!(
                "{}: {}, ran {} ms, {}",
                name.trim(),
                state.unwrap_or_default().trim(),
                ran_ns.unwrap_or_default() / 1_000_000,
                calls.take(5).collect::<Vec<_>>().join(" < ")
            ));
        }
        Ok(said.join("\n"))
    }
}
