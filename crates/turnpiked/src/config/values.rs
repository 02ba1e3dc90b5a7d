//! Values that check themselves while they are read.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Our Node ID (TS 29.244, 8.2.38).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum NodeId {
    Ip(IpAddr),
    Fqdn(String),
}

impl TryFrom<String> for NodeId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let numeric = text
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '.' | ':'));
        if numeric || !is_fqdn(&text) {
            return Err("neither an IP address nor a domain name");
        }
        Ok(Self::Fqdn(text))
    }
}

/// Labels of 1 to 63 letters, digits and inner hyphens, 253 in all (RFC 1123, 2.1).
pub(crate) fn is_fqdn(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Fqdn(name) => name.fmt(f),
        }
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.to_string()
    }
}

/// A prefix without host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Prefix(pub(crate) IpNet);

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let net: IpNet = text
            .parse()
            .map_err(|_| "not a prefix such as 10.60.0.0/16".to_owned())?;
        if net.trunc() != net {
            return Err(format!(
                "has bits beyond its length; {} is meant?",
                net.trunc()
            ));
        }
        Ok(Self(net))
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.0.to_string()
    }
}
