//! Construction of the parts of the slow path, and what they share.

use std::io;
use std::sync::Arc;

use compiled::Buffered;
use tables::{SetupError, Tables};

use crate::buffer_commands::BufferCommands;
use crate::buffers::{BufferBounds, BufferByHand, BufferParts, BufferThread, KeptPackets};
use crate::end_markers::{EndMarkerCounters, EndMarkers};
use crate::finish::Finisher;
use crate::routers::Routers;

/// Makes the parts of the slow path over tables, which tell it what concerns buffered packets.
#[derive(Debug)]
pub struct Setup {
    routers: Routers,
    buffer_commands: Arc<BufferCommands>,
}

impl Setup {
    /// Before anything is published.
    pub fn new(tables: &mut Tables) -> io::Result<Self> {
        let buffer_commands = Arc::new(BufferCommands::new()?);
        tables.set_buffer_control(buffer_commands.clone());
        Ok(Self {
            routers: Routers::new(tables.interface_addresses()),
            buffer_commands,
        })
    }

    /// The routers that users see.
    pub fn routers(&self) -> &Routers {
        &self.routers
    }

    /// Finisher of packets that the fast path cannot finish, for one other thread.
    pub fn finisher(&self, tables: &Tables) -> Finisher {
        let (pipeline, bystander) = (tables.pipeline(), tables.bystander());
        let buffer_commands = Arc::clone(&self.buffer_commands);
        Finisher::new(pipeline, bystander, self.routers.clone(), buffer_commands)
    }

    /// Buffer packets of FARs with BUFF, within these bounds; before, they are dropped. `listener` hears of the first
    /// of a PDR; it must not wait. `kept`: what outlives this process, and another one before. `None` on the host.
    pub fn start_buffering(
        &self,
        tables: &Tables,
        (bounds, kept): (BufferBounds, KeptPackets),
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> Result<Option<BufferThread>, SetupError> {
        let Some(ring) = tables.buffered_packets()? else {
            return Ok(None);
        };
        let thread =
            BufferThread::start(self.buffer_parts(tables), (bounds, kept), ring, listener)?;
        tables.pipeline().buffer_up_to(bounds.packets_per_session);
        Ok(Some(thread))
    }

    /// As [`Self::start_buffering`], but the caller moves packets: those of the ring [`Tables::buffered_packets`], or on the
    /// host those that a run hands over.
    pub fn buffer_by_hand(
        &self,
        tables: &Tables,
        bounds: BufferBounds,
    ) -> io::Result<BufferByHand> {
        tables.pipeline().buffer_up_to(bounds.packets_per_session);
        BufferByHand::new(self.buffer_parts(tables), bounds)
    }

    fn buffer_parts(&self, tables: &Tables) -> BufferParts {
        BufferParts {
            pipeline: tables.pipeline(),
            bystander: tables.bystander(),
            finisher: self.finisher(tables),
            commands: Arc::clone(&self.buffer_commands),
        }
    }
}

/// Tell the ends of tunnels that a path switch leaves, from now on. Returns the counters.
pub fn send_end_markers(tables: &mut Tables) -> io::Result<Arc<EndMarkerCounters>> {
    let markers = EndMarkers::start(tables.barrier(), tables.longest_wait())?;
    let counters = markers.counters();
    tables.tell_of_tunnel_ends(markers);
    Ok(counters)
}
