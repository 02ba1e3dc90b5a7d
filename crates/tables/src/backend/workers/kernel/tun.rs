//! TUN interfaces that the kernel brings packets to UEs by.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use nexthop::netlink::Lead;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, checked, ethernet, unless_it_would_block};
use crate::backend::ifindex_of;
use crate::error::SetupError;

/// Octets of the longest packet.
const PACKET_MAX: usize = 1 << 16;

/// The name of the TUN interface for UEs behind an interface towards the data network.
fn name_of(interface: &str) -> String {
    let room = libc::IFNAMSIZ - 1 - SUFFIX.len();
    let end = interface.len().min(room);
    format!("{}{SUFFIX}", interface.get(..end).unwrap_or_default())
}

const SUFFIX: &str = "-ue";

/// A request about an interface.
pub(in crate::backend::workers) fn request(name: &str) -> libc::ifreq {
    // SAFETY: zeroes are a request about an interface without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let octets = name.bytes().take(libc::IFNAMSIZ - 1);
    for (to, octet) in request.ifr_name.iter_mut().zip(octets) {
        *to = octet as libc::c_char;
    }
    request
}

/// Device file that becomes an interface; reads and writes do not block.
pub(in super::super) fn device() -> io::Result<File> {
    const PATH: &str = "/dev/net/tun";
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let opened = options.custom_flags(libc::O_NONBLOCK).open(PATH);
    opened.map_err(|error| named(PATH, error))
}

/// Be the interface of this name, of whole packets without a header in front.
pub(in super::super) fn become_interface(
    file: &File,
    name: &str,
    kind: libc::c_int,
) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request is ours and lives through the call.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) }).map(drop)
}

/// Pause between attempts to make anew what was deleted.
const AGAIN: Duration = Duration::from_secs(1);

/// One queue of a TUN interface, which is there as long as one of its queues, or until somebody deletes it.
#[derive(Debug)]
pub(super) struct TunQueue {
    name: String,
    /// `None`: it was deleted, and this one is to be its next.
    file: Option<File>,
    again: Instant,
    room: Box<[u8]>,
}

impl AsRawFd for TunQueue {
    /// -1, which `poll` passes over, while it is not there.
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl TunQueue {
    /// A further queue of the TUN interface for an interface towards the data network.
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let name = name_of(interface);
        Ok(Self {
            file: Some(queue_of(&name)?),
            name,
            again: Instant::now(),
            room: vec![0; PACKET_MAX].into(),
        })
    }

    /// Make the interface anew if it was deleted. Whether it was, and is there again.
    pub(super) fn heal(&mut self) -> bool {
        if self.file.is_some() || Instant::now() < self.again {
            return false;
        }
        self.again = Instant::now() + AGAIN;
        match queue_of(&self.name) {
            Ok(file) => {
                tracing::warn!(
                    name = self.name,
                    "a TUN interface of UEs was deleted, and is made anew"
                );
                self.file = Some(file);
            }
            Err(error) => {
                tracing::error!(%error, "a TUN interface of UEs was deleted, and cannot be made anew");
            }
        }
        self.file.is_some()
    }

    /// Give packets that wait to `each`, behind an Ethernet header; at most so many.
    pub(super) fn read(
        &mut self,
        at_most: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> io::Result<()> {
        for _ in 0..at_most {
            let Some(file) = &mut self.file else {
                break;
            };
            let read = unless_it_would_block(file.read(&mut self.room));
            if matches!(&read, Err(error) if error.raw_os_error() == Some(libc::EBADFD)) {
                self.file = None;
                break;
            }
            let Some(len) = read? else {
                break;
            };
            let packet = &self.room[..len];
            match packet.first().map(|octet| octet >> 4) {
                Some(4) => each(&ethernet(ETHERTYPE_IPV4), packet),
                Some(6) => each(&ethernet(ETHERTYPE_IPV6), packet),
                _ => {}
            }
        }
        Ok(())
    }
}

fn queue_of(name: &str) -> io::Result<File> {
    let file = device()?;
    let kind = libc::IFF_TUN | libc::IFF_MULTI_QUEUE;
    become_interface(&file, name, kind).map_err(|error| named(name, error))?;
    Ok(file)
}

fn named(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Priority of the rules: before the kernel's main table, after that of its own addresses.
const PRIORITY: u32 = 2152;

/// The first routing table of these; one for each interface.
const TABLES: u32 = 2_152_000;

/// While this lives, what comes in on an interface towards the data network, and is not for this host, goes to the UEs' TUN
/// interface, whosoever address it is: which are UEs', the pipeline knows.
#[derive(Debug)]
pub(super) struct Led {
    interface: String,
    ifindex: u32,
    port: u32,
    /// When it is tried again, if it has to be.
    again: Option<Instant>,
}

impl Led {
    pub(super) fn start(interface: &str, port: u32) -> Result<Self, SetupError> {
        let mut led = Self {
            interface: interface.to_owned(),
            ifindex: 0,
            port,
            again: None,
        };
        led.set_up()?;
        Ok(led)
    }

    pub(super) fn port(&self) -> usize {
        self.port as usize
    }

    /// Have it so again, if one of the two interfaces `is_new`, or if that has failed before.
    pub(super) fn renew(&mut self, is_new: bool) {
        if !is_new && self.again.is_none_or(|again| Instant::now() < again) {
            return;
        }
        let done = self.set_up();
        if let (Err(error), None) = (&done, self.again) {
            tracing::error!(%error, interface = self.interface, "the kernel brings no packets to UEs");
        }
        self.again = done.is_err().then(|| Instant::now() + AGAIN);
    }

    /// The TUN interface of a port becomes as wide as the port's own.
    fn set_up(&mut self) -> Result<(), SetupError> {
        let name = name_of(&self.interface);
        let socket = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(io::Error::from)?;
        let mut of_interface = request(&self.interface);
        // SAFETY: the request is ours and lives through the call.
        checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &mut of_interface) })?;
        let mut own = request(&name);
        // SAFETY: the call above has filled in the MTU.
        own.ifr_ifru.ifru_mtu = unsafe { of_interface.ifr_ifru.ifru_mtu };
        // SAFETY: as above.
        checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU, &mut own) })?;
        let mut own = request(&name);
        own.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_NOARP) as libc::c_short;
        // SAFETY: as above.
        checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &mut own) })?;
        self.ifindex = ifindex_of(&name)?;
        self.lead().put(true).map_err(|error| named(&name, error))?;
        if let Err(error) = self.lead().put(false) {
            tracing::warn!(%error, interface = self.interface, "the kernel brings no IPv6 packets to UEs");
        }
        Ok(())
    }

    fn lead(&self) -> Lead<'_> {
        Lead {
            from: &self.interface,
            to_ifindex: self.ifindex,
            table: TABLES + self.port,
            priority: PRIORITY,
        }
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        // One that is left leads to an empty table, which is as good as none.
        let _ = self.lead().withdraw(true);
        let _ = self.lead().withdraw(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit() {
        assert_eq!(name_of("n6"), "n6-ue");
        assert_eq!(name_of("enp129s0f0np0"), "enp129s0f0np-ue");
    }
}
