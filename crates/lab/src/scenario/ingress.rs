//! GTP-U and PFCP that come in by an interface that neither gNBs nor SMFs are on.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::message::MsgType;

use super::paths::{answered, peers};
use super::sessions::ping_all;
use super::{Scenario, both_ways, eventually, expect_drops};
use crate::dn;
use crate::gnb::{Event, Gnb};
use crate::gtpu;
use crate::packet;
use crate::ping::ping;
use crate::smf::{self, Answer, SessionPlan, Smf, Style};
use crate::upf::Datapath;
use crate::world::{
    Attached, Family, GNBS, GNBS_V6, OverN3, ROUTER, ROUTER_V6, UPF_N3, UPF_N3_V6, UPF_N4,
    UPF_N4_V6, UPF_N6, UPF_N6_V6, World, smf_address, smf_address_v6,
};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "injected-from-n6",
            "a host of the data network speaks as a gNB, and nobody listens",
            injected_from_n6,
        )
        .over(OverN3::Both),
        Scenario::new(
            "dead-path-from-n6",
            "a host of the data network answers for a gNB that is silent, and keeps no path alive",
            dead_path_from_n6,
        )
        .line(
            "[gtpu]",
            "echo_interval_s = 1\necho_t3_ms = 1000\necho_n3 = 3",
        )
        .long(),
        Scenario::new(
            "associated-from-n6",
            "a host of the data network speaks PFCP, in its own name and in the SMF's, and nobody listens",
            associated_from_n6,
        )
        .n4_v6(),
        Scenario::new(
            "tunnels-on-n6",
            "gNBs on an interface with several roles, and an N3 address on loopback",
            tunnels_on_n6,
        )
        .several_roles(),
    ]
}

/// A host of the data network that has the addresses of the first gNB, in a network that filters no sources.
fn impostor(world: &World) -> Result<Gnb> {
    for interface in ["all", "n6"] {
        let filter = format!("net/ipv4/conf/{interface}/rp_filter");
        world.upf_ns.sysctl(&filter, "0")?;
    }
    let (v4, v6) = (GNBS[0], GNBS_V6[0]);
    world.dn_ns.ip(&format!(
        "addr add {v4}/32 dev lo\naddr add {v6}/128 dev lo nodad\n\
         route add {UPF_N3} via {UPF_N6}\nroute add {UPF_N3_V6} via {UPF_N6_V6}"
    ))?;
    Gnb::start(&world.dn_ns, &[v4.into(), v6.into()], 0x3000_0001)
}

/// Datagrams of each kind to each address.
const EACH: u16 = 50;
/// Echo Requests of the data network have other sequence numbers than those of gNBs.
const SEQUENCES: u16 = 0x7000;
const UNKNOWN_TEID: u32 = 0xdead_beef;

/// Each kind of message to each of the UPF's addresses, as the gNB and as a host of the data network. How many they are.
fn inject(impostor: &Gnb, host: &UdpSocket, attached: &Attached) -> Result<u64> {
    let source = attached.session.addresses.v4.context("a UE without IPv4")?;
    let (_, teid) = attached.session.uplink;
    let (mut scratch, mut sent) = (Vec::new(), 0);
    for number in 0..EACH {
        let user = packet::udp4((source, 7777), (dn::SERVER_V4, 7777), &number.to_be_bytes());
        let echo = gtpu::echo_request(SEQUENCES + number);
        for (upf, gnb) in [
            (IpAddr::from(UPF_N3), IpAddr::from(GNBS[0])),
            (UPF_N3_V6.into(), GNBS_V6[0].into()),
        ] {
            for teid in [teid, UNKNOWN_TEID] {
                (impostor.uplink(upf, teid, Some(9))).send(&user, &mut scratch)?;
            }
            impostor.send_raw(upf, &echo)?;
            impostor.send_raw(upf, &gtpu::error_indication(attached.teid, gnb))?;
            sent += 4;
        }
        let upf = SocketAddr::from((UPF_N3, gtpu::PORT));
        let mut g_pdu = Vec::new();
        gtpu::g_pdu(&mut g_pdu, teid, Some(gtpu::Container::uplink(9)), &user);
        for datagram in [&g_pdu, &echo] {
            host.send_to(datagram, upf)?;
            sent += 1;
        }
    }
    Ok(sent)
}

/// An error if a datagram waits in a socket.
fn nothing_in(socket: &UdpSocket, what: &str) -> Result<()> {
    socket.set_nonblocking(true)?;
    let got = socket.recv(&mut [0; 2000]);
    let nothing = matches!(&got, Err(error) if error.kind() == ErrorKind::WouldBlock);
    ensure!(nothing, "{what}: {got:?}");
    Ok(())
}

/// All that came in before has met the UPF: by N6, and by the sockets that gNBs speak to as well.
fn drain(world: &World) -> Result<()> {
    for upf in [IpAddr::from(UPF_N3), UPF_N3_V6.into()] {
        ping(&world.dn_ns, upf, 1, 0)?.whole()?;
        echoed(&world.gnbs[0], upf)?;
    }
    Ok(())
}

/// An Echo Request of a gNB is answered, and the gNB hears of nothing else.
fn echoed(gnb: &Gnb, upf: IpAddr) -> Result<()> {
    let sequence = gnb.echo(upf)?;
    let seen = gnb.next_event();
    ensure!(
        matches!(seen, Some(Event::EchoResponse { sequence: answered }) if answered == sequence),
        "Echo Request {sequence} to {upf} was followed by {seen:?}"
    );
    Ok(())
}

/// Frames that came in on N6 and were left to the kernel.
fn passed(world: &World) -> Result<u64> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let status = upf.get(&world.upf_ns, "/api/v1/status")?;
    let mut ports = status["ports"].as_array().into_iter().flatten();
    let n6 = ports.find(|port| port["interface"] == "n6");
    n6.and_then(|n6| n6["passed"].as_u64())
        .context("no count of frames of N6 that passed")
}

fn injected_from_n6(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    ping_all(&attached)?;
    let impostor = impostor(world)?;
    let host = world.dn_ns.udp((ROUTER, gtpu::PORT + 1))?;
    let inbound = world.dn_ns.udp((dn::SERVER_V4, 7777))?;
    let (before, passed_before) = (world.counted(&attached)?, passed(world)?);
    let sent = inject(&impostor, &host, &attached)?;
    drain(world)?;
    let after = world.counted(&attached)?;
    ensure!(after == before, "the session's {before:?} became {after:?}");
    nothing_in(&inbound, "a packet in a UE's name")?;
    nothing_in(&host, "an answer to the data network")?;
    if Datapath::chosen() == Datapath::Kernel {
        expect_drops(world, "wrong_interface", 0, sent)?;
    } else {
        eventually("frames are left to the kernel", || {
            Ok(passed(world)? - passed_before >= sent)
        })?;
        expect_drops(world, "wrong_interface", 0, 0)?;
    }
    both_ways(world, &attached)?;
    drain(world)?;
    nothing_in(&inbound, "a packet in a UE's name")?;
    nothing_in(&host, "an answer to the data network")?;
    for reason in [
        "unknown_teid",
        "error_indication_rate",
        "gtpu_message",
        "tunnel_gone",
    ] {
        expect_drops(world, reason, 0, 0)?;
    }
    let reports = world.smf(0)?.requests(MsgType::SessionReportRequest)?;
    ensure!(reports.is_empty(), "the SMF was told {reports:?}");
    Ok(format!("{sent} messages, none taken; both ways over N3"))
}

/// UDP port that the UPF's Echo Requests leave by.
fn echo_port(world: &World) -> Result<u16> {
    let at = format!("{:08X}", u32::from_ne_bytes(UPF_N3.octets()));
    let table = (world.upf_ns).enter(|| Ok(fs::read_to_string("/proc/thread-self/net/udp")?))?;
    let locals = table.lines().filter_map(|l| l.split_whitespace().nth(1));
    let mut ports = locals.filter_map(|local| {
        let (address, port) = local.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (address == at && port != gtpu::PORT).then_some(port)
    });
    ports.next().context("no socket for Echo Requests")
}

fn dead_path_from_n6(world: &mut World) -> Result<String> {
    // The first ones: the UPF has sent fewer when the path must have failed.
    const SEQUENCES: u16 = 64;
    let attached = world.attach_plain("ue1", Family::V4)?;
    ping_all(&attached)?;
    eventually("the gNB answers", || answered(world))?;
    let impostor = impostor(world)?;
    let to = SocketAddr::from((UPF_N3, echo_port(world)?));
    let answer = || {
        (1..=SEQUENCES)
            .try_for_each(|sequence| impostor.send_to(to, &gtpu::echo_response(sequence)))
    };
    let smf = world.smf(0)?;
    let reports = || -> Result<Vec<Answer>> { smf.requests(MsgType::NodeReportRequest) };
    world.ran_ns.ip("link set gnb1 down")?;
    eventually("the failure is told", || {
        answer()?;
        Ok(!reports()?.is_empty())
    })?;
    let told = peers(&reports()?[0], IeType::UserPlanePathFailureReport)?;
    ensure!(told == [GNBS[0]], "told of {told:?}");
    let dropped = || world.drops("wrong_interface");
    let at_first = dropped()?;
    ensure!(at_first > 0, "no answer was dropped");
    // As many again as there are sequence numbers: one of them would bring the path back.
    eventually("answers are dropped", || {
        answer()?;
        Ok(dropped()? - at_first >= 10 * u64::from(SEQUENCES))
    })?;
    let n = reports()?.len();
    ensure!(n == 1, "{n} reports of a path that is dead");
    world.ran_ns.ip("link set gnb1 up")?;
    eventually("the recovery is told", || Ok(reports()?.len() == 2))?;
    let told = peers(&reports()?[1], IeType::UserPlanePathRecoveryReport)?;
    ensure!(told == [GNBS[0]], "told of {told:?}");
    ping_all(&attached)?;
    Ok(format!(
        "failed and recovered beside {} answers from N6",
        dropped()?
    ))
}

/// Sequence numbers of the data network, which no SMF of the lab comes to.
const SEQUENCES_N4: u32 = 0x70_0000;

/// Requests that end, change or make sessions, in the name of the first SMF.
fn in_its_name(world: &World, attached: &Attached, plan: &SessionPlan) -> Result<Vec<Vec<u8>>> {
    let smf = world.smf(0)?;
    let restarted = SystemTime::now() + Duration::from_secs(3600);
    let recovery = RecoveryTimeStamp::new(restarted).to_ie();
    let (node_id, seid) = (smf.node_id().to_ie(), Some(attached.session.up_seid));
    let kinds = [
        (
            MsgType::SessionEstablishmentRequest,
            Some(0),
            smf.establishment(plan)?.ies,
        ),
        (MsgType::SessionDeletionRequest, seid, Vec::new()),
        (MsgType::HeartbeatRequest, None, vec![recovery.clone()]),
        (
            MsgType::AssociationReleaseRequest,
            None,
            vec![node_id.clone()],
        ),
        (
            MsgType::AssociationSetupRequest,
            None,
            vec![node_id, recovery],
        ),
    ];
    let sequences = SEQUENCES_N4..;
    let encoded = (kinds.iter().zip(sequences))
        .map(|((kind, seid, ies), sequence)| smf::encode(*kind, *seid, sequence, ies));
    Ok(encoded.collect())
}

fn associated_from_n6(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    ping_all(&attached)?;
    let (second, wanted) = (
        world.plan(Family::V4, Style::Open5gs),
        world.plan(Family::V4, Style::Open5gs),
    );
    impostor_of_smf(world)?;
    let before = world.pfcp_events("not_n4")?;
    let mut sent = 0;
    for (ours, upf) in [
        (IpAddr::from(ROUTER), IpAddr::from(UPF_N4)),
        (ROUTER_V6.into(), UPF_N4_V6.into()),
    ] {
        let node_id = NodeId::new_fqdn("smf.dn.example");
        let upf = SocketAddr::new(upf, smf::PORT);
        let stranger = Smf::start(&world.dn_ns, ours, node_id, SystemTime::now(), upf)?;
        stranger.attempts(1);
        ensure!(stranger.heartbeat().is_err(), "a heartbeat was answered");
        ensure!(stranger.associate().is_err(), "it has an association");
        ensure!(stranger.establish(&wanted).is_err(), "it has a session");
        sent += 3;
    }
    for (theirs, upf) in [
        (IpAddr::from(smf_address(0)), IpAddr::from(UPF_N4)),
        (smf_address_v6(0).into(), UPF_N4_V6.into()),
    ] {
        let socket = world.dn_ns.udp((theirs, smf::PORT))?;
        for datagram in in_its_name(world, &attached, &wanted)? {
            socket.send_to(&datagram, (upf, smf::PORT))?;
            sent += 1;
        }
    }
    eventually("all is dropped under its name", || {
        Ok(world.pfcp_events("not_n4")? - before == sent)
    })?;
    ensure!(world.sessions()? == 1, "sessions came or went");
    let peers = world.get("/api/v1/peers")?;
    ensure!(
        peers.as_array().map(Vec::len) == Some(1),
        "associations: {peers}"
    );
    let smf = world.smf(0)?;
    smf.heartbeat()?;
    let second = smf.establish(&second)?;
    smf.delete(&second)?;
    ping_all(&attached)?;
    Ok(format!("{sent} messages, none taken; the SMF is served"))
}

/// The data network has the addresses of the first SMF, too, and routes to N4; nobody filters sources.
fn impostor_of_smf(world: &World) -> Result<()> {
    for interface in ["all", "n6"] {
        let filter = format!("net/ipv4/conf/{interface}/rp_filter");
        world.upf_ns.sysctl(&filter, "0")?;
    }
    let (v4, v6) = (smf_address(0), smf_address_v6(0));
    world.dn_ns.ip(&format!(
        "addr add {v4}/32 dev lo\naddr add {v6}/128 dev lo nodad\n\
         route add {UPF_N4} via {UPF_N6}\nroute add {UPF_N4_V6} via {UPF_N6_V6}"
    ))
}

fn tunnels_on_n6(world: &mut World) -> Result<String> {
    let at_n3 = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &at_n3)?;
    // A gNB on N6.
    world
        .dn_ns
        .ip(&format!("route add {UPF_N3} via {UPF_N6}"))?;
    let gnb = Gnb::start(&world.dn_ns, &[ROUTER.into()], 0x3000_0001)?;
    world.gnbs.push(gnb);
    let plan = world.plan(Family::V4, Style::Open5gs);
    let at_n6 = world.attach("ue2", &plan, 0, world.gnbs.len() - 1)?;
    both_ways(world, &at_n6)?;
    let (_, teid) = at_n6.session.uplink;
    for upf in [UPF_N3, UPF_N6] {
        let gnb = world.gnbs.last().context("gNBs")?;
        let uplink = gnb.uplink(upf, teid, Some(at_n6.session.plan.qfi));
        at_n6.ue.modem.set_uplink(Some(uplink));
        both_ways(world, &at_n6)?;
    }
    echoed(world.gnbs.last().context("gNBs")?, UPF_N6.into())?;
    world.upf_ns.ip(&format!(
        "addr del {UPF_N3}/24 dev n3\naddr add 10.3.0.2/24 dev n3\naddr add {UPF_N3}/32 dev lo"
    ))?;
    // Routes of the interface went with its first address, and are there again.
    eventually("packets pass", || Ok(ping_all(&at_n3).is_ok()))?;
    for attached in [&at_n3, &at_n6] {
        both_ways(world, attached)?;
    }
    expect_drops(world, "wrong_interface", 0, 0)?;
    Ok("to an address of N3 by both interfaces, to one of N6, and to one on loopback".to_owned())
}
