//! The busiest users, load, rates and losses, as they are now.
//!
//! turnpiked finds the users; all else are differences of counters between two answers.

mod screen;

use std::borrow::Cow;
use std::io::{IsTerminal, Write, stdout};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use report::client::{Answer, Client};
use report::{
    By, DROPS, DirectionReport, DropReport, PortReport, STATUS, TOP, TopQuery, TopReport, TopUser,
    USERS_MAX, WORKERS, WorkerReport,
};
use serde::Serialize;
use serde_json::Value;

use crate::Error;
use crate::cell::Cell;
use crate::table::Table;
use screen::{Screen, Wants};

#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Users to show, at most 100; without it as many as the terminal has room for, else 20.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    limit: Option<u16>,
    /// Quantity that users are ordered by.
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// One table, and no more.
    #[arg(long)]
    once: bool,
}

/// Users without a limit, where no terminal sets one.
const USERS: usize = 20;
/// Users that a terminal has room for below all else, at least: else they come first.
const USERS_SEEN: usize = 5;
/// For which rates are measured, and after which the table is made anew.
const INTERVAL_MS: u64 = 1000;

/// Until somebody ends it; on a terminal a table that stays in its place, else one after the other.
pub(crate) fn run(client: Client, options: &Options, json: bool) -> Result<(), Error> {
    let is_live = !options.once && !json && stdout().is_terminal();
    if is_live {
        return live(client, options.clone());
    }
    let mut source = Source::new(client, options.by, options.limit.map_or(USERS, usize::from))?;
    loop {
        let frame = source.next()?;
        let shown = match (json, options.once) {
            (true, true) => format!("{:#}\n", Answer::from(frame).json),
            (true, false) => format!("{}\n", Answer::from(frame).json),
            (false, true) => show(&frame, None),
            (false, false) => show(&frame, None) + "\n",
        };
        // A reader that has left has seen enough.
        if stdout().write_all(shown.as_bytes()).is_err() || options.once {
            return Ok(());
        }
    }
}

fn live(client: Client, options: Options) -> Result<(), Error> {
    let (sender, frames) = channel();
    let limit = options.limit.map_or(USERS_MAX, usize::from);
    // Keys are heard while turnpiked measures.
    std::thread::spawn(move || follow(client, options.by, limit, &sender));
    let mut screen = Screen::open()?;
    let mut shown: Option<Frame> = None;
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
fn follow(client: Client, by: By, limit: usize, to: &Sender<Result<Frame, Error>>) {
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
    ports: Vec<PortReport>,
    workers: Vec<WorkerReport>,
    drops: Vec<DropReport>,
}

impl Reading {
    fn take(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            at: Instant::now(),
            ports: client.get(&STATUS)?.report.ports,
            workers: client.get(&WORKERS)?.report,
            drops: client.get(&DROPS)?.report,
        })
    }
}

struct Source {
    client: Client,
    query: TopQuery,
    last: Reading,
}

impl Source {
    fn new(client: Client, by: By, limit: usize) -> Result<Self, Error> {
        let last = Reading::take(&client)?;
        let query = TopQuery {
            limit: Some(limit),
            by: Some(by),
            interval_ms: Some(INTERVAL_MS),
        };
        Ok(Self {
            client,
            query,
            last,
        })
    }

    /// Users, load, rates and losses of the next interval.
    fn next(&mut self) -> Result<Frame, Error> {
        let top = self.client.ask(&TOP, &self.query)?;
        let now = Reading::take(&self.client)?;
        let seconds = now.at.duration_since(self.last.at).as_secs_f64();
        let frame = frame(top, &self.last, &now, seconds);
        self.last = now;
        Ok(frame)
    }
}

/// All that is shown: two readings, and the users between them.
#[derive(Serialize)]
struct Frame {
    /// turnpiked's answer as it came.
    #[serde(flatten)]
    answer: Value,
    #[serde(skip)]
    top: TopReport,
    /// Seconds between the readings.
    measured_s: f64,
    workers: Vec<Load>,
    drops: Vec<Losses>,
    totals: [Total; 2],
}

/// All interfaces in one direction.
#[derive(Serialize)]
struct Total {
    direction: &'static str,
    in_bps: u64,
    in_packets_per_s: u64,
    out_bps: u64,
    out_packets_per_s: u64,
}

/// A thread or CPU.
#[derive(Serialize)]
struct Load {
    worker: String,
    busy_percent: u64,
    packets_per_s: u64,
    /// Packets that wait now; of a thread that shapes, like the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    /// Packets that came to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    delayed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_delay_us: Option<u64>,
}

/// Packets lost for one reason.
#[derive(Serialize)]
struct Losses {
    interface: String,
    direction: String,
    reason: String,
    /// So far.
    packets: u64,
    packets_per_s: u64,
}

fn frame(top: Answer<TopReport>, before: &Reading, after: &Reading, seconds: f64) -> Frame {
    let workers = after.workers.iter().map(|worker| {
        let mut known = before.workers.iter();
        let was = known.find(|was| was.worker == worker.worker).cloned();
        load(&was.unwrap_or_default(), worker, seconds)
    });
    let drops = after.drops.iter().map(|drop| {
        let key = |of: &DropReport| {
            (
                of.interface.clone(),
                of.direction.clone(),
                of.reason.clone(),
            )
        };
        let was = before.drops.iter().find(|was| key(was) == key(drop));
        let was = was.map_or(0, |was| was.packets);
        Losses {
            interface: drop.interface.clone(),
            direction: drop.direction.clone(),
            reason: drop.reason.clone(),
            packets: drop.packets,
            packets_per_s: per_s(drop.packets.saturating_sub(was), seconds),
        }
    });
    let of = |reading: &Reading, direction: fn(&PortReport) -> DirectionReport| {
        let ports = reading.ports.iter().map(direction);
        ports.fold(DirectionReport::default(), sum)
    };
    let total = |name, direction| {
        let (was, is) = (of(before, direction), of(after, direction));
        let lately = |count: fn(&DirectionReport) -> u64, factor: u64| {
            let difference = count(&is).saturating_sub(count(&was));
            per_s(difference.saturating_mul(factor), seconds)
        };
        Total {
            direction: name,
            in_bps: lately(|of| of.in_bytes, 8),
            in_packets_per_s: lately(|of| of.in_packets, 1),
            out_bps: lately(|of| of.out_bytes, 8),
            out_packets_per_s: lately(|of| of.out_packets, 1),
        }
    };
    Frame {
        answer: top.json,
        top: top.report,
        measured_s: seconds,
        workers: workers.collect(),
        drops: drops.collect(),
        totals: [
            total("uplink", |port| port.uplink),
            total("downlink", |port| port.downlink),
        ],
    }
}

fn per_s(difference: u64, seconds: f64) -> u64 {
    (difference as f64 / seconds).round() as u64
}

fn sum(a: DirectionReport, b: DirectionReport) -> DirectionReport {
    DirectionReport {
        in_packets: a.in_packets.saturating_add(b.in_packets),
        in_bytes: a.in_bytes.saturating_add(b.in_bytes),
        out_packets: a.out_packets.saturating_add(b.out_packets),
        out_bytes: a.out_bytes.saturating_add(b.out_bytes),
    }
}

/// Share of its time, rate, and packets that wait and for how long, on average, of one thread or CPU.
fn load(was: &WorkerReport, worker: &WorkerReport, seconds: f64) -> Load {
    let busy_s = (worker.busy_s - was.busy_s).max(0.0);
    let shaped = worker.shaper.map(|shaper| {
        let was = was.shaper.unwrap_or_default();
        let delayed = shaper.delayed.saturating_sub(was.delayed);
        let waited_s = (shaper.waited_s - was.waited_s).max(0.0);
        let mean_us = (waited_s / delayed as f64 * 1e6).round() as u64;
        (shaper.waiting, delayed, (delayed > 0).then_some(mean_us))
    });
    Load {
        worker: worker.worker.clone(),
        busy_percent: (busy_s / seconds * 100.0).clamp(0.0, 100.0).round() as u64,
        packets_per_s: per_s(worker.in_packets.saturating_sub(was.in_packets), seconds),
        waiting: shaped.map(|(waiting, ..)| waiting),
        delayed: shaped.map(|(_, delayed, _)| delayed),
        mean_delay_us: shaped.and_then(|(.., mean_us)| mean_us),
    }
}

/// Users last, because a terminal may have no room for all; where it has room for hardly any then, they are first.
///
/// room: columns and lines of the terminal.
fn show(frame: &Frame, room: Option<(usize, usize)>) -> String {
    let top = &frame.top;
    let mut out = format!(
        "{} sessions, {} active in the last {:.2} s\n\n",
        top.total.cell(),
        top.active.cell(),
        top.interval_s,
    );
    let mut totals = Table::new(["", "IN bit/s", "IN /s", "OUT bit/s", "OUT /s"]);
    for of in &frame.totals {
        totals.row([
            &Cow::Borrowed(of.direction),
            &of.in_bps,
            &of.in_packets_per_s,
            &of.out_bps,
            &of.out_packets_per_s,
        ]);
    }
    let mut workers = Table::new(["WORKER", "BUSY %", "PACKETS /s", "WAIT", "DELAYED", "BY us"]);
    for of in &frame.workers {
        workers.row([
            &of.worker,
            &of.busy_percent,
            &of.packets_per_s,
            &of.waiting,
            &of.delayed,
            &of.mean_delay_us,
        ]);
    }
    let mut drops = Table::new(["DROPPED", "INTERFACE", "DIRECTION", "PACKETS /s", "SO FAR"]);
    for of in &frame.drops {
        drops.row([
            &of.reason,
            &of.interface,
            &of.direction,
            &of.packets_per_s,
            &of.packets,
        ]);
    }
    let (users, others) = (users(&top.users), [totals, workers, drops]);
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

fn users(users: &[TopUser]) -> Table {
    let mut table = Table::new(["UE", "UP bit/s", "DOWN bit/s", "DELAYED", "DROPPED", "SEID"]);
    for user in users {
        let (uplink, downlink) = (user.uplink, user.downlink);
        table.row([
            &user.ue,
            &uplink.rate_bps,
            &downlink.rate_bps,
            &uplink.delayed.saturating_add(downlink.delayed),
            &uplink.qos_drops.saturating_add(downlink.qos_drops),
            &user.seid,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{answer, text};
    use report::Status;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    fn read<T: DeserializeOwned>(json: Value) -> T {
        T::deserialize(json).unwrap()
    }

    fn answered(json: Value) -> Answer<TopReport> {
        Answer {
            report: read(json.clone()),
            json,
        }
    }

    /// Counters after so many steps.
    fn reading(steps: u64) -> Reading {
        let way = |bytes: u64| {
            json!({"in_bytes": bytes * steps, "in_packets": steps * 10, "out_bytes": bytes * steps / 2,
                "out_packets": steps * 5})
        };
        let port = |name: &str, up: u64, down: u64| json!({"interface": name, "uplink": way(up), "downlink": way(down)});
        Reading {
            at: Instant::now(),
            ports: read(json!([port("n3", 1000, 0), port("n6", 0, 3000)])),
            workers: read(json!([
                {"worker": "worker-0", "in_packets": 30 * steps, "busy_s": 0.5 * steps as f64,
                    "shaper": {"waiting": 7, "delayed": 4 * steps, "waited_s": 0.001 * steps as f64}},
                {"worker": "receiver-0", "in_packets": 2 * steps, "busy_s": 9.0},
            ])),
            drops: read(
                json!([{"interface": "n3", "direction": "uplink", "reason": "rate",
                "packets": 6 * steps, "meaning": "m", "advice": "a"}]),
            ),
        }
    }

    fn shown_frame() -> Frame {
        let user = json!({"seid": "a1", "ue": ["10.60.0.1"],
            "uplink": {"rate_bps": 1_500, "delayed": 2, "qos_drops": 3},
            "downlink": {"rate_bps": 2_500, "delayed": 40, "qos_drops": 50}});
        let top = json!({"interval_s": 1.01, "by": "rate", "total": 1_000_000, "active": 12,
            "users": [user]});
        frame(answered(top), &reading(10), &reading(12), 2.0)
    }

    #[test]
    fn rates_are_differences_over_time() {
        let frame = Answer::from(shown_frame()).json;
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
        let frame = frame(answered(json!({})), &reading(12), &reading(1), 1.0);
        let frame = Answer::from(frame).json;
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
    }

    #[test]
    fn an_answer_has_its_text() {
        let still = || Reading {
            at: Instant::now(),
            ports: answer::<Status>("status").ports,
            workers: answer("workers"),
            drops: answer("drops"),
        };
        let frame = frame(answered(answer("top")), &still(), &still(), 1.0);
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
