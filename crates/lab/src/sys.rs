//! The lab's system calls that have no safe wrapper: all of its `unsafe` is here.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{MsgFlags, send};

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

/// A packet socket of the calling thread's namespace that sends frames out of interface `ifindex`, and receives none.
pub fn frame_socket(ifindex: u32) -> io::Result<OwnedFd> {
    // SAFETY: a socket without a protocol, which receives nothing; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made above and is ours alone.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let to = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: 0,
        sll_ifindex: ifindex.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let size = size_of_val(&to) as libc::socklen_t;
    // SAFETY: the kernel reads the address, which outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&to).cast(), size) };
    if bound < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Sends an Ethernet frame out of interface `ifindex` of the calling thread's namespace.
pub fn send_frame(ifindex: u32, frame: &[u8]) -> io::Result<()> {
    let socket = frame_socket(ifindex)?;
    send(socket.as_raw_fd(), frame, MsgFlags::empty())?;
    Ok(())
}

/// The head of `union bpf_attr` for BPF_LINK_CREATE.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_XDP: u32 = 37;

/// Attaches an XDP program to an interface until the descriptor is closed.
pub fn attach_xdp(ifindex: u32, program: BorrowedFd<'_>) -> Result<OwnedFd> {
    let link = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: ifindex,
        attach_type: BPF_XDP,
        flags: 0,
    };
    let size = size_of_val(&link) as libc::c_uint;
    // SAFETY: the kernel reads `size` octets of attributes, which outlive the call; what is missing at the end it takes as zero.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &raw const link, size) };
    match i32::try_from(fd) {
        // SAFETY: a non-negative result of this command is a descriptor that is ours alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()).context("BPF_LINK_CREATE"),
    }
}
