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

use compiled::PdrId;
use smallvec::SmallVec;

use crate::abi::{ALARM_STEP, AlarmRecord, Cpu, QOS_ALARM_NONE, entry};
use crate::alarm_queue::{AlarmQueue, WAITING_MAX};
use crate::handle::{Handle, HeldEntry};
use crate::ring::{Ring, RingReader};
use crate::store::Store;

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
}

impl Store {
    /// [`compiled::Tables::arm`]
    pub(crate) fn arm(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>, atomic: bool) {
        let indices: SmallVec<[u32; 4]> = handle.entries_of(pdr).map(|held| held.index).collect();
        match (alarm, indices.as_slice()) {
            (None, indices) => {
                for &index in indices {
                    self.mem.entries[index as usize].publish(entry::ALARM, entry::ALARM_NONE);
                }
            }
            (Some(alarm), &[index]) => {
                let before = self.counted_before(index);
                self.arm_entry(index, alarm.saturating_sub(before), atomic);
            }
            // Of several, each is told of its share; who hears of one shares out again what is left then.
            (Some(alarm), indices) => {
                let counted = indices.iter().map(|&index| self.counters(index).bytes);
                let left = alarm.saturating_sub(counted.sum());
                let share = left.div_ceil(indices.len().max(1) as u64);
                for &index in indices {
                    let side = self.mem.sides[index as usize].bytes.load(Ordering::SeqCst);
                    let own = self.mem.entries[index as usize].load(entry::BYTES);
                    self.arm_entry(
                        index,
                        own.saturating_add(side).saturating_add(share),
                        atomic,
                    );
                }
            }
        }
    }

    /// [`compiled::Tables::arm_qos`]
    pub(crate) fn arm_qos(&mut self, handle: &Handle, pdr: PdrId, alarm: Option<u64>) {
        let indices: SmallVec<[u32; 4]> = handle.entries_of(pdr).map(|held| held.index).collect();
        match (alarm, indices.as_slice()) {
            (None, indices) => {
                for &index in indices {
                    let side = &self.mem.sides[index as usize];
                    side.qos_alarm.store(QOS_ALARM_NONE, Ordering::SeqCst);
                }
            }
            (Some(alarm), &[index]) => {
                let before = self.qos_dropped_before(index);
                self.arm_qos_entry(index, alarm.saturating_sub(before));
            }
            // As with what they have forwarded.
            (Some(alarm), indices) => {
                let counted = indices.iter().map(|&index| self.counters(index).qos_bytes);
                let left = alarm.saturating_sub(counted.sum());
                let share = left.div_ceil(indices.len().max(1) as u64);
                for &index in indices {
                    let own = &self.mem.sides[index as usize].qos_bytes;
                    let own = own.load(Ordering::SeqCst);
                    self.arm_qos_entry(index, own.saturating_add(share));
                }
            }
        }
    }

    fn arm_qos_entry(&self, index: u32, limit: u64) {
        let side = &self.mem.sides[index as usize];
        side.qos_alarm.store(limit.max(1), Ordering::SeqCst);
        // Drops are counted first, and always atomically: one that has not met this alarm is in the count.
        fence(Ordering::SeqCst);
        self.tell_qos_if_due(index);
    }

    fn tell_qos_if_due(&self, index: u32) {
        let side = &self.mem.sides[index as usize];
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
            self.alarms.told.tell(index);
        }
    }

    /// limit: of what the entry's own words and those beside it count.
    fn arm_entry(&mut self, index: u32, limit: u64, atomic: bool) {
        let line = &self.mem.entries[index as usize];
        let side = &self.mem.sides[index as usize].bytes;
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
        if !self.tell_if_due(index) && !atomic && self.alarms.again.len() < WAITING_MAX {
            self.alarms.again.push(index);
        }
    }

    /// Whether the entry's own count has reached its alarm; then it is told, and again a step further on.
    fn tell_if_due(&self, index: u32) -> bool {
        let line = &self.mem.entries[index as usize];
        let (own, alarm) = (line.load(entry::BYTES), line.load(entry::ALARM));
        if own < alarm {
            return false;
        }
        let next = own.saturating_add(ALARM_STEP);
        // When the exchange fails a packet has done it.
        if line.exchange(entry::ALARM, alarm, next) {
            self.alarms.told.tell(index);
        }
        true
    }

    /// A fresh entry takes over what is left until the alarm of the one that it replaces.
    pub(crate) fn hand_alarm_on(&self, from: u32, to: u32) {
        let line = &self.mem.entries[from as usize];
        let alarm = line.load(entry::ALARM);
        let left = match alarm {
            entry::ALARM_NONE => entry::ALARM_NONE,
            alarm => alarm.saturating_sub(line.load(entry::BYTES)),
        };
        self.mem.entries[to as usize].publish(entry::ALARM, left);
        let side = &self.mem.sides[from as usize];
        let alarm = side.qos_alarm.load(Ordering::SeqCst);
        if alarm != QOS_ALARM_NONE {
            let left = alarm.saturating_sub(side.qos_bytes.load(Ordering::SeqCst));
            let to = &self.mem.sides[to as usize].qos_alarm;
            to.store(left.max(1), Ordering::SeqCst);
        }
    }

    /// A predefined rule that its PDR has not had is told of at once, if others of the PDR are armed: it has no share
    /// of what is left as yet.
    pub(crate) fn first_alarm(&self, own: HeldEntry, held: &[HeldEntry]) -> u64 {
        let armed = |other: &HeldEntry| {
            let line = &self.mem.entries[other.index as usize];
            other.pdr == own.pdr && line.load(entry::ALARM) != entry::ALARM_NONE
        };
        if held.iter().any(armed) {
            1
        } else {
            entry::ALARM_NONE
        }
    }

    /// First alarm of drops by QoS enforcement, on the same condition.
    pub(crate) fn first_qos_alarm(&self, own: HeldEntry, held: &[HeldEntry]) {
        let armed = |other: &HeldEntry| {
            let side = &self.mem.sides[other.index as usize];
            other.pdr == own.pdr && side.qos_alarm.load(Ordering::SeqCst) != QOS_ALARM_NONE
        };
        if held.iter().any(armed) {
            let side = &self.mem.sides[own.index as usize];
            side.qos_alarm.store(1, Ordering::SeqCst);
        }
    }

    /// Bytes that an entry has counted after its heir had taken over.
    pub(crate) fn near_alarm(&self, heir: u32, late: u64) {
        let line = &self.mem.entries[heir as usize];
        loop {
            let alarm = line.load(entry::ALARM);
            if late == 0 || alarm == entry::ALARM_NONE {
                return;
            }
            if line.exchange(entry::ALARM, alarm, alarm.saturating_sub(late)) {
                break;
            }
        }
        self.tell_if_due(heir);
    }

    /// The same of what QoS enforcement dropped there.
    pub(crate) fn near_qos_alarm(&self, heir: u32, late: u64) {
        if late == 0 {
            return;
        }
        let nearer =
            |alarm: u64| (alarm != QOS_ALARM_NONE).then(|| alarm.saturating_sub(late).max(1));
        let alarm = &self.mem.sides[heir as usize].qos_alarm;
        let update = alarm.fetch_update(Ordering::SeqCst, Ordering::SeqCst, nearer);
        if update.is_ok() {
            self.tell_qos_if_due(heir);
        }
    }

    /// Sessions whose PDRs have reached their alarms: at most so many records are taken. Whether there are more.
    pub(crate) fn crossings(&mut self, at_most: usize, seids: &mut Vec<u64>) -> io::Result<bool> {
        self.alarms.entries.clear();
        let told = Arc::clone(&self.alarms.told);
        let mut more = self.alarms.take_from_ring(at_most)?;
        more |= told.take(at_most, &mut self.alarms.entries);
        let lost = |cpu: &Cpu| cpu.alarms_lost.load(Ordering::Relaxed);
        let cpus = self.mem.cpus.iter().chain(self.mem.slow.iter());
        self.alarms.begin_scan(cpus.map(lost).sum());
        self.scan();
        let entries = std::mem::take(&mut self.alarms.entries);
        let owned = entries
            .iter()
            .filter_map(|&entry| self.mem.owners.seid(entry));
        seids.extend(owned);
        seids.sort_unstable();
        seids.dedup();
        self.alarms.entries = entries;
        Ok(more || self.alarms.scan.is_some() || self.alarms.scan_again)
    }

    /// Entries whose alarm is at most a step ahead may be those that nobody was told of.
    fn scan(&mut self) {
        let Some(first) = self.alarms.scan.take() else {
            return;
        };
        let all = self.mem.entries.len() as u32;
        let end = first.saturating_add(SCAN_PER_TURN).min(all);
        for index in (first..end).filter(|&index| self.mem.owners.seid(index).is_some()) {
            let line = &self.mem.entries[index as usize];
            let (alarm, own) = (line.load(entry::ALARM), line.load(entry::BYTES));
            let side = &self.mem.sides[index as usize];
            let qos_alarm = side.qos_alarm.load(Ordering::SeqCst);
            let qos_own = side.qos_bytes.load(Ordering::SeqCst);
            if (alarm != entry::ALARM_NONE && alarm <= own.saturating_add(ALARM_STEP))
                || (qos_alarm != QOS_ALARM_NONE && qos_alarm <= qos_own.saturating_add(ALARM_STEP))
            {
                self.alarms.entries.push(index);
            }
        }
        self.alarms.scan = (end < all).then_some(end);
    }

    /// Look again at entries that were armed while a packet may have been counted unseen.
    pub(crate) fn look_again(&mut self) {
        let again = std::mem::take(&mut self.alarms.again);
        for &index in &again {
            self.tell_if_due(index);
        }
    }
}
