//! Messages with SMFs: our own requests, answers kept for repetitions, what is sent, what is counted.

pub(crate) mod answer_record;
pub(crate) mod answers;
pub(crate) mod incoming;
pub(crate) mod n4;
pub mod outbox;
pub(crate) mod requests;
pub mod stats;
