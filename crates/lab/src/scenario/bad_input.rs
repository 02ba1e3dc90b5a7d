//! A flood of broken PFCP and GTP-U beside a UE that must not notice.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use rs_pfcp::ie::node_id::NodeId;
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::message::MsgType;

use super::sessions::ping_all;
use super::{Scenario, eventually};
use crate::dn;
use crate::gtpu::{self, Container};
use crate::ping::{ping, start_ping};
use crate::smf::{self, Requested, Smf, Style};
use crate::ue::Addresses;
use crate::world::{Family, UPF_N3, UPF_N4, World, smf_address};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "bad-input",
            "120 000 broken messages leave no trace",
            bad_input,
        )
        .smfs(2)
        .forgetful()
        .long(),
    ]
}

const MESSAGES: u64 = 60_000;
/// Of each protocol. Fast enough to be over soon, slow enough to reach the UPF rather than a full
/// socket buffer.
const RATE_PER_S: u64 = 4_000;
/// More than allocators keep for later, far less than 120 000 leaked messages or sessions.
const GROWTH_KIB: u64 = 48 * 1024;

fn bad_input(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::Dual)?;
    ping_all(&attached)?;
    let attacker = attacker(world)?;
    let pfcp = pfcp_seeds(world, &attacker)?;
    let gtpu = gtpu_seeds(attached.session.uplink.1);

    // Once over before memory is compared: tables and caches fill at the first use.
    flood(world, &attacker, &pfcp, &gtpu, 5_000, 1)?;
    let before = world.upf()?.rss_kib()?;
    let server = dn::server_for(attached.address()?);
    let seconds = MESSAGES / RATE_PER_S;
    let background = start_ping(&attached.ue.netns, server, seconds as u32 * 20, 50)?;
    flood(world, &attacker, &pfcp, &gtpu, MESSAGES, 2)?;
    let pinged = background
        .finish()?
        .whole()
        .context("ping during the flood")?;
    world.upf()?.alive()?;

    // With the attacker gone, all goes that its lucky mutants set up, under whatever Node ID.
    drop(attacker);
    let gone = || Ok(world.sessions()? == 1);
    eventually("what mutants set up goes", gone)?;
    let attacker = start_attacker(world, SystemTime::now() + Duration::from_secs(3600))?;
    attacker
        .associate()
        .context("association after the flood")?;
    let after = world.upf()?.rss_kib()?;
    let growth = after.saturating_sub(before);
    ensure!(
        growth < GROWTH_KIB,
        "resident memory grew from {before} to {after} KiB"
    );

    let plan = world.plan(Family::Dual, Style::Free5gc);
    let valid = world
        .attach("after", &plan, 0, 1)
        .context("valid establishment after the flood")?;
    ping_all(&valid)?;
    ping_all(&attached)?;
    Ok(format!(
        "{} messages, {} of {} pings answered meanwhile, memory +{growth} KiB",
        2 * MESSAGES,
        pinged.received,
        pinged.sent
    ))
}

/// A node that no mutation of a few octets can take for another one.
fn start_attacker(world: &World, recovery: SystemTime) -> Result<Smf> {
    let upf = (UPF_N4, smf::PORT).into();
    let node_id = NodeId::new_fqdn("attacker.example");
    let address = smf_address(1).into();
    Smf::start(&world.smf_ns, address, node_id, recovery, upf)
}

fn attacker(world: &mut World) -> Result<Smf> {
    if let Some(honest) = world.smfs[1].take() {
        honest.release()?;
    }
    let attacker = start_attacker(world, SystemTime::now())?;
    attacker.associate()?;
    Ok(attacker)
}

/// Valid messages of each kind that the attacker may send.
fn pfcp_seeds(world: &mut World, attacker: &Smf) -> Result<Vec<Vec<u8>>> {
    let mut plan = world.plan(Family::Dual, Style::Open5gs);
    plan.addresses = Requested::Given(Addresses {
        v4: Some([10, 61, 200, 7].into()),
        v6: Some([0x2001, 0xdb8, 0x61, 0xc807, 0, 0, 0, 1].into()),
    });
    plan.flows = vec![smf::Flow {
        filter: "permit out 17 from 10.200.0.0/24 7000-7010 to assigned".to_owned(),
        precedence: 20,
        gates: smf::Gates::OPEN,
    }];
    let session = attacker.establish(&plan)?;
    let seid = Some(session.up_seid);
    let recovery = || RecoveryTimeStamp::new(SystemTime::now()).to_ie();
    let mut seeds = Vec::new();
    let mut add = |kind, seid, ies: &[_]| {
        seeds.push(smf::encode(kind, seid, attacker.sequence(), ies));
    };
    add(MsgType::HeartbeatRequest, None, &[recovery()]);
    add(MsgType::HeartbeatResponse, None, &[recovery()]);
    add(
        MsgType::AssociationSetupRequest,
        None,
        &[attacker.node_id().to_ie(), recovery()],
    );
    add(
        MsgType::AssociationReleaseRequest,
        None,
        &[attacker.node_id().to_ie()],
    );
    for style in Style::ALL {
        plan.style = style;
        let ies = attacker.establishment(&plan)?.ies;
        add(MsgType::SessionEstablishmentRequest, Some(0), &ies);
        add(MsgType::SessionModificationRequest, seid, &ies[2..]);
    }
    let to_gnb = smf::forward_downlink([10, 3, 0, 11].into(), 0x77);
    add(MsgType::SessionModificationRequest, seid, &[to_gnb]);
    add(MsgType::SessionDeletionRequest, seid, &[]);
    add(MsgType::SessionReportResponse, seid, &[]);
    Ok(seeds)
}

/// Valid messages of each kind, for a tunnel that nobody has and for `teid`.
fn gtpu_seeds(teid: u32) -> Vec<Vec<u8>> {
    let inner = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 61, 200, 7, 10, 200, 0, 1,
    ];
    let mut packet = inner.to_vec();
    packet.extend([0x1f, 0x90, 0x1f, 0x90, 0, 8, 0, 0]);
    let mut seeds = vec![
        gtpu::echo_request(1),
        gtpu::echo_response(1),
        gtpu::error_indication(0x77, UPF_N3),
    ];
    for (sequence, container) in [
        (None, None),
        (Some(9), None),
        (None, Some(Container::uplink(9))),
        (Some(9), Some(Container::uplink(1))),
    ] {
        for (kind, body) in [
            (gtpu::message::G_PDU, &packet[..]),
            (gtpu::message::END_MARKER, &[]),
        ] {
            for teid in [teid, 0x1234_5678] {
                let mut seed = Vec::new();
                gtpu::write(&mut seed, kind, teid, sequence, container, body);
                seeds.push(seed);
            }
        }
    }
    seeds
}

/// Sends `messages` of each protocol at the set rate.
fn flood(
    world: &World,
    attacker: &Smf,
    pfcp: &[Vec<u8>],
    gtpu: &[Vec<u8>],
    messages: u64,
    seed: u64,
) -> Result<()> {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut last = Vec::new();
    let began = Instant::now();
    for sent in 0..messages {
        let message = next_message(&mut chance, pfcp, &mut last);
        attacker.send_raw(&message)?;
        let mut datagram = gtpu[chance.below(gtpu.len())].clone();
        mutate(&mut chance, &mut datagram);
        world.gnbs[chance.below(2)].send_raw(UPF_N3, &datagram)?;
        let due = began + Duration::from_micros(sent * 1_000_000 / RATE_PER_S);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    // Still answering, if slowly at most: the last of them is behind us then.
    ping(&world.smf_ns, UPF_N4.into(), 1, 100)?
        .whole()
        .context("the UPF's N4 address")?;
    world
        .smf(0)?
        .heartbeat()
        .context("heartbeat of the honest SMF")?;
    Ok(())
}

/// A mutant, or now and then the message before last once more: doubled and out of order.
fn next_message(chance: &mut Chance, seeds: &[Vec<u8>], last: &mut Vec<Vec<u8>>) -> Vec<u8> {
    if last.len() > 16 && chance.below(10) == 0 {
        return last.swap_remove(chance.below(16));
    }
    let mut message = seeds[chance.below(seeds.len())].clone();
    if chance.below(4) > 0 {
        // A sequence number of its own, or the answer would come from the cache of repeats.
        let at = if message[0] & 1 == 1 { 12 } else { 4 };
        for octet in &mut message[at..at + 3] {
            *octet = chance.next() as u8;
        }
    }
    mutate(chance, &mut message);
    if last.len() < 64 {
        last.push(message.clone());
    }
    message
}

/// Changes, cuts, lengthens or repeats a part, one to four times.
fn mutate(chance: &mut Chance, message: &mut Vec<u8>) {
    const INTERESTING: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, 0x20];
    for _ in 0..=chance.below(4) {
        if message.is_empty() {
            message.push(chance.next() as u8);
        }
        let at = chance.below(message.len());
        match chance.below(8) {
            0 => message.truncate(at),
            1 => message.extend((0..chance.below(64)).map(|n| n as u8)),
            2 => {
                let part = message[at..].to_vec();
                message.extend(part);
            }
            3 => drop(message.drain(at..(at + 1 + chance.below(8)).min(message.len()))),
            4 => message[at] = INTERESTING[chance.below(INTERESTING.len())],
            5 => message[at] ^= 1 << chance.below(8),
            _ => message[at] = chance.next() as u8,
        }
    }
    // Now and then more than a link carries in one piece.
    if chance.below(200) == 0 {
        message.resize(2_000 + chance.below(14_000), 0xa5);
    } else {
        message.truncate(1400);
    }
}

/// xorshift64*: the same flood every time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
