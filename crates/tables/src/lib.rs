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
mod backend;
mod buffers;
mod copies;
pub mod cut;
mod encode;
mod error;
mod fair;
mod filters;
mod finish;
pub mod followers;
mod grace;
mod handle;
pub mod icmp;
mod index;
mod inet;
mod layout;
mod marker;
mod memory;
mod needs;
mod options;
mod outer;
mod owners;
mod peers;
mod pipeline;
mod plan;
mod port;
mod prefixes;
mod programs;
mod publish;
pub mod reassembly;
mod router;
mod routing;
pub mod slowpath;
mod stats;
mod store;
mod tables;
mod task;
mod told;
pub mod trace;
mod verdict;

pub use abi::Features;
pub use adapt::Replacement;
pub use backend::{ProgramInfo, Runner};
pub use buffers::{
    BufferThread, HeldByHand, HeldSession, HoldBounds, HoldCounters, HoldTotals, Released,
};
pub use error::SetupError;
pub use finish::{Finished, Finisher, Malformed, Outgoing};
pub use grace::Barrier;
pub use handle::Handle;
pub use layout::Layout;
pub use marker::{EndMarkerCounters, EndMarkers};
pub use options::Options;
pub use pipeline::Run;
pub use port::{LANES_MAX, Mode, PortConfig, Roles};
pub use stats::{Counting, DROP_REASONS, DropReason, PortTotals, Traffic};
pub use tables::{Fill, Tables};
pub use verdict::Verdict;
