//! A set of sessions: requests about them, what they hold, and what falls due for them.

pub(crate) mod applications;
pub(crate) mod deferred;
#[cfg(test)]
pub(crate) mod deferred_tests;
pub(crate) mod draft;
pub(crate) mod error_indication;
pub(crate) mod finishing;
pub(crate) mod hand_over;
pub(crate) mod inactivity;
pub(crate) mod kept;
pub(crate) mod paging;
#[cfg(test)]
pub(crate) mod paging_tests;
pub(crate) mod read_ahead;
pub(crate) mod reports;
#[cfg(test)]
pub(crate) mod reports_tests;
pub(crate) mod resources;
pub(crate) mod session_requests;
pub(crate) mod sessions;
pub(crate) mod set_requests;
pub(crate) mod sets;
pub(crate) mod stopped;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tunnels;
pub(crate) mod usage;
pub(crate) mod usage_reports;
pub(crate) mod view;
