//! Files that are this user's alone, and the parts of one with records.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::libc::O_NOFOLLOW;
use tables::{KeptFile, Words};

/// For answers, at the end of the file: more than are remembered.
pub(super) const ANSWERS_OCTETS: usize = 24 << 20;
/// End of the name of the file that is locked.
pub(super) const LOCK: &str = ".lock";

/// With this end of its name.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(end);
    name.into()
}

/// A file while it is being filled.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    beside(path, ".new")
}

/// One that is this user's alone. `None`: there is none.
pub(super) fn open_ours(path: &Path) -> Result<Option<File>> {
    let file = match open(path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let about = file.metadata()?;
    ensure!(
        about.uid() == nix::unistd::geteuid().as_raw() && about.mode() & 0o077 == 0,
        "it is not this user's alone"
    );
    Ok(Some(file))
}

/// Of this user alone, and no link.
pub(super) fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = options();
    options.create(create).open(path)
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.read(true).write(true);
    options.mode(0o600).custom_flags(O_NOFOLLOW);
    options
}

/// In place of one that may be there.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A file that somebody else makes under this name meanwhile does not get what we write.
    options().create_new(true).open(path)
}

/// Parts of a file: for records, and for answers.
pub(super) fn parts(file: File) -> Result<[Words; 2]> {
    let parts = Words::split(KeptFile::map(file)?, ANSWERS_OCTETS);
    parts.context("it is too short")
}
