//! From tunnel to tunnel: a second UPF on N9, an uplink classifier, handover with End Markers and
//! indirect forwarding, and the SMF as router of IPv6 sessions.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::destination_interface::Interface;
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::source_interface::SourceInterfaceValue;
use rs_pfcp::ie::three_gpp_interface_type::ThreeGppInterfaceType;
use rs_pfcp::ie::ue_ip_address::UeIpAddress;

use super::capture::{Capture, counts, without_defects};
use super::sessions::ping_all;
use super::{Scenario, flow_down, more_of};
use crate::dn;
use crate::flow::Shape;
use crate::gnb::{Downlink, Event};
use crate::gtpu::{self, Container, message};
use crate::netns::{End, Netns, cable, link_drops, take_redirected};
use crate::packet::checksum;
use crate::ping::ping;
use crate::smf::{
    self, RuleSession, Smf, Style, TunnelPdr, far_to_network, far_to_tunnel, switch_to_n9,
    switch_with_end_marker,
};
use crate::traffic::start_download;
use crate::ue::Addresses;
use crate::upf::{self, Settings, Upf};
use crate::wait::{NEVER, eventually};
use crate::world::{Attached, Family, GNBS, LINK_MTU, UPF_N9, World, n9_section};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "n9-relay",
            "gNB, I-UPF, PSA-UPF: ping and TCP through both",
            n9_relay,
        )
        .long(),
        Scenario::new(
            "separate-n9",
            "N3 and N9 on interfaces of their own: each tunnel has the address of its side",
            separate_n9,
        )
        .n9()
        .long(),
        Scenario::new(
            "uplink-classifier",
            "one flow leaves at the I-UPF, all others at the PSA-UPF",
            uplink_classifier,
        )
        .long(),
        Scenario::new(
            "end-marker",
            "a path switch under traffic: the old tunnel hears its end, after its last packet",
            end_marker,
        ),
        Scenario::new(
            "indirect-forwarding",
            "N2 handover: from the source gNB through the UPF to the target gNB, End Marker too",
            indirect_forwarding,
        ),
        Scenario::new(
            "cp-function-router-solicitation",
            "a router solicitation reaches the SMF, its advertisement the UE",
            router_solicitation,
        ),
    ]
}

/// The I-UPF on N3 and N9.
const SECOND_N3: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);
/// The I-UPF on N9, if that is a network of its own.
const SECOND_N9: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const SECOND_N4: Ipv4Addr = Ipv4Addr::new(10, 101, 0, 1);
const SECOND_SMF: Ipv4Addr = Ipv4Addr::new(10, 101, 0, 2);
pub(super) const SECOND_N6: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const SECOND_ROUTER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 254);
/// A server that the uplink classifier sends to by the I-UPF's own N6.
const NEAR_SERVER: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);

/// A second UPF beside the world's own, with N3, N4 and N6, and the SMF's other N4 address.
pub(super) struct Second {
    smf: Smf,
    upf: Upf,
    pub(super) netns: Netns,
}

impl Second {
    pub(super) fn set_mtu(&self, interface: &str, mtu: u32) -> Result<()> {
        self.upf.set_mtu(&self.netns, interface, mtu)
    }

    pub(super) fn start(world: &World) -> Result<Self> {
        let netns = Netns::create(world.prefix(), "iupf")?;
        upf::prepare(&netns)?;
        let end = |netns, name| End { netns, name };
        cable(end(&netns, "n3"), end(&world.ran_ns, "iupf"), LINK_MTU)?;
        upf::give_face(end(&netns, "n3"))?;
        cable(end(&netns, "n4"), end(&world.smf_ns, "n4b"), LINK_MTU)?;
        cable(end(&netns, "n6"), end(&world.dn_ns, "n6b"), LINK_MTU)?;
        upf::give_face(end(&netns, "n6"))?;
        world.ran_ns.ip("link set iupf master br0")?;
        world
            .smf_ns
            .ip(&format!("addr add {SECOND_SMF}/24 dev n4b"))?;
        world.dn_ns.ip(&format!(
            "addr add {SECOND_ROUTER}/24 dev n6b\naddr add {NEAR_SERVER}/32 dev lo"
        ))?;
        netns.ip(&format!(
            "addr add {SECOND_N3}/24 dev n3\naddr add {SECOND_N4}/24 dev n4\n\
             addr add {SECOND_N6}/24 dev n6\nroute add default via {SECOND_ROUTER}"
        ))?;
        take_redirected(end(&world.ran_ns, "iupf"))?;
        take_redirected(end(&world.dn_ns, "n6b"))?;
        if let Some(between) = &world.n9_ns {
            cable(end(&netns, "n9"), end(between, "iupf"), LINK_MTU)?;
            upf::give_face(end(&netns, "n9"))?;
            take_redirected(end(between, "iupf"))?;
            between.ip("link set iupf master br0")?;
            netns.ip(&format!("addr add {SECOND_N9}/24 dev n9"))?;
        }
        let settings = Settings {
            n4: SECOND_N4,
            n4_also: None,
            n3: Addresses {
                v4: Some(SECOND_N3),
                v6: None,
            },
            n6: None,
            smfs: Vec::new(),
            pools: vec!["10.62.0.0/16".to_owned()],
            heartbeat_s: 10,
            retention_s: 3600,
            sessions: 1024,
            sections: match world.n9_ns {
                Some(_) => n9_section(SECOND_N9),
                None => String::new(),
            },
            lines: Vec::new(),
        };
        let folder = world.folder.join("iupf");
        std::fs::create_dir_all(&folder)?;
        let smf = Smf::start(
            &world.smf_ns,
            SECOND_SMF.into(),
            NodeId::new_ipv4(SECOND_SMF),
            SystemTime::now(),
            (SECOND_N4, smf::PORT).into(),
        )?;
        let upf = Upf::start(&netns, &settings, &folder)?;
        smf.associate().context("association with the I-UPF")?;
        Ok(Self { smf, upf, netns })
    }
}

fn access(id: u16, far: u32) -> TunnelPdr<'static> {
    TunnelPdr {
        id,
        precedence: 255,
        source: SourceInterfaceValue::Access,
        kind: None,
        choose: 1,
        ue: None,
        filter: None,
        far,
        qer: None,
    }
}

fn core(id: u16, far: u32) -> TunnelPdr<'static> {
    TunnelPdr {
        source: SourceInterfaceValue::Core,
        choose: 2,
        ..access(id, far)
    }
}

fn ue_at(attached: &Attached, destination: bool) -> UeIpAddress {
    let addresses = attached.session.addresses;
    let mut address = UeIpAddress::new(addresses.v4, addresses.v6);
    address.source_destination = destination;
    address
}

/// An attached UE whose packets then take the way by way of the I-UPF; `extra` rules are added to
/// those that relay.
pub(super) fn by_way_of(
    world: &mut World,
    second: &Second,
    extra: Vec<rs_pfcp::ie::Ie>,
) -> Result<(Attached, RuleSession)> {
    let plan = world.plan(Family::Dual, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let gnb = &world.gnbs[attached.gnb];
    let anchor = tunnel_to_anchor(world, &attached)?;
    let up = TunnelPdr {
        ue: Some(ue_at(&attached, false)),
        ..access(1, 1)
    };
    let down = TunnelPdr {
        ue: Some(ue_at(&attached, true)),
        ..core(2, 2)
    };
    let mut rules = vec![
        up.create(),
        down.create(),
        far_to_tunnel(1, Interface::Core, anchor),
        far_to_tunnel(2, Interface::Access, (gnb.address(), attached.teid)),
    ];
    rules.extend(extra);
    let relay = second.smf.establish_rules(rules).context("at the I-UPF")?;
    let (n9, down_teid) = relay.tunnel(2)?;
    // FAR 2 is the downlink of every session of the lab.
    let down = switch_to_n9(2, (n9, down_teid));
    world.smf(0)?.modify(&attached.session, &[down])?;
    let (n3, up_teid) = relay.tunnel(1)?;
    let expected = match world.n9_ns {
        Some(_) => SECOND_N9,
        None => SECOND_N3,
    };
    ensure!(
        (n3, n9) == (SECOND_N3.into(), expected.into()),
        "F-TEIDs of the I-UPF at {n3} and {n9}"
    );
    let qfi = attached.session.plan.qfi;
    attached
        .ue
        .modem
        .set_uplink(Some(gnb.uplink(n3, up_teid, Some(qfi))));
    Ok((attached, relay))
}

/// Tunnel that the I-UPF sends into: the one of the gNBs, or one on N9, if that is apart.
fn tunnel_to_anchor(world: &World, attached: &Attached) -> Result<(IpAddr, u32)> {
    if world.n9_ns.is_none() {
        return Ok(attached.session.uplink);
    }
    let by_n9 = TunnelPdr {
        kind: Some(ThreeGppInterfaceType::N9),
        ue: Some(ue_at(attached, false)),
        choose: 9,
        ..access(50, 1)
    };
    let smf = world.smf(0)?;
    let anchor = smf.add_rules(&attached.session, &[by_n9.create()])?;
    let (address, teid) = anchor.tunnel(50)?;
    ensure!(
        address == UPF_N9,
        "the anchor's F-TEID on N9 is at {address}"
    );
    Ok((address, teid))
}

fn separate_n9(world: &mut World) -> Result<String> {
    let mut second = Second::start(world)?;
    let between = world.n9_ns.as_ref().context("no N9")?;
    let n9 = Capture::start(world, between, "upf", "n9.pcapng")?;
    let n3 = Capture::start(world, &world.ran_ns, "iupf", "n3.pcapng")?;
    let seen = through_both(world, &mut second, 4_000_000)?;
    let totals = (n3.stop()?, n9.stop()?);
    let frames = without_defects(&[("N3", &totals.0), ("N9", &totals.1)])?;
    let gnb = GNBS[0];
    for (file, name, (one, other)) in [
        (&totals.0, "N3", (gnb, SECOND_N3)),
        (&totals.1, "N9", (SECOND_N9, UPF_N9)),
    ] {
        let tunnelled = "gtp.message == 255 && eth.type == 0x0800";
        let between = |from, to| format!("{tunnelled} && ip.src == {from} && ip.dst == {to}");
        let filters = [
            between(one, other),
            between(other, one),
            tunnelled.to_owned(),
        ];
        let [up, down, all] = counts(file, &filters)?[..] else {
            bail!("three counts");
        };
        ensure!(
            up > 200 && down > 1000 && up + down == all,
            "on {name} {up} packets up and {down} down of {all}"
        );
    }
    Ok(format!(
        "{seen}; {frames}, each between the addresses of its side"
    ))
}

fn n9_relay(world: &mut World) -> Result<String> {
    let mut second = Second::start(world)?;
    through_both(world, &mut second, 20_000_000)
}

/// Pings, and a download of `size` octets to each address of a UE.
fn through_both(world: &mut World, second: &mut Second, size: u64) -> Result<String> {
    let (attached, _) = by_way_of(world, second, Vec::new())?;
    ping_all(&attached)?;
    let pinged = ping(&attached.ue.netns, dn::SERVER_V4.into(), 100, 5)?.whole()?;
    for address in attached.session.addresses.all() {
        let got = start_download(&attached.ue.netns, address, size, u64::MAX >> 1)?.finish()?;
        ensure!(got == size, "{got} of {size} octets over {address}");
    }
    let counted = all_from_one_to_the_other(world, second, attached.address()?)?;
    second.upf.alive()?;
    Ok(format!(
        "{} pings, 2 x {size} octets, {} and {} packets at each UPF",
        pinged.received, counted[0], counted[1]
    ))
}

/// Packets that one UPF has sent the other has seen, but for those that the links between have lost because a queue was full.
/// How many went up and down.
fn all_from_one_to_the_other(world: &World, second: &Second, ue: IpAddr) -> Result<[u64; 2]> {
    let (between, link) = match &world.n9_ns {
        Some(netns) => (netns, "n9"),
        None => (&world.ran_ns, "n3"),
    };
    let ends = [
        (&second.netns, link),
        (between, "iupf"),
        (between, "upf"),
        (&world.upf_ns, link),
    ];
    let psa = world.upf.as_ref().context("the UPF is down")?;
    let (mut sent, mut seen) = ([0; 2], String::new());
    eventually("all packets are accounted for", || {
        let at_psa = psa.counted(&world.upf_ns, ue)?;
        let at_iupf = second.upf.counted(&second.netns, ue)?;
        let lost = link_drops(&ends)?;
        sent = [at_iupf[0].packets, at_psa[1].packets];
        let arrived = [at_psa[0].packets, at_iupf[1].packets];
        seen = format!("PSA-UPF {at_psa:?}, I-UPF {at_iupf:?}, at most {lost} lost between them");
        // The UPF that sends is asked after the one that receives on the way up, before it on the way down.
        ensure!(arrived[0] <= sent[0], "more than were sent: {seen}");
        let drops = at_psa.iter().chain(&at_iupf).any(|way| way.drops > 0);
        ensure!(!drops, "a UPF dropped packets: {seen}");
        Ok(arrived[0] + arrived[1] + lost >= sent[0] + sent[1])
    })
    .with_context(|| seen.clone())?;
    ensure!(sent.iter().all(|&packets| packets > 200), "too few: {seen}");
    Ok(sent)
}

fn uplink_classifier(world: &mut World) -> Result<String> {
    const NEAR: u32 = 40;
    const FAR: u32 = 60;
    let second = Second::start(world)?;
    let filter = format!("permit out ip from {NEAR_SERVER}/32 to assigned");
    let breakout = TunnelPdr {
        precedence: 10,
        filter: Some(&filter),
        ..access(3, 3)
    };
    let rules = vec![breakout.create(), far_to_network(3, "internet")];
    let (attached, _) = by_way_of(world, &second, rules)?;
    let before = [
        world.counted(&attached)?[0],
        second.upf.counted(&second.netns, attached.address()?)?[0],
    ];
    ping(&attached.ue.netns, NEAR_SERVER.into(), NEAR, 5)?
        .whole()
        .context("to the server near the I-UPF")?;
    ping(&attached.ue.netns, dn::SERVER_V4.into(), FAR, 5)?
        .whole()
        .context("to the server behind the PSA-UPF")?;
    let after = [
        world.counted(&attached)?[0],
        second.upf.counted(&second.netns, attached.address()?)?[0],
    ];
    let seen = [0, 1].map(|upf| after[upf].packets - before[upf].packets);
    ensure!(
        seen == [u64::from(FAR), u64::from(NEAR + FAR)],
        "uplink packets at PSA-UPF and I-UPF: {seen:?}, sent {FAR} far and {NEAR} near"
    );
    Ok(format!(
        "{NEAR} packets left at the I-UPF, {FAR} at the PSA-UPF"
    ))
}

fn end_marker(world: &mut World) -> Result<String> {
    let mut attached = world.attach_plain("ue1", Family::V4)?;
    let flow = flow_down(world, &attached, Shape::endless(2000))?;
    let mut switches = 0;
    for to in [1, 0, 1, 0, 1] {
        more_of(&flow, 500)?;
        let (from, old) = (attached.gnb, attached.teid);
        attached.teid = world.gnbs[to].open(Arc::clone(&attached.ue.modem) as Arc<dyn Downlink>);
        attached.gnb = to;
        let target = (world.gnbs[to].address(), attached.teid);
        // FAR 2 is the downlink of every session of the lab.
        world
            .smf(0)?
            .modify(&attached.session, &[switch_with_end_marker(2, target)])?;
        match world.gnbs[from].next_event() {
            Some(Event::EndMarker { teid }) if teid == old => {}
            other => bail!("gNB {from} saw {other:?} instead of the End Marker of {old:#x}"),
        }
        // A packet that came now would have no tunnel.
        world.gnbs[from].close(old);
        ensure!(
            world.gnbs[from].event(Duration::from_millis(100)).is_none(),
            "more than one End Marker"
        );
        switches += 1;
    }
    more_of(&flow, 500)?;
    flow.stop();
    flow.finish()?.whole("downlink under path switches")?;
    for gnb in &world.gnbs {
        let late = gnb.counters().unknown_teid.load(Relaxed);
        ensure!(
            late == 0,
            "{late} packets came to {} behind the End Marker",
            gnb.address()
        );
    }
    Ok(format!("{switches} switches, one End Marker each"))
}

/// A packet that came down a tunnel.
type Delivered = (Option<Container>, Vec<u8>);

/// Hands on what comes down a tunnel.
struct Inbox(Mutex<Sender<Delivered>>);

impl Inbox {
    fn open() -> (Arc<dyn Downlink>, Receiver<Delivered>) {
        let (sender, receiver) = channel();
        (Arc::new(Self(Mutex::new(sender))), receiver)
    }
}

impl Downlink for Inbox {
    fn deliver(&self, _: IpAddr, _: u32, container: Option<Container>, packet: &[u8]) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sender.send((container, packet.to_vec()));
    }
}

fn indirect_forwarding(world: &mut World) -> Result<String> {
    const PACKETS: u32 = 200;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let (inbox, delivered) = Inbox::open();
    let at_target = world.gnbs[1].open(inbox);
    // TS 23.502, 4.9.1.3.2: a tunnel at the UPF for what the source gNB has and the target needs.
    let rules = [
        access(30, 30).create(),
        far_to_tunnel(30, Interface::Access, (world.gnbs[1].address(), at_target)),
    ];
    let relay = world.smf(0)?.add_rules(&attached.session, &rules)?;
    let (upf, teid) = relay.tunnel(30)?;
    // Downlink packets as the source gNB got them.
    let container = Container {
        pdu_type: 0,
        qfi: 9,
    };
    let mut datagram = Vec::new();
    for number in 0..PACKETS {
        let (server, ue) = (
            dn::SERVER_V4,
            attached.session.addresses.v4.context("IPv4")?,
        );
        let packet = crate::packet::udp4((server, 1), (ue, 9), &number.to_be_bytes());
        datagram.clear();
        gtpu::g_pdu(&mut datagram, teid, Some(container), &packet);
        world.gnbs[0].send_raw(upf, &datagram)?;
        let (seen, got) = delivered
            .recv_timeout(NEVER)
            .with_context(|| format!("packet {number} did not reach the target gNB"))?;
        ensure!(
            seen == Some(container) && got == packet,
            "packet {number} arrived changed, with {seen:?}"
        );
    }
    datagram.clear();
    gtpu::write(&mut datagram, message::END_MARKER, teid, None, None, &[]);
    world.gnbs[0].send_raw(upf, &datagram)?;
    match world.gnbs[1].next_event() {
        Some(Event::EndMarker { teid }) if teid == at_target => {}
        other => bail!("the target gNB saw {other:?} instead of the End Marker"),
    }
    ping_all(&attached)?;
    Ok(format!("{PACKETS} packets and an End Marker"))
}

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;

/// A neighbour discovery message with its checksum (RFC 4861, 4; RFC 8200, 8.1).
fn discovery(source: Ipv6Addr, to: Ipv6Addr, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut icmp = vec![kind, 0, 0, 0];
    icmp.extend(body);
    let mut pseudo = [source.octets(), to.octets()].concat();
    pseudo.extend((icmp.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, 58]);
    pseudo.extend(&icmp);
    let sum = checksum(&pseudo);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0, 0, icmp.len() as u8, 58, 255];
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet.extend(icmp);
    packet
}

/// Open5GS's rules for IPv6 sessions. The SMF's end of the tunnels is gNB 2's socket.
fn router_solicitation(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V6, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let (inbox, solicited) = Inbox::open();
    let at_smf = world.gnbs[1].open(inbox);
    let to_smf = TunnelPdr {
        precedence: 1,
        ue: Some(ue_at(&attached, false)),
        filter: Some("permit out 58 from ff02::2/128 to assigned"),
        choose: 7,
        ..access(40, 40)
    };
    let default = TunnelPdr {
        precedence: 1000,
        ue: Some(ue_at(&attached, false)),
        choose: 7,
        ..access(41, 1)
    };
    let from_smf = TunnelPdr {
        source: SourceInterfaceValue::CpFunction,
        choose: 8,
        // Marks with the QFI: gNBs drop what has none.
        qer: Some(1),
        ..access(42, 2)
    };
    let rules = [
        to_smf.create(),
        default.create(),
        from_smf.create(),
        far_to_tunnel(40, Interface::CpFunction, (world.gnbs[1].address(), at_smf)),
    ];
    let relay = world.smf(0)?.add_rules(&attached.session, &rules)?;
    let (upf, up_teid) = relay.tunnel(40)?;
    let gnb = &world.gnbs[0];
    let uplink = gnb.uplink(upf, up_teid, Some(9));
    attached.ue.modem.set_uplink(Some(uplink.clone()));

    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    for source in [link_local, Ipv6Addr::UNSPECIFIED] {
        let solicitation = discovery(source, ALL_ROUTERS, ROUTER_SOLICITATION, &[0; 4]);
        uplink.send(&solicitation, &mut Vec::new())?;
        let (container, got) = solicited
            .recv_timeout(NEVER)
            .with_context(|| format!("a solicitation from {source} did not reach the SMF"))?;
        ensure!(
            got == solicitation && container.is_none(),
            "the SMF got another packet, or one with {container:?}"
        );
    }
    let heard = hear_advertisement(world, &attached, upf, relay.tunnel(42)?.1)?;
    // Users' packets go the other way, and foreign ones no way at all.
    ping_all(&attached)?;
    ensure!(solicited.try_recv().is_err(), "a ping went to the SMF");
    Ok(format!(
        "2 solicitations up, an advertisement down with QFI {heard}"
    ))
}

/// The SMF answers through its tunnel, without a container; the gNB must get one. Its QFI.
fn hear_advertisement(world: &World, attached: &Attached, upf: IpAddr, teid: u32) -> Result<u8> {
    let (inbox, advertised) = Inbox::open();
    let at_gnb = world.gnbs[0].open(inbox);
    let smf = world.smf(0)?;
    smf.connect(&attached.session, world.gnbs[0].address(), at_gnb)?;
    let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let advertisement = discovery(router, ALL_NODES, ROUTER_ADVERTISEMENT, &[0; 12]);
    let mut datagram = Vec::new();
    gtpu::g_pdu(&mut datagram, teid, None, &advertisement);
    world.gnbs[1].send_raw(upf, &datagram)?;
    let (container, got) = advertised
        .recv_timeout(NEVER)
        .context("the advertisement did not reach the gNB")?;
    ensure!(got == advertisement, "the gNB got another packet");
    smf.connect(&attached.session, world.gnbs[0].address(), attached.teid)?;
    match container {
        Some(Container { pdu_type: 0, qfi }) => Ok(qfi),
        other => bail!("the advertisement came with {other:?}"),
    }
}
