//! Released packets, out of the interface that their next hop names.

use std::io;
use std::iter::once;
use std::time::Duration;

use tables::Egress;

use super::packet_buffer::Exit;
use crate::frame_sockets::FrameSockets;
use crate::outgoing::Outgoing;
use crate::sockets::RawSockets;

/// Time that an interface whose queue is full is given, before frames are lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// All that the thread sends by.
#[derive(Debug)]
pub(super) struct Sockets {
    raw: RawSockets,
    frames: FrameSockets,
}

impl Sockets {
    /// Open it in the network namespace of the calling thread; needs `CAP_NET_RAW`.
    pub(super) fn open(egress: &Egress) -> io::Result<Self> {
        Ok(Self {
            raw: RawSockets::open()?,
            frames: FrameSockets::new(egress, PATIENCE),
        })
    }
}

impl Exit for Sockets {
    fn frames<'a>(&mut self, by: (u32, u16), frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        self.frames.send(by, frames)
    }

    fn packet(&mut self, outgoing: Outgoing, worker: u16) {
        if !outgoing.link.is_empty() {
            let frame = outgoing.frame();
            if self
                .frames
                .send((outgoing.ifindex, worker), once(&frame[..]))
                > 0
            {
                tracing::debug!("a packet made of one that has waited is not sent");
            }
        } else if let Err(error) = self.raw.send(&outgoing) {
            tracing::debug!(%error, "a packet that has waited is not sent");
        }
    }
}
