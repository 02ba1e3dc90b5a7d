//! Frames out of an interface, many at a time, by the queues that packets of the kernel's own take.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames that one call sends.
const BATCH: usize = 64;

/// Octets that may be under way in an interface: the kernel counts frames that it holds against the socket.
const SEND_BUFFER_BYTES: i32 = 16 << 20;

/// A packet socket bound to an interface. It receives nothing.
#[derive(Debug)]
pub struct FrameSocket {
    fd: OwnedFd,
    patience: Duration,
    is_gone: AtomicBool,
    /// Past the interface, where that is the kernel's face of a port of DPDK.
    #[cfg(feature = "dpdk")]
    direct: Option<crate::dpdk::Direct>,
}

fn set_int(fd: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is valid for the call and as long as it is said to be.
    let done = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The way out of interfaces for threads beside the workers: by the kernel, or, where workers own the ports, by their queues.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    /// `None`: no worker owns a port.
    #[cfg(feature = "dpdk")]
    pub(crate) queues: Option<crate::dpdk::FrameQueues>,
}

impl Egress {
    /// As [`FrameSocket::open`]; frames that are sent by a worker pass the kernel by, where workers own the interface's port.
    pub fn open(&self, ifindex: u32, patience: Duration) -> io::Result<FrameSocket> {
        let socket = FrameSocket::open(ifindex, patience)?;
        #[cfg(feature = "dpdk")]
        let socket = FrameSocket {
            direct: self
                .queues
                .as_ref()
                .and_then(|queues| queues.direct_to(ifindex)),
            ..socket
        };
        Ok(socket)
    }
}

impl FrameSocket {
    /// Open it in the network namespace of the calling thread; needs `CAP_NET_RAW`.
    ///
    /// `patience`: time that an interface whose queue is full is given, before frames are lost.
    pub fn open(ifindex: u32, patience: Duration) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointer is given.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just handed out this descriptor and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set_int(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        // Without CAP_NET_ADMIN fewer frames can be under way.
        let _ = set_int(
            &fd,
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            SEND_BUFFER_BYTES,
        );
        // SAFETY: an all-zero address is valid; what matters is set below.
        let mut to: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        // SAFETY: the address is valid for the call and as long as it is said to be.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            fd,
            patience,
            is_gone: AtomicBool::new(false),
            #[cfg(feature = "dpdk")]
            direct: None,
        })
    }

    /// Whether the interface is gone: one that was made anew, even under its old number, needs another socket. Known once a
    /// frame was lost by it.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Send frames in their order, before what this worker runs afterwards ([`crate::task::Event::worker`]) where workers send
    /// them; how many were lost. Waits a little for an interface that is busy.
    pub fn send_by<'a>(&self, worker: u16, frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        #[cfg(feature = "dpdk")]
        if let Some(direct) = &self.direct {
            return self.send_directly(direct, worker, frames);
        }
        #[cfg(not(feature = "dpdk"))]
        let _ = worker;
        self.send(frames)
    }

    /// Send frames in their order, through the kernel; how many were lost. Waits a little for an interface that is busy.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> u64 {
        let mut lost = 0;
        let mut parts = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        let mut frames = frames.peekable();
        while frames.peek().is_some() {
            let mut count = 0;
            for (part, frame) in parts.iter_mut().zip(frames.by_ref().take(BATCH)) {
                part.iov_base = frame.as_ptr().cast_mut().cast();
                part.iov_len = frame.len();
                count += 1;
            }
            lost += self.send_parts(&mut parts[..count]);
        }
        lost
    }

    #[cfg(feature = "dpdk")]
    fn send_directly<'a>(
        &self,
        direct: &crate::dpdk::Direct,
        worker: u16,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        let mut lost = 0;
        for frame in frames {
            let since = Instant::now();
            let mut sent = direct.send(worker.into(), frame);
            while !sent && since.elapsed() < self.patience {
                std::thread::yield_now();
                sent = direct.send(worker.into(), frame);
            }
            lost += u64::from(!sent);
        }
        lost
    }

    /// The parts point to frames that live through the call.
    fn send_parts(&self, parts: &mut [libc::iovec]) -> u64 {
        // SAFETY: all-zero headers are valid: no address, no control data, no octets.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { MaybeUninit::zeroed().assume_init() };
        for (message, part) in messages.iter_mut().zip(parts.iter_mut()) {
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        let (mut sent, mut lost) = (0, 0);
        let mut since: Option<Instant> = None;
        while sent < parts.len() {
            let left = &mut messages[sent..parts.len()];
            // SAFETY: the headers point to parts, and those to frames, which live through the call; the kernel
            // only reads them.
            let done = unsafe {
                libc::sendmmsg(self.fd.as_raw_fd(), left.as_mut_ptr(), left.len() as u32, 0)
            };
            if done > 0 {
                sent += done as usize;
                since = None;
                continue;
            }
            let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            let busy = matches!(error, libc::ENOBUFS | libc::EAGAIN | libc::EINTR);
            if busy && waited < self.patience {
                std::thread::yield_now();
                continue;
            }
            if error == libc::ENXIO {
                self.is_gone.store(true, Ordering::Relaxed);
            }
            // Down, gone, or too long for it.
            (sent, lost, since) = (sent + 1, lost + 1, None);
        }
        lost
    }
}
