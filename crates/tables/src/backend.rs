//! Where the pipeline runs.

pub(crate) mod xdp;
