//! Rings of programs of a process before this one: what they have handed over and nobody has taken.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{Line, entry, raw};
use crate::memory::View;
use crate::ring::{Ring, RingReader};
use crate::task::{
    EVENT_HEADER_LEN, EVENT_HELD, EVENT_LATER, EVENT_PACKET, Event, HELD_BARE, HELD_LEN, Task, what,
};

/// Records read at a time.
const BATCH: usize = 1024;

/// Numbers of this process for those of the one before; `None`: there is no such thing any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Of ports.
    pub ports: Vec<Option<u16>>,
    /// Of network instances.
    pub instances: Vec<Option<u16>>,
    /// Of network instances: the port where packets to their UEs come in.
    pub homes: Vec<Option<u16>>,
}

impl Numbers {
    fn port(&self, before: u32) -> Option<u16> {
        self.ports.get(before as usize).copied().flatten()
    }

    fn instance(&self, before: u16) -> Option<u16> {
        self.instances.get(usize::from(before)).copied().flatten()
    }

    fn home(&self, before: u16) -> Option<u16> {
        self.homes.get(usize::from(before)).copied().flatten()
    }
}

/// Number of records of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftRecords {
    /// Given to who reads.
    pub taken: usize,
    /// Lost: interface or network instance are gone, there is no room, or they were to be cut for a tunnel of the
    /// tables of before.
    pub lost: usize,
}

/// Rings of a generation; `None`: it has not pinned that one.
#[derive(Debug)]
pub struct LeftPackets {
    /// Frames above their rate that had not left, in the ring and with the process.
    pub shaped: u64,
    /// Packets that the pipeline could not finish, and GTP-U messages.
    pub events: Option<LeftRing>,
    /// Duplicates.
    pub copies: Option<LeftRing>,
    /// Packets that wait.
    pub held: Option<LeftRing>,
    /// Frames above their rate.
    pub later: Option<LeftRing>,
}

/// A ring that no program writes to any more.
#[derive(Debug)]
pub struct LeftRing {
    ring: Ring,
    numbers: Numbers,
    entries: View<Line>,
}

impl LeftRing {
    pub(crate) fn new(ring: Ring, numbers: Numbers, entries: View<Line>) -> Self {
        Self {
            ring,
            numbers,
            entries,
        }
    }

    /// Takes all records, as programs of this process would have made them; but that a packet that waits names an entry of the tables
    /// of before, and a frame above its rate none.
    pub fn read_all(&self, mut take: impl FnMut(&[u8]) + Send) -> io::Result<LeftRecords> {
        self.ring.mend();
        let [taken, lost] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let mut record = Vec::new();
        let reader = RingReader::open(&self.ring, |octets| {
            record.clear();
            record.extend_from_slice(octets);
            let is_ours = self.renumber(&mut record).is_some();
            let count = if is_ours { &taken } else { &lost };
            count.fetch_add(1, Ordering::Relaxed);
            if is_ours {
                take(&record);
            }
        })?;
        while reader.read(BATCH)? > 0 {}
        drop(reader);
        let [taken, lost] = [taken, lost].map(AtomicUsize::into_inner);
        Ok(LeftRecords { taken, lost })
    }

    /// `None`: nothing can become of it.
    fn renumber(&self, record: &mut [u8]) -> Option<()> {
        let event = Event::parse(record)?;
        let mut port = self.numbers.port(event.port)?;
        match event.kind {
            EVENT_PACKET => {
                let (task, _) = Task::parse(event.data)?;
                if task.what == what::CUT && task.tunnel_len > 0 {
                    return None;
                }
                // Others say nothing of it.
                if matches!(task.what, what::EXPIRED | what::TOO_LONG | what::CUT) {
                    let ni = self.numbers.instance(task.ni)?;
                    let octets = record.get_mut(EVENT_HEADER_LEN + NI..)?;
                    *octets.first_chunk_mut()? = ni.to_ne_bytes();
                }
            }
            EVENT_HELD => {
                let [a, b, c, d, _, _, flags @ ..] = *event.data.first_chunk::<HELD_LEN>()?;
                if u16::from_ne_bytes(flags) & HELD_BARE != 0 {
                    let entry = self
                        .entries
                        .get(u32::from_ne_bytes([a, b, c, d]) as usize)?;
                    let head = entry.load(entry::HEAD);
                    if entry::action(head) == entry::ACT_NONE {
                        return None;
                    }
                    port = self.numbers.home(entry::ni(head))?;
                }
            }
            EVENT_LATER => {
                let to = record.get_mut(EVENT_HEADER_LEN + TO..)?;
                let to = to.first_chunk_mut::<4>()?;
                let now = self.numbers.port(u32::from_ne_bytes(*to))?;
                *to = u32::from(now).to_ne_bytes();
                let entry = record.get_mut(EVENT_HEADER_LEN + ENTRY..)?;
                *entry.first_chunk_mut()? = raw::TP_LATER_UNCOUNTED.to_ne_bytes();
            }
            _ => {}
        }
        let octets = record.get_mut(PORT..)?;
        *octets.first_chunk_mut()? = port.to_ne_bytes();
        Some(())
    }
}

/// Where a record's header has the port, and what is in front of a frame above its rate entry and way out.
const PORT: usize = std::mem::offset_of!(raw::tp_event, port);
const ENTRY: usize = std::mem::offset_of!(raw::tp_later, entry);
const TO: usize = std::mem::offset_of!(raw::tp_later, to);
/// Where a task has its network instance.
const NI: usize = std::mem::offset_of!(raw::tp_task, ni);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::queue::Queue;

    const ENTRIES: usize = 4;

    /// Of 3 ports: the first one is gone, the others have changed places. Of two network instances the first has its home at 7.
    fn numbers() -> Numbers {
        Numbers {
            ports: vec![None, Some(2), Some(1)],
            instances: vec![Some(3), None],
            homes: vec![Some(7), None],
        }
    }

    fn record(kind: u32, port: u16, data: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        for word in [kind, 5, data.len() as u32] {
            record.extend(word.to_ne_bytes());
        }
        record.extend(port.to_ne_bytes());
        record.extend(9u16.to_ne_bytes());
        record.extend(data);
        record
    }

    fn held(entry: u32, flags: u16) -> Vec<u8> {
        let mut data = entry.to_ne_bytes().to_vec();
        data.extend([0, 0]);
        data.extend(flags.to_ne_bytes());
        data.extend(b"frame");
        data
    }

    fn later(entry: u32, to: u32) -> Vec<u8> {
        let mut data = 77u64.to_ne_bytes().to_vec();
        data.extend(entry.to_ne_bytes());
        data.extend(to.to_ne_bytes());
        data.extend(b"frame");
        data
    }

    fn read(records: &[Vec<u8>]) -> (Vec<Vec<u8>>, LeftRecords) {
        let queue = Arc::new(Queue::new(1 << 20).unwrap());
        for record in records {
            assert!(queue.write([record, &[]]));
        }
        let entries = View::<Line>::anonymous(ENTRIES).unwrap();
        let second = (0..64).find(|bit| entry::ni(1 << bit) == 1).unwrap();
        // An entry that forwards, of each network instance, and one that is gone.
        let forwards = (0..64)
            .find(|bit| ![entry::ACT_NONE, entry::ACT_BUFFER].contains(&entry::action(1 << bit)));
        let forwards = 1 << forwards.unwrap();
        entries[0].publish(entry::HEAD, forwards);
        entries[2].publish(entry::HEAD, forwards | 1 << second);
        let ring = LeftRing::new(Ring::from(queue), numbers(), entries);
        let mut all = Vec::new();
        let counts = ring.read_all(|record| all.push(record.to_vec())).unwrap();
        (all, counts)
    }

    #[test]
    fn records_are_as_programs_of_now_make_them() {
        let bare = HELD_BARE;
        let fragment = [[what::INNER_FRAGMENT, 0, 0, 0, 1], [0; 5]].concat();
        let fragment = [&fragment[..], &[0; 14]].concat();
        let cut = |tunnel_len, ni| {
            let mut task = [0u8; 24];
            [task[0], task[1], task[4]] = [what::CUT, tunnel_len, ni];
            task
        };
        let cases = [
            (record(1, 1, b"packet"), Some(record(1, 2, b"packet"))),
            (record(1, 0, b"packet"), None),
            (record(1, 3, b"packet"), None),
            (record(3, 2, b"echo"), Some(record(3, 1, b"echo"))),
            (
                record(EVENT_PACKET, 1, &cut(0, 0)),
                Some(record(EVENT_PACKET, 2, &cut(0, 3))),
            ),
            (record(EVENT_PACKET, 1, &cut(0, 1)), None),
            (record(EVENT_PACKET, 1, &cut(8, 0)), None),
            (
                record(EVENT_HELD, 1, &held(1, 0)),
                Some(record(EVENT_HELD, 2, &held(1, 0))),
            ),
            (
                record(EVENT_HELD, 2, &held(0, bare)),
                Some(record(EVENT_HELD, 7, &held(0, bare))),
            ),
            (
                record(EVENT_PACKET, 1, &fragment),
                Some(record(EVENT_PACKET, 2, &fragment)),
            ),
            (record(EVENT_HELD, 2, &held(2, bare)), None),
            (record(EVENT_HELD, 2, &held(3, bare)), None),
            (record(EVENT_HELD, 2, &held(4, bare)), None),
            (
                record(EVENT_LATER, 1, &later(3, 2)),
                Some(record(EVENT_LATER, 2, &later(u32::MAX, 1))),
            ),
            (record(EVENT_LATER, 1, &later(3, 0)), None),
            (record(EVENT_LATER, 1, b"short"), None),
        ];
        for (before, now) in cases {
            let (all, counts) = read(std::slice::from_ref(&before));
            assert_eq!(all.first(), now.as_ref(), "{before:?}");
            assert_eq!((counts.taken, counts.lost), (all.len(), 1 - all.len()));
        }
    }

    proptest! {
        #[test]
        fn any_record_is_one_or_none(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..80), 1..40),
            kinds in prop::collection::vec(0u8..9, 40),
        ) {
            let kinded = records.into_iter().zip(kinds).map(|(mut record, kind)| {
                let front = [kind, 0, 0, 0, 0, 0, 0, 0, kind * 4, 0, 0, 0, kind % 4, 0];
                let front = front.get(..record.len().min(14)).unwrap();
                record[..front.len()].copy_from_slice(front);
                record
            });
            let records: Vec<_> = kinded.collect();
            let (all, counts) = read(&records);
            prop_assert_eq!((counts.taken, counts.taken + counts.lost), (all.len(), records.len()));
        }
    }
}
