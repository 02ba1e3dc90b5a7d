//! NRFs that this UPF is registered with.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use sbi::nrf::PlmnId;
use sbi::{BadTls, Server, Tls};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::values::is_fqdn;
use super::{Config, NodeId, Problem};

/// NRFs are tried one after the other.
const SERVERS_MAX: usize = 16;
/// Slices.
const SLICES_MAX: usize = 64;
/// Letters of a locality.
const LOCALITY_MAX: usize = 255;

/// Registration with an NRF (TS 29.510).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nrf {
    pub(crate) servers: Vec<Server>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instance_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fqdn: Option<String>,
    /// None: those of N4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) plmns: Vec<PlmnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) locality: Option<String>,
    #[serde(default = "Nrf::heartbeat_s")]
    pub(crate) heartbeat_s: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) oauth2: bool,
    pub(crate) slice: Vec<Slice>,
}

/// A slice that SMFs find this UPF by.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slice {
    pub(crate) sst: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sd: Option<String>,
    /// None: all network instances.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) dnns: Vec<String>,
}

impl Nrf {
    const fn heartbeat_s() -> u32 {
        10
    }

    /// Name of this NF instance.
    pub(crate) fn instance(&self, node: &NodeId) -> Uuid {
        self.instance_id
            .unwrap_or_else(|| sbi::nrf::instance_id(&node.to_string()))
    }

    /// `None`: no authorities are named.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, BadTls> {
        let Some(authorities) = &self.ca_file else {
            return Ok(None);
        };
        let own = self
            .certificate_file
            .as_deref()
            .zip(self.key_file.as_deref());
        Tls::read(authorities, own).map(Some)
    }
}

/// A domain name as NRFs take it (TS 29.571, Fqdn): two labels at least, the last of letters.
pub(crate) fn is_full(name: &str) -> bool {
    let last = name.rsplit_once('.').map(|(_, last)| last);
    let is_last = |last: &str| last.len() >= 2 && last.bytes().all(|b| b.is_ascii_alphabetic());
    is_fqdn(name) && last.is_some_and(is_last)
}

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let Some(nrf) = &config.nrf else { return };
    servers(nrf, problems);
    tls(nrf, problems);
    if nrf.fqdn.as_ref().is_some_and(|fqdn| !is_full(fqdn)) {
        let reason = "not a full domain name, such as upf1.example.org";
        problems.push(Problem::new("nrf.fqdn", &nrf.fqdn, reason));
    }
    if let Some(id) = nrf.instance_id.filter(|id| id.get_version_num() != 4) {
        let reason = "not a UUID of version 4, as uuidgen makes it (TS 29.571, NfInstanceId)";
        problems.push(Problem::new("nrf.instance_id", id, reason));
    }
    for (i, address) in nrf.addresses.iter().enumerate() {
        if address.is_unspecified() || address.is_multicast() {
            let key = format!("nrf.addresses[{i}]");
            problems.push(Problem::new(key, address, "must be one address"));
        }
    }
    let locality = nrf.locality.as_deref().unwrap_or_default();
    if locality.chars().count() > LOCALITY_MAX {
        let reason = format!("longer than {LOCALITY_MAX} characters");
        problems.push(Problem::new("nrf.locality", locality, reason));
    }
    if !(1..=3600).contains(&nrf.heartbeat_s) {
        let reason = "must be 1 to 3600";
        problems.push(Problem::new("nrf.heartbeat_s", nrf.heartbeat_s, reason));
    }
    slices(config, nrf, problems);
}

fn servers(nrf: &Nrf, problems: &mut Vec<Problem>) {
    if !(1..=SERVERS_MAX).contains(&nrf.servers.len()) {
        let reason = format!("must be 1 to {SERVERS_MAX}; without NRF leave [nrf] out");
        problems.push(Problem::new("nrf.servers", &nrf.servers, reason));
    }
    for (i, server) in nrf.servers.iter().enumerate() {
        let key = format!("nrf.servers[{i}]");
        if nrf.servers[..i].contains(server) {
            problems.push(Problem::new(key, server, "named twice"));
        } else if server.is_tls() && nrf.ca_file.is_none() {
            let reason = "https wants nrf.ca_file, with the authorities of its certificate";
            problems.push(Problem::new(key, server, reason));
        }
    }
}

fn tls(nrf: &Nrf, problems: &mut Vec<Problem>) {
    match (&nrf.certificate_file, &nrf.key_file) {
        (Some(file), None) => {
            let reason = "wants nrf.key_file";
            problems.push(Problem::new("nrf.certificate_file", file, reason));
        }
        (None, Some(file)) => {
            let reason = "wants nrf.certificate_file";
            problems.push(Problem::new("nrf.key_file", file, reason));
        }
        (Some(file), _) if nrf.ca_file.is_none() => {
            let reason = "wants nrf.ca_file";
            problems.push(Problem::new("nrf.certificate_file", file, reason));
        }
        _ => {}
    }
    if let Err(error) = nrf.tls() {
        let (key, file) = match &error {
            BadTls::Authorities(_) => ("nrf.ca_file", &nrf.ca_file),
            BadTls::Certificate(_) => ("nrf.certificate_file", &nrf.certificate_file),
            BadTls::Key(_) => ("nrf.key_file", &nrf.key_file),
        };
        problems.push(Problem::new(key, file, error.to_string()));
    }
}

fn slices(config: &Config, nrf: &Nrf, problems: &mut Vec<Problem>) {
    if !(1..=SLICES_MAX).contains(&nrf.slice.len()) {
        let reason = format!("must be 1 to {SLICES_MAX}");
        problems.push(Problem::new("nrf.slice", &nrf.slice, reason));
    }
    for (i, slice) in nrf.slice.iter().enumerate() {
        let key = format!("nrf.slice[{i}]");
        let is_sd = |sd: &String| sd.len() == 6 && sd.bytes().all(|b| b.is_ascii_hexdigit());
        if slice.sd.as_ref().is_some_and(|sd| !is_sd(sd)) {
            let reason = "not six hexadecimal digits, such as \"010203\"";
            problems.push(Problem::new(format!("{key}.sd"), &slice.sd, reason));
        }
        let same = |other: &Slice| {
            let [one, other] =
                [slice, other].map(|of| of.sd.as_ref().map(|sd| sd.to_ascii_lowercase()));
            one == other
        };
        if (nrf.slice[..i].iter()).any(|other| other.sst == slice.sst && same(other)) {
            problems.push(Problem::new(&key, slice, "named twice"));
        }
        let mut seen = BTreeSet::new();
        for (j, dnn) in slice.dnns.iter().enumerate() {
            let key = format!("{key}.dnns[{j}]");
            if !is_fqdn(dnn) {
                problems.push(Problem::new(key, dnn, "not a DNN, such as internet"));
            } else if !seen.insert(dnn.to_ascii_lowercase()) {
                problems.push(Problem::new(key, dnn, "named twice"));
            }
        }
        if slice.dnns.is_empty() && !config.network_instance.iter().any(|ni| is_fqdn(&ni.name)) {
            let reason = "is required, as no network instance has the name of a DNN";
            problems.push(Problem::missing(format!("{key}.dnns"), reason));
        }
    }
}

/// As `check-config` says it.
pub(super) fn understood(config: &Config) -> Option<String> {
    let nrf = config.nrf.as_ref()?;
    let servers: Vec<String> = nrf.servers.iter().map(ToString::to_string).collect();
    let slices = nrf.slice.iter();
    let slices: Vec<String> = slices
        .map(|of| match &of.sd {
            Some(sd) => format!("{}-{sd}", of.sst),
            None => of.sst.to_string(),
        })
        .collect();
    Some(format!(
        "nrf: registered with {}, as {}, for slices {}",
        servers.join(", else "),
        nrf.instance(&config.node.id),
        slices.join(", ")
    ))
}
