//! The UPF as its SMFs see it: associations, heartbeats, PFDs, GTP-U paths, load.

pub(crate) mod association;
pub mod features;
pub(crate) mod load;
pub mod paths;
pub mod peer;
pub mod pfds;
pub(crate) mod release;
