//! The files of the log of usage: one that is written, and older ones, `path.1` the youngest of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::lines::write_lines;

/// Octets of lines that are written at once.
const AT_ONCE: usize = 1 << 16;

/// Access to a file that is made: lines name users.
const MODE: u32 = 0o640;

/// Lines written and lost since the last look.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) written: u64,
    pub(super) lost: u64,
    /// Why they were lost.
    pub(super) error: Option<io::Error>,
    /// Why the file was not rolled though it was to be.
    pub(super) not_rolled: Option<io::Error>,
}

#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    max_bytes: u64,
    /// Older ones that are kept.
    kept: u32,
    /// `None`: to be opened again.
    file: Option<File>,
    /// Length of the file.
    bytes: u64,
    /// Its last line was not written to its end.
    torn: bool,
    /// Whole lines that are not in it yet.
    pending: Vec<u8>,
    tally: Tally,
}

impl Files {
    /// `files`: kept, the one that is written included. What is there already is appended to.
    pub(super) fn open(path: &Path, max_bytes: u64, files: u32) -> io::Result<Self> {
        let mut this = Self {
            path: path.to_owned(),
            max_bytes,
            kept: files.saturating_sub(1),
            file: None,
            bytes: 0,
            torn: false,
            pending: Vec::new(),
            tally: Tally::default(),
        };
        this.reopen()?;
        Ok(this)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// It is larger than it should be.
    pub(super) fn is_overdue(&self) -> bool {
        self.bytes > self.max_bytes
    }

    pub(super) fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    /// A line that cannot be written.
    pub(super) fn lose(&mut self) {
        self.tally.lost += 1;
    }

    /// One line, with its end.
    pub(super) fn line(&mut self, text: &[u8]) {
        let is_full = |this: &Self| {
            let there = this.bytes + this.pending.len() as u64;
            there > 0 && there + text.len() as u64 > this.max_bytes
        };
        if is_full(self) {
            self.flush();
            if is_full(self) {
                self.roll();
            }
        }
        self.pending.extend(text);
        if self.pending.len() >= AT_ONCE {
            self.flush();
        }
    }

    /// All lines so far are in the file, or lost.
    pub(super) fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut lines = std::mem::take(&mut self.pending);
        let (written, result) = match self.ready() {
            Ok(file) => write_lines(file, &lines),
            Err(error) => (0, Err(error)),
        };
        let whole = ends(lines.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        self.tally.written += whole;
        if let Err(error) = result {
            self.tally.lost += ends(&lines) - whole;
            self.tally.error = Some(error);
            // It may be another file by then, or have another end.
            self.file = None;
        }
        lines.clear();
        self.pending = lines;
    }

    /// The open file, at the beginning of a line.
    fn ready(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            self.reopen()?;
        }
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if self.torn {
            file.write_all(b"\n")?;
            self.bytes += 1;
            self.torn = false;
        }
        Ok(file)
    }

    /// Go on in the file that has the name now: the one so far has been moved away. Until it can be opened, each flush tries.
    pub(super) fn open_anew(&mut self) {
        self.flush();
        self.file = None;
        if let Err(error) = self.reopen() {
            self.tally.error = Some(error);
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).read(true);
        let file = options.mode(MODE).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        self.torn = match self.bytes.checked_sub(1) {
            Some(last) => {
                let mut end = [0];
                file.read_exact_at(&mut end, last)?;
                end != *b"\n"
            }
            None => false,
        };
        self.file = Some(file);
        Ok(())
    }

    /// Each becomes one older, the oldest goes, another one is begun. Where that cannot be done the one that there is
    /// goes on.
    fn roll(&mut self) {
        match self.rename_all().and_then(|()| self.reopen()) {
            Ok(()) => {}
            Err(error) => self.tally.not_rolled = Some(error),
        }
    }

    fn rename_all(&self) -> io::Result<()> {
        if self.kept == 0 {
            return std::fs::remove_file(&self.path);
        }
        // Up to the first gap, so that another try does not cost another file.
        let is_free = |number: &u32| !self.older(*number).exists();
        let free = (1..self.kept).find(is_free).unwrap_or(self.kept);
        for number in (1..free).rev() {
            std::fs::rename(self.older(number), self.older(number + 1))?;
        }
        std::fs::rename(&self.path, self.older(1))
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// Ends of lines.
fn ends(lines: &[u8]) -> u64 {
    lines.iter().filter(|octet| **octet == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("turnpike-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn open(path: &Path, max_bytes: u64, files: u32) -> Files {
        Files::open(path, max_bytes, files).unwrap()
    }

    fn write(files: &mut Files, lines: std::ops::Range<u32>) -> Tally {
        for line in lines {
            files.line(format!("{line}\n").as_bytes());
        }
        files.flush();
        files.take_tally()
    }

    #[test]
    fn files_roll_and_the_oldest_goes() {
        let folder = folder("roll");
        let path = folder.join("usage.jsonl");
        let mut files = open(&path, 4, 3);
        let tally = write(&mut files, 0..7);
        assert_eq!((tally.written, tally.lost), (7, 0));
        let all = [path.clone(), files.older(1), files.older(2), files.older(3)];
        let all = all.map(|path| read(&path));
        assert_eq!(all, ["6\n", "4\n5\n", "2\n3\n", ""]);
        // A file that is there is kept when the process starts anew.
        write(&mut open(&path, 4, 3), 7..8);
        assert_eq!(read(&path), "6\n7\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_of_one_file_begins_anew() {
        let folder = folder("one");
        let path = folder.join("usage.jsonl");
        let mut files = open(&path, 1, 1);
        write(&mut files, 0..3);
        assert_eq!(read(&path), "2\n");
        assert!(!files.older(1).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_line_begins_behind_one_that_was_not_written_to_its_end() {
        let folder = folder("torn");
        let path = folder.join("usage.jsonl");
        std::fs::write(&path, "0\n{\"half\"").unwrap();
        let mut files = open(&path, 1000, 2);
        assert_eq!(write(&mut files, 1..3).written, 2);
        assert_eq!(read(&path), "0\n{\"half\"\n1\n2\n");
        assert_eq!(files.bytes, read(&path).len() as u64);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_renamed_goes_on() {
        let folder = folder("stuck");
        let path = folder.join("usage.jsonl");
        let mut files = open(&path, 4, 2);
        std::fs::create_dir(files.older(1)).unwrap();
        let tally = write(&mut files, 0..5);
        assert_eq!((tally.written, tally.lost), (5, 0));
        assert!(tally.not_rolled.is_some() && tally.error.is_none());
        assert_eq!(read(&path), "0\n1\n2\n3\n4\n");
        std::fs::remove_dir(files.older(1)).unwrap();
        let tally = write(&mut files, 5..6);
        assert!(tally.not_rolled.is_none());
        assert_eq!(read(&path), "5\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_was_moved_away_is_let_go() {
        let folder = folder("moved");
        let path = folder.join("usage.jsonl");
        let mut files = open(&path, 1000, 2);
        write(&mut files, 0..1);
        std::fs::rename(&path, folder.join("moved")).unwrap();
        files.line(b"1\n");
        files.open_anew();
        write(&mut files, 2..3);
        assert_eq!(read(&folder.join("moved")), "0\n1\n");
        assert_eq!(read(&path), "2\n");
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o137, 0, "others may read it: {mode:o}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// As an interrupted or a failed try leaves them.
    #[test]
    fn older_files_behind_a_gap_stay() {
        let folder = folder("gap");
        let path = folder.join("usage.jsonl");
        let mut files = open(&path, 2, 4);
        std::fs::write(files.older(2), "old\n").unwrap();
        write(&mut files, 0..2);
        assert_eq!(read(&files.older(1)), "0\n");
        assert_eq!(read(&files.older(2)), "old\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Takes so many octets.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let room = self.1 - self.0.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = room.min(octets.len()).min(5);
            self.0.extend(&octets[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_on_a_full_disk_are_counted_one_by_one() {
        let lines = b"12\n34\n56\n78\n";
        for (room, whole) in [(0, 0), (2, 0), (3, 1), (8, 2), (12, 4), (20, 4)] {
            let mut disk = Disk(Vec::new(), room);
            let (written, result) = write_lines(&mut disk, lines);
            assert_eq!((written, result.is_ok()), (room.min(12), room >= 12));
            assert_eq!(ends(&lines[..written]), whole);
        }
    }
}
