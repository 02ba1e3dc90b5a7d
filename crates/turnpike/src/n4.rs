//! N4 as text.

use report::{FastPathReport, N4Body, OutcomeReport};

use crate::cell::{Cell, Plain};
use crate::table::Table;

/// Outcome of a request that the data path has answered.
const SERVED: &str = "served";
/// ... of a message of which nobody has seen what it is.
const FRAME: &str = "frame";

pub(crate) fn show(body: &N4Body) -> String {
    let mut messages = Table::new(["MESSAGE", "WAY", "CAUSE", "COUNT"]);
    for message in body.messages.iter().filter(|message| message.count > 0) {
        let (way, cause) = (&message.direction, &message.cause);
        messages.row([&message.message, way, cause, &message.count]);
    }
    let mut events = Table::new(["EVENT", "COUNT"]);
    for event in body.events.iter().filter(|event| event.count > 0) {
        events.row([&event.event, &event.count]);
    }
    let tables = [messages, events].into_iter();
    let tables = tables.filter(|table| !table.is_empty());
    let tables: Vec<String> = tables.map(|table| table.text() + "\n").collect();
    tables.concat() + &fast_path(body.fast_path.as_ref())
}

fn fast_path(of: Option<&FastPathReport>) -> String {
    let Some(of) = of else {
        return "The control plane serves all requests (n4.fast_path)\n".to_owned();
    };
    let known = of.requests.iter().filter(|of| of.outcome != FRAME);
    let all: u64 = known.map(|of| of.requests).sum();
    let served = of.requests.iter().find(|of| of.outcome == SERVED);
    let served = served.map_or(0, |of| of.requests);
    let by = of.interface.as_ref();
    let by = by.map_or(String::new(), |by| {
        format!(", by a program on {}", by.cell())
    });
    let mut out = format!(
        "n4.fast_path = \"{}\"{by}: {} of {} Session Modification Requests served, {}\n",
        of.kind.cell(),
        served.cell(),
        all.cell(),
        share(served, all),
    );
    if let Some(trouble) = &of.trouble {
        out += &format!("! {}\n", trouble.cell());
    }
    let mut outcomes = Table::new(["OUTCOME", "REQUESTS", "SHARE", "MEANING"]);
    for OutcomeReport {
        outcome,
        requests,
        meaning,
    } in of.requests.iter().filter(|of| of.requests > 0)
    {
        let all = if outcome == FRAME { 0 } else { all };
        outcomes.row([outcome, requests, &Plain(share(*requests, all)), meaning]);
    }
    if !outcomes.is_empty() {
        out += &format!("\n{}", outcomes.text());
    }
    let mut templates = Table::new(["SMF", "OCTETS", "SERVED", "UPDATES"]);
    for template in &of.templates {
        let updates = Plain(template.updates.join("; "));
        templates.row([&template.smf, &template.octets, &template.served, &updates]);
    }
    out += &match templates.is_empty() {
        true => "\nno templates: nothing was asked for often enough so far\n".to_owned(),
        false => format!(
            "\ntemplates {} of {}\n{}",
            of.templates.len(),
            of.templates_limit.cell(),
            templates.text()
        ),
    };
    out
}

/// So many of all, in per cent.
fn share(of: u64, all: u64) -> String {
    match all {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", of as f64 * 100.0 / all as f64),
    }
}
