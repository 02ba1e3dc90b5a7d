//! How forwarding policies stand: told in the log when it changes, and shown.

use compiled::{NiId, PolicyId};
use nexthop::{NextHops, PolicyState};
use report::{PolicyReport, PolicyUse};

use crate::config::Config;

/// Forwarding policies of the configuration, for each network instance.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    ways: Vec<Way>,
}

#[derive(Debug)]
struct Way {
    policy: PolicyId,
    ni: NiId,
    identifier: String,
    network_instance: String,
    /// Of IPv4 and IPv6; `None`: nobody has looked.
    states: Option<[PolicyState; 2]>,
}

impl Policies {
    pub(crate) fn new(config: &Config) -> Self {
        let policies = PolicyId::all().zip(&config.forwarding_policy);
        let ways = policies.flat_map(|(policy, of)| {
            let instances = (0..).map(NiId).zip(&config.network_instance);
            instances.map(move |(ni, instance)| Way {
                policy,
                ni,
                identifier: of.identifier.clone(),
                network_instance: instance.name.clone(),
                states: None,
            })
        });
        Self {
            ways: ways.collect(),
        }
    }

    /// Tell of those that stand otherwise than before.
    pub(super) fn look(&mut self, next_hops: &NextHops) {
        for way in &mut self.ways {
            let states = next_hops.policy_state(way.policy, way.ni);
            let before = std::mem::replace(&mut way.states, states);
            for (place, family) in ["IPv4", "IPv6"].into_iter().enumerate() {
                let now = states.map(|of| of[place]);
                if let Some(now) = now.filter(|_| before.map(|of| of[place]) != now) {
                    way.tell(family, now);
                }
            }
        }
    }

    /// For operators.
    pub(super) fn report(&self, config: &Config) -> Vec<PolicyReport> {
        let policies = PolicyId::all().zip(&config.forwarding_policy);
        let report = |(id, of): (PolicyId, &crate::config::ForwardingPolicy)| {
            let ways = self.ways.iter().filter(|way| way.policy == id);
            PolicyReport {
                identifier: of.identifier.clone(),
                way: of.way(),
                fallback: of.fallback().to_owned(),
                towards_access: of.towards_access().to_owned(),
                network_instances: ways.map(Way::report).collect(),
            }
        };
        policies.map(report).collect()
    }
}

impl Way {
    fn tell(&self, family: &str, state: PolicyState) {
        let (policy, network_instance) = (&self.identifier, &self.network_instance);
        let state_name = name(state);
        match state {
            PolicyState::InUse => {
                tracing::info!(policy, network_instance, family, "forwarding policy in use");
            }
            // Many have one family alone.
            PolicyState::NoRoute => {
                tracing::debug!(
                    policy,
                    network_instance,
                    family,
                    "forwarding policy without a route"
                );
            }
            PolicyState::InPart | PolicyState::Unreachable | PolicyState::TooMany => {
                tracing::warn!(
                    policy,
                    network_instance,
                    family,
                    state = state_name,
                    "packets of a forwarding policy go its fallback"
                )
            }
        }
    }

    fn report(&self) -> PolicyUse {
        let [v4, v6] = self.states.unwrap_or([PolicyState::NoRoute; 2]).map(name);
        PolicyUse {
            network_instance: self.network_instance.clone(),
            ipv4: v4.to_owned(),
            ipv6: v6.to_owned(),
        }
    }
}

fn name(state: PolicyState) -> &'static str {
    match state {
        PolicyState::InUse => PolicyUse::IN_USE,
        PolicyState::InPart => "in part",
        PolicyState::Unreachable => "unreachable",
        PolicyState::NoRoute => "no route",
        PolicyState::TooMany => "too many routes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_may_be_are_shown() {
        let text = include_str!("../../../../deploy/turnpiked.example.toml");
        let mut config = crate::config::parse(text).unwrap();
        let instances = config.network_instance.len();
        config.forwarding_policy = vec![config.forwarding_policy[0].clone(); 255];
        let report = Policies::new(&config).report(&config);
        assert_eq!(report.len(), 255);
        assert!(
            report
                .iter()
                .all(|policy| policy.network_instances.len() == instances)
        );
    }
}
