//! The configuration file: what an operator may write, its defaults, and how mistakes are named.
//!
//! `deploy/turnpiked.example.toml` explains each key; a test keeps it and the defaults here alike.

mod changes;
mod check;
mod cores;
mod dpdk;
mod forwarding_policy;
pub(crate) mod memory;
mod nrf;
mod nupf;
mod predefined;
pub(crate) mod qos;
mod rest;
mod router;
mod system;
mod telemetry;
mod understood;
mod values;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub(crate) use changes::{Change, Takes, changes, growth, hindrance, newcomers};
pub(crate) use check::check;
pub(crate) use cores::{doubts, home};
pub(crate) use forwarding_policy::ForwardingPolicy;
pub(crate) use memory::{
    Memory, doubt as doubt_of_memory, problem as problem_of_memory,
    problem_of_second as problem_of_second_tables,
};
pub(crate) use nrf::{Nrf, Slice, is_full};
pub(crate) use nupf::Nupf;
pub(crate) use predefined::PredefinedRule;
pub(crate) use router::Router;
pub(crate) use system::{System, read_token};
pub(crate) use telemetry::Telemetry;
pub(crate) use understood::understood;
pub(crate) use values::{NodeId, Prefix, is_fqdn};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) node: Node,
    pub(crate) n4: N4,
    #[serde(default)]
    pub(crate) datapath: Datapath,
    #[serde(default)]
    pub(crate) interface: Vec<Interface>,
    #[serde(default)]
    pub(crate) network_instance: Vec<NetworkInstance>,
    #[serde(default)]
    pub(crate) predefined_rule: Vec<PredefinedRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) forwarding_policy: Vec<ForwardingPolicy>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) group: Vec<qos::Group>,
    #[serde(default)]
    pub(crate) limits: Limits,
    #[serde(default)]
    pub(crate) qos: Qos,
    #[serde(default)]
    pub(crate) gtpu: Gtpu,
    #[serde(default)]
    pub(crate) buffering: Buffering,
    #[serde(default)]
    pub(crate) api: Api,
    #[serde(default)]
    pub(crate) log: Log,
    #[serde(default)]
    pub(crate) usage_log: UsageLog,
    #[serde(default)]
    pub(crate) state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nrf: Option<Nrf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nupf: Option<Nupf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) telemetry: Option<Telemetry>,
}

/// Identity of this UPF towards SMFs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
}

/// PFCP.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct N4 {
    pub(crate) listen: SocketAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen_also: Option<SocketAddr>,
    #[serde(default)]
    pub(crate) allow: Vec<IpNet>,
    #[serde(default)]
    pub(crate) smf: Vec<SocketAddr>,
    #[serde(default = "N4::heartbeat_s")]
    pub(crate) heartbeat_s: u32,
    #[serde(default = "N4::t1_ms")]
    pub(crate) t1_ms: u32,
    #[serde(default = "N4::n1")]
    pub(crate) n1: u32,
    #[serde(default = "N4::retry_at_most_s")]
    pub(crate) retry_at_most_s: u32,
    #[serde(default = "N4::path_failure_retention_s")]
    pub(crate) path_failure_retention_s: u32,
    #[serde(default)]
    pub(crate) graceful_release_s: u32,
    #[serde(default = "N4::overload_at_percent")]
    pub(crate) overload_at_percent: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer_port: Option<u16>,
    #[serde(default = "N4::receive_buffer_mib")]
    pub(crate) receive_buffer_mib: u32,
    #[serde(default = "N4::busy_poll_us")]
    pub(crate) busy_poll_us: u32,
    #[serde(default)]
    pub(crate) fast_path: FastPath,
    /// It comes by this one, where a program serves requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interface: Option<String>,
}

/// Server of requests that only update FARs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FastPath {
    /// The core, as all others.
    #[default]
    Off,
    /// The engine of the data path, in the control thread.
    User,
    /// The same in a program, where frames come in.
    Data,
}

impl FastPath {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::User => "user",
            Self::Data => "data",
        }
    }
}

impl N4 {
    const fn heartbeat_s() -> u32 {
        10
    }
    const fn t1_ms() -> u32 {
        1000
    }
    const fn n1() -> u32 {
        3
    }
    const fn retry_at_most_s() -> u32 {
        30
    }
    const fn path_failure_retention_s() -> u32 {
        3600
    }
    const fn overload_at_percent() -> u8 {
        90
    }
    const fn receive_buffer_mib() -> u32 {
        64
    }
    const fn busy_poll_us() -> u32 {
        20
    }
}

/// Data path: its kind, threads and CPUs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Datapath {
    pub(crate) kind: DatapathKind,
    pub(crate) workers: u32,
    pub(crate) cpus: Vec<u32>,
    pub(crate) control_cpus: Vec<u32>,
    pub(crate) busy_poll: bool,
    pub(crate) mode: XdpMode,
    pub(crate) settle_s: u32,
    pub(crate) icmp_errors_per_s: u32,
    pub(crate) dpdk: Dpdk,
}

impl Default for Datapath {
    fn default() -> Self {
        Self {
            kind: DatapathKind::Xdp,
            workers: 1,
            cpus: Vec::new(),
            control_cpus: Vec::new(),
            busy_poll: false,
            mode: XdpMode::Driver,
            settle_s: 10,
            icmp_errors_per_s: 1000,
            dpdk: Dpdk::default(),
        }
    }
}

/// DPDK's environment, and which of its core models.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Dpdk {
    pub(crate) eal: Vec<String>,
    pub(crate) mbufs: u32,
    pub(crate) model: CoreModel,
    pub(crate) rx_cpus: Vec<u32>,
    /// [`Config::ring`] says how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ring: Option<u32>,
}

/// CPUs that a packet meets on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CoreModel {
    /// One worker, from the receive queue to the transmit queue.
    RunToCompletion,
    /// A receive core, then a worker.
    Pipeline,
}

impl CoreModel {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Pipeline => "pipeline",
        }
    }
}

impl Default for Dpdk {
    fn default() -> Self {
        Self {
            eal: Vec::new(),
            mbufs: 16_384,
            model: CoreModel::RunToCompletion,
            rx_cpus: Vec::new(),
            ring: None,
        }
    }
}

/// The data paths there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DatapathKind {
    /// Programs in the kernel, at the driver.
    Xdp,
    /// Threads with sockets of the kernel.
    Kernel,
    /// Threads with devices of DPDK.
    Dpdk,
}

impl DatapathKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Kernel => "kernel",
            Self::Dpdk => "dpdk",
        }
    }

    /// Names of the data paths in this build.
    pub(crate) fn built() -> Vec<&'static str> {
        let kinds = [Self::Xdp, Self::Kernel, Self::Dpdk].into_iter();
        let built = kinds.filter(|&kind| kind != Self::Dpdk || cfg!(feature = "dpdk"));
        built.map(Self::name).collect()
    }
}

/// Hook in the kernel where the XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum XdpMode {
    Driver,
    Generic,
}

impl XdpMode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Generic => "generic",
        }
    }
}

/// One data interface.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) role: Role,
    #[serde(default)]
    pub(crate) addresses: Vec<IpAddr>,
    #[serde(default)]
    pub(crate) network_instances: Vec<String>,
    #[serde(default)]
    pub(crate) spread_cpus: Vec<u32>,
    /// CPUs that alone poll it, of workers or of receive cores; none: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) rx_cpus: Vec<u32>,
    /// As DPDK names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// Rate that it may send at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_kbps: Option<u64>,
}

/// Network that an interface is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Role {
    /// Access: GTP-U.
    #[serde(rename = "n3")]
    N3,
    /// Other UPFs: GTP-U.
    #[serde(rename = "n9")]
    N9,
    /// Data network: plain IP.
    #[serde(rename = "n6")]
    N6,
    /// Both on one interface.
    #[serde(rename = "n3+n6")]
    Both,
    /// Both on one interface.
    #[serde(rename = "n9+n6")]
    N9AndN6,
}

impl Role {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::N3 => "n3",
            Self::N9 => "n9",
            Self::N6 => "n6",
            Self::Both => "n3+n6",
            Self::N9AndN6 => "n9+n6",
        }
    }
    pub(crate) const fn has_n3(self) -> bool {
        matches!(self, Self::N3 | Self::Both)
    }
    pub(crate) const fn has_n9(self) -> bool {
        matches!(self, Self::N9 | Self::N9AndN6)
    }
    pub(crate) const fn has_tunnels(self) -> bool {
        self.has_n3() || self.has_n9()
    }
    pub(crate) const fn has_n6(self) -> bool {
        matches!(self, Self::N6 | Self::Both | Self::N9AndN6)
    }
}

/// A network instance (TS 29.244, 8.2.4): usually a DNN.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkInstance {
    pub(crate) name: String,
    pub(crate) interface: String,
    #[serde(default)]
    pub(crate) pools: Vec<Prefix>,
    /// `None`: any that is nobody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) framed_routes: Option<Vec<Prefix>>,
    #[serde(default = "NetworkInstance::table")]
    pub(crate) table: u32,
    #[serde(default = "NetworkInstance::ue_to_ue")]
    pub(crate) ue_to_ue: bool,
    #[serde(default)]
    pub(crate) emergency: bool,
    #[serde(default)]
    pub(crate) router: Router,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_uplink_kbps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capacity_downlink_kbps: Option<u64>,
}

impl NetworkInstance {
    /// The kernel's main table.
    const fn table() -> u32 {
        254
    }
    const fn ue_to_ue() -> bool {
        true
    }
}

/// How much of everything; beyond it a request is answered with cause 75.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    pub(crate) sessions: u32,
    /// `None` in a file that leaves it out; [`parse`] then fills in two per session.
    #[serde(default)]
    pub(crate) entries: Option<u32>,
    /// `None` likewise: one per session.
    #[serde(default)]
    pub(crate) filters: Option<u32>,
    pub(crate) smfs: u32,
    pub(crate) shares: u32,
    /// `None`: a hundredth of the sessions where a network instance is for emergency calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) emergency_sessions: Option<u32>,
    pub(crate) gnbs: u32,
    pub(crate) neighbours: u32,
    pub(crate) routes: u32,
    pub(crate) pdrs_per_session: u32,
    pub(crate) fars_per_session: u32,
    pub(crate) qers_per_session: u32,
    pub(crate) urrs_per_session: u32,
    pub(crate) bars_per_session: u32,
    pub(crate) filters_per_session: u32,
}

impl Limits {
    /// Table entries, one per PDR.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
            .unwrap_or_else(|| self.sessions.saturating_mul(2).max(1024))
    }

    /// SDF filters of all sessions, one for both directions counted once.
    pub(crate) fn filters(&self) -> u32 {
        self.filters.unwrap_or_else(|| self.sessions.max(1024))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 80_000,
            entries: Some(160_000),
            filters: Some(80_000),
            smfs: 64,
            shares: 8,
            emergency_sessions: None,
            gnbs: 4096,
            neighbours: 4096,
            routes: 1024,
            pdrs_per_session: 16,
            fars_per_session: 16,
            qers_per_session: 16,
            urrs_per_session: 16,
            bars_per_session: 4,
            filters_per_session: 64,
        }
    }
}

/// How a maximum bit rate is enforced.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Qos {
    pub(crate) mode: QosMode,
    pub(crate) granularity_us: u32,
    pub(crate) slots: u32,
    pub(crate) frames: u32,
    pub(crate) burst_ms: u32,
    pub(crate) burst_min_bytes: u32,
    pub(crate) l4s_us: u32,
    pub(crate) guaranteed_percent: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) flow: Vec<qos::Flow>,
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            mode: QosMode::Police,
            granularity_us: 50,
            slots: 4096,
            frames: 16_384,
            burst_ms: 100,
            burst_min_bytes: 32_768,
            l4s_us: 0,
            guaranteed_percent: 80,
            flow: Vec::new(),
        }
    }
}

/// Fate of packets above a maximum bit rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QosMode {
    /// They are dropped.
    Police,
    /// They wait.
    Shape,
}

/// How often the data path may answer by itself, and how GTP-U peers are watched.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gtpu {
    pub(crate) error_indications_per_s: u32,
    pub(crate) restart_grace_s: u32,
    pub(crate) echo_per_s: u32,
    pub(crate) echo_interval_s: u32,
    pub(crate) echo_t3_ms: u32,
    pub(crate) echo_n3: u32,
    pub(crate) udp6_checksum: bool,
}

impl Default for Gtpu {
    fn default() -> Self {
        Self {
            error_indications_per_s: 100,
            restart_grace_s: 5,
            echo_per_s: 1000,
            echo_interval_s: 60,
            echo_t3_ms: 3000,
            echo_n3: 5,
            udp6_checksum: true,
        }
    }
}

/// Packets that wait for idle UEs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Buffering {
    pub(crate) max_mib: u32,
    pub(crate) max_packets: u32,
    pub(crate) max_packets_per_session: u32,
    pub(crate) max_age_s: u32,
    pub(crate) ring_mib: u32,
}

impl Default for Buffering {
    fn default() -> Self {
        Self {
            max_mib: 256,
            max_packets: 1_000_000,
            max_packets_per_session: 1000,
            max_age_s: 60,
            ring_mib: 16,
        }
    }
}

/// REST and metrics.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Api {
    pub(crate) listen: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) max_connections: u32,
    pub(crate) client_connections: u32,
    pub(crate) client_requests_per_s: u32,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8806)),
            token_file: None,
            hosts: Vec::new(),
            max_connections: 64,
            client_connections: 16,
            client_requests_per_s: 100,
        }
    }
}

/// Log of events, written to standard error.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) level: LogLevel,
    pub(crate) format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Text,
        }
    }
}

/// File that each Usage Report is written to, beside being sent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UsageLog {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<PathBuf>,
    pub(crate) max_mb: u32,
    pub(crate) files: u32,
}

impl Default for UsageLog {
    fn default() -> Self {
        Self {
            path: None,
            max_mb: 100,
            files: 10,
        }
    }
}

/// Folders in which sessions and programs outlive the process, for how long, and whether a stop leaves them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct State {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bpffs: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<PathBuf>,
    pub(crate) unmanaged_s: u32,
    pub(crate) on_stop: OnStop,
}

impl Default for State {
    fn default() -> Self {
        Self {
            dir: None,
            bpffs: None,
            disk: None,
            unmanaged_s: 3600,
            on_stop: OnStop::default(),
        }
    }
}

impl Config {
    /// Whether a stop leaves sessions to the next start.
    pub(crate) fn keeps_sessions(&self) -> bool {
        self.state.dir.is_some() && self.state.on_stop == OnStop::Keep
    }
}

/// Sessions when a signal asks for the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnStop {
    /// SMFs are asked to release their associations.
    #[default]
    Release,
    /// The next start goes on with them.
    Keep,
}

/// The least important line that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// One mistake in the file: where, what stands there, and why it cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `n4.listen`, `network_instance[0].pools[1]`; empty when the file as a whole is meant.
    pub(crate) key: String,
    /// As in the file; `None`: the key is missing.
    pub(crate) value: Option<String>,
    pub(crate) reason: String,
}

impl Problem {
    pub(crate) fn new(
        key: impl Into<String>,
        value: impl Serialize,
        reason: impl Into<String>,
    ) -> Self {
        let value = serde_json::to_string(&value).ok();
        Self {
            key: key.into(),
            value,
            reason: reason.into(),
        }
    }

    pub(crate) fn missing(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: None,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.key, &self.value) {
            (key, _) if key.is_empty() => write!(f, "{}", self.reason),
            (key, Some(value)) => write!(f, "{key} = {value}: {}", self.reason),
            (key, None) => write!(f, "{key}: {}", self.reason),
        }
    }
}

/// The file's text.
pub(crate) fn read(path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(path)
        .map_err(|error| Problem::missing("", format!("{}: {error}", path.display())))
}

/// Read and parse; semantic checks are [`check()`]'s.
pub(crate) fn load(path: &Path) -> Result<Config, Problem> {
    parse(&read(path)?)
}

/// Parse one file's text.
pub(crate) fn parse(text: &str) -> Result<Config, Problem> {
    let tree: toml::Table = toml::from_str(text)
        .map_err(|error| Problem::missing("", error.to_string().trim_end().to_owned()))?;
    let parsed: Result<Config, _> = serde_path_to_error::deserialize(tree.clone());
    let mut config = parsed.map_err(|error| {
        let path = error.path().to_string();
        name_problem(&tree, path, &error.into_inner().to_string())
    })?;
    config.limits.entries = Some(config.limits.entries());
    config.limits.filters = Some(config.limits.filters());
    Ok(config)
}

/// Turn serde's words into key, value and reason.
fn name_problem(tree: &toml::Table, path: String, words: &str) -> Problem {
    // toml adds where it was, which the key says.
    let words = words.split("\nin `").next().unwrap_or(words).trim_end();
    let path = if path == "." { String::new() } else { path };
    if let Some(field) = words
        .strip_prefix("missing field `")
        .and_then(|w| w.split('`').next())
    {
        let key = if path.is_empty() {
            field.to_owned()
        } else {
            format!("{path}.{field}")
        };
        return Problem::missing(key, "is required");
    }
    let value = value_at(tree, &path).map(ToString::to_string);
    if let Some(rest) = words.strip_prefix("unknown field `") {
        let known = rest.split_once("`, ").map_or("", |(_, known)| known);
        return Problem {
            key: path,
            value,
            reason: format!("unknown key, {known}"),
        };
    }
    if let Some(rest) = words.strip_prefix("unknown variant `") {
        let known = rest.split_once("`, ").map_or("", |(_, known)| known);
        return Problem {
            key: path,
            value,
            reason: known.to_owned(),
        };
    }
    Problem {
        key: path,
        value,
        reason: words.to_owned(),
    }
}

/// The value at a path such as `interface[0].addresses[1]`.
fn value_at<'t>(tree: &'t toml::Table, path: &str) -> Option<&'t toml::Value> {
    let mut steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
    let mut value = tree.get(steps.next()?)?;
    for step in steps {
        value = match value {
            toml::Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            toml::Value::Table(table) => table.get(step)?,
            _ => return None,
        };
    }
    Some(value)
}

#[cfg(test)]
mod tests;
