//! Records in the order in which they came, the oldest of which make way, in memory that outlives the process.
//!
//! As in an arena, the process may end between any two stores: the next one finds each record whole, or not at all.
//!
//! # Layout
//!
//! Positions count words since the beginning; the word at a position is that at its remainder behind the front.
//!
//! | Word | Is |
//! |---|---|
//! | 0 | magic number, `tp-ring1` |
//! | 1 | position of the oldest record |
//! | 2 | position behind the newest one |
//! | 8 … | records: a word with the octets of the record, and the CRC32C of position, length and octets; then the octets |
//!
//! A record that comes first has the oldest ones out of its way, by one store, then is written, and is there by one more.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use crate::layout::{PAGE, WORD, load_octets, store, store_octets};
use crate::{Full, Memory, Uncreated, Unopened};

const MAGIC: u64 = u64::from_le_bytes(*b"tp-ring1");
const AT_MAGIC: usize = 0;
const AT_OLDEST: usize = 1;
const AT_END: usize = 2;
const FRONT: usize = 8;

/// The newest records.
pub struct Ring<M> {
    memory: M,
    oldest: u64,
    end: u64,
    /// Words of the memory that are backed, from the first one on.
    backed: usize,
}

/// Words of a record of so many octets.
fn words_for(octets: usize) -> usize {
    1 + octets.div_ceil(WORD)
}

fn checksum(position: u64, octets: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(&position.to_le_bytes());
    let checksum = crc32c::crc32c_append(checksum, &(octets.len() as u64).to_le_bytes());
    crc32c::crc32c_append(checksum, octets)
}

impl<M: Memory> Ring<M> {
    /// Make the memory a ring without records, whatever it was before.
    pub fn create(memory: M) -> Result<Self, Uncreated> {
        let octets = memory.words().len() * WORD;
        if memory.words().len() <= FRONT {
            return Err(Uncreated::Size { octets, places: 0 });
        }
        let mut ring = Self {
            memory,
            oldest: 0,
            end: 0,
            backed: 0,
        };
        ring.back(FRONT)?;
        let words = ring.memory.words();
        store(&words[AT_MAGIC], 0, Ordering::Release);
        store(&words[AT_OLDEST], 0, Ordering::Release);
        store(&words[AT_END], 0, Ordering::Release);
        store(&words[AT_MAGIC], MAGIC, Ordering::Release);
        Ok(ring)
    }

    /// Go on with the ring that lies in the memory.
    pub fn open(memory: M) -> Result<Self, Unopened> {
        if memory.words().len() <= FRONT {
            return Err(Unopened::NoArena);
        }
        let mut ring = Self {
            memory,
            oldest: 0,
            end: 0,
            backed: 0,
        };
        ring.back(FRONT)?;
        let word = |at: usize| ring.memory.words()[at].load(Ordering::Acquire);
        if word(AT_MAGIC) != MAGIC {
            return Err(Unopened::NoArena);
        }
        let (oldest, end) = (word(AT_OLDEST), word(AT_END));
        let room = ring.room();
        if end.checked_sub(oldest).is_none_or(|used| used > room) || end > u64::MAX / 2 {
            return Err(Unopened::TornHeader);
        }
        (ring.oldest, ring.end) = (oldest, end);
        ring.back(FRONT + end.min(room) as usize)?;
        ring.cut();
        Ok(ring)
    }

    /// No record is found behind a length that is none: those in front of it are the last ones.
    fn cut(&mut self) {
        let mut position = self.oldest;
        while position < self.end {
            match self.length_at(position) {
                Some(length) => position += words_for(length) as u64,
                None => {
                    self.end = position;
                    store(&self.memory.words()[AT_END], position, Ordering::Release);
                }
            }
        }
    }

    /// Words for records.
    fn room(&self) -> u64 {
        (self.memory.words().len() - FRONT) as u64
    }

    /// Have the file system's room for so many words.
    fn back(&mut self, words: usize) -> std::io::Result<()> {
        if words > self.backed {
            let all = self.memory.words().len();
            let words = words.next_multiple_of(PAGE / WORD).min(all);
            self.memory.back(words * WORD)?;
            self.backed = words;
        }
        Ok(())
    }

    /// Have the record come behind all others. As many of the oldest make way as it takes. On an error, all is as it was.
    pub fn push(&mut self, record: &[u8]) -> Result<(), Full> {
        let (octets, words) = (record.len(), words_for(record.len()) as u64);
        if words > self.room() || u32::try_from(octets).is_err() {
            return Err(Full::Heap { octets });
        }
        let end = self.end + words;
        let backed = FRONT + end.min(self.room()) as usize;
        self.back(backed).map_err(Full::Unbacked)?;
        let before = self.oldest;
        while end - self.oldest > self.room() {
            self.oldest = match self.length_at(self.oldest) {
                Some(length) => self.oldest + words_for(length) as u64,
                None => self.end,
            };
        }
        let all = self.memory.words();
        if self.oldest != before {
            store(&all[AT_OLDEST], self.oldest, Ordering::Release);
        }
        // The record may lie where these were.
        fence(Ordering::Release);
        let head = octets as u64 | u64::from(checksum(self.end, record)) << 32;
        let [first, second] = self.places(self.end..end);
        let (first, second) = (&all[first], &all[second]);
        store(&first[0], head, Ordering::Relaxed);
        let in_first = octets.min((first.len() - 1) * WORD);
        store_octets(&first[1..], &record[..in_first]);
        store_octets(second, &record[in_first..]);
        store(&all[AT_END], end, Ordering::Release);
        self.end = end;
        Ok(())
    }

    /// Words at these positions, in two parts where they come round. Fewer than there is room for.
    fn places(&self, positions: Range<u64>) -> [Range<usize>; 2] {
        let begin = (positions.start % self.room()) as usize;
        let words = (positions.end - positions.start) as usize;
        let first = words.min(self.room() as usize - begin);
        [
            FRONT + begin..FRONT + begin + first,
            FRONT..FRONT + words - first,
        ]
    }

    fn word(&self, position: u64) -> u64 {
        let at = FRONT + (position % self.room()) as usize;
        self.memory.words()[at].load(Ordering::Relaxed)
    }

    /// Octets of the record that begins here. `None`: none does.
    fn length_at(&self, position: u64) -> Option<usize> {
        let length = self.word(position) as u32 as usize;
        let is_within = position + words_for(length) as u64 <= self.end;
        is_within.then_some(length)
    }

    /// All records that are as they were pushed, the oldest first.
    pub fn records(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let mut position = self.oldest;
        std::iter::from_fn(move || {
            while position < self.end {
                let length = self.length_at(position)?;
                let begin = position;
                position += words_for(length) as u64;
                if let Some(record) = self.record(begin..position, length) {
                    return Some(record);
                }
            }
            None
        })
    }

    fn record(&self, positions: Range<u64>, length: usize) -> Option<Vec<u8>> {
        let (head, begin) = (self.word(positions.start), positions.start);
        let [first, second] = self.places(begin + 1..positions.end);
        let all = self.memory.words();
        let mut record = vec![0; length];
        let (in_first, in_second) = record.split_at_mut(length.min(first.len() * WORD));
        load_octets(&all[first], in_first);
        load_octets(&all[second], in_second);
        ((head >> 32) as u32 == checksum(begin, &record)).then_some(record)
    }
}

/// Octets of a ring that has room for so many records of this length.
pub fn octets_for(records: usize, record_octets: usize) -> usize {
    let words = words_for(record_octets).saturating_mul(records);
    let octets = words.saturating_add(FRONT).saturating_mul(WORD);
    octets.div_ceil(PAGE).saturating_mul(PAGE)
}
