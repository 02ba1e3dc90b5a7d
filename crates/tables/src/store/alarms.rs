//! Hearing of PDRs that have forwarded so much (`datapath/pipeline/count.h`).
//!
//! An alarm stands in an entry's line and is one of the entry's own count: what is counted beside it, or was carried over
//! from entries before it, is taken off when it is set. Another one, in `sides[]`, is of what QoS enforcement dropped. Programs tell of crossings by a ring. Whoever hears of one asks for
//! the counts and arms the PDR anew, so that an alarm that comes too early costs a look and no more; here is seen to
//! it that none comes late, and that none is lost.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{ALARM_STEP, AlarmRecord, QOS_ALARM_NONE, entry};
use crate::alarm_queue::{AlarmQueue, WAITING_MAX};
use crate::handle::HeldEntry;
use crate::ring::{Ring, RingReader};
use crate::store::entries::Entries;

/// Entries that are looked through before other work has its turn again.
const SCAN_PER_TURN: u32 = 1 << 14;

/// Lost races against packets that are counted aside, after which an alarm is set a step early.
const TRIES: usize = 4;

/// The ring of alarms, mapped: memory that a UPF without quotas does not need.
#[derive(Debug)]
struct AlarmRing {
    reader: RingReader<'static>,
    taken: Arc<Mutex<Vec<u32>>>,
}

impl AlarmRing {
    fn open(ring: &Ring) -> io::Result<Self> {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&taken);
        let reader = RingReader::open(ring, move |record| {
            if let Some(entry) = entry_of(record) {
                let mut taken = into.lock().unwrap_or_else(PoisonError::into_inner);
                taken.push(entry);
            }
        })?;
        Ok(Self { reader, taken })
    }

    /// At most so many. Whether there may be more.
    fn take(&self, at_most: usize, into: &mut Vec<u32>) -> io::Result<bool> {
        let count = self.reader.read(at_most)?;
        into.append(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(count >= at_most)
    }
}

/// The entry of a `struct tp_alarm`.
fn entry_of(record: &[u8]) -> Option<u32> {
    let record = record.get(..size_of::<AlarmRecord>())?;
    Some(u32::from_ne_bytes(record.get(..4)?.try_into().ok()?))
}

/// Alarms that have come, and the ways by which more come.
#[derive(Debug)]
pub(crate) struct Alarms {
    ring: Option<Ring>,
    opened: Option<AlarmRing>,
    pub(crate) told: Arc<AlarmQueue>,
    /// Armed while no program adds atomically: looked at once more, as a packet may have been counted at that moment.
    pub(crate) again: Vec<u32>,
    /// Alarms that programs had no room for, when that was last looked at.
    lost: u64,
    /// The next entry to be looked at, while all are looked through.
    scan: Option<u32>,
    /// More was lost meanwhile: once more, when that is done.
    scan_again: bool,
    /// Scratch space.
    entries: Vec<u32>,
}

impl Alarms {
    pub(crate) fn new(ring: Option<Ring>, told: Arc<AlarmQueue>) -> Self {
        Self {
            ring,
            opened: None,
            told,
            again: Vec::new(),
            lost: 0,
            scan: None,
            scan_again: false,
            entries: Vec::new(),
        }
    }

    /// Readable when there is something to take.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ring = self.ring.as_ref().map(|ring| ring.as_fd());
        ring.into_iter().chain([self.told.fd()])
    }

    fn take_from_ring(&mut self, at_most: usize) -> io::Result<bool> {
        let Some(ring) = &self.ring else {
            return Ok(false);
        };
        if self.opened.is_none() {
            if !ring.is_readable()? {
                return Ok(false);
            }
            self.opened = Some(AlarmRing::open(ring)?);
        }
        match &self.opened {
            Some(opened) => opened.take(at_most, &mut self.entries),
            None => Ok(false),
        }
    }

    /// Whether all entries are to be looked through.
    fn begin_scan(&mut self, lost: u64) {
        let overflow = self.told.take_overflow();
        self.scan_again |= overflow || lost != self.lost;
        self.lost = lost;
        if self.scan_again && self.scan.is_none() {
            self.scan_again = false;
            self.scan = Some(0);
        }
    }

    pub(crate) fn arm_qos(&self, entries: &Entries, index: u32, limit: u64) {
        let side = entries.side(index);
        side.qos_alarm.store(limit.max(1), Ordering::SeqCst);
        // Drops are counted first, and always atomically: one that has not met this alarm is in the count.
        fence(Ordering::SeqCst);
        self.tell_qos_if_due(entries, index);
    }

    fn tell_qos_if_due(&self, entries: &Entries, index: u32) {
        let side = entries.side(index);
        let alarm = side.qos_alarm.load(Ordering::SeqCst);
        let own = side.qos_bytes.load(Ordering::SeqCst);
        if alarm == QOS_ALARM_NONE || own < alarm {
            return;
        }
        let next = own.saturating_add(ALARM_STEP);
        let exchange =
            side.qos_alarm
                .compare_exchange(alarm, next, Ordering::SeqCst, Ordering::Relaxed);
        // When the exchange fails a packet has done it.
        if exchange.is_ok() {
            self.told.tell(index);
        }
    }

    /// limit: of what the entry's own words and those beside it count.
    pub(crate) fn arm(&mut self, entries: &Entries, index: u32, limit: u64, atomic: bool) {
        let line = entries.line(index);
        let side = &entries.side(index).bytes;
        let mut aside = side.load(Ordering::SeqCst);
        for attempt in 0..=TRIES {
            let early = if attempt == TRIES { ALARM_STEP } else { 0 };
            let alarm = limit.saturating_sub(aside).saturating_sub(early);
            line.publish(entry::ALARM, alarm.min(entry::ALARM_NONE - 1));
            fence(Ordering::SeqCst);
            // Packets are counted first and then taken off the alarm: those of before are in `aside`, and those
            // of after find this alarm.
            let now = side.load(Ordering::SeqCst);
            if now == aside {
                break;
            }
            aside = now;
        }
        if !self.tell_if_due(entries, index) && !atomic && self.again.len() < WAITING_MAX {
            self.again.push(index);
        }
    }

    /// Whether the entry's own count has reached its alarm; then it is told, and again a step further on.
    fn tell_if_due(&self, entries: &Entries, index: u32) -> bool {
        let line = entries.line(index);
        let (own, alarm) = (line.load(entry::BYTES), line.load(entry::ALARM));
        if own < alarm {
            return false;
        }
        let next = own.saturating_add(ALARM_STEP);
        // When the exchange fails a packet has done it.
        if line.exchange(entry::ALARM, alarm, next) {
            self.told.tell(index);
        }
        true
    }

    /// Bytes that an entry has counted after its heir had taken over.
    pub(crate) fn near(&self, entries: &Entries, heir: u32, late: u64) {
        let line = entries.line(heir);
        loop {
            let alarm = line.load(entry::ALARM);
            if late == 0 || alarm == entry::ALARM_NONE {
                return;
            }
            if line.exchange(entry::ALARM, alarm, alarm.saturating_sub(late)) {
                break;
            }
        }
        self.tell_if_due(entries, heir);
    }

    /// The same of what QoS enforcement dropped there.
    pub(crate) fn near_qos(&self, entries: &Entries, heir: u32, late: u64) {
        if late == 0 {
            return;
        }
        let nearer =
            |alarm: u64| (alarm != QOS_ALARM_NONE).then(|| alarm.saturating_sub(late).max(1));
        let alarm = &entries.side(heir).qos_alarm;
        let update = alarm.fetch_update(Ordering::SeqCst, Ordering::SeqCst, nearer);
        if update.is_ok() {
            self.tell_qos_if_due(entries, heir);
        }
    }

    /// Sessions whose PDRs have reached their alarms: at most so many records are taken. Whether there are more. `lost`: alarms that
    /// programs had no room for, read once the ring has been.
    pub(crate) fn crossings(
        &mut self,
        entries: &Entries,
        lost: impl FnOnce() -> u64,
        at_most: usize,
        seids: &mut Vec<u64>,
    ) -> io::Result<bool> {
        self.entries.clear();
        let mut more = self.take_from_ring(at_most)?;
        more |= self.told.take(at_most, &mut self.entries);
        self.begin_scan(lost());
        self.scan(entries);
        let crossed = self.entries.iter();
        seids.extend(crossed.filter_map(|&entry| entries.owners.seid(entry)));
        seids.sort_unstable();
        seids.dedup();
        Ok(more || self.scan.is_some() || self.scan_again)
    }

    /// Entries whose alarm is at most a step ahead may be those that nobody was told of.
    fn scan(&mut self, entries: &Entries) {
        let Some(first) = self.scan.take() else {
            return;
        };
        let all = entries.len();
        let end = first.saturating_add(SCAN_PER_TURN).min(all);
        for index in (first..end).filter(|&index| entries.owners.seid(index).is_some()) {
            let line = entries.line(index);
            let (alarm, own) = (line.load(entry::ALARM), line.load(entry::BYTES));
            let side = entries.side(index);
            let qos_alarm = side.qos_alarm.load(Ordering::SeqCst);
            let qos_own = side.qos_bytes.load(Ordering::SeqCst);
            if (alarm != entry::ALARM_NONE && alarm <= own.saturating_add(ALARM_STEP))
                || (qos_alarm != QOS_ALARM_NONE && qos_alarm <= qos_own.saturating_add(ALARM_STEP))
            {
                self.entries.push(index);
            }
        }
        self.scan = (end < all).then_some(end);
    }

    /// Look again at entries that were armed while a packet may have been counted unseen.
    pub(crate) fn look_again(&mut self, entries: &Entries) {
        let again = std::mem::take(&mut self.again);
        for &index in &again {
            self.tell_if_due(entries, index);
        }
    }
}

/// Nobody asks any more what QoS enforcement drops of an entry.
pub(crate) fn disarm_qos(entries: &Entries, index: u32) {
    let alarm = &entries.side(index).qos_alarm;
    alarm.store(QOS_ALARM_NONE, Ordering::SeqCst);
}

/// A fresh entry takes over what is left until the alarm of the one that it replaces.
pub(crate) fn hand_on(entries: &Entries, from: u32, to: u32) {
    let line = entries.line(from);
    let alarm = line.load(entry::ALARM);
    let left = match alarm {
        entry::ALARM_NONE => entry::ALARM_NONE,
        alarm => alarm.saturating_sub(line.load(entry::BYTES)),
    };
    entries.line(to).publish(entry::ALARM, left);
    let side = entries.side(from);
    let alarm = side.qos_alarm.load(Ordering::SeqCst);
    if alarm != QOS_ALARM_NONE {
        let left = alarm.saturating_sub(side.qos_bytes.load(Ordering::SeqCst));
        let to = &entries.side(to).qos_alarm;
        to.store(left.max(1), Ordering::SeqCst);
    }
}

/// A predefined rule that its PDR has not had is told of at once, if others of the PDR are armed: it has no share
/// of what is left as yet.
pub(crate) fn first(entries: &Entries, own: HeldEntry, held: &[HeldEntry]) -> u64 {
    let armed = |other: &HeldEntry| {
        let line = entries.line(other.index);
        other.pdr == own.pdr && line.load(entry::ALARM) != entry::ALARM_NONE
    };
    if held.iter().any(armed) {
        1
    } else {
        entry::ALARM_NONE
    }
}

/// First alarm of drops by QoS enforcement, on the same condition.
pub(crate) fn first_qos(entries: &Entries, own: HeldEntry, held: &[HeldEntry]) {
    let armed = |other: &HeldEntry| {
        let side = entries.side(other.index);
        other.pdr == own.pdr && side.qos_alarm.load(Ordering::SeqCst) != QOS_ALARM_NONE
    };
    if held.iter().any(armed) {
        let side = entries.side(own.index);
        side.qos_alarm.store(1, Ordering::SeqCst);
    }
}
