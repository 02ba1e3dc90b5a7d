//! A thread between workers and the kernel: it moves frames between them and the TAP interfaces, and looks after links.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ports::{Lost, Ports};
use super::tap::Tap;
use crate::abi::dpdk::tp_dpdk_state;
use crate::dpdk::{Direct, TapDescriptors};
use crate::error::SetupError;

/// Time between two looks at links and at what devices have lost; also the longest sleep.
const LOOK_MS: u16 = 100;
/// Time after which it is tried again to make an interface.
const AGAIN: Duration = Duration::from_secs(1);
/// Frames that are moved one way before the other one has its turn.
const BATCH: usize = 64;
/// Octets of the longest frame that the kernel sends.
const FRAME: usize = 1 << 16;

/// The thread. Dropping this ends it.
#[derive(Debug)]
pub(super) struct KernelSide {
    stop: Arc<AtomicBool>,
    ports: Arc<Ports>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for KernelSide {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A record of nothing wakes it; where there is no room for one, it is awake.
        self.ports.to_kernel.write([&[], &[]]);
        if let Some(thread) = self.thread.take() {
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}

impl KernelSide {
    /// `taps`: one for each port, or none, and further descriptors of them. `ways_out`: of each port, for what the kernel sends.
    pub(super) fn start(
        (taps, descriptors): (Vec<Tap>, TapDescriptors),
        ports: Arc<Ports>,
        ways_out: Vec<Direct>,
    ) -> io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let mut side = Side {
            seen: (0..ports.count())
                .map(|port| tp_dpdk_state {
                    up: 1,
                    ..ports.look(port)
                })
                .collect(),
            faces: taps.into_iter().map(Face::of).collect::<io::Result<_>>()?,
            descriptors,
            ports: Arc::clone(&ports),
            ways_out,
            looked: Instant::now(),
            room: vec![0; FRAME].into(),
        };
        let stopped = Arc::clone(&stop);
        let work = move || {
            side.look_at_all();
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = side.turn() {
                    tracing::error!(%error, "nothing passes between DPDK ports and the kernel any more");
                    return;
                }
            }
        };
        let thread = Builder::new().name("taps".into()).spawn(work)?;
        Ok(Self {
            stop,
            ports,
            thread: Some(thread),
        })
    }
}

/// The interface by which the kernel has a port.
struct Face {
    name: String,
    /// As the port was opened.
    mtu: u32,
    /// `None`: somebody has removed it.
    tap: Option<Tap>,
    /// It could not be made anew, and is tried again then.
    again: Option<Instant>,
}

impl Face {
    fn of(tap: Tap) -> io::Result<Self> {
        Ok(Self {
            name: tap.name().to_owned(),
            mtu: tap.mtu()?,
            tap: Some(tap),
            again: None,
        })
    }

    /// The interface anew, with all that is the port's; its addresses and routes were others'.
    fn anew(&self, mac: [u8; 6], is_up: bool) -> Result<Tap, SetupError> {
        let tap = Tap::open(&self.name)?;
        tap.set_mtu(self.mtu)?;
        let _ = tap.set_carrier(is_up);
        tap.start(mac)?;
        Ok(tap)
    }
}

struct Side {
    /// One for each port, or none.
    faces: Vec<Face>,
    descriptors: TapDescriptors,
    ports: Arc<Ports>,
    ways_out: Vec<Direct>,
    /// As the ports were at the last look; their links are taken for up before the first one.
    seen: Vec<tp_dpdk_state>,
    looked: Instant,
    room: Box<[u8]>,
}

impl Side {
    fn turn(&mut self) -> io::Result<()> {
        self.sleep()?;
        let Self { faces, ports, .. } = self;
        ports.for_kernel(BATCH, |port, frame| {
            // Without TAP interfaces, frames that are passed to the kernel end here.
            if let Some(Face { tap, .. }) = faces.get(port)
                && tap.as_ref().is_none_or(|tap| tap.write(frame).is_err())
            {
                ports.lose(port, Lost::TapRefused, 1);
            }
        });
        (0..self.faces.len()).for_each(|port| self.take_from(port));
        if self.looked.elapsed() >= Duration::from_millis(LOOK_MS.into()) {
            self.look_at_all();
        }
        Ok(())
    }

    fn look_at_all(&mut self) {
        self.looked = Instant::now();
        (0..self.seen.len()).for_each(|port| self.look(port));
        (0..self.faces.len()).for_each(|port| self.heal(port));
    }

    /// The interface of this port is made anew if it was removed.
    fn heal(&mut self, port: usize) {
        let face = &mut self.faces[port];
        if face.tap.is_some() || face.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let name = &face.name;
        // Whoever hears of it asks for its descriptor.
        let mut known = (self.descriptors.lock()).unwrap_or_else(PoisonError::into_inner);
        match face.anew(self.ports.mac(port), self.seen[port].up != 0) {
            Ok(tap) => {
                tracing::warn!(
                    name,
                    "a TAP interface was removed, and is made anew: addresses, routes and what lay on it are to be given again"
                );
                if let Some((known, fd)) = known.get_mut(port).zip(tap.descriptor().ok()) {
                    *known = fd;
                }
                (face.tap, face.again) = (Some(tap), None);
            }
            Err(error) => {
                if face.again.is_none() {
                    tracing::error!(%error, name, "a TAP interface was removed, and cannot be made anew: tried again each second");
                }
                face.again = Some(Instant::now() + AGAIN);
            }
        }
    }

    fn sleep(&self) -> io::Result<()> {
        let taps = self.faces.iter().filter_map(|face| face.tap.as_ref());
        let taps = taps.map(AsFd::as_fd);
        let all = taps.chain([self.ports.to_kernel.as_fd()]);
        let mut all: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut all, PollTimeout::from(LOOK_MS)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn take_from(&mut self, port: usize) {
        let Some(tap) = &self.faces[port].tap else {
            return;
        };
        let way_out = &self.ways_out[port];
        for _ in 0..BATCH {
            match tap.read(&mut self.room) {
                Ok(Some(frame)) => {
                    // The kernel's own traffic: each port's by another worker.
                    if !way_out.send(port, frame) {
                        self.ports.lose(port, Lost::TapFull, 1);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    let name = tap.name();
                    tracing::error!(%error, name, "a TAP interface is gone");
                    self.faces[port].tap = None;
                    return;
                }
            }
        }
    }

    fn look(&mut self, port: usize) {
        let (now, before) = (self.ports.look(port), self.seen[port]);
        let more = |now: u64, before: u64| now.saturating_sub(before);
        let ports = &self.ports;
        ports.lose(port, Lost::Missed, more(now.missed, before.missed));
        ports.lose(port, Lost::Unsent, more(now.unsent, before.unsent));
        ports.lose(port, Lost::NoBuffer, more(now.no_buffer, before.no_buffer));
        if now.up != before.up {
            let is_up = now.up != 0;
            ports.set_up(port, is_up);
            let face = self.faces.get(port);
            if let Some(tap) = face.and_then(|face| face.tap.as_ref()) {
                tracing::info!(name = tap.name(), is_up, "link of a DPDK port");
                if let Err(error) = tap.set_carrier(is_up) {
                    tracing::warn!(%error, name = tap.name(), "the kernel was not told");
                }
            }
        }
        self.seen[port] = now;
    }
}
