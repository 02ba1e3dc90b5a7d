//! Parts of tables in their grace period.

use crate::index::Place;

/// Out of reach for new packets, but one under way may still look at it.
#[derive(Debug)]
pub(crate) enum Retired {
    /// Words of an entry, and perhaps the line itself: see [`Transitions`](crate::store::transitions::Transitions).
    Entry(u32),
    Ext(u32),
    Meter(u32),
    /// Filters from this place on.
    Rules(u32),
    Framed {
        first: u32,
        len: usize,
    },
    Slot(Place),
    Peer(u32),
    NextHop(u32),
    /// An entry forwards behind what waits at it.
    Drain(u32),
    Routes {
        first: u32,
        len: usize,
    },
}
