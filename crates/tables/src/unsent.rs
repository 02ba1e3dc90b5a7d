//! Packets of a socket that the kernel still has.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Octets of memory that packets of a socket occupy until a device has them, or they are given up (`SIOCOUTQ`).
pub fn unsent_octets(socket: impl AsFd) -> io::Result<usize> {
    let mut octets: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives as long as the call.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(octets).unwrap_or(0))
}
