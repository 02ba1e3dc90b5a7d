//! The one door to the data path: builds and loads it, publishes sessions to it, reads its counters.
//!
//! [`Tables`] is what the control thread owns. Follow a change from [`session::compiled::Tables`]
//! through `plan` (where everything will lie, and whether it fits) and `publish` (which store makes
//! it visible) to `grace` (when what it replaced is reused).

mod abi;
mod adapt;
pub mod advertise;
mod alarms;
mod alloc;
mod back;
mod buffers;
mod copies;
pub mod cut;
mod encode;
mod fair;
mod filters;
mod finish;
pub mod followers;
mod grace;
mod handle;
mod host;
pub mod icmp;
mod index;
mod inet;
mod lanes;
mod marker;
mod memory;
mod outer;
mod owners;
mod peers;
mod plan;
mod prefixes;
mod publish;
pub mod reassembly;
mod router;
mod routing;
pub mod slowpath;
mod stats;
mod store;
mod tables;
mod task;
pub mod trace;
mod verdict;
mod xdp;

pub use abi::Features;
pub use adapt::Replacement;
pub use buffers::{
    BufferThread, HeldByHand, HeldSession, HoldBounds, HoldCounters, HoldTotals, Released,
};
pub use finish::{Finished, Finisher, Malformed, Outgoing};
pub use handle::Handle;
pub use host::Run;
pub use marker::{EndMarkerCounters, EndMarkers};
pub use stats::{Counting, DROP_REASONS, DropReason, PortTotals, Traffic};
pub use store::Layout;
pub use tables::{Fill, LANES_MAX, Mode, Options, PortConfig, Roles, SetupError, Tables};
pub use verdict::Verdict;
pub use xdp::{ProgramInfo, Runner};
