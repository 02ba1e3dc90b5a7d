//! Tunnels whose far end has said that it does not know them (Error Indication; TS 23.527, 5.3): nothing is sent into
//! them for a while.
//!
//! The SMF is told, and sets up another tunnel, has packets buffered, or ends the session. A word of its that changes a
//! FAR of the session puts an end to the pause. So does time, because not every SMF does anything about a report: the
//! tunnel is tried again then, and the next Error Indication begins anew.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::compiled::Tables;
use crate::sessions::Sessions;
use crate::time::Time;
use crate::tunnels::Tunnel;

/// Tunnels that pause at most; beyond it the oldest are tried again early.
const TUNNELS_MAX: usize = 65_536;

/// SEID, TEID and address of the far end.
type Key = (u64, u32, IpAddr);

/// Since when it is known, and whether the tunnel pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Since {
    time: Time,
    pauses: bool,
}

/// What an Error Indication says to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The SMF does not know yet.
    pub(crate) unheard: bool,
    /// Nothing goes into the tunnel from now on: its session must be published anew.
    pub(crate) stops: bool,
}

/// The tunnels that were indicated, and since when.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    tunnels: BTreeMap<Key, Since>,
    /// In order of time; what `tunnels` does not say as well is over.
    order: VecDeque<(Time, Key)>,
}

impl Stopped {
    /// `by_its_end`: the far end of the tunnel has said so itself.
    pub(crate) fn stop(
        &mut self,
        now: Time,
        seid: u64,
        (teid, peer): Tunnel,
        by_its_end: bool,
    ) -> News {
        let key = (seid, teid, peer);
        let mut unheard = false;
        let since = self.tunnels.entry(key).or_insert_with(|| {
            unheard = true;
            self.order.push_back((now, key));
            Since {
                time: now,
                pauses: false,
            }
        });
        let stops = by_its_end && !since.pauses;
        since.pauses |= by_its_end;
        News { unheard, stops }
    }

    /// Those of one session that pause.
    pub(crate) fn of(&self, seid: u64) -> impl Iterator<Item = Tunnel> + '_ {
        let pausing = self.indicated(seid).filter(|(_, since)| since.pauses);
        pausing.map(|(tunnel, _)| tunnel)
    }

    fn indicated(&self, seid: u64) -> impl Iterator<Item = (Tunnel, &Since)> + '_ {
        let first = (seid, 0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let from = self.tunnels.range(first..);
        from.take_while(move |(key, _)| key.0 == seid)
            .map(|(&(_, teid, peer), since)| ((teid, peer), since))
    }

    /// Its SMF has said something new.
    pub(crate) fn forget(&mut self, seid: u64) {
        if self.tunnels.is_empty() {
            return;
        }
        let all: Vec<Tunnel> = self.indicated(seid).map(|(tunnel, _)| tunnel).collect();
        for (teid, peer) in all {
            self.tunnels.remove(&(seid, teid, peer));
        }
    }

    /// A session one of whose tunnels has paused for `lifetime`.
    fn next_due(&mut self, now: Time, lifetime: Duration) -> Option<u64> {
        while let Some(&(time, key)) = self.order.front() {
            if now.since(time) < lifetime && self.order.len() <= TUNNELS_MAX {
                return None;
            }
            self.order.pop_front();
            let since = self.tunnels.get(&key).filter(|since| since.time == time);
            let Some(Since { pauses, .. }) = since.copied() else {
                continue;
            };
            self.tunnels.remove(&key);
            if pauses {
                return Some(key.0);
            }
        }
        None
    }

    /// When the first of them has paused for `lifetime`.
    pub(crate) fn next_deadline(&self, lifetime: Duration) -> Option<Time> {
        self.order.front().map(|(since, _)| since.after(lifetime))
    }
}

impl<T: Tables> Sessions<T> {
    /// The far end of this tunnel of a session does not know it: nothing goes into it from now on, if it is the far end
    /// that says so. `false`: the SMF has been told.
    pub(crate) fn stop(
        &mut self,
        now: Time,
        seid: u64,
        tunnel: Tunnel,
        by_its_end: bool,
        tables: &mut T,
    ) -> bool {
        let news = self.stopped.stop(now, seid, tunnel, by_its_end);
        if news.stops {
            self.publish_as_it_is(seid, tables);
        }
        news.unheard
    }

    /// Tunnels that have paused for `lifetime` are tried again, in up to `at_most` sessions.
    pub(crate) fn resume(&mut self, now: Time, lifetime: Duration, at_most: usize, tables: &mut T) {
        for _ in 0..at_most {
            let Some(seid) = self.stopped.next_due(now, lifetime) else {
                return;
            };
            self.publish_as_it_is(seid, tables);
        }
    }

    /// What stops or goes on is a word of an entry that is there: there is room for it.
    fn publish_as_it_is(&mut self, seid: u64, tables: &mut T) {
        if let Some(place) = self.slab.find(seid) {
            let dormant = self.deferred.dormant(seid).to_vec();
            self.publish_anew(place, seid, &dormant, tables);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(3);

    fn tunnel(last: u8) -> Tunnel {
        (u32::from(last), IpAddr::from([192, 0, 2, last]))
    }

    fn news(unheard: bool, stops: bool) -> News {
        News { unheard, stops }
    }

    #[test]
    fn a_tunnel_pauses_until_its_time_is_over_or_its_smf_speaks() {
        let mut stopped = Stopped::default();
        let now = Time(1_000);
        assert_eq!(stopped.stop(now, 7, tunnel(1), false), news(true, false));
        assert_eq!(stopped.of(7).count(), 0, "it has not said so itself");
        assert_eq!(stopped.stop(now, 7, tunnel(1), true), news(false, true));
        assert_eq!(stopped.stop(now, 7, tunnel(1), true), news(false, false));
        assert_eq!(stopped.stop(now, 7, tunnel(2), true), news(true, true));
        assert_eq!(stopped.stop(now, 8, tunnel(1), true), news(true, true));
        assert_eq!(stopped.of(7).collect::<Vec<_>>(), [tunnel(1), tunnel(2)]);
        assert_eq!(stopped.next_due(now, LIFETIME), None);
        stopped.forget(7);
        assert_eq!(stopped.of(7).count(), 0);
        assert_eq!(stopped.next_deadline(LIFETIME), Some(now.after(LIFETIME)));
        let end = now.after(LIFETIME);
        assert_eq!(stopped.next_due(end, LIFETIME), Some(8));
        assert_eq!(stopped.next_due(end, LIFETIME), None);
        assert_eq!(stopped.next_deadline(LIFETIME), None);
    }

    #[test]
    fn tunnels_that_pause_are_bounded() {
        let mut stopped = Stopped::default();
        for seid in 0..TUNNELS_MAX as u64 {
            stopped.stop(Time(0), seid, tunnel(1), true);
        }
        assert_eq!(stopped.next_due(Time(0), LIFETIME), None);
        stopped.stop(Time(0), 99_999, tunnel(1), true);
        assert_eq!(stopped.next_due(Time(0), LIFETIME), Some(0));
        assert_eq!(stopped.next_due(Time(0), LIFETIME), None);
    }
}
