//! What several tests, the benchmark and the fuzz targets share.
#![allow(dead_code, unreachable_pub)]

pub mod samples;
pub mod walk;
