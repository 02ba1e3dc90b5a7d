//! Packets above their rates, as workers have them wait: what leaves, and when, by a clock that the tests move.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

#[path = "shaping/capacity.rs"]
mod capacity;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use compiled::{
    Above, Action, Compiled, Direction, Entry, Key, Limit, NiId, NoRoom, PdrId, QerId, Rate, Relay,
    Select, SharedMeter, Tables as _, UeAddresses,
};
use nexthop::NextHopTables;
use tables::task::{EVENT_LATER, Event};
use tables::testing::{furnish, hop, ports, resolve_peers};
use tables::{Features, Handle, Layout, Options, Shaping, Tables, Verdict};
use testkit::random::Random;
use testkit::{packets, sessions};

const MBIT: u64 = 1_000_000;
const US: u64 = 1000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Octets of each packet, from its IP header on: what rates are about.
const LEN: usize = 1400;
const BITS: u64 = LEN as u64 * 8;
const BURST: usize = 64;
const N3: usize = 0;
const N6: usize = 1;

const SLOT: u64 = 50 * US;
const SHAPING: Shaping = Shaping {
    granularity: Duration::from_nanos(SLOT),
    slots: 4096,
    frames: 32_768,
};
/// Packets of L4S are marked where meters are so far ahead.
const L4S: Duration = Duration::from_millis(2);
const HORIZON: u64 = 4095 * SLOT;

fn ue(user: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a3c_0000 + user)
}

fn rate(bps: u64) -> Rate {
    Rate {
        bps,
        burst_bytes: 1,
        above: Above::Shape,
    }
}

/// What a test wants of one session: an MBR each way, and one for both PDRs uplink that it has.
#[derive(Clone, Copy, Default)]
struct Rates {
    up: Option<u64>,
    down: Option<u64>,
    ambr_up: Option<u64>,
}

fn entry(user: u32, pdr: u16, direction: Direction, action: Action) -> Entry {
    Entry {
        ue: (direction == Direction::Uplink).then_some(UeAddresses {
            v4: Some(ue(user)),
            v6: None,
        }),
        ..sessions::entry(PdrId(pdr), direction, action)
    }
}

/// A session with a PDR for each direction. Downlink goes to this TEID.
fn session(user: u32, rates: Rates, teid: u32) -> Compiled {
    let mut up = entry(user, 1, Direction::Uplink, Action::Route { ni: NiId(0) });
    let tunnel = Action::Tunnel {
        teid,
        peer: packets::GNB.into(),
        local: packets::N3.into(),
    };
    let mut down = entry(user, 2, Direction::Downlink, tunnel);
    up.meter = rates.up.map(rate);
    down.meter = rates.down.map(rate);
    let mut meters = Vec::new();
    if let Some(bps) = rates.ambr_up {
        meters.push(SharedMeter {
            qer: QerId(7),
            direction: Direction::Uplink,
            limit: Limit::Bits(rate(bps)),
        });
        up.shared_meters.push(0);
    }
    let (key_up, key_down) = (
        Key::direct(user),
        Key::Ue4 {
            ni: NiId(0),
            addr: ue(user),
        },
    );
    Compiled {
        seid: user.into(),
        entries: vec![up, down],
        keys: vec![(key_up, Select::One(0)), (key_down, Select::One(1))],
        meters,
        ..Compiled::default()
    }
}

/// A packet that has left, or was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    at: u64,
    user: u32,
    number: u32,
    /// Of a downlink packet.
    teid: u32,
    lost: Option<&'static str>,
}

/// An End Marker has left.
fn marker(at: u64) -> Fate {
    Fate {
        at,
        user: 0,
        number: u32::MAX,
        teid: 0,
        lost: None,
    }
}

struct Site {
    tables: Tables,
    n3: u32,
    handles: HashMap<u32, Handle>,
    now: u64,
    numbers: u32,
    left: [Vec<Fate>; 2],
    lost: Vec<Fate>,
    /// When each packet came, by number.
    came: Vec<u64>,
    /// Packets that were told to wait, by port and user.
    told_to_wait: HashMap<(usize, u32), u64>,
}

impl Site {
    fn new(shaping: Shaping) -> Self {
        Self::of(Layout {
            shaping: Some(shaping),
            ..Layout::for_sessions(2048, 2, 2)
        })
    }

    fn of(layout: Layout) -> Self {
        let options = Options {
            features: Some(Features::ALL),
            l4s: Some(L4S),
            ..Options::default()
        };
        let mut tables = Tables::by_hand(&layout, &ports(), &options).unwrap();
        furnish(&mut tables);
        let n3 = tables.alloc_nexthop(&hop(0)).unwrap();
        let mut site = Self {
            tables,
            n3,
            handles: HashMap::new(),
            now: 0,
            numbers: 0,
            left: [Vec::new(), Vec::new()],
            lost: Vec::new(),
            came: Vec::new(),
            told_to_wait: HashMap::new(),
        };
        site.at(1000 * SECOND);
        site
    }

    fn publish(&mut self, user: u32, rates: Rates, teid: u32) {
        self.publish_all(user, &session(user, rates, teid)).unwrap();
    }

    fn publish_all(&mut self, user: u32, session: &Compiled) -> Result<(), NoRoom> {
        let handle = self.handles.entry(user).or_default();
        self.tables.publish(handle, session)?;
        resolve_peers(&mut self.tables, self.n3);
        Ok(())
    }

    /// The clock is at this time, and what is due leaves.
    fn at(&mut self, now: u64) {
        self.now = now;
        for (port, frame) in self.tables.release(now) {
            self.note(port as usize, &frame, None);
        }
    }

    fn note(&mut self, port: usize, frame: &[u8], lost: Option<&'static str>) {
        if frame.len() < LEN {
            return self.left[port].push(marker(self.now));
        }
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        let ip = frame.len() - LEN;
        let fate = Fate {
            at: self.now,
            user: word(ip + 28),
            number: word(ip + 32),
            teid: if port == N3 { word(ip - 4) } else { 0 },
            lost,
        };
        match lost {
            None => self.left[port].push(fate),
            Some(_) => self.lost.push(fate),
        }
    }

    /// Packets come together, each of a user, on a port.
    fn come(&mut self, port: usize, users: &[u32]) {
        for users in users.chunks(BURST) {
            let frames: Vec<_> = users.iter().map(|&user| self.frame(port, user)).collect();
            let together = self.tables.run_together(port, &frames, self.now).unwrap();
            let outcomes = together.outcomes.into_iter().zip(&frames).zip(users);
            for (((verdict, frame), came), &user) in outcomes {
                match verdict {
                    Verdict::Redirect(port) => self.note(port as usize, &frame, None),
                    Verdict::Later { at_ns, .. } => {
                        assert!(at_ns <= self.now + HORIZON, "{at_ns} {}", self.now);
                        *self.told_to_wait.entry((port, user)).or_default() += 1;
                    }
                    Verdict::Drop(reason) => {
                        self.note(N6, came, Some(reason.name()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// A packet comes on a port, and is finished by a thread beside workers.
    fn finish(&mut self, port: usize, user: u32) {
        /// Of whoever runs frames by hand: the one behind all workers.
        const NUMBER: u16 = 1;
        let frame = self.frame(port, user);
        let pipeline = self.tables.pipeline();
        let run = pipeline.run(port, &frame, self.now);
        match run.verdict {
            Verdict::Redirect(port) => self.note(port as usize, &run.frame, None),
            Verdict::Slow => {
                assert!(pipeline.leave_later(&run.event, NUMBER));
                self.at(self.now);
            }
            other => panic!("{other:?}"),
        }
    }

    fn frame(&mut self, port: usize, user: u32) -> Vec<u8> {
        let far = Ipv4Addr::new(192, 0, 2, 1);
        let (src, dst) = if port == N3 {
            (ue(user), far)
        } else {
            (far, ue(user))
        };
        let mut ip = packets::ipv4(src, dst, 17, 64, LEN - 20);
        ip.resize(LEN, 0);
        ip[28..32].copy_from_slice(&user.to_be_bytes());
        ip[32..36].copy_from_slice(&self.numbers.to_be_bytes());
        self.numbers += 1;
        self.came.push(self.now);
        if port == N3 {
            packets::gpdu(user, None, &ip)
        } else {
            packets::ethernet(&ip)
        }
    }

    /// Until all that waits has left.
    fn drain(&mut self) {
        let end = self.now + HORIZON + 2 * SLOT;
        while self.now < end {
            self.at(self.now + SLOT);
        }
    }

    /// Each user's packets have left in the order that they came.
    fn assert_order(&self) {
        for left in &self.left {
            let mut last: HashMap<u32, u32> = HashMap::new();
            for fate in left {
                let before = last.insert(fate.user, fate.number);
                assert!(before.is_none_or(|before| before < fate.number), "{fate:?}");
            }
        }
    }
}

/// Packets that a source has sent by a time, at a rate that changes.
#[derive(Default)]
struct Source {
    bits: u64,
}

impl Source {
    fn packets(&mut self, bps: u64, during: u64) -> usize {
        self.bits += bps * during / SECOND;
        let n = self.bits / BITS;
        self.bits %= BITS;
        n as usize
    }
}

/// The least and the most bits that left within any time so long, between two times.
fn any(left: &[Fate], (from, until): (u64, u64), window: u64) -> (u64, u64) {
    let times: Vec<u64> = left.iter().map(|fate| fate.at).collect();
    let within = |begin: u64| {
        let first = times.partition_point(|&at| at < begin);
        (times.partition_point(|&at| at < begin + window) - first) as u64 * BITS
    };
    let begins = (from..=until - window).step_by(SLOT as usize * 3);
    begins.fold((u64::MAX, 0), |(least, most), begin| {
        let bits = within(begin);
        (least.min(bits), most.max(bits))
    })
}

/// A thread has packets go by an entry while another takes its place: the meter of the next one has seen what the former was charged
/// with until then. All but those that are charged between the last look at it and the switch, which is a few instructions.
#[test]
fn packets_of_an_entry_that_is_replaced_leave_before_those_of_the_next() {
    const CHANGES: u32 = 20_000;
    const AHEAD: u64 = 20 * MS;
    let rates = [100, 101].map(|mbit| Rates {
        down: Some(mbit * MBIT),
        ..Rates::default()
    });
    let mut site = Site::new(SHAPING);
    site.publish(1, rates[0], 5);
    let frame = site.frame(N6, 1);
    let (pipeline, bystander) = (site.tables.pipeline(), site.tables.bystander());
    // The first one leaves at once.
    pipeline.run(N6, &frame, site.now);
    let (mut last, over) = (site.now, AtomicBool::new(false));
    let (packets, late) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let (mut packets, mut late) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let _looking = bystander.look();
                let run = pipeline.run(N6, &frame, last - AHEAD);
                let event = Event::parse(&run.event).filter(|event| event.kind == EVENT_LATER);
                let event = event.unwrap_or_else(|| panic!("{:?}", run.verdict));
                let leaves_ns = u64::from_ne_bytes(*event.data.first_chunk().unwrap());
                late += u64::from(leaves_ns < last);
                last = leaves_ns.max(last);
                packets += 1;
            }
            (packets, late)
        });
        for change in 1..=CHANGES {
            // A change of both needs an entry of its own.
            site.publish(1, rates[change as usize % 2], 5 + change % 2);
            site.tables.maintain();
        }
        over.store(true, Ordering::Relaxed);
        sender.join().unwrap()
    });
    assert!(
        packets > 1000 && late * 1000 < packets,
        "{late} of {packets} late"
    );
}

/// 800 and 1200 Mbit/s in turns against 1000, up and down at once: what leaves keeps to the rate, over any second within 1 %
/// and over any 100 ms within 5 %, and nothing is lost.
#[test]
fn what_leaves_keeps_to_its_rate_both_ways() {
    const RATE: u64 = 1000 * MBIT;
    let mut site = Site::new(SHAPING);
    let rates = Rates {
        up: Some(RATE),
        down: Some(RATE),
        ..Rates::default()
    };
    site.publish(1, rates, 5);
    let (begin, end) = (site.now, site.now + 1600 * MS);
    let (mut up, mut down) = (Source::default(), Source::default());
    while site.now < end {
        site.at(site.now + SLOT);
        let is_high = ((site.now - begin) / (50 * MS)).is_multiple_of(2);
        let (high, low) = (1200 * MBIT, 800 * MBIT);
        let (bps_up, bps_down) = if is_high { (high, low) } else { (low, high) };
        let n = up.packets(bps_up, SLOT);
        site.come(N3, &vec![1; n]);
        let n = down.packets(bps_down, SLOT);
        site.come(N6, &vec![1; n]);
    }
    assert_eq!(site.lost, []);
    site.assert_order();
    for left in &site.left {
        // Downlink begins below its rate.
        for (window, percent) in [(SECOND, 1), (100 * MS, 5)] {
            let should = RATE / 1000 * (window / MS);
            let (least, most) = any(left, (begin + 100 * MS, end), window);
            println!("{window} ns: {least} to {most} of {should}");
            assert!(least >= should - should * percent / 100, "{least} {should}");
            assert!(most <= should + should * percent / 100, "{most} {should}");
        }
    }
    let sent = site.numbers as usize;
    site.drain();
    assert_eq!(site.left[0].len() + site.left[1].len(), sent);
}

/// A worker that comes late releases what is due by its time: over any time, no more than the rate and what was due while it
/// slept.
#[test]
fn a_late_visit_brings_what_was_due_and_no_more() {
    const RATE: u64 = 100 * MBIT;
    let mut site = Site::new(SHAPING);
    let rates = Rates {
        up: Some(RATE),
        ..Rates::default()
    };
    site.publish(1, rates, 5);
    let begin = site.now;
    site.come(N3, &[1; 200]);
    let mut random = Random(7);
    let mut slept = 0;
    while site.left[N6].len() < 200 {
        let sleep = 1 + random.below(9 * MS as usize) as u64;
        slept = slept.max(sleep);
        site.at(site.now + sleep);
        let due = 1 + (site.now - begin) * RATE / SECOND / BITS;
        let left = site.left[N6].len() as u64;
        assert!(left <= due, "early: {left} of {due}");
        assert!(
            left + 1 + SLOT * RATE / SECOND / BITS >= due.min(200),
            "late: {left} of {due}"
        );
    }
    assert!(slept > 5 * MS);
    assert_eq!(site.lost, []);
    site.assert_order();
}

/// A packet whose time has come stays behind one of its flow whose slot has not ended.
#[test]
fn nothing_overtakes_within_a_slot() {
    let mut site = Site::new(SHAPING);
    let rates = Rates {
        up: Some(1000 * MBIT),
        ..Rates::default()
    };
    site.publish(1, rates, 5);
    let mut random = Random(3);
    for _ in 0..2000 {
        site.at(site.now + random.below(SLOT as usize) as u64);
        let n = random.below(4);
        site.come(N3, &vec![1; n]);
    }
    site.drain();
    site.assert_order();
    assert_eq!(site.left[N6].len(), site.numbers as usize);
}

/// Packets that wait, have waited, and for how long, as the worker counts them, and of each session and direction.
#[test]
fn what_waits_is_counted() {
    // Of one that runs frames by hand: the workers come before it.
    const WORKER: usize = 1;
    let mut site = Site::new(SHAPING);
    for user in 1..=3 {
        let rates = Rates {
            up: Some(u64::from(user) * 40 * MBIT),
            down: (user != 3).then_some(60 * MBIT),
            ..Rates::default()
        };
        site.publish(user, rates, 5);
    }
    let counts = site.tables.entry_counts();
    let mut random = Random(11);
    for _ in 0..3000 {
        site.at(site.now + random.below(MS as usize) as u64);
        let users: Vec<u32> = (0..random.below(6))
            .map(|_| 1 + random.below(3) as u32)
            .collect();
        site.come(random.below(2), &users);
        // Meanwhile the meters change, and the entries with them.
        if random.below(300) == 0 {
            let up = Some(50 * MBIT);
            site.publish(
                1,
                Rates {
                    up,
                    ..Rates::default()
                },
                6,
            );
        }
        let left = site.left.iter().map(Vec::len).sum::<usize>() + site.lost.len();
        let counted = site.tables.counting().worker_now(WORKER).unwrap();
        assert_eq!(counted.waiting, u64::from(site.numbers) - left as u64);
    }
    site.drain();
    let told: u64 = site.told_to_wait.values().sum();
    let left = site.left.iter().flatten();
    let waited: u64 = left
        .map(|fate| fate.at - site.came[fate.number as usize])
        .sum();
    let counted = site.tables.counting().worker_now(WORKER).unwrap();
    assert!(told > 1000 && counted.delayed == told, "{counted:?} {told}");
    let difference = counted.waited.as_nanos().abs_diff(waited.into());
    assert!(
        counted.waiting == 0 && difference < 4000,
        "{counted:?} {waited}"
    );
    site.tables.maintain();
    for (&user, handle) in &site.handles {
        for (port, pdr) in [(N3, 1), (N6, 2)] {
            let counted = site.tables.counters(handle, PdrId(pdr)).delayed;
            let told = site.told_to_wait.get(&(port, user)).copied();
            assert_eq!(counted, told.unwrap_or(0), "user {user}, PDR {pdr}");
        }
    }
    // Whoever looks at entries sees the same, of those that have been their PDR's all the time.
    let of_all = |seid: u64, pdr: u16| -> (usize, u64) {
        let places = (0..counts.places()).filter(|&place| counts.owner(place) == Some((seid, pdr)));
        let delayed: Vec<u64> = places
            .map(|place| counts.of(place).delayed.into())
            .collect();
        (delayed.len(), delayed.iter().sum())
    };
    for (user, pdr, port) in [(2, 1, N3), (2, 2, N6), (3, 1, N3)] {
        let told = site.told_to_wait[&(port, user)];
        assert_eq!(
            of_all(user.into(), pdr),
            (1, told),
            "user {user}, PDR {pdr}"
        );
    }
}

/// A thousand users with one of four rates, each of whom sends twice as much: Jain's index within those of a rate, and the rate
/// itself.
#[test]
fn users_with_equal_rates_get_equal_shares() {
    const RATES: [u64; 4] = [600_000, 900_000, 1_400_000, 2_000_000];
    // More than half of it stays free.
    let mut site = Site::new(Shaping {
        frames: 65_536,
        ..SHAPING
    });
    let mut random = Random(0x9e37_79b9);
    let users: Vec<(u32, u64)> = (1..=1000)
        .map(|user| (user, RATES[random.below(RATES.len())]))
        .collect();
    for &(user, bps) in &users {
        let rates = Rates {
            up: Some(bps),
            ..Rates::default()
        };
        site.publish(user, rates, 5);
    }
    let mut sources: Vec<Source> = users.iter().map(|_| Source::default()).collect();
    let step = MS;
    let end = site.now + 1000 * MS;
    while site.now < end {
        site.at(site.now + step);
        let mut come = Vec::new();
        for (&(user, bps), source) in users.iter().zip(&mut sources) {
            let n = source.packets(2 * bps, step);
            come.extend(std::iter::repeat_n(user, n));
        }
        for i in (1..come.len()).rev() {
            come.swap(i, random.below(i + 1));
        }
        site.come(N3, &come);
    }
    site.assert_order();
    assert!(
        site.lost
            .iter()
            .all(|fate| fate.lost == Some("shaper_horizon"))
    );
    let mut packets: HashMap<u32, u64> = HashMap::new();
    for fate in &site.left[N6] {
        *packets.entry(fate.user).or_default() += 1;
    }
    for bps in RATES {
        let shares = users.iter().filter(|user| user.1 == bps);
        let shares: Vec<f64> = shares
            .map(|(user, _)| (packets[user] * BITS) as f64)
            .collect();
        let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| {
            (sum + share, squares + share * share)
        });
        let jain = sum * sum / (shares.len() as f64 * squares);
        let mean = sum / shares.len() as f64;
        println!(
            "{bps} bit/s: {} users, mean {mean:.0}, Jain {jain:.6}",
            shares.len()
        );
        assert!(jain > 0.99, "{jain}");
        // A source begins a little after the clock, and the last packet has not come out whole.
        assert!(
            (mean - bps as f64).abs() <= 2.0 * BITS as f64,
            "{mean} of {bps}"
        );
    }
}

/// Beyond the horizon, and beyond what may wait, packets are lost under names of their own; the others are not.
#[test]
fn what_cannot_wait_is_lost_by_name() {
    let rates = Rates {
        up: Some(10 * MBIT),
        ..Rates::default()
    };
    let mut site = Site::new(SHAPING);
    site.publish(1, rates, 5);
    site.come(N3, &[1; 400]);
    // One leaves at once, and then one each 1.12 ms, as long as the wheel reaches.
    let wait = HORIZON / (BITS * SECOND / (10 * MBIT));
    assert_eq!(site.lost.len() as u64, 400 - 1 - wait);
    assert!(
        site.lost
            .iter()
            .all(|fate| fate.lost == Some("shaper_horizon"))
    );
    site.drain();
    assert_eq!(site.left[N6].len() as u64, 1 + wait);
    site.assert_order();

    let mut site = Site::new(Shaping {
        frames: 100,
        ..SHAPING
    });
    site.publish(1, rates, 5);
    site.publish(2, rates, 5);
    site.come(N3, &[1; 90]);
    site.come(N3, &[2; 30]);
    // While n wait, the next one may wait for 2 * (100 - n) / 100 of the horizon: the first user's are lost from where it would wait
    // longer, the other one's where that has become of what room was left.
    let spacing = BITS * SECOND / (10 * MBIT);
    let may = |number: u64, waiting: u64| number * spacing * 100 <= 2 * HORIZON * (100 - waiting);
    let one = (1..90).take_while(|&n| may(n, n - 1)).count() as u64;
    let two = (1..30).take_while(|&n| may(n, one + n - 1)).count() as u64;
    assert!(one > 70 && two > 10, "{one} {two}");
    assert_eq!(site.lost.len() as u64, 89 - one + 29 - two);
    let is_full = |fate: &Fate| fate.lost == Some("shaper_full");
    assert!(site.lost.iter().all(is_full));
    let totals = site.tables.totals();
    let drops: u64 = totals[N3].drops.iter().flatten().sum();
    assert_eq!(drops, 89 - one + 29 - two);
    // Those that were lost have paid nothing: the next one leaves behind those that wait.
    let begin = site.now;
    site.at(begin + 2 * MS);
    site.come(N3, &[2]);
    site.drain();
    let of_two = site.left[N6].iter().filter(|fate| fate.user == 2);
    let times: Vec<u64> = of_two.map(|fate| fate.at - begin).collect();
    assert_eq!(times.len() as u64, two + 2);
    let due = (two + 1) * spacing;
    let last = times[times.len() - 1];
    assert!((due..due + 2 * SLOT).contains(&last), "{times:?}");
}

/// Who sends without end at a high rate takes the room of nobody whose packets wait for short: of those none is lost, while the
/// greedy user's find no room.
#[test]
fn a_greedy_user_leaves_room_for_the_others() {
    const USERS: u32 = 60;
    let shaping = Shaping {
        frames: 1000,
        ..SHAPING
    };
    let mut site = Site::new(shaping);
    let up = |bps| Rates {
        up: Some(bps),
        ..Rates::default()
    };
    // All that it sends within the horizon would be nine times what there is room for.
    site.publish(1, up(500 * MBIT), 5);
    for user in 2..2 + USERS {
        site.publish(user, up(20 * MBIT), 5);
    }
    let mut greedy = Source::default();
    let mut random = Random(11);
    let mut sent = 0;
    while sent < 3000 {
        site.at(site.now + 10 * SLOT);
        let n = greedy.packets(2000 * MBIT, 10 * SLOT);
        site.come(N3, &vec![1; n]);
        // Another one sends three at once, and comes again when they have left.
        let user = 2 + sent / 3 % USERS;
        site.come(N3, &[user; 3]);
        sent += 3;
        if random.below(4) == 0 {
            site.come(N3, &[1; 40]);
        }
    }
    let lost = |of: fn(u32) -> bool| site.lost.iter().filter(|fate| of(fate.user)).count();
    assert_eq!(lost(|user| user > 1), 0);
    assert!(lost(|user| user == 1) > 1000);
    assert!(
        site.lost
            .iter()
            .any(|fate| fate.lost == Some("shaper_full"))
    );
    site.drain();
    site.assert_order();
    let of_others = site.left[N6].iter().filter(|fate| fate.user > 1);
    assert_eq!(of_others.count() as u32, sent);
}

/// Two limits: the later departure counts, and both are kept.
#[test]
fn of_two_rates_the_later_departure_counts() {
    for (own, both) in [(20 * MBIT, 8 * MBIT), (8 * MBIT, 20 * MBIT)] {
        let mut site = Site::new(SHAPING);
        let rates = Rates {
            up: Some(own),
            ambr_up: Some(both),
            ..Rates::default()
        };
        site.publish(1, rates, 5);
        let begin = site.now;
        site.come(N3, &[1; 100]);
        site.drain();
        site.assert_order();
        let spacing = BITS * SECOND / (8 * MBIT);
        assert!(site.left[N6].len() > 50);
        for (n, fate) in site.left[N6].iter().enumerate() {
            let due = begin + n as u64 * spacing;
            assert!((due..due + 2 * SLOT).contains(&fate.at), "{n} {fate:?}");
        }
    }
}

/// Rates, tunnels and whole sessions change while packets wait: these leave as they were told, the later ones behind them.
#[test]
fn changes_while_packets_wait_overtake_none_of_them() {
    let only_up = |bps| Rates {
        up: Some(bps),
        ..Rates::default()
    };
    let both = |up, ambr| Rates {
        up: Some(up),
        ambr_up: Some(ambr),
        ..Rates::default()
    };
    let shared = |bps| Rates {
        ambr_up: Some(bps),
        ..Rates::default()
    };
    let all = [
        only_up(10 * MBIT),
        only_up(1000 * MBIT),
        only_up(MBIT / 2),
        shared(1000 * MBIT),
        only_up(20 * MBIT),
        both(500 * MBIT, 10 * MBIT),
        only_up(500 * MBIT),
        both(400 * MBIT, 500 * MBIT),
        shared(5 * MBIT),
        Rates::default(),
    ];
    let mut random = Random(99);
    for _ in 0..60 {
        let mut site = Site::new(Shaping {
            slots: 1024,
            frames: 4096,
            ..SHAPING
        });
        for _ in 0..12 {
            site.publish(1, all[random.below(all.len())], 5);
            let n = random.below(30);
            site.come(N3, &vec![1; n]);
            site.at(site.now + random.below(20 * MS as usize) as u64);
            let n = random.below(6);
            site.come(N3, &vec![1; n]);
        }
        site.drain();
        site.assert_order();
        let lost = site.lost.len();
        assert_eq!(site.left[N6].len() + lost, site.numbers as usize);
    }
}

/// Packets in any order by the worker and by a thread beside it: what is finished there leaves in its turn, and both keep to one
/// rate.
#[test]
fn what_user_space_finishes_is_shaped_with_the_rest() {
    let mut random = Random(7);
    for bps in [10 * MBIT, 200 * MBIT] {
        let mut site = Site::new(SHAPING);
        let rates = Rates {
            down: Some(bps),
            ..Rates::default()
        };
        site.publish(1, rates, 5);
        let begin = site.now;
        let spacing = BITS * SECOND / bps;
        for _ in 0..200 {
            let n = 1 + random.below(4);
            if random.below(2) == 0 {
                site.come(N6, &vec![1; n]);
            } else {
                (0..n).for_each(|_| site.finish(N6, 1));
            }
            // On average less than the rate, so that packets come while none waits, too.
            let pause = random.below(6 * spacing as usize) as u64;
            site.at(site.now + pause);
        }
        site.drain();
        site.assert_order();
        assert_eq!(site.left[N3].len(), site.numbers as usize);
        let mut due = begin;
        for fate in &site.left[N3] {
            due = due.max(site.came[fate.number as usize]);
            assert!(fate.at >= due, "early: {fate:?}");
            due += spacing;
        }
    }
}

/// After a path switch, packets that wait go where they were told; all others to the new tunnel, behind them. What has
/// waited outlives its session.
#[test]
fn what_waits_leaves_by_its_old_rules() {
    let mut site = Site::new(SHAPING);
    let rates = Rates {
        down: Some(10 * MBIT),
        ..Rates::default()
    };
    site.publish(1, rates, 5);
    site.come(N6, &[1; 40]);
    site.publish(1, rates, 6);
    site.come(N6, &[1; 20]);
    site.at(site.now + 10 * MS);
    let mut handle = site.handles.remove(&1).unwrap();
    site.tables.withdraw(&mut handle);
    while site.tables.needs_maintenance() {
        site.tables.maintain();
    }
    site.publish(2, rates, 9);
    site.drain();
    let teids: Vec<u32> = site.left[N3].iter().map(|fate| fate.teid).collect();
    assert_eq!(teids, [vec![5; 40], vec![6; 20]].concat());
    site.assert_order();
    assert_eq!(site.lost, []);
}

/// From tunnel to tunnel, an End Marker is the last one out, though it pays nothing.
#[test]
fn an_end_marker_stays_behind_those_that_wait() {
    let shared = [false, true];
    for is_shared in shared {
        let mut site = Site::new(SHAPING);
        let rates = Rates {
            up: (!is_shared).then_some(10 * MBIT),
            ambr_up: is_shared.then_some(10 * MBIT),
            ..Rates::default()
        };
        let mut relay = session(1, rates, 5);
        let down = relay.entries[1].action;
        relay.entries.truncate(1);
        relay.keys.truncate(1);
        relay.entries[0] = Entry {
            action: down,
            ue: None,
            relay: Some(Relay {
                ue: None,
                qfi: None,
                remove_container: false,
            }),
            ..relay.entries[0].clone()
        };
        let mut handle = Handle::default();
        site.tables.publish(&mut handle, &relay).unwrap();
        resolve_peers(&mut site.tables, site.n3);
        site.come(N3, &[1; 50]);
        let mut end = packets::gpdu(1, None, &[]);
        end[43] = 254;
        let together = site.tables.run_together(N3, &[end], site.now).unwrap();
        let verdict = together.outcomes[0].0;
        assert!(matches!(verdict, Verdict::Later { .. }), "{verdict:?}");
        site.drain();
        assert_eq!(site.left[N3].len(), 51);
        site.assert_order();
        let at = site.now;
        let last = site.left[N3].last().map(|fate| Fate { at, ..*fate });
        assert_eq!(last, Some(marker(at)));
    }
}
