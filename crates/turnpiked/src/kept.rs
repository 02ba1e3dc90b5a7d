//! Sessions outlive the process: what has changed of them is in a file before an SMF hears of it, and the next process goes on
//! with what it finds there.
//!
//! The file lies in `state.dir`, which is memory (tmpfs) as a rule: it outlives the process, not the host. A start fills a
//! file of its own, which takes the place of the former one when all is in it, so that a start that ends too early changes
//! nothing.
//!
//! With `state.bpffs`, packets go on meanwhile. They are counted by tables of the former process until interfaces change over to
//! those of this one, and by both while they do. A file that is *unsettled* belongs to tables that packets may have met already, while
//! what all tables of before have counted is not in it; it becomes settled by its name. Whoever finds unsettled files behind the settled
//! one adds what their tables have counted.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use arena::{Arena, Memory};
use nix::libc::O_NOFOLLOW;
use report::{StateReport, TableFill};
use serde::{Deserialize, Serialize};
use session::{Change, Core, NodeRecord, Outbox, Record, RecordError, Time};
use tables::{KeptFile, Left, Pins, SetupError, Tables};

use crate::config::{Config, DatapathKind, State};
use crate::recovery;

/// Room for a session's record, on the average; it is taken as it is used.
const RECORD_OCTETS: usize = 1024;
/// Likewise for the node's record: there are two while it is written, and PFDs take most of it.
const NODE_OCTETS: u64 = 16 << 20;
/// Times of heartbeats and the like are kept so often.
const NODE_AGE: Duration = Duration::from_secs(1);
/// Changes that found no room are tried again so often.
const RETRY: Duration = Duration::from_secs(1);
/// Starts that have ended while they took over, at most.
const UNSETTLED_MAX: usize = 4;
/// Front of the end of an unsettled file's name.
const UNSETTLED: &str = ".tables-";
/// Records that are read together, and how many times that many may wait.
const BATCH: usize = 256;
const BATCHES: usize = 16;
/// N4 is attended to behind so many records.
const ATTENDED: usize = 64;
/// Records that cannot be taken in and are said one by one.
const LOST_SAID: usize = 20;

/// Memory of the file.
struct Words(KeptFile);

impl Memory for Words {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn back(&mut self, octets: usize) -> io::Result<()> {
        self.0.back(octets)
    }
}

/// Front of the file: whose it is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Monotonic time goes on within one.
    boot: String,
    node_id: String,
    recovery_time_stamp: u32,
    /// SEIDs and other numbers follow from it.
    seed: u64,
    /// Place of the node's record, behind those of sessions.
    node: u32,
    /// Generation of the tables that count for its sessions; 0: they ended with their process.
    #[serde(default)]
    tables: u64,
    /// Where these, and programs over them, are pinned.
    #[serde(default)]
    bpffs: Option<PathBuf>,
}

/// A process that is no more.
pub(crate) struct Former {
    header: Header,
    node: NodeRecord,
    arena: Arena<Words>,
    /// Its usage is that of the one before, so that all is to be added that its tables have counted.
    is_unsettled: bool,
    /// Sessions whose records are damaged.
    damaged: usize,
}

/// A start before this one has ended, or this one begins.
pub(crate) struct Beginning {
    files: Files,
    boot: String,
    former: Option<Former>,
    /// Starts after it that were about to take over, the first one first.
    unsettled: Vec<Former>,
    /// Recovery Time Stamp and seed.
    identity: (u32, u64),
    /// `None`: packets do not go on without a process, or the tables have it.
    pins: Option<Pins>,
    /// Where those of processes before did, if they do not any more.
    elsewhere: Elsewhere,
    /// Packets meet the tables when sessions are in them.
    attaches_late: bool,
}

/// A core that sessions of before have been taken into, while packets may still meet former tables.
pub(crate) struct TakenOver {
    /// The former process, and starts after it. None: there is nothing to add.
    before: Vec<Former>,
    /// Where this one's changes go; `None`: there is no room.
    kept: Result<Kept, (Files, anyhow::Error)>,
    elsewhere: Elsewhere,
    attaches_late: bool,
    began: Instant,
}

/// Folders where programs of a node were pinned, and are not any more.
struct Elsewhere {
    node_id: String,
    places: Vec<PathBuf>,
}

impl Elsewhere {
    /// Of all places that files name, those that are not this one.
    fn of(node_id: &str, places: impl Iterator<Item = PathBuf>, here: Option<&Path>) -> Self {
        let mut others: Vec<PathBuf> = Vec::new();
        for place in places {
            let known = others.iter().map(PathBuf::as_path).chain(here);
            if !known.into_iter().any(|known| is_same(known, &place)) {
                others.push(place);
            }
        }
        Self {
            node_id: node_id.to_owned(),
            places: others,
        }
    }

    /// Packets meet no program there.
    fn detach(&self) {
        for place in &self.places {
            tracing::warn!("{place:?}: packets end there, as it is no longer state.bpffs");
            Pins::detach_of(place, &self.node_id);
        }
    }

    fn remove(&self) {
        for place in &self.places {
            if let Err(error) = Pins::remove_of(place, &self.node_id) {
                tracing::error!(%error, "{place:?}: pins cannot be removed");
            }
        }
    }
}

/// Whether two paths lead to one folder.
fn is_same(a: &Path, b: &Path) -> bool {
    let inode = |path| fs::metadata(path).map(|about| (about.dev(), about.ino()));
    a == b || matches!((inode(a), inode(b)), (Ok(a), Ok(b)) if a == b)
}

/// The file that changes are kept in.
pub(crate) struct Kept {
    files: Files,
    arena: Arena<Words>,
    node: u32,
    node_at: Instant,
    /// There was no room at this time, and it was said.
    full_at: Option<Instant>,
    /// Places whose sessions found no room.
    unkept: BTreeSet<u32>,
    /// Changes that did.
    refused: u64,
    report: StateReport,
}

/// Files of one UPF, which nobody else has while this process lives.
struct Files {
    dir: PathBuf,
    /// Of the process that takes over next.
    path: PathBuf,
    /// While it is being filled.
    new: PathBuf,
    lock_path: PathBuf,
    /// Nobody else has the files while this one is locked.
    _lock: File,
}

impl Files {
    fn new(dir: &Path, node_id: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let name = recovery::harmless(node_id);
        let file = |kind: &str| dir.join(format!("sessions-{name}{kind}"));
        let path = file(".lock");
        let lock = open(&path, true).with_context(|| format!("{path:?}"))?;
        if lock.try_lock().is_err() {
            bail!("{path:?} is another turnpiked's, which runs");
        }
        Ok(Self {
            dir: dir.to_owned(),
            path: file(""),
            new: file(".new"),
            lock_path: path,
            _lock: lock,
        })
    }

    /// Where programs of the process before are pinned, as its file says.
    fn pinned_in(&self) -> Option<PathBuf> {
        let file = KeptFile::map(open(&self.path, false).ok()?).ok()?;
        let (arena, _) = Arena::open(Words(file)).ok()?;
        let header: Header = serde_json::from_slice(&arena.header()).ok()?;
        header.bpffs
    }

    /// Nobody goes on with anything.
    fn remove(&self) {
        for path in [&self.path, &self.new] {
            let _ = fs::remove_file(path);
        }
        self.keep_unsettled(&[]);
    }

    /// Of a start whose tables have this generation, until it has taken over.
    fn unsettled(&self, generation: u64) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!("{UNSETTLED}{generation:016x}"));
        name.into()
    }

    /// Generations of unsettled files, the first one first.
    fn all_unsettled(&self) -> Vec<u64> {
        let front = self.path.file_name().and_then(OsStr::to_str);
        let front = format!("{}{UNSETTLED}", front.unwrap_or_default());
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&front));
            all.extend(number.and_then(|number| u64::from_str_radix(number, 16).ok()));
        }
        all.sort_unstable();
        all
    }

    fn keep_unsettled(&self, generations: &[u64]) {
        for generation in self.all_unsettled() {
            if !generations.contains(&generation) {
                let _ = fs::remove_file(self.unsettled(generation));
            }
        }
    }

    /// Sessions are kept nowhere. They change from now on, and nobody is to go on with them as they were; nor is anybody else to
    /// have the files while this process lives.
    fn give_up(self, error: &anyhow::Error) {
        tracing::error!("{:?}: {error:#}: sessions end with this process", self.path);
        self.remove();
        std::mem::forget(self);
    }

    /// Sessions of a process that is no more. `None`: there was none since this host was started.
    fn former(&self, boot: &str, node_id: &str) -> Result<Option<Former>> {
        self.read(&self.path, boot, node_id)
    }

    /// Starts after it that were about to take over. Of too many, the first are given up: it is memory that they take.
    fn starts_after(&self, former: &Former) -> Vec<Former> {
        let Header { boot, node_id, .. } = &former.header;
        let read = |generation: &u64| {
            let path = self.unsettled(*generation);
            let read = self.read(&path, boot, node_id);
            let read = read.inspect_err(|error| tracing::error!("{path:?}: {error:#}"));
            let mut start = read.ok().flatten()?;
            start.is_unsettled = true;
            let is_ours = start.header.seed == former.header.seed;
            let is_after = start.header.tables > former.header.tables;
            // Else no packet has met its tables, or they are gone.
            let has_counted = start.left().is_ok();
            (is_ours && is_after && has_counted).then_some(start)
        };
        let mut all: Vec<Former> = self.all_unsettled().iter().filter_map(read).collect();
        let given_up = all.len().saturating_sub(UNSETTLED_MAX);
        if given_up > 0 {
            tracing::error!(
                starts = given_up,
                "too many starts have ended while they took over: usage of the first of these is lost"
            );
        }
        all.drain(..given_up);
        all
    }

    fn read(&self, path: &Path, boot: &str, node_id: &str) -> Result<Option<Former>> {
        let file = match open(path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let about = file.metadata()?;
        ensure!(
            about.uid() == nix::unistd::geteuid().as_raw() && about.mode() & 0o077 == 0,
            "it is not this user's alone"
        );
        let (arena, damaged) = Arena::open(Words(KeptFile::map(file)?))?;
        for lost in damaged.iter().take(LOST_SAID) {
            tracing::error!(place = lost.place, fault = %lost.fault, "a session is lost: its record is damaged");
        }
        if damaged.len() > LOST_SAID {
            tracing::error!(
                sessions = damaged.len(),
                "sessions are lost: their records are damaged"
            );
        }
        let header: Header = serde_json::from_slice(&arena.header()).context("its header")?;
        if header.boot != boot {
            tracing::info!("{path:?}: sessions of before this host was started");
            return Ok(None);
        }
        ensure!(header.node_id == node_id, "it is of {:?}", header.node_id);
        let node = arena.get(header.node).context("it has no node")?;
        let node = NodeRecord::read(&node)?;
        ensure!(
            node.recovery() == header.recovery_time_stamp,
            "it has two Recovery Time Stamps"
        );
        Ok(Some(Former {
            header,
            node,
            arena,
            is_unsettled: false,
            damaged: damaged.len(),
        }))
    }
}

/// Of this user alone, and no link.
fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = options();
    options.create(create).open(path)
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options.mode(0o600).custom_flags(O_NOFOLLOW);
    options
}

impl Beginning {
    /// `None`: sessions end with the process. `new`: an identity that was not there before.
    pub(crate) fn open(
        config: &Config,
        new: impl FnOnce() -> Result<(u32, u64)>,
    ) -> Result<Option<Self>> {
        let Some(dir) = &config.state.dir else {
            return Ok(None);
        };
        let node_id = config.node.id.to_string();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let boot = boot.trim().to_owned();
        let files = Files::new(dir, &node_id).with_context(|| format!("state.dir = {dir:?}"))?;
        let former = files.former(&boot, &node_id).unwrap_or_else(|error| {
            tracing::error!(
                "{:?}: {error:#}: its sessions are lost, and SMFs will notice",
                files.path
            );
            None
        });
        let identity = match &former {
            Some(Former { header, .. }) => (header.recovery_time_stamp, header.seed),
            None => new()?,
        };
        let unsettled = former
            .as_ref()
            .map_or(Vec::new(), |former| files.starts_after(former));
        let counting: Vec<u64> = former
            .iter()
            .chain(&unsettled)
            .map(|of| of.header.tables)
            .collect();
        files.keep_unsettled(&counting);
        let latest = counting.iter().copied().max().unwrap_or(0);
        let pins = match &config.state.bpffs {
            Some(bpffs) => {
                let pins = Pins::open(bpffs, &node_id, latest).context("state.bpffs")?;
                pins.retain_maps(&counting);
                Some(pins)
            }
            None => None,
        };
        let places = former.iter().chain(&unsettled);
        let places = places.filter_map(|of| of.header.bpffs.clone());
        let elsewhere = Elsewhere::of(&node_id, places, config.state.bpffs.as_deref());
        // Other data paths cannot wait, as interfaces come with them.
        let is_xdp = config.datapath.kind == DatapathKind::Xdp;
        if !is_xdp {
            elsewhere.detach();
        }
        let attaches_late = pins.is_some() || is_xdp && !elsewhere.places.is_empty();
        Ok(Some(Self {
            files,
            boot,
            former,
            unsettled,
            identity,
            pins,
            elsewhere,
            attaches_late,
        }))
    }

    /// Whether packets meet the tables when sessions are in them, and not before.
    pub(crate) fn attaches_late(&self) -> bool {
        self.attaches_late
    }

    /// Pins of tables that packets meet without a process.
    pub(crate) fn take_pins(&mut self) -> Option<Pins> {
        self.pins.take()
    }

    /// Whether there are sessions that go on.
    pub(crate) fn goes_on(&self) -> bool {
        self.former.is_some()
    }

    /// Recovery Time Stamp and seed: of the process before this one, if there is one that goes on.
    pub(crate) fn identity(&self) -> (u32, u64) {
        self.identity
    }

    /// The core, which nobody has spoken with yet, goes on as the former one; from now on its changes are kept. `attend`: is called
    /// again and again, as it takes a while.
    pub(crate) fn take_over(
        self,
        now: Time,
        config: &Config,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        mut attend: impl FnMut(&Core<Tables>),
    ) -> Result<TakenOver> {
        let began = Instant::now();
        let Self {
            files,
            boot,
            former,
            unsettled,
            identity: (recovery_time_stamp, seed),
            pins: _,
            elsewhere,
            attaches_late,
        } = self;
        let header = Header {
            boot,
            node_id: config.node.id.to_string(),
            recovery_time_stamp,
            seed,
            node: config.limits.sessions,
            bpffs: config.state.bpffs.clone(),
            tables: core.tables().pins().map_or(0, Pins::generation),
        };
        let arena = create(&files.new, &header);
        if arena.is_ok() {
            core.note_changes();
        }
        let mut before = Vec::new();
        let mut report = StateReport {
            packets_go_on: header.tables > 0,
            ..StateReport::default()
        };
        if let Some(former) = former {
            // Not once more, should that be why this process ends.
            core.resume(now, &former.node, out)
                .inspect_err(|_| files.remove())?;
            let lost = former.enter(now, core, out, &mut attend)? + former.damaged;
            report = StateReport {
                taken_over: core.session_count() as u64,
                lost: lost as u64,
                took_ms: began.elapsed().as_millis() as u64,
                ..report
            };
            tracing::info!(
                sessions = report.taken_over,
                lost,
                after_ms = report.took_ms,
                "sessions of the process before this one go on"
            );
            before.push(former);
            before.extend(unsettled);
        }
        let arena = match arena {
            Ok(arena) => arena,
            Err(error) => {
                let kept = Err((files, error));
                return Ok(TakenOver {
                    before,
                    kept,
                    elsewhere,
                    attaches_late,
                    began,
                });
            }
        };
        let mut kept = Kept {
            files,
            arena,
            node: header.node,
            node_at: Instant::now(),
            full_at: None,
            unkept: BTreeSet::new(),
            refused: 0,
            report,
        };
        kept.put_changes(core, true);
        Ok(TakenOver {
            before,
            kept: Ok(kept),
            elsewhere,
            attaches_late,
            began,
        })
    }
}

impl TakenOver {
    /// Packets meet the core's tables from now on, and what others have counted is in its usage. `None`: there is no room to keep
    /// changes, which is no reason to leave users without a UPF.
    pub(crate) fn settle(
        self,
        now: Time,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        attend: impl FnMut(&Core<Tables>),
    ) -> Result<Option<Kept>> {
        let Self {
            before,
            mut kept,
            elsewhere,
            attaches_late,
            began,
        } = self;
        let generation = core.tables().pins().map(Pins::generation);
        if let (Ok(of), Some(generation)) = (&kept, generation) {
            let renamed = fs::rename(&of.files.new, of.files.unsettled(generation));
            if let Err(error) = renamed {
                kept = kept.and_then(|kept| Err((kept.files, error.into())));
            }
        }
        if attaches_late {
            elsewhere.detach();
            if let Err(error) = core.tables_mut().attach() {
                // Else some packets have met these tables.
                if let (Ok(of), Some(generation), false) =
                    (&kept, generation, core.tables().is_attached(0))
                {
                    let _ = fs::remove_file(of.files.unsettled(generation));
                }
                return Err(error.into());
            }
        }
        if before.iter().any(|former| former.header.tables > 0) {
            core.tables().pass()?;
            count_before(&before, now, core, out, attend)?;
            tracing::info!(
                after_ms = began.elapsed().as_millis() as u64,
                "packets meet this process' tables"
            );
        }
        drop(before);
        let give_up = |core: &mut Core<Tables>, files: Files, error| {
            core.keep_nothing();
            files.give_up(&error);
            if let Some(pins) = core.tables().pins() {
                pins.remove();
            }
            elsewhere.remove();
            Ok(None)
        };
        let mut kept = match kept {
            Ok(kept) => kept,
            Err((files, error)) => return give_up(core, files, error),
        };
        kept.put_changes(core, true);
        if !kept.unkept.is_empty() {
            // The former file is in the way, and what it has is here.
            let _ = fs::remove_file(&kept.files.path);
            kept.try_again(core);
        }
        let Files { path, new, .. } = &kept.files;
        let from = generation.map_or(new.clone(), |of| kept.files.unsettled(of));
        if let Err(error) = fs::rename(from, path) {
            return give_up(core, kept.files, error.into());
        }
        kept.files.keep_unsettled(&[]);
        if let Some(pins) = core.tables().pins() {
            pins.retain_maps(&[]);
        }
        elsewhere.remove();
        Ok(Some(kept))
    }
}

/// A UPF that does not run is removed, with all that was to outlive it: its sessions, and the programs that packets still
/// meet. What there was of it.
pub(crate) fn detach(config: &Config) -> Result<Vec<String>> {
    let State { dir, bpffs, .. } = &config.state;
    let node_id = config.node.id.to_string();
    let dir = dir.as_ref();
    let dir = dir.context("state.dir is not set: nothing outlives turnpiked")?;
    let mut removed = Vec::new();
    let files = Files::new(dir, &node_id).with_context(|| format!("state.dir = {dir:?}"))?;
    let mut places: Vec<PathBuf> = bpffs.iter().cloned().collect();
    places.extend(files.pinned_in());
    for place in places {
        let pins = Pins::remove_of(&place, &node_id);
        if pins.with_context(|| format!("{place:?}"))? {
            removed.push(format!("programs in {}", place.display()));
        }
    }
    if files.path.exists() {
        removed.push(format!("sessions in {}", files.path.display()));
    }
    files.remove();
    // Root may run this, and another user's start come next.
    let _ = fs::remove_file(&files.lock_path);
    Ok(removed)
}

/// Counts of tables of before are added to the usage of sessions. No packet meets those any more.
fn count_before(
    before: &[Former],
    now: Time,
    core: &mut Core<Tables>,
    out: &mut Outbox,
    mut attend: impl FnMut(&Core<Tables>),
) -> io::Result<()> {
    for former in before {
        match former.left() {
            Ok(Some(left)) => {
                let packets = left.unmanaged();
                if packets > 0 {
                    tracing::warn!(packets, "packets dropped as unmanaged before this start");
                }
                former.count(&left, now, core, out, &mut attend)?;
            }
            Ok(None) => {}
            Err(error) => tracing::error!(
                %error,
                "tables of a process before this one are gone: what they have counted since it ended is lost"
            ),
        }
    }
    Ok(())
}

fn create(path: &Path, header: &Header) -> Result<Arena<Words>> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Whoever else makes one of this name meanwhile does not own what we write.
    let file = options().create_new(true).open(path)?;
    let places = header.node + 1;
    file.set_len(arena::octets_for(places, RECORD_OCTETS) as u64 + 2 * NODE_OCTETS)?;
    let header = serde_json::to_vec(header)?;
    Ok(Arena::create(Words(KeptFile::map(file)?), places, &header)?)
}

impl Former {
    /// Its tables; `None`: they ended with it.
    fn left(&self) -> Result<Option<Left>, SetupError> {
        let Header {
            bpffs,
            node_id,
            tables,
            ..
        } = &self.header;
        let left = bpffs
            .as_ref()
            .map(|bpffs| Pins::left(bpffs, node_id, *tables));
        left.transpose()
    }

    /// Its sessions come to be in a core that has resumed its node. Returns the number of those that could not be taken in.
    fn enter(
        &self,
        now: Time,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        attend: &mut impl FnMut(&Core<Tables>),
    ) -> Result<usize> {
        let (mut lost, mut number) = (0, 0usize);
        self.sessions(
            |_| true,
            |place, record| {
                if number.is_multiple_of(ATTENDED) {
                    attend(core);
                }
                number += 1;
                let entered = record.map_err(anyhow::Error::from);
                let entered = entered.and_then(|record| Ok(core.adopt(now, record, out)?));
                if let Err(error) = entered {
                    lost += 1;
                    if lost <= LOST_SAID {
                        tracing::error!(place, "a session is lost: {error:#}");
                    }
                }
            },
        )?;
        Ok(lost)
    }

    /// Adds what its tables have counted and its sessions' usage does not have.
    fn count(
        &self,
        left: &Left,
        now: Time,
        core: &mut Core<Tables>,
        out: &mut Outbox,
        attend: &mut impl FnMut(&Core<Tables>),
    ) -> io::Result<()> {
        let mut number = 0usize;
        self.sessions(Record::is_counted, |_, record| {
            if number.is_multiple_of(ATTENDED) {
                attend(core);
            }
            number += 1;
            // One that cannot be read has been said to be lost.
            let Ok(record) = record else { return };
            let uncounted = record.uncounted(self.is_unsettled, |entry| left.counted(entry));
            if !uncounted.is_nothing() {
                core.count(now, record.seid(), &uncounted, out);
            }
        })
    }

    /// All sessions whose octets are meant, each with its place. They are read by another thread while the caller does what it
    /// does with them.
    fn sessions(
        &self,
        is_meant: impl Fn(&[u8]) -> bool + Send,
        mut each: impl FnMut(u32, Result<Record, RecordError>),
    ) -> io::Result<()> {
        thread::scope(|scope| {
            let (sender, batches) = sync_channel(BATCHES);
            let reader = thread::Builder::new().name("records".into());
            reader.spawn_scoped(scope, move || {
                let all = self.arena.records();
                let meant =
                    all.filter(|(place, octets)| *place != self.header.node && is_meant(octets));
                let mut read = meant.map(|(place, octets)| (place, self.node.session(&octets)));
                loop {
                    let batch: Vec<_> = read.by_ref().take(BATCH).collect();
                    if batch.is_empty() || sender.send(batch).is_err() {
                        return;
                    }
                }
            })?;
            for (place, record) in batches.into_iter().flatten() {
                each(place, record);
            }
            Ok(())
        })
    }
}

impl Kept {
    /// All that has changed is in the file before an SMF hears of it.
    pub(crate) fn keep(&mut self, core: &mut Core<Tables>) {
        if self.full_at.is_some_and(|at| at.elapsed() >= RETRY) {
            self.try_again(core);
        }
        let is_old = self.node_at.elapsed() >= NODE_AGE;
        self.put_changes(core, is_old);
    }

    fn try_again(&mut self, core: &mut Core<Tables>) {
        self.full_at = self.full_at.map(|_| Instant::now());
        let _ = self.arena.back_reserve();
        let node = self.unkept.contains(&self.node);
        for place in std::mem::take(&mut self.unkept) {
            core.note_change(place);
        }
        self.put_changes(core, node);
        if self.unkept.is_empty() && !self.arena.is_nearly_full() {
            tracing::info!("{:?}: there is room again", self.files.path);
            self.full_at = None;
            core.set_full(false);
        }
    }

    fn put_changes(&mut self, core: &mut Core<Tables>, node: bool) {
        let (mut why, now) = (None, Instant::now());
        core.changes(node, |change| {
            let (place, octets) = match change {
                Change::Session(place, octets) => (place, octets),
                Change::Node(octets) => {
                    self.node_at = now;
                    (self.node, octets)
                }
                Change::Gone(place) => {
                    self.unkept.remove(&place);
                    return self.arena.remove(place);
                }
            };
            match self.arena.put(place, octets) {
                Ok(()) => {
                    self.unkept.remove(&place);
                }
                Err(error) => {
                    // A session is as its SMF has heard, or is not there; who was there before has gone. A node of before has
                    // most associations.
                    if place != self.node {
                        self.arena.remove(place);
                    }
                    self.unkept.insert(place);
                    self.refused += 1;
                    why = Some(error.to_string());
                }
            }
        });
        if why.is_none() && self.arena.is_nearly_full() {
            why = Some("little room is left".to_owned());
        }
        if let Some(why) = why {
            self.fill_up(core, &why);
        }
    }

    /// No session begins while there is no room for changes of those that are there.
    fn fill_up(&mut self, core: &mut Core<Tables>, why: &str) {
        if self.full_at.is_none() {
            tracing::error!(
                "{:?}: {why}: no session is established, and changes may be lost with this process",
                self.files.path
            );
            self.full_at = Some(Instant::now());
            core.set_full(true);
        }
    }

    /// Sessions that this process has found, and whether packets go on when it ends.
    pub(crate) fn report(&self) -> &StateReport {
        &self.report
    }

    /// Octets of the file.
    pub(crate) fn fill(&self) -> TableFill {
        let fill = self.arena.fill();
        TableFill {
            table: "state".to_owned(),
            used: fill.used_octets,
            capacity: fill.octets,
            refused: self.refused,
        }
    }

    /// The process ends, and the next one is to go on.
    pub(crate) fn leave(mut self, core: &mut Core<Tables>) {
        self.put_changes(core, true);
    }

    /// The process ends, and so have its sessions.
    pub(crate) fn end(self) {
        self.files.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// As in the sample.
    const UPF: &str = "upf1.example.org";
    const RECOVERY: u32 = 3_900_000_000;
    const NODE: &[u8] = include_bytes!("../../../fuzz/corpus/node_record/nobody-1");
    const BOOT: &str = "this boot";

    fn in_folder(test: impl FnOnce(&Path, Files)) {
        let name = format!("turnpiked-kept-{:?}", thread::current().id());
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let files = Files::new(&folder, UPF).unwrap();
        test(&folder, files);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// As a process leaves it, with a session in a place.
    fn leave(files: &Files, recovery_time_stamp: u32) {
        leave_at(&files.path, files, (recovery_time_stamp, 5, 0));
    }

    fn leave_at(path: &Path, files: &Files, (recovery_time_stamp, seed, tables): (u32, u64, u64)) {
        let header = Header {
            boot: BOOT.to_owned(),
            node_id: UPF.to_owned(),
            recovery_time_stamp,
            seed,
            node: 100,
            tables,
            bpffs: None,
        };
        let mut arena = create(&files.new, &header).unwrap();
        arena.put(100, NODE).unwrap();
        arena.put(7, b"a session").unwrap();
        fs::rename(&files.new, path).unwrap();
    }

    fn why_not(files: &Files, boot: &str, node_id: &str) -> String {
        match files.former(boot, node_id) {
            Ok(former) => format!("{:?}", former.map(|former| former.header.seed)),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn another_process_goes_on_unless_host_or_node_are_others() {
        in_folder(|_, files| {
            assert_eq!(why_not(&files, BOOT, UPF), "None");
            leave(&files, RECOVERY);
            let former = files.former(BOOT, UPF).unwrap().unwrap();
            assert_eq!(former.header.recovery_time_stamp, RECOVERY);
            let records: Vec<_> = former.arena.records().collect();
            assert_eq!(records[0], (7, b"a session".to_vec()));
            assert_eq!(why_not(&files, "another", UPF), "None");
            let node = why_not(&files, BOOT, "another");
            assert_eq!(node, format!("it is of {UPF:?}"));
            leave(&files, RECOVERY + 1);
            assert_eq!(
                why_not(&files, BOOT, UPF),
                "it has two Recovery Time Stamps"
            );
        });
    }

    #[test]
    fn starts_that_ended_while_they_took_over_are_found_in_their_order() {
        in_folder(|_, files| {
            leave_at(&files.path, &files, (RECOVERY, 5, 3));
            let former = files.former(BOOT, UPF).unwrap().unwrap();
            let about_to = |seed, tables| {
                leave_at(&files.unsettled(tables), &files, (RECOVERY, seed, tables));
            };
            let after = || -> Vec<u64> {
                let starts = files.starts_after(&former);
                assert!(starts.iter().all(|start| start.is_unsettled));
                starts.iter().map(|start| start.header.tables).collect()
            };
            assert!(after().is_empty() && !former.is_unsettled);
            // One of a former process, and one of another UPF of this name.
            about_to(5, 2);
            about_to(6, 9);
            about_to(5, 0x10);
            about_to(5, 4);
            assert_eq!(after(), [4, 0x10]);
            fs::write(files.unsettled(5), "nonsense").unwrap();
            assert_eq!(after(), [4, 0x10]);
            files.keep_unsettled(&after());
            assert_eq!(files.all_unsettled(), [4, 0x10]);
            (0x20..0x23).for_each(|tables| about_to(5, tables));
            assert_eq!(after(), [0x10, 0x20, 0x21, 0x22]);
            files.remove();
            assert!(files.all_unsettled().is_empty());
        });
    }

    #[test]
    fn a_file_that_others_may_have_written_is_not_trusted() {
        in_folder(|folder, files| {
            leave(&files, RECOVERY);
            let mode = |mode| fs::set_permissions(&files.path, fs::Permissions::from_mode(mode));
            for others in [0o644, 0o660, 0o602] {
                mode(others).unwrap();
                assert_eq!(why_not(&files, BOOT, UPF), "it is not this user's alone");
            }
            mode(0o600).unwrap();
            assert_eq!(why_not(&files, BOOT, UPF), "Some(5)");
            let elsewhere = folder.join("elsewhere");
            fs::rename(&files.path, &elsewhere).unwrap();
            symlink(&elsewhere, &files.path).unwrap();
            assert!(why_not(&files, BOOT, UPF).contains("symbolic links"));
        });
    }

    #[test]
    fn a_file_of_nonsense_is_none() {
        in_folder(|_, files| {
            leave(&files, RECOVERY);
            let whole = fs::read(&files.path).unwrap();
            for length in [0, 1, 100, 4096, whole.len() / 2, whole.len() - 8] {
                fs::write(&files.path, &whole[..length]).unwrap();
                assert!(files.former(BOOT, UPF).is_err(), "{length}");
            }
            fs::write(&files.path, vec![0xff; whole.len()]).unwrap();
            assert!(files.former(BOOT, UPF).is_err());
        });
    }

    #[test]
    fn one_process_has_the_files() {
        in_folder(|folder, _files| {
            let other = Files::new(folder, UPF).err().unwrap();
            assert!(
                other
                    .to_string()
                    .ends_with("is another turnpiked's, which runs")
            );
            assert!(Files::new(folder, "another").is_ok());
        });
    }
}
