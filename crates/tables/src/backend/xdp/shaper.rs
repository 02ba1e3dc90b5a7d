//! Frames above their rate, which a program cannot hold (`datapath/pipeline/shape.h`): a thread takes them from a ring, as they
//! are to leave, keeps them in a timing wheel and sends them.
//!
//! Frames that the pipeline beside the programs finishes come by an inbox, and keep their place among those of the ring: with
//! both the time of departure is the order, and one that came before another is taken before it.
//!
//! `shaped` of an entry is lowered when its frames have been sent, and not before: packets that find it at zero leave from the
//! kernel, behind them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::abi::raw;
use crate::clock::monotonic_ns;
use crate::drop_reason::DropReason;
use crate::frame_socket::FrameSocket;
use crate::handover::{Inbox, LATER_LEN, Later};
use crate::layout::Memory;
use crate::port::PortConfig;
use crate::ring::{Ring, RingReader};
use crate::shaping::{Departure, Shaping, Waiting};
use crate::task::{DOWNLINK, EVENT_LATER, Event, UPLINK};

/// Records taken from the ring before frames that are due leave.
const BATCH: usize = 256;

/// The shortest time that a frame stays: the kernel sends frames that came before it in bulk, up to 64 of one interrupt, and they
/// must have left.
const STAY_NS: u64 = 100_000;

/// Time for which frames gather in the ring while others wait.
const NAP: Duration = Duration::from_micros(50);

/// Time that an interface whose queue is full is given, before frames are lost.
const PATIENCE: Duration = Duration::from_millis(1);

/// The longest record.
const LONGEST: usize = raw::TP_EVENT_DATA_MAX as usize;

/// The thread. Dropping it stops it; what waits is lost.
#[derive(Debug)]
pub(super) struct Shaper {
    stop: Arc<AtomicBool>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Shaper {
    /// Keep frames from now on: before, they leave at once. Sends in the network namespace of the calling thread; needs
    /// `CAP_NET_RAW`.
    pub(super) fn start(
        shaping: Shaping,
        (ring, given): (Ring, Arc<Inbox>),
        memory: Memory,
        ports: &[PortConfig],
    ) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let stop = Arc::new(AtomicBool::new(false));
        let keeping = Mutex::new(Keeping::new(shaping, memory.clone(), ports, given)?);
        let config = &memory.config[0];
        let longest = shaping.longest_wait_ns();
        config.longest_wait_ns.store(longest, Ordering::Relaxed);
        let thread = Builder::new().name("shaper".into()).spawn({
            let (stop, wake, memory) = (stop.clone(), wake.clone(), memory.clone());
            move || {
                // SAFETY: no pointer is given. A sleep ends when a frame is due, not 50 microseconds later.
                unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
                if let Err(error) = run(&keeping, &ring, &stop, &wake) {
                    tracing::error!(%error, "packets above their rate can no longer wait");
                    memory.config[0].shaper_frames.store(0, Ordering::Release);
                }
            }
        })?;
        (config.shaper_frames).store(shaping.frames.into(), Ordering::Release);
        Ok(Self {
            stop,
            wake,
            thread: Some(thread),
        })
    }
}

impl Drop for Shaper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

/// State of the thread, behind a lock because a ring's reader may move between threads.
struct Keeping {
    waiting: Waiting,
    memory: Memory,
    /// Direction of what comes in on each port.
    directions: Vec<usize>,
    /// Socket of each port, and its interface.
    sockets: Vec<Option<(u32, FrameSocket)>>,
    now_ns: u64,
    /// Entries of frames that have left, or were lost.
    gone: Vec<u32>,
    /// Frames that did not come by the ring.
    given: Arc<Inbox>,
}

impl Keeping {
    fn new(
        shaping: Shaping,
        memory: Memory,
        ports: &[PortConfig],
        given: Arc<Inbox>,
    ) -> io::Result<Self> {
        // Programs and this thread read the clock at different times: a wheel that reaches twice as far refuses nothing that they
        // let wait.
        let wheel = Shaping {
            slots: shaping.slots.next_power_of_two().saturating_mul(2),
            ..shaping
        };
        let direction = |port: &PortConfig| if port.roles.n3 { UPLINK } else { DOWNLINK };
        let mut waiting = Waiting::new(wheel, LONGEST)?;
        // SAFETY: `memory` lives as long as `waiting`, and nobody else keeps frames for programs.
        unsafe { waiting.wheel_mut().count_in(&memory.slow[0].shaper) };
        Ok(Self {
            waiting,
            memory,
            directions: ports.iter().map(direction).collect(),
            sockets: ports.iter().map(|_| None).collect(),
            now_ns: 0,
            gone: Vec::new(),
            given,
        })
    }

    /// A record of the ring: those that were given and leave earlier come first.
    fn take(&mut self, record: &[u8]) {
        if !self.given.is_empty()
            && let Some(later) = Later::parse(record)
        {
            self.keep_all(&self.given.take_until(later.leaves_ns));
        }
        self.keep(record);
    }

    /// Records that may be in the ring.
    fn in_ring(&self) -> usize {
        let all = self.memory.config[0].shaped.load(Ordering::Acquire);
        let waiting = self.memory.slow[0].shaper.waiting.load(Ordering::Relaxed);
        all.saturating_sub(waiting) as usize
    }

    fn keep_all(&mut self, records: &[Vec<u8>]) {
        records.iter().for_each(|record| self.keep(record));
    }

    fn keep(&mut self, record: &[u8]) {
        let event = Event::parse(record).filter(|event| event.kind == EVENT_LATER);
        let later = event.and_then(|event| Later::read(event.port as usize, event.data));
        let Some((event, later)) = event.zip(later) else {
            return tracing::error!("a record of a frame above its rate is malformed");
        };
        // The words in front wait with the frame.
        let departure = Departure {
            frame: event.data,
            ..later.departure
        };
        let leaves_ns = later.leaves_ns.max(self.now_ns + STAY_NS);
        if let Err(reason) = self.waiting.keep(leaves_ns, departure) {
            self.count_lost(departure.came_by, reason, 1);
            self.gone.push(later.entry);
        }
    }

    /// Frames that are due leave, and then count no more. How many there were.
    fn depart(&mut self) -> usize {
        let mut left = 0;
        while self.waiting.release(self.now_ns) {
            let due: Vec<Departure<'_>> = self.waiting.released().collect();
            let mut lost = Vec::new();
            for together in due.chunk_by(|a, b| (a.to, a.came_by) == (b.to, b.came_by)) {
                let frames = together.iter().map(|due| &due.frame[LATER_LEN..]);
                let ifindex = self.memory.config[0]
                    .port_ifindex
                    .get(together[0].to as usize);
                let ifindex = ifindex.map_or(0, |ifindex| ifindex.load(Ordering::Acquire));
                let n = match socket(&mut self.sockets, together[0].to, ifindex) {
                    Some(socket) => socket.send(frames),
                    None => frames.count() as u64,
                };
                lost.push((together[0].came_by, n));
            }
            left += due.len();
            let later = due
                .iter()
                .filter_map(|due| Later::read(due.came_by, due.frame));
            self.gone.extend(later.map(|later| later.entry));
            for (came_by, frames) in lost {
                self.count_lost(came_by, DropReason::Redirect, frames);
            }
        }
        self.count_off();
        left
    }

    /// Since the round began.
    fn was_busy(&self) {
        let busy_ns = monotonic_ns().saturating_sub(self.now_ns);
        let busy = &self.memory.slow[0].busy_ns;
        busy.fetch_add(busy_ns, Ordering::Relaxed);
    }

    fn count_off(&mut self) {
        let gone = self.gone.len() as u64;
        for same in self.gone.chunk_by(|a, b| a == b) {
            if let Some(side) = self.memory.sides.get(same[0] as usize) {
                side.shaped.fetch_sub(same.len() as u32, Ordering::Release);
            }
        }
        self.gone.clear();
        if gone > 0 {
            let shaped = &self.memory.config[0].shaped;
            shaped.fetch_sub(gone, Ordering::Release);
        }
    }

    /// Frames that came in on a port.
    fn count_lost(&self, port: usize, reason: DropReason, frames: u64) {
        let direction = self.directions.get(port).copied().unwrap_or(DOWNLINK);
        if let Some(drops) = self.memory.slow[0].drops.get(port)
            && frames > 0
        {
            drops[direction][reason.number()].fetch_add(frames, Ordering::Relaxed);
        }
    }
}

/// The socket of a port, whose interface may be another one than before.
fn socket(
    sockets: &mut [Option<(u32, FrameSocket)>],
    port: u32,
    ifindex: u32,
) -> Option<&FrameSocket> {
    let slot = sockets.get_mut(port as usize)?;
    let is_another = |(of, socket): &(u32, FrameSocket)| *of != ifindex || socket.is_gone();
    if slot.as_ref().is_none_or(is_another) {
        let opened = FrameSocket::open(ifindex, PATIENCE);
        if let Err(error) = &opened {
            tracing::debug!(%error, ifindex, "frames that have waited cannot be sent");
        }
        *slot = opened.ok().map(|opened| (ifindex, opened));
    }
    slot.as_ref().map(|(_, socket)| socket)
}

/// Never waits.
fn locked(keeping: &Mutex<Keeping>) -> MutexGuard<'_, Keeping> {
    keeping.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(keeping: &Mutex<Keeping>, ring: &Ring, stop: &AtomicBool, wake: &EventFd) -> io::Result<()> {
    let given = Arc::clone(&locked(keeping).given);
    let ring = RingReader::open(ring, |record| locked(keeping).take(record))?;
    while !stop.load(Ordering::Relaxed) {
        let left = begin(keeping);
        let taken = if given.is_empty() {
            ring.read(BATCH)?
        } else {
            // Frames of programs that came before these are in the ring by now.
            let (came, in_ring) = (given.came(), locked(keeping).in_ring());
            let read = ring.read(in_ring.max(BATCH))?;
            let first = given.take_first(came);
            locked(keeping).keep_all(&first);
            read + first.len()
        };
        if left + taken > 0 {
            locked(keeping).was_busy();
        } else {
            let due_ns = locked(keeping).waiting.wheel().next_ns();
            rest([ring.as_fd(), given.as_fd(), wake.as_fd()], due_ns)?;
        }
    }
    Ok(())
}

/// A round begins: what is due leaves. How many frames there were.
fn begin(keeping: &Mutex<Keeping>) -> usize {
    let mut keeping = locked(keeping);
    keeping.now_ns = monotonic_ns();
    keeping.depart()
}

/// Wait for one of these to be readable, or until a frame is due.
fn rest(readable: [BorrowedFd<'_>; 3], due_ns: Option<u64>) -> io::Result<()> {
    let left = |due: u64| Duration::from_nanos(due.saturating_sub(monotonic_ns()));
    if let Some(due) = due_ns {
        sleep(left(due).min(NAP));
    }
    let longest = due_ns.map(|due| {
        let left = left(due);
        libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    let mut fds = readable.map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = longest.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the descriptors lie in an array of so many, which lives through the call, as the time does, if there is one.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            timeout,
            ptr::null(),
        )
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}
