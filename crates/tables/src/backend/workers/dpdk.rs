//! Packets by devices of DPDK, in two models: every worker has a queue pair of each to itself, or receive cores spread what comes
//! in over workers (`docs/decisions/0016-rings-of-one-writer-and-one-reader.md`). A thread stands between them and the TAP
//! interfaces that are the kernel's faces of the ports (`docs/decisions/0014-the-kernel-is-dpdks-neighbour-table.md`).

mod kernel_side;
mod pipeline;
mod ports;
mod tap;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Traffic;
use crate::abi::dpdk::{
    tp_dpdk_free_waiting, tp_dpdk_join, tp_dpdk_lane, tp_dpdk_leave, tp_dpdk_queues,
    tp_dpdk_receive, tp_dpdk_receiver, tp_dpdk_serve, tp_dpdk_take_lost,
};
use crate::clock::monotonic_ns;
use crate::dpdk::{self, Direct};
use crate::error::SetupError;
use crate::port::PortConfig;
use crate::queue::Queue;
use crate::worker::{Burst, Worker};
use kernel_side::KernelSide;
use pipeline::Rings;
use ports::Ports;
use tap::Tap;

/// Octets of frames that the kernel has sent and a worker has not taken yet.
const FROM_KERNEL: usize = 1 << 20;
/// MTU of ports whose TAP interface says none.
const MTU: u32 = 1500;

/// What one thread receives and sends by.
pub(crate) struct Dpdk {
    part: Part,
    cpu: Option<u32>,
    has_joined: bool,
    idle: Option<Idle>,
    /// Of the first worker, for all. Ends before the ports do.
    _kernel_side: Option<KernelSide>,
    /// What the part points at.
    ports: Arc<Ports>,
    _rings: Option<Arc<Rings>>,
    _from_kernel: Option<Arc<Queue>>,
}

/// What a thread does.
enum Part {
    Worker(tp_dpdk_lane),
    Receiver(Box<tp_dpdk_receiver>),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Worker(lane) => write!(f, "worker-{}", lane.queue),
            Self::Receiver(receiver) => write!(f, "receiver-{}", receiver.number),
        }
    }
}

// SAFETY: the part points at what `ports`, rings and the queue keep; devices' queues and ends of rings are those of this thread
// alone.
unsafe impl Send for Dpdk {}

impl std::fmt::Debug for Dpdk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dpdk {}", self.part)
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
    fn helpers() -> usize {
        let pipeline = dpdk::settings().pipeline;
        pipeline.map_or(0, |pipeline| pipeline.receivers as usize)
    }

    fn open(ports: &[PortConfig], workers: usize) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        let settings = dpdk::settings();
        let taps = ports.iter().filter(|_| settings.taps);
        let taps: Vec<Tap> = taps
            .map(|port| Tap::open(&port.name))
            .collect::<Result<_, _>>()?;
        let mut mtus: Vec<u32> = taps.iter().map(Tap::mtu).collect::<io::Result<_>>()?;
        mtus.resize(ports.len(), MTU);
        let pipeline = settings.pipeline.as_ref();
        let threads = tp_dpdk_queues {
            workers: workers as u32,
            receivers: pipeline.map_or(0, |pipeline| pipeline.receivers),
        };
        let opened = Arc::new(Ports::open(ports, &mtus, threads)?);
        let rings = pipeline.map(|pipeline| Rings::new(pipeline, workers).map(Arc::new));
        let rings = rings.transpose()?;
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
        let idle = || (!settings.busy_poll).then(Idle::default);
        let workers = queues.into_iter().enumerate().map(|(number, queue)| Self {
            part: Part::Worker(opened.lane(number, rings.as_deref(), &queue)),
            cpu: settings.cpus.get(number).copied(),
            has_joined: false,
            idle: idle(),
            _kernel_side: kernel_side.take(),
            ports: Arc::clone(&opened),
            _rings: rings.clone(),
            _from_kernel: Some(queue),
        });
        let mut all: Vec<Self> = workers.collect();
        if let (Some(pipeline), Some(rings)) = (pipeline, &rings) {
            all.extend((0..pipeline.receivers as usize).map(|number| Self {
                part: Part::Receiver(Box::new(rings.receiver(number, opened.shared()))),
                cpu: pipeline.cpus.get(number).copied(),
                has_joined: false,
                idle: idle(),
                _kernel_side: None,
                ports: Arc::clone(&opened),
                _rings: Some(Arc::clone(rings)),
                _from_kernel: None,
            }));
        }
        Ok((all, ifindexes))
    }

    fn thread_name(&self, _: usize) -> String {
        self.part.to_string()
    }

    fn serve(&mut self, worker: &mut Worker, _: &mut Burst) -> io::Result<usize> {
        if !self.has_joined {
            self.join()?;
        }
        // SAFETY: the part points at what `self` keeps, and its queues and ends of rings are this thread's, which has joined;
        // tables and queues of the worker live as long as it does.
        let served = unsafe {
            match &mut self.part {
                Part::Worker(lane) => tp_dpdk_serve(lane, worker.as_mut_ptr()),
                Part::Receiver(receiver) => tp_dpdk_receive(&mut **receiver, worker.as_mut_ptr()),
            }
        };
        if let Part::Worker(lane) = &mut self.part
            && lane.queue == 0
            && self.ports.take_news()
        {
            // SAFETY: as above.
            unsafe { tp_dpdk_take_lost(lane, worker.as_mut_ptr()) };
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
                "DPDK does not take the thread {} (CPU {cpu})",
                self.part
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
