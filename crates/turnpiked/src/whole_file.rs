//! A file that others find whole, or not at all.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

/// Write it in place of what was there, for turnpiked's user and root alone; `modified`: its time is that. It lies beside until it is
/// whole, and is never somebody else's file.
pub(crate) fn write(path: &Path, octets: &[u8], modified: Option<SystemTime>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().display();
    let unfinished = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&unfinished);
    let mut options = fs::File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    let written = file.write_all(octets);
    let timed = written.and_then(|()| modified.map_or(Ok(()), |time| file.set_modified(time)));
    let renamed = timed.and_then(|()| fs::rename(&unfinished, path));
    renamed.inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}
