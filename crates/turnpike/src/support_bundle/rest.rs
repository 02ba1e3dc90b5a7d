//! Answers of turnpiked.

use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use report::client::{self, Client};
use report::{PAGE_MAX, SESSIONS, SessionsQuery, TraceQuery};
use serde_json::Value;

use super::addresses::Addresses;
use super::member::{Kind, LIMIT, Member};
use super::programs::Deadline;
use crate::trace;

/// Time for one answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// Seconds of a trace.
const TRACE_S: u32 = 5;
/// Lines of a trace that wait for us.
const QUEUE: usize = 1024;

const QUESTIONS: [(&str, &str, &str); 19] = [
    ("rest/health.txt", "whether the process answers", "/healthz"),
    (
        "rest/readiness.txt",
        "whether N4 is served and packets reach the data path",
        "/readyz",
    ),
    (
        "rest/status.json",
        "the whole; state and configuration with its last change",
        report::STATUS.path(),
    ),
    ("rest/metrics.txt", "metrics", "/metrics"),
    (
        "rest/config.json",
        "the configuration in effect, defaults included",
        report::CONFIG.path(),
    ),
    (
        "rest/drops.json",
        "lost packets by reason",
        report::DROPS.path(),
    ),
    (
        "rest/datapath.json",
        "programs, interfaces, tables",
        report::DATAPATH.path(),
    ),
    (
        "rest/workers.json",
        "threads or CPUs that packets run on",
        report::WORKERS.path(),
    ),
    (
        "rest/cores.json",
        "CPUs and the threads there",
        report::CORES.path(),
    ),
    (
        "rest/history.json",
        "the last 15 minutes",
        report::HISTORY.path(),
    ),
    ("rest/peers.json", "SMFs", report::PEERS.path()),
    ("rest/smfs.json", "holdings of SMFs", report::SMFS.path()),
    (
        "rest/gtpu_peers.json",
        "gNBs and other UPFs",
        report::GTPU_PEERS.path(),
    ),
    (
        "rest/n4.json",
        "messages and events of N4",
        report::N4.path(),
    ),
    (
        "rest/capacities.json",
        "capacities and what is guaranteed",
        report::CAPACITIES.path(),
    ),
    (
        "rest/policies.json",
        "forwarding policies",
        report::POLICIES.path(),
    ),
    (
        "rest/pfds.json",
        "applications with their PFDs",
        report::PFDS.path(),
    ),
    (
        "rest/buffers.json",
        "packets that wait for idle UEs",
        report::BUFFERS.path(),
    ),
    (
        "rest/top.json",
        "the busiest users, of a second",
        "/api/v1/top?limit=20",
    ),
];

/// Answers in which addresses are the network's.
const OF_NETWORK: [&str; 5] = [
    "rest/peers.json",
    "rest/smfs.json",
    "rest/gtpu_peers.json",
    "rest/policies.json",
    "rest/pfds.json",
];

/// All of it; which addresses are whose is added to `addresses`, the configuration first.
pub(super) fn collect(
    client: &Client,
    addresses: &mut Addresses,
    deadline: Deadline,
) -> Vec<Member> {
    let mut members = Vec::new();
    // Why nobody is asked any more.
    let mut silent: Option<String> = None;
    for (name, about, path) in QUESTIONS {
        let answer = match &silent {
            Some(why) => Err(format!("not asked: {why}")),
            None if deadline.left().is_zero() => Err("not asked: time was up".to_owned()),
            None => client.text(path, LIMIT).map_err(|error| {
                if matches!(error, client::Error::Unreachable { .. }) && path == "/healthz" {
                    silent = Some("turnpiked did not answer /healthz".to_owned());
                }
                error.to_string()
            }),
        };
        let note = answer.as_ref().ok().filter(|(status, _)| *status != 200);
        members.push(Member {
            name: name.to_owned(),
            about,
            source: format!("GET {path}"),
            kind: if name.ends_with(".json") {
                Kind::Json
            } else {
                Kind::Text
            },
            note: note.map(|(status, _)| format!("HTTP {status}")),
            content: answer.map(|(_, body)| body.into_bytes()),
        });
    }
    if let Some(config) = json_of(&members, "rest/config.json") {
        addresses.add_config(&config);
    }
    if let Some(status) = json_of(&members, "rest/status.json") {
        addresses.add_status(&status);
    }
    for name in OF_NETWORK {
        if let Some(answer) = json_of(&members, name) {
            addresses.add_network(&answer);
        }
    }
    members.push(match silent {
        Some(why) => of_sessions(Err(format!("not asked: {why}")), None),
        None => sessions(client, addresses, deadline),
    });
    members
}

pub(super) fn json_of(members: &[Member], name: &str) -> Option<Value> {
    let member = members.iter().find(|member| member.name == name)?;
    serde_json::from_slice(member.content.as_ref().ok()?).ok()
}

/// The first page; the others for the addresses in them alone.
fn sessions(client: &Client, addresses: &mut Addresses, deadline: Deadline) -> Member {
    let mut first: Option<Value> = None;
    let (mut after, mut read) = (None, 0);
    let note = loop {
        let query = SessionsQuery {
            after,
            limit: Some(PAGE_MAX),
            ..SessionsQuery::default()
        };
        let page = match client.ask(&SESSIONS, &query) {
            Ok(page) => page,
            Err(error) if first.is_none() => return of_sessions(Err(error.to_string()), None),
            Err(error) => break Some(error.to_string()),
        };
        for session in &page.report.sessions {
            read += 1;
            session.ue.iter().for_each(|ue| addresses.add_user(ue));
        }
        first.get_or_insert(page.json);
        after = page.report.next;
        if after.is_none() {
            break None;
        }
        if deadline.left().is_zero() {
            break Some("time was up".to_owned());
        }
    };
    let note = note.map(|why| format!("addresses of {read} sessions were read: {why}"));
    let note =
        note.or_else(|| (read > PAGE_MAX).then(|| format!("the first {PAGE_MAX} of {read}")));
    of_sessions(Ok(first.unwrap_or_default().to_string().into_bytes()), note)
}

fn of_sessions(content: Result<Vec<u8>, String>, note: Option<String>) -> Member {
    Member {
        name: "rest/sessions.json".to_owned(),
        about: "sessions: how many, and the first 1000",
        source: format!("GET {}?limit={PAGE_MAX}", SESSIONS.path()),
        kind: Kind::Json,
        content,
        note,
    }
}

/// Lines about packets of one user, never packets themselves. Addresses that are followed are a user's.
pub(super) fn trace(client: Client, query: TraceQuery, addresses: &mut Addresses) -> Member {
    let deadline = Deadline::after(Duration::from_secs(TRACE_S.into()) + PATIENCE);
    let query = TraceQuery {
        seconds: Some(TRACE_S),
        ..query
    };
    let whom = match (&query.ue, &query.seid, &query.teid) {
        (Some(ue), ..) => format!("ue={ue}"),
        (_, Some(seid), _) => format!("seid={seid}"),
        (.., teid) => format!("teid={}", teid.as_deref().unwrap_or_default()),
    };
    if let Some(ue) = query.ue {
        addresses.add_user(&ue.to_string());
    }
    let (lines, read) = sync_channel(QUEUE);
    // Abandoned when turnpiked neither says more nor ends.
    thread::spawn(move || {
        let result = client.trace(&query, |line| {
            Ok::<_, client::Error>(match lines.send(Ok(line)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        });
        if let Err(error) = result {
            // Nobody waits any longer.
            let _ = lines.send(Err(error.to_string()));
        }
    });
    let mut content = String::new();
    let mut note = None;
    loop {
        match read.recv_timeout(deadline.left()) {
            Ok(Ok(line)) => {
                let followed = line.get("ue").and_then(Value::as_array);
                let followed = followed.into_iter().flatten().filter_map(Value::as_str);
                followed.for_each(|ue| addresses.add_user(ue));
                content += &trace::text(&line);
                content.push('\n');
            }
            Ok(Err(error)) => note = Some(error),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                note = Some("turnpiked did not end it".to_owned());
                break;
            }
        }
        if content.len() > LIMIT {
            break;
        }
    }
    let content = match (content.is_empty(), note.take_if(|_| content.is_empty())) {
        (true, Some(why)) => Err(why),
        _ => Ok(content.into_bytes()),
    };
    Member {
        name: "trace.txt".to_owned(),
        about: "packets of one user, a line each",
        source: format!("GET {}?{whom}&seconds={TRACE_S}", report::TRACE.path()),
        kind: Kind::Text,
        content,
        note,
    }
}
