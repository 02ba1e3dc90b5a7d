//! Numbers and addresses given out, each to one session at a time.

pub(crate) mod addresses;
pub(crate) mod indices;
pub(crate) mod teid;
