//! An arena as somebody sees it who does not change it, while its owner does.

use std::sync::atomic::{Ordering, fence};

use crate::layout::{self, Entry, MAGIC, PAGE, SUPERBLOCK, Superblock, WORD};
use crate::{Block, Memory, Unopened};

/// A record that changes so often while it is read is given up: changes of one place are much rarer.
const TRIES: u32 = 1000;

/// Records of an arena that lives elsewhere in this process, each as it was at some time while it was read.
pub struct View<M> {
    memory: M,
    superblock: Superblock,
}

/// A place as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It has a record, which is in the buffer.
    Record,
    /// It has none.
    Nothing,
    /// Its record is damaged.
    Damaged,
}

impl<M: Memory> View<M> {
    /// See the arena that lies in the memory, and is open.
    pub fn open(memory: M) -> Result<Self, Unopened> {
        if memory.words().len() * WORD < SUPERBLOCK {
            return Err(Unopened::NoArena);
        }
        let superblock = Superblock::read(memory.words(), MAGIC)?;
        Ok(Self { memory, superblock })
    }

    /// Places of the arena.
    pub fn places(&self) -> u32 {
        self.superblock.places
    }

    /// Read the record of a place into a buffer, in place of what it has.
    pub fn read(&self, place: u32, record: &mut Vec<u8>) -> Seen {
        if place >= self.superblock.places {
            return Seen::Nothing;
        }
        let words = self.memory.words();
        let first = layout::first_page(self.superblock.places) as u32;
        let directory = &words[layout::directory_at(place)];
        let mut word = directory.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let Some(entry) = Entry::from_word(word) else {
                return Seen::Nothing;
            };
            // The owner has backed what a directory word leads to before it stored that.
            let backed = layout::load_backed(words).unwrap_or(first);
            let backed = backed.min((words.len() * WORD / PAGE) as u32);
            let is_whole = Block::at(words, (place, entry), first..backed)
                .is_ok_and(|block| block.read(words, record));
            // By its checksum, it is what was put under this word, whatever has become of the word since.
            if is_whole {
                return Seen::Record;
            }
            // If the block has gone to another record meanwhile, the word is seen to have changed.
            fence(Ordering::Acquire);
            let now = directory.load(Ordering::Acquire);
            if now == word {
                return Seen::Damaged;
            }
            word = now;
        }
        Seen::Damaged
    }
}
