//! Subscriptions outlive the process (`state.dir`), as sessions do: consumers would wait for reports, and hear of nothing.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sbi::ee::{Asked, Bounds, Watch, Whom};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::sleep;
use uuid::Uuid;

use super::{BUSY, Exposure, Seen, State, Subscription, now};
use crate::config::Config;
use crate::recovery;

/// Octets of a file that is read: of as many subscriptions as there may be.
const FILE_MAX: u64 = 256 << 20;

/// Pauses that the control thread may need.
const BUSY_MAX: u32 = 10;

/// One, without what it has seen: a period begins when it is read.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    id: Uuid,
    from: IpAddr,
    /// JSON.
    subscription: Box<str>,
    /// Sessions of the UE that it names, which another user's must not be taken for.
    sessions: Vec<u64>,
    /// Reports that it has had, where there is a last one.
    reports: u32,
}

/// The file that they are kept in; `None`: they are not kept.
pub(super) fn path(config: &Config) -> Option<PathBuf> {
    let dir = config.state.dir.as_ref()?;
    let node = recovery::harmless(&config.node.id.to_string());
    Some(dir.join(format!("subscriptions-{node}")))
}

/// All of them, to be written.
pub(super) fn octets(state: &State) -> Vec<u8> {
    let all = state.subscriptions.iter().map(|(id, of)| Kept {
        id: *id,
        from: of.from,
        subscription: of.document.clone(),
        sessions: of.watch.named(),
        reports: match of.watch.asked().mode.reports {
            Some(_) => of.watch.reports(),
            None => 0,
        },
    });
    // Texts and numbers always can be written.
    serde_json::to_vec(&all.collect::<Vec<_>>()).unwrap_or_default()
}

/// Subscriptions that can be read, and the number of all.
fn read(path: &Path) -> io::Result<(Vec<Kept>, usize)> {
    let length = fs::metadata(path)?.len();
    if length > FILE_MAX {
        return Err(io::Error::other(format!("{length} octets")));
    }
    let all: Vec<Value> = serde_json::from_slice(&fs::read(path)?)?;
    let count = all.len();
    let read = all.into_iter().map(serde_json::from_value);
    Ok((read.filter_map(Result::ok).collect(), count))
}

/// Go on with those that an earlier process has left.
pub(super) async fn resume(exposure: &Exposure, path: &Path) {
    let (all, count) = match read(path) {
        Ok(all) => all,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(file = %path.display(), %error, "nupf: subscriptions cannot be read; consumers have to subscribe again");
            return;
        }
    };
    let mut resumed = 0;
    for kept in all {
        resumed += usize::from(resume_one(exposure, kept).await);
    }
    if count > 0 {
        tracing::info!(
            resumed,
            ended = count - resumed,
            "nupf: subscriptions of before"
        );
    }
}

/// Whether it goes on.
async fn resume_one(exposure: &Exposure, kept: Kept) -> bool {
    // As it was accepted, whatever the shortest period is now.
    let bounds = Bounds {
        period: Duration::from_secs(1),
    };
    let document = serde_json::from_str(&kept.subscription).unwrap_or_default();
    let Ok(asked) = Asked::read(&document, bounds, now().wall) else {
        return false;
    };
    let mut sessions = Vec::new();
    if asked.whom != Whom::Any {
        for seid in kept.sessions {
            let mut counts = exposure.control.counts_of(seid).await;
            for _ in 0..BUSY_MAX {
                if counts.is_ok() {
                    break;
                }
                sleep(BUSY).await;
                counts = exposure.control.counts_of(seid).await;
            }
            sessions.extend(counts.ok().flatten().map(Seen::new));
        }
        if sessions.is_empty() {
            return false;
        }
    }
    let mut state = exposure.state();
    let mut watch = Watch::new(asked, now());
    watch.resume(kept.reports);
    if super::requests::begin(&mut watch, &state, &sessions).is_err() {
        return false;
    }
    let subscription = Subscription {
        watch,
        document: kept.subscription,
        from: kept.from,
        telling: None,
    };
    state.subscriptions.insert(kept.id, subscription);
    true
}
