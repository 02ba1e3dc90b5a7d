//! A program that the kernel runs over frames on demand.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// A program, to be run over frames by the kernel (`BPF_PROG_TEST_RUN`); from any thread.
#[derive(Debug)]
pub struct Runner {
    program: OwnedFd,
}

impl Runner {
    pub(super) fn new(program: OwnedFd) -> Self {
        Self { program }
    }

    /// XDP's verdict, and the frame afterwards. At least 14 octets.
    pub fn test_run(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0u8; frame.len() + 512];
        // SAFETY: an all-zero options struct is valid; its size is set below.
        let mut options: libbpf_sys::bpf_test_run_opts =
            unsafe { MaybeUninit::zeroed().assume_init() };
        options.sz = size_of_val(&options) as libbpf_sys::size_t;
        options.data_in = frame.as_ptr().cast();
        options.data_size_in = frame.len() as u32;
        options.data_out = out.as_mut_ptr().cast();
        options.data_size_out = out.len() as u32;
        // SAFETY: both buffers live through the call and are as long as they are said to be.
        let answer =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer));
        }
        out.truncate(options.data_size_out as usize);
        Ok((options.retval, out))
    }
}
