//! Checks of what only a data path over DPDK has.

use std::collections::BTreeSet;

use super::system::System;
use super::{Config, DatapathKind, Dpdk, Problem, cores};

/// Arguments of DPDK about its threads and its files.
const OURS: [(&str, &str); 9] = [
    ("-l", THREADS),
    ("-c", THREADS),
    ("--lcores", THREADS),
    ("-s", THREADS),
    ("-S", THREADS),
    ("--main-lcore", THREADS),
    ("--in-memory", "it is always given"),
    ("--proc-type", "turnpiked is the only process of its kind"),
    ("--file-prefix", "nothing is left in the file system"),
];
const THREADS: &str =
    "threads are a matter of datapath.workers, datapath.cpus and datapath.dpdk.rx_cpus";

pub(super) fn check(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    match config.datapath.kind {
        DatapathKind::Dpdk => {
            if !cfg!(feature = "dpdk") {
                let reason = "this turnpiked was built without it: make build DPDK=1";
                problems.push(Problem::new("datapath.kind", "dpdk", reason));
            }
            devices(config, problems);
            wires(config, system, problems);
            cores::check(config, &system.topology, problems);
            buffers(config, problems);
            arguments(&config.datapath.dpdk.eal, problems);
        }
        _ => of_others(config, problems),
    }
}

fn devices(config: &Config, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (i, interface) in config.interface.iter().enumerate() {
        let key = format!("interface[{i}].device");
        let Some(device) = &interface.device else {
            let reason = "is required for kind dpdk, such as \"0000:01:00.0\"";
            problems.push(Problem::missing(key, reason));
            continue;
        };
        let name = device.split(',').next().unwrap_or_default();
        let reason = if name.is_empty() || device.contains(|c: char| c.is_whitespace() || c == '\0')
        {
            "must be a name and its arguments, with commas and without spaces"
        } else if !seen.insert(name) {
            "named twice"
        } else {
            continue;
        };
        problems.push(Problem::new(key, device, reason));
    }
}

/// Behind devices of net_af_packet the kernel sees what comes in, too: it would answer that no network leads to UEs.
fn wires(config: &Config, system: &System, problems: &mut Vec<Problem>) {
    for (i, interface) in config.interface.iter().enumerate() {
        let device = interface.device.as_deref().unwrap_or_default();
        let mut arguments = device.split(',');
        if !(arguments.next()).is_some_and(|name| name.starts_with("net_af_packet")) {
            continue;
        }
        let wire = arguments.find_map(|argument| argument.strip_prefix("iface="));
        let lacking = wire.and_then(|wire| system.meddling.get(wire));
        if let Some(lacking) = lacking.filter(|lacking| !lacking.is_empty()) {
            let lacking = lacking.join(" ");
            let reason =
                format!("the kernel meddles with what comes in there: sysctl -w {lacking}");
            problems.push(Problem::new(
                format!("interface[{i}].device"),
                device,
                reason,
            ));
        }
    }
}

/// Rings to workers that do not keep up leave buffers to everybody else, beside packets that wait for their rates.
fn buffers(config: &Config, problems: &mut Vec<Problem>) {
    let (pairs, ring, waiting) = (config.ring_count(), config.ring(), config.waiting_frames());
    let mbufs = config.datapath.dpdk.mbufs;
    let in_rings = pairs * u64::from(ring);
    if pairs == 0 || in_rings + waiting < u64::from(mbufs) {
        return;
    }
    let beside = match waiting {
        0 => String::new(),
        waiting => format!(", and {waiting} packets wait for their rates (qos.frames)"),
    };
    let reason = format!(
        "{pairs} rings between receive cores and workers hold up to {in_rings} frames{beside}, and no buffer would be left to \
         receive into: raise it above {}, or lower datapath.dpdk.ring = {ring}",
        in_rings + waiting,
    );
    problems.push(Problem::new("datapath.dpdk.mbufs", mbufs, reason));
}

/// Their form, and that they leave alone what is ours; what else they mean, DPDK knows.
fn arguments(eal: &[String], problems: &mut Vec<Problem>) {
    let mut after_option = false;
    for (i, argument) in eal.iter().enumerate() {
        let name = argument.split('=').next().unwrap_or_default();
        let ours = OURS.iter().find(|(option, _)| {
            name == *option || !option.starts_with("--") && argument.starts_with(option)
        });
        let is_option = argument.starts_with('-');
        let reason = if argument.is_empty() || argument.contains('\0') {
            "an empty argument, or one with a zero octet"
        } else if !is_option && !after_option {
            "belongs to no option: an argument begins with -, and its value follows or stands behind ="
        } else if let Some((_, reason)) = ours {
            reason
        } else {
            after_option = is_option;
            continue;
        };
        after_option = is_option;
        let key = format!("datapath.dpdk.eal[{i}]");
        problems.push(Problem::new(key, argument, reason));
    }
}

fn of_others(config: &Config, problems: &mut Vec<Problem>) {
    let datapath = &config.datapath;
    let kind = datapath.kind.name();
    let reason = format!("is of kind dpdk, not of {kind}");
    if !datapath.cpus.is_empty() {
        problems.push(Problem::new("datapath.cpus", &datapath.cpus, &reason));
    }
    if !datapath.control_cpus.is_empty() {
        let cpus = &datapath.control_cpus;
        problems.push(Problem::new("datapath.control_cpus", cpus, &reason));
    }
    if datapath.dpdk != Dpdk::default() {
        problems.push(Problem::new("datapath.dpdk", &datapath.dpdk, &reason));
    }
    if datapath.busy_poll {
        problems.push(Problem::new("datapath.busy_poll", true, &reason));
    }
    for (i, interface) in config.interface.iter().enumerate() {
        if let Some(device) = &interface.device {
            problems.push(Problem::new(
                format!("interface[{i}].device"),
                device,
                &reason,
            ));
        }
        if !interface.rx_cpus.is_empty() {
            let key = format!("interface[{i}].rx_cpus");
            problems.push(Problem::new(key, &interface.rx_cpus, &reason));
        }
    }
}
