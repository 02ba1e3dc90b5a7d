//! Packets by devices of DPDK, in two models: every worker has a queue pair of each to itself, or receive cores spread what comes
//! in over workers (`docs/decisions/0016-rings-of-one-writer-and-one-reader.md`). A thread stands between them and the TAP
//! interfaces that are the kernel's faces of the ports (`docs/decisions/0014-the-kernel-is-dpdks-neighbour-table.md`).

mod kernel_side;
mod memif;
mod pipeline;
mod ports;
mod rest;
mod tap;
#[cfg(test)]
mod tests;

use std::io;
use std::ptr::null_mut;
use std::sync::{Arc, PoisonError};

use super::{Site, Traffic};
use crate::abi::dpdk::{
    tp_dpdk_free_waiting, tp_dpdk_join, tp_dpdk_leave, tp_dpdk_queues, tp_dpdk_receive,
    tp_dpdk_receiver, tp_dpdk_serve, tp_dpdk_sleeper, tp_dpdk_take_lost, tp_dpdk_worker,
};
use crate::dpdk::{Direct, Setup};
use crate::error::SetupError;
use crate::frame_socket::Egress;
use crate::handover::Handover;
use crate::queue::Queue;
use crate::worker::{Burst, Worker};
use kernel_side::KernelSide;
use pipeline::{Rings, worker_part};
use ports::Ports;
use rest::{Idle, Sleeper};
pub(in crate::backend::workers) use tap::Tap;

/// Octets of frames that the kernel has sent, or threads beside workers, and a worker has not taken yet.
pub(super) const FROM_KERNEL: usize = 1 << 20;
/// MTU of ports whose TAP interface says none.
const MTU: u32 = 1500;

/// The devices as one thread uses them.
pub(crate) struct Dpdk {
    part: Part,
    cpu: Option<u32>,
    has_joined: bool,
    idle: Option<Idle>,
    sleeper: Option<Sleeper>,
    /// Of the first worker, for all. Ends before the ports do.
    _kernel_side: Option<KernelSide>,
    /// Memory that the part points at.
    ports: Arc<Ports>,
    _rings: Option<Arc<Rings>>,
    /// Of frames that the kernel has sent, and threads beside workers, for each worker.
    _from_kernel: Arc<[Queue]>,
}

/// Role of a thread.
enum Part {
    Worker(Box<tp_dpdk_worker>),
    Receiver(Box<tp_dpdk_receiver>),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Worker(own) => write!(f, "worker-{}", own.queue),
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
        drop(self.sleeper.take());
        if self.has_joined {
            // SAFETY: this is the thread that has joined: workers drop what they serve by.
            unsafe { tp_dpdk_leave() };
        }
    }
}

impl Traffic for Dpdk {
    type Setup = Setup;

    fn helpers(setup: &Setup) -> usize {
        setup.settings.receivers()
    }

    fn take_up(setup: &Setup, (port, name): (usize, &str), ifindex: u32) -> bool {
        let taps = setup.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let can_be = ifindex == 0 || Tap::is_one_of(&taps, name);
        can_be && setup.queues.set_tap(port, ifindex)
    }

    fn open(setup: &Setup, site: &Site<'_>) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        let (settings, ports, workers) = (&setup.settings, site.ports, site.workers);
        let mut known = setup.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let taps = ports.iter().filter(|_| settings.taps);
        let taps = taps.map(|port| {
            let former = Tap::take_over(&mut known, &port.name);
            former.map_or_else(|| Tap::open(&port.name), Ok)
        });
        let taps: Vec<Tap> = taps.collect::<Result<_, _>>()?;
        *known = taps
            .iter()
            .map(Tap::descriptor)
            .collect::<io::Result<_>>()?;
        // The thread that is started below may want them.
        drop(known);
        let mut mtus: Vec<u32> = taps.iter().map(Tap::mtu).collect::<io::Result<_>>()?;
        mtus.resize(ports.len(), MTU);
        let pipeline = settings.pipeline.as_ref();
        let threads = tp_dpdk_queues {
            workers: workers as u32,
            receivers: pipeline.map_or(0, |pipeline| pipeline.receivers),
            may_sleep: (!settings.busy_poll).into(),
            ..tp_dpdk_queues::default()
        };
        let opened = Arc::new(Ports::open(settings, ports, &mtus, threads)?);
        let rings =
            pipeline.map(|pipeline| Rings::new(pipeline, workers, settings.node()).map(Arc::new));
        let rings = rings.transpose()?;
        let queues = (0..workers).map(|_| Queue::new(FROM_KERNEL));
        let queues: Arc<[Queue]> = queues.collect::<io::Result<Vec<_>>>()?.into();
        let way_out = |port: usize| Direct {
            queues: setup.queues.clone(),
            port: port as u32,
        };
        let mut ifindexes = vec![0; ports.len()];
        for (number, tap) in taps.iter().enumerate() {
            ifindexes[number] = tap.start(opened.mac(number))?;
        }
        let interfaces = ifindexes[..taps.len()].to_vec();
        setup.queues.are(&queues, interfaces);
        let mut kernel_side = Some(KernelSide::start(
            (taps, Arc::clone(&setup.taps)),
            Arc::clone(&opened),
            (0..ports.len()).map(way_out).collect(),
        )?);
        let idle = || (!settings.busy_poll).then(Idle::default);
        let workers = queues.iter().enumerate().map(|(number, queue)| Self {
            part: Part::Worker(Box::new(worker_part(
                number,
                &opened,
                rings.as_deref(),
                queue,
            ))),
            cpu: settings.cpus.get(number).copied(),
            has_joined: false,
            idle: idle(),
            sleeper: None,
            _kernel_side: kernel_side.take(),
            ports: Arc::clone(&opened),
            _rings: rings.clone(),
            _from_kernel: Arc::clone(&queues),
        });
        let mut all: Vec<Self> = workers.collect();
        if let (Some(pipeline), Some(rings)) = (pipeline, &rings) {
            all.extend((0..pipeline.receivers as usize).map(|number| Self {
                part: Part::Receiver(Box::new(rings.receiver(number, &opened, &queues))),
                cpu: pipeline.cpus.get(number).copied(),
                has_joined: false,
                idle: idle(),
                sleeper: None,
                _kernel_side: None,
                ports: Arc::clone(&opened),
                _rings: Some(Arc::clone(rings)),
                _from_kernel: Arc::clone(&queues),
            }));
        }
        Ok((all, ifindexes))
    }

    fn handover(setup: &Setup) -> Option<Handover> {
        Some(Handover::Queues(setup.queues.clone()))
    }

    fn egress(setup: &Setup) -> Egress {
        Egress {
            queues: Some(setup.queues.clone()),
        }
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
                Part::Worker(own) => tp_dpdk_serve(&mut **own, worker.as_mut_ptr()),
                Part::Receiver(receiver) => tp_dpdk_receive(&mut **receiver, worker.as_mut_ptr()),
            }
        };
        if let Part::Worker(own) = &mut self.part
            && own.queue == 0
            && self.ports.take_news()
        {
            // SAFETY: as above.
            unsafe { tp_dpdk_take_lost(&mut **own, worker.as_mut_ptr()) };
        }
        if served > 0
            && let Some(idle) = &mut self.idle
        {
            idle.end(self.sleeper.as_ref());
        }
        Ok(served as usize)
    }

    fn sleep(&mut self, worker: &Worker) -> io::Result<()> {
        match &mut self.idle {
            Some(idle) => idle.wait(self.sleeper.as_ref(), worker.next_departure_ns()),
            None => std::hint::spin_loop(),
        }
        Ok(())
    }

    fn follow(&mut self, frames: Option<&Queue>) {
        let from_control = frames.map_or(null_mut(), Queue::as_ptr);
        if let Part::Worker(own) = &mut self.part {
            own.from_control = from_control;
        }
        if let Some(sleeper) = &mut self.sleeper {
            sleeper.follow(from_control);
        }
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
            self.sleeper = self.sleeper();
            // SAFETY: no pointer is given. A sleep ends when it is over, not 50 microseconds later.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
        }
        Ok(())
    }

    /// Of a thread that polls devices, all of which can wake it, or that receive cores wake.
    fn sleeper(&self) -> Option<Sleeper> {
        let (polls, from_kernel, from_control) = match &self.part {
            Part::Worker(own) => (own.polls, own.from_kernel, own.from_control),
            Part::Receiver(receiver) => (receiver.polls, null_mut(), null_mut()),
        };
        let mut polled = polls.of.iter().take(polls.n as usize);
        let can_wake = polled.all(|queue| self.ports.wakes(queue.port.into()));
        let of = tp_dpdk_sleeper {
            shared: self.ports.shared(),
            polls,
            from_kernel,
            from_control,
            epoll: -1,
        };
        can_wake.then(|| Sleeper::start(of)).flatten()
    }
}
