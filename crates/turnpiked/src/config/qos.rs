//! Classes of flows by QFI, and capacities of interfaces, network instances and groups of users: `[qos]`, `[[group]]`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use compiled::{Above, CapacityId, Direction, NiId, Qfi, WEIGHT_MAX};
use serde::{Deserialize, Serialize};
use session::config::{CapacityUse, DEFAULT_5QI, FlowClass, Of, QosConfig, weight_of};
use tables::CapacityConfig;

use super::{Config, Interface, Prefix, Problem, QosMode};

/// `TP_CAPACITIES_MAX`, without the one that is none.
const CAPACITIES_MAX: usize = 127;
/// From ISDN to a terabit.
const CAPACITY_KBPS: RangeInclusive<u64> = 64..=1_000_000_000;

/// Meaning of a QFI, since N4 tells no 5QIs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    qfi: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_instance: Option<String>,
    #[serde(default = "Flow::five_qi")]
    five_qi: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dscp: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<QosMode>,
}

impl Flow {
    const fn five_qi() -> u8 {
        DEFAULT_5QI
    }

    fn weight(&self) -> u16 {
        self.weight.or(weight_of(self.five_qi)).unwrap_or(1)
    }
}

/// Users who have a capacity between them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_instance: Option<String>,
    ues: Vec<Prefix>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity_uplink_kbps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity_downlink_kbps: Option<u64>,
}

impl QosMode {
    fn above(self) -> Above {
        match self {
            Self::Police => Above::Police,
            Self::Shape => Above::Shape,
        }
    }
}

/// Whether packets of some flow wait.
pub(crate) fn shapes(config: &Config) -> bool {
    let flows = config.qos.flow.iter().filter_map(|flow| flow.mode);
    std::iter::once(config.qos.mode)
        .chain(flows)
        .any(|mode| mode == QosMode::Shape)
}

/// Classes of flows, and users of each capacity.
pub(crate) fn for_core(config: &Config) -> QosConfig {
    let flow = |flow: &Flow| {
        Some(FlowClass {
            qfi: Qfi::new(flow.qfi)?,
            ni: (flow.network_instance.as_deref()).and_then(|name| ni_of(config, name)),
            weight: flow.weight(),
            dscp: flow.dscp,
            above: flow.mode.map(QosMode::above),
        })
    };
    let id = |place: usize| CapacityId(u8::try_from(place).unwrap_or_default());
    let planned = (1..).zip(capacities(config));
    let uses = planned.flat_map(|(place, capacity)| {
        let of = capacity.of.into_iter();
        of.map(move |of| CapacityUse { id: id(place), of })
    });
    QosConfig {
        above: config.qos.mode.above(),
        flows: config.qos.flow.iter().filter_map(flow).collect(),
        capacities: uses.collect(),
    }
}

/// How much there is.
pub(crate) fn for_tables(config: &Config) -> Vec<CapacityConfig> {
    let weights = config.qos.flow.iter().map(Flow::weight);
    let least = weights.chain(weight_of(DEFAULT_5QI)).min().unwrap_or(1);
    let percent = u64::from(config.qos.guaranteed_percent);
    let capacity = |capacity: Capacity| CapacityConfig {
        name: capacity.name,
        bps: capacity.kbps * 1000,
        guaranteed_at_most: capacity.kbps * 10 * percent,
        least_weight: least,
        above: config.qos.mode.above(),
    };
    capacities(config).into_iter().map(capacity).collect()
}

/// Something that many flows have between them.
struct Capacity {
    /// For people.
    name: String,
    /// Key of the configuration.
    key: String,
    kbps: u64,
    of: Vec<Of>,
}

fn ni_of(config: &Config, name: &str) -> Option<NiId> {
    let at = (config.network_instance.iter()).position(|ni| ni.name == name)?;
    u16::try_from(at).ok().map(NiId)
}

/// All that are configured: interfaces, network instances, groups.
fn capacities(config: &Config) -> Vec<Capacity> {
    let mut all = Vec::new();
    for (i, interface) in config.interface.iter().enumerate() {
        if let Some(kbps) = interface.capacity_kbps {
            all.push(Capacity {
                name: format!("interface {}", interface.name),
                key: format!("interface[{i}].capacity_kbps"),
                kbps,
                of: goes_out_by(config, interface),
            });
        }
    }
    for (i, instance) in config.network_instance.iter().enumerate() {
        let ni = NiId(u16::try_from(i).unwrap_or(u16::MAX));
        for (direction, way, kbps) in ways(
            instance.capacity_uplink_kbps,
            instance.capacity_downlink_kbps,
        ) {
            all.push(Capacity {
                name: format!("network instance {} {way}", instance.name),
                key: format!("network_instance[{i}].capacity_{way}_kbps"),
                kbps,
                of: vec![Of::Instance { ni, direction }],
            });
        }
    }
    for (i, group) in config.group.iter().enumerate() {
        let ni = group.network_instance.as_deref();
        let ni = ni.and_then(|name| ni_of(config, name));
        let both = (group.capacity_uplink_kbps, group.capacity_downlink_kbps);
        for (direction, way, kbps) in ways(both.0, both.1) {
            let ues = group.ues.iter().map(|net| net.0).collect();
            all.push(Capacity {
                name: format!("group {} {way}", group.name),
                key: format!("group[{i}].capacity_{way}_kbps"),
                kbps,
                of: vec![Of::Users { ni, ues, direction }],
            });
        }
    }
    all
}

fn ways(
    uplink: Option<u64>,
    downlink: Option<u64>,
) -> impl Iterator<Item = (Direction, &'static str, u64)> {
    let uplink = uplink.map(|kbps| (Direction::Uplink, "uplink", kbps));
    let downlink = downlink.map(|kbps| (Direction::Downlink, "downlink", kbps));
    uplink.into_iter().chain(downlink)
}

/// Packets that an interface sends.
fn goes_out_by(config: &Config, interface: &Interface) -> Vec<Of> {
    let instances = config.network_instance.iter().enumerate();
    let routed = instances.filter(|(_, ni)| ni.interface == interface.name);
    let nis: Vec<NiId> = routed.map(|(i, _)| NiId(i as u16)).collect();
    let mut of = Vec::new();
    if interface.role.has_n6() {
        of.push(Of::Routes(nis));
    }
    if interface.role.has_tunnels() {
        of.push(Of::Tunnels(interface.addresses.clone()));
    }
    of
}

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    for (i, flow) in config.qos.flow.iter().enumerate() {
        check_flow(config, &format!("qos.flow[{i}]"), flow, problems);
    }
    let mut names = BTreeSet::new();
    for (i, group) in config.group.iter().enumerate() {
        let key = format!("group[{i}]");
        check_group(config, &key, group, problems);
        if !names.insert(&group.name) {
            problems.push(Problem::new(
                format!("{key}.name"),
                &group.name,
                "named twice",
            ));
        }
    }
    check_overlaps(config, problems);
    let all = capacities(config);
    for capacity in &all {
        if !CAPACITY_KBPS.contains(&capacity.kbps) {
            let (from, to) = (CAPACITY_KBPS.start(), CAPACITY_KBPS.end());
            let reason = format!("must be {from} to {to}");
            problems.push(Problem::new(&capacity.key, capacity.kbps, reason));
        }
    }
    if let Some(beyond) = all.get(CAPACITIES_MAX) {
        let reason = format!(
            "there are {} capacities, at most {CAPACITIES_MAX}",
            all.len()
        );
        problems.push(Problem::new(&beyond.key, beyond.kbps, reason));
    }
}

fn check_flow(config: &Config, key: &str, flow: &Flow, problems: &mut Vec<Problem>) {
    let mut problem = |field: &str, value: String, reason: &str| {
        problems.push(Problem::new(format!("{key}.{field}"), value, reason));
    };
    if flow.qfi > 63 {
        problem("qfi", flow.qfi.to_string(), "must be 0 to 63");
    }
    if weight_of(flow.five_qi).is_none() {
        let reason = "no standardized 5QI (TS 23.501, table 5.7.4-1)";
        problem("five_qi", flow.five_qi.to_string(), reason);
    }
    if let Some(weight) = flow.weight
        && !(1..=WEIGHT_MAX).contains(&weight)
    {
        problem("weight", weight.to_string(), "must be 1 to 1000");
    }
    if let Some(dscp) = flow.dscp
        && dscp > 63
    {
        problem("dscp", dscp.to_string(), "must be 0 to 63");
    }
    if let Some(name) = &flow.network_instance
        && ni_of(config, name).is_none()
    {
        problem(
            "network_instance",
            name.clone(),
            "there is no such network_instance",
        );
    }
}

fn check_group(config: &Config, key: &str, group: &Group, problems: &mut Vec<Problem>) {
    let mut problem = |field: &str, value: &str, reason: &str| {
        problems.push(Problem::new(format!("{key}.{field}"), value, reason));
    };
    if let Some(name) = &group.network_instance
        && ni_of(config, name).is_none()
    {
        problem(
            "network_instance",
            name,
            "there is no such network_instance",
        );
    }
    if group.ues.is_empty() {
        problem("ues", "[]", "a group has users");
    }
    if group.capacity_uplink_kbps.is_none() && group.capacity_downlink_kbps.is_none() {
        let reason = "neither capacity_uplink_kbps nor capacity_downlink_kbps";
        problem("name", &group.name, reason);
    }
}

/// A user is in one group, so that what it may have is plain.
fn check_overlaps(config: &Config, problems: &mut Vec<Problem>) {
    let groups = config.group.iter().enumerate();
    let all: Vec<_> = groups
        .flat_map(|(i, group)| group.ues.iter().map(move |net| (i, group, net.0)))
        .collect();
    for (at, (i, group, net)) in all.iter().enumerate() {
        let overlaps = |(j, other, of): &&(usize, &Group, ipnet::IpNet)| {
            let same_place = match (&group.network_instance, &other.network_instance) {
                (Some(one), Some(another)) => one == another,
                _ => true,
            };
            i != j && same_place && (net.contains(of) || of.contains(net))
        };
        if let Some((_, other, of)) = all[..at].iter().find(overlaps) {
            let reason = format!("overlaps {of} of group {}", other.name);
            problems.push(Problem::new(format!("group[{i}].ues"), net, reason));
        }
    }
}

/// Capacities and classes of flows, in words for operators.
pub(super) fn understood(config: &Config) -> impl Iterator<Item = String> {
    let capacities = capacities(config).into_iter().map(|capacity| {
        let Capacity { name, kbps, .. } = capacity;
        format!("capacity of {name}: {kbps} kbit/s of users' IP packets")
    });
    let flows = config.qos.flow.iter().map(|flow| {
        let Flow { qfi, five_qi, .. } = flow;
        format!("QFI {qfi}: 5QI {five_qi}, weight {}", flow.weight())
    });
    capacities.chain(flows)
}
