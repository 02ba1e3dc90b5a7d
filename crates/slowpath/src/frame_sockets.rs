//! Frames out of interfaces, past the kernel's routes and neighbours.

use std::collections::HashMap;
use std::time::Duration;

use tables::{Egress, FrameSocket};

/// Sockets that are kept, at most: more than there are ports. Those of interfaces that were made anew under other numbers are
/// never sent to again.
const KEPT_MAX: usize = 64;

/// Packet sockets, each opened when a frame first leaves by its interface.
#[derive(Debug)]
pub(crate) struct FrameSockets {
    egress: Egress,
    patience: Duration,
    of: HashMap<u32, FrameSocket>,
}

impl FrameSockets {
    /// `patience`: time that an interface whose queue is full is given, before frames are lost.
    pub(crate) fn new(egress: &Egress, patience: Duration) -> Self {
        Self {
            egress: egress.clone(),
            patience,
            of: HashMap::new(),
        }
    }

    /// Out of an interface, by the worker that took them in, in their order. How many were lost. Sends in the network
    /// namespace of the calling thread; needs `CAP_NET_RAW`.
    pub(crate) fn send<'a>(
        &mut self,
        (ifindex, worker): (u32, u16),
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        if !self.of.contains_key(&ifindex) {
            if self.of.len() >= KEPT_MAX {
                self.of.clear();
            }
            match self.egress.open(ifindex, self.patience) {
                Ok(socket) => _ = self.of.insert(ifindex, socket),
                Err(error) => tracing::debug!(%error, ifindex, "frames cannot be sent"),
            }
        }
        let Some(socket) = self.of.get(&ifindex) else {
            return frames.count() as u64;
        };
        let lost = socket.send_by(worker, frames);
        if socket.is_gone() {
            // It is tried again with the next frames.
            self.of.remove(&ifindex);
        }
        lost
    }
}
