//! DPDK's environment, of which a process has one, and ports for tests.

mod ring_port;

use std::ffi::{CStr, CString, c_char};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::abi::dpdk::{
    TP_DPDK_RECEIVERS_MAX, TP_DPDK_WHY, TP_DPDK_WORKERS_MAX, rte_mempool, tp_dpdk_pool,
    tp_dpdk_record, tp_dpdk_start,
};
use crate::error::SetupError;
use crate::queue::Queue;
use crate::shaping::Departure;

pub use ring_port::{Pattern, PortId, RingPort, User, pass_on};

/// Choices for a data path over DPDK.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Arguments of its environment. Those about threads are ours.
    pub eal: Vec<String>,
    /// Frames that there is memory for.
    pub buffers: u32,
    /// A CPU for each worker; none: they run where the kernel likes.
    pub cpus: Vec<u32>,
    /// Workers without traffic do not sleep.
    pub busy_poll: bool,
    /// Each port has a TAP interface that is the kernel's face of it. Without, what is for the kernel is lost: for tests,
    /// which need no rights then.
    pub taps: bool,
    /// Receive cores in front of the workers; none: run to completion.
    pub pipeline: Option<Pipeline>,
    /// NUMA node of buffers and rings, which is that of the NICs; `None`: any.
    pub node: Option<u32>,
}

/// The pipeline core model: threads that receive, and spread frames over workers by UE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipeline {
    /// Receive cores.
    pub receivers: u32,
    /// A CPU for each of them; none: they run where the kernel likes.
    pub cpus: Vec<u32>,
    /// Frames that may wait between a receive core and a worker.
    pub ring: u32,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            receivers: 1,
            cpus: Vec::new(),
            ring: 4096,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            eal: Vec::new(),
            buffers: 16384,
            cpus: Vec::new(),
            busy_poll: false,
            taps: true,
            pipeline: None,
            node: None,
        }
    }
}

impl Settings {
    /// Threads beside workers.
    pub(crate) fn receivers(&self) -> usize {
        self.pipeline
            .as_ref()
            .map_or(0, |all| all.receivers as usize)
    }

    /// As DPDK has it.
    pub(crate) fn node(&self) -> i32 {
        self.node.map_or(-1, |node| node as i32)
    }
}

/// By which interfaces outlive the threads that serve them; by port once they are served.
pub(crate) type TapDescriptors = Arc<Mutex<Vec<OwnedFd>>>;

/// Settings, and the queues by which other threads reach the workers that are over the devices.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    pub(crate) queues: FrameQueues,
    /// Descriptors of TAP interfaces: at first of those that workers before these had.
    pub(crate) taps: TapDescriptors,
}

impl Setup {
    pub(crate) fn new(settings: &Settings, taps: Vec<OwnedFd>) -> Self {
        Self {
            settings: settings.clone(),
            queues: FrameQueues::default(),
            taps: Arc::new(Mutex::new(taps)),
        }
    }
}

/// A reason in words, as C writes it.
pub(crate) struct Why([c_char; TP_DPDK_WHY as usize]);

impl Why {
    pub(crate) fn new() -> Self {
        Self([0; TP_DPDK_WHY as usize])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr()
    }
}

impl Why {
    fn words(&self) -> String {
        // SAFETY: C writes at most so many octets, of which the last is zero, as it is from the beginning.
        let words = unsafe { CStr::from_ptr(self.0.as_ptr()) };
        words.to_string_lossy().into_owned()
    }
}

impl From<Why> for SetupError {
    fn from(why: Why) -> Self {
        Self::Dpdk(why.words())
    }
}

/// Receive cores and workers, at most.
const RECEIVERS_MAX: u32 = TP_DPDK_RECEIVERS_MAX;
const WORKERS_MAX: u32 = TP_DPDK_WORKERS_MAX;

/// Refuse more threads than there is room for.
pub(crate) fn check_threads(settings: &Settings, workers: u32) -> Result<(), SetupError> {
    let receivers = settings.pipeline.as_ref().map_or(1, |all| all.receivers);
    match (1..=RECEIVERS_MAX).contains(&receivers) && workers <= WORKERS_MAX {
        true => Ok(()),
        false => Err(SetupError::Dpdk(format!(
            "{receivers} receive cores (1 to {RECEIVERS_MAX}) and {workers} workers (1 to {WORKERS_MAX})"
        ))),
    }
}

/// The environment that this process has started.
struct Started {
    eal: Vec<String>,
    _arguments: Arguments,
}

/// DPDK starts once in a process and cannot start again with other arguments (`rte_eal_init`): no owner within the process can
/// stand for it.
static STARTED: Mutex<Option<Started>> = Mutex::new(None);

/// Start the environment, unless it has been already with the same arguments.
pub(crate) fn start(settings: &Settings) -> Result<(), SetupError> {
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*started {
        Some(before) if before.eal != settings.eal => {
            let reason = "a process starts it once, and has with other arguments".to_owned();
            Err(SetupError::Dpdk(reason))
        }
        Some(_) => Ok(()),
        None => {
            *started = Some(Started {
                _arguments: start_environment(settings)?,
                eal: settings.eal.clone(),
            });
            Ok(())
        }
    }
}

/// CPUs that this process may run on, as DPDK writes a set.
fn own_cpus() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or("0", str::trim).to_owned()
}

fn start_environment(settings: &Settings) -> Result<Arguments, SetupError> {
    let eal = &settings.eal;
    // Nothing is left in the file system, and several run beside one another. Without huge pages DPDK does not take the word.
    let in_memory = match is_without_huge_pages(eal) {
        true => "--no-shconf",
        false => "--in-memory",
    };
    // The one thread that DPDK counts from the beginning is bound to no CPU; workers join later.
    let lcores = format!("0@({})", own_cpus());
    let own = ["turnpike", in_memory, "--lcores", &lcores];
    let all = own.into_iter().chain(eal.iter().map(String::as_str));
    let all: Result<Vec<CString>, _> = all.map(CString::new).collect();
    let all = all.map_err(|_| SetupError::Dpdk("an argument with a zero octet".to_owned()))?;
    let pointers = all.iter().map(|string| string.as_ptr().cast_mut());
    let mut arguments = Arguments {
        pointers: pointers.chain([std::ptr::null_mut()]).collect(),
        _strings: all,
    };
    let mut why = Why::new();
    // SAFETY: so many terminated strings, which live as long as the process below, and room for a reason.
    let started = unsafe {
        let count = arguments.pointers.len() - 1;
        tp_dpdk_start(
            count as i32,
            arguments.pointers.as_mut_ptr(),
            why.as_mut_ptr(),
        )
    };
    if started == 0 {
        return Ok(arguments);
    }
    // DPDK may refer to them even so.
    std::mem::forget(arguments);
    Err(SetupError::Dpdk(format!(
        "{}{}",
        why.words(),
        remedy(settings, &HugePages::read())
    )))
}

fn is_without_huge_pages(eal: &[String]) -> bool {
    eal.iter().any(|argument| argument == "--no-huge")
}

/// Octets of a buffer beside the frame: its head, headroom, and what it costs in the pool.
const BUFFER_BESIDE: u64 = 512;

/// Huge pages of the size that the kernel gives by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HugePages {
    free: u64,
    kib: u64,
}

impl HugePages {
    fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())
    }

    fn parse(meminfo: &str) -> Self {
        let value = |name: &str| {
            let mut lines = meminfo.lines();
            let line = lines.find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.split_whitespace().next());
            value.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        Self {
            free: value("HugePages_Free:"),
            kib: value("Hugepagesize:"),
        }
    }
}

/// The remedy for an environment that does not start, where memory is too little: that is the most frequent reason, and DPDK's own
/// words do not say so.
fn remedy(settings: &Settings, pages: &HugePages) -> String {
    if is_without_huge_pages(&settings.eal) {
        return String::new();
    }
    let mut arguments = settings.eal.iter().map(String::as_str);
    let given = arguments.find_map(|argument| argument.strip_prefix("-m"));
    let mib: Option<u64> = match given.map(str::trim) {
        Some("") => arguments.next().and_then(|value| value.parse().ok()),
        Some(value) => value.parse().ok(),
        None => None,
    };
    let needed_kib = match mib {
        Some(mib) => mib.saturating_mul(1024),
        None => u64::from(settings.buffers) * (2048 + BUFFER_BESIDE) / 1024,
    };
    if pages.kib == 0 {
        return ". The kernel has no huge pages: go without, by datapath.dpdk.eal = [\"--no-huge\", \"-m\", \"MEGABYTES\"]"
            .to_owned();
    }
    let needed = needed_kib.div_ceil(pages.kib);
    if pages.free >= needed {
        return String::new();
    }
    format!(
        ". {} huge pages of {} KiB are free, and some {needed} are needed: reserve them (sysctl -w vm.nr_hugepages={needed}, \
         or more where others use some), or go without: datapath.dpdk.eal = [\"--no-huge\", \"-m\", \"{}\"]",
        pages.free,
        pages.kib,
        needed_kib.div_ceil(1024)
    )
}

/// Arguments that DPDK was started with; it keeps them, and puts them in another order.
struct Arguments {
    pointers: Vec<*mut c_char>,
    _strings: Vec<CString>,
}

// SAFETY: nobody on this side looks at them again.
unsafe impl Send for Arguments {}

/// A way out of a port past its TAP interface, into the queues of frames that workers send as they are: frames that are
/// in one are not overtaken by those that its worker runs afterwards.
#[derive(Clone, Debug)]
pub(crate) struct Direct {
    pub(crate) queues: FrameQueues,
    pub(crate) port: u32,
}

impl Direct {
    /// By a worker; one that there is not: by another one. Whether there was room.
    pub(crate) fn send(&self, worker: usize, frame: &[u8]) -> bool {
        let front = tp_dpdk_record {
            port: self.port,
            ..tp_dpdk_record::default()
        };
        self.queues.put(worker, front, frame)
    }
}

/// Time that a worker whose queue is full is given, before frames above their rate are lost.
const PATIENCE: Duration = Duration::from_millis(20);
/// Time between two looks whether workers have been replaced.
const PAUSE: Duration = Duration::from_millis(1);

/// Queues of one data path, as other threads reach them. Its workers own them: before they start there are none, and when
/// they have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameQueues(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    opened: Option<Opened>,
    /// Frames wait where they are: workers are being replaced.
    is_paused: bool,
}

#[derive(Debug)]
struct Opened {
    /// Of each worker.
    queues: Weak<[Queue]>,
    /// TAP interfaces, by port; none where ports have none.
    taps: Vec<u32>,
}

impl FrameQueues {
    pub(crate) fn are(&self, queues: &Arc<[Queue]>, taps: Vec<u32>) {
        let queues = Arc::downgrade(queues);
        *self.state() = State {
            opened: Some(Opened { queues, taps }),
            is_paused: false,
        };
    }

    /// Nobody writes to them any more when this returns: until there are others, or none, frames wait where they are.
    pub(crate) fn pause(&self) {
        self.state().is_paused = true;
    }

    /// There are none any more.
    pub(crate) fn are_gone(&self) {
        *self.state() = State::default();
    }

    fn state(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is, and stays until this is dropped.
    fn at_present(&self) -> RwLockReadGuard<'_, State> {
        loop {
            let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if !state.is_paused {
                return state;
            }
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }

    /// The port has this TAP interface from now on, which was made anew; 0: none. Whether ports have such.
    pub(crate) fn set_tap(&self, port: usize, ifindex: u32) -> bool {
        let mut state = self.state();
        let opened = state.opened.as_mut();
        let tap = opened.and_then(|opened| opened.taps.get_mut(port));
        tap.map(|tap| *tap = ifindex).is_some()
    }

    /// While there are some.
    pub(crate) fn queues(&self) -> Option<Arc<[Queue]>> {
        self.at_present().opened.as_ref()?.queues.upgrade()
    }

    /// The way out of the port that has this TAP interface.
    pub(crate) fn direct_to(&self, ifindex: u32) -> Option<Direct> {
        let state = self.at_present();
        let opened = state.opened.as_ref()?;
        let is_it = |&tap: &u32| tap == ifindex && tap != 0;
        let port = opened.taps.iter().position(is_it)?;
        (opened.queues.strong_count() > 0).then(|| Direct {
            queues: self.clone(),
            port: port as u32,
        })
    }

    fn put(&self, worker: usize, front: tp_dpdk_record, frame: &[u8]) -> bool {
        let state = self.at_present();
        let queues = state.opened.as_ref().and_then(|of| of.queues.upgrade());
        queues.is_some_and(|queues| {
            let queue = &queues[worker % queues.len()];
            queue.write([&front.octets(), frame])
        })
    }

    /// By a worker; one that there is not: by another one. Whether there was room.
    pub(crate) fn send_later(
        &self,
        worker: usize,
        leaves_ns: u64,
        departure: Departure<'_>,
    ) -> bool {
        let front = tp_dpdk_record {
            port: departure.to,
            came_by: departure.came_by as u32,
            leaves_ns,
        };
        let since = Instant::now();
        loop {
            if self.put(worker, front, departure.frame) {
                return true;
            }
            if since.elapsed() >= PATIENCE {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

impl tp_dpdk_record {
    pub(crate) fn octets(self) -> [u8; size_of::<Self>()] {
        let mut octets = [0; size_of::<Self>()];
        octets[..4].copy_from_slice(&self.port.to_ne_bytes());
        octets[4..8].copy_from_slice(&self.came_by.to_ne_bytes());
        octets[8..].copy_from_slice(&self.leaves_ns.to_ne_bytes());
        octets
    }
}

/// Memory of frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool(NonNull<rte_mempool>);

// SAFETY: any thread may take buffers and give them back.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub(crate) fn as_ptr(self) -> *mut rte_mempool {
        self.0.as_ptr()
    }
}

/// The pool of this process, with buffers for frames of so many octets if it is not there yet. It lies in memory of the environment
/// and goes with it: devices may keep frames longer than the tables that were over them.
pub(crate) fn pool(settings: &Settings, octets: u32) -> Result<Pool, SetupError> {
    static POOL: OnceLock<Option<Pool>> = OnceLock::new();
    let make = || {
        let (buffers, node) = (settings.buffers, settings.node());
        // SAFETY: no pointer is given; tables and ring ports start the environment before they ask for buffers.
        let of = |node| NonNull::new(unsafe { tp_dpdk_pool(buffers, octets, node) }).map(Pool);
        of(node).or_else(|| {
            let anywhere = (node >= 0).then(|| of(-1)).flatten()?;
            tracing::warn!(
                node,
                "no memory for buffers on the NUMA node of the NICs: they lie on another one, and packets cross between them. \
                 Reserve huge pages there: /sys/devices/system/node/nodeN/hugepages"
            );
            Some(anywhere)
        })
    };
    POOL.get_or_init(make).ok_or_else(|| {
        let buffers = settings.buffers;
        let each = u64::from(octets) + BUFFER_BESIDE;
        // None crosses from one page into the next.
        let each = match is_without_huge_pages(&settings.eal) {
            true => each.next_multiple_of(4096),
            false => each,
        };
        let mib = (u64::from(buffers) * each).div_ceil(1 << 20);
        SetupError::Dpdk(format!(
            "no memory for {buffers} buffers of {octets} octets, some {mib} MiB: lower datapath.dpdk.mbufs, or give DPDK more: huge \
             pages (sysctl -w vm.nr_hugepages), or with --no-huge a greater -m in datapath.dpdk.eal"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dpdk_does_not_start_and_nobody_says_that_huge_pages_are_missing() {
        let meminfo =
            "HugePages_Total:       8\nHugePages_Free:        4\nHugepagesize:       2048 kB\n";
        let (few, none) = (HugePages::parse(meminfo), HugePages::parse(""));
        assert_eq!(few, HugePages { free: 4, kib: 2048 });
        let told = |eal: &[&str], pages: &HugePages| {
            let eal = eal.iter().map(|argument| (*argument).to_owned()).collect();
            let settings = Settings {
                eal,
                ..Settings::default()
            };
            remedy(&settings, pages)
        };
        let remedy = told(&["-m", "96"], &few);
        assert!(
            remedy.contains("4 huge pages of 2048 KiB are free, and some 48 are needed")
                && remedy.contains("sysctl -w vm.nr_hugepages=48")
                && remedy.contains("[\"--no-huge\", \"-m\", \"96\"]"),
            "{remedy}"
        );
        assert!(told(&[], &few).contains("some 20 are needed"), "of buffers");
        assert!(told(&["-m8"], &few).is_empty(), "there are enough");
        assert!(told(&["--no-huge", "-m", "96"], &few).is_empty());
        assert!(told(&[], &none).contains("The kernel has no huge pages"));
    }
}
