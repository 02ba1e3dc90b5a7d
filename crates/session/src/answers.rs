//! Answers kept for requests that come again (TS 29.244, 6.4).
//!
//! A retransmission has the same content, header, addresses and ports as its original, so the
//! whole datagram and its source are the key. A restarted SMF that begins its sequence numbers
//! anew sends other content, or speaks within another association: it is never given an answer to
//! a request of its former life.
//!
//! First in, first out, in count, bytes and time. A lookup walks at most [`LONGEST_WALK`]
//! answers, whatever peers send.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crate::config;
use crate::time::Time;

/// Chains are one or two long; a peer that forges collisions only loses its own duplicates.
const LONGEST_WALK: usize = 16;

/// A request, seen from the transaction layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// Of a message and where it came from. Whether another message follows it in the datagram is
    /// no part of it: what came in a bundle may be repeated alone.
    pub(crate) fn new(from: SocketAddr, datagram: &[u8]) -> Self {
        let address = match from.ip() {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let mut hash = fold(
            address as u64 ^ K0,
            (address >> 64) as u64 ^ u64::from(from.port()),
        );
        let mut chunks = datagram.chunks_exact(16);
        let mut mask = !FOLLOW_ON;
        for chunk in &mut chunks {
            let (a, b) = chunk.split_at(8);
            hash = fold((word(a) & mask) ^ K1 ^ hash, word(b) ^ K2);
            mask = !0;
        }
        let (a, b) = chunks.remainder().split_at(chunks.remainder().len().min(8));
        Self(fold(
            (word(a) & mask) ^ K1 ^ hash,
            word(b) ^ K2 ^ datagram.len() as u64,
        ))
    }

    /// The same request within one association; `scope` zero: within none.
    pub(crate) fn within(self, scope: u32) -> Self {
        Self(fold(self.0 ^ K0, u64::from(scope) ^ K2))
    }
}

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xa076_1d64_78bd_642f;
const K2: u64 = 0xe703_7ed1_a0b4_28db;

/// The FO flag (7.2.2.1) in the first word of a message.
const FOLLOW_ON: u64 = 0x04;

/// Up to eight bytes, the missing ones zero.
fn word(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[derive(Debug)]
struct Record {
    key: Fingerprint,
    /// Number of the next older record of this chain; dead when below `oldest`.
    older: u64,
    at: Time,
    /// Number of the answer's first byte since the beginning.
    start: u64,
    len: usize,
}

/// The cache. See the module.
#[derive(Debug)]
pub(crate) struct AnswerCache {
    limits: config::Answers,
    records: VecDeque<Record>,
    /// Number of `records[0]`; the first ever is 1, so that 0 is a dead end.
    oldest: u64,
    /// Newest record of each chain. Four times as many as answers: most requests are new, and find
    /// their chain empty without touching a record.
    heads: Vec<u64>,
    bytes: VecDeque<u8>,
    /// Number of `bytes[0]`.
    first_byte: u64,
}

impl AnswerCache {
    pub(crate) fn new(limits: config::Answers) -> Self {
        Self {
            limits,
            records: VecDeque::new(),
            oldest: 1,
            heads: vec![0; 4 * limits.count.max(1).next_power_of_two()],
            bytes: VecDeque::new(),
            first_byte: 0,
        }
    }

    /// Read what [`Self::find`] reads first. The result means nothing.
    pub(crate) fn touch(&self, key: Fingerprint) -> u64 {
        self.heads[self.chain(key)]
    }

    /// The answer to `key`, in two pieces where the ring wraps.
    pub(crate) fn find(&self, now: Time, key: Fingerprint) -> Option<(&[u8], &[u8])> {
        let mut number = self.heads[self.chain(key)];
        for _ in 0..LONGEST_WALK {
            let place = usize::try_from(number.checked_sub(self.oldest)?).ok()?;
            let record = self.records.get(place)?;
            if record.key == key {
                let alive = now.since(record.at) < self.limits.lifetime;
                return alive.then(|| self.answer(record));
            }
            number = record.older;
        }
        None
    }

    fn answer(&self, record: &Record) -> (&[u8], &[u8]) {
        let start = (record.start - self.first_byte) as usize;
        let end = start + record.len;
        let (front, back) = self.bytes.as_slices();
        if start >= front.len() {
            (&back[start - front.len()..end - front.len()], &[])
        } else if end <= front.len() {
            (&front[start..end], &[])
        } else {
            (&front[start..], &back[..end - front.len()])
        }
    }

    /// Keep `answer`. Makes room by forgetting the oldest.
    pub(crate) fn keep(&mut self, now: Time, key: Fingerprint, answer: &[u8]) {
        if answer.is_empty() || answer.len() > self.limits.bytes || self.limits.count == 0 {
            return;
        }
        while self.records.front().is_some_and(|oldest| {
            self.records.len() >= self.limits.count
                || self.bytes.len() + answer.len() > self.limits.bytes
                || now.since(oldest.at) >= self.limits.lifetime
        }) {
            self.forget_oldest();
        }
        let chain = self.chain(key);
        let number = self.oldest + self.records.len() as u64;
        self.records.push_back(Record {
            key,
            older: std::mem::replace(&mut self.heads[chain], number),
            at: now,
            start: self.first_byte + self.bytes.len() as u64,
            len: answer.len(),
        });
        self.bytes.extend(answer);
    }

    fn forget_oldest(&mut self) {
        if let Some(record) = self.records.pop_front() {
            self.oldest += 1;
            self.first_byte += record.len as u64;
            self.bytes.drain(..record.len);
        }
    }

    fn chain(&self, key: Fingerprint) -> usize {
        key.0 as usize & (self.heads.len() - 1)
    }

    /// Answers and bytes held.
    pub(crate) fn fill(&self) -> (usize, usize) {
        (self.records.len(), self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PEER: &str = "192.0.2.1:8805";

    fn key(n: u32) -> Fingerprint {
        Fingerprint::new(PEER.parse().unwrap(), &n.to_be_bytes())
    }

    fn cache(count: usize, bytes: usize) -> AnswerCache {
        AnswerCache::new(config::Answers {
            count,
            bytes,
            lifetime: Duration::from_secs(30),
        })
    }

    fn found(cache: &AnswerCache, now: Time, n: u32) -> Option<Vec<u8>> {
        cache.find(now, key(n)).map(|(a, b)| [a, b].concat())
    }

    #[test]
    fn every_part_of_a_request_is_part_of_its_key() {
        let from: SocketAddr = PEER.parse().unwrap();
        let datagram: Vec<u8> = (0..45).collect();
        let key = Fingerprint::new(from, &datagram);
        assert_eq!(key, Fingerprint::new(from, &datagram));
        for place in 0..datagram.len() {
            let mut other = datagram.clone();
            other[place] ^= 0x10;
            assert_ne!(key, Fingerprint::new(from, &other), "byte {place}");
            assert_ne!(
                key,
                Fingerprint::new(from, &datagram[..place]),
                "length {place}"
            );
        }
        let other_port = SocketAddr::new(from.ip(), 8806);
        assert_ne!(key, Fingerprint::new(other_port, &datagram));
        assert_ne!(
            key,
            Fingerprint::new("192.0.2.2:8805".parse().unwrap(), &datagram)
        );
        assert_ne!(key.within(1), key.within(2));
    }

    #[test]
    fn keeps_the_newest_within_count_and_bytes() {
        let mut cache = cache(8, 100);
        for n in 0..1000_u32 {
            let answer = vec![n as u8; 1 + (n % 31) as usize];
            cache.keep(Time(u64::from(n)), key(n), &answer);
            assert_eq!(found(&cache, Time(u64::from(n)), n), Some(answer));
            let (count, bytes) = cache.fill();
            assert!(count <= 8 && bytes <= 100, "{count} {bytes}");
        }
        assert_eq!(found(&cache, Time(1000), 900), None);
    }

    #[test]
    fn forgets_after_its_lifetime() {
        let mut cache = cache(8, 100);
        cache.keep(Time(0), key(1), b"yes");
        assert!(found(&cache, Time(29_999_999_999), 1).is_some());
        assert!(found(&cache, Time(30_000_000_000), 1).is_none());
        cache.keep(Time(30_000_000_000), key(2), b"no");
        assert_eq!(cache.fill(), (1, 2));
    }

    #[test]
    fn an_answer_larger_than_the_cache_is_not_kept() {
        let mut cache = cache(8, 4);
        cache.keep(Time(0), key(1), b"large");
        assert_eq!(cache.fill(), (0, 0));
        assert!(found(&cache, Time(0), 1).is_none());
    }
}
