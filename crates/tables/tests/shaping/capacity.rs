//! Flows that share a capacity: who has how much where there is not enough for all, by a clock that the tests move.

use compiled::{
    Above, CAPACITIES_ON_WAY, CapacityId, Compiled, Direction, Limit, QerId, Resource, Share,
    SharedMeter, Tables as _,
};
use tables::{CapacityConfig, Governor, Layout, Shaping};

use super::*;
use testkit::packets;

const CAPACITY: u64 = 100 * MBIT;
const LINK: CapacityId = CapacityId(1);
const INSTANCE: CapacityId = CapacityId(2);
const STEP: u64 = 100 * US;

fn capacity(bps: u64, above: Above) -> CapacityConfig {
    CapacityConfig {
        name: "link".into(),
        bps,
        guaranteed_at_most: bps / 2,
        least_weight: 10,
        above,
    }
}

fn shared(weight: u16, guaranteed: Option<u64>, capacities: &[CapacityId]) -> Share {
    let mut all = [CapacityId::NONE; CAPACITIES_ON_WAY];
    all[..capacities.len()].copy_from_slice(capacities);
    Share {
        weight,
        guaranteed: guaranteed.map(|bps| Rate {
            burst_bytes: 20_000,
            ..rate(bps)
        }),
        capacities: all,
    }
}

/// A session whose uplink has this share.
fn with_share(user: u32, share: Share) -> Compiled {
    let mut session = session(user, Rates::default(), 5);
    session.entries[0].share = Some(0);
    session.meters.push(SharedMeter {
        qer: QerId(user),
        direction: Direction::Uplink,
        limit: Limit::Share(share),
    });
    session
}

/// Users who send at a rate all the time, through capacities.
struct Contest {
    site: Site,
    governor: Governor,
    /// User, bits per second that are sent, and how much of that is not yet a packet.
    users: Vec<(u32, u64, Source)>,
    /// By how much each look is late, and when the next one is.
    late: u64,
    look: u64,
}

impl Contest {
    fn new(capacities: &[CapacityConfig], shaping: Option<Shaping>) -> Self {
        let site = Site::of(Layout {
            shaping,
            capacities: capacities.to_vec(),
            ..Layout::for_sessions(2048, 2, 2)
        });
        let governor = site.tables.governor().unwrap();
        let users = Vec::new();
        Self {
            site,
            governor,
            users,
            late: 0,
            look: 0,
        }
    }

    fn user(&mut self, bps: u64, share: Share) -> u32 {
        let user = self.users.len() as u32 + 1;
        self.site
            .publish_all(user, &with_share(user, share))
            .unwrap();
        let mut source = Source::default();
        // They do not all begin with a packet at once.
        source.packets(
            bps,
            u64::from(user).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (BITS * SECOND / bps).max(1),
        );
        self.users.push((user, bps, source));
        user
    }

    fn run(&mut self, during: u64) {
        let end = self.site.now + during;
        let mut random = Random(11);
        while self.site.now < end {
            self.site.at(self.site.now + STEP);
            if self.site.now >= self.look {
                self.governor.look(self.site.now);
                self.look = self.site.now + self.late;
            }
            let mut come = Vec::new();
            for (user, bps, source) in &mut self.users {
                let n = source.packets(*bps, STEP);
                come.extend(std::iter::repeat_n(*user, n));
            }
            for i in (1..come.len()).rev() {
                come.swap(i, random.below(i + 1));
            }
            self.site.come(N3, &come);
        }
    }

    /// What each user had in this time, in bits per second, when others have settled.
    fn measure(&mut self, during: u64) -> Vec<u64> {
        self.run(SECOND);
        self.site.left[N6].clear();
        self.site.lost.clear();
        self.run(during);
        let left = &self.site.left[N6];
        let of = |user: u32| left.iter().filter(|fate| fate.user == user).count() as u64;
        let users = self.users.iter();
        users
            .map(|(user, ..)| of(*user) * BITS * SECOND / during)
            .collect()
    }

    fn lost_of(&self, user: u32) -> usize {
        let lost = self.site.lost.iter();
        lost.filter(|fate| fate.user == user).count()
    }
}

#[track_caller]
fn assert_near(has: u64, should: u64, percent: u64) {
    println!("{has} of {should}");
    assert!(
        has.abs_diff(should) * 100 <= should * percent,
        "{has} {should}"
    );
}

/// One flow is guaranteed 20 of 100 Mbit/s, and sends that; ten others send five times what there is.
fn a_guarantee_holds(above: Above, shaping: Option<Shaping>) {
    let mut contest = Contest::new(&[capacity(CAPACITY, above)], shaping);
    let guaranteed = contest.user(20 * MBIT, shared(10, Some(21 * MBIT), &[LINK]));
    for _ in 0..10 {
        contest.user(50 * MBIT, shared(10, None, &[LINK]));
    }
    let has = contest.measure(2 * SECOND);
    assert_near(has[0], 20 * MBIT, 1);
    assert_eq!(contest.lost_of(guaranteed), 0);
    assert_near(has.iter().sum(), CAPACITY, 1);
    let others = &has[1..];
    let (sum, squares) = others.iter().fold((0.0, 0.0), |(sum, squares), &has| {
        (sum + has as f64, squares + (has as f64).powi(2))
    });
    let jain = sum * sum / (10.0 * squares);
    assert!(jain > 0.999, "{jain} {others:?}");
    contest.site.assert_order();
    // Also in the time before shares had settled, 20 ms of it, all together did not go beyond what there is.
    let (_, most) = any(
        &contest.site.left[N6],
        (contest.site.now - SECOND, contest.site.now),
        100 * MS,
    );
    assert!(most <= CAPACITY / 10 * 105 / 100, "{most}");
}

#[test]
fn a_guarantee_holds_among_greedy_neighbours_that_are_policed() {
    a_guarantee_holds(Above::Police, None);
}

#[test]
fn a_guarantee_holds_among_greedy_neighbours_that_wait() {
    a_guarantee_holds(Above::Shape, Some(SHAPING));
}

/// When ten flows begin at once what leaves is what there is, and no more than what 20 ms and a step of each CPU add.
#[test]
fn a_capacity_holds_before_shares_have_settled() {
    for (above, shaping) in [(Above::Police, None), (Above::Shape, Some(SHAPING))] {
        let mut contest = Contest::new(&[capacity(CAPACITY, above)], shaping);
        for _ in 0..10 {
            contest.user(50 * MBIT, shared(10, None, &[LINK]));
        }
        let begin = contest.site.now;
        contest.run(SECOND);
        let left = &contest.site.left[N6];
        let (_, most) = any(left, (begin, contest.site.now), 100 * MS);
        assert!(most <= CAPACITY / 10 * 125 / 100, "{most}");
        assert!(left.len() as u64 * BITS >= CAPACITY / 100 * 90);
    }
}

/// By weight, where all want more; and what one leaves is the others'.
#[test]
fn shares_are_by_weight() {
    let mut contest = Contest::new(&[capacity(CAPACITY, Above::Police)], None);
    for (bps, weight) in [(200 * MBIT, 10), (200 * MBIT, 30), (5 * MBIT, 60)] {
        contest.user(bps, shared(weight, None, &[LINK]));
    }
    let has = contest.measure(2 * SECOND);
    for (has, should) in has.into_iter().zip([23_750_000, 71_250_000, 5 * MBIT]) {
        assert_near(has, should, 2);
    }
    assert_eq!(contest.lost_of(3), 0);
    let report = &contest.site.tables.capacities()[0];
    assert_near(report.share_bps.unwrap(), 23_750_000, 3);
}

/// Whether the flow had had its share, or there was no room for anybody; where a session is asked they are drops of QoS
/// enforcement.
#[test]
fn a_capacity_tells_of_few_of_its_drops() {
    let mut contest = Contest::new(&[capacity(CAPACITY, Above::Police)], None);
    for (bps, weight) in [(200 * MBIT, 10), (200 * MBIT, 30), (5 * MBIT, 60)] {
        contest.user(bps, shared(weight, None, &[LINK]));
    }
    contest.run(2 * SECOND);
    let site = &contest.site;
    let pdrs = (site.handles.values()).flat_map(|handle| [1, 2].map(|pdr| (handle, PdrId(pdr))));
    let dropped = pdrs.map(|(handle, pdr)| site.tables.counters(handle, pdr).qos_packets);
    let dropped: u64 = dropped.sum();
    assert!(dropped > 10_000, "{dropped}");
    assert_eq!(site.tables.capacities()[0].drops, dropped);
}

/// A flow that goes through two capacities has of the narrower one; others have what it leaves of the wider one.
#[test]
fn the_narrower_of_two_capacities_counts() {
    let capacities = [
        capacity(CAPACITY, Above::Police),
        capacity(20 * MBIT, Above::Police),
    ];
    let mut contest = Contest::new(&capacities, None);
    contest.user(200 * MBIT, shared(10, None, &[LINK, INSTANCE]));
    contest.user(200 * MBIT, shared(10, None, &[LINK]));
    let has = contest.measure(2 * SECOND);
    assert_near(has[0], 20 * MBIT, 2);
    assert_near(has[1], 80 * MBIT, 2);
}

/// Nobody is held back while there is enough, and again once others have gone.
#[test]
fn what_others_leave_is_there_again() {
    let mut contest = Contest::new(&[capacity(CAPACITY, Above::Police)], None);
    contest.user(90 * MBIT, shared(10, None, &[LINK]));
    assert_near(contest.measure(SECOND)[0], 90 * MBIT, 1);
    assert_eq!(contest.site.lost, []);
    assert_eq!(contest.site.tables.capacities()[0].share_bps, None);
    for _ in 0..9 {
        contest.user(90 * MBIT, shared(10, None, &[LINK]));
    }
    assert_near(contest.measure(SECOND)[0], CAPACITY / 10, 2);
    contest.users.truncate(1);
    assert_near(contest.measure(SECOND)[0], 90 * MBIT, 1);
}

/// What is guaranteed is there, or is refused; what a session gives back others may have.
#[test]
fn more_than_there_is_is_not_guaranteed() {
    let mut contest = Contest::new(&[capacity(CAPACITY, Above::Police)], None);
    let guaranteed = |bps| shared(10, Some(bps), &[LINK]);
    let full = |qer| {
        Err(NoRoom {
            table: "capacities",
            qer: Some(QerId(qer)),
            capacity: LINK,
            is_kept: false,
        })
    };
    let site = &mut contest.site;
    let mut ask = |user, bps| site.publish_all(user, &with_share(user, guaranteed(bps)));
    assert_eq!(ask(1, 30 * MBIT), Ok(()));
    assert_eq!(ask(2, 20 * MBIT), Ok(()));
    assert_eq!(ask(3, 1), full(3));
    // It keeps what it has when it asks for too much.
    assert_eq!(ask(2, 20 * MBIT + 1), full(2));
    assert_eq!(ask(1, 25 * MBIT), Ok(()));
    assert_eq!(ask(3, 5 * MBIT), Ok(()));
    let all = |site: &Site| site.tables.capacities()[0].guaranteed_bps;
    assert_eq!(all(&contest.site), 50 * MBIT);
    let mut handle = contest.site.handles.remove(&2).unwrap();
    contest.site.tables.withdraw(&mut handle);
    assert_eq!(all(&contest.site), 30 * MBIT);
}

/// A session that was guaranteed more while there was more keeps that, and nobody else gets any.
#[test]
fn a_guarantee_of_before_outlives_a_smaller_capacity() {
    let mut contest = Contest::new(&[capacity(CAPACITY, Above::Police)], None);
    let guaranteed = |bps| shared(10, Some(bps), &[LINK]);
    let site = &mut contest.site;
    site.tables.honour_guarantees(true);
    let before = with_share(1, guaranteed(CAPACITY));
    site.publish_all(1, &before).unwrap();
    site.tables.honour_guarantees(false);
    assert_eq!(site.tables.capacities()[0].guaranteed_bps, CAPACITY);
    let another = with_share(2, guaranteed(MBIT));
    assert!(site.publish_all(2, &another).is_err());
    site.publish_all(1, &before).unwrap();
}

/// What is guaranteed to others is kept for them, also while nobody has it.
#[test]
fn what_is_kept_for_others_is_not_guaranteed() {
    let mut contest = Contest::new(&[capacity(CAPACITY, Above::Police)], None);
    let site = &mut contest.site;
    let mut ask = |user, bps, more| {
        let mut session = with_share(user, shared(10, Some(bps), &[LINK]));
        session.more.push((Resource::Guaranteed(LINK), more));
        site.publish_all(user, &session)
    };
    let kept = |qer| {
        Err(NoRoom {
            qer: Some(QerId(qer)),
            capacity: LINK,
            ..NoRoom::kept("capacities")
        })
    };
    assert_eq!(ask(1, 30 * MBIT, 20 * MBIT), kept(1));
    assert_eq!(ask(1, 20 * MBIT, 20 * MBIT), Ok(()));
    // What it has already counts no more.
    assert_eq!(ask(1, 25 * MBIT, 5 * MBIT), Ok(()));
    assert_eq!(ask(1, 25 * MBIT, 0), Ok(()));
    assert_eq!(ask(1, 26 * MBIT, 0), kept(1));
    let held = site.tables.holds(&site.handles[&1]);
    assert_eq!(held.of(Resource::Guaranteed(LINK)), 25 * MBIT);
    assert_eq!(
        site.tables.room(Resource::Guaranteed(LINK)),
        Some(50 * MBIT)
    );
}

/// Packets of L4S are marked where their meter is more than 2 ms ahead, and no others.
#[test]
fn senders_that_listen_are_told_of_congestion() {
    const ECT1: u8 = 1;
    const CE: u8 = 3;
    for shaping in [None, Some(SHAPING)] {
        let mut site = Site::of(Layout {
            shaping,
            ..Layout::for_sessions(64, 2, 2)
        });
        let mut session = session(1, Rates::default(), 5);
        // A packet is worth 1.12 ms.
        session.entries[0].meter = Some(Rate {
            burst_bytes: 100_000,
            ..rate(10 * MBIT)
        });
        site.publish_all(1, &session).unwrap();
        for (ecn, expected) in [(ECT1, CE), (0, 0), (2, 2), (CE, CE)] {
            site.at(site.now + SECOND);
            let mut frame = site.frame(N3, 1);
            let ip = frame.len() - LEN;
            frame[ip + 1] = ecn;
            packets::sum(&mut frame[ip..ip + 20]);
            let frames = vec![frame; 5];
            let together = site.tables.run_together(N3, &frames, site.now).unwrap();
            let at_once = together.outcomes.into_iter();
            let at_once = at_once.filter(|(verdict, _)| matches!(verdict, Verdict::Redirect(_)));
            let mut left: Vec<Vec<u8>> = at_once.map(|(_, frame)| frame).collect();
            site.now += 10 * MS;
            left.extend(site.tables.release(site.now).into_iter().map(|(_, f)| f));
            let headers = left.iter().map(|frame| &frame[14..34]);
            let seen: Vec<u8> = headers
                .inspect(|ip| assert!(packets::checksum_holds(ip)))
                .map(|ip| ip[1] & 3)
                .collect();
            assert_eq!(seen, [ecn, ecn, expected, expected, expected]);
        }
    }
}

/// Second by second, what leaves of a capacity of which there is not enough, in percent.
fn percents(contest: &mut Contest, bps: u64, seconds: usize) -> Vec<u64> {
    let each = (0..seconds).map(|_| {
        contest.site.left[N6].clear();
        contest.site.lost.clear();
        contest.run(SECOND);
        contest.site.left[N6].len() as u64 * BITS * 100 / bps
    });
    each.collect()
}

/// From the second second on nothing of a capacity is left, be it that few flows send much, or many of them a packet now and then, that
/// one of them sends beyond its guarantee, or that the thread of shares is late by 100 ms each time.
#[test]
fn capacities_waste_a_third_for_many_seconds() {
    let crowds = [
        (20 * MBIT, 2, 30 * MBIT),
        (20 * MBIT, 10, 10 * MBIT),
        (20 * MBIT, 100, MBIT),
        (100 * MBIT, 1000, 400_000),
    ];
    for (bps, flows, each) in crowds {
        for (late, above) in [0, 100 * MS].into_iter().zip([Above::Police, Above::Shape]) {
            for guaranteed in [None, Some(bps / 4)] {
                let shaping = (above == Above::Shape).then_some(SHAPING);
                let mut contest = Contest::new(&[capacity(bps, above)], shaping);
                contest.late = late;
                if let Some(rate) = guaranteed {
                    contest.user(3 * rate, shared(10, Some(rate), &[LINK]));
                }
                for _ in 0..flows {
                    contest.user(each, shared(10, None, &[LINK]));
                }
                let percents = percents(&mut contest, bps, 4);
                let of = format!("{flows} flows of {each}, {above:?}, {late}, {guaranteed:?}");
                assert!(
                    percents[1..].iter().all(|percent| *percent >= 95),
                    "{of}: {percents:?}"
                );
                println!("{of}: {percents:?}");
            }
        }
    }
}
