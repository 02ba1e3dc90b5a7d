//! Messages of nodes beside sessions: features, sets, load, release, PFDs.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rs_pfcp::ie::application_id::ApplicationId;
use rs_pfcp::ie::cause::CauseValue;
use rs_pfcp::ie::fseid::Fseid;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{Scenario, eventually};
use crate::dn;
use crate::flow::Shape;
use crate::ping::unanswered;
use crate::smf::{self, Answer, Refused, SessionPlan, Style, encode};
use crate::wait::NEVER;
use crate::world::{Family, UPF_N4, UPF_N4_V6, World};

/// CP Function Features (TS 29.244, 8.2.58).
const LOAD: u8 = 1;
const OVRL: u8 = 1 << 1;
const EPFAR: u8 = 1 << 2;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("n4-ipv6", "SMFs over IPv6 and IPv4 at once", n4_ipv6)
            .smfs(2)
            .n4_v6(),
        Scenario::new(
            "bundling",
            "several requests in one datagram, each answered once",
            bundling,
        ),
        Scenario::new(
            "session-set-deletion",
            "a set of sessions goes, or is handed over",
            session_set_deletion,
        )
        .smfs(2),
        Scenario::new(
            "load-control",
            "load is told, and overload refuses a share",
            load_control,
        )
        .alone()
        .line("[n4]", "overload_at_percent = 5"),
        Scenario::new(
            "association-release-graceful",
            "a shutdown that SMFs have time for",
            association_release_graceful,
        )
        .line("[n4]", "graceful_release_s = 40"),
        Scenario::new(
            "pfd-management",
            "PFDs are kept, replaced, removed and shown",
            pfd_management,
        ),
    ]
}

fn n4_ipv6(world: &mut World) -> Result<String> {
    let smf = world.start_smf_v6(1, SystemTime::now())?;
    smf.associate().context("association over IPv6")?;
    ensure!(smf.heartbeat()? > 0, "no heartbeat");
    // SMF 0 stays at IPv4; the other one is now the one at IPv6.
    world.smfs[1] = Some(smf);
    let plan = world.plan(Family::Dual, Style::Free5gc);
    let smf = world.smf(1)?;
    let prepared = smf.establishment(&plan)?;
    let answer = smf.request(MsgType::SessionEstablishmentRequest, Some(0), &prepared.ies)?;
    let f_seid: Fseid = answer.ie(IeType::Fseid)?.parse()?;
    ensure!(
        (f_seid.ipv4_address, f_seid.ipv6_address) == (Some(UPF_N4), Some(UPF_N4_V6)),
        "UP F-SEID {f_seid:?}"
    );
    smf.delete(&prepared.conclude(&plan, &answer)?)?;
    let mut attached = Vec::new();
    for smf in 0..2 {
        let plan = world.plan(Family::Dual, Style::Free5gc);
        let ue = world.attach(&format!("ue{smf}"), &plan, smf, smf)?;
        ping_all(&ue)?;
        attached.push(ue);
    }
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let peers = upf.get(&world.upf_ns, "/api/v1/peers")?.to_string();
    for address in ["10.100.0.2:8805", "[2001:db8:100::3]:8805"] {
        ensure!(peers.contains(address), "{address} is not among {peers}");
    }
    for ue in &attached {
        world.detach(ue)?;
    }
    Ok("a session over each; F-SEIDs hold both addresses".to_owned())
}

/// FO flag (TS 29.244, 7.2.2.1).
const FOLLOW_ON: u8 = 0x04;

fn bundling(world: &mut World) -> Result<String> {
    const BUNDLED: usize = 8;
    let attached = world.attach_plain("ue1", Family::V4)?;
    let plans: Vec<SessionPlan> = (0..BUNDLED)
        .map(|_| world.plan(Family::V4, Style::Open5gs))
        .collect();
    let smf = world.smf(0)?;
    let (mut datagram, mut expected) = (Vec::new(), Vec::new());
    for (index, plan) in plans.iter().enumerate() {
        let prepared = smf.establishment(plan)?;
        let sequence = smf.sequence();
        let request = MsgType::SessionEstablishmentRequest;
        let mut message = encode(request, Some(0), sequence, &prepared.ies);
        if index + 1 < BUNDLED {
            message[0] |= FOLLOW_ON;
        }
        datagram.extend(message);
        expected.push((sequence, prepared, plan));
    }
    let answers = smf.exchange_all(
        &expected.iter().map(|(s, ..)| *s).collect::<Vec<_>>(),
        &datagram,
    )?;
    let mut sessions = Vec::new();
    for ((_, prepared, plan), answer) in expected.iter().zip(&answers) {
        sessions.push(prepared.conclude(plan, &Answer::read(answer)?)?);
    }
    ensure!(
        world.sessions()? == 1 + BUNDLED as u64,
        "not every request of the bundle was served"
    );
    // The same bundle again is the same requests again.
    smf.send_raw(&datagram)?;
    // Requests are served in order.
    smf.heartbeat()?;
    ensure!(
        world.sessions()? == 1 + BUNDLED as u64,
        "a repeated bundle was served anew"
    );
    for session in &sessions {
        smf.delete(session)?;
    }
    ping_all(&attached)?;
    Ok(format!(
        "{BUNDLED} establishments in {} octets",
        datagram.len()
    ))
}

/// FQ-CSID by hand (figure 8.2.45-1): Node-ID Type 0 and one CSID, its node, the CSID, Node Type.
fn fq_csid(csid: u16) -> Ie {
    let mut value = vec![0x01, 10, 100, 0, 2];
    value.extend(csid.to_be_bytes());
    value.push(3);
    Ie::new(IeType::FqCsid, value)
}

fn session_set_deletion(world: &mut World) -> Result<String> {
    let mut attached = Vec::new();
    for (ue, csid) in [7, 7, 8].into_iter().enumerate() {
        let mut plan = world.plan(Family::V4, Style::Open5gs);
        plan.more = vec![fq_csid(csid)];
        attached.push(world.attach(&format!("ue{ue}"), &plan, 0, 0)?);
        ping_all(&attached[ue])?;
    }
    let smf = world.smf(0)?;
    let ies = [smf.node_id().to_ie(), fq_csid(7)];
    smf.request(MsgType::SessionSetDeletionRequest, None, &ies)?
        .accepted()?;
    eventually("the set goes", || Ok(world.sessions()? == 1))?;
    for ue in &attached[..2] {
        let server = dn::server_for(ue.address()?);
        unanswered(&ue.ue.netns, server, 2).context("a UE of the deleted set")?;
    }
    ping_all(&attached[2]).context("the UE of the other set")?;

    // The other set is handed to the second SMF, which has no session of it so far.
    let mut info = Vec::new();
    fq_csid(8).marshal_into(&mut info);
    Ie::new(IeType::AlternativeSmfIpAddress, vec![2, 10, 100, 0, 3]).marshal_into(&mut info);
    let ies = [
        smf.node_id().to_ie(),
        Ie::new(IeType::PfcpSessionChangeInfo, info),
    ];
    smf.request(MsgType::SessionSetModificationRequest, None, &ies)?
        .accepted()?;
    let heir = world.smf(1)?;
    let (gnb, teid) = (world.gnbs[0].address(), attached[2].teid);
    heir.connect(&attached[2].session, gnb, teid)
        .context("the SMF that took over")?;
    ping_all(&attached[2])?;
    Ok("2 of 3 sessions went by FQ-CSID, the third was handed over".to_owned())
}

/// The metric in Load or Overload Control Information, read by hand.
fn metric(answer: &Answer, group: IeType) -> Option<u8> {
    let group = answer.ies(group).next()?;
    let mut left = group.payload.as_slice();
    while let [t0, t1, l0, l1, rest @ ..] = left {
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        let value = rest.get(..length)?;
        if u16::from_be_bytes([*t0, *t1]) == IeType::Metric as u16 {
            return value.first().copied();
        }
        left = &rest[length..];
    }
    None
}

fn load_control(world: &mut World) -> Result<String> {
    let smf = world.smf(0)?;
    smf.associate_with(LOAD | OVRL, &[])
        .context("association")?;
    let plan = world.plan(Family::V4, Style::Open5gs);
    let smf = world.smf(0)?;
    let prepared = smf.establishment(&plan)?;
    let answer = smf.request(MsgType::SessionEstablishmentRequest, Some(0), &prepared.ies)?;
    let load = metric(&answer, IeType::LoadControlInformation);
    let load = load.context("load is not in the first answer")?;
    smf.delete(&prepared.conclude(&plan, &answer)?)?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    // Keep the control thread busy beyond 5 percent, and see that it says so.
    let recovery = world.smf(0)?.recovery_ie();
    let heartbeat = encode(MsgType::HeartbeatRequest, None, 1, &[recovery]);
    let deadline = Instant::now() + NEVER;
    let (mut shed, mut told) = (0, None);
    while shed == 0 {
        ensure!(Instant::now() < deadline, "no overload");
        let plan = world.plan(Family::V4, Style::Open5gs);
        let smf = world.smf(0)?;
        for _ in 0..4000 {
            smf.send_raw(&heartbeat)?;
        }
        let prepared = smf.establishment(&plan)?;
        let answer = smf.request(MsgType::SessionEstablishmentRequest, Some(0), &prepared.ies)?;
        told = metric(&answer, IeType::OverloadControlInformation).or(told);
        match answer.accepted() {
            Ok(()) => smf.delete(&prepared.conclude(&plan, &answer)?)?,
            Err(error) => {
                let refused = error.downcast_ref::<Refused>().map(|refused| refused.cause);
                ensure!(
                    refused == Some(CauseValue::PfcpEntityInCongestion),
                    "{error:#}"
                );
                shed += 1;
            }
        }
    }
    let told = told.context("overload was not announced")?;
    ensure!((1..=90).contains(&told), "reduction by {told} %");
    // Sessions that are there are served meanwhile, and once it is quiet everything is.
    ping_all(&attached)?;
    let quiet = || {
        // Answers are work, too.
        std::thread::sleep(Duration::from_millis(500));
        let status = world.upf.as_ref().context("the UPF is down")?;
        let status = status.get(&world.upf_ns, "/api/v1/status")?;
        Ok(status["overload_reduction_percent"] == 0)
    };
    eventually("the overload ends", quiet)?;
    let again = world.attach_plain("ue2", Family::V4)?;
    ping_all(&again)?;
    Ok(format!(
        "load {load} % at first; in overload asked for {told} % less, then quiet"
    ))
}

/// As configured.
const GRACE: Duration = Duration::from_secs(40);

fn association_release_graceful(world: &mut World) -> Result<String> {
    world.smf(0)?.associate_with(EPFAR, &[])?;
    let attached = world.attach_plain("ue1", Family::V4)?;
    ping_all(&attached)?;
    let plan = world.plan(Family::V4, Style::Open5gs);
    let mut upf = world.upf.take().context("the UPF is down")?;
    let began = Instant::now();
    upf.signal(Signal::SIGTERM)?;
    let smf = world.smf(0)?;
    let updates = || smf.requests(MsgType::AssociationUpdateRequest);
    eventually("both updates", || Ok(updates()?.len() == 2))?;
    let updates = updates()?;
    ensure!(
        updates[0].ie(IeType::PfcpauReqFlags)?.payload == [1],
        "PARPS first"
    );
    let release = updates[1].ie(IeType::PfcpAssociationReleaseRequest)?;
    ensure!(
        release.payload == [3],
        "SARR and URSS, not {:?}",
        release.payload
    );
    let period = updates[1].ie(IeType::GracefulReleasePeriod)?;
    ensure!(
        period.payload == [20],
        "20 times 2 s, not {:?}",
        period.payload
    );
    // Packets pass while the SMF takes its time, and new sessions are refused.
    let shape = Shape::lasting(500, 2);
    super::flow_up(world, &attached, shape)?
        .finish()?
        .whole("while releasing")?;
    let refused = smf.establish(&plan);
    ensure!(
        refused.is_err(),
        "a session was established during the release"
    );
    smf.delete(&attached.session)?;
    smf.release()?;
    upf.ended().context("ends once all is released")?;
    ensure!(
        began.elapsed() < GRACE,
        "it ended when the time was over, not when all was released"
    );
    Ok("prepared, asked for with 40 s, packets passed, then released".to_owned())
}

/// Application ID's PFDs by hand, each with a Flow Description and a Domain Name (figure 8.2.39-1).
fn application(name: &str, domains: &[&str]) -> Ie {
    let mut value = Vec::new();
    let id = ApplicationId::new(name).marshal().to_vec();
    Ie::new(IeType::ApplicationId, id).marshal_into(&mut value);
    for domain in domains {
        let mut contents = vec![0x05, 0];
        for member in ["permit out ip from 192.0.2.1 to assigned", domain] {
            contents.extend((member.len() as u16).to_be_bytes());
            contents.extend(member.as_bytes());
        }
        let mut context = Vec::new();
        Ie::new(IeType::PfdContents, contents).marshal_into(&mut context);
        Ie::new(IeType::PfdContext, context).marshal_into(&mut value);
    }
    Ie::new(IeType::ApplicationIdsPfds, value)
}

fn pfd_management(world: &mut World) -> Result<String> {
    let smf = world.smf(0)?;
    let manage = |ies: &[Ie]| {
        smf.request(MsgType::PfdManagementRequest, None, ies)
            .and_then(|answer| answer.accepted())
    };
    let shown = || {
        let upf = world.upf.as_ref().context("the UPF is down")?;
        let list = upf.get(&world.upf_ns, "/api/v1/pfds")?;
        let names = list.as_array().context("pfds is no list")?.iter();
        Ok::<_, anyhow::Error>(
            names
                .map(|application| {
                    let properties = application["properties"].as_array();
                    let name = application["application_id"].as_str().unwrap_or_default();
                    (name.to_owned(), properties.map_or(0, Vec::len))
                })
                .collect::<Vec<_>>(),
        )
    };
    manage(&[
        application("video", &["v1.example", "v2.example"]),
        application("chat", &["c.example"]),
    ])?;
    let both = [("chat".to_owned(), 2), ("video".to_owned(), 4)];
    ensure!(shown()? == both, "after provisioning: {:?}", shown()?);
    manage(&[application("video", &["v3.example"])])?;
    ensure!(shown()?[1].1 == 2, "after a replacement: {:?}", shown()?);
    manage(&[application("chat", &[])])?;
    ensure!(shown()?.len() == 1, "after a removal: {:?}", shown()?);
    manage(&[])?;
    ensure!(
        shown()?.is_empty(),
        "after the removal of all: {:?}",
        shown()?
    );
    let attached = world.attach_plain("ue1", Family::V4)?;
    ping_all(&attached)?;
    Ok(format!(
        "provisioned, replaced, removed at port {}",
        smf::PORT
    ))
}
