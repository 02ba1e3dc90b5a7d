//! What QERs ask for and what packets get, of one user.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Client, Error};
use crate::fields::{items, text};
use crate::table::{Table, grouped};

/// Sessions of one address, in as many network instances.
const SESSIONS_MAX: usize = 100;

const DIRECTIONS: [&str; 2] = ["uplink", "downlink"];

#[derive(Args)]
pub(crate) struct Wish {
    /// Address of the UE.
    #[arg(long)]
    ue: IpAddr,
    /// Between the two readings that rates come of.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    interval: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("must lie between 0.1 and 3600".to_owned())
    }
}

/// Two readings, and what became of packets in between.
pub(crate) fn ask(client: &Client, wish: &Wish) -> Result<Value, Error> {
    let found = client.get(&format!("sessions?ue={}&limit={SESSIONS_MAX}", wish.ue))?;
    let seids: Vec<String> = items(&found, "/sessions")
        .map(|s| text(s, "/seid"))
        .collect();
    if seids.is_empty() {
        return Err(Error::Refused(format!("no session has {}", wish.ue)));
    }
    let read = || {
        let sessions = seids.iter().map(|seid| {
            let session = client.get(&format!("sessions/{seid}"));
            Ok((Instant::now(), session?))
        });
        sessions.collect::<Result<Vec<_>, Error>>()
    };
    let before = read()?;
    sleep(Duration::from_secs_f64(wish.interval));
    let after = read()?;
    let sessions = before
        .iter()
        .zip(&after)
        .map(|((since, before), (until, after))| {
            between(before, after, until.duration_since(*since).as_secs_f64())
        });
    Ok(json!({"ue": wish.ue.to_string(), "sessions": sessions.collect::<Vec<_>>()}))
}

/// One session at two times, so many seconds apart.
fn between(before: &Value, after: &Value, interval_s: f64) -> Value {
    let pdrs = items(after, "/pdrs_detail");
    let pdrs = pdrs.map(|pdr| {
        let mut row = measured(&[(former(before, pdr), pdr)], interval_s);
        for field in ["id", "direction", "qers"] {
            row[field] = pdr.get(field).cloned().unwrap_or_default();
        }
        asked(after, &mut row, |qer| {
            items(pdr, "/qers").any(|id| id == qer)
        });
        row
    });
    let qers = items(after, "/qers").flat_map(|qer| {
        let id = qer.get("id").cloned().unwrap_or_default();
        DIRECTIONS.map(|direction| {
            let is_its = |pdr: &&Value| {
                let names = items(pdr, "/qers").any(|named| *named == id);
                names && text(pdr, "/direction") == direction
            };
            let pdrs = items(after, "/pdrs_detail").filter(is_its);
            let pdrs: Vec<_> = pdrs.map(|pdr| (former(before, pdr), pdr)).collect();
            let mut row = measured(&pdrs, interval_s);
            (row["id"], row["direction"]) = (id.clone(), direction.into());
            asked(after, &mut row, |named| *named == id);
            row
        })
    });
    let of = |field: &str| after.get(field).cloned().unwrap_or_default();
    json!({
        "seid": of("seid"), "ue": of("ue"), "interval_s": interval_s,
        "qers": qers.collect::<Vec<_>>(), "pdrs": pdrs.collect::<Vec<_>>(),
    })
}

/// A PDR as it was.
fn former<'s>(before: &'s Value, pdr: &Value) -> Option<&'s Value> {
    let mut all = items(before, "/pdrs_detail");
    all.find(|was| was.get("id") == pdr.get("id"))
}

/// What PDRs did, together: so far, and by their former readings in between. Those that are new, or began anew, count from 0.
fn measured(pdrs: &[(Option<&Value>, &Value)], interval_s: f64) -> Value {
    let count = |pdr: &Value, field: &str| {
        let field = pdr.pointer(&format!("/traffic/{field}"));
        field.and_then(Value::as_u64).unwrap_or(0)
    };
    let so_far = |field: &str| -> u64 { pdrs.iter().map(|(_, pdr)| count(pdr, field)).sum() };
    let lately = |field: &str| -> u64 {
        let each = pdrs.iter().map(|(was, pdr)| {
            let is = count(pdr, field);
            let was = was.map_or(0, |was| count(was, field));
            is.checked_sub(was).unwrap_or(is)
        });
        each.sum()
    };
    json!({
        "rate_bps": (lately("bytes") as f64 * 8.0 / interval_s).round() as u64,
        "packets": lately("packets"),
        "delayed": lately("delayed"),
        "qos_drops": lately("qos_drops"),
        "delayed_so_far": so_far("delayed"),
        "qos_drops_so_far": so_far("qos_drops"),
    })
}

/// Of the QERs that are meant: the lowest MBR, and the sum of GBRs, which are asked for flow by flow.
fn asked(session: &Value, row: &mut Value, is_meant: impl Fn(&Value) -> bool) {
    let direction = text(row, "/direction");
    let rates = |kind: &str| -> Vec<u64> {
        let qers = items(session, "/qers").filter(|qer| qer.get("id").is_some_and(&is_meant));
        let field = format!("/{kind}_{direction}_bps");
        qers.filter_map(|qer| qer.pointer(&field)?.as_u64())
            .collect()
    };
    if let Some(mbr) = rates("mbr").into_iter().min() {
        row["mbr_bps"] = mbr.into();
    }
    let gbrs = rates("gbr");
    if !gbrs.is_empty() {
        row["gbr_bps"] = gbrs.iter().sum::<u64>().into();
    }
}

/// Each QER and each PDR of each session.
pub(crate) fn show(answer: &Value) -> String {
    let mut out = String::new();
    for session in items(answer, "/sessions") {
        let interval = session.pointer("/interval_s").and_then(Value::as_f64);
        out += &format!(
            "session {}, UE {}, measured over {:.2} s\n\n",
            text(session, "/seid"),
            text(session, "/ue"),
            interval.unwrap_or_default()
        );
        for (name, field) in [("QER", "/qers"), ("PDR", "/pdrs")] {
            let mut table = Table::new([
                name,
                "DIRECTION",
                "MBR bit/s",
                "GBR bit/s",
                "RATE bit/s",
                "OF MBR %",
                "DELAYED",
                "DROPPED",
                "DELAYED SO FAR",
                "DROPPED SO FAR",
            ]);
            for row in items(session, field) {
                table.row([
                    text(row, "/id"),
                    text(row, "/direction"),
                    text(row, "/mbr_bps"),
                    text(row, "/gbr_bps"),
                    text(row, "/rate_bps"),
                    share(row),
                    text(row, "/delayed"),
                    text(row, "/qos_drops"),
                    text(row, "/delayed_so_far"),
                    text(row, "/qos_drops_so_far"),
                ]);
            }
            if !table.is_empty() {
                out += &table.text();
                out.push('\n');
            }
        }
    }
    out
}

/// Of the MBR, in whole percent; `-`: there is none.
fn share(row: &Value) -> String {
    let of = |field: &str| row.pointer(field).and_then(Value::as_u64);
    match (of("/rate_bps"), of("/mbr_bps")) {
        (Some(rate), Some(mbr @ 1..)) => grouped((rate as f64 * 100.0 / mbr as f64).round() as u64),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two flows up with MBRs of their own and an AMBR for both, one PDR down.
    fn session(scale: u64) -> Value {
        let traffic = |bytes: u64, delayed: u64, dropped: u64| {
            json!({"packets": bytes * scale / 100, "bytes": bytes * scale, "drops": 50,
                "delayed": delayed * scale, "qos_drops": dropped * scale})
        };
        json!({
            "seid": "0a", "ue": ["10.60.0.1"],
            "qers": [
                {"id": 1, "mbr_uplink_bps": 9_000, "mbr_downlink_bps": 80_000,
                    "gbr_uplink_bps": 100, "gbr_downlink_bps": 200},
                {"id": 2, "mbr_uplink_bps": 8_000, "mbr_downlink_bps": 90_000},
                {"id": 3},
            ],
            "pdrs_detail": [
                {"id": 1, "direction": "uplink", "qers": [1, 2], "traffic": traffic(1000, 3, 1)},
                {"id": 2, "direction": "uplink", "qers": [2], "traffic": traffic(2000, 5, 2)},
                {"id": 3, "direction": "downlink", "qers": [1], "traffic": traffic(5000, 0, 9)},
            ],
        })
    }

    #[test]
    fn rates_come_of_two_readings() {
        let answer = between(&session(3), &session(5), 4.0);
        let row = |list: &str, id: u64, direction: &str| {
            let mut rows = items(&answer, list);
            let is_it = |row: &&Value| row["id"] == id && row["direction"] == direction;
            rows.find(is_it).unwrap().clone()
        };
        let first = row("/pdrs", 1, "uplink");
        assert_eq!(
            first,
            json!({"id": 1, "direction": "uplink", "qers": [1, 2], "mbr_bps": 8_000,
                "gbr_bps": 100, "rate_bps": 4_000, "packets": 20, "delayed": 6, "qos_drops": 2,
                "delayed_so_far": 15, "qos_drops_so_far": 5})
        );
        let ambr = row("/qers", 2, "uplink");
        assert_eq!(
            (&ambr["rate_bps"], &ambr["delayed"], &ambr["qos_drops"]),
            (&12_000.into(), &16.into(), &6.into())
        );
        let down = row("/qers", 1, "downlink");
        assert_eq!(
            (&down["rate_bps"], &down["mbr_bps"], &down["gbr_bps"]),
            (&20_000.into(), &80_000.into(), &200.into())
        );
        let free = row("/qers", 3, "uplink");
        assert!(free["rate_bps"] == 0 && free.get("mbr_bps").is_none());
    }

    #[test]
    fn what_began_anew_counts_from_zero() {
        let mut before = session(9);
        before["pdrs_detail"].as_array_mut().unwrap().remove(1);
        let answer = between(&before, &session(2), 1.0);
        let rates = items(&answer, "/pdrs").map(|pdr| pdr["rate_bps"].as_u64().unwrap());
        assert_eq!(rates.collect::<Vec<_>>(), [16_000, 32_000, 80_000]);
    }

    #[test]
    fn rows_are_shown_with_their_share() {
        let sessions = json!({"sessions": [between(&session(3), &session(5), 4.0)]});
        let shown = show(&sessions);
        for expected in [
            "session 0a, UE 10.60.0.1, measured over 4.00 s",
            "4 000",
            "50",
            "150",
        ] {
            assert!(shown.contains(expected), "{expected}\n{shown}");
        }
        assert!(shown.lines().count() > 10, "{shown}");
    }
}
