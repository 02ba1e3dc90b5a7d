//! Cost of an exchange of the programs: its time, packets lost and overtaken meanwhile; and what following somebody
//! else costs a user, while it lasts and afterwards.

use std::net::{SocketAddrV4, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use super::cost::Direction;
use super::frames::{self, Family, REMOTE};
use super::requests::Shape;
use super::shapes::{GRACE, SESSIONS, way};
use super::{ADDRESSES, Bench, median, teid};
use crate::flow::{Ledger, Outcome};
use crate::upf;

const ROUNDS: usize = 20;
const PORT: u16 = 40001;
const GTPU: u16 = 2152;
const SOCKET_BUFFER: usize = 64 << 20;
/// In a frame: behind Ethernet, IPv4 and UDP headers.
const GTPU_AT: usize = 14 + 20 + 8;
/// In GTP-U: behind its header, PDU Session Container, and the user's IPv4 and UDP headers.
const NUMBER_AT: usize = 16 + 20 + 8;
const PATIENCE: Duration = Duration::from_secs(20);

/// Times that the changes took.
#[derive(Default)]
struct Times {
    /// Exchanges of programs, microseconds.
    exchange: Vec<f64>,
    /// Requests that needed another program, to their answers, milliseconds.
    request: Vec<f64>,
}

impl Bench {
    /// Figures `replacement_*`: a session that needs a feature more comes and goes while packets of another one flow both
    /// ways.
    pub(super) fn replacements(&mut self) -> Result<()> {
        let plain = self.establish(0, 1, Shape::Plain)?.1;
        self.sut.settle()?;
        let before = self.count()?;
        let (flows, times) = self.under_load()?;
        let replaced = self.count()? - before;
        self.delete(&plain)?;
        ensure!(replaced >= ROUNDS as u64 * 2, "{replaced} replacements");
        let figures = &mut self.figures;
        for (what, mut values, unit) in [
            ("replacement", times.exchange, "us"),
            ("replacement_request", times.request, "ms"),
        ] {
            let max = values.iter().copied().fold(0.0, f64::max);
            figures.add(&format!("{what}_p50"), median(&mut values), unit, None);
            figures.add(&format!("{what}_max"), max, unit, None);
        }
        figures.add("replacement_count", replaced as f64, "replacements", None);
        let sum = |of: fn(&Outcome) -> u32| f64::from(flows.iter().map(of).sum::<u32>());
        for (what, count) in [
            ("sent", sum(|flow| flow.sent)),
            ("lost", sum(Outcome::lost)),
            ("late", sum(|flow| flow.late)),
            ("doubled", sum(|flow| flow.duplicates)),
        ] {
            figures.add(
                &format!("replacement_packets_{what}"),
                count,
                "packets",
                None,
            );
        }
        let load = self.load_ms()?;
        self.figures.add("replacement_load", load, "ms", None);
        Ok(())
    }

    /// Rounds of changes, and what became of the packets, uplink and downlink.
    fn under_load(&mut self) -> Result<([Outcome; 2], Times)> {
        let bind = |address: SocketAddrV4| -> Result<UdpSocket> {
            let socket = self.sut.peer.udp(address)?;
            setsockopt(&socket, sockopt::RcvBufForce, &SOCKET_BUFFER)?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            Ok(socket)
        };
        let gnb = bind(SocketAddrV4::new(ADDRESSES.gnb, GTPU))?;
        let remote = bind(SocketAddrV4::new(REMOTE, PORT))?;
        let mut frame = frames::uplink(&ADDRESSES, Family::V4, 64);
        frame.bytes[frame.teid_at..frame.teid_at + 4].copy_from_slice(&teid(0).to_be_bytes());
        let uplink = (frame.bytes.split_off(GTPU_AT), NUMBER_AT);
        let upf = SocketAddrV4::new(ADDRESSES.n3, GTPU);
        let user = SocketAddrV4::new(ADDRESSES.ue(0), PORT);
        let stop = &AtomicBool::new(false);
        let (gnb, remote) = (&gnb, &remote);
        std::thread::scope(|scope| {
            let up = scope.spawn(move || send(gnb, upf, uplink, stop));
            let down = scope.spawn(move || send(remote, user, (vec![0; 36], 0), stop));
            let at_remote = scope.spawn(move || receive(remote, 0));
            let at_gnb = scope.spawn(move || receive(gnb, NUMBER_AT));
            let times = self.rounds();
            stop.store(true, Ordering::Relaxed);
            let mut flows = Vec::new();
            for (sender, receiver) in [(up, at_remote), (down, at_gnb)] {
                let sent = sender.join().map_err(|_| anyhow!("the sender failed"))??;
                let ledger = receiver.join();
                let ledger = ledger.map_err(|_| anyhow!("the receiver failed"))??;
                flows.push(ledger.close(sent));
            }
            let flows: Result<[Outcome; 2], _> = flows.try_into();
            Ok((flows.map_err(|_| anyhow!("two flows"))?, times?))
        })
    }

    /// To programs that serve a relayed session too, and back.
    fn rounds(&mut self) -> Result<Times> {
        let mut times = Times::default();
        for _ in 0..ROUNDS {
            let (outcome, relay) = self.establish(1, 1, Shape::Relay)?;
            times.request.push(outcome.took.as_secs_f64() * 1e3);
            times.exchange.push(self.took()?);
            self.delete(&relay)?;
            self.wait("relay", false)?;
            times.exchange.push(self.took()?);
        }
        Ok(times)
    }

    /// Replacements so far.
    fn count(&self) -> Result<u64> {
        let count = self.sut.datapath()?["replacements"].as_u64();
        count.context("replacements")
    }

    /// Verifying and compiling the live programs, which happened beside the forwarding of packets.
    fn load_ms(&self) -> Result<f64> {
        let datapath = self.sut.datapath()?;
        let programs = datapath["programs"].as_array().context("programs")?;
        Ok(programs
            .iter()
            .filter_map(|one| one["load_ms"].as_f64())
            .sum())
    }

    fn took(&self) -> Result<f64> {
        let took = self.sut.datapath()?["last_replacement"]["took_us"].as_f64();
        took.context("last_replacement.took_us")
    }

    /// Until the programs have, or have not, this feature.
    fn wait(&self, feature: &str, there: bool) -> Result<()> {
        let start = Instant::now();
        loop {
            let datapath = self.sut.datapath()?;
            let features = datapath["features"].as_array().context("features")?;
            if features.iter().any(|name| name == feature) == there {
                return Ok(());
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "{feature} is not {there}: {features:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Figures `xdp-up-trace-*` and `xdp-down-trace-*`: plain sessions before anybody was ever followed, while a TEID is
    /// that none of them has, and afterwards.
    pub(super) fn tracing(&mut self) -> Result<()> {
        let seids = self.establish(0, SESSIONS, Shape::Plain)?.1;
        self.sut.settle()?;
        let before = self.instructions()?;
        self.trace_figures("never")?;
        let mut command = Command::new(upf::binary()?.with_file_name("turnpike"));
        command
            .args(["--json", "trace", "--teid", "deadbeef", "--seconds", "120"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut trace = self.sut.upf.spawn(&mut command).context("turnpike")?;
        self.wait("trace", true)?;
        self.trace_figures("on")?;
        trace.signal(Signal::SIGTERM)?;
        trace.wait(PATIENCE)?;
        self.wait("trace", false)?;
        self.sut.settle()?;
        self.trace_figures("off-again")?;
        let more = self.instructions()? - before;
        self.figures
            .add("trace-off-again-more", more, "instructions", None);
        self.delete(&seids)?;
        std::thread::sleep(GRACE);
        Ok(())
    }

    fn trace_figures(&mut self, state: &str) -> Result<()> {
        for direction in [Direction::Uplink, Direction::Downlink] {
            let cost = self.cost_as_is(direction, SESSIONS, Family::V4)?;
            let name = format!("xdp-{}-trace-{state}", way(direction));
            self.figures
                .add(&name, cost.above_floor, "ns/packet", Some(cost.floor));
        }
        Ok(())
    }

    /// Of all live programs.
    pub(super) fn instructions(&self) -> Result<f64> {
        let datapath = self.sut.datapath()?;
        let programs = datapath["programs"].as_array().context("programs")?;
        let each = programs
            .iter()
            .filter_map(|one| one["instructions"].as_f64());
        Ok(each.sum())
    }
}

/// Numbered packets, some 15 000 a second, until told to stop. How many.
fn send(
    from: &UdpSocket,
    to: SocketAddrV4,
    (mut packet, number_at): (Vec<u8>, usize),
    stop: &AtomicBool,
) -> Result<u32> {
    let mut sent = 0u32;
    while !stop.load(Ordering::Relaxed) {
        packet[number_at..number_at + 4].copy_from_slice(&sent.to_be_bytes());
        from.send_to(&packet, to)?;
        sent += 1;
        std::thread::sleep(Duration::from_micros(1));
    }
    Ok(sent)
}

/// Until nothing comes any more.
fn receive(at: &UdpSocket, number_at: usize) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let mut buffer = [0; 2048];
    loop {
        match at.recv(&mut buffer) {
            Ok(len) => {
                if let Some(payload) = buffer[..len].get(number_at..) {
                    ledger.note(payload);
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && ledger.received() > 0 => {
                return Ok(ledger);
            }
            Err(e) => return Err(e).context("no packet came through"),
        }
    }
}
