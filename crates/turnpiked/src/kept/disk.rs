//! A copy of the file on a disk (`state.disk`): it outlives the host.
//!
//! Changes are appended to memory while an answer is prepared, and another thread commits them, some milliseconds later, many at a time. No
//! answer waits for the disk: what the last of these milliseconds have changed ends with the host. A disk that fails, or is full, costs the
//! copy, which is begun anew later; it never costs a session of a host that lives.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use arena::View;
use arena::copy::{Changes, Copier, Limits, Stamp, Storage, remove_all};
use report::{DiskReport, DiskState};

use super::folder::{ELSEWHERE, Folder, identity};
use super::own::{open_ours, parts};
use crate::clock::Clock;

/// Changes are committed this long after the first of them.
const COMMIT: Duration = Duration::from_millis(10);
/// Commits without changes, which say that there were none, come so often.
const STILL: Duration = Duration::from_secs(10);
/// Behind a failure the copy is begun anew.
const AGAIN: Duration = Duration::from_secs(10);
/// Octets of changes that wait for the disk, at most.
const WAITING_MAX: usize = 64 << 20;
/// The end of the process waits for the disk, so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// A disk that takes longer than this has failed, as far as anybody can see.
const HUNG: Duration = Duration::from_secs(30);
/// Memory for changes that is kept for the next ones.
const SPARE_MAX: usize = 4 << 20;

/// A copy that is to be made, and its file.
pub(super) struct Plan {
    pub(super) dir: PathBuf,
    /// Front of names of files.
    pub(super) name: String,
    /// The file in `state.dir`.
    pub(super) file: PathBuf,
    /// Its header.
    pub(super) header: Vec<u8>,
    /// The folder has a copy of what its records were before this process.
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
    /// Memory for the next ones.
    spare: Changes,
    /// When the first of them came.
    first_at: Option<Instant>,
    /// When the first of those came that are being committed.
    under_way: Option<Instant>,
    /// Changes are of use: there is a copy, or one is begun.
    is_followed: bool,
    /// More wait than may.
    is_behind: bool,
    ends: Option<End>,
    has_ended: bool,
    report: DiskReport,
}

/// End of the process, as far as the copy goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The next process finds it, with all that was told.
    Leave,
    /// Likewise, as far as that takes no time: a process goes on at once.
    HandOver,
    /// It is removed.
    Remove,
}

/// Changes to be committed next.
struct Turn {
    changes: Changes,
    /// Nothing more comes.
    ends: Option<End>,
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
        state.first_at.get_or_insert_with(Instant::now);
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
        let waits = state.under_way.or(state.first_at);
        let waits = waits.map_or(Duration::ZERO, |since| since.elapsed());
        report.behind_s = waits.as_secs_f64();
        if state.is_behind || waits > HUNG {
            report.state = DiskState::Failed;
            let why = || "the disk does not answer".to_owned();
            report.error.get_or_insert_with(why);
        }
        report
    }

    /// The copy is left or removed, if the disk does it in time. The folder is nobody's then.
    pub(super) fn end(self, end: End) {
        let mut state = self.shared.lock();
        state.ends = Some(end);
        self.shared.turn.notify_all();
        let until = Instant::now() + PATIENCE;
        while !state.has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::error!(
                    "state.disk = {:?}: it does not answer: what is there of a copy of sessions is older than they are",
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
        let mut said = String::new();
        let mut folder = None;
        loop {
            let copied = AssertUnwindSafe(|| self.copy(&plan, &mut folder));
            let copied = catch_unwind(copied).unwrap_or_else(|_| Err(anyhow!("a defect")));
            let Err(error) = copied else { break };
            let was_current = self.fails(&error);
            // It is older than what SMFs have heard.
            let removed = remove_known(&plan, folder);
            let left = removed.err().map_or(String::new(), |error| {
                format!("; it cannot be removed ({error:#}), and the next host would go on with what is there")
            });
            let why = format!("{error:#}{left}");
            // Each failure once, however often it comes again before there is a copy.
            if was_current || why != said {
                tracing::error!(
                    "state.disk = {:?}: {why}: sessions end with this host, until there is a copy again",
                    plan.dir
                );
            }
            said = why;
            plan.goes_on = false;
            if self.rests() {
                break;
            }
        }
        // Once more, where that failed before.
        if self.lock().ends == Some(End::Remove)
            && let Err(error) = remove_known(&plan, folder)
        {
            tracing::error!(
                "state.disk = {:?}: {error:#}: a copy of sessions that are over cannot be removed",
                plan.dir
            );
        }
        self.lock().has_ended = true;
        self.turn.notify_all();
    }

    /// There is no copy any more. Whether there was one.
    fn fails(&self, error: &anyhow::Error) -> bool {
        let mut state = self.lock();
        let was_current = state.report.state == DiskState::Current;
        state.is_followed = false;
        state.is_behind = false;
        state.changes = Changes::default();
        (state.first_at, state.under_way) = (None, None);
        let report = &mut state.report;
        report.state = DiskState::Failed;
        report.error = Some(format!("{error:#}"));
        report.failures += 1;
        report.bytes = 0;
        was_current
    }

    /// Until the copy is to be begun anew. True: the process ends.
    fn rests(&self) -> bool {
        let until = Instant::now() + AGAIN;
        let mut state = self.lock();
        while state.ends.is_none() {
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
    ///
    /// known: the folder that it was, which is not made anew elsewhere
    fn copy(&self, plan: &Plan, known: &mut Option<(u64, u64)>) -> Result<()> {
        let folder = match known {
            None => Folder::create(&plan.dir, &plan.name)?,
            Some(_) => Folder::open(&plan.dir, &plan.name)?,
        };
        let now = folder.identity();
        ensure!(*known.get_or_insert(now) == now, ELSEWHERE);
        let file = open_ours(&plan.file)?.context("the file in state.dir is gone")?;
        let [records, _] = parts(file)?;
        let view = View::open(records)?;
        let number = (wall_ns() / 1_000_000_000) as u32;
        let begins = (plan.goes_on, number);
        let mut copier = Copier::begin(folder, &plan.header, begins, Limits::default())?;
        let mut is_read = false;
        let mut is_current = false;
        loop {
            let Turn { changes, ends } = self.next(copier.is_looking())?;
            if ends == Some(End::Remove) {
                return Ok(());
            }
            copier.commit(&changes, stamp(plan.clock))?;
            self.committed(changes);
            if is_read {
                copier.seal()?;
                if !is_current {
                    tracing::info!("state.disk = {:?}: sessions outlive this host", plan.dir);
                }
                (is_read, is_current) = (false, true);
            } else if copier.is_looking() {
                match copier.look(&view) {
                    Ok(read) => is_read = read,
                    // The log goes on, and so does the copy.
                    Err(error) if is_current => {
                        tracing::warn!(
                            "state.disk = {:?}: no room for a snapshot ({error}): the log grows instead",
                            plan.dir
                        );
                        copier.give_up_snapshot()?;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.report(is_current, copier.octets());
            let is_enough = is_current || ends == Some(End::HandOver) || !copier.is_looking();
            if ends.is_some() && is_enough {
                return Ok(());
            }
        }
    }

    /// Changes to be committed, if there are some by then. An error: too many have come.
    fn next(&self, is_looking: bool) -> Result<Turn> {
        let mut state = self.lock();
        if !is_looking {
            let has_turn = |state: &State| {
                state.ends.is_some() || state.is_behind || !state.changes.is_empty()
            };
            let until = Instant::now() + STILL;
            while !has_turn(&state) {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.turn.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.ends.is_none() {
                drop(state);
                thread::sleep(COMMIT);
                state = self.lock();
            }
        }
        if state.is_behind {
            bail!("it is slower than sessions change");
        }
        state.under_way = state.first_at.take();
        let spare = std::mem::take(&mut state.spare);
        Ok(Turn {
            changes: std::mem::replace(&mut state.changes, spare),
            ends: state.ends,
        })
    }

    /// These changes outlive the host.
    fn committed(&self, mut changes: Changes) {
        let is_large = changes.octets() > SPARE_MAX;
        changes.clear();
        let mut state = self.lock();
        if let Some(since) = state.under_way.take() {
            let longest = &mut state.report.longest_commit_s;
            *longest = longest.max(since.elapsed().as_secs_f64());
        }
        if !is_large {
            state.spare = changes;
        }
    }

    fn report(&self, is_current: bool, octets: u64) {
        let mut state = self.lock();
        let report = &mut state.report;
        report.state = match is_current {
            true => DiskState::Current,
            false => DiskState::Beginning,
        };
        report.error = None;
        report.bytes = octets;
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
    folder.forget();
    Ok(was_there)
}

/// Likewise, in the folder that it was in.
fn remove_known(plan: &Plan, known: Option<(u64, u64)>) -> Result<()> {
    if let Some(known) = known {
        ensure!(identity(&plan.dir)? == known, ELSEWHERE);
    }
    remove(&plan.dir, &plan.name).map(drop)
}
