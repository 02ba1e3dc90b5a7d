//! How many lines of the log somebody else may cause.

use std::time::Duration;

use tokio::time::Instant;

use crate::logging;

/// Lines of the log that peers over HTTP may cause: one that grants and forgets without end fills no disk.
#[derive(Debug, Default)]
pub(crate) struct LineLimit {
    since: Option<Instant>,
    count: u32,
}

impl LineLimit {
    /// In a minute.
    const MOST: u32 = 10;

    /// Whether there may be one more now.
    pub(crate) fn may(&mut self, now: Instant) -> bool {
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(60);
        if self.since.is_none_or(is_over) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        if self.count > Self::MOST {
            logging::counts().suppress();
        }
        self.count <= Self::MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_ten_lines_a_minute() {
        let (mut lines, began) = (LineLimit::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let told = (0..60).filter(|second| lines.may(at(*second)));
        assert_eq!(told.count(), 10);
        assert!(lines.may(at(60)));
    }
}
