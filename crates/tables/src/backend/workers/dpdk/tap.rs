//! TAP interfaces: the kernel's faces of ports.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::super::kernel::tun::{become_interface, device, request};
use super::super::kernel::{checked, unless_it_would_block};
use super::ports::named;
use crate::backend::ifindex_of;
use crate::error::SetupError;

/// `TUNSETCARRIER` (linux/if_tun.h).
const TUNSETCARRIER: libc::c_ulong = 0x4004_54e2;

/// Whether the descriptor is of the interface of this name. That of one that was removed is of none.
fn is_of(fd: &OwnedFd, name: &str) -> bool {
    let mut own = request("");
    // SAFETY: the request is ours and lives through the call.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNGETIFF, &mut own) };
    checked(asked).is_ok() && own.ifr_name == request(name).ifr_name
}

/// One TAP interface. One that was there before stays, with its addresses and routes; another one goes with this.
#[derive(Debug)]
pub(in crate::backend::workers) struct Tap {
    name: String,
    file: File,
    /// For questions about it.
    socket: OwnedFd,
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Tap {
    /// Have the interface of this name, or make it.
    pub(super) fn open(name: &str) -> Result<Self, SetupError> {
        let file = device()?;
        become_interface(&file, name, libc::IFF_TAP).map_err(|error| {
            let advice = match error.raw_os_error() {
                Some(libc::EINVAL) => {
                    "; an interface of this name is there and is no TAP interface: give that one another name"
                }
                Some(libc::EBUSY) => {
                    "; another process has it: workers of a turnpiked before, perhaps, which its configuration ends (turnpiked detach)"
                }
                _ => "",
            };
            SetupError::Dpdk(format!("TAP interface {name}: {error}{advice}"))
        })?;
        Ok(Self::over(file, name)?)
    }

    /// Whether one of these descriptors is of the interface of this name.
    pub(in crate::backend::workers) fn is_one_of(fds: &[OwnedFd], name: &str) -> bool {
        fds.iter().any(|fd| is_of(fd, name))
    }

    /// The same by one of these descriptors, which another process had and through which it has stayed as it was. `None`: none is of this
    /// name, or it has gone meanwhile.
    pub(super) fn take_over(fds: &mut Vec<OwnedFd>, name: &str) -> Option<Self> {
        let place = fds.iter().position(|fd| is_of(fd, name))?;
        let tap = Self::over(File::from(fds.swap_remove(place)), name).ok()?;
        // As one that has just been opened; without the right to say so it stays as it is.
        let _ = tap.set_carrier(true);
        Some(tap)
    }

    fn over(file: File, name: &str) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        Ok(Self {
            name: name.to_owned(),
            file,
            socket: socket(AddressFamily::Inet, SockType::Datagram, flags, None)?,
        })
    }

    /// A further descriptor of it, by which it stays.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Octets of IP that it carries.
    pub(super) fn mtu(&self) -> io::Result<u32> {
        let mut request = request(&self.name);
        self.ask(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the call above has filled it in.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    pub(super) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut request = request(&self.name);
        request.ifr_ifru.ifru_mtu = mtu.cast_signed();
        self.ask(libc::SIOCSIFMTU, &mut request)
    }

    /// Give it the address of its port and set it up. Its number.
    pub(super) fn start(&self, mac: [u8; 6]) -> Result<u32, SetupError> {
        let failed = |error| named(&self.name, error);
        let mut own = request(&self.name);
        self.ask(libc::SIOCGIFHWADDR, &mut own).map_err(failed)?;
        // SAFETY: the call above has filled it in.
        let address = unsafe { &mut own.ifr_ifru.ifru_hwaddr.sa_data };
        let wanted = mac.map(|octet| octet as libc::c_char);
        // A device without an address, such as a ring, has any.
        if mac != [0; 6] && address[..6] != wanted {
            address[..6].copy_from_slice(&wanted);
            self.ask(libc::SIOCSIFHWADDR, &mut own).map_err(failed)?;
        }
        let mut own = request(&self.name);
        self.ask(libc::SIOCGIFFLAGS, &mut own).map_err(failed)?;
        // SAFETY: the call above has filled it in.
        unsafe { own.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
        self.ask(libc::SIOCSIFFLAGS, &mut own).map_err(failed)?;
        ifindex_of(&self.name)
    }

    /// Let the kernel know whether the port has a link.
    pub(super) fn set_carrier(&self, is_up: bool) -> io::Result<()> {
        let carrier = libc::c_int::from(is_up);
        // SAFETY: the number is ours and lives through the call.
        checked(unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETCARRIER, &carrier) }).map(drop)
    }

    fn ask(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the request is ours and lives through the call.
        checked(unsafe { libc::ioctl(self.socket.as_raw_fd(), what, request) }).map(drop)
    }

    /// A frame that the kernel has sent, if there is one.
    pub(super) fn read<'r>(&self, room: &'r mut [u8]) -> io::Result<Option<&'r [u8]>> {
        let len = unless_it_would_block((&self.file).read(room))?;
        Ok(len.map(|len| &room[..len]))
    }

    /// A frame for the kernel.
    pub(super) fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}
