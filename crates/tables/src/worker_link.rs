//! What turnpiked and the process that its workers are in say to each other: over a socket in `state.dir`, where a turnpiked that comes later
//! finds that process.

use std::fs;
#[cfg(feature = "dpdk")]
use std::fs::Permissions;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
#[cfg(feature = "dpdk")]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    connect, getsockopt, recvmsg, sendmsg, setsockopt, socket,
};
#[cfg(feature = "dpdk")]
use nix::sys::socket::{Backlog, accept4, bind, listen, recv};
use nix::sys::time::TimeVal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The argument by which the process of workers is known.
pub const WORKERS: &str = "workers";

/// Octets of a message, at most.
const LONGEST: usize = 128 << 10;
/// Descriptors that come with one, at most.
const DESCRIPTORS: usize = 128;
/// Time within which workers take a connection and a request.
const SOON: Duration = Duration::from_secs(5);
/// ... within which they end: they give buffers and devices back.
const END: Duration = Duration::from_secs(5);
/// Connections that may wait.
#[cfg(feature = "dpdk")]
const WAITING: i32 = 16;

/// End of the name of the socket.
const SOCKET: &str = ".workers";
/// Octets of a socket's path, at most (`sun_path`), with the one that ends it.
const PATH: usize = 108;

/// One end of the connection.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

/// The end of workers is asked for by the one message that all versions know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Plain {
    End,
}

/// `None`: no socket can have such a long path.
fn path(front: &Path) -> Option<PathBuf> {
    let mut path = front.as_os_str().to_owned();
    path.push(SOCKET);
    (path.len() < PATH).then(|| path.into())
}

fn unix() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    Ok(socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        flags,
        None,
    )?)
}

/// Whether workers can be spoken to by a socket whose path begins like this.
pub fn can_have_workers(front: &Path) -> bool {
    path(front).is_some()
}

/// Ends workers that are in a process of their own, whose socket's path begins like this. Whether there were some. An error: they have not
/// ended.
pub fn end_workers(front: &Path) -> io::Result<bool> {
    let were_there = match Link::connect(front)? {
        Some(link) => link.end(None).map(|()| true)?,
        None => false,
    };
    if let Some(path) = path(front) {
        let _ = fs::remove_file(path);
    }
    Ok(were_there)
}

/// A socket for workers, in place of one that nobody has any more.
#[cfg(feature = "dpdk")]
pub(crate) fn listen_at(front: &Path) -> io::Result<OwnedFd> {
    let path = path(front).ok_or(Errno::ENAMETOOLONG)?;
    let _ = fs::remove_file(&path);
    let listener = unix()?;
    bind(listener.as_raw_fd(), &UnixAddr::new(&path)?)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    be_known(&listener)?;
    Ok(listener)
}

/// Whoever connects from now on knows this process by it.
#[cfg(feature = "dpdk")]
pub(crate) fn be_known(listener: &OwnedFd) -> io::Result<()> {
    Ok(listen(listener, Backlog::new(WAITING)?)?)
}

/// A process, whatever else gets its number.
#[derive(Debug)]
pub(crate) struct Process {
    fd: OwnedFd,
    pid: libc::pid_t,
}

impl Process {
    fn of(pid: libc::pid_t) -> Option<Self> {
        // SAFETY: no pointer is given.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: it was just made, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(Self { fd, pid })
    }

    /// Of workers.
    pub(crate) fn of_workers(pid: libc::pid_t) -> Option<Self> {
        if pid.cast_unsigned() == std::process::id() {
            return None;
        }
        let process = Self::of(pid)?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_it = line.split(|octet| *octet == 0).nth(1) == Some(WORKERS.as_bytes());
        is_it.then_some(process)
    }

    /// It has ended when this returns: it is killed if it has not.
    pub(crate) fn end(&self) -> io::Result<()> {
        if self.has_ended(Duration::ZERO) {
            return Ok(());
        }
        tracing::error!(threads = self.threads(), "workers are killed");
        self.kill()?;
        match self.has_ended(END) {
            true => Ok(()),
            false => Err(io::Error::other("workers do not end")),
        }
    }

    /// States of its threads, and where they wait: for whoever is to find out why they hang.
    fn threads(&self) -> String {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
        let tasks = tasks.into_iter().flatten().flatten();
        let of = |task: fs::DirEntry| {
            let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let status = read("status");
            let state = status.lines().find_map(|line| line.strip_prefix("State:"));
            let state = state.unwrap_or_default().trim();
            format!("{}: {state}, {}", read("comm").trim(), read("wchan").trim())
        };
        tasks.map(of).collect::<Vec<_>>().join("; ")
    }

    fn kill(&self) -> io::Result<()> {
        let none = std::ptr::null_mut::<libc::siginfo_t>();
        let fd = self.fd.as_raw_fd();
        // SAFETY: there is no siginfo.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
        match sent {
            0 => Ok(()),
            _ => match io::Error::last_os_error() {
                // It has just ended.
                error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
                error => Err(error),
            },
        }
    }

    /// Whether it has ended, within a time.
    fn has_ended(&self, within: Duration) -> bool {
        let time = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, time).is_ok_and(|ready| ready > 0)
    }
}

impl Link {
    /// With workers whose socket's path begins like this. `None`: there are none.
    pub(crate) fn connect(front: &Path) -> io::Result<Option<Self>> {
        let Some(path) = path(front) else {
            return Ok(None);
        };
        let link = Self(unix()?);
        // Of a queue that is full, the time that a connection waits for room.
        setsockopt(&link.0, SendTimeout, &time_of(SOON))?;
        match connect(link.0.as_raw_fd(), &UnixAddr::new(&path)?) {
            Ok(()) => {}
            Err(Errno::ENOENT | Errno::ECONNREFUSED) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let peer = getsockopt(&link.0, PeerCredentials)?;
        // Root may end workers of any user.
        match nix::unistd::geteuid().is_root() || link.is_ours() {
            true => Ok(Some(link)),
            false => Err(io::Error::other(format!(
                "workers of another user are there: end process {}",
                peer.pid()
            ))),
        }
    }

    /// Of the same user, or of root.
    fn is_ours(&self) -> bool {
        let own = nix::unistd::geteuid().as_raw();
        getsockopt(&self.0, PeerCredentials).is_ok_and(|peer| [0, own].contains(&peer.uid()))
    }

    /// The next one who connects, if it is the same user.
    #[cfg(feature = "dpdk")]
    pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<Self> {
        let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: it was just made, and nobody else has it.
        let link = Self(unsafe { OwnedFd::from_raw_fd(accepted) });
        match link.is_ours() {
            true => Ok(link),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Forget answers that came too late.
    #[cfg(feature = "dpdk")]
    pub(crate) fn forget_late(&self) -> io::Result<()> {
        let is_there = || {
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        };
        while is_there() && self.recv::<serde_json::Value>()?.is_some() {}
        Ok(())
    }

    /// From now on, an answer is waited for so long.
    pub(crate) fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        Ok(setsockopt(&self.0, ReceiveTimeout, &time_of(time))?)
    }

    pub(crate) fn send(&self, message: &impl Serialize, with: &[RawFd]) -> io::Result<()> {
        let octets = serde_json::to_vec(message)?;
        let rights = [ControlMessage::ScmRights(with)];
        let rights = if with.is_empty() { &[][..] } else { &rights };
        let parts = [IoSlice::new(&octets)];
        let socket = self.0.as_raw_fd();
        sendmsg::<()>(socket, &parts, rights, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// The next message, and descriptors that came with it. `None`: there is nobody any more.
    pub(crate) fn recv<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut octets = vec![0; LONGEST];
        let mut room = nix::cmsg_space!([RawFd; DESCRIPTORS]);
        let mut parts = [IoSliceMut::new(&mut octets)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let socket = self.0.as_raw_fd();
        let got = recvmsg::<()>(socket, &mut parts, Some(&mut room), flags);
        let got = match got {
            Err(Errno::ECONNRESET) => return Ok(None),
            got => got?,
        };
        let mut with = Vec::new();
        for rights in got.cmsgs()? {
            if let ControlMessageOwned::ScmRights(descriptors) = rights {
                // SAFETY: they have just come, and nobody else has them.
                with.extend(
                    descriptors
                        .into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        let len = got.bytes;
        if len == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&octets[..len])?;
        Ok(Some((message, with)))
    }

    /// Whether there is nobody any more at the other end.
    #[cfg(feature = "dpdk")]
    pub(crate) fn is_closed(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(self.0.as_raw_fd(), &mut [0], flags) {
            Ok(len) => len == 0,
            Err(error) => error != Errno::EAGAIN && error != Errno::EINTR,
        }
    }

    /// Ends the workers, and returns when their process has ended. Those that do not hear of it are killed. `process`: theirs, if it is known.
    pub(crate) fn end(self, process: Option<Process>) -> io::Result<()> {
        let peer = || Process::of_workers(getsockopt(&self.0, PeerCredentials).ok()?.pid());
        let process = process.or_else(peer);
        self.wait_at_most(END)?;
        // Those that cannot be told have gone, or do not listen: which of both is heard next.
        let _ = self.send(&Plain::End, &[]);
        let asked = self.until_closed();
        let Some(process) = process else {
            return asked;
        };
        if asked.is_ok() && process.has_ended(END) {
            return Ok(());
        }
        tracing::error!("workers do not end as they are asked to");
        process.end()
    }

    fn until_closed(&self) -> io::Result<()> {
        loop {
            match self.recv::<serde_json::Value>() {
                Ok(None) => return Ok(()),
                Ok(Some(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn time_of(time: Duration) -> TimeVal {
    TimeVal::new(
        time.as_secs().cast_signed(),
        time.subsec_micros().cast_signed().into(),
    )
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
