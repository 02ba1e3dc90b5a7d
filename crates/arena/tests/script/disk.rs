//! A disk that keeps what was synced, and of all else what it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use arena::copy::{Name, Storage};

/// Octets that a disk keeps or not.
const SECTOR: usize = 64;

/// Numbers that look random (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn octets(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

#[derive(Clone, Default)]
struct File {
    now: Vec<u8>,
    synced: Vec<u8>,
}

/// A folder in the memory of a host, and on its disk.
pub(crate) struct Disk {
    pub(crate) random: Random,
    files: Vec<File>,
    names: BTreeMap<Name, usize>,
    synced: BTreeMap<Name, usize>,
    /// Changes until the process, or its disk, fails; that one is made in part.
    pub(crate) left: usize,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            synced: BTreeMap::new(),
            left: usize::MAX,
        }
    }

    /// The host dies, and another one finds what the disk has kept.
    pub(crate) fn lose(&mut self) {
        let names: BTreeSet<Name> = self
            .names
            .keys()
            .chain(self.synced.keys())
            .copied()
            .collect();
        for name in names {
            if self.random.below(2) == 0 {
                continue;
            }
            match self.synced.get(&name) {
                Some(file) => self.names.insert(name, *file),
                None => self.names.remove(&name),
            };
        }
        self.synced = self.names.clone();
        for File { now, synced } in &mut self.files {
            let (short, long) = (now.len().min(synced.len()), now.len().max(synced.len()));
            let length = match self.random.below(3) {
                0 => short,
                1 => long,
                _ => short + self.random.below(long - short + 1),
            };
            let mut kept = synced.clone();
            kept.resize(long, 0);
            now.resize(long, 0);
            for (kept, now) in kept.chunks_mut(SECTOR).zip(now.chunks(SECTOR)) {
                match self.random.below(8) {
                    0..4 => kept.copy_from_slice(now),
                    // Octets that another file has left there.
                    4 if kept != now => kept.copy_from_slice(&self.random.octets(kept.len())),
                    _ => {}
                }
            }
            // All that was synced is there: appended octets come behind that.
            let is_same = now
                .iter()
                .zip(&*synced)
                .take_while(|(now, synced)| now == synced)
                .count();
            kept[..is_same].copy_from_slice(&synced[..is_same]);
            kept.truncate(length.max(is_same));
            *now = kept.clone();
            *synced = kept;
        }
    }

    /// Octets of a file, to be changed.
    pub(crate) fn octets(&mut self, name: Name) -> &mut Vec<u8> {
        let file = self.names[&name];
        &mut self.files[file].now
    }

    fn file(&mut self, name: Name) -> io::Result<&mut File> {
        let file = self.names.get(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(&mut self.files[*file])
    }

    fn act(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::Interrupted)?;
        Ok(())
    }
}

impl Storage for &mut Disk {
    fn names(&mut self) -> io::Result<Vec<Name>> {
        Ok(self.names.keys().copied().collect())
    }

    fn create(&mut self, name: Name) -> io::Result<()> {
        self.act()?;
        self.names.insert(name, self.files.len());
        self.files.push(File::default());
        Ok(())
    }

    fn append(&mut self, name: Name, octets: &[u8]) -> io::Result<()> {
        if self.left == 0 {
            let some = self.random.below(octets.len() + 1);
            self.file(name)?.now.extend_from_slice(&octets[..some]);
        }
        self.act()?;
        self.file(name)?.now.extend_from_slice(octets);
        Ok(())
    }

    fn sync(&mut self, name: Name) -> io::Result<()> {
        self.act()?;
        let file = self.file(name)?;
        file.synced.clone_from(&file.now);
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.act()?;
        self.synced.clone_from(&self.names);
        Ok(())
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        self.act()?;
        let file = self.names.remove(&from).ok_or(io::ErrorKind::NotFound)?;
        self.names.insert(to, file);
        Ok(())
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.act()?;
        self.names.remove(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(())
    }

    fn read(&mut self, name: Name) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(self.file(name)?.now.as_slice()))
    }
}
