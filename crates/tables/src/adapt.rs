//! Which features the programs need: what live sessions and next hops use, and no more.
//!
//! When something needs a feature that the live programs lack, the general programs, which have all
//! of them and are always at hand, take over before it is published. Once the need has not changed for
//! a while, programs with just the features in use are loaded beside them and take over in turn. Either
//! way each port's program is replaced by one atomic update of its link, so that every packet meets the
//! one or the other.

use std::time::{Duration, Instant, SystemTime};

use session::compiled::{Action, Compiled, Direction, Key};

use crate::abi::{Features, entry};
use crate::encode::meaningful;
use crate::index::Standing;
use crate::plan::Plan;

/// What a session needs of the programs; of its place in the buckets only that of new keys.
pub(crate) fn needs(plan: &Plan, new: &Compiled) -> Features {
    let mut needs = Features::NONE;
    for (want, rule) in plan.wants.iter().zip(&new.entries) {
        let head = want.words.head;
        if meaningful(head)[1] {
            needs = needs.with(Features::METER);
        }
        if head & entry::EXT_BIT != 0 {
            needs = needs.with(Features::EXT);
        }
        if !rule.duplicates.is_empty() {
            needs = needs.with(Features::COPY);
        }
        if rule.framed && !new.framed.is_empty() {
            needs = needs.with(Features::PREFIX);
        }
        if matches!(rule.action, Action::Udp { .. }) {
            needs = needs.with(Features::UDP);
        }
        if rule.relay.is_some() {
            needs = needs.with(Features::RELAY);
        }
        // Without an address in its PDI an uplink PDR takes packets of both families.
        if rule.direction == Direction::Uplink && rule.ue.is_none_or(|ue| ue.v6.is_some()) {
            needs = needs.with(Features::IPV6);
        }
    }
    for (key, (named, _)) in plan.keys.iter().zip(&new.keys) {
        if matches!(key.standing, Some(Standing::Slot(_))) {
            needs = needs.with(Features::BUCKETS);
        }
        if key.listed {
            needs = needs.with(Features::LIST);
        }
        match named {
            Key::Ue6 { .. } => needs = needs.with(Features::IPV6),
            // What it needs beside, those who need it get.
            Key::Prefix { .. } => needs = needs.with(Features::PREFIX),
            Key::Teid { .. } | Key::Ue4 { .. } => {}
        }
    }
    needs
}

/// How many users each feature has.
#[derive(Debug, Default)]
pub(crate) struct Users([u32; Features::COUNT]);

impl Users {
    pub(crate) fn join(&mut self, needs: Features) {
        needs.indices().for_each(|bit| self.0[bit] += 1);
    }

    pub(crate) fn leave(&mut self, needs: Features) {
        needs.indices().for_each(|bit| {
            debug_assert!(self.0[bit] > 0);
            self.0[bit] = self.0[bit].saturating_sub(1);
        });
    }

    pub(crate) fn needs(&self) -> Features {
        let used = (0..Features::COUNT).filter(|&bit| self.0[bit] > 0);
        used.fold(Features::NONE, |set, bit| set.with(Features::bit(bit)))
    }
}

/// The last time that programs took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// When.
    pub at: SystemTime,
    /// From the first port's replacement to the last one's.
    pub took: Duration,
}

/// What to do about the programs.
#[derive(Debug)]
pub(crate) struct Adaptation {
    /// Never left out.
    base: Features,
    /// All that may be needed.
    general: Features,
    /// There is nothing in between.
    either: bool,
    live: Features,
    /// `None`: the live programs stay, whatever is needed.
    settle: Option<Duration>,
    /// What is needed, and since when it has been the same.
    wanted: (Features, Instant),
    /// Somebody follows packets: the general programs, with traces, stay.
    traced: bool,
    /// Could not be loaded or attached: not tried again before the need changes.
    failed: Option<Features>,
    pub(crate) count: u64,
    pub(crate) last: Option<Replacement>,
}

impl Adaptation {
    /// The general programs are live.
    pub(crate) fn new(base: Features, general: Features, settle: Duration) -> Self {
        Self {
            base,
            settle: Some(settle),
            ..Self::fixed(general)
        }
    }

    /// As [`Self::new`], but with programs of either `base` or `general`.
    pub(crate) fn either(base: Features, general: Features, settle: Duration) -> Self {
        Self {
            either: true,
            ..Self::new(base, general, settle)
        }
    }

    /// These programs are live and stay: for tests and measurements of a set of features.
    pub(crate) fn fixed(general: Features) -> Self {
        Self {
            base: Features::NONE,
            general,
            either: false,
            live: general,
            settle: None,
            wanted: (general, Instant::now()),
            traced: false,
            failed: None,
            count: 0,
            last: None,
        }
    }

    pub(crate) fn live(&self) -> Features {
        self.live
    }

    /// Those that do for everything.
    pub(crate) fn general(&self) -> Features {
        if self.traced {
            self.general.with(Features::TRACE)
        } else {
            self.general
        }
    }

    /// Those that do for everything when no packets are followed.
    pub(crate) fn untraced(&self) -> Features {
        self.general
    }

    /// From now on packets are followed, or no longer.
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
        } else if self.either && !self.base.contains(needs) {
            self.general
        } else {
            needs.with(self.base).closed().and(self.general)
        }
    }

    /// What was due cannot be had.
    pub(crate) fn give_up(&mut self) {
        self.failed = Some(self.wanted.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Features = Features::ALWAYS;
    const GENERAL: Features = Features::ALL.without(Features::ATOMIC);
    const SETTLE: Duration = Duration::from_secs(10);

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_need_must_settle_before_programs_shrink() {
        let start = Instant::now();
        let mut adaptation = Adaptation::new(BASE, GENERAL, SETTLE);
        let meter = Features::METER;
        assert_eq!(adaptation.due(meter, start), None);
        assert_eq!(adaptation.due(meter, after(start, 9)), None);
        let list = meter.with(Features::LIST);
        assert_eq!(adaptation.due(list, after(start, 11)), None, "it changed");
        assert_eq!(
            adaptation.due(list, after(start, 21)),
            Some(list.with(BASE))
        );
        adaptation.replaced(list.with(BASE), Duration::ZERO);
        assert_eq!(adaptation.due(list, after(start, 60)), None);
        assert!(!adaptation.is_settling(list));
        assert!(adaptation.serves(meter) && !adaptation.serves(Features::IPV6));
        assert_eq!(adaptation.count, 1);
    }

    #[test]
    fn where_nothing_lies_in_between_one_rare_feature_asks_for_all() {
        let start = Instant::now();
        let base = Features::BUILD_COMMON;
        let mut adaptation = Adaptation::either(base, Features::ALL, Duration::ZERO);
        assert_eq!(adaptation.due(Features::METER, start), Some(base));
        adaptation.replaced(base, Duration::ZERO);
        assert_eq!(adaptation.due(Features::METER, start), None);
        let relay = adaptation.due(Features::RELAY, start);
        assert_eq!(relay, Some(Features::ALL));
    }

    #[test]
    fn users_come_and_go() {
        let mut users = Users::default();
        let both = Features::METER.with(Features::LIST);
        users.join(both);
        users.join(Features::LIST);
        assert_eq!(users.needs(), both);
        users.leave(both);
        assert_eq!(users.needs(), Features::LIST);
        users.leave(Features::LIST);
        assert_eq!(users.needs(), Features::NONE);
    }

    #[test]
    fn what_is_asked_for_is_among_the_possible_sets() {
        let mut adaptation = Adaptation::new(BASE, GENERAL, Duration::ZERO);
        for bits in 0..=Features::ALL.bits() {
            let Some(needs) = Features::from_bits(bits) else {
                continue;
            };
            let wanted = adaptation.due(needs, Instant::now()).unwrap_or(GENERAL);
            let needs = GENERAL.and(needs);
            assert!(wanted.contains(needs) && wanted.contains(BASE));
            assert!(
                wanted.is_possible(),
                "{:?}",
                wanted.names().collect::<Vec<_>>()
            );
        }
    }
}
