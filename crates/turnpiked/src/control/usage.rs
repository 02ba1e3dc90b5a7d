//! Usage: what packets tell of goes to the core, what the core has reported is counted and logged.

use std::collections::BTreeMap;

use session::{Core, Outbox, Time, UsageRecord};
use tables::Tables;

use crate::report::{TriggerCount, UsageTotals};
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

    /// Sessions whose packets have reached what they were to tell of.
    pub(crate) fn serve(&mut self, now: Time, core: &mut Core<Tables>, out: &mut Outbox) {
        self.seids.clear();
        let taken = core
            .tables_mut()
            .crossings(ALARMS_PER_TURN, &mut self.seids);
        self.more = match taken {
            Ok(more) => more,
            Err(error) => {
                if !self.failed {
                    tracing::error!(%error, "alarms of usage cannot be read; quotas are not kept");
                }
                self.failed = true;
                false
            }
        };
        for &seid in &self.seids {
            core.crossed(now, seid, out);
        }
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
