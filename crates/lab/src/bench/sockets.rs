//! Load that a worker of the `kernel` data path carries: users' packets sent from the other end of a cable as fast as one CPU
//! sends them, and counted where they come out, at the first instruction that sees them.
//!
//! The floor is a thread that receives the same packets by the same kind of socket and sends them on without a look at them.

use std::io::{IoSlice, IoSliceMut, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrStorage, recvmmsg, sendmmsg, setsockopt, sockopt,
};
use nix::unistd::{Pid, gettid};

use super::cost::{Direction, Harness, Order, PACKET};
use super::frames::{self, Family, Frame};
use super::shapes::{self, SESSIONS};
use super::sut::Sut;
use super::{ADDRESSES, Figures, median, teid};
use crate::sys;

const TIME: Duration = Duration::from_secs(2);
const BATCH: usize = 64;
const GTPU: u16 = 2152;
/// Ethernet, IPv4 and UDP in front of what a socket carries.
const FRONT: usize = 42;
/// GTP-U with a PDU Session Container.
const TUNNEL: usize = 16;
const ETHERNET: [u8; 14] = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 8, 0];
/// CPUs of the sender and of the worker.
const SENDER: usize = 0;
const WORKER: usize = 1;

/// One run.
struct Carried {
    per_s: f64,
    cpu_ns: f64,
}

/// Users' packets, as a socket of the sender takes them, and their destinations.
struct Load {
    payloads: Vec<(Vec<u8>, SocketAddr)>,
    from: (Ipv4Addr, u16),
    /// Interface that they come out of.
    out: &'static str,
}

fn load(direction: Direction) -> Load {
    let users = Order::Random.of(SESSIONS);
    let of = |frame: Frame| {
        users.iter().map(move |&user| {
            let ue = ADDRESSES.ue(user);
            let mut bytes = frame.bytes.clone();
            bytes[frame.address_at..frame.address_at + 4].copy_from_slice(&ue.octets());
            bytes[frame.checksum_at..frame.checksum_at + 2]
                .copy_from_slice(&frame.checksum_for(ue));
            if frame.teid_at > 0 {
                bytes[frame.teid_at..frame.teid_at + 4].copy_from_slice(&teid(user).to_be_bytes());
            }
            (bytes[FRONT..].to_vec(), ue)
        })
    };
    match direction {
        Direction::Uplink => {
            let to = SocketAddr::from((ADDRESSES.n3, GTPU));
            let frame = frames::uplink(&ADDRESSES, Family::V4, PACKET);
            Load {
                payloads: of(frame).map(|(payload, _)| (payload, to)).collect(),
                from: (ADDRESSES.gnb, GTPU),
                out: "n6",
            }
        }
        Direction::Downlink => {
            let frame = frames::downlink(&ADDRESSES, Family::V4, PACKET);
            let to = |ue: Ipv4Addr| SocketAddr::from((ue, 40001));
            Load {
                payloads: of(frame).map(|(payload, ue)| (payload, to(ue))).collect(),
                from: (frames::REMOTE, 40000),
                out: "n3",
            }
        }
    }
}

fn stay_on(thread: Pid, cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(thread, &only).with_context(|| format!("CPU {cpu}"))
}

/// Send round and round until `over`.
fn send(load: &Load, over: &AtomicBool) -> Result<()> {
    stay_on(Pid::from_raw(0), SENDER)?;
    let socket = UdpSocket::bind(load.from)?;
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    while !over.load(Ordering::Relaxed) {
        for batch in load.payloads.chunks(BATCH) {
            let slices: Vec<[IoSlice<'_>; 1]> = batch
                .iter()
                .map(|(octets, _)| [IoSlice::new(octets)])
                .collect();
            let to: Vec<_> = batch.iter().map(|(_, to)| Some((*to).into())).collect();
            let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
            // Packets that its own queue has no room for are not sent.
            let _ = sendmmsg(fd, &mut headers, &slices, to, [], flags);
        }
    }
    Ok(())
}

/// CPU time that a thread has taken.
fn cpu_of(process: u32, thread: Pid) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat"))?;
    let first = text.split_whitespace().next().context("schedstat")?;
    Ok(first.parse()?)
}

/// Packets that come out while a thread of a process carries the load.
fn carry(
    sut: &Sut,
    harness: &Harness,
    load: &Load,
    (process, thread): (u32, Pid),
) -> Result<Carried> {
    stay_on(thread, WORKER)?;
    let sink = harness.program("sink")?;
    let _sink = sut.peer.enter(|| {
        let ifindex = nix::net::if_::if_nametoindex(load.out)?;
        sys::attach_xdp(ifindex, sink.as_fd())
    })?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| sut.peer.enter(|| send(load, &over)));
        // Until all that is to be warm is.
        std::thread::sleep(TIME / 4);
        let (start, sunk, cpu) = (Instant::now(), harness.sunk()?, cpu_of(process, thread)?);
        std::thread::sleep(TIME);
        let (took, out) = (start.elapsed(), (harness.sunk()? - sunk) as f64);
        let cpu = cpu_of(process, thread)? - cpu;
        over.store(true, Ordering::Relaxed);
        sender
            .join()
            .map_err(|_| anyhow::anyhow!("the sender panicked"))??;
        ensure!(out > 0.0, "no packet came out of {}", load.out);
        Ok(Carried {
            per_s: out / took.as_secs_f64(),
            cpu_ns: cpu as f64 / out,
        })
    })
}

/// Take the tunnel's header off without a look at it, and put none on: what comes by a UDP socket, or by a TUN interface, goes
/// out of a packet socket.
fn carry_as_is(direction: Direction, ready: impl FnOnce(Pid), over: &AtomicBool) -> Result<()> {
    let mut room = vec![[0u8; 2048]; BATCH];
    let ifindex = nix::net::if_::if_nametoindex(match direction {
        Direction::Uplink => "n6",
        Direction::Downlink => "n3",
    })?;
    let out = sys::frame_socket(ifindex)?;
    let mut outgoing = MultiHeaders::<()>::preallocate(BATCH, None);
    let (skip, udp, tun) = match direction {
        Direction::Uplink => {
            let socket = UdpSocket::bind((ADDRESSES.n3, GTPU))?;
            socket.set_nonblocking(true)?;
            setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20))?;
            (TUNNEL, Some(socket), None)
        }
        Direction::Downlink => (0, None, Some(sys::open_tun("floor0")?)),
    };
    ready(gettid());
    let mut headers = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    while !over.load(Ordering::Relaxed) {
        let mut lengths = Vec::with_capacity(BATCH);
        if let Some(socket) = &udp {
            let mut slices: Vec<[IoSliceMut<'_>; 1]> = room
                .iter_mut()
                .map(|octets| [IoSliceMut::new(&mut octets[14..])])
                .collect();
            let flags = MsgFlags::MSG_DONTWAIT;
            let got = recvmmsg(
                socket.as_raw_fd(),
                &mut headers,
                slices.iter_mut(),
                flags,
                None,
            );
            lengths.extend(got.into_iter().flatten().map(|message| 14 + message.bytes));
        }
        if let Some(tun) = &tun {
            for octets in &mut room {
                let Ok(len) = (&*tun).read(&mut octets[14..]) else {
                    break;
                };
                lengths.push(14 + len);
            }
        }
        let frames = room.iter_mut().zip(&lengths);
        let slices: Vec<[IoSlice<'_>; 1]> = frames
            .map(|(octets, &len)| {
                octets[skip..skip + 14].copy_from_slice(&ETHERNET);
                [IoSlice::new(&octets[skip..len])]
            })
            .collect();
        let (fd, to) = (out.as_raw_fd(), vec![None; slices.len()]);
        // Packets that its queue has no room for are not sent.
        let _ = sendmmsg(fd, &mut outgoing, &slices, to, [], MsgFlags::empty());
    }
    Ok(())
}

impl Sut {
    fn floor(&self, direction: Direction, harness: &Harness) -> Result<Carried> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let over = &over;
            let carrier = scope.spawn(move || {
                let tell = move |thread| {
                    // Whoever waits for it has ended otherwise.
                    let _ = ready.send(thread);
                };
                self.upf.enter(|| carry_as_is(direction, tell, over))
            });
            let carried = is_ready
                .recv()
                .context("the carrier ended")
                .and_then(|thread| {
                    if direction == Direction::Downlink {
                        self.upf
                            .ip("link set floor0 up\nroute replace 10.64.0.0/10 dev floor0")?;
                    }
                    carry(
                        self,
                        harness,
                        &load(direction),
                        (std::process::id(), thread),
                    )
                });
            over.store(true, Ordering::Relaxed);
            carrier
                .join()
                .map_err(|_| anyhow::anyhow!("the carrier panicked"))??;
            carried
        })
    }
}

/// Both directions, by a worker and by one that does nothing.
pub(super) fn measure(figures: &mut Figures, runs: usize) -> Result<()> {
    let (mut sut, harness) = shapes::plain(Sut::start(2 * SESSIONS)?)?;
    let worker = sut.thread("worker-0")?;
    let both = [(Direction::Uplink, "up"), (Direction::Downlink, "down")];
    let mut carried = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for ((direction, _), carried) in both.iter().zip(&mut carried) {
            carried.push(carry(&sut, &harness, &load(*direction), (sut.pid, worker))?);
        }
    }
    sut.stop()?;
    for ((direction, name), carried) in both.into_iter().zip(carried) {
        let floors = (0..runs).map(|_| sut.floor(direction, &harness));
        let floors = floors.collect::<Result<Vec<Carried>>>()?;
        let middle = |all: &[Carried], of: fn(&Carried) -> f64| {
            median(&mut all.iter().map(of).collect::<Vec<_>>())
        };
        for (what, unit, of) in [
            (
                "rate",
                "packets/s",
                (|run| run.per_s) as fn(&Carried) -> f64,
            ),
            ("cpu", "ns/packet", |run| run.cpu_ns),
        ] {
            let (value, floor) = (middle(&carried, of), middle(&floors, of));
            figures.add(&format!("kernel-{name}-{what}"), value, unit, Some(floor));
        }
    }
    Ok(())
}
