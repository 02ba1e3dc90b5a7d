//! Packets that have waited, out of the interface that their next hop names.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tables::FrameSocket;

use super::keeper::Exit;
use crate::outgoing::Outgoing;
use crate::sockets::RawSockets;

/// Time that an interface whose queue is full is given, before frames are lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// All that the thread sends by.
#[derive(Debug)]
pub(super) struct Sockets {
    raw: RawSockets,
    /// Sockets by interface; `None`: it could not be opened.
    of_frames: HashMap<u32, Option<FrameSocket>>,
}

impl Sockets {
    /// Open it in the network namespace of the calling thread; needs `CAP_NET_RAW`.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            raw: RawSockets::open()?,
            of_frames: HashMap::new(),
        })
    }
}

impl Exit for Sockets {
    fn frames<'a>(
        &mut self,
        (ifindex, worker): (u32, u16),
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        let socket = self.of_frames.entry(ifindex).or_insert_with(|| {
            let socket = FrameSocket::open(ifindex, PATIENCE);
            if let Err(error) = &socket {
                tracing::debug!(%error, ifindex, "packets that have waited cannot be sent");
            }
            socket.ok()
        });
        let lost = match socket {
            Some(socket) => socket.send_by(worker, frames),
            None => frames.count() as u64,
        };
        if socket.as_ref().is_none_or(FrameSocket::is_gone) {
            // It is tried again with the next packets.
            self.of_frames.remove(&ifindex);
        }
        lost
    }

    fn packet(&mut self, outgoing: Outgoing) {
        if let Err(error) = self.raw.send(&outgoing) {
            tracing::debug!(%error, "a packet that has waited is not sent");
        }
    }
}
