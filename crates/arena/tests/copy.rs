//! Copies on a disk that keeps any part of what was not synced.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "script/disk.rs"]
mod disk;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// Records over time, and which of them a disk has to know.
struct History {
    /// All states, the first one empty.
    states: Vec<Records>,
    /// State as of the last commit.
    committed: usize,
    /// The process has sealed its copy. Else that of one before is the copy.
    is_sealed: bool,
    /// Copies of the process before that may be found.
    before: Vec<Option<Records>>,
}

impl History {
    /// Of records that a copy has, or that none has.
    fn new(first: Records, is_copied: bool) -> Self {
        Self {
            before: vec![is_copied.then(|| first.clone())],
            states: vec![first],
            committed: 0,
            is_sealed: false,
        }
    }

    fn now(&self) -> &Records {
        self.states.last().unwrap()
    }

    /// Copies that may be found.
    fn allowed(&self) -> Vec<Option<Records>> {
        match self.is_sealed {
            true => self.since_commit(),
            false => self.before.clone(),
        }
    }

    fn since_commit(&self) -> Vec<Option<Records>> {
        self.states[self.committed..]
            .iter()
            .cloned()
            .map(Some)
            .collect()
    }

    /// Another process comes, whose copy does not go on with this one's, or does.
    fn dies(&mut self, goes_on: bool) {
        self.before = self.allowed();
        if !goes_on {
            self.before.push(None);
        }
        self.states = vec![self.now().clone()];
        (self.committed, self.is_sealed) = (0, false);
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
    let mut copier = Copier::begin(disk, HEADER, (goes_on, 0), LIMITS)?;
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
            continue;
        }
        copier.commit(&changes, stamp(history))?;
        changes.clear();
        history.committed = history.states.len() - 1;
        if is_read {
            // It may be sealed already when the process, or the host, dies in the middle.
            history.before.extend(history.since_commit());
            copier.seal()?;
            (history.is_sealed, is_read) = (true, false);
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

/// The copy that a disk has.
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

/// Processes and hosts die, one behind the other. Returns how many hosts' successors have found a copy, and how many of these that of a process
/// before the one that died with its host.
fn run(seed: u64) -> (u32, u32) {
    let mut random = Random(seed);
    let mut disk = Disk::new(!seed);
    let (mut found, mut former) = (0, 0);
    let mut history = History::new(Records::new(), false);
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
            goes_on = random.below(4) > 0;
            history.dies(goes_on);
            continue;
        }
        disk.lose();
        let read = find(&mut disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let records = read.map(|(records, _)| records);
        assert!(history.allowed().contains(&records), "seed {seed}");
        goes_on = records.is_some();
        found += u32::from(goes_on);
        former += u32::from(goes_on && !history.is_sealed);
        let records = records.unwrap_or_default();
        drop(arena);
        words = memory();
        arena = Arena::create(&words[..], PLACES, &[]).unwrap();
        for (place, record) in &records {
            arena.put(*place, record).unwrap();
        }
        history = History::new(records, goes_on);
    }
    (found, former)
}

#[test]
fn a_copy_is_as_of_the_last_commit_or_later() {
    let (mut found, mut former) = (0, 0);
    for seed in 0..1000 {
        let (more, of_former) = run(seed);
        (found, former) = (found + more, former + of_former);
    }
    assert!(found > 1000 && former > 100, "{found} {former}");
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
    let mut copier = Copier::begin(&mut disk, HEADER, (false, 0), limits).unwrap();
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

/// A host dies while a copy is removed: it is there, or it is none; never what it was before.
#[test]
fn a_copy_that_is_removed_is_never_an_older_one() {
    let whole = find(&mut copied(whole_limits())).unwrap();
    let (mut gone, mut there) = (0, 0);
    for seed in 0..400 {
        for left in 0..12 {
            let mut disk = copied(whole_limits());
            disk.random = Random(seed * 12 + left as u64);
            disk.left = left;
            let _ = Copier::begin(&mut disk, HEADER, (false, 0), LIMITS);
            disk.left = usize::MAX;
            disk.lose();
            match find(&mut disk) {
                Ok(None) => gone += 1,
                Ok(found) => {
                    assert_eq!(found, whole, "seed {seed}, {left}");
                    there += 1;
                }
                // Some of it has gone, and that is seen.
                Err(_) => {}
            }
        }
    }
    assert!(gone > 100 && there > 100, "{gone} {there}");
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

/// Starts that end before they have a copy of their own do not fill the disk, and files have no number that others had.
#[test]
fn starts_that_end_early_leave_the_copy_alone() {
    let mut disk = copied(Limits::default());
    let whole = find(&mut disk).unwrap();
    for number in 0..5 {
        drop(Copier::begin(&mut disk, HEADER, (true, 0), LIMITS).unwrap());
        let names = (&mut disk).names().unwrap();
        assert_eq!(names.len(), 4, "{number}: {names:?}");
        assert_eq!(find(&mut disk).unwrap(), whole);
    }
    drop(Copier::begin(&mut disk, HEADER, (false, 77), LIMITS).unwrap());
    let expected = [Name::Log(77 << 32), Name::Unsealed(77 << 32)];
    assert_eq!((&mut disk).names().unwrap(), expected);
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
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let (mut record, mut last) = (Vec::new(), 0);
            // As many that have changed as it takes.
            for _ in 0..2000 {
                let mut number = last;
                while number == last {
                    assert_eq!(view.read(3, &mut record), arena::Seen::Record);
                    number = u32::from_le_bytes(record[..4].try_into().unwrap());
                    assert!(record.chunks(4).all(|chunk| chunk == number.to_le_bytes()));
                }
                assert!(number > last);
                last = number;
            }
            ends.store(true, Ordering::Relaxed);
        });
        for number in 1..u32::MAX {
            if ends.load(Ordering::Relaxed) || looker.is_finished() {
                break;
            }
            // Of changing length, so that blocks change hands.
            let words = 100 + number as usize % 80;
            arena.put(3, &number.to_le_bytes().repeat(words)).unwrap();
            arena.put(4, &number.to_le_bytes().repeat(words)).unwrap();
        }
        looker.join().unwrap();
    });
    let mut record = Vec::new();
    assert_eq!(view.read(5, &mut record), arena::Seen::Nothing);
    assert_eq!(view.read(PLACES, &mut record), arena::Seen::Nothing);
}
