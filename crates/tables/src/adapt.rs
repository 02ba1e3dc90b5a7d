//! Which build of the program runs: the narrowest that has what live sessions and next hops use.
//!
//! When something needs a feature that the live programs lack, wider ones take over before it is published: the next
//! wider build and the general one are loaded in the background from the start on. Once the need has not changed for a
//! while, the narrowest build that has it is loaded beside them and takes over in turn. Either way each port's program
//! is replaced by one atomic update of its link, so that every packet meets the one or the other.

use std::time::{Duration, Instant, SystemTime};

use crate::abi::Features;
use crate::backend::Supply;

/// The last time that programs took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// When.
    pub at: SystemTime,
    /// Time from the first port's replacement to the last one's.
    pub took: Duration,
}

/// Which programs run, and which are to.
#[derive(Debug)]
pub(crate) struct Adaptation {
    /// Builds that may run, narrowest first; the last one has all that may be needed.
    builds: Vec<Features>,
    /// Needed whatever sessions use.
    base: Features,
    live: Features,
    /// `None`: the live programs stay, whatever is needed.
    settle: Option<Duration>,
    /// The wanted build, and since when it has been the same.
    wanted: (Features, Instant),
    /// Somebody follows packets: the general programs, with traces, stay.
    traced: bool,
    /// Build that could not be loaded or attached: not tried again before the need changes.
    failed: Option<Features>,
    pub(crate) count: u64,
    pub(crate) last: Option<Replacement>,
}

impl Adaptation {
    /// The narrowest of `builds` with `base` is live. The last of them has all that may be needed.
    pub(crate) fn new(builds: Vec<Features>, base: Features, settle: Duration) -> Self {
        let live = narrowest(&builds, base);
        Self {
            builds,
            base,
            live,
            settle: Some(settle),
            wanted: (live, Instant::now()),
            traced: false,
            failed: None,
            count: 0,
            last: None,
        }
    }

    /// Programs that are live and stay: for tests and measurements of a set of features.
    pub(crate) fn fixed(features: Features) -> Self {
        Self {
            settle: None,
            ..Self::new(vec![features], Features::NONE, Duration::ZERO)
        }
    }

    pub(crate) fn live(&self) -> Features {
        self.live
    }

    /// Features of the general programs.
    pub(crate) fn general(&self) -> Features {
        let general = self.builds.last().copied().unwrap_or_default();
        if self.traced {
            general.with(Features::TRACE)
        } else {
            general
        }
    }

    /// Programs that may be wanted next, soonest first: a build a little wider than the live one, and the general one.
    pub(crate) fn ahead(&self) -> Vec<Features> {
        let wider = |build: &&Features| **build != self.live && build.contains(self.live);
        let next = self.builds.iter().find(wider).copied();
        let mut ahead: Vec<Features> = next.into_iter().chain([self.general()]).collect();
        ahead.dedup();
        ahead
    }

    /// Build that takes over before something that `needs` this is published: the narrowest that is at hand, or else the
    /// narrowest that can be loaded.
    pub(crate) fn wider(
        &self,
        needs: Features,
        supply: impl Fn(Features) -> Supply,
    ) -> Option<Features> {
        // Programs that know nothing of traces would end them.
        let traces = self.traced && self.live.contains(Features::TRACE);
        let general = [self.general()];
        let builds = if traces { &general[..] } else { &self.builds };
        let live = match traces {
            true => self.live,
            false => self.live.without(Features::TRACE),
        };
        let all = live.with(needs);
        let find = |wanted| {
            let mut builds = builds.iter().copied();
            builds.find(|build| build.contains(all) && supply(*build) == wanted)
        };
        find(Supply::AtHand).or_else(|| find(Supply::Loadable))
    }

    /// Have packets followed from now on, or no longer.
    pub(crate) fn follow(&mut self, traced: bool) {
        self.traced = traced;
    }

    /// Whether the live programs do for this.
    pub(crate) fn serves(&self, needs: Features) -> bool {
        self.settle.is_none() || self.live.contains(needs)
    }

    /// The programs to change to, when there are better ones than the live ones and the need has
    /// settled.
    pub(crate) fn due(&mut self, needs: Features, now: Instant) -> Option<Features> {
        let wanted = self.wanted(needs);
        if wanted != self.wanted.0 {
            self.wanted = (wanted, now);
            self.failed = None;
        }
        let since = now.saturating_duration_since(self.wanted.1);
        let settled = self.settle.is_some_and(|settle| since >= settle);
        (settled && self.is_settling(needs)).then_some(wanted)
    }

    /// Whether [`Self::due`] will say something when time has passed.
    pub(crate) fn is_settling(&self, needs: Features) -> bool {
        let wanted = self.wanted(needs);
        self.settle.is_some() && wanted != self.live && Some(wanted) != self.failed
    }

    fn wanted(&self, needs: Features) -> Features {
        if self.traced {
            self.general()
        } else {
            narrowest(&self.builds, needs.with(self.base))
        }
    }

    /// Note that what was due cannot be had.
    pub(crate) fn give_up(&mut self) {
        self.failed = Some(self.wanted.0);
    }

    /// Try again what could not be had.
    pub(crate) fn hope(&mut self) {
        self.failed = None;
    }

    pub(crate) fn replaced(&mut self, by: Features, took: Duration) {
        self.live = by;
        self.count += 1;
        self.last = Some(Replacement {
            at: SystemTime::now(),
            took,
        });
    }
}

/// The first of `builds` that has all of `needs`, or the last.
fn narrowest(builds: &[Features], needs: Features) -> Features {
    let fit = builds.iter().find(|build| build.contains(needs));
    fit.or(builds.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Supply::{AtHand, Loadable, Refused};

    const PLAIN: Features = Features::BUILD_PLAIN;
    const COMMON: Features = Features::BUILD_COMMON;
    const RELAY: Features = Features::BUILD_RELAY;
    const ALL: Features = Features::ALL;
    const SETTLE: Duration = Duration::from_secs(10);

    fn adaptation(base: Features, settle: Duration) -> Adaptation {
        Adaptation::new(vec![PLAIN, COMMON, RELAY, ALL], base, settle)
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_narrowest_build_that_does_is_live_from_the_start() {
        assert_eq!(adaptation(Features::NONE, SETTLE).live(), PLAIN);
        assert_eq!(adaptation(Features::IPV6, SETTLE).live(), COMMON);
        assert_eq!(adaptation(Features::OUTER6, SETTLE).live(), ALL);
        assert_eq!(adaptation(Features::NONE, SETTLE).general(), ALL);
    }

    #[test]
    fn what_is_needed_first_is_loaded_first() {
        let ahead = |base| adaptation(base, SETTLE).ahead();
        assert_eq!(ahead(Features::NONE), [COMMON, ALL]);
        assert_eq!(ahead(Features::IPV6), [RELAY, ALL]);
        assert_eq!(ahead(Features::RELAY), [ALL]);
    }

    #[test]
    fn what_takes_over_is_at_hand_or_else_the_narrowest_that_is_not_refused() {
        let mut adaptation = adaptation(Features::NONE, SETTLE);
        let relay = Features::RELAY;
        let all = |supply| move |_: Features| supply;
        let but = |one, supply, others| move |build| if build == one { supply } else { others };
        assert_eq!(adaptation.wider(relay, all(AtHand)), Some(RELAY));
        assert_eq!(adaptation.wider(relay, all(Loadable)), Some(RELAY));
        assert_eq!(adaptation.wider(relay, all(Refused)), None);
        let supply = but(ALL, AtHand, Loadable);
        assert_eq!(adaptation.wider(relay, supply), Some(ALL));
        let supply = but(RELAY, Refused, Loadable);
        assert_eq!(adaptation.wider(relay, supply), Some(ALL));
        assert_eq!(adaptation.wider(Features::SPREAD, all(AtHand)), None);
        adaptation.replaced(RELAY, Duration::ZERO);
        let copy = adaptation.wider(Features::COPY, all(AtHand));
        assert_eq!(copy, Some(ALL), "nothing that is live is lost");
    }

    #[test]
    fn while_somebody_is_followed_programs_go_on_to_know_of_it() {
        let mut adaptation = adaptation(Features::NONE, SETTLE);
        let (relay, traced) = (Features::RELAY, ALL.with(Features::TRACE));
        let next = |adaptation: &Adaptation| adaptation.wider(relay, |_| AtHand);
        adaptation.follow(true);
        assert_eq!(next(&adaptation), Some(RELAY), "it is not followed yet");
        adaptation.replaced(traced, Duration::ZERO);
        assert_eq!(next(&adaptation), Some(traced));
        adaptation.follow(false);
        assert_eq!(next(&adaptation), Some(ALL));
    }

    #[test]
    fn the_need_must_settle_before_programs_change() {
        let start = Instant::now();
        let mut adaptation = adaptation(Features::NONE, SETTLE);
        let (relay, copy) = (Features::RELAY, Features::COPY);
        assert!(adaptation.serves(Features::METER) && !adaptation.serves(relay));
        adaptation.replaced(ALL, Duration::ZERO);
        assert_eq!(adaptation.due(relay, start), None);
        assert_eq!(adaptation.due(relay, after(start, 9)), None);
        assert_eq!(adaptation.due(copy, after(start, 11)), None, "it changed");
        assert_eq!(adaptation.due(relay, after(start, 12)), None, "and back");
        assert_eq!(adaptation.due(relay, after(start, 22)), Some(RELAY));
        adaptation.replaced(RELAY, Duration::ZERO);
        assert_eq!(adaptation.due(relay, after(start, 60)), None);
        assert!(!adaptation.is_settling(relay) && adaptation.is_settling(Features::NONE));
        assert_eq!(adaptation.count, 2);
    }

    #[test]
    fn what_cannot_be_had_is_not_tried_again_before_the_need_changes() {
        let start = Instant::now();
        let mut adaptation = adaptation(Features::NONE, Duration::ZERO);
        assert_eq!(adaptation.due(Features::RELAY, start), Some(RELAY));
        adaptation.give_up();
        assert_eq!(adaptation.due(Features::RELAY, after(start, 60)), None);
        adaptation.hope();
        assert_eq!(adaptation.due(Features::RELAY, start), Some(RELAY));
        adaptation.give_up();
        assert_eq!(adaptation.due(Features::COPY, start), Some(ALL));
    }

    #[test]
    fn each_build_has_what_narrower_ones_have() {
        let builds = [COMMON, Features::BUILD_OUTER6, RELAY, ALL];
        assert!(COMMON.contains(PLAIN));
        assert!(
            builds
                .iter()
                .all(|build| build.contains(COMMON) && ALL.contains(*build))
        );
        assert!(Features::BUILD_GENERAL.contains(ALL));
    }
}
