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

/// The tunnels that pause, and since when.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    tunnels: BTreeMap<Key, Time>,
    /// In order of time; what `tunnels` does not say as well is over.
    order: VecDeque<(Time, Key)>,
}

impl Stopped {
    /// Whether this is news. Its session must be published anew then.
    pub(crate) fn stop(&mut self, now: Time, seid: u64, (teid, peer): Tunnel) -> bool {
        let key = (seid, teid, peer);
        if self.tunnels.contains_key(&key) {
            return false;
        }
        self.tunnels.insert(key, now);
        self.order.push_back((now, key));
        true
    }

    /// Those of one session.
    pub(crate) fn of(&self, seid: u64) -> impl Iterator<Item = Tunnel> + '_ {
        let first = (seid, 0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let from = self.tunnels.range(first..);
        from.take_while(move |(key, _)| key.0 == seid)
            .map(|(&(_, teid, peer), _)| (teid, peer))
    }

    /// Its SMF has said something new.
    pub(crate) fn forget(&mut self, seid: u64) {
        if self.tunnels.is_empty() {
            return;
        }
        let all: Vec<Tunnel> = self.of(seid).collect();
        for (teid, peer) in all {
            self.tunnels.remove(&(seid, teid, peer));
        }
    }

    /// A session one of whose tunnels has paused for `lifetime`.
    fn next_due(&mut self, now: Time, lifetime: Duration) -> Option<u64> {
        while let Some(&(since, key)) = self.order.front() {
            if now.since(since) < lifetime && self.order.len() <= TUNNELS_MAX {
                return None;
            }
            self.order.pop_front();
            if self.tunnels.get(&key) == Some(&since) {
                self.tunnels.remove(&key);
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
    /// Nothing goes into this tunnel of a session from now on. `false`: nothing does already.
    pub(crate) fn stop(&mut self, now: Time, seid: u64, tunnel: Tunnel, tables: &mut T) -> bool {
        let new = self.stopped.stop(now, seid, tunnel);
        if new {
            self.publish_as_it_is(seid, tables);
        }
        new
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

    #[test]
    fn a_tunnel_pauses_until_its_time_is_over_or_its_smf_speaks() {
        let mut stopped = Stopped::default();
        let now = Time(1_000);
        assert!(stopped.stop(now, 7, tunnel(1)) && !stopped.stop(now, 7, tunnel(1)));
        assert!(stopped.stop(now, 7, tunnel(2)) && stopped.stop(now, 8, tunnel(1)));
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
            stopped.stop(Time(0), seid, tunnel(1));
        }
        assert_eq!(stopped.next_due(Time(0), LIFETIME), None);
        stopped.stop(Time(0), 99_999, tunnel(1));
        assert_eq!(stopped.next_due(Time(0), LIFETIME), Some(0));
        assert_eq!(stopped.next_due(Time(0), LIFETIME), None);
    }
}
