//! Order of service on the slow path: kinds of work in turn, and within each its users.
//!
//! Deficit round robin (Shreedhar and Varghese, 1995) on both levels, over what records cost. A kind has room for so many
//! octets; beyond them the user with the most gives way, oldest record first. So whoever floods one kind of work costs the
//! others a share of time and no packet.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use tables::task::{EVENT_COPY, EVENT_GTPU, EVENT_SEND, Event, Task, what};

use crate::copies;
use crate::outer::l3_of;

/// Octets of one kind that may wait, beside what the ring holds.
const ROOM: usize = 4 << 20;
/// Users of a kind that are told apart; those beyond share places by chance, which falls anew at each start.
const USERS: usize = 64;
/// Cost of a record beside its octets: about as much as the system call that sends it, in octets copied.
const EACH: u32 = 512;
/// Share of one turn: more than the dearest record costs, so that each turn serves something.
const QUANTUM: u32 = 16 << 10;

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Whole packets whose neighbour the kernel has to find.
    Send,
    Fragment,
    Cut,
    /// ICMP errors and Router Advertisements.
    Answer,
    /// GTP-U messages for the control plane.
    Message,
    Duplicate,
}

const KINDS: usize = 6;

impl Kind {
    /// Whether what is lost of it is lost to its user: the packets that errors are about are counted by now, and duplicates apart.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Self::Send | Self::Fragment | Self::Cut)
    }

    pub(crate) fn of(event: &Event<'_>) -> Self {
        match event.kind {
            EVENT_SEND => Self::Send,
            EVENT_GTPU => Self::Message,
            EVENT_COPY => Self::Duplicate,
            _ => match Task::parse(event.data).map(|(task, _)| task.what) {
                Some(what::OUTER_FRAGMENT | what::INNER_FRAGMENT) => Self::Fragment,
                Some(what::CUT) => Self::Cut,
                _ => Self::Answer,
            },
        }
    }
}

/// Key that tells one user of a kind from another: an address, and a tunnel where one address has many users.
///
/// `from_users`: it came in where tunnels end.
fn user<'a>(event: &Event<'a>, from_users: bool) -> (&'a [u8], u32) {
    let (packet, tunnel) = match event.kind {
        EVENT_SEND if from_users => (event.data, 0),
        EVENT_SEND => (event.data, tunnel_of(event.data)),
        EVENT_GTPU => return (address(event.data, true), 0),
        EVENT_COPY => (copies::user(event.data), 0),
        _ => match Task::parse(event.data) {
            Some((task, data)) => match task.what {
                // Nothing in it tells the users of a gNB apart before it is whole.
                what::OUTER_FRAGMENT => {
                    let packet = data.get(l3_of(data)..).unwrap_or_default();
                    return (address(packet, true), 0);
                }
                // A link-local address is another UE's as well.
                what::SOLICITATION => return (&[], task.out as u32),
                what::INNER_FRAGMENT => (data.get(task.mtu.into()..).unwrap_or_default(), 0),
                what::CUT => (data.get(task.header_len().into()..).unwrap_or_default(), 0),
                _ => (data, 0),
            },
            None => (&[][..], 0),
        },
    };
    (address(packet, from_users), tunnel)
}

/// Source or destination address of an IP packet; empty where there is none.
fn address(packet: &[u8], source: bool) -> &[u8] {
    let at = match packet.first().map(|octet| octet >> 4) {
        Some(4) if source => 12..16,
        Some(4) => 16..20,
        Some(6) if source => 8..24,
        Some(6) => 24..40,
        _ => 0..0,
    };
    packet.get(at).unwrap_or_default()
}

/// The TEID of a packet that goes into a tunnel: without options, as we write it.
fn tunnel_of(packet: &[u8]) -> u32 {
    let at = match packet.first().map(|octet| octet >> 4) {
        Some(4) => 20 + 8 + 4,
        _ => 40 + 8 + 4,
    };
    let teid = packet
        .get(at..at + 4)
        .and_then(|octets| octets.try_into().ok());
    teid.map_or(0, u32::from_be_bytes)
}

/// Something that waits.
trait Waiting {
    /// Cost of its next record. `None`: it has none.
    fn cost(&mut self) -> Option<u32>;
    /// Take that record.
    fn take(&mut self) -> Option<Vec<u8>>;
}

/// Records of one user, or of several that the hash does not tell apart.
#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Waiting for Queue {
    fn cost(&mut self) -> Option<u32> {
        self.records
            .front()
            .map(|record| EACH + record.len() as u32)
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let record = self.records.pop_front()?;
        self.bytes -= record.len();
        Some(record)
    }
}

/// Several, each in its turn, with what is left of its share.
#[derive(Debug)]
struct Turns<W> {
    all: Box<[(W, u32)]>,
    turn: usize,
}

impl<W: Waiting> Turns<W> {
    fn new(all: impl Iterator<Item = W>) -> Self {
        Self {
            all: all.map(|one| (one, 0)).collect(),
            turn: 0,
        }
    }
}

impl<W: Waiting> Waiting for Turns<W> {
    fn cost(&mut self) -> Option<u32> {
        // Once around and back to the first: a share is enough for any record.
        for _ in 0..=self.all.len() {
            let (one, left) = &mut self.all[self.turn];
            match one.cost() {
                Some(cost) if cost <= *left => return Some(cost),
                Some(_) => {}
                None => *left = 0,
            }
            self.turn = (self.turn + 1) % self.all.len();
            self.all[self.turn].1 += QUANTUM;
        }
        None
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let cost = self.cost()?;
        let (one, left) = &mut self.all[self.turn];
        *left -= cost;
        one.take()
    }
}

/// Work of one kind.
#[derive(Debug)]
struct Users {
    turns: Turns<Queue>,
    bytes: usize,
}

impl Users {
    fn new() -> Self {
        Self {
            turns: Turns::new((0..USERS).map(|_| Queue::default())),
            bytes: 0,
        }
    }

    fn put(&mut self, user: usize, record: Vec<u8>) {
        let (queue, _) = &mut self.turns.all[user];
        queue.bytes += record.len();
        self.bytes += record.len();
        queue.records.push_back(record);
    }

    /// The oldest record of the user with the most, where there are more than there is room for.
    fn too_much(&mut self) -> Option<Vec<u8>> {
        if self.bytes <= ROOM {
            return None;
        }
        let queues = self.turns.all.iter_mut().map(|(queue, _)| queue);
        let record = queues.max_by_key(|queue| queue.bytes)?.take()?;
        self.bytes -= record.len();
        Some(record)
    }
}

impl Waiting for Users {
    fn cost(&mut self) -> Option<u32> {
        if self.bytes == 0 {
            return None;
        }
        self.turns.cost()
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let record = self.turns.take()?;
        self.bytes -= record.len();
        Some(record)
    }
}

/// Records that wait for their turn. Belongs to one thread.
#[derive(Debug)]
pub(crate) struct Fair {
    kinds: Turns<Users>,
    salt: RandomState,
}

impl Fair {
    pub(crate) fn new() -> Self {
        Self {
            kinds: Turns::new((0..KINDS).map(|_| Users::new())),
            salt: RandomState::new(),
        }
    }

    /// The record of an event, which came in where tunnels end, or not. `lost` is given what there is no room for.
    pub(crate) fn put(
        &mut self,
        (event, record): (&Event<'_>, &[u8]),
        from_users: bool,
        mut lost: impl FnMut(&[u8]),
    ) {
        let place = self.salt.hash_one(user(event, from_users)) as usize % USERS;
        let (users, _) = &mut self.kinds.all[Kind::of(event) as usize];
        users.put(place, record.to_vec());
        while let Some(record) = users.too_much() {
            lost(&record);
        }
    }

    /// The record whose turn it is.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.kinds.take()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A record on behalf of a UE with this number; `tag` tells it from others.
    fn record(kind: Kind, ue: u8, len: usize, tag: u32) -> Vec<u8> {
        let mut packet = vec![0x45; 20];
        packet[12..16].copy_from_slice(&[10, 60, 0, ue]);
        packet.extend(tag.to_ne_bytes());
        packet.resize(24 + len, 0);
        let (event, front) = match kind {
            Kind::Send => (EVENT_SEND, Vec::new()),
            Kind::Message => (EVENT_GTPU, Vec::new()),
            Kind::Duplicate => (EVENT_COPY, vec![0; 64]),
            Kind::Fragment => (2, task(what::INNER_FRAGMENT)),
            Kind::Cut => (2, task(what::CUT)),
            Kind::Answer => (2, task(what::EXPIRED)),
        };
        let data = [front, packet].concat();
        let words = [event, 0, data.len() as u32, 0];
        [words.map(u32::to_ne_bytes).concat(), data].concat()
    }

    fn task(what: u8) -> Vec<u8> {
        let mut task = vec![0; 24];
        task[0] = what;
        task
    }

    fn put(fair: &mut Fair, record: &[u8]) -> u32 {
        let event = Event::parse(record).unwrap();
        let mut lost = 0;
        fair.put((&event, record), true, |_| lost += 1);
        lost
    }

    fn said(record: &[u8]) -> (Kind, u8, u32) {
        let event = Event::parse(record).unwrap();
        let kind = Kind::of(&event);
        let front = record.len() - event.data.len();
        let at = match kind {
            Kind::Send | Kind::Message => front,
            Kind::Duplicate => front + 64,
            _ => front + 24,
        };
        let tag = record[at + 20..at + 24].try_into().unwrap();
        (kind, record[at + 15], u32::from_ne_bytes(tag))
    }

    const ALL: [Kind; KINDS] = [
        Kind::Send,
        Kind::Fragment,
        Kind::Cut,
        Kind::Answer,
        Kind::Message,
        Kind::Duplicate,
    ];

    /// Two users whose records lie in different places, whatever the salt.
    fn two_users(fair: &Fair, kind: Kind) -> (u8, u8) {
        let place = |ue: u8| {
            let record = record(kind, ue, 0, 0);
            let event = Event::parse(&record).unwrap();
            fair.salt.hash_one(user(&event, true)) as usize % USERS
        };
        let other = (2..=255).find(|ue| place(*ue) != place(1));
        (1, other.unwrap())
    }

    #[test]
    fn a_flood_of_one_kind_takes_no_more_than_its_turn() {
        for flood in ALL {
            let mut fair = Fair::new();
            for tag in 0..3000 {
                put(&mut fair, &record(flood, 1, 100, tag));
            }
            for kind in ALL.into_iter().filter(|kind| *kind != flood) {
                put(&mut fair, &record(kind, 1, 100, 0));
            }
            let first = (0..100).map(|_| fair.take().unwrap());
            let others = first.filter(|record| said(record).0 != flood).count();
            assert_eq!(others, KINDS - 1, "{flood:?}");
        }
    }

    #[test]
    fn within_a_kind_users_take_turns_whatever_the_size_of_their_packets() {
        for kind in ALL {
            let mut fair = Fair::new();
            let (greedy, modest) = two_users(&fair, kind);
            for tag in 0..200 {
                put(&mut fair, &record(kind, greedy, 9000, tag));
            }
            for tag in 0..200 {
                put(&mut fair, &record(kind, modest, 100, tag));
            }
            let mut octets = BTreeMap::<u8, usize>::new();
            while octets.get(&modest).is_none_or(|octets| *octets < 20_000) {
                let record = fair.take().unwrap();
                *octets.entry(said(&record).1).or_default() += record.len() + EACH as usize;
            }
            let ratio = octets[&greedy] as f64 / octets[&modest] as f64;
            assert!((0.3..3.0).contains(&ratio), "{kind:?}: {octets:?}");
        }
    }

    #[test]
    fn who_has_the_most_gives_way_and_loses_its_oldest() {
        let mut fair = Fair::new();
        let (greedy, modest) = two_users(&fair, Kind::Send);
        let mut lost = 0;
        for tag in 0..10 {
            lost += put(&mut fair, &record(Kind::Send, modest, 1000, tag));
        }
        for tag in 0..10_000 {
            lost += put(&mut fair, &record(Kind::Send, greedy, 1000, tag));
        }
        let mut left = BTreeMap::<u8, Vec<u32>>::new();
        while let Some(record) = fair.take() {
            let (_, ue, tag) = said(&record);
            left.entry(ue).or_default().push(tag);
        }
        assert_eq!(left[&modest], (0..10).collect::<Vec<_>>());
        let kept = left[&greedy].len() as u32;
        assert_eq!(left[&greedy], (10_000 - kept..10_000).collect::<Vec<_>>());
        assert_eq!(lost, 10_000 - kept);
        assert!((ROOM - 10 * 1100..=ROOM).contains(&(kept as usize * 1040 + 10 * 1040)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Nothing is lost without being said, nothing is doubled, and each user's records stay in order.
        #[test]
        fn every_record_is_served_or_lost_and_each_users_are_in_order(
            steps in prop::collection::vec((0..KINDS, 0..8u8, 0..9000usize, any::<bool>()), 1..2000)
        ) {
            let mut fair = Fair::new();
            let (mut lost, mut served) = (0, 0);
            let mut last = BTreeMap::new();
            let mut seen = |record: Vec<u8>| {
                let (kind, ue, tag) = said(&record);
                let before = last.insert((kind as usize, ue), tag);
                prop_assert!(before.is_none_or(|before| before < tag));
                Ok(())
            };
            for (tag, (kind, ue, len, take)) in steps.iter().enumerate() {
                lost += put(&mut fair, &record(ALL[*kind], *ue, *len, tag as u32));
                if *take && let Some(record) = fair.take() {
                    served += 1;
                    seen(record)?;
                }
            }
            while let Some(record) = fair.take() {
                served += 1;
                seen(record)?;
            }
            prop_assert_eq!(served + lost as usize, steps.len());
        }
    }
}
