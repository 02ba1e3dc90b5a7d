//! FARs whose packets leave in UDP without GTP-U: a socket beside gNB 2 stands for whoever gets them.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};

use super::sessions::ping_all;
use super::{Scenario, flow_down, flow_up, none_of};
use crate::flow::{Ledger, Shape};
use crate::smf::{Style, far_into_udp};
use crate::wait::NEVER;
use crate::world::{Family, GNBS, GNBS_V6, OverN3, World};

const PORT: u16 = 4000;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "plain-udp",
            "FARs with an outer header of UDP alone, over IPv4 and IPv6, uplink and downlink",
            plain_udp,
        )
        .over(OverN3::Both),
    ]
}

/// The packets of a flow among what comes in UDP, all of them.
fn ledger(socket: &UdpSocket, sent: u32) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let (mut length, mut buffer) = (0, [0; 2048]);
    socket.set_read_timeout(Some(NEVER))?;
    while let Ok((octets, from)) = socket.recv_from(&mut buffer) {
        ensure!(from.port() == PORT, "from port {}", from.port());
        let packet = &buffer[..octets];
        ensure!(packet[0] >> 4 == 4 && packet[9] == 17, "{packet:02x?}");
        ledger.note(&packet[28..]);
        length += 1;
        if length == sent {
            // Time for packets that come twice.
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        }
    }
    ensure!(length == sent, "{length} of {sent} packets");
    Ok(ledger)
}

fn plain_udp(world: &mut World) -> Result<String> {
    let shape = Shape::lasting(200, 1);
    let mut counted = 0;
    for to in [IpAddr::V4(GNBS[1]), IpAddr::V6(GNBS_V6[1])] {
        let plan = world.plan(Family::V4, Style::Open5gs);
        let attached = world.attach(&format!("ue{to}").replace([':', '.'], ""), &plan, 0, 0)?;
        ping_all(&attached)?;
        let socket = world.gnb_ns[1].udp((to, PORT))?;
        setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).context("receive buffer")?;
        let smf = world.smf(0)?;
        // FAR 1 is the uplink of every session of the lab, FAR 2 its downlink.
        smf.modify(&attached.session, &[far_into_udp(1, to, PORT)])?;
        let up = none_of(flow_up(world, &attached, shape)?, "uplink in UDP")?;
        let got = ledger(&socket, up.sent).context("uplink")?;
        got.close(up.sent).whole("uplink in UDP")?;
        smf.modify(&attached.session, &[far_into_udp(2, to, PORT)])?;
        let down = none_of(flow_down(world, &attached, shape)?, "downlink in UDP")?;
        let got = ledger(&socket, down.sent).context("downlink")?;
        got.close(down.sent).whole("downlink in UDP")?;
        counted += up.sent + down.sent;
        world.detach(&attached)?;
    }
    Ok(format!("{counted} packets, none missing or changed"))
}
