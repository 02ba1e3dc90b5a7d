//! Usage: what packets tell of goes to the core, what the core has reported is counted and logged.

use std::collections::BTreeMap;
use std::io;

use report::{TriggerCount, UsageTotals};
use session::{Core, Outbox, Time, UsageRecord};
use tables::Tables;

use super::ERROR_PAUSE;
use crate::usage_log::UsageLog;

/// Alarms taken before N4 has its turn again.
const ALARMS_PER_TURN: usize = 1024;

/// Belongs to the control thread.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    log: Option<UsageLog>,
    /// Reports by trigger, and whether the SMF has them.
    reports: BTreeMap<(&'static str, bool), u64>,
    seids: Vec<u64>,
    /// Alarms wait.
    pub(crate) more: bool,
    /// The log is waited for: there is nothing else to do.
    pub(crate) waits: bool,
    failed: bool,
}

impl Usage {
    pub(crate) fn new(log: Option<UsageLog>) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }

    /// The log goes on in a file of the same name: somebody has moved the one so far away.
    pub(crate) fn open_log_anew(&self) {
        if let Some(log) = &self.log
            && !log.open_anew()
        {
            tracing::error!("the log of usage is too busy to open its file anew; try again");
        }
    }

    /// Sessions whose packets have reached what they were to tell of.
    pub(crate) fn serve(&mut self, now: Time, core: &mut Core<Tables>, out: &mut Outbox) {
        self.seids.clear();
        let taken = core
            .tables_mut()
            .crossings(ALARMS_PER_TURN, &mut self.seids);
        self.more = self.read(taken).unwrap_or_else(|| {
            // We are woken again at once.
            std::thread::sleep(ERROR_PAUSE);
            false
        });
        for &seid in &self.seids {
            core.crossed(now, seid, out);
        }
    }

    /// Whether there are more alarms; `None`: they cannot be read, which is said once until they can.
    fn read(&mut self, taken: io::Result<bool>) -> Option<bool> {
        match &taken {
            Err(error) if !self.failed => {
                tracing::error!(%error, "alarms of usage cannot be read; quotas are not kept");
            }
            Ok(_) if self.failed => tracing::info!("alarms of usage can be read again"),
            _ => {}
        }
        self.failed = taken.is_err();
        taken.ok()
    }

    /// Usage Reports of which is known what became of them.
    pub(crate) fn note(&mut self, records: &[UsageRecord]) {
        for record in records {
            for (trigger, _) in record.trigger.iter_names() {
                let place = (trigger, record.acknowledged);
                *self.reports.entry(place).or_default() += 1;
            }
            match &self.log {
                Some(log) if self.waits => log.write_in_time(record),
                Some(log) => log.write(record),
                None => {}
            }
        }
    }

    pub(crate) fn totals(&self, core: &Core<Tables>) -> UsageTotals {
        let [alarms, alarms_late] = core.tables().counting().alarms();
        let counts = self.log.as_ref().map(UsageLog::counts);
        let reports = self.reports.iter();
        UsageTotals {
            sessions_waiting: core.usage_waiting() as u64,
            alarms,
            alarms_late,
            late_bytes: core.tables().late_bytes(),
            log_written: counts.map_or(0, |counts| counts.written()),
            log_lost: counts.map_or(0, |counts| counts.lost()),
            reports: reports
                .map(|(&(trigger, acknowledged), &count)| TriggerCount {
                    trigger: trigger.to_lowercase(),
                    acknowledged,
                    count,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_that_cannot_be_read_are_told_of_each_time_that_it_begins() {
        let mut usage = Usage::default();
        let error = || Err(io::ErrorKind::Other.into());
        assert_eq!(usage.read(Ok(true)), Some(true));
        assert!(!usage.failed);
        for _ in 0..2 {
            assert_eq!(usage.read(error()), None, "a pause");
            assert!(usage.failed, "and it is said no more");
        }
        assert_eq!(usage.read(Ok(false)), Some(false));
        assert!(!usage.failed, "the next one is told of");
    }
}
