//! When PDRs are to tell that packets have passed: what a URR has left is split over those that name it.
//!
//! A PDR tells when it has used up its share, and what is left then is split anew. Shares add up to what is left, so that
//! it is never used up before one of them tells; in the end a share is less than a packet.

use smallvec::SmallVec;

use crate::compiled::PdrId;
use crate::kept::RulesView;
use crate::usage::{Seen, UNARMED, Usage, measuring, place};

/// What the alarm of a PDR is after it has gone off: the data path has moved it on. No alarm is set to it, as each is a
/// share of at least one octet ahead.
const UNKNOWN: u64 = 0;

/// A PDR that names the URR: its place in [`Usage::seen`], and its direction.
type User = (usize, usize);

impl Usage {
    /// Alarms may have gone off, and would again some way on: they are set anew, or taken off.
    pub(crate) fn forget_alarms(&mut self) {
        for seen in &mut self.seen {
            seen.armed = UNKNOWN;
        }
    }

    /// Set the alarms that differ from those that are set.
    pub(crate) fn rearm(&mut self, rules: RulesView<'_>, mut arm: impl FnMut(PdrId, Option<u64>)) {
        let mut shares: SmallVec<[u64; 4]> = SmallVec::from_elem(UNARMED, self.seen.len());
        let mut users: SmallVec<[User; 4]> = SmallVec::new();
        for (urr, rule) in self.urrs.iter().zip(rules.urrs) {
            let asks = &rule.asks;
            if asks.is_inactive() {
                continue;
            }
            users.clear();
            for (at, pdr) in measuring(rules.pdrs).enumerate() {
                if pdr.urrs.contains(&urr.id) {
                    users.push((at, place(pdr.direction())));
                }
            }
            if urr.waits_for_a_packet(asks) {
                users.iter().for_each(|(at, _)| shares[*at] = 1);
            }
            for left in urr.limits(asks) {
                split(left.total, &users, &self.seen, &mut shares);
                for (direction, left) in left.of.into_iter().enumerate() {
                    let of_it: SmallVec<[User; 4]> = users
                        .iter()
                        .copied()
                        .filter(|(_, d)| *d == direction)
                        .collect();
                    split(left, &of_it, &self.seen, &mut shares);
                }
            }
        }
        for (seen, share) in self.seen.iter_mut().zip(shares) {
            let alarm = seen.bytes().saturating_add(share);
            if alarm != seen.armed {
                seen.armed = alarm;
                arm(seen.pdr, (alarm != UNARMED).then_some(alarm));
            }
        }
    }
}

/// One half in equal parts, so that a PDR that comes to life does not tell too often; the other half in the
/// proportion of what each has forwarded.
fn split(left: u64, users: &[User], seen: &[Seen], shares: &mut [u64]) {
    if left == u64::MAX || users.is_empty() {
        return;
    }
    let bytes = |at: usize| u128::from(seen[at].bytes());
    let all: u128 = users.iter().map(|(at, _)| bytes(*at)).sum();
    let count = users.len() as u128;
    for (at, _) in users {
        let share = if count == 1 {
            left
        } else {
            let half = u128::from(left) / 2;
            let own = (half * bytes(*at)).checked_div(all).unwrap_or(half / count);
            u64::try_from(half / count + own).unwrap_or(left)
        };
        shares[*at] = shares[*at].min(share.max(1));
    }
}
