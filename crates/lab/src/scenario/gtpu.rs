//! GTP-U path messages, unknown tunnels, and what a UE must not reach.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{Scenario, eventually};
use crate::dn;
use crate::flow::{self, Ledger, Shape};
use crate::gnb::Event;
use crate::gtpu::{self, message};
use crate::packet;
use crate::ping::unanswered;
use crate::smf::{self, Style};
use crate::wait::NEVER;
use crate::world::{Family, UPF_N3, UPF_N4, UPF_N6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("echo", "Echo Requests are answered", echo),
        Scenario::new(
            "gtpu-variants",
            "every valid form of a G-PDU passes",
            gtpu_variants,
        ),
        Scenario::new(
            "ports-of-gtp",
            "users' own UDP on ports 2152 and 8805",
            ports_of_gtp,
        ),
        Scenario::new(
            "unknown-teid",
            "Error Indications, within a rate",
            unknown_teid,
        ),
        Scenario::new(
            "restart-grace",
            "no Error Indications while SMFs may still restore sessions",
            restart_grace,
        )
        .line("[gtpu]", "restart_grace_s = 10"),
        Scenario::new(
            "n4-not-reachable-from-ue",
            "a UE cannot talk to the UPF itself",
            n4_not_reachable_from_ue,
        ),
    ]
}

fn echo(world: &mut World) -> Result<String> {
    for gnb in &world.gnbs {
        for _ in 0..20 {
            let sequence = gnb.echo(UPF_N3)?;
            match gnb.next_event() {
                Some(Event::EchoResponse { sequence: answered }) if answered == sequence => {}
                other => bail!("Echo Request {sequence} was followed by {other:?}"),
            }
            // Within the default rate of answers.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok("40 of 40 answered with their sequence numbers".to_owned())
}

/// Seconds of grace, as configured.
const GRACE_S: u64 = 10;

fn restart_grace(world: &mut World) -> Result<String> {
    let gnb = &world.gnbs[0];
    let (stray, mut scratch) = (gnb.uplink(UPF_N3, 0xdead_beef, Some(9)), Vec::new());
    let packet = packet::udp4(([10, 60, 99, 99].into(), 1), (dn::SERVER_V4, 9), b"stray");
    let mut sent = 0;
    eventually("an Error Indication", || {
        stray.send(&packet, &mut scratch)?;
        sent += 1;
        Ok(gnb.event(Duration::from_millis(50)).is_some())
    })?;
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let status = upf.get(&world.upf_ns, "/api/v1/status")?;
    let uptime_s = status["uptime_s"].as_u64().context("uptime_s")?;
    // The uptime is shown in whole seconds.
    ensure!(
        uptime_s + 1 >= GRACE_S,
        "answered {uptime_s} s after the start, of which {GRACE_S} are grace"
    );
    eventually("each stray packet is counted", || {
        let dropped = world.drops("unknown_teid")? + world.drops("error_indication_rate")?;
        Ok(dropped + 1 >= sent)
    })?;
    Ok(format!("{sent} packets before the first Error Indication"))
}

fn unknown_teid(world: &mut World) -> Result<String> {
    const TEID: u32 = 0xdead_beef;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let gnb = &world.gnbs[0];
    let (stray, mut scratch) = (gnb.uplink(UPF_N3, TEID, Some(9)), Vec::new());
    let packet = packet::udp4(([10, 60, 99, 99].into(), 1), (dn::SERVER_V4, 9), b"stray");
    stray.send(&packet, &mut scratch)?;
    let expected = Event::ErrorIndication {
        teid: TEID,
        address: UPF_N3.into(),
    };
    let seen = gnb.next_event();
    ensure!(
        seen.as_ref() == Some(&expected),
        "instead of an Error Indication: {seen:?}"
    );

    const FLOOD: u64 = 5000;
    let before = world.drops("unknown_teid")? + world.drops("error_indication_rate")?;
    let began = Instant::now();
    for sent in 1..=FLOOD {
        stray.send(&packet, &mut scratch)?;
        // No more at a time than the ring of a link holds.
        if sent % 100 == 0 {
            world.drain_uplink(0)?;
        }
    }
    // A packet that was answered is not lost; the others have one name each.
    let mut indications = 0u32;
    let counted = || {
        while gnb.event(Duration::ZERO).is_some() {
            indications += 1;
        }
        let now = world.drops("unknown_teid")? + world.drops("error_indication_rate")?;
        Ok(now - before + u64::from(indications) == FLOOD)
    };
    eventually("each stray packet is counted", counted)?;
    // Configured: 100 a second and CPU; a burst's worth more.
    let most = 100.0 * (began.elapsed().as_secs_f64() + 1.0) * 4.0;
    ensure!(
        f64::from(indications) <= most,
        "{indications} Error Indications, at most {most:.0}"
    );
    ping_all(&attached)?;
    Ok(format!(
        "1 indication for 1 packet, {indications} for a flood of {FLOOD}"
    ))
}

fn n4_not_reachable_from_ue(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let heartbeat = smf::encode(
        MsgType::HeartbeatRequest,
        None,
        1,
        &[RecoveryTimeStamp::new(std::time::SystemTime::now()).to_ie()],
    );
    let before = world.drops("to_self")?;
    let mut sent = 0;
    for (address, port, datagram) in [
        (UPF_N4, smf::PORT, &heartbeat),
        (UPF_N3, smf::PORT, &heartbeat),
        (UPF_N3, gtpu::PORT, &gtpu::echo_request(1)),
        (UPF_N6, smf::PORT, &heartbeat),
    ] {
        let to = SocketAddr::from((address, port));
        let socket = attached.ue.netns.udp(([0, 0, 0, 0], 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        socket.send_to(datagram, to)?;
        sent += 1;
        let answer = socket.recv(&mut [0; 1500]);
        ensure!(answer.is_err(), "a UE got an answer from {to}");
    }
    for address in [UPF_N4, UPF_N3, UPF_N6] {
        unanswered(&attached.ue.netns, IpAddr::V4(address), 1).context("from a UE to the UPF")?;
        sent += 1;
    }
    let mut dropped = 0;
    eventually("packets to the UPF itself are counted", || {
        dropped = world.drops("to_self")? - before;
        Ok(dropped >= sent)
    })?;
    ping_all(&attached)?;
    Ok(format!("{dropped} packets dropped as to_self"))
}

/// Ways to write the same G-PDU (TS 29.281, 5.1 and 5.2): what stands before the tunnelled packet.
fn variants() -> Vec<(&'static str, u8, Vec<u8>)> {
    let container = [1, 0x10, 9];
    let chain = |octets: &[&[u8]]| octets.concat();
    vec![
        ("bare", 0x30, vec![]),
        ("sequence number", 0x32, vec![0, 7, 0, 0]),
        ("N-PDU number", 0x31, vec![0, 0, 7, 0]),
        ("all flags, no extension", 0x37, vec![0, 7, 7, 0]),
        (
            "session container",
            0x34,
            chain(&[&[0, 0, 0, 0x85], &container, &[0]]),
        ),
        (
            "container and sequence",
            0x36,
            chain(&[&[0, 7, 0, 0x85], &container, &[0]]),
        ),
        (
            "long container",
            0x34,
            vec![0, 0, 0, 0x85, 2, 0x10, 9, 0, 0, 0, 0, 0],
        ),
        (
            "UDP port extension, then container",
            0x34,
            chain(&[&[0, 0, 0, 0x40, 1, 0x1f, 0x90, 0x85], &container, &[0]]),
        ),
        (
            "container, then service class",
            0x34,
            chain(&[&[0, 0, 0, 0x85], &container, &[0x20, 1, 0, 0, 0]]),
        ),
    ]
}

fn gtpu_variants(world: &mut World) -> Result<String> {
    const EACH: u32 = 50;
    let mut plan = world.plan(Family::V4, Style::Free5gc);
    // A bare G-PDU has no QFI to match.
    plan.match_qfi = false;
    let attached = world.attach("ue1", &plan, 0, 0)?;
    ping_all(&attached)?;
    let inbound = world.dn_ns.udp((dn::SERVER_V4, 7777))?;
    inbound.set_read_timeout(Some(NEVER))?;
    let source = attached.session.addresses.v4.context("a UE without IPv4")?;
    let (upf, teid) = attached.session.uplink;
    let variants = variants();
    for (name, flags, between) in &variants {
        for number in 0..EACH {
            let inner = packet::udp4((source, 7777), (dn::SERVER_V4, 7777), &number.to_be_bytes());
            let mut datagram = vec![*flags, message::G_PDU];
            datagram.extend(((between.len() + inner.len()) as u16).to_be_bytes());
            datagram.extend(teid.to_be_bytes());
            datagram.extend(between.iter().chain(&inner));
            world.gnbs[0].send_raw(upf, &datagram)?;
        }
        let mut ledger = Ledger::default();
        let mut buffer = [0; 64];
        while let Ok(length) = inbound.recv(&mut buffer) {
            ledger.note(&buffer[..length]);
            if ledger.received() == EACH {
                break;
            }
        }
        ledger.close(EACH).whole(name)?;
    }
    Ok(format!("{} forms of a G-PDU", variants.len()))
}

/// Packets that a UE or server sends to ports that look like the UPF's own are users' traffic.
fn ports_of_gtp(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    let shape = Shape {
        rate: 500,
        count: 100,
        payload: 100,
    };
    for port in [gtpu::PORT, smf::PORT] {
        for address in attached.session.addresses.all() {
            let (ue, server) = (
                &attached.ue.netns,
                SocketAddr::new(dn::server_for(address), port),
            );
            let user = SocketAddr::new(address, port);
            let up = flow::start(ue, &world.dn_ns, server, shape)?.finish()?;
            up.whole(&format!("to {server}"))?;
            let down = flow::start(&world.dn_ns, ue, user, shape)?.finish()?;
            down.whole(&format!("to {user}"))?;
        }
    }
    Ok("both ports, both ways, both families".to_owned())
}
