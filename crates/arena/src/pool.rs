//! Records without numbers, in memory that outlives the process: put, given back, and found again by whoever opens the memory.
//!
//! A record lies in blocks of one size, each of which names the next one, so that whatever the lengths are that come and go, room that
//! is free can be used. As in an arena, the process may end between any two stores: the next one finds each record whole, or not
//! at all.
//!
//! # Layout
//!
//! Octets 0 to 4095 are the superblock and the caller's header, as those of an arena, but for the magic number `tp-pool1` and 0 places.
//! From there on all are blocks of 128 octets, numbered from the beginning of the memory, the first one 32:
//!
//! | Word | Is |
//! |---|---|
//! | 0 | number of the next block, 0: none, and a tag, 0: no record begins here |
//! | 1 | of a block where a record begins: octets of the record |
//! | 1 or 2 … | octets of the record |
//!
//! The tag is the CRC32C of the block's number, the octets and their number, or 1 if that is 0. Of a record that is put it is the last
//! store, of one that is given back the first.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::layout::{
    self, OCTETS_MAX, PAGE, SUPERBLOCK, Superblock, WORD, load_octets, store, store_backed,
    store_octets,
};
use crate::{Full, HEADER_MAX, Memory, Uncreated, Unopened};

const MAGIC: u64 = u64::from_le_bytes(*b"tp-pool1");
/// Octets of a block, and its words.
const BLOCK: usize = 128;
const WORDS: usize = BLOCK / WORD;
/// Number of the first block.
const FIRST: u32 = (SUPERBLOCK / BLOCK) as u32;
/// Words in front of a record's octets, where it begins and in further blocks.
const BEGIN: usize = 2;
const GOES_ON: usize = 1;
const IN_FIRST: usize = (WORDS - BEGIN) * WORD;
const IN_FURTHER: usize = (WORDS - GOES_ON) * WORD;
/// Memory is backed in steps of this many pages.
const STEP: u32 = 16;
/// Blocks that are read, in sizes of the memory, before further records are taken for damaged: lengths that somebody has made up could
/// have each block read many.
const READ: usize = 4;

/// Octets of the longest record.
pub const RECORD_MAX: usize = u16::MAX as usize;

/// Records that lie in a memory.
#[derive(Debug)]
pub struct Pool<M> {
    memory: M,
    superblock: Superblock,
    /// First of the free blocks, each of which names the next one; 0: there is none.
    free: u32,
    /// Number of the block behind all that have been in use.
    fresh: u32,
    used: usize,
    /// Pages of the memory that are backed, from the first one on.
    backed: u32,
}

/// A record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    first: u32,
    octets: u16,
}

impl Stored {
    /// Octets of the record.
    #[expect(clippy::len_without_is_empty, reason = "no collection")]
    pub fn len(self) -> usize {
        self.octets.into()
    }
}

/// Octets of memory that a record takes.
pub fn taken(octets: usize) -> usize {
    (1 + octets.saturating_sub(IN_FIRST).div_ceil(IN_FURTHER)) * BLOCK
}

/// Octets of a memory that has room for records that take so many, or of the largest memory.
pub fn octets_for(taken: usize) -> usize {
    let octets = SUPERBLOCK.saturating_add(taken);
    octets.div_ceil(PAGE).saturating_mul(PAGE).min(OCTETS_MAX)
}

fn tag(first: u32, record: &[u8]) -> u32 {
    let checksum = crc32c::crc32c(&first.to_le_bytes());
    let checksum = crc32c::crc32c_append(checksum, &(record.len() as u64).to_le_bytes());
    crc32c::crc32c_append(checksum, record).max(1)
}

impl<M: Memory> Pool<M> {
    /// Make the memory a pool without records, whatever it was before.
    ///
    /// header: the caller's, at most [`HEADER_MAX`] octets, the same for the whole life of the pool
    pub fn create(mut memory: M, header: &[u8]) -> Result<Self, Uncreated> {
        let octets = memory.words().len() * WORD;
        let places = 0;
        if !(PAGE..=OCTETS_MAX).contains(&octets) {
            return Err(Uncreated::Size { octets, places });
        }
        let header_octets = header.len();
        if header_octets > HEADER_MAX {
            return Err(Uncreated::Header {
                octets: header_octets,
            });
        }
        memory.back(PAGE)?;
        let superblock = Superblock {
            places,
            header_octets,
        };
        let words = memory.words();
        Superblock::clear(words);
        fence(Ordering::Release);
        superblock.write(words, header);
        store_backed(words, 1);
        // Former content may look like records.
        for number in FIRST..(PAGE / BLOCK) as u32 {
            store(&words[number as usize * WORDS], 0, Ordering::Relaxed);
        }
        Superblock::seal(words, MAGIC);
        Ok(Self {
            memory,
            superblock,
            free: 0,
            fresh: FIRST,
            used: 0,
            backed: 1,
        })
    }

    /// Go on with the pool that lies in the memory, whose records come with it, in no order; the number of those that are damaged,
    /// and gone, too.
    pub fn open(mut memory: M) -> Result<(Self, Vec<Stored>, usize), Unopened> {
        let octets = memory.words().len() * WORD;
        if octets < PAGE {
            return Err(Unopened::NoArena);
        }
        memory.back(PAGE)?;
        let superblock = Superblock::read(memory.words(), MAGIC)?;
        let pages = layout::load_backed(memory.words());
        let pages = pages.filter(|pages| (1..=octets / PAGE).contains(&(*pages as usize)));
        let backed = pages.ok_or(Unopened::TornHeader)?;
        memory.back(backed as usize * PAGE)?;
        let mut pool = Self {
            memory,
            superblock,
            free: 0,
            fresh: backed * (PAGE / BLOCK) as u32,
            used: 0,
            backed,
        };
        let (records, damaged) = pool.find();
        Ok((pool, records, damaged))
    }

    /// Records that are whole; all other blocks become free.
    fn find(&mut self) -> (Vec<Stored>, usize) {
        let (mut records, mut damaged) = (Vec::new(), 0);
        let mut is_taken = vec![false; self.fresh as usize];
        let mut left_to_read = READ * self.fresh as usize;
        let (mut octets, mut chain) = (Vec::new(), Vec::new());
        for first in FIRST..self.fresh {
            if self.tag_of(first) == 0 {
                continue;
            }
            let found = self.length_of(first).filter(|&stored| {
                left_to_read = left_to_read.saturating_sub(taken(stored.len()) / BLOCK);
                octets.resize(stored.len(), 0);
                chain.clear();
                left_to_read > 0
                    && self.read(stored, &mut octets, |number| chain.push(number))
                    && tag(first, &octets) == self.tag_of(first)
                    && chain.iter().all(|&number| !is_taken[number as usize])
            });
            let Some(stored) = found else {
                damaged += 1;
                continue;
            };
            chain
                .iter()
                .for_each(|&number| is_taken[number as usize] = true);
            self.used += chain.len();
            records.push(stored);
        }
        for number in (FIRST..self.fresh).rev() {
            if !is_taken[number as usize] {
                store(self.word(number), self.free.into(), Ordering::Relaxed);
                self.free = number;
            }
        }
        (records, damaged)
    }

    /// The header that the pool was created with.
    pub fn header(&self) -> Vec<u8> {
        self.superblock.header(self.memory.words())
    }

    /// Octets of memory that records take.
    pub fn used(&self) -> usize {
        self.used * BLOCK
    }

    /// Put a record. On an error, all is as it was.
    pub fn put(&mut self, record: &[u8]) -> Result<Stored, Full> {
        let octets = record.len();
        let too_long = |_| Full::Record {
            octets,
            most: RECORD_MAX,
        };
        let stored = |first| {
            let octets = u16::try_from(octets).map_err(too_long)?;
            Ok(Stored { first, octets })
        };
        stored(0)?;
        let blocks = taken(octets) / BLOCK;
        self.make_room(blocks, octets)?;
        // From the end, so that each block knows the one behind it.
        let (begin, further) = record.split_at(octets.min(IN_FIRST));
        // A block may be one of a record that was given back by the last store.
        fence(Ordering::Release);
        let mut next = 0;
        for part in further.chunks(IN_FURTHER).rev() {
            let number = self.take();
            let words = self.words(number);
            store(&words[0], u64::from(next), Ordering::Relaxed);
            store_octets(&words[GOES_ON..], part);
            next = number;
        }
        let first = self.take();
        let words = self.words(first);
        store(&words[1], octets as u64, Ordering::Relaxed);
        store_octets(&words[BEGIN..], begin);
        let tagged = u64::from(next) | u64::from(tag(first, record)) << 32;
        store(&words[0], tagged, Ordering::Release);
        self.used += blocks;
        stored(first)
    }

    /// Read a record into `into`, which is as long as it is. It is not checked once more.
    pub fn copy(&self, record: Stored, into: &mut [u8]) {
        self.read(record, into, |_| {});
    }

    /// The record is gone, and its room free.
    pub fn give(&mut self, record: Stored) {
        let second = self.next(record.first);
        store(self.word(record.first), second.into(), Ordering::Release);
        // Else it would have more blocks than it says, to whoever finds it.
        fence(Ordering::Release);
        let (mut last, mut blocks) = (record.first, 1);
        while blocks < taken(record.len()) / BLOCK && self.next(last) != 0 {
            last = self.next(last);
            blocks += 1;
        }
        store(self.word(last), self.free.into(), Ordering::Relaxed);
        self.free = record.first;
        self.used -= blocks;
    }

    /// There is room of the file system that no record takes, and nothing else.
    pub fn is_spare(&self) -> bool {
        self.used == 0 && self.backed > 1
    }

    /// While there is no record: the file system's room for them is given back.
    pub fn give_back(&mut self) {
        if !self.is_spare() {
            return;
        }
        // Pages that are no more are not looked at.
        store_backed(self.memory.words(), 1);
        fence(Ordering::SeqCst);
        (self.free, self.fresh, self.backed) = (0, FIRST, 1);
        self.memory.give_back(PAGE);
    }

    /// Have so many blocks free, or never used and backed.
    fn make_room(&mut self, blocks: usize, octets: usize) -> Result<(), Full> {
        let in_use = self.used + FIRST as usize;
        let all = self.memory.words().len() / WORDS;
        if in_use + blocks > all {
            return Err(Full::Heap { octets });
        }
        // Blocks that are neither in use nor fresh are free.
        let free = self.fresh as usize - in_use;
        let fresh = self.fresh as usize + blocks.saturating_sub(free);
        let pages = (fresh * BLOCK).div_ceil(PAGE) as u32;
        if pages > self.backed {
            let end = (self.memory.words().len() * WORD / PAGE) as u32;
            let pages = pages.next_multiple_of(STEP).min(end);
            let backed = self.memory.back(pages as usize * PAGE);
            backed.map_err(Full::Unbacked)?;
            self.clear(self.backed, pages);
            store_backed(self.memory.words(), pages);
            self.backed = pages;
        }
        Ok(())
    }

    /// No record begins in these pages, which somebody may have written before.
    fn clear(&self, from: u32, to: u32) {
        let blocks = (PAGE / BLOCK) as u32;
        for number in from * blocks..to * blocks {
            if self.word(number).load(Ordering::Relaxed) != 0 {
                store(self.word(number), 0, Ordering::Relaxed);
            }
        }
    }

    /// A block that nobody has. There is one.
    fn take(&mut self) -> u32 {
        if self.free != 0 {
            let number = self.free;
            self.free = self.next(number);
            return number;
        }
        self.fresh += 1;
        self.fresh - 1
    }

    fn words(&self, number: u32) -> &[AtomicU64] {
        &self.memory.words()[number as usize * WORDS..][..WORDS]
    }

    /// The first one of a block.
    fn word(&self, number: u32) -> &AtomicU64 {
        &self.memory.words()[number as usize * WORDS]
    }

    fn tag_of(&self, number: u32) -> u32 {
        (self.word(number).load(Ordering::Relaxed) >> 32) as u32
    }

    fn length_of(&self, first: u32) -> Option<Stored> {
        let octets = self.words(first)[1].load(Ordering::Relaxed);
        let octets = u16::try_from(octets).ok()?;
        Some(Stored { first, octets })
    }

    /// The block behind this one; 0: none of ours is.
    fn next(&self, number: u32) -> u32 {
        let next = self.word(number).load(Ordering::Relaxed) as u32;
        if (FIRST..self.fresh).contains(&next) {
            next
        } else {
            0
        }
    }

    /// Whether the record has all its blocks, and no more.
    fn read(&self, record: Stored, into: &mut [u8], mut meet: impl FnMut(u32)) -> bool {
        let (begin, further) = into.split_at_mut(record.len().min(IN_FIRST).min(into.len()));
        load_octets(&self.words(record.first)[BEGIN..], begin);
        meet(record.first);
        let mut number = record.first;
        for part in further.chunks_mut(IN_FURTHER) {
            number = self.next(number);
            if number == 0 {
                return false;
            }
            load_octets(&self.words(number)[GOES_ON..], part);
            meet(number);
        }
        self.next(number) == 0
    }
}
