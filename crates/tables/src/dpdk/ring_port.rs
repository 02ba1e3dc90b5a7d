//! Ports with rings for wires, for tests and benchmarks.

use std::ffi::CString;
use std::fmt;
use std::net::Ipv4Addr;

use super::{Pool, Settings, pool, start};
use crate::abi::dpdk::{
    TP_DPDK_BURST, tp_dpdk_in_use, tp_dpdk_pattern, tp_dpdk_ring_close, tp_dpdk_ring_link,
    tp_dpdk_ring_load, tp_dpdk_ring_pass_on, tp_dpdk_ring_port, tp_dpdk_ring_put,
    tp_dpdk_ring_take, tp_dpdk_ring_unload, tp_dpdk_user,
};
use crate::error::SetupError;

/// Octets of the longest frame of a test. With what belongs to a buffer it fits in a page, which net_af_xdp asks for.
const FRAME: usize = 3200;

/// A port with rings for wires: what is put into it comes in, and what leaves can be taken. For tests and benchmarks, which
/// drop it after the tables that are over it.
pub struct RingPort {
    rings: tp_dpdk_ring_port,
    pool: Pool,
}

// SAFETY: rings and pools are for any thread.
unsafe impl Send for RingPort {}

impl fmt::Debug for RingPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RingPort")
    }
}

impl Drop for RingPort {
    fn drop(&mut self) {
        // SAFETY: rings that nobody else has: whoever made this drops it after the tables that were over it.
        unsafe { tp_dpdk_ring_close(&raw mut self.rings) };
    }
}

/// The number of a [`RingPort`] that tables are over.
#[derive(Clone, Copy, Debug)]
pub struct PortId(u16);

/// Frames that come in by one port leave by the other as they are, at most [`RingPort::BURST`] frames, and one line of each is read: the
/// floor of what a worker does. No worker serves them meanwhile. How many there were.
pub fn pass_on(from: PortId, to: PortId) -> usize {
    // SAFETY: no pointer is given; a number whose port is closed has no frames.
    unsafe { tp_dpdk_ring_pass_on(from.0, to.0) as usize }
}

/// A frame of any user, and where the user's words are in it.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The whole frame.
    pub frame: Vec<u8>,
    /// TEID, where it has one.
    pub teid_at: Option<usize>,
    /// The UE's IPv4 address.
    pub address_at: usize,
    /// Checksum of the header with that address.
    pub checksum_at: usize,
}

/// Words of a user in a frame.
pub type User = tp_dpdk_user;

impl User {
    /// TEID, address and checksum.
    pub fn new(teid: u32, address: Ipv4Addr, checksum: u16) -> Self {
        Self {
            teid: teid.to_be(),
            address: u32::from(address).to_be(),
            checksum: checksum.to_be(),
            reserved: 0,
        }
    }
}

impl RingPort {
    /// Frames that are loaded, unloaded or passed on together, at most.
    pub const BURST: usize = TP_DPDK_BURST as usize;

    /// With room for so many frames each way, and a name of at most 16 characters, of its own in this process. Ports of it
    /// have the device [`Self::device`].
    pub fn new(settings: &Settings, name: &str, frames: u32) -> Result<Self, SetupError> {
        Self::with_queues(settings, name, frames, 1)
    }

    /// With so many queues each way. All transmit queues lead to one wire, and each receive queue has one of its own.
    pub fn with_queues(
        settings: &Settings,
        name: &str,
        frames: u32,
        queues: u32,
    ) -> Result<Self, SetupError> {
        start(settings)?;
        let pool = pool(settings, FRAME as u32)?;
        let mut rings = tp_dpdk_ring_port::default();
        let refused = || SetupError::Dpdk(format!("no rings for {name}"));
        let c_name = CString::new(name).map_err(|_| refused())?;
        // SAFETY: a terminated name, and rings to be written.
        match unsafe { tp_dpdk_ring_port(c_name.as_ptr(), frames, queues, &raw mut rings) } {
            0 => Ok(Self { rings, pool }),
            _ => Err(refused()),
        }
    }

    /// As [`crate::PortConfig`] has it.
    pub fn device(name: &str) -> String {
        format!("net_ring_{name}")
    }

    /// A frame comes in: whether there was room for it.
    pub fn put(&mut self, frame: &[u8]) -> bool {
        self.put_all(0, &[frame])
    }

    /// Frames of one length, 128 at most, come in by a queue, all at once: whether there was room for them.
    pub fn put_all(&mut self, queue: u32, frames: &[&[u8]]) -> bool {
        let len = frames.first().map_or(0, |frame| frame.len());
        let alike = frames.iter().all(|frame| frame.len() == len);
        assert!(
            alike && queue < self.rings.queues,
            "one length, and a queue"
        );
        let octets = frames.concat();
        // SAFETY: rings and pool live as long as the process; there are so many octets, and this queue.
        let put = unsafe {
            tp_dpdk_ring_put(
                &raw mut self.rings,
                queue,
                self.pool.as_ptr(),
                octets.as_ptr(),
                frames.len() as u32,
                len as u32,
            )
        };
        put == 0
    }

    /// Buffers of this process that hold a frame.
    pub fn buffers_in_use(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { tp_dpdk_in_use(self.pool.as_ptr()) }
    }

    /// Give it its link, or take it away, while a port is open on it.
    pub fn set_link(&mut self, is_up: bool) {
        // SAFETY: a device that this has made.
        unsafe { tp_dpdk_ring_link(&raw const self.rings, is_up.into()) };
    }

    /// Frames of these users come in, each in a buffer of its own, at most [`Self::BURST`]; the first one ends with the
    /// stamp, unless that is 0. Whether there was room.
    pub fn load(&mut self, pattern: &Pattern, users: &[User], stamp: u64) -> bool {
        let pattern = tp_dpdk_pattern {
            frame: pattern.frame.as_ptr(),
            len: pattern.frame.len() as u32,
            teid_at: pattern.teid_at.unwrap_or(0) as u32,
            address_at: pattern.address_at as u32,
            checksum_at: pattern.checksum_at as u32,
        };
        let end = |at: u32, octets: u32| at + octets <= pattern.len;
        assert!(
            end(pattern.teid_at, 4) && end(pattern.address_at, 4) && end(pattern.checksum_at, 2),
            "places are in the frame"
        );
        let len = users.len() as u32;
        // SAFETY: rings and pool live as long as the process; the pattern's places lie in its frame, and there are so many
        // users, which are words of the same kind in the same order.
        let loaded = unsafe {
            let users = users.as_ptr().cast();
            tp_dpdk_ring_load(
                &raw mut self.rings,
                self.pool.as_ptr(),
                &raw const pattern,
                users,
                len,
                stamp,
            )
        };
        loaded == len
    }

    /// Give back the buffers of frames that have left, at most [`Self::BURST`]. How many there were; their stamps.
    pub fn unload(&mut self, stamps: Option<&mut Vec<u64>>) -> usize {
        let (mut room, mut n) = ([0; Self::BURST], 0);
        let to = stamps
            .as_ref()
            .map_or(std::ptr::null_mut(), |_| room.as_mut_ptr());
        // SAFETY: as above; room for the stamps of a burst, or none.
        let left = unsafe { tp_dpdk_ring_unload(&raw mut self.rings, to, &raw mut n) };
        if let Some(stamps) = stamps {
            stamps.extend_from_slice(&room[..n as usize]);
        }
        left as usize
    }

    /// For [`pass_on`].
    pub fn id(&self) -> PortId {
        PortId(self.rings.id)
    }

    /// The oldest frame that has left.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut frame = vec![0; FRAME];
        // SAFETY: as above; the frame has room for so many octets.
        let len =
            unsafe { tp_dpdk_ring_take(&raw mut self.rings, frame.as_mut_ptr(), FRAME as u32) };
        frame.truncate(len as usize);
        (len > 0).then_some(frame)
    }
}
