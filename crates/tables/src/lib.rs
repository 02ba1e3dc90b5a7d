//! The one door to the data path.

pub mod netlink;
pub mod nexthop;
pub mod slowpath;
