//! Common parts of the three command lines.
#![forbid(unsafe_code)]

mod version;

pub use version::{COMMIT, RELEASE, version};
