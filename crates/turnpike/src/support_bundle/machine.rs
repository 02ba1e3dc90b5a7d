//! The machine: kernel, CPUs, memory, interfaces, routes, firewall, programs in the kernel, the unit and its log.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::member::{Kind, LIMIT, Member};
use super::programs::{Deadline, ask, run};

/// Interfaces of which ethtool tells, at most.
const INTERFACES: usize = 32;

const FILES: [(&str, &str, &str); 10] = [
    ("machine/os-release", "distribution", "/etc/os-release"),
    ("machine/kernel", "kernel", "/proc/version"),
    (
        "machine/cmdline",
        "what the kernel was started with",
        "/proc/cmdline",
    ),
    ("machine/cpuinfo", "CPUs", "/proc/cpuinfo"),
    ("machine/meminfo", "memory and huge pages", "/proc/meminfo"),
    ("machine/loadavg", "load", "/proc/loadavg"),
    (
        "machine/uptime",
        "seconds since the start of the machine",
        "/proc/uptime",
    ),
    (
        "machine/interrupts",
        "interrupts by CPU",
        "/proc/interrupts",
    ),
    ("machine/softirqs", "softirqs by CPU", "/proc/softirqs"),
    (
        "machine/softnet_stat",
        "frames that the kernel took and dropped, by CPU",
        "/proc/net/softnet_stat",
    ),
];

const PROGRAMS: [(&str, &str, Kind, &[&str]); 20] = [
    (
        "network/link.txt",
        "interfaces with their counters",
        Kind::Text,
        &["ip", "-d", "-s", "link"],
    ),
    (
        "network/address.txt",
        "addresses of interfaces",
        Kind::Text,
        &["ip", "addr"],
    ),
    (
        "network/route4.txt",
        "routes of IPv4, all tables",
        Kind::Text,
        &["ip", "-4", "route", "show", "table", "all"],
    ),
    (
        "network/route6.txt",
        "routes of IPv6, all tables",
        Kind::Text,
        &["ip", "-6", "route", "show", "table", "all"],
    ),
    (
        "network/rule4.txt",
        "rules that choose tables, IPv4",
        Kind::Text,
        &["ip", "-4", "rule"],
    ),
    (
        "network/rule6.txt",
        "rules that choose tables, IPv6",
        Kind::Text,
        &["ip", "-6", "rule"],
    ),
    (
        "network/neighbour.txt",
        "neighbours",
        Kind::Text,
        &["ip", "-s", "neigh"],
    ),
    (
        "network/nft.txt",
        "firewall: nftables",
        Kind::Text,
        &["nft", "list", "ruleset"],
    ),
    (
        "network/iptables4.txt",
        "firewall: iptables",
        Kind::Text,
        &["iptables-save"],
    ),
    (
        "network/iptables6.txt",
        "firewall: ip6tables",
        Kind::Text,
        &["ip6tables-save"],
    ),
    (
        "network/sockets.txt",
        "UDP sockets",
        Kind::Text,
        &["ss", "-uanp"],
    ),
    (
        "bpf/program.txt",
        "BPF programs",
        Kind::Text,
        &["bpftool", "prog", "show"],
    ),
    (
        "bpf/link.txt",
        "BPF links",
        Kind::Text,
        &["bpftool", "link", "show"],
    ),
    (
        "bpf/map.txt",
        "BPF maps, without content",
        Kind::Text,
        &["bpftool", "map", "show"],
    ),
    (
        "bpf/net.txt",
        "BPF programs on interfaces",
        Kind::Text,
        &["bpftool", "net", "show"],
    ),
    (
        "unit/status.txt",
        "state of the unit",
        Kind::Text,
        &[
            "systemctl",
            "status",
            "turnpiked",
            "--no-pager",
            "-l",
            "-n",
            "0",
        ],
    ),
    (
        "unit/unit.txt",
        "the unit with its drop-ins",
        Kind::Keys,
        &["systemctl", "cat", "turnpiked", "--no-pager"],
    ),
    (
        "unit/show.txt",
        "restarts, exit codes and limits of the unit",
        Kind::Text,
        &[
            "systemctl",
            "show",
            "turnpiked",
            "-p",
            "ActiveState,SubState,Result,NRestarts,ExecMainStartTimestamp,ExecMainExitTimestamp,ExecMainCode,ExecMainStatus,MemoryCurrent,MemoryPeak,MemoryMax,TasksCurrent,LimitMEMLOCK,LimitNOFILE,CPUAffinity,AllowedCPUs",
        ],
    ),
    (
        "log/journal.txt",
        "the log of the unit, last lines",
        Kind::Log,
        &[
            "journalctl",
            "-u",
            "turnpiked",
            "-n",
            "2000",
            "--no-pager",
            "-o",
            "short-iso-precise",
        ],
    ),
    (
        "log/kernel.txt",
        "warnings of the kernel, last lines",
        Kind::Log,
        &[
            "journalctl",
            "-k",
            "-p",
            "warning",
            "-n",
            "500",
            "--no-pager",
            "-o",
            "short-iso-precise",
        ],
    ),
];

/// All of it. `named`: interfaces of the configuration, which come first.
pub(super) fn collect(named: &[String], deadline: Deadline) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for (name, about, path) in FILES {
        // A boot loader may hand over secrets.
        let kind = if path == "/proc/cmdline" {
            Kind::Keys
        } else {
            Kind::Text
        };
        members.push(file((name, about, kind), Path::new(path)));
    }
    members.push(huge_pages());
    members.push(sysctls());
    for (name, about, kind, command) in PROGRAMS {
        members.push(ask((name, about, kind), command, deadline));
    }
    for interface in interfaces(named) {
        members.push(ethtool(&interface, deadline));
    }
    members
}

/// A file as it is, or its end if that counts.
pub(super) fn file((name, about, kind): (&str, &'static str, Kind), path: &Path) -> Member {
    let content = read(path, kind).map_err(|error| error.to_string());
    Member {
        name: name.to_owned(),
        about,
        source: path.display().to_string(),
        kind,
        content,
        note: None,
    }
}

/// An octet more than there is room for tells that it was cut.
fn read(path: &Path, kind: Kind) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    // A pipe would keep us waiting.
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("is no file"));
    }
    let room = LIMIT as u64 + 1;
    let len = file.metadata()?.len();
    if kind == Kind::Log && len > room {
        file.seek(SeekFrom::Start(len - room))?;
    }
    let mut content = Vec::new();
    file.take(room).read_to_end(&mut content)?;
    Ok(content)
}

/// `key = value` of each of these files; those that are not there are left out.
fn settings(paths: impl IntoIterator<Item = String>, below: &str) -> Vec<u8> {
    let mut out = String::new();
    for path in paths {
        if let Ok(value) = fs::read_to_string(&path) {
            let key = path.strip_prefix(below).unwrap_or(&path);
            out += &format!("{key} = {}\n", value.trim().replace('\n', " "));
        }
    }
    out.into_bytes()
}

fn below(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn huge_pages() -> Member {
    let folder = "/sys/kernel/mm/";
    let mut paths = vec![
        format!("{folder}transparent_hugepage/enabled"),
        format!("{folder}transparent_hugepage/shmem_enabled"),
    ];
    for size in below(&format!("{folder}hugepages")) {
        for of in ["nr_hugepages", "free_hugepages", "resv_hugepages"] {
            paths.push(format!("{folder}hugepages/{size}/{of}"));
        }
    }
    let content = settings(paths, folder);
    of_settings(
        "machine/huge_pages.txt",
        "huge pages by size",
        folder,
        content,
    )
}

fn sysctls() -> Member {
    let folder = "/proc/sys/";
    let single = [
        "net/ipv4/ip_forward",
        "net/core/bpf_jit_enable",
        "net/core/netdev_budget",
        "net/core/netdev_max_backlog",
        "net/core/rmem_max",
        "net/core/wmem_max",
        "net/ipv4/neigh/default/gc_thresh1",
        "net/ipv4/neigh/default/gc_thresh2",
        "net/ipv4/neigh/default/gc_thresh3",
        "net/ipv6/neigh/default/gc_thresh1",
        "net/ipv6/neigh/default/gc_thresh2",
        "net/ipv6/neigh/default/gc_thresh3",
        "kernel/unprivileged_bpf_disabled",
        "kernel/nmi_watchdog",
        "vm/nr_hugepages",
        "vm/overcommit_memory",
    ];
    let mut paths: Vec<String> = single.iter().map(|key| format!("{folder}{key}")).collect();
    for (family, keys) in [
        (
            "ipv4",
            ["forwarding", "rp_filter", "arp_ignore", "accept_local"].as_slice(),
        ),
        ("ipv6", &["forwarding", "disable_ipv6", "accept_ra", "mtu"]),
    ] {
        let conf = format!("{folder}net/{family}/conf");
        for interface in below(&conf) {
            paths.extend(keys.iter().map(|key| format!("{conf}/{interface}/{key}")));
        }
    }
    let content = settings(paths, folder);
    of_settings(
        "machine/sysctl.txt",
        "settings of the kernel that matter",
        folder,
        content,
    )
}

fn of_settings(name: &str, about: &'static str, folder: &str, content: Vec<u8>) -> Member {
    let content = match content.is_empty() {
        true => Err("nothing of it can be read".to_owned()),
        false => Ok(content),
    };
    Member {
        name: name.to_owned(),
        about,
        source: folder.to_owned(),
        kind: Kind::Text,
        content,
        note: None,
    }
}

/// Interfaces of the configuration, then those with a device.
fn interfaces(named: &[String]) -> Vec<String> {
    let all = below("/sys/class/net");
    let named = named.iter().filter(|name| all.contains(*name));
    let mut chosen: Vec<String> = named.cloned().collect();
    for name in &all {
        let has_device = Path::new("/sys/class/net")
            .join(name)
            .join("device")
            .exists();
        if has_device && !chosen.contains(name) {
            chosen.push(name.clone());
        }
    }
    chosen.truncate(INTERFACES);
    chosen
}

/// Settings, driver, offloads, queues and counters of an interface.
fn ethtool(interface: &str, deadline: Deadline) -> Member {
    let mut out = Vec::new();
    let mut troubles = Vec::new();
    for option in ["-i", "-k", "-l", "-g", "-c", "-S"] {
        match run(&["ethtool", option, interface], Kind::Text, deadline) {
            Ok((mut content, _)) => {
                out.extend(format!("# ethtool {option} {interface}\n").into_bytes());
                out.append(&mut content);
            }
            Err(trouble) => troubles.push(format!("{option}: {trouble}")),
        }
    }
    let troubles = troubles.join("; ");
    let (content, note) = match out.is_empty() {
        true => (Err(troubles), None),
        false => (Ok(out), Some(troubles).filter(|all| !all.is_empty())),
    };
    Member {
        name: format!("network/ethtool-{}.txt", interface.replace('/', "_")),
        about: "driver, offloads, queues and counters",
        source: format!("ethtool -i, -k, -l, -g, -c, -S {interface}"),
        kind: Kind::Text,
        content,
        note,
    }
}
