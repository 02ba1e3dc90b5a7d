//! A file whose content outlives the process that writes it, as words of memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU64;

use crate::memory::View;

/// A file, mapped. Another process that has it sees each word as it was last written, however the writer ended.
#[derive(Debug)]
pub struct KeptFile {
    file: File,
    words: View<AtomicU64>,
}

impl KeptFile {
    /// The whole of a file that is open to be read and written. Nobody may make it shorter while it is mapped.
    pub fn map(file: File) -> io::Result<Self> {
        let octets = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let words = View::of_map(file.as_fd(), octets / size_of::<u64>())?;
        Ok(Self { file, words })
    }

    /// Its content.
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Has room taken for these octets, lest a store meet a file system that is full, which ends the process.
    pub fn back(&self, octets: Range<usize>) -> io::Result<()> {
        if octets.is_empty() {
            return Ok(());
        }
        let number = |octets| libc::off_t::try_from(octets).map_err(io::Error::other);
        let (from, more) = (number(octets.start)?, number(octets.len())?);
        loop {
            // SAFETY: no memory is touched.
            match unsafe { libc::posix_fallocate(self.file.as_raw_fd(), from, more) } {
                0 => break,
                // A signal has come.
                libc::EINTR => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

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
        assert!(KeptFile::map(File::open("/dev/null").unwrap()).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
