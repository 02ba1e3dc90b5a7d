//! Construction of the parts of the slow path, and what they share.

use std::io;
use std::sync::Arc;

use compiled::Buffered;
use tables::{SetupError, Tables};

use crate::buffers::{BufferThread, HeldByHand, HoldBounds, Holder};
use crate::end_markers::{EndMarkerCounters, EndMarkers};
use crate::finish::Finisher;
use crate::orders::Orders;
use crate::routers::Routers;

/// Makes the parts of the slow path over tables, which tell it what concerns packets that wait.
#[derive(Debug)]
pub struct Setup {
    routers: Routers,
    orders: Arc<Orders>,
}

impl Setup {
    /// Before anything is published.
    pub fn new(tables: &mut Tables) -> io::Result<Self> {
        let orders = Arc::new(Orders::new()?);
        tables.tell_keeper(orders.clone());
        Ok(Self {
            routers: Routers::new(tables.interface_addresses()),
            orders,
        })
    }

    /// The routers that users see.
    pub fn routers(&self) -> &Routers {
        &self.routers
    }

    /// Finisher of packets that the fast path cannot finish, for one other thread.
    pub fn finisher(&self, tables: &Tables) -> Finisher {
        let (pipeline, bystander) = (tables.pipeline(), tables.bystander());
        let orders = Arc::clone(&self.orders);
        Finisher::new(pipeline, bystander, self.routers.clone(), orders)
    }

    /// Let packets of FARs with BUFF wait, within these bounds; before, they are dropped. `listener` hears of the first
    /// that waits for a PDR; it must not wait. `None` on the host.
    pub fn hold(
        &self,
        tables: &Tables,
        bounds: HoldBounds,
        listener: impl FnMut(Buffered) + Send + 'static,
    ) -> Result<Option<BufferThread>, SetupError> {
        let Some(ring) = tables.held_packets()? else {
            return Ok(None);
        };
        let thread = BufferThread::start(self.holder(tables), bounds, ring, listener)?;
        tables.pipeline().hold_up_to(bounds.packets_per_session);
        Ok(Some(thread))
    }

    /// As [`Self::hold`], but whoever calls moves packets: those of the ring [`Tables::held_packets`], or on the host those
    /// that a run hands over.
    pub fn hold_by_hand(&self, tables: &Tables, bounds: HoldBounds) -> HeldByHand {
        tables.pipeline().hold_up_to(bounds.packets_per_session);
        HeldByHand::new(self.holder(tables), bounds)
    }

    fn holder(&self, tables: &Tables) -> Holder {
        Holder {
            pipeline: tables.pipeline(),
            bystander: tables.bystander(),
            finisher: self.finisher(tables),
            orders: Arc::clone(&self.orders),
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
