//! GTP-U path messages, unknown tunnels, and what a UE must not reach.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{Scenario, eventually};
use crate::gnb::Event;
use crate::gtpu;
use crate::smf;
use crate::traffic::ping;
use crate::world::{Family, UPF_N3, UPF_N4, UPF_N6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("echo", "Echo Requests are answered", echo),
        Scenario::new(
            "unknown-teid",
            "Error Indications, within a rate",
            unknown_teid,
        ),
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
            match gnb.event(Duration::from_secs(2)) {
                Some(Event::EchoResponse { sequence: answered }) if answered == sequence => {}
                other => bail!("Echo Request {sequence} was followed by {other:?}"),
            }
            // Within the default rate of answers.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok("40 of 40 answered with their sequence numbers".to_owned())
}

/// An ICMP Echo Request of no UE: only its lengths must be right.
const STRAY: [u8; 28] = [
    0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0x66, 0xd7, 10, 60, 99, 99, 10, 200, 0, 1, 8, 0, 0xf7, 0xff,
    0, 0, 0, 0,
];

fn unknown_teid(world: &mut World) -> Result<String> {
    const TEID: u32 = 0xdead_beef;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let gnb = &world.gnbs[0];
    let (stray, mut scratch) = (gnb.uplink(UPF_N3, TEID, Some(9)), Vec::new());
    stray.send(&STRAY, &mut scratch)?;
    let expected = Event::ErrorIndication {
        teid: TEID,
        address: UPF_N3.into(),
    };
    let seen = gnb.event(Duration::from_secs(2));
    ensure!(
        seen.as_ref() == Some(&expected),
        "instead of an Error Indication: {seen:?}"
    );

    const FLOOD: u64 = 5000;
    let before = world.drops("unknown_teid")? + world.drops("error_indication_rate")?;
    let began = Instant::now();
    for _ in 0..FLOOD {
        stray.send(&STRAY, &mut scratch)?;
    }
    let mut indications = 0u32;
    while gnb.event(Duration::from_millis(500)).is_some() {
        indications += 1;
    }
    // Configured: 100 a second and CPU; a burst's worth more.
    let most = 100.0 * (began.elapsed().as_secs_f64() + 1.0) * 4.0;
    ensure!(
        f64::from(indications) <= most,
        "{indications} Error Indications, at most {most:.0}"
    );
    // A packet that was answered is not lost; the others have one name each.
    let counted = || {
        let now = world.drops("unknown_teid")? + world.drops("error_indication_rate")?;
        Ok(now - before + u64::from(indications) == FLOOD)
    };
    eventually(
        "each stray packet is counted",
        Duration::from_secs(2),
        counted,
    )?;
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
        let socket = attached
            .ue
            .netns
            .enter(|| Ok(UdpSocket::bind("0.0.0.0:0")?))?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        socket.send_to(datagram, to)?;
        sent += 1;
        let answer = socket.recv(&mut [0; 1500]);
        ensure!(answer.is_err(), "a UE got an answer from {to}");
    }
    for address in [UPF_N4, UPF_N3, UPF_N6] {
        let pinged = ping(&attached.ue.netns, IpAddr::V4(address), 1, 100)?;
        ensure!(pinged.received == 0, "a UE can ping {address}");
        sent += 1;
    }
    let dropped = world.drops("to_self")? - before;
    ensure!(
        dropped >= sent,
        "{sent} packets to the UPF itself, {dropped} counted as to_self"
    );
    ping_all(&attached)?;
    Ok(format!("{dropped} packets dropped as to_self"))
}
