//! Values that every part needs: time, hashing, places, names, the configuration, events.

pub(crate) mod bits;
pub mod event;
pub mod flow;
pub mod gtpu;
pub(crate) mod ids;
pub(crate) mod mix;
pub mod node_id;
pub(crate) mod octets;
pub(crate) mod pfd;
pub(crate) mod prefix_set;
pub(crate) mod record_error;
pub(crate) mod refusal;
pub(crate) mod seid;
pub(crate) mod set_key;
pub(crate) mod shares;
pub(crate) mod shortage;
pub(crate) mod slab;
pub(crate) mod tagged;
pub mod time;
pub(crate) mod wall_clock;
