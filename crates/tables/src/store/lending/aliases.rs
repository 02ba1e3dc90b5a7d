//! Addresses that tunnels of lent sessions may lead to, and how many need each.

use std::net::IpAddr;

use nexthop::Peer;

use super::{ALIASES, Beside, Lending};
use crate::abi::host::{TP_N4_STAYS, TP_N4_WAYS, tp_n4_alias, tp_n4_line};

/// An address that tunnels lead to, and ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alias {
    pub(super) remote: IpAddr,
    pub(super) local: IpAddr,
    /// FARs of lent sessions whose tunnel leads there.
    pub(super) users: u32,
}

/// Octets of an address in front, and how many.
fn octets_of(address: IpAddr) -> ([u8; 16], u8) {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => octets = v6.octets(),
    }
    (octets, if address.is_ipv4() { 4 } else { 16 })
}

/// As `tp_n4_mix()`.
fn mix(value: u64) -> u64 {
    let mut x = value;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Lending {
    /// None of these FARs leads anywhere any more.
    pub(super) fn leave_all(&mut self, line: &tp_n4_line, beside: &mut Beside<'_>) {
        for (&alias, &state) in line.alias.iter().zip(&line.state) {
            if u32::from(state) != TP_N4_STAYS {
                self.leave(alias, beside);
            }
        }
    }

    /// The place of an address, with one user more. `None`: there is no room, or none for a peer.
    pub(super) fn join(
        &mut self,
        remote: IpAddr,
        local: IpAddr,
        through: u8,
        beside: &mut Beside<'_>,
    ) -> Option<u16> {
        let (octets, length) = octets_of(remote);
        let [first, second] = [0, 8].map(|at| {
            let word = octets.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(word))
        });
        let (first, second) = (first?, second?);
        let hash = mix(mix(first ^ self.config.salt) ^ second ^ u64::from(through)) >> 32;
        let set = hash as usize & (ALIASES - 1) & !(TP_N4_WAYS as usize - 1);
        let ways = set..set + TP_N4_WAYS as usize;
        let is = |alias: &tp_n4_alias| {
            (alias.length, alias.through, alias.address) == (length, through, octets)
        };
        let known = ways.clone().find(|&at| is(&self.aliases[at]));
        if let Some(at) = known {
            let known = self.known[at].as_mut()?;
            known.users += 1;
            return Some(at as u16);
        }
        let at = ways.clone().find(|&at| self.aliases[at].length == 0)?;
        let udp = false;
        let peer = Peer { remote, local, udp };
        let peer = beside.node.peers.keep(peer)?;
        let alias = tp_n4_alias {
            address: octets,
            peer,
            length,
            through,
            ..tp_n4_alias::default()
        };
        self.set_alias(at, alias);
        let users = 1;
        self.known[at] = Some(Alias {
            remote,
            local,
            users,
        });
        Some(at as u16)
    }

    /// One user of an alias less; without any it goes.
    pub(super) fn leave(&mut self, alias: u16, beside: &mut Beside<'_>) {
        let at = usize::from(alias);
        let Some(Some(known)) = self.known.get_mut(at) else {
            return;
        };
        known.users -= 1;
        if known.users == 0 {
            match &mut self.beside {
                // A request that was served, and not heard of yet, may lead there.
                Some(beside) => {
                    beside.unused.insert(alias);
                }
                None => self.forget(at, beside),
            }
        }
    }

    pub(super) fn forget(&mut self, at: usize, beside: &mut Beside<'_>) {
        self.known[at] = None;
        let peer = self.aliases[at].peer;
        self.set_alias(at, tp_n4_alias::default());
        beside.node.let_go_of_peer(peer, beside.grace);
    }

    pub(super) fn set_alias(&mut self, at: usize, alias: tp_n4_alias) {
        self.aliases[at] = alias;
        if let Some(engine) = self.engine() {
            engine.set_alias(at, &alias);
        }
    }
}
