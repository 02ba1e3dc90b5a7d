//! Workers over devices of DPDK in a process of their own, which goes on while no turnpiked is there: the next one finds it, and has it
//! change over to tables of its own.

pub(crate) mod process;

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dpdk::{FROM_KERNEL, Tap};
use super::{GoingOn, Site, Traffic};
use crate::backend::ifindex_of;
use crate::dpdk::{FrameQueues, Settings};
use crate::error::SetupError;
use crate::frame_socket::Egress;
use crate::grace::{Barrier, Bystander};
use crate::handover::Handover;
use crate::layout::{Layout, Memory};
use crate::memory::View;
use crate::port::PortConfig;
use crate::queue::Queue;
use crate::shaping::Shaping;
use crate::table_files::TableFiles;
use crate::worker::{Between, Burst, Shared, Worker};
use crate::worker_link::{Link, Process, listen_at};

/// Time within which they say who they are, or change over to other tables.
const SOON: Duration = Duration::from_secs(5);
/// ... within which they say what they have at hand: N4 waits.
const AT_ONCE: Duration = Duration::from_millis(200);
/// ... in which DPDK starts: it may have to clear much memory.
const START: Duration = Duration::from_secs(300);
/// Descriptors that go with a request, of queues of records.
const WAKES: usize = 5;
/// Time in which a thread does nothing at all after which it hangs: one without packets wakes ten times a second.
const HANGS: Duration = Duration::from_secs(10);
/// Time without a look at them, at most.
const PAUSE: Duration = Duration::from_secs(2);

/// Starts the process of workers, which calls [`crate::run_workers`] with a socket.
pub struct StartWorkers(Box<dyn Fn(OwnedFd) -> io::Result<()> + Send>);

impl StartWorkers {
    /// `start`: is given the socket.
    pub fn new(start: impl Fn(OwnedFd) -> io::Result<()> + Send + 'static) -> Self {
        Self(Box::new(start))
    }
}

impl std::fmt::Debug for StartWorkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StartWorkers")
    }
}

/// A program, as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Program {
    device: u64,
    inode: u64,
    octets: u64,
    changed_ns: (i64, i64),
}

impl Program {
    fn own() -> io::Result<Self> {
        let about = fs::metadata("/proc/self/exe")?;
        Ok(Self {
            device: about.dev(),
            inode: about.ino(),
            octets: about.size(),
            changed_ns: (about.mtime(), about.mtime_nsec()),
        })
    }
}

/// All that workers cannot change while they run packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fixed {
    /// Tables are as it has them.
    program: Program,
    /// Number of the network namespace, whose interfaces they have.
    network: u64,
    settings: Settings,
    ports: Vec<PortConfig>,
    workers: u32,
    shaping: Option<Shaping>,
}

/// A request.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// There are tables: workers send what comes by its queues. Those that run no packets yet start, and run them over these tables.
    Lead(Box<Lead>),
    /// Packets meet those tables, and no others any more.
    Meet,
    /// Descriptors of TAP interfaces, of which one may have been made anew.
    Taps,
    /// Whether they go on when nobody is there any more.
    GoOn(bool),
    /// As [`crate::worker_link::Plain::End`].
    End,
}

#[derive(Debug, Serialize, Deserialize)]
struct Lead {
    folder: PathBuf,
    layout: Layout,
    /// Workers and helpers.
    threads: usize,
    fixed: Fixed,
}

/// The first word of workers to whoever connects.
#[derive(Debug, Serialize, Deserialize)]
struct Hello<F> {
    /// A [`Fixed`]. `None`: they run no packets yet. Else descriptors of TAP interfaces come with it.
    fixed: Option<F>,
    /// 0: of a version that does not say.
    #[serde(default)]
    pid: libc::pid_t,
}

/// Workers that are there.
#[derive(Debug)]
struct Reached {
    link: Link,
    /// `None`: it cannot be had, or is this one, as in tests.
    process: Option<Process>,
}

impl Reached {
    /// Devices are free for others when this returns.
    fn end(self) -> io::Result<()> {
        self.link.end(self.process)
    }
}

/// Workers that a turnpiked before this one has left.
#[derive(Debug)]
enum Former {
    /// They can go on over other tables.
    Alike(Reached),
    /// They run packets over their own until they end, which is when others start.
    Unlike(Reached),
}

/// How far threads have come, as it was seen last.
#[derive(Debug)]
struct Progress {
    at: Instant,
    seen: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    pulse: u64,
    since: Instant,
}

impl Progress {
    /// The number of a thread that hangs at this time.
    fn stuck(&mut self, threads: &[Bystander], now: Instant) -> Option<usize> {
        let pause = now.duration_since(mem::replace(&mut self.at, now));
        let fresh = |thread: &Bystander| Seen {
            pulse: thread.pulse(),
            since: now,
        };
        // A process that does not look for long may have been stopped, and they with it.
        if self.seen.len() != threads.len() || pause > PAUSE {
            self.seen = threads.iter().map(fresh).collect();
            return None;
        }
        for (seen, thread) in self.seen.iter_mut().zip(threads) {
            if thread.pulse() != seen.pulse {
                *seen = fresh(thread);
            }
        }
        let hangs = |of: &Seen| now.duration_since(of.since) >= HANGS;
        self.seen.iter().position(hangs)
    }
}

/// Answer to [`Request::Lead`], with descriptors that wake workers, and of TAP interfaces; to [`Request::Taps`], with these; and to
/// [`Request::Meet`].
type Answer = Result<(), String>;

/// No traffic of this process.
pub(crate) enum Apart {}

/// The way to the workers.
#[derive(Debug)]
pub(crate) struct Setup {
    start: StartWorkers,
    fixed: Fixed,
    /// `None`: they are started when packets are to meet the tables.
    reached: Arc<Mutex<Option<Reached>>>,
    /// Packets meet them until then.
    unlike: Mutex<Option<Reached>>,
    /// Packets met workers of before when this began.
    are_former: bool,
    /// Memory of frames that workers send.
    frames: OnceLock<Vec<View<AtomicU64>>>,
    /// Of frames for workers that know the tables.
    led: Mutex<Option<Arc<[Queue]>>>,
    /// Descriptors of TAP interfaces, which stay as they are while there are no workers.
    taps: Mutex<Vec<OwnedFd>>,
    queues: FrameQueues,
    /// `None`: packets do not meet the tables yet.
    progress: Mutex<Option<Progress>>,
    go_on: AtomicBool,
}

impl Setup {
    /// Looks for workers that are there.
    pub(crate) fn find(
        layout: &Layout,
        ports: &[PortConfig],
        settings: &Settings,
        (front, start): (&Path, StartWorkers),
    ) -> io::Result<Self> {
        let fixed = Fixed {
            program: Program::own()?,
            network: fs::metadata("/proc/thread-self/ns/net")?.ino(),
            settings: settings.clone(),
            ports: ports.to_vec(),
            workers: layout.workers,
            shaping: layout.shaping,
        };
        let former = Link::connect(front)?.map(|link| former(link, &fixed));
        let (former, taps) = former.transpose()?.unwrap_or_default();
        let (reached, unlike) = match former {
            Some(Former::Alike(reached)) => (Some(reached), None),
            Some(Former::Unlike(reached)) => (None, Some(reached)),
            None => (None, None),
        };
        Ok(Self {
            start,
            fixed,
            are_former: reached.is_some() || unlike.is_some(),
            reached: Arc::new(Mutex::new(reached)),
            unlike: Mutex::new(unlike),
            frames: OnceLock::new(),
            led: Mutex::default(),
            taps: Mutex::new(taps),
            queues: FrameQueues::default(),
            progress: Mutex::default(),
            go_on: AtomicBool::new(false),
        })
    }

    /// Workers, started if there are none, send what this process gives them by its tables, once they know these. The interface of each port.
    fn lead(&self, site: &Site<'_>) -> Result<Vec<u32>, SetupError> {
        let mut led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        if led.is_some() {
            return Ok(self.ifindexes());
        }
        let missing = || SetupError::Dpdk("workers apart need files of tables".to_owned());
        let (files, frames) = site.files.zip(self.frames.get()).ok_or_else(missing)?;
        let mut reached = self.reached();
        let Reached { link, .. } = match &mut *reached {
            Some(reached) => reached,
            none => {
                let started = start(files.front(), &self.start)?;
                // This process may end before it is heard once more.
                let go_on = Request::GoOn(self.go_on.load(Ordering::Relaxed));
                started.link.send(&go_on, &[])?;
                none.insert(started)
            }
        };
        let request = Request::Lead(Box::new(Lead {
            folder: files.folder().to_owned(),
            layout: site.layout.clone(),
            threads: site.workers + Apart::helpers(self),
            fixed: self.fixed.clone(),
        }));
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        let with = site.shared.queues.wakes().into_iter();
        let with = with.chain(taps.iter().map(AsFd::as_fd));
        let with: Vec<_> = with.map(|fd| fd.as_raw_fd()).collect();
        link.send(&request, &with)?;
        let answer = link.recv::<Answer>()?;
        let (answer, mut wakes) = answer.ok_or_else(gone)?;
        link.wait_at_most(SOON)?;
        answer.map_err(SetupError::Dpdk)?;
        *taps = wakes.split_off(wakes.len().min(frames.len()));
        let queues = frames.iter().zip(wakes);
        let queues = queues.map(|(memory, wake)| Queue::over(memory.clone(), FROM_KERNEL, wake));
        let queues: Arc<[Queue]> = queues.collect::<io::Result<Vec<_>>>()?.into();
        let ifindexes = self.ifindexes();
        let taps = match self.fixed.settings.taps {
            true => ifindexes.clone(),
            false => Vec::new(),
        };
        self.queues.are(&queues, taps);
        *led = Some(queues);
        Ok(ifindexes)
    }

    /// The interface of each port, as it is now; 0: none.
    fn ifindexes(&self) -> Vec<u32> {
        let Fixed {
            settings, ports, ..
        } = &self.fixed;
        let of = |port: &PortConfig| match settings.taps {
            true => ifindex_of(&port.name).unwrap_or(0),
            false => 0,
        };
        ports.iter().map(of).collect()
    }

    /// Whether workers have a TAP interface of this name. It stays from now on as those do that they had before.
    fn have(&self, name: &str) -> io::Result<bool> {
        let reached = self.reached();
        let Reached { link, .. } = reached.as_ref().ok_or_else(gone)?;
        link.forget_late()?;
        link.send(&Request::Taps, &[])?;
        link.wait_at_most(AT_ONCE)?;
        let answer = link.recv::<Answer>();
        link.wait_at_most(SOON)?;
        let (_, now) = answer?.ok_or_else(gone)?;
        let mut taps = self.taps.lock().unwrap_or_else(PoisonError::into_inner);
        *taps = now;
        Ok(Tap::is_one_of(&taps, name))
    }

    /// Others go on as those did.
    fn end_unlike(&self) -> io::Result<()> {
        let mut unlike = self.unlike.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(reached) = unlike.take() else {
            return Ok(());
        };
        self.go_on.store(true, Ordering::Relaxed);
        reached.end()
    }

    /// Packets meet the tables of this process.
    fn meet(&self) -> Result<(), SetupError> {
        let reached = self.reached();
        let Reached { link, .. } = reached.as_ref().ok_or_else(gone)?;
        link.send(&Request::Meet, &[])?;
        let (answer, _) = link.recv::<Answer>()?.ok_or_else(gone)?;
        answer.map_err(SetupError::Dpdk)?;
        *self.progress() = Some(Progress {
            at: Instant::now(),
            seen: Vec::new(),
        });
        Ok(())
    }

    /// Former workers that do not do what they are asked for end, so that the next start has others.
    fn or_end_former<T>(&self, done: Result<T, SetupError>) -> Result<T, SetupError> {
        if done.is_err()
            && self.are_former
            && let Some(reached) = self.reached().take()
            && let Err(error) = reached.end()
        {
            tracing::error!(%error, "workers that do not go on cannot be ended");
        }
        done
    }

    /// Workers that were there have ended when this returns.
    fn end(&self) -> io::Result<()> {
        let Some(Reached { link, process }) = self.reached().take() else {
            return Err(gone());
        };
        match process {
            Some(process) => process.end()?,
            // Else nobody would know whether they still write.
            None if !link.is_closed() => return Err(io::Error::other("they cannot be ended")),
            None => {}
        }
        *self.progress() = None;
        let mut led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        let queues = led.take();
        queues
            .iter()
            .flat_map(|all| all.iter())
            .for_each(Queue::mend);
        Ok(())
    }

    fn reached(&self) -> MutexGuard<'_, Option<Reached>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone() -> io::Error {
    io::Error::other("the process of workers has ended")
}

/// Name of the memory of frames that the worker of this number sends.
fn frames(worker: usize) -> String {
    format!("frames-{worker}")
}

/// Whether workers were there and are not any more.
fn have_ended(reached: &Mutex<Option<Reached>>) -> bool {
    let reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
    reached.as_ref().is_some_and(|of| of.link.is_closed())
}

/// They would be waited for without end.
fn end_those_that_hang(reached: &Mutex<Option<Reached>>) {
    let reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
    let process = reached.as_ref().and_then(|of| of.process.as_ref());
    if let Some(Err(error)) = process.map(Process::end) {
        tracing::error!(%error, "workers that hang cannot be ended");
    }
}

/// Workers that are there and run packets, and descriptors of TAP interfaces that they have, or had.
fn former(link: Link, wanted: &Fixed) -> io::Result<(Option<Former>, Vec<OwnedFd>)> {
    link.wait_at_most(SOON)?;
    // What another version has fixed may have other parts.
    let (hello, taps) = match link.recv::<Hello<Value>>() {
        Ok(Some(said)) => said,
        Ok(None) => return Ok((None, Vec::new())),
        Err(_) => {
            tracing::warn!("workers that are there do not say who they are, and are ended");
            return link.end(None).map(|()| (None, Vec::new()));
        }
    };
    let process = Process::of_workers(hello.pid);
    let reached = Reached { link, process };
    let Some(fixed) = hello.fixed else {
        return reached.end().map(|()| (None, taps));
    };
    let own = serde_json::to_value(wanted)?;
    let is_here = fixed["network"] == own["network"];
    let is_there = |port: &PortConfig| ifindex_of(&port.name).is_ok();
    if !is_here || wanted.settings.taps && !wanted.ports.iter().all(is_there) {
        let why = match is_here {
            true => "have not all interfaces",
            false => "are in another network namespace",
        };
        tracing::warn!("workers that are there {why}: packets stop until others have started");
        reached.end()?;
        return Ok((None, if is_here { taps } else { Vec::new() }));
    }
    if fixed == own {
        return Ok((Some(Former::Alike(reached)), taps));
    }
    let why = match fixed["program"] == own["program"] {
        true => "have other settings",
        false => "are another program's",
    };
    tracing::warn!(
        "workers that are there {why}: packets stop for the time in which DPDK starts, when sessions are taken over"
    );
    Ok((Some(Former::Unlike(reached)), taps))
}

/// The process of workers, started and connected with.
fn start(front: &Path, start: &StartWorkers) -> Result<Reached, SetupError> {
    start.0(listen_at(front)?)?;
    let link = Link::connect(front)?.ok_or_else(gone)?;
    link.wait_at_most(SOON)?;
    let (hello, _) = link.recv::<Hello<IgnoredAny>>()?.ok_or_else(gone)?;
    link.wait_at_most(START)?;
    let process = Process::of_workers(hello.pid);
    Ok(Reached { link, process })
}

impl Traffic for Apart {
    type Setup = Setup;

    fn helpers(setup: &Setup) -> usize {
        setup.fixed.settings.receivers()
    }

    fn take_up(setup: &Setup, (port, name): (usize, &str), ifindex: u32) -> bool {
        let can_be = ifindex == 0 || setup.have(name).unwrap_or_else(|error| {
            tracing::error!(%error, name, "workers do not say whether they have a TAP interface");
            false
        });
        can_be && setup.queues.set_tap(port, ifindex)
    }

    fn needs_files() -> bool {
        true
    }

    fn share(
        setup: &Setup,
        layout: &Layout,
        memory: Memory,
        threads: usize,
        files: Option<&TableFiles>,
    ) -> io::Result<Shared> {
        let files = files.ok_or(io::ErrorKind::NotFound)?.places(layout.node);
        let shared = Shared::new(layout, memory, threads, &files)?;
        let workers = 0..layout.workers.max(1) as usize;
        let frames = workers.map(|n| files.words(&frames(n), Queue::words(FROM_KERNEL)));
        let frames = frames.collect::<io::Result<_>>()?;
        // Tables are made once.
        let _ = setup.frames.set(frames);
        Ok(shared)
    }

    fn lead(setup: &Setup, site: &Site<'_>) -> Result<Option<Vec<u32>>, SetupError> {
        if setup.reached().is_none() {
            return Ok(None);
        }
        setup.or_end_former(setup.lead(site)).map(Some)
    }

    fn open(setup: &Setup, site: &Site<'_>) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        let ended = setup.end_unlike().map_err(SetupError::from);
        let led = ended.and_then(|()| setup.lead(site));
        let met = led.and_then(|ifindexes| setup.meet().map(|()| ifindexes));
        let ifindexes = setup.or_end_former(met)?;
        Ok((Vec::new(), ifindexes))
    }

    fn handover(setup: &Setup) -> Option<Handover> {
        Some(Handover::Queues(setup.queues.clone()))
    }

    fn egress(setup: &Setup) -> Egress {
        Egress {
            queues: Some(setup.queues.clone()),
        }
    }

    fn check(setup: &Setup, threads: &[Bystander]) -> io::Result<()> {
        if have_ended(&setup.reached) {
            return Err(gone());
        }
        let mut progress = setup.progress();
        let stuck = progress
            .as_mut()
            .and_then(|of| of.stuck(threads, Instant::now()));
        let hangs = |number| format!("thread {number} of the process of workers hangs");
        stuck.map_or(Ok(()), |number| Err(io::Error::other(hangs(number))))
    }

    fn replace_workers(
        setup: &Setup,
        site: &Site<'_>,
        mend: impl FnOnce(),
    ) -> Result<Vec<u32>, SetupError> {
        setup.queues.pause();
        let started = setup.end().map_err(SetupError::from).and_then(|()| {
            mend();
            let ifindexes = setup.lead(site)?;
            setup.meet()?;
            Ok(ifindexes)
        });
        started.inspect_err(|_| setup.queues.are_gone())
    }

    fn barrier(setup: &Setup, all: Vec<Bystander>) -> Barrier {
        let reached = Arc::clone(&setup.reached);
        Barrier::of_others(all, move |hangs| {
            if hangs {
                end_those_that_hang(&reached);
            }
            have_ended(&reached)
        })
    }

    fn are_met(setup: &Setup) -> bool {
        let led = setup.led.lock().unwrap_or_else(PoisonError::into_inner);
        led.is_some()
    }

    fn going_on(setup: &Setup) -> GoingOn {
        match setup.are_former {
            true => GoingOn::Already,
            false => GoingOn::Later,
        }
    }

    fn set_going_on(setup: &Setup, without: bool) {
        setup.go_on.store(without, Ordering::Relaxed);
        if let Some(Reached { link, .. }) = &*setup.reached()
            && let Err(error) = link.send(&Request::GoOn(without), &[])
        {
            tracing::error!(%error, "workers do not hear whether they are to go on");
        }
    }

    fn serve(&mut self, _: &mut Worker, _: &mut Burst) -> io::Result<usize> {
        match *self {}
    }

    fn sleep(&mut self, _: &Worker) -> io::Result<()> {
        match *self {}
    }
}

impl std::fmt::Debug for Apart {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use serde_json::json;

    use super::*;

    /// Workers of before, by the first word that these say.
    fn found(fixed: Value) -> Option<Former> {
        let name = format!("first-word-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let front = folder.join("node");
        let listener = listen_at(&front).unwrap();
        let workers = thread::spawn(move || {
            let link = Link::accept(listener.as_fd()).unwrap();
            let pid = 0;
            let hello = Hello {
                fixed: Some(fixed),
                pid,
            };
            link.send(&hello, &[]).unwrap();
            link.recv::<Value>().unwrap()
        });
        let link = Link::connect(&front).unwrap().unwrap();
        let (found, _) = former(link, &wanted()).unwrap();
        if found.is_none() {
            let asked = workers.join().unwrap();
            assert!(asked.is_some_and(|(what, _)| what == json!("End")));
        }
        fs::remove_dir_all(folder).unwrap();
        found
    }

    fn wanted() -> Fixed {
        Fixed {
            program: Program::own().unwrap(),
            network: 7,
            settings: Settings {
                taps: false,
                ..Settings::default()
            },
            ports: Vec::new(),
            workers: 1,
            shaping: None,
        }
    }

    #[test]
    fn workers_of_another_version_go_on_until_others_start() {
        let own = serde_json::to_value(wanted()).unwrap();
        assert!(matches!(found(own.clone()), Some(Former::Alike(_))));
        let with = |key: &str, value| {
            let mut changed = own.clone();
            changed[key] = value;
            found(changed)
        };
        assert!(matches!(with("wheels", json!(3)), Some(Former::Unlike(_))));
        let less = json!({ "network": 7, "program": null });
        assert!(matches!(found(less), Some(Former::Unlike(_))));
        assert!(with("network", json!(8)).is_none());
    }

    #[test]
    fn a_thread_hangs_that_does_nothing_at_many_looks_for_long() {
        let threads = [Bystander::default(), Bystander::default()];
        let began = Instant::now();
        let mut progress = Progress {
            at: began,
            seen: Vec::new(),
        };
        let mut stuck = |after_s| progress.stuck(&threads, began + Duration::from_secs(after_s));
        for after_s in 0..9 {
            assert_eq!(stuck(after_s), None);
        }
        assert_eq!(stuck(60), None, "nobody has looked meanwhile");
        for after_s in 61..70 {
            assert_eq!(stuck(after_s), None);
            drop(threads[0].look());
        }
        assert_eq!(stuck(70), Some(1));
        drop(threads[1].look());
        assert_eq!(stuck(71), None);
    }
}
