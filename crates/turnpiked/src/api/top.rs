//! The busiest users of all, found here: what goes over REST is their number, not that of sessions.
//!
//! A thread that gives way to others reads the counters of all entries twice; the control thread has to say no more than who the
//! busiest ones are.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use report::{
    By, ErrorBody, INTERVAL_MS, SessionDetail, TopQuery, TopRate, TopReport, TopUser, USERS_MAX,
};
use tables::{EntryCount, EntryCounts};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::{Api, Failure};
use crate::command::{Asker, NoAnswer};

/// Entries read before others have a turn.
const PER_TURN: usize = 1 << 14;

fn score(by: By, count: &EntryCount) -> u64 {
    match by {
        By::Rate => count.bytes,
        By::Delayed => count.delayed.into(),
        By::Dropped => count.qos_drops.into(),
    }
}

/// State from one question to the next.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// `None`: nobody has asked yet, so that entries have no names.
    counts: Option<EntryCounts>,
    last: Option<(Instant, (By, u64), Arc<TopReport>)>,
}

/// The busiest users. One such question is worked on at a time; those who wait for the same answer have the same one.
#[utoipa::path(get, path = report::TOP.path(), params(TopQuery), responses(
    (status = 200, body = TopReport), (status = 400, body = ErrorBody)))]
pub(super) async fn top(
    State(api): State<Api>,
    query: Result<Query<TopQuery>, QueryRejection>,
) -> Result<Json<TopReport>, Failure> {
    let refuse = |error: String| Failure::new(StatusCode::BAD_REQUEST, error);
    let Query(query) = query?;
    let (limit, by) = (query.limit.unwrap_or(20), query.by.unwrap_or_default());
    let interval_ms = query.interval_ms.unwrap_or(1000);
    if !(1..=USERS_MAX).contains(&limit) {
        let error = format!("limit = {limit}: must lie between 1 and {USERS_MAX}");
        return Err(refuse(error));
    }
    if !INTERVAL_MS.contains(&interval_ms) {
        let (least, most) = (INTERVAL_MS.start(), INTERVAL_MS.end());
        let error = format!("interval_ms = {interval_ms}: must lie between {least} and {most}");
        return Err(refuse(error));
    }
    let asked = Instant::now();
    let top = Arc::clone(&api.top).lock_owned().await;
    // Goes on to its end when the client leaves: nobody begins another one meanwhile.
    let working = tokio::spawn(answer(api.control, top, asked, (by, interval_ms)));
    let gone = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the search has failed");
    let report = working.await.map_err(gone)??;
    let mut report = TopReport::clone(&report);
    report.users.truncate(limit);
    Ok(Json(report))
}

async fn answer(
    control: Asker,
    mut top: OwnedMutexGuard<Top>,
    asked: Instant,
    what: (By, u64),
) -> Result<Arc<TopReport>, NoAnswer> {
    if let Some((begun, of, report)) = &top.last
        && *of == what
        && *begun >= asked
    {
        return Ok(Arc::clone(report));
    }
    let counts = match &top.counts {
        Some(counts) => counts.clone(),
        None => {
            let counts = control.entry_counts().await?;
            top.counts.insert(counts).clone()
        }
    };
    let begun = Instant::now();
    let (by, interval_ms) = what;
    let interval = Duration::from_millis(interval_ms);
    let report = Arc::new(measure(&control, counts, by, interval).await?);
    top.last = Some((begun, what, Arc::clone(&report)));
    Ok(report)
}

async fn measure(
    control: &Asker,
    counts: EntryCounts,
    by: By,
    interval: Duration,
) -> Result<TopReport, NoAnswer> {
    let (sender, busiest) = oneshot::channel();
    let work = move || {
        tables::give_way();
        let _ = sender.send(Busiest::find(&counts, by, || std::thread::sleep(interval)));
    };
    let thread = std::thread::Builder::new().name("top".into());
    thread.spawn(work).map_err(|_| NoAnswer::Busy)?;
    let busiest = busiest.await.map_err(|_| NoAnswer::Gone)?;
    let interval_s = busiest.took.as_secs_f64();
    let mut users = Vec::new();
    for (seid, pdrs) in &busiest.users {
        // One that has ended meanwhile is no user any more.
        let session = control.session(*seid).await?;
        users.extend(session.map(|session| user(&session, pdrs, interval_s)));
    }
    let total = control.snapshot().await?.sessions.used;
    Ok(TopReport {
        interval_s,
        by: by.name().to_owned(),
        total,
        active: busiest.active,
        users,
    })
}

fn user(session: &SessionDetail, counted: &[(u16, EntryCount)], interval_s: f64) -> TopUser {
    let of = |direction: &str| {
        let mut rate = TopRate::default();
        let mut bytes = 0;
        for (pdr, count) in counted {
            let mut pdrs = session.pdrs_detail.iter();
            if pdrs.any(|known| known.id == u32::from(*pdr) && known.direction == direction) {
                bytes += count.bytes;
                rate.delayed += u64::from(count.delayed);
                rate.qos_drops += u64::from(count.qos_drops);
            }
        }
        rate.rate_bps = (bytes as f64 * 8.0 / interval_s).round() as u64;
        rate
    };
    TopUser {
        seid: session.summary.seid.clone(),
        ue: session.summary.ue.clone(),
        uplink: of("uplink"),
        downlink: of("downlink"),
    }
}

/// Sessions that did most, the busiest first, with what each of their PDRs did.
#[derive(Debug, Default)]
struct Busiest {
    users: Vec<(u64, Vec<(u16, EntryCount)>)>,
    /// Sessions that did something.
    active: u64,
    took: Duration,
}

impl Busiest {
    fn find(counts: &EntryCounts, by: By, pause: impl FnOnce()) -> Self {
        let places = counts.places();
        let began = Instant::now();
        let mut done: Vec<EntryCount> = Vec::with_capacity(places);
        each(places, |place| done.push(counts.of(place)));
        pause();
        // Each entry is read as long after its first reading as the first one is.
        let took = began.elapsed();
        let mut scores: HashMap<u64, u64> = HashMap::new();
        each(places, |place| {
            let Some(before) = done.get_mut(place) else {
                return;
            };
            *before = counts.of(place).since(*before);
            if *before != EntryCount::default()
                && let Some((seid, _)) = counts.owner(place)
            {
                *scores.entry(seid).or_default() += score(by, before);
            }
        });
        let mut users: Vec<(u64, Vec<_>)> = most(&scores).map(|seid| (seid, Vec::new())).collect();
        let ranks: HashMap<u64, usize> = users.iter().map(|user| user.0).zip(0..).collect();
        each(places, |place| {
            if done[place] != EntryCount::default()
                && let Some((seid, pdr)) = counts.owner(place)
                && let Some(&rank) = ranks.get(&seid)
            {
                users[rank].1.push((pdr, done[place]));
            }
        });
        Self {
            users,
            active: scores.len() as u64,
            took,
        }
    }
}

/// Places, with a turn for others now and then.
fn each(places: usize, mut work: impl FnMut(usize)) {
    for place in 0..places {
        if place % PER_TURN == PER_TURN - 1 {
            std::thread::yield_now();
        }
        work(place);
    }
}

/// SEIDs with the highest scores, the highest first, and among equals in order: [`USERS_MAX`] whatever was asked for, so that
/// others can have the same answer.
fn most(scores: &HashMap<u64, u64>) -> impl Iterator<Item = u64> {
    let mut best = std::collections::BinaryHeap::with_capacity(USERS_MAX + 1);
    for (&seid, &score) in scores.iter().filter(|(_, score)| **score > 0) {
        best.push(Reverse((score, Reverse(seid))));
        if best.len() > USERS_MAX {
            best.pop();
        }
    }
    let best = best.into_sorted_vec();
    best.into_iter().map(|Reverse((_, Reverse(seid)))| seid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::seid_text;
    use report::{PdrReport, SessionSummary};

    #[test]
    fn the_highest_scores_are_found_in_their_order() {
        let mut scores: HashMap<u64, u64> = (1..=10_000)
            .map(|seid: u64| (seid, seid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40))
            .collect();
        scores.insert(20_001, u64::MAX);
        scores.insert(20_000, u64::MAX);
        scores.insert(30_000, 0);
        let mut sorted: Vec<(u64, u64)> = scores.iter().map(|(&s, &score)| (score, s)).collect();
        sorted.sort_unstable_by_key(|&(score, seid)| (Reverse(score), seid));
        let should: Vec<u64> = sorted[..USERS_MAX].iter().map(|&(_, seid)| seid).collect();
        assert_eq!(most(&scores).collect::<Vec<_>>(), should);
        let none = [(1, 0)].into();
        assert_eq!(most(&none).count(), 0);
    }

    #[test]
    fn a_users_pdrs_are_added_by_direction() {
        let pdr = |id: u32, direction: &str| PdrReport {
            id,
            direction: direction.into(),
            ..PdrReport::default()
        };
        let session = SessionDetail {
            summary: SessionSummary {
                seid: seid_text(7),
                cp_seid: seid_text(1),
                peer: "smf".into(),
                ue: vec!["10.60.0.1".into()],
                pdrs: 3,
                uplink: Default::default(),
                downlink: Default::default(),
            },
            pdrs_detail: vec![pdr(1, "uplink"), pdr(2, "downlink"), pdr(3, "uplink")],
            fars: Vec::new(),
            qers: Vec::new(),
            urrs: Vec::new(),
            bars: Vec::new(),
            user_plane_inactivity_s: None,
        };
        let count = |bytes, delayed, qos_drops| EntryCount {
            bytes,
            delayed,
            qos_drops,
        };
        // An entry of a PDR that is gone is nobody's.
        let counted = [
            (1, count(1000, 1, 2)),
            (2, count(5, 3, 4)),
            (3, count(500, 5, 6)),
            (9, count(1, 1, 1)),
        ];
        let user = user(&session, &counted, 0.5);
        let rate = |rate_bps, delayed, qos_drops| TopRate {
            rate_bps,
            delayed,
            qos_drops,
        };
        assert_eq!(
            (user.uplink, user.downlink),
            (rate(24_000, 6, 8), rate(80, 3, 4))
        );
    }
}
