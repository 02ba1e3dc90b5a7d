//! The file by which programs of this host find REST, and may change something there.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use report::Access;

use crate::system;
use crate::whole_file;

/// Removes the file when it is dropped.
#[derive(Debug)]
pub(crate) struct Offered {
    path: PathBuf,
}

impl Drop for Offered {
    fn drop(&mut self) {
        let is_ours = |octets: Vec<u8>| {
            let read: Option<Access> = serde_json::from_slice(&octets).ok();
            read.is_some_and(|of| of.process == std::process::id())
        };
        // Another turnpiked of the same folder may have written it since.
        if fs::read(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Offered {
    /// The next start in this process has it.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

/// A token that nobody else can know.
pub(crate) fn new_token() -> io::Result<String> {
    let halves = [system::random()?, system::random()?];
    Ok(format!("{:016x}{:016x}", halves[0], halves[1]))
}

/// Write it, for turnpiked's user and root alone. Its time is that before the configuration was read: one whose file is younger has not been.
pub(crate) fn offer(
    folder: &Path,
    (listen, token): (SocketAddr, &str),
    read_at: SystemTime,
) -> io::Result<Offered> {
    let access = Access {
        api: format!("http://{}", reached_by(listen)),
        token: token.to_owned(),
        process: std::process::id(),
    };
    fs::create_dir_all(folder)?;
    let path = folder.join(Access::NAME);
    whole_file::write(&path, &serde_json::to_vec(&access)?, Some(read_at))?;
    Ok(Offered { path })
}

/// An address of this host by which it listens.
fn reached_by(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn nobody_else_reads_it_and_it_goes_with_the_process() {
        let folder = std::env::temp_dir().join(format!("turnpiked-access-{}", std::process::id()));
        let read_at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
        let listen = "[::]:8806".parse().unwrap();
        let offer = || offer(&folder, (listen, "0123456789abcdef"), read_at).unwrap();
        let first = offer();
        let path = folder.join(Access::NAME);
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert_eq!(found.modified().unwrap(), read_at);
        let read: Access = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(read.api, "http://[::1]:8806");
        assert_eq!(read.token, "0123456789abcdef");
        first.leave();
        drop(offer());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn tokens_differ() {
        let [one, another] = [(), ()].map(|()| new_token().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, another);
    }
}
