//! Parts that tests of next hops share: a cable, a control loop, and tables that remember.

pub(crate) mod cable;
pub(crate) mod mirror;
pub(crate) mod recorder;
