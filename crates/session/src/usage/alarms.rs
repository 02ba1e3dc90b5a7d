//! When PDRs are to tell that packets have passed: what a URR has left is split over those that name it. Of a URR that
//! measures before QoS enforcement, over what they forward and what they drop there.
//!
//! A PDR tells when it has used up its share, and what is left then is split anew. Shares add up to what is left, so that
//! it is never used up before one of them tells; in the end a share is less than a packet.

use compiled::PdrId;
use smallvec::SmallVec;

use crate::usage::amount::place;
use crate::usage::measured::{UNARMED, Usage, measuring};
use crate::usage::urr_rules::UrrRules;

/// Value of an alarm after it has gone off: the data path has moved it on. No alarm is set to it, as each is a share of at
/// least one octet ahead.
const UNKNOWN: u64 = 0;

/// A count that a URR goes by: its place, [`COUNTS`] for each of [`Usage::seen`], and its direction.
type User = (usize, usize);

/// Of each PDR, what it has forwarded and what QoS enforcement has dropped of it.
const COUNTS: usize = 2;

/// Which count of a PDR an alarm is of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Armed {
    /// [`compiled::Counters::bytes`]
    Forwarded,
    /// [`compiled::Counters::qos_bytes`]
    QosDrops,
}

impl Usage {
    /// Alarms may have gone off, and would again some way on: they are set anew, or taken off.
    pub(crate) fn forget_alarms(&mut self) {
        for seen in &mut self.seen {
            seen.armed = UNKNOWN;
            // Few URRs set this one.
            if seen.qos_armed != UNARMED {
                seen.qos_armed = UNKNOWN;
            }
        }
    }

    /// Set the alarms that differ from those that are set.
    pub(crate) fn rearm(
        &mut self,
        rules: &UrrRules,
        mut arm: impl FnMut(PdrId, Armed, Option<u64>),
    ) {
        let counted = (self.seen.iter()).flat_map(|seen| [seen.bytes, seen.qos_bytes]);
        let counted: SmallVec<[u64; 8]> = counted.collect();
        let mut shares: SmallVec<[u64; 8]> = SmallVec::from_elem(UNARMED, counted.len());
        let mut users: SmallVec<[User; 8]> = SmallVec::new();
        for (urr, rule) in self.urrs.iter().zip(&rules.urrs) {
            let asks = &rule.asks;
            if asks.is_inactive() {
                continue;
            }
            users.clear();
            for (at, pdr) in measuring(&rules.pdrs).enumerate() {
                if pdr.urrs.contains(&urr.id) {
                    let counts = if asks.measures_before_qos() {
                        COUNTS
                    } else {
                        1
                    };
                    let direction = place(pdr.direction);
                    users.extend((0..counts).map(|count| (at * COUNTS + count, direction)));
                }
            }
            if urr.waits_for_a_packet(asks) {
                users.iter().for_each(|(at, _)| shares[*at] = 1);
            }
            for left in urr.limits(asks) {
                split(left.total, &users, &counted, &mut shares);
                for (direction, left) in left.of.into_iter().enumerate() {
                    let of_it: SmallVec<[User; 8]> = users
                        .iter()
                        .copied()
                        .filter(|(_, d)| *d == direction)
                        .collect();
                    split(left, &of_it, &counted, &mut shares);
                }
            }
        }
        for (seen, shares) in self.seen.iter_mut().zip(shares.chunks_exact(COUNTS)) {
            let counts = [
                (Armed::Forwarded, seen.bytes, &mut seen.armed),
                (Armed::QosDrops, seen.qos_bytes, &mut seen.qos_armed),
            ];
            for ((what, counted, armed), share) in counts.into_iter().zip(shares) {
                let alarm = counted.saturating_add(*share);
                if alarm != *armed {
                    *armed = alarm;
                    arm(seen.pdr, what, (alarm != UNARMED).then_some(alarm));
                }
            }
        }
    }
}

/// One half in equal parts, so that a PDR that comes to life does not tell too often; the other half in the
/// proportion of what each has forwarded.
fn split(left: u64, users: &[User], counted: &[u64], shares: &mut [u64]) {
    if left == u64::MAX || users.is_empty() {
        return;
    }
    let bytes = |at: usize| u128::from(counted[at]);
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
