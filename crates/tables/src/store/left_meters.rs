//! Meters of a process that is no more, where meters of this one go on.
//!
//! The state of a meter is a time of the host's clock; of a packet rate, a time and behind it a number of packets. What passes raises it,
//! so that another meter goes on there when it is raised to that, and never takes more than was taken. Programs that are still met
//! charge the former meter: it is looked at right before links run programs over these tables, and once more when no packet meets the
//! former ones.

use std::time::Duration;

use compiled::CountedAt;

use crate::abi::{Ext, Line, METERS_MAX, entry, from_words, meter, rate};
use crate::capacity::{SHARE_BURST, has_same_capacities};
use crate::clock::monotonic_ns;
use crate::handle::{Handle, MeterKind, kind_of_name};
use crate::memory::View;
use crate::store::shard::ShardTables;

/// Meters of a process that is no more, and entries here that go on with them.
#[derive(Debug)]
pub struct LeftMeters {
    entries: View<Line>,
    /// Extensions, and the meters that they name. `None`: the process has not pinned them.
    shared: Option<(View<Line>, View<Line>)>,
    /// Packets may charge them still.
    are_met: bool,
    pairs: Vec<Pair>,
}

/// An entry that goes on with the meters of a former one.
#[derive(Clone, Copy, Debug)]
struct Pair {
    from: u32,
    to: u32,
    /// Session of `to`.
    seid: u64,
}

impl LeftMeters {
    pub(crate) fn new(
        entries: View<Line>,
        shared: Option<(View<Line>, View<Line>)>,
        are_met: bool,
    ) -> Self {
        Self {
            entries,
            shared,
            are_met,
            pairs: Vec::new(),
        }
    }

    /// Meters that a former entry names.
    fn shared_of(&self, from: &Line) -> impl Iterator<Item = &Line> {
        let shared = self.shared.as_ref().zip(ext_of(from));
        shared.into_iter().flat_map(|((exts, meters), ext)| {
            let ext = exts.get(ext as usize).map(ext_in);
            let named = ext.into_iter().flat_map(|ext| meters_of(&ext));
            named.filter_map(|index| meters.get(index as usize))
        })
    }
}

/// Whether packets of an entry may meet meters.
fn is_metered(shard: &ShardTables, index: u32) -> bool {
    let ext = shard.entries.ext_of(index);
    has_own(shard.entries.head(index))
        || ext.is_some_and(|ext| meters_of(&shard.ext(ext)).next().is_some())
}

/// [`compiled::Tables::is_metered`]
pub(crate) fn has_meters(shard: &ShardTables, handle: &Handle) -> bool {
    let mut entries = handle.entries().iter();
    entries.any(|held| is_metered(shard, held.index))
}

impl LeftMeters {
    /// [`compiled::Tables::follow_meters`]
    pub(crate) fn follow(&mut self, shard: &ShardTables, handle: &Handle, at: &[CountedAt]) {
        for held in handle.entries() {
            if !is_metered(shard, held.index) {
                continue;
            }
            let Some(seid) = shard.entries.owners.seid(held.index) else {
                continue;
            };
            let of_pdr = at.iter().filter(|at| at.pdr == held.pdr);
            for &from in of_pdr.filter_map(|at| at.entries.first()) {
                let pair = Pair {
                    from,
                    to: held.index,
                    seid,
                };
                match self.are_met {
                    true => self.pairs.push(pair),
                    // Nothing charges the former one any more, and packets may meet this one already.
                    false => self.raise_from(shard, &pair, monotonic_ns()),
                }
            }
        }
    }

    /// Meters of now are at least where those are that they go on with.
    pub(crate) fn raise(&self, shard: &ShardTables, now_ns: u64) {
        let pairs = self.pairs.iter();
        pairs.for_each(|pair| self.raise_from(shard, pair, now_ns));
    }

    fn raise_from(&self, shard: &ShardTables, pair: &Pair, now_ns: u64) {
        if let Some(from) = self.entries.get(pair.from as usize) {
            self.raise_pair(shard, from, pair, now_ns);
        }
    }

    fn raise_pair(&self, shard: &ShardTables, from: &Line, pair: &Pair, now_ns: u64) {
        let entries = &shard.entries;
        let to = entries.line(pair.to);
        let of_rule = |line: &Line| line.load(entry::EXT) >> entry::PDR_SHIFT;
        // A change since may have moved the PDR, and given the line to another one.
        let is_others = entries.owners.seid(pair.to) != Some(pair.seid);
        if is_others || of_rule(from) != of_rule(to) {
            return;
        }
        if has_own(from.load(entry::HEAD)) && has_own(to.load(entry::HEAD)) {
            let rates = [from, to].map(|line| line.load(entry::RATE));
            let tat = within(rates, from.load(entry::TAT), now_ns);
            raise(to, entry::TAT, tat);
        }
        let Some(ext) = entries.ext_of(pair.to) else {
            return;
        };
        for index in meters_of(&shard.ext(ext)) {
            let to = &shard.mem.meters[index as usize];
            for from in self.shared_of(from) {
                raise_shared(from, to, now_ns, shard.longest_wait);
            }
        }
    }
}

/// Meters of one name: `to` is at least where `from` is.
fn raise_shared(from: &Line, to: &Line, now_ns: u64, longest_wait: Option<Duration>) {
    let name = to.load(meter::NAME);
    if name != from.load(meter::NAME) {
        return;
    }
    let rates = [from, to].map(|line| line.load(meter::RATE));
    let tat = from.load(meter::TAT);
    let tat = match kind_of_name(name) {
        Some(MeterKind::Bits) => within(rates, tat, now_ns),
        Some(MeterKind::Packets) => tat,
        Some(MeterKind::Share) => {
            // A flow may have shares by several ways.
            if !has_same_capacities(from.load(meter::SHARE), to.load(meter::SHARE)) {
                return;
            }
            let share = longest_wait.unwrap_or(SHARE_BURST);
            let share = ticks(now_ns.saturating_add(share.as_nanos() as u64));
            tat.min(share.max(used_up(rates[1], now_ns)))
        }
        None => return,
    };
    raise(to, meter::TAT, tat);
}

/// Whether the line of this head has a meter of its own.
fn has_own(head: u64) -> bool {
    entry::action(head) != entry::ACT_LIST && head & entry::METER_BIT != 0
}

/// Most are where they shall be when this is asked for the second time: reading leaves lines with other CPUs.
fn raise(line: &Line, word: usize, to: u64) {
    if line.load(word) < to {
        line.raise(word, to);
    }
}

/// State of a former meter, as one of the latter rate has it: if that is another one, no burst may be left, but no more has been taken.
fn within([former, now]: [u64; 2], tat: u64, now_ns: u64) -> u64 {
    match former == now {
        true => tat,
        false => tat.min(used_up(now, now_ns)),
    }
}

/// State of a meter of this rate that has no burst left.
fn used_up(word: u64, now_ns: u64) -> u64 {
    let burst_ns = (word >> rate::BURST_SHIFT) * rate::BURST_UNIT_NS as u64;
    ticks(now_ns.saturating_add(burst_ns))
}

fn ticks(ns: u64) -> u64 {
    ns << rate::TICKS_SHIFT
}

/// The extension that a line names.
fn ext_of(line: &Line) -> Option<u32> {
    let head = line.load(entry::HEAD);
    let names = head & entry::EXT_BIT != 0 && entry::action(head) != entry::ACT_LIST;
    names.then(|| line.load(entry::EXT) as u32)
}

fn ext_in(line: &Line) -> Ext {
    from_words(line.words())
}

/// Lines of all meters that an extension names.
fn meters_of(ext: &Ext) -> impl Iterator<Item = u32> + use<> {
    let Ext {
        meters,
        n_meters,
        packet_meter,
        share,
        ..
    } = *ext;
    let others = [packet_meter, share].into_iter();
    let others = others.filter_map(|line| line.checked_sub(1));
    let rates = meters
        .into_iter()
        .take(METERS_MAX.min(usize::from(n_meters)));
    rates.chain(others)
}

#[cfg(test)]
mod tests {
    use compiled::{
        Above, Action, Compiled, Direction, Key, Limit, NiId, PacketRate, PdrId, QerId, Rate,
        Select, SharedMeter, Tables as _,
    };
    use std::net::Ipv4Addr;
    use testkit::{packets, sessions};

    use super::*;
    use crate::testing::{furnish, ports};
    use crate::{Layout, Options, Tables, Verdict};

    const TEID: u32 = 7;
    const OCTETS: u64 = 52;
    const SECOND: u64 = 1_000_000_000;

    /// A packet in a second, and four at once.
    fn rate() -> Rate {
        Rate {
            bps: 8 * OCTETS,
            burst_bytes: 4 * OCTETS,
            above: Above::Police,
        }
    }

    fn session(pdr: u16) -> Compiled {
        let action = Action::Route { ni: NiId(0) };
        Compiled {
            entries: vec![sessions::entry(PdrId(pdr), Direction::Uplink, action)],
            keys: vec![(Key::direct(TEID), Select::One(0))],
            seid: 5,
            ..Compiled::default()
        }
    }

    fn with_own(pdr: u16, rate: Rate) -> Compiled {
        let mut session = session(pdr);
        session.entries[0].meter = Some(rate);
        session
    }

    fn shared(qer: u32, limit: Limit) -> SharedMeter {
        SharedMeter {
            qer: QerId(qer),
            direction: Direction::Uplink,
            limit,
        }
    }

    /// MBRs of these QERs, in this order.
    fn with_shared(qers: &[(u32, Rate)]) -> Compiled {
        let mut session = session(1);
        let meters = qers
            .iter()
            .map(|(qer, rate)| shared(*qer, Limit::Bits(*rate)));
        session.meters = meters.collect();
        session.entries[0].shared_meters = (0..qers.len()).collect();
        session
    }

    fn with_packets(packets: u32) -> Compiled {
        let mut session = session(1);
        let per = Duration::from_secs(60);
        let limit = Limit::Packets(PacketRate { packets, per });
        session.meters = vec![shared(1, limit)];
        session.entries[0].packet_meter = Some(0);
        session
    }

    struct Upf(Tables, Handle);

    impl Upf {
        fn new(session: &Compiled) -> Self {
            let layout = Layout::for_sessions(64, 2, 2);
            let mut tables = Tables::by_hand(&layout, &ports(), &Options::default()).unwrap();
            furnish(&mut tables);
            let mut handle = Handle::default();
            tables.publish(&mut handle, session).unwrap();
            Self(tables, handle)
        }

        /// Of so many packets at this time those that pass.
        fn passed(&self, packets: usize, now_ns: u64) -> usize {
            let ue = Ipv4Addr::new(10, 60, 0, 1);
            let ip = packets::ipv4(ue, Ipv4Addr::new(192, 0, 2, 1), 17, 64, 32);
            let frame = packets::gpdu(TEID, None, &[&ip[..], &[0; 32]].concat());
            let run = || self.0.run(0, &frame, now_ns).unwrap().verdict;
            let passed = (0..packets).filter(|_| matches!(run(), Verdict::Redirect(_)));
            passed.count()
        }

        fn left(&self, are_met: bool) -> (LeftMeters, Vec<CountedAt>) {
            let shard = &self.0.store.shard;
            let mem = &shard.mem;
            let shared = (mem.exts.clone(), mem.meters.clone());
            let held = self.1.entries().iter();
            (
                LeftMeters::new(mem.entries.clone(), Some(shared), are_met),
                held.map(|held| shard.counted_at(held)).collect(),
            )
        }

        /// One that goes on with this session where this one is, whose meters packets may charge still.
        fn successor(&self, session: &Compiled) -> Self {
            self.successor_of(session, true)
        }

        fn successor_of(&self, session: &Compiled, are_met: bool) -> Self {
            let mut next = Self::new(session);
            let (left, at) = self.left(are_met);
            next.0.go_on_with(left);
            next.0.follow_meters(&next.1, &at);
            next
        }
    }

    /// What passes of many packets in tables that come after those where `before` was used up at this time, when they are raised then.
    fn passes_after(before: &Compiled, after: &Compiled, used_up: usize, now_ns: u64) -> usize {
        let former = Upf::new(before);
        assert_eq!(former.passed(100, now_ns), used_up);
        let next = former.successor(after);
        next.0.store.raise_meters(now_ns);
        next.passed(100, now_ns)
    }

    #[test]
    fn what_is_used_up_stays_used_up() {
        const NOW: u64 = 1000 * SECOND;
        let own = with_own(1, rate());
        assert_eq!(passes_after(&own, &own, 5, NOW), 0);
        let shared = with_shared(&[(1, rate())]);
        assert_eq!(passes_after(&shared, &shared, 5, NOW), 0);
        let packets = with_packets(3);
        assert_eq!(passes_after(&packets, &packets, 3, NOW), 0);
        assert_eq!(
            passes_after(&packets, &with_packets(10), 3, NOW),
            7,
            "a limit that was raised meanwhile"
        );
    }

    #[test]
    fn meters_that_nothing_charges_any_more_are_not_waited_for() {
        const NOW: u64 = 1000 * SECOND;
        for session in [with_own(1, rate()), with_shared(&[(1, rate())])] {
            for (are_met, passes) in [(true, 5), (false, 0)] {
                let former = Upf::new(&session);
                assert_eq!(former.passed(100, NOW), 5);
                let next = former.successor_of(&session, are_met);
                assert_eq!(next.passed(100, NOW), passes, "{are_met}, not raised");
            }
        }
    }

    #[test]
    fn a_meter_is_told_by_its_qer() {
        const NOW: u64 = 1000 * SECOND;
        let wide = Rate {
            bps: 8_000_000,
            burst_bytes: 1_000_000,
            above: Above::Police,
        };
        let before = with_shared(&[(1, rate()), (2, wide)]);
        let turned = with_shared(&[(2, wide), (1, rate())]);
        assert_eq!(passes_after(&before, &turned, 5, NOW), 0);
        // Not QER 2's, nor that of a rate of packets.
        let other = with_shared(&[(2, rate())]);
        assert_eq!(
            passes_after(&with_shared(&[(1, rate())]), &other, 5, NOW),
            5
        );
        assert_eq!(passes_after(&with_packets(3), &other, 3, NOW), 5);
        let other_pdr = with_own(2, rate());
        assert_eq!(passes_after(&with_own(1, rate()), &other_pdr, 5, NOW), 5);
    }

    #[test]
    fn a_lower_rate_waits_no_longer_than_its_own_burst() {
        const NOW: u64 = 1000 * SECOND;
        let long = Rate {
            burst_bytes: 60 * OCTETS,
            ..rate()
        };
        let former = Upf::new(&with_own(1, long));
        assert_eq!(former.passed(100, NOW), 61);
        let next = former.successor(&with_own(1, rate()));
        next.0.store.raise_meters(NOW);
        assert_eq!(next.passed(100, NOW + 5 * SECOND / 2), 3);
    }

    #[test]
    fn former_programs_are_met_until_links_have_changed_over() {
        const NOW: u64 = 1000 * SECOND;
        let own = with_own(1, rate());
        let former = Upf::new(&own);
        let next = former.successor(&own);
        next.0.store.raise_meters(NOW);
        // One more than was left, as no look is the last.
        assert_eq!(former.passed(3, NOW), 3);
        assert_eq!(next.passed(1, NOW), 1);
        next.0.store.raise_meters(NOW);
        assert_eq!(next.passed(100, NOW), 2);
        next.0.store.raise_meters(NOW);
        assert_eq!(next.passed(100, NOW), 0, "nor is any state taken back");
    }

    #[test]
    fn an_entry_that_another_session_has_meanwhile_is_left_alone() {
        const NOW: u64 = 1000 * SECOND;
        let own = with_own(1, rate());
        let former = Upf::new(&own);
        assert_eq!(former.passed(100, NOW), 5);
        let mut next = former.successor(&own);
        next.0.withdraw(&mut next.1);
        next.0.store.wait();
        let other = Compiled {
            seid: 6,
            ..own.clone()
        };
        next.0.publish(&mut next.1, &other).unwrap();
        next.0.store.raise_meters(NOW);
        assert_eq!(next.passed(100, NOW), 5);
    }

    #[test]
    fn shared_meters_that_were_not_pinned_begin_full() {
        const NOW: u64 = 1000 * SECOND;
        let session = with_shared(&[(1, rate())]);
        let former = Upf::new(&session);
        assert_eq!(former.passed(100, NOW), 5);
        let mut next = Upf::new(&session);
        let (mut left, at) = former.left(true);
        left.shared = None;
        next.0.go_on_with(left);
        next.0.follow_meters(&next.1, &at);
        next.0.store.raise_meters(NOW);
        assert_eq!(next.passed(100, NOW), 5);
    }
}
