//! Buffered packets, session by session and PDR by PDR, in the order in which they came: how many, how long, and which
//! are lost.
//!
//! When there is no room for another packet, the session that takes the most memory loses its oldest ones, if it takes
//! more than the newcomer's would: a session with many packets takes nobody else's room. That a UE has packets is told
//! whether there was room or not.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use arena::pool::Stored;
use compiled::{BufferLimits, PdrId};
use smallvec::SmallVec;

use super::packet::{Came, Packet};
use super::store::{FormerPackets, Store};
use crate::buffer_commands::BufferedSession;

/// Octets of memory that a session with buffered packets takes beside its packets: generously.
const SESSION_LEN: usize = 256;
/// Time for which it is no news that packets of a PDR come and find no room.
const TOLD_MS: u64 = 10_000;
/// PDRs of which that is remembered; packets of others are lost untold meanwhile.
const TOLD_MAX: usize = 65_536;

/// Bounds of what is buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferBounds {
    /// Octets of memory.
    pub bytes: usize,
    /// All packets.
    pub packets: usize,
    /// Packets of one PDR's entry, and of one session.
    pub packets_per_session: u32,
    /// Time that a packet is buffered, unless an SMF asks for more.
    pub age: Duration,
}

/// A packet that is to be put in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) seid: u64,
    pub(super) pdr: PdrId,
    pub(super) entry: u32,
    /// The entry that decides about it: its own, or the one that has taken that one's place.
    pub(super) by: u32,
    pub(super) port: u16,
    pub(super) worker: u16,
    pub(super) is_bare: bool,
    pub(super) tos: u8,
    /// The UE is there again: the packet waits for those before it and nothing else.
    pub(super) follows: bool,
    pub(super) what: What<'a>,
}

/// A packet that comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum What<'a> {
    /// Or one that has waited before, as another frame, and when it came.
    Frame(&'a [u8], Option<Came>),
    /// It has waited before, for another PDR or another process, and is in memory already.
    Waited(Packet),
}

impl What<'_> {
    /// Octets of memory.
    fn takes(&self) -> usize {
        match self {
            Self::Frame(frame, _) => Store::taken(frame.len()),
            Self::Waited(packet) => packet.takes(),
        }
    }
}

/// Queue of a PDR: packets about which one entry decides, in the order in which they came.
#[derive(Debug)]
struct Queue {
    pdr: PdrId,
    by: u32,
    packets: VecDeque<Packet>,
    limit: u32,
    /// End of the time that they wait.
    until_ms: Option<u64>,
    /// Somebody knows that they wait.
    is_told: bool,
}

impl Queue {
    /// Whether this is news. It is none until one of them has left.
    fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.is_told, true)
    }

    fn insert(&mut self, packet: Packet) {
        let later = self
            .packets
            .iter()
            .rev()
            .take_while(|other| other.came > packet.came);
        let at = self.packets.len() - later.count();
        self.packets.insert(at, packet);
    }
}

/// Queues of a session.
#[derive(Debug, Default)]
struct SessionQueues {
    queues: SmallVec<[Queue; 1]>,
    /// Octets of memory that its packets take.
    bytes: usize,
    /// In the list of those that are looked at.
    is_ready: bool,
}

impl SessionQueues {
    fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.packets.len()).sum()
    }

    /// The queue whose first packet has waited longest.
    fn oldest(&mut self) -> Option<&mut Queue> {
        let waiting = self
            .queues
            .iter_mut()
            .filter(|queue| !queue.packets.is_empty());
        waiting.min_by_key(|queue| queue.packets.front().map(|packet| packet.came))
    }

    /// Whether it is news that packets of the PDR of this queue wait, which may have others.
    fn tell(&mut self, queue: usize) -> bool {
        let pdr = self.queues[queue].pdr;
        let is_told = self
            .queues
            .iter()
            .any(|other| other.pdr == pdr && other.is_told);
        self.queues[queue].tell() && !is_told
    }

    /// Other entries may have taken the place of those that decided.
    fn follow(&mut self, present: impl Fn(u32) -> u32) {
        for queue in &mut self.queues {
            queue.by = present(queue.by);
        }
        for at in (1..self.queues.len()).rev() {
            let (before, rest) = self.queues.split_at_mut(at);
            let queue = &mut rest[0];
            if let Some(same) = before.iter_mut().find(|other| other.by == queue.by) {
                queue
                    .packets
                    .drain(..)
                    .for_each(|packet| same.insert(packet));
                same.limit = same.limit.min(queue.limit);
                same.until_ms = same.until_ms.max(queue.until_ms);
                same.is_told |= queue.is_told;
                self.queues.remove(at);
            }
        }
    }
}

/// Reason why a packet came in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Full,
    Expired,
    Discarded,
}

#[derive(Debug)]
pub(super) struct Queues {
    bounds: BufferBounds,
    store: Store,
    sessions: HashMap<u64, SessionQueues>,
    /// Sessions for which something waits, by the memory that it takes.
    by_bytes: BTreeSet<(usize, u64)>,
    ready: VecDeque<u64>,
    packets: usize,
    /// Number of the next packet that comes.
    number: u64,
    /// SEID and PDR of packets that found no room, of which somebody knows, and since when.
    told: BTreeMap<(u64, u16), u64>,
}

impl Queues {
    pub(super) fn new(bounds: BufferBounds, store: Store) -> Self {
        Self {
            bounds,
            store,
            sessions: HashMap::new(),
            by_bytes: BTreeSet::new(),
            ready: VecDeque::new(),
            packets: 0,
            number: 0,
            told: BTreeMap::new(),
        }
    }

    /// Sessions, packets, and octets of memory for them.
    pub(super) fn fill(&self) -> [usize; 3] {
        let bytes = self.store.used() + self.sessions.len() * SESSION_LEN;
        [self.sessions.len(), self.packets, bytes]
    }

    /// Nothing waits, and nothing is to be forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0 && self.told.is_empty()
    }

    /// Whether it is news that packets of its PDR wait. What makes room for it is lost.
    pub(super) fn put(
        &mut self,
        now_ms: u64,
        arrival: &Arrival<'_>,
        mut lose: impl FnMut(Packet, Why),
    ) -> Result<bool, Why> {
        let session = self.sessions.get(&arrival.seid);
        let own = session.map_or(0, |session| session.bytes);
        if let Some(session) = session.filter(|_| !arrival.follows) {
            let mut queues = session.queues.iter().filter(|queue| queue.by == arrival.by);
            let full = queues.any(|queue| queue.packets.len() >= queue.limit as usize);
            if full || session.len() >= self.bounds.packets_per_session as usize {
                return Err(Why::Full);
            }
        }
        let takes = arrival.what.takes();
        let packet = match arrival.what {
            What::Waited(packet) => Packet {
                entry: arrival.entry,
                ..packet
            },
            What::Frame(frame, came) => {
                while !self.has_room(takes) {
                    let packet = self.take_from_greediest(own + takes).ok_or(Why::Full)?;
                    lose(packet, Why::Full);
                }
                let came = came.unwrap_or(Came {
                    number: self.number,
                    at_ms: now_ms,
                });
                let packet = |stored| Packet {
                    entry: arrival.entry,
                    port: arrival.port,
                    worker: arrival.worker,
                    is_bare: arrival.is_bare,
                    tos: arrival.tos,
                    came,
                    stored,
                };
                let stored = self.store.put(&packet(Stored::default()), frame);
                self.number += 1;
                packet(stored.ok_or(Why::Full)?)
            }
        };
        // The UE may have been there meanwhile: a packet that waits is told of whatever was said of those that were lost.
        self.told.remove(&(arrival.seid, arrival.pdr.0));
        let session = self.sessions.entry(arrival.seid).or_default();
        let before = session.bytes;
        session.bytes += takes;
        weigh(&mut self.by_bytes, arrival.seid, before, session.bytes);
        let known = session
            .queues
            .iter()
            .position(|queue| queue.by == arrival.by);
        let queue = known.unwrap_or_else(|| {
            session.queues.push(Queue {
                pdr: arrival.pdr,
                by: arrival.by,
                packets: VecDeque::new(),
                limit: u32::MAX,
                until_ms: None,
                is_told: false,
            });
            session.queues.len() - 1
        });
        session.queues[queue].insert(packet);
        self.packets += 1;
        Ok(!arrival.follows && session.tell(queue))
    }

    fn has_room(&self, takes: usize) -> bool {
        let [.., bytes] = self.fill();
        self.packets < self.bounds.packets && bytes + takes + SESSION_LEN <= self.bounds.bytes
    }

    /// The packet that has waited longest in the session that takes the most memory, if that is more than `bytes`.
    fn take_from_greediest(&mut self, bytes: usize) -> Option<Packet> {
        let &(most, seid) = self.by_bytes.last().filter(|(most, _)| *most > bytes)?;
        let session = self.sessions.get_mut(&seid)?;
        let packet = session.oldest()?.packets.pop_front()?;
        session.bytes -= packet.takes();
        weigh(&mut self.by_bytes, seid, most, session.bytes);
        self.packets -= 1;
        self.store.give(packet.stored);
        self.tidy(seid);
        Some(packet)
    }

    /// Whether it is news that a packet of this PDR has come, for which there was no room.
    pub(super) fn tell_lost(&mut self, now_ms: u64, seid: u64, pdr: PdrId) -> bool {
        if let Some(session) = self.sessions.get_mut(&seid)
            && let Some(queue) = session.queues.iter().position(|queue| queue.pdr == pdr)
        {
            return session.tell(queue);
        }
        if self.told.len() >= TOLD_MAX || self.told.contains_key(&(seid, pdr.0)) {
            return false;
        }
        self.told.insert((seid, pdr.0), now_ms);
        true
    }

    /// The UE is there again, or gone: its next idle period is another one.
    pub(super) fn forget_told(&mut self, seid: u64) {
        let of_session = self.told.range((seid, 0)..=(seid, u16::MAX));
        let of_session: SmallVec<[(u64, u16); 4]> = of_session.map(|(&key, _)| key).collect();
        for key in of_session {
            self.told.remove(&key);
        }
    }

    /// Nobody knows yet of what waits for a session.
    pub(super) fn tell_anew(&mut self, seid: u64) {
        if let Some(session) = self.sessions.get_mut(&seid) {
            session
                .queues
                .iter_mut()
                .for_each(|queue| queue.is_told = false);
        }
    }

    /// Have a session looked at.
    pub(super) fn look(&mut self, seid: u64) {
        if let Some(session) = self.sessions.get_mut(&seid)
            && !std::mem::replace(&mut session.is_ready, true)
        {
            self.ready.push_back(seid);
        }
    }

    /// Other entries may have taken the place of those that decide about a session's packets.
    pub(super) fn follow(&mut self, seid: u64, present: impl Fn(u32) -> u32) {
        if let Some(session) = self.sessions.get_mut(&seid) {
            session.follow(present);
        }
    }

    /// A session to look at.
    pub(super) fn next_ready(&mut self) -> Option<u64> {
        loop {
            let seid = self.ready.pop_front()?;
            if let Some(session) = self.sessions.get_mut(&seid) {
                session.is_ready = false;
                return Some(seid);
            }
        }
    }

    /// Queues of a session.
    pub(super) fn queues_of(&self, seid: u64) -> usize {
        self.sessions
            .get(&seid)
            .map_or(0, |session| session.queues.len())
    }

    /// Whether a session is to be looked at.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The packet that has waited longest in a queue of a session, and the entry that decides about it.
    pub(super) fn front(&self, seid: u64, queue: usize) -> Option<(Packet, u32)> {
        let queue = self.sessions.get(&seid)?.queues.get(queue)?;
        Some((*queue.packets.front()?, queue.by))
    }

    /// Behind [`FRONT`](super::packet::FRONT) octets.
    pub(super) fn copy(&self, packet: Packet, into: &mut [u8]) {
        self.store.copy(packet.stored, into);
    }

    /// A packet that is in no queue is no more.
    pub(super) fn give(&mut self, packet: Packet) {
        self.store.give(packet.stored);
    }

    /// One that is in no queue has waited for too long.
    pub(super) fn is_old(&self, packet: Packet, now_ms: u64) -> bool {
        u128::from(now_ms.saturating_sub(packet.came.at_ms)) >= self.bounds.age.as_millis()
    }

    /// Memory is kept that no packet takes.
    pub(super) fn is_spare(&self) -> bool {
        self.store.is_spare()
    }

    /// It is given back, if no packet has come since this was asked last.
    pub(super) fn give_back(&mut self) {
        self.store.give_back();
    }

    /// Packets of a process before this one, in no queue yet, in their order. Those that come are later ones. The number of those
    /// that are lost.
    pub(super) fn take_over(&mut self, former: FormerPackets) -> (Vec<Packet>, usize) {
        let (packets, lost) = self.store.take_over(former);
        let numbers = packets.iter().map(|packet| packet.came.number);
        let next = numbers.max().map_or(0, |last| last.saturating_add(1));
        self.number = self.number.max(next);
        (packets, lost)
    }

    /// It is in no queue any more, and still in memory.
    pub(super) fn pop(&mut self, seid: u64, queue: usize) {
        let Some(session) = self.sessions.get_mut(&seid) else {
            return;
        };
        let Some(queue) = session.queues.get_mut(queue) else {
            return;
        };
        if let Some(packet) = queue.packets.pop_front() {
            // Should the others have to wait on, that is another idle period.
            queue.is_told = false;
            let before = session.bytes;
            session.bytes -= packet.takes();
            weigh(&mut self.by_bytes, seid, before, session.bytes);
            self.packets -= 1;
        }
    }

    /// The PDR of a queue of a session, if it is news that its packets wait on.
    pub(super) fn tell(&mut self, seid: u64, queue: usize) -> Option<PdrId> {
        let session = self.sessions.get_mut(&seid)?;
        let pdr = session.queues.get(queue)?.pdr;
        session.tell(queue).then_some(pdr)
    }

    /// After [`Self::pop`]s: what is empty goes.
    pub(super) fn tidy(&mut self, seid: u64) {
        if let Some(session) = self.sessions.get_mut(&seid) {
            session.queues.retain(|queue| !queue.packets.is_empty());
            if session.queues.is_empty() {
                self.sessions.remove(&seid);
            }
        }
        if self.sessions.is_empty() && self.sessions.capacity() > 4096 {
            self.sessions.shrink_to_fit();
        }
    }

    /// As an SMF's BAR says. What waits beyond it is lost: the latest.
    pub(super) fn limit(
        &mut self,
        now_ms: u64,
        seid: u64,
        pdr: PdrId,
        limits: BufferLimits,
        mut lose: impl FnMut(Packet, Why),
    ) {
        let Some(session) = self.sessions.get_mut(&seid) else {
            return;
        };
        let before = session.bytes;
        for queue in session.queues.iter_mut().filter(|queue| queue.pdr == pdr) {
            queue.limit = limits.packets.unwrap_or(queue.limit);
            let duration = limits.duration.map(|duration| duration.as_millis() as u64);
            queue.until_ms = duration.map(|ms| now_ms + ms).or(queue.until_ms);
            while queue.packets.len() > queue.limit as usize
                && let Some(packet) = queue.packets.pop_back()
            {
                self.packets -= 1;
                session.bytes -= packet.takes();
                self.store.give(packet.stored);
                lose(packet, Why::Full);
            }
        }
        weigh(&mut self.by_bytes, seid, before, session.bytes);
        self.tidy(seid);
    }

    /// Whatever waits for a session is lost.
    pub(super) fn discard(&mut self, seid: u64, mut lose: impl FnMut(Packet, Why)) {
        self.forget_told(seid);
        let Some(session) = self.sessions.remove(&seid) else {
            return;
        };
        weigh(&mut self.by_bytes, seid, session.bytes, 0);
        for packet in session.queues.iter().flat_map(|queue| &queue.packets) {
            self.packets -= 1;
            self.store.give(packet.stored);
            lose(*packet, Why::Discarded);
        }
    }

    /// Drop what has waited too long.
    pub(super) fn expire(&mut self, now_ms: u64, mut lose: impl FnMut(Packet, Why)) {
        self.told
            .retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < TOLD_MS);
        let (store, count) = (&mut self.store, &mut self.packets);
        let by_bytes = &mut self.by_bytes;
        let age_ms = self.bounds.age.as_millis() as u64;
        self.sessions.retain(|&seid, session| {
            let before = session.bytes;
            for queue in &mut session.queues {
                let until_ms = queue.until_ms;
                let is_due = |packet: &Packet| match until_ms {
                    Some(until_ms) => now_ms >= until_ms,
                    None => now_ms.saturating_sub(packet.came.at_ms) >= age_ms,
                };
                while let Some(&packet) = queue.packets.front().filter(|packet| is_due(packet)) {
                    queue.packets.pop_front();
                    *count -= 1;
                    session.bytes -= packet.takes();
                    store.give(packet.stored);
                    lose(packet, Why::Expired);
                }
            }
            weigh(by_bytes, seid, before, session.bytes);
            session.queues.retain(|queue| !queue.packets.is_empty());
            !session.queues.is_empty()
        });
    }

    /// Sessions for which something waits, up to so many, the longest first.
    pub(super) fn list(&self, now_ms: u64, at_most: usize) -> Vec<BufferedSession> {
        let view = |(&seid, session): (&u64, &SessionQueues)| {
            let packets = || session.queues.iter().flat_map(|queue| &queue.packets);
            let since = packets().map(|packet| packet.came.at_ms).min();
            BufferedSession {
                seid,
                pdrs: session.queues.iter().map(|queue| queue.pdr.0).collect(),
                packets: packets().count() as u64,
                bytes: packets().map(|packet| packet.len() as u64).sum(),
                age: Duration::from_millis(since.map_or(0, |at| now_ms.saturating_sub(at))),
            }
        };
        let mut sessions: Vec<BufferedSession> = self.sessions.iter().map(view).collect();
        sessions.sort_by_key(|session| (std::cmp::Reverse(session.age), session.seid));
        sessions.truncate(at_most);
        sessions
    }
}

/// Note that what waits for a session takes another amount of memory.
fn weigh(by_bytes: &mut BTreeSet<(usize, u64)>, seid: u64, before: usize, after: usize) {
    if before != after {
        by_bytes.remove(&(before, seid));
        if after > 0 {
            by_bytes.insert((after, seid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::FRONT;
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: BufferBounds = BufferBounds {
        bytes: 1 << 20,
        packets: 100,
        packets_per_session: 10,
        age: Duration::from_secs(5),
    };

    fn arrival(seid: u64, pdr: u16, frame: &[u8]) -> Arrival<'_> {
        Arrival {
            seid,
            pdr: PdrId(pdr),
            entry: seid as u32,
            by: pdr.into(),
            port: 0,
            worker: 0,
            is_bare: false,
            tos: 0,
            follows: false,
            what: What::Frame(frame, None),
        }
    }

    fn queues_of(bounds: BufferBounds) -> Queues {
        Queues::new(bounds, Store::anonymous(bounds.bytes).unwrap())
    }

    /// Nobody else loses a packet by it.
    fn put(queues: &mut Queues, now_ms: u64, arrival: &Arrival<'_>) -> Result<bool, Why> {
        queues.put(now_ms, arrival, |packet, _| panic!("{packet:?}"))
    }

    /// Packets that leave when a session is released.
    fn release(queues: &mut Queues, seid: u64) -> Vec<Vec<u8>> {
        let mut left = Vec::new();
        queues.look(seid);
        while let Some(seid) = queues.next_ready() {
            for queue in 0..queues.queues_of(seid) {
                while let Some((packet, _)) = queues.front(seid, queue) {
                    let mut frame = vec![0; FRONT + packet.len()];
                    queues.copy(packet, &mut frame);
                    left.push(frame.split_off(FRONT));
                    queues.pop(seid, queue);
                    queues.give(packet);
                }
            }
            queues.tidy(seid);
        }
        left
    }

    #[test]
    fn packets_leave_as_they_came_and_the_first_is_told_again() {
        let mut queues = queues_of(BOUNDS);
        assert_eq!(put(&mut queues, 0, &arrival(7, 2, b"a")), Ok(true));
        assert_eq!(put(&mut queues, 0, &arrival(7, 2, b"b")), Ok(false));
        assert_eq!(
            put(&mut queues, 0, &arrival(7, 3, b"c")),
            Ok(true),
            "another PDR"
        );
        assert_eq!(put(&mut queues, 0, &arrival(8, 2, b"d")), Ok(true));
        assert_eq!(queues.fill()[..2], [2, 4]);
        assert_eq!(release(&mut queues, 7), [b"a", b"b", b"c"]);
        assert_eq!(put(&mut queues, 0, &arrival(7, 2, b"e")), Ok(true));
        assert_eq!(release(&mut queues, 9), [[0u8; 0]; 0]);
    }

    #[test]
    fn bounds_hold_for_a_session_for_all_and_for_memory() {
        let mut queues = queues_of(BOUNDS);
        for n in 0..15 {
            let put = put(&mut queues, 0, &arrival(1, n % 2, &[n as u8]));
            assert_eq!(put.is_ok(), n < 10, "{n}");
        }
        let follows = Arrival {
            follows: true,
            ..arrival(1, 0, b"!")
        };
        assert_eq!(put(&mut queues, 0, &follows), Ok(false), "its UE is there");
        assert_eq!(queues.tell(1, 0), None, "it was told before");
        let (packet, _) = queues.front(1, 0).unwrap();
        queues.pop(1, 0);
        queues.give(packet);
        assert_eq!(queues.tell(1, 0), Some(PdrId(0)), "idle again");
        assert_eq!(put(&mut queues, 0, &follows), Ok(false));
        let mut lost = Vec::new();
        let taken = (2..200).filter(|&seid| {
            let lose = |packet: Packet, _| lost.push(packet.entry);
            queues.put(0, &arrival(seid, 1, b"x"), lose).is_ok()
        });
        assert_eq!(taken.count(), 99, "100 in all");
        assert_eq!(lost, [1; 10], "who had more than one");
        let mut small = queues_of(BufferBounds {
            bytes: 5 * (Store::taken(200) + SESSION_LEN),
            ..BOUNDS
        });
        let taken =
            (0..20).filter(|&seid| put(&mut small, 0, &arrival(seid, 1, &[0; 200])).is_ok());
        assert_eq!(taken.count(), 5, "and no more");
    }

    #[test]
    fn a_bar_takes_the_latest_and_bounds_what_follows() {
        let mut queues = queues_of(BOUNDS);
        for n in 0..5u8 {
            put(&mut queues, 0, &arrival(1, 2, &[n])).unwrap();
        }
        let mut lost = Vec::new();
        let limits = BufferLimits {
            packets: Some(3),
            duration: Some(Duration::from_secs(60)),
        };
        queues.limit(0, 1, PdrId(2), limits, |_, why| lost.push(why));
        assert_eq!(lost, [Why::Full; 2]);
        assert_eq!(put(&mut queues, 0, &arrival(1, 2, b"x")), Err(Why::Full));
        queues.expire(59_999, |_, _| panic!("they wait for a minute"));
        queues.expire(60_000, |_, why| lost.push(why));
        assert_eq!(lost[2..], [Why::Expired; 3]);
        assert!(queues.is_empty());
        assert_eq!(put(&mut queues, 0, &arrival(1, 2, b"x")), Ok(true));
        let none = BufferLimits {
            packets: Some(0),
            duration: None,
        };
        queues.limit(0, 1, PdrId(2), none, |_, why| lost.push(why));
        assert_eq!(queues.fill(), [0; 3]);
    }

    #[test]
    fn packets_grow_old_and_are_discarded() {
        let mut queues = queues_of(BOUNDS);
        put(&mut queues, 0, &arrival(1, 2, b"a")).unwrap();
        put(&mut queues, 2000, &arrival(1, 2, b"bc")).unwrap();
        put(&mut queues, 3000, &arrival(2, 2, b"d")).unwrap();
        let listed = BufferedSession {
            seid: 1,
            pdrs: vec![2],
            packets: 2,
            bytes: 3,
            age: Duration::from_secs(4),
        };
        assert_eq!(queues.list(4000, 1), [listed]);
        let mut lost = Vec::new();
        queues.expire(5000, |packet, why| lost.push((packet.entry, why)));
        assert_eq!(lost, [(1, Why::Expired)]);
        queues.discard(1, |packet, why| lost.push((packet.entry, why)));
        assert_eq!(lost[1..], [(1, Why::Discarded)]);
        assert_eq!(queues.fill()[..2], [1, 1]);
    }

    #[test]
    fn who_takes_the_most_room_gives_way_and_the_oldest_goes_first() {
        let mut queues = queues_of(BufferBounds {
            packets: 20,
            packets_per_session: 1000,
            ..BOUNDS
        });
        for n in 0..20 {
            put(&mut queues, n, &arrival(1, 2 + n as u16 % 2, &[n as u8])).unwrap();
        }
        let mut lost = Vec::new();
        let mut put_and_lose = |seid| {
            let lose = |packet: Packet, why| lost.push((packet.entry, packet.came.at_ms, why));
            queues.put(20, &arrival(seid, 2, b"x"), lose)
        };
        for seid in 2..7 {
            assert_eq!(put_and_lose(seid), Ok(true));
        }
        assert_eq!(put_and_lose(1), Err(Why::Full), "nobody has more");
        assert_eq!(lost, [0, 1, 2, 3, 4].map(|at_ms| (1, at_ms, Why::Full)));
        assert_eq!(release(&mut queues, 1).len(), 15);
        // There is room again.
        assert_eq!(put(&mut queues, 21, &arrival(1, 2, b"x")), Ok(true));
    }

    #[test]
    fn a_packet_without_room_is_told_of_but_not_each() {
        let mut queues = queues_of(BufferBounds { bytes: 0, ..BOUNDS });
        let pdr = PdrId(2);
        assert_eq!(put(&mut queues, 0, &arrival(1, 2, b"x")), Err(Why::Full));
        assert!(queues.tell_lost(0, 1, pdr) && !queues.tell_lost(9_999, 1, pdr));
        assert!(queues.tell_lost(0, 1, PdrId(3)) && queues.tell_lost(0, 2, pdr));
        queues.expire(9_999, |_, _| panic!("nothing waits"));
        assert!(!queues.is_empty(), "they are remembered");
        queues.expire(10_000, |_, _| panic!("nothing waits"));
        assert!(queues.is_empty());
        assert!(queues.tell_lost(10_000, 1, pdr));
        queues.forget_told(1);
        assert!(queues.tell_lost(10_001, 1, pdr), "it was there meanwhile");
        for seid in 0..TOLD_MAX as u64 + 10 {
            queues.tell_lost(10_001, seid, pdr);
        }
        assert_eq!(queues.told.len(), TOLD_MAX);
        // One that waits is told of whatever was said of those that were lost: the UE may have been there meanwhile.
        queues.bounds = BOUNDS;
        queues.store = Store::anonymous(BOUNDS.bytes).unwrap();
        assert_eq!(put(&mut queues, 10_002, &arrival(1, 2, b"x")), Ok(true));
        assert_eq!(put(&mut queues, 10_002, &arrival(1, 2, b"x")), Ok(false));
    }

    proptest! {
        /// Whoever loses a packet took more room than the one that came; none is lost uncounted or doubled.
        #[test]
        fn room_is_taken_from_the_greediest(
            steps in prop::collection::vec((0u64..6, 0u16..2, 0usize..1500, 0u8..8), 1..400),
        ) {
            let bounds = BufferBounds { bytes: 30_000, packets: 60, packets_per_session: 50, ..BOUNDS };
            let mut queues = queues_of(bounds);
            let mut waiting = 0;
            for (now_ms, (seid, pdr, len, what)) in (0u64..).zip(steps) {
                let bytes = |queues: &Queues, seid| queues.sessions.get(&seid).map_or(0, |session| session.bytes);
                if what == 0 {
                    waiting -= release(&mut queues, seid).len();
                } else {
                    let (own, takes) = (bytes(&queues, seid), Store::taken(len));
                    let before: HashMap<u64, usize> = queues.by_bytes.iter().map(|&(b, s)| (s, b)).collect();
                    let mut lost = Vec::new();
                    let frame = vec![0; len];
                    let put = queues.put(now_ms, &arrival(seid, pdr, &frame), |packet, _| lost.push(packet.entry));
                    prop_assert!(lost.iter().all(|&loser| before[&u64::from(loser)] > own + takes));
                    waiting -= lost.len();
                    waiting += usize::from(put.is_ok());
                }
                let [_, packets, octets] = queues.fill();
                prop_assert!(packets == waiting && packets <= 60 && octets <= 30_000);
                let weighed: BTreeSet<_> = queues.sessions.iter().map(|(&s, q)| (q.bytes, s)).collect();
                prop_assert_eq!(&weighed, &queues.by_bytes);
            }
        }

        /// Whatever comes, leaves in order or is lost, each packet once.
        #[test]
        fn every_packet_leaves_in_order_or_is_lost(
            steps in prop::collection::vec((0u64..4, 0u16..2, 0u8..8), 1..400),
        ) {
            let mut queues = queues_of(BOUNDS);
            let mut waiting: HashMap<(u64, u16), VecDeque<u16>> = HashMap::new();
            for (number, (seid, pdr, what)) in (0u16..).zip(steps) {
                match what {
                    0 => {
                        let mut left: HashMap<u16, VecDeque<u16>> = HashMap::new();
                        for frame in release(&mut queues, seid) {
                            let [a, b, pdr] = frame[..] else { panic!() };
                            left.entry(pdr.into()).or_default().push_back(u16::from_be_bytes([a, b]));
                        }
                        for pdr in 0..2 {
                            let expected = waiting.remove(&(seid, pdr)).unwrap_or_default();
                            prop_assert_eq!(left.remove(&pdr).unwrap_or_default(), expected);
                        }
                    }
                    1 => {
                        let mut lost = 0;
                        queues.discard(seid, |_, _| lost += 1);
                        let expected: usize = (0..2)
                            .map(|pdr| waiting.remove(&(seid, pdr)).map_or(0, |w| w.len()))
                            .sum();
                        prop_assert_eq!(lost, expected);
                    }
                    _ => {
                        let [a, b] = number.to_be_bytes();
                        if put(&mut queues, 0, &arrival(seid, pdr, &[a, b, pdr as u8])).is_ok() {
                            waiting.entry((seid, pdr)).or_default().push_back(number);
                        }
                    }
                }
                let count: usize = waiting.values().map(VecDeque::len).sum();
                prop_assert_eq!(queues.fill()[1], count);
            }
        }
    }
}
