//! Compiled rules against the reference interpreter, by an evaluator of [`Compiled`] that shares
//! nothing with either.

use std::net::IpAddr;

use compiled::{
    Action, Compiled, Direction, Duplicate, DuplicateHeader, Entry, Flow, Key, Limit, Marks, PdrId,
    QerId, Qfi, QfiSet, Select, SharedMeter, UeAddresses, UeEnd,
};
use pfcp::Cause;
use proptest::prelude::*;
use testkit::packets::{Arrival, Packet};

use crate::rules::PacketRules;
use crate::rules::config::Config;
use crate::testing;
use crate::testing::reference::{Fate, Verdict, judge};

fn config() -> Config {
    Config {
        n3: vec![
            [10, 3, 0, 1].into(),
            [0x2001, 0xdb8, 3, 0, 0, 0, 0, 1].into(),
        ],
        ..Config::default()
    }
}

fn evaluate(compiled: &Compiled, packet: &Packet) -> Verdict {
    let is_key = |key: &Key| match (key, packet.arrival, packet.dst) {
        (Key::Teid { teid, .. }, Arrival::Tunnel { teid: of, .. }, _) => *teid == of,
        (Key::Ue4 { ni, addr }, Arrival::Network { ni: of }, IpAddr::V4(dst)) => {
            *ni == of && *addr == dst
        }
        (Key::Ue6 { ni, prefix }, Arrival::Network { ni: of }, IpAddr::V6(dst)) => {
            *ni == of && u128::from(*prefix) >> 64 == u128::from(dst) >> 64
        }
        (Key::Prefix { ni, net }, Arrival::Network { ni: of }, dst) => {
            assert_ne!(net.prefix_len(), if dst.is_ipv4() { 32 } else { 64 });
            *ni == of && net.contains(&dst)
        }
        _ => false,
    };
    let mut keys = compiled.keys.iter().filter(|(key, _)| is_key(key));
    let longest = keys.by_ref().max_by_key(|(key, _)| length(key));
    let Some((longest, select)) = longest else {
        return Verdict::NoPdr;
    };
    let stands = compiled.keys.iter().filter(|(key, _)| key == longest);
    assert_eq!(stands.count(), 1, "a key stands twice");
    let found = match *select {
        Select::One(entry) => {
            Some(entry).filter(|&e| suits(compiled, &compiled.entries[e], packet))
        }
        Select::List { first, len } => {
            assert!((1..=64).contains(&len));
            let list = &compiled.filters[first..first + len];
            let hit = list.iter().find(|f| {
                f.flow.is_none_or(|flow| fits(&flow, packet))
                    && carries(f.qfis, packet)
                    && suits(compiled, &compiled.entries[f.entry], packet)
            });
            hit.map(|f| f.entry)
        }
    };
    found.map_or(Verdict::NoPdr, |entry| {
        verdict(compiled, &compiled.entries[entry], packet)
    })
}

/// Bits of a destination that a key asks for.
fn length(key: &Key) -> u8 {
    match key {
        Key::Teid { .. } => 0,
        Key::Ue4 { .. } => 32,
        Key::Ue6 { .. } => 64,
        Key::Prefix { net, .. } => net.prefix_len(),
    }
}

fn suits(compiled: &Compiled, entry: &Entry, packet: &Packet) -> bool {
    let Arrival::Tunnel { qfi, .. } = packet.arrival else {
        return true;
    };
    let is_ue = |ue: UeAddresses, end: IpAddr| {
        let own = match end {
            IpAddr::V4(end) => ue.v4 == Some(end),
            IpAddr::V6(end) => ue.v6.is_some_and(|net| net.contains(&end)),
        };
        own || entry.framed && compiled.framed.iter().any(|net| net.contains(&end))
    };
    if let Some(relay) = &entry.relay {
        assert!(entry.ue.is_none());
        let own = relay.ue.is_none_or(|(ue, end)| match end {
            UeEnd::Source => is_ue(ue, packet.src),
            UeEnd::Destination => is_ue(ue, packet.dst),
        });
        return own && (relay.qfi.is_none() || relay.qfi == qfi);
    }
    entry.ue.is_none_or(|ue| is_ue(ue, packet.src)) && (entry.qfi.is_none() || entry.qfi == qfi)
}

fn carries(qfis: QfiSet, packet: &Packet) -> bool {
    match packet.arrival {
        Arrival::Tunnel { qfi: Some(qfi), .. } => qfis.is_empty() || qfis.contains(qfi),
        _ => qfis.is_empty(),
    }
}

fn fits(flow: &Flow, packet: &Packet) -> bool {
    let port = |range: Option<(u16, u16)>, port: Option<u16>| match (range, port) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some((low, high)), Some(port)) => (low..=high).contains(&port),
    };
    flow.proto.is_none_or(|proto| proto == packet.proto)
        && flow.src.is_none_or(|net| net.contains(&packet.src))
        && flow.dst.is_none_or(|net| net.contains(&packet.dst))
        && port(flow.src_ports, packet.ports.map(|p| p.0))
        && port(flow.dst_ports, packet.ports.map(|p| p.1))
        && flow
            .tos
            .is_none_or(|(tos, mask)| packet.tos & mask == tos & mask)
        && flow.spi.is_none_or(|spi| packet.spi == Some(spi))
        && flow
            .label
            .is_none_or(|label| packet.dst.is_ipv6() && packet.label == label)
}

/// Of ours, or the one that the packet came with.
fn container(entry: &Entry, brought: Option<Qfi>) -> Option<(Qfi, Marks)> {
    let own = entry.qfi.map(|qfi| (qfi, entry.marks));
    own.or(brought.map(|qfi| (qfi, Marks::default())))
}

fn number_and_peer(duplicate: &Duplicate) -> (u32, IpAddr) {
    assert_eq!(duplicate.peer.is_ipv4(), duplicate.local.is_ipv4());
    let number = match duplicate.header {
        DuplicateHeader::GtpU { teid } => teid,
        DuplicateHeader::Udp { port } => port.into(),
    };
    (number, duplicate.peer)
}

fn verdict(compiled: &Compiled, entry: &Entry, packet: &Packet) -> Verdict {
    let brought = match (packet.arrival, &entry.relay) {
        (Arrival::Tunnel { qfi, .. }, Some(relay)) if !relay.remove_container => qfi,
        _ => None,
    };
    let fate = match entry.action {
        Action::Drop => Fate::Dropped,
        Action::NoTunnel => Fate::NoTunnel,
        Action::Buffer => Fate::Buffered,
        Action::GateClosed => Fate::GateClosed,
        Action::TunnelGone | Action::QuotaExhausted => panic!("rules alone use no quota up"),
        Action::Route { ni } => Fate::Routed(ni),
        Action::Steer { ni, policy } => Fate::Steered(ni, policy),
        Action::Tunnel { teid, peer, local } => {
            assert_eq!(peer.is_ipv4(), local.is_ipv4());
            Fate::Tunnelled(teid, peer, container(entry, brought))
        }
        Action::Udp { port, peer, local } => {
            assert_eq!(peer.is_ipv4(), local.is_ipv4());
            Fate::InUdp(port.into(), peer)
        }
    };
    assert!(entry.shared_meters.len() <= 4);
    let shared = entry.shared_meters.iter().map(|&m| {
        assert_eq!(compiled.meters[m].direction, entry.direction);
        match compiled.meters[m].limit {
            Limit::Bits(rate) => rate,
            _ => panic!("no bit rate among the bit rates"),
        }
    });
    let mut limits_kbps: Vec<u64> = shared
        .chain(entry.meter)
        .map(|rate| rate.bps / 1000)
        .collect();
    limits_kbps.sort_unstable();
    Verdict::Pdr {
        id: entry.pdr,
        fate,
        limits_kbps,
        packet_rate: entry.packet_meter.map(|m| match compiled.meters[m].limit {
            Limit::Packets(rate) => rate,
            _ => panic!("no packet rate"),
        }),
        duplicates: entry.duplicates.iter().map(number_and_peer).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn packets_meet_the_same_in_the_tables_as_in_the_rules(
        rules in testing::rules(),
        dormant in prop::sample::subsequence((1..8).map(PdrId).collect::<Vec<_>>(), 0..6),
        packets in prop::collection::vec(testing::packet(), 1..60),
    ) {
        let rules = PacketRules { dormant: &dormant, ..rules.for_packets() };
        let compiled = testing::compile(rules, &config()).unwrap();
        for packet in packets {
            prop_assert_eq!(evaluate(&compiled, &packet), judge(rules, &packet), "{:?}", packet);
        }
    }

    #[test]
    fn packets_meet_the_same_predefined_rules_in_the_tables(
        (rules, predefined) in testing::activating(),
        dormant in prop::sample::subsequence((1..8).map(PdrId).collect::<Vec<_>>(), 0..6),
        packets in prop::collection::vec(testing::packet(), 1..60),
    ) {
        let rules = PacketRules { dormant: &dormant, predefined: &predefined, ..rules.for_packets() };
        let compiled = match testing::compile(rules, &config()) {
            Err(refusal) if refusal.cause == Cause::NO_RESOURCES_AVAILABLE => return Ok(()),
            other => other.unwrap(),
        };
        for packet in packets {
            prop_assert_eq!(evaluate(&compiled, &packet), judge(rules, &packet), "{:?}", packet);
        }
    }

    #[test]
    fn packets_are_of_the_same_applications_in_the_tables(
        (rules, predefined, applications) in testing::naming(),
        packets in prop::collection::vec(testing::packet(), 1..60),
    ) {
        let rules = PacketRules {
            predefined: &predefined,
            applications: &applications,
            ..rules.for_packets()
        };
        let compiled = match testing::compile(rules, &config()) {
            Err(refusal) if refusal.cause == Cause::NO_RESOURCES_AVAILABLE => return Ok(()),
            other => other.unwrap(),
        };
        for packet in packets {
            prop_assert_eq!(evaluate(&compiled, &packet), judge(rules, &packet), "{:?}", packet);
        }
    }

    /// Two filters combine into one that only packets of both fit, or into none where there are no such packets.
    #[test]
    fn of_two_flows_packets_meet_what_both_ask_for(
        rules in testing::rules(),
        packets in prop::collection::vec(testing::packet(), 1..60),
    ) {
        let filters = rules.pdrs.iter().flat_map(|pdr| pdr.pdi.filters());
        let flows: Vec<Flow> = filters.flat_map(|f| f.asks.flows(Direction::Uplink)).collect();
        for (a, b) in flows.iter().flat_map(|a| flows.iter().map(move |b| (a, b))) {
            let both = super::both::both(*a, *b);
            for packet in &packets {
                let expected = fits(a, packet) && fits(b, packet);
                prop_assert_eq!(both.is_some_and(|both| fits(&both, packet)), expected);
            }
        }
    }

    /// A meter is shared exactly when its QER limits several PDRs of a direction, and it is the
    /// same one for all of them.
    #[test]
    fn a_qer_has_one_bucket_per_direction(rules in testing::rules()) {
        let compiled = testing::compile(rules.for_packets(), &config()).unwrap();
        let kind = |m: &SharedMeter| (m.qer, m.direction, matches!(m.limit, Limit::Packets(_)));
        for (i, meter) in compiled.meters.iter().enumerate() {
            prop_assert!(!compiled.meters[..i].iter().any(|m| kind(m) == kind(meter)));
        }
        for (pdr, entry) in rules.pdrs.iter().zip(&compiled.entries) {
            let limits = pdr.qers.iter().filter(|&&q| {
                rules.for_packets().qer(q).unwrap().mbr_kbps(entry.direction).is_some()
            });
            let is_shared = |q: &&&QerId| {
                let users = rules.pdrs.iter().zip(&compiled.entries);
                let users = users.filter(|(p, e)| e.direction == entry.direction && p.qers.contains(q));
                users.count() > 1
            };
            let (shared, own): (Vec<&QerId>, Vec<&QerId>) = limits.partition(|q| is_shared(&q));
            let metered: Vec<_> = entry.shared_meters.iter().map(|&m| compiled.meters[m].qer).collect();
            prop_assert_eq!(metered, shared.into_iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(entry.meter.is_some(), !own.is_empty());
            if let Some(rate) = entry.meter {
                prop_assert!(rate.burst_bytes >= u64::from(Config::default().burst.min_bytes));
            }
        }
    }
}

/// So must those of predefined rules be, and most of the rules must be taken.
#[test]
fn random_packets_meet_predefined_rules_of_every_kind() {
    use crate::rules::config::PredefinedFar;
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..4000 {
        let site = testing::activating().new_tree(&mut runner).unwrap();
        let (rules, predefined) = site.current();
        let packet = testing::packet().new_tree(&mut runner).unwrap().current();
        let rules = PacketRules {
            predefined: &predefined,
            ..rules.for_packets()
        };
        let Ok(compiled) = testing::compile(rules, &config()) else {
            *seen.entry("refused").or_insert(0) += 1;
            continue;
        };
        let Verdict::Pdr { id, .. } = judge(rules, &packet) else {
            continue;
        };
        let entry = compiled
            .entries
            .iter()
            .find(|entry| entry.pdr == id)
            .unwrap();
        let Some(active) = entry.predefined else {
            continue;
        };
        let name = match predefined[active.place()].far {
            PredefinedFar::OfPdr => "of the PDR",
            PredefinedFar::Drop => "drop",
            PredefinedFar::Route(_) => "route",
        };
        *seen.entry(name).or_insert(0) += 1;
    }
    assert!(seen.remove("refused").unwrap_or(0) < 800, "{seen:?}");
    assert!(
        seen.len() == 3 && seen.values().all(|&n| n > 30),
        "{seen:?}"
    );
}

/// The verdicts must not all be alike, or the property above says nothing.
#[test]
fn random_packets_meet_every_kind_of_fate() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..8000 {
        let rules = testing::rules().new_tree(&mut runner).unwrap().current();
        let packet = testing::packet().new_tree(&mut runner).unwrap().current();
        let name = match judge(rules.for_packets(), &packet) {
            Verdict::NoPdr => "none",
            Verdict::Pdr {
                fate: Fate::Dropped,
                ..
            } => "drop",
            Verdict::Pdr {
                fate: Fate::NoTunnel,
                ..
            } => "no tunnel",
            Verdict::Pdr {
                fate: Fate::Buffered,
                ..
            } => "buffer",
            Verdict::Pdr {
                fate: Fate::GateClosed,
                ..
            } => "gate",
            Verdict::Pdr {
                fate: Fate::Routed(_),
                ..
            } => "route",
            Verdict::Pdr {
                fate: Fate::Steered(..),
                ..
            } => "steer",
            Verdict::Pdr {
                fate: Fate::Tunnelled(..),
                ..
            } => "tunnel",
            Verdict::Pdr {
                fate: Fate::InUdp(..),
                ..
            } => "udp",
            Verdict::Pdr {
                fate: Fate::Absurd, ..
            } => panic!("absurd rules"),
        };
        *seen.entry(name).or_insert(0) += 1;
    }
    assert!(
        seen.len() == 9 && seen.values().all(|&n| n > 20),
        "{seen:?}"
    );
}
