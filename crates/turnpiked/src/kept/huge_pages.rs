//! Whether files of a folder lie in huge pages.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::libc;

/// Whether it is in a tmpfs whose files do that are large enough. Not if they are to be asked for (`huge=advise`): the room of these is
/// taken before anybody can ask.
pub(super) fn has_huge_pages(folder: &Path) -> bool {
    let device = fs::metadata(folder).map(|about| about.dev());
    let mounts = fs::read_to_string("/proc/self/mountinfo");
    match (device, mounts) {
        (Ok(device), Ok(mounts)) => are_huge(&mounts, device),
        _ => false,
    }
}

fn are_huge(mounts: &str, device: u64) -> bool {
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    mounts.lines().any(|line| {
        let Some((mount, file_system)) = line.split_once(" - ") else {
            return false;
        };
        let options = file_system.rsplit(' ').next().unwrap_or_default();
        let mut options = options.split(',');
        mount.split(' ').nth(2) == Some(&*device)
            && file_system.starts_with("tmpfs ")
            && options.any(|option| matches!(option, "huge=within_size" | "huge=always"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tmpfs_says_which_pages_its_files_have() {
        let mounts = "22 1 0:20 / /proc rw - proc proc rw\n\
            30 1 0:25 / /run rw,nosuid - tmpfs tmpfs rw,size=2048k,huge=advise\n\
            31 30 0:26 / /run/turnpike rw shared:3 master:1 - tmpfs tmpfs rw,size=2048k,huge=within_size,inode64\n\
            32 30 0:27 / /run/a rw - tmpfs tmpfs rw,huge=always\n\
            33 1 8:1 / / rw - ext4 /dev/sda rw,huge=always";
        let device = |minor| libc::makedev(0, minor);
        for (minor, expected) in [
            (25, false),
            (26, true),
            (27, true),
            (28, false),
            (20, false),
        ] {
            assert_eq!(are_huge(mounts, device(minor)), expected, "0:{minor}");
        }
        assert!(!are_huge(mounts, libc::makedev(8, 1)));
    }
}
