//! The host has died: the file in `state.dir` is made anew from its copy.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use arena::copy::Copied;
use session::{NodeRecord, Time};

use super::disk::wall_ns;
use super::files::{Files, Header, create};
use super::folder::Folder;
use super::own::unfinished;
use crate::clock::Clock;
use crate::system;

/// A wall clock may be put back by as much.
const CLOCK_BACK: Duration = Duration::from_secs(60);

impl Files {
    /// Have the file be there again, as of what was committed last. False: there is no copy, or none of use. Sessions whose copy
    /// is older than `age` are over: SMFs have ended them meanwhile.
    pub(super) fn restore(
        &self,
        disk: &Path,
        (boot, node_id): (&str, &str),
        age: Duration,
    ) -> Result<bool> {
        if !disk.exists() {
            return Ok(false);
        }
        let mut folder = Folder::open(disk, &self.name)?;
        let Some(copied) = Copied::find(&mut folder)? else {
            return Ok(false);
        };
        let header: Header = serde_json::from_slice(copied.header()).context("its header")?;
        ensure!(header.node_id == node_id, "it is of {:?}", header.node_id);
        if header.boot == boot || folder.has_served(boot) {
            // A file in memory that is gone while the host lives was removed: its sessions are over.
            tracing::warn!(
                "state.disk = {disk:?}: this host has not died: its sessions are not gone on with"
            );
            return Ok(false);
        }
        // Once for whether it is whole, and from when.
        let stamp = copied.read(&mut folder, |_, _| {})?;
        let ahead = Duration::from_nanos(stamp.wall_ns.saturating_sub(wall_ns()));
        ensure!(
            ahead < CLOCK_BACK,
            "nobody knows how old it is: the wall clock is {} s behind it",
            ahead.as_secs()
        );
        let since = Duration::from_nanos(wall_ns().saturating_sub(stamp.wall_ns));
        if since > age {
            tracing::warn!(
                after_s = since.as_secs(),
                "state.disk = {disk:?}: its sessions are over, by state.unmanaged_s"
            );
            return Ok(false);
        }
        let had_tables = header.tables > 0;
        let clock = Clock::saying(Time(stamp.own_ns).after(since));
        let header = Header {
            boot: boot.to_owned(),
            tables: 0,
            in_files: false,
            bpffs: None,
            clock_ahead_ns: clock.ahead_ns(),
            disk: Some(disk.to_owned()),
            ..header
        };
        let new = unfinished(&self.path);
        let (mut arena, _) = create(&new, &header)?;
        let mut full = None;
        copied.read(&mut folder, |place, record| match record {
            Some(record) => full = arena.put(place, record).err().or(full.take()),
            None => arena.remove(place),
        })?;
        if had_tables {
            // Counters that lack what those have counted would go back, and a reader takes that for a start: they do begin anew.
            arena.remove(header.counts());
        }
        if let Some(error) = full {
            return Err(error).context("state.dir");
        }
        let node = arena.get(header.node).context("it has no node")?;
        let node = NodeRecord::read(&node)?.behind_unseen_changes(system::random()?);
        arena.put(header.node, &node.write()).context("state.dir")?;
        fs::rename(&new, &self.path)?;
        // On a disk that is full the copy is of use all the same.
        if let Err(error) = folder.serves(boot) {
            tracing::warn!(%error, "state.disk = {disk:?}: it cannot be said there that this host has gone on with it");
        }
        tracing::info!(
            after_s = since.as_secs(),
            "state.disk = {disk:?}: sessions of before this host was started go on"
        );
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicU64;

    use arena::copy::{Changes, Copier, Limits, Name, Stamp, Storage};
    use arena::{Arena, View};

    use super::*;
    use crate::kept::files::tests::{BOOT, NODE, RECOVERY, UPF, in_folder};

    const AGE: Duration = Duration::from_secs(3600);
    /// Time of the former host's clock, far from this one's.
    const FORMER_NS: u64 = 1 << 55;

    /// A host has left a copy so long ago, with a session and one that is gone.
    fn leave(files: &Files, disk: &Path, ago: Duration) {
        let header = Header {
            boot: "the one before".to_owned(),
            node_id: UPF.to_owned(),
            recovery_time_stamp: RECOVERY,
            seed: 5,
            node: 100,
            tables: 7,
            in_files: false,
            bpffs: Some("/run/turnpike-bpf".into()),
            ports: vec!["n3".to_owned()],
            instances: Vec::new(),
            clock_ahead_ns: 0,
            disk: Some(disk.to_owned()),
        };
        let octets = arena::octets_for(103, 400);
        let words: Vec<AtomicU64> = (0..octets / 8).map(|_| AtomicU64::new(0)).collect();
        let mut arena = Arena::create(&words[..], 103, &[]).unwrap();
        arena.put(100, NODE).unwrap();
        arena.put(8, b"gone later").unwrap();
        arena.put(102, b"counters").unwrap();
        let folder = Folder::create(disk, &files.name).unwrap();
        let header = serde_json::to_vec(&header).unwrap();
        let mut copier = Copier::begin(folder, &header, (false, 0), Limits::default()).unwrap();
        assert!(copier.look(&View::open(&words[..]).unwrap()).unwrap());
        let mut changes = Changes::default();
        changes.put(7, b"a session");
        changes.remove(8);
        let stamp = Stamp {
            own_ns: FORMER_NS,
            wall_ns: wall_ns() - ago.as_nanos() as u64,
        };
        copier.commit(&changes, stamp).unwrap();
        copier.seal().unwrap();
    }

    #[test]
    fn sessions_of_a_host_go_on_at_another_one() {
        in_folder(|folder, files| {
            let disk = folder.join("disk");
            assert!(!files.restore(&disk, (BOOT, UPF), AGE).unwrap());
            let ago = Duration::from_secs(90);
            leave(&files, &disk, ago);
            assert!(files.restore(&disk, (BOOT, UPF), AGE).unwrap());
            let former = files.former(BOOT, UPF).unwrap().unwrap();
            let records: Vec<_> = former.arena.records().collect();
            assert_eq!(records[0], (7, b"a session".to_vec()));
            assert_eq!((records.len(), records[1].0), (2, 100));
            let header = &former.header;
            assert_eq!((header.tables, &header.bpffs), (0, &None));
            assert_eq!(header.recovery_time_stamp, RECOVERY);
            // Its clock has gone on for as long as no host was there.
            let now = Clock::ahead_by(header.clock_ahead_ns).now().0;
            let since = Duration::from_nanos(now - FORMER_NS);
            assert!(
                (ago..ago + Duration::from_secs(60)).contains(&since),
                "{since:?}"
            );
            // Numbers that the former host may have given out unseen are not given out anew.
            let before = NodeRecord::read(NODE).unwrap();
            assert_ne!(records[1].1, before.write());
        });
    }

    /// Such as one that is full.
    #[test]
    fn a_disk_that_takes_nothing_more_gives_what_it_has() {
        in_folder(|folder, files| {
            let disk = folder.join("disk");
            leave(&files, &disk, Duration::ZERO);
            fs::create_dir(disk.join(format!("{}.boot", files.name))).unwrap();
            assert!(files.restore(&disk, (BOOT, UPF), AGE).unwrap());
            assert!(files.former(BOOT, UPF).unwrap().is_some());
        });
    }

    #[test]
    fn a_copy_that_is_no_use_is_left_alone() {
        in_folder(|folder, files| {
            let disk = folder.join("disk");
            leave(&files, &disk, AGE * 2);
            assert!(!files.restore(&disk, (BOOT, UPF), AGE).unwrap());
            leave(&files, &disk, Duration::ZERO);
            // The host lives: its sessions were removed.
            let before = ("the one before", UPF);
            assert!(!files.restore(&disk, before, AGE).unwrap());
            let other = files.restore(&disk, (BOOT, "another"), AGE).unwrap_err();
            assert_eq!(other.to_string(), format!("it is of {UPF:?}"));
            let mut names = Folder::open(&disk, &files.name).unwrap().names().unwrap();
            names.retain(|name| matches!(name, Name::Snapshot(_)));
            let snapshot = disk.join(format!("{}.{}", files.name, names[0]));
            let file = File::options().write(true).open(snapshot).unwrap();
            file.write_all_at(&[0xff], 300).unwrap();
            assert!(files.restore(&disk, (BOOT, UPF), AGE).is_err());
            assert!(files.former(BOOT, UPF).unwrap().is_none());
            assert!(crate::kept::disk::remove(&disk, &files.name).unwrap());
            assert!(!crate::kept::disk::remove(&disk, &files.name).unwrap());
        });
    }
}
