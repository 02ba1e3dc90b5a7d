//! Counts of connections and requests to REST that were refused before anything was asked.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// More connections of one client than `api.client_connections`.
    Connections,
    /// More requests of one client than `api.client_requests_per_s`.
    Requests,
    /// As many connections as may be served wait already.
    Full,
    /// Under a name that is not ours, or under none.
    Host,
    /// By a page of another origin, in an operator's browser.
    Origin,
}

/// As metrics name them.
const NAMES: [&str; 5] = ["connections", "requests", "full", "host", "origin"];

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

impl Refusal {
    pub(super) fn count(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// All, since the start.
pub(super) fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    let counts = COUNTS.iter().map(|count| count.load(Ordering::Relaxed));
    NAMES.into_iter().zip(counts)
}
