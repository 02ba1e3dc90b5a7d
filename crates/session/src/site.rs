//! What the configuration adds to the rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pfcp::ie::NetworkInstance;

use crate::compiled::NiId;
use crate::config::{Burst, Config, Limits};
use crate::rules::{LocalEnds, RemoteFTeid};

/// The part of the configuration that rules depend on.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Our ends of tunnels; at most 256.
    n3: Vec<IpAddr>,
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

    /// Where tunnels may end that we choose ourselves: of the families asked for, those we have.
    /// `None`: of neither.
    pub(crate) fn choose_ends(&self, v4: bool, v6: bool) -> Option<LocalEnds> {
        let first = |is: fn(&IpAddr) -> bool| self.n3.iter().position(is).map(|at| at as u8);
        let ends = LocalEnds {
            v4: first(IpAddr::is_ipv4).filter(|_| v4),
            v6: first(IpAddr::is_ipv6).filter(|_| v6),
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

    /// Whose address packets to the other end of a tunnel go to, and from which of ours: IPv4 where
    /// there is a choice, unless only IPv6 has a route. `None`: we have no address of its family.
    pub(crate) fn path_to(
        &self,
        to: RemoteFTeid,
        reaches: &dyn Fn(IpAddr) -> bool,
    ) -> Option<(IpAddr, IpAddr)> {
        let local = |peer: IpAddr| {
            let mut own = self.n3.iter();
            own.find(|own| own.is_ipv4() == peer.is_ipv4()).copied()
        };
        let path = |peer: IpAddr| Some((peer, local(peer)?));
        let v4 = to.v4.map(IpAddr::V4).and_then(path);
        let v6 = to.v6.map(IpAddr::V6).and_then(path);
        match (v4, v6) {
            (Some((peer4, _)), Some((peer6, _))) if !reaches(peer4) && reaches(peer6) => v6,
            _ => v4.or(v6),
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
