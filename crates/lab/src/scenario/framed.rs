//! Networks and prefixes of UEs.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result, ensure};
use ipnet::Ipv6Net;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::framed_ipv6_route::FramedIpv6Route;
use rs_pfcp::ie::framed_route::FramedRoute;

use super::{Scenario, both_ways, eventually, expect_drops, sessions};
use crate::ping::{ping, unanswered};
use crate::smf::{Requested, SessionPlan, Style};
use crate::world::{Attached, Family, UPF_N3, UPF_N4, UPF_N6, UPF_N6_V6, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "framed-routes",
            "hosts behind UEs are reached and reach out",
            framed_routes,
        ),
        Scenario::new(
            "framed-routes-of-others",
            "a framed route that would capture others' packets is refused, and so is a UE within one",
            of_others,
        ),
        Scenario::new(
            "framed-routes-listed",
            "only framed routes that the operator lists are accepted",
            listed,
        )
        .line(
            "[[network_instance]]",
            r#"framed_routes = ["198.51.100.0/24", "2001:db8:70::/44"]"#,
        ),
        Scenario::new(
            "ue-prefixes",
            "UEs with a delegated IPv6 prefix, given or chosen, and with a single address",
            ue_prefixes,
        ),
    ]
}

/// A dual-stack session with these networks behind the UE.
fn plan(world: &mut World, nets: &[&str]) -> SessionPlan {
    let mut plan = world.plan(Family::Dual, Style::Open5gs);
    let ie = |net: &&str| {
        if net.contains(':') {
            FramedIpv6Route::new(&format!("{net} :: 1")).to_ie()
        } else {
            FramedRoute::new(&format!("{net} 0.0.0.0 1")).to_ie()
        }
    };
    plan.pdi = nets.iter().map(ie).collect();
    plan.uplink_ue = true;
    plan
}

/// A host behind the UE: an address of its namespace that is not the session's own.
fn host(attached: &Attached, address: &str) -> Result<IpAddr> {
    let len = if address.contains(':') { 128 } else { 32 };
    let nodad = if len == 128 { " nodad" } else { "" };
    let netns = &attached.ue.netns;
    netns.ip(&format!("addr add {address}/{len} dev lo{nodad}"))?;
    netns.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
    Ok(address.parse()?)
}

/// The data network's router learns of a network behind the UPF, as a routing protocol would tell it.
fn advertise(world: &World, net: &str) -> Result<()> {
    let via: IpAddr = if net.contains(':') {
        UPF_N6_V6.into()
    } else {
        UPF_N6.into()
    };
    world.dn_ns.ip(&format!("route add {net} via {via}"))
}

/// Packets that came down to the UE while `count` pings went to `to`, all of which were answered.
fn pinged(world: &World, attached: &Attached, to: IpAddr) -> Result<()> {
    const COUNT: u32 = 5;
    let before = world.counted(attached)?;
    ping(&world.dn_ns, to, COUNT, 20)?
        .whole()
        .with_context(|| format!("{to} behind {}", attached.ue.name()))?;
    let after = world.counted(attached)?;
    for (before, after) in before.iter().zip(&after) {
        let passed = after.packets - before.packets;
        ensure!(
            passed == u64::from(COUNT),
            "{to}: {passed} packets through {}",
            attached.ue.name()
        );
    }
    Ok(())
}

fn framed_routes(world: &mut World) -> Result<String> {
    for net in [
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8:70::/44",
        "2001:db8:80::/44",
    ] {
        advertise(world, net)?;
    }
    let site = plan(world, &["198.51.100.0/24", "2001:db8:70::/44"]);
    let site = world.attach("site", &site, 0, 0)?;
    let branch = plan(world, &["203.0.113.128/25", "2001:db8:82::/48"]);
    let branch = world.attach("branch", &branch, 0, 1)?;
    for ue in [&site, &branch] {
        both_ways(world, ue).context("beside the networks behind it")?;
    }
    let reached = [
        (&site, "198.51.100.7"),
        (&site, "2001:db8:71::7"),
        (&branch, "203.0.113.200"),
        (&branch, "2001:db8:82::7"),
    ];
    for (ue, address) in reached {
        pinged(world, ue, host(ue, address)?)?;
    }
    // From one network to the other, within the UPF.
    ping(&site.ue.netns, "203.0.113.200".parse()?, 5, 20)?
        .whole()
        .context("from one UE to the network behind the other")?;

    let twin = plan(world, &["198.51.100.0/24"]);
    let refused = world.smf(0)?.establish(&twin).map(|_| ());
    sessions::refused(refused, CauseValue::RuleCreationModificationFailure)?;

    // Without the branch its network is nobody's, and anybody's.
    world.detach(&branch)?;
    unanswered(&world.dn_ns, "203.0.113.200".parse()?, 3).context("the branch had gone")?;
    let heir = plan(world, &["203.0.113.0/24"]);
    let heir = world.attach("heir", &heir, 0, 1)?;
    pinged(world, &heir, host(&heir, "203.0.113.200")?)?;
    spoofed(world, &site)?;
    Ok("hosts of both families behind two UEs, and behind a third that came after one".to_owned())
}

fn refused_with(world: &mut World, net: &str) -> Result<()> {
    let plan = plan(world, &[net]);
    let answer = world.smf(0)?.establish(&plan).map(|_| ());
    sessions::refused(answer, CauseValue::RuleCreationModificationFailure)
        .with_context(|| net.to_owned())
}

fn of_others(world: &mut World) -> Result<String> {
    let victim = plan(world, &["198.51.100.0/24"]);
    let victim = world.attach("victim", &victim, 0, 0)?;
    let ue = victim.address()?;
    let nets = [
        "10.0.0.0/8".to_owned(),
        "0.0.0.0/1".to_owned(),
        "2001:db8::/32".to_owned(),
        format!("{ue}/32"),
        "198.51.100.0/24".to_owned(),
        "198.51.0.0/16".to_owned(),
        "198.51.100.7/32".to_owned(),
        format!("{UPF_N3}/32"),
        format!("{UPF_N4}/32"),
        format!("{UPF_N6}/32"),
        format!("{UPF_N6_V6}/128"),
    ];
    for net in &nets {
        refused_with(world, net)?;
    }
    // An address that the UPF's host gets later is its own, too.
    world.upf_ns.ip("addr add 203.0.113.9/32 dev lo")?;
    let later = plan(world, &["203.0.113.0/24"]);
    eventually("the new address is known", || {
        let answer = world.smf(0)?.establish(&later);
        if let Ok(session) = &answer {
            world.smf(0)?.delete(session)?;
        }
        Ok(answer.is_err())
    })?;
    let mut within = world.plan(Family::V4, Style::Open5gs);
    if let Requested::Given(addresses) = &mut within.addresses {
        addresses.v4 = Some("198.51.100.7".parse()?);
    }
    let answer = world.smf(0)?.establish(&within).map(|_| ());
    sessions::refused(answer, CauseValue::RuleCreationModificationFailure)
        .context("a UE in the network behind another")?;
    advertise(world, "198.51.100.0/24")?;
    pinged(world, &victim, host(&victim, "198.51.100.7")?)?;
    both_ways(world, &victim)?;
    Ok(format!(
        "{} routes and a UE refused, nobody harmed",
        nets.len() + 1
    ))
}

fn listed(world: &mut World) -> Result<String> {
    let server = format!("{}/32", crate::dn::SERVER_V4);
    for net in [
        server.as_str(),
        "203.0.113.0/24",
        "198.51.0.0/16",
        "2001:db8:80::/48",
    ] {
        refused_with(world, net)?;
    }
    advertise(world, "198.51.100.0/24")?;
    let site = plan(world, &["198.51.100.128/25", "2001:db8:7f::/48"]);
    let site = world.attach("site", &site, 0, 0)?;
    pinged(world, &site, host(&site, "198.51.100.200")?)?;
    both_ways(world, &site)?;
    Ok("a server, and networks beside those listed, refused".to_owned())
}

/// A host of no network of the UE gets nowhere.
fn spoofed(world: &World, ue: &Attached) -> Result<()> {
    let stranger = host(ue, "198.51.101.7")?;
    let before = world.drops("ue_spoofed")?;
    ue.ue
        .netns
        .ip(&format!("route add 10.200.0.1/32 dev tun0 src {stranger}"))?;
    unanswered(&ue.ue.netns, crate::dn::SERVER_V4.into(), 3)?;
    ue.ue.netns.ip("route del 10.200.0.1/32 dev tun0")?;
    expect_drops(world, "ue_spoofed", before, 3)
}

/// A UE with this IPv6 prefix beside IPv4, or with one of the UPF's choice.
fn prefixed(
    world: &mut World,
    name: &str,
    given: Option<Ipv6Addr>,
    len: u8,
) -> Result<(Attached, Ipv6Net)> {
    let mut plan = world.plan(Family::Dual, Style::Open5gs);
    plan.v6_len = Some(len);
    match (&mut plan.addresses, given) {
        (Requested::Given(addresses), Some(_)) => addresses.v6 = given,
        (asked, _) => *asked = Requested::Choose { v4: true, v6: true },
    }
    let attached = world.attach(name, &plan, 0, 0)?;
    let address = attached.session.addresses.v6.context("no IPv6 address")?;
    Ok((attached, Ipv6Net::new(address, len)?.trunc()))
}

/// Pings come to this UE and to no other.
fn reaches(world: &World, to: Ipv6Addr, ue: &Attached, others: &[&Attached]) -> Result<()> {
    const COUNT: u32 = 5;
    let seen = |ue: &Attached| ue.ue.modem.down.packets.load(Relaxed);
    let before: Vec<u64> = others.iter().map(|ue| seen(ue)).collect();
    let own = seen(ue);
    ping(&world.dn_ns, to.into(), COUNT, 20)?
        .whole()
        .with_context(|| format!("{to} of {}", ue.ue.name()))?;
    let after: Vec<u64> = others.iter().map(|ue| seen(ue)).collect();
    ensure!(
        seen(ue) - own == u64::from(COUNT) && before == after,
        "{to}: {} at {}, others {before:?} then {after:?}",
        seen(ue) - own,
        ue.ue.name()
    );
    Ok(())
}

fn ue_prefixes(world: &mut World) -> Result<String> {
    let given = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0xab00, 0, 0, 0, 1);
    let (site, _) = prefixed(world, "site", Some(given), 56)?;
    let single = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0xab12, 0, 0, 0, 0x99);
    let (sensor, _) = prefixed(world, "sensor", Some(single), 128)?;
    let (home, chosen) = prefixed(world, "home", None, 60)?;
    sessions::ping_all(&site)?;
    sessions::ping_all(&sensor)?;
    sessions::ping_all(&home)?;
    let last = |net: Ipv6Net, of: u128| {
        let hosts = u128::from(net.hostmask()) >> 64 << 64;
        Ipv6Addr::from(u128::from(net.network()) | hosts | of)
    };
    let far = last(Ipv6Net::new(given, 56)?.trunc(), 7);
    for (ue, address) in [(&site, far), (&home, last(chosen, 7))] {
        host(ue, &address.to_string())?;
        let others: Vec<&Attached> = [&site, &sensor, &home]
            .into_iter()
            .filter(|other| other.teid != ue.teid)
            .collect();
        reaches(world, address, ue, &others)?;
    }
    reaches(world, single, &sensor, &[&site, &home])?;

    let before = world.drops("unknown_ue")?;
    let nobody = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0xee00, 0, 0, 0, 1);
    unanswered(&world.dn_ns, nobody.into(), 3)?;
    expect_drops(world, "unknown_ue", before, 3)?;
    Ok(format!(
        "a /56, a /128 within it, and {chosen} from the UPF"
    ))
}
