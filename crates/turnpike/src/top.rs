//! The busiest users, load, rates and losses, as they are now.
//!
//! turnpiked finds the users; all else are differences of counters between two answers.

mod screen;

use std::io::{IsTerminal, Write, stdout};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::client::{Client, Error};
use crate::fields::{items, text};
use crate::table::{Table, grouped};
use screen::{Screen, Wants};

#[derive(Args, Clone)]
pub(crate) struct Wish {
    /// Users to show, at most 100; without it as many as the terminal has room for, else 20.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    limit: Option<u16>,
    /// What the order goes by.
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// One table, and no more.
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum By {
    /// Bits forwarded, both ways together.
    #[default]
    Rate,
    /// Packets that had to wait for their rate.
    Delayed,
    /// Packets dropped by QoS enforcement.
    Dropped,
}

impl By {
    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Delayed => "delayed",
            Self::Dropped => "dropped",
        }
    }
}

const USERS: u16 = 20;
const USERS_MAX: u16 = 100;
/// Users that a terminal has room for below all else, at least: else they come first.
const USERS_SEEN: usize = 5;
/// For which rates are measured, and after which the table is made anew.
const INTERVAL_MS: u64 = 1000;

/// Until somebody ends it; on a terminal a table that stays in its place, else one after the other.
pub(crate) fn run(client: Client, wish: &Wish, json: bool) -> Result<(), Error> {
    let is_live = !wish.once && !json && stdout().is_terminal();
    if is_live {
        return live(client, wish.clone());
    }
    let mut source = Source::new(client, wish.by, wish.limit.unwrap_or(USERS))?;
    loop {
        let frame = source.next()?;
        let shown = match (json, wish.once) {
            (true, true) => format!("{frame:#}\n"),
            (true, false) => format!("{frame}\n"),
            (false, true) => show(&frame, None),
            (false, false) => show(&frame, None) + "\n",
        };
        // A reader that has left has seen enough.
        if stdout().write_all(shown.as_bytes()).is_err() || wish.once {
            return Ok(());
        }
    }
}

fn live(client: Client, wish: Wish) -> Result<(), Error> {
    let (sender, frames) = channel();
    let limit = wish.limit.unwrap_or(USERS_MAX);
    // Keys are heard while turnpiked measures.
    std::thread::spawn(move || follow(client, wish.by, limit, &sender));
    let mut screen = Screen::open()?;
    let mut shown: Option<Value> = None;
    loop {
        screen.draw(|room| match &shown {
            Some(frame) => show(frame, Some(room)),
            None => "measuring ...\n".to_owned(),
        })?;
        let wants = loop {
            match frames.try_recv() {
                Ok(frame) => {
                    shown = Some(frame?);
                    break Wants::Redraw;
                }
                Err(_) => match screen.wait(Duration::from_millis(100))? {
                    Wants::Nothing => {}
                    wants => break wants,
                },
            }
        };
        if matches!(wants, Wants::End) {
            return Ok(());
        }
    }
}

/// Ends with the first error, or when nobody hears of it any more.
fn follow(client: Client, by: By, limit: u16, to: &Sender<Result<Value, Error>>) {
    let mut source = match Source::new(client, by, limit) {
        Ok(source) => source,
        Err(error) => {
            let _ = to.send(Err(error));
            return;
        }
    };
    loop {
        let frame = source.next();
        let is_last = frame.is_err();
        if to.send(frame).is_err() || is_last {
            return;
        }
    }
}

/// Counters at a time.
struct Reading {
    at: Instant,
    status: Value,
    workers: Value,
    drops: Value,
}

impl Reading {
    fn take(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            at: Instant::now(),
            status: client.get("status")?,
            workers: client.get("workers")?,
            drops: client.get("drops")?,
        })
    }
}

struct Source {
    client: Client,
    path: String,
    last: Reading,
}

impl Source {
    fn new(client: Client, by: By, limit: u16) -> Result<Self, Error> {
        let last = Reading::take(&client)?;
        let by = by.name();
        let path = format!("top?limit={limit}&by={by}&interval_ms={INTERVAL_MS}");
        Ok(Self { client, path, last })
    }

    /// What happens within the next interval.
    fn next(&mut self) -> Result<Value, Error> {
        let top = self.client.get(&self.path)?;
        let now = Reading::take(&self.client)?;
        let seconds = now.at.duration_since(self.last.at).as_secs_f64();
        let frame = frame(top, &self.last, &now, seconds);
        self.last = now;
        Ok(frame)
    }
}

/// All that is shown, of two readings and the users between them.
fn frame(mut top: Value, before: &Reading, after: &Reading, seconds: f64) -> Value {
    let per_s = |difference: f64| (difference / seconds).round() as u64;
    let total = |direction: &str, field: &str, factor: f64| {
        let field = format!("/{direction}/{field}");
        let sum = |reading: &Reading| -> f64 {
            let ports = items(&reading.status, "/ports");
            ports.map(|port| number(port, &field)).sum()
        };
        per_s((sum(after) - sum(before)).max(0.0) * factor)
    };
    let totals = ["uplink", "downlink"].map(|direction| {
        json!({
            "direction": direction,
            "in_bps": total(direction, "in_bytes", 8.0),
            "in_packets_per_s": total(direction, "in_packets", 1.0),
            "out_bps": total(direction, "out_bytes", 8.0),
            "out_packets_per_s": total(direction, "out_packets", 1.0),
        })
    });
    let workers = items(&after.workers, "").map(|worker| {
        let was = items(&before.workers, "").find(|was| was.get("worker") == worker.get("worker"));
        worker_load(was, worker, seconds)
    });
    let drops = items(&after.drops, "").map(|drop| {
        let is_it = |was: &&Value| {
            ["interface", "direction", "reason"]
                .iter()
                .all(|f| was.get(*f) == drop.get(*f))
        };
        let was = items(&before.drops, "").find(is_it);
        let was = was.map_or(0.0, |was| number(was, "/packets"));
        json!({
            "interface": drop.get("interface"), "direction": drop.get("direction"),
            "reason": drop.get("reason"), "packets": drop.get("packets"),
            "packets_per_s": per_s((number(drop, "/packets") - was).max(0.0)),
        })
    });
    top["measured_s"] = seconds.into();
    top["workers"] = workers.collect();
    top["drops"] = drops.collect();
    top["totals"] = totals.to_vec().into();
    top
}

fn number(of: &Value, field: &str) -> f64 {
    of.pointer(field).and_then(Value::as_f64).unwrap_or(0.0)
}

/// Share of its time, rate, and what waits and for how long, on average, of one thread or CPU.
fn worker_load(was: Option<&Value>, worker: &Value, seconds: f64) -> Value {
    let lately = |field: &str| {
        let was = was.map_or(0.0, |was| number(was, field));
        (number(worker, field) - was).max(0.0)
    };
    let mut load = json!({
        "worker": worker.get("worker"),
        "busy_percent": (lately("/busy_s") / seconds * 100.0).clamp(0.0, 100.0).round() as u64,
        "packets_per_s": (lately("/in_packets") / seconds).round() as u64,
    });
    if worker.get("shaper").is_some() {
        let delayed = lately("/shaper/delayed");
        load["waiting"] = worker["shaper"]["waiting"].clone();
        load["delayed"] = (delayed as u64).into();
        if delayed > 0.0 {
            let mean_us = lately("/shaper/waited_s") / delayed * 1e6;
            load["mean_delay_us"] = (mean_us.round() as u64).into();
        }
    }
    load
}

/// Users last, because a terminal may have no room for all; where it has room for hardly any then, they are first.
///
/// room: columns and lines of the terminal.
fn show(frame: &Value, room: Option<(usize, usize)>) -> String {
    let measured = number(frame, "/interval_s");
    let mut out = format!(
        "{} sessions, {} active in the last {measured:.2} s\n\n",
        text(frame, "/total"),
        text(frame, "/active")
    );
    let mut totals = Table::new(["", "IN bit/s", "IN /s", "OUT bit/s", "OUT /s"]);
    for row in items(frame, "/totals") {
        let cells = [
            "/direction",
            "/in_bps",
            "/in_packets_per_s",
            "/out_bps",
            "/out_packets_per_s",
        ];
        totals.row(cells.map(|field| text(row, field)));
    }
    let mut workers = Table::new(["WORKER", "BUSY %", "PACKETS /s", "WAIT", "DELAYED", "BY us"]);
    for row in items(frame, "/workers") {
        let cells = [
            "/worker",
            "/busy_percent",
            "/packets_per_s",
            "/waiting",
            "/delayed",
            "/mean_delay_us",
        ];
        workers.row(cells.map(|field| text(row, field)));
    }
    let mut drops = Table::new(["DROPPED", "INTERFACE", "DIRECTION", "PACKETS /s", "SO FAR"]);
    for row in items(frame, "/drops") {
        let cells = [
            "/reason",
            "/interface",
            "/direction",
            "/packets_per_s",
            "/packets",
        ];
        drops.row(cells.map(|field| text(row, field)));
    }
    let (users, others) = (users(frame), [totals, workers, drops]);
    let texts = |tables: Vec<Table>| -> String {
        let tables = tables.into_iter().filter(|table| !table.is_empty());
        let fitting = tables.map(|table| match room {
            Some((columns, _)) => table.within(columns),
            None => table,
        });
        fitting.map(|table| table.text() + "\n").collect()
    };
    let (users, others) = (texts(vec![users]), texts(others.into()));
    let lines = |text: &str| text.lines().count();
    let of_users = lines(&users).min(1 + USERS_SEEN);
    let is_small = room.is_some_and(|(_, room)| lines(&out) + lines(&others) + of_users > room);
    out += &match is_small {
        true => users + &others,
        false => others + &users,
    };
    out.pop();
    out
}

fn users(frame: &Value) -> Table {
    let mut users = Table::new(["UE", "UP bit/s", "DOWN bit/s", "DELAYED", "DROPPED", "SEID"]);
    for user in items(frame, "/users") {
        let both = |field: &str| {
            let of = |direction: &str| number(user, &format!("/{direction}/{field}")) as u64;
            grouped(of("uplink") + of("downlink"))
        };
        users.row([
            text(user, "/ue"),
            text(user, "/uplink/rate_bps"),
            text(user, "/downlink/rate_bps"),
            both("delayed"),
            both("qos_drops"),
            text(user, "/seid"),
        ]);
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{answer, text};

    /// Counters after so many steps.
    fn reading(steps: u64) -> Reading {
        let way = |bytes: u64| {
            json!({"in_bytes": bytes * steps, "in_packets": steps * 10, "out_bytes": bytes * steps / 2,
                "out_packets": steps * 5})
        };
        let port = |name: &str, up: u64, down: u64| json!({"interface": name, "uplink": way(up), "downlink": way(down)});
        Reading {
            at: Instant::now(),
            status: json!({"ports": [port("n3", 1000, 0), port("n6", 0, 3000)]}),
            workers: json!([
                {"worker": "worker-0", "in_packets": 30 * steps, "busy_s": 0.5 * steps as f64,
                    "shaper": {"waiting": 7, "delayed": 4 * steps, "waited_s": 0.001 * steps as f64}},
                {"worker": "receiver-0", "in_packets": 2 * steps, "busy_s": 9.0},
            ]),
            drops: json!([{"interface": "n3", "direction": "uplink", "reason": "rate",
                "packets": 6 * steps, "meaning": "m", "advice": "a"}]),
        }
    }

    fn shown_frame() -> Value {
        let user = json!({"seid": "a1", "ue": ["10.60.0.1"],
            "uplink": {"rate_bps": 1_500, "delayed": 2, "qos_drops": 3},
            "downlink": {"rate_bps": 2_500, "delayed": 40, "qos_drops": 50}});
        let top = json!({"interval_s": 1.01, "by": "rate", "total": 1_000_000, "active": 12,
            "users": [user]});
        frame(top, &reading(10), &reading(12), 2.0)
    }

    #[test]
    fn rates_are_differences_over_time() {
        let frame = shown_frame();
        assert_eq!(
            frame["totals"],
            json!([
                {"direction": "uplink", "in_bps": 8_000, "in_packets_per_s": 20,
                    "out_bps": 4_000, "out_packets_per_s": 10},
                {"direction": "downlink", "in_bps": 24_000, "in_packets_per_s": 20,
                    "out_bps": 12_000, "out_packets_per_s": 10},
            ])
        );
        assert_eq!(
            frame["workers"],
            json!([
                {"worker": "worker-0", "busy_percent": 50, "packets_per_s": 30, "waiting": 7,
                    "delayed": 8, "mean_delay_us": 250},
                {"worker": "receiver-0", "busy_percent": 0, "packets_per_s": 2},
            ])
        );
        assert_eq!(
            frame["drops"],
            json!([{"interface": "n3", "direction": "uplink", "reason": "rate", "packets": 72,
                "packets_per_s": 6}])
        );
    }

    #[test]
    fn a_turnpiked_that_began_anew_has_no_negative_rates() {
        let frame = frame(json!({}), &reading(12), &reading(1), 1.0);
        assert_eq!(frame["totals"][0]["in_bps"], 0);
        assert_eq!(frame["workers"][0]["busy_percent"], 0);
        assert_eq!(frame["drops"][0]["packets_per_s"], 0);
    }

    #[test]
    fn all_of_it_is_shown() {
        let shown = show(&shown_frame(), None);
        for expected in [
            "1 000 000 sessions, 12 active in the last 1.01 s",
            "24 000",
            "worker-0",
            "250",
            "rate",
            "10.60.0.1     1 500       2 500       42       53  a1",
        ] {
            assert!(shown.contains(expected), "{expected}\n{shown}");
        }
        assert_eq!(
            show(&json!({}), None),
            "- sessions, - active in the last 0.00 s\n"
        );
    }

    #[test]
    fn an_answer_has_its_text() {
        let still = || Reading {
            at: Instant::now(),
            status: answer("status"),
            workers: answer("workers"),
            drops: answer("drops"),
        };
        let frame = frame(answer("top"), &still(), &still(), 1.0);
        assert_eq!(show(&frame, None), text("top"));
    }

    #[test]
    fn users_come_first_where_there_is_little_room() {
        let frame = shown_frame();
        let shown = show(&frame, Some((40, 12)));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[2..5],
            [
                "UE         UP bit/s  DOWN bit/s  DELAYED",
                "10.60.0.1     1 500       2 500       42",
                ""
            ]
        );
        assert!(
            lines[2..].iter().all(|line| line.chars().count() <= 40),
            "{shown}"
        );
        assert_eq!(show(&frame, Some((80, 24))), show(&frame, None));
    }
}
