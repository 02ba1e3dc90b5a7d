//! Links: what keeps a program on an interface.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

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
