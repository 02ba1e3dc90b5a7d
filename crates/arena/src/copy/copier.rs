//! Writes a copy, as its records change.

use std::io;

use super::changes::Changes;
use super::entry::{Entry, put};
use super::storage::{Name, PROCESS_AT, Stamp, Storage, VERSION};
use crate::{Memory, Seen, View};

/// A part of a snapshot is written and synced at once: what was committed meanwhile waits no longer than for that.
const PART_OCTETS: usize = 1 << 20;

/// When files are replaced.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Another log begins behind so many octets.
    pub log_octets: u64,
    /// Logs of fewer octets need no snapshot; nor do those of fewer than the last one has.
    pub snapshot_octets: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            log_octets: 64 << 20,
            snapshot_octets: 64 << 20,
        }
    }
}

/// A snapshot that is being written.
struct Snapshot {
    number: u64,
    /// The next place to be read.
    place: u32,
    /// Octets that are written.
    octets: u64,
    records: u32,
}

/// The writer of a copy.
pub struct Copier<S> {
    storage: S,
    header: Box<[u8]>,
    limits: Limits,
    /// The log that is written.
    log: u64,
    /// Octets of it.
    log_octets: u64,
    /// Octets of all logs behind the last snapshot.
    logs_octets: u64,
    /// Octets of that one.
    snapshot_octets: u64,
    /// Octets of logs behind which another snapshot is tried, as there was no room for one.
    postponed: u64,
    snapshot: Option<Snapshot>,
    buffer: Vec<u8>,
}

impl<S: Storage> Copier<S> {
    /// Begin to follow an arena: all that changes in it from now on is to be [committed](Self::commit), and all that is there to be
    /// [read](Self::look) and [sealed](Self::seal); then it is the copy.
    ///
    /// header: the caller's. goes_on: what the storage has is a copy of what the arena's records were before. Until the new one is
    /// sealed it is that. Otherwise it is removed. number: larger than at any time before, such as that of a clock: what is left on the disk
    /// of files that were there is no part of new ones.
    pub fn begin(
        mut storage: S,
        header: &[u8],
        (goes_on, number): (bool, u32),
        limits: Limits,
    ) -> io::Result<Self> {
        let names = storage.names()?;
        let last = names.iter().map(|name| name.process()).max();
        match goes_on {
            true => remove_unsealed(&mut storage, &names)?,
            false => remove_all(&mut storage)?,
        }
        let process = last.map_or(0, |last| last + 1).max(number.into());
        let mut copier = Self {
            storage,
            header: header.into(),
            limits,
            log: process << PROCESS_AT,
            log_octets: 0,
            logs_octets: 0,
            snapshot_octets: 0,
            postponed: 0,
            snapshot: None,
            buffer: Vec::new(),
        };
        copier.begin_log()?;
        copier.begin_snapshot()?;
        Ok(copier)
    }

    /// Have these changes outlive the host.
    pub fn commit(&mut self, changes: &Changes, at: Stamp) -> io::Result<()> {
        let log = Name::Log(self.log);
        self.buffer.clear();
        let begin = (log, self.log_octets);
        for (place, record) in changes.iter() {
            let entry = match record {
                Some(record) => Entry::Put(place, record),
                None => Entry::Remove(place),
            };
            put(entry, begin, &mut self.buffer);
        }
        put(Entry::Commit(at), begin, &mut self.buffer);
        self.append_to_log()?;
        self.storage.sync(log)?;
        let longest = self.snapshot_octets.max(self.limits.snapshot_octets);
        if self.snapshot.is_none() && self.logs_octets > longest + self.postponed {
            self.next_log()?;
            self.begin_snapshot()?;
        } else if self.log_octets > self.limits.log_octets {
            self.next_log()?;
        }
        Ok(())
    }

    /// Whether a snapshot is being written: then [`Self::look`] is to be called again and again.
    pub fn is_looking(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Octets of its files.
    pub fn octets(&self) -> u64 {
        let snapshot = self.snapshot.as_ref().map_or(0, |of| of.octets);
        self.snapshot_octets + self.logs_octets + snapshot
    }

    /// Read some more records for the snapshot that is being written. When all of them have been read, what has
    /// changed until then is to be committed, and then it is to be [sealed](Self::seal): true.
    pub fn look(&mut self, arena: &View<impl Memory>) -> io::Result<bool> {
        let Some(snapshot) = &mut self.snapshot else {
            return Ok(false);
        };
        let name = Name::Unsealed(snapshot.number);
        self.buffer.clear();
        let mut record = Vec::new();
        while snapshot.place < arena.places() && self.buffer.len() < PART_OCTETS {
            let place = snapshot.place;
            snapshot.place += 1;
            // One that is damaged is lost with this process, and so it is here.
            if arena.read(place, &mut record) == Seen::Record {
                put(
                    Entry::Put(place, &record),
                    (name, snapshot.octets),
                    &mut self.buffer,
                );
                snapshot.records += 1;
            }
        }
        snapshot.octets += self.buffer.len() as u64;
        let is_read = snapshot.place == arena.places();
        self.storage.append(name, &self.buffer)?;
        self.storage.sync(name)?;
        Ok(is_read)
    }

    /// Do without the snapshot that is being written, as there is no room for it. The copy that is there goes on.
    pub fn give_up_snapshot(&mut self) -> io::Result<()> {
        self.postponed = self.logs_octets;
        match self.snapshot.take() {
            Some(snapshot) => self.storage.remove(Name::Unsealed(snapshot.number)),
            None => Ok(()),
        }
    }

    /// The snapshot is the copy from now on, with the logs since it was begun. All that it has seen is committed.
    pub fn seal(&mut self) -> io::Result<()> {
        let Some(snapshot) = self.snapshot.take() else {
            return Ok(());
        };
        let (number, records) = (snapshot.number, snapshot.records);
        let (name, sealed) = (Name::Unsealed(number), Name::Snapshot(number));
        self.buffer.clear();
        put(
            Entry::Seal { records },
            (name, snapshot.octets),
            &mut self.buffer,
        );
        self.storage.append(name, &self.buffer)?;
        self.storage.sync(name)?;
        self.storage.rename(name, sealed)?;
        self.storage.sync_names()?;
        self.snapshot_octets = snapshot.octets + self.buffer.len() as u64;
        self.postponed = 0;
        for name in self.storage.names()? {
            if name.number() < number {
                self.storage.remove(name)?;
            }
        }
        self.storage.sync_names()
    }

    fn next_log(&mut self) -> io::Result<()> {
        self.buffer.clear();
        put(
            Entry::Close,
            (Name::Log(self.log), self.log_octets),
            &mut self.buffer,
        );
        self.append_to_log()?;
        self.storage.sync(Name::Log(self.log))?;
        self.log += 1;
        self.begin_log()
    }

    fn begin_log(&mut self) -> io::Result<()> {
        let log = Name::Log(self.log);
        self.log_octets = 0;
        self.begin_file(log)?;
        self.append_to_log()?;
        self.storage.sync(log)?;
        self.storage.sync_names()
    }

    fn append_to_log(&mut self) -> io::Result<()> {
        self.storage.append(Name::Log(self.log), &self.buffer)?;
        self.log_octets += self.buffer.len() as u64;
        self.logs_octets += self.buffer.len() as u64;
        Ok(())
    }

    /// All records from now on: those of before are in logs of before.
    fn begin_snapshot(&mut self) -> io::Result<()> {
        let name = Name::Unsealed(self.log);
        self.begin_file(name)?;
        self.storage.append(name, &self.buffer)?;
        self.logs_octets = self.log_octets;
        self.snapshot = Some(Snapshot {
            number: self.log,
            place: 0,
            octets: self.buffer.len() as u64,
            records: 0,
        });
        Ok(())
    }

    /// An empty file, whose first entry is in the buffer.
    fn begin_file(&mut self, name: Name) -> io::Result<()> {
        self.storage.create(name)?;
        self.buffer.clear();
        let begin = Entry::Begin {
            version: VERSION,
            header: &self.header,
        };
        put(begin, (name, 0), &mut self.buffer);
        Ok(())
    }
}

/// There is no copy any more.
pub fn remove_all(storage: &mut impl Storage) -> io::Result<()> {
    let (snapshots, others): (Vec<_>, Vec<_>) = storage
        .names()?
        .into_iter()
        .partition(|name| matches!(name, Name::Snapshot(_)));
    // Logs without a snapshot are no copy, but a snapshot with a part of its logs may be an older one.
    for names in [snapshots, others] {
        for name in names {
            storage.remove(name)?;
        }
        storage.sync_names()?;
    }
    Ok(())
}

/// Processes that have ended before they had a copy of their own leave nothing.
fn remove_unsealed(storage: &mut impl Storage, names: &[Name]) -> io::Result<()> {
    let snapshots = names
        .iter()
        .filter(|name| matches!(name, Name::Snapshot(_)));
    let copied = snapshots.map(|name| name.process()).max();
    for name in names {
        if Some(name.process()) != copied {
            storage.remove(*name)?;
        }
    }
    Ok(())
}
