//! CPUs of this machine: which share a physical core, which a socket, which memory is near to each, and where this process may
//! run. As the kernel tells it in `/sys/devices/system`.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::Path;
use std::str::FromStr;

/// A CPU that is online. What the kernel does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// NUMA node, whose memory is near.
    pub node: Option<u32>,
    /// Physical package.
    pub socket: Option<u32>,
    /// Number of its physical core within the socket.
    pub core: Option<u32>,
    /// Other CPUs of the same physical core: hyper-threads.
    pub siblings: BTreeSet<u32>,
    /// This process may run there.
    pub allowed: bool,
}

/// All CPUs that are online, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// By the kernel's number.
    pub cpus: BTreeMap<u32, Cpu>,
    /// NUMA nodes of devices that have one: by PCI address, and of network interfaces over such by name.
    pub nics: BTreeMap<String, u32>,
}

impl Topology {
    /// Topology of this machine, as far as the calling thread may use it.
    pub fn read() -> Self {
        Self {
            nics: nics(Path::new("/sys")),
            ..Self::read_at(Path::new("/sys/devices/system"), &allowed())
        }
    }

    /// Topology in a folder like `/sys/devices/system`, for a process that may run on some CPUs.
    pub fn read_at(folder: &Path, allowed: &BTreeSet<u32>) -> Self {
        let nodes = nodes(&folder.join("node"));
        let folder = folder.join("cpu");
        let online = set(&folder.join("online")).unwrap_or_default();
        let cpu = |number: u32| {
            let topology = folder.join(format!("cpu{number}/topology"));
            // core_cpus_list is its name from Linux 5.3 on.
            let names = ["core_cpus_list", "thread_siblings_list"];
            let core = names.iter().find_map(|name| set(&topology.join(name)));
            let mut siblings = core.unwrap_or_default();
            siblings.remove(&number);
            let cpu = Cpu {
                node: nodes.get(&number).copied(),
                socket: value(&topology.join("physical_package_id")),
                core: value(&topology.join("core_id")),
                siblings,
                allowed: allowed.contains(&number),
            };
            (number, cpu)
        };
        Self {
            cpus: online.into_iter().map(cpu).collect(),
            nics: BTreeMap::new(),
        }
    }

    /// NUMA node of a device as DPDK names it, with its arguments, or of an interface: `0000:81:00.0`, `net_af_packet0,iface=eth3`,
    /// `eth3`. `None`: none is known.
    pub fn node_of_device(&self, device: &str) -> Option<u32> {
        let mut arguments = device.split(',');
        let name = arguments.next()?;
        let interface = arguments.find_map(|argument| argument.strip_prefix("iface="));
        // DPDK knows an address without its domain, too.
        let in_domain = format!("0000:{name}");
        let mut names = [interface.unwrap_or(name), &in_domain].into_iter();
        names.find_map(|name| self.nics.get(name)).copied()
    }

    /// Whether two CPUs share a physical core.
    pub fn are_siblings(&self, one: u32, other: u32) -> bool {
        let cpu = self.cpus.get(&one);
        cpu.is_some_and(|cpu| cpu.siblings.contains(&other))
    }
}

/// CPUs of a list as the kernel writes it: `0-2,4`. `None`: it is none.
pub fn parse_list(list: &str) -> Option<BTreeSet<u32>> {
    let list = list.trim();
    if list.is_empty() {
        return Some(BTreeSet::new());
    }
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(u32::from_str(first).ok()?..=u32::from_str(last).ok()?)
    };
    let ranges: Option<Vec<_>> = list.split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// NUMA node by CPU.
fn nodes(folder: &Path) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::new();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        let Some(node) = number.and_then(|number| number.parse().ok()) else {
            continue;
        };
        let cpus = set(&entry.path().join("cpulist")).unwrap_or_default();
        nodes.extend(cpus.into_iter().map(|cpu| (cpu, node)));
    }
    nodes
}

/// NUMA node by PCI address and by interface, of a folder like `/sys`.
fn nics(sys: &Path) -> BTreeMap<String, u32> {
    let below = |folder: &str, file: &str| -> Vec<(String, u32)> {
        let entries = sys.join(folder).read_dir().into_iter().flatten().flatten();
        let node = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name, value(&entry.path().join(file))?))
        };
        entries.filter_map(node).collect()
    };
    let mut all = below("bus/pci/devices", "numa_node");
    all.extend(below("class/net", "device/numa_node"));
    all.into_iter().collect()
}

fn set(file: &Path) -> Option<BTreeSet<u32>> {
    parse_list(&read_to_string(file).ok()?)
}

/// A number; the kernel writes -1 where it has none.
fn value(file: &Path) -> Option<u32> {
    read_to_string(file).ok()?.trim().parse().ok()
}

/// CPUs that the calling thread may run on: its affinity, within what its cpuset allows.
fn allowed() -> BTreeSet<u32> {
    let status = read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(parse_list).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test helpers")]

    use super::*;
    use std::fs::{create_dir_all, remove_dir_all, write};
    use std::path::PathBuf;

    /// A folder like `/sys/devices/system`, which goes when this does.
    struct Sysfs(PathBuf);

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = remove_dir_all(&self.0);
        }
    }

    impl Sysfs {
        /// With these files.
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("turnpike-topology-{name}-{}", std::process::id());
            let sysfs = Self(std::env::temp_dir().join(name));
            for (file, text) in files {
                let file = sysfs.0.join(file);
                create_dir_all(file.parent().unwrap()).unwrap();
                write(file, format!("{text}\n")).unwrap();
            }
            sysfs
        }

        fn read(&self, allowed: &[u32]) -> Topology {
            Topology::read_at(&self.0, &allowed.iter().copied().collect())
        }
    }

    /// A server of two sockets, with two cores of two hyper-threads each, as Linux 6.1 tells of it; CPU 7 is offline.
    const TWO_SOCKETS: &[(&str, &str)] = &[
        ("cpu/online", "0-6"),
        ("cpu/possible", "0-7"),
        ("cpu/cpu0/topology/physical_package_id", "0"),
        ("cpu/cpu0/topology/core_id", "0"),
        ("cpu/cpu0/topology/core_cpus_list", "0,4"),
        ("cpu/cpu1/topology/physical_package_id", "0"),
        ("cpu/cpu1/topology/core_id", "1"),
        ("cpu/cpu1/topology/core_cpus_list", "1,5"),
        ("cpu/cpu2/topology/physical_package_id", "1"),
        ("cpu/cpu2/topology/core_id", "0"),
        ("cpu/cpu2/topology/core_cpus_list", "2,6"),
        ("cpu/cpu3/topology/physical_package_id", "1"),
        ("cpu/cpu3/topology/core_id", "1"),
        ("cpu/cpu3/topology/core_cpus_list", "3"),
        ("cpu/cpu4/topology/physical_package_id", "0"),
        ("cpu/cpu4/topology/core_id", "0"),
        ("cpu/cpu4/topology/core_cpus_list", "0,4"),
        ("cpu/cpu5/topology/physical_package_id", "0"),
        ("cpu/cpu5/topology/core_id", "1"),
        ("cpu/cpu5/topology/core_cpus_list", "1,5"),
        ("cpu/cpu6/topology/physical_package_id", "1"),
        ("cpu/cpu6/topology/core_id", "0"),
        ("cpu/cpu6/topology/core_cpus_list", "2,6"),
        ("node/online", "0-1"),
        ("node/has_cpu", "0-1"),
        ("node/node0/cpulist", "0-1,4-5"),
        ("node/node1/cpulist", "2-3,6"),
    ];

    #[test]
    fn two_sockets_with_hyper_threads() {
        let topology = Sysfs::new("two", TWO_SOCKETS).read(&[0, 1, 2]);
        let cpu = |node, core, sibling: Option<u32>, allowed| Cpu {
            node: Some(node),
            socket: Some(node),
            core: Some(core),
            siblings: sibling.into_iter().collect(),
            allowed,
        };
        let expected = [
            cpu(0, 0, Some(4), true),
            cpu(0, 1, Some(5), true),
            cpu(1, 0, Some(6), true),
            cpu(1, 1, None, false),
            cpu(0, 0, Some(0), false),
            cpu(0, 1, Some(1), false),
            cpu(1, 0, Some(2), false),
        ];
        assert_eq!(topology.cpus, (0..).zip(expected).collect());
        assert!(topology.are_siblings(0, 4) && topology.are_siblings(4, 0));
        // The same core_id in another socket is another core.
        assert!(!topology.are_siblings(0, 2) && !topology.are_siblings(0, 0));
    }

    /// A small virtual machine without NUMA, whose kernel is from before Linux 5.3.
    #[test]
    fn one_socket_and_an_older_kernel() {
        let files = [
            ("cpu/online", "0-1"),
            ("cpu/cpu0/topology/physical_package_id", "-1"),
            ("cpu/cpu0/topology/thread_siblings_list", "0-1"),
            ("cpu/cpu1/topology/thread_siblings_list", "0-1"),
        ];
        let topology = Sysfs::new("old", &files).read(&[0, 1]);
        let cpu = |sibling| Cpu {
            siblings: [sibling].into(),
            allowed: true,
            ..Cpu::default()
        };
        assert_eq!(topology.cpus, [(0, cpu(1)), (1, cpu(0))].into());
    }

    #[test]
    fn a_machine_that_tells_nothing_has_no_cpus() {
        assert_eq!(Sysfs::new("none", &[]).read(&[0]), Topology::default());
    }

    #[test]
    fn nics_have_the_node_that_the_kernel_tells() {
        let files = [
            ("bus/pci/devices/0000:01:00.0/numa_node", "0"),
            ("bus/pci/devices/0000:81:00.0/numa_node", "1"),
            ("bus/pci/devices/0000:02:00.0/numa_node", "-1"),
            ("class/net/eth3/device/numa_node", "1"),
            ("class/net/lo/mtu", "65536"),
        ];
        let sysfs = Sysfs::new("nics", &files);
        let topology = Topology {
            nics: nics(&sysfs.0),
            ..Topology::default()
        };
        for (device, node) in [
            ("0000:01:00.0", Some(0)),
            ("81:00.0,representor=0", Some(1)),
            ("0000:02:00.0", None),
            ("0000:03:00.0", None),
            ("net_af_packet0,iface=eth3,qpairs=2", Some(1)),
            ("eth3", Some(1)),
            ("lo", None),
            ("net_tap0", None),
        ] {
            assert_eq!(topology.node_of_device(device), node, "{device}");
        }
    }

    #[test]
    fn this_machine_runs_this_test_somewhere() {
        assert!(Topology::read().cpus.values().any(|cpu| cpu.allowed));
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,4\n"), Some([0, 1, 2, 4].into()));
        assert_eq!(parse_list("7"), Some([7].into()));
        assert_eq!(parse_list(""), Some([].into()));
        for wrong in ["x", "1-", "1,,2", "-1", "0-x"] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }
}
