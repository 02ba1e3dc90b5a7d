//! Nodes that go and come back.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{Scenario, both_ways, eventually, flow_down, flow_up, more_of};
use crate::dn;
use crate::flow::Shape;
use crate::ping::unanswered;
use crate::smf::{Event, Style};
use crate::world::{Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "smf-restart",
            "a restarted SMF's sessions go, others stay",
            smf_restart,
        )
        .smfs(2),
        Scenario::new("smf-lost", "an SMF that answers no more", smf_lost)
            .smfs(2)
            .forgetful(),
        Scenario::new(
            "upf-restart",
            "the SMF notices and restores traffic",
            upf_restart,
        ),
        Scenario::new(
            "upf-shutdown",
            "SIGTERM tells the SMFs and ends with 0",
            upf_shutdown,
        )
        .smfs(2),
        Scenario::new(
            "memif-peer-restart",
            "what is at the other end of memifs is killed under traffic, and comes back",
            memif_peer_restart,
        )
        .memif(),
    ]
}

fn smf_restart(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for smf in 0..2 {
        let plan = world.plan(Family::Dual, Style::Free5gc);
        attached.push(world.attach(&format!("ue{smf}"), &plan, smf, 0)?);
        ping_all(&attached[smf])?;
    }
    world.smfs[0] = None;
    let later = SystemTime::now() + Duration::from_secs(60);
    let smf = world.start_smf(0, later)?;
    smf.associate().context("association after the restart")?;
    world.smfs[0] = Some(smf);

    let gone = || Ok(world.sessions()? == 1);
    eventually("the sessions of the restarted SMF go", gone)?;
    let server = dn::server_for(attached[0].address()?);
    unanswered(&attached[0].ue.netns, server, 2).context("a UE of the restarted SMF")?;
    ping_all(&attached[1]).context("a UE of the other SMF")?;

    // The same UE again, with the same addresses: nothing of the old session is in the way.
    let plan = attached[0].session.plan.clone();
    let again = world.attach("again", &plan, 0, 0)?;
    ping_all(&again)?;
    Ok("1 of 2 sessions went, and was established anew".to_owned())
}

fn upf_restart(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    ping_all(&attached)?;
    let before = world.smf(0)?.heartbeat()?;

    // Recovery Time Stamps count seconds.
    std::thread::sleep(Duration::from_millis(1100));
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGKILL)?;
    world.start_upf()?;
    let smf = world.smf(0)?;
    let after = smf.heartbeat()?;
    ensure!(
        after > before,
        "Recovery Time Stamp {before} before and {after} after"
    );
    smf.wait_for(&Event::UpfRestarted)?;

    smf.associate().context("association after the restart")?;
    ensure!(
        world.sessions()? == 0,
        "sessions survived without their SMF's word"
    );
    let again = world.attach("again", &attached.session.plan, 0, 0)?;
    ping_all(&again)?;
    Ok("noticed by Recovery Time Stamp; traffic flows again".to_owned())
}

fn upf_shutdown(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    ping_all(&attached)?;
    let upf = world.upf.take().context("the UPF is down")?;
    upf.stop(Signal::SIGTERM)?;
    for smf in world.smfs.iter().flatten() {
        let told = [
            MsgType::AssociationReleaseRequest,
            MsgType::AssociationUpdateRequest,
        ];
        match smf.next_event() {
            Some(Event::Request(request)) if told.contains(&request) => {}
            other => bail!("an SMF was not told; it saw {other:?}"),
        }
    }
    world.start_upf()?;
    world.smf(0)?.associate()?;
    let again = world.attach("again", &attached.session.plan, 0, 0)?;
    ping_all(&again)?;
    Ok("both SMFs were told; a new start works".to_owned())
}

fn smf_lost(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for smf in 0..2 {
        let plan = world.plan(Family::V4, Style::Open5gs);
        attached.push(world.attach(&format!("ue{smf}"), &plan, smf, 0)?);
    }
    world.smfs[0] = None;
    let gone = || Ok(world.sessions()? == 1);
    eventually("the sessions of the lost SMF go", gone)?;
    ping_all(&attached[1]).context("a UE of the other SMF")?;
    Ok("its session went after the retention time, the other's stayed".to_owned())
}

fn memif_peer_restart(world: &mut World) -> Result<String> {
    const TIMES: u32 = 3;
    let attached = world.attach_plain("ue1", Family::Dual)?;
    both_ways(world, &attached)?;
    let flows = [
        flow_up(world, &attached, Shape::endless(1000))?,
        flow_down(world, &attached, Shape::endless(1000))?,
    ];
    for _ in 0..TIMES {
        flows.iter().try_for_each(|flow| more_of(flow, 300))?;
        let upf = world.upf.as_mut().context("the UPF is down")?;
        upf.without_peer(&world.upf_ns, || Ok(()))?;
    }
    flows.iter().try_for_each(|flow| more_of(flow, 300))?;
    for flow in flows {
        flow.stop();
        flow.finish_lossy()?;
    }
    both_ways(world, &attached)?;
    Ok(format!("{TIMES} times; both ways after each"))
}
