//! Reads a copy.

use std::io::{self, BufReader, Read};

use super::entry::{Entries, Entry};
use super::storage::{Name, Stamp, Storage, VERSION};

/// Octets that are read at once.
const READ: usize = 1 << 20;

/// Why a copy cannot be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum Unrestored {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A file is not there, or has not all that was committed.
    #[error("{file} is damaged at octet {at}")]
    Damaged {
        /// Name of the file.
        file: Name,
        /// End of its whole entries.
        at: u64,
    },
    /// Another version of the layout.
    #[error("{file} is of layout {version}")]
    Version {
        /// Name of the file.
        file: Name,
        /// Of the layout.
        version: u32,
    },
}

/// A copy that is there.
#[derive(Debug)]
pub struct Copied {
    /// Of the last snapshot.
    number: u64,
    header: Vec<u8>,
}

impl Copied {
    /// The copy in a storage. `None`: there is none.
    pub fn find(storage: &mut impl Storage) -> Result<Option<Self>, Unrestored> {
        let names = storage.names()?;
        let snapshots = names.iter().filter_map(|name| match name {
            Name::Snapshot(number) => Some(*number),
            Name::Log(_) | Name::Unsealed(_) => None,
        });
        let Some(number) = snapshots.max() else {
            return Ok(None);
        };
        let mut file = File::open(storage, Name::Snapshot(number))?;
        let header = file.begin()?;
        Ok(Some(Self { number, header }))
    }

    /// The header that its process gave.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// All changes that lead to it, each a place with its record, or none. When the last one of them was
    /// committed. On an error, what was read is of no use.
    pub fn read(
        &self,
        storage: &mut impl Storage,
        mut each: impl FnMut(u32, Option<&[u8]>),
    ) -> Result<Stamp, Unrestored> {
        let mut names = storage.names()?;
        let process = Name::Snapshot(self.number).process();
        names.retain(|name| name.process() == process);
        self.read_snapshot(storage, &mut each)?;
        let mut stamp = Stamp::default();
        for number in self.number.. {
            let log = Name::Log(number);
            let is_first = number == self.number;
            let is_there = names.contains(&log);
            names.retain(|name| matches!(name, Name::Log(of) if *of > number));
            let is_last = names.is_empty();
            if !is_there {
                // The first one had begun before the snapshot did.
                return match is_last && !is_first {
                    true => Ok(stamp),
                    false => Err(Unrestored::Damaged { file: log, at: 0 }),
                };
            }
            let mut file = File::open(storage, log)?;
            let begun = file.begin();
            match begun {
                // Nothing was committed to one that had hardly begun.
                Err(Unrestored::Damaged { .. }) if is_last && !is_first => return Ok(stamp),
                begun => begun?,
            };
            let mut is_closed = false;
            while let Some(entry) = file.entries.next()? {
                match entry {
                    Entry::Put(place, record) => each(place, Some(record)),
                    Entry::Remove(place) => each(place, None),
                    Entry::Commit(at) => stamp = at,
                    Entry::Close => {
                        is_closed = true;
                        break;
                    }
                    Entry::Begin { .. } | Entry::Seal { .. } => return Err(file.damaged()),
                }
            }
            if !is_closed && !is_last {
                return Err(file.damaged());
            }
            if !is_closed {
                return Ok(stamp);
            }
        }
        Ok(stamp)
    }

    fn read_snapshot(
        &self,
        storage: &mut impl Storage,
        each: &mut impl FnMut(u32, Option<&[u8]>),
    ) -> Result<(), Unrestored> {
        let mut file = File::open(storage, Name::Snapshot(self.number))?;
        file.begin()?;
        let mut count = 0_u32;
        loop {
            match file.entries.next()? {
                Some(Entry::Put(place, record)) => {
                    count = count.saturating_add(1);
                    each(place, Some(record));
                }
                Some(Entry::Seal { records }) if records == count => return Ok(()),
                _ => return Err(file.damaged()),
            }
        }
    }
}

/// A file while it is read.
struct File<R> {
    name: Name,
    entries: Entries<BufReader<R>>,
}

impl<'s> File<Box<dyn Read + 's>> {
    fn open(storage: &'s mut impl Storage, name: Name) -> io::Result<Self> {
        let octets = BufReader::with_capacity(READ, storage.read(name)?);
        let entries = Entries::new(name, octets);
        Ok(Self { name, entries })
    }
}

impl<R: Read> File<R> {
    fn damaged(&self) -> Unrestored {
        Unrestored::Damaged {
            file: self.name,
            at: self.entries.at(),
        }
    }

    /// The header, behind which other entries follow.
    fn begin(&mut self) -> Result<Vec<u8>, Unrestored> {
        let (file, at) = (self.name, self.entries.at());
        match self.entries.next()? {
            Some(Entry::Begin { version, .. }) if version != VERSION => {
                Err(Unrestored::Version { file, version })
            }
            Some(Entry::Begin { header, .. }) => Ok(header.to_vec()),
            _ => Err(Unrestored::Damaged { file, at }),
        }
    }
}
