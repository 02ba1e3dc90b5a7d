//! The core plan: which thread has which CPU, and what is wrong or doubtful about that on this machine.

use std::collections::BTreeMap;

use topology::Topology;

use super::{Config, CoreModel, DatapathKind, Interface, Problem, XdpMode};

/// `TP_DPDK_RECEIVERS_MAX`.
const RECEIVERS_MAX: usize = 16;

/// A thread with a CPU of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) cpu: u32,
    /// As the system names it.
    pub(crate) thread: String,
    /// The key that says so.
    key: String,
    /// It polls: a busy thread, while there is traffic.
    polls: bool,
}

impl Config {
    /// Whether receive cores stand in front of workers.
    pub(crate) fn has_receivers(&self) -> bool {
        let datapath = &self.datapath;
        datapath.kind == DatapathKind::Dpdk && datapath.dpdk.model == CoreModel::Pipeline
    }

    /// How many do. Without CPUs of their own it is one.
    pub(crate) fn receivers(&self) -> u32 {
        let given = self.datapath.dpdk.rx_cpus.len() as u32;
        if self.has_receivers() {
            given.max(1)
        } else {
            0
        }
    }

    /// Frames that may wait between a receive core and a worker. Where nothing says so, all rings together leave half of the
    /// buffers that do not wait for their rates.
    pub(crate) fn ring(&self) -> u32 {
        const MOST: u64 = 4096;
        let dpdk = &self.datapath.dpdk;
        let left = u64::from(dpdk.mbufs).saturating_sub(self.waiting_frames());
        let fair = left / 2 / self.ring_count().max(1);
        dpdk.ring.unwrap_or(fair.clamp(32, MOST) as u32)
    }

    /// Rings between receive cores and workers.
    pub(crate) fn ring_count(&self) -> u64 {
        u64::from(self.receivers()) * u64::from(self.datapath.workers)
    }

    /// Buffers in which packets wait for their rates, at most.
    pub(crate) fn waiting_frames(&self) -> u64 {
        match super::qos::shapes(self) {
            true => u64::from(self.qos.frames) * u64::from(self.datapath.workers),
            false => 0,
        }
    }

    /// CPUs of threads that poll devices, and the key that names them.
    pub(crate) fn polling_cpus(&self) -> (&'static str, &[u32]) {
        let datapath = &self.datapath;
        match datapath.dpdk.model {
            CoreModel::Pipeline => ("datapath.dpdk.rx_cpus", &datapath.dpdk.rx_cpus),
            CoreModel::RunToCompletion => ("datapath.cpus", &datapath.cpus),
        }
    }

    /// Numbers of the threads that poll an interface; none: all of them.
    pub(crate) fn polled_by(&self, interface: &Interface) -> Vec<u32> {
        let (_, polling) = self.polling_cpus();
        let numbered = (0..).zip(polling);
        let own = numbered.filter(|(_, cpu)| interface.rx_cpus.contains(cpu));
        own.map(|(number, _)| number).collect()
    }

    /// Threads that have CPUs of their own.
    pub(crate) fn seats(&self) -> Vec<Seat> {
        let all = |cpus: &[u32], key: &str, name: &dyn Fn(usize) -> String, polls: bool| {
            let seat = |(i, &cpu): (usize, &u32)| Seat {
                cpu,
                thread: name(i),
                key: format!("{key}[{i}]"),
                polls,
            };
            cpus.iter().enumerate().map(seat).collect::<Vec<_>>()
        };
        let datapath = &self.datapath;
        let worker = |i| format!("worker-{i}");
        let receiver = |i| format!("receiver-{i}");
        let mut seats = all(&datapath.cpus, "datapath.cpus", &worker, true);
        let rx_cpus = &datapath.dpdk.rx_cpus;
        seats.extend(all(rx_cpus, "datapath.dpdk.rx_cpus", &receiver, true));
        let control = |_| "control".to_owned();
        let control_cpus = &datapath.control_cpus;
        seats.extend(all(control_cpus, "datapath.control_cpus", &control, false));
        seats
    }

    /// Threads that run where the kernel likes.
    pub(crate) fn without_seat(&self) -> Vec<String> {
        let datapath = &self.datapath;
        let has_workers = datapath.kind != DatapathKind::Xdp && datapath.cpus.is_empty();
        let workers = (0..datapath.workers).filter(|_| has_workers);
        let mut threads: Vec<String> = workers.map(|i| format!("worker-{i}")).collect();
        if self.has_receivers() && datapath.dpdk.rx_cpus.is_empty() {
            threads.push("receiver-0".to_owned());
        }
        if datapath.control_cpus.is_empty() {
            threads.push("control".to_owned());
        }
        threads
    }
}

/// Reasons why the plan is impossible.
pub(super) fn check(config: &Config, topology: &Topology, problems: &mut Vec<Problem>) {
    let datapath = &config.datapath;
    let (cpus, workers) = (&datapath.cpus, datapath.workers);
    if !cpus.is_empty() && cpus.len() != workers as usize {
        let reason = format!("must be one for each of datapath.workers = {workers}, or none");
        problems.push(Problem::new("datapath.cpus", cpus, reason));
    }
    let dpdk = &datapath.dpdk;
    if dpdk.model != CoreModel::Pipeline && !dpdk.rx_cpus.is_empty() {
        let reason = "is of datapath.dpdk.model = \"pipeline\"";
        problems.push(Problem::new("datapath.dpdk.rx_cpus", &dpdk.rx_cpus, reason));
    }
    if dpdk.rx_cpus.len() > RECEIVERS_MAX {
        let reason = format!("{} CPUs given, at most {RECEIVERS_MAX}", dpdk.rx_cpus.len());
        problems.push(Problem::missing("datapath.dpdk.rx_cpus".to_owned(), reason));
    }
    let is_loose = cpus.is_empty() || config.has_receivers() && dpdk.rx_cpus.is_empty();
    if !datapath.control_cpus.is_empty() && is_loose {
        let reason = "workers and receive cores without CPUs of their own would share them: see datapath.cpus and \
                      datapath.dpdk.rx_cpus";
        let value = &datapath.control_cpus;
        problems.push(Problem::new("datapath.control_cpus", value, reason));
    }
    of_interfaces(config, problems);
    let mut taken = BTreeMap::new();
    for seat in config.seats() {
        let reason = match topology.cpus.get(&seat.cpu) {
            None => "no CPU with this number is online".to_owned(),
            Some(cpu) if !cpu.allowed => {
                "this process may not run there: its CPU affinity, or its cpuset".to_owned()
            }
            Some(_) => match taken.insert(seat.cpu, seat.key.clone()) {
                None => continue,
                Some(other) if list_of(&other) == list_of(&seat.key) => "named twice".to_owned(),
                Some(other) => format!("named twice: it is {other} too"),
            },
        };
        problems.push(Problem::new(seat.key, seat.cpu, reason));
    }
}

/// Receive queues of an interface are for some threads alone: each is there, and none is left without a queue.
fn of_interfaces(config: &Config, problems: &mut Vec<Problem>) {
    let (key, polling) = config.polling_cpus();
    for (i, interface) in config.interface.iter().enumerate() {
        for (j, cpu) in interface.rx_cpus.iter().enumerate() {
            let reason = if !polling.contains(cpu) {
                format!("is none of {key} = {polling:?}")
            } else if interface.rx_cpus[..j].contains(cpu) {
                "named twice".to_owned()
            } else {
                continue;
            };
            problems.push(Problem::new(
                format!("interface[{i}].rx_cpus[{j}]"),
                cpu,
                reason,
            ));
        }
    }
    let polls = |cpu: &u32| {
        let mut interfaces = config.interface.iter();
        interfaces.any(|of| of.rx_cpus.is_empty() || of.rx_cpus.contains(cpu))
    };
    for (i, cpu) in polling.iter().enumerate().filter(|(_, cpu)| !polls(cpu)) {
        let reason = "would poll nothing: the rx_cpus of each interface name others";
        problems.push(Problem::new(format!("{key}[{i}]"), cpu, reason));
    }
}

/// The key without its place in the list.
fn list_of(key: &str) -> &str {
    key.split('[').next().unwrap_or_default()
}

/// Warnings about a plan that is possible, but slower than it need be.
pub(crate) fn doubts(config: &Config, topology: &Topology) -> Vec<String> {
    let seats = config.seats();
    let mut doubts: Vec<String> = apart(&seats, topology).into_iter().collect();
    doubts.extend(far_from_nics(config, &seats, topology));
    for (i, one) in seats.iter().enumerate() {
        let later = seats[i + 1..].iter();
        let shared = later.filter(|other| topology.are_siblings(one.cpu, other.cpu));
        for other in shared.filter(|other| one.polls || other.polls) {
            let [one, other] = [one, other].map(|seat| format!("{} = {}", seat.key, seat.cpu));
            doubts.push(format!(
                "{one} and {other} are hyper-threads of one core: each has about half of it"
            ));
        }
    }
    let datapath = &config.datapath;
    if datapath.busy_poll && !datapath.cpus.is_empty() && datapath.control_cpus.is_empty() {
        let doubt = "datapath.control_cpus is empty: other threads may run on CPUs of workers, which never sleep";
        doubts.push(doubt.to_owned());
    }
    if datapath.mode != XdpMode::Driver && datapath.kind != DatapathKind::Xdp {
        let (mode, kind) = (datapath.mode.name(), datapath.kind.name());
        doubts.push(format!(
            "datapath.mode = \"{mode}\" says nothing to kind {kind}: it is of kind xdp"
        ));
    }
    doubts
}

/// NUMA node of the NIC behind an interface. `None`: it is on none, or the kernel does not know.
fn node_of(config: &Config, interface: &Interface, topology: &Topology) -> Option<u32> {
    let device = match config.datapath.kind {
        DatapathKind::Dpdk => interface.device.as_deref()?,
        DatapathKind::Xdp | DatapathKind::Kernel => &interface.name,
    };
    topology.node_of_device(device)
}

/// The NUMA node that most NICs are on, of several with as many the lowest: buffers, rings and tables lie there.
pub(crate) fn home(config: &Config, topology: &Topology) -> Option<u32> {
    let mut nics = BTreeMap::<u32, usize>::new();
    for interface in &config.interface {
        if let Some(node) = node_of(config, interface, topology) {
            *nics.entry(node).or_default() += 1;
        }
    }
    let most = nics.values().max()?;
    nics.iter().find(|(_, n)| *n == most).map(|(node, _)| *node)
}

/// Threads on another NUMA node than the NIC that they serve, and NICs on several.
fn far_from_nics(config: &Config, seats: &[Seat], topology: &Topology) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut nodes = BTreeMap::<u32, Vec<&str>>::new();
    let (polling_key, _) = config.polling_cpus();
    for interface in &config.interface {
        let Some(node) = node_of(config, interface, topology) else {
            continue;
        };
        nodes.entry(node).or_default().push(&interface.name);
        let serves = |seat: &&Seat| {
            let rx = &interface.rx_cpus;
            let polls = list_of(&seat.key) == polling_key;
            // Workers of the pipeline serve all of them.
            seat.polls && (!polls || rx.is_empty() || rx.contains(&seat.cpu))
        };
        let of_cpu = |cpu: u32| topology.cpus.get(&cpu).and_then(|cpu| cpu.node);
        let far = |seat: &&Seat| of_cpu(seat.cpu).is_some_and(|own| own != node);
        let far = seats.iter().filter(serves).filter(far);
        let far: Vec<u32> = far.map(|seat| seat.cpu).collect();
        if !far.is_empty() {
            let name = &interface.name;
            doubts.push(format!(
                "the NIC of {name} is on NUMA node {node}, and CPUs {far:?} that serve it are on others: each packet crosses \
                 between them; take CPUs of node {node}"
            ));
        }
    }
    if let Some(home) = home(config, topology).filter(|_| nodes.len() > 1) {
        let node = |(node, names): (&u32, &Vec<&str>)| format!("{node}: {}", names.join(", "));
        let nodes: Vec<String> = nodes.iter().map(node).collect();
        doubts.push(format!(
            "NICs are on several NUMA nodes ({}): packets cross between them, and buffers, rings and tables lie on node {home}",
            nodes.join("; ")
        ));
    }
    doubts
}

/// Whether packets would cross between sockets, or between NUMA nodes of one.
fn apart(seats: &[Seat], topology: &Topology) -> Option<String> {
    let polling = || seats.iter().filter(|seat| seat.polls);
    let by = |of: &dyn Fn(&topology::Cpu) -> Option<u32>| {
        let mut groups = BTreeMap::<u32, Vec<u32>>::new();
        for seat in polling() {
            if let Some(group) = topology.cpus.get(&seat.cpu).and_then(of) {
                groups.entry(group).or_default().push(seat.cpu);
            }
        }
        groups
    };
    let (nodes, sockets) = (by(&|cpu| cpu.node), by(&|cpu| cpu.socket));
    let (what, groups) = match (nodes.len() > 1, sockets.len() > 1) {
        (true, _) => ("NUMA node", nodes),
        (false, true) => ("socket", sockets),
        (false, false) => return None,
    };
    let group = |(number, cpus): (&u32, &Vec<u32>)| format!("{what} {number}: CPUs {cpus:?}");
    let groups: Vec<String> = groups.iter().map(group).collect();
    Some(format!(
        "workers and receive cores are apart ({}): packets and sessions cross between them; give each {what} a turnpiked \
         of its own, or leave one idle",
        groups.join("; ")
    ))
}
