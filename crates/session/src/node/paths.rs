//! Paths to GTP-U peers: asked by Echo Requests whether they still carry (TS 29.281, 7.2.1; TS 23.527,
//! 5.2 and 5.4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::base::gtpu::Ends;
use crate::base::time::Time;
use crate::rules::config::Config;

/// A path in use.
#[derive(Debug, Default)]
struct Path {
    /// Sequence number of the Echo Request that waits, and how often it was sent.
    waiting: Option<(u16, u32)>,
    due: Time,
    /// The peer has answered before. One that never did may not answer Echo Requests at all, or may
    /// be behind a filter: it is not declared failed.
    answered: bool,
    failed: bool,
    /// Its Recovery Time Stamp, where it sends one.
    recovery: Option<u32>,
}

/// A path as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// The peer's address, and ours.
    pub ends: Ends,
    /// `None`: it never has, and may be one that does not answer Echo Requests at all.
    pub answers: Option<bool>,
    /// Recovery Time Stamp of the peer, where it sends one.
    pub recovery: Option<u32>,
}

/// A path as a record has it. A request that waits for its answer is sent anew.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathRecord {
    pub(crate) ends: Ends,
    due: Time,
    answered: bool,
    failed: bool,
    recovery: Option<u32>,
}

/// Something worth a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    Failed,
    Recovered,
    Restarted,
}

/// Action for a path that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Echo { ends: Ends, sequence: u16 },
    Failed(Ends),
    Nothing,
}

/// All paths. Without an interval there are none.
#[derive(Debug)]
pub(crate) struct Paths {
    interval: Duration,
    t3: Duration,
    n3: u32,
    paths: BTreeMap<Ends, Path>,
    timers: BTreeSet<(Time, Ends)>,
    sequence: u16,
}

impl Paths {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            interval: config.echo_interval,
            t3: config.echo_t3.max(Duration::from_millis(1)),
            n3: config.echo_n3.max(1),
            paths: BTreeMap::new(),
            timers: BTreeSet::new(),
            sequence: 0,
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.interval.is_zero()
    }

    /// Sessions use these paths now. New ones are first asked within the interval, spread over it;
    /// those no longer used are forgotten.
    pub(crate) fn refresh(&mut self, now: Time, in_use: &BTreeSet<Ends>) {
        let timers = &mut self.timers;
        self.paths.retain(|ends, path| {
            let keep = in_use.contains(ends);
            if !keep {
                timers.remove(&(path.due, *ends));
            }
            keep
        });
        let new: Vec<Ends> = in_use
            .iter()
            .filter(|ends| !self.paths.contains_key(ends))
            .copied()
            .collect();
        let count = u32::try_from(new.len()).unwrap_or(u32::MAX).max(1);
        for (place, ends) in (0u32..).zip(new) {
            let due = now.after(self.interval / count * place);
            self.timers.insert((due, ends));
            let path = Path {
                due,
                ..Path::default()
            };
            self.paths.insert(ends, path);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// One path that is due; `None`: no more are.
    pub(crate) fn step(&mut self, now: Time) -> Option<Step> {
        let &(due, ends) = self.timers.first()?;
        if due > now {
            return None;
        }
        self.timers.pop_first();
        let path = self.paths.get_mut(&ends)?;
        let (step, delay) = match path.waiting {
            Some((sequence, sent)) if sent < self.n3 => {
                path.waiting = Some((sequence, sent + 1));
                (Step::Echo { ends, sequence }, self.t3)
            }
            Some(_) => {
                path.waiting = None;
                let news = path.answered && !path.failed;
                path.failed |= news;
                let rest = self.interval.saturating_sub(self.t3 * self.n3);
                let step = if news {
                    Step::Failed(ends)
                } else {
                    Step::Nothing
                };
                (step, rest.max(self.t3))
            }
            None => {
                self.sequence = self.sequence.wrapping_add(1);
                path.waiting = Some((self.sequence, 1));
                let sequence = self.sequence;
                (Step::Echo { ends, sequence }, self.t3)
            }
        };
        path.due = now.after(delay);
        self.timers.insert((path.due, ends));
        Some(step)
    }

    /// An Echo Response; what it changes.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        from: IpAddr,
        sequence: u16,
        recovery: Option<u32>,
    ) -> Vec<(Ends, News)> {
        let mut news = Vec::new();
        let all = (from, IpAddr::from([0; 4]))..=(from, IpAddr::from([0xff; 16]));
        for (ends, path) in self.paths.range_mut(all) {
            if path.waiting.is_none_or(|(waiting, _)| waiting != sequence) {
                continue;
            }
            self.timers.remove(&(path.due, *ends));
            path.waiting = None;
            path.due = now.after(self.interval);
            self.timers.insert((path.due, *ends));
            path.answered = true;
            if std::mem::take(&mut path.failed) {
                news.push((*ends, News::Recovered));
            }
            if let (Some(before), Some(told)) = (path.recovery, recovery)
                && before != told
            {
                news.push((*ends, News::Restarted));
            }
            path.recovery = recovery.or(path.recovery);
        }
        news
    }

    /// All of them, for a record.
    pub(crate) fn records(&self) -> Box<[PathRecord]> {
        let all = self.paths.iter().map(|(ends, path)| PathRecord {
            ends: *ends,
            due: path.due,
            answered: path.answered,
            failed: path.failed,
            recovery: path.recovery,
        });
        all.collect()
    }

    /// Paths that were asked before; those that no session uses are forgotten at the next [`Self::refresh`].
    pub(crate) fn go_on(&mut self, records: &[PathRecord]) {
        if self.is_off() {
            return;
        }
        for record in records {
            let path = Path {
                waiting: None,
                due: record.due,
                answered: record.answered,
                failed: record.failed,
                recovery: record.recovery,
            };
            self.timers.insert((path.due, record.ends));
            self.paths.insert(record.ends, path);
        }
    }

    /// Each path with its state, after these ends.
    pub(crate) fn after(&self, ends: Option<Ends>) -> impl Iterator<Item = PathView> {
        let after = ends.map_or(Bound::Unbounded, Bound::Excluded);
        let paths = self.paths.range((after, Bound::Unbounded));
        paths.map(|(&ends, path)| PathView {
            ends,
            answers: path.answered.then_some(!path.failed),
            recovery: path.recovery,
        })
    }

    /// Paths, and how many of them have failed.
    pub(crate) fn fill(&self) -> (usize, usize) {
        let failed = self.paths.values().filter(|path| path.failed).count();
        (self.paths.len(), failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn paths() -> Paths {
        Paths::new(&Config {
            echo_interval: Duration::from_secs(60),
            echo_t3: Duration::from_secs(2),
            echo_n3: 3,
            ..Config::default()
        })
    }

    fn ends(host: u8) -> Ends {
        ([10, 3, 0, host].into(), [10, 3, 0, 1].into())
    }

    /// Everything that happens until then, with its second.
    fn run(paths: &mut Paths, until: u64) -> Vec<(u64, Step)> {
        let mut seen = Vec::new();
        while let Some(due) = paths.next_deadline().filter(|due| due.0 <= until * SECOND) {
            seen.extend(paths.step(due).map(|step| (due.0 / SECOND, step)));
        }
        seen
    }

    /// The next Echo Request, and when it is sent.
    fn next_echo(paths: &mut Paths) -> (Time, u16) {
        loop {
            let due = paths.next_deadline().unwrap();
            if let Some(Step::Echo { sequence, .. }) = paths.step(due) {
                return (due, sequence);
            }
        }
    }

    fn sequences(steps: &[(u64, Step)]) -> Vec<(u64, u16)> {
        let echo = |(at, step): &(u64, Step)| match step {
            Step::Echo { sequence, .. } => Some((*at, *sequence)),
            _ => None,
        };
        steps.iter().filter_map(echo).collect()
    }

    #[test]
    fn a_peer_that_answered_fails_after_n3_attempts_and_recovers() {
        let mut paths = paths();
        paths.refresh(Time(0), &BTreeSet::from([ends(2)]));
        assert_eq!(sequences(&run(&mut paths, 1)), [(0, 1)]);
        assert_eq!(paths.answered(Time(SECOND), ends(2).0, 1, None), []);
        assert_eq!(
            sequences(&run(&mut paths, 60)),
            [],
            "not more often than the interval"
        );
        let steps = run(&mut paths, 70);
        assert_eq!(
            sequences(&steps),
            [(61, 2), (63, 2), (65, 2)],
            "the same number again"
        );
        assert_eq!(steps.last(), Some(&(67, Step::Failed(ends(2)))));
        assert_eq!(paths.fill(), (1, 1));
        // Silent still: told once.
        let steps = run(&mut paths, 600);
        let failed = |(_, step): &(u64, Step)| matches!(step, Step::Failed(_));
        assert!(!sequences(&steps).is_empty() && !steps.iter().any(failed));
        let (now, sequence) = next_echo(&mut paths);
        let news = paths.answered(now, ends(2).0, sequence, None);
        assert_eq!(news, [(ends(2), News::Recovered)]);
        assert_eq!(paths.fill(), (1, 0));
    }

    #[test]
    fn a_peer_that_never_answered_is_not_declared_failed() {
        let mut paths = paths();
        paths.refresh(Time(0), &BTreeSet::from([ends(2)]));
        let steps = run(&mut paths, 1000);
        assert!(
            steps
                .iter()
                .all(|(_, step)| !matches!(step, Step::Failed(_)))
        );
        assert!(sequences(&steps).len() > 30, "it is asked all the same");
    }

    #[test]
    fn other_answers_change_nothing() {
        let mut paths = paths();
        paths.refresh(Time(0), &BTreeSet::from([ends(2), ends(3)]));
        run(&mut paths, 0);
        assert_eq!(paths.answered(Time(1), ends(9).0, 1, None), []);
        assert_eq!(paths.answered(Time(1), ends(2).0, 999, Some(1)), []);
        assert!(paths.paths.values().all(|path| !path.answered));
    }

    #[test]
    fn a_new_time_stamp_is_a_restart() {
        let mut paths = paths();
        paths.refresh(Time(0), &BTreeSet::from([ends(2)]));
        let mut restarted = Vec::new();
        for (round, stamp) in [Some(5), Some(5), None, Some(9), Some(9)]
            .into_iter()
            .enumerate()
        {
            let (now, sequence) = next_echo(&mut paths);
            let news = paths.answered(now, ends(2).0, sequence, stamp);
            restarted.extend(news.iter().map(|(_, news)| (round, *news)));
        }
        assert_eq!(restarted, [(3, News::Restarted)]);
    }

    #[test]
    fn new_peers_are_spread_over_the_interval_and_old_ones_forgotten() {
        let mut paths = paths();
        let all: BTreeSet<Ends> = (2..62).map(ends).collect();
        paths.refresh(Time(0), &all);
        let first: BTreeSet<u64> = paths.timers.iter().map(|(due, _)| due.0 / SECOND).collect();
        assert_eq!(first.len(), 60);
        paths.refresh(Time(0), &BTreeSet::from([ends(5)]));
        assert_eq!((paths.paths.len(), paths.timers.len()), (1, 1));
        paths.refresh(Time(0), &BTreeSet::new());
        assert_eq!(paths.next_deadline(), None);
    }
}
