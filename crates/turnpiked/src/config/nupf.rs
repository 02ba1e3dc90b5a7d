//! Consumers that may ask for events of UEs' traffic.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use sbi::ee::Bounds;
use sbi::http::is_within;
use sbi::{BadTls, Server, ServerTls, Tls};
use serde::{Deserialize, Serialize};

use super::{Config, Problem};

/// Nupf_EventExposure (TS 29.564).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nupf {
    pub(crate) listen: SocketAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_root: Option<Server>,
    pub(crate) allow: Vec<IpNet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(default = "Nupf::max_subscriptions")]
    pub(crate) max_subscriptions: u32,
    #[serde(default = "Nupf::consumer_subscriptions")]
    pub(crate) consumer_subscriptions: u32,
    #[serde(default = "Nupf::max_ues")]
    pub(crate) max_ues: u32,
    #[serde(default = "Nupf::min_period_s")]
    pub(crate) min_period_s: u32,
    #[serde(default = "Nupf::unanswered_s")]
    pub(crate) unanswered_s: u32,
}

impl Nupf {
    const fn max_subscriptions() -> u32 {
        256
    }
    const fn consumer_subscriptions() -> u32 {
        64
    }
    const fn max_ues() -> u32 {
        100_000
    }
    const fn min_period_s() -> u32 {
        10
    }
    const fn unanswered_s() -> u32 {
        60
    }

    fn own(&self) -> Option<(&Path, &Path)> {
        let certificate = self.certificate_file.as_deref();
        certificate.zip(self.key_file.as_deref())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.own().is_some()
    }

    /// `None`: consumers speak HTTP/2 in clear.
    pub(crate) fn server_tls(&self) -> Result<Option<ServerTls>, BadTls> {
        let own = self.own();
        own.map(|own| ServerTls::read(own, self.ca_file.as_deref()))
            .transpose()
    }

    /// Towards consumers that want notifications by https; `None`: no authorities are named.
    pub(crate) fn client_tls(&self) -> Result<Option<Tls>, BadTls> {
        let authorities = self.ca_file.as_deref();
        authorities
            .map(|authorities| Tls::read(authorities, self.own()))
            .transpose()
    }

    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        is_within(address, &self.allow)
    }

    /// As consumers reach it.
    pub(crate) fn root(&self) -> String {
        let scheme = if self.own().is_some() {
            "https"
        } else {
            "http"
        };
        let of_listen = || format!("{scheme}://{}", self.listen);
        let named = self.api_root.as_ref().map(ToString::to_string);
        named.unwrap_or_else(of_listen)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            period: Duration::from_secs(self.min_period_s.into()),
        }
    }
}

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let Some(nupf) = &config.nupf else { return };
    if nupf.listen.ip().is_unspecified() && nupf.api_root.is_none() {
        let reason = "is one address, or wants nupf.api_root: consumers are told where their subscriptions are";
        problems.push(Problem::new("nupf.listen", nupf.listen, reason));
    }
    if nupf.listen == config.api.listen {
        let reason = "is that of api.listen";
        problems.push(Problem::new("nupf.listen", nupf.listen, reason));
    }
    if nupf.allow.is_empty() {
        let reason = "must name the networks of consumers; without them leave [nupf] out";
        problems.push(Problem::new("nupf.allow", &nupf.allow, reason));
    }
    if let Some(root) = nupf
        .api_root
        .as_ref()
        .filter(|root| root.is_tls() && nupf.own().is_none())
    {
        let reason = "https wants nupf.certificate_file";
        problems.push(Problem::new("nupf.api_root", root, reason));
    }
    tls(nupf, problems);
    let ranges = [
        ("max_subscriptions", nupf.max_subscriptions, 10_000),
        (
            "consumer_subscriptions",
            nupf.consumer_subscriptions,
            10_000,
        ),
        ("max_ues", nupf.max_ues, 10_000_000),
        ("min_period_s", nupf.min_period_s, 86_400),
        ("unanswered_s", nupf.unanswered_s, 86_400),
    ];
    for (key, value, most) in ranges {
        if !(1..=most).contains(&value) {
            let reason = format!("must be 1 to {most}");
            problems.push(Problem::new(format!("nupf.{key}"), value, reason));
        }
    }
}

fn tls(nupf: &Nupf, problems: &mut Vec<Problem>) {
    match (&nupf.certificate_file, &nupf.key_file) {
        (Some(file), None) => {
            let reason = "wants nupf.key_file";
            problems.push(Problem::new("nupf.certificate_file", file, reason));
        }
        (None, Some(file)) => {
            let reason = "wants nupf.certificate_file";
            problems.push(Problem::new("nupf.key_file", file, reason));
        }
        _ => {}
    }
    let read = nupf.server_tls().map(drop);
    if let Err(error) = read.and_then(|()| nupf.client_tls().map(drop)) {
        let (key, file) = match &error {
            BadTls::Authorities(_) => ("nupf.ca_file", &nupf.ca_file),
            BadTls::Certificate(_) => ("nupf.certificate_file", &nupf.certificate_file),
            BadTls::Key(_) => ("nupf.key_file", &nupf.key_file),
        };
        problems.push(Problem::new(key, file, error.to_string()));
    }
}

/// As `check-config` says it.
pub(super) fn understood(config: &Config) -> Option<String> {
    let nupf = config.nupf.as_ref()?;
    let octets = u64::from(nupf.max_ues) * sbi::ee::Watch::UE_OCTETS as u64 * 2;
    let allow: Vec<String> = nupf.allow.iter().map(ToString::to_string).collect();
    Some(format!(
        "nupf: {} may ask for the traffic of UEs at {}, and be told there; of {} UEs, in up to {} MiB",
        allow.join(", "),
        nupf.root(),
        nupf.max_ues,
        octets.div_ceil(1 << 20),
    ))
}
