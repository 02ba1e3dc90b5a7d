//! Work that falls due. Indexes say which sessions are; all of them are asked here, and nowhere else.

use compiled::Tables;

use crate::base::time::Time;
use crate::between::to_node::{Outputs, ToNode};
use crate::shard::Shard;

/// Sessions whose PDRs come or go before other work may go first.
const SESSIONS_PER_STEP: usize = 256;

impl<T: Tables> Shard<T> {
    /// Does what is due.
    pub(super) fn advance(&mut self, now: Time, out: &mut Outputs) {
        if !self.finishing.closing {
            self.look_for_inactivity(now, out);
            self.keep_usage(now, out);
            self.page(now, out);
            let (sessions, tables) = (&mut self.sessions, &mut self.tables);
            sessions.keep_times(now, SESSIONS_PER_STEP, tables);
            sessions.resume(now, SESSIONS_PER_STEP, tables);
        }
        self.keep_finishing(now, out);
        if self.sessions.tunnels.is_behind() {
            self.look_up_tunnels(now, out);
        }
        if self.sessions.applications.is_behind() {
            self.fit_to_pfds(out);
        }
        if self.sweep.left > 0 {
            self.sweep_step(now, out);
        }
    }

    /// When something falls due; in the past: at once, but other work may go first.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let sessions = &self.sessions;
        let indexing = sessions.tunnels.is_behind() || sessions.applications.is_behind();
        if self.sweep.left > 0 || indexing || self.finishing.is_behind() {
            return Some(Time(0));
        }
        let sessions = (!self.finishing.closing).then_some(sessions)?;
        let due = [
            sessions.inactivity.next_deadline(),
            sessions.deferred.next_deadline(),
            sessions.usage.next_deadline(),
            sessions.stopped.next_deadline(),
            sessions.paging.next_deadline(),
        ];
        due.into_iter().flatten().min()
    }

    /// Deletes some more sessions that have lost their SMF.
    pub(super) fn sweep_step(&mut self, now: Time, out: &mut Outputs) {
        let before = self.sweep.left;
        let at_most = self.config.deletions_per_step.max(1);
        let tables = &mut self.tables;
        self.sweep.left = if self.finishing.closing && self.smfs.is_empty() {
            self.sessions.let_be(now, at_most, tables)
        } else {
            self.sessions.reap(now, at_most, tables)
        };
        out.say(ToNode::Deleted(before.saturating_sub(self.sweep.left)));
        if self.sweep.left == 0 {
            out.say(ToNode::Swept(self.sweep.last_gone));
        }
    }
}
