//! Sessions beyond its share that an SMF loses when it does not answer and another one needs the room.

use std::time::Duration;

use compiled::{Resource, Tables};

use crate::base::ids::{PartyId, PeerId};
use crate::base::refusal::Refusal;
use crate::base::shortage::Shortage;
use crate::base::slab::Place;
use crate::base::time::Time;
use crate::between::smf::Smf;
use crate::between::to_node::{Displaced, Outputs, ToNode};
use crate::rules::Apply;
use crate::shard::Shard;
use crate::shard::context::Context;

/// An SMF that has not been heard for so long, and answers no heartbeat, may lose what it has above its share.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// The oldest sessions of such an SMF, among which one is chosen: a request must not wait for a look at a million.
const LOOK_AT: usize = 256;

/// Sessions that are deleted for one request at most: it may need the entries of several.
pub(crate) const PER_REQUEST: usize = 8;

impl<T: Tables> Shard<T> {
    /// Deletes a session of an SMF that does not answer, if it has more than its share of what a request was refused for want of.
    /// Whether it did: then the request may be tried again.
    pub(crate) fn displace_one(
        &mut self,
        now: Time,
        out: &mut Outputs,
        wanted_by: PeerId,
        refusal: &Refusal,
    ) -> bool {
        let Some(Shortage {
            table,
            resource: Some(resource),
            ..
        }) = refusal.shortage
        else {
            return false;
        };
        let Some(peer) = self.most_beyond(now, wanted_by, resource) else {
            return false;
        };
        let Some(place) = self.dispensable(peer, resource) else {
            return false;
        };
        let Some(seid) = self.sessions.slab.seid(place) else {
            return false;
        };
        let cp_seid = self.sessions.owner(seid).map_or(0, |(_, cp_seid)| cp_seid);
        self.sessions.delete_one(place);
        // It is the first to go of those that are to.
        self.sessions.reap(now, 1, &mut self.tables);
        out.say(ToNode::Displaced(Displaced {
            peer,
            seid,
            cp_seid,
            table,
        }));
        true
    }

    /// Of the SMFs that have been silent for long the one that is furthest beyond its share.
    fn most_beyond(&self, now: Time, wanted_by: PeerId, resource: Resource) -> Option<PeerId> {
        let own = self.smfs.get(&wanted_by).map(|smf| smf.party);
        let is_silent =
            |smf: &Smf| (smf.silent_since).is_some_and(|heard| now.since(heard) >= SILENT_FOR);
        let all_are = |party: PartyId| {
            let mut members = self.smfs.values().filter(|smf| smf.party == party);
            members.all(is_silent)
        };
        let silent = self
            .smfs
            .iter()
            .filter(|(_, smf)| is_silent(smf) && Some(smf.party) != own && all_are(smf.party));
        let beyond = silent.map(|(peer, _)| (self.beyond(*peer, resource), *peer));
        let most = beyond.max_by_key(|(beyond, _)| *beyond)?;
        (most.0 > 0).then_some(most.1)
    }

    fn beyond(&self, peer: PeerId, resource: Resource) -> u64 {
        let whole = match resource {
            Resource::Sessions => Some(self.config.limits.sessions.into()),
            of => self.tables.room(of),
        };
        whole.map_or(0, |whole| {
            self.sessions.ledger.beyond(peer, resource, whole)
        })
    }

    /// A session whose end frees some of this without taking of the share: of the oldest the first whose UE is idle, or else the
    /// first.
    fn dispensable(&self, peer: PeerId, resource: Resource) -> Option<Place> {
        let (sessions, beyond) = (&self.sessions, self.beyond(peer, resource));
        let mut oldest = None;
        let mut next = sessions.peers.get(&peer)?.last;
        for _ in 0..LOOK_AT {
            let Some(place) = next else { break };
            let session = sessions.slab.get(place)?;
            next = session.previous;
            let held = match resource {
                Resource::Sessions => 1,
                of => self.tables.holds(&session.handle).of(of),
            };
            if held == 0 || held > beyond || sessions.ledger.is_emergency(place) {
                continue;
            }
            if is_idle(&session.context) {
                return Some(place);
            }
            oldest = oldest.or(Some(place));
        }
        oldest
    }
}

/// Nothing is forwarded into a tunnel, as SMFs leave it for a UE in CM-IDLE (TS 23.502, 4.2.6).
fn is_idle(context: &Context) -> bool {
    let rules = context.rules();
    let mut forwarding = rules.fars.iter().filter(|far| far.apply == Apply::Forward);
    !forwarding.any(|far| far.forwarding().is_some_and(|to| to.tunnel.is_some()))
}
