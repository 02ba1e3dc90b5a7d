//! Sessions as SMFs make and change them.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::Ie;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::message::MsgType;

use super::{Scenario, both_ways, eventually, expect_drops, flow_down, flow_up, more_of, none_of};
use crate::dn;
use crate::flow::Shape;
use crate::ping::{ping, unanswered};
use crate::smf::{self, Answer, Refused, Requested, Style};
use crate::wait::NEVER;
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "attach",
            "UEs of each family and SMF style ping both ways",
            attach,
        )
        .long(),
        Scenario::new(
            "shares-of-two-smfs",
            "one SMF takes all that it may, the other one still has its share",
            shares_of_two_smfs,
        )
        .smfs(2)
        .line("[limits]", "sessions = 32")
        .line("[limits]", "shares = 4"),
        Scenario::new(
            "forwarded-before-the-tunnel",
            "a session whose downlink is forwarded before the gNB's tunnel is known",
            forwarded_before_the_tunnel,
        ),
        Scenario::new(
            "addresses-from-upf",
            "the UPF gives out UE addresses",
            addresses_from_upf,
        ),
        Scenario::new(
            "traffic-endpoints",
            "PDRs whose tunnel and addresses stand in Traffic Endpoints follow them",
            traffic_endpoints,
        ),
        Scenario::new(
            "association-from-upf",
            "the UPF calls its SMFs",
            association_from_upf,
        )
        .smfs(2)
        .upf_calls(),
        Scenario::new(
            "idle-and-back",
            "BUFF stops downlink, FORW resumes it",
            idle_and_back,
        ),
        Scenario::new(
            "handover",
            "path switches lose and double nothing",
            handover,
        ),
        Scenario::new("detach", "a deleted session carries nothing", detach),
        Scenario::new("counters", "each packet and byte is counted once", counters),
        Scenario::new(
            "several-smfs",
            "SMFs do not touch each other's sessions",
            several_smfs,
        )
        .smfs(3),
        Scenario::new(
            "ies-in-any-order",
            "rules before what names them",
            ies_in_any_order,
        ),
        Scenario::new(
            "large-establishment",
            "a request of many fragments is read to its end",
            large_establishment,
        ),
        Scenario::new(
            "retransmitted-establishment",
            "a repeated request gets the same answer and one session",
            retransmitted_establishment,
        ),
    ]
}

/// Pings a server from every address of the UE.
pub(super) fn ping_all(attached: &Attached) -> Result<()> {
    for address in attached.session.addresses.all() {
        let server = dn::server_for(address);
        let pinged = ping(&attached.ue.netns, server, 5, 20)?.whole();
        pinged.with_context(|| format!("{} to {server}", attached.ue.name()))?;
    }
    Ok(())
}

/// As free5GC establishes each session.
/// Of 32 sessions each SMF is sure of 4.
fn shares_of_two_smfs(world: &mut World) -> Result<String> {
    let fill = |world: &mut World, smf: usize| {
        let mut established = 0;
        loop {
            let plan = world.plan(Family::V4, Style::Open5gs);
            match world.smf(smf)?.establish(&plan) {
                Ok(_) => established += 1,
                Err(refused) => {
                    let refused = refused.downcast_ref::<Refused>();
                    let cause = refused.context("no answer")?.cause;
                    ensure!(cause == CauseValue::NoResourcesAvailable, "{cause:?}");
                    return Ok::<_, anyhow::Error>(established);
                }
            }
            ensure!(established <= 32, "more than there may be");
        }
    };
    let first = fill(world, 0)?;
    ensure!(first == 28, "the first SMF has {first} of 28");
    let plan = world.plan(Family::V4, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 1, 0)?;
    ping_all(&attached)?;
    let second = fill(world, 1)?;
    ensure!(second == 3, "the second SMF has {second} more of 3");
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let smfs = upf.get(&world.upf_ns, "/api/v1/smfs")?;
    for (at, held) in [(0, 28), (1, 4)] {
        let part = &smfs[at]["parts"][0];
        ensure!(
            part["of"] == "sessions" && part["held"] == held && part["share"] == 4,
            "shown: {part}"
        );
    }
    Ok("28 sessions of one SMF, then 4 of the other, one of which pings".to_owned())
}

fn forwarded_before_the_tunnel(world: &mut World) -> Result<String> {
    const EARLY: u32 = 5;
    let plan = world.plan(Family::V4, Style::Free5gc);
    let attached = world.register("ue1", &plan, 0, 0)?;
    let ue = attached.session.addresses.v4.context("no IPv4 address")?;
    unanswered(&world.dn_ns, ue.into(), EARLY)?;
    expect_drops(world, "no_tunnel", 0, u64::from(EARLY))?;
    world.activate(&attached)?;
    both_ways(world, &attached)?;
    expect_drops(world, "no_tunnel", 0, u64::from(EARLY))?;
    Ok(format!("{EARLY} packets came too early, then all passed"))
}

fn attach(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for style in world.styles() {
        for family in [Family::V4, Family::V6, Family::Dual] {
            let plan = world.plan(family, style);
            let name = format!("ue{}", attached.len() + 1);
            let ue = world.attach(&name, &plan, 0, attached.len() % 2);
            attached.push(ue.with_context(|| format!("{style:?} {family:?}"))?);
        }
    }
    for ue in &attached {
        ping_all(ue).with_context(|| format!("{:?}", ue.session.plan.style))?;
        both_ways(world, ue).with_context(|| ue.ue.name().to_owned())?;
    }
    let (sessions, expected) = (world.sessions()?, attached.len());
    ensure!(
        sessions == expected as u64,
        "{sessions} sessions instead of {expected}"
    );
    for gnb in &world.gnbs {
        let unknown = gnb.counters().unknown_teid.load(Relaxed);
        ensure!(
            unknown == 0,
            "{} got {unknown} packets for unknown tunnels",
            gnb.address()
        );
    }
    Ok(format!(
        "{expected} UEs: IPv4, IPv6 and dual stack of each SMF style"
    ))
}

fn addresses_from_upf(world: &mut World) -> Result<String> {
    let mut seen = Vec::new();
    for (index, (v4, v6)) in [(true, false), (false, true), (true, true)]
        .into_iter()
        .enumerate()
    {
        let mut plan = world.plan(Family::V4, Style::Open5gs);
        plan.addresses = Requested::Choose { v4, v6 };
        let attached = world.attach(&format!("ue{index}"), &plan, 0, 0)?;
        ping_all(&attached)?;
        seen.extend(
            attached
                .session
                .addresses
                .all()
                .iter()
                .map(ToString::to_string),
        );
    }
    Ok(format!("gave {}", seen.join(", ")))
}

fn traffic_endpoints(world: &mut World) -> Result<String> {
    for (index, addresses) in [None, Some(Requested::Choose { v4: true, v6: true })]
        .into_iter()
        .enumerate()
    {
        let mut plan = world.plan(Family::Dual, Style::Open5gs);
        plan.endpoints = true;
        plan.addresses = addresses.unwrap_or(plan.addresses);
        let mut attached = world.attach(&format!("ue{index}"), &plan, 0, 0)?;
        ping_all(&attached)?;
        both_ways(world, &attached)?;
        world.handover(&mut attached, 1)?;
        both_ways(world, &attached)?;
        world.detach(&attached)?;
    }
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.endpoints = true;
    let mut attached = world.attach("ue", &plan, 0, 0)?;
    ping_all(&attached)?;
    let moved = Ipv4Addr::new(10, 60, 77, 7);
    let former = attached.session.addresses;
    world
        .smf(0)?
        .modify(&attached.session, &smf::update_endpoints(moved))?;
    let before = world.drops("ue_spoofed")?;
    unanswered(&attached.ue.netns, dn::SERVER_V4.into(), 3)
        .with_context(|| format!("{former:?} after the update"))?;
    expect_drops(world, "ue_spoofed", before, 3)?;
    attached.session.addresses.v4 = Some(moved);
    attached.ue.configure(attached.session.addresses)?;
    ping_all(&attached)?;
    both_ways(world, &attached)?;
    world.detach(&attached)?;
    ensure!(world.sessions()? == 0, "sessions are left");
    Ok("given and chosen addresses, a handover, and an update that moves the UE".to_owned())
}

fn association_from_upf(world: &mut World) -> Result<String> {
    // The associations are there once the world is built; the heartbeats come by themselves.
    let attached = world.attach_plain("ue1", Family::Dual)?;
    ping_all(&attached)?;
    let before = world.smf(1)?.heartbeat()?;
    let answered = heartbeats_answered(world)?;
    eventually("heartbeats of the UPF are answered", || {
        Ok(heartbeats_answered(world)? >= answered + 4)
    })?;
    ensure!(
        before == world.smf(1)?.heartbeat()?,
        "the Recovery Time Stamp changed"
    );
    ping_all(&attached)?;
    Ok("two SMFs were called and answered".to_owned())
}

/// Heartbeat Responses that the UPF has got.
fn heartbeats_answered(world: &World) -> Result<u64> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let metrics = upf.get_text(&world.upf_ns, "/metrics")?;
    let is_of_them = |line: &&str| {
        line.starts_with("turnpike_pfcp_messages_total{")
            && line.contains("\"heartbeat_response\"")
            && line.contains("\"received\"")
    };
    let counts = metrics.lines().filter(is_of_them);
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(counts.sum())
}

fn idle_and_back(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;

    world.smf(0)?.idle(&attached.session)?;
    let idle = flow_down(world, &attached, Shape::lasting(200, 1))?;
    let idle = none_of(idle, "downlink while idle")?;

    world.activate(&attached)?;
    both_ways(world, &attached)?;
    Ok(format!("{} packets waited for the idle UE", idle.sent))
}

fn handover(world: &mut World) -> Result<String> {
    let mut attached = world.attach_plain("ue1", Family::Dual)?;
    let shape = Shape::endless(2000);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    for to in [1, 0, 1, 0, 1] {
        more_of(&up, 500)?;
        more_of(&down, 500)?;
        world.handover(&mut attached, to)?;
    }
    more_of(&down, 500)?;
    up.stop();
    down.stop();
    let (up, down) = (up.finish()?, down.finish()?);
    up.whole("uplink")?;
    down.whole("downlink")?;
    for gnb in &world.gnbs {
        let unknown = gnb.counters().unknown_teid.load(Relaxed);
        ensure!(
            unknown == 0,
            "{unknown} packets came to {} after it was left",
            gnb.address()
        );
    }
    let late = down.late;
    Ok(format!(
        "5 handovers, {} packets up and {} down, {late} late",
        up.received, down.received
    ))
}

fn detach(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;
    world.detach(&attached)?;
    ensure!(
        world.sessions()? == 0,
        "{} sessions are left",
        world.sessions()?
    );

    let gnb = &world.gnbs[0];
    let (upf, teid) = attached.session.uplink;
    attached
        .ue
        .modem
        .set_uplink(Some(gnb.uplink(upf, teid, Some(9))));
    let shape = Shape::lasting(100, 1);
    none_of(
        flow_up(world, &attached, shape)?,
        "uplink after the deletion",
    )?;
    none_of(
        flow_down(world, &attached, shape)?,
        "downlink after the deletion",
    )?;

    let answer = world.smf(0)?.delete(&attached.session);
    refused(answer, CauseValue::SessionContextNotFound)?;
    Ok("nothing passes, and a second deletion is refused".to_owned())
}

/// The request must have been refused for this cause.
pub(super) fn refused(answer: Result<()>, cause: CauseValue) -> Result<()> {
    let error = answer
        .err()
        .context("accepted, though it must be refused")?;
    let refusal: &Refused = error.downcast_ref().with_context(|| format!("{error:#}"))?;
    ensure!(refusal.cause == cause, "{refusal}, instead of {cause:?}");
    Ok(())
}

fn several_smfs(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for smf in 0..3 {
        let plan = world.plan(Family::Dual, Style::Open5gs);
        attached.push(world.attach(&format!("ue{smf}"), &plan, smf, smf % 2)?);
    }
    let stranger = world.smf(1)?;
    refused(
        stranger.delete(&attached[0].session),
        CauseValue::SessionContextNotFound,
    )?;
    refused(
        stranger.idle(&attached[0].session),
        CauseValue::SessionContextNotFound,
    )?;

    // Nor does it end another SMF's association by naming that one's Node ID.
    for message in [
        MsgType::AssociationReleaseRequest,
        MsgType::AssociationUpdateRequest,
    ] {
        let ies = [world.smf(0)?.node_id().to_ie()];
        refused(
            stranger.request(message, None, &ies)?.accepted(),
            CauseValue::NoEstablishedPfcpAssociation,
        )?;
    }
    ping_all(&attached[0])?;

    world.smf(2)?.release().context("Association Release")?;
    let gone = || Ok(world.sessions()? == 2);
    eventually("the sessions of a released SMF go", gone)?;
    for ue in &attached[..2] {
        ping_all(ue)?;
    }
    Ok("a foreign session is not found, a release takes only one's own".to_owned())
}

fn retransmitted_establishment(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let smf = world.smf(0)?;
    let prepared = smf.establishment(&plan)?;
    let sequence = smf.sequence();
    let request = smf::encode(
        MsgType::SessionEstablishmentRequest,
        Some(0),
        sequence,
        &prepared.ies,
    );
    let first = smf.exchange_once(sequence, &request, NEVER)?;
    for _ in 0..3 {
        let again = smf.exchange_once(sequence, &request, NEVER)?;
        ensure!(
            first == again,
            "the answer changed:\n{first:02x?}\n{again:02x?}"
        );
    }
    ensure!(
        world.sessions()? == 1,
        "{} sessions instead of 1",
        world.sessions()?
    );
    let answer = Answer::read(&first)?;
    let session = prepared.conclude(&plan, &answer)?;
    smf.delete(&session)?;
    ensure!(
        world.sessions()? == 0,
        "a session is left after its deletion"
    );
    Ok("4 requests, 4 equal answers, 1 session".to_owned())
}

fn large_establishment(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let smf = world.smf(0)?;
    // IEs of a vendor that the UPF does not know come before those that it needs.
    let mut prepared = smf.establishment(&plan)?;
    for number in 0..6 {
        let unknown = Ie::new_vendor_specific(0x8000 | number, 9999, vec![0x5a; 1000])?;
        prepared.ies.insert(0, unknown);
    }
    let kind = MsgType::SessionEstablishmentRequest;
    let answer = smf.request(kind, Some(0), &prepared.ies)?;
    let session = prepared.conclude(&plan, &answer)?;
    smf.delete(&session)?;

    // Cut off, the same request is not accepted: half of it is not a session.
    let sequence = smf.sequence();
    let request = smf::encode(kind, Some(0), sequence, &prepared.ies);
    let cut = &request[..request.len() - 200];
    if let Ok(answer) = smf.exchange_once(sequence, cut, Duration::from_secs(1)) {
        let answer = Answer::read(&answer)?;
        ensure!(answer.accepted().is_err(), "a cut request was accepted");
    }
    ensure!(
        world.sessions()? == 0,
        "{} sessions are left",
        world.sessions()?
    );
    Ok(format!("{} octets in one request", request.len()))
}

fn ies_in_any_order(world: &mut World) -> Result<String> {
    let mut established = 0;
    for style in world.styles() {
        let plan = world.plan(Family::Dual, style);
        let smf = world.smf(0)?;
        let mut prepared = smf.establishment(&plan)?;
        let count = prepared.ies.len();
        for turn in 0..count {
            // Every IE is once the first, and each order is also taken backwards.
            prepared.ies.rotate_left(1);
            if turn % 2 == 0 {
                prepared.ies.reverse();
            }
            let kind = MsgType::SessionEstablishmentRequest;
            let answer = smf.request(kind, Some(0), &prepared.ies)?;
            let session = prepared
                .conclude(&plan, &answer)
                .with_context(|| format!("{style:?}"))?;
            smf.delete(&session)?;
            established += 1;
        }
    }
    ensure!(world.sessions()? == 0, "sessions are left");
    Ok(format!("{established} orders"))
}

fn counters(world: &mut World) -> Result<String> {
    let mut seen = Vec::new();
    for (family, headers) in [(Family::V4, 28), (Family::V6, 48)] {
        let mut attached = world.attach_plain(&format!("ue{headers}"), family)?;
        let mut expected = world.counted(&attached)?;
        for to in [1, 0, 1] {
            let shape = Shape {
                rate: 2000,
                count: 1000,
                payload: 150,
            };
            let flows = (
                flow_up(world, &attached, shape)?,
                flow_down(world, &attached, shape)?,
            );
            // Counters go on over the changes of a rule.
            world.handover(&mut attached, to)?;
            flows.0.finish()?.whole("uplink")?;
            flows.1.finish()?.whole("downlink")?;
            for way in &mut expected {
                way.packets += u64::from(shape.count);
                way.bytes += u64::from(shape.count) * (shape.payload as u64 + headers);
            }
            let counted = world.counted(&attached)?;
            ensure!(
                counted == expected,
                "{family:?}: {counted:?} instead of {expected:?}"
            );
        }
        seen.push(format!(
            "{family:?} {} packets",
            expected[0].packets + expected[1].packets
        ));
    }
    Ok(seen.join(", "))
}
