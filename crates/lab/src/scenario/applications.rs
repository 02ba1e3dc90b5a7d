//! Applications that PDIs name, and PFDs that say what they are (TS 29.244, 6.2.5).

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::Scenario;
use super::rules::by_ports;
use super::sessions::refused;
use crate::smf::{Gates, Smf, Style};
use crate::world::{Attached, Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "application-by-flow",
        "an application is what its PFDs say, whenever they change",
        application_by_flow,
    )]
}

/// Application ID's PFDs by hand: each PFD a Flow Description, or a Domain Name (figure 8.2.39-1).
fn pfds(name: &str, flows: &[&str], domains: &[&str]) -> Ie {
    const FLOW: u8 = 1;
    const DOMAIN: u8 = 4;
    let mut value = Vec::new();
    let id = ApplicationId::new(name).marshal().to_vec();
    Ie::new(IeType::ApplicationId, id).marshal_into(&mut value);
    let flows = flows.iter().map(|flow| (FLOW, flow));
    let domains = domains.iter().map(|domain| (DOMAIN, domain));
    for (kind, text) in flows.chain(domains) {
        let mut contents = vec![kind, 0];
        contents.extend((text.len() as u16).to_be_bytes());
        contents.extend(text.as_bytes());
        let mut context = Vec::new();
        Ie::new(IeType::PfdContents, contents).marshal_into(&mut context);
        Ie::new(IeType::PfdContext, context).marshal_into(&mut value);
    }
    Ie::new(IeType::ApplicationIdsPfds, value)
}

fn manage(smf: &Smf, pfds: Ie) -> Result<()> {
    let answer = smf.request(MsgType::PfdManagementRequest, None, &[pfds])?;
    answer.accepted()
}

/// Which of the ports nothing comes through to, either way; all comes through to the others.
fn closed_ports(world: &World, attached: &Attached, closed: &[u16]) -> Result<()> {
    by_ports(
        world,
        attached,
        &[7000, 7001, 7002].map(|port| (port, !closed.contains(&port))),
    )
}

fn application_by_flow(world: &mut World) -> Result<String> {
    const FIRST: &str = "permit out 17 from 10.200.0.1 7000 to assigned";
    const SECOND: &str = "permit out 17 from 10.200.0.0/24 7001-7002 to assigned";
    let plan = world.plan(Family::V4, Style::Open5gs);
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let smf = world.smf(0)?;
    let add = || smf.add_application(&attached.session, 0, "game", Gates::CLOSED);
    ensure!(add().is_err(), "an application without PFDs was accepted");
    closed_ports(world, &attached, &[]).context("after the refusal")?;

    manage(smf, pfds("game", &[FIRST], &[]))?;
    add()?;
    closed_ports(world, &attached, &[7000])?;
    manage(smf, pfds("game", &[FIRST, SECOND], &[]))?;
    closed_ports(world, &attached, &[7000, 7001, 7002]).context("with another PFD")?;
    manage(smf, pfds("game", &[SECOND], &[]))?;
    closed_ports(world, &attached, &[7001, 7002]).context("without the first PFD")?;

    let domain = manage(smf, pfds("game", &[], &["game.example"]));
    refused(domain, CauseValue::ServiceNotSupported)
        .context("a domain in the place of flows that a PDR goes by")?;
    closed_ports(world, &attached, &[7001, 7002]).context("after the refusal")?;
    manage(smf, pfds("game", &[], &[]))?;
    closed_ports(world, &attached, &[]).context("without PFDs")?;
    smf.remove_flow(&attached.session, 0)?;
    closed_ports(world, &attached, &[]).context("without the PDRs")?;
    Ok("two PFDs came and went under a session; a domain was refused".to_owned())
}
