//! Records of octets, by the number of their place, in memory that outlives the process.
//!
//! The process may end between any two stores, and the memory stays as it was then. A place has its former record or its new one,
//! never a part of either: one store of eight octets decides. The next process opens the memory and finds each place so.
//! [decision](../../../docs/decisions/0024-records-lie-in-shared-memory.md)
//!
//! # Layout
//!
//! Words are of 64 bits; numbers of 32 bits lie two to a word, the first one below. Octets lie in words in little-endian order.
//!
//! | Octets | Are |
//! |---|---|
//! | 0 | magic number, `tp-arena` |
//! | 8 | version of the layout |
//! | 16 | places, octets of the header |
//! | 24 | octets of the memory |
//! | 32 | CRC32C of octets 8 to 31 and of the header |
//! | 40 | backed pages of 64 KiB, and the complement of that number |
//! | 64 to 4095 | the caller's header |
//! | 4096 … | directory: for each place 0, or the unit of 64 octets at which its block begins, and the CRC32C of head and record |
//! | from the next page of 64 KiB | heap: blocks |
//!
//! A block is a head, its place and the octets of the record, and then the record. It begins at a multiple of 64 octets. Up to
//! 32 KiB it lies in a page of blocks of one size, larger ones take whole pages. Free space is derived when the memory is opened: it is
//! all that no valid block takes.
//!
//! The checksum is in the directory, so that a word that is torn or leads to a block of former times has no record, whatever lies
//! there.
//!
//! # Order of stores
//!
//! | Operation | Stores | Why in this order |
//! |---|---|---|
//! | create | magic number 0 | a former arena ends before the first of its words changes |
//! | | directory, superblock, header | |
//! | | magic number | only a whole superblock is one |
//! | put | number of backed pages, where it grows | a block beyond it is not read, as reading would take memory that nobody backed |
//! | | block, in free space | the former record is whole |
//! | | directory word | makes the new record valid; the space of the former one is free from here on |
//! | remove | directory word 0 | as above |
//!
//! The directory word is stored with `Release`, and a fence stands in front of the next block, which may lie where the former record was.
//! A process that is killed has stored what it stored in the order of its instructions; these keep the compiler to it.
//!
//! # Trust
//!
//! Octets in the memory are checked when they are read, each time: nothing that lies there makes the arena panic, loop, or take memory
//! beyond the longest record. A checksum is no proof against somebody who writes there on purpose; the file's mode is.

#![forbid(unsafe_code)]

pub mod copy;
mod layout;
mod pages;
pub mod pool;
pub mod ring;
#[cfg(test)]
mod tests;
mod view;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

pub use layout::HEADER_MAX;
use layout::{
    Entry, HEAD, Head, MAGIC, OCTETS_MAX, PAGE, PAGE_UNITS, STEP_PAGES, SUPERBLOCK, Superblock,
    UNIT, WORD,
};
use pages::{CLASSES, Pages};
pub use view::{Seen, View};

/// Octets of the longest record.
pub const RECORD_MAX: usize = 64 << 20;

/// Share of the heap that is left for changes of records that are there.
const RESERVE_SHARE: u32 = 64;
/// Most pages of the reserve, 16 MiB: it is backed in advance.
const RESERVE_PAGES_MAX: u32 = 256;

/// Octets of blocks that turn out damaged that are read when an arena is opened, in sizes of the heap. Damage that happened takes
/// one; lengths that somebody has made up could have each place read the longest record.
const DAMAGED_HEAPS_READ: usize = 16;

/// Memory that outlives the process, as words.
pub trait Memory {
    /// All words, of the same number each time.
    fn words(&self) -> &[AtomicU64];

    /// Have the file system's room for all octets below this one. An error: there is none; writing there would end the
    /// process (SIGBUS).
    fn back(&mut self, octets: usize) -> io::Result<()>;

    /// The room of octets from this one on is not needed until it is asked for again; what lies there is lost.
    fn give_back(&mut self, _from: usize) {}

    /// The line of the cache with this word is used soon: have it on its way, and wait for nothing.
    fn expect(&self, _word: usize) {}
}

/// Memory that somebody else keeps, and that needs no room of a file system.
impl Memory for &[AtomicU64] {
    fn words(&self) -> &[AtomicU64] {
        self
    }

    fn back(&mut self, _: usize) -> io::Result<()> {
        Ok(())
    }
}

/// Why there is no new arena.
#[derive(Debug, thiserror::Error)]
pub enum Uncreated {
    /// The memory has no room for the directory and a page, or is larger than a block's beginning can say.
    #[error("{octets} octets of memory for {places} places")]
    Size {
        /// Of the memory.
        octets: usize,
        /// Asked for.
        places: u32,
    },
    /// The header is longer than [`HEADER_MAX`].
    #[error("a header of {octets} octets, at most {HEADER_MAX} fit")]
    Header {
        /// Of the header.
        octets: usize,
    },
    /// The file system has no room.
    #[error("no room for the directory: {0}")]
    Unbacked(#[from] io::Error),
}

/// Why the memory cannot be opened. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum Unopened {
    /// It was never an arena, or its making has not come to an end.
    #[error("not an arena")]
    NoArena,
    /// Another version of the layout.
    #[error("an arena of layout {found}")]
    Version {
        /// Named by the superblock.
        found: u64,
    },
    /// Superblock and header do not have their checksum, or cannot be so.
    #[error("superblock is damaged")]
    TornHeader,
    /// The memory has another size.
    #[error("an arena of {recorded} octets in a memory of {octets}")]
    Size {
        /// Named by the superblock.
        recorded: u64,
        /// Of the memory.
        octets: usize,
    },
    /// The file system has no room.
    #[error("no room for what is in the arena: {0}")]
    Unbacked(#[from] io::Error),
}

/// A place whose record is lost. It has none now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// Number of the place.
    pub place: u32,
    /// Sign of the damage.
    pub fault: Fault,
}

/// Sign of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The block begins or ends outside of the heap, or for want of room in the file system cannot be read.
    #[error("its block lies outside of the heap")]
    Outside,
    /// The block is another place's.
    #[error("its block is that of another place")]
    AnotherPlace,
    /// Head and record have another checksum.
    #[error("its checksum is another one")]
    Checksum,
    /// The block takes space of another one.
    #[error("its block overlaps another one")]
    Overlap,
}

/// Why a record was not put. The place has its former one.
#[derive(Debug, thiserror::Error)]
pub enum Full {
    /// There is no such place.
    #[error("place {place} of {places}")]
    Place {
        /// Asked for.
        place: u32,
        /// Of the arena.
        places: u32,
    },
    /// The record is too long.
    #[error("a record of {octets} octets, at most {most} fit")]
    Record {
        /// Of the record.
        octets: usize,
        /// Of any.
        most: usize,
    },
    /// The heap has no free block of that size.
    #[error("no free block for {octets} octets")]
    Heap {
        /// Of the record.
        octets: usize,
    },
    /// The file system has no room.
    #[error("no room for further records: {0}")]
    Unbacked(io::Error),
}

/// How much of the memory is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Records.
    pub records: u32,
    /// Octets of records, with their heads and what they are rounded up by.
    pub used_octets: u64,
    /// Octets for which the file system's room was asked, superblock and directory among them.
    pub backed_octets: u64,
    /// Octets of the memory.
    pub octets: u64,
}

/// Records by place.
pub struct Arena<M> {
    memory: M,
    superblock: Superblock,
    pages: Pages,
    /// Pages of the memory that are backed, from the first one on.
    backed: u32,
}

impl<M: Memory> Arena<M> {
    /// Make the memory an arena without records, whatever it was before.
    ///
    /// header: the caller's, at most [`HEADER_MAX`] octets, the same for the whole life of the arena
    pub fn create(mut memory: M, places: u32, header: &[u8]) -> Result<Self, Uncreated> {
        let octets = memory.words().len() * WORD;
        let first = layout::first_page(places);
        if octets > OCTETS_MAX || first >= octets / PAGE {
            return Err(Uncreated::Size { octets, places });
        }
        if header.len() > HEADER_MAX {
            return Err(Uncreated::Header {
                octets: header.len(),
            });
        }
        memory.back(first * PAGE)?;
        let mut arena = Self {
            superblock: Superblock {
                places,
                header_octets: header.len(),
            },
            pages: Pages::new(first as u32, (octets / PAGE) as u32),
            backed: first as u32,
            memory,
        };
        let words = arena.memory.words();
        Superblock::clear(words);
        fence(Ordering::Release);
        for word in &words[layout::directory_at(0)..layout::directory_at(places)] {
            layout::store(word, 0, Ordering::Relaxed);
        }
        arena.superblock.write(words, header);
        layout::store_backed(words, arena.backed);
        Superblock::seal(words, MAGIC);
        // An error comes again with the first record.
        let _ = arena.back_reserve();
        Ok(arena)
    }

    /// Go on with the arena that lies in the memory. Places whose record is damaged have none from here on.
    pub fn open(mut memory: M) -> Result<(Self, Vec<Damaged>), Unopened> {
        let octets = memory.words().len() * WORD;
        if octets < SUPERBLOCK {
            return Err(Unopened::NoArena);
        }
        memory.back(SUPERBLOCK)?;
        let superblock = Superblock::read(memory.words(), MAGIC)?;
        let first = layout::first_page(superblock.places) as u32;
        let end = (octets / PAGE) as u32;
        // If the number of backed pages is torn, directory words say what was.
        let recorded =
            layout::load_backed(memory.words()).filter(|pages| (first..=end).contains(pages));
        let backed = recorded.unwrap_or(first);
        memory.back(backed as usize * PAGE)?;
        let mut arena = Self {
            memory,
            superblock,
            pages: Pages::new(first, end),
            backed,
        };
        let limit = recorded.unwrap_or(end);
        let mut left_to_read = DAMAGED_HEAPS_READ * (end - first) as usize * PAGE;
        let mut damaged = Vec::new();
        for place in 0..arena.superblock.places {
            let Some(entry) = arena.entry(place) else {
                continue;
            };
            if let Err(fault) = arena.adopt(place, entry, limit, &mut left_to_read) {
                layout::store(arena.directory(place), 0, Ordering::Release);
                damaged.push(Damaged { place, fault });
            }
        }
        layout::store_backed(arena.memory.words(), arena.backed);
        // An error comes again with the first record that needs it.
        let _ = arena.back_reserve();
        Ok((arena, damaged))
    }

    /// The header that the arena was created with.
    pub fn header(&self) -> Vec<u8> {
        self.superblock.header(self.memory.words())
    }

    /// Places of the arena.
    pub fn places(&self) -> u32 {
        self.superblock.places
    }

    /// Have the place this record. The former one is valid until the new one is.
    pub fn put(&mut self, place: u32, record: &[u8]) -> Result<(), Full> {
        let octets = record.len();
        if place >= self.superblock.places {
            return Err(Full::Place {
                place,
                places: self.superblock.places,
            });
        }
        if octets > RECORD_MAX {
            let most = RECORD_MAX;
            return Err(Full::Record { octets, most });
        }
        // Read first: its line is on the way while the checksum is computed.
        let former = self.entry(place);
        let begin = self.take(octets)?;
        let head = Head {
            place,
            length: octets as u32,
        };
        let entry = Entry {
            begin,
            checksum: head.checksum_with(record),
        };
        // The block may lie where a record was until the last directory word was stored.
        fence(Ordering::Release);
        let block = &self.memory.words()[entry.at()..];
        layout::store(&block[0], head.word(), Ordering::Relaxed);
        layout::store_octets(&block[1..], record);
        layout::store(self.directory(place), entry.word(), Ordering::Release);
        if let Some(former) = former {
            self.pages.give(former.begin);
        }
        self.expect_block(octets);
        Ok(())
    }

    /// A record of so many octets comes soon, as mostly it has the length of the one before. Its block was last written long ago, and a
    /// line that is in no cache is waited for.
    fn expect_block(&self, octets: usize) {
        let units = layout::units(octets);
        if let Some(begin) = self.pages.next(units) {
            let begin = begin as usize * (UNIT / WORD);
            for unit in 0..units as usize {
                self.memory.expect(begin + unit * (UNIT / WORD));
            }
        }
    }

    /// The place has another record soon. This changes nothing but how long that takes then.
    pub fn expect(&self, place: u32) {
        if place < self.superblock.places {
            self.memory.expect(layout::directory_at(place));
        }
    }

    /// Have the place no record.
    pub fn remove(&mut self, place: u32) {
        if let Some(former) = self.entry(place) {
            layout::store(self.directory(place), 0, Ordering::Release);
            self.pages.give(former.begin);
        }
    }

    /// Record of a place, as it was put. `None`: there is none, or it was damaged meanwhile.
    pub fn get(&self, place: u32) -> Option<Vec<u8>> {
        let mut record = Vec::new();
        self.read(place, &mut record).then_some(record)
    }

    /// As [`Self::get`], into a buffer in place of what it has. False: the buffer is of no use.
    pub fn read(&self, place: u32, record: &mut Vec<u8>) -> bool {
        record.clear();
        let Some(entry) = self.entry(place) else {
            return false;
        };
        self.block(place, entry, self.backed)
            .is_ok_and(|block| block.read(self.memory.words(), record))
    }

    /// All records with their places, in the order of these.
    pub fn records(&self) -> impl Iterator<Item = (u32, Vec<u8>)> + '_ {
        (0..self.superblock.places).filter_map(|place| Some((place, self.get(place)?)))
    }

    /// How much is in use.
    pub fn fill(&self) -> Fill {
        Fill {
            records: self.pages.records(),
            used_octets: self.pages.units() * UNIT as u64,
            backed_octets: u64::from(self.backed) * PAGE as u64,
            octets: (self.memory.words().len() * WORD) as u64,
        }
    }

    /// The reserve has been touched: new records should be refused, so that changes of those that are there still fit.
    pub fn is_nearly_full(&self) -> bool {
        self.free_backed_pages() < self.reserve_pages()
    }

    /// Have the file system's room for the reserve, again after it had none. [`Self::put`] tries this when it has taken a page;
    /// a caller that refuses new records should do so from time to time.
    pub fn back_reserve(&mut self) -> io::Result<()> {
        let missing = self
            .reserve_pages()
            .saturating_sub(self.free_backed_pages());
        self.back(self.backed.saturating_add(missing).min(self.pages.end()))
    }

    fn reserve_pages(&self) -> u32 {
        (self.pages.total() / RESERVE_SHARE).clamp(1, RESERVE_PAGES_MAX)
    }

    /// Free pages that need no further room of the file system.
    fn free_backed_pages(&self) -> u32 {
        self.backed - self.pages.first() - self.pages.in_use()
    }

    /// Back the pages in front of this one.
    fn back(&mut self, end: u32) -> io::Result<()> {
        if end <= self.backed {
            return Ok(());
        }
        let end = end.next_multiple_of(STEP_PAGES).min(self.pages.end());
        self.memory.back(end as usize * PAGE)?;
        self.backed = end;
        layout::store_backed(self.memory.words(), end);
        Ok(())
    }

    /// Take a block that is backed.
    fn take(&mut self, octets: usize) -> Result<u32, Full> {
        let units = layout::units(octets);
        let in_use = self.pages.in_use();
        let begin = self.pages.take(units).ok_or(Full::Heap { octets })?;
        if self.pages.in_use() == in_use {
            return Ok(begin);
        }
        let end = begin / PAGE_UNITS + units.div_ceil(PAGE_UNITS);
        if let Err(error) = self.back(end) {
            self.pages.give(begin);
            return Err(Full::Unbacked(error));
        }
        // Without it there is room for this record, and `is_nearly_full` says so.
        let _ = self.back_reserve();
        Ok(begin)
    }

    fn directory(&self, place: u32) -> &AtomicU64 {
        &self.memory.words()[layout::directory_at(place)]
    }

    fn entry(&self, place: u32) -> Option<Entry> {
        if place >= self.superblock.places {
            return None;
        }
        Entry::from_word(self.directory(place).load(Ordering::Relaxed))
    }

    /// Block of a place.
    ///
    /// end: page in front of which the block has to end
    fn block(&self, place: u32, entry: Entry, end: u32) -> Result<Block, Fault> {
        Block::at(self.memory.words(), (place, entry), self.pages.first()..end)
    }

    /// Take the block of a place as it lies there.
    ///
    /// limit: page in front of which blocks end
    /// left_to_read: octets of damaged blocks that may still be read
    fn adopt(
        &mut self,
        place: u32,
        entry: Entry,
        limit: u32,
        left_to_read: &mut usize,
    ) -> Result<(), Fault> {
        let page = entry.begin / PAGE_UNITS;
        if page < limit {
            self.back(page + 1).map_err(|_| Fault::Outside)?;
        }
        let Block { head, words, .. } = self.block(place, entry, limit)?;
        let end = words.end.div_ceil(PAGE / WORD) as u32;
        self.back(end).map_err(|_| Fault::Outside)?;
        let length = head.length as usize;
        if length > *left_to_read {
            return Err(Fault::Checksum);
        }
        let checksum = head.checksum_of(&self.memory.words()[words]);
        let adopted = if checksum != entry.checksum {
            Err(Fault::Checksum)
        } else {
            self.pages
                .take_at(entry.begin, head.units())
                .map_err(|_| Fault::Overlap)
        };
        if adopted.is_err() {
            *left_to_read -= length;
        }
        adopted
    }
}

/// A block that may have a record.
struct Block {
    head: Head,
    /// Words that have the record.
    words: Range<usize>,
    /// Of head and record, as the directory has it.
    checksum: u32,
}

impl Block {
    /// The block that a place's directory word leads to, which has to lie in these pages.
    fn at(
        memory: &[AtomicU64],
        (place, entry): (u32, Entry),
        pages: Range<u32>,
    ) -> Result<Self, Fault> {
        if !pages.contains(&(entry.begin / PAGE_UNITS)) {
            return Err(Fault::Outside);
        }
        let head = Head::from_word(memory[entry.at()].load(Ordering::Relaxed));
        if head.place != place {
            return Err(Fault::AnotherPlace);
        }
        let length = head.length as usize;
        let record = entry.at() + HEAD / WORD;
        let words = record..record + length.div_ceil(WORD);
        if length > RECORD_MAX || words.end > pages.end as usize * (PAGE / WORD) {
            return Err(Fault::Outside);
        }
        Ok(Self {
            head,
            words,
            checksum: entry.checksum,
        })
    }

    /// Its record, in place of what the buffer has. False: it has another checksum.
    fn read(self, memory: &[AtomicU64], record: &mut Vec<u8>) -> bool {
        record.clear();
        record.resize(self.head.length as usize, 0);
        layout::load_octets(&memory[self.words], record);
        self.head.checksum_with(record) == self.checksum
    }
}

/// Octets of memory for so many records of this length, the average one.
///
/// Twice what they take: when all of them become longer, in random order, the pages that they leave are empty last. Memory takes
/// room when it is used. Records that are much longer than others come on top, twice each, as both are there for a moment.
pub fn octets_for(places: u32, record_octets: usize) -> usize {
    let records = pages::pages_for(
        places as usize,
        layout::units(record_octets.min(RECORD_MAX)),
    );
    // A page of each class that is not full.
    let heap = records.saturating_mul(2).saturating_add(CLASSES);
    let reserve = heap / (RESERVE_SHARE as usize - 1) + 1;
    let pages = layout::first_page(places)
        .saturating_add(heap)
        .saturating_add(reserve);
    pages
        .next_multiple_of(STEP_PAGES as usize)
        .saturating_mul(PAGE)
}
