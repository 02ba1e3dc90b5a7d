//! The pipeline in a thread that has a share of all packets to itself (`datapath/platform/worker/tp_worker.h`).

use std::io;
use std::os::fd::OwnedFd;
#[cfg(feature = "dpdk")]
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::abi::host::{
    TP_BURST_MAX, TP_VERDICT_LATER, TP_VERDICT_PASS, TP_VERDICT_REDIRECT, TP_VERDICT_SLOW,
    TP_VERDICT_TX, tp_frame, tp_queues, tp_tables, tp_worker, tp_worker_burst,
};
use crate::abi::{Cpu, Features, PORTS_MAX, raw};
use crate::drop_reason::DropReason;
use crate::grace::{APART, Bystander};
use crate::handover::{Handover, Inbox, Later};
use crate::ingress::Ingress;
use crate::layout::{Layout, Memory};
use crate::memory::View;
use crate::pipeline::{HEADROOM, TAILROOM};
use crate::port::PortConfig;
use crate::queue::Queue;
use crate::ring::Records;
use crate::shaping::{Departure, Shaping, Waiting};
use crate::task::EVENT_SEND;
use crate::verdict::Verdict;

/// Octets of the longest frame.
pub(crate) const FRAME_MAX: usize = 16 << 10;

/// Frames of one burst, at most.
pub(crate) const BURST: usize = TP_BURST_MAX as usize;

/// Octets of records for the slow path, of duplicates, of alarms and of followed packets on their way to user space.
const EVENTS: usize = 4 << 20;
const COPIES: usize = 4 << 20;
const ALARMS: usize = 2 << 20;
const TRACED: usize = 1 << 20;

/// Queues of records that workers hand to other threads. Clones are the same queues.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    events: Arc<Queue>,
    copies: Arc<Queue>,
    held: Arc<Queue>,
    alarms: Arc<Queue>,
    traced: Arc<Queue>,
}

/// Name of the memory of a queue. The number is that of queues and of their records: a program that knows others does not read them.
pub(crate) fn ring_file(name: &str) -> String {
    format!("ring-1-{name}")
}

/// Source of what workers share beside tables. The same in each process that has it, but for descriptors that it gives.
pub(crate) trait Between {
    /// Zeroed memory of this name, for so many words.
    fn words(&self, name: &str, len: usize) -> io::Result<View<AtomicU64>>;

    /// A descriptor by which the reader of a queue is woken.
    fn wake(&self) -> io::Result<OwnedFd>;

    /// A queue with room for so many octets.
    fn queue(&self, name: &str, octets: usize) -> io::Result<Arc<Queue>> {
        let memory = self.words(name, Queue::words(octets))?;
        Queue::over(memory, octets, self.wake()?).map(Arc::new)
    }
}

/// Of this process alone.
pub(crate) struct Within;

impl Between for Within {
    fn words(&self, _: &str, len: usize) -> io::Result<View<AtomicU64>> {
        View::anonymous(len)
    }

    fn wake(&self) -> io::Result<OwnedFd> {
        Queue::wake()
    }
}

impl Queues {
    /// Octets of records that they have room for.
    pub(crate) fn octets(layout: &Layout) -> u64 {
        (EVENTS + COPIES + ALARMS + TRACED) as u64 + u64::from(layout.held_ring)
    }

    fn new(layout: &Layout, between: &impl Between) -> io::Result<Self> {
        let queue = |name, octets| between.queue(&ring_file(name), octets);
        Ok(Self {
            events: queue("events", EVENTS)?,
            copies: queue("copies", COPIES)?,
            held: queue("held", layout.held_ring as usize)?,
            alarms: queue("alarms", ALARMS)?,
            traced: queue("traced", TRACED)?,
        })
    }

    /// In the order in which descriptors are asked for.
    #[cfg(feature = "dpdk")]
    fn all(&self) -> [&Queue; 5] {
        [
            &self.events,
            &self.copies,
            &self.held,
            &self.alarms,
            &self.traced,
        ]
    }

    /// Descriptors.
    #[cfg(feature = "dpdk")]
    pub(crate) fn wakes(&self) -> [BorrowedFd<'_>; 5] {
        self.all().map(|queue| queue.as_fd())
    }

    /// Workers of another process have ended, wherever they were, and nobody else writes at present.
    #[cfg(feature = "dpdk")]
    fn mend(&self) {
        for queue in self.all() {
            queue.mend();
            // Records may be readable by now behind one that nobody completes.
            queue.wake_reader();
        }
    }

    pub(crate) fn of(&self, records: Records) -> &Arc<Queue> {
        match records {
            Records::Alarms => &self.alarms,
            Records::Copies => &self.copies,
            Records::Events => &self.events,
            Records::Held => &self.held,
            Records::Traced => &self.traced,
        }
    }

    fn as_queues(&self) -> tp_queues {
        tp_queues {
            events: self.events.as_ptr(),
            copies: self.copies.as_ptr(),
            held: self.held.as_ptr(),
            alarms: self.alarms.as_ptr(),
            traced: self.traced.as_ptr(),
        }
    }
}

/// State that all workers share, kept as long as one of them lives.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    pub(crate) queues: Queues,
    /// Features of all ports; changed under traffic.
    features: View<AtomicU64>,
    /// Words of threads that look at the tables.
    looks: View<AtomicU64>,
    pub(crate) shaping: Option<Shaping>,
    /// Frames above their rate that others have finished, for each worker; none without shaping.
    given: Arc<[Inbox]>,
    /// Frames that another process has each worker send; none: its workers are here.
    pub(crate) frames: Arc<[Queue]>,
}

impl Shared {
    /// memory: of tables for so many threads
    pub(crate) fn new(
        layout: &Layout,
        memory: Memory,
        threads: usize,
        between: &impl Between,
    ) -> io::Result<Self> {
        let most = layout.shaping.map(|shaping| shaping.frames as usize);
        let given = most.map(|most| (0..threads).map(|_| Inbox::new(most)).collect());
        Ok(Self {
            memory,
            queues: Queues::new(layout, between)?,
            features: between.words("features", 1)?,
            looks: between.words("looks", Bystander::words(threads))?,
            shaping: layout.shaping,
            given: given.unwrap_or_else(|| Ok(Arc::default()))?,
            frames: Arc::default(),
        })
    }

    /// Features of all ports.
    pub(crate) fn features(&self) -> &AtomicU32 {
        // SAFETY: the first half of a word that lives as long as `self`, which nobody sees as a whole.
        unsafe { AtomicU32::from_ptr(self.features.as_ptr().cast()) }
    }

    /// Each worker sends what another process gives it by these.
    #[cfg(feature = "dpdk")]
    pub(crate) fn with_frames(self, frames: Vec<Queue>) -> Self {
        Self {
            frames: frames.into(),
            ..self
        }
    }

    /// The thread of this number.
    pub(crate) fn bystander(&self, number: usize) -> Bystander {
        Bystander::of(&self.looks, number)
    }

    /// Entry that counts a packet which the thread of this number has not handed over yet, + 1.
    fn raised(&self, number: usize) -> &AtomicU32 {
        let word = &self.looks[number * APART + 1];
        // SAFETY: the first half of a word that lives as long as `self`, which nobody sees as a whole.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// The first so many threads have ended in another process, wherever they were, and nobody else runs packets at present: those that come
    /// after them go on from there. How many frames have waited with them for their rates.
    #[cfg(feature = "dpdk")]
    pub(crate) fn mend(&self, threads: usize, now_ns: u64) -> u64 {
        self.queues.mend();
        // One may have moved an alarm, and told nobody: all are looked through.
        self.memory.cpus[0]
            .alarms_lost
            .fetch_add(1, Ordering::Relaxed);
        let mut frames = 0;
        for (number, cpu) in self.memory.cpus.iter().enumerate().take(threads) {
            self.bystander(number).end_look();
            Load::new(self.memory.cpus.clone(), number).ends(now_ns);
            frames += cpu.shaper.waiting.swap(0, Ordering::Relaxed);
            let raised = self.raised(number).swap(0, Ordering::AcqRel);
            if let Some(index) = raised.checked_sub(1)
                && let Some(side) = self.memory.sides.get(index as usize)
            {
                let lower = |held: u32| held.checked_sub(1);
                let _ = side
                    .held
                    .fetch_update(Ordering::AcqRel, Ordering::Relaxed, lower);
            }
        }
        frames
    }

    /// The way of frames above their rate to these workers.
    pub(crate) fn handover(&self) -> Handover {
        match self.given.is_empty() {
            true => Handover::Nobody,
            false => Handover::Workers(Arc::clone(&self.given)),
        }
    }
}

/// The pipeline of one thread.
pub(crate) struct Worker {
    worker: Box<tp_worker>,
    number: usize,
    ports: usize,
    /// Memory that the worker points at.
    shared: Shared,
    /// Likewise: frames above their rates.
    waiting: Option<Waiting>,
    ingress: Arc<Ingress>,
}

// SAFETY: a worker points at shared memory, atomics and queues, which any thread may use, and at counters of its own.
unsafe impl Send for Worker {}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Worker")
    }
}

impl Worker {
    /// The worker of this number, of those that the memory has counters for.
    pub(crate) fn new(shared: &Shared, number: usize, ports: &[PortConfig]) -> io::Result<Self> {
        let ports = ports.get(..PORTS_MAX).unwrap_or(ports);
        let ingress = Arc::new(Ingress::new(&shared.memory, ports));
        let counters = &shared.memory.cpus[number];
        let cpu = ptr::from_ref(counters).cast_mut();
        let mut waiting = shared
            .shaping
            .map(|shaping| Waiting::new(shaping, HEADROOM + FRAME_MAX))
            .transpose()?;
        if let Some(waiting) = &mut waiting {
            // SAFETY: the worker keeps the memory as long as the wheel, and is the only one of its number.
            unsafe { waiting.wheel_mut().count_in(&counters.shaper) };
        }
        let wheel = waiting.as_ref().map(|waiting| waiting.wheel().as_ptr());
        let mut worker = Box::new(tp_worker {
            tables: tp_tables {
                worker: number as u32,
                ..shared.memory.as_tables(cpu, (1u32 << ports.len()) - 1)
            },
            queues: shared.queues.as_queues(),
            features: shared.features().as_ptr(),
            raised: shared.raised(number).as_ptr(),
            wheel: wheel.unwrap_or(ptr::null_mut()),
            frames: shared.shaping.map_or(0, |shaping| shaping.frames),
            longest_wait_ns: shared
                .shaping
                .map_or(0, |shaping| shaping.longest_wait_ns()),
            ..tp_worker::default()
        });
        for (to, (number, port)) in worker.ports.iter_mut().zip((0..).zip(ports)) {
            *to = port.as_port(number, Features::NONE);
        }
        Ok(Self {
            worker,
            number,
            ports: ports.len(),
            shared: shared.clone(),
            waiting,
            ingress,
        })
    }

    /// This worker goes on as another one of the same number and sizes, over other tables: with the frames that wait. What it was.
    #[cfg(feature = "dpdk")]
    pub(crate) fn go_on_as(&mut self, mut next: Self) -> Self {
        std::mem::swap(&mut next.waiting, &mut self.waiting);
        let before = &self.shared.memory.cpus[self.number].shaper;
        let after = &next.shared.memory.cpus[next.number].shaper;
        if let Some(waiting) = &mut next.waiting {
            let frames = before.waiting.swap(0, Ordering::Relaxed);
            after.waiting.store(frames, Ordering::Relaxed);
            next.worker.wheel = waiting.wheel().as_ptr();
            // SAFETY: the worker keeps the memory as long as the wheel, and is the only one of its number.
            unsafe { waiting.wheel_mut().count_in(after) };
        }
        if let Some(fresh) = &mut self.waiting {
            // SAFETY: as above, of the worker that ends here, whose wheel is empty.
            unsafe { fresh.wheel_mut().count_in(before) };
        }
        std::mem::replace(self, next)
    }

    /// Number of a port's interface at present; 0: it is gone.
    pub(crate) fn ifindex(&self, port: usize) -> u32 {
        let slots = &self.shared.memory.config[0].port_ifindex;
        let slot = slots.get(port);
        slot.map_or(0, |slot| slot.load(Ordering::Acquire))
    }

    /// For those who bring frames in memory of their own.
    #[cfg(feature = "dpdk")]
    pub(crate) fn as_mut_ptr(&mut self) -> *mut tp_worker {
        &mut *self.worker
    }

    /// Run frames that came in on a port. What was due by then has been released.
    pub(crate) fn run(&mut self, port: usize, burst: &mut Burst, now_ns: u64) {
        assert!(port < self.ports, "a port of this worker");
        // SAFETY: tables, queues and features are those of `shared`, which lives as long; a counter line belongs to one
        // worker; the frames lie in memory of the burst's own, with the offsets and lengths given.
        unsafe {
            tp_worker_burst(
                &mut *self.worker,
                port as u32,
                burst.frames.as_mut_ptr(),
                burst.len as u32,
                now_ns,
            );
        }
    }
}

impl Worker {
    /// Have the slow path send an IP packet, which came of one that came in on a port, out of an interface: the kernel
    /// finds the neighbour. Whether there was room.
    pub(crate) fn hand_to_kernel(&self, port: usize, ifindex: u32, packet: &[u8]) -> bool {
        let words = [EVENT_SEND, ifindex, packet.len() as u32].map(u32::to_ne_bytes);
        let came = [port as u16, self.number as u16].map(u16::to_ne_bytes);
        let header = [words.as_flattened(), came.as_flattened()].concat();
        self.shared.queues.events.write([&header, packet])
    }

    /// Have a frame wait that leaves later.
    pub(crate) fn keep(&mut self, leaves_ns: u64, departure: Departure<'_>) {
        let kept = match &mut self.waiting {
            Some(waiting) => waiting.keep(leaves_ns, departure),
            None => Err(DropReason::ShaperFull), // not met: without a wheel, no frame is told to wait
        };
        if let Err(reason) = kept {
            self.count_lost(departure.came_by, reason, 1);
        }
    }

    /// Take in frames above their rate that others have finished, behind which what this worker runs from now on is to stay: they
    /// wait; for those whose time has come there is no place in the wheel any more, and `send` sends them. How many there were.
    pub(crate) fn take_given(&mut self, mut send: impl FnMut(&Self, Departure<'_>)) -> usize {
        let Some(inbox) = self.shared.given.get(self.number) else {
            return 0;
        };
        if inbox.is_empty() {
            return 0;
        }
        let records = inbox.take_all();
        let left_ns = self.waiting.as_ref().map_or(0, |all| all.wheel().left_ns());
        for later in records.iter().filter_map(|record| Later::parse(record)) {
            match later.leaves_ns <= left_ns {
                true => send(self, later.departure),
                false => self.keep(later.leaves_ns, later.departure),
            }
        }
        records.len()
    }

    /// Inbox of frames above their rates that others have finished.
    pub(crate) fn inbox(&self) -> Option<&Inbox> {
        self.shared.given.get(self.number)
    }

    /// Done with frames that were due before; look for more. Whether there are some.
    pub(crate) fn release(&mut self, now_ns: u64) -> bool {
        (self.waiting.as_mut()).is_some_and(|waiting| waiting.release(now_ns))
    }

    /// Frames that are due.
    pub(crate) fn released(&self) -> impl Iterator<Item = Departure<'_>> + Clone {
        self.waiting.iter().flat_map(Waiting::released)
    }

    /// When the next frame is due.
    pub(crate) fn next_departure_ns(&self) -> Option<u64> {
        self.waiting.as_ref()?.wheel().next_ns()
    }

    /// Frames that wait.
    pub(crate) fn waiting(&self) -> u64 {
        let shaper = &self.shared.memory.cpus[self.number].shaper;
        shaper.waiting.load(Ordering::Relaxed)
    }

    /// Clock of the time that the worker has packets.
    pub(crate) fn load(&self) -> Load {
        let memory = self.shared.memory.clone();
        Load::new(memory.cpus, self.number)
    }

    /// Judges what sockets receive.
    pub(crate) fn ingress(&self) -> Arc<Ingress> {
        Arc::clone(&self.ingress)
    }

    /// Frames that came in on a port and were lost elsewhere than in the pipeline.
    pub(crate) fn count_lost(&self, port: usize, reason: DropReason, frames: u64) {
        if frames == 0 {
            return;
        }
        let direction = usize::from(self.worker.ports[port].roles & raw::TP_ROLE_N3 == 0);
        let drops = &self.shared.memory.cpus[self.number].drops[port][direction];
        drops[reason.number()].fetch_add(frames, Ordering::Relaxed);
    }
}

/// Clock of the time that a worker has packets. It is read between rounds without some alone, so that it costs nothing while
/// there are many.
#[derive(Debug)]
pub(crate) struct Load {
    cpus: View<Cpu>,
    number: usize,
    /// When the last round without packets was over; `None`: there was one with some since.
    idle_ns: Option<u64>,
    since_ns: u64,
}

impl Load {
    fn new(cpus: View<Cpu>, number: usize) -> Self {
        Self {
            cpus,
            number,
            idle_ns: None,
            since_ns: 0,
        }
    }

    /// A round had packets. It began when the last one without some was over.
    pub(crate) fn works(&mut self, now_ns: impl FnOnce() -> u64) {
        if let Some(since_ns) = self.idle_ns.take() {
            self.begins(since_ns);
        } else if self.since_ns == 0 {
            self.begins(now_ns());
        }
    }

    fn begins(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
        let words = &self.cpus[self.number];
        words.busy_since_ns.store(since_ns, Ordering::Release);
    }

    /// Its thread has ended, whatever it was at.
    #[cfg(feature = "dpdk")]
    fn ends(&mut self, now_ns: u64) {
        self.since_ns = self.cpus[self.number].busy_since_ns.load(Ordering::Acquire);
        self.rests(now_ns);
    }

    /// A round had none, or a sleep is over.
    pub(crate) fn rests(&mut self, now_ns: u64) {
        if self.since_ns != 0 {
            let words = &self.cpus[self.number];
            let ran = now_ns.saturating_sub(self.since_ns);
            words.busy_since_ns.store(0, Ordering::Release);
            words.busy_ns.fetch_add(ran, Ordering::Release);
            self.since_ns = 0;
        }
        self.idle_ns = Some(now_ns);
    }
}

/// Frames that come in together, each in a place of its own with room in front and behind.
pub(crate) struct Burst {
    room: Box<[u8]>,
    /// Octets of one place.
    stride: usize,
    frames: [tp_frame; BURST],
    len: usize,
}

// SAFETY: what frames point at is the burst's own.
unsafe impl Send for Burst {}

impl std::fmt::Debug for Burst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Burst of {}", self.len)
    }
}

impl Burst {
    /// For frames of so many octets at most.
    pub(crate) fn new(longest: usize) -> Self {
        let stride = (HEADROOM + longest + TAILROOM).next_multiple_of(64);
        Self {
            room: vec![0; stride * BURST].into(),
            stride,
            frames: [tp_frame::default(); BURST],
            len: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == BURST
    }

    /// One more frame, of parts one behind the other, unless the burst is full or the frame too long. Whether it is in.
    pub(crate) fn push(&mut self, parts: [&[u8]; 2]) -> bool {
        let len = parts[0].len() + parts[1].len();
        if self.is_full() || HEADROOM + len + TAILROOM > self.stride {
            return false;
        }
        let place = &mut self.room[self.len * self.stride..][..self.stride];
        let (front, rest) = place[HEADROOM..].split_at_mut(parts[0].len());
        front.copy_from_slice(parts[0]);
        rest[..parts[1].len()].copy_from_slice(parts[1]);
        self.frames[self.len] = tp_frame {
            buf: place.as_mut_ptr(),
            cap: self.stride as u32,
            offset: HEADROOM as u32,
            len: len as u32,
            ..tp_frame::default()
        };
        self.len += 1;
        true
    }

    /// Verdict and octets of each frame, in their order.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (Verdict, &[u8])> {
        let frames = self.frames[..self.len].iter().enumerate();
        frames.map(|(at, frame)| {
            let verdict = match frame.verdict {
                TP_VERDICT_PASS => Verdict::Pass,
                TP_VERDICT_TX => Verdict::Answer,
                TP_VERDICT_REDIRECT => Verdict::Redirect(frame.detail),
                TP_VERDICT_LATER => Verdict::Later {
                    port: frame.detail,
                    at_ns: frame.leaves_ns,
                },
                TP_VERDICT_SLOW => Verdict::Slow,
                _ => Verdict::lost(frame.detail),
            };
            let start = at * self.stride + frame.offset as usize;
            (verdict, &self.room[start..start + frame.len as usize])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "dpdk")]
    use crate::ring::Ring;
    use crate::stats::Counting;

    #[test]
    fn a_burst_takes_what_it_has_room_for_and_says_what_not() {
        let mut burst = Burst::new(1000);
        assert!(!burst.push([&[0; 600], &[0; 600]]));
        assert!(burst.is_empty());
        for n in 0..BURST {
            assert_eq!((burst.len(), burst.is_full()), (n, false));
            assert!(burst.push([&[0; 14], &[0; 986]]));
        }
        assert!(burst.is_full() && !burst.push([&[0; 14], &[]]));
    }

    #[cfg(feature = "dpdk")]
    #[test]
    fn nobody_waits_for_workers_that_have_ended_in_the_midst_of_something() {
        let layout = Layout::for_sessions(16, 1, 1);
        let memory = Memory::anonymous(&layout, 2).unwrap();
        let shared = Shared::new(&layout, memory, 2, &Within).unwrap();
        let (cpu, side) = (&shared.memory.cpus[0], &shared.memory.sides[3]);
        let all = [0, 1].map(|number| shared.bystander(number));
        all.iter().for_each(|one| std::mem::forget(one.look()));
        side.held.store(2, Ordering::Relaxed);
        shared.raised(0).store(4, Ordering::Relaxed);
        cpu.shaper.waiting.store(7, Ordering::Relaxed);
        cpu.busy_since_ns.store(9, Ordering::Relaxed);
        let ring = Ring::from(Arc::clone(shared.queues.of(Records::Held)));
        assert!(!ring.is_readable().unwrap());
        let frames = [(); 2].map(|()| shared.mend(1, 19));
        assert!(ring.is_readable().unwrap(), "its reader looks again");
        assert_eq!(frames, [7, 0], "frames are lost once");
        assert_eq!(all.map(|one| one.pulse()), [2, 1], "the other one looks");
        assert_eq!(
            side.held.load(Ordering::Relaxed),
            1,
            "of one that nobody has"
        );
        let busy = [&cpu.busy_since_ns, &cpu.busy_ns].map(|word| word.load(Ordering::Relaxed));
        assert_eq!(busy, [0, 10]);
        assert_eq!(cpu.alarms_lost.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn time_with_packets_is_told_from_time_without() {
        let cpus = View::anonymous(1).unwrap();
        let counting = Counting::new(cpus.clone(), View::anonymous(1).unwrap());
        let busy = |now_ns| counting.worker(0, now_ns).unwrap().busy.as_nanos();
        let mut load = Load::new(cpus, 0);
        load.rests(100);
        assert_eq!(busy(150), 0);
        load.works(|| panic!("the clock need not be read"));
        assert_eq!(busy(150), 50, "a round that lasts counts");
        load.works(|| panic!("nor here"));
        load.rests(300);
        assert_eq!(busy(400), 200);
        load.rests(450);
        load.works(|| panic!("nor here"));
        assert_eq!(busy(460), 210);
        load.rests(500);
        assert_eq!(busy(1000), 250);
    }
}
