//! A file whose content outlives the process that writes it, as words of memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::memory::{self, View};
use arena::Memory;

/// A file, mapped. Another process that has it sees each word as it was last written, however the writer ended.
#[derive(Debug)]
pub struct KeptFile {
    /// `None`: there is no file, but memory alone.
    file: Option<File>,
    words: View<AtomicU64>,
}

impl KeptFile {
    /// The whole of a file that is open to be read and written. Nobody may make it shorter while it is mapped.
    pub fn map(file: File) -> io::Result<Self> {
        let octets = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let words = View::of_map(file.as_fd(), octets / size_of::<u64>())?;
        let file = Some(file);
        Ok(Self { file, words })
    }

    /// Memory of so many octets, which ends with the process and has room as it is written.
    pub fn anonymous(octets: usize) -> io::Result<Self> {
        let words = View::anonymous(octets / size_of::<u64>())?;
        Ok(Self { file: None, words })
    }

    /// Its content.
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Has room taken for these octets.
    fn back(&self, octets: Range<usize>) -> io::Result<()> {
        match &self.file {
            Some(file) => take_room(file.as_raw_fd(), octets),
            None => Ok(()),
        }
    }

    /// Gives back the room of these octets, the last ones, which are 0 then. A file system that cannot keeps it.
    fn give_back(&self, octets: Range<usize>) {
        let Some(file) = &self.file else {
            return self.words.give_back(octets.start / size_of::<u64>());
        };
        let (from, octets) = (octets.start as libc::off_t, octets.len() as libc::off_t);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: nobody but this mapping and others of the file see it, as atomics.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, from, octets) };
    }
}

/// Has room taken for these octets of a file, lest a store meet a file system that is full, which ends the process.
pub(crate) fn take_room(file: RawFd, octets: Range<usize>) -> io::Result<()> {
    if octets.is_empty() {
        return Ok(());
    }
    let number = |octets| libc::off_t::try_from(octets).map_err(io::Error::other);
    let (from, more) = (number(octets.start)?, number(octets.len())?);
    loop {
        // SAFETY: no memory is touched.
        match unsafe { libc::posix_fallocate(file, from, more) } {
            0 => return Ok(()),
            // A signal has come.
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// A part of a file, for records.
#[derive(Debug)]
pub struct Words {
    file: Arc<KeptFile>,
    /// Octets of it.
    part: Range<usize>,
    /// Octets of the part, from its beginning, whose room is taken.
    backed: usize,
}

impl Words {
    /// All of a file.
    pub fn all(file: KeptFile) -> Self {
        let octets = size_of_val(file.words());
        Self::part(&Arc::new(file), 0..octets)
    }

    /// All but so many octets at the end, and these. `None`: the file is shorter.
    pub fn split(file: KeptFile, last: usize) -> Option<[Self; 2]> {
        let octets = size_of_val(file.words());
        let at = octets.checked_sub(last)?;
        let file = Arc::new(file);
        Some([Self::part(&file, 0..at), Self::part(&file, at..octets)])
    }

    fn part(file: &Arc<KeptFile>, part: Range<usize>) -> Self {
        Self {
            file: Arc::clone(file),
            part,
            backed: 0,
        }
    }
}

impl Memory for Words {
    fn words(&self) -> &[AtomicU64] {
        let Range { start, end } = self.part;
        let words = start / size_of::<AtomicU64>()..end / size_of::<AtomicU64>();
        self.file.words().get(words).unwrap_or_default()
    }

    fn back(&mut self, octets: usize) -> io::Result<()> {
        if octets > self.backed {
            let start = self.part.start;
            self.file.back(start + self.backed..start + octets)?;
            self.backed = octets;
        }
        Ok(())
    }

    fn give_back(&mut self, from: usize) {
        self.file.give_back(self.part.start + from..self.part.end);
        self.backed = self.backed.min(from);
    }

    fn expect(&self, word: usize) {
        if let Some(word) = self.words().get(word) {
            memory::expect(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn memory_alone_is_given_back_too() {
        let mut words = Words::all(KeptFile::anonymous(64 << 20).unwrap());
        words.back(64 << 20).unwrap();
        for word in words.words() {
            word.store(7, Ordering::Relaxed);
        }
        words.give_back(1 << 16);
        let (kept, given) = words.words().split_at(1 << 13);
        assert!(kept.iter().all(|word| word.load(Ordering::Relaxed) == 7));
        assert!(given.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn whoever_maps_the_file_next_sees_what_was_written() {
        let path = std::env::temp_dir().join(format!("turnpike-kept-file-{}", std::process::id()));
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&path).unwrap()
        };
        let file = open();
        file.set_len(1 << 20).unwrap();
        let first = KeptFile::map(file).unwrap();
        assert_eq!(first.words().len(), 1 << 17);
        first.back(0..4096).unwrap();
        first.back(4096..1 << 20).unwrap();
        first.words()[70_000].store(7, Ordering::Relaxed);
        let second = KeptFile::map(open()).unwrap();
        assert_eq!(second.words()[70_000].load(Ordering::Relaxed), 7);
        second.give_back(4096..1 << 20);
        assert_eq!(first.words()[70_000].load(Ordering::Relaxed), 0);
        assert!(KeptFile::map(File::open("/dev/null").unwrap()).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
