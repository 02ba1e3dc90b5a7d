//! Devices that are open, and what all workers share of them.

use std::cell::UnsafeCell;
use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::abi::dpdk::{
    tp_dpdk_close, tp_dpdk_look, tp_dpdk_lost, tp_dpdk_open, tp_dpdk_polled, tp_dpdk_polls,
    tp_dpdk_queues, tp_dpdk_record, tp_dpdk_shared, tp_dpdk_state,
};
use crate::dpdk::{Settings, Why, pool};
use crate::error::SetupError;
use crate::port::PortConfig;
use crate::queue::Queue;

use super::memif;

/// Octets of frames on their way to the kernel.
const TO_KERNEL: usize = 4 << 20;
/// Ethernet and two tags.
const LINK: u32 = 22;
/// Octets of a frame that buffers have room for at least.
const FRAME: u32 = 2048;

/// Frames lost elsewhere than in a worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lost {
    Missed,
    Unsent,
    NoBuffer,
    TapFull,
    TapRefused,
}

/// All ports. They close when this is dropped.
pub(super) struct Ports {
    shared: Box<UnsafeCell<tp_dpdk_shared>>,
    pub(super) to_kernel: Queue,
    /// Something was lost that no worker has counted yet.
    news: AtomicBool,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ports: {}", self.count())
    }
}

// SAFETY: what changes is changed by atomic operations; the rest is written before anybody else sees it.
unsafe impl Send for Ports {}
// SAFETY: as above.
unsafe impl Sync for Ports {}

impl Drop for Ports {
    fn drop(&mut self) {
        let shared = self.shared.get_mut();
        for port in &shared.ports[..shared.n_ports as usize] {
            // SAFETY: an open port, which no worker has any more.
            unsafe { tp_dpdk_close(port) };
        }
    }
}

impl Ports {
    /// Open every port's device for packets of `mtus`, with queues for these threads.
    pub(super) fn open(
        settings: &Settings,
        ports: &[PortConfig],
        mtus: &[u32],
        queues: tp_dpdk_queues,
    ) -> Result<Self, SetupError> {
        let longest = mtus.iter().max().map_or(0, |mtu| mtu + LINK);
        let pool = pool(settings, longest.max(FRAME))?;
        let to_kernel = Queue::new(TO_KERNEL)?;
        let shared = tp_dpdk_shared {
            pool: pool.as_ptr(),
            to_kernel: to_kernel.as_ptr(),
            ..tp_dpdk_shared::default()
        };
        let mut opened = Self {
            shared: Box::new(UnsafeCell::new(shared)),
            to_kernel,
            news: AtomicBool::new(false),
        };
        let shared = opened.shared.get_mut();
        for ((number, (port, &mtu)), to) in (0..).zip(ports.iter().zip(mtus)).zip(&mut shared.ports)
        {
            let queues = queues_of(port, number, queues)?;
            let unknown = |_| SetupError::Dpdk(format!("{}: a zero octet", port.device));
            let device = CString::new(port.device.as_str()).map_err(unknown)?;
            memif::clear_the_way(&port.device).map_err(|error| named(&port.device, error))?;
            let mut why = Why::new();
            // SAFETY: a terminated name, numbers of queues, a pool that lives as long as the process, a port to be written
            // and room for a reason.
            let result = unsafe {
                tp_dpdk_open(
                    device.as_ptr(),
                    &raw const queues,
                    mtu,
                    pool.as_ptr(),
                    to,
                    why.as_mut_ptr(),
                )
            };
            if result != 0 {
                return Err(why.into());
            }
            shared.n_ports += 1;
            shared.up |= 1 << (shared.n_ports - 1);
        }
        Ok(opened)
    }

    pub(super) fn count(&self) -> usize {
        // SAFETY: written before anybody else saw it.
        unsafe { (*self.shared.get()).n_ports as usize }
    }

    /// Whether a thread can sleep until it has something.
    pub(super) fn wakes(&self, port: usize) -> bool {
        // SAFETY: written before anybody else saw it.
        unsafe { (*self.shared.get()).ports[port].wakes != 0 }
    }

    pub(super) fn mac(&self, port: usize) -> [u8; 6] {
        // SAFETY: as above.
        unsafe { (*self.shared.get()).ports[port].mac }
    }

    /// Part of this that C sees; valid as long as this lives.
    pub(super) fn shared(&self) -> *mut tp_dpdk_shared {
        self.shared.get()
    }

    /// Receive queues that a thread polls, by its number among receive cores, or workers without such.
    pub(super) fn polled_by(&self, number: u32) -> tp_dpdk_polls {
        let mut polls = tp_dpdk_polls::default();
        // SAFETY: open ports, and a list to be written.
        unsafe { tp_dpdk_polled(self.shared(), number, &raw mut polls) };
        polls
    }

    /// State of a port's device.
    pub(super) fn look(&self, port: usize) -> tp_dpdk_state {
        let mut state = tp_dpdk_state::default();
        // SAFETY: an open port, and a state to be written.
        unsafe { tp_dpdk_look(&(*self.shared.get()).ports[port], &raw mut state) };
        state
    }

    /// Frames leave by a port, or are dropped there because its link is down.
    pub(super) fn set_up(&self, port: usize, is_up: bool) {
        // SAFETY: aligned, lives as long as `self`, and others only read it, atomically.
        let up = unsafe { AtomicU32::from_ptr(&raw mut (*self.shared.get()).up) };
        match is_up {
            true => up.fetch_or(1 << port, Ordering::Relaxed),
            false => up.fetch_and(!(1 << port), Ordering::Relaxed),
        };
    }

    /// So many frames of a port were lost; a worker counts them.
    pub(super) fn lose(&self, port: usize, how: Lost, frames: u64) {
        if frames == 0 {
            return;
        }
        // SAFETY: of a port that there is.
        let lost: *mut tp_dpdk_lost = unsafe { &raw mut (*self.shared.get()).lost[port] };
        // SAFETY: as above.
        let word = unsafe {
            match how {
                Lost::Missed => &raw mut (*lost).missed,
                Lost::Unsent => &raw mut (*lost).unsent,
                Lost::NoBuffer => &raw mut (*lost).no_buffer,
                Lost::TapFull => &raw mut (*lost).tap_full,
                Lost::TapRefused => &raw mut (*lost).tap_refused,
            }
        };
        // SAFETY: aligned, lives as long as `self`, and others change it atomically.
        unsafe { AtomicU64::from_ptr(word) }.fetch_add(frames, Ordering::Relaxed);
        self.news.store(true, Ordering::Release);
    }

    /// Whether something was lost since the last time.
    pub(super) fn take_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire)
    }

    /// Give frames for the kernel to `each`, with their ports, at most so many.
    pub(super) fn for_kernel(&self, at_most: usize, mut each: impl FnMut(usize, &[u8])) -> usize {
        self.to_kernel.read(at_most, &mut |record| {
            if let Some(([a, b, c, d, ..], frame)) =
                record.split_first_chunk::<{ size_of::<tp_dpdk_record>() }>()
            {
                each(u32::from_ne_bytes([*a, *b, *c, *d]) as usize, frame);
            }
        })
    }
}

/// Queues of one port, of this number: by those that poll it.
fn queues_of(
    port: &PortConfig,
    number: u32,
    threads: tp_dpdk_queues,
) -> Result<tp_dpdk_queues, SetupError> {
    let all = match threads.receivers {
        0 => threads.workers,
        receivers => receivers,
    };
    if let Some(stranger) = port.polled_by.iter().find(|&&thread| thread >= all) {
        let name = &port.name;
        return Err(SetupError::Dpdk(format!(
            "{name} is to be polled by thread {stranger}, and there are {all}"
        )));
    }
    let pollers = port
        .polled_by
        .iter()
        .fold(0, |all, thread| all | 1 << thread);
    Ok(tp_dpdk_queues {
        pollers: match pollers {
            0 => u64::MAX >> (64 - all.clamp(1, 64)),
            some => some,
        },
        // A device that gives each worker a queue has them in order.
        first: if threads.receivers == 0 { 0 } else { number },
        ..threads
    })
}

/// The error of a step with a name.
pub(super) fn named(what: &str, error: io::Error) -> SetupError {
    SetupError::Dpdk(format!("{what}: {error}"))
}
