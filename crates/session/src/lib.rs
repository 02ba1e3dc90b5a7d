//! PFCP associations, sessions and rules.
#![forbid(unsafe_code)]

pub mod compiled;
pub mod config;
pub mod time;

pub use config::Config;
pub use time::Time;
