//! Parts that tests of next hops share: a cable, a control loop, and tables that remember.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

pub mod cable;
pub mod mirror;
pub mod recorder;
