//! Keeping packets without a thread and without sockets.

use std::sync::{Arc, mpsc};

use compiled::Buffered;

use super::keeper::{Buffers, Exit};
use super::{HoldBounds, HoldCounters, HoldTotals, Holder};
use crate::orders::Orders;
use crate::outgoing::Outgoing;

/// Packets that wait, moved by whoever calls: for a pipeline that runs in the caller's own process, which sends what
/// leaves itself.
#[derive(Debug)]
pub struct HeldByHand {
    buffers: Buffers<Left>,
    orders: Arc<Orders>,
    counters: Arc<HoldCounters>,
    news: mpsc::Receiver<Buffered>,
}

/// A packet that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// A frame out of a port, from its Ethernet header on.
    Frame(Vec<u8>),
    /// A packet for the kernel to send.
    Packet(Outgoing),
}

#[derive(Debug, Default)]
struct Left(Vec<Released>);

impl Exit for Left {
    fn frames<'a>(&mut self, _: (u32, u16), frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        self.0
            .extend(frames.map(|frame| Released::Frame(frame.to_vec())));
        0
    }

    fn packet(&mut self, outgoing: Outgoing, _: u16) {
        self.0.push(Released::Packet(outgoing));
    }
}

impl HeldByHand {
    pub(crate) fn new(holder: Holder, bounds: HoldBounds) -> Self {
        let (listener, news) = mpsc::channel();
        let counters = Arc::<HoldCounters>::default();
        let orders = Arc::clone(&holder.orders);
        // Nobody who could miss it is left if this fails.
        let tell = move |what| listener.send(what).unwrap_or_default();
        let shared = Arc::clone(&counters);
        Self {
            buffers: Buffers::new(holder, bounds, Left::default(), shared, tell),
            orders,
            counters,
            news,
        }
    }

    /// Keep the packet of a record that the data path has made ([`tables::Run::event`], or of the ring).
    pub fn take(&mut self, record: &[u8]) {
        self.buffers.take(record);
    }

    /// Hear of changes to rules, and let go what may go.
    pub fn release(&mut self) -> Vec<Released> {
        for order in self.orders.take() {
            self.buffers.obey(order, &self.orders);
        }
        while self.buffers.has_ready() {
            self.buffers.release();
        }
        self.buffers.show();
        std::mem::take(&mut self.buffers.exit.0)
    }

    /// First packets of PDRs that none waited for, since this was asked last.
    pub fn news(&mut self) -> Vec<Buffered> {
        self.news.try_iter().collect()
    }

    /// Counters of packets, and how many waited at the last [`Self::release`].
    pub fn totals(&self) -> HoldTotals {
        self.counters.totals()
    }
}
