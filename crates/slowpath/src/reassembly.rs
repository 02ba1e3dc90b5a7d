//! IP fragments put together (RFC 791, 3.2; RFC 8200, 4.5), within bounds of number, octets and age.
//!
//! Fragments that overlap cost the whole packet, and what comes later of it (RFC 5722). Where room is short the
//! packet that has waited longest goes first, so that a flood of fragments that lead nowhere pushes out
//! itself rather than those whose rest is under way.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// Bounds of what waits. Octets are those of fragments with their headers.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Packets.
    pub packets: usize,
    /// Octets of all.
    pub bytes: usize,
    /// Packets of one sender.
    pub packets_per_source: usize,
    /// Octets of one sender.
    pub bytes_per_source: usize,
    /// Fragments of one packet.
    pub fragments: usize,
    /// Octets of one whole packet, without its IP header.
    pub whole: usize,
    /// Nanoseconds from the first fragment that comes.
    pub age_ns: u64,
}

impl Default for Bounds {
    /// A gNB is one sender for all of its users. An identification comes again soon on a fast link (RFC 4963),
    /// hence the short age.
    fn default() -> Self {
        Self {
            packets: 8192,
            bytes: 16 << 20,
            packets_per_source: 4096,
            bytes_per_source: 8 << 20,
            fragments: 64,
            whole: 9700,
            age_ns: 2_000_000_000,
        }
    }
}

/// Which packet a fragment belongs to. The port keeps networks with the same addresses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Port where it came in.
    pub port: u32,
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// Identification.
    pub id: u32,
    /// Protocol of the upper layer.
    pub proto: u8,
}

/// One fragment.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a> {
    /// Octets in front of the payload; kept of the first one.
    pub header: &'a [u8],
    /// Its part of the whole.
    pub payload: &'a [u8],
    /// Offset of the payload in the whole, in octets.
    pub offset: usize,
    /// Others follow.
    pub more: bool,
}

/// A packet that has become whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Header of its first fragment.
    pub header: Vec<u8>,
    /// All of it.
    pub payload: Vec<u8>,
}

/// Why fragments were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Others did not come.
    Timeout,
    /// They cannot be parts of one packet.
    Malformed,
    /// Others needed the room.
    Limit,
}

/// Fragments given up, by port.
pub type Losses = Vec<(u32, Loss, u64)>;

#[derive(Debug)]
struct Piece {
    offset: usize,
    payload: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.payload.len()
    }
}

#[derive(Debug)]
struct Packet {
    /// Its place in the order of arrival.
    number: u64,
    born_ns: u64,
    /// Rising, without overlap.
    pieces: Vec<Piece>,
    header: Vec<u8>,
    bytes: usize,
    /// Known once the last one is there.
    len: Option<usize>,
    /// Nothing more of it is taken.
    spoilt: bool,
}

#[derive(Debug, Default)]
struct Source {
    bytes: usize,
    /// Numbers of its packets.
    packets: BTreeSet<u64>,
}

enum Placed {
    Waits,
    Whole,
    Spoilt,
}

/// Packets that wait for fragments.
#[derive(Debug, Default)]
pub struct Reassembler {
    bounds: Bounds,
    packets: HashMap<Key, Packet>,
    by_age: BTreeMap<u64, Key>,
    sources: HashMap<IpAddr, Source>,
    bytes: usize,
    next: u64,
}

impl Reassembler {
    /// Nothing waits.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Octets that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Take a fragment; what is given up for it goes to `losses`.
    pub fn add(
        &mut self,
        key: Key,
        fragment: Fragment<'_>,
        now_ns: u64,
        losses: &mut Losses,
    ) -> Option<Whole> {
        self.expire(now_ns, losses);
        let end = fragment.offset + fragment.payload.len();
        let odd = fragment.more && !fragment.payload.len().is_multiple_of(8);
        if fragment.payload.is_empty() || odd || end > self.bounds.whole {
            self.spoil(key, now_ns, losses);
            return None;
        }
        let bytes = fragment.header.len() + fragment.payload.len();
        self.make_room(key, bytes, losses);
        match self.place(key, fragment, now_ns) {
            Placed::Waits => None,
            Placed::Spoilt => {
                self.spoil(key, now_ns, losses);
                None
            }
            Placed::Whole => self.remove(key).map(assemble),
        }
    }

    /// Give up what has waited too long.
    pub fn expire(&mut self, now_ns: u64, losses: &mut Losses) {
        while let Some((_, &key)) = self.by_age.first_key_value() {
            let born = self.packets.get(&key).map_or(0, |packet| packet.born_ns);
            if now_ns.saturating_sub(born) < self.bounds.age_ns {
                return;
            }
            self.give_up(key, Loss::Timeout, losses);
        }
    }

    fn place(&mut self, key: Key, fragment: Fragment<'_>, now_ns: u64) -> Placed {
        let most = self.bounds.fragments;
        let packet = self.packet(key, now_ns);
        if packet.spoilt || packet.pieces.len() == most {
            return Placed::Spoilt;
        }
        let end = fragment.offset + fragment.payload.len();
        let at = packet
            .pieces
            .partition_point(|piece| piece.offset < fragment.offset);
        if let Some(same) = packet.pieces.get(at)
            && same.offset == fragment.offset
            && same.payload == fragment.payload
        {
            // The network doubled it.
            return Placed::Waits;
        }
        let before = at.checked_sub(1).map_or(0, |at| packet.pieces[at].end());
        let after = packet
            .pieces
            .get(at)
            .map_or(usize::MAX, |piece| piece.offset);
        let last = packet.pieces.last().map_or(0, Piece::end);
        let len = packet.len.unwrap_or(usize::MAX);
        let fits = if fragment.more {
            end < len
        } else {
            packet.len.is_none() && last <= end
        };
        if before > fragment.offset || end > after || !fits {
            return Placed::Spoilt;
        }
        packet.pieces.insert(
            at,
            Piece {
                offset: fragment.offset,
                payload: fragment.payload.to_vec(),
            },
        );
        if fragment.offset == 0 {
            packet.header = fragment.header.to_vec();
        }
        if !fragment.more {
            packet.len = Some(end);
        }
        let bytes = fragment.header.len() + fragment.payload.len();
        packet.bytes += bytes;
        let held: usize = packet.pieces.iter().map(|piece| piece.payload.len()).sum();
        let whole = packet.len == Some(held);
        self.bytes += bytes;
        if let Some(source) = self.sources.get_mut(&key.source) {
            source.bytes += bytes;
        }
        if whole { Placed::Whole } else { Placed::Waits }
    }

    fn packet(&mut self, key: Key, now_ns: u64) -> &mut Packet {
        match self.packets.entry(key) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                let number = self.next;
                self.next += 1;
                self.by_age.insert(number, key);
                let source = self.sources.entry(key.source).or_default();
                source.packets.insert(number);
                place.insert(Packet {
                    number,
                    born_ns: now_ns,
                    pieces: Vec::new(),
                    header: Vec::new(),
                    bytes: 0,
                    len: None,
                    spoilt: false,
                })
            }
        }
    }

    /// Make room among the sender's own packets first, then among all.
    fn make_room(&mut self, key: Key, bytes: usize, losses: &mut Losses) {
        let more = usize::from(!self.packets.contains_key(&key));
        let Bounds {
            packets,
            bytes: most,
            packets_per_source,
            bytes_per_source,
            ..
        } = self.bounds;
        while let Some(source) = self.sources.get(&key.source)
            && (source.packets.len() + more > packets_per_source
                || source.bytes + bytes > bytes_per_source)
        {
            let Some(oldest) = source.packets.first().copied() else {
                break;
            };
            self.give_up_number(oldest, losses);
        }
        while self.packets.len() + more > packets || self.bytes + bytes > most {
            let Some((&oldest, _)) = self.by_age.first_key_value() else {
                break;
            };
            self.give_up_number(oldest, losses);
        }
    }

    fn give_up_number(&mut self, number: u64, losses: &mut Losses) {
        if let Some(&key) = self.by_age.get(&number) {
            self.give_up(key, Loss::Limit, losses);
        }
    }

    fn give_up(&mut self, key: Key, loss: Loss, losses: &mut Losses) {
        let packet = self.remove(key);
        let pieces = packet.map_or(0, |packet| packet.pieces.len() as u64);
        if pieces > 0 {
            losses.push((key.port, loss, pieces));
        }
    }

    /// Lose what there is of a packet and remember, until its time is over, that no more is wanted.
    fn spoil(&mut self, key: Key, now_ns: u64, losses: &mut Losses) {
        self.make_room(key, 0, losses);
        let packet = self.packet(key, now_ns);
        let pieces = std::mem::take(&mut packet.pieces);
        let bytes = std::mem::take(&mut packet.bytes);
        packet.header = Vec::new();
        packet.spoilt = true;
        self.bytes -= bytes;
        if let Some(source) = self.sources.get_mut(&key.source) {
            source.bytes -= bytes;
        }
        // And the fragment that has just come.
        losses.push((key.port, Loss::Malformed, pieces.len() as u64 + 1));
    }

    fn remove(&mut self, key: Key) -> Option<Packet> {
        let packet = self.packets.remove(&key)?;
        self.by_age.remove(&packet.number);
        self.bytes -= packet.bytes;
        if let Some(source) = self.sources.get_mut(&key.source) {
            source.bytes -= packet.bytes;
            source.packets.remove(&packet.number);
            if source.packets.is_empty() {
                self.sources.remove(&key.source);
            }
        }
        Some(packet)
    }
}

fn assemble(packet: Packet) -> Whole {
    let mut payload = Vec::with_capacity(packet.len.unwrap_or(0));
    for piece in &packet.pieces {
        payload.extend_from_slice(&piece.payload);
    }
    Whole {
        header: packet.header,
        payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const MS: u64 = 1_000_000;

    fn key(source: u8, id: u32) -> Key {
        Key {
            port: 0,
            source: Ipv4Addr::new(10, 3, 1, source).into(),
            destination: Ipv4Addr::new(10, 3, 0, 1).into(),
            id,
            proto: 17,
        }
    }

    fn cut(payload: &[u8], from: usize, to: usize) -> Fragment<'_> {
        Fragment {
            header: b"header",
            payload: &payload[from..to],
            offset: from,
            more: to < payload.len(),
        }
    }

    fn ramp(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7) as u8).collect()
    }

    fn small() -> Bounds {
        Bounds {
            packets: 8,
            bytes: 1000,
            packets_per_source: 4,
            bytes_per_source: 600,
            fragments: 4,
            whole: 400,
            age_ns: 100 * MS,
        }
    }

    #[test]
    fn overlap_spoils_the_packet_and_what_follows_of_it() {
        let (mut all, mut losses) = (Reassembler::new(small()), Losses::new());
        let payload = ramp(100);
        assert_eq!(
            all.add(key(1, 1), cut(&payload, 0, 64), 0, &mut losses),
            None
        );
        assert_eq!(
            all.add(key(1, 1), cut(&payload, 56, 72), 0, &mut losses),
            None
        );
        assert_eq!(losses, [(0, Loss::Malformed, 2)]);
        losses.clear();
        assert_eq!(
            all.add(key(1, 1), cut(&payload, 64, 100), 0, &mut losses),
            None
        );
        assert_eq!(losses, [(0, Loss::Malformed, 1)]);
        assert_eq!(all.bytes(), 0);
        all.expire(100 * MS, &mut losses);
        assert!(all.is_empty());
    }

    #[test]
    fn a_doubled_fragment_does_no_harm() {
        let (mut all, mut losses) = (Reassembler::new(small()), Losses::new());
        let payload = ramp(100);
        for _ in 0..3 {
            assert_eq!(
                all.add(key(1, 1), cut(&payload, 0, 64), 0, &mut losses),
                None
            );
        }
        let whole = all.add(key(1, 1), cut(&payload, 64, 100), 0, &mut losses);
        assert_eq!(whole.unwrap().payload, payload);
        assert!(losses.is_empty() && all.is_empty() && all.bytes() == 0);
    }

    #[test]
    fn impossible_fragments_are_malformed() {
        let payload = ramp(100);
        let odd = Fragment {
            more: true,
            ..cut(&payload, 0, 63)
        };
        let empty = cut(&payload, 64, 64);
        let beyond = Fragment {
            offset: 392,
            ..cut(&payload, 0, 64)
        };
        let second_end = |all: &mut Reassembler, losses: &mut Losses| {
            all.add(key(1, 9), cut(&payload, 80, 100), 0, losses);
            let earlier_end = Fragment {
                more: false,
                ..cut(&payload, 64, 72)
            };
            all.add(key(1, 9), earlier_end, 0, losses)
        };
        for fragment in [odd, empty, beyond] {
            let (mut all, mut losses) = (Reassembler::new(small()), Losses::new());
            assert_eq!(all.add(key(1, 1), fragment, 0, &mut losses), None);
            assert_eq!(losses, [(0, Loss::Malformed, 1)], "{fragment:?}");
        }
        let (mut all, mut losses) = (Reassembler::new(small()), Losses::new());
        assert_eq!(second_end(&mut all, &mut losses), None);
        assert_eq!(losses, [(0, Loss::Malformed, 2)]);
    }

    #[test]
    fn what_waits_too_long_goes() {
        let (mut all, mut losses) = (Reassembler::new(small()), Losses::new());
        let payload = ramp(100);
        all.add(key(1, 1), cut(&payload, 0, 64), 0, &mut losses);
        all.expire(99 * MS, &mut losses);
        assert!(losses.is_empty());
        let late = all.add(key(1, 1), cut(&payload, 64, 100), 100 * MS, &mut losses);
        assert_eq!((late, losses), (None, vec![(0, Loss::Timeout, 1)]));
    }

    #[test]
    fn a_flood_of_one_sender_pushes_out_its_own() {
        let (mut all, mut losses) = (Reassembler::new(small()), Losses::new());
        let payload = ramp(100);
        all.add(key(2, 1), cut(&payload, 0, 64), 0, &mut losses);
        for id in 0..1000 {
            all.add(key(1, id), cut(&payload, 0, 64), 0, &mut losses);
            assert!(all.bytes() <= 1000);
        }
        assert_eq!(losses.len(), 1000 - 4);
        let whole = all.add(key(2, 1), cut(&payload, 64, 100), 0, &mut losses);
        assert_eq!(
            whole.unwrap().payload,
            payload,
            "the other sender's is untouched"
        );
    }

    proptest! {
        /// Cut anywhere and shuffled, a packet comes out as it was, and nothing stays behind.
        #[test]
        fn any_cut_in_any_order_becomes_whole(
            len in 16usize..2000,
            cuts in proptest::collection::btree_set(1usize..250, 0..8),
            order in any::<u64>(),
        ) {
            let payload = ramp(len);
            let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut * 8).filter(|&at| at < len).collect();
            ends.push(len);
            let mut fragments = Vec::new();
            let mut from = 0;
            for end in ends {
                fragments.push(cut(&payload, from, end));
                from = end;
            }
            let n = fragments.len();
            for at in 0..n {
                fragments.swap(at, (order.rotate_left(at as u32 * 7) % n as u64) as usize);
            }
            let (mut all, mut losses) = (Reassembler::new(Bounds::default()), Losses::new());
            for fragment in &fragments[..n - 1] {
                prop_assert_eq!(all.add(key(1, 7), *fragment, 5, &mut losses), None);
            }
            let whole = all.add(key(1, 7), fragments[n - 1], 5, &mut losses);
            prop_assert_eq!(whole.map(|whole| whole.payload), Some(payload));
            prop_assert!(losses.is_empty() && all.is_empty() && all.bytes() == 0);
        }
    }
}
