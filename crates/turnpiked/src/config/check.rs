//! Checks that need more than one key, or the machine. None of them opens a port.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::system::{System, read_token};
use super::{
    Config, Datapath, DatapathKind, FastPath, Interface, NetworkInstance, OnStop, Prefix, Problem,
    XdpMode, predefined,
};
use tables::LANES_MAX;

/// `TP_PORTS_MAX`.
const INTERFACES_MAX: usize = 16;
/// `TP_N3_ADDRS_MAX`, of each family.
const N3_ADDRESSES_MAX: usize = 8;

/// Everything that is wrong with the file on this machine; empty: it can be run.
pub(crate) fn check(config: &Config, system: &System) -> Vec<Problem> {
    let mut problems = Vec::new();
    n4(config, system, &mut problems);
    interfaces(config, system, &mut problems);
    kernel(config, system, &mut problems);
    super::dpdk::check(config, system, &mut problems);
    network_instances(config, &mut problems);
    super::router::check(config, &mut problems);
    pools(config, &mut problems);
    framed_routes(config, &mut problems);
    predefined::check(config, &mut problems);
    super::forwarding_policy::check(config, system, &mut problems);
    ranges(config, &mut problems);
    api(config, system, &mut problems);
    super::rest::check(config, &mut problems);
    super::nrf::check(config, &mut problems);
    super::nupf::check(config, &mut problems);
    super::telemetry::check(config, &mut problems);
    usage_log(config, &mut problems);
    state(config, &mut problems);
    shaping(config, &mut problems);
    super::qos::check(config, &mut problems);
    problems
}

/// The longest wait that a rate word can say.
const LONGEST_WAIT_S: u64 = 60;

/// Half of a wheel's: there it reaches twice as far as packets may wait.
const XDP_SLOTS_MAX: u32 = 131_072;

fn shaping(config: &Config, problems: &mut Vec<Problem>) {
    let (qos, datapath) = (&config.qos, &config.datapath);
    if !super::qos::shapes(config) {
        return;
    }
    if datapath.kind == DatapathKind::Xdp && qos.slots > XDP_SLOTS_MAX {
        let reason = format!("kind xdp has at most {XDP_SLOTS_MAX}");
        problems.push(Problem::new("qos.slots", qos.slots, reason));
    }
    // Each packet that waits takes a buffer; as many must be left for those that come and go.
    let frames = u64::from(qos.frames) * u64::from(datapath.workers);
    if datapath.kind == DatapathKind::Dpdk && 2 * frames > u64::from(datapath.dpdk.mbufs) {
        let reason = format!(
            "with datapath.workers = {} this is more than half of datapath.dpdk.mbufs = {}",
            datapath.workers, datapath.dpdk.mbufs
        );
        problems.push(Problem::new("qos.frames", qos.frames, reason));
    }
    let slots = u64::from(qos.slots).next_power_of_two();
    let longest_us = slots * u64::from(qos.granularity_us);
    if longest_us > LONGEST_WAIT_S * 1_000_000 {
        let reason = format!(
            "with qos.granularity_us = {} packets would wait {} s, at most {LONGEST_WAIT_S} s",
            qos.granularity_us,
            longest_us / 1_000_000
        );
        problems.push(Problem::new("qos.slots", qos.slots, reason));
    }
}

fn n4(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    let listen = config.n4.listen;
    listens("n4.listen", listen, system, problems);
    if let Some(also) = config.n4.listen_also {
        listens("n4.listen_also", also, system, problems);
        if also.is_ipv4() == listen.is_ipv4() {
            let reason = "must be of the other address family than n4.listen";
            problems.push(Problem::new("n4.listen_also", also, reason));
        }
    }
    if config.n4.peer_port == Some(0) {
        problems.push(Problem::new("n4.peer_port", 0, "the port must not be 0"));
    }
    let (shapes, treats) = (
        super::qos::shapes(config),
        super::qos::for_core(config).treats_what_leaves(),
    );
    if config.n4.fast_path != FastPath::Off && (shapes || treats) {
        let reason = match shapes {
            true => "not where packets above their rate wait (qos.mode, qos.flow.mode: \"shape\")",
            false => "not with capacities, nor with qos.flow.dscp",
        };
        let value = config.n4.fast_path.name();
        problems.push(Problem::new("n4.fast_path", value, reason));
    }
    n4_interface(config, system, problems);
    let allow = &config.n4.allow;
    let mut seen = BTreeSet::new();
    for (i, smf) in config.n4.smf.iter().enumerate() {
        let key = format!("n4.smf[{i}]");
        if config.n4.listen_also.is_none() && smf.is_ipv4() != listen.is_ipv4() {
            problems.push(Problem::new(
                key,
                smf,
                "not of the address family of n4.listen",
            ));
        } else if smf.ip().is_unspecified() || smf.port() == 0 {
            problems.push(Problem::new(key, smf, "must be one address and port"));
        } else if !allow.is_empty() && !allow.iter().any(|net| net.contains(&smf.ip())) {
            problems.push(Problem::new(key, smf, "not among n4.allow"));
        } else if !seen.insert(smf) {
            problems.push(Problem::new(key, smf, "named twice"));
        }
    }
}

/// Of requests (TS 29.244, 6.2.2): a program looks at no other one.
const PFCP_PORT: u16 = 8805;

/// A program meets what comes by the interface of N4: first, or behind that of users' packets.
fn n4_interface(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    let n4 = &config.n4;
    let is_data = n4.fast_path == FastPath::Data;
    if is_data && config.datapath.kind != DatapathKind::Xdp {
        let reason = "a program of kind xdp does it; see datapath.kind, or \"user\"";
        problems.push(Problem::new("n4.fast_path", "data", reason));
    }
    if is_data && config.state.dir.is_some() && config.state.bpffs.is_none() {
        let reason = "with state.dir it needs state.bpffs, where the next process finds what was served last";
        problems.push(Problem::new("n4.fast_path", "data", reason));
    }
    let Some(name) = &n4.interface else {
        if is_data {
            let reason = "n4.fast_path = \"data\" needs the interface that N4 comes by";
            problems.push(Problem::missing("n4.interface", reason));
        }
        return;
    };
    let known = system.interfaces.contains_key(name);
    let own = system.interfaces.get(name);
    let has = |ip: IpAddr| own.is_none_or(|own| own.contains(&ip));
    let listen = || [Some(n4.listen), n4.listen_also].into_iter().flatten();
    let elsewhere = listen().find(|listen| !has(listen.ip()));
    let other = listen().find(|listen| listen.port() != PFCP_PORT);
    if let Some(other) = other.filter(|_| is_data) {
        let reason = format!("SMFs speak to port {PFCP_PORT} alone, and {other} has another one");
        problems.push(Problem::new("n4.fast_path", "data", reason));
    }
    let under = system.vlans.get(name);
    let reason = if !is_data {
        "is for n4.fast_path = \"data\"".to_owned()
    } else if !known {
        "no such interface; see: ip link".to_owned()
    } else if let Some(reason) = sharing_n4(config, name) {
        reason.to_owned()
    } else if under.is_some() {
        "a VLAN device knows no XDP: N4 needs an interface that has a driver".to_owned()
    } else if let Some(listen) = elsewhere {
        format!("does not have the address {}", listen.ip())
    } else {
        return;
    };
    problems.push(Problem::new("n4.interface", name, reason));
}

/// Why N4 cannot share an interface with users' packets, if it is theirs.
fn sharing_n4(config: &Config, name: &str) -> Option<&'static str> {
    let mut interfaces = config.interface.iter();
    let shared = interfaces.find(|interface| interface.name == name)?;
    if config.datapath.mode == XdpMode::Generic {
        Some(
            "carries users' packets, with datapath.mode = \"generic\": N4 needs a driver, or an interface of its own",
        )
    } else if shared.role.has_n6() && !shared.spread_cpus.is_empty() {
        Some(
            "spreads packets by their address over spread_cpus, N4's among them: N4 needs an interface of its own",
        )
    } else {
        None
    }
}

fn listens(key: &str, listen: std::net::SocketAddr, system: &System, problems: &mut Vec<Problem>) {
    if listen.ip().is_unspecified() {
        let reason = "must be one address of this machine: it is sent to SMFs in F-SEIDs";
        problems.push(Problem::new(key, listen, reason));
    } else if !system.has_address(listen.ip()) {
        problems.push(Problem::new(key, listen, "no interface has this address"));
    }
    if listen.port() == 0 {
        problems.push(Problem::new(key, listen, "the port must not be 0"));
    }
}

fn interfaces(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    if config.interface.len() > INTERFACES_MAX {
        let reason = format!("{} given, at most {INTERFACES_MAX}", config.interface.len());
        problems.push(Problem::missing("interface", reason));
    }
    let mut names = BTreeSet::new();
    let mut n3 = BTreeSet::new();
    let mut named = BTreeSet::new();
    for (i, interface) in config.interface.iter().enumerate() {
        let key = format!("interface[{i}]");
        let known = system.interfaces.contains_key(&interface.name);
        if !known && config.datapath.kind != DatapathKind::Dpdk {
            let reason = "no such interface; see: ip link";
            problems.push(Problem::new(format!("{key}.name"), &interface.name, reason));
        }
        if let Some(under) = system.vlans.get(&interface.name)
            && config.datapath.mode == XdpMode::Driver
            && config.datapath.kind == DatapathKind::Xdp
        {
            let reason = format!("a VLAN device knows no XDP; name {under}, which sees its frames");
            problems.push(Problem::new(format!("{key}.name"), &interface.name, reason));
        }
        if !names.insert(&interface.name) {
            problems.push(Problem::new(
                format!("{key}.name"),
                &interface.name,
                "named twice",
            ));
        }
        if interface.role.has_tunnels() && interface.addresses.is_empty() {
            let reason = "an interface with role n3 or n9 needs the address that GTP-U comes to";
            problems.push(Problem::missing(format!("{key}.addresses"), reason));
        }
        tunnel_networks(interface, &key, &mut named, problems);
        let used = config
            .network_instance
            .iter()
            .any(|ni| ni.interface == interface.name);
        let mut policies = config.forwarding_policy.iter();
        let used = used || policies.any(|policy| policy.is_by(&interface.name));
        if interface.role.has_n6() && !used {
            let reason = "has role n6, but no [[network_instance]] names it";
            problems.push(Problem::new(format!("{key}.name"), &interface.name, reason));
        }
        spread(interface, &key, system, problems);
        for (j, &address) in interface.addresses.iter().enumerate() {
            let key = format!("{key}.addresses[{j}]");
            if let Err(reason) = can_be_n3(address) {
                problems.push(Problem::new(key, address, reason));
            } else if !n3.insert(address) {
                problems.push(Problem::new(key, address, "named twice"));
            } else if known && !system.reaches(&interface.name, address) {
                let name = &interface.name;
                let reason = format!("neither {name} nor a VLAN device on it has this address");
                problems.push(Problem::new(key, address, reason));
            }
        }
    }
    for (family, is) in [
        ("IPv4", IpAddr::is_ipv4 as fn(&IpAddr) -> bool),
        ("IPv6", IpAddr::is_ipv6),
    ] {
        let n = n3.iter().filter(|address| is(address)).count();
        if n > N3_ADDRESSES_MAX {
            let reason = format!("{n} {family} addresses in all, at most {N3_ADDRESSES_MAX}");
            problems.push(Problem::missing("interface", reason));
        }
    }
    if !config.interface.iter().any(|i| i.role.has_tunnels()) {
        problems.push(Problem::missing(
            "interface",
            "none has role n3 or n9: no way to gNBs or other UPFs",
        ));
    }
    if !config.interface.iter().any(|i| i.role.has_n6()) {
        problems.push(Problem::missing(
            "interface",
            "none has role n6: no way to a data network",
        ));
    }
}

/// gNBs on other links must be able to answer, and the zero address ends our list.
fn can_be_n3(address: IpAddr) -> Result<(), &'static str> {
    match address {
        _ if address.is_unspecified() || address.is_multicast() => {
            Err("must be one address of this machine")
        }
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            Err("a link-local address; F-TEIDs need one that is routed")
        }
        _ => Ok(()),
    }
}

/// The network instances that mean an interface: each means one, and only tunnels go by them.
fn tunnel_networks(
    interface: &Interface,
    key: &str,
    named: &mut BTreeSet<String>,
    problems: &mut Vec<Problem>,
) {
    for (j, name) in interface.network_instances.iter().enumerate() {
        let reason = if !interface.role.has_tunnels() {
            "tunnels alone are told apart by it; a [[network_instance]] names its interface"
        } else if name.is_empty() || name.len() > 100 {
            "must have 1 to 100 characters"
        } else if !named.insert(name.to_ascii_lowercase()) {
            "named twice"
        } else {
            continue;
        };
        let key = format!("{key}.network_instances[{j}]");
        problems.push(Problem::new(key, name, reason));
    }
}

fn spread(interface: &Interface, key: &str, system: &System, problems: &mut Vec<Problem>) {
    let cpus = &interface.spread_cpus;
    if cpus.len() > LANES_MAX {
        let reason = format!("{} CPUs given, at most {LANES_MAX}", cpus.len());
        problems.push(Problem::missing(format!("{key}.spread_cpus"), reason));
    }
    for (j, cpu) in cpus.iter().enumerate() {
        let key = format!("{key}.spread_cpus[{j}]");
        if !system.topology.cpus.contains_key(cpu) {
            let reason = "no CPU with this number is online";
            problems.push(Problem::new(key, cpu, reason));
        } else if cpus.iter().take(j).any(|other| other == cpu) {
            problems.push(Problem::new(key, cpu, "named twice"));
        }
    }
}

/// Keys that only XDP knows, or does not know, and the forwarding that sockets of the kernel need.
fn kernel(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    let Datapath { kind, workers, .. } = config.datapath;
    if kind == DatapathKind::Xdp {
        if workers != 1 {
            let reason =
                "programs of kind xdp run on the CPUs that packets come in on; see spread_cpus";
            problems.push(Problem::new("datapath.workers", workers, reason));
        }
        return;
    }
    for (i, interface) in config.interface.iter().enumerate() {
        let Interface {
            name,
            role,
            spread_cpus,
            ..
        } = interface;
        if !spread_cpus.is_empty() {
            let reason = "is of kind xdp; see datapath.workers";
            problems.push(Problem::new(
                format!("interface[{i}].spread_cpus"),
                spread_cpus,
                reason,
            ));
        }
        if kind == DatapathKind::Kernel && role.has_n6() && system.interfaces.contains_key(name) {
            forwarding(config, system, (i, name), problems);
        }
    }
}

/// The kernel brings packets to UEs from where they come in.
fn forwarding(
    config: &Config,
    system: &System,
    (i, name): (usize, &str),
    problems: &mut Vec<Problem>,
) {
    let instances = config.network_instance.iter();
    let behind = instances.filter(|ni| ni.interface == name);
    let pools: Vec<&Prefix> = behind.flat_map(|ni| &ni.pools).collect();
    let has = |v4: bool| pools.iter().any(|pool| pool.0.addr().is_ipv4() == v4);
    let mut lacking = |switch: String| {
        let reason =
            format!("the kernel does not forward packets to UEs from there: sysctl -w {switch}=1");
        problems.push(Problem::new(format!("interface[{i}].name"), name, reason));
    };
    if has(true) && !system.forwarding4.contains(name) {
        lacking(format!("net/ipv4/conf/{name}/forwarding"));
    }
    if has(false) && !system.forwarding6 {
        lacking("net/ipv6/conf/all/forwarding".to_owned());
    }
}

fn network_instances(config: &Config, problems: &mut Vec<Problem>) {
    let reserve = config.limits.emergency_sessions.unwrap_or(0);
    if reserve > 0 && !config.network_instance.iter().any(|ni| ni.emergency) {
        let reason = "no network_instance.emergency is true, so nobody could have them";
        problems.push(Problem::new("limits.emergency_sessions", reserve, reason));
    }
    if config.network_instance.is_empty() {
        let reason = "none given; an SMF names one in each PDR, usually the DNN";
        problems.push(Problem::missing("network_instance", reason));
    }
    if config.network_instance.len() > 256 {
        let reason = format!("{} given, at most 256", config.network_instance.len());
        problems.push(Problem::missing("network_instance", reason));
    }
    let mut names = BTreeSet::new();
    for (i, ni) in config.network_instance.iter().enumerate() {
        let key = format!("network_instance[{i}]");
        let name = format!("{key}.name");
        if ni.name.is_empty() || ni.name.len() > 100 {
            problems.push(Problem::new(
                name,
                &ni.name,
                "must have 1 to 100 characters",
            ));
        } else if !names.insert(ni.name.to_ascii_lowercase()) {
            problems.push(Problem::new(name, &ni.name, "named twice"));
        }
        match config
            .interface
            .iter()
            .find(|interface| interface.name == ni.interface)
        {
            None => {
                let reason = "no [[interface]] has this name";
                problems.push(Problem::new(
                    format!("{key}.interface"),
                    &ni.interface,
                    reason,
                ));
            }
            Some(interface) if !interface.role.has_n6() => {
                let reason = "this interface does not have role n6";
                problems.push(Problem::new(
                    format!("{key}.interface"),
                    &ni.interface,
                    reason,
                ));
            }
            Some(_) => {}
        }
        if ni.table == 0 {
            problems.push(Problem::new(
                format!("{key}.table"),
                ni.table,
                "must not be 0",
            ));
        }
    }
}

/// Pools may overlap only where the interface tells packets to them apart.
fn pools(config: &Config, problems: &mut Vec<Problem>) {
    for (i, ni) in config.network_instance.iter().enumerate() {
        for (j, pool) in ni.pools.iter().enumerate() {
            let key = format!("network_instance[{i}].pools[{j}]");
            if let Err(reason) = pool_size(pool) {
                problems.push(Problem::new(&key, pool, reason));
            }
            let before =
                |(k, other): &(usize, &NetworkInstance)| *k <= i && other.interface == ni.interface;
            for (k, other) in config.network_instance.iter().enumerate().filter(before) {
                let earlier = if k == i { j } else { other.pools.len() };
                let overlaps =
                    |other: &&Prefix| pool.0.contains(&other.0) || other.0.contains(&pool.0);
                if let Some(twin) = other.pools.iter().take(earlier).find(overlaps) {
                    let whose = if k == i {
                        ""
                    } else {
                        " of a network instance beside it"
                    };
                    problems.push(Problem::new(
                        &key,
                        pool,
                        format!("overlaps {}{whose}", twin.0),
                    ));
                }
            }
            for interface in &config.interface {
                for &address in &interface.addresses {
                    if pool.0.contains(&address) {
                        let reason = format!("contains {address}, our own address on N3");
                        problems.push(Problem::new(&key, pool, reason));
                    }
                }
            }
        }
    }
}

/// Networks behind UEs overlap no pool.
fn framed_routes(config: &Config, problems: &mut Vec<Problem>) {
    for (i, ni) in config.network_instance.iter().enumerate() {
        let beside = config.network_instance.iter();
        let beside = beside.filter(|other| other.interface == ni.interface);
        let pools: Vec<&Prefix> = beside.flat_map(|other| &other.pools).collect();
        for (j, listed) in ni.framed_routes.iter().flatten().enumerate() {
            let overlaps =
                |pool: &&&Prefix| pool.0.contains(&listed.0) || listed.0.contains(&pool.0);
            if let Some(pool) = pools.iter().find(overlaps) {
                let key = format!("network_instance[{i}].framed_routes[{j}]");
                let reason = format!("overlaps {}, a pool of UEs", pool.0);
                problems.push(Problem::new(key, listed, reason));
            }
        }
    }
}

/// A UE gets one IPv4 address or one IPv6 /64.
fn pool_size(pool: &Prefix) -> Result<(), &'static str> {
    match pool.0 {
        ipnet::IpNet::V4(net) if net.prefix_len() < 8 => Err("must be /8 or longer"),
        ipnet::IpNet::V4(net) if net.prefix_len() > 30 => Err("must be /30 or shorter"),
        ipnet::IpNet::V6(net) if net.prefix_len() < 32 => Err("must be /32 or longer"),
        ipnet::IpNet::V6(net) if net.prefix_len() > 64 => {
            Err("must be /64 or shorter: each UE gets a /64")
        }
        _ => Ok(()),
    }
}

fn ranges(config: &Config, problems: &mut Vec<Problem>) {
    if !config.buffering.ring_mib.is_power_of_two() {
        let reason = "must be a power of two";
        let key = "buffering.ring_mib";
        problems.push(Problem::new(key, config.buffering.ring_mib, reason));
    }
    let mut range = |key: &str, value: u32, range: RangeInclusive<u32>| {
        if !range.contains(&value) {
            let reason = format!("must lie between {} and {}", range.start(), range.end());
            problems.push(Problem::new(key, value, reason));
        }
    };
    range("datapath.workers", config.datapath.workers, 1..=64);
    range(
        "datapath.dpdk.mbufs",
        config.datapath.dpdk.mbufs,
        1024..=4_194_304,
    );
    range("datapath.dpdk.ring", config.ring(), 32..=65536);
    range("datapath.settle_s", config.datapath.settle_s, 0..=3600);
    range("state.unmanaged_s", config.state.unmanaged_s, 5..=2_592_000);
    range("n4.heartbeat_s", config.n4.heartbeat_s, 0..=3600);
    range("n4.t1_ms", config.n4.t1_ms, 10..=60_000);
    range("n4.n1", config.n4.n1, 1..=10);
    range("n4.retry_at_most_s", config.n4.retry_at_most_s, 1..=3600);
    range(
        "n4.path_failure_retention_s",
        config.n4.path_failure_retention_s,
        0..=604_800,
    );
    range(
        "n4.receive_buffer_mib",
        config.n4.receive_buffer_mib,
        1..=1024,
    );
    range(
        "gtpu.echo_interval_s",
        config.gtpu.echo_interval_s,
        0..=3600,
    );
    range("gtpu.echo_t3_ms", config.gtpu.echo_t3_ms, 100..=60_000);
    range("gtpu.echo_n3", config.gtpu.echo_n3, 1..=20);
    range(
        "n4.graceful_release_s",
        config.n4.graceful_release_s,
        0..=3600,
    );
    range(
        "n4.overload_at_percent",
        config.n4.overload_at_percent.into(),
        0..=100,
    );
    range("n4.busy_poll_us", config.n4.busy_poll_us, 0..=1000);
    let limits = &config.limits;
    range("limits.sessions", limits.sessions, 1..=4_194_304);
    range("limits.entries", limits.entries(), 1024..=16_777_216);
    range("limits.filters", limits.filters(), 1024..=7_340_032);
    range("limits.smfs", limits.smfs, 1..=4096);
    range("limits.shares", limits.shares, 0..=64);
    let emergency = limits.emergency_sessions.unwrap_or(0);
    range(
        "limits.emergency_sessions",
        emergency,
        0..=limits.sessions / 2,
    );
    range("limits.gnbs", limits.gnbs, 1..=1_048_576);
    range("limits.neighbours", limits.neighbours, 16..=1_048_576);
    range("limits.routes", limits.routes, 16..=1_048_576);
    range("limits.pdrs_per_session", limits.pdrs_per_session, 2..=256);
    range("limits.fars_per_session", limits.fars_per_session, 2..=256);
    range("limits.qers_per_session", limits.qers_per_session, 1..=256);
    range("limits.urrs_per_session", limits.urrs_per_session, 1..=256);
    range("limits.bars_per_session", limits.bars_per_session, 1..=256);
    range(
        "limits.filters_per_session",
        limits.filters_per_session,
        1..=1024,
    );
    let buffering = &config.buffering;
    range("buffering.max_mib", buffering.max_mib, 0..=1_048_576);
    range(
        "buffering.max_packets",
        buffering.max_packets,
        1..=1_000_000_000,
    );
    range(
        "buffering.max_packets_per_session",
        buffering.max_packets_per_session,
        1..=1_000_000,
    );
    range("buffering.max_age_s", buffering.max_age_s, 1..=86_400);
    range("buffering.ring_mib", buffering.ring_mib, 1..=1024);
    range("qos.granularity_us", config.qos.granularity_us, 1..=100_000);
    range("qos.slots", config.qos.slots, 16..=262_144);
    range("qos.frames", config.qos.frames, 16..=1_048_576);
    range("qos.burst_ms", config.qos.burst_ms, 1..=10_000);
    range("qos.l4s_us", config.qos.l4s_us, 0..=1_000_000);
    let percent = config.qos.guaranteed_percent;
    range("qos.guaranteed_percent", percent, 0..=100);
    range(
        "qos.burst_min_bytes",
        config.qos.burst_min_bytes,
        1500..=16_777_216,
    );
    range(
        "gtpu.error_indications_per_s",
        config.gtpu.error_indications_per_s,
        0..=1_000_000,
    );
    range(
        "datapath.icmp_errors_per_s",
        config.datapath.icmp_errors_per_s,
        0..=1_000_000,
    );
    range(
        "gtpu.restart_grace_s",
        config.gtpu.restart_grace_s,
        0..=3600,
    );
    range("gtpu.echo_per_s", config.gtpu.echo_per_s, 1..=1_000_000);
    range(
        "api.max_connections",
        config.api.max_connections,
        1..=10_000,
    );
    let connections = config.api.client_connections;
    range("api.client_connections", connections, 1..=10_000);
    let requests = config.api.client_requests_per_s;
    range("api.client_requests_per_s", requests, 1..=1_000_000);
    range("usage_log.max_mb", config.usage_log.max_mb, 1..=65_536);
    range("usage_log.files", config.usage_log.files, 1..=1000);
    if limits.entries() < limits.sessions {
        let reason = format!(
            "fewer than limits.sessions = {}: each session needs at least one",
            limits.sessions
        );
        problems.push(Problem::new("limits.entries", limits.entries(), reason));
    }
}

fn usage_log(config: &Config, problems: &mut Vec<Problem>) {
    let Some(path) = &config.usage_log.path else {
        return;
    };
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if path.file_name().is_none() || folder.is_some_and(|folder| !folder.is_dir()) {
        let reason = "must be a file in a folder that exists";
        problems.push(Problem::new("usage_log.path", path, reason));
    }
}

fn state(config: &Config, problems: &mut Vec<Problem>) {
    let state = &config.state;
    if let Some(dir) = &state.dir
        && (!dir.is_absolute() || dir.exists() && !dir.is_dir())
    {
        let reason = "must be a folder, by its path from the root";
        problems.push(Problem::new("state.dir", dir, reason));
    }
    if let Some(bpffs) = &state.bpffs {
        let reason = if !bpffs.is_absolute() || bpffs.exists() && !bpffs.is_dir() {
            Some("must be a folder in a bpffs, by its path from the root")
        } else if state.dir.is_none() {
            Some("needs state.dir, where sessions are kept")
        } else if config.datapath.kind != DatapathKind::Xdp {
            Some("is for datapath.kind = \"xdp\", which alone goes on without turnpiked")
        } else {
            None
        };
        problems.extend(reason.map(|reason| Problem::new("state.bpffs", bpffs, reason)));
    }
    if let Some(disk) = &state.disk {
        let reason = if !disk.is_absolute() || disk.exists() && !disk.is_dir() {
            Some("must be a folder on a disk, by its path from the root")
        } else if state.dir.is_none() {
            Some("needs state.dir, of which it has a copy")
        } else if state.dir.as_ref() == Some(disk) {
            Some("must be another folder than state.dir, on a disk")
        } else {
            None
        };
        problems.extend(reason.map(|reason| Problem::new("state.disk", disk, reason)));
    }
    if state.dir.is_none() && state.on_stop == OnStop::Keep {
        let reason = "needs state.dir, where sessions are kept";
        problems.push(Problem::new("state.on_stop", "keep", reason));
    }
}

fn api(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    let api = &config.api;
    let ip = api.listen.ip();
    if !ip.is_unspecified() && !system.has_address(ip) {
        problems.push(Problem::new(
            "api.listen",
            api.listen,
            "no interface has this address",
        ));
    }
    match &api.token_file {
        Some(path) => {
            if let Err(reason) = read_token(path) {
                problems.push(Problem::new("api.token_file", path, reason));
            }
        }
        None if !ip.is_loopback() => {
            let reason = format!(
                "is required, because api.listen = {} is not loopback",
                api.listen
            );
            problems.push(Problem::missing("api.token_file", reason));
        }
        None => {}
    }
}
