//! A copy of the file on a disk (`state.disk`): it outlives the host.
//!
//! Changes are appended to memory while an answer is prepared, and another thread commits them, some milliseconds later, many at a time. No
//! answer waits for the disk: what the last of these milliseconds have changed ends with the host. A disk that fails, or is full, costs the
//! copy, which is begun anew later; it never costs a session of a host that lives.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use arena::View;
use arena::copy::{Changes, Copier, Limits, Stamp, Storage, remove_all};
use report::{DiskReport, DiskState};

use super::folder::Folder;
use super::own::{open_ours, parts};
use crate::clock::Clock;

/// Changes are committed this long after the first of them.
const COMMIT: Duration = Duration::from_millis(10);
/// Where nothing changes, it is committed so often that this is still so.
const STILL: Duration = Duration::from_secs(10);
/// Behind a failure the copy is begun anew.
const AGAIN: Duration = Duration::from_secs(10);
/// Octets of changes that wait for the disk, at most.
const WAITING_MAX: usize = 64 << 20;
/// The end of the process waits for the disk, so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whose copy, and of what.
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    /// Front of names of files.
    pub(super) name: String,
    /// The file in `state.dir`.
    pub(super) file: PathBuf,
    /// Its header.
    pub(super) header: Vec<u8>,
    /// The folder has a copy of it already, but for what the process before has not committed.
    pub(super) goes_on: bool,
    pub(super) clock: Clock,
}

/// The copy of a file that changes.
pub(super) struct Disk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread has something to do, or it has ended.
    turn: Condvar,
}

#[derive(Default)]
struct State {
    changes: Changes,
    /// Changes are of use: there is a copy, or one is begun.
    is_followed: bool,
    /// More wait than may.
    is_behind: bool,
    ends: bool,
    has_ended: bool,
    report: DiskReport,
}

/// What the thread has to commit next.
struct Turn {
    changes: Changes,
    /// Nothing more comes.
    ends: bool,
}

impl Disk {
    /// From now on it follows the file, whose changes are to be told.
    pub(super) fn follow(plan: Plan) -> Self {
        let shared = Arc::new(Shared::default());
        {
            let mut state = shared.lock();
            state.is_followed = true;
            state.report.path = plan.dir.display().to_string();
        }
        let of_thread = Arc::clone(&shared);
        let spawned = thread::Builder::new()
            .name("disk".into())
            .spawn(move || of_thread.run(plan));
        if let Err(error) = spawned {
            shared.fails(&error.into());
            shared.lock().has_ended = true;
        }
        Self { shared }
    }

    /// The place has this record.
    pub(super) fn put(&self, place: u32, record: &[u8]) {
        self.change(|changes| changes.put(place, record));
    }

    /// The place has none.
    pub(super) fn remove(&self, place: u32) {
        self.change(|changes| changes.remove(place));
    }

    fn change(&self, change: impl FnOnce(&mut Changes)) {
        let mut state = self.shared.lock();
        if !state.is_followed {
            return;
        }
        let is_first = state.changes.is_empty();
        change(&mut state.changes);
        if state.changes.octets() > WAITING_MAX {
            state.changes = Changes::default();
            (state.is_followed, state.is_behind) = (false, true);
        }
        drop(state);
        if is_first {
            self.shared.turn.notify_one();
        }
    }

    pub(super) fn report(&self) -> DiskReport {
        let state = self.shared.lock();
        let mut report = state.report.clone();
        if state.is_behind {
            report.state = DiskState::Failed;
        }
        report
    }

    /// All that was told is committed, if the disk does it in time. The folder is nobody's then.
    pub(super) fn finish(self) {
        let mut state = self.shared.lock();
        state.ends = true;
        self.shared.turn.notify_all();
        let until = Instant::now() + PATIENCE;
        while !state.has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::error!(
                    "state.disk = {:?}: it does not answer: the copy of sessions there is older than they are",
                    state.report.path
                );
                return;
            }
            let waited = self.shared.turn.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut plan: Plan) {
        let mut last = String::new();
        while let Err(error) = self.copy(&plan) {
            self.fails(&error);
            let why = format!("{error:#}");
            // Each failure once, however often it comes again.
            if why != last {
                tracing::error!(
                    "state.disk = {:?}: {why}: sessions end with this host, until there is a copy again",
                    plan.dir
                );
            }
            last = why;
            // It is older than what SMFs have heard.
            if let Err(error) = remove(&plan.dir, &plan.name) {
                tracing::debug!("state.disk = {:?}: {error:#}", plan.dir);
            }
            plan.goes_on = false;
            if self.rests() {
                break;
            }
        }
        self.lock().has_ended = true;
        self.turn.notify_all();
    }

    fn fails(&self, error: &anyhow::Error) {
        let mut state = self.lock();
        state.is_followed = false;
        state.is_behind = false;
        state.changes = Changes::default();
        let report = &mut state.report;
        report.state = DiskState::Failed;
        report.error = Some(format!("{error:#}"));
        report.failures += 1;
        report.bytes = 0;
    }

    /// Until the copy is to be begun anew. True: the process ends.
    fn rests(&self) -> bool {
        let until = Instant::now() + AGAIN;
        let mut state = self.lock();
        while !state.ends {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.is_followed = true;
                return false;
            }
            let waited = self.turn.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Follow the file until the process ends.
    fn copy(&self, plan: &Plan) -> Result<()> {
        let folder = Folder::open(&plan.dir, &plan.name)?;
        let file = open_ours(&plan.file)?.context("the file in state.dir is gone")?;
        let [records, _] = parts(file)?;
        let view = View::open(records)?;
        let mut copier = Copier::begin(folder, &plan.header, plan.goes_on, Limits::default())?;
        let mut is_read = false;
        let mut is_current = false;
        loop {
            let Turn { changes, ends } = self.next(copier.is_looking())?;
            let began = Instant::now();
            copier.commit(&changes, stamp(plan.clock))?;
            let took = began.elapsed();
            if is_read {
                copier.seal()?;
                if !is_current {
                    tracing::info!("state.disk = {:?}: sessions outlive this host", plan.dir);
                }
                (is_read, is_current) = (false, true);
            } else if copier.is_looking() {
                is_read = copier.look(&view)?;
            }
            self.report(is_current, copier.octets(), took);
            if ends && !copier.is_looking() {
                return Ok(());
            }
        }
    }

    /// Changes to be committed, if there are some by then. An error: too many have come.
    fn next(&self, is_looking: bool) -> Result<Turn> {
        let mut state = self.lock();
        if !is_looking {
            let has_turn =
                |state: &State| state.ends || state.is_behind || !state.changes.is_empty();
            let until = Instant::now() + STILL;
            while !has_turn(&state) {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.turn.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if !state.ends {
                drop(state);
                thread::sleep(COMMIT);
                state = self.lock();
            }
        }
        if state.is_behind {
            bail!("it is slower than sessions change");
        }
        Ok(Turn {
            changes: std::mem::take(&mut state.changes),
            ends: state.ends,
        })
    }

    fn report(&self, is_current: bool, octets: u64, took: Duration) {
        let mut state = self.lock();
        let report = &mut state.report;
        report.state = match is_current {
            true => DiskState::Current,
            false => DiskState::Beginning,
        };
        report.error = None;
        report.bytes = octets;
        report.longest_commit_s = report.longest_commit_s.max(took.as_secs_f64());
    }
}

fn stamp(clock: Clock) -> Stamp {
    Stamp {
        own_ns: clock.now().0,
        wall_ns: wall_ns(),
    }
}

/// Nanoseconds since 1970.
pub(super) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// No copy is there for whoever comes next. Whether there was one.
pub(super) fn remove(dir: &Path, name: &str) -> Result<bool> {
    if !dir.exists() {
        return Ok(false);
    }
    let mut folder = Folder::open(dir, name)?;
    let was_there = !folder.names()?.is_empty();
    remove_all(&mut folder)?;
    Ok(was_there)
}
