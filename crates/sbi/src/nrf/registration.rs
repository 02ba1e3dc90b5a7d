//! Which NRF is asked for what, and when. No socket, no clock: it is told the time, and what became of each request.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::Instant;

use super::refusal::Refusal;

/// First pause after all NRFs have failed; it doubles from one time to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Times between heartbeats that are believed.
const HEARTBEAT_S: std::ops::RangeInclusive<u64> = 1..=3600;
/// Time to a second try of a heartbeat, at most: NRFs take somebody for gone who is late by more than about a period.
const SECOND_TRY: Duration = Duration::from_secs(2);

/// Heartbeats come so much before their time, or a tenth of it: some NRFs take somebody for gone who is a second late.
const EARLIER: Duration = Duration::from_secs(1);
/// After so many heartbeats that it did not take an NRF is not tried more seldom: with 2 to the power of it whole profiles between.
const WHOLE_MAX: u32 = 6;

/// Request to an NRF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The whole profile.
    Register,
    /// Load and state alone.
    Heartbeat,
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Not earlier.
    pub at: Instant,
    /// Place in the list of NRFs.
    pub server: usize,
    /// Request.
    pub verb: Verb,
}

/// A change that somebody may want to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This NRF knows us from now on.
    Registered(usize),
    /// It has forgotten us, and is told again.
    Forgotten(usize),
    /// It no longer answers, and another is asked.
    Lost(usize),
}

/// State of a registration.
#[derive(Clone, Debug)]
pub struct Registration {
    servers: Vec<Known>,
    default: Duration,
    /// NRF that knows us.
    at: Option<At>,
    /// NRF that is asked next, where none knows us.
    turn: usize,
    /// NRFs that have failed since one has known us.
    failed: u32,
    due: Instant,
}

#[derive(Clone, Debug)]
struct Known {
    /// It wants to hear nothing before.
    not_before: Option<Instant>,
    /// Heartbeats to come that are whole profiles, as it did not take another.
    whole: u32,
    /// Heartbeats that it did not take, one after the other.
    untaken: u32,
}

#[derive(Clone, Copy, Debug)]
struct At {
    server: usize,
    period: Duration,
    /// A heartbeat has failed, and is tried once more.
    is_second_try: bool,
    /// The profile has changed, or was forgotten.
    is_anew: bool,
}

impl Registration {
    /// Of so many NRFs, one at least. `default`: time between heartbeats where the NRF says none.
    pub fn new(servers: usize, default: Duration, now: Instant) -> Self {
        let known = Known {
            not_before: None,
            whole: 0,
            untaken: 0,
        };
        Self {
            servers: vec![known; servers.max(1)],
            default,
            at: None,
            turn: 0,
            failed: 0,
            due: now,
        }
    }

    /// The NRFs are others, and this one of them knows us, by what may be another profile.
    pub fn known_to(mut self, server: usize) -> Self {
        if server < self.servers.len() {
            self.at = Some(At {
                server,
                period: self.default,
                is_second_try: false,
                is_anew: true,
            });
        }
        self
    }

    /// NRF that knows us.
    pub fn registered_with(&self) -> Option<usize> {
        self.at.map(|at| at.server)
    }

    /// Time between heartbeats.
    pub fn period(&self) -> Option<Duration> {
        self.at.map(|at| at.period)
    }

    /// The next request.
    pub fn next(&self) -> Next {
        let (server, verb) = match self.at {
            Some(at) if at.is_anew || self.servers[at.server].whole > 0 => {
                (at.server, Verb::Register)
            }
            Some(at) => (at.server, Verb::Heartbeat),
            None => (self.turn, Verb::Register),
        };
        Next {
            at: self.due,
            server,
            verb,
        }
    }

    /// The profile is another one: whoever knows us is told at once.
    pub fn changed(&mut self, now: Instant) {
        if let Some(at) = &mut self.at {
            at.is_anew = true;
            self.due = now;
        }
    }

    /// Load or state is another one: whoever knows us is told at once.
    pub fn beat(&mut self, now: Instant) {
        if self.at.is_some() {
            self.due = self.due.min(now);
        }
    }

    /// Outcome of the request that [`Self::next`] named. `jitter`: 0 to 1, so that not all NFs of a core ask an NRF that has come
    /// back at the same time.
    pub fn heard(
        &mut self,
        now: Instant,
        jitter: f64,
        result: &Result<Option<Duration>, Refusal>,
    ) -> Option<Event> {
        let Next { server, verb, .. } = self.next();
        match result {
            Ok(period) => self.granted(now, (server, verb), *period),
            Err(refusal) => match self.at {
                None => {
                    self.refused(now, server, jitter, refusal);
                    None
                }
                Some(at) => self.failed_at(now, jitter, (at, verb), refusal),
            },
        }
    }

    fn granted(
        &mut self,
        now: Instant,
        (server, verb): (usize, Verb),
        said: Option<Duration>,
    ) -> Option<Event> {
        let before = self.at;
        let period = said.filter(|period| HEARTBEAT_S.contains(&period.as_secs()));
        let former = before.filter(|_| said.is_none()).map(|at| at.period);
        let period = period.or(former).unwrap_or(self.default);
        self.at = Some(At {
            server,
            period,
            is_second_try: false,
            is_anew: false,
        });
        self.failed = 0;
        let known = &mut self.servers[server];
        known.not_before = None;
        match verb {
            Verb::Register => known.whole = known.whole.saturating_sub(1),
            Verb::Heartbeat => known.untaken = 0,
        }
        self.due = now + period - EARLIER.min(period / 10);
        before.is_none().then_some(Event::Registered(server))
    }

    /// A request to the NRF that had known us was refused.
    fn failed_at(
        &mut self,
        now: Instant,
        jitter: f64,
        (at, verb): (At, Verb),
        refusal: &Refusal,
    ) -> Option<Event> {
        let status = refusal.status();
        let At { server, .. } = at;
        let again = |of: &mut Self| {
            of.at = Some(At {
                is_anew: true,
                ..at
            });
            of.due = now;
        };
        match (verb, status) {
            (Verb::Heartbeat, Some(StatusCode::NOT_FOUND)) => {
                again(self);
                return Some(Event::Forgotten(server));
            }
            (Verb::Heartbeat, Some(status)) if is_about_the_patch(status) => {
                let known = &mut self.servers[server];
                known.untaken = known.untaken.saturating_add(1);
                known.whole = 1 << known.untaken.min(WHOLE_MAX);
                again(self);
                return None;
            }
            _ => {}
        }
        let pause = refusal.retry_after();
        if !at.is_second_try && pause.is_none() {
            self.at = Some(At {
                is_second_try: true,
                ..at
            });
            self.due = now + SECOND_TRY.min(at.period / 4);
            return None;
        }
        self.at = None;
        self.refused(now, server, jitter, refusal);
        Some(Event::Lost(server))
    }

    /// The next one's turn.
    fn refused(&mut self, now: Instant, server: usize, jitter: f64, refusal: &Refusal) {
        self.servers[server].not_before = refusal.retry_after().map(|wait| now + wait);
        let count = self.servers.len();
        let round = self.failed / count as u32;
        self.failed = self.failed.saturating_add(1);
        let is_round_over = self.failed.is_multiple_of(count as u32);
        let pause = PAUSE.saturating_mul(1 << round.min(6)).min(PAUSE_MAX);
        let pause = pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 4.0);
        let earliest = if is_round_over { now + pause } else { now };
        let at = |server: usize| {
            let not_before = self.servers[server].not_before;
            not_before.map_or(earliest, |not_before| not_before.max(earliest))
        };
        let after = (1..=count).map(|step| (server + step) % count);
        // Of those that may be asked soonest the next in order.
        let turn = after.min_by_key(|&server| at(server)).unwrap_or(server);
        self.due = at(turn);
        self.turn = turn;
    }
}

/// It would take the whole profile, perhaps.
fn is_about_the_patch(status: StatusCode) -> bool {
    [
        StatusCode::BAD_REQUEST,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::CONFLICT,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::UNPROCESSABLE_ENTITY,
        StatusCode::NOT_IMPLEMENTED,
    ]
    .contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Failure;
    use proptest::prelude::*;

    type Result = std::result::Result<Option<Duration>, Refusal>;

    const SECOND: Duration = Duration::from_secs(1);
    const DEFAULT: Duration = Duration::from_secs(10);

    fn said(seconds: u64) -> Result {
        Ok(Some(Duration::from_secs(seconds)))
    }

    /// Pause before a heartbeat, where they are to come each so many seconds.
    fn after(seconds: u64) -> Duration {
        Duration::from_millis(seconds * 1000 - (seconds * 100).min(1000))
    }

    fn late() -> Result {
        Err(Refusal::Failure(Failure::Late))
    }

    fn status(status: u16, retry_after_s: Option<u64>) -> Result {
        Err(Refusal::Status {
            status: StatusCode::from_u16(status).unwrap(),
            problem: None,
            retry_after: retry_after_s.map(Duration::from_secs),
        })
    }

    /// A registration whose requests are answered when they are due.
    struct Asked {
        of: Registration,
        now: Instant,
    }

    impl Asked {
        fn new(servers: usize) -> Self {
            let now = Instant::now();
            let of = Registration::new(servers, DEFAULT, now);
            Self { of, now }
        }

        /// The next request with the pause before it, and what its answer brings about.
        fn answer(&mut self, result: Result) -> (Verb, usize, Duration, Option<Event>) {
            let next = self.of.next();
            let pause = next.at.saturating_duration_since(self.now);
            self.now = self.now.max(next.at);
            let event = self.of.heard(self.now, 0.0, &result);
            (next.verb, next.server, pause, event)
        }
    }

    use Verb::{Heartbeat, Register};
    const NOW: Duration = Duration::ZERO;

    #[test]
    fn the_nrf_says_when_heartbeats_come() {
        let mut asked = Asked::new(1);
        let registered = Some(Event::Registered(0));
        assert_eq!(asked.answer(said(7)), (Register, 0, NOW, registered));
        assert_eq!(asked.answer(Ok(None)), (Heartbeat, 0, after(7), None));
        assert_eq!(asked.answer(said(20)), (Heartbeat, 0, after(7), None));
        // An interval that no heartbeat can keep is as if it were not said.
        assert_eq!(asked.answer(said(0)), (Heartbeat, 0, after(20), None));
        assert_eq!(asked.answer(said(1 << 40)), (Heartbeat, 0, after(10), None));
        assert_eq!(asked.answer(said(3600)), (Heartbeat, 0, after(10), None));
        assert_eq!(asked.of.period(), Some(3600 * SECOND));
    }

    #[test]
    fn it_registers_again_where_it_was_forgotten() {
        let mut asked = Asked::new(2);
        asked.answer(said(7));
        let forgotten = Some(Event::Forgotten(0));
        let first = asked.answer(status(404, None));
        assert_eq!(first, (Heartbeat, 0, after(7), forgotten));
        assert_eq!(asked.answer(said(5)), (Register, 0, NOW, None));
        assert_eq!(asked.answer(Ok(None)), (Heartbeat, 0, after(5), None));
    }

    #[test]
    fn the_next_nrf_is_asked_when_one_fails_twice() {
        let mut asked = Asked::new(3);
        asked.answer(said(8));
        assert_eq!(asked.answer(late()), (Heartbeat, 0, after(8), None));
        let lost = Some(Event::Lost(0));
        assert_eq!(asked.answer(late()), (Heartbeat, 0, 2 * SECOND, lost));
        assert_eq!(asked.answer(late()), (Register, 1, NOW, None));
        let registered = Some(Event::Registered(2));
        assert_eq!(asked.answer(said(8)), (Register, 2, NOW, registered));
        // A heartbeat that came through on second thoughts counts.
        asked.answer(status(503, None));
        assert_eq!(asked.answer(Ok(None)), (Heartbeat, 2, 2 * SECOND, None));
        assert_eq!(asked.answer(Ok(None)), (Heartbeat, 2, after(8), None));
    }

    #[test]
    fn pauses_grow_when_all_fail() {
        let mut asked = Asked::new(2);
        let mut pauses = Vec::new();
        for _ in 0..18 {
            let (verb, server, pause, event) = asked.answer(late());
            assert_eq!((verb, event), (Register, None));
            pauses.push((server, pause.as_secs()));
        }
        let rounds = [0, 1, 2, 4, 8, 16, 32, 60, 60];
        let expected = rounds.iter().flat_map(|&pause| [(0, pause), (1, 0)]);
        assert_eq!(pauses, expected.collect::<Vec<_>>());
        asked.answer(said(8));
        asked.answer(late());
        asked.answer(late());
        assert_eq!(asked.answer(late()), (Register, 1, NOW, None));
        let pause = asked.answer(late()).2;
        assert_eq!(pause, SECOND, "they begin anew");
    }

    #[test]
    fn who_wants_to_be_left_alone_is_while_others_are_asked() {
        let mut asked = Asked::new(2);
        let busy = asked.answer(status(503, Some(100)));
        assert_eq!(busy, (Register, 0, NOW, None));
        assert_eq!(asked.answer(late()), (Register, 1, NOW, None));
        for _ in 0..5 {
            assert_eq!(asked.answer(late()).1, 1, "the other one alone");
        }
        let mut alone = Asked::new(1);
        alone.answer(status(429, Some(100)));
        assert_eq!(alone.answer(said(8)).2, 100 * SECOND);
        let lost = Some(Event::Lost(0));
        let busy = alone.answer(status(503, Some(30)));
        assert_eq!(busy, (Heartbeat, 0, after(8), lost));
        assert_eq!(alone.answer(said(8)).2, 30 * SECOND);
    }

    #[test]
    fn heartbeats_that_are_no_good_are_whole_profiles() {
        let mut asked = Asked::new(1);
        asked.answer(said(8));
        let refused = asked.answer(status(415, None));
        assert_eq!(refused, (Heartbeat, 0, after(8), None));
        assert_eq!(asked.answer(said(8)), (Register, 0, NOW, None));
        assert_eq!(asked.answer(said(8)), (Register, 0, after(8), None));
        // It may take one again; each time that it does not it is tried more seldom.
        for pause in [4, 8, 16, 32, 64, 64, 64] {
            assert_eq!(asked.answer(status(400, None)).0, Heartbeat);
            for _ in 0..pause {
                assert_eq!(asked.answer(said(8)).0, Register);
            }
        }
        for _ in 0..3 {
            assert_eq!(asked.answer(said(8)).0, Heartbeat);
        }
        asked.answer(status(400, None));
        for verb in [Register, Register, Heartbeat] {
            assert_eq!(asked.answer(said(8)).0, verb);
        }
    }

    #[test]
    fn changes_are_told_at_once() {
        let mut asked = Asked::new(2);
        asked.of.beat(asked.now);
        asked.of.changed(asked.now);
        asked.answer(said(8));
        asked.of.beat(asked.now);
        assert_eq!(asked.answer(Ok(None)), (Heartbeat, 0, NOW, None));
        asked.of.changed(asked.now);
        assert_eq!(asked.answer(said(8)), (Register, 0, NOW, None));
        assert_eq!(asked.answer(Ok(None)), (Heartbeat, 0, after(8), None));
        let elsewhere = Registration::new(3, DEFAULT, asked.now).known_to(2);
        assert_eq!(elsewhere.registered_with(), Some(2));
        let next = elsewhere.next();
        assert_eq!((next.verb, next.server), (Register, 2));
    }

    fn any_result() -> impl Strategy<Value = (u8, u64)> {
        (0u8..8, 0u64..5000)
    }

    fn result((kind, seconds): (u8, u64)) -> Result {
        match kind {
            0 => Ok(None),
            1 => said(seconds),
            2 => late(),
            3 => status(404, None),
            4 => status(400, None),
            5 => status(503, Some(seconds.min(600))),
            6 => status(401, None),
            _ => Err(Refusal::Rubbish(String::new())),
        }
    }

    proptest! {
        /// Whatever NRFs answer, they are asked again, and not without end at one time.
        #[test]
        fn it_never_gives_up_and_never_hammers(
            servers in 1usize..5, jitter in 0.0f64..=1.0, answers in prop::collection::vec(any_result(), 1..200),
        ) {
            let mut asked = Asked::new(servers);
            let mut at_once = 0;
            for answer in answers {
                let next = asked.of.next();
                prop_assert!(next.server < servers);
                let pause = next.at.saturating_duration_since(asked.now);
                prop_assert!(pause <= Duration::from_secs(3600));
                at_once = if pause.is_zero() { at_once + 1 } else { 0 };
                // Each once, and somebody who has just forgotten us, or takes no heartbeat, once more.
                prop_assert!(at_once <= servers + 2, "{at_once} at one time");
                asked.now = asked.now.max(next.at);
                asked.of.heard(asked.now, jitter, &result(answer));
                prop_assert_eq!(asked.of.registered_with().is_some(), asked.of.period().is_some());
            }
        }
    }
}
