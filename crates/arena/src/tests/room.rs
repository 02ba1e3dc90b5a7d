//! Room: of the memory, and of the file system below it.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{memory, word};
use crate::layout::{self, Entry, PAGE, SUPERBLOCK, WORD};
use crate::{Arena, Damaged, Fault, Full, HEADER_MAX, Memory, RECORD_MAX, Uncreated, Unopened};

/// Memory in a file system that has room for so many octets.
struct Limited<'a> {
    words: &'a [AtomicU64],
    room: &'a Cell<usize>,
    backed: &'a Cell<usize>,
}

impl Memory for Limited<'_> {
    fn words(&self) -> &[AtomicU64] {
        self.words
    }

    fn back(&mut self, octets: usize) -> io::Result<()> {
        if octets > self.room.get() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.backed.set(octets.max(self.backed.get()));
        Ok(())
    }
}

const PLACES: u32 = 100;

#[test]
fn the_room_of_the_file_system_bounds_records() {
    let words = memory(160);
    let (room, backed) = (Cell::new(PAGE * 96), Cell::new(0));
    let limited = || Limited {
        words: &words,
        room: &room,
        backed: &backed,
    };
    let mut arena = Arena::create(limited(), PLACES, b"").unwrap();
    assert_eq!(backed.get(), 32 * PAGE);
    let mut put = 0;
    while !arena.is_nearly_full() {
        arena.put(put, &[1; 60_000]).unwrap();
        assert_eq!(arena.fill().backed_octets, backed.get() as u64);
        put += 1;
    }
    // The reserve is two pages of 159.
    assert_eq!(put, 94);
    arena.put(put, &[2; 60_000]).unwrap();
    assert!(matches!(arena.put(0, &[3; 60_000]), Err(Full::Unbacked(_))));
    assert_eq!(arena.get(0).unwrap(), [1; 60_000]);
    assert!(arena.back_reserve().is_err());
    drop(arena);

    let (mut arena, damaged) = Arena::open(limited()).unwrap();
    assert_eq!((damaged.len(), arena.fill().records), (0, 95));
    assert!(arena.is_nearly_full());
    assert!(arena.put(0, &[3; 60_000]).is_err());
    room.set(usize::MAX);
    arena.back_reserve().unwrap();
    assert!(!arena.is_nearly_full());
    arena.put(0, &[3; 60_000]).unwrap();
    assert_eq!(arena.get(0).unwrap(), [3; 60_000]);
    drop(arena);

    // A copy of the file may be elsewhere.
    room.set(PAGE * 64);
    assert!(matches!(Arena::open(limited()), Err(Unopened::Unbacked(_))));
    room.set(0);
    let created = Arena::create(limited(), PLACES, b"");
    assert!(matches!(created, Err(Uncreated::Unbacked(_))));
}

#[test]
fn a_torn_word_backs_no_memory() {
    let words = memory(160);
    let (room, backed) = (Cell::new(usize::MAX), Cell::new(0));
    let limited = || Limited {
        words: &words,
        room: &room,
        backed: &backed,
    };
    let mut arena = Arena::create(limited(), PLACES, b"").unwrap();
    arena.put(1, b"record").unwrap();
    arena.put(2, b"another").unwrap();
    // Memory behind what is backed would end the process: here it would be read as a block.
    let block = Entry::from_word(word(&words, layout::directory_at(2))).unwrap();
    let far = Entry {
        begin: 150 * layout::PAGE_UNITS,
        ..block
    };
    for at in 0..2 {
        words[far.at() + at].store(word(&words, block.at() + at), Ordering::Relaxed);
    }
    words[layout::directory_at(2)].store(far.word(), Ordering::Relaxed);
    drop(arena);
    let (arena, damaged) = Arena::open(limited()).unwrap();
    let fault = Fault::Outside;
    assert_eq!(damaged, [Damaged { place: 2, fault }]);
    assert_eq!(arena.get(1).unwrap(), b"record");
    assert_eq!(backed.get(), 32 * PAGE);
    drop(arena);

    // The number of backed pages is torn: the directory is believed.
    words[layout::directory_at(2)].store(far.word(), Ordering::Relaxed);
    words[5].store(0, Ordering::Relaxed);
    let (arena, damaged) = Arena::open(limited()).unwrap();
    assert_eq!(damaged, []);
    assert_eq!(arena.get(2).unwrap(), b"another");
    assert_eq!(backed.get(), 160 * PAGE);
    drop(arena);

    words[5].store(0, Ordering::Relaxed);
    room.set(PAGE * 100);
    let (arena, damaged) = Arena::open(limited()).unwrap();
    assert_eq!(damaged, [Damaged { place: 2, fault }]);
    assert_eq!(arena.get(1).unwrap(), b"record");
}

#[test]
fn a_full_heap_keeps_its_records() {
    let words = memory(5);
    let mut arena = Arena::create(&words[..], PLACES, b"").unwrap();
    let mut put = 0;
    while arena.put(put, &[put as u8; 10_000]).is_ok() {
        put += 1;
    }
    assert_eq!(put, 4 * 6);
    assert!(arena.is_nearly_full());
    assert!(matches!(
        arena.put(3, &[0; 10_000]),
        Err(Full::Heap { octets: 10_000 })
    ));
    assert_eq!(arena.get(3).unwrap(), [3; 10_000]);
    let fill = arena.fill();
    assert_eq!(fill.records, 24);
    assert_eq!((fill.octets, fill.backed_octets), (5 << 16, 5 << 16));
    assert_eq!(fill.used_octets, 24 * 170 * 64);
    for place in 0..put {
        arena.remove(place);
    }
    assert_eq!(arena.fill().used_octets, 0);
    arena.put(0, &[9; 4 * PAGE - WORD]).unwrap();
    assert_eq!(arena.fill().used_octets, 4 << 16);
}

#[test]
fn bad_arguments_are_refused() {
    let words = memory(3);
    let mut arena = Arena::create(&words[..], 4, &[1; HEADER_MAX]).unwrap();
    assert_eq!(arena.header(), [1; HEADER_MAX]);
    assert_eq!(word(&words, SUPERBLOCK / WORD), 0);
    assert!(matches!(
        arena.put(4, b""),
        Err(Full::Place {
            place: 4,
            places: 4
        })
    ));
    assert_eq!(arena.get(4), None);
    arena.remove(u32::MAX);
    let record = vec![0; RECORD_MAX + 1];
    assert!(matches!(arena.put(0, &record), Err(Full::Record { .. })));
    assert!(matches!(arena.put(0, &record[1..]), Err(Full::Heap { .. })));
    arena.put(0, b"").unwrap();
    assert_eq!(arena.get(0).unwrap(), b"");

    let create = |words, places, header: &[u8]| Arena::create(words, places, header).err();
    let header = [0; HEADER_MAX + 1];
    assert!(matches!(
        create(&words[..], 4, &header),
        Some(Uncreated::Header { octets: 4033 })
    ));
    for (words, places) in [(&words[..PAGE / WORD], 4), (&words[..], u32::MAX), (&[], 0)] {
        assert!(matches!(
            create(words, places, b""),
            Some(Uncreated::Size { .. })
        ));
    }
}

#[test]
fn the_size_asked_for_suffices() {
    for (places, length) in [(0, 0), (1, 200), (3000, 200), (700, 5000), (5, 100_000)] {
        let words = memory(crate::octets_for(places, length) / PAGE);
        let mut arena = Arena::create(&words[..], places, b"").unwrap();
        for longer in [0, length / 4] {
            // Pages of the former length are empty last.
            for place in (0..places)
                .step_by(7)
                .chain((0..places).filter(|place| place % 7 != 0))
            {
                arena.put(place, &vec![1; length + longer]).unwrap();
            }
            assert!(!arena.is_nearly_full(), "{places} {length}");
        }
    }
    assert!(crate::octets_for(u32::MAX, usize::MAX) > 1 << 50);
}
