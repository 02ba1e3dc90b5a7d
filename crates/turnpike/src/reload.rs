//! Changes of the configuration: what they take, and what came of them.

use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use report::client::{self, Answer, Client};
use report::{ConfigChange, ReloadReport};
use serde_json::Value;

use crate::Error;
use crate::cell::Cell;
use crate::table::Table;

/// A start that takes over takes some 5 us a session.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks whether it serves N4.
const PAUSE: Duration = Duration::from_millis(100);
/// Characters of a value.
const VALUE_MAX: usize = 60;

pub(crate) fn diff(client: &Client, file: &Path) -> Result<Answer<ReloadReport>, Error> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::Read {
        file: file.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(client.config_diff(&text)?)
}

/// Until its outcome is known. `client`: made anew for each look, as address and token may be others then.
pub(crate) fn run(
    client: impl Fn() -> Result<Client, Error>,
) -> Result<Answer<ReloadReport>, Error> {
    let asked = client()?.reload()?;
    if asked.report.outcome != ReloadReport::TAKING_OVER {
        return Ok(asked);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        thread::sleep(PAUSE);
        use client::Error as E;
        let status = client().and_then(|client| Ok(client.get(&report::STATUS)?));
        let last = match status {
            Ok(status) => status.report.config.and_then(|config| config.last),
            // It is starting, and writes the file with its address and token then.
            Err(Error::Client(
                E::Unreachable { .. } | E::Refused(_) | E::NoToken | E::WrongToken(_),
            )) => None,
            Err(error) => return Err(error),
        };
        let is_it = |last: &ReloadReport| last.number >= asked.report.number;
        match last.filter(is_it) {
            Some(last) if last.outcome == ReloadReport::TAKING_OVER => {}
            Some(last) if last.outcome == ReloadReport::IN_FORCE => return Ok(last.into()),
            Some(last) => {
                let reasons = last.reasons.join("\n");
                return Err(Error::Reload(format!("{}: {reasons}", last.outcome)));
            }
            None => {}
        }
        if Instant::now() >= until {
            let error = "turnpiked has not started anew yet: see its log, and turnpike status";
            return Err(Error::Reload(error.to_owned()));
        }
    }
}

pub(crate) fn show(report: &ReloadReport) -> String {
    let mut text = String::new();
    if !report.changes.is_empty() {
        let mut table = Table::new(["KEY", "IN EFFECT", "FILE", "TAKES"]);
        for change in &report.changes {
            let (before, after) = (value(&change.before), value(&change.after));
            table.row([&change.key, &before, &after, &takes(change)]);
        }
        text += &table.text();
    }
    let outcome = match (report.outcome.as_str(), report.number) {
        (ReloadReport::UNCHANGED, _) => "no change: the file says what is in effect".to_owned(),
        (ReloadReport::IN_FORCE, 0) => "a reload brings this into force at once".to_owned(),
        (ReloadReport::TAKING_OVER, 0) => {
            "a reload starts turnpiked anew in its process; packets and sessions go on".to_owned()
        }
        (ReloadReport::REFUSED, 0) => "a reload would be refused:".to_owned(),
        (outcome, _) => outcome.to_owned(),
    };
    // Writing to a string never fails.
    let _ = writeln!(text, "{outcome}");
    for reason in &report.reasons {
        let _ = writeln!(text, "  {}", reason.cell());
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "warning: {}", warning.cell());
    }
    text
}

fn takes(change: &ConfigChange) -> String {
    match &change.reason {
        Some(reason) => format!("{}: {reason}", change.takes),
        None => change.takes.clone(),
    }
}

fn value(value: &Option<Value>) -> String {
    let text = value.as_ref().map_or("-".to_owned(), Value::to_string);
    match text.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_names_keys_and_reasons() {
        let change = |key: &str, takes: &str, reason: Option<&str>| ConfigChange {
            key: key.to_owned(),
            before: Some(json!(["10.0.0.0/8"])),
            after: None,
            takes: takes.to_owned(),
            reason: reason.map(str::to_owned),
        };
        let report = ReloadReport {
            outcome: ReloadReport::REFUSED.to_owned(),
            changes: vec![
                change("n4.allow", ConfigChange::NOTHING, None),
                change("node.id", ConfigChange::RESTART, Some("SMFs know it")),
            ],
            reasons: vec!["node.id: SMFs know it".to_owned()],
            ..ReloadReport::default()
        };
        let text = show(&report);
        assert!(
            text.contains("a reload would be refused:\n  node.id: SMFs know it\n"),
            "{text}"
        );
        assert!(text.contains(r#"["10.0.0.0/8"]"#), "{text}");
    }

    #[test]
    fn long_values_are_cut() {
        let long = value(&Some(json!("é".repeat(100))));
        assert_eq!(long.chars().count(), VALUE_MAX + 1);
    }
}
