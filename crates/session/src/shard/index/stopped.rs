//! Tunnels whose far end has said that it does not know them (Error Indication; TS 23.527, 5.3): nothing is sent into
//! them for a while, once it has said so twice.
//!
//! The SMF is told of the first one, and sets up another tunnel, has packets buffered, or ends the session. The first one
//! stops nothing: a single packet is easily forged, while a gNB that has lost a tunnel answers each packet. A word of the
//! SMF that changes a FAR of the session puts an end to the pause. So does time, because not every SMF does anything about
//! a report: the tunnel is tried again then, the SMF hears of the next Error Indication, and that one stops it at once.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::gtpu::Tunnel;
use crate::base::time::Time;

/// How long an Error Indication is remembered that has stopped nothing.
const MEMORY: Duration = Duration::from_secs(60);

/// Tunnels that are remembered at most; beyond it those that would be forgotten next are.
const TUNNELS_MAX: usize = 65_536;

/// SEID, TEID and address of the far end.
type Key = (u64, u32, IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// Indicated once; the SMF was told.
    Doubted,
    /// Nothing is sent into it.
    Paused,
    /// It has paused, and is tried again.
    Tried,
}

/// Consequences of an Error Indication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The SMF does not know yet.
    pub(crate) unheard: bool,
    /// Nothing goes into the tunnel from now on: its session must be published anew.
    pub(crate) stops: bool,
}

/// Tunnels of a session that were indicated, in order, and until when that is remembered, or they pause.
pub(crate) type Indicated = Box<[(Tunnel, State, Time)]>;

/// Tunnels that pause.
pub(crate) fn paused(indicated: &Indicated) -> impl Iterator<Item = Tunnel> + '_ {
    let paused = indicated
        .iter()
        .filter(|(_, state, _)| *state == State::Paused);
    paused.map(|(tunnel, ..)| *tunnel)
}

/// When such tunnels are due. There is one entry of each.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub(crate) struct Stopped {
    pub(crate) due: BTreeSet<(Time, Key)>,
}

impl Stopped {
    /// The far end of this tunnel of a session does not know it. A tunnel pauses for `pause`.
    pub(crate) fn indicated(
        &mut self,
        now: Time,
        (seid, indicated): (u64, &mut Indicated),
        tunnel: Tunnel,
        pause: Duration,
    ) -> News {
        let known = indicated.iter().find(|(known, ..)| *known == tunnel);
        let before = known.map(|(_, state, _)| *state);
        let next = match before {
            None => Some((State::Doubted, now.after(MEMORY))),
            Some(State::Doubted | State::Tried) => Some((State::Paused, now.after(pause))),
            Some(State::Paused) => None,
        };
        if next.is_some() {
            self.set((seid, indicated), tunnel, next);
        }
        News {
            unheard: matches!(before, None | Some(State::Tried)),
            stops: matches!(before, Some(State::Doubted | State::Tried)),
        }
    }

    /// `None`: it is remembered no more.
    pub(crate) fn set(
        &mut self,
        (seid, indicated): (u64, &mut Indicated),
        tunnel: Tunnel,
        next: Option<(State, Time)>,
    ) {
        let key = (seid, tunnel.0, tunnel.1);
        let mut all = std::mem::take(indicated).into_vec();
        if let Some(at) = all.iter().position(|(known, ..)| *known == tunnel) {
            let (.., until) = all.remove(at);
            self.due.remove(&(until, key));
        }
        if let Some((state, until)) = next {
            let at = all.partition_point(|(known, ..)| *known < tunnel);
            all.insert(at, (tunnel, state, until));
            self.due.insert((until, key));
        }
        *indicated = all.into();
    }

    /// The session has come with these.
    pub(crate) fn index(&mut self, seid: u64, indicated: &Indicated) {
        let due = indicated.iter();
        let due = due.map(|((teid, peer), _, until)| (*until, (seid, *teid, *peer)));
        self.due.extend(due);
    }

    /// The session is gone, or its SMF has said something new. Whether the index had what follows from it.
    pub(crate) fn unindex(&mut self, seid: u64, indicated: &Indicated) -> bool {
        let mut had_all = true;
        for ((teid, peer), _, until) in indicated {
            had_all &= self.due.remove(&(*until, (seid, *teid, *peer)));
        }
        had_all
    }

    /// A tunnel that is to be tried again or forgotten, and its session. `true`: because there are too many.
    pub(crate) fn next_due(&self, now: Time) -> Option<(u64, Tunnel, bool)> {
        let too_many = self.due.len() > TUNNELS_MAX;
        let first = self.due.first();
        let &(_, (seid, teid, peer)) = first.filter(|(until, _)| too_many || *until <= now)?;
        Some((seid, (teid, peer), too_many))
    }

    /// The tunnel is due. Whether its session is to be published anew.
    pub(crate) fn pass(
        &mut self,
        now: Time,
        (seid, indicated): (u64, &mut Indicated),
        (tunnel, too_many): (Tunnel, bool),
    ) -> bool {
        let known = indicated.iter().find(|(known, ..)| *known == tunnel);
        let before = known.map(|(_, state, until)| (*state, *until));
        let next = match before {
            Some((State::Paused, until)) if !too_many => {
                Some((State::Tried, until.max(now).after(MEMORY)))
            }
            _ => None,
        };
        self.set((seid, indicated), tunnel, next);
        before.is_some_and(|(state, _)| state == State::Paused)
    }

    /// When something falls due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PAUSE: Duration = Duration::from_secs(3);

    fn tunnel(last: u8) -> Tunnel {
        (u32::from(last), IpAddr::from([192, 0, 2, last]))
    }

    /// Sessions, each with the tunnels that are kept of it.
    #[derive(Default)]
    struct World {
        stopped: Stopped,
        sessions: BTreeMap<u64, Indicated>,
    }

    impl World {
        pub(crate) fn indicated(
            &mut self,
            now: Time,
            seid: u64,
            tunnel: Tunnel,
            pause: Duration,
        ) -> News {
            let indicated = self.sessions.entry(seid).or_default();
            (self.stopped).indicated(now, (seid, indicated), tunnel, pause)
        }

        fn of(&self, seid: u64) -> impl Iterator<Item = Tunnel> + '_ {
            self.sessions.get(&seid).into_iter().flat_map(paused)
        }

        fn forget(&mut self, seid: u64) {
            if let Some(indicated) = self.sessions.remove(&seid) {
                self.stopped.unindex(seid, &indicated);
            }
        }

        pub(crate) fn next_due(&mut self, now: Time) -> Option<u64> {
            loop {
                let (seid, tunnel, too_many) = self.stopped.next_due(now)?;
                let indicated = self.sessions.entry(seid).or_default();
                if (self.stopped).pass(now, (seid, indicated), (tunnel, too_many)) {
                    return Some(seid);
                }
            }
        }

        fn next_deadline(&self) -> Option<Time> {
            self.stopped.next_deadline()
        }
    }

    fn news(unheard: bool, stops: bool) -> News {
        News { unheard, stops }
    }

    #[test]
    fn a_tunnel_that_is_indicated_twice_pauses_until_its_time_is_over_or_its_smf_speaks() {
        let mut stopped = World::default();
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
        let mut stopped = World::default();
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
        let mut stopped = World::default();
        for seid in 0..TUNNELS_MAX as u64 {
            for _ in 0..2 {
                stopped.indicated(Time(seid), seid, tunnel(1), PAUSE);
            }
        }
        assert_eq!(stopped.next_due(Time(0)), None);
        stopped.indicated(Time(0), 99_999, tunnel(1), PAUSE);
        assert_eq!(stopped.next_due(Time(0)), Some(0));
        assert_eq!(stopped.next_due(Time(0)), None);
        assert_eq!(stopped.stopped.due.len(), TUNNELS_MAX);
    }
}
