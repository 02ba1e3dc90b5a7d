//! Messages of N4, and who serves them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Messages and events of N4 since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct N4Body {
    /// PFCP messages by kind.
    pub messages: Vec<MessageReport>,
    /// Other events, in alphabetical order.
    pub events: Vec<EventReport>,
    /// Absent: `n4.fast_path` is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<FastPathReport>,
}

impl N4Body {
    /// How often this has happened.
    pub fn events_named(&self, name: &str) -> u64 {
        let mut events = self.events.iter();
        let event = events.find(|known| known.event == name);
        event.map_or(0, |event| event.count)
    }
}

/// Something that happens on N4 now and then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct EventReport {
    /// As `turnpike_pfcp_events_total` names it.
    pub event: String,
    /// How often.
    pub count: u64,
}

/// PFCP messages of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MessageReport {
    /// As TS 29.244, 7.3 names it, in lower case with underscores.
    pub message: String,
    /// `received` or `sent`.
    pub direction: String,
    /// Of a response; absent in requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How many.
    pub count: u64,
}

/// Session Modification Requests that the data path serves (`n4.fast_path`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FastPathReport {
    /// `n4.fast_path`: `user` or `data`.
    pub kind: String,
    /// Interface of the program that serves them; absent with `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Why its program meets no request; absent: it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// By outcome, `served` first; all of them. `frame` counts other messages, too, which nobody can tell there.
    pub requests: Vec<OutcomeReport>,
    /// Kinds of requests that it has learned.
    pub templates: Vec<TemplateReport>,
    /// How many it can know.
    pub templates_limit: u64,
}

/// Requests with one outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct OutcomeReport {
    /// `served`, or why it was left to the control plane.
    pub outcome: String,
    /// How many.
    pub requests: u64,
    /// In words.
    pub meaning: String,
}

/// Requests that differ in no more than session, FARs, tunnel and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TemplateReport {
    /// Node ID of the SMF that asks so.
    pub smf: String,
    /// Octets of the message.
    pub octets: u64,
    /// Of each of its Update FARs, what it changes: `tunnel`, `forward`, `buffer`, `notify`, `end marker`, in words.
    pub updates: Vec<String>,
    /// Requests that were served by it.
    pub served: u64,
}
