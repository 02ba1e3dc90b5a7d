//! Configuration that rules depend on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use compiled::{NiId, PolicyId, PredefinedId};
use ipnet::IpNet;
use pfcp::ie::{NetworkInstance, TgppInterfaceType};

use crate::rules::config::{
    Burst, Config, ForwardingPolicy, Limits, PredefinedRule, QosConfig, TunnelNetwork,
};
use crate::rules::places::{ConfigName, ConfigPlace, Names};
use crate::rules::predefined;
use crate::rules::{Interface, LocalEnds, RemoteFTeid, TunnelNetworkId};

/// The part of the configuration that rules depend on.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Our ends of tunnels; at most 256.
    n3: Vec<IpAddr>,
    /// Our other addresses: as configured, and as this host has them now.
    own: Vec<IpAddr>,
    host: Vec<IpAddr>,
    /// At most 255.
    networks: Vec<TunnelNetwork>,
    /// In the order of [`NiId`].
    names: Vec<String>,
    emergency: Vec<bool>,
    /// Rules that SMFs may activate.
    pub(crate) predefined: Vec<PredefinedRule>,
    policies: Vec<ForwardingPolicy>,
    pub(crate) burst: Burst,
    pub(crate) qos: QosConfig,
    pub(crate) limits: Limits,
    pub(crate) qers_per_pdr: usize,
}

impl Site {
    /// Whether a session of one of these network instances is an emergency one.
    pub(crate) fn is_emergency(&self, mut of: impl Iterator<Item = NiId>) -> bool {
        self.emergency.contains(&true)
            && of.any(|ni| self.emergency.get(usize::from(ni.0)) == Some(&true))
    }

    pub(crate) fn new(config: &Config) -> Self {
        Self {
            n3: config.n3.iter().copied().take(256).collect(),
            own: (config.own.iter().chain(&config.n4).copied())
                .filter(|own| !own.is_unspecified())
                .collect(),
            host: Vec::new(),
            networks: (config.tunnel_networks.iter().take(usize::from(u8::MAX)))
                .cloned()
                .collect(),
            names: config
                .network_instances
                .iter()
                .map(|ni| ni.name.clone())
                .collect(),
            emergency: (config.network_instances.iter())
                .map(|ni| ni.emergency)
                .collect(),
            predefined: predefined::numbered(config.predefined_rules.clone()),
            policies: config.forwarding_policies.clone(),
            burst: config.burst,
            qos: config.qos.clone(),
            limits: config.limits.clone(),
            qers_per_pdr: config.limits.qers_per_pdr,
        }
    }

    /// Which network the tunnels of a side and a network instance go through. A UPF that is an anchor has
    /// access behind N9, as only `kind` can say.
    pub(crate) fn tunnel_network(
        &self,
        side: Interface,
        kind: Option<TgppInterfaceType>,
        ni: Option<NetworkInstance<'_>>,
    ) -> TunnelNetworkId {
        let find = |is: &dyn Fn(&TunnelNetwork) -> bool| self.networks.iter().position(is);
        let named = |network: &TunnelNetwork| {
            let mut names = network.network_instances.iter();
            ni.is_some_and(|ni| names.any(|name| ni.matches(name)))
        };
        let core = kind.and_then(is_n9).unwrap_or(side == Interface::Core);
        let of_side = |network: &TunnelNetwork| network.core == core;
        let found = find(&named)
            .or_else(|| find(&|network| of_side(network) && network.network_instances.is_empty()))
            .or_else(|| find(&of_side));
        TunnelNetworkId(found.map_or(u8::MAX, |at| at as u8))
    }

    /// Our address in a network, of the family that `is` asks for: its place.
    fn own(&self, network: TunnelNetworkId, is: fn(&IpAddr) -> bool) -> Option<u8> {
        let known = self.networks.get(usize::from(network.0));
        let there = known.and_then(|known| known.addresses.iter().copied().find(is));
        let same = |own: &IpAddr| there.map_or_else(|| is(own), |there| *own == there);
        self.n3.iter().position(same).map(|at| at as u8)
    }

    /// Our end of a tunnel of a network, where we choose it: of the families asked for, those we
    /// have. `None`: of neither.
    pub(crate) fn choose_ends(
        &self,
        network: TunnelNetworkId,
        v4: bool,
        v6: bool,
    ) -> Option<LocalEnds> {
        let ends = LocalEnds {
            v4: self.own(network, IpAddr::is_ipv4).filter(|_| v4),
            v6: self.own(network, IpAddr::is_ipv6).filter(|_| v6),
        };
        (ends.v4.is_some() || ends.v6.is_some()).then_some(ends)
    }

    /// The ends that an SMF names. `None`: one of them is not ours.
    pub(crate) fn named_ends(
        &self,
        v4: Option<Ipv4Addr>,
        v6: Option<Ipv6Addr>,
    ) -> Option<LocalEnds> {
        let at = |addr: IpAddr| self.n3.iter().position(|own| *own == addr);
        let named = |addr: Option<IpAddr>| match addr {
            None => Some(None),
            Some(addr) => at(addr).map(|at| Some(at as u8)),
        };
        Some(LocalEnds {
            v4: named(v4.map(IpAddr::V4))?,
            v6: named(v6.map(IpAddr::V6))?,
        })
    }

    /// Whether tunnels end at one of these addresses at us.
    pub(crate) fn has_own_in(&self, net: IpNet) -> bool {
        self.n3.iter().any(|own| net.contains(own))
    }

    /// Whether one of these addresses is ours, on whatever interface.
    pub(crate) fn is_reached_by(&self, net: IpNet) -> bool {
        let mut others = self.own.iter().chain(&self.host);
        self.has_own_in(net) || others.any(|own| net.contains(own))
    }

    /// The addresses that this host has.
    pub(crate) fn set_host(&mut self, addresses: Vec<IpAddr>) {
        self.host = addresses;
    }

    /// The addresses of our end of a tunnel.
    pub(crate) fn addresses(&self, ends: LocalEnds) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let addr = |at: Option<u8>| self.n3.get(usize::from(at?)).copied();
        let v4 = match addr(ends.v4) {
            Some(IpAddr::V4(addr)) => Some(addr),
            _ => None,
        };
        let v6 = match addr(ends.v6) {
            Some(IpAddr::V6(addr)) => Some(addr),
            _ => None,
        };
        (v4, v6)
    }

    /// Address of the other end of a tunnel, and ours that packets to it come from: IPv4 where
    /// there is a choice, unless only IPv6 has a route. `None`: we have no address of its family.
    pub(crate) fn path_to(
        &self,
        to: RemoteFTeid,
        through: TunnelNetworkId,
        reaches: &dyn Fn(IpAddr) -> bool,
    ) -> Option<(IpAddr, IpAddr)> {
        let path = |peer: IpAddr| {
            let is = match peer {
                IpAddr::V4(_) => IpAddr::is_ipv4,
                IpAddr::V6(_) => IpAddr::is_ipv6,
            };
            let own = self.own(through, is)?;
            Some((peer, *self.n3.get(usize::from(own))?))
        };
        let v4 = to.v4().map(IpAddr::V4).and_then(path);
        let v6 = to.v6().map(IpAddr::V6).and_then(path);
        match (v4, v6) {
            (Some((peer4, _)), Some((peer6, _))) if !reaches(peer4) && reaches(peer6) => v6,
            _ => v4.or(v6),
        }
    }

    pub(crate) fn network_instance(&self, name: NetworkInstance<'_>) -> Option<NiId> {
        let at = self.names.iter().position(|own| name.matches(own))?;
        u16::try_from(at).ok().map(NiId)
    }

    /// The forwarding policy of this identifier.
    pub(crate) fn policy_named(&self, identifier: &[u8]) -> Option<PolicyId> {
        let is = |policy: &ForwardingPolicy| policy.identifier.as_bytes() == identifier;
        u8::try_from(self.policies.iter().position(is)?)
            .ok()
            .map(PolicyId)
    }

    pub(crate) fn policy(&self, id: PolicyId) -> Option<&ForwardingPolicy> {
        self.policies.get(usize::from(id.0))
    }

    /// Contents of all places of the configuration.
    pub(crate) fn all_names(&self) -> Names {
        let nis =
            (0..self.names.len().max(1)).map(|at| ConfigPlace::NetworkInstance(NiId(at as u16)));
        let n3 = (0..self.n3.len()).map(|at| ConfigPlace::N3Address(at as u8));
        let networks = 0..self.networks.len();
        let networks = networks.map(|at| ConfigPlace::TunnelNetwork(TunnelNetworkId(at as u8)));
        let rules = self.predefined.iter();
        let rules = rules.enumerate().filter_map(|(at, _)| PredefinedId::at(at));
        let rules = rules.map(ConfigPlace::PredefinedRule);
        let policies = 0..self.policies.len();
        let policies = policies.map(|at| ConfigPlace::ForwardingPolicy(PolicyId(at as u8)));
        let all = nis.chain(n3).chain(networks).chain(rules).chain(policies);
        Names::of(all, |place| self.name_of(place))
    }

    /// Name of the content of a place of the configuration.
    pub(crate) fn name_of(&self, place: ConfigPlace) -> Option<ConfigName> {
        Some(match place {
            ConfigPlace::NetworkInstance(ni) => {
                // The default network instance exists even if it has no name.
                let name = self.name(ni).or((ni == NiId::DEFAULT).then_some(""));
                ConfigName::NetworkInstance(name?.into())
            }
            ConfigPlace::N3Address(at) => ConfigName::N3Address(*self.n3.get(usize::from(at))?),
            ConfigPlace::TunnelNetwork(at) => {
                let network = self.networks.get(usize::from(at.0))?;
                let names = network.network_instances.iter();
                ConfigName::TunnelNetwork {
                    core: network.core,
                    network_instances: names.map(|name| name.as_str().into()).collect(),
                }
            }
            ConfigPlace::PredefinedRule(id) => {
                let before = self.predefined.get(..=id.place())?;
                let name = &before.last()?.name;
                let nth = before.iter().filter(|rule| rule.name == *name).count() - 1;
                ConfigName::PredefinedRule(name.as_str().into(), nth as u16)
            }
            ConfigPlace::ForwardingPolicy(id) => {
                ConfigName::ForwardingPolicy(self.policy(id)?.identifier.as_str().into())
            }
        })
    }

    /// Place of this name in the configuration. A tunnel network may bear more names than it did.
    pub(crate) fn place_of(&self, name: &ConfigName) -> Option<ConfigPlace> {
        Some(match name {
            ConfigName::NetworkInstance(name) if name.is_empty() && self.names.is_empty() => {
                ConfigPlace::NetworkInstance(NiId::DEFAULT)
            }
            ConfigName::NetworkInstance(name) => {
                let at = self.names.iter().position(|own| **own == **name)?;
                ConfigPlace::NetworkInstance(NiId(u16::try_from(at).ok()?))
            }
            ConfigName::N3Address(address) => {
                let at = self.n3.iter().position(|own| own == address)?;
                ConfigPlace::N3Address(u8::try_from(at).ok()?)
            }
            ConfigName::TunnelNetwork {
                core,
                network_instances,
            } => {
                let has_all = |network: &TunnelNetwork| {
                    let has = |name: &str| network.network_instances.iter().any(|own| own == name);
                    let is_bare = network.network_instances.is_empty();
                    network.core == *core
                        && network_instances.is_empty() == is_bare
                        && network_instances.iter().all(|name| has(name))
                };
                let at = self.networks.iter().position(has_all)?;
                ConfigPlace::TunnelNetwork(TunnelNetworkId(u8::try_from(at).ok()?))
            }
            ConfigName::PredefinedRule(name, nth) => {
                let all = self.predefined.iter().enumerate();
                let mut same = all.filter(|(_, rule)| *rule.name == **name);
                let (at, _) = same.nth(usize::from(*nth))?;
                ConfigPlace::PredefinedRule(PredefinedId::at(at)?)
            }
            ConfigName::ForwardingPolicy(name) => {
                ConfigPlace::ForwardingPolicy(self.policy_named(name.as_bytes())?)
            }
        })
    }

    pub(crate) fn name(&self, ni: NiId) -> Option<&str> {
        self.names.get(usize::from(ni.0)).map(String::as_str)
    }
}

/// Between UPFs; `None`: neither that nor from a base station.
fn is_n9(kind: TgppInterfaceType) -> Option<bool> {
    use TgppInterfaceType as T;
    match kind {
        T::N9 | T::N9_ROAMING | T::N9_FORWARDING => Some(true),
        T::N3 | T::N3_TRUSTED | T::N3_UNTRUSTED | T::N3_FORWARDING | T::S1_U => Some(false),
        _ => None,
    }
}
