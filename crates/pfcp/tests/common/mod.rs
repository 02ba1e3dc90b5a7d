//! What several tests, the benchmark and the fuzz targets share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod samples;
pub mod walk;
