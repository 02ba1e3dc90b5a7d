//! Tables of this process' workers in files, which outlive it: the next process adds what they have counted to the usage of sessions, and
//! goes on with their meters.
//!
//! Each process makes files of its own, a *generation* in a folder of its own, as it does with maps that are pinned.

#[cfg(feature = "dpdk")]
use std::cell::RefCell;
#[cfg(feature = "dpdk")]
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::kept_file;
use crate::layout::{Layout, Ordinary, Places};
use crate::memory::{Shared, View};
use crate::queue::Queue;
use crate::ring::Ring;
use crate::worker::{Between, Queues, ring_file};

/// End of the name of a generation's folder. The number is that of the words that count, and of meters: a program that knows others
/// cannot read them, nor a table whose elements have another size.
const FOLDER: &str = ".counting-1-";

/// Tables that count, and with them meters that entries share, and their way there. Nobody asks for others.
const KEPT: [&str; 6] = ["entries", "sides", "cpus", "slow", "exts", "meters"];

/// Octets of frames, and of words, for each worker in a process of its own.
const FRAMES: u64 = (1 << 20) + (64 << 10);

/// A folder of tables, which nobody else writes to.
#[derive(Debug)]
pub struct TableFiles {
    #[cfg(feature = "dpdk")]
    front: PathBuf,
    folder: PathBuf,
    generation: u64,
    /// All tables are here, for workers in a process of their own.
    are_all: bool,
    /// Packets meet them, or have.
    are_met: AtomicBool,
}

impl Drop for TableFiles {
    fn drop(&mut self) {
        if !self.are_met.load(Ordering::Relaxed) {
            remove(&self.folder);
        }
    }
}

impl TableFiles {
    /// A folder whose path begins like this, for tables of this process. `after`: the latest generation that is known of; this one comes
    /// after it, and after all that are there.
    pub fn new(front: &Path, after: u64) -> io::Result<Self> {
        let latest = generations(front).into_iter().max().unwrap_or(0);
        let generation = latest.max(after).checked_add(1);
        let generation = generation.ok_or_else(|| io::Error::other("no generation is left"))?;
        let folder = folder(front, generation);
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self {
            #[cfg(feature = "dpdk")]
            front: front.to_owned(),
            folder,
            generation,
            are_all: false,
            are_met: AtomicBool::new(false),
        })
    }

    /// For all tables, and what workers in a process of their own share beside: packets go on, then.
    #[must_use]
    pub fn for_all(mut self) -> Self {
        self.are_all = true;
        self
    }

    /// Whether packets are to go on.
    pub fn are_all(&self) -> bool {
        self.are_all
    }

    /// Beginning of the paths of folders.
    #[cfg(feature = "dpdk")]
    pub(crate) fn front(&self) -> &Path {
        &self.front
    }

    #[cfg(feature = "dpdk")]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Of the tables.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Octets of such tables of this layout, all or those that count, which have their room from the beginning on; those of CPUs come on
    /// top, some kilobytes for each.
    pub fn octets(layout: &Layout, are_all: bool) -> u64 {
        let all = layout.elements().into_iter();
        let kept = all.filter(|(name, ..)| are_all || KEPT.contains(name));
        let octets = kept.map(|(_, elements, octets)| u64::from(elements) * octets as u64);
        let queues = if are_all { Queues::octets(layout) } else { 0 };
        let frames = if are_all {
            FRAMES * u64::from(layout.workers.max(1))
        } else {
            0
        };
        octets.sum::<u64>() + queues + frames
    }

    /// From now on they stay where they are.
    pub(crate) fn are_met(&self) {
        self.are_met.store(true, Ordering::Relaxed);
    }

    /// For tables near to this NUMA node.
    pub(crate) fn places(&self, node: Option<u32>) -> InFiles<'_> {
        InFiles {
            folder: &self.folder,
            are_all: self.are_all,
            ordinary: Ordinary { node },
        }
    }

    /// A table of a generation in a folder whose path begins like this, if it is one of those that are kept.
    pub(crate) fn table<T: Shared>(
        front: &Path,
        generation: u64,
        name: &str,
    ) -> io::Result<View<T>> {
        let folder = folder(front, generation);
        if !is_ours(&folder) {
            return Err(io::Error::other("it is not this user's alone"));
        }
        let file = options().open(folder.join(file_name::<T>(name)))?;
        let octets = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        View::of_map(file.as_fd(), octets / size_of::<T>())
    }

    /// A queue of a generation, likewise, which nobody reads any more. An error: it ended with its process.
    pub(crate) fn ring(front: &Path, generation: u64, name: &str) -> io::Result<Ring> {
        let memory: View<AtomicU64> = Self::table(front, generation, &ring_file(name))?;
        let queue = Queue::of_words(memory, Queue::wake()?)?;
        Ok(Arc::new(queue).into())
    }

    /// Removes all generations but these. A process that has one still does.
    pub fn retain(front: &Path, wanted: &[u64]) {
        for generation in generations(front) {
            if !wanted.contains(&generation) {
                remove(&folder(front, generation));
            }
        }
    }
}

/// Source of tables that are in files, where they are wanted, and in ordinary memory else.
pub(crate) struct InFiles<'f> {
    folder: &'f Path,
    are_all: bool,
    ordinary: Ordinary,
}

impl Places for InFiles<'_> {
    type Error = io::Error;

    fn table<T: Shared>(&self, name: &'static str, len: usize) -> io::Result<View<T>> {
        match self.are_all || KEPT.contains(&name) {
            true => self.make(name, len),
            false => self.ordinary.table(name, len),
        }
    }
}

impl InFiles<'_> {
    fn make<T: Shared>(&self, name: &str, len: usize) -> io::Result<View<T>> {
        let octets = len.saturating_mul(size_of::<T>());
        let path = self.folder.join(file_name::<T>(name));
        let file = options().create_new(true).open(path)?;
        file.set_len(octets as u64)?;
        let view = View::of_map(file.as_fd(), len)?;
        if let Some(node) = self.ordinary.node {
            view.prefer(node);
        }
        // All of it at once: a worker that meets a file system which is full would end the process.
        kept_file::take_room(file.as_raw_fd(), 0..octets)?;
        Ok(view)
    }
}

impl Between for InFiles<'_> {
    fn words(&self, name: &str, len: usize) -> io::Result<View<AtomicU64>> {
        self.make(name, len)
    }

    fn wake(&self) -> io::Result<OwnedFd> {
        Queue::wake()
    }
}

/// Source of tables that another process has made, in its folder.
#[cfg(feature = "dpdk")]
pub(crate) struct Others<'f> {
    folder: &'f Path,
    /// Descriptors that have come from there, in their order.
    wakes: RefCell<VecDeque<OwnedFd>>,
}

#[cfg(feature = "dpdk")]
impl<'f> Others<'f> {
    pub(crate) fn new(folder: &'f Path, wakes: Vec<OwnedFd>) -> Self {
        let wakes = RefCell::new(wakes.into());
        Self { folder, wakes }
    }
}

#[cfg(feature = "dpdk")]
impl Places for Others<'_> {
    type Error = io::Error;

    fn table<T: Shared>(&self, name: &'static str, len: usize) -> io::Result<View<T>> {
        self.find(name, len)
    }
}

#[cfg(feature = "dpdk")]
impl Others<'_> {
    fn find<T: Shared>(&self, name: &str, len: usize) -> io::Result<View<T>> {
        let file = options().open(self.folder.join(file_name::<T>(name)))?;
        if file.metadata()?.len() < (len as u64).saturating_mul(size_of::<T>() as u64) {
            return Err(io::Error::other(format!("the table {name} is too short")));
        }
        let view = View::of_map(file.as_fd(), len)?;
        view.populate();
        Ok(view)
    }
}

#[cfg(feature = "dpdk")]
impl Between for Others<'_> {
    fn words(&self, name: &str, len: usize) -> io::Result<View<AtomicU64>> {
        self.find(name, len)
    }

    fn wake(&self) -> io::Result<OwnedFd> {
        let next = self.wakes.borrow_mut().pop_front();
        next.ok_or_else(|| io::Error::other("a descriptor is missing"))
    }
}

fn file_name<T>(table: &str) -> String {
    format!("{table}-{}", size_of::<T>())
}

/// A folder of this user's alone.
fn is_ours(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|about| {
        let is_alone = about.uid() == nix::unistd::geteuid().as_raw() && about.mode() & 0o077 == 0;
        about.is_dir() && is_alone
    })
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

fn folder(front: &Path, generation: u64) -> PathBuf {
    let mut path = front.as_os_str().to_owned();
    path.push(format!("{FOLDER}{generation:016x}"));
    path.into()
}

/// Generations that are there.
fn generations(front: &Path) -> Vec<u64> {
    let name = front.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{name}{FOLDER}");
    let mut all = Vec::new();
    let dir = front.parent().map(fs::read_dir);
    for entry in dir.into_iter().flatten().flatten().flatten() {
        if !is_ours(&entry.path()) {
            continue;
        }
        let entry = entry.file_name();
        let number = entry.to_str().and_then(|entry| entry.strip_prefix(&name));
        all.extend(number.and_then(|number| u64::from_str_radix(number, 16).ok()));
    }
    all
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(%error, ?folder, "tables cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::AtomicU32;

    use crate::backend::xdp::pins::Left;

    use super::*;

    fn in_folder(test: impl FnOnce(&Path)) {
        let name = format!("table-files-{:?}", std::thread::current().id());
        let dir = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        test(&dir.join("sessions-upf.one"));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_generation_comes_after_all_and_stays_when_packets_have_met_it() {
        in_folder(|front| {
            let first = TableFiles::new(front, 6).unwrap();
            assert_eq!((first.generation(), generations(front)), (7, vec![7]));
            drop(first);
            assert!(generations(front).is_empty());
            for generation in [1, 2, 5] {
                let files = TableFiles::new(front, generation - 1).unwrap();
                assert_eq!(files.generation(), generation);
                files.are_met();
            }
            fs::create_dir(front.with_file_name("sessions-upf.counting-1-9")).unwrap();
            TableFiles::retain(front, &[2, 3]);
            assert_eq!(generations(front), [2]);
        });
    }

    #[test]
    fn words_outlive_their_views() {
        in_folder(|front| {
            let files = TableFiles::new(front, 0).unwrap();
            files.are_met();
            let places = files.places(None);
            let view: View<AtomicU64> = places.table("meters", 9).unwrap();
            let other: View<AtomicU64> = places.table("routes", 9).unwrap();
            view[8].store(5, Ordering::Relaxed);
            other[8].store(5, Ordering::Relaxed);
            drop((view, other, files));
            let view: View<AtomicU64> = TableFiles::table(front, 1, "meters").unwrap();
            assert_eq!((view.len(), view[8].load(Ordering::Relaxed)), (9, 5));
            assert!(TableFiles::table::<AtomicU64>(front, 1, "routes").is_err());
            let other = TableFiles::table::<AtomicU32>(front, 1, "meters");
            assert!(other.is_err(), "elements of another size");
            assert!(Left::in_files(front, 1, false).is_err(), "some are missing");
            fs::set_permissions(folder(front, 1), Permissions::from_mode(0o755)).unwrap();
            assert!(TableFiles::table::<AtomicU64>(front, 1, "meters").is_err());
            assert!(generations(front).is_empty(), "others may write there");
        });
    }
}
