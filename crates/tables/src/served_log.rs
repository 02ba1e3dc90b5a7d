//! Requests that the program for N4 has served, in the ring by which it tells of them. They stay there until what they have changed is
//! kept: who comes after this process finds those that it had not kept.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crate::abi::from_words;
use crate::abi::host::tp_n4_record;
use crate::memory::RingMemory;

/// Header of a record (`struct bpf_ringbuf_hdr`): its length, and these flags.
const HEADER: u64 = 8;
const BUSY: u64 = 1 << 31;
const DISCARDED: u64 = 1 << 30;

const RECORD: usize = size_of::<tp_n4_record>();

/// The ring, and how far this process has read.
#[derive(Debug)]
pub(crate) struct ServedLog {
    ring: RingMemory,
    next: u64,
}

impl ServedLog {
    /// Of a map of so many octets: what nobody has let go of.
    pub(crate) fn of_map(map: BorrowedFd<'_>, octets: usize) -> io::Result<Self> {
        let ring = RingMemory::of_map(map, octets)?;
        let next = ring.read();
        Ok(Self { ring, next })
    }

    /// The next one, unless the program is still about it.
    pub(crate) fn next(&mut self) -> Option<tp_n4_record> {
        while self.next != self.ring.written() {
            let (header, record) = self.ring.words(self.next).split_first()?;
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            let length = header & (DISCARDED - 1);
            self.next += (HEADER + length).next_multiple_of(HEADER);
            if header & DISCARDED == 0 && length == RECORD as u64 {
                let mut words = [0; RECORD / 8];
                for (to, word) in words.iter_mut().zip(record) {
                    *to = word.load(Ordering::Relaxed);
                }
                return Some(from_words(words));
            }
        }
        None
    }

    /// What has been read is known elsewhere.
    pub(crate) fn let_go(&self) {
        self.ring.let_go(self.next);
    }
}

/// Requests that a program of a process before this one has served and answered, in their order, and that may not be in what was kept:
/// the first of them are. They stay where they are.
#[derive(Debug)]
pub struct LeftRequests(pub(crate) ServedLog);

impl Iterator for LeftRequests {
    /// Who it came from, and its octets.
    type Item = (SocketAddr, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.0.next()?;
        Some((sender_of(&record), request_of(&record).to_vec()))
    }
}

/// The SMF that a request came from.
pub(crate) fn sender_of(record: &tp_n4_record) -> SocketAddr {
    let octets = record.from.octets;
    let address = match (record.from.length, octets.first_chunk::<4>()) {
        (4, Some(v4)) => IpAddr::from(*v4),
        _ => IpAddr::from(octets),
    };
    SocketAddr::new(address, record.port as u16)
}

/// The request.
pub(crate) fn request_of(record: &tp_n4_record) -> &[u8] {
    let octets = record.request.octets.get(..record.request.len as usize);
    octets.unwrap_or_default()
}
