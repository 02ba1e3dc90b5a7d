//! PFCP associations, sessions and rules.
#![forbid(unsafe_code)]

mod alloc;
mod base;
mod between;
mod compile;
mod core;
mod exchange;
mod node;
pub mod rules;
mod shard;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod usage;

pub use crate::core::changes::Change;
pub use crate::core::holdings::{Part, SmfView};
pub use crate::core::serve::TemplateView;
pub use crate::core::{Core, messages_in};
pub use alloc::addresses::PoolFill;
pub use base::record_error::RecordError;
pub use base::refusal::{GivenName, Refusal};
pub use base::slab::NoPlace;
pub use base::time::Time;
pub use base::{event, flow, gtpu, node_id, time};
pub use exchange::outbox::Outbox;
pub use exchange::{outbox, stats};
pub use node::record::{NodeRecord, Unresumed};
pub use node::untold::LostSession;
pub use node::{features, paths, peer, pfds};
pub use rules::config::Config;
pub use rules::summary::SessionSummary;
pub use rules::{config, predefined};
pub use shard::adopt::Unadopted;
pub use shard::record::Record;
pub use shard::resources::ResourceFill;
pub use shard::view::{
    FarView, PdrView, PredefinedView, QerView, SessionCounts, SessionView, UrrView,
};
pub use usage::amount::Amount;
pub use usage::measured::Uncounted;
pub use usage::report::UsageRecord;
