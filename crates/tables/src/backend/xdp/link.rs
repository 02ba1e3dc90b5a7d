//! Links: what keeps a program on an interface.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::SetupError;
use crate::port::Mode;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Attach a program to an interface in this mode or not at all. Fails if another one is attached.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    (interface, ifindex): (&str, u32),
    mode: Mode,
) -> Result<OwnedFd, SetupError> {
    let flags = match mode {
        Mode::Driver => XDP_FLAGS_DRV_MODE,
        Mode::Generic => XDP_FLAGS_SKB_MODE,
    };
    // SAFETY: an all-zero options struct is valid; its size is set below.
    let mut options: libbpf_sys::bpf_link_create_opts =
        unsafe { MaybeUninit::zeroed().assume_init() };
    options.sz = size_of_val(&options) as libbpf_sys::size_t;
    options.flags = flags;
    // SAFETY: the descriptor is open and the options are valid for the call.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_XDP,
            &options,
        )
    };
    if link < 0 {
        let error = io::Error::from_raw_os_error(-link);
        return Err(SetupError::Attach {
            name: interface.to_owned(),
            mode,
            error,
        });
    }
    // SAFETY: the kernel has just handed out this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Whether a link is still on its interface, which has not gone.
pub(super) fn is_live(link: BorrowedFd<'_>) -> bool {
    ifindex_under(link).is_some()
}

/// The interface that a link is on; `None`: it has gone.
pub(super) fn ifindex_under(link: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: an all-zero info struct is valid.
    let mut info: libbpf_sys::bpf_link_info = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: info is writable for len octets; of this kind of link it has no pointers.
    let answer =
        unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &mut info, &mut len) };
    // SAFETY: the kernel has filled in the part of an XDP link; any octets are a number.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    (answer == 0 && ifindex != 0).then_some(ifindex)
}

/// A link lets its interface go, now and not when the kernel comes to tidy up, as another program may be about to take its place.
pub(super) fn detach(link: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open.
    unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
}
