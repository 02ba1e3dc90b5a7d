//! Workers over devices of DPDK in a process of their own, which goes on while no turnpiked is there: the next one finds it, and has it
//! change over to tables of its own.

pub(crate) mod process;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dpdk::FROM_KERNEL;
use super::{GoingOn, Site, Traffic};
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
use crate::worker_link::{Link, listen_at};

/// Time within which they say who they are, or change over to other tables.
const SOON: Duration = Duration::from_secs(5);
/// ... in which DPDK starts: it may have to clear much memory.
const START: Duration = Duration::from_secs(300);
/// Descriptors that go with a request, of queues of records.
const WAKES: usize = 5;

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
struct Hello {
    /// `None`: they run no packets yet.
    fixed: Option<Fixed>,
}

/// Answer to [`Request::Lead`]: the interface of each port; with descriptors that wake workers. And to [`Request::Meet`].
type Answer = Result<Vec<u32>, String>;

/// No traffic of this process.
pub(crate) enum Apart {}

/// The way to the workers.
#[derive(Debug)]
pub(crate) struct Setup {
    start: StartWorkers,
    fixed: Fixed,
    /// `None`: they are started when packets are to meet the tables.
    link: Arc<Mutex<Option<Link>>>,
    are_former: bool,
    /// Memory of frames that workers send.
    frames: OnceLock<Vec<View<AtomicU64>>>,
    /// When workers know the tables: the interface of each port, and queues of frames.
    led: OnceLock<(Vec<u32>, Arc<[Queue]>)>,
    queues: FrameQueues,
}

impl Setup {
    /// Looks for workers that are there. Those that have other settings, or are another program's, end here.
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
        let link = Link::connect(front)?.map(|link| former(link, &fixed));
        let link = link.transpose()?.flatten();
        Ok(Self {
            start,
            fixed,
            are_former: link.is_some(),
            link: Arc::new(Mutex::new(link)),
            frames: OnceLock::new(),
            led: OnceLock::new(),
            queues: FrameQueues::default(),
        })
    }

    /// Workers, started if there are none, send what this process gives them by its tables, once they know these. The interface of each port.
    fn lead(&self, site: &Site<'_>) -> Result<Vec<u32>, SetupError> {
        if let Some((ifindexes, _)) = self.led.get() {
            return Ok(ifindexes.clone());
        }
        let missing = || SetupError::Dpdk("workers apart need files of tables".to_owned());
        let (files, frames) = site.files.zip(self.frames.get()).ok_or_else(missing)?;
        let mut link = self.link();
        let link = match &mut *link {
            Some(link) => link,
            none => none.insert(start(files.front(), &self.start)?),
        };
        let request = Request::Lead(Box::new(Lead {
            folder: files.folder().to_owned(),
            layout: site.layout.clone(),
            threads: site.workers + Apart::helpers(self),
            fixed: self.fixed.clone(),
        }));
        let wakes = site.shared.queues.wakes();
        link.send(&request, &wakes.map(|wake| wake.as_raw_fd()))?;
        let answer = link.recv::<Answer>()?;
        let (answer, wakes) = answer.ok_or_else(gone)?;
        let ifindexes = answer.map_err(SetupError::Dpdk)?;
        let queues = frames.iter().zip(wakes);
        let queues = queues.map(|(memory, wake)| Queue::over(memory.clone(), FROM_KERNEL, wake));
        let queues: Arc<[Queue]> = queues.collect::<io::Result<Vec<_>>>()?.into();
        let taps = match self.fixed.settings.taps {
            true => ifindexes.clone(),
            false => Vec::new(),
        };
        self.queues.are(&queues, taps);
        Ok(self.led.get_or_init(|| (ifindexes, queues)).0.clone())
    }

    /// Packets meet the tables of this process.
    fn meet(&self) -> Result<(), SetupError> {
        let link = self.link();
        let link = link.as_ref().ok_or_else(gone)?;
        link.send(&Request::Meet, &[])?;
        let (answer, _) = link.recv::<Answer>()?.ok_or_else(gone)?;
        answer.map(drop).map_err(SetupError::Dpdk)
    }

    /// Former workers that do not do what they are asked for end, so that the next start has others.
    fn or_end_former<T>(&self, done: Result<T, SetupError>) -> Result<T, SetupError> {
        if done.is_err()
            && self.are_former
            && let Some(link) = self.link().take()
            && let Err(error) = link.end()
        {
            tracing::error!(%error, "workers that do not go on cannot be ended");
        }
        done
    }

    fn link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
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
fn has_ended(link: &Mutex<Option<Link>>) -> bool {
    let link = link.lock().unwrap_or_else(PoisonError::into_inner);
    link.as_ref().is_some_and(Link::is_closed)
}

/// Workers that are there, if they can go on over other tables.
fn former(link: Link, wanted: &Fixed) -> io::Result<Option<Link>> {
    link.wait_at_most(SOON)?;
    let why = match link.recv::<Hello>() {
        Ok(Some((Hello { fixed }, _))) if fixed.as_ref() == Some(wanted) => {
            return Ok(Some(link));
        }
        Ok(Some((Hello { fixed: Some(of) }, _))) if of.program != wanted.program => {
            "are another program's"
        }
        Ok(Some(_)) => "have other settings",
        Ok(None) => return Ok(None),
        Err(_) => "do not say who they are",
    };
    tracing::warn!("workers that are there {why}: packets stop until others have started");
    link.end()?;
    Ok(None)
}

/// The process of workers, started and connected with.
fn start(front: &Path, start: &StartWorkers) -> Result<Link, SetupError> {
    start.0(listen_at(front)?)?;
    let link = Link::connect(front)?.ok_or_else(gone)?;
    link.wait_at_most(SOON)?;
    link.recv::<Hello>()?.ok_or_else(gone)?;
    link.wait_at_most(START)?;
    Ok(link)
}

impl Traffic for Apart {
    type Setup = Setup;

    fn helpers(setup: &Setup) -> usize {
        setup.fixed.settings.receivers()
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
        if setup.link().is_none() {
            return Ok(None);
        }
        setup.or_end_former(setup.lead(site)).map(Some)
    }

    fn open(setup: &Setup, site: &Site<'_>) -> Result<(Vec<Self>, Vec<u32>), SetupError> {
        let led = setup.lead(site);
        let met = led.and_then(|ifindexes| setup.meet().map(|()| ifindexes));
        Ok((Vec::new(), setup.or_end_former(met)?))
    }

    fn handover(setup: &Setup) -> Option<Handover> {
        Some(Handover::Queues(setup.queues.clone()))
    }

    fn egress(setup: &Setup) -> Egress {
        Egress {
            queues: Some(setup.queues.clone()),
        }
    }

    fn check(setup: &Setup) -> io::Result<()> {
        match has_ended(&setup.link) {
            true => Err(gone()),
            false => Ok(()),
        }
    }

    fn barrier(setup: &Setup, all: Vec<Bystander>) -> Barrier {
        let link = Arc::clone(&setup.link);
        Barrier::of_others(all, move || has_ended(&link))
    }

    fn going_on(setup: &Setup) -> GoingOn {
        match setup.are_former {
            true => GoingOn::Already,
            false => GoingOn::Later,
        }
    }

    fn set_going_on(setup: &Setup, without: bool) {
        if let Some(link) = &*setup.link()
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
