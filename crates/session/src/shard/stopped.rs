//! Tunnels that pause, in the sessions that send into them ([`crate::shard::index::stopped`]).

use std::time::Duration;

use compiled::Tables;

use crate::base::gtpu::Tunnel;
use crate::base::time::Time;
use crate::shard::session::Session;
use crate::shard::sessions::Sessions;

impl<T: Tables> Sessions<T> {
    /// The far end of this tunnel of a session does not know it; when it says so again, nothing goes into it for `pause`.
    /// `false`: the SMF has been told.
    pub(crate) fn indicated(
        &mut self,
        now: Time,
        seid: u64,
        tunnel: Tunnel,
        pause: Duration,
        tables: &mut T,
    ) -> bool {
        self.hold(seid, tables);
        let (stopped, session) = (&mut self.stopped, self.slab.find_mut(seid));
        let Some(session) = session else { return false };
        let news = session
            .context
            .change_rare(|rare| stopped.indicated(now, (seid, &mut rare.indicated), tunnel, pause));
        if news.stops {
            self.publish_as_it_is(seid, tables);
        }
        news.unheard
    }

    /// Tunnels that have paused for long enough are tried again, in up to `at_most` sessions.
    pub(crate) fn resume(&mut self, now: Time, at_most: usize, tables: &mut T) {
        for _ in 0..at_most {
            let Some(seid) = self.next_to_resume(now) else {
                return;
            };
            self.publish_as_it_is(seid, tables);
        }
    }

    /// A session one of whose tunnels is to be tried again.
    fn next_to_resume(&mut self, now: Time) -> Option<u64> {
        loop {
            let (seid, tunnel, too_many) = self.stopped.next_due(now)?;
            let (stopped, session) = (&mut self.stopped, self.slab.find_mut(seid));
            let Some(session) = session else {
                stopped.due.pop_first();
                continue;
            };
            let resumes = session.context.change_rare(|rare| {
                stopped.pass(now, (seid, &mut rare.indicated), (tunnel, too_many))
            });
            if resumes {
                return Some(seid);
            }
        }
    }

    /// The SMF of a session has said something new of its tunnels.
    pub(crate) fn forget_indicated(&mut self, seid: u64) {
        let stopped = &mut self.stopped;
        let has_some = |session: &&mut Session<T::Handle>| {
            (session.context.rare()).is_some_and(|rare| !rare.indicated.is_empty())
        };
        if let Some(session) = self.slab.find_mut(seid).filter(has_some) {
            session.context.change_rare(|rare| {
                stopped.unindex(seid, &rare.indicated);
                rare.indicated = Box::default();
            });
        }
    }

    /// Publishes tunnels that stop or go on: a word of an entry that is there, so there is room for it.
    fn publish_as_it_is(&mut self, seid: u64, tables: &mut T) {
        if let Some(place) = self.slab.find(seid) {
            self.publish_anew(place, seid, tables);
        }
    }
}
