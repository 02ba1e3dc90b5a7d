//! Service to a user and an SMF, end to end: TCP and round trips through tunnels, requests one by one, the start. `$TURNPIKED` may be
//! turnpiked in a container: benches/container.py compares.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use nix::sys::signal::Signal;

use super::load::Client;
use super::requests::{self, Shape};
use super::sut::Sut;
use super::{ADDRESSES, Figures, delete, establish};
use crate::dn;
use crate::traffic::{Iperf, Way, iperf};
use crate::upf::Datapath;
use crate::world::{Attached, Family, Wanted, World};

/// Seconds of each run of iperf3, and of its begin those that do not count.
const SECONDS: u32 = 5;
const OMITTED: u32 = 1;
const PINGS: &str = "3000";
/// Requests one by one.
const REQUESTS: u32 = 10_000;

/// Figures `whole-*`.
pub(super) fn measure(figures: &mut Figures) -> Result<()> {
    let mut world = World::build(&Wanted {
        iperf: 2,
        ..Wanted::default()
    })?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    for (server, (name, way)) in (0..).zip([("up", Way::Up), ("down", Way::Down)]) {
        let run = Iperf {
            from: attached.address()?,
            port: dn::IPERF_PORT + server,
            way,
            udp_bps: None,
            seconds: SECONDS,
            omitted: OMITTED,
            algorithm: None,
        };
        let measured = iperf(&attached.ue.netns, run)?;
        figures.add(
            &format!("whole-tcp-{name}"),
            measured.bps / 1e6,
            "Mbit/s",
            None,
        );
    }
    let trips = round_trips(&attached)?;
    add_quantiles(figures, "whole-ping", &trips);
    // In good order: of a container, a kill would reach only whoever waits for its end, and it would run beside what follows.
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGTERM)?;
    drop(world);
    // N4 knows no data path, and the kernel's face of each port would have to be laid first.
    if Datapath::chosen().is_dpdk() {
        return Ok(());
    }
    let sut = Sut::start(REQUESTS)?;
    let mut client = Client::new(sut.smf_socket(ADDRESSES.smf)?, sut.n4())?;
    client.associate(|sequence| requests::association(&ADDRESSES, sequence))?;
    // Once without looking: answers that are kept take their memory then.
    for round in 0..2 {
        let (outcome, seids) = establish(&mut client, (0, REQUESTS), Shape::Plain, 1)?;
        delete(&mut client, &seids)?;
        if round > 0 {
            add_quantiles(figures, "whole-establish", &outcome.latency);
        }
    }
    let start = sut.start_to_ready.as_secs_f64() * 1e3;
    figures.add("whole-start-to-ready", start, "ms", None);
    Ok(())
}

/// `latency`: in nanoseconds.
fn add_quantiles(figures: &mut Figures, name: &str, latency: &Histogram<u64>) {
    for (quantile, value) in [("p50", 0.5), ("p99", 0.99)] {
        let micros = latency.value_at_quantile(value) as f64 / 1e3;
        figures.add(&format!("{name}-{quantile}"), micros, "us", None);
    }
}

/// From the UE to the data network and back, one outstanding, in nanoseconds.
fn round_trips(attached: &Attached) -> Result<Histogram<u64>> {
    let mut ping = Command::new("ping");
    let server = dn::SERVER_V4.to_string();
    ping.args(["-n", "-i", "0.001", "-c", PINGS, &server]);
    let limit = Duration::from_secs(60);
    let said = attached.ue.netns.output(&mut ping, limit)?;
    let said = String::from_utf8_lossy(&said.stdout);
    let mut trips = Histogram::new(3)?;
    for line in said.lines() {
        let Some((_, time)) = line.split_once("time=") else {
            continue;
        };
        let millis = time.split_ascii_whitespace().next().unwrap_or_default();
        let millis: f64 = millis.parse().context("time of a ping")?;
        trips.record((millis * 1e6) as u64)?;
    }
    ensure!(!trips.is_empty(), "no ping was answered: {said}");
    Ok(trips)
}
