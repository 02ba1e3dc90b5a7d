//! The rules of a session: what an SMF says, read, checked and kept.

pub mod config;
pub(crate) mod duplicating;
pub(crate) mod endpoints;
pub(crate) mod flows;
pub(crate) mod framed;
pub(crate) mod intake;
pub(crate) mod kept_ies;
mod model;
pub(crate) mod places;
pub mod predefined;
pub(crate) mod qos;
pub(crate) mod site;
pub(crate) mod summary;
pub(crate) mod targets;
pub(crate) mod template;
pub(crate) mod unsupported;
pub(crate) mod urr;
pub(crate) mod values;

pub use model::*;
