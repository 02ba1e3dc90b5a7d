//! The lab's system calls that have no safe wrapper: all of its `unsafe` is here.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};

mod ioctl {
    nix::ioctl_write_ptr_bad!(tun_set_iff, libc::TUNSETIFF, libc::ifreq);
}

/// Opens TUN device `name` in the network namespace of the calling thread, without packet
/// information, for reads and writes that do not block. The device goes when the file is closed.
pub fn open_tun(name: &str) -> Result<File> {
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .context("/dev/net/tun")?;
    ensure!(
        name.len() < libc::IFNAMSIZ,
        "{name}: longer than an interface name may be"
    );
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let request = libc::ifreq {
        ifr_name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
        },
    };
    // SAFETY: TUNSETIFF reads one ifreq, which outlives the call.
    unsafe { ioctl::tun_set_iff(tun.as_raw_fd(), &request) }.context(format!("TUN {name}"))?;
    Ok(tun)
}
