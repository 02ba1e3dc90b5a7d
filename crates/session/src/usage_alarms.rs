//! When PDRs are to tell that packets have passed: what a URR has left is split over those that name it.
//!
//! A PDR tells when it has used up its share, and what is left then is split anew. Where little is left, each has
//! all of it, so that the last of them to tell does so when it is used up; together they pass by no more than that. Until
//! one tells, the session is looked at now and then, lest traffic ends just when they have used it up together.

use smallvec::SmallVec;

use crate::compiled::PdrId;
use crate::kept::RulesView;
use crate::usage::{Seen, UNARMED, Usage, place};

/// Octets that are not worth splitting.
const SMALL: u64 = 16 << 10;

/// A PDR that names the URR: its place in [`Usage::seen`], and its direction.
type User = (usize, usize);

impl Usage {
    /// Alarms may have gone off, and do so once: they are set anew.
    pub(crate) fn forget_alarms(&mut self) {
        for seen in &mut self.seen {
            seen.armed = UNARMED;
        }
    }

    /// Set the alarms that differ from those that are set. Whether several PDRs may use up together what is left
    /// without one of them telling.
    pub(crate) fn rearm(
        &mut self,
        rules: RulesView<'_>,
        mut arm: impl FnMut(PdrId, Option<u64>),
    ) -> bool {
        let mut close = false;
        let mut shares: SmallVec<[u64; 4]> = SmallVec::from_elem(UNARMED, self.seen.len());
        for (urr, rule) in self.urrs.iter().zip(rules.urrs) {
            let asks = &rule.asks;
            if asks.is_inactive() {
                continue;
            }
            let mut users: SmallVec<[User; 4]> = SmallVec::new();
            for (at, seen) in self.seen.iter().enumerate() {
                let pdr = rules.pdrs.iter().find(|pdr| pdr.id == seen.pdr);
                if let Some(pdr) = pdr.filter(|pdr| pdr.urrs.contains(&urr.id)) {
                    users.push((at, place(pdr.direction())));
                }
            }
            if urr.waits_for_a_packet(asks) {
                users.iter().for_each(|(at, _)| shares[*at] = 1);
            }
            for left in urr.limits(asks) {
                close |= split(left.total, &users, &self.seen, &mut shares);
                for (direction, left) in left.of.into_iter().enumerate() {
                    let of_it: SmallVec<[User; 4]> = users
                        .iter()
                        .copied()
                        .filter(|(_, d)| *d == direction)
                        .collect();
                    close |= split(left, &of_it, &self.seen, &mut shares);
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
        close
    }
}

/// One half in equal parts, so that a PDR that comes to life does not tell too often; the other half in the
/// proportion of what each has forwarded. Whether it was too little to split.
fn split(left: u64, users: &[User], seen: &[Seen], shares: &mut [u64]) -> bool {
    if left == u64::MAX || users.is_empty() {
        return false;
    }
    let bytes = |at: usize| u128::from(seen[at].bytes());
    let all: u128 = users.iter().map(|(at, _)| bytes(*at)).sum();
    let count = users.len() as u128;
    for (at, _) in users {
        let share = if left <= SMALL || count == 1 {
            left
        } else {
            let half = u128::from(left) / 2;
            let own = (half * bytes(*at)).checked_div(all).unwrap_or(half / count);
            u64::try_from(half / count + own)
                .unwrap_or(left)
                .max(SMALL / 2)
        };
        shares[*at] = shares[*at].min(share.max(1));
    }
    left <= SMALL && count > 1
}
