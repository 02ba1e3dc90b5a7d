//! Programs that the kernel has refused.

use std::time::{Duration, Instant};

use crate::abi::Features;
use crate::error::SetupError;

/// Programs that the kernel would not take, each with what it said and when.
///
/// Asking again takes the verifier's time, and nearly always brings the same answer: whoever cannot wait is told at
/// once what was said before. Now and then they are loaded again in the background, since memory may have been short.
#[derive(Debug, Default)]
pub(super) struct Refusals(Vec<(Features, String, Instant)>);

impl Refusals {
    /// Time until they are loaded again.
    const PATIENCE: Duration = Duration::from_secs(60);

    pub(super) fn add(&mut self, features: Features, error: &SetupError, now: Instant) {
        self.forget(features);
        self.0.push((features, error.to_string(), now));
    }

    pub(super) fn forget(&mut self, features: Features) {
        self.0.retain(|(refused, ..)| *refused != features);
    }

    pub(super) fn of(&self, features: Features) -> Option<SetupError> {
        let (_, error, _) = self.0.iter().find(|(refused, ..)| *refused == features)?;
        Some(SetupError::Refused(error.clone()))
    }

    pub(super) fn old(&self, now: Instant) -> Vec<Features> {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= Self::PATIENCE;
        let old = self.0.iter().filter(|(.., at)| is_old(at));
        old.map(|(features, ..)| *features).collect()
    }

    #[cfg(test)]
    pub(super) fn times(&self) -> Vec<Instant> {
        self.0.iter().map(|(.., at)| *at).collect()
    }
}
