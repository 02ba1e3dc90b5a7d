//! Networks that carry the tunnels: IPv6, both families, and VLANs.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::{IeIterator, IeType};
use rs_pfcp::message::MsgType;

use super::capture::{
    Capture, count, counts, hop_limits, programs_talk, session_containers, without_defects,
};
use super::sessions::ping_all;
use super::{Scenario, eventually, flow_down, more_of};
use crate::dn;
use crate::flow::Shape;
use crate::gnb::Event;
use crate::gtpu;
use crate::packet;
use crate::smf::Style;
use crate::world::{Attached, Family, GNBS, GNBS_V6, OverN3, UPF_N3, UPF_N3_V6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "outer-ipv6",
            "GTP-U over IPv6: programs, handover, Echo, Error Indications both ways",
            outer_ipv6,
        )
        .over(OverN3::V6)
        .iperf(4)
        .long(),
        Scenario::new(
            "outer-both",
            "gNBs with an address of each family: packets go where there is a route",
            outer_both,
        )
        .over(OverN3::Both),
        Scenario::new(
            "vlan",
            "N3 and N6 are VLANs of their interfaces: programs, handover, Echo",
            vlan,
        )
        .vlan()
        .iperf(4)
        .long(),
    ]
}

/// A capture of what the UPF has on N3, and on N6.
fn captures(world: &World) -> Result<[Capture; 2]> {
    Ok([
        Capture::start(world, &world.ran_ns, "upf", "n3.pcapng")?,
        Capture::start(world, &world.dn_ns, "n6", "n6.pcapng")?,
    ])
}

fn echoes(world: &World, upf: IpAddr) -> Result<()> {
    for gnb in &world.gnbs {
        for _ in 0..10 {
            let sequence = gnb.echo(upf)?;
            // A UE that has left is an event of its own.
            let event = loop {
                match gnb.next_event() {
                    Some(Event::EndMarker { .. }) => {}
                    event => break event,
                }
            };
            match event {
                Some(Event::EchoResponse { sequence: answered }) if answered == sequence => {}
                other => bail!("Echo Request {sequence} was followed by {other:?}"),
            }
            // Within the default rate of answers.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Handed over under a download, again and again; nothing is lost.
fn handovers(world: &World, attached: &mut Attached) -> Result<()> {
    let flow = flow_down(world, attached, Shape::endless(2000))?;
    for to in [1, 0, 1] {
        more_of(&flow, 500)?;
        world.handover(attached, to)?;
    }
    more_of(&flow, 500)?;
    flow.stop();
    flow.finish()?.whole("downlink under handovers")?;
    for gnb in &world.gnbs {
        let unknown = gnb.counters().unknown_teid.load(Relaxed);
        ensure!(
            unknown == 0,
            "{unknown} packets came to {} late",
            gnb.address()
        );
    }
    Ok(())
}

fn outer_ipv6(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::Dual, Style::Open5gs);
    let mut attached = world.attach("ue1", &plan, 0, 0)?;
    let plan = world.plan(Family::V4, Style::Free5gc);
    let other = world.attach("ue2", &plan, 0, 1)?;
    let [n3, n6] = captures(world)?;
    programs_talk(world, &attached)?;
    ping_all(&other)?;
    handovers(world, &mut attached)?;
    echoes(world, UPF_N3_V6.into())?;
    stray_packet(world)?;
    lost_tunnel(world, &mut attached)?;
    let (n3, n6) = (n3.stop()?, n6.stop()?);
    let totals = without_defects(&[("N3", &n3), ("N6", &n6)])?;
    session_containers(&n3, UPF_N3_V6.into())?;
    hop_limits(&n6)?;
    let tunnelled = only_over_ipv6(&n3)?;
    Ok(format!("{totals}, {tunnelled} tunnelled, all over IPv6"))
}

/// RFC 8200 wants a checksum, and so do gNBs that were not told otherwise.
fn only_over_ipv6(n3: &Path) -> Result<usize> {
    let bare = format!("gtp && ipv6.src == {UPF_N3_V6} && udp.checksum == 0");
    let [over4, over6] = ["gtp && eth.type == 0x0800", "gtp && eth.type == 0x86dd"];
    let [over4, over6, bare] = counts(n3, &[over4, over6, &bare])?[..] else {
        bail!("three counts");
    };
    ensure!(
        over4 == 0 && bare == 0,
        "{over4} packets over IPv4, {bare} without a checksum"
    );
    Ok(over6)
}

/// A tunnel that the UPF does not have.
fn stray_packet(world: &World) -> Result<()> {
    const TEID: u32 = 0xdead_beef;
    let gnb = &world.gnbs[0];
    let stray = packet::udp4(([10, 60, 99, 99].into(), 1), (dn::SERVER_V4, 9), b"stray");
    (gnb.uplink(UPF_N3_V6, TEID, Some(9))).send(&stray, &mut Vec::new())?;
    let expected = Event::ErrorIndication {
        teid: TEID,
        address: UPF_N3_V6.into(),
    };
    let seen = gnb.next_event();
    ensure!(
        seen.as_ref() == Some(&expected),
        "instead of an Error Indication: {seen:?}"
    );
    Ok(())
}

/// A tunnel that the gNB does not have: the SMF is told its F-TEID, and mends it.
fn lost_tunnel(world: &World, attached: &mut Attached) -> Result<()> {
    let (gnb, teid) = (&world.gnbs[attached.gnb], attached.teid);
    gnb.close(teid);
    gnb.send_raw(UPF_N3_V6, &gtpu::error_indication(teid, gnb.address()))?;
    let smf = world.smf(0)?;
    // Usage is reported as well.
    let report = || -> Result<Option<Vec<u8>>> {
        let requests = smf.requests(MsgType::SessionReportRequest)?;
        let mut groups = requests
            .iter()
            .filter_map(|r| r.ie(IeType::ErrorIndicationReport).ok());
        Ok(groups.next().map(|group| group.payload.clone()))
    };
    eventually("the report", || Ok(report()?.is_some()))?;
    let group = report()?.context("it was there")?;
    let f_teid = IeIterator::new(&group).next().context("no F-TEID")??;
    // By hand (figure 8.2.3-1): flag V6, TEID, address.
    let mut expected = vec![2];
    expected.extend(teid.to_be_bytes());
    expected.extend(GNBS_V6[attached.gnb].octets());
    ensure!(f_teid.payload == expected, "told of {:x?}", f_teid.payload);
    let other = 1 - attached.gnb;
    world.handover(attached, other)?;
    ping_all(attached)
}

/// FARs with Outer Header Creation 0x0300.
fn outer_both(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::Dual, Style::Open5gs);
    let mut attached = world.attach("ue1", &plan, 0, 0)?;
    let end = attached.session.uplink_end.addresses;
    ensure!(
        (end.v4, end.v6) == (Some(UPF_N3), Some(UPF_N3_V6)),
        "the F-TEID has {end:?}"
    );
    let n3 = Capture::start(world, &world.ran_ns, "upf", "n3.pcapng")?;
    ping_all(&attached)?;
    // Up by the other address of the same tunnel.
    let (_, teid) = attached.session.uplink;
    let uplink = world.gnbs[0].uplink(UPF_N3_V6, teid, Some(9));
    attached.ue.modem.set_uplink(Some(uplink));
    ping_all(&attached)?;
    // The second gNB is not to be reached over IPv4.
    let unreachable = format!("route add unreachable {}/32", GNBS[1]);
    world.upf_ns.ip(&unreachable)?;
    std::thread::sleep(Duration::from_millis(500));
    world.handover(&mut attached, 1)?;
    ping_all(&attached)?;
    let n3 = n3.stop()?;
    let over4 = |to| format!("gtp.message == 255 && eth.type == 0x0800 && ip.dst == {to}");
    let over6 = |to| format!("gtp.message == 255 && eth.type == 0x86dd && ipv6.dst == {to}");
    let filters = [
        over4(GNBS[0]),
        over6(GNBS_V6[0]),
        over4(GNBS[1]),
        over6(GNBS_V6[1]),
        over6(UPF_N3_V6),
    ];
    let [first4, first6, second4, second6, up6] = counts(&n3, &filters)?[..] else {
        bail!("five counts");
    };
    let (to_first, to_second) = ([first4, first6], [second4, second6]);
    ensure!(
        to_first[0] >= 20 && to_first[1] == 0 && to_second[0] == 0 && to_second[1] >= 10,
        "over IPv4 and IPv6 to the first gNB {to_first:?}, to the second {to_second:?}"
    );
    ensure!(up6 >= 10, "{up6} packets came up over IPv6");
    Ok(format!(
        "{} packets down over IPv4, {} over IPv6",
        to_first[0], to_second[1]
    ))
}

fn vlan(world: &mut World) -> Result<String> {
    let mut attached = world.attach_plain("ue1", Family::Dual)?;
    let [n3, n6] = captures(world)?;
    programs_talk(world, &attached)?;
    handovers(world, &mut attached)?;
    echoes(world, UPF_N3.into())?;
    let (n3, n6) = (n3.stop()?, n6.stop()?);
    let totals = without_defects(&[("N3", &n3), ("N6", &n6)])?;
    session_containers(&n3, UPF_N3.into())?;
    hop_limits(&n6)?;
    for (file, id) in [(&n3, 30), (&n6, 60)] {
        let other = count(file, &format!("ip && !(vlan.id == {id})"))?;
        ensure!(other == 0, "{other} packets outside of VLAN {id}");
    }
    Ok(format!("{totals}, all of them tagged"))
}
