//! Puts, removals, deaths and damage beside a plain map: scripts and how they are run.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use arena::{Arena, Unopened};

/// Places of the arena.
const PLACES: u32 = 24;
/// Octets of its memory: a megabyte, of which large records take much.
const OCTETS: usize = 1 << 20;
const HEADER: &[u8] = b"header";

/// One step of a script.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A record of that many octets, made from `seed`.
    Put { place: u8, octets: u16, seed: u8 },
    /// No record.
    Remove { place: u8 },
    /// The process ends and the next one opens the memory.
    Reopen,
    /// As [`Self::Reopen`], and between the two a word has changed.
    Damage { word: u32, bits: u64 },
}

/// Octets that begin with their place, so that another place's are known.
fn record(place: u32, octets: u16, seed: u8) -> Vec<u8> {
    let mut record = vec![seed; usize::from(octets)];
    for (at, octet) in record.iter_mut().enumerate() {
        *octet = octet.wrapping_add((at / 7) as u8);
    }
    let tag = place.to_le_bytes();
    let tagged = record.len().min(tag.len());
    record[..tagged].copy_from_slice(&tag[..tagged]);
    record
}

/// Run a script over a memory of its own.
pub(crate) fn run(steps: &[Step]) {
    let words: Vec<AtomicU64> = (0..OCTETS / 8).map(|_| AtomicU64::new(0)).collect();
    let mut arena = Arena::create(&words[..], PLACES, HEADER).unwrap();
    let mut model = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Put {
                place,
                octets,
                seed,
            } => {
                let place = u32::from(place) % PLACES;
                let record = record(place, octets, seed);
                if arena.put(place, &record).is_ok() {
                    model.insert(place, record);
                }
                assert_eq!(arena.get(place).as_ref(), model.get(&place));
            }
            Step::Remove { place } => {
                let place = u32::from(place) % PLACES;
                arena.remove(place);
                model.remove(&place);
                assert_eq!(arena.get(place), None);
            }
            Step::Reopen => {
                drop(arena);
                let (opened, damaged) = Arena::open(&words[..]).unwrap();
                assert_eq!(damaged, []);
                assert_eq!(opened.header(), HEADER);
                arena = opened;
            }
            Step::Damage { word, bits } => {
                drop(arena);
                let word = word as usize % words.len();
                words[word].fetch_xor(bits, Ordering::Relaxed);
                match Arena::open(&words[..]) {
                    Ok((opened, damaged)) => {
                        for damaged in &damaged {
                            assert_eq!(opened.get(damaged.place), None);
                        }
                        let found: BTreeMap<_, _> = opened.records().collect();
                        // One word is of one record at most.
                        assert!(found.len() + 1 >= model.len());
                        for (place, record) in &found {
                            assert_eq!(Some(record), model.get(place));
                        }
                        model = found;
                        arena = opened;
                    }
                    // The superblock has its checksum, and is a small part of the memory.
                    Err(Unopened::Unbacked(error)) => panic!("{error}"),
                    Err(_) => {
                        assert!(word < 512);
                        return;
                    }
                }
            }
        }
        if !matches!(step, Step::Put { .. } | Step::Remove { .. }) {
            check(&arena, &model);
        }
    }
    check(&arena, &model);
}

fn check(arena: &Arena<&[AtomicU64]>, model: &BTreeMap<u32, Vec<u8>>) {
    let fill = arena.fill();
    let octets: usize = model.values().map(Vec::len).sum();
    assert_eq!(fill.records, model.len() as u32);
    assert!(fill.used_octets >= octets as u64);
    assert!(fill.used_octets <= fill.backed_octets && fill.backed_octets <= fill.octets);
    assert!(arena.records().eq(model.clone()));
}
