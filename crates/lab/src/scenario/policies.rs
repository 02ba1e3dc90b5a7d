//! Ways to the data network that an operator configures and an SMF names in FARs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use rs_pfcp::ie::cause::CauseValue;
use serde_json::Value;

use super::{Scenario, both_ways, expect_drops, flow_up, none_of};
use crate::flow::{self, Shape};
use crate::smf::{Refused, SessionPlan, Style, steer_uplink};
use crate::wait::{NEVER, eventually};
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "forwarding-policy",
            "uplink of sessions that an AF influences leaves by another next hop, as free5GC and OAI ask for it, and by the usual one while that is gone",
            forwarding_policy,
        )
        .line("[[forwarding_policy]]", POLICIES),
    ]
}

/// Another router on N6, beside the one that the routes lead to.
const EDGE: Ipv4Addr = Ipv4Addr::new(10, 6, 0, 9);
const EDGE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 9);

const POLICIES: &str = r#"identifier = "edge"
next_hops = ["10.6.0.9", "2001:db8:6::9"]

[[forwarding_policy]]
identifier = "10"
next_hops = ["10.6.0.9", "2001:db8:6::9"]
fallback = "drop"
"#;

/// Packets of each flow.
const PACKETS: Shape = Shape {
    rate: 1000,
    count: 400,
    payload: 200,
};

fn forwarding_policy(world: &mut World) -> Result<String> {
    give_edge(world)?;
    stands(world, "in use")?;
    let mut plain = world.plan(Family::V4, Style::Free5gc);
    plain.policy = None;
    let plain = world.attach("ue0", &plain, 0, 0)?;
    by_router(world, &plain).context("without a policy")?;

    let mut steered = Vec::new();
    for style in [Style::Free5gc, Style::Oai] {
        for family in [Family::V4, Family::V6] {
            let number = steered.len() + 1;
            let plan = SessionPlan {
                policy: Some("edge"),
                ..world.plan(family, style)
            };
            let attached = world.attach(&format!("ue{number}"), &plan, 0, 0)?;
            by_edge(world, &attached).with_context(|| format!("{style:?}"))?;
            both_ways(world, &attached)?;
            steered.push(attached);
        }
    }
    to_another_ue(world, &steered[0], &plain).context("to another UE")?;
    unknown_is_refused(world, &steered[0])?;
    by_edge(world, &steered[0]).context("after the refusals")?;

    set_up(world, false)?;
    stands(world, "unreachable")?;
    for attached in &steered {
        by_router(world, attached).context("the edge is gone")?;
    }
    let mut dropped = 0;
    for attached in &steered[..2] {
        let smf = world.smf(0)?;
        smf.modify(&attached.session, &[steer_uplink("10")])?;
        let before = world.drops("forwarding_policy")?;
        let flow = flow_up(world, attached, PACKETS)?;
        let sent = none_of(flow, "without fallback")?.sent.into();
        expect_drops(world, "forwarding_policy", before, sent)?;
        dropped += sent;
    }
    set_up(world, true)?;
    stands(world, "in use")?;
    for attached in &steered {
        by_edge(world, attached).context("the edge is back")?;
    }
    by_router(world, &plain).context("without a policy")?;
    Ok(format!(
        "{} sessions by the edge, and by the router while it was gone; {dropped} packets of those without fallback were named",
        steered.len()
    ))
}

/// A further router on N6, with an Ethernet address of its own.
fn give_edge(world: &World) -> Result<()> {
    let dn = &world.dn_ns;
    for device in ["all", "default", "n6"] {
        dn.sysctl(&format!("net/ipv4/conf/{device}/arp_ignore"), "1")?;
        dn.sysctl(&format!("net/ipv4/conf/{device}/rp_filter"), "0")?;
    }
    dn.ip(&format!(
        "link add link n6 name edge type macvlan mode bridge\naddr add {EDGE}/32 dev edge\n\
         addr add {EDGE_V6}/128 dev edge nodad"
    ))?;
    set_up(world, true)
}

/// The edge comes or goes; the kernel of the UPF looks for it anew.
fn set_up(world: &World, is_up: bool) -> Result<()> {
    let dn = &world.dn_ns;
    if is_up {
        dn.ip("link set edge up")?;
        // Its IPv6 address has gone with the link.
        dn.ip(&format!("addr replace {EDGE_V6}/128 dev edge nodad"))?;
        return Ok(());
    }
    dn.ip("link set edge down")?;
    for addr in [EDGE.to_string(), EDGE_V6.to_string()] {
        world.upf_ns.ip(&format!("neigh del {addr} dev n6"))?;
    }
    Ok(())
}

/// Waits until both policies stand like this, for both families.
fn stands(world: &World, state: &str) -> Result<()> {
    eventually("the policies stand otherwise", || {
        let policies = world.get("/api/v1/policies")?;
        let policies = policies.as_array().context("no policies")?;
        ensure!(policies.len() == 2, "{policies:?}");
        let is = |policy: &Value| {
            let of = &policy["network_instances"][0];
            of["ipv4"] == state && of["ipv6"] == state
        };
        Ok(policies.iter().all(is))
    })
}

/// Packets that the edge has taken.
fn taken(world: &World) -> Result<u64> {
    let args = ["-s", "-j", "link", "show", "dev", "edge"];
    let told = world.dn_ns.run("ip", &args, NEVER)?;
    let told: Value = serde_json::from_str(&told)?;
    let packets = told[0]["stats64"]["rx"]["packets"].as_u64();
    packets.with_context(|| told.to_string())
}

/// All packets of a flow arrive; how many of the frames went by the edge, those of its neighbours included.
fn flow_by_edge(world: &World, attached: &Attached) -> Result<u64> {
    let before = taken(world)?;
    flow_up(world, attached, PACKETS)?
        .finish()?
        .whole("uplink")?;
    Ok(taken(world)? - before)
}

fn by_edge(world: &World, attached: &Attached) -> Result<()> {
    let by_edge = flow_by_edge(world, attached)?;
    let all = u64::from(PACKETS.count);
    ensure!(
        by_edge >= all,
        "{by_edge} of {all} packets went by the edge"
    );
    Ok(())
}

fn by_router(world: &World, attached: &Attached) -> Result<()> {
    let by_edge = flow_by_edge(world, attached)?;
    // Requests of neighbours reach it, too.
    let all = u64::from(PACKETS.count);
    ensure!(
        by_edge < all / 4,
        "{by_edge} of {all} packets went by the edge"
    );
    Ok(())
}

/// The data network has no part in it.
fn to_another_ue(world: &World, from: &Attached, to: &Attached) -> Result<()> {
    let before = taken(world)?;
    let address = SocketAddr::new(to.address()?, 0);
    let flow = flow::start(&from.ue.netns, &to.ue.netns, address, PACKETS)?;
    flow.finish()?.whole("from UE to UE")?;
    let by_edge = taken(world)? - before;
    ensure!(
        by_edge < u64::from(PACKETS.count) / 4,
        "{by_edge} by the edge"
    );
    Ok(())
}

/// In an update, and in an establishment, with the name in the log.
fn unknown_is_refused(world: &mut World, attached: &Attached) -> Result<()> {
    const FORWARDING_POLICY: u16 = 41;
    let refused = |answer: Result<()>, name: &str| {
        let Err(error) = answer else {
            bail!("policy {name:?} was accepted");
        };
        let refused = error.downcast_ref::<Refused>().context("not refused")?;
        let right = refused.cause == CauseValue::InvalidForwardingPolicy
            && refused.offending_ie == Some(FORWARDING_POLICY);
        ensure!(right, "policy {name:?} was {refused}");
        Ok(())
    };
    for name in ["nowhere", ""] {
        let update = [steer_uplink(name)];
        refused(world.smf(0)?.modify(&attached.session, &update), name)?;
    }
    let plan = SessionPlan {
        policy: Some("anywhere"),
        ..world.plan(Family::V4, Style::Free5gc)
    };
    refused(world.smf(0)?.establish(&plan).map(drop), "anywhere")?;
    // The log is written by a thread of its own.
    for name in ["nowhere", "anywhere"] {
        let what = format!("{name:?} in the log");
        eventually(&what, || {
            Ok(world.upf()?.log_tail(200).contains(&format!("{name:?}")))
        })?;
    }
    Ok(())
}
