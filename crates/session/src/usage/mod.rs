//! Usage: measured as URRs ask for it, judged, and written into reports.

pub(crate) mod alarms;
pub(crate) mod amount;
pub(crate) mod measured;
pub(crate) mod moment;
pub(crate) mod quotas;
pub(crate) mod report;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod urr_rules;
