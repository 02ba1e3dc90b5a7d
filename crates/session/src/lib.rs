//! PFCP associations, sessions and rules.
#![forbid(unsafe_code)]

pub mod compiled;
