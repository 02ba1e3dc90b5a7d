//! Rates that QERs ask for and packets get, of one user.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use report::client::{Client, Error};
use report::{PdrReport, QerReport, SESSIONS, SessionDetail, SessionsQuery};
use serde::Serialize;

use crate::cell::{Cell, grouped};
use crate::table::Table;

/// Sessions of one address, in as many network instances.
const SESSIONS_MAX: usize = 100;

const DIRECTIONS: [&str; 2] = ["uplink", "downlink"];

#[derive(Args)]
pub(crate) struct Options {
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

/// Sessions of one user.
#[derive(Serialize)]
pub(crate) struct UserQos {
    ue: String,
    sessions: Vec<SessionQos>,
}

/// A session over some seconds.
#[derive(Serialize)]
struct SessionQos {
    seid: String,
    ue: Vec<String>,
    interval_s: f64,
    qers: Vec<Row>,
    pdrs: Vec<Row>,
}

/// A QER in one direction, or a PDR.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    id: u32,
    direction: String,
    /// Of a PDR.
    #[serde(skip_serializing_if = "Option::is_none")]
    qers: Option<Vec<u32>>,
    #[serde(flatten)]
    asked: Asked,
    #[serde(flatten)]
    measured: Measured,
}

/// Rates that QERs ask for.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Asked {
    #[serde(skip_serializing_if = "Option::is_none")]
    mbr_bps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbr_bps: Option<u64>,
}

/// Packets of PDRs.
#[derive(Debug, PartialEq, Serialize)]
struct Measured {
    rate_bps: u64,
    packets: u64,
    delayed: u64,
    qos_drops: u64,
    delayed_so_far: u64,
    qos_drops_so_far: u64,
}

/// Two readings, and the packets in between.
pub(crate) fn ask(client: &Client, options: &Options) -> Result<UserQos, Error> {
    let query = SessionsQuery {
        ue: Some(options.ue.to_string()),
        limit: Some(SESSIONS_MAX),
        ..SessionsQuery::default()
    };
    let found = client.ask(&SESSIONS, &query)?.report.sessions;
    if found.is_empty() {
        return Err(Error::Refused(format!("no session has {}", options.ue)));
    }
    let read = || {
        let sessions = found.iter().map(|session| {
            let session = client.session(&session.seid);
            Ok((Instant::now(), session?.report))
        });
        sessions.collect::<Result<Vec<_>, Error>>()
    };
    let before = read()?;
    sleep(Duration::from_secs_f64(options.interval));
    let after = read()?;
    let sessions = before
        .iter()
        .zip(&after)
        .map(|((since, before), (until, after))| {
            between(before, after, until.duration_since(*since).as_secs_f64())
        });
    Ok(UserQos {
        ue: options.ue.to_string(),
        sessions: sessions.collect(),
    })
}

/// One session at two times, so many seconds apart.
fn between(before: &SessionDetail, after: &SessionDetail, interval_s: f64) -> SessionQos {
    let former = |pdr: &PdrReport| before.pdrs_detail.iter().find(|was| was.id == pdr.id);
    let pdrs = after.pdrs_detail.iter().map(|pdr| Row {
        id: pdr.id,
        direction: pdr.direction.clone(),
        qers: Some(pdr.qers.clone()),
        asked: asked(&after.qers, &pdr.direction, |qer| pdr.qers.contains(&qer)),
        measured: measured(&[(former(pdr), pdr)], interval_s),
    });
    let qers = after.qers.iter().flat_map(|qer| {
        DIRECTIONS.map(|direction| {
            let is_its =
                |pdr: &&PdrReport| pdr.qers.contains(&qer.id) && pdr.direction == direction;
            let pdrs = after.pdrs_detail.iter().filter(is_its);
            let pdrs: Vec<_> = pdrs.map(|pdr| (former(pdr), pdr)).collect();
            Row {
                id: qer.id,
                direction: direction.to_owned(),
                qers: None,
                asked: asked(&after.qers, direction, |named| named == qer.id),
                measured: measured(&pdrs, interval_s),
            }
        })
    });
    SessionQos {
        seid: after.summary.seid.clone(),
        ue: after.summary.ue.clone(),
        interval_s,
        qers: qers.collect(),
        pdrs: pdrs.collect(),
    }
}

/// Counts of PDRs together: so far, and by their former readings in between. PDRs that are new, or began anew, count from 0.
fn measured(pdrs: &[(Option<&PdrReport>, &PdrReport)], interval_s: f64) -> Measured {
    let so_far = |count: fn(&PdrReport) -> u64| {
        let each = pdrs.iter().map(|(_, pdr)| count(pdr));
        each.fold(0, u64::saturating_add)
    };
    let lately = |count: fn(&PdrReport) -> u64| {
        let each = pdrs.iter().map(|(was, pdr)| {
            let is = count(pdr);
            is.checked_sub(was.map_or(0, count)).unwrap_or(is)
        });
        each.fold(0, u64::saturating_add)
    };
    Measured {
        rate_bps: (lately(|pdr| pdr.traffic.bytes) as f64 * 8.0 / interval_s).round() as u64,
        packets: lately(|pdr| pdr.traffic.packets),
        delayed: lately(|pdr| pdr.traffic.delayed),
        qos_drops: lately(|pdr| pdr.traffic.qos_drops),
        delayed_so_far: so_far(|pdr| pdr.traffic.delayed),
        qos_drops_so_far: so_far(|pdr| pdr.traffic.qos_drops),
    }
}

/// Of the QERs that are meant: the lowest MBR, and the sum of GBRs, which are asked for flow by flow.
fn asked(qers: &[QerReport], direction: &str, is_meant: impl Fn(u32) -> bool) -> Asked {
    let qers = qers.iter().filter(|qer| is_meant(qer.id));
    let rates = qers.filter_map(|qer| match direction {
        "uplink" => Some((qer.mbr_uplink_bps, qer.gbr_uplink_bps)),
        "downlink" => Some((qer.mbr_downlink_bps, qer.gbr_downlink_bps)),
        _ => None,
    });
    let (mbrs, gbrs): (Vec<_>, Vec<_>) = rates.unzip();
    Asked {
        mbr_bps: mbrs.into_iter().flatten().min(),
        gbr_bps: gbrs.into_iter().flatten().reduce(u64::saturating_add),
    }
}

/// Each QER and each PDR of each session.
pub(crate) fn show(user: &UserQos) -> String {
    let mut out = String::new();
    for session in &user.sessions {
        out += &format!(
            "session {}, UE {}, measured over {:.2} s\n\n",
            session.seid.cell(),
            session.ue.cell(),
            session.interval_s
        );
        for (name, rows) in [("QER", &session.qers), ("PDR", &session.pdrs)] {
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
            for Row {
                id,
                direction,
                asked,
                measured,
                ..
            } in rows
            {
                table.row([
                    id,
                    direction,
                    &asked.mbr_bps,
                    &asked.gbr_bps,
                    &measured.rate_bps,
                    &share(asked, measured),
                    &measured.delayed,
                    &measured.qos_drops,
                    &measured.delayed_so_far,
                    &measured.qos_drops_so_far,
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
fn share(asked: &Asked, measured: &Measured) -> String {
    match asked.mbr_bps {
        Some(mbr @ 1..) => {
            let share = measured.rate_bps as f64 * 100.0 / mbr as f64;
            grouped(share.round() as u64)
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    /// Two flows up with MBRs of their own and an AMBR for both, one PDR down.
    fn session(scale: u64) -> SessionDetail {
        let traffic = |bytes: u64, delayed: u64, dropped: u64| {
            json!({"packets": bytes * scale / 100, "bytes": bytes * scale, "drops": 50,
                "delayed": delayed * scale, "qos_drops": dropped * scale})
        };
        let session = json!({
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
        });
        SessionDetail::deserialize(session).unwrap()
    }

    #[test]
    fn rates_come_of_two_readings() {
        let answer = between(&session(3), &session(5), 4.0);
        let answer = serde_json::to_value(answer).unwrap();
        let row = |list: &str, id: u64, direction: &str| {
            let mut rows = answer[list].as_array().unwrap().iter();
            let is_it = |row: &&Value| row["id"] == id && row["direction"] == direction;
            rows.find(is_it).unwrap().clone()
        };
        let first = row("pdrs", 1, "uplink");
        assert_eq!(
            first,
            json!({"id": 1, "direction": "uplink", "qers": [1, 2], "mbr_bps": 8_000,
                "gbr_bps": 100, "rate_bps": 4_000, "packets": 20, "delayed": 6, "qos_drops": 2,
                "delayed_so_far": 15, "qos_drops_so_far": 5})
        );
        let ambr = row("qers", 2, "uplink");
        assert_eq!(
            (&ambr["rate_bps"], &ambr["delayed"], &ambr["qos_drops"]),
            (&12_000.into(), &16.into(), &6.into())
        );
        let down = row("qers", 1, "downlink");
        assert_eq!(
            (&down["rate_bps"], &down["mbr_bps"], &down["gbr_bps"]),
            (&20_000.into(), &80_000.into(), &200.into())
        );
        let free = row("qers", 3, "uplink");
        assert!(free["rate_bps"] == 0 && free.get("mbr_bps").is_none());
    }

    #[test]
    fn what_began_anew_counts_from_zero() {
        let mut before = session(9);
        before.pdrs_detail.remove(1);
        let answer = between(&before, &session(2), 1.0);
        let rates = answer.pdrs.iter().map(|pdr| pdr.measured.rate_bps);
        assert_eq!(rates.collect::<Vec<_>>(), [16_000, 32_000, 80_000]);
    }

    #[test]
    fn rows_are_shown_with_their_share() {
        let shown = show(&UserQos {
            ue: "10.60.0.1".into(),
            sessions: vec![between(&session(3), &session(5), 4.0)],
        });
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
