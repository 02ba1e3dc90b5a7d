//! Rules that an operator configures and an SMF activates by name.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::cause::CauseValue;
use serde_json::Value;

use super::rules::{by_port, policed};
use super::{Scenario, both_ways, expect_drops};
use crate::dn;
use crate::flow::{self, Shape};
use crate::smf::{Refused, Style};
use crate::traffic::Way;
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "predefined-rules",
            "rules of the configuration drop, route and limit what PDRs activate them for, and only while they do",
            predefined_rules,
        )
        .second_dn()
        .long()
        .line("[[predefined_rule]]", RULES),
    ]
}

const RULES: &str = r#"name = "block"
flows = ["permit out 17 from 10.200.0.1 7000-7010 to assigned"]
action = "drop"

[[predefined_rule]]
name = "edge"
direction = "uplink"
flows = ["permit out 17 from 10.200.0.1 8000 to assigned"]
network_instance = "corporate"

[[predefined_rule]]
name = "slow"
direction = "downlink"
flows = ["permit out 17 from 10.200.0.1 5201 to assigned"]
mbr_uplink_kbps = 1
mbr_downlink_kbps = 4000
"#;
const SLOW_KBPS: u64 = 4000;
/// The FAR of the session's downlink.
const DOWNLINK_FAR: u32 = 2;

fn predefined_rules(world: &mut World) -> Result<String> {
    let plan = world.plan(Family::V4, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    for way in [Way::Up, Way::Down] {
        world.smf(0)?.activate(&attached.session, way, &["block"])?;
    }
    by_port(world, &attached, 7000, false).context("blocked")?;
    by_port(world, &attached, 7011, true).context("beside what is blocked")?;
    let blocked = 200;
    expect_drops(world, "far_drop", 0, blocked)?;

    let smf = world.smf(0)?;
    smf.exchange(&attached.session, Way::Up, ["block", "edge"], None)?;
    let far = Some(DOWNLINK_FAR);
    smf.exchange(&attached.session, Way::Down, ["block", "slow"], far)?;
    by_port(world, &attached, 7000, true).context("no longer blocked")?;
    let routed = to_the_edge(world, &attached)?;
    let limited = policed(world, &attached, &[(Way::Down, SLOW_KBPS)], dn::IPERF_PORT)?;
    ensure!(world.drops("far_drop")? == blocked, "more was dropped");

    unknown_names_are_refused(world, &attached)?;
    both_ways(world, &attached)?;
    shown(world, &attached, blocked / 2, routed)?;
    Ok(format!(
        "{blocked} packets blocked, {routed} routed to the edge, {limited}"
    ))
}

/// Packets that an uplink rule sends to another network instance arrive there; how many.
fn to_the_edge(world: &World, attached: &Attached) -> Result<u64> {
    let edge = world.second_dn_ns.as_ref().context("one data network")?;
    let server = SocketAddr::new(dn::SERVER_V4.into(), 8000);
    let shape = Shape::lasting(500, 1);
    let outcome = flow::start(&attached.ue.netns, edge, server, shape)?.finish()?;
    outcome.whole("to the edge")?;
    Ok(u64::from(outcome.sent))
}

fn unknown_names_are_refused(world: &World, attached: &Attached) -> Result<()> {
    const ACTIVATE: u16 = 106;
    const DEACTIVATE: u16 = 107;
    let smf = world.smf(0)?;
    for (names, offending) in [
        (["edge", "nothing"], ACTIVATE),
        (["edge", "slow"], ACTIVATE),
        (["block", "edge"], DEACTIVATE),
    ] {
        let answer = smf.exchange(&attached.session, Way::Up, names, None);
        let Err(error) = answer else {
            bail!("{names:?} was accepted");
        };
        let refused: Refused = error.downcast().context("not refused")?;
        let right = refused.cause == CauseValue::RuleCreationModificationFailure
            && refused.offending_ie == Some(offending);
        ensure!(right, "{names:?} was {refused}");
    }
    Ok(())
}

/// The UPF's report of it: each rule counts for itself, its PDR all of them.
fn shown(world: &mut World, attached: &Attached, blocked: u64, routed: u64) -> Result<()> {
    let path = format!("/api/v1/sessions/{:016x}", attached.session.up_seid);
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let session = upf.get(&world.upf_ns, &path)?;
    let pdrs = session["pdrs_detail"].as_array().context("no PDRs")?;
    let pdr = pdrs.iter().find(|pdr| pdr["id"] == 50);
    let pdr = pdr.context("PDR 50 is not shown")?;
    let rule = &pdr["predefined_rules"][0];
    let counted = |of: &Value| ["packets", "drops"].map(|what| of["traffic"][what].as_u64());
    ensure!(
        rule["name"] == "edge" && rule["network_instance"] == "corporate",
        "{rule}"
    );
    ensure!(counted(rule) == [Some(routed), Some(0)], "{rule}");
    ensure!(counted(pdr) == [Some(routed), Some(blocked)], "{pdr}");
    Ok(())
}
