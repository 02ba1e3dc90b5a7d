//! What the configuration adds to the rules.

use std::net::Ipv4Addr;

use pfcp::ie::NetworkInstance;

use crate::compiled::NiId;
use crate::config::{Burst, Config, Limits};

/// The part of the configuration that rules depend on.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Our ends of tunnels; at most 256.
    pub(crate) n3: Vec<Ipv4Addr>,
    /// In the order of [`NiId`].
    names: Vec<String>,
    pub(crate) burst: Burst,
    pub(crate) limits: Limits,
    pub(crate) qers_per_pdr: usize,
}

impl Site {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            n3: config.n3.iter().copied().take(256).collect(),
            names: config
                .network_instances
                .iter()
                .map(|ni| ni.name.clone())
                .collect(),
            burst: config.burst,
            limits: config.limits.clone(),
            qers_per_pdr: config.limits.qers_per_pdr,
        }
    }

    pub(crate) fn network_instance(&self, name: NetworkInstance<'_>) -> Option<NiId> {
        let at = self.names.iter().position(|own| name.matches(own))?;
        u16::try_from(at).ok().map(NiId)
    }

    pub(crate) fn name(&self, ni: NiId) -> Option<&str> {
        self.names.get(usize::from(ni.0)).map(String::as_str)
    }
}
