//! Words of the memory: superblock, directory, head of a block. See the table of the crate.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Unopened;

/// Octets of a word.
pub(crate) const WORD: usize = 8;
/// Blocks begin at multiples of this many octets, and take as many.
pub(crate) const UNIT: usize = 64;
/// Octets of a page, which has blocks of one size or a part of one block.
pub(crate) const PAGE: usize = 64 << 10;
/// Units of a page.
pub(crate) const PAGE_UNITS: u32 = (PAGE / UNIT) as u32;
/// Octets of superblock and header.
pub(crate) const SUPERBLOCK: usize = 4096;
/// Octets in front of a record.
pub(crate) const HEAD: usize = WORD;
/// Memory is backed in steps of this many pages: a huge page.
pub(crate) const STEP_PAGES: u32 = 32;
/// Octets of the largest memory: a block's beginning has 32 bits.
pub(crate) const OCTETS_MAX: usize = (1 << 32) * UNIT;

/// Of an arena.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"tp-arena");
const VERSION: u64 = 1;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_LENGTHS: usize = 2;
const AT_OCTETS: usize = 3;
const AT_CHECKSUM: usize = 4;
const AT_BACKED: usize = 5;
const AT_HEADER: usize = 8;

/// Octets of the longest header.
pub const HEADER_MAX: usize = SUPERBLOCK - AT_HEADER * WORD;

/// Write a word: all that changes the memory comes by here, so that tests can end a process between any two.
pub(crate) fn store(word: &AtomicU64, value: u64, order: Ordering) {
    #[cfg(test)]
    if !crate::tests::death::is_alive() {
        return;
    }
    word.store(value, order);
}

/// Write octets as words; the last word is filled up with zeros.
pub(crate) fn store_octets(words: &[AtomicU64], octets: &[u8]) {
    let (whole, rest) = octets.as_chunks::<WORD>();
    for (word, octets) in words.iter().zip(whole) {
        store(word, u64::from_le_bytes(*octets), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        store(
            &words[whole.len()],
            u64::from_le_bytes(last),
            Ordering::Relaxed,
        );
    }
}

/// Octets of words: as many of the last word as `octets` has room for.
pub(crate) fn load_octets(words: &[AtomicU64], octets: &mut [u8]) {
    let (whole, rest) = octets.as_chunks_mut::<WORD>();
    for (octets, word) in whole.iter_mut().zip(words) {
        *octets = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if !rest.is_empty() {
        let last = words[whole.len()].load(Ordering::Relaxed).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// Page at which the heap begins, behind a directory of so many places.
pub(crate) fn first_page(places: u32) -> usize {
    directory_at(places).saturating_mul(WORD).div_ceil(PAGE)
}

/// Index of the directory word of a place.
pub(crate) fn directory_at(place: u32) -> usize {
    SUPERBLOCK / WORD + place as usize
}

/// Numbers that are the same for the whole life of an arena.
#[derive(Debug)]
pub(crate) struct Superblock {
    pub(crate) places: u32,
    pub(crate) header_octets: usize,
}

impl Superblock {
    /// Make the memory no arena, so that what follows may be torn.
    pub(crate) fn clear(words: &[AtomicU64]) {
        store(&words[AT_MAGIC], 0, Ordering::Release);
    }

    /// Write all but the magic number.
    pub(crate) fn write(&self, words: &[AtomicU64], header: &[u8]) {
        let lengths = u64::from(self.places) | (self.header_octets as u64) << 32;
        store(&words[AT_VERSION], VERSION, Ordering::Relaxed);
        store(&words[AT_LENGTHS], lengths, Ordering::Relaxed);
        let octets = (words.len() * WORD) as u64;
        store(&words[AT_OCTETS], octets, Ordering::Relaxed);
        store_octets(&words[AT_HEADER..], header);
        let checksum = checksum_of_superblock(words, header);
        store(&words[AT_CHECKSUM], checksum.into(), Ordering::Relaxed);
    }

    /// Make the memory an arena, or what has this magic number.
    pub(crate) fn seal(words: &[AtomicU64], magic: u64) {
        store(&words[AT_MAGIC], magic, Ordering::Release);
    }

    /// words: at least those of a superblock
    pub(crate) fn read(words: &[AtomicU64], magic: u64) -> Result<Self, Unopened> {
        let word = |at: usize| words[at].load(Ordering::Relaxed);
        if words[AT_MAGIC].load(Ordering::Acquire) != magic {
            return Err(Unopened::NoArena);
        }
        if word(AT_VERSION) != VERSION {
            return Err(Unopened::Version {
                found: word(AT_VERSION),
            });
        }
        let lengths = word(AT_LENGTHS);
        let superblock = Self {
            places: lengths as u32,
            header_octets: (lengths >> 32) as usize,
        };
        if superblock.header_octets > HEADER_MAX {
            return Err(Unopened::TornHeader);
        }
        let checksum = checksum_of_superblock(words, &superblock.header(words));
        if word(AT_CHECKSUM) != checksum.into() {
            return Err(Unopened::TornHeader);
        }
        let octets = words.len() * WORD;
        if word(AT_OCTETS) != octets as u64 {
            return Err(Unopened::Size {
                recorded: word(AT_OCTETS),
                octets,
            });
        }
        // None that we have made, whatever its checksum says.
        if octets > OCTETS_MAX || first_page(superblock.places) > octets / PAGE {
            return Err(Unopened::TornHeader);
        }
        Ok(superblock)
    }

    pub(crate) fn header(&self, words: &[AtomicU64]) -> Vec<u8> {
        let mut header = vec![0; self.header_octets];
        load_octets(&words[AT_HEADER..], &mut header);
        header
    }
}

fn checksum_of_superblock(words: &[AtomicU64], header: &[u8]) -> u32 {
    let mut checksum = 0;
    for word in &words[AT_VERSION..AT_CHECKSUM] {
        let octets = word.load(Ordering::Relaxed).to_le_bytes();
        checksum = crc32c::crc32c_append(checksum, &octets);
    }
    crc32c::crc32c_append(checksum, header)
}

/// Note how many pages are backed, with the complement: the word has no other checksum.
pub(crate) fn store_backed(words: &[AtomicU64], pages: u32) {
    let word = u64::from(pages) | u64::from(!pages) << 32;
    store(&words[AT_BACKED], word, Ordering::Release);
}

/// Pages that were backed. `None`: the word is torn.
pub(crate) fn load_backed(words: &[AtomicU64]) -> Option<u32> {
    let word = words[AT_BACKED].load(Ordering::Relaxed);
    let pages = word as u32;
    ((word >> 32) as u32 == !pages).then_some(pages)
}

/// Directory word of a place that has a record.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Unit at which the block begins. Never zero: the superblock is there.
    pub(crate) begin: u32,
    /// CRC32C of the block's head and octets.
    pub(crate) checksum: u32,
}

impl Entry {
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            begin: word as u32,
            checksum: (word >> 32) as u32,
        })
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.begin) | u64::from(self.checksum) << 32
    }

    /// Index of the block's first word.
    pub(crate) fn at(self) -> usize {
        self.begin as usize * (UNIT / WORD)
    }
}

/// First word of a block.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) place: u32,
    /// Octets of the record.
    pub(crate) length: u32,
}

impl Head {
    pub(crate) fn from_word(word: u64) -> Self {
        Self {
            place: word as u32,
            length: (word >> 32) as u32,
        }
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.place) | u64::from(self.length) << 32
    }

    pub(crate) fn units(self) -> u32 {
        units(self.length as usize)
    }

    /// CRC32C of the head, to go on with.
    fn checksum(self) -> u32 {
        crc32c::crc32c(&self.word().to_le_bytes())
    }

    pub(crate) fn checksum_with(self, record: &[u8]) -> u32 {
        crc32c::crc32c_append(self.checksum(), record)
    }

    /// As [`Self::checksum_with`], for a record in memory, of which no copy is made.
    pub(crate) fn checksum_of(self, words: &[AtomicU64]) -> u32 {
        // CRC32 instructions take 8 aligned octets.
        #[repr(align(8))]
        struct Part([u8; 2048]);
        let mut part = Part([0; 2048]);
        let mut checksum = self.checksum();
        let mut left = self.length as usize;
        for words in words.chunks(part.0.len() / WORD) {
            let octets = &mut part.0[..left.min(words.len() * WORD)];
            load_octets(words, octets);
            checksum = crc32c::crc32c_append(checksum, octets);
            left -= octets.len();
        }
        checksum
    }
}

/// Units of a block with a record of so many octets, at most [`crate::RECORD_MAX`].
pub(crate) fn units(length: usize) -> u32 {
    (HEAD + length).div_ceil(UNIT) as u32
}
