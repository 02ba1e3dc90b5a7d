//! A UPF that is killed again and again, and its successors: packets that are lost meanwhile, beside those that are lost when
//! another UPF on the same machine is killed instead; how soon N4 answers, and how soon it serves.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use super::frames::{self, Family, REMOTE};
use super::load::Client;
use super::requests::{self, Field, Shape};
use super::sut::Sut;
use super::{ADDRESSES, Figures, Options, WINDOW, establish, median, teid};
use crate::flow::Ledger;

/// Octets of users' packets.
const LENGTH: usize = 100;
/// Ethernet, IPv4 and UDP in front of a G-PDU.
const OUTER: usize = 14 + 20 + 8;
/// IPv4 and UDP in front of what a user says.
const INNER: usize = 20 + 8;
/// PDU Session Container and all in front of a user's packet.
const GTPU: usize = 16;
/// Of each direction.
const PER_SECOND: u32 = 20_000;
/// Packets that are sent together when the sender has slept.
const BURST: u32 = 32;
const SOCKET_BUFFER: usize = 64 << 20;
/// Between the end of a start and the next kill, and between that and the next start: 10^7 packets while it is killed a hundred times.
const PAUSE: Duration = Duration::from_millis(1200);
/// For packets that are under way in the end.
const LAST: Duration = Duration::from_millis(500);
const NEVER: Duration = Duration::from_secs(120);

/// From the start of a process on.
struct Start {
    /// The first answer to a heartbeat.
    hears: Duration,
    /// The first answer to a Session Modification.
    serves: Duration,
}

/// Packets of both directions.
#[derive(Default)]
struct Lost {
    sent: u32,
    lost: u32,
    doubled: u32,
    /// Longest time between two packets.
    gap: Duration,
}

/// Both ends of the first user's packets.
struct Ends {
    gnb: UdpSocket,
    server: UdpSocket,
}

impl Ends {
    fn of(sut: &Sut) -> Result<Self> {
        Ok(Self {
            gnb: receiver(sut.peer.udp((ADDRESSES.gnb, 2152))?)?,
            server: receiver(sut.peer.udp((REMOTE, 40001))?)?,
        })
    }
}

/// A UPF with sessions.
struct Upf {
    sut: Sut,
    /// Of the user who is not in the stream.
    seid: u64,
}

/// `runs` kills of each.
pub(super) fn measure(figures: &mut Figures, options: &Options) -> Result<()> {
    let Options {
        sessions,
        runs,
        spread,
        ..
    } = *options;
    let mut upf = Upf::start(sessions, spread)?;
    let mut other = Upf::start(sessions, spread)?;
    let sessions = format!("{sessions}{}", if spread { "_spread" } else { "" });
    let ends = Ends::of(&upf.sut)?;
    let (control, _) = kills(&ends, &mut other, runs)?;
    drop(other);
    let (lost, starts) = kills(&ends, &mut upf, runs)?;
    for (name, lost) in [("beside_kills", control), ("over_kills", lost)] {
        let mut add = |what: &str, packets: u32| {
            let name = format!("{what}_{name}_{sessions}");
            figures.add(&name, packets.into(), "packets", None);
        };
        add("sent", lost.sent);
        add("lost", lost.lost);
        add("doubled", lost.doubled);
        let gap = lost.gap.as_secs_f64() * 1e3;
        figures.add(&format!("gap_{name}_{sessions}"), gap, "ms", None);
    }
    let of = |which: fn(&Start) -> Duration| {
        let mut all: Vec<f64> = (starts.iter())
            .map(|start| which(start).as_secs_f64() * 1e3)
            .collect();
        (median(&mut all), all.iter().copied().fold(0.0, f64::max))
    };
    let (hears, longest) = of(|start| start.hears);
    figures.add(&format!("start_to_heartbeat_{sessions}"), hears, "ms", None);
    figures.add(
        &format!("start_to_heartbeat_max_{sessions}"),
        longest,
        "ms",
        None,
    );
    let (serves, longest) = of(|start| start.serves);
    figures.add(&format!("start_to_served_{sessions}"), serves, "ms", None);
    figures.add(
        &format!("start_to_served_max_{sessions}"),
        longest,
        "ms",
        None,
    );
    Ok(())
}

impl Upf {
    fn start(sessions: u32, spread: bool) -> Result<Self> {
        let mut lines = vec![
            ("[state]", "dir = \"{folder}\""),
            ("[state]", "bpffs = \"{folder}/bpffs\""),
        ];
        if spread {
            lines.push(("[[interface]]", "spread_cpus = [0, 1]"));
        }
        let sut = Sut::start_with(sessions, 1, lines)?;
        let mut client = Client::new(sut.smf_socket(ADDRESSES.smf)?, sut.n4())?;
        client.associate(|sequence| requests::association(&ADDRESSES, sequence))?;
        let (_, seids) = establish(&mut client, (0, sessions), Shape::Plain, WINDOW)?;
        let seid = seids.last().copied().unwrap_or_default();
        Ok(Self { sut, seid })
    }

    /// Killed, and started again.
    fn succeed(&mut self, number: usize) -> Result<Start> {
        self.sut.kill()?;
        std::thread::sleep(PAUSE);
        let heartbeat = vec![0x20, 1, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4, 0xe8, 0, 0, 0];
        let (mut switch, seid) = (Vec::new(), self.seid);
        requests::path_switch(&ADDRESSES)?.write(&mut switch, |field| match field {
            Field::Seid => seid,
            Field::Sequence => 0x40_0000 + number as u64,
            Field::GnbTeid => 0x4000_0000 + number as u64,
            _ => 0,
        });
        // Of a heartbeat the UPF knows nobody, so that no SMF seems to have restarted.
        let asking = [(ADDRESSES.gnb, heartbeat), (ADDRESSES.smf, switch)];
        let mut sockets = Vec::new();
        for (address, request) in asking {
            let socket = self.sut.peer.udp((address, 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(1)))?;
            sockets.push((socket, request));
        }
        let (start, upf) = (Instant::now(), self.sut.n4());
        let asked = std::thread::spawn(move || {
            let mut answered = Vec::new();
            for (socket, request) in sockets {
                answered.push(until_answered(&socket, &request, upf, start)?);
            }
            Ok::<_, anyhow::Error>(answered)
        });
        self.sut.start_again()?;
        let answered = asked.join().map_err(|_| anyhow!("who asks has died"))??;
        Ok(Start {
            hears: answered[0],
            serves: answered[1],
        })
    }
}

/// A Heartbeat Response, or a Session Modification Response that begins with the cause: accepted.
fn is_expected(octets: &[u8]) -> bool {
    match octets.get(1) {
        Some(2) => true,
        Some(53) => octets.get(16..21) == Some(&[0, 19, 0, 1, 1]),
        _ => false,
    }
}

/// Time from the start to the answer to a request, which is repeated each millisecond.
fn until_answered(
    socket: &UdpSocket,
    request: &[u8],
    upf: SocketAddr,
    start: Instant,
) -> Result<Duration> {
    while start.elapsed() < NEVER {
        // Refused while nobody listens.
        let _ = socket.send_to(request, upf);
        let mut octets = [0; 2048];
        if let Ok(length) = socket.recv(&mut octets) {
            let came = &octets[..length];
            ensure!(is_expected(came), "answered by {came:02x?}");
            return Ok(start.elapsed());
        }
    }
    Err(anyhow!("no answer within {NEVER:?}"))
}

/// A stream each way, while a UPF is killed and started again and again.
fn kills(Ends { gnb, server }: &Ends, killed: &mut Upf, runs: usize) -> Result<(Lost, Vec<Start>)> {
    let up = frames::uplink(&ADDRESSES, Family::V4, LENGTH);
    let mut gpdu = up.bytes[OUTER..].to_vec();
    let at = up.teid_at - OUTER;
    gpdu[at..at + 4].copy_from_slice(&teid(0).to_be_bytes());
    // A number is in front of the payload.
    let payload = vec![0; LENGTH - INNER];
    let (over, starts) = (AtomicBool::new(false), Vec::new());
    let starts = std::thread::scope(|scope| -> Result<(Lost, Vec<Start>)> {
        let upf = SocketAddr::from((ADDRESSES.n3, 2152));
        let ue = SocketAddr::from((ADDRESSES.ue(0), 40000));
        let ways = [
            (gnb, upf, gpdu, GTPU + INNER, server, 0),
            (server, ue, payload, 0, gnb, GTPU + INNER),
        ];
        let mut streams = Vec::new();
        for (from, to, packet, number_at, at, number_in) in ways {
            let sent = std::sync::Arc::new(AtomicU32::new(0));
            let counting = sent.clone();
            let over = &over;
            let sender = scope.spawn(move || send(from, to, packet, number_at, (&counting, over)));
            let receiver = scope.spawn(move || receive(at, number_in, over));
            streams.push((sent, sender, receiver));
        }
        let mut starts = starts;
        let mut failed = None;
        for number in 0..runs {
            std::thread::sleep(PAUSE);
            match killed.succeed(number) {
                Ok(start) => starts.push(start),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        std::thread::sleep(PAUSE);
        over.store(true, Relaxed);
        let mut sum = Lost::default();
        for (sent, sender, receiver) in streams {
            sender.join().map_err(|_| anyhow!("a sender died"))??;
            let (ledger, gap) = receiver.join().map_err(|_| anyhow!("a receiver died"))?;
            let outcome = ledger.close(sent.load(Relaxed));
            sum.sent += outcome.sent;
            sum.lost += outcome.lost();
            sum.doubled += outcome.duplicates;
            sum.gap = sum.gap.max(gap);
        }
        failed.map_or(Ok((sum, starts)), Err)
    })?;
    ensure!(starts.0.sent > 0, "nothing was sent");
    Ok(starts)
}

fn receiver(socket: UdpSocket) -> Result<UdpSocket> {
    setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(socket)
}

fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    mut packet: Vec<u8>,
    number_at: usize,
    (sent, over): (&AtomicU32, &AtomicBool),
) -> Result<()> {
    let start = Instant::now();
    let (mut number, mut slept) = (0u32, 0u32);
    while !over.load(Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(PER_SECOND)) as u32;
        let behind = due.saturating_sub(slept).saturating_sub(number);
        let burst = behind.min(BURST);
        slept += behind - burst;
        for _ in 0..burst {
            packet[number_at..number_at + 4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&packet, to)?;
            number += 1;
            sent.store(number, Relaxed);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Until nothing comes any more after all is over. All that came, and the longest time between two of them.
fn receive(socket: &UdpSocket, number_in: usize, over: &AtomicBool) -> (Ledger, Duration) {
    let (mut ledger, mut gap) = (Ledger::default(), Duration::ZERO);
    let mut buffer = [0; 2048];
    let (mut first, mut heard) = (true, Instant::now());
    while !over.load(Relaxed) || heard.elapsed() < LAST {
        if let Ok(length) = socket.recv(&mut buffer) {
            ledger.note(buffer[..length].get(number_in..).unwrap_or_default());
            if !std::mem::take(&mut first) {
                gap = gap.max(heard.elapsed());
            }
            heard = Instant::now();
        }
    }
    (ledger, gap)
}
