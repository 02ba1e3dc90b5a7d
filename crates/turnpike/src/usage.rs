//! What URRs have measured, as text.

use serde_json::{Value, json};

use crate::client::{Client, Error};
use crate::fields::{items, text};
use crate::table::Table;

/// Sessions asked for at a time.
const PAGE_MAX: usize = 1000;

/// URRs of one session, or of up to `limit` sessions that measure, from behind `after` on.
pub(crate) fn ask(
    client: &Client,
    seid: Option<&str>,
    limit: usize,
    after: Option<&str>,
) -> Result<Value, Error> {
    if let Some(seid) = seid {
        let session = client.get(&format!("sessions/{seid}"))?;
        let of = |field: &str| session.get(field).cloned().unwrap_or_default();
        let one = json!({"seid": of("seid"), "ue": of("ue"), "urrs": of("urrs")});
        return Ok(json!({"sessions": [one]}));
    }
    pages(|path| client.get(path), limit, after)
}

/// Pages as one, with `next` if there are more sessions that measure.
fn pages(
    mut get: impl FnMut(&str) -> Result<Value, Error>,
    limit: usize,
    after: Option<&str>,
) -> Result<Value, Error> {
    let mut all = Vec::new();
    let mut after = after.map(str::to_owned);
    loop {
        let from = after.map_or(String::new(), |seid| format!("&after={seid}"));
        let mut page = get(&format!("usage?limit={PAGE_MAX}{from}"))?;
        if let Some(sessions) = page.get_mut("sessions").and_then(Value::as_array_mut) {
            all.append(sessions);
        }
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        let more = all.len() > limit;
        if more || after.is_none() {
            all.truncate(limit);
            let last = all.last().and_then(|last| last.get("seid"));
            page["next"] = last.filter(|_| more).cloned().unwrap_or_default();
            page["sessions"] = Value::Array(all);
            return Ok(page);
        }
    }
}

/// Each URR of each session.
pub(crate) fn show(answer: &Value) -> String {
    let mut table = heading(["SEID", "UE"]);
    for session in items(answer, "/sessions") {
        for urr in items(session, "/urrs") {
            let cells = [text(session, "/seid"), text(session, "/ue")];
            table.cells(cells.into_iter().chain(row(urr)));
        }
    }
    if table.is_empty() {
        return "nothing is measured\n".to_owned();
    }
    let mut out = table.text();
    if let Some(next) = answer.pointer("/next").and_then(Value::as_str) {
        let shown = items(answer, "/sessions").count();
        out += &format!("{shown} sessions, and there are more: --after {next}, or --limit\n");
    }
    out
}

/// The URRs of one session.
pub(crate) fn urrs(session: &Value) -> Table {
    let mut table = heading([]);
    for urr in items(session, "/urrs") {
        table.cells(row(urr));
    }
    table
}

fn heading<const N: usize>(front: [&str; N]) -> Table {
    let own = [
        "URR",
        "TRIGGERS",
        "REPORTS",
        "SINCE s",
        "UP BYTES",
        "DOWN BYTES",
        "UP",
        "DOWN",
        "SECONDS",
        "THRESHOLD",
        "QUOTA LEFT",
        "STATE",
    ];
    Table::of(front.into_iter().chain(own))
}

fn row(urr: &Value) -> impl Iterator<Item = String> {
    let is = |field: &str| urr.pointer(field).and_then(Value::as_bool) == Some(true);
    let state = match (is("/exhausted"), is("/pending")) {
        (true, _) => "exhausted",
        (_, true) => "to be reported",
        _ => "measures",
    };
    [
        text(urr, "/id"),
        text(urr, "/triggers"),
        text(urr, "/reports"),
        text(urr, "/for_s"),
        text(urr, "/uplink/bytes"),
        text(urr, "/downlink/bytes"),
        text(urr, "/uplink/packets"),
        text(urr, "/downlink/packets"),
        text(urr, "/seconds"),
        volume(urr, "/threshold"),
        volume(urr, "/quota_left"),
        state.to_owned(),
    ]
    .into_iter()
}

/// `1 000`, or with directions `1 000 up`; `-`: no limit.
fn volume(urr: &Value, field: &str) -> String {
    let of = |part: &str| text(urr, &format!("{field}/{part}"));
    let parts = [("total", ""), ("uplink", " up"), ("downlink", " down")];
    let known = parts.iter().filter_map(|(part, name)| {
        let value = of(part);
        (value != "-").then(|| format!("{value}{name}"))
    });
    let known: Vec<String> = known.collect();
    if known.is_empty() {
        "-".to_owned()
    } else {
        known.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urrs_are_shown_by_session() {
        let urr = json!({"id": 7, "triggers": ["VOLTH", "PERIO"], "reports": 2, "for_s": 61,
            "uplink": {"bytes": 12345, "packets": 10}, "downlink": {"bytes": 0, "packets": 0},
            "threshold": {"total": 1_000_000}, "quota_left": {"uplink": 5, "downlink": 6},
            "exhausted": false, "pending": true});
        let answer = json!({"sessions": [{"seid": "a1", "ue": ["10.60.0.1"], "urrs": [urr]}]});
        let shown = show(&answer);
        for expected in [
            "a1",
            "10.60.0.1",
            "VOLTH, PERIO",
            "12 345",
            "1 000 000",
            "5 up, 6 down",
            "to be reported",
        ] {
            assert!(shown.contains(expected), "{expected}\n{shown}");
        }
    }

    /// Of ten sessions in pages of four, those with even numbers measure.
    fn page(path: &str) -> Result<Value, Error> {
        let after = path
            .split_once("after=")
            .map_or(0, |(_, seid)| seid.parse().unwrap());
        let last = (after + 4).min(10);
        let measuring = (after + 1..=last).filter(|seid| seid % 2 == 0);
        let sessions = measuring.map(|seid| json!({"seid": seid.to_string(), "urrs": [{"id": 1}]}));
        let next = (last < 10).then(|| last.to_string());
        Ok(json!({"total": 10, "sessions": sessions.collect::<Vec<_>>(), "next": next}))
    }

    #[test]
    fn a_list_that_is_cut_says_so() {
        let asked = |limit: usize, after: Option<&str>| {
            let answer = pages(page, limit, after).unwrap();
            let seids: Vec<String> = items(&answer, "/sessions")
                .map(|s| text(s, "/seid"))
                .collect();
            (
                seids.join(" "),
                show(&answer).lines().last().unwrap_or_default().to_owned(),
            )
        };
        let more = |shown: u32, next: u32| {
            format!("{shown} sessions, and there are more: --after {next}, or --limit")
        };
        assert_eq!(asked(3, None), ("2 4 6".to_owned(), more(3, 6)));
        let (rest, last) = asked(3, Some("6"));
        assert!(rest == "8 10" && !last.contains("more"), "{last}");
        assert_eq!(asked(1, Some("6")), ("8".to_owned(), more(1, 8)));
        let (all, last) = asked(5, None);
        assert!(all == "2 4 6 8 10" && !last.contains("more"), "{last}");
    }

    #[test]
    fn nothing_measured_is_said_so() {
        for answer in [Value::Null, json!({"sessions": []}), json!([])] {
            assert_eq!(show(&answer), "nothing is measured\n");
        }
    }
}
