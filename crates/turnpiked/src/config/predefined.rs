//! `[[predefined_rule]]`: what SMFs may activate by name.

use std::collections::BTreeMap;

use compiled::{Direction, NiId, QerId, Qfi};
use serde::{Deserialize, Serialize};
use session::config as core;
use session::flow::FlowDescription;
use session::rules::{Gate, Mbr, Qer};

use super::{Config, Problem};

/// In the whole file.
const RULES_MAX: usize = 1024;
/// Of one name: what one PDR may activate.
const NAMESAKES_MAX: usize = 16;
/// Of one rule: what the tables try for one key.
const FLOWS_MAX: usize = 64;
/// MBR has 40 bits.
const KBPS_MAX: u64 = (1 << 40) - 1;

/// A predefined rule (TS 29.244, 5.19).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PredefinedRule {
    pub(super) name: String,
    #[serde(default = "PredefinedRule::precedence")]
    precedence: u32,
    #[serde(default)]
    direction: For,
    #[serde(default)]
    flows: Vec<Flow>,
    #[serde(default)]
    action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_instance: Option<String>,
    #[serde(default)]
    gate: GateState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mbr_uplink_kbps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mbr_downlink_kbps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    qfi: Option<u8>,
}

/// Which PDRs a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum For {
    #[default]
    Both,
    Uplink,
    Downlink,
}

/// Treatment of the rule's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    #[default]
    Forward,
    Drop,
}

/// Gate of a rule, for both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum GateState {
    #[default]
    Open,
    Closed,
}

/// An IPFilterRule as SDF filters have it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct Flow(FlowDescription);

impl TryFrom<String> for Flow {
    type Error = session::flow::FlowError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        FlowDescription::parse(text.as_bytes()).map(Self)
    }
}

impl From<Flow> for String {
    fn from(flow: Flow) -> Self {
        flow.0.to_string()
    }
}

impl PredefinedRule {
    /// `action` of a rule that needs no FAR.
    pub(super) const DROPS: &str = "drop";

    const fn precedence() -> u32 {
        100
    }

    /// The rule as the core takes it. `instances`: names of the network instances.
    pub(crate) fn to_core(&self, instances: &[String]) -> core::PredefinedRule {
        let ni = self.network_instance.as_ref();
        let place = ni.and_then(|name| instances.iter().position(|own| own == name));
        let route = place.and_then(|at| u16::try_from(at).ok()).map(NiId);
        core::PredefinedRule {
            name: self.name.clone(),
            precedence: self.precedence,
            direction: match self.direction {
                For::Both => None,
                For::Uplink => Some(Direction::Uplink),
                For::Downlink => Some(Direction::Downlink),
            },
            flows: self.flows.iter().map(|flow| flow.0.clone()).collect(),
            far: match (self.action, route) {
                (Action::Drop, _) => core::PredefinedFar::Drop,
                (Action::Forward, Some(ni)) => core::PredefinedFar::Route(ni),
                (Action::Forward, None) => core::PredefinedFar::OfPdr,
            },
            qer: self.qer(),
        }
    }

    /// Pairs of port ranges of all flows.
    pub(super) fn flow_count(&self) -> usize {
        self.flows.iter().map(|flow| flow.0.flow_count()).sum()
    }

    pub(super) fn has_rates(&self) -> bool {
        self.mbr_uplink_kbps.is_some()
    }

    /// Directions that it is for: true, uplink.
    pub(super) fn uplinks(&self) -> impl Iterator<Item = bool> {
        let both = [(true, For::Uplink), (false, For::Downlink)].into_iter();
        let own = self.direction;
        let its = both.filter(move |&(_, direction)| own == For::Both || own == direction);
        its.map(|(uplink, _)| uplink)
    }

    fn qer(&self) -> Option<Qer> {
        let open = self.gate == GateState::Open;
        let mbr = self.mbr_uplink_kbps.zip(self.mbr_downlink_kbps);
        let qer = Qer {
            // By its place, which the core knows.
            id: QerId(0),
            gate: Gate {
                uplink_open: open,
                downlink_open: open,
            },
            mbr: mbr.map(|(up, down)| Mbr::new(up, down)),
            qfi: self.qfi.and_then(Qfi::new),
            rare: None,
        };
        let does_something = !open || qer.mbr.is_some() || qer.qfi.is_some();
        does_something.then_some(qer)
    }
}

/// Problems of predefined rules.
pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let rules = &config.predefined_rule;
    if rules.len() > RULES_MAX {
        let reason = format!("{} given, at most {RULES_MAX}", rules.len());
        problems.push(Problem::missing("predefined_rule", reason));
    }
    let mut namesakes: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, rule) in rules.iter().enumerate() {
        let key = |key: &str| format!("predefined_rule[{i}].{key}");
        if rule.name.is_empty() || rule.name.len() > 255 {
            let reason = "must have 1 to 255 octets";
            problems.push(Problem::new(key("name"), &rule.name, reason));
        }
        let count = namesakes.entry(&rule.name).or_default();
        *count += 1;
        if *count == NAMESAKES_MAX + 1 {
            let reason = format!("more than {NAMESAKES_MAX} rules have this name");
            problems.push(Problem::new(key("name"), &rule.name, reason));
        }
        let flows = rule.flow_count();
        if flows > FLOWS_MAX {
            let reason = format!("{flows} pairs of port ranges, at most {FLOWS_MAX}");
            problems.push(Problem::missing(key("flows"), reason));
        }
        route(config, rule, &key, problems);
        limits(rule, &key, problems);
    }
}

fn route(
    config: &Config,
    rule: &PredefinedRule,
    key: &dyn Fn(&str) -> String,
    problems: &mut Vec<Problem>,
) {
    let Some(name) = &rule.network_instance else {
        return;
    };
    let mut known = config.network_instance.iter();
    let reason = if known.all(|ni| ni.name != *name) {
        "no [[network_instance]] has this name"
    } else if rule.action == Action::Drop {
        "has no effect with action = \"drop\""
    } else if rule.direction == For::Downlink {
        "has no effect with direction = \"downlink\": users are reached by the FAR of the PDR"
    } else {
        return;
    };
    problems.push(Problem::new(key("network_instance"), name, reason));
}

fn limits(rule: &PredefinedRule, key: &dyn Fn(&str) -> String, problems: &mut Vec<Problem>) {
    let rates = [
        ("mbr_uplink_kbps", rule.mbr_uplink_kbps),
        ("mbr_downlink_kbps", rule.mbr_downlink_kbps),
    ];
    for (at, (name, kbps)) in rates.into_iter().enumerate() {
        let (other, counterpart) = rates[1 - at];
        match kbps {
            Some(kbps) if kbps > KBPS_MAX => {
                let reason = format!("must lie between 0 and {KBPS_MAX}");
                problems.push(Problem::new(key(name), kbps, reason));
            }
            None if counterpart.is_some() => {
                let reason = format!("is required beside {other}");
                problems.push(Problem::missing(key(name), reason));
            }
            _ => {}
        }
    }
    if let Some(qfi) = rule.qfi.filter(|&qfi| qfi > 63) {
        let reason = "must lie between 0 and 63";
        problems.push(Problem::new(key("qfi"), qfi, reason));
    }
}
