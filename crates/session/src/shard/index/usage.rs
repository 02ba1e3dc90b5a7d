//! Sessions with URRs: when they are looked at, and what is to be told of them.

use std::collections::BTreeSet;

use crate::base::time::Time;
use crate::usage::measured::Usage;
use crate::usage::report::{Report, UsageRecord};

/// Work that is due for URRs.
#[derive(Debug, Default)]
pub(crate) struct UsageWork {
    due: BTreeSet<(Time, u64)>,
    /// Sessions that have something to report, each once.
    pub(crate) ready: Vec<u64>,
    /// Usage Reports for the answer to the present request.
    pub(crate) reports: Vec<Report>,
    /// Entries for the log of usage.
    pub(crate) records: Vec<UsageRecord>,
}

impl UsageWork {
    /// The session has come.
    pub(crate) fn index(&mut self, seid: u64, usage: Option<&Usage>) {
        let due = usage.and_then(|usage| usage.due);
        self.due.extend(due.map(|due| (due, seid)));
    }

    /// The session is gone.
    pub(crate) fn forget(&mut self, seid: u64, usage: Option<&Usage>) {
        if let Some(due) = usage.and_then(|usage| usage.due) {
            self.due.remove(&(due, seid));
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A session whose time it is.
    pub(crate) fn next_due(&self, now: Time) -> Option<u64> {
        let &(due, seid) = self.due.first()?;
        (due <= now).then_some(seid)
    }

    /// The session is not there any more.
    pub(crate) fn drop_due(&mut self) {
        self.due.pop_first();
    }

    pub(crate) fn schedule(&mut self, seid: u64, usage: &mut Usage, due: Option<Time>) {
        if usage.due == due {
            return;
        }
        if let Some(before) = usage.due {
            self.due.remove(&(before, seid));
        }
        usage.due = due;
        self.due.extend(due.map(|due| (due, seid)));
    }
}
