//! Tunnels whose far end has said that it does not know them (Error Indication; TS 23.527, 5.3): nothing is sent into
//! them for a while, once it has said so twice.
//!
//! The SMF is told of the first one, and sets up another tunnel, has packets buffered, or ends the session. The first one
//! stops nothing: a single packet is easily forged, while a gNB that has lost a tunnel answers each packet. A word of the
//! SMF that changes a FAR of the session puts an end to the pause. So does time, because not every SMF does anything about
//! a report: the tunnel is tried again then, the SMF hears of the next Error Indication, and that one stops it at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::base::time::Time;
use crate::compiled::Tables;
use crate::slice::sessions::Sessions;
use crate::slice::tunnels::Tunnel;

/// How long an Error Indication is remembered that has stopped nothing.
const MEMORY: Duration = Duration::from_secs(60);

/// Tunnels that are remembered at most; beyond it those that would be forgotten next are.
const TUNNELS_MAX: usize = 65_536;

/// SEID, TEID and address of the far end.
type Key = (u64, u32, IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Indicated once; the SMF was told.
    Doubted,
    /// Nothing is sent into it.
    Paused,
    /// It has paused, and is tried again.
    Tried,
}

/// What an Error Indication says to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The SMF does not know yet.
    pub(crate) unheard: bool,
    /// Nothing goes into the tunnel from now on: its session must be published anew.
    pub(crate) stops: bool,
}

/// The tunnels that were indicated, and until when that is remembered, or they pause.
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    tunnels: BTreeMap<Key, (State, Time)>,
    due: BTreeSet<(Time, Key)>,
}

impl Stopped {
    /// The far end of this tunnel of a session does not know it. A tunnel pauses for `pause`.
    pub(crate) fn indicated(
        &mut self,
        now: Time,
        seid: u64,
        (teid, peer): Tunnel,
        pause: Duration,
    ) -> News {
        let key = (seid, teid, peer);
        let before = self.tunnels.get(&key).map(|(state, _)| *state);
        match before {
            None => self.set(key, State::Doubted, now.after(MEMORY)),
            Some(State::Doubted | State::Tried) => self.set(key, State::Paused, now.after(pause)),
            Some(State::Paused) => {}
        }
        News {
            unheard: matches!(before, None | Some(State::Tried)),
            stops: matches!(before, Some(State::Doubted | State::Tried)),
        }
    }

    fn set(&mut self, key: Key, state: State, until: Time) {
        self.remove(&key);
        self.tunnels.insert(key, (state, until));
        self.due.insert((until, key));
    }

    fn remove(&mut self, key: &Key) {
        if let Some((_, until)) = self.tunnels.remove(key) {
            self.due.remove(&(until, *key));
        }
    }

    /// Those of one session that pause.
    pub(crate) fn of(&self, seid: u64) -> impl Iterator<Item = Tunnel> + '_ {
        let paused = |(tunnel, state)| (state == State::Paused).then_some(tunnel);
        self.of_session(seid).filter_map(paused)
    }

    fn of_session(&self, seid: u64) -> impl Iterator<Item = (Tunnel, State)> + '_ {
        let first = (seid, 0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let from = self.tunnels.range(first..);
        from.take_while(move |(key, _)| key.0 == seid)
            .map(|(&(_, teid, peer), (state, _))| ((teid, peer), *state))
    }

    /// Its SMF has said something new.
    pub(crate) fn forget(&mut self, seid: u64) {
        if self.tunnels.is_empty() {
            return;
        }
        let all: Vec<Tunnel> = self.of_session(seid).map(|(tunnel, _)| tunnel).collect();
        for (teid, peer) in all {
            self.remove(&(seid, teid, peer));
        }
    }

    /// A session one of whose tunnels is to be tried again.
    fn next_due(&mut self, now: Time) -> Option<u64> {
        loop {
            let too_many = self.tunnels.len() > TUNNELS_MAX;
            let &(until, key) = self
                .due
                .first()
                .filter(|(until, _)| too_many || *until <= now)?;
            let state = self.tunnels.get(&key).map(|(state, _)| *state);
            match state {
                Some(State::Paused) if !too_many => {
                    self.set(key, State::Tried, until.max(now).after(MEMORY));
                }
                _ => self.remove(&key),
            }
            if state == Some(State::Paused) {
                return Some(key.0);
            }
        }
    }

    /// When something falls due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(until, _)| *until)
    }
}

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
        let news = self.stopped.indicated(now, seid, tunnel, pause);
        if news.stops {
            self.publish_as_it_is(seid, tables);
        }
        news.unheard
    }

    /// Tunnels that have paused for long enough are tried again, in up to `at_most` sessions.
    pub(crate) fn resume(&mut self, now: Time, at_most: usize, tables: &mut T) {
        for _ in 0..at_most {
            let Some(seid) = self.stopped.next_due(now) else {
                return;
            };
            self.publish_as_it_is(seid, tables);
        }
    }

    /// What stops or goes on is a word of an entry that is there: there is room for it.
    fn publish_as_it_is(&mut self, seid: u64, tables: &mut T) {
        if let Some(place) = self.slab.find(seid) {
            self.publish_anew(place, seid, tables);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(3);

    fn tunnel(last: u8) -> Tunnel {
        (u32::from(last), IpAddr::from([192, 0, 2, last]))
    }

    fn news(unheard: bool, stops: bool) -> News {
        News { unheard, stops }
    }

    #[test]
    fn a_tunnel_that_is_indicated_twice_pauses_until_its_time_is_over_or_its_smf_speaks() {
        let mut stopped = Stopped::default();
        let now = Time(1_000);
        let mut indicated = |seid, of| stopped.indicated(now, seid, tunnel(of), PAUSE);
        assert_eq!(indicated(7, 1), news(true, false));
        assert_eq!(indicated(7, 1), news(false, true));
        assert_eq!(indicated(7, 1), news(false, false));
        assert_eq!(indicated(7, 2), news(true, false));
        assert_eq!(indicated(8, 1), news(true, false));
        assert_eq!(indicated(8, 1), news(false, true));
        assert_eq!(stopped.of(7).collect::<Vec<_>>(), [tunnel(1)]);
        assert_eq!(stopped.next_due(now), None);
        stopped.forget(7);
        assert_eq!(stopped.of(7).count(), 0);
        let end = now.after(PAUSE);
        assert_eq!(stopped.next_deadline(), Some(end));
        assert_eq!(stopped.next_due(end), Some(8));
        assert_eq!(stopped.next_due(end), None);
        assert_eq!(stopped.of(8).count(), 0, "it is tried");
        let again = stopped.indicated(end, 8, tunnel(1), PAUSE);
        assert_eq!(again, news(true, true));
        let end = end.after(PAUSE);
        assert_eq!(stopped.next_due(end), Some(8));
        assert_eq!(stopped.next_due(end.after(MEMORY)), None);
        assert_eq!(stopped.next_deadline(), None);
    }

    #[test]
    fn two_indications_that_lie_far_apart_stop_nothing() {
        let mut stopped = Stopped::default();
        let end = Time(0).after(MEMORY);
        assert_eq!(
            stopped.indicated(Time(0), 7, tunnel(1), PAUSE),
            news(true, false)
        );
        assert_eq!(stopped.next_due(end), None);
        assert_eq!(
            stopped.indicated(end, 7, tunnel(1), PAUSE),
            news(true, false)
        );
    }

    #[test]
    fn tunnels_that_are_remembered_are_bounded() {
        let mut stopped = Stopped::default();
        for seid in 0..TUNNELS_MAX as u64 {
            for _ in 0..2 {
                stopped.indicated(Time(seid), seid, tunnel(1), PAUSE);
            }
        }
        assert_eq!(stopped.next_due(Time(0)), None);
        stopped.indicated(Time(0), 99_999, tunnel(1), PAUSE);
        assert_eq!(stopped.next_due(Time(0)), Some(0));
        assert_eq!(stopped.next_due(Time(0)), None);
        assert_eq!(stopped.tunnels.len(), TUNNELS_MAX);
    }
}
