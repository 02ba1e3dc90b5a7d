//! When we started, as SMFs hear it (Recovery Time Stamp, TS 29.244, 8.2.65): no two starts have the same, for an SMF tells a
//! restart by nothing else.
//!
//! The last one is in a file that outlives the process, so that two starts within a second differ, and one after the clock was
//! put back. Where there can be no such file, the start waits for a second that no start before it can have named.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::libc::O_NOFOLLOW;

use crate::system;

/// Folder of the stamps, unless RUNTIME_DIRECTORY names another, as systemd does (`RuntimeDirectory=`).
const FOLDER: &str = "/run/turnpike";

/// Recovery Time Stamp of this start, in NTP seconds, which come round in 2036. `node_id`: of the UPF whose starts must differ.
pub(crate) fn time_stamp(node_id: &str) -> u32 {
    let path = folder().join(name(node_id));
    let seconds = next(&path, system::ntp().as_secs()).unwrap_or_else(|error| {
        tracing::warn!(
            %error,
            "{path:?}: the last Recovery Time Stamp cannot be kept there: waiting for the next second, so that this one differs"
        );
        let now = system::ntp();
        std::thread::sleep(Duration::from_secs(now.as_secs() + 1).saturating_sub(now));
        system::ntp().as_secs()
    });
    (seconds & u64::from(u32::MAX)) as u32
}

/// Folder for the time that the host runs.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("RUNTIME_DIRECTORY").map_or(FOLDER.into(), PathBuf::from)
}

fn name(node_id: &str) -> String {
    format!("started-{}", harmless(node_id))
}

/// As a part of a file's name.
pub(crate) fn harmless(node_id: &str) -> String {
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
    let chars = node_id.chars();
    chars
        .map(|c| if is_harmless(c) { c } else { '_' })
        .collect()
}

/// Later than what the file has, and `now_s` if that is; the file has it from now on.
fn next(path: &Path, now_s: u64) -> io::Result<u64> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = File::options();
    options.read(true).write(true).create(true);
    options.mode(0o600).custom_flags(O_NOFOLLOW);
    let mut file = options.open(path)?;
    // Somebody else may start under the same Node ID, in another network namespace.
    file.lock()?;
    let mut text = String::new();
    let _ = (&mut file).take(64).read_to_string(&mut text);
    // Text that is no number says nothing.
    let last: u64 = text.trim().parse().unwrap_or(0);
    let seconds = now_s.max(last.saturating_add(1));
    file.rewind()?;
    writeln!(file, "{seconds:020}")?;
    file.set_len(21)?;
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(test: impl FnOnce(&Path)) {
        let folder =
            std::env::temp_dir().join(format!("turnpiked-recovery-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        test(&folder);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_starts_within_a_second_have_one_recovery_time_stamp() {
        in_folder(|folder| {
            let path = folder.join("new").join(name("upf.example"));
            assert_eq!(next(&path, 100).unwrap(), 100);
            assert_eq!(next(&path, 100).unwrap(), 101);
            assert_eq!(next(&path, 103).unwrap(), 103);
            assert_eq!(next(&path, 50).unwrap(), 104, "the clock was put back");
            for nonsense in ["", "soon", "-1", "99999999999999999999999"] {
                fs::write(&path, nonsense).unwrap();
                assert_eq!(next(&path, 200).unwrap(), 200, "{nonsense}");
            }
            fs::write(&path, u64::MAX.to_string()).unwrap();
            next(&path, 200).unwrap();
            let other = folder.join(name("../other\nupf"));
            assert_eq!(other.parent(), Some(folder));
            assert_eq!(next(&other, 7).unwrap(), 7);
            std::os::unix::fs::symlink(&other, folder.join("link")).unwrap();
            assert!(next(&folder.join("link"), 8).is_err(), "whose is it?");
        });
    }
}
