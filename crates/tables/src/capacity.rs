//! Capacities of interfaces, network instances and groups of users: admission of guaranteed rates, and each flow's fair share
//! (`datapath/pipeline/share.h`).

use std::sync::Arc;
use std::time::Duration;

use compiled::{
    Above, CAPACITIES_ON_WAY, CapacityId, Compiled, Limit, NoRoom, Rate, Resource, Share,
    WEIGHT_MAX,
};
use serde::{Deserialize, Serialize};

use crate::abi::{CAPACITIES_MAX, Line, SHARE_SHIFT, capacity, meter, rate};
use crate::encode::{rate_here, rate_word};
use crate::handle::{HeldMeter, MeterKind};
use crate::memory::View;

/// A rate that many flows have between them, in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityConfig {
    /// For people.
    pub name: String,
    /// Bits of inner IP packets per second; not 0.
    pub bps: u64,
    /// How much of that may be guaranteed (GBR), per second.
    pub guaranteed_at_most: u64,
    /// The least weight that a flow may have there: 1 to [`WEIGHT_MAX`].
    pub least_weight: u16,
    /// Packets beyond it wait, in place of being dropped.
    pub above: Above,
}

/// Load of a capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityReport {
    /// As configured.
    pub name: String,
    /// Bits of inner IP packets per second.
    pub bps: u64,
    /// Of these, guaranteed at present.
    pub guaranteed_bps: u64,
    /// Of these, that may be guaranteed.
    pub guaranteed_at_most: u64,
    /// Rate that a flow of the least weight may have now; none: as much as there is.
    pub share_bps: Option<u64>,
    /// Inner IP octets that passed, 16 KiB of each CPU missing at most.
    pub bytes: u64,
    /// Packets that were dropped for its sake.
    pub drops: u64,
}

/// Between two looks at least. Long against a burst of packets, short against what queues behind this host take.
const WINDOW: Duration = Duration::from_millis(10);
/// Inner IP octets without which a look would say little.
const WINDOW_BYTES: u64 = 96 << 10;
/// Between two looks at most.
const WINDOW_MAX: Duration = Duration::from_secs(1);
/// How far a flow may be ahead of its share, where it does not wait: in this time it may have twice of it.
pub(crate) const SHARE_BURST: Duration = Duration::from_millis(20);
/// How far all together may be ahead: as long as user space needs to see it.
const BURST: Duration = Duration::from_millis(20);
/// How far they are meant to be, where there is not enough: what is less raises shares, so that nothing of the capacity is left.
const AHEAD_S: f64 = 0.014;
/// Of what is ahead beyond that, or lacks, so many looks make up.
const LOOKS_TO_DRAIN: f64 = 8.0;
/// Packets that the whole had no room for are load beyond this part of the capacity: packets of many flows that meet by chance
/// are no sign that shares are too high, and while some are refused the capacity is full.
const MEET_BY_CHANCE: f64 = 0.5;
/// A look counts in full where a flow of the least weight sends many packets between two, and the less the fewer: a change of its share
/// shows after some of them only. By bits of a large packet, and how many of them.
const TO_SHOW_BITS: f64 = 4.0 * 12_000.0;
/// Shares change by so much at most from look to look.
const DOWN: f64 = 0.25;
const UP: f64 = 2.0;
/// With less load than this part of the capacity, and shares that may each be all of it, shares are of no use.
const ENOUGH: f64 = 0.95;
/// No flow's share is less, in bits per second: a packet of 1500 octets then keeps it from its next one for 0.2 s, also when
/// there is enough again. Where that is too much, the capacity itself limits flows, which send equally much by then.
const LEAST_SHARE: f64 = 60_000.0;
/// log2 of the octets that a CPU gathers at most.
const STEP_MAX: u64 = 14;

/// Time between two looks at a capacity.
fn window(bps: u64) -> Duration {
    let meaningful = Duration::from_secs_f64((WINDOW_BYTES * 8) as f64 / bps as f64);
    meaningful.clamp(WINDOW, WINDOW_MAX)
}

/// log2 of the octets that a CPU gathers: little against what passes in a window.
fn step(bps: u64) -> u64 {
    let in_window = bps as f64 / 8.0 * window(bps).as_secs_f64();
    u64::from(((in_window / 256.0) as u64).max(1).ilog2()).min(STEP_MAX)
}

/// Of a rate that may be so far ahead.
fn word_of(bps: u64, burst: Duration) -> u64 {
    let burst_bytes = (bps as f64 / 8.0 * burst.as_secs_f64()) as u64;
    rate_word(Rate {
        bps,
        burst_bytes: burst_bytes.max(1),
        above: Above::Police,
    })
}

/// How often the rate of a flow goes into that of one with the greatest weight, and which capacities it has a share of.
fn share_word(share: &Share) -> u64 {
    let weight = u64::from(share.weight.clamp(1, WEIGHT_MAX));
    let slower = ((u64::from(WEIGHT_MAX) << SHARE_SHIFT) + weight / 2) / weight;
    let places = share.capacities.iter().enumerate();
    let places = places.map(|(n, capacity)| u64::from(capacity.0) << (32 + 8 * n));
    places.fold(slower, |word, place| word | place)
}

/// Words of a share's line that are not those of every meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareWords {
    /// `slower` and `capacities`.
    pub(crate) share: u64,
    /// Guaranteed rate, in bits per second.
    pub(crate) guaranteed: u64,
}

impl ShareWords {
    pub(crate) fn of(share: &Share) -> Self {
        Self {
            share: share_word(share),
            guaranteed: share.guaranteed.map_or(0, |rate| rate.bps),
        }
    }

    /// Whether a line of these words is a share of the same capacities.
    pub(crate) fn has_capacities_of(&self, word: u64) -> bool {
        capacities_of(self.share) == capacities_of(word)
    }
}

/// Whether two lines are shares of the same capacities, by their words.
pub(crate) fn has_same_capacities(a: u64, b: u64) -> bool {
    capacities_of(a) == capacities_of(b)
}

fn capacities_of(word: u64) -> [CapacityId; CAPACITIES_ON_WAY] {
    std::array::from_fn(|n| CapacityId((word >> (32 + 8 * n)) as u8))
}

/// Guaranteed bits per second, by place of the capacity.
type Guaranteed = [u64; CAPACITIES_MAX];

/// All capacities, as the control thread has them.
#[derive(Debug)]
pub(crate) struct Capacities {
    all: Arc<[CapacityConfig]>,
    lines: View<Line>,
    meters: View<Line>,
    guaranteed: Box<Guaranteed>,
    longest_wait: Option<Duration>,
    /// Guarantees that were given before are, whatever may be guaranteed now.
    honours: bool,
}

impl Capacities {
    pub(crate) fn new(
        (lines, meters): (&View<Line>, &View<Line>),
        all: &[CapacityConfig],
        longest_wait: Option<Duration>,
    ) -> Self {
        for (place, of) in (1..CAPACITIES_MAX).zip(all) {
            let line = &lines[place];
            line.fill([0, word_of(of.bps, BURST), 0, 0, 0, 0, step(of.bps), 0]);
        }
        Self {
            all: all.iter().take(CAPACITIES_MAX - 1).cloned().collect(),
            lines: lines.clone(),
            meters: meters.clone(),
            guaranteed: Box::new([0; CAPACITIES_MAX]),
            longest_wait,
            honours: false,
        }
    }

    /// See [`Tables::honour_guarantees`](crate::Tables::honour_guarantees).
    pub(crate) fn honour(&mut self, honours: bool) {
        self.honours = honours;
    }

    /// Rate word of a share: its guaranteed rate, 0 if it has none. Where packets wait the word says so in both cases.
    pub(crate) fn rate_of(&self, share: &Share) -> u64 {
        let word = share.guaranteed.map_or(0, rate_word);
        let word = match self.above(share) {
            Above::Police => word & !rate::SHAPE,
            Above::Shape => word | rate::SHAPE,
        };
        rate_here(word, self.longest_wait)
    }

    /// Treatment of packets above the share of a flow: they wait where all of its capacities have them wait.
    fn above(&self, share: &Share) -> Above {
        let known = share.capacities.iter();
        let known = known.filter_map(|id| self.all.get(usize::from(id.0).checked_sub(1)?));
        let mut known = known.map(|of| of.above).peekable();
        match known.peek().is_some() && known.all(|above| above == Above::Shape) {
            true => Above::Shape,
            false => Above::Police,
        }
    }

    /// Of this capacity.
    pub(crate) fn guaranteed_at_most(&self, id: CapacityId) -> Option<u64> {
        let of = self.all.get(usize::from(id.0).checked_sub(1)?)?;
        Some(of.guaranteed_at_most)
    }

    /// Guaranteed rates of a session's meters, in bits per second.
    pub(crate) fn held(
        &self,
        meters: &[HeldMeter],
    ) -> impl Iterator<Item = (CapacityId, u64)> + '_ {
        let shares = meters.iter().filter(|held| held.kind == MeterKind::Share);
        let lines: Vec<[u64; 8]> = shares
            .map(|held| self.meters[held.index as usize].words())
            .collect();
        lines.into_iter().flat_map(|words| {
            let places = capacities_of(words[meter::SHARE]).into_iter();
            places.map(move |place| (place, words[meter::GUARANTEED]))
        })
    }

    /// Whether a session's guaranteed rates fit, in place of what it has. Nothing is taken yet. A session that asks for no more of
    /// a capacity than it has is never refused.
    pub(crate) fn check(&self, held: &[HeldMeter], new: &Compiled) -> Result<(), NoRoom> {
        let guarantees = || new.meters.iter().filter(|m| is_guaranteed(&m.limit));
        if self.honours || guarantees().next().is_none() {
            return Ok(());
        }
        let mut had = [0u64; CAPACITIES_MAX];
        for (place, bps) in self.held(held) {
            add(&mut had, place, bps);
        }
        let mut asked = [0u64; CAPACITIES_MAX];
        for of in guarantees() {
            for (place, bps) in guaranteed_of(&of.limit) {
                add(&mut asked, place, bps);
                let has_room = self.has_room(place, &had, &asked);
                let is_kept = has_room && is_beyond(new, place, &had, &asked);
                if !has_room || is_kept {
                    return Err(NoRoom {
                        qer: Some(of.qer),
                        capacity: place,
                        is_kept,
                        ..NoRoom::of("capacities")
                    });
                }
            }
        }
        Ok(())
    }

    fn has_room(&self, place: CapacityId, had: &Guaranteed, asked: &Guaranteed) -> bool {
        let at = usize::from(place.0);
        let Some(of) = at.checked_sub(1).and_then(|n| self.all.get(n)) else {
            return true;
        };
        let others = self.guaranteed[at].saturating_sub(had[at]);
        asked[at] <= had[at] || others.saturating_add(asked[at]) <= of.guaranteed_at_most
    }

    /// A session's guaranteed rates are these now.
    pub(crate) fn take(&mut self, held: &[HeldMeter], new: &Compiled) {
        if self.all.is_empty() {
            return;
        }
        let before: Vec<(CapacityId, u64)> = self.held(held).collect();
        for (place, bps) in before {
            let at = usize::from(place.0) % CAPACITIES_MAX;
            self.guaranteed[at] = self.guaranteed[at].saturating_sub(bps);
        }
        for of in &new.meters {
            for (place, bps) in guaranteed_of(&of.limit) {
                add(&mut self.guaranteed, place, bps);
            }
        }
    }

    pub(crate) fn governor(&self) -> Option<Governor> {
        (!self.all.is_empty()).then(|| Governor::new(self))
    }

    pub(crate) fn reports(&self) -> Vec<CapacityReport> {
        let report = |(place, of): (usize, &CapacityConfig)| {
            let line = &self.lines[place];
            let share = line.load(capacity::SHARE);
            let weight = u128::from(of.least_weight.max(1));
            let of_greatest = bps_of(share);
            CapacityReport {
                name: of.name.clone(),
                bps: of.bps,
                guaranteed_bps: self.guaranteed[place],
                guaranteed_at_most: of.guaranteed_at_most,
                share_bps: of_greatest.map(|bps| (bps * weight / u128::from(WEIGHT_MAX)) as u64),
                bytes: line.load(capacity::BYTES),
                drops: line.load(capacity::DROPS),
            }
        };
        (1..).zip(self.all.iter()).map(report).collect()
    }
}

/// Whether a session asks for more of a capacity than it may come to have.
fn is_beyond(new: &Compiled, place: CapacityId, had: &Guaranteed, asked: &Guaranteed) -> bool {
    let at = usize::from(place.0);
    let bound = |(of, _): &&(Resource, u64)| *of == Resource::Guaranteed(place);
    let more = new.more.iter().find(bound).map(|(_, more)| *more);
    more.is_some_and(|more| asked[at].saturating_sub(had[at]) > more)
}

fn add(to: &mut Guaranteed, place: CapacityId, bps: u64) {
    if place != CapacityId::NONE
        && let Some(sum) = to.get_mut(usize::from(place.0))
    {
        *sum = sum.saturating_add(bps);
    }
}

fn is_guaranteed(limit: &Limit) -> bool {
    matches!(limit, Limit::Share(share) if share.guaranteed.is_some())
}

fn guaranteed_of(limit: &Limit) -> impl Iterator<Item = (CapacityId, u64)> {
    let (places, bps) = match limit {
        Limit::Share(share) => (share.capacities, share.guaranteed.map_or(0, |r| r.bps)),
        _ => Default::default(),
    };
    places.into_iter().map(move |place| (place, bps))
}

/// The rate that a word stands for, in bits per second; a mantissa of 0 stands for none.
fn bps_of(word: u64) -> Option<u128> {
    let mantissa = u128::from(word & 0xffff_ffff);
    let shift = (word >> rate::SHIFT_SHIFT & 63) as u32;
    ((8 * rate::TICKS_PER_SECOND) << shift).checked_div(mantissa)
}

/// Gives each flow its share: looks at what capacities carry, and lowers or raises the rate that shares are parts of.
///
/// A rate at which flows have `load` of a capacity of `bps` is made `bps / load` times as high. Where all flows want more than they
/// have that is right at once; where some do not, each look brings it nearer. Where flows send few packets between two looks a
/// change shows late, and each look counts for less, lest the rate swing.
#[derive(Debug)]
pub struct Governor {
    lines: View<Line>,
    of: Vec<Governed>,
}

#[derive(Debug)]
struct Governed {
    bps: f64,
    /// Of the greatest weight; `None`: nobody is held back.
    share: Option<f64>,
    /// Nor is it less.
    share_min: f64,
    /// With so much one flow may have it all.
    share_max: f64,
    /// How far a flow may be ahead of it.
    burst: Duration,
    window: Duration,
    seen_at: Option<u64>,
    /// Octets that had passed, and that had been refused.
    seen: [u64; 2],
}

/// Load of a capacity between two looks.
struct Seen {
    /// Bits per second.
    passed: f64,
    /// Bits per second that were within their shares, and for which there was no room in the whole.
    refused: f64,
    /// How far all together are ahead of the rate.
    ahead_s: f64,
    window_s: f64,
}

impl Governor {
    fn new(capacities: &Capacities) -> Self {
        let governed = |of: &CapacityConfig| {
            let burst = match (of.above, capacities.longest_wait) {
                (Above::Shape, Some(longest)) => longest.min(2 * SHARE_BURST),
                _ => SHARE_BURST,
            };
            Governed::new(of.bps, of.least_weight, burst)
        };
        Self {
            lines: capacities.lines.clone(),
            of: capacities.all.iter().map(governed).collect(),
        }
    }

    /// Look at those whose time has come. Monotonic nanoseconds, as packets have them.
    pub fn look(&mut self, now_ns: u64) {
        for (place, of) in (1..).zip(&mut self.of) {
            of.look(&self.lines[place], now_ns);
        }
    }

    /// Until the next look.
    pub fn pause(&self) -> Duration {
        WINDOW
    }
}

impl Governed {
    fn new(bps: u64, least_weight: u16, burst: Duration) -> Self {
        let of_greatest = |bps: f64| bps * f64::from(WEIGHT_MAX) / f64::from(least_weight.max(1));
        let share_max = of_greatest(bps as f64);
        Self {
            bps: bps as f64,
            share: None,
            share_min: of_greatest(LEAST_SHARE).min(share_max),
            share_max,
            burst,
            window: window(bps),
            seen_at: None,
            seen: [0; 2],
        }
    }

    fn look(&mut self, line: &Line, now_ns: u64) {
        let counts = [capacity::BYTES, capacity::OVER].map(|word| line.load(word));
        let Some(seen_at) = self.seen_at else {
            (self.seen_at, self.seen) = (Some(now_ns), counts);
            return;
        };
        let window = Duration::from_nanos(now_ns.saturating_sub(seen_at));
        if window < self.window {
            return;
        }
        let ahead_ns = (line.load(capacity::TAT) >> rate::TICKS_SHIFT).saturating_sub(now_ns);
        let bps =
            |of: usize| counts[of].wrapping_sub(self.seen[of]) as f64 * 8.0 / window.as_secs_f64();
        self.share = self.next_share(&Seen {
            passed: bps(0),
            refused: bps(1),
            ahead_s: ahead_ns as f64 / 1e9,
            window_s: window.as_secs_f64(),
        });
        (self.seen_at, self.seen) = (Some(now_ns), counts);
        line.publish(capacity::SHARE, self.word());
    }

    fn next_share(&self, seen: &Seen) -> Option<f64> {
        let Some(share) = self.share else {
            let load = seen.passed + seen.refused;
            return (load > self.bps).then_some(self.share_max);
        };
        if share >= self.share_max && seen.passed + seen.refused < self.bps * ENOUGH {
            return None;
        }
        let refused = (seen.refused - self.bps * MEET_BY_CHANCE).max(0.0);
        let too_far_ahead = self.bps * (seen.ahead_s - AHEAD_S) / (LOOKS_TO_DRAIN * seen.window_s);
        let load = seen.passed + refused + too_far_ahead;
        let factor = if load > 0.0 { self.bps / load } else { UP };
        let least = share * self.bps / self.share_max;
        let gain = seen.window_s / (seen.window_s + TO_SHOW_BITS / least);
        let next = share * factor.clamp(DOWN, UP).powf(gain);
        Some(next.clamp(self.share_min, self.share_max))
    }

    /// The rate word.
    fn word(&self) -> u64 {
        self.share
            .map_or(0, |share| word_of(share as u64, self.burst))
    }
}

impl Drop for Governor {
    /// Nobody lowers or raises shares any more: capacities as wholes alone limit flows.
    fn drop(&mut self) {
        for place in 1..=self.of.len() {
            self.lines[place].publish(capacity::SHARE, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of flows that want so much, of these weights, as far as shares let them: bits per second.
    fn have(of: &Governed, wants: &[(f64, u16)]) -> Vec<f64> {
        let part = |weight: u16| {
            let share = of.share;
            share.map(|share| share * f64::from(weight) / f64::from(WEIGHT_MAX))
        };
        let has = wants
            .iter()
            .map(|&(wants, weight)| part(weight).map_or(wants, |part| wants.min(part)));
        has.collect()
    }

    fn look(of: &mut Governed, wants: &[(f64, u16)], looks: usize) -> Vec<f64> {
        for _ in 0..looks {
            of.share = of.next_share(&Seen {
                passed: have(of, wants).iter().sum(),
                refused: 0.0,
                ahead_s: AHEAD_S,
                window_s: of.window.as_secs_f64(),
            });
        }
        have(of, wants)
    }

    fn settle(bps: u64, wants: &[(f64, u16)], looks: usize) -> Vec<f64> {
        let least = wants.iter().map(|(_, weight)| *weight).min().unwrap();
        look(&mut Governed::new(bps, least, SHARE_BURST), wants, looks)
    }

    #[test]
    fn shares_settle_by_weight_and_what_one_leaves_goes_to_others() {
        // Weighted max-min: the third wants less than its part.
        let have = settle(100_000_000, &[(1e9, 10), (1e9, 30), (5e6, 60)], 60);
        for (has, should) in have.iter().zip([23.75e6, 71.25e6, 5e6]) {
            assert!((has - should).abs() < should * 0.001, "{have:?}");
        }
        let idle = settle(100_000_000, &[(1e6, 10), (2e6, 30)], 60);
        assert_eq!(idle, [1e6, 2e6]);
    }

    #[test]
    fn many_small_flows_above_capacity_settle_within_two_seconds() {
        let wants = vec![(1.1e6, 11); 1000];
        let have = settle(1_000_000_000, &wants, 200);
        let sum: f64 = have.iter().sum();
        assert!((sum - 1e9).abs() < 1e7, "{sum}");
    }

    /// Ten thousand flows over a megabit leave nobody without a share for long: their packets would keep them waiting.
    #[test]
    fn a_crowd_that_has_gone_leaves_no_flow_behind() {
        let mut of = Governed::new(1_000_000, 11, SHARE_BURST);
        let have = look(&mut of, &vec![(1e6, 11); 10_000], 1000);
        assert!(
            have.iter().all(|has| (has - 60_000.0).abs() < 1.0),
            "{}",
            have[0]
        );
        assert_eq!(look(&mut of, &[(900_000.0, 11)], 8), [900_000.0]);
    }

    #[test]
    fn words_say_the_rates_that_they_are_of() {
        for bps in [1_000, 123_456_789, 100_000_000_000u64] {
            let word = word_of(bps, BURST);
            let said = bps_of(word).unwrap() as f64;
            assert!(
                (said - bps as f64).abs() <= bps as f64 * 1e-5 + 1.0,
                "{said}"
            );
        }
        assert_eq!(bps_of(0), None);
    }
}
