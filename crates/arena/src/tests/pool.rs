//! A pool through deaths, damage and memory without room.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::death::{lives, with_stores};
use super::{Random, Scarce, memory};
use crate::Memory;
use crate::layout::{PAGE, WORD};
use crate::pool::{self, Pool, Stored};

const PAGES: usize = 2;
/// Blocks of a memory of so many pages: the superblock takes as much as 32 of them.
const BLOCKS: usize = PAGES * PAGE / 128 - 32;

fn octets<M: Memory>(pool: &Pool<M>, stored: Stored) -> Vec<u8> {
    let mut octets = vec![0; stored.len()];
    pool.copy(stored, &mut octets);
    octets
}

/// Records that the next process finds; none of them is damaged.
fn found(words: &[AtomicU64]) -> BTreeSet<Vec<u8>> {
    let (pool, records, damaged) = Pool::open(words).unwrap();
    assert_eq!(damaged, 0);
    let found: Vec<_> = records.iter().map(|of| octets(&pool, *of)).collect();
    let taken: usize = found.iter().map(|of| pool::taken(of.len())).sum();
    assert_eq!(pool.used(), taken);
    found.into_iter().collect()
}

/// Lengths about those that fill blocks.
fn length(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(130),
        1 => 112 + 120 * random.below(4) + random.below(3) - 1,
        2 => random.below(1600),
        _ => random.below(9800),
    }
}

/// No two are alike.
fn record(random: &mut Random, number: u64) -> Vec<u8> {
    let length = length(random);
    let mut record = random.record(length);
    record.extend(number.to_le_bytes());
    record
}

#[test]
fn records_come_and_go_and_are_found_again() {
    for seed in 1..30 {
        let (words, mut random) = (memory(PAGES), Random(seed));
        let mut pool = Pool::create(&words[..], b"whose").unwrap();
        let mut model: Vec<(Stored, Vec<u8>)> = Vec::new();
        let mut refused = 0;
        for number in 0..600 {
            if random.below(3) > 0 {
                let record = record(&mut random, number);
                let blocks = pool::taken(record.len()) / 128;
                let fits = pool.used() / 128 + blocks <= BLOCKS;
                let put = pool.put(&record);
                assert_eq!(put.is_ok(), fits, "nothing else is a reason to refuse one");
                match put {
                    Ok(stored) => model.push((stored, record)),
                    Err(_) => refused += 1,
                }
            } else if !model.is_empty() {
                let (stored, record) = model.swap_remove(random.below(model.len()));
                assert_eq!(octets(&pool, stored), record);
                pool.give(stored);
            }
            if random.below(50) == 0 {
                let (next, records, damaged) = Pool::open(&words[..]).unwrap();
                assert_eq!((next.header(), damaged), (b"whose".to_vec(), 0));
                pool = next;
                let records = records.into_iter().map(|of| (of, octets(&pool, of)));
                let mut records: Vec<_> = records.collect();
                records.sort_by_key(|(_, record)| record.clone());
                model.sort_by_key(|(_, record)| record.clone());
                assert_eq!(records, model);
            }
        }
        assert!(refused > 10, "{refused}");
        let used: usize = model.iter().map(|(of, _)| pool::taken(of.len())).sum();
        assert_eq!(pool.used(), used);
        model.drain(..).for_each(|(stored, _)| pool.give(stored));
        assert_eq!(pool.used(), 0);
        // All room is one again.
        let last = pool.put(&vec![1; 65_000]).unwrap();
        pool.give(last);
        assert!(found(&words).is_empty());
    }
}

#[test]
fn too_long_a_record_is_refused() {
    let words = memory(PAGES);
    let mut pool = Pool::create(&words[..], &[]).unwrap();
    let refused = pool.put(&[0; 65_536]);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "a record of 65536 octets, at most 65535 fit"
    );
    assert!(Pool::create(&words[..], &[0; 4096]).is_err());
    assert!(Pool::create(&words[..100], &[]).is_err());
    assert!(Pool::open(&words[..100]).is_err());
}

#[test]
fn a_death_at_each_store_costs_the_operation_under_way_alone() {
    let mut random = Random(5);
    // Which of those that are there goes, or what comes.
    let script: Vec<Result<usize, Vec<u8>>> = (0..40u64)
        .map(|number| match number % 3 {
            2 => Ok(number as usize),
            _ => Err(random.record(8 + number as usize * 13)),
        })
        .collect();
    let words = memory(1);
    for stores in 0.. {
        words
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
        let mut pool = Pool::create(&words[..], b"whose").unwrap();
        let (models, is_whole) = with_stores(stores, || {
            let mut there: Vec<(Stored, Vec<u8>)> = Vec::new();
            let mut models = [BTreeSet::new(), BTreeSet::new()];
            for step in &script {
                let before = there.clone();
                match step {
                    Ok(which) => {
                        let (stored, _) = there.swap_remove(which % before.len());
                        pool.give(stored);
                    }
                    Err(record) => there.push((pool.put(record).unwrap(), record.clone())),
                }
                let set = |of: &[(Stored, Vec<u8>)]| of.iter().map(|of| of.1.clone()).collect();
                models = [set(&before), set(&there)];
                if !lives() {
                    break;
                }
            }
            models
        });
        assert!(models.contains(&found(&words)), "{stores}");
        if is_whole {
            assert!(stores > 500);
            return;
        }
    }
}

#[test]
fn damage_costs_records_and_makes_none() {
    let mut random = Random(7);
    let mut lost = 0;
    for _ in 0..400 {
        let words = memory(1);
        let mut pool = Pool::create(&words[..], &[]).unwrap();
        let all: BTreeSet<_> = (0..20)
            .map(|number| random.record(8 + number * 11))
            .collect();
        for record in &all {
            pool.put(record).unwrap();
        }
        let used = pool.used() / WORD;
        let at = 512 + random.below(used);
        words[at].fetch_xor(random.next(), Ordering::Relaxed);
        let (mut pool, records, damaged) = Pool::open(&words[..]).unwrap();
        let found: BTreeSet<_> = records.iter().map(|of| octets(&pool, *of)).collect();
        assert!(found.is_subset(&all) && found.len() >= all.len() - 2);
        lost += all.len() - found.len();
        assert!(damaged <= 2);
        while pool.put(b"more").is_ok() {}
        assert_eq!(pool.used(), (512 - 32) * 128, "all blocks are in use");
    }
    assert!(lost > 200, "{lost}");
}

#[test]
fn any_words_are_a_pool_or_none() {
    let mut random = Random(13);
    for _ in 0..200 {
        let words = memory(1);
        assert!(Pool::create(&words[..], &[]).is_ok());
        for word in &words[512..] {
            let next = (random.below(560) | random.below(2) << 32) as u64;
            let value = match random.below(3) {
                0 => random.next(),
                _ => next,
            };
            word.store(value, Ordering::Relaxed);
        }
        let (mut pool, records, _) = Pool::open(&words[..]).unwrap();
        records.into_iter().for_each(|of| pool.give(of));
        assert_eq!(pool.used(), 0);
        while pool.put(b"more").is_ok() {}
        assert_eq!(pool.used(), (512 - 32) * 128);
    }
}

/// Records that begin everywhere and are as long as can be do not have all blocks read for each.
#[test]
fn made_up_lengths_are_read_within_bounds() {
    let words = memory(64);
    let mut pool = Pool::create(&words[..], &[]).unwrap();
    while pool.put(&[0; 65_000]).is_ok() {}
    for (number, block) in words.chunks(16).enumerate().skip(32) {
        let next = 32 + (number + 1) % 32_000;
        block[0].store(next as u64 | 1 << 32, Ordering::Relaxed);
        block[1].store(65_535, Ordering::Relaxed);
    }
    let (pool, records, damaged) = Pool::open(&words[..]).unwrap();
    assert!(records.is_empty() && damaged > 32_000 && pool.used() == 0);
}

#[test]
fn without_room_in_the_file_system_records_are_refused_and_room_is_given_back() {
    let words = memory(64);
    let mut pool = Pool::create(Scarce(&words, 40 * PAGE), &[]).unwrap();
    assert!(!pool.is_spare());
    let mut all = Vec::new();
    while let Ok(stored) = pool.put(&[3; 1000]) {
        all.push(stored);
    }
    // Steps of 16 pages.
    assert_eq!(pool.used() / 1024 / 64, 31);
    pool.give_back();
    assert_eq!(octets(&pool, all[0]), [3; 1000], "it is in use");
    all.drain(..).for_each(|stored| pool.give(stored));
    assert!(pool.is_spare());
    pool.give_back();
    assert!(!pool.is_spare() && found(&words).is_empty());
    assert!(
        words[PAGE / WORD..]
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    );
    let stored = pool.put(&[4; 2000]).unwrap();
    assert_eq!(octets(&pool, stored), [4; 2000]);
    assert_eq!(found(&words).into_iter().next(), Some(vec![4; 2000]));
}
