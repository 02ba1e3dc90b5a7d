//! Before an association is released the SMF hears of all usage (TS 29.244, 5.18): each URR that has measured something
//! reports it (TEBUR), and when all reports are answered the SMF is told that there are no more (URSS).

use compiled::Tables;

use crate::base::ids::PeerId;
use crate::base::time::Time;
use crate::between::to_node::{Outputs, ToNode};
use crate::shard::Shard;

/// Places looked at before other work may go first.
const PLACES_PER_STEP: usize = 1024;

impl<T: Tables> Shard<T> {
    /// Some more sessions of a peer have their usage reported.
    fn ask_for_usage(&mut self, now: Time, peer: PeerId) {
        let Some(next) = self.finishing.under_way.get_mut(&peer) else {
            return;
        };
        for _ in 0..PLACES_PER_STEP {
            let Some(place) = *next else { break };
            if self.sessions.is_of(place, peer) {
                let anew = self.finishing.closing;
                (self.sessions).usage_finishes(now, place, anew, &mut self.tables);
            }
            *next = self.sessions.slab.after(place);
        }
    }

    /// A step towards the end.
    pub(super) fn keep_finishing(&mut self, now: Time, out: &mut Outputs) {
        for peer in self.finishing.unfinished() {
            self.ask_for_usage(now, peer);
            self.tell_usage(now, out);
            self.may_be_finished(out, peer);
        }
    }

    /// It may have been the last report that was answered: then the node hears of it.
    pub(super) fn may_be_finished(&mut self, out: &mut Outputs, peer: PeerId) {
        if self.reports.is_idle(peer) && self.finishing.end(peer) {
            out.say(ToNode::Finished(peer));
        }
    }
}
