//! Packets by the kernel's own sockets: GTP-U comes in by UDP sockets, packets to UEs by a TUN interface that a rule of the
//! kernel leads to, and all that leaves goes out of packet sockets, with the headers that the pipeline has made.
//!
//! It needs no driver that knows XDP, no huge page and no spare core, and is the slowest of the data paths. The kernel
//! puts fragments of tunnels together, and cuts what came in one large piece. It forwards what it brings
//! to the TUN interface, so that the hop is spent when the pipeline sees the packet (`TP_ROLE_FORWARDED`).
//!
//! Every worker has its own sockets (`SO_REUSEPORT`) and its own queue of each TUN interface. The kernel spreads
//! flows over them: all of one gNB are one flow to it.

mod datagrams;
pub(super) mod tun;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::{Site, Traffic};
use crate::clock::monotonic_ns;
use crate::drop_reason::DropReason;
use crate::error::SetupError;
use crate::frame_socket::FrameSocket;
use crate::port::PortConfig;
use crate::shaping::Departure;
use crate::verdict::Verdict;
use crate::worker::{BURST, Burst, Worker};
use datagrams::{Datagrams, TunnelSocket};
use tun::{Led, TunQueue};

/// Longest sleep, after which a worker sees whether it is to end.
const SLEEP: Duration = Duration::from_millis(100);

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// An Ethernet header that only the pipeline sees.
const fn ethernet(ethertype: [u8; 2]) -> [u8; ETHERNET_LEN] {
    let mut header = [0; ETHERNET_LEN];
    header[12] = ethertype[0];
    header[13] = ethertype[1];
    header
}

/// The way out of a port's interface, which may be another one than before.
#[derive(Debug)]
struct WayOut {
    ifindex: u32,
    /// `None`: there is no such interface, or it refuses.
    socket: Option<FrameSocket>,
    /// Time of the next attempt where it refuses.
    again_ns: u64,
}

/// Pause between attempts: each that fails waits for the kernel.
const AGAIN_NS: u64 = 1_000_000_000;

impl WayOut {
    fn open(ifindex: u32) -> io::Result<Self> {
        Ok(Self {
            ifindex,
            socket: Some(FrameSocket::open(ifindex, Duration::ZERO)?),
            again_ns: 0,
        })
    }

    /// How many frames were lost.
    fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        match &self.socket {
            Some(socket) => socket.send(frames),
            None => frames.count() as u64,
        }
    }

    /// Go on with the interface of this number. Whether it is another one.
    fn follow(&mut self, ifindex: u32) -> bool {
        let is_other = ifindex != self.ifindex;
        let is_due = match &self.socket {
            Some(socket) => socket.is_gone(),
            None => ifindex != 0 && monotonic_ns() >= self.again_ns,
        };
        if is_other || is_due {
            self.ifindex = ifindex;
            self.again_ns = monotonic_ns() + AGAIN_NS;
            let opened = (ifindex != 0).then(|| FrameSocket::open(ifindex, Duration::ZERO));
            self.socket = opened.and_then(Result::ok);
        }
        is_other
    }
}

/// Sockets and devices of one worker.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Out of the interface of each port.
    out: Vec<WayOut>,
    /// GTP-U, and the port that it comes in on.
    tunnels: Vec<(usize, TunnelSocket)>,
    /// Packets to UEs, and likewise.
    users: Vec<(usize, TunQueue)>,
    datagrams: Datagrams,
    /// Of the first worker, for all.
    led: Vec<Led>,
}

impl Kernel {
    fn new(ports: &[PortConfig], ifindexes: &[u32]) -> io::Result<Self> {
        let (mut tunnels, mut users) = (Vec::new(), Vec::new());
        for (number, port) in ports.iter().enumerate() {
            for &address in &port.addresses {
                tunnels.push((number, TunnelSocket::bind(address)?));
            }
            if port.roles.n6 {
                users.push((number, TunQueue::open(&port.name)?));
            }
        }
        let out = ifindexes.iter();
        let out = out.map(|&ifindex| WayOut::open(ifindex));
        Ok(Self {
            out: out.collect::<io::Result<_>>()?,
            tunnels,
            users,
            datagrams: Datagrams::new(),
            led: Vec::new(),
        })
    }

    /// Go on with interfaces that were made anew, those towards the data network and the TUN interfaces of UEs.
    fn follow(&mut self, worker: &Worker) {
        for (port, out) in self.out.iter_mut().enumerate() {
            let is_other = out.follow(worker.ifindex(port)) && out.ifindex != 0;
            let mut users = self.users.iter_mut().filter(|(of, _)| *of == port);
            let is_new = users.any(|(_, queue)| queue.heal());
            if let Some(led) = self.led.iter_mut().find(|led| led.port() == port) {
                led.renew(is_other || is_new);
            }
        }
    }
}

impl Traffic for Kernel {
    type Setup = ();

    fn take_up((): &Self::Setup, _: (usize, &str), _: u32) -> bool {
        true
    }

    fn open((): &Self::Setup, site: &Site<'_>) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        let (ports, workers) = (site.ports, site.workers);
        let ifindexes = ports
            .iter()
            .map(|port| super::super::ifindex_of(&port.name));
        let ifindexes = ifindexes.collect::<Result<Vec<u32>, _>>()?;
        let all = (0..workers).map(|_| Self::new(ports, &ifindexes));
        let mut all = all.collect::<io::Result<Vec<Self>>>()?;
        if let Some(first) = all.first_mut() {
            for (number, port) in (0..).zip(ports).filter(|(_, port)| port.roles.n6) {
                first.led.push(Led::start(&port.name, number)?);
            }
        }
        Ok((all, ifindexes))
    }

    fn serve(&mut self, worker: &mut Worker, burst: &mut Burst) -> io::Result<usize> {
        self.follow(worker);
        let Self {
            out,
            tunnels,
            users,
            datagrams,
            ..
        } = self;
        let mut served = depart(out, worker, monotonic_ns()) + take_given(out, worker);
        let ingress = worker.ingress();
        let mut run = |port: usize, burst: &mut Burst, too_long: u64| {
            worker.count_lost(port, DropReason::FrameTooLong, too_long);
            if burst.is_empty() {
                return;
            }
            served += burst.len();
            let now_ns = monotonic_ns();
            depart(out, worker, now_ns);
            worker.run(port, burst, now_ns);
            // Packets that have waited, and that these are not to overtake, are there by now.
            served += take_given(out, worker);
            send(out, port, burst, worker);
            burst.clear();
        };
        for (port, socket) in tunnels {
            let mut too_long = 0;
            datagrams.receive(socket, &ingress, |front, payload| {
                too_long += u64::from(!burst.push([front, payload]));
                if burst.is_full() {
                    run(*port, burst, 0);
                }
            })?;
            run(*port, burst, too_long);
        }
        for (port, queue) in users {
            let mut too_long = 0;
            queue.read(BURST, |front, packet| {
                too_long += u64::from(!burst.push([front, packet]));
            })?;
            run(*port, burst, too_long);
        }
        Ok(served)
    }

    fn sleep(&mut self, worker: &Worker) -> io::Result<()> {
        let tunnels = self.tunnels.iter().map(|(_, socket)| socket.as_raw_fd());
        let users = self.users.iter().map(|(_, queue)| queue.as_raw_fd());
        let entry = |fd: RawFd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let given = worker.inbox().map(|inbox| inbox.as_fd().as_raw_fd());
        let all = tunnels.chain(users).chain(given);
        let mut fds: Vec<libc::pollfd> = all.map(entry).collect();
        let due_ns = worker.next_departure_ns();
        let left = due_ns.map(|due| Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        let longest = left.map_or(SLEEP, |left| left.min(SLEEP));
        let longest = libc::timespec {
            tv_sec: 0,
            tv_nsec: longest.subsec_nanos().into(),
        };
        let n = fds.len() as libc::nfds_t;
        // SAFETY: the descriptors lie in a slice of so many, which lives through the call, as the time does.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), n, &raw const longest, ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Send frames that leave, by their port, in order. One that is passed was sent to no UE, and the kernel itself has brought it
/// here: it is counted as passed, and ends. The kernel finds the way of answers: nothing says how their frames came.
fn send(out: &[WayOut], came_by: usize, burst: &Burst, worker: &mut Worker) {
    let mut lost = 0;
    for (number, out) in (0..).zip(out) {
        let frames = burst.outcomes();
        let leaving = frames.filter(|(verdict, _)| *verdict == Verdict::Redirect(number));
        lost += out.send(leaving.map(|(_, frame)| frame));
    }
    let answers = burst.outcomes();
    for (_, frame) in answers.filter(|(verdict, _)| *verdict == Verdict::Answer) {
        let packet = frame.get(ETHERNET_LEN..).unwrap_or_default();
        lost += u64::from(!worker.hand_to_kernel(came_by, out[came_by].ifindex, packet));
    }
    worker.count_lost(came_by, DropReason::Redirect, lost);
    for (verdict, frame) in burst.outcomes() {
        if let Verdict::Later { port: to, at_ns } = verdict {
            worker.keep(at_ns, Departure { came_by, to, frame });
        }
    }
}

/// Frames that are due leave. How many there were.
fn depart(out: &[WayOut], worker: &mut Worker, now_ns: u64) -> usize {
    let mut left = 0;
    while worker.release(now_ns) {
        for (to, came_by) in ways(worker) {
            let due = worker.released();
            let due = due.filter(|due| (due.to, due.came_by) == (to, came_by));
            let lost = match out.get(to as usize) {
                Some(out) => out.send(due.clone().map(|due| due.frame)),
                None => due.clone().count() as u64, // not met: a port that frames leave by is open
            };
            left += due.count();
            worker.count_lost(came_by, DropReason::Redirect, lost);
        }
    }
    left
}

/// Frames above their rate that others have finished. How many there were.
fn take_given(out: &[WayOut], worker: &mut Worker) -> usize {
    worker.take_given(|worker, departure| {
        let frame = std::iter::once(departure.frame);
        let lost = match out.get(departure.to as usize) {
            Some(out) => out.send(frame),
            None => 1, // not met: a port that frames leave by is open
        };
        worker.count_lost(departure.came_by, DropReason::Redirect, lost);
    })
}

/// Ports that frames which are due leave by and came by, each pair once.
fn ways(worker: &Worker) -> Vec<(u32, usize)> {
    let mut ways: Vec<(u32, usize)> = Vec::new();
    for due in worker.released() {
        if !ways.contains(&(due.to, due.came_by)) {
            ways.push((due.to, due.came_by));
        }
    }
    ways
}

/// The result of a system call.
pub(super) fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The result of one that has nothing to do: `None`.
pub(super) fn unless_it_would_block<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}
