//! Indexes: what follows from sessions, and leads to them by SEID or place. They know no session, and answer who is due.

pub(crate) mod applications;
pub(crate) mod deferred;
pub(crate) mod finishing;
pub(crate) mod inactivity;
pub(crate) mod paging;
pub(crate) mod reports;
pub(crate) mod sets;
pub(crate) mod stopped;
pub(crate) mod tunnels;
pub(crate) mod usage;
