//! Following one user, as an operator does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::capture::matching;
use super::sessions::ping_all;
use super::{Scenario, eventually};
use crate::dn;
use crate::netns::Process;
use crate::packet;
use crate::smf::Style;
use crate::upf;
use crate::wait::NEVER;
use crate::world::{Attached, Family, UPF_N3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "trace",
        "turnpike trace names the rule or the drop reason of each packet of one user",
        trace,
    )]
}

/// A TEID that no session has.
const STRAY: u32 = 0xdead_beef;

/// A `turnpike trace` that runs.
struct Trace {
    process: Process,
    file: PathBuf,
}

impl Trace {
    /// It follows when this returns; it ends after `count` packets.
    fn start(world: &World, whom: [&str; 2], count: usize, file: &str) -> Result<Self> {
        let file = world.folder.join(file);
        let mut command = Command::new(upf::binary()?.with_file_name("turnpike"));
        command.args(["--json", "trace", "--seconds", "200"]);
        command
            .args(whom)
            .args(["--count", &count.to_string(), "--write"])
            .arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = world.upf_ns.spawn(&mut command).context("turnpike")?;
        eventually("the trace begins", || is_traced(world))?;
        Ok(Self { process, file })
    }

    /// The lines about packets, and the file.
    fn finish(self) -> Result<(Vec<Value>, PathBuf)> {
        let output = self.process.output(NEVER)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "turnpike trace: {error}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<Value> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        let last = lines.last().context("no line")?;
        ensure!(last["why"] == "count", "ended early: {text}");
        let packets = lines.into_iter().filter(|line| line["event"] == "packet");
        Ok((packets.collect(), self.file))
    }
}

/// Whether the programs that run report packets.
fn is_traced(world: &World) -> Result<bool> {
    let upf = world.upf.as_ref().context("no UPF")?;
    let datapath = upf.get(&world.upf_ns, "/api/v1/datapath")?;
    let features = datapath["features"].as_array().context("features")?;
    Ok(features.iter().any(|feature| feature == "trace"))
}

fn trace(world: &mut World) -> Result<String> {
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.uplink_ue = true;
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let other = world.attach_plain("ue2", Family::V4)?;
    ensure!(!is_traced(world)?, "traced before anybody asked");
    let ue = attached.address()?.to_string();
    // Five pings and their answers, and what provoke() sends.
    let by_ue = Trace::start(world, ["--ue", &ue], 16, "ue.pcapng")?;
    let stray = Trace::start(world, ["--teid", "deadbeef"], 1, "stray.pcapng")?;
    ping_all(&attached)?;
    ping_all(&other)?;
    provoke(world, &attached)?;
    let (lines, file) = by_ue.finish()?;
    let comments = comments(&file)?;
    ensure!(
        comments.len() == 16 && lines.len() == 16,
        "{} lines, {} packets in the file",
        lines.len(),
        comments.len()
    );
    let uplink = "uplink forwarded; PDR 1, FAR 1 (FORW), QER 1, ";
    let downlink = "downlink forwarded; PDR 2, FAR 2 (FORW), QER 1";
    let session = format!("; session {:016x}", attached.session.up_seid);
    for (beginning, expected) in [
        (uplink, 5),
        (downlink, 5),
        ("uplink dropped: qfi_mismatch ", 3),
        ("uplink dropped: ue_spoofed ", 2),
        ("uplink answered: unknown_teid ", 1),
    ] {
        let of_kind = comments
            .iter()
            .filter(|comment| comment.starts_with(beginning));
        let of_session = of_kind
            .filter(|comment| comment.ends_with(&session))
            .count();
        ensure!(
            of_session == expected,
            "{of_session} comments begin with {beginning:?} instead of {expected}:\n{}",
            comments.join("\n")
        );
    }
    let spoofed = lines.iter().find(|line| line["reason"] == "ue_spoofed");
    let spoofed = spoofed.context("no spoofed packet")?;
    ensure!(spoofed["pdr"] == 1 && spoofed["qfi"] == 9, "{spoofed}");
    let (lines, _) = stray.finish()?;
    ensure!(lines[0]["teid"] == "deadbeef", "{}", lines[0]);
    eventually("the trace ends with its clients", || Ok(!is_traced(world)?))?;
    ping_all(&attached)?;
    Ok("16 of 16 packets with their rule or reason, of another UE none".to_owned())
}

/// Three packets with a wrong QFI, two with another UE's address, one through a tunnel that is not.
fn provoke(world: &World, attached: &Attached) -> Result<()> {
    let gnb = &world.gnbs[0];
    let Some(ue) = attached.session.addresses.v4 else {
        anyhow::bail!("a UE without IPv4");
    };
    let (teid, mut scratch) = (attached.session.uplink.1, Vec::new());
    let own = packet::udp4((ue, 1), (dn::SERVER_V4, 9), b"own");
    let foreign = packet::udp4(([10, 60, 99, 99].into(), 1), (dn::SERVER_V4, 9), b"foreign");
    for (teid, qfi, packet, times) in [
        (teid, 5, &own, 3),
        (teid, 9, &foreign, 2),
        (STRAY, 9, &own, 1),
    ] {
        let uplink = gnb.uplink(UPF_N3, teid, Some(qfi));
        for _ in 0..times {
            uplink.send(packet, &mut scratch)?;
        }
    }
    Ok(())
}

/// Of each packet, as tshark reads them; nothing may be malformed.
fn comments(file: &Path) -> Result<Vec<String>> {
    let malformed = matching(file, "_ws.malformed", &[])?;
    ensure!(malformed.is_empty(), "malformed:\n{malformed}");
    let fields = ["-T", "fields", "-e", "frame.comment"];
    // tshark before 4.0 calls it pkt_comment.
    let text = matching(file, "frame", &fields)
        .or_else(|_| matching(file, "frame", &["-T", "fields", "-e", "pkt_comment"]))?;
    Ok(text.lines().map(str::to_owned).collect())
}
