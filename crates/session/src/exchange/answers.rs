//! Answers kept for requests that come again (TS 29.244, 6.4).
//!
//! A retransmission has the same content, header, addresses and ports as its original, so the
//! whole datagram and its source are the key. A restarted SMF that begins its sequence numbers
//! anew sends other content, or speaks within another association: it is never given an answer to
//! a request of its former life.
//!
//! Each association has a cache of its own: first in, first out. A busy SMF may fill what others do not
//! use; when there is no room left, it gives way to one that has less than its equal share, and never the
//! reverse. Senders without association share a small cache apart from those. A lookup walks at most
//! [`LONGEST_WALK`] answers, whatever peers send.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::rules::config;

/// Strangers' part of the room. What they are told and may ask for again is little: refusals are not kept.
const STRANGERS_PART: usize = 16;
/// Chains of an empty cache.
const HEADS_MIN: usize = 64;

/// Chains are one or two long; a peer that forges collisions only loses its own duplicates.
const LONGEST_WALK: usize = 16;

/// A request, seen from the transaction layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// All answers. See the module.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Of all peers together.
    room: config::Answers,
    of_peers: BTreeMap<PeerId, Cache>,
    /// In `of_peers`.
    held: Fill,
    room_of_strangers: config::Answers,
    of_strangers: Cache,
}

/// Answers, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fill {
    count: usize,
    bytes: usize,
}

impl Fill {
    fn fits(self, answer: usize, room: &config::Answers) -> bool {
        self.count < room.count && self.bytes + answer <= room.bytes
    }

    /// Which part of the room it is, of count or of bytes; in units of one by their product.
    fn part(self, room: &config::Answers) -> u128 {
        let of_count = self.count as u128 * room.bytes as u128;
        of_count.max(self.bytes as u128 * room.count as u128)
    }

    fn without(self, other: Self) -> Self {
        Self {
            count: self.count - other.count,
            bytes: self.bytes - other.bytes,
        }
    }
}

impl Answers {
    pub(crate) fn new(limits: config::Answers) -> Self {
        let room_of_strangers = config::Answers {
            count: limits.count / STRANGERS_PART,
            bytes: limits.bytes / STRANGERS_PART,
            ..limits
        };
        let room = config::Answers {
            count: limits.count - room_of_strangers.count,
            bytes: limits.bytes - room_of_strangers.bytes,
            ..limits
        };
        Self {
            room,
            of_peers: BTreeMap::new(),
            held: Fill::default(),
            room_of_strangers,
            of_strangers: Cache::default(),
        }
    }

    /// `of`: the association that the request came within; `None`: a stranger's.
    fn cache(&self, of: Option<PeerId>) -> Option<&Cache> {
        match of {
            Some(id) => self.of_peers.get(&id),
            None => Some(&self.of_strangers),
        }
    }

    /// Read what [`Self::find`] reads first. The result means nothing.
    pub(crate) fn touch(&self, of: Option<PeerId>, key: Fingerprint) -> u64 {
        self.cache(of).map_or(0, |cache| cache.touch(key))
    }

    /// The answer to `key`, in two pieces where the ring wraps.
    pub(crate) fn find(
        &self,
        now: Time,
        of: Option<PeerId>,
        key: Fingerprint,
    ) -> Option<(&[u8], &[u8])> {
        self.cache(of)?.find(now, key, &self.room)
    }

    /// Keep `answer`. Makes room by forgetting the oldest: of the association itself when it has its equal
    /// share, else of the one that has the most.
    pub(crate) fn keep(&mut self, now: Time, of: Option<PeerId>, key: Fingerprint, answer: &[u8]) {
        let Some(id) = of else {
            let (cache, room) = (&mut self.of_strangers, &self.room_of_strangers);
            if Fill::default().fits(answer.len(), room) {
                cache.forget_expired(now, room);
                while !cache.held().fits(answer.len(), room) {
                    cache.forget_oldest();
                }
                cache.keep(now, key, answer);
            }
            return;
        };
        if !Fill::default().fits(answer.len(), &self.room) {
            return;
        }
        let cache = self.of_peers.entry(id).or_default();
        let before = cache.held();
        cache.forget_expired(now, &self.room);
        self.held = self.held.without(before.without(cache.held()));
        while !self.held.fits(answer.len(), &self.room) {
            self.make_room(id);
        }
        if let Some(cache) = self.of_peers.get_mut(&id) {
            cache.keep(now, key, answer);
            self.held.count += 1;
            self.held.bytes += answer.len();
        }
    }

    /// One answer less. Something is held, or there would be room: an answer fits into all of it.
    fn make_room(&mut self, wanted_by: PeerId) {
        let share = self.room.count as u128 * self.room.bytes as u128 / self.of_peers.len() as u128;
        let part = |cache: &Cache| cache.held().part(&self.room);
        let own = self.of_peers.get(&wanted_by).map_or(0, part);
        let from = if own >= share {
            Some(wanted_by)
        } else {
            let most = self.of_peers.iter().max_by_key(|(_, cache)| part(cache));
            most.map(|(id, _)| *id)
        };
        if let Some(cache) = from.and_then(|id| self.of_peers.get_mut(&id)) {
            let before = cache.held();
            cache.forget_oldest();
            self.held = self.held.without(before.without(cache.held()));
        }
    }

    /// An association has ended: nobody can ask for its answers any more.
    pub(crate) fn forget(&mut self, id: PeerId) {
        if let Some(cache) = self.of_peers.remove(&id) {
            self.held = self.held.without(cache.held());
        }
    }

    /// Answers and bytes held.
    pub(crate) fn fill(&self) -> (usize, usize) {
        let strangers = self.of_strangers.held();
        (
            self.held.count + strangers.count,
            self.held.bytes + strangers.bytes,
        )
    }
}

/// The answers to one association, or to all strangers.
#[derive(Debug)]
struct Cache {
    records: VecDeque<Record>,
    /// Number of `records[0]`; the first ever is 1, so that 0 is a dead end.
    oldest: u64,
    /// Newest record of each chain. At least four times as many as answers: most requests are new, and
    /// find their chain empty without touching a record.
    heads: Vec<u64>,
    bytes: VecDeque<u8>,
    /// Number of `bytes[0]`.
    first_byte: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            records: VecDeque::new(),
            oldest: 1,
            heads: vec![0; HEADS_MIN],
            bytes: VecDeque::new(),
            first_byte: 0,
        }
    }
}

impl Cache {
    fn touch(&self, key: Fingerprint) -> u64 {
        self.heads[self.chain(key)]
    }

    fn find(&self, now: Time, key: Fingerprint, room: &config::Answers) -> Option<(&[u8], &[u8])> {
        let mut number = self.heads[self.chain(key)];
        for _ in 0..LONGEST_WALK {
            let place = usize::try_from(number.checked_sub(self.oldest)?).ok()?;
            let record = self.records.get(place)?;
            if record.key == key {
                let alive = now.since(record.at) < room.lifetime;
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

    fn keep(&mut self, now: Time, key: Fingerprint, answer: &[u8]) {
        if 4 * self.records.len() >= self.heads.len() {
            self.resize();
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

    fn forget_expired(&mut self, now: Time, room: &config::Answers) {
        let is_old = |record: &Record| now.since(record.at) >= room.lifetime;
        while self.records.front().is_some_and(is_old) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(record) = self.records.pop_front() {
            self.oldest += 1;
            self.first_byte += record.len as u64;
            self.bytes.drain(..record.len);
        }
        // A peer that has given way gives memory back, too.
        if self.heads.len() > HEADS_MIN && 32 * self.records.len() < self.heads.len() {
            self.resize();
            self.records.shrink_to(2 * self.records.len());
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }

    /// As many chains as the answers at hand want. Costs a look at each of them, once they have doubled.
    fn resize(&mut self) {
        let chains = (8 * self.records.len()).next_power_of_two();
        self.heads = vec![0; chains.max(HEADS_MIN)];
        let mask = self.heads.len() - 1;
        for (number, record) in (self.oldest..).zip(&mut self.records) {
            let head = &mut self.heads[record.key.0 as usize & mask];
            record.older = std::mem::replace(head, number);
        }
    }

    fn chain(&self, key: Fingerprint) -> usize {
        key.0 as usize & (self.heads.len() - 1)
    }

    fn held(&self) -> Fill {
        Fill {
            count: self.records.len(),
            bytes: self.bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PEER: &str = "192.0.2.1:8805";
    const ONE: Option<PeerId> = Some(PeerId(1));
    const TWO: Option<PeerId> = Some(PeerId(2));

    fn key(n: u32) -> Fingerprint {
        Fingerprint::new(PEER.parse().unwrap(), &n.to_be_bytes())
    }

    /// Peers have so much room; strangers have a fifteenth of it more.
    fn answers(count: usize, bytes: usize) -> Answers {
        let with_strangers = |room: usize| room * STRANGERS_PART / (STRANGERS_PART - 1);
        let answers = Answers::new(config::Answers {
            count: with_strangers(count),
            bytes: with_strangers(bytes),
            lifetime: Duration::from_secs(30),
        });
        assert_eq!((answers.room.count, answers.room.bytes), (count, bytes));
        answers
    }

    fn found(answers: &Answers, now: Time, of: Option<PeerId>, n: u32) -> Option<Vec<u8>> {
        answers.find(now, of, key(n)).map(|(a, b)| [a, b].concat())
    }

    /// Answers that are still known, of those with these numbers.
    fn known(answers: &Answers, of: Option<PeerId>, numbers: std::ops::Range<u32>) -> usize {
        let is_known = |n: &u32| found(answers, Time(0), of, *n).is_some();
        numbers.filter(is_known).count()
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
    }

    #[test]
    fn keeps_the_newest_within_count_and_bytes() {
        for of in [ONE, None] {
            let mut answers = answers(15 * 16, 15 * 100);
            let (most, most_bytes) = if of.is_some() { (240, 1500) } else { (16, 100) };
            for n in 0..1000_u32 {
                let answer = vec![n as u8; 1 + (n % 31) as usize];
                answers.keep(Time(u64::from(n)), of, key(n), &answer);
                assert_eq!(found(&answers, Time(u64::from(n)), of, n), Some(answer));
                let (count, bytes) = answers.fill();
                assert!(count <= most && bytes <= most_bytes, "{count} {bytes}");
            }
            assert_eq!(found(&answers, Time(1000), of, 700), None);
        }
    }

    #[test]
    fn nothing_is_lost_while_a_cache_grows_and_shrinks() {
        let mut answers = answers(15_000, 150_000);
        for n in 0..10_000 {
            answers.keep(Time(0), ONE, key(n), &n.to_be_bytes());
        }
        for n in 0..10_000 {
            assert_eq!(
                found(&answers, Time(0), ONE, n),
                Some(n.to_be_bytes().into())
            );
        }
        // The one that has the most gives way, until both have the same.
        for n in 0..15_000 {
            answers.keep(Time(0), TWO, key(n), &n.to_be_bytes());
        }
        assert_eq!(known(&answers, ONE, 2500..10_000), 7500);
        assert_eq!(known(&answers, TWO, 7500..15_000), 7500);
        assert_eq!(answers.fill(), (15_000, 60_000));
    }

    #[test]
    fn a_cache_that_has_shrunk_takes_little_memory() {
        let mut answers = answers(15_000, 150_000);
        for n in 0..15_000 {
            answers.keep(Time(0), ONE, key(n), &n.to_be_bytes());
        }
        answers.keep(Time(30_000_000_000), ONE, key(1), b"new");
        let cache = &answers.of_peers[&PeerId(1)];
        assert_eq!(cache.heads.len(), HEADS_MIN);
        assert!(cache.records.capacity() + cache.bytes.capacity() < 100);
        assert_eq!(answers.fill(), (1, 3));
    }

    #[test]
    fn nobody_takes_the_answers_of_who_has_less_than_its_share() {
        let mut answers = answers(150, 1500);
        for n in 0..50 {
            answers.keep(Time(0), ONE, key(n), b"one");
        }
        for n in 0..100_000 {
            answers.keep(Time(0), TWO, key(n), b"two");
            answers.keep(Time(0), None, key(n), b"stranger");
        }
        assert_eq!(known(&answers, ONE, 0..50), 50);
        assert_eq!(known(&answers, TWO, 99_900..100_000), 100);
        assert_eq!(known(&answers, None, 99_990..100_000), 10);
        // A third one has its share, too, at the expense of the second.
        for n in 0..50 {
            answers.keep(Time(0), Some(PeerId(3)), key(n), b"three");
        }
        assert_eq!(known(&answers, ONE, 0..50), 50);
        assert_eq!(known(&answers, Some(PeerId(3)), 0..50), 50);
        answers.forget(PeerId(2));
        answers.forget(PeerId(3));
        assert_eq!(answers.fill(), (60, 230));
    }

    #[test]
    fn forgets_after_its_lifetime() {
        let mut answers = answers(15, 150);
        answers.keep(Time(0), ONE, key(1), b"yes");
        assert!(found(&answers, Time(29_999_999_999), ONE, 1).is_some());
        assert!(found(&answers, Time(30_000_000_000), ONE, 1).is_none());
        answers.keep(Time(30_000_000_000), ONE, key(2), b"no");
        assert_eq!(answers.fill(), (1, 2));
    }

    #[test]
    fn an_answer_larger_than_the_cache_is_not_kept() {
        let mut answers = answers(15, 15);
        for of in [ONE, None] {
            answers.keep(Time(0), of, key(1), b"larger than that");
            assert_eq!(answers.fill(), (0, 0));
            assert!(found(&answers, Time(0), of, 1).is_none());
        }
    }
}
