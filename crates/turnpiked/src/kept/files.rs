//! Files of one UPF in `state.dir`: of the process that is or was, and of starts that have ended while they took over.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arena::Arena;
use arena::ring::Ring;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use session::NodeRecord;
use tables::{TableFiles, Words};

use super::disk;
use super::huge_pages::has_huge_pages;
use super::own::{ANSWERS_OCTETS, LOCK, beside, create_file, open, open_ours, parts, unfinished};
use crate::config::memory::Memory;
use crate::config::{Config, DatapathKind};
use crate::{plan, recovery};

/// Room for a session's record, on the average; it is taken as it is used.
const RECORD_OCTETS: usize = 1024;
/// Likewise for PFDs, the longest record beside those of sessions: there are two while it is written.
const NODE_OCTETS: u64 = 16 << 20;
/// Starts that have ended while they took over, at most.
const UNSETTLED_MAX: usize = 4;
/// Front of the end of an unsettled file's name.
const UNSETTLED: &str = ".tables-";
/// Records that cannot be taken in and are said one by one.
pub(super) const LOST_SAID: usize = 20;

/// Front of the file: whose it is.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Monotonic time goes on within one.
    pub(super) boot: String,
    pub(super) node_id: String,
    pub(super) recovery_time_stamp: u32,
    /// SEIDs and other numbers follow from it.
    pub(super) seed: u64,
    /// Place of the node's record, behind those of sessions; PFDs follow, and counters of ports.
    pub(super) node: u32,
    /// Generation of the tables that count for its sessions; 0: they ended with their process.
    #[serde(default)]
    pub(super) tables: u64,
    /// These are in files beside this one, and no packet has met them since their process ended.
    #[serde(default)]
    pub(super) in_files: bool,
    /// Folder in which these, and programs over them, are pinned.
    #[serde(default)]
    pub(super) bpffs: Option<PathBuf>,
    /// Interfaces, in the order in which tables count.
    #[serde(default)]
    pub(super) ports: Vec<String>,
    /// Network instances, by their numbers in tables.
    #[serde(default)]
    pub(super) instances: Vec<String>,
    /// How far the clock of its times is ahead of the host's.
    #[serde(default)]
    pub(super) clock_ahead_ns: i64,
    /// Folder on a disk in which a copy of it follows its changes.
    #[serde(default)]
    pub(super) disk: Option<PathBuf>,
}

impl Header {
    /// Place of PFDs.
    pub(super) fn pfds(&self) -> u32 {
        self.node + 1
    }

    /// Place of counters of ports.
    pub(super) fn counts(&self) -> u32 {
        self.node + 2
    }
}

/// A process that is no more.
pub(super) struct Former {
    /// Front of the names of files of this UPF.
    pub(super) front: PathBuf,
    pub(super) header: Header,
    pub(super) node: NodeRecord,
    pub(super) arena: Arena<Words>,
    /// Answers that it has given. `None`: they are damaged.
    pub(super) answers: Option<Ring<Words>>,
    /// Its usage is that of the one before, so that all is to be added that its tables have counted.
    pub(super) is_unsettled: bool,
    /// Sessions whose records are damaged.
    pub(super) damaged: usize,
}

/// Files of one UPF, which nobody else has while this process lives.
pub(super) struct Files {
    dir: PathBuf,
    /// Of the process that takes over next, without the folder; those of the copy on a disk begin with it.
    pub(super) name: String,
    /// Folder of that copy.
    pub(super) disk: Option<PathBuf>,
    /// Of the process that takes over next.
    pub(super) path: PathBuf,
    /// Of packets that wait for idle UEs.
    pub(super) packets: PathBuf,
    /// Nobody else has the files while this one is locked.
    _lock: File,
}

impl Files {
    pub(super) fn new(dir: &Path, node_id: &str, disk: Option<&Path>) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let of = recovery::harmless(node_id);
        let name = format!("sessions-{of}");
        let path = dir.join(&name);
        let lock_path = beside(&path, LOCK);
        let lock = open(&lock_path, true).with_context(|| format!("{lock_path:?}"))?;
        if lock.try_lock().is_err() {
            bail!("{lock_path:?} is another turnpiked's, which runs");
        }
        Ok(Self {
            dir: dir.to_owned(),
            name,
            disk: disk.map(Path::to_owned),
            path,
            packets: dir.join(format!("packets-{of}")),
            _lock: lock,
        })
    }

    /// Folders of the process before, as its file says: in which its programs are pinned, and in which there is a copy.
    pub(super) fn elsewhere(&self) -> Option<[Option<PathBuf>; 2]> {
        let [records, _] = parts(open(&self.path, false).ok()?).ok()?;
        let (arena, _) = Arena::open(records).ok()?;
        let header: Header = serde_json::from_slice(&arena.header()).ok()?;
        Some([header.bpffs, header.disk])
    }

    /// Nobody goes on with what a disk has.
    pub(super) fn remove_copy(&self, disk: &Path) {
        if let Err(error) = disk::remove(disk, &self.name) {
            tracing::error!(
                "state.disk = {disk:?}: {error:#}: a copy of sessions that are over cannot be removed"
            );
        }
    }

    /// Nobody goes on with anything.
    pub(super) fn remove(&self) {
        if let Some(disk) = &self.disk {
            self.remove_copy(disk);
        }
        for path in [&self.path, &self.packets] {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(unfinished(path));
        }
        self.retain_unsettled(&[]);
        TableFiles::retain(&self.path, &[]);
    }

    /// For tables of this process, which come after those of these generations.
    pub(super) fn tables(&self, after: u64, config: &Config) -> Option<TableFiles> {
        let made = self.why_no_tables(config).and_then(|for_two| {
            let files = TableFiles::new(&self.path, after);
            let files = files.context("no folder for tables can be made")?;
            if config.datapath.kind != DatapathKind::Dpdk {
                return Ok(files);
            }
            if !tables::can_have_workers(&self.path) {
                tracing::warn!(
                    "{:?}: the path is too long for a socket beside: packets end with this process",
                    self.path
                );
                return Ok(files);
            }
            // Those of a process before this one are in that room already.
            if after == 0 && !for_two {
                tracing::warn!(
                    "state.dir = {:?}: room for the tables of one process alone: packets stop with the next start",
                    self.dir
                );
            }
            Ok(files.for_all())
        });
        let made = made.inspect_err(|error| {
            tracing::warn!(
                "state.dir = {:?}: {error:#}: what packets count since sessions report is lost if this process is killed",
                self.dir
            );
        });
        made.ok()
    }

    /// An error: they are not to lie in files. Whether there is room for those of another process beside.
    fn why_no_tables(&self, config: &Config) -> Result<bool> {
        let is_memory = statfs(&self.dir)?.filesystem_type() == TMPFS_MAGIC;
        ensure!(is_memory, "no tmpfs");
        // There packets read tables for some nanoseconds each, and miss the TLB in small pages.
        let is_dpdk = config.datapath.kind == DatapathKind::Dpdk;
        ensure!(
            !is_dpdk || has_huge_pages(&self.dir),
            "no tmpfs with huge=within_size"
        );
        // Sessions come first, and packets that wait for idle UEs: they take room as they come.
        let records = u64::from(config.limits.sessions) * RECORD_OCTETS as u64;
        let packets = u64::from(config.buffering.max_mib) << 20;
        let tables = TableFiles::octets(&plan::layout(config), is_dpdk);
        let wanted = tables + records + packets + ANSWERS_OCTETS as u64 + 2 * NODE_OCTETS;
        let room = statvfs(&self.dir)?;
        let available = room.blocks_available().saturating_mul(room.fragment_size());
        ensure!(
            // Without blocks it is as large as memory.
            room.blocks() == 0 || available >= wanted,
            "room for {} MiB, of {} that tables, sessions and packets may take",
            available >> 20,
            wanted >> 20
        );
        // Tables of the next start come on top.
        let memory = Memory::read();
        ensure!(
            wanted + tables <= memory.octets,
            "{} allows {} MiB, of {} that they may take while a start takes over",
            memory.of,
            memory.octets >> 20,
            (wanted + tables) >> 20
        );
        Ok(room.blocks() == 0 || available >= wanted + tables)
    }

    /// Workers in a process of their own end, if there are some, and packets with them. Whether there were. An error: they are still there.
    pub(super) fn end_workers(&self) -> Result<bool> {
        tables::end_workers(&self.path).context("workers of a turnpiked that is no more")
    }

    /// Of a start whose tables have this generation, until it has taken over.
    pub(super) fn unsettled(&self, generation: u64) -> PathBuf {
        beside(&self.path, &format!("{UNSETTLED}{generation:016x}"))
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

    pub(super) fn retain_unsettled(&self, generations: &[u64]) {
        for generation in self.all_unsettled() {
            if !generations.contains(&generation) {
                let _ = fs::remove_file(self.unsettled(generation));
            }
        }
    }

    /// Sessions are kept nowhere. They change from now on, and nobody is to go on with them as they were; nor is anybody else to
    /// have the files while this process lives.
    pub(super) fn give_up(self, error: &anyhow::Error) {
        tracing::error!("{:?}: {error:#}: sessions end with this process", self.path);
        self.remove();
        std::mem::forget(self);
    }

    /// Sessions of a process that is no more. `None`: there was none since this host was started.
    pub(super) fn former(&self, boot: &str, node_id: &str) -> Result<Option<Former>> {
        self.read(&self.path, boot, node_id)
    }

    /// Likewise; those that cannot be read are lost.
    pub(super) fn former_or_none(&self, boot: &str, node_id: &str) -> Option<Former> {
        self.former(boot, node_id).unwrap_or_else(|error| {
            tracing::error!(
                "{:?}: {error:#}: its sessions are lost, and SMFs will notice",
                self.path
            );
            None
        })
    }

    /// Whether what a disk has is the copy of what the process before has left. One that nobody follows any more is removed.
    pub(super) fn is_copied(&self, former: Option<&Former>) -> bool {
        let before = former.and_then(|former| former.header.disk.as_deref());
        if let Some(before) = before.filter(|before| self.disk.as_deref() != Some(before)) {
            self.remove_copy(before);
        }
        before.is_some() && self.disk.as_deref() == before
    }

    /// Starts after it that were about to take over. Of too many, the first are given up: it is memory that they take.
    pub(super) fn starts_after(&self, former: &Former) -> Vec<Former> {
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
            let has_counted = start.left(false).is_ok();
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
        let Some(file) = open_ours(path)? else {
            return Ok(None);
        };
        let [records, answers] = parts(file)?;
        let (arena, damaged) = Arena::open(records)?;
        let answers = Ring::open(answers);
        let answers = answers.inspect_err(|error| {
            tracing::error!("answers are lost: {error}: requests that come again are judged anew")
        });
        let header: Header = serde_json::from_slice(&arena.header()).context("its header")?;
        let sessions = damaged.iter().filter(|lost| lost.place < header.node);
        for lost in sessions.clone().take(LOST_SAID) {
            tracing::error!(place = lost.place, fault = %lost.fault, "a session is lost: its record is damaged");
        }
        let damaged = sessions.count();
        if damaged > LOST_SAID {
            tracing::error!(
                sessions = damaged,
                "sessions are lost: their records are damaged"
            );
        }
        if header.boot != boot {
            tracing::info!("{path:?}: sessions of before this host was started");
            return Ok(None);
        }
        ensure!(header.node_id == node_id, "it is of {:?}", header.node_id);
        let node = arena.get(header.node).context("it has no node")?;
        let mut node = NodeRecord::read(&node)?;
        ensure!(
            node.recovery() == header.recovery_time_stamp,
            "it has two Recovery Time Stamps"
        );
        let pfds = arena.get(header.pfds()).context("they are not there");
        let pfds = pfds.and_then(|octets| Ok(node.read_pfds(&octets)?));
        if let Err(error) = pfds {
            tracing::error!("PFDs are lost: {error:#}");
        }
        Ok(Some(Former {
            front: self.path.clone(),
            header,
            node,
            arena,
            answers: answers.ok(),
            is_unsettled: false,
            damaged,
        }))
    }
}

pub(super) fn create(path: &Path, header: &Header) -> Result<(Arena<Words>, Ring<Words>)> {
    let file = create_file(path)?;
    let places = header.node + 3;
    let octets = arena::octets_for(places, RECORD_OCTETS) as u64 + 2 * NODE_OCTETS;
    file.set_len(octets + ANSWERS_OCTETS as u64)?;
    let header = serde_json::to_vec(header)?;
    let [records, answers] = parts(file)?;
    // The arena takes what room there is.
    let answers = Ring::create(answers)?;
    Ok((Arena::create(records, places, &header)?, answers))
}

#[cfg(test)]
pub(in crate::kept) mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;

    use super::*;

    /// As in the sample.
    pub(in crate::kept) const UPF: &str = "upf1.example.org";
    pub(in crate::kept) const RECOVERY: u32 = 3_900_000_000;
    pub(in crate::kept) const NODE: &[u8] =
        include_bytes!("../../../../fuzz/corpus/node_record/nobody-1");
    pub(in crate::kept) const BOOT: &str = "this boot";

    pub(in crate::kept) fn in_folder(test: impl FnOnce(&Path, Files)) {
        let name = format!("turnpiked-kept-{:?}", thread::current().id());
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let files = Files::new(&folder, UPF, None).unwrap();
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
            in_files: false,
            bpffs: None,
            ports: Vec::new(),
            instances: Vec::new(),
            clock_ahead_ns: 0,
            disk: None,
        };
        let new = unfinished(&files.path);
        let (mut arena, _) = create(&new, &header).unwrap();
        arena.put(100, NODE).unwrap();
        arena.put(7, b"a session").unwrap();
        fs::rename(&new, path).unwrap();
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
            files.retain_unsettled(&after());
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
            let other = Files::new(folder, UPF, None).err().unwrap();
            assert!(
                other
                    .to_string()
                    .ends_with("is another turnpiked's, which runs")
            );
            assert!(Files::new(folder, "another", None).is_ok());
        });
    }
}
