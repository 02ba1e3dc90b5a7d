//! Writes a copy, as its records change.

use std::io::{self, BufReader};

use super::changes::Changes;
use super::entry::{Entries, Entry, put};
use super::storage::{Name, Stamp, Storage, VERSION};
use crate::{Memory, Seen, View};

/// A part of a snapshot is written and synced at once: what was committed meanwhile waits no longer than for that.
const PART_OCTETS: usize = 1 << 20;

/// When files are replaced.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Another log begins behind so many octets: as many are read when the next process goes on.
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
    snapshot: Option<Snapshot>,
    buffer: Vec<u8>,
}

impl<S: Storage> Copier<S> {
    /// Begin to follow an arena: all that changes in it from now on is to be [committed](Self::commit), and all that is there to be
    /// [read](Self::look), until the copy is there.
    ///
    /// header: the caller's. goes_on: what the storage has is a copy of this arena's records of now, by the same places and under
    /// the same header, but for what a process that has died had not written. It is the copy until there is another one. Otherwise
    /// it is removed, as it is of records that were.
    pub fn begin(mut storage: S, header: &[u8], goes_on: bool, limits: Limits) -> io::Result<Self> {
        let mut last = None;
        if goes_on {
            last = close_last(&mut storage)?;
        }
        // A snapshot behind the last log has lost its own: it is none, and is not to be taken for that of a later log.
        let names = storage.names()?;
        let is_behind = |last: u64| {
            let mut names = names.iter();
            names.any(|name| matches!(name, Name::Snapshot(number) if *number > last))
        };
        last = last.filter(|last| !is_behind(*last));
        if last.is_none() {
            remove_all(&mut storage)?;
        }
        let mut copier = Self {
            storage,
            header: header.into(),
            limits,
            log: last.map_or(0, |last| last + 1),
            log_octets: 0,
            logs_octets: 0,
            snapshot_octets: 0,
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
        if self.snapshot.is_none() && self.logs_octets > longest {
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
        for name in self.storage.names()? {
            if name.number() < number {
                self.storage.remove(name)?;
            }
        }
        self.storage.sync_names()
    }

    /// The storage, with the copy as it is.
    pub fn into_storage(self) -> S {
        self.storage
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
    let mut names = storage.names()?;
    // Without a snapshot no log is of use.
    names.sort_unstable_by_key(|name| std::cmp::Reverse(*name));
    for name in names {
        storage.remove(name)?;
    }
    storage.sync_names()
}

/// The last log ends with its last whole entry, and another one may follow it. `None`: there is no log.
fn close_last(storage: &mut impl Storage) -> io::Result<Option<u64>> {
    loop {
        let names = storage.names()?;
        let logs = names.iter().filter_map(|name| match name {
            Name::Log(number) => Some(*number),
            Name::Unsealed(_) | Name::Snapshot(_) => None,
        });
        let Some(last) = logs.max() else {
            return Ok(None);
        };
        let log = Name::Log(last);
        let mut entries = Entries::new(log, BufReader::new(storage.read(log)?));
        let has_begun = matches!(entries.next()?, Some(Entry::Begin { .. }));
        let mut is_closed = false;
        while has_begun && let Some(entry) = entries.next()? {
            is_closed = entry == Entry::Close;
            if is_closed {
                break;
            }
        }
        let end = entries.at();
        drop(entries);
        if !has_begun {
            // The process has died as it began.
            storage.remove(log)?;
            continue;
        }
        if !is_closed {
            storage.cut(log, end)?;
            let mut octets = Vec::new();
            put(Entry::Close, (log, end), &mut octets);
            storage.append(log, &octets)?;
            storage.sync(log)?;
        }
        return Ok(Some(last));
    }
}
