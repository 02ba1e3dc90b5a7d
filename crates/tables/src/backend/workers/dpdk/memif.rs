//! Sockets of net_memif. A server's driver makes the file, and removes it when its device closes: that of a process that was
//! killed stays, and the driver binds to none that is there.

use std::fs::{remove_file, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Remove the socket file that a device is going to make, if nobody has it open.
pub(super) fn clear_the_way(device: &str) -> io::Result<()> {
    match socket(device).map(Path::new) {
        Some(path) if is_deserted(path) => {
            tracing::info!(path = %path.display(), "a socket that nobody has open is removed");
            remove_file(path)
        }
        _ => Ok(()),
    }
}

/// The file that a server is going to make. Names in the abstract namespace, the default, go with their process.
fn socket(device: &str) -> Option<&str> {
    let mut parts = device.split(',');
    parts.next().filter(|name| name.starts_with("net_memif"))?;
    let value = |key| {
        let mut values = parts.clone().filter_map(|part| part.split_once('='));
        values.find_map(|(name, value)| (name == key).then_some(value))
    };
    let serves = value("role").is_some_and(|role| ["server", "master"].contains(&role));
    let is_file = value("socket-abstract") == Some("no");
    value("socket").filter(|_| serves && is_file)
}

/// A socket of another kind than ours, as the driver's is, answers that it is one.
fn is_deserted(path: &Path) -> bool {
    let is_socket = symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refuses = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refuses)
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, remove_dir_all, write};
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_server_of_memif_that_was_killed_does_not_start_again() {
        let folder = std::env::temp_dir().join(format!("turnpike-memif-{}", std::process::id()));
        create_dir(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        // A file, a socket that is open, and one whose owner is gone.
        write(path("file"), "").unwrap();
        let open = UnixDatagram::bind(path("open")).unwrap();
        drop(UnixDatagram::bind(path("left")).unwrap());
        let device = |name, role| {
            let path = path(name);
            format!(
                "net_memif0,role={role},socket={},socket-abstract=no",
                path.display()
            )
        };
        clear_the_way(&device("left", "client")).unwrap();
        clear_the_way(&device("left", "server").replace("=no", "=yes")).unwrap();
        clear_the_way(&device("left", "server").replace("memif", "tap")).unwrap();
        for name in ["file", "open", "left"] {
            assert!(path(name).exists(), "{name}");
            clear_the_way(&device(name, "server")).unwrap();
            assert_eq!(path(name).exists(), name != "left", "{name}");
        }
        clear_the_way(&device("none", "server")).unwrap();
        drop(open);
        remove_dir_all(&folder).unwrap();
    }
}
