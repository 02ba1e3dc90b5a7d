//! How soon a FAR update acts: downlink packets flow, the tunnel changes, and the last packet in
//! the old tunnel is timed against the answer.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::frames::REMOTE;
use super::load::Client;
use super::requests::{self, Addresses, Field};
use super::sut::Sut;

const UPDATES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(4);
const PORT: u16 = 40001;
const SOCKET_BUFFER: usize = 64 << 20;

/// Results of the updates.
pub(super) struct Acts {
    /// Answer to last packet in the old tunnel, microseconds; zero when none came after it.
    pub(super) p50_us: f64,
    /// The largest.
    pub(super) max_us: f64,
    /// Packets sent by the data network that reached no tunnel.
    pub(super) lost: u64,
}

struct Arrival {
    at: Instant,
    teid: u32,
}

/// Switch the tunnel of `seid` (user 0) back and forth while packets flow.
pub(super) fn measure(
    sut: &Sut,
    client: &mut Client,
    addresses: &Addresses,
    seid: u64,
) -> Result<Acts> {
    let gnb = sut.peer.udp((addresses.gnb, 2152))?;
    nix::sys::socket::setsockopt(&gnb, nix::sys::socket::sockopt::RcvBufForce, &SOCKET_BUFFER)?;
    gnb.set_read_timeout(Some(Duration::from_millis(200)))?;
    let remote = sut.peer.udp((REMOTE, PORT))?;
    let stop = AtomicBool::new(false);
    let ue = addresses.ue(0);

    let (sent, arrivals, answers) = std::thread::scope(|scope| -> Result<_> {
        let sender = scope.spawn(|| send(&remote, ue, &stop));
        let receiver = scope.spawn(|| receive(&gnb));
        let answers = updates(client, addresses, seid);
        stop.store(true, Ordering::Relaxed);
        let sent = sender
            .join()
            .map_err(|_| anyhow::anyhow!("the sender failed"))??;
        let arrivals = receiver
            .join()
            .map_err(|_| anyhow::anyhow!("the receiver failed"))??;
        Ok((sent, arrivals, answers?))
    })?;

    let mut late: Vec<f64> = Vec::new();
    for (index, (answered, teid)) in answers.iter().enumerate() {
        let until = answers
            .get(index + 1)
            .map_or(*answered + PAUSE, |next| next.0 - PAUSE / 2);
        let last_old = arrivals
            .iter()
            .filter(|a| a.at > *answered && a.at < until && a.teid != *teid)
            .map(|a| (a.at - *answered).as_secs_f64() * 1e6)
            .fold(0.0, f64::max);
        late.push(last_old);
    }
    ensure!(
        arrivals.len() > UPDATES as usize * 10,
        "only {} packets arrived",
        arrivals.len()
    );
    let max_us = late.iter().copied().fold(0.0, f64::max);
    let lost = sent
        .checked_sub(arrivals.len() as u64)
        .context("more arrived than was sent")?;
    Ok(Acts {
        p50_us: super::median(&mut late),
        max_us,
        lost,
    })
}

/// Some 20 000 packets a second until told to stop.
fn send(remote: &UdpSocket, ue: Ipv4Addr, stop: &AtomicBool) -> Result<u64> {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        remote.send_to(&[0; 36], (ue, PORT))?;
        sent += 1;
        std::thread::sleep(Duration::from_micros(1));
    }
    Ok(sent)
}

fn receive(gnb: &UdpSocket) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut buffer = [0; 2048];
    loop {
        match gnb.recv(&mut buffer) {
            Ok(len) if len >= 8 && buffer[1] == 255 => arrivals.push(Arrival {
                at: Instant::now(),
                teid: u32::from_be_bytes([buffer[4], buffer[5], buffer[6], buffer[7]]),
            }),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && !arrivals.is_empty() => {
                return Ok(arrivals);
            }
            Err(e) => return Err(e).context("no downlink packet reached the gNB"),
        }
    }
}

fn updates(client: &mut Client, addresses: &Addresses, seid: u64) -> Result<Vec<(Instant, u32)>> {
    let template = requests::path_switch(addresses)?;
    let mut answers = Vec::new();
    std::thread::sleep(Duration::from_millis(50));
    for update in 0..UPDATES {
        let teid = 0x4000_0000 + update;
        let outcome = client.run(
            &template,
            1,
            1,
            |_, field| match field {
                Field::Seid => seid,
                Field::GnbTeid => u64::from(teid),
                _ => 0,
            },
            |_, _| {},
        )?;
        ensure!(outcome.accepted == 1, "a FAR update was not accepted");
        answers.push((Instant::now(), teid));
        std::thread::sleep(PAUSE);
    }
    Ok(answers)
}
