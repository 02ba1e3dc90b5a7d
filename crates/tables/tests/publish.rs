//! Tables against rules: random sessions come, change and go, and every packet meets the
//! verdict of the reference interpreter.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers")]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{Compiled, Counters, Key, PdrId, Resource, Select, Tables as _};
use nexthop::NextHopTables;
use proptest::prelude::*;
use session::config::PredefinedRule;
use session::rules::{PacketRules, Rules};
use session::testing;
use session::testing::reference::{Fate, Verdict as Judgement, judge};
use tables::testing::{furnish, furnish_policy, hop, mac, ports, resolve_peers};
use tables::{Handle, Layout, Options, Run, Tables, Verdict};
use testkit::packets::{self, Arrival, Packet, arrival, forwarded, inner, read_marked_gpdu};

const SEID: u64 = 7;

fn layout() -> Layout {
    let mut layout = Layout::for_sessions(64, 2, 4);
    // Scarce, so that grace periods have to be waited for.
    layout.entries = 40;
    layout.rules = 256;
    layout.exts = 24;
    layout.policies = 1;
    layout
}

fn reason(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Drop(reason) => reason.name(),
        _ => "",
    }
}

/// Does the run fit the judgement? The PDR that forwarded, if one did.
fn check(
    packet: &Packet,
    judgement: &Judgement,
    run: &Run,
) -> Result<Option<PdrId>, TestCaseError> {
    let ip = inner(packet);
    let Judgement::Pdr {
        id,
        fate,
        limits_kbps,
        packet_rate,
        ..
    } = judgement
    else {
        let fits = match packet.arrival {
            Arrival::Tunnel { .. } => {
                run.verdict == Verdict::Answer
                    || [
                        "no_pdr",
                        "ue_spoofed",
                        "qfi_mismatch",
                        "error_indication_rate",
                    ]
                    .contains(&reason(run.verdict))
            }
            Arrival::Network { .. } => {
                run.verdict == Verdict::Pass
                    || ["no_pdr", "unknown_ue"].contains(&reason(run.verdict))
            }
        };
        prop_assert!(
            fits,
            "no PDR, but {:?} {}",
            run.verdict,
            reason(run.verdict)
        );
        return Ok(None);
    };
    let dropped = match fate {
        Fate::Dropped => "far_drop",
        Fate::NoTunnel => "no_tunnel",
        Fate::Buffered => "far_buffer",
        Fate::GateClosed => "gate_closed",
        _ if limits_kbps.first() == Some(&0) => "rate",
        // The time units of others are over when the next packet comes.
        _ if packet_rate.is_some_and(|rate| rate.packets == 0) => "packet_rate",
        _ => "",
    };
    prop_assert_eq!(reason(run.verdict), dropped);
    match fate {
        _ if !dropped.is_empty() => return Ok(None),
        Fate::Routed(ni) => {
            prop_assert_eq!(run.verdict, Verdict::Redirect(u32::from(ni.0) + 1));
            prop_assert_eq!(&run.frame[..6], &mac(u32::from(ni.0) + 1).0);
            prop_assert_eq!(&run.frame[14..], &forwarded(&ip));
        }
        Fate::Steered(ni, _) => {
            prop_assert_eq!(run.verdict, Verdict::Redirect(2 - u32::from(ni.0)));
            prop_assert_eq!(&run.frame[14..], &forwarded(&ip));
        }
        Fate::Tunnelled(teid, peer, container) => {
            prop_assert_eq!(run.verdict, Verdict::Redirect(0));
            let expected = match packet.arrival {
                Arrival::Tunnel { .. } => ip,
                Arrival::Network { .. } => forwarded(&ip),
            };
            let container = container.map(|(qfi, marks)| (qfi.get(), marks));
            let expected = (*peer, *teid, container, &expected[..]);
            prop_assert_eq!(read_marked_gpdu(&run.frame), expected);
        }
        Fate::InUdp(port, peer) => {
            prop_assert_eq!(run.verdict, Verdict::Redirect(0));
            let expected = (*peer, *port as u16, &forwarded(&ip)[..]);
            prop_assert_eq!(packets::read_udp(&run.frame), expected);
        }
        other => prop_assert!(false, "{:?}", other),
    }
    Ok(Some(*id))
}

/// From a UE to a UE address of the same network instance: the sender's PDR, and the packet as the receiver's
/// PDRs meet it. `None`: it ends here, or goes out to the data network.
fn to_a_ue(
    packet: &Packet,
    judgement: &Judgement,
    judge: &dyn Fn(&Packet) -> Judgement,
    run: &Run,
) -> Option<(PdrId, Packet)> {
    let Judgement::Pdr {
        id,
        fate: Fate::Routed(ni) | Fate::Steered(ni, _),
        limits_kbps,
        packet_rate,
        ..
    } = judgement
    else {
        return None;
    };
    let stays = !matches!(packet.arrival, Arrival::Tunnel { .. })
        || limits_kbps.contains(&0)
        || packet_rate.is_some_and(|rate| rate.packets == 0);
    let mut onward = *packet;
    onward.arrival = Arrival::Network { ni: *ni };
    let nobody = ["no_pdr", "unknown_ue"].contains(&reason(run.verdict));
    let taken = !matches!(judge(&onward), Judgement::NoPdr) || nobody;
    (!stays && taken).then_some((*id, onward))
}

#[derive(Clone, Debug)]
enum Step {
    /// With PDRs that do not hold at present.
    Publish((Rules, Vec<PredefinedRule>), Vec<PdrId>, Vec<Packet>),
    Withdraw(Vec<Packet>),
    Maintain,
}

fn dormant() -> impl Strategy<Value = Vec<PdrId>> {
    let one = (1u16..8).prop_map(PdrId);
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(one, 1..6)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let packets = || prop::collection::vec(testing::packet(), 1..24);
    let step = prop_oneof![
        6 => (testing::rules(), dormant(), packets())
            .prop_map(|(rules, dormant, packets)| Step::Publish((rules, Vec::new()), dormant, packets)),
        2 => (testing::activating(), dormant(), packets())
            .prop_map(|(rules, dormant, packets)| Step::Publish(rules, dormant, packets)),
        2 => packets().prop_map(Step::Withdraw),
        1 => Just(Step::Maintain),
    ];
    prop::collection::vec(step, 1..12)
}

struct Site {
    tables: Tables,
    handle: Handle,
    n3_hop: u32,
    now_ns: u64,
    counted: HashMap<PdrId, Counters>,
}

impl Site {
    fn new() -> Self {
        let mut tables = Tables::host(&layout(), &ports(), &Options::default()).unwrap();
        furnish(&mut tables);
        furnish_policy(&mut tables);
        let n3_hop = tables.alloc_nexthop(&hop(0)).unwrap();
        let handle = Handle::default();
        Self {
            tables,
            handle,
            n3_hop,
            now_ns: 1_000_000_000,
            counted: HashMap::new(),
        }
    }

    fn publish(&mut self, compiled: &Compiled) -> Result<(), TestCaseError> {
        self.tables
            .publish(&mut self.handle, compiled)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        resolve_peers(&mut self.tables, self.n3_hop);
        self.counted
            .retain(|pdr, _| compiled.entries.iter().any(|entry| entry.pdr == *pdr));
        Ok(())
    }

    fn send(
        &mut self,
        packet: &Packet,
        judge: &dyn Fn(&Packet) -> Judgement,
    ) -> Result<(), TestCaseError> {
        // Long enough after the packet before that the slowest meter is idle again.
        self.now_ns += 100_000_000_000;
        let (port, frame) = arrival(packet);
        let run = self.tables.run(port, &frame, self.now_ns).unwrap();
        let judgement = judge(packet);
        if let Some((sender, onward)) = to_a_ue(packet, &judgement, judge, &run) {
            if reason(run.verdict) != "unknown_ue" {
                self.count(sender, packet);
            }
            if let Some(receiver) = check(&onward, &judge(&onward), &run)? {
                self.count(receiver, packet);
            }
        } else if let Some(pdr) = check(packet, &judgement, &run)? {
            self.count(pdr, packet);
        }
        Ok(())
    }

    fn count(&mut self, pdr: PdrId, packet: &Packet) {
        let counted = self.counted.entry(pdr).or_default();
        counted.packets += 1;
        counted.bytes += inner(packet).len() as u64;
    }

    /// Its UEs' addresses lead to the session, and those of nobody to none.
    fn check_owners(&self, keys: &[(Key, Select)]) -> Result<(), TestCaseError> {
        for host in 0..8u32 {
            let v4 = IpAddr::V4(Ipv4Addr::from(0x0a3c_0000 + host));
            let of_key = |key: &Key| match *key {
                Key::Ue4 { addr, .. } => v4 == addr,
                _ => false,
            };
            let is_there = keys.iter().any(|(key, _)| of_key(key));
            let owners = is_there.then_some(SEID);
            prop_assert_eq!(self.tables.owners_of_ue(v4), Vec::from_iter(owners));
        }
        for (key, _) in keys {
            let addr: IpAddr = match *key {
                Key::Ue4 { addr, .. } => addr.into(),
                Key::Ue6 { prefix, .. } => Ipv6Addr::from(u128::from(prefix) | 0xffff).into(),
                Key::Teid { .. } | Key::Prefix { .. } => continue,
            };
            prop_assert_eq!(self.tables.owners_of_ue(addr), vec![SEID]);
        }
        Ok(())
    }

    fn check_counters(&self) -> Result<(), TestCaseError> {
        for (&pdr, counted) in &self.counted {
            let Counters { packets, bytes, .. } = self.tables.counters(&self.handle, pdr);
            prop_assert_eq!(
                (packets, bytes),
                (counted.packets, counted.bytes),
                "{:?}",
                pdr
            );
        }
        Ok(())
    }

    /// What the session holds is what is used, of tables that were used so far without it.
    fn check_holding(&self, empty: &[(&'static str, u64)]) -> Result<(), TestCaseError> {
        let held = self.tables.holds(&self.handle);
        for of in Resource::OF_TABLES {
            let used = |all: &[(&'static str, u64)]| {
                let found = all.iter().find(|(table, _)| *table == of.name());
                found.map_or(0, |(_, used)| *used)
            };
            let used = used(&self.used()) - used(empty);
            prop_assert_eq!(held.of(of), used, "{}", of.name());
        }
        Ok(())
    }

    /// A session that may come to hold no more does not, and is refused by the name of what it would hold more of.
    fn check_bounds(&mut self, compiled: &Compiled) -> Result<(), TestCaseError> {
        let counted = Resource::OF_TABLES;
        let before = self.tables.holds(&self.handle);
        let bounded = Compiled {
            more: counted.map(|of| (of, 0)).to_vec(),
            ..compiled.clone()
        };
        let outcome = self.tables.publish(&mut self.handle, &bounded);
        let within = self.tables.holds(&self.handle);
        if outcome.is_err() {
            prop_assert_eq!(&within, &before);
        }
        for of in counted {
            prop_assert!(within.of(of) <= before.of(of), "{}", of.name());
        }
        self.publish(compiled)?;
        let after = self.tables.holds(&self.handle);
        match outcome {
            // Once it is there, keys may share a list that they could not while it replaced another one.
            Ok(()) => {
                for of in counted {
                    prop_assert!(after.of(of) <= within.of(of), "{}", of.name());
                }
            }
            Err(why) if why.is_kept => {
                let of = counted
                    .into_iter()
                    .find(|of| of.name() == why.table)
                    .unwrap();
                prop_assert!(after.of(of) > before.of(of), "{}", why);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// All but UE pages: one that an address needed once stays.
    fn used(&self) -> Vec<(&'static str, u64)> {
        self.tables
            .fill()
            .iter()
            .filter(|fill| fill.table != "ue_pages")
            .map(|fill| (fill.table, fill.used))
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tables_do_what_rules_say(steps in steps()) {
        let config = testing::config();
        let mut site = Site::new();
        let empty = site.used();
        for step in steps {
            match step {
                Step::Publish((rules, predefined), dormant, packets) => {
                    let rules = PacketRules {
                        dormant: &dormant,
                        predefined: &predefined,
                        ..rules.for_packets()
                    };
                    let compiled = match testing::compile(rules, &config) {
                        Err(_) if !predefined.is_empty() => continue,
                        other => other.map_err(|refusal| TestCaseError::fail(format!("{refusal:?}")))?,
                    };
                    let compiled = Compiled { seid: SEID, ..compiled };
                    let published = site.check_bounds(&compiled);
                    // Each rule of a PDR is an entry, and there may not be room for all.
                    if published.is_err() && !predefined.is_empty() {
                        continue;
                    }
                    published?;
                    for packet in &packets {
                        site.send(packet, &|packet| judge(rules, packet))?;
                    }
                    site.check_counters()?;
                    site.check_owners(&compiled.keys)?;
                }
                Step::Withdraw(packets) => {
                    site.tables.withdraw(&mut site.handle);
                    site.counted.clear();
                    prop_assert_eq!(&site.handle, &Handle::default());
                    site.check_owners(&[])?;
                    for packet in &packets {
                        site.send(packet, &|_| Judgement::NoPdr)?;
                    }
                }
                Step::Maintain => {
                    site.tables.maintain();
                    site.check_counters()?;
                    site.check_holding(&empty)?;
                }
            }
        }
        site.tables.withdraw(&mut site.handle);
        site.tables.maintain();
        prop_assert_eq!(site.used(), empty, "lines are lost");
    }

    /// A change that does not fit leaves no trace.
    #[test]
    fn a_refused_change_leaves_no_trace(
        held in testing::rules(),
        refused in testing::rules(),
        packets in prop::collection::vec(testing::packet(), 16),
        spare in 0u32..4,
    ) {
        let config = testing::config();
        let compile = |rules: &Rules| testing::compile(rules.for_packets(), &config)
            .map_err(|refusal| TestCaseError::fail(format!("{refusal:?}")));
        let held_compiled = compile(&held)?;
        // Leave as many entries as the session needs and `spare` more.
        let mut site = Site::new();
        site.publish(&held_compiled)?;
        site.tables.maintain();
        let used = site.tables.fill().iter().find(|fill| fill.table == "entries").map(|fill| fill.used);
        let layout = Layout { entries: used.unwrap_or(0) as u32 + spare, ..layout() };
        site.tables = Tables::host(&layout, &ports(), &Options::default()).unwrap();
        site.handle = Handle::default();
        furnish(&mut site.tables);
        furnish_policy(&mut site.tables);
        site.n3_hop = site.tables.alloc_nexthop(&hop(0)).unwrap();
        site.publish(&held_compiled)?;
        site.tables.maintain();
        let before = site.used();
        let handle = site.handle.clone();
        let refused_compiled = compile(&refused)?;
        let taken = site.tables.publish(&mut site.handle, &refused_compiled);
        resolve_peers(&mut site.tables, site.n3_hop);
        let rules = if taken.is_ok() { &refused } else { &held };
        site.tables.maintain();
        if taken.is_err() {
            prop_assert_eq!(site.used(), before);
            prop_assert_eq!(&site.handle, &handle);
        }
        for packet in &packets {
            site.send(packet, &|packet| judge(rules.for_packets(), packet))?;
        }
    }
}
