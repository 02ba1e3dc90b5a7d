//! Entries of files, as octets.

use std::io::{self, Read};

use super::storage::{Name, Stamp};
use crate::RECORD_MAX;

/// Octets of the checksum.
const CHECKSUM: usize = 4;
/// Octets in front of what an entry has.
const HEAD: usize = CHECKSUM + 9;
/// Octets that a begin may have beside the caller's header.
const BESIDE: usize = 64;

/// An entry of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'o> {
    Begin { version: u32, header: &'o [u8] },
    Put(u32, &'o [u8]),
    Remove(u32),
    Commit(Stamp),
    Close,
    Seal { records: u32 },
}

impl<'o> Entry<'o> {
    fn kind(self) -> u8 {
        match self {
            Self::Begin { .. } => 1,
            Self::Put(..) => 2,
            Self::Remove(_) => 3,
            Self::Commit(_) => 4,
            Self::Close => 5,
            Self::Seal { .. } => 6,
        }
    }

    /// The entry that these octets are, whose checksum is right. `None`: they are none.
    fn of(kind: u8, place: u32, octets: &'o [u8]) -> Option<Self> {
        let entry = match (kind, octets.len()) {
            (1, _) => {
                let (version, header) = octets.split_first_chunk()?;
                let version = u32::from_le_bytes(*version);
                Self::Begin { version, header }
            }
            (2, _) => return Some(Self::Put(place, octets)),
            (3, 0) => return Some(Self::Remove(place)),
            (4, 16) => {
                let (own_ns, wall_ns) = octets.split_first_chunk()?;
                let wall_ns = wall_ns.try_into().ok()?;
                Self::Commit(Stamp {
                    own_ns: u64::from_le_bytes(*own_ns),
                    wall_ns: u64::from_le_bytes(wall_ns),
                })
            }
            (5, 0) => Self::Close,
            (6, _) => Self::Seal {
                records: u32::from_le_bytes(octets.try_into().ok()?),
            },
            _ => return None,
        };
        (place == 0).then_some(entry)
    }
}

/// Appends an entry to octets, which begin at a position of a file.
pub(super) fn put(entry: Entry<'_>, (file, begin): (Name, u64), octets: &mut Vec<u8>) {
    let at = octets.len();
    octets.extend_from_slice(&[0; HEAD]);
    let mut of_place = 0;
    match entry {
        Entry::Begin { version, header } => {
            octets.extend_from_slice(&version.to_le_bytes());
            octets.extend_from_slice(header);
        }
        Entry::Put(place, record) => {
            of_place = place;
            octets.extend_from_slice(record);
        }
        Entry::Remove(place) => of_place = place,
        Entry::Commit(Stamp { own_ns, wall_ns }) => {
            octets.extend_from_slice(&own_ns.to_le_bytes());
            octets.extend_from_slice(&wall_ns.to_le_bytes());
        }
        Entry::Close => {}
        Entry::Seal { records } => octets.extend_from_slice(&records.to_le_bytes()),
    }
    let length = (octets.len() - at - HEAD) as u32;
    let written = &mut octets[at..];
    written[CHECKSUM] = entry.kind();
    written[CHECKSUM + 1..CHECKSUM + 5].copy_from_slice(&of_place.to_le_bytes());
    written[CHECKSUM + 5..HEAD].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(file, begin + at as u64, &written[CHECKSUM..]);
    written[..CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Octets of former files, or of another position, are no entry here, whatever a disk does with those that were not committed.
fn checksum(file: Name, at: u64, octets: &[u8]) -> u32 {
    let kind: u64 = match file {
        Name::Log(_) => 0,
        // One is written as the other.
        Name::Unsealed(_) | Name::Snapshot(_) => 1,
    };
    let mut checksum = 0;
    for word in [kind, file.number(), at] {
        checksum = crc32c::crc32c_append(checksum, &word.to_le_bytes());
    }
    crc32c::crc32c_append(checksum, octets)
}

/// Entries of a file, as long as they are whole.
pub(super) struct Entries<R> {
    file: Name,
    octets: R,
    /// Position behind the last entry.
    at: u64,
    /// Of the last entry, behind its checksum.
    buffer: Vec<u8>,
}

impl<R: Read> Entries<R> {
    pub(super) fn new(file: Name, octets: R) -> Self {
        let (at, buffer) = (0, Vec::new());
        Self {
            file,
            octets,
            at,
            buffer,
        }
    }

    /// Position behind the last entry that was whole.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next one. `None`: the file ends, or what follows is none.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry<'_>>> {
        let mut head = [0; HEAD];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let [a, b, c, d, kind, place @ .., e, f, g, h] = head;
        let length = u32::from_le_bytes([e, f, g, h]) as usize;
        if length > RECORD_MAX + BESIDE {
            return Ok(None);
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&head[CHECKSUM..]);
        // Memory is taken as octets come: a length is not to be trusted yet.
        let took = (&mut self.octets)
            .take(length as u64)
            .read_to_end(&mut self.buffer)?;
        let is_whole = took == length
            && checksum(self.file, self.at, &self.buffer) == u32::from_le_bytes([a, b, c, d]);
        if !is_whole {
            return Ok(None);
        }
        let octets = self.buffer.get(HEAD - CHECKSUM..).unwrap_or_default();
        let entry = Entry::of(kind, u32::from_le_bytes(place), octets);
        if entry.is_some() {
            self.at += (HEAD + length) as u64;
        }
        Ok(entry)
    }

    fn fill(&mut self, octets: &mut [u8]) -> io::Result<bool> {
        match self.octets.read_exact(octets) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}
