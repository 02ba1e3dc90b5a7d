//! QERs and SDF filters.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{
    Scenario, both_ways, expect_drops, finish_dropped, flow_down, flow_up, more_of, none_of,
};
use crate::dn;
use crate::flow::{self, Bursts, Outcome, Sent, Shape};
use crate::smf::{Flow, Gates, Style};
use crate::traffic::{Iperf, Way, iperf};
use crate::wait::eventually;
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "qer-mbr",
            "what exceeds the MBR is dropped, and no more",
            qer_mbr,
        )
        .long(),
        Scenario::new(
            "qer-shaped",
            "TCP through an MBR that shapes gets its rate, and no more",
            qer_shaped,
        )
        .shaping()
        .iperf(4)
        .alone()
        .long(),
        Scenario::new(
            "qer-shaped-order",
            "a flow that exceeds its MBR now and then, and whose MBR changes, keeps its order and loses nothing",
            qer_shaped_order,
        )
        .shaping(),
        Scenario::new(
            "qer-update",
            "a new MBR holds from its answer on",
            qer_update,
        )
        .long(),
        Scenario::new(
            "flow-comes-and-goes",
            "PDRs added and removed under traffic disturb no other",
            flow_comes_and_goes,
        ),
        Scenario::new("gates", "a closed gate stops its direction alone", gates),
        Scenario::new(
            "sdf-filters",
            "PDRs with filters, by precedence",
            sdf_filters,
        ),
        Scenario::new(
            "sdf-fragments",
            "fragments without ports meet the PDR of the first one",
            sdf_fragments,
        )
        .fragments(),
        Scenario::new(
            "sdf-only",
            "a flow whose PDRs have an SDF filter, or its ID, and nothing else is found both ways",
            sdf_only,
        ),
    ]
}

fn qer_mbr(world: &mut World) -> Result<String> {
    let mut report = Vec::new();
    for (up_kbps, down_kbps) in [(20_000u64, 10_000u64), (3_000, 40_000)] {
        let mut plan = world.plan(Family::V4, Style::Open5gs);
        plan.mbr_kbps = Some((up_kbps, down_kbps));
        let attached = world.attach(&format!("ue{}", report.len()), &plan, 0, 0)?;
        let ways = [(Way::Up, up_kbps), (Way::Down, down_kbps)];
        report.push(policed(world, &attached, &ways, 0)?);
    }
    Ok(report.join(", "))
}

/// Each way on its own, twice; a second rate comes while the first one's packets wait.
fn qer_shaped(world: &mut World) -> Result<String> {
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.mbr_kbps = Some((30_000, 20_000));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let mut report = Vec::new();
    let mut ports = dn::IPERF_PORT..;
    for (up_kbps, down_kbps) in [(30_000, 20_000), (10_000, 40_000)] {
        world.smf(0)?.limit(&attached.session, up_kbps, down_kbps)?;
        for (way, kbps) in [(Way::Up, up_kbps), (Way::Down, down_kbps)] {
            let plan = Iperf {
                from: attached.address()?,
                port: ports.next().context("ports")?,
                way,
                udp_bps: None,
                seconds: 4,
                omitted: 0,
                algorithm: None,
            };
            let percent = iperf(&attached.ue.netns, plan)?.bps / kbps as f64 / 10.0;
            ensure!(
                (90.0..=100.0).contains(&percent),
                "{way:?} {kbps} kbit/s: {percent:.1} %"
            );
            report.push(format!("{way:?} {kbps} kbit/s: {percent:.1} %"));
        }
    }
    expect_drops(world, "rate", 0, 0)?;
    Ok(report.join(", "))
}

/// Bursts with pauses between, so that the flow waits, comes back, and waits again.
fn qer_shaped_order(world: &mut World) -> Result<String> {
    const ROUNDS: u32 = 300;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.mbr_kbps = Some((30_000, 30_000));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let (server, ue) = (
        SocketAddr::new(dn::SERVER_V4.into(), 0),
        SocketAddr::new(attached.address()?, 0),
    );
    let (dn_ns, ue_ns) = (&world.dn_ns, &attached.ue.netns);
    let mut report = Vec::new();
    for (way, from, at, to) in [
        (Way::Up, ue_ns, dn_ns, server),
        (Way::Down, dn_ns, ue_ns, ue),
    ] {
        let waited = world.shaped()?;
        let flow = Bursts::start(from, at, to)?;
        for round in 0..ROUNDS {
            // Up to 50 packets of 0.33 ms each at the rate, and pauses of up to 19 ms.
            flow.burst(
                1 + round * 7 % 50,
                Duration::from_millis(u64::from(round * 11 % 20)),
            )?;
            if round % 25 == 24 {
                let kbps = if round % 50 == 24 { 60_000 } else { 30_000 };
                world.smf(0)?.limit(&attached.session, kbps, kbps)?;
            }
        }
        let outcome = flow.finish()?;
        outcome.whole(&format!("{way:?}"))?;
        ensure!(outcome.late == 0, "{way:?}: {} overtaken", outcome.late);
        let mut shaped = 0;
        eventually("frames that waited", || {
            shaped = world.shaped()? - waited;
            Ok(shaped >= u64::from(outcome.sent) / 10)
        })?;
        let directly = u64::from(outcome.sent) - shaped;
        ensure!(
            directly >= u64::from(ROUNDS) / 10,
            "{way:?}: {directly} left at once"
        );
        report.push(format!("{way:?} {shaped} waited, {directly} did not"));
    }
    Ok(report.join(", "))
}

/// Octets of UDP, and bits from the IP header on, of what is sent above a rate.
const PAYLOAD: usize = 1200;
const PACKET_BITS: f64 = (PAYLOAD + 28) as f64 * 8.0;

/// Sends twice the MBR each of these ways at once, to or from a port of the server; how much of it came through.
pub(super) fn policed(
    world: &World,
    attached: &Attached,
    ways: &[(Way, u64)],
    port: u16,
) -> Result<String> {
    let (before, dropped) = (world.counted(attached)?, world.drops("rate")?);
    let flows = ways.iter();
    let flows = flows.map(|&(way, kbps)| twice(world, attached, way, kbps, port));
    let flows = flows.collect::<Result<_>>()?;
    let ended = finish_dropped(world, flows, "rate", dropped)?;
    let after = world.counted(attached)?;
    let mut report = Vec::new();
    for (&(way, kbps), ended) in ways.iter().zip(&ended) {
        let index = usize::from(way == Way::Down);
        let passed = after[index].packets - before[index].packets;
        report.push(as_much_as_may(way, kbps, passed, ended)?);
    }
    Ok(report.join(", "))
}

/// A flow of twice a rate.
fn twice(
    world: &World,
    attached: &Attached,
    way: Way,
    kbps: u64,
    port: u16,
) -> Result<flow::Running> {
    const SECONDS: u32 = 5;
    let rate = (kbps as f64 * 2000.0 / PACKET_BITS) as u32;
    let shape = Shape {
        rate,
        count: rate * SECONDS,
        payload: PAYLOAD,
    };
    let (server, ue) = (
        SocketAddr::new(dn::SERVER_V4.into(), port),
        SocketAddr::new(attached.address()?, 0),
    );
    let (dn_ns, ue_ns) = (&world.dn_ns, &attached.ue.netns);
    match way {
        Way::Up => flow::start_regardless(ue_ns, flow::any(server), dn_ns, server, shape),
        Way::Down => flow::start_regardless(dn_ns, server, ue_ns, ue, shape),
    }
}

/// The clocks of sender and receiver say how much of a flow may and must have passed: what a machine that has no time does
/// not offer cannot pass. So others may run beside.
fn as_much_as_may(
    way: Way,
    kbps: u64,
    passed: u64,
    (outcome, sent): &(Outcome, Sent),
) -> Result<String> {
    let rate_bps = kbps as f64 * 1000.0;
    // A bucket of 100 ms, but at least 32 KiB.
    let bucket_bits = (rate_bps * 0.1).max(f64::from(32 << 13)) + PACKET_BITS;
    ensure!(
        passed >= outcome.received.into() && outcome.duplicates == 0,
        "{passed} packets passed, {} arrived",
        outcome.received
    );
    let passed_bits = passed as f64 * PACKET_BITS;
    let (_, last) = outcome.came.context("nothing came through")?;
    let seconds = (last.max(sent.until) - sent.from).as_secs_f64();
    let most = rate_bps * seconds + bucket_bits;
    // No more than was offered in its time, and what the UPF did not see for longer than the bucket lasts is past.
    let in_slot = rate_bps * flow::SLOT.as_secs_f64();
    let offered = sent.slots.iter();
    let offered: f64 = offered
        .map(|&n| (f64::from(n) * PACKET_BITS).min(in_slot))
        .sum();
    let pauses = outcome.gaps.iter().map(|gap| gap.as_secs_f64() * rate_bps);
    let pauses: f64 = pauses.map(|bits| (bits - bucket_bits).max(0.0)).sum();
    let least = 0.95 * (offered - pauses) - in_slot;
    let report = format!(
        "{way:?} {kbps} kbit/s: {:.1} %",
        passed_bits / seconds / rate_bps * 100.0
    );
    ensure!(
        (least..=most).contains(&passed_bits),
        "{report}: {passed_bits:.0} bits in {seconds:.3} s, {least:.0} to {most:.0} are right"
    );
    Ok(report)
}

fn qer_update(world: &mut World) -> Result<String> {
    let mut plan = world.plan(Family::V4, Style::Free5gc);
    plan.mbr_kbps = Some((50_000, 50_000));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let mut report = Vec::new();
    for kbps in [5_000, 30_000, 3_000] {
        world.smf(0)?.limit(&attached.session, 40_000, kbps)?;
        report.push(policed(world, &attached, &[(Way::Down, kbps)], 0)?);
    }
    Ok(report.join(", "))
}

/// Datagrams of three fragments, to and from one port, where all other ports are closed.
fn sdf_fragments(world: &mut World) -> Result<String> {
    let flow = |filter: &str, precedence, gates| Flow {
        filter: filter.to_owned(),
        precedence,
        gates,
    };
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.flows = vec![
        flow(
            "permit out 17 from 10.200.0.1 7007 to assigned",
            10,
            Gates::OPEN,
        ),
        flow(
            "permit out 17 from 10.200.0.0/24 to assigned",
            20,
            Gates::CLOSED,
        ),
    ];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let shape = Shape {
        rate: 500,
        count: 1000,
        payload: 3000,
    };
    for (port, open) in [(7007, true), (7008, false)] {
        let server = SocketAddr::new(dn::SERVER_V4.into(), port);
        let (ue, dn) = (&attached.ue.netns, &world.dn_ns);
        let to = SocketAddr::new(attached.address()?, 0);
        for way in ["uplink", "downlink"] {
            let flow = match way {
                "uplink" => flow::start(ue, dn, server, shape)?,
                _ => flow::start_from(dn, server, ue, to, shape)?,
            };
            passes(flow, open, &format!("{way}, port {port}"))?;
        }
    }
    super::icmp::unidentified(world, &attached, 7007, 800)?;
    for reason in ["fragment_timeout", "fragment_limit"] {
        let drops = world.drops(reason)?;
        ensure!(drops == 0, "{drops} packets lost as {reason}");
    }
    Ok("2000 datagrams of three fragments whole, 2000 of a closed port stopped".to_owned())
}

fn flow_comes_and_goes(world: &mut World) -> Result<String> {
    const TIMES: u16 = 100;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let smf = world.smf(0)?;
    let closed = Flow {
        filter: "permit out 17 from 10.200.0.1 7000 to assigned".to_owned(),
        precedence: 10,
        gates: Gates {
            up: false,
            down: false,
        },
    };
    let shape = Shape::endless(2000);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    for number in 0..TIMES {
        smf.add_flow(&attached.session, number % 3, &closed)?;
        more_of(&up, 10)?;
        more_of(&down, 10)?;
        smf.remove_flow(&attached.session, number % 3)?;
    }
    up.stop();
    down.stop();
    up.finish()?.whole("uplink beside the changes")?;
    down.finish()?.whole("downlink beside the changes")?;

    smf.add_flow(&attached.session, 0, &closed)?;
    by_port(world, &attached, 7000, false).context("the added flow, whose gate is closed")?;
    smf.remove_flow(&attached.session, 0)?;
    by_port(world, &attached, 7000, true).context("after its removal")?;
    Ok(format!(
        "{TIMES} times added and removed, no packet of the default flow lost"
    ))
}

fn gates(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    both_ways(world, &attached)?;
    let shape = Shape::lasting(200, 1);
    for (up, down) in [(false, true), (true, false), (false, false)] {
        world.smf(0)?.gate(&attached.session, Gates { up, down })?;
        let before = world.drops("gate_closed")?;
        let flows = (
            flow_up(world, &attached, shape)?,
            flow_down(world, &attached, shape)?,
        );
        let mut closed = 0;
        for (open, flow) in [(up, flows.0), (down, flows.1)] {
            let outcome = passes(flow, open, if open { "open gate" } else { "closed gate" })?;
            closed += u64::from(outcome.lost());
        }
        expect_drops(world, "gate_closed", before, closed)?;
    }
    world.smf(0)?.gate(&attached.session, Gates::OPEN)?;
    both_ways(world, &attached)?;
    Ok("up, down and both closed, then open".to_owned())
}

/// All of a flow, or nothing of it.
fn passes(flow: flow::Running, open: bool, what: &str) -> Result<Outcome> {
    if !open {
        return none_of(flow, what);
    }
    let outcome = flow.finish()?;
    outcome.whole(what)?;
    Ok(outcome)
}

/// One flow from and one to `port` of the server: all of it passes, or nothing does.
pub(super) fn by_port(world: &World, attached: &Attached, port: u16, open: bool) -> Result<()> {
    by_ports(world, attached, &[(port, open)])
}

/// The same of several ports at once.
pub(super) fn by_ports(world: &World, attached: &Attached, ports: &[(u16, bool)]) -> Result<()> {
    let shape = Shape {
        rate: 500,
        count: 100,
        payload: 100,
    };
    let server = |port| SocketAddr::new(dn::SERVER_V4.into(), port);
    let (dn, ue) = (&world.dn_ns, &attached.ue.netns);
    let to = SocketAddr::new(attached.address()?, 0);
    let judge = |way: &str, flows: Result<Vec<_>>| {
        let mut each = ports.iter().zip(flows?);
        each.try_for_each(|(&(port, open), flow)| {
            passes(flow, open, &format!("{way}, port {port}")).map(drop)
        })
    };
    let up = |&(port, _): &_| flow::start(ue, dn, server(port), shape);
    judge("uplink", ports.iter().map(up).collect())?;
    let down = |&(port, _): &_| flow::start_from(dn, server(port), ue, to, shape);
    judge("downlink", ports.iter().map(down).collect())
}

fn sdf_filters(world: &mut World) -> Result<String> {
    let flow = |filter: &str, precedence, gates| Flow {
        filter: filter.to_owned(),
        precedence,
        gates,
    };
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.flows = vec![
        flow(
            "permit out 17 from 10.200.0.0/24 7000-7010 to assigned",
            20,
            Gates::CLOSED,
        ),
        flow(
            "permit out 17 from 10.200.0.1 7007 to assigned",
            10,
            Gates::OPEN,
        ),
        flow(
            "permit out 17 from 10.201.0.0/16 to assigned",
            5,
            Gates::CLOSED,
        ),
    ];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let ports = [
        (6999, true),
        (7000, false),
        (7007, true),
        (7010, false),
        (7011, true),
    ];
    by_ports(world, &attached, &ports)?;
    // Other protocols meet the default PDRs.
    super::sessions::ping_all(&attached).context("ICMP")?;
    Ok("port range closed, one port in it open by precedence, the rest untouched".to_owned())
}

fn sdf_only(world: &mut World) -> Result<String> {
    let closed = Flow {
        filter: "permit out 17 from 10.200.0.1 7000 to assigned".to_owned(),
        precedence: 10,
        gates: Gates {
            up: false,
            down: false,
        },
    };
    for (name, style) in [("ue1", Style::Open5gs), ("ue2", Style::Free5gc)] {
        let plan = world.plan(Family::V4, style);
        let attached = world.attach(name, &plan, 0, 0)?;
        let smf = world.smf(0)?;
        smf.add_bare_flow(&attached.session, 0, &closed)?;
        by_port(world, &attached, 7000, false).context("the flow, whose gate is closed")?;
        by_port(world, &attached, 7001, true).context("beside the flow")?;
        smf.remove_flow(&attached.session, 0)?;
        by_port(world, &attached, 7000, true).context("after its removal")?;
    }
    Ok("added and removed for the sessions of two SMFs".to_owned())
}
