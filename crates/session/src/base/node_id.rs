//! Node IDs that outlive the message they came in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pfcp::ie::{self, DnsName};
use serde::{Deserialize, Serialize};

/// Our Node ID, as it is configured (TS 29.244, 8.2.38).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeIdConfig {
    /// IPv4 or IPv6.
    Ip(IpAddr),
    /// Fully qualified domain name, in text: labels joined by dots.
    Fqdn(String),
}

/// Node ID of an SMF (TS 29.244, 8.2.38).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeId {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// IPv6 address.
    V6(Ipv6Addr),
    /// Fully qualified domain name: lower case, labels joined by dots.
    Fqdn(Box<str>),
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => address.fmt(f),
            Self::Fqdn(name) => name.fmt(f),
        }
    }
}

impl NodeId {
    /// The address that it is, if it is no name.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::V4(address) => Some((*address).into()),
            Self::V6(address) => Some((*address).into()),
            Self::Fqdn(_) => None,
        }
    }

    /// Whether it is an address, or a name that can be one (RFC 1035, 2.3.4): labels of 1 to 63 letters, digits, hyphens
    /// or underscores, which are no host's but some SMF's, with at most 255 octets on the wire.
    pub(crate) fn is_legal(&self) -> bool {
        let is_label = |label: &str| {
            let is_sign = |sign: u8| sign.is_ascii_alphanumeric() || matches!(sign, b'-' | b'_');
            (1..=63).contains(&label.len()) && label.bytes().all(is_sign)
        };
        match self {
            Self::V4(_) | Self::V6(_) => true,
            Self::Fqdn(name) => name.len() <= 253 && name.split('.').all(is_label),
        }
    }

    /// Names are the same whatever their case and whether they came as labels or as text.
    pub(crate) fn from_wire(node_id: &ie::NodeId<'_>) -> Self {
        match node_id {
            ie::NodeId::Ipv4(address) => Self::V4(*address),
            ie::NodeId::Ipv6(address) => Self::V6(*address),
            ie::NodeId::Fqdn(name) => {
                let text = name.to_string().to_ascii_lowercase();
                Self::Fqdn(text.trim_end_matches('.').into())
            }
        }
    }
}

/// Our own Node ID, as it is sent.
#[derive(Clone, Debug)]
pub(crate) enum OwnNodeId {
    Ip(IpAddr),
    Name { labels: Box<[u8]>, text: NodeId },
}

impl OwnNodeId {
    pub(crate) fn new(config: &NodeIdConfig) -> Self {
        match config {
            NodeIdConfig::Ip(address) => Self::Ip(*address),
            NodeIdConfig::Fqdn(name) => {
                let labels = labels(name);
                let text = NodeId::from_wire(&ie::NodeId::Fqdn(DnsName(&labels)));
                Self::Name { labels, text }
            }
        }
    }

    pub(crate) fn to_wire(&self) -> ie::NodeId<'_> {
        match self {
            Self::Ip(address) => ie::NodeId::from(*address),
            Self::Name { labels, .. } => ie::NodeId::Fqdn(DnsName(labels)),
        }
    }

    pub(crate) fn to_node_id(&self) -> NodeId {
        NodeId::from_wire(&self.to_wire())
    }

    /// Whether a peer calls itself what we are called.
    pub(crate) fn is(&self, other: &ie::NodeId<'_>) -> bool {
        match (self, other) {
            (Self::Ip(us), ie::NodeId::Ipv4(other)) => us.to_canonical() == IpAddr::V4(*other),
            (Self::Ip(us), ie::NodeId::Ipv6(other)) => {
                us.to_canonical() == IpAddr::V6(*other).to_canonical()
            }
            (Self::Name { text, .. }, ie::NodeId::Fqdn(_)) => *text == NodeId::from_wire(other),
            _ => false,
        }
    }
}

/// RFC 1035, 3.1, without the last empty label (TS 23.003, 19.4.2.1). Labels are at most 63
/// octets in a name that was checked when it was configured; longer ones are cut.
fn labels(name: &str) -> Box<[u8]> {
    let mut out = Vec::with_capacity(name.len() + 1);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(label.len() as u8);
        out.extend_from_slice(label);
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_in_three_spellings_is_one_node() {
        let spellings: [&[u8]; 3] = [b"\x04smf1\x03lab", b"\x04SMF1\x03Lab\x00", b"smf1.lab"];
        for spelling in spellings {
            let wire = ie::NodeId::Fqdn(DnsName(spelling));
            assert_eq!(
                NodeId::from_wire(&wire),
                NodeId::Fqdn("smf1.lab".into()),
                "{wire}"
            );
        }
    }

    #[test]
    fn a_name_is_made_of_labels() {
        let fits = format!("{0}.{0}.{0}.{1}", "x".repeat(63), "y".repeat(61));
        let is_legal = |name: &str| NodeId::Fqdn(name.into()).is_legal();
        for name in [
            "smf",
            "smf-1.5gc.mnc001.3gppnetwork.org",
            "open5gs_smf",
            fits.as_str(),
        ] {
            assert!(is_legal(name), "{name}");
        }
        let (label, name) = ("x".repeat(64), fits + "y");
        for name in [
            "", "a..b", ".a", &*label, &*name, "a b", "a\\x0ab", "a/b", "ä",
        ] {
            assert!(!is_legal(name), "{name}");
        }
        assert!(NodeId::V4(Ipv4Addr::LOCALHOST).is_legal());
    }

    #[test]
    fn our_name_goes_out_in_labels() {
        assert_eq!(&*labels("upf1.example.org."), b"\x04upf1\x07example\x03org");
    }
}
