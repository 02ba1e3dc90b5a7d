//! FARs with DUPL under real traffic: gNB 2 stands for whoever gets the duplicates.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::capture::{Capture, count, without_defects};
use super::sessions::ping_all;
use super::{Scenario, both_ways, eventually, flow_down, flow_up, none_of};
use crate::flow::{Ledger, Shape};
use crate::gnb::Downlink;
use crate::gtpu::Container;
use crate::netns::link_drops;
use crate::smf::{Style, TunnelEnd, duplicate_to, set_apply_action};
use crate::traffic::start_download;
use crate::wait::NEVER;
use crate::world::{Attached, Family, GNBS_V6, OverN3, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "duplicates",
            "FARs with DUPL: every packet of a UE arrives twice, over IPv4 and IPv6, also what is dropped",
            duplicates,
        )
        .over(OverN3::Both)
        .long(),
    ]
}

type Got = (IpAddr, Vec<u8>);

/// Hands on what comes down a tunnel.
struct Inbox(Mutex<Sender<Got>>);

impl Downlink for Inbox {
    fn deliver(&self, gnb: IpAddr, _: u32, container: Option<Container>, packet: &[u8]) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if container.is_none() {
            let _ = sender.send((gnb, packet.to_vec()));
        }
    }
}

/// A tunnel to gNB 2, which may have one address of it only.
fn sink(world: &World, address: Option<IpAddr>) -> (TunnelEnd, Receiver<Got>) {
    let (sender, receiver) = channel();
    let gnb = &world.gnbs[1];
    let teid = gnb.open(Arc::new(Inbox(Mutex::new(sender))));
    let all = gnb.addresses();
    let end = TunnelEnd::with(
        all.filter(|at| address.is_none_or(|wanted| wanted == *at)),
        teid,
    );
    (end, receiver)
}

/// The packets of a flow among the duplicates, all of them.
fn ledger(receiver: &Receiver<Got>, sent: u32) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let (mut length, mut patience) = (0, NEVER);
    while let Ok((_, packet)) = receiver.recv_timeout(patience) {
        // IPv4 and UDP.
        if packet[0] >> 4 == 4 && packet[9] == 17 {
            ledger.note(&packet[28..]);
            length += 1;
        }
        if length == sent {
            // Time for packets that come twice.
            patience = Duration::from_millis(50);
        }
    }
    ensure!(length == sent, "{length} duplicates of {sent} packets");
    Ok(ledger)
}

fn duplicates(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    ping_all(&attached)?;
    let n3 = Capture::start(world, &world.ran_ns, "upf", "n3.pcapng")?;
    let (up4, up4_got) = sink(world, None);
    let (up6, up6_got) = sink(world, Some(GNBS_V6[1].into()));
    let (down, down_got) = sink(world, None);
    let smf = world.smf(0)?;
    // FAR 1 is the uplink of every session of the lab, FAR 2 its downlink.
    let both = duplicate_to(1, &[up4, up6], Some([0xb8, 0xfc]));
    smf.modify(&attached.session, &[both])?;
    smf.modify(&attached.session, &[duplicate_to(2, &[down], None)])?;
    let sent = flow_each_way(world, &attached)?;
    for (name, got, sent) in [
        ("uplink over IPv4", &up4_got, sent[0]),
        ("uplink over IPv6", &up6_got, sent[0]),
        ("downlink", &down_got, sent[1]),
    ] {
        let copies = ledger(got, sent).context(name)?;
        copies.close(sent).whole(name)?;
    }
    let dropped = dropped_but_duplicated(world, &attached, &up4_got)?;
    smf.modify(
        &attached.session,
        &[set_apply_action(1, 2), set_apply_action(2, 2)],
    )?;
    world.drain(1)?;
    while up4_got.try_recv().is_ok() || down_got.try_recv().is_ok() {}
    both_ways(world, &attached)?;
    world.drain(1)?;
    ensure!(
        up4_got.try_recv().is_err() && down_got.try_recv().is_err(),
        "duplicates came after DUPL was gone"
    );
    // Before TCP: to who reads the capture, a segment and its late duplicate are of one stream, and overlap.
    let n3 = n3.stop()?;
    in_bulk(world, &attached)?;
    let totals = without_defects(&[("N3", &n3)])?;
    let ef = "gtp && (ip.dsfield.dscp == 46 || ipv6.tclass.dscp == 46)";
    let marked = count(&n3, ef)?;
    ensure!(
        marked as u32 == 2 * (sent[0] + dropped),
        "{marked} duplicates are marked"
    );
    Ok(format!(
        "{} up twice and {} down, {dropped} dropped but duplicated; {totals}",
        sent[0], sent[1]
    ))
}

fn flow_each_way(world: &World, attached: &Attached) -> Result<[u32; 2]> {
    let shape = Shape::lasting(500, 2);
    let flows = (
        flow_up(world, attached, shape)?,
        flow_down(world, attached, shape)?,
    );
    let (up, down) = (flows.0.finish()?, flows.1.finish()?);
    let sent = [up.sent, down.sent];
    up.whole("uplink")?;
    down.whole("downlink")?;
    Ok(sent)
}

/// DROP and DUPL: nothing goes on, and all of it arrives elsewhere. How many packets.
fn dropped_but_duplicated(world: &World, attached: &Attached, got: &Receiver<Got>) -> Result<u32> {
    let smf = world.smf(0)?;
    smf.modify(&attached.session, &[set_apply_action(1, 0x11)])?;
    let up = flow_up(world, attached, Shape::lasting(200, 1))?;
    let up = none_of(up, "uplink with DROP")?;
    let copies = ledger(got, up.sent)?;
    copies.close(up.sent).whole("what was dropped")?;
    Ok(up.sent)
}

/// Fates of duplicates: numbers since the UPF's start and the network's.
#[derive(Clone, Copy, Debug)]
struct Copies {
    /// Handed on to be sent; lost before, or when it was not their turn yet.
    made: u64,
    lost: u64,
    /// Of those handed on, refused by the kernel of the UPF.
    refused: u64,
    /// Lost by the queues, links and the socket between the UPF's kernel and the gNB: they were full. Other packets are among them.
    on_the_way: u64,
}

fn copies(world: &World) -> Result<Copies> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let metrics = upf.get_text(&world.upf_ns, "/metrics")?;
    let read = |event: &str| {
        let line = format!("turnpike_pfcp_events_total{{event=\"{event}\"}} ");
        let value = metrics.lines().find_map(|l| l.strip_prefix(&line));
        let value = value.and_then(|value| value.trim().parse().ok());
        value.with_context(|| format!("no metric of {event}"))
    };
    let gnb = &world.gnb_ns[1];
    let ends = [
        (&world.upf_ns, "n3"),
        (&world.ran_ns, "upf"),
        (&world.ran_ns, "gnb2"),
        (gnb, "n3"),
    ];
    // With DPDK they go by the port's TAP interface, whose queue says what it has no room for.
    let by_tap = world.drops("tap_full")? + world.drops("port_full")?;
    let on_the_way = gnb.socket_drops()? + link_drops(&ends)? + by_tap;
    Ok(Copies {
        made: read("duplicates")?,
        lost: read("duplicates_lost")?,
        refused: read("slow_path_failed")?,
        on_the_way,
    })
}

/// A download is not slower for it than its UE asks, and every duplicate is sent or counted as lost: by the UPF, or, once
/// it has left, by a queue of the network that was full.
fn in_bulk(world: &World, attached: &Attached) -> Result<()> {
    const SIZE: u64 = 20_000_000;
    let (end, got) = sink(world, None);
    let smf = world.smf(0)?;
    let before = copies(world)?;
    let packets = world.counted(attached)?[1].packets;
    smf.modify(&attached.session, &[duplicate_to(2, &[end], None)])?;
    let from = attached.address()?;
    let got_octets = start_download(&attached.ue.netns, from, SIZE, u64::MAX >> 1)?.finish()?;
    ensure!(got_octets == SIZE, "{got_octets} of {SIZE} octets");
    let packets = world.counted(attached)?[1].packets - packets;
    let (mut arrived, mut seen) = (0, String::new());
    eventually("every duplicate is accounted for", || {
        arrived += got.try_iter().count() as u64;
        let after = copies(world)?;
        let [made, lost, refused, on_the_way] = [
            after.made - before.made,
            after.lost - before.lost,
            after.refused - before.refused,
            after.on_the_way - before.on_the_way,
        ];
        seen = format!(
            "{packets} packets: {made} duplicates handed on, {lost} lost; {refused} refused by the UPF's kernel, \
             at most {on_the_way} lost on the way, {arrived} arrived"
        );
        ensure!(arrived + refused <= made, "more than were made: {seen}");
        Ok(made + lost >= packets && arrived + refused + on_the_way + lost >= packets)
    })
    .with_context(|| seen.clone())
}
