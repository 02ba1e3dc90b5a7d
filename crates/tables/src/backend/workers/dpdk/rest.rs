//! Threads without traffic: they sleep until a device wakes them, or, where one cannot, for a moment at a time.

use std::time::Duration;

use crate::abi::dpdk::{
    tp_dpdk_arm, tp_dpdk_disarm, tp_dpdk_sleep, tp_dpdk_sleeper, tp_dpdk_sleeper_start,
    tp_dpdk_sleeper_stop,
};
use crate::abi::host::tp_queue;
use crate::clock::monotonic_ns;

/// Polls in vain before a thread sleeps at all: some tens of microseconds, within which most traffic goes on.
const AWAKE: u32 = 256;
/// The longest sleep that nothing ends: what a first packet waits for, at most.
const LONGEST: Duration = Duration::from_micros(100);
/// Short sleeps before one that devices end, some milliseconds in all: traffic that goes on is not to pay for interrupts, and
/// some devices (net_tap) wake a thread before they give it the frame.
const DOZES: u32 = 100;
/// The longest sleep that devices end: there is more to look at than they tell.
const LONGEST_MS: u32 = 100;

/// A thread that devices wake. It is that thread's own, and dropped before what it points at.
#[derive(Debug)]
pub(super) struct Sleeper(tp_dpdk_sleeper);

impl Drop for Sleeper {
    fn drop(&mut self) {
        // SAFETY: it was started, and what it points at lives.
        unsafe { tp_dpdk_sleeper_stop(&raw mut self.0) };
    }
}

impl Sleeper {
    /// `None`: a device cannot wake this thread, which has joined.
    pub(super) fn start(of: tp_dpdk_sleeper) -> Option<Self> {
        let mut of = of;
        // SAFETY: ports and queue live as long as the caller, who drops this before.
        let started = unsafe { tp_dpdk_sleeper_start(&raw mut of) };
        (started == 0).then_some(Self(of))
    }

    /// Woken by writers of this queue, too, from now on, which lives as long as this or until it is told of another one.
    pub(super) fn follow(&mut self, from_control: *mut tp_queue) {
        self.0.from_control = from_control;
    }

    fn arm(&self) {
        // SAFETY: it was started, and what it points at lives.
        unsafe { tp_dpdk_arm(&raw const self.0) };
    }

    fn disarm(&self) {
        // SAFETY: as above.
        unsafe { tp_dpdk_disarm(&raw const self.0) };
    }

    /// Whether a device has ended it.
    fn sleep(&self) -> bool {
        // SAFETY: as above.
        unsafe { tp_dpdk_sleep(&raw const self.0, LONGEST_MS) != 0 }
    }
}

/// Time without traffic.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// Polls in vain since the last frame.
    polls: u32,
    /// Devices have been told to wake the thread, and its queues are looked at once more.
    is_armed: bool,
}

impl Idle {
    /// There was a frame.
    pub(super) fn end(&mut self, sleeper: Option<&Sleeper>) {
        self.polls = 0;
        if let Some(sleeper) = sleeper.filter(|_| self.is_armed) {
            sleeper.disarm();
            self.is_armed = false;
        }
    }

    /// There was none. due_ns: when one leaves that waits.
    pub(super) fn wait(&mut self, sleeper: Option<&Sleeper>, due_ns: Option<u64>) {
        self.polls = self.polls.saturating_add(1);
        let Some(us) = self.polls.checked_sub(AWAKE) else {
            return std::hint::spin_loop();
        };
        match sleeper.filter(|_| due_ns.is_none() && us >= DOZES) {
            Some(sleeper) => self.sleep(sleeper),
            None => doze(us, due_ns),
        }
    }

    /// Arm first, so that what has come before is looked at once more.
    fn sleep(&mut self, sleeper: &Sleeper) {
        if self.is_armed {
            if sleeper.sleep() {
                self.polls = 0;
            }
            sleeper.disarm();
        } else {
            sleeper.arm();
        }
        self.is_armed = !self.is_armed;
    }
}

/// Sleeps grow by a microsecond each.
fn doze(us: u32, due_ns: Option<u64>) {
    let left = due_ns.map(|due| due.saturating_sub(monotonic_ns()));
    let left = left.map_or(LONGEST, Duration::from_nanos);
    std::thread::sleep(Duration::from_micros(us.into()).min(LONGEST).min(left));
}
