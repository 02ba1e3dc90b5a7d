//! Free space of the heap: pages, and the blocks of each, in the memory of this process.
//!
//! A small block takes a slot of a page whose slots are all of one size; a large one takes whole pages. One bit for each 64 octets
//! of a page in use says which slots are taken: 0.2 % of the heap.

use crate::layout::PAGE_UNITS;

/// Sizes of slots: 1 to 64 units, then the largest of which 15, 14, … 2 fit into a page.
pub(crate) const CLASSES: usize = 78;
const CLASSES_BY_UNIT: u32 = 64;
/// Slots of a page of the largest class.
const SLOTS_MIN: u32 = 2;
/// Units of the largest small block.
const SMALL_MAX: u32 = PAGE_UNITS / SLOTS_MIN;

/// Page that no list has.
const NONE: u32 = u32::MAX;

/// Size of slots of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Class(u8);

impl Class {
    /// The smallest class that has room for so many units. `None`: a block of whole pages.
    fn of(units: u32) -> Option<Self> {
        match units {
            1..=CLASSES_BY_UNIT => Some(Self(units as u8 - 1)),
            _ if units <= SMALL_MAX => {
                let slots = PAGE_UNITS / units;
                Some(Self((CLASSES as u32 + 1 - slots) as u8))
            }
            _ => None,
        }
    }

    /// Units of a slot.
    fn units(self) -> u32 {
        let class = u32::from(self.0);
        if class < CLASSES_BY_UNIT {
            class + 1
        } else {
            PAGE_UNITS / (CLASSES as u32 + 1 - class)
        }
    }

    /// Slots of a page.
    fn slots(self) -> u32 {
        PAGE_UNITS / self.units()
    }
}

/// Pages that so many blocks of one size take.
pub(crate) fn pages_for(blocks: usize, units: u32) -> usize {
    match Class::of(units) {
        Some(class) => blocks.div_ceil(class.slots() as usize),
        None => blocks.saturating_mul(units.div_ceil(PAGE_UNITS) as usize),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Free,
    /// Slots of one size.
    Slots(Class),
    /// First page of a large block, with the number of its pages.
    Run(u32),
    /// A later page of a large block.
    Rest,
}

struct Page {
    role: Role,
    /// Slots taken.
    taken: u32,
    /// Neighbours in the list of pages of a class that have room.
    before: u32,
    after: u32,
    slots: [u64; PAGE_UNITS as usize / 64],
}

impl Page {
    const FREE: Self = Self {
        role: Role::Free,
        taken: 0,
        before: NONE,
        after: NONE,
        slots: [0; PAGE_UNITS as usize / 64],
    };
}

/// The block lies upon another one, or not at a place for blocks of its size.
pub(crate) struct Overlap;

pub(crate) struct Pages {
    /// Number of the heap's first page in the memory.
    first: u32,
    /// Pages of the heap.
    total: u32,
    /// Pages that have been in use; the others are free.
    pages: Vec<Page>,
    /// A bit for each of `pages` that is free.
    free: Vec<u64>,
    /// No word of `free` in front of this one has a bit.
    free_from: usize,
    in_use: u32,
    /// By class: the first page that has room.
    roomy: [u32; CLASSES],
    /// Of 32 bits, unlike `units`: the compiler else reads both at once, right after each was written, which waits for all
    /// stores before, those of the record (100 ns).
    records: u32,
    units: u64,
}

impl Pages {
    /// first: the heap's first page in the memory; end: the page behind its last one
    pub(crate) fn new(first: u32, end: u32) -> Self {
        Self {
            first,
            total: end - first,
            pages: Vec::new(),
            free: Vec::new(),
            free_from: 0,
            in_use: 0,
            roomy: [NONE; CLASSES],
            records: 0,
            units: 0,
        }
    }

    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn end(&self) -> u32 {
        self.first + self.total
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Blocks that are taken.
    pub(crate) fn records(&self) -> u32 {
        self.records
    }

    /// Units of blocks that are taken, with what they are rounded up by.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Take a block. `None`: there is none; else the unit at which it begins.
    pub(crate) fn take(&mut self, units: u32) -> Option<u32> {
        let Some(class) = Class::of(units) else {
            let count = units.div_ceil(PAGE_UNITS);
            let page = self.find_run(count)?;
            self.take_run(page, count);
            return Some(self.begin_of(page));
        };
        let page = match self.roomy[usize::from(class.0)] {
            NONE => {
                let page = self.find_page()?;
                self.dedicate(page, class);
                page
            }
            page => page as usize,
        };
        let slot = self.free_slot(page)?;
        self.take_slot(page, class, slot);
        Some(self.begin_of(page) + slot * class.units())
    }

    /// The small block that is taken next, if it lies in a page that is in use.
    pub(crate) fn next(&self, units: u32) -> Option<u32> {
        let class = Class::of(units)?;
        let page = self.roomy[usize::from(class.0)];
        let page = (page != NONE).then_some(page as usize)?;
        Some(self.begin_of(page) + self.free_slot(page)? * class.units())
    }

    fn free_slot(&self, page: usize) -> Option<u32> {
        let slots = &self.pages[page].slots;
        let word = slots.iter().position(|&word| word != u64::MAX)?;
        Some(word as u32 * 64 + slots[word].trailing_ones())
    }

    /// Take the block that begins there.
    pub(crate) fn take_at(&mut self, begin: u32, units: u32) -> Result<(), Overlap> {
        let (page, within) = self.page_of(begin).ok_or(Overlap)?;
        let Some(class) = Class::of(units) else {
            let count = units.div_ceil(PAGE_UNITS);
            if within != 0 || count > self.total - page as u32 {
                return Err(Overlap);
            }
            let end = page + count as usize;
            let known = self.pages.len().min(end);
            if self.pages[page.min(known)..known]
                .iter()
                .any(|page| page.role != Role::Free)
            {
                return Err(Overlap);
            }
            self.grow(end);
            self.take_run(page, count);
            return Ok(());
        };
        let slot = within / class.units();
        if within % class.units() != 0 || slot >= class.slots() {
            return Err(Overlap);
        }
        self.grow(page + 1);
        match self.pages[page].role {
            Role::Free => self.dedicate(page, class),
            Role::Slots(of_page) if of_page == class => {
                if self.is_taken(page, slot) {
                    return Err(Overlap);
                }
            }
            Role::Slots(_) | Role::Run(_) | Role::Rest => return Err(Overlap),
        }
        self.take_slot(page, class, slot);
        Ok(())
    }

    /// Give back the block that begins there. There may be none, as the directory says so, which may be torn.
    pub(crate) fn give(&mut self, begin: u32) {
        let Some((page, within)) = self.page_of(begin) else {
            return;
        };
        match self.pages.get(page).map(|page| page.role) {
            Some(Role::Slots(class)) => {
                let slot = within / class.units();
                if within % class.units() == 0 && self.is_taken(page, slot) {
                    self.give_slot(page, class, slot);
                }
            }
            Some(Role::Run(count)) if within == 0 => {
                for page in page..page + count as usize {
                    self.pages[page].role = Role::Free;
                    self.set_free(page);
                }
                self.in_use -= count;
                self.records -= 1;
                self.units -= u64::from(count * PAGE_UNITS);
            }
            _ => {}
        }
    }

    fn begin_of(&self, page: usize) -> u32 {
        (self.first + page as u32) * PAGE_UNITS
    }

    /// Page of a unit, and the unit within it. `None`: not in the heap.
    fn page_of(&self, unit: u32) -> Option<(usize, u32)> {
        let page = (unit / PAGE_UNITS).checked_sub(self.first)?;
        (page < self.total).then_some((page as usize, unit % PAGE_UNITS))
    }

    fn is_taken(&self, page: usize, slot: u32) -> bool {
        self.pages[page].slots[slot as usize / 64] & 1 << (slot % 64) != 0
    }

    fn take_slot(&mut self, page: usize, class: Class, slot: u32) {
        let taken = &mut self.pages[page];
        taken.slots[slot as usize / 64] |= 1 << (slot % 64);
        taken.taken += 1;
        if taken.taken == class.slots() {
            self.unlink(page, class);
        }
        self.records += 1;
        self.units += u64::from(class.units());
    }

    fn give_slot(&mut self, page: usize, class: Class, slot: u32) {
        let given = &mut self.pages[page];
        let was_full = given.taken == class.slots();
        given.slots[slot as usize / 64] &= !(1 << (slot % 64));
        given.taken -= 1;
        let is_empty = given.taken == 0;
        if was_full {
            self.link(page, class);
        }
        if is_empty {
            self.unlink(page, class);
            self.pages[page].role = Role::Free;
            self.set_free(page);
            self.in_use -= 1;
        }
        self.records -= 1;
        self.units -= u64::from(class.units());
    }

    fn take_run(&mut self, page: usize, count: u32) {
        for page in page..page + count as usize {
            self.pages[page].role = Role::Rest;
            self.clear_free(page);
        }
        self.pages[page].role = Role::Run(count);
        self.in_use += count;
        self.records += 1;
        self.units += u64::from(count * PAGE_UNITS);
    }

    /// Make a free page one with slots.
    fn dedicate(&mut self, page: usize, class: Class) {
        self.clear_free(page);
        self.pages[page].role = Role::Slots(class);
        self.in_use += 1;
        self.link(page, class);
    }

    fn link(&mut self, page: usize, class: Class) {
        let first = &mut self.roomy[usize::from(class.0)];
        let after = std::mem::replace(first, page as u32);
        self.pages[page].before = NONE;
        self.pages[page].after = after;
        if after != NONE {
            self.pages[after as usize].before = page as u32;
        }
    }

    fn unlink(&mut self, page: usize, class: Class) {
        let Page { before, after, .. } = self.pages[page];
        match before {
            NONE => self.roomy[usize::from(class.0)] = after,
            _ => self.pages[before as usize].after = after,
        }
        if after != NONE {
            self.pages[after as usize].before = before;
        }
    }

    /// The lowest free page.
    fn find_page(&mut self) -> Option<usize> {
        while let Some(&word) = self.free.get(self.free_from) {
            if word != 0 {
                return Some(self.free_from * 64 + word.trailing_zeros() as usize);
            }
            self.free_from += 1;
        }
        let page = self.pages.len();
        if page == self.total as usize {
            return None;
        }
        self.grow(page + 1);
        Some(page)
    }

    /// The lowest run of free pages.
    fn find_run(&mut self, count: u32) -> Option<usize> {
        let count = count as usize;
        let mut run = 0;
        for page in self.free_from * 64..self.pages.len() {
            let is_free = self.free[page / 64] & 1 << (page % 64) != 0;
            run = if is_free { run + 1 } else { 0 };
            if run == count {
                return Some(page + 1 - count);
            }
        }
        let page = self.pages.len() - run;
        if count > self.total as usize - page {
            return None;
        }
        self.grow(page + count);
        Some(page)
    }

    /// Know at least so many pages.
    fn grow(&mut self, count: usize) {
        for page in self.pages.len()..count {
            self.pages.push(Page::FREE);
            if page % 64 == 0 {
                self.free.push(0);
            }
            self.set_free(page);
        }
    }

    fn set_free(&mut self, page: usize) {
        self.free[page / 64] |= 1 << (page % 64);
        self.free_from = self.free_from.min(page / 64);
    }

    fn clear_free(&mut self, page: usize) {
        self.free[page / 64] &= !(1 << (page % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_room_and_fit() {
        for units in 1..=SMALL_MAX {
            let class = Class::of(units).unwrap();
            assert!(class.units() >= units, "{units}");
            assert!(class.slots() * class.units() <= PAGE_UNITS, "{units}");
            assert!(class.slots() >= SLOTS_MIN, "{units}");
            assert!(Class::of(class.units()) == Some(class), "{units}");
            assert!(usize::from(class.0) < CLASSES);
        }
        assert!(Class::of(SMALL_MAX + 1).is_none());
    }

    #[test]
    fn an_empty_page_serves_another_class() {
        let mut pages = Pages::new(7, 8);
        let blocks: Vec<u32> = std::iter::from_fn(|| pages.take(3)).collect();
        assert_eq!(blocks.len(), 341);
        assert_eq!(pages.take(64), None);
        for &block in &blocks {
            pages.give(block);
        }
        assert_eq!((pages.in_use(), pages.records(), pages.units()), (0, 0, 0));
        assert_eq!(pages.take(64), Some(7 * PAGE_UNITS));
    }

    #[test]
    fn runs_take_the_first_gap_that_fits() {
        let mut pages = Pages::new(0, 10);
        let runs: Vec<u32> = (0..5)
            .map(|_| pages.take(2 * PAGE_UNITS).unwrap())
            .collect();
        assert_eq!(pages.take(1), None);
        pages.give(runs[1]);
        pages.give(runs[3]);
        assert_eq!(pages.take(3 * PAGE_UNITS), None);
        pages.give(runs[2]);
        assert_eq!(pages.take(5 * PAGE_UNITS), Some(2 * PAGE_UNITS));
        assert_eq!(pages.take(1), Some(7 * PAGE_UNITS));
    }

    #[test]
    fn what_is_no_block_is_not_given_back() {
        let mut pages = Pages::new(1, 9);
        let small = pages.take(2).unwrap();
        let large = pages.take(3 * PAGE_UNITS).unwrap();
        for begin in [
            0,
            small + 1,
            small + 2,
            small + 1023,
            large + 1,
            large + PAGE_UNITS,
            8 * PAGE_UNITS,
            9 * PAGE_UNITS,
            u32::MAX,
        ] {
            pages.give(begin);
        }
        assert_eq!((pages.in_use(), pages.records()), (4, 2));
    }

    #[test]
    fn blocks_that_overlap_are_refused() {
        let mut pages = Pages::new(1, 9);
        assert!(pages.take_at(PAGE_UNITS, 4).is_ok());
        assert!(pages.take_at(PAGE_UNITS, 4).is_err());
        assert!(pages.take_at(PAGE_UNITS + 4, 4).is_ok());
        assert!(pages.take_at(PAGE_UNITS + 10, 4).is_err());
        assert!(pages.take_at(PAGE_UNITS + 8, 1).is_err());
        assert!(pages.take_at(PAGE_UNITS, PAGE_UNITS).is_err());
        assert!(pages.take_at(3 * PAGE_UNITS, 2 * PAGE_UNITS).is_ok());
        assert!(pages.take_at(2 * PAGE_UNITS, 2 * PAGE_UNITS).is_err());
        assert!(pages.take_at(4 * PAGE_UNITS, 4).is_err());
        assert!(pages.take_at(8 * PAGE_UNITS, 2 * PAGE_UNITS).is_err());
        assert!(pages.take_at(8 * PAGE_UNITS, PAGE_UNITS).is_ok());
        assert!(pages.take_at(9 * PAGE_UNITS, 1).is_err());
        assert!(pages.take_at(0, 1).is_err());
        assert!(pages.take_at(6 * PAGE_UNITS + 15 * 68, 68).is_err());
        assert_eq!((pages.in_use(), pages.records()), (4, 4));
    }
}
