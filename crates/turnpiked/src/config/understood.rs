//! Summary of a valid configuration, in the words of an operator.

use std::fmt::Display;

use super::{
    Config, DatapathKind, ForwardingPolicy, Interface, NetworkInstance, OnStop, Qos, Role, State,
    XdpMode,
};

/// Lines; what was left to defaults is in them too. `table_octets`: memory of the tables.
pub(crate) fn understood(config: &Config, table_octets: u64) -> Vec<String> {
    let mut lines = vec![n4(config), datapath(config)];
    lines.extend(
        config
            .interface
            .iter()
            .map(|interface| of_interface(config, interface)),
    );
    lines.extend(config.network_instance.iter().map(of_instance));
    if !config.predefined_rule.is_empty() {
        let names = config.predefined_rule.iter().map(|rule| &rule.name);
        lines.push(format!("predefined rules: {}", list(names)));
    }
    lines.extend(
        config
            .forwarding_policy
            .iter()
            .map(ForwardingPolicy::understood),
    );
    if super::qos::shapes(config) {
        lines.push(shaping(&config.qos, config.datapath.kind));
    }
    lines.extend(super::qos::understood(config));
    lines.push(room(config, table_octets));
    lines.push(reports(config));
    lines.extend(super::nrf::understood(config));
    lines.extend(super::nupf::understood(config));
    lines.extend(super::telemetry::understood(config));
    lines.push(state(config));
    lines
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}

fn n4(config: &Config) -> String {
    let n4 = &config.n4;
    let listen = list([Some(n4.listen), n4.listen_also].into_iter().flatten());
    let who = match n4.allow.as_slice() {
        [] => "anybody may speak PFCP (n4.allow is empty)".to_owned(),
        allow => format!("{} may speak PFCP", list(allow)),
    };
    let set_up = match n4.smf.as_slice() {
        [] => "SMFs set up associations".to_owned(),
        smfs => format!("we set up associations with {}", list(smfs)),
    };
    format!(
        "n4: {listen} as Node ID {}; {who}; {set_up}",
        config.node.id
    )
}

fn shaping(qos: &Qos, kind: DatapathKind) -> String {
    let whose = match kind {
        DatapathKind::Xdp => "in all",
        DatapathKind::Kernel | DatapathKind::Dpdk => "in each worker",
    };
    let longest_us = u64::from(qos.slots.next_power_of_two()) * u64::from(qos.granularity_us);
    format!(
        "qos: packets above a maximum bit rate wait up to {} ms, {} {whose}",
        longest_us / 1000,
        qos.frames
    )
}

fn datapath(config: &Config) -> String {
    let datapath = &config.datapath;
    match (datapath.kind, datapath.mode) {
        (DatapathKind::Xdp, XdpMode::Driver) => "datapath: XDP in the driver".to_owned(),
        (DatapathKind::Xdp, XdpMode::Generic) => {
            "datapath: XDP in generic mode, several times slower".to_owned()
        }
        (DatapathKind::Kernel, _) => format!(
            "datapath: sockets of the kernel, {} workers; the slowest there is",
            datapath.workers
        ),
        (DatapathKind::Dpdk, _) => {
            let where_to = match datapath.cpus.as_slice() {
                [] => "on any CPU".to_owned(),
                cpus => format!("on CPUs {}", list(cpus)),
            };
            let idle = match datapath.busy_poll {
                true => "never sleeping",
                false => "sleeping when idle",
            };
            format!(
                "datapath: DPDK, {}, {} workers {where_to}{}, {idle}",
                datapath.dpdk.model.name(),
                datapath.workers,
                receivers(config)
            )
        }
    }
}

/// In front of the workers.
fn receivers(config: &Config) -> String {
    match (config.receivers(), config.datapath.dpdk.rx_cpus.as_slice()) {
        (0, _) => String::new(),
        (n, []) => format!(" behind {n} receive core on any CPU"),
        (n, cpus) => format!(" behind {n} receive cores on CPUs {}", list(cpus)),
    }
}

fn of_interface(config: &Config, interface: &Interface) -> String {
    let Interface { name, role, .. } = interface;
    let mut parts = Vec::new();
    if let Some(device) = &interface.device {
        parts.push(format!("device {device}"));
    }
    if role.has_tunnels() {
        let what = match role {
            Role::N9 | Role::N9AndN6 => "tunnels of other UPFs",
            _ => "tunnels of gNBs",
        };
        parts.push(format!("{what} at {}", list(&interface.addresses)));
        if !interface.network_instances.is_empty() {
            let names = list(&interface.network_instances);
            parts.push(format!("for network instances {names}"));
        }
    }
    if role.has_n6() {
        let instances = config.network_instance.iter();
        let names = instances
            .filter(|ni| ni.interface == *name)
            .map(|ni| &ni.name);
        parts.push(format!("packets of {}", list(names)));
    }
    if !interface.rx_cpus.is_empty() {
        parts.push(format!("polled by CPUs {}", list(&interface.rx_cpus)));
    }
    if !interface.spread_cpus.is_empty() {
        parts.push(format!("spread over CPUs {}", list(&interface.spread_cpus)));
    }
    format!("interface {name} ({}): {}", role.name(), parts.join("; "))
}

fn of_instance(ni: &NetworkInstance) -> String {
    let pools = match ni.pools.as_slice() {
        [] => "SMFs give UE addresses, none come from a pool".to_owned(),
        pools => format!(
            "UE addresses from {}, and what SMFs give",
            list(pools.iter().map(|pool| pool.0))
        ),
    };
    let among = match ni.ue_to_ue {
        true => "UEs reach each other",
        false => "UEs do not reach each other",
    };
    let framed = match ni.framed_routes.as_deref() {
        None => "any that overlap nothing".to_owned(),
        Some([]) => "none".to_owned(),
        Some(within) => format!("within {}", list(within.iter().map(|net| net.0))),
    };
    format!(
        "network instance {} on {}: {pools}; routes of table {}; framed routes: {framed}; {among}",
        ni.name, ni.interface, ni.table
    )
}

fn room(config: &Config, table_octets: u64) -> String {
    let limits = &config.limits;
    format!(
        "room: {} sessions, {} PDRs, {} SDF filters, {} SMFs, {} gNBs, {} MiB and {} packets that wait for idle UEs; tables of {} MiB",
        limits.sessions,
        limits.entries(),
        limits.filters(),
        limits.smfs,
        limits.gnbs,
        config.buffering.max_mib,
        config.buffering.max_packets,
        table_octets.div_ceil(1 << 20)
    )
}

fn state(config: &Config) -> String {
    let State {
        dir,
        bpffs,
        disk,
        unmanaged_s,
        on_stop,
    } = &config.state;
    match dir {
        None => "sessions end with the process".to_owned(),
        Some(dir) => {
            let then = match on_stop {
                OnStop::Release => "a stop releases them",
                OnStop::Keep => "a stop leaves them",
            };
            let packets = match (config.datapath.kind, bpffs) {
                (DatapathKind::Dpdk, _) => format!(
                    ", packets go on for {unmanaged_s} s by workers of their own where it has room in huge pages"
                ),
                (_, Some(bpffs)) => {
                    format!(", packets go on for {unmanaged_s} s by {}", bpffs.display())
                }
                (_, None) => String::new(),
            };
            let host = disk.as_ref().map_or(String::new(), |disk| {
                format!(", and the host in {}", disk.display())
            });
            format!(
                "sessions outlive the process in {}{host}{packets}; {then}",
                dir.display()
            )
        }
    }
}

fn reports(config: &Config) -> String {
    let token = match &config.api.token_file {
        Some(file) => format!("with the token of {}", file.display()),
        None => "without token".to_owned(),
    };
    let log = match &config.usage_log.path {
        Some(path) => format!("usage is logged in {}", path.display()),
        None => "usage is not logged".to_owned(),
    };
    format!("REST: {}, {token}; {log}", config.api.listen)
}
