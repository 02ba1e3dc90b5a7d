//! UDP flows whose rates follow a course: what each offers, what arrives and how late, by slots of time.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::socket::{setsockopt, sockopt};

use crate::dn;
use crate::flow::{any, send_socket};
use crate::netns::Netns;
use crate::world::{Attached, World};

/// Octets of IP and UDP headers, which rates are about, too.
const HEADERS: usize = 28;
/// Pause of a sender between two looks at the clock.
const PAUSE: Duration = Duration::from_micros(300);
/// Time that a sender makes up for at most: packets of a longer sleep are not sent later.
const CATCH_UP: Duration = Duration::from_millis(5);
/// Silence after the last packet was sent, after which no more are waited for.
const SILENCE: Duration = Duration::from_millis(400);
/// Octets in front: number and time of a packet.
const STAMP: usize = 12;

/// A rate for some time.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// How long.
    pub lasts: Duration,
    /// Bits per second, from the IP header on; 0: as fast as it goes.
    pub bps: u64,
}

/// A flow that is to be sent.
#[derive(Debug)]
pub struct Course {
    outbound: UdpSocket,
    inbound: UdpSocket,
    steps: Vec<Step>,
    payload: usize,
}

impl Course {
    /// From an address of one namespace to one of another; port 0 takes any.
    pub fn new(
        (from, source): (&Netns, SocketAddr),
        (at, to): (&Netns, SocketAddr),
        steps: Vec<Step>,
        payload: usize,
    ) -> Result<Self> {
        let inbound = at.udp(to).context("receiver")?;
        setsockopt(&inbound, sockopt::RcvBufForce, &(16 << 20))?;
        inbound.set_read_timeout(Some(Duration::from_millis(20)))?;
        let outbound = send_socket(from, source, inbound.local_addr()?)?;
        Ok(Self {
            outbound,
            inbound,
            steps,
            payload: payload.max(STAMP),
        })
    }

    /// From a UE to the data network.
    pub fn up(world: &World, ue: &Attached, steps: Vec<Step>, payload: usize) -> Result<Self> {
        let server = SocketAddr::from((dn::SERVER_V4, 0));
        let from = (&ue.ue.netns, any(server));
        Self::new(from, (&world.dn_ns, server), steps, payload)
    }

    /// From the data network to a UE.
    pub fn down(world: &World, ue: &Attached, steps: Vec<Step>, payload: usize) -> Result<Self> {
        let server = SocketAddr::from((dn::SERVER_V4, 0));
        let to = SocketAddr::new(ue.address()?, 0);
        let to = (&ue.ue.netns, to);
        Self::new((&world.dn_ns, server), to, steps, payload)
    }

    /// Bits of one packet, from its IP header on.
    pub fn packet_bits(&self) -> f64 {
        ((self.payload + HEADERS) * 8) as f64
    }
}

/// Events in one slot of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Packets sent.
    pub offered: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// How long those had been on their way, together.
    pub delay_us: u64,
    /// The longest of these times.
    pub longest_us: u64,
}

/// Fate of a flow.
#[derive(Clone, Debug)]
pub struct Series {
    /// From the beginning of all flows on.
    pub slots: Vec<Slot>,
    /// Bits of one packet.
    pub packet_bits: f64,
    /// From the last packet sent to the last that arrived; `None`: that was one sent later than it, or none came.
    pub tail: Option<Duration>,
    /// Packets that arrived after one that was sent later.
    pub overtaken: u64,
}

impl Series {
    /// Packets sent.
    pub fn offered(&self) -> u64 {
        self.slots.iter().map(|slot| slot.offered).sum()
    }

    /// Packets that arrived.
    pub fn arrived(&self) -> u64 {
        self.slots.iter().map(|slot| slot.arrived).sum()
    }
}

/// Counts of the UPF for one direction of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Packets forwarded.
    pub packets: u64,
    /// Of these, told to wait.
    pub delayed: u64,
    /// Packets dropped by QoS enforcement.
    pub qos_drops: u64,
}

impl Fates {
    /// Up and down, of the session of a UE.
    pub fn of(world: &World, ue: &Attached) -> Result<[Self; 2]> {
        let path = format!("/api/v1/sessions?ue={}", ue.address()?);
        let upf = world.upf.as_ref().context("no UPF")?;
        let page = upf.get(&world.upf_ns, &path)?;
        let session = &page["sessions"][0];
        let of = |way: &str| {
            let field = |name: &str| {
                let count = session[way][name].as_u64();
                count.with_context(|| format!("no session with {way}.{name}"))
            };
            Ok::<_, anyhow::Error>(Self {
                packets: field("packets")?,
                delayed: field("delayed")?,
                qos_drops: field("qos_drops")?,
            })
        };
        Ok([of("uplink")?, of("downlink")?])
    }
}

/// Slots of one flow, written by its sender and its receiver.
#[derive(Debug, Default)]
struct Book(Mutex<Vec<Slot>>);

impl Book {
    fn note(&self, slot: usize, what: impl FnOnce(&mut Slot)) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() <= slot {
            slots.resize(slot + 1, Slot::default());
        }
        what(&mut slots[slot]);
    }
}

#[derive(Clone, Copy)]
struct Clock {
    from: Instant,
    slot: Duration,
}

impl Clock {
    fn slot_of(self, elapsed: Duration) -> usize {
        (elapsed.as_nanos() / self.slot.as_nanos()) as usize
    }
}

/// Sends all at once, until the last is over. `sample` is called at the end of each slot, by its number.
pub fn run(
    courses: Vec<Course>,
    slot: Duration,
    mut sample: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<Series>> {
    let clock = Clock {
        from: Instant::now(),
        slot,
    };
    let threads: Vec<_> = courses
        .into_iter()
        .map(|course| std::thread::spawn(move || one(&course, clock)))
        .collect();
    let mut passed = 0;
    while threads.iter().any(|thread| !thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(5));
        while clock.slot_of(clock.from.elapsed()) > passed {
            sample(passed)?;
            passed += 1;
        }
    }
    let died = |_| anyhow!("a flow died");
    threads
        .into_iter()
        .map(|t| t.join().map_err(died)?)
        .collect()
}

fn one(course: &Course, clock: Clock) -> Result<Series> {
    let (book, over) = (Book::default(), Arc::new(AtomicBool::new(false)));
    let (sent, came) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(course, clock, &book, &over));
        let sent = send(course, clock, &book);
        over.store(true, Relaxed);
        (
            sent,
            receiver.join().map_err(|_| anyhow!("a receiver died")),
        )
    });
    let (last_sent, came) = (sent?, came?);
    let slots = book.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Series {
        slots,
        packet_bits: course.packet_bits(),
        tail: came.last.and_then(|last| last.checked_sub(last_sent)),
        overtaken: came.overtaken,
    })
}

/// When the last packet was sent.
fn send(course: &Course, clock: Clock, book: &Book) -> Result<Duration> {
    let mut packet = vec![0; course.payload];
    let bits = course.packet_bits();
    let (mut number, mut due, mut last, mut sent) = (0u32, 0.0, Duration::ZERO, Duration::ZERO);
    loop {
        let now = clock.from.elapsed();
        let Some(bps) = rate_at(&course.steps, now) else {
            return Ok(sent);
        };
        due += bps as f64 * (now - last).min(CATCH_UP).as_secs_f64();
        last = now;
        let mut burst = if bps == 0 { 64.0 } else { (due / bits).floor() };
        due -= if bps == 0 { 0.0 } else { burst * bits };
        let slot = clock.slot_of(now);
        let mut n = 0;
        while burst >= 1.0 {
            sent = clock.from.elapsed();
            packet[..4].copy_from_slice(&number.to_be_bytes());
            packet[4..STAMP].copy_from_slice(&(sent.as_nanos() as u64).to_be_bytes());
            course.outbound.send(&packet)?;
            number += 1;
            n += 1;
            burst -= 1.0;
        }
        if n > 0 {
            book.note(slot, |slot| slot.offered += n);
        }
        if bps > 0 {
            std::thread::sleep(PAUSE);
        }
    }
}

/// `None`: all steps are over.
fn rate_at(steps: &[Step], at: Duration) -> Option<u64> {
    let mut end = Duration::ZERO;
    let mut steps = steps.iter();
    let now = steps.find(|step| {
        end += step.lasts;
        at < end
    });
    now.map(|step| step.bps)
}

/// Facts that a receiver alone knows.
#[derive(Default)]
struct Came {
    last: Option<Duration>,
    overtaken: u64,
}

fn receive(course: &Course, clock: Clock, book: &Book, over: &AtomicBool) -> Came {
    let mut came = Came::default();
    let (mut heard, mut highest) = (Instant::now(), 0);
    let mut room = vec![0; course.payload + 1];
    while !over.load(Relaxed) || heard.elapsed() < SILENCE {
        let Ok(n) = course.inbound.recv(&mut room) else {
            continue;
        };
        let (Some(number), Some(at)) = (room.first_chunk(), room[4..].first_chunk()) else {
            continue;
        };
        if n != course.payload {
            continue;
        }
        let now = clock.from.elapsed();
        let sent = Duration::from_nanos(u64::from_be_bytes(*at));
        let delay = now.saturating_sub(sent).as_micros() as u64;
        let number = u32::from_be_bytes(*number);
        came.overtaken += u64::from(number < highest);
        highest = highest.max(number);
        came.last = Some(now);
        heard = Instant::now();
        book.note(clock.slot_of(now), |slot| {
            slot.arrived += 1;
            slot.delay_us += delay;
            slot.longest_us = slot.longest_us.max(delay);
        });
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_goes_from_step_to_step() {
        let step = |ms, bps| Step {
            lasts: Duration::from_millis(ms),
            bps,
        };
        let steps = [step(100, 7), step(50, 9)];
        let at = |ms| rate_at(&steps, Duration::from_millis(ms));
        assert_eq!([0, 99, 100, 149].map(at), [7, 7, 9, 9].map(Some));
        assert_eq!(at(150), None);
        assert_eq!(rate_at(&[], Duration::ZERO), None);
    }
}
