//! The pipeline in threads, each with packets of its own: of this process, or of one that goes on without it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

#[cfg(feature = "dpdk")]
pub(crate) mod apart;
mod crew;
#[cfg(feature = "dpdk")]
pub(crate) mod dpdk;
pub(crate) mod kernel;

use super::{Backend, Builds, GoingOn, Records};
use crate::abi::Features;
#[cfg(feature = "dpdk")]
use crate::clock::monotonic_ns;
#[cfg(feature = "dpdk")]
use crate::drop_reason::DropReason;
use crate::error::SetupError;
use crate::frame_socket::Egress;
use crate::grace::{Barrier, Bystander};
use crate::handover::Handover;
use crate::layout::{Layout, Memory};
use crate::pipeline::{Run, RunTogether};
use crate::port::PortConfig;
use crate::queue::Queue;
use crate::ring::Ring;
use crate::shaping::Departure;
use crate::table_files::TableFiles;
use crate::trace::TraceRecord;
use crate::verdict::Verdict;
use crate::worker::{Burst, FRAME_MAX, Shared, Within, Worker};
use crew::Crew;

/// Everything that traffic is opened for.
#[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "for workers apart"))]
pub(crate) struct Site<'s> {
    pub(crate) layout: &'s Layout,
    pub(crate) ports: &'s [PortConfig],
    pub(crate) workers: usize,
    pub(crate) shared: &'s Shared,
    /// Of the tables.
    pub(crate) files: Option<&'s TableFiles>,
}

/// Source and destination of one worker's frames.
pub(crate) trait Traffic: Send + Sized + 'static {
    /// Settings of its own, beside the ports.
    type Setup: fmt::Debug + Send;

    /// Threads beside the workers, which take frames in for them, and count what they lose.
    fn helpers(_: &Self::Setup) -> usize {
        0
    }

    /// Traffic of all workers, then of all helpers, and the interface of each port.
    fn open(setup: &Self::Setup, site: &Site<'_>) -> Result<(Vec<Self>, Vec<u32>), SetupError>;

    /// Take up an interface of this name that was made anew for a port, by its number in the tables; 0: it is gone. Whether it can.
    fn take_up(_: &Self::Setup, _port: (usize, &str), _ifindex: u32) -> bool {
        false
    }

    /// Send what is due, take in what has come, once around, run it, and send it on. How many frames there were. Never waits.
    fn serve(&mut self, worker: &mut Worker, burst: &mut Burst) -> io::Result<usize>;

    /// Sleep until something has come or a frame that waits is due, a tenth of a second at most.
    fn sleep(&mut self, worker: &Worker) -> io::Result<()>;

    /// The way of frames above their rate that others have finished to these workers; `None`: they take them by
    /// [`Worker::take_given`].
    fn handover(_: &Self::Setup) -> Option<Handover> {
        None
    }

    /// The way out of interfaces for other threads.
    fn egress(_: &Self::Setup) -> Egress {
        Egress::default()
    }

    /// Whether tables are in files, or there are none.
    fn needs_files() -> bool {
        false
    }

    /// Everything that workers share beside tables, for so many threads.
    fn share(
        _: &Self::Setup,
        layout: &Layout,
        memory: Memory,
        threads: usize,
        _: Option<&TableFiles>,
    ) -> io::Result<Shared> {
        Shared::new(layout, memory, threads, &Within)
    }

    /// Barrier for packets under way in these threads.
    fn barrier(_: &Self::Setup, all: Vec<Bystander>) -> Barrier {
        Barrier::threads(all)
    }

    /// An error: some packets are not run any more.
    fn check(_: &Self::Setup, _: &[Bystander]) -> io::Result<()> {
        Ok(())
    }

    /// Workers that run packets elsewhere end, and others go on over the same tables. The interface of each port. `mend`: is called in between.
    #[cfg(feature = "dpdk")]
    fn replace_workers(
        _: &Self::Setup,
        _: &Site<'_>,
        _mend: impl FnOnce(),
    ) -> Result<Vec<u32>, SetupError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Whether packets may meet tables for which it was opened, or could not be.
    fn are_met(_: &Self::Setup) -> bool {
        true
    }

    /// How packets go on without this process.
    fn going_on(_: &Self::Setup) -> GoingOn {
        GoingOn::Nowhere
    }

    /// From now on they do, or they end with it from now on.
    fn set_going_on(_: &Self::Setup, _: bool) {}

    /// From now on it sends what another process gives it by this queue, which lives until it is told of another one.
    fn follow(&mut self, _: Option<&Queue>) {}

    /// Have what is finished in this process leave, before packets meet the tables. The interface of each port; `None`: it cannot yet.
    fn lead(_: &Self::Setup, _: &Site<'_>) -> Result<Option<Vec<u32>>, SetupError> {
        Ok(None)
    }

    /// The worker ends: what waits has no other owner.
    fn stop(&mut self, _: &mut Worker) {}

    /// Of the thread of this number.
    fn thread_name(&self, number: usize) -> String {
        format!("worker-{number}")
    }
}

/// Workers, and the tables that they share. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Workers<T: Traffic> {
    setup: T::Setup,
    /// Of the tables.
    files: Option<TableFiles>,
    layout: Layout,
    shared: Shared,
    ports: Vec<PortConfig>,
    is_threaded: bool,
    workers: usize,
    /// One for each worker and helper, and one for frames that are run by hand.
    bystanders: Vec<Bystander>,
    by_hand: Mutex<(Worker, Burst)>,
    crew: Crew,
    /// Workers and helpers that have no thread, where none has.
    unthreaded: Vec<(T, Worker)>,
    handover: Handover,
}

impl<T: Traffic> Workers<T> {
    /// Records that wait for user space.
    fn take(&self, records: Records) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let queue = self.shared.queues.of(records);
        queue.read(usize::MAX, &mut |record| all.push(record.to_vec()));
        all
    }

    fn site(&self) -> Site<'_> {
        Site {
            layout: &self.layout,
            ports: &self.ports,
            workers: self.workers,
            shared: &self.shared,
            files: self.files.as_ref(),
        }
    }

    fn name_of(&self, port: usize) -> &str {
        self.ports.get(port).map_or("", |port| &port.name)
    }
}

impl<T: Traffic + fmt::Debug> Backend for Workers<T> {
    /// Files: for tables that outlive this process, where they find room.
    type Setup = (T::Setup, Option<TableFiles>);

    fn builds(layout: &Layout, _: &[PortConfig]) -> Builds {
        Builds {
            // Several workers may meet one session. Who else counts does so aside (`struct tp_side`).
            always: match layout.workers {
                0 | 1 => Features::NONE,
                _ => Features::ATOMIC,
            },
            ..Builds::default()
        }
    }

    fn load(
        layout: &Layout,
        ports: &[PortConfig],
        features: Features,
        (setup, mut files): Self::Setup,
    ) -> Result<Self, SetupError> {
        let workers = layout.workers.max(1) as usize;
        let threads = workers + T::helpers(&setup);
        let memory = match &files {
            Some(wanted) => {
                let places = wanted.places(layout.node);
                Memory::new(layout, threads + 1, &places).or_else(|error| {
                    if T::needs_files() {
                        return Err(error);
                    }
                    tracing::error!(%error, "tables cannot lie in state.dir: what they count since sessions report is lost if this process is killed");
                    files = None;
                    Memory::anonymous(layout, threads + 1)
                })?
            }
            None => Memory::anonymous(layout, threads + 1)?,
        };
        let shared = T::share(&setup, layout, memory, threads + 1, files.as_ref())?;
        shared.features().store(features.bits(), Ordering::Release);
        let by_hand = Worker::new(&shared, threads, ports)?;
        let own = T::handover(&setup).filter(|_| shared.shaping.is_some());
        Ok(Self {
            handover: own.unwrap_or_else(|| shared.handover()),
            setup,
            files,
            layout: layout.clone(),
            bystanders: (0..=threads).map(|n| shared.bystander(n)).collect(),
            shared,
            ports: ports.to_vec(),
            is_threaded: layout.workers > 0,
            workers,
            by_hand: Mutex::new((by_hand, Burst::new(FRAME_MAX))),
            crew: Crew::default(),
            unthreaded: Vec::new(),
        })
    }

    fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    fn files(&self) -> Option<&TableFiles> {
        self.files.as_ref()
    }

    fn check(&self) -> io::Result<()> {
        let threads = self.bystanders.split_last();
        T::check(
            &self.setup,
            threads.map_or(&[], |(_by_hand, threads)| threads),
        )
    }

    #[cfg(feature = "dpdk")]
    fn replace_workers(&mut self) -> Result<(), SetupError> {
        let ifindexes = T::replace_workers(&self.setup, &self.site(), || {
            let by_hand = self.by_hand.lock();
            let (worker, _) = &*by_hand.unwrap_or_else(PoisonError::into_inner);
            let lost = self.shared.mend(self.bystanders.len() - 1, monotonic_ns());
            // By which they came is not known any more.
            worker.count_lost(0, DropReason::WorkerEnded, lost);
        })?;
        self.memory().set_interfaces(ifindexes);
        Ok(())
    }

    fn going_on(&self) -> GoingOn {
        T::going_on(&self.setup)
    }

    fn set_going_on(&self, without: bool) {
        T::set_going_on(&self.setup, without);
    }

    fn lead(&mut self) -> Result<bool, SetupError> {
        let ifindexes = T::lead(&self.setup, &self.site())?;
        let is_led = ifindexes.is_some();
        self.memory()
            .set_interfaces(ifindexes.into_iter().flatten());
        Ok(is_led)
    }

    fn attach(&mut self) -> Result<(), SetupError> {
        let opened = T::open(&self.setup, &self.site());
        if let Some(files) = self.files.as_ref().filter(|_| T::are_met(&self.setup)) {
            files.are_met();
        }
        let (traffic, ifindexes) = opened?;
        self.memory().set_interfaces(ifindexes);
        for (number, traffic) in traffic.into_iter().enumerate() {
            if !self.is_threaded {
                let worker = Worker::new(&self.shared, number, &self.ports)?;
                self.unthreaded.push((traffic, worker));
                continue;
            }
            self.crew
                .start(&self.shared, &self.ports, number, traffic)?;
        }
        Ok(())
    }

    // Each worker sees to its own part of it.
    fn attach_port(&mut self, port: usize, ifindex: u32) -> Result<(), SetupError> {
        let slot = self.memory().config[0].port_ifindex.get(port);
        let is_its = |slot: &&AtomicU32| slot.load(Ordering::Acquire) == ifindex;
        let take_up = || T::take_up(&self.setup, (port, self.name_of(port)), ifindex);
        let slot = slot.filter(|slot| take_up() || is_its(slot));
        let slot = slot.ok_or(SetupError::NotAnew(port))?;
        slot.store(ifindex, Ordering::Release);
        Ok(())
    }

    fn detach_port(&mut self, port: usize) {
        let slot = self.memory().config[0].port_ifindex.get(port);
        let let_go = |_: &_| T::take_up(&self.setup, (port, self.name_of(port)), 0);
        if let Some(slot) = slot.filter(let_go) {
            slot.store(0, Ordering::Release);
        }
    }

    fn is_attached(&self, _port: usize) -> bool {
        T::are_met(&self.setup)
    }

    fn run_once(&mut self) -> io::Result<usize> {
        let burst = self.by_hand.get_mut();
        let (_, burst) = burst.unwrap_or_else(PoisonError::into_inner);
        let mut served = 0;
        // Helpers stand behind the workers and run first: frames that they take in are then there for the workers.
        for ((traffic, worker), bystander) in self.unthreaded.iter_mut().zip(&self.bystanders).rev()
        {
            let _looking = bystander.look();
            served += traffic.serve(worker, burst)?;
        }
        Ok(served)
    }

    fn replace(&mut self, features: Features) -> io::Result<()> {
        let live = self.shared.features();
        live.store(features.bits(), Ordering::Release);
        Ok(())
    }

    fn handover(&self) -> Handover {
        self.handover.clone()
    }

    fn egress(&self) -> Egress {
        T::egress(&self.setup)
    }

    fn barrier(&self) -> io::Result<Barrier> {
        Ok(T::barrier(&self.setup, self.bystanders.clone()))
    }

    fn ring(&self, records: Records) -> Result<Option<Ring>, SetupError> {
        Ok(Some(Arc::clone(self.shared.queues.of(records)).into()))
    }

    fn run(&self, port: usize, frame: &[u8], now_ns: u64) -> Option<Run> {
        let mut together = self.run_together(port, &[frame.to_vec()], now_ns)?;
        let (verdict, frame) = together.outcomes.pop()?;
        Some(Run {
            verdict,
            frame,
            event: together.events.concat(),
            copies: self.take(Records::Copies).concat(),
            trace: TraceRecord::parse(&self.take(Records::Traced).concat()),
        })
    }

    fn release(&self, now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        let mut by_hand = self.by_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let (worker, mut left) = (&mut by_hand.0, Vec::new());
        while worker.release(now_ns) {
            left.extend(worker.released().map(|d| (d.to, d.frame.to_vec())));
        }
        worker.take_given(|_, departure| left.push((departure.to, departure.frame.to_vec())));
        left
    }

    // Alarms stay where the control thread hears of them.
    fn run_together(&self, port: usize, frames: &[Vec<u8>], now_ns: u64) -> Option<RunTogether> {
        let mut by_hand = self.by_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let (worker, burst) = &mut *by_hand;
        let looking = self.bystanders.last()?.look();
        burst.clear();
        for frame in frames {
            burst.push([frame, &[]]);
        }
        worker.run(port, burst, now_ns);
        drop(looking);
        let outcomes = burst.outcomes();
        for (verdict, frame) in outcomes {
            if let Verdict::Later { port: to, at_ns } = verdict {
                let came_by = port;
                worker.keep(at_ns, Departure { came_by, to, frame });
            }
        }
        let outcomes = burst.outcomes();
        Some(RunTogether {
            outcomes: outcomes
                .map(|(verdict, frame)| (verdict, frame.to_vec()))
                .collect(),
            events: [self.take(Records::Events), self.take(Records::Held)].concat(),
        })
    }
}

/// No traffic but frames that are run by hand.
#[derive(Debug)]
pub(crate) struct ByHand;

impl Traffic for ByHand {
    type Setup = ();

    fn open((): &Self::Setup, _: &Site<'_>) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        Ok((Vec::new(), Vec::new()))
    }

    fn serve(&mut self, _: &mut Worker, _: &mut Burst) -> io::Result<usize> {
        Ok(0)
    }

    fn sleep(&mut self, _: &Worker) -> io::Result<()> {
        Ok(())
    }
}
