//! The program starts anew in the same process, with another configuration. N4's sockets go with it, so that no request is lost; sessions
//! and packets are where every start finds them. Should it fail before it serves N4, it starts once more, with the former configuration.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use command_fds::{CommandFdExt, FdMapping};
use report::{ConfigState, ReloadReport};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::recovery::harmless;

/// Environment variable with the path of [`Handed`] as JSON: too long for itself where many keys have changed.
const HANDED: &str = "TURNPIKED_HANDED";
/// First of the sockets that are handed over (sd_listen_fds(3)).
const FIRST_SOCKET: i32 = 3;

/// Given to the program that starts anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Handed {
    /// The former configuration and the new one.
    former: Text,
    new: Text,
    /// Path that it lies under itself.
    path: PathBuf,
    pub(crate) state: ConfigState,
    /// When the process began.
    pub(crate) since: SystemTime,
    /// Process that it was given to: others that it starts have the environment, too.
    process: u32,
}

/// Text of a configuration, and the time before its file was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) read_at: SystemTime,
}

impl Handed {
    /// `None`: this is no such start.
    pub(crate) fn read() -> Option<Self> {
        let octets = fs::read(std::env::var_os(HANDED)?).ok()?;
        let handed: Self = serde_json::from_slice(&octets).ok()?;
        (handed.process == std::process::id()).then_some(handed)
    }

    /// The configuration to run by.
    pub(crate) fn text(&self) -> &Text {
        match self.has_failed() {
            true => &self.former,
            false => &self.new,
        }
    }

    /// Whether the new configuration has.
    pub(crate) fn has_failed(&self) -> bool {
        let last = self.state.last.as_ref();
        last.is_some_and(|last| last.outcome == ReloadReport::FAILED)
    }

    /// N4 is served.
    pub(crate) fn settle(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// The state of the configuration, if this start succeeds.
    pub(crate) fn state(&self) -> ConfigState {
        let mut state = self.state.clone();
        if let Some(last) = state.last.as_mut().filter(|_| !self.has_failed()) {
            last.outcome = ReloadReport::IN_FORCE.to_owned();
        }
        state
    }

    /// Start once more, with the former configuration, because of this error. Returns only when that fails. `sockets`: none, where
    /// those that this start was given, if any, still wait for it.
    pub(crate) fn go_back(mut self, error: &str, sockets: Vec<UdpSocket>) -> io::Error {
        if let Some(last) = &mut self.state.last {
            last.outcome = ReloadReport::FAILED.to_owned();
            last.reasons = vec![error.to_owned()];
        }
        exec(&self, sockets)
    }
}

/// Start that is to come.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(super) former: Text,
    pub(super) new: Text,
    pub(super) state: ConfigState,
    /// The new one.
    pub(super) config: Arc<Config>,
}

impl Successor {
    /// Start the program anew. Returns only when that fails. `sockets`: N4's.
    pub(crate) fn start(self, sockets: Vec<UdpSocket>, since: SystemTime) -> io::Error {
        let own = harmless(&self.config.node.id.to_string());
        // Where sessions lie.
        let folder = self.config.state.dir.clone().unwrap_or_default();
        let handed = Handed {
            former: self.former,
            new: self.new,
            path: folder.join(format!("handed-{own}.json")),
            state: self.state,
            since,
            process: std::process::id(),
        };
        exec(&handed, sockets)
    }
}

fn exec(handed: &Handed, sockets: Vec<UdpSocket>) -> io::Error {
    if let Err(error) = write(handed) {
        return error;
    }
    let mut args = std::env::args_os();
    // The file may have been replaced: another program is another decision.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(args.next().unwrap_or_else(|| OsString::from("turnpiked")))
        .args(args)
        .env(HANDED, &handed.path);
    if !sockets.is_empty() {
        command
            .env("LISTEN_PID", std::process::id().to_string())
            .env("LISTEN_FDS", sockets.len().to_string());
        let sockets = sockets.into_iter().map(OwnedFd::from);
        let mappings = (FIRST_SOCKET..).zip(sockets);
        let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping {
            parent_fd,
            child_fd,
        });
        if let Err(error) = command.fd_mappings(mappings.collect()) {
            return io::Error::other(error);
        }
    }
    command.exec()
}

/// For this user alone, in place of what another start may have left.
fn write(handed: &Handed) -> io::Result<()> {
    let octets = serde_json::to_vec(handed)?;
    let _ = fs::remove_file(&handed.path);
    let mut options = fs::File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&handed.path)?;
    file.write_all(&octets).inspect_err(|_| {
        let _ = fs::remove_file(&handed.path);
    })
}
