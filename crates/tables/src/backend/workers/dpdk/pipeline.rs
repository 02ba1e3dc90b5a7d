//! Rings between receive cores and workers: one for each pair, so that each has one writer and one reader.

use std::ptr::NonNull;

use crate::abi::dpdk::{
    rte_ring, tp_dpdk_polls, tp_dpdk_receiver, tp_dpdk_work_ring, tp_dpdk_work_ring_free,
    tp_dpdk_worker,
};
use crate::dpdk::Pipeline;
use crate::error::SetupError;
use crate::queue::Queue;

use super::ports::Ports;

/// All rings, by worker within receive core. What is in them when this is dropped is freed.
#[derive(Debug)]
pub(super) struct Rings {
    all: Vec<NonNull<rte_ring>>,
    workers: usize,
}

// SAFETY: rings are for any thread; this only keeps them.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

impl Drop for Rings {
    fn drop(&mut self) {
        for ring in &self.all {
            // SAFETY: whoever writes or reads it keeps this, so nobody does any more.
            unsafe { tp_dpdk_work_ring_free(ring.as_ptr()) };
        }
    }
}

impl Rings {
    /// On a NUMA node, or, where it has no memory left, on another one.
    pub(super) fn new(pipeline: &Pipeline, workers: usize, node: i32) -> Result<Self, SetupError> {
        let mut rings = Self {
            all: Vec::new(),
            workers,
        };
        for _ in 0..pipeline.receivers as usize * workers {
            // SAFETY: no pointer is given; the environment has been started.
            let on = |node| NonNull::new(unsafe { tp_dpdk_work_ring(pipeline.ring, node) });
            let ring = on(node).or_else(|| on(-1));
            let frames = pipeline.ring;
            rings.all.push(ring.ok_or_else(|| {
                SetupError::Dpdk(format!(
                    "no memory for rings of {frames} frames to workers: a lower datapath.dpdk.ring"
                ))
            })?);
        }
        Ok(rings)
    }

    /// Rings that a worker reads, in the order of receive cores, in front of what is not used.
    pub(super) fn from<const N: usize>(&self, worker: usize) -> [*mut rte_ring; N] {
        let of_cores = self.all.chunks(self.workers);
        filled(of_cores.map(|of_core| of_core[worker].as_ptr()))
    }

    /// How many receive cores there are.
    pub(super) fn receivers(&self) -> u32 {
        (self.all.len() / self.workers) as u32
    }

    /// A receive core, for C. It must not outlive these rings, what ports share, and the queues by which workers are woken.
    pub(super) fn receiver(
        &self,
        number: usize,
        ports: &Ports,
        wake: &[Queue],
    ) -> tp_dpdk_receiver {
        let own = self.all.chunks(self.workers).nth(number);
        tp_dpdk_receiver {
            shared: ports.shared(),
            polls: ports.polled_by(number as u32),
            number: number as u32,
            workers: self.workers as u32,
            to: filled(own.into_iter().flatten().copied().map(NonNull::as_ptr)),
            wake: filled(wake.iter().map(Queue::as_ptr)),
        }
    }
}

fn filled<T, const N: usize>(some: impl Iterator<Item = *mut T>) -> [*mut T; N] {
    let mut all = [std::ptr::null_mut(); N];
    for (to, one) in all.iter_mut().zip(some) {
        *to = one;
    }
    all
}

/// Part of a worker in ports and, where receive cores poll them, of rings. It lives no longer than these and the queue.
pub(super) fn worker_part(
    number: usize,
    ports: &Ports,
    rings: Option<&Rings>,
    from_kernel: &Queue,
) -> tp_dpdk_worker {
    tp_dpdk_worker {
        shared: ports.shared(),
        from_kernel: from_kernel.as_ptr(),
        from_control: std::ptr::null_mut(),
        polls: match rings {
            Some(_) => tp_dpdk_polls::default(),
            None => ports.polled_by(number as u32),
        },
        queue: number as u16,
        receivers: rings.map_or(0, Rings::receivers),
        from: rings.map_or([std::ptr::null_mut(); _], |rings| rings.from(number)),
    }
}
