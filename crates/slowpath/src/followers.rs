//! Fragments of users' packets where filters ask for ports, which only the first one has: the others meet the
//! same rules as it does. Within bounds of number, octets and age; nothing is put together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::reassembly::{Loss, Losses};

/// Bounds of what is remembered, and of what waits.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Packets.
    pub packets: usize,
    /// Packets of one user and direction.
    pub packets_per_user: usize,
    /// Octets of frames that wait for their first fragment.
    pub bytes: usize,
    /// Frames of one packet that wait.
    pub frames: usize,
    /// Nanoseconds from the fragment that comes first.
    pub age_ns: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            packets: 16_384,
            packets_per_user: 256,
            bytes: 4 << 20,
            frames: 64,
            age_ns: 2_000_000_000,
        }
    }
}

/// Which packet a fragment belongs to. TEID and port keep users with the same addresses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Port where it came in.
    pub port: u32,
    /// TEID of its tunnel; 0: none.
    pub teid: u32,
    /// Sender.
    pub source: IpAddr,
    /// Receiver.
    pub destination: IpAddr,
    /// Identification.
    pub id: u32,
    /// Upper layer, as each fragment of IPv4 has it.
    pub proto: u8,
}

impl Key {
    /// User of the packet: uplink by tunnel, downlink by destination.
    fn user(&self) -> User {
        (
            self.port,
            self.teid,
            (self.teid == 0).then_some(self.destination),
        )
    }
}

type User = (u32, u32, Option<IpAddr>);

/// Upper layer of a packet as filters see it (`tp_transport()`): protocol, whether it has ports, and these.
pub type Transport = u64;

/// `TP_FLOW_PROTO_SHIFT`
const PROTO_SHIFT: u32 = 32;
/// `TP_FLOW_PORTS`
const PORTS: u64 = 1 << 49;

/// A frame that may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// As it came.
    pub frame: Vec<u8>,
    /// Upper layer of its packet.
    pub transport: Transport,
}

#[derive(Debug)]
struct Packet {
    number: u64,
    born_ns: u64,
    transport: Option<Transport>,
    waiting: Vec<Vec<u8>>,
}

/// Packets of which fragments have come.
#[derive(Debug, Default)]
pub struct Followers {
    bounds: Bounds,
    packets: HashMap<Key, Packet>,
    by_age: BTreeMap<u64, Key>,
    users: HashMap<User, BTreeSet<u64>>,
    bytes: usize,
    next: u64,
}

impl Followers {
    /// Nothing is remembered.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Octets that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One fragment: which frames may go on now, first fragment first. `first` is what it says when it is the
    /// first one.
    pub fn add(
        &mut self,
        key: Key,
        first: Option<Transport>,
        frame: &[u8],
        now_ns: u64,
        losses: &mut Losses,
    ) -> Vec<Ready> {
        self.expire(now_ns, losses);
        self.remember(key, now_ns, losses);
        let bounds = self.bounds;
        let Some(packet) = self.packets.get_mut(&key) else {
            return Vec::new();
        };
        packet.transport = first.or(packet.transport);
        let Some(transport) = packet.transport else {
            if packet.waiting.len() >= bounds.frames || self.bytes + frame.len() > bounds.bytes {
                losses.push((key.port, Loss::Limit, 1));
            } else {
                self.bytes += frame.len();
                packet.waiting.push(frame.to_vec());
            }
            return Vec::new();
        };
        let waited = std::mem::take(&mut packet.waiting);
        self.bytes -= waited.iter().map(Vec::len).sum::<usize>();
        let all = std::iter::once(frame.to_vec()).chain(waited);
        all.map(|frame| Ready { frame, transport }).collect()
    }

    /// Give up what is too old. What waited is lost.
    pub fn expire(&mut self, now_ns: u64, losses: &mut Losses) {
        while let Some((_, key)) = self.by_age.first_key_value() {
            let key = *key;
            let young =
                |packet: &Packet| now_ns.saturating_sub(packet.born_ns) < self.bounds.age_ns;
            if self.packets.get(&key).is_some_and(young) {
                return;
            }
            self.forget(key, Loss::Timeout, losses);
        }
    }

    /// Make room for a packet that is new; the oldest goes first, that of the same user where it has too many.
    fn remember(&mut self, key: Key, now_ns: u64, losses: &mut Losses) {
        if self.packets.contains_key(&key) {
            return;
        }
        let oldest_of_user = self
            .users
            .get(&key.user())
            .filter(|numbers| numbers.len() >= self.bounds.packets_per_user)
            .and_then(BTreeSet::first);
        let oldest = || self.by_age.first_key_value().map(|(number, _)| number);
        let full = self.packets.len() >= self.bounds.packets;
        let goes = oldest_of_user
            .or_else(|| oldest().filter(|_| full))
            .copied();
        if let Some(key) = goes.and_then(|number| self.by_age.get(&number).copied()) {
            self.forget(key, Loss::Limit, losses);
        }
        let number = self.next;
        self.next += 1;
        self.by_age.insert(number, key);
        self.users.entry(key.user()).or_default().insert(number);
        let packet = Packet {
            number,
            born_ns: now_ns,
            transport: None,
            waiting: Vec::new(),
        };
        self.packets.insert(key, packet);
    }

    fn forget(&mut self, key: Key, why: Loss, losses: &mut Losses) {
        let Some(packet) = self.packets.remove(&key) else {
            return;
        };
        self.by_age.remove(&packet.number);
        if let Some(numbers) = self.users.get_mut(&key.user()) {
            numbers.remove(&packet.number);
            if numbers.is_empty() {
                self.users.remove(&key.user());
            }
        }
        self.bytes -= packet.waiting.iter().map(Vec::len).sum::<usize>();
        if !packet.waiting.is_empty() {
            losses.push((key.port, why, packet.waiting.len() as u64));
        }
    }
}

/// Ports of these are what filters ask for.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

fn transport(proto: u8, upper: Option<&[u8]>) -> Transport {
    let ports = upper
        .filter(|_| WITH_PORTS.contains(&proto))
        .and_then(|upper| upper.first_chunk::<4>());
    let ports = ports.map_or(0, |octets| PORTS | u64::from(u32::from_be_bytes(*octets)));
    u64::from(proto) << PROTO_SHIFT | ports
}

/// The packet that a fragment is of, and, of its first fragment, the upper layer; `user` begins with the
/// IP header.
pub fn read(port: u32, teid: u32, user: &[u8]) -> Option<(Key, Option<Transport>)> {
    match user.first()? >> 4 {
        4 => read4(port, teid, user),
        6 => read6(port, teid, user),
        _ => None,
    }
}

fn read4(port: u32, teid: u32, user: &[u8]) -> Option<(Key, Option<Transport>)> {
    let header_len = usize::from(user.first()? & 15) * 4;
    let header = user.get(..header_len.max(20))?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let key = Key {
        port,
        teid,
        source: address(12).into(),
        destination: address(16).into(),
        id: u16::from_be_bytes([header[4], header[5]]).into(),
        proto: header[9],
    };
    let first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    let upper = user.get(header.len()..total);
    Some((key, first.then(|| transport(key.proto, upper))))
}

const IP6_LEN: usize = 40;
/// `TP_IP6_HEADERS_MAX`
const HEADERS_MAX: usize = 8;
const FRAGMENT: u8 = 44;
const AH: u8 = 51;
/// Hop-by-hop options, routing and destination options.
const HEADERS: [u8; 3] = [0, 43, 60];

fn read6(port: u32, teid: u32, user: &[u8]) -> Option<(Key, Option<Transport>)> {
    let header = user.get(..IP6_LEN)?;
    let total = IP6_LEN + usize::from(u16::from_be_bytes([header[4], header[5]]));
    let user = user.get(..total)?;
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    let (mut at, mut next, mut found) = (IP6_LEN, header[6], None);
    for _ in 0..HEADERS_MAX {
        let len = match next {
            FRAGMENT => 8,
            AH => (usize::from(*user.get(at + 1)?) + 2) * 4,
            next if HEADERS.contains(&next) => (usize::from(*user.get(at + 1)?) + 1) * 8,
            _ => break,
        };
        let this = user.get(at..at + 8)?;
        if next == FRAGMENT {
            let later = u16::from_be_bytes([this[2], this[3]]) & 0xfff8 != 0;
            let id = u32::from_be_bytes([this[4], this[5], this[6], this[7]]);
            found = Some((id, later));
            if later {
                break;
            }
        }
        (at, next) = (at + len, this[0]);
    }
    let (id, later) = found?;
    let key = Key {
        port,
        teid,
        source: address(8)?,
        destination: address(24)?,
        id,
        // Fragments of one packet may differ in it (RFC 8200, 4.5).
        proto: FRAGMENT,
    };
    Some((key, (!later).then(|| transport(next, user.get(at..)))))
}

#[cfg(test)]
#[path = "followers_tests.rs"]
mod tests;
