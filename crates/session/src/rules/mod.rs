//! The rules of a session: what an SMF says, read, checked and kept.

pub(crate) mod duplicating;
pub(crate) mod endpoints;
pub(crate) mod framed;
pub(crate) mod intake;
mod model;
pub mod predefined;
pub(crate) mod site;
pub(crate) mod targets;
pub(crate) mod unsupported;
pub(crate) mod urr;

pub use model::*;
