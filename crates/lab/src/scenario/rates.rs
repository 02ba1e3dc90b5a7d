//! Rates of users, as in chapter 6 of the thesis whose UPF we take up, at a hundredth of its rates: its 1 Gbit/s are 10 Mbit/s here,
//! about what a machine of two cores carries beside other tests without losing packets elsewhere. Larger ones: `lab rates`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Scenario, expect_drops};
use crate::course::{self, Course, Fates, Series, Step};
use crate::gtpu::{self, Container};
use crate::netns::Process;
use crate::packet;
use crate::smf::Style;
use crate::upf;
use crate::wait::NEVER;
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "rates-policed",
            "alternating rates both ways at once and four users: what is above a rate is dropped, and no more; top and qos show it",
            |world| rates(world, false),
        )
        .alone(),
        Scenario::new(
            "rates-shaped",
            "the same, shaped: what is above a rate waits, and all of it arrives in order",
            |world| rates(world, true),
        )
        .shaping()
        .alone(),
        Scenario::new(
            "thousand-users",
            "a thousand users with one of four rates get what their rates say, and equals get equal shares",
            thousand_users,
        )
        .alone(),
    ]
}

const UP_BPS: u64 = 10_000_000;
const DOWN_BPS: u64 = UP_BPS / 2;
const SHARE_BPS: u64 = UP_BPS / 4;
/// The highest that waits of an alternation is a fifth of what this time brings: less than the horizon, 205 ms.
const STEP: Duration = Duration::from_millis(700);
const PAYLOAD: usize = 1000;
const SLOT: Duration = Duration::from_millis(100);
/// `qos.burst_ms`
const BURST_S: f64 = 0.1;

fn of(bps: u64, percent: u64) -> Step {
    Step {
        lasts: STEP,
        bps: bps * percent / 100,
    }
}

/// A flow, where the UPF counts it, and its rate.
struct Flow {
    user: usize,
    way: usize,
    bps: u64,
}

/// Times that the same is sent while the machine is too busy to send what is above a rate.
const ATTEMPTS: usize = 5;

/// One user has 80 and 160 % of its rates in turns, each way; of the other three each has 160 % of a quarter. Shaped: 120, and 104 %.
fn rates(world: &mut World, shapes: bool) -> Result<String> {
    let mut users = Vec::new();
    for number in 0..4 {
        let mut plan = world.plan(Family::V4, Style::Open5gs);
        let up_bps = if number == 0 { UP_BPS } else { SHARE_BPS };
        plan.mbr_kbps = Some((up_bps / 1000, DOWN_BPS / 1000));
        users.push(world.attach(&format!("ue{number}"), &plan, 0, 0)?);
    }
    let mut report = None;
    for _ in 0..ATTEMPTS {
        report = one_course(world, &users, shapes)?;
        if report.is_some() {
            break;
        }
    }
    let mut report = report.context("nobody sends more than its rate: the machine is too busy")?;
    if shapes {
        expect_drops(world, "rate", 0, 0)?;
        let after = fates(world, &users)?;
        let delayed = after.iter().flatten().map(|fates| fates.delayed).sum();
        report.push(kept(world, delayed)?);
    }
    Ok(report.join(", "))
}

/// What became of each flow. `None`: some flow was less than it was to be, so that nothing of it had to be dropped.
fn one_course(world: &World, users: &[Attached], shapes: bool) -> Result<Option<Vec<String>>> {
    let high = if shapes { 120 } else { 160 };
    let (low_high, high_low) = ([80, high, 80, high], [high, 80, high, 80]);
    let steps = |bps, percents: [u64; 4]| percents.map(|percent| of(bps, percent)).to_vec();
    let mut courses = vec![
        Course::up(world, &users[0], steps(UP_BPS, low_high), PAYLOAD)?,
        Course::down(world, &users[0], steps(DOWN_BPS, high_low), PAYLOAD)?,
    ];
    let flow = |user, way, bps| Flow { user, way, bps };
    let mut flows = vec![flow(0, 0, UP_BPS), flow(0, 1, DOWN_BPS)];
    for (user, attached) in users.iter().enumerate().skip(1) {
        // Packets above a rate for all the time must find room within the horizon as well.
        let steps = steps(SHARE_BPS, [if shapes { 104 } else { high }; 4]);
        courses.push(Course::up(world, attached, steps, PAYLOAD)?);
        flows.push(flow(user, 0, SHARE_BPS));
    }
    let before = fates(world, users)?;
    let asking = Asking::start(world, &users[0])?;
    let series = course::run(courses, SLOT, |_| Ok(()))?;
    let after = fates(world, users)?;
    asking.judge(users)?;
    let mut report = Vec::new();
    for (flow, series) in flows.iter().zip(&series) {
        let (was, is) = (before[flow.user][flow.way], after[flow.user][flow.way]);
        let fates = Fates {
            packets: is.packets - was.packets,
            delayed: is.delayed - was.delayed,
            qos_drops: is.qos_drops - was.qos_drops,
        };
        let told = if shapes {
            Some(shaped(series, fates, flow.bps)?)
        } else {
            policed(series, fates, flow.bps)?
        };
        let Some(told) = told else { return Ok(None) };
        report.push(told);
    }
    Ok(Some(report))
}

/// Threads and users agree on the packets that waited.
fn kept(world: &World, delayed: u64) -> Result<String> {
    let workers = world.get("/api/v1/workers")?;
    let shapers = workers.as_array().context("no list of workers")?;
    let shapers: Vec<&Value> = shapers.iter().filter_map(|w| w.get("shaper")).collect();
    let sum = |field: &str| {
        shapers
            .iter()
            .filter_map(|s| s[field].as_f64())
            .sum::<f64>()
    };
    let mean_ms = sum("waited_s") * 1e3 / delayed as f64;
    ensure!(
        sum("delayed") == delayed as f64
            && sum("waiting") == 0.0
            && (1.0..205.0).contains(&mean_ms),
        "{delayed} packets of users were delayed, but: {workers:#}"
    );
    Ok(format!("{mean_ms:.0} ms on average"))
}

fn fates(world: &World, users: &[Attached]) -> Result<Vec<[Fates; 2]>> {
    users.iter().map(|user| Fates::of(world, user)).collect()
}

/// Each packet was forwarded or dropped, and those that were forwarded are what the rate, and the bucket, let pass of what was
/// offered in each slot. `None`: next to nothing was above the rate.
fn policed(series: &Series, fates: Fates, bps: u64) -> Result<Option<String>> {
    let told = format!(
        "{bps} bit/s: {} of {} packets, {} dropped",
        fates.packets,
        series.offered(),
        fates.qos_drops
    );
    ensure!(
        fates.packets + fates.qos_drops == series.offered() && series.arrived() == fates.packets,
        "{told}; {} arrived",
        series.arrived()
    );
    let in_slot = bps as f64 * SLOT.as_secs_f64();
    let bucket = (bps as f64 * BURST_S).max(f64::from(32 << 13));
    // A bucket that slots fill and empty: what came at one end of a slot may have passed by what the other end brought.
    let (mut room, mut passed, mut above) = (bucket, 0.0, 0.0);
    for slot in &series.slots {
        let offered = slot.offered as f64 * series.packet_bits;
        let pass = offered.min(room + in_slot);
        room = (room + in_slot - pass).min(bucket);
        passed += pass;
        above += offered - pass;
    }
    let (is, may_differ) = (fates.packets as f64 * series.packet_bits, 2.0 * in_slot);
    ensure!(
        (is - passed).abs() <= may_differ + passed * 0.02,
        "{told}: {is:.0} bits passed, {passed:.0} are right"
    );
    ensure!(fates.delayed == 0, "{told}");
    if above < may_differ {
        return Ok(None);
    }
    ensure!(fates.qos_drops > 0, "{told}");
    Ok(Some(told))
}

/// Nothing is lost or overtaken, as many packets wait as a queue of that rate would have had, and the last ones arrive as
/// late as it would have sent them.
fn shaped(series: &Series, fates: Fates, bps: u64) -> Result<String> {
    let told = format!(
        "{bps} bit/s: {} of {} packets delayed",
        fates.delayed,
        series.offered()
    );
    ensure!(
        fates.qos_drops == 0 && fates.packets == series.offered(),
        "{told}, {} dropped",
        fates.qos_drops
    );
    ensure!(
        series.arrived() == series.offered() && series.overtaken == 0,
        "{told}, {} arrived, {} were overtaken",
        series.arrived(),
        series.overtaken
    );
    let in_slot = bps as f64 * SLOT.as_secs_f64();
    let (mut queue, mut waited) = (0.0f64, 0);
    for slot in &series.slots {
        let offered = slot.offered as f64 * series.packet_bits;
        let is_full = queue > 0.0;
        queue = (queue + offered - in_slot).max(0.0);
        waited += if is_full && queue > 0.0 {
            slot.offered
        } else {
            0
        };
    }
    ensure!(
        waited > 0 && fates.delayed as f64 >= 0.9 * waited as f64,
        "{told}, {waited} should have been"
    );
    let least: u64 = series
        .slots
        .iter()
        .map(|slot| slot.longest_us)
        .max()
        .unwrap_or(0);
    let queued_s = longest_queue(series, in_slot) / bps as f64;
    ensure!(
        least as f64 / 1e6 >= 0.9 * queued_s - 2.0 * SLOT.as_secs_f64(),
        "{told}: the longest delay was {least} us, the queue {queued_s:.3} s"
    );
    Ok(told)
}

fn longest_queue(series: &Series, in_slot: f64) -> f64 {
    let mut queue = 0.0f64;
    let queues = series.slots.iter().map(|slot| {
        queue = (queue + slot.offered as f64 * series.packet_bits - in_slot).max(0.0);
        queue
    });
    queues.fold(0.0, f64::max)
}

/// `turnpike top` and `turnpike qos` while packets pass.
struct Asking {
    top: Process,
    qos: Process,
}

impl Asking {
    fn start(world: &World, user: &Attached) -> Result<Self> {
        let ask = |args: &[&str]| {
            let mut command = Command::new(upf::binary()?.with_file_name("turnpike"));
            command.args(args).arg("--json").stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            world.upf_ns.spawn(&mut command).context("turnpike")
        };
        let ue = user.address()?.to_string();
        Ok(Self {
            top: ask(&["top", "--once"])?,
            qos: ask(&["qos", "--ue", &ue])?,
        })
    }

    /// All users, the busiest first; and the rates of one, which cannot be above its MBR by more than a bucket.
    fn judge(self, users: &[Attached]) -> Result<()> {
        let top = answer(self.top)?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let shown = top["users"].as_array().context("top without users")?;
        let rates = shown.iter().map(|user| {
            let rate = |way: &str| number(&user[way]["rate_bps"]);
            rate("uplink") + rate("downlink")
        });
        let rates: Vec<u64> = rates.collect();
        ensure!(
            rates.len() == users.len() && rates.is_sorted_by(|a, b| a >= b),
            "top: {top:#}"
        );
        let first = users[0].address()?.to_string();
        ensure!(
            shown[0]["ue"][0] == first.as_str() && top["active"] == users.len(),
            "top: {top:#}"
        );
        ensure!(
            top["totals"][0]["in_packets_per_s"] != 0 && top["workers"][0]["packets_per_s"] != 0,
            "top: {top:#}"
        );
        let qos = answer(self.qos)?;
        let session = &qos["sessions"][0];
        let interval_s = session["interval_s"].as_f64().context("qos: no interval")?;
        let qers = session["qers"].as_array().context("qos without QERs")?;
        for (row, bps) in qers.iter().zip([UP_BPS, DOWN_BPS]) {
            let most = bps as f64 * (1.0 + 2.0 * BURST_S / interval_s);
            let rate = number(&row["rate_bps"]) as f64;
            ensure!(
                row["mbr_bps"] == bps && (1.0..=most).contains(&rate),
                "qos: {qos:#}"
            );
        }
        Ok(())
    }
}

fn answer(process: Process) -> Result<Value> {
    let output = process.output(NEVER)?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "turnpike: {error}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

const USERS: u16 = 1000;
/// Rates of the thousand users, in kbit/s: each has one of them. What is sent is above them also where it takes twice the time.
const RATES_KBPS: [u64; 4] = [20, 30, 45, 60];
/// Packets of each user: all of them within some seconds, at a rate above all of these.
const ROUNDS: usize = 80;
const ROUND: Duration = Duration::from_millis(40);
/// Octets of a packet, from its IP header on.
const LEN: usize = 1200;

/// Each sends the same, above every rate, in random order. What passes is a bucket and the rate, so that users of one rate are
/// equals, and users of others are not.
fn thousand_users(world: &mut World) -> Result<String> {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random >> 11
    };
    let mut users = Vec::new();
    for _ in 0..USERS {
        let mut plan = world.plan(Family::V4, Style::Open5gs);
        let kbps = RATES_KBPS[next() as usize % RATES_KBPS.len()];
        plan.mbr_kbps = Some((kbps, kbps));
        let session = world.smf(0)?.establish(&plan)?;
        let ue = session.addresses.v4.context("no IPv4 address")?;
        let payload = vec![0; LEN - 28];
        let packet = packet::udp4((ue, 1000), (crate::dn::SERVER_V4, 9), &payload);
        let mut frame = Vec::new();
        gtpu::g_pdu(
            &mut frame,
            session.uplink.1,
            Some(Container::uplink(plan.qfi)),
            &packet,
        );
        users.push((ue, kbps, frame, SocketAddr::new(session.uplink.0, 2152)));
    }
    let socket: UdpSocket = world.gnb_ns[0].udp(SocketAddr::from(([0; 4], 0)))?;
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::SndBufForce, &(8 << 20))?;
    let (began, mut order) = (Instant::now(), (0..users.len()).collect::<Vec<_>>());
    for round in 0..ROUNDS {
        for i in (1..order.len()).rev() {
            order.swap(i, next() as usize % (i + 1));
        }
        for some in order.chunks(32) {
            for &user in some {
                let (.., frame, to) = &users[user];
                socket.send_to(frame, to)?;
            }
            // Not more at a time than a ring of a veth has room for.
            std::thread::sleep(ROUND / 64);
        }
        let due = ROUND * (round as u32 + 1);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    let took = began.elapsed().as_secs_f64();
    judge_shares(
        world,
        &users.iter().map(|u| (u.0, u.1)).collect::<Vec<_>>(),
        took,
    )
}

fn judge_shares(world: &World, users: &[(Ipv4Addr, u64)], took_s: f64) -> Result<String> {
    let upf = world.upf.as_ref().context("no UPF")?;
    let seen = || -> Result<Vec<(Ipv4Addr, u64, u64)>> {
        let page = upf.get(&world.upf_ns, "/api/v1/sessions?limit=1000")?;
        let sessions = page["sessions"].as_array().context("no sessions")?;
        let of = |session: &Value| {
            let ue = session["ue"][0].as_str()?.parse().ok()?;
            let count = |field: &str| session["uplink"][field].as_u64();
            Some((ue, count("packets")?, count("qos_drops")?))
        };
        sessions
            .iter()
            .map(|s| of(s).context("a session without counters"))
            .collect()
    };
    let sent = u64::from(USERS) * ROUNDS as u64;
    let all = |seen: &[(Ipv4Addr, u64, u64)]| seen.iter().map(|s| s.1 + s.2).sum::<u64>();
    super::eventually("all packets are counted", || Ok(all(&seen()?) == sent))?;
    let seen = seen()?;
    let mut report = Vec::new();
    for kbps in RATES_KBPS {
        let equals = users.iter().filter(|user| user.1 == kbps);
        let passed: Vec<f64> = equals
            .filter_map(|user| seen.iter().find(|s| s.0 == user.0))
            .map(|s| s.1 as f64)
            .collect();
        let (n, sum) = (passed.len() as f64, passed.iter().sum::<f64>());
        let jain = sum * sum / (n * passed.iter().map(|x| x * x).sum::<f64>());
        // The bucket of a low rate, and as much as it fills meanwhile; a packet conforms that begins within it.
        let bits = f64::from(32 << 13) + kbps as f64 * 1000.0 * took_s;
        let (mean, right) = (sum / n, bits / (LEN * 8) as f64 + 1.0);
        ensure!(
            n > 100.0 && jain > 0.99 && (mean / right - 1.0).abs() < 0.08,
            "{kbps} kbit/s: {n} users with {mean:.1} packets each, {right:.1} are right; Jain's index {jain:.4}"
        );
        ensure!(
            mean < 0.95 * ROUNDS as f64,
            "{kbps} kbit/s: nothing was dropped"
        );
        report.push(format!(
            "{kbps} kbit/s: {mean:.1} packets ({right:.1}), Jain {jain:.4}"
        ));
    }
    Ok(report.join(", "))
}
