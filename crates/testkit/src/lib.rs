//! Fakes and builders that the tests, benchmarks and fuzz targets of all crates share. Nothing that is installed depends on
//! it.
//!
//! It knows what lies below `session` alone. Support that needs more is in the `testing` module of the crate that it needs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[cfg(feature = "machine")]
pub mod machine;
pub mod packets;
pub mod random;
#[cfg(feature = "pfcp")]
pub mod requests;
#[cfg(feature = "pfcp")]
pub mod samples;
pub mod sessions;
#[cfg(feature = "smf")]
pub mod smf;
pub mod tables;
pub mod upf;
#[cfg(feature = "pfcp")]
pub mod walk;
