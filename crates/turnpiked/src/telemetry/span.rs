//! Spans of transactions, named as OpenTelemetry's semantic conventions name what they have a name for
//! (docs/howto/monitoring.md).

use std::hash::{BuildHasher, RandomState};

use pfcp::Cause;
use pfcp::ie::FailedRuleId;

use super::otlp::{Code, KeyValue, Kind, Span, Status};
use super::transaction::{Outcome, Side, Transaction};
use crate::text::{label, seid_text};

/// A trace's flag: it is sampled (W3C Trace Context).
const SAMPLED: u32 = 1;

/// Makes spans, and names that no other process gives.
#[derive(Debug, Default)]
pub(super) struct Spans {
    names: RandomState,
    made: u64,
}

impl Spans {
    /// `epoch_ns`: since 1970, when the control thread's clock began.
    pub(super) fn of(&mut self, transaction: &Transaction, epoch_ns: u64) -> Span {
        self.made += 1;
        let part = |number: u8| self.names.hash_one((number, self.made)).to_be_bytes();
        let request = transaction.message.to_string();
        let name = request.strip_suffix(" Request").unwrap_or(&request);
        let status = error(transaction).map(|message| Status {
            message,
            code: Code::Error.into(),
        });
        Span {
            trace_id: [part(0), part(1)].concat(),
            span_id: part(2).to_vec(),
            name: format!("PFCP {name}"),
            kind: match transaction.by {
                Side::Smf => Kind::Server,
                Side::Us => Kind::Client,
            }
            .into(),
            start_time_unix_nano: epoch_ns.wrapping_add(transaction.begun.0),
            end_time_unix_nano: epoch_ns.wrapping_add(transaction.ended.0),
            attributes: attributes(transaction),
            status,
            flags: SAMPLED,
        }
    }
}

fn refusal(transaction: &Transaction) -> Option<Cause> {
    match transaction.outcome {
        Outcome::Answered(cause) => cause.filter(|cause| !cause.is_accepted()),
        _ => None,
    }
}

/// For people; `None`: none.
fn error(transaction: &Transaction) -> Option<String> {
    let refused = |cause: Cause| cause.to_string();
    match transaction.outcome {
        Outcome::Answered(_) => refusal(transaction).map(refused),
        Outcome::TimedOut => Some(format!("no answer to {} sendings", transaction.sendings)),
        Outcome::Cancelled => Some("association or session ended meanwhile".to_owned()),
    }
}

fn attributes(of: &Transaction) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("network.protocol.name", "pfcp".to_owned()),
        KeyValue::new("network.transport", "udp".to_owned()),
        KeyValue::new("network.peer.address", of.peer.ip().to_string()),
        KeyValue::new("network.peer.port", i64::from(of.peer.port())),
        KeyValue::new("pfcp.message_type", label(of.message)),
        KeyValue::new("pfcp.sequence_number", i64::from(of.sequence)),
    ];
    let node_id = of.node_id.as_deref();
    all.extend(node_id.map(|id| KeyValue::new("pfcp.node_id", id.to_owned())));
    let seids = [("pfcp.up_seid", of.up_seid), ("pfcp.cp_seid", of.cp_seid)];
    for (key, seid) in seids {
        all.extend(seid.map(|seid| KeyValue::new(key, seid_text(seid))));
    }
    if let Outcome::Answered(Some(cause)) = of.outcome {
        all.push(KeyValue::new("pfcp.cause", i64::from(cause.0)));
    }
    if let Some(ie) = of.offending_ie {
        all.push(KeyValue::new("pfcp.offending_ie", i64::from(ie.0)));
    }
    if let Some(rule) = of.failed_rule {
        let (kind, id) = named(rule);
        all.push(KeyValue::new("pfcp.failed_rule.type", kind.to_owned()));
        all.push(KeyValue::new("pfcp.failed_rule.id", id));
    }
    match of.by {
        Side::Smf => all.push(KeyValue::new("pfcp.repeated", of.repeated)),
        Side::Us => all.push(KeyValue::new("pfcp.sendings", i64::from(of.sendings))),
    }
    let kind = match of.outcome {
        Outcome::Answered(_) => refusal(of).map(label),
        Outcome::TimedOut => Some("timeout".to_owned()),
        Outcome::Cancelled => Some("cancelled".to_owned()),
    };
    all.extend(kind.map(|kind| KeyValue::new("error.type", kind)));
    all
}

fn named(rule: FailedRuleId) -> (&'static str, i64) {
    match rule {
        FailedRuleId::Pdr(id) => ("pdr", id.into()),
        FailedRuleId::Far(id) => ("far", id.into()),
        FailedRuleId::Qer(id) => ("qer", id.into()),
        FailedRuleId::Urr(id) => ("urr", id.into()),
        FailedRuleId::Bar(id) => ("bar", id.into()),
        FailedRuleId::Mar(id) => ("mar", id.into()),
        FailedRuleId::Srr(id) => ("srr", id.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::transaction::tests::establishment;
    use super::*;

    #[test]
    fn each_span_has_names_of_its_own() {
        let mut spans = Spans::default();
        let two = [0, 0].map(|_| spans.of(&establishment(1), 10));
        let [one, other] = &two;
        assert_ne!(one.trace_id, other.trace_id);
        assert_ne!(one.span_id, other.span_id);
        assert_ne!(one.trace_id[..8], one.trace_id[8..]);
        assert_eq!((one.trace_id.len(), one.span_id.len()), (16, 8));
        let other_process = Spans::default().of(&establishment(1), 10);
        assert_ne!(one.trace_id, other_process.trace_id);
        assert_eq!(one.start_time_unix_nano, 1_000_010);
        assert_eq!(one.end_time_unix_nano, 1_250_010);
        assert_eq!(one.status, None);
    }

    #[test]
    fn a_transaction_that_failed_says_why() {
        let refused = Transaction {
            outcome: Outcome::Answered(Some(Cause::RULE_CREATION_MODIFICATION_FAILURE)),
            failed_rule: Some(FailedRuleId::Far(5)),
            ..establishment(1)
        };
        let late = Transaction {
            by: Side::Us,
            outcome: Outcome::TimedOut,
            sendings: 3,
            ..establishment(1)
        };
        let mut spans = Spans::default();
        for (transaction, error_type, message) in [
            (
                refused,
                "rule_creation_modification_failure",
                "Rule creation/modification Failure",
            ),
            (late, "timeout", "no answer to 3 sendings"),
        ] {
            let span = spans.of(&transaction, 0);
            let status = span.status.unwrap();
            assert_eq!((status.message.as_str(), status.code), (message, 2));
            let expected = KeyValue::new("error.type", error_type.to_owned());
            assert!(span.attributes.contains(&expected), "{error_type}");
        }
    }
}
