//! Any octets as the files of a copy, for the fuzz target.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{self, Read};

use arena::copy::{Changes, Copied, Copier, Limits, Name, Stamp, Storage};

/// Files in memory, as they are.
#[derive(Default)]
struct Files(BTreeMap<Name, Vec<u8>>);

impl Files {
    fn file(&mut self, name: Name) -> io::Result<&mut Vec<u8>> {
        self.0.get_mut(&name).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Storage for &mut Files {
    fn names(&mut self) -> io::Result<Vec<Name>> {
        Ok(self.0.keys().copied().collect())
    }

    fn create(&mut self, name: Name) -> io::Result<()> {
        self.0.insert(name, Vec::new());
        Ok(())
    }

    fn append(&mut self, name: Name, octets: &[u8]) -> io::Result<()> {
        self.file(name)?.extend_from_slice(octets);
        Ok(())
    }

    fn sync(&mut self, _: Name) -> io::Result<()> {
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        let file = self.0.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        self.0.insert(to, file);
        Ok(())
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.0.remove(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn read(&mut self, name: Name) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.file(name)?.as_slice()))
    }
}

/// Of the first octet of a file: its octets are entries without checksums.
const SEALED: u8 = 0x40;

/// Entries with the checksums that they need to be read: kind, place and length, an octet each, and octets.
fn sealed(name: Name, number: u64, mut entries: &[u8]) -> Vec<u8> {
    let of_file = u64::from(!matches!(name, Name::Log(_)));
    let mut file = Vec::new();
    while let Some((&[kind, place, length], rest)) = entries.split_first_chunk() {
        let (octets, rest) = rest.split_at(usize::from(length).min(rest.len()));
        entries = rest;
        let mut behind = vec![kind];
        behind.extend_from_slice(&u32::from(place).to_le_bytes());
        behind.extend_from_slice(&(octets.len() as u32).to_le_bytes());
        behind.extend_from_slice(octets);
        let mut checksum = 0;
        for word in [of_file, number, file.len() as u64] {
            checksum = crc32c::crc32c_append(checksum, &word.to_le_bytes());
        }
        checksum = crc32c::crc32c_append(checksum, &behind);
        file.extend_from_slice(&checksum.to_le_bytes());
        file.extend_from_slice(&behind);
    }
    file
}

/// Files by their octets: kind and number, length, octets, of each. What they say is read, and gone on with as by a process.
pub(crate) fn run(mut input: &[u8]) {
    let mut files = Files::default();
    while let Some((&[which, low, high], rest)) = input.split_first_chunk() {
        let number = u64::from(which / 4 % 4);
        let name = match which % 4 {
            0 | 1 => Name::Log(number),
            2 => Name::Snapshot(number),
            _ => Name::Unsealed(number),
        };
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (octets, rest) = rest.split_at(length);
        input = rest;
        let octets = match which & SEALED {
            0 => octets.to_vec(),
            _ => sealed(name, number, octets),
        };
        files.0.insert(name, octets);
    }
    let read = |files: &mut Files| {
        let mut storage = files;
        let copied = Copied::find(&mut storage).ok()??;
        let mut records = BTreeMap::new();
        let stamp = copied.read(&mut storage, |place, record| {
            match record {
                Some(record) => records.insert(place, record.to_vec()),
                None => records.remove(&place),
            };
        });
        Some((records, stamp.ok()?))
    };
    let before = read(&mut files);
    let mut copier = Copier::begin(&mut files, b"another", (true, 0), Limits::default()).unwrap();
    let mut changes = Changes::default();
    changes.put(7, b"one more");
    copier.commit(&changes, Stamp::default()).unwrap();
    drop(copier);
    // A process that goes on leaves the copy that was.
    assert_eq!(read(&mut files), before);
}
