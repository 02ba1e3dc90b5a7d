//! PDRs that begin to hold, or cease to, in the sessions that have them ([`crate::shard::index::deferred`]).

use compiled::Tables;

use crate::base::slab::Place;
use crate::base::time::Time;
use crate::compile::compiler;
use crate::rules::PacketRules;
use crate::shard::index::deferred::{Deferral, Deferred};
use crate::shard::sessions::Sessions;

impl<T: Tables> Sessions<T> {
    /// Writes the times of the draft's PDRs into the session.
    pub(crate) fn defer(&mut self, now: Time, seid: u64) {
        let timings = std::mem::take(&mut self.draft.timings);
        let deferred = &mut self.deferred;
        let Some(session) = self.slab.find_mut(seid) else {
            return;
        };
        if timings.is_empty() && session.context.deferral().is_none() {
            return;
        }
        session.context.change_rare(|rare| {
            rare.deferral = deferred.set(now, seid, rare.deferral.as_ref(), timings);
        });
    }

    /// PDRs whose times have come: packets meet them, or no longer do, in up to `at_most` sessions.
    pub(crate) fn keep_times(&mut self, now: Time, at_most: usize, tables: &mut T) {
        for _ in 0..at_most {
            let Some(seid) = self.deferred.next_due(now) else {
                return;
            };
            self.with_deferral(seid, |deferred, deferral| {
                deferred.schedule(seid, deferral, deferred.now_s(now));
            });
            let Some(place) = self.slab.find(seid) else {
                continue;
            };
            if !self.publish_anew(place, seid, tables) {
                self.with_deferral(seid, |deferred, deferral| {
                    deferred.retry(now, seid, deferral);
                });
            }
        }
    }

    fn with_deferral(&mut self, seid: u64, change: impl FnOnce(&mut Deferred, &mut Deferral)) {
        let deferred = &mut self.deferred;
        if let Some(session) = self
            .slab
            .find_mut(seid)
            .filter(|s| s.context.deferral().is_some())
        {
            session.context.change_rare(|rare| {
                if let Some(deferral) = &mut rare.deferral {
                    change(deferred, deferral);
                }
            });
        }
    }

    /// Packets meet the rules of a session as they are now. Whether there was room.
    pub(crate) fn publish_anew(&mut self, place: Place, seid: u64, tables: &mut T) -> bool {
        tables.hold(place.index());
        let Some(session) = self.slab.get_mut(place) else {
            return true;
        };
        let context = &session.context;
        context.closed(&mut self.closed);
        self.stopped_now.clear();
        self.stopped_now.extend(context.paused());
        let rules = context.rules();
        let rules = PacketRules {
            dormant: context.dormant(),
            closed: &self.closed,
            predefined: &self.site.predefined,
            applications: self.applications.flows(session.peer),
            stopped: &self.stopped_now,
            ..rules.for_packets()
        };
        let compiled = &mut self.compiled;
        let reaches = |peer| tables.reaches(peer);
        let compiling = self.compiler.compile(rules, &self.site, &reaches, compiled);
        compiler::name(compiled, seid, rules.pdrs);
        let payer = self.ledger.payer(session.peer, place);
        let handle = &mut session.handle;
        compiling.is_ok() && self.ledger.publish(payer, handle, compiled, tables).is_ok()
    }
}
