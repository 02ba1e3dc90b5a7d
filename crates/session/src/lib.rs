//! PFCP associations, sessions and rules.
#![forbid(unsafe_code)]

mod answers;
mod applications;
mod association;
mod compile;
#[cfg(test)]
mod compile_tests;
pub mod compiled;
pub mod config;
mod core;
mod deferred;
#[cfg(test)]
mod deferred_tests;
mod draft;
mod duplicating;
mod endpoints;
mod error_indication;
pub mod event;
mod expect;
pub mod features;
mod finishing;
pub mod flow;
mod framed;
pub mod gtpu;
mod inactivity;
mod indices;
mod intake;
mod kept;
mod load;
pub mod node_id;
pub mod outbox;
mod paging;
#[cfg(test)]
mod paging_tests;
pub mod paths;
pub mod peer;
pub mod pfds;
mod pools;
pub mod predefined;
mod prefix_set;
pub mod reference;
mod refusal;
mod release;
mod reports;
#[cfg(test)]
mod reports_tests;
mod requests;
mod resources;
pub mod rules;
mod salted;
mod session_requests;
mod session_view;
mod sessions;
mod sessions_sets;
#[cfg(test)]
mod sessions_tests;
mod sessions_usage;
mod set_requests;
mod sets;
mod site;
mod slab;
pub mod stats;
mod stopped;
mod targets;
mod teid;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
mod tunnels;
mod unsupported;
mod usage;
mod usage_alarms;
mod usage_asks;
mod usage_core;
mod usage_more;
mod usage_report;
#[cfg(test)]
mod usage_tests;

pub use crate::core::{Core, messages_in};
pub use config::Config;
pub use outbox::Outbox;
pub use refusal::Refusal;
pub use resources::{PoolFill, ResourceFill};
pub use session_view::{
    FarView, PdrView, PredefinedView, QerView, SessionSummary, SessionView, UrrView,
};
pub use time::Time;
pub use usage::Amount;
pub use usage_report::UsageRecord;
