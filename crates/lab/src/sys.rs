//! The lab's system calls that have no safe wrapper: all of its `unsafe` is here.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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

/// The head of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
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

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

/// Runs a bpf command that returns a descriptor. `T` is the head of its attributes; the kernel takes
/// what is missing at the end as zero.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let size = size_of::<T>() as libc::c_uint;
    // SAFETY: the kernel reads `size` octets of attributes and what they point to, and both callers
    // keep that alive over the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
    match i32::try_from(fd) {
        // SAFETY: a non-negative result of these commands is a descriptor that is ours alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts an XDP program that passes every frame on interface `ifindex` of the calling thread's
/// namespace, until the descriptor is closed.
///
/// A veth delivers what its peer sends by XDP_TX only while it has a program itself: the kernel
/// queues such frames either way, but wakes the receiver in this case alone (veth_xdp_flush).
pub fn attach_xdp_pass(ifindex: u32) -> Result<OwnedFd> {
    // r0 = XDP_PASS; exit
    let program: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let load = ProgLoad {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr().addr() as u64,
        license: c"GPL".as_ptr().addr() as u64,
        expected_attach_type: BPF_XDP,
        ..ProgLoad::default()
    };
    let loaded = bpf(BPF_PROG_LOAD, &load).context("BPF_PROG_LOAD")?;
    attach_xdp(ifindex, loaded.as_fd())
}

/// Attaches an XDP program to an interface until the descriptor is closed.
pub fn attach_xdp(ifindex: u32, program: BorrowedFd<'_>) -> Result<OwnedFd> {
    let link = LinkCreate {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: ifindex,
        attach_type: BPF_XDP,
        flags: 0,
    };
    bpf(BPF_LINK_CREATE, &link).context("BPF_LINK_CREATE")
}
