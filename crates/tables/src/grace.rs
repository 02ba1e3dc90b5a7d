//! Grace periods: what packets could reach a moment ago is reused only when none can be looking.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::memory::View;

const MEMBARRIER_CMD_QUERY: libc::c_int = 0;
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

fn membarrier(command: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the call takes no pointer.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer as libc::c_int)
    }
}

/// A thread that looks at the tables now and then, as programs do all the time.
#[derive(Clone, Debug, Default)]
pub struct Bystander {
    /// Odd while it looks.
    looks: Looks,
}

/// Place of the word of a thread.
#[derive(Clone, Debug)]
enum Looks {
    Own(Arc<AtomicU64>),
    /// In memory that another process may have, too.
    Shared(View<AtomicU64>, usize),
}

impl Default for Looks {
    fn default() -> Self {
        Self::Own(Arc::default())
    }
}

impl Deref for Looks {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        match self {
            Self::Own(word) => word,
            Self::Shared(words, at) => &words[*at],
        }
    }
}

/// Pauses after which it is looked whether a thread that looks is there at all.
const LONG: u32 = 256;
/// ... after which it hangs: ten seconds at least, in which whoever waits has run.
const TOO_LONG: u32 = 200_000;

/// Words from one thread's to the next one's, so that none waits for another one's line.
pub(crate) const APART: usize = 8;

/// While this lives, nothing that the tables lead to is reused.
#[derive(Debug)]
pub struct Looking<'a>(&'a AtomicU64);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bystander {
    /// Words of so many threads.
    pub(crate) fn words(threads: usize) -> usize {
        threads * APART
    }

    /// The thread of this number, by its word among these.
    pub(crate) fn of(words: &View<AtomicU64>, number: usize) -> Self {
        let looks = Looks::Shared(words.clone(), number * APART);
        Self { looks }
    }

    /// Look at the tables, for microseconds; one thread at a time, not within one another.
    pub fn look(&self) -> Looking<'_> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Looking(&self.looks)
    }

    /// Rises while the thread runs.
    #[cfg(feature = "dpdk")]
    pub(crate) fn pulse(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The thread has ended, perhaps in the midst of a look.
    #[cfg(feature = "dpdk")]
    pub(crate) fn end_look(&self) {
        if !self.pulse().is_multiple_of(2) {
            self.looks.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wait until a look that is under way has ended.
    fn wait(&self) {
        self.wait_unless(|_| false);
    }

    /// The same, unless the thread has ended in the midst of it. `has_ended`: is told whether it hangs.
    fn wait_unless(&self, has_ended: impl Fn(bool) -> bool) {
        // Stores that unpublish are visible before this looks: else a look could begin unseen, and find what they removed.
        fence(Ordering::SeqCst);
        let seen = self.looks.load(Ordering::SeqCst);
        let mut pauses = 0u32;
        while !seen.is_multiple_of(2) && self.looks.load(Ordering::SeqCst) == seen {
            thread::sleep(Duration::from_micros(50));
            pauses = pauses.saturating_add(1);
            if pauses.is_multiple_of(LONG) && has_ended(pauses >= TOO_LONG) {
                return;
            }
        }
    }
}

/// All bystanders.
#[derive(Clone, Debug, Default)]
struct Bystanders(Arc<Mutex<Vec<Bystander>>>);

impl Bystanders {
    fn join(&self) -> Bystander {
        let bystander = Bystander::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(bystander.clone());
        bystander
    }

    fn wait(&self) {
        let all = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        all.iter().for_each(Bystander::wait);
    }
}

/// Waits until no packet is under way any more that was when the wait began. Clones are the same.
#[derive(Clone)]
pub struct Barrier(Option<Arc<Wait>>);

type Wait = dyn Fn() -> io::Result<()> + Send + Sync;

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Barrier, in this thread: {}", self.0.is_none())
    }
}

impl Barrier {
    /// Packets run in the thread that waits: none is ever under way.
    pub fn same_thread() -> Self {
        Self(None)
    }

    /// Packets run in programs of the kernel. A `MEMBARRIER_CMD_GLOBAL` is a synchronize_rcu: afterwards no XDP program
    /// that ran when it began is still running. Some ten milliseconds.
    pub fn kernel() -> io::Result<Self> {
        if membarrier(MEMBARRIER_CMD_QUERY)? & MEMBARRIER_CMD_GLOBAL == 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel offers no global membarrier (is nohz_full set?)",
            ));
        }
        let wait = || membarrier(MEMBARRIER_CMD_GLOBAL).map(drop);
        // Whether the command works at all is known now, so that it need not be doubted later.
        wait()?;
        Ok(Self(Some(Arc::new(wait))))
    }

    /// Packets run in threads of this process, which look at the tables while they do.
    pub(crate) fn threads(all: Vec<Bystander>) -> Self {
        let wait = move || {
            all.iter().for_each(Bystander::wait);
            Ok(())
        };
        Self(Some(Arc::new(wait)))
    }

    /// Packets run in threads of another process, which may end in the midst of it. `has_ended`: whether it has; told that it hangs, it sees
    /// to that.
    #[cfg(feature = "dpdk")]
    pub(crate) fn of_others(
        all: Vec<Bystander>,
        has_ended: impl Fn(bool) -> bool + Send + Sync + 'static,
    ) -> Self {
        let wait = move || {
            all.iter().for_each(|of| of.wait_unless(&has_ended));
            Ok(())
        };
        Self(Some(Arc::new(wait)))
    }

    /// Wait here and now.
    pub fn wait(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |wait| wait())
    }
}

/// Waits for packets under way, some ten milliseconds at a time, so that control need not.
#[derive(Debug)]
struct Helper {
    requests: Sender<u64>,
    completed: Arc<AtomicU64>,
    sent: u64,
}

impl Helper {
    fn start(barrier: Barrier, bystanders: Bystanders) -> io::Result<Self> {
        let (requests, tickets) = channel::<u64>();
        let completed = Arc::new(AtomicU64::new(0));
        let done = Arc::clone(&completed);
        thread::Builder::new().name("grace".into()).spawn(move || {
            for ticket in tickets {
                match barrier.wait() {
                    Ok(()) => {
                        bystanders.wait();
                        done.store(ticket, Ordering::Release);
                    }
                    Err(error) => tracing::error!(%error, "membarrier failed; table space is lost"),
                }
            }
        })?;
        Ok(Self {
            requests,
            completed,
            sent: 0,
        })
    }
}

/// Things waiting for their grace period. At most one batch is under way; what comes meanwhile
/// goes with the next.
#[derive(Debug)]
pub(crate) struct Grace<T> {
    barrier: Barrier,
    helper: Option<Helper>,
    bystanders: Bystanders,
    open: Vec<T>,
    waiting: Vec<T>,
}

impl<T> Grace<T> {
    /// `barrier`: of the packets that meet the tables.
    pub(crate) fn new(barrier: Barrier) -> io::Result<Self> {
        let bystanders = Bystanders::default();
        // Packets that run in this thread are never under way: nothing has to wait.
        let helper = match &barrier.0 {
            Some(_) => Some(Helper::start(barrier.clone(), bystanders.clone())?),
            None => None,
        };
        Ok(Self {
            barrier,
            helper,
            bystanders,
            open: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Register one more thread that runs packets.
    pub(crate) fn bystander(&self) -> Bystander {
        self.bystanders.join()
    }

    /// Barrier for packets under way, without those of bystanders.
    pub(crate) fn barrier(&self) -> Barrier {
        self.barrier.clone()
    }

    pub(crate) fn retire(&mut self, item: T) {
        self.open.push(item);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.waiting.len()
    }

    /// Move what has had its grace period to `done` and start the next one; never waits.
    pub(crate) fn poll(&mut self, done: &mut Vec<T>) {
        let Some(helper) = &mut self.helper else {
            done.append(&mut self.open);
            return;
        };
        if !self.waiting.is_empty() && helper.completed.load(Ordering::Acquire) >= helper.sent {
            done.append(&mut self.waiting);
        }
        if self.waiting.is_empty() && !self.open.is_empty() {
            helper.sent += 1;
            if helper.requests.send(helper.sent).is_ok() {
                std::mem::swap(&mut self.waiting, &mut self.open);
            }
        }
    }

    /// Wait here and now until no packet that has begun is still under way.
    pub(crate) fn pass(&self) {
        if let Err(error) = self.barrier.wait() {
            tracing::error!(%error, "membarrier failed");
        }
        self.bystanders.wait();
    }

    /// Wait here and now, and move everything to `done`.
    pub(crate) fn wait(&mut self, done: &mut Vec<T>) {
        if self.is_empty() {
            return;
        }
        self.pass();
        done.append(&mut self.waiting);
        done.append(&mut self.open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bystander_is_waited_for() {
        let mut grace = Grace::new(Barrier::kernel().unwrap()).unwrap();
        let bystander = grace.bystander();
        let looking = bystander.look();
        let mut done = Vec::new();
        grace.retire(1);
        for _ in 0..100 {
            grace.poll(&mut done);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(done.is_empty(), "it still looks");
        drop(looking);
        grace.wait(&mut done);
        assert_eq!(done, [1]);
        drop(bystander.look());
        assert_eq!(bystander.looks.load(Ordering::Relaxed) % 2, 0);
    }

    #[test]
    fn nothing_returns_before_its_barrier() {
        let mut grace = Grace::new(Barrier::kernel().unwrap()).unwrap();
        let mut done = Vec::new();
        grace.retire(1);
        grace.poll(&mut done);
        assert!(done.is_empty(), "the request has only just been sent");
        grace.retire(2);
        let start = std::time::Instant::now();
        while done != [1, 2] {
            grace.poll(&mut done);
            assert!(start.elapsed().as_secs() < 10, "{done:?}");
            thread::sleep(Duration::from_millis(1));
        }
        grace.retire(3);
        grace.wait(&mut done);
        assert_eq!(done, [1, 2, 3]);
    }
}
