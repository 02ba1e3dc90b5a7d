//! Applications that PDIs name (Application ID, TS 29.244, 8.2.6), told by the flows of their PFDs (6.2.5).
//!
//! An application whose PFDs are flows is nothing but filters: its PDRs are compiled with them, and compiled anew when
//! its PFDs change. What only a look into packets could tell (domain names, URLs) no PDR may name.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::ids::{PartyId, PeerId};
use crate::base::pfd::{Property, flows_of};
use crate::base::slab::Place;
use crate::rules::Pdr;
use crate::rules::flows::{Flows, NO_FLOWS};

/// Applications, each of one party.
type Names = BTreeSet<(PartyId, Box<str>)>;

/// Applications and who names them.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    /// Party by whose PFDs the sessions of a peer go; of a peer that is gone: none.
    pub(crate) parties: BTreeMap<PeerId, PartyId>,
    /// Of those with PFDs by which packets can be told.
    flows: BTreeMap<PartyId, Flows>,
    /// PDRs of a peer that name an application; those that none names are not here.
    users: BTreeMap<(PeerId, Box<str>), usize>,
    /// Came to be users, or ceased to, since the node was told.
    news: BTreeMap<(PeerId, Box<str>), bool>,
    /// Of those that PDRs name: changed since the pass under way began.
    changed: Names,
    pub(crate) pass: Option<Pass>,
}

/// Over all sessions, for those that name an application whose flows have changed.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) names: Names,
    /// Looked at next.
    pub(crate) at: Place,
    /// Sessions that keep what they had.
    pub(crate) failed: usize,
}

impl Applications {
    /// Flows that the sessions of a peer go by.
    pub(crate) fn flows(&self, peer: PeerId) -> &Flows {
        let party = self.parties.get(&peer);
        let flows = party.and_then(|party| self.flows.get(party));
        flows.unwrap_or(&NO_FLOWS)
    }

    /// The sessions of this peer go by the PFDs of this party from now on.
    pub(crate) fn join(&mut self, peer: PeerId, party: PartyId) {
        let before = self.parties.insert(peer, party);
        if before == Some(party) {
            return;
        }
        let used = self.users.keys().filter(|(user, _)| *user == peer);
        for name in used.map(|(_, name)| name.clone()) {
            let flows = self.flows.entry(party).or_default();
            flows.entry(name.clone()).or_default();
            self.changed.insert((party, name));
        }
        if let Some(before) = before {
            self.forget_unused(before);
        }
    }

    /// This peer is no more. Its sessions, which nobody finds any more, stay as they are.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        if let Some(party) = self.parties.remove(&peer) {
            self.forget_unused(party);
        }
    }

    /// Applications without PFDs that no PDR of a party names any more.
    fn forget_unused(&mut self, party: PartyId) {
        let Some(mut flows) = self.flows.remove(&party) else {
            return;
        };
        flows.retain(|name, flows| !flows.is_empty() || self.is_used(party, name));
        if !flows.is_empty() {
            self.flows.insert(party, flows);
        }
    }

    pub(crate) fn forget_party(&mut self, party: PartyId) {
        self.flows.remove(&party);
    }

    fn is_used(&self, party: PartyId, name: &str) -> bool {
        let mut members = self.parties.iter().filter(|(_, of)| **of == party);
        members.any(|(peer, _)| self.users.contains_key(&(*peer, name.into())))
    }

    /// The PFDs of an application are these from now on, none if they were taken away.
    pub(crate) fn provision(&mut self, party: PartyId, name: &str, properties: &[Property]) {
        let is_used = self.is_used(party, name);
        let flows = Some(properties).filter(|all| !all.is_empty());
        let flows = flows.and_then(flows_of);
        // Without PFDs no packet is of it.
        let flows = flows.or_else(|| is_used.then(Box::default));
        let of_party = self.flows.entry(party).or_default();
        if of_party.get(name) == flows.as_ref() {
            return;
        }
        match flows {
            Some(flows) => of_party.insert(name.into(), flows),
            None => of_party.remove(name),
        };
        if is_used {
            self.changed.insert((party, name.into()));
        }
    }

    /// PDRs of a peer's session come in the place of others.
    pub(crate) fn keep(&mut self, peer: PeerId, before: &[Pdr], after: &[Pdr]) {
        for name in after.iter().filter_map(|pdr| pdr.pdi.application()) {
            let users = self.users.entry((peer, name.into())).or_default();
            *users += 1;
            if *users == 1 {
                self.news.insert((peer, name.into()), true);
            }
        }
        for name in before.iter().filter_map(|pdr| pdr.pdi.application()) {
            self.leave(peer, name);
        }
    }

    /// A PDR of this peer no longer names the application.
    fn leave(&mut self, peer: PeerId, name: &str) {
        let key = (peer, name.into());
        let Some(users) = self.users.get_mut(&key) else {
            return;
        };
        *users -= 1;
        if *users > 0 {
            return;
        }
        self.users.remove(&key);
        self.news.insert((peer, name.into()), false);
        let Some(party) = self.parties.get(&peer).copied() else {
            return;
        };
        if !self.is_used(party, name)
            && let Some(flows) = self.flows.get_mut(&party)
            && flows.get(name).is_some_and(|flows| flows.is_empty())
        {
            flows.remove(name);
        }
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Peers whose PDRs name an application now, or do not any more, since this was last asked.
    pub(crate) fn take_news(&mut self) -> BTreeMap<(PeerId, Box<str>), bool> {
        std::mem::take(&mut self.news)
    }

    /// Whether sessions are still to be compiled anew.
    pub(crate) fn is_behind(&self) -> bool {
        self.pass.is_some() || !self.changed.is_empty()
    }

    /// The pass under way, or one for what has changed since the last one began: what changes meanwhile does not keep it
    /// from its end.
    pub(crate) fn pass(&mut self) -> Option<&mut Pass> {
        if self.pass.is_none() && !self.changed.is_empty() {
            self.pass = Some(Pass {
                names: std::mem::take(&mut self.changed),
                at: Place::FIRST,
                failed: 0,
            });
        }
        self.pass.as_mut()
    }
}
