//! The one door to the data path: builds and loads it, publishes sessions to it, reads its counters.
//!
//! [`Tables`] is what the control thread owns. Follow a change from [`compiled::Tables`]
//! through `plan` (where everything will lie, and whether it fits) and `publish` (which store makes
//! it visible) to `grace` (when what it replaced is reused).
//!
//! Packets meet the tables in a back end (`backend`). Beside it, [`pipeline`] runs the same pipeline in this process,
//! for packets that programs cannot finish; the crate `slowpath` does.

mod abi;
mod adapt;
mod alarm_queue;
mod alloc;
mod backend;
mod buffer_control;
#[cfg(test)]
mod buffering_tests;
mod capacity;
mod clock;
pub mod copies;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod drop_reason;
mod encode;
mod engine;
mod entry_counts;
mod entry_owners;
mod error;
mod filters;
mod frame_socket;
mod grace;
mod handle;
mod handover;
mod index;
mod ingress;
mod interface_addresses;
mod kept_file;
mod layout;
mod left_ring;
mod memory;
mod options;
mod peers;
pub mod pipeline;
mod port;
mod prefixes;
mod programs;
mod queue;
mod ring;
mod routing;
mod served_log;
mod shaping;
mod stats;
mod store;
mod successors;
mod table_files;
mod tables;
pub mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trace;
mod tunnel_ends;
mod unsent;
mod verdict;
mod vlans;
mod worker;
mod worker_link;

pub use abi::Features;
pub use adapt::Replacement;
#[cfg(feature = "dpdk")]
pub use backend::workers::apart::{StartWorkers, process::run_workers};
pub use backend::xdp::pins::{Left, Pins};
pub use backend::{GoingOn, ProgramInfo, Runner};
pub use buffer_control::BufferControl;
pub use capacity::{CapacityConfig, CapacityReport, Governor};
pub use clock::monotonic_ns;
pub use drop_reason::DropReason;
pub use entry_counts::{EntryCount, EntryCounts, give_way};
pub use error::SetupError;
pub use frame_socket::{Egress, FrameSocket};
pub use grace::{Barrier, Bystander, Looking};
pub use handle::Handle;
pub use ingress::Ingress;
pub use interface_addresses::InterfaceAddresses;
pub use kept_file::{KeptFile, Words};
pub use layout::Layout;
pub use left_ring::{LeftPackets, LeftRecords, LeftRing, Numbers};
pub use options::{N4Port, Options};
pub use pipeline::Run;
pub use port::{LANES_MAX, Mode, PortConfig, Roles};
pub use ring::{Ring, RingReader};
pub use served_log::{LeftRequest, LeftRequests};
pub use shaping::Shaping;
pub use stats::{Counting, PortTotals, Traffic, WorkerTotals};
pub use store::left_meters::LeftMeters;
pub use table_files::TableFiles;
pub use tables::{Fill, Tables};
pub use tunnel_ends::TunnelEnds;
pub use unsent::unsent_octets;
pub use verdict::Verdict;
pub use worker_link::{WORKERS, can_have_workers, end_workers};
