//! Damaged memory: undamaged records are found, and none under another place.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Model, Random, memory, word};
use crate::layout::{self, Entry, Head, PAGE, UNIT, WORD};
use crate::{Arena, Damaged, Fault, Unopened};

const PLACES: u32 = 20;
const PAGES: usize = 32;
const TIMES: usize = 100_000;

/// An arena with a record in most places.
fn filled(words: &[AtomicU64]) -> Model {
    let mut random = Random(5);
    let mut arena = Arena::create(words, PLACES, b"a header").unwrap();
    let mut model = Model::new();
    for _ in 0..3 {
        for place in (0..PLACES).filter(|place| place % 7 != 4) {
            let longest = [100, 250, 250, 250, 2000][random.below(5)];
            let length = random.below(longest);
            model.insert(place, random.record(length));
            arena.put(place, &model[&place]).unwrap();
        }
    }
    model.insert(6, random.record(33_000));
    arena.put(6, &model[&6]).unwrap();
    model
}

/// Words that a record hangs on.
fn words_of(words: &[AtomicU64], place: u32) -> (usize, Range<usize>) {
    let directory = layout::directory_at(place);
    let entry = Entry::from_word(word(words, directory)).unwrap();
    let head = Head::from_word(word(words, entry.at()));
    let record = entry.at() + 1;
    (
        directory,
        entry.at()..record + (head.length as usize).div_ceil(WORD),
    )
}

/// A part of the memory that damage hits, with preference for what is in use.
fn target(random: &mut Random, words: &[AtomicU64]) -> usize {
    match random.below(16) {
        0 => random.below(9),
        1..=5 => layout::directory_at(random.below(PLACES as usize) as u32),
        6 => random.below(words.len()),
        _ => {
            let place = random.below(PLACES as usize) as u32;
            if place % 7 == 4 {
                return random.below(words.len());
            }
            let (_, block) = words_of(words, place);
            // Half of them the head.
            let behind = random.below(block.len());
            block.start + behind * random.below(2)
        }
    }
}

fn damage(random: &mut Random, word: &AtomicU64) {
    let was = word.load(Ordering::Relaxed);
    let bit = 1 << random.below(64);
    let damaged = match random.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => random.next(),
        3 => was.wrapping_add(bit),
        4 => was.rotate_left(random.below(64) as u32),
        _ => was ^ bit,
    };
    word.store(damaged, Ordering::Relaxed);
}

#[test]
fn damage_costs_what_it_hits() {
    let words = memory(PAGES);
    let model = filled(&words);
    let blocks: Vec<(u32, usize, Range<usize>)> = model
        .keys()
        .map(|&place| {
            let (directory, block) = words_of(&words, place);
            (place, directory, block)
        })
        .collect();
    let pristine: Vec<u64> = words
        .iter()
        .map(|word| word.load(Ordering::Relaxed))
        .collect();
    let superblock = layout::directory_at(PLACES);
    let mut random = Random(1);
    let (mut opened, mut lost) = (0, 0);
    for _ in 0..TIMES {
        let hit: Vec<usize> = (0..1 + random.below(4))
            .map(|_| target(&mut random, &words))
            .collect();
        for &at in &hit {
            damage(&mut random, &words[at]);
        }
        let end = match random.below(64) {
            0 => random.below(words.len()),
            _ => words.len(),
        };
        if let Ok((arena, damaged)) = Arena::open(&words[..end]) {
            assert_eq!(end, words.len());
            opened += 1;
            lost += damaged.len();
            let found: Model = arena.records().collect();
            assert_eq!(arena.fill().records, found.len() as u32);
            for (place, record) in &found {
                assert_eq!(Some(record), model.get(place), "{place}: {hit:?}");
            }
            for (place, directory, block) in &blocks {
                let is_hit = hit.iter().any(|at| at == directory || block.contains(at));
                assert!(is_hit || found.contains_key(place), "{place}: {hit:?}");
            }
            for Damaged { place, fault } in damaged {
                assert!(!found.contains_key(&place), "{place}: {fault}");
            }
        } else {
            assert!(end < words.len() || hit.iter().any(|&at| at < superblock));
        }
        for at in (0..superblock).chain(hit) {
            words[at].store(pristine[at], Ordering::Relaxed);
        }
    }
    assert!(opened > TIMES / 2 && lost > TIMES / 2, "{opened} {lost}");
}

/// The arena goes on while the memory changes below it. A record is its place's, or none.
#[test]
fn damage_below_a_live_arena() {
    let words = memory(PAGES);
    let mut random = Random(2);
    for _ in 0..300 {
        let mut arena = Arena::create(&words[..], PLACES, b"").unwrap();
        for _ in 0..100 {
            let place = random.below(PLACES as usize) as u32;
            match random.below(8) {
                0 => arena.remove(place),
                1..=2 => damage(&mut random, &words[layout::directory_at(place)]),
                3 => {
                    let at = PAGE / WORD + random.below(words.len() - PAGE / WORD);
                    damage(&mut random, &words[at]);
                }
                _ => {
                    let longest = [300, 300, 40_000][random.below(3)];
                    let length = random.below(longest);
                    let _ = arena.put(place, &vec![place as u8; length]);
                }
            }
        }
        for (place, record) in arena.records() {
            assert!(record.iter().all(|&octet| octet == place as u8));
        }
    }
}

/// A block that somebody has written into a record of another place.
#[test]
fn a_block_within_another_is_an_overlap() {
    let words = memory(PAGES);
    let mut arena = Arena::create(&words[..], PLACES, b"").unwrap();
    let inner = b"of place 9";
    let head = Head {
        place: 9,
        length: inner.len() as u32,
    };
    let mut record = vec![0; UNIT - WORD];
    record.extend(head.word().to_le_bytes());
    record.extend(inner);
    record.resize(1000, 0);
    arena.put(2, &record).unwrap();
    let outer = Entry::from_word(word(&words, layout::directory_at(2))).unwrap();
    let forged = Entry {
        begin: outer.begin + 1,
        checksum: head.checksum_with(inner),
    };
    words[layout::directory_at(9)].store(forged.word(), Ordering::Relaxed);
    let (arena, damaged) = Arena::open(&words[..]).unwrap();
    let fault = Fault::Overlap;
    assert_eq!(damaged, [Damaged { place: 9, fault }]);
    assert_eq!(
        arena.records().collect::<Vec<_>>(),
        [(2, record), (9, inner.to_vec())][..1]
    );
}

#[test]
fn each_fault_has_its_name() {
    let words = memory(PAGES);
    let model = filled(&words);
    let directory = |place| &words[layout::directory_at(place)];
    let entry = |place| Entry::from_word(word(&words, layout::directory_at(place))).unwrap();
    directory(0).store(directory(1).load(Ordering::Relaxed), Ordering::Relaxed);
    directory(2).store(1, Ordering::Relaxed);
    directory(3).store(u64::from(u32::MAX), Ordering::Relaxed);
    let at = entry(5).at();
    words[at].fetch_xor(1 << 62, Ordering::Relaxed);
    let at = entry(6).at() + 3000;
    words[at].fetch_xor(1, Ordering::Relaxed);
    let (mut arena, damaged) = Arena::open(&words[..]).unwrap();
    let faults: Vec<(u32, Fault)> = damaged
        .iter()
        .map(|damaged| (damaged.place, damaged.fault))
        .collect();
    let expected = [
        (0, Fault::AnotherPlace),
        (2, Fault::Outside),
        (3, Fault::Outside),
        (5, Fault::Outside),
        (6, Fault::Checksum),
    ];
    assert_eq!(faults, expected);
    assert_eq!(arena.get(1).as_ref(), model.get(&1));
    for (place, _) in expected {
        assert_eq!(arena.get(place), None);
        arena.put(place, b"anew").unwrap();
    }
    drop(arena);
    let (arena, damaged) = Arena::open(&words[..]).unwrap();
    assert_eq!(damaged, []);
    assert_eq!(arena.get(6).unwrap(), b"anew");
}

#[test]
fn a_memory_that_is_no_such_arena_is_named() {
    let words = memory(PAGES);
    let open = |words| Arena::open(words).map(|_| ()).unwrap_err();
    assert!(matches!(open(&words[..]), Unopened::NoArena));
    assert!(matches!(open(&words[..100]), Unopened::NoArena));
    assert!(matches!(open(&[]), Unopened::NoArena));
    Arena::create(&words[..], PLACES, b"a header").unwrap();
    let last = words.len() - 1;
    assert!(matches!(open(&words[..last]), Unopened::Size { .. }));
    words[8].fetch_xor(1, Ordering::Relaxed);
    assert!(matches!(open(&words[..]), Unopened::TornHeader));
    words[1].store(2, Ordering::Relaxed);
    assert!(matches!(open(&words[..]), Unopened::Version { found: 2 }));
}
