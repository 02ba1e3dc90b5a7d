//! The configuration, as the core and the tables take it.

use std::net::IpAddr;
use std::time::Duration;

use compiled::{NiId, PolicyId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use report::{CoresReport, CpuReport};
use session::config as core;
use slowpath::BufferBounds;
use slowpath::advertise::Advertised;
use tables::{Layout, Mode, N4Port, Options, PortConfig, Roles, Shaping};
use topology::Topology;

use crate::config::{
    Config, DatapathKind, FastPath, ForwardingPolicy, Interface, NetworkInstance, NodeId, XdpMode,
    doubts,
};

/// UE addresses of one page of the tables: `TP_UE_PAGE_BITS`.
const UE_PAGE: u64 = 1 << 14;

/// Network instances by number.
fn numbered(config: &Config) -> impl Iterator<Item = (NiId, &NetworkInstance)> {
    (0..).map(NiId).zip(&config.network_instance)
}

/// Under which numbers the tables have the routes of a network instance, and of policies for its packets.
pub(crate) fn routed(config: &Config, ni: NiId) -> impl Iterator<Item = NiId> {
    let instances = u16::try_from(config.network_instance.len()).unwrap_or(u16::MAX);
    let policies = PolicyId::all().take(config.forwarding_policy.len());
    std::iter::once(ni).chain(policies.map(move |policy| policy.routes_for(ni, instances)))
}

/// The first network instance on an interface; an interface without one has the first of all.
fn home(config: &Config, interface: &str) -> NiId {
    numbered(config)
        .find(|(_, ni)| ni.interface == interface)
        .map_or(NiId(0), |(id, _)| id)
}

/// Network instances that share an interface with an earlier one, and that one.
pub(crate) fn homes(config: &Config) -> impl Iterator<Item = (NiId, NiId)> {
    numbered(config)
        .map(|(id, ni)| (id, home(config, &ni.interface)))
        .filter(|(id, home)| id != home)
}

/// In the order of the file, which is that of the data path's ports.
pub(crate) fn ports(config: &Config) -> Vec<PortConfig> {
    let port = |interface: &Interface| PortConfig {
        name: interface.name.clone(),
        roles: Roles {
            n3: interface.role.has_tunnels(),
            n6: interface.role.has_n6(),
        },
        ni: home(config, &interface.name),
        mode: match config.datapath.mode {
            XdpMode::Driver => Mode::Driver,
            XdpMode::Generic => Mode::Generic,
        },
        spread: interface.spread_cpus.clone(),
        addresses: interface.addresses.clone(),
        device: interface.device.clone().unwrap_or_default(),
        polled_by: config.polled_by(interface),
        has_n4: config.n4.fast_path == FastPath::Data
            && config.n4.interface.as_ref() == Some(&interface.name),
        is_forwarded: config.datapath.kind == DatapathKind::Kernel,
    };
    config.interface.iter().map(port).collect()
}

/// One of each family at most.
fn n4_addresses(config: &Config) -> Vec<IpAddr> {
    let listen = [Some(config.n4.listen), config.n4.listen_also];
    let listen = listen.into_iter().flatten();
    listen.map(|listen| listen.ip()).collect()
}

pub(crate) fn n3_addresses(config: &Config) -> Vec<IpAddr> {
    config
        .interface
        .iter()
        .flat_map(|interface| interface.addresses.iter().copied())
        .collect()
}

/// One for each interface with tunnels. Without any for N9, those of N3 lead to the core too.
fn tunnel_networks(config: &Config) -> Vec<core::TunnelNetwork> {
    let interfaces = config.interface.iter();
    let with_tunnels = interfaces.filter(|interface| interface.role.has_tunnels());
    let network = |interface: &Interface| core::TunnelNetwork {
        addresses: interface.addresses.clone(),
        core: interface.role.has_n9(),
        network_instances: interface.network_instances.clone(),
    };
    with_tunnels.map(network).collect()
}

fn v4(ni: &NetworkInstance) -> impl Iterator<Item = Ipv4Net> {
    ni.pools.iter().filter_map(|pool| match pool.0 {
        IpNet::V4(net) => Some(net),
        IpNet::V6(_) => None,
    })
}

fn v6(ni: &NetworkInstance) -> impl Iterator<Item = Ipv6Net> {
    ni.pools.iter().filter_map(|pool| match pool.0 {
        IpNet::V4(_) => None,
        IpNet::V6(net) => Some(net),
    })
}

/// Of both families.
pub(crate) fn pools(config: &Config) -> impl Iterator<Item = (NiId, IpNet)> {
    numbered(config).flat_map(|(id, ni)| ni.pools.iter().map(move |pool| (id, pool.0)))
}

fn pools4(config: &Config) -> impl Iterator<Item = (NiId, Ipv4Net)> {
    numbered(config).flat_map(|(id, ni)| v4(ni).map(move |pool| (id, pool)))
}

/// Whether UEs of each network instance reach each other within this UPF.
pub(crate) fn ue_to_ue(config: &Config) -> impl Iterator<Item = (NiId, bool)> {
    numbered(config).map(|(id, ni)| (id, ni.ue_to_ue))
}

/// Addresses that the router of each network instance calls itself by.
pub(crate) fn router_addresses(config: &Config) -> impl Iterator<Item = (NiId, IpAddr)> {
    numbered(config).flat_map(|(id, ni)| ni.router.addresses.iter().map(move |addr| (id, *addr)))
}

/// Advertisements for the UEs of each network instance that ask for their router.
pub(crate) fn advertised(config: &Config) -> impl Iterator<Item = (NiId, Advertised)> {
    numbered(config)
        .filter(|(_, ni)| ni.router.advertise)
        .map(|(id, ni)| {
            let what = Advertised {
                lifetime_s: ni.router.lifetime_s,
                mtu: ni.router.mtu,
                dns: ni.router.dns.clone(),
            };
            (id, what)
        })
}

/// Room for what the limits allow.
pub(crate) fn layout(config: &Config) -> Layout {
    let limits = &config.limits;
    let pages = |pool: Ipv4Net| (1u64 << (32 - pool.prefix_len())).div_ceil(UE_PAGE);
    let ue_pages: u64 = pools4(config).map(|(_, pool)| pages(pool)).sum();
    let sessions = limits.sessions.max(limits.entries() / 2);
    let nis = u32::try_from(config.network_instance.len()).unwrap_or(u32::MAX);
    Layout {
        policies: u32::try_from(config.forwarding_policy.len()).unwrap_or(u32::MAX),
        peers: limits.gnbs,
        // One place of each is nobody's: what an empty word leads to.
        nexthops: limits.neighbours + 1,
        routes: limits.routes + 1,
        buckets: Layout::buckets_for(sessions, limits.neighbours),
        workers: config.datapath.workers,
        held_ring: config.buffering.ring_mib << 20,
        shaping: shaping(config),
        ..Layout::with_filters(
            sessions,
            limits.filters(),
            nis,
            u32::try_from(ue_pages).unwrap_or(u32::MAX),
        )
    }
    .sharing(crate::config::qos::for_tables(config))
}

fn shaping(config: &Config) -> Option<Shaping> {
    let qos = &config.qos;
    crate::config::qos::shapes(config).then(|| Shaping {
        granularity: Duration::from_micros(qos.granularity_us.into()),
        slots: qos.slots,
        frames: qos.frames,
    })
}

/// Bounds of packets that are buffered for idle UEs. Where none is, SMFs hear of their packets all the same.
pub(crate) fn buffering(config: &Config) -> BufferBounds {
    let buffering = &config.buffering;
    BufferBounds {
        bytes: buffering.max_mib as usize * (1 << 20),
        packets: buffering.max_packets as usize,
        packets_per_session: buffering.max_packets_per_session,
        age: Duration::from_secs(buffering.max_age_s.into()),
    }
}

pub(crate) fn options(config: &Config) -> Options {
    Options {
        // `Control` lets them begin when the grace is over.
        error_indications_per_s: 0,
        echo_per_s: config.gtpu.echo_per_s,
        icmp_errors_per_s: config.datapath.icmp_errors_per_s,
        l4s: (config.qos.l4s_us > 0).then(|| Duration::from_micros(config.qos.l4s_us.into())),
        outer6: n3_addresses(config).iter().any(IpAddr::is_ipv6),
        udp6_checksum: config.gtpu.udp6_checksum,
        settle: Duration::from_secs(config.datapath.settle_s.into()),
        n4: (config.n4.fast_path == FastPath::Data).then(|| N4Port {
            interface: config.n4.interface.clone(),
            addresses: n4_addresses(config),
        }),
        ..Options::default()
    }
}

/// CPUs of a machine, and which threads run there.
pub(crate) fn cores(config: &Config, topology: &Topology) -> CoresReport {
    let seats = config.seats();
    let polled = |cpu: u32| {
        let interfaces = config.interface.iter();
        let own = interfaces.filter(move |interface| interface.rx_cpus.contains(&cpu));
        own.map(|interface| format!("frames of {}", interface.name))
    };
    let lanes = |cpu: u32| {
        let spreads = config.interface.iter();
        let spreads = spreads.filter(move |interface| interface.spread_cpus.contains(&cpu));
        spreads.map(|interface| format!("users of {}", interface.name))
    };
    let core = |(&number, cpu): (&u32, &topology::Cpu)| CpuReport {
        cpu: number,
        node: cpu.node,
        socket: cpu.socket,
        core: cpu.core,
        siblings: cpu.siblings.iter().copied().collect(),
        allowed: cpu.allowed,
        threads: {
            let seats = seats.iter().filter(|seat| seat.cpu == number);
            let threads = seats.map(|seat| seat.thread.clone());
            threads.chain(polled(number)).chain(lanes(number)).collect()
        },
    };
    let is_dpdk = config.datapath.kind == DatapathKind::Dpdk;
    CoresReport {
        kind: config.datapath.kind.name().to_owned(),
        model: is_dpdk.then(|| config.datapath.dpdk.model.name().to_owned()),
        cpus: topology.cpus.iter().map(core).collect(),
        anywhere: config.without_seat(),
        doubts: doubts(config, topology),
    }
}

/// Whether workers of DPDK have the same of both configurations, but for tables.
#[cfg(feature = "dpdk")]
pub(crate) fn are_workers_alike(one: &Config, other: &Config) -> bool {
    let of = |config: &Config| {
        let layout = layout(config);
        let settings = (dpdk(config, None), ports(config));
        (settings, layout.workers, layout.shaping)
    };
    of(one) == of(other)
}

#[cfg(not(feature = "dpdk"))]
pub(crate) fn are_workers_alike(_: &Config, _: &Config) -> bool {
    true
}

/// Settings of DPDK's environment. `node`: NUMA node of the NICs.
#[cfg(feature = "dpdk")]
pub(crate) fn dpdk(config: &Config, node: Option<u32>) -> tables::dpdk::Settings {
    let datapath = &config.datapath;
    tables::dpdk::Settings {
        eal: datapath.dpdk.eal.clone(),
        buffers: datapath.dpdk.mbufs,
        cpus: datapath.cpus.clone(),
        busy_poll: datapath.busy_poll,
        pipeline: config.has_receivers().then(|| tables::dpdk::Pipeline {
            receivers: config.receivers(),
            cpus: datapath.dpdk.rx_cpus.clone(),
            ring: config.ring(),
        }),
        node,
        ..tables::dpdk::Settings::default()
    }
}

/// Interfaces, network instances and policies that next hops are looked up for.
pub(crate) fn next_hops(config: &Config) -> nix::Result<nexthop::Config> {
    let mut ports = Vec::new();
    for (slot, interface) in (0..).zip(&config.interface) {
        ports.push(nexthop::Port {
            slot,
            name: interface.name.clone(),
            ifindex: nix::net::if_::if_nametoindex(interface.name.as_str())?,
        });
    }
    let slot_of = |name: &str| {
        ports
            .iter()
            .find(|port| port.name == name)
            .map(|port| port.slot)
    };
    let network_instances = numbered(config).filter_map(|(id, ni)| {
        Some(nexthop::NetworkInstance {
            id,
            // The check of the configuration has found each.
            slot: slot_of(&ni.interface)?,
            table: ni.table,
        })
    });
    let policies = config.forwarding_policy.iter();
    Ok(nexthop::Config {
        network_instances: network_instances.collect(),
        policies: policies
            .map(|policy| policy.to_next_hops(slot_of))
            .collect(),
        ports,
        n3_table: nexthop::TABLE_MAIN,
    })
}

/// Configuration of the core.
pub(crate) fn session(config: &Config, seed: u64) -> session::Config {
    let seconds = |s: u32| Duration::from_secs(s.into());
    let n4 = &config.n4;
    session::Config {
        node_id: match &config.node.id {
            NodeId::Ip(ip) => core::NodeIdConfig::Ip(*ip),
            NodeId::Fqdn(name) => core::NodeIdConfig::Fqdn(name.clone()),
        },
        n4: n4_addresses(config),
        n3: n3_addresses(config),
        own: router_addresses(config).map(|(_, addr)| addr).collect(),
        tunnel_networks: tunnel_networks(config),
        network_instances: config
            .network_instance
            .iter()
            .map(|ni| core::NetworkInstance {
                name: ni.name.clone(),
                pools4: v4(ni).collect(),
                pools6: v6(ni).collect(),
                framed_routes: (ni.framed_routes.as_ref())
                    .map(|listed| listed.iter().map(|net| net.0).collect()),
                home: Some(home(config, &ni.interface)),
                emergency: ni.emergency,
            })
            .collect(),
        predefined_rules: predefined_rules(config),
        forwarding_policies: (config.forwarding_policy.iter())
            .map(ForwardingPolicy::to_core)
            .collect(),
        limits: limits(config),
        burst: core::Burst {
            ms: config.qos.burst_ms,
            min_bytes: config.qos.burst_min_bytes,
        },
        qos: crate::config::qos::for_core(config),
        heartbeat_interval: seconds(n4.heartbeat_s),
        t1: Duration::from_millis(n4.t1_ms.into()),
        n1: n4.n1,
        retry_at_most: seconds(n4.retry_at_most_s),
        path_failure_retention: seconds(n4.path_failure_retention_s),
        echo_interval: seconds(config.gtpu.echo_interval_s),
        echo_t3: Duration::from_millis(config.gtpu.echo_t3_ms.into()),
        echo_n3: config.gtpu.echo_n3,
        graceful_release: seconds(n4.graceful_release_s),
        overload_at_percent: n4.overload_at_percent,
        peer_port: n4.peer_port,
        fast_path: n4.fast_path != FastPath::Off,
        allow: n4.allow.clone(),
        seed,
        ..session::Config::default()
    }
}

fn predefined_rules(config: &Config) -> Vec<core::PredefinedRule> {
    let instances = config.network_instance.iter().map(|ni| ni.name.clone());
    let instances: Vec<String> = instances.collect();
    let rules = config.predefined_rule.iter();
    rules.map(|rule| rule.to_core(&instances)).collect()
}

/// Sessions that emergency networks alone may have.
fn emergency_sessions(config: &Config) -> u32 {
    let has_such = config.network_instance.iter().any(|ni| ni.emergency);
    let usual = if has_such {
        config.limits.sessions.div_ceil(100)
    } else {
        0
    };
    config.limits.emergency_sessions.unwrap_or(usual)
}

fn limits(config: &Config) -> core::Limits {
    let limits = &config.limits;
    core::Limits {
        sessions: limits.sessions,
        pdrs_per_session: limits.pdrs_per_session as usize,
        fars_per_session: limits.fars_per_session as usize,
        qers_per_session: limits.qers_per_session as usize,
        urrs_per_session: limits.urrs_per_session as usize,
        bars_per_session: limits.bars_per_session as usize,
        filters_per_session: limits.filters_per_session as usize,
        peers: limits.smfs as usize,
        shares: limits.shares,
        emergency_sessions: emergency_sessions(config),
        ..core::Limits::default()
    }
}
