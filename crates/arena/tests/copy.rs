//! Copies on a disk that keeps any part of what was not synced.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "script/disk.rs"]
mod disk;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;

use arena::copy::{Changes, Copied, Copier, Limits, Name, Stamp, Storage, Unrestored, remove_all};
use arena::{Arena, View};
use disk::{Disk, Random};

const PLACES: u32 = 24;
const HEADER: &[u8] = b"whose it is";
/// Files are replaced again and again.
const LIMITS: Limits = Limits {
    log_octets: 3000,
    snapshot_octets: 6000,
};

type Records = BTreeMap<u32, Vec<u8>>;
type Words = [AtomicU64];

/// Records over time, and how far a disk has to know them.
struct History {
    /// All states, the first one empty.
    states: Vec<Records>,
    /// State as of the last commit.
    committed: usize,
    /// By place: the state with its last change that was committed.
    known: [usize; PLACES as usize],
    /// A process has died before it had committed all changes, and there is no snapshot since.
    has_gap: bool,
    is_there: bool,
}

impl History {
    fn new() -> Self {
        Self {
            states: vec![Records::new()],
            committed: 0,
            known: [0; PLACES as usize],
            has_gap: false,
            is_there: false,
        }
    }

    fn now(&self) -> &Records {
        self.states.last().unwrap()
    }

    /// A copy that is this may be found.
    fn allows(&self, found: Option<&Records>) -> bool {
        let Some(found) = found else {
            return !self.is_there;
        };
        if !self.has_gap {
            return self.states[self.committed..].contains(found);
        }
        (0..PLACES).all(|place| {
            let mut states = self.states[self.known[place as usize]..].iter();
            states.any(|state| state.get(&place) == found.get(&place))
        })
    }
}

/// A process that copies its arena, until it or its host dies.
fn live(
    arena: &mut Arena<&Words>,
    words: &Words,
    disk: &mut Disk,
    (history, goes_on): (&mut History, bool),
    random: &mut Random,
) -> io::Result<()> {
    let mut changes = Changes::default();
    let mut changed = Vec::new();
    let mut copier = Copier::begin(disk, HEADER, goes_on, LIMITS)?;
    let view = View::open(words).unwrap();
    let mut is_read = false;
    for _ in 0..random.below(400) {
        if random.below(4) > 0 {
            let place = random.below(PLACES as usize) as u32;
            let mut next = history.now().clone();
            if random.below(4) == 0 {
                arena.remove(place);
                changes.remove(place);
                next.remove(&place);
            } else {
                let octets = random.below(300);
                let record = random.octets(octets);
                arena.put(place, &record).unwrap();
                changes.put(place, &record);
                next.insert(place, record);
            }
            history.states.push(next);
            changed.push((place, history.states.len() - 1));
            continue;
        }
        copier.commit(&changes, stamp(history))?;
        changes.clear();
        history.committed = history.states.len() - 1;
        for (place, state) in changed.drain(..) {
            history.known[place as usize] = state;
        }
        if is_read {
            copier.seal()?;
            (history.has_gap, history.is_there, is_read) = (false, true, false);
        } else if copier.is_looking() {
            is_read = copier.look(&view)?;
        }
    }
    Ok(())
}

fn stamp(history: &History) -> Stamp {
    Stamp {
        own_ns: history.states.len() as u64,
        wall_ns: 7,
    }
}

/// What whoever comes next finds.
fn find(disk: &mut Disk) -> Result<Option<(Records, Stamp)>, Unrestored> {
    let Some(copied) = Copied::find(&mut &mut *disk)? else {
        return Ok(None);
    };
    assert_eq!(copied.header(), HEADER);
    let mut records = Records::new();
    let stamp = copied.read(&mut &mut *disk, |place, record| {
        match record {
            Some(record) => records.insert(place, record.to_vec()),
            None => records.remove(&place),
        };
    })?;
    Ok(Some((records, stamp)))
}

fn memory() -> Vec<AtomicU64> {
    let octets = arena::octets_for(PLACES, 400);
    (0..octets / 8).map(|_| AtomicU64::new(0)).collect()
}

/// Processes and hosts die, one behind the other. Returns how many hosts' successors have found a copy, and how many have gone on behind a
/// process that had not committed all.
fn run(seed: u64) -> (u32, u32) {
    let mut random = Random(seed);
    let mut disk = Disk::new(!seed);
    let (mut found, mut gaps) = (0, 0);
    let mut history = History::new();
    let mut words = memory();
    let mut arena = Arena::create(&words[..], PLACES, &[]).unwrap();
    let mut goes_on = false;
    for _ in 0..6 {
        disk.left = match random.below(3) {
            0 => usize::MAX,
            _ => random.below(300),
        };
        let lived = live(
            &mut arena,
            &words,
            &mut disk,
            (&mut history, goes_on),
            &mut random,
        );
        assert!(lived.is_ok() || disk.left == 0);
        disk.left = usize::MAX;
        if random.below(2) == 0 {
            // The process dies, and memory stays.
            history.has_gap |= history.committed < history.states.len() - 1;
            gaps += u32::from(history.has_gap);
            goes_on = true;
            continue;
        }
        disk.lose();
        let read = find(&mut disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let records = read.as_ref().map(|(records, _)| records);
        assert!(history.allows(records), "seed {seed}");
        found += u32::from(read.is_some());
        goes_on = read.is_some();
        let (records, _) = read.unwrap_or_default();
        drop(arena);
        words = memory();
        arena = Arena::create(&words[..], PLACES, &[]).unwrap();
        for (place, record) in &records {
            arena.put(*place, record).unwrap();
        }
        history = History {
            is_there: goes_on,
            states: vec![records],
            ..History::new()
        };
    }
    (found, gaps)
}

#[test]
fn a_copy_is_as_of_the_last_commit_or_later() {
    let (mut found, mut gaps) = (0, 0);
    for seed in 0..2000 {
        let (more, of_gaps) = run(seed);
        (found, gaps) = (found + more, gaps + of_gaps);
    }
    assert!(found > 2000 && gaps > 1000, "{found} {gaps}");
}

/// A snapshot of three places, and a log behind it that changes them.
fn copied(limits: Limits) -> Disk {
    let mut disk = Disk::new(5);
    let words = memory();
    let mut arena = Arena::create(&words[..], PLACES, &[]).unwrap();
    for place in 0..3 {
        arena.put(place, &[place as u8; 100]).unwrap();
    }
    let view = View::open(&words[..]).unwrap();
    let mut copier = Copier::begin(&mut disk, HEADER, false, limits).unwrap();
    let mut changes = Changes::default();
    assert!(copier.look(&view).unwrap());
    copier.commit(&changes, Stamp::default()).unwrap();
    copier.seal().unwrap();
    assert!(!copier.is_looking());
    for number in 1..40_u8 {
        changes.clear();
        changes.put(1, &[number; 100]);
        changes.remove(2);
        let stamp = Stamp {
            own_ns: number.into(),
            wall_ns: 0,
        };
        copier.commit(&changes, stamp).unwrap();
    }
    disk
}

fn whole_limits() -> Limits {
    Limits {
        log_octets: 3000,
        snapshot_octets: u64::MAX,
    }
}

#[test]
fn all_that_was_committed_is_found() {
    for limits in [LIMITS, whole_limits(), Limits::default()] {
        let (records, stamp) = find(&mut copied(limits)).unwrap().unwrap();
        let expected: Records = [(0, vec![0; 100]), (1, vec![39; 100])].into();
        assert_eq!((records, stamp.own_ns), (expected, 39));
    }
}

/// A log behind which another one comes, or a snapshot, that has not all: what is left of the copy is older than it says.
#[test]
fn a_copy_that_lacks_what_was_committed_is_none() {
    let names = (&mut copied(whole_limits())).names().unwrap();
    assert!(names.len() > 3, "{names:?}");
    let last = *names
        .iter()
        .filter(|name| matches!(name, Name::Log(_)))
        .max()
        .unwrap();
    for name in names.iter().filter(|name| **name != last) {
        let octets = copied(whole_limits()).octets(*name).len();
        for at in 0..octets {
            let mut disk = copied(whole_limits());
            disk.octets(*name)[at] ^= 1;
            let found = find(&mut disk);
            assert!(found.is_err(), "{name}, octet {at}: {found:?}");
        }
        for end in 0..octets {
            let mut disk = copied(whole_limits());
            disk.octets(*name).truncate(end);
            assert!(find(&mut disk).is_err(), "{name} ends at {end}");
        }
    }
    let logs = names.iter().filter(|name| matches!(name, Name::Log(_)));
    for name in logs.filter(|name| **name != last) {
        let mut disk = copied(whole_limits());
        (&mut disk).remove(*name).unwrap();
        assert!(find(&mut disk).is_err(), "{name} is gone");
    }
}

#[test]
fn the_last_log_ends_where_it_is_damaged() {
    let mut before = 0;
    let names = (&mut copied(Limits::default())).names().unwrap();
    let log = *names
        .iter()
        .find(|name| matches!(name, Name::Log(_)))
        .unwrap();
    let octets = copied(Limits::default()).octets(log).len();
    for end in 60..octets {
        let mut disk = copied(Limits::default());
        disk.octets(log)[end] ^= 4;
        let (records, stamp) = find(&mut disk).unwrap().unwrap();
        // A change may be there whose commit is not.
        let of_record = u64::from(records[&1][0]);
        assert!((stamp.own_ns..=stamp.own_ns + 1).contains(&of_record) && of_record >= before);
        before = of_record;
    }
    assert_eq!(before, 39);
}

#[test]
fn a_copy_of_another_layout_or_that_was_removed_is_none() {
    let mut disk = copied(Limits::default());
    let snapshot = Name::Snapshot(0);
    // Begin: checksum, kind, place, length, version, with a checksum of its own.
    let octets = disk.octets(snapshot);
    octets[13] = 2;
    let length = 4 + HEADER.len();
    let mut checksum = 0;
    for word in [1_u64, 0, 0] {
        checksum = crc32c::crc32c_append(checksum, &word.to_le_bytes());
    }
    checksum = crc32c::crc32c_append(checksum, &octets[4..13 + length]);
    octets[..4].copy_from_slice(&checksum.to_le_bytes());
    let error = find(&mut disk).unwrap_err().to_string();
    assert_eq!(error, format!("{snapshot} is of layout 2"));
    remove_all(&mut &mut disk).unwrap();
    assert!(find(&mut disk).unwrap().is_none());
    assert!((&mut disk).names().unwrap().is_empty());
}

#[test]
fn names_are_read_as_they_are_written() {
    for name in [Name::Log(0), Name::Unsealed(u64::MAX), Name::Snapshot(0x1f)] {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    for text in [
        "",
        "log",
        "log-",
        "log-1",
        "log-000000000000000G",
        "log-000000000000000F",
        "lock-0000000000000000",
        "log-0000000000000000.new",
        "log-+000000000000000",
    ] {
        assert!(text.parse::<Name>().is_err(), "{text}");
    }
}

/// A record that goes on being changed is seen as it was, or as it is.
#[test]
fn a_view_sees_whole_records_while_they_change() {
    let words = memory();
    let mut arena = Arena::create(&words[..], PLACES, &[]).unwrap();
    arena.put(3, &[0; 700]).unwrap();
    let view = View::open(&words[..]).unwrap();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let (mut record, mut last, mut seen) = (Vec::new(), 0, 0);
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(view.read(3, &mut record), arena::Seen::Record);
                let number = u32::from_le_bytes(record[..4].try_into().unwrap());
                assert!(record.chunks(4).all(|chunk| chunk == number.to_le_bytes()));
                assert!(number >= last);
                seen += u32::from(number > last);
                last = number;
            }
            seen
        });
        for number in 1..200_000_u32 {
            // Of changing length, so that blocks change hands.
            let words = 100 + number as usize % 80;
            arena.put(3, &number.to_le_bytes().repeat(words)).unwrap();
            arena.put(4, &number.to_le_bytes().repeat(words)).unwrap();
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looker.join().unwrap() > 1000);
    });
    let mut record = Vec::new();
    assert_eq!(view.read(5, &mut record), arena::Seen::Nothing);
    assert_eq!(view.read(PLACES, &mut record), arena::Seen::Nothing);
}
