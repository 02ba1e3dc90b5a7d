//! Counters of ports, summed over CPUs. Readable from any thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::{Cpu, DIRS, PORTS_MAX, TrafficWords, raw};
use crate::clock::monotonic_ns;
use crate::drop_reason::DropReason;
use crate::memory::View;

/// Frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of frames.
    pub packets: u64,
    /// Their octets.
    pub bytes: u64,
}

/// Counters of one port. Arrays of two: uplink, downlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTotals {
    /// Frames that came in; one that is left to the kernel counts as uplink on a port without N6.
    pub received: [Traffic; DIRS],
    /// Frames forwarded, counted at the port where they came in.
    pub forwarded: [Traffic; DIRS],
    /// Frames left to the kernel.
    pub passed: u64,
    /// Echo Responses and Error Indications sent.
    pub answered: u64,
    /// Packets handed to the slow path.
    pub slow: u64,
    /// Of the forwarded frames, those above their rate, which left later than they came.
    pub later: u64,
    /// Lost packets, in the order of [`DropReason::ALL`].
    pub drops: [Vec<u64>; DIRS],
}

impl Default for PortTotals {
    fn default() -> Self {
        Self {
            received: Default::default(),
            forwarded: Default::default(),
            passed: 0,
            answered: 0,
            slow: 0,
            later: 0,
            drops: [(); DIRS].map(|()| vec![0; DropReason::ALL.len()]),
        }
    }
}

impl PortTotals {
    /// Lost packets of one direction and reason.
    pub fn dropped(&self, direction: usize, reason: DropReason) -> u64 {
        self.drops[direction][reason.place()]
    }
}

/// Work of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerTotals {
    /// Frames that it took in.
    pub packets: u64,
    /// Time that it had packets, since it began.
    pub busy: Duration,
    /// Packets above their rates that wait now.
    pub waiting: u64,
    /// Packets that have come to wait, ever.
    pub delayed: u64,
    /// How long all of these have waited so far, together.
    pub waited: Duration,
}

/// Sees the counters that packets write. Clones see the same.
#[derive(Clone, Debug)]
pub struct Counting {
    cpus: View<Cpu>,
    slow: View<Cpu>,
}

impl Counting {
    pub(crate) fn new(cpus: View<Cpu>, slow: View<Cpu>) -> Self {
        Self { cpus, slow }
    }

    /// Frames that each CPU took in on a port.
    pub fn by_cpu(&self, port: usize) -> Vec<u64> {
        let frames = |cpu: &Cpu| {
            let words = cpu.ports.get(port).map(|port| &port.in_);
            let words = words.into_iter().flatten();
            words.map(|word| word.packets.load(Ordering::Relaxed)).sum()
        };
        self.cpus.iter().map(frames).collect()
    }

    /// The worker of this number, by now; `None`: there are fewer.
    pub fn worker_now(&self, number: usize) -> Option<WorkerTotals> {
        self.worker(number, monotonic_ns())
    }

    pub(crate) fn worker(&self, number: usize, now_ns: u64) -> Option<WorkerTotals> {
        self.cpus.get(number).map(|cpu| totals(cpu, now_ns))
    }

    /// The thread that keeps packets above their rates for programs of the kernel, by now.
    pub fn shaper_now(&self) -> WorkerTotals {
        let totals = totals(&self.slow[0], monotonic_ns());
        WorkerTotals {
            packets: totals.delayed,
            ..totals
        }
    }

    /// Packets that were followed, but not reported: too many of them.
    pub fn traces_lost(&self) -> u64 {
        let lost = |cpu: &Cpu| cpu.trace_lost.load(Ordering::Relaxed);
        self.cpus.iter().map(lost).sum()
    }

    /// Duplicates (FARs with DUPL) that were handed on to be sent, and those that were lost before: too many at a
    /// time, or too long for an outer header.
    pub fn duplicates(&self) -> [u64; 2] {
        let sum = |word: fn(&Cpu) -> &AtomicU64| {
            let cpus = self.cpus.iter().chain(self.slow.iter());
            cpus.map(|cpu| word(cpu).load(Ordering::Relaxed)).sum()
        };
        [sum(|cpu| &cpu.copies), sum(|cpu| &cpu.copies_lost)]
    }

    /// Crossings that PDRs of URRs have told of, and those for which there was no room at once.
    pub fn alarms(&self) -> [u64; 2] {
        let sum = |word: fn(&Cpu) -> &AtomicU64| {
            let cpus = self.cpus.iter().chain(self.slow.iter());
            cpus.map(|cpu| word(cpu).load(Ordering::Relaxed)).sum()
        };
        [sum(|cpu| &cpu.alarms), sum(|cpu| &cpu.alarms_lost)]
    }

    /// One port.
    pub fn port(&self, port: usize) -> PortTotals {
        let mut totals = PortTotals::default();
        if port < PORTS_MAX {
            self.cpus.iter().for_each(|cpu| add(&mut totals, cpu, port));
            // Packets that the slow path takes up were counted when they came in: only its losses are new.
            add_drops(&mut totals, &self.slow[0], port);
        }
        totals
    }
}

fn totals(cpu: &Cpu, now_ns: u64) -> WorkerTotals {
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let words = cpu.ports.iter().flat_map(|port| &port.in_);
    let waited = u128::from(read(&cpu.shaper.waited)) << raw::TP_WAITED_SHIFT;
    WorkerTotals {
        packets: words.map(|word| read(&word.packets)).sum(),
        busy: Duration::from_nanos(busy_ns(cpu, now_ns)),
        waiting: read(&cpu.shaper.waiting),
        delayed: read(&cpu.shaper.delayed),
        waited: Duration::from_micros((waited / 1000) as u64),
    }
}

/// Attempts to read two words of a worker that changes them.
const BUSY_TRIES: u32 = 8;

/// Time with packets. A run that ends while it is read is seen on one side of the change, or is left out this once.
fn busy_ns(cpu: &Cpu, now_ns: u64) -> u64 {
    for _ in 0..BUSY_TRIES {
        let since = cpu.busy_since_ns.load(Ordering::Acquire);
        let before = cpu.busy_ns.load(Ordering::Acquire);
        if cpu.busy_since_ns.load(Ordering::Acquire) == since {
            let run = if since == 0 {
                0
            } else {
                now_ns.saturating_sub(since)
            };
            return before + run;
        }
    }
    cpu.busy_ns.load(Ordering::Acquire)
}

fn add_drops(totals: &mut PortTotals, cpu: &Cpu, port: usize) {
    for (totals, drops) in totals.drops.iter_mut().zip(&cpu.drops[port]) {
        for (to, from) in totals.iter_mut().zip(&drops[1..]) {
            *to += from.load(Ordering::Relaxed);
        }
    }
}

fn add(totals: &mut PortTotals, cpu: &Cpu, port: usize) {
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let traffic = |to: &mut Traffic, from: &TrafficWords| {
        to.packets += read(&from.packets);
        to.bytes += read(&from.bytes);
    };
    let words = &cpu.ports[port];
    for direction in 0..DIRS {
        traffic(&mut totals.received[direction], &words.in_[direction]);
        traffic(&mut totals.forwarded[direction], &words.out[direction]);
    }
    add_drops(totals, cpu, port);
    totals.passed += read(&words.passed);
    totals.answered += read(&words.answered);
    totals.slow += read(&words.slow);
    totals.later += read(&words.later);
}
