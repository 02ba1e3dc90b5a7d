//! Links and maps that outlive this process, pinned in a bpffs.
//!
//! Links keep programs on their interfaces, and programs keep maps. Each process makes maps of its own, a *generation*, fills
//! them while those of the one before are what packets meet, and then has the links run its programs. What user space needs of a
//! generation whose process is gone is pinned beside: what has counted, and the programs of lanes, which the kernel takes out of a map
//! that no process and no pin has.

use std::ffi::CString;
use std::fmt::Write;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use compiled::Counters;
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::statfs::statfs;

use super::link::{self, ifindex_under};
use super::maps::{LANE_WORK, LATER, Maps, SERVED, map_named};
use super::object::setup;
use crate::abi::host::tp_n4_record;
use crate::abi::{Config, Line, PORTS_MAX, Side};
use crate::drop_reason::DropReason;
use crate::error::SetupError;
use crate::left_ring::{LeftPackets, LeftRing, Numbers};
use crate::memory::{Shared, View};
use crate::port::{Mode, PortConfig};
use crate::ring::Ring;
use crate::served_log::{LeftRequests, ServedLog};
use crate::stats::{Counting, PortTotals};
use crate::store::entries::counted;
use crate::store::left_meters::LeftMeters;
use crate::table_files::TableFiles;

/// `BPF_FS_MAGIC`
const BPF_FS: libc::__fsword_t = 0xcafe_4a11_u32 as libc::__fsword_t;

/// Front of the name of a generation's folder. The number is that of the words that count, of meters, and of records in rings: a
/// program that knows others cannot read them.
const MAPS: &str = "maps-1-";
const _: () = {
    assert!(size_of::<tp_n4_record>() == 400);
    assert!(offset_of!(tp_n4_record, from) == 96 && offset_of!(tp_n4_record, request) == 120);
};

/// Maps of a generation that are needed without its process.
const COUNTING: [&str; 4] = ["entries", "sides", "cpus", "slow"];
/// Likewise, with the number of frames above their rate. Not all processes have pinned it, nor rings.
const CONFIG: &str = "config";
/// Likewise meters that entries share, and their way there.
const METERS: [&str; 2] = ["exts", "meters"];
/// Likewise rings, with what programs hand over while nobody reads them.
const RINGS: [&str; 4] = ["events", "copies", "held", LATER];

/// A folder of pins, which nobody else has while this lives.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    /// Of this process.
    generation: u64,
    /// Packets meet them, or have.
    is_met: AtomicBool,
    /// Nobody else has the folder while this is locked.
    _lock: File,
}

impl Drop for Pins {
    fn drop(&mut self) {
        if !self.is_met.load(Ordering::Relaxed) {
            remove(&self.maps(self.generation));
        }
    }
}

/// Counts of a generation of before, and what it has left.
#[derive(Debug)]
pub struct Left {
    entries: View<Line>,
    sides: View<Side>,
    counting: Counting,
    rings: [Option<Ring>; RINGS.len()],
    config: Option<View<Config>>,
    shared_meters: Option<(View<Line>, View<Line>)>,
    /// Packets may meet them still.
    are_met: bool,
}

impl Left {
    /// Of workers of this generation, in a folder of [`TableFiles`] whose path begins like this. `are_met`: packets still meet them, as these
    /// workers have not ended with their process; else packets that were not finished have.
    pub fn in_files(front: &Path, generation: u64, are_met: bool) -> Result<Self, SetupError> {
        fn table<T: Shared>(front: &Path, generation: u64, name: &str) -> io::Result<View<T>> {
            TableFiles::table(front, generation, name)
        }
        let [entries, sides, cpus, slow] = COUNTING;
        let [exts, meters] = METERS.map(|name| table(front, generation, name));
        Ok(Self {
            entries: table(front, generation, entries)?,
            sides: table(front, generation, sides)?,
            counting: Counting::new(
                table(front, generation, cpus)?,
                table(front, generation, slow)?,
            ),
            rings: RINGS.map(|name| TableFiles::ring(front, generation, name).ok()),
            config: None,
            shared_meters: Some((exts?, meters?)),
            are_met,
        })
    }

    /// Its meters, where sessions that are taken in go on.
    pub fn meters(&self) -> LeftMeters {
        LeftMeters::new(
            self.entries.clone(),
            self.shared_meters.clone(),
            self.are_met,
        )
    }

    /// Counts of an entry; `None`: there is no such one.
    pub fn counted(&self, entry: u32) -> Option<Counters> {
        let entry = entry as usize;
        Some(counted(self.entries.get(entry)?, self.sides.get(entry)?))
    }

    /// Counters of the port of this number.
    pub fn port(&self, port: usize) -> PortTotals {
        self.counting.port(port)
    }

    /// Records that its programs, which no packet meets any more, have handed over and nobody has taken. Nobody else takes them.
    pub fn take_packets(&mut self, numbers: &Numbers) -> LeftPackets {
        let ring = |ring: Option<Ring>| {
            let entries = self.entries.clone();
            ring.map(|ring| LeftRing::new(ring, numbers.clone(), entries))
        };
        let [events, copies, held, later] = std::mem::take(&mut self.rings).map(ring);
        let config = self.config.as_ref().and_then(|config| config.first());
        LeftPackets {
            shaped: config.map_or(0, |config| config.shaped.load(Ordering::Acquire)),
            events,
            copies,
            held,
            later,
        }
    }

    /// Packets of users that dropped because nobody had been in charge for too long.
    pub fn unmanaged(&self) -> u64 {
        let ports = (0..PORTS_MAX).map(|port| self.port(port));
        let of_port = |port: PortTotals| {
            let of_direction = port.drops.map(|drops| drops[DropReason::Unmanaged.place()]);
            of_direction.into_iter().sum::<u64>()
        };
        ports.map(of_port).sum()
    }
}

impl Pins {
    /// The folder of whoever has this name, below one in a bpffs; made unless it is there. `after`: the latest generation that is
    /// known of; that of this process comes after it, and after all that are there.
    pub fn open(below: &Path, name: &str, after: u64) -> Result<Self, SetupError> {
        let folder = &below.join(escaped(name));
        let failed = |error: io::Error| SetupError::Pins {
            folder: folder.to_owned(),
            error,
        };
        let is_there = folder.ancestors().find(|folder| folder.is_dir());
        if !is_there.is_some_and(is_bpffs) {
            let no_bpffs = "it is on no bpffs: mount -t bpf";
            return Err(failed(io::Error::other(no_bpffs)));
        }
        make(folder, true).map_err(failed)?;
        let about = fs::symlink_metadata(folder).map_err(failed)?;
        let is_ours = about.is_dir() && about.uid() == nix::unistd::geteuid().as_raw();
        if !is_ours || about.mode() & 0o077 != 0 {
            return Err(failed(io::Error::other("it is not this user's alone")));
        }
        let lock = File::open(folder).map_err(failed)?;
        if lock.try_lock().is_err() {
            let other = "it is another turnpiked's, which runs";
            return Err(failed(io::Error::other(other)));
        }
        let mut pins = Self {
            folder: folder.to_owned(),
            generation: 0,
            is_met: AtomicBool::new(false),
            _lock: lock,
        };
        let latest = pins.generations().map_err(failed)?.into_iter().max();
        pins.generation = latest.unwrap_or(0).max(after) + 1;
        Ok(pins)
    }

    /// Generation of this process.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn generations(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(MAPS));
            all.extend(number.and_then(|number| u64::from_str_radix(number, 16).ok()));
        }
        Ok(all)
    }

    fn maps(&self, generation: u64) -> PathBuf {
        maps_of(&self.folder, generation)
    }

    /// Removes maps of all generations but these and that of this process. Packets that meet programs over them still do.
    pub fn retain_maps(&self, generations: &[u64]) {
        for generation in self.generations().unwrap_or_default() {
            if generation != self.generation && !generations.contains(&generation) {
                remove(&self.maps(generation));
            }
        }
    }

    /// Packets meet the maps of this process from now on, or have been counted there.
    pub fn are_met(&self) {
        self.is_met.store(true, Ordering::Relaxed);
    }

    /// Removes everything: what nobody else has ends.
    pub fn remove(&self) {
        remove(&self.folder);
    }

    /// Removes everything of whoever has this name and does not run, below a folder in a bpffs. Whether there was something.
    pub fn remove_of(below: &Path, name: &str) -> io::Result<bool> {
        let folder = below.join(escaped(name));
        if !is_bpffs(&folder) {
            return Ok(false);
        }
        Self::detach_of(below, name);
        fs::remove_dir_all(folder).map(|()| true)
    }

    /// Counts of a generation of whoever has this name, below a folder in a bpffs.
    pub fn left(below: &Path, name: &str, generation: u64) -> Result<Left, SetupError> {
        let folder = maps_of(&below.join(escaped(name)), generation);
        let [entries, sides, cpus, slow] = COUNTING;
        let ring = |name| MapHandle::from_pinned_path(folder.join(name)).ok();
        let [exts, meters] = METERS.map(|name| table(&folder, name).ok());
        Ok(Left {
            rings: RINGS.map(|name| ring(name).map(Ring::from)),
            config: table(&folder, CONFIG).ok(),
            shared_meters: exts.zip(meters),
            are_met: true,
            entries: table(&folder, entries)?,
            sides: table(&folder, sides)?,
            // Processes have not always pinned what they counted themselves.
            counting: Counting::new(
                table(&folder, cpus)?,
                table(&folder, slow).or_else(|_| View::anonymous(1))?,
            ),
        })
    }

    /// Requests that the program for N4 of a generation has served, below a folder in a bpffs; none: it had no such program.
    pub fn left_requests(
        below: &Path,
        name: &str,
        generation: u64,
    ) -> Result<Option<LeftRequests>, SetupError> {
        let folder = maps_of(&below.join(escaped(name)), generation);
        // Without this, it is not known what there was.
        fs::metadata(&folder)?;
        let path = folder.join(SERVED);
        if !path.exists() {
            return Ok(None);
        }
        let map = MapHandle::from_pinned_path(path).map_err(setup(SERVED))?;
        let log = ServedLog::of_map(map.as_fd(), map.max_entries() as usize)?;
        Ok(Some(LeftRequests(log)))
    }

    /// Links of whoever has this name and does not run end, below a folder in a bpffs: packets meet no program of theirs. Their
    /// counts stay.
    pub fn detach_of(below: &Path, name: &str) {
        let folder = below.join(escaped(name));
        if is_bpffs(&folder) {
            remove_links(&folder, |_, _| true);
        }
    }

    /// Pins what is needed of these maps without this process.
    pub(super) fn pin_maps(&self, maps: &Maps) -> Result<(), SetupError> {
        let folder = self.maps(self.generation);
        make(&folder, false)?;
        let all = COUNTING
            .into_iter()
            .chain([CONFIG])
            .chain(RINGS)
            .chain(METERS);
        all.into_iter().try_for_each(|name| {
            let map = map_named(maps, name)?;
            pin(map.as_fd(), &folder.join(name)).map_err(SetupError::from)
        })
    }

    /// Pins a map beside those.
    pub(super) fn pin_map(&self, name: &str, map: &MapHandle) -> Result<(), SetupError> {
        let path = self.maps(self.generation).join(name);
        Ok(pin(map.as_fd(), &path)?)
    }

    /// Pins the work of a port's lanes, without which they would drop.
    pub(super) fn pin_lane_work(&self, port: usize, work: &MapHandle) -> Result<(), SetupError> {
        self.pin_map(&format!("{LANE_WORK}-{port}"), work)
    }

    fn link_path(&self, port: &PortConfig) -> PathBuf {
        self.folder.join(link_name(port))
    }

    /// The link of a port, as a process of before has left it.
    pub(super) fn link(&self, port: &PortConfig) -> io::Result<Option<OwnedFd>> {
        match get(&self.link_path(port)) {
            Ok(link) => Ok(Some(link)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The link of a port outlives this process.
    pub(super) fn pin_link(&self, port: &PortConfig, link: BorrowedFd<'_>) -> io::Result<()> {
        pin(link, &self.link_path(port))
    }

    /// The link of a port ends with whoever has it.
    pub(super) fn unpin_link(&self, port: &PortConfig) {
        let _ = fs::remove_file(self.link_path(port));
    }

    /// Links of interfaces that are not among these ports end.
    pub(super) fn retain_links(&self, ports: &[PortConfig]) {
        let names: Vec<String> = ports.iter().map(link_name).collect();
        remove_links(&self.folder, |name, _| {
            names.iter().all(|known| known != name)
        });
    }

    /// Links end that are in the way of these ports' on the same interfaces: of another mode, or under a former name.
    pub(super) fn give_way(&self, ports: &[PortConfig], ifindexes: &[u32]) {
        let names: Vec<String> = ports.iter().map(link_name).collect();
        remove_links(&self.folder, |name, path| {
            let on = get(path).ok().and_then(|link| ifindex_under(link.as_fd()));
            let is_other = names.iter().all(|known| known != name);
            is_other && on.is_some_and(|on| ifindexes.contains(&on))
        });
    }
}

fn is_bpffs(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|kind| kind.filesystem_type().0 == BPF_FS)
}

fn maps_of(folder: &Path, generation: u64) -> PathBuf {
    folder.join(format!("{MAPS}{generation:016x}"))
}

/// Removes links in a folder that are meant by their name, or their path.
fn remove_links(folder: &Path, mut is_meant: impl FnMut(&str, &Path) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().filter(|name| name.starts_with(LINK));
        if name.is_some_and(|name| is_meant(name, &entry.path())) {
            tracing::warn!(link = name, "packets of an interface do not go on");
            if let Ok(link) = get(&entry.path()) {
                link::detach(link.as_fd());
            }
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Front of the name of a link.
const LINK: &str = "link-";

/// Name of a port's link.
fn link_name(port: &PortConfig) -> String {
    let mode = match port.mode {
        Mode::Driver => "driver",
        Mode::Generic => "generic",
    };
    format!("{LINK}{mode}-{}", escaped(&port.name))
}

/// As a name in a bpffs, which has no dots.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for octet in name.bytes() {
        if octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_' {
            escaped.push(octet.into());
        } else {
            let _ = write!(escaped, "={octet:02x}");
        }
    }
    escaped
}

/// Of this user alone.
fn make(folder: &Path, recursive: bool) -> io::Result<()> {
    DirBuilder::new()
        .recursive(recursive)
        .mode(0o700)
        .create(folder)
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(%error, ?folder, "pins cannot be removed");
    }
}

fn table<T: Shared>(folder: &Path, name: &str) -> Result<View<T>, SetupError> {
    let map = MapHandle::from_pinned_path(folder.join(name)).map_err(setup(name))?;
    let (octets, places) = (map.value_size() as usize, map.max_entries() as usize);
    if octets != size_of::<T>() {
        return Err(SetupError::Bpf {
            what: name.to_owned(),
            error: format!("its elements have {octets} octets"),
        });
    }
    Ok(View::of_map(map.as_fd(), places)?)
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

fn pin(what: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the descriptor is open, and the path a terminated string.
    let answer = unsafe { libbpf_sys::bpf_obj_pin(what.as_raw_fd(), path.as_ptr()) };
    match -answer {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn get(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: the path is a terminated string.
    let fd = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just handed out this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
