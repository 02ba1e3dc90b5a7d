//! Remote tunnel ends: one line per pair of addresses, and one more where it also gets UDP without GTP-U, shared by all
//! sessions behind it.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::abi::{Line, PEER_UDP, PEER_V6, PEER_ZERO_SUM, PeerLine, words_of};
use crate::alloc::Lines;
use crate::encode::be;
use crate::memory::View;
use nexthop::{Peer, PeerChange};

/// The next hop of a peer that the mirror has not looked at yet: the kernel's routes decide.
pub(crate) const NEXTHOP_BY_KERNEL: u32 = 0;

#[derive(Debug, Clone, Copy)]
struct Slot {
    peer: Peer,
    users: u32,
    /// Of these, those that send nothing there: they know the peer, for when somebody does.
    keepers: u32,
    /// Releases that have not had their grace period; the line is free when both are zero.
    retiring: u32,
}

/// All peers in use.
#[derive(Debug)]
pub(crate) struct Peers {
    lines: Lines,
    table: View<Line>,
    by_address: HashMap<Peer, u32>,
    slots: Vec<Option<Slot>>,
    changes: Vec<PeerChange>,
    /// `PEER_*` of those with IPv6 addresses.
    flags6: u32,
}

impl Peers {
    pub(crate) fn new(table: View<Line>) -> Self {
        let capacity = table.len() as u32;
        Self {
            lines: Lines::new("peers", 0, capacity),
            table,
            by_address: HashMap::new(),
            slots: Vec::new(),
            changes: Vec::new(),
            flags6: PEER_V6,
        }
    }

    /// Whether UDP over IPv6 gets a checksum; before the first peer.
    pub(crate) fn set_udp6_checksum(&mut self, on: bool) {
        self.flags6 = if on { PEER_V6 } else { PEER_V6 | PEER_ZERO_SUM };
    }

    /// One more user of a peer.
    pub(crate) fn acquire(&mut self, peer: Peer) -> Option<u32> {
        if let Some(&index) = self.by_address.get(&peer) {
            if let Some(slot) = &mut self.slots[index as usize] {
                slot.users += 1;
            }
            return Some(index);
        }
        let index = self.lines.take()?;
        if self.slots.len() <= index as usize {
            self.slots.resize(index as usize + 1, None);
        }
        self.slots[index as usize] = Some(Slot {
            peer,
            users: 1,
            keepers: 0,
            retiring: 0,
        });
        self.by_address.insert(peer, index);
        self.store(index, peer, NEXTHOP_BY_KERNEL);
        self.changes.push(PeerChange::Added(peer));
        Some(index)
    }

    /// One more user of a peer that is in use.
    pub(crate) fn share(&mut self, index: u32) {
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.users += 1;
        }
    }

    /// One more user, who sends nothing there.
    pub(crate) fn keep(&mut self, peer: Peer) -> Option<u32> {
        let index = self.acquire(peer)?;
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.keepers += 1;
        }
        Some(index)
    }

    /// One such user less, as [`Self::release`].
    pub(crate) fn let_go(&mut self, index: u32) -> bool {
        if let Some(Some(slot)) = self.slots.get_mut(index as usize) {
            slot.keepers -= 1;
        }
        self.release(index)
    }

    /// One user less. `true`: it was the last; call [`Self::settle`] after a grace period.
    pub(crate) fn release(&mut self, index: u32) -> bool {
        let Some(slot) = self.slots.get_mut(index as usize).and_then(Option::as_mut) else {
            return false;
        };
        slot.users -= 1;
        let last = slot.users == 0;
        slot.retiring += u32::from(last);
        last
    }

    /// The grace period of one last release is over; free the line unless it is in use again.
    pub(crate) fn settle(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else {
            return;
        };
        let Some(held) = slot else { return };
        held.retiring -= 1;
        if held.users == 0 && held.retiring == 0 {
            self.changes.push(PeerChange::Removed(held.peer));
            self.by_address.remove(&held.peer);
            *slot = None;
            self.lines.give(index);
        }
    }

    /// The next hop of a peer; `None` of one that is not in use.
    pub(crate) fn nexthop(&self, peer: Peer) -> Option<u32> {
        let &index = self.by_address.get(&peer)?;
        Some(self.table[index as usize].load(0) as u32)
    }

    /// Point a peer at another next hop: one store. A peer that is not in use is ignored.
    pub(crate) fn set_nexthop(&mut self, peer: Peer, nexthop: u32) {
        if let Some(&index) = self.by_address.get(&peer) {
            self.store(index, peer, nexthop);
        }
    }

    fn store(&self, index: u32, peer: Peer, nexthop: u32) {
        let mut line = PeerLine {
            nexthop,
            ..PeerLine::default()
        };
        for (addr, v4, v6) in [
            (peer.remote, &mut line.remote_be, &mut line.remote6),
            (peer.local, &mut line.local_be, &mut line.local6),
        ] {
            match addr {
                IpAddr::V4(addr) => *v4 = be(addr),
                IpAddr::V6(addr) => *v6 = addr.octets(),
            }
        }
        if peer.remote.is_ipv6() {
            line.flags = self.flags6;
        }
        if peer.udp {
            // A peer that is no tunnel's end does not take UDP without a checksum over IPv6 (RFC 6935).
            line.flags = line.flags & !PEER_ZERO_SUM | PEER_UDP;
        }
        let words: [u64; 8] = words_of(&line);
        // The addresses of a line in use do not change, so word 0 changes in its next hop only.
        for word in (0..words.len()).rev() {
            self.table[index as usize].publish(word, words[word]);
        }
    }

    /// Peers that sessions send to.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = Peer> + '_ {
        let slots = self.slots.iter().flatten();
        let is_used = |slot: &&Slot| slot.users > slot.keepers;
        slots.filter(is_used).map(|slot| slot.peer)
    }

    /// Append what came and went since the last call.
    pub(crate) fn take_changes(&mut self, into: &mut Vec<PeerChange>) {
        into.append(&mut self.changes);
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }
}
