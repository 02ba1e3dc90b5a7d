//! QERs and SDF filters.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Scenario, both_ways, flow_down, flow_up, nothing_of};
use crate::dn;
use crate::flow::{self, Outcome, Shape};
use crate::smf::{Flow, Gates, Style};
use crate::traffic::{Iperf, Way, iperf};
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "qer-mbr",
            "what exceeds the MBR is dropped, and no more",
            qer_mbr,
        )
        .iperf(4)
        .limit(90),
        Scenario::new(
            "qer-update",
            "a new MBR holds from its answer on",
            qer_update,
        )
        .iperf(3)
        .limit(90),
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
        ),
        Scenario::new(
            "sdf-only",
            "a flow whose PDRs have an SDF filter, or its ID, and nothing else is found both ways",
            sdf_only,
        ),
    ]
}

/// Payload of each packet of iperf3's UDP runs, and its share of the IP packet that a QER counts.
const PAYLOAD_SHARE: f64 = 1200.0 / 1228.0;

fn qer_mbr(world: &mut World) -> Result<String> {
    let mut report = Vec::new();
    for (up_kbps, down_kbps) in [(20_000u64, 10_000u64), (3_000, 40_000)] {
        let mut plan = world.plan(Family::V4, Style::Open5gs);
        plan.mbr_kbps = Some((up_kbps, down_kbps));
        let attached = world.attach(&format!("ue{}", report.len()), &plan, 0, 0)?;
        for (way, kbps) in [(Way::Up, up_kbps), (Way::Down, down_kbps)] {
            let port = dn::IPERF_PORT + report.len() as u16;
            report.push(policed(&attached, way, kbps, port)?);
        }
    }
    Ok(report.join(", "))
}

/// Sends twice the MBR; how much of it came through.
pub(super) fn policed(attached: &Attached, way: Way, kbps: u64, port: u16) -> Result<String> {
    let udp_bps = Some(kbps * 1000 * 2);
    let from = attached.address()?;
    let plan = Iperf {
        from,
        port,
        way,
        udp_bps,
        seconds: 5,
    };
    let measured = iperf(&attached.ue.netns, plan)?;
    let ratio = measured.bps / PAYLOAD_SHARE / (kbps as f64 * 1000.0);
    let report = format!("{way:?} {kbps} kbit/s: {:.1} %", ratio * 100.0);
    // A bucket of 100 ms, but at least 32 KiB, adds 2 % to a run of 5 s from 3 Mbit/s on.
    ensure!((0.96..1.05).contains(&ratio), "{report}");
    Ok(report)
}

fn qer_update(world: &mut World) -> Result<String> {
    let mut plan = world.plan(Family::V4, Style::Free5gc);
    plan.mbr_kbps = Some((50_000, 50_000));
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let mut report = Vec::new();
    for (port, kbps) in (dn::IPERF_PORT..).zip([5_000, 30_000, 3_000]) {
        world.smf(0)?.limit(&attached.session, 40_000, kbps)?;
        report.push(policed(&attached, Way::Down, kbps, port)?);
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
        let up = flow::start(ue, dn, server, shape)?.finish()?;
        let to = SocketAddr::new(attached.address()?, 0);
        let down = flow::start_from(dn, server, ue, to, shape)?.finish()?;
        for (way, outcome) in [("uplink", up), ("downlink", down)] {
            let what = format!("{way}, port {port}");
            if open {
                outcome.whole(&what)?;
            } else {
                nothing_of(&outcome, &what)?;
            }
        }
    }
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
    let shape = Shape::lasting(2000, 3);
    let (up, down) = (
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    );
    for number in 0..TIMES {
        smf.add_flow(&attached.session, number % 3, &closed)?;
        std::thread::sleep(Duration::from_millis(10));
        smf.remove_flow(&attached.session, number % 3)?;
    }
    up.finish()?.whole("uplink beside the changes")?;
    down.finish()?.whole("downlink beside the changes")?;

    smf.add_flow(&attached.session, 0, &closed)?;
    for outcome in by_port(world, &attached, 7000)? {
        nothing_of(&outcome, "the added flow, whose gate is closed")?;
    }
    smf.remove_flow(&attached.session, 0)?;
    for outcome in by_port(world, &attached, 7000)? {
        outcome.whole("after its removal")?;
    }
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
        let outcomes = [(up, flows.0.finish()?), (down, flows.1.finish()?)];
        let mut closed = 0;
        for (open, outcome) in outcomes {
            if open {
                outcome.whole("open gate")?;
            } else {
                nothing_of(&outcome, "closed gate")?;
                closed += u64::from(outcome.sent);
            }
        }
        let counted = world.drops("gate_closed")? - before;
        ensure!(
            counted == closed,
            "{closed} packets met a closed gate, {counted} were counted"
        );
    }
    world.smf(0)?.gate(&attached.session, Gates::OPEN)?;
    both_ways(world, &attached)?;
    Ok("up, down and both closed, then open".to_owned())
}

/// One flow from and one to `port` of the server.
pub(super) fn by_port(world: &World, attached: &Attached, port: u16) -> Result<[Outcome; 2]> {
    let shape = Shape {
        rate: 500,
        count: 100,
        payload: 100,
    };
    let server = SocketAddr::new(dn::SERVER_V4.into(), port);
    let ue = SocketAddr::new(attached.address()?, 0);
    let up = flow::start(&attached.ue.netns, &world.dn_ns, server, shape)?.finish()?;
    let down = flow::start_from(&world.dn_ns, server, &attached.ue.netns, ue, shape)?.finish()?;
    Ok([up, down])
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
    for (port, open) in [
        (6999, true),
        (7000, false),
        (7007, true),
        (7010, false),
        (7011, true),
    ] {
        for (way, outcome) in ["uplink", "downlink"]
            .iter()
            .zip(by_port(world, &attached, port)?)
        {
            let what = format!("{way}, port {port}");
            if open {
                outcome.whole(&what)?
            } else {
                nothing_of(&outcome, &what)?
            }
        }
    }
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
        for outcome in by_port(world, &attached, 7000)? {
            nothing_of(&outcome, "the flow, whose gate is closed")?;
        }
        for outcome in by_port(world, &attached, 7001)? {
            outcome.whole("beside the flow")?;
        }
        smf.remove_flow(&attached.session, 0)?;
        for outcome in by_port(world, &attached, 7000)? {
            outcome.whole("after its removal")?;
        }
    }
    Ok("added and removed for the sessions of two SMFs".to_owned())
}
