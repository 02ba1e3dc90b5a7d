//! A ring through deaths, damage and memory without room.

use std::sync::atomic::{AtomicU64, Ordering};

use super::death::with_stores;
use super::{Random, Scarce, word};
use crate::layout::WORD;
use crate::ring::{self, Ring};

fn memory(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn found(words: &[AtomicU64]) -> Vec<Vec<u8>> {
    Ring::open(words).unwrap().records().collect()
}

/// Whether these are the last ones of those, as many as there is room for; at least half of it is used.
fn are_the_newest(found: &[Vec<u8>], all: &[Vec<u8>], room: usize) -> bool {
    let octets = |records: &[Vec<u8>]| -> usize { records.iter().map(|of| of.len() + 16).sum() };
    all.ends_with(found) && (found.len() == all.len() || octets(found) > room / 2)
}

#[test]
fn the_newest_records_are_there_and_come_round_many_times() {
    for words in [9, 10, 30, 100, 1000] {
        let (words, mut random) = (memory(words), Random(words as u64));
        let room = (words.len() - 8) * WORD;
        let mut ring = Ring::create(&words[..]).unwrap();
        let mut all = Vec::new();
        for _ in 0..300 {
            let octets = random.below(room / 4 + 9);
            let record = random.record(octets);
            let fits = octets.div_ceil(WORD) < words.len() - 8;
            assert_eq!(ring.push(&record).is_ok(), fits, "{octets} of {room}");
            if fits {
                all.push(record);
            }
            let kept: Vec<_> = ring.records().collect();
            assert_eq!(found(&words), kept);
            assert!(are_the_newest(&kept, &all, room), "{} {room}", kept.len());
            if random.below(10) == 0 {
                ring = Ring::open(&words[..]).unwrap();
            }
        }
    }
}

#[test]
fn a_death_at_each_store_costs_the_record_under_way_alone() {
    let mut random = Random(3);
    let script: Vec<_> = (0..30).map(|at| random.record(at * 7 % 50)).collect();
    let words = memory(40);
    for stores in 0.. {
        words
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let mut ring = Ring::create(&words[..]).unwrap();
        let (done, is_dead) = with_stores(stores, || {
            let mut done = 0;
            for record in &script {
                ring.push(record).unwrap();
                done += usize::from(super::death::lives());
            }
            done
        });
        let found = found(&words);
        assert!(!found.is_empty() || done == 0);
        // The record under way has had others out of its way.
        let room = 32 * WORD - 64;
        let before = are_the_newest(&found, &script[..done], room);
        let after = || are_the_newest(&found, &script[..done + 1], room);
        assert!(before || after(), "{stores}: {} of {done}", found.len());
        if !is_dead {
            return;
        }
    }
}

#[test]
fn damage_costs_records_and_makes_none() {
    let mut random = Random(9);
    let (mut lost, mut whole) = (0, 0);
    for _ in 0..3000 {
        let words = memory(60);
        let mut ring = Ring::create(&words[..]).unwrap();
        let count = 1 + random.below(20);
        let all: Vec<_> = (0..count)
            .map(|_| {
                let octets = random.below(70);
                random.record(octets)
            })
            .collect();
        all.iter().for_each(|record| ring.push(record).unwrap());
        let before = found(&words);
        let (at, bits) = (random.below(60), random.next());
        words[at].fetch_xor(bits, Ordering::Relaxed);
        let Ok(mut ring) = Ring::open(&words[..]) else {
            lost += before.len();
            continue;
        };
        let after: Vec<_> = ring.records().collect();
        // In their order, some missing.
        let mut left = before.iter();
        assert!(after.iter().all(|record| left.any(|of| of == record)));
        (lost, whole) = (lost + before.len() - after.len(), whole + after.len());
        (0..20).for_each(|_| ring.push(b"more").unwrap());
        assert_eq!(ring.records().last().unwrap(), b"more");
    }
    assert!(lost > 1000 && whole > 3 * lost, "{lost} {whole}");
}

#[test]
fn any_words_are_a_ring_or_none() {
    let mut random = Random(11);
    for _ in 0..3000 {
        let words = memory(random.below(40));
        for word in &words {
            let value = match random.below(3) {
                0 => random.next(),
                _ => random.below(40) as u64,
            };
            word.store(value, Ordering::Relaxed);
        }
        if let Some(magic) = words.first() {
            magic.store(u64::from_le_bytes(*b"tp-ring1"), Ordering::Relaxed);
        }
        if let Ok(mut ring) = Ring::open(&words[..]) {
            assert!(ring.records().count() <= words.len());
            (0..5).for_each(|_| drop(ring.push(b"")));
        }
    }
}

#[test]
fn without_room_all_is_as_it_was() {
    let words = memory(ring::octets_for(10_000, 100) / WORD);
    let mut ring = Ring::create(Scarce(&words, 1 << 17)).unwrap();
    let mut pushed = 0;
    while ring.push(&[7; 100]).is_ok() {
        pushed += 1;
    }
    assert_eq!(ring.records().count(), pushed);
    assert!(pushed > 1000, "{pushed}");
    assert_eq!(
        word(&words, (1 << 17) / WORD),
        0,
        "nothing is written beyond"
    );
    assert!(Ring::create(Scarce(&words, 0)).is_err());
    let opened = Ring::open(Scarce(&words, 1 << 17)).unwrap();
    assert_eq!(opened.records().count(), pushed);
}
