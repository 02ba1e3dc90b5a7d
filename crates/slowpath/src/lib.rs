//! The slow path: user space for packets that the pipeline cannot finish. Fragments are put together, packets that are too long
//! are cut, senders hear by ICMP why theirs are lost, copies are sent, packets for idle UEs are buffered, and those whose neighbour
//! is not known go through the kernel.
//!
//! Begin with [`SlowPath`], which takes records of the data path from a ring (`serve`), each kind of work in its turn
//! (`fair`). [`Finisher`] does what is missing (`finish`) and runs the same pipeline over the same tables
//! ([`tables::pipeline`]), so that packets go where the rules say; what leaves goes through the kernel (`sockets`). Buffered
//! packets have a thread of their own (`buffers`). [`Setup`] makes these parts.
#![forbid(unsafe_code)]

pub mod advertise;
mod buffer_commands;
mod buffered_record;
mod buffers;
mod copies;
pub mod cut;
mod departures;
mod end_markers;
mod fair;
mod finish;
pub mod followers;
mod frame_sockets;
mod gtpu;
pub mod icmp;
mod inet;
mod locked;
mod outer;
mod outgoing;
pub mod reassembly;
mod routers;
mod serve;
mod setup;
mod sockets;

pub use buffer_commands::BufferedSession;
pub use buffers::{
    BufferBounds, BufferByHand, BufferCounters, BufferCounts, BufferThread, FormerPackets,
    KeptPackets, Released, Taken,
};
pub use end_markers::{EndMarkerCounters, EndMarkers};
pub use finish::{Finished, Finisher, Malformed};
pub use outgoing::Outgoing;
pub use routers::Routers;
pub use serve::{SlowPath, SlowPathCounters, SlowPathThread};
pub use setup::{Setup, send_end_markers};
