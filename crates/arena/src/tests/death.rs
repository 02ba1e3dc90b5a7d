//! Death between any two stores.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use super::{Model, Random, memory};
use crate::{Arena, Unopened};

thread_local! {
    /// Stores that this thread still makes.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// A store was not made.
    static IS_DEAD: Cell<bool> = const { Cell::new(false) };
}

/// Asked for each store: the thread lives, and makes it.
pub(crate) fn is_alive() -> bool {
    match LEFT.get().checked_sub(1) {
        Some(left) => LEFT.set(left),
        None => IS_DEAD.set(true),
    }
    !IS_DEAD.get()
}

/// No store was left out so far.
pub(super) fn lives() -> bool {
    !IS_DEAD.get()
}

/// Do something with so many stores; all further ones do not happen. True: it took no more.
pub(super) fn with_stores<T>(stores: u64, act: impl FnOnce() -> T) -> (T, bool) {
    LEFT.set(stores);
    let done = act();
    LEFT.set(u64::MAX);
    (done, !IS_DEAD.replace(false))
}

const PLACES: u32 = 12;
const PAGES: usize = 12;

enum Op {
    Put(u32, Vec<u8>),
    Remove(u32),
}

impl Op {
    fn random(random: &mut Random, lengths: &[usize]) -> Self {
        let place = random.below(PLACES as usize) as u32;
        if random.below(4) == 0 {
            return Self::Remove(place);
        }
        let longest = lengths[random.below(lengths.len())];
        let length = random.below(longest + 1);
        Self::Put(place, random.record(length))
    }

    fn act(&self, arena: &mut Arena<&[AtomicU64]>) -> bool {
        match self {
            Self::Put(place, record) => arena.put(*place, record).is_ok(),
            Self::Remove(place) => {
                arena.remove(*place);
                true
            }
        }
    }

    fn expect(&self, model: &mut Model) {
        match self {
            Self::Put(place, record) => model.insert(*place, record.clone()),
            Self::Remove(place) => model.remove(place),
        };
    }
}

/// Records that the next process finds.
fn found(words: &[AtomicU64]) -> Model {
    let (arena, damaged) = Arena::open(words).unwrap();
    assert_eq!(damaged, []);
    let found: Model = arena.records().collect();
    assert_eq!(arena.fill().records, found.len() as u32);
    found
}

/// Each script as a whole, from its beginning to each of its stores.
#[test]
fn scripts_until_each_store() {
    for seed in 0..25 {
        let mut random = Random(seed);
        let script: Vec<Op> = (0..40)
            .map(|_| Op::random(&mut random, &[10, 200, 400]))
            .collect();
        let words = memory(PAGES);
        for stores in 0.. {
            let mut arena = Arena::create(&words[..], PLACES, b"header").unwrap();
            let (mut before, mut after) = (Model::new(), Model::new());
            let (_, is_complete) = with_stores(stores, || {
                for op in &script {
                    assert!(op.act(&mut arena));
                    before.clone_from(&after);
                    op.expect(&mut after);
                    if IS_DEAD.get() {
                        break;
                    }
                }
            });
            let found = found(&words);
            if is_complete {
                assert!(stores > 200);
                assert_eq!(found, after);
                break;
            }
            assert!(found == before || found == after, "{seed}: {stores}");
        }
    }
}

/// Each operation again and again, one store further each time, among the remains of the times before; with large records.
#[test]
fn operations_until_each_store() {
    for seed in 0..25 {
        let mut random = Random(seed);
        let words = memory(PAGES);
        Arena::create(&words[..], PLACES, &[7; 100]).unwrap();
        let mut model = Model::new();
        for _ in 0..40 {
            let op = Op::random(&mut random, &[0, 100, 300, 300, 300, 5000, 40_000]);
            let mut after = model.clone();
            op.expect(&mut after);
            let (mut stores, mut step) = (0, 1);
            loop {
                let (mut arena, _) = Arena::open(&words[..]).unwrap();
                let (has_room, is_complete) = with_stores(stores, || op.act(&mut arena));
                let found = found(&words);
                if !has_room {
                    assert_eq!(found, model);
                    break;
                }
                if is_complete {
                    assert_eq!(found, after);
                    model = after;
                    break;
                }
                assert!(found == model || found == after, "{seed}: {stores}");
                // All stores in the middle of a long record are alike.
                if stores > 100 {
                    step = 97;
                }
                stores += step;
            }
        }
    }
}

/// A death in `create` leaves the former arena, none, or the new one.
#[test]
fn creation_until_each_store() {
    let words = memory(PAGES);
    let mut random = Random(0);
    for stores in 0.. {
        let mut former = Arena::create(&words[..], PLACES, b"former").unwrap();
        former.put(3, &random.record(300)).unwrap();
        let (_, is_complete) = with_stores(stores, || {
            Arena::create(&words[..], PLACES + 9, b"another header").unwrap()
        });
        match Arena::open(&words[..]) {
            Err(Unopened::NoArena) => assert!(stores > 0 && !is_complete),
            Err(other) => panic!("{stores}: {other}"),
            Ok((arena, damaged)) => {
                assert_eq!(damaged, []);
                let records = arena.records().count();
                match &arena.header()[..] {
                    b"former" => assert_eq!((stores, records), (0, 1)),
                    b"another header" => assert_eq!(records, 0),
                    header => panic!("{stores}: {header:?}"),
                }
            }
        }
        if is_complete {
            break;
        }
    }
}
