//! Requests that the program for N4 has served, in the ring by which it tells of them. They stay there until what they have changed is
//! kept: who comes after this process finds those that it had not kept.

use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};

use crate::abi::from_words;
use crate::abi::host::tp_n4_record;
use crate::memory::RingMemory;

/// Header of a record (`struct bpf_ringbuf_hdr`): its length, and these flags.
const HEADER: u64 = 8;
const BUSY: u64 = 1 << 31;
const DISCARDED: u64 = 1 << 30;
const LENGTH_AND_FLAGS: u64 = (1 << 32) - 1;

const RECORD: usize = size_of::<tp_n4_record>();

/// Octet of a record where the SEID of its request begins.
const SEID_AT: usize = offset_of!(tp_n4_record, request.octets) + 4;

/// The ring, and how far this process has read.
#[derive(Debug)]
pub(crate) struct ServedLog {
    ring: RingMemory,
    next: u64,
    /// Records that are none of these.
    strange: usize,
}

impl ServedLog {
    /// Of a map of so many octets: what nobody has let go of.
    pub(crate) fn of_map(map: BorrowedFd<'_>, octets: usize) -> io::Result<Self> {
        let ring = RingMemory::of_map(map, octets)?;
        let next = ring.read();
        let strange = 0;
        Ok(Self {
            ring,
            next,
            strange,
        })
    }

    /// Begin of the record after the last one that was read, of all octets that there ever were.
    pub(crate) fn position(&self) -> u64 {
        self.next
    }

    /// The next one and where it begins, unless the program is still about it.
    pub(crate) fn next(&mut self) -> Option<(u64, tp_n4_record)> {
        while self.next != self.ring.written() {
            let begin = self.next;
            let (header, record) = self.ring.words(begin).split_first()?;
            let header = header.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            let length = header & (DISCARDED - 1);
            self.next += (HEADER + length).next_multiple_of(HEADER);
            if header & DISCARDED != 0 {
                continue;
            }
            if length != RECORD as u64 {
                self.strange += 1;
            } else {
                let mut words = [0; RECORD / 8];
                for (to, word) in words.iter_mut().zip(record) {
                    *to = word.load(Ordering::Relaxed);
                }
                return Some((begin, from_words(words)));
            }
        }
        None
    }

    /// SEID of the session that a record is about: of the one behind so many others, if all are there.
    pub(crate) fn seid_ahead(&self, others: usize) -> Option<u64> {
        const LENGTH: u64 = (HEADER + RECORD as u64).next_multiple_of(HEADER);
        let begin = self.next + others as u64 * LENGTH;
        // Nobody has written there yet.
        if begin + LENGTH > self.ring.written() {
            return None;
        }
        let (header, record) = self.ring.words(begin).split_first()?;
        let header = header.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let word = |at: usize| Some(record.get(at)?.load(Ordering::Relaxed).to_ne_bytes());
        let words = [word(SEID_AT / 8)?, word(SEID_AT / 8 + 1)?];
        let seid = words.as_flattened().get(SEID_AT % 8..)?.first_chunk()?;
        (header & LENGTH_AND_FLAGS == RECORD as u64).then_some(u64::from_be_bytes(*seid))
    }

    /// All records that were read are known elsewhere.
    pub(crate) fn let_go(&self) {
        self.ring.let_go(self.next);
    }
}

/// A request that a program of a process before this one has served and answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftRequest {
    /// See [`compiled::Tables::served_until`].
    pub position: u64,
    /// Session that it is about.
    pub seid: u64,
    /// The SMF.
    pub from: SocketAddr,
    /// The message.
    pub octets: Vec<u8>,
}

/// Requests that may not be in the file of sessions, in their order. They stay where they are.
#[derive(Debug)]
pub struct LeftRequests(pub(crate) ServedLog);

impl LeftRequests {
    /// Records that were none of this program's, so far.
    pub fn strange(&self) -> usize {
        self.0.strange
    }
}

impl Iterator for LeftRequests {
    type Item = LeftRequest;

    fn next(&mut self) -> Option<Self::Item> {
        let record = loop {
            let (position, record) = self.0.next()?;
            let octets = request_of(&record);
            // Templates are of messages with a SEID.
            match octets.get(4..).and_then(|octets| octets.first_chunk()) {
                Some(seid) => {
                    break LeftRequest {
                        position,
                        seid: u64::from_be_bytes(*seid),
                        from: sender_of(&record),
                        octets: octets.to_vec(),
                    };
                }
                None => self.0.strange += 1,
            }
        };
        Some(record)
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
