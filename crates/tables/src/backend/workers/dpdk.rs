//! Packets by devices of DPDK. Every worker has a queue pair of each to itself, and a thread between them and the TAP
//! interfaces that are the kernel's faces of the ports (`docs/decisions/0014-the-kernel-is-dpdks-neighbour-table.md`).

mod kernel_side;
mod ports;
mod tap;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Traffic;
use crate::abi::dpdk::{
    tp_dpdk_free_waiting, tp_dpdk_join, tp_dpdk_lane, tp_dpdk_leave, tp_dpdk_serve,
    tp_dpdk_take_lost,
};
use crate::clock::monotonic_ns;
use crate::dpdk::{self, Direct};
use crate::error::SetupError;
use crate::port::PortConfig;
use crate::queue::Queue;
use crate::worker::{Burst, Worker};
use kernel_side::KernelSide;
use ports::Ports;
use tap::Tap;

/// Octets of frames that the kernel has sent and a worker has not taken yet.
const FROM_KERNEL: usize = 1 << 20;
/// MTU of ports whose TAP interface says none.
const MTU: u32 = 1500;

/// What one worker receives and sends by.
pub(crate) struct Dpdk {
    lane: tp_dpdk_lane,
    cpu: Option<u32>,
    has_joined: bool,
    idle: Option<Idle>,
    /// Of the first worker, for all. Ends before the ports do.
    _kernel_side: Option<KernelSide>,
    is_first: bool,
    /// What the lane points at.
    ports: Arc<Ports>,
    _from_kernel: Arc<Queue>,
}

// SAFETY: the lane points at what `ports` and the queue keep; devices' queues are those of this worker alone.
unsafe impl Send for Dpdk {}

impl std::fmt::Debug for Dpdk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dpdk queue {}", self.lane.queue)
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        if self.has_joined {
            // SAFETY: this is the thread that has joined: workers drop what they serve by.
            unsafe { tp_dpdk_leave() };
        }
    }
}

impl Traffic for Dpdk {
    fn open(ports: &[PortConfig], workers: usize) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        let settings = dpdk::settings();
        let taps = ports.iter().filter(|_| settings.taps);
        let taps: Vec<Tap> = taps
            .map(|port| Tap::open(&port.name))
            .collect::<Result<_, _>>()?;
        let mut mtus: Vec<u32> = taps.iter().map(Tap::mtu).collect::<io::Result<_>>()?;
        mtus.resize(ports.len(), MTU);
        let opened = Arc::new(Ports::open(ports, &mtus, workers)?);
        let queues = (0..workers).map(|_| Queue::new(FROM_KERNEL).map(Arc::new));
        let queues: Vec<Arc<Queue>> = queues.collect::<io::Result<_>>()?;
        let way_out = |port: usize| Direct {
            queue: Arc::downgrade(&queues[port % workers]),
            port: port as u32,
        };
        let mut ifindexes = vec![0; ports.len()];
        for (number, tap) in taps.iter().enumerate() {
            ifindexes[number] = tap.start(opened.mac(number))?;
            dpdk::set_direct(ifindexes[number], way_out(number));
        }
        let mut kernel_side = Some(KernelSide::start(
            taps,
            Arc::clone(&opened),
            (0..ports.len()).map(way_out).collect(),
        )?);
        let lanes = queues.into_iter().enumerate().map(|(number, queue)| Self {
            lane: opened.lane(number, &queue),
            cpu: settings.cpus.get(number).copied(),
            has_joined: false,
            idle: (!settings.busy_poll).then(Idle::default),
            _kernel_side: kernel_side.take(),
            is_first: number == 0,
            ports: Arc::clone(&opened),
            _from_kernel: queue,
        });
        Ok((lanes.collect(), ifindexes))
    }

    fn serve(&mut self, worker: &mut Worker, _: &mut Burst) -> io::Result<usize> {
        if !self.has_joined {
            self.join()?;
        }
        // SAFETY: the lane points at what `self` keeps, and its queues are this thread's, which has joined; tables and queues
        // of the worker live as long as it does.
        let served = unsafe { tp_dpdk_serve(&raw mut self.lane, worker.as_mut_ptr()) };
        if self.is_first && self.ports.take_news() {
            // SAFETY: as above.
            unsafe { tp_dpdk_take_lost(&raw mut self.lane, worker.as_mut_ptr()) };
        }
        if served > 0
            && let Some(idle) = &mut self.idle
        {
            idle.polls = 0;
        }
        Ok(served as usize)
    }

    fn sleep(&mut self, due_ns: Option<u64>) -> io::Result<()> {
        match &mut self.idle {
            Some(idle) => idle.wait(due_ns),
            None => std::hint::spin_loop(),
        }
        Ok(())
    }

    fn stop(&mut self, worker: &mut Worker) {
        if self.has_joined {
            // SAFETY: the worker's tables live as long as it does, and what waits in its wheel are buffers of this thread's.
            unsafe { tp_dpdk_free_waiting(worker.as_mut_ptr()) };
        }
    }
}

impl Dpdk {
    fn join(&mut self) -> io::Result<()> {
        let cpu = self.cpu.map_or(-1, |cpu| cpu as i32);
        // SAFETY: no pointer is given; the environment has been started.
        if unsafe { tp_dpdk_join(cpu) } < 0 {
            return Err(io::Error::other(format!(
                "DPDK does not take the thread of worker {} (CPU {cpu})",
                self.lane.queue
            )));
        }
        self.has_joined = true;
        if self.idle.is_some() {
            // SAFETY: no pointer is given. A sleep ends when it is over, not 50 microseconds later.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
        }
        Ok(())
    }
}

/// Polls in vain since the last frame.
#[derive(Debug, Default)]
struct Idle {
    polls: u32,
}

/// Polls in vain before a worker sleeps at all: some tens of microseconds, within which most traffic goes on.
const AWAKE: u32 = 256;
/// The longest sleep: what a first packet waits for, at most.
const LONGEST: Duration = Duration::from_micros(100);

impl Idle {
    /// Sleeps grow by a microsecond each.
    fn wait(&mut self, due_ns: Option<u64>) {
        self.polls = self.polls.saturating_add(1);
        match self.polls.checked_sub(AWAKE) {
            None => std::hint::spin_loop(),
            Some(us) => {
                let left = due_ns.map(|due| due.saturating_sub(monotonic_ns()));
                let left = left.map_or(LONGEST, Duration::from_nanos);
                std::thread::sleep(Duration::from_micros(us.into()).min(LONGEST).min(left));
            }
        }
    }
}
